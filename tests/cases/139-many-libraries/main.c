/* SPDX-License-Identifier: MIT */
/* Hundreds of libraries loaded and unloaded, some of them while threads work; each works when it is loaded and unloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int stop;

static void *work(void *argument)
{
	while (!stop)
		free(malloc(30));
	return argument;
}

static void copy(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	while (sendfile(out, in, NULL, 1 << 20) > 0)
		;
	close(in);
	close(out);
}

int main(int argc, char **argv)
{
	char name[4096];
	void *handles[50];
	int good = 0, loads = 0;
	pthread_t thread;

	if (argc < 2)
		return 2;
	pthread_create(&thread, NULL, work, NULL);
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 50; i++) {
			snprintf(name, sizeof(name), "%s.%d", argv[1], i);
			if (round == 0)
				copy(argv[1], name);
			handles[i] = dlopen(name, RTLD_NOW | (i % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
			if (!handles[i])
				return 1;
			int *counter = dlsym(handles[i], "plug_loads");
			int (*function)(int) = (int (*)(int))dlsym(handles[i], "plug_call");
			loads += *counter;
			good += function(i) == i + 1;
		}
		for (int i = 0; i < 50; i++)
			dlclose(handles[(i * 7) % 50]);
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("good %d, loads %d\n", good, loads);
	return 0;
}
