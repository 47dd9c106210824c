/* SPDX-License-Identifier: MIT */
/*
 * quick.c: the decision about a filtered call before anything is saved, stamped or begun for it. See quick.h.
 *
 * It knows: callers, depth, process flags, and specifications that look at nothing but whole numbers in registers. What it
 * does not know, and all that takes more than a common record to tell, is the long way's (filter.c), which decides anew:
 * both come to the same. No function here copies or clears memory by
 * string instructions: the direction flag is the program's.
 */
#include "preload/call/quick.h"

#include "preload/call/match.h"
#include "preload/core/cpu_time.h"

enum quick { QUICK_NO, QUICK_YES, QUICK_UNKNOWN };

enum { STACK = 8, RANGES_LOOKED_AT = 16 };

/* ---- specifications --------------------------------------------------------- */

/* rdi, rsi, rdx, rcx, r8, r9, as words of struct quick_registers. */
static const uint8_t register_places[6] = {5, 6, 7, 8, 4, 2};

static inline uint64_t integer_register(const struct quick_registers *saved, uint32_t index)
{
	return ((const uint64_t *)saved)[register_places[index]];
}

/* A call's arguments as far as they are known here. */
struct arguments {
	const struct lorg_capture *capture;
	const struct quick_registers *saved;
	uint32_t count;
};

struct machine {
	struct arguments arguments;
	const struct lorg_match_program *program;
	uint64_t caller; /* the return address; 0: there is none */
	uint32_t position, next, top;
	lorg_term stack[STACK];
};

/* LORG_NONE: not known here. */
static inline lorg_term slot_of(const struct arguments *arguments, uint16_t which)
{
	uint32_t index = which & ~LORG_MATCH_SLOT_ARGUMENT;
	if (!(which & LORG_MATCH_SLOT_ARGUMENT) || index >= arguments->count)
		return LORG_NONE;
	const struct lorg_capture *capture = arguments->capture + index;
	if (capture->place != LORG_PLACE_INTEGER || capture->index >= 6)
		return LORG_NONE;
	return value_simple_term(capture, integer_register(arguments->saved, capture->index));
}

static inline lorg_term constant_of(const struct lorg_match_program *program, uint32_t which)
{
	return which < program->constant_words ? __atomic_load_n(&program->constants[which], __ATOMIC_RELAXED) : LORG_NONE;
}

static inline enum quick compare_small(uint32_t compare, lorg_term x, lorg_term y)
{
	int64_t a = (int64_t)x, b = (int64_t)y;
	if (!lorg_is_small(x) || !lorg_is_small(y))
		return QUICK_UNKNOWN;
	switch (compare) {
	case LORG_MATCH_LESS: return a < b ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_LESS_OR_EQUAL: return a <= b ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_GREATER: return a > b ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_GREATER_OR_EQUAL: return a >= b ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_EQUAL:
	case LORG_MATCH_EXACTLY: return a == b ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_NOT_EQUAL:
	case LORG_MATCH_NOT_EXACTLY: return a != b ? QUICK_YES : QUICK_NO;
	default: return QUICK_UNKNOWN;
	}
}

static inline enum quick test_small(uint32_t test, lorg_term term)
{
	if (!lorg_is_small(term))
		return QUICK_UNKNOWN;
	return test == LORG_MATCH_IS_INTEGER || test == LORG_MATCH_IS_NUMBER ? QUICK_YES : QUICK_NO;
}

/* In what follows QUICK_YES is: go on with the next instruction. */
static inline enum quick push(struct machine *machine, lorg_term term)
{
	if (term == LORG_NONE || machine->top >= STACK)
		return QUICK_UNKNOWN;
	machine->stack[machine->top++] = term;
	return QUICK_YES;
}

static inline lorg_term pop(struct machine *machine)
{
	return machine->top ? machine->stack[--machine->top] : LORG_NONE;
}

static inline enum quick push_answer(struct machine *machine, enum quick answer)
{
	return answer == QUICK_UNKNOWN ? answer : push(machine, lorg_boolean(answer == QUICK_YES));
}

