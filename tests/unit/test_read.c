/* SPDX-License-Identifier: MIT */
/* test_read.c: opening traces whole and damaged, the order of the merge, what is known of images, profiles. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/read/cause.h"
#include "collector/read/profile.h"
#include "collector/read/trace.h"
#include "synthetic.h"
#include "unit.h"

static const struct synthetic_process first = {1, 100, 100, 10}, second = {1, 100, 101, 20}, child = {2, 200, 200, 500};

static const struct trace_image *image_of(const struct trace *trace, uint32_t pid)
{
	for (unsigned i = 0; i < trace->image_count; i++)
		if (trace->images[i]->pid == pid)
			return trace->images[i];
	return NULL;
}

/* ---- merge ------------------------------------------------------------- */

START_TEST(events_of_all_streams_come_in_order_of_time)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	for (unsigned packet = 0; packet < 20; packet++) {
		synthetic_packet(&streams[1], first, 1000 + packet * 1000);
		synthetic_packet(&streams[2], second, 1500 + packet * 1000);
		for (uint32_t i = 0; i < 100; i++) {
			synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1000 + packet * 1000 + i * 9, i, 0);
			synthetic_compact(&streams[2], LORG_EVENT_ENTER, 1500 + packet * 1000 + i * 9, i, 0);
		}
	}
	struct trace *trace = synthetic_open(streams, 3);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	uint64_t time = 0, hlc = 0, count = 0;
	while (merge_next(merge, &event) == 1) {
		ck_assert_uint_ge(event.view.effective, time);
		ck_assert_uint_gt(event.hlc, hlc);
		ck_assert_uint_eq(event.number, ++count);
		time = event.view.effective;
		hlc = event.hlc;
	}
	ck_assert_uint_eq(count, 4001);
	ck_assert_uint_eq(trace->event_count, 4001);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

START_TEST(an_entry_told_late_is_in_its_place)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	/* A call that took from 1010 to 5000, and others in its own thread meanwhile (a handler's) and in another. */
	synthetic_packet(&streams[1], first, 1000);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1005, 1, 0);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1500, 3, 0);
	synthetic_packet(&streams[1], first, 4000);
	SYNTHETIC_EVENT(&streams[1], SIGNAL_SENT, 5000, .entry = 1010, .signal = 15);
	synthetic_packet(&streams[2], second, 900);
	synthetic_compact(&streams[2], LORG_EVENT_ENTER, 1007, 2, 0);
	synthetic_compact(&streams[2], LORG_EVENT_ENTER, 1011, 4, 0);
	struct trace *trace = synthetic_open(streams, 3);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	static const uint64_t order[] = {0, 1005, 1007, 1010, 1011, 1500};
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_int_eq(merge_next(merge, &event), 1);
		ck_assert_uint_eq(event.view.effective, order[i]);
		ck_assert_uint_eq(event.time, order[i]);
	}
	ck_assert_int_eq(merge_next(merge, &event), 0);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

static void tell_message(struct synthetic *stream, uint16_t id, uint64_t tick, uint32_t before, uint32_t flags)
{
	const struct lorg_event_SENT fields = {.before = before, .port = 4, .channel = 9, .bytes = 2, .hook_flags = 1 | flags << 16};
	const struct packet_bytes text = packet_text("hi");
	synthetic_event(stream, id, tick, &fields, &text, 1);
}

START_TEST(short_forms_are_shown_as_the_long_ones)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 1000);
	SYNTHETIC_EVENT(&streams[1], LOCK_TAKEN, 1001, .hook = 3, .object = 0x7fff12345678);
	SYNTHETIC_EVENT(&streams[1], LOCK_GIVEN_BACK, 1002, .hook = 4, .object = 0x7fff12345678);
	SYNTHETIC_EVENT(&streams[1], BLOCK_TAKEN, 1003, .size = 77, .result = 0x7fff00000010, .caller_hook = 0x0005555500001234);
	SYNTHETIC_EVENT(&streams[1], BLOCK_GIVEN_BACK, 1004, .hook = 6, .pointer = 0x7fff00000010);
	static const uint32_t ids[] = {LORG_EVENT_ACQUIRED, LORG_EVENT_RELEASED, LORG_EVENT_ALLOCATE, LORG_EVENT_FREE};
	struct trace *trace = synthetic_open(streams, 2);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	ck_assert_int_eq(merge_next(merge, &event), 1); /* the clock */
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(merge_next(merge, &event), 1);
		ck_assert_uint_eq(event.view.id, ids[i]);
		ck_assert_uint_eq(event.time, 1001 + i);
		ck_assert_uint_eq(event_number_named(&event.view, "hook", 0), 3 + i);
		if (ids[i] == LORG_EVENT_ALLOCATE) {
			ck_assert_uint_eq(event_number_named(&event.view, "caller", 0), 0x555500001234);
			ck_assert_uint_eq(event_number_named(&event.view, "size", 0), 77);
			ck_assert_uint_eq(event_number_named(&event.view, "result", 0), 0x7fff00000010);
		} else {
			const char *name = ids[i] == LORG_EVENT_FREE ? "pointer" : "object";
			ck_assert_uint_eq(event_number_named(&event.view, name, 0), i < 2 ? 0x7fff12345678 : 0x7fff00000010);
		}
		ck_assert_uint_eq(trace->event_counts[ids[i]], 1);
	}
	ck_assert_int_eq(merge_next(merge, &event), 0);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

