/* SPDX-License-Identifier: MIT */
/* term.c: making terms and looking at them; see term.h. */
#include "preload/term/term.h"

#include <string.h>

#include "preload/term/layout.h"

uint64_t *lorg_terms_take(struct lorg_terms *terms, uint32_t words, uint32_t *offset)
{
	/* used may have been set by who owns the struct: never trust that it is within the limit. */
	if (terms->used > terms->scratch_words)
		terms->used = terms->scratch_words;
	if (terms->scratch_words - terms->used < words && (!terms->grow || !terms->grow(terms, words))) {
		terms->failure = LORG_TERM_NO_SPACE;
		return NULL;
	}
	*offset = terms->used;
	terms->used += words;
	return terms->scratch + *offset;
}

uint64_t *lorg_box(struct lorg_terms *terms, enum lorg_kind kind, uint32_t size, uint32_t words, lorg_term *term)
{
	uint32_t offset;
	uint64_t *box = words < UINT32_MAX ? lorg_terms_take(terms, words + 1, &offset) : NULL;
	if (!box) {
		terms->failure = LORG_TERM_NO_SPACE;
		return NULL;
	}
	box[0] = lorg_head(kind, size);
	*term = lorg_boxed(offset, kind == LORG_KIND_ATOM ? LORG_TAG_ATOM : LORG_TAG_BOXED);
	return box + 1;
}

/* Text or bytes behind a head, the last word padded with zeros. */
static lorg_term box_of_bytes(struct lorg_terms *terms, enum lorg_kind kind, const void *bytes, size_t length)
{
	if (length > UINT32_MAX / 8)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	uint32_t words = (uint32_t)((length + 7) / 8);
	lorg_term term;
	uint64_t *room = lorg_box(terms, kind, (uint32_t)length, words, &term);
	if (!room)
		return LORG_NONE;
	if (words)
		room[words - 1] = 0;
	if (length)
		memcpy(room, bytes, length);
	return term;
}

lorg_term lorg_integer(struct lorg_terms *terms, int64_t value)
{
	if (lorg_fits_small(value))
		return lorg_small(value);
	uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
	return lorg_big(terms, value < 0, &magnitude, 1);
}

lorg_term lorg_unsigned(struct lorg_terms *terms, uint64_t value)
{
	return lorg_big(terms, false, &value, 1);
}

lorg_term lorg_big(struct lorg_terms *terms, bool negative, const uint64_t *magnitude, uint32_t words)
{
	while (words && !magnitude[words - 1])
		words--;
	if (lorg_magnitude_is_small(magnitude, words, negative))
		return lorg_small_of_magnitude(magnitude, words, negative);
	if (words > LORG_INTEGER_WORDS_MAX)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	/* The magnitude may stand in the scratch space, which may move: then it is found again by its place. */
	size_t place = ((uintptr_t)magnitude - (uintptr_t)terms->scratch) / 8;
	bool inside = terms->scratch && place < terms->scratch_words;
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_INTEGER, words, words, &term);
	if (!room)
		return LORG_NONE;
	memmove(room, inside ? terms->scratch + place : magnitude, (size_t)words * 8);
	if (negative)
		room[-1] |= LORG_HEAD_NEGATIVE;
	return term;
}

lorg_term lorg_float(struct lorg_terms *terms, double value)
{
	if (value - value != 0)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_FLOAT, 1, 1, &term);
	if (!room)
		return LORG_NONE;
	memcpy(room, &value, sizeof value);
	return term;
}

lorg_term lorg_atom(struct lorg_terms *terms, const char *text, size_t length)
{
	if (length <= LORG_ATOM_SHORT_MAX)
		return lorg_atom_short(text, length);
	if (length > LORG_ATOM_BYTES_MAX)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	return box_of_bytes(terms, LORG_KIND_ATOM, text, length);
}

lorg_term lorg_atom_text(struct lorg_terms *terms, const char *text)
{
	return lorg_atom(terms, text, strlen(text));
}

