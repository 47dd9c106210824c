/* SPDX-License-Identifier: MIT */
/* Values of calls: one walk over their encoding for JSON, the printer of terms for the rest. */
#include "collector/format/values.h"

#include <inttypes.h>
#include <lorg/term.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/printer.h"

enum { NESTING_MAXIMUM = 64 };

/* ---- text -------------------------------------------------------------- */

static const char *code_name(void *pointer, uint64_t address)
{
	static char text[512];
	const struct values_context *context = pointer;
	const struct place *place = names_address(context->formatter->names, context->image, address, context->tick, 0);
	if (!place->named && !strcmp(place->module, "?"))
		return NULL;
	snprintf(text, sizeof text, place->offset ? "%s:%s+%" PRIu64 : "%s:%s", place->module, place->function, place->offset);
	return text;
}

static const char *arity_text(const struct place *place, char text[16])
{
	if (place->arity < 0)
		return "'_'";
	snprintf(text, 16, "%d", place->arity);
	return text;
}

static const char *code_mfa(void *pointer, uint64_t address)
{
	static char text[1024];
	const struct values_context *context = pointer;
	const struct place *place = names_address(context->formatter->names, context->image, address, context->tick, PLACE_ARITY);
	char *module = lorg_atom_quoted(place->module, strlen(place->module));
	char *function = lorg_atom_quoted(place->function, strlen(place->function));
	char arity[16];
	int whole = module && function &&
		    snprintf(text, sizeof text, "{%s,%s,%s}", module, function, arity_text(place, arity)) < (int)sizeof text;
	free(module);
	free(function);
	return whole ? text : NULL;
}

static const char *code_source(void *pointer, uint64_t address)
{
	static char text[1024];
	const struct values_context *context = pointer;
	const struct place *place = names_address(context->formatter->names, context->image, address, context->tick, 1);
	const char *name = code_name(pointer, address);
	if (!name || !place->source)
		return name;
	snprintf(text, sizeof text, "%s (%s:%d)", name, place->source, place->line);
	return text;
}

/* {M,F,A,{File,Line}}, or undefined in place of the last. */
static const char *code_line(void *pointer, uint64_t address)
{
	static char text[3072];
	const struct values_context *context = pointer;
	const struct place *place =
		names_address(context->formatter->names, context->image, address, context->tick, PLACE_LINE | PLACE_ARITY);
	char *module = lorg_atom_quoted(place->module, strlen(place->module));
	char *function = lorg_atom_quoted(place->function, strlen(place->function));
	char file[1024], arity[16];
	size_t length = 0;
	for (const char *at = place->source; at && *at && length + 2 < sizeof file; at++) {
		if (*at == '"' || *at == '\\')
			file[length++] = '\\';
		file[length++] = *at;
	}
	file[length] = 0;
	int size = !module || !function ? -1
		   : place->source ? snprintf(text, sizeof text, "{%s,%s,%s,{\"%s\",%d}}", module, function, arity_text(place, arity), file,
						place->line)
				   : snprintf(text, sizeof text, "{%s,%s,%s,undefined}", module, function, arity_text(place, arity));
	free(module);
	free(function);
	return size > 0 && size < (int)sizeof text ? text : NULL;
}

static struct lorg_code_names code_names(const struct values_context *context, enum lorg_text_form form)
{
	int people = form == LORG_TEXT_PEOPLE;
	return (struct lorg_code_names){people ? code_name : code_mfa, (void *)(uintptr_t)context, people ? code_source : code_line};
}

static void print_all(const struct values_context *context, const uint8_t *terms, size_t length, enum lorg_text_form form)
{
	const struct lorg_code_names names = code_names(context, form);
	struct output *output = context->formatter->output;
	const uint8_t *at = terms, *end = terms + length;
	while (at < end) {
		size_t size = 0;
		char *text = lorg_external_text(&at, end, form, &names, &size);
		if (!text) {
			output_text(output, "...");
			return;
		}
		if (form == LORG_TEXT_PEOPLE)
			output_safe(output, text, size, 0);
		else
			output_bytes(output, text, size);
		free(text);
		if (at < end)
			output_text(output, form == LORG_TEXT_PEOPLE ? ", " : ",");
	}
}

