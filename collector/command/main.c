/* SPDX-License-Identifier: MIT */
/*
 * main.c: lorg COMMAND ..., all but run: the program lorg-commands, which the program lorg becomes (entry.c). It has the
 * libraries that looking at recordings needs; what runs beside a program has none of them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/command/calls.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/nearest.h"

/* lorg itself does that, unless calls of functions are asked for. */
static int run_with_calls(int argc, char **argv)
{
	return command_run(argc, argv, &run_calls);
}

static const struct command {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"run", "run a program and record what it does", run_with_calls},
	{"functions", "list which functions of a program can be traced", command_functions},
	{"log", "show what happened, event by event", command_log},
	{"report", "show where the time went", command_report},
	{"matchspec", "try a match specification", command_matchspec},
	{"calls", "print calls in programs that run", command_calls},
	{"attach", "bring lorg into a program that runs", command_attach},
	{"detach", "take it out again", command_detach},
	{"ps", "list the programs that are attached to lorgd", command_ps},
	{"session", "make, list and end trace sessions on lorgd", command_session},
	{"tail", "print what a session gets, as it comes", command_tail},
	{"process", "say which processes a session traces, and what of them", command_process},
	{"port", "the same of ports", command_port},
	{"function", "say which calls a session traces", command_function},
	{"send", "say which sent messages a session traces", command_send},
	{"recv", "the same of received messages", command_recv},
	{"system", "have a session watch the system", command_system},
	{"info", "print what a session traces", command_info},
	{"delivered", "wait until all is with a session's tracer", command_delivered},
	{"tracer-text", NULL, command_tracer_text},
	{"tracer-module", NULL, command_tracer_module},
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
	fprintf(out, "Usage: lorg COMMAND [OPTION...]\n"
		     "Shows what a program does, while it runs and after it has died, without recompiling it.\n\n");
	for (int i = 0; i < COMMAND_COUNT && commands[i].summary; i++) /* the last ones are not for people */
		fprintf(out, "  lorg %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\n"
		     "  lorg COMMAND --help tells more about a command, lorg --version the version.\n\n"
		     "First steps:\n"
		     "  lorg run -- ls -l    record a program\n"
		     "  lorg report          look at the recording\n"
		     "  lorgd &              let sessions look into programs that run: lorg session --help\n");
}

static const struct command *find_command(const char *name)
{
	for (int i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	if (access(name, X_OK) == 0 && strchr(name, '/')) {
		lorg_error(name, "is a program, not a command of lorg", "to record it: lorg run -- PROGRAM");
		return EXIT_STATUS_USAGE;
	}
	struct nearest nearest = {.text = name};
	char advice[64];
	for (int i = 0; i < COMMAND_COUNT && commands[i].summary && name[0] != '-'; i++)
		nearest_try(&nearest, commands[i].name);
	if (nearest.name) {
		snprintf(advice, sizeof advice, "did you mean lorg %s? see lorg --help", nearest.name);
		lorg_error(name, "no such command", advice);
		return EXIT_STATUS_USAGE;
	}
	lorg_error(name, name[0] == '-' ? "no such option" : "no such command", "see lorg --help");
	return EXIT_STATUS_USAGE;
}

/*
 * What is closed is opened, so that no connection comes in its place and is written to: for reading alone, so that what is
 * written there fails as it should. What runs a program hands them on as they are.
 */
static void open_standard_descriptors(void)
{
	int descriptor;
	do
		descriptor = open("/dev/null", O_RDONLY);
	while (descriptor >= 0 && descriptor <= STDERR_FILENO);
	if (descriptor > STDERR_FILENO)
		close(descriptor);
}

int main(int argc, char **argv)
{
	static char name[64];
	if (argc < 2) {
		lorg_error("no command given", "lorg run, lorg log or lorg report", "see lorg --help");
		return EXIT_STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return lorg_flush_output();
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("%s\n", argp_program_version);
		return lorg_flush_output();
	}
	const struct command *command = find_command(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	if (command->run != run_with_calls)
		open_standard_descriptors();
	snprintf(name, sizeof name, "lorg %s", command->name);
	argv[1] = name;
	return command->run(argc - 1, argv + 1);
}
