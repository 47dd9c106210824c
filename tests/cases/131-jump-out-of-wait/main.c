/* SPDX-License-Identifier: MIT */
/* A handler that jumps out of whatever call the thread was waiting in, again and again; the next call must be as any. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread sigjmp_buf back;
static int ends[2], started;

static void on_alarm(int signal)
{
	siglongjmp(back, signal);
}

static void *other(void *argument)
{
	pthread_t *first = argument;

	for (int i = 0; i < 60; i++) {
		usleep(2000);
		pthread_kill(*first, SIGUSR1);
		while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) <= i + 1 && i < 59)
			usleep(100);
	}
	return NULL;
}

static void wait_in(int way)
{
	struct pollfd poll_in = {ends[0], POLLIN, 0};
	char byte;
	sem_t never;

	switch (way % 5) {
	case 0: (void)!read(ends[0], &byte, 1); break;
	case 1: poll(&poll_in, 1, -1); break;
	case 2: sleep(1000); break;
	case 3: sem_init(&never, 0, 0); sem_wait(&never); break;
	case 4: pause(); break;
	}
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_NODEFER};
	pthread_t first = pthread_self(), thread;
	volatile int jumped = 0, good = 0;

	if (pipe(ends))
		return 1;
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, other, &first);
	for (volatile int i = 0; i < 60; i++) {
		char byte = 0;
		if (sigsetjmp(back, 1) == 0) {
			__atomic_store_n(&started, i + 1, __ATOMIC_RELEASE);
			wait_in(i);
		} else {
			jumped++;
		}
		int own[2];
		good += pipe(own) == 0 && write(own[1], "x", 1) == 1 && read(own[0], &byte, 1) == 1 && byte == 'x';
		close(own[0]);
		close(own[1]);
	}
	pthread_join(thread, NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(4);
	int status;
	waitpid(pid, &status, 0);
	printf("jumped %d, good %d, child %d\n", jumped, good, WEXITSTATUS(status));
	return 0;
}
