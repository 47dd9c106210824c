/* SPDX-License-Identifier: MIT */
/*
 * record.c: targets, thunks, and the long way of a call in and out: all that
 * entry.S does not do itself.
 *
 * Compiled for general registers only, as all of liblorg.so: the program's
 * vector registers hold what they held when the function was called.
 */
#include <sys/mman.h>

#include "preload/call/entry_offsets.h"
#include "preload/call/inner.h"
#include "preload/call/match.h"
#include "preload/core/raw.h"
#include "preload/hook.h"

_Static_assert(TARGET_BODY == __builtin_offsetof(struct call_target, body), "entry_offsets.h");
_Static_assert(TARGET_CONTROL == __builtin_offsetof(struct call_target, control), "entry_offsets.h");
_Static_assert(TARGET_FUNCTION == __builtin_offsetof(struct call_target, function), "entry_offsets.h");
_Static_assert(__builtin_offsetof(struct lorg_function_control, gate) == 0, "entry.S");
_Static_assert(THREAD_PACKET == __builtin_offsetof(struct thread, packet), "entry_offsets.h");
_Static_assert(THREAD_NOT_PLAIN == __builtin_offsetof(struct thread, not_plain), "entry_offsets.h");
_Static_assert(THREAD_GUARDED == __builtin_offsetof(struct thread, guarded), "entry_offsets.h");
_Static_assert(THREAD_GUARDED == __builtin_offsetof(struct thread, busy), "entry.S looks at it alone where flags have been seen");
_Static_assert(THREAD_CALL_REGION == __builtin_offsetof(struct thread, call_region), "entry_offsets.h");
_Static_assert(THREAD_CALL_COUNTERS == __builtin_offsetof(struct thread, call_counters), "entry_offsets.h");
_Static_assert(PACKET_COMMITTED == __builtin_offsetof(struct lorg_packet, committed), "entry_offsets.h");
_Static_assert(PACKET_LAST == __builtin_offsetof(struct lorg_packet, last), "entry_offsets.h");
_Static_assert(PACKET_POSITION == __builtin_offsetof(struct lorg_packet, position), "entry_offsets.h");
_Static_assert(PACKET_HEAD == LORG_PACKET_HEAD && CHUNK_SIZE == LORG_CHUNK_SIZE, "entry_offsets.h");
_Static_assert(EVENT_CALL_ENTRY == LORG_EVENT_CALL_ENTRY && EVENT_RETURN == LORG_EVENT_RETURN, "entry_offsets.h");
_Static_assert(GATE_ENTRY == LORG_CALL_ENTRY && GATE_ENTRY_AND_RETURN == (LORG_CALL_ENTRY | LORG_CALL_RETURN), "entry_offsets.h");
_Static_assert(GATE_FILTER == LORG_CALL_FILTER, "entry_offsets.h");
_Static_assert(GATE_COUNTS == (LORG_CALL_COUNT | LORG_CALL_TIME | LORG_CALL_MEMORY), "entry_offsets.h");
_Static_assert(TARGET_FLAGS == __builtin_offsetof(struct call_target, flags), "entry_offsets.h");
_Static_assert(TARGET_SETTINGS == __builtin_offsetof(struct call_target, settings), "entry_offsets.h");
_Static_assert(PLAN_NO_CALLER == LORG_PLAN_NO_CALLER && CALLER_FREE == (int64_t)LORG_CALLER_FREE, "entry_offsets.h");
_Static_assert(SETTINGS_SETTING == __builtin_offsetof(struct call_settings, setting), "entry_offsets.h");
_Static_assert(SETTINGS_COUNT == __builtin_offsetof(struct call_settings, setting_count), "entry_offsets.h");
_Static_assert(CONTROL_SETTING == __builtin_offsetof(struct lorg_function_control, setting), "entry_offsets.h");
_Static_assert(LOOKED_AT == SETTINGS_LOOKED_AT, "entry_offsets.h");
_Static_assert(SETTING_SIZE == sizeof(struct lorg_call_setting), "entry_offsets.h");
_Static_assert(SETTING_PROGRAM == __builtin_offsetof(struct lorg_call_setting, program), "entry_offsets.h");
_Static_assert(SETTING_NEXT == __builtin_offsetof(struct lorg_call_setting, next), "entry_offsets.h");
_Static_assert(SETTING_DEPTH == __builtin_offsetof(struct lorg_call_setting, maximum_depth), "entry_offsets.h");
_Static_assert(SETTING_LEAST_TICKS == __builtin_offsetof(struct lorg_call_setting, least_ticks), "entry_offsets.h");
_Static_assert(SETTING_LIMIT_EVENTS == __builtin_offsetof(struct lorg_call_setting, limit_events), "entry_offsets.h");
_Static_assert(SETTING_LIMIT_RATE == __builtin_offsetof(struct lorg_call_setting, limit_rate), "entry_offsets.h");
_Static_assert(GATE_VALUES_OR_RETURN_TO == (LORG_CALL_VALUES | LORG_CALL_RETURN_TO), "entry_offsets.h");
_Static_assert(SETTING_CALLER_LOW == __builtin_offsetof(struct lorg_call_setting, caller_low), "entry_offsets.h");
_Static_assert(SETTING_CALLER_HIGH == __builtin_offsetof(struct lorg_call_setting, caller_high), "entry_offsets.h");
_Static_assert(THREAD_CALL == __builtin_offsetof(struct thread, call), "entry_offsets.h");
_Static_assert(CALL_DEPTH == __builtin_offsetof(struct call_thread, depth), "entry_offsets.h");
_Static_assert(CALL_THROWN_COUNT == __builtin_offsetof(struct call_thread, thrown_count), "entry_offsets.h");
_Static_assert(GATE_COUNT == LORG_CALL_COUNT && TICK_MASK == LORG_TICK_MASK, "entry_offsets.h");
_Static_assert(COUNTER_SIZE == sizeof(struct lorg_function_counter), "entry_offsets.h");
_Static_assert(COUNTER_FUNCTION == __builtin_offsetof(struct lorg_function_counter, function), "entry_offsets.h");
_Static_assert(COUNTER_COUNT == __builtin_offsetof(struct lorg_function_counter, count), "entry_offsets.h");
_Static_assert(1ul << RETURN_BIT == CALL_SHADOW_RETURN && 1ul << OWNER_BIT == CALL_SHADOW_OWNER, "entry_offsets.h");
_Static_assert(REGION_SHIFT == CALL_REGION_SHIFT, "entry_offsets.h");
_Static_assert(1 << COUNTER_DIRECTORY_BITS == CALL_COUNTER_CHUNKS && COUNTER_BUCKETS * 2 == LORG_COUNTERS, "entry_offsets.h");

