/* SPDX-License-Identifier: MIT */
/*
 * merge.c: all events by effective tick.
 *
 * A packet's events are in the order in which they were written. Those that
 * tell of an earlier entry are few; a cursor lists them, sorted, and takes
 * whichever is earlier: the next of the list or the next of the others. A
 * heap holds one cursor for each packet that has begun. An event that is shown
 * as several (part.h) is in the list or among the others with each of them.
 */
#include <stdlib.h>
#include <string.h>

#include "collector/read/index.h"
#include "collector/read/part.h"

/* An event, or a part of one, that counts as of its entry. */
struct early {
	uint64_t effective;
	uint32_t at;
	uint16_t part;
	uint16_t rank; /* among events of one tick */
};

struct cursor {
	const struct trace_packet *packet;
	const struct trace_process *process;
	uint64_t previous; /* tick of the event before `at` */
	uint32_t at;       /* of the next event that is not early; packet->length: none left */
	struct event_view next;
	unsigned next_part, next_parts; /* the part of `next` that is not early, and how many it has */
	enum event_status next_status;
	struct early *early;
	uint32_t early_room, early_count, early_next;
	uint64_t key;  /* effective tick of the event to come */
	int key_early; /* 1: it is the next of the list */
	int begun;
};

struct merge {
	const struct trace *trace;
	size_t next_packet;
	struct cursor **heap;
	size_t heap_count, heap_room;
	struct cursor *spare; /* one ended cursor, for the next packet */
	uint64_t hlc, time, number;
	struct part_room room; /* of the event given last */
};

uint64_t hlc_next(uint64_t previous, uint64_t ns)
{
	uint64_t begins = ns / 1000 << 16;
	return begins > previous ? begins : previous + 1;
}

/* ---- one packet -------------------------------------------------------- */

static int early_in_order(const void *left, const void *right)
{
	const struct early *a = left, *b = right;
	if (a->effective != b->effective)
		return a->effective < b->effective ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	return a->part < b->part ? -1 : a->part > b->part;
}

/* An exit seen from outside counts as of when it must have been. */
static void place_exit(const struct trace_process *process, struct event_view *view)
{
	EVENT_FIELDS(view, EXIT, gone);
	if (gone.outside && process->exit.tick == view->tick && process->exit.effective < view->tick)
		view->effective = process->exit.effective;
}

/* Decodes what stands at `at`; holes and fillers are passed over. Returns 0 at the end. */
static int decode_at(const struct cursor *cursor, uint32_t *at, uint64_t previous, struct event_view *view,
		     enum event_status *status)
{
	const struct trace_packet *packet = cursor->packet;
	while (*at < packet->length) {
		*status = event_decode(packet->start + *at, packet->length - *at, previous, view);
		if (*status == EVENT_OK && view->id == LORG_EVENT_EXIT)
			place_exit(cursor->process, view);
		if (*status == EVENT_OK || *status == EVENT_UNKNOWN)
			return 1;
		if (*status == EVENT_BAD)
			break;
		*at += view->length;
	}
	*at = packet->length;
	return 0;
}

/* What a call did counts as of its entry, and then it was out, for good where it never returned. */
static uint16_t rank_of(uint32_t id)
{
	return id == LORG_EVENT_OUT ? 1 : id == LORG_EVENT_OPEN_CALL ? 2 : 0;
}

static void list_parts(struct cursor *cursor, const struct event_view *view, uint32_t at)
{
	unsigned count = part_count(view);
	for (unsigned i = 0; i < count; i++) {
		uint64_t effective = part_effective(view, i);
		if (effective < view->tick && cursor->early_count < cursor->packet->early_count)
			cursor->early[cursor->early_count++] =
				(struct early){effective, at, (uint16_t)i, rank_of(part_id(view, i))};
	}
}

