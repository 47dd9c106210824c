/* SPDX-License-Identifier: MIT */
/* function.c: the functions of guards. */
#include "preload/match/call.h"

#include "preload/match/functions.h"

bool match_type_test(const struct lorg_terms *terms, uint32_t function, lorg_term term)
{
	enum lorg_kind kind;
	uint64_t bits;
	if (function == LORG_MATCH_IS_INTEGER && lorg_is_small(term))
		return true;
	if (function == LORG_MATCH_IS_ATOM)
		return lorg_is_atom(term) && lorg_term_kind(terms, term) == LORG_KIND_ATOM;
	if (function == LORG_MATCH_IS_BOOLEAN)
		return lorg_is_boolean(term);
	kind = lorg_term_kind(terms, term);
	switch (function) {
	case LORG_MATCH_IS_BINARY: return lorg_get_bitstring(terms, term, &bits) && bits % 8 == 0;
	case LORG_MATCH_IS_BITSTRING: return kind == LORG_KIND_BITSTRING;
	case LORG_MATCH_IS_FLOAT: return kind == LORG_KIND_FLOAT;
	case LORG_MATCH_IS_FUNCTION: return kind == LORG_KIND_FUN || kind == LORG_KIND_FUN_EXTERNAL;
	case LORG_MATCH_IS_INTEGER: return kind == LORG_KIND_INTEGER;
	case LORG_MATCH_IS_LIST: return kind == LORG_KIND_LIST || kind == LORG_KIND_NIL;
	case LORG_MATCH_IS_MAP: return kind == LORG_KIND_MAP;
	case LORG_MATCH_IS_NUMBER: return kind == LORG_KIND_INTEGER || kind == LORG_KIND_FLOAT;
	case LORG_MATCH_IS_PID: return kind == LORG_KIND_PID;
	case LORG_MATCH_IS_PORT: return kind == LORG_KIND_PORT;
	case LORG_MATCH_IS_REFERENCE: return kind == LORG_KIND_REFERENCE;
	case LORG_MATCH_IS_TUPLE: return kind == LORG_KIND_TUPLE || kind == LORG_KIND_CODE_ADDRESS;
	default: return false;
	}
}

static bool order_holds(uint32_t compare, enum lorg_order order)
{
	switch (compare) {
	case LORG_MATCH_LESS: return order < 0;
	case LORG_MATCH_LESS_OR_EQUAL: return order <= 0;
	case LORG_MATCH_GREATER: return order > 0;
	case LORG_MATCH_GREATER_OR_EQUAL: return order >= 0;
	case LORG_MATCH_EQUAL:
	case LORG_MATCH_EXACTLY: return order == 0;
	default: return order != 0;
	}
}

int match_compare(struct lorg_terms *terms, uint32_t compare, lorg_term a, lorg_term b)
{
	if (compare >= LORG_MATCH_EXACTLY) {
		int same = lorg_term_same(terms, a, b);
		return same < 0 ? same : same == (compare == LORG_MATCH_EXACTLY);
	}
	enum lorg_order order = lorg_term_compare(terms, a, b);
	return order == LORG_ORDER_FAILED ? -1 : order_holds(compare, order);
}

static lorg_term is_record(struct lorg_terms *terms, const lorg_term *arguments)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, arguments[0], &arity);
	if (!match_type_test(terms, LORG_MATCH_IS_ATOM, arguments[1]) || !lorg_is_small(arguments[2]))
		return match_bad_argument(terms);
	if (!elements || arity == 0 || lorg_small_value(arguments[2]) != (int64_t)arity)
		return LORG_FALSE;
	int same = lorg_term_same(terms, elements[0], arguments[1]);
	return same < 0 ? LORG_NONE : lorg_boolean(same);
}

static lorg_term map_find(struct lorg_terms *terms, lorg_term key, lorg_term map, bool only_whether)
{
	lorg_term value = LORG_NONE;
	uint32_t before = terms->failure;
	terms->failure = LORG_TERM_FINE;
	bool found = lorg_map_find(terms, map, key, &value);
	bool failed = !found && terms->failure != LORG_TERM_FINE;
	if (!failed)
		terms->failure = before;
	if (failed)
		return LORG_NONE;
	if (only_whether)
		return lorg_boolean(found);
	return found ? value : match_bad_argument(terms);
}

