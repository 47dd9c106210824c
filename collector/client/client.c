/* SPDX-License-Identifier: MIT */
/* client.c: the functions of include/lorg/trace.h, each one request; see receive.c for what comes by itself. */
#include "collector/client/client.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "collector/client/failure.h"
#include "collector/client/terms.h"
#include "collector/term/printer.h"

/* ---- requests ------------------------------------------------------------------- */

/* A lorgd that stands still answers nothing; what is asked of one that has answered before may take its time. */
static const int64_t hello_limit_ns = 10000000000;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int wait_for_answer(struct lorg_connection *connection, int64_t until_ns, struct lorg_failure *failure)
{
	int64_t left = until_ns < 0 ? -1 : until_ns - now_ns();
	if (until_ns < 0 || left > 0)
		return wire_wait(&connection->wire, left, failure);
	return client_fail(failure, LORG_FAILURE_NO_DAEMON, ETIMEDOUT,
			   "lorgd does not answer: it stands still (stopped, or under a debugger), or has too much to do: let it go on, or end it");
}

/* The answer to request `number`, everything before it taken. NULL: failed. until_ns: CLOCK_MONOTONIC; -1: for ever. */
static char *await_answer(struct lorg_connection *connection, uint64_t number, int64_t until_ns, struct lorg_failure *failure)
{
	struct wire_frame frame;
	for (;;) {
		int more = wire_take(&connection->wire, &frame, failure);
		if (more < 0)
			return NULL;
		/* Number 0: it says why it does not listen. */
		if (more > 0 && frame.head.kind == FRAME_ANSWER && (frame.head.number == number || frame.head.number == 0))
			return answer_value((const char *)frame.bytes, frame.head.length, failure);
		if (more > 0) {
			if (client_take_frame(connection, &frame, failure))
				return NULL;
			continue;
		}
		int got = wire_read(&connection->wire, failure);
		if (got < 0)
			return NULL;
		if (got > 0)
			continue;
		if (connection->wire.ended) {
			client_fail(failure, LORG_FAILURE_NO_DAEMON, ECONNRESET,
				    "lorgd has gone before it answered: see its messages, and start it again with `lorgd &`");
			return NULL;
		}
		if (wait_for_answer(connection, until_ns, failure))
			return NULL;
	}
}

char *client_request(struct lorg_connection *connection, const char *request, struct lorg_failure *failure)
{
	size_t length = strlen(request);
	client_no_failure(failure);
	if (!connection) {
		client_fail(failure, LORG_FAILURE_BADARG, EINVAL, "no connection or session was given (NULL): make one first, and look whether that fails");
		return NULL;
	}
	uint64_t number = ++connection->request;
	if (length > FRAME_REQUEST_MAXIMUM) {
		client_fail(failure, LORG_FAILURE_SYSTEM_LIMIT, E2BIG, "the request is longer than 1 MiB: use a smaller specification");
		return NULL;
	}
	int64_t until_ns = connection->daemon ? -1 : now_ns() + hello_limit_ns;
	char *value = NULL;
	if (wire_send(&connection->wire, FRAME_REQUEST, number, request, length, failure) == 0)
		value = await_answer(connection, number, until_ns, failure);
	else if (wire_has_frame(&connection->wire))
		value = await_answer(connection, number, until_ns, failure); /* refused, and closed */
	client_arm(connection);
	return value;
}

static char *request(struct lorg_connection *connection, struct lorg_failure *failure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static char *request(struct lorg_connection *connection, struct lorg_failure *failure, const char *format, ...)
{
	va_list arguments;
	char *text, *value = NULL;
	va_start(arguments, format);
	int length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0) {
		client_no_memory(failure);
		return NULL;
	}
	value = client_request(connection, text, failure);
	free(text);
	return value;
}

/* A number is answered; frees the value. */
static int64_t number_of(char *value, struct lorg_failure *failure)
{
	int64_t number = -1;
	if (value && term_number(value, &number))
		client_fail(failure, LORG_FAILURE_IO, EPROTO, "lorgd answered %.100s where a number was expected: is it of this version?", value);
	free(value);
	return number;
}

/* true or false is answered: 1 or 0; frees the value. */
static int truth_of(char *value, struct lorg_failure *failure)
{
	int truth = !value ? -1 : strcmp(value, "true") == 0 || strcmp(value, "ok") == 0 ? 1 : strcmp(value, "false") == 0 ? 0 : -1;
	if (value && truth < 0)
		client_fail(failure, LORG_FAILURE_IO, EPROTO, "lorgd answered %.100s where true was expected: is it of this version?", value);
	free(value);
	return truth;
}

