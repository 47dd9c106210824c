/* SPDX-License-Identifier: MIT */
/*
 * code_hook.h: sends libc's inner entry points to our wrappers by changing
 * their first instructions.
 *
 * stdio, system, popen, posix_spawn and execvp reach execve, read and write
 * inside libc, past every symbol. Each such entry gets a jump to the wrapper of
 * its row (column `inner` of hooks.table); the instructions that stood there
 * move to a trampoline, which becomes the row's real function.
 *
 * Done once, by the constructor, on the only thread there is; or, where liblorg.so is brought into a program that runs,
 * from outside while all threads are held (late.h). Text is never
 * writable and executable at once, nor left writable. What is not provably safe
 * is refused with a reason, and symbols alone remain.
 *
 * posix_spawn's child comes through the execve and _exit entries: on a small
 * stack, with all signals blocked, on its parent's memory and TLS.
 */
#ifndef LORG_PRELOAD_CODE_HOOK_H
#define LORG_PRELOAD_CODE_HOOK_H

#include <stdint.h>

#include "hook_ids.h"
#include "preload/core/memory.h"

/* A row with an inner entry point; generated. */
struct code_hook_wanted {
	uint32_t id;	/* enum hook_id */
	void *wrapper; /* its wrapper, of whatever type */
};
extern HIDDEN const struct code_hook_wanted code_hooks_wanted[];

struct code_hook {
	uint32_t id;
	void *target;	      /* libc's entry; NULL: not there */
	uint64_t size;	      /* bytes of the function there */
	void *original;	      /* trampoline that behaves as the entry did; NULL: not placed */
	void *goes_on;	      /* atomic; where its rows go on: the trampoline, or what leads there */
	const char *refused;  /* reason, when not placed */
	uint32_t skipped, taken; /* bytes at the entry: left alone, moved */
};

/* What was tried. Written by code_hooks_place(), read-only afterwards but for `goes_on`. */
extern HIDDEN struct code_hook code_hooks[HOOK_INNER_COUNT];

/* Constructor only, after hooks_resolve(). */
HIDDEN void code_hooks_place(void);

/*
 * The same in two steps, where other threads run: the trampolines, and a description of the changes, which the collector
 * makes while it holds all threads; then the wrappers reckon with those that are made. After hooks_resolve_late().
 */
struct lorg_late;
HIDDEN void code_hooks_prepare(struct lorg_late *late);
HIDDEN void code_hooks_settle(const struct lorg_late *late);

/* Where rows go on whose real function is this one: for an entry that has been hooked behind it, else `function` itself. */
HIDDEN void *code_hook_original(void *function);

/* The trampoline of the hook that stands at this entry; NULL: there is none. */
HIDDEN void *code_hook_trampoline(const void *entry);
/* From now on all calls that would go on at this trampoline go to `thunk` first, which must stay. Other threads may run. */
HIDDEN void code_hook_go_on_by(const void *trampoline, void *thunk);

/* True if a code hook sends calls of libc's own to the wrapper of this row. */
HIDDEN int code_hook_placed(uint32_t id);

/* True if `address`, a return address, lies in libc: the call came through an inner entry point. */
HIDDEN int code_hook_from_libc(uintptr_t address);

#endif
