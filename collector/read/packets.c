/* SPDX-License-Identifier: MIT */
/* packets.c: goes through stream files packet by packet, believing nothing; skips what is damaged and says so. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/event/checksum.h"
#include "collector/read/index.h"

enum {
	PACKET_MAXIMUM = 16 << 20, /* bytes; longer cannot be */
	GAPS_LISTED = 200,         /* damages told one by one */
};

/* ---- tables by hash ---------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static int table_make_room(struct trace_index *index, struct number_table *table,
			   uint64_t (*hash_of)(struct trace_index *, uint32_t))
{
	if (table->count * 2 < table->room)
		return 1;
	uint32_t room = table->room ? table->room * 2 : 64;
	uint32_t *slots = room > table->room ? calloc(room, sizeof *slots) : NULL;
	if (!slots) {
		index->out_of_memory = 1;
		return 0;
	}
	for (uint32_t number = 0; number < table->count; number++) {
		uint32_t at = (uint32_t)hash_of(index, number) & (room - 1);
		while (slots[at])
			at = (at + 1) & (room - 1);
		slots[at] = number + 1;
	}
	free(table->slots);
	table->slots = slots;
	table->room = room;
	return 1;
}

static uint64_t image_hash(const uint8_t id[16])
{
	uint64_t low, high;
	memcpy(&low, id, 8);
	memcpy(&high, id + 8, 8);
	return mix(mix(0, low), high);
}

static uint64_t hash_of_image(struct trace_index *index, uint32_t number)
{
	return image_hash(index->trace.images[number]->id);
}

const struct trace_image *index_find_image(const struct trace_index *index, const uint8_t id[16])
{
	const struct number_table *table = &index->image_table;
	if (table->room == 0)
		return NULL;
	uint32_t mask = table->room - 1;
	for (uint32_t at = (uint32_t)image_hash(id) & mask; table->slots[at]; at = (at + 1) & mask)
		if (memcmp(index->trace.images[table->slots[at] - 1]->id, id, 16) == 0)
			return index->trace.images[table->slots[at] - 1];
	return NULL;
}

struct trace_image *index_image(struct trace_index *index, const uint8_t id[16])
{
	struct trace *trace = &index->trace;
	if (!table_make_room(index, &index->image_table, hash_of_image))
		return NULL;
	uint32_t mask = index->image_table.room - 1, at = (uint32_t)image_hash(id) & mask;
	for (; index->image_table.slots[at]; at = (at + 1) & mask) {
		struct trace_image *image = trace->images[index->image_table.slots[at] - 1];
		if (memcmp(image->id, id, 16) == 0)
			return image;
	}
	struct trace_image *image = calloc(1, sizeof *image);
	if (!image || !index_grow(index, &trace->images, trace->image_count, &index->image_room, sizeof(void *))) {
		index->out_of_memory = 1;
		free(image);
		return NULL;
	}
	memcpy(image->id, id, 16);
	image->number = trace->image_count;
	image->tick = UINT64_MAX;
	trace->images[trace->image_count++] = image;
	index->image_table.slots[at] = trace->image_count;
	index->image_table.count = trace->image_count;
	return image;
}

static uint64_t process_hash(const uint8_t image[16], uint32_t pid, uint32_t tid, uint32_t runtime_process, uint64_t birth)
{
	return mix(mix(mix(image_hash(image), (uint64_t)pid << 32 | tid), runtime_process), birth);
}

static uint64_t hash_of_process(struct trace_index *index, uint32_t number)
{
	const struct trace_process *process = &index->trace.processes[number];
	return process_hash(process->image->id, process->pid, process->tid, process->runtime_process, process->birth);
}

static int is_process(const struct trace_process *process, const struct lorg_packet *head)
{
	return process->tid == head->tid && process->pid == head->pid && process->birth == head->process_birth &&
	       process->runtime_process == head->runtime_process && memcmp(process->image->id, head->image, 16) == 0;
}

unsigned index_process(struct trace_index *index, const struct lorg_packet *head)
{
	struct trace *trace = &index->trace;
	if (index->last_process != UINT_MAX && is_process(&trace->processes[index->last_process], head))
		return index->last_process;
	if (!table_make_room(index, &index->process_table, hash_of_process))
		return UINT_MAX;
	uint32_t mask = index->process_table.room - 1;
	uint32_t at =
		(uint32_t)process_hash(head->image, head->pid, head->tid, head->runtime_process, head->process_birth) & mask;
	for (; index->process_table.slots[at]; at = (at + 1) & mask) {
		unsigned number = index->process_table.slots[at] - 1;
		if (is_process(&trace->processes[number], head))
			return index->last_process = number;
	}
	struct trace_image *image = index_image(index, head->image);
	if (!image ||
	    !index_grow(index, &trace->processes, trace->process_count, &index->process_room, sizeof *trace->processes))
		return UINT_MAX;
	if (image->pid == 0)
		image->pid = head->pid;
	trace->processes[trace->process_count] = (struct trace_process){
		.image = image,
		.pid = head->pid,
		.tid = head->tid,
		.runtime_process = head->runtime_process,
		.own_tid = head->own_tid ? head->own_tid : head->tid,
		.birth = head->process_birth,
		.number = trace->process_count,
		.first_tick = UINT64_MAX,
	};
	index->last_process = trace->process_count++;
	index->process_table.slots[at] = trace->process_count;
	index->process_table.count = trace->process_count;
	return index->last_process;
}

/* ---- gaps -------------------------------------------------------------- */

