/* SPDX-License-Identifier: MIT */
/* server.c: see server.h. */
#include "collector/daemon/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/collect/collector.h"
#include "collector/daemon/answer.h"
#include "collector/daemon/client.h"
#include "collector/daemon/protocol.h"
#include "collector/daemon/request.h"
#include "collector/session/function_state.h"
#include "collector/session/router.h"

enum {
	ACCEPTED_AT_ONCE = 16,
	SERVED_AT_ONCE = 8,	  /* requests of one client in its turn */
	FRESH_NS = 200000,	  /* what was looked at so lately is not looked at again */
	GOODBYE_MS = 100,	  /* for last words to clients */
	LEAST_CONNECTIONS = 8,
};
static const uint64_t HELLO_LIMIT_NS = 5000000000; /* to say hello */
static const uint64_t TIDY_STEP_NS = 1000000000;
static const uint64_t ACCEPT_REST_NS = 100000000; /* where there are no descriptors left */

/* What epoll tells of that is no connection. */
enum { SOURCE_LISTENER = 1, SOURCE_COLLECTOR = 2, SOURCE_SIGNALS = 3, SOURCES };

struct server {
	struct server_settings settings;
	struct service service;
	int epoll;
	struct connection **connections;
	unsigned count, turn;
	uint64_t input_of_all;
	uint64_t passed_ns, pass_ns; /* the last pass, and when the next is due */
	uint64_t tidy_ns, idle_ns, alive_ns;
	uint64_t accept_ns; /* the listener rests until then; 0: it does not */
	int served; /* a request, since `changed` was called */
	unsigned sessions; /* as many as there were then */
	uint64_t function_changes; /* likewise: function_state.h */
	int stop, relieved;
};

/* ---- set-up ---------------------------------------------------------------------- */

static int watch(const struct server *server, int descriptor, uint64_t source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = source};
	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static void pass(struct server *server)
{
	uint64_t wait_ns = collector_pass(server->settings.collector);
	server->passed_ns = clock_monotonic_ns();
	server->pass_ns = server->passed_ns + wait_ns;
}

static void refresh(void *context)
{
	struct server *server = context;
	if (clock_monotonic_ns() - server->passed_ns >= FRESH_NS)
		pass(server);
}

struct server *server_create(const struct server_settings *settings)
{
	struct server *server = calloc(1, sizeof *server);
	if (!server)
		return NULL;
	server->settings = *settings;
	if (server->settings.connections < LEAST_CONNECTIONS)
		server->settings.connections = LEAST_CONNECTIONS;
	server->connections = calloc(server->settings.connections, sizeof(struct connection *));
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	server->service = (struct service){
		.sessions = collector_sessions(settings->collector),
		.node_name = collector_node_name(settings->collector),
		.epoch = settings->epoch,
		.refresh = refresh,
		.context = server,
	};
	server->idle_ns = clock_monotonic_ns();
	if (server->connections && server->epoll >= 0 && watch(server, settings->listener, SOURCE_LISTENER) == 0 &&
	    watch(server, collector_descriptor(settings->collector), SOURCE_COLLECTOR) == 0 &&
	    watch(server, settings->signals, SOURCE_SIGNALS) == 0)
		return server;
	int error = errno;
	if (server->epoll >= 0)
		close(server->epoll);
	free(server->connections);
	free(server);
	errno = error;
	return NULL;
}

struct service *server_service(struct server *server)
{
	return &server->service;
}

/* ---- connections that come ------------------------------------------------------------- */

static void remove_connection(struct server *server, unsigned index)
{
	struct connection *connection = server->connections[index];
	service_forget(&server->service, connection);
	connection_free(connection);
	server->connections[index] = server->connections[--server->count];
}

static int has_sessions(const struct server *server, const struct connection *connection)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = session_at(server->service.sessions, slot);
		if (session && (session->owner == connection ||
				(client_is(session->tracer) && client_connection(session->tracer) == connection)))
			return 1;
	}
	return 0;
}

/* Who can best be done without; -1: nobody. */
static int least_wanted(const struct server *server)
{
	int best = -1;
	for (unsigned i = 0; i < server->count; i++) {
		const struct connection *connection = server->connections[i], *other = best < 0 ? NULL : server->connections[best];
		if (other && other->greeted < connection->greeted)
			continue;
		if (other && other->greeted == connection->greeted && other->active_ns <= connection->active_ns)
			continue;
		if (!connection->greeted || (!connection->waits_for && !has_sessions(server, connection)))
			best = (int)i;
	}
	return best;
}

static int make_room(struct server *server)
{
	if (server->count < server->settings.connections)
		return 0;
	int victim = least_wanted(server);
	if (victim < 0)
		return -1;
	remove_connection(server, (unsigned)victim);
	return 0;
}

static void refuse(struct connection *connection, const char *sentence)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	connection->closing = 1; /* it is told why, and nothing it says is looked at */
	if (!out)
		return;
	answer_error(out, "not_allowed", sentence);
	if (fclose(out) == 0)
		connection_put(connection, FRAME_ANSWER, 0, text, length, NULL);
	free(text);
}

