/* SPDX-License-Identifier: MIT */
/*
 * monitor.h: system events of trace(3), system/3, as doc/SEMANTICS.md section 5 has them: what a program can see of them.
 * The limits are the least that any session asks for (the_arena.system_limits); the collector tells each session what
 * reaches its own. They concern all processes, whatever their flags.
 */
#ifndef LORG_PRELOAD_MONITOR_H
#define LORG_PRELOAD_MONITOR_H

#include "preload/hook.h"

/* Index in the_arena.system_limits, as the collector fills it (collector/session/session.h). */
enum monitor {
	MONITOR_LONG_GC = 0,	   /* ms */
	MONITOR_LONG_QUEUE_OFF = 1, /* Disable, and */
	MONITOR_LONG_QUEUE_ON = 2,  /* Enable: messages, or bytes. Enable alone says whether anybody asks */
	MONITOR_LONG_SCHEDULE = 3, /* ms */
	MONITOR_LARGE_HEAP = 4,	   /* words */
	MONITOR_BUSY_PORT = 5,
	MONITOR_BUSY_DIST_PORT = 6,
	MONITOR_QUEUES_SINCE = 7, /* tick from which on somebody asks for queues */
};

static inline int monitor_asks(enum monitor which)
{
	return __builtin_expect(the_arena.monitors >> which & 1, 0);
}

/* A collection took from tick `begin` until now. Sizes in words. */
HIDDEN void monitor_collected(struct thread *self, uint64_t begin, const struct lorg_monitor_heap *heap);
/* The heap is mapped so far, after a growth or a collection. */
HIDDEN void monitor_heap(struct thread *self, const struct lorg_monitor_heap *heap);

#endif
