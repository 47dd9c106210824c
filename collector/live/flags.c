/* SPDX-License-Identifier: MIT */
/* flags.c: see flags.h. A table by hash; each key has its few last settings, newest last. */
#include "collector/live/flags.h"

#include <stdlib.h>
#include <string.h>

enum { SETTINGS = 6 };

struct entry {
	int used;
	unsigned count;
	struct live_flags_key key;
	struct {
		uint64_t tick;
		uint32_t on;
	} settings[SETTINGS];
};

struct live_flags {
	struct entry *entries;
	size_t room, count; /* room: a power of two */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct live_flags_key *key)
{
	uint64_t low, high;
	memcpy(&low, key->image, 8);
	memcpy(&high, key->image + 8, 8);
	return mix(mix(mix(mix(0, low), high), key->birth), (uint64_t)(uint32_t)key->fd << 32 | key->generation);
}

static int same(const struct live_flags_key *a, const struct live_flags_key *b)
{
	return a->birth == b->birth && a->fd == b->fd && a->generation == b->generation && memcmp(a->image, b->image, 16) == 0;
}

/* The entry of a key, or the free place for it. */
static struct entry *find(const struct live_flags *flags, const struct live_flags_key *key)
{
	size_t at = hash_of(key) & (flags->room - 1);
	while (flags->entries[at].used && !same(&flags->entries[at].key, key))
		at = (at + 1) & (flags->room - 1);
	return &flags->entries[at];
}

struct live_flags *live_flags_new(void)
{
	struct live_flags *flags = calloc(1, sizeof *flags);
	if (!flags)
		return NULL;
	flags->room = 64;
	flags->entries = calloc(flags->room, sizeof *flags->entries);
	if (!flags->entries) {
		free(flags);
		return NULL;
	}
	return flags;
}

void live_flags_free(struct live_flags *flags)
{
	if (flags)
		free(flags->entries);
	free(flags);
}

static int rebuild(struct live_flags *flags, size_t room, int (*keeps)(void *context, const struct live_flags_key *key), void *context)
{
	struct live_flags next = {.entries = calloc(room, sizeof *next.entries), .room = room};
	if (!next.entries)
		return -1;
	for (size_t i = 0; i < flags->room; i++) {
		const struct entry *entry = &flags->entries[i];
		if (!entry->used || (keeps && !keeps(context, &entry->key)))
			continue;
		*find(&next, &entry->key) = *entry;
		next.count++;
	}
	free(flags->entries);
	*flags = next;
	return 0;
}

int live_flags_set(struct live_flags *flags, const struct live_flags_key *key, uint64_t tick, uint32_t on)
{
	if (flags->count * 2 >= flags->room && rebuild(flags, flags->room * 2, NULL, NULL))
		return -1;
	struct entry *entry = find(flags, key);
	if (!entry->used) {
		*entry = (struct entry){.used = 1, .key = *key};
		flags->count++;
	}
	unsigned at = entry->count;
	while (at > 0 && entry->settings[at - 1].tick > tick)
		at--;
	if (at > 0 && (entry->settings[at - 1].tick == tick || entry->settings[at - 1].on == on)) {
		if (entry->settings[at - 1].tick == tick)
			entry->settings[at - 1].on = on;
		return 0;
	}
	if (entry->count == SETTINGS) { /* the oldest goes */
		if (at == 0)
			return 0;
		memmove(entry->settings, entry->settings + 1, (SETTINGS - 1) * sizeof *entry->settings);
		entry->count--;
		at--;
	}
	memmove(entry->settings + at + 1, entry->settings + at, (entry->count - at) * sizeof *entry->settings);
	entry->settings[at].tick = tick;
	entry->settings[at].on = on;
	entry->count++;
	return 0;
}

uint32_t live_flags_at(const struct live_flags *flags, const struct live_flags_key *key, uint64_t tick)
{
	const struct entry *entry = find(flags, key);
	if (!entry->used)
		return 0;
	for (unsigned i = entry->count; i-- > 0;)
		if (entry->settings[i].tick <= tick)
			return entry->settings[i].on;
	return 0;
}

void live_flags_prune(struct live_flags *flags, int (*keeps)(void *context, const struct live_flags_key *key), void *context)
{
	rebuild(flags, flags->room, keeps, context); /* without memory all are kept */
}
