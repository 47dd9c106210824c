/* SPDX-License-Identifier: MIT */
/* make_way.c: see make_way.h. */
#include "preload/core/make_way.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "preload/call/call.h"
#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/patch/patch.h"

enum {
	MOVES = 32,	 /* beyond: forward only */
	WINDOWS = 65,	 /* segments of the arena, and the node segment, last */
	NODE = WINDOWS - 1,
	MARGIN = 1 << 20, /* bytes between the program's memory and a place that we ask for */
	MOMENT_NS = 2000000,
};

struct move {
	uintptr_t from, length, to;
};

/* Written before `count` is raised; then read-only. */
static struct move moves[MOVES];
/* Atomic: release by the mover, acquire by whoever follows. */
static uint32_t move_count;

/* Where the arena's tables are taken to be when their place is gone: gates off, and what is counted is not read. */
static struct lorg_arena nowhere;

uint32_t arena_moves(void)
{
	return __atomic_load_n(&move_count, __ATOMIC_ACQUIRE);
}

/* ---- following ---- */

static void *moved(const void *pointer, const struct move *move)
{
	uintptr_t offset = (uintptr_t)pointer - move->from;
	return pointer && offset < move->length ? (void *)(move->to + offset) : (void *)(uintptr_t)pointer;
}

void arena_follow(struct thread *self)
{
	uint32_t count = arena_moves();
	/* A handler that comes in between does what is left to do; done twice, it is done once. */
	for (uint32_t i = self->moves; i < count && i < MOVES; self->moves = ++i) {
		self->packet = moved(self->packet, &moves[i]);
		self->process = moved(self->process, &moves[i]);
		self->parent.packet = moved(self->parent.packet, &moves[i]);
		self->parent.process = moved(self->parent.process, &moves[i]);
		call_counters_moved(self, moves[i].from, moves[i].length, moves[i].to);
	}
}

/* ---- windows ---- */

struct window {
	char *at; /* NULL: not mapped */
	size_t length;
};

static struct window window_of(unsigned index)
{
	if (index == NODE)
		return (struct window){(char *)the_arena.node, the_arena.settings.node_size};
	return (struct window){__atomic_load_n(&the_arena.segments[index], __ATOMIC_ACQUIRE), arena_segment_length(index)};
}

static int overlaps(const struct window *window, uintptr_t from, uintptr_t to)
{
	uintptr_t start = (uintptr_t)window->at;
	return window->at && start < to && from < start + window->length;
}

static char *reserve(uintptr_t hint, size_t length, uintptr_t from, uintptr_t to)
{
	long place = raw_mmap((void *)hint, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_failed(place))
		return 0;
	const struct window window = {(char *)place, length};
	if (!overlaps(&window, from, to))
		return window.at;
	raw_munmap(window.at, length);
	return 0;
}

/* The same memory once more, outside of the program's range; NULL: not to be had. */
static char *second_mapping(const struct window *window, uintptr_t from, uintptr_t to)
{
	const uintptr_t hints[] = {0, from > window->length + MARGIN ? (from - window->length - MARGIN) & ~(uintptr_t)4095 : 0,
				   (to + MARGIN) & ~(uintptr_t)4095};
	for (unsigned i = 0; i < sizeof hints / sizeof *hints; i++) {
		char *place = reserve(hints[i], window->length, from, to);
		if (!place)
			continue;
		/* An old size of 0: the mapping stays where it is, too. */
		long got = raw_syscall6(SYS_mremap, (long)window->at, 0, (long)window->length, MREMAP_MAYMOVE | MREMAP_FIXED,
					(long)place, 0);
		if (!raw_failed(got))
			return place;
		raw_munmap(place, window->length);
	}
	return 0;
}

/* ---- moving ---- */

static void publish_shared(char *at)
{
	struct lorg_arena *old = the_arena.shared, *new = (struct lorg_arena *)at;
	int attached = hook_gates == old->gate;
	the_arena.functions = (struct lorg_function *)(at + the_arena.functions_offset);
	__atomic_store_n(&the_arena.shared, new, __ATOMIC_RELEASE);
	if (attached)
		__atomic_store_n(&hook_gates, new->gate, __ATOMIC_RELEASE);
	if (the_program.image)
		the_program.image = arena_image(the_program.image_index);
}

static void publish(unsigned index, const struct window *window, char *place)
{
	uint32_t count = move_count;
	moves[count] = (struct move){(uintptr_t)window->at, window->length, (uintptr_t)place};
	if (index == NODE)
		__atomic_store_n(&the_arena.node, (struct lorg_node *)place, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&the_arena.segments[index], place, __ATOMIC_RELEASE);
	if (index == 0)
		publish_shared(place);
	__atomic_store_n(&move_count, count + 1, __ATOMIC_RELEASE);
}

/* Every thread has to look twice from now on, until a fork. */
static void announce(void)
{
	fork_guard[FORK_GUARD_MOVED] = 1;
	announced_calls_set(ANNOUNCED_UNKNOWN);
	__atomic_store_n(&fork_guard[FORK_GUARD_OWNED], 0, __ATOMIC_RELEASE);
}

