/* SPDX-License-Identifier: MIT */
/*
 * order.c: Erlang's term order, both equalities, and maps, which need them.
 *
 * Comparing goes through pairs of words from left to right until one pair differs. What is still to be compared stands in
 * frames, each two runs of words of the same length, in the free scratch memory; a run is taken off before its last pair
 * is looked into, so that long lists need no depth.
 */
#include <string.h>

#include "preload/term/layout.h"

enum {
	FRAME_WORDS = 3,
	BYTES_PER_STEP = 64,
};

static inline enum lorg_order order_of(uint64_t a, uint64_t b)
{
	return (enum lorg_order)((a > b) - (a < b));
}

static inline enum lorg_order reverse(enum lorg_order order)
{
	return order == LORG_ORDER_FAILED ? order : (enum lorg_order)-(int)order;
}

static enum lorg_order failed(struct lorg_terms *terms)
{
	terms->failure = LORG_TERM_BROKEN;
	return LORG_ORDER_FAILED;
}

/* Places in the order of kinds; numbers are one, funs are one. */
static unsigned rank_of(enum lorg_kind kind)
{
	if (kind == LORG_KIND_FLOAT)
		return LORG_KIND_INTEGER;
	return kind == LORG_KIND_FUN_EXTERNAL ? LORG_KIND_FUN : kind;
}

/* ---- numbers ---------------------------------------------------------------- */

static enum lorg_order compare_magnitudes(const uint64_t *a, uint32_t a_words, const uint64_t *b, uint32_t b_words)
{
	if (a_words != b_words)
		return order_of(a_words, b_words);
	while (a_words--)
		if (a[a_words] != b[a_words])
			return order_of(a[a_words], b[a_words]);
	return LORG_EQUAL;
}

static enum lorg_order compare_integers(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	uint64_t small_a, small_b;
	uint32_t words_a, words_b;
	bool negative_a, negative_b;
	if (lorg_is_small(a) && lorg_is_small(b))
		return (enum lorg_order)(((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b));
	const uint64_t *magnitude_a = lorg_get_magnitude(terms, a, &small_a, &words_a, &negative_a);
	const uint64_t *magnitude_b = lorg_get_magnitude(terms, b, &small_b, &words_b, &negative_b);
	if (!magnitude_a || !magnitude_b)
		return failed(terms);
	if (!lorg_terms_spend(terms, words_a < words_b ? words_a : words_b))
		return LORG_ORDER_FAILED;
	if (negative_a != negative_b)
		return negative_a ? LORG_LESS : LORG_GREATER;
	enum lorg_order order = compare_magnitudes(magnitude_a, words_a, magnitude_b, words_b);
	return negative_a ? reverse(order) : order;
}

static enum lorg_order compare_floats(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double value_a, value_b;
	if (!lorg_get_float(terms, a, &value_a) || !lorg_get_float(terms, b, &value_b))
		return failed(terms);
	return (enum lorg_order)((value_a > value_b) - (value_a < value_b));
}

/* The first 64 bits of a magnitude from its highest one on, whether ones follow them, and its length in bits. */
static uint64_t leading_bits(const uint64_t *magnitude, uint32_t words, uint64_t *length, bool *more)
{
	unsigned unused = (unsigned)__builtin_clzll(magnitude[words - 1]);
	uint64_t leading = magnitude[words - 1] << unused;
	uint64_t rest = 0;
	*length = (uint64_t)words * 64 - unused;
	if (words > 1 && unused) {
		leading |= magnitude[words - 2] >> (64 - unused);
		rest = magnitude[words - 2] << unused;
	} else if (words > 1) {
		rest = magnitude[words - 2];
	}
	for (uint32_t i = 0; !rest && i + 2 < words; i++)
		rest = magnitude[i];
	*more = rest != 0;
	return leading;
}

/* The same of a float's absolute value: no ones follow; length is that of the integer part, 0 below 1. */
static uint64_t leading_bits_of_float(double value, uint64_t *length)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	int exponent = (int)(bits >> 52 & 0x7ff);
	*length = exponent > 1022 ? (uint64_t)(exponent - 1022) : 0;
	return (bits << 11) | UINT64_C(1) << 63;
}

