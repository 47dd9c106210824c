/* SPDX-License-Identifier: MIT */
/* test_chunk.c: what becomes of a program's chunk: holes, withdrawn events, stamps and lengths that cannot be. */
#include <stdint.h>
#include <string.h>

#include <lorg/abi.h>
#include <lorg/events.h>

#include "collector/collect/chunk.h"
#include "collector/event/event.h"
#include "tests/unit/unit.h"

static _Alignas(8) uint8_t chunk[LORG_CHUNK_SIZE], out[LORG_CHUNK_SIZE];
static const struct chunk_bounds bounds = {1000, (uint64_t)1 << 40};
static struct chunk_summary summary;

static struct lorg_packet *begin(uint64_t tick)
{
	struct lorg_packet *head = (struct lorg_packet *)chunk;
	memset(chunk, 0, sizeof chunk);
	head->magic = LORG_PACKET_MAGIC;
	head->begin = tick;
	head->position = LORG_PACKET_HEAD;
	return head;
}

static void add_word(uint32_t id, uint64_t tick, uint32_t value)
{
	struct lorg_packet *head = (struct lorg_packet *)chunk;
	uint64_t word = id | (tick & LORG_TICK_MASK) << 5 | (uint64_t)value << 32;
	memcpy(chunk + head->position, &word, sizeof word);
	head->position += 8;
}

static void add_extended(uint16_t id, uint64_t tick, const void *fields, uint32_t size, uint16_t length)
{
	struct lorg_packet *head = (struct lorg_packet *)chunk;
	struct lorg_extended event = {LORG_EVENT_EXTENDED, id, length, tick};
	memcpy(chunk + head->position, &event, sizeof event);
	if (size)
		memcpy(chunk + head->position + sizeof event, fields, size);
	head->position += length;
}

static const struct lorg_packet *take(void)
{
	collect_chunk_copy(chunk, bounds, out, &summary);
	return (const struct lorg_packet *)out;
}

START_TEST(compact_events_pass_unchanged)
{
	begin(5000);
	for (uint32_t i = 0; i < 1000; i++)
		add_word(LORG_EVENT_ENTER, 5000 + i * 10, i);
	const struct lorg_packet *head = take();
	ck_assert_int_eq(summary.state, CHUNK_PACKET);
	ck_assert_uint_eq(summary.events, 1000);
	ck_assert_uint_eq(summary.length, LORG_PACKET_HEAD + 8000);
	ck_assert_uint_eq(head->end, 5000 + 9990);
	ck_assert_uint_eq(head->content_bits, summary.length * 8u);
	ck_assert_uint_eq(head->earliest, 5000);
	ck_assert(memcmp(chunk + LORG_PACKET_HEAD, out + LORG_PACKET_HEAD, 8000) == 0);
}
END_TEST

START_TEST(holes_and_withdrawn_events_are_dropped)
{
	begin(5000);
	add_word(LORG_EVENT_ENTER, 5010, 1);
	((struct lorg_packet *)chunk)->position += 24; /* reserved, nothing written */
	add_extended(LORG_EVENT_FILLER, 5020, NULL, 0, 40);
	add_word(LORG_EVENT_EXIT_FUNCTION, 5030, 1);
	take();
	ck_assert_uint_eq(summary.events, 2);
	ck_assert_uint_eq(summary.dropped, 4);
	ck_assert_uint_eq(summary.cut, 0);
	ck_assert_uint_eq(summary.length, LORG_PACKET_HEAD + 16);
}
END_TEST

START_TEST(a_stamp_after_a_long_withdrawn_pause_is_written_out)
{
	const uint64_t pause = (uint64_t)LORG_TICK_MASK;
	begin(5000);
	add_extended(LORG_EVENT_FILLER, 5000 + pause, NULL, 0, 24);
	add_word(LORG_EVENT_ENTER, 5000 + 2 * pause, 7);
	const struct lorg_packet *head = take();
	struct lorg_extended event;
	memcpy(&event, out + LORG_PACKET_HEAD, sizeof event);
	ck_assert_uint_eq(summary.events, 1);
	ck_assert_uint_eq(event.word, LORG_EVENT_EXTENDED);
	ck_assert_uint_eq(event.id, LORG_EVENT_ENTER);
	ck_assert_uint_eq(event.tick, 5000 + 2 * pause);
	ck_assert_uint_eq(head->end, event.tick);
	/* 16 bytes of head, 4 of fields, 4 of padding that is no content */
	ck_assert_uint_eq(head->content_bits, (LORG_PACKET_HEAD + 20) * 8);
	ck_assert_uint_eq(head->packet_bits, (LORG_PACKET_HEAD + 24) * 8);
}
END_TEST

