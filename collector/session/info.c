/* SPDX-License-Identifier: MIT */
/* info.c: info/3 of functions, and what sessions have counted. See functions.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collector/session/functions.h"
#include "collector/session/tracer.h"

enum { WORLD_MICROSECONDS = 1000000 };

/* ---- zero points --------------------------------------------------------------- */

static struct process_base *base_of(struct process_bases *bases, const uint8_t image[16], uint64_t birth)
{
	for (uint32_t i = 0; i < bases->count; i++)
		if (bases->list[i].birth == birth && memcmp(bases->list[i].image, image, 16) == 0)
			return &bases->list[i];
	return NULL;
}

static struct process_base *base_add(struct process_bases *bases, const uint8_t image[16], uint64_t birth)
{
	if (bases->count == bases->room) {
		uint32_t room = bases->room ? 2 * bases->room : 8;
		struct process_base *more = realloc(bases->list, room * sizeof *more);
		if (!more)
			return NULL;
		bases->list = more;
		bases->room = room;
	}
	struct process_base *base = &bases->list[bases->count++];
	*base = (struct process_base){.birth = birth};
	memcpy(base->image, image, sizeof base->image);
	return base;
}

static uint64_t since(uint64_t now, uint64_t base)
{
	return now > base ? now - base : 0;
}

static void set_base(struct process_base *base, const struct counted *counted)
{
	base->count = counted ? counted->count : 0;
	base->ticks = counted ? counted->ticks : 0;
	base->words = counted ? counted->words : 0;
}

/* What has come since the base is kept. */
static void keep(struct process_base *base, const struct counted *counted)
{
	if (!base->is_open || !counted)
		return;
	base->kept.count += since(counted->count, base->count);
	base->kept.ticks += since(counted->ticks, base->ticks);
	base->kept.words += since(counted->words, base->words);
}

static int has_call(struct session *session, const struct counted *counted)
{
	if (counted->family)
		return (session_flags_of_process(session, counted->family, counted->process) & LORG_TRACE_CALL) != 0;
	return counted->call_flags[session->slot / 64] >> session->slot % 64 & 1;
}

static void begin_at_zero(struct process_bases *bases, struct session *session, const struct counted *counted, uint32_t count)
{
	bases->count = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct process_base *base = base_add(bases, counted[i].image, counted[i].birth);
		if (!base)
			return;
		set_base(base, &counted[i]);
		base->is_open = counted[i].family && has_call(session, &counted[i]);
	}
}

/* Paused: nothing that comes counts. */
static void stop(struct process_bases *bases, struct session *session, const struct counted *counted, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct process_base *base = base_of(bases, counted[i].image, counted[i].birth);
		if (!base && has_call(session, &counted[i]) && (base = base_add(bases, counted[i].image, counted[i].birth)))
			base->is_open = 1;
		if (!base)
			continue;
		keep(base, &counted[i]);
		base->is_open = 0;
	}
}

void counting_change(struct function_traces *functions, struct asked_module *asked, uint32_t function, const struct rules_effect *effect,
		     const struct counted_list *list)
{
	struct asked_function *asking = &asked->functions[function];
	const uint32_t place = asked->module->answer.index->functions[function].code;
	uint32_t id = place == INDEX_NONE ? 0 : asked->module->answer.plan->first_function + place, count = 0;
	const struct counted *counted = list ? counted_of(list, id, &count) : NULL;
	(void)functions;
	if (!asking->counting && !(effect->zeroed && (asking->counting = calloc(1, sizeof *asking->counting))))
		return;
	struct session_counting *counting = asking->counting;
	if (effect->zeroed & LORG_KIND_COUNT)
		counting->count_base = counted_sum(list, id);
	if (effect->stopped & LORG_KIND_COUNT)
		counting->count_kept = since(counted_sum(list, id), counting->count_base);
	if (effect->zeroed & LORG_KIND_TIME)
		begin_at_zero(&counting->time, asked->session, counted, count);
	if (effect->stopped & LORG_KIND_TIME)
		stop(&counting->time, asked->session, counted, count);
	if (effect->zeroed & LORG_KIND_MEMORY)
		begin_at_zero(&counting->memory, asked->session, counted, count);
	if (effect->stopped & LORG_KIND_MEMORY)
		stop(&counting->memory, asked->session, counted, count);
	if (asking->asked.kinds & RULES_COUNTERS)
		return;
	session_counting_free(counting);
	asking->counting = NULL;
}