static enum lorg_order compare_integer_with_float(struct lorg_terms *terms, lorg_term integer, lorg_term number)
{
	uint64_t small, integer_length, float_length;
	uint32_t words;
	bool negative, more;
	double value;
	const uint64_t *magnitude = lorg_get_magnitude(terms, integer, &small, &words, &negative);
	if (!magnitude || !lorg_get_float(terms, number, &value))
		return failed(terms);
	if (!words)
		return (enum lorg_order)((0 > value) - (0 < value));
	if (!magnitude[words - 1])
		return failed(terms);
	if (negative != (value < 0) || value == 0)
		return negative ? LORG_LESS : LORG_GREATER;
	if (!lorg_terms_spend(terms, words))
		return LORG_ORDER_FAILED;
	uint64_t of_integer = leading_bits(magnitude, words, &integer_length, &more);
	uint64_t of_float = leading_bits_of_float(value, &float_length);
	enum lorg_order order = order_of(integer_length, float_length);
	if (order == LORG_EQUAL)
		order = order_of(of_integer, of_float);
	if (order == LORG_EQUAL && more)
		order = LORG_GREATER;
	return negative ? reverse(order) : order;
}

static enum lorg_order compare_numbers(struct lorg_terms *terms, lorg_term a, enum lorg_kind kind_a, lorg_term b, enum lorg_kind kind_b,
	bool exact)
{
	if (kind_a == kind_b)
		return kind_a == LORG_KIND_INTEGER ? compare_integers(terms, a, b) : compare_floats(terms, a, b);
	if (exact)
		return kind_a == LORG_KIND_INTEGER ? LORG_LESS : LORG_GREATER;
	if (kind_a == LORG_KIND_INTEGER)
		return compare_integer_with_float(terms, a, b);
	return reverse(compare_integer_with_float(terms, b, a));
}

/* ---- other terms without parts ------------------------------------------------ */

static enum lorg_order compare_texts(struct lorg_terms *terms, const char *a, size_t a_length, const char *b, size_t b_length)
{
	if (!a || !b)
		return failed(terms);
	size_t common = a_length < b_length ? a_length : b_length;
	if (!lorg_terms_spend(terms, common / BYTES_PER_STEP))
		return LORG_ORDER_FAILED;
	int difference = memcmp(a, b, common);
	if (difference)
		return difference < 0 ? LORG_LESS : LORG_GREATER;
	return order_of(a_length, b_length);
}

static enum lorg_order compare_atoms(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	char short_a[8], short_b[8];
	size_t a_length, b_length;
	const char *a_text = lorg_is_atom(a) ? lorg_get_atom(terms, a, short_a, &a_length) : NULL;
	const char *b_text = lorg_is_atom(b) ? lorg_get_atom(terms, b, short_b, &b_length) : NULL;
	if (!a_text || !b_text)
		return failed(terms);
	return compare_texts(terms, a_text, a_length, b_text, b_length);
}

static enum lorg_order compare_bitstrings(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	uint64_t a_bits, b_bits;
	const uint8_t *a_bytes = lorg_get_bitstring(terms, a, &a_bits);
	const uint8_t *b_bytes = lorg_get_bitstring(terms, b, &b_bits);
	if (!a_bytes || !b_bytes)
		return failed(terms);
	uint64_t common = a_bits < b_bits ? a_bits : b_bits;
	if (!lorg_terms_spend(terms, common / 8 / BYTES_PER_STEP))
		return LORG_ORDER_FAILED;
	int difference = memcmp(a_bytes, b_bytes, (size_t)(common / 8));
	if (!difference && common % 8) {
		unsigned mask = 0xff00u >> common % 8 & 0xff;
		difference = (int)(a_bytes[common / 8] & mask) - (int)(b_bytes[common / 8] & mask);
	}
	if (difference)
		return difference < 0 ? LORG_LESS : LORG_GREATER;
	return order_of(a_bits, b_bits);
}

