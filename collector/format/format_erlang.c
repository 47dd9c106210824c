/* SPDX-License-Identifier: MIT */
/* format_erlang.c: the messages of trace(3) as the Erlang shell prints them, one a line. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/format/format.h"
#include "collector/format/numbers.h"
#include <lorg/plan.h>

#include "collector/format/values.h"
#include "collector/read/profile.h"

static struct trace_text text_field(const struct event_view *view, const char *field)
{
	struct trace_text text;
	text.bytes = event_bytes_named(view, field, &text.length);
	return text;
}

/* ---- terms ------------------------------------------------------------- */

static int is_reserved(const char *word, size_t length)
{
	static const char *const words[] = {"after", "and",    "andalso", "band", "begin", "bnot", "bor",
					    "bsl",   "bsr",    "bxor",    "case", "catch", "cond", "div",
					    "end",   "fun",    "if",      "let",  "maybe", "not",  "of",
					    "or",    "orelse", "receive", "rem",  "try",   "when", "xor"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0)
			return 1;
	return 0;
}

/* One byte within quotes; bytes beyond ASCII as \x{HH}, which stands for that very byte. */
static void escaped_byte(struct output *output, uint8_t byte, char quote)
{
	switch (byte) {
	case '\n': output_text(output, "\\n"); return;
	case '\r': output_text(output, "\\r"); return;
	case '\t': output_text(output, "\\t"); return;
	default: break;
	}
	if (byte < 0x20 || byte >= 0x7f) {
		output_printf(output, "\\x{%x}", byte);
		return;
	}
	if (byte == '\\' || byte == (uint8_t)quote)
		output_byte(output, '\\');
	output_byte(output, (char)byte);
}

static void escaped(struct output *output, struct trace_text text, char quote)
{
	output_byte(output, quote);
	for (uint32_t i = 0; i < text.length; i++)
		escaped_byte(output, text.bytes[i], quote);
	output_byte(output, quote);
}

static void atom_bytes(struct output *output, struct trace_text text)
{
	int plain = text.length > 0 && text.bytes[0] >= 'a' && text.bytes[0] <= 'z';
	for (uint32_t i = 0; plain && i < text.length; i++)
		plain = text.bytes[i] < 0x80 && (isalnum(text.bytes[i]) || text.bytes[i] == '_' || text.bytes[i] == '@');
	if (plain && !is_reserved((const char *)text.bytes, text.length))
		output_bytes(output, text.bytes, text.length);
	else
		escaped(output, text, '\'');
}

static struct trace_text text_of(const char *text)
{
	return (struct trace_text){(const uint8_t *)text, (uint32_t)strlen(text)};
}

static void atom(struct output *output, const char *text)
{
	atom_bytes(output, text_of(text));
}

static void string(struct output *output, struct trace_text text)
{
	escaped(output, text, '"');
}

static int is_printable(struct trace_text text)
{
	for (uint32_t i = 0; i < text.length; i++) {
		uint8_t byte = text.bytes[i];
		if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte >= 0x7f)
			return 0;
	}
	return 1;
}

static void binary(struct output *output, struct trace_text text)
{
	output_text(output, "<<");
	if (text.length && is_printable(text))
		string(output, text);
	else
		for (uint32_t i = 0; i < text.length; i++) {
			if (i)
				output_byte(output, ',');
			output_number(output, text.bytes[i]);
		}
	output_text(output, ">>");
}

static void pid_term(struct output *output, uint32_t pid, uint32_t tid, uint32_t runtime_process)
{
	output_printf(output, "<%u.%u.%u>", pid, tid, runtime_process);
}

static void port_term(struct output *output, const struct trace_event *event, uint64_t object, uint32_t generation)
{
	output_printf(output, "#Port<%u.%" PRIu64 ".%u>", event->process->pid, object, generation);
}

static void reason_term(struct output *output, uint32_t reason, int32_t status)
{
	char buffer[24];
	switch (reason) {
	case LORG_REASON_NORMAL: output_text(output, "normal"); break;
	case LORG_REASON_STATUS: output_signed(output, status); break;
	case LORG_REASON_SIGNAL:
		names_signal((uint32_t)status, buffer);
		for (char *at = buffer; *at; at++)
			*at = (char)tolower((unsigned char)*at);
		output_text(output, "{signal,");
		atom(output, buffer);
		output_byte(output, '}');
		break;
	case LORG_REASON_KILLED: output_text(output, "killed"); break;
	case LORG_REASON_EXEC: output_text(output, "exec"); break;
	default: output_text(output, "unknown"); break;
	}
}

static void signal_term(struct output *output, uint32_t signal)
{
	reason_term(output, LORG_REASON_SIGNAL, (int32_t)signal);
}