/* ---- targets ----------------------------------------------------------- */

enum { PAGE_TARGETS = 1024, PAGES = 4096 };

/* Pages of targets. Atomic; only ever filled. */
static struct call_target *pages[PAGES];
/* Atomic; the next index. */
static uint32_t target_count;

/* Where a control has gone. */
static struct lorg_function_control not_asked;
static struct lorg_control no_settings;

static struct call_target *page_of(uint32_t index)
{
	struct call_target **page = &pages[index / PAGE_TARGETS];
	struct call_target *seen = __atomic_load_n(page, __ATOMIC_ACQUIRE);
	if (seen || !system_calls_allowed())
		return seen;
	size_t size = PAGE_TARGETS * sizeof(struct call_target);
	long made = raw_mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_failed(made))
		return 0;
	/* The loser of a race between two threads takes the winner's. */
	if (__atomic_compare_exchange_n(page, &seen, (struct call_target *)made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return (struct call_target *)made;
	raw_munmap((void *)made, size);
	return seen;
}

int call_target_add(const struct call_target *target)
{
	uint32_t index = __atomic_fetch_add(&target_count, 1, __ATOMIC_RELAXED);
	struct call_target *page = index < PAGES * PAGE_TARGETS ? page_of(index) : 0;
	if (!page) {
		__atomic_fetch_sub(&target_count, 1, __ATOMIC_RELAXED);
		return -1;
	}
	struct call_target *place = &page[index % PAGE_TARGETS];
	*place = *target;
	place->index = index;
	if (index == 0)
		call_stacks_prepare();
	return (int)index;
}

struct call_target *call_target_at(uint32_t index)
{
	struct call_target *page = index < PAGES * PAGE_TARGETS ? __atomic_load_n(&pages[index / PAGE_TARGETS], __ATOMIC_ACQUIRE) : 0;
	return page && index < __atomic_load_n(&target_count, __ATOMIC_RELAXED) ? &page[index % PAGE_TARGETS] : 0;
}

int call_targets_exist(void)
{
	return __atomic_load_n(&target_count, __ATOMIC_RELAXED) != 0;
}

static int lies_in(const void *pointer, uintptr_t from, uintptr_t length)
{
	return (uintptr_t)pointer - from < length;
}

static void settings_moved(struct call_settings *settings, uintptr_t from, uintptr_t length, uintptr_t to)
{
	if (!settings || !lies_in(settings->shared, from, length))
		return;
	settings->setting_count = to ? settings->setting_count : 0;
	settings->setting = to ? (struct lorg_call_setting *)(to + ((uintptr_t)settings->setting - from)) : 0;
	settings->shared = to ? (struct lorg_control *)(to + ((uintptr_t)settings->shared - from)) : &no_settings;
	settings->size = to ? settings->size : sizeof no_settings;
}

void call_mapping_moved(uintptr_t from, uintptr_t length, uintptr_t to)
{
	for (uint32_t i = 0; i < __atomic_load_n(&target_count, __ATOMIC_ACQUIRE); i++) {
		struct call_target *target = call_target_at(i);
		if (!target)
			continue;
		settings_moved((struct call_settings *)(uintptr_t)target->settings, from, length, to);
		if (lies_in(target->control, from, length))
			__atomic_store_n(&target->control,
					 to ? (struct lorg_function_control *)(to + ((uintptr_t)target->control - from)) : &not_asked,
					 __ATOMIC_RELEASE);
		if (lies_in(target->plan, from, length)) {
			uintptr_t function = to + ((uintptr_t)target->plan_function - from);
			target->plan_function = to ? (const struct lorg_plan_function *)function : 0;
			target->plan = to ? (const struct lorg_plan *)(to + ((uintptr_t)target->plan - from)) : 0;
		}
	}
}

void call_target_set_body(uint32_t index, uint64_t body)
{
	struct call_target *target = call_target_at(index);
	if (target) /* release: whoever goes there finds the code */
		__atomic_store_n(&target->body, body, __ATOMIC_RELEASE);
}

void call_thunk_write(void *at, uint32_t index)
{
	/* endbr64; push 6(%rip) (the target); jmp *8(%rip) (the stub) */
	static const uint8_t code[16] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x35, 6, 0, 0, 0, 0xff, 0x25, 8, 0, 0, 0};
	uint64_t target = (uintptr_t)call_target_at(index);
	uint64_t stub = (uintptr_t)(((struct call_target *)target)->flags & LORG_PLAN_ENTRY_ONLY ? call_entry_only : call_entry);
	memcpy(at, code, sizeof code);
	memcpy((char *)at + sizeof code, &target, sizeof target);
	memcpy((char *)at + sizeof code + sizeof target, &stub, sizeof stub);
	call_fault_note((uintptr_t)at);
}

