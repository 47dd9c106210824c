/* SPDX-License-Identifier: MIT */
/*
 * number.c: arithmetic of terms. Big integers by those functions of GMP's mpn layer that allocate nothing and take their
 * scratch space from the caller; results are made at the end of the scratch space, intermediate ones behind them.
 *
 * Everything that takes room may move the scratch space, so operands are looked up again after that (load()).
 */
#include <gmp.h>
#include <string.h>

#include "preload/term/layout.h"

_Static_assert(sizeof(mp_limb_t) == sizeof(uint64_t) && GMP_NAIL_BITS == 0, "words are limbs");

enum {
	LIMB_PRODUCTS_PER_STEP = 16,
	MANTISSA_BITS = 52,
	EXPONENT_MASK = 0x7ff,
	EXPONENT_OF_ONE = 1075, /* biased exponent of a float whose last mantissa bit counts one */
};

/* An integer as sign and magnitude; may point into itself, so it is never copied. */
struct integer {
	const mp_limb_t *limbs;
	uint32_t count;
	bool negative;
	uint64_t small;
};

/* False if it is no integer. */
static bool load(const struct lorg_terms *terms, lorg_term term, struct integer *integer)
{
	integer->limbs = (const mp_limb_t *)lorg_get_magnitude(terms, term, &integer->small, &integer->count, &integer->negative);
	return integer->limbs != NULL;
}

static inline mp_limb_t *at(const struct lorg_terms *terms, uint32_t offset)
{
	return (mp_limb_t *)(terms->scratch + offset);
}

static lorg_term bad_argument(struct lorg_terms *terms)
{
	return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
}

/* What is to be said of an operand that is not what was asked for. */
static lorg_term wrong_operand(struct lorg_terms *terms, lorg_term term)
{
	return lorg_term_failed(terms, lorg_term_kind(terms, term) == LORG_KIND_NONE ? LORG_TERM_BROKEN : LORG_TERM_BAD_ARGUMENT);
}

bool lorg_integer_begin(struct lorg_terms *terms, uint64_t limbs, uint32_t *box)
{
	if (limbs > 2 * (uint64_t)LORG_INTEGER_WORDS_MAX + 2) {
		terms->failure = LORG_TERM_BAD_ARGUMENT;
		return false;
	}
	return lorg_terms_take(terms, (uint32_t)limbs + 1, box) != NULL;
}

lorg_term lorg_integer_finish(struct lorg_terms *terms, uint32_t box, uint64_t limbs, bool negative)
{
	uint32_t count = (uint32_t)limbs;
	const uint64_t *magnitude = terms->scratch + box + 1;
	while (count && !magnitude[count - 1])
		count--;
	terms->used = box;
	if (lorg_magnitude_is_small(magnitude, count, negative))
		return lorg_small_of_magnitude(magnitude, count, negative);
	if (count > LORG_INTEGER_WORDS_MAX)
		return bad_argument(terms);
	terms->scratch[box] = lorg_head(LORG_KIND_INTEGER, count) | (negative ? LORG_HEAD_NEGATIVE : 0);
	terms->used = box + 1 + count;
	return lorg_boxed(box, LORG_TAG_BOXED);
}

/* Failure after lorg_integer_begin(). */
static lorg_term give_up(struct lorg_terms *terms, uint32_t box)
{
	terms->used = box;
	if (!terms->failure)
		terms->failure = LORG_TERM_BROKEN;
	return LORG_NONE;
}

/* ---- magnitudes --------------------------------------------------------------- */

static int compare_limbs(const struct integer *a, const struct integer *b)
{
	if (a->count != b->count)
		return a->count > b->count ? 1 : -1;
	return a->count ? mpn_cmp(a->limbs, b->limbs, a->count) : 0;
}

/* result: room for one limb more than the longer one. */
static void add_magnitudes(mp_limb_t *result, const struct integer *a, const struct integer *b)
{
	const struct integer *longer = a->count >= b->count ? a : b, *shorter = longer == a ? b : a;
	mp_limb_t carry = shorter->count ? mpn_add_n(result, longer->limbs, shorter->limbs, shorter->count) : 0;
	for (uint32_t i = shorter->count; i < longer->count; i++) {
		result[i] = longer->limbs[i] + carry;
		carry = carry && !result[i];
	}
	result[longer->count] = carry;
}

