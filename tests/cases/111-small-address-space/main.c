/* SPDX-License-Identifier: MIT */
/* A limit on address space that leaves little: set while it runs, and in force from the start of what it executes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 1000; i++)
		if (!getenv("PATH"))
			abort();
	return argument;
}

static int live(const char *who)
{
	pthread_attr_t small;
	pthread_t thread;
	int made = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 32768);
	for (int i = 0; i < 10; i++)
		if (pthread_create(&thread, &small, body, NULL) == 0)
			made += pthread_join(thread, NULL) == 0;
	void *block = malloc(300000), *huge = malloc(200 << 20);
	printf("%s: threads %d, block %s, huge %s\n", who, made, block ? "yes" : "no", huge ? "yes" : "no");
	fflush(stdout);
	free(block);
	free(huge);
	return 3;
}

int main(int argc, char **argv)
{
	struct rlimit limit = {64 << 20, 64 << 20}, tight = {12 << 20, 12 << 20};
	char *child[] = {"prog", "child", NULL};
	int status;

	(void)argv;
	if (argc > 1)
		return live("executed");
	setrlimit(RLIMIT_AS, &limit);
	live("first");
	for (int i = 0; i < 2; i++) {
		if (fork() == 0) {
			if (i)
				setrlimit(RLIMIT_AS, &tight);
			execv("/proc/self/exe", child);
			_exit(127);
		}
		wait(&status);
		printf("exit %d\n", WEXITSTATUS(status));
		fflush(stdout);
	}
	return 0;
}
