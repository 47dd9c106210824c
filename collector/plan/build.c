/* SPDX-License-Identifier: MIT */
/* build.c: see build.h. */
#include "collector/plan/build.h"

#include "collector/plan/index.h"
#include "collector/plan/match.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAXIMUM = 32, ARITY_UNKNOWN = LORG_ARITY_UNKNOWN, WORD = 8, REGISTERS = 6 };

/* Bytes that grow; failed: out of memory. */
struct area {
	uint8_t *bytes;
	size_t used, room;
	int failed;
};

static void *area_add(struct area *area, const void *bytes, size_t size)
{
	while (!area->failed && area->used + size > area->room) {
		size_t room = area->room ? 2 * area->room : 4096;
		uint8_t *more = realloc(area->bytes, room);
		if (more) {
			area->bytes = more;
			area->room = room;
		} else {
			area->failed = 1;
		}
	}
	if (area->failed)
		return NULL;
	void *at = area->bytes + area->used;
	memcpy(at, bytes, size);
	area->used += size;
	return at;
}

struct building {
	const struct build_request *request;
	struct built *built;
	struct value_source *source;
	uint64_t dwarf_bias; /* address in the file with debug information less address in the object */
	struct value_area captures, names;
	struct area functions, code, controls, settings, callers, told, refused, slots;
	struct area programs, known_programs, program_ranges, own_texts;
	uint32_t integer_result; /* capture of a result of which nothing is known + 1; 0: not made yet */
	uint32_t words;		 /* captures of arguments of which nothing is known + 1, likewise */
};

/* ---- which functions --------------------------------------------------- */

int pattern_names_function(const struct pattern *pattern, const struct analysis *analysis, size_t index, int arity)
{
	const struct functions *functions = &analysis->functions;
	const struct function *function = &functions->list[index];
	if (pattern->arity != PATTERN_ANY_ARITY && arity != pattern->arity &&
	    !(arity < 0 && glob_is_literal(pattern->module) && glob_is_literal(pattern->function)))
		return 0;
	for (uint32_t i = 0; i < function->name_count; i++) {
		const struct function_name *name = &functions->names[function->first_name + i];
		if (pattern_matches_name(pattern, name->text, name->version, name->file))
			return 1;
	}
	if (pattern->where || function->name_count)
		return 0;
	char place[32];
	snprintf(place, sizeof place, "+0x%" PRIx64, function->address);
	return glob_matches(pattern->function, place);
}

int pattern_names_object(const struct pattern *pattern, const struct object *object)
{
	return pattern_matches_module(pattern, object->file_name, object->soname, object->path) ||
	       (object->alias && pattern_matches_module(pattern, object->alias, NULL, NULL));
}

static int names_module(const struct rule *rule, const struct object *object)
{
	return pattern_names_object(&rule->pattern, object);
}

int rules_name_module(const struct rule *rules, uint32_t count, const struct object *object)
{
	for (uint32_t i = 0; i < count; i++)
		if (rules[i].kind < RULE_NOTRACE && names_module(&rules[i], object))
			return 1;
	return 0;
}

int rules_need_slots(const struct rule *rules, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (rules[i].kind < RULE_NOTRACE)
			return 1;
	return 0;
}

/* ---- what is known of a function --------------------------------------- */

/* Its names, the one that says most first; zero-ended. */
static void list_names(const struct analysis *analysis, const struct function *function, const char **list)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < function->name_count && count + 1 < NAMES_MAXIMUM; i++) {
		const char *name = analysis->functions.names[function->first_name + i].text;
		uint32_t at = name[plain_name_length(name)] ? 0 : count;
		memmove(list + at + 1, list + at, (count - at) * sizeof *list);
		list[at] = name;
		count++;
	}
	list[count] = NULL;
}

static void find_values(struct building *building, const struct function *function, struct value_function *values)
{
	const char *names[NAMES_MAXIMUM];
	*values = (struct value_function){.arity = ARITY_UNKNOWN};
	list_names(building->request->analysis, function, names);
	if (building->source)
		value_for_function(building->source, function->address + building->dwarf_bias, names, &building->captures, &building->names,
				   values);
}

