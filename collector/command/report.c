/* SPDX-License-Identifier: MIT */
/* report.c: lorg report. */
#include <stdlib.h>
#include <string.h>

#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/reading.h"
#include "collector/format/report.h"

struct options {
	const char *directory;
	int json, no_pager;
};

enum option_key { KEY_NO_PAGER = 256 };

static const struct argp_option report_options[] = {
	{"format", 'f', "FORMAT", 0, "text (the default) or json: one object", 1},
	{"no-pager", KEY_NO_PAGER, NULL, 0, "Write to the terminal directly", 2},
	{0},
};

static const char report_arguments[] = "[DIR]";
static const char report_text_help[] =
	"Shows where the time went in a recording (lorg.trace): functions, programs, threads, ports, waits."
	"\vFunctions are those of programs that were built with -finstrument-functions, or whose compiler calls __func_trace_enter. "
	"A function's total time has that of what it calls, its self time has not.\n\n"
	"Where events were lost the report says so, and its figures are lower bounds. doc/FORMATS.md has the keys of the JSON object.\n";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'f':
		if (strcmp(argument, "json") != 0 && strcmp(argument, "text") != 0) {
			lorg_error(argument, "no such format", "use text or json");
			exit(EXIT_STATUS_USAGE);
		}
		options->json = strcmp(argument, "json") == 0;
		return 0;
	case KEY_NO_PAGER: options->no_pager = 1; return 0;
	case ARGP_KEY_ARG:
		if (options->directory) {
			lorg_error(argument, "one directory is enough", "see lorg report --help");
			exit(EXIT_STATUS_USAGE);
		}
		options->directory = argument;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp report_argp = {report_options, parse_option, report_arguments, report_text_help, NULL, NULL, NULL};

static int print(struct reading *reading, const struct options *options)
{
	struct profile *profile = profile_make(reading->trace);
	struct report *report = profile ? report_make(reading->trace, profile, reading->names) : NULL;
	int good = report != NULL;
	if (good && options->json)
		good = report_json(&reading->output, report, reading->names) == 0;
	else if (good)
		report_text(&reading->output, report, reading->names, reading->pager.terminal);
	report_free(report);
	profile_free(profile);
	return good;
}

int command_report(int argc, char **argv)
{
	struct options options = {.directory = NULL};
	struct reading reading;
	command_parse(&report_argp, argc, argv, &options);
	if (!options.directory)
		options.directory = DEFAULT_DIRECTORY;
	if (reading_open(&reading, options.directory, 0) != 0)
		return EXIT_STATUS_FAILURE;
	reading_begin_output(&reading, !options.json && !options.no_pager);
	int good = print(&reading, &options);
	if (!good)
		lorg_error(options.directory, "out of memory", "free some, or read it on a larger machine");
	int status = reading_close(&reading, 0);
	return good ? status : EXIT_STATUS_FAILURE;
}
