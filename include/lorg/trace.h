/* SPDX-License-Identifier: MIT */
/*
 * trace.h: the functions of Erlang's trace(3) for native programs: sessions on
 * a running lorgd. Link with -llorgctl.
 *
 * Every function follows the one of trace(3) with the same name: what it
 * answers, and when it is a badarg. doc/SEMANTICS.md says what each notion is
 * in a native program. Terms (pids, match specifications, tracers, results)
 * are text in Erlang's syntax, without a full stop at their end.
 *
 *     struct lorg_failure failure;
 *     struct lorg_connection *node = lorg_connect(NULL, &failure);
 *     struct lorg_session *session = lorg_session_create(node, "hunt", "client", "[]", &failure);
 *     lorg_process(session, "<4211>", 1, "[call, procs]", &failure);
 *     lorg_function(session, "{'libc.so.6',open,'_'}", "[{'_',[],[{return_trace}]}]", "[local]", &failure);
 *     struct lorg_message message;
 *     while (lorg_receive(node, -1, &message, &failure) > 0)
 *             puts(message.text);
 *
 * Threads: a connection and its sessions belong to one thread at a time. No
 * function is for signal handlers. None writes to the terminal, changes a
 * signal's disposition or starts a thread.
 *
 * Memory: strings that are returned are the caller's, freed with free(); what
 * a struct lorg_message points to is valid until the next call on its
 * connection.
 *
 * Errors: a function that fails says so by its result and fills *failure
 * (which may be NULL). What is NULL and should not be is a badarg; to free or
 * disconnect NULL is nothing.
 */
#ifndef LORG_TRACE_H
#define LORG_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LORG_API __attribute__((visibility("default")))

enum lorg_failure_kind {
	LORG_FAILURE_NONE = 0,
	LORG_FAILURE_BADARG = 1,       /* an argument is wrong: trace(3)'s badarg */
	LORG_FAILURE_SYSTEM_LIMIT = 2, /* trace(3)'s system_limit */
	LORG_FAILURE_NO_DAEMON = 3,    /* no lorgd is there, or it has gone */
	LORG_FAILURE_REFUSED = 4,      /* not this user's, or another version's */
	LORG_FAILURE_IO = 5,	       /* error: errno */
	LORG_FAILURE_MEMORY = 6,
};

struct lorg_failure {
	enum lorg_failure_kind kind;
	int error;	 /* errno; 0: none fits */
	char text[512]; /* what was wrong and what to do, one sentence, zero-terminated */
};

struct lorg_connection;
struct lorg_session;

/*
 * The lorgd of this user. directory: where its socket stands; NULL: $LORG_RUNTIME_DIRECTORY, else /run/lorg for root and
 * $XDG_RUNTIME_DIR/lorg for others. NULL on failure.
 */
LORG_API struct lorg_connection *lorg_connect(const char *directory, struct lorg_failure *failure);
/* Sessions that were created here without the option persist are destroyed by the daemon. */
LORG_API void lorg_disconnect(struct lorg_connection *connection);
/* For poll: readable when lorg_receive has something to do. The library's: it is not to be read or closed. */
LORG_API int lorg_descriptor(const struct lorg_connection *connection);

/* ---- sessions: trace(3), session_create/3, session_destroy/1, session_info/1 ---- */

/*
 * tracer: "client" (messages come to this connection), "{directory, \"PATH\"}" (a trace directory), "{file, \"PATH\"}",
 * "{socket, \"PATH\"}" (a Unix socket that is listened on: one term of trace(3) a line), "{module, \"PLUGIN.so\", State}".
 * options: "[]" as in trace(3); lorg's own: persist (outlives this connection), {name, ..} is the argument.
 * The handle is strong: it belongs to the connection. lorg_session_free gives the handle's memory back, no more.
 */
LORG_API struct lorg_session *lorg_session_create(struct lorg_connection *connection, const char *name, const char *tracer,
						  const char *options, struct lorg_failure *failure);
/* A weak handle: by "{name, number}" as session_info shows it, by the number, or by the name, also as 'name', while that is unique. */
LORG_API struct lorg_session *lorg_session_find(struct lorg_connection *connection, const char *session,
						struct lorg_failure *failure);
/*
 * Messages of a persistent session with the tracer client, whose connection has gone, come to this one from now on. 0, or
 * -1: it has a tracer.
 */
