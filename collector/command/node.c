/* SPDX-License-Identifier: MIT */
/* node.c: see node.h. */
#include "collector/command/node.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/client/terms.h"
#include "collector/command/calls.h"
#include "collector/command/error.h"
#include "collector/format/output.h"
#include "collector/plan/pattern.h"
#include "collector/term/printer.h"

struct lorg_connection *node_connect(void)
{
	struct lorg_failure failure;
	struct lorg_connection *connection = lorg_connect(NULL, &failure);
	if (!connection)
		lorg_error(failure.text, NULL, NULL);
	return connection;
}

struct lorg_session *node_session(struct lorg_connection *connection, const char *text)
{
	struct lorg_failure failure;
	struct lorg_session *session = lorg_session_find(connection, text, &failure);
	if (!session)
		lorg_error(failure.text, NULL, NULL);
	return session;
}

int node_failed(const char *what, const struct lorg_failure *failure)
{
	lorg_error(what, failure->text, NULL);
	return EXIT_STATUS_FAILURE;
}

enum { REFUSALS_SAID = 10 };

void node_say_refused(const char *refused)
{
	struct term_refusal *refusals;
	char more[64];
	int64_t count = term_refusals(refused, &refusals);
	if (count <= 0) {
		if (strcmp(refused, "[]") != 0)
			lorg_error("not hooked", refused, NULL);
		if (count == 0)
			free(refusals);
		return;
	}
	for (int64_t i = 0; i < count && i < REFUSALS_SAID; i++)
		lorg_error(refusals[i].function, "not hooked", refusals[i].why);
	snprintf(more, sizeof more, "%lld more functions", (long long)(count - REFUSALS_SAID));
	if (count > REFUSALS_SAID)
		lorg_error(more, "not hooked", "ask for fewer to see why");
	term_refusals_free(refusals, count);
}

int node_end_output(struct output *output)
{
	int error = output_end(output);
	if (error && error != EPIPE)
		lorg_error("standard output", strerror(error), "free some space, or write elsewhere");
	return error ? EXIT_STATUS_FAILURE : 0;
}

int node_print(const char *text)
{
	printf("%s\n", text);
	return lorg_flush_output();
}

int node_print_number(int64_t number)
{
	char text[32];
	snprintf(text, sizeof text, "%lld", (long long)number);
	return node_print(text);
}

void node_usage(const char *what, const char *why, const char *what_to_do)
{
	lorg_error(what, why, what_to_do);
	exit(EXIT_STATUS_USAGE);
}

/* ---- terms ------------------------------------------------------------------- */

static char *or_end(char *text)
{
	if (text)
		return text;
	lorg_error("out of memory", NULL, "free some");
	exit(EXIT_STATUS_FAILURE);
}

char *node_printf(const char *format, ...)
{
	va_list arguments;
	char *text;
	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	return or_end(text);
}

char *node_whom(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	size_t more = digits && text[digits] == '.' ? strspn(text + digits + 1, "0123456789") : 0;
	if (digits && !text[digits])
		return node_printf("<%s>", text);
	if (more && !text[digits + 1 + more])
		return node_printf("<%s.0>", text);
	if (strcmp(text, "receive") == 0) /* a reserved word */
		return node_printf("'receive'");
	return or_end(strdup(text));
}

char *node_target(const char *text)
{
	return strchr(text, ':') && text[0] != '{' && text[0] != '#' && text[0] != '<' ? node_function(text) : node_whom(text);
}

/* One word, or several in one, separated by commas. */
static void add_flags(FILE *out, const char *words, int *count)
{
	char *copy = or_end(strdup(words)), *rest;
	for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
		char *atom = word[0] == '{' || word[0] == '\'' ? or_end(strdup(word)) : or_end(lorg_atom_quoted(word, strlen(word)));
		fprintf(out, "%s%s", (*count)++ ? "," : "", atom);
		free(atom);
	}
	free(copy);
}