static inline enum quick compare(struct machine *machine, uint32_t which)
{
	lorg_term x = pop(machine), y = pop(machine);
	return push_answer(machine, compare_small(which, x, y));
}

static inline enum quick same(lorg_term x, lorg_term y)
{
	return compare_small(LORG_MATCH_EXACTLY, x, y);
}

static inline enum quick guard(struct machine *machine)
{
	lorg_term term = pop(machine);
	return term == LORG_TRUE ? QUICK_YES : term == LORG_FALSE ? QUICK_NO : QUICK_UNKNOWN;
}

/* and, or, not of booleans: all of their arguments count, and none of them fails. */
static inline enum quick call_boolean(struct machine *machine, uint32_t function, uint32_t count)
{
	int all = 1, any = 0;
	if (function != LORG_MATCH_AND && function != LORG_MATCH_OR && (function != LORG_MATCH_NOT || count != 1))
		return QUICK_UNKNOWN;
	for (uint32_t i = 0; i < count; i++) {
		lorg_term term = pop(machine);
		if (!lorg_is_boolean(term))
			return QUICK_UNKNOWN;
		all &= term == LORG_TRUE;
		any |= term == LORG_TRUE;
	}
	return push(machine, lorg_boolean(function == LORG_MATCH_AND ? all : function == LORG_MATCH_OR ? any : !all));
}

static inline enum quick branch(struct machine *machine, lorg_term goes_on, uint32_t target)
{
	lorg_term term = pop(machine);
	if (!lorg_is_boolean(term) || target < machine->position || target >= machine->next)
		return QUICK_UNKNOWN;
	if (term == goes_on)
		return QUICK_YES;
	machine->position = target;
	return push(machine, term);
}

static inline enum quick caller_in(struct machine *machine, uint32_t how, uint32_t count, uint32_t start)
{
	const struct lorg_match_program *program = machine->program;
	int in = machine->caller == 0 && (how & LORG_MATCH_CALLER_UNDEFINED);
	if (count > RANGES_LOOKED_AT || start > program->range_count || count > program->range_count - start ||
	    address_is_own(machine->caller))
		return QUICK_UNKNOWN;
	for (uint32_t i = start; i < start + count && machine->caller; i++)
		in |= machine->caller - 1 >= program->ranges[i].first && machine->caller - 1 <= program->ranges[i].last;
	return push(machine, lorg_boolean(in != !!(how & LORG_MATCH_CALLER_NOT)));
}

static inline enum quick begin_clause(struct machine *machine, uint32_t next)
{
	if (next < machine->position || next > machine->program->code_words)
		return QUICK_UNKNOWN;
	machine->next = next;
	machine->top = 0;
	return QUICK_YES;
}

/* QUICK_NO: the clause does not hold. As in preload/match/evaluate.c, where all is explained. */
static inline enum quick execute(struct machine *machine, lorg_match_instruction instruction)
{
	uint8_t a = lorg_match_a(instruction);
	uint16_t b = lorg_match_b(instruction);
	uint32_t c = lorg_match_c(instruction);
	switch (lorg_match_operation_of(instruction)) {
	case LORG_MATCH_CLAUSE: return begin_clause(machine, c);
	case LORG_MATCH_HEAD_COUNT: return machine->arguments.count == c ? QUICK_YES : QUICK_NO;
	case LORG_MATCH_GUARD_COMPARE: return compare_small(a, slot_of(&machine->arguments, b), constant_of(machine->program, c));
	case LORG_MATCH_GUARD_TEST: return test_small(a, slot_of(&machine->arguments, b));
	case LORG_MATCH_SAME: return same(pop(machine), slot_of(&machine->arguments, b));
	case LORG_MATCH_LITERAL: return same(pop(machine), constant_of(machine->program, c));
	case LORG_MATCH_PUSH: return push(machine, slot_of(&machine->arguments, b));
	case LORG_MATCH_CONSTANT: return push(machine, constant_of(machine->program, c));
	case LORG_MATCH_COMPARE: return compare(machine, a);
	case LORG_MATCH_CALL: return call_boolean(machine, a, b);
	case LORG_MATCH_AND_ALSO: return branch(machine, LORG_TRUE, c);
	case LORG_MATCH_OR_ELSE: return branch(machine, LORG_FALSE, c);
	case LORG_MATCH_CALLER_IN: return caller_in(machine, a, b, c);
	case LORG_MATCH_GUARD: return guard(machine);
	case LORG_MATCH_POP: return pop(machine) != LORG_NONE ? QUICK_YES : QUICK_UNKNOWN;
	case LORG_MATCH_BODY: return QUICK_YES;
	default: return QUICK_UNKNOWN;
	}
}

