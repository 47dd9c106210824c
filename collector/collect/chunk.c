/* SPDX-License-Identifier: MIT */
/*
 * chunk.c: see chunk.h. Most chunks hold compact events and nothing else:
 * compact_run() passes over them at about two ns each and moves nothing.
 */
#include "collector/collect/chunk.h"

#include <string.h>

#include "collector/event/event.h"

/* One pass over the copy. Events move down over what is dropped. */
struct pass {
	uint8_t *packet;
	uint32_t from, to; /* offsets: next to read, next to write; to <= from */
	uint32_t end;	   /* of what was copied */
	uint64_t tick;	   /* of the event before, as read: compact stamps continue it */
	uint64_t kept_tick; /* of the last event kept */
	uint64_t earliest;
	uint32_t holds;	  /* enum lorg_packet_holds */
	uint32_t padding; /* bytes at the end of the last event kept that are none of its fields */
	struct chunk_bounds bounds;
	int one_by_one; /* a stamp that cannot be stands ahead: no more runs */
	struct chunk_summary *summary;
};

/* Bytes of a compact event by id, word included; 0: none. And how many of them pad it to a multiple of eight. */
static uint8_t compact_lengths[32], compact_padding[32];

__attribute__((constructor)) static void fill_compact_lengths(void)
{
	for (uint32_t id = 1; id <= LORG_EVENT_COMPACT_LAST; id++) {
		const struct event_description *description = event_description(id);
		if (!description)
			continue;
		compact_lengths[id] = (uint8_t)((4 + description->size + 7) & ~7u);
		compact_padding[id] = (uint8_t)(compact_lengths[id] - 4 - description->size);
	}
}

static uint32_t load32(const uint8_t *at)
{
	uint32_t word;
	memcpy(&word, at, sizeof word);
	return word;
}

static void keep(struct pass *pass, uint32_t length)
{
	if (pass->to != pass->from)
		memmove(pass->packet + pass->to, pass->packet + pass->from, length);
	pass->to += length;
	pass->from += length;
	pass->summary->events++;
}

/* The call of execve itself, where that is hooked, comes behind the event. */
static int is_entry(uint32_t id)
{
	return id == LORG_EVENT_CALL_ENTRY || id == LORG_EVENT_CALL;
}

/* Compact events as long as they come one after the other and nothing was dropped before them. */
static void compact_run(struct pass *pass)
{
	const uint8_t *packet = pass->packet;
	uint32_t at = pass->from;
	uint64_t tick = pass->tick, events = 0;
	uint32_t last = 0;
	while (at < pass->end) {
		uint32_t word = load32(packet + at);
		uint32_t length = compact_lengths[word & 31];
		if (!length || length > pass->end - at)
			break;
		last = word & 31;
		tick += ((word >> 5) - (uint32_t)tick) & LORG_TICK_MASK;
		at += length;
		events++;
	}
	if (tick > pass->bounds.latest) {
		pass->one_by_one = 1;
		return;
	}
	uint32_t length = at - pass->from;
	if (pass->to != pass->from)
		memmove(pass->packet + pass->to, pass->packet + pass->from, length);
	pass->from = at;
	pass->to += length;
	pass->tick = pass->kept_tick = tick;
	pass->summary->events += events;
	if (!events)
		return;
	pass->padding = compact_padding[last];
	pass->summary->ends_in_exec &= events == 1 && is_entry(last);
	pass->summary->is_behind_exec = events == 1 && is_entry(last) && pass->summary->events == 1;
}

static void drop(struct pass *pass, uint32_t length)
{
	pass->from += length;
}

/* All that follows is lost: where the next event begins is not known. */
static void cut(struct pass *pass)
{
	pass->summary->cut += pass->end - pass->from;
	pass->from = pass->end;
}

/* What the fields announce is the event's length: what readers of the metadata rely on. */
static int is_exact(const struct event_view *view)
{
	return view->padding < 8;
}