static int move_all(uintptr_t from, uintptr_t to)
{
	char *place[WINDOWS] = {0};
	uint32_t count = move_count, failed = 0;
	for (unsigned i = 0; i < WINDOWS && !failed; i++) {
		const struct window window = window_of(i);
		if (!overlaps(&window, from, to))
			continue;
		place[i] = count++ < MOVES ? second_mapping(&window, from, to) : 0;
		failed = !place[i];
	}
	for (unsigned i = 0; i < WINDOWS; i++) {
		const struct window window = window_of(i);
		if (place[i] && failed)
			raw_munmap(place[i], window.length);
		else if (place[i])
			publish(i, &window, place[i]);
	}
	if (!failed)
		announce();
	return failed ? -1 : 0;
}

/* Plans and controls, each by itself. What cannot be moved, or is to be given up, is hooked no more. */
static void move_others(uintptr_t from, uintptr_t to, int give_up)
{
	struct arena_window *other;
	for (uint32_t i = 0; (other = arena_window(i)) != 0; i++) {
		const struct window window = {other->at, other->length};
		if (!overlaps(&window, from, to))
			continue;
		char *place = give_up ? 0 : second_mapping(&window, from, to);
		call_mapping_moved((uintptr_t)window.at, window.length, (uintptr_t)place);
		patch_mapping_moved((uintptr_t)window.at, window.length, (uintptr_t)place);
		__atomic_store_n(&other->at, place, __ATOMIC_RELEASE);
	}
}

static void say_gone(const char *why)
{
	struct thread *self = thread_self();
	if (self)
		event_gap(self, "everything from here on", why);
}

/* Nothing points there any more, but what a thread has in its hands at this moment. */
static void give_up_place(uintptr_t from, uintptr_t to)
{
	arena_detach();
	announce();
	for (unsigned i = 0; i < WINDOWS; i++) {
		const struct window window = window_of(i);
		if (!overlaps(&window, from, to))
			continue;
		if (i == NODE)
			__atomic_store_n(&the_arena.node, (struct lorg_node *)0, __ATOMIC_RELEASE);
		else
			__atomic_store_n(&the_arena.segments[i], (char *)0, __ATOMIC_RELEASE);
		if (i == 0)
			__atomic_store_n(&the_arena.shared, &nowhere, __ATOMIC_RELEASE);
	}
}

static void wait_a_moment(void)
{
	if (system_calls_allowed())
		raw_sleep_ns(MOMENT_NS);
	else
		for (int i = 0; i < MOMENT_NS / 100; i++)
			__builtin_ia32_pause();
}

void arena_make_way(const void *address, size_t length)
{
	uintptr_t from = (uintptr_t)address, to = from + length;
	struct thread *self = &this_thread;
	if (!the_arena.shared || !length || to < from || !arena_overlaps(address, length))
		return;
	/* Who grows the arena at this moment has a window in its hands that is not yet seen here. */
	int held = arena_hold();
	if (!held || !system_calls_allowed() || __atomic_load_n(&the_program.locked_memory, __ATOMIC_RELAXED) || move_all(from, to)) {
		say_gone("the program maps memory of its own where lorg's shared memory is, and that may not be moved");
		give_up_place(from, to);
		move_others(from, to, 1);
	} else {
		move_others(from, to, 0);
	}
	arena_follow(self);
	if (held)
		arena_let_go();
	wait_a_moment();
}

/* By the number of links of /proc/self/task: two, and one for each thread. */
static int is_alone(void)
{
	struct stat status;
	return !raw_failed(raw_syscall3(SYS_stat, (long)"/proc/self/task", (long)&status, 0)) && status.st_nlink == 3;
}

static void leave_others(void)
{
	struct arena_window *other;
	int alone = is_alone();
	for (uint32_t i = 0; (other = arena_window(i)) != 0; i++) {
		const struct window window = {other->at, other->length};
		if (!window.at)
			continue;
		move_others((uintptr_t)window.at, (uintptr_t)window.at + window.length, 1);
		if (alone)
			raw_munmap(window.at, window.length);
	}
	if (alone && call_targets_exist())
		call_shadows_leave();
}

void arena_leave(const char *why)
{
	struct window windows[WINDOWS];
	if (!the_arena.shared || the_arena.shared == &nowhere || !system_calls_allowed() || this_thread.vfork_child)
		return;
	for (unsigned i = 0; i < WINDOWS; i++)
		windows[i] = window_of(i);
	say_gone(why);
	thread_give_up(&this_thread);
	give_up_place(0, UINTPTR_MAX);
	leave_others();
	/* Another thread may have something of it in its hands: then only what comes is spared. */
	for (unsigned i = 0; i < WINDOWS && is_alone(); i++)
		if (windows[i].at)
			raw_munmap(windows[i].at, windows[i].length);
}
