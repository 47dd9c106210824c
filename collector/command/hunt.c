/* SPDX-License-Identifier: MIT */
/*
 * hunt.c: lorg calls: a session of its own for one question about calls. It
 * goes with this command's connection, so however the command ends nothing is
 * left in the programs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/client/terms.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/follow.h"
#include "collector/command/node.h"

enum { PATTERNS_MAXIMUM = 64, PROGRAMS_MAXIMUM = 64 };

struct hunt {
	const char *patterns[PATTERNS_MAXIMUM], *programs[PROGRAMS_MAXIMUM];
	int pattern_count, program_count;
	const char *match, *condition;
	uint64_t maximum, rate;
	int global, no_returns, arity, return_to, wait, quiet;
	enum follow_format format;
	int stamps;
};

enum hunt_key { KEY_MAX = 256, KEY_RATE, KEY_MATCH, KEY_IF, KEY_GLOBAL, KEY_NO_RETURNS, KEY_ARITY, KEY_RETURN_TO, KEY_TIMESTAMPS, KEY_WAIT };

static const struct argp_option hunt_options[] = {
	{"pid", 'p', "PID[.TID]", 0, "Only in this program, or thread; may be repeated (all)", 1},
	{"max", KEY_MAX, "N", 0, "End after N messages", 1},
	{"wait", KEY_WAIT, NULL, 0, "Also if no function matches yet: programs that attach later are asked, too", 1},
	{"rate", KEY_RATE, "N/s", 0, "More than N a second are dropped and counted", 1},
	{"match", KEY_MATCH, "SPEC", 0, "Only what a match specification lets pass, as it says", 2},
	{"if", KEY_IF, "CONDITION", 0, "Only calls of which it holds: arg0 =:= \"x\" andalso request->length > 4096", 2},
	{"global", KEY_GLOBAL, NULL, 0, "Only calls from other modules, by name", 2},
	{"no-returns", KEY_NO_RETURNS, NULL, 0, "Only the calls, not what they return", 2},
	{"arity", KEY_ARITY, NULL, 0, "Not the arguments, only how many", 2},
	{"return-to", KEY_RETURN_TO, NULL, 0, "Also where each call returns to", 2},
	{"format", 'f', "FORMAT", 0, "text (the default; coloured on a terminal), erlang (messages of trace(3)) or json", 3},
	{"timestamps", KEY_TIMESTAMPS, NULL, 0, "With erlang: trace_ts and {Nanoseconds, Number}", 3},
	{"quiet", 'q', NULL, 0, "Messages alone", 3},
	{0},
};

static const char hunt_help[] =
	"Prints calls of functions in programs that run, as they happen: MODULE:FUNCTION/ARITY with * and ? for any text, {M,F,A}. "
	"It ends at Ctrl-C or --max, and the programs are as they were, also when it is killed."
	"\v  lorg calls 'nginx:ngx_http_*' --max 100 --rate 50/s -p 4211\n"
	"  lorg calls libc.so.6:open --if 'arg0 =:= \"/etc/passwd\"'\n\n"
	"The programs must be attached to lorgd: lorg ps lists them, lorg functions what can be traced in them.\n";

static void add(const char **list, int *count, const char *argument)
{
	if (*count == PATTERNS_MAXIMUM)
		node_usage(argument, "too many of them", "give at most 64");
	list[(*count)++] = argument;
}

static error_t parse_hunt(int key, char *argument, struct argp_state *state)
{
	struct hunt *hunt = state->input;
	switch (key) {
	case 'p': add(hunt->programs, &hunt->program_count, argument); return 0;
	case 'f': hunt->format = follow_format(argument); return 0;
	case 'q': hunt->quiet = 1; return 0;
	case KEY_MAX: hunt->maximum = node_count("--max", argument); return 0;
	case KEY_RATE: hunt->rate = node_rate("--rate", argument); return 0;
	case KEY_MATCH: hunt->match = argument; return 0;
	case KEY_IF: hunt->condition = argument; return 0;
	case KEY_GLOBAL: hunt->global = 1; return 0;
	case KEY_NO_RETURNS: hunt->no_returns = 1; return 0;
	case KEY_ARITY: hunt->arity = 1; return 0;
	case KEY_RETURN_TO: hunt->return_to = 1; return 0;
	case KEY_WAIT: hunt->wait = 1; return 0;
	case KEY_TIMESTAMPS: hunt->stamps = 1; return 0;
	case ARGP_KEY_ARG: add(hunt->patterns, &hunt->pattern_count, argument); return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp hunt_argp = {hunt_options, parse_hunt, "PATTERN...", hunt_help, NULL, NULL, NULL};

/* ---- asking ------------------------------------------------------------------------- */

