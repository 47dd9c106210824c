/* SPDX-License-Identifier: MIT */
/* patch.c: see patch.h. */
#include "collector/patch/patch.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/patch/frames.h"
#include "collector/patch/hold.h"

enum { SLOTS_MAXIMUM = 1 << 18, SLOTS_AT_ONCE = 128, PAGE = 4096, WINDOW = 16 * PAGE, MANY = 256 /* entries */ };

/* One entry or slot that is not as it should be. */
struct work {
	uint64_t at;	     /* address of the first byte that changes */
	uint64_t relocated;  /* where what stands there has moved to; 0: nothing has */
	uint32_t taken;	     /* bytes that change */
	uint32_t on;	     /* 1: to be hooked; 0: to be as the file has it */
	uint32_t same_places; /* 1: each byte of what stands there is at the same place in the relocated entry */
	uint32_t is_slot;
	uint8_t now[LORG_TAKEN_MAXIMUM], then[LORG_TAKEN_MAXIMUM];
};

/* A piece of the program's memory as it was read: entries lie close together, and to read each by itself takes its time. */
struct window {
	uint64_t start;
	uint32_t length; /* bytes that are there; 0: none */
	uint8_t bytes[WINDOW];
};

struct switching {
	pid_t pid;
	int memory;
	struct window *window; /* NULL: there is no memory for it */
	const struct patch_plan *plan;
	struct patch_outcome *outcome;
	struct work *work; /* by address, ascending */
	uint32_t count, room;
};

uint32_t *patch_stub_offsets(const struct lorg_plan *plan)
{
	uint32_t *offsets = calloc(plan->function_count + 1ul, sizeof *offsets), at = 0;
	const struct lorg_plan_function *functions = (const void *)((const char *)plan + plan->functions);
	for (uint32_t i = 0; offsets && i < plan->function_count; i++) {
		offsets[i] = at;
		at += lorg_stub_size(&functions[i]);
	}
	return offsets;
}

static const struct lorg_plan_function *function_of(const struct patch_plan *plan, uint32_t index)
{
	return (const struct lorg_plan_function *)((const char *)plan->plan + plan->plan->functions) + index;
}

static int is_on(const struct patch_plan *plan, uint32_t index)
{
	if (plan->none)
		return 0;
	/* Where the collector has put them: what the control says of itself, the program may have written. */
	struct lorg_function_control *functions = (struct lorg_function_control *)(plan->control + 1);
	return __atomic_load_n(&functions[index].gate, __ATOMIC_RELAXED) != 0;
}

