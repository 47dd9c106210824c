/* SPDX-License-Identifier: MIT */
/* functions.c: function/4 of the sessions. See functions.h and session.h. */
#include "collector/session/functions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collector/collect/clock.h"
#include "collector/collect/offers.h"
#include "collector/patch/patch.h"
#include "collector/plan/entry.h"
#include "collector/plan/kept.h"
#include "collector/term/printer.h"
#include "collector/value/value.h"
#include "preload/term/term.h"

enum {
	REFUSALS_NAMED = 64,	 /* functions of one request that are refused by name */
	MODULES_MAXIMUM = 16384, /* known at once: programs may ask for what they like */
	STANDING_MAXIMUM = 256,	 /* requests of one session */
};
static const uint64_t PROGRAMS_LIMIT_NS = 3000000000; /* so long an answer waits for programs */
static const uint64_t SWITCHES_LIMIT_NS = 500000000; /* and so long where threads could not be held in time */
static const uint64_t RESUMED_NS = 3000000000;
static const uint64_t PLANS_LIMIT_NS = 60000000000;
static const uint64_t PIECE_NS = 3000000; /* of one pass, for looking functions through */
static const uint64_t LOOK_STEP_NS = 500000000; /* modules that are mapped no more */
static const uint64_t END_LIMIT_NS = 300000000;	/* so long the end of a session waits for programs that cannot be held */

/* ---- modules --------------------------------------------------------------------- */

static int is_that_file(const struct mapped_module *one, const struct mapped_module *other)
{
	if (one->build_id_length || other->build_id_length)
		return one->build_id_length == other->build_id_length && memcmp(one->build_id, other->build_id, one->build_id_length) == 0;
	return strcmp(one->path, other->path) == 0;
}

struct module *functions_module_of(struct function_traces *functions, const struct mapped_module *file)
{
	struct module *module = functions->modules;
	while (module && !is_that_file(&module->file, file))
		module = module->next;
	return module;
}

int functions_module_is_called(const struct module *module, const char *name)
{
	return strcmp(module->file.name, name) == 0 || strcmp(module->file.file_name, name) == 0 ||
	       (module->file.alias[0] && strcmp(module->file.alias, name) == 0);
}

static struct module *add_module(struct function_traces *functions, const struct mapped_module *file)
{
	struct module *module = functions->module_count < MODULES_MAXIMUM ? calloc(1, sizeof *module) : NULL, **end = &functions->modules;
	if (!module)
		return NULL;
	functions->module_count++;
	module->file = *file;
	while (*end)
		end = &(*end)->next;
	*end = module;
	return module;
}

/* It was mapped nowhere. Whoever sees it first says so: the program that asks about it, or a look at all programs meanwhile. */
static void module_comes(struct function_traces *functions, struct module *module)
{
	module->loads = ++functions->loads;
	module->is_new = 1;
	functions->changes++;
}

struct looking {
	struct function_traces *functions;
	pid_t pid;
};

static void found_mapped(void *context, const struct mapped_module *file)
{
	struct looking *looking = context;
	struct module *module = functions_module_of(looking->functions, file);
	if (!module)
		module = add_module(looking->functions, file);
	if (!module)
		return;
	if (file->alias[0])
		memcpy(module->file.alias, file->alias, sizeof module->file.alias);
	if (module->mapped)
		return;
	module->mapped = 1;
	module->pid = looking->pid;
	if (!module->was_mapped)
		module_comes(looking->functions, module);
}

static void drop_module(struct function_traces *functions, struct module *module);

/* Those that are mapped no more, and were never planned. */
static void forget_modules(struct function_traces *functions)
{
	for (struct module **link = &functions->modules; *link;) {
		struct module *module = *link;
		if (module->mapped || module->is_planned || module->askers) {
			link = &module->next;
			continue;
		}
		*link = module->next;
		functions->module_count--;
		free(module);
	}
}

void functions_look(struct function_traces *functions)
{
	const struct family_context *context = functions->context;
	struct looking looking = {.functions = functions};
	for (struct module *module = functions->modules; module; module = module->next) {
		module->was_mapped = module->mapped;
		module->mapped = 0;
	}
	for (uint32_t i = 0; i < context->family_count; i++) {
		const struct family *family = context->families[i];
		for (uint32_t k = 0; k < family->image_room; k++) {
			if (!requests_may_switch(family->images[k]))
				continue;
			looking.pid = family->images[k]->pid;
			mapped_modules(functions->files, looking.pid, found_mapped, &looking);
		}
	}
	/* Behind a restart it takes a moment until it is known again who runs. */
	int is_sure = !functions->resumed_ns || clock_monotonic_ns() - functions->resumed_ns > RESUMED_NS;
	for (struct module *module = functions->modules; is_sure && module; module = module->next)
		if (!module->mapped && module->askers)
			drop_module(functions, module);
	forget_modules(functions);
}

static struct kept_name name_of_plan(enum kept_role role, uint64_t plan_id)
{
	struct kept_name name = {.role = role, .number = plan_id};
	memcpy(name.id, &plan_id, sizeof plan_id);
	memcpy(name.id + sizeof plan_id, &role, sizeof role);
	return name;
}

/* Before any program has it: its ids are good also after a restart. */
static void keep_plan(const struct function_traces *functions, struct module *module, const struct plan_request *of)
{
	const struct keeping *keeping = functions->context->arena_settings->keeping;
	const struct kept_name plan_name = name_of_plan(KEPT_PLAN, module->answer.plan_id);
	const struct kept_name index_name = name_of_plan(KEPT_INDEX, module->answer.plan_id);
	const struct memory plan = {.descriptor = module->answer.descriptor, .size = module->answer.size};
	struct memory index;
	if (!keeping || !module->answer.index || kept_index_write(module->answer.index, of, module->answer.plan_id, &index))
		return;
	keep_named(keeping, &plan_name, &plan);
	keep_named(keeping, &index_name, &index);
	memory_free(&index);
}

enum plan_state functions_plan(struct function_traces *functions, struct module *module)
{
	const struct plan_request request = {
		.pid = module->pid,
		.path = module->file.path,
		.build_id = module->file.build_id,
		.build_id_length = module->file.build_id_length,
	};
	if (module->is_planned && module->state != PLAN_PENDING)
		return module->state;
	module->is_planned = 1;
	module->state = plan_for(functions->planner, &request, &module->answer);
	if (module->state != PLAN_PENDING && module->answer.index)
		module->told = calloc(module->answer.index->count + 1ul, 1);
	if (module->state == PLAN_READY)
		keep_plan(functions, module, &request);
	return module->state;
}

/* ---- what is told of functions ------------------------------------------------------ */

static void tell_place(struct notes *notes, struct note *note, const struct module *module, uint32_t function, uint32_t place,
		       uint32_t tier)
{
	const struct plan_index *index = module->answer.index;
	const struct index_function *known = &index->functions[function];
	const struct index_name *name = known->name_count ? &index->names[known->first_name] : NULL;
	const char *text = name ? index_text(index, name->text) : NULL, *file = name ? index_text(index, name->file) : NULL;
	const struct plan_function_news news = {
		.function = module->answer.plan->first_function + place,
		.arity = known->arity == INDEX_ARITY_UNKNOWN ? UINT32_MAX : known->arity,
		.tier = tier,
		.flags = known->flags,
		.offset = known->offset,
		.size = known->size,
		.module = index->module,
		.name = text ? text : "",
		.file = file ? file : "",
		.build_id = module->answer.plan->build_id,
		.build_id_length = module->answer.plan->build_id_length,
	};
	if (place != INDEX_NONE)
		notes_hooked_function(notes, note, &news);
}