static void check_peer(struct connection *connection)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	if (getsockopt(connection->descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size)) {
		refuse(connection, "this system does not say who you are");
		return;
	}
	connection->pid = peer.pid;
	if (peer.uid != geteuid() && peer.uid != 0)
		refuse(connection, "this lorgd is another user's: run one of your own");
}

static int add_connection(struct server *server, int descriptor)
{
	struct connection *connection = make_room(server) == 0 ? connection_create(descriptor, &server->input_of_all) : NULL;
	if (!connection) {
		close(descriptor);
		return -1;
	}
	connection->since_ns = connection->active_ns = clock_monotonic_ns();
	connection->watched = EPOLLIN;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
	if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, descriptor, &event)) {
		connection_free(connection);
		return -1;
	}
	check_peer(connection);
	server->connections[server->count++] = connection;
	return 0;
}

/* Without descriptors to be had, the listener would be told of at once again. */
static void rest_listener(struct server *server)
{
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->settings.listener, NULL);
	server->accept_ns = clock_monotonic_ns() + ACCEPT_REST_NS;
}

void server_listen(struct server *server, int listener)
{
	close(server->settings.listener); /* and with it, its place in the epoll set */
	server->settings.listener = listener;
	server->accept_ns = 0;
	watch(server, listener, SOURCE_LISTENER);
}

