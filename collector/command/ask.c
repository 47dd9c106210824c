/* SPDX-License-Identifier: MIT */
/*
 * ask.c: lorg process, port, function, send, recv, system, info, delivered, ps: the functions of trace(3), one a command.
 * Each prints what trace(3) answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/client/terms.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/follow.h"
#include "collector/command/nearest.h"
#include "collector/command/node.h"
#include "collector/format/json.h"

enum { ARGUMENTS_MAXIMUM = 64 };

struct arguments {
	char *list[ARGUMENTS_MAXIMUM];
	int count;
};

static error_t take_argument(struct arguments *arguments, char *argument)
{
	if (arguments->count == ARGUMENTS_MAXIMUM)
		node_usage(argument, "too many arguments", "give at most 64");
	arguments->list[arguments->count++] = argument;
	return 0;
}

static error_t parse_arguments(int key, char *argument, struct argp_state *state)
{
	return key == ARGP_KEY_ARG ? take_argument(state->input, argument) : ARGP_ERR_UNKNOWN;
}

/* What is done with a session that was found. Returns the exit status. */
typedef int ask_function(struct lorg_session *session, const struct arguments *arguments);

static int ask(const char *session_name, ask_function *function, const struct arguments *arguments)
{
	struct lorg_connection *connection = node_connect();
	struct lorg_session *session = connection ? node_session(connection, session_name) : NULL;
	int status = session ? function(session, arguments) : EXIT_STATUS_FAILURE;
	lorg_session_free(session);
	lorg_disconnect(connection);
	return status;
}

static int answer_number(const char *what, int64_t number, const struct lorg_failure *failure)
{
	return number < 0 ? node_failed(what, failure) : node_print_number(number);
}

static int answer_text(const char *what, char *text, const struct lorg_failure *failure)
{
	int status = text ? node_print(text) : node_failed(what, failure);
	free(text);
	return status;
}

/* ---- process, port ---------------------------------------------------------------- */

static int parse_how(const char *text)
{
	if (strcmp(text, "on") == 0 || strcmp(text, "true") == 0)
		return 1;
	if (strcmp(text, "off") == 0 || strcmp(text, "false") == 0)
		return 0;
	node_usage(text, "neither on nor off", "on sets the flags that follow, off clears them");
}

/* What may have been meant by the first word that is no flag. Returns the exit status. */
static int flags_failed(const struct arguments *arguments, const struct lorg_failure *failure)
{
	static const char *const flags[] = {"send", "receive", "procs", "ports", "call", "return_to", "arity", "silent", "running", "running_procs",
					    "running_ports", "exiting", "garbage_collection", "timestamp", "monotonic_timestamp",
					    "strict_monotonic_timestamp", "cpu_timestamp", "set_on_spawn", "set_on_first_spawn", "set_on_link",
					    "set_on_first_link", "all"};
	char advice[80];
	for (int i = 3; failure->kind == LORG_FAILURE_BADARG && i < arguments->count; i++) {
		struct nearest nearest = {.text = arguments->list[i]};
		for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
			nearest_try(&nearest, flags[k]);
		if (!nearest.name || nearest.distance == 0)
			continue;
		snprintf(advice, sizeof advice, "did you mean %s? see lorg process --help", nearest.name);
		lorg_error(arguments->list[1], failure->text, advice);
		return EXIT_STATUS_FAILURE;
	}
	return node_failed(arguments->list[1], failure);
}

static int set_flags(struct lorg_session *session, const struct arguments *arguments,
		     int64_t (*function)(struct lorg_session *, const char *, int, const char *, struct lorg_failure *))
{
	struct lorg_failure failure;
	char *const *list = arguments->list;
	int how = parse_how(list[2]);
	char *whom = node_whom(list[1]), *flags = node_flags(list + 3, arguments->count - 3);
	int64_t number = function(session, whom, how, flags, &failure);
	free(whom);
	free(flags);
	return number < 0 ? flags_failed(arguments, &failure) : node_print_number(number);
}

static int ask_process(struct lorg_session *session, const struct arguments *arguments)
{
	return set_flags(session, arguments, lorg_process);
}

static int ask_port(struct lorg_session *session, const struct arguments *arguments)
{
	return set_flags(session, arguments, lorg_port);
}

