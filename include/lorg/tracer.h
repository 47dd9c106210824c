/* SPDX-License-Identifier: MIT */
/*
 * tracer.h: tracer modules: plug-ins that decide what becomes of the messages
 * of a trace session, as erl_tracer(3) has them.
 *
 *     lorg session create NAME --tracer '{module,"/path/PLUGIN.so",State}'
 *
 * The plug-in is a shared object that exports lorg_tracer(). It runs in a
 * process of its own, one a session, which lorgd starts: whatever happens to it
 * happens to its session alone. When that process ends, the session does, and
 * the traced programs' flags go silently.
 *
 * Threads: all calls come from one thread, in the order of the messages. No
 * call may keep a pointer that it is given. Texts are zero-terminated.
 */
#ifndef LORG_TRACER_H
#define LORG_TRACER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LORG_TRACER_ABI = 1 };

enum lorg_tracer_answer {
	LORG_TRACER_TRACE = 0,	 /* enabled: let trace() see it; trace: the message goes to the session's creator */
	LORG_TRACER_DISCARD = 1, /* it goes nowhere */
	LORG_TRACER_REMOVE = 2,	 /* nor do any more of this tracee: its flags in the session are cleared */
	LORG_TRACER_CHANGED = 3, /* trace only: what `changed` points to goes in its place */
};

/* One message. */
struct lorg_tracer_message {
	const char *tag;    /* send, 'receive', call, ...: the third element of the term, as it stands there */
	const char *tracee; /* the second one: a pid or port */
	const char *term;   /* {trace, Tracee, Tag, ...}, {trace_ts, ...} */
	uint64_t time;	    /* ns, CLOCK_MONOTONIC */
};

struct lorg_tracer {
	uint32_t abi; /* LORG_TRACER_ABI */
	/* state: the term that was given. 0, or other than 0: the session cannot be. context: handed to all other calls. */
	int (*begin)(const char *state, void **context);
	/* Whether messages of that tag are wanted of the tracee. NULL: always. */
	enum lorg_tracer_answer (*enabled)(void *context, const char *tag, const char *tracee);
	/* *changed, with LORG_TRACER_CHANGED: a term as text, the plug-in's; valid until the next call. */
	enum lorg_tracer_answer (*trace)(void *context, const struct lorg_tracer_message *message, const char **changed);
	/* count messages were lost before the next one. May be NULL. */
	void (*lost)(void *context, uint64_t count);
	/* The session ends. May be NULL. */
	void (*end)(void *context);
};

/* What the plug-in exports. The structure lives as long as the plug-in. */
__attribute__((visibility("default"))) const struct lorg_tracer *lorg_tracer(void);

#ifdef __cplusplus
}
#endif

#endif
