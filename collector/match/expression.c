/* SPDX-License-Identifier: MIT */
/* expression.c: makes expressions and checks calls; what consists of literals becomes a literal. */
#include "collector/match/compilation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/match/functions.h"

/* ---- memory -------------------------------------------------------------------- */

struct block {
	struct block *next;
	size_t size, used;
	_Alignas(16) char bytes[];
};

void *compilation_room(struct compilation *compilation, size_t size)
{
	enum { BLOCK = 64 * 1024 };
	struct block *block = compilation->blocks;
	size = (size + 15) & ~(size_t)15;
	if (!block || block->size - block->used < size) {
		size_t room = size > BLOCK ? size : BLOCK;
		block = malloc(sizeof *block + room);
		if (!block) {
			defect_memory(compilation);
			return NULL;
		}
		*block = (struct block){compilation->blocks, room, 0};
		compilation->blocks = block;
	}
	void *place = block->bytes + block->used;
	block->used += size;
	return memset(place, 0, size);
}

void compilation_close(struct compilation *compilation)
{
	while (compilation->blocks) {
		struct block *next = compilation->blocks->next;
		free(compilation->blocks);
		compilation->blocks = next;
	}
	free(compilation->code);
	free(compilation->constants);
	free(compilation->constant_places);
	free(compilation->ranges);
	free(compilation->bindings);
}

/* ---- expressions ------------------------------------------------------------------- */

struct expression *expression_bad(void)
{
	static struct expression bad = {.kind = EXPRESSION_BAD, .place = LORG_NO_POSITION};
	return &bad;
}

struct expression *expression_new(struct compilation *compilation, enum expression_kind kind, uint32_t place, uint32_t parts)
{
	struct expression *expression = compilation_room(compilation, sizeof *expression);
	if (!expression)
		return expression_bad();
	expression->kind = kind;
	expression->place = place;
	if (parts) {
		expression->parts = compilation_room(compilation, parts * sizeof *expression->parts);
		if (!expression->parts)
			return expression_bad();
		for (uint32_t i = 0; i < parts; i++)
			expression->parts[i] = expression_bad();
	}
	expression->count = parts;
	return expression;
}

bool expression_is_literal(const struct expression *expression)
{
	return expression->kind == EXPRESSION_LITERAL;
}

struct expression *expression_literal(struct compilation *compilation, uint32_t place, lorg_term literal)
{
	if (literal == LORG_NONE) {
		defect_memory(compilation);
		return expression_bad();
	}
	struct expression *expression = expression_new(compilation, EXPRESSION_LITERAL, place, 0);
	if (expression->kind == EXPRESSION_LITERAL)
		expression->literal = literal;
	return expression;
}

struct expression *expression_settle(struct compilation *compilation, struct expression *expression)
{
	for (uint32_t i = 0; i < expression->count; i++) {
		if (expression->parts[i]->kind == EXPRESSION_BAD)
			return expression_bad();
		if (expression->parts[i]->height >= expression->height)
			expression->height = expression->parts[i]->height + 1;
	}
	if (expression->height <= LORG_NESTING_MAX)
		return expression;
	defect_limit(compilation, expression->place, "nest less", "an expression is nested deeper than %d levels", LORG_NESTING_MAX);
	return expression_bad();
}

static lorg_term literal_tuple(struct compilation *compilation, const struct expression *of)
{
	lorg_term tuple = lorg_tuple_new(compilation->terms, of->count);
	for (uint32_t i = 0; i < of->count && tuple != LORG_NONE; i++)
		lorg_tuple_set(compilation->terms, tuple, i, of->parts[i]->literal);
	return tuple;
}

static lorg_term literal_list(struct compilation *compilation, const struct expression *of)
{
	lorg_term list = of->parts[of->count - 1]->literal;
	for (uint32_t i = of->count - 1; i-- > 0 && list != LORG_NONE;)
		list = lorg_cons(compilation->terms, of->parts[i]->literal, list);
	return list;
}