static void string_list(struct output *output, struct trace_text argv)
{
	struct trace_text argument;
	const char *separator = "";
	output_byte(output, '[');
	while (next_argument(&argv, &argument)) {
		output_text(output, separator);
		string(output, argument);
		separator = ",";
	}
	output_byte(output, ']');
}

static void error_term(struct output *output, int32_t error)
{
	char buffer[24];
	snprintf(buffer, sizeof buffer, "%s", names_error((uint32_t)error, (char[24]){0}));
	for (char *at = buffer; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	atom(output, buffer);
}

/* ---- tuples ------------------------------------------------------------ */

/* {trace, Who, Tag */
static struct output *begin(struct formatter *formatter)
{
	output_text(formatter->output, formatter->timestamps ? "{trace_ts," : "{trace,");
	return formatter->output;
}

static struct output *begin_process(struct formatter *formatter, const struct trace_process *process, const char *tag)
{
	struct output *output = begin(formatter);
	pid_term(output, process ? process->pid : 0, process ? process->tid : 0, process ? process->runtime_process : 0);
	output_byte(output, ',');
	atom(output, tag);
	return output;
}

static struct output *begin_port(struct formatter *formatter, const struct trace_event *event, uint64_t object,
				 uint32_t generation, const char *tag)
{
	struct output *output = begin(formatter);
	port_term(output, event, object, generation);
	output_byte(output, ',');
	atom(output, tag);
	return output;
}

/* {MegaSecs, Secs, MicroSecs} */
static void stamp_us(struct output *output, uint64_t us)
{
	output_printf(output, ",{%" PRIu64 ",%" PRIu64 ",%" PRIu64 "}", us / 1000000000000, us / 1000000 % 1000000, us % 1000000);
}

static void stamp(struct formatter *formatter, uint64_t time, uint64_t number)
{
	uint64_t us = (time + (uint64_t)formatter->trace->wall_offset_ns) / 1000;
	switch ((enum format_timestamps)formatter->timestamps) {
	case TIMESTAMPS_NONE: break;
	case TIMESTAMPS_STRICT: output_printf(formatter->output, ",{%" PRIu64 ",%" PRIu64 "}", time, number); break;
	case TIMESTAMPS_WALL: stamp_us(formatter->output, us); break;
	case TIMESTAMPS_CPU:
		if (formatter->cpu_ns == UINT64_MAX)
			output_text(formatter->output, ",undefined");
		else
			stamp_us(formatter->output, formatter->cpu_ns / 1000);
		break;
	case TIMESTAMPS_MONOTONIC: output_printf(formatter->output, ",%" PRIu64, time); break;
	}
}

static void end(struct formatter *formatter, uint64_t time, uint64_t number)
{
	stamp(formatter, time, number);
	output_text(formatter->output, "}\n");
}

static void mfa_hook(struct formatter *formatter, uint32_t hook)
{
	struct output *output = formatter->output;
	struct hook_name name;
	names_hook(formatter->names, hook, &name);
	output_byte(output, '{');
	atom(output, name.library);
	output_byte(output, ',');
	atom(output, name.name);
	output_printf(output, ",%u}", name.arity);
}

/* {M,F, of a place, without the rest. */
static void module_function(struct output *output, const struct place *where)
{
	output_byte(output, '{');
	atom(output, where->module);
	output_byte(output, ',');
	if (where->raw_name[0])
		atom(output, where->raw_name);
	else
		atom(output, where->function);
}

static void source_end(struct output *output, const struct place *where, int line)
{
	output_byte(output, ',');
	if (where->source)
		string(output, text_of(where->source));
	else
		output_text(output, "undefined");
	if (line)
		output_printf(output, ",%d}", line);
	else
		output_text(output, ",undefined}");
}

static void function_tuple(struct formatter *formatter, const struct trace_event *event, const struct place *where,
			   uint32_t line)
{
	struct output *output = begin_process(formatter, event->process, event_tag(&event->view));
	output_byte(output, ',');
	module_function(output, where);
	source_end(output, where, line ? (int)line : where->line);
}

static void arity_end(struct output *output, const struct place *where)
{
	if (where->arity >= 0)
		output_printf(output, ",%d}", where->arity);
	else
		output_text(output, ",'_'}");
}

/* {M,F,Arity}: hooked calls, as trace(3) has them where arguments were not kept. */
static void call_tuple_tagged(struct formatter *formatter, const struct trace_event *event, const char *tag, uint32_t slot)
{
	const struct place *where = names_function(formatter->names, event->process->image, slot, event->view.effective);
	struct output *output = begin_process(formatter, event->process, tag);
	output_byte(output, ',');
	module_function(output, where);
	arity_end(output, where);
}

static void call_tuple(struct formatter *formatter, const struct trace_event *event, uint32_t slot)
{
	call_tuple_tagged(formatter, event, event_tag(&event->view), slot);
}

/* What {message, V} of a match specification has added: last, before the time stamp. */
static void erlang_added(struct formatter *formatter, const struct trace_event *event, struct trace_text term)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	if (!term.length)
		return;
	output_byte(formatter->output, ',');
	values_erlang(&context, term.bytes, term.length);
}

