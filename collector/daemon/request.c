/* SPDX-License-Identifier: MIT */
/* request.c: see request.h. */
#include "collector/daemon/request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/daemon/asking.h"
#include "collector/daemon/client.h"
#include "collector/daemon/protocol.h"
#include "collector/term/character.h"
#include "collector/term/printer.h"
#include "collector/term/reader.h"

enum {
	DELIVERIES = 256,    /* of one connection that wait at once */
	ARITY_MAXIMUM = 254, /* what an index of functions can say */
};

/* ---- answers -------------------------------------------------------------- */

static void answer_refusal(struct asking *asking, const char *kind, const char *format, va_list arguments)
{
	char sentence[600];
	vsnprintf(sentence, sizeof sentence, format, arguments);
	answer_error(asking->out, kind, sentence);
}

int badarg(struct asking *asking, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	answer_refusal(asking, "badarg", format, arguments);
	va_end(arguments);
	return -1;
}

int system_limit(struct asking *asking, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	answer_refusal(asking, "system_limit", format, arguments);
	va_end(arguments);
	return -1;
}

/* Behind at most `room` bytes, between two characters. */
static size_t cut(const char *text, size_t length, size_t room)
{
	if (length <= room)
		return length;
	while (room && ((unsigned char)text[room] & 0xc0) == 0x80)
		room--;
	return room;
}

const char *said(struct asking *asking, lorg_term term)
{
	size_t length = 0, room = sizeof asking->said - 4;
	char *text = lorg_term_text(asking->terms, term, LORG_TEXT_PEOPLE, NULL, &length);
	size_t kept = text ? cut(text, length, room) : 0;
	snprintf(asking->said, sizeof asking->said, "%.*s%s", (int)kept, text ? text : "", kept < length ? "..." : "");
	free(text);
	return asking->said;
}

static void put_answer(struct connection *connection, uint64_t number, const char *text, size_t length)
{
	if (connection_put(connection, FRAME_ANSWER, number, text, length, NULL))
		connection->failed = 1;
}

/* ---- what comes later -------------------------------------------------------- */

struct pending *pending_create(struct asking *asking)
{
	struct pending *pending = calloc(1, sizeof *pending);
	if (!pending)
		return NULL;
	pending->service = asking->service;
	pending->connection = asking->connection;
	pending->number = asking->number;
	pending->place = &asking->service->pending;
	pending->next = asking->service->pending;
	if (pending->next)
		pending->next->place = &pending->next;
	asking->service->pending = pending;
	return pending;
}

void pending_free(struct pending *pending)
{
	*pending->place = pending->next;
	if (pending->next)
		pending->next->place = pending->place;
	if (pending->connection->waits_for == pending)
		pending->connection->waits_for = NULL;
	free(pending);
}

static void delivered(void *context)
{
	struct pending *pending = context;
	connection_put(pending->connection, FRAME_DELIVERED, pending->number, pending->term, strlen(pending->term), NULL);
	pending_free(pending);
}

/* ---- arguments ----------------------------------------------------------------- */

int atom_text(struct asking *asking, lorg_term term, char text[ATOM_ROOM])
{
	char small[8];
	size_t length;
	const char *atom = lorg_is_atom(term) ? lorg_get_atom(asking->terms, term, small, &length) : NULL;
	if (!atom || length >= ATOM_ROOM || memchr(atom, 0, length))
		return -1;
	memcpy(text, atom, length);
	text[length] = 0;
	return 0;
}

static int binary_text(struct asking *asking, lorg_term term, char *text, size_t size)
{
	uint64_t bits;
	const uint8_t *bytes = lorg_get_bitstring(asking->terms, term, &bits);
	if (!bytes || bits % 8 || bits / 8 >= size || memchr(bytes, 0, bits / 8))
		return -1;
	memcpy(text, bytes, bits / 8);
	text[bits / 8] = 0;
	return 0;
}

