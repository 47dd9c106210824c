/* SPDX-License-Identifier: MIT */
/*
 * external.c: see external.h. Neither direction recurses: the writer keeps what is still to be written in the free
 * scratch memory; the reader makes each tuple, list or map at its first sight and keeps the way back to what it is part
 * of in the last place of it, which is filled last.
 */
#include "preload/term/external.h"

#include <string.h>

#include "preload/term/layout.h"

enum {
	BYTES_PER_STEP = 64,
	STRING_MAX = 65535,
	FRAME_WORDS = 3,
};

/* ---- writing ------------------------------------------------------------------- */

static uint8_t *room(struct lorg_external *out, uint64_t length)
{
	if (out->truncated || out->used > out->size || out->size - out->used < length) {
		out->truncated = true;
		return NULL;
	}
	uint8_t *to = out->bytes + out->used;
	out->used += (uint32_t)length;
	return to;
}

static uint8_t *write_number(uint8_t *to, uint64_t value, int bytes)
{
	for (int i = bytes; i--;)
		*to++ = (uint8_t)(value >> (8 * i));
	return to;
}

/* A tag and a number of `bytes` bytes, with room for `more` behind. */
static uint8_t *put_head(struct lorg_external *out, int tag, uint64_t number, int bytes, uint64_t more)
{
	uint8_t *to = room(out, 1 + (uint64_t)bytes + more);
	if (!to)
		return NULL;
	*to++ = (uint8_t)tag;
	return write_number(to, number, bytes);
}

static void put_bytes(struct lorg_external *out, int tag, uint64_t number, int bytes, const void *data, size_t length)
{
	uint8_t *to = put_head(out, tag, number, bytes, length);
	if (to && length)
		memcpy(to, data, length);
}

void lorg_put_big(struct lorg_external *out, bool negative, const uint64_t *magnitude, uint32_t words)
{
	while (words && !magnitude[words - 1])
		words--;
	if (words <= 1) {
		uint64_t value = words ? magnitude[0] : 0;
		if (!negative && value <= UINT8_MAX) {
			put_head(out, LORG_EXTERNAL_SMALL_INTEGER, value, 1, 0);
			return;
		}
		if (value <= (uint64_t)INT32_MAX + negative) {
			put_head(out, LORG_EXTERNAL_INTEGER, negative ? -value : value, 4, 0);
			return;
		}
	}
	uint64_t length = (uint64_t)words * 8;
	for (uint64_t top = magnitude[words - 1]; !(top >> 56); top <<= 8)
		length--;
	uint8_t *to = length <= UINT8_MAX ? put_head(out, LORG_EXTERNAL_SMALL_BIG, length, 1, 1 + length)
					  : put_head(out, LORG_EXTERNAL_LARGE_BIG, length, 4, 1 + length);
	if (!to)
		return;
	*to++ = negative;
	for (uint64_t i = 0; i < length; i++)
		*to++ = (uint8_t)(magnitude[i / 8] >> (8 * (i % 8)));
}

void lorg_put_integer(struct lorg_external *out, int64_t value)
{
	uint64_t magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
	lorg_put_big(out, value < 0, &magnitude, 1);
}

void lorg_put_unsigned(struct lorg_external *out, uint64_t value)
{
	lorg_put_big(out, false, &value, 1);
}

void lorg_put_float(struct lorg_external *out, double value)
{
	uint64_t bits;
	if (value != value) {
		lorg_put_atom(out, "nan", 3);
		return;
	}
	if (value - value != 0) {
		lorg_put_atom_text(out, value < 0 ? "-inf" : "inf");
		return;
	}
	memcpy(&bits, &value, sizeof bits);
	put_head(out, LORG_EXTERNAL_FLOAT, bits, 8, 0);
}

void lorg_put_atom(struct lorg_external *out, const char *text, size_t length)
{
	if (length > LORG_ATOM_BYTES_MAX)
		length = LORG_ATOM_BYTES_MAX;
	if (length <= UINT8_MAX)
		put_bytes(out, LORG_EXTERNAL_SMALL_ATOM, length, 1, text, length);
	else
		put_bytes(out, LORG_EXTERNAL_ATOM, length, 2, text, length);
}

void lorg_put_atom_text(struct lorg_external *out, const char *text)
{
	lorg_put_atom(out, text, strlen(text));
}

void lorg_put_boolean(struct lorg_external *out, bool value)
{
	if (value)
		lorg_put_atom(out, "true", 4);
	else
		lorg_put_atom(out, "false", 5);
}

static void put_cut(struct lorg_external *out, int tag, const void *bytes, size_t length, uint64_t true_length)
{
	uint8_t *to = put_head(out, tag, true_length, 8, 4 + (uint64_t)length);
	if (!to)
		return;
	to = write_number(to, length, 4);
	if (length)
		memcpy(to, bytes, length);
}

