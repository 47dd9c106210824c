/* SPDX-License-Identifier: MIT */
/* format_json.c: one object a line, with the fields of doc/DESIGN.md, section 9. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <lorg/plan.h>

#include "collector/format/format.h"
#include "collector/format/json_keys.h"
#include "collector/format/numbers.h"
#include "collector/format/values.h"
#include "collector/read/profile.h"

static struct trace_text text_field(const struct event_view *view, const char *field)
{
	struct trace_text text;
	text.bytes = event_bytes_named(view, field, &text.length);
	return text;
}

static void key_true(struct json *json, const char *key, int truth)
{
	if (!truth)
		return;
	json_key(json, key);
	json_boolean(json, 1);
}

/* Appends a number in decimal; returns the end. */
static char *decimal(char *to, uint32_t number)
{
	char digits[10];
	size_t at = sizeof digits;
	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	memcpy(to, digits + at, sizeof digits - at);
	return to + (sizeof digits - at);
}

static void key_process(struct json *json, const char *key, uint32_t pid, uint32_t tid, uint32_t runtime_process)
{
	char text[40], *end = text;
	*end++ = '<';
	end = decimal(end, pid);
	*end++ = '.';
	end = decimal(end, tid);
	if (runtime_process) {
		*end++ = '.';
		end = decimal(end, runtime_process);
	}
	*end++ = '>';
	*end = 0;
	key_text(json, key, text);
}

static const char *hlc_text(uint64_t hlc, char text[17])
{
	for (int digit = 15; digit >= 0; digit--, hlc >>= 4)
		text[digit] = "0123456789abcdef"[hlc & 15];
	text[16] = 0;
	return text;
}

/* "<PID>": all threads of a program. */
static void key_program(struct json *json, const char *key, int64_t pid)
{
	char text[32];
	snprintf(text, sizeof text, "<%" PRId64 ">", pid);
	key_text(json, key, text);
}

static void key_hook(struct formatter *formatter, const char *key, uint32_t hook)
{
	struct hook_name name;
	names_hook(formatter->names, hook, &name);
	key_text(formatter->json, key, name.name);
}

static void key_error(struct json *json, uint32_t error)
{
	char buffer[24];
	json_key(json, "error");
	if (error)
		json_text(json, names_error(error, buffer));
	else
		json_null(json);
}

static void key_address(struct json *json, const char *key, struct trace_text address)
{
	char text[256];
	if (address.length == 0)
		return;
	size_t length = names_socket_address(address.bytes, address.length, text, sizeof text);
	json_key(json, key);
	json_bytes(json, text, length);
}

static void key_arguments(struct json *json, const char *key, struct trace_text argv)
{
	struct trace_text argument;
	json_key(json, key);
	json_begin_list(json);
	while (next_argument(&argv, &argument))
		json_bytes(json, argument.bytes, argument.length);
	json_end_list(json);
}

static void always(struct formatter *formatter, const char *tag, const struct trace_process *process, uint64_t time,
		   uint64_t hlc, uint32_t session)
{
	struct json *json = formatter->json;
	char text[24];
	uint32_t pid = process ? process->pid : 0, tid = process ? process->tid : 0;
	json_begin(json);
	key_text(json, "tag", tag);
	key_process(json, "process", pid, tid, process ? process->runtime_process : 0);
	key_number(json, "time", time);
	key_text(json, "hlc", hlc_text(hlc, text));
	key_number(json, "program", pid);
	key_number(json, "thread", tid);
	key_bytes(json, "session", session_name(formatter->trace, session, text));
}

/* Where something is: module, function, and what debug information knows. */
static void keys_place(struct json *json, const struct place *where, uint32_t line)
{
	key_text(json, "module", where->module);
	key_text(json, "function", where->function);
	if (where->raw_name[0] && strcmp(where->raw_name, where->function) != 0)
		key_text(json, "symbol", where->raw_name);
	if (where->source)
		key_text(json, "file", where->source);
	if (line || where->line)
		key_number(json, "line", line ? line : (uint64_t)where->line);
}

