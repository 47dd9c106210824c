/* SPDX-License-Identifier: MIT */
/*
 * test_protocol.c: what lorgd takes for a request, and what it does: frames and their limits, every refusal of trace(3),
 * and what of it programs see in their arenas.
 *
 * The node is a real collector; its one program is a child of the test, which has the arena mapped and says of itself
 * what liblorg.so would.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/collect/collector.h"
#include "collector/collect/offers.h"
#include "collector/daemon/answer.h"
#include "collector/daemon/client.h"
#include "collector/daemon/connection.h"
#include "collector/daemon/protocol.h"
#include "collector/daemon/request.h"
#include "collector/session/functions.h"
#include "collector/session/live.h"
#include "collector/store/packet.h"
#include "collector/term/reader.h"
#include "tests/unit/unit.h"

/* ---- functions.c, for the requests alone: what was asked is kept ---- */

static struct function_request asked;
static char asked_module[64], asked_match[256];
static unsigned functions_asked;

struct function_traces *function_traces_create(struct sessions *sessions)
{
	(void)sessions;
	return calloc(1, sizeof(struct function_traces));
}

void function_traces_free(struct function_traces *functions)
{
	free(functions);
}

void session_function(struct sessions *sessions, struct session *session, const struct function_request *request, function_done *done,
		      void *context)
{
	(void)sessions, (void)session;
	asked = *request;
	snprintf(asked_module, sizeof asked_module, "%s", request->module ? request->module : "");
	snprintf(asked_match, sizeof asked_match, "%s", request->match ? request->match : "");
	functions_asked++;
	done(context, request->on_load ? 0 : 3, "[{{m,f,1},\"why\"}]", NULL);
}

void session_function_abandon(struct sessions *sessions, void *context)
{
	(void)sessions, (void)context;
}

int session_function_known(struct sessions *sessions, const char *module)
{
	(void)sessions, (void)module;
	return 1;
}

char *session_function_info(struct sessions *sessions, struct session *session, const char *module, const char *function, int64_t arity,
			    const char *item)
{
	char text[128];
	(void)sessions, (void)function, (void)arity;
	int known = !module || strcmp(module, "m") == 0;
	snprintf(text, sizeof text, "{%s,%s}", item, !known ? "undefined" : session ? "local" : "false");
	return strdup(text);
}

int session_traces_function(const struct session *session, uint32_t function, uint64_t tick)
{
	(void)session, (void)function, (void)tick;
	return 0;
}

void session_functions_flag(struct sessions *sessions, struct session *session, struct family *family, uint32_t process, int on)
{
	(void)sessions, (void)session, (void)family, (void)process, (void)on;
}

int session_functions_leave(struct sessions *sessions, struct session *session)
{
	(void)sessions, (void)session;
	return 0;
}

void session_functions_end(struct sessions *sessions, struct session *session)
{
	(void)sessions, (void)session;
}

void session_functions_pass(struct sessions *sessions, uint64_t now_ns)
{
	(void)sessions, (void)now_ns;
}

/* ---- the node ---- */

static struct collector *collector;
static struct sessions *sessions;
static struct service service;
static struct connection *client;
static int peer;
static uint64_t input_of_all;
static pid_t child;
static struct family *family;

static void open_client(struct connection **connection, int *other)
{
	int pair[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	*connection = connection_create(pair[0], &input_of_all);
	(*connection)->pid = getppid();
	*other = pair[1];
}

static void open_node(void)
{
	const char *what, *why;
	const struct collector_settings settings = {
		.live = &session_live, .session = "all", .options = "", .overflow = LORG_OVERFLOW_DISCARD, .message_length = 64, .open_files = 64};
	collector = collector_open(&settings, &what, &why);
	ck_assert_ptr_nonnull(collector);
	sessions = collector_sessions(collector);
	service = (struct service){.sessions = sessions, .node_name = "lorg@here", .epoch = 1};
	open_client(&client, &peer);
	client->greeted = 1;
}

/* One program of one thread attaches. */
static void attach(void)
{
	struct offers *offers = collector_context(collector)->offers;
	uint8_t *at = offers->slot[0].memory.at;
	const struct arena_layout layout = offers->layout;
	struct lorg_arena *arena = (struct lorg_arena *)at;
	struct lorg_image *image = (struct lorg_image *)(at + layout.images);
	uint64_t *control = (uint64_t *)(at + layout.chunk_control);
	struct lorg_process *process = (struct lorg_process *)(at + layout.chunks);
	struct lorg_offer *offer = node_offer(&offers->node, 0);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	memset(image->id, 7, sizeof image->id);
	image->own_pid = (uint32_t)child;
	image->state = LORG_IMAGE_ALIVE;
	arena->image_high_water = 1;
	control[0] = lorg_chunk_word(LORG_CHUNK_SLAB, 0, LORG_SLAB_IN_USE);
	arena->chunk_high_water = 1;
	process->own_tid = (uint32_t)child;
	process->birth_tick = clock_tick(&arena->clock);
	process->state = LORG_PROCESS_ALIVE;
	offer->state = (offer->state & ~(uint32_t)LORG_OFFER_STATE) | LORG_OFFER_CLAIMED;
	for (int i = 0; i < 3; i++)
		collector_pass(collector);
	ck_assert_uint_eq(collector_context(collector)->family_count, 1);
	family = collector_context(collector)->families[0];
}

static void close_node(void)
{
	collector_close(collector, NULL, 0);
	connection_free(client);
	close(peer);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
}

static const char *read_answer(int from, uint16_t kind)
{
	static char text[1 << 16];
	struct frame_head head;
	while (read(from, &head, sizeof head) == sizeof head) {
		ck_assert_uint_lt(head.length, sizeof text);
		ck_assert_int_eq(read(from, text, head.length), head.length);
		text[head.length] = 0;
		if (head.kind == kind)
			return text;
	}
	return "no answer";
}

static const char *ask(const char *format, ...)
{
	static char text[8192];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	const struct frame frame = {FRAME_REQUEST, 1, text, (uint32_t)length};
	service_request(&service, client, &frame);
	connection_send(client);
	return read_answer(peer, FRAME_ANSWER);
}

/* An answer {error, Kind, "Sentence"} that reads as a term, with the word in it. */
static void ck_refused(const char *answer, const char *kind, const char *word)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char begin[64];
	snprintf(begin, sizeof begin, "{error,%s,\"", kind);
	ck_assert_msg(strncmp(answer, begin, strlen(begin)) == 0, "%s", answer);
	ck_assert_msg(strstr(answer, word) != NULL, "%s has no %s", answer, word);
	lorg_terms_open(&terms);
	ck_assert_msg(lorg_read_term(&terms, answer, strlen(answer), NULL, &error) != LORG_NONE, "%s", answer);
	lorg_terms_close(&terms);
}

