/* SPDX-License-Identifier: MIT */
/*
 * count.c: call_count, call_time and call_memory, kept in the arena a thread
 * and a function, without events. The collector reads them at any time and
 * takes them when the thread is gone (collector/collect/counters.c).
 *
 * A thread's counters are found by a hash of the function's id: its upper bits
 * choose the chunk in the directory, those below the bucket. A chunk that is
 * full around a place leaves half of its entries in the directory to a new
 * one; what it holds stays, and the sum counts.
 */
#include "preload/call/entry_offsets.h"
#include "preload/call/inner.h"

enum { PROBES = 8 /* buckets looked at */, BUCKET = 2 };

static uint32_t hash_of(uint32_t function)
{
	return function * (uint32_t)COUNTER_HASH;
}

/* A vfork child's own: it is on its parent's thread-local storage. */
static struct lorg_function_counter **directory_of(const struct thread *self, struct call_thread *call)
{
	return call->counters[self->vfork_child != 0];
}

static struct lorg_function_counter *new_chunk(const struct thread *self)
{
	uint32_t index = arena_take_chunk(LORG_CHUNK_COUNTERS, 0, self->process_index);
	return index == UINT32_MAX ? 0 : arena_chunk(index);
}

/* The place of a function in a chunk, taken if it is new; NULL: full around there, or (a handler has forgotten it) no chunk. */
static struct lorg_function_counter *find_in(struct lorg_function_counter *chunk, uint32_t function, uint32_t probes)
{
	uint32_t bucket = hash_of(function) >> COUNTER_BUCKET_SHIFT & (COUNTER_BUCKETS - 1);
	for (uint32_t probe = 0; chunk && probe < probes; probe++) {
		struct lorg_function_counter *pair = chunk + ((bucket + probe) % COUNTER_BUCKETS) * BUCKET;
		for (int i = 0; i < BUCKET && pair != chunk; i++) {
			uint32_t seen = 0;
			if (pair[i].function == function)
				return &pair[i];
			if (pair[i].function)
				continue;
			/* Without lock: the chunk has one writer and its handlers. */
			__asm__ volatile("cmpxchgl %2, %1" : "+a"(seen), "+m"(pair[i].function) : "r"(function) : "memory", "cc");
			if (!seen || seen == function)
				return &pair[i];
		}
	}
	return 0;
}