/* {call, {M,F,Args}}: Args is [] where their number is not known. */
static void erlang_call(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CALL, call);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	struct output *output = begin_process(formatter, event->process, "call");
	const struct place *where = names_function(formatter->names, event->process->image, call.function, event->view.effective);
	output_byte(output, ',');
	module_function(output, where);
	size_t arguments = call.session_kind & LORG_CALL_HAS_MESSAGE ? values_before_last(terms.bytes, terms.length) : terms.length;
	if (call.session_kind & LORG_CALL_NO_ARGUMENTS) {
		int arity = names_call_arity(where->arity, call.session_kind);
		if (arity >= 0)
			output_printf(output, ",%d}", arity);
		else
			output_text(output, ",'_'}");
	} else {
		output_text(output, ",[");
		values_erlang(&context, terms.bytes, arguments);
		output_text(output, "]}");
	}
	erlang_added(formatter, event, (struct trace_text){terms.bytes + arguments, (uint32_t)(terms.length - arguments)});
}

static void erlang_display(struct formatter *formatter, const struct trace_event *event)
{
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	struct trace_text terms = text_field(&event->view, "terms");
	output_byte(begin_process(formatter, event->process, "display"), ',');
	values_erlang(&context, terms.bytes, terms.length);
}

static void erlang_return_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_FROM, from);
	struct trace_text terms = text_field(&event->view, "terms");
	const struct values_context context = {formatter, event->process->image, event->view.effective};
	call_tuple(formatter, event, from.function);
	output_byte(formatter->output, ',');
	if (terms.length)
		values_erlang(&context, terms.bytes, terms.length);
	else
		output_text(formatter->output, "undefined");
}

static void erlang_return_to(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, RETURN_TO, to);
	struct output *output = begin_process(formatter, event->process, "return_to");
	output_byte(output, ',');
	const struct place *where = names_caller(formatter->names, event->process->image, to.address, event->view.tick, PLACE_ARITY);
	module_function(output, where);
	arity_end(output, where);
}

/* {call_time, [{Pid, N, S, Us}]}, and call_memory alike: what is behind Pid and N is the caller's. */
static void process_count(struct output *output, const struct trace_process *process, const char *item, uint64_t count)
{
	output_printf(output, "%s,[{", item);
	pid_term(output, process->pid, process->tid, process->runtime_process);
	output_printf(output, ",%" PRIu64 ",", count);
}

/* As trace:info/3 has them, of this process alone: {info, {M,F,A}, [{call_count, N}, ...]}. */
static void erlang_counters(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, FUNCTION_COUNTERS, counters);
	const struct trace_process *process = event->process;
	uint64_t us = trace_ticks_ns(formatter->trace, counters.time_ticks) / 1000;
	struct output *output = formatter->output;
	call_tuple_tagged(formatter, event, "info", counters.function);
	output_printf(output, ",[{call_count,%" PRIu64 "}", counters.count);
	if (counters.kind & LORG_KIND_TIME) {
		process_count(output, process, ",{call_time", counters.count);
		output_printf(output, "%" PRIu64 ",%" PRIu64 "}]}", us / 1000000, us % 1000000);
	}
	if (counters.kind & LORG_KIND_MEMORY) {
		process_count(output, process, ",{call_memory", counters.count);
		output_printf(output, "%" PRIu64 "}]}", counters.words);
	}
	output_byte(output, ']');
}

/* {exception_from, {M,F,A}, {Class, Value}} */
static void erlang_exception_from(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXCEPTION_FROM, from);
	struct output *output = formatter->output;
	struct trace_text what = text_field(&event->view, "what");
	call_tuple(formatter, event, from.function);
	if (from.kind != 0) {
		output_printf(output, ",{exit,%s}", names_left(from.kind));
		return;
	}
	char *type = names_type(text_field(&event->view, "type"));
	output_text(output, ",{throw,{");
	atom(output, type ? type : "unknown");
	output_byte(output, ',');
	string(output, what);
	output_text(output, "}}");
	free(type);
}

static void spawn_mfa(struct formatter *formatter, const struct trace_event *event, uint32_t how, uint64_t routine,
		      uint64_t argument, uint64_t caller, struct trace_text file, struct trace_text argv)
{
	struct output *output = formatter->output;
	if (routine) {
		module_function(output,
				names_address(formatter->names, event->process->image, routine, event->view.tick, 0));
		output_printf(output, ",[%" PRIu64 "]}", argument);
		return;
	}
	if (file.length) {
		output_byte(output, '{');
		string(output, file);
		output_text(output, ",main,");
		string_list(output, argv);
		output_byte(output, '}');
		return;
	}
	const struct place *where =
		caller ? names_caller(formatter->names, event->process->image, caller, event->view.tick, 0) : NULL;
	/* A child does not know who called fork: its program, mostly. */
	struct trace_text own = base_name(event->process->image->file);
	output_byte(output, '{');
	if (where)
		atom(output, where->module);
	else if (own.length)
		atom_bytes(output, own);
	else
		output_text(output, "undefined");
	output_byte(output, ',');
	atom(output, names_birth(how));
	output_text(output, ",[]}");
}