void session_counting_free(struct session_counting *counting)
{
	if (!counting)
		return;
	free(counting->time.list);
	free(counting->memory.list);
	free(counting);
}

/* ---- the flag call ---------------------------------------------------------------- */

static void change_flag(struct process_bases *bases, const struct counted *counted, const uint8_t image[16], uint64_t birth, int on)
{
	struct process_base *base = base_of(bases, image, birth);
	if (!base) {
		base = base_add(bases, image, birth);
		if (!base)
			return;
		base->is_open = !on; /* it has had the flag all along, and counts from zero */
	}
	if (on && !base->is_open)
		set_base(base, counted);
	if (!on)
		keep(base, counted);
	base->is_open = on;
}

static const struct counted *of_process(const struct counted_list *list, uint32_t id, const uint8_t image[16], uint64_t birth)
{
	uint32_t count;
	const struct counted *counted = counted_of(list, id, &count);
	for (uint32_t i = 0; i < count; i++)
		if (counted[i].birth == birth && memcmp(counted[i].image, image, 16) == 0)
			return &counted[i];
	return NULL;
}

static void change_flag_in(struct function_traces *functions, struct asked_module *asked, const struct process *process, int on)
{
	const struct lorg_plan *plan = asked->module->answer.plan;
	const struct plan_index *index = asked->module->answer.index;
	struct counted_list list = {0};
	int has_read = 0;
	for (uint32_t i = 0; i < index->count; i++) {
		struct asked_function *function = &asked->functions[i];
		uint32_t on_now = function->asked.kinds & ~function->asked.paused;
		if (!function->counting || !(on_now & (LORG_KIND_TIME | LORG_KIND_MEMORY)))
			continue;
		if (!has_read)
			counting_read(functions->counting, functions->context, plan->first_function, plan->first_function + plan->function_count, &list);
		has_read = 1;
		functions->changes++;
		const struct counted *counted = of_process(&list, plan->first_function + index->functions[i].code, process->image->id,
							   process->birth_tick);
		if (on_now & LORG_KIND_TIME)
			change_flag(&function->counting->time, counted, process->image->id, process->birth_tick, on);
		if (on_now & LORG_KIND_MEMORY)
			change_flag(&function->counting->memory, counted, process->image->id, process->birth_tick, on);
	}
	counted_list_free(&list);
}

void session_functions_flag(struct sessions *sessions, struct session *session, struct family *family, uint32_t process, int on)
{
	const struct process *known = session->functions && session->functions->modules ? process_of(family, process) : NULL;
	if (!known || !known->image)
		return;
	for (struct asked_module *asked = session->functions->modules; asked; asked = asked->next)
		change_flag_in(sessions->functions, asked, known, on);
}

/* ---- values -------------------------------------------------------------------------- */

struct value {
	uint64_t count, ticks, words;
};

/* 0: it has counted nothing for the session. */
static int value_of(struct session *session, struct process_bases *bases, int is_paused, const struct counted *counted, struct value *value)
{
	const struct process_base *base = base_of(bases, counted->image, counted->birth);
	*value = (struct value){0};
	if (base) {
		*value = (struct value){base->kept.count, base->kept.ticks, base->kept.words};
		if (base->is_open) {
			value->count += since(counted->count, base->count);
			value->ticks += since(counted->ticks, base->ticks);
			value->words += since(counted->words, base->words);
		}
	} else if (!is_paused && has_call(session, counted)) {
		*value = (struct value){counted->count, counted->ticks, counted->words};
	}
	return (value->count | value->ticks | value->words) != 0;
}

static void print_per_process(FILE *to, struct function_traces *functions, struct session *session, struct process_bases *bases,
			      const struct asked *asked, uint32_t kind, const struct counted *counted, uint32_t count)
{
	const uint64_t frequency = functions->context->clock.frequency ? functions->context->clock.frequency : 1;
	int first = 1;
	fputc('[', to);
	for (uint32_t i = 0; i < count; i++) {
		struct value value;
		if (!counted[i].birth || !value_of(session, bases, (asked->paused & kind) != 0, &counted[i], &value))
			continue;
		uint64_t us = (uint64_t)((double)value.ticks * WORLD_MICROSECONDS / (double)frequency);
		fprintf(to, "%s{<%u.%u.%u>,%" PRIu64 ",", first ? "" : ",", counted[i].pid, counted[i].tid, counted[i].runtime_process, value.count);
		if (kind == LORG_KIND_TIME)
			fprintf(to, "%" PRIu64 ",%" PRIu64 "}", us / WORLD_MICROSECONDS, us % WORLD_MICROSECONDS);
		else
			fprintf(to, "%" PRIu64 "}", value.words);
		first = 0;
	}
	fputc(']', to);
}

