/* SPDX-License-Identifier: MIT */
/* specification.c: match specifications of function/4, compiled. See functions.h. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/match/compile.h"
#include "collector/plan/match.h"
#include "collector/session/functions.h"
#include "collector/term/printer.h"

enum { SPECIFICATION_MAXIMUM = 1 << 18 /* bytes of a program */, KINDS_MAXIMUM = 4096, NAMES_MAXIMUM = 32 };

struct specifications {
	struct function_traces *functions;
	const char *text;
	int is_condition;
	struct specification **list; /* one; of a condition those that differ */
	uint32_t count, room;
	/* Of a condition: the module that was asked for last. */
	struct module *module;
	struct plan_source *source;
	struct opening *opening; /* NULL: none is under way */
	char why[512];
};

static uint64_t last_number; /* of specifications; they have one owner, lorgd's thread */

uint64_t specification_last_number(void)
{
	return last_number;
}

void specification_numbers_from(uint64_t number)
{
	if (number > last_number)
		last_number = number;
}

/* ---- one ---------------------------------------------------------------------- */

void specification_release(struct specification *specification)
{
	if (!specification || --specification->users)
		return;
	free(specification->program);
	free(specification->ranges);
	free(specification->text);
	free(specification);
}

static int sets_flags(const struct match_code *code)
{
	const struct lorg_match_head *head = (const struct lorg_match_head *)(const void *)code->memory;
	const lorg_match_instruction *instructions = code->memory + head->code_offset / 8;
	for (uint32_t i = 0; i < head->code_words; i++) {
		uint32_t function = lorg_match_a(instructions[i]);
		if (lorg_match_operation_of(instructions[i]) == LORG_MATCH_CALL &&
		    (function == LORG_MATCH_TRACE || function == LORG_MATCH_ENABLE_TRACE))
			return 1;
	}
	return 0;
}

/* Takes code and ranges over. NULL: no memory. */
static struct specification *make(const char *text, int is_condition, struct match_code *code, struct specification_range *ranges,
				  uint32_t range_count)
{
	const struct lorg_match_head *head = (const struct lorg_match_head *)(const void *)code->memory;
	struct specification *specification = calloc(1, sizeof *specification);
	char *copy = strdup(text);
	if (!specification || !copy) {
		free(specification);
		free(copy);
		free(ranges);
		match_code_close(code);
		return NULL;
	}
	*specification = (struct specification){
		.users = 1,
		.number = ++last_number,
		.needs = head->needs,
		.size = (uint32_t)code->size,
		.range_count = range_count,
		.is_condition = is_condition,
		.sets_flags = sets_flags(code),
		.program = malloc(code->size),
		.ranges = ranges,
		.text = copy,
	};
	if (specification->program) {
		memcpy(specification->program, code->memory, code->size);
		((struct lorg_match_head *)(void *)specification->program)->number = (uint32_t)specification->number;
	}
	match_code_close(code);
	if (!specification->program) {
		specification_release(specification);
		return NULL;
	}
	return specification;
}

static int keep(struct specifications *specifications, struct specification *specification)
{
	if (specifications->count == specifications->room) {
		uint32_t room = specifications->room ? 2 * specifications->room : 4;
		struct specification **more = realloc(specifications->list, room * sizeof *more);
		if (!more)
			return -1;
		specifications->list = more;
		specifications->room = room;
	}
	specifications->list[specifications->count++] = specification;
	return 0;
}

/* ---- where callers are ------------------------------------------------------------ */

struct compiling {
	struct function_traces *functions;
	struct specification_range *ranges;
	uint32_t range_count;
	int pending, failed;
};

static int add_range(struct compiling *compiling, const struct module *module, const struct index_function *function)
{
	struct specification_range *more = realloc(compiling->ranges, (compiling->range_count + 1ul) * sizeof *more);
	if (!more) {
		compiling->failed = 1;
		return -1;
	}
	compiling->ranges = more;
	more[compiling->range_count++] = (struct specification_range){
		.module = module, .first = function->offset, .last = function->offset + (function->size ? function->size : 1) - 1};
	return 0;
}

static void find_ranges(struct compiling *compiling, struct module *module, const char *name, int64_t arity)
{
	enum plan_state state = functions_plan(compiling->functions, module);
	const struct plan_index *index = state == PLAN_PENDING ? NULL : module->answer.index;
	compiling->pending |= state == PLAN_PENDING;
	for (uint32_t i = 0; index && i < index->count && !compiling->failed; i++) {
		const struct index_function *function = &index->functions[i];
		int fits = arity < 0 || function->arity == INDEX_ARITY_UNKNOWN || function->arity == arity;
		if (fits && index_is_called(index, i, name))
			add_range(compiling, module, function);
	}
}

