/* SPDX-License-Identifier: MIT */
/* part.c: see part.h. The views that come in here are decoded: their lengths are right. */
#include "collector/read/part.h"

#include <lorg/plan.h>

#include <string.h>

enum part { PART_ITSELF, PART_OUT, PART_IN, PART_SEND, PART_RECEIVE, PART_LONG_FORM, PART_CALL, PART_RETURN };

/* hook_flags of SENT and RECEIVED, which are of one shape. */
static uint32_t message_flags(const struct event_view *view)
{
	EVENT_FIELDS(view, SENT, sent);
	return sent.hook_flags >> 16;
}

static int is_message(const struct event_view *view)
{
	return view->id == LORG_EVENT_SENT || view->id == LORG_EVENT_RECEIVED;
}

unsigned part_count_composed(const struct event_view *view)
{
	if (view->id == LORG_EVENT_CALL_DONE) {
		EVENT_FIELDS(view, CALL_DONE, done);
		return done.returned ? 2 : 1;
	}
	if (is_message(view))
		return message_flags(view) & LORG_MESSAGE_RUNNING ? 3 : 1;
	return view->id == LORG_EVENT_WAITED ? 2 : 1;
}

/* A send counts as of its entry, before the out; a receive comes after the in. */
static enum part kind_of(const struct event_view *view, unsigned number)
{
	static const enum part sent[] = {PART_SEND, PART_OUT, PART_IN}, received[] = {PART_OUT, PART_IN, PART_RECEIVE};
	switch (view->id) {
	case LORG_EVENT_SENT: return sent[number];
	case LORG_EVENT_RECEIVED: return part_count_composed(view) == 1 ? PART_RECEIVE : received[number];
	case LORG_EVENT_WAITED: return number == 0 ? PART_OUT : PART_IN;
	case LORG_EVENT_WAIT_OPEN: return PART_OUT;
	case LORG_EVENT_CALL_DONE: return number == 0 ? PART_CALL : PART_RETURN;
	case LORG_EVENT_LOCK_TAKEN:
	case LORG_EVENT_LOCK_GIVEN_BACK:
	case LORG_EVENT_BLOCK_TAKEN:
	case LORG_EVENT_BLOCK_GIVEN_BACK: return PART_LONG_FORM;
	default: return PART_ITSELF;
	}
}

static uint32_t id_of_long_form(uint32_t id)
{
	switch (id) {
	case LORG_EVENT_LOCK_TAKEN: return LORG_EVENT_ACQUIRED;
	case LORG_EVENT_LOCK_GIVEN_BACK: return LORG_EVENT_RELEASED;
	case LORG_EVENT_BLOCK_TAKEN: return LORG_EVENT_ALLOCATE;
	default: return LORG_EVENT_FREE;
	}
}

uint64_t part_effective(const struct event_view *view, unsigned number)
{
	switch (kind_of(view, number)) {
	case PART_IN:
	case PART_RETURN:
	case PART_RECEIVE: return view->tick;
	case PART_ITSELF:
	case PART_LONG_FORM:
	case PART_OUT:
	case PART_CALL:
	case PART_SEND: break;
	}
	return view->effective;
}

uint32_t part_id(const struct event_view *view, unsigned number)
{
	switch (kind_of(view, number)) {
	case PART_OUT: return LORG_EVENT_OUT;
	case PART_IN: return LORG_EVENT_IN;
	case PART_SEND: return LORG_EVENT_SEND;
	case PART_CALL: return LORG_EVENT_CALL;
	case PART_RETURN: return LORG_EVENT_RETURN_FROM;
	case PART_RECEIVE: return LORG_EVENT_RECEIVE;
	case PART_LONG_FORM: return id_of_long_form(view->id);
	case PART_ITSELF: break;
	}
	return view->id;
}

/* ---- fields ------------------------------------------------------------------- */

static struct lorg_event_OUT out_of_message(const struct event_view *view)
{
	EVENT_FIELDS(view, SENT, sent);
	return (struct lorg_event_OUT){
		.object = sent.port & 0xffff,
		.timeout_ns = -1,
		.caller = sent.caller,
		.hook = sent.hook_flags & 0xffff,
		.ending = (sent.hook_flags >> 16 & LORG_MESSAGE_OUT_ENDING) != 0,
	};
}

static struct lorg_event_IN in_of_message(const struct event_view *view)
{
	EVENT_FIELDS(view, SENT, sent);
	uint32_t flags = sent.hook_flags >> 16;
	return (struct lorg_event_IN){
		.since = view->effective,
		.object = sent.port & 0xffff,
		.result = flags & LORG_MESSAGE_NO_COUNT ? 0 : sent.bytes,
		.hook = sent.hook_flags & 0xffff,
		.ending = (flags & LORG_MESSAGE_IN_ENDING) != 0,
	};
}

static struct lorg_event_SEND message_of(const struct lorg_event_SENT *sent, uint64_t entry)
{
	const uint32_t shown = LORG_MESSAGE_EOF | LORG_MESSAGE_CUT | LORG_MESSAGE_PEEK | LORG_MESSAGE_NOT_COPIED | LORG_MESSAGE_INNER;
	return (struct lorg_event_SEND){
		.entry = entry, /* `since` of a receive stands in the same place */
		.object = sent->port & 0xffff,
		.channel = sent->channel,
		.offset = sent->offset,
		.bytes = sent->bytes,
		.requested = sent->requested,
		.hook = sent->hook_flags & 0xffff,
		.generation = sent->port >> 16,
		.flags = sent->hook_flags >> 16 & shown,
		.message_length = sent->message_length,
	};
}

