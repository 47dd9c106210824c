/* SPDX-License-Identifier: MIT */
/*
 * reader.c: see reader.h. A reader by recursive descent: the depth is bounded by LORG_NESTING_MAX. Parts of a term that is
 * being read are kept on a stack until their number is known.
 */
#include "collector/term/reader.h"

#include <gmp.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/character.h"
#include "preload/term/layout.h"

/* 1 GiB. */
#define SCRATCH_WORDS_MAX (UINT32_C(1) << 27)

static bool grow(struct lorg_terms *terms, uint32_t words)
{
	uint64_t wanted = (uint64_t)terms->used + words;
	uint64_t size = terms->scratch_words < 128 ? 128 : terms->scratch_words;
	while (size < wanted)
		size *= 2;
	if (size > SCRATCH_WORDS_MAX)
		return false;
	uint64_t *scratch = realloc(terms->scratch, size * sizeof *scratch);
	if (!scratch)
		return false;
	terms->scratch = scratch;
	terms->scratch_words = (uint32_t)size;
	return true;
}

void lorg_terms_open(struct lorg_terms *terms)
{
	*terms = (struct lorg_terms){.steps = LORG_STEPS_ENDLESS, .grow = grow};
}

void lorg_terms_close(struct lorg_terms *terms)
{
	free(terms->scratch);
	*terms = (struct lorg_terms){0};
}

/* Of a binary, and of one part of it: a few characters ask for any number of bits. */
#define BITS_MAX (UINT32_C(1) << 27)
#define SEGMENT_BITS_MAX (UINT32_C(1) << 23)

/* ---- positions --------------------------------------------------------------- */

void lorg_positions_close(struct lorg_positions *positions)
{
	free(positions->start);
	*positions = (struct lorg_positions){0};
}

uint32_t lorg_positions_at(const struct lorg_positions *positions, uint32_t word)
{
	return word < positions->words ? positions->start[word] : LORG_NO_POSITION;
}

void lorg_text_position(const char *text, size_t length, uint32_t start, uint32_t *line, uint32_t *column)
{
	*line = *column = 1;
	for (uint32_t i = 0; i < start && i < length; i++) {
		if (text[i] == '\n') {
			++*line;
			*column = 1;
		} else if ((text[i] & 0xc0) != 0x80) {
			++*column;
		}
	}
}

/* ---- the reader's state --------------------------------------------------------- */

struct part {
	lorg_term term;
	uint32_t start;
};

struct reader {
	struct lorg_terms *terms;
	const char *text;
	uint32_t length, at;
	struct part *parts; /* of terms that are not complete */
	size_t part_count, part_room;
	unsigned depth;
	struct lorg_positions *positions;
	struct lorg_read_error *error;
	bool failed;
	locale_t plain; /* numbers are written with a point */
};

__attribute__((format(printf, 3, 4))) static bool fail_at(struct reader *reader, uint32_t start, const char *format, ...)
{
	va_list arguments;
	if (reader->failed)
		return false;
	reader->failed = true;
	lorg_text_position(reader->text, reader->length, start, &reader->error->line, &reader->error->column);
	va_start(arguments, format);
	vsnprintf(reader->error->reason, sizeof reader->error->reason, format, arguments);
	va_end(arguments);
	return false;
}

static bool too_large(struct reader *reader, uint32_t start)
{
	reader->error->system_limit |= !reader->failed;
	return fail_at(reader, start, "the term is too large (system_limit)");
}

/* Takes over the failure to make a term. */
static bool made(struct reader *reader, uint32_t start, lorg_term term, lorg_term *result)
{
	*result = term;
	return term != LORG_NONE || too_large(reader, start);
}

static bool keep(struct reader *reader, lorg_term term, uint32_t start)
{
	if (reader->part_count == reader->part_room) {
		size_t more = reader->part_room ? 2 * reader->part_room : 64;
		struct part *parts = realloc(reader->parts, more * sizeof *parts);
		if (!parts)
			return too_large(reader, start);
		reader->parts = parts;
		reader->part_room = more;
	}
	reader->parts[reader->part_count++] = (struct part){term, start};
	return true;
}

static bool note_position(struct reader *reader, uint32_t word, uint32_t start)
{
	struct lorg_positions *positions = reader->positions;
	if (!positions)
		return true;
	if (word >= positions->words) {
		uint32_t words = word < 64 ? 128 : 2 * word;
		uint32_t *grown = realloc(positions->start, words * sizeof *grown);
		if (!grown)
			return too_large(reader, start);
		for (uint32_t i = positions->words; i < words; i++)
			grown[i] = LORG_NO_POSITION;
		positions->start = grown;
		positions->words = words;
	}
	positions->start[word] = start;
	return true;
}

static bool at_end(const struct reader *reader)
{
	return reader->at >= reader->length;
}

/* The byte `ahead` of here, 0 behind the end (0 itself is never part of a term). */
static unsigned char peek(const struct reader *reader, uint32_t ahead)
{
	return reader->length - reader->at > ahead ? (unsigned char)reader->text[reader->at + ahead] : 0;
}

static bool begins(const struct reader *reader, const char *token)
{
	size_t length = strlen(token);
	return reader->length - reader->at >= length && memcmp(reader->text + reader->at, token, length) == 0;
}

static bool skip(struct reader *reader, const char *token)
{
	if (!begins(reader, token))
		return false;
	reader->at += (uint32_t)strlen(token);
	return true;
}

/* The text is valid UTF-8: the character here, 0 at the end. */
static uint32_t peek_character(const struct reader *reader, uint32_t *length)
{
	uint32_t code = 0;
	*length = at_end(reader) ? 0 : (uint32_t)character_read(reader->text + reader->at, reader->length - reader->at, &code);
	return code;
}

