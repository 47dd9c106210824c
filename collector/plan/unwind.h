/* SPDX-License-Identifier: MIT */
/* unwind.h: the pieces of code that .eh_frame tells of, and their landing pads. */
#ifndef LORG_PLAN_UNWIND_H
#define LORG_PLAN_UNWIND_H

#include "collector/plan/functions.h"

/* *ranges is the caller's to free; in the order of the table. 0, or -1: out of memory. A damaged table ends early. */
int unwind_read(const struct object *object, struct code_range **ranges, size_t *count);

/* Calls `tell` with the address of each landing pad of a range. Returns -1 where its table cannot be read. */
int unwind_landing_pads(const struct object *object, const struct code_range *range,
			void (*tell)(void *context, uint64_t address), void *context);

#endif