static int open_memory(pid_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* A program that is over has nothing that could be switched. */
static int has_ended(int error)
{
	return error == ENOENT || error == ESRCH;
}

static int peek(int memory, uint64_t address, void *to, size_t length)
{
	return pread(memory, to, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

static int poke(int memory, uint64_t address, const void *from, size_t length)
{
	return pwrite(memory, from, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

/* Whole pages from that of `address` on. */
static void read_window(struct switching *switching, uint64_t address, uint32_t length)
{
	struct window *window = switching->window;
	window->start = address & ~(uint64_t)(PAGE - 1);
	ssize_t got = pread(switching->memory, window->bytes, length < WINDOW ? length : WINDOW, (off_t)window->start);
	window->length = got > 0 ? (uint32_t)got : 0;
}

static int is_in_window(const struct window *window, uint64_t address, size_t length)
{
	return address >= window->start && address - window->start + length <= window->length;
}

/* length: of an entry. many: those behind it are wanted next. */
static int peek_entry(struct switching *switching, uint64_t address, void *to, size_t length, int many)
{
	struct window *window = switching->window;
	if (window && many && !is_in_window(window, address, length))
		read_window(switching, address, WINDOW);
	if (!window || !is_in_window(window, address, length))
		return peek(switching->memory, address, to, length);
	memcpy(to, window->bytes + (address - window->start), length);
	return 0;
}

static void refuse(struct patch_outcome *outcome, uint32_t count, int error, const char *why)
{
	outcome->refused += count;
	if (outcome->why)
		return;
	outcome->error = error;
	outcome->why = why;
}

/* ---- what is to be done ------------------------------------------------------ */

static int add_work(struct switching *switching, const struct work *work)
{
	if (switching->count == switching->room) {
		uint32_t room = switching->room ? switching->room * 2 : 64;
		struct work *grown = realloc(switching->work, room * sizeof *grown);
		if (!grown)
			return -1;
		switching->work = grown;
		switching->room = room;
	}
	switching->work[switching->count++] = *work;
	return 0;
}

static void consider_entry(struct switching *switching, const struct lorg_placement *placement, uint32_t index, uint8_t mark, int many)
{
	const struct lorg_plan_function *function = function_of(switching->plan, index);
	uint64_t thunk = placement->stubs + switching->plan->stub_at[index];
	uint8_t patch[LORG_TAKEN_MAXIMUM], original[LORG_TAKEN_MAXIMUM];
	struct work work = {.at = placement->base + function->offset + function->skip, .taken = function->taken};
	if (!(function->flags & LORG_PLAN_CODE) || !(mark & LORG_STUB_CODE) ||
	    !lorg_patch_bytes(patch, work.at, work.taken, thunk) || peek_entry(switching, work.at, work.now, work.taken, many))
		return;
	for (uint32_t i = 0; i < work.taken; i++)
		original[i] = lorg_original_byte(function, i);
	int patched = !memcmp(work.now, patch, work.taken);
	if (!patched && memcmp(work.now, original, work.taken) != 0) {
		switching->outcome->foreign++;
		return;
	}
	work.on = (uint32_t)is_on(switching->plan, index);
	if (patched == (int)work.on)
		return;
	memcpy(work.then, work.on ? patch : original, work.taken);
	if (lorg_function_is_relocated(function)) {
		work.relocated = thunk + LORG_THUNK_SIZE;
		work.same_places = function->code_length == function->taken;
	}
	if (add_work(switching, &work))
		refuse(switching->outcome, 1, ENOMEM, "no memory");
}

static void consider_entries(struct switching *switching, const struct lorg_placement *placement, const uint32_t *functions,
			     uint32_t count)
{
	const uint32_t all = switching->plan->plan->function_count;
	uint8_t *marks = placement->stubs && placement->marks ? malloc(all + 1ul) : NULL;
	if (marks && peek(switching->memory, placement->marks, marks, all) == 0)
		for (uint32_t i = 0; i < count; i++)
			consider_entry(switching, placement, functions ? functions[i] : i, marks[functions ? functions[i] : i], count > MANY);
	if (switching->window)
		switching->window->length = 0;
	free(marks);
}

/* ---- slots ----------------------------------------------------------------------- */

/* functions: ascending; NULL: all. */
static int is_asked_for(const uint32_t *functions, uint32_t count, uint32_t index)
{
	uint32_t low = 0, high = count;
	while (functions && low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (functions[middle] < index)
			low = middle + 1;
		else
			high = middle;
	}
	return !functions || (low < count && functions[low] == index);
}

static void consider_slot(struct switching *switching, const struct lorg_slot_change *change)
{
	uint32_t on = (uint32_t)is_on(switching->plan, change->function) |
		      (uint32_t)(change->also && is_on(switching->plan, change->also - 1));
	uint64_t now, then = on ? change->thunk : change->original;
	struct work work = {.at = change->address, .taken = sizeof now, .on = on, .is_slot = 1};
	if (change->address % 8 || peek(switching->memory, change->address, &now, sizeof now) || now == then ||
	    (now != change->thunk && (!on || (now != change->original && (!change->unbound || now != change->unbound)))))
		return;
	memcpy(work.now, &now, sizeof now);
	memcpy(work.then, &then, sizeof then);
	if (add_work(switching, &work))
		refuse(switching->outcome, 1, ENOMEM, "no memory");
}

static void consider_slots(struct switching *switching, const struct lorg_placement *placement, const uint32_t *functions, uint32_t count)
{
	const uint32_t all = switching->plan->plan->function_count;
	struct lorg_slot_change changes[SLOTS_AT_ONCE];
	for (uint32_t i = 0; i < placement->slot_count && i < SLOTS_MAXIMUM; i++) {
		uint32_t rest = placement->slot_count - i, at = i % SLOTS_AT_ONCE;
		if (!at && peek(switching->memory, placement->slots + i * sizeof *changes, changes,
				(rest < SLOTS_AT_ONCE ? rest : SLOTS_AT_ONCE) * sizeof *changes))
			return;
		const struct lorg_slot_change change = changes[at];
		if (change.plan_id != switching->plan->plan->plan_id || change.function >= all || change.also > all)
			continue;
		if (is_asked_for(functions, count, change.function) || (change.also && is_asked_for(functions, count, change.also - 1)))
			consider_slot(switching, &change);
	}
}

/* ---- with all threads held ------------------------------------------------------ */

static struct work *work_around(const struct switching *switching, uint64_t address)
{
	uint32_t low = 0, high = switching->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (switching->work[middle].at + switching->work[middle].taken <= address)
			low = middle + 1;
		else
			high = middle;
	}
	struct work *work = low < switching->count ? &switching->work[low] : NULL;
	/* At its first byte it is at the start of an instruction before and after. */
	return work && address > work->at ? work : NULL;
}

/* Takes the entry out of what is done now. */
static void leave_for_later(struct switching *switching, struct work *work)
{
	if (!work->taken)
		return;
	switching->outcome->later++;
	work->taken = 0;
}

/* Gets a thread out of bytes that are about to change; where that cannot be, it will have gone on by itself presently. */
static void free_entry(struct switching *switching, struct held *thread, struct work *work)
{
	uint64_t inside = thread->registers.rip - work->at;
	if (!work->on || !work->relocated || !work->same_places || hold_move(thread, work->relocated + inside))
		leave_for_later(switching, work);
}

static void frame_found(void *context, uint64_t address)
{
	struct switching *switching = context;
	struct work *work = work_around(switching, address);
	if (work && work->taken && work->on)
		leave_for_later(switching, work);
}

static void free_entries(struct switching *switching, struct hold *hold)
{
	for (uint32_t i = 0; i < hold->count; i++) {
		struct held *thread = &hold->threads[i];
		if (!thread->gone)
			frames_of_handlers(switching->memory, thread->registers.rsp, frame_found, switching);
	}
	/* What is left for later is known: now threads may be moved. */
	for (uint32_t i = 0; i < hold->count; i++) {
		struct held *thread = &hold->threads[i];
		struct work *work = thread->gone ? NULL : work_around(switching, thread->registers.rip);
		if (work && work->taken)
			free_entry(switching, thread, work);
	}
}

static void count_done(struct patch_outcome *outcome, const struct work *work)
{
	outcome->on += work->on;
	outcome->off += !work->on;
}

static void write_bytes(struct switching *switching, const struct work *work)
{
	uint8_t now[LORG_TAKEN_MAXIMUM];
	if (!work->taken)
		return;
	int unknown = peek(switching->memory, work->at, now, work->taken);
	if (!unknown && memcmp(now, work->then, work->taken) == 0)
		count_done(switching->outcome, work); /* some of many were written before it failed */
	else if (unknown || memcmp(now, work->now, work->taken) != 0)
		switching->outcome->foreign++; /* another program is there now, or another tool's bytes */
	else if (poke(switching->memory, work->at, work->then, work->taken))
		refuse(switching->outcome, 1, errno, "its code or its slots cannot be changed");
	else
		count_done(switching->outcome, work);
}

static uint64_t page_of(uint64_t address)
{
	return address & ~(uint64_t)(PAGE - 1);
}

/* How many from `first` on are entries on neighbouring pages that fit into the window. Pages that nothing changes on stay shared. */
static uint32_t neighbours(const struct switching *switching, uint32_t first)
{
	const struct work *work = switching->work;
	const uint64_t start = page_of(work[first].at);
	uint64_t end = 0;
	uint32_t i = first;
	for (; i < switching->count; i++) {
		const uint64_t last = page_of(work[i].at + (work[i].taken ? work[i].taken - 1 : 0)) + PAGE;
		if (work[i].is_slot || last - start > WINDOW || (end && page_of(work[i].at) > end))
			break;
		end = last;
	}
	return i - first;
}

/* Text alone: nothing but lorg writes there. 0: it has failed, and some may be written. */
static int write_together(struct switching *switching, uint32_t first, uint32_t count)
{
	struct window *window = switching->window;
	const struct work *last = &switching->work[first + count - 1];
	read_window(switching, switching->work[first].at, (uint32_t)(page_of(last->at + LORG_TAKEN_MAXIMUM) + PAGE - page_of(switching->work[first].at)));
	for (uint32_t i = first; i < first + count; i++)
		if (!is_in_window(window, switching->work[i].at, switching->work[i].taken))
			return 0;
	for (uint32_t i = first; i < first + count; i++) {
		struct work *work = &switching->work[i];
		uint8_t *at = window->bytes + (work->at - window->start);
		if (work->taken && memcmp(at, work->now, work->taken) != 0) {
			switching->outcome->foreign++;
			work->taken = 0;
		}
		memcpy(at, work->then, work->taken);
	}
	const uint64_t from = switching->work[first].at, to = last->at + last->taken;
	if (to > from && poke(switching->memory, from, window->bytes + (from - window->start), to - from))
		return 0;
	for (uint32_t i = first; i < first + count; i++)
		if (switching->work[i].taken)
			count_done(switching->outcome, &switching->work[i]);
	return 1;
}

static void write_all(struct switching *switching)
{
	for (uint32_t i = 0; i < switching->count;) {
		uint32_t count = switching->window ? neighbours(switching, i) : 0;
		if (count > 1 && write_together(switching, i, count)) {
			i += count;
			continue;
		}
		for (uint32_t end = i + (count ? count : 1); i < end; i++)
			write_bytes(switching, &switching->work[i]);
	}
}

static void switch_held(void *context, struct hold *hold)
{
	struct switching *switching = context;
	/* The memory of what is held: the program may have become another since. */
	int memory = open_memory(switching->pid);
	if (memory < 0 && has_ended(errno))
		return;
	if (memory < 0) {
		refuse(switching->outcome, switching->count, errno, "its memory cannot be opened");
		return;
	}
	close(switching->memory);
	switching->memory = memory;
	free_entries(switching, hold);
	write_all(switching);
}

static int by_address(const void *a, const void *b)
{
	const struct work *one = a, *other = b;
	return one->at < other->at ? -1 : one->at > other->at;
}

static void switch_all_work(struct switching *switching)
{
	int error;
	const char *why;
	if (!switching->count)
		return;
	qsort(switching->work, switching->count, sizeof *switching->work, by_address);
	if (hold_threads(switching->pid, PATCH_LIMIT_NS, switch_held, switching, &error, &why) == 0)
		return;
	if (error == EAGAIN)
		switching->outcome->later += switching->count;
	else if (!has_ended(error))
		refuse(switching->outcome, switching->count, error, why);
}

/* ---- the whole ------------------------------------------------------------------- */

static int placement_is_right(const struct lorg_placement *placement, const struct patch_plan *plan)
{
	return placement->state == LORG_PLACEMENT_PLACED && placement->plan_id == plan->plan->plan_id &&
	       placement->function_count == plan->plan->function_count;
}

static void look_at_placements(struct switching *switching, uint64_t placements, const uint32_t *functions, uint32_t count)
{
	struct lorg_placements head;
	const size_t head_size = offsetof(struct lorg_placements, entry);
	if (peek(switching->memory, placements, &head, head_size) || head.magic != LORG_PLACEMENTS_MAGIC ||
	    head.size != sizeof(struct lorg_placement) || head.count > LORG_PLACEMENTS)
		return; /* it has placed nothing, or says nothing that can be true */
	for (uint32_t i = 0; i < head.count; i++) {
		struct lorg_placement placement;
		if (peek(switching->memory, placements + head_size + i * sizeof placement, &placement, sizeof placement))
			return;
		if (placement_is_right(&placement, switching->plan))
			consider_entries(switching, &placement, functions, functions ? count : switching->plan->plan->function_count);
		if (placement.state == LORG_PLACEMENT_PLACED)
			consider_slots(switching, &placement, functions, count);
	}
}

int patch_is_placed(pid_t pid, uint64_t placements, uint64_t plan_id, uint64_t base)
{
	struct lorg_placements head;
	const size_t head_size = offsetof(struct lorg_placements, entry);
	int memory = placements ? open_memory(pid) : -1, found = 0;
	if (memory < 0)
		return placements ? -1 : 0;
	if (peek(memory, placements, &head, head_size) || head.magic != LORG_PLACEMENTS_MAGIC)
		found = -1;
	for (uint32_t i = 0; found == 0 && i < head.count && i < LORG_PLACEMENTS; i++) {
		struct lorg_placement placement;
		if (peek(memory, placements + head_size + i * sizeof placement, &placement, sizeof placement))
			found = -1;
		else if (placement.state == LORG_PLACEMENT_PLACED && placement.plan_id == plan_id &&
			 (base == UINT64_MAX || placement.base == base))
			found = 1;
	}
	close(memory);
	return found;
}

int patch_image(pid_t pid, uint64_t placements, const struct patch_plan *plan, const uint32_t *functions, uint32_t count,
		struct patch_outcome *outcome)
{
	struct switching switching = {.pid = pid, .plan = plan, .outcome = outcome};
	memset(outcome, 0, sizeof *outcome);
	if (!placements)
		return 0;
	switching.memory = open_memory(pid);
	if (switching.memory < 0 && has_ended(errno))
		return 0;
	if (switching.memory < 0) {
		refuse(outcome, 1, errno, "its memory cannot be opened");
		return -1;
	}
	switching.window = malloc(sizeof *switching.window);
	if (switching.window)
		switching.window->length = 0;
	look_at_placements(&switching, placements, functions, count);
	switch_all_work(&switching);
	close(switching.memory);
	free(switching.window);
	free(switching.work);
	return outcome->why ? -1 : 0;
}