/* ---- in ---------------------------------------------------------------- */

HIDDEN int call_entered(struct call_registers *registers, struct lorg_packet *packet);
HIDDEN void call_returned(struct call_registers *registers);

enum {
	NEEDS_RETURN = LORG_CALL_RETURN | LORG_CALL_TIME | LORG_CALL_MEMORY | LORG_CALL_RETURN_TO,
	NEEDS_FRAME = LORG_CALL_VALUES | LORG_CALL_TIME | LORG_CALL_MEMORY | LORG_CALL_RETURN_TO | LORG_CALL_FILTER,
};

/* What is known of a call that is being entered. */
struct entering {
	struct thread *self;
	struct call_thread *call; /* NULL: no memory for it */
	struct call_target *target;
	struct call_registers *registers;
	uintptr_t slot;
	uint64_t caller; /* the true return address */
	uint64_t from;	 /* the same, or that of the wrapper of liblorg.so which it leads to; 0: not known */
	uint64_t entered; /* tick; 0: not stamped yet */
	uint64_t program_frame; /* its frame pointer */
	uint32_t gate;
	uint8_t tail;	  /* 1: a tail call: the stub's return point stands in the slot already */
	uint8_t has_shadow, recorded;
	struct call_verdict verdict;
	const struct call_asked *asked; /* by sessions of a lorgd; NULL: the function has none */
};

