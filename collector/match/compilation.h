/* SPDX-License-Identifier: MIT */
/*
 * compilation.h: one run of the compiler, for the files of this folder alone.
 *
 *   language.c    terms of a specification -> expressions      short_form.c   text of a condition -> expressions
 *   head.c        heads -> code                                expression.c   makes expressions, folds constant ones
 *   generate.c    expressions -> code                          assemble.c     code and constants -> the program
 *   diagnose.c    errors
 */
#ifndef LORG_COLLECTOR_MATCH_COMPILATION_H
#define LORG_COLLECTOR_MATCH_COMPILATION_H

#include "collector/match/compile.h"

enum expression_kind {
	EXPRESSION_BAD, /* an error was reported for it */
	EXPRESSION_LITERAL,
	EXPRESSION_SLOT,     /* a variable or argument */
	EXPRESSION_WORD,     /* an argument's register */
	EXPRESSION_OBJECT,   /* '$_' */
	EXPRESSION_TUPLE,
	EXPRESSION_LIST,     /* the last part is the tail */
	EXPRESSION_MAP,	     /* keys, then values */
	EXPRESSION_COMPARE,
	EXPRESSION_CALL,
	EXPRESSION_AND_ALSO,
	EXPRESSION_OR_ELSE,
	EXPRESSION_CALLER_IN,
	EXPRESSION_LOAD,
};

struct expression {
	enum expression_kind kind;
	uint32_t place;	     /* byte of the text, or LORG_NO_POSITION */
	lorg_term literal;
	uint16_t slot;
	uint8_t what;	     /* function, comparison, load, or how of CALLER_IN */
	uint16_t length;     /* LOAD: of a text */
	int32_t offset;	     /* LOAD */
	uint32_t start, ranges; /* CALLER_IN */
	bool address;	     /* has an address in the program in place of {M,F,A}, itself or in its parts */
	bool is_caller;	     /* {caller} itself */
	struct expression **parts;
	uint32_t count;
	uint32_t height;     /* levels below it; at most LORG_NESTING_MAX, so that generating code may recurse */
};

enum binding_kind {
	BINDING_SLOT,
	BINDING_OBJECT,
};

struct binding {
	const char *digits; /* of '$N': as text, since N has no limit */
	enum binding_kind kind;
	uint16_t slot;
};

struct block; /* memory of expressions */

struct compilation {
	const struct match_options *options;
	struct match_errors *errors;
	struct lorg_terms *terms;
	const struct lorg_positions *positions; /* NULL: none */
	const char *text;			/* NULL: none */
	size_t length;
	bool failed;
	struct block *blocks;
	/* code */
	lorg_match_instruction *code;
	uint32_t code_count, code_room;
	uint32_t depth, stack; /* words on the stack now, and at most */
	uint32_t clauses, variables;
	uint32_t needs;
	uint64_t arguments;
	lorg_term *constants; /* index: operand of instructions */
	uint32_t constant_count, constant_room;
	uint32_t *constant_places; /* hash table of indexes + 1; constant_slots of them, a power of two */
	uint32_t constant_slots;
	struct lorg_match_range *ranges;
	uint32_t range_count, range_room;
	/* the clause at hand */
	struct binding **bindings; /* in the order of their numbers */
	uint32_t binding_count, binding_room;
	uint32_t clause_variables;
	bool short_form;
};

void compilation_close(struct compilation *compilation);

/* ---- diagnose.c ---------------------------------------------------------------- */

void defect(struct compilation *compilation, uint32_t place, const char *advice, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void defect_limit(struct compilation *compilation, uint32_t place, const char *advice, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void defect_memory(struct compilation *compilation);
/* Text of a term for an error, cut short; valid until the next call. */
const char *term_said(struct compilation *compilation, lorg_term term);

/* ---- expression.c ----------------------------------------------------------------- */

/* NULL never: without memory an error is reported and the result is of no use. */
struct expression *expression_new(struct compilation *compilation, enum expression_kind kind, uint32_t place, uint32_t parts);
struct expression *expression_bad(void);
struct expression *expression_literal(struct compilation *compilation, uint32_t place, lorg_term literal);
/* To be called once the parts are set: checks how deep they nest. */
struct expression *expression_settle(struct compilation *compilation, struct expression *expression);
/* The same for tuples, lists and maps, which become literals if all of their parts are. */
struct expression *expression_construct(struct compilation *compilation, struct expression *expression);
/* A call of a function or comparison by name, in a guard or body, with all checks. */
struct expression *expression_call(struct compilation *compilation, uint32_t place, const char *name, struct expression **arguments,
				   uint32_t count, bool body);
/* A call of a function that is known to be allowed. */
struct expression *expression_of_function(struct compilation *compilation, uint32_t place, enum lorg_match_function function,
					  struct expression *a, struct expression *b);
bool expression_is_literal(const struct expression *expression);

void *compilation_room(struct compilation *compilation, size_t size);

/* ---- head.c ----------------------------------------------------------------------- */

void generate_head(struct compilation *compilation, lorg_term head, uint32_t place);
/* '$N' without leading zeros. */
bool variable_digits(const struct lorg_terms *terms, lorg_term atom, char digits[LORG_ATOM_BYTES_MAX]);
const struct binding *binding_find(const struct compilation *compilation, const char *digits);

/* ---- language.c --------------------------------------------------------------------- */

bool compile_specification(struct compilation *compilation, lorg_term specification);
uint32_t place_of_word(const struct compilation *compilation, uint64_t word);

/* ---- generate.c ------------------------------------------------------------------------ */

void emit(struct compilation *compilation, uint8_t operation, uint8_t a, uint16_t b, uint32_t c);
/* Instructions that take and leave words on the stack are noted by this, behind emit. */
void stack_moves(struct compilation *compilation, uint32_t takes, uint32_t leaves);
uint32_t constant_index(struct compilation *compilation, lorg_term term);
void emit_slot(struct compilation *compilation, uint8_t operation, uint8_t a, uint16_t slot, uint32_t c);
/* Returns what generate_clause_end needs. */
uint32_t generate_clause_begin(struct compilation *compilation);
void generate_clause_end(struct compilation *compilation, uint32_t begun);
void generate_guard(struct compilation *compilation, const struct expression *guard);
void generate_body(struct compilation *compilation, struct expression *const *body, uint32_t count);

/* ---- assemble.c ---------------------------------------------------------------------------- */

bool assemble(struct compilation *compilation, struct match_code *code);

/* ---- short_form.c ---------------------------------------------------------------------------- */

bool compile_condition(struct compilation *compilation);

#endif
