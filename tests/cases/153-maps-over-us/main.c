/* SPDX-License-Identifier: MIT */
/*
 * Maps memory of its own where shared mappings that it did not make are, in every way there is, while threads are busy
 * and while one waits inside a call. What it writes there has to stay as it is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum way { WHOLE, FIRST_PAGE, MIDDLE, BY_NUMBER, MOVED, UNMAP_AROUND, PROTECT_AROUND, WAYS };
static const char *const names[WAYS] = {"whole", "first page", "middle", "by number", "moved", "unmap around", "protect around"};

static volatile int stop;
static int wait_ends[2], busy_ends[2];

static void *busy(void *unused)
{
	char byte = 'b';
	for (int i = 1; !stop; i++) {
		if (write(busy_ends[1], &byte, 1) != 1 || read(busy_ends[0], &byte, 1) != 1)
			abort();
		if (i % 50 == 0) /* enough to be met in the middle of it */
			usleep(1000);
	}
	return unused;
}

static void *waiting(void *unused)
{
	char byte;
	if (read(wait_ends[0], &byte, 1) != 1 || byte != 'w')
		abort();
	return unused;
}

static void fill(unsigned char *at, size_t length)
{
	for (size_t i = 0; i < length; i += 64)
		at[i] = (unsigned char)(i >> 6 ^ 0xa5);
}

static int untouched(const unsigned char *at, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != (i % 64 ? 0 : (unsigned char)(i >> 6 ^ 0xa5)))
			return 0;
	return 1;
}

/* Returns where the program's memory is now, NULL: nowhere. */
static unsigned char *take(enum way way, unsigned char *at, size_t *length)
{
	int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *other;
	switch (way) {
	case FIRST_PAGE: *length = 4096; break;
	case MIDDLE:
		at += *length / 2 & ~(size_t)4095;
		*length = *length / 4 & ~(size_t)4095;
		if (!*length) /* a small one */
			*length = 4096;
		break;
	case MOVED:
		other = mmap(NULL, *length, protection, flags, -1, 0);
		return mremap(other, *length, *length, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	case BY_NUMBER: return (unsigned char *)syscall(SYS_mmap, at, *length, protection, flags | MAP_FIXED, -1, 0);
	default: break;
	}
	return mmap(at, *length, protection, flags | MAP_FIXED, -1, 0);
}

/* The mapping lies between two pages of the program's, made there if they were free. */
static void around(enum way way, unsigned char *at, size_t length)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	unsigned char *low = mmap(at - 4096, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	unsigned char *high = mmap(at + length, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (low != at - 4096 || high != at + length)
		return;
	if (way == PROTECT_AROUND) {
		if (mprotect(low, length + 8192, PROT_NONE))
			abort();
	} else if (munmap(low, length + 8192)) {
		abort();
	}
}

static void one(enum way way, unsigned char *at, size_t length)
{
	unsigned char *mine;
	if (way == UNMAP_AROUND || way == PROTECT_AROUND) {
		around(way, at, length);
		return;
	}
	mine = take(way, at, &length);
	if (mine == MAP_FAILED || !mine)
		abort();
	fill(mine, length);
	usleep(5000);
	if (!untouched(mine, length))
		printf("%s: somebody wrote there\n", names[way]);
}

static void find_and_take(enum way way)
{
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t length = 0;
	ssize_t n;
	while (length < sizeof text - 1 && (n = read(fd, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)n;
	close(fd);
	text[length] = 0;
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		unsigned long from, to;
		char flags[5];
		if (sscanf(line, "%lx-%lx %4s", &from, &to, flags) == 3 && flags[3] == 's')
			one(way, (unsigned char *)from, to - from);
	}
}

static void child(enum way way)
{
	pthread_t threads[3];
	char byte = 'x';
	if (pipe(wait_ends) || pipe(busy_ends))
		abort();
	if (pthread_create(&threads[0], NULL, waiting, NULL) || pthread_create(&threads[1], NULL, busy, NULL) ||
	    pthread_create(&threads[2], NULL, busy, NULL))
		abort();
	usleep(5000);
	for (int i = 0; i < 3; i++)
		find_and_take(way);
	/* Works as before, and so does who has waited all the time. */
	for (int i = 0; i < 50; i++) {
		int ends[2];
		if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
			abort();
		close(ends[0]);
		close(ends[1]);
	}
	byte = 'w';
	if (write(wait_ends[1], &byte, 1) != 1)
		abort();
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	if (fork() == 0)
		_exit(write(wait_ends[1], "child", 5) != 5);
	wait(NULL);
	_exit(3);
}

int main(void)
{
	for (int way = 0; way < WAYS; way++) {
		int status;
		fflush(stdout);
		if (fork() == 0)
			child(way);
		if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 3)
			printf("%s: status %x\n", names[way], status);
	}
	puts("its own memory, seven times");
	return 0;
}