static void record_entry(struct entering *entering)
{
	struct thread *self = entering->self;
	if (entering->recorded || !(entering->gate & LORG_CALL_ENTRY) || entering->verdict.delayed)
		return;
	int values = entering->gate & LORG_CALL_VALUES;
	if (values || entering->verdict.message.length)
		entering->entered = value_write_call(self, entering->target, entering->registers, entering->from,
						     entering->target->kind << 16, values, entering->verdict.no_arguments,
						     entering->verdict.message);
	else
		event_write_word(self, LORG_EVENT_CALL_ENTRY, entering->target->function);
}

/* Without room for it nothing of the call's end is told. */
static void keep_asked(const struct entering *entering, struct call_frame *frame)
{
	const uint32_t ends = LORG_CALL_RETURN | LORG_CALL_RETURN_TO;
	if (!(entering->gate & ends))
		return;
	frame->asked = frame_asked(entering->call, frame);
	if (frame->asked)
		*frame->asked = *entering->asked;
	else
		frame->gate &= (uint8_t)~ends;
}

static void fill_frame(const struct entering *entering, struct call_frame *frame)
{
	struct call_thread *call = entering->call;
	frame->target = entering->target;
	frame->gate = (uint8_t)entering->gate;
	if (entering->asked)
		keep_asked(entering, frame);
	frame->delayed = entering->verdict.delayed;
	frame->no_exception = entering->verdict.no_exception;
	frame->limited = entering->verdict.limited;
	frame->least_ticks = entering->verdict.least_ticks;
	frame->depth = call->depth;
	call->depth += entering->verdict.counts_depth || (entering->gate & (LORG_CALL_ENTRY | LORG_CALL_RETURN)) != 0;
	frame->entered = entering->entered ? entering->entered : clock_now();
	if (frame->delayed && ((frame->gate & LORG_CALL_VALUES) || entering->verdict.message.length))
		value_keep_arguments(call, frame, entering->registers, entering->verdict.message);
	if (frame->gate & (LORG_CALL_TIME | LORG_CALL_MEMORY))
		count_enter(entering->self, call, frame);
}

/* 1: the function is to be called, so that its return is seen; 0: jumped to. */
static int open_frame(const struct entering *entering)
{
	uint64_t *owner = owner_word(entering->slot);
	struct call_frame *frame = 0;
	int needs_return = (entering->gate & NEEDS_RETURN) || entering->verdict.counts_depth;
	if (!entering->has_shadow || !needs_return || (entering->target->flags & LORG_PLAN_ENTRY_ONLY))
		return 0;
	int needs_frame = entering->tail || entering->asked || (entering->gate & NEEDS_FRAME);
	if (needs_frame && entering->call)
		frame = frame_take(entering->call, entering->slot);
	if (frame)
		fill_frame(entering, frame);
	else if (needs_frame && (entering->tail || entering->asked || !(entering->gate & LORG_CALL_RETURN) || entering->verdict.delayed))
		return 0;
	if (entering->tail) {
		frame->below = *owner;
		*owner = (uintptr_t)frame | OWNER_FRAME;
		return 0;
	}
	*owner = frame ? (uintptr_t)frame | OWNER_FRAME : (uintptr_t)entering->target;
	*return_word(entering->slot) = entering->caller;
	return 1;
}

