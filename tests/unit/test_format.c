/* SPDX-License-Identifier: MIT */
/* test_format.c: how events and bytes are shown: text, JSON, Erlang terms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_tree.h>

#include "collector/format/format.h"
#include "collector/format/report.h"
#include "synthetic.h"
#include "unit.h"

static const struct synthetic_process first = {1, 100, 101, 10};

/* What is in an output that only gathers, as a string. */
static const char *gathered(struct output *output)
{
	output_byte(output, 0);
	output->length--;
	return output->text;
}

static void safe_is(const char *bytes, size_t length, char quote, const char *wanted)
{
	struct output output;
	output_begin(&output, -1);
	output_safe(&output, bytes, length, quote);
	ck_assert_str_eq(gathered(&output), wanted);
	output_end(&output);
}

START_TEST(no_control_character_reaches_a_terminal)
{
	safe_is("a\033[31mb\r\n\t\0c", 12, 0, "a\\x1b[31mb\\r\\n\\t\\x00c");
	safe_is("say \"hi\"\\", 9, '"', "say \\\"hi\\\"\\\\");
	safe_is("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82", 15, 0,
		"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82");
	safe_is("\xc2\x9b"
		"31m",
		5, 0, "\\xc2\\x9b31m");                   /* C1 control */
	safe_is("\xe2\x80\xae", 3, 0, "\\xe2\\x80\\xae"); /* right-to-left override */
	safe_is("\x7f\xff\xc3", 3, 0, "\\x7f\\xff\\xc3");
}
END_TEST

START_TEST(utf8_is_recognised_exactly)
{
	uint32_t code;
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"a", 1, &code), 1);
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xc3\xbc", 2, &code), 2);
	ck_assert_uint_eq(code, 0xfc);
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xc3\xbc", 1, &code), 0);         /* cut */
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xc0\xaf", 2, &code), 0);         /* overlong */
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xe0\x80\xaf", 3, &code), 0);     /* overlong */
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xed\xa0\x80", 3, &code), 0);     /* surrogate */
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\xf4\x90\x80\x80", 4, &code), 0); /* beyond the last */
	ck_assert_uint_eq(utf8_sequence((const uint8_t *)"\x80", 1, &code), 0);
}
END_TEST

/* The inverse of output_reversible(), as doc/FORMATS.md tells it. */
static size_t reversed(const char *text, size_t length, uint8_t *bytes)
{
	size_t count = 0;
	for (size_t i = 0; i < length; i++) {
		if (text[i] != '\\') {
			bytes[count++] = (uint8_t)text[i];
		} else if (text[i + 1] == '\\') {
			bytes[count++] = '\\';
			i++;
		} else {
			char digits[3] = {text[i + 2], text[i + 3], 0};
			bytes[count++] = (uint8_t)strtoul(digits, NULL, 16);
			i += 3;
		}
	}
	return count;
}

START_TEST(json_strings_are_valid_and_reversible_whatever_the_bytes)
{
	srand(3);
	for (int round = 0; round < 3000; round++) {
		uint8_t bytes[40], back[sizeof bytes];
		size_t length = (size_t)rand() % sizeof bytes;
		for (size_t i = 0; i < length; i++)
			bytes[i] = rand() % 4 ? (uint8_t)rand() : (uint8_t) "\\x4\"\n\0\xc3\xbc"[rand() % 8];
		struct output output;
		char error[200];
		output_begin(&output, -1);
		struct json *json = json_new(&output);
		json_begin(json);
		json_key(json, "bytes");
		json_bytes(json, bytes, length);
		json_end(json);
		json_end_line(json);
		json_free(json);
		yajl_val tree = yajl_tree_parse(gathered(&output), error, sizeof error);
		ck_assert_msg(tree != NULL, "%s: %s", output.text, error);
		static const char *const path[] = {"bytes", NULL};
		const char *text = YAJL_GET_STRING(yajl_tree_get(tree, (const char **)path, yajl_t_string));
		/* The parser gives strings that end at a zero byte. */
		if (!memchr(bytes, 0, length)) {
			ck_assert_uint_eq(reversed(text, strlen(text), back), length);
			ck_assert_int_eq(memcmp(back, bytes, length), 0);
		}
		yajl_tree_free(tree);
		output_end(&output);
	}
}
END_TEST

/* ---- events ------------------------------------------------------------ */