int string_text(struct asking *asking, lorg_term term, char *text, size_t size)
{
	size_t length = 0;
	lorg_term head, tail = term;
	if (!lorg_is_cons(term) && !lorg_is_nil(term))
		return binary_text(asking, term, text, size);
	while (lorg_is_cons(tail) && lorg_get_cons(asking->terms, tail, &head, &tail)) {
		int64_t code;
		if (!lorg_get_integer(asking->terms, head, &code) || code < 1 || code > CHARACTER_MAX || length + 5 > size)
			return -1;
		length += (size_t)character_write((uint32_t)code, text + length);
	}
	text[length] = 0;
	return lorg_is_nil(tail) ? 0 : -1;
}

int parse_boolean(struct asking *asking, const char *what, lorg_term term, int *value)
{
	if (!lorg_is_boolean(term))
		return badarg(asking, "%s is %s, not true or false", what, said(asking, term));
	*value = term == LORG_TRUE;
	return 0;
}

/* 1: it has the form of a session's name or number; *session may be NULL: there is none. 0 and an answer: it has not. */
static int find_session(struct asking *asking, lorg_term term, struct session **session)
{
	char name[ATOM_ROOM];
	uint64_t number;
	uint32_t arity = 0;
	int several = 0;
	const lorg_term *pair = lorg_get_tuple(asking->terms, term, &arity);
	*session = NULL;
	if (pair && arity == 2) {
		lorg_term second = pair[1];
		if (atom_text(asking, pair[0], name) || !lorg_get_unsigned(asking->terms, second, &number)) {
			badarg(asking, "session is %s, not {Name, Number}", said(asking, term));
			return 0;
		}
		*session = session_numbered(asking->sessions, number);
		if (*session && strcmp((*session)->name, name) != 0)
			*session = NULL;
		return 1;
	}
	if (lorg_get_unsigned(asking->terms, term, &number)) {
		*session = session_numbered(asking->sessions, number);
		return 1;
	}
	if (atom_text(asking, term, name)) {
		badarg(asking, "session is %s, not {Name, Number}, a number or a name", said(asking, term));
		return 0;
	}
	*session = session_named(asking->sessions, name, &several);
	if (!several)
		return 1;
	badarg(asking, "session is %s, which several have: give {Name, Number}", said(asking, term));
	return 0;
}

int parse_session(struct asking *asking, lorg_term term, struct session **session)
{
	if (!find_session(asking, term, session))
		return -1;
	if (!*session)
		return badarg(asking, "there is no session %s", said(asking, term));
	return 0;
}

/* The name of a node in a pid or port: none, or the own one. */
static int is_own_node(const struct asking *asking, lorg_term node)
{
	return node == LORG_NONE || is_atom(asking, node, asking->service->node_name);
}

int parse_pid(struct asking *asking, const char *what, lorg_term term, uint32_t numbers[3])
{
	lorg_term node = LORG_NONE;
	lorg_get_pid(asking->terms, term, numbers, &node);
	if (!is_own_node(asking, node))
		return badarg(asking, "%s is %s, which is of another node", what, said(asking, term));
	return 0;
}

int parse_port(struct asking *asking, const char *what, lorg_term term, uint32_t numbers[3], int *parts)
{
	lorg_term node = LORG_NONE;
	lorg_get_port(asking->terms, term, numbers, parts, &node);
	if (!is_own_node(asking, node))
		return badarg(asking, "%s is %s, which is of another node", what, said(asking, term));
	return 0;
}

static int part_text(struct asking *asking, lorg_term term, char text[ATOM_ROOM])
{
	if (atom_text(asking, term, text))
		return -1;
	if (strcmp(text, "_") == 0)
		text[0] = 0;
	return 0;
}

int parse_mfa(struct asking *asking, lorg_term term, int any_allowed, struct mfa *mfa)
{
	uint32_t arity = 0;
	const lorg_term *parts = lorg_get_tuple(asking->terms, term, &arity);
	if (!parts || arity != 3)
		return badarg(asking, "function is %s, not {Module, Function, Arity}", said(asking, term));
	lorg_term third = parts[2];
	if (part_text(asking, parts[0], mfa->module) || part_text(asking, parts[1], mfa->function))
		return badarg(asking, "function is %s: module and function are atoms", said(asking, term));
	mfa->arity = -1;
	int any_arity = is_atom(asking, third, "_");
	if (!any_arity && !lorg_get_integer(asking->terms, third, &mfa->arity))
		return badarg(asking, "function is %s: an arity is a number, or '_'", said(asking, term));
	mfa->is_none = !any_arity && (mfa->arity < 0 || mfa->arity > ARITY_MAXIMUM);
	if (!any_allowed && (!mfa->module[0] || !mfa->function[0]))
		return badarg(asking, "function is %s: '_' cannot stand here", said(asking, term));
	if (!any_allowed && any_arity)
		return badarg(asking, "function is %s: '_' cannot stand here: give the number of its arguments (%s:%s/1)",
			      said(asking, term), mfa->module, mfa->function);
	if ((!mfa->module[0] && mfa->function[0]) || (!mfa->function[0] && !any_arity))
		return badarg(asking, "function is %s: '_' stands for the arity, the function and arity, or all three", said(asking, term));
	return 0;
}

