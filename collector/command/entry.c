/* SPDX-License-Identifier: MIT */
/*
 * entry.c: the program lorg. `lorg run` is done here, with libc alone: a program is recorded at the cost of starting
 * little. All else is done by the program lorg-commands, which this one becomes: also a run that asks for calls of
 * functions, which takes a disassembler and debug information.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collector/command/command.h"
#include "collector/command/error.h"

/* RUN_NEEDS_CALLS: nothing has been done yet, and the arguments are as they were. */
static int run(int argc, char **argv)
{
	static char name[] = "lorg run";
	char *given = argv[1];
	argv[1] = name;
	int status = command_run(argc - 1, argv + 1, NULL);
	argv[1] = given;
	return status;
}

/* Beside lorg in a build tree, below it where it is installed. */
static int become_commands(char **argv)
{
	static const char *const places[] = {"lorg-commands", "../libexec/lorg/lorg-commands", "../lib/lorg/lorg-commands"};
	char own[PATH_MAX], path[PATH_MAX + 64];
	ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
	if (length <= 0)
		return errno;
	own[length] = 0;
	char *base = strrchr(own, '/');
	if (!base)
		return ENOENT;
	base[1] = 0;
	int error = ENOENT;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(path, sizeof path, "%s%s", own, places[i]);
		execv(path, argv);
		if (errno != ENOENT && errno != ENOTDIR)
			error = errno;
	}
	return error;
}

int main(int argc, char **argv)
{
	int status = argc > 1 && strcmp(argv[1], "run") == 0 ? run(argc, argv) : RUN_NEEDS_CALLS;
	if (status != RUN_NEEDS_CALLS)
		return status;
	int error = become_commands(argv);
	lorg_error("lorg-commands", error == ENOENT ? "is not where lorg is" : strerror(error), "install lorg anew");
	return EXIT_STATUS_FAILURE;
}