static void erlang_spawn(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWN, spawn);
	numbers_spawn(formatter->trace, event, &spawn);
	struct output *output = begin_process(formatter, event->process, "spawn");
	uint32_t pid = spawn.child_pid ? spawn.child_pid : event->process->pid;
	output_byte(output, ',');
	pid_term(output, pid, spawn.child_tid ? spawn.child_tid : pid, 0);
	output_byte(output, ',');
	spawn_mfa(formatter, event, spawn.how, spawn.routine, spawn.argument, spawn.caller, text_field(&event->view, "file"),
		  text_field(&event->view, "argv"));
}

static void erlang_spawned(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SPAWNED, spawned);
	numbers_spawned(formatter->trace, event, &spawned);
	struct output *output = begin_process(formatter, event->process, "spawned");
	output_byte(output, ',');
	pid_term(output, spawned.parent_pid, spawned.parent_tid, 0);
	output_byte(output, ',');
	spawn_mfa(formatter, event, spawned.how, spawned.routine, spawned.argument, spawned.caller, text_field(&event->view, "file"),
		  text_field(&event->view, "argv"));
}

static void erlang_exec(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXEC, exec);
	int is_failed = event->view.id == LORG_EVENT_EXEC_FAILED;
	struct output *output = begin_process(formatter, event->process, is_failed ? "exec_failed" : "exec");
	output_text(output, ",{");
	string(output, text_field(&event->view, "file"));
	output_byte(output, ',');
	if (is_failed)
		error_term(output, exec.error);
	else
		string_list(output, text_field(&event->view, "argv"));
	output_byte(output, '}');
}

static void erlang_exit(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, EXIT, gone);
	event_exit(event, &gone);
	struct output *output = begin_process(formatter, event->process, "exit");
	output_byte(output, ',');
	reason_term(output, gone.reason, gone.status);
}

static void erlang_reaped(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REAPED, reaped);
	numbers_reaped(formatter->trace, event, &reaped);
	struct output *output = begin_process(formatter, event->process, "reaped");
	uint32_t pid = reaped.pid ? reaped.pid : event->process->pid;
	output_byte(output, ',');
	pid_term(output, pid, reaped.tid ? reaped.tid : pid, 0);
	output_printf(output, ",%d", reaped.status);
}

static void address_atom(struct output *output, struct trace_text socket_address)
{
	char text[256];
	size_t length = names_socket_address(socket_address.bytes, socket_address.length, text, sizeof text);
	atom_bytes(output, (struct trace_text){(const uint8_t *)text, (uint32_t)length});
}

static void erlang_register(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REGISTER, named);
	numbers_register(formatter->trace, event, &named);
	const char *tag = event->view.description->name;
	struct trace_text name = event_registered(formatter->trace, event);
	struct output *output;
	if (named.kind == 1) {
		output = begin_port(formatter, event, (uint64_t)(int64_t)named.fd, named.generation, tag);
	} else {
		output = begin(formatter);
		pid_term(output, event->process->pid, named.tid ? named.tid : event->process->tid, 0);
		output_byte(output, ',');
		atom(output, tag);
	}
	output_byte(output, ',');
	if (name.length || named.kind == 0)
		atom_bytes(output, name);
	else
		address_atom(output, text_field(&event->view, "address"));
}

static void erlang_link(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LINK, link);
	numbers_link(formatter->trace, event, &link);
	const char *tag = event->view.description->name;
	int of_port = !link.pid && !link.tid;
	int port_is_subject = of_port && (event->view.id == LORG_EVENT_GETTING_LINKED);
	struct output *output;
	if (port_is_subject) {
		output = begin_port(formatter, event, (uint64_t)(int64_t)link.fd, link.generation, tag);
		output_byte(output, ',');
		pid_term(output, event->process->pid, event->process->tid, event->process->runtime_process);
		return;
	}
	output = begin_process(formatter, event->process, tag);
	output_byte(output, ',');
	if (of_port)
		port_term(output, event, (uint64_t)(int64_t)link.fd, link.generation);
	else
		pid_term(output, link.pid, link.tid ? link.tid : link.pid, 0);
}

