/* SPDX-License-Identifier: MIT */
/* Stacks with next to no room: the least that a thread may have, a small alternate stack, and an overflow caught on that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static sigjmp_buf back;
static int caught, ends[2];

static void on_fault(int signal)
{
	char byte = 'f';

	(void)signal;
	caught += write(ends[1], &byte, 1) == 1;
	siglongjmp(back, 1);
}

static void on_user(int signal)
{
	char byte = 'u';

	(void)signal;
	caught += write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1 && getenv("PATH");
}

/* Each frame touches its memory, so that no guard page is jumped over. */
static int __attribute__((noinline)) deeper(int depth)
{
	volatile char frame[512];

	memset((char *)frame, depth, sizeof(frame));
	return deeper(depth + 1) + frame[0];
}

static void *least(void *argument)
{
	char byte = 't';

	if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1 || !getenv("PATH"))
		abort();
	free(malloc(10));
	return argument;
}

int main(void)
{
	enum { SIZE = 8192 };
	stack_t alternate = {.ss_sp = malloc(SIZE), .ss_size = SIZE};
	struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
	struct sigaction user = {.sa_handler = on_user, .sa_flags = SA_ONSTACK};
	struct rlimit stack = {1 << 20, RLIM_INFINITY};
	pthread_attr_t attribute;
	pthread_t thread;
	int overflows = 0;

	if (pipe(ends))
		return 1;
	getrlimit(RLIMIT_STACK, &stack);
	stack.rlim_cur = 256 << 10;
	setrlimit(RLIMIT_STACK, &stack);
	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGUSR1, &user, NULL);
	for (int i = 0; i < 5; i++) {
		char byte;
		if (sigsetjmp(back, 1) == 0)
			return deeper(0);
		overflows += read(ends[0], &byte, 1) == 1 && byte == 'f';
	}
	for (int i = 0; i < 100; i++)
		raise(SIGUSR1);
	pthread_attr_init(&attribute);
	pthread_attr_setstacksize(&attribute, 16384);
	for (int i = 0; i < 50; i++) {
		if (pthread_create(&thread, &attribute, least, NULL))
			return 2;
		pthread_join(thread, NULL);
	}
	printf("overflows %d, caught %d\n", overflows, caught);
	return 0;
}
