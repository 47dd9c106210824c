/* SPDX-License-Identifier: MIT */
/*
 * short_form.c: conditions for people: one guard in Erlang's notation, on arguments by number or name.
 *
 *     arg0 =:= "x" andalso arg1 > 3
 *     arg0->next->length > 10 orelse arg1[2] == $a
 *
 * Grammar, from what binds least (Erlang's operators and precedence):
 *     orelse | andalso | comparison | + - bor bxor bsl bsr or xor | * / div rem band and | + - bnot not | postfix
 *     postfix:  ->member  .member  [index]
 *     primary:  number, $c, "string", atom, 'atom', <<binary>>, {...}, [...|...], #{k => v}, (...), name(...), argN, parameter
 */
#include "collector/match/compilation.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/character.h"

enum token {
	TOKEN_END,
	TOKEN_WORD,	/* a name that is not quoted */
	TOKEN_LITERAL,	/* text of one Erlang term */
	TOKEN_OPERATOR, /* and all punctuation */
	TOKEN_BAD,	/* an error was reported */
};

enum { BRACKETS_MAX = 200 }; /* how deep a condition may nest */

struct parser {
	struct compilation *compilation;
	enum token token;
	const char *start; /* of the token */
	size_t length;
	const char *next;  /* behind it */
	const char *end;
	uint32_t depth;
	uint32_t inside; /* brackets of tuples, lists, maps and calls that are open */
};

/*
 * What a part of a condition is: a value, or a place in memory of a type of C, which becomes a value when it is used. A
 * place is `address` plus `offset`. A value may have a type as well, which tells what -> and [] mean.
 */
struct operand {
	struct expression *value; /* NULL for a place */
	struct expression *address;
	int64_t offset;
	bool typed;
	struct match_type type;
	/* An argument: what [] and -> start from is its register, not its term. */
	bool is_argument;
	uint32_t argument, place;
};

static struct operand parse_expression(struct parser *parser, unsigned level);

static struct operand bad(void)
{
	return (struct operand){.value = expression_bad()};
}

static struct operand value_of_expression(struct expression *expression)
{
	return (struct operand){.value = expression, .place = expression->place};
}

static uint32_t place_of(const struct parser *parser)
{
	return (uint32_t)(parser->start - parser->compilation->text);
}

/* ---- tokens ---------------------------------------------------------------------- */

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '@' || (unsigned char)c >= 0x80;
}

static void skip_space(struct parser *parser)
{
	while (parser->next < parser->end && isspace((unsigned char)*parser->next))
		parser->next++;
}

/* From the quote that opens to behind the one that closes; NULL if none does. */
static const char *behind_quoted(const struct parser *parser, const char *at)
{
	char quote = *at++;
	for (; at < parser->end; at++) {
		if (*at == '\\')
			at++;
		else if (*at == quote)
			return at + 1;
	}
	return NULL;
}

static const char *behind_number(const struct parser *parser, const char *at)
{
	for (; at < parser->end; at++) {
		if (isalnum((unsigned char)*at) || *at == '#' || *at == '_')
			continue;
		if (*at == '.' && at + 1 < parser->end && isdigit((unsigned char)at[1]))
			continue;
		if ((*at == '-' || *at == '+') && (at[-1] == 'e' || at[-1] == 'E') && memchr(parser->start, '.', (size_t)(at - parser->start)))
			continue;
		break;
	}
	return at;
}

/* $c, $\n, $\x41, $\x{41}, $\^a */
static const char *behind_character(const struct parser *parser, const char *at)
{
	size_t left = (size_t)(parser->end - ++at);
	if (left == 0)
		return at;
	if (*at != '\\' || left == 1) {
		do
			at++;
		while (at < parser->end && ((unsigned char)*at & 0xc0) == 0x80);
		return at;
	}
	at++;
	if (*at == 'x' && left > 2 && at[1] == '{') {
		const char *close = memchr(at, '}', (size_t)(parser->end - at));
		return close ? close + 1 : parser->end;
	}
	if (*at == 'x')
		return at + (left > 3 ? 3 : left - 1);
	if (*at == '^')
		return at + (left > 2 ? 2 : left - 1);
	if (*at >= '0' && *at <= '7') {
		for (int digits = 0; digits < 3 && at < parser->end && *at >= '0' && *at <= '7'; digits++)
			at++;
		return at;
	}
	return at + 1;
}

