/* SPDX-License-Identifier: MIT */
/* reading.c: see reading.h. */
#include "collector/command/reading.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/command/error.h"

/* Files are mapped: one that becomes shorter meanwhile ends in this signal. */
static void on_bus_error(int number)
{
	static const char text[] =
		"lorg: the trace became shorter while it was read: wait until its recording has ended and try again\n";
	(void)number;
	if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
		_exit(EXIT_STATUS_FAILURE);
	_exit(EXIT_STATUS_FAILURE);
}

int reading_open(struct reading *reading, const char *directory, int lazily)
{
	char why[512];
	*reading = (struct reading){.trace = NULL};
	signal(SIGBUS, on_bus_error);
	signal(SIGPIPE, SIG_IGN);
	reading->trace = lazily ? trace_open_lazily(directory, why, sizeof why) : trace_open(directory, why, sizeof why);
	if (!reading->trace) {
		lorg_error(directory, why, NULL);
		return -1;
	}
	reading->names = names_new(reading->trace);
	if (!reading->names) {
		lorg_error(directory, "out of memory", "free some");
		trace_close(reading->trace);
		return -1;
	}
	return 0;
}

void reading_begin_output(struct reading *reading, int with_pager)
{
	reading->pager = (struct pager){.fd = STDOUT_FILENO};
	if (with_pager)
		pager_begin(&reading->pager);
	output_begin(&reading->output, reading->pager.fd);
}

static void tell_trouble(const char *path, const char *why, void *context)
{
	(void)context;
	lorg_error(path, why, NULL);
}

static int tell_damage(const struct trace *trace)
{
	const struct trace_gap *first = NULL;
	unsigned count = 0;
	char text[512];
	for (unsigned i = 0; i < trace->gap_count; i++) {
		if (!trace->gaps[i].damage)
			continue;
		if (!first)
			first = &trace->gaps[i];
		count++;
	}
	if (!first)
		return 0;
	snprintf(text, sizeof text, "%s: %s%s", first->what, first->why, count > 1 ? ", and more" : "");
	lorg_error(trace->directory, text, "what is shown is what is whole; figures are lower bounds");
	return 1;
}

int reading_close(struct reading *reading, int tell_troubles)
{
	int failure = output_end(&reading->output), status = 0;
	pager_end(&reading->pager);
	if (failure && failure != EPIPE) {
		lorg_error("standard output", strerror(failure), "free some space, or write elsewhere");
		status = EXIT_STATUS_FAILURE;
	}
	if (!failure) {
		if (tell_damage(reading->trace))
			status = EXIT_STATUS_FAILURE;
		else if (tell_troubles)
			symbols_troubles(names_symbols(reading->names), tell_trouble, NULL);
	}
	names_free(reading->names);
	trace_close(reading->trace);
	return status;
}
