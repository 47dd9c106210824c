/* SPDX-License-Identifier: MIT */
/* A thread that is not the first executes the program anew while others work: they end, its number becomes the first's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *argument)
{
	for (;;)
		free(malloc(30));
	return argument;
}

static void *become(void *argument)
{
	char *number = argument, next[8];
	char *child[] = {"prog", next, NULL};

	snprintf(next, sizeof(next), "%d", atoi(number) + 1);
	usleep(1000);
	execv("/proc/self/exe", child);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char first[] = "0";
	char *number = argc > 1 ? argv[1] : first;

	if (atoi(number) == 20) {
		printf("executed 20 times, %s\n", getpid() == gettid() ? "first thread" : "odd thread");
		return 0;
	}
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, work, NULL);
	pthread_create(&thread, NULL, become, number);
	work(NULL);
	return 1;
}