/* "module:function+0x10" in one string. */
static void key_location(struct formatter *formatter, const char *key, const struct place *where)
{
	struct output text;
	output_begin(&text, -1);
	output_printf(&text, "%s:%s", where->module, where->function);
	if (where->named && where->offset)
		output_printf(&text, "+0x%" PRIx64, where->offset);
	json_key(formatter->json, key);
	json_bytes(formatter->json, text.text, text.length);
	output_end(&text);
}

static void key_caller(struct formatter *formatter, const struct trace_event *event, uint64_t address)
{
	if (address)
		key_location(formatter, "caller",
			     names_caller(formatter->names, event->process->image, address, event->view.tick, 0));
}

static void keys_port(struct formatter *formatter, const struct trace_event *event, uint64_t object, uint32_t generation,
		      struct trace_text peer)
{
	struct json *json = formatter->json;
	char text[64];
	snprintf(text, sizeof text, "#Port<%u.%" PRIu64 ".%u>", event->process->pid, object, generation);
	key_text(json, "port", text);
	key_number(json, "fd", object);
	const struct trace_port *port = trace_port(formatter->trace, event->process->image, (int32_t)object, generation);
	key_text(json, "driver", port ? names_driver(port->driver) : "unknown");
	if (peer.length == 0 && port)
		peer = port->peer;
	key_address(json, "peer", peer);
}

static void key_reason(struct json *json, uint32_t reason, int32_t status)
{
	json_key(json, "reason");
	switch (reason) {
	case LORG_REASON_NORMAL: json_number(json, 0); break;
	case LORG_REASON_STATUS: json_signed(json, status); break;
	case LORG_REASON_SIGNAL:
		json_begin(json);
		json_key(json, "signal");
		json_signed(json, status);
		json_end(json);
		break;
	case LORG_REASON_KILLED: json_text(json, "killed"); break;
	case LORG_REASON_EXEC: json_text(json, "exec"); break;
	default: json_text(json, "unknown"); break;
	}
}

/* The same from what wait(2) gave; -1: it was not asked for. */
static void key_ending(struct json *json, int32_t status)
{
	if (status == -1)
		return;
	if (WIFSIGNALED(status))
		key_reason(json, LORG_REASON_SIGNAL, WTERMSIG(status));
	else
		key_reason(json, WEXITSTATUS(status) ? LORG_REASON_STATUS : LORG_REASON_NORMAL, WEXITSTATUS(status));
}

/* ---- events ------------------------------------------------------------ */

static void key_number_of_arguments(struct json *json, int arity)
{
	json_key(json, "arity");
	if (arity >= 0)
		json_number(json, (uint64_t)arity);
	else
		json_null(json);
}

static void key_arity(struct json *json, const struct place *where)
{
	key_number_of_arguments(json, where->arity);
}

static void json_function(struct formatter *formatter, const struct trace_event *event, uint32_t slot, uint32_t line)
{
	const struct trace_image *image = event->process->image;
	const struct place *where = names_function(formatter->names, image, slot, event->view.effective);
	keys_place(formatter->json, where, line);
	key_arity(formatter->json, where);
}

/* What {message, V} of a match specification has added. */
static void json_added(struct formatter *formatter, const struct trace_event *event, struct trace_text term)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	if (!term.length)
		return;
	json_key(formatter->json, "message");
	values_json(&context, term.bytes, term.length);
}

static void json_display(struct formatter *formatter, const struct trace_event *event)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	struct trace_text terms = text_field(&event->view, "terms");
	json_key(formatter->json, "term");
	values_json(&context, terms.bytes, terms.length);
}