/* ---- items ----------------------------------------------------------------------------- */

/* A function that is asked about. */
struct subject {
	struct function_traces *functions;
	struct session *session;
	const struct asked *asked; /* NULL: nothing is asked of it */
	struct session_counting *counting;
	int is_on_load; /* no function: what those are asked for that come */
	uint32_t id; /* at its entry; 0: none */
	struct counted_list list;
	int has_list;
};

static const struct counted *counted_for(struct subject *subject, uint32_t *count)
{
	*count = 0;
	if (!subject->id)
		return NULL;
	if (!subject->has_list)
		counting_read(subject->functions->counting, subject->functions->context, subject->id, subject->id, &subject->list);
	subject->has_list = 1;
	return counted_of(&subject->list, subject->id, count);
}

static void print_traced(FILE *to, struct subject *subject)
{
	uint32_t kinds = subject->asked ? subject->asked->kinds : 0;
	fputs(kinds & LORG_KIND_GLOBAL ? "global" : kinds & LORG_KIND_LOCAL ? "local" : "false", to);
}

static void print_specification(FILE *to, const struct specification *specification)
{
	fputs(specification ? specification->is_condition ? "{'if',\"" : specification->text : "[]", to);
	for (const char *at = specification && specification->is_condition ? specification->text : ""; *at; at++) {
		if (*at == '"' || *at == '\\')
			fputc('\\', to);
		fputc(*at, to);
	}
	if (specification && specification->is_condition)
		fputs("\"}", to);
}

static void print_match_spec(FILE *to, struct subject *subject)
{
	if (subject->asked && (subject->asked->kinds & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL)))
		print_specification(to, subject->asked->match);
	else
		fputs("false", to);
}

static void print_meta(FILE *to, struct subject *subject)
{
	const struct tracer *tracer = subject->session ? subject->session->tracer : NULL;
	if (!subject->asked || !(subject->asked->kinds & LORG_KIND_META))
		fputs("false", to);
	else
		fputs(tracer && tracer->operations->term ? tracer->operations->term(tracer) : "[]", to);
}

static void print_meta_match_spec(FILE *to, struct subject *subject)
{
	if (subject->asked && (subject->asked->kinds & LORG_KIND_META))
		print_specification(to, subject->asked->meta_match);
	else
		fputs("false", to);
}

static int counts(const struct subject *subject, uint32_t kind)
{
	return subject->asked && (subject->asked->kinds & kind);
}

/* Nothing is counted yet: whether it will be. */
static int printed_as_wish(FILE *to, const struct subject *subject, uint32_t kind)
{
	if (subject->is_on_load)
		fputs(counts(subject, kind) ? "true" : "false", to);
	return subject->is_on_load;
}

static void print_call_time(FILE *to, struct subject *subject)
{
	if (printed_as_wish(to, subject, LORG_KIND_TIME))
		return;
	uint32_t count;
	const struct counted *counted = counted_for(subject, &count);
	if (!counts(subject, LORG_KIND_TIME))
		fputs("false", to);
	else if (!subject->counting)
		fputs("[]", to);
	else
		print_per_process(to, subject->functions, subject->session, &subject->counting->time, subject->asked, LORG_KIND_TIME, counted,
				  count);
}

static void print_call_count(FILE *to, struct subject *subject)
{
	uint32_t count;
	const struct session_counting *counting = subject->counting;
	if (printed_as_wish(to, subject, LORG_KIND_COUNT))
		return;
	if (!counts(subject, LORG_KIND_COUNT)) {
		fputs("false", to);
		return;
	}
	counted_for(subject, &count);
	uint64_t value = subject->asked->paused & LORG_KIND_COUNT ? counting ? counting->count_kept : 0
			 : since(counted_sum(&subject->list, subject->id), counting ? counting->count_base : 0);
	fprintf(to, "%" PRIu64, value);
}

static void print_call_memory(FILE *to, struct subject *subject)
{
	if (printed_as_wish(to, subject, LORG_KIND_MEMORY))
		return;
	uint32_t count;
	const struct counted *counted = counted_for(subject, &count);
	if (!counts(subject, LORG_KIND_MEMORY))
		fputs("false", to);
	else if (!subject->counting)
		fputs("[]", to);
	else
		print_per_process(to, subject->functions, subject->session, &subject->counting->memory, subject->asked, LORG_KIND_MEMORY, counted,
				  count);
}

