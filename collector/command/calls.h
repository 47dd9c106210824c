/* SPDX-License-Identifier: MIT */
/*
 * calls.h: the options of lorg run that ask for calls of functions: what they
 * mean, the planner behind them, and what became of them.
 *
 * They need libraries that the program lorg does without (entry.c): so run.c
 * reaches them by struct run_calls, which lorg-commands has and lorg has not.
 */
#ifndef LORG_COMMAND_CALLS_H
#define LORG_COMMAND_CALLS_H

#include <stdint.h>

#include "collector/collect/collector.h"
#include "collector/collect/requests.h"
#include "collector/plan/pattern.h"

/* Keys of the options, as argp hands them on. */
enum calls_key {
	CALLS_KEY_FIRST = 512,
	KEY_CALL = CALLS_KEY_FIRST,
	KEY_CALL_GLOBAL,
	KEY_NOTRACE,
	KEY_COUNT,
	KEY_TIME,
	KEY_MEMORY,
	KEY_DEPTH,
	KEY_LONGER_THAN,
	KEY_CALLED_FROM,
	KEY_LIMIT,
	KEY_RATE,
	KEY_NO_RETURNS,
	KEY_RETURN_TO,
	KEY_NO_VALUES,
	KEY_PROTOTYPES,
	KEY_MATCH,
	KEY_IF,
	KEY_SEND_MATCH,
	KEY_RECEIVE_MATCH,
	CALLS_KEY_LAST,
};

struct calls;

struct run_calls {
	/* NULL: out of memory. */
	struct calls *(*create)(void);
	/* One option. 0, or -1 when it has said what is wrong with it. */
	int (*option)(struct calls *calls, int key, const char *argument);
	/*
	 * All options are there, and the program's file is found. 0, or -1 when it has said why not. Settings: gets the match
	 * programs of messages, which stay this one's, and what processes' flags need.
	 */
	int (*open)(struct calls *calls, const char *program_path, struct planning *planning, struct collector_settings *settings);
	/* Says what people should know just now (once each): patterns that nothing answers to, modules that cannot be read. */
	void (*look)(struct calls *calls);
	/* The recording has ended: what was hooked, and how; patterns that named nothing. quiet: only what went wrong. */
	void (*finish)(struct calls *calls, int quiet);
	void (*free)(struct calls *calls);
};

extern const struct run_calls run_calls;

/* What is wrong with a pattern, in the one form of errors. `option`: what it was given to. */
void pattern_complain(const char *option, const char *text, const struct pattern_error *error);

#endif
