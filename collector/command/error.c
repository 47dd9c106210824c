/* SPDX-License-Identifier: MIT */
/* error.c: see error.h. */
#include "collector/command/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 8192 };

struct line {
	char text[LINE_SIZE];
	size_t length;
};

static void line_add_byte(struct line *line, char byte)
{
	if (line->length < LINE_SIZE - 1) /* one is kept for the newline */
		line->text[line->length++] = byte;
}

static void line_add(struct line *line, const char *text)
{
	static const char digits[] = "0123456789abcdef";
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		if (byte >= 0x20 && byte != 0x7f) {
			line_add_byte(line, *text);
			continue;
		}
		line_add_byte(line, '\\');
		line_add_byte(line, 'x');
		line_add_byte(line, digits[byte >> 4]);
		line_add_byte(line, digits[byte & 15]);
	}
}

static void line_write(struct line *line)
{
	line->text[line->length++] = '\n';
	size_t done = 0;
	while (done < line->length) {
		ssize_t n = write(STDERR_FILENO, line->text + done, line->length - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		done += (size_t)n;
	}
}

void lorg_error(const char *what, const char *why, const char *what_to_do)
{
	int saved = errno;
	const char *parts[] = {what, why, what_to_do};
	struct line line = {.length = 0};
	line_add(&line, "lorg");
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (!parts[i] || !*parts[i])
			continue;
		line_add(&line, ": ");
		line_add(&line, parts[i]);
	}
	line_write(&line);
	errno = saved;
}

void lorg_say(const char *text)
{
	lorg_error(text, NULL, NULL);
}

int lorg_flush_output(void)
{
	if (fflush(stdout) == 0)
		return 0;
	if (errno != EPIPE)
		lorg_error("standard output", strerror(errno), "free some space, or write elsewhere");
	return EXIT_STATUS_FAILURE;
}
