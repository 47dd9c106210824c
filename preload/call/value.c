/* SPDX-License-Identifier: MIT */
/*
 * value.c: arguments and results as terms, as the plan says where they stand.
 *
 * Whatever a pointer leads to may not be there: it is read through the kernel,
 * or, where system calls may be forbidden, from the thread's own stack alone;
 * else it is told as a pointer that could not be followed. Nothing is ever
 * guessed: a place that is not known is told as absent.
 *
 * The code that encodes terms is compiled with vector registers: the program's
 * are put aside while it runs, and read from there.
 */
#include <sys/uio.h>

#include "preload/call/inner.h"
#include "preload/call/quick.h"
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/term/external.h"

enum {
	SMALL_SIZE = 256,	/* of a call's terms, on the stack, where the thread's memory for them is in use */
	OBJECT_SIZE = 512,	/* of a struct, union or array that is read at once */
	DEPTH = 4,		/* of structs in each other */
	MEMBERS = 64,
	ELEMENTS = 32,		/* of an array */
	STEPS = 512,		/* values written of one call */
	NAME_SIZE = 256,
	LOOK_TEXT = 512,	/* bytes that match specifications see of texts that are no char * */
};

/* What is being written. */
struct writing {
	struct lorg_external out;
	const struct lorg_plan *plan;
	const struct lorg_plan_function *function;
	struct thread *self;
	const uint64_t *integers; /* by index of enum lorg_place */
	const uint8_t *vectors;	  /* 16 bytes each */
	const uint8_t *x87;
	const uint64_t *stack;	  /* first stack argument */
	uintptr_t own_low, own_high; /* of the stack that is surely there */
	uint32_t text_length;
	uint32_t declared; /* of the setting that it is written for */
	uint32_t steps;
	int64_t result;		  /* of the call, where it has returned and is an integer */
	uint8_t returned;
};

/* ---- the plan's captures area ------------------------------------------ */

/* `size` bytes at number - 1 of the captures, or NULL. */
static const void *captured(const struct writing *writing, uint32_t number, uint64_t size)
{
	const struct lorg_plan *plan = writing->plan;
	uint64_t at = (uint64_t)number - 1;
	if (!number || at > plan->captures_size || plan->captures_size - at < size)
		return 0;
	return (const char *)plan + plan->captures + at;
}

static const struct lorg_members *members_of(const struct writing *writing, uint32_t number)
{
	const struct lorg_members *members = captured(writing, number, sizeof *members);
	return members && captured(writing, number, sizeof *members + (uint64_t)members->count * sizeof members->member[0]) ? members : 0;
}

static const struct lorg_enumerators *enumerators_of(const struct writing *writing, uint32_t number)
{
	const struct lorg_enumerators *all = captured(writing, number, sizeof *all);
	return all && captured(writing, number, sizeof *all + (uint64_t)all->count * sizeof all->enumerator[0]) ? all : 0;
}

static const char *name_of(const struct writing *writing, uint32_t number, size_t *length)
{
	const struct lorg_plan *plan = writing->plan;
	uint64_t at = (uint64_t)number - 1;
	*length = 0;
	if (!number || at >= plan->names_size)
		return "";
	const char *name = (const char *)plan + plan->names + at;
	uint64_t room = plan->names_size - at;
	*length = text_length(name, room < NAME_SIZE ? room : NAME_SIZE);
	return name;
}

/* ---- reading what is there --------------------------------------------- */

/* Like memory_peek, but never trusts an address. */
static uint32_t read_memory(const struct writing *writing, void *to, uint64_t from, uint32_t length)
{
	if (!from || !length)
		return 0;
	if (from >= writing->own_low && from < writing->own_high && writing->own_high - from >= length) {
		memcpy(to, (const void *)from, length);
		return length;
	}
	if (!system_calls_allowed())
		return 0;
	/* Page by page, so that what is there is read up to the end of it. */
	struct iovec local = {to, length}, remote[3];
	unsigned pieces = 0;
	for (uint32_t done = 0; done < length && pieces < 3; pieces++) {
		uint32_t piece = 4096 - (uint32_t)((from + done) & 4095);
		if (piece > length - done)
			piece = length - done;
		remote[pieces] = (struct iovec){(void *)(from + done), piece};
		done += piece;
	}
	long got = raw_syscall6(SYS_process_vm_readv, raw_getpid(), (long)&local, 1, (long)remote, pieces, 0);
	return raw_failed(got) ? 0 : (uint32_t)got;
}

static uint64_t load(const uint8_t *bytes, uint32_t size)
{
	uint64_t value = 0;
	memcpy(&value, bytes, size < 8 ? size : 8);
	return value;
}

/* ---- floats, without a floating-point unit ------------------------------ */

