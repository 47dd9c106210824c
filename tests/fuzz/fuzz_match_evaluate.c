/* SPDX-License-Identifier: MIT */
/*
 * fuzz_match_evaluate.c: the evaluator on byte code that nobody compiled, and that changes after it was verified.
 *
 * The input is: flags, sizes, code, constants, and last what is written over the program's memory while it runs. All
 * memory is of exact size, so that AddressSanitizer sees every step outside; the limits of a traced program hold.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "preload/match/evaluate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARGUMENTS = 4 };

struct input {
	const uint8_t *at;
	size_t left;
};

/* What scribbles, from within callbacks as well. */
struct scribbler {
	uint8_t *memory;
	size_t size;
	struct input changes;
};

static uint8_t byte(struct input *input)
{
	if (!input->left)
		return 0;
	input->left--;
	return *input->at++;
}

static void take(struct input *input, void *to, size_t size)
{
	size_t some = size < input->left ? size : input->left;
	memset(to, 0, size);
	if (some)
		memcpy(to, input->at, some);
	input->at += some;
	input->left -= some;
}

static void require(int holds)
{
	if (!holds)
		abort();
}

/* Changes one word behind the head, or a few. */
static void scribble(struct scribbler *scribbler)
{
	for (int i = 0; i < 3 && scribbler->changes.left >= 10; i++) {
		size_t place = byte(&scribbler->changes) | (size_t)byte(&scribbler->changes) << 8;
		uint64_t word;
		take(&scribbler->changes, &word, sizeof word);
		place = place % (scribbler->size / 8) * 8;
		memcpy(scribbler->memory + place, &word, sizeof word);
	}
}

static lorg_term argument(struct lorg_match_evaluation *evaluation, uint32_t index)
{
	scribble(evaluation->owner);
	return index == 2 ? lorg_string(evaluation->terms, "text", 4) : lorg_integer(evaluation->terms, INT64_MAX);
}

static lorg_term self(struct lorg_match_evaluation *evaluation)
{
	scribble(evaluation->owner);
	return lorg_pid(evaluation->terms, 1, 2, 0, LORG_NONE);
}

static uint32_t get_tcw(struct lorg_match_evaluation *evaluation)
{
	scribble(evaluation->owner);
	return 7;
}

static uint64_t caller(struct lorg_match_evaluation *evaluation)
{
	scribble(evaluation->owner);
	return 0x1000;
}

static bool word(struct lorg_match_evaluation *evaluation, uint32_t index, uint64_t *value)
{
	scribble(evaluation->owner);
	*value = index * UINT64_C(0x100000000000);
	return true;
}

static bool load(struct lorg_match_evaluation *evaluation, uint64_t address, void *to, uint32_t size)
{
	scribble(evaluation->owner);
	memset(to, (int)address, size);
	return address & 1;
}

static lorg_term load_string(struct lorg_match_evaluation *evaluation, uint64_t address, uint32_t limit)
{
	(void)address;
	return lorg_string(evaluation->terms, "from memory", limit < 11 ? limit : 11);
}

static bool trace(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer, bool *changed)
{
	scribble(evaluation->owner);
	(void)process, (void)tracer;
	*changed = off != on;
	return true;
}

static const struct lorg_match_context context = {
	.argument = argument,
	.self = self,
	.get_tcw = get_tcw,
	.caller = caller,
	.word = word,
	.load = load,
	.load_string = load_string,
	.trace = trace,
};

/* Makes sense more often: known operations, clauses that begin and end as such, constants and slots that exist. */
static void shape(uint64_t *code, uint32_t count, uint32_t constants, bool table)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t operation = 2 + lorg_match_operation_of(code[i]) % (LORG_MATCH_OPERATIONS - 2), c = lorg_match_c(code[i]);
		bool jumps = operation == LORG_MATCH_AND_ALSO || operation == LORG_MATCH_OR_ELSE;
		c = jumps ? i + 1 + c % 4 : constants && !(c & 0x80000000) ? c % constants : c & 7;
		code[i] = lorg_match_instruction_of((uint8_t)operation, lorg_match_a(code[i]) % LORG_MATCH_FUNCTIONS,
						    lorg_match_b(code[i]) & 0x8003, c);
	}
	if (count < 3)
		return;
	code[0] = lorg_match_instruction_of(LORG_MATCH_CLAUSE, 0, 0, count);
	code[count / 2] = lorg_match_instruction_of(LORG_MATCH_BODY, 0, 0, 0);
	code[count - 1] = lorg_match_instruction_of(table ? LORG_MATCH_RETURN : LORG_MATCH_ACCEPT, 0, 0, 0);
}