/* Arguments of which nothing but their number is known: words, in registers and then on the stack. Their place + 1; 0: no memory. */
static uint32_t add_words(struct building *building, int count)
{
	struct lorg_capture captures[LORG_CAPTURES];
	for (int i = 0; i < count; i++) {
		int in_register = i < REGISTERS;
		captures[i] = (struct lorg_capture){
			.form = LORG_FORM_SIGNED,
			.place = in_register ? LORG_PLACE_INTEGER : LORG_PLACE_STACK,
			.index = in_register ? (uint8_t)i : 0,
			.size = WORD,
			.offset = in_register ? 0 : WORD * (i - REGISTERS),
		};
	}
	uint32_t at = value_area_add(&building->captures, captures, (size_t)count * sizeof *captures);
	return at == UINT32_MAX ? 0 : at + 1;
}

/* Somebody has said how many arguments a function of unknown arity has. */
static void declare_arguments(struct building *building, int arity, struct value_function *values)
{
	int count = arity < LORG_CAPTURES ? arity : LORG_CAPTURES;
	values->arity = (uint8_t)arity;
	values->arguments = count ? add_words(building, count) : 0;
	values->argument_count = values->arguments ? (uint8_t)count : 0;
}

/* Somebody may say it later: each session for itself. */
static uint32_t all_words(struct building *building)
{
	if (!building->words)
		building->words = add_words(building, LORG_CAPTURES);
	return building->words;
}

/* Of a result of which nothing is known: the integer register. */
static uint32_t unknown_result(struct building *building)
{
	const struct lorg_capture result = {.form = LORG_FORM_SIGNED, .place = LORG_PLACE_INTEGER, .size = WORD};
	if (!building->integer_result) {
		uint32_t at = value_area_add(&building->captures, &result, sizeof result);
		building->integer_result = at == UINT32_MAX ? 0 : at + 1;
	}
	return building->integer_result;
}

/* ---- what is asked of a function --------------------------------------- */

struct asked {
	uint32_t first_rule; /* + 1; 0: none names it */
	uint32_t kinds;	     /* enum lorg_call_kind of counters */
	uint32_t gate;
	int local, global;   /* where it is to be hooked; local falls back on global */
	int declared;	     /* arity that a rule has said; -1 none */
	const struct rule *match; /* whose match specification decides; NULL: none does */
	int returns;	     /* calls that the specification lets pass are told with their returns, whatever it says */
	struct lorg_call_setting setting;
};

static void ask_calls(const struct building *building, const struct rule *rule, struct asked *asked)
{
	struct lorg_call_setting *setting = &asked->setting;
	const uint64_t frequency = building->request->tick_frequency;
	const uint32_t of_calls = LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_VALUES | LORG_CALL_RETURN_TO;
	/* The last rule that names the function decides, as in trace(3). */
	asked->gate = (asked->gate & ~of_calls) | rule->gate;
	asked->match = rule->match ? rule : NULL;
	asked->returns = !rule->match || rule->is_condition;
	setting->maximum_depth = rule->maximum_depth;
	setting->least_ticks = (uint64_t)((double)rule->longer_than_ns * (double)frequency / 1e9);
	setting->limit_events = rule->limit_events;
	setting->limit_rate = rule->limit_rate;
	asked->global |= rule->kind == RULE_CALL_GLOBAL;
	asked->local |= rule->kind == RULE_CALL;
}

static void ask(const struct building *building, const struct rule *rule, struct asked *asked)
{
	switch (rule->kind) {
	case RULE_CALL:
	case RULE_CALL_GLOBAL:
		ask_calls(building, rule, asked);
		break;
	case RULE_COUNT:
		asked->kinds |= LORG_KIND_COUNT;
		asked->gate |= LORG_CALL_COUNT;
		asked->local = 1;
		break;
	case RULE_TIME:
		asked->kinds |= LORG_KIND_TIME;
		asked->gate |= LORG_CALL_TIME;
		asked->local = 1;
		break;
	case RULE_MEMORY:
		asked->kinds |= LORG_KIND_MEMORY;
		asked->gate |= LORG_CALL_MEMORY;
		asked->local = 1;
		break;
	default:
		break;
	}
	asked->setting.session = rule->session;
}

