/* SPDX-License-Identifier: MIT */
/*
 * fuzz_term_external.c: the decoder and the printer of terms in events, on any bytes. Both take the same bytes for a term,
 * and what was decoded comes back from being encoded. Also with a small space of a fixed size, as in a traced program.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/printer.h"
#include "collector/term/reader.h"
#include "preload/term/external.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
	if (!holds)
		abort();
}

static void encode_again(struct lorg_terms *terms, lorg_term term)
{
	struct lorg_external out = {.size = 1 << 20};
	out.bytes = malloc(out.size);
	require(out.bytes != NULL);
	if (lorg_put_term(&out, terms, term)) {
		const uint8_t *at = out.bytes;
		lorg_term back = lorg_get_term(terms, &at, out.bytes + out.used);
		require(at == out.bytes + out.used && lorg_term_same(terms, term, back) == 1);
	} else {
		require(out.truncated && !out.used);
	}
	free(out.bytes);
}

static void decode_in_little_room(const uint8_t *data, size_t size)
{
	uint64_t *scratch = malloc(100 * sizeof *scratch);
	struct lorg_terms terms = {.scratch = scratch, .scratch_words = 100, .steps = 10000};
	const uint8_t *at = data;
	lorg_term term = lorg_get_term(&terms, &at, data + size);
	require(term != LORG_NONE || (terms.failure != LORG_TERM_FINE && terms.used == 0));
	free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lorg_terms terms;
	const uint8_t *at = data, *end = data + size;
	if (size > 20000)
		return 0;
	decode_in_little_room(data, size);
	lorg_terms_open(&terms);
	while (at < end) {
		const uint8_t *printed = at;
		char *people = lorg_external_text(&printed, end, LORG_TEXT_PEOPLE, NULL, NULL);
		const uint8_t *printed_again = at;
		char *erlang = lorg_external_text(&printed_again, end, LORG_TEXT_ERLANG, NULL, NULL);
		lorg_term term = lorg_get_term(&terms, &at, end);
		/* The printer is laxer with what has no form in Erlang. */
		require(term == LORG_NONE || (people && erlang && printed == at && printed_again == at));
		free(people);
		free(erlang);
		if (term == LORG_NONE)
			break;
		encode_again(&terms, term);
	}
	lorg_terms_close(&terms);
	return 0;
}
