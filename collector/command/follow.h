/* SPDX-License-Identifier: MIT */
/* follow.h: prints the messages of sessions as they come, until they end or somebody interrupts. */
#ifndef LORG_COMMAND_FOLLOW_H
#define LORG_COMMAND_FOLLOW_H

#include <stdint.h>

#include <lorg/trace.h>

enum follow_format { FOLLOW_TEXT, FOLLOW_ERLANG, FOLLOW_JSON };

struct follow {
	struct lorg_connection *connection;
	enum follow_format format;
	uint64_t maximum; /* messages; 0: no limit */
	int silent;	  /* 1: prints none, and waits only */
	/* Called about each second; NULL: nothing is to be done. Other than 0 is a failure and ends following. */
	int (*each_second)(void *context);
	void *context;
	/* Filled: how it ended. */
	uint64_t count; /* messages that were printed */
	int signal;	/* that ended it; 0: none */
	int64_t second; /* its own */
};

/* "text", "erlang", "json"; ends with status 2 at another. */
enum follow_format follow_format(const char *text);

/* Before sessions are made on the connection: which forms are wanted. */
void follow_begin(struct follow *follow);
/* The same of a trace directory that is being written, from now on; connection is not used. */
int follow_directory(struct follow *follow, const char *directory);
/* The exit status: an interruption, the maximum, a reader that went away and the session's end are no failures. */
int follow_run(struct follow *follow);

#endif
