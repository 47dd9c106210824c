/* SPDX-License-Identifier: MIT */
/* Works before main and after it: preinit array, constructors, ifunc resolver, atexit, destructors; forks and threads there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int log_length;
static char log_text[64];

static void *body(void *argument)
{
	free(malloc(100));
	return argument;
}

static void work(char what)
{
	pthread_t thread;
	int ends[2], status = -1;
	char byte = what, got = 0;

	if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &got, 1) != 1)
		got = '?';
	close(ends[0]);
	close(ends[1]);
	pid_t pid = fork();
	if (pid == 0)
		_exit(4);
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) != 4)
		got = '?';
	void *result = NULL;
	if (pthread_create(&thread, NULL, body, &got) || pthread_join(thread, &result) || result != &got)
		got = '?';
	log_text[log_length++] = got;
}

static void early(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)argv;
	(void)envp;
	work('p');
}

__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = early;

__attribute__((constructor(101))) static void first(void)
{
	work('1');
}

__attribute__((constructor)) static void second(void)
{
	work('2');
}

static int plain(void)
{
	return 7;
}

/* Runs while the loader relocates: it may call nothing of libc. */
static int (*choose(void))(void)
{
	return plain;
}

int chosen(void) __attribute__((ifunc("choose")));

static void at_exit(void)
{
	work('e');
}

__attribute__((destructor)) static void last(void)
{
	work('d');
	log_text[log_length++] = '\n';
	fflush(stdout);
	if (write(1, log_text, (size_t)log_length) != log_length)
		_exit(9);
}

int main(void)
{
	atexit(at_exit);
	work('m');
	printf("chosen %d\n", chosen());
	return 0;
}
