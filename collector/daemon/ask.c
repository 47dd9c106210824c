/* SPDX-License-Identifier: MIT */
/* ask.c: requests that say what is to be traced: process/4, port/4, function/4, send/3, recv/3, system/3. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/plan.h>

#include "collector/daemon/asking.h"
#include "collector/daemon/protocol.h"
#include "collector/match/compile.h"
#include "collector/session/tracer.h"
#include "collector/term/printer.h"

/* Bytes of a compiled specification of messages. */
enum { PROGRAM_MAXIMUM = 256 << 10 };

/* ---- flags ---------------------------------------------------------------------- */

static int parse_flag(struct asking *asking, lorg_term term, uint32_t *flags, int *cpu_timestamp)
{
	char name[ATOM_ROOM];
	if (atom_text(asking, term, name))
		return badarg(asking, "flags have %s, which is no flag", said(asking, term));
	if (strcmp(name, "all") == 0) {
		*flags |= LORG_TRACE_ALL;
		return 0;
	}
	if (strcmp(name, "cpu_timestamp") == 0) {
		*cpu_timestamp = 1;
		return 0;
	}
	uint32_t flag = flag_named(name);
	if (!flag)
		return badarg(asking, "flags have %s, which is no flag", said(asking, term));
	*flags |= flag;
	return 0;
}

/* All or nothing: nothing is done until each is known to be one. */
static int parse_flags(struct asking *asking, lorg_term term, uint32_t *flags, int *cpu_timestamp)
{
	lorg_term head, tail = term;
	*flags = 0;
	*cpu_timestamp = 0;
	while (lorg_is_cons(tail) && lorg_get_cons(asking->terms, tail, &head, &tail))
		if (parse_flag(asking, head, flags, cpu_timestamp))
			return -1;
	return lorg_is_nil(tail) ? 0 : badarg(asking, "flags are %s, not a list", said(asking, term));
}

/* What process/4 and port/4 have in common. */
struct change {
	struct asking *asking;
	struct session *session;
	struct target target;
	int how;
	uint32_t flags;
	int cpu_timestamp;
};

static int parse_change(struct asking *asking, struct change *change)
{
	*change = (struct change){.asking = asking};
	if (parse_session(asking, asking->argument[0], &change->session) ||
	    parse_boolean(asking, "how", asking->argument[2], &change->how) ||
	    parse_flags(asking, asking->argument[3], &change->flags, &change->cpu_timestamp))
		return -1;
	return 0;
}

static int parse_target(struct asking *asking, const char *what, lorg_term term, enum lorg_kind kind, struct target *target)
{
	static const struct {
		const char *name;
		enum target_kind kind;
	} names[] = {{"all", TARGET_ALL}, {"existing", TARGET_EXISTING}, {"new", TARGET_NEW}};
	uint64_t program;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!is_atom(asking, term, names[i].name))
			continue;
		target->kind = names[i].kind;
		return 0;
	}
	if (lorg_get_unsigned(asking->terms, term, &program) && program && program <= INT_MAX) {
		target->kind = TARGET_PROGRAM;
		target->numbers[0] = (uint32_t)program;
		return 0;
	}
	if (lorg_term_kind(asking->terms, term) != kind)
		return badarg(asking, "%s is %s, not %s, all, existing or new", what, said(asking, term),
			      kind == LORG_KIND_PID ? "a pid" : "a port");
	target->kind = kind == LORG_KIND_PID ? TARGET_PID : TARGET_PORT;
	return kind == LORG_KIND_PID ? parse_pid(asking, what, term, target->numbers)
				     : parse_port(asking, what, term, target->numbers, &target->parts);
}

static int check_cpu_timestamp(const struct change *change)
{
	if (!change->cpu_timestamp || change->target.kind == TARGET_ALL)
		return 0;
	return badarg(change->asking, "cpu_timestamp is of the whole session: it can be set and cleared with all only");
}

