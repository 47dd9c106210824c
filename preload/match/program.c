/* SPDX-License-Identifier: MIT */
/*
 * program.c: verifies programs.
 *
 * One walk over the code, which only jumps forward: so the depth of the stack at each instruction is known before it is
 * reached.
 */
#include "preload/match/program.h"

#include <stdbool.h>

#include "preload/match/functions.h"

const struct lorg_match_limits lorg_match_limits_inside = {LORG_MATCH_INSTRUCTIONS, LORG_MATCH_STACK};

#define NO_DEPTH UINT32_MAX

struct walk {
	const struct lorg_match_program *program;
	uint32_t *depths; /* of the instructions that jumps lead to; NO_DEPTH for the others */
	uint32_t at;	  /* the instruction */
	uint32_t next;	  /* where the clause ends */
	uint32_t depth;
	bool in_clause;	  /* a clause has begun and not ended */
	bool body;
};

static bool section_fits(uint64_t offset, uint64_t count, uint64_t entry, size_t size)
{
	return offset % 8 == 0 && offset >= sizeof(struct lorg_match_head) && offset <= size && count <= (size - offset) / entry;
}

static enum lorg_match_defect take_head(struct lorg_match_program *program, const void *memory, size_t size,
					const struct lorg_match_limits *limits)
{
	const volatile struct lorg_match_head *shared = memory;
	if (size < sizeof *shared || (uintptr_t)memory % 8 != 0 || shared->magic != LORG_MATCH_MAGIC)
		return LORG_MATCH_BAD_HEAD;
	if (shared->major != LORG_MATCH_MAJOR)
		return LORG_MATCH_BAD_VERSION;
	uint32_t whole = shared->size, code = shared->code_offset, constants = shared->constant_offset, ranges = shared->range_offset;
	*program = (struct lorg_match_program){
		.code_words = shared->code_words,
		.constant_words = shared->constant_words,
		.range_count = shared->ranges,
		.stack = shared->stack,
		.variables = shared->variables,
		.dialect = shared->dialect,
		.needs = shared->needs,
		.arguments = shared->arguments,
	};
	if (whole > size || program->dialect < LORG_DIALECT_TABLE || program->dialect > LORG_DIALECT_RECEIVE ||
	    !section_fits(code, program->code_words, 8, whole) || !section_fits(constants, program->constant_words, 8, whole) ||
	    !section_fits(ranges, program->range_count, sizeof(struct lorg_match_range), whole))
		return LORG_MATCH_BAD_HEAD;
	if (program->code_words > limits->instructions || program->stack > limits->stack ||
	    program->variables > limits->stack - program->stack)
		return LORG_MATCH_TOO_LARGE;
	program->code = (const void *)((const char *)memory + code);
	program->constants = (const void *)((const char *)memory + constants);
	program->ranges = (const void *)((const char *)memory + ranges);
	return LORG_MATCH_GOOD;
}

/* The instruction takes `takes` words and leaves `leaves`. */
static enum lorg_match_defect moves(struct walk *walk, uint32_t takes, uint32_t leaves)
{
	if (takes > walk->depth)
		return LORG_MATCH_BAD_STACK;
	walk->depth -= takes;
	if (leaves > walk->program->stack || walk->depth > walk->program->stack - leaves)
		return LORG_MATCH_BAD_STACK;
	walk->depth += leaves;
	return LORG_MATCH_GOOD;
}

static bool slot_good(const struct walk *walk, uint16_t slot)
{
	if (slot & LORG_MATCH_SLOT_ARGUMENT)
		return walk->program->dialect != LORG_DIALECT_TABLE;
	return slot < walk->program->variables;
}

static bool constant_good(const struct walk *walk, uint32_t constant)
{
	return constant < walk->program->constant_words;
}

static enum lorg_match_defect check(bool good, struct walk *walk, uint32_t takes, uint32_t leaves)
{
	return good ? moves(walk, takes, leaves) : LORG_MATCH_BAD_OPERAND;
}

static enum lorg_match_defect begin_clause(struct walk *walk, uint32_t next)
{
	if (walk->in_clause || walk->depth != 0)
		return LORG_MATCH_BAD_CLAUSE;
	if (next <= walk->at || next > walk->program->code_words)
		return LORG_MATCH_BAD_JUMP;
	walk->in_clause = true;
	walk->body = false;
	walk->next = next;
	return LORG_MATCH_GOOD;
}

static enum lorg_match_defect end_clause(struct walk *walk, uint32_t takes)
{
	if (!walk->body || walk->depth != takes || walk->next != walk->at + 1)
		return LORG_MATCH_BAD_CLAUSE;
	walk->in_clause = false;
	walk->depth = 0;
	return LORG_MATCH_GOOD;
}

static enum lorg_match_defect check_call(struct walk *walk, uint8_t function, uint16_t arguments)
{
	if (!lorg_match_function_allowed(function, walk->program->dialect, arguments, walk->body))
		return LORG_MATCH_BAD_FUNCTION;
	return moves(walk, arguments, 1);
}

/* The jump pops nothing where it leads, and one word where it does not jump. */
static enum lorg_match_defect check_branch(struct walk *walk, uint32_t target)
{
	if (target <= walk->at || target >= walk->next)
		return LORG_MATCH_BAD_JUMP;
	if (walk->depth < 1 || (walk->depths[target] != NO_DEPTH && walk->depths[target] != walk->depth))
		return LORG_MATCH_BAD_STACK;
	walk->depths[target] = walk->depth;
	return moves(walk, 1, 0);
}