/* The own node comes before all others. */
static enum lorg_order compare_nodes(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (a == LORG_NONE || b == LORG_NONE)
		return order_of(a != LORG_NONE, b != LORG_NONE);
	return compare_atoms(terms, a, b);
}

static enum lorg_order compare_numbered(struct lorg_terms *terms, lorg_term a, lorg_term b, enum lorg_kind kind)
{
	uint32_t a_numbers[3], b_numbers[3];
	lorg_term a_node, b_node;
	bool good = kind == LORG_KIND_PID ? lorg_get_pid(terms, a, a_numbers, &a_node) && lorg_get_pid(terms, b, b_numbers, &b_node)
					  : lorg_get_port(terms, a, a_numbers, NULL, &a_node) &&
						    lorg_get_port(terms, b, b_numbers, NULL, &b_node);
	if (!good)
		return failed(terms);
	/* Of pids Erlang looks at the last number first: <0.2.0> comes before <0.1.1>. */
	static const uint8_t first_to_last[][3] = {{2, 1, 0}, {0, 1, 2}};
	for (int i = 0; i < 3; i++) {
		uint8_t at = first_to_last[kind != LORG_KIND_PID][i];
		if (a_numbers[at] != b_numbers[at])
			return order_of(a_numbers[at], b_numbers[at]);
	}
	return compare_nodes(terms, a_node, b_node);
}

static enum lorg_order compare_references(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	uint32_t a_numbers[LORG_REFERENCE_MAX], b_numbers[LORG_REFERENCE_MAX];
	uint32_t a_count = lorg_get_reference(terms, a, a_numbers), b_count = lorg_get_reference(terms, b, b_numbers);
	if (!a_count || !b_count)
		return failed(terms);
	if (a_count != b_count)
		return order_of(a_count, b_count);
	for (uint32_t i = 0; i < a_count; i++)
		if (a_numbers[i] != b_numbers[i])
			return order_of(a_numbers[i], b_numbers[i]);
	return LORG_EQUAL;
}

/* Opaque funs before those with a name. */
static enum lorg_order compare_funs(struct lorg_terms *terms, lorg_term a, enum lorg_kind kind_a, lorg_term b, enum lorg_kind kind_b)
{
	if (kind_a != kind_b)
		return order_of(kind_a, kind_b);
	if (kind_a == LORG_KIND_FUN) {
		size_t a_length, b_length;
		const char *a_text = lorg_get_fun(terms, a, &a_length), *b_text = lorg_get_fun(terms, b, &b_length);
		return compare_texts(terms, a_text, a_length, b_text, b_length);
	}
	lorg_term a_module, b_module, a_function, b_function;
	uint32_t a_arity, b_arity;
	if (!lorg_get_fun_external(terms, a, &a_module, &a_function, &a_arity) ||
	    !lorg_get_fun_external(terms, b, &b_module, &b_function, &b_arity))
		return failed(terms);
	enum lorg_order order = compare_atoms(terms, a_module, b_module);
	if (order == LORG_EQUAL)
		order = compare_atoms(terms, a_function, b_function);
	return order == LORG_EQUAL ? order_of(a_arity, b_arity) : order;
}

static enum lorg_order compare_code_addresses(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	uint64_t a_address, b_address;
	if (!lorg_get_code_address(terms, a, &a_address) || !lorg_get_code_address(terms, b, &b_address))
		return failed(terms);
	return order_of(a_address, b_address);
}

/* ---- frames ------------------------------------------------------------------- */

/* Pushes two runs of `count` words, `skip` words behind where two terms of the same kind begin. */
static bool push_run(struct lorg_terms *terms, lorg_term a, lorg_term b, uint32_t skip, uint32_t count, bool exact)
{
	uint32_t offset;
	if (!count)
		return true;
	uint64_t *frame = lorg_terms_take(terms, FRAME_WORDS, &offset);
	if (!frame)
		return false;
	frame[0] = a + ((uint64_t)skip << 32);
	frame[1] = b + ((uint64_t)skip << 32);
	frame[2] = (uint64_t)count << 1 | exact;
	return true;
}