/* A send is there before the receive of it, each part of a call in its place between what others did meanwhile. */
START_TEST(parts_of_calls_are_merged_with_the_events_of_others)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 1000);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1001, 1, 0);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1025, 2, 0); /* a handler's, within the call */
	tell_message(&streams[1], LORG_EVENT_SENT, 1040, 30, LORG_MESSAGE_RUNNING);
	tell_message(&streams[1], LORG_EVENT_SENT, 1041, 2000, 0); /* cannot be: counts as of its stamp */
	synthetic_packet(&streams[2], second, 1000);
	tell_message(&streams[2], LORG_EVENT_RECEIVED, 1030, 25, LORG_MESSAGE_RUNNING);
	tell_message(&streams[2], LORG_EVENT_RECEIVED, 1035, 3, 0);
	SYNTHETIC_EVENT(&streams[2], WAITED, 1042, .entry = 1036, .hook = 1);
	SYNTHETIC_EVENT(&streams[2], WAIT_OPEN, 1050, .entry = 1015, .hook = 1);
	struct trace *trace = synthetic_open(streams, 3);
	static const struct {
		uint64_t time;
		uint32_t tid, id;
	} order[] = {{1001, 100, LORG_EVENT_ENTER},   {1005, 101, LORG_EVENT_OUT}, {1010, 100, LORG_EVENT_SEND},
		     {1010, 100, LORG_EVENT_OUT},     {1015, 101, LORG_EVENT_OUT}, {1025, 100, LORG_EVENT_ENTER},
		     {1030, 101, LORG_EVENT_IN},      {1030, 101, LORG_EVENT_RECEIVE}, {1035, 101, LORG_EVENT_RECEIVE},
		     {1036, 101, LORG_EVENT_OUT},     {1040, 100, LORG_EVENT_IN},  {1041, 100, LORG_EVENT_SEND},
		     {1042, 101, LORG_EVENT_IN}};
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	ck_assert_int_eq(merge_next(merge, &event), 1); /* the clock */
	for (unsigned i = 0; i < sizeof order / sizeof *order; i++) {
		ck_assert_int_eq(merge_next(merge, &event), 1);
		ck_assert_msg(event.time == order[i].time && event.process->tid == order[i].tid && event.view.id == order[i].id,
			      "%u: %u at %u by %u", i, event.view.id, (unsigned)event.time, event.process->tid);
	}
	ck_assert_int_eq(merge_next(merge, &event), 0);
	merge_end(merge);
	ck_assert_uint_eq(trace->event_count, 9);
	ck_assert_uint_eq(trace->shown_count, sizeof order / sizeof *order + 1);
	ck_assert_uint_eq(trace->event_counts[LORG_EVENT_OUT], 4);
	ck_assert_uint_eq(trace->event_counts[LORG_EVENT_SENT], 0);
	struct profile *profile = profile_make(trace);
	ck_assert_uint_eq(profile->waits[1].count, 3);
	ck_assert_uint_eq(profile->waits[1].ticks, 30 + 25 + 6);
	ck_assert_uint_eq(profile->port_count, 1);
	ck_assert_uint_eq(profile->ports[0].sent, 2);
	ck_assert_uint_eq(profile->ports[0].received_bytes, 4);
	profile_free(profile);
	trace_close(trace);
}
END_TEST

START_TEST(equal_times_keep_the_order_of_streams)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	for (unsigned s = 1; s < 3; s++) {
		synthetic_packet(&streams[s], s == 1 ? first : second, 100);
		for (uint32_t i = 0; i < 5; i++)
			synthetic_compact(&streams[s], LORG_EVENT_ENTER, 100, i, 0);
	}
	struct trace *trace = synthetic_open(streams, 3);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	merge_next(merge, &event);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_int_eq(merge_next(merge, &event), 1);
		ck_assert_uint_eq(event.process->tid, i < 5 ? 100 : 101);
		ck_assert_uint_eq(event_number(&event.view, 0), i % 5);
	}
	merge_end(merge);
	trace_close(trace);
}
END_TEST

START_TEST(hlc_counts_within_a_microsecond)
{
	uint64_t hlc = hlc_next(0, 5000);
	ck_assert_uint_eq(hlc, (uint64_t)5 << 16);
	hlc = hlc_next(hlc, 5999);
	ck_assert_uint_eq(hlc, ((uint64_t)5 << 16) + 1);
	hlc = hlc_next(hlc, 6000);
	ck_assert_uint_eq(hlc, (uint64_t)6 << 16);
	ck_assert_uint_eq(hlc_next(hlc, 1000), hlc + 1); /* time that goes back */
}
END_TEST

START_TEST(the_last_exit_of_a_process_counts)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	SYNTHETIC_EVENT(&streams[1], EXIT, 110, .program = 1, .reason = LORG_REASON_NORMAL);
	SYNTHETIC_EVENT(&streams[1], EXIT, 120, .program = 1, .reason = LORG_REASON_STATUS, .status = 7);
	struct trace *trace = synthetic_open(streams, 2);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	merge_next(merge, &event);
	ck_assert_int_eq(merge_next(merge, &event), 1);
	ck_assert_int_eq(event.superseded, 1);
	ck_assert_int_eq(merge_next(merge, &event), 1);
	ck_assert_int_eq(event.superseded, 0);
	ck_assert_int_eq(event.process->exit.status, 7);
	ck_assert_int_eq(event.process->image->exit.status, 7);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

