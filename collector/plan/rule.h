/* SPDX-License-Identifier: MIT */
/* rule.h: what is asked of the functions that a pattern names. */
#ifndef LORG_PLAN_RULE_H
#define LORG_PLAN_RULE_H

#include <stdint.h>

#include "collector/plan/pattern.h"

enum rule_kind {
	RULE_CALL = 1,	      /* call events: local where the code can be hooked, else global */
	RULE_CALL_GLOBAL = 2, /* through slots only */
	RULE_COUNT = 3,	      /* call_count, call_time, call_memory: local, else global */
	RULE_TIME = 4,
	RULE_MEMORY = 5,
	RULE_NOTRACE = 6,     /* whatever other rules say */
	RULE_CALLED_FROM = 7, /* of all call events: only calls that these functions make */
};

/* The planner's thread writes it once. */
struct rule_refusal {
	uint32_t set; /* atomic; stored last (release) */
	char why[640]; /* "mt:work: condition: 1:1: there is no member 'x'" */
};

struct rule {
	struct pattern pattern; /* owned */
	enum rule_kind kind;
	const char *option;	/* as people write it; constant text */
	uint32_t session;	/* slot */
	/* Of RULE_CALL and RULE_CALL_GLOBAL. */
	uint32_t gate;		/* enum lorg_call_gate bits: ENTRY, RETURN, VALUES, RETURN_TO */
	uint32_t maximum_depth; /* 0: any */
	uint64_t longer_than_ns; /* 0: any */
	uint64_t limit_events, limit_rate; /* of each function; 0: none */
	const char *match;	/* what decides: text of a match specification, or NULL; stays the caller's */
	int is_condition;	/* 1: a condition in the short form; returns are told as without */
	struct rule_refusal *refusal; /* NULL, or where it says of the first function for which `match` could not be compiled why */
};

#endif
