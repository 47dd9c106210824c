/* SPDX-License-Identifier: MIT */
/* channel.c: see channel.h. The table lies in the node segment: every program of the node reads and writes it. */
#include "preload/core/channel.h"

#include "preload/core/event.h"

enum {
	PROBES = 64,
	OLD_ENOUGH = 16, /* in the unit of last_use: unused for so long, a place may be taken over */
	BEING_TAKEN = 1, /* a key that no object has */
};

static uint32_t name_of(uint32_t index, const struct lorg_channel *entry)
{
	return index | __atomic_load_n(&entry->generation, __ATOMIC_RELAXED) << LORG_CHANNEL_SHIFT;
}

static void note_use(struct lorg_channel *entry, uint32_t use)
{
	__atomic_store_n(&entry->sent.last_use, use, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->received.last_use, use, __ATOMIC_RELAXED);
}

uint64_t channel_newest(uint32_t channel, uint64_t bytes)
{
	if (!channel || !the_arena.node)
		return 0;
	struct lorg_channel *entry = channel_entry_of(channel);
	if (!entry)
		return CHANNEL_STALE;
	uint64_t sent = __atomic_load_n(&entry->sent.offset, __ATOMIC_RELAXED);
	return sent > bytes ? sent - bytes : 0;
}

void channel_closed(uint32_t channel)
{
	struct lorg_channel *entry = channel && the_arena.node ? channel_entry_of(channel) : 0;
	if (entry)
		note_use(entry, (uint32_t)(clock_now() >> CHANNEL_USE_SHIFT) - OLD_ENOUGH - 1);
}

/* ---- places ------------------------------------------------------------------ */

/* How long it has not been used, at either end. */
static uint32_t age_of(const struct lorg_channel *entry, uint32_t now)
{
	uint32_t sent = now - __atomic_load_n(&entry->sent.last_use, __ATOMIC_RELAXED);
	uint32_t received = now - __atomic_load_n(&entry->received.last_use, __ATOMIC_RELAXED);
	return sent < received ? sent : received;
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
	entry->sent.offset = entry->received.offset = 0;
	entry->sent.looks = entry->received.looks = entry->sent.waiting = 0;
	entry->sent.since = entry->sent.under_way = 0;
	entry->alias = 0;
	entry->listens = entry->accepting = 0;
	entry->driver = driver;
	note_use(entry, now);
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
	note_use(entry, now);
	return 1;
}

/* Index of the entry of a key itself, aliases not followed; 0: no room. */
static uint32_t find_entry(uint64_t key, enum lorg_driver driver)
{
	if (!the_arena.node)
		return 0;
	uint32_t start = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40), oldest = 0, age = OLD_ENOUGH;
	uint32_t now = (uint32_t)(clock_now() >> CHANNEL_USE_SHIFT);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint32_t index = (start + probe) % LORG_CHANNELS;
		if (index == 0)
			continue;
		struct lorg_channel *entry = channel_entry(index);
		/* Acquire: pairs with take_over. */
		uint64_t seen = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
		if (seen == key || (!seen && take_free(entry, key, driver, now)))
			return index;
		if (age_of(entry, now) > age) {
			oldest = index;
			age = age_of(entry, now);
		}
	}
	return oldest && take_over(channel_entry(oldest), key, driver, now) ? oldest : 0;
}

uint32_t channel_find(uint64_t key, enum lorg_driver driver)
{
	uint32_t index = find_entry(key, driver);
	if (!index)
		return 0;
	struct lorg_channel *entry = channel_entry(index);
	/* Pairs with the store in channel_alias. */
	uint32_t alias = __atomic_load_n(&entry->alias, __ATOMIC_ACQUIRE);
	return alias && channel_entry_of(alias) ? alias : name_of(index, entry);
}

uint32_t channel_known(uint64_t key)
{
	if (!the_arena.node)
		return 0;
	uint32_t start = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 40);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint32_t index = (start + probe) % LORG_CHANNELS;
		uint64_t seen = index ? __atomic_load_n(&channel_entry(index)->key, __ATOMIC_ACQUIRE) : BEING_TAKEN;
		if (!seen)
			return 0;
		if (seen != key)
			continue;
		struct lorg_channel *entry = channel_entry(index);
		uint32_t alias = __atomic_load_n(&entry->alias, __ATOMIC_ACQUIRE);
		note_use(entry, (uint32_t)(clock_now() >> CHANNEL_USE_SHIFT));
		return alias && channel_entry_of(alias) ? alias : name_of(index, entry);
	}
	return 0;
}

void channel_alias(uint64_t key, uint32_t channel, enum lorg_driver driver)
{
	uint32_t index = find_entry(key, driver);
	if (index && channel && index != channel % LORG_CHANNELS)
		__atomic_store_n(&channel_entry(index)->alias, channel, __ATOMIC_RELEASE);
}
