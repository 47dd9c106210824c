/* SPDX-License-Identifier: MIT */
/* Arithmetic of terms gives what GMP's own integers and the floating point unit give, and fails where Erlang does. */
#include <gmp.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/reader.h"
#include "preload/term/term.h"
#include "tests/unit/unit.h"

static uint64_t random_word(void)
{
	return (uint64_t)rand() << 62 ^ (uint64_t)rand() << 31 ^ (uint64_t)rand();
}

/* Sizes, signs, and the values around powers of two where carries run through. */
static void random_integer(mpz_t value, uint32_t most_words)
{
	uint32_t words = (uint32_t)rand() % most_words + 1;
	mpz_set_ui(value, 0);
	for (uint32_t i = 0; i < words; i++) {
		mpz_mul_2exp(value, value, 64);
		uint64_t word = rand() % 4 ? random_word() : rand() % 2 ? UINT64_MAX : 0;
		mpz_add_ui(value, value, word);
	}
	if (rand() % 4 == 0) {
		mpz_set_ui(value, 1);
		mpz_mul_2exp(value, value, (mp_bitcnt_t)rand() % (64 * most_words));
		mpz_add_ui(value, value, (unsigned long)rand() % 2);
		mpz_sub_ui(value, value, (unsigned long)rand() % 2);
	}
	if (rand() % 2)
		mpz_neg(value, value);
}

static lorg_term term_of(struct lorg_terms *terms, const mpz_t value)
{
	return lorg_big(terms, mpz_sgn(value) < 0, (const uint64_t *)mpz_limbs_read(value), (uint32_t)mpz_size(value));
}

static void check_value(struct lorg_terms *terms, lorg_term term, const mpz_t wanted, const char *what)
{
	uint64_t small;
	uint32_t words;
	bool negative;
	const uint64_t *magnitude = lorg_get_magnitude(terms, term, &small, &words, &negative);
	ck_assert_msg(magnitude != NULL, "%s: no integer", what);
	ck_assert_msg(words == mpz_size(wanted) && (!words || memcmp(magnitude, mpz_limbs_read(wanted), words * 8) == 0) &&
			      negative == (mpz_sgn(wanted) < 0),
		"%s: another value", what);
	ck_assert_msg(lorg_is_small(term) == (mpz_fits_slong_p(wanted) && lorg_fits_small(mpz_get_si(wanted))), "%s: not in its one form", what);
}

static const struct operation {
	const char *name;
	lorg_term (*own)(struct lorg_terms *, lorg_term, lorg_term);
	void (*other)(mpz_ptr, mpz_srcptr, mpz_srcptr);
	bool divides;
} operations[] = {
	{"+", lorg_add, mpz_add, false}, {"-", lorg_subtract, mpz_sub, false}, {"*", lorg_multiply, mpz_mul, false},
	{"div", lorg_quotient, mpz_tdiv_q, true}, {"rem", lorg_remainder, mpz_tdiv_r, true}, {"band", lorg_bit_and, mpz_and, false},
	{"bor", lorg_bit_or, mpz_ior, false}, {"bxor", lorg_bit_xor, mpz_xor, false},
};

START_TEST(as_gmp)
{
	struct lorg_terms terms;
	mpz_t a, b, wanted;
	mpz_inits(a, b, wanted, NULL);
	lorg_terms_open(&terms);
	srand(20);
	for (int i = 0; i < 40000; i++) {
		const struct operation *operation = &operations[i % (int)(sizeof operations / sizeof operations[0])];
		terms.used = 0;
		random_integer(a, i % 100 == 0 ? 60 : 6);
		random_integer(b, i % 300 == 0 ? 60 : 6);
		lorg_term left = term_of(&terms, a), right = term_of(&terms, b);
		if (operation->divides && mpz_sgn(b) == 0) {
			ck_assert(operation->own(&terms, left, right) == LORG_NONE && terms.failure == LORG_TERM_BAD_ARGUMENT);
			continue;
		}
		operation->other(wanted, a, b);
		check_value(&terms, operation->own(&terms, left, right), wanted, operation->name);
		int order = mpz_cmp(a, b);
		ck_assert_int_eq(lorg_term_compare(&terms, left, right), (order > 0) - (order < 0));
	}
	lorg_terms_close(&terms);
	mpz_clears(a, b, wanted, NULL);
}
END_TEST

