/* SPDX-License-Identifier: MIT */
/* text.c: one line an event, for people: time, process, tag, details. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collector/format/format.h"
#include <lorg/plan.h>

#include "collector/format/numbers.h"
#include "collector/format/values.h"
#include "collector/read/profile.h"

enum { TIME_WIDTH = 16, PROCESS_WIDTH = 20, TAG_WIDTH = 16, ARGUMENTS_SHOWN = 64 };

enum colour { COLOUR_TIME, COLOUR_PROCESS, COLOUR_TAG, COLOUR_BAD };

static void colour_on(struct formatter *formatter, enum colour colour)
{
	static const char *const codes[] = {"\033[2m", "\033[36m", "\033[1m", "\033[1;31m"};
	if (formatter->colour)
		output_text(formatter->output, codes[colour]);
}

static void colour_off(struct formatter *formatter)
{
	if (formatter->colour)
		output_text(formatter->output, "\033[0m");
}

static void seconds(struct output *output, uint64_t ns)
{
	output_number(output, ns / 1000000000);
	output_byte(output, '.');
	output_digits(output, ns % 1000000000, 9);
}

/* Pads what was written since `from`, in bytes without colour codes. */
static void column(struct output *output, size_t used, size_t width)
{
	static const char blanks[] = "                    ";
	output_bytes(output, blanks, used < width && width <= sizeof blanks ? width - used : 1);
}

static void process_id(struct output *output, uint32_t pid, uint32_t tid, uint32_t runtime_process)
{
	output_byte(output, '<');
	output_number(output, pid);
	output_byte(output, '.');
	output_number(output, tid);
	if (runtime_process) {
		output_byte(output, '.');
		output_number(output, runtime_process);
	}
	output_byte(output, '>');
}

static void head(struct formatter *formatter, uint64_t time, const struct trace_process *process, const char *tag)
{
	struct output *output = formatter->output;
	static const char blanks[] = "          ";
	int negative = time < formatter->start_ns;
	uint64_t ns = negative ? formatter->start_ns - time : time - formatter->start_ns;
	size_t width = 11 + (size_t)negative; /* of 0.000000000 */
	for (uint64_t more = ns / 10000000000; more; more /= 10)
		width++;
	colour_on(formatter, COLOUR_TIME);
	if (width < TIME_WIDTH)
		output_bytes(output, blanks, TIME_WIDTH - width);
	if (negative)
		output_byte(output, '-');
	seconds(output, ns);
	colour_off(formatter);
	output_byte(output, ' ');
	colour_on(formatter, COLOUR_PROCESS);
	size_t from = output->length;
	if (process && (process->pid || process->tid))
		process_id(output, process->pid, process->tid, process->runtime_process);
	else
		output_text(output, "lorg");
	size_t used = output->length - from;
	colour_off(formatter);
	column(output, used, PROCESS_WIDTH);
	colour_on(formatter, COLOUR_TAG);
	output_text(output, tag);
	colour_off(formatter);
}

/* Everything that follows begins here. */
static struct output *details(struct formatter *formatter, const char *tag)
{
	column(formatter->output, strlen(tag), TAG_WIDTH);
	return formatter->output;
}

static void plain(struct output *output, struct trace_text text)
{
	output_safe(output, text.bytes, text.length, 0);
}

static void name(struct output *output, const char *text)
{
	output_safe(output, text, strlen(text), 0);
}

static void quoted(struct output *output, struct trace_text text)
{
	output_byte(output, '"');
	output_safe(output, text.bytes, text.length, '"');
	output_byte(output, '"');
}

static struct trace_text text_field(const struct event_view *view, const char *field)
{
	struct trace_text text;
	text.bytes = event_bytes_named(view, field, &text.length);
	return text;
}

static void arguments(struct output *output, struct trace_text argv)
{
	struct trace_text argument;
	unsigned count = 0;
	output_text(output, " [");
	while (next_argument(&argv, &argument)) {
		if (count++)
			output_text(output, ", ");
		if (count > ARGUMENTS_SHOWN) {
			output_text(output, "...");
			break;
		}
		quoted(output, argument);
	}
	output_byte(output, ']');
}