/* larger is not less than smaller; result: as many limbs as larger has. */
static void subtract_magnitudes(mp_limb_t *result, const struct integer *larger, const struct integer *smaller)
{
	mp_limb_t borrow = smaller->count ? mpn_sub_n(result, larger->limbs, smaller->limbs, smaller->count) : 0;
	for (uint32_t i = smaller->count; i < larger->count; i++) {
		result[i] = larger->limbs[i] - borrow;
		borrow = borrow && !larger->limbs[i];
	}
}

static lorg_term add_integers(struct lorg_terms *terms, lorg_term a, lorg_term b, bool negate_b)
{
	struct integer left, right;
	uint32_t box;
	if (!load(terms, a, &left) || !load(terms, b, &right))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	uint32_t limbs = (left.count > right.count ? left.count : right.count) + 1;
	if (!lorg_terms_spend(terms, limbs) || !lorg_integer_begin(terms, limbs, &box))
		return LORG_NONE;
	if (!load(terms, a, &left) || !load(terms, b, &right) || left.count >= limbs || right.count >= limbs)
		return give_up(terms, box);
	mp_limb_t *result = at(terms, box + 1);
	memset(result, 0, (size_t)limbs * sizeof *result);
	right.negative ^= negate_b;
	if (left.negative == right.negative) {
		add_magnitudes(result, &left, &right);
		return lorg_integer_finish(terms, box, limbs, left.negative);
	}
	bool left_larger = compare_limbs(&left, &right) >= 0;
	subtract_magnitudes(result, left_larger ? &left : &right, left_larger ? &right : &left);
	return lorg_integer_finish(terms, box, limbs - 1, left_larger ? left.negative : right.negative);
}

static lorg_term multiply_integers(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	struct integer left, right;
	uint32_t box, scratch;
	if (!load(terms, a, &left) || !load(terms, b, &right))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	if (left.count < right.count)
		return multiply_integers(terms, b, a);
	uint32_t left_count = left.count, right_count = right.count;
	if (!right_count)
		return lorg_small(0);
	if (!lorg_terms_spend(terms, 1 + (uint64_t)left_count * right_count / LIMB_PRODUCTS_PER_STEP) ||
	    !lorg_integer_begin(terms, (uint64_t)left_count + right_count, &box))
		return LORG_NONE;
	if (!lorg_terms_take(terms, (uint32_t)mpn_sec_mul_itch(left_count, right_count), &scratch))
		return give_up(terms, box);
	if (!load(terms, a, &left) || !load(terms, b, &right) || left.count != left_count || right.count != right_count)
		return give_up(terms, box);
	mpn_sec_mul(at(terms, box + 1), left.limbs, left_count, right.limbs, right_count, at(terms, scratch));
	return lorg_integer_finish(terms, box, (uint64_t)left_count + right_count, left.negative != right.negative);
}

/* Divides what stands behind `box` (count limbs) by one limb; the quotient goes there too. */
static mp_limb_t divide_by_limb(struct lorg_terms *terms, uint32_t box, uint32_t count, mp_limb_t divisor)
{
	return mpn_divrem_1(at(terms, box + 1), 0, at(terms, box + 1), count, divisor);
}

/*
 * Quotient (truncated) or remainder (with the sign of the dividend). Room behind the box: the dividend, which becomes the
 * remainder; the quotient; what mpn_sec_div_qr() needs.
 */