/* Whether a clause matches whose body does nothing. */
static __attribute__((noinline)) enum quick evaluate(const struct lorg_match_program *program, const struct arguments *arguments,
						   uint64_t caller)
{
	struct machine machine;
	machine.arguments.capture = arguments->capture;
	machine.arguments.saved = arguments->saved;
	machine.arguments.count = arguments->count;
	machine.program = program;
	machine.caller = caller;
	machine.position = machine.next = machine.top = 0;
	while (machine.position < program->code_words) {
		lorg_match_instruction instruction = __atomic_load_n(&program->code[machine.position++], __ATOMIC_RELAXED);
		if (lorg_match_operation_of(instruction) == LORG_MATCH_ACCEPT)
			return QUICK_YES;
		enum quick outcome = execute(&machine, instruction);
		if (outcome == QUICK_UNKNOWN || machine.next < machine.position)
			return QUICK_UNKNOWN;
		if (outcome == QUICK_NO)
			machine.position = machine.next;
	}
	return QUICK_NO;
}

/*
 * Most programs are one clause that compares arguments with constants: what those come to for one function is known once
 * its first call has gone the long way. Taken with a CAS of `target`; `ready` is stored last, and all stays as it is.
 */
enum { TESTS = 3, KNOWN_BITS = 10, KNOWN = 1 << KNOWN_BITS };
static struct known_tests {
	const struct call_target *target;
	const void *memory; /* of the program, and its number */
	uint32_t number;
	uint8_t ready;
	uint8_t count;	 /* of tests; 0: none is of this kind */
	uint8_t is_all;	 /* 1: where they hold, the call matches, and that is all */
	struct {
		uint8_t word;	 /* of struct quick_registers */
		uint8_t unused;	 /* bits of it, the upper ones */
		uint8_t is_signed;
		uint8_t compare;
	} test[TESTS];
	int64_t constant[TESTS];
} known_tests[KNOWN];

static inline struct known_tests *known_place(const struct call_target *target, uint32_t number)
{
	return &known_tests[((uint32_t)((uintptr_t)target >> 6) + number * 0x85ebca6bu) * 0x9e3779b1u >> (32 - KNOWN_BITS)];
}

/* As value_simple_term() and compare_small() would say. */
static inline enum quick test_holds(const struct known_tests *known, uint32_t i, const struct quick_registers *saved)
{
	uint64_t word = ((const uint64_t *)saved)[known->test[i].word] << known->test[i].unused;
	int64_t value = known->test[i].is_signed ? (int64_t)word >> known->test[i].unused : (int64_t)(word >> known->test[i].unused);
	if (!lorg_fits_small(value) || (value < 0 && !known->test[i].is_signed))
		return QUICK_UNKNOWN;
	return compare_small(known->test[i].compare, lorg_small(value), lorg_small(known->constant[i]));
}

static inline enum quick tests_hold(const struct known_tests *known, const struct quick_registers *saved)
{
	enum quick answer = known->is_all ? QUICK_YES : QUICK_UNKNOWN;
	for (uint32_t i = 0; i < known->count; i++) {
		enum quick holds = test_holds(known, i, saved);
		if (holds != QUICK_YES)
			return holds;
	}
	return answer;
}