static const char *behind_text(const struct parser *parser, const char *at, const char *close)
{
	const char *found = memmem(at, (size_t)(parser->end - at), close, strlen(close));
	return found ? found + strlen(close) : NULL;
}

/* Where a term ends that begins where a value may stand; NULL: it does not end. The same as at: none begins there. */
static const char *behind_literal(const struct parser *parser, const char *at)
{
	char c = *at, following = at + 1 < parser->end ? at[1] : '\0';
	if (c == '"' || c == '\'')
		return behind_quoted(parser, at);
	if (c == '$')
		return behind_character(parser, at);
	if (isdigit((unsigned char)c))
		return behind_number(parser, at);
	if (c == '<' && following == '<')
		return behind_text(parser, at, ">>");
	if ((c == '<' && isdigit((unsigned char)following)) || (c == '#' && isupper((unsigned char)following)))
		return behind_text(parser, at, ">");
	return at;
}

static const char *const operators[] = {"=:=", "=/=", "==", "/=", "=<", ">=", "->", "=>", "<=", "!=", "&&", "||", "<<", ">>"};

static size_t operator_length(const struct parser *parser, const char *at)
{
	size_t left = (size_t)(parser->end - at);
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
		size_t length = strlen(operators[i]);
		if (length <= left && memcmp(at, operators[i], length) == 0)
			return length;
	}
	return 1;
}

static void take_operator_or_word(struct parser *parser)
{
	const char *at = parser->start;
	if (isalpha((unsigned char)*at) || *at == '_' || (unsigned char)*at >= 0x80) {
		while (at < parser->end && is_name(*at))
			at++;
		parser->token = TOKEN_WORD;
	} else {
		at += operator_length(parser, at);
		parser->token = TOKEN_OPERATOR;
	}
	parser->next = at;
	parser->length = (size_t)(at - parser->start);
}

/* value: a value may stand here, so that < begins a binary or pid and no comparison. */
static void advance(struct parser *parser, bool value)
{
	if (parser->token == TOKEN_BAD)
		return;
	skip_space(parser);
	parser->start = parser->next;
	parser->length = 0;
	if (parser->next == parser->end) {
		parser->token = TOKEN_END;
		return;
	}
	const char *behind = value ? behind_literal(parser, parser->start) : parser->start;
	if (!behind) {
		defect(parser->compilation, place_of(parser), "close it", "this %s does not end",
		       *parser->start == '"' ? "string" : *parser->start == '\'' ? "atom" : "term");
		parser->token = TOKEN_BAD;
		return;
	}
	if (behind == parser->start) {
		take_operator_or_word(parser);
		return;
	}
	parser->token = TOKEN_LITERAL;
	parser->next = behind;
	parser->length = (size_t)(behind - parser->start);
}

static bool is(const struct parser *parser, const char *text)
{
	return (parser->token == TOKEN_OPERATOR || parser->token == TOKEN_WORD) && strlen(text) == parser->length &&
	       memcmp(text, parser->start, parser->length) == 0;
}

static struct operand refuse(struct parser *parser, const char *advice, const char *what)
{
	if (parser->token == TOKEN_BAD)
		return bad();
	if (parser->token == TOKEN_END)
		defect(parser->compilation, place_of(parser), advice, "the condition ends where %s is missing", what);
	else
		defect(parser->compilation, place_of(parser), advice, "'%.*s' where %s is missing",
		       parser->length > 40 ? 40 : (int)parser->length, parser->start, what);
	parser->token = TOKEN_BAD;
	return bad();
}

/* ---- places of C -------------------------------------------------------------------- */

static struct operand refuse_at(struct parser *parser, uint32_t place, const char *advice, const char *why)
{
	defect(parser->compilation, place, advice, "%s", why);
	return bad();
}

static bool is_bad(const struct operand *operand)
{
	return operand->value ? operand->value->kind == EXPRESSION_BAD : operand->address->kind == EXPRESSION_BAD;
}

static struct expression *number(struct parser *parser, uint32_t place, int64_t value)
{
	return expression_literal(parser->compilation, place, lorg_integer(parser->compilation->terms, value));
}