static uint32_t take_character(struct reader *reader)
{
	uint32_t length, code = peek_character(reader, &length);
	reader->at += length;
	return code;
}

static void skip_space(struct reader *reader)
{
	uint32_t length;
	while (!at_end(reader)) {
		if (peek(reader, 0) == '%') {
			while (!at_end(reader) && peek(reader, 0) != '\n')
				reader->at++;
			continue;
		}
		uint32_t code = peek_character(reader, &length);
		if (code > ' ' && (code < 0x80 || code > 0xa0))
			return;
		reader->at += length;
	}
}

/* What stands here, for messages. */
static const char *seen(const struct reader *reader, char text[32])
{
	uint32_t length, code = peek_character(reader, &length);
	if (!length)
		return "the end of the text";
	if (code < ' ' || (code >= 0x7f && code <= 0xa0))
		snprintf(text, 32, "character %u", (unsigned)code);
	else
		snprintf(text, 32, "'%.*s'", (int)length, reader->text + reader->at);
	return text;
}

static bool expected(struct reader *reader, const char *what)
{
	char text[32];
	return fail_at(reader, reader->at, "%s expected, found %s", what, seen(reader, text));
}

static bool expect(struct reader *reader, const char *token)
{
	char what[16];
	skip_space(reader);
	if (skip(reader, token))
		return true;
	snprintf(what, sizeof what, "'%s'", token);
	return expected(reader, what);
}

/* ---- numbers --------------------------------------------------------------------- */

static int digit_of(unsigned char byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	if (byte >= 'a' && byte <= 'z')
		return byte - 'a' + 10;
	return byte >= 'A' && byte <= 'Z' ? byte - 'A' + 10 : 99;
}

/* Digits of a base, single underscores between them left out; *digits is to be freed. No digits: NULL without failure. */
static char *take_digits(struct reader *reader, int base)
{
	uint32_t start = reader->at;
	size_t count = 0;
	while (digit_of(peek(reader, 0)) < base || (peek(reader, 0) == '_' && reader->at > start && digit_of(peek(reader, 1)) < base))
		reader->at++;
	if (reader->at == start)
		return NULL;
	char *digits = malloc(reader->at - start + 1);
	if (!digits) {
		too_large(reader, start);
		return NULL;
	}
	for (uint32_t i = start; i < reader->at; i++)
		if (reader->text[i] != '_')
			digits[count++] = reader->text[i];
	digits[count] = 0;
	return digits;
}

static bool integer_of_digits(struct reader *reader, uint32_t start, const char *digits, int base, bool negative, lorg_term *term)
{
	mpz_t value;
	/* A digit has at most six bits. */
	if (strlen(digits) > LORG_INTEGER_WORDS_MAX * (size_t)64)
		return too_large(reader, start);
	mpz_init_set_str(value, digits, base);
	size_t words = mpz_size(value);
	lorg_term made_of = words > LORG_INTEGER_WORDS_MAX
				    ? LORG_NONE
				    : lorg_big(reader->terms, negative, (const uint64_t *)mpz_limbs_read(value), (uint32_t)words);
	mpz_clear(value);
	return made(reader, start, made_of, term);
}

/* Behind `whole` stands a point and a digit. */
static bool float_of_digits(struct reader *reader, uint32_t start, const char *whole, bool negative, lorg_term *term)
{
	reader->at++;
	char *fraction = take_digits(reader, 10), *exponent = NULL, *text = NULL;
	bool minus = false;
	unsigned char sign = peek(reader, 1);
	bool with_sign = sign == '-' || sign == '+';
	if ((peek(reader, 0) | 0x20) == 'e' && digit_of(peek(reader, with_sign ? 2 : 1)) < 10) {
		minus = sign == '-';
		reader->at += with_sign ? 2 : 1;
		exponent = take_digits(reader, 10);
	}
	bool good = !reader->failed && fraction;
	if (good && asprintf(&text, "%s.%se%s%s", whole, fraction, minus ? "-" : "", exponent ? exponent : "0") < 0) {
		text = NULL;
		good = too_large(reader, start);
	}
	free(fraction);
	free(exponent);
	if (!good)
		return false;
	double value = strtod_l(text, NULL, reader->plain);
	free(text);
	if (value - value != 0)
		return fail_at(reader, start, "the float is too large: at most 1.7976931348623157e308");
	return made(reader, start, lorg_float(reader->terms, negative ? -value : value), term);
}

static bool read_based(struct reader *reader, uint32_t start, const char *base_text, bool negative, lorg_term *term)
{
	const char *leading = base_text + strspn(base_text, "0");
	int base = strlen(leading) <= 2 ? atoi(leading) : 99;
	if (base < 2 || base > 36)
		return fail_at(reader, start, "illegal base '%.20s': 2 to 36", base_text);
	reader->at++;
	char *digits = take_digits(reader, base);
	if (!digits) {
		char what[40];
		snprintf(what, sizeof what, "a digit of base %d", base);
		return !reader->failed && expected(reader, what);
	}
	bool good = integer_of_digits(reader, start, digits, base, negative, term);
	free(digits);
	return good;
}

/* A number must not run into a name. */
static bool ends_here(struct reader *reader)
{
	uint32_t length, code = peek_character(reader, &length);
	if (!character_in_atom(code) || code == '@')
		return true;
	char text[32];
	return fail_at(reader, reader->at, "%s right behind a number", seen(reader, text));
}

/* Unsigned, a digit is here. */
static bool read_number(struct reader *reader, uint32_t start, bool negative, lorg_term *term)
{
	char *digits = take_digits(reader, 10);
	bool good = false;
	if (!digits)
		return false;
	if (peek(reader, 0) == '#')
		good = read_based(reader, start, digits, negative, term);
	else if (peek(reader, 0) == '.' && digit_of(peek(reader, 1)) < 10)
		good = float_of_digits(reader, start, digits, negative, term);
	else
		good = integer_of_digits(reader, start, digits, 10, negative, term);
	free(digits);
	return good && ends_here(reader);
}