struct printed {
	struct output output;
	struct trace *trace;
	struct names *names;
};

/* Prints all events of the streams but those about the recording. */
static const char *print(struct printed *printed, struct synthetic *streams, unsigned count, format_function *function,
			 int timestamps)
{
	printed->trace = synthetic_open(streams, count);
	printed->names = names_new(printed->trace);
	output_begin(&printed->output, -1);
	struct formatter formatter = {
		.trace = printed->trace,
		.names = printed->names,
		.output = &printed->output,
		.json = json_new(&printed->output),
		.causes = causes_new(),
		.timestamps = timestamps,
	};
	struct merge *merge = merge_start(printed->trace);
	struct trace_event event;
	while (merge_next(merge, &event) == 1)
		if (!event_is_about_recording(event.view.id))
			function(&formatter, &event);
	merge_end(merge);
	json_free(formatter.json);
	causes_free(formatter.causes);
	return gathered(&printed->output);
}

static void printed_end(struct printed *printed)
{
	output_end(&printed->output);
	names_free(printed->names);
	trace_close(printed->trace);
}

static void prints(struct synthetic *streams, unsigned count, format_function *function, const char *wanted)
{
	struct printed printed;
	ck_assert_str_eq(print(&printed, streams, count, function, 0), wanted);
	printed_end(&printed);
}

static void tell_hook(struct synthetic *stream, uint32_t hook, uint32_t arity, const char *name)
{
	const struct lorg_event_HOOK fields = {.hook = hook, .arity = arity, .flags = hook << 16};
	const struct packet_bytes texts[] = {packet_text(name), packet_text("libc.so.6")};
	synthetic_event(stream, LORG_EVENT_HOOK, stream->last, &fields, texts, 2);
}

static void begin_streams(struct synthetic *streams)
{
	synthetic_clock(&streams[0]);
	tell_hook(&streams[0], 1, 3, "read");
	tell_hook(&streams[0], 2, 3, "write");
	tell_hook(&streams[0], 3, 3, "poll");
	synthetic_packet(&streams[1], first, 1000);
}

static void tell_send(struct synthetic *stream, uint64_t tick, uint64_t bytes, const void *message, size_t length)
{
	const struct lorg_event_SEND fields = {.entry = tick - 5, .object = 4, .channel = 9, .bytes = bytes, .hook = 2};
	const struct packet_bytes texts[] = {{NULL, 0}, {message, length}};
	synthetic_event(stream, LORG_EVENT_SEND, tick, &fields, texts, 2);
}

static void tell_receive(struct synthetic *stream, uint64_t tick, uint64_t bytes, uint32_t flags, const void *message,
			 size_t length)
{
	const struct lorg_event_RECEIVE fields = {
		.since = tick - 5, .object = 4, .channel = 9, .bytes = bytes, .flags = flags, .hook = 1};
	const struct packet_bytes texts[] = {{NULL, 0}, {message, length}};
	synthetic_event(stream, LORG_EVENT_RECEIVE, tick, &fields, texts, 2);
}

static void all_messages(struct synthetic *streams)
{
	begin_streams(streams);
	SYNTHETIC_EVENT(&streams[1], OPEN, 1000, .fd = 4, .driver = LORG_DRIVER_PIPE, .from = -1, .hook = 2);
	tell_send(&streams[1], 1010, 5, "hi \"\n", 5);
	tell_send(&streams[1], 1020, 100, "\1\2\377", 3);
	tell_receive(&streams[1], 1030, 5, 0, "hi \"\n", 5);
	tell_receive(&streams[1], 1040, 0, LORG_MESSAGE_EOF, NULL, 0);
	SYNTHETIC_EVENT(&streams[1], TIMEOUT, 1050, .since = 1045, .hook = 3);
	SYNTHETIC_EVENT(&streams[1], CLOSED, 1060, .fd = 4, .driver = LORG_DRIVER_PIPE, .hook = 2);
}