static void message_term(struct output *output, struct trace_text message, uint64_t bytes, uint32_t flags)
{
	if (flags & LORG_MESSAGE_EOF) {
		output_text(output, "eof");
		return;
	}
	if (message.length >= bytes) {
		binary(output, message);
		return;
	}
	output_text(output, "{cut,");
	binary(output, message);
	output_printf(output, ",%" PRIu64 "}", bytes);
}

/* What a process sends its port receives, and the port sends what it receives. */
static void erlang_port_message(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEND, sent);
	int sends = event->view.id == LORG_EVENT_RECEIVE;
	struct output *output = begin_port(formatter, event, sent.object, sent.generation, sends ? "send" : "receive");
	output_byte(output, ',');
	message_term(output, text_field(&event->view, "message"), sent.bytes, sent.flags);
	if (!sends)
		return;
	output_byte(output, ',');
	pid_term(output, event->process->pid, event->process->tid, event->process->runtime_process);
}

static void erlang_message(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEND, sent);
	int is_receive = event->view.id == LORG_EVENT_RECEIVE;
	if (event->side == SIDE_PORT) {
		erlang_port_message(formatter, event);
		return;
	}
	struct output *output = begin_process(formatter, event->process, event->view.description->name);
	output_byte(output, ',');
	message_term(output, text_field(&event->view, "message"), sent.bytes, sent.flags);
	if (is_receive)
		return;
	output_byte(output, ',');
	port_term(output, event, sent.object, sent.generation);
}

static void erlang_signal_sent(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SIGNAL_SENT, sent);
	numbers_signal_sent(formatter->trace, event, &sent);
	struct output *output =
		begin_process(formatter, event->process, sent.error ? "send_to_non_existing_process" : "send");
	output_byte(output, ',');
	signal_term(output, sent.signal);
	if (sent.target == 1)
		output_printf(output, ",{group,%d}", sent.to_pid);
	else if (sent.target == 2)
		output_text(output, ",all");
	else
		output_printf(output, ",<%d.%u.0>", sent.to_pid, sent.to_tid ? sent.to_tid : (uint32_t)sent.to_pid);
}

static void erlang_signal_received(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SIGNAL_RECEIVED, received);
	struct output *output = begin_process(formatter, event->process, "receive");
	output_byte(output, ',');
	signal_term(output, received.signal);
}

/* The thread that a port is linked to: which opened it; of an inherited one its program's first. */
static void owner_term(struct formatter *formatter, const struct trace_event *event, int32_t fd, uint32_t generation)
{
	const struct trace_port *port = trace_port(formatter->trace, event->process->image, fd, generation);
	const struct trace_process *opener = port ? &formatter->trace->processes[port->opener] : event->process;
	if (!port || port->inherited)
		pid_term(formatter->output, event->process->pid, event->process->pid, 0);
	else
		pid_term(formatter->output, opener->pid, opener->tid, opener->runtime_process);
}

/* A message of its own between a process and its port, unless it is not to be shown. */
static struct output *link_message(struct formatter *formatter, const struct trace_event *event, uint32_t id, uint32_t gate)
{
	uint32_t asked = formatter->trace->asked ? formatter->trace->asked : UINT32_MAX;
	if (event->side != SIDE_BOTH)
		asked = event->side == SIDE_PROCESS ? LORG_GATE_PROCESS : LORG_GATE_PORT;
	if (!(asked & gate) || (formatter->shown && !formatter->shown[id]))
		return NULL;
	if (formatter->messages++)
		end(formatter, event->time, event->number);
	return begin(formatter);
}

/* {trace, Owner, Tag, Port}, of the owner's kind of events. */
static void owner_message(struct formatter *formatter, const struct trace_event *event, uint32_t id, int32_t fd,
			  uint32_t generation)
{
	struct output *output = link_message(formatter, event, id, LORG_GATE_PROCESS);
	if (!output)
		return;
	owner_term(formatter, event, fd, generation);
	output_byte(output, ',');
	atom(output, event_description(id)->name);
	output_byte(output, ',');
	port_term(output, event, (uint32_t)fd, generation);
}

/* As trace(3) has it, the opening of a port is three messages: its own two, and its owner's. */
static void erlang_open(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, OPEN, opened);
	struct output *output = link_message(formatter, event, LORG_EVENT_OPEN, LORG_GATE_PORT);
	if (output) {
		port_term(output, event, (uint32_t)opened.fd, opened.generation);
		output_text(output, ",open,");
		owner_term(formatter, event, opened.fd, opened.generation);
		output_byte(output, ',');
		atom(output, names_driver(opened.driver));
	}
	output = link_message(formatter, event, LORG_EVENT_GETTING_LINKED, LORG_GATE_PORT);
	if (output) {
		port_term(output, event, (uint32_t)opened.fd, opened.generation);
		output_text(output, ",getting_linked,");
		owner_term(formatter, event, opened.fd, opened.generation);
	}
	owner_message(formatter, event, LORG_EVENT_LINK, opened.fd, opened.generation);
}