static int learn_test(struct known_tests *known, const struct arguments *arguments, lorg_match_instruction instruction, lorg_term constant)
{
	uint32_t index = lorg_match_b(instruction) & ~LORG_MATCH_SLOT_ARGUMENT, i = known->count;
	if (i == TESTS || !(lorg_match_b(instruction) & LORG_MATCH_SLOT_ARGUMENT) || index >= arguments->count || !lorg_is_small(constant))
		return 0;
	const struct lorg_capture *capture = arguments->capture + index;
	int is_signed = capture->form == LORG_FORM_SIGNED || capture->form == LORG_FORM_DESCRIPTOR;
	int is_unsigned = capture->form == LORG_FORM_UNSIGNED || capture->form == LORG_FORM_POINTER || capture->form == LORG_FORM_CODE;
	if (capture->place != LORG_PLACE_INTEGER || capture->index >= 6 || !capture->size || capture->size > 8 || !(is_signed || is_unsigned))
		return 0;
	known->test[i].word = register_places[capture->index];
	known->test[i].unused = (uint8_t)(64 - 8 * capture->size);
	known->test[i].is_signed = (uint8_t)is_signed;
	known->test[i].compare = lorg_match_a(instruction);
	known->constant[i] = lorg_small_value(constant);
	known->count++;
	return 1;
}

/* One clause: the number of arguments, comparisons, the end. */
static void learn(struct known_tests *known, const struct arguments *arguments, const struct lorg_match_program *program)
{
	for (uint32_t i = 0; i < program->code_words; i++) {
		lorg_match_instruction instruction = __atomic_load_n(&program->code[i], __ATOMIC_RELAXED);
		uint32_t c = lorg_match_c(instruction);
		switch (lorg_match_operation_of(instruction)) {
		case LORG_MATCH_CLAUSE:
			if (i != 0 || c != program->code_words)
				return;
			break;
		case LORG_MATCH_HEAD_COUNT:
			if (arguments->count != c)
				return;
			break;
		case LORG_MATCH_GUARD_COMPARE:
			if (!learn_test(known, arguments, instruction, constant_of(program, c)))
				return;
			break;
		case LORG_MATCH_BODY: break;
		case LORG_MATCH_ACCEPT: known->is_all = 1; return;
		default: return;
		}
	}
}

