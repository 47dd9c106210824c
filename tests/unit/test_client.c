/* SPDX-License-Identifier: MIT */
/* test_client.c: liblorgctl against a lorgd made up here, and packets of sessions turned into messages. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <lorg/match.h>
#include <lorg/plan.h>

#include "collector/client/terms.h"
#include "collector/daemon/protocol.h"
#include "collector/live/live.h"
#include "collector/live/recording.h"
#include "synthetic.h"
#include "unit.h"

/* trace.h and abi.h each have a struct lorg_session; only pointers to one are used here. */
#include <lorg/trace.h>

static const struct synthetic_process program = {.image = 1, .pid = 4211, .tid = 4211, .birth = 100};

/* ---- packets ---------------------------------------------------------------- */

/* Calls `take` for each packet of a stream. */
static void each_packet(struct synthetic *stream, void (*take)(void *context, const void *packet, size_t length), void *context)
{
	synthetic_end(stream, 1);
	for (size_t at = 0; at < stream->length;) {
		struct lorg_packet head;
		memcpy(&head, stream->bytes + at, sizeof head);
		take(context, stream->bytes + at, head.packet_bits / 8);
		at += head.packet_bits / 8;
	}
	synthetic_free(stream);
}

static void give_live(void *context, const void *packet, size_t length)
{
	ck_assert_int_eq(live_packet(context, packet, length), 0);
}

static void give(struct live *live, struct synthetic *stream)
{
	each_packet(stream, give_live, live);
}

struct told {
	char text[64 * 1024];
	unsigned count, lost;
};

static int tell(void *context, const struct live_message *message)
{
	struct told *told = context;
	size_t length = strlen(told->text);
	told->count++;
	told->lost += message->kind == LIVE_LOST;
	snprintf(told->text + length, sizeof told->text - length, "%s", message->erlang ? message->erlang : message->text ? message->text : message->json);
	return 0;
}

static void shows(struct live *live, const char *wanted)
{
	static struct told told;
	memset(&told, 0, sizeof told);
	ck_assert_int_eq(live_show(live, tell, &told), 0);
	ck_assert_str_eq(told.text, wanted);
}