START_TEST(an_exit_seen_late_is_before_the_wait_that_told_it)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	SYNTHETIC_EVENT(&streams[1], REAPED, 700, .since = 300, .pid = 200, .status = 11);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 800, 1, 0);
	synthetic_packet(&streams[2], child, 500);
	synthetic_compact(&streams[2], LORG_EVENT_ENTER, 510, 1, 0);
	synthetic_packet(&streams[2], child, 900);
	SYNTHETIC_EVENT(&streams[2], EXIT, 900, .program = 1, .reason = LORG_REASON_UNKNOWN, .outside = 1);
	struct trace *trace = synthetic_open(streams, 3);
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	static const uint32_t order[] = {LORG_EVENT_CLOCK, LORG_EVENT_ENTER, LORG_EVENT_EXIT, LORG_EVENT_REAPED,
					 LORG_EVENT_ENTER};
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_int_eq(merge_next(merge, &event), 1);
		ck_assert_uint_eq(event.view.id, order[i]);
		if (event.view.id == LORG_EVENT_EXIT)
			ck_assert_uint_eq(event.time, 699);
	}
	ck_assert_int_eq(merge_next(merge, &event), 0);
	const struct trace_image *image = image_of(trace, 200);
	ck_assert_uint_eq(image->exit.reason, LORG_REASON_SIGNAL);
	ck_assert_int_eq(image->exit.status, 11);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

/* ---- images, functions, modules ---------------------------------------- */

static void tell_image(struct synthetic *stream, uint64_t tick, uint8_t parent, uint32_t birth, const char *file)
{
	struct lorg_event_IMAGE image = {.birth = birth};
	const struct packet_bytes texts[] = {packet_text(file), {NULL, 0}};
	memset(&image.parent_image_low, parent, 8);
	memset(&image.parent_image_high, parent, 8);
	synthetic_event(stream, LORG_EVENT_IMAGE, tick, &image, texts, 2);
}

static void tell_function(struct synthetic *stream, uint64_t tick, uint32_t slot, const char *name)
{
	struct lorg_event_FUNCTION function = {.function = slot, .address = 0x1000 + slot};
	const struct packet_bytes texts[] = {packet_text(name), packet_text("file.c")};
	synthetic_event(stream, LORG_EVENT_FUNCTION, tick, &function, texts, 2);
}

static void tell_module(struct synthetic *stream, uint64_t tick, uint64_t start, const char *path)
{
	struct lorg_event_MODULE module = {.base = start, .start = start, .size = 0x1000};
	const struct packet_bytes texts[] = {{NULL, 0}, packet_text(path)};
	synthetic_event(stream, LORG_EVENT_MODULE, tick, &module, texts, 2);
}

static int is_text(struct trace_text text, const char *wanted)
{
	return text.length == strlen(wanted) && memcmp(text.bytes, wanted, text.length) == 0;
}

START_TEST(a_child_uses_the_functions_and_modules_of_its_parent)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	tell_image(&streams[1], 100, 0, LORG_BIRTH_COMMAND, "/bin/parent");
	tell_module(&streams[1], 110, 0x1000, "/lib/early.so");
	tell_function(&streams[1], 120, 5, "before");
	tell_function(&streams[1], 900, 5, "after");
	tell_module(&streams[1], 910, 0x9000, "/lib/late.so");
	synthetic_packet(&streams[2], child, 500);
	tell_image(&streams[2], 500, 1, LORG_BIRTH_FORK, "/bin/parent");
	tell_function(&streams[2], 510, 6, "the child's");
	struct trace *trace = synthetic_open(streams, 3);
	const struct trace_image *parent = image_of(trace, 100), *forked = image_of(trace, 200);
	ck_assert_ptr_eq(forked->parent, parent);
	ck_assert_ptr_eq(forked->family, parent);
	ck_assert(is_text(trace_function(trace, forked, 5, 600)->name, "before"));
	ck_assert(is_text(trace_function(trace, forked, 5, 900)->name, "after"));
	ck_assert(is_text(trace_function(trace, forked, 5, 1)->name, "before")); /* told late */
	ck_assert(is_text(trace_function(trace, parent, 6, 600)->name, "the child's"));
	ck_assert_ptr_null(trace_function(trace, parent, 7, 600));
	ck_assert(is_text(trace_module(trace, forked, 0x1800, 600)->path, "/lib/early.so"));
	ck_assert_ptr_null(trace_module(trace, forked, 0x2000, 600));
	trace_close(trace);
}
END_TEST

