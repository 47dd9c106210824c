/* SPDX-License-Identifier: MIT */
/* clone() with shared memory: with CLONE_VFORK, and side by side with the parent, whose thread record the child's TLS is. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 65536 };
static int ends[2];
static volatile int shared;

static int say(void *argument)
{
	char byte = *(char *)argument;

	shared++;
	if (write(ends[1], &byte, 1) != 1)
		return 9;
	return 6;
}

static int become(void *argument)
{
	char *child[] = {"prog", "child", NULL};

	(void)argument;
	execv("/proc/self/exe", child);
	return 127;
}

static int run(int (*body)(void *), int flags)
{
	char *stack = malloc(STACK), byte = 'c';
	int status = -1;
	pid_t pid = clone(body, stack + STACK, flags | SIGCHLD, &byte);

	if (pid < 0)
		return -1;
	if (!(flags & CLONE_VFORK)) {
		/* Nothing but system calls of its own while the child uses the same TLS. */
		while (syscall(SYS_wait4, pid, &status, 0, NULL) != pid)
			;
	} else {
		waitpid(pid, &status, 0);
	}
	free(stack);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

int main(int argc, char **argv)
{
	int left = 0, executed = 0, beside = 0;
	char got[256];

	(void)argv;
	if (argc > 1)
		return 5;
	if (pipe(ends))
		return 1;
	for (int i = 0; i < 20; i++) {
		left += run(say, CLONE_VM | CLONE_VFORK) == 6;
		executed += run(become, CLONE_VM | CLONE_VFORK) == 5;
		beside += run(say, CLONE_VM) == 6;
	}
	printf("left %d, executed %d, beside %d, shared %d, bytes %zd\n", left, executed, beside, shared,
	       read(ends[0], got, sizeof(got)));
	return 0;
}
