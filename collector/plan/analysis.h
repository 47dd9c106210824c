/* SPDX-License-Identifier: MIT */
/*
 * analysis.h: one module as a whole: each of its functions, whether its entry
 * can be hooked and how, and why not.
 *
 * What concerns all functions is found out when the module is opened; what
 * needs code to be read closely is found out when a function is asked for.
 * One thread at a time.
 */
#ifndef LORG_PLAN_ANALYSIS_H
#define LORG_PLAN_ANALYSIS_H

#include "collector/plan/entry.h"
#include "collector/plan/functions.h"
#include "collector/plan/object.h"
#include "collector/plan/scan.h"

struct analysis {
	struct object *object;
	struct functions functions;
	struct entry *entries; /* one a function */
	const char *machine;   /* special_machine() of it; NULL: nothing special */
	uint8_t *checked;      /* one a function: its entry's refusal is the last word */
	struct scan scan;
};

/*
 * As object_open, with debug files. wants: whether the functions of a module are of interest, else only its slots are
 * looked at; NULL: they are.
 */
struct analysis *analysis_open(const char *path, int descriptor, int (*wants)(void *context, struct object *object), void *context,
			       char *why);
void analysis_close(struct analysis *analysis);

/* The entry of a function, with the last word on whether it can be hooked. */
const struct entry *analysis_entry(struct analysis *analysis, size_t function);

/* enum lorg_plan_flag that follow from what it is: LORG_PLAN_ENTRY_ONLY, LORG_PLAN_NO_RETURN, LORG_PLAN_NO_CALLER. */
uint32_t analysis_flags(struct analysis *analysis, size_t function);
/* Why it gets no return events; NULL: it does. */
const char *analysis_entry_only(const struct analysis *analysis, size_t function);

/* True if it can be reached through slots: it is in the dynamic symbol table, under a name that is no IFUNC. */
int analysis_is_exported(const struct analysis *analysis, size_t function);

/* Slots that hooks may go through: index in the object's. */
int analysis_slot_usable(const struct analysis *analysis, size_t slot);

/* For people and programs: the name that says most; the caller's to free. NULL: out of memory. */
char *analysis_display_name(const struct analysis *analysis, size_t function);

#endif