static const struct lorg_session *slot_of(unsigned slot)
{
	return (const struct lorg_session *)(family->memory.at + family->layout.sessions + (size_t)slot * LORG_SESSION_STRIDE);
}

static uint32_t flags_of(unsigned slot)
{
	return process_entry(family, 0)->session[slot].flags;
}

/* Hooks that are entered for anything but what they always keep. */
static unsigned gates_open(void)
{
	unsigned open = 0;
	for (int i = 0; i < LORG_HOOKS; i++)
		open += (family_arena(family)->gate[i] & ~LORG_GATE_COUNT) != 0;
	return open;
}

/* ---- frames ---- */

START_TEST(frames_come_in_pieces)
{
	struct connection *connection;
	int other;
	struct frame frame;
	uint8_t bytes[64];
	struct frame_head head = {.length = 10, .kind = FRAME_REQUEST, .number = 77};
	open_client(&connection, &other);
	connection->greeted = 1;
	memcpy(bytes, &head, sizeof head);
	memcpy(bytes + sizeof head, "{programs}", 10);
	for (size_t i = 0; i < sizeof head + 10; i++) {
		ck_assert_int_eq(connection_next(connection, &frame), 0);
		ck_assert_int_eq(write(other, bytes + i, 1), 1);
		connection_receive(connection);
	}
	ck_assert_int_eq(connection_next(connection, &frame), 1);
	ck_assert_uint_eq(frame.number, 77);
	ck_assert_mem_eq(frame.data, "{programs}", 10);
	connection_unread(connection, &frame);
	ck_assert_int_eq(connection_next(connection, &frame), 1);
	ck_assert_int_eq(connection_next(connection, &frame), 0);
	ck_assert_int_eq(connection->failed, 0);
	close(other);
	connection_receive(connection);
	ck_assert_int_eq(connection->ended, 1);
	connection_free(connection);
	ck_assert_uint_eq(input_of_all, 0);
}
END_TEST

START_TEST(what_is_no_frame_ends_the_connection)
{
	const struct frame_head heads[] = {
		{.length = UINT32_MAX, .kind = FRAME_REQUEST}, {.length = FRAME_REQUEST_MAXIMUM + 1, .kind = FRAME_REQUEST},
		{.length = 1, .kind = FRAME_PACKET},	       {.length = 1, .kind = 0},
		{.length = 1, .kind = FRAME_REQUEST, .reserved = 1},
	};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		struct connection *connection;
		struct frame frame;
		int other;
		open_client(&connection, &other);
		connection->greeted = 1;
		ck_assert_int_eq(write(other, &heads[i], sizeof heads[i]), sizeof heads[i]);
		connection_receive(connection);
		ck_assert_int_eq(connection_next(connection, &frame), 0);
		ck_assert_msg(connection->failed, "%zu", i);
		connection_free(connection);
		close(other);
	}
}
END_TEST

START_TEST(memory_follows_what_has_arrived)
{
	struct connection *connection;
	int other;
	struct frame_head head = {.length = FRAME_REQUEST_MAXIMUM, .kind = FRAME_REQUEST};
	open_client(&connection, &other);
	/* Before hello, small ones only. */
	ck_assert_int_eq(write(other, &head, sizeof head), sizeof head);
	connection_receive(connection);
	connection_receive(connection);
	ck_assert_int_eq(connection->failed, 1);
	connection->failed = 0;
	connection->greeted = 1;
	connection_receive(connection);
	ck_assert_uint_lt(input_of_all, 4096);
	/* Others have taken what there is for all. */
	input_of_all = CONNECTION_INPUT_ALL;
	char noise[4096] = {0};
	for (int i = 0; i < 8 && !connection->failed; i++) {
		ck_assert_int_gt(write(other, noise, sizeof noise), 0);
		connection_receive(connection);
	}
	ck_assert_int_eq(connection->failed, 1);
	connection_free(connection);
	close(other);
}
END_TEST

