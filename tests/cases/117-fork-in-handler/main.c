/* SPDX-License-Identifier: MIT */
/* A handler that forks, in the middle of whatever the program does; the child writes and leaves. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t forks;
static int ends[2];

static void on_alarm(int signal)
{
	int saved = errno;
	char byte = 'c';

	(void)signal;
	if (forks < 50) {
		pid_t pid = _Fork();
		if (pid == 0)
			_exit(write(ends[1], &byte, 1) == 1 ? 7 : 8);
		if (pid > 0)
			forks++;
	}
	errno = saved;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 1000}, {0, 1000}}, never;
	int good = 0, status, bytes = 0;
	char text[64];

	if (pipe(ends))
		return 1;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (forks < 50) {
		char *p = malloc(100), byte = 'p', got;
		if (!getenv("PATH") || write(ends[1], &byte, 1) != 1 || read(ends[0], &got, 1) != 1)
			return 2;
		bytes += got == 'c';
		free(p);
	}
	memset(&never, 0, sizeof(never));
	setitimer(ITIMER_REAL, &never, NULL);
	while (waitpid(-1, &status, 0) > 0)
		good += WIFEXITED(status) && WEXITSTATUS(status) == 7;
	close(ends[1]);
	ssize_t n;
	while ((n = read(ends[0], text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < n; i++)
			bytes += text[i] == 'c';
	printf("forks %d, good %d, bytes %d\n", (int)forks, good, bytes);
	return 0;
}
