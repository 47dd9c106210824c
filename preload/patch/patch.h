/* SPDX-License-Identifier: MIT */
/*
 * patch.h: puts the hooks of a plan (lorg/plan.h) into this program: asks the
 * collector for the plan of each loaded module, makes the stubs near its
 * text, changes the entries and the slots.
 *
 *     patch.c    the whole way, and who may go it
 *     module.c   what is loaded
 *     request.c  asking, waiting, mapping
 *     near.c     memory within reach
 *     stub.c     checks of a plan; thunks and relocated entries
 *     entry.c    the bytes at the functions' entries
 *     slot.c     pointers that calls go through
 *     wrapped.c  those that lead to our own wrappers
 *
 * What is placed once is left where it is: a thread may be inside of a stub at
 * any time. Hooks are switched by their gates (E: struct lorg_control), and
 * their bytes by the collector from outside.
 *
 * No malloc, no libc but where said; not from signal handlers.
 */
#ifndef LORG_PRELOAD_PATCH_H
#define LORG_PRELOAD_PATCH_H

#include <elf.h>
#include <link.h>
#include <lorg/plan.h>
#include <stdint.h>

#include "preload/core/memory.h"

/*
 * Looks for modules not yet asked for, asks, waits (bounded), places. From the constructor, and after dlopen and dlmopen
 * with their handle. Does nothing at all where the recording asks nothing of functions.
 */
HIDDEN void patch_modules(void);
/* The record of a slot that has been changed (late_slots.c, which changes slots too, for other reasons); NULL: there is none. */
HIDDEN struct lorg_slot_change *patch_slot_record(uint64_t address);
HIDDEN void patch_opened(void *handle);

/*
 * The same in a thread that was stopped anywhere, other threads running: from remote_entry(). Modules that were asked for when
 * nothing was asked of them are asked for again. Entries and slots are left as they are: the collector changes them while
 * all threads are held. Waits for the collector alone. *why: why modules are left out, set where some are.
 */
enum patch_tried { PATCH_PLACED = 0, PATCH_AGAIN = 1 /* a lock is held */, PATCH_NOT_HERE = 2 };
HIDDEN enum patch_tried patch_modules_try(const char **why);

/* Something may have been opened whose return was not seen: whoever comes by next looks. One load when nothing was. */
extern HIDDEN uint32_t patch_pending; /* atomic */
static inline void patch_look(void)
{
	if (__builtin_expect(__atomic_load_n(&patch_pending, __ATOMIC_RELAXED), 0))
		patch_modules();
}

/* A plan or control stands elsewhere (to 0: nowhere). */
HIDDEN void patch_mapping_moved(uintptr_t from, uintptr_t length, uintptr_t to);

/* Before dlclose: nothing goes while it is looked at by patch_modules_try(), which has no handle of it. Bounded. */
HIDDEN void patch_closing(void);
/* After dlclose: forgets what is gone. */
HIDDEN void patch_closed(void);

/* ---- parts, for each other and for tests --------------------------------- */

/* A loaded module. */
struct patch_module {
	uint64_t base;	   /* load bias */
	uint64_t dynamic;  /* address of its dynamic section: with `base` its identity */
	uint64_t start, end; /* lowest and highest mapped address */
	uint64_t relro_start, relro_end; /* addresses; both 0: none */
	const struct lorg_plan *plan;	 /* NULL: nothing is hooked in it */
	struct lorg_control *control;
	struct lorg_placement *placement;
	uint32_t build_id_length;
	uint8_t build_id[20];
	uint8_t is_main, is_new, from_start;
};

struct patch_refusals {
	/* Functions or slots that were left alone, by reason. */
	uint32_t occupied, out_of_reach, no_memory, unwritable, several_threads, ambiguous;
};

/*
 * True when all offsets and lengths in a plan of `size` bytes lie in it, and what it says of a module whose addresses
 * (without load bias) go up to `end` lies in that.
 */
HIDDEN int plan_is_right(const struct lorg_plan *plan, uint64_t size, uint64_t end);
HIDDEN int control_is_right(const struct lorg_control *control, uint64_t size, const struct lorg_plan *plan);

static inline const struct lorg_plan_function *plan_function(const struct lorg_plan *plan, uint32_t index)
{
	return (const struct lorg_plan_function *)((const char *)plan + plan->functions) + index;
}

