/* SPDX-License-Identifier: MIT */
/*
 * evaluate.c: the machine that runs programs.
 *
 * Each instruction is loaded once, and each of its operands checked against bounds that nobody else can write. The
 * position in the code only grows: so a program always ends, whatever is written to it meanwhile.
 */
#include "preload/match/evaluate.h"

#include "preload/match/call.h"
#include "preload/match/functions.h"

/* What became of an instruction. */
enum outcome {
	GO_ON,
	NOT_MATCHED, /* this clause is not the one */
	BROKEN,
};

struct machine {
	struct lorg_match_evaluation *evaluation;
	const struct lorg_match_program *program;
	struct lorg_terms *terms;
	uint32_t position;  /* of the next instruction */
	uint32_t next;	    /* where the next clause starts */
	uint32_t charged;   /* instructions up to here have been taken from the budget */
	uint32_t variables; /* where they stand in the scratch space */
	uint32_t stack;	    /* likewise */
	uint32_t top;	    /* words on the stack */
	uint32_t kept;	    /* scratch in use that the next clause needs as well */
	bool body;
};

/* ---- the stack ------------------------------------------------------------- */

/* Where the words on the stack begin. The scratch space may move whenever a term is made. */
static inline lorg_term *words(const struct machine *machine)
{
	return machine->terms->scratch + machine->stack;
}

static inline enum outcome push(struct machine *machine, lorg_term term)
{
	if (machine->top >= machine->program->stack)
		return BROKEN;
	words(machine)[machine->top++] = term;
	return GO_ON;
}

/* LORG_NONE, which no instruction puts there, when the stack is empty. */
static inline lorg_term pop(struct machine *machine)
{
	return machine->top ? words(machine)[--machine->top] : LORG_NONE;
}

/* Before functions of terms that are not inline. */
static inline void prepare(struct machine *machine)
{
	struct lorg_match_evaluation *evaluation = machine->evaluation;
	if (evaluation->prepared)
		return;
	evaluation->prepared = true;
	if (evaluation->context->prepare)
		evaluation->context->prepare(evaluation);
}

/* ---- failing ----------------------------------------------------------------- */

static void count_failure(struct machine *machine)
{
	uint32_t failure = machine->terms->failure;
	machine->evaluation->failed++;
	if (failure == LORG_TERM_NO_SPACE || failure == LORG_TERM_NO_STEPS)
		machine->evaluation->exceeded++;
}

/* A comparison in the head or a guard that could not be made. */
static enum outcome not_comparable(struct machine *machine)
{
	count_failure(machine);
	return NOT_MATCHED;
}

/* The value of a call, or LORG_NONE when it failed. */
static enum outcome push_value(struct machine *machine, lorg_term value)
{
	if (value != LORG_NONE)
		return push(machine, value);
	count_failure(machine);
	return machine->body ? push(machine, lorg_atom_short("EXIT", 4)) : NOT_MATCHED;
}

/*
 * Takes the instructions since last time, and `more`, from the budget. This alone makes nothing fail: there are not more
 * instructions than the program has, and none runs twice. What fails is the next work on large terms; small calls go on,
 * so that {message, _} still says what became of the one that took too much.
 */
static void charge(struct machine *machine, uint32_t more)
{
	uint64_t steps = (uint64_t)(machine->position - machine->charged) + more;
	struct lorg_terms *terms = machine->terms;
	machine->charged = machine->position;
	if (terms->steps != LORG_STEPS_ENDLESS)
		terms->steps -= steps < terms->steps ? steps : terms->steps;
}

/* ---- values -------------------------------------------------------------------- */

static lorg_term make_argument(struct machine *machine, uint32_t index)
{
	struct lorg_match_evaluation *evaluation = machine->evaluation;
	if (!evaluation->context->argument)
		return match_bad_argument(machine->terms);
	prepare(machine);
	lorg_term term = evaluation->context->argument(evaluation, index);
	evaluation->arguments[index] = term;
	machine->kept = machine->terms->used;
	return term;
}