static const struct argp process_argp = {
	NULL, parse_arguments, "SESSION PROCS on|off FLAG...",
	"Sets or clears trace flags of processes, which are threads, and prints how many matched: trace:process/4. PROCS: PID (all threads "
	"of a program, now and later), PID.TID (one thread), all, existing, new."
	"\vFlags: send receive procs ports call return_to arity silent running running_procs running_ports exiting garbage_collection "
	"timestamp monotonic_timestamp strict_monotonic_timestamp cpu_timestamp set_on_spawn set_on_first_spawn set_on_link "
	"set_on_first_link all\n\n"
	"  lorg process hunt all on procs\n"
	"  lorg process hunt 4211 on send receive strict_monotonic_timestamp\n"
	"  lorg process hunt 4211.4213 off send\n"
	"  lorg tail hunt\n",
	NULL, NULL, NULL};

static const struct argp port_argp = {
	NULL, parse_arguments, "SESSION PORTS on|off FLAG...",
	"Sets or clears trace flags of ports, which are descriptors, and prints how many matched: trace:port/4. PORTS: #Port<PID.FD.N>, all, "
	"existing, new."
	"\vFlags: send receive ports running_ports timestamp monotonic_timestamp strict_monotonic_timestamp all\n\n"
	"  lorg port hunt all on ports\n"
	"  lorg tail hunt\n",
	NULL, NULL, NULL};

static int with_flags(int argc, char **argv, const struct argp *argp, ask_function *function)
{
	struct arguments arguments = {.count = 0};
	char advice[80];
	command_parse(argp, argc, argv, &arguments);
	if (arguments.count >= 3)
		parse_how(arguments.list[2]);
	if (arguments.count < 4) {
		snprintf(advice, sizeof advice, "%s %s; see %s --help", argv[0], argp->args_doc, argv[0]);
		node_usage(argv[0], "arguments are missing", advice);
	}
	return ask(arguments.list[0], function, &arguments);
}

int command_process(int argc, char **argv)
{
	return with_flags(argc, argv, &process_argp, ask_process);
}

int command_port(int argc, char **argv)
{
	return with_flags(argc, argv, &port_argp, ask_port);
}

/* ---- function ---------------------------------------------------------------------------- */

enum function_key {
	KEY_MATCH = 256,
	KEY_IF,
	KEY_TRUE,
	KEY_FALSE,
	KEY_RESTART,
	KEY_PAUSE,
	KEY_LOCAL,
	KEY_GLOBAL,
	KEY_META,
	KEY_CALL_COUNT,
	KEY_CALL_TIME,
	KEY_CALL_MEMORY,
};

static const struct argp_option function_options[] = {
	{NULL, 0, NULL, 0, "What is told of a call; without any: call", 1},
	{"match", KEY_MATCH, "SPEC", 0, "As a match specification says", 1},
	{"if", KEY_IF, "CONDITION", 0, "If a condition holds: arg0 =:= \"x\" andalso request->length > 4096", 1},
	{"true", KEY_TRUE, NULL, 0, "Each call (as without)", 1},
	{"false", KEY_FALSE, NULL, 0, "None any more", 1},
	{"restart", KEY_RESTART, NULL, 0, "Counters begin again, at 0", 1},
	{"pause", KEY_PAUSE, NULL, 0, "Counters stand still", 1},
	{NULL, 0, NULL, 0, "Which calls, and how; several may be given", 2},
	{"global", KEY_GLOBAL, NULL, 0, "Calls from other modules, by name (the default, as in trace(3))", 2},
	{"local", KEY_LOCAL, NULL, 0, "All calls", 2},
	{"meta", KEY_META, NULL, 0, "Of all processes, whatever their flags", 2},
	{"call-count", KEY_CALL_COUNT, NULL, 0, "Count them; lorg info tells", 2},
	{"call-time", KEY_CALL_TIME, NULL, 0, "And the time they take", 2},
	{"call-memory", KEY_CALL_MEMORY, NULL, 0, "And the memory they ask for", 2},
	{0},
};

struct function_arguments {
	struct arguments arguments;
	const char *match, *condition, *how; /* how: true, false, restart, pause */
	char options[128];
};

static void add_function_option(struct function_arguments *function, const char *name)
{
	size_t length = strlen(function->options);
	snprintf(function->options + length, sizeof function->options - length, "%s%s", length ? "," : "", name);
}

static void set_how(struct function_arguments *function, const char *option, const char *how)
{
	if (function->how || function->match || function->condition)
		node_usage(option, "it is said already what is told of a call", "give one of --match, --if, --true, --false, --restart, --pause");
	function->how = how;
}