/* The next pair of the last frame. False when it is not where it was. */
static bool next_pair(struct lorg_terms *terms, lorg_term *a, lorg_term *b, bool *exact)
{
	uint64_t *frame = terms->scratch + terms->used - FRAME_WORDS;
	const uint64_t *a_word = lorg_term_words(terms, frame[0], 1);
	const uint64_t *b_word = lorg_term_words(terms, frame[1], 1);
	if (!a_word || !b_word)
		return false;
	*a = *a_word;
	*b = *b_word;
	*exact = frame[2] & 1;
	frame[0] += UINT64_C(1) << 32;
	frame[1] += UINT64_C(1) << 32;
	frame[2] -= 2;
	if (frame[2] < 2)
		terms->used -= FRAME_WORDS;
	return true;
}

static enum lorg_order open_tuples(struct lorg_terms *terms, lorg_term a, lorg_term b, bool exact)
{
	uint32_t a_arity, b_arity;
	if (!lorg_get_tuple(terms, a, &a_arity) || !lorg_get_tuple(terms, b, &b_arity))
		return failed(terms);
	if (a_arity != b_arity)
		return order_of(a_arity, b_arity);
	return push_run(terms, a, b, 1, a_arity, exact) ? LORG_EQUAL : LORG_ORDER_FAILED;
}

/* All keys come before all values, and are always compared exactly. */
static enum lorg_order open_maps(struct lorg_terms *terms, lorg_term a, lorg_term b, bool exact)
{
	uint32_t a_count, b_count;
	if (!lorg_get_map(terms, a, &a_count, NULL) || !lorg_get_map(terms, b, &b_count, NULL))
		return failed(terms);
	if (a_count != b_count)
		return order_of(a_count, b_count);
	bool pushed = push_run(terms, a, b, 1 + a_count, a_count, exact) && push_run(terms, a, b, 1, a_count, true);
	return pushed ? LORG_EQUAL : LORG_ORDER_FAILED;
}

/* Of terms with parts LORG_EQUAL means: as far as seen, the parts are in a frame. */
static enum lorg_order compare_one(struct lorg_terms *terms, lorg_term a, lorg_term b, bool exact)
{
	enum lorg_kind kind_a = lorg_term_kind(terms, a), kind_b = lorg_term_kind(terms, b);
	if (kind_a == LORG_KIND_NONE || kind_b == LORG_KIND_NONE)
		return failed(terms);
	unsigned rank = rank_of(kind_a);
	if (rank != rank_of(kind_b))
		return order_of(rank, rank_of(kind_b));
	switch (rank) {
	case LORG_KIND_INTEGER:
		return compare_numbers(terms, a, kind_a, b, kind_b, exact);
	case LORG_KIND_ATOM:
		return compare_atoms(terms, a, b);
	case LORG_KIND_REFERENCE:
		return compare_references(terms, a, b);
	case LORG_KIND_FUN:
		return compare_funs(terms, a, kind_a, b, kind_b);
	case LORG_KIND_PORT:
	case LORG_KIND_PID:
		return compare_numbered(terms, a, b, kind_a);
	case LORG_KIND_CODE_ADDRESS:
		return compare_code_addresses(terms, a, b);
	case LORG_KIND_TUPLE:
		return open_tuples(terms, a, b, exact);
	case LORG_KIND_MAP:
		return open_maps(terms, a, b, exact);
	case LORG_KIND_LIST:
		return push_run(terms, a, b, 0, 2, exact) ? LORG_EQUAL : LORG_ORDER_FAILED;
	case LORG_KIND_BITSTRING:
		return compare_bitstrings(terms, a, b);
	default:
		return LORG_EQUAL;
	}
}

/*
 * The quick way along two lists, most of which are strings: as long as their elements are the same words, and past the
 * first that differ if these are small integers. *a and *b become what is still to be compared.
 */