START_TEST(messages_as_erlang_terms)
{
	static struct synthetic streams[2];
	all_messages(streams);
	prints(streams, 2, format_erlang,
	       "{trace,#Port<100.4.0>,open,<100.101.0>,pipe}\n"
	       "{trace,#Port<100.4.0>,getting_linked,<100.101.0>}\n"
	       "{trace,<100.101.0>,link,#Port<100.4.0>}\n"
	       "{trace,<100.101.0>,send,<<\"hi \\\"\\n\">>,#Port<100.4.0>}\n"
	       "{trace,<100.101.0>,send,{cut,<<1,2,255>>,100},#Port<100.4.0>}\n"
	       "{trace,<100.101.0>,'receive',<<\"hi \\\"\\n\">>}\n"
	       "{trace,<100.101.0>,'receive',eof}\n"
	       "{trace,<100.101.0>,'receive',timeout}\n"
	       "{trace,#Port<100.4.0>,closed,normal}\n"
	       "{trace,<100.101.0>,getting_unlinked,#Port<100.4.0>}\n");
}
END_TEST

/* A port is linked to who opened it, whoever closes it; an inherited one to its program's first thread. */
START_TEST(ports_are_linked_to_their_owners)
{
	static struct synthetic streams[3];
	begin_streams(streams);
	SYNTHETIC_EVENT(&streams[1], OPEN, 1000, .fd = 4, .driver = LORG_DRIVER_PIPE, .from = -1, .hook = 2);
	SYNTHETIC_EVENT(&streams[1], OPEN, 1010, .fd = 0, .driver = LORG_DRIVER_TTY, .from = -1, .hook = UINT32_MAX);
	synthetic_packet(&streams[2], (struct synthetic_process){1, 100, 102, 1}, 1020);
	SYNTHETIC_EVENT(&streams[2], CLOSED, 1030, .fd = 4, .driver = LORG_DRIVER_PIPE, .hook = 2);
	prints(streams, 3, format_erlang,
	       "{trace,#Port<100.4.0>,open,<100.101.0>,pipe}\n"
	       "{trace,#Port<100.4.0>,getting_linked,<100.101.0>}\n"
	       "{trace,<100.101.0>,link,#Port<100.4.0>}\n"
	       "{trace,#Port<100.0.0>,open,<100.100.0>,tty}\n"
	       "{trace,#Port<100.0.0>,getting_linked,<100.100.0>}\n"
	       "{trace,<100.100.0>,link,#Port<100.0.0>}\n"
	       "{trace,#Port<100.4.0>,closed,normal}\n"
	       "{trace,<100.101.0>,getting_unlinked,#Port<100.4.0>}\n");
}
END_TEST

START_TEST(messages_as_text)
{
	static struct synthetic streams[2];
	all_messages(streams);
	prints(streams, 2, format_text,
	       "     0.000001000 <100.101>           open            #Port<100.4.0> pipe by write\n"
	       "     0.000001005 <100.101>           send            #Port<100.4.0> pipe 5 bytes \"hi \\\"\\n\" by write\n"
	       "     0.000001015 <100.101>           send            #Port<100.4.0> pipe 100 bytes \"\\x01\\x02\\xff\"...+97 by write\n"
	       "     0.000001030 <100.101>           receive         #Port<100.4.0> pipe 5 bytes \"hi \\\"\\n\" by read after 0.000000005 s\n"
	       "     0.000001040 <100.101>           receive         #Port<100.4.0> pipe eof by read after 0.000000005 s\n"
	       "     0.000001050 <100.101>           receive         timeout by poll after 0.000000005 s\n"
	       "     0.000001060 <100.101>           closed          #Port<100.4.0> pipe normal\n");
}
END_TEST

START_TEST(messages_as_json)
{
	static struct synthetic streams[2];
	all_messages(streams);
	prints(streams, 2, format_json,
	       "{\"tag\":\"open\",\"process\":\"<100.101>\",\"time\":1000,\"hlc\":\"0000000000010000\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"function\":\"write\"}\n"
	       "{\"tag\":\"send\",\"process\":\"<100.101>\",\"time\":1005,\"hlc\":\"0000000000010001\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"bytes\":5,\"msg\":\"hi \\\"\\n\","
	       "\"function\":\"write\"}\n"
	       "{\"tag\":\"send\",\"process\":\"<100.101>\",\"time\":1015,\"hlc\":\"0000000000010002\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"bytes\":100,"
	       "\"msg\":\"\\u0001\\u0002\\\\xff\",\"cut\":true,\"function\":\"write\"}\n"
	       "{\"tag\":\"receive\",\"process\":\"<100.101>\",\"time\":1030,\"hlc\":\"0000000000010003\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"bytes\":5,\"msg\":\"hi \\\"\\n\","
	       "\"function\":\"read\",\"cause\":[\"0000000000010001\",\"0000000000010002\"]}\n"
	       "{\"tag\":\"receive\",\"process\":\"<100.101>\",\"time\":1040,\"hlc\":\"0000000000010004\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"bytes\":0,\"msg\":null,\"eof\":true,"
	       "\"function\":\"read\",\"cause\":[]}\n"
	       "{\"tag\":\"receive\",\"process\":\"<100.101>\",\"time\":1050,\"hlc\":\"0000000000010005\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"timeout\":true,\"msg\":null,\"function\":\"poll\",\"waited\":5}\n"
	       "{\"tag\":\"closed\",\"process\":\"<100.101>\",\"time\":1060,\"hlc\":\"0000000000010006\",\"program\":100,\"thread\":101,"
	       "\"session\":\"0\",\"port\":\"#Port<100.4.0>\",\"fd\":4,\"driver\":\"pipe\",\"reason\":0}\n");
}
END_TEST

