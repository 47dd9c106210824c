/* SPDX-License-Identifier: MIT */
/* Gives up root: a new root directory (the same one), another user, no way back, not dumpable; then it executes itself. */
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 100; i++)
		if (!getenv("PATH"))
			abort();
	return argument;
}

int main(int argc, char **argv)
{
	char *child[] = {"prog", "child", NULL};
	pthread_t thread;
	int status;

	if (argc > 1) {
		pthread_create(&thread, NULL, body, NULL);
		pthread_join(thread, NULL);
		printf("executed as %d\n", (int)geteuid());
		return 6;
	}
	if (geteuid() != 0 || chroot("/") != 0) {
		fprintf(stderr, "needs root\n");
		return 77;
	}
	if (fork() == 0) {
		char path[4096];
		ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
		path[length < 0 ? 0 : length] = 0;
		if (setgroups(0, NULL) || setgid(65534) || setuid(65534) || setuid(0) == 0)
			_exit(1);
		pthread_create(&thread, NULL, body, NULL);
		pthread_join(thread, NULL);
		printf("%d, dumpable %d\n", (int)geteuid(), prctl(PR_GET_DUMPABLE));
		fflush(stdout);
		execv(path, child);
		perror(argv[0]);
		_exit(127);
	}
	wait(&status);
	printf("exit %d\n", WEXITSTATUS(status));
	return 0;
}
