/* SPDX-License-Identifier: MIT */
/* Threads cancelled where they wait, in each kind of wait, with clean-up handlers; and one that is cancelled at once. */
#define _GNU_SOURCE
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int ends[2], pair[2], cleaned;
static sem_t semaphore, ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void clean(void *argument)
{
	(void)argument;
	__atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED);
}

static void unlock(void *argument)
{
	clean(argument);
	pthread_mutex_unlock(&lock);
}

static void wait_somewhere(long way)
{
	struct pollfd poll_in = {ends[0], POLLIN, 0};
	struct timespec long_time = {1000, 0};
	struct epoll_event event;
	char byte;

	switch (way) {
	case 0: (void)!read(ends[0], &byte, 1); break;
	case 1: recv(pair[0], &byte, 1, 0); break;
	case 2: poll(&poll_in, 1, -1); break;
	case 3: nanosleep(&long_time, NULL); break;
	case 4: sem_wait(&semaphore); break;
	case 5: pause(); break;
	case 6: accept(pair[0], NULL, NULL); sleep(1000); break;
	case 7: epoll_wait(epoll_create1(0), &event, 1, -1); break;
	case 8: sleep(1000); break;
	case 9: select(0, NULL, NULL, NULL, NULL); break;
	case 10:
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
		for (volatile int i = 0;; i++)
			;
	default: for (;;) pthread_testcancel();
	}
}

static void *body(void *argument)
{
	long way = (long)argument;

	if (way == 12) {
		pthread_mutex_lock(&lock);
		pthread_cleanup_push(unlock, NULL);
		sem_post(&ready);
		for (;;)
			pthread_cond_wait(&condition, &lock);
		pthread_cleanup_pop(1);
	}
	pthread_cleanup_push(clean, NULL);
	sem_post(&ready);
	wait_somewhere(way);
	pthread_cleanup_pop(0);
	return NULL;
}

int main(void)
{
	int cancelled = 0;

	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	sem_init(&semaphore, 0, 0);
	sem_init(&ready, 0, 0);
	for (int turn = 0; turn < 3; turn++)
		for (long way = 0; way < 13; way++) {
			pthread_t thread;
			void *result = NULL;
			pthread_create(&thread, NULL, body, (void *)way);
			sem_wait(&ready);
			if (turn)
				usleep(3000);
			pthread_cancel(thread);
			pthread_join(thread, &result);
			cancelled += result == PTHREAD_CANCELED;
		}
	printf("cancelled %d, cleaned %d\n", cancelled, cleaned);
	return 0;
}
