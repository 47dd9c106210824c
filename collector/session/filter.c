/* SPDX-License-Identifier: MIT */
/* filter.c: see filter.h. */
#include "collector/session/filter.h"

#include <string.h>

#include "collector/event/checksum.h"

static struct lorg_packet *head_of(struct filter *filter)
{
	return (struct lorg_packet *)filter->packet;
}

void filter_begin(struct filter *filter, struct session *session, const struct lorg_packet *whose, uint64_t begin, uint32_t holds)
{
	struct lorg_packet *head = head_of(filter);
	memset(head, 0, sizeof *head);
	head->magic = LORG_PACKET_MAGIC;
	memcpy(head->image, whose->image, sizeof head->image);
	head->process_birth = whose->process_birth;
	head->pid = whose->pid;
	head->tid = whose->tid;
	head->own_tid = whose->own_tid;
	head->runtime_process = whose->runtime_process;
	head->session = session->slot;
	head->begin = head->end = head->earliest = begin;
	filter->session = session;
	filter->length = LORG_PACKET_HEAD;
	filter->padding = 0;
	filter->holds = holds | LORG_HOLDS_KNOWN;
	filter->tick = begin;
	filter->events = 0;
}

static void pass_on(struct filter *filter)
{
	struct lorg_packet *head = head_of(filter);
	struct session *session = filter->session;
	head->end = filter->tick;
	head->holds = filter->holds;
	/* Readers of CTF take what is within the content for one more event: it ends before the last one's padding. */
	head->content_bits = (uint64_t)(filter->length - filter->padding) * 8;
	head->packet_bits = (uint64_t)filter->length * 8;
	head->sequence = session->packets++;
	head->last = packet_checksum(head, filter->length);
	session->dropped += session->tracer->operations->packet(session->tracer, head, filter->length);
}

/* The packet goes on as another one. */
static void continue_packet(struct filter *filter)
{
	const struct lorg_packet before = *head_of(filter);
	pass_on(filter);
	filter_begin(filter, filter->session, &before, filter->tick, filter->holds & ~(uint32_t)LORG_HOLDS_DEFINITIONS);
}

static uint8_t *room_for(struct filter *filter, uint32_t length)
{
	if (filter->events && (filter->length >= FILTER_FULL || length > FILTER_SIZE - filter->length))
		continue_packet(filter);
	return filter->packet + filter->length;
}

static void added(struct filter *filter, uint16_t id, uint64_t tick, uint64_t effective, uint32_t length, uint32_t padding)
{
	struct lorg_packet *head = head_of(filter);
	if (effective < head->earliest)
		head->earliest = effective;
	if (event_is_definition(id))
		filter->holds |= LORG_HOLDS_DEFINITIONS;
	filter->tick = tick;
	filter->length += length;
	filter->padding = padding;
	filter->events++;
}

void filter_put_fields(struct filter *filter, uint16_t id, uint64_t tick, uint64_t effective, const void *fields, uint32_t size)
{
	uint32_t exact = (uint32_t)sizeof(struct lorg_extended) + size, length = (exact + 7) & ~7u;
	if (length > UINT16_MAX)
		return;
	uint8_t *at = room_for(filter, length);
	if (tick < filter->tick) /* times do not go back in a packet */
		tick = filter->tick;
	const struct lorg_extended head = {LORG_EVENT_EXTENDED, id, (uint16_t)length, tick};
	memcpy(at, &head, sizeof head);
	memcpy(at + sizeof head, fields, size);
	memset(at + exact, 0, length - exact);
	added(filter, id, tick, effective, length, length - exact);
}

void filter_put_extended(struct filter *filter, uint64_t tick, const void *event, uint32_t length)
{
	struct event_view view;
	if (event_decode(event, length, tick, &view) != EVENT_OK)
		return;
	uint8_t *at = room_for(filter, length);
	memcpy(at, event, length);
	added(filter, (uint16_t)view.id, tick, view.effective, length, view.padding);
}

/* An id below 31 may stand in either form. */
static int is_compact(const struct event_view *view)
{
	return view->id <= LORG_EVENT_COMPACT_LAST && view->length == ((4u + view->description->size + 7) & ~7u);
}

void filter_put(struct filter *filter, const struct event_view *view)
{
	uint32_t head = is_compact(view) ? 4 : (uint32_t)sizeof(struct lorg_extended);
	uint8_t *at = room_for(filter, view->length);
	/* Too far from the one before for a short stamp? */
	if (head == 4 && view->tick - filter->tick > LORG_TICK_MASK) {
		filter_put_fields(filter, (uint16_t)view->id, view->tick, view->effective, view->fields, view->description->size);
		return;
	}
	memcpy(at, view->fields - head, view->length);
	added(filter, (uint16_t)view->id, view->tick, view->effective, view->length, view->padding);
}

void filter_end(struct filter *filter)
{
	if (filter->length && filter->events)
		pass_on(filter);
	filter->length = 0;
}