static inline lorg_term argument(struct machine *machine, uint32_t index)
{
	const struct lorg_match_evaluation *evaluation = machine->evaluation;
	if (index >= evaluation->argument_count)
		return match_bad_argument(machine->terms);
	lorg_term term = evaluation->arguments[index];
	return term != LORG_NONE ? term : make_argument(machine, index);
}

/* LORG_NONE, and why, where there is no such value: an argument that the call does not have, or that cannot be made. */
static inline lorg_term slot(struct machine *machine, uint16_t which)
{
	if (which & LORG_MATCH_SLOT_ARGUMENT)
		return argument(machine, which & ~LORG_MATCH_SLOT_ARGUMENT);
	if (which < machine->program->variables)
		return machine->terms->scratch[machine->variables + which];
	return match_bad_argument(machine->terms);
}

static inline lorg_term constant(const struct machine *machine, uint32_t which)
{
	if (which >= machine->program->constant_words)
		return LORG_NONE;
	return __atomic_load_n(&machine->program->constants[which], __ATOMIC_RELAXED);
}

static lorg_term argument_list(struct machine *machine)
{
	lorg_term list = lorg_nil();
	prepare(machine);
	charge(machine, machine->evaluation->argument_count);
	for (uint32_t i = machine->evaluation->argument_count; i-- > 0 && list != LORG_NONE;)
		list = lorg_cons(machine->terms, argument(machine, i), list);
	return list;
}

/* '$_' */
static lorg_term object(struct machine *machine)
{
	struct lorg_match_evaluation *evaluation = machine->evaluation;
	if (machine->program->dialect == LORG_DIALECT_TABLE)
		return argument(machine, 0);
	if (evaluation->object == LORG_NONE) {
		evaluation->object = argument_list(machine);
		machine->kept = machine->terms->used;
	}
	return evaluation->object;
}

/* ---- comparing ---------------------------------------------------------------------- */

/*
 * Whether two lists of small integers, as strings are, are the same: 1 or 0; -1 where something else is in them. General
 * registers alone, and much quicker than comparing any terms.
 */
static int same_string(const struct lorg_terms *terms, lorg_term a, lorg_term b, uint32_t *cells)
{
	enum { CELLS_MAX = 1 << 20 };
	uint32_t count = 0;
	for (; lorg_is_cons(a) && lorg_is_cons(b); count++) {
		const uint64_t *x = lorg_term_words(terms, a, 2), *y = lorg_term_words(terms, b, 2);
		if (!x || !y || count == CELLS_MAX || count >= terms->steps)
			return -1;
		lorg_term head = x[0], other = y[0];
		if (!lorg_is_small(head) || !lorg_is_small(other))
			return -1;
		*cells = count + 1;
		if (head != other)
			return 0;
		a = x[1];
		b = y[1];
	}
	bool end = lorg_is_nil(a) || lorg_is_cons(a), other_end = lorg_is_nil(b) || lorg_is_cons(b);
	return end && other_end ? lorg_is_nil(a) && lorg_is_nil(b) : -1;
}

/* 1, 0, or -1 where it failed. */
static int compare_terms(struct machine *machine, uint32_t compare, lorg_term a, lorg_term b)
{
	uint32_t cells = 0;
	charge(machine, 0);
	if (compare >= LORG_MATCH_EQUAL) {
		int same = same_string(machine->terms, a, b, &cells);
		if (!lorg_terms_spend(machine->terms, cells))
			return -1;
		if (same >= 0)
			return same == (compare == LORG_MATCH_EQUAL || compare == LORG_MATCH_EXACTLY);
	}
	prepare(machine);
	return match_compare(machine->terms, compare, a, b);
}

/* ---- heads ------------------------------------------------------------------------ */

static enum outcome bind(struct machine *machine, uint16_t variable)
{
	lorg_term term = pop(machine);
	if (term == LORG_NONE || variable >= machine->program->variables)
		return BROKEN;
	machine->terms->scratch[machine->variables + variable] = term;
	return GO_ON;
}