/* What a hooked function was called with. */
static void json_call(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CALL, call);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	const struct place *where = names_function(formatter->names, event->process->image, call.function, event->view.effective);
	keys_place(formatter->json, where, 0);
	key_number_of_arguments(formatter->json, names_call_arity(where->arity, call.session_kind));
	size_t arguments = call.session_kind & LORG_CALL_HAS_MESSAGE ? values_before_last(terms.bytes, terms.length) : terms.length;
	json_key(formatter->json, "args");
	if (call.session_kind & LORG_CALL_NO_ARGUMENTS)
		json_null(formatter->json);
	else
		values_json_list(&context, terms.bytes, arguments);
	json_added(formatter, event, (struct trace_text){terms.bytes + arguments, (uint32_t)(terms.length - arguments)});
	key_caller(formatter, event, call.caller);
}

static void json_return_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_FROM, from);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	char buffer[24];
	json_function(formatter, event, from.function, 0);
	json_key(formatter->json, "value");
	values_json(&context, terms.bytes, terms.length);
	if (from.error)
		key_text(formatter->json, "error", names_error((uint32_t)from.error, buffer));
	if (from.since)
		key_number(formatter->json, "took", trace_duration(formatter->trace, from.since, event->view.tick));
}

static void json_return_to(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_TO, to);
	const struct place *where =
		names_caller(formatter->names, event->process->image, to.address, event->view.tick, PLACE_LINE | PLACE_ARITY);
	keys_place(formatter->json, where, 0);
	key_arity(formatter->json, where);
}

static void json_exception_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXCEPTION_FROM, from);
	struct trace_text what = text_field(&event->view, "what");
	char *type = from.kind == 0 ? names_type(text_field(&event->view, "type")) : NULL;
	json_function(formatter, event, from.function, 0);
	key_text(formatter->json, "class", from.kind == 0 ? "throw" : "exit");
	key_text(formatter->json, "type", type ? type : names_left(from.kind));
	if (what.length)
		key_bytes(formatter->json, "what", what);
	if (from.since)
		key_number(formatter->json, "took", trace_duration(formatter->trace, from.since, event->view.tick));
	free(type);
}

static void json_counters(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, FUNCTION_COUNTERS, counters);
	json_function(formatter, event, counters.function, 0);
	key_number(formatter->json, "count", counters.count);
	if (counters.kind & LORG_KIND_TIME)
		key_number(formatter->json, "time_ns", trace_ticks_ns(formatter->trace, counters.time_ticks));
	if (counters.kind & LORG_KIND_MEMORY)
		key_number(formatter->json, "words", counters.words);
}

static void json_hooked_function(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, HOOKED_FUNCTION, hooked);
	struct json *json = formatter->json;
	json_function(formatter, event, hooked.function, 0);
	key_number(json, "id", hooked.function);
	key_number(json, "offset", hooked.offset);
	key_number(json, "size", hooked.size);
	key_text(json, "tier", hooked.tier == 3 ? "code" : "slots");
	json_key(json, "entry_only");
	json_boolean(json, (hooked.flags & LORG_PLAN_ENTRY_ONLY) != 0);
}

static void json_function_address(struct formatter *formatter, const struct trace_event *event, uint64_t address)
{
	keys_place(formatter->json, names_address(formatter->names, event->process->image, address, event->view.tick, 1), 0);
	json_key(formatter->json, "arity");
	json_null(formatter->json);
}

static void json_exception(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CATCH, caught);
	key_bytes(formatter->json, "type", text_field(&event->view, "type"));
	if (!caught.caller)
		return;
	keys_place(formatter->json,
		   names_caller(formatter->names, event->process->image, caught.caller, event->view.tick, 1), 0);
	json_key(formatter->json, "arity");
	json_null(formatter->json);
}

static void json_spawn(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWN, spawn);
	numbers_spawn(formatter->trace, event, &spawn);
	struct json *json = formatter->json;
	struct trace_text file = text_field(&event->view, "file");
	key_text(json, "how", names_birth(spawn.how));
	if (spawn.how == LORG_BIRTH_THREAD)
		key_process(json, "child", spawn.child_pid ? spawn.child_pid : event->process->pid, spawn.child_tid, 0);
	else
		key_program(json, "child", spawn.child_pid);
	if (spawn.routine)
		key_location(formatter, "entry",
			     names_address(formatter->names, event->process->image, spawn.routine, event->view.tick, 0));
	if (file.length) {
		key_bytes(json, "file", file);
		key_arguments(json, "argv", text_field(&event->view, "argv"));
	}
	key_caller(formatter, event, spawn.caller);
}

