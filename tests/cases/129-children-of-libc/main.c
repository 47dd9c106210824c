/* SPDX-License-Identifier: MIT */
/* Children that libc makes: system, popen, posix_spawn with every attribute, wordexp; statuses, masks, groups and errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

extern char **environ;

static int spawned(void)
{
	char *child[] = {"sh", "-c", "read x; echo got $x; test -e here.txt && exit 6", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t mask;
	pid_t pid;
	int status = -1;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "here.txt", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, 1, 7);
	posix_spawn_file_actions_addclose(&actions, 7);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	posix_spawn_file_actions_addchdir_np(&actions, ".");
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	sigfillset(&mask);
	posix_spawnattr_setsigdefault(&attributes, &mask);
	sigemptyset(&mask);
	posix_spawnattr_setsigmask(&attributes, &mask);
	posix_spawnattr_setpgroup(&attributes, 0);
	if (posix_spawnp(&pid, "sh", &actions, &attributes, child, environ))
		return -1;
	waitpid(pid, &status, 0);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return WEXITSTATUS(status);
}

int main(void)
{
	char line[64] = "";
	wordexp_t words;
	FILE *stream = fopen("here.txt", "w");

	setvbuf(stdout, NULL, _IONBF, 0);
	fputs("input\n", stream);
	fclose(stream);
	signal(SIGINT, SIG_IGN);
	printf("system %d", system("exit 3") >> 8);
	printf(" %d", system("kill -9 $$"));
	printf(" %d\n", system(NULL) != 0);
	stream = popen("echo from child; exit 5", "r");
	printf("popen %s", fgets(line, sizeof(line), stream));
	printf("pclose %d", pclose(stream) >> 8);
	stream = popen("cat >/dev/null; exit 2", "we");
	fputs("to child\n", stream);
	printf(" %d", pclose(stream) >> 8);
	errno = 0;
	printf(" bad mode %d\n", popen("true", "q") == NULL && errno == EINVAL);
	printf("spawned %d\n", spawned());
	printf("wordexp %d", wordexp("$(echo two words) $((1 + 2))", &words, 0));
	printf(" %zu %s\n", words.we_wordc, words.we_wordv[2]);
	wordfree(&words);
	for (int i = 0; i < 20; i++)
		if (system("exit 1") >> 8 != 1)
			return 1;
	signal(SIGCHLD, SIG_IGN);
	int status = system("true"), error = errno;
	printf("without children %d %d\n", status, error == ECHILD);
	return 0;
}