static void introduce(struct synthetic *stream)
{
	static const char file[] = "/usr/bin/redis-server";
	const struct packet_bytes texts[] = {packet_text(file), packet_text("redis-server")};
	synthetic_clock(stream);
	synthetic_head(stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_UNSHOWN;
	synthetic_packet(stream, program, 100);
	synthetic_head(stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_UNSHOWN;
	const struct lorg_event_IMAGE image = {.birth = LORG_BIRTH_COMMAND, .own_pid = 4211};
	synthetic_event(stream, LORG_EVENT_IMAGE, 100, &image, texts, 2);
}

static void hooked(struct synthetic *stream, uint64_t tick, uint32_t function, const char *name)
{
	const struct lorg_event_HOOKED_FUNCTION told = {.offset = 0x1000, .size = 16, .function = function, .arity = 2, .tier = 3};
	const struct packet_bytes texts[] = {packet_text("redis-server"), packet_text(name), packet_text(""), {NULL, 0}};
	synthetic_packet(stream, program, tick);
	synthetic_head(stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_UNSHOWN;
	synthetic_event(stream, LORG_EVENT_HOOKED_FUNCTION, tick, &told, texts, 4);
}

static void call(struct synthetic *stream, uint64_t tick, uint32_t function)
{
	synthetic_compact(stream, LORG_EVENT_CALL_ENTRY, tick, function, 0);
}

static void flags(struct synthetic *stream, struct synthetic_process process, uint64_t tick, uint64_t on, uint32_t session)
{
	synthetic_packet(stream, process, tick);
	synthetic_head(stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_UNSHOWN;
	synthetic_head(stream)->session = session;
	SYNTHETIC_EVENT(stream, FLAGS, tick, .entry = tick, .on = on, .session = session);
}

enum { FIRST = LORG_FIRST_HOOKED_FUNCTION };

/* What was told in one batch names what comes in the next, and each batch shows its own events alone. */
START_TEST(live_keeps_definitions)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	introduce(&stream);
	hooked(&stream, 110, FIRST, "processCommand");
	synthetic_packet(&stream, program, 200);
	call(&stream, 210, FIRST);
	give(live, &stream);
	shows(live, "{trace,<4211.4211.0>,call,{'redis-server',processCommand,2}}\n");
	for (uint64_t tick = 300; tick < 310; tick++) {
		if (tick == 305) { /* a function that stands before the other in the table */
			hooked(&stream, 304, FIRST + 1, "call");
			give(live, &stream);
		}
		synthetic_packet(&stream, program, tick);
		call(&stream, tick, tick < 305 ? FIRST : FIRST + 1);
		give(live, &stream);
		shows(live, tick < 305 ? "{trace,<4211.4211.0>,call,{'redis-server',processCommand,2}}\n"
				       : "{trace,<4211.4211.0>,call,{'redis-server',call,2}}\n");
	}
	shows(live, "");
	ck_assert_int_eq(live_waits(live), 0);
	live_free(live);
}
END_TEST

/* Packets of a batch are merged by effective tick, whatever their order. */
START_TEST(live_merges)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	struct synthetic_process other = program;
	other.tid = 4212;
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	synthetic_packet(&stream, other, 200);
	call(&stream, 220, FIRST);
	call(&stream, 240, FIRST);
	synthetic_packet(&stream, program, 201);
	call(&stream, 210, FIRST);
	call(&stream, 230, FIRST);
	give(live, &stream);
	shows(live, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n{trace,<4211.4212.0>,call,{'redis-server',f,2}}\n"
		    "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n{trace,<4211.4212.0>,call,{'redis-server',f,2}}\n");
	live_free(live);
}
END_TEST

/* Stamps are those of the flags in force at each event, also where the change comes with the same batch or later. */
START_TEST(live_stamps)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	flags(&stream, program, 120, LORG_TRACE_CALL, 3);
	flags(&stream, program, 215, LORG_TRACE_CALL | LORG_TRACE_MONOTONIC_TIMESTAMP, 3);
	flags(&stream, program, 225, LORG_TRACE_CALL | LORG_TRACE_MONOTONIC_TIMESTAMP | LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP, 3);
	flags(&stream, program, 235, LORG_TRACE_ALL, 3);
	SYNTHETIC_EVENT(&stream, FLAGS, 236, .entry = 236, .on = LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP, .session = 4); /* another's */
	flags(&stream, program, 245, LORG_TRACE_CALL, 3);
	synthetic_packet(&stream, program, 200);
	synthetic_head(&stream)->session = 3;
	for (uint64_t tick = 210; tick <= 250; tick += 10)
		call(&stream, tick, FIRST);
	give(live, &stream);
	shows(live, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n{trace_ts,<4211.4211.0>,call,{'redis-server',f,2},220}\n"
		    "{trace_ts,<4211.4211.0>,call,{'redis-server',f,2},{230,3}}\n{trace_ts,<4211.4211.0>,call,{'redis-server',f,2},{0,0,0}}\n"
		    "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n");
	live_free(live);
}
END_TEST

/* Meta calls are stamped with the time of day, whatever the flags. */
START_TEST(live_meta)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	synthetic_packet(&stream, program, 200);
	const struct lorg_event_CALL told = {.function = FIRST, .session_kind = 3 | LORG_KIND_META << 16};
	const struct packet_bytes none = {NULL, 0};
	synthetic_event(&stream, LORG_EVENT_CALL, 5000, &told, &none, 1);
	give(live, &stream);
	shows(live, "{trace_ts,<4211.4211.0>,call,{'redis-server',f,[]},{0,0,5}}\n");
	live_free(live);
}
END_TEST

static void open_port(struct synthetic *stream, uint64_t tick, int32_t fd, uint32_t generation)
{
	const struct lorg_event_OPEN opened = {.fd = fd, .generation = generation, .driver = LORG_DRIVER_TCP, .from = -1};
	const struct packet_bytes texts[] = {packet_text(""), {NULL, 0}, {NULL, 0}};
	synthetic_event(stream, LORG_EVENT_OPEN, tick, &opened, texts, 3);
}

