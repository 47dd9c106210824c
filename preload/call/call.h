/* SPDX-License-Identifier: MIT */
/*
 * call.h: what happens when a hooked function is entered and left.
 *
 * Way of a call. The function's patched entry (or a GOT slot) leads to its
 * thunk, which pushes the address of its struct call_target and jumps to
 * call_entry (entry.S). That looks at the function's gate, records, and goes
 * on at `body`: by a jump, or, where the return is asked for, by a call in the
 * caller's place (doc/DESIGN.md, section 5).
 *
 *   shadow of a slot   word at slot ^ CALL_SHADOW_RETURN: the true return address; not 0: the call there is open
 *                      word at slot ^ CALL_SHADOW_OWNER: whose it is: a struct call_target, or (odd) a struct call_frame
 *
 * A "slot" is the stack word that holds the return address. All functions here
 * are async-signal-safe unless said otherwise.
 */
#ifndef LORG_PRELOAD_CALL_H
#define LORG_PRELOAD_CALL_H

#include <lorg/plan.h>

#include "preload/core/thread.h"

/* The control of a module as it was mapped: what stands in it since then, a program may have written. */
struct call_settings {
	struct lorg_control *shared;
	uint64_t size; /* bytes of it */
	struct lorg_call_setting *setting;
	uint32_t setting_count;
};

/*
 * One hooked function. Lives for ever: a thread may be inside of its thunk at any time. The caller of
 * call_target_add() fills it; what `control`, `plan` and `settings` point to must stay mapped.
 */
struct call_target {
	uint64_t body;	/* atomic; where the call goes on: the relocated entry, or (slots) the function itself */
	struct lorg_function_control *control; /* its gate */
	uint32_t function; /* node-wide id */
	uint32_t flags;	   /* enum lorg_plan_flag */
	const struct lorg_plan *plan;		       /* NULL: no values */
	const struct lorg_plan_function *plan_function;
	const struct call_settings *settings; /* of its module; NULL: no filters */
	uint64_t base;	   /* load bias of the module */
	uint32_t index;	   /* its own; set by call_target_add() */
	uint32_t kind;	   /* enum lorg_call_kind: LORG_KIND_GLOBAL (reached through slots) or LORG_KIND_LOCAL */
};

_Static_assert(sizeof(struct call_target) == 64, "call_target: entry.S");

/*
 * A copy of *target becomes target `index`, which is returned; -1: no room (or no memory and no system calls).
 * Any thread, but not from a signal handler.
 */
HIDDEN int call_target_add(const struct call_target *target);
HIDDEN void call_target_set_body(uint32_t index, uint64_t body);
/* NULL: there is none. */
HIDDEN struct call_target *call_target_at(uint32_t index);
/*
 * A plan or control that the program takes the place of stands elsewhere from now on: every pointer into [from, from +
 * length) follows. to 0: it is nowhere; its functions are hooked no more.
 */
HIDDEN void call_mapping_moved(uintptr_t from, uintptr_t length, uintptr_t to);
/* True once there is one: before that nothing needs to be prepared. */
HIDDEN int call_targets_exist(void);

/*
 * A thunk: CALL_THUNK_SIZE bytes that may stand anywhere (any alignment, though 16 is best). Begins with endbr64, so
 * that slots may lead to it. Written to a buffer or in place; a thunk must never be unmapped or changed once reachable.
 */
enum { CALL_THUNK_SIZE = 32 };
HIDDEN void call_thunk_write(void *at, uint32_t index);

/* The stub that thunks jump to, and the return point that stands in the slots of open calls. */
extern HIDDEN char call_entry[], call_return[];

/* ---- faults ------------------------------------------------------------ */

/* Where it would have been met, and with which stack pointer, if the function were not hooked. */
struct call_fault {
	uintptr_t address, stack;
};

/*
 * 1: the fault at `pc` was met in a hooked function's entry, and *shown is filled. Async-signal-safe; looks through all
 * targets where `pc` lies among our code (and may make a system call then), else at two words.
 */
HIDDEN int call_fault_shown(uintptr_t pc, uintptr_t stack, struct call_fault *shown);
/* A thunk stands there. */
HIDDEN void call_fault_note(uintptr_t thunk);

