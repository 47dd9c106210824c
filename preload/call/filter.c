/* SPDX-License-Identifier: MIT */
/*
 * filter.c: whether a call is told at all: caller, depth, limits, its match
 * specification, the process's flags; and whether only at its return, when it
 * has lasted long enough.
 *
 * The settings are memory that the program can scribble on: indices are
 * checked against the table as it was mapped.
 */
#include "preload/call/inner.h"
#include "preload/call/match.h"
#include "preload/hook.h"

enum { COUNTS = LORG_CALL_COUNT | LORG_CALL_TIME | LORG_CALL_MEMORY };

/*
 * The events are used up: what they were for is switched off here, and if that was all, who placed the function's patch
 * takes it out. Of a private collector that is the function, in a lorgd one session's setting.
 */
static void run_out(struct thread *self, const struct call_target *target, struct lorg_call_setting *setting, int rate)
{
	uint32_t *gate = setting->session ? &setting->gate : &target->control->gate;
	/* The one that switches it off says so. */
	if (!(__atomic_fetch_and(gate, (uint32_t)COUNTS, __ATOMIC_RELAXED) & ~(uint32_t)COUNTS))
		return;
	/* Release: who sees the count finds the gate shut. */
	__atomic_fetch_add(&target->settings->shared->idle, 1, __ATOMIC_RELEASE);
	EVENT_WRITE(self, LIMIT, .value = rate ? setting->limit_rate : setting->limit_events, .session = setting->session,
		    .kind = (uint32_t)rate, .function = target->function);
}

/* Takes `count` events of the setting's budget. 0: there are none left. */
static int spend_events(struct thread *self, const struct call_target *target, struct lorg_call_setting *setting, uint32_t count)
{
	if (!setting->limit_events)
		return 1;
	/* Relaxed: a count, shared by the threads of all images that have the control. */
	uint64_t before = __atomic_fetch_add(&setting->events, count, __ATOMIC_RELAXED);
	if (before + count >= setting->limit_events)
		run_out(self, target, setting, 0);
	return before + count <= setting->limit_events;
}