lorg_term lorg_bitstring_new(struct lorg_terms *terms, uint64_t bits, uint8_t **bytes)
{
	if (bits > UINT32_MAX)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	uint32_t words = (uint32_t)((bits + 63) / 64);
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_BITSTRING, (uint32_t)bits, words, &term);
	if (!room)
		return LORG_NONE;
	memset(room, 0, (size_t)words * 8);
	*bytes = (uint8_t *)room;
	return term;
}

lorg_term lorg_bitstring(struct lorg_terms *terms, const void *bytes, uint64_t bits)
{
	uint8_t *room;
	lorg_term term = lorg_bitstring_new(terms, bits, &room);
	if (term == LORG_NONE || !bits)
		return term;
	memcpy(room, bytes, (size_t)((bits + 7) / 8));
	if (bits % 8)
		room[bits / 8] &= (uint8_t)(0xff00 >> bits % 8);
	return term;
}

lorg_term lorg_binary(struct lorg_terms *terms, const void *bytes, size_t length)
{
	if (length > UINT32_MAX / 8)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	return lorg_bitstring(terms, bytes, (uint64_t)length * 8);
}

lorg_term lorg_cons(struct lorg_terms *terms, lorg_term head, lorg_term tail)
{
	uint32_t offset;
	if (head == LORG_NONE || tail == LORG_NONE)
		return LORG_NONE;
	uint64_t *cell = lorg_terms_take(terms, 2, &offset);
	if (!cell)
		return LORG_NONE;
	cell[0] = head;
	cell[1] = tail;
	return lorg_boxed(offset, LORG_TAG_CONS);
}

lorg_term lorg_string(struct lorg_terms *terms, const void *bytes, size_t length)
{
	uint32_t offset;
	if (!length)
		return lorg_nil();
	if (length > UINT32_MAX / 2)
		return lorg_term_failed(terms, LORG_TERM_NO_SPACE);
	uint64_t *cells = lorg_terms_take(terms, 2 * (uint32_t)length, &offset);
	if (!cells)
		return LORG_NONE;
	for (uint32_t i = 0; i < length; i++) {
		cells[2 * i] = lorg_small(((const uint8_t *)bytes)[i]);
		cells[2 * i + 1] = lorg_boxed(offset + 2 * i + 2, LORG_TAG_CONS);
	}
	cells[2 * length - 1] = lorg_nil();
	return lorg_boxed(offset, LORG_TAG_CONS);
}

lorg_term lorg_tuple_new(struct lorg_terms *terms, uint32_t arity)
{
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_TUPLE, arity, arity, &term);
	if (!room)
		return LORG_NONE;
	for (uint32_t i = 0; i < arity; i++)
		room[i] = lorg_nil();
	return term;
}

lorg_term lorg_tuple(struct lorg_terms *terms, const lorg_term *elements, uint32_t arity)
{
	lorg_term term;
	for (uint32_t i = 0; i < arity; i++)
		if (elements[i] == LORG_NONE)
			return LORG_NONE;
	uint64_t *room = lorg_box(terms, LORG_KIND_TUPLE, arity, arity, &term);
	if (!room)
		return LORG_NONE;
	memcpy(room, elements, (size_t)arity * 8);
	return term;
}

bool lorg_tuple_set(struct lorg_terms *terms, lorg_term tuple, uint32_t index, lorg_term element)
{
	uint32_t arity;
	if (!(tuple & LORG_TERM_SCRATCH) || !lorg_get_tuple(terms, tuple, &arity) || index >= arity)
		return false;
	terms->scratch[lorg_term_offset(tuple) + 1 + index] = element;
	return true;
}

lorg_term lorg_pid(struct lorg_terms *terms, uint32_t program, uint32_t thread, uint32_t process, lorg_term node)
{
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_PID, 4, 4, &term);
	if (!room)
		return LORG_NONE;
	room[0] = program;
	room[1] = thread;
	room[2] = process;
	room[3] = node;
	return term;
}

lorg_term lorg_port_term(struct lorg_terms *terms, uint32_t program, uint32_t descriptor, uint64_t generation, lorg_term node)
{
	lorg_term term;
	if (generation > LORG_PORT_TWO_PARTS)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	uint64_t *room = lorg_box(terms, LORG_KIND_PORT, 4, 4, &term);
	if (!room)
		return LORG_NONE;
	room[0] = program;
	room[1] = descriptor;
	room[2] = generation;
	room[3] = node;
	return term;
}