static inline enum outcome exactly(struct machine *machine, lorg_term other)
{
	lorg_term term = pop(machine);
	if (lorg_is_small(term) || lorg_is_small(other))
		return term == other ? GO_ON : NOT_MATCHED;
	int same = compare_terms(machine, LORG_MATCH_EXACTLY, term, other);
	return same < 0 ? not_comparable(machine) : same ? GO_ON : NOT_MATCHED;
}

/* The sign of zero counts, too. */
static enum outcome same_float(struct machine *machine, lorg_term other)
{
	prepare(machine);
	return match_same_float(machine->terms, pop(machine), other) ? GO_ON : NOT_MATCHED;
}

static enum outcome take_tuple(struct machine *machine, uint32_t count)
{
	uint32_t arity;
	prepare(machine);
	const lorg_term *elements = lorg_get_tuple(machine->terms, pop(machine), &arity);
	if (!elements || arity != count)
		return NOT_MATCHED;
	if (!lorg_terms_spend(machine->terms, count / 8))
		return not_comparable(machine);
	if (count > machine->program->stack || machine->top > machine->program->stack - count)
		return BROKEN;
	/* The elements lie in the scratch space or among the constants, never where the stack's free words are. */
	lorg_term *free = words(machine) + machine->top;
	for (uint32_t i = 0; i < count; i++)
		free[count - 1 - i] = elements[i];
	machine->top += count;
	return GO_ON;
}

static enum outcome take_cons(struct machine *machine)
{
	lorg_term head, tail;
	prepare(machine);
	if (!lorg_get_cons(machine->terms, pop(machine), &head, &tail))
		return NOT_MATCHED;
	return push(machine, tail) == GO_ON ? push(machine, head) : BROKEN;
}

static enum outcome take_map(struct machine *machine)
{
	if (!machine->top)
		return BROKEN;
	prepare(machine);
	return match_type_test(machine->terms, LORG_MATCH_IS_MAP, words(machine)[machine->top - 1]) ? GO_ON : NOT_MATCHED;
}

static enum outcome take_key(struct machine *machine, uint32_t key)
{
	lorg_term value = LORG_NONE;
	if (!machine->top)
		return BROKEN;
	prepare(machine);
	charge(machine, 0);
	if (!lorg_map_find(machine->terms, words(machine)[machine->top - 1], constant(machine, key), &value))
		return NOT_MATCHED;
	return push(machine, value);
}

/* ---- guards ------------------------------------------------------------------------- */

static enum outcome guard_compare_deep(struct machine *machine, uint32_t compare, lorg_term a, lorg_term b)
{
	int holds = compare_terms(machine, compare, a, b);
	return holds < 0 ? not_comparable(machine) : holds ? GO_ON : NOT_MATCHED;
}

static inline bool small_holds(uint32_t compare, int64_t a, int64_t b)
{
	switch (compare) {
	case LORG_MATCH_LESS: return a < b;
	case LORG_MATCH_LESS_OR_EQUAL: return a <= b;
	case LORG_MATCH_GREATER: return a > b;
	case LORG_MATCH_GREATER_OR_EQUAL: return a >= b;
	case LORG_MATCH_EQUAL:
	case LORG_MATCH_EXACTLY: return a == b;
	default: return a != b;
	}
}

static inline enum outcome guard_compare(struct machine *machine, uint32_t compare, lorg_term a, lorg_term b)
{
	if (!lorg_is_small(a) || !lorg_is_small(b))
		return guard_compare_deep(machine, compare, a, b);
	return small_holds(compare, (int64_t)a, (int64_t)b) ? GO_ON : NOT_MATCHED;
}

static enum outcome guard_test_other(struct machine *machine, uint32_t test, lorg_term term)
{
	prepare(machine);
	return match_type_test(machine->terms, test, term) ? GO_ON : NOT_MATCHED;
}

