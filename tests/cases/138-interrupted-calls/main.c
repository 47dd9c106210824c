/* SPDX-License-Identifier: MIT */
/* What a signal does to a waiting call: EINTR or restarted, time left, bytes moved so far, errno: as the manuals say. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int handled;
static int ends[2];

static void on_alarm(int signal)
{
	(void)signal;
	handled++;
	errno = ENOTTY; /* a careless handler */
}

static void on_alarm_feed(int signal)
{
	on_alarm(signal);
	(void)!write(ends[1], "fed", 3);
}

static void arm(void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	struct itimerval soon = {{0, 0}, {0, 5000}};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
}

int main(void)
{
	struct timespec long_time = {100, 0}, left = {0, 0};
	struct timeval patience = {100, 0};
	char text[8] = "";
	int pair[2];
	sem_t semaphore;
	struct pollfd poll_in;
	sigset_t none;
	fd_set set;

	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	poll_in = (struct pollfd){pair[0], POLLIN, 0};
	sem_init(&semaphore, 0, 0);
	sigemptyset(&none);
	arm(on_alarm, 0);
	ssize_t n = read(pair[0], text, 4);
	printf("read %zd %s\n", n, strerrorname_np(errno));
	arm(on_alarm_feed, SA_RESTART);
	n = read(ends[0], text, 4);
	printf("restarted read %zd %s\n", n, text);
	arm(on_alarm, SA_RESTART);
	int result = poll(&poll_in, 1, 100000);
	printf("poll %d %s\n", result, strerrorname_np(errno));
	arm(on_alarm, SA_RESTART);
	result = nanosleep(&long_time, &left);
	printf("nanosleep %d %s, left %ld\n", result, strerrorname_np(errno), (long)left.tv_sec);
	arm(on_alarm, SA_RESTART);
	result = clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);
	printf("clock_nanosleep %s\n", strerrorname_np(result));
	arm(on_alarm, 0);
	result = sem_wait(&semaphore);
	printf("sem_wait %d %s\n", result, strerrorname_np(errno));
	arm(on_alarm, 0);
	FD_ZERO(&set);
	FD_SET(pair[0], &set);
	result = select(pair[0] + 1, &set, NULL, NULL, &patience);
	printf("select %d %s, left %ld\n", result, strerrorname_np(errno), (long)patience.tv_sec);
	arm(on_alarm, 0);
	unsigned remaining = sleep(100);
	printf("sleep left %d\n", remaining >= 99 && remaining <= 100);
	arm(on_alarm, 0);
	result = sigsuspend(&none);
	printf("sigsuspend %d %s\n", result, strerrorname_np(errno));
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(1);
	}
	arm(on_alarm, 0);
	result = waitpid(pid, NULL, 0);
	printf("waitpid %d %s\n", result, strerrorname_np(errno));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	printf("handled %d\n", handled);
	return 0;
}