/* A compact event after a dropped one: its stamp may be too far from the last one kept, then it is written out. */
static void keep_compact(struct pass *pass, const struct event_view *view)
{
	uint32_t fields = view->description->size;
	uint32_t extended = (uint32_t)((sizeof(struct lorg_extended) + fields + 7) & ~7u);
	pass->padding = compact_padding[view->id];
	if (view->tick - pass->kept_tick <= LORG_TICK_MASK) {
		keep(pass, view->length);
	} else if (extended <= pass->from + view->length - pass->to) {
		struct lorg_extended head = {LORG_EVENT_EXTENDED, (uint16_t)view->id, (uint16_t)extended, view->tick};
		uint8_t copy[64] = {0};
		memcpy(copy, view->fields, fields);
		memcpy(pass->packet + pass->to, &head, sizeof head);
		memcpy(pass->packet + pass->to + sizeof head, copy, extended - sizeof head);
		pass->padding = extended - (uint32_t)sizeof head - fields;
		pass->to += extended;
		pass->from += view->length;
		pass->summary->events++;
	} else {
		pass->summary->corrected++; /* no room for the full stamp: it is one or more wraps early */
		keep(pass, view->length);
		pass->kept_tick += (view->tick - pass->kept_tick) & LORG_TICK_MASK;
		return;
	}
	pass->kept_tick = view->tick;
}

static void note_reaped(struct chunk_summary *summary, const struct event_view *view)
{
	EVENT_FIELDS(view, REAPED, fields);
	if (!fields.pid || fields.tid || summary->reaped_count == CHUNK_REAPED)
		return;
	summary->reaped[summary->reaped_count].tick = view->tick;
	summary->reaped[summary->reaped_count].pid = fields.pid;
	summary->reaped[summary->reaped_count++].status = fields.status;
}

static void note_exec(struct chunk_summary *summary, const struct event_view *view)
{
	uint32_t length;
	const uint8_t *file = event_bytes_named(view, "file", &length);
	summary->exec = CHUNK_EXEC_TRACED;
	if (length >= sizeof summary->exec_file)
		length = sizeof summary->exec_file - 1;
	memcpy(summary->exec_file, file, length);
	summary->exec_file[length] = 0;
}

/* What a thread tells between its EXEC and the call: the call itself, ports that are closed by it, what is not traced of it. */
static int is_behind_exec(const struct event_view *view)
{
	if (view->id != LORG_EVENT_CLOSED)
		return is_entry(view->id) || view->id == LORG_EVENT_GAP || view->id == LORG_EVENT_CPU_TIME;
	EVENT_FIELDS(view, CLOSED, closed);
	return closed.reason == LORG_REASON_EXEC;
}

static void keep_extended(struct pass *pass, const struct event_view *view)
{
	struct chunk_summary *summary = pass->summary;
	uint64_t tick = view->tick;
	if (tick < pass->kept_tick || tick > pass->bounds.latest) {
		tick = pass->kept_tick;
		memcpy(pass->packet + pass->from + offsetof(struct lorg_extended, tick), &tick, sizeof tick);
		summary->corrected++;
	}
	uint64_t effective = view->effective < tick ? view->effective : tick;
	if (effective < pass->bounds.oldest)
		effective = pass->bounds.oldest;
	if (effective < pass->earliest)
		pass->earliest = effective;
	int goes_with_exec = is_behind_exec(view);
	summary->ends_in_exec = view->id == LORG_EVENT_EXEC || (summary->ends_in_exec && goes_with_exec);
	summary->is_behind_exec = goes_with_exec && (summary->is_behind_exec || summary->events == 0);
	if (event_is_definition(view->id))
		pass->holds |= LORG_HOLDS_DEFINITIONS;
	summary->modules += view->id == LORG_EVENT_MODULE;
	if (view->id == LORG_EVENT_EXEC)
		note_exec(summary, view);
	if (view->id == LORG_EVENT_GAP) {
		summary->gaps++;
		summary->exec = CHUNK_EXEC_EXPLAINED;
	}
	if (view->id == LORG_EVENT_REAPED)
		note_reaped(summary, view);
	if (view->id == LORG_EVENT_SPAWN) {
		EVENT_FIELDS(view, SPAWN, fields);
		summary->spawn_entry = fields.entry;
	}
	if (view->id == LORG_EVENT_EXIT) {
		EVENT_FIELDS(view, EXIT, fields);
		if (fields.program)
			summary->has_program_exit = 1;
		summary->has_exit = 1;
	}
	pass->padding = view->padding;
	keep(pass, view->length);
	pass->tick = pass->kept_tick = tick;
}

/* A filler tells the time of what was reserved, if it came to that; what follows continues from there. */
static void drop_filler(struct pass *pass, uint32_t length)
{
	uint64_t tick = 0;
	if (length >= sizeof(struct lorg_extended))
		memcpy(&tick, pass->packet + pass->from + offsetof(struct lorg_extended, tick), sizeof tick);
	if (tick > pass->tick && tick <= pass->bounds.latest)
		pass->tick = tick;
	pass->summary->dropped++;
	drop(pass, length);
}

