/* SPDX-License-Identifier: MIT */
/* live.c: see live.h. */
#include "collector/live/live.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lorg/match.h>
#include <lorg/plan.h>

#include "collector/base/list.h"
#include "collector/event/checksum.h"
#include "collector/format/format.h"
#include "collector/live/definitions.h"

struct live {
	unsigned forms;
	struct definitions definitions;
	struct names *names;
	const struct trace *named; /* the trace that names are bound to, and its numbering then */
	uint64_t numbering;
	struct trace_memory *waiting; /* whole packets, ours; shown at the next live_show() */
	size_t waiting_count, waiting_room;
	struct output text, erlang, json_output;
	struct json *json;
	struct causes *causes;
	uint64_t hlc, number, damaged;
	uint64_t start_ns; /* text: times are shown since then; 0: nothing has been shown */
};

struct live *live_new(unsigned forms)
{
	struct live *live = calloc(1, sizeof *live);
	if (!live)
		return NULL;
	if (definitions_begin(&live->definitions)) {
		free(live);
		return NULL;
	}
	live->forms = forms;
	output_begin(&live->text, -1);
	output_begin(&live->erlang, -1);
	output_begin(&live->json_output, -1);
	if (forms & LIVE_JSON) {
		live->json = json_new(&live->json_output);
		live->causes = causes_new();
		if (!live->json || !live->causes) {
			live_free(live);
			return NULL;
		}
	}
	return live;
}

static void forget_waiting(struct live *live)
{
	for (size_t i = 0; i < live->waiting_count; i++)
		free((void *)live->waiting[i].bytes);
	live->waiting_count = 0;
}

void live_free(struct live *live)
{
	if (!live)
		return;
	forget_waiting(live);
	free(live->waiting);
	names_free(live->names);
	json_free(live->json);
	causes_free(live->causes);
	output_end(&live->text);
	output_end(&live->erlang);
	output_end(&live->json_output);
	definitions_end(&live->definitions);
	free(live);
}

int live_waits(const struct live *live)
{
	return live->waiting_count > 0;
}

uint64_t live_damaged(const struct live *live)
{
	return live->damaged;
}

size_t live_definitions(const struct live *live)
{
	return live->definitions.bytes;
}

/* ---- packets ------------------------------------------------------------------- */

static int is_whole(const struct lorg_packet *head, const void *packet, size_t length)
{
	if (head->magic != LORG_PACKET_MAGIC || head->packet_bits != (uint64_t)length * 8 || head->content_bits % 8 ||
	    head->content_bits > head->packet_bits || head->content_bits / 8 < sizeof *head)
		return 0;
	return head->last == 0 || head->last == packet_checksum(packet, length);
}

static int wait_to_be_shown(struct live *live, uint8_t *copy, size_t length)
{
	struct trace_memory *list = list_with_room(live->waiting, live->waiting_count, &live->waiting_room, sizeof *list, 64);
	if (!list)
		return -1;
	live->waiting = list;
	live->waiting[live->waiting_count++] = (struct trace_memory){copy, length};
	return 0;
}

/* 1: it is whole, *head is filled and what it defines is kept; 0: it is not; -1: out of memory. */
static int define(struct live *live, const void *packet, size_t length, struct lorg_packet *head)
{
	if (length >= sizeof *head && length % 8 == 0 && length <= UINT32_MAX) {
		memcpy(head, packet, sizeof *head);
		if (is_whole(head, packet, length)) {
			uint32_t content = (uint32_t)((head->content_bits / 8 + 7) & ~(uint64_t)7);
			return definitions_take(&live->definitions, head, packet, content) ? -1 : 1;
		}
	}
	live->damaged++;
	return 0;
}

int live_define(struct live *live, const void *packet, size_t length)
{
	struct lorg_packet head;
	return define(live, packet, length, &head) < 0 ? -1 : 0;
}

