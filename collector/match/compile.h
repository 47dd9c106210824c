/* SPDX-License-Identifier: MIT */
/*
 * compile.h: from match specifications, and from conditions in the short form, to byte code (include/lorg/match.h).
 *
 * Outside the traced program only. Nothing is shared between threads. All defects of a text are reported, each with its
 * place; a program is made only if there is none.
 */
#ifndef LORG_COLLECTOR_MATCH_COMPILE_H
#define LORG_COLLECTOR_MATCH_COMPILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lorg/match.h>

#include "collector/term/reader.h"
#include "preload/match/program.h"
#include "preload/term/term.h"

/* ---- errors ------------------------------------------------------------------- */

enum {
	MATCH_ERRORS_MAX = 64, /* more are counted, and not kept */
};

struct match_error {
	uint32_t line, column; /* from 1; 0: not known */
	bool system_limit;     /* nested too deep, or too large */
	char why[320], advice[200];
};

struct match_errors {
	struct match_error *list;
	uint32_t count, left_out;
};

void match_errors_close(struct match_errors *errors);

/* "1:14: why" into text. */
void match_error_text(const struct match_error *error, char *text, size_t size);

/* ---- what the compiler asks for ---------------------------------------------------- */

enum match_type_kind {
	MATCH_TYPE_UNKNOWN = 0,
	MATCH_TYPE_INTEGER, /* enumerations and characters as well */
	MATCH_TYPE_BOOLEAN,
	MATCH_TYPE_FLOAT,
	MATCH_TYPE_POINTER,
	MATCH_TYPE_STRUCT, /* and unions */
	MATCH_TYPE_ARRAY,
};

/* A type of C. */
struct match_type {
	enum match_type_kind kind;
	uint64_t size;	       /* bytes */
	bool is_signed;
	bool is_text;	       /* pointer to, or array of, characters */
	uint32_t bits;	       /* of a bit field; else 0 */
	uint32_t bit_offset;   /* its lowest bit in the `size` bytes that hold it */
	uint64_t handle[2];    /* the resolver's own */
};

/* Any function may be NULL: then nothing of the kind is known. */
struct match_names {
	void *owner;
	/* The index of a parameter of this name. */
	bool (*parameter)(void *owner, const char *name, uint32_t *index);
	bool (*parameter_type)(void *owner, uint32_t index, struct match_type *type);
	/* A member of a struct, or of what a pointer points to. */
	bool (*member)(void *owner, const struct match_type *of, const char *name, struct match_type *type, uint64_t *offset);
	/* What a pointer points to, or an array consists of. */
	bool (*element)(void *owner, const struct match_type *of, struct match_type *type);
	/*
	 * The addresses of a function's code. arity -1: any. Returns how many ranges; *ranges is freed by the caller. -1: not
	 * known, for instance because the module is not loaded.
	 */
	int (*ranges)(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **ranges);
	/*
	 * Nothing is known yet, and all will be: parameters, members and types are taken for right, so that only what is wrong
	 * in any case is a defect. The program is no good but for what it needs.
	 */
	bool any;
	/* True where a word that is no parameter can be no atom of its values either: mistyped. `why` says what there is. */
	bool (*mistyped)(void *owner, const char *name, char *why, size_t size);
};

struct match_options {
	enum lorg_match_dialect dialect;
	/*
	 * For a traced program: {caller} is an address, and the limits of match.h hold. Else what match_spec_test does, with
	 * no limit but memory.
	 */
	bool inside;
	const struct match_names *names; /* may be NULL */
	uint32_t flags; /* LORG_TRACE_*: those that actions can set, others are refused; 0: all. And no tracer, where not 0 */
};

/* ---- compiling ------------------------------------------------------------------------ */

extern const struct lorg_match_limits match_limits_outside;

/* The program, aligned for lorg_match_open; freed by match_code_close. */
struct match_code {
	uint64_t *memory;
	size_t size; /* bytes */
};

void match_code_close(struct match_code *code);

/* A match specification in Erlang's syntax. */
bool match_compile(const char *text, size_t length, const struct match_options *options, struct match_code *code,
		   struct match_errors *errors);

/* The same for a term that was read from a text already (positions and text may be NULL). Uses room in terms. */
bool match_compile_term(struct lorg_terms *terms, lorg_term specification, const struct lorg_positions *positions, const char *text,
			size_t length, const struct match_options *options, struct match_code *code, struct match_errors *errors);

/* A condition in the short form; trace dialects only. */
bool match_compile_condition(const char *text, size_t length, const struct match_options *options, struct match_code *code,
			     struct match_errors *errors);

/* Opens a program for evaluation, where nobody else writes to it. False: no memory, or it is no good. */
bool match_code_open(const struct match_code *code, const struct match_options *options, struct lorg_match_program *program);

#endif