static int limit(struct lorg_session *session, const struct hunt *hunt)
{
	struct lorg_failure failure;
	const struct lorg_limits limits = {.rate = hunt->rate};
	if (!hunt->rate || lorg_session_limit(session, &limits, &failure) == 0)
		return 0;
	return node_failed("--rate", &failure);
}

static int choose_processes(struct lorg_session *session, const struct hunt *hunt)
{
	static const char *const all[] = {"all"};
	const char *const *programs = hunt->program_count ? hunt->programs : all;
	int count = hunt->program_count ? hunt->program_count : 1, status = 0;
	struct lorg_failure failure;
	char *flags = node_printf("[call%s%s%s]", hunt->arity ? ",arity" : "", hunt->return_to ? ",return_to" : "",
				  hunt->stamps ? ",strict_monotonic_timestamp" : "");
	for (int i = 0; i < count && !status; i++) {
		char *whom = node_whom(programs[i]);
		int64_t matched = lorg_process(session, whom, 1, flags, &failure);
		if (matched < 0)
			status = node_failed(programs[i], &failure);
		else if (matched == 0 && hunt->program_count) {
			lorg_error(programs[i], "it is not attached to lorgd", "lorg ps lists what is; lorg attach PID brings it in");
			status = EXIT_STATUS_FAILURE;
		}
		free(whom);
	}
	free(flags);
	return status;
}

static char *match_of(const struct hunt *hunt)
{
	if (hunt->match)
		return node_printf("%s", hunt->match);
	if (!hunt->condition)
		return node_printf("%s", hunt->no_returns ? "true" : "[{'_',[],[{exception_trace}]}]");
	char *string = node_string(hunt->condition), *match = node_printf("{'if',%s}", string);
	free(string);
	return match;
}

/* What goes on while the calls are printed. */
struct asking {
	struct lorg_connection *connection;
	struct lorg_session *session;
	const struct hunt *hunt;
	char *match;
	char **files; /* of programs that were asked */
	size_t file_count;
	int quiet; /* what cannot be traced has been said */
	int64_t matched;
};

static void say_global(const struct term_refusal *refusal)
{
	char why[400];
	snprintf(why, sizeof why, "only calls from other modules: %s", refusal->why);
	lorg_error(refusal->function, why, NULL);
}

/* Those that cannot be hooked at their entry, by the names that others call them by. */
static int64_t choose_by_name(struct asking *asking, const char *refused)
{
	struct term_refusal *refusals;
	int64_t count = term_refusals(refused, &refusals), matched = 0;
	for (int64_t i = 0; i < count; i++) {
		struct lorg_failure failure;
		int64_t number = lorg_function(asking->session, refusals[i].function, asking->match, "[global]", &failure);
		if (number > 0 && !asking->quiet)
			say_global(&refusals[i]);
		else if (!asking->quiet)
			lorg_error(refusals[i].function, refusals[i].why, NULL);
		matched += number > 0 ? number : 0;
	}
	if (count > 0)
		term_refusals_free(refusals, count);
	else if (count == 0)
		free(refusals);
	return matched;
}

/* Returns the number of functions, or -1 having said why. */
static int64_t choose_pattern(struct asking *asking, const char *text)
{
	const struct hunt *hunt = asking->hunt;
	struct lorg_failure failure;
	char *pattern = node_pattern(text);
	int64_t number = lorg_function(asking->session, pattern, asking->match, hunt->global ? "[global]" : "[local]", &failure);
	free(pattern);
	if (number < 0) {
		node_failed(text, &failure);
		return -1;
	}
	char *refused = node_printf("%s", lorg_function_refused(asking->connection));
	if (!hunt->global)
		number += choose_by_name(asking, refused);
	else if (strcmp(refused, "[]") != 0 && !asking->quiet)
		lorg_error("not hooked", refused, NULL);
	free(refused);
	return number;
}