/* A port's side and its process's are told one by one. */
START_TEST(live_sides)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	introduce(&stream);
	synthetic_packet(&stream, program, 200);
	synthetic_head(&stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_PROCESS_FLAGS;
	open_port(&stream, 210, 7, 1);
	give(live, &stream);
	shows(live, "{trace,<4211.4211.0>,link,#Port<4211.7.1>}\n");
	synthetic_packet(&stream, program, 300);
	synthetic_head(&stream)->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_PORT_FLAGS;
	open_port(&stream, 310, 8, 1);
	const struct lorg_event_SEND sent = {.entry = 320, .object = 8, .generation = 1, .bytes = 4};
	const struct packet_bytes bytes[] = {{NULL, 0}, packet_text("PING"), {NULL, 0}};
	synthetic_event(&stream, LORG_EVENT_SEND, 321, &sent, bytes, 3);
	const struct lorg_event_RECEIVE received = {.since = 330, .object = 8, .generation = 1, .bytes = 4};
	synthetic_event(&stream, LORG_EVENT_RECEIVE, 331, &received, bytes, 3);
	SYNTHETIC_EVENT(&stream, CLOSED, 340, .fd = 8, .generation = 1);
	give(live, &stream);
	shows(live, "{trace,#Port<4211.8.1>,open,<4211.4211.0>,tcp}\n{trace,#Port<4211.8.1>,getting_linked,<4211.4211.0>}\n"
		    "{trace,#Port<4211.8.1>,'receive',<<\"PING\">>}\n{trace,#Port<4211.8.1>,send,<<\"PING\">>,<4211.4211.0>}\n"
		    "{trace,#Port<4211.8.1>,closed,normal}\n");
	live_free(live);
}
END_TEST

