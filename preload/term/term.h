/* SPDX-License-Identifier: MIT */
/*
 * term.h: Erlang's terms, in a form that both sides use: the evaluator of match specifications inside the traced
 * program, and the reader, printer and compiler outside.
 *
 * A term is one 64-bit word. What does not fit into it stands in one of two spaces of 64-bit words: the constants of a
 * program (read-only) and the scratch memory of one evaluation. Words hold offsets into these, never pointers, so that
 * spaces can be moved, grown and shared between programs; and since either may be memory that the traced program can
 * scribble on, every access checks offset and length, and a word that makes no sense is a failure, never a fault.
 *
 * Nothing here calls malloc, locks, makes system calls or recurses; all is async-signal-safe and holds no state but the
 * caller's struct lorg_terms, which belongs to one thread at a time.
 *
 * Functions that make a term return LORG_NONE when they fail and say why in terms->failure (which success leaves
 * alone). All functions take LORG_NONE as an argument and fail.
 */
#ifndef LORG_PRELOAD_TERM_H
#define LORG_PRELOAD_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t lorg_term;

/* No term: the result of what failed. */
#define LORG_NONE ((lorg_term)0)

/* The low four bits of a term. */
enum lorg_tag {
	LORG_TAG_NONE = 0,
	LORG_TAG_SMALL = 1,      /* integer of 60 bits, in the other bits */
	LORG_TAG_ATOM_SHORT = 2, /* atom of at most 7 bytes: length in bits 4 to 7, text above. Such atoms have no other form */
	LORG_TAG_ATOM = 3,       /* longer atom */
	LORG_TAG_NIL = 4,
	LORG_TAG_CONS = 5,       /* two words, head and tail */
	LORG_TAG_BOXED = 6,      /* a head word, which tells the kind, and what follows it */
};

/* Of cons, boxed terms and long atoms: bit 4 is set for scratch memory, bits 32 to 63 are the offset in words. */
#define LORG_TERM_SCRATCH 0x10u
#define LORG_TERM_TAG_MASK 0x0fu

#define LORG_SMALL_MAX ((INT64_C(1) << 59) - 1)
#define LORG_SMALL_MIN (-(INT64_C(1) << 59))

/* An atom has at most 255 characters, each at most four bytes of UTF-8. */
#define LORG_ATOM_CHARACTERS_MAX 255
#define LORG_ATOM_BYTES_MAX (4 * LORG_ATOM_CHARACTERS_MAX)
#define LORG_ATOM_SHORT_MAX 7

/* Numbers of a reference. */
#define LORG_REFERENCE_MAX 6

/* What a term is, in Erlang's term order. Integers and floats count as one in it, both kinds of funs as well. */
enum lorg_kind {
	LORG_KIND_NONE = 0,
	LORG_KIND_INTEGER,
	LORG_KIND_FLOAT,
	LORG_KIND_ATOM,
	LORG_KIND_REFERENCE,
	LORG_KIND_FUN,          /* opaque: the text between #Fun< and > */
	LORG_KIND_FUN_EXTERNAL, /* fun M:F/A */
	LORG_KIND_PORT,
	LORG_KIND_PID,
	LORG_KIND_CODE_ADDRESS, /* lorg's own: an address in the program, which readers turn into {M,F,A} */
	LORG_KIND_TUPLE,
	LORG_KIND_MAP,
	LORG_KIND_NIL,
	LORG_KIND_LIST, /* a cons cell */
	LORG_KIND_BITSTRING,
};

