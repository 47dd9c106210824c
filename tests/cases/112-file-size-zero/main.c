/* SPDX-License-Identifier: MIT */
/* A file size limit of zero, with SIGXFSZ at its default: whatever grows a file on the program's behalf kills it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 20000; i++)
		free(malloc(50));
	return argument;
}

int main(int argc, char **argv)
{
	struct rlimit none = {0, 0}, one = {1, 1};
	char *child[] = {"prog", "child", NULL};
	pthread_t thread;
	int status;

	(void)argv;
	if (argc > 1) {
		body(NULL);
		puts("executed");
		return 3;
	}
	setrlimit(RLIMIT_FSIZE, &one);
	setrlimit(RLIMIT_FSIZE, &none);
	setrlimit(RLIMIT_CORE, &none);
	for (int i = 0; i < 4; i++) {
		pthread_create(&thread, NULL, body, NULL);
		pthread_join(thread, NULL);
	}
	puts("first");
	fflush(stdout);
	if (fork() == 0) {
		body(NULL);
		execv("/proc/self/exe", child);
		_exit(127);
	}
	wait(&status);
	printf("status %d\n", status);
	return 0;
}
