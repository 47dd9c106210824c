/* SPDX-License-Identifier: MIT */
/* memory.c: string functions that stay inside liblorg.so. Built with -fno-builtin, so that they do not call themselves. */
#include "preload/core/memory.h"

typedef uint64_t any_word __attribute__((may_alias, aligned(1)));
typedef uint32_t any_half __attribute__((may_alias, aligned(1)));
typedef uint16_t any_quarter __attribute__((may_alias, aligned(1)));

/* Up to 16 bytes: two moves that overlap in the middle. */
static void copy_short(char *to, const char *from, size_t length)
{
	if (length >= 8) {
		uint64_t head = *(const any_word *)from, tail = *(const any_word *)(from + length - 8);
		*(any_word *)to = head;
		*(any_word *)(to + length - 8) = tail;
	} else if (length >= 4) {
		uint32_t head = *(const any_half *)from, tail = *(const any_half *)(from + length - 4);
		*(any_half *)to = head;
		*(any_half *)(to + length - 4) = tail;
	} else if (length >= 2) {
		uint16_t head = *(const any_quarter *)from, tail = *(const any_quarter *)(from + length - 2);
		*(any_quarter *)to = head;
		*(any_quarter *)(to + length - 2) = tail;
	} else if (length) {
		*to = *from;
	}
}

/* Most of what events copy is a few words: the string instruction's start would cost more than the copy. */
void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
	char *target = to;
	const char *source = from;
	if (length > 512) {
		__asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(length) : : "memory");
		return to;
	}
	while (length > 16) {
		uint64_t first = *(const any_word *)source, second = *(const any_word *)(source + 8);
		__asm__ volatile("" : "+r"(first), "+r"(second)); /* stays a loop, not a call of memcpy */
		*(any_word *)target = first;
		*(any_word *)(target + 8) = second;
		target += 16;
		source += 16;
		length -= 16;
	}
	copy_short(target, source, length);
	return to;
}

void *memmove(void *to, const void *from, size_t length)
{
	char *target = to;
	const char *source = from;
	if (target == source)
		return to;
	if (target < source || target >= source + length)
		return memcpy(to, from, length);
	while (length--)
		target[length] = source[length];
	return to;
}

void *memset(void *to, int byte, size_t length)
{
	void *result = to;
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(length) : "a"(byte) : "memory");
	return result;
}

int memcmp(const void *a, const void *b, size_t length)
{
	const unsigned char *left = a, *right = b;
	for (size_t i = 0; i < length; i++)
		if (left[i] != right[i])
			return left[i] - right[i];
	return 0;
}

size_t strlen(const char *text)
{
	const char *end = text;
	while (*end)
		end++;
	return (size_t)(end - text);
}

char *text_append_decimal(char *to, const char *end, uint64_t value)
{
	char digits[24];
	char *at = digits + sizeof digits - 1;
	*at = 0;
	do {
		*--at = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	return text_append(to, end, at);
}

char *text_append_hex(char *to, const char *end, const uint8_t *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < length; i++) {
		char pair[3] = {digits[bytes[i] >> 4], digits[bytes[i] & 15], 0};
		to = text_append(to, end, pair);
	}
	return to;
}

uint64_t text_read_decimal(const char **text)
{
	uint64_t value = 0;
	while (**text >= '0' && **text <= '9')
		value = value * 10 + (uint64_t)(*(*text)++ - '0');
	return value;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int text_read_hex(const char **text, uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		int high = hex_digit((*text)[0]);
		int low = high < 0 ? -1 : hex_digit((*text)[1]);
		if (low < 0)
			return -1;
		bytes[i] = (uint8_t)(high << 4 | low);
		*text += 2;
	}
	return 0;
}