static lorg_term map_size(struct lorg_terms *terms, lorg_term map)
{
	uint32_t count;
	return lorg_get_map(terms, map, &count, NULL) ? lorg_small(count) : match_bad_argument(terms);
}

static lorg_term element(struct lorg_terms *terms, lorg_term position, lorg_term tuple)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, tuple, &arity);
	if (!elements || !lorg_is_small(position))
		return match_bad_argument(terms);
	int64_t index = lorg_small_value(position);
	return index >= 1 && index <= (int64_t)arity ? elements[index - 1] : match_bad_argument(terms);
}

static lorg_term tuple_size(struct lorg_terms *terms, lorg_term tuple)
{
	uint32_t arity;
	return lorg_get_tuple(terms, tuple, &arity) ? lorg_small(arity) : match_bad_argument(terms);
}

static lorg_term part_of_cell(struct lorg_terms *terms, lorg_term list, bool tail)
{
	lorg_term parts[2];
	return lorg_get_cons(terms, list, &parts[0], &parts[1]) ? parts[tail] : match_bad_argument(terms);
}

static lorg_term length(struct lorg_terms *terms, lorg_term list)
{
	int64_t count = lorg_list_length(terms, list);
	return count < 0 ? LORG_NONE : lorg_small(count);
}

/* unit: bits; a last part of a unit counts where `up`. */
static lorg_term bitstring_size(struct lorg_terms *terms, lorg_term term, unsigned unit, bool up)
{
	uint64_t bits;
	if (!lorg_get_bitstring(terms, term, &bits))
		return match_bad_argument(terms);
	return lorg_small((int64_t)((bits + (up ? unit - 1 : 0)) / unit));
}

static lorg_term size(struct lorg_terms *terms, lorg_term term)
{
	uint32_t arity;
	return lorg_get_tuple(terms, term, &arity) ? lorg_small(arity) : bitstring_size(terms, term, 8, false);
}

static lorg_term binary_part(struct lorg_terms *terms, lorg_term binary, lorg_term start, lorg_term count)
{
	uint64_t bits;
	int64_t from, bytes;
	if (!lorg_get_bitstring(terms, binary, &bits) || !lorg_get_integer(terms, start, &from) || !lorg_get_integer(terms, count, &bytes))
		return match_bad_argument(terms);
	int64_t whole = (int64_t)(bits / 8);
	if (from < 0 || from > whole || bytes < -from || bytes > whole - from)
		return match_bad_argument(terms);
	if (bytes < 0) {
		from += bytes;
		bytes = -bytes;
	}
	if (!lorg_terms_spend(terms, (uint64_t)bytes / 8))
		return LORG_NONE;
	/* Room first: making it may move the binary. */
	uint8_t *copy;
	lorg_term part = lorg_bitstring_new(terms, (uint64_t)bytes * 8, &copy);
	const uint8_t *source = lorg_get_bitstring(terms, binary, &bits);
	if (part == LORG_NONE)
		return part;
	if (!source || bits / 8 < (uint64_t)(from + bytes))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	for (int64_t i = 0; i < bytes; i++)
		copy[i] = source[from + i];
	return part;
}

static lorg_term binary_part_of_pair(struct lorg_terms *terms, lorg_term binary, lorg_term pair)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, pair, &arity);
	return elements && arity == 2 ? binary_part(terms, binary, elements[0], elements[1]) : match_bad_argument(terms);
}

static lorg_term node(struct lorg_match_evaluation *evaluation, const lorg_term *arguments, uint32_t count)
{
	struct lorg_terms *terms = evaluation->terms;
	if (count == 1) {
		enum lorg_kind kind = lorg_term_kind(terms, arguments[0]);
		if (kind != LORG_KIND_PID && kind != LORG_KIND_PORT && kind != LORG_KIND_REFERENCE)
			return match_bad_argument(terms);
	}
	if (evaluation->context->node)
		return evaluation->context->node(evaluation, count == 1 ? arguments[0] : LORG_NONE);
	return lorg_atom_text(terms, "nonode@nohost");
}

static lorg_term exclusive_or(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	return lorg_is_boolean(a) && lorg_is_boolean(b) ? lorg_boolean(a != b) : match_bad_argument(terms);
}

static lorg_term not(struct lorg_terms *terms, lorg_term a)
{
	return lorg_is_boolean(a) ? lorg_boolean(a != LORG_TRUE) : match_bad_argument(terms);
}

