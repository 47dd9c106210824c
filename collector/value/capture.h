/* SPDX-License-Identifier: MIT */
/* capture.h: prototypes become the captures of a plan (include/lorg/plan.h). */
#ifndef LORG_VALUE_CAPTURE_H
#define LORG_VALUE_CAPTURE_H

#include "collector/value/type.h"
#include "collector/value/value.h"

void value_capture_prototype(const struct value_prototype *prototype, struct value_area *captures, struct value_area *names,
			     struct value_function *function);

/* A member as a capture with place MEMORY, without detail: for loads. */
struct lorg_capture value_capture_member(const struct value_member *member);

#endif