/* ---- sessions -------------------------------------------------------------------- */

pid_t tracer_program(const struct session *session)
{
	const struct connection *connection = client_is(session->tracer) ? client_connection(session->tracer) : NULL;
	return connection ? connection->pid : 0;
}

static int parse_options(struct asking *asking, lorg_term term, int *persist)
{
	lorg_term head, tail = term;
	*persist = 0;
	while (lorg_is_cons(tail) && lorg_get_cons(asking->terms, tail, &head, &tail)) {
		if (!is_atom(asking, head, "persist"))
			return badarg(asking, "options have %s, which is none: [] or [persist]", said(asking, head));
		*persist = 1;
	}
	return lorg_is_nil(tail) ? 0 : badarg(asking, "options are %s, not a list", said(asking, term));
}

static const char tracer_forms[] =
	"client, {directory, \"PATH\"}, {file, \"PATH\"}, {socket, \"PATH\"} or {module, \"PLUGIN.so\", State}";

static struct tracer *made(struct asking *asking, struct tracer *tracer, const char *path, const char *why)
{
	if (!tracer)
		badarg(asking, "tracer: %s: %s", path, why ? why : errno ? strerror(errno) : "it cannot be used for that");
	return tracer;
}

static struct tracer *make_module(struct asking *asking, const char *path, lorg_term state)
{
	const char *why = NULL;
	char *text = lorg_term_text(asking->terms, state, LORG_TEXT_ERLANG, NULL, NULL);
	struct tracer *tracer = text ? tracer_module(asking->sessions->context, path, text, &why) : NULL;
	free(text);
	return made(asking, tracer, path, why);
}

/* NULL after an answer. */
struct tracer *make_tracer(struct asking *asking, lorg_term term, const char *name, int persist)
{
	struct family_context *context = asking->sessions->context;
	char path[PATH_ROOM];
	uint32_t arity = 0;
	const char *why = NULL;
	if (is_atom(asking, term, "client")) {
		struct tracer *tracer = client_tracer(asking->connection, persist);
		return made(asking, tracer, "client", "there is no memory");
	}
	const lorg_term *parts = lorg_get_tuple(asking->terms, term, &arity);
	if (!parts || arity < 2 || arity > 3 || !lorg_is_atom(parts[0]) || string_text(asking, parts[1], path, sizeof path) || !path[0]) {
		badarg(asking, "tracer is %s, not %s", said(asking, term), tracer_forms);
		return NULL;
	}
	lorg_term kind = parts[0], state = arity == 3 ? parts[2] : LORG_NONE;
	if (path[0] != '/') {
		badarg(asking, "tracer: \"%s\" is not a whole path: lorgd has another working directory", path);
		return NULL;
	}
	if (arity == 3 && is_atom(asking, kind, "module"))
		return make_module(asking, path, state);
	errno = 0;
	if (arity == 2 && is_atom(asking, kind, "directory"))
		return made(asking, tracer_directory(context, path, name, &why), path, why);
	if (arity == 2 && is_atom(asking, kind, "file"))
		return made(asking, tracer_file(context, path, &why), path, why);
	if (arity == 2 && is_atom(asking, kind, "socket"))
		return made(asking, tracer_socket(context, path, &why), path, why);
	badarg(asking, "tracer is %s, not %s", said(asking, term), tracer_forms);
	return NULL;
}

