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

int node_print(const char *text)
{
	printf("%s\n", text);
	if (fflush(stdout) == 0)
		return 0;
	if (errno != EPIPE)
		lorg_error("standard output", strerror(errno), "free some space, or write elsewhere");
	return EXIT_STATUS_FAILURE;
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
	return or_end(strdup(text));
}

char *node_flags(char **words, int count)
{
	char *list, *rest, *word;
	size_t length = 0;
	int first = 1;
	if (count == 1 && words[0][0] == '[')
		return or_end(strdup(words[0]));
	FILE *out = open_memstream(&list, &length);
	if (!out)
		return or_end(NULL);
	fputc('[', out);
	for (int i = 0; i < count; i++) {
		for (word = strtok_r(words[i], ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
			char *atom = word[0] == '{' || word[0] == '\'' ? or_end(strdup(word)) : or_end(lorg_atom_quoted(word, strlen(word)));
			fprintf(out, "%s%s", first ? "" : ",", atom);
			free(atom);
			first = 0;
		}
	}
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
	char arity[16] = "'_'";
	if (pattern_parse(text, &pattern, &error)) {
		pattern_complain("function", text, &error);
		exit(EXIT_STATUS_USAGE);
	}
	if (!glob_is_literal(pattern.module) || !glob_is_literal(pattern.function) || pattern.where)
		node_usage(text, "it names more than one function", "name one: MODULE:FUNCTION/ARITY");
	if (pattern.arity != PATTERN_ANY_ARITY)
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

uint64_t node_rate(const char *option, const char *text)
{
	static const char advice[] = "give a number a second: 50 or 50/s";
	char *end;
	uint64_t number = number_before(option, text, &end, advice);
	if (*end && strcmp(end, "/s") != 0)
		node_usage(option, text, advice);
	return number;
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