/* A server that opens ever new ports, and programs that come and go, take no more and more memory. */
START_TEST(live_forgets)
{
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	static struct told told;
	uint64_t tick = 1000;
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	give(live, &stream);
	for (uint32_t round = 0; round < 300; round++) {
		synthetic_packet(&stream, program, tick);
		for (uint32_t i = 0; i < 100; i++)
			open_port(&stream, tick++, (int32_t)(i % 50), round * 100 + i);
		struct synthetic_process child = {.image = (uint8_t)(2 + round % 250), .pid = 5000 + round, .tid = 5000 + round, .birth = tick};
		synthetic_packet(&stream, child, tick);
		const struct packet_bytes texts[] = {packet_text("/bin/sh"), packet_text("sh")};
		const struct lorg_event_IMAGE image = {.birth = LORG_BIRTH_COMMAND, .own_pid = child.pid};
		synthetic_event(&stream, LORG_EVENT_IMAGE, tick, &image, texts, 2);
		SYNTHETIC_EVENT(&stream, EXIT, tick + 1, .program = 1);
		tick += 10;
		give(live, &stream);
		memset(&told, 0, sizeof told);
		ck_assert_int_eq(live_show(live, tell, &told), 0);
	}
	ck_assert_uint_lt(live_definitions(live), 2 << 20);
	synthetic_packet(&stream, program, tick);
	call(&stream, tick, FIRST);
	give(live, &stream);
	shows(live, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n");
	live_free(live);
}
END_TEST

/* What is no packet is passed over. */
START_TEST(live_damage)
{
	struct live *live = live_new(LIVE_ERLANG | LIVE_JSON | LIVE_TEXT);
	uint64_t noise[512];
	static struct told told;
	srand(1);
	for (int round = 0; round < 2000; round++) {
		for (size_t i = 0; i < 512; i++)
			noise[i] = (uint64_t)rand() << 33 ^ (uint64_t)rand();
		size_t length = (size_t)rand() % sizeof noise;
		if (round % 2) { /* a head that is right */
			struct lorg_packet head = {.magic = LORG_PACKET_MAGIC};
			length &= ~(size_t)7;
			length = length < sizeof head ? sizeof head : length;
			head.packet_bits = head.content_bits = length * 8;
			head.holds = (uint32_t)rand() & 31;
			memcpy(noise, &head, sizeof head);
		}
		ck_assert_int_eq(live_packet(live, noise, length), 0);
		if (round % 50 == 0)
			ck_assert_int_eq(live_show(live, tell, &told), 0);
	}
	ck_assert_uint_gt(live_damaged(live), 900);
	live_free(live);
}
END_TEST

/* ---- a lorgd made up ---------------------------------------------------------- */

struct fake {
	int listener, fd;
	pthread_t thread;
	/* Answers the request, or sends what else it wants before. */
	void (*answer)(struct fake *fake, uint64_t number, const char *request);
	char last[4096]; /* request but hello */
};

static void put_frame(struct fake *fake, enum frame_kind kind, uint64_t number, const void *bytes, size_t length)
{
	const struct frame_head head = {.length = (uint32_t)length, .kind = (uint16_t)kind, .number = number};
	/* In two halves: the reader has to put them together. */
	ck_assert_int_eq(send(fake->fd, &head, 7, MSG_NOSIGNAL), 7);
	ck_assert_int_eq(send(fake->fd, (const char *)&head + 7, sizeof head - 7, MSG_NOSIGNAL), (ssize_t)(sizeof head - 7));
	while (length > 0) {
		ssize_t sent = send(fake->fd, bytes, length, MSG_NOSIGNAL);
		ck_assert_int_gt(sent, 0);
		bytes = (const char *)bytes + sent;
		length -= (size_t)sent;
	}
}

static void put_text(struct fake *fake, enum frame_kind kind, uint64_t number, const char *text)
{
	put_frame(fake, kind, number, text, strlen(text));
}

static int get(int fd, void *bytes, size_t length)
{
	for (size_t at = 0; at < length;) {
		ssize_t got = recv(fd, (char *)bytes + at, length - at, 0);
		if (got <= 0)
			return 0;
		at += (size_t)got;
	}
	return 1;
}

static void *serve(void *context)
{
	struct fake *fake = context;
	struct frame_head head;
	fake->fd = accept(fake->listener, NULL, NULL);
	while (fake->fd >= 0 && get(fake->fd, &head, sizeof head)) {
		char *request = calloc(1, head.length + 1);
		ck_assert(get(fake->fd, request, head.length));
		if (strncmp(request, "{hello,", 7) == 0) {
			put_text(fake, FRAME_ANSWER, head.number, "{ok,{lorgd,77,'node@here',1}}");
		} else {
			snprintf(fake->last, sizeof fake->last, "%s", request);
			fake->answer(fake, head.number, request);
		}
		free(request);
	}
	if (fake->fd >= 0)
		close(fake->fd);
	return NULL;
}

static struct lorg_connection *fake_begin(struct fake *fake, void (*answer)(struct fake *, uint64_t, const char *))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct lorg_failure failure;
	*fake = (struct fake){.fd = -1, .answer = answer};
	snprintf(address.sun_path, sizeof address.sun_path, "%s/control", unit_directory());
	fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(fake->listener, 8), 0);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, serve, fake), 0);
	struct lorg_connection *connection = lorg_connect(unit_directory(), &failure);
	ck_assert_msg(connection != NULL, "%s", failure.text);
	return connection;
}

static void fake_end(struct fake *fake, struct lorg_connection *connection)
{
	lorg_disconnect(connection);
	pthread_join(fake->thread, NULL);
	close(fake->listener);
}

/* Without a lorgd the next step is named. */
START_TEST(no_daemon)
{
	struct lorg_failure failure;
	ck_assert_ptr_null(lorg_connect("/nowhere/at/all", &failure));
	ck_assert_int_eq(failure.kind, LORG_FAILURE_NO_DAEMON);
	ck_assert_ptr_nonnull(strstr(failure.text, "start it with `lorgd &`"));
	ck_assert_ptr_null(lorg_connect(unit_directory(), NULL));
}
END_TEST