/* ---- connections ------------------------------------------------------------------ */

static int open_poll(struct lorg_connection *connection, struct lorg_failure *failure)
{
	struct epoll_event event = {.events = EPOLLIN};
	connection->poll = epoll_create1(EPOLL_CLOEXEC);
	connection->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (connection->poll >= 0 && connection->timer >= 0 &&
	    epoll_ctl(connection->poll, EPOLL_CTL_ADD, connection->wire.fd, &event) == 0 &&
	    epoll_ctl(connection->poll, EPOLL_CTL_ADD, connection->timer, &event) == 0)
		return 0;
	return client_fail(failure, LORG_FAILURE_IO, errno, "no descriptor for a connection: %s: close some files", strerror(errno));
}

struct lorg_connection *lorg_connect(const char *directory, struct lorg_failure *failure)
{
	char usual[PATH_MAX];
	client_no_failure(failure);
	if (!directory && wire_directory(usual, sizeof usual, failure))
		return NULL;
	struct lorg_connection *connection = calloc(1, sizeof *connection);
	if (!connection) {
		client_no_memory(failure);
		return NULL;
	}
	connection->poll = connection->timer = connection->wire.fd = -1;
	connection->forms = LIVE_ERLANG | LIVE_JSON;
	output_begin(&connection->store, -1);
	if (wire_connect(&connection->wire, directory ? directory : usual, failure) == 0 && open_poll(connection, failure) == 0)
		connection->daemon = request(connection, failure, "{hello,%d,%d}", PROTOCOL_MAJOR, PROTOCOL_MINOR);
	if (connection->daemon)
		return connection;
	lorg_disconnect(connection);
	return NULL;
}

void lorg_disconnect(struct lorg_connection *connection)
{
	if (!connection)
		return;
	wire_close(&connection->wire);
	if (connection->poll >= 0)
		close(connection->poll);
	if (connection->timer >= 0)
		close(connection->timer);
	client_streams_free(connection);
	output_end(&connection->store);
	free(connection->waiting);
	free(connection->daemon);
	free(connection->refused);
	free(connection);
}

int lorg_descriptor(const struct lorg_connection *connection)
{
	return connection ? connection->poll : -1;
}

void client_forms(struct lorg_connection *connection, unsigned forms)
{
	connection->forms = forms;
}

const char *client_daemon(const struct lorg_connection *connection)
{
	return connection->daemon;
}

/* ---- handles ------------------------------------------------------------------------ */

/* Takes the handle's text over. */
static struct lorg_session *make_session(struct lorg_connection *connection, char *handle, struct lorg_failure *failure)
{
	struct term_session told;
	struct lorg_session *session = handle ? calloc(1, sizeof *session) : NULL;
	if (!session) {
		if (handle)
			client_no_memory(failure);
		free(handle);
		return NULL;
	}
	session->connection = connection;
	session->handle = handle;
	if (term_session(handle, &told) == 0)
		session->number = told.number;
	return session;
}

struct lorg_session *lorg_session_create(struct lorg_connection *connection, const char *name, const char *tracer,
					 const char *options, struct lorg_failure *failure)
{
	char *atom = name ? lorg_atom_quoted(name, strlen(name)) : NULL;
	struct lorg_session *session = NULL;
	if (!name) {
		client_fail(failure, LORG_FAILURE_BADARG, EINVAL, "name: none given: give one");
		return NULL;
	}
	if (!atom)
		client_no_memory(failure);
	else if (term_check("tracer", tracer, failure) == 0 && term_check("options", options, failure) == 0)
		session = make_session(connection, request(connection, failure, "{session_create,%s,%s,%s}", atom, tracer, options), failure);
	free(atom);
	if (session && session->number && !client_stream(connection, session->number, name)) {
		client_no_memory(failure);
		lorg_session_free(session);
		return NULL;
	}
	return session;
}

static int is_number(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	return digits > 0 && !text[digits];
}

