/* SPDX-License-Identifier: MIT */
/* cpu_time.c: see cpu_time.h. */
#include "preload/core/cpu_time.h"

#include <time.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"

/* 0: no system call may be made. */
static uint64_t cpu_ns(void)
{
	struct timespec now;
	if (!system_calls_allowed() || raw_syscall3(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, (long)&now, 0))
		return 0;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cpu_time_entry(void)
{
	struct thread *self = &this_thread;
	uint64_t ns = cpu_ns();
	if (!ns)
		return;
	/* Of a handler that comes in between, the place behind is used: no more than one of the two is forgotten early. */
	struct cpu_time_entry *entry = &self->cpu_entries[self->cpu_entry_next++ % CPU_TIME_ENTRIES];
	entry->ns = ns;
	entry->tick = clock_now();
}

int cpu_time_now(struct lorg_event_CPU_TIME *event)
{
	event->ns = cpu_ns();
	return event->ns != 0;
}

/* The effective tick of an event: of a call that it tells of at its return, the entry. */
static uint64_t effective(uint16_t id, const void *fields, uint64_t tick)
{
	uint64_t entry;
	uint32_t before;
	switch (id) {
	case LORG_EVENT_SPAWN:
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_SIGNAL_SENT:
	case LORG_EVENT_CONNECTED:
	case LORG_EVENT_WAITED:
	case LORG_EVENT_WAIT_OPEN:
	case LORG_EVENT_SEQ_TRACE:
	case LORG_EVENT_CALL_DONE: memcpy(&entry, fields, sizeof entry); return entry;
	case LORG_EVENT_SENT:
	case LORG_EVENT_RECEIVED: memcpy(&before, fields, sizeof before); return tick - before;
	default: return tick;
	}
}

void cpu_time_of_entry(struct lorg_event_CPU_TIME *event, uint16_t id, const void *fields, uint64_t tick)
{
	const struct cpu_time_entry *best = 0;
	event->entry = effective(id, fields, tick);
	event->at_entry = event->ns;
	if (event->entry >= tick) {
		event->entry = tick;
		return;
	}
	for (int i = 0; i < CPU_TIME_ENTRIES; i++) {
		const struct cpu_time_entry *entry = &this_thread.cpu_entries[i];
		if (entry->tick && entry->tick <= event->entry && (!best || entry->tick > best->tick))
			best = entry;
	}
	if (best && best->ns <= event->ns)
		event->at_entry = best->ns;
}
