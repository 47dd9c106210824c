/* SPDX-License-Identifier: MIT */
/* Terms: what was made can be looked at, orders and equalities are Erlang's, and no memory, however wrong, does harm. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/reader.h"
#include "preload/term/term.h"
#include "tests/unit/unit.h"

static lorg_term read_text(struct lorg_terms *terms, const char *text)
{
	struct lorg_read_error error;
	lorg_term term = lorg_read_term(terms, text, strlen(text), NULL, &error);
	ck_assert_msg(term != LORG_NONE, "%s: %u:%u: %s", text, error.line, error.column, error.reason);
	return term;
}

START_TEST(integers_of_all_sizes)
{
	static const int64_t values[] = {0, 1, -1, LORG_SMALL_MAX, LORG_SMALL_MAX + 1, LORG_SMALL_MIN, LORG_SMALL_MIN - 1, INT64_MAX,
		INT64_MIN, INT64_MIN + 1};
	struct lorg_terms terms;
	lorg_terms_open(&terms);
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		int64_t back;
		lorg_term term = lorg_integer(&terms, values[i]);
		ck_assert(lorg_get_integer(&terms, term, &back));
		ck_assert_int_eq(back, values[i]);
		ck_assert_int_eq(lorg_is_small(term), lorg_fits_small(values[i]));
		ck_assert_int_eq(lorg_term_kind(&terms, term), LORG_KIND_INTEGER);
	}
	uint64_t most;
	int64_t signed_most;
	lorg_term term = lorg_unsigned(&terms, UINT64_MAX);
	ck_assert(lorg_get_unsigned(&terms, term, &most) && most == UINT64_MAX);
	ck_assert(!lorg_get_integer(&terms, term, &signed_most));
	lorg_terms_close(&terms);
}
END_TEST

START_TEST(atoms_have_one_form)
{
	struct lorg_terms terms;
	char text[LORG_ATOM_BYTES_MAX + 1], room[8];
	size_t length;
	lorg_terms_open(&terms);
	memset(text, 'x', sizeof text);
	for (size_t i = 0; i <= LORG_ATOM_BYTES_MAX; i++) {
		lorg_term atom = lorg_atom(&terms, text, i), again = lorg_atom(&terms, text, i);
		const char *back = lorg_get_atom(&terms, atom, room, &length);
		ck_assert(back && length == i && memcmp(back, text, i) == 0);
		ck_assert_int_eq(atom == again, i <= LORG_ATOM_SHORT_MAX);
		ck_assert_int_eq(lorg_term_same(&terms, atom, again), 1);
	}
	ck_assert(lorg_atom(&terms, text, sizeof text) == LORG_NONE);
	ck_assert_int_eq(terms.failure, LORG_TERM_BAD_ARGUMENT);
	ck_assert(lorg_atom_is(&terms, LORG_TRUE, "true") && !lorg_atom_is(&terms, LORG_TRUE, "tru") && !lorg_atom_is(&terms, lorg_nil(), ""));
	lorg_terms_close(&terms);
}
END_TEST

/* Each is less than all that follow. */
static const char *const ascending[] = {"-36893488147419103233", "-36893488147419103232", "-1", "0", "0.5", "1", "1.5",
	"9007199254740992", "9007199254740993", "1.8446744073709552e19", "18446744073709551617", "1.0e300", "''", "a", "aa", "abcdefgh",
	"abcdefghi", "b", "#Ref<0.0.0.1>", "#Ref<0.0.1.0>", "#Fun<a>", "#Fun<b>", "fun a:b/1", "fun a:b/2", "fun a:c/0", "#Port<0.1>",
	"#Port<0.2.0>", "#Port<0.2.1>", "<1.0.0>", "<0.1.0>", "<0.2.0>", "<0.1.1>", "{}", "{z}", "{1,2}", "{1,{a}}", "#{}", "#{1 => z}",
	"#{1.0 => a}", "#{a => 1}", "#{a => 2}", "#{b => 1}", "#{a => 1,b => 1}", "[]", "[0|a]", "[0|#{}]", "[0]", "[1]", "[a]", "<<>>",
	"<<0:1>>", "<<0>>", "<<0,0:1>>", "<<1>>", "<<1,0>>", "<<1:1>>"};

START_TEST(order_of_kinds)
{
	struct lorg_terms terms;
	enum { COUNT = sizeof ascending / sizeof ascending[0] };
	lorg_term all[COUNT];
	lorg_terms_open(&terms);
	for (size_t i = 0; i < COUNT; i++)
		all[i] = read_text(&terms, ascending[i]);
	uint32_t used = terms.used;
	for (size_t i = 0; i < COUNT; i++)
		for (size_t j = 0; j < COUNT; j++) {
			enum lorg_order wanted = i < j ? LORG_LESS : i > j ? LORG_GREATER : LORG_EQUAL;
			ck_assert_msg(lorg_term_compare(&terms, all[i], all[j]) == wanted, "%s and %s", ascending[i], ascending[j]);
			ck_assert_int_eq(lorg_term_same(&terms, all[i], all[j]), i == j);
		}
	ck_assert_uint_eq(terms.used, used);
	lorg_terms_close(&terms);
}
END_TEST

