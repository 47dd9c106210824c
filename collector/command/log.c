/* SPDX-License-Identifier: MIT */
/* log.c: lorg log. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/reading.h"
#include "collector/format/format.h"
#include "collector/read/part.h"

enum { THREADS_MAXIMUM = 64, PROGRAMS_MAXIMUM = 64 };

struct thread_filter {
	uint32_t pid, tid;
	int has_tid;
};

struct options {
	const char *directory;
	enum { LOG_TEXT, LOG_JSON, LOG_ERLANG } format;
	struct thread_filter threads[THREADS_MAXIMUM];
	unsigned thread_count;
	const char *programs[PROGRAMS_MAXIMUM]; /* pid, name or path */
	unsigned program_count;
	unsigned char shown[LORG_EVENT_LAST]; /* by event id */
	int kinds_given, everything;
	uint64_t from, to; /* ns since the first event */
	int timestamps, no_pager;
};

/* ---- kinds ------------------------------------------------------------- */

/* Groups of events as they are shown, by the names that lorg run knows them by. */
static const struct kind {
	const char *name;
	uint8_t events[24];
} kinds[] = {
	{"procs",
	 {LORG_EVENT_SPAWN, LORG_EVENT_SPAWNED, LORG_EVENT_EXEC, LORG_EVENT_EXEC_FAILED, LORG_EVENT_EXIT, LORG_EVENT_REAPED,
	  LORG_EVENT_REGISTER, LORG_EVENT_UNREGISTER, LORG_EVENT_LINK, LORG_EVENT_UNLINK, LORG_EVENT_GETTING_LINKED,
	  LORG_EVENT_GETTING_UNLINKED}},
	{"ports",
	 {LORG_EVENT_OPEN, LORG_EVENT_CLOSED, LORG_EVENT_CONNECTED, LORG_EVENT_PASSED, LORG_EVENT_REGISTER,
	  LORG_EVENT_UNREGISTER}},
	{"send", {LORG_EVENT_SEND, LORG_EVENT_SEND_TO_NON_EXISTING, LORG_EVENT_SIGNAL_SENT}},
	{"receive", {LORG_EVENT_RECEIVE, LORG_EVENT_TIMEOUT, LORG_EVENT_SIGNAL_RECEIVED}},
	{"running",
	 {LORG_EVENT_IN, LORG_EVENT_OUT, LORG_EVENT_OUT_EXITED, LORG_EVENT_PORT_IN, LORG_EVENT_PORT_OUT,
	  LORG_EVENT_OPEN_CALL, LORG_EVENT_ACQUIRED, LORG_EVENT_RELEASED, LORG_EVENT_WOKE}},
	{"calls",
	 {LORG_EVENT_ENTER, LORG_EVENT_EXIT_FUNCTION, LORG_EVENT_ENTER_LINE, LORG_EVENT_EXIT_LINE, LORG_EVENT_CATCH_LINE,
	  LORG_EVENT_CALL_ENTRY, LORG_EVENT_RETURN, LORG_EVENT_CALL, LORG_EVENT_RETURN_FROM, LORG_EVENT_RETURN_TO,
	  LORG_EVENT_EXCEPTION_FROM, LORG_EVENT_THROW, LORG_EVENT_CATCH, LORG_EVENT_CATCH_AGAIN, LORG_EVENT_ENTER_ADDRESS,
	  LORG_EVENT_EXIT_ADDRESS}},
	{"allocations", {LORG_EVENT_ALLOCATE, LORG_EVENT_FREE, LORG_EVENT_HEAP_GROWN, LORG_EVENT_GC_MAX_HEAP_SIZE}},
	{"counts", {LORG_EVENT_COUNTERS, LORG_EVENT_FUNCTION_COUNTERS}},
	{"garbage_collection",
	 {LORG_EVENT_GC_MINOR_START, LORG_EVENT_GC_MINOR_END, LORG_EVENT_GC_MAJOR_START, LORG_EVENT_GC_MAJOR_END,
	  LORG_EVENT_GC_MAX_HEAP_SIZE}},
};

static int has_name(uint32_t id, const char *name)
{
	static const uint8_t no_fields[256];
	struct event_view view = {.id = id, .fields = no_fields, .description = event_description(id)};
	return view.description && !part_is_composed(id) && (strcmp(view.description->name, name) == 0 || strcmp(event_tag(&view), name) == 0);
}

