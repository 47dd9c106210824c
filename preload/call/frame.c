/* SPDX-License-Identifier: MIT */
/*
 * frame.c: what is kept of an open call beside its target, where more than the
 * two plain events is asked for; and what a thread keeps for its calls.
 *
 * Frames come from a pool of the thread that enters. They are freed by whoever
 * returns, in any order (coroutines), by one store. A frame that was left by a
 * jump is used again; should its call return after all, frame_is_of() tells.
 */
#include <errno.h>
#include <sys/mman.h>

#include "preload/call/inner.h"
#include "preload/core/raw.h"

/* All there are; grows at its head. Atomic; release: whoever sees one sees it whole. */
static struct call_thread *all_threads;

enum { OWNER_SETTLING = 1, LOOKS = 64 };

/* Private memory of lorg's own, zero, not locked; NULL: none. */
static void *private_memory(size_t size)
{
	if (!system_calls_allowed())
		return 0;
	int locked = (int)__atomic_load_n(&the_program.locked_memory, __ATOMIC_ACQUIRE);
	long address = raw_mmap(0, size, locked ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_failed(address))
		return 0;
	if (locked) {
		raw_syscall3(SYS_munlock, address, (long)size, 0);
		raw_mprotect((void *)address, size, PROT_READ | PROT_WRITE);
	}
	return (void *)address;
}

/* ---- whose it is ------------------------------------------------------- */

static uint64_t image_mark(void)
{
	uint64_t mark;
	memcpy(&mark, the_program.image_id, sizeof mark);
	return mark;
}

/* The kernel's word, where it may be asked. */
static int owner_may_run(const struct call_thread *call)
{
	if (!system_calls_allowed())
		return 0;
	return !call->owner_tid || raw_syscall3(SYS_tgkill, raw_getpid(), call->owner_tid, 0) != -ESRCH;
}

/*
 * Nobody says when a thread is really over: its destructors may call hooked functions to the last moment. But the
 * collector clears its entry then; and so may a program that writes where it should not, whose thread goes on with what
 * is here. A fork child has none of its parent's other threads.
 */
static int owner_is_gone(const struct call_thread *call, uint64_t owner)
{
	if (call->owner_image != image_mark())
		return 1;
	const struct lorg_process *process = arena_process(call->owner_index);
	int is_cleared =
		!process || __atomic_load_n(&process->state, __ATOMIC_RELAXED) == LORG_PROCESS_FREE || process->birth_tick != owner;
	return is_cleared && !owner_may_run(call);
}

/* A raw fork leaves the parent's number in libc's block, which a vfork child looks for. */
static uint32_t tid_of_owner(const struct thread *self)
{
	if (self->vfork_child)
		return the_program.tid_offset ? thread_own_tid() : 0;
	return system_calls_allowed() ? (uint32_t)raw_gettid() : thread_own_tid();
}

static void settle_owner(const struct thread *self, struct call_thread *call)
{
	/* A vfork child is on its parent's thread-local storage, and what it begins its parent goes on with. */
	const struct lorg_process *process = self->vfork_child ? self->parent.process : self->process;
	call->owner_index = process->index;
	call->owner_image = image_mark();
	call->owner_tid = tid_of_owner(self);
	/* Release: pairs with the acquire in take_abandoned; the three fields above are the owner's. */
	__atomic_store_n(&call->owner, process->birth_tick, __ATOMIC_RELEASE);
}

/* Frames of coroutines that go on elsewhere stay theirs: each says itself whether it is free. */
static void renew(struct call_thread *call)
{
	call->stack_high = call->alternate_low = call->alternate_high = call->wait_stack = 0;
	call->timed = call->memory = call->depth = call->thrown_count = 0;
	memset(&call->parent, 0, sizeof call->parent);
	call->value_busy = 0;
	memset(call->counters, 0, sizeof call->counters);
	memset(call->arguments_used, 0, sizeof call->arguments_used);
}

