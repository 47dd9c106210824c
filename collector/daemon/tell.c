/* SPDX-License-Identifier: MIT */
/* tell.c: requests that change nothing: info/3, session_info/1, and which programs are attached. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collector/daemon/asking.h"
#include "collector/session/sessions.h"
#include "collector/session/tracer.h"

/* ---- of whom ------------------------------------------------------------------------ */

enum subject_kind {
	SUBJECT_GONE, /* a pid or port that is not there */
	SUBJECT_PROCESS,
	SUBJECT_PORT,
	SUBJECT_NEW_PROCESSES,
	SUBJECT_NEW_PORTS,
	SUBJECT_FUNCTION,
	SUBJECT_ON_LOAD,
	SUBJECT_SEND,
	SUBJECT_RECEIVE,
	SUBJECT_SYSTEM,
	SUBJECT_ALL,
};

struct subject {
	enum subject_kind kind;
	struct node_process process;
	struct node_port port;
	struct mfa mfa;
};

static const struct {
	const char *name;
	enum subject_kind kind;
} subject_names[] = {
	{"new", SUBJECT_NEW_PROCESSES}, {"new_processes", SUBJECT_NEW_PROCESSES}, {"new_ports", SUBJECT_NEW_PORTS},
	{"on_load", SUBJECT_ON_LOAD},	{"send", SUBJECT_SEND},			  {"receive", SUBJECT_RECEIVE},
	{"system", SUBJECT_SYSTEM},	{"all", SUBJECT_ALL},
};

static int parse_process(struct asking *asking, lorg_term term, struct subject *subject)
{
	uint32_t numbers[3];
	if (parse_pid(asking, "of", term, numbers))
		return -1;
	int gone = node_process(asking->sessions->context, numbers[0], numbers[1], numbers[2], &subject->process);
	subject->kind = gone ? SUBJECT_GONE : SUBJECT_PROCESS;
	return 0;
}

static int parse_port_subject(struct asking *asking, lorg_term term, struct subject *subject)
{
	uint32_t numbers[3];
	int parts;
	if (parse_port(asking, "of", term, numbers, &parts))
		return -1;
	int gone = node_port(asking->sessions, numbers[0], numbers[1], numbers[2], parts, &subject->port);
	subject->kind = gone ? SUBJECT_GONE : SUBJECT_PORT;
	return 0;
}

static int parse_subject(struct asking *asking, lorg_term term, struct subject *subject)
{
	for (size_t i = 0; i < sizeof subject_names / sizeof *subject_names; i++) {
		if (!is_atom(asking, term, subject_names[i].name))
			continue;
		subject->kind = subject_names[i].kind;
		return 0;
	}
	switch (lorg_term_kind(asking->terms, term)) {
	case LORG_KIND_PID:
		return parse_process(asking, term, subject);
	case LORG_KIND_PORT:
		return parse_port_subject(asking, term, subject);
	case LORG_KIND_TUPLE:
		subject->kind = SUBJECT_FUNCTION;
		return parse_mfa(asking, term, 0, &subject->mfa);
	default:
		return badarg(asking, "of is %s, not a pid, port, {Module, Function, Arity} or an event", said(asking, term));
	}
}

/* ---- info/3 --------------------------------------------------------------------------- */

static uint32_t flags_of(struct asking *asking, struct session *session, const struct subject *subject)
{
	switch (subject->kind) {
	case SUBJECT_PROCESS:
		return session_flags_of_process(session, subject->process.family, subject->process.index);
	case SUBJECT_PORT:
		return session_flags_of_port(asking->sessions, session, subject->port.image, subject->port.fd, subject->port.generation);
	case SUBJECT_NEW_PROCESSES:
		return session->defaults.new_processes & LORG_TRACE_ALL;
	case SUBJECT_NEW_PORTS:
		return session->defaults.new_ports;
	default:
		return 0;
	}
}

static void tell_flags(struct asking *asking, struct session *session, const struct subject *subject, const char *item)
{
	int asks_flags = strcmp(item, "flags") == 0;
	if (!asks_flags && strcmp(item, "tracer") != 0) {
		badarg(asking, "item is %.80s, not flags or tracer", item);
		return;
	}
	if (subject->kind == SUBJECT_GONE) {
		fputs("undefined", asking->out);
		return;
	}
	uint32_t flags = flags_of(asking, session, subject) & LORG_TRACE_ALL;
	fprintf(asking->out, "{%s,", item);
	if (asks_flags)
		answer_flags(asking->out, flags);
	else
		fputs(flags ? session->tracer->operations->term(session->tracer) : "[]", asking->out);
	putc('}', asking->out);
}