/* The double with these bits. As lorg_put_float, which takes it in a register that this file may not use. */
static void put_double(struct lorg_external *out, uint64_t bits)
{
	if ((bits >> 52 & 0x7ff) == 0x7ff) {
		lorg_put_atom_text(out, bits << 12 ? "nan" : bits >> 63 ? "-inf" : "inf");
		return;
	}
	if (out->truncated || out->size - out->used < 9) {
		out->truncated = 1;
		return;
	}
	out->bytes[out->used++] = LORG_EXTERNAL_FLOAT;
	for (int shift = 56; shift >= 0; shift -= 8)
		out->bytes[out->used++] = (uint8_t)(bits >> shift);
}

static uint64_t double_of_float(uint32_t bits)
{
	uint64_t sign = (uint64_t)(bits >> 31) << 63, exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
	if (exponent == 0xff)
		return sign | 0x7ffull << 52 | fraction << 29;
	if (exponent)
		return sign | (exponent + 1023 - 127) << 52 | fraction << 29;
	if (!fraction)
		return sign;
	unsigned shift = (unsigned)__builtin_clzll(fraction) - 40; /* to bit 23 */
	return sign | (uint64_t)(1023 - 126 - (int)shift) << 52 | (fraction << (shift + 29) & ((1ull << 52) - 1));
}

/* Rounded to the nearest double, ties to even. */
static uint64_t double_of_extended(const uint8_t *bytes)
{
	uint64_t mantissa = load(bytes, 8), head = load(bytes + 8, 2);
	uint64_t sign = (head >> 15) << 63;
	int exponent = (int)(head & 0x7fff);
	if (exponent == 0x7fff)
		return sign | 0x7ffull << 52 | (mantissa << 1 ? 1ull << 51 : 0);
	exponent += 1023 - 16383;
	if (!mantissa || exponent < -60)
		return sign;
	unsigned drop = exponent > 0 ? 11 : (unsigned)(12 - exponent);
	uint64_t kept = drop > 63 ? 0 : mantissa >> drop;
	uint64_t rest = drop > 63 ? 0 : mantissa << (64 - drop), half = 1ull << 63;
	if (rest > half || (rest == half && (kept & 1)))
		kept++;
	/* The leading bit adds one to the exponent, and so does a carry. */
	uint64_t bits = exponent > 0 ? ((uint64_t)(exponent - 1) << 52) + kept : kept;
	return exponent >= 0x7ff || bits >> 52 >= 0x7ff ? sign | 0x7ffull << 52 : sign | bits;
}

static void put_float(struct writing *writing, const uint8_t *bytes, uint32_t size)
{
	if (size == 4)
		put_double(&writing->out, double_of_float((uint32_t)load(bytes, 4)));
	else if (size == 8)
		put_double(&writing->out, load(bytes, 8));
	else
		put_double(&writing->out, double_of_extended(bytes));
}

/* ---- text and bytes ----------------------------------------------------- */

/* Where the string ends, if that is near; else where looking stopped. */
static uint64_t true_length(const struct writing *writing, uint64_t from, uint32_t known)
{
	char piece[256];
	uint64_t length = known;
	while (length < LORG_TEXT_MAXIMUM) {
		uint32_t got = read_memory(writing, piece, from + length, sizeof piece);
		uint32_t part = (uint32_t)text_length(piece, got);
		length += part;
		if (part < got || got < sizeof piece)
			break;
	}
	return length;
}

static void put_text(struct writing *writing, uint64_t from)
{
	char text[512];
	uint32_t room = writing->text_length < sizeof text ? writing->text_length : sizeof text;
	if (!from) {
		lorg_put_pointer(&writing->out, 0);
		return;
	}
	uint32_t got = read_memory(writing, text, from, room + (room < sizeof text));
	uint32_t length = (uint32_t)text_length(text, got);
	if (!got)
		lorg_put_pointer_unreadable(&writing->out, from);
	else if (length < got)
		lorg_put_string(&writing->out, text, length, length);
	else
		lorg_put_string(&writing->out, text, room < got ? room : got, true_length(writing, from, length));
}

static void put_counted(struct writing *writing, uint64_t from, uint64_t length, int as_text)
{
	uint8_t bytes[512];
	uint32_t wanted = writing->text_length < sizeof bytes ? writing->text_length : sizeof bytes;
	if (length < wanted)
		wanted = (uint32_t)length;
	uint32_t got = read_memory(writing, bytes, from, wanted);
	if (wanted && !got)
		lorg_put_pointer_unreadable(&writing->out, from);
	else if (as_text)
		lorg_put_string(&writing->out, bytes, got, length);
	else
		lorg_put_binary(&writing->out, bytes, got, length);
}

/* ---- values whose bytes are at hand ------------------------------------- */

static void put_bytes(struct writing *writing, const struct lorg_capture *capture, const uint8_t *bytes, uint32_t have, int depth);

static void put_absent(struct writing *writing)
{
	lorg_put_atom_text(&writing->out, "?");
}

/* 16 bytes, of which those that are there. */
static void put_wide(struct writing *writing, const uint8_t *bytes, uint32_t have, int is_signed)
{
	uint64_t words[2] = {load(bytes, 8), have >= 16 ? load(bytes + 8, 8) : 0};
	int negative = is_signed && words[1] >> 63;
	if (negative) {
		words[0] = ~words[0] + 1;
		words[1] = ~words[1] + !words[0];
	}
	lorg_put_big(&writing->out, negative, words, words[1] ? 2 : 1);
}