static int spend_rate(struct thread *self, const struct call_target *target, struct lorg_call_setting *setting, uint32_t count)
{
	if (!setting->limit_rate)
		return 1;
	uint64_t now = clock_now(), window = __atomic_load_n(&setting->window, __ATOMIC_RELAXED);
	/* Relaxed: whoever moves the window on counts from zero; a few events more or less at its border do not matter. */
	if (now - window > the_arena.clock.frequency &&
	    __atomic_compare_exchange_n(&setting->window, &window, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		__atomic_store_n(&setting->window_events, 0, __ATOMIC_RELAXED);
	uint64_t before = __atomic_fetch_add(&setting->window_events, count, __ATOMIC_RELAXED);
	if (before + count >= setting->limit_rate)
		run_out(self, target, setting, 1);
	return before + count <= setting->limit_rate;
}

static int has_limit(const struct lorg_call_setting *setting)
{
	return setting->limit_events || setting->limit_rate;
}

/* A function has one budget, kept in the first of its settings that have a limit. */
static struct lorg_call_setting *budget_of(const struct call_target *target)
{
	struct lorg_call_setting *setting = 0;
	uint32_t number = target->settings ? target->control->setting : 0;
	for (int i = 0; number && i < SETTINGS_LOOKED_AT && (setting = call_setting_at(target->settings, number)) && !has_limit(setting); i++)
		number = setting->next;
	return setting && has_limit(setting) ? setting : 0;
}

int filter_spend_one(struct thread *self, const struct call_target *target, struct lorg_call_setting *setting, uint32_t count)
{
	return spend_events(self, target, setting, count) && spend_rate(self, target, setting, count);
}

int filter_spend(struct thread *self, const struct call_target *target, uint32_t count)
{
	struct lorg_call_setting *setting = budget_of(target);
	return !setting || filter_spend_one(self, target, setting, count);
}

static int wants(const struct lorg_call_setting *setting, const struct call_target *target, const struct call_thread *call,
		 uint64_t caller)
{
	if (!setting_may_tell(setting, target))
		return 0;
	if (setting->caller_high && (caller < setting->caller_low || caller >= setting->caller_high))
		return 0;
	return !setting->maximum_depth || (call && call->depth < setting->maximum_depth);
}

/* What one setting asks for of this call; 0: nothing. */
struct wish {
	uint32_t gate;
	uint8_t no_exception;
	struct event_bytes message;
};

static struct wish wish_of(const struct lorg_call_setting *setting, uint32_t gate, struct match_run *run, struct thread *self,
			   const struct call_target *target, uint64_t caller)
{
	const uint32_t returns = LORG_CALL_RETURN | LORG_CALL_RETURN_TO;
	struct wish wish = {.gate = gate};
	if (!setting->program)
		return wish;
	if (!match_call(run, self, target, setting->program, caller, 0, 0))
		return (struct wish){0};
	const struct lorg_match_evaluation *said = &run->evaluation;
	int of_program = said->return_trace || said->exception_trace;
	/* return_to needs a call that was reported. */
	if (!run->told)
		wish.gate &= ~(uint32_t)(LORG_CALL_ENTRY | LORG_CALL_RETURN_TO);
	if (!(setting->gate & LORG_CALL_RETURN) && !of_program)
		wish.gate &= ~(uint32_t)LORG_CALL_RETURN;
	if (!run->told && !of_program)
		wish.gate &= ~returns;
	wish.no_exception = !(setting->gate & LORG_CALL_RETURN) && !said->exception_trace;
	wish.message = run->message;
	return wish;
}

static void join(struct call_verdict *verdict, const struct wish *wish, const struct lorg_call_setting *setting, int may_delay)
{
	verdict->no_exception = verdict->gate & LORG_CALL_RETURN ? verdict->no_exception && wish->no_exception : wish->no_exception;
	verdict->gate |= wish->gate;
	if (wish->message.length)
		verdict->message = wish->message;
	if (!setting->least_ticks || !may_delay)
		verdict->delayed = 0;
	else if (setting->least_ticks < verdict->least_ticks)
		verdict->least_ticks = setting->least_ticks;
}

/* The first setting of a session that wants the call decides for it: others of the same differ by the caller alone. */
static void ask_settings(struct call_verdict *verdict, struct thread *self, const struct call_thread *call,
			 const struct call_target *target, uint32_t gate, uint64_t caller, struct match_run *run)
{
	uint32_t number = target->control->setting;
	for (int i = 0; number && i < SETTINGS_LOOKED_AT; i++) {
		struct lorg_call_setting *setting = call_setting_at(target->settings, number);
		if (!setting || setting_is_free(setting))
			return;
		number = setting->next;
		if (!wants(setting, target, call, caller))
			continue;
		struct wish wish = wish_of(setting, gate, run, self, target, caller);
		if (!wish.gate && setting->program)
			return;
		/* What is told at the return is spent there. */
		int now = (wish.gate & LORG_CALL_ENTRY) && !(setting->least_ticks && call);
		verdict->counts_depth |= setting->maximum_depth != 0;
		verdict->limited |= has_limit(setting);
		if (!now || !has_limit(setting) || filter_spend(self, target, 1))
			join(verdict, &wish, setting, call != 0);
		if (setting->program)
			return;
	}
}

/* After the specification: the flags that it has set hold for its own message already. */
static void heed_flags(struct call_verdict *verdict, uint32_t flags)
{
	if (flags & LORG_TRACE_SILENT)
		verdict->gate = 0;
	verdict->no_arguments = (flags & LORG_TRACE_ARITY) != 0;
}

struct call_verdict filter_call(struct thread *self, const struct call_thread *call, const struct call_target *target,
				uint32_t gate, uint64_t caller, struct match_run *run)
{
	const uint32_t decided = LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_RETURN_TO;
	struct call_verdict verdict = {.delayed = 1, .least_ticks = UINT64_MAX};
	uint32_t matters = self->flags_matter;
	gate &= decided;
	if (matters && !(process_flags(self) & LORG_TRACE_CALL))
		return (struct call_verdict){0};
	if (target->settings && target->control->setting)
		ask_settings(&verdict, self, call, target, gate, caller, run);
	else /* nobody says what to filter */
		verdict = (struct call_verdict){.gate = gate};
	if (matters)
		heed_flags(&verdict, process_flags(self));
	if (!verdict.delayed || !verdict.gate) {
		verdict.delayed = 0;
		verdict.least_ticks = 0;
	} else {
		verdict.gate |= gate & LORG_CALL_RETURN; /* it is told there */
	}
	return verdict;
}
