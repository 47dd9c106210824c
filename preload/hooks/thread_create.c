/* SPDX-License-Identifier: MIT */
/*
 * thread_create.c: pthread_create and thrd_create. The new thread runs
 * thread_start (assembly), which takes its entry of the process table over
 * before the program's routine runs.
 *
 * What the new thread must be told (routine, argument, entry) stands in a slot
 * of a static pool: it may lie neither in the arena, which the program can
 * wipe, nor on the creator's stack, which may be gone.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <threads.h>

#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/hooks/exit.h"
#include "preload/hooks/spawn.h"

/* ---- slots ---- */

enum { START_SLOTS = 8192 /* threads made and not yet started, at most; beyond: not announced */ };

struct start_slot {
	uint32_t next;	  /* in the list of free ones: index + 1 */
	uint32_t holders; /* atomic; creator and thread; the last one frees it */
	void *routine, *argument;
	uint32_t entry; /* index: where the arena is mapped may change meanwhile */
	uint32_t hook;
	uint32_t no_clock; /* the creator may not read the TSC, and what it makes inherits that */
	uint32_t tid;	   /* atomic; the thread's, once it runs or its creator knows it */
};

enum { HANDLES = 16384, HANDLE_PROBES = 32 };

/* A handle is the address of the thread's control block, which libc uses again: the newest owner counts. */
struct handle {
	uint64_t handle; /* atomic; taken by a CAS from 0 */
	uint64_t thread; /* atomic; tid, process index << 32 */
};

struct start_tables {
	struct start_slot slots[START_SLOTS];
	struct handle handles[HANDLES];
};

/* Mapped when the first thread is made: a program without any may live under a small RLIMIT_DATA. Atomic, set once. */
static struct start_tables *start_tables;

/* The tables, or NULL: there are none and none may be had. */
static struct start_tables *tables_had(void)
{
	return __atomic_load_n(&start_tables, __ATOMIC_ACQUIRE);
}