START_TEST(frames_go_out_whole_and_in_order)
{
	struct connection *connection;
	struct connection_account account = {0};
	int other;
	char *large = calloc(1, 1 << 20), *got = malloc(1 << 20);
	open_client(&connection, &other);
	for (uint64_t i = 0; i < 4; i++) {
		large[0] = (char)i;
		ck_assert_int_eq(connection_put(connection, FRAME_PACKET, i, large, 100000, i % 2 ? &account : NULL), 0);
	}
	ck_assert_uint_eq(account.waiting, 2 * (100000 + sizeof(struct frame_head)));
	size_t length = 0;
	while (length < 4 * (100000 + sizeof(struct frame_head))) {
		connection_send(connection);
		ssize_t n = read(other, got + length, (1 << 20) - length);
		length += n > 0 ? (size_t)n : 0;
	}
	for (uint64_t i = 0; i < 4; i++) {
		struct frame_head head;
		memcpy(&head, got + i * (100000 + sizeof head), sizeof head);
		ck_assert_uint_eq(head.number, i);
		ck_assert_int_eq(got[i * (100000 + sizeof head) + sizeof head], (char)i);
	}
	ck_assert_uint_eq(account.waiting, 0);
	ck_assert_uint_eq(connection->output_length, 0);
	connection_free(connection);
	close(other);
	free(large);
	free(got);
}
END_TEST

/* ---- refusals ---- */