static lorg_term literal_map(struct compilation *compilation, const struct expression *of)
{
	uint32_t count = of->count / 2, offset;
	lorg_term *pairs = count ? lorg_terms_take(compilation->terms, of->count, &offset) : NULL;
	if (count && !pairs)
		return LORG_NONE;
	for (uint32_t i = 0; i < count; i++) {
		pairs[2 * i] = of->parts[i]->literal;
		pairs[2 * i + 1] = of->parts[count + i]->literal;
	}
	return lorg_map_of_last(compilation->terms, count);
}

struct expression *expression_construct(struct compilation *compilation, struct expression *expression)
{
	bool literal = true;
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	for (uint32_t i = 0; i < expression->count; i++) {
		const struct expression *part = expression->parts[i];
		if (part->kind == EXPRESSION_BAD)
			return expression_bad();
		literal = literal && expression_is_literal(part);
		if (part->address && expression->kind == EXPRESSION_MAP && i < expression->count / 2)
			defect(compilation, part->place, "use it as a value of the map",
			       "the caller cannot be a key: in the program it is an address, not {Module,Function,Arity}");
		expression->address = expression->address || part->address;
	}
	if (!literal)
		return expression_settle(compilation, expression);
	uint32_t place = expression->place;
	switch (expression->kind) {
	case EXPRESSION_TUPLE: return expression_literal(compilation, place, literal_tuple(compilation, expression));
	case EXPRESSION_LIST: return expression_literal(compilation, place, literal_list(compilation, expression));
	case EXPRESSION_MAP: return expression_literal(compilation, place, literal_map(compilation, expression));
	default: return expression;
	}
}

/* ---- the caller ------------------------------------------------------------------------ */

static struct expression *refuse_address(struct compilation *compilation, const struct expression *expression)
{
	defect(compilation, expression->place,
	       "compare {caller} with a constant {Module,Function,Arity}, or put it into {message,_}: readers resolve it",
	       "the caller cannot be taken apart: in the program it is an address");
	return expression_bad();
}

static bool atom_name(const struct lorg_terms *terms, lorg_term atom, char name[LORG_ATOM_BYTES_MAX + 1])
{
	char short_text[8];
	size_t length;
	const char *text = lorg_get_atom(terms, atom, short_text, &length);
	if (!text || length > LORG_ATOM_BYTES_MAX || memchr(text, 0, length))
		return false;
	memcpy(name, text, length);
	name[length] = '\0';
	return true;
}

static bool keep_ranges(struct compilation *compilation, const struct lorg_match_range *ranges, uint32_t count)
{
	if (compilation->range_room - compilation->range_count < count) {
		uint32_t room = compilation->range_count + count + 16;
		struct lorg_match_range *larger = realloc(compilation->ranges, room * sizeof *larger);
		if (!larger) {
			defect_memory(compilation);
			return false;
		}
		compilation->ranges = larger;
		compilation->range_room = room;
	}
	if (count)
		memcpy(compilation->ranges + compilation->range_count, ranges, count * sizeof *ranges);
	compilation->range_count += count;
	return true;
}

static struct expression *caller_in(struct compilation *compilation, uint32_t place, uint8_t how, const struct lorg_match_range *ranges,
				    uint32_t count)
{
	struct expression *expression = expression_new(compilation, EXPRESSION_CALLER_IN, place, 0);
	if (count > UINT16_MAX) {
		defect_limit(compilation, place, "name a function that has fewer", "the function has more than 65535 places in memory");
		return expression_bad();
	}
	if (expression->kind == EXPRESSION_BAD || !keep_ranges(compilation, ranges, count))
		return expression_bad();
	expression->what = how;
	expression->start = compilation->range_count - count;
	expression->ranges = count;
	return expression;
}

