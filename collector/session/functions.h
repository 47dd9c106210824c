/* SPDX-License-Identifier: MIT */
/*
 * functions.h: function/4 as its files share it; what others may call stands in
 * session.h.
 *
 *     functions.c  requests, and what each session asks of which function
 *     asking.c     from there to the controls of families: settings and gates
 *     placing.c    stubs into programs that run already
 *     info.c       info/3, and the values of counters
 *     specification.c  match specifications
 *     rules.c, controls.c, counting.c, mapped.c  know none of the others
 *
 * A module is planned whole, once a node, when a session first asks for
 * something of it. From then on nothing but settings and gates change.
 */
#ifndef LORG_SESSION_FUNCTIONS_H
#define LORG_SESSION_FUNCTIONS_H

#include "collector/collect/family.h"
#include "collector/plan/index.h"
#include "collector/plan/plan.h"
#include "collector/session/controls.h"
#include "collector/session/counting.h"
#include "collector/session/mapped.h"
#include "collector/session/rules.h"
#include "collector/session/sessions.h"

struct asked_module;

/* A module that is mapped somewhere on the node, or was while sessions asked for something of it. */
struct module {
	struct module *next;
	struct mapped_module file;
	pid_t pid; /* whose mount namespace its path is of */
	int mapped; /* as of the last look */
	int is_new; /* it came while sessions asked: what they ask on_load of is still to be done */
	int is_planned; /* its plan was asked for */
	int was_placed; /* stubs of it were seen in a program */
	int has_slots;	/* calls of it may go through slots to functions that are traced so: programs need its plan */
	enum plan_state state;
	struct plan_answer answer; /* once state is no more PENDING */
	uint8_t *told; /* one a function of the index: its HOOKED_FUNCTION events are written */
	struct asked_module *askers; /* by slot, ascending */
};

/* What stood in the counters of one process when a session's count began, or was taken up again. */
struct process_base {
	uint8_t image[16];
	uint64_t birth;
	uint64_t count, ticks, words;
	struct {
		uint64_t count, ticks, words; /* from before that */
	} kept;
	int is_open; /* what comes from now on is counted, too */
};

struct process_bases {
	struct process_base *list;
	uint32_t count, room;
};

struct session_counting {
	uint64_t count_base, count_kept; /* call_count; kept: the value of a paused one */
	struct process_bases time, memory;
};

struct asked_function {
	struct asked asked;
	uint64_t since, until; /* ticks: calls are traced without a specification; until: UINT64_MAX now */
	uint32_t since_kind;   /* by which kind: GLOBAL or LOCAL */
	struct session_counting *counting; /* NULL: none */
};

/* What one session asks of the functions of one module. */
struct asked_module {
	struct asked_module *next; /* of the session */
	struct asked_module *next_asker; /* of the module */
	struct session *session;
	struct module *module;
	struct asked_function *functions; /* by their places in the index */
};

struct session_functions {
	struct asked_module *modules;
	struct asked on_load;
	uint32_t asked_seen; /* flags of the session that gates depend on, as of the last time */
};

enum waiting_state { WAITING_PLANS, WAITING_PROGRAMS };

/* A function/4 that is not answered yet. */
struct waiting {
	struct waiting *next;
	enum waiting_state state;
	uint64_t session; /* number */
	struct function_request request; /* texts are its own */
	char *texts;
	struct pattern pattern; /* of request.pattern */
	function_done *done;
	void *context;
	uint64_t since_ns, epoch;
	int64_t number;
	char *refused;
};

struct placing; /* placing.c's */

struct function_traces {
	struct sessions *sessions;
	struct family_context *context;
	struct prototypes *prototypes;
	struct planner *planner;
	struct planning planning;
	struct live_planning live;
	struct mapped_files *files;
	struct module *modules;
	uint32_t module_count;
	struct counting *counting;
	struct waiting *waiting;
	struct placing *placing;
	uint64_t epoch; /* one more when sessions begin to ask of a module: images that are behind are looked at */
	uint64_t look_ns;
	int asked; /* programs are to ask for plans */
	/* Names of functions that are traced through slots. A wildcard: all modules are looked through. */
	char **globals;
	uint32_t global_count, global_room;
	int all_globals;
};

/* ---- functions.c ------------------------------------------------------------- */

/* NULL: there is none. */
struct module *functions_module_of(struct function_traces *functions, const struct mapped_module *file);
/* Looks at all programs for what they have mapped. */
void functions_look(struct function_traces *functions);
/* The plan of a module: as plan_for. */
enum plan_state functions_plan(struct function_traces *functions, struct module *module);
int functions_module_is_called(const struct module *module, const char *name);

/* ---- asking.c ----------------------------------------------------------------- */

/*
 * These functions of the module (places in its index, ascending; NULL: all that anybody asks of) become as sessions ask.
 * Returns how many patches in programs cannot be switched just now; later passes try again.
 */
uint32_t functions_publish(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count);
/* The same in one new control. */
void functions_fill(struct function_traces *functions, struct family *family, struct live_control *control);
/* It is known where one more module lies: callers that specifications name may lie in it. */
void functions_place_callers(struct family *family, struct live_control *control);
/* Module of a plan; NULL: none. */
struct module *functions_module_with_plan(struct function_traces *functions, uint64_t plan_id);
/* What hooks sessions need because of functions. */
void functions_set_gates(struct function_traces *functions, struct session *session);
/* Tries again at once what could not be switched. Returns what is left. */
uint32_t functions_switch_again(struct function_traces *functions, const struct module *module);

/* Programs that have plans of a lorgd that was before this one: their stubs lead to controls that nobody has any more. */
static inline int functions_of_another(const struct family *family)
{
	return family->adopted && __atomic_load_n(&family_arena(family)->placements, __ATOMIC_RELAXED);
}

/* ---- placing.c ---------------------------------------------------------------- */

/* Begins to place what is missing in running programs. 1: some are not done yet. */
int placing_pass(struct function_traces *functions, uint64_t now_ns);
void placing_free(struct function_traces *functions);
/* Why programs could not be reached that have the module mapped: text of {{M,'_','_'}, "why"} terms, each with a comma before it. */
void placing_refusals(struct function_traces *functions, FILE *to);

/* ---- info.c -------------------------------------------------------------------- */

/* Before a request changes them: zero points and kept values of one session's counters. list: of the module, as of now. */
void counting_change(struct function_traces *functions, struct asked_module *asked, uint32_t function, const struct rules_effect *effect,
		     const struct counted_list *list);
void session_counting_free(struct session_counting *counting);

/* ---- specification.c ------------------------------------------------------------- */

struct specifications; /* those of one request */

struct specification_request {
	struct function_traces *functions;
	const char *text;
	int is_condition;
};
/*
 * Begins. NULL and *why (to be freed; NULL: no memory): the text is wrong. *pending: modules that it names are being
 * planned: ask again. A text that says [] gives one that says none.
 */
struct specifications *specifications_create(const struct specification_request *request, int *pending, char **why);
void specifications_free(struct specifications *specifications);
/* That for a function. NULL: there is none ([]). -1: it is wrong for this one; why: constant or the list's. */
int specification_for(struct specifications *specifications, struct module *module, uint32_t function, struct specification **result,
		      const char **why);

#endif