static const struct {
	const char *name;
	void (*print)(FILE *to, struct subject *subject);
	int of_on_load; /* among all items of on_load, too */
} items[] = {
	{"traced", print_traced, 1},	     {"match_spec", print_match_spec, 1}, {"meta", print_meta, 1},
	{"meta_match_spec", print_meta_match_spec, 1}, {"call_time", print_call_time, 0},   {"call_count", print_call_count, 1},
	{"call_memory", print_call_memory, 0},
};
enum { ITEMS = sizeof items / sizeof *items };

static void print_all(FILE *to, struct subject *subject)
{
	if (!subject->asked || !subject->asked->kinds) {
		fputs("{all,false}", to);
		return;
	}
	fputs("{all,[", to);
	for (int i = 0; i < ITEMS; i++) {
		if (subject->is_on_load && !items[i].of_on_load)
			continue;
		fprintf(to, "%s{%s,", i ? "," : "", items[i].name);
		items[i].print(to, subject);
		fputc('}', to);
	}
	fputs("]}", to);
}

static char *print_item(struct subject *subject, const char *item)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	int known = strcmp(item, "all") == 0;
	if (!to)
		return NULL;
	if (known)
		print_all(to, subject);
	for (int i = 0; i < ITEMS; i++) {
		if (strcmp(items[i].name, item) != 0)
			continue;
		fprintf(to, "{%s,", item);
		items[i].print(to, subject);
		fputc('}', to);
		known = 1;
	}
	if (!known)
		fprintf(to, "{%s,undefined}", item);
	fclose(to);
	return text;
}

static char *undefined(const char *item)
{
	char *text;
	return asprintf(&text, "{%s,undefined}", item) < 0 ? NULL : text;
}

/* ---- info/3 -------------------------------------------------------------------------------- */

static struct asked_module *asked_in(const struct session *session, const struct module *module)
{
	struct asked_module *asked = session && session->functions ? session->functions->modules : NULL;
	while (asked && asked->module != module)
		asked = asked->next;
	return asked;
}

static int fits(const struct index_function *function, int64_t arity)
{
	return arity < 0 || function->arity == INDEX_ARITY_UNKNOWN || function->arity == arity;
}

/* The one of several of a name that something is asked of comes first. 0: there is none. */
static int find_subject(struct function_traces *functions, const char *module, const char *function, int64_t arity, struct subject *subject)
{
	int found = 0;
	for (struct module *at = functions->modules; at; at = at->next) {
		const struct plan_index *index = at->mapped && functions_module_is_called(at, module) ? at->answer.index : NULL;
		struct asked_module *asked = index ? asked_in(subject->session, at) : NULL;
		for (uint32_t i = 0; index && i < index->count; i++) {
			if (!fits(&index->functions[i], arity) || !index_is_called(index, i, function))
				continue;
			if (found && !(asked && asked->functions[i].asked.kinds))
				continue;
			subject->asked = asked ? &asked->functions[i].asked : NULL;
			subject->counting = asked ? asked->functions[i].counting : NULL;
			subject->id = at->state == PLAN_READY && index->functions[i].code != INDEX_NONE
					      ? at->answer.plan->first_function + index->functions[i].code
					      : 0;
			found = 1;
			if (subject->asked && subject->asked->kinds)
				return 1;
		}
	}
	return found;
}

int session_function_known(struct sessions *sessions, const char *module)
{
	struct function_traces *functions = sessions->functions;
	int known = 1;
	functions_look(functions);
	for (struct module *at = functions->modules; at; at = at->next)
		if (at->mapped && functions_module_is_called(at, module))
			known &= functions_plan(functions, at) != PLAN_PENDING;
	return known;
}

char *session_function_info(struct sessions *sessions, struct session *session, const char *module, const char *function, int64_t arity,
			    const char *item)
{
	struct subject subject = {.functions = sessions->functions, .session = session};
	if (!module) {
		subject.asked = session && session->functions ? &session->functions->on_load : NULL;
		subject.is_on_load = 1;
		return print_item(&subject, item);
	}
	if (!function || !find_subject(sessions->functions, module, function, arity, &subject))
		return undefined(item);
	char *text = print_item(&subject, item);
	counted_list_free(&subject.list);
	return text;
}
