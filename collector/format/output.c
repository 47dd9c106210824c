/* SPDX-License-Identifier: MIT */
/* output.c: see output.h. */
#include "collector/format/output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH_AT = 1 << 16 };

void output_begin(struct output *output, int fd)
{
	*output = (struct output){.fd = fd};
}

static __attribute__((noinline)) int make_more_room(struct output *output, size_t more)
{
	size_t room = output->room ? output->room : 2 * FLUSH_AT;
	while (room - output->length < more && room < SIZE_MAX / 4)
		room *= 2;
	char *grown = room - output->length >= more ? realloc(output->text, room) : NULL;
	if (!grown) {
		output->failure = ENOMEM;
		return 0;
	}
	output->text = grown;
	output->room = room;
	return 1;
}

static inline int make_room(struct output *output, size_t more)
{
	if (output->failure)
		return 0;
	return output->room - output->length >= more || make_more_room(output, more);
}

/* A descriptor in non-blocking mode, set so by whoever shares it, is waited for. */
static int wait_for(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	return poll(&ready, 1, -1) >= 0 || errno == EINTR;
}

void output_flush(struct output *output)
{
	size_t done = 0;
	if (output->fd < 0)
		return;
	while (done < output->length && !output->failure) {
		ssize_t written = write(output->fd, output->text + done, output->length - done);
		if (written >= 0)
			done += (size_t)written;
		else if (errno != EINTR && !((errno == EAGAIN || errno == EWOULDBLOCK) && wait_for(output->fd)))
			output->failure = errno;
	}
	output->length = 0;
}

void output_may_flush(struct output *output)
{
	if (output->length >= FLUSH_AT)
		output_flush(output);
}

int output_end(struct output *output)
{
	output_flush(output);
	free(output->text);
	output->text = NULL;
	output->length = output->room = 0;
	return output->failure;
}

void output_bytes(struct output *output, const void *bytes, size_t length)
{
	if (length == 0 || !make_room(output, length))
		return;
	memcpy(output->text + output->length, bytes, length);
	output->length += length;
}

void output_text(struct output *output, const char *text)
{
	output_bytes(output, text, strlen(text));
}

void output_byte(struct output *output, char byte)
{
	output_bytes(output, &byte, 1);
}

void output_number(struct output *output, uint64_t number)
{
	char digits[20];
	size_t at = sizeof digits;
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	output_bytes(output, digits + at, sizeof digits - at);
}

void output_digits(struct output *output, uint64_t number, unsigned count)
{
	char digits[20];
	for (unsigned at = count; at-- > 0; number /= 10)
		digits[at] = (char)('0' + number % 10);
	output_bytes(output, digits, count);
}

void output_signed(struct output *output, int64_t number)
{
	if (number < 0)
		output_byte(output, '-');
	output_number(output, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

void output_printf(struct output *output, const char *format, ...)
{
	enum { ONE_LINE = 256 };
	va_list arguments;
	if (!make_room(output, ONE_LINE))
		return;
	va_start(arguments, format);
	int length = vsnprintf(output->text + output->length, ONE_LINE, format, arguments);
	va_end(arguments);
	if (length >= ONE_LINE) {
		if (!make_room(output, (size_t)length + 1))
			return;
		va_start(arguments, format);
		vsnprintf(output->text + output->length, (size_t)length + 1, format, arguments);
		va_end(arguments);
	}
	if (length > 0)
		output->length += (size_t)length;
}

void output_pad(struct output *output, size_t from, size_t width)
{
	do
		output_byte(output, ' ');
	while (output->length - from < width && !output->failure);
}

size_t utf8_sequence(const uint8_t *at, size_t room, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (room == 0)
		return 0;
	uint8_t first = at[0];
	size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
	if (length == 0 || length > room)
		return 0;
	*code = length == 1 ? first : first & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if (at[i] >> 6 != 2)
			return 0;
		*code = *code << 6 | (at[i] & 0x3f);
	}
	if (*code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
		return 0;
	return length;
}

static void output_hex_byte(struct output *output, uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";
	char escape[4] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
	output_bytes(output, escape, sizeof escape);
}

/* Characters that move the cursor, change its colour, or turn the direction of text. */
static int is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f || code == 0x2028 ||
	       code == 0x2029 || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

static void output_escaped(struct output *output, uint8_t byte)
{
	switch (byte) {
	case '\n': output_text(output, "\\n"); break;
	case '\r': output_text(output, "\\r"); break;
	case '\t': output_text(output, "\\t"); break;
	default: output_hex_byte(output, byte);
	}
}

/* How many bytes need no look: printable ASCII, no backslash, no quote. */
static size_t plain_run(const uint8_t *at, const uint8_t *end, char quote)
{
	const uint8_t *begin = at;
	while (at < end && *at >= 0x20 && *at < 0x7f && *at != '\\' && *at != (uint8_t)quote)
		at++;
	return (size_t)(at - begin);
}

void output_safe(struct output *output, const void *bytes, size_t length, char quote)
{
	if (length == 0) /* then bytes may be NULL */
		return;
	const uint8_t *at = bytes, *end = at + length;
	while (at < end) {
		uint32_t code = 0;
		size_t plain = plain_run(at, end, quote);
		output_bytes(output, at, plain);
		at += plain;
		if (at == end)
			break;
		size_t sequence = utf8_sequence(at, (size_t)(end - at), &code);
		if (sequence == 0 || is_control(code)) {
			for (size_t i = 0; i < (sequence ? sequence : 1); i++)
				output_escaped(output, at[i]);
			at += sequence ? sequence : 1;
			continue;
		}
		if (code == '\\' || (quote && code == (uint8_t)quote))
			output_byte(output, '\\');
		output_bytes(output, at, sequence);
		at += sequence;
	}
}

void output_reversible(struct output *output, const void *bytes, size_t length)
{
	if (length == 0) /* then bytes may be NULL */
		return;
	const uint8_t *at = bytes, *end = at + length;
	while (at < end) {
		uint32_t code = 0;
		size_t sequence = utf8_sequence(at, (size_t)(end - at), &code);
		if (sequence == 0) {
			output_hex_byte(output, *at++);
			continue;
		}
		if (code == '\\')
			output_byte(output, '\\');
		output_bytes(output, at, sequence);
		at += sequence;
	}
}