LORG_API int lorg_session_adopt(struct lorg_session *session, struct lorg_failure *failure);
/* Its tracer, as it was given to lorg_session_create. */
LORG_API char *lorg_session_tracer(struct lorg_session *session, struct lorg_failure *failure);
/* 1: destroyed; 0: was gone already; -1. The handle stays to be freed. */
LORG_API int lorg_session_destroy(struct lorg_session *session, struct lorg_failure *failure);
/* session_info/1: of a pid (<PID>: the program's first thread), port, {M,F,A}, or "all". The term: a list of weak handles, or undefined. */
LORG_API char *lorg_session_info(struct lorg_connection *connection, const char *of, struct lorg_failure *failure);
/* "{Name, Number}". */
LORG_API const char *lorg_session_handle(const struct lorg_session *session);
LORG_API void lorg_session_free(struct lorg_session *session);

/*
 * Limits beyond which the session is destroyed with a reason (events), or drops and counts (rate, memory); 0: none.
 * events: in all; rate: in each rate_ns ns (0: in a second); memory: bytes that wait for the tracer. lorg's own.
 */
struct lorg_limits {
	uint64_t events, rate, memory;
	uint64_t rate_ns;
};
LORG_API int lorg_session_limit(struct lorg_session *session, const struct lorg_limits *limits, struct lorg_failure *failure);

/* ---- what is traced: the functions of the same names; -1 on failure -------------------------------- */

/*
 * process/4, port/4: processes: a pid, <PID> for all threads of a program, all, existing, new; how: 1 set, 0 clear. The
 * number of matches.
 */
LORG_API int64_t lorg_process(struct lorg_session *session, const char *processes, int how, const char *flags,
			      struct lorg_failure *failure);
LORG_API int64_t lorg_port(struct lorg_session *session, const char *ports, int how, const char *flags,
			   struct lorg_failure *failure);
/*
 * function/4. pattern: {M,F,A} or on_load, or lorg's own: a string "MODULE:FUNCTION/ARITY" with * and ? for any text; match:
 * a specification, true, false, restart, pause, or lorg's own: {'if',"CONDITION"}; options: [global], [local], ...
 */
LORG_API int64_t lorg_function(struct lorg_session *session, const char *pattern, const char *match, const char *options,
			       struct lorg_failure *failure);
/* What the last lorg_function on this connection could not hook, and why: a list of {{M,F,A}, "reason"}. */
LORG_API const char *lorg_function_refused(const struct lorg_connection *connection);
/* send/3, recv/3. */
LORG_API int64_t lorg_send(struct lorg_session *session, const char *match, const char *options, struct lorg_failure *failure);
LORG_API int64_t lorg_recv(struct lorg_session *session, const char *match, const char *options, struct lorg_failure *failure);
/* system/3. 0, or -1. */
LORG_API int lorg_system(struct lorg_session *session, const char *event, const char *value, struct lorg_failure *failure);
/* info/3: the term, as trace(3) answers it. */
LORG_API char *lorg_info(struct lorg_session *session, const char *of, const char *item, struct lorg_failure *failure);
/* delivered/2: a reference; {trace_delivered, Tracee, Ref} comes to this connection. tracee: a pid or all. */
LORG_API char *lorg_delivered(struct lorg_session *session, const char *tracee, struct lorg_failure *failure);

/* ---- lorg's own ---------------------------------------------------------- */

/* The attached programs: a list of {Pid, "File", [Handle ..]}, with the sessions that trace each. */
LORG_API char *lorg_programs(struct lorg_connection *connection, struct lorg_failure *failure);

/* ---- messages to a client tracer ------------------------------------------ */

enum lorg_message_kind {
	LORG_MESSAGE_TRACE = 1,	    /* a message of trace(3) */
	LORG_MESSAGE_DELIVERED = 2, /* {trace_delivered, Tracee, Ref} */
	/* count events were lost: this client was too slow, or the program had no room; 0: text says what could not be traced at all */
	LORG_MESSAGE_LOST = 3,
	LORG_MESSAGE_ENDED = 4,	    /* the session is no more; text says why; also where its tracer is no client, to its creator */
	LORG_MESSAGE_PERHAPS_LOST = 5, /* count events were lost of which it is not known whether they were this session's */
};

struct lorg_message {
	enum lorg_message_kind kind;
	const char *session; /* name; zero-terminated */
	const char *text;    /* the term; zero-terminated, no newline */
	const char *json;    /* the same event as an object of doc/FORMATS.md; NULL for others than TRACE */
	uint64_t time;	     /* ns, CLOCK_MONOTONIC */
	uint64_t count;	     /* LOST, PERHAPS_LOST */
};

/*
 * The next message: 1; 0: none within timeout_ns (-1: waits); -1: the connection has failed. Messages of one process come
 * in their order; those of several in that of time as far as they have arrived.
 */
LORG_API int lorg_receive(struct lorg_connection *connection, int64_t timeout_ns, struct lorg_message *message,
			  struct lorg_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