void call_quick_learn(const struct call_target *target, uint32_t declared, const void *memory, const struct lorg_match_program *program)
{
	const uint32_t number = match_number(memory);
	struct known_tests *known = known_place(target, number);
	const struct call_target *nobody = 0;
	struct arguments arguments = {0};
	if (__atomic_load_n(&known->target, __ATOMIC_RELAXED) ||
	    !__atomic_compare_exchange_n(&known->target, &nobody, target, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	known->memory = memory;
	known->number = number;
	arguments.capture = value_captures(target, declared, &arguments.count);
	learn(known, &arguments, program);
	/* Release: pairs with the acquire in matches(). */
	__atomic_store_n(&known->ready, 1, __ATOMIC_RELEASE);
}

static inline enum quick matches(const struct call_target *target, const struct lorg_call_setting *setting,
				 const struct quick_registers *saved, uint64_t caller)
{
	const uint32_t offset = setting->program;
	const struct call_settings *settings = target->settings;
	const void *memory = (const char *)settings->shared + offset;
	if (settings->size < sizeof(struct lorg_match_head) || offset > settings->size - sizeof(struct lorg_match_head) || (offset & 7))
		return QUICK_UNKNOWN;
	const uint32_t number = match_number(memory);
	const struct known_tests *known = known_place(target, number);
	if (known->target == target && __atomic_load_n(&known->ready, __ATOMIC_ACQUIRE) && known->memory == memory &&
	    known->number == number) {
		enum quick answer = tests_hold(known, saved);
		if (answer != QUICK_UNKNOWN)
			return answer;
	}
	struct arguments arguments;
	const struct lorg_match_program *program = match_known_program(memory);
	if (!program || program->dialect != LORG_DIALECT_CALL)
		return QUICK_UNKNOWN;
	arguments.saved = saved;
	arguments.capture = value_captures(target, setting->declared, &arguments.count);
	return evaluate(program, &arguments, caller);
}

/* ---- settings ---------------------------------------------------------------- */

struct quick_call {
	const struct call_target *target;
	const struct quick_registers *saved;
	const struct thread *self;
	uint32_t gate;
	uint64_t caller; /* the return address; 0: it tells nothing */
};

/* Who calls, and how deep. */
static inline enum quick in_range(const struct quick_call *call, const struct lorg_call_setting *setting)
{
	uint64_t low = setting->caller_low, high = setting->caller_high;
	if (high && address_is_own(call->caller))
		return QUICK_UNKNOWN;
	if (high && (call->caller < low || call->caller >= high))
		return QUICK_NO;
	if (!setting->maximum_depth)
		return QUICK_YES;
	/* A call that is told has a frame, by which the next one's depth is known. */
	const struct call_thread *kept = call->self->call;
	return kept && kept->depth >= setting->maximum_depth ? QUICK_NO : QUICK_UNKNOWN;
}

static inline enum quick by_flags(const struct quick_call *call, const struct lorg_call_setting *setting)
{
	if ((!setting->session && !call->self->flags_matter) || (setting->kind & LORG_KIND_META))
		return QUICK_YES;
	uint32_t flags = call_session_flags(call->self, setting->session);
	if (!(flags & LORG_TRACE_CALL))
		return QUICK_NO;
	/* Specifications run in silence. */
	return !(flags & LORG_TRACE_SILENT) ? QUICK_YES : setting->program ? QUICK_UNKNOWN : QUICK_NO;
}

/* The gate that one setting leaves; QUICK_LONG: not to be said here. */
static inline uint32_t asked_by(const struct quick_call *call, const struct lorg_call_setting *setting)
{
	const uint32_t common = LORG_CALL_ENTRY | LORG_CALL_RETURN;
	if (!setting_may_tell(setting, call->target))
		return 0;
	enum quick range = in_range(call, setting), flags = range != QUICK_NO ? by_flags(call, setting) : QUICK_NO;
	if (flags == QUICK_NO)
		return 0;
	enum quick match = setting->program ? matches(call->target, setting, call->saved, call->caller) : QUICK_YES;
	if (match == QUICK_NO)
		return 0;
	if (range == QUICK_UNKNOWN || flags == QUICK_UNKNOWN || match == QUICK_UNKNOWN)
		return QUICK_LONG;
	/* What is told of a specification's call, or to a meta session, says for whom; and what is kept is kept on the long way. */
	if ((setting->program && setting->session) || (setting->kind & LORG_KIND_META) || (call->gate & ~(common | LORG_CALL_FILTER)) || setting->least_ticks || setting->limit_events ||
	    setting->limit_rate)
		return QUICK_LONG;
	return call->gate & common & (setting->program ? setting->gate : common);
}

/* Whether this thread may decide here: it writes as usual, and no exception is on its way, which each entry has to look at. */
static inline int is_usual(const struct thread *self)
{
	return thread_is_ready(self) && !__builtin_expect(self->busy || (self->call && self->call->thrown_count), 0);
}

uint32_t call_quick(struct call_target *target, const struct quick_registers *saved, uint32_t gate,
		    const struct lorg_call_setting *first)
{
	const uint32_t kept = LORG_CALL_TIME | LORG_CALL_MEMORY;
	const uint32_t common = target->flags & LORG_PLAN_ENTRY_ONLY ? LORG_CALL_ENTRY : LORG_CALL_ENTRY | LORG_CALL_RETURN;
	const struct call_settings *settings = target->settings;
	const struct thread *self = &this_thread;
	const struct lorg_call_setting *setting = first ? first : call_setting_at(settings, target->control->setting);
	uint32_t told = 0;
	if (!setting || (gate & kept) || !is_usual(self))
		return QUICK_LONG;
	if (self->flags_matter)
		cpu_time_heed(session_flags(self->process, 0));
	struct quick_call call = {target, saved, self, gate, target->flags & LORG_PLAN_NO_CALLER ? 0 : saved->slot};
	for (int i = 0; !setting_is_free(setting); i++) {
		told |= asked_by(&call, setting);
		uint32_t number = setting->next;
		if (!number)
			break;
		setting = call_setting_at(settings, number);
		if (!setting || i == SETTINGS_LOOKED_AT || (told & QUICK_LONG))
			return QUICK_LONG;
	}
	if ((told & QUICK_LONG) || (told && (gate & LORG_CALL_COUNT)))
		return QUICK_LONG;
	return told & common ? told & common : gate & LORG_CALL_COUNT;
}