/* Of equal terms the first. */
static lorg_term greater_or_less(struct lorg_terms *terms, lorg_term a, lorg_term b, uint32_t compare)
{
	int holds = match_compare(terms, compare, a, b);
	return holds < 0 ? LORG_NONE : holds ? a : b;
}

lorg_term match_call_function(struct lorg_match_evaluation *evaluation, uint32_t function, const lorg_term *arguments, uint32_t count)
{
	struct lorg_terms *terms = evaluation->terms;
	lorg_term a = count > 0 ? arguments[0] : LORG_NONE, b = count > 1 ? arguments[1] : LORG_NONE;
	if (function > LORG_MATCH_FUNCTION_NONE && function < LORG_MATCH_TYPE_TESTS)
		return lorg_boolean(match_type_test(terms, function, a));
	switch (function) {
	case LORG_MATCH_IS_RECORD: return is_record(terms, arguments);
	case LORG_MATCH_IS_MAP_KEY: return map_find(terms, a, b, true);
	case LORG_MATCH_MAP_GET: return map_find(terms, a, b, false);
	case LORG_MATCH_MAP_SIZE: return map_size(terms, a);
	case LORG_MATCH_ELEMENT: return element(terms, a, b);
	case LORG_MATCH_TUPLE_SIZE: return tuple_size(terms, a);
	case LORG_MATCH_HD: return part_of_cell(terms, a, false);
	case LORG_MATCH_TL: return part_of_cell(terms, a, true);
	case LORG_MATCH_LENGTH: return length(terms, a);
	case LORG_MATCH_SIZE: return size(terms, a);
	case LORG_MATCH_BIT_SIZE: return bitstring_size(terms, a, 1, false);
	case LORG_MATCH_BYTE_SIZE: return bitstring_size(terms, a, 8, true);
	case LORG_MATCH_BINARY_PART:
		return count == 2 ? binary_part_of_pair(terms, a, b) : binary_part(terms, a, b, arguments[2]);
	case LORG_MATCH_NODE: return node(evaluation, arguments, count);
	case LORG_MATCH_SELF: return evaluation->context->self ? evaluation->context->self(evaluation) : match_bad_argument(terms);
	case LORG_MATCH_XOR: return exclusive_or(terms, a, b);
	case LORG_MATCH_NOT: return not(terms, a);
	case LORG_MATCH_ADD: return count == 1 ? lorg_plus(terms, a) : lorg_add(terms, a, b);
	case LORG_MATCH_SUBTRACT: return count == 1 ? lorg_negate(terms, a) : lorg_subtract(terms, a, b);
	case LORG_MATCH_MULTIPLY: return lorg_multiply(terms, a, b);
	case LORG_MATCH_DIVIDE: return lorg_divide(terms, a, b);
	case LORG_MATCH_DIV: return lorg_quotient(terms, a, b);
	case LORG_MATCH_REM: return lorg_remainder(terms, a, b);
	case LORG_MATCH_BAND: return lorg_bit_and(terms, a, b);
	case LORG_MATCH_BOR: return lorg_bit_or(terms, a, b);
	case LORG_MATCH_BXOR: return lorg_bit_xor(terms, a, b);
	case LORG_MATCH_BNOT: return lorg_bit_not(terms, a);
	case LORG_MATCH_BSL: return lorg_shift_left(terms, a, b);
	case LORG_MATCH_BSR: return lorg_shift_right(terms, a, b);
	case LORG_MATCH_ABS: return lorg_absolute(terms, a);
	case LORG_MATCH_FLOAT: return lorg_to_float(terms, a);
	case LORG_MATCH_ROUND: return lorg_round(terms, a);
	case LORG_MATCH_TRUNC: return lorg_truncate(terms, a);
	case LORG_MATCH_FLOOR: return lorg_floor(terms, a);
	case LORG_MATCH_CEIL: return lorg_ceil(terms, a);
	case LORG_MATCH_MAX: return greater_or_less(terms, a, b, LORG_MATCH_GREATER_OR_EQUAL);
	case LORG_MATCH_MIN: return greater_or_less(terms, a, b, LORG_MATCH_LESS_OR_EQUAL);
	default: return match_call_action(evaluation, function, arguments, count);
	}
}
