/* SPDX-License-Identifier: MIT */
/*
 * running.h: out and in without two events. Nothing is written when a wait
 * begins: what its `out` will say is kept in the thread's process entry, which
 * outlives the program, and told at the return, together with the `in`.
 *
 * Whoever finds another wait's out there tells it first (WAIT_OPEN): a handler
 * that interrupted that wait, or the next call after a wait that was left by a
 * jump. The collector does so for waits that are open at the end.
 */
#ifndef LORG_PRELOAD_RUNNING_H
#define LORG_PRELOAD_RUNNING_H

#include "preload/call/call.h"
#include "preload/core/flags.h"
#include "preload/hook.h"

/* Tells the out that stands in the entry, if any. */
HIDDEN void running_tell_pending(struct thread *self);

/* `hook` and `out_pending` of the entry, which change as one. */
static inline uint64_t *running_word(struct thread *self)
{
	return (uint64_t *)(void *)&self->process->waits_on.hook;
}

/* The word of this call, from running_begin until somebody tells its out. */
static inline uint64_t running_word_of(const struct hook_call *call)
{
	return (uint64_t)(call->hook->shown_as + 1u) | ((uint64_t)((uint32_t)call->out | 1)) << 32;
}

/* Relaxed, here and below: only this thread and its handlers write the word while the thread lives. */
static inline void running_settle(struct thread *self)
{
	if (__builtin_expect(__atomic_load_n(running_word(self), __ATOMIC_RELAXED) >> 32 != 0, 0))
		running_tell_pending(self);
}

/* The two ends of a call that has no out and in; it is told all the same that the thread is in it. */
static inline void wait_begin(struct thread *self, uint32_t hook, uint64_t object, uint64_t tick)
{
	running_settle(self);
	wait_set(self, hook, object, tick);
}

static inline void wait_end(struct thread *self)
{
	running_settle(self);
	wait_clear(self);
}

static inline uint32_t running_ending(const struct thread *self)
{
	/* Relaxed: a flag that only ever rises. */
	return self->ending || __atomic_load_n(&the_program.ending, __ATOMIC_RELAXED);
}

/* The wait of a call, from its entry to its return, is no time of the calls that it is inside of. */
static inline __attribute__((always_inline)) void waiting_begins(struct hook_call *call)
{
	call->stops_count = 0;
	if (__builtin_expect(call->self->process->timed_function != 0, 0))
		call->stops_count = (uint8_t)count_wait_begins(call->self, call->entry);
}

static inline __attribute__((always_inline)) void waiting_ends(const struct hook_call *call)
{
	if (__builtin_expect(call->stops_count, 0))
		count_wait_ends(call->self);
}

/* A wait begins: call->entry, read here unless it was, is its tick. */
static inline __attribute__((always_inline)) void running_begin(struct hook_call *call, uint64_t object, int64_t timeout_ns)
{
	struct thread *self = call->self;
	running_settle(self);
	struct lorg_process *process = self->process;
	if (!call->entry)
		call->entry = clock_now();
	call->out = call->entry;
	waiting_begins(call);
	call->timeout_ns = timeout_ns;
	call->out_ending = running_ending(self) != 0;
	process->waits_on.object = object;
	process->waits_on.tick = call->out;
	process->wait_caller = call->caller;
	process->wait_timeout_ns = timeout_ns;
	process->wait_ending = call->out_ending;
	/* Release: a handler, or the collector, that sees the word sees the rest. */
	__atomic_store_n(running_word(self), running_word_of(call), __ATOMIC_RELEASE);
}

/* In out_ending, beside 1: the call did not wait; its out and in are told to those who ask for running_procs (events.h). */
enum { RUNNING_NOT_WAITED = 4 };

/* True where port calls have an out and an in though they do not wait. */
static inline int running_tells_all(const struct hook_call *call)
{
	const uint8_t both = LORG_GATE_ALL | LORG_GATE_RUNNING;
	return __builtin_expect((call->gate & both) == both, 0) && call->self->flags_matter &&
	       (process_flags(call->self) & LORG_TRACE_RUNNING_PROCS);
}

/* Behind the running_begin of such a call. */
static inline void running_did_not_wait(struct hook_call *call)
{
	call->out_ending |= RUNNING_NOT_WAITED;
	call->self->process->wait_ending = call->out_ending;
}

/* A wait that running_begin began is over. 1: the caller has to tell its out and in; 0: the out was told, and now the in. */
HIDDEN int running_ended_otherwise(struct hook_call *call, uint64_t object, intptr_t result);
static inline __attribute__((always_inline)) int running_ended(struct hook_call *call, uint64_t object, intptr_t result)
{
	uint64_t expected = running_word_of(call), seen;
	waiting_ends(call);
	/* Without lock: pairs with handlers of this thread only. Who takes the word away tells its out. */
	__asm__ volatile("cmpxchgq %3, %1"
			 : "=a"(seen), "+m"(*running_word(call->self))
			 : "0"(expected), "r"((uint64_t)0)
			 : "memory", "cc");
	return __builtin_expect(seen == expected, 1) ? 1 : running_ended_otherwise(call, object, result);
}

/* The out and in of a wait for which running_ended said 1. */
HIDDEN void running_tell(struct hook_call *call, uint64_t object, intptr_t result);

#endif
