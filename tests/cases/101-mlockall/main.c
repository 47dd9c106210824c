/* SPDX-License-Identifier: MIT */
/* Locks all its memory, now and later: as it was started, and as a user with the usual limit. What a tracer maps counts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *body(void *argument)
{
	for (int i = 0; i < 1000; i++)
		if (!getenv("PATH"))
			abort();
	return argument;
}

static const char *locked(int flags)
{
	pthread_attr_t small;
	pthread_t thread;

	if (mlockall(flags) != 0)
		return "refused";
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (int i = 0; i < 8; i++) {
		if (pthread_create(&thread, &small, body, NULL) != 0)
			return "locked, but no thread";
		pthread_join(thread, NULL);
	}
	char *block = malloc(1 << 20);
	if (!block)
		return "locked, but no memory";
	free(block);
	return munlockall() == 0 ? "locked" : "not unlocked";
}

static void attempt(const char *who, int flags)
{
	int status;

	fflush(stdout);
	if (fork() == 0) {
		struct rlimit usual = {8 << 20, 8 << 20};
		setrlimit(RLIMIT_MEMLOCK, &usual);
		if (who[0] == 'u' && geteuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(1);
		printf("%s %d: %s\n", who, flags, locked(flags));
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
}

int main(void)
{
	attempt("user", MCL_CURRENT);
	attempt("user", MCL_CURRENT | MCL_FUTURE);
	attempt("root", MCL_CURRENT | MCL_FUTURE);
	attempt("root", MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
	return 0;
}
