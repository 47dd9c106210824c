/* SPDX-License-Identifier: MIT */
/* test_channel.c: numbers of bytes in the node's table: both ends, aliases, places that are given away. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sys/mman.h>

#include "preload/core/channel.h"
#include "preload/core/event.h"
#include "preload/core/thread.h"

/* What channel.c needs of the rest of the preload. */
struct arena the_arena;
__thread struct thread this_thread;
static uint64_t ticks;

uint64_t clock_slow(void)
{
	return ticks;
}

enum { HEAD = 4096 };

static const uint64_t second = 1ull << 31; /* of a clock of about 2 GHz */

static void make_node(void)
{
	size_t size = HEAD + (size_t)LORG_CHANNELS * sizeof(struct lorg_channel);
	the_arena.node = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(the_arena.node, MAP_FAILED);
	the_arena.channels_offset = HEAD;
	ticks = 1000 * second;
}

static uint32_t channel_of(uint64_t object, uint32_t direction)
{
	return channel_find(lorg_channel_key(1, object, direction), LORG_DRIVER_PIPE);
}

START_TEST(without_a_node)
{
	ck_assert_uint_eq(channel_of(7, 0), 0);
	ck_assert_uint_eq(channel_advance(0, 10, ticks), 0);
	ck_assert_uint_eq(channel_advance_received(0, 10, ticks), 0);
}
END_TEST

START_TEST(one_object_one_channel)
{
	make_node();
	uint32_t first = channel_of(7, 0), second_one = channel_of(8, 0), back = channel_of(7, 1);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_ne(first, second_one);
	ck_assert_uint_ne(first, back);
	ck_assert_uint_eq(channel_of(7, 0), first);
}
END_TEST

START_TEST(both_ends_count_alike)
{
	make_node();
	uint32_t channel = channel_of(7, 0);
	ck_assert_uint_eq(channel_advance(channel, 10, ticks), 0);
	ck_assert_uint_eq(channel_advance(channel, 5, ticks), 10);
	ck_assert_uint_eq(channel_advance_received(channel, 3, ticks), 0);
	ck_assert_uint_eq(channel_advance_received(channel, 12, ticks), 3);
	ck_assert_uint_eq(channel_newest(channel, 5), 10);
	ck_assert_uint_eq(channel_newest(channel, 100), 0);
}
END_TEST

START_TEST(aliases)
{
	make_node();
	uint32_t channel = channel_of(7, 0);
	channel_alias(lorg_channel_key(1, 8, 1), channel, LORG_DRIVER_UNIX);
	ck_assert_uint_eq(channel_of(8, 1), channel);
	ck_assert_uint_ne(channel_of(8, 0), channel);
	channel_alias(lorg_channel_key(1, 7, 0), channel, LORG_DRIVER_UNIX); /* of itself: nothing */
	ck_assert_uint_eq(channel_of(7, 0), channel);
}
END_TEST

/* Fills the table until nothing fits where `object` belongs. */
static uint64_t fill(uint64_t object)
{
	while (channel_of(object, 0) && object < 10 * LORG_CHANNELS)
		object++;
	ck_assert_uint_eq(channel_of(object, 0), 0);
	return object;
}

START_TEST(a_full_table_numbers_nothing)
{
	make_node();
	uint64_t left_over = fill(1);
	ck_assert_uint_gt(left_over, LORG_CHANNELS / 2);
	ck_assert_uint_ne(channel_of(1, 0), 0);
}
END_TEST

START_TEST(an_old_place_is_given_away)
{
	make_node();
	uint32_t kept = channel_of(1, 0);
	uint64_t left_over = fill(2);
	ticks += 60 * second;
	ck_assert_uint_eq(channel_advance(kept, 1, ticks), 0);
	for (uint64_t object = left_over; object < left_over + 2 * LORG_CHANNELS; object++)
		channel_of(object, 0);
	/* What was used meanwhile is still there, what was not is stale. */
	ck_assert_uint_eq(channel_advance(kept, 1, ticks), 1);
	ck_assert_uint_eq(channel_of(1, 0), kept);
}
END_TEST

START_TEST(a_stale_channel_says_so)
{
	make_node();
	uint32_t channel = channel_of(1, 0);
	channel_advance(channel, 100, ticks);
	fill(2);
	ticks += 60 * second;
	for (uint64_t object = 1 << 20; object < (1 << 20) + 4 * LORG_CHANNELS; object++)
		channel_of(object, 0);
	ck_assert_uint_eq(channel_advance(channel, 1, ticks), CHANNEL_STALE);
	ck_assert_uint_eq(channel_advance_received(channel, 1, ticks), CHANNEL_STALE);
	ck_assert_uint_eq(channel_newest(channel, 1), CHANNEL_STALE);
	ticks += 60 * second;
	uint32_t again = channel_of(1, 0);
	ck_assert_uint_ne(again, 0);
	ck_assert_uint_ne(again, channel);
	ck_assert_uint_eq(channel_advance(again, 1, ticks), 0);
}
END_TEST

START_TEST(a_closed_place_goes_first)
{
	make_node();
	uint64_t left_over = fill(1);
	for (uint64_t object = 1; object < 64 * 64; object++)
		channel_closed(channel_of(object, 0));
	unsigned placed = 0;
	for (uint64_t object = left_over + 1; object < left_over + 1000; object++)
		placed += channel_of(object, 0) != 0;
	ck_assert_uint_gt(placed, 900);
}
END_TEST

START_TEST(every_place_may_hold_anything)
{
	make_node();
	volatile uint64_t *word = (volatile uint64_t *)((char *)the_arena.node + HEAD);
	for (size_t i = 0; i < LORG_CHANNELS * sizeof(struct lorg_channel) / sizeof *word; i++)
		word[i] = 0xa5a5a5a5a5a5a5a5u;
	for (uint64_t object = 1; object < 1000; object++) {
		uint32_t channel = channel_of(object, 0);
		channel_advance(channel, 1, ticks);
		channel_advance_received(channel, 1, ticks);
		channel_closed(channel);
	}
}
END_TEST

static void *find_many(void *channels)
{
	uint32_t *found = channels;
	for (uint32_t object = 1; object <= 4000; object++) {
		found[object - 1] = channel_of(object, 0);
		channel_advance(found[object - 1], 1, ticks);
	}
	return NULL;
}

START_TEST(many_at_once)
{
	static uint32_t found[4][4000];
	pthread_t threads[4];
	make_node();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, find_many, found[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int object = 0; object < 4000; object++) {
		for (int i = 1; i < 4; i++)
			ck_assert_uint_eq(found[i][object], found[0][object]);
		ck_assert_uint_eq(channel_advance(found[0][object], 1, ticks), 4);
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {without_a_node,
				      one_object_one_channel,
				      both_ends_count_alike,
				      aliases,
				      a_full_table_numbers_nothing,
				      an_old_place_is_given_away,
				      a_stale_channel_says_so,
				      a_closed_place_goes_first,
				      every_place_may_hold_anything,
				      many_at_once};
	return unit_suite_of("channel", tests, sizeof tests / sizeof *tests, 30);
}
