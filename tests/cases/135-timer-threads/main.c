/* SPDX-License-Identifier: MIT */
/* Threads that libc makes by itself: timers that notify by a thread, asynchronous I/O, a message queue's notification. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static sem_t ticks;

static void tick(union sigval value)
{
	(void)value;
	free(malloc(20));
	sem_post(&ticks);
}

int main(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick};
	struct itimerspec often = {{0, 2000000}, {0, 2000000}};
	struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 8};
	char name[32], text[8] = "";
	timer_t timer;
	int good = 0, ends[2];

	sem_init(&ticks, 0, 0);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer))
		return 77;
	timer_settime(timer, 0, &often, NULL);
	for (int i = 0; i < 20; i++)
		good += sem_wait(&ticks) == 0;
	timer_delete(timer);
	usleep(20000);
	while (sem_trywait(&ticks) == 0)
		;
	snprintf(name, sizeof(name), "/lorg-case-%d", (int)getpid());
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attributes);
	if (queue == (mqd_t)-1)
		return 77;
	mq_unlink(name);
	mq_notify(queue, &event);
	mq_send(queue, "message", 8, 0);
	good += sem_wait(&ticks) == 0 && mq_receive(queue, text, 8, NULL) == 8;
	mq_close(queue);
	if (pipe(ends))
		return 1;
	struct aiocb request = {.aio_fildes = ends[0], .aio_buf = text, .aio_nbytes = 5};
	request.aio_sigevent = event;
	aio_read(&request);
	good += write(ends[1], "async", 5) == 5 && sem_wait(&ticks) == 0 && aio_error(&request) == 0 && aio_return(&request) == 5 &&
		memcmp(text, "async", 5) == 0;
	printf("good %d\n", good);
	return 0;
}
