/* SPDX-License-Identifier: MIT */
/* function_state.c: see function_state.h. */
#include "collector/session/function_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/plan/kept.h"
#include "collector/session/functions.h"

enum { STATE_VERSION = 1, TEXT_MAXIMUM = 1 << 20, PROGRAM_MAXIMUM = 1 << 20, RANGES_MAXIMUM = 1 << 16, NO_TEXT = UINT32_MAX };

/* ---- writing ---------------------------------------------------------------------- */

/* Numbers of modules and specifications are their places in these lists + 1. */
struct writing {
	FILE *to;
	const struct module **modules;
	uint32_t module_count;
	const struct specification **specifications;
	uint32_t specification_count, specification_room;
	int failed;
};

static void put(struct writing *writing, const void *bytes, size_t size)
{
	if (size)
		fwrite(bytes, size, 1, writing->to);
}

static void put32(struct writing *writing, uint32_t value)
{
	put(writing, &value, sizeof value);
}

static void put64(struct writing *writing, uint64_t value)
{
	put(writing, &value, sizeof value);
}

static void put_text(struct writing *writing, const char *text)
{
	put32(writing, text ? (uint32_t)strlen(text) : NO_TEXT);
	put(writing, text, text ? strlen(text) : 0);
}

static uint32_t module_number(const struct writing *writing, const struct module *module)
{
	for (uint32_t i = 0; i < writing->module_count; i++)
		if (writing->modules[i] == module)
			return i + 1;
	return 0;
}

static uint32_t specification_number(struct writing *writing, const struct specification *specification)
{
	if (!specification)
		return 0;
	/* Those of one function are mostly those of the next. */
	for (uint32_t i = writing->specification_count; i-- > 0;)
		if (writing->specifications[i] == specification)
			return i + 1;
	if (writing->specification_count == writing->specification_room) {
		uint32_t room = writing->specification_room ? 2 * writing->specification_room : 16;
		const struct specification **more = realloc(writing->specifications, room * sizeof(struct specification *));
		if (!more) {
			writing->failed = 1;
			return 0;
		}
		writing->specifications = more;
		writing->specification_room = room;
	}
	writing->specifications[writing->specification_count++] = specification;
	return writing->specification_count;
}

static void put_asked(struct writing *writing, const struct asked *asked)
{
	put32(writing, asked->kinds);
	put32(writing, asked->paused);
	put32(writing, specification_number(writing, asked->match));
	put32(writing, specification_number(writing, asked->meta_match));
}

static void put_bases(struct writing *writing, const struct process_bases *bases)
{
	put32(writing, bases->count);
	put(writing, bases->list, bases->count * sizeof *bases->list);
}

static int is_same_wish(const struct asked_function *one, const struct asked_function *other)
{
	return one->asked.kinds == other->asked.kinds && one->asked.paused == other->asked.paused && one->asked.match == other->asked.match &&
	       one->asked.meta_match == other->asked.meta_match && one->since == other->since && one->until == other->until &&
	       one->since_kind == other->since_kind;
}

/* Functions that follow each other and are asked the same are one line; a line of none ends them. */
static void put_wishes(struct writing *writing, const struct asked_module *asked)
{
	const uint32_t count = asked->module->answer.index->count;
	for (uint32_t first = 0, next; first < count; first = next) {
		const struct asked_function *function = &asked->functions[first];
		for (next = first + 1; next < count && is_same_wish(function, &asked->functions[next]);)
			next++;
		if (!function->asked.kinds && !function->until)
			continue;
		put32(writing, next - first);
		put32(writing, first);
		put_asked(writing, &function->asked);
		put64(writing, function->since);
		put64(writing, function->until);
		put32(writing, function->since_kind);
	}
	put32(writing, 0);
}

static void put_counting(struct writing *writing, const struct asked_module *asked)
{
	for (uint32_t i = 0; i < asked->module->answer.index->count; i++) {
		const struct session_counting *counting = asked->functions[i].counting;
		if (!counting)
			continue;
		put32(writing, i + 1);
		put64(writing, counting->count_base);
		put64(writing, counting->count_kept);
		put_bases(writing, &counting->time);
		put_bases(writing, &counting->memory);
	}
	put32(writing, 0);
}

