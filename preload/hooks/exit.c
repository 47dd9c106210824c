/* SPDX-License-Identifier: MIT */
/*
 * exit.c: the ends of threads and programs.
 *
 * Every orderly end of a program comes to libc's inner _exit, which is hooked
 * by its code: there EXIT is written, after the exit handlers have run. A
 * thread's end is told when its routine returns, at pthread_exit, or when a
 * cancellation unwinds it (thread_create.c); what its destructors do later
 * moves the EXIT behind itself (thread.h, thread_exit). Signals are told from
 * outside, by the collector.
 */
#include "preload/hooks/message_match.h"
#include "preload/hooks/exit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/hooks/spawn.h"

/* liblorg.so names no library: this is found in the C library, or not at all. */
#pragma weak on_exit

enum { STATUS_BITS = 0xff /* what a parent gets to see */ };

static void exit_begins(void)
{
	/* Relaxed: a flag that only ever rises, read by hooks of all threads. */
	if (!this_thread.vfork_child)
		__atomic_store_n(&the_program.ending, 1, __ATOMIC_RELAXED);
}

void program_ends(uint32_t hook, int status)
{
	int saved_errno = *hook_errno();
	if (!hook_lives(hook))
		return;
	spawn_settle(0, 0);
	struct thread *self = thread_self();
	status &= STATUS_BITS;
	if (self) {
		exit_begins();
		thread_exit(1, status ? LORG_REASON_STATUS : LORG_REASON_NORMAL, status, hook_table[hook].shown_as);
	}
	*hook_errno() = saved_errno;
}

void thread_ends(uint32_t hook, int killed)
{
	int saved_errno = *hook_errno();
	if (thread_self() && !this_thread.ending)
		call_thread_left(&this_thread, (uintptr_t)__builtin_frame_address(0), killed);
	if (hook_lives(hook) && thread_self() && !this_thread.ending)
		thread_exit(0, killed ? LORG_REASON_KILLED : LORG_REASON_NORMAL, 0, hook_table[hook].shown_as);
	*hook_errno() = saved_errno;
}

/* ---- programs ---- */

static void __attribute__((noreturn)) leave(uint32_t hook, int status)
{
	hook_type__exit real = (hook_type__exit)hook_real(hook);
	program_ends(hook, status);
	real(status);
	__builtin_unreachable();
}

void hook__exit(int status)
{
	leave(HOOK__exit, status);
}

void hook__Exit(int status)
{
	leave(HOOK__Exit, status);
}

/* exit and quick_exit run handlers of the program first: their EXIT is that of the inner _exit. */
void hook_exit(int status)
{
	if (hook_gate(HOOK_exit))
		exit_begins();
	REAL(exit)(status);
	__builtin_unreachable();
}

void hook_quick_exit(int status)
{
	if (hook_gate(HOOK_quick_exit))
		exit_begins();
	REAL(quick_exit)(status);
	__builtin_unreachable();
}

void hook_quick_exit_2_10(int status)
{
	if (hook_gate(HOOK_quick_exit_2_10))
		exit_begins();
	REAL(quick_exit_2_10)(status);
	__builtin_unreachable();
}

struct aborting {
	struct thread *self;
	struct lorg_event_SIGNAL_SENT event;
};

static void write_abort(void *context, const struct matched_event *matched)
{
	struct aborting *aborting = context;
	aborting->event.session = matched->session;
	aborting->event.message_value_length = matched->value.length;
	event_write(aborting->self, LORG_EVENT_SIGNAL_SENT, &aborting->event, sizeof aborting->event, &matched->value, 1, 0);
}

static void tell_abort(struct thread *self)
{
	struct aborting aborting = {.self = self,
				    .event = {.entry = clock_now(),
					      .signal = SIGABRT,
					      .hook = HOOK_abort,
					      .to_pid = (int)program_own_pid(),
					      .to_tid = self->process->own_tid}};
	if (the_arena.message_programs & LORG_MASK_SEND)
		signal_sent_tell(self, &aborting.event, write_abort, &aborting);
	else
		write_abort(&aborting, &(struct matched_event){.session = 0});
}

/* abort raises inside libc, where no hook sees it: the signal is told here, the end by the collector. */
void hook_abort(void)
{
	struct thread *self = (hook_gate(HOOK_abort) & LORG_GATE_MESSAGE) && session_wants(LORG_MASK_SEND) ? thread_self() : 0;
	if (self && !self->busy)
		tell_abort(self);
	REAL(abort)();
	__builtin_unreachable();
}

static void last_handler(int status, void *unused)
{
	(void)unused;
	program_ends(HOOK_exit, status);
}

/*
 * Registered before any other handler, so it runs after them all, the loader's included. The first entries of libc's
 * list are static memory: nothing is allocated.
 */
void exit_watch_without_inner_hook(void)
{
	if (on_exit)
		on_exit(last_handler, 0);
}

/* ---- threads ---- */

void hook_pthread_exit(void *value)
{
	thread_ends(HOOK_pthread_exit, 0);
	REAL(pthread_exit)(value);
	__builtin_unreachable();
}

void hook_thrd_exit(int value)
{
	thread_ends(HOOK_thrd_exit, 0);
	REAL(thrd_exit)(value);
	__builtin_unreachable();
}
