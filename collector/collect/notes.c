/* SPDX-License-Identifier: MIT */
/* notes.c: see notes.h. */
#include "collector/collect/notes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/plan/plan.h"
#include "collector/session/live.h"
#include "collector/store/packet.h"
#include "hook_names.h"

enum { NOTE_SIZE = LORG_CHUNK_SIZE };

/* One packet of notes on its way to stream-0. */
struct note {
	struct packet_builder packet;
	uint64_t tick;
	_Alignas(8) uint8_t buffer[NOTE_SIZE];
};

uint64_t notes_tick(const struct notes *notes, const struct lane *lane)
{
	uint64_t now = clock_tick(notes->clock), end = lane ? store_lane_end(lane) : 0;
	return now > end ? now : end + 1;
}

static void note_begin(const struct notes *notes, struct note *note)
{
	note->tick = notes_tick(notes, store_own_lane(notes->store));
	packet_begin(&note->packet, note->buffer, sizeof note->buffer, note->tick);
}

static void note_write(struct notes *notes, struct note *note)
{
	if (!note->packet.event_count)
		return;
	if (notes->sessions) {
		notes->live->note(notes->sessions, note->packet.head, note->packet.length);
		return;
	}
	/* A failure is the store's to tell. */
	if (store_append(notes->store, store_own_lane(notes->store), note->packet.head, note->packet.length) == 0)
		notes->coverage.events += note->packet.event_count;
}

static void write_one(struct notes *notes, uint16_t id, const void *fields, const struct packet_bytes *bytes, unsigned count)
{
	struct note note;
	note_begin(notes, &note);
	packet_event(&note.packet, id, note.tick, fields, bytes, count);
	note_write(notes, &note);
}

void notes_clock(struct notes *notes)
{
	const struct lorg_clock *clock = notes->clock;
	const struct lorg_event_CLOCK event = {
		.base_tick = clock->base_tick,
		.base_ns = clock->base_ns,
		.multiplier = clock->multiplier,
		.frequency = clock->frequency,
		.wall_offset_ns = clock->wall_offset_ns,
		.source = clock->source,
	};
	write_one(notes, LORG_EVENT_CLOCK, &event, NULL, 0);
}

void notes_hooks(struct notes *notes)
{
	struct note note;
	note_begin(notes, &note);
	for (uint32_t i = 0; i < hook_name_count; i++) {
		const struct hook_name *hook = &hook_names[i];
		const struct lorg_event_HOOK event = {
			.hook = hook->id,
			.arity = hook->arity,
			.family = hook->family,
			.flags = hook->flags | (uint32_t)hook->shown_as << 16,
		};
		const struct packet_bytes bytes[] = {packet_text(hook->name), packet_text(hook->library)};
		if (packet_event(&note.packet, LORG_EVENT_HOOK, note.tick, &event, bytes, 2) == 0)
			continue;
		note_write(notes, &note);
		note_begin(notes, &note);
		packet_event(&note.packet, LORG_EVENT_HOOK, note.tick, &event, bytes, 2);
	}
	note_write(notes, &note);
}

void notes_session(struct notes *notes, const struct arena_settings *settings, const char *options)
{
	const struct lorg_event_SESSION event = {
		.id = 1,
		.slot = 0,
		.state = 1,
		.overflow = settings->overflow,
		.message_length = settings->message_length,
		.gate_mask = settings->gate_mask,
	};
	const struct packet_bytes bytes[] = {packet_text(settings->session_name), packet_text(options)};
	write_one(notes, LORG_EVENT_SESSION, &event, bytes, 2);
}

void notes_gap(struct notes *notes, uint64_t count, uint32_t pid, const char *what, const char *why)
{
	const struct lorg_event_GAP event = {.count = count, .pid = pid};
	const struct packet_bytes bytes[] = {packet_text(what), packet_text(why)};
	notes->coverage.gaps += count;
	write_one(notes, LORG_EVENT_GAP, &event, bytes, 2);
}

struct note *notes_functions_begin(const struct notes *notes)
{
	struct note *note = malloc(sizeof *note);
	if (note)
		note_begin(notes, note);
	return note;
}

void notes_hooked_function(struct notes *notes, struct note *note, const struct plan_function_news *news)
{
	const struct lorg_event_HOOKED_FUNCTION event = {
		.offset = news->offset,
		.size = news->size,
		.function = news->function,
		.arity = news->arity,
		.tier = news->tier,
		.flags = news->flags,
	};
	const struct packet_bytes bytes[] = {packet_text(news->module), packet_text(news->name), packet_text(news->file),
		{news->build_id, news->build_id_length}};
	if (!note || packet_event(&note->packet, LORG_EVENT_HOOKED_FUNCTION, note->tick, &event, bytes, 4) == 0)
		return;
	note_write(notes, note);
	note_begin(notes, note);
	packet_event(&note->packet, LORG_EVENT_HOOKED_FUNCTION, note->tick, &event, bytes, 4);
}

void notes_functions_end(struct notes *notes, struct note *note)
{
	if (note)
		note_write(notes, note);
	free(note);
}

void notes_lost(struct notes *notes, uint64_t count, const char *why)
{
	const struct lorg_event_LOST event = {.count = count};
	const struct packet_bytes bytes[] = {packet_text(why)};
	notes->coverage.lost += count;
	write_one(notes, LORG_EVENT_LOST, &event, bytes, 1);
}

void notes_mark(struct notes *notes, const char *text)
{
	const struct lorg_event_MARK event = {0};
	const struct packet_bytes bytes[] = {packet_text(text)};
	write_one(notes, LORG_EVENT_MARK, &event, bytes, 1);
}

void notes_end(struct notes *notes)
{
	char text[64];
	snprintf(text, sizeof text, "recording ended packets=%" PRIu64, store_totals(notes->store).packets + 1);
	notes_mark(notes, text);
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

void notes_coverage_line(const struct notes *notes, char *line, unsigned size)
{
	const struct coverage *sum = &notes->coverage;
	int n = snprintf(line, size, "coverage: traced %" PRIu64 " program%s, %" PRIu64 " thread%s, %" PRIu64 " event%s; lost %" PRIu64,
			 sum->programs, plural(sum->programs), sum->processes, plural(sum->processes), sum->events,
			 plural(sum->events), sum->lost);
	if (n > 0 && (unsigned)n < size && sum->not_traced)
		n += snprintf(line + n, size - (unsigned)n, "; %" PRIu64 " program%s not traced", sum->not_traced,
			      plural(sum->not_traced));
	if (n > 0 && (unsigned)n < size && sum->gaps)
		n += snprintf(line + n, size - (unsigned)n, "; %" PRIu64 " gap%s", sum->gaps, plural(sum->gaps));
	if (n > 0 && (unsigned)n < size && sum->damaged)
		snprintf(line + n, size - (unsigned)n, "; %" PRIu64 " damaged chunk%s", sum->damaged, plural(sum->damaged));
}
