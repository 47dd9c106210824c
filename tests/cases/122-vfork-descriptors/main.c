/* SPDX-License-Identifier: MIT */
/* A vfork child that rearranges its descriptors before it executes, as shells do: the parent's table is another. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *child[] = {"prog", "child", NULL};
	int good = 0, status;

	if (argc > 1) {
		char text[16] = "";
		ssize_t n = read(0, text, sizeof(text));
		return n == 4 && write(1, "pong", 4) == 4 && fcntl(3, F_GETFD) == -1 ? 0 : 1;
	}
	(void)argv;
	for (int i = 0; i < 30; i++) {
		int to[2], from[2];
		char text[16] = "";
		if (pipe(to) || pipe(from))
			return 1;
		pid_t pid = vfork();
		if (pid == 0) {
			dup2(to[0], 0);
			dup2(from[1], 1);
			close_range(3, ~0U, 0);
			setsid();
			execv("/proc/self/exe", child);
			_exit(127);
		}
		close(to[0]);
		close(from[1]);
		good += write(to[1], "ping", 4) == 4 && read(from[0], text, sizeof(text)) == 4 && memcmp(text, "pong", 4) == 0;
		close(to[1]);
		close(from[0]);
		waitpid(pid, &status, 0);
		good += status == 0;
	}
	printf("good %d\n", good);
	return 0;
}