static int is_function_item(const char *item)
{
	static const char *const items[] = {"traced",	  "match_spec", "meta",	       "meta_match_spec",
					    "call_count", "call_time",	"call_memory", "all"};
	for (size_t i = 0; i < sizeof items / sizeof *items; i++)
		if (strcmp(items[i], item) == 0)
			return 1;
	return 0;
}

/* NULL: there is no memory. */
static char *function_info(struct asking *asking, struct session *session, const struct subject *subject, const char *item)
{
	int on_load = subject->kind == SUBJECT_ON_LOAD;
	if (subject->mfa.is_none) {
		char *text;
		return asprintf(&text, "{%s,undefined}", item) < 0 ? NULL : text;
	}
	return session_function_info(asking->sessions, session, on_load ? NULL : subject->mfa.module, on_load ? NULL : subject->mfa.function,
				     on_load ? -1 : subject->mfa.arity, item);
}

/* What is in a module is found out once, which takes its time. */
static int is_known(struct asking *asking, const struct subject *subject)
{
	if (subject->kind == SUBJECT_FUNCTION && !session_function_known(asking->sessions, subject->mfa.module))
		asking->again = 1;
	return !asking->again;
}

static void tell_function(struct asking *asking, struct session *session, const struct subject *subject, const char *item)
{
	if (!is_function_item(item)) {
		badarg(asking, "item is %.80s, not traced, match_spec, meta, meta_match_spec, call_count, call_time, call_memory or all", item);
		return;
	}
	if (!is_known(asking, subject))
		return;
	char *text = function_info(asking, session, subject, item);
	if (text)
		fputs(text, asking->out);
	else
		system_limit(asking, "there is no memory");
	free(text);
}

static void tell_messages(struct asking *asking, const struct session_messages *messages, const char *item)
{
	if (strcmp(item, "match_spec") != 0) {
		badarg(asking, "item is %.80s, not match_spec", item);
		return;
	}
	fprintf(asking->out, "{match_spec,%s}", messages->text ? messages->text : messages->off ? "false" : "true");
}

static void tell_system(struct asking *asking, const struct session *session, const char *item)
{
	static const struct {
		const char *name;
		enum session_system at;
		int is_true;
	} events[] = {{"busy_port", SESSION_BUSY_PORT, 1},
		      {"busy_dist_port", SESSION_BUSY_DIST_PORT, 1},
		      {"long_gc", SESSION_LONG_GC, 0},
		      {"long_schedule", SESSION_LONG_SCHEDULE, 0},
		      {"large_heap", SESSION_LARGE_HEAP, 0}};
	const uint64_t *limits = session->system_limits;
	const char *before = "";
	if (strcmp(item, "all") != 0) {
		badarg(asking, "item is %.80s, not all", item);
		return;
	}
	fputs("{system,[", asking->out);
	for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
		if (limits[events[i].at] == UINT64_MAX)
			continue;
		if (events[i].is_true)
			fprintf(asking->out, "%s%s", before, events[i].name);
		else
			fprintf(asking->out, "%s{%s,%" PRIu64 "}", before, events[i].name, limits[events[i].at]);
		before = ",";
	}
	if (limits[SESSION_LONG_QUEUE_ON] != UINT64_MAX)
		fprintf(asking->out, "%s{long_message_queue,{%" PRIu64 ",%" PRIu64 "}}", before, limits[SESSION_LONG_QUEUE_OFF],
			limits[SESSION_LONG_QUEUE_ON]);
	fputs("]}", asking->out);
}

void tell_info(struct asking *asking)
{
	struct session *session;
	struct subject subject = {0};
	char item[ATOM_ROOM];
	if (parse_session(asking, asking->argument[0], &session) || parse_subject(asking, asking->argument[1], &subject))
		return;
	if (atom_text(asking, asking->argument[2], item)) {
		badarg(asking, "item is %s, not an atom", said(asking, asking->argument[2]));
		return;
	}
	switch (subject.kind) {
	case SUBJECT_FUNCTION:
	case SUBJECT_ON_LOAD:
		tell_function(asking, session, &subject, item);
		return;
	case SUBJECT_SEND:
		tell_messages(asking, &session->send, item);
		return;
	case SUBJECT_RECEIVE:
		tell_messages(asking, &session->receive, item);
		return;
	case SUBJECT_SYSTEM:
		tell_system(asking, session, item);
		return;
	case SUBJECT_ALL:
		badarg(asking, "of is all, which is for session_info");
		return;
	default:
		tell_flags(asking, session, &subject, item);
	}
}

