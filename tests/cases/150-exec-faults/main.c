/* SPDX-License-Identifier: MIT */
/* Execs that the kernel refuses for what they were given, and those that are unusual and succeed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char *arguments[] = {"prog", "child", NULL};

static void try(const char *what, const char *path, char *const *argv, char *const *environment)
{
	int status;
	fflush(stdout);
	if (fork() == 0) {
		execve(path, argv, environment);
		printf("%s: %s\n", what, strerrorname_np(errno));
		fflush(stdout);
		_exit(9);
	}
	wait(&status);
	printf("%s: exit %d\n", what, WEXITSTATUS(status));
}

static void file(const char *name, const char *text)
{
	FILE *stream = fopen(name, "w");
	fputs(text, stream);
	fclose(stream);
	chmod(name, 0755);
}

int main(int argc, char **argv)
{
	char *last_page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char **at_end = (char **)(last_page + 4096) - 3, **unended = (char **)(last_page + 4096) - 2;
	char *bad_entry[] = {"A=1", (char *)8, NULL};
	char directory[] = "/tmp/exec-faults-XXXXXX";

	(void)argv;
	if (argc > 1)
		return printf("child: %d\n", argc) < 0;
	if (argc == 0 || (argc == 1 && !*argv[0]))
		return printf("no name: environment %s\n", *environ ? "kept" : "empty") < 0;
	munmap(last_page + 4096, 4096);
	at_end[0] = "A=1", at_end[1] = "B=2", at_end[2] = NULL;
	try("array up to the end of memory", "/proc/self/exe", arguments, at_end);
	unended[0] = "A=1", unended[1] = "B=2";
	try("array without an end", "/proc/self/exe", arguments, unended);
	try("array nowhere", "/proc/self/exe", arguments, (char **)16);
	try("entry nowhere", "/proc/self/exe", arguments, bad_entry);
	try("arguments nowhere", "/proc/self/exe", (char **)16, environ);
	try("no array", "/proc/self/exe", arguments, NULL);
	try("no arguments", "/proc/self/exe", arguments + 2, environ);
	try("no arguments, no environment", "/proc/self/exe", arguments + 2, arguments + 2);
	try("no file name", NULL, arguments, environ);
	try("file name nowhere", (char *)8, arguments, environ);
	if (!mkdtemp(directory) || chdir(directory))
		return 1;
	file("self", "#!./self\n");
	try("script that is its own interpreter", "./self", arguments, environ);
	file("plain", "echo plain\n");
	try("script without a first line", "./plain", arguments, environ);
	file("empty", "");
	try("empty file", "./empty", arguments, environ);
	file("a\nb", "#!/bin/sh\necho newline\n");
	try("name with a newline", "./a\nb", arguments, environ);
	try("directory", "/tmp", arguments, environ);
	remove("self"), remove("plain"), remove("empty"), remove("a\nb");
	chdir("/");
	rmdir(directory);
	return 0;
}
