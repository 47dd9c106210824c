/* SPDX-License-Identifier: MIT */
/* Robust and shared locks whose owner dies: in another program, in a thread, while others wait. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int turn, count;
} *shared;

static void *dies_with_it(void *argument)
{
	pthread_mutex_lock(&shared->lock);
	return argument;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	pthread_condattr_t condition;
	pthread_t thread;
	int died = 0, status;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&shared->lock, &attributes);
	pthread_condattr_init(&condition);
	pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->changed, &condition);
	for (int i = 0; i < 10; i++) {
		pid_t pid = 0;
		if (i % 2 == 0 && (pid = fork()) == 0) {
			dies_with_it(NULL);
			kill(getpid(), i % 4 ? SIGKILL : SIGTERM);
			pause();
		}
		if (i % 2) {
			pthread_create(&thread, NULL, dies_with_it, NULL);
			pthread_join(thread, NULL);
		} else {
			waitpid(pid, &status, 0);
		}
		if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD)
			died += pthread_mutex_consistent(&shared->lock) == 0;
		pthread_mutex_unlock(&shared->lock);
	}
	pid_t pid = fork();
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&shared->lock);
		while (shared->turn != (pid == 0))
			pthread_cond_wait(&shared->changed, &shared->lock);
		shared->turn = pid != 0;
		shared->count++;
		pthread_cond_signal(&shared->changed);
		pthread_mutex_unlock(&shared->lock);
	}
	if (pid == 0)
		_exit(0);
	waitpid(pid, &status, 0);
	printf("died %d, turns %d\n", died, shared->count);
	return 0;
}