/* A program with a head that is good where the first byte says so. */
static uint8_t *make_program(struct input *input, size_t *size)
{
	uint8_t flags = byte(input);
	uint32_t code = byte(input), constants = byte(input), ranges = byte(input) & 3;
	*size = sizeof(struct lorg_match_head) + 8 * (size_t)(code + constants) + 16 * (size_t)ranges;
	uint8_t *memory = malloc(*size);
	require(memory != NULL);
	struct lorg_match_head head = {
		.magic = LORG_MATCH_MAGIC,
		.major = LORG_MATCH_MAJOR,
		.size = (uint32_t)*size,
		.code_offset = sizeof head,
		.code_words = code,
		.constant_offset = (uint32_t)(sizeof head + 8 * code),
		.constant_words = constants,
		.range_offset = (uint32_t)(sizeof head + 8 * (code + constants)),
		.ranges = ranges,
		.variables = byte(input) & 15,
		.stack = byte(input),
		.dialect = LORG_DIALECT_TABLE + (flags >> 1 & 3),
	};
	take(input, memory, *size);
	if (!(flags & 1))
		memcpy(memory, &head, sizeof head);
	if (!(flags & 1) && flags & 8)
		shape((uint64_t *)(memory + sizeof head), code, constants, head.dialect == LORG_DIALECT_TABLE);
	return memory;
}

static void evaluate(struct scribbler *scribbler, const struct lorg_match_program *program)
{
	lorg_term arguments[ARGUMENTS] = {lorg_small(1), lorg_atom_short("a", 1), LORG_NONE, LORG_NONE};
	uint64_t *scratch = malloc(LORG_MATCH_SCRATCH);
	require(scratch != NULL);
	memset(scratch, 0x5a, LORG_MATCH_SCRATCH);
	struct lorg_terms terms = {
		.scratch = scratch,
		.scratch_words = LORG_MATCH_SCRATCH_WORDS,
		.steps = LORG_MATCH_STEPS,
	};
	struct lorg_match_evaluation evaluation = {
		.program = program,
		.context = &context,
		.owner = scribbler,
		.terms = &terms,
		.arguments = arguments,
		.argument_count = program->dialect == LORG_DIALECT_TABLE ? 1 : ARGUMENTS,
	};
	bool matched = lorg_match_evaluate(&evaluation);
	require(terms.used <= terms.scratch_words && terms.steps <= LORG_MATCH_STEPS);
	require(!matched || (evaluation.value != LORG_NONE && !evaluation.broken));
	free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	struct lorg_match_program program;
	uint32_t depths[512];
	size_t program_size;
	uint8_t *memory = make_program(&input, &program_size);
	struct scribbler scribbler = {memory, program_size, {NULL, 0}};
	enum lorg_match_defect defect =
		lorg_match_open(&program, memory, program_size, &lorg_match_limits_inside, depths, sizeof depths / sizeof *depths, NULL);
	if (defect == LORG_MATCH_GOOD) {
		evaluate(&scribbler, &program);
		/* Once more, with somebody who writes to it. */
		scribbler.changes = input;
		scribble(&scribbler);
		evaluate(&scribbler, &program);
	} else if (defect != LORG_MATCH_BAD_HEAD && defect != LORG_MATCH_BAD_VERSION && defect != LORG_MATCH_TOO_LARGE) {
		/* Bounds that hold around code that does not: as if all of it had been changed since. */
		evaluate(&scribbler, &program);
	}
	free(memory);
	return 0;
}
