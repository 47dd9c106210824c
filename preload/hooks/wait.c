/* SPDX-License-Identifier: MIT */
/*
 * wait.c: calls that wait for descriptors, time, children, threads and files,
 * and those that give up the processor. They are out of the processor's sight for
 * as long as they last, so each has an out and an in; a wait for descriptors
 * that ran out is a timeout besides.
 */
#include <aio.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload/hooks/message_match.h"
#include "preload/hook.h"
#include "preload/hooks/reap.h"
#include "preload/hooks/timeout.h"

enum { NO_OBJECT = 0, NS_PER_S = 1000000000, NS_PER_US = 1000 };

/* What the family keeps in call->scratch. */
enum wait_scratch {
	WAIT_OBJECT,
	WAIT_TIMEOUT,
	WAIT_SKIPPED, /* 1: could not wait, no out was written */
};

/* poll of one descriptor waits for that; other sets are known by their address. */
static uint64_t polled_object(const struct hook_call *call)
{
	struct pollfd first;
	int is_poll = call->hook->shown_as == HOOK_poll || call->hook->shown_as == HOOK_ppoll;
	if (is_poll && call->argument[1] == 1 && argument_peek(&first, call->argument[0], sizeof first))
		return (uint64_t)(unsigned int)first.fd;
	return call->argument[call->hook->argument.object];
}

static uint64_t waited_object(const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (call->hook->role == ROLE_reap)
		return at->pid >= 0 ? (uint64_t)(int64_t)(int)call->argument[at->pid] : UINT64_MAX;
	if (at->fd >= 0)
		return call->argument[at->fd];
	if (at->object < 0)
		return NO_OBJECT;
	return call->hook->role == ROLE_poll ? polled_object(call) : call->argument[at->object];
}

/* clock_nanosleep(clock, flags, time, rest): the one sleep whose deadline may be absolute. */
static int64_t clock_sleep_timeout(const struct hook_call *call)
{
	struct timespec given;
	if (!(call->argument[1] & TIMER_ABSTIME))
		return call_timeout(call);
	if (!argument_peek(&given, call->argument[2], sizeof given))
		return -1;
	return until_deadline(call->argument[0], time_ns(given.tv_sec, given.tv_nsec));
}

static int64_t sleep_timeout(const struct hook_call *call)
{
	switch (call->hook->shown_as) {
	case HOOK_sleep: return (int64_t)(unsigned int)call->argument[0] * NS_PER_S;
	case HOOK_usleep: return (int64_t)(unsigned int)call->argument[0] * NS_PER_US;
	case HOOK_clock_nanosleep: return clock_sleep_timeout(call);
	default: return call_timeout(call);
	}
}

/* A call that was told not to wait is none. */
static int cannot_wait(const struct hook_call *call)
{
	int8_t flags = call->hook->argument.flags;
	if (call->hook->blocking == BLOCKING_never)
		return 1;
	switch (call->hook->shown_as) {
	case HOOK_flock: return (call->argument[1] & (LOCK_NB | LOCK_UN)) != 0;
	case HOOK_lockf: return (int)call->argument[1] != F_LOCK;
	case HOOK_lio_listio: return (int)call->argument[0] != LIO_WAIT;
	default: return call->hook->role == ROLE_reap && flags >= 0 && (call->argument[flags] & WNOHANG);
	}
}

void wait_enter(struct hook_call *call)
{
	call->scratch[WAIT_SKIPPED] = (uint64_t)cannot_wait(call);
	if (call->scratch[WAIT_SKIPPED]) {
		call->entry = clock_now();
		return;
	}
	int64_t timeout = call->hook->role == ROLE_sleep ? sleep_timeout(call) : call_timeout(call);
	call->scratch[WAIT_OBJECT] = waited_object(call);
	call->scratch[WAIT_TIMEOUT] = (uint64_t)timeout;
	running_out(call, call->scratch[WAIT_OBJECT], timeout);
}

static void tell_timeout(struct hook_call *call)
{
	if (!session_wants(LORG_MASK_RECEIVE))
		return;
	write_timeout(call->self, &(struct lorg_event_TIMEOUT){.since = call->entry,
							       .object = call->scratch[WAIT_OBJECT],
							       .limit_ns = (int64_t)call->scratch[WAIT_TIMEOUT],
							       .hook = call->hook->shown_as});
}

void wait_leave(struct hook_call *call, intptr_t result)
{
	enum hook_role role = (enum hook_role)call->hook->role;
	if (!hook_returned(call))
		return;
	if (!call->scratch[WAIT_SKIPPED])
		running_in(call, call->scratch[WAIT_OBJECT], result);
	if (role == ROLE_poll && result == 0 && (call->gate & LORG_GATE_MESSAGE))
		tell_timeout(call);
	if (role == ROLE_reap || role == ROLE_join)
		reap_leave(call, result);
}