static struct call_thread *take_abandoned(void)
{
	struct call_thread *call = __atomic_load_n(&all_threads, __ATOMIC_ACQUIRE);
	for (int i = 0; call && i < LOOKS; i++, call = call->next) {
		uint64_t owner = __atomic_load_n(&call->owner, __ATOMIC_ACQUIRE);
		if (owner == OWNER_SETTLING || !owner_is_gone(call, owner))
			continue;
		/* Acquire: what the owner before did to it has happened. */
		if (!__atomic_compare_exchange_n(&call->owner, &owner, OWNER_SETTLING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		renew(call);
		return call;
	}
	return 0;
}

static struct call_thread *make_new(void)
{
	struct call_thread *call = private_memory(sizeof *call);
	if (!call)
		return 0;
	call->blocks[0] = call->first;
	call->owner = OWNER_SETTLING;
	call->next = __atomic_load_n(&all_threads, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all_threads, &call->next, call, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	return call;
}

struct call_thread *call_thread_make(struct thread *self)
{
	thread_busy(self); /* no handler comes here meanwhile */
	struct call_thread *call = self->call;
	/* A vfork child may be where the threads have other numbers. */
	if (!call && !self->vfork_child)
		call = take_abandoned();
	if (!call)
		call = make_new();
	if (call && call != self->call) {
		settle_owner(self, call);
		self->call = call;
	}
	thread_idle(self);
	return call;
}

/* ---- processes on its memory -------------------------------------------- */

void call_forked(struct thread *self, struct call_thread *call)
{
	if (!call)
		return;
	/* The memory is the child's own now, and no other thread is in it. */
	call->value_busy = 0;
	memset(call->counters, 0, sizeof call->counters);
	memset(&call->parent, 0, sizeof call->parent);
	settle_owner(self, call);
	self->call = call;
	count_go_on(self, call);
}

void call_shared_child_begins(struct thread *self)
{
	struct call_thread *call = self->call;
	self->call_counters = 0;
	if (!call)
		return;
	memset(call->counters[1], 0, sizeof call->counters[1]);
	call->parent.timed = call->timed;
	call->parent.memory = call->memory;
	call->parent.depth = call->depth;
	call->parent.thrown_count = call->thrown_count;
	call->parent.wait_stack = call->wait_stack;
	count_go_on(self, call);
}

void call_shared_child_ends(struct thread *self)
{
	struct call_thread *call = self->call;
	self->call_counters = call && call->counters[0][0] ? call->counters[0] : 0;
	if (!call)
		return;
	call->timed = call->parent.timed;
	call->memory = call->parent.memory;
	call->depth = call->parent.depth;
	call->thrown_count = call->parent.thrown_count;
	call->wait_stack = call->parent.wait_stack;
}

/* ---- threads ------------------------------------------------------------- */

void call_thread_begin(struct thread *self, uintptr_t stack)
{
	if (!self->process || !call_targets_exist())
		return;
	call_stack_prepare(stack - (1ul << CALL_REGION_SHIFT), stack);
	struct call_thread *call = call_thread(self);
	if (call)
		call->stack_high = stack;
}

void call_signal_stack(struct thread *self, uintptr_t low, uintptr_t high)
{
	if (!call_targets_exist())
		return;
	call_stack_prepare(low, high);
	struct call_thread *call = call_thread(self);
	if (call)
		call->alternate_low = low, call->alternate_high = high;
}

void call_prepare_for_filter(struct thread *self)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (!self->process || !call_targets_exist())
		return;
	call_thread(self);
	call_stack_prepare(here - (1ul << CALL_REGION_SHIFT), here);
}

/* ---- frames ------------------------------------------------------------ */

/* Block b holds CALL_FRAMES_FIRST << b frames: frame n is in the block of the highest bit of n / FIRST + 1. */
static struct call_frame *frame_at(struct call_thread *call, uint32_t number)
{
	uint32_t group = number / CALL_FRAMES_FIRST + 1;
	uint32_t block = 31 - (uint32_t)__builtin_clz(group);
	uint32_t before = CALL_FRAMES_FIRST * ((1u << block) - 1);
	return block < CALL_FRAME_BLOCKS && call->blocks[block] ? call->blocks[block] + (number - before) : 0;
}

static int take(struct call_frame *frame, uintptr_t slot)
{
	uint8_t seen = __atomic_load_n(&frame->state, __ATOMIC_RELAXED), open = CALL_FRAME_OPEN;
	if (seen == CALL_FRAME_OPEN)
		return 0;
	uint8_t expected = seen;
	/* Without lock: only this thread and its handlers take frames of its pool. */
	__asm__ volatile("cmpxchgb %2, %1" : "+a"(expected), "+m"(frame->state) : "q"(open) : "memory", "cc");
	if (expected != seen)
		return 0;
	frame->slot = slot;
	return 1;
}

static struct call_frame *search(struct call_thread *call, uint32_t from, uint32_t count, uintptr_t slot)
{
	for (uint32_t i = from; i < from + count && i < call->frames_fresh; i++) {
		struct call_frame *frame = frame_at(call, i);
		if (!frame || !take(frame, slot))
			continue;
		call->frames_hint = i + 1;
		return frame;
	}
	return 0;
}

/* One that was never used. */
static struct call_frame *take_fresh(struct call_thread *call, uintptr_t slot)
{
	for (;;) {
		uint32_t number = 1;
		__asm__ volatile("xaddl %0, %1" : "+r"(number), "+m"(call->frames_fresh) : : "cc");
		struct call_frame *frame = frame_at(call, number);
		if (!frame) {
			__asm__ volatile("decl %0" : "+m"(call->frames_fresh) : : "cc");
			return 0;
		}
		if (take(frame, slot)) {
			call->frames_hint = number + 1;
			return frame;
		}
	}
}

static int grow(struct call_thread *call)
{
	uint32_t block = 0;
	while (block < CALL_FRAME_BLOCKS && call->blocks[block])
		block++;
	if (block == CALL_FRAME_BLOCKS)
		return 0;
	size_t size = ((size_t)CALL_FRAMES_FIRST << block) * sizeof(struct call_frame);
	struct call_frame *frames = private_memory(size), *seen = 0;
	if (!frames)
		return 0;
	__asm__ volatile("cmpxchgq %2, %1" : "+a"(seen), "+m"(call->blocks[block]) : "r"(frames) : "memory", "cc");
	if (seen) /* a handler's */
		raw_munmap(frames, size);
	return 1;
}

struct call_frame *frame_take(struct call_thread *call, uintptr_t slot)
{
	enum { NEAR = 16 };
	struct call_frame *frame = search(call, call->frames_hint, NEAR, slot);
	if (!frame)
		frame = take_fresh(call, slot);
	if (!frame && grow(call))
		frame = take_fresh(call, slot);
	if (!frame) /* whatever is free somewhere */
		frame = search(call, 0, UINT32_MAX / 2, slot);
	if (!frame)
		return 0;
	frame->below = 0;
	frame->outer_timed = frame->outer_memory = 0;
	frame->asked = 0;
	frame->delayed = frame->no_exception = frame->has_message = frame->limited = frame->outer_waits = 0;
	frame->arguments = 0;
	return frame;
}

struct call_asked *frame_asked(struct call_thread *call, const struct call_frame *frame)
{
	for (uint32_t block = 0; block < CALL_FRAME_BLOCKS && call->blocks[block]; block++) {
		size_t number = (size_t)(frame - call->blocks[block]), count = (size_t)CALL_FRAMES_FIRST << block;
		if (frame < call->blocks[block] || number >= count)
			continue;
		struct call_asked *asked = call->asked[block], *seen = 0;
		if (asked)
			return asked + number;
		asked = private_memory(count * sizeof *asked);
		if (!asked)
			return 0;
		__asm__ volatile("cmpxchgq %2, %1" : "+a"(seen), "+m"(call->asked[block]) : "r"(asked) : "memory", "cc");
		if (seen) /* a handler's */
			raw_munmap(asked, count * sizeof *asked);
		return call->asked[block] + number;
	}
	return 0;
}

void frame_free(struct call_thread *call, struct call_frame *frame)
{
	if (call) {
		value_drop_arguments(call, frame);
		/* The newest is the first to be used again. Its number, where it is of the newest blocks' range: a hint only. */
		if (call->frames_hint)
			call->frames_hint--;
	}
	__atomic_store_n(&frame->state, CALL_FRAME_FREE, __ATOMIC_RELEASE);
}