/* What a plug-in lets through goes to who made the session, while that is there. */
static void forward(struct tracer *tracer, const char *text, size_t length)
{
	struct connection *connection = tracer->forward_context;
	if (connection->output_length < CONNECTION_TEXT_PAUSE)
		connection_put(connection, FRAME_TEXT, tracer->number, text, length, NULL);
	else
		tracer->operations->lost(tracer, 1, 0);
}

/* Who made the session of a file or a plug-in would not know otherwise. */
static void tell_end(struct tracer *tracer, const char *why)
{
	connection_put(tracer->forward_context, FRAME_ENDED, tracer->number, why, strlen(why), NULL);
}

static void session_create(struct asking *asking)
{
	char name[ATOM_ROOM];
	int persist;
	if (atom_text(asking, asking->argument[0], name)) {
		badarg(asking, "name is %s, not an atom", said(asking, asking->argument[0]));
		return;
	}
	if (parse_options(asking, asking->argument[2], &persist))
		return;
	if (asking->sessions->count == SESSION_SLOTS - SESSION_FIRST_SLOT) {
		system_limit(asking, "there are %d sessions already, and no more at once: destroy one", SESSION_SLOTS - SESSION_FIRST_SLOT);
		return;
	}
	struct tracer *tracer = make_tracer(asking, asking->argument[1], name, persist);
	if (!tracer)
		return;
	tracer->forward = forward;
	tracer->forward_context = asking->connection;
	tracer->ended = client_is(tracer) ? NULL : tell_end;
	const struct session *session = session_add(asking->sessions, name, tracer, persist ? NULL : asking->connection, persist);
	fputs("{ok,", asking->out);
	answer_session(asking->out, session);
	fputs("}", asking->out);
}

static void session_destroy(struct asking *asking)
{
	struct session *session;
	if (!find_session(asking, asking->argument[0], &session))
		return;
	if (session && session_functions_leave(asking->sessions, session)) {
		asking->again = 1;
		return;
	}
	if (session)
		session_remove(asking->sessions, session, "it was destroyed");
	fputs(session ? "true" : "false", asking->out);
}

static void session_tracer(struct asking *asking)
{
	struct session *session;
	if (parse_session(asking, asking->argument[0], &session) == 0)
		fputs(session->tracer->operations->term(session->tracer), asking->out);
}

/* N: a second; {N, Ns}. */
static int parse_rate(struct asking *asking, lorg_term term, struct session_limits *limits)
{
	uint32_t arity = 0;
	const lorg_term *pair = lorg_get_tuple(asking->terms, term, &arity);
	uint64_t number, ns = 0;
	if (pair && (arity != 2 || !lorg_get_unsigned(asking->terms, pair[1], &ns) || !ns))
		return -1;
	if (!lorg_get_unsigned(asking->terms, pair ? pair[0] : term, &number))
		return -1;
	limits->rate = number;
	limits->rate_ns = ns;
	return 0;
}

static int parse_limit(struct asking *asking, lorg_term term, struct session_limits *limits)
{
	uint64_t value;
	uint32_t arity = 0;
	const lorg_term *pair = lorg_get_tuple(asking->terms, term, &arity);
	if (pair && arity == 2 && is_atom(asking, pair[0], "rate") && parse_rate(asking, pair[1], limits) == 0)
		return 0;
	if (!pair || arity != 2 || !lorg_get_unsigned(asking->terms, pair[1], &value))
		return badarg(asking, "limit is %s, not {events, N}, {rate, N}, {rate, {N, Ns}} or {memory, N}", said(asking, term));
	if (is_atom(asking, pair[0], "events"))
		limits->events = value;
	else if (is_atom(asking, pair[0], "memory"))
		limits->memory = value;
	else
		return badarg(asking, "limit is %s, not {events, N}, {rate, N}, {rate, {N, Ns}} or {memory, N}", said(asking, term));
	return 0;
}

static void session_limit(struct asking *asking)
{
	struct session *session;
	if (parse_session(asking, asking->argument[0], &session))
		return;
	struct session_limits limits = session->limits;
	lorg_term head, tail = asking->argument[1];
	while (lorg_is_cons(tail) && lorg_get_cons(asking->terms, tail, &head, &tail))
		if (parse_limit(asking, head, &limits))
			return;
	if (!lorg_is_nil(tail)) {
		badarg(asking, "limits are %s, not a list", said(asking, asking->argument[1]));
		return;
	}
	session->limits = limits;
	session->tracer->memory_limit = limits.memory;
	sessions_publish(asking->sessions);
	fputs("true", asking->out);
}

