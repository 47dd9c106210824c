/* SPDX-License-Identifier: MIT */
/* parse.c: argp with lorg's one form of errors; see command.h. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/nearest.h"

const char *argp_program_version = "lorg " LORG_VERSION;

/* argp prints no help where it must print no errors. 0: it is something else. */
static int answer_help(const struct argp *argp, const char *option, char *name)
{
	if (strcmp(option, "--version") == 0 || strcmp(option, "-V") == 0) {
		puts(argp_program_version);
		return 1;
	}
	unsigned what = strcmp(option, "--help") == 0 || strcmp(option, "-?") == 0 || strcmp(option, "-h") == 0 ? ARGP_HELP_STD_HELP
			: strcmp(option, "--usage") == 0						      ? ARGP_HELP_STD_USAGE
															      : 0;
	if (!what)
		return 0;
	argp_help(argp, stdout, what & ~(unsigned)(ARGP_HELP_EXIT_ERR | ARGP_HELP_EXIT_OK | ARGP_HELP_BUG_ADDR), name);
	return 1;
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

/* An option of that name; NULL: there is none, and *near is the one that may have been meant, or NULL. */
static const struct argp_option *find_option(const struct argp *argp, const char *given, const char **near)
{
	char name[64];
	size_t length = strcspn(given, "=");
	struct nearest nearest = {.text = name};
	snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), given);
	for (const struct argp_option *option = argp->options; option && (option->name || option->key || option->doc); option++) {
		if (!option->name)
			continue;
		if (strcmp(option->name, name) == 0)
			return option;
		nearest_try(&nearest, option->name);
	}
	*near = nearest.name;
	return NULL;
}

static void say_wrong(const struct argp *argp, const char *wrong, const char *name, int error)
{
	char advice[128];
	const char *why = error == EINVAL ? "no such option, or its value is missing" : strerror(error), *near = NULL;
	const struct argp_option *option = strncmp(wrong, "--", 2) == 0 && error == EINVAL ? find_option(argp, wrong + 2, &near) : NULL;
	if (option)
		why = !option->arg ? "it takes no value" : strchr(wrong, '=') ? "its value cannot be" : "its value is missing";
	else if (near)
		why = "no such option";
	if (near)
		snprintf(advice, sizeof advice, "did you mean --%s? see %s --help", near, name);
	else
		snprintf(advice, sizeof advice, "see %s --help", name);
	lorg_error(wrong, why, advice);
}

void command_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	const struct argp_child children[] = {{.argp = argp}, {0}};
	const struct argp watched = {.parser = watch_errors, .children = children};
	struct parse parse = {.input = input};
	/* getopt must not print in a form of its own. */
	int error = argp_parse(&watched, argc, argv, ARGP_IN_ORDER | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &parse);
	if (!error)
		return;
	const char *wrong = parse.next > 1 && parse.next <= argc ? argv[parse.next - 1] : NULL;
	if (wrong && answer_help(argp, wrong, argv[0]))
		exit(lorg_flush_output());
	say_wrong(argp, wrong ? wrong : argv[0], argv[0], error);
	exit(EXIT_STATUS_USAGE);
}
