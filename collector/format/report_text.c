/* SPDX-License-Identifier: MIT */
/* report_text.c: the report for people: tables, the most expensive first. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/plan.h>

#include "collector/format/format.h"
#include "collector/format/report.h"

enum { FUNCTIONS_SHOWN = 40, ROWS_SHOWN = 40, ARGUMENTS_SHOWN = 4, ARGUMENT_SHOWN = 40 };

struct table {
	struct output *output;
	int colour;
};

static void heading(struct table *table, const char *title, const char *columns)
{
	output_printf(table->output, "\n%s%s%s\n", table->colour ? "\033[1m" : "", title, table->colour ? "\033[0m" : "");
	output_printf(table->output, "%s%s%s\n", table->colour ? "\033[2m" : "", columns, table->colour ? "\033[0m" : "");
}

/* A duration with a unit that keeps it short. */
static const char *duration_text(uint64_t ns, char text[32])
{
	if (ns < 10000)
		snprintf(text, 32, "%" PRIu64 " ns", ns);
	else if (ns < 10000000)
		snprintf(text, 32, "%.1f us", (double)ns / 1e3);
	else if (ns < 10000000000)
		snprintf(text, 32, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(text, 32, "%.2f s", (double)ns / 1e9);
	return text;
}

static void duration(struct output *output, uint64_t ns)
{
	char text[32];
	output_printf(output, "%11s", duration_text(ns, text));
}

static void number(struct output *output, uint64_t value)
{
	output_printf(output, "%12" PRIu64, value);
}

static void safe(struct output *output, struct trace_text text)
{
	output_safe(output, text.bytes, text.length, 0);
}

static void more(struct output *output, unsigned total, unsigned shown)
{
	if (total > shown)
		output_printf(output, "%12s and %u more: --format json has all\n", "...", total - shown);
}

static void functions(struct table *table, const struct report *report)
{
	struct output *output = table->output;
	if (report->function_count == 0)
		return;
	heading(table, "Functions", "     entries        self       total  function");
	for (unsigned i = 0; i < report->function_count && i < FUNCTIONS_SHOWN; i++) {
		const struct report_function *function = &report->functions[i];
		number(output, function->entries);
		output_byte(output, ' ');
		duration(output, function->self);
		output_byte(output, ' ');
		duration(output, function->total);
		output_text(output, "  ");
		output_safe(output, function->module, strlen(function->module), 0);
		output_byte(output, ':');
		output_safe(output, function->function, strlen(function->function), 0);
		output_byte(output, '\n');
	}
	more(output, report->function_count, FUNCTIONS_SHOWN);
}

static void ended(struct output *output, const struct trace_exit *gone)
{
	char buffer[24];
	if (!gone->known)
		output_text(output, "-");
	else if (gone->reason == LORG_REASON_NORMAL)
		output_text(output, "normal");
	else if (gone->reason == LORG_REASON_STATUS)
		output_printf(output, "status %d", gone->status);
	else if (gone->reason == LORG_REASON_SIGNAL)
		output_text(output, names_signal((uint32_t)gone->status, buffer));
	else
		output_text(output, gone->reason == LORG_REASON_KILLED ? "cancelled"
				    : gone->reason == LORG_REASON_EXEC ? "exec"
								       : "unknown");
}

/* For qsort, which passes no context. The highest rank comes first. */
struct ranked {
	uint64_t rank;
	unsigned number;
};

static int by_rank(const void *left, const void *right)
{
	const struct ranked *a = left, *b = right;
	if (a->rank != b->rank)
		return a->rank > b->rank ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

struct program_sum {
	uint64_t threads, events, waited, words, allocations, failures, first, last;
};

static void program_row(struct output *output, const struct trace *trace, unsigned number_of, const struct program_sum *sum)
{
	const struct trace_image *image = trace->images[number_of];
	number(output, image->pid);
	number(output, sum->threads);
	number(output, sum->events);
	duration(output, trace_duration(trace, sum->first, sum->last));
	number(output, sum->allocations);
	output_printf(output, " %11.1f K  ", (double)sum->words * 8 / 1024);
	size_t from = output->length;
	ended(output, &image->exit);
	output_pad(output, from, 12);
	safe(output, program_name(image));
	struct trace_text argv = image->argv, argument;
	next_argument(&argv, &argument);
	for (unsigned n = 0; n < ARGUMENTS_SHOWN && next_argument(&argv, &argument); n++) {
		output_byte(output, ' ');
		if (argument.length > ARGUMENT_SHOWN)
			argument.length = ARGUMENT_SHOWN;
		safe(output, argument);
	}
	if (sum->failures)
		output_printf(output, "  (%" PRIu64 " allocations failed)", sum->failures);
	output_byte(output, '\n');
}

static void programs(struct table *table, const struct report *report)
{
	const struct trace *trace = report->trace;
	struct program_sum *sums = calloc(trace->image_count + 1, sizeof *sums);
	struct ranked *ranked = calloc(trace->image_count + 1, sizeof *ranked);
	unsigned count = 0;
	if (!sums || !ranked) {
		free(sums);
		free(ranked);
		return;
	}
	for (unsigned i = 0; i < trace->process_count; i++) {
		const struct trace_process *process = &trace->processes[i];
		struct program_sum *sum = &sums[process->image->number];
		if (sum->threads++ == 0 || process->first_tick < sum->first)
			sum->first = process->first_tick;
		if (process->last_tick > sum->last)
			sum->last = process->last_tick;
		sum->events += process->event_count;
		sum->waited += report->profile->threads[i].waited;
		sum->words += report->profile->threads[i].words_allocated;
		sum->allocations += report->profile->threads[i].allocations;
		sum->failures += report->profile->threads[i].allocation_failures;
	}
	for (unsigned i = 0; i < trace->image_count; i++)
		if (trace->images[i]->pid) /* first come, first shown */
			ranked[count++] = (struct ranked){UINT64_MAX - trace->images[i]->tick, i};
	if (count > 1)
		qsort(ranked, count, sizeof *ranked, by_rank);
	heading(table, "Programs",
		"     program     threads      events       time allocations     allocated  ended       program");
	for (unsigned i = 0; i < count && i < ROWS_SHOWN; i++)
		program_row(table->output, trace, ranked[i].number, &sums[ranked[i].number]);
	more(table->output, count, ROWS_SHOWN);
	free(sums);
	free(ranked);
}

static uint64_t rank_of_count(const struct profile_count *count)
{
	return count->time ? count->time : count->words ? count->words : count->count;
}

static void count_row(struct output *output, const struct report *report, const struct profile_count *count, struct names *names)
{
	const struct profile_function *function = &report->profile->functions[count->function];
	const struct place *place = names_function(names, function->image, function->slot, function->tick);
	const struct trace_process *process = &report->trace->processes[count->thread];
	number(output, count->count);
	output_byte(output, ' ');
	if (count->kind & LORG_KIND_TIME)
		duration(output, trace_ticks_ns(report->trace, count->time));
	else
		output_printf(output, "%11s", "-");
	if (count->kind & LORG_KIND_MEMORY)
		number(output, count->words);
	else
		output_printf(output, "%12s", "-");
	output_printf(output, "  <%u.%u> ", process->pid, process->tid);
	output_safe(output, place->module, strlen(place->module), 0);
	output_byte(output, ':');
	output_safe(output, place->function, strlen(place->function), 0);
	output_byte(output, '\n');
}

/* What was counted of functions without events, a thread each. */
static void counted(struct table *table, const struct report *report, struct names *names)
{
	const struct profile *profile = report->profile;
	struct ranked *ranked = calloc(profile->count_count + 1ul, sizeof *ranked);
	if (!ranked || !profile->count_count) {
		free(ranked);
		return;
	}
	for (unsigned i = 0; i < profile->count_count; i++)
		ranked[i] = (struct ranked){rank_of_count(&profile->counts[i]), i};
	qsort(ranked, profile->count_count, sizeof *ranked, by_rank);
	heading(table, "Counted", "       calls    own time       words  thread, function");
	for (unsigned i = 0; i < profile->count_count && i < ROWS_SHOWN; i++)
		count_row(table->output, report, &profile->counts[ranked[i].number], names);
	more(table->output, profile->count_count, ROWS_SHOWN);
	free(ranked);
}

static void thread_row(struct output *output, const struct report *report, unsigned index)
{
	const struct trace *trace = report->trace;
	const struct trace_process *process = &trace->processes[index];
	const struct profile_thread *thread = &report->profile->threads[index];
	char text[48];
	if (process->runtime_process)
		snprintf(text, sizeof text, "<%u.%u.%u>", process->pid, process->tid, process->runtime_process);
	else
		snprintf(text, sizeof text, "<%u.%u>", process->pid, process->tid);
	output_printf(output, "%20s", text);
	number(output, process->event_count);
	duration(output, trace_duration(trace, process->first_tick, process->last_tick));
	output_byte(output, ' ');
	duration(output, trace_ticks_ns(trace, thread->waited));
	number(output, thread->sent_bytes);
	number(output, thread->received_bytes);
	output_text(output, "  ");
	size_t from = output->length;
	ended(output, &process->exit);
	output_pad(output, from, 12);
	if (process->name.length)
		safe(output, process->name);
	else
		safe(output, program_name(process->image));
	if (process->lost)
		output_printf(output, "  (lost %" PRIu64 ")", process->lost);
	output_byte(output, '\n');
}

static void threads(struct table *table, const struct report *report)
{
	const struct trace *trace = report->trace;
	struct ranked *ranked = calloc(trace->process_count + 1, sizeof *ranked);
	unsigned count = 0;
	if (!ranked)
		return;
	for (unsigned i = 0; i < trace->process_count; i++)
		if (trace->processes[i].pid)
			ranked[count++] = (struct ranked){trace->processes[i].event_count, i};
	if (count > 1)
		qsort(ranked, count, sizeof *ranked, by_rank);
	heading(table, "Threads",
		"              thread      events       time      waited        sent    received  ended       name");
	for (unsigned i = 0; i < count && i < ROWS_SHOWN; i++)
		thread_row(table->output, report, ranked[i].number);
	more(table->output, count, ROWS_SHOWN);
	free(ranked);
}

static void address(struct output *output, const char *before, struct trace_text socket_address)
{
	char text[256];
	if (socket_address.length == 0)
		return;
	size_t length = names_socket_address(socket_address.bytes, socket_address.length, text, sizeof text);
	output_text(output, before);
	output_safe(output, text, length, 0);
}

static void ports(struct table *table, const struct report *report)
{
	const struct profile *profile = report->profile;
	struct output *output = table->output;
	struct ranked *ranked = calloc(profile->port_count + 1, sizeof *ranked);
	unsigned count = 0;
	if (!ranked)
		return;
	for (unsigned i = 0; i < profile->port_count; i++) {
		const struct profile_port *port = &profile->ports[i];
		if (port->sent + port->received + port->ends + port->refused)
			ranked[count++] = (struct ranked){port->sent_bytes + port->received_bytes, i};
	}
	if (count > 1)
		qsort(ranked, count, sizeof *ranked, by_rank);
	if (count)
		heading(table, "Ports",
			"                    port      driver        sent       bytes    received       bytes  program, name");
	for (unsigned i = 0; i < count && i < ROWS_SHOWN; i++) {
		const struct profile_port *port = &profile->ports[ranked[i].number];
		char text[64];
		snprintf(text, sizeof text, "#Port<%u.%" PRIu64 ".%u>", port->image->pid, port->object, port->generation);
		output_printf(output, "%24s %11s", text, names_driver(port->driver ? port->driver : LORG_DRIVER_UNKNOWN));
		number(output, port->sent);
		number(output, port->sent_bytes);
		number(output, port->received);
		number(output, port->received_bytes);
		output_text(output, "  ");
		safe(output, program_name(port->image));
		if (port->name.length) {
			output_byte(output, ' ');
			safe(output, port->name);
		}
		address(output, " at ", port->local);
		address(output, " to ", port->peer);
		output_byte(output, '\n');
	}
	more(output, count, ROWS_SHOWN);
	free(ranked);
}

static void waits(struct table *table, const struct report *report, struct names *names)
{
	struct output *output = table->output;
	struct ranked ranked[LORG_HOOKS];
	unsigned count = 0;
	for (uint32_t hook = 0; hook < LORG_HOOKS; hook++)
		if (report->profile->waits[hook].count || report->profile->waits[hook].timeouts)
			ranked[count++] = (struct ranked){report->profile->waits[hook].ticks, hook};
	if (count == 0)
		return;
	if (count > 1)
		qsort(ranked, count, sizeof *ranked, by_rank);
	heading(table, "Waits", "       waits        time     longest    timeouts  function");
	for (unsigned i = 0; i < count; i++) {
		const struct profile_wait *wait = &report->profile->waits[ranked[i].number];
		struct hook_name name;
		names_hook(names, ranked[i].number, &name);
		number(output, wait->count);
		output_byte(output, ' ');
		duration(output, trace_ticks_ns(report->trace, wait->ticks));
		output_byte(output, ' ');
		duration(output, trace_ticks_ns(report->trace, wait->longest));
		number(output, wait->timeouts);
		output_text(output, "  ");
		output_safe(output, name.library, strlen(name.library), 0);
		output_byte(output, ':');
		output_safe(output, name.name, strlen(name.name), 0);
		if (wait->open)
			output_printf(output, "  (%" PRIu64 " never returned)", wait->open);
		output_byte(output, '\n');
	}
}

static void without_names(const char *path, const char *why, void *context)
{
	struct output *output = context;
	output_text(output, "note: ");
	output_safe(output, path, strlen(path), 0);
	output_printf(output, ": %s\n", why);
}

static uint64_t program_events(const struct trace *trace)
{
	uint64_t events = 0;
	for (unsigned i = 0; i < trace->process_count; i++)
		if (trace->processes[i].pid) /* else the recording's own */
			events += trace->processes[i].event_count;
	return events;
}

void report_text(struct output *output, const struct report *report, struct names *names, int colour)
{
	struct table table = {output, colour};
	const struct trace *trace = report->trace;
	char text[32];
	output_printf(output, "%" PRIu64 " events in %s\n", program_events(trace),
		      duration_text(trace_duration(trace, trace->first_tick, trace->last_tick), text));
	functions(&table, report);
	counted(&table, report, names);
	programs(&table, report);
	threads(&table, report);
	ports(&table, report);
	waits(&table, report, names);
	output_byte(output, '\n');
	if (report->profile->lower_bounds)
		output_text(output, "note: events are missing, all figures are lower bounds\n");
	if (!trace->ended)
		output_text(output, "note: the recording was not brought to its end\n");
	symbols_troubles(names_symbols(names), without_names, output);
	format_coverage(output, trace);
}
