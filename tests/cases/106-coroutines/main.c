/* SPDX-License-Identifier: MIT */
/* A hundred coroutines on stacks of their own, made and switched by libc, that call in their middle and are moved between threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { COUNT = 100, TURNS = 200, STACK = 16384 };

struct coroutine {
	ucontext_t self, back;
	char *stack;
	int turns, ended;
};

static struct coroutine coroutines[COUNT];
static int ends[2];

static void body(int index)
{
	struct coroutine *c = &coroutines[index];
	char guard[64];

	memset(guard, index, sizeof(guard));
	for (c->turns = 0; c->turns < TURNS; c->turns++) {
		char byte = (char)index;
		if (!getenv("PATH"))
			abort();
		if (c->turns % 50 == 0 && (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1))
			abort();
		free(malloc(32));
		swapcontext(&c->self, &c->back);
	}
	for (size_t i = 0; i < sizeof(guard); i++)
		if (guard[i] != (char)index)
			abort();
	c->ended = 1;
	swapcontext(&c->self, &c->back);
}

static void *half(void *argument)
{
	(void)argument;
	for (int turn = 0; turn < TURNS / 2; turn++)
		for (int i = 0; i < COUNT; i++)
			swapcontext(&coroutines[i].back, &coroutines[i].self);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int turns = 0, ended = 0;

	if (pipe(ends))
		return 1;
	for (int i = 0; i < COUNT; i++) {
		struct coroutine *c = &coroutines[i];
		c->stack = malloc(STACK);
		getcontext(&c->self);
		c->self.uc_stack.ss_sp = c->stack;
		c->self.uc_stack.ss_size = STACK;
		c->self.uc_link = NULL;
		makecontext(&c->self, (void (*)(void))body, 1, i);
	}
	half(NULL);
	pthread_create(&thread, NULL, half, NULL);
	pthread_join(thread, NULL);
	for (int i = 0; i < COUNT; i++)
		swapcontext(&coroutines[i].back, &coroutines[i].self);
	for (int i = 0; i < COUNT; i++) {
		turns += coroutines[i].turns;
		ended += coroutines[i].ended;
		free(coroutines[i].stack);
	}
	printf("turns %d, ended %d\n", turns, ended);
	return 0;
}
