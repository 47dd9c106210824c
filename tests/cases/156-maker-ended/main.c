/* SPDX-License-Identifier: MIT */
/* The new thread runs at once, on the only CPU, and ends its maker before that one is back from pthread_create. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 10 };

static void *end_all(void *argument)
{
	char *program[] = {"prog", "executed", NULL};
	if (argument)
		execv("/proc/self/exe", program);
	raise(SIGKILL);
	kill(getpid(), SIGKILL);
	return NULL;
}

/* With a real-time priority it takes the CPU from its maker when that one lets it go. */
static void make_thread(void *argument)
{
	const struct sched_param priority = {.sched_priority = 1};
	pthread_attr_t attributes;
	pthread_t thread;
	cpu_set_t first;
	CPU_ZERO(&first);
	CPU_SET(sched_getcpu(), &first);
	if (sched_setaffinity(0, sizeof first, &first))
		_exit(77);
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &priority);
	if (pthread_create(&thread, &attributes, end_all, argument))
		_exit(77);
	pause();
	_exit(1);
}

int main(int argc, char **argv)
{
	int killed = 0, executed = 0;
	(void)argv;
	if (argc > 1)
		return 5;
	for (int i = 0; i < 2 * ROUNDS; i++) {
		int status;
		pid_t pid = fork();
		if (pid == 0)
			make_thread(i % 2 ? &killed : NULL);
		waitpid(pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			fprintf(stderr, "no real-time priority to be had\n");
			return 77;
		}
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		executed += WIFEXITED(status) && WEXITSTATUS(status) == 5;
	}
	printf("killed %d, executed %d\n", killed, executed);
	return 0;
}
