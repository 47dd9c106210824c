/* SPDX-License-Identifier: MIT */
/* near.c: memory for stubs, within reach of a module's text. See patch.h. */
#include <linux/mman.h>
#include <sys/mman.h>

#include "preload/core/raw.h"
#include "preload/patch/patch.h"

enum { PAGE = 4096 };
static const uint64_t REACH = 0x7fff0000;
static const uint64_t LOWEST = 1 << 20; /* below, null pointers with an offset should keep faulting */

/* Names from newer headers; the same numbers everywhere. */
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

static uint64_t whole_pages(uint64_t size)
{
	return (size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

static int reaches(uint64_t at, uint64_t size, uint64_t low, uint64_t high)
{
	uint64_t first = at < low ? at : low, last = at + size > high ? at + size : high;
	return last - first < REACH;
}

/* 0 where there is something already. */
static uint64_t map_at(uint64_t where, uint64_t size)
{
	long result = raw_mmap((void *)where, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	if (raw_failed(result))
		return 0;
	if (!where || (uint64_t)result == where)
		return (uint64_t)result;
	raw_munmap((void *)result, size); /* a kernel that takes the address as a hint */
	return 0;
}

static uint64_t step_after(uint64_t step)
{
	return step < 1ul << 26 ? 1ul << 20 : 1ul << 24;
}

/* Below the module: nothing grows there but other mappings. */
static uint64_t map_below(uint64_t size, uint64_t low, uint64_t high)
{
	for (uint64_t step = 1ul << 16; step < REACH; step += step_after(step)) {
		if (low < LOWEST + size + step)
			return 0;
		uint64_t where = (low - size - step) & ~(uint64_t)(PAGE - 1);
		if (!reaches(where, size, low, high))
			return 0;
		uint64_t at = map_at(where, size);
		if (at)
			return at;
	}
	return 0;
}

/* Above it, from as far away as can be: behind a program without base address grows its heap. */
static uint64_t map_above(uint64_t size, uint64_t low, uint64_t high)
{
	uint64_t farthest = (low + REACH - size - 1) & ~(uint64_t)(PAGE - 1);
	for (uint64_t step = 0; farthest > high + step; step += step_after(step)) {
		uint64_t at = map_at(farthest - step, size);
		if (at)
			return at;
	}
	return 0;
}

void *any_memory(uint64_t size)
{
	return (void *)map_at(0, whole_pages(size));
}

void *near_memory(uint64_t size, uint64_t low, uint64_t high)
{
	size = whole_pages(size);
	if (!size || high <= low || high - low + size >= REACH)
		return 0;
	uint64_t at = map_at(0, size); /* where the kernel likes: libraries lie there too */
	if (at && reaches(at, size, low, high))
		return (void *)at;
	if (at)
		raw_munmap((void *)at, size);
	at = map_below(size, low, high);
	return (void *)(at ? at : map_above(size, low, high));
}

/* Puts a file's copy in its place: for systems where no memory may become executable that was written. */
static int seal_from_file(void *memory, uint64_t size)
{
	long fd = raw_syscall3(SYS_memfd_create, (long)"lorg", MFD_CLOEXEC | MFD_EXEC, 0);
	if (raw_failed(fd))
		fd = raw_syscall3(SYS_memfd_create, (long)"lorg", MFD_CLOEXEC, 0);
	if (raw_failed(fd))
		return -1;
	long mapped = -1;
	if (raw_syscall6(SYS_pwrite64, fd, (long)memory, (long)size, 0, 0, 0) == (long)size)
		mapped = raw_mmap(memory, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, (int)fd, 0);
	raw_close((int)fd);
	return mapped == (long)memory ? 0 : -1;
}

int near_seal(void *memory, uint64_t size)
{
	size = whole_pages(size);
	if (!raw_failed(raw_mprotect(memory, size, PROT_READ | PROT_EXEC)) || seal_from_file(memory, size) == 0)
		return 0;
	raw_munmap(memory, size);
	return -1;
}

void *patch_memory(uint64_t size)
{
	return any_memory(size);
}