/* call_count counts all threads, call_time and call_memory those with the flag. */
static void count_entry(struct entering *entering)
{
	const uint32_t of_processes = LORG_CALL_TIME | LORG_CALL_MEMORY;
	struct thread *self = entering->self;
	if (__builtin_expect(self->flags_matter, 0) && (entering->gate & of_processes) && !(process_flags(self) & LORG_TRACE_CALL))
		entering->gate &= ~of_processes;
	if (entering->gate & (LORG_CALL_COUNT | of_processes))
		count_call(self, entering->target);
}

static int tell_entry(struct entering *entering)
{
	count_entry(entering);
	record_entry(entering);
	return open_frame(entering);
}

/* Sessions of a lorgd ask, each by itself. Not inline: a run takes room on the stack, which the other calls do without. */
static __attribute__((noinline)) int enter_sessions(struct entering *entering)
{
	struct match_run run;
	struct call_told told;
	run.begun = 0;
	match_run_registers(&run, entering->registers, (uintptr_t)entering->program_frame);
	count_entry(entering);
	sessions_tell_entry(entering->self, entering->call, entering->target, entering->registers, entering->from, entering->recorded, &run,
			    &told);
	entering->gate = (entering->gate & (LORG_CALL_COUNT | LORG_CALL_TIME | LORG_CALL_MEMORY)) | told.gate;
	entering->entered = told.tick;
	entering->verdict.counts_depth = told.counts_depth;
	entering->asked = &told.asked;
	int result = open_frame(entering);
	if (run.begun)
		match_end(&run);
	return result;
}

/* Not inline, likewise. */
static __attribute__((noinline)) int enter_filtered(struct entering *entering)
{
	const uint32_t decided = LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_RETURN_TO;
	struct match_run run;
	run.begun = 0;
	match_run_registers(&run, entering->registers, (uintptr_t)entering->program_frame);
	entering->verdict = filter_call(entering->self, entering->call, entering->target, entering->gate, entering->from, &run);
	entering->gate &= entering->verdict.gate | ~decided;
	if (!(entering->gate & decided))
		entering->gate &= LORG_CALL_COUNT | LORG_CALL_TIME | LORG_CALL_MEMORY;
	int result = tell_entry(entering);
	if (run.begun)
		match_end(&run);
	return result;
}

static int enter(struct entering *entering)
{
	struct thread *self = entering->self;
	uint64_t address = *(uint64_t *)entering->slot;
	entering->tail = address == (uintptr_t)call_return;
	if (entering->gate & (NEEDS_FRAME | LORG_CALL_COUNT) || entering->tail)
		entering->call = call_thread(self);
	if (self->call && self->call->thrown_count)
		left_before(self, self->call, entering->slot);
	entering->has_shadow = (uint8_t)shadow_of(self, entering->slot);
	entering->caller = entering->tail && entering->has_shadow ? *return_word(entering->slot) : address;
	entering->from = entering->target->flags & LORG_PLAN_NO_CALLER
				 ? 0
				 : caller_outside(entering->caller, entering->slot, (uintptr_t)entering->program_frame);
	if (entering->gate & LORG_CALL_FILTER)
		return call_has_sessions(entering->target) ? enter_sessions(entering) : enter_filtered(entering);
	return tell_entry(entering);
}

int call_entered(struct call_registers *registers, struct lorg_packet *packet)
{
	struct call_target *target = (struct call_target *)(registers->word & ~1ul);
	struct entering entering;
	entering.target = target;
	entering.registers = registers;
	entering.slot = (uintptr_t)registers->slot;
	entering.program_frame = *(const uint64_t *)__builtin_frame_address(0);
	entering.recorded = registers->word & 1;
	entering.call = 0;
	entering.entered = 0;
	entering.verdict = (struct call_verdict){0};
	entering.asked = 0;
	registers->word = __atomic_load_n(&target->body, __ATOMIC_ACQUIRE);
	if (entering.recorded)
		event_finish_packet(packet, this_thread.process_index);
	entering.gate = __atomic_load_n(&target->control->gate, __ATOMIC_RELAXED);
	entering.self = entering.gate ? thread_self() : 0;
	if (!entering.self || entering.self->busy)
		return 0;
	return enter(&entering);
}

