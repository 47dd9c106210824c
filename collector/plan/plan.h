/* SPDX-License-Identifier: MIT */
/*
 * plan.h: from an ELF file and standing rules to a plan (lorg/plan.h) that
 * programs map: which of its functions are hooked, and how.
 *
 * The planner belongs to one collector. Its analysis runs in helper threads
 * of its own, so that a large file (a compiler: some seconds) keeps nobody from
 * draining chunks, and small files do not wait for it; all functions here are for the collector's one thread, and
 * none of them waits. Results are kept: one plan a file (build-id, else
 * identity of the file), whatever number of programs map it.
 *
 *     planner_create, planner_add_rule...
 *     plan_for(request): PLAN_PENDING: ask again when planner_descriptor is readable, or at the next pass
 *                        PLAN_READY:   planner_tell first, then answer the image
 *     planner_free
 *
 * Errors: a file that cannot be planned is PLAN_NONE with a reason.
 */
#ifndef LORG_PLAN_PLANNER_H
#define LORG_PLAN_PLANNER_H

#include <stdint.h>
#include <sys/types.h>

#include <lorg/plan.h>

struct planner;
struct plan_index; /* index.h */
struct rule;	   /* rule.h */
struct prototypes; /* collector/value/value.h */

struct planner_settings {
	uint64_t tick_frequency; /* ticks a second, for times */
	const struct prototypes *prototypes; /* NULL: none; stays the caller's */
	int flags_matter; /* 1: processes' flags may be changed by match specifications: each call looks at them */
	/* The program that is started: a file may have been called by the name of a link to it. NULL: none. The caller's. */
	const char *program_path, *program_name;
	/*
	 * 1: plans hold all functions of their modules, and nothing is asked of them: gates are 0. A function that can be hooked
	 * at its entry and through slots has two places in the plan, the first at its entry: two gates, two ids. Rules are not
	 * looked at. planner_tell says nothing of their functions: those stand in the index.
	 */
	int whole_modules;
};

/* NULL: out of memory or descriptors (errno). */
struct planner *planner_create(const struct planner_settings *settings);
/* Waits for the helper thread to leave what it is at; plans' descriptors are closed. */
void planner_free(struct planner *planner);

/* Takes over what the rule holds. Before the first request. 0, or -1 (errno). */
int planner_add_rule(struct planner *planner, struct rule *rule);

struct plan_request {
	pid_t pid;	  /* whose mount namespace `path` is of; 0: ours */
	const char *path; /* as /proc/PID/maps names it */
	const uint8_t *build_id;
	uint32_t build_id_length; /* 0: none known */
};

/*
 * What a control begins with. The planner's, as long as it lives. The caller makes the memfd of struct lorg_control
 * from it: functions[i] belongs to plan function i; `setting` in it is an index + 1 in `settings`.
 * caller_low and caller_high of a setting are offsets in the module that caller_module (by index, as `settings`) names.
 */
struct plan_initial {
	const struct lorg_function_control *functions;
	uint32_t function_count;
	const struct lorg_call_setting *settings;
	uint32_t setting_count;
	const struct plan_caller *callers; /* setting_count, or NULL: no setting looks at its caller */
	/*
	 * Match programs, to stand in the control at a multiple of 8. `program` in a setting is an offset in them + 1, and the
	 * ranges that they compare callers with are to be filled in.
	 */
	const uint8_t *programs;
	uint64_t programs_size;
	const struct plan_program_range *program_ranges;
	uint32_t program_range_count;
};

/* Whose load bias is to be added to caller_low and caller_high: the module of this build-id (length 0: the plan's own). */
struct plan_caller {
	uint32_t build_id_length;
	uint8_t build_id[20];
	char path[424]; /* where it has no build-id */
	uint32_t later; /* n > 0: this is the n-th place for ranges of modules that were not known when the plan was made */
};

/* Offsets in a module that calls may come from, as return addresses. */
struct caller_range {
	uint64_t low, high;
	const struct plan_caller *module; /* NULL: the plan's own */
};

/* A struct lorg_match_range at that offset in the programs: offsets in a module, to which its load bias is to be added. */
struct plan_program_range {
	uint64_t at, first, last;
	struct plan_caller module;
};

enum plan_state {
	PLAN_PENDING = 0,
	PLAN_READY = 1,
	PLAN_NONE = 2, /* nothing to hook in it: plan_size 0; `why` says so where a rule names it */
};

struct plan_answer {
	int descriptor; /* sealed memfd; the planner's, as long as it lives */
	uint64_t size;	/* bytes */
	uint64_t plan_id;
	const struct lorg_plan *plan; /* mapped read-only; the planner's */
	struct plan_initial initial;
	const struct plan_index *index; /* of whole modules; else NULL; the planner's */
	/* Whatever the state, but PENDING: what of this module calls may come from (--called-from). */
	const struct caller_range *callers;
	uint32_t caller_count;
	const char *why; /* NULL, or why there is nothing; the planner's */
};

enum plan_state plan_for(struct planner *planner, const struct plan_request *request, struct plan_answer *answer);

/* True for what is no module, whatever patterns say: the loader, and lorg's own library. */
int planner_leaves_alone(const char *path);

/* Readable when a plan that was pending is ready; level-triggered until the next plan_for. */
int planner_descriptor(const struct planner *planner);

/*
 * What is to be told before an image gets a plan: HOOKED_FUNCTION events, and gaps of what is refused. Calls `function`
 * and `gap` for what has not been told yet, of all plans that are ready. Call it after plan_for has said PLAN_READY or
 * PLAN_NONE, before the image is answered.
 */
struct plan_function_news {
	uint32_t function; /* id */
	uint32_t arity;	   /* UINT32_MAX: unknown */
	uint32_t tier, flags;
	uint64_t offset, size;
	const char *module, *name, *file; /* never NULL; name and file empty where unknown */
	const uint8_t *build_id;
	uint32_t build_id_length;
};
struct planner_listener {
	void (*function)(void *context, const struct plan_function_news *news);
	void (*gap)(void *context, uint64_t count, const char *what, const char *why);
	void *context;
};
void planner_tell(struct planner *planner, const struct planner_listener *listener);

/* What became of the rules and the modules so far, for people. Texts are the planner's. */
struct planner_module {
	const char *module, *path;
	uint32_t by_code, by_slots, entry_only, refused; /* functions that rules name */
	const char *why; /* NULL, or why nothing of it can be hooked */
};
struct planner_rule {
	const char *option, *text; /* as given: --call, git:* */
	uint32_t modules, functions; /* that it named; functions: those that are hooked or refused */
	uint32_t refused;
	int literal_module; /* no wildcard in its module */
	const char *first_module; /* one that it named; NULL: none */
};
/* 0: there is no `index`. */
int planner_module_at(struct planner *planner, uint32_t index, struct planner_module *module);
int planner_rule_at(struct planner *planner, uint32_t index, struct planner_rule *rule);

#endif