void lorg_put_string(struct lorg_external *out, const void *bytes, size_t length, uint64_t true_length)
{
	if (true_length < length)
		true_length = length;
	if (length > STRING_MAX)
		length = STRING_MAX;
	if (true_length > length)
		put_cut(out, LORG_EXTERNAL_CUT_STRING, bytes, length, true_length);
	else
		put_bytes(out, LORG_EXTERNAL_TEXT, length, 2, bytes, length);
}

void lorg_put_binary(struct lorg_external *out, const void *bytes, size_t length, uint64_t true_length)
{
	if (length > UINT32_MAX / 8)
		out->truncated = true;
	else if (true_length > length)
		put_cut(out, LORG_EXTERNAL_CUT_BINARY, bytes, length, true_length);
	else
		put_bytes(out, LORG_EXTERNAL_BINARY, length, 4, bytes, length);
}

void lorg_put_nil(struct lorg_external *out)
{
	put_head(out, LORG_EXTERNAL_NIL, 0, 0, 0);
}

void lorg_put_tuple_head(struct lorg_external *out, uint32_t arity)
{
	if (arity <= UINT8_MAX)
		put_head(out, LORG_EXTERNAL_SMALL_TUPLE, arity, 1, 0);
	else
		put_head(out, LORG_EXTERNAL_LARGE_TUPLE, arity, 4, 0);
}

void lorg_put_list_head(struct lorg_external *out, uint32_t count)
{
	put_head(out, LORG_EXTERNAL_LIST, count, 4, 0);
}

void lorg_put_map_head(struct lorg_external *out, uint32_t count)
{
	put_head(out, LORG_EXTERNAL_MAP, count, 4, 0);
}

/* What consists of several puts that make no sense one without the other: nothing of it is left when it does not fit. */
static void keep_whole(struct lorg_external *out, uint32_t start)
{
	if (out->truncated)
		out->used = start;
}

void lorg_put_named_tuple_head(struct lorg_external *out, const char *tag, size_t tag_length, uint32_t count)
{
	uint32_t start = out->used;
	put_head(out, LORG_EXTERNAL_NAMED_TUPLE, count, 4, 0);
	lorg_put_atom(out, tag, tag_length);
	keep_whole(out, start);
}

/* tag, node, then numbers of four bytes. */
static void put_numbered(struct lorg_external *out, int tag, const char *node, size_t node_length, const uint32_t *numbers, int count)
{
	uint32_t start = out->used;
	put_head(out, tag, 0, 0, 0);
	lorg_put_atom(out, node, node_length);
	uint8_t *to = room(out, 4 * (uint64_t)count);
	for (int i = 0; to && i < count; i++)
		to = write_number(to, numbers[i], 4);
	keep_whole(out, start);
}

static void put_pid_of_node(struct lorg_external *out, const uint32_t parts[3], const char *node, size_t node_length)
{
	uint32_t numbers[3] = {parts[1], parts[2], parts[0]};
	put_numbered(out, LORG_EXTERNAL_PID, node, node_length, numbers, 3);
}

static void put_port_of_node(struct lorg_external *out, const uint32_t parts[3], int count, const char *node, size_t node_length)
{
	uint32_t three[3] = {parts[2], parts[1], parts[0]}, two[2] = {parts[1], parts[0]};
	if (count == 3)
		put_numbered(out, LORG_EXTERNAL_V4_PORT, node, node_length, three, 3);
	else
		put_numbered(out, LORG_EXTERNAL_PORT, node, node_length, two, 2);
}

void lorg_put_pid(struct lorg_external *out, uint32_t program, uint32_t thread, uint32_t process)
{
	uint32_t parts[3] = {program, thread, process};
	put_pid_of_node(out, parts, "", 0);
}

void lorg_put_port(struct lorg_external *out, uint32_t program, uint32_t descriptor, uint32_t generation)
{
	uint32_t parts[3] = {program, descriptor, generation};
	put_port_of_node(out, parts, 3, "", 0);
}

void lorg_put_pointer(struct lorg_external *out, uint64_t address)
{
	put_head(out, LORG_EXTERNAL_POINTER, address, 8, 0);
}

void lorg_put_pointer_to(struct lorg_external *out, uint64_t address)
{
	put_head(out, LORG_EXTERNAL_POINTER_TO, address, 8, 0);
}

void lorg_put_pointer_unreadable(struct lorg_external *out, uint64_t address)
{
	put_head(out, LORG_EXTERNAL_POINTER_UNREADABLE, address, 8, 0);
}

void lorg_put_code_address(struct lorg_external *out, uint64_t address)
{
	put_head(out, LORG_EXTERNAL_CODE_ADDRESS, address, 8, 0);
}

void lorg_put_code_line(struct lorg_external *out, uint64_t address)
{
	put_head(out, LORG_EXTERNAL_CODE_LINE, address, 8, 0);
}

void lorg_put_character(struct lorg_external *out, uint32_t code)
{
	put_head(out, LORG_EXTERNAL_CHARACTER, code, 4, 0);
}