static struct expression *caller_is_function(struct compilation *compilation, uint32_t place, const lorg_term mfa[3], bool negate)
{
	char module[LORG_ATOM_BYTES_MAX + 1], function[LORG_ATOM_BYTES_MAX + 1];
	const struct match_names *names = compilation->options->names;
	struct lorg_match_range *ranges = NULL;
	int64_t arity = -1;
	bool any = lorg_atom_is(compilation->terms, mfa[2], "_");
	if (!atom_name(compilation->terms, mfa[0], module) || !atom_name(compilation->terms, mfa[1], function) ||
	    (!any && (!lorg_get_integer(compilation->terms, mfa[2], &arity) || arity < 0)))
		return expression_literal(compilation, place, lorg_boolean(negate));
	int count = names && names->ranges ? names->ranges(names->owner, module, function, arity, &ranges) : compilation->options->inside ? -1 : 0;
	if (count < 0) {
		defect(compilation, place, "name a function of a module that is loaded, by its module's file name",
		       "cannot compare the caller with %s:%s: the addresses of its code are not known", module, function);
		return expression_bad();
	}
	struct expression *result = caller_in(compilation, place, negate ? LORG_MATCH_CALLER_NOT : 0, ranges, (uint32_t)count);
	free(ranges);
	return result;
}

/* {caller} compared with a constant, in a program where it is an address. */
static struct expression *compare_caller(struct compilation *compilation, uint32_t place, lorg_term constant, bool negate)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(compilation->terms, constant, &arity);
	compilation->needs |= LORG_MATCH_NEEDS_CALLER;
	if (elements && arity == 3)
		return caller_is_function(compilation, place, (const lorg_term[3]){elements[0], elements[1], elements[2]}, negate);
	if (lorg_is_atom(constant) && lorg_atom_is(compilation->terms, constant, "undefined"))
		return caller_in(compilation, place, LORG_MATCH_CALLER_UNDEFINED | (negate ? LORG_MATCH_CALLER_NOT : 0), NULL, 0);
	return expression_literal(compilation, place, lorg_boolean(negate));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int compare_of(const char *name, uint32_t count)
{
	for (uint32_t i = 0; i < LORG_MATCH_COMPARISONS && count == 2; i++)
		if (strcmp(name, lorg_match_compare_name(i)) == 0)
			return (int)i;
	return -1;
}

static struct expression *compare(struct compilation *compilation, uint32_t place, uint8_t which, struct expression **arguments)
{
	struct expression *a = arguments[0], *b = arguments[1];
	if (a->kind == EXPRESSION_BAD || b->kind == EXPRESSION_BAD)
		return expression_bad();
	if (a->address || b->address) {
		struct expression *other = a->is_caller ? b : a;
		if (which < LORG_MATCH_EQUAL || !(a->is_caller || b->is_caller) || !expression_is_literal(other))
			return refuse_address(compilation, a->address ? a : b);
		return compare_caller(compilation, place, other->literal, which == LORG_MATCH_NOT_EQUAL || which == LORG_MATCH_NOT_EXACTLY);
	}
	struct expression *expression = expression_new(compilation, EXPRESSION_COMPARE, place, 2);
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	expression->what = which;
	expression->parts[0] = a;
	expression->parts[1] = b;
	return expression_settle(compilation, expression);
}

static struct expression *short_circuit(struct compilation *compilation, enum expression_kind kind, uint32_t place, const char *name,
					struct expression **arguments, uint32_t count)
{
	if (count == 0) {
		defect(compilation, place, "give it one or more", "'%s' has no argument", name);
		return expression_bad();
	}
	struct expression *expression = expression_new(compilation, kind, place, count);
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	for (uint32_t i = 0; i < count; i++) {
		if (arguments[i]->kind == EXPRESSION_BAD)
			return expression_bad();
		if (arguments[i]->address && i + 1 < count)
			return refuse_address(compilation, arguments[i]);
		expression->parts[i] = arguments[i];
	}
	expression->address = arguments[count - 1]->address;
	return expression_settle(compilation, expression);
}

