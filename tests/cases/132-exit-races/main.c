/* SPDX-License-Identifier: MIT */
/* Ends of every kind, with threads in the middle of calls: children do it, the parent looks at how they ended. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *busy(void *argument)
{
	int ends[2];
	char byte = 'b';

	if (pipe(ends))
		return NULL;
	while (write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1)
		free(malloc(40));
	return argument;
}

static void *ends_all(void *argument)
{
	usleep(500);
	exit((int)(long)argument);
}

static void *waits_then_exits(void *argument)
{
	(void)argument;
	usleep(3000);
	exit(5);
}

static void quick(void)
{
	(void)!write(1, "quick\n", 6);
}

static void end(int way)
{
	pthread_t thread;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, busy, NULL);
	usleep(300);
	switch (way) {
	case 0: exit(10);
	case 1: _exit(11);
	case 2: _Exit(12);
	case 3: at_quick_exit(quick); quick_exit(13);
	case 4: abort();
	case 5: pthread_create(&thread, NULL, ends_all, (void *)14L); busy(NULL); break;
	case 6: pthread_create(&thread, NULL, waits_then_exits, NULL); pthread_exit(NULL);
	case 7: syscall(SYS_exit_group, 15); break;
	case 8: raise(SIGTERM); break;
	case 9: *(volatile int *)16 = 0; break;
	case 10:
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, NULL, ends_all, (void *)16L);
		busy(NULL);
		break;
	case 11: kill(getpid(), SIGKILL); pause(); break;
	}
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int way = 0; way < 12; way++)
		for (int i = 0; i < 5; i++) {
			int status = -1;
			pid_t pid = fork();
			if (pid == 0) {
				end(way);
				_exit(99);
			}
			waitpid(pid, &status, 0);
			if (i == 4)
				printf("%d: %s %d\n", way, WIFSIGNALED(status) ? "signal" : "status",
				       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		}
	return 0;
}