/* Every condition of trace(3): %s is the live session, %d the program. */
START_TEST(every_wrong_argument_is_a_badarg)
{
	static const char *const wrong[][2] = {
		{"{process,nobody,new,true,[]}", "no session"},
		{"{process,{s,999},new,true,[]}", "no session"},
		{"{process,{other,1},new,true,[]}", "no session"},
		{"{process,\"s\",new,true,[]}", "session is"},
		{"{process,s,newer,true,[]}", "processes is newer"},
		{"{process,s,<1.1.0>,true,[call]}", "not there"},
		{"{process,s,<99999999.1.0>,true,[call]}", "not there"},
		{"{process,s,4000000,true,[call]}", "no program"},
		{"{process,s,-1,true,[call]}", "processes is -1"},
		{"{process,s,#Port<1.1.0>,true,[call]}", "processes is"},
		{"{process,s,new,1,[call]}", "how is 1"},
		{"{process,s,new,true,[call|x]}", "not a list"},
		{"{process,s,new,true,call}", "not a list"},
		{"{process,s,new,true,[call,wrong]}", "wrong"},
		{"{process,s,new,true,[{call}]}", "{call}"},
		{"{process,s,new,true,[cpu_timestamp]}", "with all only"},
		{"{process,s,existing,true,[cpu_timestamp,call]}", "with all only"},
		{"{port,s,<1.1.0>,true,[send]}", "ports is"},
		{"{port,s,#Port<1.1.0>,true,[send]}", "not open"},
		{"{port,s,new,maybe,[send]}", "how is maybe"},
		{"{port,s,new,true,[wrong]}", "wrong"},
		{"{port,s,new,true,[cpu_timestamp]}", "no flag of ports"},
		{"{function,s,{m,f},true,[]}", "{Module, Function, Arity}"},
		{"{function,s,{m,f,1.0},true,[]}", "an arity is a number"},
		{"{function,s,{m,'_',1},true,[]}", "'_' stands for"},
		{"{function,s,{'_',f,1},true,[]}", "'_' stands for"},
		{"{function,s,{'_',f,'_'},true,[]}", "'_' stands for"},
		{"{function,s,{1,f,1},true,[]}", "are atoms"},
		{"{function,s,on_loads,true,[]}", "function is"},
		{"{function,s,{m,f,1},maybe,[]}", "match specification is maybe"},
		{"{function,s,{m,f,1},true,[global,local]}", "global stands alone"},
		{"{function,s,{m,f,1},true,[global,call_count]}", "global stands alone"},
		{"{function,s,{m,f,1},true,[wrong]}", "wrong"},
		{"{function,s,{m,f,1},true,[local|x]}", "not a list"},
		{"{function,s,{m,f,1},[{'_',[],[]}],[call_count]}", "counters take"},
		{"{function,s,{m,f,1},[{'_',[],[]}],[call_time,call_memory]}", "counters take"},
		{"{function,s,{m,f,1},[{'_',[],[{wrong}]}],[]}", "match specification"},
		{"{function,s,{m,f,1},[{'_',[],['$1']}],[]}", "match specification"},
		{"{function,s,{m,f,1},[{a,[],[]}],[]}", "match specification"},
		{"{send,s,true,[x]}", "not []"},
		{"{send,s,maybe,[]}", "match specification is maybe"},
		{"{send,s,[{['_','_'],[],[{message,{caller}}]}],[]}", "match specification"},
		{"{recv,s,true,true}", "not []"},
		{"{recv,s,[{'_',[],[{silent,true}]}],[]}", "match specification"},
		{"{recv,s,[{'_',[],[{process_dump}]}],[]}", "match specification"},
		{"{recv,s,[{'_',[],[{trace,[],[call]}]}],[]}", "match specification"},
		{"{recv,s,[{'_',[],[{enable_trace,call}]}],[]}", "match specification"},
		{"{recv,s,[{'_',[{is_seq_trace}],[]}],[]}", "match specification"},
		{"{recv,s,[{'_',[],[{message,{get_seq_token}}]}],[]}", "match specification"},
		{"{system,s,wrong,true}", "none of long_gc"},
		{"{system,s,1,true}", "not an atom"},
		{"{system,s,long_gc,true}", "not a number"},
		{"{system,s,long_gc,-1}", "not a number"},
		{"{system,s,long_schedule,1.5}", "not a number"},
		{"{system,s,large_heap,99999999999999999999}", "not a number"},
		{"{system,s,busy_port,1}", "not true or false"},
		{"{system,s,busy_dist_port,{1,2}}", "not true or false"},
		{"{system,s,long_message_queue,true}", "Disable < Enable"},
		{"{system,s,long_message_queue,{1,1}}", "Disable < Enable"},
		{"{system,s,long_message_queue,{2,1}}", "Disable < Enable"},
		{"{system,s,long_message_queue,{-1,1}}", "Disable < Enable"},
		{"{system,s,long_message_queue,{0,0}}", "Disable < Enable"},
		{"{info,s,new,match_spec}", "not flags or tracer"},
		{"{info,s,new,all}", "not flags or tracer"},
		{"{info,s,<1.1.0>,traced}", "not flags or tracer"},
		{"{info,s,{m,'_',1},all}", "cannot stand here"},
		{"{info,s,{m,f,'_'},all}", "cannot stand here"},
		{"{info,s,{m,f,1},flags}", "not traced"},
		{"{info,s,on_load,tracer}", "not traced"},
		{"{info,s,send,all}", "not match_spec"},
		{"{info,s,'receive',flags}", "not match_spec"},
		{"{info,s,system,long_gc}", "not all"},
		{"{info,s,all,all}", "session_info"},
		{"{info,s,wrong,all}", "of is wrong"},
		{"{session_info,wrong}", "of is wrong"},
		{"{session_info,{m,'_','_'}}", "cannot stand here"},
		{"{session_create,1,client,[]}", "not an atom"},
		{"{session_create,x,nobody,[]}", "tracer is nobody"},
		{"{session_create,x,<1.1.0>,[]}", "tracer is"},
		{"{session_create,x,{file,\"here\"},[]}", "whole path"},
		{"{session_create,x,{file,here},[]}", "tracer is"},
		{"{session_create,x,{wrong,\"/x\"},[]}", "tracer is"},
		{"{session_create,x,client,[wrong]}", "which is none"},
		{"{session_create,x,client,true}", "not a list"},
		{"{session_limit,s,[{wrong,1}]}", "limit is"},
		{"{session_limit,s,[{events,-1}]}", "limit is"},
		{"{session_limit,s,x}", "not a list"},
		{"{delivered,s,new}", "tracee is new"},
		{"{delivered,nobody,all}", "no session"},
		{"{adopt,s}", "client that is there"},
		{"{process,s}", "no request process of 1"},
		{"process", "the request is"},
		{"{process,s,new,true,[call]", "1:"},
	};
	open_node();
	ck_assert_str_eq(ask("{session_create,s,client,[]}"), "{ok,{s,1}}");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		ck_refused(ask("%s", wrong[i][0]), "badarg", wrong[i][1]);
	const struct session *session = session_at(sessions, 1);
	ck_assert_uint_eq(session->defaults.new_processes | session->defaults.new_ports, 0);
	ck_assert_uint_eq(functions_asked, 0);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(session->system_limits[i], UINT64_MAX);
	close_node();
}
END_TEST

START_TEST(nesting_is_a_system_limit)
{
	char text[4096] = "{send,s,[{'_',[],[";
	open_node();
	ask("{session_create,s,client,[]}");
	for (int i = 0; i < 1100; i++)
		strcat(text, "[");
	ck_refused(ask("%s", text), "system_limit", "");
	close_node();
}
END_TEST

START_TEST(the_tracers_own_program_is_not_traced)
{
	open_node();
	attach();
	ask("{session_create,s,client,[]}");
	ck_refused(ask("{process,s,<%d.%d.0>,true,[wrong]}", child, child), "badarg", "wrong");
	ck_assert_str_eq(ask("{process,s,<%d.%d.0>,true,[call]}", child, child), "1");
	/* Of a process of the tracer's own program. */
	client->pid = child;
	ck_refused(ask("{process,s,<%d.%d.0>,true,[call]}", child, child), "badarg", "tracer itself");
	ck_refused(ask("{process,s,%d,true,[call]}", child), "badarg", "tracer itself");
	ck_assert_str_eq(ask("{process,s,existing,true,[call]}"), "0");
	close_node();
}
END_TEST