START_TEST(lengths_that_cannot_be_end_the_packet)
{
	const struct lorg_event_MARK mark = {.text_length = 1000};
	begin(5000);
	add_word(LORG_EVENT_ENTER, 5010, 1);
	add_extended(LORG_EVENT_MARK, 5020, &mark, sizeof mark, 24);
	add_word(LORG_EVENT_ENTER, 5030, 2);
	take();
	ck_assert_uint_eq(summary.events, 1);
	ck_assert_uint_eq(summary.cut, 32);
	ck_assert_uint_eq(summary.length, LORG_PACKET_HEAD + 8);
}
END_TEST

START_TEST(stamps_never_go_back_nor_into_the_future)
{
	const struct lorg_event_RELEASED fields = {.object = 1};
	const uint16_t length = sizeof(struct lorg_extended) + sizeof fields;
	begin(5000);
	add_extended(LORG_EVENT_RELEASED, 9000, &fields, sizeof fields, length);
	add_extended(LORG_EVENT_RELEASED, 8000, &fields, sizeof fields, length);
	add_extended(LORG_EVENT_RELEASED, UINT64_MAX, &fields, sizeof fields, length);
	const struct lorg_packet *head = take();
	ck_assert_uint_eq(summary.events, 3);
	ck_assert_uint_eq(summary.corrected, 2);
	ck_assert_uint_eq(head->end, 9000);
}
END_TEST

START_TEST(heads_are_not_believed)
{
	struct lorg_packet *head = begin(5000);
	head->position = 0;
	take();
	ck_assert_int_eq(summary.state, CHUNK_EMPTY);
	head->position = LORG_CHUNK_SIZE + 8;
	take();
	ck_assert_int_eq(summary.state, CHUNK_DAMAGED);
	head->position = LORG_PACKET_HEAD + 4;
	take();
	ck_assert_int_eq(summary.state, CHUNK_DAMAGED);
	head->position = LORG_PACKET_HEAD;
	head->events_discarded = UINT64_MAX;
	take();
	ck_assert_int_eq(summary.state, CHUNK_PACKET);
	ck_assert_uint_eq(summary.discarded, 0);
}
END_TEST

START_TEST(what_was_said_of_ends_is_noticed)
{
	const struct lorg_event_EXIT exit = {.program = 1};
	const struct lorg_event_REAPED reaped = {.pid = 77, .status = 9};
	begin(5000);
	add_extended(LORG_EVENT_REAPED, 5001, &reaped, sizeof reaped, sizeof(struct lorg_extended) + sizeof reaped);
	add_extended(LORG_EVENT_EXIT, 5002, &exit, sizeof exit, sizeof(struct lorg_extended) + sizeof exit);
	take();
	ck_assert_uint_eq(summary.has_exit, 1);
	ck_assert_uint_eq(summary.has_program_exit, 1);
	ck_assert_uint_eq(summary.ends_in_exec, 0);
	ck_assert_uint_eq(summary.reaped_count, 1);
	ck_assert_uint_eq(summary.reaped[0].pid, 77);
	ck_assert_int_eq(summary.reaped[0].status, 9);
}
END_TEST

/* ---- chunks that are taken while they are filled --------------------------------- */

static void withdraw(uint32_t at, uint16_t id)
{
	struct lorg_extended *event = (struct lorg_extended *)(chunk + at);
	event->id = id;
}

START_TEST(what_may_be_taken_back_waits)
{
	struct lorg_packet *head = begin(5000);
	const struct lorg_event_EXEC exec = {.hook = 1};
	const struct lorg_event_CLOSED closed = {.fd = 3, .reason = LORG_REASON_EXEC}, plain = {.fd = 4};
	const struct lorg_event_GAP gap = {.count = 1};
	ck_assert_uint_eq(collect_chunk_committed(chunk, LORG_PACKET_HEAD), LORG_PACKET_HEAD);
	add_word(LORG_EVENT_ENTER, 5000, 1);
	add_extended(LORG_EVENT_CLOSED, 5001, &plain, sizeof plain, sizeof(struct lorg_extended) + sizeof plain);
	uint32_t certain = head->position;
	ck_assert_uint_eq(collect_chunk_committed(chunk, LORG_PACKET_HEAD), certain);
	/* An exec: the gap that says what it will not be, the ports that it closes, itself. */
	uint32_t at_gap = head->position;
	add_extended(LORG_EVENT_GAP, 5002, &gap, sizeof gap, sizeof(struct lorg_extended) + sizeof gap);
	ck_assert_uint_eq(collect_chunk_committed(chunk, certain), certain);
	uint32_t at_closed = head->position;
	add_extended(LORG_EVENT_CLOSED, 5003, &closed, sizeof closed, sizeof(struct lorg_extended) + sizeof closed);
	uint32_t at_exec = head->position;
	add_extended(LORG_EVENT_EXEC, 5004, &exec, sizeof exec, sizeof(struct lorg_extended) + sizeof exec);
	add_word(LORG_EVENT_CALL_ENTRY, 5005, 1);
	ck_assert_uint_eq(collect_chunk_committed(chunk, certain), certain);
	/* It fails. */
	withdraw(at_exec, LORG_EVENT_EXEC_FAILED);
	ck_assert_uint_eq(collect_chunk_committed(chunk, certain), certain);
	withdraw(at_gap, LORG_EVENT_WITHDRAWN);
	withdraw(at_closed, LORG_EVENT_WITHDRAWN);
	ck_assert_uint_eq(collect_chunk_committed(chunk, certain), head->position);
	/* A gap of its own is certain once something else has come. */
	certain = head->position;
	add_extended(LORG_EVENT_GAP, 5006, &gap, sizeof gap, sizeof(struct lorg_extended) + sizeof gap);
	add_word(LORG_EVENT_ENTER, 5007, 1);
	ck_assert_uint_eq(collect_chunk_committed(chunk, certain), head->position);
}
END_TEST