/* All rules on one function. Returns 0 where none names it. */
static int ask_rules(struct building *building, size_t function, int arity, struct asked *asked)
{
	const struct build_request *request = building->request;
	*asked = (struct asked){.declared = -1};
	for (uint32_t i = 0; i < request->rule_count; i++) {
		const struct rule *rule = &request->rules[i];
		if (rule->kind >= RULE_NOTRACE || !names_module(rule, request->analysis->object) ||
		    !pattern_names_function(&rule->pattern, request->analysis, function, arity))
			continue;
		if (arity < 0 && rule->pattern.arity != PATTERN_ANY_ARITY)
			asked->declared = rule->pattern.arity;
		if (!asked->first_rule)
			asked->first_rule = i + 1;
		building->built->named[i]++;
		ask(building, rule, asked);
	}
	return asked->first_rule != 0;
}

/* Notrace is looked at first: what it takes away counts for no other rule. */
static int is_taken_out(const struct building *building, size_t function, int arity)
{
	const struct build_request *request = building->request;
	for (uint32_t i = 0; i < request->rule_count; i++) {
		const struct rule *rule = &request->rules[i];
		if (rule->kind == RULE_NOTRACE && names_module(rule, request->analysis->object) &&
		    pattern_names_function(&rule->pattern, request->analysis, function, arity)) {
			building->built->named[i]++;
			return 1;
		}
	}
	return 0;
}

/* ---- settings ---------------------------------------------------------- */

static uint32_t setting_count(const struct building *building)
{
	return (uint32_t)(building->settings.used / sizeof(struct lorg_call_setting));
}

/* One setting like that, made now or, where it does not count for a function alone, before. Returns its index + 1. */
static uint32_t add_setting(struct building *building, const struct lorg_call_setting *setting, const struct plan_caller *caller)
{
	enum { LOOKED_AT = 64 };
	static const struct plan_caller own;
	const struct lorg_call_setting *all = (const struct lorg_call_setting *)(const void *)building->settings.bytes;
	const struct plan_caller *callers = (const struct plan_caller *)(const void *)building->callers.bytes;
	uint32_t count = setting_count(building);
	int is_shared = !setting->limit_events && !setting->limit_rate;
	if (!caller)
		caller = &own;
	for (uint32_t i = 0; is_shared && i < count && i < LOOKED_AT; i++)
		if (memcmp(&all[i], setting, sizeof *setting) == 0 && memcmp(&callers[i], caller, sizeof *caller) == 0)
			return i + 1;
	if (!area_add(&building->settings, setting, sizeof *setting) || !area_add(&building->callers, caller, sizeof own))
		return 0;
	return count + 1;
}

enum { LATER_CALLERS = 8 /* ranges of modules that are loaded later */ };

static uint32_t make_setting(struct building *building, struct asked *asked, uint32_t kind)
{
	const struct build_request *request = building->request;
	struct lorg_call_setting setting = asked->setting;
	setting.kind = kind | asked->kinds;
	setting.gate = asked->returns ? asked->gate : asked->gate & ~(uint32_t)LORG_CALL_RETURN;
	if (!request->caller_count || !(asked->gate & (LORG_CALL_ENTRY | LORG_CALL_RETURN)))
		return add_setting(building, &setting, NULL);
	uint32_t next = 0;
	for (uint32_t i = LATER_CALLERS; i > 0; i--) {
		const struct plan_caller later = {.later = i};
		setting.caller_low = UINT64_MAX; /* no call comes from there */
		setting.caller_high = LORG_CALLER_FREE;
		setting.next = next;
		next = add_setting(building, &setting, &later);
		if (!next)
			return 0;
	}
	for (uint32_t i = request->caller_count; i-- > 0;) {
		setting.caller_low = request->callers[i].low;
		setting.caller_high = request->callers[i].high;
		setting.next = next;
		next = add_setting(building, &setting, request->callers[i].module);
		if (!next)
			return 0;
	}
	return next;
}

static int has_filter(const struct building *building, const struct asked *asked)
{
	const struct lorg_call_setting *setting = &asked->setting;
	return setting->maximum_depth || setting->least_ticks || setting->limit_events || setting->limit_rate || setting->program ||
	       building->request->caller_count || building->request->flags_matter;
}

/* ---- match programs ------------------------------------------------------ */

/* A program that is there already; functions whose parameters stand alike have the same. */
struct known_program {
	const struct rule *rule;
	uint32_t at, size;
	uint32_t first_range, range_count;
};

