/* SPDX-License-Identifier: MIT */
/* answer.h: text of answers: terms in Erlang's syntax. */
#ifndef LORG_DAEMON_ANSWER_H
#define LORG_DAEMON_ANSWER_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

struct session;

/* A string, quoted. */
void answer_string(FILE *out, const char *text);
/* An atom, quoted where needed. */
void answer_atom(FILE *out, const char *text);
/* {Name,Number}. */
void answer_session(FILE *out, const struct session *session);
/* The list of LORG_TRACE_* flags. */
void answer_flags(FILE *out, uint32_t flags);
/* {error,Kind,"Sentence"}. */
void answer_error(FILE *out, const char *kind, const char *sentence);

/* LORG_TRACE_* bit of a flag's name; 0: there is none. `all` and cpu_timestamp are none. */
uint32_t flag_named(const char *name);

#endif