START_TEST(an_image_that_another_follows_by_exec_ended_with_that)
{
	static struct synthetic streams[3];
	static const struct synthetic_process next = {2, 100, 100, 500};
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	tell_image(&streams[1], 100, 7, LORG_BIRTH_FORK, "/bin/sh");
	synthetic_packet(&streams[2], next, 500);
	tell_image(&streams[2], 500, 1, LORG_BIRTH_EXEC, "/bin/true");
	/* What tells readers only that they may forget it. */
	synthetic_packet(&streams[1], first, 9000);
	SYNTHETIC_EVENT(&streams[1], EXIT, 9000, .program = 1, .reason = LORG_REASON_UNKNOWN, .outside = 1);
	struct trace *trace = synthetic_open(streams, 3);
	for (unsigned i = 0; i < trace->process_count; i++) {
		const struct trace_process *process = &trace->processes[i];
		if (process->pid != 100 || process->image->birth != LORG_BIRTH_FORK)
			continue;
		ck_assert_uint_eq(process->exit.reason, LORG_REASON_EXEC);
		ck_assert_uint_eq(process->image->exit.reason, LORG_REASON_EXEC);
		ck_assert_uint_eq(process->image->exit.tick, 500);
		ck_assert_uint_eq(process->last_tick, 500);
	}
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	while (merge_next(merge, &event) == 1)
		ck_assert(event.view.id != LORG_EVENT_EXIT || event.superseded);
	merge_end(merge);
	trace_close(trace);
}
END_TEST

START_TEST(an_unloaded_module_makes_room_for_another)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	tell_module(&streams[1], 110, 0x1000, "/lib/one.so");
	SYNTHETIC_EVENT(&streams[1], MODULE_UNLOADED, 200, .base = 0x1000, .start = 0x1000);
	tell_module(&streams[1], 300, 0x1000, "/lib/two.so");
	struct trace *trace = synthetic_open(streams, 2);
	const struct trace_image *image = image_of(trace, 100);
	ck_assert(is_text(trace_module(trace, image, 0x1010, 150)->path, "/lib/one.so"));
	ck_assert(is_text(trace_module(trace, image, 0x1010, 350)->path, "/lib/two.so"));
	trace_close(trace);
}
END_TEST

START_TEST(parents_in_a_ring_do_no_harm)
{
	static struct synthetic streams[3];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 100);
	tell_image(&streams[1], 100, 2, LORG_BIRTH_FORK, "a");
	synthetic_packet(&streams[2], child, 500);
	tell_image(&streams[2], 500, 1, LORG_BIRTH_FORK, "b");
	struct trace *trace = synthetic_open(streams, 3);
	ck_assert_ptr_nonnull(image_of(trace, 100)->family);
	ck_assert_ptr_nonnull(image_of(trace, 200)->family);
	ck_assert_ptr_null(trace_module(trace, image_of(trace, 100), 1, 1));
	trace_close(trace);
}
END_TEST

START_TEST(times_are_those_of_the_clock)
{
	static struct synthetic streams[1];
	synthetic_packet(&streams[0], (struct synthetic_process){0}, 0);
	SYNTHETIC_EVENT(&streams[0], CLOCK, 0, .base_tick = 1000, .base_ns = 50,
			.multiplier = (uint64_t)1 << 31); /* half a ns */
	SYNTHETIC_EVENT(&streams[0], CLOCK, 1, .base_tick = 1000, .base_ns = 60, .multiplier = (uint64_t)1 << 31);
	struct trace *trace = synthetic_open(streams, 1);
	ck_assert_uint_eq(trace_time(trace, 1000), 60); /* what was told last of one base counts */
	ck_assert_uint_eq(trace_time(trace, 1100), 110);
	ck_assert_uint_eq(trace_time(trace, 900), 10);
	ck_assert_uint_eq(trace_time(trace, 0), 0); /* never below zero */
	ck_assert_uint_eq(trace_duration(trace, 1000, 1200), 100);
	ck_assert_uint_eq(trace_ticks_ns(trace, 200), 100);
	trace_close(trace);
}
END_TEST

/* ---- damage ------------------------------------------------------------ */

/* Three packets of ten events each. */
static void three_packets(struct synthetic *stream, int checksum)
{
	for (unsigned packet = 0; packet < 3; packet++) {
		synthetic_packet(stream, first, 100 + packet * 100);
		for (uint32_t i = 0; i < 10; i++)
			synthetic_compact(stream, LORG_EVENT_ENTER, 100 + packet * 100 + i, i, 0);
		synthetic_end(stream, checksum);
	}
}

static struct trace *open_bytes(const void *bytes, size_t length)
{
	struct trace_memory memory = {bytes, length};
	char why[256];
	return trace_open_memory(NULL, 0, &memory, 1, why, sizeof why);
}

static unsigned damages(const struct trace *trace)
{
	unsigned count = 0;
	for (unsigned i = 0; i < trace->gap_count; i++)
		count += trace->gaps[i].damage != 0;
	return count;
}