void lorg_put_flags(struct lorg_external *out, uint64_t bits, const char *names, size_t length)
{
	if (length > STRING_MAX)
		length = STRING_MAX;
	uint8_t *to = put_head(out, LORG_EXTERNAL_FLAGS, bits, 8, 2 + (uint64_t)length);
	if (!to)
		return;
	to = write_number(to, length, 2);
	memcpy(to, names, length);
}

/* ---- terms: the walk ------------------------------------------------------------- */

/* What is still to be written of a term with parts: three words of scratch memory. */
enum frame_kind {
	FRAME_RUN,  /* so many words from a place on */
	FRAME_LIST, /* so many cells from a cell on, then the tail */
	FRAME_MAP,  /* keys and values by turns */
};

static bool push(struct lorg_terms *terms, lorg_term at, enum frame_kind kind, uint32_t count, uint32_t left)
{
	uint32_t offset;
	if (!left && kind != FRAME_LIST)
		return true;
	uint64_t *frame = lorg_terms_take(terms, FRAME_WORDS, &offset);
	if (!frame)
		return false;
	frame[0] = at;
	frame[1] = (uint64_t)left << 32 | count;
	frame[2] = kind;
	return true;
}

static inline lorg_term moved(lorg_term at, uint32_t words)
{
	return at + ((uint64_t)words << 32);
}

/* The next term of the last frame, LORG_NONE where it is broken. */
static lorg_term next_part(struct lorg_terms *terms)
{
	uint64_t *frame = terms->scratch + terms->used - FRAME_WORDS;
	lorg_term at = frame[0], head, tail;
	uint32_t left = (uint32_t)(frame[1] >> 32), count = (uint32_t)frame[1], place;
	const uint64_t *word;
	switch (frame[2]) {
	case FRAME_LIST:
		if (!left) {
			terms->used -= FRAME_WORDS;
			return at;
		}
		if (!lorg_get_cons(terms, at, &head, &tail))
			return LORG_NONE;
		frame[0] = tail;
		frame[1] -= UINT64_C(1) << 32;
		return head;
	case FRAME_MAP:
		place = 2 * count - left;
		word = lorg_term_words(terms, moved(at, place / 2 + place % 2 * count), 1);
		break;
	default:
		word = lorg_term_words(terms, moved(at, count - left), 1);
		break;
	}
	frame[1] -= UINT64_C(1) << 32;
	if (left == 1)
		terms->used -= FRAME_WORDS;
	return word ? *word : LORG_NONE;
}

/* How many cells a list has until its tail, and whether it is a string of bytes. -1: broken or no steps. */
static int64_t count_cells(struct lorg_terms *terms, lorg_term list, bool *is_string)
{
	uint32_t limit = lorg_cells_at_most(terms);
	int64_t count = 0;
	*is_string = true;
	for (lorg_term head; lorg_is_cons(list); count++) {
		if (count >= limit || !lorg_get_cons(terms, list, &head, &list)) {
			terms->failure = LORG_TERM_BROKEN;
			return -1;
		}
		if (!lorg_terms_spend(terms, 1))
			return -1;
		if (!lorg_is_small(head) || lorg_small_value(head) < 0 || lorg_small_value(head) > UINT8_MAX)
			*is_string = false;
	}
	*is_string = *is_string && lorg_is_nil(list) && count <= STRING_MAX;
	return count;
}

static bool put_string_of_list(struct lorg_external *out, struct lorg_terms *terms, lorg_term list, uint32_t count)
{
	lorg_term head;
	uint8_t *to = put_head(out, LORG_EXTERNAL_STRING, count, 2, count);
	for (uint32_t i = 0; to && i < count; i++) {
		if (!lorg_get_cons(terms, list, &head, &list))
			return false;
		*to++ = (uint8_t)lorg_small_value(head);
	}
	return to != NULL;
}

static bool put_list(struct lorg_external *out, struct lorg_terms *terms, lorg_term list)
{
	bool is_string;
	int64_t count = count_cells(terms, list, &is_string);
	if (count < 0)
		return false;
	if (is_string)
		return put_string_of_list(out, terms, list, (uint32_t)count);
	lorg_put_list_head(out, (uint32_t)count);
	return push(terms, list, FRAME_LIST, (uint32_t)count, (uint32_t)count);
}

static bool put_atom_term(struct lorg_external *out, struct lorg_terms *terms, lorg_term atom)
{
	char short_text[8];
	size_t length = 0;
	const char *text = lorg_is_atom(atom) ? lorg_get_atom(terms, atom, short_text, &length) : NULL;
	if (text)
		lorg_put_atom(out, text, length);
	return text != NULL;
}

static bool put_bitstring(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint64_t bits;
	const uint8_t *bytes = lorg_get_bitstring(terms, term, &bits);
	uint32_t length = (uint32_t)((bits + 7) / 8);
	if (!bytes || !lorg_terms_spend(terms, length / BYTES_PER_STEP))
		return false;
	if (bits % 8 == 0) {
		lorg_put_binary(out, bytes, length, 0);
		return true;
	}
	uint8_t *to = put_head(out, LORG_EXTERNAL_BIT_BINARY, length, 4, 1 + (uint64_t)length);
	if (!to)
		return true;
	*to++ = bits % 8;
	memcpy(to, bytes, length);
	return true;
}