static void hook(struct formatter *formatter, uint32_t number)
{
	struct hook_name hook_name;
	names_hook(formatter->names, number, &hook_name);
	name(formatter->output, hook_name.name);
}

static void address(struct output *output, struct trace_text socket_address)
{
	char text[256];
	size_t length = names_socket_address(socket_address.bytes, socket_address.length, text, sizeof text);
	output_safe(output, text, length, 0);
}

static void place(struct output *output, const struct place *where, int with_offset)
{
	name(output, where->module);
	output_byte(output, ':');
	name(output, where->function);
	if (with_offset && where->named && where->offset)
		output_printf(output, "+0x%" PRIx64, where->offset);
}

static void source(struct output *output, const char *file, int line)
{
	if (!file)
		return;
	output_byte(output, ' ');
	name(output, file);
	if (line > 0) {
		output_byte(output, ':');
		output_number(output, (uint64_t)line);
	}
}

static void port(struct formatter *formatter, const struct trace_event *event, uint64_t object, uint32_t generation,
		 int with_driver)
{
	struct output *output = formatter->output;
	output_text(output, "#Port<");
	output_number(output, event->process->pid);
	output_byte(output, '.');
	output_number(output, object);
	output_byte(output, '.');
	output_number(output, generation);
	output_byte(output, '>');
	const struct trace_port *known = trace_port(formatter->trace, event->process->image, (int32_t)object, generation);
	if (known && with_driver) {
		output_byte(output, ' ');
		output_text(output, names_driver(known->driver));
	}
}

static void failed(struct output *output, int error)
{
	char buffer[24];
	if (error)
		output_printf(output, " failed: %s", names_error((uint32_t)error, buffer));
}

static void reason(struct output *output, uint32_t kind, int32_t status)
{
	char buffer[24];
	switch (kind) {
	case LORG_REASON_NORMAL: output_text(output, "normal"); break;
	case LORG_REASON_STATUS: output_printf(output, "status %d", status); break;
	case LORG_REASON_SIGNAL: output_text(output, names_signal((uint32_t)status, buffer)); break;
	case LORG_REASON_KILLED: output_text(output, "cancelled"); break;
	case LORG_REASON_EXEC: output_text(output, "exec"); break;
	default: output_text(output, "unknown"); break;
	}
}

static void waited(struct formatter *formatter, uint64_t since, uint64_t until)
{
	if (since == 0)
		return;
	output_text(formatter->output, " after ");
	seconds(formatter->output, trace_duration(formatter->trace, since, until));
	output_text(formatter->output, " s");
}

static void message(struct output *output, struct trace_text bytes, uint64_t moved, uint32_t flags)
{
	if (flags & LORG_MESSAGE_EOF) {
		output_text(output, " eof");
		return;
	}
	output_printf(output, " %" PRIu64 " byte%s", moved, moved == 1 ? "" : "s");
	if (flags & LORG_MESSAGE_NOT_COPIED) {
		output_text(output, " (not copied)");
		return;
	}
	if (bytes.length == 0)
		return;
	output_byte(output, ' ');
	quoted(output, bytes);
	if (moved > bytes.length)
		output_printf(output, "...+%" PRIu64, moved - bytes.length);
}

/* ---- details by event -------------------------------------------------- */

static void text_function(struct formatter *formatter, const struct trace_event *event, uint32_t slot, int line)
{
	const struct place *where = names_function(formatter->names, event->process->image, slot, event->view.effective);
	place(formatter->output, where, 0);
	source(formatter->output, where->source, line ? line : where->line);
}

static void text_function_arity(struct formatter *formatter, const struct trace_event *event, uint32_t function, uint32_t session_kind)
{
	const struct place *where = names_function(formatter->names, event->process->image, function, event->view.effective);
	const int arity = names_call_arity(where->arity, session_kind);
	place(formatter->output, where, 0);
	if (arity >= 0)
		output_printf(formatter->output, "/%d", arity);
}

/* What {message, V} of a match specification has added. */
static void text_added(struct formatter *formatter, const struct trace_event *event, struct trace_text term)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	if (!term.length)
		return;
	output_text(formatter->output, " {message ");
	values_people(&context, term.bytes, term.length);
	output_byte(formatter->output, '}');
}