/* ---- what is answered ---- */

START_TEST(values_are_those_of_trace)
{
	open_node();
	attach();
	ck_assert_str_eq(ask("{session_create,'a b',client,[persist]}"), "{ok,{'a b',1}}");
	ck_assert_str_eq(ask("{session_create,s,client,[]}"), "{ok,{s,2}}");
	ck_assert_str_eq(ask("{session_info,all}"), "[{'a b',1},{s,2}]");
	ck_assert_str_eq(ask("{process,s,new,true,[call,call,all]}"), "0");
	ck_assert_str_eq(ask("{process,s,new,false,[all]}"), "0");
	ck_assert_str_eq(ask("{process,s,existing,true,[procs,timestamp]}"), "1");
	ck_assert_str_eq(ask("{process,2,all,true,[cpu_timestamp]}"), "1");
	ck_assert_uint_eq(session_at(sessions, 2)->timestamps, 1);
	ck_assert_str_eq(ask("{process,{s,2},all,false,[cpu_timestamp]}"), "1");
	ck_assert_uint_eq(session_at(sessions, 2)->timestamps, 0);
	ck_assert_str_eq(ask("{info,s,<%d.%d.0>,flags}", child, child), "{flags,[procs,timestamp]}");
	ck_assert_str_eq(ask("{info,'a b',<%d.%d.0>,flags}", child, child), "{flags,[]}");
	ck_assert_str_eq(ask("{info,'a b',<%d.%d.0>,tracer}", child, child), "{tracer,[]}");
	ck_assert_str_eq(ask("{session_info,<%d.%d.0>}", child, child), "[{s,2}]");
	ck_assert_str_eq(ask("{info,s,<1.1.0>,flags}"), "undefined");
	ck_assert_str_eq(ask("{session_info,<1.1.0>}"), "undefined");
	ck_assert_str_eq(ask("{function,s,{m,f,1},true,[local,call_count,local]}"), "{3,[{{m,f,1},\"why\"}]}");
	ck_assert_uint_eq(asked.kinds, LORG_KIND_LOCAL | LORG_KIND_COUNT);
	ck_assert_str_eq(ask("{function,s,{m,f,'_'},[],[]}"), "{3,[{{m,f,1},\"why\"}]}");
	ck_assert_uint_eq(asked.kinds, LORG_KIND_GLOBAL);
	ck_assert_int_eq((int)asked.arity, -1);
	ck_assert_str_eq(asked_module, "m");
	ck_assert_str_eq(ask("{function,s,on_load,[{'_',[],[{return_trace}]}],[local]}"), "{0,[{{m,f,1},\"why\"}]}");
	ck_assert_str_eq(asked_match, "[{'_',[],[{return_trace}]}]");
	ck_assert_str_eq(ask("{function,s,\"m*:f/2\",{'if',\"arg0 > 1\"},[]}"), "{3,[{{m,f,1},\"why\"}]}");
	ck_assert_int_eq(asked.is_condition, 1);
	ask("{function,s,{m,f,1},pause,[call_time]}");
	ck_assert_int_eq(asked.how, FUNCTION_PAUSE);
	ask("{function,s,{m,f,1},false,[meta]}");
	ck_assert_int_eq(asked.how, FUNCTION_CLEAR);
	ck_assert_str_eq(ask("{info,s,{m,f,1},traced}"), "{traced,local}");
	ck_assert_str_eq(ask("{session_info,{x,f,1}}"), "undefined");
	/* An arity that no function has is no mistake. */
	ck_assert_str_eq(ask("{function,s,{m,f,256},true,[]}"), "{0,[{{m,f,256},\"no function has that many arguments\"}]}");
	ck_assert_str_eq(ask("{function,s,{m,f,-1},true,[]}"), "{0,[{{m,f,-1},\"no function has that many arguments\"}]}");
	ck_assert_str_eq(ask("{info,s,{m,f,256},traced}"), "{traced,undefined}");
	ck_assert_str_eq(ask("{session_info,{m,f,256}}"), "undefined");
	ck_assert_str_eq(ask("{session_info,{m,f,1}}"), "[{'a b',1},{s,2}]");
	ck_assert_str_eq(ask("{info,s,send,match_spec}"), "{match_spec,true}");
	ck_assert_str_eq(ask("{send,s,false,[]}"), "1");
	ck_assert_str_eq(ask("{info,s,send,match_spec}"), "{match_spec,false}");
	ck_assert_str_eq(ask("{session_info,send}"), "[{'a b',1}]"); /* the one that lets messages pass */
	ck_assert_str_eq(ask("{session_info,'receive'}"), "[{'a b',1},{s,2}]");
	ck_assert_str_eq(ask("{send,s,[{['_','$1'],[{'=:=','$1',eof}],[]}],[]}"), "1");
	ck_assert_str_eq(ask("{info,s,send,match_spec}"), "{match_spec,[{['_','$1'],[{'=:=','$1',eof}],[]}]}");
	ck_assert_str_eq(ask("{send,s,[],[]}"), "1");
	ck_assert_str_eq(ask("{info,s,send,match_spec}"), "{match_spec,true}");
	ck_assert_str_eq(ask("{recv,s,[{['_',undefined,'_'],[],[]}],[]}"), "1");
	ck_assert_str_eq(ask("{info,s,'receive',match_spec}"), "{match_spec,[{['_',undefined,'_'],[],[]}]}");
	ck_assert_str_eq(ask("{recv,s,true,[]}"), "1");
	ck_assert_str_eq(ask("{session_info,'receive'}"), "[{'a b',1},{s,2}]");
	ck_assert_str_eq(ask("{port,s,new,true,[ports,call]}"), "0");
	ck_assert_str_eq(ask("{info,s,new_ports,flags}"), "{flags,[ports,call]}");
	ck_assert_str_eq(ask("{session_info,new_ports}"), "[{s,2}]");
	ck_assert_str_eq(ask("{session_limit,s,[{events,10},{memory,0}]}"), "true");
	ck_assert_str_eq(ask("{session_destroy,s}"), "true");
	ck_assert_str_eq(ask("{session_destroy,s}"), "false");
	ck_assert_str_eq(ask("{session_destroy,{s,2}}"), "false");
	ck_assert_str_eq(ask("{session_destroy,1}"), "true");
	ck_assert_str_eq(ask("{session_info,all}"), "[]");
	close_node();
}
END_TEST