static void all_processes(struct synthetic *streams)
{
	begin_streams(streams);
	const struct packet_bytes program[] = {packet_text("/bin/l's"), {"ls\0-l\0", 6}};
	const struct lorg_event_SPAWN spawn = {
		.entry = 1001, .how = LORG_BIRTH_POSIX_SPAWN, .child_pid = 300, .child_tid = 300};
	synthetic_event(&streams[1], LORG_EVENT_SPAWN, 1002, &spawn, program, 2);
	const struct lorg_event_EXEC exec = {.error = 2};
	synthetic_event(&streams[1], LORG_EVENT_EXEC, 1010, &exec, program, 2);
	synthetic_event(&streams[1], LORG_EVENT_EXEC_FAILED, 1020, &exec, program, 2);
	const struct packet_bytes name[] = {packet_text("worker 1"), {NULL, 0}};
	const struct lorg_event_REGISTER named = {.kind = 0, .tid = 101};
	synthetic_event(&streams[1], LORG_EVENT_REGISTER, 1030, &named, name, 2);
	SYNTHETIC_EVENT(&streams[1], SIGNAL_SENT, 1040, .entry = 1040, .signal = 15, .to_pid = 300, .hook = 2);
	SYNTHETIC_EVENT(&streams[1], SIGNAL_RECEIVED, 1050, .signal = 36, .from_pid = 300);
	SYNTHETIC_EVENT(&streams[1], OUT, 1060, .hook = 3, .timeout_ns = -1);
	SYNTHETIC_EVENT(&streams[1], IN, 1070, .hook = 3, .since = 1060, .ending = 1);
	SYNTHETIC_EVENT(&streams[1], EXIT, 1080, .program = 1, .reason = LORG_REASON_SIGNAL, .status = 11);
}

START_TEST(processes_as_erlang_terms)
{
	static struct synthetic streams[2];
	struct printed printed;
	all_processes(streams);
	prints(streams, 2, format_erlang,
	       "{trace,<100.101.0>,spawn,<300.300.0>,{\"/bin/l's\",main,[\"ls\",\"-l\"]}}\n"
	       "{trace,<100.101.0>,exec,{\"/bin/l's\",[\"ls\",\"-l\"]}}\n"
	       "{trace,<100.101.0>,exec_failed,{\"/bin/l's\",enoent}}\n"
	       "{trace,<100.101.0>,register,'worker 1'}\n"
	       "{trace,<100.101.0>,send,{signal,sigterm},<300.300.0>}\n"
	       "{trace,<100.101.0>,'receive',{signal,'sigrtmin+2'}}\n"
	       "{trace,<100.101.0>,out,{'libc.so.6',poll,3}}\n"
	       "{trace,<100.101.0>,in_exiting,{'libc.so.6',poll,3}}\n"
	       "{trace,<100.101.0>,exit,{signal,sigsegv}}\n");
	for (unsigned i = 0; i < 2; i++)
		synthetic_free(&streams[i]);
	begin_streams(streams);
	SYNTHETIC_EVENT(&streams[1], EXIT, 1080, .program = 1, .reason = LORG_REASON_STATUS, .status = 3);
	/* The number counts all events, also the four of stream-0. */
	ck_assert_str_eq(print(&printed, streams, 2, format_erlang, 1), "{trace_ts,<100.101.0>,exit,3,{1080,5}}\n");
	printed_end(&printed);
}
END_TEST