START_TEST(a_flipped_bit_costs_its_packet_and_is_told)
{
	static struct synthetic stream;
	three_packets(&stream, 1);
	for (size_t bit = 0; bit < stream.length * 8; bit += 3) {
		stream.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		struct trace *trace = open_bytes(stream.bytes, stream.length);
		ck_assert_ptr_nonnull(trace);
		size_t in_packet = bit / 8 % (LORG_PACKET_HEAD + 80);
		int is_checksum_gone = in_packet / 8 == offsetof(struct lorg_packet, last) / 8;
		if (!is_checksum_gone || damages(trace)) {
			ck_assert_uint_eq(trace->event_count, 20);
			ck_assert_uint_eq(damages(trace), 1);
		}
		trace_close(trace);
		stream.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	synthetic_free(&stream);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_read_up_to_there)
{
	static struct synthetic stream;
	three_packets(&stream, 1);
	size_t packet = LORG_PACKET_HEAD + 80;
	for (size_t length = 0; length <= stream.length; length++) {
		uint8_t *copy = malloc(length + 1); /* the sanitizer watches its end */
		memcpy(copy, stream.bytes, length);
		struct trace *trace = open_bytes(copy, length);
		if (length < packet && length > 0) {
			ck_assert_ptr_null(trace);
		} else {
			ck_assert_ptr_nonnull(trace);
			ck_assert_uint_eq(trace->event_count, length / packet * 10);
			ck_assert_uint_eq(damages(trace), length % packet != 0);
		}
		trace_close(trace);
		free(copy);
	}
	synthetic_free(&stream);
}
END_TEST

START_TEST(packets_twice_or_taken_out_are_told)
{
	static struct synthetic stream;
	uint8_t copy[4096];
	three_packets(&stream, 1);
	size_t packet = LORG_PACKET_HEAD + 80;
	ck_assert_uint_le(2 * stream.length, sizeof copy);
	memcpy(copy, stream.bytes, stream.length);
	memcpy(copy + stream.length, stream.bytes, stream.length);
	struct trace *trace = open_bytes(copy, 2 * stream.length);
	ck_assert_uint_eq(trace->event_count, 30);
	ck_assert_uint_eq(damages(trace), 3);
	trace_close(trace);
	memcpy(copy + packet, stream.bytes + 2 * packet, packet);
	trace = open_bytes(copy, 2 * packet);
	ck_assert_uint_eq(trace->event_count, 20);
	ck_assert_uint_eq(damages(trace), 1);
	trace_close(trace);
	synthetic_free(&stream);
}
END_TEST

START_TEST(lengths_too_large_are_not_followed)
{
	static struct synthetic stream;
	three_packets(&stream, 0); /* nothing else tells that they are wrong */
	struct lorg_packet *head = (struct lorg_packet *)stream.bytes;
	static const uint64_t lengths[] = {0, 8, 64, 63, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 40, (uint64_t)1 << 63};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		uint64_t packet = head->packet_bits, content = head->content_bits;
		head->packet_bits = lengths[i];
		struct trace *trace = open_bytes(stream.bytes, stream.length);
		ck_assert_uint_eq(trace->event_count, 20);
		ck_assert_uint_eq(damages(trace), 1);
		trace_close(trace);
		head->packet_bits = packet;
		head->content_bits = lengths[i];
		trace = open_bytes(stream.bytes, stream.length);
		ck_assert_uint_eq(trace->event_count, 20);
		trace_close(trace);
		head->content_bits = content;
	}
	synthetic_free(&stream);
}
END_TEST

START_TEST(an_event_that_cannot_be_ends_its_packet)
{
	static struct synthetic stream;
	static const struct lorg_extended bad = {LORG_EVENT_EXTENDED, LORG_EVENT_SEND, 16, 5};
	synthetic_packet(&stream, first, 100);
	synthetic_compact(&stream, LORG_EVENT_ENTER, 101, 1, 0);
	synthetic_raw(&stream, &bad, sizeof bad);
	synthetic_compact(&stream, LORG_EVENT_ENTER, 103, 1, 0);
	synthetic_packet(&stream, first, 200);
	synthetic_compact(&stream, LORG_EVENT_ENTER, 201, 1, 0);
	synthetic_end(&stream, 1);
	struct trace *trace = open_bytes(stream.bytes, stream.length);
	ck_assert_uint_eq(trace->event_count, 2);
	ck_assert_uint_eq(damages(trace), 1);
	trace_close(trace);
	synthetic_free(&stream);
}
END_TEST

START_TEST(losses_are_what_the_totals_grow_by)
{
	static struct synthetic streams[1];
	static const uint64_t totals[] = {0, 5, 5, 12};
	for (unsigned i = 0; i < 4; i++) {
		synthetic_packet(&streams[0], i < 2 ? first : second, 100 + i * 10);
		synthetic_head(&streams[0])->events_discarded = totals[i];
		synthetic_compact(&streams[0], LORG_EVENT_ENTER, 100 + i * 10, 1, 0);
	}
	struct trace *trace = synthetic_open(streams, 1);
	ck_assert_uint_eq(trace->lost, 12);
	ck_assert_uint_eq(trace->processes[0].lost, 5);
	ck_assert_uint_eq(trace->processes[1].lost, 7);
	trace_close(trace);
}
END_TEST

/* ---- directories ------------------------------------------------------- */

static void write_file(const char *directory, const char *name, const void *bytes, size_t length)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	ck_assert_int_eq(fclose(file), 0);
}

static void refused(const char *directory, const char *because)
{
	char why[256] = "";
	struct trace *trace = trace_open(directory, why, sizeof why);
	ck_assert_ptr_null(trace);
	ck_assert_msg(strstr(why, because) != NULL, "%s: %s", directory, why);
	ck_assert_ptr_null(strchr(why, '\n'));
}

