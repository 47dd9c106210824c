/* SPDX-License-Identifier: MIT */
/*
 * reader.h: terms from text in Erlang's syntax, and a growable scratch space for them. Outside the traced program only.
 * Nothing here is shared between threads.
 */
#ifndef LORG_COLLECTOR_TERM_READER_H
#define LORG_COLLECTOR_TERM_READER_H

#include "preload/term/term.h"

/* Brackets may nest so deep in a text; more is refused with system_limit. */
#define LORG_NESTING_MAX 1000

/* An empty space that grows by malloc, without limit of steps; released by lorg_terms_close(). */
void lorg_terms_open(struct lorg_terms *terms);
void lorg_terms_close(struct lorg_terms *terms);

/*
 * Where in the text the parts of a term stand: of the term in word N of the scratch space it is start[N] (bytes from the
 * text's beginning). The word of element I of a tuple is lorg_term_offset(tuple) + 1 + I; of a cons cell's head
 * lorg_term_offset(cons), of its tail that + 1; of key I of a map lorg_term_offset(map) + 1 + I, of its value that plus
 * the map's size. Words that hold no part of a term that was read have LORG_NO_POSITION.
 */
struct lorg_positions {
	uint32_t *start;
	uint32_t words;
	uint32_t root; /* the whole term */
};

#define LORG_NO_POSITION UINT32_MAX

void lorg_positions_close(struct lorg_positions *positions);
/* LORG_NO_POSITION where there is none. */
uint32_t lorg_positions_at(const struct lorg_positions *positions, uint32_t word);

struct lorg_read_error {
	uint32_t line, column; /* from 1; columns count characters (UTF-8), a tab as one */
	bool system_limit;     /* well formed so far, but nested too deep or too large */
	char reason[200];      /* in words, without position */
};

/* Line and column of byte `start` of a text. */
void lorg_text_position(const char *text, size_t length, uint32_t start, uint32_t *line, uint32_t *column);

/*
 * One term, and nothing behind it but white space, comments and one full stop. On failure LORG_NONE, *error filled, and
 * the scratch space as before. positions: NULL, or an empty struct (all zero) to be filled, closed by the caller.
 */
lorg_term lorg_read_term(struct lorg_terms *terms, const char *text, size_t length, struct lorg_positions *positions,
	struct lorg_read_error *error);

#endif
