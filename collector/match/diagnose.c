/* SPDX-License-Identifier: MIT */
/* diagnose.c: the errors of a compilation. */
#include "collector/match/compilation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/printer.h"

void match_errors_close(struct match_errors *errors)
{
	free(errors->list);
	*errors = (struct match_errors){0};
}

void match_error_text(const struct match_error *error, char *text, size_t size)
{
	if (error->line)
		snprintf(text, size, "%u:%u: %s", error->line, error->column, error->why);
	else
		snprintf(text, size, "%s", error->why);
}

static struct match_error *new_error(struct match_errors *errors)
{
	if (!errors->list)
		errors->list = calloc(MATCH_ERRORS_MAX, sizeof *errors->list);
	if (!errors->list || errors->count == MATCH_ERRORS_MAX) {
		errors->left_out++;
		return NULL;
	}
	return &errors->list[errors->count++];
}

static void report(struct compilation *compilation, bool system_limit, uint32_t place, const char *advice, const char *format,
		   va_list values)
{
	struct match_error *error = new_error(compilation->errors);
	compilation->failed = true;
	if (!error)
		return;
	error->system_limit = system_limit;
	vsnprintf(error->why, sizeof error->why, format, values);
	snprintf(error->advice, sizeof error->advice, "%s", advice);
	if (compilation->text && place != LORG_NO_POSITION)
		lorg_text_position(compilation->text, compilation->length, place, &error->line, &error->column);
}

void defect(struct compilation *compilation, uint32_t place, const char *advice, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	report(compilation, false, place, advice, format, values);
	va_end(values);
}

void defect_limit(struct compilation *compilation, uint32_t place, const char *advice, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	report(compilation, true, place, advice, format, values);
	va_end(values);
}

void defect_memory(struct compilation *compilation)
{
	if (!compilation->failed)
		defect_limit(compilation, LORG_NO_POSITION, "make it smaller", "there is no memory for it");
}

const char *term_said(struct compilation *compilation, lorg_term term)
{
	enum { SAID = 60 };
	static char said[SAID + 8];
	char *text = lorg_term_text(compilation->terms, term, LORG_TEXT_PEOPLE, NULL, NULL);
	if (!text)
		return "a term";
	size_t length = strlen(text);
	snprintf(said, sizeof said, "%.*s", SAID, text);
	if (length > SAID) {
		/* Not in the middle of a character. */
		size_t end = SAID;
		while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
			end--;
		strcpy(said + end, "...");
	}
	free(text);
	return said;
}
