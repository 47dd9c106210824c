/* SPDX-License-Identifier: MIT */
/* Stands between the program and libc: its own write, read and pthread_create, each passed on and counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

int between_writes, between_reads, between_threads;

ssize_t write(int fd, const void *data, size_t length)
{
	between_writes++;
	return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, data, length);
}

ssize_t read(int fd, void *data, size_t length)
{
	between_reads++;
	return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(fd, data, length);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
	between_threads++;
	return ((int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create"))(
		thread, attributes, routine, argument);
}
