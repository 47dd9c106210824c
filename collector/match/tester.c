/* SPDX-License-Identifier: MIT */
/* tester.c: evaluates specifications on terms, as a node on which nothing is traced. */
#include "collector/match/tester.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collector/term/printer.h"
#include "preload/match/evaluate.h"

/* Far more than any specification that is meant, and an end of a few seconds for calculations that are not. */
#define STEPS (UINT64_C(1) << 26)

static const char self_said[] = "<SELF>", dump_said[] = "?BINARY";

/* What no result has by chance. */
static const char dump_of_corpus[] = "=proc: the dump of the process that runs the tests";

static uint32_t own_thread(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

/* ---- the surroundings of an evaluation --------------------------------------- */

static const struct match_tester *tester_of(const struct lorg_match_evaluation *evaluation)
{
	return evaluation->owner;
}

static lorg_term self(struct lorg_match_evaluation *evaluation)
{
	return lorg_pid(evaluation->terms, (uint32_t)getpid(), own_thread(), 0, LORG_NONE);
}

static lorg_term node(struct lorg_match_evaluation *evaluation, lorg_term of)
{
	uint32_t numbers[3];
	lorg_term other = LORG_NONE;
	if (of != LORG_NONE && !lorg_get_pid(evaluation->terms, of, numbers, &other))
		lorg_get_port(evaluation->terms, of, numbers, NULL, &other);
	return other != LORG_NONE ? other : lorg_atom_text(evaluation->terms, "nonode@nohost");
}

/* Of other processes the two that Erlang's tester has on every node are known. */
static bool is_alive(const struct lorg_terms *terms, lorg_term process)
{
	uint32_t numbers[3];
	lorg_term other;
	if (lorg_is_atom(process))
		return lorg_atom_is(terms, process, "init") || lorg_atom_is(terms, process, "erts_code_purger");
	if (!lorg_get_pid(terms, process, numbers, &other) || other != LORG_NONE || numbers[2] != 0)
		return false;
	return numbers[0] == 0 ? numbers[1] <= 1 : numbers[0] == (uint32_t)getpid() && numbers[1] == own_thread();
}

static bool trace(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer, bool *changed)
{
	(void)off, (void)on;
	*changed = false;
	return (process == LORG_NONE || is_alive(evaluation->terms, process)) &&
	       (tracer == LORG_NONE || is_alive(evaluation->terms, tracer));
}

/* The item as it is, which is not set. */
static lorg_term set_seq_token(struct lorg_match_evaluation *evaluation, enum lorg_token_item item, lorg_term value)
{
	static const char *const names[LORG_TOKEN_ITEMS] = {
		[LORG_TOKEN_SEND] = "send",
		[LORG_TOKEN_RECEIVE] = "receive",
		[LORG_TOKEN_PRINT] = "print",
		[LORG_TOKEN_TIMESTAMP] = "timestamp",
		[LORG_TOKEN_MONOTONIC_TIMESTAMP] = "monotonic_timestamp",
		[LORG_TOKEN_STRICT_MONOTONIC_TIMESTAMP] = "strict_monotonic_timestamp",
	};
	(void)value;
	if (!names[item])
		return lorg_nil();
	lorg_term elements[2] = {lorg_atom_text(evaluation->terms, names[item]), LORG_FALSE};
	return lorg_tuple(evaluation->terms, elements, 2);
}

static lorg_term process_dump(struct lorg_match_evaluation *evaluation)
{
	char text[256];
	if (tester_of(evaluation)->corpus_form)
		return lorg_binary(evaluation->terms, dump_of_corpus, sizeof dump_of_corpus - 1);
	int length = snprintf(text, sizeof text, "=proc:<%d.%u.0>\nState: Running\nName: lorg\nCurrent call: lorg matchspec test\n",
			      (int)getpid(), own_thread());
	return lorg_binary(evaluation->terms, text, (size_t)length);
}

static void display(struct lorg_match_evaluation *evaluation, lorg_term term)
{
	const struct match_tester *tester = tester_of(evaluation);
	char *text = tester->display ? lorg_term_text(evaluation->terms, term, LORG_TEXT_ERLANG, NULL, NULL) : NULL;
	if (text)
		tester->display(text);
	free(text);
}

static const struct lorg_match_context surroundings = {
	.self = self,
	.node = node,
	.trace = trace,
	.set_seq_token = set_seq_token,
	.process_dump = process_dump,
	.display = display,
};

/* ---- the corpus's form ----------------------------------------------------------- */

/* text with every `from` as `to`; frees text. */
static char *replaced(char *text, const char *from, const char *to)
{
	size_t size = 0, from_length = strlen(from);
	char *result = NULL;
	FILE *out = text ? open_memstream(&result, &size) : NULL;
	for (const char *at = text; out && *at;) {
		const char *found = strstr(at, from);
		fwrite(at, 1, found ? (size_t)(found - at) : strlen(at), out);
		if (!found)
			break;
		fputs(to, out);
		at = found + from_length;
	}
	free(text);
	if (!out)
		return NULL;
	fclose(out);
	return result;
}

static void own_pid(char *text, size_t size)
{
	snprintf(text, size, "<%d.%u.0>", (int)getpid(), own_thread());
}

static char *from_corpus(const struct match_tester *tester, const char *text)
{
	char pid[64];
	own_pid(pid, sizeof pid);
	return tester->corpus_form ? replaced(strdup(text), self_said, pid) : strdup(text);
}

static char *to_corpus(struct lorg_terms *terms, char *text)
{
	char pid[64];
	lorg_term dump = lorg_binary(terms, dump_of_corpus, sizeof dump_of_corpus - 1);
	char *dump_text = lorg_term_text(terms, dump, LORG_TEXT_ERLANG, NULL, NULL);
	own_pid(pid, sizeof pid);
	text = replaced(text, pid, self_said);
	if (dump_text)
		text = replaced(text, dump_text, dump_said);
	free(dump_text);
	return text;
}

/* ---- testing ------------------------------------------------------------------------ */

struct arguments {
	lorg_term *list;
	uint32_t count;
};

static uint32_t cells(const struct lorg_terms *terms, lorg_term list)
{
	lorg_term head, tail;
	uint32_t count = 0;
	for (; lorg_get_cons(terms, list, &head, &tail); list = tail)
		count++;
	return count;
}

/* The end of an improper list does not count, as in Erlang. */
static bool take_arguments(struct lorg_terms *terms, lorg_term term, bool table, struct arguments *arguments)
{
	lorg_term tail;
	arguments->count = table ? 1 : cells(terms, term);
	arguments->list = calloc((size_t)arguments->count + 1, sizeof *arguments->list);
	if (arguments->list && table)
		arguments->list[0] = term;
	for (uint32_t i = 0; arguments->list && !table && i < arguments->count; i++, term = tail)
		lorg_get_cons(terms, term, &arguments->list[i], &tail);
	return arguments->list != NULL;
}

static enum match_tested evaluate(const struct match_tester *tester, struct lorg_terms *terms, lorg_term term,
				  const struct match_options *options, const struct match_code *code, struct match_test_result *result)
{
	struct arguments arguments;
	struct lorg_match_program program;
	if (!match_code_open(code, options, &program) ||
	    !take_arguments(terms, term, options->dialect == LORG_DIALECT_TABLE, &arguments))
		return MATCH_TEST_NO_MEMORY;
	struct lorg_match_evaluation evaluation = {
		.program = &program,
		.context = &surroundings,
		.owner = (void *)tester,
		.terms = terms,
		.arguments = arguments.list,
		.argument_count = arguments.count,
	};
	terms->steps = STEPS;
	lorg_match_evaluate(&evaluation);
	terms->steps = LORG_STEPS_ENDLESS;
	result->return_trace = evaluation.return_trace;
	result->exception_trace = evaluation.exception_trace;
	result->value = lorg_term_text(terms, evaluation.value, LORG_TEXT_ERLANG, NULL, NULL);
	terms->constant = NULL;
	terms->constant_words = 0;
	if (tester->corpus_form)
		result->value = to_corpus(terms, result->value);
	free(arguments.list);
	return result->value ? MATCH_TESTED : MATCH_TEST_NO_MEMORY;
}

static void one_error(struct match_errors *errors, const struct lorg_read_error *read)
{
	errors->list = calloc(MATCH_ERRORS_MAX, sizeof *errors->list);
	if (!errors->list)
		return;
	errors->count = 1;
	errors->list[0].line = read->line;
	errors->list[0].column = read->column;
	errors->list[0].system_limit = read->system_limit;
	snprintf(errors->list[0].why, sizeof errors->list[0].why, "%s", read->reason);
	snprintf(errors->list[0].advice, sizeof errors->list[0].advice, "write one Erlang term");
}

static enum match_tested read_input(struct lorg_terms *terms, const char *text, bool table, lorg_term *term, struct match_errors *errors)
{
	struct lorg_read_error error;
	*term = lorg_read_term(terms, text, strlen(text), NULL, &error);
	if (*term == LORG_NONE) {
		one_error(errors, &error);
		return MATCH_TEST_BAD_TERM;
	}
	if (table || lorg_is_cons(*term) || lorg_is_nil(*term))
		return MATCH_TESTED;
	error = (struct lorg_read_error){.line = 1, .column = 1, .reason = "is not a list of arguments"};
	one_error(errors, &error);
	if (errors->count)
		snprintf(errors->list[0].advice, sizeof errors->list[0].advice, "write [Argument,...], or use --table");
	return MATCH_TEST_BAD_TERM;
}

enum match_tested match_test(const struct match_tester *tester, const char *term_text, const char *specification_text, bool condition,
			     bool table, struct match_test_result *result, struct match_errors *errors)
{
	struct match_options options = {.dialect = table ? LORG_DIALECT_TABLE : LORG_DIALECT_CALL};
	struct match_code code = {0};
	struct lorg_terms terms;
	lorg_term term = LORG_NONE;
	char *input = from_corpus(tester, term_text), *specification = from_corpus(tester, specification_text);
	enum match_tested tested = MATCH_TEST_NO_MEMORY;
	*result = (struct match_test_result){0};
	lorg_terms_open(&terms);
	if (input && specification)
		tested = read_input(&terms, input, table, &term, errors);
	if (tested == MATCH_TESTED) {
		bool good = condition ? match_compile_condition(specification, strlen(specification), &options, &code, errors)
				      : match_compile(specification, strlen(specification), &options, &code, errors);
		tested = good ? evaluate(tester, &terms, term, &options, &code, result) : MATCH_TEST_BAD_SPECIFICATION;
	}
	match_code_close(&code);
	lorg_terms_close(&terms);
	free(input);
	free(specification);
	return tested;
}

const char *match_test_flags(const struct match_test_result *result)
{
	if (result->return_trace)
		return result->exception_trace ? "[return_trace,exception_trace]" : "[return_trace]";
	return result->exception_trace ? "[exception_trace]" : "[]";
}