static void put_standing(struct writing *writing, const struct waiting *standing)
{
	const struct function_request *request = &standing->request;
	put32(writing, 1);
	put_text(writing, request->module);
	put_text(writing, request->function);
	put_text(writing, request->pattern);
	put_text(writing, request->match);
	put64(writing, (uint64_t)request->arity);
	put32(writing, request->kinds);
	put32(writing, (uint32_t)request->is_condition);
}

static void put_session(struct writing *writing, const struct session *session)
{
	const struct session_functions *functions = session->functions;
	put64(writing, session->number);
	put_asked(writing, &functions->on_load);
	for (const struct waiting *standing = functions->standing; standing; standing = standing->next)
		put_standing(writing, standing);
	put32(writing, 0);
	for (const struct asked_module *asked = functions->modules; asked; asked = asked->next) {
		put32(writing, module_number(writing, asked->module));
		put_wishes(writing, asked);
		put_counting(writing, asked);
	}
	put32(writing, 0);
}

/* Which functions readers know of: those that events may name that are not read yet. */
static void put_told(struct writing *writing, const struct module *module)
{
	const uint32_t count = module->told && module->answer.index ? module->answer.index->count : 0;
	for (uint32_t first = 0, next; first < count; first = next) {
		for (next = first + 1; next < count && module->told[next] == module->told[first];)
			next++;
		if (!module->told[first])
			continue;
		put32(writing, next - first);
		put32(writing, first);
	}
	put32(writing, 0);
}

static void put_module(struct writing *writing, const struct module *module)
{
	int is_ready = module->is_planned && module->state == PLAN_READY;
	put_text(writing, module->file.path);
	put_text(writing, module->file.file_name);
	put_text(writing, module->file.name);
	put_text(writing, module->file.alias);
	put32(writing, module->file.build_id_length);
	put(writing, module->file.build_id, sizeof module->file.build_id);
	put64(writing, is_ready ? module->answer.plan_id : 0);
	put32(writing, (uint32_t)(module->mapped != 0));
	put32(writing, (uint32_t)(module->is_new != 0));
	put_told(writing, module);
}

static void put_specification(struct writing *writing, const struct specification *specification)
{
	put64(writing, specification->number);
	put32(writing, specification->needs);
	put32(writing, (uint32_t)specification->is_condition);
	put32(writing, (uint32_t)specification->sets_flags);
	put32(writing, specification->size);
	put(writing, specification->program, specification->size);
	put_text(writing, specification->text);
	put32(writing, specification->range_count);
	for (uint32_t i = 0; i < specification->range_count; i++) {
		const struct specification_range *range = &specification->ranges[i];
		put32(writing, range->module ? module_number(writing, range->module) : 0);
		put64(writing, range->first);
		put64(writing, range->last);
	}
}

static void list_modules(struct writing *writing, const struct function_traces *functions)
{
	writing->modules = calloc(functions->module_count + 1ul, sizeof(struct module *));
	writing->failed |= !writing->modules;
	for (const struct module *module = functions->modules; writing->modules && module; module = module->next)
		if (writing->module_count < functions->module_count)
			writing->modules[writing->module_count++] = module;
}

static void put_all(struct writing *writing, const struct sessions *sessions)
{
	const struct function_traces *functions = sessions->functions;
	put32(writing, STATE_VERSION);
	put64(writing, specification_last_number());
	put32(writing, (uint32_t)functions->all_globals);
	put32(writing, writing->module_count);
	for (uint32_t i = 0; i < writing->module_count; i++)
		put_module(writing, writing->modules[i]);
	put32(writing, writing->specification_count);
	for (uint32_t i = 0; i < writing->specification_count; i++)
		put_specification(writing, writing->specifications[i]);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = &sessions->slot[slot];
		if (session->used && session->persist && session->functions)
			put_session(writing, session);
	}
	put64(writing, 0);
}

