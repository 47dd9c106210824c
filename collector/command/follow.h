/* SPDX-License-Identifier: MIT */
/* follow.h: prints the messages of sessions as they come, until they end or somebody interrupts. */
#ifndef LORG_COMMAND_FOLLOW_H
#define LORG_COMMAND_FOLLOW_H

#include <argp.h>
#include <stdint.h>

#include <lorg/trace.h>

enum follow_format { FOLLOW_TEXT, FOLLOW_ERLANG, FOLLOW_JSON };

enum follow_answer {
	FOLLOW_ON,
	FOLLOW_GONE,   /* lorgd is not there, or not ready yet */
	FOLLOW_FAILED, /* why has been said */
};

struct follow {
	struct lorg_connection *connection; /* another one when lorgd was started again. The caller ends it */
	enum follow_format format;
	uint64_t maximum; /* messages; 0: no limit */
	int silent;	  /* 1: prints none, and waits only */
	/* Called about each second; NULL: nothing is to be done. */
	enum follow_answer (*each_second)(void *context);
	/*
	 * lorgd had gone and is there again: makes it as it was on a new connection; handles of the one before are only to be
	 * freed. Called again a little later where it is GONE. NULL: following ends with lorgd.
	 */
	enum follow_answer (*come_back)(void *context, struct lorg_connection *connection);
	void *context;
	const char *goes_on; /* what is said to go on then, "session hunt"; NULL: nothing is said */
	/* Filled: how it ended. */
	uint64_t count; /* messages that were printed */
	int signal;	/* that ended it; 0: none */
	int64_t second; /* its own */
};

/* "text", "erlang", "json"; ends with status 2 at another. */
enum follow_format follow_format(const char *text);
/* For commands that have --format alone: input is an enum follow_format. */
extern const struct argp_option follow_format_option[];
error_t follow_parse_format(int key, char *argument, struct argp_state *state);

/* Before sessions are made on the connection: which forms are wanted. */
void follow_begin(struct follow *follow);
/* The same of a trace directory that is being written, from now on; connection is not used. */
int follow_directory(struct follow *follow, const char *directory);
/* The exit status: an interruption, the maximum, a reader that went away and the session's end are no failures. */
int follow_run(struct follow *follow);

#endif
