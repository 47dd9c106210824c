/* SPDX-License-Identifier: MIT */
/* Becomes a daemon in the classic way: two forks, a session of its own, and it outlives the program that was started. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
	pid_t first = getpid();

	setvbuf(stdout, NULL, _IONBF, 0);
	puts("starts");
	if (fork() != 0)
		_exit(3);
	setsid();
	if (fork() != 0)
		_exit(0);
	umask(0);
	if (chdir("/"))
		return 1;
	for (int i = 0; i < 30; i++) {
		usleep(10000);
		if (!getenv("PATH"))
			return 2;
	}
	printf("daemon %s\n", getpid() != first && getsid(0) != getpid() ? "lives" : "is odd");
	return 0;
}