/* Ports have none: what they tell goes by that of the processes. */
static int refuse_cpu_timestamp(const struct change *change)
{
	return change->cpu_timestamp ? badarg(change->asking, "cpu_timestamp is no flag of ports: set it by process/4, with all") : 0;
}

static const struct image *program_of(const struct change *change)
{
	return change->target.kind == TARGET_PROGRAM ? node_program(change->asking->sessions->context, change->target.numbers[0]) : NULL;
}

/* ---- process/4 -------------------------------------------------------------------- */

static void change_process(void *context, const struct node_process *process)
{
	const struct change *change = context;
	if (change->flags)
		session_process_flags(change->asking->sessions, change->session, process->family, process->index, change->how,
				      change->flags);
}

static void set_new(struct change *change)
{
	uint32_t *flags = &change->session->defaults.new_processes;
	*flags = change->how ? *flags | change->flags : *flags & ~change->flags;
}

/* First for those to come: whoever comes in between has got it already. */
static int64_t change_all(struct change *change, const struct image *program)
{
	struct sessions *sessions = change->asking->sessions;
	if (change->target.kind == TARGET_ALL || change->target.kind == TARGET_NEW)
		set_new(change);
	if (change->how)
		session_asks(change->session, change->flags);
	sessions_publish(sessions);
	if (change->target.kind == TARGET_NEW)
		return 0;
	return node_processes(sessions->context, program, tracer_program(change->session), change_process, change);
}

static int is_tracer(const struct change *change)
{
	pid_t tracer = tracer_program(change->session);
	return tracer && (uint32_t)tracer == change->target.numbers[0];
}

static int64_t change_program(struct change *change)
{
	const struct image *program = program_of(change);
	if (!program)
		return badarg(change->asking, "processes: no program %u is attached", change->target.numbers[0]);
	if (is_tracer(change))
		return badarg(change->asking, "processes: program %u is the tracer itself", change->target.numbers[0]);
	if (session_program_flags(change->asking->sessions, change->session, program->family, program, change->how, change->flags))
		return system_limit(change->asking, "processes: sessions ask single programs of its family for flags in %d ways already: use all", LORG_PROGRAM_FLAGS);
	return change_all(change, program);
}

static int64_t change_one(struct change *change)
{
	struct asking *asking = change->asking;
	const uint32_t *numbers = change->target.numbers;
	struct node_process process;
	if (is_tracer(change))
		return badarg(asking, "processes: %s is of the tracer itself", said(asking, asking->argument[1]));
	if (node_process(asking->sessions->context, numbers[0], numbers[1], numbers[2], &process))
		return badarg(asking, "processes: %s is not there: it has ended, or its program is not attached", said(asking, asking->argument[1]));
	if (change->how)
		session_asks(change->session, change->flags);
	sessions_publish(asking->sessions);
	change_process(change, &process);
	return 1;
}

static int64_t change_processes(struct change *change)
{
	switch (change->target.kind) {
	case TARGET_PID:
		return change_one(change);
	case TARGET_PROGRAM:
		return change_program(change);
	default:
		return change_all(change, NULL);
	}
}

static void answer_number(struct change *change, int64_t number)
{
	if (number < 0)
		return;
	if (change->cpu_timestamp)
		change->session->timestamps = change->how ? 1 : 0;
	if (!change->how)
		sessions_look(change->asking->sessions);
	sessions_publish(change->asking->sessions);
	fprintf(change->asking->out, "%" PRId64, number);
}

void ask_process(struct asking *asking)
{
	struct change change;
	if (parse_change(asking, &change) || parse_target(asking, "processes", asking->argument[1], LORG_KIND_PID, &change.target) ||
	    check_cpu_timestamp(&change))
		return;
	/* So that each of them knows, and those to come; it is in no answer about flags. */
	change.flags |= change.cpu_timestamp ? (uint32_t)LORG_TRACE_CPU_TIMESTAMP : 0;
	answer_number(&change, change_processes(&change));
}

/* ---- port/4 ------------------------------------------------------------------------- */

