/* SPDX-License-Identifier: MIT */
/*
 * trim.c: gives memory that was in use, and has not been for a while, back to
 * the system: what a burst of threads took, or a backlog of a busy machine, does
 * not stay with a program for the rest of its life. Free chunks lose their
 * pages; slabs without threads do, and are anybody's who wants a new one.
 *
 * Chunks and entries are taken like a program takes them while their pages go,
 * so nobody writes into them; what is read there afterwards is zero, as what is
 * free has to be.
 */
#include <fcntl.h>

#include "collector/collect/family.h"

enum {
	KEPT_CHUNKS = 64, /* the first ones, which are taken first: 4 MiB stay warm */
	RUN_LIMIT = 64,	  /* chunks that no program can take at once */
};
static const uint64_t TRIM_STEP_NS = 500000000; /* a chunk is not used for one to two steps before its pages go */

static const uint64_t slab_in_use = (uint64_t)LORG_CHUNK_SLAB << 56 | LORG_SLAB_IN_USE,
		      slab_clearing = (uint64_t)LORG_CHUNK_SLAB << 56 | LORG_SLAB_CLEARING, slab_empty = (uint64_t)LORG_CHUNK_SLAB << 56,
		      clearing = (uint64_t)LORG_CHUNK_CLEARING << 56;

/* Where it fails the pages stay: they are zero already. */
static int give_back(const struct family *family, uint32_t first, uint32_t count)
{
	return fallocate(family->memory.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)(family->layout.chunks + (uint64_t)first * LORG_CHUNK_SIZE), (off_t)count * LORG_CHUNK_SIZE);
}

/* ---- chunks -------------------------------------------------------------------- */

static int hold_chunk(struct family *family, uint32_t chunk)
{
	uint64_t word = 0;
	if (family->use[chunk] != CHUNK_IDLE && __atomic_load_n(family_control(family, chunk), __ATOMIC_RELAXED) != clearing)
		return 0;
	/* Acquire: pairs with the release store of who has freed it. One that is being cleared is of a collector that was killed. */
	return __atomic_compare_exchange_n(family_control(family, chunk), &word, clearing, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ||
	       word == clearing;
}

/* Holds the chunks from `first` on that may go, gives their pages back, and lets them go. Returns their number. */
static uint32_t clear_run(struct family *family, uint32_t first, uint32_t end)
{
	uint32_t count = 0;
	while (count < RUN_LIMIT && first + count < end && hold_chunk(family, first + count))
		count++;
	if (!count)
		return 0;
	give_back(family, first, count);
	for (uint32_t chunk = first; chunk < first + count; chunk++) {
		family->use[chunk] = CHUNK_CLEAN;
		/* Release: pairs with the acquiring CAS of the next owner, who finds the chunk all zero. */
		__atomic_store_n(family_control(family, chunk), 0, __ATOMIC_RELEASE);
	}
	return count;
}

/* ---- slabs --------------------------------------------------------------------- */

static uint32_t *state_of(const struct family *family, uint32_t chunk, uint32_t slot)
{
	return &process_entry(family, chunk * SLAB_ENTRIES + slot)->state;
}

static int is_without_threads(const struct family *family, uint32_t chunk)
{
	const struct slab *slab = chunk < family->slab_room ? family->slabs[chunk] : NULL;
	for (uint32_t slot = 0; slot < SLAB_ENTRIES; slot++) {
		uint32_t state = __atomic_load_n(state_of(family, chunk, slot), __ATOMIC_RELAXED);
		if ((slab && slab->entry[slot].used) || (state != LORG_PROCESS_FREE && state != LORG_PROCESS_CLEARING))
			return 0;
	}
	return 1;
}

static void let_entries_go(struct family *family, uint32_t chunk, uint32_t count)
{
	for (uint32_t slot = 0; slot < count; slot++)
		/* Release: pairs with the acquiring CAS of the next owner. */
		__atomic_store_n(state_of(family, chunk, slot), LORG_PROCESS_FREE, __ATOMIC_RELEASE);
}

/* Whoever takes an entry from then on says that it is in use again. */
static void clear_slab(struct family *family, uint32_t chunk)
{
	for (uint32_t slot = 0; slot < SLAB_ENTRIES; slot++) {
		uint32_t state = LORG_PROCESS_FREE;
		if (__atomic_compare_exchange_n(state_of(family, chunk, slot), &state, LORG_PROCESS_CLEARING, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED) ||
		    state == LORG_PROCESS_CLEARING)
			continue;
		let_entries_go(family, chunk, slot); /* somebody was faster */
		return;
	}
	uint64_t word = slab_clearing;
	family->use[chunk] = CHUNK_CLEAN;
	/* While no entry can be taken: nobody has said yet that it is in use again. */
	__atomic_store_n(family_control(family, chunk), slab_clearing, __ATOMIC_RELEASE);
	if (chunk < KEPT_CHUNKS || give_back(family, chunk, 1))
		let_entries_go(family, chunk, SLAB_ENTRIES);
	/* Release: pairs with the acquiring CAS of who takes the slab for its own. */
	__atomic_compare_exchange_n(family_control(family, chunk), &word, slab_empty, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* ---- the pass -------------------------------------------------------------------- */

static void age(struct family *family, uint32_t chunk, int is_free)
{
	if (!is_free)
		family->use[chunk] = CHUNK_USED;
	else if (family->use[chunk] == CHUNK_USED)
		family->use[chunk] = CHUNK_IDLE;
}

static void look_at_slab(struct family *family, uint32_t chunk)
{
	int is_free = is_without_threads(family, chunk);
	if (is_free && family->use[chunk] == CHUNK_IDLE)
		clear_slab(family, chunk);
	else
		age(family, chunk, is_free && family->use[chunk] != CHUNK_CLEAN);
}

void trim_pass(struct family *family, uint64_t now_ns)
{
	uint32_t used = family_chunks_used(family);
	if (now_ns < family->trim_ns || family->final)
		return;
	family->trim_ns = now_ns + TRIM_STEP_NS;
	for (uint32_t chunk = 0; chunk < used; chunk++) {
		/* Acquire: pairs with the owner's CAS that took it. */
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		if (word == slab_in_use || word == slab_clearing) { /* of a collector that was killed */
			look_at_slab(family, chunk);
			continue;
		}
		uint32_t cleared = chunk >= KEPT_CHUNKS || word == clearing ? clear_run(family, chunk, used) : 0;
		if (cleared)
			chunk += cleared - 1;
		else if (word != slab_empty)
			age(family, chunk, word == 0);
	}
}