void values_people(const struct values_context *context, const uint8_t *terms, size_t length)
{
	print_all(context, terms, length, LORG_TEXT_PEOPLE);
}

void values_erlang(const struct values_context *context, const uint8_t *terms, size_t length)
{
	print_all(context, terms, length, LORG_TEXT_ERLANG);
}

/* ---- a walk over the encoding ------------------------------------------ */

struct walk {
	const uint8_t *at, *end;
	int damaged;
};

/* Big-endian. */
static uint64_t take(struct walk *walk, unsigned size)
{
	uint64_t value = 0;
	if ((size_t)(walk->end - walk->at) < size) {
		walk->damaged = 1;
		walk->at = walk->end;
		return 0;
	}
	while (size--)
		value = value << 8 | *walk->at++;
	return value;
}

static const uint8_t *take_bytes(struct walk *walk, uint64_t size)
{
	const uint8_t *bytes = walk->at;
	if ((uint64_t)(walk->end - walk->at) < size) {
		walk->damaged = 1;
		walk->at = walk->end;
		return NULL;
	}
	walk->at += size;
	return bytes;
}

struct atom {
	const uint8_t *text;
	size_t length;
};

static struct atom take_atom(struct walk *walk)
{
	uint64_t tag = take(walk, 1);
	if (tag != LORG_EXTERNAL_ATOM && tag != LORG_EXTERNAL_SMALL_ATOM) {
		walk->damaged = 1;
		return (struct atom){NULL, 0};
	}
	size_t length = take(walk, tag == LORG_EXTERNAL_ATOM ? 2 : 1);
	return (struct atom){take_bytes(walk, length), length};
}

static int atom_is(struct atom atom, const char *text)
{
	return atom.text && atom.length == strlen(text) && !memcmp(atom.text, text, atom.length);
}

/* What JSON has no form for; the walk goes on behind it. */
static void json_other(const struct values_context *context, struct walk *walk)
{
	const struct lorg_code_names names = {code_name, (void *)(uintptr_t)context, code_source};
	size_t size = 0;
	char *text = lorg_external_text(&walk->at, walk->end, LORG_TEXT_ERLANG, &names, &size);
	if (text)
		json_bytes(context->formatter->json, text, size);
	else
		walk->damaged = 1;
	free(text);
}

static void json_term(const struct values_context *context, struct walk *walk, unsigned nesting);

static void json_atom(struct json *json, struct atom atom)
{
	if (atom_is(atom, "true") || atom_is(atom, "false"))
		json_boolean(json, atom_is(atom, "true"));
	else if (!atom.text || atom_is(atom, "?"))
		json_null(json);
	else
		json_bytes(json, atom.text, atom.length);
}

static void json_float(struct json *json, uint64_t bits)
{
	double value;
	char text[LORG_FLOAT_TEXT];
	memcpy(&value, &bits, sizeof value);
	if (value - value != 0) { /* infinite or not a number: JSON has neither */
		json_null(json);
		return;
	}
	lorg_float_text(value, text);
	json_number_text(json, text);
}

static void json_hexadecimal(struct json *json, uint64_t address)
{
	char text[20];
	snprintf(text, sizeof text, "0x%" PRIx64, address);
	json_text(json, text);
}

static void json_code(const struct values_context *context, uint64_t address)
{
	const char *name = code_name((void *)(uintptr_t)context, address);
	if (name)
		json_text(context->formatter->json, name);
	else
		json_hexadecimal(context->formatter->json, address);
}

static void json_line(const struct values_context *context, uint64_t address)
{
	const struct place *place = names_address(context->formatter->names, context->image, address, context->tick, 1);
	struct json *json = context->formatter->json;
	json_begin(json);
	json_key(json, "module");
	json_text(json, place->module);
	json_key(json, "function");
	json_text(json, place->function);
	if (place->source) {
		json_key(json, "file");
		json_text(json, place->source);
		json_key(json, "line");
		json_signed(json, place->line);
	}
	json_end(json);
}

