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

/*
 * Numbers `bytes` that were sent at `tick`: returns the offset of the first of them. channel 0: returns 0. A stale
 * channel: returns CHANNEL_STALE.
 */
HIDDEN uint64_t channel_advance(uint32_t channel, uint64_t bytes, uint64_t tick);

/* The same for the receiving end, which counts on its own: a byte has one offset at both ends. */
HIDDEN uint64_t channel_advance_received(uint32_t channel, uint64_t bytes, uint64_t tick);

/* Offset of the newest `bytes` that were sent; does not count as taking them out. Stale: as above. */
HIDDEN uint64_t channel_newest(uint32_t channel, uint64_t bytes);

/* A descriptor of the object was closed: unless someone uses it again, its place is the first to be given away. */
HIDDEN void channel_closed(uint32_t channel);

/* The channel of a kernel object, made if new; 0 when there is no room. key: lorg_channel_key(). */
HIDDEN uint32_t channel_find(uint64_t key, enum lorg_driver driver);

/* Makes every later channel_find(key) give `channel`: one direction of a socketpair has two names. */
HIDDEN void channel_alias(uint64_t key, uint32_t channel, enum lorg_driver driver);

#endif