/* ---- characters ---------------------------------------------------------------------- */

static bool read_hexadecimal_escape(struct reader *reader, uint32_t start, uint32_t *code)
{
	bool braced = skip(reader, "{");
	uint32_t digits = 0;
	*code = 0;
	while (digit_of(peek(reader, 0)) < 16 && (braced || digits < 2)) {
		if (*code <= CHARACTER_MAX)
			*code = *code * 16 + (uint32_t)digit_of(peek(reader, 0));
		reader->at++;
		digits++;
	}
	if ((braced ? !digits : digits != 2) || (braced && !skip(reader, "}")))
		return fail_at(reader, start, "illegal escape: \\xHH or \\x{H...} expected");
	if (*code > CHARACTER_MAX || (*code >= 0xd800 && *code <= 0xdfff))
		return fail_at(reader, start, "illegal character code in an escape");
	return true;
}

/* Behind a backslash. */
static bool read_escape(struct reader *reader, uint32_t *code)
{
	static const char letters[] = "bdefnrstv", values[] = "\b\x7f\x1b\f\n\r \t\v";
	uint32_t start = reader->at - 1;
	if (at_end(reader))
		return expected(reader, "a character behind the backslash");
	unsigned char first = peek(reader, 0);
	const char *letter = strchr(letters, first);
	if (letter && first) {
		reader->at++;
		*code = (unsigned char)values[letter - letters];
		return true;
	}
	if (skip(reader, "x"))
		return read_hexadecimal_escape(reader, start, code);
	if (skip(reader, "^")) {
		if (at_end(reader))
			return expected(reader, "a character behind \\^");
		*code = take_character(reader) & 0x1f;
		return true;
	}
	if (first < '0' || first > '7') {
		*code = take_character(reader);
		return true;
	}
	*code = 0;
	for (int i = 0; i < 3 && peek(reader, 0) >= '0' && peek(reader, 0) <= '7'; i++)
		*code = *code * 8 + (reader->text[reader->at++] - '0');
	return true;
}

/* The next character of a string or quoted atom. *closed: the quote was met instead. */
static bool read_quoted_character(struct reader *reader, char quote, uint32_t start, uint32_t *code, bool *closed)
{
	const char *kind = quote == '"' ? "string" : "atom";
	*closed = false;
	if (at_end(reader))
		return fail_at(reader, start, "unterminated %s", kind);
	*code = take_character(reader);
	if (*code == (uint32_t)quote)
		*closed = true;
	else if (*code == '\\')
		return read_escape(reader, code);
	return true;
}

static bool read_character(struct reader *reader, uint32_t start, uint32_t *code)
{
	reader->at++;
	if (at_end(reader))
		return fail_at(reader, start, "a character expected behind '$'");
	*code = take_character(reader);
	return *code != '\\' || read_escape(reader, code);
}

/* ---- atoms ---------------------------------------------------------------------------- */

static bool read_quoted_atom(struct reader *reader, uint32_t start, lorg_term *term)
{
	char text[LORG_ATOM_BYTES_MAX + 8];
	size_t length = 0, characters = 0;
	uint32_t code;
	bool closed;
	reader->at++;
	for (;;) {
		if (!read_quoted_character(reader, '\'', start, &code, &closed))
			return false;
		if (closed)
			break;
		if (++characters > LORG_ATOM_CHARACTERS_MAX) {
			reader->error->system_limit = true;
			return fail_at(reader, start, "the atom is too long: at most %d characters (system_limit)", LORG_ATOM_CHARACTERS_MAX);
		}
		length += (size_t)character_write(code, text + length);
	}
	return made(reader, start, lorg_atom(reader->terms, text, length), term);
}

static bool read_plain_atom(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t length, code, characters = 0;
	while (code = peek_character(reader, &length), length && character_in_atom(code)) {
		reader->at += length;
		characters++;
	}
	const char *text = reader->text + start;
	length = reader->at - start;
	if (characters > LORG_ATOM_CHARACTERS_MAX) {
		reader->error->system_limit = true;
		return fail_at(reader, start, "the atom is too long: at most %d characters (system_limit)", LORG_ATOM_CHARACTERS_MAX);
	}
	if (character_reserved_word(text, length))
		return fail_at(reader, start, "'%.*s' is a reserved word: as an atom it is written in quotes", (int)length, text);
	return made(reader, start, lorg_atom(reader->terms, text, length), term);
}

static bool atom_begins(const struct reader *reader)
{
	uint32_t length, code = peek_character(reader, &length);
	return length && (code == '\'' || character_begins_atom(code));
}

static bool read_atom(struct reader *reader, lorg_term *term)
{
	uint32_t start = reader->at;
	if (!atom_begins(reader))
		return expected(reader, "an atom");
	return peek(reader, 0) == '\'' ? read_quoted_atom(reader, start, term) : read_plain_atom(reader, start, term);
}

/* ---- strings and lists ------------------------------------------------------------------- */

/* Keeps the characters of one literal or several adjacent ones as parts. */
static bool read_string_parts(struct reader *reader)
{
	do {
		uint32_t start = reader->at, code;
		bool closed;
		reader->at++;
		for (;;) {
			uint32_t here = reader->at;
			if (!read_quoted_character(reader, '"', start, &code, &closed))
				return false;
			if (closed)
				break;
			if (!keep(reader, lorg_small(code), here))
				return false;
		}
		uint32_t behind = reader->at;
		skip_space(reader);
		if (peek(reader, 0) != '"')
			reader->at = behind;
	} while (peek(reader, 0) == '"');
	return true;
}

