/* SPDX-License-Identifier: MIT */
/* calls.c: see calls.h. */
#include "collector/command/calls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/command/error.h"
#include "collector/command/node.h"
#include "collector/match/compile.h"
#include "collector/plan/package.h"
#include "collector/plan/plan.h"
#include "collector/plan/rule.h"
#include "collector/value/value.h"

enum { RULES_MAXIMUM = 256, FILES_MAXIMUM = 64, PROGRAM_MAXIMUM = 1 << 20 };

/* A match specification or condition as it was given. */
struct match_given {
	const char *option, *text; /* text NULL: none */
	int is_condition;
};

struct calls {
	struct rule rules[RULES_MAXIMUM];
	unsigned rule_count;
	const char *files[FILES_MAXIMUM + 1];
	unsigned file_count;
	/* Of all call events. */
	uint32_t maximum_depth;
	uint64_t longer_than_ns, limit_events, limit_rate;
	int no_returns, no_values, return_to;
	struct match_given general, send, receive; /* of calls that have none of their own; of messages */
	struct match_code send_code, receive_code;
	uint32_t functions_used; /* enum actions bits: of all specifications */
	struct rule_refusal refusals[RULES_MAXIMUM]; /* by rule */
	const char *filter; /* the last option that goes with --call only; NULL: none */
	struct prototypes *prototypes;
	char *program_path;
	const char *program_name; /* the caller's */
	struct planner *planner;
	uint32_t modules_looked_at;
	unsigned char told[RULES_MAXIMUM]; /* one a rule: the user knows that it names nothing */
};

void pattern_complain(const char *option, const char *text, const struct pattern_error *error)
{
	char what[1024], why[256];
	snprintf(what, sizeof what, "%s '%s'", option, text);
	snprintf(why, sizeof why, "at byte %zu: %s", error->position + 1, error->why);
	lorg_error(what, why, error->what_to_do);
}

static struct calls *create(void)
{
	return calloc(1, sizeof(struct calls));
}

/* ---- options ----------------------------------------------------------- */

static int add_rule(struct calls *calls, enum rule_kind kind, const char *option, const char *text)
{
	struct pattern_error error;
	if (calls->rule_count == RULES_MAXIMUM) {
		lorg_error(option, "too many patterns", "give at most 256; * stands for any name");
		return -1;
	}
	struct rule *rule = &calls->rules[calls->rule_count];
	*rule = (struct rule){.kind = kind, .option = option};
	if (pattern_parse(text, &rule->pattern, &error)) {
		pattern_complain(option, text, &error);
		return -1;
	}
	calls->rule_count++;
	return 0;
}

static int parse_count(const char *option, const char *text, uint64_t *value)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (*text >= '1' && *text <= '9' && !*end && !errno) {
		*value = number;
		return 0;
	}
	lorg_error(option, text, "give a whole number from 1 on");
	return -1;
}

/* Programs count by the second: of a longer time, its part of that, and one at least. */
static int parse_rate(const char *text, uint64_t *value)
{
	const uint64_t second = 1000000000;
	uint64_t number, ns;
	if (rate_parse(text, &number, &ns)) {
		lorg_error("--rate", text, rate_advice);
		return -1;
	}
	if (ns >= second)
		*value = (number - 1) / (ns / second) + 1;
	else
		*value = number > UINT64_MAX / (second / ns) ? UINT64_MAX : number * (second / ns);
	return 0;
}

/* 100us, 5ms, 2s, 700ns */
static int parse_time(const char *option, const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	char *end;
	double value = strtod(text, &end);
	for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
		if (strcmp(end, units[i].unit) == 0 && value > 0 && value * units[i].ns < 9e18) {
			*ns = (uint64_t)(value * units[i].ns);
			return 0;
		}
	lorg_error(option, text, "give a time such as 100us, 5ms or 2s");
	return -1;
}

static int parse_depth(struct calls *calls, const char *text)
{
	uint64_t depth;
	if (parse_count("--depth", text, &depth))
		return -1;
	calls->maximum_depth = depth < UINT32_MAX ? (uint32_t)depth : UINT32_MAX;
	calls->filter = "--depth";
	return 0;
}

