/* SPDX-License-Identifier: MIT */
/* terms.h: terms as text, as requests and answers hold them. Texts that are returned are the caller's (free). */
#ifndef LORG_CLIENT_TERMS_H
#define LORG_CLIENT_TERMS_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/trace.h>

/* Whether a text is one term: 0, or -1 with badarg. what: what it was given for. */
int term_check(const char *what, const char *text, struct lorg_failure *failure);

/* An answer: {ok, Value} or the bare value give the value's text; {error, Kind, "Sentence"} gives NULL and the failure. */
char *answer_value(const char *text, size_t length, struct lorg_failure *failure);

/* A whole number. 0, or -1 where it is none. */
int term_number(const char *text, int64_t *number);

/* "{First, Rest}": the text of the first element and of the second. 0, or -1 where it is no pair. */
int term_pair(const char *text, char **first, char **second);

/* An atom's text, quotes and all undone. 0, or -1 where it is none, or longer. */
int term_atom(const char *text, char *name, size_t size);

/* The path of {directory, "PATH"}; NULL: it is another term. The caller's (free). */
char *term_directory(const char *text);

/* [{{M,F,A}, "why"} ..], functions that were refused. As term_sessions(). */
struct term_refusal {
	char *function; /* {M,F,A}; '_' in it: all that match */
	int is_one;	/* its arity is known: it can be asked for by itself */
	char why[256];
};
int64_t term_refusals(const char *text, struct term_refusal **refusals);
void term_refusals_free(struct term_refusal *refusals, int64_t count);

/* A session in a list of them: {Name, Number}. */
struct term_session {
	char name[1021]; /* an atom */
	uint64_t number;
};
/* [{Name, Number} ..]: how many, or -1 where it is no such list or there is no memory. *sessions is the caller's. */
int64_t term_sessions(const char *text, struct term_session **sessions);
/* One of them. 0, or -1. */
int term_session(const char *text, struct term_session *session);

/* [{Pid, "File", [Session ..]} ..] */
struct term_program {
	int64_t pid;
	char *file; /* UTF-8 */
	struct term_session *sessions;
	int64_t session_count;
};
int64_t term_programs(const char *text, struct term_program **programs);
void term_programs_free(struct term_program *programs, int64_t count);

#endif
