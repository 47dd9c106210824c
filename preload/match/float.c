/* SPDX-License-Identifier: MIT */
/* float.c: the one place here where floating-point numbers are looked at: built with vector registers, like terms. */
#include "preload/match/call.h"

lorg_term match_float_of_bits(struct lorg_terms *terms, uint64_t bits, bool large)
{
	union {
		uint64_t bits;
		double number;
	} wide = {.bits = bits};
	union {
		uint32_t bits;
		float number;
	} narrow = {.bits = (uint32_t)bits};
	return lorg_float(terms, large ? wide.number : narrow.number);
}

bool match_same_float(const struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double x, y;
	return lorg_get_float(terms, a, &x) && lorg_get_float(terms, b, &y) && x == y && __builtin_signbit(x) == __builtin_signbit(y);
}