static void change_port(void *context, const struct node_port *port)
{
	const struct change *change = context;
	if (change->flags)
		session_port_flags(change->asking->sessions, change->session, port->image, port->fd, port->generation, change->how,
				   change->flags);
}

static int64_t change_one_port(struct change *change)
{
	struct asking *asking = change->asking;
	const uint32_t *numbers = change->target.numbers;
	struct node_port port;
	if (node_port(asking->sessions, numbers[0], numbers[1], numbers[2], change->target.parts, &port))
		return badarg(asking, "ports: %s is not open: it was closed, or its program is not attached", said(asking, asking->argument[1]));
	change_port(change, &port);
	return 1;
}

static int64_t change_ports(struct change *change)
{
	struct asking *asking = change->asking;
	const struct image *program = program_of(change);
	if (change->target.kind == TARGET_PORT)
		return change_one_port(change);
	if (change->target.kind == TARGET_PROGRAM && !program)
		return badarg(asking, "ports: no program %u is attached", change->target.numbers[0]);
	if (change->target.kind == TARGET_ALL || change->target.kind == TARGET_NEW)
		session_new_ports(asking->sessions, change->session, change->how, change->flags);
	sessions_publish(asking->sessions);
	if (change->target.kind == TARGET_NEW)
		return 0;
	return node_ports(asking->sessions, program, tracer_program(change->session), change_port, change);
}

void ask_port(struct asking *asking)
{
	struct change change;
	if (parse_change(asking, &change) || parse_target(asking, "ports", asking->argument[1], LORG_KIND_PORT, &change.target) ||
	    refuse_cpu_timestamp(&change))
		return;
	answer_number(&change, change_ports(&change));
}

/* ---- match specifications -------------------------------------------------------------- */

static int no_ranges(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **ranges)
{
	(void)owner, (void)module, (void)function, (void)arity;
	*ranges = NULL;
	return -1;
}

static int complain(struct asking *asking, const struct match_errors *errors)
{
	char text[400];
	uint32_t more = errors->count + errors->left_out - 1;
	match_error_text(&errors->list[0], text, sizeof text);
	const char *advice = errors->list[0].advice;
	int limit = 0;
	for (uint32_t i = 0; i < errors->count; i++)
		limit |= errors->list[i].system_limit;
	int (*refuse)(struct asking *, const char *, ...) = limit ? system_limit : badarg;
	return refuse(asking, "match specification, %s%s%s%s", text, *advice ? ": " : "", advice, more ? "; there is more behind it" : "");
}

/*
 * Compiles a specification, or (condition) the short form, of a dialect: as far as can be known without the functions that
 * it is for. 0, or -1 after an answer.
 */
static int compile(struct asking *asking, const char *text, enum lorg_match_dialect dialect, int condition, struct match_code *code)
{
	const struct match_names names = {.any = true, .ranges = no_ranges};
	const struct match_options options = {.dialect = dialect, .inside = true, .names = &names, .flags = LORG_TRACE_SUPPORTED};
	struct match_errors errors = {0};
	bool good = condition ? match_compile_condition(text, strlen(text), &options, code, &errors)
			      : match_compile(text, strlen(text), &options, code, &errors);
	if (!good && errors.count)
		complain(asking, &errors);
	else if (!good)
		system_limit(asking, "match specification: there is no memory for it: use a smaller one");
	match_errors_close(&errors);
	return good ? 0 : -1;
}

/* ---- send/3, recv/3 -------------------------------------------------------------------- */