/* ---- session_info/1 ---------------------------------------------------------------------- */

static int affects_function(struct asking *asking, struct session *session, const struct subject *subject)
{
	char *text = function_info(asking, session, subject, "all");
	int affects = text && strcmp(text, "{all,false}") != 0 && strcmp(text, "{all,undefined}") != 0 && strcmp(text, "undefined") != 0;
	free(text);
	return affects;
}

static int affects(struct asking *asking, struct session *session, const struct subject *subject)
{
	switch (subject->kind) {
	case SUBJECT_ALL:
		return 1;
	case SUBJECT_FUNCTION:
	case SUBJECT_ON_LOAD:
		return affects_function(asking, session, subject);
	/* Unless told otherwise a session lets all messages pass. */
	case SUBJECT_SEND:
		return !session->send.off;
	case SUBJECT_RECEIVE:
		return !session->receive.off;
	case SUBJECT_SYSTEM:
		for (int i = 0; i < 8; i++)
			if (session->system_limits[i] != UINT64_MAX)
				return 1;
		return 0;
	default:
		return flags_of(asking, session, subject) != 0;
	}
}

static int function_exists(struct asking *asking, const struct subject *subject)
{
	char *text = function_info(asking, NULL, subject, "all");
	int exists = text && !strstr(text, "undefined");
	free(text);
	return exists;
}

/* In the order of their numbers. */
static struct session *session_after(struct sessions *sessions, uint64_t number)
{
	struct session *next = NULL;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = session_at(sessions, slot);
		if (session && session->number > number && (!next || session->number < next->number))
			next = session;
	}
	return next;
}

void tell_session_info(struct asking *asking)
{
	struct subject subject = {0};
	const char *before = "";
	if (parse_subject(asking, asking->argument[0], &subject) || !is_known(asking, &subject))
		return;
	if (subject.kind == SUBJECT_GONE || (subject.kind == SUBJECT_FUNCTION && !function_exists(asking, &subject))) {
		fputs("undefined", asking->out);
		return;
	}
	putc('[', asking->out);
	for (struct session *session = session_after(asking->sessions, 0); session;
	     session = session_after(asking->sessions, session->number)) {
		if (!affects(asking, session, &subject))
			continue;
		fputs(before, asking->out);
		answer_session(asking->out, session);
		before = ",";
	}
	putc(']', asking->out);
}

/* ---- programs ------------------------------------------------------------------------------- */

struct traced_by {
	const struct sessions *sessions;
	int slot[SESSION_SLOTS];
};

static void note_sessions(void *context, const struct node_process *process)
{
	struct traced_by *traced_by = context;
	const struct lorg_process *entry = process_entry(process->family, process->index);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		traced_by->slot[slot] |= __atomic_load_n(&entry->session[slot].flags, __ATOMIC_RELAXED) != 0;
}

static void tell_program(struct asking *asking, const struct image *image)
{
	struct traced_by traced_by = {.sessions = asking->sessions};
	char file[PATH_ROOM];
	const char *before = "";
	node_program_file(image, file, sizeof file);
	node_processes(asking->sessions->context, image, 0, note_sessions, &traced_by);
	fprintf(asking->out, "{%d,", image->pid);
	answer_string(asking->out, file);
	fputs(",[", asking->out);
	for (struct session *session = session_after(asking->sessions, 0); session;
	     session = session_after(asking->sessions, session->number)) {
		if (!traced_by.slot[session->slot])
			continue;
		fputs(before, asking->out);
		answer_session(asking->out, session);
		before = ",";
	}
	fputs("]}", asking->out);
}

void tell_programs(struct asking *asking)
{
	const char *before = "";
	putc('[', asking->out);
	for (const struct image *image = asking->sessions->context->images; image; image = image->next) {
		if (!node_is_running(image) || image->shared)
			continue;
		fputs(before, asking->out);
		tell_program(asking, image);
		before = ",";
	}
	putc(']', asking->out);
}
