/* SPDX-License-Identifier: MIT */
/* Captures: what the traced program reads at a call, and as what. */
#include "collector/value/capture.h"

#include <stdlib.h>
#include <string.h>

#include "collector/value/place.h"

enum {
	MEMBERS_MAXIMUM = 64,	/* of one struct that are told */
	ELEMENTS_MAXIMUM = 64,	/* of one array */
	NESTING_MAXIMUM = 4,	/* of structs by value in each other */
	OBJECT_MAXIMUM = 4096,	/* bytes of an object that are looked at */
};

/* ---- areas ------------------------------------------------------------- */

void value_area_free(struct value_area *area)
{
	free(area->bytes);
	*area = (struct value_area){0};
}

/* `size` zero bytes at the end; NULL: no memory. */
static uint8_t *area_extend(struct value_area *area, size_t size)
{
	if (area->failed || size > UINT32_MAX / 2 - area->used)
		return NULL;
	if (area->room - area->used < size) {
		size_t room = (area->used + size) * 2 + 1024;
		uint8_t *bytes = realloc(area->bytes, room);
		if (!bytes) {
			area->failed = 1;
			return NULL;
		}
		area->bytes = bytes;
		area->room = room;
	}
	uint8_t *at = memset(area->bytes + area->used, 0, size);
	area->used += size;
	return at;
}

uint32_t value_area_add(struct value_area *area, const void *bytes, size_t size)
{
	size_t padding = -area->used & 7;
	uint8_t *at = area_extend(area, padding + size);
	if (!at)
		return UINT32_MAX;
	memcpy(at + padding, bytes, size);
	return (uint32_t)(area->used - size);
}

uint32_t value_area_text(struct value_area *area, const char *text)
{
	size_t size = text ? strlen(text) + 1 : 0;
	uint8_t *at = size ? area_extend(area, size) : NULL;
	if (!at)
		return 0;
	memcpy(at, text, size);
	return (uint32_t)(area->used - size) + 1;
}

/* Offset + 1; 0 when it could not be added. */
static uint32_t add_detail(struct value_area *area, const void *bytes, size_t size)
{
	uint32_t offset = value_area_add(area, bytes, size);
	return offset == UINT32_MAX ? 0 : offset + 1;
}

/* ---- values ------------------------------------------------------------ */

struct output {
	struct value_area *captures, *names;
};

static void describe(struct output *output, struct lorg_capture *capture, const struct value_type *type, unsigned nesting, int pointees);

static uint32_t add_enumerators(struct output *output, const struct value_type *type)
{
	struct lorg_enumerators *table;
	size_t size = sizeof *table + type->count * sizeof table->enumerator[0];
	table = calloc(1, size);
	if (!table)
		return 0;
	table->count = type->count;
	for (uint32_t i = 0; i < type->count; i++) {
		table->enumerator[i].value = type->enumerators[i].value;
		table->enumerator[i].name = value_area_text(output->names, type->enumerators[i].name);
	}
	uint32_t detail = add_detail(output->captures, table, size);
	free(table);
	return detail;
}

static int is_character(const struct value_type *type)
{
	return type->kind == VALUE_CHAR && type->size == 1;
}

struct lorg_capture value_capture_member(const struct value_member *member)
{
	struct output none = {0};
	struct lorg_capture capture = {.place = LORG_PLACE_MEMORY, .offset = (int32_t)member->offset};
	describe(&none, &capture, member->type, 0, 0);
	if (member->width)
		capture.count = member->bit | member->width << 16;
	return capture;
}

/* pointees: 1 where structs behind pointers are told. */
static uint32_t add_members(struct output *output, const struct value_type *type, unsigned nesting, int pointees)
{
	struct lorg_members *table;
	uint32_t count = type->count < MEMBERS_MAXIMUM ? type->count : MEMBERS_MAXIMUM;
	size_t size = sizeof *table + count * sizeof table->member[0];
	if (!output->captures || !(table = calloc(1, size)))
		return 0;
	*table = (struct lorg_members){value_area_text(output->names, type->name), count, type->size, 0};
	for (uint32_t i = 0; i < count; i++) {
		const struct value_member *member = &type->members[i];
		struct lorg_capture *capture = &table->member[i];
		capture->place = LORG_PLACE_MEMORY;
		capture->offset = (int32_t)member->offset;
		describe(output, capture, member->type, nesting, pointees);
		if (member->width)
			capture->count = member->bit | member->width << 16;
		capture->name = value_area_text(output->names, member->name);
	}
	uint32_t detail = add_detail(output->captures, table, size);
	free(table);
	return detail;
}

static uint32_t add_element(struct output *output, const struct value_type *type, unsigned nesting)
{
	struct lorg_capture element = {.place = LORG_PLACE_MEMORY};
	if (!output->captures)
		return 0;
	describe(output, &element, type, nesting, 0);
	return add_detail(output->captures, &element, sizeof element);
}

