/* SPDX-License-Identifier: MIT */
/*
 * return.c: calls that are left without a return: by an exception, longjmp,
 * pthread_exit, cancellation.
 *
 * There is no list of open calls. Those that were left between two stack
 * pointers are the words of the shadow between them that are not zero, the
 * innermost first. They are only marked: should one return after all (its
 * stack was another's, a coroutine's), it returns.
 *
 * An exception passes cleanups on its way, which may call hooked functions and
 * throw and catch exceptions of their own: `thrown` keeps how far each has
 * been followed.
 */
#include "preload/call/inner.h"
#include "preload/call/match.h"
#include "preload/hook.h"
#include "preload/hooks/exception.h"

enum {
	UNKNOWN_DISTANCE = 1 << 20, /* looked back where the beginning is not known */
	LOOK_AHEAD = 4096,	    /* bytes above a cleanup's call */
	OWN_STACK = 8 << 20, /* of a thread's stack, where it is not known how large it is */
	REGION_SIZE = 1 << CALL_REGION_SHIFT,
};

/* What is said of the calls that are left. */
struct leaving {
	struct thread *self;
	struct call_thread *call; /* may be NULL */
	enum call_left kind;
	struct event_bytes type, what;
	int return_to; /* 1: somebody wants to know who goes on */
	int asked;	 /* 1: `sessions` are those of a lorgd that do */
	uint64_t sessions[LORG_SESSIONS / 64];
};

void frame_close(struct thread *self, struct call_thread *call, struct call_frame *frame, uint64_t now)
{
	if (frame->gate & (LORG_CALL_TIME | LORG_CALL_MEMORY))
		count_leave(self, call, frame, now);
	call->depth = frame->depth;
}

static void tell_left(const struct leaving *leaving, uint32_t function, uint64_t since)
{
	struct event_bytes bytes[] = {leaving->type, leaving->what};
	struct lorg_event_EXCEPTION_FROM event = {.since = since,
						  .function = function,
						  .kind = leaving->kind,
						  .type_length = leaving->type.length,
						  .what_length = leaving->what.length};
	event_write(leaving->self, LORG_EVENT_EXCEPTION_FROM, &event, sizeof event, bytes, 2, 0);
}

/* Whoever has asked for it is told who goes on: once, however many calls are left. */
static void tell_return_to(const struct leaving *leaving, uint64_t address)
{
	if (leaving->return_to)
		EVENT_WRITE(leaving->self, RETURN_TO, .address = address);
	if (leaving->asked)
		sessions_tell_return_to(leaving->self, leaving->sessions, address);
}

static void leave_frame(struct leaving *leaving, struct call_frame *frame, uint64_t caller)
{
	uint64_t now = clock_now();
	if (leaving->call)
		frame_close(leaving->self, leaving->call, frame, now);
	if (frame->asked) {
		leaving->asked = sessions_add_return_to(leaving->sessions, frame, leaving->asked);
		sessions_tell_left(leaving->self, frame, leaving->kind, leaving->type, leaving->what);
		return;
	}
	if (frame->delayed && now - frame->entered < frame->least_ticks)
		return;
	if (leaving->self->flags_matter && !(process_flags(leaving->self) & LORG_TRACE_CALL))
		return;
	int tells = (frame->gate & LORG_CALL_RETURN) && !frame->no_exception, done = frame->delayed && (frame->gate & LORG_CALL_ENTRY);
	if (frame->limited && tells + done && !filter_spend(leaving->self, frame->target, (uint32_t)(tells + done)))
		return;
	if (done)
		value_write_done(leaving->self, leaving->call, frame, 0, caller);
	if (frame->gate & LORG_CALL_RETURN_TO)
		leaving->return_to = 1;
	if (tells)
		tell_left(leaving, frame->target->function, frame->entered);
}