static int make_directory(struct thread *self, struct call_thread *call)
{
	struct lorg_function_counter *chunk = new_chunk(self);
	if (!chunk)
		return 0;
	struct lorg_function_counter **directory = directory_of(self, call);
	for (unsigned i = 0; i < CALL_COUNTER_CHUNKS; i++)
		directory[i] = chunk;
	/* Last: the stub looks at it first. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->call_counters = directory;
	return 1;
}

/* Gives the half of the full chunk's entries that `entry` is in to a new one; 0: there is none, or it has one entry. */
static int split(const struct thread *self, struct lorg_function_counter **directory, uint32_t entry)
{
	struct lorg_function_counter *full = directory[entry];
	uint32_t low = entry, high = entry + 1;
	while (low > 0 && directory[low - 1] == full)
		low--;
	while (high < CALL_COUNTER_CHUNKS && directory[high] == full)
		high++;
	struct lorg_function_counter *chunk = high - low > 1 ? new_chunk(self) : 0;
	if (!chunk)
		return 0;
	uint32_t middle = (low + high) / 2;
	for (uint32_t i = entry < middle ? low : middle; i < (entry < middle ? middle : high); i++)
		directory[i] = chunk;
	return 1;
}

static struct lorg_function_counter *find_slow(struct thread *self, struct call_thread *call, uint32_t function)
{
	uint32_t entry = hash_of(function) >> (32 - COUNTER_DIRECTORY_BITS);
	struct lorg_function_counter **directory = directory_of(self, call), *found = 0;
	thread_busy(self); /* no handler comes here meanwhile */
	if (self->call_counters || make_directory(self, call)) {
		found = find_in(directory[entry], function, PROBES);
		while (!found && split(self, directory, entry))
			found = find_in(directory[entry], function, PROBES);
		if (!found)
			found = find_in(directory[entry], function, COUNTER_BUCKETS);
	}
	thread_idle(self);
	return found;
}

struct lorg_function_counter *counter_of(struct thread *self, uint32_t function)
{
	struct call_thread *call = call_thread(self);
	if (!call)
		return 0;
	if (self->call_counters) {
		struct lorg_function_counter *chunk = directory_of(self, call)[hash_of(function) >> (32 - COUNTER_DIRECTORY_BITS)];
		struct lorg_function_counter *found = find_in(chunk, function, PROBES);
		if (found)
			return found;
	}
	return find_slow(self, call, function);
}

void count_call(struct thread *self, const struct call_target *target)
{
	struct lorg_function_counter *counter = counter_of(self, target->function);
	if (counter) /* one instruction: a handler's own count is not lost */
		__asm__ volatile("incq %0" : "+m"(counter->count) : : "cc");
	else
		__atomic_fetch_add(&the_arena.shared->uncounted_lost, 1, __ATOMIC_RELAXED);
}

void call_counters_forget(struct thread *self)
{
	self->call_counters = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (self->call)
		memset(self->call->counters, 0, sizeof self->call->counters);
}

void call_counters_moved(struct thread *self, uintptr_t from, uintptr_t length, uintptr_t to)
{
	struct call_thread *call = self->call;
	for (unsigned i = 0; call && i < 2 * CALL_COUNTER_CHUNKS; i++) {
		struct lorg_function_counter **chunk = &call->counters[i / CALL_COUNTER_CHUNKS][i % CALL_COUNTER_CHUNKS];
		uintptr_t offset = (uintptr_t)*chunk - from;
		if (*chunk && offset < length)
			*chunk = (struct lorg_function_counter *)(to + offset);
	}
}

/* ---- time and memory --------------------------------------------------- */

/*
 * Both are counted as they come: at each change of whom they belong to, what has come since the last one is added to
 * whom it belonged to. So calls that never return have theirs, but for the last piece, which the collector adds.
 */

/* Puts `now` there and returns what stood there. Without lock: pairs with handlers of this thread only. */
static uint64_t take_over(uint64_t *word, uint64_t now)
{
	uint64_t seen = *word;
	__asm__ volatile("1: cmpxchgq %2, %1; jne 1b" : "+a"(seen), "+m"(*word) : "r"(now) : "memory", "cc");
	return seen;
}

static void charge_time(struct thread *self, const struct call_thread *call, uint64_t now)
{
	struct lorg_process *process = self->process;
	if (!process->timed_since)
		return;
	uint64_t since = take_over(&process->timed_since, now);
	struct lorg_function_counter *counter = call->timed && since && now > since ? counter_of(self, call->timed) : 0;
	if (counter)
		__asm__ volatile("addq %1, %0" : "+m"(counter->time_ticks) : "r"(now - since) : "cc");
}

static void charge_memory(struct thread *self, const struct call_thread *call)
{
	struct lorg_process *process = self->process;
	uint64_t words = process->words_allocated, seen = take_over(&process->memory_words, words);
	struct lorg_function_counter *counter = call->memory && words > seen ? counter_of(self, call->memory) : 0;
	if (counter)
		__asm__ volatile("addq %1, %0" : "+m"(counter->words) : "r"(words - seen) : "cc");
}

static void time_goes_to(struct thread *self, struct call_thread *call, uint32_t function)
{
	call->timed = function;
	self->process->timed_function = function;
}

static void memory_goes_to(struct thread *self, struct call_thread *call, uint32_t function)
{
	call->memory = function;
	self->process->memory_function = function;
}

/* A wait that stands below `stack` is one that was left by a jump that nobody has told of. */
static int is_waiting(const struct thread *self, const struct call_thread *call, uintptr_t stack)
{
	return call->timed && !self->process->timed_since && call->wait_stack >= stack;
}

void count_enter(struct thread *self, struct call_thread *call, struct call_frame *frame)
{
	if (frame->gate & LORG_CALL_TIME) {
		charge_time(self, call, frame->entered);
		frame->outer_timed = call->timed;
		frame->outer_waits = is_waiting(self, call, frame->slot);
		time_goes_to(self, call, frame->target->function);
		if (!self->process->timed_since)
			self->process->timed_since = frame->entered;
	}
	if (frame->gate & LORG_CALL_MEMORY) {
		charge_memory(self, call);
		frame->outer_memory = call->memory;
		memory_goes_to(self, call, frame->target->function);
	}
}

void count_leave(struct thread *self, struct call_thread *call, struct call_frame *frame, uint64_t now)
{
	if (frame->gate & LORG_CALL_TIME) {
		charge_time(self, call, now);
		time_goes_to(self, call, frame->outer_timed);
		self->process->timed_since = frame->outer_timed && !frame->outer_waits ? now : 0;
	}
	if (frame->gate & LORG_CALL_MEMORY) {
		charge_memory(self, call);
		memory_goes_to(self, call, frame->outer_memory);
	}
}

int count_wait_begins(struct thread *self, uint64_t tick)
{
	struct call_thread *call = self->call;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (!call || !call->timed || is_waiting(self, call, here))
		return 0;
	charge_time(self, call, tick);
	call->wait_stack = here;
	self->process->timed_since = 0;
	return 1;
}

void count_wait_ends(struct thread *self)
{
	self->process->timed_since = clock_now();
}

void count_jumped(struct thread *self, struct call_thread *call, uintptr_t to)
{
	if (call->timed && !self->process->timed_since && call->wait_stack < to)
		self->process->timed_since = clock_now();
}

void count_go_on(struct thread *self, struct call_thread *call)
{
	time_goes_to(self, call, call->timed);
	memory_goes_to(self, call, call->memory);
	self->process->timed_since = call->timed ? clock_now() : 0;
	self->process->memory_words = self->process->words_allocated;
}