/* ---- stacks ------------------------------------------------------------ */

#define CALL_SHADOW_RETURN (1ul << 44)
#define CALL_SHADOW_OWNER (1ul << 43)
#define CALL_REGION_SHIFT 21 /* shadows come in regions of 2 MiB */

/* Shadow for the stack of the calling thread; from the constructor, before the first thunk is reachable. */
HIDDEN void call_stacks_prepare(void);
/* Shadow for [low, high) of a stack that is about to be used: pthread attributes, sigaltstack, makecontext. */
HIDDEN void call_stack_prepare(uintptr_t low, uintptr_t high);
/* True if [address, address + length) overlaps a shadow. */
HIDDEN int call_overlaps(uintptr_t address, uintptr_t length);

/*
 * The program needs the address space: shadows of stack that no open call is on are given back. Only while the calling
 * thread is the only one.
 */
HIDDEN void call_shadows_leave(void);
/* Each mapping of a shadow, of one region each. */
HIDDEN void call_each_shadow(void (*each)(void *start, unsigned long length));
/* A thread begins: `stack` is an address near the upper end of its stack. Makes what its calls will need. */
HIDDEN void call_thread_begin(struct thread *self, uintptr_t stack);
/* The calling thread's signal stack is set. */
HIDDEN void call_signal_stack(struct thread *self, uintptr_t low, uintptr_t high);
/* System calls are about to be forbidden: what the calling thread may need is made now. */
HIDDEN void call_prepare_for_filter(struct thread *self);

/* ---- counting ---------------------------------------------------------- */

/*
 * A wait is no time of the calls that it is inside of. begins: returns 1 where it stops a count, and then `ends` has to
 * follow. Whoever calls them looks at process->timed_function first.
 */
HIDDEN int count_wait_begins(struct thread *self, uint64_t tick);
HIDDEN void count_wait_ends(struct thread *self);

/* What stood in [from, from + length) of the arena stands at `to` now. */
/* The entry that the thread's counters are kept for is its own no more: others are begun. */
HIDDEN void call_counters_forget(struct thread *self);

HIDDEN void call_counters_moved(struct thread *self, uintptr_t from, uintptr_t length, uintptr_t to);

/* A fork child goes on in the calls that its parent was inside of. call: of the thread that forked; NULL: it had none. */
HIDDEN void call_forked(struct thread *self, struct call_thread *call);
/* A vfork child begins on the calling thread's storage, whose entry it has already; it is gone, and the entry is the parent's. */
HIDDEN void call_shared_child_begins(struct thread *self);
HIDDEN void call_shared_child_ends(struct thread *self);

/* ---- frames that are left without a return ----------------------------- */

/* As in EXCEPTION_FROM events. */
enum call_left { CALL_LEFT_THROW = 0, CALL_LEFT_EXIT = 1, CALL_LEFT_LONGJMP = 2, CALL_LEFT_CANCELLED = 3 };

/*
 * Told by the hooks. `stack`: a stack pointer in the frame that calls the hook.
 * call_raised: an exception begins its way; its object and its type (struct type_information of hooks/exception.c), both
 * NULL where not known. call_caught: a handler begins, `address` in it.
 */
HIDDEN void call_raised(struct thread *self, uintptr_t stack, const void *object, const void *type);
HIDDEN void call_caught(struct thread *self, uintptr_t stack, uintptr_t address);
/* longjmp: goes to where the stack pointer is `to` (0: not known) and on at `address` (0: not known). */
HIDDEN void call_jumped(struct thread *self, uintptr_t stack, uintptr_t to, uintptr_t address);
/* The thread ends (pthread_exit, cancellation): all its open calls are left. */
HIDDEN void call_thread_left(struct thread *self, uintptr_t stack, int cancelled);

/* Takes liblorg.so's own addresses, the return point above all, out of what backtrace() gave; returns how many remain. */
HIDDEN int call_backtrace_filter(void **addresses, int count);
/* True of an address in liblorg.so, which no backtrace shows the program. */
HIDDEN int call_address_is_own(uintptr_t address);

#endif
