/* SPDX-License-Identifier: MIT */
/* Keeps every shared mapping out of its children (MADV_DONTFORK), as programs with device memory do; then forks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void keep_to_ourselves(int advice)
{
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t length = 0;
	ssize_t n;

	while (length < sizeof(text) - 1 && (n = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)n;
	text[length] = 0;
	close(fd);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long from, to;
		char mode[5];
		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && mode[3] == 's')
			madvise((void *)from, to - from, advice);
	}
}

static void *body(void *argument)
{
	free(malloc(10));
	return argument;
}

int main(int argc, char **argv)
{
	char *child[] = {"prog", "child", NULL};
	int status;

	(void)argv;
	if (argc > 1)
		return 6;
	for (int i = 0; i < 4; i++) {
		keep_to_ourselves(i < 2 ? MADV_DONTFORK : MADV_DOFORK);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t thread;
			int ends[2];
			char byte = 'x';
			if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
				_exit(1);
			pthread_create(&thread, NULL, body, NULL);
			pthread_join(thread, NULL);
			if (i % 2)
				execv("/proc/self/exe", child);
			_exit(5);
		}
		waitpid(pid, &status, 0);
		printf("%d: %d\n", i, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	}
	return 0;
}