/* A list of the parts from `base` on, which are given back, and a tail. */
static bool list_of_parts(struct reader *reader, size_t base, lorg_term tail, uint32_t tail_start, uint32_t start, lorg_term *term)
{
	*term = tail;
	for (size_t i = reader->part_count; i-- > base;) {
		struct part part = reader->parts[i];
		if (!made(reader, start, lorg_cons(reader->terms, part.term, *term), term))
			return false;
		uint32_t word = lorg_term_offset(*term);
		uint32_t next = i + 1 < reader->part_count ? reader->parts[i + 1].start : tail_start;
		if (!note_position(reader, word, part.start) || !note_position(reader, word + 1, next))
			return false;
	}
	reader->part_count = base;
	return true;
}

static bool read_string(struct reader *reader, uint32_t start, lorg_term *term)
{
	size_t base = reader->part_count;
	return read_string_parts(reader) && list_of_parts(reader, base, lorg_nil(), start, start, term);
}

static bool read_any(struct reader *reader, lorg_term *term, uint32_t *start);

/* Terms separated by commas, kept as parts, until `close`, or until '|' where there may be a tail; either is taken. */
static bool read_parts(struct reader *reader, const char *close, bool *tail)
{
	lorg_term term;
	uint32_t start;
	skip_space(reader);
	if (skip(reader, close))
		return true;
	for (;;) {
		if (!read_any(reader, &term, &start) || !keep(reader, term, start))
			return false;
		skip_space(reader);
		if (skip(reader, close))
			return true;
		if (tail && skip(reader, "|")) {
			*tail = true;
			return true;
		}
		if (!skip(reader, ",")) {
			char what[48];
			snprintf(what, sizeof what, tail ? "',', '|' or '%s'" : "',' or '%s'", close);
			return expected(reader, what);
		}
	}
}

static bool read_list(struct reader *reader, uint32_t start, lorg_term *term)
{
	size_t base = reader->part_count;
	lorg_term tail = lorg_nil();
	bool with_tail = false;
	reader->at++;
	if (!read_parts(reader, "]", &with_tail))
		return false;
	uint32_t tail_start = reader->at;
	if (with_tail && (!read_any(reader, &tail, &tail_start) || !expect(reader, "]")))
		return false;
	return list_of_parts(reader, base, tail, tail_start, start, term);
}

/* ---- tuples and maps ----------------------------------------------------------------------- */

static bool read_tuple(struct reader *reader, uint32_t start, lorg_term *term)
{
	size_t base = reader->part_count;
	reader->at++;
	if (!read_parts(reader, "}", NULL))
		return false;
	uint32_t arity = (uint32_t)(reader->part_count - base);
	if (!made(reader, start, lorg_tuple_new(reader->terms, arity), term))
		return false;
	for (uint32_t i = 0; i < arity; i++) {
		struct part part = reader->parts[base + i];
		lorg_tuple_set(reader->terms, *term, i, part.term);
		if (!note_position(reader, lorg_term_offset(*term) + 1 + i, part.start))
			return false;
	}
	reader->part_count = base;
	return true;
}

/* A pair of a map as it was written; sorted by the word of its key to be found again. */
struct pair {
	struct part key, value;
	uint32_t order;
};

static int compare_pairs(const void *a, const void *b)
{
	const struct pair *left = a, *right = b;
	if (left->key.term != right->key.term)
		return left->key.term < right->key.term ? -1 : 1;
	return (left->order > right->order) - (left->order < right->order);
}

/* The last pair with this word as its key. */
static const struct pair *find_pair(const struct pair *pairs, uint32_t count, lorg_term key)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (pairs[middle].key.term <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low && pairs[low - 1].key.term == key ? &pairs[low - 1] : NULL;
}

/* The map has put the pairs into its own order. */
static bool note_map_positions(struct reader *reader, lorg_term map, struct pair *pairs, uint32_t count)
{
	uint32_t size;
	const lorg_term *keys = lorg_get_map(reader->terms, map, &size, NULL);
	qsort(pairs, count, sizeof *pairs, compare_pairs);
	for (uint32_t i = 0; i < size; i++) {
		const struct pair *pair = find_pair(pairs, count, keys[i]);
		uint32_t word = lorg_term_offset(map) + 1 + i;
		if (pair && (!note_position(reader, word, pair->key.start) || !note_position(reader, word + size, pair->value.start)))
			return false;
	}
	return true;
}

/* Parts from `base` on are keys and values by turns. */
static bool map_of_parts(struct reader *reader, size_t base, uint32_t start, lorg_term *term)
{
	uint32_t count = (uint32_t)((reader->part_count - base) / 2);
	lorg_term *words = malloc((count + 1) * 2 * sizeof *words);
	struct pair *pairs = malloc((count + 1) * sizeof *pairs);
	bool good = words && pairs;
	for (uint32_t i = 0; good && i < count; i++) {
		pairs[i] = (struct pair){reader->parts[base + 2 * i], reader->parts[base + 2 * i + 1], i};
		words[2 * i] = pairs[i].key.term;
		words[2 * i + 1] = pairs[i].value.term;
	}
	good = good ? made(reader, start, lorg_map(reader->terms, words, count), term) : too_large(reader, start);
	good = good && note_map_positions(reader, *term, pairs, count);
	free(words);
	free(pairs);
	reader->part_count = base;
	return good;
}