static inline enum outcome guard_test(struct machine *machine, uint32_t test, lorg_term term)
{
	if (lorg_is_small(term))
		return test == LORG_MATCH_IS_INTEGER || test == LORG_MATCH_IS_NUMBER ? GO_ON : NOT_MATCHED;
	return guard_test_other(machine, test, term);
}

/* ---- expressions ------------------------------------------------------------------------ */

/* Counts down from the top: element 0 stands there. */
static lorg_term make_tuple(struct machine *machine, uint32_t count)
{
	lorg_term tuple = lorg_tuple_new(machine->terms, count);
	if (tuple == LORG_NONE)
		return tuple;
	const lorg_term *end = words(machine) + machine->top;
	for (uint32_t i = 0; i < count; i++)
		lorg_tuple_set(machine->terms, tuple, i, end[-1 - (int64_t)i]);
	return tuple;
}

static lorg_term make_list(struct machine *machine, uint32_t count)
{
	lorg_term list = words(machine)[machine->top - 1];
	for (uint32_t i = 0; i < count && list != LORG_NONE; i++)
		list = lorg_cons(machine->terms, words(machine)[machine->top - 2 - i], list);
	return list;
}

static lorg_term make_map(struct machine *machine, uint32_t count)
{
	uint32_t offset;
	uint64_t *pairs = count ? lorg_terms_take(machine->terms, 2 * count, &offset) : NULL;
	if (count && !pairs)
		return LORG_NONE;
	const lorg_term *end = words(machine) + machine->top;
	for (uint32_t i = 0; i < count; i++) {
		pairs[2 * i] = end[-1 - (int64_t)i];
		pairs[2 * i + 1] = end[-1 - (int64_t)i - (int64_t)count];
	}
	return lorg_map_of_last(machine->terms, count);
}

/* A tuple, list or map of what is on the stack: `parts` words. */
static enum outcome construct(struct machine *machine, lorg_term (*make)(struct machine *machine, uint32_t count), uint32_t count,
			      uint64_t parts)
{
	if (parts > machine->top)
		return BROKEN;
	prepare(machine);
	charge(machine, (uint32_t)parts);
	lorg_term term = make(machine, count);
	machine->top -= (uint32_t)parts;
	return push_value(machine, term);
}

/* 'and', 'or': all of their arguments are booleans or it fails. */
static lorg_term all_or_any(struct machine *machine, uint32_t count, lorg_term decides)
{
	const lorg_term *end = words(machine) + machine->top;
	bool decided = false;
	for (uint32_t i = 0; i < count; i++) {
		lorg_term term = end[-1 - (int64_t)i];
		if (!lorg_is_boolean(term))
			return match_bad_argument(machine->terms);
		decided = decided || term == decides;
	}
	return lorg_boolean(decided == (decides == LORG_TRUE));
}

static lorg_term call_value(struct machine *machine, uint32_t function, uint32_t count)
{
	lorg_term arguments[MATCH_ARGUMENTS_MAX] = {LORG_NONE, LORG_NONE, LORG_NONE};
	if (function == LORG_MATCH_AND || function == LORG_MATCH_OR)
		return all_or_any(machine, count, lorg_boolean(function == LORG_MATCH_OR));
	for (uint32_t i = 0; i < count && i < MATCH_ARGUMENTS_MAX; i++)
		arguments[i] = words(machine)[machine->top - 1 - i];
	return match_call_function(machine->evaluation, function, arguments, count);
}

static enum outcome call(struct machine *machine, uint32_t function, uint32_t count)
{
	if (count > machine->top || !lorg_match_function_allowed(function, machine->program->dialect, count, machine->body))
		return BROKEN;
	prepare(machine);
	charge(machine, count);
	lorg_term value = call_value(machine, function, count);
	machine->top -= count;
	return push_value(machine, value);
}

static enum outcome compare(struct machine *machine, uint32_t which)
{
	if (machine->top < 2)
		return BROKEN;
	lorg_term x = pop(machine), y = pop(machine);
	if (lorg_is_small(x) && lorg_is_small(y))
		return push(machine, lorg_boolean(small_holds(which, (int64_t)x, (int64_t)y)));
	int holds = compare_terms(machine, which, x, y);
	return push_value(machine, holds < 0 ? LORG_NONE : lorg_boolean(holds));
}