static struct lorg_session *find_listed(struct lorg_connection *connection, const char *wanted, struct term_session *listed, int64_t count,
					struct lorg_failure *failure)
{
	const struct term_session *found = NULL;
	char *handle, *atom, name[sizeof listed->name];
	/* 'a name' in quotes is that name: 3 is a number, '3' a name. */
	int quoted = wanted[0] == '\'' && term_atom(wanted, name, sizeof name) == 0;
	for (int64_t i = 0; i < count; i++) {
		int is_it = is_number(wanted) ? strtoull(wanted, NULL, 10) == listed[i].number
					      : strcmp(listed[i].name, wanted) == 0 || (quoted && strcmp(listed[i].name, name) == 0);
		if (is_it && found) {
			client_fail(failure, LORG_FAILURE_BADARG, EEXIST,
				    "several sessions are called %s: give the number, see `lorg session list`", wanted);
			return NULL;
		}
		if (is_it)
			found = &listed[i];
	}
	if (!found) {
		client_fail(failure, LORG_FAILURE_BADARG, ENOENT, "no session %s: see `lorg session list`", wanted);
		return NULL;
	}
	atom = lorg_atom_quoted(found->name, strlen(found->name));
	if (!atom || asprintf(&handle, "{%s,%llu}", atom, (unsigned long long)found->number) < 0)
		handle = NULL;
	free(atom);
	if (!handle)
		client_no_memory(failure);
	return make_session(connection, handle, failure);
}

struct lorg_session *lorg_session_find(struct lorg_connection *connection, const char *wanted, struct lorg_failure *failure)
{
	struct term_session *listed;
	if (!wanted || wanted[0] == '{') {
		if (term_check("session", wanted, failure))
			return NULL;
		char *copy = strdup(wanted);
		if (!copy)
			client_no_memory(failure);
		return make_session(connection, copy, failure);
	}
	char *list = request(connection, failure, "{session_info,all}");
	int64_t count = list ? term_sessions(list, &listed) : -1;
	if (list && count < 0)
		client_fail(failure, LORG_FAILURE_IO, EPROTO, "lorgd's list of sessions cannot be read: is it of this version?");
	free(list);
	if (count < 0)
		return NULL;
	struct lorg_session *session = find_listed(connection, wanted, listed, count, failure);
	free(listed);
	return session;
}

const char *lorg_session_handle(const struct lorg_session *session)
{
	return session ? session->handle : NULL;
}

uint64_t client_session_number(const struct lorg_session *session)
{
	return session->number;
}

void lorg_session_free(struct lorg_session *session)
{
	if (session)
		free(session->handle);
	free(session);
}

/* ---- of sessions ------------------------------------------------------------------------ */

/* NULL, which client_request() refuses, where there is none. */
static struct lorg_connection *connection_of(const struct lorg_session *session)
{
	return session ? session->connection : NULL;
}

static const char *handle_of(const struct lorg_session *session)
{
	return session ? session->handle : "";
}

int lorg_session_destroy(struct lorg_session *session, struct lorg_failure *failure)
{
	return truth_of(request(connection_of(session), failure, "{session_destroy,%s}", handle_of(session)), failure);
}

int lorg_session_adopt(struct lorg_session *session, struct lorg_failure *failure)
{
	struct term_session told;
	int named = session && term_session(session->handle, &told) == 0;
	if (session && session->number && !client_stream(session->connection, session->number, named ? told.name : NULL))
		return client_no_memory(failure);
	int truth = truth_of(request(connection_of(session), failure, "{adopt,%s}", handle_of(session)), failure);
	if (truth == 0)
		client_fail(failure, LORG_FAILURE_BADARG, EBUSY, "session %s has a tracer: its messages go there", session->handle);
	return truth > 0 ? 0 : -1;
}

char *lorg_session_tracer(struct lorg_session *session, struct lorg_failure *failure)
{
	return request(connection_of(session), failure, "{tracer,%s}", handle_of(session));
}

/* <PID>, which is no term, stands for the whole program: lorgd knows that as the number. NULL: *failure says why. */
static char *processes_term(const char *what, const char *text, struct lorg_failure *failure)
{
	char *copy;
	size_t digits = text && text[0] == '<' ? strspn(text + 1, "0123456789") : 0;
	if (digits > 0 && strcmp(text + 1 + digits, ">") == 0)
		copy = strndup(text + 1, digits);
	else if (term_check(what, text, failure))
		return NULL;
	else
		copy = strdup(text);
	if (!copy)
		client_no_memory(failure);
	return copy;
}

/* What is asked of one process is asked of a program's first thread. */
static char *process_term(const char *what, const char *text, struct lorg_failure *failure)
{
	char *term = processes_term(what, text, failure), *first;
	if (!term || text[0] != '<' || term[0] == '<')
		return term;
	if (asprintf(&first, "<%s.%s.0>", term, term) < 0) {
		first = NULL;
		client_no_memory(failure);
	}
	free(term);
	return first;
}

char *lorg_session_info(struct lorg_connection *connection, const char *of, struct lorg_failure *failure)
{
	char *term = process_term("session_info", of, failure);
	char *value = term ? request(connection, failure, "{session_info,%s}", term) : NULL;
	free(term);
	return value;
}