static int add_file(struct calls *calls, const char *path)
{
	if (calls->file_count == FILES_MAXIMUM) {
		lorg_error("--prototypes", "too many files", "give at most 64");
		return -1;
	}
	calls->files[calls->file_count++] = path;
	return 0;
}

/* ---- match specifications ------------------------------------------------ */

/* What specifications do that concerns more than one call. */
enum actions { ACTION_FLAGS = 1 /* change process flags */, ACTION_SET = 2 /* set some that may not have been asked for */ };

static uint32_t actions_of(const struct match_code *code)
{
	const struct lorg_match_head *head = (const struct lorg_match_head *)(const void *)code->memory;
	const lorg_match_instruction *instructions = code->memory + head->code_offset / 8;
	uint32_t actions = 0;
	for (uint32_t i = 0; i < head->code_words; i++) {
		if (lorg_match_operation_of(instructions[i]) != LORG_MATCH_CALL)
			continue;
		uint32_t function = lorg_match_a(instructions[i]);
		if (function == LORG_MATCH_SILENT || function == LORG_MATCH_DISABLE_TRACE)
			actions |= ACTION_FLAGS;
		if (function == LORG_MATCH_TRACE || function == LORG_MATCH_ENABLE_TRACE)
			actions |= ACTION_FLAGS | ACTION_SET;
	}
	return actions;
}

/* Any function's code, as far as is known before the program starts: nowhere. */
static int no_ranges(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **ranges)
{
	(void)owner, (void)module, (void)function, (void)arity;
	*ranges = NULL;
	return 0;
}

/* The first thing that is wrong with it: in one line, with its position. */
static void complain(const struct match_given *given, const struct match_errors *errors)
{
	char text[512], advice[320];
	uint32_t more = errors->count + errors->left_out - 1;
	match_error_text(&errors->list[0], text, sizeof text);
	snprintf(advice, sizeof advice, "%s%s", errors->list[0].advice, more ? "; there is more behind it" : "");
	lorg_error(given->is_condition ? "condition" : "match specification", text, advice);
}

/* Whether it is right as far as can be known without the functions it is for. 0, or -1 when it has said why not. */
static int compile(struct calls *calls, const struct match_given *given, enum lorg_match_dialect dialect, struct match_code *code)
{
	const struct match_names names = {.any = true, .ranges = no_ranges};
	const struct match_options options = {.dialect = dialect, .inside = true, .names = &names, .flags = LORG_TRACE_SUPPORTED};
	struct match_errors errors = {0};
	size_t length = strlen(given->text);
	int good = given->is_condition ? match_compile_condition(given->text, length, &options, code, &errors)
				       : match_compile(given->text, length, &options, code, &errors);
	if (good && code->size > PROGRAM_MAXIMUM) {
		lorg_error(given->option, "the specification is larger than 1 MiB", "use smaller constants");
		good = 0;
	} else if (good)
		calls->functions_used |= actions_of(code);
	else if (errors.count)
		complain(given, &errors);
	else
		lorg_error(given->option, strerror(ENOMEM), "use a smaller one");
	match_errors_close(&errors);
	return good ? 0 : -1;
}

static int is_call(const struct rule *rule);

static int is_second(const char *option, const char *before)
{
	if (!before)
		return 0;
	lorg_error(option, "there is one already", "write one specification of several clauses: [{Head, Guards, Body}, ...]");
	return 1;
}

/* Of the --call before it, or of all. */
static int add_match(struct calls *calls, const char *option, const char *text, int is_condition)
{
	const struct match_given given = {option, text, is_condition};
	struct match_code code = {0};
	struct rule *rule = NULL;
	for (unsigned i = 0; i < calls->rule_count; i++)
		if (is_call(&calls->rules[i]))
			rule = &calls->rules[i];
	if (is_second(option, rule ? rule->match : calls->general.text) || compile(calls, &given, LORG_DIALECT_CALL, &code))
		return -1;
	match_code_close(&code);
	calls->filter = option;
	if (!rule) {
		calls->general = given;
		return 0;
	}
	rule->match = text;
	rule->is_condition = is_condition;
	return 0;
}

