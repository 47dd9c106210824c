/* SPDX-License-Identifier: MIT */
/*
 * shadow.c: where a stack's shadows are, and how they come to be.
 *
 * A region is 2 MiB of address space; its two shadows are mapped together. The
 * table knows each region that was ever asked for. It only grows, and a fork
 * child inherits it with the memory.
 */
#include <elf.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "preload/call/inner.h"
#include "preload/core/raw.h"
#include "preload/resolve/resolve.h"

enum region_state {
	REGION_MAKING = 1,
	REGION_READY = 2,
	REGION_FOREIGN = 3, /* something of others' lies where a shadow would */
	REGION_STATE = 3,
};

enum {
	REGIONS = 8192, /* power of two; 16 GiB of stacks */
	REGION_PROBES = 64,
	REGION_LIMIT = 1 << (47 - CALL_REGION_SHIFT), /* user space ends there */
	WAITS = 200000,
	MAIN_STACK_MAXIMUM = 64 << 20,
};

#define REGION_SIZE (1ul << CALL_REGION_SHIFT)
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* region << 2 | enum region_state; 0: free. Atomic; taken with a CAS from 0, then its owner alone changes the state. */
static uint32_t regions[REGIONS];
/* Times a return could not be seen for want of a shadow, told once. Atomic. */
static uint32_t gap_told;

static uint32_t region_place(uint32_t region, uint32_t probe)
{
	return (region * 0x9e3779b1u >> 19) + probe;
}