static int ranges_of(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **list)
{
	struct compiling *compiling = owner;
	uint32_t before = compiling->range_count;
	for (struct module *at = compiling->functions->modules; at; at = at->next)
		if (at->mapped && functions_module_is_called(at, module))
			find_ranges(compiling, at, function, arity);
	uint32_t count = compiling->range_count - before;
	*list = calloc(count + 1ul, sizeof **list);
	if (!*list || compiling->failed)
		return -1;
	for (uint32_t i = 0; i < count; i++)
		(*list)[i] = (struct lorg_match_range){compiling->ranges[before + i].first, compiling->ranges[before + i].last};
	return (int)count;
}

/* ---- in Erlang's syntax -------------------------------------------------------------- */

static char *error_text(const char *what, const struct match_errors *errors)
{
	char place[512], *text = NULL;
	if (!errors->count)
		return NULL;
	match_error_text(&errors->list[0], place, sizeof place);
	if (asprintf(&text, "%s: %s", what, place) < 0)
		return NULL;
	return text;
}

static struct specification *compile_term(const struct specification_request *request, struct lorg_terms *terms, lorg_term term,
					  const struct lorg_positions *positions, int *pending, char **why)
{
	struct compiling compiling = {.functions = request->functions};
	const struct match_names names = {.owner = &compiling, .ranges = ranges_of};
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true, .names = &names, .flags = LORG_TRACE_ALL};
	struct match_errors errors = {0};
	struct match_code code = {0};
	char *text = lorg_term_text(terms, term, LORG_TEXT_ERLANG, NULL, NULL);
	struct specification *specification = NULL;
	int good = text && match_compile_term(terms, term, positions, request->text, strlen(request->text), &options, &code, &errors);
	*pending = compiling.pending;
	if (good && code.size > SPECIFICATION_MAXIMUM) {
		*why = strdup("match specification: it is larger than 256 KiB");
		good = 0;
	} else if (text && !good) {
		*why = error_text("match specification", &errors);
	}
	if (good && !*pending) {
		specification = make(text, 0, &code, compiling.ranges, compiling.range_count);
	} else {
		match_code_close(&code);
		free(compiling.ranges);
	}
	match_errors_close(&errors);
	free(text);
	return specification;
}

static int read_specification(struct specifications *specifications, const struct specification_request *request, int *pending, char **why)
{
	struct lorg_terms terms;
	struct lorg_positions positions = {0};
	struct lorg_read_error error = {0};
	struct specification *specification = NULL;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, request->text, strlen(request->text), &positions, &error);
	int is_none = term == lorg_nil();
	if (term == LORG_NONE) {
		if (asprintf(why, "match specification: %u:%u: %s", error.line, error.column, error.reason) < 0)
			*why = NULL;
	} else if (!is_none) {
		specification = compile_term(request, &terms, term, &positions, pending, why);
	}
	lorg_positions_close(&positions);
	lorg_terms_close(&terms);
	if (is_none)
		return 0;
	if (!specification)
		return -1;
	if (keep(specifications, specification) == 0)
		return 0;
	specification_release(specification);
	return -1;
}

/* ---- conditions ------------------------------------------------------------------------ */

/* As far as can be said without a function. */
static int check_condition(const struct specification_request *request, char **why)
{
	const struct match_names names = {.any = true};
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true, .names = &names, .flags = LORG_TRACE_ALL};
	struct match_errors errors = {0};
	struct match_code code = {0};
	bool good = match_compile_condition(request->text, strlen(request->text), &options, &code, &errors);
	if (good)
		match_code_close(&code);
	else
		*why = error_text("condition", &errors);
	match_errors_close(&errors);
	return good ? 0 : -1;
}

/* Names with what compilers add to them come first. */
static void list_names(const struct plan_index *index, uint32_t function, const char **list)
{
	const struct index_function *found = &index->functions[function];
	uint32_t count = 0;
	for (uint32_t i = 0; i < found->name_count && count + 1 < NAMES_MAXIMUM; i++) {
		const char *name = index_text(index, index->names[found->first_name + i].text);
		uint32_t at = name[plain_name_length(name)] ? 0 : count;
		memmove(list + at + 1, list + at, (count - at) * sizeof *list);
		list[at] = name;
		count++;
	}
	list[count] = NULL;
}

/*
 * Debug information is read by a thread of its own: that takes its time. Whoever comes second, the thread that is over or the request
 * that does not want it any more, finds the other's mark, and clears away.
 */
struct opening {
	struct module *module;
	pid_t pid;
	char path[sizeof ((struct module *)NULL)->file.path];
	const struct prototypes *prototypes;
	uint32_t *openings; /* function_traces' */
	struct plan_source *source; /* the thread's until `state` says that it is over */
	int state;		    /* atomic; enum opening_state */
};

enum opening_state { OPENING, OPENED, UNWANTED };

static void opening_free(struct opening *opening)
{
	plan_source_close(opening->source);
	free(opening);
}

