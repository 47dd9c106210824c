/* SPDX-License-Identifier: MIT */
/* coverage.c: what the trace covers and what not, in one line. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collector/format/format.h"

enum { GAPS_SHOWN = 20 };

struct trace_text session_name(const struct trace *trace, uint32_t slot, char buffer[16])
{
	if (slot < LORG_SESSIONS && trace->sessions[slot].length)
		return trace->sessions[slot];
	int length = snprintf(buffer, 16, "%u", slot);
	return (struct trace_text){(const uint8_t *)buffer, (uint32_t)length};
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
	lost(output, trace);
	gaps(output, trace, 1, "; damaged: ");
	output_byte(output, '\n');
}