/* All specifications have their numbers before anything is written of them. */
static void list_specifications(struct writing *writing, const struct sessions *sessions)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = &sessions->slot[slot];
		if (!session->used || !session->persist || !session->functions)
			continue;
		specification_number(writing, session->functions->on_load.match);
		specification_number(writing, session->functions->on_load.meta_match);
		for (const struct asked_module *asked = session->functions->modules; asked; asked = asked->next) {
			for (uint32_t i = 0; i < asked->module->answer.index->count; i++) {
				specification_number(writing, asked->functions[i].asked.match);
				specification_number(writing, asked->functions[i].asked.meta_match);
			}
		}
	}
}

uint64_t function_state_changes(const struct sessions *sessions)
{
	return sessions->functions->changes;
}

void *function_state_write(const struct sessions *sessions, size_t *size)
{
	char *bytes = NULL;
	struct writing writing = {.to = open_memstream(&bytes, size)};
	if (!writing.to)
		return NULL;
	list_modules(&writing, sessions->functions);
	list_specifications(&writing, sessions);
	if (!writing.failed)
		put_all(&writing, sessions);
	free(writing.modules);
	free(writing.specifications);
	if (fclose(writing.to) == 0 && !writing.failed)
		return bytes;
	free(bytes);
	return NULL;
}

/* ---- reading ------------------------------------------------------------------------ */

struct reading {
	const uint8_t *at, *end;
	int failed;
	struct sessions *sessions;
	struct function_traces *functions;
	struct module **modules;
	uint32_t module_count;
	struct specification **specifications;
	uint32_t specification_count;
};

static const void *get(struct reading *reading, uint64_t size)
{
	const void *at = reading->at;
	if (reading->failed || (uint64_t)(reading->end - reading->at) < size) {
		reading->failed = 1;
		return NULL;
	}
	reading->at += size;
	return at;
}

static uint32_t get32(struct reading *reading)
{
	uint32_t value = 0;
	const void *at = get(reading, sizeof value);
	if (at)
		memcpy(&value, at, sizeof value);
	return value;
}

static uint64_t get64(struct reading *reading)
{
	uint64_t value = 0;
	const void *at = get(reading, sizeof value);
	if (at)
		memcpy(&value, at, sizeof value);
	return value;
}

/* malloc'ed; NULL: there is none. */
static char *get_text(struct reading *reading)
{
	uint32_t length = get32(reading);
	const char *at = length == NO_TEXT || length > TEXT_MAXIMUM ? NULL : get(reading, length);
	if (!at)
		return NULL;
	char *text = strndup(at, length);
	reading->failed |= !text;
	return text;
}

static void get_name(struct reading *reading, char *to, size_t size)
{
	char *text = get_text(reading);
	snprintf(to, size, "%s", text ? text : "");
	free(text);
}

static struct module *module_at(const struct reading *reading, uint32_t number)
{
	return number && number <= reading->module_count ? reading->modules[number - 1] : NULL;
}

static struct specification *specification_at(const struct reading *reading, uint32_t number)
{
	return number && number <= reading->specification_count ? reading->specifications[number - 1] : NULL;
}

/* Only where the plan is the one that it had: its functions have their ids. */
static int is_planned_as(struct reading *reading, struct module *module, uint64_t plan_id)
{
	return plan_id && functions_plan(reading->functions, module) == PLAN_READY && module->answer.plan_id == plan_id;
}

static void get_told(struct reading *reading, struct module *module, int is_planned)
{
	uint32_t *list = is_planned ? calloc(module->answer.index->count + 1ul, sizeof *list) : NULL, listed = 0;
	for (uint32_t count; (count = get32(reading));) {
		uint32_t first = get32(reading);
		for (uint32_t i = first; list && i - first < count && i < module->answer.index->count && listed < module->answer.index->count; i++)
			list[listed++] = i;
	}
	if (list)
		functions_tell(reading->functions, module, list, listed);
	free(list);
}