static void json_spawned(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWNED, spawned);
	numbers_spawned(formatter->trace, event, &spawned);
	struct trace_text file = text_field(&event->view, "file");
	key_text(formatter->json, "how", names_birth(spawned.how));
	key_process(formatter->json, "parent", spawned.parent_pid, spawned.parent_tid, 0);
	if (file.length) {
		key_bytes(formatter->json, "file", file);
		key_arguments(formatter->json, "argv", text_field(&event->view, "argv"));
	}
	if (spawned.routine)
		key_location(formatter, "entry",
			     names_address(formatter->names, event->process->image, spawned.routine, event->view.tick, 0));
}

static void json_exec(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXEC, exec);
	key_bytes(formatter->json, "file", text_field(&event->view, "file"));
	key_arguments(formatter->json, "argv", text_field(&event->view, "argv"));
	key_error(formatter->json, event->view.id == LORG_EVENT_EXEC_FAILED ? (uint32_t)exec.error : 0);
	key_hook(formatter, "function", exec.hook);
}

static void json_exit(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXIT, gone);
	event_exit(event, &gone);
	key_reason(formatter->json, gone.reason, gone.status);
	key_true(formatter->json, "whole_program", gone.program != 0);
	key_true(formatter->json, "outside", gone.outside != 0);
}

static void json_reaped(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REAPED, reaped);
	numbers_reaped(formatter->trace, event, &reaped);
	if (reaped.tid) {
		key_process(formatter->json, "child", reaped.pid ? reaped.pid : event->process->pid, reaped.tid, 0);
	} else {
		key_program(formatter->json, "child", reaped.pid);
		key_ending(formatter->json, reaped.status);
	}
	key_hook(formatter, "function", reaped.hook);
	if (reaped.since)
		key_number(formatter->json, "waited", trace_duration(formatter->trace, reaped.since, event->view.tick));
}

static void json_register(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REGISTER, named);
	numbers_register(formatter->trace, event, &named);
	static const struct trace_text none;
	struct trace_text name = event_registered(formatter->trace, event);
	if (named.kind == 1)
		keys_port(formatter, event, (uint64_t)(int64_t)named.fd, named.generation, none);
	else if (named.tid && named.tid != event->process->tid)
		key_process(formatter->json, "of", event->process->pid, named.tid, 0);
	if (name.length)
		key_bytes(formatter->json, "name", name);
	else
		key_address(formatter->json, "name", text_field(&event->view, "address"));
}

static void json_link(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LINK, link);
	numbers_link(formatter->trace, event, &link);
	static const struct trace_text none;
	if (link.pid || link.tid)
		key_process(formatter->json, "to", link.pid, link.tid, 0);
	else
		keys_port(formatter, event, (uint64_t)(int64_t)link.fd, link.generation, none);
}

static void json_cause(struct formatter *formatter, const struct trace_event *event)
{
	uint64_t hlc[CAUSE_LISTED];
	char text[24];
	if (!formatter->causes)
		return;
	EVENT_FIELDS(&event->view, RECEIVE, received);
	unsigned count = causes_receive(formatter->causes, &received, hlc);
	json_key(formatter->json, "cause");
	json_begin_list(formatter->json);
	for (unsigned i = 0; i < count; i++) {
		json_text(formatter->json, hlc_text(hlc[i], text));
	}
	json_end_list(formatter->json);
}