START_TEST(two_equalities)
{
	static const struct {
		const char *a, *b;
		int equal, same;
	} pairs[] = {
		{"1", "1.0", 1, 0}, {"0.0", "-0.0", 1, 1}, {"0", "-0.0", 1, 0}, {"9007199254740993", "9007199254740992.0", 0, 0},
		{"18446744073709551616", "1.8446744073709552e19", 1, 0}, {"18446744073709551617", "1.8446744073709552e19", 0, 0},
		{"{1,[2]}", "{1.0,[2.0]}", 1, 0}, {"#{1 => a}", "#{1.0 => a}", 0, 0}, {"#{a => 1}", "#{a => 1.0}", 1, 0},
		{"#{{1} => a}", "#{{1.0} => a}", 0, 0}, {"[]", "\"\"", 1, 1}, {"<<1>>", "<<1:8>>", 1, 1},
		{"#Port<1.2>", "#Port<1.2.0>", 1, 1}, {"<1.2>", "<1.2.0>", 1, 1}, {"abcdefghijk", "'abcdefghijk'", 1, 1},
		{"1267650600228229401496703205376", "1267650600228229401496703205376", 1, 1},
		{"1267650600228229401496703205376", "1267650600228229401496703205377", 0, 0},
		{"1.2676506002282294e30", "1267650600228229401496703205376", 1, 0},
	};
	struct lorg_terms terms;
	lorg_terms_open(&terms);
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		lorg_term a = read_text(&terms, pairs[i].a), b = read_text(&terms, pairs[i].b);
		ck_assert_msg(lorg_term_equal(&terms, a, b) == pairs[i].equal, "%s == %s", pairs[i].a, pairs[i].b);
		ck_assert_msg(lorg_term_equal(&terms, b, a) == pairs[i].equal, "%s == %s", pairs[i].b, pairs[i].a);
		ck_assert_msg(lorg_term_same(&terms, a, b) == pairs[i].same, "%s =:= %s", pairs[i].a, pairs[i].b);
		ck_assert_int_eq(lorg_term_compare_exact(&terms, a, b) == LORG_EQUAL, pairs[i].same);
	}
	lorg_terms_close(&terms);
}
END_TEST

START_TEST(maps_find_what_was_put_in)
{
	enum { KEYS = 300 };
	struct lorg_terms terms;
	lorg_term pairs[2 * KEYS * 2], value;
	lorg_terms_open(&terms);
	srand(4);
	for (int i = 0; i < 2 * KEYS; i++) {
		int key = rand() % KEYS;
		pairs[2 * i] = key % 2 ? lorg_small(key) : lorg_float(&terms, key);
		pairs[2 * i + 1] = lorg_small(i);
	}
	lorg_term map = lorg_map(&terms, pairs, 2 * KEYS);
	uint32_t count, distinct = 0;
	const lorg_term *keys = lorg_get_map(&terms, map, &count, NULL);
	for (uint32_t i = 0; i + 1 < count; i++)
		ck_assert_int_eq(lorg_term_compare_exact(&terms, keys[i], keys[i + 1]), LORG_LESS);
	for (int i = 0; i < 2 * KEYS; i++) {
		int last = i;
		for (int j = i + 1; j < 2 * KEYS; j++)
			if (lorg_term_same(&terms, pairs[2 * i], pairs[2 * j]) == 1)
				last = j;
		distinct += last == i;
		ck_assert(lorg_map_find(&terms, map, pairs[2 * i], &value));
		ck_assert_int_eq(lorg_small_value(value), last);
	}
	ck_assert_uint_eq(count, distinct);
	ck_assert(!lorg_map_find(&terms, map, lorg_small(-1), &value) && terms.failure == LORG_TERM_FINE);
	ck_assert(!lorg_map_find(&terms, lorg_nil(), lorg_small(-1), &value) && terms.failure == LORG_TERM_BAD_ARGUMENT);
	lorg_terms_close(&terms);
}
END_TEST

