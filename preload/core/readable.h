/* SPDX-License-Identifier: MIT */
/*
 * readable.h: reading memory that the program names, which may not be there, without a fault and mostly without a
 * system call.
 *
 * Pages that a copy by the kernel has shown to be readable are remembered, a few a thread, until the program changes
 * any mapping. What such a page cannot be is memory of a file, which may be cut off at any time by anybody. Changes
 * that no hook sees (the C library's own calls of munmap, system calls by the program's own instructions) are not
 * noticed: so a page is only taken for readable where the program itself is about to have it read, or has just had it
 * written.
 *
 * All functions are async-signal-safe.
 */
#ifndef LORG_PRELOAD_READABLE_H
#define LORG_PRELOAD_READABLE_H

#include <stddef.h>
#include <stdint.h>

#include "preload/core/memory.h"

enum { READABLE_PAGES = 16, READABLE_SHIFT = 12 };

/* A page of which `generation` was in force when it was last read by the kernel. */
struct readable_page {
	uint64_t page, generation;
};

extern HIDDEN __thread struct readable_page readable_pages[READABLE_PAGES] __attribute__((tls_model("initial-exec")));
/* Atomic: raised whenever the program changes a mapping, before and after. */
extern HIDDEN uint64_t readable_generation;

static inline int readable_page_is_known(uint64_t page)
{
	const struct readable_page *known = &readable_pages[page % READABLE_PAGES];
	return known->page == page &&
	       known->generation == __atomic_load_n(&readable_generation, __ATOMIC_RELAXED) + 1; /* never 0, as at the start */
}

/* True if all of it lies in pages that are remembered: one or two of them. */
static inline int memory_is_known(const void *from, uint64_t length)
{
	uint64_t first = (uintptr_t)from >> READABLE_SHIFT, last = ((uintptr_t)from + length - 1) >> READABLE_SHIFT;
	return readable_page_is_known(first) && (last == first || (last == first + 1 && readable_page_is_known(last)));
}

/* Copies what can be read and is not known, and remembers it. Returns how many bytes; 0 also where system calls may not be made. */
HIDDEN uint32_t memory_take_unknown(void *to, const void *from, uint32_t length);

/* The same of a range that may be known. */
static inline uint32_t memory_take(void *to, const void *from, uint32_t length)
{
	if (!length || !memory_is_known(from, length))
		return memory_take_unknown(to, from, length);
	memcpy(to, from, length);
	return length;
}

/* True if all of it can be read, as far as one can know. Where system calls may not be made: true. */
HIDDEN int memory_is_readable(const void *from, uint64_t length);

/* To be called before and after the program changes a mapping. */
HIDDEN void readable_changes(void);
/* After the program has mapped a file there, or made it memory that a fork child lacks: never remembered. */
HIDDEN void readable_unsure(const void *address, size_t length);

#endif