static int list_early(struct cursor *cursor)
{
	const struct trace_packet *packet = cursor->packet;
	cursor->early_count = cursor->early_next = 0;
	if (packet->early_count == 0)
		return 1;
	if (packet->early_count > cursor->early_room) {
		struct early *grown = reallocarray(cursor->early, packet->early_count, sizeof *grown);
		if (!grown)
			return 0;
		cursor->early = grown;
		cursor->early_room = packet->early_count;
	}
	uint64_t previous = packet->begin;
	struct event_view view;
	enum event_status status;
	for (uint32_t at = LORG_PACKET_HEAD; decode_at(cursor, &at, previous, &view, &status); at += view.length) {
		previous = view.tick;
		list_parts(cursor, &view, at);
	}
	if (cursor->early_count > 1)
		qsort(cursor->early, cursor->early_count, sizeof *cursor->early, early_in_order);
	return 1;
}

/* Moves to the next event that is not early, or part of one, from `at` and `next_part` on. */
static void find_next(struct cursor *cursor)
{
	while (decode_at(cursor, &cursor->at, cursor->previous, &cursor->next, &cursor->next_status)) {
		cursor->next_parts = cursor->next_status == EVENT_OK ? part_count(&cursor->next) : 1;
		for (; cursor->next_part < cursor->next_parts; cursor->next_part++)
			if (part_effective(&cursor->next, cursor->next_part) == cursor->next.tick)
				return;
		cursor->previous = cursor->next.tick;
		cursor->at += cursor->next.length;
		cursor->next_part = 0;
	}
}

/* Sets the key; returns 0 when the packet has no more events. */
static int set_key(struct cursor *cursor)
{
	int has_early = cursor->early_next < cursor->early_count, has_next = cursor->at < cursor->packet->length;
	if (!has_early && !has_next)
		return 0;
	cursor->key_early = 0;
	cursor->key = cursor->next.tick;
	if (!has_early)
		return 1;
	const struct early *early = &cursor->early[cursor->early_next];
	if (has_next &&
	    (early->effective > cursor->next.tick || (early->effective == cursor->next.tick && early->at > cursor->at)))
		return 1;
	cursor->key_early = 1;
	cursor->key = early->effective;
	return 1;
}

static void take(struct cursor *cursor, struct part_room *room, struct trace_event *event)
{
	if (cursor->key_early) {
		const struct early *early = &cursor->early[cursor->early_next++];
		uint32_t at = early->at;
		struct event_view view;
		enum event_status status;
		/* Early events are in extended form: they bring their own stamp. */
		decode_at(cursor, &at, 0, &view, &status);
		part_view(&view, early->part, room, &event->view);
		return;
	}
	part_view(&cursor->next, cursor->next_part, room, &event->view);
	if (++cursor->next_part >= cursor->next_parts) {
		cursor->previous = cursor->next.tick;
		cursor->at += cursor->next.length;
		cursor->next_part = 0;
	}
	find_next(cursor);
}

/* ---- the heap ---------------------------------------------------------- */

static int before(const struct cursor *a, const struct cursor *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	if (a->packet->stream != b->packet->stream)
		return a->packet->stream < b->packet->stream;
	return a->packet->number < b->packet->number;
}