/* Readers know a function before the first event of it. */
static void tell_functions(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count)
{
	struct notes *notes = &functions->context->notes;
	struct note *note = NULL;
	for (uint32_t i = 0; module->told && i < count; i++) {
		const struct index_function *known = &module->answer.index->functions[list[i]];
		if (module->told[list[i]])
			continue;
		if (!note && !(note = notes_functions_begin(notes)))
			return;
		module->told[list[i]] = 1;
		tell_place(notes, note, module, list[i], known->code, 3);
		tell_place(notes, note, module, list[i], known->slots, 2);
	}
	if (note)
		notes_functions_end(notes, note);
}

/* ---- what sessions ask ------------------------------------------------------------------ */

static struct asked_module *asked_of(const struct session *session, const struct module *module)
{
	struct asked_module *asked = session->functions ? session->functions->modules : NULL;
	while (asked && asked->module != module)
		asked = asked->next;
	return asked;
}

static struct asked_module *asked_make(struct session *session, struct module *module)
{
	struct asked_module *asked = asked_of(session, module), **link = &module->askers;
	if (asked)
		return asked;
	if (!session->functions && !(session->functions = calloc(1, sizeof *session->functions)))
		return NULL;
	asked = calloc(1, sizeof *asked);
	if (asked)
		asked->functions = calloc(module->answer.index->count + 1ul, sizeof *asked->functions);
	if (!asked || !asked->functions) {
		free(asked);
		return NULL;
	}
	if (!module->askers)
		module->was_placed = 0;
	asked->session = session;
	asked->module = module;
	asked->next = session->functions->modules;
	session->functions->modules = asked;
	while (*link && (*link)->session->slot < session->slot)
		link = &(*link)->next_asker;
	asked->next_asker = *link;
	*link = asked;
	return asked;
}

static int asks_nothing(const struct asked_module *asked)
{
	for (uint32_t i = 0; i < asked->module->answer.index->count; i++)
		if (asked->functions[i].asked.kinds)
			return 0;
	return 1;
}

/* Nobody counts times or memory by process there any more. */
static void forget_counts(struct function_traces *functions, const struct module *module, uint32_t function)
{
	const uint32_t place = module->answer.index->functions[function].code;
	for (const struct asked_module *asker = module->askers; asker; asker = asker->next_asker)
		if (asker->functions[function].asked.kinds & (LORG_KIND_TIME | LORG_KIND_MEMORY))
			return;
	if (place != INDEX_NONE)
		counting_forget(functions->counting, module->answer.plan->first_function + place);
}

static void asked_free(struct function_traces *functions, struct asked_module *asked)
{
	struct module *module = asked->module;
	struct asked_module **link = &module->askers, **own = &asked->session->functions->modules;
	while (*link != asked)
		link = &(*link)->next_asker;
	*link = asked->next_asker;
	while (*own != asked)
		own = &(*own)->next;
	*own = asked->next;
	for (uint32_t i = 0; i < module->answer.index->count; i++) {
		struct asked_function *function = &asked->functions[i];
		int counted = function->counting != NULL;
		rules_end(&function->asked);
		session_counting_free(function->counting);
		if (counted)
			forget_counts(functions, module, i);
	}
	free(asked->functions);
	free(asked);
}

/* ---- whether programs are to ask ------------------------------------------------------------ */

static void put_asked(struct function_traces *functions, int asked)
{
	struct family_context *context = functions->context;
	functions->asked = asked;
	functions->sessions->functions_asked = (uint32_t)asked;
	for (uint32_t slot = 0; context->offers && slot < LORG_ARENA_OFFERS; slot++) {
		struct lorg_arena *arena = (struct lorg_arena *)context->offers->slot[slot].memory.at;
		if (arena)
			__atomic_store_n(&arena->functions_asked, (uint32_t)asked, __ATOMIC_RELAXED);
	}
	for (uint32_t i = 0; i < context->family_count; i++)
		__atomic_store_n(&family_arena(context->families[i])->functions_asked, (uint32_t)asked, __ATOMIC_RELAXED);
}

static int any_asks(const struct function_traces *functions)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = &functions->sessions->slot[slot];
		const struct session_functions *asked = session->used ? session->functions : NULL;
		if (asked && (asked->modules || asked->on_load.kinds || asked->standing))
			return 1;
	}
	return 0;
}

static void forget_globals(struct function_traces *functions);

static void see_whether_asked(struct function_traces *functions)
{
	int asked = any_asks(functions);
	functions->changes++;
	if (asked != functions->asked)
		put_asked(functions, asked);
	if (!asked)
		forget_globals(functions);
}

int function_traces_asked(const struct function_traces *functions)
{
	return functions->asked;
}

/* ---- refusals of one request ------------------------------------------------------------------ */

struct refusals {
	FILE *to;
	char *text;
	size_t size;
	uint32_t named, unnamed;
};

static void print_atom(FILE *to, const char *text)
{
	char *quoted = lorg_atom_quoted(text, strlen(text));
	fputs(quoted ? quoted : "'?'", to);
	free(quoted);
}

static void print_string(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', to);
		fputc(*text, to);
	}
	fputc('"', to);
}

/* arity -1: any. */
static void print_function(FILE *to, const char *module, const char *function, int64_t arity)
{
	fputc('{', to);
	print_atom(to, module ? module : "_");
	fputc(',', to);
	print_atom(to, function ? function : "_");
	if (arity < 0)
		fputs(",'_'}", to);
	else
		fprintf(to, ",%" PRIi64 "}", arity);
}

static void refuse_text(struct refusals *refusals, const char *module, const char *function, int64_t arity, const char *why)
{
	if (!refusals->to)
		return;
	fputs(ftell(refusals->to) > 1 ? ",{" : "{", refusals->to);
	print_function(refusals->to, module, function, arity);
	fputc(',', refusals->to);
	print_string(refusals->to, why);
	fputc('}', refusals->to);
}

static void refuse(struct refusals *refusals, const struct module *module, uint32_t function, const char *why)
{
	char place[32];
	const struct plan_index *index = module->answer.index;
	const uint8_t arity = index->functions[function].arity;
	const char *name = index_function_name(index, function, place);
	/* No atom: its place is as good a name. */
	if (strlen(name) > LORG_ATOM_CHARACTERS_MAX)
		name = index_function_place(index, function, place);
	if (refusals->named++ < REFUSALS_NAMED)
		refuse_text(refusals, module->file.name, name,
			    arity == INDEX_ARITY_UNKNOWN ? -1 : arity, why);
}

static void refusals_begin(struct refusals *refusals)
{
	*refusals = (struct refusals){0};
	refusals->to = open_memstream(&refusals->text, &refusals->size);
	if (refusals->to)
		fputc('[', refusals->to);
}

/* The text, to be freed; NULL: no memory. */
static char *refusals_end(struct refusals *refusals)
{
	char more[64];
	if (!refusals->to)
		return NULL;
	if (refusals->named > REFUSALS_NAMED) {
		snprintf(more, sizeof more, "%u more functions cannot be hooked", refusals->named - REFUSALS_NAMED);
		refuse_text(refusals, NULL, NULL, -1, more);
	}
	fputc(']', refusals->to);
	fclose(refusals->to);
	return refusals->text;
}

/* ---- which modules and functions a request means ------------------------------------------------ */

static int names_module(const struct waiting *waiting, const struct module *module)
{
	const struct function_request *request = &waiting->request;
	if (request->pattern)
		return pattern_matches_module(&waiting->pattern, module->file.file_name, module->file.name, module->file.path) ||
		       (module->file.alias[0] && pattern_matches_module(&waiting->pattern, module->file.alias, NULL, NULL));
	return !request->module || functions_module_is_called(module, request->module);
}

/* A number of arguments that is not known is taken as said, for a function that is named. */
static int has_arity(const struct index_function *function, int64_t arity, int is_named)
{
	return arity < 0 || function->arity == arity || (function->arity == INDEX_ARITY_UNKNOWN && is_named);
}