static void put_enum(struct writing *writing, const struct lorg_capture *capture, uint64_t raw)
{
	const struct lorg_enumerators *all = enumerators_of(writing, capture->detail);
	int64_t value = sign_extend(raw, capture->size);
	for (uint32_t i = 0; all && i < all->count; i++) {
		if (all->enumerator[i].value != value && all->enumerator[i].value != (int64_t)zero_extend(raw, capture->size))
			continue;
		size_t length;
		const char *name = name_of(writing, all->enumerator[i].name, &length);
		lorg_put_atom(&writing->out, name, length);
		return;
	}
	lorg_put_integer(&writing->out, value);
}

static char *append_hexadecimal(char *to, const char *end, uint64_t value)
{
	char digits[19] = "0x";
	int count = 2;
	for (int shift = 60; shift >= 0; shift -= 4)
		if (count > 2 || value >> shift || !shift)
			digits[count++] = "0123456789abcdef"[value >> shift & 15];
	digits[count] = 0;
	return text_append(to, end, digits);
}

/* The names that are or'ed, and what has none in hexadecimal; the integer alone where no name fits. */
static void put_flags(struct writing *writing, const struct lorg_capture *capture, uint64_t raw)
{
	const struct lorg_enumerators *all = enumerators_of(writing, capture->detail);
	uint64_t value = zero_extend(raw, capture->size), rest = value;
	uint32_t chosen[32], count = 0;
	for (uint32_t i = all ? all->count : 0; i-- > 0 && count < 32;) {
		uint64_t bits = (uint64_t)all->enumerator[i].value;
		if ((bits && (rest & bits) == bits) || (!bits && !value)) {
			chosen[count++] = i;
			rest &= ~bits;
		}
	}
	if (!count) {
		lorg_put_unsigned(&writing->out, value);
		return;
	}
	char text[512], *at = text;
	const char *end = text + sizeof text;
	while (count-- > 0) {
		size_t length;
		at = text_append(at, end, name_of(writing, all->enumerator[chosen[count]].name, &length));
		if (count || rest)
			at = text_append(at, end, "|");
	}
	if (rest)
		at = append_hexadecimal(at, end, rest);
	lorg_put_flags(&writing->out, value, text, (size_t)(at - text));
}

static int is_integer(const struct lorg_capture *capture)
{
	return capture->form == LORG_FORM_SIGNED || capture->form == LORG_FORM_UNSIGNED || capture->form == LORG_FORM_BOOL ||
	       capture->form == LORG_FORM_CHAR || capture->form == LORG_FORM_ENUM || capture->form == LORG_FORM_FLAGS;
}

/* count: first bit and width. As a whole number of eight bytes, which its form takes it as. */
static void put_bit_field(struct writing *writing, const struct lorg_capture *capture, const uint8_t *bytes, uint32_t have, int depth)
{
	uint32_t first = capture->count & 0xffff, width = capture->count >> 16;
	struct lorg_capture whole = *capture;
	uint8_t room[9] = {0};
	if (!width || width > 64 || first >= 64 || (first + width + 7) / 8 > have) {
		put_absent(writing);
		return;
	}
	memcpy(room, bytes, have < sizeof room ? have : sizeof room);
	uint64_t value = load(room, 8) >> first;
	if (first)
		value |= (uint64_t)room[8] << (64 - first);
	value <<= 64 - width;
	value = capture->form == LORG_FORM_SIGNED ? (uint64_t)((int64_t)value >> (64 - width)) : value >> (64 - width);
	whole.size = 8;
	whole.count = 0;
	put_bytes(writing, &whole, (const uint8_t *)&value, 8, depth);
}

/* Zero-terminated where it is shorter than its room. */
static void put_characters(struct writing *writing, const uint8_t *bytes, uint32_t have)
{
	uint32_t length = (uint32_t)text_length((const char *)bytes, have);
	lorg_put_string(&writing->out, bytes, length < writing->text_length ? length : writing->text_length, length);
}

static void put_member(struct writing *writing, const struct lorg_capture *member, const uint8_t *bytes, uint32_t have, int depth)
{
	if (member->form == LORG_FORM_STRING && member->count)
		put_characters(writing, bytes, have < member->count ? have : member->count);
	else if (is_integer(member) && member->count)
		put_bit_field(writing, member, bytes, have, depth);
	else
		put_bytes(writing, member, bytes, have, depth);
}

static void put_struct(struct writing *writing, const struct lorg_members *members, const uint8_t *bytes, uint32_t have, int depth)
{
	size_t length;
	uint32_t count = members->count < MEMBERS ? members->count : MEMBERS;
	const char *tag = name_of(writing, members->name, &length);
	lorg_put_named_tuple_head(&writing->out, tag, length, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct lorg_capture *member = &members->member[i];
		const char *name = name_of(writing, member->name, &length);
		uint32_t at = (uint32_t)member->offset;
		lorg_put_atom(&writing->out, name, length);
		if (member->offset < 0 || at > have)
			put_absent(writing);
		else
			put_member(writing, member, bytes + at, have - at, depth + 1);
	}
}

