/* SPDX-License-Identifier: MIT */
/* node.h: what the commands have in common that speak with a running lorgd. */
#ifndef LORG_COMMAND_NODE_H
#define LORG_COMMAND_NODE_H

#include <stdint.h>

#include <lorg/trace.h>

/* NULL: it has said why. */
struct lorg_connection *node_connect(void);
/* A session by its name, number or handle; NULL: it has said why. */
struct lorg_session *node_session(struct lorg_connection *connection, const char *text);

/* Says what has failed. Returns EXIT_STATUS_FAILURE. */
int node_failed(const char *what, const struct lorg_failure *failure);

/* Prints a line on standard output. Returns the exit status. */
int node_print(const char *text);
int node_print_number(int64_t number);

/* Ends with status 2, having said so. */
void node_usage(const char *what, const char *why, const char *what_to_do) __attribute__((noreturn));

/* ---- terms from the command line; the caller's (free); the process ends when there is no memory ---------- */

/* Whom: 4211 and <4211>: a program; 4211.4213: a thread; anything else is a term already. */
char *node_whom(const char *text);
/* A list of atoms: words, also several in one argument, separated by commas; or one term [..] as it is. */
char *node_flags(char **words, int count);
/* A string in Erlang's syntax. */
char *node_string(const char *text);
/* MODULE:FUNCTION/ARITY, {M,F,A}, on_load. Ends with status 2 where it is none of them. */
char *node_pattern(const char *text);
/* One function, MODULE:FUNCTION/ARITY, as {M,F,A}. Ends with status 2 where it is none. */
char *node_function(const char *text);
char *node_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A number from 1 on, of option `option`; ends with status 2. rate: /s may follow. */
uint64_t node_count(const char *option, const char *text);
uint64_t node_rate(const char *option, const char *text);
/* Bytes: 64k, 10M, 1G. */
uint64_t node_bytes(const char *option, const char *text);

#endif