static void json_message(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEND, sent);
	struct json *json = formatter->json;
	keys_port(formatter, event, sent.object, sent.generation, text_field(&event->view, "address"));
	key_number(json, "bytes", sent.bytes);
	json_key(json, "msg");
	struct trace_text message = text_field(&event->view, "message");
	if (sent.flags & (LORG_MESSAGE_EOF | LORG_MESSAGE_NOT_COPIED))
		json_null(json);
	else
		json_bytes(json, message.bytes, message.length);
	key_true(json, "eof", sent.flags & LORG_MESSAGE_EOF);
	key_true(json, "peek", sent.flags & LORG_MESSAGE_PEEK);
	key_true(json, "not_copied", sent.flags & LORG_MESSAGE_NOT_COPIED);
	key_true(json, "cut", sent.bytes > message.length && !(sent.flags & (LORG_MESSAGE_EOF | LORG_MESSAGE_NOT_COPIED)));
	if (sent.error)
		key_error(json, (uint32_t)sent.error);
	key_hook(formatter, "function", sent.hook);
	if (event->view.id == LORG_EVENT_RECEIVE)
		json_cause(formatter, event);
	else if (formatter->causes && event->view.id == LORG_EVENT_SEND)
		causes_send(formatter->causes, &sent, event->hlc);
}

static void json_sequence(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEQ_TRACE, told);
	struct json *json = formatter->json;
	struct trace_text message = text_field(&event->view, "message");
	key_text(json, "what", told.kind == 1 ? "send" : "receive");
	key_number(json, "label", told.label);
	key_number(json, "serial", told.serial);
	key_number(json, "previous", told.previous);
	key_process(json, "from", told.from_pid, told.from_tid, 0);
	keys_port(formatter, event, told.object, told.generation, text_field(&event->view, "address"));
	key_number(json, "bytes", told.bytes);
	json_key(json, "msg");
	json_bytes(json, message.bytes, message.length);
	key_true(json, "cut", told.bytes > message.length);
}

static void json_timeout(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, TIMEOUT, timeout);
	key_true(formatter->json, "timeout", 1);
	json_key(formatter->json, "msg");
	json_null(formatter->json);
	key_hook(formatter, "function", timeout.hook);
	if (timeout.since)
		key_number(formatter->json, "waited", trace_duration(formatter->trace, timeout.since, event->view.tick));
}

static void json_signal_sent(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SIGNAL_SENT, sent);
	numbers_signal_sent(formatter->trace, event, &sent);
	char buffer[24];
	key_text(formatter->json, "signal", names_signal(sent.signal, buffer));
	key_number(formatter->json, "number", sent.signal);
	if (sent.target == 1) {
		snprintf(buffer, sizeof buffer, "group %d", sent.to_pid);
		key_text(formatter->json, "to", buffer);
	} else if (sent.target == 2) {
		key_text(formatter->json, "to", "all");
	} else {
		key_process(formatter->json, "to", (uint32_t)sent.to_pid, sent.to_tid ? sent.to_tid : (uint32_t)sent.to_pid,
			    0);
	}
	if (sent.error)
		key_error(formatter->json, (uint32_t)sent.error);
	key_hook(formatter, "function", sent.hook);
}

static void json_signal_received(struct formatter *formatter, const struct trace_event *event)
{
	static const char *const how[] = {"handler", "sigwait", "signalfd"};
	EVENT_FIELDS(&event->view, SIGNAL_RECEIVED, received);
	numbers_signal_received(formatter->trace, event, &received);
	char buffer[24];
	key_text(formatter->json, "signal", names_signal(received.signal, buffer));
	key_number(formatter->json, "number", received.signal);
	json_key(formatter->json, "from");
	if (received.from_pid) {
		snprintf(buffer, sizeof buffer, "<%u.%u>", received.from_pid, received.from_pid);
		json_text(formatter->json, buffer);
	} else {
		json_null(formatter->json);
	}
	if (received.how < sizeof how / sizeof *how)
		key_text(formatter->json, "by", how[received.how]);
}

static void json_open(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OPEN, opened);
	struct json *json = formatter->json;
	struct trace_text name = text_field(&event->view, "name");
	keys_port(formatter, event, (uint32_t)opened.fd, opened.generation, text_field(&event->view, "peer"));
	key_address(json, "local", text_field(&event->view, "local"));
	if (name.length)
		key_bytes(json, "name", name);
	if (opened.from >= 0)
		key_number(json, "of", (uint64_t)opened.from);
	key_hook(formatter, "function", opened.hook);
}