static void get_module(struct reading *reading, uint32_t place)
{
	struct mapped_module file = {0};
	get_name(reading, file.path, sizeof file.path);
	get_name(reading, file.file_name, sizeof file.file_name);
	get_name(reading, file.name, sizeof file.name);
	get_name(reading, file.alias, sizeof file.alias);
	file.build_id_length = get32(reading);
	const void *build_id = get(reading, sizeof file.build_id);
	if (build_id && file.build_id_length <= sizeof file.build_id)
		memcpy(file.build_id, build_id, sizeof file.build_id);
	uint64_t plan_id = get64(reading);
	uint32_t mapped = get32(reading), is_new = get32(reading);
	struct module *module = reading->failed ? NULL : functions_add_module(reading->functions, &file);
	if (module) {
		module->mapped = mapped != 0;
		module->is_new = is_new != 0;
	}
	int is_planned = module && is_planned_as(reading, module, plan_id);
	if (is_planned)
		reading->modules[place] = module;
	get_told(reading, module, is_planned);
}

static void get_ranges(struct reading *reading, struct specification *specification)
{
	uint32_t count = get32(reading);
	if (reading->failed || count > RANGES_MAXIMUM)
		return;
	specification->ranges = calloc(count + 1ul, sizeof *specification->ranges);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t module = get32(reading);
		uint64_t first = get64(reading), last = get64(reading);
		if (specification->ranges)
			specification->ranges[specification->range_count++] =
				(struct specification_range){module_at(reading, module), first, last};
	}
}

static struct specification *get_specification(struct reading *reading)
{
	struct specification *specification = calloc(1, sizeof *specification);
	if (!specification) {
		reading->failed = 1;
		return NULL;
	}
	specification->users = 1; /* the list's */
	specification->number = get64(reading);
	specification->needs = get32(reading);
	specification->is_condition = get32(reading) != 0;
	specification->sets_flags = get32(reading) != 0;
	specification->size = get32(reading);
	const void *program = specification->size <= PROGRAM_MAXIMUM ? get(reading, specification->size) : NULL;
	specification->program = program ? malloc(specification->size + 1ul) : NULL;
	if (specification->program)
		memcpy(specification->program, program, specification->size);
	specification->text = get_text(reading);
	get_ranges(reading, specification);
	if (!reading->failed && specification->program && specification->text)
		return specification;
	specification_release(specification);
	reading->failed = 1;
	return NULL;
}

static struct asked get_asked(struct reading *reading)
{
	struct asked asked = {.kinds = get32(reading), .paused = get32(reading)};
	uint32_t match = get32(reading), meta = get32(reading);
	asked.match = specification_at(reading, match);
	asked.meta_match = specification_at(reading, meta);
	return asked;
}

static void set_asked(struct asked *to, const struct asked *from)
{
	*to = *from;
	specification_take(to->match);
	specification_take(to->meta_match);
}

static void get_wishes(struct reading *reading, struct asked_module *asked)
{
	for (uint32_t count; (count = get32(reading));) {
		uint32_t first = get32(reading);
		const struct asked wanted = get_asked(reading);
		uint64_t since = get64(reading), until = get64(reading);
		uint32_t since_kind = get32(reading);
		for (uint32_t i = first; asked && !reading->failed && i - first < count && i < asked->module->answer.index->count; i++) {
			struct asked_function *function = &asked->functions[i];
			set_asked(&function->asked, &wanted);
			function->since = since;
			function->until = until;
			function->since_kind = since_kind;
			functions_note_slots(reading->functions, asked->module, i, wanted.kinds);
		}
	}
}

static void get_bases(struct reading *reading, struct process_bases *bases)
{
	uint32_t count = get32(reading);
	const void *list = get(reading, (uint64_t)count * sizeof *bases->list);
	if (!bases || !list || !count)
		return;
	bases->list = malloc(count * sizeof *bases->list);
	if (!bases->list)
		return;
	memcpy(bases->list, list, count * sizeof *bases->list);
	bases->count = bases->room = count;
}

