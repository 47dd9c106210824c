/* SPDX-License-Identifier: MIT */
/*
 * sessions.c: calls of functions that sessions of a lorgd ask for. Each of a function's settings is looked at by itself:
 * its kind, its session's flags of this process, its specification, its limits; each session that wants the call is told by
 * an event of its own, and at the end of the call those that have asked for it are. Where no setting has a specification
 * and nobody wants values, one common record serves all (the collector knows who wants it).
 *
 * What is decided when (trace(3)): silent at the call, call and return_to at each event. A meta session looks at no flags.
 */
#include "preload/call/inner.h"
#include "preload/call/match.h"
#include "preload/core/cpu_time.h"
#include "preload/core/lost.h"
#include "preload/hook.h"

static void set_session(uint64_t sessions[LORG_SESSIONS / 64], uint32_t slot)
{
	sessions[slot / 64] |= (uint64_t)1 << slot % 64;
}

/* ---- in ------------------------------------------------------------------------ */

/* One common record for all. */
enum lean { LEAN_NOT, LEAN_TO_WRITE, LEAN_WRITTEN, LEAN_LOST };

struct telling {
	struct thread *self;
	const struct call_thread *call;
	const struct call_target *target;
	const struct call_registers *registers;
	uint64_t caller;
	struct match_run *run;
	struct call_told *told;
	int lean; /* enum lean */
};

/* A setting as it was when it was looked at: the program may write to it at any time. */
struct asking {
	uint32_t slot; /* below LORG_SESSIONS */
	uint32_t kind, gate, program, declared;
};

/* One common record is all that anybody may want. */
static int is_lean(const struct call_target *target)
{
	uint32_t number = target->control->setting;
	if (target->control->gate & LORG_CALL_VALUES)
		return 0;
	for (int i = 0; number && i < SETTINGS_LOOKED_AT; i++) {
		const struct lorg_call_setting *setting = call_setting_at(target->settings, number);
		if (!setting)
			break;
		if (setting_may_tell(setting, target) && (setting->program || (setting->kind & LORG_KIND_META)))
			return 0;
		number = setting->next;
	}
	return 1;
}

static int in_range(const struct telling *telling, const struct lorg_call_setting *setting)
{
	if (setting->caller_high && (telling->caller < setting->caller_low || telling->caller >= setting->caller_high))
		return 0;
	return !setting->maximum_depth || (telling->call && telling->call->depth < setting->maximum_depth);
}

/* What a setting's specification says. */
struct said {
	int tells; /* 1: the call */
	int return_trace, exception_trace;
	struct event_bytes message;
};

/* 0: it does not match. */
static int ask_program(const struct telling *telling, const struct asking *asking, struct said *said)
{
	struct match_run *run = telling->run;
	*said = (struct said){.tells = 1, .return_trace = (asking->gate & LORG_CALL_RETURN) != 0,
			      .exception_trace = (asking->gate & LORG_CALL_RETURN) != 0};
	if (!asking->program)
		return 1;
	if (!match_call(run, telling->self, telling->target, asking->program, telling->caller, asking->slot, asking->declared))
		return 0;
	said->tells = run->told;
	said->return_trace |= run->evaluation.return_trace || run->evaluation.exception_trace;
	said->exception_trace |= run->evaluation.exception_trace;
	said->message = run->message;
	return 1;
}

static void ask_end(struct call_told *told, const struct asking *asking, const struct said *said)
{
	int meta = (asking->kind & LORG_KIND_META) != 0;
	if (said->return_trace)
		set_session(told->asked.set[meta ? ASKED_META_RETURN : ASKED_RETURN], asking->slot);
	if (said->exception_trace)
		set_session(told->asked.set[meta ? ASKED_META_EXCEPTION : ASKED_EXCEPTION], asking->slot);
	if (said->return_trace || said->exception_trace)
		told->gate |= LORG_CALL_RETURN;
	/* return_to is told of local calls that were reported. */
	if (!said->tells || meta || !(asking->kind & LORG_KIND_LOCAL) || !(asking->gate & LORG_CALL_RETURN_TO))
		return;
	set_session(told->asked.set[ASKED_RETURN_TO], asking->slot);
	told->gate |= LORG_CALL_RETURN_TO;
}

/* 0: it is lost. */
static int write_lean(struct thread *self, uint32_t function)
{
	return event_try_word(self, LORG_EVENT_CALL_ENTRY, function) ||
	       event_write(self, LORG_EVENT_CALL_ENTRY, &function, sizeof function, 0, 0, 0) != 0;
}

static void tell(struct telling *telling, const struct asking *asking, const struct said *said, uint32_t flags)
{
	const uint32_t kinds = LORG_KIND_LOCAL | LORG_KIND_GLOBAL | LORG_KIND_META;
	struct call_told *told = telling->told;
	uint64_t tick = 0;
	told->gate |= LORG_CALL_ENTRY;
	if (telling->lean == LEAN_TO_WRITE)
		telling->lean = write_lean(telling->self, telling->target->function) ? LEAN_WRITTEN : LEAN_LOST;
	if (telling->lean == LEAN_LOST)
		lost_for_session(telling->self, asking->slot);
	if (telling->lean)
		return;
	int arity = (flags & LORG_TRACE_ARITY) && !(asking->kind & LORG_KIND_META);
	tick = value_write_call(telling->self, telling->target, telling->registers, telling->caller,
				asking->slot | (asking->kind & kinds) << 16 | asking->declared << LORG_CALL_DECLARED_SHIFT, (asking->gate & LORG_CALL_VALUES) != 0, arity, said->message);
	if (!told->tick)
		told->tick = tick;
}