int parse_messages(struct asking *asking, int receiving, struct session_messages *messages)
{
	const enum lorg_match_dialect dialect = receiving ? LORG_DIALECT_RECEIVE : LORG_DIALECT_SEND;
	lorg_term match = asking->argument[1];
	struct match_code code = {0};
	*messages = (struct session_messages){0};
	if (!lorg_is_nil(asking->argument[2]))
		return badarg(asking, "options are %s, not []", said(asking, asking->argument[2]));
	if (match == LORG_TRUE || lorg_is_nil(match))
		return 0;
	messages->given = 1;
	if (match == LORG_FALSE) {
		messages->off = 1;
		return 0;
	}
	if (!lorg_is_cons(match))
		return badarg(asking, "match specification is %s, not a list, true or false", said(asking, match));
	char *text = lorg_term_text(asking->terms, match, LORG_TEXT_ERLANG, NULL, NULL);
	if (!text)
		return system_limit(asking, "match specification: there is no memory for it: use a smaller one");
	if (compile(asking, text, dialect, 0, &code)) {
		free(text);
		return -1;
	}
	if (code.size > PROGRAM_MAXIMUM) {
		match_code_close(&code);
		free(text);
		return system_limit(asking, "match specification: it is larger than 256 KiB: use smaller constants");
	}
	messages->program = (uint8_t *)code.memory;
	messages->program_size = (uint32_t)code.size;
	messages->text = text;
	return 0;
}

static void ask_messages(struct asking *asking, int receiving)
{
	struct session *session;
	struct session_messages messages;
	if (parse_session(asking, asking->argument[0], &session) ||
	    parse_messages(asking, receiving, &messages))
		return;
	if (session_set_messages(asking->sessions, session, receiving, &messages) == 0) {
		fputs("1", asking->out);
		return;
	}
	free(messages.program);
	free(messages.text);
	system_limit(asking, "match specification: all sessions together have no room for more: use smaller ones");
}

void ask_send(struct asking *asking)
{
	ask_messages(asking, 0);
}

void ask_recv(struct asking *asking)
{
	ask_messages(asking, 1);
}

/* ---- function/4 -------------------------------------------------------------------------- */

enum { KINDS_COUNTING = LORG_KIND_COUNT | LORG_KIND_TIME | LORG_KIND_MEMORY };

static int parse_kind(struct asking *asking, lorg_term term, uint32_t *kinds, int *standing)
{
	static const struct {
		const char *name;
		uint32_t kind;
	} names[] = {{"global", LORG_KIND_GLOBAL},    {"local", LORG_KIND_LOCAL},     {"meta", LORG_KIND_META},
		     {"call_count", LORG_KIND_COUNT}, {"call_time", LORG_KIND_TIME}, {"call_memory", LORG_KIND_MEMORY}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!is_atom(asking, term, names[i].name))
			continue;
		*kinds |= names[i].kind;
		return 0;
	}
	if (is_atom(asking, term, "on_load")) {
		*standing = 1;
		return 0;
	}
	return badarg(asking, "options have %s, which is none of global, local, meta, call_count, call_time, call_memory, on_load",
		      said(asking, term));
}

static int parse_kinds(struct asking *asking, lorg_term term, uint32_t *kinds, int *standing)
{
	lorg_term head, tail = term;
	*kinds = 0;
	while (lorg_is_cons(tail) && lorg_get_cons(asking->terms, tail, &head, &tail))
		if (parse_kind(asking, head, kinds, standing))
			return -1;
	if (!lorg_is_nil(tail))
		return badarg(asking, "options are %s, not a list", said(asking, term));
	if ((*kinds & LORG_KIND_GLOBAL) && *kinds != LORG_KIND_GLOBAL)
		return badarg(asking, "options are %s: global stands alone", said(asking, term));
	if (!*kinds)
		*kinds = LORG_KIND_GLOBAL;
	return 0;
}

/* {'if', "CONDITION"}: lorg's own. */
static char *condition_of(struct asking *asking, lorg_term term)
{
	uint32_t arity = 0;
	const lorg_term *pair = lorg_get_tuple(asking->terms, term, &arity);
	if (!pair || arity != 2 || !is_atom(asking, pair[0], "if"))
		return NULL;
	lorg_term second = pair[1];
	char *text = malloc(PATH_ROOM);
	if (text && string_text(asking, second, text, PATH_ROOM)) {
		free(text);
		text = NULL;
	}
	return text;
}

