/* SPDX-License-Identifier: MIT */
/*
 * channel.h: numbers for the bytes of kernel objects that several programs
 * share, so that a reader can tell which send a receive took its bytes from.
 *
 * A channel is named by its place in the node's table and how often that place
 * was given to another object: places are taken over when the table is full and
 * an object has long not been used. So a name may have become stale; then it
 * numbers nothing any more, and its user has to look the key up again.
 *
 * No function here makes a system call; all are async-signal-safe.
 */
#ifndef LORG_PRELOAD_CHANNEL_H
#define LORG_PRELOAD_CHANNEL_H

#include <lorg/abi.h>
#include <lorg/events.h>

#include "preload/core/arena.h"

#define CHANNEL_STALE UINT64_MAX

enum { CHANNEL_USE_SHIFT = 30 /* last_use counts 2^30 ticks: about half a second */ };

static inline struct lorg_channel *channel_entry(uint32_t index)
{
	return (struct lorg_channel *)((char *)the_arena.node + the_arena.channels_offset) + index;
}

/* The entry of a channel that is not stale, else NULL. */
static inline struct lorg_channel *channel_entry_of(uint32_t channel)
{
	struct lorg_channel *entry = channel_entry(channel % LORG_CHANNELS);
	uint32_t generation = __atomic_load_n(&entry->generation, __ATOMIC_RELAXED);
	return (generation << LORG_CHANNEL_SHIFT >> LORG_CHANNEL_SHIFT) == channel >> LORG_CHANNEL_SHIFT ? entry : 0;
}

static inline uint64_t channel_count(struct lorg_channel_end *end, uint64_t bytes, uint64_t tick)
{
	uint32_t use = (uint32_t)(tick >> CHANNEL_USE_SHIFT);
	if (__builtin_expect(__atomic_load_n(&end->last_use, __ATOMIC_RELAXED) != use, 0))
		__atomic_store_n(&end->last_use, use, __ATOMIC_RELAXED);
	/* Shared by all programs of the node: numbers the bytes in the order of these additions. */
	return __atomic_fetch_add(&end->offset, bytes, __ATOMIC_RELAXED);
}

/*
 * Numbers `bytes` that were sent at `tick`: returns the offset of the first of them. channel 0: returns 0. A stale
 * channel: returns CHANNEL_STALE.
 */
static inline uint64_t channel_advance(uint32_t channel, uint64_t bytes, uint64_t tick)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = channel_entry_of(channel);
	return __builtin_expect(entry != 0, 1) ? channel_count(&entry->sent, bytes, tick) : CHANNEL_STALE;
}

/* The same for the receiving end, which counts on its own: a byte has one offset at both ends. */
static inline uint64_t channel_advance_received(uint32_t channel, uint64_t bytes, uint64_t tick)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = channel_entry_of(channel);
	return __builtin_expect(entry != 0, 1) ? channel_count(&entry->received, bytes, tick) : CHANNEL_STALE;
}

/* Offset of the newest `bytes` that were sent; does not count as taking them out. Stale: as above. */
HIDDEN uint64_t channel_newest(uint32_t channel, uint64_t bytes);

/* A descriptor of the object was closed: unless someone uses it again, its place is the first to be given away. */
HIDDEN void channel_closed(uint32_t channel);

/* The channel of a kernel object, made if new; 0 when there is no room. key: lorg_channel_key(). */
HIDDEN uint32_t channel_find(uint64_t key, enum lorg_driver driver);

/* The same of one that is there already, else 0. */
HIDDEN uint32_t channel_known(uint64_t key);

/* Makes every later channel_find(key) give `channel`: one direction of a socketpair has two names. */
HIDDEN void channel_alias(uint64_t key, uint32_t channel, enum lorg_driver driver);

#endif
