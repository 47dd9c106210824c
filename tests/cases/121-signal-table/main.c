/* SPDX-License-Identifier: MIT */
/* A program that keeps books of its handlers: what was set comes back, as it was set, and at the start there is none. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int ran, with_info;

static void simple(int signal)
{
	(void)signal;
	ran++;
}

static void full(int signal, siginfo_t *info, void *context)
{
	with_info += info->si_signo == signal && info->si_pid == getpid() && context != NULL;
}

static void restarting(int signal)
{
	ran += 100 * (signal == SIGUSR2);
}

int main(void)
{
	struct sigaction now, set, back;
	int not_default = 0, same = 0, status = 0;
	sigset_t mask;

	for (int s = 1; s <= 64; s++)
		if (sigaction(s, NULL, &now) == 0)
			not_default += now.sa_handler != SIG_DFL;
	printf("not default %d\n", not_default);
	for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
		memset(&set, 0, sizeof(set));
		set.sa_sigaction = full;
		set.sa_flags = SA_SIGINFO | SA_RESTART;
		sigaddset(&set.sa_mask, SIGUSR1);
		sigaction(s, &set, NULL);
		sigaction(s, NULL, &back);
		same += back.sa_sigaction == full && (back.sa_flags & ~0x04000000) == (SA_SIGINFO | SA_RESTART) &&
			sigismember(&back.sa_mask, SIGUSR1) == 1 && sigismember(&back.sa_mask, SIGUSR2) == 0;
		raise(s);
	}
	printf("same %d, with information %d\n", same, with_info);
	printf("signal %d", signal(SIGUSR1, simple) == SIG_DFL);
	raise(SIGUSR1);
	printf(" %d", signal(SIGUSR1, restarting) == simple);
	printf(" %d", signal(SIGUSR1, SIG_IGN) == restarting);
	printf(" %d", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
	memset(&set, 0, sizeof(set));
	set.sa_handler = restarting;
	set.sa_flags = SA_RESETHAND | SA_NODEFER;
	sigaction(SIGUSR2, &set, NULL);
	raise(SIGUSR2);
	sigaction(SIGUSR2, NULL, &back);
	printf(", reset %d, ran %d", back.sa_handler == SIG_DFL, ran);
	printf(", refused %d %d\n", signal(SIGKILL, simple) == SIG_ERR, sigaction(200, &set, NULL));
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	kill(getpid(), SIGTERM);
	siginfo_t info;
	int taken = sigwaitinfo(&mask, &info);
	printf("taken %d from %d, ", taken == SIGTERM, info.si_pid == getpid());
	fflush(stdout);
	if (fork() == 0) {
		signal(SIGTERM, SIG_DFL);
		sigprocmask(SIG_UNBLOCK, &mask, NULL);
		raise(SIGTERM);
		_exit(1);
	}
	wait(&status);
	printf("child ended by %d\n", WTERMSIG(status));
	return 0;
}