static struct expression *load(struct parser *parser, struct expression *address, int64_t offset, uint32_t place, enum lorg_match_load kind,
			       uint64_t length)
{
	if (offset < INT32_MIN || offset > INT32_MAX) {
		address = expression_of_function(parser->compilation, place, LORG_MATCH_ADD, address, number(parser, place, offset));
		offset = 0;
	}
	struct expression *expression = expression_new(parser->compilation, EXPRESSION_LOAD, place, 1);
	if (expression->kind == EXPRESSION_BAD || address->kind == EXPRESSION_BAD)
		return expression_bad();
	expression->parts[0] = address;
	expression->what = (uint8_t)kind;
	expression->offset = (int32_t)offset;
	expression->length = length < UINT16_MAX ? (uint16_t)length : UINT16_MAX;
	return expression_settle(parser->compilation, expression);
}

/* LORG_MATCH_LOADS: there is none of this size. */
static enum lorg_match_load load_of_size(const struct match_type *type)
{
	bool is_float = type->kind == MATCH_TYPE_FLOAT, is_signed = type->kind == MATCH_TYPE_INTEGER && type->is_signed && !type->bits;
	switch (type->size) {
	case 1: return is_float ? LORG_MATCH_LOADS : is_signed ? LORG_MATCH_LOAD_SIGNED_8 : LORG_MATCH_LOAD_UNSIGNED_8;
	case 2: return is_float ? LORG_MATCH_LOADS : is_signed ? LORG_MATCH_LOAD_SIGNED_16 : LORG_MATCH_LOAD_UNSIGNED_16;
	case 4: return is_float ? LORG_MATCH_LOAD_FLOAT_32 : is_signed ? LORG_MATCH_LOAD_SIGNED_32 : LORG_MATCH_LOAD_UNSIGNED_32;
	case 8: return is_float ? LORG_MATCH_LOAD_FLOAT_64 : is_signed ? LORG_MATCH_LOAD_SIGNED_64 : LORG_MATCH_LOAD_UNSIGNED_64;
	default: return LORG_MATCH_LOADS;
	}
}

/* ((word bsr offset) band mask), and of a signed one (that bxor sign) - sign */
static struct expression *bit_field(struct parser *parser, struct expression *word, const struct match_type *type, uint32_t place)
{
	struct compilation *compilation = parser->compilation;
	uint64_t mask = type->bits >= 63 ? INT64_MAX : (UINT64_C(1) << type->bits) - 1;
	int64_t sign = INT64_C(1) << (type->bits - 1 < 62 ? type->bits - 1 : 62);
	word = expression_of_function(compilation, place, LORG_MATCH_BSR, word, number(parser, place, type->bit_offset));
	word = expression_of_function(compilation, place, LORG_MATCH_BAND, word, number(parser, place, (int64_t)mask));
	if (!type->is_signed)
		return word;
	word = expression_of_function(compilation, place, LORG_MATCH_BXOR, word, number(parser, place, sign));
	return expression_of_function(compilation, place, LORG_MATCH_SUBTRACT, word, number(parser, place, sign));
}

static struct expression *value_of_place(struct parser *parser, const struct operand *operand)
{
	const struct match_type *type = &operand->type;
	enum lorg_match_load kind = load_of_size(type);
	switch (type->kind) {
	case MATCH_TYPE_STRUCT: return refuse_at(parser, operand->place, "name one of its members", "this is a whole struct").value;
	case MATCH_TYPE_ARRAY:
		if (type->is_text)
			return load(parser, operand->address, operand->offset, operand->place, LORG_MATCH_LOAD_TEXT, type->size);
		return refuse_at(parser, operand->place, "name one of its elements: [N]", "this is a whole array").value;
	case MATCH_TYPE_POINTER: kind = type->is_text ? LORG_MATCH_LOAD_STRING : LORG_MATCH_LOAD_UNSIGNED_64; break;
	case MATCH_TYPE_BOOLEAN: kind = LORG_MATCH_LOAD_BOOLEAN; break;
	default: break;
	}
	if (kind == LORG_MATCH_LOADS || type->kind == MATCH_TYPE_UNKNOWN)
		return refuse_at(parser, operand->place, "name something else", "what stands here has a type that cannot be read").value;
	struct expression *expression = load(parser, operand->address, operand->offset, operand->place, kind, 0);
	if (type->bits && expression->kind != EXPRESSION_BAD)
		return bit_field(parser, expression, type, operand->place);
	return expression;
}

