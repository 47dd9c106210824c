/* SPDX-License-Identifier: MIT */
/* test_flags.c: flags of processes in many sessions: the union, what new ones get, what is inherited, what exec keeps. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "preload/core/flags.h"
#include "preload/hook.h"

/* What flags.c needs of the rest of the preload. */
struct arena the_arena;
struct program the_program;
const uint8_t *hook_gates;
__thread struct thread this_thread;
static struct lorg_image images[2];
static struct lorg_process processes[4];
static uint64_t ticks;
static struct lorg_event_FLAGS told[64];
static unsigned told_count;

uint64_t clock_slow(void)
{
	return ++ticks;
}

void arena_refresh(void)
{
}

void program_tell_again(void)
{
}

struct lorg_image *arena_image(uint32_t index)
{
	return index < 2 ? &images[index] : NULL;
}

uint64_t event_write(struct thread *self, uint16_t id, const void *fields, uint32_t size, const struct event_bytes *bytes,
		     unsigned count, uint32_t *position)
{
	(void)self, (void)bytes, (void)count, (void)position;
	ck_assert_uint_eq(id, LORG_EVENT_FLAGS);
	ck_assert_uint_eq(size, sizeof *told);
	memcpy(&told[told_count++ % 64], fields, size);
	return ++ticks;
}

enum {
	SESSIONS_AT = 4096,
	FLAG_TABLE_AT = SESSIONS_AT + LORG_SESSIONS * LORG_SESSION_STRIDE,
	ARENA_SIZE = FLAG_TABLE_AT + LORG_PROGRAM_FLAGS * sizeof(struct lorg_program_flags),
	PARENT = 0,
	CHILD = 1,
	OTHER = 2,
	SPAWN = LORG_TRACE_SET_ON_SPAWN,
	FIRST_SPAWN = LORG_TRACE_SET_ON_FIRST_SPAWN,
	ON_LINK = LORG_TRACE_SET_ON_LINK,
	FIRST_LINK = LORG_TRACE_SET_ON_FIRST_LINK,
	SEND = LORG_TRACE_SEND,
	CALL = LORG_TRACE_CALL,
	PROCS = LORG_TRACE_PROCS,
};

/* An arena of a lorgd with `used` slots, or, with 0, of a private collector. */
static void make_arena(uint32_t used)
{
	the_arena.shared = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(the_arena.shared, MAP_FAILED);
	the_arena.sessions_offset = SESSIONS_AT;
	the_arena.chunks_offset = ARENA_SIZE;
	the_arena.shared->sessions_used = used;
	the_arena.live = used != 0;
	the_arena.flags_matter = 1;
	for (uint32_t slot = 0; slot < (used ? used : 1); slot++) {
		session_at(slot)->state = 1;
		session_at(slot)->id = 100 + slot;
	}
	for (unsigned i = 0; i < 4; i++)
		processes[i] = (struct lorg_process){.index = i, .birth_tick = 1000 + i, .own_tid = 50 + i};
	this_thread.process = &processes[PARENT];
	this_thread.flags_matter = 1;
}

static uint32_t flags_of(unsigned process, uint32_t slot)
{
	return processes[process].session[slot].flags;
}

static void spawn(unsigned child)
{
	flags_begin(&processes[child]);
	flags_inherit(&processes[child], &processes[PARENT]);
	flags_spawned(&this_thread);
}

START_TEST(the_union_is_of_all_sessions)
{
	make_arena(4);
	ck_assert_int_eq(flags_change(&this_thread, &processes[PARENT], 1, 0, SEND), 1);
	ck_assert_int_eq(flags_change(&this_thread, &processes[PARENT], 3, 0, CALL | SEND), 1);
	ck_assert_uint_eq(flags_of(PARENT, 0), SEND | CALL);
	ck_assert_int_eq(flags_change(&this_thread, &processes[PARENT], 1, SEND, 0), 1);
	ck_assert_uint_eq(flags_of(PARENT, 0), SEND | CALL);
	ck_assert_int_eq(flags_change(&this_thread, &processes[PARENT], 3, SEND, 0), 1);
	ck_assert_uint_eq(flags_of(PARENT, 0), CALL);
	ck_assert_int_eq(flags_change(&this_thread, &processes[PARENT], 3, SEND, 0), 0); /* changes nothing: told no more */
	ck_assert_uint_eq(told_count, 4);
}
END_TEST