START_TEST(system_events_have_their_least)
{
	open_node();
	attach();
	ask("{session_create,s,client,[]}");
	ask("{session_create,t,client,[]}");
	ck_assert_str_eq(ask("{info,s,system,all}"), "{system,[]}");
	ck_assert_str_eq(ask("{system,s,long_gc,0}"), "ok");
	ck_assert_str_eq(ask("{system,s,large_heap,1}"), "ok");
	ck_assert_str_eq(ask("{system,s,long_schedule,50}"), "ok");
	ck_assert_str_eq(ask("{system,s,busy_port,true}"), "ok");
	ck_assert_str_eq(ask("{system,s,long_message_queue,{0,9}}"), "ok");
	ck_assert_str_eq(ask("{info,s,system,all}"),
			 "{system,[busy_port,{long_gc,1},{long_schedule,50},{large_heap,16384},{long_message_queue,{0,9}}]}");
	ck_assert_str_eq(ask("{system,t,long_schedule,20}"), "ok");
	ck_assert_str_eq(ask("{system,t,long_message_queue,{3,5}}"), "ok");
	const struct lorg_session *all = slot_of(0);
	ck_assert_uint_eq(all->system_limits[SESSION_LONG_SCHEDULE], 20);
	ck_assert_uint_eq(all->system_limits[SESSION_LONG_QUEUE_ON], 5);
	ck_assert_uint_eq(all->system_limits[SESSION_LONG_QUEUE_OFF], 0);
	ck_assert_uint_eq(all->system_limits[SESSION_BUSY_DIST_PORT], 0);
	ck_assert_uint_eq(slot_of(1)->system_limits[SESSION_LONG_SCHEDULE], 50);
	ck_assert_uint_gt(gates_open(), 0);
	ck_assert_str_eq(ask("{system,s,busy_port,false}"), "ok");
	ck_assert_str_eq(ask("{session_destroy,s}"), "true");
	ck_assert_str_eq(ask("{session_destroy,t}"), "true");
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(slot_of(0)->system_limits[i], 0);
	ck_assert_uint_eq(gates_open(), 0);
	close_node();
}
END_TEST

/* ---- what programs see ---- */

START_TEST(gates_open_while_somebody_asks)
{
	open_node();
	attach();
	uint32_t generation = family_arena(family)->settings_generation;
	ck_assert_uint_eq(gates_open(), 0);
	ask("{session_create,s,client,[]}");
	ask("{session_create,t,client,[]}");
	ck_assert_uint_eq(gates_open(), 0);
	ck_assert_uint_eq(slot_of(1)->state, 1);
	ck_assert_uint_eq(family_arena(family)->sessions_used, 3);
	ask("{process,s,existing,true,[send]}");
	ask("{process,t,<%d.%d.0>,true,[procs]}", child, child);
	ck_assert_uint_eq(flags_of(1), LORG_TRACE_SEND);
	ck_assert_uint_eq(flags_of(2), LORG_TRACE_PROCS);
	ck_assert_uint_eq(flags_of(0), LORG_TRACE_SEND | LORG_TRACE_PROCS);
	ck_assert_uint_gt(gates_open(), 0);
	ck_assert_uint_ne(family_arena(family)->settings_generation, generation);
	uint32_t epoch = family_arena(family)->port_epoch;
	ck_assert_uint_gt(epoch, 0);
	ask("{process,s,existing,false,[send]}");
	ck_assert_uint_eq(flags_of(0), LORG_TRACE_PROCS);
	ask("{session_destroy,t}");
	ck_assert_uint_eq(flags_of(0), 0);
	ck_assert_uint_eq(flags_of(2), 0);
	ck_assert_uint_eq(slot_of(2)->state, 0);
	ck_assert_uint_eq(gates_open(), 0);
	ask("{process,s,new,true,[running]}");
	ck_assert_uint_eq(slot_of(1)->flags_new_processes, LORG_TRACE_RUNNING);
	ck_assert_uint_gt(gates_open(), 0);
	ask("{port,s,new,true,[send]}");
	ck_assert_uint_eq(slot_of(0)->flags_ports, LORG_TRACE_SEND | LORG_TRACE_PORTS); /* which are new is to be told */
	ck_assert_uint_gt(family_arena(family)->port_epoch, epoch);
	ask("{session_destroy,s}");
	ck_assert_uint_eq(gates_open(), 0);
	ck_assert_uint_eq(slot_of(0)->flags_ports, 0);
	close_node();
}
END_TEST