static enum outcome branch(struct machine *machine, lorg_term goes_on, lorg_term jumps, uint32_t target)
{
	if (!machine->top || target < machine->position || target >= machine->next)
		return BROKEN;
	lorg_term term = pop(machine);
	if (term == goes_on)
		return GO_ON;
	charge(machine, 0);
	machine->position = machine->charged = target;
	return term == jumps ? push(machine, term) : push_value(machine, match_bad_argument(machine->terms));
}

static enum outcome caller_in(struct machine *machine, uint32_t how, uint32_t count, uint32_t start)
{
	const struct lorg_match_program *program = machine->program;
	const struct lorg_match_context *context = machine->evaluation->context;
	if (start > program->range_count || count > program->range_count - start)
		return BROKEN;
	uint64_t address = context->caller ? context->caller(machine->evaluation) : 0;
	bool in = address == 0 && (how & LORG_MATCH_CALLER_UNDEFINED);
	charge(machine, 0);
	if (!lorg_terms_spend(machine->terms, count / 8))
		return push_value(machine, LORG_NONE);
	for (uint32_t i = start; i < start + count && address != 0 && !in; i++)
		in = address >= program->ranges[i].first && address <= program->ranges[i].last;
	return push(machine, lorg_boolean(in != !!(how & LORG_MATCH_CALLER_NOT)));
}

/* ---- loads --------------------------------------------------------------------------------- */

static const uint8_t load_sizes[LORG_MATCH_LOADS] = {
	[LORG_MATCH_LOAD_UNSIGNED_8] = 1, [LORG_MATCH_LOAD_UNSIGNED_16] = 2, [LORG_MATCH_LOAD_UNSIGNED_32] = 4,
	[LORG_MATCH_LOAD_UNSIGNED_64] = 8, [LORG_MATCH_LOAD_SIGNED_8] = 1, [LORG_MATCH_LOAD_SIGNED_16] = 2,
	[LORG_MATCH_LOAD_SIGNED_32] = 4, [LORG_MATCH_LOAD_SIGNED_64] = 8, [LORG_MATCH_LOAD_BOOLEAN] = 1,
	[LORG_MATCH_LOAD_FLOAT_32] = 4, [LORG_MATCH_LOAD_FLOAT_64] = 8, [LORG_MATCH_LOAD_STRING] = 8,
};

static lorg_term load_string(struct machine *machine, uint64_t address, uint32_t limit)
{
	const struct lorg_match_context *context = machine->evaluation->context;
	return context->load_string ? context->load_string(machine->evaluation, address, limit) : match_bad_argument(machine->terms);
}

/* word: what was loaded, little endian, zeros above it. */
static lorg_term loaded_term(struct machine *machine, uint32_t kind, uint64_t word)
{
	struct lorg_terms *terms = machine->terms;
	switch (kind) {
	case LORG_MATCH_LOAD_UNSIGNED_8:
	case LORG_MATCH_LOAD_UNSIGNED_16:
	case LORG_MATCH_LOAD_UNSIGNED_32:
	case LORG_MATCH_LOAD_UNSIGNED_64: return lorg_unsigned(terms, word);
	case LORG_MATCH_LOAD_SIGNED_8: return lorg_small((int8_t)word);
	case LORG_MATCH_LOAD_SIGNED_16: return lorg_small((int16_t)word);
	case LORG_MATCH_LOAD_SIGNED_32: return lorg_small((int32_t)word);
	case LORG_MATCH_LOAD_SIGNED_64: return lorg_integer(terms, (int64_t)word);
	case LORG_MATCH_LOAD_BOOLEAN: return lorg_boolean((uint8_t)word != 0);
	case LORG_MATCH_LOAD_FLOAT_32: return match_float_of_bits(terms, word, false);
	case LORG_MATCH_LOAD_FLOAT_64: return match_float_of_bits(terms, word, true);
	default: return load_string(machine, word, LORG_MATCH_STRING_LIMIT);
	}
}