static int names_function(const struct waiting *waiting, const struct module *module, uint32_t function)
{
	const struct function_request *request = &waiting->request;
	const struct plan_index *index = module->answer.index;
	if (request->pattern)
		return has_arity(&index->functions[function], waiting->pattern.arity, glob_is_literal(waiting->pattern.function)) &&
		       index_matches(index, function, &waiting->pattern);
	if (!request->function)
		return 1;
	return has_arity(&index->functions[function], request->arity, 1) && index_is_called(index, function, request->function);
}

/* Why it cannot be traced so; NULL: it can. "": it is not meant at all. */
static const char *obstacle(const struct index_function *function, uint32_t kinds, int is_named)
{
	static const char no_symbol[] = "it is in no dynamic symbol table: no call to it passes a slot";
	if (kinds & LORG_KIND_GLOBAL)
		return function->slots != INDEX_NONE ? NULL : is_named ? no_symbol : "";
	return function->code != INDEX_NONE ? NULL : refusal_text((enum refusal)function->refusal);
}

static int is_named(const struct waiting *waiting)
{
	return waiting->request.pattern ? glob_is_literal(waiting->pattern.function) : waiting->request.function != NULL;
}

/* ---- one function -------------------------------------------------------------------------------- */

/* One request on one module. */
struct applying {
	struct function_traces *functions;
	struct waiting *waiting;
	struct session *session;
	struct module *module;
	struct asked_module *asked; /* NULL: nothing is asked yet */
	struct counted_list counted; /* of the module, as of now; read when it is needed first */
	int has_counted;
	uint32_t *changed, change_count; /* places in the index */
	uint64_t tick;
};

static const struct counted_list *counted_now(struct applying *applying)
{
	const struct lorg_plan *plan = applying->module->answer.plan;
	if (!applying->has_counted)
		counting_read(applying->functions->counting, applying->functions->context, plan->first_function,
			      plan->first_function + plan->function_count, &applying->counted);
	applying->has_counted = 1;
	return &applying->counted;
}

/* What lean events are the session's by. */
static void note_span(struct asked_function *function, uint64_t tick)
{
	uint32_t kind = function->asked.kinds & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL);
	int is_lean = kind && !function->asked.match;
	if (is_lean && (function->until != UINT64_MAX || function->since_kind != kind)) {
		function->since = tick;
		function->until = UINT64_MAX;
		function->since_kind = kind;
	} else if (!is_lean && function->until == UINT64_MAX) {
		function->until = tick;
	}
}

static int64_t arity_of(const struct waiting *waiting)
{
	return waiting->request.pattern ? waiting->pattern.arity : waiting->request.arity;
}

/* Who says how many arguments a function has of which nobody knows it, gets as many words. */
static void declare(struct asked_function *function, const struct index_function *known, const struct waiting *waiting, uint32_t kinds)
{
	const int64_t arity = waiting ? arity_of(waiting) : -1;
	const uint8_t declared = known->arity == INDEX_ARITY_UNKNOWN && arity >= 0 && arity <= LORG_CAPTURES ? (uint8_t)(arity + 1) : 0;
	if (kinds & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL))
		function->declared = declared;
	if (kinds & LORG_KIND_META)
		function->meta_declared = declared;
}

static void apply_to(struct applying *applying, uint32_t index, uint32_t kinds, enum function_how how, struct specification *match)
{
	struct asked_function *function = &applying->asked->functions[index];
	if (how == FUNCTION_SET)
		declare(function, &applying->module->answer.index->functions[index], applying->waiting, kinds);
	struct rules_effect effect = rules_apply(&function->asked, kinds, how, match);
	if (effect.zeroed | effect.stopped | effect.ended)
		counting_change(applying->functions, applying->asked, index, &effect,
				effect.zeroed | effect.stopped ? counted_now(applying) : NULL);
	note_span(function, applying->tick);
	applying->changed[applying->change_count++] = index;
}

/* ---- looking functions through, a piece at a time ---------------------------------------------- */

/* One more that counts. */
static int keep_found(struct found *found, uint32_t index, struct specification *match)
{
	if (found->count == found->room) {
		const uint32_t room = found->room ? 2 * found->room : 64;
		struct found_function *more = realloc(found->list, room * sizeof *more);
		if (!more)
			return -1;
		found->list = more;
		found->room = room;
	}
	found->list[found->count++] = (struct found_function){index, match};
	return 0;
}

static void examine(struct waiting *waiting, struct found *found, uint32_t index)
{
	const struct function_request *request = &waiting->request;
	const struct index_function *function = &found->module->answer.index->functions[index];
	struct specification *match = NULL;
	if (!names_function(waiting, found->module, index))
		return;
	const char *why = obstacle(function, request->kinds, is_named(waiting));
	if (why && !*why)
		return;
	if (request->how == FUNCTION_SET && !why)
		specification_for(waiting->specifications, found->module, index, &match, &why);
	if (request->how == FUNCTION_SET && why)
		refuse(waiting->refusals, found->module, index, why);
	else if (keep_found(found, index, match))
		refuse(waiting->refusals, found->module, index, "out of memory");
}

static struct found *found_in(struct waiting *waiting, struct module *module)
{
	struct found *found = waiting->found;
	while (found && found->module != module)
		found = found->next;
	/* It has gone and come again: all is still to be applied. */
	if (found && found->loads != module->loads) {
		found->loads = module->loads;
		found->applied = 0;
		found->is_applied = 0;
	}
	if (found || !(found = calloc(1, sizeof *found)))
		return found;
	found->module = module;
	found->loads = module->loads;
	found->next = waiting->found;
	waiting->found = found;
	return found;
}

/* A name of C++ takes its time, a condition its own: others are not kept waiting for all of them. 1: done. */
static int look_through(struct waiting *waiting, struct module *module, uint64_t until_ns)
{
	enum { AT_ONCE = 64 };
	struct found *found = found_in(waiting, module);
	const struct plan_index *index = module->answer.index;
	if (!found)
		return 1;
	if (found->at < index->count && !specifications_know(waiting->specifications, module))
		return 0;
	while (found->at < index->count && clock_monotonic_ns() < until_ns)
		for (uint32_t end = found->at + AT_ONCE; found->at < end && found->at < index->count; found->at++)
			examine(waiting, found, found->at);
	return found->at == index->count;
}

static void forget_found(struct waiting *waiting)
{
	while (waiting->found) {
		struct found *found = waiting->found;
		waiting->found = found->next;
		free(found->list);
		free(found);
	}
	specifications_free(waiting->specifications);
	waiting->specifications = NULL;
	if (waiting->refusals)
		free(refusals_end(waiting->refusals));
	free(waiting->refusals);
	waiting->refusals = NULL;
}

/* ---- carrying out -------------------------------------------------------------------------------- */

/* Returns 1 if the function counts. */
static int consider(struct applying *applying, const struct found_function *found)
{
	const struct function_request *request = &applying->waiting->request;
	const uint32_t index = found->index;
	const char *why = obstacle(&applying->module->answer.index->functions[index], request->kinds, 1);
	if (!why && (request->how == FUNCTION_SET || (applying->asked && applying->asked->functions[index].asked.kinds)))
		apply_to(applying, index, request->kinds, request->how, found->match);
	return 1;
}

/* Nothing switches yet: a program is held once for all. */
static int64_t apply_piece(struct applying *applying, struct found *found, uint32_t count)
{
	int64_t number = 0;
	applying->changed = calloc(count + 1ul, sizeof *applying->changed);
	applying->change_count = 0;
	for (uint32_t i = 0; applying->changed && i < count; i++)
		number += consider(applying, &found->list[found->applied + i]);
	if (applying->changed) {
		tell_functions(applying->functions, applying->module, applying->changed, applying->change_count);
		functions_set(applying->functions, applying->module, applying->changed, applying->change_count);
	}
	found->applied += count;
	free(applying->changed);
	counted_list_free(&applying->counted);
	applying->counted = (struct counted_list){0};
	applying->has_counted = 0;
	return number;
}

