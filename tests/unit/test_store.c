/* SPDX-License-Identifier: MIT */
/* test_store.c: trace directories: what is moved aside and what refused, lanes, and a packet that finds no room. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/store/packet.h"
#include "collector/store/store.h"
#include "tests/unit/unit.h"

static char path[512];
static const char *why;

static struct store *create(unsigned open_files)
{
	struct store_settings settings = {.path = path, .open_files = open_files, .node_name = "node"};
	settings.clock.frequency = 1000000000;
	snprintf(path, sizeof path, "%s/trace", unit_directory());
	return store_create(&settings, &why);
}

static int append(struct store *store, struct lane *lane, uint64_t tick)
{
	static _Alignas(8) uint8_t buffer[4096];
	struct packet_builder packet;
	const struct lorg_event_MARK mark = {0};
	const struct packet_bytes text[] = {packet_text("mark")};
	packet_begin(&packet, buffer, sizeof buffer, tick);
	packet_event(&packet, LORG_EVENT_MARK, tick, &mark, text, 1);
	return store_append(store, lane, packet.head, packet.length);
}

static off_t size_of(const char *name)
{
	char file[600];
	struct stat status;
	snprintf(file, sizeof file, "%s/%s", path, name);
	return stat(file, &status) ? -1 : status.st_size;
}

START_TEST(an_older_trace_is_moved_aside)
{
	char aside[600];
	struct store *store = create(8);
	ck_assert_ptr_nonnull(store);
	store_free(store);
	store = create(8);
	ck_assert_ptr_nonnull(store);
	store_free(store);
	snprintf(aside, sizeof aside, "%s.1/metadata", path);
	ck_assert_int_eq(access(aside, F_OK), 0);
	ck_assert_int_gt((int)size_of("metadata"), 1000);
}
END_TEST

START_TEST(what_is_no_trace_is_refused)
{
	char file[600];
	snprintf(path, sizeof path, "%s/trace", unit_directory());
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(file, sizeof file, "%s/letter", path);
	ck_assert_int_ge(close(open(file, O_CREAT | O_WRONLY, 0600)), 0);
	ck_assert_ptr_null(create(8));
	ck_assert_ptr_nonnull(why);
	ck_assert_int_eq(access(file, F_OK), 0);
}
END_TEST

START_TEST(a_lane_goes_to_who_began_after_its_end)
{
	struct store *store = create(8);
	struct lane *first = store_take_lane(store, 100);
	ck_assert_int_eq(append(store, first, 200), 0);
	store_release_lane(store, first);
	struct lane *overlapping = store_take_lane(store, 150);
	ck_assert_ptr_ne(overlapping, first);
	ck_assert_ptr_eq(store_take_lane(store, 201), first);
	store_free(store);
}
END_TEST

START_TEST(many_lanes_need_few_descriptors)
{
	struct lane *lanes[100];
	struct store *store = create(4);
	for (uint64_t round = 0; round < 3; round++)
		for (unsigned i = 0; i < 100; i++) {
			if (round == 0)
				lanes[i] = store_take_lane(store, 1);
			ck_assert_int_eq(append(store, lanes[i], 10 + round), 0);
		}
	ck_assert_uint_le(store_totals(store).open_files, 4);
	ck_assert_uint_eq(store_totals(store).packets, 300);
	ck_assert_int_eq((int)size_of("stream-100"), (int)(store_totals(store).bytes / 100));
	store_free(store);
}
END_TEST

START_TEST(a_packet_is_there_whole_or_not_at_all)
{
	const struct rlimit limit = {20000, RLIM_INFINITY};
	const char *what;
	struct store *store = create(8);
	struct lane *lane = store_take_lane(store, 1);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(append(store, lane, 2), 0);
	off_t one = size_of("stream-1");
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (uint64_t tick = 3; append(store, lane, tick) == 0; tick++)
		ck_assert_uint_lt(tick, 10000);
	ck_assert_int_eq(store_failure(store, &what), EFBIG);
	ck_assert_int_eq((int)(size_of("stream-1") % one), 0);
	ck_assert_int_eq(append(store, store_own_lane(store), 10), -1);
	store_free(store);
}
END_TEST

START_TEST(a_directory_that_is_gone_is_noticed)
{
	char command[700];
	const char *what;
	struct store *store = create(8);
	store_check(store);
	ck_assert_int_eq(store_failure(store, &what), 0);
	snprintf(command, sizeof command, "%s/metadata", path);
	unlink(command);
	ck_assert_int_eq(rmdir(path), 0);
	store_check(store);
	ck_assert_int_eq(store_failure(store, &what), ENOENT);
	store_free(store);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		an_older_trace_is_moved_aside,	       what_is_no_trace_is_refused,
		a_lane_goes_to_who_began_after_its_end, many_lanes_need_few_descriptors,
		a_packet_is_there_whole_or_not_at_all,  a_directory_that_is_gone_is_noticed,
	};
	return unit_suite_of("store", tests, sizeof tests / sizeof *tests, 10);
}
