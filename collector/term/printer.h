/* SPDX-License-Identifier: MIT */
/* printer.h: text of terms, from struct lorg_terms and from the encoding in events. Outside the traced program only. */
#ifndef LORG_COLLECTOR_TERM_PRINTER_H
#define LORG_COLLECTOR_TERM_PRINTER_H

#include <stdio.h>

#include "preload/term/term.h"

enum lorg_text_form {
	LORG_TEXT_ERLANG, /* exactly io_lib:format("~w") of OTP 25 */
	LORG_TEXT_PEOPLE, /* strings as "...", pids and ports as short as they go, lorg's own tags as said in lorg/term.h */
};

/* Longer text than this is not made. */
#define LORG_TEXT_MAX ((size_t)64 << 20)

/* Turns an address in code into text: returns what to print (valid until the next call) or NULL. */
struct lorg_code_names {
	const char *(*name)(void *context, uint64_t address);
	void *context;
	const char *(*line)(void *context, uint64_t address); /* the same with file and line; NULL: as name */
};

/*
 * Text of a term, terminated, to be freed by the caller; *length may be NULL. NULL if the term is broken or too long, or
 * there is no memory. names may be NULL: then addresses in code are printed as {code,16#...}.
 */
char *lorg_term_text(struct lorg_terms *terms, lorg_term term, enum lorg_text_form form, const struct lorg_code_names *names,
	size_t *length);

/* Text of the first term of a blob, moves *at behind it; NULL at a malformed or too long one. A blob is printed term by term. */
char *lorg_external_text(const uint8_t **at, const uint8_t *end, enum lorg_text_form form, const struct lorg_code_names *names,
	size_t *length);

/* An atom as Erlang writes it, quoted when needed, to be freed by the caller; NULL without memory. text is UTF-8. */
char *lorg_atom_quoted(const char *text, size_t length);

/* A float as Erlang writes it: shortest text that reads back as the same number. text: at least LORG_FLOAT_TEXT bytes. */
#define LORG_FLOAT_TEXT 32
void lorg_float_text(double value, char *text);

#endif
