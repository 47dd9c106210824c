/* SPDX-License-Identifier: MIT */
/*
 * fuzz_term.c: the reader of Erlang's syntax on any text. What it takes prints, and the text reads as the same term again;
 * what it refuses has a place within the text. The two halves of what is read are also compared and calculated with.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/printer.h"
#include "collector/term/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
	if (!holds)
		abort();
}

/* Of a pair of terms: no order contradicts itself, no operator reads what it should not. */
static void use(struct lorg_terms *terms, lorg_term term)
{
	static lorg_term (*const operators[])(struct lorg_terms *, lorg_term, lorg_term) = {lorg_add, lorg_subtract, lorg_multiply, lorg_divide,
		lorg_quotient, lorg_remainder, lorg_bit_and, lorg_bit_or, lorg_bit_xor, lorg_shift_left, lorg_shift_right};
	lorg_term a, b;
	if (!lorg_get_cons(terms, term, &a, &b))
		return;
	enum lorg_order order = lorg_term_compare(terms, a, b);
	require(order != LORG_ORDER_FAILED && lorg_term_compare(terms, b, a) == (enum lorg_order)-(int)order);
	require(lorg_term_same(terms, a, b) == (lorg_term_compare_exact(terms, a, b) == LORG_EQUAL));
	for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
		uint32_t used = terms->used;
		/* Bounded as the evaluator is: shifts can make very large numbers. */
		terms->steps = 10000;
		operators[i](terms, a, b);
		terms->steps = LORG_STEPS_ENDLESS;
		terms->used = used;
	}
}

static void read_again(struct lorg_terms *terms, lorg_term term)
{
	size_t length;
	struct lorg_read_error error;
	char *text = lorg_term_text(terms, term, LORG_TEXT_ERLANG, NULL, &length);
	require(text && strlen(text) == length);
	lorg_term back = lorg_read_term(terms, text, length, NULL, &error);
	require(back != LORG_NONE && lorg_term_same(terms, term, back) == 1);
	free(text);
	text = lorg_term_text(terms, term, LORG_TEXT_PEOPLE, NULL, NULL);
	require(text != NULL);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lorg_terms terms;
	struct lorg_positions positions = {0};
	struct lorg_read_error error;
	if (size > 20000)
		return 0;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, (const char *)data, size, &positions, &error);
	if (term == LORG_NONE) {
		require(error.line && error.column && error.line <= size + 1 && error.column <= size + 1 && error.reason[0]);
	} else {
		for (uint32_t i = 0; i < terms.used; i++)
			require(lorg_positions_at(&positions, i) == LORG_NO_POSITION || lorg_positions_at(&positions, i) <= size);
		read_again(&terms, term);
		use(&terms, term);
	}
	lorg_positions_close(&positions);
	lorg_terms_close(&terms);
	return 0;
}