static bool read_map(struct reader *reader, uint32_t start, lorg_term *term)
{
	size_t base = reader->part_count;
	lorg_term part;
	uint32_t part_start;
	skip_space(reader);
	if (skip(reader, "}"))
		return map_of_parts(reader, base, start, term);
	for (;;) {
		if (!read_any(reader, &part, &part_start) || !keep(reader, part, part_start) || !expect(reader, "=>") ||
		    !read_any(reader, &part, &part_start) || !keep(reader, part, part_start))
			return false;
		skip_space(reader);
		if (skip(reader, "}"))
			return map_of_parts(reader, base, start, term);
		if (!skip(reader, ","))
			return expected(reader, "',' or '}'");
	}
}

/* ---- pids and the like --------------------------------------------------------------------- */

/* Numbers of 32 bits with points between them. False without failure if they are not so; at most `most`. */
static bool read_dotted(struct reader *reader, uint32_t *numbers, uint32_t most, uint32_t *count)
{
	for (*count = 0; *count < most;) {
		uint64_t value = 0;
		uint32_t start = reader->at;
		for (; digit_of(peek(reader, 0)) < 10 && value <= UINT32_MAX; reader->at++)
			value = value * 10 + (uint64_t)digit_of(peek(reader, 0));
		if (reader->at == start || value > UINT32_MAX)
			return false;
		numbers[(*count)++] = (uint32_t)value;
		if (peek(reader, 0) != '.')
			return true;
		reader->at++;
	}
	return false;
}

static bool read_pid(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t numbers[3] = {0}, count;
	reader->at++;
	if (!read_dotted(reader, numbers, 3, &count) || count < 2 || !skip(reader, ">"))
		return fail_at(reader, start, "illegal pid: <PROGRAM.THREAD> or <PROGRAM.THREAD.NUMBER> expected");
	return made(reader, start, lorg_pid(reader->terms, numbers[0], numbers[1], numbers[2], LORG_NONE), term);
}

static bool read_port(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t numbers[3] = {0}, count;
	if (!read_dotted(reader, numbers, 3, &count) || count < 2 || !skip(reader, ">"))
		return fail_at(reader, start, "illegal port: #Port<PROGRAM.DESCRIPTOR> or #Port<PROGRAM.DESCRIPTOR.GENERATION> expected");
	uint64_t generation = count == 2 ? LORG_PORT_TWO_PARTS : numbers[2];
	return made(reader, start, lorg_port_term(reader->terms, numbers[0], numbers[1], generation, LORG_NONE), term);
}

static bool read_reference(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t numbers[LORG_REFERENCE_MAX], count;
	if (!read_dotted(reader, numbers, LORG_REFERENCE_MAX, &count) || !skip(reader, ">"))
		return fail_at(reader, start, "illegal reference: #Ref<N.N.N.N> expected, each number below 2^32");
	return made(reader, start, lorg_reference(reader->terms, numbers, count), term);
}

/* The text up to the > that belongs to it. */
static bool read_opaque_fun(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t begin = reader->at, open = 1, code;
	while ((code = take_character(reader)) >= ' ' && character_printable(code)) {
		open += code == '<';
		open -= code == '>';
		if (!open)
			return made(reader, start, lorg_fun(reader->terms, reader->text + begin, reader->at - 1 - begin), term);
	}
	return fail_at(reader, start, "unterminated #Fun<...>");
}

/* Behind the word fun. */
static bool read_external_fun(struct reader *reader, uint32_t start, lorg_term *term)
{
	lorg_term module, function, arity;
	int64_t value;
	skip_space(reader);
	if (!atom_begins(reader))
		return fail_at(reader, start, "of funs only fun MODULE:FUNCTION/ARITY is a term");
	if (!read_atom(reader, &module) || !expect(reader, ":"))
		return false;
	skip_space(reader);
	if (!read_atom(reader, &function) || !expect(reader, "/"))
		return false;
	skip_space(reader);
	uint32_t at = reader->at;
	if (digit_of(peek(reader, 0)) >= 10)
		return expected(reader, "an arity");
	if (!read_number(reader, at, false, &arity))
		return false;
	if (!lorg_get_integer(reader->terms, arity, &value) || value > 255)
		return fail_at(reader, at, "illegal arity: 0 to 255");
	return made(reader, start, lorg_fun_external(reader->terms, module, function, (uint32_t)value), term);
}

static bool read_hash(struct reader *reader, uint32_t start, lorg_term *term)
{
	if (skip(reader, "#Port<"))
		return read_port(reader, start, term);
	if (skip(reader, "#Ref<"))
		return read_reference(reader, start, term);
	if (skip(reader, "#Fun<"))
		return read_opaque_fun(reader, start, term);
	reader->at++;
	skip_space(reader);
	if (skip(reader, "{"))
		return read_map(reader, start, term);
	return fail_at(reader, start, "#{KEY => VALUE}, #Port<...>, #Ref<...> or #Fun<...> expected: records are no terms");
}

/* ---- binaries ------------------------------------------------------------------------------- */

struct bits {
	uint8_t *bytes;
	uint64_t count, room;
};

enum segment_type {
	SEGMENT_INTEGER,
	SEGMENT_FLOAT,
	SEGMENT_BINARY,
	SEGMENT_UTF8,
	SEGMENT_UTF16,
	SEGMENT_UTF32,
};

struct segment {
	enum segment_type type;
	bool little;
	bool with_size;
	uint64_t size;
	unsigned unit; /* 0: the type's own */
};

static bool bits_reserve(struct reader *reader, uint32_t start, struct bits *bits, uint64_t more)
{
	uint64_t wanted = bits->count + more;
	if (wanted > BITS_MAX)
		return too_large(reader, start);
	if (wanted <= bits->room)
		return true;
	uint64_t room = (wanted < 512 ? 512 : wanted * 2 + 7) / 8;
	uint8_t *bytes = realloc(bits->bytes, room);
	if (!bytes)
		return too_large(reader, start);
	memset(bytes + bits->room / 8, 0, room - bits->room / 8);
	bits->bytes = bytes;
	bits->room = room * 8;
	return true;
}

