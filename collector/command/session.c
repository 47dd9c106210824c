/* SPDX-License-Identifier: MIT */
/* session.c: lorg session create, list, info, destroy; lorg tail. */
#include <errno.h>
#include <limits.h>
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

/* ---- session create ------------------------------------------------------------ */

struct creation {
	const char *name, *directory, *tracer;
	int persist;
	struct lorg_limits limits;
	enum follow_format format;
};

enum creation_key { KEY_PERSIST = 256, KEY_TRACER, KEY_LIMIT_EVENTS, KEY_LIMIT_RATE, KEY_LIMIT_MEMORY };

static const struct argp_option create_options[] = {
	{"output", 'o', "DIR", 0, "Its messages go into the trace directory DIR, to be read by lorg log and lorg report", 1},
	{"tracer", KEY_TRACER, "TERM", 0,
	 "They go to TERM: {directory,\"DIR\"}, {file,\"PATH\"}, {socket,\"PATH\"}, {module,\"PLUGIN.so\",State}; client (the default): here, or to lorg tail",
	 1},
	{"persist", KEY_PERSIST, NULL, 0, "The session stays when this command has ended: at once", 2},
	{"limit-events", KEY_LIMIT_EVENTS, "N", 0, "After N events it ends", 3},
	{"limit-rate", KEY_LIMIT_RATE, "N[/UNIT]", 0, "More than N events a second (UNIT: us, ms, s, min, h) are dropped and counted: 5000, 50/ms", 3},
	{"limit-memory", KEY_LIMIT_MEMORY, "SIZE", 0, "No more than SIZE bytes (k, M, G) wait for a tracer that is slow; the rest is dropped and counted", 3},
	{"format", 'f', "FORMAT", 0, "Of the messages that are printed here: text (the default), erlang or json", 4},
	{0},
};

static const char create_arguments[] = "NAME";
static const char create_help[] =
	"Makes a trace session on the running lorgd, and prints its handle. Without --persist it stays in front, prints the session's "
	"messages and takes the session with it when it ends, however that is."
	"\vWhat is traced is said by other commands, while it runs:\n\n"
	"  lorg session create hunt --persist        make it\n"
	"  lorg process hunt all on procs call       say of whom what\n"
	"  lorg function hunt 'libc.so.6:open*'      and which calls\n"
	"  lorg tail hunt                            look at it\n"
	"  lorg session destroy hunt                 done; the programs are as they were\n";