static void erlang_closed(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CLOSED, closed);
	struct output *output = link_message(formatter, event, LORG_EVENT_CLOSED, LORG_GATE_PORT);
	if (output) {
		port_term(output, event, (uint32_t)closed.fd, closed.generation);
		output_text(output, ",closed,");
		reason_term(output, closed.reason, closed.status);
	}
	owner_message(formatter, event, LORG_EVENT_GETTING_UNLINKED, closed.fd, closed.generation);
}

static void erlang_connected(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CONNECTED, connected);
	struct output *output = begin_port(formatter, event, (uint32_t)connected.fd, connected.generation, "connected");
	output_byte(output, ',');
	if (connected.error)
		error_term(output, connected.error);
	else
		address_atom(output, text_field(&event->view, "peer"));
}

static void erlang_port_command(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, PORT_IN, in);
	struct output *output =
		begin_port(formatter, event, (uint64_t)(int64_t)in.fd, in.generation, event_tag(&event->view));
	output_byte(output, ',');
	output_text(output, names_port_command(in.command));
}

static void erlang_wait(struct formatter *formatter, const struct trace_event *event)
{
	begin_process(formatter, event->process, event_tag(&event->view));
	output_byte(formatter->output, ',');
	mfa_hook(formatter, (uint32_t)event_number_named(&event->view, "hook", UINT32_MAX));
}

static void erlang_gap(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, GAP, gap);
	numbers_gap(formatter->trace, event, &gap);
	struct output *output = begin_process(formatter, event->process, "gap");
	output_text(output, ",{");
	string(output, text_field(&event->view, "what"));
	output_byte(output, ',');
	string(output, text_field(&event->view, "why"));
	output_printf(output, ",%" PRIu64 "}", gap.count);
}

static void erlang_lost(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LOST, lost);
	struct output *output = begin_process(formatter, event->process, "lost");
	output_printf(output, ",{%" PRIu64 ",", lost.count);
	string(output, text_field(&event->view, "why"));
	output_byte(output, '}');
}

static void erlang_exception(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, CATCH, caught);
	struct output *output = begin_process(formatter, event->process, event_tag(&event->view));
	struct trace_text type = text_field(&event->view, "type");
	output_byte(output, ',');
	if (type.length)
		atom_bytes(output, type);
	else
		output_text(output, "undefined");
	output_byte(output, ',');
	if (!caught.caller) {
		output_text(output, "undefined");
		return;
	}
	const struct place *where =
		names_caller(formatter->names, event->process->image, caught.caller, event->view.tick, 1);
	module_function(output, where);
	source_end(output, where, where->line);
}

/* Any event without a form of its own: a list of its fields. */
static void erlang_fields(struct formatter *formatter, const struct trace_event *event)
{
	const struct event_view *view = &event->view;
	struct output *output = begin_process(formatter, event->process, event_tag(view));
	const char *separator = "";
	output_text(output, ",[");
	for (unsigned i = 0; view->description && i < view->description->field_count; i++) {
		const struct event_field *field = &view->description->field[i];
		struct trace_text text;
		if (strcmp(field->name, "reserved") == 0)
			continue;
		output_text(output, separator);
		separator = ",";
		output_byte(output, '{');
		atom(output, field->name);
		output_byte(output, ',');
		switch (field->kind) {
		case FIELD_TEXT:
			text.bytes = event_bytes(view, i, &text.length);
			string(output, text);
			break;
		case FIELD_BLOB:
			text.bytes = event_bytes(view, i, &text.length);
			binary(output, text);
			break;
		case FIELD_I64:
		case FIELD_I32: output_signed(output, (int64_t)event_number(view, i)); break;
		case FIELD_U64:
		case FIELD_U32: output_number(output, event_number(view, i)); break;
		}
		output_byte(output, '}');
	}
	output_byte(output, ']');
}

/* ---- system events: {monitor, Pid or Port, Event, Info}, which have no time stamps ---- */

static void heap_sizes(struct output *output, struct trace_text terms)
{
	struct lorg_monitor_heap heap = {0};
	memcpy(&heap, terms.bytes, terms.length < sizeof heap ? terms.length : sizeof heap);
	output_printf(output, "{heap_size,%" PRIu64 "},{heap_block_size,%" PRIu64 "},{mbuf_size,%" PRIu64 "},{stack_size,%" PRIu64
		      "},{old_heap_size,%" PRIu64 "},{old_heap_block_size,%" PRIu64 "}",
		      heap.heap_size, heap.heap_block_size, heap.mbuf_size, heap.stack_size, heap.old_heap_size,
		      heap.old_heap_block_size);
}

static void location(struct formatter *formatter, const char *name, uint32_t hook)
{
	output_printf(formatter->output, ",{%s,", name);
	if (hook == UINT32_MAX)
		output_text(formatter->output, "undefined");
	else
		mfa_hook(formatter, hook);
	output_byte(formatter->output, '}');
}