static uint64_t text_hash(const char *text)
{
	uint64_t hash = 1469598103934665603ull;
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
	return hash;
}

static uint64_t gap_hash(const struct trace_gap *gap)
{
	return mix(text_hash(gap->what), text_hash(gap->why));
}

static uint64_t hash_of_gap(struct trace_index *index, uint32_t number)
{
	return gap_hash(&index->trace.gaps[number]);
}

/* Adds to the gap of the same texts, or makes it. */
static void add_gap(struct trace_index *index, const struct trace_gap *gap)
{
	struct trace *trace = &index->trace;
	if (!table_make_room(index, &index->gap_table, hash_of_gap))
		return;
	uint32_t mask = index->gap_table.room - 1, at = (uint32_t)gap_hash(gap) & mask;
	for (; index->gap_table.slots[at]; at = (at + 1) & mask) {
		struct trace_gap *same = &trace->gaps[index->gap_table.slots[at] - 1];
		if (same->damage == gap->damage && strcmp(same->what, gap->what) == 0 && strcmp(same->why, gap->why) == 0) {
			same->count += gap->count;
			return;
		}
	}
	if (!index_grow(index, &trace->gaps, trace->gap_count, &index->gap_room, sizeof *trace->gaps))
		return;
	trace->gaps[trace->gap_count++] = *gap;
	index->gap_table.slots[at] = trace->gap_count;
	index->gap_table.count = trace->gap_count;
}

void index_damage(struct trace_index *index, const struct stream *stream, uint64_t offset, uint64_t bytes, const char *why)
{
	struct trace_gap gap = {.count = 1, .damage = 1};
	if (index->damage_count >= GAPS_LISTED) {
		index->damage_untold++;
		return;
	}
	index->damage_count++;
	snprintf(gap.what, sizeof gap.what, "stream-%u, %llu bytes at byte %llu", stream->number, (unsigned long long)bytes,
		 (unsigned long long)offset);
	snprintf(gap.why, sizeof gap.why, "%s", why);
	add_gap(index, &gap);
}

void index_missing(struct trace_index *index, const char *what, const char *why)
{
	struct trace_gap gap = {.count = 1, .damage = 1};
	snprintf(gap.what, sizeof gap.what, "%s", what);
	snprintf(gap.why, sizeof gap.why, "%s", why);
	add_gap(index, &gap);
}

/* Copies a text of the trace; zero bytes would hide what follows. */
static void copy_text(char *to, size_t size, struct trace_text text)
{
	size_t length = text.length < size - 1 ? text.length : size - 1;
	for (size_t i = 0; i < length; i++)
		to[i] = text.bytes[i] ? (char)text.bytes[i] : '?';
	to[length] = 0;
}