static struct lorg_event_OUT out_of_wait(const struct event_view *view)
{
	if (view->id == LORG_EVENT_WAIT_OPEN) {
		EVENT_FIELDS(view, WAIT_OPEN, open);
		return (struct lorg_event_OUT){.object = open.object,
					       .timeout_ns = open.timeout_ns,
					       .caller = open.caller,
					       .hook = open.hook,
					       .ending = open.ending};
	}
	EVENT_FIELDS(view, WAITED, waited);
	return (struct lorg_event_OUT){.object = waited.object,
				       .timeout_ns = waited.timeout_ns,
				       .caller = waited.caller,
				       .hook = waited.hook,
				       .ending = waited.ending & 1};
}

static struct lorg_event_IN in_of_wait(const struct event_view *view)
{
	EVENT_FIELDS(view, WAITED, waited);
	return (struct lorg_event_IN){.since = view->effective,
				      .object = waited.object,
				      .result = waited.result,
				      .hook = waited.hook,
				      .ending = waited.ending >> 1 & 1,
				      .error = waited.error};
}

static uint32_t put(struct part_room *room, const void *fields, size_t size)
{
	memcpy(room->bytes, fields, size);
	return (uint32_t)size;
}

static uint32_t put_message(const struct event_view *view, struct part_room *room)
{
	EVENT_FIELDS(view, SENT, sent);
	const struct lorg_event_SEND message = message_of(&sent, view->effective);
	uint32_t size = put(room, &message, sizeof message);
	memcpy(room->bytes + size, view->fields + sizeof sent, sent.message_length);
	return size + sent.message_length;
}

static uint32_t put_out(const struct event_view *view, struct part_room *room)
{
	const struct lorg_event_OUT out = is_message(view) ? out_of_message(view) : out_of_wait(view);
	return put(room, &out, sizeof out);
}

static uint32_t put_in(const struct event_view *view, struct part_room *room)
{
	const struct lorg_event_IN in = is_message(view) ? in_of_message(view) : in_of_wait(view);
	return put(room, &in, sizeof in);
}

static uint32_t put_block(const struct event_view *view, struct part_room *room)
{
	EVENT_FIELDS(view, BLOCK_TAKEN, taken);
	const struct lorg_event_ALLOCATE block = {.result = taken.result,
						  .size = taken.size,
						  .caller = taken.caller_hook & 0xffffffffffff,
						  .hook = (uint32_t)(taken.caller_hook >> 48)};
	return put(room, &block, sizeof block);
}

_Static_assert(sizeof(struct lorg_event_FREE) == sizeof(struct lorg_event_ACQUIRED) &&
		       sizeof(struct lorg_event_RELEASED) == sizeof(struct lorg_event_ACQUIRED),
	       "of one shape");

/* Locks, and blocks given back. */
static uint32_t put_object(const struct event_view *view, struct part_room *room)
{
	EVENT_FIELDS(view, LOCK_TAKEN, taken);
	const struct lorg_event_ACQUIRED object = {.object = taken.object, .hook = taken.hook};
	return put(room, &object, sizeof object);
}

/* The terms stand behind the fixed fields, those of the result behind those of the arguments. */
static uint32_t put_call(const struct event_view *view, struct part_room *room)
{
	EVENT_FIELDS(view, CALL_DONE, done);
	const struct lorg_event_CALL call = {.caller = done.caller,
					     .function = done.function,
					     .session_kind = done.session_kind,
					     .terms_length = done.terms_length};
	uint32_t size = put(room, &call, sizeof call);
	memcpy(room->bytes + size, view->fields + sizeof done, done.terms_length);
	return size + done.terms_length;
}

static uint32_t put_return(const struct event_view *view, struct part_room *room)
{
	EVENT_FIELDS(view, CALL_DONE, done);
	const struct lorg_event_RETURN_FROM from = {.since = view->effective,
						    .function = done.function,
						    .error = done.error,
						    .session_kind = done.session_kind & ~(uint32_t)(LORG_CALL_HAS_MESSAGE | LORG_CALL_NO_ARGUMENTS),
						    .terms_length = done.result_length};
	uint32_t size = put(room, &from, sizeof from);
	memcpy(room->bytes + size, view->fields + sizeof done + done.terms_length, done.result_length);
	return size + done.result_length;
}

void part_view(const struct event_view *view, unsigned number, struct part_room *room, struct event_view *part)
{
	uint32_t size = 0;
	*part = *view;
	switch (kind_of(view, number)) {
	case PART_ITSELF: return;
	case PART_OUT: size = put_out(view, room); break;
	case PART_IN: size = put_in(view, room); break;
	case PART_SEND:
	case PART_RECEIVE: size = put_message(view, room); break;
	case PART_CALL: size = put_call(view, room); break;
	case PART_RETURN: size = put_return(view, room); break;
	case PART_LONG_FORM: size = view->id == LORG_EVENT_BLOCK_TAKEN ? put_block(view, room) : put_object(view, room); break;
	}
	part->id = part_id(view, number);
	part->effective = part_effective(view, number);
	/* Out and in happened at that time and were written then, as far as anyone can tell. */
	if (part->id == LORG_EVENT_OUT || part->id == LORG_EVENT_CALL)
		part->tick = part->effective;
	part->length = (uint32_t)sizeof(struct lorg_extended) + size;
	part->fields = room->bytes;
	part->description = event_description(part->id);
}