static const char *port_operation(const struct trace_hook *hook)
{
	if (!hook)
		return "timeout";
	return strstr(hook->name, "recv") || strstr(hook->name, "read") || strstr(hook->name, "receive") ? "input" : "output";
}

static void schedule_info(struct formatter *formatter, uint64_t ms, const struct lorg_monitor_schedule *about)
{
	output_printf(formatter->output, "[{timeout,%" PRIu64 "}", ms);
	if (about->as_port) {
		output_printf(formatter->output, ",{port_op,%s}]", port_operation(trace_hook(formatter->trace, about->out_hook)));
		return;
	}
	location(formatter, "in", about->in_hook);
	location(formatter, "out", about->out_hook);
	output_byte(formatter->output, ']');
}

static void erlang_monitor(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, LONG_GC, told);
	struct output *output = formatter->output;
	struct trace_text terms = text_field(&event->view, "terms");
	struct lorg_monitor_schedule about = {.in_hook = UINT32_MAX, .out_hook = UINT32_MAX};
	memcpy(&about, terms.bytes, terms.length < sizeof about ? terms.length : sizeof about);
	uint32_t id = event->view.id, fd = (uint32_t)told.object, generation = (uint32_t)(told.object >> 32) & INT32_MAX;
	int as_port = terms.length == sizeof about && about.as_port;
	output_text(output, "{monitor,");
	if (as_port)
		port_term(output, event, fd, generation);
	else
		pid_term(output, event->process->pid, event->process->tid, event->process->runtime_process);
	output_printf(output, ",%s,", event_tag(&event->view));
	switch (id) {
	case LORG_EVENT_LONG_GC:
		output_printf(output, "[{timeout,%" PRIu64 "},", told.value);
		heap_sizes(output, terms);
		output_byte(output, ']');
		break;
	case LORG_EVENT_LARGE_HEAP:
		output_byte(output, '[');
		heap_sizes(output, terms);
		output_byte(output, ']');
		break;
	case LORG_EVENT_LONG_SCHEDULE: schedule_info(formatter, told.value, &about); break;
	case LORG_EVENT_LONG_MESSAGE_QUEUE: output_text(output, told.value ? "true" : "false"); break;
	default: port_term(output, event, fd, generation); break;
	}
	output_text(output, "}\n");
}

static int is_monitor(uint32_t id)
{
	return id >= LORG_EVENT_LONG_GC && id <= LORG_EVENT_BUSY_DIST_PORT;
}

static void event_tuple(struct formatter *formatter, const struct trace_event *event)
{
	const struct event_view *view = &event->view;
	const struct trace_image *image = event->process->image;
	switch (view->id) {
	case LORG_EVENT_ENTER:
	case LORG_EVENT_EXIT_FUNCTION:
	case LORG_EVENT_ENTER_LINE:
	case LORG_EVENT_EXIT_LINE:
	case LORG_EVENT_CATCH_LINE:
		function_tuple(formatter, event,
			       names_function(formatter->names, image, (uint32_t)event_number(view, 0), view->effective),
			       view->id == LORG_EVENT_ENTER || view->id == LORG_EVENT_EXIT_FUNCTION
				       ? 0
				       : (uint32_t)event_number(view, 1));
		break;
	case LORG_EVENT_ENTER_ADDRESS:
	case LORG_EVENT_EXIT_ADDRESS:
		function_tuple(formatter, event,
			       names_address(formatter->names, image, event_number(view, 0), view->tick, 1), 0);
		break;
	case LORG_EVENT_CALL_ENTRY:
	case LORG_EVENT_RETURN: call_tuple(formatter, event, (uint32_t)event_number(view, 0)); break;
	case LORG_EVENT_CALL: erlang_call(formatter, event); break;
	case LORG_EVENT_RETURN_FROM: erlang_return_from(formatter, event); break;
	case LORG_EVENT_RETURN_TO: erlang_return_to(formatter, event); break;
	case LORG_EVENT_EXCEPTION_FROM: erlang_exception_from(formatter, event); break;
	case LORG_EVENT_THROW:
	case LORG_EVENT_CATCH:
	case LORG_EVENT_CATCH_AGAIN: erlang_exception(formatter, event); break;
	case LORG_EVENT_SPAWN: erlang_spawn(formatter, event); break;
	case LORG_EVENT_SPAWNED: erlang_spawned(formatter, event); break;
	case LORG_EVENT_EXEC:
	case LORG_EVENT_EXEC_FAILED: erlang_exec(formatter, event); break;
	case LORG_EVENT_EXIT: erlang_exit(formatter, event); break;
	case LORG_EVENT_REAPED: erlang_reaped(formatter, event); break;
	case LORG_EVENT_REGISTER:
	case LORG_EVENT_UNREGISTER: erlang_register(formatter, event); break;
	case LORG_EVENT_LINK:
	case LORG_EVENT_UNLINK:
	case LORG_EVENT_GETTING_LINKED:
	case LORG_EVENT_GETTING_UNLINKED: erlang_link(formatter, event); break;
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_RECEIVE:
		erlang_message(formatter, event);
		erlang_added(formatter, event, text_field(view, "value"));
		break;
	case LORG_EVENT_TIMEOUT: output_text(begin_process(formatter, event->process, "receive"), ",timeout"); break;
	case LORG_EVENT_SIGNAL_SENT:
		erlang_signal_sent(formatter, event);
		erlang_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_SIGNAL_RECEIVED:
		erlang_signal_received(formatter, event);
		erlang_added(formatter, event, text_field(view, "message_value"));
		break;
	case LORG_EVENT_DISPLAY: erlang_display(formatter, event); break;
	case LORG_EVENT_FUNCTION_COUNTERS: erlang_counters(formatter, event); break;
	case LORG_EVENT_OPEN: erlang_open(formatter, event); break;
	case LORG_EVENT_CLOSED: erlang_closed(formatter, event); break;
	case LORG_EVENT_CONNECTED: erlang_connected(formatter, event); break;
	case LORG_EVENT_PORT_IN:
	case LORG_EVENT_PORT_OUT: erlang_port_command(formatter, event); break;
	case LORG_EVENT_IN:
	case LORG_EVENT_OUT:
	case LORG_EVENT_OPEN_CALL: erlang_wait(formatter, event); break;
	case LORG_EVENT_OUT_EXITED: output_text(begin_process(formatter, event->process, "out_exited"), ",0"); break;
	case LORG_EVENT_GAP: erlang_gap(formatter, event); break;
	case LORG_EVENT_LOST: erlang_lost(formatter, event); break;
	default: erlang_fields(formatter, event); break;
	}
}