static int add_message_match(struct calls *calls, struct match_given *given, const char *option, const char *text)
{
	int sends = given == &calls->send;
	if (is_second(option, given->text))
		return -1;
	*given = (struct match_given){option, text, 0};
	return compile(calls, given, sends ? LORG_DIALECT_SEND : LORG_DIALECT_RECEIVE, sends ? &calls->send_code : &calls->receive_code);
}

static int option(struct calls *calls, int key, const char *argument)
{
	switch (key) {
	case KEY_CALL: return add_rule(calls, RULE_CALL, "--call", argument);
	case KEY_CALL_GLOBAL: return add_rule(calls, RULE_CALL_GLOBAL, "--call-global", argument);
	case KEY_NOTRACE: return add_rule(calls, RULE_NOTRACE, "--notrace", argument);
	case KEY_COUNT: return add_rule(calls, RULE_COUNT, "--count", argument);
	case KEY_TIME: return add_rule(calls, RULE_TIME, "--time", argument);
	case KEY_MEMORY: return add_rule(calls, RULE_MEMORY, "--memory", argument);
	case KEY_CALLED_FROM: calls->filter = "--called-from"; return add_rule(calls, RULE_CALLED_FROM, "--called-from", argument);
	case KEY_DEPTH: return parse_depth(calls, argument);
	case KEY_LONGER_THAN: calls->filter = "--longer-than"; return parse_time("--longer-than", argument, &calls->longer_than_ns);
	case KEY_LIMIT: calls->filter = "--limit"; return parse_count("--limit", argument, &calls->limit_events);
	case KEY_RATE: calls->filter = "--rate"; return parse_rate(argument, &calls->limit_rate);
	case KEY_NO_RETURNS: calls->no_returns = 1; return 0;
	case KEY_RETURN_TO: calls->return_to = 1; return 0;
	case KEY_NO_VALUES: calls->no_values = 1; return 0;
	case KEY_PROTOTYPES: return add_file(calls, argument);
	case KEY_MATCH: return add_match(calls, "--match", argument, 0);
	case KEY_IF: return add_match(calls, "--if", argument, 1);
	case KEY_SEND_MATCH: return add_message_match(calls, &calls->send, "--send-match", argument);
	case KEY_RECEIVE_MATCH: return add_message_match(calls, &calls->receive, "--receive-match", argument);
	default: return -1;
	}
}

/* ---- the planner ------------------------------------------------------- */

static uint32_t gate_of(const struct calls *calls)
{
	uint32_t gate = LORG_CALL_ENTRY;
	if (!calls->no_returns)
		gate |= LORG_CALL_RETURN;
	if (!calls->no_values)
		gate |= LORG_CALL_VALUES;
	if (calls->return_to || (calls->functions_used & ACTION_SET))
		gate |= LORG_CALL_RETURN_TO; /* the process's flag says whether it is told */
	return gate;
}

static int is_call(const struct rule *rule)
{
	return rule->kind == RULE_CALL || rule->kind == RULE_CALL_GLOBAL;
}

static int check(const struct calls *calls)
{
	int asks = 0, call_events = 0;
	for (unsigned i = 0; i < calls->rule_count; i++) {
		asks |= calls->rules[i].kind < RULE_NOTRACE;
		call_events |= is_call(&calls->rules[i]);
	}
	if (!asks && !calls->rule_count && !calls->filter && (calls->send.text || calls->receive.text))
		return 0;
	if (!asks) {
		lorg_error(calls->rule_count ? calls->rules[0].option : calls->filter ? calls->filter : "run",
			   "it goes with functions that are asked for", "add --call MODULE:FUNCTION");
		return -1;
	}
	if (calls->filter && !call_events) {
		lorg_error(calls->filter, "it goes with call events", "add --call MODULE:FUNCTION");
		return -1;
	}
	if (calls->longer_than_ns && calls->no_returns) {
		lorg_error("--longer-than", "how long a call takes is known when it returns", "leave --no-returns out");
		return -1;
	}
	return 0;
}