static lorg_term divide_integers(struct lorg_terms *terms, lorg_term a, lorg_term b, bool want_quotient)
{
	struct integer dividend, divisor;
	uint32_t box, rest;
	if (!load(terms, a, &dividend) || !load(terms, b, &divisor))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	uint32_t limbs = dividend.count, divisor_limbs = divisor.count;
	if (!divisor_limbs)
		return bad_argument(terms);
	if (compare_limbs(&dividend, &divisor) < 0)
		return want_quotient ? lorg_small(0) : a;
	uint32_t quotient_limbs = limbs - divisor_limbs;
	if (!lorg_terms_spend(terms, 1 + (uint64_t)(quotient_limbs + 1) * divisor_limbs / LIMB_PRODUCTS_PER_STEP) ||
	    !lorg_integer_begin(terms, limbs, &box))
		return LORG_NONE;
	if (!lorg_terms_take(terms, quotient_limbs + 1 + (uint32_t)mpn_sec_div_qr_itch(limbs, divisor_limbs), &rest))
		return give_up(terms, box);
	if (!load(terms, a, &dividend) || !load(terms, b, &divisor) || dividend.count != limbs || divisor.count != divisor_limbs)
		return give_up(terms, box);
	memcpy(at(terms, box + 1), dividend.limbs, (size_t)limbs * sizeof(mp_limb_t));
	bool negative = want_quotient ? dividend.negative != divisor.negative : dividend.negative;
	if (divisor_limbs == 1) {
		mp_limb_t remainder = divide_by_limb(terms, box, limbs, divisor.limbs[0]);
		if (!want_quotient)
			*at(terms, box + 1) = remainder;
		return lorg_integer_finish(terms, box, want_quotient ? limbs : 1, negative);
	}
	mp_limb_t *quotient = at(terms, rest);
	quotient[quotient_limbs] = mpn_sec_div_qr(quotient, at(terms, box + 1), limbs, divisor.limbs, divisor_limbs,
		quotient + quotient_limbs + 1);
	if (!want_quotient)
		return lorg_integer_finish(terms, box, divisor_limbs, negative);
	memmove(at(terms, box + 1), quotient, (size_t)(quotient_limbs + 1) * sizeof(mp_limb_t));
	return lorg_integer_finish(terms, box, (uint64_t)quotient_limbs + 1, negative);
}

/* ---- floats --------------------------------------------------------------------- */

/*
 * Limb by limb from the highest on, each step rounded: so the numbers come out as Erlang's, which differ from the nearest
 * float where a tie is broken by bits further down.
 */
static double float_of_integer(const struct integer *integer)
{
	double value = 0;
	for (uint32_t i = integer->count; i--;)
		value = value * 18446744073709551616.0 + (double)integer->limbs[i];
	return integer->negative ? -value : value;
}

/* False, with failure set, for what is no number or too large. */
static bool number_as_float(struct lorg_terms *terms, lorg_term term, double *value)
{
	struct integer integer;
	if (lorg_is_small(term)) {
		*value = (double)lorg_small_value(term);
		return true;
	}
	if (lorg_get_float(terms, term, value))
		return true;
	if (!load(terms, term, &integer)) {
		wrong_operand(terms, term);
		return false;
	}
	if (!lorg_terms_spend(terms, integer.count))
		return false;
	*value = float_of_integer(&integer);
	if (*value - *value == 0)
		return true;
	bad_argument(terms);
	return false;
}

static bool both_as_floats(struct lorg_terms *terms, lorg_term a, lorg_term b, double *left, double *right)
{
	return number_as_float(terms, a, left) && number_as_float(terms, b, right);
}

static inline bool is_integer(const struct lorg_terms *terms, lorg_term term)
{
	return lorg_is_small(term) || lorg_term_kind(terms, term) == LORG_KIND_INTEGER;
}

enum rounding {
	TOWARDS_ZERO,
	HALF_AWAY,
	DOWN,
	UP,
};

/* Whether the part behind the point makes the magnitude one larger. */
static bool rounds_away(enum rounding rounding, bool negative, bool fraction, bool half)
{
	switch (rounding) {
	case HALF_AWAY:
		return half;
	case DOWN:
		return negative && fraction;
	case UP:
		return !negative && fraction;
	default:
		return false;
	}
}