static void end_applying(struct applying *applying, struct found *found)
{
	static const uint32_t none;
	functions_publish(applying->functions, applying->module, &none, 0);
	if (applying->asked && asks_nothing(applying->asked))
		asked_free(applying->functions, applying->asked);
	if (found->is_first && applying->module->askers)
		applying->functions->epoch++;
	found->is_applied = 1;
}

/* 1: done. It may have been unmapped meanwhile, and what was asked of it has gone with it. */
static int apply_on_module(struct applying *applying, struct found *found, uint64_t until_ns)
{
	enum { AT_ONCE = 1024 };
	const int sets = applying->waiting->request.how == FUNCTION_SET;
	applying->asked = asked_of(applying->session, applying->module);
	if (!found->applied)
		found->is_first = !applying->module->askers || found->needs_slots ||
				  (applying->waiting->request.kinds & LORG_KIND_GLOBAL);
	if (!applying->asked && sets && !found->applied)
		applying->asked = asked_make(applying->session, applying->module);
	if (!applying->asked && sets) {
		found->is_applied = 1;
		return 1;
	}
	while (found->applied < found->count) {
		const uint32_t left = found->count - found->applied;
		applying->waiting->number += apply_piece(applying, found, left < AT_ONCE ? left : AT_ONCE);
		if (found->applied < found->count && clock_monotonic_ns() >= until_ns)
			return 0;
	}
	end_applying(applying, found);
	return 1;
}

static void apply_on_load(struct session *session, const struct waiting *waiting, struct specification *match)
{
	if (!session->functions && !(session->functions = calloc(1, sizeof *session->functions)))
		return;
	if (!session->functions->on_load.kinds)
		session->functions->on_load_since = waiting->loads;
	rules_apply(&session->functions->on_load, waiting->request.kinds, waiting->request.how, match);
}

/* 1: done. */
static int carry_out_on(struct function_traces *functions, struct waiting *waiting, struct session *session, struct module *module,
			uint64_t until_ns)
{
	struct applying applying = {
		.functions = functions,
		.waiting = waiting,
		.session = session,
		.module = module,
		.tick = clock_tick(&functions->context->clock),
	};
	struct found *found = found_in(waiting, module);
	return !found || found->is_applied || apply_on_module(&applying, found, until_ns);
}

static void refuse_modules(struct function_traces *functions, const struct waiting *waiting)
{
	struct refusals *refusals = waiting->refusals;
	uint32_t modules = 0;
	for (struct module *module = functions->modules; module; module = module->next) {
		if (!module->mapped || !names_module(waiting, module))
			continue;
		modules++;
		if (module->state != PLAN_READY && !module->answer.index && waiting->request.module)
			refuse_text(refusals, module->file.name, NULL, -1,
				    module->answer.why ? module->answer.why : "it has no functions that can be hooked");
	}
	if (!modules && (waiting->request.module || waiting->request.pattern))
		refuse_text(refusals, waiting->request.pattern ? waiting->request.pattern : waiting->request.module, waiting->request.function,
			    waiting->request.arity, "the module is mapped by no program that is attached");
}

/* Everything that it names is found. 1: done. */
static int carry_out(struct function_traces *functions, struct waiting *waiting, struct session *session, uint64_t until_ns)
{
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->mapped && names_module(waiting, module) && module->state == PLAN_READY &&
		    !carry_out_on(functions, waiting, session, module, until_ns))
			return 0;
	refuse_modules(functions, waiting);
	return 1;
}

/* ---- slots ---------------------------------------------------------------------------------------- */

/* The slots that lead to a function are other modules': those that may have some need plans, too. */

static void add_global(struct function_traces *functions, const char *name)
{
	for (uint32_t i = 0; i < functions->global_count; i++)
		if (strcmp(functions->globals[i], name) == 0)
			return;
	if (functions->global_count == functions->global_room) {
		uint32_t room = functions->global_room ? 2 * functions->global_room : 16;
		char **more = realloc(functions->globals, room * sizeof *more);
		if (!more) {
			functions->all_globals = 1;
			return;
		}
		functions->globals = more;
		functions->global_room = room;
	}
	char *copy = strdup(name);
	functions->names_asked++;
	if (copy)
		functions->globals[functions->global_count++] = copy;
	else
		functions->all_globals = 1;
}

static void forget_globals(struct function_traces *functions)
{
	for (uint32_t i = 0; i < functions->global_count; i++)
		free(functions->globals[i]);
	functions->global_count = 0;
	functions->names_asked++;
	functions->all_globals = 0;
	for (struct module *module = functions->modules; module; module = module->next)
		module->has_slots = 0;
}

/*
 * Of libc's, whose work liblorg.so's wrapper does itself or by another one (preload/patch/wrapped.c): a program's calls never
 * come to the entry, and are told at its slots, also where the function is traced at its entry.
 */
static int is_done_by_wrapper(const struct module *module, const struct index_function *function)
{
	static const char names[][8] = {"vfork", "__vfork", "execv", "execvp", "execl", "execle", "execlp"};
	const struct plan_index *index = module->answer.index;
	if (strcmp(module->file.name, "libc.so.6") != 0)
		return 0;
	for (uint32_t k = 0; k < function->name_count; k++)
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (strcmp(index_text(index, index->names[function->first_name + k].text), names[i]) == 0)
				return 1;
	return 0;
}

/* 1: a function that is traced so is told at slots. */
static int note_slots(struct function_traces *functions, const struct module *module, uint32_t function, uint32_t kinds)
{
	const struct plan_index *index = module->answer.index;
	const struct index_function *named = &index->functions[function];
	if (named->slots == INDEX_NONE || (!(kinds & LORG_KIND_GLOBAL) && !is_done_by_wrapper(module, named)))
		return 0;
	for (uint32_t i = 0; i < named->name_count; i++)
		add_global(functions, index_text(index, index->names[named->first_name + i].text));
	return 1;
}

static void note_found_slots(struct function_traces *functions, struct found *found, uint32_t kinds)
{
	for (uint32_t i = 0; i < found->count; i++)
		found->needs_slots |= note_slots(functions, found->module, found->list[i].index, kinds);
}

/* 1: its slots are known, or there are none. */
static int slots_are_known(struct function_traces *functions, struct module *module)
{
	if (!functions->all_globals && !functions->global_count)
		return 1;
	if (!module->has_slots && functions->all_globals)
		module->has_slots = 1;
	if (!module->has_slots && module->names_seen != functions->names_asked) {
		module->has_slots = mapped_file_names(module->pid, module->file.path, (const char *const *)functions->globals,
						      functions->global_count);
		module->names_seen = functions->names_asked;
	}
	return !module->has_slots || functions_plan(functions, module) != PLAN_PENDING;
}

/* For a request whose own functions are found. 1: all that it needs is known. */
static int callers_are_known(struct function_traces *functions, const struct waiting *waiting, uint64_t until_ns)
{
	int known = 1, is_global = (waiting->request.kinds & LORG_KIND_GLOBAL) != 0, need_slots = is_global;
	if (waiting->request.how != FUNCTION_SET)
		return 1;
	functions->all_globals |= is_global && !is_named(waiting);
	for (struct found *found = waiting->found; found && (is_named(waiting) || !is_global); found = found->next) {
		note_found_slots(functions, found, waiting->request.kinds);
		need_slots |= found->needs_slots;
	}
	if (!need_slots)
		return 1;
	for (struct module *module = functions->modules; module; module = module->next) {
		if (module->mapped)
			known &= slots_are_known(functions, module);
		if (module->next && clock_monotonic_ns() >= until_ns)
			return 0;
	}
	return known;
}

/* ---- requests ------------------------------------------------------------------------------------ */

static void waiting_free(struct waiting *waiting)
{
	forget_found(waiting);
	pattern_free(&waiting->pattern);
	free(waiting->texts);
	free(waiting->refused);
	free(waiting);
}

