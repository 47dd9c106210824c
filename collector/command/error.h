/* SPDX-License-Identifier: MIT */
/*
 * error.h: the one form in which lorg says what went wrong.
 *
 *     lorg: what: why: what to do
 *
 * One line on stderr, written with one system call. Bytes of names that are
 * not printable are shown as \xNN, so that a name cannot forge a line.
 */
#ifndef LORG_COMMAND_ERROR_H
#define LORG_COMMAND_ERROR_H

enum {
	EXIT_STATUS_FAILURE = 1,
	EXIT_STATUS_USAGE = 2,
	EXIT_STATUS_NOT_EXECUTABLE = 126,
	EXIT_STATUS_NOT_FOUND = 127,
};

/* Any part may be NULL or empty and is left out. Keeps errno. */
void lorg_error(const char *what, const char *why, const char *what_to_do);

/* What was printed is written: the exit status. Otherwise it has said why, unless the reader has gone. */
int lorg_flush_output(void);

/* A line of information on stderr: "lorg: text". Keeps errno. */
void lorg_say(const char *text);

#endif