int lorg_session_limit(struct lorg_session *session, const struct lorg_limits *limits, struct lorg_failure *failure)
{
	char rate[64];
	if (!limits)
		return client_fail(failure, LORG_FAILURE_BADARG, EINVAL, "no limits were given (NULL): give them");
	snprintf(rate, sizeof rate, limits->rate_ns ? "{%llu,%llu}" : "%llu", (unsigned long long)limits->rate,
		 (unsigned long long)limits->rate_ns);
	int truth = truth_of(request(connection_of(session), failure, "{session_limit,%s,[{events,%llu},{rate,%s},{memory,%llu}]}",
				     handle_of(session), (unsigned long long)limits->events, rate, (unsigned long long)limits->memory),
			     failure);
	return truth >= 0 ? 0 : -1;
}

/* ---- what is traced --------------------------------------------------------------------------- */

static int64_t set_flags(struct lorg_session *session, const char *function, const char *whom, int how, const char *flags,
			 struct lorg_failure *failure)
{
	char *term = processes_term(function, whom, failure);
	int64_t number = -1;
	if (term && term_check("flags", flags, failure) == 0)
		number = number_of(request(connection_of(session), failure, "{%s,%s,%s,%s,%s}", function, handle_of(session), term,
					   how ? "true" : "false", flags),
				   failure);
	free(term);
	return number;
}

int64_t lorg_process(struct lorg_session *session, const char *processes, int how, const char *flags, struct lorg_failure *failure)
{
	return set_flags(session, "process", processes, how, flags, failure);
}

int64_t lorg_port(struct lorg_session *session, const char *ports, int how, const char *flags, struct lorg_failure *failure)
{
	return set_flags(session, "port", ports, how, flags, failure);
}

int64_t lorg_function(struct lorg_session *session, const char *pattern, const char *match, const char *options,
		      struct lorg_failure *failure)
{
	struct lorg_connection *connection = connection_of(session);
	char *count, *refused;
	int64_t number;
	if (connection) {
		free(connection->refused);
		connection->refused = NULL;
	}
	if (term_check("pattern", pattern, failure) || term_check("match specification", match, failure) ||
	    term_check("options", options, failure))
		return -1;
	char *value = request(connection, failure, "{function,%s,%s,%s,%s}", handle_of(session), pattern, match, options);
	if (!value || term_pair(value, &count, &refused))
		return number_of(value, failure);
	free(value);
	number = number_of(count, failure);
	connection->refused = refused;
	return number;
}

const char *lorg_function_refused(const struct lorg_connection *connection)
{
	return connection && connection->refused ? connection->refused : "[]";
}

static int64_t set_messages(struct lorg_session *session, const char *function, const char *match, const char *options,
			    struct lorg_failure *failure)
{
	if (term_check("match specification", match, failure) || term_check("options", options, failure))
		return -1;
	return number_of(request(connection_of(session), failure, "{%s,%s,%s,%s}", function, handle_of(session), match, options), failure);
}

int64_t lorg_send(struct lorg_session *session, const char *match, const char *options, struct lorg_failure *failure)
{
	return set_messages(session, "send", match, options, failure);
}

int64_t lorg_recv(struct lorg_session *session, const char *match, const char *options, struct lorg_failure *failure)
{
	return set_messages(session, "recv", match, options, failure);
}

int lorg_system(struct lorg_session *session, const char *event, const char *value, struct lorg_failure *failure)
{
	if (term_check("event", event, failure) || term_check("value", value, failure))
		return -1;
	return truth_of(request(connection_of(session), failure, "{system,%s,%s,%s}", handle_of(session), event, value), failure) < 0 ? -1 : 0;
}

char *lorg_info(struct lorg_session *session, const char *of, const char *item, struct lorg_failure *failure)
{
	char *term = process_term("info", of, failure), *value = NULL;
	if (term && term_check("item", item, failure) == 0)
		value = request(connection_of(session), failure, "{info,%s,%s,%s}", handle_of(session), term, item);
	free(term);
	return value;
}

char *lorg_delivered(struct lorg_session *session, const char *tracee, struct lorg_failure *failure)
{
	char *term = processes_term("tracee", tracee, failure), *value = NULL;
	if (term)
		value = request(connection_of(session), failure, "{delivered,%s,%s}", handle_of(session), term);
	free(term);
	return value;
}

char *lorg_programs(struct lorg_connection *connection, struct lorg_failure *failure)
{
	return request(connection, failure, "{programs}");
}