START_TEST(what_is_no_trace_directory_is_refused)
{
	const char *directory = unit_directory();
	static const char foreign[] = "/* CTF 1.8 */\ntrace { major = 1; };\n";
	static const char other[] =
		"/* CTF 1.8 */\ntrace { uuid = \"00000000-0000-0000-0000-000000000000\"; };\nenv { lorg_abi_major = 77; };\n";
	static const char own[] =
		"/* CTF 1.8 */\ntrace { uuid = \"00000000-0000-0000-0000-000000000000\"; };\nenv { lorg_abi_major = 3; };\n";
	refused("/nonexistent/trace", "No such file");
	refused("/dev/null", "Not a directory");
	refused(directory, "metadata is missing");
	write_file(directory, "metadata", foreign, sizeof foreign - 1);
	refused(directory, "not of lorg");
	write_file(directory, "metadata", "", 0);
	refused(directory, "not of lorg");
	write_file(directory, "metadata", other, sizeof other - 1);
	refused(directory, "version 77");
	write_file(directory, "metadata", own, sizeof own - 1);
	refused(directory, "no stream files");
	write_file(directory, "stream-0", "garbage that is no packet", 25);
	refused(directory, "no packet of it is whole");
}
END_TEST

START_TEST(packets_of_another_trace_are_not_mixed_in)
{
	const char *directory = unit_directory();
	static const char own[] =
		"trace { uuid = \"01010101-0101-0101-0101-010101010101\"; };\nenv { lorg_abi_major = 3; };\n";
	static struct synthetic stream;
	synthetic_packet(&stream, first, 100);
	memset(synthetic_head(&stream)->trace_uuid, 1, 16);
	synthetic_compact(&stream, LORG_EVENT_ENTER, 101, 1, 0);
	synthetic_packet(&stream, first, 200);
	memset(synthetic_head(&stream)->trace_uuid, 2, 16);
	synthetic_compact(&stream, LORG_EVENT_ENTER, 201, 1, 0);
	synthetic_end(&stream, 1);
	write_file(directory, "metadata", own, sizeof own - 1);
	write_file(directory, "stream-3", stream.bytes, stream.length);
	char why[256];
	struct trace *trace = trace_open(directory, why, sizeof why);
	ck_assert_msg(trace != NULL, "%s", why);
	ck_assert_uint_eq(trace->event_count, 1);
	ck_assert_uint_eq(damages(trace), 2); /* and there is no clock */
	ck_assert_ptr_nonnull(strstr(trace->gaps[0].what, "stream-3"));
	trace_close(trace);
	synthetic_free(&stream);
}
END_TEST

START_TEST(packets_that_were_promised_and_are_missing_are_told)
{
	static struct synthetic streams[1];
	const struct lorg_event_MARK mark = {0};
	const struct packet_bytes text = packet_text("recording ended packets=3");
	synthetic_packet(&streams[0], (struct synthetic_process){0}, 0);
	synthetic_event(&streams[0], LORG_EVENT_MARK, 5, &mark, &text, 1);
	struct trace *trace = synthetic_open(streams, 1);
	ck_assert_int_eq(trace->ended, 1);
	ck_assert_uint_eq(damages(trace), 1);
	ck_assert_ptr_nonnull(strstr(trace->gaps[0].why, "2 of 3 are missing"));
	trace_close(trace);
}
END_TEST

START_TEST(random_damage_never_harms)
{
	static struct synthetic streams[2];
	three_packets(&streams[0], 0);
	tell_image(&streams[1], (synthetic_packet(&streams[1], child, 500), 500), 1, LORG_BIRTH_FORK, "/bin/x");
	tell_function(&streams[1], 505, 3, "function");
	tell_module(&streams[1], 506, 0x1000, "/lib/x.so");
	SYNTHETIC_EVENT(&streams[1], SIGNAL_SENT, 520, .entry = 507, .signal = 9);
	tell_message(&streams[1], LORG_EVENT_SENT, 530, 5, LORG_MESSAGE_RUNNING);
	tell_message(&streams[1], LORG_EVENT_RECEIVED, 540, 5, LORG_MESSAGE_RUNNING);
	SYNTHETIC_EVENT(&streams[1], WAITED, 550, .entry = 545, .hook = 1);
	SYNTHETIC_EVENT(&streams[1], WAIT_OPEN, 560, .entry = 555, .hook = 1);
	synthetic_end(&streams[1], 0);
	srand(7);
	for (int round = 0; round < 3000; round++) {
		uint8_t *copies[2];
		struct trace_memory memory[2];
		char why[256];
		for (unsigned s = 0; s < 2; s++) {
			size_t length = rand() % 4 ? streams[s].length : (size_t)rand() % streams[s].length;
			copies[s] = malloc(length + 1);
			memcpy(copies[s], streams[s].bytes, length);
			for (int flips = rand() % 8; length && flips > 0; flips--)
				copies[s][(size_t)rand() % length] = (uint8_t)(rand() % 2 ? 255 : rand());
			memory[s] = (struct trace_memory){copies[s], length};
		}
		struct trace *trace = trace_open_memory(NULL, 0, memory, 2, why, sizeof why);
		if (trace) {
			struct merge *merge = merge_start(trace);
			struct trace_event event;
			uint64_t count = 0, hlc = 0;
			while (merge_next(merge, &event) == 1) {
				count++;
				ck_assert_uint_gt(event.hlc, hlc);
				hlc = event.hlc;
				trace_function(trace, event.process->image, 3, event.view.tick);
				trace_module(trace, event.process->image, 0x1001, event.view.tick);
			}
			ck_assert_uint_eq(count, trace->shown_count);
			merge_end(merge);
			struct profile *profile = profile_make(trace);
			ck_assert_ptr_nonnull(profile);
			profile_free(profile);
		}
		trace_close(trace);
		free(copies[0]);
		free(copies[1]);
	}
}
END_TEST

