/* SPDX-License-Identifier: MIT */
/*
 * monitor.h: which system events (system/3) a session is told: programs tell
 * what the least limit of all sessions asks for.
 *
 * Units of `value`: long_gc and long_schedule ms, large_heap words of 8 bytes, long_message_queue the length of the queue
 * now, at each look that is beyond some session's limit or in between two. A session gets 1 or 0 instead of the length:
 * beyond its Enable, below its Disable.
 */
#ifndef LORG_SESSION_MONITOR_H
#define LORG_SESSION_MONITOR_H

#include "collector/event/event.h"
#include "collector/session/router.h"
#include <lorg/events.h>

struct monitors;
struct monitors *monitors_create(void); /* NULL: no memory */
void monitors_free(struct monitors *monitors);
void monitors_forget_session(struct monitors *monitors, unsigned slot);

/*
 * Looks at queues come in packets of several threads and programs. They are taken in the order in which they were made,
 * which is that of their numbers: one whose predecessors are not there yet waits, some passes at most (what was lost on the
 * way never comes). `tell` is then called for each; tick: later than that of the one before.
 */
struct queue_record;
struct queue_look {
	struct queue_look *next;
	struct lorg_packet whose;
	struct lorg_event_LONG_GC event; /* LONG_MESSAGE_QUEUE is of the same shape */
	struct lorg_monitor_queue about;
	uint64_t tick, key, pass;
};
typedef void queue_tell(void *context, struct queue_record *record, const struct queue_look *look, uint64_t tick);

void monitors_queue(struct monitors *monitors, const struct lorg_packet *whose, const struct event_view *view, uint64_t pass,
		    queue_tell *tell, void *context);
/* Those that have waited long enough, of all queues. pass UINT64_MAX: all. */
void monitors_pass(struct monitors *monitors, uint64_t pass, queue_tell *tell, void *context);
/* How many passes those may still wait that have come so far; 0: none waits. */
unsigned monitors_waiting(const struct monitors *monitors);

enum queue_change { QUEUE_BECAME_LONG = 1, QUEUE_BECAME_SHORT = 2 /* both: first the one, then the other */ };
/* What a look is for a session: enum queue_change bits. */
unsigned monitor_queue_change(struct queue_record *record, const struct session *session, const struct queue_look *look);

/* Whether the session is told of another system event; event: of any of these ids, they are of one shape. */
int monitor_wants(const struct session *session, uint32_t id, const struct lorg_event_LONG_GC *event);

#endif