static void leave_slot(struct leaving *leaving, uintptr_t slot)
{
	uint64_t *word = owner_word(slot), owner = *word;
	uint64_t caller = *return_word(slot);
	if (owner & OWNER_LEFT)
		return;
	*word = owner | OWNER_LEFT;
	for (struct call_frame *frame; (frame = owner_frame(owner)) != 0; owner = frame->below) {
		if (!frame_is_of(frame, slot))
			return;
		leave_frame(leaving, frame, caller);
		if (leaving->call)
			value_drop_arguments(leaving->call, frame);
		__atomic_store_n(&frame->state, CALL_FRAME_LEFT, __ATOMIC_RELEASE);
	}
	if (owner)
		tell_left(leaving, owner_target(owner)->function, 0);
}

/* All calls that are open with slots in [low, high), as far as the shadow reaches. */
static void leave_between(struct leaving *leaving, uintptr_t low, uintptr_t high)
{
	low = (low + 7) & ~(uintptr_t)7;
	while (low < high) {
		uintptr_t end = (low | (REGION_SIZE - 1)) + 1;
		if (end > high)
			end = high;
		if (!shadow_known(low)) /* where the beginning is a guess it may lie in none */
			low = end;
		for (; low < end; low += 8)
			if (*return_word(low))
				leave_slot(leaving, low);
	}
}

/*
 * From where to look, when the frame at `to` goes on and `from` was the stack pointer where it began. Another stack
 * (a handler's own) lies anywhere: then a piece of the one that goes on.
 */
static uintptr_t begin_of(const struct call_thread *call, uintptr_t from, uintptr_t to)
{
	int same = from <= to && to - from < UNKNOWN_DISTANCE;
	if (!same && from && from <= to && call && call->stack_high) /* nothing of others lies in the thread's own stack */
		same = to <= call->stack_high && call->stack_high - from < OWN_STACK;
	if (same)
		return from;
	return to > UNKNOWN_DISTANCE ? to - UNKNOWN_DISTANCE : 0;
}

/* ---- exceptions -------------------------------------------------------- */

void call_raised(struct thread *self, uintptr_t stack, const void *object, const void *type)
{
	struct call_thread *call = call_targets_exist() ? call_thread(self) : 0;
	if (!call)
		return;
	if (call->thrown_count == CALL_THROWN) { /* the oldest is forgotten */
		memmove(call->thrown, call->thrown + 1, (CALL_THROWN - 1) * sizeof *call->thrown);
		call->thrown_count--;
	}
	call->thrown[call->thrown_count] = (struct call_thrown){stack, object, type};
	call->thrown_count++;
	self->call_region = 0; /* every entry takes the long way from now on */
}

static void describe(struct leaving *leaving, const struct call_thrown *thrown)
{
	leaving->type = exception_type_name(thrown->type);
	leaving->what = exception_what(thrown->object, thrown->type);
}

static void thrown_advance(struct leaving *leaving, struct call_thrown *thrown, uintptr_t to)
{
	const struct call_thread *call = leaving->call;
	uintptr_t low = begin_of(call, thrown->stack, to);
	describe(leaving, thrown);
	if (low != thrown->stack && call && thrown->stack >= call->alternate_low && thrown->stack < call->alternate_high)
		leave_between(leaving, thrown->stack, call->alternate_high); /* what the handler has called */
	leave_between(leaving, low, to);
	thrown->stack = to;
}

/*
 * A cleanup that calls further functions has its calls below frames that are left already. Where their slots have been
 * used for something else that can be seen; they and all below them are left. Returns the end of those, 0: none.
 */
static uintptr_t end_of_overwritten(const struct call_thread *call, uintptr_t slot)
{
	uintptr_t end = (slot | (LOOK_AHEAD - 1)) + 1, found = 0;
	/* Not beyond this stack: what is there may be gone. */
	if (slot < call->stack_high && call->stack_high - slot < OWN_STACK)
		end = call->stack_high - slot < LOOK_AHEAD ? call->stack_high : slot + LOOK_AHEAD;
	for (uintptr_t at = slot + 8; at < end && shadow_known(at); at += 8)
		if (*return_word(at) && !(*owner_word(at) & OWNER_LEFT) && *(const uint64_t *)at != (uintptr_t)call_return)
			found = at + 8;
	return found;
}