/* Sets `shown` for the events of a group, or of that name or tag; 0 when there are none. */
static int set_kind(struct options *options, const char *name, unsigned char shown)
{
	int found = 0;
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (size_t i = 0; strcmp(kinds[k].name, name) == 0 && i < sizeof kinds[k].events && kinds[k].events[i];
		     i++) {
			options->shown[kinds[k].events[i]] = shown;
			found = 1;
		}
	if (found)
		return 1;
	for (uint32_t id = 0; id < LORG_EVENT_LAST; id++)
		if (has_name(id, name)) {
			options->shown[id] = shown;
			found = 1;
		}
	return found;
}

static void show_usual(struct options *options)
{
	for (uint32_t id = 0; id < LORG_EVENT_LAST; id++)
		options->shown[id] = !event_is_about_recording(id);
}

static void parse_kinds(struct options *options, char *list)
{
	char *rest = NULL;
	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		int without = *name == '-';
		name += without;
		if (!options->kinds_given && without)
			show_usual(options);
		options->kinds_given = 1;
		if (strcmp(name, "all") == 0) {
			memset(options->shown, !without, sizeof options->shown);
			options->everything = !without;
		} else if (!set_kind(options, name, !without)) {
			lorg_error(
				name, "no such kind of event",
				"use procs, ports, send, receive, running, calls, allocations, garbage_collection, counts, all, or an event's name");
			exit(EXIT_STATUS_USAGE);
		}
	}
}

/* ---- other options ----------------------------------------------------- */

/* A duration since the beginning: 1.5, 20ms, 300us, 7ns, 2s. */
static uint64_t parse_time(const char *text)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
	char *end;
	errno = 0;
	double value = strtod(text, &end);
	for (size_t i = 0; end != text && !errno && i < sizeof units / sizeof *units; i++)
		if (strcmp(end, units[i].unit) == 0 && value >= 0 && value * units[i].ns < 9e18)
			return (uint64_t)(value * units[i].ns);
	lorg_error(text, "not a time", "give seconds since the first event, or a number with s, ms, us or ns");
	exit(EXIT_STATUS_USAGE);
}

/* 4211, 4211.4213, <4211.4213>, <4211.4213.0> */
static void parse_thread(struct options *options, const char *text)
{
	const char *at = text + (*text == '<');
	char *end;
	errno = 0;
	unsigned long pid = strtoul(at, &end, 10), tid = 0;
	int good = end != at && !errno && *at != '-' && pid <= UINT32_MAX, has_tid = *end == '.';
	if (good && has_tid) {
		at = end + 1;
		tid = strtoul(at, &end, 10);
		good = end != at && !errno && *at != '-' && tid <= UINT32_MAX;
	}
	if (good && *end == '.') { /* the number of a runtime's process is not looked at */
		at = end + 1;
		strtoul(at, &end, 10);
		good = end != at;
	}
	if (!good || (*end && strcmp(end, ">") != 0)) {
		lorg_error(text, "not a process", "give PID or PID.TID");
		exit(EXIT_STATUS_USAGE);
	}
	if (options->thread_count == THREADS_MAXIMUM) {
		lorg_error(text, "too many processes", "give at most 64");
		exit(EXIT_STATUS_USAGE);
	}
	options->threads[options->thread_count++] = (struct thread_filter){(uint32_t)pid, (uint32_t)tid, has_tid};
}

enum option_key { KEY_PROCESS = 256, KEY_PROGRAM, KEY_FROM, KEY_TO, KEY_TIMESTAMPS, KEY_NO_PAGER };

static const struct argp_option log_options[] = {
	{"format", 'f', "FORMAT", 0, "text (the default), json (one object a line) or erlang (terms of trace(3))", 1},
	{"timestamps", KEY_TIMESTAMPS, NULL, 0, "With erlang: trace_ts and {Nanoseconds, Number}", 1},
	{"kind", 'k', "LIST", 0,
	 "Only these: procs, ports, send, receive, running, calls, allocations, garbage_collection, counts, or names of events, separated by commas; a "
	 "leading '-' takes one out; all: also what the recording says about itself",
	 2},
	{"thread", 't', "PID[.TID]", 0, "Only this thread, or all of this program; may be repeated", 2},
	{"process", KEY_PROCESS, "PID[.TID]", 0, "The same", 2},
	{"program", KEY_PROGRAM, "PID|NAME", 0, "Only programs with this pid, or this base name; may be repeated", 2},
	{"from", KEY_FROM, "TIME", 0, "Only from this time on: seconds since the first event, or with s, ms, us, ns", 2},
	{"to", KEY_TO, "TIME", 0, "Only up to this time", 2},
	{"no-pager", KEY_NO_PAGER, NULL, 0, "Write to the terminal directly", 3},
	{0},
};

