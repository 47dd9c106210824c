/* SPDX-License-Identifier: MIT */
/*
 * A sandbox before a thread's first event. First a filter that allows what pthread_create itself needs and kills at anything
 * else; then strict mode as the first act of a thread, and as the first act of a forked child.
 */
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int ends[2];

static void say(char what)
{
	if (write(ends[1], &what, 1) != 1)
		_exit(9);
}

static void *in_filter(void *argument)
{
	for (int i = 0; i < 1000; i++)
		if (!getenv("PATH"))
			_exit(8);
	say('f');
	return argument;
}

static void *in_strict(void *argument)
{
	(void)argument;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		say('?');
	for (int i = 0; i < 1000; i++)
		if (!getenv("PATH"))
			say('!');
	say('s');
	syscall(SYS_exit, 0);
	return NULL;
}

static void filtered(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(__NR_read), ALLOW(__NR_write), ALLOW(__NR_exit), ALLOW(__NR_exit_group), ALLOW(__NR_rt_sigreturn),
		ALLOW(__NR_mmap), ALLOW(__NR_mprotect), ALLOW(__NR_munmap), ALLOW(__NR_madvise), ALLOW(__NR_clone),
		ALLOW(__NR_clone3), ALLOW(__NR_futex), ALLOW(__NR_set_robust_list), ALLOW(__NR_rseq),
		ALLOW(__NR_rt_sigprocmask), ALLOW(__NR_rt_sigaction), ALLOW(__NR_sched_getaffinity), ALLOW(__NR_brk), ALLOW(__NR_getrandom),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
	for (int i = 0; i < 8; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, in_filter, NULL))
			_exit(7);
		pthread_join(thread, NULL);
	}
	_exit(0);
}

/* The status of a child that does `what`, and the bytes that it sent. */
static void child(const char *name, void (*what)(void))
{
	char got[32];
	int status = -1;

	if (pipe(ends))
		exit(1);
	if (fork() == 0)
		what();
	close(ends[1]);
	ssize_t n, length = 0;
	while ((n = read(ends[0], got + length, sizeof(got) - 1 - (size_t)length)) > 0)
		length += n;
	got[length] = 0;
	close(ends[0]);
	wait(&status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		exit(77);
	printf("%s: %s, status %d\n", name, got, status);
	fflush(stdout);
}

static void strict_thread(void)
{
	pthread_t thread;
	char what = 0;
	int own[2];

	if (pipe(own))
		_exit(1);
	int told = ends[1];
	ends[1] = own[1];
	if (pthread_create(&thread, NULL, in_strict, NULL))
		_exit(1);
	if (read(own[0], &what, 1) != 1)
		_exit(2);
	ends[1] = told;
	say(what);
	usleep(20000);
	_exit(0);
}

static void strict_child(void)
{
	in_strict(NULL);
}

int main(void)
{
	child("filter before threads", filtered);
	child("strict thread", strict_thread);
	child("strict child", strict_child);
	return 0;
}