static struct expression *value_of(struct parser *parser, struct operand operand)
{
	return operand.value ? operand.value : value_of_place(parser, &operand);
}

/* The pointer that -> and [] follow, as a number. */
static struct expression *pointer_of(struct parser *parser, const struct operand *operand)
{
	if (operand->is_argument) {
		struct expression *word = expression_new(parser->compilation, EXPRESSION_WORD, operand->place, 0);
		if (word->kind != EXPRESSION_BAD)
			word->slot = (uint16_t)operand->argument;
		return word;
	}
	return operand->value ? operand->value
			      : load(parser, operand->address, operand->offset, operand->place, LORG_MATCH_LOAD_UNSIGNED_64, 0);
}

/* What a place is that nothing is known of yet, and that is taken for right. */
static struct operand any_place(struct parser *parser, uint32_t place)
{
	struct expression *expression = expression_new(parser->compilation, EXPRESSION_SLOT, place, 0);
	if (expression->kind == EXPRESSION_BAD)
		return bad();
	expression->slot = LORG_MATCH_SLOT_ARGUMENT;
	return (struct operand){.value = expression, .place = place};
}

static bool takes_any(const struct parser *parser)
{
	const struct match_names *names = parser->compilation->options->names;
	return names && names->any;
}

static bool has_type(struct parser *parser, const struct operand *operand, const char *what)
{
	if (operand->typed)
		return true;
	defect(parser->compilation, operand->place, "trace a function whose types are known: debug information, or a prototype",
	       "the type of what stands before %s is not known", what);
	return false;
}

static struct operand place_in(struct parser *parser, struct expression *address, int64_t offset, const struct match_type *type, uint32_t place)
{
	(void)parser;
	return (struct operand){.address = address, .offset = offset, .typed = true, .type = *type, .place = place};
}

static struct operand member(struct parser *parser, struct operand of, bool through_pointer)
{
	const struct match_names *names = parser->compilation->options->names;
	struct match_type type = {0};
	char name[256];
	uint64_t offset = 0;
	advance(parser, false);
	if (parser->token != TOKEN_WORD || parser->length >= sizeof name)
		return refuse(parser, "write the name of a member", "a member's name");
	snprintf(name, sizeof name, "%.*s", (int)parser->length, parser->start);
	uint32_t place = place_of(parser);
	advance(parser, false);
	if (takes_any(parser))
		return is_bad(&of) ? bad() : any_place(parser, of.place);
	if (is_bad(&of) || !has_type(parser, &of, through_pointer ? "->" : "."))
		return bad();
	if (through_pointer != (of.type.kind == MATCH_TYPE_POINTER) || (!through_pointer && of.type.kind != MATCH_TYPE_STRUCT))
		return refuse_at(parser, of.place, "use -> behind a pointer, . behind a struct",
				 through_pointer ? "what stands before -> is no pointer" : "what stands before . is no struct");
	if (!through_pointer && !of.address)
		return refuse_at(parser, of.place, "use element(N, argN)", "a struct that is an argument is a tuple here");
	if (!names->member || !names->member(names->owner, &of.type, name, &type, &offset)) {
		defect(parser->compilation, place, "see the struct's declaration", "there is no member '%.60s'", name);
		return bad();
	}
	if (through_pointer)
		return place_in(parser, pointer_of(parser, &of), (int64_t)offset, &type, of.place);
	return place_in(parser, of.address, of.offset + (int64_t)offset, &type, of.place);
}

static bool element_type(struct parser *parser, const struct operand *of, struct match_type *type)
{
	const struct match_names *names = parser->compilation->options->names;
	return (of->type.kind == MATCH_TYPE_POINTER || (of->type.kind == MATCH_TYPE_ARRAY && of->address)) && names->element &&
	       names->element(names->owner, &of->type, type) && type->size > 0 && type->size <= INT32_MAX;
}