/*
 * The head word of a boxed term or long atom: kind in bits 0 to 7 (enum lorg_kind), LORG_HEAD_NEGATIVE, and a size in
 * bits 32 to 63. Behind it:
 *   integer       size words, magnitude, least significant first, the last not zero (only what does not fit 60 bits)
 *   float         size 1, IEEE 754 double; never infinite or not a number
 *   atom, fun     size bytes of text (UTF-8), zero-padded to words
 *   fun external  size 3: module, function (atoms), arity (small integer)
 *   bitstring     size bits, the first in the highest bit of the first byte; zero-padded to words
 *   tuple         size elements
 *   map           size keys, in ascending map-key order, then size values
 *   pid           size 4: three numbers of 32 bits (program, thread, process in it) and the node (an atom, or LORG_NONE
 *                 for the own node)
 *   port          size 4: program, descriptor, generation (32 bits; generation LORG_PORT_TWO_PARTS: it was written with
 *                 two parts, and equals generation 0) and the node
 *   reference     size numbers of 32 bits, a word each, as printed
 *   code address  size 1; LORG_HEAD_LINE: readers name the line that stands there, too
 */
#define LORG_HEAD_NEGATIVE 0x100u
#define LORG_HEAD_LINE 0x200u
#define LORG_PORT_TWO_PARTS (UINT64_C(1) << 32)

enum lorg_term_failure {
	LORG_TERM_FINE = 0,
	LORG_TERM_BAD_ARGUMENT, /* what Erlang calls badarg or badarith */
	LORG_TERM_NO_SPACE,     /* the scratch memory is full */
	LORG_TERM_NO_STEPS,     /* the budget of steps is used up */
	LORG_TERM_BROKEN,       /* a word that no term has: the memory was written by others */
};

struct lorg_terms {
	const uint64_t *constant;
	uint64_t *scratch;
	uint32_t constant_words;
	uint32_t scratch_words; /* at most 2^32 - 2 */
	uint32_t used;          /* words of scratch in use. May be set back to an earlier value: what was made since is gone */
	uint32_t failure;       /* enum lorg_term_failure, the last one */
	/*
	 * Work that may still be done, in units of about one word looked at. Long operations (comparisons, big integers,
	 * text) take from it and fail with LORG_TERM_NO_STEPS when it is used up. LORG_STEPS_ENDLESS outside.
	 */
	uint64_t steps;
	/*
	 * NULL, or makes room for `words` more words of scratch (changes scratch and scratch_words) and returns false if
	 * it cannot. Never set inside the traced program.
	 */
	bool (*grow)(struct lorg_terms *terms, uint32_t words);
};

#define LORG_STEPS_ENDLESS UINT64_MAX

/* ---- making terms -------------------------------------------------------- */

static inline lorg_term lorg_term_failed(struct lorg_terms *terms, enum lorg_term_failure failure)
{
	terms->failure = failure;
	return LORG_NONE;
}

static inline bool lorg_fits_small(int64_t value)
{
	return value >= LORG_SMALL_MIN && value <= LORG_SMALL_MAX;
}

/* value must fit (lorg_fits_small). */
static inline lorg_term lorg_small(int64_t value)
{
	return (lorg_term)value << 4 | LORG_TAG_SMALL;
}

/* The empty list. */
static inline lorg_term lorg_nil(void)
{
	return LORG_TAG_NIL;
}

/* An atom of at most LORG_ATOM_SHORT_MAX bytes. */
static inline lorg_term lorg_atom_short(const char *text, size_t length)
{
	lorg_term atom = (lorg_term)length << 4 | LORG_TAG_ATOM_SHORT;
	for (size_t i = 0; i < length && i < LORG_ATOM_SHORT_MAX; i++)
		atom |= (lorg_term)(uint8_t)text[i] << (8 * i + 8);
	return atom;
}

#define LORG_TRUE (lorg_atom_short("true", 4))
#define LORG_FALSE (lorg_atom_short("false", 5))

static inline lorg_term lorg_boolean(bool value)
{
	return value ? LORG_TRUE : LORG_FALSE;
}

