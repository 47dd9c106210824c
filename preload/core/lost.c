/* SPDX-License-Identifier: MIT */
/* lost.c: see lost.h. What is decided here, the collector decides of events that were not lost: collector/session/router.c. */
#include "preload/core/lost.h"

#include <lorg/kinds.h>

#include "preload/core/flags.h"

enum verdict { NOT_ASKED, PERHAPS, ASKED };

/* An event and a session that may have wanted it. */
struct asking {
	uint16_t id;
	const void *fields;
	const struct lorg_session *session;
	uint32_t slot, flags, flags_ports;
	struct event_kind kind;
};

#define FIELDS(asking, NAME, event) \
	struct lorg_event_##NAME event; \
	memcpy(&event, (asking)->fields, sizeof event)

static enum verdict by_flags(const struct asking *asking)
{
	if (asking->flags & asking->kind.process)
		return ASKED;
	return asking->flags_ports & asking->kind.port ? PERHAPS : NOT_ASKED;
}

static int is_sent(uint16_t id)
{
	return id == LORG_EVENT_SEND || id == LORG_EVENT_SENT || id == LORG_EVENT_SEND_TO_NON_EXISTING || id == LORG_EVENT_SIGNAL_SENT;
}

static enum verdict by_wait(const struct asking *asking, int ending, int not_waited)
{
	const uint32_t running = LORG_TRACE_RUNNING_PROCS | (not_waited ? 0 : (uint32_t)LORG_TRACE_RUNNING);
	return asking->flags & (ending ? (uint32_t)LORG_TRACE_EXITING : running) ? ASKED : NOT_ASKED;
}

/* The short forms are outs and ins, too. */
static enum verdict by_wait_of_message(const struct asking *asking)
{
	FIELDS(asking, SENT, sent);
	uint32_t flags = sent.hook_flags >> 16;
	if (!(flags & LORG_MESSAGE_RUNNING))
		return NOT_ASKED;
	return by_wait(asking, (flags & LORG_MESSAGE_OUT_ENDING) != 0, (flags & LORG_MESSAGE_NOT_WAITED) != 0);
}

/* The session that the message was for alone, by its specification; 0: all others. */
static uint32_t message_session(const struct asking *asking, uint32_t *as_port)
{
	*as_port = 0;
	switch (asking->id) {
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_RECEIVE: {
		FIELDS(asking, SEND, send); /* RECEIVE is of the same shape */
		*as_port = send.as_port;
		return send.session;
	}
	case LORG_EVENT_TIMEOUT: {
		FIELDS(asking, TIMEOUT, timeout);
		return timeout.session;
	}
	case LORG_EVENT_SIGNAL_SENT: {
		FIELDS(asking, SIGNAL_SENT, sent);
		return sent.session;
	}
	case LORG_EVENT_SIGNAL_RECEIVED: {
		FIELDS(asking, SIGNAL_RECEIVED, received);
		return received.session;
	}
	default: return 0;
	}
}

static enum verdict by_message(const struct asking *asking)
{
	uint32_t as_port, only = message_session(asking, &as_port);
	uint32_t program = is_sent(asking->id) ? asking->session->send_program : asking->session->receive_program;
	int is_short = asking->id == LORG_EVENT_SENT || asking->id == LORG_EVENT_RECEIVED;
	enum verdict waits = is_short ? by_wait_of_message(asking) : NOT_ASKED;
	if (only)
		return only != asking->slot ? NOT_ASKED : as_port ? PERHAPS : by_flags(asking);
	enum verdict message = program ? NOT_ASKED : by_flags(asking);
	return waits > message ? waits : message;
}

static enum verdict by_waiting(const struct asking *asking)
{
	uint32_t ending;
	switch (asking->id) {
	case LORG_EVENT_OUT: {
		FIELDS(asking, OUT, out);
		ending = out.ending;
		break;
	}
	case LORG_EVENT_IN: {
		FIELDS(asking, IN, in);
		ending = in.ending;
		break;
	}
	case LORG_EVENT_WAIT_OPEN: {
		FIELDS(asking, WAIT_OPEN, open);
		ending = open.ending;
		break;
	}
	default: {
		FIELDS(asking, WAITED, waited);
		ending = waited.ending;
		break;
	}
	}
	return by_wait(asking, ending & 1, (ending & 4) != 0);
}

/* A name of another thread, or of a port. */
static enum verdict by_name(const struct asking *asking, const struct thread *self)
{
	FIELDS(asking, REGISTER, name);
	if (name.kind == 1)
		return asking->flags_ports & asking->kind.port ? PERHAPS : NOT_ASKED;
	if (name.tid && name.tid != self->process->own_tid)
		return PERHAPS;
	return asking->flags & asking->kind.process ? ASKED : NOT_ASKED;
}