static void one_event(struct pass *pass)
{
	struct event_view view;
	uint8_t *at = pass->packet + pass->from;
	switch (event_decode(at, pass->end - pass->from, pass->tick, &view)) {
	case EVENT_OK:
		if ((load32(at) & 31) == LORG_EVENT_EXTENDED) {
			if (!is_exact(&view)) {
				cut(pass);
				return;
			}
			keep_extended(pass, &view);
			return;
		}
		if (view.tick > pass->bounds.latest) {
			cut(pass);
			return;
		}
		pass->tick = view.tick;
		keep_compact(pass, &view);
		pass->summary->ends_in_exec &= is_entry(view.id);
		pass->summary->is_behind_exec = 0;
		return;
	case EVENT_FILLER:
		drop_filler(pass, view.length);
		return;
	case EVENT_HOLE:
		pass->summary->dropped++;
		drop(pass, 8);
		return;
	case EVENT_UNKNOWN:
		pass->summary->unknown++;
		drop(pass, view.length);
		return;
	case EVENT_BAD:
		break;
	}
	cut(pass);
}

static enum chunk_state check_head(const struct lorg_packet *head, uint32_t position)
{
	if (position == 0)
		return CHUNK_EMPTY;
	if (position < LORG_PACKET_HEAD || position > LORG_CHUNK_SIZE || position % 8 != 0 || head->magic != LORG_PACKET_MAGIC)
		return CHUNK_DAMAGED;
	return CHUNK_PACKET;
}

static void finish_head(struct lorg_packet *head, const struct pass *pass)
{
	head->end = pass->kept_tick;
	head->earliest = pass->earliest;
	/* Readers of CTF take what is within the content for one more event: it ends before the last one's padding. */
	head->content_bits = (uint64_t)(pass->to - pass->padding) * 8;
	head->packet_bits = (uint64_t)pass->to * 8;
	head->last = 0;
	head->position = 0;
	head->holds = pass->holds;
	head->chunk_index = 0;
	head->own_tid = 0;
}

void collect_chunk_part(const uint8_t *chunk, const struct chunk_part *part, struct chunk_bounds bounds, uint8_t *out,
			struct chunk_summary *summary)
{
	const struct lorg_packet *shared = (const struct lorg_packet *)chunk;
	struct lorg_packet *head = (struct lorg_packet *)out;
	memset(summary, 0, sizeof *summary);
	/* Acquire: pairs with the commit of each event below it. Read once: what bounds the copy does not change. */
	uint32_t position = __atomic_load_n(&shared->position, __ATOMIC_ACQUIRE);
	uint32_t used = position < LORG_PACKET_HEAD ? LORG_PACKET_HEAD : position > LORG_CHUNK_SIZE ? LORG_CHUNK_SIZE : position;
	if (used > part->to)
		used = part->to;
	uint32_t from = part->from < used ? part->from : used;
	memcpy(out, chunk, LORG_PACKET_HEAD);
	memcpy(out + from, chunk + from, used - from);
	summary->copied = used;
	summary->state = check_head(head, position);
	if (summary->state != CHUNK_PACKET)
		return;
	/* More than one a tick cannot have been lost. */
	if (head->events_discarded > bounds.latest - bounds.oldest) {
		head->events_discarded = 0;
		summary->corrected++;
	}
	if (part->begin) {
		head->begin = part->begin;
		head->events_discarded = 0; /* told with the part before */
	}
	summary->discarded = head->events_discarded;
	if (head->begin < bounds.oldest || head->begin > bounds.latest) {
		head->begin = head->begin > bounds.latest ? bounds.latest : bounds.oldest;
		summary->corrected++;
	}
	struct pass pass = {
		.packet = out,
		.from = from,
		.to = LORG_PACKET_HEAD,
		.end = used,
		.tick = head->begin,
		.kept_tick = head->begin,
		.earliest = UINT64_MAX,
		.holds = LORG_HOLDS_KNOWN,
		.bounds = bounds,
		.summary = summary,
	};
	while (pass.from < pass.end) {
		/* A stamp that continues a dropped one cannot be passed over. */
		if (pass.tick == pass.kept_tick && !pass.one_by_one)
			compact_run(&pass);
		if (pass.from < pass.end)
			one_event(&pass);
	}
	/* Compact events tell of their own moment: none is earlier than the packet's begin. */
	if (pass.earliest > head->begin)
		pass.earliest = head->begin;
	summary->length = pass.to;
	summary->read_tick = pass.tick > pass.kept_tick ? pass.tick : pass.kept_tick;
	finish_head(head, &pass);
}

