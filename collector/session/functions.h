/* SPDX-License-Identifier: MIT */
/*
 * functions.h: function/4 as its files share it; what others may call stands in
 * session.h.
 *
 *     functions.c  requests, and what each session asks of which function
 *     asking.c     from there to the controls of families: settings and gates
 *     placing.c    stubs into programs that run already
 *     function_state.c  all of that over a restart of lorgd
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

enum { MODULE_IMAGES = 8 };

/* A module that is mapped somewhere on the node, or was while sessions asked for something of it. */
struct module {
	struct module *next;
	struct mapped_module file;
	pid_t pid; /* whose mount namespace its path is of */
	int mapped, was_mapped; /* as of the last look, and of the one before */
	uint64_t loads; /* modules that had come when it came, itself among them */
	int is_new; /* what sessions ask of modules that come is still to be asked of it */
	int is_planned; /* its plan was asked for */
	int is_kept;	/* it is in hands that outlive us (keeping.h) */
	int was_placed; /* stubs of it were seen in a program */
	uint8_t answered[MODULE_IMAGES][16]; /* images that have its plan: the last ones; who asks again has unloaded it */
	uint32_t answered_count;
	int has_slots;	/* calls of it may go through slots to functions that are traced so: programs need its plan */
	enum plan_state state;
	struct plan_answer answer; /* once state is no more PENDING */
	int refused_told; /* that some of it cannot be hooked, in a gap */
	uint8_t *told; /* one a function of the index: its HOOKED_FUNCTION events are written */
	uint32_t names_seen; /* of function_traces.names_asked, when its table of names was looked through */
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
	uint8_t declared, meta_declared; /* arguments that a request has said it has, + 1, where nobody knows; 0: it has not */
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
	uint64_t on_load_since; /* of modules that come after so many */
	struct waiting *standing; /* requests that are asked of modules that come, too, in their order */
	uint32_t standing_count;
	uint64_t leaving_ns; /* the session is about to end: it waits so long for code that cannot be put back at once; 0: it is not */
	uint32_t asked_seen; /* flags of the session that gates depend on, as of the last time */
};

enum waiting_state { WAITING_PLANS, WAITING_PROGRAMS };

struct specifications;
struct refusals; /* functions.c's */

/* What a request names in one module, as far as it was looked through. */
struct found {
	struct found *next;
	struct module *module;
	uint64_t loads; /* of the module */
	uint32_t at; /* the next place in the index */
	uint32_t applied; /* of the list */
	int is_first, is_applied; /* programs may need stubs for it; all of it */
	int needs_slots; /* some of it is told at the slots of other modules */
	struct found_function {
		uint32_t index;
		struct specification *match; /* of the request's specifications */
	} *list;
	uint32_t count, room;
};

/* A function/4 that is not answered yet, or that stands. */
struct waiting {
	struct waiting *next;
	enum waiting_state state;
	uint64_t loads; /* modules that had come when it was made: those after them are new to it */
	uint64_t session; /* number */
	struct function_request request; /* texts are its own */
	char *texts;
	struct pattern pattern; /* of request.pattern */
	struct specifications *specifications; /* NULL: it is not begun */
	struct refusals *refusals; /* likewise */
	struct found *found;
	function_done *done;
	void *context;
	uint64_t since_ns, epoch;
	uint64_t tick; /* what starts later finds it at its start */
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
	uint64_t loads; /* modules that have come so far */
	struct counting *counting;
	struct waiting *waiting;
	struct placing *placing;
	uint64_t epoch; /* one more when sessions begin to ask of a module: images that are behind are looked at */
	uint64_t epoch_seen, epoch_tick; /* placing.c's: since when it is that */
	uint64_t look_ns;
	uint64_t changes; /* function_state.h */
	uint64_t resumed_ns; /* when programs were taken over; 0: they were not */
	uint64_t refill_ns;  /* when to try again what had no room in adopted controls; 0: nothing */
	int asked; /* programs are to ask for plans */
	uint32_t openings; /* atomic; threads that read debug information for specifications */
	int unswitched; /* sessions have ended, and not all code could be put back at once */
	/* Names of functions that are traced through slots. A wildcard: all modules are looked through. */
	char **globals;
	uint32_t global_count, global_room;
	uint32_t names_asked; /* one more with each of them */
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

/* For function_state.c: as requests do it. NULL: no memory. */
struct module *functions_add_module(struct function_traces *functions, const struct mapped_module *file);
struct asked_module *functions_asked_make(struct session *session, struct module *module);
/* Readers know these functions (places in the index, ascending) before the first event of them. */
void functions_tell(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count);
void functions_see_whether_asked(struct function_traces *functions);
/* A function that is traced so (enum lorg_call_kind): slots of other modules may lead to it, and may be where it is told. */
void functions_note_slots(struct function_traces *functions, const struct module *module, uint32_t function, uint32_t kinds);
/* It stands, and has been asked of all that is mapped. */
void functions_restore_standing(struct function_traces *functions, struct session *session, const struct function_request *request);

/* ---- asking.c ----------------------------------------------------------------- */

/*
 * These functions of the module (places in its index, ascending; NULL: all that anybody asks of) become as sessions ask.
 * Returns how many patches in programs cannot be switched just now; later passes try again.
 */
uint32_t functions_publish(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count);
/* The first half of it: nothing is switched yet. */
void functions_set(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count);
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

/* Programs that have controls of a lorgd before this one that could not be taken over: their stubs lead nowhere any more. */
static inline int functions_of_another(const struct family *family)
{
	return family->has_lost_controls && __atomic_load_n(&family_arena(family)->placements, __ATOMIC_RELAXED);
}

/* ---- placing.c ---------------------------------------------------------------- */

/* Begins to place what is missing in running programs. 1: some are not done yet. */
int placing_pass(struct function_traces *functions, uint64_t now_ns);
/* 1: a program that has only just started, and places all that is asked by itself before its own code runs. */
int placing_asks_by_itself(const struct function_traces *functions, const struct image *image);
void placing_free(struct function_traces *functions);
/* Why programs could not be reached that have the module mapped: text of {{M,'_','_'}, "why"} terms, each with a comma before it. */
void placing_refusals(struct function_traces *functions, FILE *to);

/* ---- info.c -------------------------------------------------------------------- */

/* Before a request changes them: zero points and kept values of one session's counters. list: of the module, as of now. */
void counting_change(struct function_traces *functions, struct asked_module *asked, uint32_t function, const struct rules_effect *effect,
		     const struct counted_list *list);
void session_counting_free(struct session_counting *counting);

/* ---- specification.c ------------------------------------------------------------- */

/* Numbers of specifications go on behind those that programs know of. */
uint64_t specification_last_number(void);
void specification_numbers_from(uint64_t number);

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
/* 1: what conditions have to know of the module's functions is at hand. 0: it is being read: ask again. */
int specifications_know(struct specifications *specifications, struct module *module);
void specifications_free(struct specifications *specifications);
/* That for a function. NULL: there is none ([]). -1: it is wrong for this one; why: constant or the list's. */
int specification_for(struct specifications *specifications, struct module *module, uint32_t function, struct specification **result,
		      const char **why);

#endif