/* Whose port it is that was closed is not known here. */
static enum verdict by_owner(const struct asking *asking)
{
	return (asking->flags & asking->kind.process) || (asking->flags_ports & asking->kind.port) ? PERHAPS : NOT_ASKED;
}

static enum verdict by_session(const struct asking *asking)
{
	uint32_t slot;
	switch (asking->id) {
	case LORG_EVENT_CALL: slot = ((const struct lorg_event_CALL *)asking->fields)->session_kind; break;
	case LORG_EVENT_CALL_DONE: slot = ((const struct lorg_event_CALL_DONE *)asking->fields)->session_kind; break;
	case LORG_EVENT_RETURN_FROM: slot = ((const struct lorg_event_RETURN_FROM *)asking->fields)->session_kind; break;
	case LORG_EVENT_RETURN_TO: slot = ((const struct lorg_event_RETURN_TO *)asking->fields)->session_kind; break;
	case LORG_EVENT_EXCEPTION_FROM: slot = ((const struct lorg_event_EXCEPTION_FROM *)asking->fields)->session_kind; break;
	case LORG_EVENT_DISPLAY: slot = ((const struct lorg_event_DISPLAY *)asking->fields)->session; break;
	case LORG_EVENT_LIMIT: slot = ((const struct lorg_event_LIMIT *)asking->fields)->session; break;
	default: return PERHAPS;
	}
	return (slot & 0xffff) == asking->slot ? ASKED : NOT_ASKED;
}

/* Instrumented functions: which of them a session traces the collector knows. */
static enum verdict by_function(const struct asking *asking)
{
	int asks = (asking->flags & LORG_TRACE_CALL) && !(asking->flags & LORG_TRACE_SILENT);
	/* Of hooked ones who writes the event counts for each session that wants it. */
	return asks && asking->id != LORG_EVENT_CALL_ENTRY ? PERHAPS : NOT_ASKED;
}

static enum verdict by_monitor(const struct asking *asking)
{
	static const uint8_t limits[] = {0 /* long_gc */, 2 /* long_message_queue */, 3 /* long_schedule */, 4 /* large_heap */,
					 5 /* busy_port */, 6 /* busy_dist_port */};
	FIELDS(asking, LONG_GC, event);
	uint64_t limit = asking->session->system_limits[limits[asking->id - LORG_EVENT_LONG_GC]];
	if (!limit || (asking->id != LORG_EVENT_LONG_MESSAGE_QUEUE && event.value < limit))
		return NOT_ASKED;
	/* A queue is told when it becomes long and short again, a stretch once: the collector knows which of these it was. */
	return asking->id == LORG_EVENT_LONG_MESSAGE_QUEUE || asking->id == LORG_EVENT_LONG_SCHEDULE ? PERHAPS : ASKED;
}

static enum verdict verdict_of(const struct asking *asking, const struct thread *self)
{
	switch (asking->kind.who) {
	case KIND_FLAGS:
	case KIND_LINK: return by_flags(asking);
	case KIND_MESSAGE: return by_message(asking);
	case KIND_WAIT: return by_waiting(asking);
	case KIND_NAME: return by_name(asking, self);
	case KIND_OWNER: return by_owner(asking);
	case KIND_FUNCTION: return by_function(asking);
	case KIND_SESSION: return by_session(asking);
	case KIND_MONITOR: return by_monitor(asking);
	case KIND_TRACED: return asking->flags & LORG_TRACE_ALL ? ASKED : NOT_ASKED;
	case KIND_NONE:
	case KIND_NOBODY:
	case KIND_HISTORY:
	case KIND_STAMP:
	case KIND_DEFINITION: break;
	}
	/* OPEN and its like are definitions as well as messages, and have rows of their own. */
	return NOT_ASKED;
}

void lost_event(const struct thread *self, uint16_t id, const void *fields)
{
	struct lorg_process *process = self->process;
	uint32_t used = sessions_used();
	struct asking asking = {.id = id, .fields = fields, .kind = kind_of_event(id)};
	int doubtful = 0;
	for (uint32_t slot = 1; slot < used; slot++) {
		asking.session = session_at(slot);
		if (!__atomic_load_n(&asking.session->state, __ATOMIC_RELAXED))
			continue;
		asking.slot = slot;
		asking.flags = session_flags(process, slot);
		asking.flags_ports = __atomic_load_n(&asking.session->flags_ports, __ATOMIC_RELAXED);
		enum verdict verdict = verdict_of(&asking, self);
		if (verdict == ASKED)
			lost_for_session(self, slot);
		if (verdict != PERHAPS)
			continue;
		doubtful = 1;
		__atomic_fetch_or(&process->doubtful_sessions[slot / 64], (uint64_t)1 << slot % 64, __ATOMIC_RELAXED);
	}
	/* Release: who takes the count finds whom it concerns. */
	if (doubtful)
		__atomic_fetch_add(&process->doubtful_lost, 1, __ATOMIC_RELEASE);
}