void collect_chunk_copy(const uint8_t *chunk, struct chunk_bounds bounds, uint8_t *out, struct chunk_summary *summary)
{
	static const struct chunk_part whole = {LORG_PACKET_HEAD, LORG_CHUNK_SIZE, 0};
	collect_chunk_part(chunk, &whole, bounds, out, summary);
}

/* Bytes of the event that begins with this word, where it is committed; 0: it is not, or cannot be. */
static uint32_t committed_length(uint64_t first)
{
	uint32_t id = (uint32_t)first & 31;
	if (id != LORG_EVENT_EXTENDED)
		return compact_lengths[id];
	uint32_t length = (uint32_t)(first >> 48);
	return (uint16_t)(first >> 32) == LORG_EVENT_FILLER || length < 8 || length % 8 ? 0 : length;
}

enum certainty { CERTAIN, MAY_BE_TAKEN_BACK, AS_WHAT_FOLLOWS };

static enum certainty certainty_of(const uint8_t *event, uint64_t first, uint32_t length)
{
	struct lorg_event_CLOSED closed;
	if (((uint32_t)first & 31) != LORG_EVENT_EXTENDED)
		return CERTAIN;
	switch ((uint16_t)(first >> 32)) {
	case LORG_EVENT_EXEC: return MAY_BE_TAKEN_BACK;
	case LORG_EVENT_CLOSED:
		if (length < sizeof(struct lorg_extended) + sizeof closed)
			return CERTAIN;
		memcpy(&closed, event + sizeof(struct lorg_extended), sizeof closed);
		return closed.reason == LORG_REASON_EXEC ? MAY_BE_TAKEN_BACK : CERTAIN;
	case LORG_EVENT_CPU_TIME: /* of what stands behind it */
	case LORG_EVENT_GAP: return AS_WHAT_FOLLOWS;
	default: return CERTAIN;
	}
}

uint32_t collect_chunk_committed(const uint8_t *chunk, uint32_t from)
{
	const struct lorg_packet *head = (const struct lorg_packet *)chunk;
	/* Acquire: pairs with the release store of the position of a new chunk. */
	uint32_t position = __atomic_load_n(&head->position, __ATOMIC_ACQUIRE);
	uint32_t at = from, certain = from;
	if (position > LORG_CHUNK_SIZE)
		return from;
	while (at + 8 <= position) {
		/* Acquire: pairs with the commit; the rest of the event is there. */
		uint64_t first = __atomic_load_n((const uint64_t *)(chunk + at), __ATOMIC_ACQUIRE);
		uint32_t length = committed_length(first);
		if (!length || length > position - at)
			break;
		enum certainty certainty = certainty_of(chunk + at, first, length);
		if (certainty == MAY_BE_TAKEN_BACK)
			break;
		at += length;
		if (certainty == CERTAIN)
			certain = at;
	}
	return certain;
}

uint32_t collect_chunk_introduction(const uint8_t *chunk, uint64_t *tick)
{
	const struct lorg_packet *head = (const struct lorg_packet *)chunk;
	/* Acquire: pairs with the commit of each event below it. */
	uint32_t position = __atomic_load_n(&head->position, __ATOMIC_ACQUIRE);
	uint32_t end = LORG_PACKET_HEAD;
	if (position > LORG_CHUNK_SIZE)
		return end;
	while (end + sizeof(struct lorg_extended) <= position) {
		struct lorg_extended event;
		uint64_t first = __atomic_load_n((const uint64_t *)(chunk + end), __ATOMIC_ACQUIRE);
		memcpy(&event, chunk + end, sizeof event);
		memcpy(&event, &first, sizeof first);
		if (event.word != LORG_EVENT_EXTENDED || event.length < sizeof event || event.length % 8 || event.length > position - end)
			break;
		if (event.id != LORG_EVENT_IMAGE && event.id != LORG_EVENT_MODULE && event.id != LORG_EVENT_SPAWNED)
			break;
		*tick = event.tick;
		end += event.length;
	}
	return end;
}