static void put_array(struct writing *writing, const struct lorg_capture *capture, const uint8_t *bytes, uint32_t have, int depth)
{
	const struct lorg_capture *element = captured(writing, capture->detail, sizeof *element);
	uint32_t count = element && element->size ? have / element->size : 0;
	if (count > capture->count)
		count = capture->count;
	if (count > ELEMENTS)
		count = ELEMENTS;
	if (!element || (!count && capture->count)) {
		put_absent(writing);
		return;
	}
	/* char[]: text up to its end. */
	if (element->form == LORG_FORM_CHAR && element->size == 1) {
		put_characters(writing, bytes, have < capture->count ? have : capture->count);
		return;
	}
	if (count)
		lorg_put_list_head(&writing->out, count + (count < capture->count));
	for (uint32_t i = 0; i < count; i++)
		put_bytes(writing, element, bytes + (size_t)i * element->size, element->size, depth + 1);
	if (count && count < capture->count)
		lorg_put_atom_text(&writing->out, "...");
	lorg_put_nil(&writing->out);
}

/* A pointer, and what it leads to, one level deep. */
static void put_pointer(struct writing *writing, const struct lorg_capture *capture, uint64_t address, int depth)
{
	uint8_t object[OBJECT_SIZE];
	const struct lorg_members *members = depth == 0 ? members_of(writing, capture->detail) : 0;
	if (!address || !members) {
		lorg_put_pointer(&writing->out, address);
		return;
	}
	uint32_t size = members->size < sizeof object ? members->size : sizeof object;
	uint32_t got = read_memory(writing, object, address, size);
	if (!got && size) {
		lorg_put_pointer_unreadable(&writing->out, address);
		return;
	}
	lorg_put_pointer_to(&writing->out, address);
	put_struct(writing, members, object, got, depth + 1);
}

static void put_std_string(struct writing *writing, const uint8_t *bytes, uint32_t have, int view)
{
	if (have < 16) {
		put_absent(writing);
		return;
	}
	uint64_t pointer = load(bytes + (view ? 8 : 0), 8), length = load(bytes + (view ? 0 : 8), 8);
	put_counted(writing, pointer, length, 1);
}

static void put_descriptor(struct writing *writing, int64_t fd)
{
	lorg_put_integer(&writing->out, fd);
}

/* have: bytes that were really read. depth: structs and pointers around it. */
static void put_bytes(struct writing *writing, const struct lorg_capture *capture, const uint8_t *bytes, uint32_t have, int depth)
{
	uint32_t needs = capture->form == LORG_FORM_STRUCT || capture->form == LORG_FORM_ARRAY || capture->form == LORG_FORM_UNION ||
					 capture->form == LORG_FORM_STD_STRING || capture->form == LORG_FORM_STRING_VIEW
				 ? 0
				 : capture->form == LORG_FORM_FLOAT && capture->size > 8 ? 10 : capture->size < 8 ? capture->size : 8;
	uint64_t raw = load(bytes, needs < have ? needs : have);
	const struct lorg_members *members;
	if (have < needs || writing->steps++ > STEPS || depth > DEPTH) {
		put_absent(writing);
		return;
	}
	switch (capture->form) {
	case LORG_FORM_ERRNO_RESULT:
	case LORG_FORM_SIGNED:
		if (capture->size > 8) /* __int128 */
			put_wide(writing, bytes, have, 1);
		else
			lorg_put_integer(&writing->out, sign_extend(raw, capture->size));
		return;
	case LORG_FORM_UNSIGNED:
		if (capture->size > 8)
			put_wide(writing, bytes, have, 0);
		else
			lorg_put_unsigned(&writing->out, zero_extend(raw, capture->size));
		return;
	case LORG_FORM_BOOL:
		lorg_put_boolean(&writing->out, (raw & 0xff) != 0);
		return;
	case LORG_FORM_CHAR:
		lorg_put_character(&writing->out, (uint32_t)zero_extend(raw, capture->size));
		return;
	case LORG_FORM_ENUM:
		put_enum(writing, capture, raw);
		return;
	case LORG_FORM_FLAGS:
		put_flags(writing, capture, raw);
		return;
	case LORG_FORM_FLOAT:
		put_float(writing, bytes, capture->size);
		return;
	case LORG_FORM_CODE:
		lorg_put_code_address(&writing->out, raw);
		return;
	case LORG_FORM_STRING:
		put_text(writing, raw);
		return;
	case LORG_FORM_STD_STRING:
	case LORG_FORM_STRING_VIEW:
		put_std_string(writing, bytes, have, capture->form == LORG_FORM_STRING_VIEW);
		return;
	case LORG_FORM_STRUCT:
		members = members_of(writing, capture->detail);
		if (members)
			put_struct(writing, members, bytes, have < capture->size ? have : capture->size, depth);
		else
			put_absent(writing);
		return;
	case LORG_FORM_UNION:
		lorg_put_binary(&writing->out, bytes, have < capture->size ? have : capture->size, capture->size);
		return;
	case LORG_FORM_ARRAY:
		put_array(writing, capture, bytes, have, depth);
		return;
	case LORG_FORM_DESCRIPTOR:
		put_descriptor(writing, sign_extend(raw, capture->size));
		return;
	case LORG_FORM_VOID:
		lorg_put_atom_text(&writing->out, "void");
		return;
	case LORG_FORM_BUFFER:
	case LORG_FORM_POINTER:
		put_pointer(writing, capture, raw, depth);
		return;
	default:
		put_absent(writing);
	}
}

