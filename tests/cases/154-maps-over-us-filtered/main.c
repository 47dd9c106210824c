/* SPDX-License-Identifier: MIT */
/* Maps memory of its own over every shared mapping, behind a system call filter: nothing may be moved out of its way. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static int ends[2], busy_ends[2];

static void *busy(void *unused)
{
	char byte = 'b';
	for (int i = 1; !stop; i++) {
		if (write(busy_ends[1], &byte, 1) != 1 || read(busy_ends[0], &byte, 1) != 1)
			abort();
		if (i % 50 == 0)
			usleep(1000);
	}
	return unused;
}

static void *waiting(void *unused)
{
	char byte;
	if (read(ends[0], &byte, 1) != 1 || byte != 'w')
		abort();
	return unused;
}

static void filter(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {1, &allow};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		abort();
}

static int take(unsigned char *at, size_t length)
{
	unsigned char *mine = mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (mine != at)
		abort();
	memset(mine, 0x5a, length);
	usleep(5000);
	for (size_t i = 0; i < length; i++)
		if (mine[i] != 0x5a)
			return 0;
	return 1;
}

static int take_all(void)
{
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY), good = 1;
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
			good &= take((unsigned char *)from, to - from);
	}
	return good;
}

int main(void)
{
	pthread_t threads[3];
	char byte = 'w';
	if (pipe(ends) || pipe(busy_ends))
		abort();
	pthread_create(&threads[0], NULL, waiting, NULL);
	pthread_create(&threads[1], NULL, busy, NULL);
	filter();
	usleep(5000);
	puts(take_all() ? "its own memory" : "somebody wrote there");
	fflush(stdout);
	/* A thread, a child and a wait go on as ever. */
	pthread_create(&threads[2], NULL, busy, NULL);
	if (fork() == 0)
		_exit(4);
	int status;
	if (wait(&status) < 0 || WEXITSTATUS(status) != 4 || write(ends[1], &byte, 1) != 1)
		abort();
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	puts("and works");
	return 3;
}
