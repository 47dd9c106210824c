/* SPDX-License-Identifier: MIT */
/* coverage.c: what the trace covers and what not, in one line. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collector/format/format.h"

enum { GAPS_SHOWN = 20, KINDS_SHOWN = 16 };

struct trace_text session_name(const struct trace *trace, uint32_t slot, char buffer[16])
{
	if (slot < LORG_SESSIONS && trace->sessions[slot].length)
		return trace->sessions[slot];
	int length = snprintf(buffer, 16, "%u", slot);
	return (struct trace_text){(const uint8_t *)buffer, (uint32_t)length};
}

unsigned never_seen(const struct trace *trace, const char **names, unsigned size)
{
	static const struct {
		uint32_t gate;
		const char *name;
		uint8_t events[12];
	} kinds[] = {
		{LORG_GATE_MESSAGE, "send", {LORG_EVENT_SEND, LORG_EVENT_SEND_TO_NON_EXISTING, LORG_EVENT_SIGNAL_SENT}},
		{LORG_GATE_MESSAGE, "receive", {LORG_EVENT_RECEIVE, LORG_EVENT_TIMEOUT, LORG_EVENT_SIGNAL_RECEIVED}},
		{LORG_GATE_PORT, "ports", {LORG_EVENT_OPEN, LORG_EVENT_CLOSED, LORG_EVENT_CONNECTED}},
		{LORG_GATE_PROCESS, "procs", {LORG_EVENT_SPAWN, LORG_EVENT_SPAWNED, LORG_EVENT_EXEC, LORG_EVENT_EXIT}},
		{LORG_GATE_RUNNING, "running", {LORG_EVENT_IN, LORG_EVENT_OUT}},
		{LORG_GATE_CALL,
		 "calls",
		 {LORG_EVENT_ENTER, LORG_EVENT_ENTER_LINE, LORG_EVENT_ENTER_ADDRESS, LORG_EVENT_CALL_ENTRY, LORG_EVENT_CALL,
		  LORG_EVENT_THROW, LORG_EVENT_CATCH}},
		{LORG_GATE_ALLOCATION, "allocations", {LORG_EVENT_ALLOCATE, LORG_EVENT_FREE}},
	};
	unsigned count = 0;
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds && count < size; k++) {
		uint64_t seen = 0;
		for (size_t i = 0; i < sizeof kinds[k].events; i++)
			seen += kinds[k].events[i] ? trace->event_counts[kinds[k].events[i]] : 0;
		if ((trace->asked & kinds[k].gate) && seen == 0)
			names[count++] = kinds[k].name;
	}
	return count;
}

static void count(struct output *output, uint64_t number, const char *what)
{
	output_printf(output, "%" PRIu64 " %s%s", number, what, number == 1 ? "" : "s");
}

static void gaps(struct output *output, const struct trace *trace, int damage, const char *heading)
{
	unsigned shown = 0, more = 0;
	for (unsigned i = 0; i < trace->gap_count; i++) {
		const struct trace_gap *gap = &trace->gaps[i];
		if (gap->damage != damage)
			continue;
		if (shown == GAPS_SHOWN) {
			more++;
			continue;
		}
		output_text(output, shown++ ? ", " : heading);
		output_safe(output, gap->what, strlen(gap->what), 0);
		output_text(output, " (");
		output_safe(output, gap->why, strlen(gap->why), 0);
		output_byte(output, ')');
		if (gap->count > 1)
			output_printf(output, " %" PRIu64 " times", gap->count);
	}
	if (more)
		output_printf(output, ", and %u more", more);
}

/* Where the loss was: the threads that lost most are named first come, first served. */
static void lost(struct output *output, const struct trace *trace)
{
	unsigned shown = 0;
	output_printf(output, "; lost %" PRIu64, trace->lost);
	for (unsigned i = 0; i < trace->process_count; i++) {
		const struct trace_process *process = &trace->processes[i];
		if (process->lost == 0)
			continue;
		if (shown == GAPS_SHOWN) {
			output_text(output, ", ...");
			break;
		}
		output_text(output, shown++ ? ", " : " (");
		if (process->pid)
			output_printf(output, "<%u.%u> %" PRIu64, process->pid, process->tid, process->lost);
		else
			output_printf(output, "threads unknown %" PRIu64, process->lost);
	}
	if (shown)
		output_byte(output, ')');
}

void format_coverage(struct output *output, const struct trace *trace)
{
	uint64_t programs = 0, threads = 0, events = 0;
	for (unsigned i = 0; i < trace->image_count; i++)
		programs += trace->images[i]->pid != 0;
	for (unsigned i = 0; i < trace->process_count; i++) {
		if (trace->processes[i].pid == 0) /* the recording's own */
			continue;
		threads++;
		events += trace->processes[i].event_count;
	}
	output_text(output, "coverage: traced ");
	count(output, programs, "program");
	output_text(output, ", ");
	count(output, threads, "thread");
	output_text(output, ", ");
	count(output, events, "event");
	gaps(output, trace, 0, "; not traced: ");
	const char *unseen[KINDS_SHOWN];
	unsigned unseen_count = never_seen(trace, unseen, KINDS_SHOWN);
	for (unsigned i = 0; i < unseen_count; i++)
		output_printf(output, "%s%s", i ? ", " : "; asked for and never seen: ", unseen[i]);
	lost(output, trace);
	gaps(output, trace, 1, "; damaged: ");
	output_byte(output, '\n');
}