static int parse_match_text(struct asking *asking, lorg_term match, struct function_request *request, char **text)
{
	struct match_code code = {0};
	*text = condition_of(asking, match);
	request->is_condition = *text != NULL;
	if (!*text && !lorg_is_cons(match))
		return badarg(asking, "match specification is %s, not a list, true, false, restart or pause", said(asking, match));
	if (request->kinds && !(request->kinds & ~(uint32_t)KINDS_COUNTING))
		return badarg(asking, "match specification is %s: counters take true, false, restart or pause", said(asking, match));
	if (!*text)
		*text = lorg_term_text(asking->terms, match, LORG_TEXT_ERLANG, NULL, NULL);
	if (!*text)
		return system_limit(asking, "match specification: there is no memory for it: use a smaller one");
	request->match = *text;
	if (compile(asking, *text, LORG_DIALECT_CALL, request->is_condition, &code))
		return -1;
	match_code_close(&code);
	return 0;
}

static int parse_match(struct asking *asking, lorg_term match, struct function_request *request, char **text)
{
	request->how = FUNCTION_SET;
	if (match == LORG_TRUE || lorg_is_nil(match))
		return 0;
	if (match == LORG_FALSE) {
		request->how = FUNCTION_CLEAR;
		return 0;
	}
	int restart = is_atom(asking, match, "restart");
	if (!restart && !is_atom(asking, match, "pause"))
		return parse_match_text(asking, match, request, text);
	request->how = restart ? FUNCTION_RESTART : FUNCTION_PAUSE;
	return 0;
}

/* Where the names of a request stand while it is begun. */
struct function_names {
	struct mfa mfa;
	char pattern[PATH_ROOM];
	char *match;
};

static int parse_pattern(struct asking *asking, lorg_term term, struct function_request *request, struct function_names *names)
{
	request->arity = -1;
	if (is_atom(asking, term, "on_load")) {
		request->on_load = 1;
		return 0;
	}
	if (lorg_is_cons(term) && string_text(asking, term, names->pattern, sizeof names->pattern) == 0) {
		request->pattern = names->pattern;
		return 0;
	}
	if (parse_mfa(asking, term, 1, &names->mfa))
		return -1;
	request->module = names->mfa.module[0] ? names->mfa.module : NULL;
	request->function = names->mfa.function[0] ? names->mfa.function : NULL;
	request->arity = names->mfa.arity;
	return 0;
}

static void function_is_done(void *context, int64_t number, const char *refused, const char *why)
{
	struct pending *pending = context;
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	if (out && why)
		answer_error(out, "badarg", why);
	else if (out)
		fprintf(out, "{%" PRId64 ",%s}", number, refused && *refused ? refused : "[]");
	if (!out || fclose(out) || connection_put(pending->connection, FRAME_ANSWER, pending->number, text, length, NULL))
		pending->connection->failed = 1;
	free(text);
	pending_free(pending);
}

static void begin_function(struct asking *asking, struct session *session, const struct function_request *request)
{
	struct pending *pending = pending_create(asking);
	if (!pending) {
		system_limit(asking, "there is no memory");
		return;
	}
	asking->connection->waits_for = pending;
	asking->later = 1;
	session_function(asking->sessions, session, request, function_is_done, pending);
}

static void answer_no_such_arity(struct asking *asking)
{
	char *function = lorg_term_text(asking->terms, asking->argument[1], LORG_TEXT_ERLANG, NULL, NULL);
	fputs("{0,[", asking->out);
	if (function)
		fprintf(asking->out, "{%s,\"no function has that many arguments\"}", function);
	fputs("]}", asking->out);
	free(function);
}

void ask_function(struct asking *asking)
{
	struct session *session;
	struct function_request request = {0};
	struct function_names *names = calloc(1, sizeof *names);
	if (!names) {
		system_limit(asking, "there is no memory");
		return;
	}
	if (parse_session(asking, asking->argument[0], &session) == 0 &&
	    parse_pattern(asking, asking->argument[1], &request, names) == 0 &&
	    parse_kinds(asking, asking->argument[3], &request.kinds, &request.standing) == 0 &&
	    parse_match(asking, asking->argument[2], &request, &names->match) == 0) {
		if (names->mfa.is_none)
			answer_no_such_arity(asking);
		else
			begin_function(asking, session, &request);
	}
	free(names->match);
	free(names);
}