static void json_closed(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CLOSED, closed);
	static const struct trace_text none;
	keys_port(formatter, event, (uint32_t)closed.fd, closed.generation, none);
	key_reason(formatter->json, closed.reason, closed.status);
}

static void json_connected(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CONNECTED, connected);
	keys_port(formatter, event, (uint32_t)connected.fd, connected.generation, text_field(&event->view, "peer"));
	key_error(formatter->json, (uint32_t)connected.error);
}

static void json_passed(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, PASSED, passed);
	static const struct trace_text none;
	keys_port(formatter, event, (uint32_t)passed.fd, passed.generation, none);
	json_key(formatter->json, "over");
	json_signed(formatter->json, passed.over);
	key_text(formatter->json, "direction", passed.direction ? "received" : "sent");
}

static void key_on(struct formatter *formatter, uint32_t hook, uint64_t object)
{
	char text[24];
	if (!names_waits_on_address(formatter->names, hook, object)) {
		json_key(formatter->json, "on");
		json_signed(formatter->json, (int64_t)object);
		return;
	}
	if (object == 0)
		return;
	snprintf(text, sizeof text, "0x%" PRIx64, object);
	key_text(formatter->json, "on", text);
}

/* System events (system/3): "timeout" in ms, "heap" in words, "queue" 1 or 0 (long, or no more), "port" where one is concerned. */
static void json_monitor(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LONG_GC, told);
	struct trace_text terms = text_field(&event->view, "terms");
	struct lorg_monitor_schedule about = {.in_hook = UINT32_MAX, .out_hook = UINT32_MAX};
	const char *value = "timeout";
	memcpy(&about, terms.bytes, terms.length < sizeof about ? terms.length : sizeof about);
	if (event->view.id == LORG_EVENT_LARGE_HEAP)
		value = "heap";
	else if (event->view.id == LORG_EVENT_LONG_MESSAGE_QUEUE)
		value = "queue";
	if (event->view.id != LORG_EVENT_BUSY_PORT && event->view.id != LORG_EVENT_BUSY_DIST_PORT)
		key_number(formatter->json, value, told.value);
	if (event->view.id == LORG_EVENT_LONG_SCHEDULE && about.in_hook != UINT32_MAX)
		key_hook(formatter, "in", about.in_hook);
	if (event->view.id == LORG_EVENT_LONG_SCHEDULE && about.out_hook != UINT32_MAX)
		key_hook(formatter, "out", about.out_hook);
	if (told.object != LORG_MONITOR_NO_PORT)
		keys_port(formatter, event, (uint32_t)told.object, (uint32_t)(told.object >> 32) & INT32_MAX, (struct trace_text){NULL, 0});
}

static void json_out(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OUT, out);
	key_hook(formatter, "function", out.hook);
	key_on(formatter, out.hook, out.object);
	if (out.timeout_ns >= 0)
		key_number(formatter->json, "limit", (uint64_t)out.timeout_ns);
	key_caller(formatter, event, out.caller);
}

static void json_in(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, IN, in);
	key_hook(formatter, "function", in.hook);
	key_on(formatter, in.hook, in.object);
	if (in.since)
		key_number(formatter->json, "waited", trace_duration(formatter->trace, in.since, event->view.tick));
	if (in.error)
		key_error(formatter->json, (uint32_t)in.error);
}

static void json_port_command(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, PORT_IN, in);
	static const struct trace_text none;
	keys_port(formatter, event, (uint64_t)(int64_t)in.fd, in.generation, none);
	key_text(formatter->json, "command", names_port_command(in.command));
	key_hook(formatter, "function", in.hook);
}

static void json_open_call(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OPEN_CALL, call);
	key_hook(formatter, "function", call.hook);
	key_on(formatter, call.hook, call.object);
}