static struct operand element_at(struct parser *parser, const struct operand *of, struct expression *index, const struct match_type *type)
{
	bool array = of->type.kind == MATCH_TYPE_ARRAY;
	struct expression *base = array ? of->address : pointer_of(parser, of);
	int64_t offset = array ? of->offset : 0, constant;
	if (expression_is_literal(index) && lorg_get_integer(parser->compilation->terms, index->literal, &constant) &&
	    constant >= INT32_MIN && constant <= INT32_MAX)
		return place_in(parser, base, offset + constant * (int64_t)type->size, type, of->place);
	struct expression *size = number(parser, of->place, (int64_t)type->size);
	struct expression *distance = expression_of_function(parser->compilation, of->place, LORG_MATCH_MULTIPLY, index, size);
	return place_in(parser, expression_of_function(parser->compilation, of->place, LORG_MATCH_ADD, base, distance), offset, type, of->place);
}

static struct operand subscript(struct parser *parser, struct operand of)
{
	struct match_type type = {0};
	advance(parser, true);
	struct expression *index = value_of(parser, parse_expression(parser, 0));
	if (!is(parser, "]"))
		return refuse(parser, "close the index with ]", "]");
	advance(parser, false);
	if (is_bad(&of) || index->kind == EXPRESSION_BAD || (!takes_any(parser) && !has_type(parser, &of, "[")))
		return bad();
	if (takes_any(parser) && !index->address)
		return any_place(parser, of.place);
	if (index->address)
		return refuse_at(parser, of.place, "use a number", "the caller cannot be an index");
	if (!element_type(parser, &of, &type))
		return refuse_at(parser, of.place, "use [] behind a pointer or array of a known type", "what stands before [ has no elements");
	return element_at(parser, &of, index, &type);
}

/* ---- values ---------------------------------------------------------------------------- */

static struct operand argument(struct parser *parser, uint32_t index, uint32_t place)
{
	const struct match_names *names = parser->compilation->options->names;
	struct expression *expression = expression_new(parser->compilation, EXPRESSION_SLOT, place, 0);
	if (expression->kind == EXPRESSION_BAD)
		return bad();
	expression->slot = (uint16_t)(LORG_MATCH_SLOT_ARGUMENT | index);
	struct operand operand = {.value = expression, .is_argument = true, .argument = index, .place = place};
	operand.typed = names && names->parameter_type && names->parameter_type(names->owner, index, &operand.type);
	return operand;
}

/* argN; *index is at most one above the greatest there is. */
static bool is_argument(const struct parser *parser, uint32_t *index)
{
	if (parser->length < 4 || memcmp(parser->start, "arg", 3) != 0)
		return false;
	*index = 0;
	for (size_t i = 3; i < parser->length; i++) {
		if (!isdigit((unsigned char)parser->start[i]))
			return false;
		if (*index <= LORG_MATCH_ARGUMENTS)
			*index = *index * 10 + (uint32_t)(parser->start[i] - '0');
	}
	return true;
}

/* Expressions up to the closing bracket, separated by commas, into a list that grows in the compilation's memory. */
struct parts {
	struct expression **list;
	uint32_t count, room;
};

static bool add_part(struct parser *parser, struct parts *parts, struct expression *part)
{
	if (parts->count == parts->room) {
		uint32_t room = parts->room * 2 + 8;
		struct expression **larger = compilation_room(parser->compilation, room * sizeof *larger);
		if (!larger)
			return false;
		if (parts->count)
			memcpy(larger, parts->list, parts->count * sizeof *larger);
		parts->list = larger;
		parts->room = room;
	}
	parts->list[parts->count++] = part;
	return true;
}

/* The token is what opens; afterwards what closes, or `bar`, if that is not NULL. */
static bool parse_parts(struct parser *parser, const char *close, const char *bar, const char *arrow, struct parts *parts)
{
	advance(parser, true);
	if (is(parser, close))
		return true;
	parser->inside++;
	for (;;) {
		if (!add_part(parser, parts, value_of(parser, parse_expression(parser, 0))))
			return false;
		if (arrow && parts->count % 2 == 1) {
			if (!is(parser, arrow))
				return refuse(parser, "write Key => Value", arrow), false;
			advance(parser, true);
			continue;
		}
		if (is(parser, close) || (bar && is(parser, bar))) {
			parser->inside--;
			return true;
		}
		if (!is(parser, ","))
			return refuse(parser, "separate with commas and close the bracket", close), false;
		advance(parser, true);
	}
}

static struct operand constructed(struct parser *parser, enum expression_kind kind, uint32_t place, const struct parts *parts)
{
	struct expression *expression = expression_new(parser->compilation, kind, place, parts->count);
	if (expression->kind == EXPRESSION_BAD)
		return bad();
	for (uint32_t i = 0; i < parts->count; i++)
		expression->parts[i] = parts->list[i];
	return value_of_expression(expression_construct(parser->compilation, expression));
}