static void answer(struct waiting *waiting, const char *badarg)
{
	if (waiting->done)
		waiting->done(waiting->context, badarg ? -1 : waiting->number, waiting->refused ? waiting->refused : "[]", badarg);
}

/* Programs that cannot be reached, behind the functions. */
static void add_program_refusals(struct function_traces *functions, struct waiting *waiting)
{
	size_t length = waiting->refused ? strlen(waiting->refused) : 0, size;
	char *text = NULL;
	FILE *to = length && waiting->request.how == FUNCTION_SET && functions->placing ? open_memstream(&text, &size) : NULL;
	if (!to)
		return;
	waiting->refused[length - 1] = 0; /* the bracket */
	fputs(waiting->refused, to);
	placing_refusals(functions, to);
	fputc(']', to);
	fclose(to);
	if (!text)
		return;
	if (length == 2 && text[1] == ',')
		memmove(text + 1, text + 2, strlen(text + 1));
	free(waiting->refused);
	waiting->refused = text;
}

/* One that has started since the request was carried out asks for all of it by itself. */
static int is_behind_request(const struct function_traces *functions, const struct image *image, const struct waiting *waiting)
{
	if (!requests_may_switch(image) || image->functions_epoch >= waiting->epoch)
		return 0;
	return image->start_tick <= waiting->tick || !placing_asks_by_itself(functions, image);
}

/* Programs that run are to get what is asked first: their stubs, and the bytes that lead to them. */
static int programs_are_behind(const struct function_traces *functions, const struct waiting *waiting, uint64_t now_ns)
{
	const struct family_context *context = functions->context;
	int switching = 0;
	for (uint32_t i = 0; i < context->family_count; i++) {
		const struct family *family = context->families[i];
		switching |= requests_are_switching(family->requests);
		for (uint32_t k = 0; k < family->image_room; k++)
			if (is_behind_request(functions, family->images[k], waiting))
				return 1;
	}
	return switching && now_ns - waiting->since_ns < SWITCHES_LIMIT_NS;
}

/* Plans of all that it names: 1: all there. */
static int plans_are_there(struct function_traces *functions, const struct waiting *waiting)
{
	int there = 1;
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->mapped && names_module(waiting, module))
			there &= functions_plan(functions, module) != PLAN_PENDING;
	return there;
}

/* 1: it is compiled. -1: it is wrong: *why, to be freed; NULL: no memory. 0: not yet. */
static int begin_looking(struct function_traces *functions, struct waiting *waiting, char **why)
{
	const struct function_request *request = &waiting->request;
	const struct specification_request wanted = {functions, request->match, request->is_condition};
	int pending = 0;
	*why = NULL;
	if (waiting->specifications)
		return 1;
	waiting->specifications = specifications_create(&wanted, &pending, why);
	if (!waiting->specifications)
		return pending && !*why ? 0 : -1;
	free(*why);
	*why = NULL;
	waiting->refusals = calloc(1, sizeof *waiting->refusals);
	if (!waiting->refusals)
		return -1;
	refusals_begin(waiting->refusals);
	return 1;
}

/* All that it names is planned. 1: all is found. */
static int look_through_all(struct function_traces *functions, struct waiting *waiting, uint64_t until_ns)
{
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->mapped && names_module(waiting, module) && module->state == PLAN_READY &&
		    !look_through(waiting, module, until_ns))
			return 0;
	return 1;
}

static void carry_out_on_load(struct function_traces *functions, struct waiting *waiting, struct session *session)
{
	const struct function_request *request = &waiting->request;
	struct specification *match = NULL;
	const char *none;
	functions->all_globals |= request->how == FUNCTION_SET && (request->kinds & LORG_KIND_GLOBAL);
	if (request->match)
		specification_for(waiting->specifications, NULL, 0, &match, &none);
	apply_on_load(session, waiting, match);
}

/* 1: done with the first half. -1: it was wrong, and has been answered. 0: not yet. */
static int begin_carrying_out(struct function_traces *functions, struct waiting *waiting, struct session *session)
{
	const uint64_t until_ns = clock_monotonic_ns() + PIECE_NS;
	const int on_load = waiting->request.on_load;
	char *why;
	if (!on_load && !plans_are_there(functions, waiting))
		return 0;
	int begun = begin_looking(functions, waiting, &why);
	if (begun < 0)
		answer(waiting, why ? why : "out of memory");
	free(why);
	if (begun <= 0)
		return begun;
	if (!on_load && !(look_through_all(functions, waiting, until_ns) && callers_are_known(functions, waiting, until_ns)))
		return 0;
	if (on_load)
		carry_out_on_load(functions, waiting, session);
	else if (!carry_out(functions, waiting, session, until_ns))
		return 0;
	waiting->refused = refusals_end(waiting->refusals);
	*waiting->refusals = (struct refusals){0};
	forget_found(waiting);
	see_whether_asked(functions);
	functions_set_gates(functions, session);
	return 1;
}

/* 1: it has been answered. */
static int go_on(struct function_traces *functions, struct waiting *waiting, uint64_t now_ns)
{
	struct session *session = session_numbered(functions->sessions, waiting->session);
	if (!session) {
		answer(waiting, "the session is no more");
		return 1;
	}
	if (waiting->state == WAITING_PLANS) {
		int begun = begin_carrying_out(functions, waiting, session);
		if (begun == 0 && now_ns - waiting->since_ns > PLANS_LIMIT_NS)
			answer(waiting, "a module could not be looked through in time");
		if (begun <= 0)
			return begun < 0 || now_ns - waiting->since_ns > PLANS_LIMIT_NS;
		waiting->state = WAITING_PROGRAMS;
		waiting->since_ns = now_ns;
		waiting->epoch = functions->epoch;
		waiting->tick = clock_tick(&functions->context->clock);
		placing_pass(functions, now_ns);
	}
	if (programs_are_behind(functions, waiting, now_ns) && now_ns - waiting->since_ns < PROGRAMS_LIMIT_NS)
		return 0;
	add_program_refusals(functions, waiting);
	answer(waiting, NULL);
	return 1;
}

/* ---- requests that stand ----------------------------------------------------------------------------- */

static int is_same_text(const char *one, const char *other)
{
	return one == other || (one && other && strcmp(one, other) == 0);
}

/* Whether all that the other names is named by this one: as far as their texts show it. */
static int covers(const struct function_request *request, const struct function_request *other)
{
	if (request->pattern || other->pattern)
		return is_same_text(request->pattern, other->pattern) && !request->module && !other->module;
	return (!request->module || is_same_text(request->module, other->module)) &&
	       (!request->function || is_same_text(request->function, other->function)) &&
	       (request->arity < 0 || request->arity == other->arity);
}

static void remove_standing(struct session_functions *asked, struct waiting **link)
{
	struct waiting *standing = *link;
	*link = standing->next;
	asked->standing_count--;
	waiting_free(standing);
}

/* What a request ends, or replaces, of those that stand. */
static void end_standing(struct session *session, const struct function_request *request)
{
	struct session_functions *asked = session->functions;
	if (!asked || request->on_load || (request->how != FUNCTION_CLEAR && !request->standing))
		return;
	for (struct waiting **link = &asked->standing; *link;) {
		struct function_request *stands = &(*link)->request;
		if (covers(request, stands) && (request->how == FUNCTION_CLEAR || covers(stands, request)))
			stands->kinds &= ~request->kinds;
		if (stands->kinds)
			link = &(*link)->next;
		else
			remove_standing(asked, link);
	}
}

