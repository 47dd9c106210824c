/* SPDX-License-Identifier: MIT */
/* Places of arguments and results. Section numbers are those of the System V ABI for AMD64. */
#include "collector/value/place.h"

#include <lorg/plan.h>

enum class { CLASS_NONE, CLASS_VECTOR, CLASS_INTEGER, CLASS_X87, CLASS_MEMORY };

enum { INTEGER_REGISTERS = 6, VECTOR_REGISTERS = 8, DEPTH_MAXIMUM = 16 };

/* 3.2.3, merging of the classes of two fields in one eightbyte. */
static enum class merge(enum class a, enum class b)
{
	if (a == b || b == CLASS_NONE)
		return a;
	if (a == CLASS_NONE)
		return b;
	if (a == CLASS_MEMORY || b == CLASS_MEMORY)
		return CLASS_MEMORY;
	if (a == CLASS_INTEGER || b == CLASS_INTEGER)
		return CLASS_INTEGER;
	return a == CLASS_X87 || b == CLASS_X87 ? CLASS_MEMORY : CLASS_VECTOR;
}

static void classify(const struct value_type *type, uint32_t offset, enum class half[2], unsigned depth);

static void classify_scalar(enum class class, uint32_t offset, uint32_t size, enum class half[2])
{
	for (uint32_t at = offset / 8; at <= (offset + (size ? size - 1 : 0)) / 8 && at < 2; at++)
		half[at] = merge(half[at], class);
}

static void classify_members(const struct value_type *type, uint32_t offset, enum class half[2], unsigned depth)
{
	for (uint32_t i = 0; i < type->count; i++) {
		const struct value_member *member = &type->members[i];
		if (member->width)
			classify_scalar(CLASS_INTEGER, offset + member->offset + member->bit / 8, (member->width + 7) / 8, half);
		else
			classify(member->type, offset + member->offset, half, depth);
	}
}

static void classify(const struct value_type *type, uint32_t offset, enum class half[2], unsigned depth)
{
	if (type->kind == VALUE_VECTOR && depth == DEPTH_MAXIMUM) {
		half[0] = CLASS_VECTOR;
		return;
	}
	if (depth == 0 || type->size > 16 || type->flags & VALUE_TYPE_UNALIGNED) {
		half[0] = CLASS_MEMORY;
		return;
	}
	switch (type->kind) {
	case VALUE_STRUCT:
	case VALUE_UNION:
		classify_members(type, offset, half, depth - 1);
		break;
	case VALUE_ARRAY:
		for (uint32_t i = 0; i < type->count; i++)
			classify(type->target, offset + i * type->target->size, half, depth - 1);
		break;
	case VALUE_FLOAT:
		classify_scalar(type->size == 16 ? CLASS_X87 : CLASS_VECTOR, offset, type->size, half);
		break;
	case VALUE_VECTOR:
		classify_scalar(CLASS_VECTOR, offset, type->size, half);
		break;
	case VALUE_OTHER:
	case VALUE_STD_STRING:
		half[0] = CLASS_MEMORY;
		break;
	default:
		classify_scalar(CLASS_INTEGER, offset, type->size, half);
	}
}

static int by_address(const struct value_type *type)
{
	return type->kind == VALUE_STD_STRING || type->flags & VALUE_TYPE_BY_ADDRESS;
}

static void classes_of(const struct value_type *type, enum class half[2])
{
	half[0] = half[1] = CLASS_NONE;
	classify(type, 0, half, DEPTH_MAXIMUM);
	if (half[0] == CLASS_MEMORY || half[1] == CLASS_MEMORY)
		half[0] = half[1] = CLASS_MEMORY;
}

int value_result_in_memory(const struct value_type *type)
{
	if (type->kind == VALUE_VOID || type->kind == VALUE_OTHER)
		return 0;
	enum class half[2];
	classes_of(type, half);
	return by_address(type) || half[0] == CLASS_MEMORY;
}

static struct value_place absent(void)
{
	return (struct value_place){LORG_PLACE_ABSENT, 0, 0};
}

static struct value_place in_register(enum class class, unsigned index)
{
	return (struct value_place){class == CLASS_VECTOR ? LORG_PLACE_VECTOR : LORG_PLACE_INTEGER, (uint8_t)index, 0};
}

static uint8_t pair_part(enum class class, unsigned index)
{
	return (uint8_t)(class == CLASS_VECTOR ? 8 + index : index);
}

