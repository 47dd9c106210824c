/* SPDX-License-Identifier: MIT */
/* match.h: compiles a match specification for one function: with its parameters' names and types, and where callers' code is. */
#ifndef LORG_PLAN_MATCH_H
#define LORG_PLAN_MATCH_H

#include "collector/match/compile.h"
#include "collector/plan/build.h"

struct plan_match_request {
	const char *text;
	int is_condition;
	/* What is known of the function; source NULL: nothing. offset and names as for value_for_function. */
	struct value_source *source;
	uint64_t offset;
	const char *const *names;
	/*
	 * The code of all functions of that name in a module, as offsets in it, each with its module; to be freed by the caller.
	 * Returns how many; -1: the module is not known.
	 */
	void *code_owner;
	int (*code_ranges)(void *owner, const char *module, const char *function, struct caller_range **ranges);
};

struct plan_match {
	struct match_code code; /* its ranges hold offsets */
	struct caller_range *ranges; /* one a range of the code */
	uint32_t range_count;
	char why[512]; /* "1:14: why": where it could not be compiled */
};

/* 0, or -1 with `why`. What it holds goes with plan_match_free. */
int plan_match_compile(const struct plan_match_request *request, struct plan_match *match);
void plan_match_free(struct plan_match *match);

/*
 * What is known of the functions of one file, for conditions on single ones. pid: whose mount namespace the path is of; 0:
 * ours. NULL: nothing; then there are no names of arguments.
 */
struct plan_source;
struct plan_source *plan_source_open(pid_t pid, const char *path, const struct prototypes *prototypes);
void plan_source_close(struct plan_source *source); /* NULL does nothing */
/* Compiles a condition for the function at `offset`. 0, or -1 with `why`. source may be NULL. */
int plan_source_condition(struct plan_source *source, const char *text, uint64_t offset, const char *const *names, struct match_code *code,
			  char *why, size_t size);

#endif
