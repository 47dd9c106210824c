/* SPDX-License-Identifier: MIT */
/* call.h: the functions and actions of match specifications, for evaluate.c alone. */
#ifndef LORG_PRELOAD_MATCH_CALL_H
#define LORG_PRELOAD_MATCH_CALL_H

#include "preload/match/evaluate.h"

enum {
	MATCH_ARGUMENTS_MAX = 3, /* of all functions but and, or */
};

/* One of the type tests holds. */
bool match_type_test(const struct lorg_terms *terms, uint32_t function, lorg_term term);

/* 1, 0, or -1 where terms->failure says why. */
int match_compare(struct lorg_terms *terms, uint32_t compare, lorg_term a, lorg_term b);

/* Functions of guards, which have no effect. LORG_NONE: failed. count: checked by the caller, as is the function. */
lorg_term match_call_function(struct lorg_match_evaluation *evaluation, uint32_t function, const lorg_term *arguments, uint32_t count);

/* Actions. */
lorg_term match_call_action(struct lorg_match_evaluation *evaluation, uint32_t function, const lorg_term *arguments, uint32_t count);

/* IEEE 754 of 32 bits, or with `large` of 64. */
lorg_term match_float_of_bits(struct lorg_terms *terms, uint64_t bits, bool large);

/* Both are floats, bit for bit the same: 0.0 is not -0.0. */
bool match_same_float(const struct lorg_terms *terms, lorg_term a, lorg_term b);

static inline lorg_term match_bad_argument(struct lorg_terms *terms)
{
	return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
}

static inline lorg_term match_undefined(struct lorg_terms *terms)
{
	return lorg_atom_text(terms, "undefined");
}

#endif