/* ---- system/3 ------------------------------------------------------------------------------ */

enum { LEAST_TIME_MS = 1, LEAST_HEAP_WORDS = 16384 };

static int parse_time(struct asking *asking, const char *event, lorg_term value, uint64_t least, uint64_t *limit)
{
	if (!lorg_is_small(value) || !lorg_get_unsigned(asking->terms, value, limit))
		return badarg(asking, "%s is %s, not a number or false", event, said(asking, value));
	if (*limit < least)
		*limit = least;
	return 0;
}

static int parse_queue(struct asking *asking, lorg_term value, uint64_t limits[8])
{
	uint32_t arity = 0;
	uint64_t disable, enable;
	const lorg_term *pair = lorg_get_tuple(asking->terms, value, &arity);
	if (!pair || arity != 2 || !lorg_get_unsigned(asking->terms, pair[0], &disable) || !lorg_get_unsigned(asking->terms, pair[1], &enable) ||
	    enable == 0 || disable >= enable || !lorg_is_small(pair[1]))
		return badarg(asking, "long_message_queue is %s, not {Disable, Enable} with 0 =< Disable < Enable, or false", said(asking, value));
	limits[SESSION_LONG_QUEUE_OFF] = disable;
	limits[SESSION_LONG_QUEUE_ON] = enable;
	return 0;
}

static int parse_busy(struct asking *asking, const char *event, lorg_term value, uint64_t *limit)
{
	if (value != LORG_TRUE)
		return badarg(asking, "%s is %s, not true or false", event, said(asking, value));
	*limit = 1;
	return 0;
}

static int parse_system(struct asking *asking, lorg_term value, const char *event, uint64_t limits[8])
{
	int off = value == LORG_FALSE;
	if (strcmp(event, "long_message_queue") == 0) {
		limits[SESSION_LONG_QUEUE_OFF] = limits[SESSION_LONG_QUEUE_ON] = UINT64_MAX;
		return off ? 0 : parse_queue(asking, value, limits);
	}
	static const struct {
		const char *name;
		enum session_system at;
		uint64_t least; /* 0: true or false */
	} events[] = {
		{"long_gc", SESSION_LONG_GC, LEAST_TIME_MS},	   {"long_schedule", SESSION_LONG_SCHEDULE, LEAST_TIME_MS},
		{"large_heap", SESSION_LARGE_HEAP, LEAST_HEAP_WORDS}, {"busy_port", SESSION_BUSY_PORT, 0},
		{"busy_dist_port", SESSION_BUSY_DIST_PORT, 0},
	};
	for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
		uint64_t *limit = &limits[events[i].at];
		if (strcmp(events[i].name, event) != 0)
			continue;
		*limit = UINT64_MAX;
		if (off)
			return 0;
		return events[i].least ? parse_time(asking, event, value, events[i].least, limit) : parse_busy(asking, event, value, limit);
	}
	return badarg(asking, "event is %.80s, which is none of long_gc, long_message_queue, long_schedule, large_heap, busy_port, busy_dist_port",
		      event);
}

void ask_system(struct asking *asking)
{
	struct session *session;
	char event[ATOM_ROOM];
	uint64_t limits[8];
	if (parse_session(asking, asking->argument[0], &session))
		return;
	if (!session->tracer->operations->is_process) {
		badarg(asking, "the session's tracer is a port or module: system events go to a client or directory");
		return;
	}
	memcpy(limits, session->system_limits, sizeof limits);
	if (atom_text(asking, asking->argument[1], event)) {
		badarg(asking, "event is %s, not an atom", said(asking, asking->argument[1]));
		return;
	}
	if (parse_system(asking, asking->argument[2], event, limits))
		return;
	memcpy(session->system_limits, limits, sizeof limits);
	sessions_publish(asking->sessions);
	fputs("ok", asking->out);
}