static int choose_functions(struct asking *asking)
{
	const struct hunt *hunt = asking->hunt;
	asking->matched = 0;
	for (int i = 0; i < hunt->pattern_count; i++) {
		int64_t number = choose_pattern(asking, hunt->patterns[i]);
		if (number < 0)
			return EXIT_STATUS_FAILURE;
		asking->matched += number;
	}
	return 0;
}

/* 1: no program of that file has been asked. */
static int is_new_file(struct asking *asking, const char *file)
{
	for (size_t i = 0; i < asking->file_count; i++)
		if (strcmp(asking->files[i], file) == 0)
			return 0;
	char **grown = reallocarray(asking->files, asking->file_count + 1, sizeof *grown), *copy = strdup(file);
	if (grown)
		asking->files = grown;
	if (!grown || !copy) {
		free(copy);
		return 0;
	}
	asking->files[asking->file_count++] = copy;
	return 1;
}

/* How many programs are attached whose files are new. */
static int new_files(struct asking *asking)
{
	struct term_program *programs = NULL;
	char *list = lorg_programs(asking->connection, NULL);
	int64_t count = list ? term_programs(list, &programs) : -1;
	int some = 0;
	for (int64_t i = 0; i < count; i++)
		some += is_new_file(asking, programs[i].file);
	if (count >= 0)
		term_programs_free(programs, count);
	free(list);
	return some;
}

/* The question stands: it is asked of programs that have come, too. */
static int ask_newcomers(void *context)
{
	struct asking *asking = context;
	return new_files(asking) ? choose_functions(asking) : 0;
}

static void say_begun(const struct hunt *hunt, int64_t matched)
{
	char text[100];
	if (hunt->quiet || !isatty(STDERR_FILENO))
		return;
	snprintf(text, sizeof text, "%lld function%s traced; Ctrl-C ends it", (long long)matched, matched == 1 ? "" : "s");
	lorg_say(text);
}

static int begin(struct asking *asking)
{
	const struct hunt *hunt = asking->hunt;
	if (limit(asking->session, hunt) || choose_processes(asking->session, hunt))
		return EXIT_STATUS_FAILURE;
	new_files(asking);
	if (choose_functions(asking))
		return EXIT_STATUS_FAILURE;
	asking->quiet = 1;
	if (asking->matched || hunt->wait) {
		say_begun(hunt, asking->matched);
		return 0;
	}
	lorg_error(hunt->patterns[0], "no function of the attached programs matches",
		   "lorg functions PROGRAM lists them, lorg ps the programs; --wait waits for it");
	return EXIT_STATUS_FAILURE;
}

static int go_hunting(struct lorg_connection *connection, const struct hunt *hunt)
{
	struct lorg_failure failure;
	struct asking asking = {.connection = connection, .hunt = hunt, .quiet = hunt->quiet};
	struct follow follow = {
		.connection = connection, .format = hunt->format, .maximum = hunt->maximum, .each_second = ask_newcomers, .context = &asking};
	char name[40];
	snprintf(name, sizeof name, "calls-%ld", (long)getpid());
	follow_begin(&follow);
	asking.session = lorg_session_create(connection, name, "client", "[]", &failure);
	if (!asking.session)
		return node_failed("calls", &failure);
	asking.match = match_of(hunt);
	int status = begin(&asking);
	if (!status)
		status = follow_run(&follow);
	lorg_session_destroy(asking.session, NULL); /* waited for: the programs are as they were when this command has ended */
	lorg_session_free(asking.session);
	free(asking.match);
	for (size_t i = 0; i < asking.file_count; i++)
		free(asking.files[i]);
	free(asking.files);
	return status;
}

int command_calls(int argc, char **argv)
{
	struct hunt hunt = {.format = FOLLOW_TEXT};
	command_parse(&hunt_argp, argc, argv, &hunt);
	if (!hunt.pattern_count)
		node_usage("lorg calls", "which functions?", "lorg calls MODULE:FUNCTION; see lorg calls --help");
	if (hunt.match && hunt.condition)
		node_usage("--if", "there is --match already", "give one of them");
	for (int i = 0; i < hunt.pattern_count; i++)
		free(node_pattern(hunt.patterns[i])); /* what is wrong with one is said first */
	struct lorg_connection *connection = node_connect();
	int status = connection ? go_hunting(connection, &hunt) : EXIT_STATUS_FAILURE;
	lorg_disconnect(connection);
	return status;
}