static void answer_all(struct fake *fake, uint64_t number, const char *request)
{
	static const struct {
		const char *begins, *answer;
	} answers[] = {
		{"{session_create", "{ok,{hunt,3}}"},
		{"{session_info,all", "[{hunt,3},{'my name',4},{twice,5},{twice,6}]"},
		{"{session_info", "undefined"},
		{"{session_limit", "true"},
		{"{session_destroy,{hunt,3}", "true"},
		{"{session_destroy", "false"},
		{"{process", "{ok,12}"},
		{"{port", "{error,badarg,\"the flag \\\"calls\\\" is none: see trace(3)\"}"},
		{"{function,{hunt,3},{a", "{3,[{{m,f,1},\"too short\"}]}"},
		{"{function", "{ok,{0,[]}}"},
		{"{send", "{error,system_limit,\"too large\"}"},
		{"{recv", "1"},
		{"{system", "ok"},
		{"{info", "{flags,[call,procs]}"},
		{"{delivered", "#Ref<0.1.2.3>"},
		{"{programs", "[{4211,\"/bin/x\",[{hunt,3}]},{4212,\"/bin/\\x{e4}\",[]}]"},
		{"{adopt,{hunt,3}", "true"},
		{"{adopt", "{error,not_allowed,\"it has a tracer\"}"},
	};
	for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
		if (strncmp(request, answers[i].begins, strlen(answers[i].begins)) == 0) {
			put_text(fake, FRAME_ANSWER, number, answers[i].answer);
			return;
		}
	ck_abort_msg("unknown request %s", request);
}

