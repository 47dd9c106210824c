/* SPDX-License-Identifier: MIT */
/* synthetic.c: see synthetic.h. */
#include "synthetic.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collector/event/checksum.h"

void synthetic_packet(struct synthetic *stream, struct synthetic_process process, uint64_t begin)
{
	if (stream->open)
		synthetic_end(stream, 1);
	packet_begin(&stream->builder, stream->packet, sizeof stream->packet, begin);
	memset(stream->builder.head->image, process.image, 16);
	stream->builder.head->pid = process.pid;
	stream->builder.head->tid = process.tid;
	stream->builder.head->process_birth = process.birth;
	stream->last = begin;
	stream->open = 1;
}

struct lorg_packet *synthetic_head(struct synthetic *stream)
{
	return stream->builder.head;
}

void synthetic_event(struct synthetic *stream, uint16_t id, uint64_t tick, const void *fields,
		     const struct packet_bytes *bytes, unsigned count)
{
	ck_assert_int_eq(packet_event(&stream->builder, id, tick, fields, bytes, count), 0);
	stream->last = tick;
}

void synthetic_raw(struct synthetic *stream, const void *bytes, size_t length)
{
	ck_assert_uint_le(stream->builder.length + length, sizeof stream->packet);
	memcpy(stream->packet + stream->builder.length, bytes, length);
	stream->builder.length += (uint32_t)length;
	stream->builder.head->content_bits = stream->builder.head->packet_bits = (uint64_t)stream->builder.length * 8;
}

void synthetic_compact(struct synthetic *stream, uint32_t id, uint64_t tick, uint32_t first, uint32_t second)
{
	uint32_t words[4] = {id | (uint32_t)(tick & LORG_TICK_MASK) << 5, first, second, 0};
	ck_assert_uint_le(tick - stream->last, LORG_TICK_MASK);
	int two = id == LORG_EVENT_ENTER_LINE || id == LORG_EVENT_EXIT_LINE || id == LORG_EVENT_CATCH_LINE;
	synthetic_raw(stream, words, two ? 16 : 8);
	stream->last = stream->builder.head->end = tick;
}

void synthetic_end(struct synthetic *stream, int checksum)
{
	if (!stream->open)
		return;
	stream->open = 0;
	stream->builder.head->sequence = stream->sequence++;
	stream->builder.head->last = checksum ? packet_checksum(stream->packet, stream->builder.length) : 0;
	stream->bytes = realloc(stream->bytes, stream->length + stream->builder.length);
	ck_assert_ptr_nonnull(stream->bytes);
	memcpy(stream->bytes + stream->length, stream->packet, stream->builder.length);
	stream->length += stream->builder.length;
}

void synthetic_free(struct synthetic *stream)
{
	free(stream->bytes);
	stream->bytes = NULL;
	stream->length = 0;
	stream->sequence = 0;
}

void synthetic_clock(struct synthetic *stream)
{
	synthetic_packet(stream, (struct synthetic_process){0}, 0);
	SYNTHETIC_EVENT(stream, CLOCK, 0, .base_tick = 0, .base_ns = 0, .multiplier = (uint64_t)1 << 32,
			.frequency = 1000000000, .source = LORG_CLOCK_MONOTONIC);
}

struct trace *synthetic_open(struct synthetic *streams, unsigned count)
{
	struct trace_memory memory[16];
	char why[256];
	ck_assert_uint_le(count, 16);
	for (unsigned i = 0; i < count; i++) {
		synthetic_end(&streams[i], 1);
		memory[i] = (struct trace_memory){streams[i].bytes, streams[i].length};
	}
	struct trace *trace = trace_open_memory(NULL, 0, memory, count, why, sizeof why);
	ck_assert_msg(trace != NULL, "%s", why);
	return trace;
}