/* The region's entry; NULL: it has none and none was made (make 0), or the table is full around it. */
static uint32_t *region_entry(uint32_t region, int make)
{
	for (uint32_t probe = 0; probe < REGION_PROBES; probe++) {
		uint32_t *entry = &regions[region_place(region, probe) % REGIONS];
		/* Acquire: pairs with the release of READY, so that the mapping is there. */
		uint32_t seen = __atomic_load_n(entry, __ATOMIC_ACQUIRE);
		if (seen >> 2 == region && seen)
			return entry;
		if (seen)
			continue;
		if (!make)
			return 0;
		if (__atomic_compare_exchange_n(entry, &seen, region << 2, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || seen >> 2 == region)
			return entry;
	}
	return 0;
}

static enum region_state state_of(const uint32_t *entry)
{
	return (enum region_state)(__atomic_load_n(entry, __ATOMIC_ACQUIRE) & REGION_STATE);
}

/*
 * These end the program when they begin and find a mapping where they want none; later they have made their own of all
 * the places where a shadow could be. 0: not looked yet, 1: none, 2: there is one. Relaxed: all who look find the same.
 */
static uint32_t sanitizer_state;

static int shadows_are_harmless(void)
{
	uint32_t state = __atomic_load_n(&sanitizer_state, __ATOMIC_RELAXED);
	if (!state) {
		state = symbol_find(0, "__tsan_init", "") || symbol_find(0, "__msan_init", "") ? 2 : 1;
		__atomic_store_n(&sanitizer_state, state, __ATOMIC_RELAXED);
	}
	return state == 1;
}

/* ---- mapping ----------------------------------------------------------- */

/*
 * Under mlockall(MCL_FUTURE) what is mapped is also filled and locked, unless nobody may read it yet.
 * NOREPLACE: the place may be a sanitizer's. EEXIST means foreign, never "fine".
 */
static int map_at(uintptr_t at, size_t size)
{
	int locked = (int)__atomic_load_n(&the_program.locked_memory, __ATOMIC_ACQUIRE);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	long got = raw_mmap((void *)at, size, locked ? PROT_NONE : PROT_READ | PROT_WRITE, flags, -1, 0);
	if (got != (long)at) {
		if (!raw_failed(got)) /* a kernel that does not know NOREPLACE */
			raw_munmap((void *)got, size);
		return raw_failed(got) ? (int)got : -EEXIST;
	}
	if (locked) {
		raw_syscall3(SYS_munlock, (long)at, (long)size, 0);
		raw_mprotect((void *)at, size, PROT_READ | PROT_WRITE);
	}
	raw_madvise((void *)at, size, MADV_NOHUGEPAGE); /* else one word costs 2 MiB */
	return 0;
}

/* Both shadows of `count` regions. 0, or -errno with nothing mapped. */
static int map_shadows(uint32_t region, uint32_t count)
{
	uintptr_t address = (uintptr_t)region << CALL_REGION_SHIFT;
	if (!shadows_are_harmless())
		return -EEXIST;
	int error = map_at(address ^ CALL_SHADOW_RETURN, count * REGION_SIZE);
	if (error)
		return error;
	error = map_at(address ^ CALL_SHADOW_OWNER, count * REGION_SIZE);
	if (error)
		raw_munmap((void *)(address ^ CALL_SHADOW_RETURN), count * REGION_SIZE);
	return error;
}

/* Takes the right to map the region. 0: it is there, or somebody else is at it. */
static int claim(uint32_t *entry, uint32_t region)
{
	uint32_t expected = region << 2;
	return __atomic_compare_exchange_n(entry, &expected, region << 2 | REGION_MAKING, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
}

static void settle(uint32_t *entry, uint32_t region, int error)
{
	/* Out of address space is for now, a foreign mapping for good. */
	uint32_t state = error == 0 ? REGION_READY : error == -EEXIST ? REGION_FOREIGN : 0;
	/* Release: whoever sees READY finds the mapping. */
	__atomic_store_n(entry, region << 2 | state, __ATOMIC_RELEASE);
}

static int make_region(uint32_t region)
{
	uint32_t *entry = region_entry(region, 1);
	if (!entry)
		return 0;
	if (claim(entry, region))
		settle(entry, region, map_shadows(region, 1));
	/* Another thread's stack begins in the same region. (Handlers of this thread do not come here: it is busy.) */
	for (uint32_t i = 0; i < WAITS && state_of(entry) == REGION_MAKING; i++)
		__builtin_ia32_pause();
	return state_of(entry) == REGION_READY;
}

/* Several regions at once, where none of them is known yet; else one by one. */
static void make_regions(uint32_t first, uint32_t count)
{
	enum { RUN = 64 };
	uint32_t *entries[RUN];
	uint32_t claimed = 0;
	while (claimed < count && claimed < RUN) {
		uint32_t *entry = region_entry(first + claimed, 1);
		if (!entry || !claim(entry, first + claimed))
			break;
		entries[claimed++] = entry;
	}
	if (claimed) {
		int error = map_shadows(first, claimed);
		for (uint32_t i = 0; i < claimed; i++)
			settle(entries[i], first + i, error && claimed > 1 ? -ENOMEM : error); /* one by one, then */
		if (error && claimed > 1)
			claimed = 0;
	}
	for (uint32_t i = claimed; i < count; i++)
		make_region(first + i);
}

/* ---- at an entry ------------------------------------------------------- */

static void tell_gap(struct thread *self)
{
	if (__atomic_exchange_n(&gap_told, 1, __ATOMIC_RELAXED))
		return;
	event_gap(self, "returns of calls on a stack", system_calls_allowed()
			? "no address space, or another's mapping, where their record would be"
			: "the stack is not known, and system calls may be forbidden");
}

int shadow_known(uintptr_t slot)
{
	uint32_t region = (uint32_t)(slot >> CALL_REGION_SHIFT);
	const uint32_t *entry = slot >> 47 ? 0 : region_entry(region, 0);
	return entry && state_of(entry) == REGION_READY;
}

int shadow_of(struct thread *self, uintptr_t slot)
{
	uint32_t region = (uint32_t)(slot >> CALL_REGION_SHIFT);
	if (slot >> 47)
		return 0;
	const uint32_t *entry = region_entry(region, 0);
	int there = entry && state_of(entry) == REGION_READY;
	if (!there && system_calls_allowed() && !(entry && state_of(entry) == REGION_FOREIGN)) {
		thread_busy(self);
		there = make_region(region);
		thread_idle(self);
	}
	if (!there) {
		tell_gap(self);
		return 0;
	}
	/* Where exceptions are on their way, the long way has to be taken each time. */
	if (!self->call || !self->call->thrown_count)
		self->call_region = region;
	return 1;
}

/* ---- ahead of time ----------------------------------------------------- */

void call_stack_prepare(uintptr_t low, uintptr_t high)
{
	struct thread *self = &this_thread;
	if (!system_calls_allowed() || low >= high || high >> 47 || high - low > 1ul << 36)
		return;
	uint32_t first = (uint32_t)(low >> CALL_REGION_SHIFT), last = (uint32_t)((high - 1) >> CALL_REGION_SHIFT);
	uint32_t known = first;
	while (known <= last && shadow_known((uintptr_t)known << CALL_REGION_SHIFT))
		known++;
	if (known > last)
		return;
	thread_busy(self);
	make_regions(known, last - known + 1);
	thread_idle(self);
}

void call_stacks_prepare(void)
{
	struct rlimit limit = {MAIN_STACK_MAXIMUM, 0};
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (!system_calls_allowed())
		return;
	raw_syscall6(SYS_prlimit64, 0, RLIMIT_STACK, 0, (long)&limit, 0, 0);
	uintptr_t size = limit.rlim_cur < MAIN_STACK_MAXIMUM ? limit.rlim_cur : 8 << 20;
	call_stack_prepare(here > size ? here - size : REGION_SIZE, here + (64 << 10));
	/* What the kernel put there at the start of the program is above the first frame. */
	struct call_thread *call = this_thread.process ? call_thread(&this_thread) : 0;
	if (call && here < auxiliary_value(AT_RANDOM) && auxiliary_value(AT_RANDOM) - here < size)
		call->stack_high = auxiliary_value(AT_RANDOM) & ~(uintptr_t)15;
}

/* ---- our memory -------------------------------------------------------- */

int call_overlaps(uintptr_t address, uintptr_t length)
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		uint32_t seen = __atomic_load_n(&regions[i], __ATOMIC_ACQUIRE);
		if ((seen & REGION_STATE) != REGION_READY)
			continue;
		uintptr_t region = (uintptr_t)(seen >> 2) << CALL_REGION_SHIFT;
		for (int shadow = 0; shadow < 2; shadow++) {
			uintptr_t start = region ^ (shadow ? CALL_SHADOW_OWNER : CALL_SHADOW_RETURN);
			if (address < start + REGION_SIZE && start < address + length)
				return 1;
		}
	}
	return 0;
}

