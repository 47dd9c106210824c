/* SPDX-License-Identifier: MIT */
/* cpu_times.c: see cpu_times.h. Threads are few where this is asked for: a list, the one that was used last in front. */
#include "collector/live/cpu_times.h"

#include <stdlib.h>
#include <string.h>

#include "collector/base/list.h"

/* An event may tell of an entry that lies behind others': handlers that ran meanwhile, and a call in a call. */
enum { KEPT = 16, THREADS = 4096 };

struct sample {
	uint64_t tick, ns;
};

struct teller {
	struct teller *next;
	uint8_t image[16];
	uint64_t birth;
	size_t count, room;
	struct sample *samples; /* by tick */
};

struct cpu_times {
	struct teller *tellers;
	size_t count;
};

struct cpu_times *cpu_times_new(void)
{
	return calloc(1, sizeof(struct cpu_times));
}

static void free_teller(struct cpu_times *times, struct teller **place)
{
	struct teller *teller = *place;
	*place = teller->next;
	free(teller->samples);
	free(teller);
	times->count--;
}

void cpu_times_free(struct cpu_times *times)
{
	while (times && times->tellers)
		free_teller(times, &times->tellers);
	free(times);
}

static int is_of(const struct teller *teller, const uint8_t image[16], uint64_t birth)
{
	return teller->birth == birth && memcmp(teller->image, image, sizeof teller->image) == 0;
}

static const struct teller *find(const struct cpu_times *times, const uint8_t image[16], uint64_t birth)
{
	const struct teller *teller = times->tellers;
	while (teller && !is_of(teller, image, birth))
		teller = teller->next;
	return teller;
}

/* In front from now on; made where there is none. */
static struct teller *teller_of(struct cpu_times *times, const uint8_t image[16], uint64_t birth)
{
	struct teller **place = &times->tellers;
	while (*place && !is_of(*place, image, birth))
		place = &(*place)->next;
	struct teller *teller = *place;
	if (teller) {
		*place = teller->next;
	} else {
		teller = calloc(1, sizeof *teller);
		if (!teller)
			return NULL;
		memcpy(teller->image, image, sizeof teller->image);
		teller->birth = birth;
		times->count++;
	}
	teller->next = times->tellers;
	times->tellers = teller;
	return teller;
}

static int grow(struct teller *teller)
{
	struct sample *list = list_with_room(teller->samples, teller->count, &teller->room, sizeof *list, KEPT);
	if (!list)
		return -1;
	teller->samples = list;
	return 0;
}

int cpu_times_add(struct cpu_times *times, const uint8_t image[16], uint64_t birth, uint64_t tick, uint64_t ns)
{
	struct teller *teller = teller_of(times, image, birth);
	if (!teller || (teller->count == teller->room && grow(teller)))
		return -1;
	size_t at = teller->count;
	while (at > 0 && teller->samples[at - 1].tick > tick)
		at--;
	if (at > 0 && teller->samples[at - 1].tick == tick) {
		teller->samples[at - 1].ns = ns;
		return 0;
	}
	memmove(teller->samples + at + 1, teller->samples + at, (teller->count - at) * sizeof *teller->samples);
	teller->samples[at] = (struct sample){tick, ns};
	teller->count++;
	return 0;
}

/* NULL: none. */
static const struct sample *newest(const struct teller *teller, uint64_t tick)
{
	size_t low = list_up_to(teller->samples, teller->count, sizeof *teller->samples, offsetof(struct sample, tick), tick);
	return low ? &teller->samples[low - 1] : NULL;
}

int cpu_times_at(const struct cpu_times *times, const uint8_t image[16], uint64_t birth, uint64_t tick, uint64_t *ns)
{
	const struct teller *own = find(times, image, birth);
	const struct sample *best = own ? newest(own, tick) : NULL;
	for (const struct teller *teller = best ? NULL : times->tellers; teller; teller = teller->next) {
		const struct sample *sample = memcmp(teller->image, image, sizeof teller->image) == 0 ? newest(teller, tick) : NULL;
		if (sample && (!best || sample->tick > best->tick))
			best = sample;
	}
	if (!best)
		return -1;
	*ns = best->ns;
	return 0;
}

void cpu_times_shown(struct cpu_times *times)
{
	for (struct teller *teller = times->tellers; teller; teller = teller->next) {
		size_t gone = teller->count > KEPT ? teller->count - KEPT : 0;
		if (!gone)
			continue;
		teller->count -= gone;
		memmove(teller->samples, teller->samples + gone, teller->count * sizeof *teller->samples);
	}
	struct teller **place = &times->tellers;
	for (size_t i = 0; i < THREADS && *place; i++)
		place = &(*place)->next;
	while (*place)
		free_teller(times, place); /* those that have told nothing for longest */
}