/* The highest `count` bits of a byte, count 1 to 8; there is room. */
static void bits_append(struct bits *bits, uint8_t byte, unsigned count)
{
	unsigned used = bits->count % 8;
	if (!used && count == 8) {
		bits->bytes[bits->count / 8] = byte;
		bits->count += 8;
		return;
	}
	byte &= (uint8_t)(0xff00 >> count);
	bits->bytes[bits->count / 8] |= byte >> used;
	if (used + count > 8)
		bits->bytes[bits->count / 8 + 1] |= (uint8_t)(byte << (8 - used));
	bits->count += count;
}

/* Bits [8 * index, 8 * index + 8) of an integer in two's complement, from the lowest on. */
static uint8_t byte_of_integer(const uint64_t *magnitude, uint32_t words, bool negative, uint64_t index, bool *carry)
{
	uint8_t byte = index / 8 < words ? (uint8_t)(magnitude[index / 8] >> (8 * (index % 8))) : 0;
	if (!negative)
		return byte;
	byte = (uint8_t)(~byte + *carry);
	*carry = *carry && !byte;
	return byte;
}

/* A number of `size` bits whose bytes are given from the lowest on. */
static bool append_number(struct reader *reader, uint32_t start, struct bits *bits, const uint8_t *lowest_first, uint64_t size,
	bool little)
{
	unsigned rest = (unsigned)(size % 8);
	uint64_t whole = size / 8;
	if (!bits_reserve(reader, start, bits, size))
		return false;
	if (little) {
		for (uint64_t i = 0; i < whole; i++)
			bits_append(bits, lowest_first[i], 8);
		if (rest)
			bits_append(bits, (uint8_t)(lowest_first[whole] << (8 - rest)), rest);
		return true;
	}
	if (rest)
		bits_append(bits, (uint8_t)(lowest_first[whole] << (8 - rest)), rest);
	while (whole--)
		bits_append(bits, lowest_first[whole], 8);
	return true;
}

static bool append_integer(struct reader *reader, uint32_t start, struct bits *bits, lorg_term term, uint64_t size, bool little)
{
	uint64_t small;
	uint32_t words;
	bool negative, carry = true;
	const uint64_t *magnitude = lorg_get_magnitude(reader->terms, term, &small, &words, &negative);
	if (!magnitude)
		return fail_at(reader, start, "an integer expected in this part of a binary (floats need /float, binaries /binary)");
	uint8_t *bytes = malloc(size / 8 + 1);
	if (!bytes)
		return too_large(reader, start);
	for (uint64_t i = 0; i <= size / 8; i++)
		bytes[i] = byte_of_integer(magnitude, words, negative, i, &carry);
	bool good = append_number(reader, start, bits, bytes, size, little);
	free(bytes);
	return good;
}