lorg_term lorg_integer(struct lorg_terms *terms, int64_t value);
lorg_term lorg_unsigned(struct lorg_terms *terms, uint64_t value);
/* From a magnitude of `words` words, least significant first. */
lorg_term lorg_big(struct lorg_terms *terms, bool negative, const uint64_t *magnitude, uint32_t words);
/* Infinite and not a number: LORG_TERM_BAD_ARGUMENT. */
lorg_term lorg_float(struct lorg_terms *terms, double value);
/* text: UTF-8, not checked. More than LORG_ATOM_BYTES_MAX bytes: LORG_TERM_BAD_ARGUMENT. */
lorg_term lorg_atom(struct lorg_terms *terms, const char *text, size_t length);
/* The same for a terminated text. */
lorg_term lorg_atom_text(struct lorg_terms *terms, const char *text);
/* Whole bytes; bits that do not belong to it are cleared. */
lorg_term lorg_binary(struct lorg_terms *terms, const void *bytes, size_t length);
lorg_term lorg_bitstring(struct lorg_terms *terms, const void *bytes, uint64_t bits);
/* All bits zero; *bytes is where they stand, valid until the next term is made. */
lorg_term lorg_bitstring_new(struct lorg_terms *terms, uint64_t bits, uint8_t **bytes);
lorg_term lorg_cons(struct lorg_terms *terms, lorg_term head, lorg_term tail);
/* The list of bytes that Erlang calls a string. */
lorg_term lorg_string(struct lorg_terms *terms, const void *bytes, size_t length);
lorg_term lorg_tuple(struct lorg_terms *terms, const lorg_term *elements, uint32_t arity);
/* A tuple to be filled in by lorg_tuple_set before any other use; until then its elements are []. */
lorg_term lorg_tuple_new(struct lorg_terms *terms, uint32_t arity);
/* Changes a tuple in scratch memory. index: from 0. False if it is none or has no such element. */
bool lorg_tuple_set(struct lorg_terms *terms, lorg_term tuple, uint32_t index, lorg_term element);
/*
 * A map of `count` keys and values, pairs[2i] and pairs[2i + 1], in any order; the last of equal keys counts. pairs must
 * not be in the scratch space (which may move).
 */
lorg_term lorg_map(struct lorg_terms *terms, const lorg_term *pairs, uint32_t count);
/*
 * The same where the pairs are the last `2 * count` words of scratch in use (terms->used - 2 * count), made by
 * lorg_terms_take(); they become part of the map or are given back.
 */
lorg_term lorg_map_of_last(struct lorg_terms *terms, uint32_t count);
lorg_term lorg_pid(struct lorg_terms *terms, uint32_t program, uint32_t thread, uint32_t process, lorg_term node);
/* generation: up to 2^32 - 1, or LORG_PORT_TWO_PARTS. */
lorg_term lorg_port_term(struct lorg_terms *terms, uint32_t program, uint32_t descriptor, uint64_t generation, lorg_term node);
lorg_term lorg_reference(struct lorg_terms *terms, const uint32_t *numbers, uint32_t count);
lorg_term lorg_fun(struct lorg_terms *terms, const char *text, size_t length);
lorg_term lorg_fun_external(struct lorg_terms *terms, lorg_term module, lorg_term function, uint32_t arity);
lorg_term lorg_code_address(struct lorg_terms *terms, uint64_t address);
/* The same, which readers turn into {M,F,A,{File,Line}}. */
lorg_term lorg_code_line(struct lorg_terms *terms, uint64_t address);

/*
 * Room of `words` words at the end of the scratch space, uninitialised; *offset tells where. The pointer is valid until
 * the next call that takes room. NULL: terms->failure tells why.
 */
uint64_t *lorg_terms_take(struct lorg_terms *terms, uint32_t words, uint32_t *offset);

/* Takes from the budget of steps. False, with failure set, when there is not enough. */
static inline bool lorg_terms_spend(struct lorg_terms *terms, uint64_t steps)
{
	if (terms->steps == LORG_STEPS_ENDLESS)
		return true;
	if (terms->steps < steps) {
		terms->steps = 0;
		terms->failure = LORG_TERM_NO_STEPS;
		return false;
	}
	terms->steps -= steps;
	return true;
}

