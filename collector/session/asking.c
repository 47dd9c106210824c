/* SPDX-License-Identifier: MIT */
/* asking.c: what sessions ask of functions becomes settings and gates of controls. See functions.h. */
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/session/functions.h"

/* The flags of a session's processes that gates depend on. */
enum { FLAGS_HEEDED = LORG_TRACE_RETURN_TO };

struct module *functions_module_with_plan(struct function_traces *functions, uint64_t plan_id)
{
	for (struct module *module = functions->modules; module; module = module->next)
		if (module->state == PLAN_READY && module->answer.plan_id == plan_id)
			return module;
	return NULL;
}

/* ---- one function ---------------------------------------------------------------- */

/* What all sessions ask for at one place of a function. */
struct wishes {
	struct control_wish list[CONTROL_WISHES];
	unsigned count;
	uint32_t gate;
};

static void wish(struct wishes *wishes, const struct session *session, uint32_t kind, uint32_t gate, const struct specification *match,
		 uint32_t declared)
{
	if (wishes->count == CONTROL_WISHES)
		return;
	wishes->list[wishes->count++] = (struct control_wish){.session = session->slot, .kind = kind, .gate = gate, .match = match,
								   .declared = declared};
	wishes->gate |= gate | LORG_CALL_FILTER;
	wishes->gate |= match && (match->needs & LORG_MATCH_NEEDS_RETURN) ? LORG_CALL_RETURN : 0;
}

static int may_return_to(const struct session *session, const struct specification *match)
{
	return (session->asked & LORG_TRACE_RETURN_TO) || (match && match->sets_flags);
}

static uint32_t counter_gates(const struct asked *asked)
{
	uint32_t on = asked->kinds & ~asked->paused, gate = 0;
	gate |= on & LORG_KIND_COUNT ? LORG_CALL_COUNT : 0;
	gate |= on & LORG_KIND_TIME ? LORG_CALL_TIME : 0;
	gate |= on & LORG_KIND_MEMORY ? LORG_CALL_MEMORY : 0;
	return gate;
}

static void wish_at_entry(struct wishes *wishes, const struct session *session, const struct asked_function *function)
{
	const struct asked *asked = &function->asked;
	const uint32_t told = LORG_CALL_ENTRY | LORG_CALL_VALUES;
	if (asked->kinds & LORG_KIND_LOCAL)
		wish(wishes, session, LORG_KIND_LOCAL, told | (may_return_to(session, asked->match) ? LORG_CALL_RETURN_TO : 0), asked->match,
		     function->declared);
	if (asked->kinds & LORG_KIND_META)
		wish(wishes, session, LORG_KIND_META | LORG_KIND_LOCAL, told, asked->meta_match, function->meta_declared);
	wishes->gate |= counter_gates(asked);
}

static void wish_through_slots(struct wishes *wishes, const struct session *session, const struct asked_function *function)
{
	if (function->asked.kinds & LORG_KIND_GLOBAL)
		wish(wishes, session, LORG_KIND_GLOBAL, LORG_CALL_ENTRY | LORG_CALL_VALUES, function->asked.match, function->declared);
}

/* A function that gets no return events; its calls can be counted all the same. */
static uint32_t gate_for(const struct index_function *function, uint32_t gate)
{
	if (!(function->flags & LORG_PLAN_ENTRY_ONLY))
		return gate;
	if (gate & (LORG_CALL_TIME | LORG_CALL_MEMORY))
		gate |= LORG_CALL_COUNT;
	return gate & ~(uint32_t)(LORG_CALL_RETURN | LORG_CALL_TIME | LORG_CALL_MEMORY | LORG_CALL_RETURN_TO);
}

static void collect(const struct module *module, uint32_t function, int by_slots, struct wishes *wishes)
{
	wishes->count = 0;
	wishes->gate = 0;
	for (const struct asked_module *asker = module->askers; asker; asker = asker->next_asker) {
		const struct asked_function *asked = &asker->functions[function];
		if (by_slots)
			wish_through_slots(wishes, asker->session, asked);
		else
			wish_at_entry(wishes, asker->session, asked);
	}
	wishes->gate = gate_for(&module->answer.index->functions[function], wishes->gate);
}

/* ---- one control ---------------------------------------------------------------------- */

/* Where modules lie in the programs of a family. */
static int base_in(void *context, const void *of, uint64_t *base)
{
	const struct family *family = context;
	const struct module *module = of;
	struct plan_caller wanted = {.build_id_length = module->file.build_id_length};
	memcpy(wanted.build_id, module->file.build_id, sizeof wanted.build_id);
	memcpy(wanted.path, module->file.path, sizeof wanted.path);
	return requests_module_base(family->requests, &wanted, base) ? 0 : -1;
}

/* One of them changes settings. */
struct target {
	struct function_traces *functions;
	struct family *family;
	struct live_control *control;
	struct module *module;
	struct wishes wishes;
	uint64_t now_ns;
	uint32_t failed;
};

