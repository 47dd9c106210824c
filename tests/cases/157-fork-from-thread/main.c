/* SPDX-License-Identifier: MIT */
/* Threads that fork: the child's only thread stands on the copy of a stack, and of libc's notes, of a thread that was made. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *nothing(void *argument)
{
	return argument;
}

static void *fork_here(void *argument)
{
	int status;
	pid_t pid = argument ? fork() : (pid_t)syscall(SYS_fork);
	if (pid == 0) {
		pthread_t thread;
		/* After a raw fork libc's own state is not to be relied on. */
		if (argument && (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)))
			_exit(1);
		_exit(argument ? 3 : 4);
	}
	waitpid(pid, &status, 0);
	return (void *)(long)WEXITSTATUS(status);
}

int main(void)
{
	int one = 1;
	void *arguments[] = {&one, NULL};
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		void *status;
		pthread_create(&thread, NULL, fork_here, arguments[i]);
		pthread_join(thread, &status);
		printf("%ld\n", (long)status);
	}
	return 0;
}