/* ---- looking at terms ---------------------------------------------------- */

static inline enum lorg_tag lorg_tag(lorg_term term)
{
	return (enum lorg_tag)(term & LORG_TERM_TAG_MASK);
}

static inline bool lorg_is_small(lorg_term term)
{
	return lorg_tag(term) == LORG_TAG_SMALL;
}

static inline int64_t lorg_small_value(lorg_term term)
{
	return (int64_t)term >> 4;
}

static inline bool lorg_is_nil(lorg_term term)
{
	return term == LORG_TAG_NIL;
}

/* A cons cell. */
static inline bool lorg_is_cons(lorg_term term)
{
	return lorg_tag(term) == LORG_TAG_CONS;
}

static inline bool lorg_is_atom(lorg_term term)
{
	return lorg_tag(term) == LORG_TAG_ATOM_SHORT || lorg_tag(term) == LORG_TAG_ATOM;
}

static inline bool lorg_is_boolean(lorg_term term)
{
	return term == LORG_TRUE || term == LORG_FALSE;
}

static inline uint32_t lorg_term_offset(lorg_term term)
{
	return (uint32_t)(term >> 32);
}

/* `words` words at the offset that a cons, long atom or boxed term holds, or NULL if they are not all in its space. */
static inline const uint64_t *lorg_term_words(const struct lorg_terms *terms, lorg_term term, uint32_t words)
{
	bool scratch = term & LORG_TERM_SCRATCH;
	const uint64_t *space = scratch ? terms->scratch : terms->constant;
	uint32_t limit = scratch ? terms->used : terms->constant_words;
	uint32_t offset = lorg_term_offset(term);
	if (offset > limit || limit - offset < words)
		return NULL;
	return space + offset;
}

/* LORG_KIND_NONE where the term makes no sense. */
enum lorg_kind lorg_term_kind(const struct lorg_terms *terms, lorg_term term);

/*
 * What follows. Each returns false (or NULL) if the term is not of that kind or is broken; the pointers are valid until
 * the next term is made, and point to memory that may change under the reader's eyes: look once.
 */
/* Integers that fit. */
bool lorg_get_integer(const struct lorg_terms *terms, lorg_term term, int64_t *value);
bool lorg_get_unsigned(const struct lorg_terms *terms, lorg_term term, uint64_t *value);
/*
 * Any integer: magnitude without zero words at its end, 0 words for zero. Small ones are put into *small, to which the
 * result then points.
 */
const uint64_t *lorg_get_magnitude(const struct lorg_terms *terms, lorg_term term, uint64_t *small, uint32_t *words, bool *negative);
bool lorg_get_float(const struct lorg_terms *terms, lorg_term term, double *value);
/* short_text: room of 8 bytes, used for short atoms. The text is not terminated. */
const char *lorg_get_atom(const struct lorg_terms *terms, lorg_term term, char *short_text, size_t *length);
const uint8_t *lorg_get_bitstring(const struct lorg_terms *terms, lorg_term term, uint64_t *bits);
bool lorg_get_cons(const struct lorg_terms *terms, lorg_term term, lorg_term *head, lorg_term *tail);
const lorg_term *lorg_get_tuple(const struct lorg_terms *terms, lorg_term term, uint32_t *arity);
/* *values: may be NULL. */
const lorg_term *lorg_get_map(const struct lorg_terms *terms, lorg_term term, uint32_t *count, const lorg_term **values);
/* numbers: program, thread, process. *node: LORG_NONE for the own node. node may be NULL. */
bool lorg_get_pid(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[3], lorg_term *node);
/* numbers: program, descriptor, generation. *parts: 2 or 3. parts and node may be NULL. */
bool lorg_get_port(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[3], int *parts, lorg_term *node);
/* Returns how many, 0 if it is none. */
uint32_t lorg_get_reference(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[LORG_REFERENCE_MAX]);
const char *lorg_get_fun(const struct lorg_terms *terms, lorg_term term, size_t *length);
bool lorg_get_fun_external(const struct lorg_terms *terms, lorg_term term, lorg_term *module, lorg_term *function, uint32_t *arity);
bool lorg_get_code_address(const struct lorg_terms *terms, lorg_term term, uint64_t *address);
/* A code address was made by lorg_code_line. */
bool lorg_is_code_line(const struct lorg_terms *terms, lorg_term term);