static lorg_term integer_of_float(struct lorg_terms *terms, double value, enum rounding rounding)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	bool negative = bits >> 63;
	int biased = (int)(bits >> MANTISSA_BITS & EXPONENT_MASK);
	uint64_t mantissa = bits & ((UINT64_C(1) << MANTISSA_BITS) - 1);
	if (biased)
		mantissa |= UINT64_C(1) << MANTISSA_BITS;
	int exponent = (biased ? biased : 1) - EXPONENT_OF_ONE;
	if (exponent < 0) {
		int below = -exponent;
		uint64_t whole = below < 64 ? mantissa >> below : 0;
		bool fraction = below < 64 ? mantissa != whole << below : mantissa != 0;
		bool half = below < 64 && mantissa >> (below - 1) & 1;
		whole += rounds_away(rounding, negative, fraction, half);
		return lorg_big(terms, negative, &whole, 1);
	}
	uint64_t limbs[18] = {0}; /* 1024 bits and one limb that a shift may reach */
	unsigned shift = (unsigned)exponent % 64, first = (unsigned)exponent / 64;
	limbs[first] = mantissa << shift;
	if (shift)
		limbs[first + 1] = mantissa >> (64 - shift);
	return lorg_big(terms, negative, limbs, first + 2);
}

static lorg_term to_integer(struct lorg_terms *terms, lorg_term a, enum rounding rounding)
{
	double value;
	if (is_integer(terms, a))
		return a;
	if (!lorg_get_float(terms, a, &value))
		return wrong_operand(terms, a);
	return integer_of_float(terms, value, rounding);
}

/* ---- operators ------------------------------------------------------------------ */

lorg_term lorg_add(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double left, right;
	if (lorg_is_small(a) && lorg_is_small(b))
		return lorg_integer(terms, lorg_small_value(a) + lorg_small_value(b));
	if (is_integer(terms, a) && is_integer(terms, b))
		return add_integers(terms, a, b, false);
	return both_as_floats(terms, a, b, &left, &right) ? lorg_float(terms, left + right) : LORG_NONE;
}

lorg_term lorg_subtract(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double left, right;
	if (lorg_is_small(a) && lorg_is_small(b))
		return lorg_integer(terms, lorg_small_value(a) - lorg_small_value(b));
	if (is_integer(terms, a) && is_integer(terms, b))
		return add_integers(terms, a, b, true);
	return both_as_floats(terms, a, b, &left, &right) ? lorg_float(terms, left - right) : LORG_NONE;
}

lorg_term lorg_multiply(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double left, right;
	int64_t product;
	if (lorg_is_small(a) && lorg_is_small(b) && !__builtin_mul_overflow(lorg_small_value(a), lorg_small_value(b), &product))
		return lorg_integer(terms, product);
	if (is_integer(terms, a) && is_integer(terms, b))
		return multiply_integers(terms, a, b);
	return both_as_floats(terms, a, b, &left, &right) ? lorg_float(terms, left * right) : LORG_NONE;
}

lorg_term lorg_divide(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	double left, right;
	if (!both_as_floats(terms, a, b, &left, &right))
		return LORG_NONE;
	return right == 0 ? bad_argument(terms) : lorg_float(terms, left / right);
}

static lorg_term divide_whole(struct lorg_terms *terms, lorg_term a, lorg_term b, bool want_quotient)
{
	if (!is_integer(terms, a))
		return wrong_operand(terms, a);
	if (!is_integer(terms, b))
		return wrong_operand(terms, b);
	if (!lorg_is_small(a) || !lorg_is_small(b))
		return divide_integers(terms, a, b, want_quotient);
	int64_t dividend = lorg_small_value(a), divisor = lorg_small_value(b);
	if (!divisor)
		return bad_argument(terms);
	return lorg_integer(terms, want_quotient ? dividend / divisor : dividend % divisor);
}

lorg_term lorg_quotient(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	return divide_whole(terms, a, b, true);
}

lorg_term lorg_remainder(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	return divide_whole(terms, a, b, false);
}

/* ---- bits ------------------------------------------------------------------------ */

enum bit_operation {
	BIT_AND,
	BIT_OR,
	BIT_XOR,
};