static void text_display(struct formatter *formatter, const struct trace_event *event)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	struct trace_text terms = text_field(&event->view, "terms");
	values_people(&context, terms.bytes, terms.length);
}

/* module:function(arguments) */
static void text_call(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CALL, call);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	size_t arguments = call.session_kind & LORG_CALL_HAS_MESSAGE ? values_before_last(terms.bytes, terms.length) : terms.length;
	if (call.session_kind & LORG_CALL_NO_ARGUMENTS) {
		text_function_arity(formatter, event, call.function, call.session_kind);
	} else {
		text_function(formatter, event, call.function, 0);
		output_byte(formatter->output, '(');
		values_people(&context, terms.bytes, arguments);
		output_byte(formatter->output, ')');
	}
	text_added(formatter, event, (struct trace_text){terms.bytes + arguments, (uint32_t)(terms.length - arguments)});
	if (!call.caller)
		return;
	output_text(formatter->output, " from ");
	place(formatter->output, names_caller(formatter->names, event->process->image, call.caller, event->view.tick, 0), 1);
}

static void text_return_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_FROM, from);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	char buffer[24];
	text_function_arity(formatter, event, from.function, 0);
	output_text(formatter->output, " -> ");
	if (terms.length)
		values_people(&context, terms.bytes, terms.length);
	else
		output_byte(formatter->output, '?');
	if (from.error)
		output_printf(formatter->output, " (%s)", names_error((uint32_t)from.error, buffer));
	waited(formatter, from.since, event->view.tick);
}

static void text_return_to(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_TO, to);
	place(formatter->output, names_caller(formatter->names, event->process->image, to.address, event->view.tick, 0), 1);
}

static void text_exception_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXCEPTION_FROM, from);
	struct trace_text type = text_field(&event->view, "type"), what = text_field(&event->view, "what");
	struct output *output = formatter->output;
	text_function_arity(formatter, event, from.function, 0);
	output_text(output, " left by ");
	char *shown = from.kind == 0 ? names_type(type) : NULL;
	name(output, shown ? shown : names_left(from.kind));
	free(shown);
	if (what.length) {
		output_byte(output, ' ');
		quoted(output, what);
	}
	waited(formatter, from.since, event->view.tick);
}

static void text_counters(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, FUNCTION_COUNTERS, counters);
	struct output *output = formatter->output;
	text_function_arity(formatter, event, counters.function, 0);
	if (counters.kind & LORG_KIND_COUNT)
		output_printf(output, " %" PRIu64 " call%s", counters.count, counters.count == 1 ? "" : "s");
	if (counters.kind & LORG_KIND_TIME) {
		output_text(output, " time ");
		seconds(output, trace_ticks_ns(formatter->trace, counters.time_ticks));
		output_text(output, " s");
	}
	if (counters.kind & LORG_KIND_MEMORY)
		output_printf(output, " memory %" PRIu64 " words", counters.words);
}

static void text_spawn(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWN, spawn);
	numbers_spawn(formatter->trace, event, &spawn);
	struct output *output = formatter->output;
	struct trace_text file = text_field(&event->view, "file");
	if (spawn.how == LORG_BIRTH_THREAD)
		process_id(output, spawn.child_pid ? spawn.child_pid : event->process->pid, spawn.child_tid, 0);
	else
		output_printf(output, "<%u>", spawn.child_pid);
	output_printf(output, " %s", names_birth(spawn.how));
	if (spawn.routine) {
		output_byte(output, ' ');
		place(output, names_address(formatter->names, event->process->image, spawn.routine, event->view.tick, 0), 1);
	}
	if (file.length) {
		output_byte(output, ' ');
		plain(output, file);
		arguments(output, text_field(&event->view, "argv"));
	}
}

static void text_spawned(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWNED, spawned);
	numbers_spawned(formatter->trace, event, &spawned);
	output_text(formatter->output, "by ");
	process_id(formatter->output, spawned.parent_pid, spawned.parent_tid, 0);
	output_printf(formatter->output, " %s", names_birth(spawned.how));
	if (spawned.routine) {
		output_byte(formatter->output, ' ');
		place(formatter->output,
		      names_address(formatter->names, event->process->image, spawned.routine, event->view.tick, 0), 1);
	}
}