static void json_gap(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, GAP, gap);
	numbers_gap(formatter->trace, event, &gap);
	key_bytes(formatter->json, "what", text_field(&event->view, "what"));
	key_bytes(formatter->json, "why", text_field(&event->view, "why"));
	key_number(formatter->json, "count", gap.count);
	if (gap.pid)
		key_number(formatter->json, "of", gap.pid);
}

static void json_lost(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LOST, lost);
	key_text(formatter->json, "what", "events");
	key_bytes(formatter->json, "why", text_field(&event->view, "why"));
	key_number(formatter->json, "count", lost.count);
}

/* Any event without a form of its own: its fields by name. */
static void json_fields(struct formatter *formatter, const struct event_view *view)
{
	struct json *json = formatter->json;
	for (unsigned i = 0; i < view->description->field_count; i++) {
		const struct event_field *field = &view->description->field[i];
		struct trace_text text;
		if (strcmp(field->name, "reserved") == 0)
			continue;
		if (strcmp(field->name, "hook") == 0 && view->id != LORG_EVENT_HOOK) {
			key_hook(formatter, "function", (uint32_t)event_number(view, i));
			continue;
		}
		/* The names that every object has are taken. */
		json_key(json, strcmp(field->name, "session") == 0 ? "of_session"
			       : strcmp(field->name, "time") == 0  ? "of_time"
								   : field->name);
		switch (field->kind) {
		case FIELD_TEXT:
		case FIELD_BLOB:
			text.bytes = event_bytes(view, i, &text.length);
			json_bytes(json, text.bytes, text.length);
			break;
		case FIELD_I64:
		case FIELD_I32: json_signed(json, (int64_t)event_number(view, i)); break;
		case FIELD_U64:
		case FIELD_U32: json_number(json, event_number(view, i)); break;
		}
	}
}

static void event_keys(struct formatter *formatter, const struct trace_event *event)
{
	const struct event_view *view = &event->view;
	switch (view->id) {
	case LORG_EVENT_ENTER:
	case LORG_EVENT_EXIT_FUNCTION:
	case LORG_EVENT_CALL_ENTRY:
	case LORG_EVENT_RETURN: json_function(formatter, event, (uint32_t)event_number(view, 0), 0); break;
	case LORG_EVENT_CALL: json_call(formatter, event); break;
	case LORG_EVENT_RETURN_FROM: json_return_from(formatter, event); break;
	case LORG_EVENT_RETURN_TO: json_return_to(formatter, event); break;
	case LORG_EVENT_EXCEPTION_FROM: json_exception_from(formatter, event); break;
	case LORG_EVENT_FUNCTION_COUNTERS: json_counters(formatter, event); break;
	case LORG_EVENT_HOOKED_FUNCTION: json_hooked_function(formatter, event); break;
	case LORG_EVENT_ENTER_LINE:
	case LORG_EVENT_EXIT_LINE:
	case LORG_EVENT_CATCH_LINE:
		json_function(formatter, event, (uint32_t)event_number(view, 0), (uint32_t)event_number(view, 1));
		break;
	case LORG_EVENT_ENTER_ADDRESS:
	case LORG_EVENT_EXIT_ADDRESS: json_function_address(formatter, event, event_number(view, 0)); break;
	case LORG_EVENT_THROW:
	case LORG_EVENT_CATCH:
	case LORG_EVENT_CATCH_AGAIN: json_exception(formatter, event); break;
	case LORG_EVENT_SPAWN: json_spawn(formatter, event); break;
	case LORG_EVENT_SPAWNED: json_spawned(formatter, event); break;
	case LORG_EVENT_EXEC:
	case LORG_EVENT_EXEC_FAILED: json_exec(formatter, event); break;
	case LORG_EVENT_EXIT: json_exit(formatter, event); break;
	case LORG_EVENT_REAPED: json_reaped(formatter, event); break;
	case LORG_EVENT_REGISTER:
	case LORG_EVENT_UNREGISTER: json_register(formatter, event); break;
	case LORG_EVENT_LINK:
	case LORG_EVENT_UNLINK:
	case LORG_EVENT_GETTING_LINKED:
	case LORG_EVENT_GETTING_UNLINKED: json_link(formatter, event); break;
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_RECEIVE:
		json_message(formatter, event);
		json_added(formatter, event, text_field(view, "value"));
		break;
	case LORG_EVENT_SEQ_TRACE: json_sequence(formatter, event); break;
	case LORG_EVENT_TIMEOUT: json_timeout(formatter, event); break;
	case LORG_EVENT_SIGNAL_SENT:
		json_signal_sent(formatter, event);
		json_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_SIGNAL_RECEIVED:
		json_signal_received(formatter, event);
		json_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_DISPLAY: json_display(formatter, event); break;
	case LORG_EVENT_OPEN: json_open(formatter, event); break;
	case LORG_EVENT_CLOSED: json_closed(formatter, event); break;
	case LORG_EVENT_CONNECTED: json_connected(formatter, event); break;
	case LORG_EVENT_PASSED: json_passed(formatter, event); break;
	case LORG_EVENT_OUT: json_out(formatter, event); break;
	case LORG_EVENT_IN: json_in(formatter, event); break;
	case LORG_EVENT_PORT_IN:
	case LORG_EVENT_PORT_OUT: json_port_command(formatter, event); break;
	case LORG_EVENT_LONG_GC:
	case LORG_EVENT_LONG_MESSAGE_QUEUE:
	case LORG_EVENT_LONG_SCHEDULE:
	case LORG_EVENT_LARGE_HEAP:
	case LORG_EVENT_BUSY_PORT:
	case LORG_EVENT_BUSY_DIST_PORT: json_monitor(formatter, event); break;
	case LORG_EVENT_OPEN_CALL: json_open_call(formatter, event); break;
	case LORG_EVENT_GAP: json_gap(formatter, event); break;
	case LORG_EVENT_LOST: json_lost(formatter, event); break;
	default:
		if (view->description)
			json_fields(formatter, view);
		else
			key_number(formatter->json, "id", view->id);
		break;
	}
}