static void json_elements(const struct values_context *context, struct walk *walk, uint64_t count, unsigned nesting)
{
	json_begin_list(context->formatter->json);
	for (uint64_t i = 0; i < count && !walk->damaged; i++)
		json_term(context, walk, nesting);
	json_end_list(context->formatter->json);
}

/* A proper list. */
static void json_list(const struct values_context *context, struct walk *walk, unsigned nesting)
{
	uint64_t count = take(walk, 4);
	json_elements(context, walk, count, nesting);
	if (walk->at < walk->end && *walk->at == LORG_EXTERNAL_NIL)
		walk->at++;
	else
		walk->damaged = 1;
}

/* A list of bytes: Erlang has no other strings. */
static void json_byte_list(struct json *json, struct walk *walk)
{
	uint64_t length = take(walk, 2);
	const uint8_t *bytes = take_bytes(walk, length);
	json_begin_list(json);
	for (uint64_t i = 0; bytes && i < length; i++)
		json_number(json, bytes[i]);
	json_end_list(json);
}

static int list_is_proper(struct walk walk)
{
	uint64_t count = take(&walk, 4);
	for (uint64_t i = 0; i < count; i++) {
		char *text = lorg_external_text(&walk.at, walk.end, LORG_TEXT_ERLANG, NULL, NULL);
		if (!text)
			return 0;
		free(text);
	}
	return walk.at < walk.end && *walk.at == LORG_EXTERNAL_NIL;
}

static void json_struct(const struct values_context *context, struct walk *walk, unsigned nesting)
{
	struct json *json = context->formatter->json;
	uint64_t count = take(walk, 4);
	struct atom tag = take_atom(walk);
	json_begin(json);
	json_key(json, "struct"); /* no member can have that name */
	json_bytes(json, tag.text ? (const char *)tag.text : "", tag.length);
	for (uint64_t i = 0; i < count && !walk->damaged; i++) {
		struct atom name = take_atom(walk);
		if (!name.text)
			break;
		json_bytes(json, name.text, name.length);
		json_term(context, walk, nesting);
	}
	json_end(json);
}

static void json_cut(struct json *json, struct walk *walk)
{
	uint64_t whole = take(walk, 8), length = take(walk, 4);
	const uint8_t *bytes = take_bytes(walk, length);
	json_begin(json);
	json_key(json, "text");
	json_bytes(json, bytes ? (const char *)bytes : "", bytes ? length : 0);
	json_key(json, "length");
	json_number(json, whole);
	json_end(json);
}

static void json_text_of(struct json *json, struct walk *walk, unsigned length_size)
{
	uint64_t length = take(walk, length_size);
	const uint8_t *bytes = take_bytes(walk, length);
	json_bytes(json, bytes ? (const char *)bytes : "", bytes ? length : 0);
}

static void json_pointer_to(const struct values_context *context, struct walk *walk, unsigned nesting)
{
	struct json *json = context->formatter->json;
	json_begin(json);
	json_key(json, "address");
	json_hexadecimal(json, take(walk, 8));
	json_key(json, "to");
	json_term(context, walk, nesting);
	json_end(json);
}

static void json_unreadable(struct json *json, uint64_t address)
{
	json_begin(json);
	json_key(json, "address");
	json_hexadecimal(json, address);
	json_key(json, "unreadable");
	json_boolean(json, 1);
	json_end(json);
}

/* Up to eight bytes, least significant first; else the walk is where it was, and 0. */
static int json_small_big(struct json *json, struct walk *walk)
{
	struct walk look = *walk;
	uint64_t size = take(&look, 1), sign = take(&look, 1), value = 0;
	const uint8_t *bytes = take_bytes(&look, size);
	if (!bytes || size > 8)
		return 0;
	for (uint64_t i = size; i-- > 0;)
		value = value << 8 | bytes[i];
	if (sign && value > (uint64_t)INT64_MAX + 1)
		return 0;
	if (sign)
		json_signed(json, (int64_t)(0 - value));
	else
		json_number(json, value);
	*walk = look;
	return 1;
}