START_TEST(what_is_not_committed_waits)
{
	struct lorg_packet *head = begin(5000);
	const struct lorg_event_FREE fields = {.pointer = 1};
	add_word(LORG_EVENT_ENTER, 5000, 1);
	uint32_t at = head->position;
	add_extended(LORG_EVENT_FILLER, 5001, &fields, sizeof fields, sizeof(struct lorg_extended) + sizeof fields);
	add_word(LORG_EVENT_ENTER, 5002, 2); /* a handler's */
	ck_assert_uint_eq(collect_chunk_committed(chunk, LORG_PACKET_HEAD), at);
	withdraw(at, LORG_EVENT_FREE);
	ck_assert_uint_eq(collect_chunk_committed(chunk, at), head->position);
	at = head->position;
	head->position += 8; /* reserved, nothing written yet */
	ck_assert_uint_eq(collect_chunk_committed(chunk, at), at);
	head->position = LORG_CHUNK_SIZE + 8;
	ck_assert_uint_eq(collect_chunk_committed(chunk, at), at);
}
END_TEST

/* Taken in parts at any moments: the same events with the same stamps as taken at once, and nothing twice. */
START_TEST(parts_make_the_whole)
{
	static _Alignas(8) uint8_t whole[LORG_CHUNK_SIZE];
	uint32_t seed = 1;
	for (int round = 0; round < 200; round++) {
		struct lorg_packet *head = begin(5000);
		struct chunk_part part = {LORG_PACKET_HEAD, LORG_CHUNK_SIZE, 0};
		uint64_t tick = 5000, events = 0, discarded = 0;
		uint32_t values[4000], count = 0, seen = 0;
		head->events_discarded = 3;
		while (count < 300) {
			seed = seed * 1103515245 + 12345;
			tick += seed >> 8 & LORG_TICK_MASK;
			if (seed >> 28 == 0) /* one that is withdrawn moves the time on all the same */
				add_extended(LORG_EVENT_WITHDRAWN, tick, NULL, 0, sizeof(struct lorg_extended));
			else
				add_word(LORG_EVENT_ENTER, tick, values[count] = count), count++;
			if ((seed >> 16 & 7) != 0)
				continue;
			part.to = collect_chunk_committed(chunk, part.from);
			collect_chunk_part(chunk, &part, bounds, out, &summary);
			ck_assert_int_eq(summary.state, CHUNK_PACKET);
			events += summary.events;
			discarded += summary.discarded;
			uint64_t previous = ((struct lorg_packet *)out)->begin;
			for (uint32_t at = LORG_PACKET_HEAD; at < summary.length;) {
				struct event_view view;
				ck_assert_int_eq(event_decode(out + at, summary.length - at, previous, &view), EVENT_OK);
				EVENT_FIELDS(&view, ENTER, enter);
				ck_assert_uint_eq(enter.function, values[seen]);
				seen++;
				previous = view.tick;
				at += view.length;
			}
			part.from = part.to;
			part.begin = summary.read_tick;
		}
		part.to = LORG_CHUNK_SIZE;
		collect_chunk_part(chunk, &part, bounds, out, &summary);
		events += summary.events;
		discarded += summary.discarded;
		uint64_t end = ((struct lorg_packet *)out)->end;
		collect_chunk_copy(chunk, bounds, whole, &summary);
		ck_assert_uint_eq(events, summary.events);
		ck_assert_uint_eq(discarded, 3);
		if (summary.events && part.from < head->position)
			ck_assert_uint_eq(end, ((struct lorg_packet *)whole)->end);
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		compact_events_pass_unchanged,
		holes_and_withdrawn_events_are_dropped,
		a_stamp_after_a_long_withdrawn_pause_is_written_out,
		lengths_that_cannot_be_end_the_packet,
		stamps_never_go_back_nor_into_the_future,
		heads_are_not_believed,
		what_was_said_of_ends_is_noticed,
		what_may_be_taken_back_waits,
		what_is_not_committed_waits,
		parts_make_the_whole,
	};
	return unit_suite_of("chunk", tests, sizeof tests / sizeof *tests, 10);
}
