/* SPDX-License-Identifier: MIT */
/*
 * hunt.c: lorg calls: a session of its own for one question about calls. It
 * goes with this command's connection, so however the command ends nothing is
 * left in the programs.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collector/base/list.h"
#include "collector/client/terms.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/follow.h"
#include "collector/command/node.h"

enum {
	PATTERNS_MAXIMUM = 64,
	PROGRAMS_MAXIMUM = 64,
	LOOKED_FOR_S = 20, /* after lorgd was started again, until functions have to be there: it finds out what modules hold */
};

struct hunt {
	const char *patterns[PATTERNS_MAXIMUM], *programs[PROGRAMS_MAXIMUM];
	int pattern_count, program_count;
	const char *match, *condition;
	uint64_t maximum;
	struct lorg_limits limits;
	int global, no_returns, arity, return_to, wait, quiet;
	enum follow_format format;
	int stamps;
};

enum hunt_key { KEY_MAX = 256, KEY_RATE, KEY_MATCH, KEY_IF, KEY_GLOBAL, KEY_NO_RETURNS, KEY_ARITY, KEY_RETURN_TO, KEY_TIMESTAMPS, KEY_WAIT };

static const struct argp_option hunt_options[] = {
	{"pid", 'p', "PID[.TID]", 0, "Only in this program, or thread; may be repeated (all)", 1},
	{"max", KEY_MAX, "N", 0, "End after N messages", 1},
	{"wait", KEY_WAIT, NULL, 0, "Also if no function matches yet: programs that attach later are asked, too", 1},
	{"rate", KEY_RATE, "N[/UNIT]", 0, "More than N a second (UNIT: us, ms, s, min, h) are dropped and counted: 50/s", 1},
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
	case KEY_RATE: node_rate("--rate", argument, &hunt->limits); return 0;
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

static int64_t now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* ---- asking ------------------------------------------------------------------------- */

/* What goes on while the calls are printed. */
struct asking {
	struct lorg_connection *connection;
	struct lorg_session *session; /* NULL: there is none */
	const struct hunt *hunt;
	char *match;
	char **files; /* of programs that were asked */
	size_t file_count, file_room;
	int quiet; /* what cannot be traced has been said */
	int again; /* lorgd was started again: what was there before is waited for */
	int64_t matched, looked_for_until; /* seconds, CLOCK_MONOTONIC: so long after that for functions */
};

/* That lorgd has gone is said by who follows. */
static enum follow_answer failed(const char *what, const struct lorg_failure *failure)
{
	if (failure->kind == LORG_FAILURE_NO_DAEMON)
		return FOLLOW_GONE;
	node_failed(what, failure);
	return FOLLOW_FAILED;
}

static enum follow_answer limit(struct lorg_session *session, const struct hunt *hunt)
{
	struct lorg_failure failure;
	if (!hunt->limits.rate || lorg_session_limit(session, &hunt->limits, &failure) == 0)
		return FOLLOW_ON;
	return failed("--rate", &failure);
}

/* After lorgd was started again its programs come back one after the other; unless they have ended meanwhile. */
static enum follow_answer not_attached(const struct asking *asking, const char *program)
{
	pid_t pid = (pid_t)strtol(program, NULL, 10);
	int there = pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH);
	if (asking->again && there)
		return FOLLOW_GONE;
	if (there)
		lorg_error(program, "it is not attached to lorgd", "lorg ps lists what is; lorg attach PID brings it in");
	else
		lorg_error(program, "there is no such program", "lorg ps lists those that are attached to lorgd");
	return FOLLOW_FAILED;
}

static enum follow_answer choose_program(const struct asking *asking, const char *program, const char *flags)
{
	struct lorg_failure failure;
	char *whom = node_whom(program);
	int64_t matched = lorg_process(asking->session, whom, 1, flags, &failure);
	free(whom);
	if (matched < 0)
		return failed(program, &failure);
	return matched == 0 && asking->hunt->program_count ? not_attached(asking, program) : FOLLOW_ON;
}

static enum follow_answer choose_processes(const struct asking *asking)
{
	static const char *const all[] = {"all"};
	const struct hunt *hunt = asking->hunt;
	const char *const *programs = hunt->program_count ? hunt->programs : all;
	int count = hunt->program_count ? hunt->program_count : 1;
	enum follow_answer answer = FOLLOW_ON;
	char *flags = node_printf("[call%s%s%s]", hunt->arity ? ",arity" : "", hunt->return_to ? ",return_to" : "",
				  hunt->stamps ? ",strict_monotonic_timestamp" : "");
	for (int i = 0; i < count && answer == FOLLOW_ON; i++)
		answer = choose_program(asking, programs[i], flags);
	free(flags);
	return answer;
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
		int64_t number = refusals[i].is_one ? lorg_function(asking->session, refusals[i].function, asking->match, "[global]", &failure) : 0;
		if (number > 0 && !asking->quiet)
			say_global(&refusals[i]);
		else if (refusals[i].is_one && !asking->quiet)
			lorg_error(refusals[i].function, refusals[i].why, NULL);
		matched += number > 0 ? number : 0;
	}
	if (count > 0)
		term_refusals_free(refusals, count);
	else if (count == 0)
		free(refusals);
	return matched;
}