static struct operand parse_tuple(struct parser *parser)
{
	struct parts parts = {0};
	uint32_t place = place_of(parser);
	if (!parse_parts(parser, "}", NULL, NULL, &parts))
		return bad();
	advance(parser, false);
	return constructed(parser, EXPRESSION_TUPLE, place, &parts);
}

static struct operand parse_list(struct parser *parser)
{
	struct parts parts = {0};
	uint32_t place = place_of(parser);
	struct expression *tail = expression_literal(parser->compilation, place, lorg_nil());
	if (!parse_parts(parser, "]", "|", NULL, &parts))
		return bad();
	if (is(parser, "|")) {
		advance(parser, true);
		tail = value_of(parser, parse_expression(parser, 0));
	}
	if (!is(parser, "]"))
		return refuse(parser, "close the list with ]", "]");
	advance(parser, false);
	if (!add_part(parser, &parts, tail))
		return bad();
	return constructed(parser, EXPRESSION_LIST, place, &parts);
}

/* Keys and values by turns become keys, then values. */
static struct operand parse_map(struct parser *parser)
{
	struct parts parts = {0}, ordered = {0};
	uint32_t place = place_of(parser);
	advance(parser, false);
	if (!is(parser, "{"))
		return refuse(parser, "write a map as #{Key => Value}", "{");
	if (!parse_parts(parser, "}", NULL, "=>", &parts))
		return bad();
	for (uint32_t i = 0; i < parts.count; i++) {
		uint32_t count = parts.count / 2;
		if (!add_part(parser, &ordered, parts.list[i < count ? 2 * i : 2 * (i - count) + 1]))
			return bad();
	}
	advance(parser, false);
	return constructed(parser, EXPRESSION_MAP, place, &ordered);
}

static struct operand parse_literal(struct parser *parser)
{
	struct compilation *compilation = parser->compilation;
	struct lorg_read_error error;
	uint32_t place = place_of(parser);
	lorg_term term = lorg_read_term(compilation->terms, parser->start, parser->length, NULL, &error);
	if (term == LORG_NONE) {
		defect(compilation, place, "write it as in Erlang", "%s", error.reason);
		parser->token = TOKEN_BAD;
		return bad();
	}
	advance(parser, false);
	return value_of_expression(expression_literal(compilation, place, term));
}

static struct operand parse_call(struct parser *parser, const char *name, uint32_t place)
{
	struct parts parts = {0};
	if (!parse_parts(parser, ")", NULL, NULL, &parts))
		return bad();
	advance(parser, false);
	return value_of_expression(expression_call(parser->compilation, place, name, parts.list, parts.count, false));
}

