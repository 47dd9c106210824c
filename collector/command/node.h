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

/* Says which functions were not hooked, and why, a line each: what lorg_function_refused() tells. */
void node_say_refused(const char *refused);
/* Says what has failed. Returns EXIT_STATUS_FAILURE. */
int node_failed(const char *what, const struct lorg_failure *failure);

/* Writes what there is to write, and frees it. Returns the exit status, having said what failed. */
struct output;
int node_end_output(struct output *output);
/* Prints a line on standard output. Returns the exit status. */
int node_print(const char *text);
int node_print_number(int64_t number);

/* Ends with status 2, having said so. */
void node_usage(const char *what, const char *why, const char *what_to_do) __attribute__((noreturn));

/* ---- terms from the command line; the caller's (free); the process ends when there is no memory ---------- */

/* Whom: 4211 and <4211>: a program; 4211.4213: a thread; anything else is a term already. */
char *node_whom(const char *text);
/* The same, or a function as everywhere: MODULE:FUNCTION/ARITY. */
char *node_target(const char *text);
/* A list of atoms: words, also several in one argument, separated by commas; or one term [..] as it is. */
char *node_flags(char *const *words, int count);
/* A string in Erlang's syntax. */
char *node_string(const char *text);
/* MODULE:FUNCTION/ARITY, {M,F,A}, on_load. Ends with status 2 where it is none of them. */
char *node_pattern(const char *text);
/* One function, MODULE:FUNCTION/ARITY, as {M,F,A}. Ends with status 2 where it is none. */
char *node_function(const char *text);
char *node_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A number from 1 on, of option `option`; ends with status 2. */
uint64_t node_count(const char *option, const char *text);
/* 50, 50/s, 5/ms, 3000/min, .. as limits' rate and rate_ns; ends with status 2. */
void node_rate(const char *option, const char *text, struct lorg_limits *limits);
/* The same: 0, or -1 where it is none. ns: the time that it is counted in. */
int rate_parse(const char *text, uint64_t *number, uint64_t *ns);
extern const char rate_advice[];
/* Bytes: 64k, 10M, 1G. */
uint64_t node_bytes(const char *option, const char *text);

#endif
