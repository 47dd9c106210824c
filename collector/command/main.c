/* SPDX-License-Identifier: MIT */
/* main.c: lorg COMMAND ... */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/command/command.h"
#include "collector/command/error.h"

static const struct command {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"run", "run a program and record what it does", command_run},
	{"log", "show what happened, event by event", command_log},
	{"report", "show where the time went", command_report},
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

const char *argp_program_version = "lorg " LORG_VERSION;

static void print_help(FILE *out)
{
	fprintf(out, "Usage: lorg COMMAND [OPTION...]\n"
		     "Shows what a program does, while it runs and after it has died, without recompiling it.\n\n");
	for (int i = 0; i < COMMAND_COUNT; i++)
		fprintf(out, "  lorg %-8s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\n"
		     "  lorg COMMAND --help tells more about a command, lorg --version the version.\n\n"
		     "First steps:\n"
		     "  lorg run -- ls -l    record a program\n"
		     "  lorg report          look at the recording\n");
}

/* argp prints no help where it must print no errors. */
static void answer_help(const struct argp *argp, int argc, char **argv)
{
	for (int i = 1; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0; i++) {
		unsigned what = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0 ? ARGP_HELP_STD_HELP
				: strcmp(argv[i], "--usage") == 0			    ? ARGP_HELP_STD_USAGE
											    : 0;
		if (!what)
			continue;
		argp_help(argp, stdout, what & ~(unsigned)(ARGP_HELP_EXIT_ERR | ARGP_HELP_BUG_ADDR), argv[0]);
		exit(fflush(stdout) ? EXIT_STATUS_FAILURE : 0);
	}
}

struct parse {
	void *input; /* of the command's own parser */
	int next;    /* index behind the argument that was wrong */
};

static error_t watch_errors(int key, char *argument, struct argp_state *state)
{
	struct parse *parse = state->input;
	(void)argument;
	if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = parse->input;
	if (key == ARGP_KEY_ERROR)
		parse->next = state->next;
	return ARGP_ERR_UNKNOWN;
}

void command_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	char advice[64];
	const struct argp_child children[] = {{.argp = argp}, {0}};
	const struct argp watched = {.parser = watch_errors, .children = children};
	struct parse parse = {.input = input};
	answer_help(argp, argc, argv);
	snprintf(advice, sizeof advice, "see %s --help", argv[0]);
	/* getopt must not print in a form of its own. */
	int error = argp_parse(&watched, argc, argv, ARGP_IN_ORDER | ARGP_NO_ERRS, NULL, &parse);
	if (!error)
		return;
	const char *wrong = parse.next > 1 && parse.next <= argc ? argv[parse.next - 1] : NULL;
	lorg_error(wrong ? wrong : argv[0], error == EINVAL ? "no such option, or its value is missing" : strerror(error), advice);
	exit(EXIT_STATUS_USAGE);
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
	for (int i = 0; i < COMMAND_COUNT; i++) {
		char advice[64];
		if (name[0] != commands[i].name[0] || name[0] == '-')
			continue;
		snprintf(advice, sizeof advice, "did you mean lorg %s? see lorg --help", commands[i].name);
		lorg_error(name, "no such command", advice);
		return EXIT_STATUS_USAGE;
	}
	lorg_error(name, name[0] == '-' ? "no such option" : "no such command", "see lorg --help");
	return EXIT_STATUS_USAGE;
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
		return fflush(stdout) ? EXIT_STATUS_FAILURE : 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("%s\n", argp_program_version);
		return fflush(stdout) ? EXIT_STATUS_FAILURE : 0;
	}
	const struct command *command = find_command(argv[1]);
	if (!command)
		return unknown_command(argv[1]);
	snprintf(name, sizeof name, "lorg %s", command->name);
	argv[1] = name;
	return command->run(argc - 1, argv + 1);
}
