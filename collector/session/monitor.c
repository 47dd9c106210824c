/* SPDX-License-Identifier: MIT */
/* monitor.c: see monitor.h. */
#include "collector/session/monitor.h"

#include <stdlib.h>
#include <string.h>

enum { QUEUES = 1024 }; /* that are long, of all sessions; the oldest is taken for short again */

/* A queue that a session was told to be long. */
struct queue {
	unsigned slot; /* 0: the place is free */
	uint8_t image[16];
	uint64_t object;
};

struct monitors {
	struct queue queue[QUEUES];
	uint32_t next;
};

struct monitors *monitors_create(void)
{
	return calloc(1, sizeof(struct monitors));
}

void monitors_free(struct monitors *monitors)
{
	free(monitors);
}

void monitors_forget_session(struct monitors *monitors, unsigned slot)
{
	for (uint32_t i = 0; i < QUEUES; i++)
		if (monitors->queue[i].slot == slot)
			monitors->queue[i].slot = 0;
}

static struct queue *long_queue(struct monitors *monitors, unsigned slot, const uint8_t image[16], uint64_t object)
{
	for (uint32_t i = 0; i < QUEUES; i++) {
		struct queue *queue = &monitors->queue[i];
		if (queue->slot == slot && queue->object == object && memcmp(queue->image, image, sizeof queue->image) == 0)
			return queue;
	}
	return NULL;
}

static void note_long(struct monitors *monitors, unsigned slot, const uint8_t image[16], uint64_t object)
{
	struct queue *queue = &monitors->queue[monitors->next++ % QUEUES];
	queue->slot = slot;
	queue->object = object;
	memcpy(queue->image, image, sizeof queue->image);
}

static int wants_queue(struct monitors *monitors, const struct session *session, const uint8_t image[16],
		       struct lorg_event_LONG_GC *event)
{
	const uint64_t *limits = session->system_limits;
	if (limits[SESSION_LONG_QUEUE_ON] == UINT64_MAX)
		return 0;
	struct queue *queue = long_queue(monitors, session->slot, image, event->object);
	if (!queue && event->value >= limits[SESSION_LONG_QUEUE_ON]) {
		note_long(monitors, session->slot, image, event->object);
		event->value = 1;
		return 1;
	}
	if (queue && event->value <= limits[SESSION_LONG_QUEUE_OFF]) {
		queue->slot = 0;
		event->value = 0;
		return 1;
	}
	return 0;
}

static int reaches(const struct session *session, enum session_system which, uint64_t value)
{
	uint64_t limit = session->system_limits[which];
	return limit != UINT64_MAX && value >= limit;
}

int monitor_wants(struct monitors *monitors, const struct session *session, const struct lorg_packet *head, uint32_t id,
		  struct lorg_event_LONG_GC *event)
{
	switch (id) {
	case LORG_EVENT_LONG_GC: return reaches(session, SESSION_LONG_GC, event->value);
	case LORG_EVENT_LONG_SCHEDULE: return reaches(session, SESSION_LONG_SCHEDULE, event->value);
	case LORG_EVENT_LARGE_HEAP: return reaches(session, SESSION_LARGE_HEAP, event->value);
	case LORG_EVENT_BUSY_PORT: return session->system_limits[SESSION_BUSY_PORT] != UINT64_MAX;
	case LORG_EVENT_BUSY_DIST_PORT: return session->system_limits[SESSION_BUSY_DIST_PORT] != UINT64_MAX;
	case LORG_EVENT_LONG_MESSAGE_QUEUE: return wants_queue(monitors, session, head->image, event);
	default: return 0;
	}
}