/* ---- places -------------------------------------------------------------- */

static int is_object(const struct lorg_capture *capture)
{
	return capture->form == LORG_FORM_STRUCT || capture->form == LORG_FORM_UNION || capture->form == LORG_FORM_ARRAY ||
	       capture->form == LORG_FORM_STD_STRING || capture->form == LORG_FORM_STRING_VIEW;
}

/* The object that an address leads to. */
static void put_object_at(struct writing *writing, const struct lorg_capture *capture, uint64_t address)
{
	uint8_t object[OBJECT_SIZE];
	uint32_t size = capture->form == LORG_FORM_STD_STRING || capture->form == LORG_FORM_STRING_VIEW ? 16 : capture->size;
	uint32_t got = read_memory(writing, object, address, size < sizeof object ? size : sizeof object);
	if (size && !got)
		lorg_put_pointer_unreadable(&writing->out, address);
	else
		put_bytes(writing, capture, object, got, 0);
}

/* Register number of a place: 0 to 5 integer, 8 to 15 vector. Half of it in case of a pair. */
static uint64_t register_word(const struct writing *writing, uint32_t number)
{
	return number < 8 ? writing->integers[number % 6] : load(writing->vectors + 16 * (number - 8), 8);
}

static const struct lorg_capture *argument_at(const struct writing *writing, uint32_t number)
{
	uint64_t at = (uint64_t)writing->function->arguments + (uint64_t)number * sizeof(struct lorg_capture);
	return writing->function->arguments && number < value_count(writing->function, writing->declared) && at <= UINT32_MAX
		       ? captured(writing, (uint32_t)at, sizeof(struct lorg_capture))
		       : 0;
}

static int integer_of(const struct writing *writing, const struct lorg_capture *capture, int64_t *value)
{
	if (!capture || is_object(capture))
		return 0;
	if (capture->place == LORG_PLACE_INTEGER && capture->index < 6)
		*value = sign_extend(writing->integers[capture->index], capture->size);
	else if (capture->place == LORG_PLACE_STACK && capture->offset >= 0 && writing->stack)
		*value = sign_extend(*(const uint64_t *)((const char *)writing->stack + (capture->offset & ~7)), capture->size);
	else
		return 0;
	return 1;
}

/* Bytes at a pointer; how many, another argument or the result tells. */
static void put_buffer(struct writing *writing, const struct lorg_capture *capture, uint64_t address)
{
	int64_t length = 0;
	int known = capture->count ? integer_of(writing, argument_at(writing, capture->count - 1), &length)
				   : (length = writing->result, writing->returned);
	if (!known || length < 0 || !address)
		lorg_put_pointer(&writing->out, address);
	else
		put_counted(writing, address, (uint64_t)length, 0);
}

static void put_value(struct writing *writing, const struct lorg_capture *capture)
{
	uint64_t words[2];
	switch (capture->place) {
	case LORG_PLACE_INTEGER:
		if (capture->index > 5)
			break;
		words[0] = writing->integers[capture->index];
		words[1] = writing->integers[capture->index < 5 ? capture->index + 1 : 5];
		if (capture->form == LORG_FORM_BUFFER)
			put_buffer(writing, capture, words[0]);
		else if (capture->form == LORG_FORM_STD_STRING)
			put_object_at(writing, capture, words[0]);
		else
			put_bytes(writing, capture, (const uint8_t *)words, capture->size > 8 ? 16 : 8, 0);
		return;
	case LORG_PLACE_VECTOR:
		if (capture->index > 7)
			break;
		put_bytes(writing, capture, writing->vectors + 16 * capture->index, 16, 0);
		return;
	case LORG_PLACE_STACK:
		if (!writing->stack || capture->offset < 0 || capture->offset > 1 << 16)
			break;
		{
			uintptr_t at = (uintptr_t)writing->stack + (uintptr_t)capture->offset;
			uint64_t left = writing->own_high > at ? writing->own_high - at : 0;
			uint8_t copy[OBJECT_SIZE];
			uint32_t size = capture->size < 16 ? 16 : capture->size < sizeof copy ? capture->size : sizeof copy;
			uint32_t got = left >= size ? size : 0;
			memcpy(copy, (const void *)at, got);
			if (!got)
				got = read_memory(writing, copy, at, size);
			if (capture->form == LORG_FORM_BUFFER && got >= 8)
				put_buffer(writing, capture, load(copy, 8));
			else if (capture->form == LORG_FORM_STD_STRING && got >= 8)
				put_object_at(writing, capture, load(copy, 8));
			else
				put_bytes(writing, capture, copy, got, 0);
		}
		return;
	case LORG_PLACE_X87:
		if (!writing->x87)
			break;
		put_bytes(writing, capture, writing->x87, 16, 0);
		return;
	case LORG_PLACE_PAIR:
		words[0] = register_word(writing, capture->index & 15);
		words[1] = register_word(writing, capture->index >> 4);
		put_bytes(writing, capture, (const uint8_t *)words, 16, 0);
		return;
	case LORG_PLACE_ADDRESS:
		if (capture->index == 0xff && writing->stack && capture->offset >= 0 && capture->offset <= 1 << 16) {
			put_object_at(writing, capture, *(const uint64_t *)((const char *)writing->stack + (capture->offset & ~7)));
			return;
		}
		if (capture->index > 5)
			break;
		put_object_at(writing, capture, writing->integers[capture->index]);
		return;
	default:
		break;
	}
	put_absent(writing);
}

