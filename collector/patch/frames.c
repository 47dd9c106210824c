/* SPDX-License-Identifier: MIT */
/* frames.c: see frames.h. */
#include "collector/patch/frames.h"

#include <unistd.h>

enum {
	DEEP = 1 << 20,		/* bytes above a stack pointer that are looked through */
	STEP_WORDS = 1 << 13,
	OVERLAP_WORDS = 4,	/* a frame's registers may lie across two steps */
	STACKS = 4,		/* that interrupt each other: the thread's own, an alternate one */
};

/* cs, gs, fs, ss of a 64-bit program, as a signal frame has them; its saved flags, rip and rsp stand before them. */
static const uint64_t SEGMENTS = 0x002b000000000033;

struct scan {
	int memory;
	void (*found)(void *context, uint64_t address);
	void *context;
	uint64_t low, high; /* what this stack's scan covers */
	uint64_t other;	    /* stack pointer of an interrupted context outside of it; 0: none */
};

static void look_at(struct scan *scan, const uint64_t *words)
{
	uint64_t stack = words[0], address = words[1];
	if (words[3] != SEGMENTS)
		return;
	scan->found(scan->context, address);
	if (stack < scan->low || stack >= scan->high)
		scan->other = stack;
}

static void scan_stack(struct scan *scan, uint64_t stack)
{
	static const uint32_t step = (STEP_WORDS - OVERLAP_WORDS) * 8;
	uint64_t words[STEP_WORDS];
	scan->low = stack & ~7ull;
	scan->high = scan->low + DEEP;
	for (uint64_t at = scan->low; at < scan->high; at += step) {
		ssize_t got = pread(scan->memory, words, sizeof words, (off_t)at);
		long count = got > 0 ? got / 8 : 0;
		for (long i = 0; i + OVERLAP_WORDS <= count; i++)
			look_at(scan, words + i);
		if (count < STEP_WORDS)
			return; /* the stack's end */
	}
}

void frames_of_handlers(int memory, uint64_t stack, void (*found)(void *context, uint64_t address), void *context)
{
	struct scan scan = {.memory = memory, .found = found, .context = context};
	for (int i = 0; i < STACKS && stack; i++) {
		scan.other = 0;
		scan_stack(&scan, stack);
		stack = scan.other;
	}
}
