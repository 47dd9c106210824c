/* SPDX-License-Identifier: MIT */
/* head.c: heads of clauses to code. What is the whole of an argument needs no variable: it is used where it stands. */
#include "collector/match/compilation.h"

#include <stdlib.h>
#include <string.h>

bool variable_digits(const struct lorg_terms *terms, lorg_term atom, char digits[LORG_ATOM_BYTES_MAX])
{
	char short_text[8];
	size_t length;
	if (!lorg_is_atom(atom))
		return false;
	const char *text = lorg_get_atom(terms, atom, short_text, &length);
	if (!text || length < 2 || length > LORG_ATOM_BYTES_MAX || text[0] != '$' || (text[1] == '0' && length > 2))
		return false;
	for (size_t i = 1; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		digits[i - 1] = text[i];
	}
	digits[length - 1] = '\0';
	return true;
}

static bool is_wildcard(const struct compilation *compilation, lorg_term term)
{
	return lorg_is_atom(term) && lorg_atom_is(compilation->terms, term, "_");
}

/* ---- bindings -------------------------------------------------------------------- */

static int order_of_digits(const char *a, const char *b)
{
	size_t length = strlen(a), other = strlen(b);
	return length != other ? (length < other ? -1 : 1) : strcmp(a, b);
}

/* Where it is, or belongs. */
static uint32_t binding_place(const struct compilation *compilation, const char *digits)
{
	uint32_t low = 0, high = compilation->binding_count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (order_of_digits(compilation->bindings[middle]->digits, digits) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct binding *binding_find(const struct compilation *compilation, const char *digits)
{
	uint32_t place = binding_place(compilation, digits);
	if (place == compilation->binding_count || order_of_digits(compilation->bindings[place]->digits, digits) != 0)
		return NULL;
	return compilation->bindings[place];
}

static bool room_for_binding(struct compilation *compilation)
{
	if (compilation->binding_count < compilation->binding_room)
		return true;
	uint32_t room = compilation->binding_room * 2 + 16;
	struct binding **larger = realloc(compilation->bindings, room * sizeof *larger);
	if (!larger) {
		defect_memory(compilation);
		return false;
	}
	compilation->bindings = larger;
	compilation->binding_room = room;
	return true;
}

static void bind(struct compilation *compilation, const char *digits, enum binding_kind kind, uint16_t slot)
{
	struct binding *binding = compilation_room(compilation, sizeof *binding);
	char *copy = compilation_room(compilation, strlen(digits) + 1);
	if (!binding || !copy || !room_for_binding(compilation))
		return;
	*binding = (struct binding){strcpy(copy, digits), kind, slot};
	uint32_t place = binding_place(compilation, digits);
	memmove(compilation->bindings + place + 1, compilation->bindings + place,
		(compilation->binding_count - place) * sizeof *compilation->bindings);
	compilation->bindings[place] = binding;
	compilation->binding_count++;
}

static void bind_top(struct compilation *compilation, const char *digits, uint32_t place)
{
	if (compilation->clause_variables == LORG_MATCH_SLOT_ARGUMENT) {
		defect_limit(compilation, place, "use fewer", "a clause has more than 32768 variables");
		return;
	}
	uint16_t slot = (uint16_t)compilation->clause_variables++;
	emit(compilation, LORG_MATCH_BIND, 0, slot, 0);
	stack_moves(compilation, 1, 0);
	bind(compilation, digits, BINDING_SLOT, slot);
}

/* ---- patterns --------------------------------------------------------------------- */

/* 0.0 and -0.0 are exactly equal, but in a head Erlang tells one from the other. */
static bool is_float_zero(const struct compilation *compilation, lorg_term term)
{
	double value;
	return lorg_get_float(compilation->terms, term, &value) && value == 0;
}

/* Has neither variable nor '_' nor map nor zero as a float: matches what is exactly equal to it. */
static bool is_plain(const struct compilation *compilation, lorg_term term, uint32_t depth)
{
	char digits[LORG_ATOM_BYTES_MAX];
	lorg_term head, tail;
	uint32_t arity;
	for (; lorg_get_cons(compilation->terms, term, &head, &tail); term = tail)
		if (depth == 0 || !is_plain(compilation, head, depth - 1))
			return false;
	if (lorg_is_atom(term))
		return !is_wildcard(compilation, term) && !variable_digits(compilation->terms, term, digits);
	const lorg_term *elements = lorg_get_tuple(compilation->terms, term, &arity);
	for (uint32_t i = 0; elements && i < arity; i++)
		if (depth == 0 || !is_plain(compilation, elements[i], depth - 1))
			return false;
	return lorg_term_kind(compilation->terms, term) != LORG_KIND_MAP && !is_float_zero(compilation, term);
}

static void match_top(struct compilation *compilation, lorg_term pattern, uint32_t place, uint32_t depth);

static bool nests_too_deep(struct compilation *compilation, uint32_t place, uint32_t depth)
{
	if (depth > 0)
		return false;
	defect_limit(compilation, place, "nest less", "the head is nested deeper than %d levels", LORG_NESTING_MAX);
	return true;
}

static void match_variable(struct compilation *compilation, const char *digits, uint32_t place)
{
	const struct binding *binding = binding_find(compilation, digits);
	if (!binding) {
		bind_top(compilation, digits, place);
		return;
	}
	emit_slot(compilation, LORG_MATCH_SAME, 0, binding->slot, 0);
	stack_moves(compilation, 1, 0);
}

static void match_tuple(struct compilation *compilation, lorg_term pattern, uint32_t arity, uint32_t depth)
{
	emit(compilation, LORG_MATCH_TAKE_TUPLE, 0, 0, arity);
	stack_moves(compilation, 1, arity);
	for (uint32_t i = 0; i < arity; i++) {
		uint32_t ignored;
		lorg_term element = lorg_get_tuple(compilation->terms, pattern, &ignored)[i];
		match_top(compilation, element, place_of_word(compilation, (uint64_t)lorg_term_offset(pattern) + 1 + i), depth - 1);
	}
}

static void check_key(struct compilation *compilation, lorg_term key, uint32_t place)
{
	char digits[LORG_ATOM_BYTES_MAX];
	const char *advice = "write keys out; what their values may be can be a pattern";
	if (is_wildcard(compilation, key))
		defect(compilation, place, advice, "'_' as a key of a map in the head");
	else if (variable_digits(compilation->terms, key, digits))
		defect(compilation, place, advice, "variable '$%s' as a key of a map in the head", digits);
}

static void match_map(struct compilation *compilation, lorg_term pattern, uint32_t count, uint32_t depth)
{
	uint32_t offset = lorg_term_offset(pattern);
	emit(compilation, LORG_MATCH_TAKE_MAP, 0, 0, 0);
	for (uint32_t i = 0; i < count; i++) {
		const lorg_term *values;
		uint32_t ignored;
		const lorg_term *keys = lorg_get_map(compilation->terms, pattern, &ignored, &values);
		lorg_term key = keys[i], value = values[i];
		check_key(compilation, key, place_of_word(compilation, (uint64_t)offset + 1 + i));
		emit(compilation, LORG_MATCH_TAKE_KEY, 0, 0, constant_index(compilation, key));
		stack_moves(compilation, 0, 1);
		match_top(compilation, value, place_of_word(compilation, (uint64_t)offset + 1 + count + i), depth - 1);
	}
	emit(compilation, LORG_MATCH_POP, 0, 0, 0);
	stack_moves(compilation, 1, 0);
}

static void match_literal(struct compilation *compilation, lorg_term literal)
{
	emit(compilation, LORG_MATCH_LITERAL, is_float_zero(compilation, literal), 0, constant_index(compilation, literal));
	stack_moves(compilation, 1, 0);
}

/* The pattern against what is on top of the stack, which it takes away. */
static void match_top(struct compilation *compilation, lorg_term pattern, uint32_t place, uint32_t depth)
{
	char digits[LORG_ATOM_BYTES_MAX];
	lorg_term head, tail;
	uint32_t count;
	if (nests_too_deep(compilation, place, depth))
		return;
	while (lorg_get_cons(compilation->terms, pattern, &head, &tail) && !is_plain(compilation, pattern, depth)) {
		uint32_t offset = lorg_term_offset(pattern);
		emit(compilation, LORG_MATCH_TAKE_CONS, 0, 0, 0);
		stack_moves(compilation, 1, 2);
		match_top(compilation, head, place_of_word(compilation, offset), depth - 1);
		pattern = tail;
		place = place_of_word(compilation, (uint64_t)offset + 1);
	}
	if (is_wildcard(compilation, pattern)) {
		emit(compilation, LORG_MATCH_POP, 0, 0, 0);
		stack_moves(compilation, 1, 0);
	} else if (variable_digits(compilation->terms, pattern, digits)) {
		match_variable(compilation, digits, place);
	} else if (lorg_get_map(compilation->terms, pattern, &count, NULL)) {
		match_map(compilation, pattern, count, depth);
	} else if (is_plain(compilation, pattern, depth)) {
		match_literal(compilation, pattern);
	} else if (lorg_get_tuple(compilation->terms, pattern, &count)) {
		match_tuple(compilation, pattern, count, depth);
	} else {
		match_literal(compilation, pattern);
	}
}

/* ---- the whole head ---------------------------------------------------------------- */

static void match_argument(struct compilation *compilation, lorg_term pattern, uint32_t index, uint32_t place)
{
	char digits[LORG_ATOM_BYTES_MAX];
	uint16_t slot = (uint16_t)(LORG_MATCH_SLOT_ARGUMENT | index);
	if (is_wildcard(compilation, pattern))
		return;
	if (variable_digits(compilation->terms, pattern, digits) && !binding_find(compilation, digits)) {
		bind(compilation, digits, BINDING_SLOT, slot);
		return;
	}
	emit_slot(compilation, LORG_MATCH_PUSH, 0, slot, 0);
	stack_moves(compilation, 0, 1);
	match_top(compilation, pattern, place, LORG_NESTING_MAX);
}

static void head_count(struct compilation *compilation, uint32_t count, uint32_t place)
{
	emit(compilation, LORG_MATCH_HEAD_COUNT, 0, 0, count);
	if (count > LORG_MATCH_ARGUMENTS)
		defect_limit(compilation, place, "write '_' for the whole list", "the head has more than %d arguments", LORG_MATCH_ARGUMENTS);
}

static void match_argument_list(struct compilation *compilation, lorg_term list, uint32_t place)
{
	int64_t count = lorg_list_length(compilation->terms, list);
	lorg_term head, tail;
	if (count < 0) {
		defect(compilation, place, "end the list without |", "the head %s is not a proper list", term_said(compilation, list));
		return;
	}
	head_count(compilation, (uint32_t)count, place);
	for (uint32_t i = 0; i < count && i < LORG_MATCH_ARGUMENTS && lorg_get_cons(compilation->terms, list, &head, &tail); i++) {
		match_argument(compilation, head, i, place_of_word(compilation, lorg_term_offset(list)));
		list = tail;
	}
}

static void match_argument_tuple(struct compilation *compilation, lorg_term tuple, uint32_t count, uint32_t place)
{
	head_count(compilation, count, place);
	for (uint32_t i = 0; i < count && i < LORG_MATCH_ARGUMENTS; i++) {
		uint32_t ignored;
		lorg_term element = lorg_get_tuple(compilation->terms, tuple, &ignored)[i];
		match_argument(compilation, element, i, place_of_word(compilation, (uint64_t)lorg_term_offset(tuple) + 1 + i));
	}
}

static void match_trace_head(struct compilation *compilation, lorg_term head, uint32_t place)
{
	enum lorg_kind kind = lorg_term_kind(compilation->terms, head);
	uint32_t count;
	if (kind == LORG_KIND_NIL || kind == LORG_KIND_LIST)
		match_argument_list(compilation, head, place);
	else if (lorg_get_tuple(compilation->terms, head, &count))
		match_argument_tuple(compilation, head, count, place);
	else
		defect(compilation, place, "write a list with a pattern for each argument, or '_' for any arguments",
		       "the head %s is neither a list nor a variable nor '_'", term_said(compilation, head));
}

void generate_head(struct compilation *compilation, lorg_term head, uint32_t place)
{
	char digits[LORG_ATOM_BYTES_MAX];
	compilation->binding_count = 0;
	compilation->clause_variables = 0;
	if (is_wildcard(compilation, head)) {
		/* anything */
	} else if (variable_digits(compilation->terms, head, digits)) {
		bind(compilation, digits, BINDING_OBJECT, 0);
	} else if (compilation->options->dialect != LORG_DIALECT_TABLE) {
		match_trace_head(compilation, head, place);
	} else {
		emit(compilation, LORG_MATCH_OBJECT, 0, 0, 0);
		stack_moves(compilation, 0, 1);
		match_top(compilation, head, place, LORG_NESTING_MAX);
	}
	if (compilation->clause_variables > compilation->variables)
		compilation->variables = compilation->clause_variables;
}