/* ---- a call's terms ------------------------------------------------------ */

/* Where terms are put together, and the registers meanwhile. */
struct desk {
	struct writing writing;
	uint64_t integers[6];
	uint8_t vectors[256];
	uint8_t x87[16];
	uint8_t small[SMALL_SIZE];
	uint8_t *large; /* taken from the thread; to be given back */
};

static uint8_t *take_large(struct call_thread *call)
{
	/* A flag and its holder are of one thread: a handler finds it set. */
	if (!call || call->value_busy)
		return 0;
	call->value_busy = 1;
	return call->value_buffer;
}

/* The end of the stack that is surely there. */
static uintptr_t known_stack_end(const struct thread *self, uintptr_t stack)
{
	const struct call_thread *call = self->call;
	return call && stack < call->stack_high && call->stack_high - stack < 1 << 20 ? call->stack_high : (stack | 4095) + 1;
}

/* All but where it goes, and the registers. */
static void begin_writing(struct writing *writing, struct thread *self, const struct call_target *target, uintptr_t stack)
{
	/* One by one: to clear a structure of this size takes longer than to use it. */
	writing->plan = target->plan;
	writing->function = target->plan_function;
	writing->self = self;
	writing->x87 = 0;
	writing->stack = 0;
	writing->own_low = stack;
	writing->own_high = known_stack_end(self, stack);
	writing->text_length = the_arena.message_length ? the_arena.message_length : LORG_MESSAGE_LENGTH;
	writing->declared = 0;
	writing->steps = 0;
	writing->result = 0;
	writing->returned = 0;
}

static void open_desk(struct desk *desk, struct thread *self, const struct call_target *target, uintptr_t stack)
{
	struct call_thread *call = self->call;
	call_vectors_save(desk->vectors);
	desk->large = take_large(call);
	begin_writing(&desk->writing, self, target, stack);
	desk->writing.out = (struct lorg_external){.bytes = desk->large ? desk->large : desk->small,
						   .size = desk->large ? CALL_VALUE_BYTES : SMALL_SIZE};
	desk->writing.integers = desk->integers;
	desk->writing.vectors = desk->vectors;
}

static void close_desk(struct desk *desk, struct thread *self)
{
	if (desk->large)
		self->call->value_busy = 0;
	call_vectors_restore(desk->vectors);
}

static void write_arguments(struct desk *desk, const struct call_registers *registers)
{
	struct writing *writing = &desk->writing;
	const uint64_t integers[6] = {registers->rdi, registers->rsi, registers->rdx, registers->rcx, registers->r8, registers->r9};
	memcpy(desk->integers, integers, sizeof integers);
	writing->stack = registers->slot + 1;
	uint32_t count = writing->plan && writing->function ? value_count(writing->function, writing->declared) : 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct lorg_capture *capture = argument_at(writing, i);
		uint32_t before = writing->out.used;
		if (!capture)
			break;
		put_value(writing, capture);
		if (!writing->out.truncated)
			continue;
		/* What does not fit is told as absent, so that those behind it keep their places. */
		writing->out.used = before;
		writing->out.truncated = 0;
		put_absent(writing);
	}
}

static void write_result(struct desk *desk, const struct call_registers *registers)
{
	struct writing *writing = &desk->writing;
	const struct lorg_capture *capture = 0;
	memset(desk->integers, 0, sizeof desk->integers);
	desk->integers[0] = registers->rax;
	desk->integers[1] = registers->rdx;
	writing->returned = 1;
	if (writing->plan && writing->function)
		capture = captured(writing, writing->function->result, sizeof *capture);
	if (!capture) { /* of a function that nothing is known of: the register */
		lorg_put_integer(&writing->out, (int64_t)registers->rax);
		return;
	}
	writing->result = sign_extend(registers->rax, capture->size);
	if (capture->place == LORG_PLACE_X87) {
		call_x87_read(desk->x87);
		writing->x87 = desk->x87;
	}
	put_value(writing, capture);
	if (!writing->out.truncated)
		return;
	writing->out.used = 0;
	writing->out.truncated = 0;
	put_absent(writing);
}

