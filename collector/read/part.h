/* SPDX-License-Identifier: MIT */
/*
 * part.h: the events that an event of a file is shown as. Most are shown as
 * they are; SENT, RECEIVED and WAITED tell of a whole call and are shown as
 * the SEND or RECEIVE, OUT and IN that it was, WAIT_OPEN as an OUT, CALL_DONE as
 * CALL and RETURN_FROM; the compact forms of locks and blocks are shown as the long ones.
 */
#ifndef LORG_READ_PART_H
#define LORG_READ_PART_H

#include "collector/event/event.h"

enum { PARTS_MAXIMUM = 3 };

/* Room for the fields of a part: those of the largest, and the bytes of the longest event. */
struct part_room {
	uint8_t bytes[sizeof(struct lorg_event_SEND) + UINT16_MAX];
};

/* How many events a decoded one is shown as, at least 1. */
unsigned part_count_composed(const struct event_view *view);
static inline unsigned part_count(const struct event_view *view)
{
	switch (view->id) {
	case LORG_EVENT_SENT:
	case LORG_EVENT_RECEIVED:
	case LORG_EVENT_WAITED:
	case LORG_EVENT_CALL_DONE:
	case LORG_EVENT_WAIT_OPEN: return part_count_composed(view);
	default: return 1;
	}
}

/* True for events that are never shown as they are. */
static inline int part_is_composed(uint32_t id)
{
	return (id >= LORG_EVENT_LOCK_TAKEN && id <= LORG_EVENT_BLOCK_GIVEN_BACK) || id == LORG_EVENT_SENT || id == LORG_EVENT_RECEIVED || id == LORG_EVENT_WAITED || id == LORG_EVENT_WAIT_OPEN ||
	       id == LORG_EVENT_CALL_DONE;
}

/* Effective tick and id of part `number`; parts of one tick are in the order in which they are shown. */
uint64_t part_effective(const struct event_view *view, unsigned number);
uint32_t part_id(const struct event_view *view, unsigned number);

/* Part `number` as an event of its own. Its fields lie in `room`, or in the packet where it is shown as it is. */
void part_view(const struct event_view *view, unsigned number, struct part_room *room, struct event_view *part);

#endif