START_TEST(processes_as_text)
{
	static struct synthetic streams[2];
	all_processes(streams);
	prints(streams, 2, format_text,
	       "     0.000001001 <100.101>           spawn           <300> posix_spawn /bin/l's [\"ls\", \"-l\"]\n"
	       "     0.000001010 <100.101>           exec            /bin/l's [\"ls\", \"-l\"]\n"
	       "     0.000001020 <100.101>           exec_failed     /bin/l's [\"ls\", \"-l\"] failed: ENOENT\n"
	       "     0.000001030 <100.101>           register        \"worker 1\"\n"
	       "     0.000001040 <100.101>           signal          SIGTERM to <300> by write\n"
	       "     0.000001050 <100.101>           signal          SIGRTMIN+2 from <300> by handler\n"
	       "     0.000001060 <100.101>           out             poll on 0\n"
	       "     0.000001070 <100.101>           in_exiting      poll on 0 after 0.000000010 s\n"
	       "     0.000001080 <100.101>           exit            SIGSEGV, program\n");
}
END_TEST

static void tell_call(struct synthetic *stream, uint16_t id, uint64_t tick, uint32_t before, uint32_t hook, uint32_t flags,
		      const char *text)
{
	const uint32_t length = (uint32_t)strlen(text);
	const struct lorg_event_SENT fields = {.before = before,
					       .port = 4 | 2 << 16,
					       .caller = 0,
					       .channel = 9,
					       .bytes = length,
					       .requested = 100,
					       .hook_flags = hook | flags << 16};
	const struct packet_bytes bytes[] = {packet_text(text)};
	synthetic_event(stream, id, tick, &fields, bytes, 1);
}

/* The short forms print what the long ones did, line by line. */
START_TEST(calls_told_at_their_return)
{
	static struct synthetic streams[2];
	begin_streams(streams);
	const uint32_t running = LORG_MESSAGE_RUNNING;
	SYNTHETIC_EVENT(&streams[1], OPEN, 1000, .fd = 4, .generation = 2, .driver = LORG_DRIVER_PIPE, .from = -1, .hook = 2);
	tell_call(&streams[1], LORG_EVENT_SENT, 1020, 10, 2, running, "hi");
	tell_call(&streams[1], LORG_EVENT_SENT, 1030, 5, 2, 0, "quick");
	tell_call(&streams[1], LORG_EVENT_RECEIVED, 1050, 15, 1, running | LORG_MESSAGE_OUT_ENDING, "hi");
	tell_call(&streams[1], LORG_EVENT_RECEIVED, 1060, 5, 1, running | LORG_MESSAGE_EOF | LORG_MESSAGE_IN_ENDING, "");
	SYNTHETIC_EVENT(&streams[1], WAITED, 1090, .entry = 1070, .object = 5, .timeout_ns = 20, .hook = 3, .ending = 2, .error = 4);
	SYNTHETIC_EVENT(&streams[1], WAIT_OPEN, 1095, .entry = 1092, .object = 5, .timeout_ns = -1, .hook = 3, .ending = 1);
	SYNTHETIC_EVENT(&streams[1], OPEN_CALL, 1095, .entry = 1092, .object = 5, .hook = 3);
	prints(streams, 2, format_text,
	       "     0.000001000 <100.101>           open            #Port<100.4.2> pipe by write\n"
	       "     0.000001010 <100.101>           send            #Port<100.4.2> pipe 2 bytes \"hi\" by write\n"
	       "     0.000001010 <100.101>           out             write on 4\n"
	       "     0.000001020 <100.101>           in              write on 4 after 0.000000010 s\n"
	       "     0.000001025 <100.101>           send            #Port<100.4.2> pipe 5 bytes \"quick\" by write\n"
	       "     0.000001035 <100.101>           out_exiting     read on 4\n"
	       "     0.000001050 <100.101>           in              read on 4 after 0.000000015 s\n"
	       "     0.000001050 <100.101>           receive         #Port<100.4.2> pipe 2 bytes \"hi\" by read after 0.000000015 s\n"
	       "     0.000001055 <100.101>           out             read on 4\n"
	       "     0.000001060 <100.101>           in_exiting      read on 4 after 0.000000005 s\n"
	       "     0.000001060 <100.101>           receive         #Port<100.4.2> pipe eof by read after 0.000000005 s\n"
	       "     0.000001070 <100.101>           out             poll on 5 for at most 0.000000020 s\n"
	       "     0.000001090 <100.101>           in_exiting      poll on 5 after 0.000000020 s failed: EINTR\n"
	       "     0.000001092 <100.101>           out_exiting     poll on 5\n"
	       "     0.000001092 <100.101>           open_call       poll on 5 never returned\n");
}
END_TEST

