/* SPDX-License-Identifier: MIT */
/*
 * values.h: the `terms` of events (include/lorg/term.h) in each form of output.
 * Blobs are of the program: whatever their bytes, what can be read is printed
 * and the rest is marked. One thread.
 */
#ifndef LORG_FORMAT_VALUES_H
#define LORG_FORMAT_VALUES_H

#include "collector/format/format.h"

/* Whose addresses in code are named, and when. */
struct values_context {
	struct formatter *formatter;
	const struct trace_image *image;
	uint64_t tick;
};

/* All terms of a blob, separated by ", "; "..." at the end where it is damaged. */
void values_people(const struct values_context *context, const uint8_t *terms, size_t length);
void values_erlang(const struct values_context *context, const uint8_t *terms, size_t length);

/* How many terms there are, up to the first that cannot be read. */
size_t values_count(const uint8_t *terms, size_t length);

/* Bytes of all terms but the last, which a match specification has added; all, where one cannot be read. */
size_t values_before_last(const uint8_t *terms, size_t length);

/*
 * A list with a value each: numbers, strings and booleans as such, tuples and lists as lists, a struct as an object
 * with "struct" (its tag) and its members, a cut string as {"text", "length"}, a pointer as "0x..." or, where it was
 * followed, {"address", "to"}, an unknown value as null, what JSON has no form for as a string in Erlang's syntax.
 */
void values_json_list(const struct values_context *context, const uint8_t *terms, size_t length);
/* The first term alone; null where there is none. */
void values_json(const struct values_context *context, const uint8_t *terms, size_t length);

#endif