/* errno, where the result says that there is one. */
static int32_t error_of(const struct desk *desk, const struct call_registers *registers)
{
	const struct writing *writing = &desk->writing;
	const struct lorg_capture *capture =
		writing->plan && writing->function ? captured(writing, writing->function->result, sizeof *capture) : 0;
	if (!capture || capture->form != LORG_FORM_ERRNO_RESULT || sign_extend(registers->rax, capture->size) >= 0)
		return 0;
	return *hook_errno();
}

uint64_t value_write_call(struct thread *self, const struct call_target *target, const struct call_registers *registers, uint64_t caller,
			  uint32_t session_kind, int with_arguments, int arity, struct event_bytes message)
{
	struct desk desk;
	open_desk(&desk, self, target, (uintptr_t)registers->slot);
	desk.writing.declared = (session_kind & LORG_CALL_DECLARED_MASK) >> LORG_CALL_DECLARED_SHIFT;
	if (with_arguments && !arity)
		write_arguments(&desk, registers);
	struct event_bytes terms[] = {{desk.writing.out.bytes, desk.writing.out.used}, message};
	struct lorg_event_CALL event = {.caller = caller,
					.function = target->function,
					.session_kind = session_kind | (message.length ? LORG_CALL_HAS_MESSAGE : 0) |
							(arity ? LORG_CALL_NO_ARGUMENTS : 0),
					.terms_length = terms[0].length + message.length};
	uint64_t tick = event_write(self, LORG_EVENT_CALL, &event, sizeof event, terms, 2, 0);
	close_desk(&desk, self);
	return tick;
}

void value_write_return(struct thread *self, const struct call_frame *frame, const struct call_registers *registers,
			const uint32_t *session_kinds, uint32_t count)
{
	struct desk desk;
	open_desk(&desk, self, frame->target, (uintptr_t)&registers->word);
	write_result(&desk, registers);
	struct event_bytes terms = {desk.writing.out.bytes, desk.writing.out.used};
	struct lorg_event_RETURN_FROM event = {.since = frame->entered,
					       .function = frame->target->function,
					       .error = error_of(&desk, registers),
					       .terms_length = terms.length};
	for (uint32_t i = 0; i < count; i++) {
		event.session_kind = session_kinds[i];
		event_write(self, LORG_EVENT_RETURN_FROM, &event, sizeof event, &terms, 1, 0);
	}
	close_desk(&desk, self);
}

/* ---- calls that are told at their return ---------------------------------- */

void value_keep_arguments(struct call_thread *call, struct call_frame *frame, const struct call_registers *registers,
			  struct event_bytes message)
{
	struct desk desk;
	for (uint8_t place = 0; place < CALL_ARGUMENTS; place++) {
		if (call->arguments_used[place])
			continue;
		call->arguments_used[place] = 1;
		open_desk(&desk, &this_thread, frame->target, (uintptr_t)registers->slot);
		if (frame->gate & LORG_CALL_VALUES)
			write_arguments(&desk, registers);
		if (desk.writing.out.used + message.length <= CALL_ARGUMENT_BYTES) {
			memcpy(call->arguments[place], desk.writing.out.bytes, desk.writing.out.used);
			memcpy(call->arguments[place] + desk.writing.out.used, message.data, message.length);
			call->arguments_length[place] = (uint16_t)(desk.writing.out.used + message.length);
			frame->arguments = place + 1;
			frame->has_message = message.length != 0;
		} else {
			call->arguments_used[place] = 0;
		}
		close_desk(&desk, &this_thread);
		return;
	}
}

void value_drop_arguments(struct call_thread *call, struct call_frame *frame)
{
	if (frame->arguments && frame->arguments <= CALL_ARGUMENTS)
		call->arguments_used[frame->arguments - 1] = 0;
	frame->arguments = 0;
}

void value_write_done(struct thread *self, struct call_thread *call, const struct call_frame *frame,
		      const struct call_registers *registers, uint64_t caller)
{
	struct desk desk;
	struct event_bytes bytes[2] = {{0, 0}, {0, 0}};
	struct lorg_event_CALL_DONE event = {.entry = frame->entered,
					     .caller = caller,
					     .function = frame->target->function,
					     .session_kind = frame->target->kind << 16 | (frame->has_message ? LORG_CALL_HAS_MESSAGE : 0),
					     .returned = registers != 0};
	int values = frame->gate & LORG_CALL_VALUES;
	if (frame->arguments && call)
		bytes[0] = (struct event_bytes){call->arguments[frame->arguments - 1], call->arguments_length[frame->arguments - 1]};
	if (values && registers) {
		open_desk(&desk, self, frame->target, (uintptr_t)&registers->word);
		write_result(&desk, registers);
		bytes[1] = (struct event_bytes){desk.writing.out.bytes, desk.writing.out.used};
		event.error = error_of(&desk, registers);
	}
	event.terms_length = bytes[0].length;
	event.result_length = bytes[1].length;
	event_write(self, LORG_EVENT_CALL_DONE, &event, sizeof event, bytes, 2, 0);
	if (values && registers)
		close_desk(&desk, self);
}