static inline const struct lorg_plan_slot *plan_slot(const struct lorg_plan *plan, uint32_t index)
{
	return (const struct lorg_plan_slot *)((const char *)plan + plan->slots) + index;
}

static inline const char *plan_name(const struct lorg_plan *plan, uint32_t name)
{
	return name < plan->names_size ? (const char *)plan + plan->names + name : "";
}

static inline struct lorg_function_control *control_function(const struct lorg_control *control, uint32_t index)
{
	return (struct lorg_function_control *)((char *)control + control->functions) + index;
}

/* Zeroed memory for tables; NULL: none. Never given back. */
HIDDEN void *patch_memory(uint64_t size);

/*
 * Writable memory of `size` bytes all of which reaches, and is reached from, all of [low, high) by a 32-bit displacement.
 * NULL: there is no room. near_seal makes it executable and read-only (0), or fails (-1: the memory is gone).
 */
HIDDEN void *near_memory(uint64_t size, uint64_t low, uint64_t high);
HIDDEN void *any_memory(uint64_t size);
HIDDEN int near_seal(void *memory, uint64_t size);

/*
 * Writes the relocated entry of a function that stands at `entry` (base + offset) to `to`, as it has to read there.
 * Returns its length with the jump back, 0: out of reach.
 */
HIDDEN uint32_t relocated_write(uint8_t *to, const struct lorg_plan *plan, const struct lorg_plan_function *function, uint64_t entry);

/* Makes targets and stubs of all functions of module->plan; fills module->placement. 0, or -1: none. */
HIDDEN int stubs_place(struct patch_module *module, struct patch_refusals *refusals);

/*
 * Makes a target of the function at that place of the plan, from which calls go on at `body`, and writes a thunk of its
 * to `thunk` (LORG_THUNK_SIZE bytes). 0, or -1: no room.
 */
HIDDEN int extra_thunk(void *thunk, const struct patch_module *module, uint32_t index, uint64_t body, uint32_t kind);

/* Address of a function's stub, by its place in the plan. Walks: for single ones. 0: there is none. */
HIDDEN uint64_t stub_of(const struct lorg_placement *placement, const struct lorg_plan *plan, uint32_t index);

/*
 * Writes the patches of all functions whose gate is not 0. alone 1: there is one thread, everything is written at once;
 * 0: nothing is, as no write through /proc/self/mem is one store. Returns how many are left to the collector.
 */
HIDDEN uint32_t entries_place(const struct patch_module *module, int alone, struct patch_refusals *refusals);

/* Where function `index` has its patch, if it has one; 0: it has none. */
HIDDEN uint64_t entry_patch_address(const struct patch_module *module, uint32_t index);
/* True where the entry of function `index` leads to its stub. */
HIDDEN int entry_is_placed(const struct patch_module *module, uint32_t index);

/* Changes the slots of `module` that lead to functions of any module of the table that are hooked by slots. */
HIDDEN void slots_place(struct patch_module *module, const struct patch_module *table, uint32_t count,
			struct patch_refusals *refusals);

/* ---- wrapped.c ---- */

/* True where `address` lies in liblorg.so: what a slot leads to is a wrapper. */
HIDDEN int wrapper_is_at(uint64_t address);
/* The function that the wrapper of that name stands for; *goes_on 0: calls never come to its entry. 0: there is none. */
HIDDEN uint64_t wrapped_function(const char *name, const char *version, int *goes_on);
/* True where there may be functions in the table whose wrappers do not go on at their entries. */
HIDDEN int wrapped_any(const struct patch_module *table, uint32_t count);

/* ---- request.c ---- */

struct patch_question {
	struct patch_module *module;
	uint32_t slot; /* of the request; UINT32_MAX: not posted */
	const char *failed; /* reason */
};

/* Asks for the plans of all and waits. */
HIDDEN void plans_ask(struct patch_question *questions, uint32_t count, const char (*paths)[424]);
/* Has the collector put the patches of this plan into this image. NULL: done; else the reason. */
HIDDEN const char *patches_ask(const struct patch_module *module);

/* ---- module.c ---- */

/* Reads what is mapped at `base`. main_program 1: its headers are those that the kernel names. 0, or -1. */
HIDDEN int module_read(struct patch_module *module, uint64_t base, uint64_t dynamic, int main_program);

#endif