/* It has been answered. Takes it over. */
static void finish(struct function_traces *functions, struct waiting *waiting)
{
	functions->changes++;
	struct session *session = waiting->state == WAITING_PROGRAMS ? session_numbered(functions->sessions, waiting->session) : NULL;
	int stands = session && waiting->request.standing && waiting->request.how == FUNCTION_SET && !waiting->request.on_load;
	if (session)
		end_standing(session, &waiting->request);
	if (stands && !session->functions)
		session->functions = calloc(1, sizeof *session->functions);
	if (!stands || !session->functions || session->functions->standing_count == STANDING_MAXIMUM) {
		waiting_free(waiting);
		return;
	}
	struct waiting **end = &session->functions->standing;
	while (*end)
		end = &(*end)->next;
	waiting->next = NULL;
	waiting->done = NULL;
	*end = waiting;
	session->functions->standing_count++;
	see_whether_asked(functions);
}

static int copy_texts(struct waiting *waiting, const struct function_request *request)
{
	const char *const from[] = {request->module, request->function, request->pattern, request->match};
	const char **const to[] = {&waiting->request.module, &waiting->request.function, &waiting->request.pattern, &waiting->request.match};
	size_t size = 1;
	for (int i = 0; i < 4; i++)
		size += from[i] ? strlen(from[i]) + 1 : 0;
	char *at = waiting->texts = malloc(size);
	for (int i = 0; at && i < 4; i++) {
		*to[i] = NULL;
		if (!from[i])
			continue;
		*to[i] = at;
		at = stpcpy(at, from[i]) + 1;
	}
	return waiting->texts ? 0 : -1;
}

static const char *check(const struct function_request *request, struct waiting *waiting)
{
	struct pattern_error error;
	const char *why = rules_check(request);
	if (why)
		return why;
	if (request->on_load && request->is_condition)
		return "a condition is for functions that are known: give a match specification for on_load";
	if (request->pattern && pattern_parse(request->pattern, &waiting->pattern, &error))
		return error.why;
	return NULL;
}

/* A request that waits for a plan holds up those of its session behind it: they may be about the same functions. */
static int has_to_wait(const struct waiting *first, const struct waiting *waiting)
{
	for (const struct waiting *before = first; before && before != waiting; before = before->next)
		if (before->session == waiting->session && before->state == WAITING_PLANS)
			return 1;
	return 0;
}

void session_function(struct sessions *sessions, struct session *session, const struct function_request *request, function_done *done,
		      void *context)
{
	struct function_traces *functions = sessions->functions;
	struct waiting *waiting = calloc(1, sizeof *waiting), **end = &functions->waiting;
	const char *why = NULL;
	if (waiting) {
		waiting->request = *request;
		if (!(waiting->request.kinds & (RULES_TRACES | RULES_COUNTERS)))
			waiting->request.kinds |= LORG_KIND_GLOBAL;
		waiting->request.kinds &= RULES_TRACES | RULES_COUNTERS;
		why = check(&waiting->request, waiting);
	}
	if (!waiting || why || copy_texts(waiting, request)) {
		done(context, -1, "[]", why ? why : "out of memory");
		if (waiting)
			waiting_free(waiting);
		return;
	}
	waiting->session = session->number;
	waiting->done = done;
	waiting->context = context;
	waiting->since_ns = clock_monotonic_ns();
	functions_look(functions);
	waiting->loads = functions->loads;
	while (*end)
		end = &(*end)->next;
	if (!has_to_wait(functions->waiting, waiting) && go_on(functions, waiting, waiting->since_ns)) {
		finish(functions, waiting);
		return;
	}
	*end = waiting;
}

void session_function_abandon(struct sessions *sessions, void *context)
{
	for (struct waiting *waiting = sessions->functions->waiting; waiting; waiting = waiting->next)
		if (waiting->context == context)
			waiting->done = NULL;
}

/* ---- modules that go ------------------------------------------------------------------------------ */

/* What is asked of it goes with it. */
static void drop_module(struct function_traces *functions, struct module *module)
{
	for (const struct asked_module *asked = module->askers; asked; asked = asked->next_asker)
		for (uint32_t i = 0; i < module->answer.index->count; i++)
			rules_end(&asked->functions[i].asked);
	functions_publish(functions, module, NULL, 0);
	while (module->askers) {
		struct session *session = module->askers->session;
		asked_free(functions, module->askers);
		functions_set_gates(functions, session);
	}
	module->was_placed = 0;
	module->answered_count = 0;
}

static int is_placed_anywhere(const struct function_traces *functions, const struct module *module)
{
	const struct family_context *context = functions->context;
	for (uint32_t i = 0; i < context->family_count; i++) {
		const struct family *family = context->families[i];
		uint64_t placements = family_arena(family)->placements;
		for (uint32_t k = 0; k < family->image_room; k++)
			if (requests_may_switch(family->images[k]) &&
			    patch_is_placed(family->images[k]->pid, placements, module->answer.plan_id, UINT64_MAX) == 1)
				return 1;
	}
	return 0;
}

static int was_answered(const struct module *module, const struct image *image)
{
	for (uint32_t i = 0; image && i < module->answered_count && i < MODULE_IMAGES; i++)
		if (memcmp(module->answered[i], image->id, sizeof image->id) == 0)
			return 1;
	return 0;
}

static void note_answered(struct module *module, const struct image *image)
{
	if (image && !was_answered(module, image))
		memcpy(module->answered[module->answered_count++ % MODULE_IMAGES], image->id, sizeof image->id);
}

/* It was mapped by nobody, and is again: nobody has looked in between. */
static int has_come_again(const struct function_traces *functions, const struct module *module, const struct image *image)
{
	return (module->was_placed || was_answered(module, image)) && module->state == PLAN_READY && !is_placed_anywhere(functions, module);
}

/* ---- what programs ask -------------------------------------------------------------------------- */

/* What is asked of modules that come: of all sessions. Returns 1 if it is done, or none asks. */
static int ask_newcomer(struct function_traces *functions, struct module *module);

static enum plan_state plan_asked_for(void *owner, struct family *family, struct image *image, const struct plan_request *request,
				      uint64_t base, struct plan_answer *answer_to)
{
	struct function_traces *functions = owner;
	struct mapped_module file = {.build_id_length = request->build_id_length < 20 ? request->build_id_length : 20, .base = base};
	*answer_to = (struct plan_answer){.descriptor = -1};
	if (planner_leaves_alone(request->path) || functions_of_another(family))
		return PLAN_NONE;
	memcpy(file.build_id, request->build_id, file.build_id_length);
	snprintf(file.path, sizeof file.path, "%s", request->path);
	const char *slash = strrchr(file.path, '/');
	snprintf(file.file_name, sizeof file.file_name, "%.127s", slash ? slash + 1 : file.path);
	memcpy(file.name, file.file_name, sizeof file.name);
	struct module *module = functions_module_of(functions, &file);
	if (!module && !(module = add_module(functions, &file)))
		return PLAN_NONE;
	if (!module->mapped) {
		module->pid = request->pid;
		module->mapped = 1;
		module_comes(functions, module);
	}
	if (module->askers && has_come_again(functions, module, image)) {
		drop_module(functions, module);
		module_comes(functions, module);
	}
	if (module->is_new && !ask_newcomer(functions, module))
		return PLAN_PENDING;
	if (!slots_are_known(functions, module))
		return PLAN_PENDING;
	if ((!module->askers && !module->has_slots) || functions_plan(functions, module) == PLAN_NONE)
		return PLAN_NONE;
	if (module->state == PLAN_READY) {
		*answer_to = module->answer;
		note_answered(module, image);
	}
	return module->state;
}

