/* SPDX-License-Identifier: MIT */
/*
 * asking.h: one request while it is served: what the files of requests share.
 *
 *     request.c  which request it is; sessions, by their names
 *     ask.c      process/4, port/4, function/4, send/3, recv/3, system/3
 *     tell.c     info/3, session_info/1, programs
 */
#ifndef LORG_DAEMON_ASKING_H
#define LORG_DAEMON_ASKING_H

#include <stdio.h>
#include <sys/types.h>

#include "collector/daemon/answer.h"
#include "collector/daemon/node.h"
#include "collector/daemon/request.h"
#include "collector/session/router.h"
#include "collector/session/session.h"
#include "preload/term/term.h"

_Static_assert((int)SESSION_NAME_ROOM == LORG_ATOM_BYTES_MAX + 1, "SESSION_NAME_ROOM");

enum { ARGUMENTS = 6, ATOM_ROOM = LORG_ATOM_BYTES_MAX + 1, PATH_ROOM = 4096 };

struct tracer;

struct asking {
	struct service *service;
	struct sessions *sessions;
	struct connection *connection;
	uint64_t number; /* of the request */
	struct lorg_terms *terms;
	lorg_term argument[ARGUMENTS];
	FILE *out;	 /* the answer's text */
	int later;	 /* the answer comes later: nothing is in `out` */
	int again;	 /* it cannot be served yet: it is asked anew at the next pass */
	struct pending *delivery; /* to be begun once the answer is on its way; NULL: none */
	char said[120];
};

/* A request whose answer, or what follows it, comes later. */
struct pending {
	struct pending *next, **place;
	struct service *service;
	struct connection *connection;
	struct session *session; /* of a delivery */
	uint64_t number; /* of the request; of the session, for a delivery */
	char term[192];	 /* of a delivery */
	int is_delivery;
};

/* NULL: no memory. */
struct pending *pending_create(struct asking *asking);
void pending_free(struct pending *pending);

/* ---- answers -------------------------------------------------------------- */

/* Answers {error, badarg, ...}; returns -1. */
int badarg(struct asking *asking, const char *format, ...) __attribute__((format(printf, 2, 3)));
int system_limit(struct asking *asking, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text of a term, cut short, for a sentence; valid until the next call. */
const char *said(struct asking *asking, lorg_term term);

/* ---- arguments: 0, or -1 after badarg -------------------------------------- */

/* Text of an atom; -1 (and no answer) where it is none. */
int atom_text(struct asking *asking, lorg_term term, char text[ATOM_ROOM]);
/* A string or binary as UTF-8; -1 (and no answer) where it is none, or does not fit. */
int string_text(struct asking *asking, lorg_term term, char *text, size_t size);
int parse_session(struct asking *asking, lorg_term term, struct session **session);
int parse_boolean(struct asking *asking, const char *what, lorg_term term, int *value);
/* True for an atom of exactly this text. */
static inline int is_atom(const struct asking *asking, lorg_term term, const char *text)
{
	return lorg_is_atom(term) && lorg_atom_is(asking->terms, term, text);
}

enum target_kind {
	TARGET_PID,
	TARGET_PROGRAM,
	TARGET_PORT,
	TARGET_ALL,
	TARGET_EXISTING,
	TARGET_NEW,
};

struct target {
	enum target_kind kind;
	uint32_t numbers[3];
	int parts; /* of a port */
};

/* A pid or port of the own node; what: the argument's name. */
int parse_pid(struct asking *asking, const char *what, lorg_term term, uint32_t numbers[3]);
int parse_port(struct asking *asking, const char *what, lorg_term term, uint32_t numbers[3], int *parts);
/* {M,F,A} of names and '_'; any_allowed 0: a function of its own. arity -1: any; empty names: any. */
struct mfa {
	char module[ATOM_ROOM], function[ATOM_ROOM];
	int64_t arity;
	int is_none; /* no function has that arity */
};
int parse_mfa(struct asking *asking, lorg_term term, int any_allowed, struct mfa *mfa);

/* ---- handlers ---------------------------------------------------------------- */

typedef void handler(struct asking *asking);
handler ask_process, ask_port, ask_function, ask_send, ask_recv, ask_system;
handler tell_info, tell_session_info, tell_programs;

/* A tracer of a session of that name; NULL after an answer. */
struct tracer *make_tracer(struct asking *asking, lorg_term term, const char *name, int persist);
/* The match specification and options of send/3 and recv/3, arguments 1 and 2. 0, or -1 after an answer. */
int parse_messages(struct asking *asking, int receiving, struct session_messages *messages);

/* The number of the program that a session's tracer runs in, which is not traced for it; 0: none. */
pid_t tracer_program(const struct session *session);

#endif
