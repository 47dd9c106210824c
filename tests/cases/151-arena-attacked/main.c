/* SPDX-License-Identifier: MIT */
/* Finds every shared mapping and attacks it, each time in a new child that works before and after. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum attack { ALL_ONES, ALL_ZERO, NOISE, UNMAP, READ_ONLY, NO_ACCESS, SHRINK, MOVE, LOCK, ATTACKS };
static const char *const names[ATTACKS] = {"all ones", "all zero", "noise", "unmap", "read only", "no access", "shrink", "move", "lock"};

static void message(void)
{
	int ends[2];
	char byte = 'x';
	if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1 || byte != 'x')
		abort();
	close(ends[0]);
	close(ends[1]);
}

static void *body(void *argument)
{
	for (int i = 0; i < 20; i++)
		message();
	return argument;
}

static void attack(enum attack how, char *at, size_t length)
{
	uint64_t noise = 1;
	switch (how) {
	case ALL_ONES: memset(at, 0xff, length); break;
	case ALL_ZERO: memset(at, 0, length); break;
	case NOISE:
		for (size_t i = 0; i + 8 <= length; i += 8)
			memcpy(at + i, &(uint64_t){noise = noise * 6364136223846793005u + 1442695040888963407u}, 8);
		break;
	case UNMAP: munmap(at, length); break;
	case READ_ONLY: mprotect(at, length, PROT_READ); break;
	case NO_ACCESS: mprotect(at, length, PROT_NONE); break;
	case SHRINK: mremap(at, length, 4096, 0); break;
	case MOVE: mremap(at, length, length * 2, MREMAP_MAYMOVE); break;
	default: mlock(at, length), msync(at, length, MS_SYNC); break;
	}
}

static void attack_all(enum attack how)
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
		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && mode[3] == 's' && mode[1] == 'w')
			attack(how, (char *)from, to - from);
	}
}

static int work(enum attack how)
{
	pthread_t thread;
	int status = -1;

	for (int i = 0; i < 2; i++) {
		if (pthread_create(&thread, NULL, body, NULL) || pthread_join(thread, NULL))
			return 1;
		message();
		if (!i)
			attack_all(how);
	}
	if (fork() == 0) {
		message();
		execl("/bin/true", "true", (char *)NULL);
		_exit(9);
	}
	wait(&status);
	return status ? 2 : system("exit 3") == 3 << 8 ? 4 : 5;
}

/* One recording each: an attack reaches all programs of a family. */
int main(int argc, char **argv)
{
	int how = argc > 1 ? atoi(argv[1]) : 0, status = work((enum attack)how);
	printf("%s: %d\n", names[how], status);
	return 0;
}
