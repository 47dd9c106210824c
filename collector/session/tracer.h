/* SPDX-License-Identifier: MIT */
/*
 * tracer.h: where a session's packets go. Whatever happens to a tracer happens
 * to its session alone: nothing here waits.
 */
#ifndef LORG_SESSION_TRACER_H
#define LORG_SESSION_TRACER_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

struct tracer;
struct family_context;

enum tracer_state { TRACER_FINE = 0, TRACER_GONE = 1 /* ends its session */ };

/* What a tracer is: each kind fills one of these. */
struct tracer_operations {
	/*
	 * One packet of a process, sizes and checksum set. 0, or the number of events that were dropped: which the tracer
	 * says itself, before what it gets next (lost is for what others dropped).
	 */
	uint64_t (*packet)(struct tracer *tracer, struct lorg_packet *packet, size_t length);
	void (*delivered)(struct tracer *tracer, const char *term);
	/* `perhaps`: of those it is not known whether the session would have had them. */
	void (*lost)(struct tracer *tracer, uint64_t count, uint64_t perhaps);
	void (*end)(struct tracer *tracer, const char *why); /* and frees it */
	enum tracer_state (*state)(const struct tracer *tracer, const char **why);
	uint64_t (*waiting)(const struct tracer *tracer); /* bytes that it has not taken yet */
	void (*pass)(struct tracer *tracer); /* each pass: writes on what waits; NULL: nothing to do */
	/* info/3, item tracer: text of the term. */
	const char *(*term)(const struct tracer *tracer);
	int is_process; /* 1: may be told system events (system/3): client and directory */
};

struct tracer {
	const struct tracer_operations *operations;
	uint64_t number;       /* of its session, once it has one */
	uint64_t memory_limit; /* bytes that may wait; 0: the default, 64 MiB */
	/* Messages that a plug-in lets through (terms as text, not terminated): to the session's creator; NULL: nowhere. */
	void (*forward)(struct tracer *tracer, const char *text, size_t length);
	/* Its session has ended, and why: to the session's creator. NULL: nobody is to be told, or it is told by `end`. */
	void (*ended)(struct tracer *tracer, const char *why);
	void *forward_context; /* whoever sets the two */
};

/* A trace directory; NULL: *why. */
struct tracer *tracer_directory(struct family_context *context, const char *path, const char *session, const char **why);
/* {TAG,"PATH"} or {TAG,"PATH",STATE}, quoted; for tracers. */
void tracer_put_term(char *to, size_t size, const char *tag, const char *path, const char *state);
/* Text of trace(3), a term a line: a file (appended to), or a Unix socket that somebody listens on. */
struct tracer *tracer_file(struct family_context *context, const char *path, const char **why);
struct tracer *tracer_socket(struct family_context *context, const char *path, const char **why);
/* A plug-in (include/lorg/tracer.h), in a process of its own. */
struct tracer *tracer_module(struct family_context *context, const char *path, const char *state, const char **why);

/* Each pass: processes of tracers whose sessions are over. */
void tracer_reap(void);

#endif