/* Text of a node; the own one is ''. */
static const char *node_text(struct lorg_terms *terms, lorg_term node, char *short_text, size_t *length)
{
	*length = 0;
	if (node == LORG_NONE)
		return "";
	return lorg_is_atom(node) ? lorg_get_atom(terms, node, short_text, length) : NULL;
}

static bool put_pid_or_port(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint32_t parts[3];
	int count;
	char short_text[8];
	size_t length;
	lorg_term node;
	bool is_pid = lorg_get_pid(terms, term, parts, &node);
	if (!is_pid && !lorg_get_port(terms, term, parts, &count, &node))
		return false;
	const char *text = node_text(terms, node, short_text, &length);
	if (!text)
		return false;
	if (is_pid)
		put_pid_of_node(out, parts, text, length);
	else
		put_port_of_node(out, parts, count, text, length);
	return true;
}

static bool put_reference(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint32_t numbers[LORG_REFERENCE_MAX], start = out->used;
	uint32_t count = lorg_get_reference(terms, term, numbers);
	if (!count)
		return false;
	put_head(out, LORG_EXTERNAL_REFERENCE, count - 1, 2, 0);
	lorg_put_atom(out, "", 0);
	uint8_t *to = room(out, 4 * (uint64_t)count);
	if (to)
		to = write_number(to, numbers[0], 4);
	for (uint32_t i = count; to && i-- > 1;)
		to = write_number(to, numbers[i], 4);
	keep_whole(out, start);
	return true;
}

static bool put_fun(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	lorg_term module, function;
	uint32_t arity;
	size_t length;
	const char *text = lorg_get_fun(terms, term, &length);
	if (text) {
		put_bytes(out, LORG_EXTERNAL_FUN_TEXT, length, 2, text, length);
		return true;
	}
	if (!lorg_get_fun_external(terms, term, &module, &function, &arity))
		return false;
	put_head(out, LORG_EXTERNAL_EXPORT, 0, 0, 0);
	bool good = put_atom_term(out, terms, module) && put_atom_term(out, terms, function);
	lorg_put_unsigned(out, arity);
	return good;
}

static bool put_integer_term(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint64_t small;
	uint32_t words;
	bool negative;
	const uint64_t *magnitude = lorg_get_magnitude(terms, term, &small, &words, &negative);
	if (!magnitude || !lorg_terms_spend(terms, words))
		return false;
	lorg_put_big(out, negative, magnitude, words);
	return true;
}

static bool put_tuple(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint32_t arity;
	if (!lorg_get_tuple(terms, term, &arity))
		return false;
	lorg_put_tuple_head(out, arity);
	return push(terms, moved(term, 1), FRAME_RUN, arity, arity);
}

static bool put_map(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint32_t count;
	if (!lorg_get_map(terms, term, &count, NULL))
		return false;
	lorg_put_map_head(out, count);
	return push(terms, moved(term, 1), FRAME_MAP, count, 2 * count);
}

/* One term; of one with parts the head, and a frame for the rest. */
static bool put_one(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	double value;
	uint64_t address;
	switch (lorg_term_kind(terms, term)) {
	case LORG_KIND_INTEGER:
		return put_integer_term(out, terms, term);
	case LORG_KIND_FLOAT:
		if (lorg_get_float(terms, term, &value))
			lorg_put_float(out, value);
		return lorg_get_float(terms, term, &value);
	case LORG_KIND_ATOM:
		return put_atom_term(out, terms, term);
	case LORG_KIND_REFERENCE:
		return put_reference(out, terms, term);
	case LORG_KIND_FUN:
	case LORG_KIND_FUN_EXTERNAL:
		return put_fun(out, terms, term);
	case LORG_KIND_PORT:
	case LORG_KIND_PID:
		return put_pid_or_port(out, terms, term);
	case LORG_KIND_CODE_ADDRESS:
		if (!lorg_get_code_address(terms, term, &address))
			return false;
		if (lorg_is_code_line(terms, term))
			lorg_put_code_line(out, address);
		else
			lorg_put_code_address(out, address);
		return true;
	case LORG_KIND_TUPLE:
		return put_tuple(out, terms, term);
	case LORG_KIND_MAP:
		return put_map(out, terms, term);
	case LORG_KIND_NIL:
		lorg_put_nil(out);
		return true;
	case LORG_KIND_LIST:
		return put_list(out, terms, term);
	case LORG_KIND_BITSTRING:
		return put_bitstring(out, terms, term);
	default:
		return false;
	}
}

bool lorg_put_term(struct lorg_external *out, struct lorg_terms *terms, lorg_term term)
{
	uint32_t bottom = terms->used, start = out->used;
	terms->failure = LORG_TERM_FINE;
	bool good;
	while ((good = lorg_terms_spend(terms, 1) && put_one(out, terms, term)) && !out->truncated && terms->used > bottom)
		term = next_part(terms);
	if (!good && !out->truncated && terms->failure == LORG_TERM_FINE)
		terms->failure = LORG_TERM_BROKEN;
	terms->used = bottom;
	if (good && !out->truncated)
		return true;
	out->used = start;
	return false;
}