START_TEST(functions_named_by_the_compiler)
{
	static struct synthetic streams[2];
	begin_streams(streams);
	const struct lorg_event_FUNCTION function = {.function = 7};
	const struct packet_bytes texts[] = {packet_text("_ZN3abc3defEv"), packet_text("abc.cc")};
	synthetic_event(&streams[1], LORG_EVENT_FUNCTION, 1000, &function, texts, 2);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER_LINE, 1010, 7, 42);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 1020, 8, 0);
	prints(streams, 2, format_text,
	       "     0.000001010 <100.101>           enter           ?:abc::def() abc.cc:42\n"
	       "     0.000001020 <100.101>           enter           ?:function-8\n");
}
END_TEST

/* How many lines an event with all fields zero is shown as. */
static unsigned lines_of(uint32_t id)
{
	return id == LORG_EVENT_WAITED ? 2 : !event_is_about_recording(id);
}

START_TEST(every_event_prints_as_valid_json)
{
	static struct synthetic streams[2];
	static const uint8_t zero[512];
	struct printed printed;
	char error[200];
	unsigned lines = 0, made = 0;
	begin_streams(streams);
	for (uint16_t id = 1; id < LORG_EVENT_LAST; id++) {
		if (!event_description(id))
			continue;
		synthetic_event(&streams[1], id, 1000 + id, zero, NULL, 0);
		made += lines_of(id);
	}
	const char *at = print(&printed, streams, 2, format_json, 0);
	while (*at) {
		const char *end = strchr(at, '\n');
		char *line = strndup(at, (size_t)(end - at));
		yajl_val tree = yajl_tree_parse(line, error, sizeof error);
		ck_assert_msg(tree != NULL, "%s: %s", line, error);
		static const char *const always[] = {"tag", "process", "time", "hlc", "program", "thread", "session"};
		for (size_t i = 0; i < sizeof always / sizeof *always; i++)
			ck_assert_ptr_nonnull(yajl_tree_get(tree, (const char *[]){always[i], NULL}, yajl_t_any));
		for (size_t i = 0; i < YAJL_GET_OBJECT(tree)->len; i++) /* no key twice */
			for (size_t n = 0; n < i; n++)
				ck_assert_msg(strcmp(YAJL_GET_OBJECT(tree)->keys[i], YAJL_GET_OBJECT(tree)->keys[n]) != 0,
					      "%s", line);
		yajl_tree_free(tree);
		free(line);
		lines++;
		at = end + 1;
	}
	ck_assert_uint_eq(lines, made);
	printed_end(&printed);
}
END_TEST

START_TEST(every_event_prints_as_one_line)
{
	static format_function *const functions[] = {format_text, format_erlang};
	for (unsigned f = 0; f < 2; f++) {
		static struct synthetic streams[2];
		static const uint8_t zero[512];
		struct printed printed;
		unsigned lines = 0, made = 0;
		for (unsigned i = 0; i < 2; i++)
			synthetic_free(&streams[i]);
		begin_streams(streams);
		for (uint16_t id = 1; id < LORG_EVENT_LAST; id++) {
			if (!event_description(id))
				continue;
			synthetic_event(&streams[1], id, 1000 + id, zero, NULL, 0);
			made += lines_of(id);
		}
		for (const char *at = print(&printed, streams, 2, functions[f], 0); (at = strchr(at, '\n')); at++)
			lines++;
		if (functions[f] == format_erlang) /* an opening is three messages, a closing two */
			made += 3;
		ck_assert_uint_eq(lines, made);
		printed_end(&printed);
	}
}
END_TEST

/* ---- names ------------------------------------------------------------- */

static void address_is(const void *address, size_t length, const char *wanted)
{
	char text[128];
	size_t shown = names_socket_address(address, length, text, sizeof text);
	ck_assert_uint_lt(shown, sizeof text);
	text[shown] = 0;
	ck_assert_str_eq(text, wanted);
}

