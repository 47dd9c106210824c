/* SPDX-License-Identifier: MIT */
/* functions.h: the functions and actions of match specifications: their names, arities, and where they are allowed. */
#ifndef LORG_PRELOAD_MATCH_FUNCTIONS_H
#define LORG_PRELOAD_MATCH_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <lorg/match.h>

#include "preload/term/term.h"

enum {
	FUNCTION_IN_GUARD = 1 << 0, /* in guards as well; the others only in bodies */
	FUNCTION_IN_TABLE = 1 << 1,
	FUNCTION_IN_CALL = 1 << 2,
	FUNCTION_IN_SEND = 1 << 3,
	FUNCTION_IN_RECEIVE = 1 << 4,
	FUNCTION_EVERYWHERE = FUNCTION_IN_GUARD | FUNCTION_IN_TABLE | FUNCTION_IN_CALL | FUNCTION_IN_SEND | FUNCTION_IN_RECEIVE,
	FUNCTION_ARGUMENTS_ENDLESS = 255, /* greatest: any number */
};

struct lorg_match_function_info {
	char name[22];	      /* terminated; the unary minus is not told from the other: it has its own arity */
	uint8_t least, greatest; /* arguments */
	uint8_t where;	      /* FUNCTION_* */
	uint8_t needs;	      /* LORG_MATCH_NEEDS_* */
};

/* NULL if there is no such function. */
const struct lorg_match_function_info *lorg_match_function_info(uint32_t function);

/* The function may be called in this dialect with so many arguments, in a guard or a body. */
bool lorg_match_function_allowed(uint32_t function, uint32_t dialect, uint32_t arguments, bool body);

/* LORG_TRACE_* of a process flag's name; 0: no such flag. */
uint32_t lorg_match_flag_of(const struct lorg_terms *terms, lorg_term atom);

/* The name of a comparison (enum lorg_match_compare), NULL if there is none. */
const char *lorg_match_compare_name(uint32_t compare);

#endif