/* The region stays known as one whose place is not ours: what opens calls there does without. */
static void give_back(uint32_t *entry, uint32_t seen)
{
	uintptr_t region = (uintptr_t)(seen >> 2) << CALL_REGION_SHIFT;
	__atomic_store_n(entry, (seen & ~(uint32_t)REGION_STATE) | REGION_FOREIGN, __ATOMIC_RELEASE);
	raw_munmap((void *)(region ^ CALL_SHADOW_RETURN), REGION_SIZE);
	raw_munmap((void *)(region ^ CALL_SHADOW_OWNER), REGION_SIZE);
}

static int is_unused(uint32_t region)
{
	const uint64_t *word = return_word((uintptr_t)region << CALL_REGION_SHIFT);
	for (uint32_t i = 0; i < REGION_SIZE / sizeof *word; i++)
		if (word[i])
			return 0;
	return 1;
}

void call_shadows_leave(void)
{
	this_thread.call_region = 0;
	for (uint32_t i = 0; i < REGIONS; i++) {
		uint32_t seen = __atomic_load_n(&regions[i], __ATOMIC_ACQUIRE);
		if ((seen & REGION_STATE) == REGION_READY && is_unused(seen >> 2))
			give_back(&regions[i], seen);
	}
}

void call_each_shadow(void (*each)(void *start, unsigned long length))
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		uint32_t seen = __atomic_load_n(&regions[i], __ATOMIC_ACQUIRE);
		uintptr_t region = (uintptr_t)(seen >> 2) << CALL_REGION_SHIFT;
		if ((seen & REGION_STATE) != REGION_READY)
			continue;
		each((void *)(region ^ CALL_SHADOW_RETURN), REGION_SIZE);
		each((void *)(region ^ CALL_SHADOW_OWNER), REGION_SIZE);
	}
}