static lorg_term argument_word(struct machine *machine, uint32_t index)
{
	const struct lorg_match_context *context = machine->evaluation->context;
	uint64_t value;
	prepare(machine);
	if (index >= machine->evaluation->argument_count || !context->word || !context->word(machine->evaluation, index, &value))
		return match_bad_argument(machine->terms);
	return lorg_unsigned(machine->terms, value);
}

static lorg_term load(struct machine *machine, uint32_t kind, uint16_t length, lorg_term base, int32_t offset)
{
	const struct lorg_match_context *context = machine->evaluation->context;
	uint64_t address, word = 0;
	int64_t negative;
	if (lorg_get_integer(machine->terms, base, &negative))
		address = (uint64_t)negative;
	else if (!lorg_get_unsigned(machine->terms, base, &address))
		return match_bad_argument(machine->terms);
	address += (uint64_t)(int64_t)offset;
	if (kind == LORG_MATCH_LOAD_ADDRESS)
		return lorg_unsigned(machine->terms, address);
	if (kind == LORG_MATCH_LOAD_TEXT)
		return load_string(machine, address, length < LORG_MATCH_STRING_LIMIT ? length : LORG_MATCH_STRING_LIMIT);
	if (!context->load || !context->load(machine->evaluation, address, &word, load_sizes[kind]))
		return match_bad_argument(machine->terms);
	return loaded_term(machine, kind, word);
}

static enum outcome push_loaded(struct machine *machine, lorg_match_instruction instruction)
{
	uint32_t kind = lorg_match_a(instruction);
	if (!machine->top || kind >= LORG_MATCH_LOADS)
		return BROKEN;
	lorg_term base = pop(machine);
	prepare(machine);
	charge(machine, 1);
	return push_value(machine, load(machine, kind, lorg_match_b(instruction), base, (int32_t)lorg_match_c(instruction)));
}

/* ---- the loop --------------------------------------------------------------------------------- */

static enum outcome begin_clause(struct machine *machine, uint32_t next)
{
	if (next < machine->position || next > machine->program->code_words)
		return BROKEN;
	machine->next = next;
	machine->top = 0;
	machine->body = false;
	machine->terms->used = machine->kept;
	return GO_ON;
}

static enum outcome skip_clause(struct machine *machine)
{
	if (machine->next < machine->position)
		return BROKEN;
	charge(machine, 0);
	machine->position = machine->charged = machine->next;
	return GO_ON;
}

