/* SPDX-License-Identifier: MIT */
/* Children in a pid namespace of their own, where they are 1, 2 and 3; they fork, make threads and execute. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 100; i++)
		if (!getenv("PATH"))
			abort();
	printf("thread %d of %d\n", (int)gettid(), (int)getpid());
	fflush(stdout);
	return argument;
}

int main(int argc, char **argv)
{
	char *child[] = {"prog", "child", NULL};
	pthread_t thread;
	int status;

	(void)argv;
	if (argc > 1) {
		printf("executed %d\n", (int)getpid());
		return 5;
	}
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0 && unshare(CLONE_NEWPID) != 0) {
		fprintf(stderr, "no pid namespaces here\n");
		return 77;
	}
	if (fork() == 0) {
		printf("init %d\n", (int)getpid());
		fflush(stdout);
		pthread_create(&thread, NULL, body, NULL);
		pthread_join(thread, NULL);
		if (fork() == 0) {
			execv("/proc/self/exe", child);
			_exit(127);
		}
		wait(&status);
		_exit(WEXITSTATUS(status));
	}
	wait(&status);
	printf("exit %d\n", WEXITSTATUS(status));
	return 0;
}
