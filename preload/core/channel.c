/* SPDX-License-Identifier: MIT */
/* channel.c: see channel.h. The table lies in the node segment: every program of the node reads and writes it. */
#include "preload/core/channel.h"

#include "preload/core/event.h"

enum {
	PROBES = 64,
	USE_SHIFT = 30,  /* last_use counts 2^30 ticks: about half a second */
	OLD_ENOUGH = 16, /* in that unit: unused for so long, a place may be taken over */
	BEING_TAKEN = 1, /* a key that no object has */
};

static struct lorg_channel *entry_at(uint32_t index)
{
	return (struct lorg_channel *)((char *)the_arena.node + the_arena.channels_offset) + index;
}

static uint32_t name_of(uint32_t index, const struct lorg_channel *entry)
{
	return index | __atomic_load_n(&entry->generation, __ATOMIC_RELAXED) << LORG_CHANNEL_SHIFT;
}

/* The entry of a channel that is not stale, else NULL. */
static inline struct lorg_channel *entry_of(uint32_t channel)
{
	struct lorg_channel *entry = entry_at(channel % LORG_CHANNELS);
	uint32_t generation = __atomic_load_n(&entry->generation, __ATOMIC_RELAXED);
	return (generation << LORG_CHANNEL_SHIFT >> LORG_CHANNEL_SHIFT) == channel >> LORG_CHANNEL_SHIFT ? entry : 0;
}

static inline void note_use(struct lorg_channel *entry, uint64_t tick)
{
	uint32_t use = (uint32_t)(tick >> USE_SHIFT);
	if (__atomic_load_n(&entry->last_use, __ATOMIC_RELAXED) != use)
		__atomic_store_n(&entry->last_use, use, __ATOMIC_RELAXED);
}

uint64_t channel_advance(uint32_t channel, uint64_t bytes, uint64_t tick)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = entry_of(channel);
	if (__builtin_expect(!entry, 0))
		return CHANNEL_STALE;
	note_use(entry, tick);
	__atomic_fetch_add(&entry->message_count, 1, __ATOMIC_RELAXED);
	/* Shared by all programs of the node: numbers the bytes in the order of these additions. */
	return __atomic_fetch_add(&entry->byte_offset, bytes, __ATOMIC_RELAXED);
}

uint64_t channel_advance_received(uint32_t channel, uint64_t bytes, uint64_t tick)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = entry_of(channel);
	if (__builtin_expect(!entry, 0))
		return CHANNEL_STALE;
	note_use(entry, tick);
	__atomic_fetch_add(&entry->received_count, 1, __ATOMIC_RELAXED);
	/* As in channel_advance, for what is taken out. */
	return __atomic_fetch_add(&entry->received_offset, bytes, __ATOMIC_RELAXED);
}

uint64_t channel_newest(uint32_t channel, uint64_t bytes)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = entry_of(channel);
	if (!entry)
		return CHANNEL_STALE;
	uint64_t sent = __atomic_load_n(&entry->byte_offset, __ATOMIC_RELAXED);
	return sent > bytes ? sent - bytes : 0;
}

void channel_closed(uint32_t channel)
{
	struct lorg_channel *entry = channel && the_arena.node ? entry_of(channel) : 0;
	if (entry)
		__atomic_store_n(&entry->last_use, (uint32_t)(clock_now() >> USE_SHIFT) - OLD_ENOUGH - 1, __ATOMIC_RELAXED);
}

/* ---- places ------------------------------------------------------------------ */

static int is_older(const struct lorg_channel *entry, uint32_t age, uint32_t now)
{
	return now - __atomic_load_n(&entry->last_use, __ATOMIC_RELAXED) > age;
}

/* Gives the place of an object that has long not been used to another. 0: someone else was faster. */
static int take_over(struct lorg_channel *entry, uint64_t key, enum lorg_driver driver, uint32_t now)
{
	uint64_t seen = __atomic_load_n(&entry->key, __ATOMIC_RELAXED);
	/* While the key is BEING_TAKEN the entry is ours alone. */
	if (seen == BEING_TAKEN ||
	    !__atomic_compare_exchange_n(&entry->key, &seen, BEING_TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 0;
	__atomic_store_n(&entry->generation, entry->generation + 1, __ATOMIC_RELEASE);
	entry->byte_offset = entry->received_offset = 0;
	entry->message_count = entry->received_count = 0;
	entry->alias = 0;
	entry->driver = driver;
	entry->last_use = now;
	/* Release: who finds the key finds the rest. */
	__atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
	return 1;
}

static int take_free(struct lorg_channel *entry, uint64_t key, enum lorg_driver driver, uint32_t now)
{
	uint64_t expected = 0;
	if (!__atomic_compare_exchange_n(&entry->key, &expected, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return expected == key;
	entry->driver = driver;
	entry->last_use = now;
	return 1;
}

/* Index of the entry of a key itself, aliases not followed; 0: no room. */
static uint32_t find_entry(uint64_t key, enum lorg_driver driver)
{
	if (!the_arena.node)
		return 0;
	uint32_t start = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40), oldest = 0, age = OLD_ENOUGH;
	uint32_t now = (uint32_t)(clock_now() >> USE_SHIFT);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint32_t index = (start + probe) % LORG_CHANNELS;
		if (index == 0)
			continue;
		struct lorg_channel *entry = entry_at(index);
		/* Acquire: pairs with take_over. */
		uint64_t seen = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
		if (seen == key || (!seen && take_free(entry, key, driver, now)))
			return index;
		if (is_older(entry, age, now)) {
			oldest = index;
			age = now - entry->last_use;
		}
	}
	return oldest && take_over(entry_at(oldest), key, driver, now) ? oldest : 0;
}

uint32_t channel_find(uint64_t key, enum lorg_driver driver)
{
	uint32_t index = find_entry(key, driver);
	if (!index)
		return 0;
	struct lorg_channel *entry = entry_at(index);
	/* Pairs with the store in channel_alias. */
	uint32_t alias = __atomic_load_n(&entry->alias, __ATOMIC_ACQUIRE);
	return alias && entry_of(alias) ? alias : name_of(index, entry);
}

void channel_alias(uint64_t key, uint32_t channel, enum lorg_driver driver)
{
	uint32_t index = find_entry(key, driver);
	if (index && channel && index != channel % LORG_CHANNELS)
		__atomic_store_n(&entry_at(index)->alias, channel, __ATOMIC_RELEASE);
}