static int is_same_module(const struct plan_caller *a, const struct plan_caller *b)
{
	return a->build_id_length == b->build_id_length && memcmp(a->build_id, b->build_id, sizeof a->build_id) == 0 &&
	       strcmp(a->path, b->path) == 0;
}

static int has_same_ranges(const struct building *building, const struct known_program *known, const struct plan_match *match)
{
	const struct plan_program_range *all = (const void *)building->program_ranges.bytes;
	for (uint32_t i = 0; i < known->range_count; i++)
		if (!is_same_module(&all[known->first_range + i].module, match->ranges[i].module))
			return 0;
	return 1;
}

static const struct known_program *find_program(const struct building *building, const struct plan_match *match)
{
	enum { LOOKED_AT = 64 };
	const struct known_program *all = (const void *)building->known_programs.bytes;
	size_t count = building->known_programs.used / sizeof *all;
	for (size_t i = count; i-- > 0 && count - i <= LOOKED_AT;)
		if (all[i].size == match->code.size && all[i].range_count == match->range_count &&
		    memcmp(building->programs.bytes + all[i].at, match->code.memory, match->code.size) == 0 &&
		    has_same_ranges(building, &all[i], match))
			return &all[i];
	return NULL;
}

/* Offset + 1. */
static uint32_t add_program(struct building *building, const struct rule *rule, const struct plan_match *match)
{
	const struct known_program *same = find_program(building, match);
	if (same)
		return same->at + 1;
	const struct lorg_match_head *head = (const void *)match->code.memory;
	struct known_program known = {.rule = rule,
				      .at = (uint32_t)building->programs.used,
				      .size = (uint32_t)match->code.size,
				      .first_range = (uint32_t)(building->program_ranges.used / sizeof(struct plan_program_range)),
				      .range_count = match->range_count};
	for (uint32_t i = 0; i < match->range_count && i < head->ranges; i++) {
		const struct plan_program_range range = {.at = known.at + head->range_offset + i * sizeof(struct lorg_match_range),
							 .first = match->ranges[i].low,
							 .last = match->ranges[i].high - 1,
							 .module = *match->ranges[i].module};
		area_add(&building->program_ranges, &range, sizeof range);
	}
	area_add(&building->programs, match->code.memory, match->code.size);
	area_add(&building->known_programs, &known, sizeof known);
	return known.at + 1;
}

static const char *own_text(struct building *building, const char *text)
{
	char *const *known = (char *const *)(const void *)building->own_texts.bytes;
	for (size_t i = 0; i < building->own_texts.used / sizeof *known; i++)
		if (strcmp(known[i], text) == 0)
			return known[i];
	char *copy = strdup(text);
	if (copy && !area_add(&building->own_texts, &copy, sizeof copy)) {
		free(copy);
		copy = NULL;
	}
	return copy ? copy : "out of memory";
}

static void tell_refusal(struct rule_refusal *refusal, const char *module, const char *function, const char *why)
{
	if (!refusal || __atomic_load_n(&refusal->set, __ATOMIC_RELAXED))
		return;
	snprintf(refusal->why, sizeof refusal->why, "%s:%s: %s", module, function ? function : "?", why);
	__atomic_store_n(&refusal->set, 1, __ATOMIC_RELEASE);
}

/* Compiles the specification for this function. NULL, or why it is refused. */
static const char *make_program(struct building *building, size_t index, struct asked *asked)
{
	const struct build_request *request = building->request;
	const struct function *function = &request->analysis->functions.list[index];
	const char *names[NAMES_MAXIMUM];
	struct plan_match match;
	list_names(request->analysis, function, names);
	const struct plan_match_request wanted = {
		.text = asked->match->match,
		.is_condition = asked->match->is_condition,
		.source = building->source,
		.offset = function->address + building->dwarf_bias,
		.names = names,
		.code_owner = request->code_owner,
		.code_ranges = request->code_ranges,
	};
	if (plan_match_compile(&wanted, &match)) {
		char why[640];
		snprintf(why, sizeof why, "%s: %s", asked->match->is_condition ? "condition" : "match specification", match.why);
		tell_refusal(asked->match->refusal, request->analysis->object->module, names[0], match.why);
		plan_match_free(&match);
		return own_text(building, why);
	}
	const struct lorg_match_head *head = (const void *)match.code.memory;
	if (!asked->match->is_condition && !(head->needs & LORG_MATCH_NEEDS_RETURN) && !asked->setting.least_ticks)
		asked->gate &= ~(uint32_t)LORG_CALL_RETURN;
	asked->setting.program = add_program(building, asked->match, &match);
	plan_match_free(&match);
	return NULL;
}