static void session_adopt(struct asking *asking)
{
	struct session *session;
	if (parse_session(asking, asking->argument[0], &session))
		return;
	if (!client_is(session->tracer)) {
		badarg(asking, "session %s has a tracer that is no client", said(asking, asking->argument[0]));
		return;
	}
	if (client_connection(session->tracer)) {
		badarg(asking, "session %s has a client that is there", said(asking, asking->argument[0]));
		return;
	}
	client_connect(session->tracer, asking->connection);
	router_introduce_again(asking->sessions, session);
	fputs("true", asking->out);
}

/* ---- delivered/2 -------------------------------------------------------------------- */

static int parse_tracee(struct asking *asking, lorg_term term)
{
	uint32_t numbers[3];
	uint64_t program;
	if (is_atom(asking, term, "all") || lorg_get_unsigned(asking->terms, term, &program))
		return 0;
	if (lorg_term_kind(asking->terms, term) == LORG_KIND_PID)
		return parse_pid(asking, "tracee", term, numbers);
	return badarg(asking, "tracee is %s, not a pid or all", said(asking, term));
}

static unsigned deliveries_of(const struct service *service, const struct connection *connection)
{
	unsigned count = 0;
	for (const struct pending *pending = service->pending; pending; pending = pending->next)
		count += pending->is_delivery && pending->connection == connection;
	return count;
}

static void ask_delivered(struct asking *asking)
{
	struct session *session;
	char reference[64];
	if (parse_session(asking, asking->argument[0], &session) || parse_tracee(asking, asking->argument[1]))
		return;
	struct pending *pending = deliveries_of(asking->service, asking->connection) < DELIVERIES ? pending_create(asking) : NULL;
	if (!pending) {
		system_limit(asking, "more than %d deliveries wait already: take their messages", DELIVERIES);
		return;
	}
	uint64_t count = ++asking->service->references;
	snprintf(reference, sizeof reference, "#Ref<0.%u.%u.%d>", (unsigned)(count >> 31), (unsigned)(count & INT32_MAX), getpid());
	pending->is_delivery = 1;
	pending->session = session;
	pending->number = session->number;
	char *tracee = lorg_term_text(asking->terms, asking->argument[1], LORG_TEXT_ERLANG, NULL, NULL);
	snprintf(pending->term, sizeof pending->term, "{trace_delivered,%.90s,%s}", tracee ? tracee : "all", reference);
	free(tracee);
	asking->delivery = pending;
	fputs(reference, asking->out);
}

/* ---- which request it is --------------------------------------------------------------- */

static void hello(struct asking *asking)
{
	int64_t major;
	if (!lorg_get_integer(asking->terms, asking->argument[0], &major)) {
		badarg(asking, "major is %s, not a number", said(asking, asking->argument[0]));
		return;
	}
	if (major != PROTOCOL_MAJOR) {
		char sentence[160];
		snprintf(sentence, sizeof sentence, "this lorgd speaks version %d of the protocol, and not %" PRId64 ": use the lorg of its version",
			 PROTOCOL_MAJOR, major);
		answer_error(asking->out, "not_allowed", sentence);
		asking->connection->closing = 1;
		return;
	}
	asking->connection->greeted = 1;
	fprintf(asking->out, "{ok,{lorgd,%d,", getpid());
	answer_atom(asking->out, asking->service->node_name);
	fprintf(asking->out, ",%" PRIu64 "}}", asking->service->epoch);
}