/* In a space of a fixed size everything fails as out of space, and nothing of it is written behind the end. */
START_TEST(small_spaces_fail_cleanly)
{
	enum { ROOM = 40, GUARD = 8 };
	struct lorg_terms source;
	lorg_terms_open(&source);
	lorg_term a = read_text(&source, "[{1,#{k => [x,{2.5,12345678901234567890123456789}]}}|{deep,[[[[[[[a]]]]]]]}]");
	lorg_term b = read_text(&source, "[{1,#{k => [x,{2.5,12345678901234567890123456789}]}}|{deep,[[[[[[[b]]]]]]]}]");
	/* The same words as constants: their offsets are the same. */
	uint64_t *constants = malloc(source.used * sizeof *constants);
	for (uint32_t i = 0; i < source.used; i++) {
		uint64_t word = source.scratch[i];
		enum lorg_tag tag = lorg_tag(word);
		constants[i] = (word & LORG_TERM_SCRATCH) && (tag == LORG_TAG_CONS || tag == LORG_TAG_BOXED) && word >> 32 < source.used &&
					       !(word & 0xffffffe0)
				       ? word & ~(uint64_t)LORG_TERM_SCRATCH
				       : word;
	}
	bool failed = false, worked = false;
	for (uint32_t room = 0; room <= ROOM; room++) {
		uint64_t scratch[ROOM + GUARD];
		memset(scratch, 0xa5, sizeof scratch);
		struct lorg_terms terms = {.constant = constants, .constant_words = source.used, .scratch = scratch, .scratch_words = room,
			.steps = 1000};
		enum lorg_order order = lorg_term_compare(&terms, a & ~(uint64_t)LORG_TERM_SCRATCH, b & ~(uint64_t)LORG_TERM_SCRATCH);
		ck_assert(order == LORG_LESS || (order == LORG_ORDER_FAILED && terms.failure == LORG_TERM_NO_SPACE));
		failed |= order == LORG_ORDER_FAILED;
		worked |= order == LORG_LESS;
		ck_assert_uint_eq(terms.used, 0);
		lorg_term made = lorg_string(&terms, "abcdefgh", 8);
		ck_assert_int_eq(made == LORG_NONE, room < 16);
		for (uint32_t i = room; i < ROOM + GUARD; i++)
			ck_assert(scratch[i] == UINT64_C(0xa5a5a5a5a5a5a5a5));
	}
	ck_assert(failed && worked);
	free(constants);
	lorg_terms_close(&source);
}
END_TEST

/* What takes exponentially long on its own is ended by the steps. */
START_TEST(steps_end_it)
{
	uint64_t scratch[1000];
	struct lorg_terms terms = {.scratch = scratch, .scratch_words = 1000, .steps = 10000};
	lorg_term a = lorg_nil(), b = lorg_nil();
	for (int i = 0; i < 60; i++) {
		lorg_term both[2] = {a, a};
		a = lorg_tuple(&terms, both, 2);
		both[0] = both[1] = b;
		b = lorg_tuple(&terms, both, 2);
	}
	ck_assert(a && b);
	ck_assert_int_eq(lorg_term_compare(&terms, a, b), LORG_ORDER_FAILED);
	ck_assert_int_eq(terms.failure, LORG_TERM_NO_STEPS);
}
END_TEST

/* Random words: nothing may be read or written out of the spaces (the sanitizers watch), all has to come to an end. */
START_TEST(scribbled_memory)
{
	enum { WORDS = 64, ROOM = 200 };
	srand(1);
	for (int round = 0; round < 20000; round++) {
		uint64_t *constants = malloc(WORDS * 8), *scratch = malloc(ROOM * 8);
		for (int i = 0; i < WORDS + ROOM; i++) {
			uint64_t word = (uint64_t)rand() << 32 | (unsigned)rand();
			switch (rand() % 4) {
			case 0:
				word = (uint64_t)(rand() % (WORDS + 4)) << 32 | (unsigned)(rand() % 32);
				break;
			case 1:
				word = (uint64_t)(rand() % 10) << 32 | (unsigned)(rand() % 16) | (unsigned)(rand() % 2) << 8;
				break;
			case 2:
				word = (uint64_t)(rand() % 50) << 4 | LORG_TAG_SMALL;
				break;
			}
			if (i < WORDS)
				constants[i] = word;
			else
				scratch[i - WORDS] = word;
		}
		struct lorg_terms terms = {.constant = constants, .constant_words = WORDS, .scratch = scratch, .scratch_words = ROOM,
			.used = ROOM / 2, .steps = 3000};
		lorg_term a = constants[0], b = constants[1], found;
		lorg_term_compare(&terms, a, b);
		lorg_term_same(&terms, a, b);
		lorg_term_compare_exact(&terms, constants[2], constants[3]);
		lorg_list_length(&terms, a);
		lorg_map_find(&terms, a, b, &found);
		lorg_add(&terms, a, b);
		lorg_multiply(&terms, a, b);
		lorg_remainder(&terms, a, b);
		lorg_quotient(&terms, b, a);
		lorg_bit_xor(&terms, a, b);
		lorg_shift_left(&terms, a, lorg_small(rand() % 300 - 100));
		lorg_round(&terms, a);
		lorg_map(&terms, constants, 8);
		free(constants);
		free(scratch);
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {integers_of_all_sizes, atoms_have_one_form, order_of_kinds, two_equalities, maps_find_what_was_put_in,
		small_spaces_fail_cleanly, steps_end_it, scribbled_memory};
	return unit_suite_of("term", tests, sizeof tests / sizeof tests[0], 30);
}