/* ---- out --------------------------------------------------------------- */

static void frame_returned(struct thread *self, struct call_frame *frame, const struct call_registers *registers, uint64_t caller)
{
	uint64_t now = frame->gate & LORG_CALL_TIME || frame->delayed ? clock_now() : 0;
	if (self->call)
		frame_close(self, self->call, frame, now);
	if (frame->asked) {
		if (frame->gate & LORG_CALL_RETURN)
			sessions_tell_return(self, frame, registers);
		return;
	}
	if (__builtin_expect(self->flags_matter, 0) && !(process_flags(self) & LORG_TRACE_CALL))
		return;
	if (frame->delayed && now - frame->entered < frame->least_ticks)
		return;
	int done = frame->delayed && (frame->gate & LORG_CALL_ENTRY);
	if (!done && !(frame->gate & LORG_CALL_RETURN))
		return;
	if (frame->limited && !filter_spend(self, frame->target, done ? 2 : 1)) /* CALL_DONE is two */
		return;
	if (done)
		value_write_done(self, self->call, frame, registers, caller);
	else if (frame->gate & LORG_CALL_VALUES)
		value_write_return(self, frame, registers, &(uint32_t){frame->target->kind << 16}, 1);
	else
		event_write_word(self, LORG_EVENT_RETURN, frame->target->function);
}

/* The calls that share the slot, the last one of a chain of tail calls first. self NULL: nothing is told. */
static void close_chain(struct thread *self, uintptr_t slot, const struct call_registers *registers, uint64_t caller)
{
	uint64_t owner = *owner_word(slot), sessions[LORG_SESSIONS / 64];
	int return_to = 0, asked = 0;
	for (struct call_frame *frame; (frame = owner_frame(owner)) != 0; owner = frame->below) {
		if (!frame_is_of(frame, slot))
			return;
		if (self) {
			frame_returned(self, frame, registers, caller);
			return_to |= (frame->gate & LORG_CALL_RETURN_TO) && !frame->delayed && !frame->asked;
			asked = __builtin_expect(frame->asked != 0, 0) ? sessions_add_return_to(sessions, frame, asked) : asked;
		}
		frame_free(self ? self->call : 0, frame);
	}
	if (!self)
		return;
	if (owner)
		event_write_word(self, LORG_EVENT_RETURN, owner_target(owner)->function);
	if (return_to && caller && (!self->flags_matter || (process_flags(self) & LORG_TRACE_RETURN_TO)))
		EVENT_WRITE(self, RETURN_TO, .address = caller);
	if (__builtin_expect(asked && caller, 0))
		sessions_tell_return_to(self, sessions, caller);
}

void call_returned(struct call_registers *registers)
{
	uintptr_t slot = (uintptr_t)&registers->word;
	struct lorg_packet *packet = (struct lorg_packet *)registers->word;
	uint64_t caller = *return_word(slot);
	uintptr_t program_frame = *(const uintptr_t *)__builtin_frame_address(0);
	registers->word = caller;
	struct thread *self = thread_self();
	if (packet) { /* the return of a plain call, recorded already */
		event_finish_packet(packet, this_thread.process_index);
		return;
	}
	if (self && self->busy)
		self = 0;
	close_chain(self, slot, registers, caller_outside(caller, slot, program_frame));
	if (self && self->call && self->call->thrown_count)
		left_settled(self->call, slot);
	/* Another thread's coroutine may have come here; and the short way may be open again. */
	if (self && (!self->call || !self->call->thrown_count) && shadow_known(slot))
		self->call_region = (uint32_t)(slot >> CALL_REGION_SHIFT);
}
