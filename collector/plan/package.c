/* SPDX-License-Identifier: MIT */
/* package.c: see package.h. */
#include "collector/plan/package.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The first line of what dpkg-query --search prints; 0, or -1. */
static int search(const char *path, char *line, size_t size)
{
	char *const arguments[] = {(char *)"dpkg-query", (char *)"--search", (char *)(size_t)path, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], status = 0;
	pid_t child = -1;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	FILE *output = failed ? NULL : fdopen(ends[0], "r");
	int found = output && fgets(line, (int)size, output) != NULL;
	if (output)
		fclose(output);
	else
		close(ends[0]);
	if (!failed)
		waitpid(child, &status, 0);
	return found && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Debian's own names: libc6 has had its debug symbols in a package of another kind since before there were others. */
static void debug_package(const char *package, char *name, size_t size)
{
	snprintf(name, size, "%s%s", package, strcmp(package, "libc6") == 0 ? "-dbg" : "-dbgsym");
}

int package_of_debug_symbols(const char *path, char *name, size_t size)
{
	char line[4096], other[4096], *real = realpath(path, NULL);
	const char *wanted = real ? real : path;
	int found = search(wanted, line, sizeof line) == 0;
	/* Packages from before /lib became a link to /usr/lib name the old place. */
	if (!found && strncmp(wanted, "/usr/", 5) == 0)
		found = search(wanted + 4, line, sizeof line) == 0;
	if (!found && strncmp(wanted, "/usr/", 5) != 0) {
		snprintf(other, sizeof other, "/usr%s", wanted);
		found = search(other, line, sizeof line) == 0;
	}
	free(real);
	/* A file that was moved aside by another package is told of in another form. */
	if (!found || strncmp(line, "diversion ", 10) == 0)
		return -1;
	line[strcspn(line, ":, \n")] = 0;
	if (!line[0])
		return -1;
	debug_package(line, name, size);
	return 0;
}