static void text_exec(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXEC, exec);
	plain(formatter->output, text_field(&event->view, "file"));
	arguments(formatter->output, text_field(&event->view, "argv"));
	failed(formatter->output, event->view.id == LORG_EVENT_EXEC_FAILED ? exec.error : 0);
}

static void text_exit(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXIT, gone);
	event_exit(event, &gone);
	reason(formatter->output, gone.reason, gone.status);
	if (gone.program)
		output_text(formatter->output, ", program");
	if (gone.outside)
		output_text(formatter->output, ", seen from outside");
}

static void text_reaped(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REAPED, reaped);
	numbers_reaped(formatter->trace, event, &reaped);
	struct output *output = formatter->output;
	char buffer[24];
	if (reaped.tid) {
		process_id(output, reaped.pid ? reaped.pid : event->process->pid, reaped.tid, 0);
	} else {
		output_printf(output, "<%u>", reaped.pid);
		if (WIFEXITED(reaped.status))
			output_printf(output, " status %d", WEXITSTATUS(reaped.status));
		else if (WIFSIGNALED(reaped.status))
			output_printf(output, " %s", names_signal((uint32_t)WTERMSIG(reaped.status), buffer));
		else if (WIFSTOPPED(reaped.status))
			output_printf(output, " stopped by %s", names_signal((uint32_t)WSTOPSIG(reaped.status), buffer));
		else if (WIFCONTINUED(reaped.status))
			output_text(output, " continued"); /* else not told */
	}
	output_text(output, " by ");
	hook(formatter, reaped.hook);
	waited(formatter, reaped.since, event->view.tick);
}

static void text_register(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REGISTER, named);
	numbers_register(formatter->trace, event, &named);
	struct output *output = formatter->output;
	struct trace_text text = event_registered(formatter->trace, event), socket_address = text_field(&event->view, "address");
	if (named.kind == 1) {
		port(formatter, event, (uint64_t)(int64_t)named.fd, named.generation, 0);
		output_byte(output, ' ');
	} else if (named.tid && named.tid != event->process->tid) {
		process_id(output, event->process->pid, named.tid, 0);
		output_byte(output, ' ');
	}
	if (text.length)
		quoted(output, text);
	else
		address(output, socket_address);
}

static void text_link(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LINK, link);
	numbers_link(formatter->trace, event, &link);
	if (link.pid || link.tid)
		process_id(formatter->output, link.pid, link.tid, 0);
	else
		port(formatter, event, (uint64_t)(int64_t)link.fd, link.generation, 1);
}

static void text_message(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEND, sent);
	struct output *output = formatter->output;
	struct trace_text peer = text_field(&event->view, "address");
	port(formatter, event, sent.object, sent.generation, 1);
	if (peer.length) {
		output_text(output, event->view.id == LORG_EVENT_RECEIVE ? " from " : " to ");
		address(output, peer);
	}
	message(output, text_field(&event->view, "message"), sent.bytes, sent.flags);
	failed(output, sent.error);
	output_text(output, " by ");
	hook(formatter, sent.hook);
	text_added(formatter, event, text_field(&event->view, "value"));
	if (event->view.id == LORG_EVENT_RECEIVE)
		waited(formatter, sent.entry, event->view.tick); /* `since` of a receive stands where `entry` does */
}

static void text_sequence(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEQ_TRACE, told);
	struct output *output = formatter->output;
	output_printf(output, "%s %u, %u after %u, of ", told.kind == 1 ? "send" : "receive", told.label, told.serial, told.previous);
	process_id(output, told.from_pid, told.from_tid, 0);
	output_byte(output, ' ');
	port(formatter, event, told.object, told.generation, 1);
	message(output, text_field(&event->view, "message"), told.bytes, 0);
}

static void text_timeout(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, TIMEOUT, timeout);
	output_text(formatter->output, "timeout by ");
	hook(formatter, timeout.hook);
	waited(formatter, timeout.since, event->view.tick);
}

static void text_signal_sent(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SIGNAL_SENT, sent);
	numbers_signal_sent(formatter->trace, event, &sent);
	struct output *output = formatter->output;
	char buffer[24];
	output_printf(output, "%s to ", names_signal(sent.signal, buffer));
	if (sent.target == 1)
		output_printf(output, "group %d", sent.to_pid);
	else if (sent.target == 2)
		output_text(output, "all");
	else if (sent.to_tid)
		process_id(output, (uint32_t)sent.to_pid, sent.to_tid, 0);
	else
		output_printf(output, "<%d>", sent.to_pid);
	failed(output, sent.error);
	output_text(output, " by ");
	hook(formatter, sent.hook);
}

