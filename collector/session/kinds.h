/* SPDX-License-Identifier: MIT */
/*
 * kinds.h: which sessions want an event, by its id. One row each; events that
 * are shown as several (collector/read/part.h) have rows for what they are
 * shown as.
 */
#ifndef LORG_SESSION_KINDS_H
#define LORG_SESSION_KINDS_H

#include <stdint.h>

#include <lorg/events.h>
#include <lorg/match.h>

enum kind_who {
	KIND_NONE = 0,	   /* no row */
	KIND_NOBODY,	   /* recordings have it; no flag of trace(3) asks for it */
	KIND_FLAGS,	   /* by flags: `process` of the process it happened in, `port` of the port that it names */
	KIND_MESSAGE,	   /* the same, and its `session` and `as_port` fields */
	KIND_WAIT,	   /* out and in: running, running_procs or exiting, by its `ending` field */
	KIND_NAME,	   /* REGISTER, UNREGISTER: of a process, maybe another one, or a port */
	KIND_OWNER,	   /* CLOSED: the process is the one that opened the port */
	KIND_LINK,	   /* of a process, or of a port as its own message */
	KIND_FUNCTION,	   /* call, and what the session asks of that function */
	KIND_SESSION,	   /* its session field */
	KIND_MONITOR,	   /* system/3 */
	KIND_TRACED,	   /* every session in which the process has any flag */
	KIND_HISTORY,	   /* FLAGS */
	KIND_DEFINITION,   /* to read others with, nothing more */
};

struct event_kind {
	enum kind_who who;
	uint32_t process, port; /* LORG_TRACE_* of which one is enough */
};

/* By id; who is KIND_NONE for ids that are not known, or have no row. */
struct event_kind kind_of_event(uint32_t id);

#endif
