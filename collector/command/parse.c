/* SPDX-License-Identifier: MIT */
/* parse.c: argp with lorg's one form of errors; see command.h. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/command/command.h"
#include "collector/command/error.h"

const char *argp_program_version = "lorg " LORG_VERSION;

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