static void text_signal_received(struct formatter *formatter, const struct trace_event *event)
{
	static const char *const how[] = {"handler", "sigwait", "signalfd"};
	EVENT_FIELDS(&event->view, SIGNAL_RECEIVED, received);
	numbers_signal_received(formatter->trace, event, &received);
	char buffer[24];
	output_text(formatter->output, names_signal(received.signal, buffer));
	if (received.from_pid)
		output_printf(formatter->output, " from <%u>", received.from_pid);
	if (received.how < sizeof how / sizeof *how)
		output_printf(formatter->output, " by %s", how[received.how]);
}

static void text_open(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OPEN, opened);
	struct output *output = formatter->output;
	struct trace_text text = text_field(&event->view, "name"), local = text_field(&event->view, "local"),
			  peer = text_field(&event->view, "peer");
	port(formatter, event, (uint32_t)opened.fd, opened.generation, 0);
	output_printf(output, " %s", names_driver(opened.driver));
	if (opened.from >= 0)
		output_printf(output, " of descriptor %d", opened.from);
	if (opened.hook == UINT32_MAX)
		output_text(output, " inherited");
	if (text.length) {
		output_byte(output, ' ');
		quoted(output, text);
	}
	if (local.length) {
		output_text(output, " at ");
		address(output, local);
	}
	if (peer.length) {
		output_text(output, " to ");
		address(output, peer);
	}
	if (opened.hook != UINT32_MAX) {
		output_text(output, " by ");
		hook(formatter, opened.hook);
	}
}

static void text_closed(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CLOSED, closed);
	port(formatter, event, (uint32_t)closed.fd, closed.generation, 0);
	output_printf(formatter->output, " %s ", names_driver(closed.driver));
	reason(formatter->output, closed.reason, closed.status);
}

static void text_connected(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CONNECTED, connected);
	port(formatter, event, (uint32_t)connected.fd, connected.generation, 1);
	output_text(formatter->output, " to ");
	address(formatter->output, text_field(&event->view, "peer"));
	failed(formatter->output, connected.error);
}

static void text_passed(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, PASSED, passed);
	port(formatter, event, (uint32_t)passed.fd, passed.generation, 1);
	output_printf(formatter->output, " %s over descriptor %d", passed.direction ? "received" : "sent", passed.over);
}

static void waits_on(struct formatter *formatter, uint32_t hook_number, uint64_t object)
{
	if (object == 0 && names_waits_on_address(formatter->names, hook_number, object))
		return;
	if (names_waits_on_address(formatter->names, hook_number, object))
		output_printf(formatter->output, " on 0x%" PRIx64, object);
	else
		output_printf(formatter->output, " on %" PRId64, (int64_t)object);
}

static void text_out(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OUT, out);
	struct output *output = formatter->output;
	hook(formatter, out.hook);
	waits_on(formatter, out.hook, out.object);
	if (out.timeout_ns >= 0) {
		output_text(output, " for at most ");
		seconds(output, (uint64_t)out.timeout_ns);
		output_text(output, " s");
	}
	if (out.caller) {
		output_text(output, " called by ");
		place(output, names_caller(formatter->names, event->process->image, out.caller, event->view.tick, 0), 1);
	}
}

static void text_in(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, IN, in);
	hook(formatter, in.hook);
	waits_on(formatter, in.hook, in.object);
	waited(formatter, in.since, event->view.tick);
	failed(formatter->output, in.error);
}

static void text_port_command(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, PORT_IN, in);
	port(formatter, event, (uint64_t)(int64_t)in.fd, in.generation, 1);
	output_byte(formatter->output, ' ');
	output_text(formatter->output, names_port_command(in.command));
	output_text(formatter->output, " by ");
	hook(formatter, in.hook);
}

