/* SPDX-License-Identifier: MIT */
/*
 * cpu_time.h: the program's CPU time beside its events, where some session has asked for cpu_timestamp.
 *
 * A thread whose process has that flag writes all of its events by event_write() (thread.h, long_way), and each with a
 * CPU_TIME in front of it. What an event tells of the entry of a call is told by what was noted at the last hook that was
 * entered before. One clock_gettime a hook and one an event; none for anybody else. Async-signal-safe.
 */
#ifndef LORG_PRELOAD_CPU_TIME_H
#define LORG_PRELOAD_CPU_TIME_H

#include <lorg/match.h>

#include "preload/core/thread.h"

/* To be called with the process's flags wherever they are looked at before something is told. */
static inline void cpu_time_heed(uint32_t flags)
{
	uint8_t on = (flags & LORG_TRACE_CPU_TIMESTAMP) != 0;
	if (__builtin_expect(this_thread.cpu_times != on, 0))
		this_thread.cpu_times = on;
}

/* A hook is entered: what is told of its entry has that time. */
HIDDEN void cpu_time_entry(void);

/* Fills *event but for what it is the time of an entry at; 0: it cannot be known here. */
HIDDEN int cpu_time_now(struct lorg_event_CPU_TIME *event);
/* And that: of the event `id` with these fixed fields, stamped `tick`. */
HIDDEN void cpu_time_of_entry(struct lorg_event_CPU_TIME *event, uint16_t id, const void *fields, uint64_t tick);

/* Events that messages of trace(3) are made of; the others tell how these are to be read. */
static inline int cpu_time_is_for(uint16_t id)
{
	return id < LORG_EVENT_FLAGS || id == LORG_EVENT_DISPLAY;
}

#endif
