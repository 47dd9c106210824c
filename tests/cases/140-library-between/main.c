/* SPDX-License-Identifier: MIT */
/* A library that takes the place of libc's functions itself keeps its place when traced, and is called once a call. */
#include <pthread.h>
#include <stdio.h>
#include <threads.h>
#include <unistd.h>

extern int between_writes, between_reads, between_threads;

static void *body(void *argument)
{
	return argument;
}

static int body_of_c11(void *argument)
{
	(void)argument;
	return 7;
}

int main(void)
{
	int ends[2], result = 0;
	char byte = 'x';
	pthread_t thread;
	thrd_t other;

	if (pipe(ends) != 0)
		return 1;
	for (int i = 0; i < 100; i++)
		if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
			return 2;
	for (int i = 0; i < 10; i++)
		if (pthread_create(&thread, NULL, body, NULL) != 0 || pthread_join(thread, NULL) != 0)
			return 3;
	if (thrd_create(&other, body_of_c11, NULL) != thrd_success || thrd_join(other, &result) != thrd_success)
		return 4;
	printf("between: %d writes, %d reads, %d threads; the C11 thread gave %d\n", between_writes, between_reads, between_threads, result);
	return 0;
}