/* Each function's request, and what becomes of its answer. */
START_TEST(requests)
{
	struct fake fake;
	struct lorg_failure failure;
	struct lorg_connection *connection = fake_begin(&fake, answer_all);
	struct lorg_session *session = lorg_session_create(connection, "hunt", "client", "[]", &failure);
	ck_assert_msg(session != NULL, "%s", failure.text);
	ck_assert_str_eq(lorg_session_handle(session), "{hunt,3}");
	ck_assert_str_eq(fake.last, "{session_create,hunt,client,[]}");
	ck_assert_int_eq(lorg_process(session, "<4211>", 1, "[call,procs]", &failure), 12);
	ck_assert_str_eq(fake.last, "{process,{hunt,3},4211,true,[call,procs]}");
	ck_assert_int_eq(lorg_process(session, "<4211.4212.0>", 0, "[]", &failure), 12);
	ck_assert_str_eq(fake.last, "{process,{hunt,3},<4211.4212.0>,false,[]}");
	ck_assert_int_eq(failure.kind, LORG_FAILURE_NONE);
	ck_assert_int_eq(lorg_port(session, "all", 1, "[calls]", &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_BADARG);
	ck_assert_str_eq(failure.text, "the flag \"calls\" is none: see trace(3)");
	ck_assert_int_eq(lorg_process(session, "all", 1, "[calls", &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_BADARG);
	ck_assert_ptr_nonnull(strstr(failure.text, "flags: 1:"));
	ck_assert_int_eq(lorg_function(session, "{a,b,1}", "true", "[local]", &failure), 3);
	ck_assert_str_eq(lorg_function_refused(connection), "[{{m,f,1},\"too short\"}]");
	ck_assert_int_eq(lorg_function(session, "\"m:f\"", "{'if',\"arg0 > 1\"}", "[]", &failure), 0);
	ck_assert_str_eq(lorg_function_refused(connection), "[]");
	ck_assert_int_eq(lorg_send(session, "true", "[]", &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_SYSTEM_LIMIT);
	ck_assert_int_eq(lorg_recv(session, "false", "[]", &failure), 1);
	ck_assert_int_eq(lorg_system(session, "long_gc", "50", &failure), 0);
	const struct lorg_limits limits = {.events = 7, .memory = 9};
	ck_assert_int_eq(lorg_session_limit(session, &limits, &failure), 0);
	ck_assert_str_eq(fake.last, "{session_limit,{hunt,3},[{events,7},{rate,0},{memory,9}]}");
	char *text = lorg_info(session, "new", "flags", &failure);
	ck_assert_str_eq(text, "{flags,[call,procs]}");
	free(text);
	text = lorg_delivered(session, "all", &failure);
	ck_assert_str_eq(text, "#Ref<0.1.2.3>");
	free(text);
	text = lorg_session_info(connection, "<1.1.0>", &failure);
	ck_assert_str_eq(text, "undefined");
	free(text);
	ck_assert_int_eq(lorg_session_adopt(session, &failure), 0);
	ck_assert_int_eq(lorg_session_destroy(session, &failure), 1);
	lorg_session_free(session);
	fake_end(&fake, connection);
}
END_TEST

/* Weak handles: by name, number, handle. */
START_TEST(weak_handles)
{
	static const struct {
		const char *given, *handle;
		enum lorg_failure_kind kind;
	} cases[] = {{"hunt", "{hunt,3}", LORG_FAILURE_NONE},	{"3", "{hunt,3}", LORG_FAILURE_NONE},
		     {"my name", "{'my name',4}", LORG_FAILURE_NONE}, {"{x,9}", "{x,9}", LORG_FAILURE_NONE},
		     {"twice", NULL, LORG_FAILURE_BADARG},	{"6", "{twice,6}", LORG_FAILURE_NONE},
		     {"nobody", NULL, LORG_FAILURE_BADARG},	{"{x", NULL, LORG_FAILURE_BADARG}};
	struct fake fake;
	struct lorg_failure failure;
	struct lorg_connection *connection = fake_begin(&fake, answer_all);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lorg_session *session = lorg_session_find(connection, cases[i].given, &failure);
		ck_assert_int_eq(failure.kind, cases[i].kind);
		if (cases[i].handle)
			ck_assert_str_eq(lorg_session_handle(session), cases[i].handle);
		else
			ck_assert_ptr_null(session);
		if (session && session != NULL && cases[i].handle[1] == 'x')
			ck_assert_int_eq(lorg_session_destroy(session, &failure), 0);
		lorg_session_free(session);
	}
	fake_end(&fake, connection);
}
END_TEST

START_TEST(programs_listed)
{
	struct fake fake;
	struct term_program *programs;
	struct lorg_connection *connection = fake_begin(&fake, answer_all);
	char *list = lorg_programs(connection, NULL);
	ck_assert_int_eq(term_programs(list, &programs), 2);
	ck_assert_int_eq(programs[0].pid, 4211);
	ck_assert_str_eq(programs[0].file, "/bin/x");
	ck_assert_int_eq(programs[0].session_count, 1);
	ck_assert_str_eq(programs[0].sessions[0].name, "hunt");
	ck_assert_str_eq(programs[1].file, "/bin/\xc3\xa4");
	term_programs_free(programs, 2);
	ck_assert_int_eq(term_programs("[{4211,x}]", &programs), -1);
	free(list);
	fake_end(&fake, connection);
}
END_TEST

static void put_packet(void *context, const void *packet, size_t length)
{
	put_frame(context, FRAME_PACKET, 3, packet, length);
}

/* Packets before the answer to the next request, and then all kinds of frames. */
static void answer_with_messages(struct fake *fake, uint64_t number, const char *request)
{
	struct synthetic stream = {.open = 0};
	uint64_t lost = 17;
	if (strncmp(request, "{process", 8) != 0) {
		answer_all(fake, number, request);
		return;
	}
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	synthetic_packet(&stream, program, 200);
	call(&stream, 210, FIRST);
	call(&stream, 220, FIRST);
	each_packet(&stream, put_packet, fake);
	put_text(fake, FRAME_ANSWER, number, "1");
	put_text(fake, FRAME_DELIVERED, 3, "{trace_delivered,all,#Ref<0.1.2.3>}");
	put_frame(fake, FRAME_LOST, 3, &lost, sizeof lost);
	synthetic_packet(&stream, program, 300);
	open_port(&stream, 310, 7, 1);
	each_packet(&stream, put_packet, fake);
	put_text(fake, FRAME_ENDED, 3, "it was destroyed");
}

static void expect(struct lorg_connection *connection, enum lorg_message_kind kind, const char *text, int has_json)
{
	struct lorg_message message;
	struct lorg_failure failure;
	struct pollfd ready = {.fd = lorg_descriptor(connection), .events = POLLIN};
	int got = 0;
	/* The descriptor tells whenever there is something to do. */
	while (got == 0) {
		ck_assert_int_eq(poll(&ready, 1, 5000), 1);
		got = lorg_receive(connection, 0, &message, &failure);
	}
	ck_assert_msg(got == 1, "%s", failure.text);
	ck_assert_int_eq(message.kind, kind);
	ck_assert_str_eq(message.text, text);
	ck_assert_str_eq(message.session, "hunt");
	ck_assert_int_eq(message.json != NULL, has_json);
}

START_TEST(messages)
{
	struct fake fake;
	struct lorg_failure failure;
	struct lorg_message message;
	struct lorg_connection *connection = fake_begin(&fake, answer_with_messages);
	struct lorg_session *session = lorg_session_create(connection, "hunt", "client", "[]", &failure);
	ck_assert_int_eq(lorg_receive(connection, 1000000, &message, &failure), 0);
	ck_assert_int_eq(lorg_process(session, "all", 1, "[call]", &failure), 1);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}", 1);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}", 1);
	expect(connection, LORG_MESSAGE_DELIVERED, "{trace_delivered,all,#Ref<0.1.2.3>}", 0);
	expect(connection, LORG_MESSAGE_LOST, "{lost,17}", 0);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,#Port<4211.7.1>,open,<4211.4211.0>,tcp}", 1);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,#Port<4211.7.1>,getting_linked,<4211.4211.0>}", 1);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,<4211.4211.0>,link,#Port<4211.7.1>}", 1);
	expect(connection, LORG_MESSAGE_ENDED, "it was destroyed", 0);
	struct pollfd ready = {.fd = lorg_descriptor(connection), .events = POLLIN};
	ck_assert_int_eq(lorg_receive(connection, 0, &message, &failure), 0);
	ck_assert_int_eq(poll(&ready, 1, 50), 0); /* and only then */
	shutdown(fake.fd, SHUT_RDWR);
	ck_assert_int_eq(lorg_receive(connection, -1, &message, &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_NO_DAEMON);
	ck_assert_int_eq(lorg_process(session, "all", 1, "[call]", &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_NO_DAEMON);
	lorg_session_free(session);
	fake_end(&fake, connection);
}
END_TEST

static void answer_with_losses(struct fake *fake, uint64_t number, const char *request)
{
	struct synthetic stream = {.open = 0};
	if (strncmp(request, "{process", 8) != 0) {
		answer_all(fake, number, request);
		return;
	}
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	each_packet(&stream, put_packet, fake);
	for (uint64_t lost = 1; lost <= 10; lost++)
		put_frame(fake, FRAME_LOST, 3, &lost, sizeof lost);
	synthetic_packet(&stream, program, 200);
	call(&stream, 210, FIRST);
	each_packet(&stream, put_packet, fake);
	for (uint64_t lost = 1; lost <= 10; lost++)
		put_frame(fake, FRAME_LOST, 3, &(struct frame_lost){lost, 2}, sizeof(struct frame_lost));
	put_text(fake, FRAME_TEXT, 3, "{plug,1}");
	put_text(fake, FRAME_ANSWER, number, "1");
}

/* Losses are told once for all that was lost between two messages. */
START_TEST(losses)
{
	struct fake fake;
	struct lorg_failure failure;
	struct lorg_connection *connection = fake_begin(&fake, answer_with_losses);
	struct lorg_session *session = lorg_session_create(connection, "hunt", "client", "[]", &failure);
	ck_assert_int_eq(lorg_process(session, "all", 1, "[call]", &failure), 1);
	/* Both came before the packet was shown. */
	expect(connection, LORG_MESSAGE_LOST, "{lost,110}", 0);
	expect(connection, LORG_MESSAGE_PERHAPS_LOST, "{perhaps_lost,20}", 0);
	expect(connection, LORG_MESSAGE_TRACE, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}", 1);
	expect(connection, LORG_MESSAGE_TRACE, "{plug,1}", 0);
	lorg_session_free(session);
	fake_end(&fake, connection);
}
END_TEST

static void append(const char *name, const void *bytes, size_t length)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", unit_directory(), name);
	FILE *file = fopen(path, "ab");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	fclose(file);
}

/* A trace directory is followed from where it is: packets that are half written are waited for, new files are found. */
START_TEST(recording_is_followed)
{
	static const char metadata[] = "env { lorg_abi_major = %d; lorg_abi_minor = 0; }; trace { uuid = \"00000000-0000-0000-0000-000000000000\"; };";
	struct live *live = live_new(LIVE_ERLANG);
	struct synthetic stream = {.open = 0};
	char text[256], error[200];
	int length = snprintf(text, sizeof text, metadata, LORG_ABI_MAJOR);
	ck_assert_ptr_null(recording_open(unit_directory(), error, sizeof error));
	append("metadata", text, (size_t)length);
	introduce(&stream);
	hooked(&stream, 110, FIRST, "f");
	synthetic_packet(&stream, program, 150);
	call(&stream, 160, FIRST);
	synthetic_end(&stream, 1);
	append("stream-0", stream.bytes, stream.length);
	synthetic_free(&stream);
	struct recording *recording = recording_open(unit_directory(), error, sizeof error);
	ck_assert_msg(recording != NULL, "%s", error);
	ck_assert_int_eq(recording_read(recording, live, 0), 1);
	shows(live, "");
	synthetic_packet(&stream, program, 200);
	call(&stream, 210, FIRST);
	synthetic_end(&stream, 1);
	append("stream-1", stream.bytes, stream.length / 2);
	ck_assert_int_eq(recording_read(recording, live, 1), 1);
	shows(live, "");
	append("stream-1", stream.bytes + stream.length / 2, stream.length - stream.length / 2);
	synthetic_free(&stream);
	ck_assert_int_eq(recording_read(recording, live, 1), 1);
	shows(live, "{trace,<4211.4211.0>,call,{'redis-server',f,2}}\n");
	const struct lorg_event_MARK mark = {0};
	const struct packet_bytes words = packet_text("recording ended packets=7");
	synthetic_packet(&stream, (struct synthetic_process){0}, 300);
	synthetic_event(&stream, LORG_EVENT_MARK, 300, &mark, &words, 1);
	synthetic_end(&stream, 1);
	append("stream-0", stream.bytes, stream.length);
	synthetic_free(&stream);
	ck_assert_int_eq(recording_read(recording, live, 1), 0);
	shows(live, "");
	recording_close(recording);
	live_free(live);
}
END_TEST

static void answer_with_nonsense(struct fake *fake, uint64_t number, const char *request)
{
	static const struct frame_head endless = {.length = UINT32_MAX, .kind = FRAME_PACKET};
	if (strncmp(request, "{session_info", 13) == 0)
		put_text(fake, FRAME_ANSWER, number, "[{hunt,");
	else if (strncmp(request, "{programs", 9) == 0)
		send(fake->fd, &endless, sizeof endless, MSG_NOSIGNAL);
	else
		put_text(fake, FRAME_ANSWER, number, "what");
}

/* What makes no sense is a failure, and nothing worse. */
START_TEST(nonsense)
{
	struct fake fake;
	struct lorg_failure failure;
	struct lorg_connection *connection = fake_begin(&fake, answer_with_nonsense);
	struct lorg_session *session = lorg_session_find(connection, "{hunt,3}", &failure);
	ck_assert_ptr_null(lorg_session_find(connection, "hunt", &failure));
	ck_assert_int_eq(failure.kind, LORG_FAILURE_IO);
	ck_assert_int_eq(lorg_process(session, "all", 1, "[]", &failure), -1);
	ck_assert_int_eq(failure.kind, LORG_FAILURE_IO);
	ck_assert_int_eq(lorg_session_destroy(session, &failure), -1);
	ck_assert_ptr_null(lorg_programs(connection, &failure));
	ck_assert_int_eq(failure.kind, LORG_FAILURE_IO);
	lorg_session_free(session);
	fake_end(&fake, connection);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {live_keeps_definitions, live_merges, live_stamps, live_meta, live_sides, live_forgets,
				      live_damage, no_daemon, requests, weak_handles, programs_listed, messages,
				      losses, recording_is_followed, nonsense};
	return unit_suite_of("client", tests, sizeof tests / sizeof *tests, 30);
}
