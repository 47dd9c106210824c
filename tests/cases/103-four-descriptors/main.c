/* SPDX-License-Identifier: MIT */
/* Lives, forks, makes threads and executes itself under a limit of four descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 100; i++)
		if (!getenv("PATH"))
			abort();
	return argument;
}

static int live(const char *who)
{
	pthread_t thread;
	int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY), error = errno;

	pthread_create(&thread, NULL, body, NULL);
	pthread_join(thread, NULL);
	printf("%s: %d, then %s\n", who, first, second < 0 && error == EMFILE ? "no more" : "another");
	fflush(stdout);
	close(first);
	return first;
}

int main(int argc, char **argv)
{
	struct rlimit four = {4, 4};
	char *child[] = {"prog", "child", NULL};
	int status;

	(void)argv;
	if (argc > 1)
		return live("executed");
	setrlimit(RLIMIT_NOFILE, &four);
	live("first");
	if (fork() == 0)
		_exit(live("forked"));
	wait(&status);
	if (fork() == 0) {
		execv("/proc/self/exe", child);
		_exit(127);
	}
	wait(&status);
	printf("exit %d\n", WEXITSTATUS(status));
	return 0;
}