START_TEST(ports_ask_all_processes)
{
	make_arena(2);
	session_at(0)->flags_ports = LORG_TRACE_RECEIVE | LORG_TRACE_PORTS;
	flags_begin(&processes[CHILD]);
	ck_assert_uint_eq(flags_of(CHILD, 0), LORG_TRACE_SEND | LORG_TRACE_PORTS); /* what a port receives, somebody sends */
	ck_assert_uint_eq(flags_of(CHILD, 1), 0);
}
END_TEST

START_TEST(changes_are_told)
{
	make_arena(3);
	images[0].id[0] = 7;
	images[0].id[8] = 9;
	flags_change(&this_thread, &processes[PARENT], 2, 0, SEND);
	ck_assert_uint_eq(told[0].session, 2);
	ck_assert_uint_eq(told[0].on, SEND);
	ck_assert_uint_eq(told[0].off, 0);
	ck_assert_uint_eq(told[0].birth, 0); /* its own */
	uint64_t before = ticks;
	flags_change(&this_thread, &processes[OTHER], 1, 0, PROCS);
	ck_assert_uint_eq(told[1].birth, processes[OTHER].birth_tick);
	ck_assert_uint_eq(told[1].image_low, 7);
	ck_assert_uint_eq(told[1].image_high, 9);
	ck_assert_uint_gt(told[1].entry, before);
}
END_TEST

START_TEST(new_processes_get_what_each_session_asks)
{
	make_arena(5);
	session_at(1)->flags_new_processes = SEND;
	session_at(3)->flags_new_processes = CALL;
	session_at(4)->flags_new_processes = PROCS;
	session_at(4)->state = 0;
	flags_begin(&processes[CHILD]);
	ck_assert_uint_eq(flags_of(CHILD, 1), SEND);
	ck_assert_uint_eq(flags_of(CHILD, 2), 0);
	ck_assert_uint_eq(flags_of(CHILD, 3), CALL);
	ck_assert_uint_eq(flags_of(CHILD, 4), 0);
	ck_assert_uint_eq(flags_of(CHILD, 0), SEND | CALL);
	this_thread.process = &processes[CHILD];
	flags_tell(&this_thread);
	ck_assert_uint_eq(told_count, 2);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_uint_eq(told[i].entry, processes[CHILD].birth_tick);
}
END_TEST

START_TEST(threads_of_a_program_get_what_is_asked_of_it)
{
	make_arena(2);
	struct lorg_program_flags *table = (void *)((char *)the_arena.shared + FLAG_TABLE_AT);
	the_arena.shared->program_flags =
		(struct lorg_table){FLAG_TABLE_AT, sizeof(struct lorg_program_flags), LORG_PROGRAM_FLAGS};
	memcpy(images[0].id, "one half", 8);
	memcpy(images[1].id, "another.", 8);
	table[5] = (struct lorg_program_flags){.image = 1, .session = 1, .flags = SEND};
	memcpy(&table[5].image_id, images[0].id, 8);
	flags_begin(&processes[CHILD]);
	processes[OTHER].image = 1;
	flags_begin(&processes[OTHER]);
	ck_assert_uint_eq(flags_of(CHILD, 1), SEND);
	ck_assert_uint_eq(flags_of(OTHER, 1), 0);
}
END_TEST