static bool takes(const struct lorg_match_function_info *info, uint32_t count)
{
	return count >= info->least && (count <= info->greatest || info->greatest == FUNCTION_ARGUMENTS_ENDLESS);
}

static uint32_t function_of(const char *name)
{
	for (uint32_t i = 1; i < LORG_MATCH_FUNCTIONS; i++) {
		const struct lorg_match_function_info *info = lorg_match_function_info(i);
		if (info && strcmp(name, info->name) == 0)
			return i;
	}
	return LORG_MATCH_FUNCTION_NONE;
}

static void say_arity(struct compilation *compilation, uint32_t place, const char *name, uint32_t count, uint32_t least, uint32_t greatest)
{
	char advice[64];
	if (greatest == FUNCTION_ARGUMENTS_ENDLESS)
		snprintf(advice, sizeof advice, "give it one or more");
	else if (least == greatest)
		snprintf(advice, sizeof advice, greatest == 0 ? "give it none" : "give it %u", greatest);
	else
		snprintf(advice, sizeof advice, "give it %u or %u", least, greatest);
	defect(compilation, place, advice, "'%s' does not take %u argument%s", name, count, count == 1 ? "" : "s");
}

static void say_unknown(struct compilation *compilation, uint32_t place, const char *name, uint32_t count)
{
	if (strcmp(name, "const") == 0)
		say_arity(compilation, place, name, count, 1, 1);
	else if (compare_of(name, 2) >= 0)
		say_arity(compilation, place, name, count, 2, 2);
	else
		defect(compilation, place, "see lorg matchspec --help for those there are; a tuple is written {{...}}",
		       "no function '%s' with %u argument%s", name, count, count == 1 ? "" : "s");
}

static const char *dialect_name(enum lorg_match_dialect dialect)
{
	switch (dialect) {
	case LORG_DIALECT_TABLE: return "for a table";
	case LORG_DIALECT_SEND: return "for send";
	case LORG_DIALECT_RECEIVE: return "for receive";
	default: return "for calls";
	}
}

static bool function_fits(struct compilation *compilation, uint32_t place, const struct lorg_match_function_info *info, uint32_t count,
			  bool body)
{
	enum lorg_match_dialect dialect = compilation->options->dialect;
	if (!takes(info, count)) {
		say_arity(compilation, place, info->name, count, info->least, info->greatest);
		return false;
	}
	if (!(info->where & FUNCTION_IN_TABLE << (dialect - LORG_DIALECT_TABLE))) {
		defect(compilation, place, "leave it out", "'%s' cannot be used in a specification %s", info->name, dialect_name(dialect));
		return false;
	}
	if (!body && !(info->where & FUNCTION_IN_GUARD)) {
		defect(compilation, place, "put it into the body", "'%s' is an action and cannot stand in a guard", info->name);
		return false;
	}
	return true;
}

static bool arguments_fit(struct compilation *compilation, uint32_t function, struct expression **arguments, uint32_t count)
{
	bool keeps_address = function == LORG_MATCH_MESSAGE || function == LORG_MATCH_DISPLAY;
	for (uint32_t i = 0; i < count; i++) {
		if (arguments[i]->kind == EXPRESSION_BAD)
			return false;
		if (arguments[i]->address && !keeps_address) {
			refuse_address(compilation, arguments[i]);
			return false;
		}
	}
	if (count > UINT16_MAX) {
		defect_limit(compilation, arguments[0]->place, "nest calls", "a call has more than 65535 arguments");
		return false;
	}
	if (function != LORG_MATCH_CURRENT_STACKTRACE || count == 0)
		return true;
	if (expression_is_literal(arguments[0]) && lorg_is_small(arguments[0]->literal) && lorg_small_value(arguments[0]->literal) >= 0)
		return true;
	defect(compilation, arguments[0]->place, "write it as a number", "the depth of 'current_stacktrace' is not a constant number from 0 on");
	return false;
}

