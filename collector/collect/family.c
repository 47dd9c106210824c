/* SPDX-License-Identifier: MIT */
/* family.c: an arena's life: claimed, attached, abandoned. See family.h. */
#include "collector/collect/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/collect/keeping.h"

enum {
	FIRST_LOOK_NS = 1000000,
	LONGEST_LOOK_NS = 100000000,
};
/* From claim to the first image; no program needs so long, but a machine may be busy. */
static const uint64_t ATTACH_LIMIT_NS = 10000000000;

struct family *family_create(struct family_context *context, struct memory memory, const struct arena_layout *layout,
			     const uint8_t id[16])
{
	struct family *family = calloc(1, sizeof *family);
	struct stat status = {0};
	if (family)
		family->waiting = calloc(layout->chunk_count, 2);
	if (!family || !family->waiting) {
		memory_free(&memory);
		free(family);
		return NULL;
	}
	family->use = family->waiting + layout->chunk_count;
	family->context = context;
	family->memory = memory;
	family->layout = *layout;
	memcpy(family->id, id, sizeof family->id);
	fstat(memory.descriptor, &status);
	family->inode = status.st_ino;
	family->claimed_ns = clock_monotonic_ns();
	family->requests = requests_create(family);
	return family;
}

/* Everything that there is to do in one round. */
static void work(struct family *family, uint64_t now_ns)
{
	images_pass(family, now_ns);
	processes_pass(family, now_ns);
	drain_pass(family);
	processes_finish(family);
	images_finish(family, now_ns);
}

/* More often than this no thread can have begun anew: the counter itself was overwritten. */
enum { DAMAGE_LIMIT = 1 << 20 };

static void tell_match(struct family *family, uint64_t count, const char *why)
{
	if (count > clock_tick(&family->context->clock) - family->context->clock.base_tick)
		family->damaged++;
	else if (count)
		notes_gap(&family->context->notes, count, 0, "match specification", why);
}

/* What the arena itself counted, as far as it can be true: it is memory that the program can write. */
static void tell_totals(struct family *family)
{
	const struct lorg_arena *arena = family_arena(family);
	struct notes *notes = &family->context->notes;
	uint64_t lost = arena->uncounted_lost;
	char text[96];
	if (lost > clock_tick(&family->context->clock) - family->context->clock.base_tick)
		family->damaged++;
	else if (lost)
		notes_lost(notes, lost, "no place for a thread in the arena");
	tell_match(family, arena->match_exceeded, "calls in it failed that would have taken more than is allowed: 10,000 steps, 64 KiB");
	tell_match(family, arena->match_left_out, "evaluations had no memory: the arena was full, or a signal handler came in twice");
	tell_match(family, arena->match_broken, "evaluations found a program that makes no sense");
	if (arena->damage_count > DAMAGE_LIMIT) {
		family->damaged++;
	} else if (arena->damage_count) {
		snprintf(text, sizeof text, "%" PRIu32 " times a thread found its state wrong and began anew", arena->damage_count);
		notes_gap(notes, 1, 0, "arena damaged by the program", text);
	}
	if (family->damaged) {
		snprintf(text, sizeof text, "%" PRIu32 " chunks or entries had contents that cannot be", family->damaged);
		notes_gap(notes, 1, 0, "arena damaged by the program", text);
	}
}

/* No process is known that has the memory mapped: is there any? */
static int is_abandoned(struct family *family, uint64_t now_ns)
{
	if (family->images_alive || now_ns < family->look_ns)
		return 0;
	/* It may have been claimed after this pass began. */
	if (!family->attached && now_ns < family->claimed_ns + ATTACH_LIMIT_NS)
		return 0;
	if (memory_abandoned(&family->memory))
		return 1;
	/* A child that has not said a word yet, or one whose pid is not known. */
	family->look_step_ns = family->look_step_ns ? family->look_step_ns * 2 : FIRST_LOOK_NS;
	if (family->look_step_ns > LONGEST_LOOK_NS)
		family->look_step_ns = LONGEST_LOOK_NS;
	family->look_ns = now_ns + family->look_step_ns;
	return 0;
}

/* Nobody can change it any more: the last of it is read from a private copy. */
static void take_last(struct family *family, uint64_t now_ns)
{
	void *at = mmap(NULL, family->memory.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, family->memory.descriptor, 0);
	if (at == MAP_FAILED)
		return;
	family->memory.at = at;
	family->sealed = 1;
	family->final = 1;
	work(family, now_ns);
	tell_totals(family);
}

/* A program may wipe shared memory that it finds mapped. What the hooks need is put back. */
static void mend(struct family *family)
{
	struct lorg_arena *arena = family_arena(family);
	if (arena->magic == LORG_ARENA_MAGIC)
		return;
	arena_prepare(&family->memory, &family->layout, family->context->arena_settings, family->id);
	/* All chunks are looked at again: which were ever taken is not known any more. */
	__atomic_store_n(&arena->chunk_high_water, family->layout.chunk_count, __ATOMIC_RELEASE);
	__atomic_store_n(&arena->image_high_water, LORG_IMAGES, __ATOMIC_RELEASE);
	family->damaged++;
}

int family_pass(struct family *family, uint64_t now_ns)
{
	mend(family);
	__atomic_store_n(&family_arena(family)->heartbeat_ns, now_ns, __ATOMIC_RELAXED);
	work(family, now_ns);
	family->context->requests_wait |= requests_pass(family->requests, now_ns);
	trim_pass(family, now_ns);
	if (!is_abandoned(family, now_ns))
		return 1;
	take_last(family, now_ns);
	return 0;
}

void family_detach(struct family *family)
{
	struct lorg_arena *arena = family_arena(family);
	/* Gates first: hooks that are entered from now on forward. */
	for (uint32_t i = 0; i < LORG_HOOKS; i++)
		__atomic_store_n(&arena->gate[i], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&arena->detached, 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&arena->settings_generation, 1, __ATOMIC_RELEASE);
	requests_detach(family->requests);
}

void family_take_rest(struct family *family)
{
	family->final = 1;
	work(family, clock_monotonic_ns());
	tell_totals(family);
}

void family_free(struct family *family)
{
	requests_free(family->requests);
	processes_free(family);
	images_free(family);
	forget_memory(family->context->arena_settings->keeping, family->id);
	memory_free(&family->memory);
	free(family->waiting);
	free(family);
}
