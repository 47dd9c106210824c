/* SPDX-License-Identifier: MIT */
/*
 * timeout.c: see timeout.h. No clock is asked for but the trace's own.
 */
#include "preload/hooks/timeout.h"

#include <elf.h>
#include <pthread.h>
#include <sys/time.h>
#include <time.h>

enum { NEAR = 8192, NS_PER_MS = 1000000, NS_PER_US = 1000 };

/* The end of the stack above `here`: a thread's own block stands there; for the first thread, the kernel's random bytes. */
static uintptr_t stack_end(uintptr_t here)
{
	uintptr_t thread_pointer;
	__asm__("mov %%fs:0, %0" : "=r"(thread_pointer));
	return here < thread_pointer ? thread_pointer : auxiliary_value(AT_RANDOM);
}

/* True for the frames right above us, which are there whatever stack this is. */
static int is_on_stack(uintptr_t address, uint32_t length)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), end = stack_end(here);
	return address > here && address - here < NEAR && address < end && end - address >= length;
}

int argument_peek(void *to, uintptr_t from, uint32_t length)
{
	if (is_on_stack(from, length)) {
		memcpy(to, (const void *)from, length);
		return 1;
	}
	return from && memory_peek(to, (const void *)from, length) == length;
}

static int64_t monotonic_now(void)
{
	const struct lorg_clock *clock = &the_arena.clock;
	unsigned __int128 passed = (unsigned __int128)(clock_now() - clock->base_tick) * clock->multiplier;
	return (int64_t)(clock->base_ns + (uint64_t)(passed >> 32));
}

int64_t until_deadline(uintptr_t clock, int64_t deadline_ns)
{
	int64_t now = monotonic_now();
	if (deadline_ns < 0)
		return -1;
	if (clock == CLOCK_REALTIME)
		now += the_arena.clock.wall_offset_ns;
	else if (clock != CLOCK_MONOTONIC)
		return -1;
	return deadline_ns > now ? deadline_ns - now : 0;
}

/* The clock of a condition's deadlines stands in the condition itself: bit 1 of __wrefs. */
static uintptr_t condition_clock(const struct hook_call *call)
{
	unsigned int references = 0;
	const pthread_cond_t *condition = (const pthread_cond_t *)call->argument[0];
	if (call->hook->version && text_equal(call->hook->version, "GLIBC_2.2.5"))
		return CLOCK_REALTIME; /* the old form is a pointer and knows no other */
	memcpy(&references, &condition->__data.__wrefs, sizeof references);
	return references & 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

static uintptr_t deadline_clock(const struct hook_call *call, int timeout_index)
{
	if (call->hook->flags & HOOK_CLOCK_GIVEN)
		return call->argument[timeout_index - 1];
	return call->hook->role == ROLE_condition ? condition_clock(call) : CLOCK_REALTIME;
}

static int64_t timespec_timeout(const struct hook_call *call, int index)
{
	struct timespec given;
	if (!argument_peek(&given, call->argument[index], sizeof given))
		return -1;
	int64_t ns = time_ns(given.tv_sec, given.tv_nsec);
	if (!(call->hook->flags & HOOK_TIMEOUT_ABSOLUTE))
		return ns;
	return until_deadline(deadline_clock(call, index), ns);
}

static int64_t timeval_timeout(const struct hook_call *call, int index)
{
	struct timeval given;
	if (!argument_peek(&given, call->argument[index], sizeof given) || given.tv_usec < 0 ||
	    given.tv_usec > INT64_MAX / NS_PER_US)
		return -1;
	return time_ns(given.tv_sec, given.tv_usec * NS_PER_US);
}

int64_t call_timeout(const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (at->timeout_ms >= 0) {
		int milliseconds = (int)call->argument[at->timeout_ms];
		return milliseconds < 0 ? -1 : (int64_t)milliseconds * NS_PER_MS;
	}
	if (at->timeout_timespec >= 0)
		return timespec_timeout(call, at->timeout_timespec);
	if (at->timeout_timeval >= 0)
		return timeval_timeout(call, at->timeout_timeval);
	return -1;
}