/* An action of a specification gives a process flags: they are taken back with the session, and the gates follow them. */
START_TEST(flags_that_programs_set_are_found)
{
	open_node();
	attach();
	ask("{session_create,s,client,[]}");
	process_entry(family, 0)->session[1].flags = LORG_TRACE_RUNNING;
	process_entry(family, 0)->session[0].flags = LORG_TRACE_RUNNING;
	process_entry(family, 0)->session[9].flags = LORG_TRACE_CALL; /* of a session that is over */
	sessions_look(sessions);
	sessions_publish(sessions);
	ck_assert_uint_gt(gates_open(), 0);
	ask("{session_destroy,s}");
	ck_assert_uint_eq(flags_of(1) | flags_of(9) | flags_of(0), 0);
	ck_assert_uint_eq(gates_open(), 0);
	close_node();
}
END_TEST

START_TEST(one_program_has_flags_of_its_own)
{
	open_node();
	attach();
	ask("{session_create,s,client,[]}");
	ck_assert_str_eq(ask("{process,s,%d,true,[call,arity]}", child), "1");
	const struct lorg_program_flags *rule = (const struct lorg_program_flags *)(family->memory.at + family->layout.program_flags);
	ck_assert_uint_eq(rule->image, 1);
	ck_assert_uint_eq(rule->session, 1);
	ck_assert_uint_eq(rule->flags, LORG_TRACE_CALL | LORG_TRACE_ARITY);
	ck_assert_uint_eq(slot_of(1)->flags_new_processes, 0);
	ck_assert_str_eq(ask("{process,s,%d,false,[arity]}", child), "1");
	ck_assert_uint_eq(rule->flags, LORG_TRACE_CALL);
	ask("{session_destroy,s}");
	ck_assert_uint_eq(rule->image, 0);
	close_node();
}
END_TEST

START_TEST(specifications_of_messages_stand_in_the_arena)
{
	open_node();
	attach();
	ask("{session_create,s,client,[]}");
	ask("{session_create,t,client,[]}");
	ask("{send,s,[{['_','_'],[],[]}],[]}");
	ask("{send,t,[{['_',a],[],[]}],[]}");
	ask("{recv,t,false,[]}");
	uint32_t first = slot_of(1)->send_program, second = slot_of(2)->send_program;
	ck_assert_uint_ge(first, 8);
	ck_assert_uint_ge(second, 8);
	ck_assert_uint_ne(first, second);
	ck_assert_uint_eq(slot_of(2)->receive_program, LORG_PROGRAM_OFF);
	ck_assert_uint_ne(slot_of(0)->send_program, 0);
	const struct lorg_match_head *head = (const struct lorg_match_head *)(family->memory.at + family->layout.programs + first - 8);
	ck_assert_uint_eq(head->magic, LORG_MATCH_MAGIC);
	ck_assert_uint_eq(head->dialect, LORG_DIALECT_SEND);
	/* The place of one that was taken away is not the next one's at once: it may be under evaluation. */
	ask("{send,s,true,[]}");
	ck_assert_uint_eq(slot_of(1)->send_program, 0);
	ask("{send,s,[{['_',b],[],[]}],[]}");
	ck_assert_uint_ne(slot_of(1)->send_program, first);
	ck_assert_uint_ne(slot_of(1)->send_program, second);
	ask("{session_destroy,s}");
	ask("{session_destroy,t}");
	ck_assert_uint_eq(slot_of(0)->send_program, 0);
	/* Arenas to come have it from the start. */
	ask("{session_create,u,client,[]}");
	ask("{recv,u,[{'_',[],[]}],[]}");
	const struct offers *offers = collector_context(collector)->offers;
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++) {
		if (!offers->slot[slot].memory.at)
			continue;
		const struct lorg_session *of = (const struct lorg_session *)(offers->slot[slot].memory.at + offers->layout.sessions);
		ck_assert_uint_eq(((const struct lorg_session *)((const uint8_t *)of + LORG_SESSION_STRIDE * session_named(sessions, "u", &(int){0})->slot))->state, 1);
		ck_assert_uint_ne(of->receive_program, 0);
	}
	close_node();
}
END_TEST

START_TEST(there_are_127_sessions)
{
	open_node();
	for (int i = 1; i < SESSION_SLOTS; i++)
		ck_assert_int_eq(strncmp(ask("{session_create,s,client,[]}"), "{ok,", 4), 0);
	ck_refused(ask("{session_create,s,client,[]}"), "system_limit", "127");
	ck_refused(ask("{process,s,new,true,[call]}"), "badarg", "several");
	ck_assert_str_eq(ask("{session_destroy,{s,5}}"), "true");
	/* Numbers are never used twice. */
	ck_assert_str_eq(ask("{session_create,s,client,[]}"), "{ok,{s,128}}");
	service_forget(&service, client);
	ck_assert_str_eq(ask("{session_info,all}"), "[]");
	close_node();
}
END_TEST

