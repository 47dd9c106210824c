/* SPDX-License-Identifier: MIT */
/*
 * timeout.h: how long a call may wait, in nanoseconds, whatever form its row
 * says the time-out has; and small reads of memory that the program named.
 */
#ifndef LORG_PRELOAD_TIMEOUT_H
#define LORG_PRELOAD_TIMEOUT_H

#include "preload/hook.h"

/*
 * As memory_peek, without a system call where the address lies in the frames
 * above us on the thread's own stack, as the arguments of most calls do.
 * Returns 1 when all of it was read.
 */
HIDDEN int argument_peek(void *to, uintptr_t from, uint32_t length);

/* The time-out of the call, from the column of its row that is set; -1: none, or not to be read. */
HIDDEN int64_t call_timeout(const struct hook_call *call);

/* Seconds and a rest in nanoseconds together; -1 for what is no time or as good as for ever. */
static inline int64_t time_ns(int64_t seconds, int64_t rest)
{
	return seconds < 0 || rest < 0 || seconds > INT64_MAX / 1000000000 - 1 ? -1 : seconds * 1000000000 + rest;
}

/* From now until a deadline on CLOCK_REALTIME or CLOCK_MONOTONIC, at least 0; -1 for other clocks or no time. */
HIDDEN int64_t until_deadline(uintptr_t clock, int64_t deadline_ns);

#endif