void format_json(struct formatter *formatter, const struct trace_event *event)
{
	always(formatter, event_side_tag(event), event->process, event->time, event->hlc, event->session);
	if (formatter->timestamps == TIMESTAMPS_CPU && formatter->cpu_ns != UINT64_MAX)
		key_number(formatter->json, "cpu_time", formatter->cpu_ns);
	event_keys(formatter, event);
	json_end(formatter->json);
	json_end_line(formatter->json);
}

void format_json_lost(struct formatter *formatter, const struct trace_process *process, uint64_t time, uint64_t hlc,
		      uint64_t count, const char *why)
{
	always(formatter, "lost", process, time, hlc, 0);
	key_text(formatter->json, "what", "events");
	key_text(formatter->json, "why", why);
	key_number(formatter->json, "count", count);
	json_end(formatter->json);
	json_end_line(formatter->json);
}

void format_json_gap(struct formatter *formatter, const struct trace_gap *gap, uint64_t time, uint64_t hlc)
{
	always(formatter, "gap", NULL, time, hlc, 0);
	key_text(formatter->json, "what", gap->what);
	key_text(formatter->json, "why", gap->why);
	key_number(formatter->json, "count", gap->count);
	json_end(formatter->json);
	json_end_line(formatter->json);
}

void format_skip(struct formatter *formatter, const struct trace_event *event)
{
	uint64_t unused[CAUSE_LISTED];
	if (!formatter->causes)
		return;
	if (event->view.id == LORG_EVENT_SEND) {
		EVENT_FIELDS(&event->view, SEND, sent);
		causes_send(formatter->causes, &sent, event->hlc);
	} else if (event->view.id == LORG_EVENT_RECEIVE) {
		EVENT_FIELDS(&event->view, RECEIVE, received);
		causes_receive(formatter->causes, &received, unused);
	}
}