lorg_term lorg_reference(struct lorg_terms *terms, const uint32_t *numbers, uint32_t count)
{
	lorg_term term;
	if (!count || count > LORG_REFERENCE_MAX)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	uint64_t *room = lorg_box(terms, LORG_KIND_REFERENCE, count, count, &term);
	if (!room)
		return LORG_NONE;
	for (uint32_t i = 0; i < count; i++)
		room[i] = numbers[i];
	return term;
}

lorg_term lorg_fun(struct lorg_terms *terms, const char *text, size_t length)
{
	if (length > UINT16_MAX)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	return box_of_bytes(terms, LORG_KIND_FUN, text, length);
}

lorg_term lorg_fun_external(struct lorg_terms *terms, lorg_term module, lorg_term function, uint32_t arity)
{
	lorg_term term;
	if (!lorg_is_atom(module) || !lorg_is_atom(function))
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	uint64_t *room = lorg_box(terms, LORG_KIND_FUN_EXTERNAL, 3, 3, &term);
	if (!room)
		return LORG_NONE;
	room[0] = module;
	room[1] = function;
	room[2] = lorg_small(arity);
	return term;
}

lorg_term lorg_code_address(struct lorg_terms *terms, uint64_t address)
{
	lorg_term term;
	uint64_t *room = lorg_box(terms, LORG_KIND_CODE_ADDRESS, 1, 1, &term);
	if (!room)
		return LORG_NONE;
	room[0] = address;
	return term;
}

lorg_term lorg_code_line(struct lorg_terms *terms, uint64_t address)
{
	lorg_term term = lorg_code_address(terms, address);
	if (term != LORG_NONE)
		terms->scratch[lorg_term_offset(term)] |= LORG_HEAD_LINE;
	return term;
}

/* ---- looking --------------------------------------------------------------- */

/* Words behind the head of a boxed term, by its kind and size. */
static uint64_t words_behind(enum lorg_kind kind, uint32_t size)
{
	switch (kind) {
	case LORG_KIND_ATOM:
	case LORG_KIND_FUN:
		return ((uint64_t)size + 7) / 8;
	case LORG_KIND_BITSTRING:
		return ((uint64_t)size + 63) / 64;
	case LORG_KIND_MAP:
		return 2 * (uint64_t)size;
	default:
		return size;
	}
}

/* Kinds whose size is fixed. */
static bool size_is_right(enum lorg_kind kind, uint32_t size)
{
	switch (kind) {
	case LORG_KIND_FLOAT:
	case LORG_KIND_CODE_ADDRESS:
		return size == 1;
	case LORG_KIND_FUN_EXTERNAL:
		return size == 3;
	case LORG_KIND_PID:
	case LORG_KIND_PORT:
		return size == 4;
	case LORG_KIND_REFERENCE:
		return size >= 1 && size <= LORG_REFERENCE_MAX;
	case LORG_KIND_INTEGER:
		return size >= 1 && size <= LORG_INTEGER_WORDS_MAX;
	case LORG_KIND_ATOM:
		return size > LORG_ATOM_SHORT_MAX && size <= LORG_ATOM_BYTES_MAX;
	case LORG_KIND_FUN:
		return size <= UINT16_MAX;
	case LORG_KIND_TUPLE:
	case LORG_KIND_MAP:
	case LORG_KIND_BITSTRING:
		return true;
	default:
		return false;
	}
}

const uint64_t *lorg_unbox(const struct lorg_terms *terms, lorg_term term, struct lorg_box_head *head)
{
	const uint64_t *box = lorg_term_words(terms, term, 1);
	if (!box)
		return NULL;
	uint64_t word = __atomic_load_n(&box[0], __ATOMIC_RELAXED);
	head->kind = (enum lorg_kind)(word & 0xff);
	head->size = (uint32_t)(word >> 32);
	head->negative = word & LORG_HEAD_NEGATIVE;
	if (!size_is_right(head->kind, head->size) || (head->kind == LORG_KIND_ATOM) != (lorg_tag(term) == LORG_TAG_ATOM))
		return NULL;
	uint64_t words = words_behind(head->kind, head->size);
	if (words >= UINT32_MAX || !lorg_term_words(terms, term, (uint32_t)words + 1))
		return NULL;
	return box + 1;
}