/* ---- for match specifications ---------------------------------------------- */

/* That argument's register or stack slot. */
static int argument_word(const struct writing *writing, const struct lorg_capture *capture, uint64_t *word)
{
	if (capture->place == LORG_PLACE_INTEGER && capture->index < 6)
		*word = writing->integers[capture->index];
	else if (capture->place == LORG_PLACE_STACK && capture->offset >= 0 && capture->offset <= 1 << 16)
		return read_memory(writing, word, (uintptr_t)writing->stack + (uintptr_t)capture->offset, sizeof *word) == sizeof *word;
	else
		return 0;
	return 1;
}

void value_look(struct value_look *look, struct thread *self, const struct call_target *target, const struct call_registers *registers)
{
	look->integers[0] = registers->rdi;
	look->integers[1] = registers->rsi;
	look->integers[2] = registers->rdx;
	look->integers[3] = registers->rcx;
	look->integers[4] = registers->r8;
	look->integers[5] = registers->r9;
	look->self = self;
	look->target = target;
	look->declared = 0;
	look->stack = (uintptr_t)(registers->slot + 1);
}

static void look_writing(const struct value_look *look, struct writing *writing)
{
	begin_writing(writing, look->self, look->target, look->stack - 8);
	writing->declared = look->declared;
	writing->integers = look->integers;
	writing->vectors = look->vectors;
	writing->stack = (const uint64_t *)look->stack;
	writing->text_length = LOOK_TEXT;
}

uint32_t value_simple_arguments(const struct value_look *look, uint64_t wanted, lorg_term *arguments)
{
	uint32_t count;
	const struct lorg_capture *capture = value_captures(look->target, look->declared, &count);
	for (uint32_t i = 0; i < count; i++, capture++)
		arguments[i] = wanted >> i & 1 && capture->place == LORG_PLACE_INTEGER && capture->index < 6
				       ? value_simple_term(capture, look->integers[capture->index])
				       : LORG_NONE;
	return count;
}

int value_argument_word(const struct value_look *look, uint32_t index, uint64_t *word)
{
	struct writing writing;
	look_writing(look, &writing);
	const struct lorg_capture *capture = argument_at(&writing, index);
	return capture && argument_word(&writing, capture, word);
}

int value_string_argument(const struct value_look *look, uint32_t index, uint64_t *address)
{
	struct writing writing;
	look_writing(look, &writing);
	const struct lorg_capture *capture = argument_at(&writing, index);
	return capture && capture->form == LORG_FORM_STRING && argument_word(&writing, capture, address);
}

int value_counted_argument(const struct value_look *look, uint32_t index, uint64_t *address, uint64_t *length)
{
	struct writing writing;
	uint64_t words[2], object;
	look_writing(look, &writing);
	const struct lorg_capture *capture = argument_at(&writing, index);
	if (!capture || (capture->form != LORG_FORM_STD_STRING && capture->form != LORG_FORM_STRING_VIEW))
		return 0;
	int view = capture->form == LORG_FORM_STRING_VIEW;
	if (view && capture->place == LORG_PLACE_PAIR) {
		words[0] = register_word(&writing, capture->index & 15);
		words[1] = register_word(&writing, capture->index >> 4);
	} else if (view || !argument_word(&writing, capture, &object) || read_memory(&writing, words, object, sizeof words) != sizeof words) {
		return 0;
	}
	*address = words[view];
	*length = words[!view];
	return 1;
}

int value_pointer_argument(const struct value_look *look, uint32_t index, uint64_t *address)
{
	struct writing writing;
	look_writing(look, &writing);
	const struct lorg_capture *capture = argument_at(&writing, index);
	return capture && (capture->form == LORG_FORM_CODE || capture->form == LORG_FORM_POINTER) && argument_word(&writing, capture, address);
}

int value_put_argument(const struct value_look *look, uint32_t index, struct lorg_external *out)
{
	struct writing writing;
	look_writing(look, &writing);
	const struct lorg_capture *capture = argument_at(&writing, index);
	if (!capture)
		return 0;
	writing.out = *out;
	put_value(&writing, capture);
	*out = writing.out;
	return !out->truncated;
}

uint32_t value_read(const struct value_look *look, void *to, uint64_t from, uint32_t length)
{
	const struct writing writing = {.own_low = look->stack - 8, .own_high = known_stack_end(look->self, look->stack - 8)};
	return read_memory(&writing, to, from, length);
}