static error_t parse_function(int key, char *argument, struct argp_state *state)
{
	struct function_arguments *function = state->input;
	switch (key) {
	case KEY_MATCH:
		set_how(function, "--match", NULL);
		function->match = argument;
		return 0;
	case KEY_IF:
		set_how(function, "--if", NULL);
		function->condition = argument;
		return 0;
	case KEY_TRUE: set_how(function, "--true", "true"); return 0;
	case KEY_FALSE: set_how(function, "--false", "false"); return 0;
	case KEY_RESTART: set_how(function, "--restart", "restart"); return 0;
	case KEY_PAUSE: set_how(function, "--pause", "pause"); return 0;
	case KEY_LOCAL: add_function_option(function, "local"); return 0;
	case KEY_GLOBAL: add_function_option(function, "global"); return 0;
	case KEY_META: add_function_option(function, "meta"); return 0;
	case KEY_CALL_COUNT: add_function_option(function, "call_count"); return 0;
	case KEY_CALL_TIME: add_function_option(function, "call_time"); return 0;
	case KEY_CALL_MEMORY: add_function_option(function, "call_memory"); return 0;
	case ARGP_KEY_ARG: return take_argument(&function->arguments, argument);
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp function_argp = {
	function_options, parse_function, "SESSION PATTERN",
	"Says which calls a session traces, and prints how many functions matched: trace:function/4. PATTERN: MODULE:FUNCTION/ARITY with * and "
	"? for any text, {M,F,A}, on_load. Processes need the flag call: lorg process."
	"\v  lorg process hunt all on call\n"
	"  lorg function hunt 'libc.so.6:open*' --local --match \"[{'_',[],[{return_trace}]}]\"\n"
	"  lorg function hunt '{git,cmd_main,2}' --if 'arg0 > 1'\n"
	"  lorg function hunt 'redis-server:*' --call-count\n"
	"  lorg info hunt 'redis-server:processCommand/1' call_count\n"
	"lorg functions PROGRAM lists what can be traced, lorg matchspec tries a specification.\n",
	NULL, NULL, NULL};

static int ask_function_with(struct lorg_session *session, const struct function_arguments *function, struct lorg_connection *connection)
{
	struct lorg_failure failure;
	char *string = function->condition ? node_string(function->condition) : NULL;
	char *match = string		? node_printf("{'if',%s}", string)
		      : function->match ? node_printf("%s", function->match)
					: node_printf("%s", function->how ? function->how : "true");
	char *pattern = node_pattern(function->arguments.list[1]), *options = node_printf("[%s]", function->options);
	int64_t number = lorg_function(session, pattern, match, options, &failure);
	int status = answer_number(function->arguments.list[1], number, &failure);
	if (number >= 0)
		node_say_refused(lorg_function_refused(connection));
	free(string);
	free(match);
	free(pattern);
	free(options);
	return status;
}

int command_function(int argc, char **argv)
{
	struct function_arguments function = {.match = NULL};
	command_parse(&function_argp, argc, argv, &function);
	if (function.arguments.count != 2)
		node_usage("lorg function", "a session and a pattern are needed", "lorg function SESSION MODULE:FUNCTION; see lorg function --help");
	free(node_pattern(function.arguments.list[1])); /* what is wrong with it is said first */
	struct lorg_connection *connection = node_connect();
	struct lorg_session *session = connection ? node_session(connection, function.arguments.list[0]) : NULL;
	int status = session ? ask_function_with(session, &function, connection) : EXIT_STATUS_FAILURE;
	lorg_session_free(session);
	lorg_disconnect(connection);
	return status;
}

/* ---- send, recv, system, info -------------------------------------------------------------- */

static int ask_send(struct lorg_session *session, const struct arguments *arguments)
{
	struct lorg_failure failure;
	return answer_number("send", lorg_send(session, arguments->list[1], "[]", &failure), &failure);
}

static int ask_recv(struct lorg_session *session, const struct arguments *arguments)
{
	struct lorg_failure failure;
	return answer_number("recv", lorg_recv(session, arguments->list[1], "[]", &failure), &failure);
}

static int ask_system(struct lorg_session *session, const struct arguments *arguments)
{
	struct lorg_failure failure;
	if (lorg_system(session, arguments->list[1], arguments->list[2], &failure))
		return node_failed(arguments->list[1], &failure);
	return node_print("ok");
}

static int ask_info(struct lorg_session *session, const struct arguments *arguments)
{
	struct lorg_failure failure;
	char *of = node_target(arguments->list[1]);
	int status = answer_text(arguments->list[1], lorg_info(session, of, arguments->list[2], &failure), &failure);
	free(of);
	return status;
}

static int with_arguments(int argc, char **argv, const struct argp *argp, ask_function *function, int count)
{
	struct arguments arguments = {.count = 0};
	char advice[100];
	command_parse(argp, argc, argv, &arguments);
	if (arguments.count != count) {
		snprintf(advice, sizeof advice, "%s %s; see %s --help", argv[0], argp->args_doc, argv[0]);
		node_usage(argv[0], arguments.count < count ? "arguments are missing" : "too many arguments", advice);
	}
	return ask(arguments.list[0], function, &arguments);
}

static const struct argp send_argp = {
	NULL, parse_arguments, "SESSION SPEC|true|false",
	"Says which messages that processes with the flag send send are traced: trace:send/3, a match specification on [Receiver, Msg]."
	"\v  lorg process hunt 4211 on send\n"
	"  lorg send hunt \"[{['_',<<\\\"PING\\\">>],[],[]}]\"\n",
	NULL, NULL, NULL};
static const struct argp recv_argp = {
	NULL, parse_arguments, "SESSION SPEC|true|false",
	"Says which messages that processes with the flag receive receive are traced: trace:recv/3, a match specification on [Node, Sender, Msg]."
	"\v  lorg process hunt 4211 on receive\n"
	"  lorg recv hunt false\n",
	NULL, NULL, NULL};
static const struct argp system_argp = {
	NULL, parse_arguments, "SESSION EVENT VALUE",
	"Watches the system: trace:system/3. EVENT VALUE: long_gc MS, long_message_queue {Disable,Enable}, long_schedule MS, large_heap WORDS, "
	"busy_port true, busy_dist_port true; the value false ends it."
	"\v  lorg system hunt long_schedule 50\n"
	"  lorg tail hunt\n",
	NULL, NULL, NULL};
static const struct argp info_argp = {
	NULL, parse_arguments, "SESSION OF ITEM",
	"Prints what a session traces: trace:info/3. OF: PID, PID.TID, a port, new, new_processes, new_ports, MODULE:FUNCTION/ARITY or {M,F,A}, "
	"on_load, send, receive, system. ITEM: flags, tracer; of functions traced, match_spec, meta, meta_match_spec, call_count, call_time, "
	"call_memory, all."
	"\v  lorg info hunt 4211 flags\n"
	"  lorg info hunt '{git,cmd_main,2}' all\n",
	NULL, NULL, NULL};

int command_send(int argc, char **argv)
{
	return with_arguments(argc, argv, &send_argp, ask_send, 2);
}

int command_recv(int argc, char **argv)
{
	return with_arguments(argc, argv, &recv_argp, ask_recv, 2);
}

int command_system(int argc, char **argv)
{
	return with_arguments(argc, argv, &system_argp, ask_system, 3);
}

int command_info(int argc, char **argv)
{
	return with_arguments(argc, argv, &info_argp, ask_info, 3);
}

/* ---- delivered ------------------------------------------------------------------------------- */

static const struct argp delivered_argp = {
	NULL, parse_arguments, "SESSION PID|PID.TID|all",
	"Waits until all that these processes have done before is with the session's tracer: trace:delivered/2. Prints the reference, and then "
	"{trace_delivered,Tracee,Ref}."
	"\v  lorg delivered hunt all && lorg log hunt.trace\n",
	NULL, NULL, NULL};

static int await_delivered(struct lorg_session *session, struct lorg_connection *connection, const char *whom)
{
	struct lorg_failure failure;
	struct lorg_message message;
	char *reference = lorg_delivered(session, whom, &failure);
	int status = reference ? node_print(reference) : node_failed(whom, &failure), got = 0;
	while (status == 0 && (got = lorg_receive(connection, -1, &message, &failure)) > 0) {
		if (message.kind == LORG_MESSAGE_DELIVERED && strstr(message.text, reference)) {
			status = node_print(message.text);
			break;
		}
		if (message.kind == LORG_MESSAGE_ENDED) {
			lorg_error(whom, "the session has ended", message.text);
			status = EXIT_STATUS_FAILURE;
		}
	}
	if (got < 0)
		status = node_failed(whom, &failure);
	free(reference);
	return status;
}

int command_delivered(int argc, char **argv)
{
	struct arguments arguments = {.count = 0};
	command_parse(&delivered_argp, argc, argv, &arguments);
	if (arguments.count != 2)
		node_usage("lorg delivered", "a session and a process are needed", "lorg delivered SESSION all; see lorg delivered --help");
	struct lorg_connection *connection = node_connect();
	struct lorg_session *session = connection ? node_session(connection, arguments.list[0]) : NULL;
	char *whom = node_whom(arguments.list[1]);
	int status = session ? await_delivered(session, connection, whom) : EXIT_STATUS_FAILURE;
	free(whom);
	lorg_session_free(session);
	lorg_disconnect(connection);
	return status;
}

/* ---- ps ------------------------------------------------------------------------------------------ */

static const struct argp ps_argp = {follow_format_option, follow_parse_format, "",
				    "Lists the programs that are attached to lorgd, and the sessions that trace them."
				    "\vPrograms attach that were started with LD_PRELOAD=liblorg.so or lorg run --daemon; lorg attach PID brings in others.\n",
				    NULL, NULL, NULL};

static void print_programs_json(struct json *json, const struct term_program *programs, int64_t count)
{
	json_begin(json);
	json_key(json, "programs");
	json_begin_list(json);
	for (int64_t i = 0; i < count; i++) {
		json_begin(json);
		json_key(json, "pid");
		json_signed(json, programs[i].pid);
		json_key(json, "file");
		json_text(json, programs[i].file);
		json_key(json, "sessions");
		json_begin_list(json);
		for (int64_t s = 0; s < programs[i].session_count; s++) {
			json_begin(json);
			json_key(json, "name");
			json_text(json, programs[i].sessions[s].name);
			json_key(json, "number");
			json_number(json, programs[i].sessions[s].number);
			json_end(json);
		}
		json_end_list(json);
		json_end(json);
	}
	json_end_list(json);
	json_end(json);
	json_end_line(json);
}

enum { FILE_COLUMN_MAXIMUM = 60 };

static size_t columns_of(const char *text)
{
	size_t columns = 0;
	for (; *text; text++)
		columns += ((unsigned char)*text & 0xc0) != 0x80; /* each UTF-8 character is one, as a rule */
	return columns;
}

/* Of the names of files: as wide as the longest, within limits. */
static size_t file_column(const struct term_program *programs, int64_t count)
{
	size_t width = sizeof "PROGRAM" - 1;
	for (int64_t i = 0; i < count; i++) {
		size_t columns = columns_of(programs[i].file);
		if (columns > width)
			width = columns;
	}
	return width < FILE_COLUMN_MAXIMUM ? width : FILE_COLUMN_MAXIMUM;
}

static void print_spaces(struct output *output, size_t used, size_t width)
{
	output_text(output, "  ");
	for (; used < width; used++)
		output_byte(output, ' ');
}

static void print_programs_text(struct output *output, const struct term_program *programs, int64_t count)
{
	size_t width = file_column(programs, count);
	if (count) {
		output_text(output, "    PID  PROGRAM");
		print_spaces(output, sizeof "PROGRAM" - 1, width);
		output_text(output, "SESSIONS\n");
	}
	for (int64_t i = 0; i < count; i++) {
		output_printf(output, "%7lld  ", (long long)programs[i].pid);
		output_safe(output, programs[i].file, strlen(programs[i].file), 0);
		print_spaces(output, columns_of(programs[i].file), width);
		for (int64_t s = 0; s < programs[i].session_count; s++) {
			output_text(output, s ? ", " : "");
			output_safe(output, programs[i].sessions[s].name, strlen(programs[i].sessions[s].name), 0);
		}
		if (!programs[i].session_count)
			output_byte(output, '-');
		output_byte(output, '\n');
	}
}

static int by_pid(const void *left, const void *right)
{
	const struct term_program *a = left, *b = right;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

static int print_programs(const char *list, enum follow_format format)
{
	struct term_program *programs = NULL;
	struct output output;
	int64_t count = format == FOLLOW_ERLANG ? -1 : term_programs(list, &programs);
	if (count < 0)
		return node_print(list);
	if (count > 1)
		qsort(programs, (size_t)count, sizeof *programs, by_pid);
	output_begin(&output, STDOUT_FILENO);
	struct json *json = format == FOLLOW_JSON ? json_new(&output) : NULL;
	if (json)
		print_programs_json(json, programs, count);
	else
		print_programs_text(&output, programs, count);
	json_free(json);
	term_programs_free(programs, count);
	return node_end_output(&output);
}

int command_ps(int argc, char **argv)
{
	enum follow_format format = FOLLOW_TEXT;
	struct lorg_failure failure;
	command_parse(&ps_argp, argc, argv, &format);
	struct lorg_connection *connection = node_connect();
	if (!connection)
		return EXIT_STATUS_FAILURE;
	char *list = lorg_programs(connection, &failure);
	int status = list ? print_programs(list, format) : node_failed("ps", &failure);
	free(list);
	lorg_disconnect(connection);
	return status;
}
