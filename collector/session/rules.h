/* SPDX-License-Identifier: MIT */
/*
 * rules.h: what function/4 does to what a session asks of one function: which
 * kinds of trace replace and end which, as trace(3) has it. Knows no programs.
 */
#ifndef LORG_SESSION_RULES_H
#define LORG_SESSION_RULES_H

#include <stdint.h>

#include <lorg/plan.h>

#include "collector/session/session.h"

/* A piece of code that callers are compared with: offsets in a module. */
struct specification_range {
	const void *module; /* whoever compiled it knows; NULL: of no module that is mapped */
	uint64_t first, last;
};

/* A match specification, compiled; shared by all functions that it is set on and that its program is right for. */
struct specification {
	uint32_t users;
	uint32_t needs;	   /* LORG_MATCH_NEEDS_* */
	uint32_t size;	   /* bytes of the program */
	uint32_t range_count;
	uint64_t number;   /* never used twice */
	int is_condition;
	int sets_flags;	   /* it may change flags of processes */
	uint64_t *program; /* match.h */
	struct specification_range *ranges;
	char *text;	   /* a specification as terms are printed, a condition as it was given */
};

enum { RULES_COUNTERS = LORG_KIND_COUNT | LORG_KIND_TIME | LORG_KIND_MEMORY };
enum { RULES_TRACES = LORG_KIND_GLOBAL | LORG_KIND_LOCAL | LORG_KIND_META };

/* What a session asks of one function. */
struct asked {
	uint32_t kinds;	 /* enum lorg_call_kind bits, but PAUSED */
	uint32_t paused; /* of the counters */
	struct specification *match, *meta_match; /* NULL: none, that is [] */
};

/* What has become of its counters. */
struct rules_effect {
	uint32_t zeroed;  /* counters that begin at zero */
	uint32_t stopped; /* that keep their value from now on */
	uint32_t ended;
};

/* NULL: it is right; else why it is a badarg. match of the request is looked at for being there alone. */
const char *rules_check(const struct function_request *request);

/*
 * kinds, how: of the request. match: of the request, NULL: []. Takes users of specifications as it needs them; what has
 * none any more goes to specification_free.
 */
struct rules_effect rules_apply(struct asked *asked, uint32_t kinds, enum function_how how, struct specification *match);
/* All of it ends. */
void rules_end(struct asked *asked);

static inline struct specification *specification_take(struct specification *specification)
{
	if (specification)
		specification->users++;
	return specification;
}
/* One user less. NULL does nothing. */
void specification_release(struct specification *specification);

#endif