static void finish_rule(struct calls *calls, struct rule *rule)
{
	if (!is_call(rule))
		return;
	rule->refusal = &calls->refusals[rule - calls->rules];
	if (!rule->match) {
		rule->match = calls->general.text;
		rule->is_condition = calls->general.is_condition;
	}
	rule->gate = gate_of(calls);
	rule->maximum_depth = calls->maximum_depth;
	rule->longer_than_ns = calls->longer_than_ns;
	rule->limit_events = calls->limit_events;
	rule->limit_rate = calls->limit_rate;
}

/* Ticks a second of the clock that the collector will choose too. */
static uint64_t tick_frequency(void)
{
	struct lorg_clock clock;
	clock_begin(&clock);
	clock_refine(&clock);
	return clock.frequency;
}

static int open_planner(struct calls *calls)
{
	const struct planner_settings settings = {
		.tick_frequency = calls->longer_than_ns ? tick_frequency() : 0,
		.prototypes = calls->prototypes,
		.program_path = calls->program_path,
		.program_name = calls->program_name,
		.flags_matter = calls->functions_used != 0,
	};
	calls->planner = planner_create(&settings);
	for (unsigned i = 0; calls->planner && i < calls->rule_count; i++) {
		finish_rule(calls, &calls->rules[i]);
		if (planner_add_rule(calls->planner, &calls->rules[i]))
			return -1;
	}
	return calls->planner ? 0 : -1;
}

/* Flags that processes begin with: what was asked for. Where more may be set, more is hooked. */
static void set_flags(const struct calls *calls, struct collector_settings *settings)
{
	static const struct {
		uint32_t mask, flag;
	} kinds[] = {{LORG_MASK_SEND, LORG_TRACE_SEND}, {LORG_MASK_RECEIVE, LORG_TRACE_RECEIVE}, {LORG_GATE_PORT, LORG_TRACE_PORTS},
		     {LORG_GATE_PROCESS, LORG_TRACE_PROCS}, {LORG_GATE_RUNNING, LORG_TRACE_RUNNING},
		     {LORG_MASK_COLLECTION, LORG_TRACE_GARBAGE_COLLECTION}};
	settings->flags_matter = calls->functions_used != 0;
	settings->flags_new = LORG_TRACE_CALL | (calls->return_to ? LORG_TRACE_RETURN_TO : 0);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		settings->flags_new |= settings->gate_mask & kinds[i].mask ? kinds[i].flag : 0;
	if (calls->functions_used & ACTION_SET)
		settings->gate_mask |= LORG_GATE_MESSAGE | LORG_MASK_SEND | LORG_MASK_RECEIVE | LORG_GATE_PORT | LORG_GATE_RUNNING;
}

static int open_calls(struct calls *calls, const char *program_path, struct planning *planning, struct collector_settings *settings)
{
	char *error = NULL;
	if (check(calls))
		return -1;
	settings->send_program = (struct arena_program){calls->send_code.memory, (uint32_t)calls->send_code.size};
	settings->receive_program = (struct arena_program){calls->receive_code.memory, (uint32_t)calls->receive_code.size};
	set_flags(calls, settings);
	if (!calls->rule_count)
		return 0;
	calls->prototypes = prototypes_read(calls->files, &error);
	if (!calls->prototypes) {
		lorg_error("--prototypes", error ? error : strerror(ENOMEM), "mend the file, or leave it out");
		free(error);
		return -1;
	}
	calls->program_path = realpath(program_path, NULL);
	const char *slash = strrchr(program_path, '/');
	calls->program_name = slash ? slash + 1 : program_path;
	if (open_planner(calls)) {
		lorg_error("--call", strerror(errno), "raise the limits on memory and open files");
		return -1;
	}
	*planning = (struct planning){
		.planner = calls->planner, .plan_for = plan_for, .tell = planner_tell, .descriptor = planner_descriptor};
	return 0;
}

/* ---- what became of it ------------------------------------------------- */

static void tell_module(const struct planner_module *module)
{
	if (module->why)
		lorg_error(module->module, module->why, "none of its functions is traced");
}