/* As Erlang does it: each of the two flags, both, and none; in several sessions at once. */
START_TEST(children_inherit)
{
	make_arena(5);
	processes[PARENT].session[1].flags = SEND | SPAWN;
	processes[PARENT].session[2].flags = SEND | FIRST_SPAWN;
	processes[PARENT].session[3].flags = SEND | SPAWN | FIRST_SPAWN;
	processes[PARENT].session[4].flags = SEND;
	spawn(CHILD);
	ck_assert_uint_eq(flags_of(CHILD, 1), SEND | SPAWN);
	ck_assert_uint_eq(flags_of(CHILD, 2), SEND);
	ck_assert_uint_eq(flags_of(CHILD, 3), SEND);
	ck_assert_uint_eq(flags_of(CHILD, 4), 0);
	ck_assert_uint_eq(flags_of(PARENT, 1), SEND | SPAWN);
	ck_assert_uint_eq(flags_of(PARENT, 2), SEND);
	ck_assert_uint_eq(flags_of(PARENT, 3), SEND);
	spawn(OTHER);
	ck_assert_uint_eq(flags_of(OTHER, 1), SEND | SPAWN);
	ck_assert_uint_eq(flags_of(OTHER, 2), 0);
	ck_assert_uint_eq(flags_of(OTHER, 3), 0);
}
END_TEST

START_TEST(links_hand_on)
{
	make_arena(5);
	processes[PARENT].session[1].flags = SEND | ON_LINK;
	processes[PARENT].session[2].flags = SEND | FIRST_LINK;
	processes[PARENT].session[3].flags = SEND | ON_LINK | FIRST_LINK;
	processes[PARENT].session[4].flags = SEND | SPAWN;
	processes[OTHER].session[1].flags = CALL;
	flags_linked(&this_thread, &processes[OTHER]);
	ck_assert_uint_eq(flags_of(OTHER, 1), CALL | SEND | ON_LINK);
	ck_assert_uint_eq(flags_of(OTHER, 2), SEND);
	ck_assert_uint_eq(flags_of(OTHER, 3), SEND);
	ck_assert_uint_eq(flags_of(OTHER, 4), 0);
	ck_assert_uint_eq(flags_of(PARENT, 1), SEND | ON_LINK);
	ck_assert_uint_eq(flags_of(PARENT, 2), SEND);
	ck_assert_uint_eq(flags_of(PARENT, 3), SEND);
	/* Link flags do nothing at a spawn. */
	spawn(CHILD);
	ck_assert_uint_eq(flags_of(CHILD, 1), 0);
}
END_TEST

START_TEST(exec_keeps_flags)
{
	char text[256];
	make_arena(6);
	processes[PARENT].session[1].flags = SEND | SPAWN;
	processes[PARENT].session[2].flags = CALL;
	processes[PARENT].session[5].flags = PROCS;
	char *end = flags_to_text(text, text + sizeof text, &processes[PARENT]);
	strcpy(end, ":/run/socket");
	session_at(2)->id = 999; /* the slot is another session's by now */
	const char *at = text;
	ck_assert_int_eq(flags_from_text(&at), 0);
	ck_assert_str_eq(at, ":/run/socket");
	flags_kept(&processes[CHILD]);
	ck_assert_uint_eq(flags_of(CHILD, 1), SEND | SPAWN);
	ck_assert_uint_eq(flags_of(CHILD, 2), 0);
	ck_assert_uint_eq(flags_of(CHILD, 5), PROCS);
	ck_assert_uint_eq(flags_of(CHILD, 0), SEND | SPAWN | PROCS);
}
END_TEST

START_TEST(text_that_makes_no_sense)
{
	static const char *const bad[] = {",", ",1", ",1.2", ",1.2.", ",80.1.1", ",1.1.1,", ",1.11111111111111111.1", ",x.1.1"};
	make_arena(2);
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		const char *at = bad[i];
		ck_assert_msg(flags_from_text(&at) == -1, "%s", bad[i]);
	}
	const char *at = "";
	ck_assert_int_eq(flags_from_text(&at), 0);
}
END_TEST