static int can_be_told(const struct value_type *type)
{
	return (type->kind == VALUE_STRUCT || type->kind == VALUE_UNION) && type->count && type->size && type->size <= OBJECT_MAXIMUM;
}

static void describe_pointer(struct output *output, struct lorg_capture *capture, const struct value_type *type, int pointees)
{
	const struct value_type *target = type->target;
	capture->form = LORG_FORM_POINTER;
	if (target->kind == VALUE_FUNCTION)
		capture->form = LORG_FORM_CODE;
	else if (target->kind == VALUE_STD_STRING && capture->place != LORG_PLACE_MEMORY)
		capture->form = LORG_FORM_STD_STRING;
	else if (is_character(target) && !(type->flags & (VALUE_TYPE_REFERENCE | VALUE_TYPE_NOT_TEXT)))
		capture->form = LORG_FORM_STRING;
	else if (pointees && can_be_told(target))
		capture->detail = add_members(output, target, NESTING_MAXIMUM - 1, 0);
}

static void describe_array(struct output *output, struct lorg_capture *capture, const struct value_type *type, unsigned nesting)
{
	if (is_character(type->target) && capture->place == LORG_PLACE_MEMORY && type->count) {
		capture->form = LORG_FORM_STRING;
		capture->count = type->count;
		return;
	}
	capture->form = LORG_FORM_ARRAY;
	capture->count = type->count < ELEMENTS_MAXIMUM ? type->count : ELEMENTS_MAXIMUM;
	capture->detail = nesting ? add_element(output, type->target, nesting - 1) : 0;
	if (!capture->detail)
		capture->form = LORG_FORM_UNION;
}

static void describe_enum(struct output *output, struct lorg_capture *capture, const struct value_type *type)
{
	int is_unsigned = type->target && type->target->kind == VALUE_UNSIGNED;
	capture->detail = output->captures && type->count ? add_enumerators(output, type) : 0;
	if (!capture->detail)
		capture->form = is_unsigned ? LORG_FORM_UNSIGNED : LORG_FORM_SIGNED;
	else
		capture->form = type->flags & VALUE_TYPE_FLAGS ? LORG_FORM_FLAGS : LORG_FORM_ENUM;
}

static void describe_aggregate(struct output *output, struct lorg_capture *capture, const struct value_type *type, unsigned nesting)
{
	int told = type->kind == VALUE_STRUCT && can_be_told(type) && nesting;
	capture->detail = told ? add_members(output, type, nesting - 1, 0) : 0;
	capture->form = capture->detail ? LORG_FORM_STRUCT : LORG_FORM_UNION;
}

static void describe(struct output *output, struct lorg_capture *capture, const struct value_type *type, unsigned nesting, int pointees)
{
	static const uint8_t plain[] = {
		[VALUE_VOID] = LORG_FORM_VOID,	   [VALUE_SIGNED] = LORG_FORM_SIGNED,	    [VALUE_UNSIGNED] = LORG_FORM_UNSIGNED,
		[VALUE_BOOL] = LORG_FORM_BOOL,	   [VALUE_CHAR] = LORG_FORM_CHAR,	    [VALUE_FLOAT] = LORG_FORM_FLOAT,
		[VALUE_FUNCTION] = LORG_FORM_CODE, [VALUE_STD_STRING] = LORG_FORM_STD_STRING, [VALUE_STRING_VIEW] = LORG_FORM_STRING_VIEW,
		[VALUE_DESCRIPTOR] = LORG_FORM_DESCRIPTOR, [VALUE_VECTOR] = LORG_FORM_UNION,
	};
	capture->size = type->size;
	switch (type->kind) {
	case VALUE_OTHER:
		capture->form = LORG_FORM_NONE;
		capture->place = LORG_PLACE_ABSENT;
		break;
	case VALUE_POINTER:
		describe_pointer(output, capture, type, pointees);
		break;
	case VALUE_ARRAY:
		describe_array(output, capture, type, nesting);
		break;
	case VALUE_ENUM:
		describe_enum(output, capture, type);
		break;
	case VALUE_STRUCT:
	case VALUE_UNION:
		describe_aggregate(output, capture, type, nesting);
		break;
	default:
		capture->form = plain[type->kind];
	}
}

/* ---- functions --------------------------------------------------------- */

/* DWARF numbers of the registers that integer arguments come in (System V ABI, figure 3.36), in their order. */
static int integer_index(uint32_t dwarf_register)
{
	static const uint8_t order[] = {5 /* rdi */, 4 /* rsi */, 1 /* rdx */, 2 /* rcx */, 8, 9};
	for (int i = 0; i < (int)sizeof order; i++)
		if (order[i] == dwarf_register)
			return i;
	return -1;
}

