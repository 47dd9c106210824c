/* SPDX-License-Identifier: MIT */
/* Punches holes into every shared mapping it finds, again and again, while it works: all zero has to be a valid state. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;

static void *work(void *argument)
{
	while (!stop) {
		char byte = 'x';
		int ends[2];
		if (pipe(ends) != 0 || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 'x')
			abort();
		close(ends[0]);
		close(ends[1]);
		free(malloc(100));
	}
	return argument;
}

static void punch(void)
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
			madvise((void *)from, to - from, MADV_REMOVE);
	}
}

int main(void)
{
	pthread_t threads[2];
	int status = -1;

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 50; i++) {
		punch();
		usleep(2000);
	}
	if (fork() == 0) {
		punch();
		stop = 1;
		work(NULL);
		_exit(3);
	}
	wait(&status);
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("worked, child exit %d\n", WEXITSTATUS(status));
	return 0;
}