static void text_exception(struct formatter *formatter, const struct trace_event *event)
{
	struct trace_text type = text_field(&event->view, "type");
	EVENT_FIELDS(&event->view, THROW, thrown);
	char mangled[512];
	struct output *output = formatter->output;
	if (type.length && type.length < sizeof mangled - 2) {
		/* A type's name in its type_info lacks the prefix of a symbol. */
		int has_prefix = type.length > 2 && memcmp(type.bytes, "_Z", 2) == 0;
		snprintf(mangled, sizeof mangled, "%s%.*s", has_prefix ? "" : "_ZTS", (int)type.length,
			 (const char *)type.bytes);
		char *shown = symbol_demangle(mangled);
		static const char prefix[] = "typeinfo name for ";
		const char *text = shown ? shown : mangled;
		name(output, strncmp(text, prefix, sizeof prefix - 1) == 0 ? text + sizeof prefix - 1
			     : strcmp(text, mangled) == 0 && !has_prefix   ? mangled + 4
									   : text);
		free(shown);
	}
	if (thrown.caller) {
		output_text(output, " in ");
		const struct place *where =
			names_caller(formatter->names, event->process->image, thrown.caller, event->view.tick, 1);
		place(output, where, 1);
		source(output, where->source, where->line);
	}
}

/* Any event without a form of its own: its fields by name. */
static void text_fields(struct formatter *formatter, const struct trace_event *event)
{
	const struct event_description *description = event->view.description;
	struct output *output = formatter->output;
	for (unsigned i = 0; i < description->field_count; i++) {
		const struct event_field *field = &description->field[i];
		struct trace_text text;
		if (strcmp(field->name, "reserved") == 0)
			continue;
		if (i > 0)
			output_byte(output, ' ');
		output_printf(output, "%s=", field->name);
		switch (field->kind) {
		case FIELD_TEXT:
		case FIELD_BLOB:
			text.bytes = event_bytes(&event->view, i, &text.length);
			quoted(output, text);
			break;
		case FIELD_I64:
		case FIELD_I32: output_signed(output, (int64_t)event_number(&event->view, i)); break;
		case FIELD_U64: output_printf(output, "0x%" PRIx64, event_number(&event->view, i)); break;
		case FIELD_U32:
			if (strcmp(field->name, "hook") == 0)
				hook(formatter, (uint32_t)event_number(&event->view, i));
			else
				output_number(output, event_number(&event->view, i));
			break;
		}
	}
}

static void text_gap(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, GAP, gap);
	numbers_gap(formatter->trace, event, &gap);
	plain(formatter->output, text_field(&event->view, "what"));
	output_text(formatter->output, ": ");
	plain(formatter->output, text_field(&event->view, "why"));
	if (gap.pid)
		output_printf(formatter->output, " <%u>", gap.pid);
	if (gap.count > 1)
		output_printf(formatter->output, ", %" PRIu64 " times", gap.count);
}

static void text_lost(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LOST, lost);
	output_printf(formatter->output, "%" PRIu64 " event%s: ", lost.count, lost.count == 1 ? "" : "s");
	plain(formatter->output, text_field(&event->view, "why"));
}

static void text_open_call(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OPEN_CALL, call);
	hook(formatter, call.hook);
	waits_on(formatter, call.hook, call.object);
	output_text(formatter->output, " never returned");
}

