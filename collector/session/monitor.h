/* SPDX-License-Identifier: MIT */
/*
 * monitor.h: which system events (system/3) a session is told: programs tell
 * what the least limit of all sessions asks for.
 *
 * Units of `value`: long_gc and long_schedule ms, large_heap words of 8 bytes, long_message_queue the length of the queue
 * now, each time that it crosses some session's limit. A session gets 1 or 0 instead of the length: beyond its Enable,
 * below its Disable.
 */
#ifndef LORG_SESSION_MONITOR_H
#define LORG_SESSION_MONITOR_H

#include "collector/session/router.h"
#include <lorg/events.h>

struct monitors;
struct monitors *monitors_create(void); /* NULL: no memory */
void monitors_free(struct monitors *monitors);
void monitors_forget_session(struct monitors *monitors, unsigned slot);

/* Whether the session is told; *event (of any of these ids: they are of one shape) as it is told. */
int monitor_wants(struct monitors *monitors, const struct session *session, const struct lorg_packet *head, uint32_t id,
		  struct lorg_event_LONG_GC *event);

#endif