static void set_place(struct target *target, uint32_t function, uint32_t place, int by_slots)
{
	const struct control_bases bases = {base_in, target->family};
	if (place == INDEX_NONE)
		return;
	collect(target->module, function, by_slots, &target->wishes);
	if (!target->wishes.count && !target->wishes.gate && !control_gate(target->control, place))
		return;
	if (control_set(target->control, place, target->wishes.list, target->wishes.count, target->wishes.gate, &bases, target->now_ns))
		target->failed++;
}

static void set_function(struct target *target, uint32_t function)
{
	const struct index_function *known = &target->module->answer.index->functions[function];
	set_place(target, function, known->code, 0);
	set_place(target, function, known->slots, 1);
}

static void set_functions(struct target *target, const uint32_t *list, uint32_t count)
{
	const struct plan_index *index = target->module->answer.index;
	for (uint32_t i = 0; i < (list ? count : index->count); i++)
		set_function(target, list ? list[i] : i);
	if (!target->failed) {
		target->control->crowded &= list != NULL;
		return;
	}
	/* Presently what was there before has rested. */
	target->functions->refill_ns = target->now_ns + CONTROL_REST_NS;
	if (target->control->adopted_ns) {
		target->control->adopted_ns = 0;
		return;
	}
	if (!target->control->crowded++)
		notes_gap(&target->functions->context->notes, target->failed, 0, target->module->file.name,
			  "there is no room for more settings of sessions in the programs");
}

/* The settings' places are one for all; a function with 127 sessions and meta has the most. */
static void publish_in(struct function_traces *functions, struct family *family, struct live_control *control, struct module *module,
		       const uint32_t *list, uint32_t count)
{
	struct target *target = calloc(1, sizeof *target);
	if (!target)
		return;
	target->functions = functions;
	target->family = family;
	target->control = control;
	target->module = module;
	target->now_ns = clock_monotonic_ns();
	set_functions(target, list, count);
	free(target);
}

void functions_fill(struct function_traces *functions, struct family *family, struct live_control *control)
{
	struct module *module = functions_module_with_plan(functions, control->plan->plan_id);
	if (module && module->askers)
		publish_in(functions, family, control, module, NULL, 0);
}

void functions_place_callers(struct family *family, struct live_control *control)
{
	const struct control_bases bases = {base_in, family};
	if (control->state)
		control_place_callers(control, &bases);
}

/* ---- all families ------------------------------------------------------------------------- */

void functions_set(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count)
{
	struct family_context *context = functions->context;
	functions->changes++;
	for (uint32_t i = 0; module->state == PLAN_READY && i < context->family_count; i++) {
		struct family *family = context->families[i];
		struct live_control *control = requests_live_control(family->requests, module->answer.plan_id);
		if (control && control->state)
			publish_in(functions, family, control, module, list, count);
	}
}

uint32_t functions_publish(struct function_traces *functions, struct module *module, const uint32_t *list, uint32_t count)
{
	struct family_context *context = functions->context;
	uint32_t later = 0;
	functions->changes++;
	for (uint32_t i = 0; module->state == PLAN_READY && i < context->family_count; i++) {
		struct family *family = context->families[i];
		struct live_control *control = requests_live_control(family->requests, module->answer.plan_id);
		if (!control || !control->state)
			continue;
		publish_in(functions, family, control, module, list, count);
		later += requests_switch(family->requests, control);
	}
	return later;
}

uint32_t functions_switch_again(struct function_traces *functions, const struct module *module)
{
	struct family_context *context = functions->context;
	uint32_t later = 0;
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct family *family = context->families[i];
		struct live_control *control = requests_live_control(family->requests, module->answer.plan_id);
		if (control && control->state)
			later += requests_switch_again(family->requests, control);
	}
	return later;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint32_t gates_of(const struct asked *asked)
{
	const uint32_t every_kind = LORG_GATE_MESSAGE | LORG_MASK_SEND | LORG_MASK_RECEIVE | LORG_GATE_PORT | LORG_GATE_PROCESS |
				    LORG_GATE_RUNNING | LORG_MASK_COLLECTION;
	uint32_t gates = asked->kinds ? LORG_GATE_CALL : 0;
	gates |= asked->kinds & LORG_KIND_TIME ? LORG_GATE_RUNNING : 0; /* waits are no time of calls */
	gates |= asked->kinds & LORG_KIND_MEMORY ? LORG_GATE_COUNT : 0;
	if ((asked->match && asked->match->sets_flags) || (asked->meta_match && asked->meta_match->sets_flags))
		gates |= every_kind;
	return gates;
}

void functions_set_gates(struct function_traces *functions, struct session *session)
{
	uint32_t gates = session->functions ? gates_of(&session->functions->on_load) : 0;
	for (const struct asked_module *asked = session->functions ? session->functions->modules : NULL; asked; asked = asked->next)
		for (uint32_t i = 0; i < asked->module->answer.index->count; i++)
			gates |= gates_of(&asked->functions[i].asked);
	if (session->functions)
		session->functions->asked_seen = session->asked & FLAGS_HEEDED;
	if (gates == session->function_gates)
		return;
	session->function_gates = gates;
	sessions_publish(functions->sessions);
}