/* Adds the number of functions to asking->matched. */
static enum follow_answer choose_pattern(struct asking *asking, const char *text)
{
	const struct hunt *hunt = asking->hunt;
	struct lorg_failure failure;
	char *pattern = node_pattern(text);
	int64_t number = lorg_function(asking->session, pattern, asking->match, hunt->global ? "[global,on_load]" : "[local,on_load]", &failure);
	free(pattern);
	if (number < 0)
		return failed(text, &failure);
	char *refused = node_printf("%s", lorg_function_refused(asking->connection));
	if (!hunt->global)
		number += choose_by_name(asking, refused);
	else if (!asking->quiet)
		node_say_refused(refused);
	free(refused);
	asking->matched += number;
	return FOLLOW_ON;
}

static enum follow_answer choose_functions(struct asking *asking)
{
	const struct hunt *hunt = asking->hunt;
	enum follow_answer answer = FOLLOW_ON;
	asking->matched = 0;
	for (int i = 0; i < hunt->pattern_count && answer == FOLLOW_ON; i++)
		answer = choose_pattern(asking, hunt->patterns[i]);
	return answer;
}

/* 1: no program of that file has been asked. */
static int is_new_file(struct asking *asking, const char *file)
{
	for (size_t i = 0; i < asking->file_count; i++)
		if (strcmp(asking->files[i], file) == 0)
			return 0;
	char **list = list_with_room(asking->files, asking->file_count, &asking->file_room, sizeof *list, 16), *copy = strdup(file);
	if (list)
		asking->files = list;
	if (!list || !copy) {
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

static enum follow_answer nothing_matches(const struct asking *asking)
{
	lorg_error(asking->hunt->patterns[0],
		   asking->again ? "no function matches of the programs that lorgd has, now that it was started again"
				 : "no function of the attached programs matches",
		   asking->again ? "start the program again, then lorg calls"
				 : "lorg functions PROGRAM lists them, lorg ps the programs; --wait waits for it");
	return FOLLOW_FAILED;
}

/* The question stands, with on_load; asked anew of programs that have come, it also finds those that can be traced by name alone. */
static enum follow_answer ask_newcomers(void *context)
{
	struct asking *asking = context;
	int looks_for = asking->again && !asking->matched && !asking->hunt->wait;
	if (looks_for && now_s() > asking->looked_for_until)
		return nothing_matches(asking);
	return new_files(asking) || looks_for ? choose_functions(asking) : FOLLOW_ON;
}

static void say_begun(const struct asking *asking)
{
	char text[100];
	if (asking->hunt->quiet || !isatty(STDERR_FILENO))
		return;
	snprintf(text, sizeof text, "%lld function%s traced; Ctrl-C ends it", (long long)asking->matched, asking->matched == 1 ? "" : "s");
	lorg_say(text);
}

static enum follow_answer make_session(struct asking *asking)
{
	struct lorg_failure failure;
	char name[40];
	snprintf(name, sizeof name, "calls-%ld", (long)getpid());
	asking->session = lorg_session_create(asking->connection, name, "client", "[]", &failure);
	return asking->session ? FOLLOW_ON : failed("calls", &failure);
}

static enum follow_answer begin(struct asking *asking)
{
	enum follow_answer answer = make_session(asking);
	if (answer == FOLLOW_ON)
		answer = limit(asking->session, asking->hunt);
	if (answer == FOLLOW_ON)
		answer = choose_processes(asking);
	if (answer != FOLLOW_ON)
		return answer;
	new_files(asking);
	answer = choose_functions(asking);
	asking->quiet = 1;
	if (answer == FOLLOW_ON && !asking->matched && !asking->hunt->wait && !asking->again)
		return nothing_matches(asking);
	if (answer == FOLLOW_ON)
		say_begun(asking);
	return answer;
}

static void forget_files(struct asking *asking)
{
	for (size_t i = 0; i < asking->file_count; i++)
		free(asking->files[i]);
	free(asking->files);
	asking->files = NULL;
	asking->file_count = asking->file_room = 0;
}

/* lorgd was started again: the session went with the one before. */
static enum follow_answer ask_again(void *context, struct lorg_connection *connection)
{
	struct asking *asking = context;
	lorg_session_free(asking->session);
	asking->session = NULL;
	asking->connection = connection;
	asking->again = 1;
	asking->looked_for_until = now_s() + LOOKED_FOR_S;
	forget_files(asking);
	return begin(asking);
}

static int go_hunting(struct follow *follow, const struct hunt *hunt)
{
	struct asking asking = {.connection = follow->connection, .hunt = hunt, .quiet = hunt->quiet, .match = match_of(hunt)};
	follow->each_second = ask_newcomers;
	follow->come_back = ask_again;
	follow->context = &asking;
	follow->goes_on = hunt->quiet ? NULL : "the question, in a new session,";
	follow_begin(follow);
	enum follow_answer answer = begin(&asking);
	if (answer == FOLLOW_GONE)
		lorg_error("calls", "lorgd has gone", "start it again with `lorgd &`");
	int status = answer == FOLLOW_ON ? follow_run(follow) : EXIT_STATUS_FAILURE;
	if (asking.session)
		lorg_session_destroy(asking.session, NULL); /* waited for: the programs are as they were when this command has ended */
	lorg_session_free(asking.session);
	free(asking.match);
	forget_files(&asking);
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
	struct follow follow = {.connection = node_connect(), .format = hunt.format, .maximum = hunt.maximum};
	int status = follow.connection ? go_hunting(&follow, &hunt) : EXIT_STATUS_FAILURE;
	lorg_disconnect(follow.connection);
	return status;
}