static bool is_reserved(const struct parser *parser)
{
	static const char *const words[] = {"andalso", "orelse", "and", "or", "xor", "not", "div", "rem", "band", "bor", "bxor", "bnot", "bsl", "bsr"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (is(parser, words[i]))
			return true;
	return false;
}

static struct operand parse_word(struct parser *parser)
{
	struct compilation *compilation = parser->compilation;
	const struct match_names *names = compilation->options->names;
	uint32_t place = place_of(parser), index;
	char name[LORG_ATOM_BYTES_MAX + 1];
	bool numbered = is_argument(parser, &index);
	if (parser->length > LORG_ATOM_BYTES_MAX)
		return refuse(parser, "write a shorter one", "a name of at most 255 characters");
	snprintf(name, sizeof name, "%.*s", (int)parser->length, parser->start);
	advance(parser, false);
	if (is(parser, "("))
		return parse_call(parser, name, place);
	if (numbered && index > LORG_MATCH_ARGUMENTS)
		return refuse_at(parser, place, "use a smaller number", "no call has so many arguments");
	if (numbered || (names && names->parameter && names->parameter(names->owner, name, &index) && index <= LORG_MATCH_ARGUMENTS))
		return argument(parser, index, place);
	if (takes_any(parser) && (is(parser, "->") || is(parser, "[") || is(parser, ".") || !islower((unsigned char)name[0])))
		return any_place(parser, place);
	if (!islower((unsigned char)name[0])) {
		defect(compilation, place, "use arg0, arg1, ..., a parameter's name, or quote it: '...'", "'%.60s' is neither a parameter nor an atom", name);
		return bad();
	}
	if (character_reserved_word(name, strlen(name))) {
		if (takes_any(parser))
			return any_place(parser, place);
		defect(compilation, place, "as an atom it is written in quotes: '...'", "'%s' is a reserved word", name);
		parser->token = TOKEN_BAD;
		return bad();
	}
	char why[256];
	if (!parser->inside && names && names->mistyped && names->mistyped(names->owner, name, why, sizeof why)) {
		defect(compilation, place, "name one of them, or quote an atom: '...'", "%s: %s", name, why);
		return bad();
	}
	return value_of_expression(expression_literal(compilation, place, lorg_atom_text(compilation->terms, name)));
}

static struct operand parse_primary(struct parser *parser)
{
	if (parser->token == TOKEN_LITERAL)
		return parse_literal(parser);
	if (parser->token == TOKEN_WORD && !is_reserved(parser))
		return parse_word(parser);
	if (is(parser, "{"))
		return parse_tuple(parser);
	if (is(parser, "["))
		return parse_list(parser);
	if (is(parser, "#"))
		return parse_map(parser);
	if (!is(parser, "("))
		return refuse(parser, "write a value: arg0, 1, \"text\", atom, f(arg1)", "a value");
	advance(parser, true);
	struct operand inside = parse_expression(parser, 0);
	if (!is(parser, ")"))
		return refuse(parser, "close the bracket", ")");
	advance(parser, false);
	return inside;
}

static struct operand parse_postfix(struct parser *parser)
{
	struct operand operand = parse_primary(parser);
	for (;;) {
		if (is(parser, "->"))
			operand = member(parser, operand, true);
		else if (is(parser, "."))
			operand = member(parser, operand, false);
		else if (is(parser, "["))
			operand = subscript(parser, operand);
		else
			return operand;
	}
}

/* ---- operators ---------------------------------------------------------------------------- */

enum { LEVEL_ORELSE, LEVEL_ANDALSO, LEVEL_COMPARISON, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_UNARY };

static const char *const level_operators[][9] = {
	[LEVEL_ORELSE] = {"orelse"},
	[LEVEL_ANDALSO] = {"andalso"},
	[LEVEL_COMPARISON] = {"==", "/=", "=<", "<", ">=", ">", "=:=", "=/="},
	[LEVEL_SUM] = {"+", "-", "bor", "bxor", "bsl", "bsr", "or", "xor"},
	[LEVEL_PRODUCT] = {"*", "/", "div", "rem", "band", "and"},
	[LEVEL_UNARY] = {"+", "-", "bnot", "not"},
};

static const char *operator_here(const struct parser *parser, unsigned level)
{
	for (const char *const *name = level_operators[level]; *name; name++)
		if (is(parser, *name))
			return *name;
	return NULL;
}

static struct operand call_operator(struct parser *parser, const char *name, uint32_t place, struct expression *a, struct expression *b)
{
	struct expression *arguments[2] = {a, b};
	if (a->kind == EXPRESSION_BAD || (b && b->kind == EXPRESSION_BAD))
		return bad();
	return value_of_expression(expression_call(parser->compilation, place, name, arguments, b ? 2 : 1, false));
}

static struct operand parse_unary(struct parser *parser)
{
	const char *name = operator_here(parser, LEVEL_UNARY);
	uint32_t place = place_of(parser);
	if (!name)
		return parse_postfix(parser);
	advance(parser, true);
	struct expression *value = value_of(parser, parse_expression(parser, LEVEL_UNARY));
	/* A negative number is a constant. */
	if (strcmp(name, "-") == 0 && expression_is_literal(value)) {
		lorg_term negative = lorg_negate(parser->compilation->terms, value->literal);
		if (negative != LORG_NONE)
			return value_of_expression(expression_literal(parser->compilation, place, negative));
	}
	return call_operator(parser, name, place, value, NULL);
}

/* One or more operands between the same operator, which becomes one call: so long chains do not nest. */
static struct operand parse_chain(struct parser *parser, unsigned level, struct operand first, const char *name)
{
	struct parts parts = {0};
	uint32_t place = place_of(parser);
	if (!add_part(parser, &parts, value_of(parser, first)))
		return bad();
	while (operator_here(parser, level)) {
		advance(parser, true);
		if (!add_part(parser, &parts, value_of(parser, parse_expression(parser, level + 1))))
			return bad();
	}
	return value_of_expression(expression_call(parser->compilation, place, name, parts.list, parts.count, false));
}

/* a op b op c from the left; comparisons do not associate. */
static struct operand parse_from_left(struct parser *parser, unsigned level, struct operand operand)
{
	const char *name = operator_here(parser, level);
	for (; name; name = operator_here(parser, level)) {
		uint32_t place = place_of(parser);
		advance(parser, true);
		struct expression *right = value_of(parser, parse_expression(parser, level + 1));
		operand = call_operator(parser, name, place, value_of(parser, operand), right);
		if (level == LEVEL_COMPARISON && operator_here(parser, level))
			return refuse(parser, "use brackets, or andalso between two comparisons", "andalso, orelse or the end");
	}
	return operand;
}

static struct operand parse_level(struct parser *parser, unsigned level)
{
	if (level == LEVEL_UNARY)
		return parse_unary(parser);
	struct operand operand = parse_level(parser, level + 1);
	const char *name = operator_here(parser, level);
	if (!name)
		return operand;
	if (level <= LEVEL_ANDALSO)
		return parse_chain(parser, level, operand, name);
	return parse_from_left(parser, level, operand);
}

static struct operand parse_expression(struct parser *parser, unsigned level)
{
	if (parser->depth >= BRACKETS_MAX) {
		if (parser->token != TOKEN_BAD)
			defect_limit(parser->compilation, place_of(parser), "nest less", "the condition is nested deeper than %d levels", BRACKETS_MAX);
		parser->token = TOKEN_BAD;
		return bad();
	}
	parser->depth++;
	struct operand operand = parse_level(parser, level);
	parser->depth--;
	return operand;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* What C and shells write where Erlang writes something else. */
static const char *foreign_advice(const struct parser *parser)
{
	static const char *const foreign[][2] = {
		{"<=", "write =<"}, {"!=", "write /="}, {"&&", "write andalso"}, {"||", "write orelse"}, {"=", "write == or =:="},
		{"!", "write not"}, {"%", "write rem"}, {"&", "write band"}, {"|", "write bor"}, {"<<", "write bsl"},
		{">>", "write bsr"}, {"^", "write bxor"}, {"~", "write bnot"},
	};
	for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
		if (is(parser, foreign[i][0]))
			return foreign[i][1];
	return "join conditions with andalso or orelse";
}

static bool check_characters(struct compilation *compilation)
{
	uint32_t code;
	for (size_t i = 0; i < compilation->length;) {
		int length = character_read(compilation->text + i, compilation->length - i, &code);
		if (!length) {
			defect(compilation, (uint32_t)i, "write it in UTF-8", "byte %u is not UTF-8", (unsigned char)compilation->text[i]);
			return false;
		}
		i += (size_t)length;
	}
	return true;
}

static struct expression *parse(struct parser *parser)
{
	if (!check_characters(parser->compilation))
		return expression_bad();
	advance(parser, true);
	struct operand operand = parse_expression(parser, 0);
	if (parser->token != TOKEN_BAD && parser->token != TOKEN_END)
		return refuse(parser, foreign_advice(parser), "an operator or the end").value;
	return parser->token == TOKEN_BAD ? expression_bad() : value_of(parser, operand);
}

bool compile_condition(struct compilation *compilation)
{
	struct parser parser = {
		.compilation = compilation,
		.token = TOKEN_END,
		.start = compilation->text,
		.next = compilation->text,
		.end = compilation->text + compilation->length,
	};
	if (compilation->options->dialect == LORG_DIALECT_TABLE || compilation->length > UINT32_MAX - 1) {
		defect_limit(compilation, LORG_NO_POSITION, "write a match specification", "a condition cannot be used here");
		return false;
	}
	struct expression *condition = parse(&parser);
	if (condition->address)
		condition = refuse_at(&parser, condition->place, "compare it: caller() == {Module,Function,Arity}", "the caller is no condition").value;
	uint32_t begun = generate_clause_begin(compilation);
	generate_guard(compilation, condition);
	generate_body(compilation, NULL, 0);
	generate_clause_end(compilation, begun);
	return !compilation->failed;
}