static void accept_some(struct server *server)
{
	for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
		int descriptor = accept4(server->settings.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (descriptor >= 0) {
			add_connection(server, descriptor);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			rest_listener(server);
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

/* ---- connections that are served ------------------------------------------------------------ */

static int may_be_served(const struct connection *connection)
{
	return !connection->failed && !connection->closing && !connection->waits_for && !connection->again &&
	       connection->answers_length < CONNECTION_OUTPUT_PAUSE;
}

static int may_be_read(const struct connection *connection)
{
	return may_be_served(connection) && !connection->ended && !connection_has_frame(connection);
}

/* Requests that only ask: for these the sessions are as they were. */
static int may_change(const struct frame *frame)
{
	static const char *const asking[] = {"{session_info,", "{info,", "{programs", "{delivered,", "{tracer,", "{hello,"};
	for (size_t i = 0; i < sizeof asking / sizeof *asking; i++)
		if (frame->length >= strlen(asking[i]) && memcmp(frame->data, asking[i], strlen(asking[i])) == 0)
			return 0;
	return 1;
}

static void serve(struct server *server, struct connection *connection)
{
	struct frame frame;
	for (int i = 0; i < SERVED_AT_ONCE && may_be_served(connection) && connection_next(connection, &frame); i++) {
		connection->active_ns = clock_monotonic_ns();
		server->served |= may_change(&frame);
		service_request(&server->service, connection, &frame);
		if (connection->again)
			connection_unread(connection, &frame);
		collector_hurry(server->settings.collector);
		server->pass_ns = connection->active_ns;
	}
}

static int is_over(const struct connection *connection)
{
	if (connection->failed)
		return 1;
	if (connection->first)
		return 0;
	return connection->closing || (connection->ended && !connection->waits_for && !connection_has_frame(connection));
}

static void watch_for(struct server *server, struct connection *connection)
{
	uint32_t wanted = (may_be_read(connection) ? (uint32_t)EPOLLIN : 0) | (connection->first ? (uint32_t)EPOLLOUT : 0);
	struct epoll_event event = {.events = wanted, .data.ptr = connection};
	if (wanted == connection->watched)
		return;
	if (epoll_ctl(server->epoll, EPOLL_CTL_MOD, connection->descriptor, &event))
		connection->failed = 1;
	connection->watched = wanted;
}

/* Before anybody is told of it: what was answered outlives us. */
static void tell_changes(struct server *server)
{
	const struct sessions *sessions = server->service.sessions;
	uint64_t changes = function_state_changes(sessions);
	if (!server->served && server->sessions == sessions->count && server->function_changes == changes)
		return;
	server->served = 0;
	server->sessions = sessions->count;
	server->function_changes = changes;
	server->settings.changed(server->settings.context);
}

static void take_turn(struct server *server, struct connection *connection)
{
	uint32_t ready = connection->ready;
	connection->ready = 0;
	if ((ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) && may_be_read(connection))
		connection_receive(connection);
	else if ((ready & (EPOLLHUP | EPOLLERR)) && (connection->waits_for || connection->first))
		connection->failed = 1; /* nobody is there to read it */
	serve(server, connection);
	tell_changes(server);
	if (connection->first && !connection->failed)
		connection_send(connection);
	watch_for(server, connection);
}

static void take_turns(struct server *server)
{
	unsigned count = server->count;
	for (unsigned i = 0; i < count; i++)
		take_turn(server, server->connections[(server->turn + i) % count]);
	server->turn = count ? (server->turn + 1) % count : 0;
	for (unsigned i = server->count; i-- > 0;)
		if (is_over(server->connections[i]))
			remove_connection(server, i);
}

/* What could not be served before a pass may be served after it. */
static void wake_waiting(struct server *server)
{
	for (unsigned i = 0; i < server->count; i++)
		server->connections[i]->again = 0;
}

static int has_work(const struct server *server)
{
	for (unsigned i = 0; i < server->count; i++)
		if (may_be_served(server->connections[i]) && connection_has_frame(server->connections[i]))
			return 1;
	return 0;
}

/* ---- now and then ------------------------------------------------------------------------------ */

static void check_idle(struct server *server, uint64_t now_ns)
{
	const struct sessions *sessions = server->service.sessions;
	if (server->count || sessions->count || collector_programs(server->settings.collector))
		server->idle_ns = now_ns;
	if (server->settings.idle_exit_ns && now_ns - server->idle_ns >= server->settings.idle_exit_ns)
		server->stop = 1;
}

static void say_alive(struct server *server, uint64_t now_ns)
{
	if (!server->settings.alive_ns || now_ns < server->alive_ns)
		return;
	server->alive_ns = now_ns + server->settings.alive_ns;
	server->settings.alive(server->settings.context);
}

static void tidy(struct server *server, uint64_t now_ns)
{
	say_alive(server, now_ns);
	if (server->accept_ns && now_ns >= server->accept_ns) {
		server->accept_ns = 0;
		watch(server, server->settings.listener, SOURCE_LISTENER);
	}
	if (now_ns < server->tidy_ns)
		return;
	server->tidy_ns = now_ns + TIDY_STEP_NS;
	for (unsigned i = 0; i < server->count; i++)
		if (!server->connections[i]->greeted && now_ns - server->connections[i]->since_ns > HELLO_LIMIT_NS)
			server->connections[i]->failed = 1;
	check_idle(server, now_ns);
}

static void take_signals(struct server *server)
{
	struct signalfd_siginfo signal;
	while (read(server->settings.signals, &signal, sizeof signal) == sizeof signal) {
		if (signal.ssi_signo == SIGHUP)
			server->settings.reload(server->settings.context);
		else if (signal.ssi_signo == SIGUSR1)
			server->settings.restart(server->settings.context);
		else
			server->stop = 1;
		server->relieved |= signal.ssi_signo == SIGTERM;
	}
}

int server_is_relieved(const struct server *server)
{
	return server->relieved;
}

/* ---- the loop ------------------------------------------------------------------------------------- */

static int wait_for_events(struct server *server, struct epoll_event *events, int room)
{
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t wait_ns = has_work(server) || server->pass_ns <= now_ns ? 0 : server->pass_ns - now_ns;
	struct timespec wait = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
	struct pollfd poll = {.fd = server->epoll, .events = POLLIN};
	if (ppoll(&poll, 1, &wait, NULL) < 0)
		return errno == EINTR ? 0 : -1;
	int count = epoll_wait(server->epoll, events, room, 0);
	return count < 0 && errno == EINTR ? 0 : count;
}

static void note_event(struct server *server, const struct epoll_event *event, int *collector_ready)
{
	if (event->data.u64 >= SOURCES)
		((struct connection *)event->data.ptr)->ready |= event->events;
	else if (event->data.u64 == SOURCE_COLLECTOR)
		*collector_ready = 1;
	else if (event->data.u64 == SOURCE_SIGNALS)
		take_signals(server);
}

int server_run(struct server *server)
{
	struct epoll_event events[256];
	while (!server->stop) {
		int count = wait_for_events(server, events, sizeof events / sizeof *events), collector_ready = 0, somebody_comes = 0;
		if (count < 0)
			return -1;
		/* Before any connection is freed. */
		for (int i = 0; i < count; i++) {
			note_event(server, &events[i], &collector_ready);
			somebody_comes |= events[i].data.u64 == SOURCE_LISTENER;
		}
		take_turns(server);
		if (somebody_comes)
			accept_some(server);
		if (collector_ready || clock_monotonic_ns() >= server->pass_ns) {
			pass(server);
			wake_waiting(server);
		}
		tell_changes(server);
		tidy(server, clock_monotonic_ns());
	}
	return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------- */

/* The last words of sessions, to who takes them at once. */
static void say_goodbye(struct server *server)
{
	uint64_t until_ns = clock_monotonic_ns() + (uint64_t)GOODBYE_MS * 1000000;
	for (int waiting = 1; waiting && clock_monotonic_ns() < until_ns;) {
		waiting = 0;
		for (unsigned i = 0; i < server->count; i++) {
			if (!server->connections[i]->failed)
				connection_send(server->connections[i]);
			waiting |= server->connections[i]->first && !server->connections[i]->failed;
		}
		if (waiting)
			poll(NULL, 0, 1);
	}
}

void server_let_go(struct server *server)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = session_at(server->service.sessions, slot);
		if (session && !session->persist)
			session_remove(server->service.sessions, session, ENDED_BY_RESTART);
	}
}

void server_say_goodbye(struct server *server)
{
	say_goodbye(server);
}

void server_end(struct server *server)
{
	/* Waiting requests end with their sessions. */
	collector_close(server->settings.collector, NULL, 0);
	say_goodbye(server);
	for (unsigned i = 0; i < server->count; i++)
		connection_free(server->connections[i]);
	close(server->epoll);
	free(server->connections);
	free(server);
}
