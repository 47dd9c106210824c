/* SPDX-License-Identifier: MIT */
/* report_json.c: the report as one JSON object; its keys are in doc/FORMATS.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <lorg/plan.h>

#include "collector/format/format.h"
#include "collector/format/json_keys.h"
#include "collector/format/report.h"

static void begin_list(struct json *json, const char *key)
{
	json_key(json, key);
	json_begin_list(json);
}

static void functions(struct json *json, const struct report *report)
{
	begin_list(json, "functions");
	for (unsigned i = 0; i < report->function_count; i++) {
		const struct report_function *function = &report->functions[i];
		json_begin(json);
		key_text(json, "function", function->function);
		key_text(json, "module", function->module);
		if (function->symbol)
			key_text(json, "symbol", function->symbol);
		key_number(json, "entries", function->entries);
		key_number(json, "total_ns", function->total);
		key_number(json, "self_ns", function->self);
		if (function->words)
			key_number(json, "words", function->words);
		json_end(json);
	}
	json_end_list(json);
}

static void key_reason(struct json *json, const struct trace_exit *gone)
{
	json_key(json, "reason");
	if (!gone->known) {
		json_null(json);
	} else if (gone->reason == LORG_REASON_NORMAL) {
		json_number(json, 0);
	} else if (gone->reason == LORG_REASON_STATUS) {
		json_signed(json, gone->status);
	} else if (gone->reason == LORG_REASON_SIGNAL) {
		json_begin(json);
		json_key(json, "signal");
		json_signed(json, gone->status);
		json_end(json);
	} else {
		json_text(json, gone->reason == LORG_REASON_KILLED ? "killed"
				: gone->reason == LORG_REASON_EXEC ? "exec"
								   : "unknown");
	}
}

static void key_process(struct json *json, const char *key, const struct trace_process *process)
{
	char text[40];
	if (process->runtime_process)
		snprintf(text, sizeof text, "<%u.%u.%u>", process->pid, process->tid, process->runtime_process);
	else
		snprintf(text, sizeof text, "<%u.%u>", process->pid, process->tid);
	key_text(json, key, text);
}

static void threads(struct json *json, const struct report *report)
{
	const struct trace *trace = report->trace;
	begin_list(json, "threads");
	for (unsigned i = 0; i < trace->process_count; i++) {
		const struct trace_process *process = &trace->processes[i];
		const struct profile_thread *thread = &report->profile->threads[i];
		if (process->pid == 0)
			continue;
		json_begin(json);
		key_process(json, "process", process);
		key_number(json, "program", process->pid);
		key_number(json, "thread", process->tid);
		if (process->name.length)
			key_bytes(json, "name", process->name);
		key_number(json, "start", trace_time(trace, process->first_tick));
		key_number(json, "total_ns", trace_duration(trace, process->first_tick, process->last_tick));
		key_number(json, "waited_ns", trace_ticks_ns(trace, thread->waited));
		key_number(json, "waits", thread->waits);
		key_number(json, "events", process->event_count);
		key_number(json, "calls", thread->calls);
		key_number(json, "sent", thread->sent);
		key_number(json, "sent_bytes", thread->sent_bytes);
		key_number(json, "received", thread->received);
		key_number(json, "received_bytes", thread->received_bytes);
		key_number(json, "words_allocated", thread->words_allocated);
		key_number(json, "allocations", thread->allocations);
		key_number(json, "frees", thread->frees);
		key_number(json, "allocation_failures", thread->allocation_failures);
		key_number(json, "lost", process->lost);
		key_reason(json, &process->exit);
		json_end(json);
	}
	json_end_list(json);
}

static void programs(struct json *json, const struct report *report)
{
	const struct trace *trace = report->trace;
	begin_list(json, "programs");
	for (unsigned i = 0; i < trace->image_count; i++) {
		const struct trace_image *image = trace->images[i];
		struct trace_text argv = image->argv, argument;
		if (image->pid == 0)
			continue;
		json_begin(json);
		key_number(json, "program", image->pid);
		key_bytes(json, "file", image->file);
		begin_list(json, "argv");
		while (next_argument(&argv, &argument))
			json_bytes(json, argument.bytes, argument.length);
		json_end_list(json);
		key_text(json, "how", names_birth(image->birth));
		key_number(json, "parent", image->parent ? image->parent->pid : 0);
		key_number(json, "start", trace_time(trace, image->tick));
		key_reason(json, &image->exit);
		json_end(json);
	}
	json_end_list(json);
}

static void key_address(struct json *json, const char *key, struct trace_text address)
{
	char text[256];
	if (address.length == 0)
		return;
	json_key(json, key);
	json_bytes(json, text, names_socket_address(address.bytes, address.length, text, sizeof text));
}

/* What was counted of functions without events, a thread each. */
static void counted(struct json *json, const struct report *report, struct names *names)
{
	const struct profile *profile = report->profile;
	begin_list(json, "counted");
	for (unsigned i = 0; i < profile->count_count; i++) {
		const struct profile_count *count = &profile->counts[i];
		const struct profile_function *function = &profile->functions[count->function];
		const struct place *place = names_function(names, function->image, function->slot, function->tick);
		json_begin(json);
		key_text(json, "function", place->function);
		key_text(json, "module", place->module);
		key_process(json, "process", &report->trace->processes[count->thread]);
		key_number(json, "count", count->count);
		if (count->kind & LORG_KIND_TIME)
			key_number(json, "time_ns", trace_ticks_ns(report->trace, count->time));
		if (count->kind & LORG_KIND_MEMORY)
			key_number(json, "words", count->words);
		json_end(json);
	}
	json_end_list(json);
}

