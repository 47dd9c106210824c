/* SPDX-License-Identifier: MIT */
/* Sets itself a limit on address space that leaves it ten times what it has, and uses that. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int blocks(void)
{
	int count = 0;
	while (count < 80) {
		void *block = malloc(100000);
		if (!block)
			break;
		memset(block, 1, 100000);
		count++;
	}
	return count;
}

int main(void)
{
	struct rlimit limit = {16 << 20, 16 << 20}, got;
	int status, ends[2];
	char byte = 'x';
	printf("set %d\n", setrlimit(RLIMIT_AS, &limit));
	printf("got %d\n", getrlimit(RLIMIT_AS, &got) == 0 && got.rlim_cur == limit.rlim_cur);
	printf("blocks %d\n", blocks());
	fflush(stdout);
	if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
		abort();
	if (fork() == 0) {
		execl("/bin/true", "true", (char *)0);
		_exit(9);
	}
	wait(&status);
	printf("child %d\n", WEXITSTATUS(status));
	return 0;
}
