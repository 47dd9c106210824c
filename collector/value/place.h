/* SPDX-License-Identifier: MIT */
/*
 * place.h: where arguments and results stand (System V ABI for AMD64, section
 * 3.2.3, Parameter Passing and Returning of Values).
 */
#ifndef LORG_VALUE_PLACE_H
#define LORG_VALUE_PLACE_H

#include <stdint.h>

#include "collector/value/type.h"

struct value_place {
	uint8_t place; /* enum lorg_place */
	uint8_t index;
	int32_t offset;
};

/* What earlier arguments have taken. All zero before the first. */
struct value_places {
	unsigned integers, vectors;
	uint32_t stack; /* bytes */
	uint32_t lost;	/* 1: an argument of unknown type stood before: nothing behind it can be placed */
};

/* True if a result of this type is written to memory whose address is the first integer argument. */
int value_result_in_memory(const struct value_type *type);

struct value_place value_place_result(const struct value_type *type);
struct value_place value_place_argument(struct value_places *taken, const struct value_type *type);

#endif