static enum lorg_order compare_cells(struct lorg_terms *terms, lorg_term *a, lorg_term *b)
{
	while (*a != *b && lorg_is_cons(*a) && lorg_is_cons(*b)) {
		const uint64_t *a_cell = lorg_term_words(terms, *a, 2), *b_cell = lorg_term_words(terms, *b, 2);
		if (!a_cell || !b_cell)
			return failed(terms);
		lorg_term a_head = a_cell[0], b_head = b_cell[0];
		if (a_head != b_head && lorg_is_small(a_head) && lorg_is_small(b_head))
			return (int64_t)a_head < (int64_t)b_head ? LORG_LESS : LORG_GREATER;
		if (a_head != b_head || a_head == LORG_NONE)
			return LORG_EQUAL;
		if (!lorg_terms_spend(terms, 1))
			return LORG_ORDER_FAILED;
		*a = a_cell[1];
		*b = b_cell[1];
	}
	return LORG_EQUAL;
}

static enum lorg_order compare(struct lorg_terms *terms, lorg_term a, lorg_term b, bool exact)
{
	uint32_t bottom = terms->used;
	enum lorg_order order;
	for (;;) {
		order = lorg_is_cons(a) ? compare_cells(terms, &a, &b) : LORG_EQUAL;
		if (order != LORG_EQUAL)
			break;
		if (!lorg_terms_spend(terms, 1))
			order = LORG_ORDER_FAILED;
		else if (a == b)
			order = a == LORG_NONE ? failed(terms) : LORG_EQUAL;
		else
			order = compare_one(terms, a, b, exact);
		if (order != LORG_EQUAL || terms->used <= bottom)
			break;
		if (!next_pair(terms, &a, &b, &exact)) {
			order = failed(terms);
			break;
		}
	}
	terms->used = bottom;
	return order;
}

enum lorg_order lorg_term_compare_deep(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	return compare(terms, a, b, false);
}

enum lorg_order lorg_term_compare_exact(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	return compare(terms, a, b, true);
}

int lorg_term_same_deep(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	/* Of these tags, terms are the same only if their words are; other tags differ in kind. */
	enum lorg_tag tag_a = lorg_tag(a), tag_b = lorg_tag(b);
	if (tag_a != tag_b || tag_a == LORG_TAG_SMALL || tag_a == LORG_TAG_ATOM_SHORT || tag_a == LORG_TAG_NIL) {
		if (tag_a != LORG_TAG_NONE && tag_b != LORG_TAG_NONE)
			return a == b;
	}
	enum lorg_order order = tag_a == LORG_TAG_ATOM ? compare_atoms(terms, a, b) : compare(terms, a, b, true);
	return order == LORG_ORDER_FAILED ? -1 : order == LORG_EQUAL;
}

/* ---- maps --------------------------------------------------------------------- */