enum lorg_kind lorg_term_kind(const struct lorg_terms *terms, lorg_term term)
{
	struct lorg_box_head head;
	switch (lorg_tag(term)) {
	case LORG_TAG_SMALL:
		return LORG_KIND_INTEGER;
	case LORG_TAG_ATOM_SHORT:
		return LORG_KIND_ATOM;
	case LORG_TAG_NIL:
		return term == lorg_nil() ? LORG_KIND_NIL : LORG_KIND_NONE;
	case LORG_TAG_CONS:
		return lorg_term_words(terms, term, 2) ? LORG_KIND_LIST : LORG_KIND_NONE;
	case LORG_TAG_ATOM:
	case LORG_TAG_BOXED:
		return lorg_unbox(terms, term, &head) ? head.kind : LORG_KIND_NONE;
	default:
		return LORG_KIND_NONE;
	}
}

/* What stands behind the head of a boxed term of this kind, or NULL. */
static const uint64_t *unbox_kind(const struct lorg_terms *terms, lorg_term term, enum lorg_kind kind, struct lorg_box_head *head)
{
	if (lorg_tag(term) != LORG_TAG_BOXED && lorg_tag(term) != LORG_TAG_ATOM)
		return NULL;
	const uint64_t *room = lorg_unbox(terms, term, head);
	return room && head->kind == kind ? room : NULL;
}

const uint64_t *lorg_get_magnitude(const struct lorg_terms *terms, lorg_term term, uint64_t *small, uint32_t *words, bool *negative)
{
	struct lorg_box_head head;
	if (lorg_is_small(term)) {
		int64_t value = lorg_small_value(term);
		*small = value < 0 ? -(uint64_t)value : (uint64_t)value;
		*negative = value < 0;
		*words = value != 0;
		return small;
	}
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_INTEGER, &head);
	if (!room)
		return NULL;
	while (head.size && !room[head.size - 1])
		head.size--;
	*words = head.size;
	*negative = head.size && head.negative;
	return room;
}

bool lorg_get_integer(const struct lorg_terms *terms, lorg_term term, int64_t *value)
{
	uint64_t small;
	uint32_t words;
	bool negative;
	const uint64_t *magnitude = lorg_get_magnitude(terms, term, &small, &words, &negative);
	if (!magnitude || words > 1)
		return false;
	uint64_t first = words ? magnitude[0] : 0;
	if (first > (uint64_t)INT64_MAX + negative)
		return false;
	*value = negative ? (int64_t)-first : (int64_t)first;
	return true;
}

bool lorg_get_unsigned(const struct lorg_terms *terms, lorg_term term, uint64_t *value)
{
	uint64_t small;
	uint32_t words;
	bool negative;
	const uint64_t *magnitude = lorg_get_magnitude(terms, term, &small, &words, &negative);
	if (!magnitude || words > 1 || negative)
		return false;
	*value = words ? magnitude[0] : 0;
	return true;
}

bool lorg_get_float(const struct lorg_terms *terms, lorg_term term, double *value)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_FLOAT, &head);
	if (!room)
		return false;
	memcpy(value, room, sizeof *value);
	return *value - *value == 0;
}

const char *lorg_get_atom(const struct lorg_terms *terms, lorg_term term, char *short_text, size_t *length)
{
	struct lorg_box_head head;
	if (lorg_tag(term) == LORG_TAG_ATOM_SHORT) {
		*length = term >> 4 & 0xf;
		if (*length > LORG_ATOM_SHORT_MAX)
			return NULL;
		for (int i = 0; i < LORG_ATOM_SHORT_MAX; i++)
			short_text[i] = (char)(term >> (8 * i + 8));
		return short_text;
	}
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_ATOM, &head);
	*length = room ? head.size : 0;
	return (const char *)room;
}