static uint32_t bits_of_single(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* IEEE 754 of 16 bits, rounded to the nearest, a tie to the even one; too large: infinite. */
static uint32_t half_of_single(uint32_t single)
{
	uint32_t sign = single >> 16 & 0x8000, magnitude = single & 0x7fffffff;
	if (magnitude >= 0x47800000)
		return sign | 0x7c00;
	bool denormal = magnitude < 0x38800000;
	uint32_t mantissa = denormal ? (magnitude & 0x7fffff) | 0x800000 : magnitude - 0x38000000;
	uint32_t shift = denormal ? 126 - (magnitude >> 23) : 13;
	if (shift > 24)
		return sign;
	uint32_t half = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
	return sign | (half + (rest > tie || (rest == tie && half & 1)));
}

static bool append_float(struct reader *reader, uint32_t start, struct bits *bits, lorg_term term, const struct segment *segment)
{
	double value;
	uint64_t size = segment->with_size ? segment->size * (segment->unit ? segment->unit : 1) : 64, word = 0;
	if (!lorg_get_float(reader->terms, lorg_to_float(reader->terms, term), &value))
		return fail_at(reader, start, "a number expected in this part of a binary");
	if (size == 64)
		memcpy(&word, &value, sizeof value);
	else if (size == 32 || size == 16)
		word = size == 32 ? bits_of_single((float)value) : half_of_single(bits_of_single((float)value));
	else
		return fail_at(reader, start, "a float in a binary has 16, 32 or 64 bits");
	uint8_t bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(word >> (8 * i));
	return append_number(reader, start, bits, bytes, size, segment->little);
}

static bool append_binary(struct reader *reader, uint32_t start, struct bits *bits, lorg_term term, const struct segment *segment)
{
	uint64_t own;
	if (!lorg_get_bitstring(reader->terms, term, &own))
		return fail_at(reader, start, "a binary expected in this part of a binary");
	uint64_t unit = segment->unit ? segment->unit : 8;
	uint64_t size = segment->with_size ? segment->size * unit : own;
	if (size > own || (!segment->with_size && own % unit))
		return fail_at(reader, start, "the binary does not have that size");
	if (!bits_reserve(reader, start, bits, size))
		return false;
	const uint8_t *bytes = lorg_get_bitstring(reader->terms, term, &own);
	for (uint64_t i = 0; i < size; i += 8)
		bits_append(bits, bytes[i / 8], size - i < 8 ? (unsigned)(size - i) : 8);
	return true;
}

static bool append_utf(struct reader *reader, uint32_t start, struct bits *bits, lorg_term term, const struct segment *segment)
{
	int64_t code;
	char text[8];
	if (!lorg_get_integer(reader->terms, term, &code) || code < 0 || code > CHARACTER_MAX || (code >= 0xd800 && code <= 0xdfff))
		return fail_at(reader, start, "a character code expected in this part of a binary");
	if (!bits_reserve(reader, start, bits, 32))
		return false;
	if (segment->type == SEGMENT_UTF8) {
		int length = character_write((uint32_t)code, text);
		for (int i = 0; i < length; i++)
			bits_append(bits, (uint8_t)text[i], 8);
		return true;
	}
	if (segment->type == SEGMENT_UTF32)
		return append_integer(reader, start, bits, term, 32, segment->little);
	if (code < 0x10000)
		return append_integer(reader, start, bits, term, 16, segment->little);
	return append_integer(reader, start, bits, lorg_small(0xd800 + ((code - 0x10000) >> 10)), 16, segment->little) &&
	       append_integer(reader, start, bits, lorg_small(0xdc00 + ((code - 0x10000) & 0x3ff)), 16, segment->little);
}

static bool append_segment(struct reader *reader, uint32_t start, struct bits *bits, lorg_term term, const struct segment *segment)
{
	uint64_t size = segment->with_size ? segment->size * (segment->unit ? segment->unit : 1) : 8;
	switch (segment->type) {
	case SEGMENT_INTEGER:
		if (size > SEGMENT_BITS_MAX)
			return too_large(reader, start);
		return append_integer(reader, start, bits, term, size, segment->little);
	case SEGMENT_FLOAT:
		return append_float(reader, start, bits, term, segment);
	case SEGMENT_BINARY:
		return append_binary(reader, start, bits, term, segment);
	default:
		return append_utf(reader, start, bits, term, segment);
	}
}

/* One word of TYPE-TYPE... */
static bool read_segment_word(struct reader *reader, struct segment *segment)
{
	static const struct {
		const char *name;
		enum segment_type type;
		unsigned unit;
	} types[] = {{"integer", SEGMENT_INTEGER, 0}, {"float", SEGMENT_FLOAT, 0}, {"binary", SEGMENT_BINARY, 0},
		{"bytes", SEGMENT_BINARY, 0}, {"bitstring", SEGMENT_BINARY, 1}, {"bits", SEGMENT_BINARY, 1}, {"utf8", SEGMENT_UTF8, 0},
		{"utf16", SEGMENT_UTF16, 0}, {"utf32", SEGMENT_UTF32, 0}};
	uint32_t start = reader->at, unit, count;
	while (character_in_atom(peek(reader, 0)))
		reader->at++;
	const char *word = reader->text + start;
	size_t length = reader->at - start;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		if (strlen(types[i].name) != length || memcmp(word, types[i].name, length) != 0)
			continue;
		segment->type = types[i].type;
		if (types[i].unit)
			segment->unit = types[i].unit;
		return true;
	}
	if (length == 6 && (memcmp(word, "little", 6) == 0 || memcmp(word, "native", 6) == 0)) {
		segment->little = true;
		return true;
	}
	if ((length == 3 && memcmp(word, "big", 3) == 0) || (length == 6 && memcmp(word, "signed", 6) == 0) ||
	    (length == 8 && memcmp(word, "unsigned", 8) == 0))
		return true;
	if (length == 4 && memcmp(word, "unit", 4) == 0 && skip(reader, ":")) {
		if (!read_dotted(reader, &unit, 1, &count) || unit < 1 || unit > 256)
			return fail_at(reader, start, "illegal unit: 1 to 256");
		segment->unit = unit;
		return true;
	}
	return fail_at(reader, start, "unknown type '%.*s' in a binary", (int)(length > 40 ? 40 : length), word);
}

static bool read_segment_size(struct reader *reader, struct segment *segment)
{
	lorg_term size;
	uint32_t start;
	reader->at++;
	if (!read_any(reader, &size, &start))
		return false;
	if (!lorg_get_unsigned(reader->terms, size, &segment->size) || segment->size > UINT32_MAX)
		return fail_at(reader, start, "a size below 2^32 expected");
	segment->with_size = true;
	skip_space(reader);
	return true;
}

/* What the types allow of sizes and units. */
static bool check_segment(struct reader *reader, uint32_t start, const struct segment *segment)
{
	if (segment->type >= SEGMENT_UTF8)
		return (!segment->with_size && !segment->unit) || fail_at(reader, start, "a character in a binary has neither size nor unit");
	return segment->type == SEGMENT_BINARY || segment->with_size || !segment->unit ||
	       fail_at(reader, start, "a unit without a size in a binary");
}

/* [:Size][/Types] */
static bool read_segment_options(struct reader *reader, struct segment *segment)
{
	skip_space(reader);
	uint32_t start = reader->at;
	if (peek(reader, 0) == ':' && !read_segment_size(reader, segment))
		return false;
	if (peek(reader, 0) != '/')
		return true;
	do {
		reader->at++;
		skip_space(reader);
		if (!read_segment_word(reader, segment))
			return false;
		skip_space(reader);
	} while (peek(reader, 0) == '-');
	return check_segment(reader, start, segment);
}

/* Value of a segment, kept as parts: several of a string. */
static bool read_segment_value(struct reader *reader)
{
	lorg_term term;
	uint32_t start;
	skip_space(reader);
	if (peek(reader, 0) == '"')
		return read_string_parts(reader);
	return read_any(reader, &term, &start) && keep(reader, term, start);
}

static bool read_segment(struct reader *reader, struct bits *bits)
{
	struct segment segment = {0};
	size_t base = reader->part_count;
	if (!read_segment_value(reader) || !read_segment_options(reader, &segment))
		return false;
	for (size_t i = base; i < reader->part_count; i++)
		if (!append_segment(reader, reader->parts[i].start, bits, reader->parts[i].term, &segment))
			return false;
	reader->part_count = base;
	return true;
}