static const char log_arguments[] = "[DIR]";
static const char log_text[] =
	"Shows what happened in a recording (lorg.trace), event by event, all threads in the order of time."
	"\vdoc/FORMATS.md tells what each line holds.\n\n"
	"  lorg log --kind spawn,exec,exit        who started whom, and how it ended\n"
	"  lorg log --thread 4211.4213 --from 20ms --to 25ms\n";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'f':
		if (strcmp(argument, "text") != 0 && strcmp(argument, "json") != 0 && strcmp(argument, "erlang") != 0) {
			lorg_error(argument, "no such format", "use text, json or erlang");
			exit(EXIT_STATUS_USAGE);
		}
		options->format = *argument == 't' ? LOG_TEXT : *argument == 'j' ? LOG_JSON : LOG_ERLANG;
		return 0;
	case 'k': parse_kinds(options, argument); return 0;
	case 't':
	case KEY_PROCESS: parse_thread(options, argument); return 0;
	case KEY_PROGRAM:
		if (options->program_count == PROGRAMS_MAXIMUM) {
			lorg_error(argument, "too many programs", "give at most 64");
			exit(EXIT_STATUS_USAGE);
		}
		options->programs[options->program_count++] = argument;
		return 0;
	case KEY_FROM: options->from = parse_time(argument); return 0;
	case KEY_TO: options->to = parse_time(argument); return 0;
	case KEY_TIMESTAMPS: options->timestamps = 1; return 0;
	case KEY_NO_PAGER: options->no_pager = 1; return 0;
	case ARGP_KEY_ARG:
		if (options->directory) {
			lorg_error(argument, "one directory is enough", "see lorg log --help");
			exit(EXIT_STATUS_USAGE);
		}
		options->directory = argument;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp log_argp = {log_options, parse_option, log_arguments, log_text, NULL, NULL, NULL};

/* ---- what is shown ----------------------------------------------------- */

static int is_text(struct trace_text text, const char *wanted)
{
	return text.length == strlen(wanted) && memcmp(text.bytes, wanted, text.length) == 0;
}

static int program_is(const struct trace_process *process, const char *wanted)
{
	char pid[16];
	snprintf(pid, sizeof pid, "%u", process->pid);
	if (strcmp(wanted, pid) == 0)
		return 1;
	return is_text(base_name(process->image->file), wanted) || is_text(process->image->file, wanted) ||
	       is_text(program_name(process->image), wanted);
}

static int process_is_shown(const struct options *options, const struct trace_process *process)
{
	unsigned i;
	for (i = 0; i < options->thread_count; i++)
		if (options->threads[i].pid == process->pid &&
		    (!options->threads[i].has_tid || options->threads[i].tid == process->tid))
			break;
	if (options->thread_count && i == options->thread_count)
		return 0;
	for (i = 0; i < options->program_count; i++)
		if (program_is(process, options->programs[i]))
			break;
	return !options->program_count || i < options->program_count;
}

struct format {
	format_function *event;
	format_lost_function *lost;
	format_gap_function *gap;
};

static const struct format formats[] = {
	[LOG_TEXT] = {format_text, format_text_lost, format_text_gap},
	[LOG_JSON] = {format_json, format_json_lost, format_json_gap},
	[LOG_ERLANG] = {format_erlang, format_erlang_lost, format_erlang_gap},
};

static const char lost_why[] = "no room in the arena";

/* Which processes are shown, asked once each. NULL: out of memory. */
static unsigned char *shown_processes(const struct options *options, const struct trace *trace)
{
	unsigned char *shown = calloc(trace->process_count + 1, 1);
	for (unsigned i = 0; shown && i < trace->process_count; i++)
		shown[i] = (unsigned char)process_is_shown(options, &trace->processes[i]);
	return shown;
}