const uint8_t *lorg_get_bitstring(const struct lorg_terms *terms, lorg_term term, uint64_t *bits)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_BITSTRING, &head);
	*bits = room ? head.size : 0;
	return (const uint8_t *)room;
}

bool lorg_get_cons(const struct lorg_terms *terms, lorg_term term, lorg_term *head, lorg_term *tail)
{
	const uint64_t *cell = lorg_is_cons(term) ? lorg_term_words(terms, term, 2) : NULL;
	if (!cell)
		return false;
	*head = cell[0];
	*tail = cell[1];
	return true;
}

const lorg_term *lorg_get_tuple(const struct lorg_terms *terms, lorg_term term, uint32_t *arity)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_TUPLE, &head);
	*arity = room ? head.size : 0;
	return room;
}

const lorg_term *lorg_get_map(const struct lorg_terms *terms, lorg_term term, uint32_t *count, const lorg_term **values)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_MAP, &head);
	*count = room ? head.size : 0;
	if (values)
		*values = room ? room + head.size : NULL;
	return room;
}

bool lorg_get_pid(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[3], lorg_term *node)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_PID, &head);
	if (!room)
		return false;
	for (int i = 0; i < 3; i++)
		numbers[i] = (uint32_t)room[i];
	if (node)
		*node = room[3];
	return true;
}

bool lorg_get_port(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[3], int *parts, lorg_term *node)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_PORT, &head);
	if (!room)
		return false;
	for (int i = 0; i < 3; i++)
		numbers[i] = (uint32_t)room[i];
	if (parts)
		*parts = room[2] >= LORG_PORT_TWO_PARTS ? 2 : 3;
	if (node)
		*node = room[3];
	return true;
}

uint32_t lorg_get_reference(const struct lorg_terms *terms, lorg_term term, uint32_t numbers[LORG_REFERENCE_MAX])
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_REFERENCE, &head);
	if (!room)
		return 0;
	for (uint32_t i = 0; i < head.size; i++)
		numbers[i] = (uint32_t)room[i];
	return head.size;
}

const char *lorg_get_fun(const struct lorg_terms *terms, lorg_term term, size_t *length)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_FUN, &head);
	*length = room ? head.size : 0;
	return (const char *)room;
}

bool lorg_get_fun_external(const struct lorg_terms *terms, lorg_term term, lorg_term *module, lorg_term *function, uint32_t *arity)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_FUN_EXTERNAL, &head);
	if (!room || !lorg_is_atom(room[0]) || !lorg_is_atom(room[1]) || !lorg_is_small(room[2]))
		return false;
	*module = room[0];
	*function = room[1];
	*arity = (uint32_t)lorg_small_value(room[2]);
	return true;
}

bool lorg_get_code_address(const struct lorg_terms *terms, lorg_term term, uint64_t *address)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_CODE_ADDRESS, &head);
	if (!room)
		return false;
	*address = room[0];
	return true;
}

bool lorg_is_code_line(const struct lorg_terms *terms, lorg_term term)
{
	struct lorg_box_head head;
	const uint64_t *room = unbox_kind(terms, term, LORG_KIND_CODE_ADDRESS, &head);
	return room && (room[-1] & LORG_HEAD_LINE);
}

bool lorg_atom_is(const struct lorg_terms *terms, lorg_term atom, const char *text)
{
	char short_text[8];
	size_t length;
	const char *own = lorg_is_atom(atom) ? lorg_get_atom(terms, atom, short_text, &length) : NULL;
	return own && length == strlen(text) && memcmp(own, text, length) == 0;
}

int64_t lorg_list_length(struct lorg_terms *terms, lorg_term list)
{
	uint32_t left = lorg_cells_at_most(terms);
	int64_t length = 0;
	lorg_term head;
	for (; lorg_is_cons(list); length++) {
		if (!left-- || !lorg_get_cons(terms, list, &head, &list)) {
			terms->failure = LORG_TERM_BROKEN;
			return -1;
		}
		if (!lorg_terms_spend(terms, 1))
			return -1;
	}
	if (lorg_is_nil(list))
		return length;
	terms->failure = LORG_TERM_BAD_ARGUMENT;
	return -1;
}
