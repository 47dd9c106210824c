/* SPDX-License-Identifier: MIT */
/*
 * output.h: a growing buffer of text on its way to a descriptor, and how bytes
 * of the program are shown. A failed write is kept in `failure` (an errno) and
 * later ones do nothing. One thread.
 */
#ifndef LORG_FORMAT_OUTPUT_H
#define LORG_FORMAT_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

struct output {
	int fd; /* -1: the text only gathers here */
	char *text;
	size_t length, room;
	int failure;
};

void output_begin(struct output *output, int fd);
/* Writes what is left; the buffer is freed. Returns output->failure. */
int output_end(struct output *output);
/* Writes what there is when it is much; output_flush() whatever there is. */
void output_may_flush(struct output *output);
void output_flush(struct output *output);

void output_bytes(struct output *output, const void *bytes, size_t length);
void output_text(struct output *output, const char *text);
void output_byte(struct output *output, char byte);
void output_number(struct output *output, uint64_t number);
/* The last `count` decimal digits, at most 20, with leading zeros. */
void output_digits(struct output *output, uint64_t number, unsigned count);
void output_signed(struct output *output, int64_t number);
void output_printf(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Spaces up to `width` columns since `from` (a length of the buffer); at least one. */
void output_pad(struct output *output, size_t from, size_t width);

/*
 * Bytes that a terminal may be shown: printable ASCII and valid UTF-8 as they are, the rest as \n, \r, \t, \xNN; a
 * backslash and, if given, the quote are preceded by a backslash.
 */
void output_safe(struct output *output, const void *bytes, size_t length, char quote);

/* The same without loss for JSON, before JSON's own escapes: valid UTF-8 as it is, other bytes \xNN, a backslash doubled. */
void output_reversible(struct output *output, const void *bytes, size_t length);

/* Bytes of the valid UTF-8 sequence at `at` (1 to 4), its code in *code; 0 when there is none. */
size_t utf8_sequence(const uint8_t *at, size_t room, uint32_t *code);

#endif
