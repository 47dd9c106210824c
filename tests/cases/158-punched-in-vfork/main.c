/* SPDX-License-Identifier: MIT */
/* A child on its parent's memory (vfork) punches holes into every shared mapping; then both go on working. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char maps[1 << 16];
static const char *const nothing[] = {"/bin/true", NULL};

static void work(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		char byte = 'x';
		int ends[2];
		if (pipe(ends) != 0 || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 'x')
			abort();
		close(ends[0]);
		close(ends[1]);
		free(malloc(100));
	}
}

static void punch(void)
{
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t length = 0;
	ssize_t n;
	while (length < sizeof maps - 1 && (n = read(fd, maps + length, sizeof maps - 1 - length)) > 0)
		length += (size_t)n;
	maps[length] = 0;
	close(fd);
	for (char *line = maps; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		unsigned long from, to;
		char mode[5];
		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && mode[3] == 's')
			madvise((void *)from, to - from, MADV_REMOVE);
	}
}

int main(void)
{
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t pid = vfork();
		if (pid == 0) {
			punch();
			work(i % 4);
			if (i & 1)
				execv(nothing[0], (char **)nothing);
			_exit(0);
		}
		work(3);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			abort();
	}
	puts("20 children, and the parent went on");
	return 0;
}
