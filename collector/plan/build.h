/* SPDX-License-Identifier: MIT */
/*
 * build.h: from an analysed module and rules to the bytes of a plan, what its
 * controls begin with, and what is to be told.
 */
#ifndef LORG_PLAN_BUILD_H
#define LORG_PLAN_BUILD_H

#include <lorg/abi.h>

#include "collector/plan/analysis.h"
#include "collector/plan/plan.h"
#include "collector/plan/rule.h"
#include "collector/value/value.h"

/* Code that --called-from names: offsets in a module. */
struct build_request {
	struct analysis *analysis;
	const struct rule *rules;
	uint32_t rule_count;
	const struct prototypes *prototypes;
	uint64_t tick_frequency;
	uint32_t first_function; /* id of the first */
	uint64_t plan_id;
	const struct caller_range *callers; /* of all RULE_CALLED_FROM */
	uint32_t caller_count;
	int flags_matter;
	/* For match specifications: where a function's code is, in any module. As code_ranges of match.h. */
	void *code_owner;
	int (*code_ranges)(void *owner, const char *module, const char *function, struct caller_range **ranges);
	struct plan_index *index; /* not NULL: all functions, whatever the rules; where they stand in the plan is filled in */
};

/* One function that rules name, whether it is hooked or not. */
struct told_function {
	uint32_t arity, tier, flags; /* tier 0: refused */
	uint64_t offset, size;
	char *name, *file; /* NULL: none */
	const char *why;   /* of a refused one; constant text, or one of struct built's own_texts */
	uint32_t rule;	   /* the first that names it */
};

struct built {
	uint8_t *bytes; /* of the plan; NULL: nothing is to be hooked */
	size_t size;
	struct lorg_function_control *functions;
	struct lorg_call_setting *settings;
	struct plan_caller *callers; /* one a setting, or NULL */
	uint32_t function_count, setting_count;
	struct told_function *told; /* those that are hooked, in the plan's order */
	struct told_function *refused;
	uint32_t told_count, refused_count;
	uint32_t *named; /* one a rule: functions that it names */
	uint32_t *refused_of; /* one a rule: of those, refused */
	uint32_t by_code, by_slots, entry_only;
	uint8_t *programs; /* as in struct plan_initial */
	size_t programs_size;
	struct plan_program_range *program_ranges;
	uint32_t program_range_count;
	char **own_texts; /* reasons that are told with positions; freed with this */
	uint32_t own_text_count;
};

/* 0, or -1: out of memory. */
int build_plan(const struct build_request *request, struct built *built);
void built_free(struct built *built);

/* Whether any rule but notrace may name something in it, or slots of it are needed for others. */
int rules_name_module(const struct rule *rules, uint32_t count, const struct object *object);
int rules_need_slots(const struct rule *rules, uint32_t count);

/* True if the pattern names the module, by its file, its soname or its alias. */
int pattern_names_object(const struct pattern *pattern, const struct object *object);

/* True if the pattern names the function, by any of its names; arity -1: unknown. */
int pattern_names_function(const struct pattern *pattern, const struct analysis *analysis, size_t function, int arity);

#endif