static const struct request {
	const char *name;
	unsigned arguments;
	handler *serve;
	int refreshes; /* who is there has to be known as of now */
} requests[] = {
	{"hello", 2, hello, 0},
	{"session_create", 3, session_create, 0},
	{"session_destroy", 1, session_destroy, 0},
	{"session_info", 1, tell_session_info, 1},
	{"session_limit", 2, session_limit, 0},
	{"process", 4, ask_process, 1},
	{"port", 4, ask_port, 1},
	{"function", 4, ask_function, 1},
	{"send", 3, ask_send, 0},
	{"recv", 3, ask_recv, 0},
	{"system", 3, ask_system, 0},
	{"info", 3, tell_info, 1},
	{"delivered", 2, ask_delivered, 0},
	{"programs", 0, tell_programs, 1},
	{"adopt", 1, session_adopt, 0},
	{"tracer", 1, session_tracer, 0},
};
enum { REQUEST_COUNT = sizeof requests / sizeof *requests };

static const struct request *find_request(struct asking *asking, lorg_term term, const lorg_term **parts)
{
	char name[ATOM_ROOM];
	uint32_t arity = 0;
	*parts = lorg_get_tuple(asking->terms, term, &arity);
	if (!*parts || !arity || atom_text(asking, (*parts)[0], name)) {
		badarg(asking, "the request is %s, not {Name, Argument ..}", said(asking, term));
		return NULL;
	}
	for (int i = 0; i < REQUEST_COUNT; i++)
		if (strcmp(requests[i].name, name) == 0 && requests[i].arguments + 1 == arity)
			return &requests[i];
	badarg(asking, "there is no request %.80s of %u arguments", name, arity - 1);
	return NULL;
}

static void serve_term(struct asking *asking, lorg_term term)
{
	const lorg_term *parts;
	const struct request *request = find_request(asking, term, &parts);
	if (!request)
		return;
	for (unsigned i = 0; i < request->arguments; i++)
		asking->argument[i] = parts[i + 1];
	if (!asking->connection->greeted && request->serve != hello) {
		answer_error(asking->out, "not_allowed", "say {hello, Major, Minor} first");
		asking->connection->closing = 1;
		return;
	}
	if (request->refreshes && asking->service->refresh)
		asking->service->refresh(asking->service->context);
	request->serve(asking);
}

static void serve_text(struct asking *asking, const char *text, size_t length)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	asking->terms = &terms;
	lorg_term term = lorg_read_term(&terms, text, length, NULL, &error);
	if (term != LORG_NONE)
		serve_term(asking, term);
	else if (error.system_limit)
		system_limit(asking, "the request, %u:%u: %s", error.line, error.column, error.reason);
	else
		badarg(asking, "the request, %u:%u: %s", error.line, error.column, error.reason);
	lorg_terms_close(&terms);
}

static void begin_delivery(struct asking *asking)
{
	struct pending *pending = asking->delivery;
	router_delivered(asking->sessions, pending->session, delivered, pending);
}

void service_request(struct service *service, struct connection *connection, const struct frame *frame)
{
	char *text = NULL;
	size_t length = 0;
	struct asking asking = {
		.service = service,
		.sessions = service->sessions,
		.connection = connection,
		.number = frame->number,
		.out = open_memstream(&text, &length),
	};
	if (!asking.out) {
		connection->failed = 1;
		return;
	}
	serve_text(&asking, frame->data, frame->length);
	if (fclose(asking.out) || !text)
		connection->failed = 1;
	else if (asking.again)
		connection->again = 1;
	else if (!asking.later)
		put_answer(connection, frame->number, text, length);
	if (asking.delivery)
		begin_delivery(&asking);
	free(text);
}

/* ---- the end of a connection -------------------------------------------------------------- */

static void abandon(struct service *service, struct connection *connection)
{
	for (struct pending *pending = service->pending, *next; pending; pending = next) {
		next = pending->next;
		if (pending->connection != connection)
			continue;
		if (pending->is_delivery)
			router_delivered_abandon(service->sessions, pending);
		else
			session_function_abandon(service->sessions, pending);
		pending_free(pending);
	}
}

void service_forget(struct service *service, struct connection *connection)
{
	abandon(service, connection);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = session_at(service->sessions, slot);
		if (!session)
			continue;
		if (client_is(session->tracer) && client_connection(session->tracer) == connection)
			client_connect(session->tracer, NULL);
		if (session->tracer->forward_context == connection) {
			session->tracer->forward = NULL;
			session->tracer->ended = NULL;
		}
		if (session->owner == connection)
			session_remove(service->sessions, session, "its creator has gone");
	}
}