START_TEST(a_private_recording_has_one_session)
{
	make_arena(0);
	the_arena.flags_new = CALL | SEND;
	flags_begin(&processes[CHILD]);
	ck_assert_uint_eq(flags_of(CHILD, 0), CALL | SEND);
	ck_assert_int_eq(flags_change(&this_thread, &processes[CHILD], 0, SEND, 0), 1);
	ck_assert_uint_eq(flags_of(CHILD, 0), CALL);
	ck_assert_uint_eq(told[0].session, 0);
	processes[PARENT].session[0].flags = PROCS | FIRST_SPAWN;
	spawn(OTHER);
	ck_assert_uint_eq(flags_of(OTHER, 0), CALL | SEND | PROCS);
	ck_assert_uint_eq(flags_of(PARENT, 0), PROCS);
}
END_TEST

/* ---- two sides at once ------------------------------------------------------- */

enum { ROUNDS = 20000 };

static void *change_slot(void *argument)
{
	uint32_t slot = (uint32_t)(uintptr_t)argument;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t bit = 1u << (slot * 4 + i % 4);
		if (i & 8)
			__atomic_fetch_and(&processes[PARENT].session[slot].flags, ~bit, __ATOMIC_SEQ_CST);
		else
			__atomic_fetch_or(&processes[PARENT].session[slot].flags, bit, __ATOMIC_SEQ_CST);
		flags_unite(&processes[PARENT]);
	}
	return NULL;
}

START_TEST(the_union_is_right_whoever_was_last)
{
	pthread_t threads[3];
	make_arena(4);
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, change_slot, (void *)(i + 1));
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(flags_of(PARENT, 0), flags_of(PARENT, 1) | flags_of(PARENT, 2) | flags_of(PARENT, 3));
}
END_TEST

/* The collector gives and takes what new ones get, and goes through those that there are. */
static void *sweep(void *stop)
{
	for (unsigned i = 0; !__atomic_load_n((int *)stop, __ATOMIC_RELAXED); i++) {
		uint32_t wanted = i & 1 ? SEND : 0;
		__atomic_store_n(&session_at(1)->flags_new_processes, wanted, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&processes[CHILD].state, __ATOMIC_SEQ_CST) == LORG_PROCESS_FREE)
			continue;
		if (wanted)
			__atomic_fetch_or(&processes[CHILD].session[1].flags, SEND, __ATOMIC_SEQ_CST);
		else
			__atomic_fetch_and(&processes[CHILD].session[1].flags, ~(uint32_t)SEND, __ATOMIC_SEQ_CST);
	}
	/* The last word: nobody. */
	__atomic_store_n(&session_at(1)->flags_new_processes, 0, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&processes[CHILD].state, __ATOMIC_SEQ_CST) != LORG_PROCESS_FREE)
		__atomic_fetch_and(&processes[CHILD].session[1].flags, ~(uint32_t)SEND, __ATOMIC_SEQ_CST);
	return NULL;
}

START_TEST(nothing_is_left_behind_by_a_sweep)
{
	make_arena(2);
	for (unsigned round = 0; round < 300; round++) {
		int stop = 0;
		pthread_t collector;
		processes[CHILD].state = LORG_PROCESS_FREE;
		processes[CHILD].session[1].flags = 0;
		pthread_create(&collector, NULL, sweep, &stop);
		for (volatile unsigned i = 0; i < round * 20; i++)
			;
		__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&processes[CHILD].state, LORG_PROCESS_STARTING, __ATOMIC_SEQ_CST);
		flags_begin(&processes[CHILD]);
		pthread_join(collector, NULL);
		ck_assert_uint_eq(flags_of(CHILD, 1), 0);
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		the_union_is_of_all_sessions, ports_ask_all_processes, changes_are_told, new_processes_get_what_each_session_asks,
		threads_of_a_program_get_what_is_asked_of_it, children_inherit, links_hand_on, exec_keeps_flags,
		text_that_makes_no_sense, a_private_recording_has_one_session, the_union_is_right_whoever_was_last,
		nothing_is_left_behind_by_a_sweep,
	};
	return unit_suite_of("flags", tests, sizeof tests / sizeof *tests, 20);
}
