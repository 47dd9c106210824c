/* SPDX-License-Identifier: MIT */
/*
 * collector.h: a private collector: shared memory for programs on one side, a
 * trace directory (or, in a lorgd, sessions) on the other. Single-threaded;
 * prints nothing; the caller drives it:
 *
 *     collector_open
 *     start the program with collector_environment
 *     repeat: collector_pass, wait for collector_descriptor or as long as it says
 *     collector_close
 */
#ifndef LORG_COLLECT_COLLECTOR_H
#define LORG_COLLECT_COLLECTOR_H

#include <stdint.h>
#include <sys/types.h>

#include <lorg/abi.h>

#include "collector/collect/memory.h"
#include "collector/collect/notes.h"

struct collector;

struct collector_settings {
	const struct live *live; /* session_live (session/live.h): a lorgd, with sessions in place of a trace directory; NULL */
	const char *output;	 /* the trace directory */
	const char *session;	 /* its name */
	const char *options;	 /* as the user gave them, for the trace */
	enum lorg_overflow overflow;
	uint64_t block_limit_ns;
	uint32_t message_length; /* bytes */
	uint32_t gate_mask;	 /* enum lorg_gate bits */
	unsigned open_files;	 /* stream files open at once */
	const struct keeping *keeping; /* keeping.h; NULL: none */
	struct adopted *adopted; /* what is taken over; NULL: nothing. What is left in it stays the caller's */
	const struct planning *planning; /* requests.h; NULL: no functions are hooked. Stays the caller's */
	struct arena_program send_program, receive_program; /* match specifications of messages. The caller's */
	uint32_t flags_new;	 /* LORG_TRACE_* that processes begin with; looked at only where flags_matter */
	uint32_t flags_matter;	 /* 1: match specifications may change them */
};

/* NULL on failure: *what and *why (constant text, or errno's when NULL with errno set) say what. */
struct collector *collector_open(const struct collector_settings *settings, const char **what, const char **why);

/* "LORG=...", for the programs; the collector's memory. */
const char *collector_environment(const struct collector *collector);

/* A program that is not traced. */
void collector_not_traced(struct collector *collector, uint32_t pid, const char *what, const char *why);

/* The program that this process started, so that its end is known; status as wait(2) has it. */
void collector_child_started(struct collector *collector, pid_t pid);
void collector_child_ended(struct collector *collector, int status);

/* Becomes readable when there is something to do. */
int collector_descriptor(const struct collector *collector);

/* A lorgd's; else NULL. */
struct sessions;
struct sessions *collector_sessions(const struct collector *collector);
/* Something is about to happen: it is looked for more often for a while. */
void collector_hurry(struct collector *collector);
struct family_context;
struct family_context *collector_context(struct collector *collector);
/* node(), as programs are told it. */
const char *collector_node_name(const struct collector *collector);

/* Before sessions are restored, also where nothing was adopted: what was half taken from a program is found out. */
void collector_take_over(struct collector *collector, struct adopted *adopted);
/*
 * Where memory was adopted: the programs in it are led here, once the sessions are as they were. Before the first pass.
 */
void collector_lead_adopted(struct collector *collector);
/* The trace's clock and id, which a lorgd that is started again goes on with. */
void collector_identity(const struct collector *collector, struct lorg_clock *clock, uint8_t trace_uuid[16]);

/* Does what there is to do. Returns ns until it wants to be called again. */
uint64_t collector_pass(struct collector *collector);

/* True once any program has attached. */
int collector_ever_attached(const struct collector *collector);

/* True while programs are attached, or may be about to. */
int collector_attached(const struct collector *collector);
/* Number of programs that are known to be attached. */
uint32_t collector_programs(const struct collector *collector);

/* Ends the recording: programs go on, and forward only. */
void collector_detach(struct collector *collector);

/* errno that ended the writing of the trace, 0: none; *what says what failed. */
int collector_failure(const struct collector *collector, const char **what);

/* Takes what is left, writes the coverage line (also to `line`, if not NULL) and ends. */
void collector_close(struct collector *collector, char *line, unsigned size);

/* What the collector holds just now; for tests of what it gives back. */
struct collector_holdings {
	uint32_t families, images, offers, lanes, open_files;
};
struct collector_holdings collector_holdings(const struct collector *collector);

#endif