static bool read_segments(struct reader *reader, struct bits *bits)
{
	skip_space(reader);
	if (skip(reader, ">>"))
		return true;
	for (;;) {
		if (!read_segment(reader, bits))
			return false;
		skip_space(reader);
		if (skip(reader, ">>"))
			return true;
		if (!skip(reader, ","))
			return expected(reader, "',' or '>>'");
	}
}

static bool read_binary(struct reader *reader, uint32_t start, lorg_term *term)
{
	struct bits bits = {0};
	reader->at += 2;
	bool good = read_segments(reader, &bits) && made(reader, start, lorg_bitstring(reader->terms, bits.bytes, bits.count), term);
	free(bits.bytes);
	return good;
}

/* ---- any term ---------------------------------------------------------------------------------- */

/* A number or character behind a sign. */
static bool read_unsigned(struct reader *reader, uint32_t start, bool negative, lorg_term *term)
{
	uint32_t code = 0;
	if (digit_of(peek(reader, 0)) < 10)
		return read_number(reader, start, negative, term);
	if (peek(reader, 0) != '$')
		return expected(reader, "a number behind the sign");
	if (!read_character(reader, reader->at, &code))
		return false;
	*term = lorg_small(negative ? -(int64_t)code : (int64_t)code);
	return true;
}

static bool read_signed(struct reader *reader, uint32_t start, lorg_term *term)
{
	bool negative = peek(reader, 0) == '-';
	uint32_t brackets = 0;
	reader->at++;
	for (skip_space(reader); skip(reader, "("); skip_space(reader))
		brackets++;
	if (!read_unsigned(reader, start, negative, term))
		return false;
	while (brackets--)
		if (!expect(reader, ")"))
			return false;
	return true;
}

static bool read_word(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t length, code = peek_character(reader, &length);
	if (begins(reader, "fun") && !character_in_atom(peek(reader, 3)) && peek(reader, 3) < 0x80) {
		reader->at += 3;
		return read_external_fun(reader, start, term);
	}
	if (atom_begins(reader))
		return read_atom(reader, term);
	if (character_in_atom(code)) {
		while (code = peek_character(reader, &length), length && character_in_atom(code))
			reader->at += length;
		uint32_t shown = reader->at - start;
		return fail_at(reader, start, "'%.*s' would be a variable of Erlang: atoms begin with a small letter or stand in quotes",
			(int)(shown > 40 ? 40 : shown), reader->text + start);
	}
	return expected(reader, "a term");
}

static bool read_parenthesised(struct reader *reader, lorg_term *term)
{
	uint32_t start;
	reader->at++;
	return read_any(reader, term, &start) && expect(reader, ")");
}

static bool read_by_first(struct reader *reader, uint32_t start, lorg_term *term)
{
	uint32_t code = 0;
	unsigned char first = peek(reader, 0);
	switch (first) {
	case '[':
		return read_list(reader, start, term);
	case '{':
		return read_tuple(reader, start, term);
	case '(':
		return read_parenthesised(reader, term);
	case '#':
		return read_hash(reader, start, term);
	case '"':
		return read_string(reader, start, term);
	case '<':
		return peek(reader, 1) == '<' ? read_binary(reader, start, term) : read_pid(reader, start, term);
	case '$':
		if (!read_character(reader, start, &code))
			return false;
		*term = lorg_small(code);
		return true;
	case '-':
	case '+':
		return read_signed(reader, start, term);
	default:
		return digit_of(first) < 10 ? read_number(reader, start, false, term) : read_word(reader, start, term);
	}
}

static bool read_any(struct reader *reader, lorg_term *term, uint32_t *start)
{
	skip_space(reader);
	*start = reader->at;
	if (reader->depth >= LORG_NESTING_MAX) {
		reader->error->system_limit = true;
		return fail_at(reader, *start, "nested deeper than %d levels (system_limit)", LORG_NESTING_MAX);
	}
	reader->depth++;
	bool good = read_by_first(reader, *start, term);
	reader->depth--;
	return good;
}

/* A full stop ends the text. */
static bool read_end(struct reader *reader)
{
	char text[32];
	skip_space(reader);
	if (peek(reader, 0) == '.' && (reader->at + 1 == reader->length || peek(reader, 1) <= ' ' || peek(reader, 1) == '%')) {
		reader->at++;
		skip_space(reader);
	}
	return at_end(reader) || fail_at(reader, reader->at, "%s behind the end of the term", seen(reader, text));
}

/* Every character of the text has to be one. */
static bool check_characters(struct reader *reader)
{
	uint32_t code;
	for (uint32_t i = 0; i < reader->length;) {
		int length = character_read(reader->text + i, reader->length - i, &code);
		if (length <= 0)
			return fail_at(reader, i, "byte %u is not UTF-8", (unsigned char)reader->text[i]);
		i += (uint32_t)length;
	}
	return true;
}

lorg_term lorg_read_term(struct lorg_terms *terms, const char *text, size_t length, struct lorg_positions *positions,
	struct lorg_read_error *error)
{
	struct lorg_read_error ignored;
	struct reader reader = {.terms = terms, .text = text, .length = (uint32_t)length, .positions = positions,
		.error = error ? error : &ignored};
	uint32_t bottom = terms->used, start = 0;
	lorg_term term = LORG_NONE;
	memset(reader.error, 0, sizeof *reader.error);
	reader.error->line = reader.error->column = 1;
	reader.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (length > INT32_MAX || !reader.plain)
		too_large(&reader, 0);
	else if (check_characters(&reader) && read_any(&reader, &term, &start))
		read_end(&reader);
	if (reader.plain)
		freelocale(reader.plain);
	free(reader.parts);
	if (reader.failed) {
		terms->used = bottom;
		return LORG_NONE;
	}
	if (positions)
		positions->root = start;
	return term;
}