static void load_for(struct function_traces *functions, struct module *module, struct session *session)
{
	const struct asked *on_load = &session->functions->on_load;
	const uint32_t calls = on_load->kinds & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL);
	const struct plan_index *index = module->answer.index;
	struct applying applying = {.functions = functions, .session = session, .module = module,
		.tick = clock_tick(&functions->context->clock)};
	applying.asked = asked_make(session, module);
	applying.changed = calloc(3ul * index->count + 1, sizeof *applying.changed);
	for (uint32_t i = 0; applying.asked && applying.changed && i < index->count; i++) {
		if (obstacle(&index->functions[i], on_load->kinds, 0))
			continue;
		if (calls)
			apply_to(&applying, i, calls, FUNCTION_SET, on_load->match);
		if (on_load->kinds & LORG_KIND_META)
			apply_to(&applying, i, LORG_KIND_META, FUNCTION_SET, on_load->meta_match);
		if (on_load->kinds & RULES_COUNTERS)
			apply_to(&applying, i, on_load->kinds & RULES_COUNTERS, FUNCTION_SET, NULL);
		if (on_load->paused)
			apply_to(&applying, i, on_load->paused, FUNCTION_PAUSE, NULL);
	}
	if (applying.changed) {
		tell_functions(functions, module, applying.changed, applying.change_count);
		functions_publish(functions, module, applying.changed, applying.change_count);
	}
	if (applying.asked && asks_nothing(applying.asked))
		asked_free(functions, applying.asked);
	free(applying.changed);
	counted_list_free(&applying.counted);
	functions_set_gates(functions, session);
}

/* Functions that a standing request names and that cannot be hooked: nobody waits for an answer that would say so. */
static void tell_refused(struct function_traces *functions, struct module *module, const struct refusals *refusals)
{
	if (refusals->named && !module->refused_told++)
		notes_gap(&functions->context->notes, refusals->named, 0, module->file.name,
			  "functions that a session asks for of modules that come cannot be hooked");
}

/* One request that stands, of a module that has come. 0: not yet. */
static int ask_standing(struct function_traces *functions, struct session *session, struct waiting *standing, struct module *module)
{
	const uint64_t until_ns = clock_monotonic_ns() + PIECE_NS;
	char *why;
	int begun = begin_looking(functions, standing, &why);
	free(why);
	if (begun < 0)
		forget_found(standing);
	if (begun <= 0)
		return begun < 0;
	if (!look_through(standing, module, until_ns) || !callers_are_known(functions, standing, until_ns))
		return 0;
	if (!carry_out_on(functions, standing, session, module, until_ns))
		return 0;
	tell_refused(functions, module, standing->refusals);
	forget_found(standing);
	functions_set_gates(functions, session);
	return 1;
}

static int asks_on_load(const struct session *session, const struct module *module)
{
	const struct session_functions *asked = session->used ? session->functions : NULL;
	return asked && asked->on_load.kinds && module->loads > asked->on_load_since;
}

static int stands_for(const struct waiting *standing, const struct module *module)
{
	return module->loads > standing->loads && names_module(standing, module);
}

static int asks_newcomer(const struct session *session, const struct module *module)
{
	const struct waiting *standing = session->used && session->functions ? session->functions->standing : NULL;
	while (standing && !stands_for(standing, module))
		standing = standing->next;
	return standing || asks_on_load(session, module);
}

/* 0: not all of it could be asked yet. */
static int ask_for_session(struct function_traces *functions, struct session *session, struct module *module)
{
	int done = 1;
	if (asks_on_load(session, module))
		load_for(functions, module, session);
	for (struct waiting *standing = session->functions->standing; standing && done; standing = standing->next)
		done = !stands_for(standing, module) || ask_standing(functions, session, standing, module);
	return done;
}

static int ask_newcomer(struct function_traces *functions, struct module *module)
{
	int is_asked = 0, is_first = !module->askers, done = 1;
	struct session *slots = functions->sessions->slot;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		is_asked |= asks_newcomer(&slots[slot], module);
	if (is_asked && functions_plan(functions, module) == PLAN_PENDING)
		return 0;
	for (unsigned slot = SESSION_FIRST_SLOT; is_asked && module->state == PLAN_READY && slot < SESSION_SLOTS; slot++)
		if (asks_newcomer(&slots[slot], module))
			done &= ask_for_session(functions, &slots[slot], module);
	module->is_new = !done;
	if (is_first && module->askers)
		functions->epoch++;
	return done;
}

/* Those that a look at the programs has found before they asked, or that do not ask. Returns 1 while some are not done. */
static int ask_newcomers(struct function_traces *functions)
{
	int left = 0;
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->is_new && module->mapped)
			left |= !ask_newcomer(functions, module);
	return left;
}

static void control_made(void *owner, struct family *family, struct live_control *control)
{
	if (control_begin(control) == 0)
		functions_fill(owner, family, control);
}

static void module_known(void *owner, struct family *family, struct live_control *control)
{
	(void)owner;
	functions_place_callers(family, control);
}

static void control_gone(void *owner, struct live_control *control)
{
	(void)owner;
	control_end(control);
}

/* Whose function it is, and its place in the index; NULL: nobody's. */
static struct module *module_with_function(struct function_traces *functions, uint32_t function, uint32_t *place)
{
	for (struct module *module = functions->modules; module; module = module->next) {
		const struct lorg_plan *plan = module->state == PLAN_READY ? module->answer.plan : NULL;
		if (!plan || function < plan->first_function || function - plan->first_function >= plan->function_count)
			continue;
		const struct lorg_plan_function *entry = (const void *)((const char *)plan + plan->functions);
		const struct plan_index *index = module->answer.index;
		const uint64_t offset = entry[function - plan->first_function].offset;
		uint32_t low = 0, high = index->count;
		while (low < high) {
			uint32_t middle = low + (high - low) / 2;
			if (index->functions[middle].offset < offset)
				low = middle + 1;
			else
				high = middle;
		}
		*place = low;
		return low < index->count && index->functions[low].offset == offset ? module : NULL;
	}
	return NULL;
}

static int is_counted_by_process(struct function_traces *functions, uint32_t function)
{
	uint32_t place;
	const struct module *module = module_with_function(functions, function, &place);
	for (const struct asked_module *asker = module ? module->askers : NULL; asker; asker = asker->next_asker)
		if (asker->functions[place].asked.kinds & (LORG_KIND_TIME | LORG_KIND_MEMORY))
			return 1;
	return 0;
}

static void counted_by_ended(void *owner, struct family *family, struct process *process, const struct lorg_process *entry,
			     const struct ended_counter *counter)
{
	struct function_traces *functions = owner;
	struct lorg_packet head = {0};
	struct counted counted = {.function = counter->function,
				  .count = counter->count,
				  .ticks = counter->ticks,
				  .words = counter->words,
				  .birth = process->birth_tick};
	const struct counter_source source = {family->id, process->index, counter->chunk, counter->place};
	process_head(process, &head);
	counted.pid = head.pid;
	counted.tid = head.tid;
	counted.runtime_process = entry->runtime_process;
	memcpy(counted.image, head.image, sizeof counted.image);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (__atomic_load_n(&entry->session[slot].flags, __ATOMIC_RELAXED) & LORG_TRACE_CALL)
			counted.call_flags[slot / 64] |= 1ull << slot % 64;
	counting_ended(functions->counting, &counted, is_counted_by_process(functions, counter->function), &source);
}

static void counter_is_taken(void *owner)
{
	const struct function_traces *functions = owner;
	counting_is_taken(functions->counting);
}

/* ---- events -------------------------------------------------------------------------------------- */

int session_traces_function(const struct session *session, uint32_t function, uint64_t tick)
{
	for (const struct asked_module *asked = session->functions ? session->functions->modules : NULL; asked; asked = asked->next) {
		const struct lorg_plan *plan = asked->module->answer.plan;
		if (function < plan->first_function || function - plan->first_function >= plan->function_count)
			continue;
		const struct lorg_plan_function *entry = (const void *)((const char *)plan + plan->functions);
		const struct plan_index *index = asked->module->answer.index;
		const struct lorg_plan_function *wanted = &entry[function - plan->first_function];
		uint32_t low = 0, high = index->count;
		while (low < high) {
			uint32_t middle = low + (high - low) / 2;
			if (index->functions[middle].offset < wanted->offset)
				low = middle + 1;
			else
				high = middle;
		}
		if (low == index->count || index->functions[low].offset != wanted->offset)
			return 0;
		const struct asked_function *found = &asked->functions[low];
		uint32_t kind = wanted->flags & LORG_PLAN_CODE ? LORG_KIND_LOCAL : LORG_KIND_GLOBAL;
		return found->until && found->since_kind == kind && tick >= found->since && tick < found->until;
	}
	return 0;
}

