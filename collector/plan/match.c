/* SPDX-License-Identifier: MIT */
/* match.c: see match.h. */
#include "collector/plan/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/value/type.h"

struct compiling {
	const struct plan_match_request *request;
	struct plan_match *match;
};

/* ---- types ------------------------------------------------------------------ */

static bool is_character(const struct value_type *type)
{
	return type && type->kind == VALUE_CHAR && type->size == 1;
}

static enum match_type_kind kind_of(const struct value_type *type)
{
	switch (type->kind) {
	case VALUE_SIGNED:
	case VALUE_UNSIGNED:
	case VALUE_CHAR:
	case VALUE_ENUM:
	case VALUE_DESCRIPTOR: return MATCH_TYPE_INTEGER;
	case VALUE_BOOL: return MATCH_TYPE_BOOLEAN;
	case VALUE_FLOAT: return MATCH_TYPE_FLOAT;
	case VALUE_POINTER: return MATCH_TYPE_POINTER;
	case VALUE_STRUCT:
	case VALUE_UNION: return MATCH_TYPE_STRUCT;
	case VALUE_ARRAY: return MATCH_TYPE_ARRAY;
	default: return MATCH_TYPE_UNKNOWN;
	}
}

static void describe(const struct value_type *type, struct match_type *described)
{
	*described = (struct match_type){
		.kind = kind_of(type),
		.size = type->size,
		.is_signed = type->kind == VALUE_SIGNED || type->kind == VALUE_DESCRIPTOR ||
			     (type->kind == VALUE_ENUM && type->target && type->target->kind == VALUE_SIGNED),
		.is_text = (type->kind == VALUE_POINTER || type->kind == VALUE_ARRAY) && is_character(type->target) &&
			   !(type->flags & (VALUE_TYPE_NOT_TEXT | VALUE_TYPE_REFERENCE)),
		.handle = {(uintptr_t)type},
	};
}

static const struct value_type *type_of(const struct match_type *described)
{
	return (const struct value_type *)(uintptr_t)described->handle[0];
}

/* ---- names ------------------------------------------------------------------- */

static bool parameter(void *owner, const char *name, uint32_t *index)
{
	const struct plan_match_request *request = ((struct compiling *)owner)->request;
	for (uint32_t i = 0; i < LORG_CAPTURES; i++) {
		const char *known = value_argument_name(request->source, request->offset, request->names, i);
		if (!known || strcmp(known, name) != 0)
			continue;
		*index = i;
		return true;
	}
	return false;
}

static bool parameter_type(void *owner, uint32_t index, struct match_type *described)
{
	const struct plan_match_request *request = ((struct compiling *)owner)->request;
	const struct value_type *type = value_argument_type(request->source, request->offset, request->names, index);
	if (!type)
		return false;
	describe(type, described);
	return true;
}

/* Members of a struct without a name of its own count as those of the struct around it. */
static const struct value_member *find_member(const struct value_type *type, const char *name, uint64_t *offset, unsigned nesting)
{
	if (!type || (type->kind != VALUE_STRUCT && type->kind != VALUE_UNION) || nesting == 0)
		return NULL;
	for (uint32_t i = 0; i < type->count; i++) {
		const struct value_member *member = &type->members[i];
		const struct value_member *found = member->name && *member->name ? strcmp(member->name, name) == 0 ? member : NULL
										 : find_member(member->type, name, offset, nesting - 1);
		if (!found)
			continue;
		*offset += member->offset;
		return found;
	}
	return NULL;
}

static bool member(void *owner, const struct match_type *of, const char *name, struct match_type *described, uint64_t *offset)
{
	enum { NESTING = 16 };
	const struct value_type *type = type_of(of);
	if (type->kind == VALUE_POINTER)
		type = value_pointee(((struct compiling *)owner)->request->source, type);
	*offset = 0;
	const struct value_member *found = find_member(type, name, offset, NESTING);
	if (!found)
		return false;
	describe(found->type, described);
	if (!found->width)
		return true;
	/* Loaded as a whole from its first byte. */
	uint32_t bits = found->bit + found->width, bytes = (bits + 7) / 8;
	described->bits = found->width;
	described->bit_offset = found->bit;
	described->size = bytes <= 1 ? 1 : bytes <= 2 ? 2 : bytes <= 4 ? 4 : bytes <= 8 ? 8 : bytes;
	return true;
}

static bool element(void *owner, const struct match_type *of, struct match_type *described)
{
	const struct value_type *type = type_of(of);
	const struct value_type *target =
		type->kind == VALUE_POINTER ? value_pointee(((struct compiling *)owner)->request->source, type) : type->target;
	if (!target || target->kind == VALUE_VOID || target->kind == VALUE_FUNCTION)
		return false;
	describe(target, described);
	return true;
}

static int keep_ranges(struct plan_match *match, const struct caller_range *ranges, uint32_t count)
{
	struct caller_range *more = realloc(match->ranges, (match->range_count + count + 1ul) * sizeof *more);
	if (!more)
		return -1;
	memcpy(more + match->range_count, ranges, count * sizeof *ranges);
	match->ranges = more;
	match->range_count += count;
	return 0;
}

static int ranges(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **list)
{
	struct compiling *compiling = owner;
	const struct plan_match_request *request = compiling->request;
	struct caller_range *found = NULL;
	int count = request->code_ranges ? request->code_ranges(request->code_owner, module, function, &found) : -1;
	(void)arity; /* one name is one function in C, whatever is said of its arguments */
	*list = count >= 0 ? calloc((size_t)count + 1, sizeof **list) : NULL;
	if (*list && keep_ranges(compiling->match, found, (uint32_t)count) == 0) {
		for (int i = 0; i < count; i++)
			(*list)[i] = (struct lorg_match_range){found[i].low, found[i].high - 1};
	} else {
		free(*list);
		*list = NULL;
		count = -1;
	}
	free(found);
	return count;
}

/* ---- compiling ------------------------------------------------------------------ */

int plan_match_compile(const struct plan_match_request *request, struct plan_match *match)
{
	struct compiling compiling = {request, match};
	struct match_names names = {.owner = &compiling, .ranges = ranges};
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true, .names = &names, .flags = LORG_TRACE_SUPPORTED};
	struct match_errors errors = {0};
	*match = (struct plan_match){0};
	if (request->source) {
		names.parameter = parameter;
		names.parameter_type = parameter_type;
		names.member = member;
		names.element = element;
	}
	size_t length = strlen(request->text);
	bool good = request->is_condition ? match_compile_condition(request->text, length, &options, &match->code, &errors)
					  : match_compile(request->text, length, &options, &match->code, &errors);
	if (!good && errors.count)
		match_error_text(&errors.list[0], match->why, sizeof match->why);
	else if (!good)
		snprintf(match->why, sizeof match->why, "out of memory");
	match_errors_close(&errors);
	return good ? 0 : -1;
}

void plan_match_free(struct plan_match *match)
{
	match_code_close(&match->code);
	free(match->ranges);
	match->ranges = NULL;
}