struct value_place value_place_result(const struct value_type *type)
{
	enum class half[2];
	if (type->kind == VALUE_OTHER)
		return absent();
	classes_of(type, half);
	if (type->kind == VALUE_STD_STRING)
		return in_register(CLASS_INTEGER, 0);
	if (by_address(type) || half[0] == CLASS_MEMORY)
		return (struct value_place){LORG_PLACE_ADDRESS, 0, 0};
	if (half[0] == CLASS_X87)
		return (struct value_place){LORG_PLACE_X87, 0, 0};
	if (type->size <= 8 || type->kind == VALUE_VECTOR)
		return in_register(half[0], 0);
	unsigned integers = 0, vectors = 0;
	uint8_t low = pair_part(half[0], half[0] == CLASS_VECTOR ? vectors++ : integers++);
	uint8_t high = pair_part(half[1], half[1] == CLASS_VECTOR ? vectors++ : integers++);
	return (struct value_place){LORG_PLACE_PAIR, (uint8_t)(low | high << 4), 0};
}

static struct value_place on_stack(struct value_places *taken, uint32_t size, uint32_t align)
{
	if (align > 8)
		taken->stack = (taken->stack + 15) & ~15u;
	struct value_place place = {LORG_PLACE_STACK, 0, (int32_t)taken->stack};
	taken->stack += (size + 7) & ~7u;
	return place;
}

static struct value_place place_address(struct value_places *taken, enum lorg_place how)
{
	if (taken->integers < INTEGER_REGISTERS)
		return (struct value_place){(uint8_t)how, (uint8_t)taken->integers++, 0};
	struct value_place place = on_stack(taken, 8, 8);
	if (how == LORG_PLACE_INTEGER)
		return place;
	return (struct value_place){LORG_PLACE_ADDRESS, 255, place.offset};
}

/* 3.2.3, Passing: when there are not enough registers for the whole of it, all of it goes to the stack. */
static struct value_place place_in_registers(struct value_places *taken, const struct value_type *type, const enum class half[2])
{
	unsigned halves = type->size > 8 && type->kind != VALUE_VECTOR ? 2 : 1, vectors = 0;
	for (unsigned i = 0; i < halves; i++)
		vectors += half[i] == CLASS_VECTOR;
	unsigned integers = halves - vectors;
	if (taken->integers + integers > INTEGER_REGISTERS || taken->vectors + vectors > VECTOR_REGISTERS)
		return on_stack(taken, type->size, type->align);
	uint8_t part[2] = {0, 0};
	for (unsigned i = 0; i < halves; i++)
		part[i] = pair_part(half[i], half[i] == CLASS_VECTOR ? taken->vectors++ : taken->integers++);
	if (halves == 1)
		return in_register(half[0], part[0] & 7);
	return (struct value_place){LORG_PLACE_PAIR, (uint8_t)(part[0] | part[1] << 4), 0};
}

/* What the rules above do not decide: its registers and bytes are not known, nor those of the arguments behind it. */
static int undecided(const struct value_type *type, const enum class half[2])
{
	if (type->kind == VALUE_OTHER || type->kind == VALUE_VOID)
		return 1;
	if (by_address(type))
		return 0;
	if (type->size > 16 && (type->kind == VALUE_STRUCT || type->kind == VALUE_UNION)) /* one wide vector goes in a register */
		return type->count == 1 && type->members[0].type->kind == VALUE_VECTOR;
	return type->size > 8 && type->size <= 16 && type->kind != VALUE_VECTOR && (half[0] == CLASS_NONE) != (half[1] == CLASS_NONE);
}

struct value_place value_place_argument(struct value_places *taken, const struct value_type *type)
{
	enum class half[2] = {CLASS_NONE, CLASS_NONE};
	if (type->kind != VALUE_OTHER)
		classes_of(type, half);
	taken->lost |= (uint32_t)undecided(type, half);
	if (taken->lost)
		return absent();
	if (type->kind == VALUE_STD_STRING)
		return place_address(taken, LORG_PLACE_INTEGER);
	if (by_address(type))
		return place_address(taken, LORG_PLACE_ADDRESS);
	if (half[0] == CLASS_NONE) /* empty: takes no place */
		return absent();
	if (half[0] == CLASS_MEMORY || half[0] == CLASS_X87)
		return on_stack(taken, type->size, type->align);
	return place_in_registers(taken, type, half);
}