static void event_details(struct formatter *formatter, const struct trace_event *event)
{
	const struct event_view *view = &event->view;
	switch (view->id) {
	case LORG_EVENT_ENTER:
	case LORG_EVENT_EXIT_FUNCTION:
	case LORG_EVENT_CALL_ENTRY:
	case LORG_EVENT_RETURN: text_function(formatter, event, (uint32_t)event_number(view, 0), 0); break;
	case LORG_EVENT_ENTER_LINE:
	case LORG_EVENT_EXIT_LINE:
	case LORG_EVENT_CATCH_LINE:
		text_function(formatter, event, (uint32_t)event_number(view, 0), (int)event_number(view, 1));
		break;
	case LORG_EVENT_ENTER_ADDRESS:
	case LORG_EVENT_EXIT_ADDRESS:
		place(formatter->output,
		      names_address(formatter->names, event->process->image, event_number(view, 0), view->tick, 0), 1);
		break;
	case LORG_EVENT_CALL: text_call(formatter, event); break;
	case LORG_EVENT_RETURN_FROM: text_return_from(formatter, event); break;
	case LORG_EVENT_RETURN_TO: text_return_to(formatter, event); break;
	case LORG_EVENT_EXCEPTION_FROM: text_exception_from(formatter, event); break;
	case LORG_EVENT_FUNCTION_COUNTERS: text_counters(formatter, event); break;
	case LORG_EVENT_THROW:
	case LORG_EVENT_CATCH:
	case LORG_EVENT_CATCH_AGAIN: text_exception(formatter, event); break;
	case LORG_EVENT_SPAWN: text_spawn(formatter, event); break;
	case LORG_EVENT_SPAWNED: text_spawned(formatter, event); break;
	case LORG_EVENT_EXEC:
	case LORG_EVENT_EXEC_FAILED: text_exec(formatter, event); break;
	case LORG_EVENT_EXIT: text_exit(formatter, event); break;
	case LORG_EVENT_REAPED: text_reaped(formatter, event); break;
	case LORG_EVENT_REGISTER:
	case LORG_EVENT_UNREGISTER: text_register(formatter, event); break;
	case LORG_EVENT_LINK:
	case LORG_EVENT_UNLINK:
	case LORG_EVENT_GETTING_LINKED:
	case LORG_EVENT_GETTING_UNLINKED: text_link(formatter, event); break;
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_RECEIVE: text_message(formatter, event); break;
	case LORG_EVENT_SEQ_TRACE: text_sequence(formatter, event); break;
	case LORG_EVENT_TIMEOUT: text_timeout(formatter, event); break;
	case LORG_EVENT_SIGNAL_SENT:
		text_signal_sent(formatter, event);
		text_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_SIGNAL_RECEIVED:
		text_signal_received(formatter, event);
		text_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_DISPLAY: text_display(formatter, event); break;
	case LORG_EVENT_OPEN: text_open(formatter, event); break;
	case LORG_EVENT_CLOSED: text_closed(formatter, event); break;
	case LORG_EVENT_CONNECTED: text_connected(formatter, event); break;
	case LORG_EVENT_PASSED: text_passed(formatter, event); break;
	case LORG_EVENT_OUT: text_out(formatter, event); break;
	case LORG_EVENT_IN: text_in(formatter, event); break;
	case LORG_EVENT_PORT_IN:
	case LORG_EVENT_PORT_OUT: text_port_command(formatter, event); break;
	case LORG_EVENT_GAP: text_gap(formatter, event); break;
	case LORG_EVENT_LOST: text_lost(formatter, event); break;
	case LORG_EVENT_OPEN_CALL: text_open_call(formatter, event); break;
	default:
		if (view->description)
			text_fields(formatter, event);
		else
			output_printf(formatter->output, "event %u, %u bytes", view->id, view->length);
		break;
	}
}

static void cpu_time(struct formatter *formatter)
{
	if (formatter->timestamps != TIMESTAMPS_CPU || formatter->cpu_ns == UINT64_MAX)
		return;
	output_text(formatter->output, " cpu ");
	seconds(formatter->output, formatter->cpu_ns);
	output_text(formatter->output, " s");
}

void format_text(struct formatter *formatter, const struct trace_event *event)
{
	const char *tag = event_side_tag(event);
	head(formatter, event->time, event->process, tag);
	details(formatter, tag);
	event_details(formatter, event);
	cpu_time(formatter);
	output_byte(formatter->output, '\n');
}

void format_text_lost(struct formatter *formatter, const struct trace_process *process, uint64_t time, uint64_t hlc,
		      uint64_t count, const char *why)
{
	(void)hlc;
	head(formatter, time, process, "lost");
	output_printf(details(formatter, "lost"), "%" PRIu64 " event%s: %s\n", count, count == 1 ? "" : "s", why);
}

void format_text_gap(struct formatter *formatter, const struct trace_gap *gap, uint64_t time, uint64_t hlc)
{
	(void)hlc;
	head(formatter, time, NULL, "gap");
	struct output *output = details(formatter, "gap");
	name(output, gap->what);
	output_text(output, ": ");
	name(output, gap->why);
	if (gap->count > 1)
		output_printf(output, ", %" PRIu64 " times", gap->count);
	output_byte(output, '\n');
}
