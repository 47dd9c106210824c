/* SPDX-License-Identifier: MIT */
/* Writes its title over argv and environ as daemons do: counts the room by walking both, moves the environment away first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static size_t slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, size - 1);

	close(fd);
	text[n < 0 ? 0 : n] = 0;
	return n < 0 ? 0 : (size_t)n;
}

int main(int argc, char **argv)
{
	static char text[65536];
	char *environment[] = {"PATH=/usr/bin:/bin", "EMPTY=", "LAST=value", NULL};
	char *child[] = {"prog", "one", "two", NULL};
	size_t room = 0;
	int entries = 0;

	if (argc == 1) {
		execve("/proc/self/exe", child, environment);
		return 127;
	}
	char *end = argv[0];
	for (int i = 0; i < argc; i++)
		if (argv[i] == end)
			end += strlen(argv[i]) + 1;
	for (char **e = environ; *e; e++, entries++)
		if (*e == end)
			end += strlen(*e) + 1;
	room = (size_t)(end - argv[0]);
	char **copy = calloc((size_t)entries + 1, sizeof(char *));
	for (int i = 0; i < entries; i++)
		copy[i] = strdup(environ[i]);
	environ = copy;
	memset(argv[0], 0, room);
	snprintf(argv[0], room, "title: of %s", "a daemon");
	prctl(PR_SET_NAME, "a daemon");
	slurp("/proc/self/cmdline", text, sizeof(text));
	printf("%d entries, room %zu, shown '%s'\n", entries, room, text);
	size_t length = slurp("/proc/self/environ", text, sizeof(text));
	int foreign = 0;
	for (size_t i = 0; i < length; i += strlen(text + i) + 1)
		foreign += strstr(text + i, "PRELOAD") != NULL || strncmp(text + i, "LORG", 4) == 0;
	printf("foreign %d, PATH %s, LAST %s\n", foreign, getenv("PATH"), getenv("LAST"));
	fflush(stdout);
	return system("echo $LAST again");
}