/* ---- {seq_trace, Label, {send or 'receive', {Previous, This}, From, To, Msg}}: stamped as the token says ---- */

static int stamps_of_token(uint32_t flags)
{
	enum { TIMESTAMP = 8, STRICT = 16, MONOTONIC = 32 };
	return flags & TIMESTAMP ? TIMESTAMPS_WALL : flags & STRICT ? TIMESTAMPS_STRICT : flags & MONOTONIC ? TIMESTAMPS_MONOTONIC : TIMESTAMPS_NONE;
}

static void erlang_sequence(struct formatter *formatter, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, SEQ_TRACE, told);
	struct output *output = formatter->output;
	const struct trace_process *self = event->process;
	int sends = told.kind == 1, stamps = formatter->timestamps;
	output_printf(output, "{seq_trace,%u,{%s,{%u,%u},", told.label, sends ? "send" : "'receive'", told.previous, told.serial);
	pid_term(output, told.from_pid, told.from_tid, 0);
	output_byte(output, ',');
	if (sends)
		port_term(output, event, told.object, told.generation);
	else
		pid_term(output, self->pid, self->tid, self->runtime_process);
	output_byte(output, ',');
	message_term(output, text_field(&event->view, "message"), told.bytes, 0);
	output_byte(output, '}');
	formatter->timestamps = stamps_of_token(told.flags);
	end(formatter, event->time, event->number);
	formatter->timestamps = stamps;
}

void format_erlang(struct formatter *formatter, const struct trace_event *event)
{
	if (event->view.id == LORG_EVENT_SEQ_TRACE) {
		formatter->messages = 1;
		erlang_sequence(formatter, event);
		return;
	}
	if (is_monitor(event->view.id)) {
		formatter->messages = 1;
		erlang_monitor(formatter, event);
		return;
	}
	formatter->messages = event->view.id != LORG_EVENT_OPEN && event->view.id != LORG_EVENT_CLOSED;
	event_tuple(formatter, event);
	if (formatter->messages)
		end(formatter, event->time, event->number);
}

void format_erlang_lost(struct formatter *formatter, const struct trace_process *process, uint64_t time, uint64_t hlc,
			uint64_t count, const char *why)
{
	struct output *output = begin_process(formatter, process, "lost");
	output_printf(output, ",{%" PRIu64 ",", count);
	string(output, text_of(why));
	output_byte(output, '}');
	(void)hlc;
	end(formatter, time, 0);
}

void format_erlang_gap(struct formatter *formatter, const struct trace_gap *gap, uint64_t time, uint64_t hlc)
{
	struct output *output = begin_process(formatter, NULL, "gap");
	output_text(output, ",{");
	string(output, text_of(gap->what));
	output_byte(output, ',');
	string(output, text_of(gap->why));
	output_printf(output, ",%" PRIu64 "}", gap->count);
	(void)hlc;
	end(formatter, time, 0);
}