/* In trace(3)'s form the opening of a port, and its closing, are told to its owner too. */
static int kind_is_shown(const struct options *options, uint32_t id)
{
	const unsigned char *shown = options->shown;
	if (id >= LORG_EVENT_LAST)
		return options->everything;
	if (options->format == LOG_ERLANG && id == LORG_EVENT_OPEN)
		return shown[LORG_EVENT_OPEN] || shown[LORG_EVENT_LINK] || shown[LORG_EVENT_GETTING_LINKED];
	if (options->format == LOG_ERLANG && id == LORG_EVENT_CLOSED)
		return shown[LORG_EVENT_CLOSED] || shown[LORG_EVENT_GETTING_UNLINKED];
	return shown[id];
}

static int is_shown(const struct options *options, const struct trace_event *event, uint64_t since)
{
	if ((event->superseded && !options->everything) || !kind_is_shown(options, event->view.id))
		return 0;
	return since >= options->from && since <= options->to;
}

static void show_damage(const struct format *format, struct formatter *formatter, uint64_t time, uint64_t hlc)
{
	const struct trace *trace = formatter->trace;
	for (unsigned i = 0; i < trace->gap_count; i++)
		if (trace->gaps[i].damage)
			format->gap(formatter, &trace->gaps[i], time, ++hlc);
}

/* Returns 0, or -1 when out of memory. */
static int show_events(struct reading *reading, const struct options *options, struct formatter *formatter)
{
	const struct format *format = &formats[options->format];
	unsigned char *shown = shown_processes(options, reading->trace);
	struct merge *merge = merge_start(reading->trace);
	struct trace_event event = {.hlc = 0};
	int more = shown && merge ? 1 : -1;
	while (more > 0 && !reading->output.failure && (more = merge_next(merge, &event)) > 0) {
		uint64_t since = event.time > formatter->start_ns ? event.time - formatter->start_ns : 0;
		int of_shown = shown[event.process->number];
		if (event.lost && of_shown)
			format->lost(formatter, event.process, event.time, event.hlc, event.lost, lost_why);
		if (of_shown && is_shown(options, &event, since))
			format->event(formatter, &event);
		else
			format_skip(formatter, &event);
		output_may_flush(&reading->output);
	}
	if (more == 0)
		show_damage(format, formatter, event.time, event.hlc);
	merge_end(merge);
	free(shown);
	return more < 0 ? -1 : 0;
}

/* Times are shown since the first event of a program; of any, where there is no program. */
static uint64_t start_of(const struct trace *trace)
{
	if (trace->last_tick || trace->packet_count == 0)
		return trace_time(trace, trace->first_tick);
	return trace_time(trace, trace->packets[0].earliest);
}

static int show(struct reading *reading, const struct options *options)
{
	struct formatter formatter = {
		.trace = reading->trace,
		.names = reading->names,
		.output = &reading->output,
		.start_ns = start_of(reading->trace),
		.colour = reading->pager.terminal,
		.timestamps = options->timestamps,
		.shown = options->shown,
	};
	int result = 0;
	if (options->format == LOG_JSON) {
		formatter.json = json_new(&reading->output);
		formatter.causes = causes_new();
		result = formatter.json && formatter.causes ? 0 : -1;
	}
	if (result == 0)
		result = show_events(reading, options, &formatter);
	if (result == 0 && options->format == LOG_TEXT)
		format_coverage(&reading->output, reading->trace);
	json_free(formatter.json);
	causes_free(formatter.causes);
	return result;
}

int command_log(int argc, char **argv)
{
	struct options options = {.to = UINT64_MAX};
	struct reading reading;
	command_parse(&log_argp, argc, argv, &options);
	if (!options.directory)
		options.directory = DEFAULT_DIRECTORY;
	if (!options.kinds_given)
		show_usual(&options);
	if (reading_open(&reading, options.directory, 1) != 0)
		return EXIT_STATUS_FAILURE;
	reading_begin_output(&reading, options.format == LOG_TEXT && !options.no_pager);
	int result = show(&reading, &options);
	if (result != 0)
		lorg_error(options.directory, "out of memory", "free some, or read it on a larger machine");
	int status = reading_close(&reading, 1);
	return result != 0 ? EXIT_STATUS_FAILURE : status;
}