/* ---- profile ----------------------------------------------------------- */

static const struct profile_function *function_of(const struct profile *profile, uint32_t slot)
{
	for (unsigned i = 0; i < profile->function_count; i++)
		if (!profile->functions[i].by_address && profile->functions[i].slot == slot)
			return &profile->functions[i];
	ck_abort_msg("function %u is not in the profile", slot);
	return NULL;
}

static void enter(struct synthetic *stream, uint64_t tick, uint32_t slot)
{
	synthetic_compact(stream, LORG_EVENT_ENTER, tick, slot, 0);
}

static void leave(struct synthetic *stream, uint64_t tick, uint32_t slot)
{
	synthetic_compact(stream, LORG_EVENT_EXIT_FUNCTION, tick, slot, 0);
}

START_TEST(total_and_self_time)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 0);
	enter(&streams[1], 100, 1);
	enter(&streams[1], 200, 2);
	leave(&streams[1], 250, 2);
	synthetic_packet(&streams[1], first, 250); /* a call over two packets */
	leave(&streams[1], 400, 1);
	struct trace *trace = synthetic_open(streams, 2);
	struct profile *profile = profile_make(trace);
	ck_assert_uint_eq(function_of(profile, 1)->entries, 1);
	ck_assert_uint_eq(function_of(profile, 1)->total, 300);
	ck_assert_uint_eq(function_of(profile, 1)->self, 250);
	ck_assert_uint_eq(function_of(profile, 2)->total, 50);
	ck_assert_uint_eq(function_of(profile, 2)->self, 50);
	profile_free(profile);
	trace_close(trace);
}
END_TEST

START_TEST(a_recursion_counts_once)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 0);
	for (uint64_t i = 0; i < 10; i++)
		enter(&streams[1], i * 10, 1);
	for (uint64_t i = 10; i < 20; i++)
		leave(&streams[1], i * 10, 1);
	struct trace *trace = synthetic_open(streams, 2);
	struct profile *profile = profile_make(trace);
	ck_assert_uint_eq(function_of(profile, 1)->entries, 10);
	ck_assert_uint_eq(function_of(profile, 1)->total, 190);
	ck_assert_uint_eq(function_of(profile, 1)->self, 190);
	profile_free(profile);
	trace_close(trace);
}
END_TEST

START_TEST(frames_left_by_a_jump_and_frames_open_at_death)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 0);
	enter(&streams[1], 0, 1);
	enter(&streams[1], 10, 2);
	enter(&streams[1], 20, 3); /* jumps out to 1 */
	leave(&streams[1], 50, 1); /* all have ended */
	leave(&streams[1], 55, 9); /* entered before the recording */
	enter(&streams[1], 60, 4);
	enter(&streams[1], 70, 5);
	synthetic_compact(&streams[1], LORG_EVENT_CATCH_LINE, 80, 4, 12); /* 5 was left by an exception */
	enter(&streams[1], 90, 6);
	SYNTHETIC_EVENT(&streams[1], EXIT, 100, .program = 1);
	struct trace *trace = synthetic_open(streams, 2);
	struct profile *profile = profile_make(trace);
	ck_assert_uint_eq(function_of(profile, 1)->total, 50);
	ck_assert_uint_eq(function_of(profile, 2)->total, 40);
	ck_assert_uint_eq(function_of(profile, 3)->self, 30);
	ck_assert_uint_eq(function_of(profile, 4)->total, 40);
	ck_assert_uint_eq(function_of(profile, 5)->total, 10);
	ck_assert_uint_eq(function_of(profile, 6)->total, 10);
	ck_assert_uint_eq(function_of(profile, 9)->entries, 0);
	profile_free(profile);
	trace_close(trace);
}
END_TEST

