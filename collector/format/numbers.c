/* SPDX-License-Identifier: MIT */
/* numbers.c: see numbers.h. */
#include "collector/format/numbers.h"

static uint32_t pid_of(const struct trace *trace, const struct trace_event *event, uint32_t pid)
{
	return trace_pid(trace, event->process->image, pid, event->view.tick);
}

static uint32_t tid_of(const struct trace *trace, const struct trace_event *event, uint32_t tid)
{
	return trace_tid(trace, event->process->image, tid, event->view.tick);
}

void numbers_spawn(const struct trace *trace, const struct trace_event *event, struct lorg_event_SPAWN *spawn)
{
	const struct trace_image *child = trace_image_by_id(trace, spawn->child_image_low, spawn->child_image_high);
	uint32_t own_pid = spawn->child_pid;
	/* Its own first event may come after this one: it is known by its id. */
	spawn->child_pid = child && child->pid ? child->pid : pid_of(trace, event, own_pid);
	spawn->child_tid = spawn->child_tid == own_pid ? spawn->child_pid : tid_of(trace, event, spawn->child_tid);
}

void numbers_spawned(const struct trace *trace, const struct trace_event *event, struct lorg_event_SPAWNED *spawned)
{
	const struct trace_image *parent = trace_image_by_id(trace, spawned->parent_image_low, spawned->parent_image_high);
	if (!parent || !parent->pid)
		return;
	/* Its numbers are those of its own namespace, which need not be the child's. */
	spawned->parent_tid = spawned->parent_tid == spawned->parent_pid
				      ? parent->pid
				      : trace_tid(trace, parent, spawned->parent_tid, event->view.tick);
	spawned->parent_pid = parent->pid;
}

void numbers_reaped(const struct trace *trace, const struct trace_event *event, struct lorg_event_REAPED *reaped)
{
	reaped->pid = pid_of(trace, event, reaped->pid);
	reaped->tid = tid_of(trace, event, reaped->tid);
}

void numbers_register(const struct trace *trace, const struct trace_event *event, struct lorg_event_REGISTER *named)
{
	named->tid = tid_of(trace, event, named->tid);
}

void numbers_link(const struct trace *trace, const struct trace_event *event, struct lorg_event_LINK *link)
{
	link->pid = pid_of(trace, event, link->pid);
	link->tid = tid_of(trace, event, link->tid);
}

void numbers_signal_sent(const struct trace *trace, const struct trace_event *event, struct lorg_event_SIGNAL_SENT *sent)
{
	if (sent->target != 0 || sent->to_pid <= 0)
		return;
	sent->to_pid = (int32_t)pid_of(trace, event, (uint32_t)sent->to_pid);
	sent->to_tid = tid_of(trace, event, sent->to_tid);
}

void numbers_signal_received(const struct trace *trace, const struct trace_event *event,
			     struct lorg_event_SIGNAL_RECEIVED *received)
{
	received->from_pid = pid_of(trace, event, received->from_pid);
}

void numbers_gap(const struct trace *trace, const struct trace_event *event, struct lorg_event_GAP *gap)
{
	gap->pid = pid_of(trace, event, gap->pid);
}