/* All instructions that do not end a clause. */
static inline enum outcome execute(struct machine *machine, lorg_match_instruction instruction)
{
	uint8_t a = lorg_match_a(instruction);
	uint16_t b = lorg_match_b(instruction);
	uint32_t c = lorg_match_c(instruction);
	lorg_term term;
	switch (lorg_match_operation_of(instruction)) {
	case LORG_MATCH_CLAUSE: return begin_clause(machine, c);
	case LORG_MATCH_HEAD_COUNT: return machine->evaluation->argument_count == c ? GO_ON : NOT_MATCHED;
	case LORG_MATCH_BIND: return bind(machine, b);
	case LORG_MATCH_SAME: return exactly(machine, slot(machine, b));
	case LORG_MATCH_LITERAL: return a == 1 ? same_float(machine, constant(machine, c)) : exactly(machine, constant(machine, c));
	case LORG_MATCH_TAKE_TUPLE: return take_tuple(machine, c);
	case LORG_MATCH_TAKE_CONS: return take_cons(machine);
	case LORG_MATCH_TAKE_MAP: return take_map(machine);
	case LORG_MATCH_TAKE_KEY: return take_key(machine, c);
	case LORG_MATCH_POP: return pop(machine) != LORG_NONE ? GO_ON : BROKEN;
	case LORG_MATCH_GUARD: return pop(machine) == LORG_TRUE ? GO_ON : NOT_MATCHED;
	case LORG_MATCH_GUARD_COMPARE: return guard_compare(machine, a, slot(machine, b), constant(machine, c));
	case LORG_MATCH_GUARD_TEST: return guard_test(machine, a, slot(machine, b));
	case LORG_MATCH_BODY: machine->body = true; return GO_ON;
	case LORG_MATCH_PUSH:
		term = slot(machine, b);
		return push_value(machine, term);
	case LORG_MATCH_CONSTANT: term = constant(machine, c); return term != LORG_NONE ? push(machine, term) : BROKEN;
	case LORG_MATCH_OBJECT: return push_value(machine, object(machine));
	case LORG_MATCH_TUPLE: return construct(machine, make_tuple, c, c);
	case LORG_MATCH_LIST: return construct(machine, make_list, c, (uint64_t)c + 1);
	case LORG_MATCH_MAP: return construct(machine, make_map, c, (uint64_t)c * 2);
	case LORG_MATCH_COMPARE: return compare(machine, a);
	case LORG_MATCH_CALL: return call(machine, a, b);
	case LORG_MATCH_AND_ALSO: return branch(machine, LORG_TRUE, LORG_FALSE, c);
	case LORG_MATCH_OR_ELSE: return branch(machine, LORG_FALSE, LORG_TRUE, c);
	case LORG_MATCH_CALLER_IN: return caller_in(machine, a, b, c);
	case LORG_MATCH_WORD: return push_value(machine, argument_word(machine, b));
	case LORG_MATCH_LOAD: return push_loaded(machine, instruction);
	default: return BROKEN;
	}
}

/* True: a clause matched. */
static bool run(struct machine *machine)
{
	const struct lorg_match_program *program = machine->program;
	while (machine->position < program->code_words) {
		lorg_match_instruction instruction = __atomic_load_n(&program->code[machine->position++], __ATOMIC_RELAXED);
		uint8_t operation = lorg_match_operation_of(instruction);
		if (operation == LORG_MATCH_ACCEPT)
			return true;
		if (operation == LORG_MATCH_RETURN) {
			machine->evaluation->value = pop(machine);
			return machine->evaluation->value != LORG_NONE;
		}
		enum outcome outcome = execute(machine, instruction);
		if (outcome == NOT_MATCHED)
			outcome = skip_clause(machine);
		if (outcome == BROKEN) {
			machine->evaluation->broken = true;
			return false;
		}
	}
	return false;
}

/* Room for variables and stack. */
static bool start(struct machine *machine)
{
	const struct lorg_match_program *program = machine->program;
	struct lorg_terms *terms = machine->terms;
	uint32_t room = program->variables + program->stack;
	machine->variables = terms->used;
	if (terms->used <= terms->scratch_words && terms->scratch_words - terms->used >= room) {
		terms->used += room;
	} else {
		prepare(machine);
		if (!lorg_terms_take(terms, room, &machine->variables))
			return false;
	}
	for (uint32_t i = 0; i < program->variables; i++)
		machine->terms->scratch[machine->variables + i] = LORG_NONE;
	machine->stack = machine->variables + program->variables;
	machine->kept = machine->terms->used;
	return true;
}

bool lorg_match_evaluate(struct lorg_match_evaluation *evaluation)
{
	struct machine machine = {
		.evaluation = evaluation,
		.program = evaluation->program,
		.terms = evaluation->terms,
	};
	evaluation->terms->constant = evaluation->program->constants;
	evaluation->terms->constant_words = evaluation->program->constant_words;
	evaluation->value = LORG_TRUE;
	evaluation->object = LORG_NONE;
	evaluation->return_trace = evaluation->exception_trace = evaluation->broken = evaluation->prepared = false;
	evaluation->failed = evaluation->exceeded = 0;
	if (!start(&machine))
		count_failure(&machine);
	else if (run(&machine))
		return true;
	evaluation->value = LORG_FALSE;
	evaluation->return_trace = evaluation->exception_trace = false;
	return false;
}
