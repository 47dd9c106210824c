/* SPDX-License-Identifier: MIT */
/*
 * memory.h: string functions of the preload's own. memcpy, memset, memmove,
 * memcmp and strlen are also defined here as hidden symbols, so that what the
 * compiler emits stays inside liblorg.so. All are async-signal-safe.
 */
#ifndef LORG_PRELOAD_MEMORY_H
#define LORG_PRELOAD_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Small state of the whole program that a fork child changes: it stands together, so that one page has to be copied. */
#define FORK_STATE __attribute__((section("lorg_fork_state")))

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t length);
HIDDEN void *memmove(void *to, const void *from, size_t length);
HIDDEN void *memset(void *to, int byte, size_t length);
HIDDEN int memcmp(const void *a, const void *b, size_t length);
HIDDEN size_t strlen(const char *text);

/* Bytes before the terminator, at most `limit`. */
static inline size_t text_length(const char *text, size_t limit)
{
	size_t n = 0;
	while (n < limit && text[n])
		n++;
	return n;
}

static inline int text_equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static inline int text_begins(const char *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != *prefix++)
			return 0;
	return 1;
}

/* Appends text at `to`, never past `end` (one byte is kept for the terminator). Returns the new end of the text. */
static inline char *text_append(char *to, const char *end, const char *text)
{
	while (to + 1 < end && *text)
		*to++ = *text++;
	*to = 0;
	return to;
}

HIDDEN char *text_append_decimal(char *to, const char *end, uint64_t value);
HIDDEN char *text_append_hex(char *to, const char *end, const uint8_t *bytes, size_t length);

/* Decimal number at *text; moves *text behind it. No digits: 0. */
HIDDEN uint64_t text_read_decimal(const char **text);
/* 2 * length hex digits at *text. 0 on success, -1 when malformed. */
HIDDEN int text_read_hex(const char **text, uint8_t *bytes, size_t length);

/* What stands behind the last '/' of a path; the path itself where there is none. */
static inline const char *text_base_name(const char *path)
{
	const char *base = path;
	for (; *path; path++)
		if (*path == '/')
			base = path + 1;
	return base;
}

#endif