/* ---- the end of a session -------------------------------------------------------------------------- */

/* lorgd ends: no later pass puts back what was left in the middle of an entry. */
static void switch_rest(struct function_traces *functions)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	const uint64_t limit_ns = clock_monotonic_ns() + END_LIMIT_NS;
	uint32_t later = functions->unswitched;
	requests_hold_at_once(functions->context);
	while (later && clock_monotonic_ns() < limit_ns) {
		later = 0;
		for (struct module *module = functions->modules; module; module = module->next)
			later += module->state == PLAN_READY ? functions_switch_again(functions, module) : 0;
		if (later)
			nanosleep(&moment, NULL);
	}
}

static void end_module(struct function_traces *functions, struct asked_module *asked)
{
	struct module *module = asked->module;
	for (uint32_t i = 0; i < module->answer.index->count; i++)
		rules_end(&asked->functions[i].asked);
	functions->unswitched |= functions_publish(functions, module, NULL, 0) != 0;
	asked_free(functions, asked);
}

/* Gates are shut at once; what programs do not give back just now they give back presently. */
static uint32_t shut(struct function_traces *functions, struct asked_module *asked)
{
	for (uint32_t i = 0; i < asked->module->answer.index->count; i++)
		rules_end(&asked->functions[i].asked);
	return functions_publish(functions, asked->module, NULL, 0);
}

int session_functions_leave(struct sessions *sessions, struct session *session)
{
	const uint64_t now_ns = clock_monotonic_ns();
	struct session_functions *own = session->functions;
	uint32_t later = 0;
	if (!own)
		return 0;
	for (struct asked_module *asked = own->modules; asked; asked = asked->next)
		later += own->leaving_ns ? functions_switch_again(sessions->functions, asked->module) : shut(sessions->functions, asked);
	if (!own->leaving_ns)
		own->leaving_ns = clock_monotonic_ns() + END_LIMIT_NS; /* what has taken its time has not been tried again yet */
	if (later && now_ns < own->leaving_ns)
		return 1;
	if (later)
		notes_gap(&sessions->context->notes, 0, 0, "functions of programs stay hooked for now, and tell nothing",
			  "their threads cannot be held: that is tried again until they can");
	return 0;
}

void session_functions_end(struct sessions *sessions, struct session *session)
{
	struct function_traces *functions = sessions->functions;
	if (!session->functions)
		return;
	while (session->functions->modules)
		end_module(functions, session->functions->modules);
	rules_end(&session->functions->on_load);
	while (session->functions->standing)
		remove_standing(session->functions, &session->functions->standing);
	free(session->functions);
	session->functions = NULL;
	see_whether_asked(functions);
}

/* ---- each pass --------------------------------------------------------------------------------------- */

/* Flags of processes that gates depend on may have come or gone. */
static void heed_flags(struct function_traces *functions)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &functions->sessions->slot[slot];
		if (!session->used || !session->functions || !session->functions->modules ||
		    session->functions->asked_seen == (session->asked & LORG_TRACE_RETURN_TO))
			continue;
		session->functions->asked_seen = session->asked & LORG_TRACE_RETURN_TO;
		for (const struct asked_module *asked = session->functions->modules; asked; asked = asked->next)
			functions_publish(functions, asked->module, NULL, 0);
	}
}

/* What had no room in controls that were taken over: what stood there before has rested. */
static void refill(struct function_traces *functions, uint64_t now_ns)
{
	if (!functions->refill_ns || now_ns < functions->refill_ns)
		return;
	functions->refill_ns = 0;
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->askers)
			functions_publish(functions, module, NULL, 0);
}

void session_functions_pass(struct sessions *sessions, uint64_t now_ns)
{
	struct function_traces *functions = sessions->functions;
	for (struct waiting **link = &functions->waiting; *link;) {
		struct waiting *waiting = *link;
		if (has_to_wait(functions->waiting, waiting) || !go_on(functions, waiting, now_ns)) {
			link = &waiting->next;
			continue;
		}
		*link = waiting->next;
		finish(functions, waiting);
	}
	heed_flags(functions);
	refill(functions, now_ns);
	int newcomers = ask_newcomers(functions);
	if (functions->asked && now_ns - functions->look_ns >= LOOK_STEP_NS) {
		functions->look_ns = now_ns;
		functions_look(functions);
		see_whether_asked(functions);
	}
	int again = functions->asked || functions->placing ? placing_pass(functions, now_ns) : 0;
	functions->context->requests_wait |= again || newcomers || functions->waiting;
}

/* ---- after a restart --------------------------------------------------------------------------------- */

struct module *functions_add_module(struct function_traces *functions, const struct mapped_module *file)
{
	return add_module(functions, file);
}

struct asked_module *functions_asked_make(struct session *session, struct module *module)
{
	return asked_make(session, module);
}

void functions_tell(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count)
{
	tell_functions(functions, module, list, count);
}

void functions_see_whether_asked(struct function_traces *functions)
{
	see_whether_asked(functions);
}

void functions_note_slots(struct function_traces *functions, const struct module *module, uint32_t function, uint32_t kinds)
{
	note_slots(functions, module, function, kinds);
}

void functions_restore_standing(struct function_traces *functions, struct session *session, const struct function_request *request)
{
	struct waiting *standing = calloc(1, sizeof *standing), **end = &session->functions->standing;
	if (!standing)
		return;
	standing->request = *request;
	standing->session = session->number;
	standing->loads = functions->loads;
	if (check(&standing->request, standing) || copy_texts(standing, request)) {
		waiting_free(standing);
		return;
	}
	while (*end)
		end = &(*end)->next;
	*end = standing;
	session->functions->standing_count++;
}

/* ---- the table ------------------------------------------------------------------------------------------ */

struct function_traces *function_traces_create(struct sessions *sessions)
{
	struct function_traces *functions = calloc(1, sizeof *functions);
	struct family_context *context = sessions->context;
	char *error = NULL;
	if (!functions)
		return NULL;
	functions->sessions = sessions;
	functions->context = context;
	functions->prototypes = prototypes_read(NULL, &error);
	free(error);
	const struct planner_settings settings = {.prototypes = functions->prototypes, .whole_modules = 1};
	functions->planner = planner_create(&settings);
	functions->files = mapped_files_create();
	functions->counting = counting_create();
	if (!functions->planner || !functions->files || !functions->counting) {
		function_traces_free(functions);
		return NULL;
	}
	functions->live = (struct live_planning){.owner = functions, .plan_for = plan_asked_for, .made = control_made, .gone = control_gone,
		.known = module_known, .counted = counted_by_ended, .taken = counter_is_taken};
	functions->planning = (struct planning){.planner = functions->planner, .plan_for = plan_for, .tell = planner_tell,
		.descriptor = planner_descriptor, .live = &functions->live};
	context->planning = &functions->planning;
	return functions;
}

void function_traces_free(struct function_traces *functions)
{
	if (!functions)
		return;
	switch_rest(functions);
	placing_free(functions);
	while (functions->waiting) {
		struct waiting *waiting = functions->waiting;
		functions->waiting = waiting->next;
		waiting_free(waiting);
	}
	while (functions->modules) {
		struct module *module = functions->modules;
		functions->modules = module->next;
		free(module->told);
		free(module);
	}
	forget_globals(functions);
	free(functions->globals);
	/* Acquire: pairs with the end of each. They read what is freed here. */
	while (__atomic_load_n(&functions->openings, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (functions->planner)
		planner_free(functions->planner);
	prototypes_free(functions->prototypes);
	mapped_files_free(functions->files);
	counting_free(functions->counting);
	functions->context->planning = NULL;
	free(functions);
}