/* A pattern that names no function of a module that is there. */
static void tell_no_function(const struct planner_rule *rule)
{
	char what[512], advice[512], package[128];
	snprintf(what, sizeof what, "%s '%s'", rule->option, rule->text);
	int known = package_of_debug_symbols(rule->first_module, package, sizeof package) == 0;
	snprintf(advice, sizeof advice, "see what there is: lorg functions %s%s%s", rule->first_module,
		 known ? "; if it has no symbols: install " : "", known ? package : "");
	lorg_error(what, "no function of that name and number of arguments", advice);
}

/* None of the functions that a pattern names can have its match specification. */
static void tell_refused(const struct calls *calls, uint32_t index, const struct planner_rule *rule)
{
	char what[1024];
	/* Acquire: pairs with the release of the planner's thread. */
	if (!__atomic_load_n(&calls->refusals[index].set, __ATOMIC_ACQUIRE))
		return;
	snprintf(what, sizeof what, "%s '%s'", rule->option, rule->text);
	lorg_error(what, calls->refusals[index].why, "they are not traced; lorg functions tells what is known of them");
}

static void look(struct calls *calls)
{
	struct planner_module module;
	struct planner_rule rule;
	uint32_t before = calls->modules_looked_at;
	if (!calls->planner)
		return;
	while (planner_module_at(calls->planner, calls->modules_looked_at, &module)) {
		tell_module(&module);
		calls->modules_looked_at++;
	}
	for (uint32_t i = 0; before != calls->modules_looked_at && planner_rule_at(calls->planner, i, &rule); i++) {
		if (calls->told[i] || !rule.literal_module || !rule.modules || (rule.functions && rule.functions != rule.refused))
			continue;
		calls->told[i] = 1;
		if (rule.functions)
			tell_refused(calls, i, &rule);
		else
			tell_no_function(&rule);
	}
}

static void tell_unmatched(struct calls *calls)
{
	struct planner_rule rule;
	for (uint32_t i = 0; planner_rule_at(calls->planner, i, &rule); i++) {
		char what[512];
		if (calls->told[i] || rule.functions)
			continue;
		snprintf(what, sizeof what, "%s '%s'", rule.option, rule.text);
		if (!rule.modules && strncmp(rule.text, "ld-linux", 8) == 0)
			lorg_error(what, "the loader is no module: it loads lorg, too", "its functions are not traced; name others");
		else if (!rule.modules)
			lorg_error(what, "no module of that name was loaded", "lorg log --kind module shows what was; a program's is named as its file");
		else
			tell_no_function(&rule);
	}
}

static void tell_hooked(struct calls *calls)
{
	struct planner_module module;
	for (uint32_t i = 0; planner_module_at(calls->planner, i, &module); i++) {
		char text[512];
		int length = 0;
		if (!module.by_code && !module.by_slots && !module.refused)
			continue;
		length += snprintf(text + length, sizeof text - (size_t)length, "%s: %u function%s hooked by code", module.module, module.by_code,
				   module.by_code == 1 ? "" : "s");
		if (module.by_slots)
			length += snprintf(text + length, sizeof text - (size_t)length, ", %u by slots", module.by_slots);
		if (module.entry_only)
			length += snprintf(text + length, sizeof text - (size_t)length, " (of %u only the entries)", module.entry_only);
		if (module.refused)
			snprintf(text + length, sizeof text - (size_t)length, ", %u refused (lorg functions --refused %s says why)",
				 module.refused, module.path);
		lorg_say(text);
	}
}

static void finish(struct calls *calls, int quiet)
{
	if (!calls->planner)
		return;
	look(calls);
	tell_unmatched(calls);
	if (!quiet)
		tell_hooked(calls);
}

static void free_calls(struct calls *calls)
{
	planner_free(calls->planner);
	prototypes_free(calls->prototypes);
	free(calls->program_path);
	match_code_close(&calls->send_code);
	match_code_close(&calls->receive_code);
	for (unsigned i = 0; i < calls->rule_count; i++)
		pattern_free(&calls->rules[i].pattern);
	free(calls);
}

const struct run_calls run_calls = {create, option, open_calls, look, finish, free_calls};