static error_t parse_creation(int key, char *argument, struct argp_state *state)
{
	struct creation *creation = state->input;
	switch (key) {
	case 'o': creation->directory = argument; return 0;
	case 'f': creation->format = follow_format(argument); return 0;
	case KEY_TRACER: creation->tracer = argument; return 0;
	case KEY_PERSIST: creation->persist = 1; return 0;
	case KEY_LIMIT_EVENTS: creation->limits.events = node_count("--limit-events", argument); return 0;
	case KEY_LIMIT_RATE: node_rate("--limit-rate", argument, &creation->limits); return 0;
	case KEY_LIMIT_MEMORY: creation->limits.memory = node_bytes("--limit-memory", argument); return 0;
	case ARGP_KEY_ARG:
		if (creation->name)
			node_usage(argument, "one name is enough", "see lorg session create --help");
		creation->name = argument;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp create_argp = {create_options, parse_creation, create_arguments, create_help, NULL, NULL, NULL};

/* lorgd runs elsewhere: it is told the whole path. */
static char *directory_tracer(const char *directory)
{
	char here[PATH_MAX];
	const char *base = directory[0] == '/' ? NULL : getcwd(here, sizeof here);
	char *path = base ? node_printf("%s/%s", base, directory) : node_printf("%s", directory);
	char *string = node_string(path), *tracer = node_printf("{directory,%s}", string);
	free(path);
	free(string);
	return tracer;
}

static int has_limits(const struct lorg_limits *limits)
{
	return limits->events || limits->rate || limits->memory;
}

static int stay(struct follow *follow, const struct creation *creation)
{
	follow->silent = creation->directory || (creation->tracer && strcmp(creation->tracer, "client") != 0);
	return follow_run(follow);
}

static int create(struct lorg_connection *connection, const struct creation *creation)
{
	struct lorg_failure failure;
	struct follow follow = {.connection = connection, .format = creation->format};
	char *tracer = creation->directory ? directory_tracer(creation->directory) : NULL;
	if (!creation->persist)
		follow_begin(&follow);
	struct lorg_session *session = lorg_session_create(connection, creation->name, tracer ? tracer : creation->tracer ? creation->tracer : "client",
							   creation->persist ? "[persist]" : "[]", &failure);
	free(tracer);
	if (!session)
		return node_failed(creation->name, &failure);
	int status = 0;
	if (has_limits(&creation->limits) && lorg_session_limit(session, &creation->limits, &failure)) {
		status = node_failed(creation->name, &failure);
		lorg_session_destroy(session, NULL);
	} else {
		status = node_print(lorg_session_handle(session));
	}
	if (!status && !creation->persist)
		status = stay(&follow, creation);
	lorg_session_free(session);
	return status;
}

static int command_create(int argc, char **argv)
{
	struct creation creation = {.format = FOLLOW_TEXT};
	command_parse(&create_argp, argc, argv, &creation);
	if (!creation.name)
		node_usage("lorg session create", "no name given", "lorg session create NAME; see lorg session create --help");
	if (creation.directory && creation.tracer)
		node_usage("--tracer", "there is --output already", "give one of them");
	struct lorg_connection *connection = node_connect();
	int status = connection ? create(connection, &creation) : EXIT_STATUS_FAILURE;
	lorg_disconnect(connection);
	return status;
}

/* ---- session list ------------------------------------------------------------------ */

static const struct argp list_argp = {follow_format_option, follow_parse_format, "",
				      "Lists the trace sessions of the running lorgd: number and name."
				      "\vlorg tail NAME shows what a session gets, lorg session destroy NAME ends it.\n",
				      NULL, NULL, NULL};

static int print_sessions_json(const struct term_session *sessions, int64_t count)
{
	struct output output;
	output_begin(&output, STDOUT_FILENO);
	struct json *json = json_new(&output);
	if (!json)
		return EXIT_STATUS_FAILURE;
	json_begin(json);
	json_key(json, "sessions");
	json_begin_list(json);
	for (int64_t i = 0; i < count; i++) {
		json_begin(json);
		json_key(json, "name");
		json_text(json, sessions[i].name);
		json_key(json, "number");
		json_number(json, sessions[i].number);
		json_end(json);
	}
	json_end_list(json);
	json_end(json);
	json_end_line(json);
	json_free(json);
	return node_end_output(&output);
}

static int print_sessions_text(const struct term_session *sessions, int64_t count)
{
	struct output output;
	output_begin(&output, STDOUT_FILENO);
	for (int64_t i = 0; i < count; i++) {
		output_printf(&output, "%6llu  ", (unsigned long long)sessions[i].number);
		output_safe(&output, sessions[i].name, strlen(sessions[i].name), 0);
		output_byte(&output, '\n');
	}
	return node_end_output(&output);
}

static int print_sessions(const char *list, enum follow_format format)
{
	struct term_session *sessions = NULL;
	int64_t count = term_sessions(list, &sessions);
	int status = 0;
	if (format == FOLLOW_ERLANG || count < 0)
		status = node_print(list);
	else if (format == FOLLOW_JSON)
		status = print_sessions_json(sessions, count);
	else
		status = print_sessions_text(sessions, count);
	free(sessions);
	return status;
}

static int command_list(int argc, char **argv)
{
	enum follow_format format = FOLLOW_TEXT;
	struct lorg_failure failure;
	command_parse(&list_argp, argc, argv, &format);
	struct lorg_connection *connection = node_connect();
	if (!connection)
		return EXIT_STATUS_FAILURE;
	char *list = lorg_session_info(connection, "all", &failure);
	int status = list ? print_sessions(list, format) : node_failed("session list", &failure);
	free(list);
	lorg_disconnect(connection);
	return status;
}

/* ---- session info, destroy ------------------------------------------------------------ */

static error_t parse_one(int key, char *argument, struct argp_state *state)
{
	const char **one = state->input;
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	if (*one)
		node_usage(argument, "one is enough", "see --help");
	*one = argument;
	return 0;
}

static const struct argp info_argp = {NULL, parse_one, "OF",
				      "Prints the sessions that trace a process (PID, PID.TID), a port or a function (MODULE:FUNCTION/ARITY, {M,F,A}), or all of them (all): "
				      "trace:session_info/1."
				      "\vWhat a session traces of whom is told by lorg info SESSION OF ITEM.\n",
				      NULL, NULL, NULL};
static const struct argp destroy_argp = {NULL, parse_one, "NAME|NUMBER",
					 "Ends a session: nothing that it asked for is left in any program. Prints true, or false where it was gone already."
					 "\vlorg session list names those that there are.\n",
					 NULL, NULL, NULL};

static int command_info_of(int argc, char **argv)
{
	const char *of = NULL;
	struct lorg_failure failure;
	command_parse(&info_argp, argc, argv, &of);
	if (!of)
		node_usage("lorg session info", "of what?", "give a PID, a port, {M,F,A} or all; see lorg session info --help");
	struct lorg_connection *connection = node_connect();
	if (!connection)
		return EXIT_STATUS_FAILURE;
	char *whom = node_target(of), *list = lorg_session_info(connection, whom, &failure);
	int status = list ? node_print(list) : node_failed(of, &failure);
	free(whom);
	free(list);
	lorg_disconnect(connection);
	return status;
}

static int destroy(struct lorg_connection *connection, const char *name)
{
	struct lorg_failure failure;
	struct lorg_session *session = lorg_session_find(connection, name, &failure);
	if (!session && failure.error == ENOENT)
		return node_print("false");
	if (!session)
		return node_failed(name, &failure);
	int destroyed = lorg_session_destroy(session, &failure);
	int status = destroyed < 0 ? node_failed(name, &failure) : node_print(destroyed ? "true" : "false");
	lorg_session_free(session);
	return status;
}

static int command_destroy(int argc, char **argv)
{
	const char *name = NULL;
	command_parse(&destroy_argp, argc, argv, &name);
	if (!name)
		node_usage("lorg session destroy", "which one?", "lorg session list names them");
	struct lorg_connection *connection = node_connect();
	int status = connection ? destroy(connection, name) : EXIT_STATUS_FAILURE;
	lorg_disconnect(connection);
	return status;
}

/* ---- session ----------------------------------------------------------------------------- */

static error_t parse_nothing(int key, char *argument, struct argp_state *state)
{
	(void)key, (void)argument, (void)state;
	return ARGP_ERR_UNKNOWN;
}

static const struct argp session_argp = {
	NULL, parse_nothing, "create NAME | list | info OF | destroy NAME",
	"Trace sessions on a running lorgd: each asks its own questions of programs that run, without disturbing the others."
	"\vEach has its own --help. First steps:\n\n"
	"  lorgd &                                   programs started with LD_PRELOAD=liblorg.so or lorg run --daemon attach to it\n"
	"  lorg session create hunt --persist\n"
	"  lorg process hunt all on procs send receive\n"
	"  lorg tail hunt\n",
	NULL, NULL, NULL};

int command_session(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = {
		{"create", command_create}, {"list", command_list}, {"info", command_info_of}, {"destroy", command_destroy}};
	static char name[64];
	for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		snprintf(name, sizeof name, "lorg session %s", commands[i].name);
		argv[1] = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	if (argc > 1 && argv[1][0] == '-')
		command_parse(&session_argp, argc, argv, NULL);
	struct nearest nearest = {.text = argc > 1 ? argv[1] : ""};
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		nearest_try(&nearest, commands[i].name);
	char *advice = node_printf("%s%s%screate, list, info or destroy; see lorg session --help", nearest.name ? "did you mean " : "",
				   nearest.name ? nearest.name : "", nearest.name ? "? " : "");
	node_usage(argc > 1 ? argv[1] : "lorg session", argc > 1 ? "no such command" : "no command given", advice);
}

/* ---- tail ------------------------------------------------------------------------------------ */

struct tail {
	const char *session;
	enum follow_format format;
	uint64_t maximum;
};

enum tail_key { KEY_MAX = 300 };

static const struct argp_option tail_options[] = {
	{"format", 'f', "FORMAT", 0, "text (the default; coloured on a terminal), erlang (messages of trace(3)) or json", 1},
	{"max", KEY_MAX, "N", 0, "Only the next N messages", 1},
	{0},
};

static error_t parse_tail(int key, char *argument, struct argp_state *state)
{
	struct tail *tail = state->input;
	switch (key) {
	case 'f': tail->format = follow_format(argument); return 0;
	case KEY_MAX: tail->maximum = node_count("--max", argument); return 0;
	case ARGP_KEY_ARG:
		if (tail->session)
			node_usage(argument, "one session is enough", "see lorg tail --help");
		tail->session = argument;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp tail_argp = {tail_options, parse_tail, "SESSION|DIR/",
				      "Prints what a persistent session gets, or what is written into a trace directory, as it comes, until it is interrupted or "
				      "the session ends. The session stays."
				      "\vWhat has a slash in it is a directory, of a session or of lorg run.\n\n"
				      "  lorg session create hunt --persist\n"
				      "  lorg process hunt all on procs\n"
				      "  lorg tail hunt --format erlang\n",
				      NULL, NULL, NULL};

/* The session that is looked at; it persists, so lorgd makes it anew where it is started again. */
struct tailed {
	const struct tail *tail;
	struct lorg_session *session;
	char *handle;
};

static enum follow_answer adopt(struct tailed *tailed)
{
	struct lorg_failure failure;
	if (lorg_session_adopt(tailed->session, &failure) == 0)
		return FOLLOW_ON;
	if (failure.kind == LORG_FAILURE_NO_DAEMON)
		return FOLLOW_GONE;
	lorg_error(tailed->tail->session, failure.text, NULL);
	return FOLLOW_FAILED;
}

static enum follow_answer adopt_again(void *context, struct lorg_connection *connection)
{
	struct tailed *tailed = context;
	struct lorg_failure failure;
	lorg_session_free(tailed->session);
	tailed->session = lorg_session_find(connection, tailed->handle, &failure);
	if (tailed->session)
		return adopt(tailed);
	lorg_error(tailed->tail->session, failure.text, NULL);
	return FOLLOW_FAILED;
}

static int follow_session(struct follow *follow, struct tailed *tailed)
{
	char *goes_on = node_printf("session %s", tailed->tail->session);
	follow->come_back = adopt_again;
	follow->context = tailed;
	follow->goes_on = goes_on;
	enum follow_answer answer = adopt(tailed);
	if (answer == FOLLOW_GONE)
		lorg_error(tailed->tail->session, "lorgd has gone", "start it again with `lorgd &`");
	int status = answer == FOLLOW_ON ? follow_run(follow) : EXIT_STATUS_FAILURE;
	free(goes_on);
	return status;
}

static int tail_session(struct follow *follow, const struct tail *tail)
{
	struct tailed tailed = {.tail = tail, .session = node_session(follow->connection, tail->session)};
	if (!tailed.session)
		return EXIT_STATUS_FAILURE;
	tailed.handle = node_printf("%s", lorg_session_handle(tailed.session));
	follow_begin(follow);
	char *tracer = lorg_session_tracer(tailed.session, NULL);
	char *directory = tracer ? term_directory(tracer) : NULL;
	int status = directory ? follow_directory(follow, directory) : follow_session(follow, &tailed);
	free(tracer);
	free(directory);
	free(tailed.handle);
	lorg_session_free(tailed.session);
	return status;
}

/* A path is no session's name. */
static int tail_directory(const struct tail *tail)
{
	struct follow follow = {.format = tail->format, .maximum = tail->maximum};
	return follow_directory(&follow, tail->session);
}

int command_tail(int argc, char **argv)
{
	struct tail tail = {.format = FOLLOW_TEXT};
	command_parse(&tail_argp, argc, argv, &tail);
	if (!tail.session)
		node_usage("lorg tail", "which session?", "lorg session list names them");
	if (strchr(tail.session, '/'))
		return tail_directory(&tail);
	struct follow follow = {.connection = node_connect(), .format = tail.format, .maximum = tail.maximum};
	int status = follow.connection ? tail_session(&follow, &tail) : EXIT_STATUS_FAILURE;
	lorg_disconnect(follow.connection);
	return status;
}