/* ---- reading --------------------------------------------------------------------- */

struct input {
	const uint8_t *at, *end;
	uint64_t parts; /* how many parts of terms there can still be: none is shorter than a byte */
	bool bad;
};

static size_t left_in(const struct input *in)
{
	return (size_t)(in->end - in->at);
}

static uint64_t take_number(struct input *in, int bytes)
{
	uint64_t value = 0;
	if (in->bad || left_in(in) < (size_t)bytes) {
		in->bad = true;
		return 0;
	}
	while (bytes--)
		value = value << 8 | *in->at++;
	return value;
}

static const uint8_t *take_bytes(struct input *in, uint64_t length)
{
	const uint8_t *from = in->at;
	if (in->bad || left_in(in) < length) {
		in->bad = true;
		return NULL;
	}
	in->at += length;
	return from;
}

static lorg_term malformed(struct lorg_terms *terms)
{
	return lorg_term_failed(terms, LORG_TERM_BROKEN);
}

/* The text of an atom, NULL if none stands here. */
static const char *take_atom(struct input *in, size_t *length)
{
	uint64_t tag = take_number(in, 1);
	if (tag != LORG_EXTERNAL_ATOM && tag != LORG_EXTERNAL_SMALL_ATOM)
		in->bad = true;
	*length = (size_t)take_number(in, tag == LORG_EXTERNAL_ATOM ? 2 : 1);
	return *length <= LORG_ATOM_BYTES_MAX ? (const char *)take_bytes(in, *length) : NULL;
}

static lorg_term take_atom_term(struct lorg_terms *terms, struct input *in)
{
	size_t length;
	const char *text = take_atom(in, &length);
	return text ? lorg_atom(terms, text, length) : malformed(terms);
}

/* A node. False if none stands here; the own one is LORG_NONE. */
static bool take_node(struct lorg_terms *terms, struct input *in, lorg_term *node)
{
	size_t length;
	const char *text = take_atom(in, &length);
	*node = text && length ? lorg_atom(terms, text, length) : LORG_NONE;
	if (!text)
		malformed(terms);
	return text && (!length || *node != LORG_NONE);
}

static lorg_term take_big(struct lorg_terms *terms, struct input *in, uint64_t length)
{
	bool negative = take_number(in, 1) & 1;
	const uint8_t *bytes = take_bytes(in, length);
	uint32_t box;
	uint64_t words = (length + 7) / 8;
	if (!bytes)
		return malformed(terms);
	if (!lorg_integer_begin(terms, words, &box))
		return LORG_NONE;
	uint64_t *magnitude = terms->scratch + box + 1;
	memset(magnitude, 0, (size_t)words * 8);
	for (uint64_t i = 0; i < length; i++)
		magnitude[i / 8] |= (uint64_t)bytes[i] << (8 * (i % 8));
	return lorg_integer_finish(terms, box, words, negative);
}

static lorg_term take_float(struct lorg_terms *terms, struct input *in)
{
	uint64_t bits = take_number(in, 8);
	double value;
	memcpy(&value, &bits, sizeof value);
	return in->bad || value - value != 0 ? malformed(terms) : lorg_float(terms, value);
}

static lorg_term take_pid(struct lorg_terms *terms, struct input *in)
{
	lorg_term node;
	if (!take_node(terms, in, &node))
		return LORG_NONE;
	uint32_t thread = (uint32_t)take_number(in, 4), process = (uint32_t)take_number(in, 4), program = (uint32_t)take_number(in, 4);
	return in->bad ? malformed(terms) : lorg_pid(terms, program, thread, process, node);
}

static lorg_term take_port(struct lorg_terms *terms, struct input *in, bool with_generation)
{
	lorg_term node;
	if (!take_node(terms, in, &node))
		return LORG_NONE;
	uint64_t generation = with_generation ? take_number(in, 4) : LORG_PORT_TWO_PARTS;
	uint32_t descriptor = (uint32_t)take_number(in, 4), program = (uint32_t)take_number(in, 4);
	return in->bad ? malformed(terms) : lorg_port_term(terms, program, descriptor, generation, node);
}

static lorg_term take_reference(struct lorg_terms *terms, struct input *in)
{
	uint32_t numbers[LORG_REFERENCE_MAX];
	uint32_t count = (uint32_t)take_number(in, 2) + 1;
	size_t length;
	if (count > LORG_REFERENCE_MAX || !take_atom(in, &length))
		return malformed(terms);
	numbers[0] = (uint32_t)take_number(in, 4);
	for (uint32_t i = count; i-- > 1;)
		numbers[i] = (uint32_t)take_number(in, 4);
	return in->bad ? malformed(terms) : lorg_reference(terms, numbers, count);
}