/* A place that debug information names: the compiler has changed the function's parameters. */
static struct value_place named_place(uint32_t known_register)
{
	enum { XMM0 = 17, XMM7 = 24 };
	struct value_place place = {LORG_PLACE_ABSENT, 0, 0};
	if (!known_register || known_register == VALUE_ABSENT)
		return place;
	uint32_t number = known_register - 1;
	if (number >= XMM0 && number <= XMM7)
		return (struct value_place){LORG_PLACE_VECTOR, (uint8_t)(number - XMM0), 0};
	int index = integer_index(number);
	return index < 0 ? place : (struct value_place){LORG_PLACE_INTEGER, (uint8_t)index, 0};
}

/* Where the debug information names another register than the ABI does, the compiler has changed the function. */
static struct value_place believe(const struct value_prototype *prototype, const struct value_parameter *parameter,
				  struct value_place by_abi)
{
	struct value_place named = named_place(parameter->known_register);
	if (prototype->any_places)
		return parameter->type->size > 8 ? (struct value_place){LORG_PLACE_ABSENT, 0, 0} : named;
	int in_register = by_abi.place == LORG_PLACE_INTEGER || by_abi.place == LORG_PLACE_VECTOR;
	return in_register && named.place != LORG_PLACE_ABSENT ? named : by_abi;
}

/* A reference to a scalar or a class is told as what it refers to. */
static const struct value_type *look_through(const struct value_type *type)
{
	if (!(type->flags & VALUE_TYPE_REFERENCE))
		return type;
	switch (type->target->kind) {
	case VALUE_SIGNED:
	case VALUE_UNSIGNED:
	case VALUE_BOOL:
	case VALUE_CHAR:
	case VALUE_ENUM:
	case VALUE_FLOAT:
	case VALUE_STRING_VIEW:
	case VALUE_POINTER:
		return type->target;
	default:
		return type;
	}
}

static struct value_place referred_place(struct value_place place)
{
	if (place.place == LORG_PLACE_STACK)
		return (struct value_place){LORG_PLACE_ADDRESS, 255, place.offset};
	if (place.place == LORG_PLACE_INTEGER)
		place.place = LORG_PLACE_ADDRESS;
	return place;
}

static void capture_value(struct output *output, struct lorg_capture *capture, const struct value_type *type, struct value_place place)
{
	const struct value_type *told = look_through(type);
	if (told != type)
		place = referred_place(place);
	capture->place = place.place;
	capture->index = place.index;
	capture->offset = place.offset;
	describe(output, capture, told, NESTING_MAXIMUM, 1);
	if (place.place == LORG_PLACE_ABSENT && capture->form != LORG_FORM_VOID)
		*capture = (struct lorg_capture){.place = LORG_PLACE_ABSENT};
}

static void capture_parameter(struct output *output, struct lorg_capture *capture, const struct value_parameter *parameter,
			      struct value_place place)
{
	capture_value(output, capture, parameter->type, place);
	capture->name = value_area_text(output->names, parameter->name);
	if (parameter->buffer && capture->form != LORG_FORM_NONE) {
		capture->form = LORG_FORM_BUFFER;
		capture->count = parameter->buffer == VALUE_BUFFER_RESULT ? 0 : parameter->buffer;
		capture->detail = 0;
	}
}

static void capture_result(struct output *output, const struct value_prototype *prototype, struct lorg_capture *capture)
{
	const struct value_type *type = prototype->result;
	capture_value(output, capture, type, value_place_result(type));
	if (type->kind == VALUE_VOID)
		capture->place = 0;
	if (type->flags & VALUE_TYPE_ERRNO && (capture->form == LORG_FORM_SIGNED || capture->form == LORG_FORM_DESCRIPTOR))
		capture->form = LORG_FORM_ERRNO_RESULT;
}

void value_capture_prototype(const struct value_prototype *prototype, struct value_area *captures, struct value_area *names,
			     struct value_function *function)
{
	struct output output = {captures, names};
	struct lorg_capture argument[LORG_CAPTURES] = {{0}}, result = {0};
	struct value_places taken = {0};
	uint32_t count = prototype->parameter_count < LORG_CAPTURES ? prototype->parameter_count : LORG_CAPTURES;
	int in_memory = value_result_in_memory(prototype->result);
	taken.integers = (unsigned)in_memory;
	for (uint32_t i = 0; i < count; i++) {
		const struct value_parameter *parameter = &prototype->parameters[i];
		struct value_place place = value_place_argument(&taken, parameter->type);
		place = believe(prototype, parameter, place);
		capture_parameter(&output, &argument[i], parameter, place);
	}
	capture_result(&output, prototype, &result);
	*function = (struct value_function){
		.arity = (uint8_t)(prototype->parameter_count < 255 ? prototype->parameter_count : 254),
		.argument_count = (uint8_t)count,
		.flags = (in_memory ? LORG_PLAN_STRUCT_RESULT : 0) | (prototype->no_return ? LORG_PLAN_NO_RETURN : 0),
		.arguments = count ? add_detail(captures, argument, count * sizeof argument[0]) : 0,
		.result = add_detail(captures, &result, sizeof result),
	};
}