static void negate_limbs(mp_limb_t *limbs, uint32_t count)
{
	mp_limb_t carry = 1;
	for (uint32_t i = 0; i < count; i++) {
		limbs[i] = ~limbs[i] + carry;
		carry = carry && !limbs[i];
	}
}

/* Two's complement in `count` limbs, more than the magnitude has. */
static void to_complement(mp_limb_t *limbs, uint32_t count, const struct integer *integer)
{
	memset(limbs, 0, (size_t)count * sizeof *limbs);
	memcpy(limbs, integer->limbs, (size_t)integer->count * sizeof *limbs);
	if (integer->negative)
		negate_limbs(limbs, count);
}

static void combine(mp_limb_t *result, const mp_limb_t *other, uint32_t count, enum bit_operation operation)
{
	if (operation == BIT_AND)
		mpn_and_n(result, result, other, count);
	else if (operation == BIT_OR)
		mpn_ior_n(result, result, other, count);
	else
		mpn_xor_n(result, result, other, count);
}

static lorg_term combine_integers(struct lorg_terms *terms, lorg_term a, lorg_term b, enum bit_operation operation)
{
	struct integer left, right;
	uint32_t box, other;
	if (!load(terms, a, &left))
		return wrong_operand(terms, a);
	if (!load(terms, b, &right))
		return wrong_operand(terms, b);
	uint32_t limbs = (left.count > right.count ? left.count : right.count) + 1;
	if (!lorg_terms_spend(terms, limbs) || !lorg_integer_begin(terms, limbs, &box))
		return LORG_NONE;
	if (!lorg_terms_take(terms, limbs, &other))
		return give_up(terms, box);
	if (!load(terms, a, &left) || !load(terms, b, &right) || left.count >= limbs || right.count >= limbs)
		return give_up(terms, box);
	mp_limb_t *result = at(terms, box + 1);
	to_complement(result, limbs, &left);
	to_complement(at(terms, other), limbs, &right);
	combine(result, at(terms, other), limbs, operation);
	bool negative = result[limbs - 1] >> 63;
	if (negative)
		negate_limbs(result, limbs);
	return lorg_integer_finish(terms, box, limbs, negative);
}

lorg_term lorg_bit_and(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (lorg_is_small(a) && lorg_is_small(b))
		return a & b;
	return combine_integers(terms, a, b, BIT_AND);
}

lorg_term lorg_bit_or(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (lorg_is_small(a) && lorg_is_small(b))
		return a | b;
	return combine_integers(terms, a, b, BIT_OR);
}

lorg_term lorg_bit_xor(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (lorg_is_small(a) && lorg_is_small(b))
		return (a ^ b) | LORG_TAG_SMALL;
	return combine_integers(terms, a, b, BIT_XOR);
}

lorg_term lorg_bit_not(struct lorg_terms *terms, lorg_term a)
{
	return combine_integers(terms, a, lorg_small(-1), BIT_XOR);
}

/* a * 2^count. */
static lorg_term shift_up(struct lorg_terms *terms, lorg_term a, uint64_t count)
{
	struct integer integer;
	uint32_t box;
	if (!load(terms, a, &integer))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	if (!integer.count)
		return a;
	if (count / 64 > LORG_INTEGER_WORDS_MAX)
		return bad_argument(terms);
	uint32_t whole = (uint32_t)(count / 64), limbs = integer.count + whole + 1, had = integer.count;
	if (!lorg_terms_spend(terms, limbs) || !lorg_integer_begin(terms, limbs, &box))
		return LORG_NONE;
	if (!load(terms, a, &integer) || integer.count != had)
		return give_up(terms, box);
	mp_limb_t *result = at(terms, box + 1);
	memset(result, 0, (size_t)limbs * sizeof *result);
	if (count % 64)
		result[limbs - 1] = mpn_lshift(result + whole, integer.limbs, integer.count, count % 64);
	else
		memcpy(result + whole, integer.limbs, (size_t)integer.count * sizeof *result);
	return lorg_integer_finish(terms, box, limbs, integer.negative);
}