static lorg_term take_export(struct lorg_terms *terms, struct input *in)
{
	lorg_term module = take_atom_term(terms, in);
	lorg_term function = module ? take_atom_term(terms, in) : LORG_NONE;
	if (!function)
		return LORG_NONE;
	uint64_t tag = take_number(in, 1);
	uint32_t arity = (uint32_t)take_number(in, tag == LORG_EXTERNAL_INTEGER ? 4 : 1);
	if (in->bad || (tag != LORG_EXTERNAL_SMALL_INTEGER && tag != LORG_EXTERNAL_INTEGER))
		return malformed(terms);
	return lorg_fun_external(terms, module, function, arity);
}

/* {cut, Beginning, TrueLength} */
static lorg_term take_cut(struct lorg_terms *terms, struct input *in, bool is_string)
{
	uint64_t true_length = take_number(in, 8);
	uint64_t length = take_number(in, 4);
	const uint8_t *bytes = take_bytes(in, length);
	if (!bytes)
		return malformed(terms);
	lorg_term parts[3] = {lorg_atom_short("cut", 3),
		is_string ? lorg_string(terms, bytes, length) : lorg_binary(terms, bytes, length), lorg_unsigned(terms, true_length)};
	return lorg_tuple(terms, parts, 3);
}

static lorg_term take_bit_binary(struct lorg_terms *terms, struct input *in)
{
	uint64_t length = take_number(in, 4), bits = take_number(in, 1);
	const uint8_t *bytes = take_bytes(in, length);
	if (!bytes || bits < 1 || bits > 8 || !length)
		return malformed(terms);
	return lorg_bitstring(terms, bytes, (length - 1) * 8 + bits);
}

static lorg_term take_string(struct lorg_terms *terms, struct input *in)
{
	uint64_t length = take_number(in, 2);
	const uint8_t *bytes = take_bytes(in, length);
	return bytes ? lorg_string(terms, bytes, length) : malformed(terms);
}

static lorg_term take_binary(struct lorg_terms *terms, struct input *in)
{
	uint64_t length = take_number(in, 4);
	const uint8_t *bytes = take_bytes(in, length);
	return bytes ? lorg_binary(terms, bytes, length) : malformed(terms);
}

static lorg_term take_fun_text(struct lorg_terms *terms, struct input *in)
{
	uint64_t length = take_number(in, 2);
	const uint8_t *bytes = take_bytes(in, length);
	return bytes ? lorg_fun(terms, (const char *)bytes, length) : malformed(terms);
}

/* Terms without parts; LORG_NONE without a failure: `tag` is of one with parts. */
static lorg_term take_leaf(struct lorg_terms *terms, struct input *in, int tag)
{
	uint64_t number;
	switch (tag) {
	case LORG_EXTERNAL_SMALL_INTEGER:
		number = take_number(in, 1);
		return in->bad ? malformed(terms) : lorg_small((int64_t)number);
	case LORG_EXTERNAL_INTEGER:
		number = take_number(in, 4);
		return in->bad ? malformed(terms) : lorg_small((int32_t)number);
	case LORG_EXTERNAL_CHARACTER:
		number = take_number(in, 4);
		return in->bad ? malformed(terms) : lorg_small((int64_t)number);
	case LORG_EXTERNAL_POINTER:
	case LORG_EXTERNAL_POINTER_UNREADABLE:
		number = take_number(in, 8);
		return in->bad ? malformed(terms) : lorg_unsigned(terms, number);
	case LORG_EXTERNAL_FLAGS:
		number = take_number(in, 8);
		take_bytes(in, take_number(in, 2));
		return in->bad ? malformed(terms) : lorg_unsigned(terms, number);
	case LORG_EXTERNAL_CODE_ADDRESS:
		number = take_number(in, 8);
		return in->bad ? malformed(terms) : lorg_code_address(terms, number);
	case LORG_EXTERNAL_CODE_LINE:
		number = take_number(in, 8);
		return in->bad ? malformed(terms) : lorg_code_line(terms, number);
	case LORG_EXTERNAL_FLOAT:
		return take_float(terms, in);
	case LORG_EXTERNAL_ATOM:
	case LORG_EXTERNAL_SMALL_ATOM:
		in->at--;
		return take_atom_term(terms, in);
	case LORG_EXTERNAL_SMALL_BIG:
		return take_big(terms, in, take_number(in, 1));
	case LORG_EXTERNAL_LARGE_BIG:
		return take_big(terms, in, take_number(in, 4));
	case LORG_EXTERNAL_NIL:
		return lorg_nil();
	case LORG_EXTERNAL_STRING:
	case LORG_EXTERNAL_TEXT:
		return take_string(terms, in);
	case LORG_EXTERNAL_BINARY:
		return take_binary(terms, in);
	case LORG_EXTERNAL_BIT_BINARY:
		return take_bit_binary(terms, in);
	case LORG_EXTERNAL_PID:
		return take_pid(terms, in);
	case LORG_EXTERNAL_PORT:
		return take_port(terms, in, false);
	case LORG_EXTERNAL_V4_PORT:
		return take_port(terms, in, true);
	case LORG_EXTERNAL_REFERENCE:
		return take_reference(terms, in);
	case LORG_EXTERNAL_EXPORT:
		return take_export(terms, in);
	case LORG_EXTERNAL_CUT_STRING:
		return take_cut(terms, in, true);
	case LORG_EXTERNAL_CUT_BINARY:
		return take_cut(terms, in, false);
	case LORG_EXTERNAL_FUN_TEXT:
		return take_fun_text(terms, in);
	default:
		return LORG_NONE;
	}
}