static struct start_tables *tables_made(void)
{
	struct start_tables *tables = tables_had();
	if (tables || !system_calls_allowed())
		return tables;
	long address = raw_mmap(0, sizeof *tables, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_failed(address))
		return 0;
	/* Acquire and release: whoever sees the pointer sees the zeroed tables; the loser of a race takes the winner's. */
	if (__atomic_compare_exchange_n(&start_tables, &tables, (struct start_tables *)address, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return (struct start_tables *)address;
	raw_munmap((void *)address, sizeof *tables);
	return tables;
}

void thread_tables_prepare(void)
{
	tables_made();
}

/* Slots that were never used begin here. Atomic. */
static uint32_t start_fresh;
/* List of freed slots: index + 1 in the low half, a count that tells reuse in the high one. Atomic; a Treiber stack. */
static uint64_t start_free;

static struct start_slot *start_take(void)
{
	struct start_tables *tables = tables_made();
	if (!tables)
		return 0;
	uint64_t head = __atomic_load_n(&start_free, __ATOMIC_ACQUIRE);
	while ((uint32_t)head) {
		struct start_slot *slot = &tables->slots[(uint32_t)head - 1];
		uint64_t next = ((head >> 32) + 1) << 32 | __atomic_load_n(&slot->next, __ATOMIC_RELAXED);
		/* Acquire: pairs with the release in start_drop, so that `next` and the rest are as they were left. */
		if (__atomic_compare_exchange_n(&start_free, &head, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			return slot;
	}
	uint32_t fresh = __atomic_load_n(&start_fresh, __ATOMIC_RELAXED);
	while (fresh < START_SLOTS)
		if (__atomic_compare_exchange_n(&start_fresh, &fresh, fresh + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return &tables->slots[fresh];
	return 0;
}

static void start_free_slot(struct start_slot *slot)
{
	uint32_t number = (uint32_t)(slot - tables_had()->slots) + 1;
	uint64_t head = __atomic_load_n(&start_free, __ATOMIC_RELAXED), next;
	do {
		__atomic_store_n(&slot->next, (uint32_t)head, __ATOMIC_RELAXED);
		next = ((head >> 32) + 1) << 32 | number;
	} while (!__atomic_compare_exchange_n(&start_free, &head, next, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

static void start_drop(struct start_slot *slot)
{
	/* Both ways: what the other holder wrote is seen by the one who frees it. */
	if (__atomic_sub_fetch(&slot->holders, 1, __ATOMIC_ACQ_REL) == 0)
		start_free_slot(slot);
}

/* ---- handles: which thread a pthread_t is ---- */

static uint32_t handle_place(uint64_t handle, uint32_t probe)
{
	return (uint32_t)((handle >> 6) * 0x9e3779b97f4a7c15u >> 40) + probe;
}

static void handle_note(uint64_t handle, uint32_t tid, uint32_t index)
{
	struct start_tables *tables = tables_had();
	for (uint32_t probe = 0; tables && probe < HANDLE_PROBES; probe++) {
		uint32_t at = handle_place(handle, probe) % HANDLES;
		uint64_t seen = 0;
		if (!__atomic_compare_exchange_n(&tables->handles[at].handle, &seen, handle, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
		    seen != handle)
			continue;
		/* Relaxed: the joiner that reads it has synchronised with the thread by other means. */
		__atomic_store_n(&tables->handles[at].thread, tid | (uint64_t)index << 32, __ATOMIC_RELAXED);
		return;
	}
}

uint32_t thread_of_handle(uint64_t handle, uint32_t *index)
{
	*index = 0;
	const struct start_tables *tables = tables_had();
	for (uint32_t probe = 0; tables && handle && probe < HANDLE_PROBES; probe++) {
		uint32_t at = handle_place(handle, probe) % HANDLES;
		uint64_t seen = __atomic_load_n(&tables->handles[at].handle, __ATOMIC_RELAXED);
		if (!seen)
			break;
		if (seen != handle)
			continue;
		uint64_t thread = __atomic_load_n(&tables->handles[at].thread, __ATOMIC_RELAXED);
		*index = (uint32_t)(thread >> 32);
		return (uint32_t)thread;
	}
	return 0;
}

static uint64_t own_handle(void)
{
	uint64_t handle;
	__asm__("movq %%fs:0x10, %0" : "=r"(handle));
	return handle;
}

/* ---- the new thread: the parts that thread_start.S calls ---- */

HIDDEN void thread_begin(void *given, void *routine_and_argument[2]);
HIDDEN void *thread_end(void *value);
HIDDEN int thread_unwound(int version, int actions, uint64_t class, void *exception, void *context);

/*
 * Where functions are hooked, libc's own code at the start of a thread comes before thread_start: libc keeps routine and
 * argument in the thread's control block, one word behind the other.
 */
static const struct start_slot *slot_in_control_block(const struct start_tables *tables)
{
	enum { BLOCK_SIZE = 0x900 };
	uint64_t words[BLOCK_SIZE / 8];
	uint32_t count = memory_peek(words, (const void *)own_handle(), sizeof words) / 8;
	for (uint32_t i = 0; i + 1 < count; i++) {
		uint64_t offset = words[i + 1] - (uintptr_t)tables->slots;
		if (words[i] == (uintptr_t)thread_start && offset < sizeof tables->slots && offset % sizeof *tables->slots == 0)
			return &tables->slots[offset / sizeof *tables->slots];
	}
	return 0;
}

struct lorg_process *thread_announced(struct thread *self)
{
	const struct start_tables *tables = !self->begun && system_calls_allowed() ? tables_had() : 0;
	const struct start_slot *slot = tables ? slot_in_control_block(tables) : 0;
	if (!slot)
		return 0;
	self->no_clock = (uint16_t)slot->no_clock;
	self->start_hook = slot->hook;
	return arena_process(slot->entry);
}

static void write_spawned(struct thread *self, const struct start_slot *slot)
{
	const struct lorg_process *parent = arena_process(self->process->parent);
	const struct lorg_image *image = arena_image(self->process->image);
	struct lorg_event_SPAWNED event = {.routine = (uintptr_t)slot->routine,
					   .argument = (uintptr_t)slot->argument,
					   .how = LORG_BIRTH_THREAD,
					   .parent_pid = program_own_pid(),
					   .parent_tid = parent ? parent->own_tid : 0};
	if (image) {
		memcpy(&event.parent_image_low, image->id, 8);
		memcpy(&event.parent_image_high, image->id + 8, 8);
	}
	event_write(self, LORG_EVENT_SPAWNED, &event, sizeof event, 0, 0, 0);
}

void thread_begin(void *given, void *routine_and_argument[2])
{
	struct start_slot *slot = given;
	struct thread *self = &this_thread;
	routine_and_argument[0] = slot->routine;
	routine_and_argument[1] = slot->argument;
	self->no_clock = slot->no_clock;
	self->start_hook = slot->hook;
	self->begun = 1;
	struct lorg_process *entry = arena_process(slot->entry);
	if (entry && self->process != entry)
		thread_adopt(entry);
	uint32_t tid = thread_own_tid();
	__atomic_store_n(&slot->tid, tid, __ATOMIC_RELAXED);
	handle_note(own_handle(), tid, slot->entry);
	struct lorg_process *maker = self->process ? arena_process(self->process->parent) : 0;
	if (maker)
		spawning_child_runs(maker, slot->entry + 1, tid);
	if (self->process && (hook_gate_of(self, slot->hook) & LORG_GATE_PROCESS))
		write_spawned(self, slot);
	start_drop(slot);
	call_thread_begin(self, (uintptr_t)__builtin_frame_address(0) + 64);
}

void *thread_end(void *value)
{
	thread_ends(this_thread.start_hook, 0);
	return value;
}

/*
 * Personality routine of thread_start's frame, in the form of the C++ ABI for unwinding. A forced unwind passes here
 * when the thread is cancelled, or has called pthread_exit (which is told already).
 */
int thread_unwound(int version, int actions, uint64_t class, void *exception, void *context)
{
	enum { CLEANUP_PHASE = 2, FORCE_UNWIND = 8, CONTINUE_UNWIND = 8 };
	(void)version, (void)class, (void)exception, (void)context;
	if ((actions & FORCE_UNWIND) && (actions & CLEANUP_PHASE) && !this_thread.ending)
		thread_ends(this_thread.start_hook, 1);
	return CONTINUE_UNWIND;
}

/* ---- the creator ---- */

/* Where the thread has not come to say so itself, its control block tells. It may have ended and be gone by now. */
static uint32_t tid_in_block(uint64_t handle)
{
	uint32_t tid = 0;
	if (!the_program.tid_offset || !system_calls_allowed())
		return 0;
	return memory_peek(&tid, (const char *)handle + the_program.tid_offset, sizeof tid) == sizeof tid ? tid : 0;
}

static void write_thread(struct thread *self, const struct spawn_call *call, struct start_slot *slot, uint64_t handle)
{
	struct spawn_target target = {.routine = (uintptr_t)slot->routine, .argument = (uintptr_t)slot->argument, .pid = program_own_pid()};
	target.tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED);
	if (!target.tid)
		target.tid = tid_in_block(handle);
	if (!target.tid) /* it has ended meanwhile, and said so before */
		target.tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED);
	spawn_write(self, call, &target);
}

/* A slot and an entry for a thread about to be made, or NULL: it is made without us. */
static struct start_slot *announce(struct thread *self, const struct spawn_call *call, void *routine, void *argument)
{
	struct start_slot *slot = start_take();
	if (!slot)
		return 0;
	slot->holders = 2;
	slot->routine = routine;
	slot->argument = argument;
	slot->hook = call->hook;
	slot->no_clock = self->no_clock;
	slot->tid = 0;
	const struct lorg_process *entry = thread_announce();
	if (entry) {
		slot->entry = entry->index;
		spawn_prepare(self, call, &(struct spawn_target){.routine = (uintptr_t)routine, .argument = (uintptr_t)argument},
			      entry->index + 1);
		return slot;
	}
	start_free_slot(slot);
	return 0;
}

/* A thread that has not begun yet may be named, or waited for, by its handle already. */
static void note_not_begun(struct start_slot *slot, uint64_t handle)
{
	uint32_t tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED) ? 0 : tid_in_block(handle), unknown = 0;
	struct lorg_process *entry = tid ? arena_process(slot->entry) : 0;
	if (!entry)
		return;
	/* It stores the same, in both. */
	__atomic_store_n(&slot->tid, tid, __ATOMIC_RELAXED);
	__atomic_compare_exchange_n(&entry->own_tid, &unknown, tid, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	handle_note(handle, tid, slot->entry);
}

static void finish(struct thread *self, const struct spawn_call *call, struct start_slot *slot, int made, uint64_t handle)
{
	if (made) {
		note_not_begun(slot, handle);
		write_thread(self, call, slot, handle);
		spawning_ends(self);
		start_drop(slot);
		return;
	}
	spawning_ends(self);
	struct lorg_process *entry = arena_process(slot->entry);
	if (entry)
		thread_abandon(entry);
	start_free_slot(slot);
}

int hook_pthread_create(pthread_t *object, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
	struct spawn_call call;
	if (routine == thread_start) /* thrd_create's own, on its way through libc */
		return REAL(pthread_create)(object, attributes, routine, argument);
	int saved_errno = *hook_errno();
	struct thread *self = spawn_begin(&call, HOOK_pthread_create, LORG_BIRTH_THREAD, (uintptr_t)__builtin_return_address(0));
	struct start_slot *slot = self ? announce(self, &call, (void *)(uintptr_t)routine, argument) : 0;
	*hook_errno() = saved_errno;
	if (!slot)
		return REAL(pthread_create)(object, attributes, routine, argument);
	int result = REAL(pthread_create)(object, attributes, thread_start, slot);
	saved_errno = *hook_errno();
	finish(self, &call, slot, result == 0, result == 0 ? (uint64_t)*object : 0);
	*hook_errno() = saved_errno;
	return result;
}

int hook_thrd_create(thrd_t *object, thrd_start_t routine, void *argument)
{
	struct spawn_call call;
	int saved_errno = *hook_errno();
	struct thread *self = spawn_begin(&call, HOOK_thrd_create, LORG_BIRTH_THREAD, (uintptr_t)__builtin_return_address(0));
	struct start_slot *slot = self ? announce(self, &call, (void *)(uintptr_t)routine, argument) : 0;
	*hook_errno() = saved_errno;
	if (!slot)
		return REAL(thrd_create)(object, routine, argument);
	/* libc takes the low half of what the routine returns: thread_start keeps the register. */
	int result = REAL(thrd_create)(object, (thrd_start_t)(uintptr_t)thread_start, slot);
	saved_errno = *hook_errno();
	finish(self, &call, slot, result == thrd_success, result == thrd_success ? (uint64_t)*object : 0);
	*hook_errno() = saved_errno;
	return result;
}