/* ---- one function ------------------------------------------------------ */

static char *copy_or_null(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* The name by which people know it who have asked for it (_exit, not _Exit), else its best one; NULL: it has none. */
static const struct function_name *name_asked_for(const struct building *building, const struct function *function, uint32_t rule)
{
	const struct functions *functions = &building->request->analysis->functions;
	for (uint32_t i = 0; i < function->name_count; i++) {
		const struct function_name *name = &functions->names[function->first_name + i];
		if (strcmp(name->text, building->request->rules[rule].pattern.function) == 0)
			return name;
	}
	return function_name(functions, function);
}

static void tell(struct building *building, struct area *area, size_t index, const struct told_function *told)
{
	const struct analysis *analysis = building->request->analysis;
	const struct function_name *name = name_asked_for(building, &analysis->functions.list[index], told->rule);
	struct told_function copy = *told;
	copy.name = copy_or_null(name ? name->text : NULL);
	copy.file = copy_or_null(name ? name->file : NULL);
	if (!area_add(area, &copy, sizeof copy)) {
		free(copy.name);
		free(copy.file);
	}
}

static const char dynamic_only[] = "it is in no dynamic symbol table: no call to it passes a slot";

static void refuse(struct building *building, size_t index, const struct asked *asked, const char *why)
{
	const struct function *function = &building->request->analysis->functions.list[index];
	const struct told_function told = {
		.arity = UINT32_MAX, .offset = function->address, .size = function->size, .why = why, .rule = asked->first_rule - 1};
	building->built->refused_of[told.rule]++;
	tell(building, &building->refused, index, &told);
}

static uint32_t dynamic_name(struct building *building, size_t index)
{
	const struct functions *functions = &building->request->analysis->functions;
	const struct function *function = &functions->list[index];
	for (uint32_t i = 0; i < function->name_count; i++) {
		const struct function_name *name = &functions->names[function->first_name + i];
		if (name->dynamic)
			return value_area_text(&building->names, name->text) - 1;
	}
	return UINT32_MAX;
}

static void copy_entry(struct building *building, const struct entry *entry, struct lorg_plan_function *function)
{
	function->entry_kind = (uint8_t)entry->kind;
	function->skip = entry->skip;
	function->taken = entry->taken;
	function->code_length = entry->code_length;
	function->fixup_count = entry->fixup_count;
	function->moved_count = entry->moved_count;
	for (unsigned i = 0; i < entry->moved_count; i++) {
		function->moved[i].code = entry->moved[i].code;
		function->moved[i].original = entry->moved[i].original;
	}
	function->code = (uint32_t)building->code.used;
	area_add(&building->code, entry->code, entry->code_length);
	for (unsigned i = 0; i < entry->fixup_count; i++) {
		function->fixup[i].at = entry->fixups[i].at;
		function->fixup[i].from = entry->fixups[i].from;
		function->fixup[i].target = entry->fixups[i].target;
	}
	memcpy(&function->original, entry->original, sizeof function->original);
	memcpy(function->original_rest, entry->original + sizeof function->original, sizeof function->original_rest);
}

static void add_function(struct building *building, size_t index, struct asked *asked, struct value_function *values, int by_code)
{
	struct analysis *analysis = building->request->analysis;
	const struct function *source = &analysis->functions.list[index];
	struct built *built = building->built;
	uint32_t flags = analysis_flags(analysis, index) | values->flags;
	flags |= by_code ? LORG_PLAN_CODE : 0;
	flags |= asked->global || !by_code ? LORG_PLAN_SLOTS : 0;
	if (flags & LORG_PLAN_SLOTS && !analysis_is_exported(analysis, index))
		flags &= ~(uint32_t)LORG_PLAN_SLOTS;
	if (asked->declared >= 0)
		declare_arguments(building, asked->declared, values);
	struct lorg_plan_function function = {
		.offset = source->address,
		.size = source->size > UINT32_MAX ? UINT32_MAX : (uint32_t)source->size,
		.flags = flags,
		.arity = values->arity,
		.argument_count = values->argument_count,
		.arguments = values->arguments,
		.result = values->result ? values->result : unknown_result(building),
		.name = dynamic_name(building, index),
	};
	if (by_code)
		copy_entry(building, analysis_entry(analysis, index), &function);
	uint32_t kind = asked->gate & (LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_VALUES)
				? by_code ? LORG_KIND_LOCAL : LORG_KIND_GLOBAL
				: 0;
	uint32_t gate = asked->gate | (has_filter(building, asked) ? LORG_CALL_FILTER : 0);
	if (flags & LORG_PLAN_ENTRY_ONLY) {
		if (gate & (LORG_CALL_TIME | LORG_CALL_MEMORY)) /* its calls can be counted all the same */
			gate |= LORG_CALL_COUNT;
		gate &= ~(uint32_t)(LORG_CALL_RETURN | LORG_CALL_TIME | LORG_CALL_MEMORY | LORG_CALL_RETURN_TO);
	}
	asked->gate = gate;
	const struct lorg_function_control control = {.gate = gate, .setting = make_setting(building, asked, kind)};
	const struct told_function told = {
		.arity = values->arity == ARITY_UNKNOWN ? UINT32_MAX : values->arity,
		.tier = by_code ? 3 : 2,
		.flags = flags,
		.offset = source->address,
		.size = source->size,
		.rule = asked->first_rule - 1,
	};
	area_add(&building->functions, &function, sizeof function);
	area_add(&building->controls, &control, sizeof control);
	tell(building, &building->told, index, &told);
	built->by_code += (uint32_t)by_code;
	built->by_slots += (uint32_t)!by_code;
	built->entry_only += (flags & LORG_PLAN_ENTRY_ONLY) != 0;
}

/* A quick look by names alone, before anything is found out about it. */
static int may_be_named(const struct building *building, size_t index)
{
	const struct build_request *request = building->request;
	for (uint32_t i = 0; i < request->rule_count; i++) {
		const struct rule *rule = &request->rules[i];
		struct pattern any_arity = rule->pattern;
		any_arity.arity = PATTERN_ANY_ARITY;
		if (rule->kind < RULE_NOTRACE && names_module(rule, request->analysis->object) &&
		    pattern_names_function(&any_arity, request->analysis, index, -1))
			return 1;
	}
	return 0;
}

static void consider(struct building *building, size_t index)
{
	struct analysis *analysis = building->request->analysis;
	struct value_function values;
	struct asked asked;
	if (!may_be_named(building, index))
		return;
	size_t captures = building->captures.used, names = building->names.used;
	find_values(building, &analysis->functions.list[index], &values);
	int arity = values.arity == ARITY_UNKNOWN ? -1 : values.arity;
	if (is_taken_out(building, index, arity) || !ask_rules(building, index, arity, &asked)) {
		building->captures.used = captures;
		building->names.used = names;
		return;
	}
	const struct entry *entry = analysis_entry(analysis, index);
	int exported = analysis_is_exported(analysis, index);
	const char *wrong = asked.match ? make_program(building, index, &asked) : NULL;
	if (wrong)
		refuse(building, index, &asked, wrong);
	else if (asked.local && !entry->refusal)
		add_function(building, index, &asked, &values, 1);
	else if (exported)
		add_function(building, index, &asked, &values, 0);
	else
		refuse(building, index, &asked,
		       asked.local || entry->refusal == REFUSED_CHOSEN ? refusal_text(entry->refusal) : dynamic_only);
}

/* ---- whole modules ------------------------------------------------------- */

/* One of the places of a function: at its entry, or through slots. Returns its number in the plan. */
static uint32_t add_place(struct building *building, size_t index, const struct value_function *values, uint32_t flags, int by_code)
{
	struct analysis *analysis = building->request->analysis;
	const struct function *source = &analysis->functions.list[index];
	const uint32_t place = (uint32_t)(building->functions.used / sizeof(struct lorg_plan_function));
	struct lorg_plan_function function = {
		.offset = source->address,
		.size = source->size > UINT32_MAX ? UINT32_MAX : (uint32_t)source->size,
		.flags = flags | (by_code ? LORG_PLAN_CODE : LORG_PLAN_SLOTS),
		.arity = values->arity,
		.argument_count = values->argument_count,
		.arguments = values->arity == ARITY_UNKNOWN ? all_words(building) : values->arguments,
		.result = values->result ? values->result : unknown_result(building),
		.name = by_code ? UINT32_MAX : dynamic_name(building, index),
	};
	const struct lorg_function_control control = {0};
	if (by_code)
		copy_entry(building, analysis_entry(analysis, index), &function);
	area_add(&building->functions, &function, sizeof function);
	area_add(&building->controls, &control, sizeof control);
	building->built->by_code += (uint32_t)by_code;
	building->built->by_slots += (uint32_t)!by_code;
	return place;
}

/* Those that can be hooked in neither way stand in the index alone. */
static void take_in(struct building *building, size_t index)
{
	struct analysis *analysis = building->request->analysis;
	struct index_function *known = &building->request->index->functions[index];
	const struct entry *entry = analysis_entry(analysis, index);
	int exported = analysis_is_exported(analysis, index);
	struct value_function values;
	find_values(building, &analysis->functions.list[index], &values);
	known->arity = values.arity;
	known->refusal = (uint8_t)entry->refusal;
	known->flags = analysis_flags(analysis, index) | values.flags;
	if (!entry->refusal)
		known->code = add_place(building, index, &values, known->flags, 1);
	if (exported)
		known->slots = add_place(building, index, &values, known->flags, 0);
}

/* ---- slots ------------------------------------------------------------- */

/* Slots that may lead to a function of any module that is hooked through slots: by name. */
static int is_slot_wanted(const struct building *building, const struct object_slot *slot)
{
	const struct build_request *request = building->request;
	if (request->index)
		return 1;
	for (uint32_t i = 0; i < request->rule_count; i++) {
		const struct rule *rule = &request->rules[i];
		if (rule->kind < RULE_NOTRACE && pattern_matches_name(&rule->pattern, slot->name, slot->version, NULL))
			return 1;
		/* A pattern may use another name of what the slot leads to. */
		if (rule->kind < RULE_NOTRACE && !rule->pattern.where && glob_is_literal(rule->pattern.function))
			return 1;
	}
	return 0;
}

static void add_slots(struct building *building)
{
	struct analysis *analysis = building->request->analysis;
	for (size_t i = 0; i < analysis->object->slot_count; i++) {
		const struct object_slot *slot = &analysis->object->slots[i];
		if (!analysis_slot_usable(analysis, i) || !is_slot_wanted(building, slot))
			continue;
		const struct lorg_plan_slot entry = {
			.offset = slot->address,
			.name = value_area_text(&building->names, slot->name) - 1,
			.version = slot->version ? value_area_text(&building->names, slot->version) - 1 : UINT32_MAX,
			.kind = slot->lazy ? LORG_SLOT_JUMP : LORG_SLOT_DATA,
			.relocation = slot->relocation,
		};
		area_add(&building->slots, &entry, sizeof entry);
	}
}

/* ---- the whole --------------------------------------------------------- */

static uint64_t append(struct area *plan, const void *bytes, size_t size)
{
	static const uint8_t zeros[8];
	area_add(plan, zeros, (8 - (plan->used & 7)) & 7);
	uint64_t at = plan->used;
	if (size)
		area_add(plan, bytes, size);
	return at;
}

static void lay_out(struct building *building)
{
	const struct build_request *request = building->request;
	const struct object *object = request->analysis->object;
	struct built *built = building->built;
	struct area plan = {0};
	struct lorg_plan head = {
		.magic = LORG_PLAN_MAGIC,
		.major = LORG_ABI_MAJOR,
		.minor = LORG_ABI_MINOR,
		.size = sizeof head,
		.function_count = (uint32_t)(building->functions.used / sizeof(struct lorg_plan_function)),
		.slot_count = (uint32_t)(building->slots.used / sizeof(struct lorg_plan_slot)),
		.plan_id = request->plan_id,
		.first_function = request->first_function,
		.build_id_length = object->build_id_length,
		.text_start = object->text_start,
		.text_end = object->text_end,
		.code_size = building->code.used,
		.captures_size = building->captures.used,
		.names_size = building->names.used,
	};
	built->function_count = head.function_count;
	if (!head.function_count && !head.slot_count)
		return;
	memcpy(head.build_id, object->build_id, sizeof head.build_id);
	snprintf(head.module, sizeof head.module, "%s", object->module);
	area_add(&plan, &head, sizeof head);
	head.functions = append(&plan, building->functions.bytes, building->functions.used);
	head.slots = append(&plan, building->slots.bytes, building->slots.used);
	head.code = append(&plan, building->code.bytes, building->code.used);
	head.captures = append(&plan, building->captures.bytes, building->captures.used);
	head.names = append(&plan, building->names.bytes, building->names.used);
	append(&plan, NULL, 0);
	head.plan_size = plan.used;
	if (plan.failed) {
		free(plan.bytes);
		return;
	}
	memcpy(plan.bytes, &head, sizeof head);
	built->bytes = plan.bytes;
	built->size = plan.used;
}

static int has_failed(const struct building *building)
{
	return building->captures.failed || building->names.failed || building->functions.failed || building->code.failed ||
	       building->controls.failed || building->settings.failed || building->callers.failed || building->told.failed ||
	       building->refused.failed || building->slots.failed || building->programs.failed || building->known_programs.failed ||
	       building->program_ranges.failed || building->own_texts.failed;
}

static void open_source(struct building *building)
{
	const struct object *object = building->request->analysis->object;
	Dwarf_Addr bias = 0;
	Dwarf *dwarf = dwfl_module_getdwarf(object->dwfl_module, &bias);
	building->dwarf_bias = dwarf ? object->bias - bias : 0;
	building->source = value_source_open(building->request->prototypes, dwarf, object->module);
}

static void hand_over(struct building *building)
{
	struct built *built = building->built;
	built->functions = (void *)building->controls.bytes;
	built->settings = (void *)building->settings.bytes;
	built->setting_count = setting_count(building);
	built->callers = (void *)building->callers.bytes;
	built->told = (void *)building->told.bytes;
	built->told_count = (uint32_t)(building->told.used / sizeof(struct told_function));
	built->refused = (void *)building->refused.bytes;
	built->programs = building->programs.bytes;
	built->programs_size = building->programs.used;
	built->program_ranges = (void *)building->program_ranges.bytes;
	built->program_range_count = (uint32_t)(building->program_ranges.used / sizeof(struct plan_program_range));
	built->own_texts = (char **)(void *)building->own_texts.bytes;
	built->own_text_count = (uint32_t)(building->own_texts.used / sizeof(char *));
	built->refused_count = (uint32_t)(building->refused.used / sizeof(struct told_function));
}

int build_plan(const struct build_request *request, struct built *built)
{
	struct building building = {.request = request, .built = built};
	const size_t rules = request->rule_count + 1;
	*built = (struct built){.named = calloc(rules, sizeof *built->named), .refused_of = calloc(rules, sizeof *built->refused_of)};
	if (!built->named || !built->refused_of) {
		built_free(built);
		return -1;
	}
	if (request->index || rules_name_module(request->rules, request->rule_count, request->analysis->object)) {
		open_source(&building);
		for (size_t i = 0; i < request->analysis->functions.count; i++)
			if (building.functions.used / sizeof(struct lorg_plan_function) + 1 < LORG_PLAN_FUNCTIONS)
				request->index ? take_in(&building, i) : consider(&building, i);
		value_source_close(building.source);
	}
	add_slots(&building);
	lay_out(&building);
	hand_over(&building);
	int failed = has_failed(&building) || (built->function_count && !built->bytes);
	value_area_free(&building.captures);
	value_area_free(&building.names);
	free(building.functions.bytes);
	free(building.code.bytes);
	free(building.slots.bytes);
	free(building.known_programs.bytes);
	if (!failed)
		return 0;
	built_free(built);
	return -1;
}

static void free_told(struct told_function *told, uint32_t count)
{
	for (uint32_t i = 0; told && i < count; i++) {
		free(told[i].name);
		free(told[i].file);
	}
	free(told);
}

void built_free(struct built *built)
{
	free_told(built->told, built->told_count);
	free_told(built->refused, built->refused_count);
	free(built->bytes);
	free(built->functions);
	free(built->settings);
	free(built->callers);
	free(built->programs);
	free(built->program_ranges);
	for (uint32_t i = 0; i < built->own_text_count; i++)
		free(built->own_texts[i]);
	free(built->own_texts);
	free(built->named);
	free(built->refused_of);
	*built = (struct built){0};
}