char *node_flags(char *const *words, int count)
{
	char *list;
	size_t length = 0;
	int flags = 0;
	if (count == 1 && words[0][0] == '[')
		return or_end(strdup(words[0]));
	FILE *out = open_memstream(&list, &length);
	if (!out)
		return or_end(NULL);
	fputc('[', out);
	for (int i = 0; i < count; i++)
		add_flags(out, words[i], &flags);
	fputc(']', out);
	return or_end(fclose(out) == 0 ? list : NULL);
}

char *node_string(const char *text)
{
	char *string = or_end(malloc(2 * strlen(text) + 3)), *at = string;
	*at++ = '"';
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			*at++ = '\\';
		*at++ = *text;
	}
	*at++ = '"';
	*at = 0;
	return string;
}

char *node_pattern(const char *text)
{
	struct pattern pattern;
	struct pattern_error error;
	if (text[0] == '{' || strcmp(text, "on_load") == 0)
		return or_end(strdup(text));
	if (pattern_parse(text, &pattern, &error)) {
		pattern_complain("pattern", text, &error);
		exit(EXIT_STATUS_USAGE);
	}
	pattern_free(&pattern);
	return node_string(text);
}

char *node_function(const char *text)
{
	struct pattern pattern;
	struct pattern_error error;
	char arity[16];
	if (pattern_parse(text, &pattern, &error)) {
		pattern_complain("function", text, &error);
		exit(EXIT_STATUS_USAGE);
	}
	if (!glob_is_literal(pattern.module) || !glob_is_literal(pattern.function) || pattern.where)
		node_usage(text, "it names more than one function", "name one: MODULE:FUNCTION/ARITY");
	if (pattern.arity == PATTERN_ANY_ARITY)
		node_usage(text, "its number of arguments is needed", "MODULE:FUNCTION/ARITY, as messages tell it");
	snprintf(arity, sizeof arity, "%d", pattern.arity);
	char *module = or_end(lorg_atom_quoted(pattern.module, strlen(pattern.module)));
	char *function = or_end(lorg_atom_quoted(pattern.function, strlen(pattern.function)));
	char *term = node_printf("{%s,%s,%s}", module, function, arity);
	free(module);
	free(function);
	pattern_free(&pattern);
	return term;
}

/* ---- numbers ------------------------------------------------------------------- */

/* A number from 1 on and what follows it. */
static uint64_t number_before(const char *option, const char *text, char **end, const char *what_to_do)
{
	errno = 0;
	unsigned long long number = strtoull(text, end, 10);
	if (*text < '1' || *text > '9' || errno)
		node_usage(option, text, what_to_do);
	return number;
}

uint64_t node_count(const char *option, const char *text)
{
	static const char advice[] = "give a whole number from 1 on";
	char *end;
	uint64_t number = number_before(option, text, &end, advice);
	if (*end)
		node_usage(option, text, advice);
	return number;
}

const char rate_advice[] = "give a number a second, or of another time: 50, 50/s, 5/ms, 3000/min, 1000/h";

int rate_parse(const char *text, uint64_t *number, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {{"/us", 1000}, {"/ms", 1000000}, {"/s", 1000000000}, {"/sec", 1000000000}, {"/min", 60000000000}, {"/h", 3600000000000}};
	char *end;
	errno = 0;
	*number = strtoull(text, &end, 10);
	*ns = 1000000000;
	if (*text < '1' || *text > '9' || errno)
		return -1;
	for (size_t i = 0; *end && i < sizeof units / sizeof *units; i++) {
		if (strcmp(end, units[i].name) != 0)
			continue;
		*ns = units[i].ns;
		return 0;
	}
	return *end ? -1 : 0;
}

void node_rate(const char *option, const char *text, struct lorg_limits *limits)
{
	if (rate_parse(text, &limits->rate, &limits->rate_ns))
		node_usage(option, text, rate_advice);
}

uint64_t node_bytes(const char *option, const char *text)
{
	static const char units[] = "kMG", advice[] = "give a number of bytes, with k, M or G for more of them";
	char *end;
	uint64_t number = number_before(option, text, &end, advice);
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		node_usage(option, text, advice);
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
	if (number > UINT64_MAX >> shift)
		node_usage(option, text, advice);
	return number << shift;
}