void left_before(struct thread *self, struct call_thread *call, uintptr_t slot)
{
	struct call_thrown *thrown = &call->thrown[call->thrown_count - 1];
	struct leaving leaving = {.self = self, .call = call, .kind = CALL_LEFT_THROW};
	uintptr_t end = end_of_overwritten(call, slot);
	/* What the unwinder itself calls stands below the frame that has thrown. */
	if (!end && slot + 8 > thrown->stack && slot + 8 - thrown->stack <= UNKNOWN_DISTANCE)
		end = slot + 8;
	if (end > thrown->stack)
		thrown_advance(&leaving, thrown, end);
}

void left_settled(struct call_thread *call, uintptr_t slot)
{
	/* A cleanup that returns has its slot below the point that was reached when it was called. */
	while (call->thrown_count && slot >= call->thrown[call->thrown_count - 1].stack &&
	       slot - call->thrown[call->thrown_count - 1].stack < UNKNOWN_DISTANCE)
		call->thrown_count--;
}

void call_caught(struct thread *self, uintptr_t stack, uintptr_t address)
{
	struct call_thread *call = self->call;
	struct leaving leaving = {.self = self, .call = call, .kind = CALL_LEFT_THROW};
	match_left(self, stack);
	if (call)
		count_jumped(self, call, stack);
	if (!call || !call->thrown_count)
		return;
	thrown_advance(&leaving, &call->thrown[--call->thrown_count], stack);
	tell_return_to(&leaving, address);
}

static int on_one_stack(const struct call_thread *call, uintptr_t low, uintptr_t high)
{
	if (!call)
		return 0;
	int own = call->stack_high && high <= call->stack_high && call->stack_high - low < OWN_STACK;
	int alternate = low >= call->alternate_low && high <= call->alternate_high;
	return own || alternate;
}

/* A handler on the signal stack jumps back to the thread's own: what stands below there is over, and what the handler has called. */
static int from_signal_stack(const struct call_thread *call, uintptr_t stack, uintptr_t to)
{
	return call && call->stack_high && stack >= call->alternate_low && stack < call->alternate_high &&
	       to <= call->stack_high && call->stack_high - to < OWN_STACK && (to < call->alternate_low || to >= call->alternate_high);
}

/* ---- jumps and ends ---------------------------------------------------- */

void call_jumped(struct thread *self, uintptr_t stack, uintptr_t to, uintptr_t address)
{
	struct leaving leaving = {.self = self, .call = self->call, .kind = CALL_LEFT_LONGJMP};
	match_left(self, to);
	if (self->call)
		count_jumped(self, self->call, to);
	if (call_targets_exist() && from_signal_stack(self->call, stack, to)) {
		leave_between(&leaving, stack, self->call->alternate_high);
		leave_between(&leaving, to > UNKNOWN_DISTANCE ? to - UNKNOWN_DISTANCE : 0, to);
		if (address)
			tell_return_to(&leaving, address);
		return;
	}
	/* A jump to a stack that is not this one is a switch of coroutines: nothing is left. So both must be known as one. */
	if (!call_targets_exist() || to <= stack || !on_one_stack(self->call, stack, to))
		return;
	leave_between(&leaving, stack, to);
	if (address)
		tell_return_to(&leaving, address);
}

void call_thread_left(struct thread *self, uintptr_t stack, int cancelled)
{
	struct call_thread *call = self->call;
	struct leaving leaving = {.self = self, .call = call, .kind = cancelled ? CALL_LEFT_CANCELLED : CALL_LEFT_EXIT};
	if (!call_targets_exist())
		return;
	uintptr_t high = call && call->stack_high > stack ? call->stack_high : (stack | (REGION_SIZE - 1)) + 1;
	leave_between(&leaving, stack, high);
}

/* ---- backtrace --------------------------------------------------------- */

int call_address_is_own(uintptr_t address)
{
	return address_is_own(address);
}

int call_backtrace_filter(void **addresses, int count)
{
	int kept = 0;
	for (int i = 0; i < count; i++) {
		if (!address_is_own((uint64_t)addresses[i]))
			addresses[kept++] = addresses[i];
	}
	return kept;
}
