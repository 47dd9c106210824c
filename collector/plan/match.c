/* SPDX-License-Identifier: MIT */
/* match.c: see match.h. */
#include "collector/plan/match.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Whether a value of the type may be, or hold, an atom of that name. */
static bool may_be_atom(const struct compiling *compiling, const struct value_type *type, const char *name, unsigned nesting, unsigned *left)
{
	if (!type || nesting == 0 || *left == 0 || type->kind == VALUE_OTHER || type->kind == VALUE_VOID)
		return !type || nesting == 0 || *left == 0; /* not known: it may */
	(*left)--;
	switch (type->kind) {
	case VALUE_ENUM:
		for (uint32_t i = 0; i < type->count; i++)
			if (strcmp(type->enumerators[i].name, name) == 0)
				return true;
		return false;
	case VALUE_POINTER: return may_be_atom(compiling, value_pointee(compiling->request->source, type), name, nesting - 1, left);
	case VALUE_ARRAY: return may_be_atom(compiling, type->target, name, nesting - 1, left);
	case VALUE_STRUCT:
	case VALUE_UNION:
		for (uint32_t i = 0; i < type->count; i++)
			if (may_be_atom(compiling, type->members[i].type, name, nesting - 1, left))
				return true;
		return false;
	default: return false;
	}
}

static void list_parameters(const struct plan_match_request *request, char *why, size_t size)
{
	int length = snprintf(why, size, "no parameter of %s", request->names[0] ? request->names[0] : "the function");
	for (uint32_t i = 0; i < LORG_CAPTURES && length > 0 && (size_t)length < size; i++) {
		const char *known = value_argument_name(request->source, request->offset, request->names, i);
		if (!known)
			return;
		length += snprintf(why + length, size - (size_t)length, "%s%s", i ? ", " : ": its parameters are ", known);
	}
}

static bool mistyped(void *owner, const char *name, char *why, size_t size)
{
	enum { NESTING = 5, TYPES = 2000 };
	const struct compiling *compiling = owner;
	const struct plan_match_request *request = compiling->request;
	static const char *const atoms[] = {"true", "false", "null", "undefined", "infinity"};
	unsigned left = TYPES;
	for (size_t i = 0; i < sizeof atoms / sizeof *atoms; i++)
		if (strcmp(atoms[i], name) == 0)
			return false;
	/* Where one is not known by its name, the word may be meant for it. */
	if (!value_argument_name(request->source, request->offset, request->names, 0))
		return false;
	for (uint32_t i = 0; i < LORG_CAPTURES; i++) {
		const struct value_type *type = value_argument_type(request->source, request->offset, request->names, i);
		if (!type)
			break;
		if (!value_argument_name(request->source, request->offset, request->names, i) ||
		    may_be_atom(compiling, type, name, NESTING, &left))
			return false;
	}
	list_parameters(request, why, size);
	return true;
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
		names.mistyped = mistyped;
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

/* ---- conditions on single functions --------------------------------------------- */

struct plan_source {
	struct object *object;
	struct value_source *source;
	uint64_t bias; /* address in the file with debug information less address in the object */
};

static int open_as_seen(pid_t pid, const char *path)
{
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	char *seen;
	int descriptor = -1;
	if (pid && asprintf(&seen, "/proc/%d/root%s", (int)pid, path) >= 0) {
		descriptor = open(seen, FLAGS);
		free(seen);
	}
	return descriptor >= 0 ? descriptor : open(path, FLAGS);
}

struct plan_source *plan_source_open(pid_t pid, const char *path, const struct prototypes *prototypes)
{
	char why[OBJECT_WHY];
	int descriptor = open_as_seen(pid, path);
	struct plan_source *source = descriptor >= 0 ? calloc(1, sizeof *source) : NULL;
	struct object *object = source ? object_open(path, descriptor, 1, why) : NULL;
	if (!object) {
		if (!source && descriptor >= 0)
			close(descriptor);
		free(source);
		return NULL;
	}
	Dwarf_Addr bias = 0;
	Dwarf *dwarf = dwfl_module_getdwarf(object->dwfl_module, &bias);
	source->object = object;
	source->bias = dwarf ? object->bias - bias : 0;
	source->source = value_source_open(prototypes, dwarf, object->module);
	return source;
}

void plan_source_close(struct plan_source *source)
{
	if (!source)
		return;
	value_source_close(source->source);
	object_close(source->object);
	free(source);
}

int plan_source_condition(struct plan_source *source, const char *text, uint64_t offset, const char *const *names, struct match_code *code,
			  char *why, size_t size)
{
	const struct plan_match_request request = {
		.text = text,
		.is_condition = 1,
		.source = source ? source->source : NULL,
		.offset = offset + (source ? source->bias : 0),
		.names = names,
	};
	struct plan_match match;
	if (plan_match_compile(&request, &match)) {
		snprintf(why, size, "condition: %s", match.why);
		plan_match_free(&match);
		return -1;
	}
	*code = match.code;
	match.code = (struct match_code){0};
	plan_match_free(&match);
	return 0;
}
