/* SPDX-License-Identifier: MIT */
/*
 * printer.c: see printer.h. Everything is printed from the encoding of lorg/term.h, term by term, with an explicit stack:
 * terms in memory are encoded first. So there is one printer for both, and no depth can hurt.
 */
#include "collector/term/printer.h"

#include <gmp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/character.h"
#include "preload/term/external.h"

/* ---- text that grows ---------------------------------------------------------- */

struct text {
	char *data;
	size_t length, room;
	bool failed;
};

static void add(struct text *text, const char *data, size_t length)
{
	if (text->failed || length > LORG_TEXT_MAX || text->length > LORG_TEXT_MAX - length) {
		text->failed = true;
		return;
	}
	if (text->length + length >= text->room) {
		size_t room = (text->length + length) * 2 + 64;
		char *grown = realloc(text->data, room);
		if (!grown) {
			text->failed = true;
			return;
		}
		text->data = grown;
		text->room = room;
	}
	memcpy(text->data + text->length, data, length);
	text->length += length;
	text->data[text->length] = 0;
}

static void add_text(struct text *text, const char *data)
{
	add(text, data, strlen(data));
}

__attribute__((format(printf, 2, 3))) static void add_format(struct text *text, const char *format, ...)
{
	char line[128];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	add(text, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

static void add_character(struct text *text, uint32_t code)
{
	char bytes[8];
	add(text, bytes, (size_t)character_write(code, bytes));
}

/* ---- floats --------------------------------------------------------------------- */

/* Decimal digits without trailing zeros; the number is 0.DIGITS * 10^point. */
struct decimal {
	char digits[24];
	int count, point;
};

static void drop_zeros(struct decimal *decimal)
{
	while (decimal->count > 1 && decimal->digits[decimal->count - 1] == '0')
		decimal->count--;
	decimal->digits[decimal->count] = 0;
}

/* The decimal of `count` digits that is nearest. */
static void nearest_decimal(double value, int count, struct decimal *decimal)
{
	char text[40];
	snprintf(text, sizeof text, "%.*e", count - 1, value);
	decimal->count = 0;
	const char *at = text;
	for (; *at != 'e'; at++)
		if (*at >= '0' && *at <= '9') /* the point may be another character where the locale says so */
			decimal->digits[decimal->count++] = *at;
	decimal->digits[decimal->count] = 0;
	decimal->point = atoi(at + 1) + 1;
}

static bool reads_back(double value, const struct decimal *decimal)
{
	char text[48];
	snprintf(text, sizeof text, "%se%d", decimal->digits, decimal->point - decimal->count);
	return strtod(text, NULL) == value;
}

/* The next decimal of the same length upwards or downwards; false when that would change the length. */
static bool step(struct decimal *decimal, bool up)
{
	int i = decimal->count - 1;
	while (i >= 0 && decimal->digits[i] == (up ? '9' : '0'))
		decimal->digits[i--] = up ? '0' : '9';
	if (i < 0 || (!up && i == 0 && decimal->digits[0] == '1'))
		return false;
	decimal->digits[i] = (char)(decimal->digits[i] + (up ? 1 : -1));
	return true;
}

/*
 * The shortest decimal that reads back as value (> 0), of several the nearest. The nearest of a length may fail to read
 * back where one beside it does: around powers of two floats are closer on one side.
 */
static void shortest_decimal(double value, struct decimal *decimal)
{
	for (int count = 1; count <= 17; count++) {
		nearest_decimal(value, count, decimal);
		if (reads_back(value, decimal))
			break;
		struct decimal above = *decimal, below = *decimal;
		if (step(&above, true) && reads_back(value, &above)) {
			*decimal = above;
			break;
		}
		if (step(&below, false) && reads_back(value, &below)) {
			*decimal = below;
			break;
		}
	}
	drop_zeros(decimal);
}

/* D.DDDe-NN */
static void write_scientific(const struct decimal *decimal, char *text)
{
	snprintf(text, LORG_FLOAT_TEXT - 1, "%c.%se%d", decimal->digits[0], decimal->count > 1 ? decimal->digits + 1 : "0",
		decimal->point - 1);
}

/* With the point where it belongs; at least one digit on both sides. */
static void write_plain(const struct decimal *decimal, char *text)
{
	char *to = text;
	int whole = decimal->point;
	if (whole <= 0) {
		*to++ = '0';
		*to++ = '.';
		for (int i = whole; i < 0; i++)
			*to++ = '0';
		memcpy(to, decimal->digits, (size_t)decimal->count + 1);
		return;
	}
	for (int i = 0; i < whole || i < decimal->count; i++) {
		if (i == whole)
			*to++ = '.';
		*to++ = i < decimal->count ? decimal->digits[i] : '0';
	}
	if (whole >= decimal->count) {
		*to++ = '.';
		*to++ = '0';
	}
	*to = 0;
}

/* Characters that write_plain() would take. */
static int plain_length(const struct decimal *decimal)
{
	if (decimal->point <= 0)
		return 2 - decimal->point + decimal->count;
	return decimal->point >= decimal->count ? decimal->point + 2 : decimal->count + 1;
}

void lorg_float_text(double value, char *text)
{
	struct decimal decimal;
	char scientific[LORG_FLOAT_TEXT];
	if (__builtin_signbit(value))
		*text++ = '-';
	value = __builtin_fabs(value);
	if (value == 0 || value - value != 0) {
		strcpy(text, value == 0 ? "0.0" : "0.0e0");
		return;
	}
	shortest_decimal(value, &decimal);
	write_scientific(&decimal, scientific);
	/* From 2^53 on not every integer is a float: digits that are none of its own are not written. */
	if (value < 9007199254740992.0 && plain_length(&decimal) <= (int)strlen(scientific))
		write_plain(&decimal, text);
	else
		strcpy(text, scientific);
}

/* ---- characters in quotes ---------------------------------------------------------- */

/* A character between quotes; wide ones as \x{..} when `narrow`. */
static void add_quoted_character(struct text *text, uint32_t code, char quote, bool narrow)
{
	static const char codes[] = "\n\t\v\b\r\f\x1b\x7f", letters[] = "ntvbrfed";
	const char *control = code && code < 0x80 ? strchr(codes, (int)code) : NULL;
	if (code == (uint32_t)quote || code == '\\')
		add_format(text, "\\%c", (char)code);
	else if (control)
		add_format(text, "\\%c", letters[control - codes]);
	else if (code < ' ' || (code >= 0x80 && code < 0xa0))
		add_format(text, "\\%03o", (unsigned)code);
	else if ((narrow && code > 0xff) || (code > 0xff && !character_printable(code)))
		add_format(text, "\\x{%X}", (unsigned)code);
	else
		add_character(text, code);
}

/* Text in quotes. Bytes that are no UTF-8 are shown by their numbers. */
static void add_quoted(struct text *text, const char *data, size_t length, char quote, bool narrow)
{
	uint32_t code;
	add(text, &quote, 1);
	for (size_t i = 0; i < length && !text->failed;) {
		int bytes = character_read(data + i, length - i, &code);
		if (bytes)
			add_quoted_character(text, code, quote, narrow);
		else
			add_format(text, "\\%03o", (unsigned char)data[i]);
		i += bytes ? (size_t)bytes : 1;
	}
	add(text, &quote, 1);
}

/* Text without quotes; what would not show or would harm a terminal by its number. */
static void add_shown(struct text *text, const char *data, size_t length)
{
	uint32_t code;
	for (size_t i = 0; i < length && !text->failed;) {
		int bytes = character_read(data + i, length - i, &code);
		if (bytes && code >= ' ' && character_printable(code))
			add(text, data + i, (size_t)bytes);
		else
			add_format(text, "\\%03o", (unsigned char)data[i]);
		i += bytes ? (size_t)bytes : 1;
	}
}

static bool needs_quotes(const char *data, size_t length)
{
	uint32_t code;
	for (size_t i = 0; i < length;) {
		int bytes = character_read(data + i, length - i, &code);
		if (!bytes || !(i ? character_in_atom(code) : character_begins_atom(code)))
			return true;
		i += (size_t)bytes;
	}
	return !length || character_reserved_word(data, length);
}

static void add_atom(struct text *text, const char *data, size_t length, bool narrow)
{
	if (needs_quotes(data, length))
		add_quoted(text, data, length, '\'', narrow);
	else
		add(text, data, length);
}

char *lorg_atom_quoted(const char *data, size_t length)
{
	struct text text = {0};
	add_atom(&text, data, length, true);
	if (!text.failed)
		return text.data;
	free(text.data);
	return NULL;
}

/* ---- the printer -------------------------------------------------------------------- */

enum part_kind {
	PART_TUPLE,
	PART_LIST, /* elements */
	PART_TAIL, /* what stands behind the elements of a list */
	PART_MAP,
	PART_NAMED, /* a name before each value */
	PART_NAMED_SILENT, /* the names are not shown */
	PART_POINTED,
	PART_HIDDEN, /* the term is read and not shown */
};

struct frame {
	enum part_kind kind;
	uint64_t left, done;
	size_t length; /* of PART_HIDDEN: of the text before */
};

struct printer {
	const uint8_t *at, *end;
	struct text text;
	enum lorg_text_form form;
	const struct lorg_code_names *names;
	struct frame *frames;
	size_t depth, room;
	bool bad;
};

static uint64_t take_number(struct printer *printer, int bytes)
{
	uint64_t value = 0;
	if (printer->bad || printer->end - printer->at < bytes) {
		printer->bad = true;
		return 0;
	}
	while (bytes--)
		value = value << 8 | *printer->at++;
	return value;
}

static const uint8_t *take_bytes(struct printer *printer, uint64_t length)
{
	const uint8_t *from = printer->at;
	if (printer->bad || (uint64_t)(printer->end - printer->at) < length) {
		printer->bad = true;
		return NULL;
	}
	printer->at += length;
	return from;
}

static const char *take_atom(struct printer *printer, size_t *length)
{
	uint64_t tag = take_number(printer, 1);
	if (tag != LORG_EXTERNAL_ATOM && tag != LORG_EXTERNAL_SMALL_ATOM)
		printer->bad = true;
	*length = (size_t)take_number(printer, tag == LORG_EXTERNAL_ATOM ? 2 : 1);
	return (const char *)take_bytes(printer, *length);
}

static bool push(struct printer *printer, enum part_kind kind, uint64_t left)
{
	if (printer->depth == printer->room) {
		size_t room = printer->room ? 2 * printer->room : 32;
		struct frame *frames = realloc(printer->frames, room * sizeof *frames);
		if (!frames) {
			printer->text.failed = true;
			return false;
		}
		printer->frames = frames;
		printer->room = room;
	}
	printer->frames[printer->depth++] = (struct frame){kind, left, 0, printer->text.length};
	return true;
}

static bool for_people(const struct printer *printer)
{
	return printer->form == LORG_TEXT_PEOPLE;
}

static void print_atom(struct printer *printer)
{
	size_t length;
	const char *data = take_atom(printer, &length);
	if (data)
		add_atom(&printer->text, data, length, !for_people(printer));
}

static void print_big(struct printer *printer, uint64_t length)
{
	bool negative = take_number(printer, 1) & 1;
	const uint8_t *bytes = take_bytes(printer, length);
	mpz_t value;
	if (!bytes)
		return;
	mpz_init(value);
	mpz_import(value, length, -1, 1, 0, 0, bytes);
	if (negative)
		mpz_neg(value, value);
	char *digits = malloc(mpz_sizeinbase(value, 10) + 2);
	if (digits)
		add_text(&printer->text, mpz_get_str(digits, 10, value));
	else
		printer->text.failed = true;
	free(digits);
	mpz_clear(value);
}

static void print_float(struct printer *printer)
{
	char text[LORG_FLOAT_TEXT];
	double value;
	uint64_t bits = take_number(printer, 8);
	memcpy(&value, &bits, sizeof value);
	if (value - value != 0)
		printer->bad = true;
	if (printer->bad)
		return;
	lorg_float_text(value, text);
	add_text(&printer->text, text);
}

/* ---- strings and binaries ------------------------------------------------------------- */

/* Whether bytes are text: *wide when it is UTF-8 beyond ASCII. */
static bool is_text(const uint8_t *bytes, size_t length, bool *wide)
{
	uint32_t code;
	*wide = false;
	for (size_t i = 0; i < length;) {
		int width = character_read((const char *)bytes + i, length - i, &code);
		if (!width || !character_printable(code))
			return false;
		*wide |= width > 1;
		i += (size_t)width;
	}
	return true;
}

static void print_byte_list(struct printer *printer, const uint8_t *bytes, size_t length)
{
	add(&printer->text, "[", 1);
	for (size_t i = 0; i < length && !printer->text.failed; i++)
		add_format(&printer->text, i ? ",%u" : "%u", bytes[i]);
	add(&printer->text, "]", 1);
}

/* A list of bytes: each is a character of its own. */
static void print_byte_string(struct printer *printer, const uint8_t *bytes, size_t length)
{
	add(&printer->text, "\"", 1);
	for (size_t i = 0; i < length; i++)
		add_quoted_character(&printer->text, bytes[i], '"', false);
	add(&printer->text, "\"", 1);
}

static void print_string(struct printer *printer)
{
	size_t length = (size_t)take_number(printer, 2);
	const uint8_t *bytes = take_bytes(printer, length);
	bool printable = bytes && length && for_people(printer), wide;
	if (!bytes)
		return;
	/* What programs keep as text is UTF-8 nowadays. */
	if (printable && is_text(bytes, length, &wide)) {
		add_quoted(&printer->text, (const char *)bytes, length, '"', false);
		return;
	}
	for (size_t i = 0; printable && i < length; i++)
		printable = character_printable(bytes[i]);
	if (printable)
		print_byte_string(printer, bytes, length);
	else
		print_byte_list(printer, bytes, length);
}

/* A string of the program. */
static void print_program_text(struct printer *printer)
{
	size_t length = (size_t)take_number(printer, 2);
	const uint8_t *bytes = take_bytes(printer, length);
	if (bytes && for_people(printer))
		add_quoted(&printer->text, (const char *)bytes, length, '"', false);
	else if (bytes)
		print_byte_list(printer, bytes, length);
}

static void print_binary_bytes(struct printer *printer, const uint8_t *bytes, size_t length, unsigned last_bits)
{
	bool wide;
	add(&printer->text, "<<", 2);
	if (for_people(printer) && last_bits == 8 && length && is_text(bytes, length, &wide)) {
		add_quoted(&printer->text, (const char *)bytes, length, '"', false);
		add_text(&printer->text, wide ? "/utf8" : "");
		length = 0;
	}
	for (size_t i = 0; i < length && !printer->text.failed; i++) {
		bool partial = i + 1 == length && last_bits < 8;
		add_format(&printer->text, i ? ",%u" : "%u", partial ? (unsigned)bytes[i] >> (8 - last_bits) : bytes[i]);
		if (partial)
			add_format(&printer->text, ":%u", last_bits);
	}
	add(&printer->text, ">>", 2);
}

static void print_binary(struct printer *printer, bool with_bits)
{
	size_t length = (size_t)take_number(printer, 4);
	unsigned bits = with_bits ? (unsigned)take_number(printer, 1) : 8;
	const uint8_t *bytes = take_bytes(printer, length);
	if (bits < 1 || bits > 8 || (with_bits && !length))
		printer->bad = true;
	else if (bytes)
		print_binary_bytes(printer, bytes, length, bits);
}

static void print_cut(struct printer *printer, bool is_string)
{
	uint64_t true_length = take_number(printer, 8);
	size_t length = (size_t)take_number(printer, 4);
	const uint8_t *bytes = take_bytes(printer, length);
	if (!bytes)
		return;
	if (!for_people(printer))
		add_text(&printer->text, "{cut,");
	if (!is_string)
		print_binary_bytes(printer, bytes, length, 8);
	else if (for_people(printer))
		add_quoted(&printer->text, (const char *)bytes, length, '"', false);
	else
		print_byte_list(printer, bytes, length);
	if (for_people(printer))
		add_format(&printer->text, "...+%" PRIu64, true_length > length ? true_length - length : 0);
	else
		add_format(&printer->text, ",%" PRIu64 "}", true_length);
}

/* ---- pids and the like ------------------------------------------------------------------ */

static void print_pid(struct printer *printer)
{
	size_t length;
	take_atom(printer, &length);
	uint32_t thread = (uint32_t)take_number(printer, 4), process = (uint32_t)take_number(printer, 4);
	uint32_t program = (uint32_t)take_number(printer, 4);
	add_format(&printer->text, "<%u.%u", program, thread);
	if (process || !for_people(printer))
		add_format(&printer->text, ".%u", process);
	add(&printer->text, ">", 1);
}

static void print_port(struct printer *printer, bool with_generation)
{
	size_t length;
	take_atom(printer, &length);
	uint32_t generation = with_generation ? (uint32_t)take_number(printer, 4) : 0;
	uint32_t descriptor = (uint32_t)take_number(printer, 4), program = (uint32_t)take_number(printer, 4);
	add_format(&printer->text, "#Port<%u.%u", program, descriptor);
	if (with_generation)
		add_format(&printer->text, ".%u", generation);
	add(&printer->text, ">", 1);
}

static void print_reference(struct printer *printer)
{
	uint32_t numbers[LORG_REFERENCE_MAX];
	uint32_t count = (uint32_t)take_number(printer, 2) + 1;
	size_t length;
	if (count > LORG_REFERENCE_MAX || !take_atom(printer, &length)) {
		printer->bad = true;
		return;
	}
	numbers[0] = (uint32_t)take_number(printer, 4);
	for (uint32_t i = count; i-- > 1;)
		numbers[i] = (uint32_t)take_number(printer, 4);
	add_text(&printer->text, "#Ref<");
	for (uint32_t i = 0; i < count; i++)
		add_format(&printer->text, i ? ".%u" : "%u", numbers[i]);
	add(&printer->text, ">", 1);
}

static void print_export(struct printer *printer)
{
	add_text(&printer->text, "fun ");
	print_atom(printer);
	add(&printer->text, ":", 1);
	print_atom(printer);
	uint64_t tag = take_number(printer, 1);
	if (tag != LORG_EXTERNAL_SMALL_INTEGER && tag != LORG_EXTERNAL_INTEGER)
		printer->bad = true;
	add_format(&printer->text, "/%u", (unsigned)take_number(printer, tag == LORG_EXTERNAL_INTEGER ? 4 : 1));
}

static void print_fun_text(struct printer *printer)
{
	size_t length = (size_t)take_number(printer, 2);
	const uint8_t *bytes = take_bytes(printer, length);
	if (!bytes)
		return;
	add_text(&printer->text, "#Fun<");
	add_shown(&printer->text, (const char *)bytes, length);
	add(&printer->text, ">", 1);
}

static void print_code_address(struct printer *printer)
{
	uint64_t address = take_number(printer, 8);
	const char *name = printer->names && !printer->bad ? printer->names->name(printer->names->context, address) : NULL;
	if (name)
		add_text(&printer->text, name);
	else
		add_format(&printer->text, "{code,16#%" PRIx64 "}", address);
}

static void print_code_line(struct printer *printer)
{
	struct lorg_code_names lines, *own = NULL;
	const struct lorg_code_names *names = printer->names;
	if (names && names->line) {
		lines = (struct lorg_code_names){names->line, names->context, names->line};
		own = &lines;
	}
	printer->names = own ? own : names;
	print_code_address(printer);
	printer->names = names;
}

static void print_pointer(struct printer *printer, const char *behind)
{
	uint64_t address = take_number(printer, 8);
	if (for_people(printer))
		add_format(&printer->text, "0x%" PRIx64 "%s", address, behind);
	else
		add_format(&printer->text, "%" PRIu64, address);
}

static void print_flags(struct printer *printer)
{
	uint64_t bits = take_number(printer, 8);
	size_t length = (size_t)take_number(printer, 2);
	const uint8_t *names = take_bytes(printer, length);
	if (!names)
		return;
	if (for_people(printer))
		add_shown(&printer->text, (const char *)names, length);
	else
		add_format(&printer->text, "%" PRIu64, bits);
}

static void print_program_character(struct printer *printer)
{
	uint32_t code = (uint32_t)take_number(printer, 4);
	if (!for_people(printer)) {
		add_format(&printer->text, "%u", (unsigned)code);
		return;
	}
	add(&printer->text, "'", 1);
	add_quoted_character(&printer->text, code, '\'', false);
	add(&printer->text, "'", 1);
}

/* ---- terms with parts --------------------------------------------------------------------- */

/* One element of a list that begins here, if it is a character to be printed; moves *at behind it. */
static bool printable_element(const uint8_t **at, const uint8_t *end, uint32_t *code)
{
	const uint8_t *from = *at;
	if (end - from >= 2 && from[0] == LORG_EXTERNAL_SMALL_INTEGER) {
		*code = from[1];
		*at += 2;
	} else if (end - from >= 5 && from[0] == LORG_EXTERNAL_INTEGER) {
		*code = (uint32_t)from[1] << 24 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 8 | from[4];
		*at += 5;
	} else {
		return false;
	}
	return character_printable(*code);
}

/* A list of characters, as people want to see it. False, nothing taken, if it is another list. */
static bool print_character_list(struct printer *printer, uint64_t count)
{
	const uint8_t *at = printer->at;
	uint32_t code;
	for (uint64_t i = 0; i < count; i++)
		if (!printable_element(&at, printer->end, &code))
			return false;
	if (at == printer->end || *at != LORG_EXTERNAL_NIL)
		return false;
	add(&printer->text, "\"", 1);
	for (uint64_t i = 0; i < count && printable_element(&printer->at, printer->end, &code); i++)
		add_quoted_character(&printer->text, code, '"', false);
	add(&printer->text, "\"", 1);
	printer->at++;
	return true;
}

static void print_list(struct printer *printer)
{
	uint64_t count = take_number(printer, 4);
	if (!count)
		printer->bad = true;
	if (printer->bad || (for_people(printer) && print_character_list(printer, count)))
		return;
	add(&printer->text, "[", 1);
	push(printer, PART_LIST, count);
}

static void print_tuple(struct printer *printer, uint64_t arity)
{
	add(&printer->text, "{", 1);
	push(printer, PART_TUPLE, arity);
}

static void print_map(struct printer *printer)
{
	uint64_t count = take_number(printer, 4);
	add_text(&printer->text, "#{");
	push(printer, PART_MAP, 2 * count);
}

static void print_named_tuple(struct printer *printer)
{
	uint64_t count = take_number(printer, 4);
	size_t length;
	const char *tag = take_atom(printer, &length);
	if (!tag)
		return;
	add(&printer->text, "{", 1);
	if (!for_people(printer)) {
		add_atom(&printer->text, tag, length, true);
		add_text(&printer->text, count ? "," : "");
	}
	push(printer, for_people(printer) ? PART_NAMED : PART_NAMED_SILENT, count);
}

static void print_pointer_to(struct printer *printer)
{
	print_pointer(printer, "->");
	push(printer, for_people(printer) ? PART_POINTED : PART_HIDDEN, 1);
}

/* One term, or the beginning of one with parts. */
static void print_one(struct printer *printer)
{
	uint64_t tag = take_number(printer, 1);
	switch (printer->bad ? 0 : tag) {
	case LORG_EXTERNAL_SMALL_INTEGER:
		add_format(&printer->text, "%u", (unsigned)take_number(printer, 1));
		break;
	case LORG_EXTERNAL_INTEGER:
		add_format(&printer->text, "%d", (int32_t)take_number(printer, 4));
		break;
	case LORG_EXTERNAL_SMALL_BIG:
		print_big(printer, take_number(printer, 1));
		break;
	case LORG_EXTERNAL_LARGE_BIG:
		print_big(printer, take_number(printer, 4));
		break;
	case LORG_EXTERNAL_FLOAT:
		print_float(printer);
		break;
	case LORG_EXTERNAL_ATOM:
	case LORG_EXTERNAL_SMALL_ATOM:
		printer->at--;
		print_atom(printer);
		break;
	case LORG_EXTERNAL_NIL:
		add_text(&printer->text, "[]");
		break;
	case LORG_EXTERNAL_STRING:
		print_string(printer);
		break;
	case LORG_EXTERNAL_TEXT:
		print_program_text(printer);
		break;
	case LORG_EXTERNAL_LIST:
		print_list(printer);
		break;
	case LORG_EXTERNAL_SMALL_TUPLE:
		print_tuple(printer, take_number(printer, 1));
		break;
	case LORG_EXTERNAL_LARGE_TUPLE:
		print_tuple(printer, take_number(printer, 4));
		break;
	case LORG_EXTERNAL_MAP:
		print_map(printer);
		break;
	case LORG_EXTERNAL_BINARY:
		print_binary(printer, false);
		break;
	case LORG_EXTERNAL_BIT_BINARY:
		print_binary(printer, true);
		break;
	case LORG_EXTERNAL_PID:
		print_pid(printer);
		break;
	case LORG_EXTERNAL_PORT:
		print_port(printer, false);
		break;
	case LORG_EXTERNAL_V4_PORT:
		print_port(printer, true);
		break;
	case LORG_EXTERNAL_REFERENCE:
		print_reference(printer);
		break;
	case LORG_EXTERNAL_EXPORT:
		print_export(printer);
		break;
	case LORG_EXTERNAL_FUN_TEXT:
		print_fun_text(printer);
		break;
	case LORG_EXTERNAL_CODE_ADDRESS:
		print_code_address(printer);
		break;
	case LORG_EXTERNAL_CODE_LINE:
		print_code_line(printer);
		break;
	case LORG_EXTERNAL_POINTER:
		print_pointer(printer, "");
		break;
	case LORG_EXTERNAL_POINTER_UNREADABLE:
		print_pointer(printer, "(unreadable)");
		break;
	case LORG_EXTERNAL_POINTER_TO:
		print_pointer_to(printer);
		break;
	case LORG_EXTERNAL_CUT_STRING:
		print_cut(printer, true);
		break;
	case LORG_EXTERNAL_CUT_BINARY:
		print_cut(printer, false);
		break;
	case LORG_EXTERNAL_NAMED_TUPLE:
		print_named_tuple(printer);
		break;
	case LORG_EXTERNAL_CHARACTER:
		print_program_character(printer);
		break;
	case LORG_EXTERNAL_FLAGS:
		print_flags(printer);
		break;
	default:
		printer->bad = true;
		break;
	}
}

/* A name before a value: MEMBER=. */
static void print_name(struct printer *printer, bool shown)
{
	size_t length;
	const char *name = take_atom(printer, &length);
	if (!name || !shown || !length)
		return;
	add_shown(&printer->text, name, length);
	add(&printer->text, "=", 1);
}

/* The tail of a list: what stands there, if anything is left. A list or string goes on in the same brackets. */
static void print_tail(struct printer *printer, struct frame *frame)
{
	uint8_t tag = printer->at < printer->end ? *printer->at : 0;
	if (tag == LORG_EXTERNAL_NIL) {
		printer->at++;
	} else if (tag == LORG_EXTERNAL_LIST) {
		printer->at++;
		frame->left = take_number(printer, 4);
		printer->bad |= !frame->left;
	} else if (tag == LORG_EXTERNAL_STRING) {
		printer->at++;
		size_t length = (size_t)take_number(printer, 2);
		const uint8_t *bytes = take_bytes(printer, length);
		for (size_t i = 0; bytes && i < length; i++)
			add_format(&printer->text, ",%u", bytes[i]);
	} else {
		add(&printer->text, "|", 1);
		frame->kind = PART_TAIL;
		frame->left = 1;
	}
}

static const char *closing(enum part_kind kind)
{
	switch (kind) {
	case PART_LIST:
	case PART_TAIL:
		return "]";
	case PART_POINTED:
	case PART_HIDDEN:
		return "";
	default:
		return "}";
	}
}

/* What stands between parts, before the next one. */
static void print_separator(struct printer *printer, const struct frame *frame)
{
	if (frame->kind == PART_MAP && frame->done % 2)
		add_text(&printer->text, " => ");
	else if (frame->done && frame->kind != PART_TAIL)
		add(&printer->text, ",", 1);
	if (frame->kind == PART_NAMED || frame->kind == PART_NAMED_SILENT)
		print_name(printer, frame->kind == PART_NAMED);
}

/* Closes what is complete. False when everything is. */
static bool next_part(struct printer *printer)
{
	while (printer->depth && !printer->bad && !printer->text.failed) {
		struct frame *frame = &printer->frames[printer->depth - 1];
		if (!frame->left && frame->kind == PART_LIST)
			print_tail(printer, frame);
		if (frame->left && !printer->bad) {
			frame->left--;
			print_separator(printer, frame);
			frame->done++;
			return true;
		}
		if (frame->kind == PART_HIDDEN) {
			printer->text.length = frame->length;
			printer->text.data[frame->length] = 0;
		}
		add_text(&printer->text, closing(frame->kind));
		printer->depth--;
	}
	return false;
}

/* Prints one term. The text is terminated, to be freed by the caller; NULL on failure. */
static char *print(struct printer *printer, size_t *length)
{
	add(&printer->text, "", 0);
	do
		print_one(printer);
	while (next_part(printer));
	free(printer->frames);
	if (printer->bad || printer->text.failed) {
		free(printer->text.data);
		return NULL;
	}
	if (length)
		*length = printer->text.length;
	return printer->text.data;
}

char *lorg_external_text(const uint8_t **at, const uint8_t *end, enum lorg_text_form form, const struct lorg_code_names *names,
	size_t *length)
{
	struct printer printer = {.at = *at, .end = end, .form = form, .names = names};
	char *text = print(&printer, length);
	*at = printer.at;
	return text;
}

char *lorg_term_text(struct lorg_terms *terms, lorg_term term, enum lorg_text_form form, const struct lorg_code_names *names,
	size_t *length)
{
	struct lorg_external out = {.size = 1024};
	for (;;) {
		uint8_t *bytes = realloc(out.bytes, out.size);
		if (!bytes)
			break;
		out.bytes = bytes;
		out.truncated = false;
		if (lorg_put_term(&out, terms, term)) {
			const uint8_t *at = out.bytes;
			char *text = lorg_external_text(&at, out.bytes + out.used, form, names, length);
			free(out.bytes);
			return text;
		}
		if (!out.truncated || out.size > LORG_TEXT_MAX)
			break;
		out.size *= 4;
	}
	free(out.bytes);
	return NULL;
}