/*
 * A term whose parts are being read: a head, then its places. Tuples are what they will be; the cells of a list stand
 * behind a head that is only used here; the pairs of a map and the number of a pointer are copied when all is there.
 */
enum {
	BUILD_NAMED = 0x200,   /* in the head of a tuple: a name stands before each element but the first */
	BUILD_POINTER = 0xff,  /* kind: two places, the pointer and what it points to */
};

#define NOTHING UINT32_MAX /* no parent */

struct building {
	uint32_t box;    /* offset of the head, or NOTHING */
	uint32_t filled; /* places that are filled */
};

static uint32_t places_of(uint64_t head)
{
	uint32_t size = (uint32_t)(head >> 32);
	switch (head & 0xff) {
	case LORG_KIND_LIST:
		return size + 1;
	case LORG_KIND_MAP:
		return 2 * size;
	default:
		return size;
	}
}

/* Offset of a place: of a list, the heads of its cells, then the last tail. */
static uint32_t place_at(uint64_t head, uint32_t box, uint32_t index)
{
	uint32_t size = (uint32_t)(head >> 32);
	if ((head & 0xff) != LORG_KIND_LIST)
		return box + 1 + index;
	return index < size ? box + 1 + 2 * index : box + 2 * size;
}

/* Begins a term with parts inside `parent`. False without room. */
static bool open_box(struct lorg_terms *terms, uint64_t head, uint32_t words, struct building *building)
{
	uint32_t box;
	uint64_t *to = lorg_terms_take(terms, words + 1, &box);
	if (!to)
		return false;
	for (uint32_t i = 0; i < words; i++)
		to[1 + i] = lorg_nil();
	to[0] = head;
	if ((head & 0xff) == LORG_KIND_LIST)
		for (uint32_t i = 0; i + 2 < words; i += 2)
			to[2 + i] = lorg_boxed(box + 1 + i + 2, LORG_TAG_CONS);
	terms->scratch[place_at(head, box, places_of(head) - 1)] = (uint64_t)building->box << 32 | building->filled;
	building->box = box;
	building->filled = 0;
	return true;
}

/* That many parts are announced. More, with all announced before, than there were bytes is no reason to take room. */
static bool expect_parts(struct lorg_terms *terms, struct input *in, uint64_t parts)
{
	if (in->bad || parts > in->parts) {
		malformed(terms);
		return false;
	}
	in->parts -= parts;
	return true;
}

static bool open_counted(struct lorg_terms *terms, struct input *in, enum lorg_kind kind, uint64_t count, uint32_t words_each,
	struct building *building)
{
	if (count > INT32_MAX / 4)
		in->bad = true;
	if (!expect_parts(terms, in, kind == LORG_KIND_MAP ? 2 * count : count))
		return false;
	return open_box(terms, lorg_head(kind, (uint32_t)count), (uint32_t)count * words_each, building);
}

static bool open_named_tuple(struct lorg_terms *terms, struct input *in, struct building *building)
{
	uint64_t count = take_number(in, 4);
	lorg_term tag = take_atom_term(terms, in);
	if (tag == LORG_NONE)
		return false;
	if (count > INT32_MAX / 4)
		in->bad = true;
	if (!expect_parts(terms, in, count))
		return false;
	uint32_t size = (uint32_t)count + 1;
	if (!open_box(terms, lorg_head(LORG_KIND_TUPLE, size) | BUILD_NAMED, size, building))
		return false;
	/* Of a struct without members the only place keeps the way back until it is done. */
	if (size > 1)
		terms->scratch[building->box + 1] = tag;
	building->filled = 1;
	return true;
}

static bool open_pointer(struct lorg_terms *terms, struct input *in, struct building *building)
{
	uint64_t address = take_number(in, 8);
	lorg_term pointer = in->bad ? malformed(terms) : lorg_unsigned(terms, address);
	if (pointer == LORG_NONE || !open_box(terms, (uint64_t)2 << 32 | BUILD_POINTER, 2, building))
		return false;
	terms->scratch[building->box + 1] = pointer;
	building->filled = 1;
	return true;
}