START_TEST(shifts_as_gmp)
{
	struct lorg_terms terms;
	mpz_t a, wanted;
	mpz_inits(a, wanted, NULL);
	lorg_terms_open(&terms);
	srand(21);
	for (int i = 0; i < 20000; i++) {
		terms.used = 0;
		random_integer(a, 6);
		int count = rand() % 3 ? rand() % 800 - 400 : 64 * (rand() % 13 - 6);
		if (count >= 0)
			mpz_mul_2exp(wanted, a, (mp_bitcnt_t)count);
		else
			mpz_fdiv_q_2exp(wanted, a, (mp_bitcnt_t)-count);
		lorg_term term = term_of(&terms, a);
		check_value(&terms, lorg_shift_left(&terms, term, lorg_small(count)), wanted, "bsl");
		check_value(&terms, lorg_shift_right(&terms, term, lorg_small(-count)), wanted, "bsr");
		mpz_com(wanted, a);
		check_value(&terms, lorg_bit_not(&terms, term), wanted, "bnot");
		mpz_neg(wanted, a);
		check_value(&terms, lorg_negate(&terms, term), wanted, "-");
		mpz_abs(wanted, a);
		check_value(&terms, lorg_absolute(&terms, term), wanted, "abs");
	}
	/* No shift is too far to the right; to the left there is a limit, the same as Erlang's. */
	lorg_term far = lorg_unsigned(&terms, UINT64_MAX);
	ck_assert(lorg_shift_right(&terms, far, far) == lorg_small(0));
	ck_assert(lorg_shift_right(&terms, lorg_small(-5), far) == lorg_small(-1));
	ck_assert(lorg_shift_left(&terms, lorg_small(0), far) == lorg_small(0));
	ck_assert(lorg_shift_left(&terms, lorg_small(1), far) == LORG_NONE && terms.failure == LORG_TERM_BAD_ARGUMENT);
	ck_assert(lorg_shift_left(&terms, lorg_small(1), lorg_small(33554367)) != LORG_NONE);
	ck_assert(lorg_shift_left(&terms, lorg_small(1), lorg_small(33554368)) == LORG_NONE && terms.failure == LORG_TERM_BAD_ARGUMENT);
	lorg_terms_close(&terms);
	mpz_clears(a, wanted, NULL);
}
END_TEST

static double random_float(void)
{
	double value;
	do {
		uint64_t bits = random_word();
		if (rand() % 2)
			bits = (bits & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)(1000 + rand() % 140) << 52;
		memcpy(&value, &bits, sizeof value);
	} while (!isfinite(value));
	if (rand() % 8 == 0)
		value = (double)(rand() % 20 - 10) / 2;
	return value;
}

START_TEST(rounding_and_comparing_floats)
{
	static const struct {
		lorg_term (*own)(struct lorg_terms *, lorg_term);
		double (*other)(double);
	} ways[] = {{lorg_round, round}, {lorg_truncate, trunc}, {lorg_floor, floor}, {lorg_ceil, ceil}};
	struct lorg_terms terms;
	mpz_t wanted, integer;
	mpz_inits(wanted, integer, NULL);
	lorg_terms_open(&terms);
	srand(22);
	for (int i = 0; i < 40000; i++) {
		terms.used = 0;
		double value = random_float();
		lorg_term term = lorg_float(&terms, value);
		mpz_set_d(wanted, ways[i % 4].other(value));
		check_value(&terms, ways[i % 4].own(&terms, term), wanted, "rounding");
		/* An integer at or beside the float, or anywhere. */
		mpz_set_d(integer, value);
		if (rand() % 3 == 0)
			mpz_add_ui(integer, integer, 1);
		else if (rand() % 3 == 0)
			random_integer(integer, 17);
		int order = mpz_cmp_d(integer, value);
		enum lorg_order expected = (enum lorg_order)((order > 0) - (order < 0));
		ck_assert_int_eq(lorg_term_compare(&terms, term_of(&terms, integer), term), expected);
		ck_assert_int_eq(lorg_term_compare(&terms, term, term_of(&terms, integer)), -(int)expected);
	}
	lorg_terms_close(&terms);
	mpz_clears(wanted, integer, NULL);
}
END_TEST