int live_packet(struct live *live, const void *packet, size_t length)
{
	struct lorg_packet head;
	int whole = define(live, packet, length, &head);
	if (whole <= 0 || (head.holds & LORG_HOLDS_UNSHOWN))
		return whole < 0 ? -1 : 0;
	uint8_t *copy = malloc(length);
	if (!copy)
		return -1;
	memcpy(copy, packet, length);
	if (wait_to_be_shown(live, copy, length)) {
		free(copy);
		return -1;
	}
	return 0;
}

/* ---- time stamps ------------------------------------------------------------------ */

/* A descriptor and generation, of the events that ports have flags of their own for. Returns 0 for others. */
static int port_of(const struct event_view *view, struct live_flags_key *key)
{
	uint64_t none = UINT64_MAX, fd = event_number_named(view, "fd", none);
	if (fd == none)
		fd = event_number_named(view, "object", none);
	if (fd == none)
		return 0;
	key->birth = 0;
	key->fd = (int32_t)fd;
	key->generation = (uint32_t)event_number_named(view, "generation", 0);
	return 1;
}

static uint32_t flags_of(const struct live *live, const struct trace_event *event)
{
	struct live_flags_key key = {.birth = event->process->birth, .fd = -1};
	memcpy(key.image, event->process->image->id, sizeof key.image);
	if (event->side == SIDE_PORT)
		port_of(&event->view, &key);
	return live_flags_at(live->definitions.flags, &key, event->view.effective);
}

/* Messages of meta tracing are stamped whatever the flags say. */
static int is_meta(const struct event_view *view)
{
	switch (view->id) {
	case LORG_EVENT_CALL:
	case LORG_EVENT_RETURN_FROM:
	case LORG_EVENT_RETURN_TO:
	case LORG_EVENT_EXCEPTION_FROM: return (event_number_named(view, "session_kind", 0) >> 16 & LORG_KIND_META) != 0;
	default: return 0;
	}
}

/* cpu_timestamp is of the whole session: every process of it has the flag, and what its ports tell goes by that. */
static int has_cpu_times(const struct live *live, const struct trace_event *event)
{
	struct live_flags_key key = {.birth = event->process->birth, .fd = -1};
	memcpy(key.image, event->process->image->id, sizeof key.image);
	return (live_flags_at(live->definitions.flags, &key, event->view.effective) & LORG_TRACE_CPU_TIMESTAMP) != 0;
}

/* The form of the flag `timestamp`, which cpu_timestamp changes, and no other's. */
static enum format_timestamps stamps_of_day(const struct live *live, struct formatter *formatter, const struct trace_event *event)
{
	if (!has_cpu_times(live, event))
		return TIMESTAMPS_WALL;
	formatter->cpu_ns = UINT64_MAX;
	cpu_times_at(live->definitions.cpu_times, event->process->image->id, event->process->birth, event->view.effective,
		     &formatter->cpu_ns);
	return TIMESTAMPS_CPU;
}

static enum format_timestamps stamps_of(const struct live *live, struct formatter *formatter, const struct trace_event *event)
{
	if (is_meta(&event->view))
		return stamps_of_day(live, formatter, event);
	uint32_t flags = flags_of(live, event);
	if (flags & LORG_TRACE_TIMESTAMP)
		return stamps_of_day(live, formatter, event);
	if (flags & LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP)
		return TIMESTAMPS_STRICT;
	return flags & LORG_TRACE_MONOTONIC_TIMESTAMP ? TIMESTAMPS_MONOTONIC : TIMESTAMPS_NONE;
}

/* ---- showing ------------------------------------------------------------------------- */

static int bind_names(struct live *live)
{
	const struct trace *trace = live->definitions.trace;
	if (!live->names)
		live->names = names_new(trace);
	else if (live->named != trace || live->numbering != trace_numbering(trace))
		names_bind(live->names, trace);
	live->named = trace;
	live->numbering = trace_numbering(trace);
	return live->names ? 0 : -1;
}

static const char *one(struct output *output, struct formatter *formatter, format_function *format, const struct trace_event *event)
{
	output->length = 0;
	formatter->output = output;
	format(formatter, event);
	output_byte(output, 0);
	return output->failure ? "" : output->text;
}