START_TEST(socket_addresses)
{
	address_is("\2\0\0\120\177\0\0\1\0\0\0\0\0\0\0\0", 16, "127.0.0.1:80");
	address_is("\12\0\1\273\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0", 28, "[::1]:443");
	address_is("\1\0/run/x.sock\0", 14, "/run/x.sock");
	address_is("\1\0\0hidden", 9, "@hidden");
	address_is("\1\0", 2, "unnamed");
	address_is("\2\0\0", 3, "address family 2"); /* too short */
	address_is("", 0, "");
}
END_TEST

START_TEST(names_of_numbers)
{
	char buffer[24];
	ck_assert_str_eq(names_signal(9, buffer), "SIGKILL");
	ck_assert_str_eq(names_signal(34, buffer), "SIGRTMIN");
	ck_assert_str_eq(names_signal(4000000000u, buffer), "signal 4000000000");
	ck_assert_str_eq(names_error(2, buffer), "ENOENT");
	ck_assert_str_eq(names_error(4000000000u, buffer), "error 4000000000");
	ck_assert_str_eq(names_driver(8), "pipe");
	ck_assert_str_eq(names_driver(99), "unknown");
	ck_assert_str_eq(names_birth(99), "unknown");
	char *name = symbol_demangle("_ZNSt6vectorIiSaIiEE9push_backERKi");
	ck_assert_str_eq(name, "std::vector<int, std::allocator<int> >::push_back(int const&)");
	free(name);
	name = symbol_demangle("_Znonsense");
	ck_assert_str_eq(name, "_Znonsense");
	free(name);
}
END_TEST

/* ---- reports ----------------------------------------------------------- */

START_TEST(a_report_is_one_valid_object)
{
	static struct synthetic streams[2];
	char error[200];
	all_messages(streams);
	const struct lorg_event_FUNCTION function = {.function = 7};
	const struct packet_bytes texts[] = {packet_text("work"), packet_text("w.c")};
	synthetic_event(&streams[1], LORG_EVENT_FUNCTION, 2000, &function, texts, 2);
	synthetic_compact(&streams[1], LORG_EVENT_ENTER, 2000, 7, 0);
	synthetic_compact(&streams[1], LORG_EVENT_EXIT_FUNCTION, 2500, 7, 0);
	struct trace *trace = synthetic_open(streams, 2);
	struct names *names = names_new(trace);
	struct profile *profile = profile_make(trace);
	struct report *report = report_make(trace, profile, names);
	struct output output;
	output_begin(&output, -1);
	ck_assert_int_eq(report_json(&output, report, names), 0);
	yajl_val tree = yajl_tree_parse(gathered(&output), error, sizeof error);
	ck_assert_msg(tree != NULL, "%s", error);
	static const char *const keys[] = {"functions", "programs", "threads", "ports", "waits", "lost", "coverage"};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		ck_assert_ptr_nonnull(yajl_tree_get(tree, (const char *[]){keys[i], NULL}, yajl_t_any));
	ck_assert_ptr_nonnull(strstr(
		output.text, "{\"function\":\"work\",\"module\":\"?\",\"entries\":1,\"total_ns\":500,\"self_ns\":500}"));
	yajl_tree_free(tree);
	output.length = 0;
	report_text(&output, report, names, 0);
	ck_assert_ptr_nonnull(strstr(gathered(&output), "?:work"));
	ck_assert_ptr_nonnull(strstr(output.text, "coverage: traced 1 program, 1 thread, 10 events; lost 0"));
	output_end(&output);
	report_free(report);
	profile_free(profile);
	names_free(names);
	trace_close(trace);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *tests[] = {
		no_control_character_reaches_a_terminal,
		utf8_is_recognised_exactly,
		json_strings_are_valid_and_reversible_whatever_the_bytes,
		messages_as_erlang_terms,
		ports_are_linked_to_their_owners,
		messages_as_text,
		messages_as_json,
		processes_as_erlang_terms,
		processes_as_text,
		functions_named_by_the_compiler,
		calls_told_at_their_return,
		every_event_prints_as_valid_json,
		every_event_prints_as_one_line,
		socket_addresses,
		names_of_numbers,
		a_report_is_one_valid_object,
	};
	return unit_suite_of("format", tests, sizeof tests / sizeof *tests, 60);
}