/* Left, operator, right, what Erlang gives ('EXIT': it fails). */
START_TEST(mixed_and_failing)
{
	static const struct {
		const char *left;
		lorg_term (*own)(struct lorg_terms *, lorg_term, lorg_term);
		const char *right, *wanted;
	} cases[] = {
		{"1", lorg_add, "0.5", "1.5"}, {"1.0e308", lorg_multiply, "10", "'EXIT'"}, {"1.0e308", lorg_add, "1.0e308", "'EXIT'"},
		{"-1.0e308", lorg_subtract, "1.0e308", "'EXIT'"}, {"a", lorg_add, "1", "'EXIT'"}, {"1", lorg_subtract, "[]", "'EXIT'"},
		{"7", lorg_divide, "2", "3.5"}, {"4", lorg_divide, "2", "2.0"}, {"0", lorg_divide, "3", "0.0"}, {"1", lorg_divide, "0", "'EXIT'"},
		{"1", lorg_divide, "0.0", "'EXIT'"}, {"1", lorg_divide, "-0.0", "'EXIT'"}, {"7", lorg_quotient, "2.0", "'EXIT'"},
		{"7.0", lorg_remainder, "2", "'EXIT'"}, {"-7", lorg_remainder, "2", "-1"}, {"-7", lorg_quotient, "2", "-3"},
		{"1", lorg_quotient, "0", "'EXIT'"}, {"1", lorg_bit_and, "1.0", "'EXIT'"}, {"1", lorg_shift_left, "1.0", "'EXIT'"},
		{"1.0", lorg_shift_left, "1", "'EXIT'"}, {"-576460752303423488", lorg_quotient, "-1", "576460752303423488"},
		/* Rounded limb by limb: the last one does not reach the first. */
		{"340282366920938501242306470388929921025", lorg_divide, "1", "3.402823669209385e38"},
	};
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		lorg_term left = lorg_read_term(&terms, cases[i].left, strlen(cases[i].left), NULL, &error);
		lorg_term right = lorg_read_term(&terms, cases[i].right, strlen(cases[i].right), NULL, &error);
		lorg_term wanted = lorg_read_term(&terms, cases[i].wanted, strlen(cases[i].wanted), NULL, &error);
		lorg_term result = cases[i].own(&terms, left, right);
		if (lorg_atom_is(&terms, wanted, "EXIT"))
			ck_assert_msg(result == LORG_NONE && terms.failure == LORG_TERM_BAD_ARGUMENT, "case %zu does not fail", i);
		else
			ck_assert_msg(lorg_term_same(&terms, result, wanted) == 1, "case %zu", i);
	}
	lorg_terms_close(&terms);
}
END_TEST

/* With too little room or too few steps big integers fail, tell why, and leave the space as it was. */
START_TEST(bounded)
{
	uint64_t scratch[300];
	struct lorg_terms terms = {.scratch = scratch, .scratch_words = 300, .steps = 100000};
	lorg_term big = lorg_shift_left(&terms, lorg_small(3), lorg_small(6000));
	ck_assert(big != LORG_NONE);
	uint32_t used = terms.used;
	for (uint32_t room = used; room < 2 * used; room++) {
		terms.scratch_words = room;
		terms.failure = LORG_TERM_FINE;
		lorg_term product = lorg_multiply(&terms, big, big);
		ck_assert(product == LORG_NONE && terms.failure == LORG_TERM_NO_SPACE);
		ck_assert_uint_eq(terms.used, used);
	}
	terms.steps = 50;
	ck_assert(lorg_multiply(&terms, big, big) == LORG_NONE && terms.failure == LORG_TERM_NO_STEPS);
	ck_assert_uint_eq(terms.used, used);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {as_gmp, shifts_as_gmp, rounding_and_comparing_floats, mixed_and_failing, bounded};
	return unit_suite_of("term_number", tests, sizeof tests / sizeof tests[0], 60);
}