static const char *one_lost(struct output *output, struct formatter *formatter, format_lost_function *format,
			    const struct trace_event *event)
{
	output->length = 0;
	formatter->output = output;
	format(formatter, event->process, event->time, event->hlc, event->lost, "no room in the arena");
	output_byte(output, 0);
	return output->failure ? "" : output->text;
}

static int failed(const struct live *live)
{
	return live->text.failure || live->erlang.failure || live->json_output.failure;
}

static int tell_event(struct live *live, struct formatter *formatter, const struct trace_event *event, live_tell *tell, void *context)
{
	struct live_message message = {.kind = LIVE_EVENT, .time = event->time};
	if (event->view.id == LORG_EVENT_LOST || event->view.id == LORG_EVENT_GAP) {
		message.kind = LIVE_LOST;
		/* What could not be traced at all is no number of events. */
		message.count = event->view.id == LORG_EVENT_LOST ? event_number_named(&event->view, "count", 1) : 0;
	}
	formatter->timestamps = (int)stamps_of(live, formatter, event);
	if (live->forms & (LIVE_TEXT | LIVE_COLOURED_TEXT))
		message.text = one(&live->text, formatter, format_text, event);
	if (live->forms & LIVE_ERLANG)
		message.erlang = one(&live->erlang, formatter, format_erlang, event);
	if (live->forms & LIVE_JSON)
		message.json = one(&live->json_output, formatter, format_json, event);
	return failed(live) ? -1 : tell(context, &message);
}

static int tell_lost(struct live *live, struct formatter *formatter, const struct trace_event *event, live_tell *tell, void *context)
{
	struct live_message message = {.kind = LIVE_LOST, .time = event->time, .count = event->lost};
	formatter->timestamps = TIMESTAMPS_NONE;
	if (live->forms & (LIVE_TEXT | LIVE_COLOURED_TEXT))
		message.text = one_lost(&live->text, formatter, format_text_lost, event);
	if (live->forms & LIVE_ERLANG)
		message.erlang = one_lost(&live->erlang, formatter, format_erlang_lost, event);
	if (live->forms & LIVE_JSON)
		message.json = one_lost(&live->json_output, formatter, format_json_lost, event);
	return failed(live) ? -1 : tell(context, &message);
}

static int is_shown(const struct trace_event *event)
{
	return !event->superseded && !event_is_about_recording(event->view.id);
}

static int show_events(struct live *live, struct formatter *formatter, live_tell *tell, void *context)
{
	struct merge *merge = merge_start(live->definitions.trace);
	struct trace_event event;
	int result = merge ? 0 : -1, more;
	while (result == 0 && (more = merge_next(merge, &event)) != 0) {
		if (more < 0) {
			result = -1;
			break;
		}
		if (!live->start_ns)
			live->start_ns = formatter->start_ns = event.time;
		live->hlc = event.hlc = hlc_next(live->hlc, event.time);
		if (event.lost)
			result = tell_lost(live, formatter, &event, tell, context);
		if (!is_shown(&event)) {
			format_skip(formatter, &event);
			continue;
		}
		event.number = ++live->number;
		if (result == 0)
			result = tell_event(live, formatter, &event, tell, context);
	}
	merge_end(merge);
	return result;
}

static void leave_out(struct live *live)
{
	struct definitions_old old;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	definitions_compact(&live->definitions, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, &old);
	if (live->names && bind_names(live))
		return;
	definitions_old_done(&old);
}

int live_show(struct live *live, live_tell *tell, void *context)
{
	if (trace_show(live->definitions.trace, live->waiting, live->waiting_count) || bind_names(live))
		return -1;
	struct formatter formatter = {
		.trace = live->definitions.trace,
		.names = live->names,
		.json = live->json,
		.causes = live->causes,
		.start_ns = live->start_ns,
		.colour = (live->forms & LIVE_COLOURED_TEXT) != 0,
	};
	int result = show_events(live, &formatter, tell, context);
	trace_show(live->definitions.trace, NULL, 0);
	forget_waiting(live);
	cpu_times_shown(live->definitions.cpu_times);
	if (definitions_grown(&live->definitions))
		leave_out(live);
	return result;
}