/* The atom has exactly this text. */
bool lorg_atom_is(const struct lorg_terms *terms, lorg_term atom, const char *text);

/* Length of a proper list, -1 for anything else (failure: bad argument, broken, or no steps). */
int64_t lorg_list_length(struct lorg_terms *terms, lorg_term list);

/*
 * Value of a key (compared exactly). False without a failure if the map has none; *value is LORG_NONE and failure is
 * set if it is no map or is broken.
 */
bool lorg_map_find(struct lorg_terms *terms, lorg_term map, lorg_term key, lorg_term *value);

/* ---- comparing ------------------------------------------------------------ */

/* The explicit stack that deep terms need is taken from the free scratch memory and given back. */

enum lorg_order {
	LORG_LESS = -1,
	LORG_EQUAL = 0,
	LORG_GREATER = 1,
	LORG_ORDER_FAILED = 2, /* terms->failure tells why */
};

/* Erlang's term order, for < =< > >= == /=. */
enum lorg_order lorg_term_compare_deep(struct lorg_terms *terms, lorg_term a, lorg_term b);
/* The order of map keys: as above, but integers come before floats everywhere. Equal here is =:=. */
enum lorg_order lorg_term_compare_exact(struct lorg_terms *terms, lorg_term a, lorg_term b);
/* =:=: 1, 0, or -1 on failure. Quicker than the above. */
int lorg_term_same_deep(struct lorg_terms *terms, lorg_term a, lorg_term b);

static inline enum lorg_order lorg_term_compare(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (lorg_is_small(a) && lorg_is_small(b))
		return (enum lorg_order)(((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b));
	return lorg_term_compare_deep(terms, a, b);
}

/* ==: 1, 0, or -1 on failure. */
static inline int lorg_term_equal(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	enum lorg_order order = lorg_term_compare(terms, a, b);
	return order == LORG_ORDER_FAILED ? -1 : order == LORG_EQUAL;
}

/* =:=: 1, 0, or -1 on failure. */
static inline int lorg_term_same(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	if (lorg_is_small(a) || lorg_is_small(b))
		return a == b;
	return lorg_term_same_deep(terms, a, b);
}

/* ---- arithmetic ------------------------------------------------------------ */

/* As Erlang's operators: integers without limit but the scratch memory, mixed with floats where Erlang allows it. */
lorg_term lorg_add(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_subtract(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_multiply(struct lorg_terms *terms, lorg_term a, lorg_term b);
/* `/`: always a float, correctly rounded. */
lorg_term lorg_divide(struct lorg_terms *terms, lorg_term a, lorg_term b);
/* div and rem. */
lorg_term lorg_quotient(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_remainder(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_bit_and(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_bit_or(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_bit_xor(struct lorg_terms *terms, lorg_term a, lorg_term b);
lorg_term lorg_bit_not(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_shift_left(struct lorg_terms *terms, lorg_term a, lorg_term count);
lorg_term lorg_shift_right(struct lorg_terms *terms, lorg_term a, lorg_term count);
/* Unary + (fails for what is no number) and -. */
lorg_term lorg_plus(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_negate(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_absolute(struct lorg_terms *terms, lorg_term a);
/* Integers stay what they are. */
lorg_term lorg_round(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_truncate(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_floor(struct lorg_terms *terms, lorg_term a);
lorg_term lorg_ceil(struct lorg_terms *terms, lorg_term a);
/* The nearest float (ties to even); fails on overflow. */
lorg_term lorg_to_float(struct lorg_terms *terms, lorg_term a);

#endif