START_TEST(messages_and_waits_are_added_up)
{
	static struct synthetic streams[2];
	synthetic_clock(&streams[0]);
	synthetic_packet(&streams[1], first, 0);
	SYNTHETIC_EVENT(&streams[1], OPEN, 5, .fd = 3, .generation = 1, .driver = LORG_DRIVER_PIPE, .from = -1);
	SYNTHETIC_EVENT(&streams[1], SEND, 10, .entry = 8, .object = 3, .generation = 1, .bytes = 100);
	SYNTHETIC_EVENT(&streams[1], SEND, 20, .entry = 18, .object = 3, .generation = 1, .bytes = 50);
	SYNTHETIC_EVENT(&streams[1], RECEIVE, 30, .since = 25, .object = 3, .generation = 1, .bytes = 7);
	SYNTHETIC_EVENT(&streams[1], RECEIVE, 31, .since = 30, .object = 3, .generation = 1, .flags = LORG_MESSAGE_EOF);
	SYNTHETIC_EVENT(&streams[1], RECEIVE, 32, .since = 30, .object = 3, .generation = 1, .bytes = 9,
			.flags = LORG_MESSAGE_PEEK);
	SYNTHETIC_EVENT(&streams[1], IN, 90, .since = 40, .hook = 12);
	SYNTHETIC_EVENT(&streams[1], IN, 100, .since = 95, .hook = 12);
	struct trace *trace = synthetic_open(streams, 2);
	struct profile *profile = profile_make(trace);
	ck_assert_uint_eq(profile->port_count, 1);
	ck_assert_uint_eq(profile->ports[0].sent, 2);
	ck_assert_uint_eq(profile->ports[0].sent_bytes, 150);
	ck_assert_uint_eq(profile->ports[0].received, 1);
	ck_assert_uint_eq(profile->ports[0].received_bytes, 7);
	ck_assert_uint_eq(profile->ports[0].ends, 1);
	ck_assert_uint_eq(profile->waits[12].count, 2);
	ck_assert_uint_eq(profile->waits[12].ticks, 55);
	ck_assert_uint_eq(profile->waits[12].longest, 50);
	profile_free(profile);
	trace_close(trace);
}
END_TEST

/* ---- causes ------------------------------------------------------------ */

START_TEST(a_receive_is_caused_by_the_sends_of_its_bytes)
{
	struct causes *causes = causes_new();
	uint64_t hlc[CAUSE_LISTED];
	causes_send(causes, &(struct lorg_event_SEND){.channel = 5, .offset = 0, .bytes = 10}, 101);
	causes_send(causes, &(struct lorg_event_SEND){.channel = 5, .offset = 10, .bytes = 10}, 102);
	causes_send(causes, &(struct lorg_event_SEND){.channel = 6, .offset = 0, .bytes = 10}, 103);
	causes_send(causes, &(struct lorg_event_SEND){.channel = 5, .offset = 20, .bytes = 10}, 104);
	ck_assert_uint_eq(causes_receive(causes, &(struct lorg_event_RECEIVE){.channel = 5, .offset = 0, .bytes = 15}, hlc),
			  2);
	ck_assert_uint_eq(hlc[0], 101);
	ck_assert_uint_eq(hlc[1], 102);
	ck_assert_uint_eq(causes_receive(causes, &(struct lorg_event_RECEIVE){.channel = 5, .offset = 15, .bytes = 15}, hlc),
			  2);
	ck_assert_uint_eq(hlc[0], 102);
	ck_assert_uint_eq(hlc[1], 104);
	ck_assert_uint_eq(causes_receive(causes, &(struct lorg_event_RECEIVE){.channel = 7, .offset = 0, .bytes = 15}, hlc),
			  0);
	ck_assert_uint_eq(
		causes_receive(causes, &(struct lorg_event_RECEIVE){.channel = 6, .offset = 5, .bytes = UINT64_MAX}, hlc),
		0);
	causes_free(causes);
}
END_TEST

START_TEST(sends_that_nobody_receives_do_not_pile_up)
{
	struct causes *causes = causes_new();
	uint64_t hlc[CAUSE_LISTED];
	for (uint64_t i = 0; i < 100000; i++)
		causes_send(causes, &(struct lorg_event_SEND){.channel = 5, .offset = i, .bytes = 1}, i + 1);
	ck_assert_uint_eq(
		causes_receive(causes, &(struct lorg_event_RECEIVE){.channel = 5, .offset = 99999, .bytes = 1}, hlc), 1);
	ck_assert_uint_eq(hlc[0], 100000);
	causes_free(causes);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *tests[] = {
		events_of_all_streams_come_in_order_of_time,
		an_entry_told_late_is_in_its_place,
		short_forms_are_shown_as_the_long_ones,
		parts_of_calls_are_merged_with_the_events_of_others,
		equal_times_keep_the_order_of_streams,
		hlc_counts_within_a_microsecond,
		the_last_exit_of_a_process_counts,
		an_exit_seen_late_is_before_the_wait_that_told_it,
		a_child_uses_the_functions_and_modules_of_its_parent,
		an_image_that_another_follows_by_exec_ended_with_that,
		an_unloaded_module_makes_room_for_another,
		parents_in_a_ring_do_no_harm,
		times_are_those_of_the_clock,
		a_flipped_bit_costs_its_packet_and_is_told,
		a_file_cut_anywhere_is_read_up_to_there,
		packets_twice_or_taken_out_are_told,
		lengths_too_large_are_not_followed,
		an_event_that_cannot_be_ends_its_packet,
		losses_are_what_the_totals_grow_by,
		what_is_no_trace_directory_is_refused,
		packets_of_another_trace_are_not_mixed_in,
		packets_that_were_promised_and_are_missing_are_told,
		random_damage_never_harms,
		total_and_self_time,
		a_recursion_counts_once,
		frames_left_by_a_jump_and_frames_open_at_death,
		messages_and_waits_are_added_up,
		a_receive_is_caused_by_the_sends_of_its_bytes,
		sends_that_nobody_receives_do_not_pile_up,
	};
	return unit_suite_of("read", tests, sizeof tests / sizeof *tests, 60);
}
