/* SPDX-License-Identifier: MIT */
/* A program that is an interposer itself: defines read, write, malloc-free open, pthread_create; finds the real ones by dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int reads, writes, opens, threads;

ssize_t read(int fd, void *buffer, size_t length)
{
	static ssize_t (*real)(int, void *, size_t);
	if (!real)
		real = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	reads++;
	return real(fd, buffer, length);
}

ssize_t write(int fd, const void *buffer, size_t length)
{
	static ssize_t (*real)(int, const void *, size_t);
	if (!real)
		real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	writes++;
	return real(fd, buffer, length);
}

int open(const char *path, int flags, ...)
{
	static int (*real)(const char *, int, ...);
	if (!real)
		real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	opens++;
	return real(path, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	if (!real)
		real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
	threads++;
	return real(thread, attributes, start, argument);
}

static void *body(void *argument)
{
	char byte;
	return read(*(int *)argument, &byte, 1) == 1 ? argument : NULL;
}

int main(void)
{
	int ends[2], good = 0;
	pthread_t thread;
	void *result;
	Dl_info info;

	if (pipe(ends))
		return 1;
	for (int i = 0; i < 50; i++) {
		pthread_create(&thread, NULL, body, &ends[0]);
		good += write(ends[1], "x", 1) == 1;
		pthread_join(thread, &result);
		good += result == &ends[0];
	}
	int fd = open("/dev/null", O_RDONLY);
	char byte;
	good += read(fd, &byte, 1) == 0;
	printf("good %d, reads %d, writes %d, opens %d, threads %d", good, reads, writes, opens, threads);
	printf(", own first %d\n", dlsym(RTLD_DEFAULT, "read") == (void *)read && dladdr((void *)read, &info) && info.dli_saddr == (void *)read);
	return 0;
}