/* Whether any of the lowest `count` bits is set. */
static bool low_bits(const struct integer *integer, uint64_t count)
{
	for (uint64_t i = 0; i < count / 64; i++)
		if (integer->limbs[i])
			return true;
	return count % 64 && integer->limbs[count / 64] << (64 - count % 64);
}

/* a / 2^count, rounded down. */
static lorg_term shift_down(struct lorg_terms *terms, lorg_term a, uint64_t count)
{
	struct integer integer;
	uint32_t box;
	if (!load(terms, a, &integer))
		return lorg_term_failed(terms, LORG_TERM_BROKEN);
	if (count / 64 >= integer.count)
		return lorg_small(integer.negative ? -1 : 0);
	uint32_t whole = (uint32_t)(count / 64), limbs = integer.count - whole, had = integer.count;
	if (!lorg_terms_spend(terms, had) || !lorg_integer_begin(terms, (uint64_t)limbs + 1, &box))
		return LORG_NONE;
	if (!load(terms, a, &integer) || integer.count != had)
		return give_up(terms, box);
	mp_limb_t *result = at(terms, box + 1);
	if (count % 64)
		mpn_rshift(result, integer.limbs + whole, limbs, count % 64);
	else
		memcpy(result, integer.limbs + whole, (size_t)limbs * sizeof *result);
	result[limbs] = 0;
	if (integer.negative && low_bits(&integer, count))
		for (uint32_t i = 0; i <= limbs && !++result[i]; i++)
			;
	return lorg_integer_finish(terms, box, (uint64_t)limbs + 1, integer.negative);
}

static lorg_term shift(struct lorg_terms *terms, lorg_term a, lorg_term count, bool up)
{
	struct integer by;
	if (!is_integer(terms, a))
		return wrong_operand(terms, a);
	if (!load(terms, count, &by))
		return wrong_operand(terms, count);
	uint64_t places = by.count > 1 ? UINT64_MAX : by.count ? by.limbs[0] : 0;
	return up != by.negative ? shift_up(terms, a, places) : shift_down(terms, a, places);
}

lorg_term lorg_shift_left(struct lorg_terms *terms, lorg_term a, lorg_term count)
{
	return shift(terms, a, count, true);
}

lorg_term lorg_shift_right(struct lorg_terms *terms, lorg_term a, lorg_term count)
{
	return shift(terms, a, count, false);
}

/* ---- one operand ------------------------------------------------------------------- */

lorg_term lorg_plus(struct lorg_terms *terms, lorg_term a)
{
	double value;
	return is_integer(terms, a) || lorg_get_float(terms, a, &value) ? a : wrong_operand(terms, a);
}

lorg_term lorg_negate(struct lorg_terms *terms, lorg_term a)
{
	double value;
	if (!lorg_is_small(a) && lorg_get_float(terms, a, &value))
		return lorg_float(terms, -value);
	return lorg_subtract(terms, lorg_small(0), a);
}

lorg_term lorg_absolute(struct lorg_terms *terms, lorg_term a)
{
	struct integer integer;
	double value;
	if (lorg_get_float(terms, a, &value))
		return value < 0 ? lorg_float(terms, -value) : a;
	if (!load(terms, a, &integer))
		return wrong_operand(terms, a);
	return integer.negative ? lorg_negate(terms, a) : a;
}

lorg_term lorg_round(struct lorg_terms *terms, lorg_term a)
{
	return to_integer(terms, a, HALF_AWAY);
}

lorg_term lorg_truncate(struct lorg_terms *terms, lorg_term a)
{
	return to_integer(terms, a, TOWARDS_ZERO);
}

lorg_term lorg_floor(struct lorg_terms *terms, lorg_term a)
{
	return to_integer(terms, a, DOWN);
}

lorg_term lorg_ceil(struct lorg_terms *terms, lorg_term a)
{
	return to_integer(terms, a, UP);
}

lorg_term lorg_to_float(struct lorg_terms *terms, lorg_term a)
{
	double value;
	if (lorg_get_float(terms, a, &value))
		return a;
	return number_as_float(terms, a, &value) ? lorg_float(terms, value) : LORG_NONE;
}