static void get_counting(struct reading *reading, struct asked_module *asked)
{
	for (uint32_t number; (number = get32(reading));) {
		int is_known = asked && number <= asked->module->answer.index->count;
		struct session_counting *counting = is_known ? calloc(1, sizeof *counting) : NULL;
		uint64_t base = get64(reading), kept = get64(reading);
		get_bases(reading, counting ? &counting->time : NULL);
		get_bases(reading, counting ? &counting->memory : NULL);
		if (!counting)
			continue;
		counting->count_base = base;
		counting->count_kept = kept;
		session_counting_free(asked->functions[number - 1].counting);
		asked->functions[number - 1].counting = counting;
	}
}

static void get_standing(struct reading *reading, struct session *session)
{
	while (get32(reading)) {
		char *module = get_text(reading), *function = get_text(reading), *pattern = get_text(reading), *match = get_text(reading);
		struct function_request request = {
			.module = module, .function = function, .pattern = pattern, .match = match, .how = FUNCTION_SET, .standing = 1};
		request.arity = (int64_t)get64(reading);
		request.kinds = get32(reading);
		request.is_condition = get32(reading) != 0;
		if (!reading->failed && session)
			functions_restore_standing(reading->functions, session, &request);
		free(module);
		free(function);
		free(pattern);
		free(match);
	}
}

/* Of a session that is not there again it is read, and goes. */
static int get_session(struct reading *reading)
{
	uint64_t number = get64(reading);
	if (!number)
		return 0;
	struct session *session = session_numbered(reading->sessions, number);
	const struct asked on_load = get_asked(reading);
	if (session && !session->functions)
		session->functions = calloc(1, sizeof *session->functions);
	if (session && !session->functions)
		session = NULL;
	if (session && !reading->failed)
		set_asked(&session->functions->on_load, &on_load);
	get_standing(reading, session);
	for (uint32_t place; (place = get32(reading));) {
		struct module *module = module_at(reading, place);
		struct asked_module *asked = session && module ? functions_asked_make(session, module) : NULL;
		get_wishes(reading, asked);
		get_counting(reading, asked);
	}
	return !reading->failed;
}

static void get_all(struct reading *reading)
{
	if (get32(reading) != STATE_VERSION)
		return;
	specification_numbers_from(get64(reading));
	reading->functions->all_globals |= get32(reading) != 0;
	reading->module_count = get32(reading);
	reading->modules = reading->failed || reading->module_count > (uint32_t)(reading->end - reading->at)
				   ? NULL : calloc(reading->module_count + 1ul, sizeof(struct module *));
	reading->failed |= !reading->modules;
	for (uint32_t i = 0; i < reading->module_count && !reading->failed; i++)
		get_module(reading, i);
	uint32_t count = get32(reading);
	reading->specifications = reading->failed || count > (uint32_t)(reading->end - reading->at)
					  ? NULL : calloc(count + 1ul, sizeof(struct specification *));
	reading->failed |= !reading->specifications;
	while (reading->specification_count < count && !reading->failed) {
		struct specification *specification = get_specification(reading);
		if (specification)
			reading->specifications[reading->specification_count++] = specification;
	}
	while (!reading->failed && get_session(reading))
		;
}

void function_state_read(struct sessions *sessions, const void *bytes, size_t size)
{
	struct reading reading = {
		.at = bytes, .end = (const uint8_t *)bytes + size, .sessions = sessions, .functions = sessions->functions};
	get_all(&reading);
	for (uint32_t i = 0; i < reading.specification_count; i++)
		specification_release(reading.specifications[i]);
	free(reading.specifications);
	free(reading.modules);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used && sessions->slot[slot].functions)
			functions_set_gates(sessions->functions, &sessions->slot[slot]);
}

/* ---- what outlives by itself ------------------------------------------------------------ */

static void take_over_counts(struct function_traces *functions, struct adopted *adopted)
{
	uint32_t at = 0;
	struct kept *kept = kept_next(adopted, KEPT_COUNTS, &at);
	if (!kept || counting_adopt(functions->counting, kept))
		counting_keep(functions->counting, functions->context->arena_settings->keeping);
	else
		counting_end_step(functions->counting, functions->context);
}