static void ports(struct json *json, const struct profile *profile)
{
	char text[64];
	begin_list(json, "ports");
	for (unsigned i = 0; i < profile->port_count; i++) {
		const struct profile_port *port = &profile->ports[i];
		json_begin(json);
		snprintf(text, sizeof text, "#Port<%u.%" PRIu64 ".%u>", port->image->pid, port->object, port->generation);
		key_text(json, "port", text);
		key_number(json, "program", port->image->pid);
		key_bytes(json, "file", port->image->file);
		key_number(json, "fd", port->object);
		key_text(json, "driver", names_driver(port->driver ? port->driver : LORG_DRIVER_UNKNOWN));
		if (port->name.length)
			key_bytes(json, "name", port->name);
		key_address(json, "local", port->local);
		key_address(json, "peer", port->peer);
		key_number(json, "sent", port->sent);
		key_number(json, "sent_bytes", port->sent_bytes);
		key_number(json, "received", port->received);
		key_number(json, "received_bytes", port->received_bytes);
		key_number(json, "ends", port->ends);
		key_number(json, "refused", port->refused);
		json_end(json);
	}
	json_end_list(json);
}

static void waits(struct json *json, const struct report *report, struct names *names)
{
	begin_list(json, "waits");
	for (uint32_t hook = 0; hook < LORG_HOOKS; hook++) {
		const struct profile_wait *wait = &report->profile->waits[hook];
		struct hook_name name;
		if (wait->count == 0 && wait->timeouts == 0)
			continue;
		names_hook(names, hook, &name);
		json_begin(json);
		key_text(json, "function", name.name);
		key_text(json, "module", name.library);
		key_number(json, "waits", wait->count);
		key_number(json, "total_ns", trace_ticks_ns(report->trace, wait->ticks));
		key_number(json, "longest_ns", trace_ticks_ns(report->trace, wait->longest));
		key_number(json, "timeouts", wait->timeouts);
		key_number(json, "open", wait->open);
		json_end(json);
	}
	json_end_list(json);
}

static void gaps(struct json *json, const char *key, const struct trace *trace, int damage)
{
	begin_list(json, key);
	for (unsigned i = 0; i < trace->gap_count; i++) {
		const struct trace_gap *gap = &trace->gaps[i];
		if (gap->damage != damage)
			continue;
		json_begin(json);
		key_text(json, "what", gap->what);
		key_text(json, "why", gap->why);
		key_number(json, "count", gap->count);
		json_end(json);
	}
	json_end_list(json);
}

static void untraced_names(const char *path, const char *why, void *context)
{
	struct json *json = context;
	json_begin(json);
	key_text(json, "file", path);
	key_text(json, "why", why);
	json_end(json);
}

static void coverage(struct json *json, const struct report *report, struct names *names)
{
	const struct trace *trace = report->trace;
	uint64_t traced = 0, threads_traced = 0, events = 0;
	for (unsigned i = 0; i < trace->image_count; i++)
		traced += trace->images[i]->pid != 0;
	for (unsigned i = 0; i < trace->process_count; i++) {
		if (trace->processes[i].pid == 0) /* the recording's own */
			continue;
		threads_traced++;
		events += trace->processes[i].event_count;
	}
	json_key(json, "coverage");
	json_begin(json);
	key_number(json, "programs", traced);
	key_number(json, "threads", threads_traced);
	key_number(json, "events", events);
	const char *unseen[16];
	unsigned unseen_count = never_seen(trace, unseen, sizeof unseen / sizeof *unseen);
	begin_list(json, "never_seen");
	for (unsigned i = 0; i < unseen_count; i++)
		json_text(json, unseen[i]);
	json_end_list(json);
	gaps(json, "not_traced", trace, 0);
	gaps(json, "damaged", trace, 1);
	begin_list(json, "without_names");
	symbols_troubles(names_symbols(names), untraced_names, json);
	json_end_list(json);
	json_key(json, "ended");
	json_boolean(json, trace->ended);
	json_end(json);
}

int report_json(struct output *output, const struct report *report, struct names *names)
{
	struct json *json = json_new(output);
	if (!json)
		return -1;
	json_begin(json);
	functions(json, report);
	programs(json, report);
	threads(json, report);
	counted(json, report, names);
	ports(json, report->profile);
	waits(json, report, names);
	key_number(json, "lost", report->trace->lost);
	json_key(json, "lower_bounds");
	json_boolean(json, report->profile->lower_bounds);
	coverage(json, report, names);
	json_end(json);
	json_end_line(json);
	json_free(json);
	return 0;
}