START_TEST(sessions_end_with_their_connection)
{
	struct connection *other;
	int other_peer;
	open_node();
	ask("{session_create,strong,client,[]}");
	ask("{session_create,kept,client,[persist]}");
	ck_assert_int_eq(strncmp(ask("{delivered,kept,all}"), "#Ref<", 5), 0);
	service_forget(&service, client);
	ck_assert_str_eq(ask("{session_info,all}"), "[{kept,2}]");
	ck_assert_ptr_null(service.pending);
	ck_assert_str_eq(ask("{info,kept,new,tracer}"), "{tracer,[]}");
	for (int i = 0; i < 3; i++)
		collector_pass(collector);
	ck_assert_ptr_nonnull(session_numbered(sessions, 2));
	open_client(&other, &other_peer);
	other->greeted = 1;
	const struct frame frame = {FRAME_REQUEST, 1, "{adopt,kept}", 12};
	service_request(&service, other, &frame);
	ck_assert_ptr_eq(client_connection(session_numbered(sessions, 2)->tracer), other);
	service_forget(&service, other);
	connection_free(other);
	close(other_peer);
	ck_assert_str_eq(ask("{session_destroy,kept}"), "true");
	close_node();
}
END_TEST

START_TEST(hello_comes_first)
{
	open_node();
	client->greeted = 0;
	ck_refused(ask("{hello,2,0}"), "not_allowed", "version");
	ck_assert_int_eq(client->closing, 1);
	ck_refused(ask("{programs}"), "not_allowed", "hello");
	ck_refused(ask("{hello,x,0}"), "badarg", "not a number");
	ck_assert_int_eq(strncmp(ask("{hello,1,7}"), "{ok,{lorgd,", 11), 0);
	ck_assert_int_eq(client->greeted, 1);
	close_node();
}
END_TEST

/* ---- a client that is too slow ---- */

START_TEST(a_slow_client_loses_and_is_told_how_many)
{
	static _Alignas(8) uint8_t buffer[4096];
	struct packet_builder packet;
	const struct lorg_event_MARK mark = {0};
	const struct packet_bytes text[] = {packet_text("mark")};
	struct connection *connection;
	struct frame_lost lost;
	int other;
	open_client(&connection, &other);
	struct tracer *tracer = client_tracer(connection, 0);
	tracer->number = 9;
	tracer->memory_limit = 1000;
	packet_begin(&packet, buffer, sizeof buffer, 100);
	for (int i = 0; i < 3; i++)
		packet_event(&packet, LORG_EVENT_MARK, 100, &mark, text, 1);
	unsigned taken = 0;
	while (tracer->operations->packet(tracer, packet.head, packet.length) == 0)
		taken++;
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_le(tracer->operations->waiting(tracer), 1000 + 64);
	ck_assert_uint_eq(tracer->operations->packet(tracer, packet.head, packet.length), 3);
	/* What others are read with has room for longer, and has no loss of its own to tell. */
	packet.head->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS | LORG_HOLDS_UNSHOWN;
	ck_assert_uint_eq(tracer->operations->packet(tracer, packet.head, packet.length), 0);
	packet.head->holds = 0;
	connection_send(connection);
	ck_assert_uint_eq(tracer->operations->waiting(tracer), 0);
	/* Before what came next. */
	memcpy(&lost, read_answer(other, FRAME_LOST), sizeof lost);
	ck_assert_uint_ge(lost.count, 6);
	ck_assert_uint_eq(lost.perhaps, 0);
	while (read(other, buffer, sizeof buffer) > 0)
		;
	/* And where nothing comes. */
	tracer->operations->lost(tracer, 0, 4);
	tracer->operations->pass(tracer);
	connection_send(connection);
	memcpy(&lost, read_answer(other, FRAME_LOST), sizeof lost);
	ck_assert_uint_eq(lost.count, 0);
	ck_assert_uint_eq(lost.perhaps, 4);
	tracer->operations->end(tracer, "it was destroyed");
	connection_send(connection);
	ck_assert_str_eq(read_answer(other, FRAME_ENDED), "it was destroyed");
	connection_free(connection);
	close(other);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		frames_come_in_pieces,
		what_is_no_frame_ends_the_connection,
		memory_follows_what_has_arrived,
		frames_go_out_whole_and_in_order,
		every_wrong_argument_is_a_badarg,
		nesting_is_a_system_limit,
		the_tracers_own_program_is_not_traced,
		values_are_those_of_trace,
		system_events_have_their_least,
		gates_open_while_somebody_asks,
		flags_that_programs_set_are_found,
		one_program_has_flags_of_its_own,
		specifications_of_messages_stand_in_the_arena,
		there_are_127_sessions,
		sessions_end_with_their_connection,
		hello_comes_first,
		a_slow_client_loses_and_is_told_how_many,
	};
	return unit_suite_of("protocol", tests, sizeof tests / sizeof *tests, 30);
}