static void json_term(const struct values_context *context, struct walk *walk, unsigned nesting)
{
	struct json *json = context->formatter->json;
	const uint8_t *start = walk->at;
	if (nesting == 0 || walk->at == walk->end) {
		walk->damaged = 1;
		json_null(json);
		return;
	}
	switch (take(walk, 1)) {
	case LORG_EXTERNAL_SMALL_INTEGER:
		json_number(json, take(walk, 1));
		return;
	case LORG_EXTERNAL_INTEGER:
		json_signed(json, (int32_t)take(walk, 4));
		return;
	case LORG_EXTERNAL_SMALL_BIG:
		if (json_small_big(json, walk))
			return;
		break;
	case LORG_EXTERNAL_FLOAT:
		json_float(json, take(walk, 8));
		return;
	case LORG_EXTERNAL_ATOM:
	case LORG_EXTERNAL_SMALL_ATOM:
		walk->at = start;
		json_atom(json, take_atom(walk));
		return;
	case LORG_EXTERNAL_NIL:
		json_elements(context, walk, 0, nesting);
		return;
	case LORG_EXTERNAL_STRING:
		json_byte_list(json, walk);
		return;
	case LORG_EXTERNAL_LIST:
		if (!list_is_proper(*walk))
			break;
		json_list(context, walk, nesting - 1);
		return;
	case LORG_EXTERNAL_SMALL_TUPLE:
		json_elements(context, walk, take(walk, 1), nesting - 1);
		return;
	case LORG_EXTERNAL_LARGE_TUPLE:
		json_elements(context, walk, take(walk, 4), nesting - 1);
		return;
	case LORG_EXTERNAL_NAMED_TUPLE:
		json_struct(context, walk, nesting - 1);
		return;
	case LORG_EXTERNAL_BINARY:
		json_text_of(json, walk, 4);
		return;
	case LORG_EXTERNAL_TEXT:
		json_text_of(json, walk, 2);
		return;
	case LORG_EXTERNAL_CUT_STRING:
	case LORG_EXTERNAL_CUT_BINARY:
		json_cut(json, walk);
		return;
	case LORG_EXTERNAL_CHARACTER:
		json_number(json, take(walk, 4));
		return;
	case LORG_EXTERNAL_FLAGS:
		take(walk, 8);
		json_text_of(json, walk, 2);
		return;
	case LORG_EXTERNAL_POINTER:
		json_hexadecimal(json, take(walk, 8));
		return;
	case LORG_EXTERNAL_POINTER_TO:
		json_pointer_to(context, walk, nesting - 1);
		return;
	case LORG_EXTERNAL_POINTER_UNREADABLE:
		json_unreadable(json, take(walk, 8));
		return;
	case LORG_EXTERNAL_CODE_ADDRESS:
		json_code(context, take(walk, 8));
		return;
	case LORG_EXTERNAL_CODE_LINE:
		json_line(context, take(walk, 8));
		return;
	default:
		break;
	}
	walk->at = start;
	json_other(context, walk);
}

size_t values_count(const uint8_t *terms, size_t length)
{
	const uint8_t *at = terms, *end = terms + length;
	size_t count = 0;
	for (; at < end; count++) {
		char *text = lorg_external_text(&at, end, LORG_TEXT_ERLANG, NULL, NULL);
		if (!text)
			break;
		free(text);
	}
	return count;
}

size_t values_before_last(const uint8_t *terms, size_t length)
{
	const uint8_t *at = terms, *end = terms + length, *last = terms;
	while (at < end) {
		last = at;
		char *text = lorg_external_text(&at, end, LORG_TEXT_ERLANG, NULL, NULL);
		if (!text)
			return length;
		free(text);
	}
	return (size_t)(last - terms);
}

void values_json_list(const struct values_context *context, const uint8_t *terms, size_t length)
{
	struct walk walk = {terms, terms + length, 0};
	json_begin_list(context->formatter->json);
	while (walk.at < walk.end && !walk.damaged)
		json_term(context, &walk, NESTING_MAXIMUM);
	json_end_list(context->formatter->json);
}

void values_json(const struct values_context *context, const uint8_t *terms, size_t length)
{
	struct walk walk = {terms, terms + length, 0};
	if (length == 0)
		json_null(context->formatter->json);
	else
		json_term(context, &walk, NESTING_MAXIMUM);
}
