/* SPDX-License-Identifier: MIT */
/*
 * scan.h: what leads into the first bytes of functions, and how slots are used:
 * one look at all code and data of a module.
 *
 * It begins with a search that knows no instructions: each byte that could be
 * the opcode of a direct jump is taken for one. So no jump is missed, however
 * the bytes are read, and it runs at the speed of memory. What it finds at the
 * first bytes of a function is then checked: the code around is disassembled
 * from its start, and only where that shows that another instruction stands
 * there the find is dropped.
 */
#ifndef LORG_PLAN_SCAN_H
#define LORG_PLAN_SCAN_H

#include <capstone/capstone.h>

#include "collector/plan/entry.h"
#include "collector/plan/functions.h"

enum slot_use {
	SLOT_UNUSED = 0, /* no code refers to it */
	SLOT_CALLS = 1,	 /* calls and jumps go through it, and nothing else */
	SLOT_OTHER = 2,	 /* its value is read: a pointer that may be compared */
};

struct scan_hit {
	uint32_t function; /* its place in the list */
	uint32_t kind;
	uint64_t source, target;
};

struct scan {
	const struct functions *functions;
	struct scan_hit *hits; /* by function */
	size_t hit_count, hit_room;
	uint8_t *slot_uses; /* enum slot_use, one a slot of the object */
	csh capstone;
	cs_insn *instruction;
	uint64_t checked; /* instructions disassembled */
};

/*
 * entries: one a function, looked at already; flags of functions (FUNCTION_CALLED, FUNCTION_JUMPED_TO) are set.
 * 0, or -1: out of memory.
 */
int scan_run(struct functions *functions, const struct entry *entries, struct scan *scan);
void scan_free(struct scan *scan);

/* Whether something leads into the bytes that a patch of that function would replace. */
enum refusal scan_refusal(struct scan *scan, size_t function, const struct entry *entry);

#endif