static void *open_apart(void *argument)
{
	struct opening *opening = argument;
	uint32_t *openings = opening->openings;
	int before = OPENING;
	opening->source = plan_source_open(opening->pid, opening->path, opening->prototypes);
	/* Release: who sees it sees the source. Acquire: whoever does not want it is done with it. */
	if (!__atomic_compare_exchange_n(&opening->state, &before, OPENED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		opening_free(opening);
	/* Release: who sees it finds nothing of this thread's left. */
	__atomic_sub_fetch(openings, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void stop_opening(struct specifications *specifications)
{
	struct opening *opening = specifications->opening;
	int before = OPENING;
	specifications->opening = NULL;
	if (opening && !__atomic_compare_exchange_n(&opening->state, &before, UNWANTED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		opening_free(opening);
}

static struct opening *start_opening(const struct specifications *specifications, struct module *module)
{
	struct opening *opening = calloc(1, sizeof *opening);
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	if (!opening || pthread_attr_init(&attributes)) {
		free(opening);
		return NULL;
	}
	opening->module = module;
	opening->pid = module->pid;
	opening->prototypes = specifications->functions->prototypes;
	opening->openings = &specifications->functions->openings;
	memcpy(opening->path, module->file.path, sizeof opening->path);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	__atomic_add_fetch(opening->openings, 1, __ATOMIC_RELAXED);
	sigfillset(&all); /* signals are for the caller's own thread */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, &attributes, open_apart, opening);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!failed)
		return opening;
	__atomic_sub_fetch(opening->openings, 1, __ATOMIC_RELAXED);
	free(opening);
	return NULL;
}

/* Without it there are no names of arguments. */
static void take_opened(struct specifications *specifications, struct module *module, struct opening *opening)
{
	plan_source_close(specifications->source);
	specifications->source = opening ? opening->source : NULL;
	specifications->module = module;
	specifications->opening = NULL;
	free(opening);
}

int specifications_know(struct specifications *specifications, struct module *module)
{
	if (!specifications->is_condition || specifications->module == module)
		return 1;
	if (specifications->opening && specifications->opening->module != module)
		stop_opening(specifications);
	if (!specifications->opening && !(specifications->opening = start_opening(specifications, module))) {
		take_opened(specifications, module, NULL);
		return 1;
	}
	/* Acquire: pairs with the thread's release. */
	if (__atomic_load_n(&specifications->opening->state, __ATOMIC_ACQUIRE) != OPENED)
		return 0;
	take_opened(specifications, module, specifications->opening);
	return 1;
}

static struct specification *same_program(const struct specifications *specifications, const struct match_code *code)
{
	struct lorg_match_head *head = (struct lorg_match_head *)(void *)code->memory;
	for (uint32_t i = 0; i < specifications->count; i++) {
		const struct specification *known = specifications->list[i];
		head->number = (uint32_t)known->number; /* what else differs? */
		if (known->size == code->size && memcmp(known->program, code->memory, code->size) == 0)
			return specifications->list[i];
	}
	return NULL;
}

static int condition_for(struct specifications *specifications, struct module *module, uint32_t function, struct specification **result,
			 const char **why)
{
	const char *names[NAMES_MAXIMUM];
	struct match_code code = {0};
	const struct plan_index *index = module->answer.index;
	list_names(index, function, names);
	if (plan_source_condition(specifications->source, specifications->text, index->functions[function].offset, names, &code,
				  specifications->why, sizeof specifications->why)) {
		*why = specifications->why;
		return -1;
	}
	*result = same_program(specifications, &code);
	if (*result) {
		match_code_close(&code);
		return 0;
	}
	*why = "the condition becomes too many programs: name fewer functions";
	if (specifications->count == KINDS_MAXIMUM) {
		match_code_close(&code);
		return -1;
	}
	*why = "out of memory";
	*result = make(specifications->text, 1, &code, NULL, 0);
	if (!*result)
		return -1;
	if (keep(specifications, *result) == 0) {
		*why = NULL;
		return 0;
	}
	specification_release(*result);
	*result = NULL;
	return -1;
}

/* ---- the request's ----------------------------------------------------------------------- */

struct specifications *specifications_create(const struct specification_request *request, int *pending, char **why)
{
	struct specifications *specifications = calloc(1, sizeof *specifications);
	*pending = 0;
	*why = NULL;
	if (!specifications)
		return NULL;
	specifications->functions = request->functions;
	specifications->text = request->text;
	specifications->is_condition = request->is_condition;
	if (!request->text)
		return specifications;
	int failed = request->is_condition ? check_condition(request, why) : read_specification(specifications, request, pending, why);
	if (!failed)
		return specifications;
	specifications_free(specifications);
	return NULL;
}

void specifications_free(struct specifications *specifications)
{
	if (!specifications)
		return;
	for (uint32_t i = 0; i < specifications->count; i++)
		specification_release(specifications->list[i]);
	free(specifications->list);
	stop_opening(specifications);
	plan_source_close(specifications->source);
	free(specifications);
}

int specification_for(struct specifications *specifications, struct module *module, uint32_t function, struct specification **result,
		      const char **why)
{
	*result = NULL;
	if (!specifications->text)
		return 0;
	if (specifications->is_condition)
		return condition_for(specifications, module, function, result, why);
	*result = specifications->count ? specifications->list[0] : NULL;
	return 0;
}