static bool flag_fits(struct compilation *compilation, uint32_t place, lorg_term flag)
{
	uint32_t arity, known = lorg_match_flag_of(compilation->terms, flag);
	const lorg_term *pair = lorg_get_tuple(compilation->terms, flag, &arity);
	if (pair && arity == 2 && lorg_atom_is(compilation->terms, pair[0], "tracer")) {
		defect(compilation, place, "leave it out", "a specification cannot choose another tracer: the session has its own");
		return false;
	}
	if (!known || known == LORG_TRACE_ALL || (known & compilation->options->flags))
		return true;
	defect(compilation, place, "set call, silent, return_to, arity, send, receive, ports or running",
	       "the flag '%s' cannot be set by a specification: it changes what is hooked, which is chosen before the program starts",
	       term_said(compilation, flag));
	return false;
}

/* Flags to be set that are known already must be some that can be. What is taken away does not matter. */
static bool flags_fit(struct compilation *compilation, uint32_t function, struct expression **arguments, uint32_t count)
{
	lorg_term head, list;
	if (!compilation->options->flags || (function != LORG_MATCH_TRACE && function != LORG_MATCH_ENABLE_TRACE) ||
	    !expression_is_literal(arguments[count - 1]))
		return true;
	uint32_t place = arguments[count - 1]->place;
	list = arguments[count - 1]->literal;
	if (function == LORG_MATCH_ENABLE_TRACE)
		return flag_fits(compilation, place, list);
	while (lorg_get_cons(compilation->terms, list, &head, &list))
		if (!flag_fits(compilation, place, head))
			return false;
	return true;
}

static struct expression *call(struct compilation *compilation, uint32_t place, uint32_t function, struct expression **arguments,
			       uint32_t count)
{
	struct expression *expression = expression_new(compilation, EXPRESSION_CALL, place, count);
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	for (uint32_t i = 0; i < count; i++)
		expression->parts[i] = arguments[i];
	expression->what = (uint8_t)function;
	/* A condition is a guard, where only comparing the caller is possible. */
	bool address = compilation->options->inside || compilation->short_form;
	expression->is_caller = address && function == LORG_MATCH_CALLER;
	expression->address = address && (function == LORG_MATCH_CALLER || function == LORG_MATCH_CALLER_LINE ||
							       function == LORG_MATCH_CURRENT_STACKTRACE);
	return expression_settle(compilation, expression);
}

struct expression *expression_call(struct compilation *compilation, uint32_t place, const char *name, struct expression **arguments,
				   uint32_t count, bool body)
{
	if (strcmp(name, "andalso") == 0 || strcmp(name, "andthen") == 0)
		return short_circuit(compilation, EXPRESSION_AND_ALSO, place, name, arguments, count);
	if (strcmp(name, "orelse") == 0)
		return short_circuit(compilation, EXPRESSION_OR_ELSE, place, name, arguments, count);
	int which = compare_of(name, count);
	if (which >= 0)
		return compare(compilation, place, (uint8_t)which, arguments);
	uint32_t function = function_of(name);
	if (!function) {
		say_unknown(compilation, place, name, count);
		return expression_bad();
	}
	/* In the short form the caller may be compared in the condition: that needs no call. */
	bool as_body = body || (compilation->short_form && function == LORG_MATCH_CALLER);
	if (!function_fits(compilation, place, lorg_match_function_info(function), count, as_body) ||
	    !arguments_fit(compilation, function, arguments, count) || !flags_fit(compilation, function, arguments, count))
		return expression_bad();
	return call(compilation, place, function, arguments, count);
}

struct expression *expression_of_function(struct compilation *compilation, uint32_t place, enum lorg_match_function function,
					  struct expression *a, struct expression *b)
{
	struct expression *arguments[2] = {a, b};
	if (a->kind == EXPRESSION_BAD || b->kind == EXPRESSION_BAD)
		return expression_bad();
	return call(compilation, place, function, arguments, 2);
}