static void look_at(struct telling *telling, struct lorg_call_setting *setting)
{
	const volatile struct lorg_call_setting *shared = setting;
	const struct asking asking = {shared->session, shared->kind, shared->gate, shared->program, shared->declared & 31};
	int meta = (asking.kind & LORG_KIND_META) != 0;
	struct said said;
	if (!setting_may_tell(setting, telling->target) || asking.slot >= LORG_SESSIONS || !in_range(telling, setting))
		return;
	if (!meta && !(call_session_flags(telling->self, asking.slot) & LORG_TRACE_CALL))
		return;
	if (!ask_program(telling, &asking, &said))
		return;
	/* After the specification, whose changes hold for its own message already; taking away `call` does not stop it. */
	uint32_t flags = call_session_flags(telling->self, asking.slot);
	if (!meta && (flags & LORG_TRACE_SILENT))
		return;
	telling->told->counts_depth |= setting->maximum_depth != 0;
	if (said.tells && !filter_spend_one(telling->self, telling->target, setting, 1))
		return;
	if (said.tells)
		tell(telling, &asking, &said, flags);
	ask_end(telling->told, &asking, &said);
}

void sessions_tell_entry(struct thread *self, const struct call_thread *call, const struct call_target *target,
			 const struct call_registers *registers, uint64_t caller, int recorded, struct match_run *run,
			 struct call_told *told)
{
	struct telling telling = {self, call, target, registers, caller, run, told, recorded ? LEAN_WRITTEN : is_lean(target) ? LEAN_TO_WRITE : LEAN_NOT};
	uint32_t number = target->control->setting;
	*told = (struct call_told){0};
	cpu_time_heed(process_flags(self));
	for (int i = 0; number && i < SETTINGS_LOOKED_AT; i++) {
		struct lorg_call_setting *setting = call_setting_at(target->settings, number);
		if (!setting)
			return;
		number = setting->next;
		look_at(&telling, setting);
	}
}

/* ---- out ------------------------------------------------------------------------- */

/* The sessions of a set whose flags of this process are all on, or (meta) all; one entry each. Returns how many. */
static uint32_t list_of(const struct thread *self, const uint64_t sessions[LORG_SESSIONS / 64], uint32_t flags, uint32_t kind,
			uint32_t list[LORG_SESSIONS])
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < LORG_SESSIONS / 64; i++) {
		for (uint64_t rest = sessions[i]; rest; rest &= rest - 1) {
			uint32_t slot = i * 64 + (uint32_t)__builtin_ctzll(rest);
			if ((call_session_flags(self, slot) & flags) == flags)
				list[count++] = slot | kind << 16;
		}
	}
	return count;
}

/* `normal` and `meta` of what a call was asked. list: room for twice the sessions. */
static uint32_t list_end(const struct thread *self, const struct call_frame *frame, enum call_asked_set normal,
			 enum call_asked_set meta, uint32_t list[2 * LORG_SESSIONS])
{
	const struct call_asked *asked = __atomic_load_n(&frame->asked, __ATOMIC_RELAXED);
	uint32_t kind = frame->target->kind & (LORG_KIND_LOCAL | LORG_KIND_GLOBAL);
	if (!asked) /* left by a jump that was none, and another call's by now */
		return 0;
	uint32_t count = list_of(self, asked->set[normal], LORG_TRACE_CALL, kind, list);
	return count + list_of(self, asked->set[meta], 0, kind | LORG_KIND_META, list + count);
}

void sessions_tell_return(struct thread *self, const struct call_frame *frame, const struct call_registers *registers)
{
	uint32_t list[2 * LORG_SESSIONS], count = list_end(self, frame, ASKED_RETURN, ASKED_META_RETURN, list);
	if (count)
		value_write_return(self, frame, registers, list, count);
}

void sessions_tell_left(struct thread *self, const struct call_frame *frame, uint32_t kind, struct event_bytes type,
			struct event_bytes what)
{
	uint32_t list[2 * LORG_SESSIONS], count = list_end(self, frame, ASKED_EXCEPTION, ASKED_META_EXCEPTION, list);
	struct event_bytes bytes[] = {type, what};
	struct lorg_event_EXCEPTION_FROM event = {.since = frame->entered,
						  .function = frame->target->function,
						  .kind = kind,
						  .type_length = type.length,
						  .what_length = what.length};
	for (uint32_t i = 0; i < count; i++) {
		event.session_kind = list[i];
		event_write(self, LORG_EVENT_EXCEPTION_FROM, &event, sizeof event, bytes, 2, 0);
	}
}

void sessions_tell_return_to(struct thread *self, const uint64_t sessions[LORG_SESSIONS / 64], uint64_t address)
{
	uint32_t list[LORG_SESSIONS];
	uint32_t count = list_of(self, sessions, LORG_TRACE_CALL | LORG_TRACE_RETURN_TO, LORG_KIND_LOCAL, list);
	for (uint32_t i = 0; i < count; i++)
		EVENT_WRITE(self, RETURN_TO, .address = address, .session_kind = list[i]);
}
