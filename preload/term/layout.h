/* SPDX-License-Identifier: MIT */
/* layout.h: how terms lie in memory, for the files of this folder alone. */
#ifndef LORG_PRELOAD_TERM_LAYOUT_H
#define LORG_PRELOAD_TERM_LAYOUT_H

#include "preload/term/term.h"

/* Erlang's own limit: about 33.5 million bits. More is a bad argument (there: system_limit). */
#define LORG_INTEGER_WORDS_MAX ((1u << 19) - 1)

struct lorg_box_head {
	enum lorg_kind kind;
	uint32_t size;
	bool negative;
};

static inline uint64_t lorg_head(enum lorg_kind kind, uint32_t size)
{
	return (uint64_t)size << 32 | kind;
}

/* A term in the scratch space. */
static inline lorg_term lorg_boxed(uint32_t offset, enum lorg_tag tag)
{
	return (lorg_term)offset << 32 | LORG_TERM_SCRATCH | tag;
}

/* Room for a head, which is written, and `words` words behind it, which are returned uninitialised. */
uint64_t *lorg_box(struct lorg_terms *terms, enum lorg_kind kind, uint32_t size, uint32_t words, lorg_term *term);
/* Head of a boxed term or long atom, and what is behind it; NULL where the term does not lie in its space as a whole. */
const uint64_t *lorg_unbox(const struct lorg_terms *terms, lorg_term term, struct lorg_box_head *head);

/* words without leading zeros. */
static inline bool lorg_magnitude_is_small(const uint64_t *magnitude, uint32_t words, bool negative)
{
	return !words || (words == 1 && magnitude[0] <= (uint64_t)LORG_SMALL_MAX + negative);
}

static inline lorg_term lorg_small_of_magnitude(const uint64_t *magnitude, uint32_t words, bool negative)
{
	uint64_t value = words ? magnitude[0] : 0;
	return lorg_small((int64_t)(negative ? -value : value));
}

/* Room for an integer to be made: a head at *box and `limbs` words behind it, to be filled. False: failure is set. */
bool lorg_integer_begin(struct lorg_terms *terms, uint64_t limbs, uint32_t *box);
/* The term of the magnitude behind *box; gives back all room from the box on that it does not need. */
lorg_term lorg_integer_finish(struct lorg_terms *terms, uint32_t box, uint64_t limbs, bool negative);

/* No list has more cells than this: a longer one goes in a circle, which only broken memory has. */
static inline uint32_t lorg_cells_at_most(const struct lorg_terms *terms)
{
	return (uint32_t)(((uint64_t)terms->constant_words + terms->used) / 2 + 1);
}

#endif
