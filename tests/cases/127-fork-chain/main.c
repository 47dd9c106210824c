/* SPDX-License-Identifier: MIT */
/* Sixty generations: each forks the next, waits, and passes on what it got; every third is made by vfork and exec. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int generation(int n)
{
	char text[16], *child[] = {"prog", text, NULL};
	int status = -1;
	pid_t pid;

	if (n == 0)
		return 0;
	snprintf(text, sizeof(text), "%d", n - 1);
	if (n % 3 == 0) {
		if ((pid = vfork()) == 0) {
			execv("/proc/self/exe", child);
			_exit(127);
		}
	} else if ((pid = fork()) == 0) {
		_exit(generation(n - 1));
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 255;
	return WEXITSTATUS(status) + 1;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 60;
	int depth = generation(n);

	if (argc == 1)
		printf("depth %d\n", depth);
	return argc == 1 ? 0 : depth;
}