/* A term with parts. Empty ones are complete at once: *term. */
static bool open_term(struct lorg_terms *terms, struct input *in, int tag, struct building *building, lorg_term *term)
{
	uint64_t count;
	*term = LORG_NONE;
	switch (tag) {
	case LORG_EXTERNAL_SMALL_TUPLE:
	case LORG_EXTERNAL_LARGE_TUPLE:
		count = take_number(in, tag == LORG_EXTERNAL_SMALL_TUPLE ? 1 : 4);
		if (!in->bad && !count)
			return (*term = lorg_tuple_new(terms, 0)) != LORG_NONE;
		return open_counted(terms, in, LORG_KIND_TUPLE, count, 1, building);
	case LORG_EXTERNAL_LIST:
		count = take_number(in, 4);
		if (!count)
			in->bad = true;
		return open_counted(terms, in, LORG_KIND_LIST, count, 2, building);
	case LORG_EXTERNAL_MAP:
		count = take_number(in, 4);
		if (!in->bad && !count)
			return (*term = lorg_map(terms, NULL, 0)) != LORG_NONE;
		return open_counted(terms, in, LORG_KIND_MAP, count, 2, building);
	case LORG_EXTERNAL_NAMED_TUPLE:
		count = left_in(in) >= 4 ? 1 : 0;
		if (!count || (in->at[0] | in->at[1] | in->at[2] | in->at[3]))
			return open_named_tuple(terms, in, building);
		take_number(in, 4);
		*term = take_atom_term(terms, in);
		*term = *term ? lorg_tuple(terms, term, 1) : LORG_NONE;
		return *term != LORG_NONE;
	case LORG_EXTERNAL_POINTER_TO:
		return open_pointer(terms, in, building);
	default:
		malformed(terms);
		return false;
	}
}

/*
 * What stands in the scratch memory may have been overwritten since it was put there: a place outside of what is in use is
 * none.
 */
static bool is_inside(const struct lorg_terms *terms, uint64_t at, uint64_t words)
{
	return at <= terms->used && terms->used - at >= words;
}

/* All places are filled: the finished term. */
static lorg_term close_box(struct lorg_terms *terms, uint32_t box, uint64_t head)
{
	uint32_t pairs, count = (uint32_t)(head >> 32);
	uint64_t *copy;
	switch (head & 0xff) {
	case LORG_KIND_LIST:
		return lorg_boxed(box + 1, LORG_TAG_CONS);
	case BUILD_POINTER:
		return terms->scratch[box + 1];
	case LORG_KIND_MAP:
		if (!is_inside(terms, box + 1ul, 2 * (uint64_t)count))
			return malformed(terms);
		copy = lorg_terms_take(terms, 2 * count, &pairs);
		if (!copy)
			return LORG_NONE;
		memcpy(copy, terms->scratch + box + 1, (size_t)count * 16);
		return lorg_map_of_last(terms, count);
	default:
		terms->scratch[box] &= ~(uint64_t)BUILD_NAMED;
		return lorg_boxed(box, LORG_TAG_BOXED);
	}
}

/* Puts a term into what it is part of, and that, when it is complete, into what that is part of. LORG_NONE on failure. */
static lorg_term fill_in(struct lorg_terms *terms, struct building *building, lorg_term term)
{
	while (term != LORG_NONE && building->box != NOTHING) {
		uint64_t head = terms->scratch[building->box];
		uint32_t place = place_at(head, building->box, building->filled++);
		bool complete = building->filled == places_of(head);
		if (!is_inside(terms, place, 1))
			return malformed(terms);
		uint64_t back = terms->scratch[place];
		terms->scratch[place] = term;
		if (!complete)
			return term;
		term = close_box(terms, building->box, head);
		building->box = (uint32_t)(back >> 32);
		building->filled = (uint32_t)back;
		if (building->box != NOTHING && !is_inside(terms, building->box, 2))
			return malformed(terms);
	}
	return term;
}

/* In a tuple with names one stands before each element. */
static bool skip_name(struct lorg_terms *terms, struct input *in, const struct building *building)
{
	size_t length;
	if (building->box == NOTHING || !(terms->scratch[building->box] & BUILD_NAMED) || take_atom(in, &length))
		return true;
	malformed(terms);
	return false;
}

static lorg_term take_term(struct lorg_terms *terms, struct input *in)
{
	struct building building = {NOTHING, 0};
	lorg_term term;
	do {
		if (!lorg_terms_spend(terms, 1) || !skip_name(terms, in, &building))
			return LORG_NONE;
		int tag = (int)take_number(in, 1);
		if (in->bad)
			return malformed(terms);
		terms->failure = LORG_TERM_FINE;
		term = take_leaf(terms, in, tag);
		if (term == LORG_NONE && (terms->failure != LORG_TERM_FINE || !open_term(terms, in, tag, &building, &term)))
			return LORG_NONE;
		if (term != LORG_NONE && (term = fill_in(terms, &building, term)) == LORG_NONE)
			return LORG_NONE;
	} while (building.box != NOTHING);
	return term;
}

lorg_term lorg_get_term(struct lorg_terms *terms, const uint8_t **at, const uint8_t *end)
{
	struct input in = {*at, end, (uint64_t)(end - *at), false};
	uint32_t bottom = terms->used;
	lorg_term term = take_term(terms, &in);
	*at = in.at;
	if (term == LORG_NONE)
		terms->used = bottom;
	return term;
}