static void sift_down(struct merge *merge)
{
	struct cursor **heap = merge->heap, *moving = heap[0];
	size_t at = 0;
	for (;;) {
		size_t child = at * 2 + 1;
		if (child >= merge->heap_count)
			break;
		if (child + 1 < merge->heap_count && before(heap[child + 1], heap[child]))
			child++;
		if (!before(heap[child], moving))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moving;
}

static void sift_up(struct merge *merge, struct cursor *cursor)
{
	size_t at = merge->heap_count++;
	for (; at > 0 && before(cursor, merge->heap[(at - 1) / 2]); at = (at - 1) / 2)
		merge->heap[at] = merge->heap[(at - 1) / 2];
	merge->heap[at] = cursor;
}

static void cursor_free(struct cursor *cursor)
{
	if (cursor)
		free(cursor->early);
	free(cursor);
}

static void cursor_done(struct merge *merge, struct cursor *cursor)
{
	if (merge->spare) {
		cursor_free(cursor);
		return;
	}
	merge->spare = cursor;
}

/* Brings a packet into the heap. Returns 0 when memory ran out. */
static int begin_packet(struct merge *merge, struct trace_packet *packet)
{
	if (packet->holds & LORG_HOLDS_UNSHOWN)
		return 1;
	if (packet->untouched)
		index_settle(merge->trace->index, packet);
	struct cursor *cursor = merge->spare ? merge->spare : calloc(1, sizeof *cursor);
	merge->spare = NULL;
	if (!cursor)
		return 0;
	cursor->packet = packet;
	cursor->process = &merge->trace->processes[packet->process];
	cursor->previous = packet->begin;
	cursor->at = LORG_PACKET_HEAD;
	cursor->next_part = 0;
	cursor->begun = 0;
	if (!list_early(cursor)) {
		cursor_free(cursor);
		return 0;
	}
	find_next(cursor);
	if (!set_key(cursor)) {
		cursor_done(merge, cursor);
		return 1;
	}
	if (merge->heap_count == merge->heap_room) {
		size_t room = merge->heap_room ? merge->heap_room * 2 : 64;
		struct cursor **grown = reallocarray(merge->heap, room, sizeof(struct cursor *));
		if (!grown) {
			cursor_free(cursor);
			return 0;
		}
		merge->heap = grown;
		merge->heap_room = room;
	}
	sift_up(merge, cursor);
	return 1;
}

struct merge *merge_start(const struct trace *trace)
{
	struct merge *merge = calloc(1, sizeof *merge);
	if (merge)
		merge->trace = trace;
	return merge;
}

static int is_superseded(const struct trace_event *event)
{
	return event->view.id == LORG_EVENT_EXIT && event->process->exit.known &&
	       event->process->exit.tick != event->view.tick;
}

static int begin_packets(struct merge *merge)
{
	const struct trace *trace = merge->trace;
	while (merge->next_packet < trace->packet_count &&
	       (merge->heap_count == 0 || trace->packets[merge->next_packet].earliest <= merge->heap[0]->key))
		if (!begin_packet(merge, &trace->packets[merge->next_packet++]))
			return 0;
	return 1;
}

/* Whose event it is: those of calls say so where they are one session's alone; the others are their packet's. */
static uint32_t session_of(const struct event_view *view, const struct trace_packet *packet)
{
	uint32_t session = 0;
	switch (view->id) {
	case LORG_EVENT_CALL:
	case LORG_EVENT_CALL_DONE:
	case LORG_EVENT_RETURN_FROM:
	case LORG_EVENT_RETURN_TO:
	case LORG_EVENT_EXCEPTION_FROM: session = (uint16_t)event_number_named(view, "session_kind", 0); break;
	case LORG_EVENT_DISPLAY: session = (uint32_t)event_number_named(view, "session", 0); break;
	default: break;
	}
	return session ? session : packet->session;
}

int merge_next(struct merge *merge, struct trace_event *event)
{
	const struct trace *trace = merge->trace;
	if (!begin_packets(merge))
		return -1;
	if (merge->heap_count == 0)
		return 0;
	struct cursor *cursor = merge->heap[0];
	const struct trace_packet *packet = cursor->packet;
	take(cursor, &merge->room, event);
	event->process = &trace->processes[packet->process];
	event->session = session_of(&event->view, packet);
	event->lost = cursor->begun ? 0 : packet->lost;
	event->number = ++merge->number;
	event->superseded = is_superseded(event);
	event->side = packet->holds & LORG_HOLDS_PORT_FLAGS ? SIDE_PORT : packet->holds & LORG_HOLDS_PROCESS_FLAGS ? SIDE_PROCESS : SIDE_BOTH;
	cursor->begun = 1;

	uint64_t time = trace_time(trace, event->view.effective);
	if (time > merge->time)
		merge->time = time;
	event->time = merge->time;
	merge->hlc = hlc_next(merge->hlc, merge->time);
	event->hlc = merge->hlc;

	if (!set_key(cursor)) {
		merge->heap[0] = merge->heap[--merge->heap_count];
		cursor_done(merge, cursor);
	}
	if (merge->heap_count > 1)
		sift_down(merge);
	return 1;
}

void merge_end(struct merge *merge)
{
	if (!merge)
		return;
	for (size_t i = 0; i < merge->heap_count; i++)
		cursor_free(merge->heap[i]);
	free(merge->heap);
	cursor_free(merge->spare);
	free(merge);
}