static struct kept *index_of(struct adopted *adopted, uint64_t plan_id)
{
	uint32_t at = 0;
	struct kept *kept;
	while ((kept = kept_next(adopted, KEPT_INDEX, &at)) && kept->name.number != plan_id)
		;
	return kept;
}

static void take_over_plans(struct function_traces *functions, struct adopted *adopted)
{
	uint32_t at = 0;
	for (struct kept *plan; (plan = kept_next(adopted, KEPT_PLAN, &at));) {
		struct kept *index = index_of(adopted, plan->name.number);
		struct plan_request of;
		uint64_t plan_id;
		/* The keeper goes on holding the index; it is mapped no more. */
		if (index && planner_adopt(functions->planner, &plan->memory, &index->memory, &of, &plan_id) == 0)
			memory_free(&index->memory);
	}
}

void function_state_take_over(struct sessions *sessions, struct adopted *adopted)
{
	take_over_counts(sessions->functions, adopted);
	take_over_plans(sessions->functions, adopted);
}

static struct family *family_with_id(const struct family_context *context, const uint8_t id[16])
{
	for (uint32_t i = 0; i < context->family_count; i++)
		if (memcmp(context->families[i]->id, id, sizeof context->families[i]->id) == 0)
			return context->families[i];
	return NULL;
}

/* Stubs lead there, and nobody could close its gates later. */
static void close_gates(const struct memory *memory)
{
	struct lorg_control *control = (struct lorg_control *)memory->at;
	struct lorg_function_control *functions = (struct lorg_function_control *)(control + 1);
	const uint64_t room = memory->size < sizeof *control ? 0 : (memory->size - sizeof *control) / sizeof *functions;
	const uint32_t count = room ? control->function_count : 0; /* read once; programs can write it */
	for (uint32_t i = 0; i < count && i < room; i++)
		__atomic_store_n(&functions[i].gate, 0, __ATOMIC_RELAXED);
	if (room)
		__atomic_add_fetch(&control->generation, 1, __ATOMIC_RELEASE);
}

static void take_over_controls(struct function_traces *functions, struct adopted *adopted)
{
	uint32_t at = 0;
	for (struct kept *kept; (kept = kept_next(adopted, KEPT_CONTROL, &at));) {
		struct family *family = family_with_id(functions->context, kept->name.owner);
		const struct module *module = functions_module_with_plan(functions, kept->name.number);
		if (family && module && requests_adopt(family->requests, &module->answer, &kept->name, &kept->memory) == 0)
			continue;
		close_gates(&kept->memory);
		if (family)
			family->has_lost_controls = 1;
	}
}

/* Where modules lie in programs that have asked about them once, and will not again. */
static void learn_module(void *context, const struct mapped_module *file)
{
	struct family *family = context;
	struct plan_caller module = {.build_id_length = file->build_id_length};
	memcpy(module.build_id, file->build_id, sizeof module.build_id);
	snprintf(module.path, sizeof module.path, "%s", file->path);
	requests_learn_module(family->requests, &module, file->base);
}

static void learn_modules(struct function_traces *functions)
{
	for (uint32_t i = 0; i < functions->context->family_count; i++) {
		struct family *family = functions->context->families[i];
		for (uint32_t k = 0; family->adopted && k < family->image_room; k++)
			if (requests_may_switch(family->images[k]))
				mapped_modules(functions->files, family->images[k]->pid, learn_module, family);
	}
}

void function_state_resume(struct sessions *sessions, struct adopted *adopted)
{
	struct function_traces *functions = sessions->functions;
	const uint64_t now_ns = clock_monotonic_ns();
	learn_modules(functions);
	functions_see_whether_asked(functions);
	functions->resumed_ns = now_ns;
	functions_look(functions);
	take_over_controls(functions, adopted);
	functions->epoch++;
	functions->changes++;
}
