/* SPDX-License-Identifier: MIT */
/*
 * patch.h: switches the patches of a plan in a running program from outside,
 * so that its entries and slots are as the gates of its control say.
 *
 * All threads are held by ptrace (hold.h) while anything changes: what is written through /proc/PID/mem becomes visible
 * byte by byte where the kernel copies so, and a thread that calls through half a slot or half a jump is lost. Threads
 * that stand in the bytes to be changed are moved to the same place in the relocated entry; where there is none, or a
 * signal handler has interrupted the entry, it is left for later: the thread goes on, and is elsewhere presently.
 *
 * Bytes are changed only where they are exactly what is expected: the file's or our patch. Nothing that the program
 * says of itself is believed. Never waits longer than PATCH_LIMIT_NS for one program.
 */
#ifndef LORG_PATCH_PATCH_H
#define LORG_PATCH_PATCH_H

#include <stdint.h>
#include <sys/types.h>

#include <lorg/plan.h>

enum { PATCH_LIMIT_NS = 200000000 };

/* A plan and what is asked of its functions. */
struct patch_plan {
	const struct lorg_plan *plan; /* checked */
	const uint32_t *stub_at;      /* of each function, from the first stub */
	struct lorg_control *control; /* mapped; function_count functions */
	int none; /* 1: nothing is hooked, whatever the gates say: the program is detached */
};

/* Sums of what was done. */
struct patch_outcome {
	uint32_t on, off;   /* entries and slots that were switched */
	uint32_t foreign;   /* entries and slots that somebody else has changed: left alone */
	uint32_t refused;   /* entries and slots that could not be: `why` */
	uint32_t later;	    /* entries that a thread is in the middle of: to be tried again */
	int error;	    /* errno of the first failure; 0: none */
	const char *why;    /* constant text; NULL: nothing refused */
};

/* Offsets of the stubs of a plan's functions, from the first; the caller frees it. NULL: no memory. */
uint32_t *patch_stub_offsets(const struct lorg_plan *plan);

/*
 * Makes the entries and slots of `functions` (count places in the plan, ascending; NULL: of all) in process `pid` as their gates
 * are. placements: the address there of its struct lorg_placements. 0, or -1: outcome->why.
 */
int patch_image(pid_t pid, uint64_t placements, const struct patch_plan *plan, const uint32_t *functions, uint32_t count,
		struct patch_outcome *outcome);

/*
 * Whether the process says that stubs of the plan stand for a module at `base` (UINT64_MAX: at any). 1, 0, or -1: its memory
 * cannot be read.
 */
int patch_is_placed(pid_t pid, uint64_t placements, uint64_t plan_id, uint64_t base);

#endif