static enum lorg_match_defect check_instruction(struct walk *walk, lorg_match_instruction instruction)
{
	const struct lorg_match_program *program = walk->program;
	uint8_t a = lorg_match_a(instruction);
	uint16_t b = lorg_match_b(instruction);
	uint32_t c = lorg_match_c(instruction);
	uint8_t operation = lorg_match_operation_of(instruction);
	bool trace = program->dialect != LORG_DIALECT_TABLE;
	if (operation == LORG_MATCH_CLAUSE)
		return begin_clause(walk, c);
	if (!walk->in_clause)
		return LORG_MATCH_BAD_CLAUSE;
	if (walk->at >= walk->next)
		return LORG_MATCH_BAD_CLAUSE;
	switch (operation) {
	case LORG_MATCH_HEAD_COUNT: return check(trace, walk, 0, 0);
	case LORG_MATCH_BIND: return check(!(b & LORG_MATCH_SLOT_ARGUMENT) && slot_good(walk, b), walk, 1, 0);
	case LORG_MATCH_SAME: return check(slot_good(walk, b), walk, 1, 0);
	case LORG_MATCH_LITERAL: return check(constant_good(walk, c), walk, 1, 0);
	case LORG_MATCH_TAKE_TUPLE: return moves(walk, 1, c);
	case LORG_MATCH_TAKE_CONS: return moves(walk, 1, 2);
	case LORG_MATCH_TAKE_MAP: return moves(walk, 1, 1);
	case LORG_MATCH_TAKE_KEY: return check(constant_good(walk, c), walk, 1, 2);
	case LORG_MATCH_POP:
	case LORG_MATCH_GUARD: return moves(walk, 1, 0);
	case LORG_MATCH_GUARD_COMPARE:
		return check(a < LORG_MATCH_COMPARISONS && slot_good(walk, b) && constant_good(walk, c), walk, 0, 0);
	case LORG_MATCH_GUARD_TEST:
		return check(a > LORG_MATCH_FUNCTION_NONE && a < LORG_MATCH_TYPE_TESTS && slot_good(walk, b), walk, 0, 0);
	case LORG_MATCH_BODY: walk->body = true; return walk->depth == 0 ? LORG_MATCH_GOOD : LORG_MATCH_BAD_STACK;
	case LORG_MATCH_PUSH: return check(slot_good(walk, b), walk, 0, 1);
	case LORG_MATCH_CONSTANT: return check(constant_good(walk, c), walk, 0, 1);
	case LORG_MATCH_OBJECT: return moves(walk, 0, 1);
	case LORG_MATCH_TUPLE: return moves(walk, c, 1);
	case LORG_MATCH_LIST: return check(c < UINT32_MAX, walk, c + 1, 1);
	case LORG_MATCH_MAP: return check(c <= UINT32_MAX / 2, walk, 2 * c, 1);
	case LORG_MATCH_COMPARE: return check(a < LORG_MATCH_COMPARISONS, walk, 2, 1);
	case LORG_MATCH_CALL: return check_call(walk, a, b);
	case LORG_MATCH_AND_ALSO:
	case LORG_MATCH_OR_ELSE: return check_branch(walk, c);
	case LORG_MATCH_CALLER_IN: return check(c <= program->range_count && b <= program->range_count - c, walk, 0, 1);
	case LORG_MATCH_WORD: return check(trace && b <= LORG_MATCH_ARGUMENTS, walk, 0, 1);
	case LORG_MATCH_LOAD: return check(a < LORG_MATCH_LOADS, walk, 1, 1);
	case LORG_MATCH_ACCEPT: return trace ? end_clause(walk, 0) : LORG_MATCH_BAD_CLAUSE;
	case LORG_MATCH_RETURN: return trace ? LORG_MATCH_BAD_CLAUSE : end_clause(walk, 1);
	default: return LORG_MATCH_BAD_OPERATION;
	}
}

static enum lorg_match_defect check_code(struct walk *walk)
{
	const struct lorg_match_program *program = walk->program;
	for (; walk->at < program->code_words; walk->at++) {
		if (walk->depths[walk->at] != NO_DEPTH && walk->depths[walk->at] != walk->depth)
			return LORG_MATCH_BAD_STACK;
		enum lorg_match_defect defect = check_instruction(walk, __atomic_load_n(&program->code[walk->at], __ATOMIC_RELAXED));
		if (defect)
			return defect;
	}
	return walk->in_clause ? LORG_MATCH_BAD_CLAUSE : LORG_MATCH_GOOD;
}

enum lorg_match_defect lorg_match_open(struct lorg_match_program *program, const void *memory, size_t size,
				       const struct lorg_match_limits *limits, uint32_t *depths, uint32_t room, uint32_t *where)
{
	struct walk walk = {.program = program, .depths = depths};
	enum lorg_match_defect defect = take_head(program, memory, size, limits);
	if (!defect && room <= program->code_words)
		defect = LORG_MATCH_TOO_LARGE;
	if (!defect) {
		for (uint32_t i = 0; i <= program->code_words; i++)
			depths[i] = NO_DEPTH;
		defect = check_code(&walk);
	}
	if (where)
		*where = walk.at;
	return defect;
}