void index_gap(struct trace_index *index, struct trace_text what, struct trace_text why, uint64_t count, uint32_t pid,
	       uint64_t tick)
{
	struct trace_gap gap = {.count = count ? count : 1, .pid = pid, .tick = tick};
	copy_text(gap.what, sizeof gap.what, what);
	copy_text(gap.why, sizeof gap.why, why);
	add_gap(index, &gap);
}

/* ---- packets ----------------------------------------------------------- */

enum head_state { HEAD_GOOD, HEAD_BAD, HEAD_CUT, HEAD_FOREIGN };

/* Looks at what should be the head of a packet, `room` bytes before the end of the file. */
static enum head_state look_at_head(const struct trace_index *index, const uint8_t *at, size_t room,
				    struct lorg_packet *head)
{
	uint32_t magic;
	if (room < sizeof magic)
		return HEAD_CUT;
	memcpy(&magic, at, sizeof magic);
	if (magic != LORG_PACKET_MAGIC)
		return HEAD_BAD;
	if (room < sizeof *head)
		return HEAD_CUT;
	memcpy(head, at, sizeof *head);
	if (index->has_uuid && memcmp(head->trace_uuid, index->uuid, sizeof index->uuid) != 0)
		return HEAD_FOREIGN;
	if (head->packet_bits % 64 || head->content_bits % 8 || head->content_bits > head->packet_bits ||
	    head->content_bits / 8 < sizeof *head || head->packet_bits / 8 > PACKET_MAXIMUM)
		return HEAD_BAD;
	if (head->packet_bits / 8 > room)
		return HEAD_CUT;
	return HEAD_GOOD;
}

static int checksum_fits(const struct lorg_packet *head, const uint8_t *at)
{
	return head->last == 0 || head->last == packet_checksum(at, head->packet_bits / 8);
}

/* Offset of the next thing after `offset` that is a whole packet, or the end of the file. */
static size_t next_packet(const struct trace_index *index, const struct stream *stream, size_t offset)
{
	static const uint32_t magic = LORG_PACKET_MAGIC;
	struct lorg_packet head;
	for (offset += 8; offset + sizeof head <= stream->length; offset += 8) {
		const uint8_t *found = memmem(stream->bytes + offset, stream->length - offset, &magic, sizeof magic);
		if (!found)
			break;
		offset = (size_t)(found - stream->bytes);
		if (offset % 8) { /* packets are multiples of eight bytes */
			offset &= ~(size_t)7;
			continue;
		}
		if (look_at_head(index, found, stream->length - offset, &head) == HEAD_GOOD && checksum_fits(&head, found))
			return offset;
	}
	return stream->length;
}

static int add_packet(struct trace_index *index, const struct trace_packet *packet)
{
	struct trace *trace = &index->trace;
	if (trace->packet_count == index->packet_room) {
		size_t room = index->packet_room ? index->packet_room * 2 : 256;
		struct trace_packet *grown = reallocarray(trace->packets, room, sizeof *grown);
		if (!grown) {
			index->out_of_memory = 1;
			return 0;
		}
		trace->packets = grown;
		index->packet_room = room;
	}
	trace->packets[trace->packet_count++] = *packet;
	return 1;
}

/* Events lost before this packet. In files the heads tell the total of their stream. */
static uint64_t lost_before(struct stream *stream, const struct lorg_packet *head)
{
	uint64_t lost = head->events_discarded > stream->discarded ? head->events_discarded - stream->discarded : 0;
	stream->discarded = head->events_discarded;
	return lost;
}

static const char unlikely_events[] = "events that cannot be", wrong_checksum[] = "damaged: its checksum differs";

static int is_put_off(const struct trace_index *index, const struct lorg_packet *head)
{
	return index->lazily && (head->holds & LORG_HOLDS_KNOWN) && !(head->holds & LORG_HOLDS_DEFINITIONS);
}

