/* SPDX-License-Identifier: MIT */
/* match [matching|not|string|bare] [n]
 * What one evaluation of a match specification costs: n times on two integers, as for a call of two arguments.
 *   matching  [{['$1','$2'],[{'>','$1',10}],[]}], which holds
 *   not       the same, which does not hold
 *   string    a string compared with a constant one
 *   bare      the loop alone
 */
#include "bench.h"

#include "collector/match/compile.h"
#include "preload/match/evaluate.h"

static const struct lorg_match_context nothing;

static uint64_t scratch[LORG_MATCH_SCRATCH_WORDS];

static const char *specification_of(const char *shape)
{
	if (strcmp(shape, "string") == 0)
		return "[{['$1','$2'],[{'=:=','$1',\"/etc/passwd\"}],[]}]";
	return "[{['$1','$2'],[{'>','$1',10}],[]}]";
}

static REAL_CALL uint64_t evaluate(struct lorg_match_evaluation *evaluation, struct lorg_terms *terms, int64_t first, int64_t second)
{
	lorg_term arguments[2] = {lorg_small(first), lorg_small(second)};
	terms->used = 0;
	terms->steps = LORG_MATCH_STEPS;
	evaluation->arguments = arguments;
	evaluation->argument_count = 2;
	return lorg_match_evaluate(evaluation);
}

static REAL_CALL uint64_t evaluate_string(struct lorg_match_evaluation *evaluation, struct lorg_terms *terms, int64_t second)
{
	terms->used = 0;
	terms->steps = LORG_MATCH_STEPS;
	lorg_term arguments[2] = {lorg_string(terms, "/etc/passwd", 11), lorg_small(second)};
	evaluation->arguments = arguments;
	evaluation->argument_count = 2;
	return lorg_match_evaluate(evaluation);
}

static REAL_CALL uint64_t bare(struct lorg_match_evaluation *evaluation, struct lorg_terms *terms, int64_t first, int64_t second)
{
	lorg_term arguments[2] = {lorg_small(first), lorg_small(second)};
	__asm__ volatile("" : : "r"(arguments), "r"(evaluation), "r"(terms) : "memory");
	return 1;
}

int main(int argc, char **argv)
{
	const char *shape = arg_word(argc, argv, 1, "matching");
	uint64_t n = arg_number(argc, argv, 2, 20000000), held = 0;
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true};
	struct match_errors errors = {0};
	struct match_code code;
	struct lorg_match_program program;
	const char *text = specification_of(shape);
	if (!match_compile(text, strlen(text), &options, &code, &errors) || !match_code_open(&code, &options, &program))
		return 1;
	struct lorg_terms terms = {.scratch = scratch, .scratch_words = LORG_MATCH_SCRATCH_WORDS};
	struct lorg_match_evaluation evaluation = {.program = &program, .context = &nothing, .terms = &terms};
	bool is_bare = strcmp(shape, "bare") == 0, is_string = strcmp(shape, "string") == 0, holds_not = strcmp(shape, "not") == 0;
	int64_t base = holds_not ? -(int64_t)n : 11;
	uint64_t start = now_ns();
	for (uint64_t i = 0; i < n; i++) {
		if (is_bare)
			held += bare(&evaluation, &terms, base + (int64_t)i, 1);
		else if (is_string)
			held += evaluate_string(&evaluation, &terms, 1);
		else
			held += evaluate(&evaluation, &terms, base + (int64_t)i, 1);
	}
	uint64_t took = now_ns() - start;
	print_result("match", n, took);
	match_code_close(&code);
	return held != (holds_not ? 0 : n);
}