bool lorg_map_find(struct lorg_terms *terms, lorg_term map, lorg_term key, lorg_term *value)
{
	uint32_t count, low = 0;
	*value = LORG_NONE;
	if (key == LORG_NONE || !lorg_get_map(terms, map, &count, NULL)) {
		terms->failure = lorg_term_kind(terms, map) && key != LORG_NONE ? LORG_TERM_BAD_ARGUMENT : LORG_TERM_BROKEN;
		return false;
	}
	terms->failure = LORG_TERM_FINE;
	uint32_t high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2, seen;
		const lorg_term *values, *keys = lorg_get_map(terms, map, &seen, &values);
		if (!keys || seen != count) {
			terms->failure = LORG_TERM_BROKEN;
			return false;
		}
		lorg_term found = values[middle];
		enum lorg_order order = lorg_term_compare_exact(terms, key, keys[middle]);
		if (order == LORG_ORDER_FAILED)
			return false;
		if (order == LORG_EQUAL) {
			*value = found;
			return true;
		}
		if (order == LORG_LESS)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

/* Merges the sorted runs [from, middle) and [middle, end) of pairs at `source` into `target`: offsets of the scratch space. */
static bool merge(struct lorg_terms *terms, uint32_t source, uint32_t target, uint32_t from, uint32_t middle, uint32_t end)
{
	uint32_t left = from, right = middle;
	for (uint32_t i = from; i < end; i++) {
		bool take_right = left >= middle;
		if (!take_right && right < end) {
			enum lorg_order order = lorg_term_compare_exact(terms, terms->scratch[source + 2 * left],
				terms->scratch[source + 2 * right]);
			if (order == LORG_ORDER_FAILED)
				return false;
			take_right = order == LORG_GREATER;
		}
		uint32_t pair = take_right ? right++ : left++;
		terms->scratch[target + 2 * i] = terms->scratch[source + 2 * pair];
		terms->scratch[target + 2 * i + 1] = terms->scratch[source + 2 * pair + 1];
	}
	return true;
}

/* Sorts pairs by key, equal keys in their old order. *pairs and *spare change places as it goes. */
static bool sort_pairs(struct lorg_terms *terms, uint32_t *pairs, uint32_t *spare, uint32_t count)
{
	for (uint64_t run = 1; run < count; run *= 2) {
		for (uint64_t from = 0; from < count; from += 2 * run) {
			uint32_t middle = from + run < count ? (uint32_t)(from + run) : count;
			uint32_t end = from + 2 * run < count ? (uint32_t)(from + 2 * run) : count;
			if (!merge(terms, *pairs, *spare, (uint32_t)from, middle, end))
				return false;
		}
		uint32_t other = *pairs;
		*pairs = *spare;
		*spare = other;
	}
	return true;
}

/* Of equal keys the last stays. Returns how many do, -1 on failure. */
static int64_t drop_doubles(struct lorg_terms *terms, uint32_t pairs, uint32_t count)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < count; i++) {
		int same = 0;
		if (i + 1 < count)
			same = lorg_term_same(terms, terms->scratch[pairs + 2 * i], terms->scratch[pairs + 2 * i + 2]);
		if (same < 0)
			return -1;
		if (same)
			continue;
		terms->scratch[pairs + 2 * kept] = terms->scratch[pairs + 2 * i];
		terms->scratch[pairs + 2 * kept + 1] = terms->scratch[pairs + 2 * i + 1];
		kept++;
	}
	return kept;
}

lorg_term lorg_map_of_last(struct lorg_terms *terms, uint32_t count)
{
	uint32_t bottom = terms->used - 2 * count, pairs = bottom, room;
	if (count > INT32_MAX / 4 || 2 * count > terms->used)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	/* Pairs, one word that the head takes, a copy of the pairs. */
	if (!lorg_terms_take(terms, 2 * count + 1, &room)) {
		terms->used = bottom;
		return LORG_NONE;
	}
	uint32_t spare = bottom + 2 * count + 1;
	int64_t kept = sort_pairs(terms, &pairs, &spare, count) ? drop_doubles(terms, pairs, count) : -1;
	terms->used = bottom;
	if (kept < 0)
		return LORG_NONE;
	if (pairs == bottom && kept) {
		memcpy(terms->scratch + spare, terms->scratch + pairs, (size_t)kept * 16);
		pairs = spare;
	}
	uint64_t *map = terms->scratch + bottom;
	const uint64_t *sorted = terms->scratch + pairs;
	map[0] = lorg_head(LORG_KIND_MAP, (uint32_t)kept);
	for (uint32_t i = 0; i < kept; i++) {
		map[1 + i] = sorted[2 * i];
		map[1 + kept + i] = sorted[2 * i + 1];
	}
	terms->used = bottom + 1 + 2 * (uint32_t)kept;
	return lorg_boxed(bottom, LORG_TAG_BOXED);
}

lorg_term lorg_map(struct lorg_terms *terms, const lorg_term *pairs, uint32_t count)
{
	uint32_t offset;
	if (count > INT32_MAX / 4)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	uint64_t *room = count ? lorg_terms_take(terms, 2 * count, &offset) : NULL;
	if (count && !room)
		return LORG_NONE;
	if (count)
		memcpy(room, pairs, (size_t)count * 16);
	return lorg_map_of_last(terms, count);
}