void index_settle(struct trace_index *index, struct trace_packet *packet)
{
	const struct stream *stream = &index->streams[packet->stream];
	uint64_t offset = (uint64_t)(packet->start - stream->bytes);
	uint32_t content = packet->length;
	struct lorg_packet head;
	memcpy(&head, packet->start, sizeof head);
	packet->untouched = 0;
	if (!checksum_fits(&head, packet->start)) {
		index_damage(index, stream, offset, head.packet_bits / 8, wrong_checksum);
		packet->length = LORG_PACKET_HEAD;
		return;
	}
	index_events(index, packet);
	if (packet->length < content)
		index_damage(index, stream, offset + packet->length, content - packet->length, unlikely_events);
}

static void take_packet(struct trace_index *index, struct stream *stream, size_t offset, const struct lorg_packet *head)
{
	const uint8_t *start = stream->bytes + offset;
	/* The content ends before the padding of the last event. */
	uint32_t content = (uint32_t)((head->content_bits / 8 + 7) & ~(uint64_t)7);
	unsigned number = index_process(index, head);
	if (number == UINT_MAX)
		return;
	struct trace_process *process = &index->trace.processes[number];
	struct trace_packet packet = {
		.start = start,
		.length = content,
		.stream = (uint32_t)(stream - index->streams),
		.number = stream->packets++,
		.session = head->session,
		.holds = head->holds,
		.begin = head->begin,
		.end = head->end > head->begin ? head->end : head->begin,
		.earliest = head->begin,
		.lost = lost_before(stream, head),
		.process = number,
	};
	if (is_put_off(index, head)) {
		packet.untouched = process->untouched = 1;
		if (head->earliest < packet.earliest)
			packet.earliest = head->earliest;
	} else {
		index_events(index, &packet);
		if (packet.length < content)
			index_damage(index, stream, offset + packet.length, content - packet.length, unlikely_events);
	}
	process->lost += packet.lost;
	index->trace.lost += packet.lost;
	if (packet.length > LORG_PACKET_HEAD) {
		if (packet.earliest < process->first_tick)
			process->first_tick = packet.earliest;
		if (packet.end > process->last_tick)
			process->last_tick = packet.end;
	}
	add_packet(index, &packet);
}

static const char *damage_name(enum head_state state)
{
	switch (state) {
	case HEAD_CUT: return "the file ends within a packet";
	case HEAD_FOREIGN: return "packets of another trace";
	case HEAD_BAD:
	case HEAD_GOOD: break;
	}
	return "not a packet";
}

/* Packets of a stream are numbered: one that comes again is not taken twice, ones that were taken out are told. */
static int in_sequence(struct trace_index *index, struct stream *stream, size_t offset, const struct lorg_packet *head)
{
	char why[80];
	uint64_t expected = stream->sequence;
	if (head->sequence < expected) {
		index_damage(index, stream, offset, head->packet_bits / 8, "a packet that was there before");
		return 0;
	}
	int told = stream->damaged; /* what was skipped just before */
	stream->sequence = head->sequence + 1;
	stream->damaged = 0;
	if (head->sequence == expected || told)
		return 1;
	snprintf(why, sizeof why, "%llu packets before it are missing", (unsigned long long)(head->sequence - expected));
	index_damage(index, stream, offset, 0, why);
	return 1;
}

void index_stream(struct trace_index *index, struct stream *stream)
{
	size_t offset = 0;
	while (offset < stream->length && !index->out_of_memory) {
		struct lorg_packet head;
		enum head_state state = look_at_head(index, stream->bytes + offset, stream->length - offset, &head);
		int damaged = state == HEAD_GOOD && !is_put_off(index, &head) && !checksum_fits(&head, stream->bytes + offset);
		if (state == HEAD_GOOD && !damaged) {
			if (in_sequence(index, stream, offset, &head))
				take_packet(index, stream, offset, &head);
			offset += head.packet_bits / 8;
			continue;
		}
		size_t next = next_packet(index, stream, offset);
		index_damage(index, stream, offset, next - offset,
			     damaged ? wrong_checksum : damage_name(state));
		offset = next;
		stream->damaged = 1;
	}
}

void index_streams(struct trace_index *index)
{
	for (size_t i = 0; i < index->stream_count; i++)
		index_stream(index, &index->streams[i]);
}
