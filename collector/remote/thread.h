/* SPDX-License-Identifier: MIT */
/* thread.h: takes a thread of a program where it can be made to call something, and lets it go. Used by one tracer thread.
 */
#ifndef LORG_REMOTE_THREAD_H
#define LORG_REMOTE_THREAD_H

#include <stdint.h>
#include <sys/types.h>

#include "collector/remote/frame.h"
#include "collector/remote/program.h"

struct taken {
	pid_t tid;
	int at_entry;                  /* 1: it stands before a system call that has not begun; 0: anywhere else */
	struct thread_context context; /* as it was */
};

/*
 * Takes one, looking for at most limit_ns. 0; or -1 with *why (constant text) why none could be had, the last reason met.
 * What could not be stopped in time is let go by the kernel when the calling thread ends.
 */
int thread_take(const struct program *program, uint64_t limit_ns, struct taken *taken, const char **why);

/* How a thread goes on that was taken: registers for a thread that is before a system call (1) or elsewhere (0). */
void thread_resumed(const struct taken *taken, int at_entry, struct user_regs_struct *registers);

/*
 * Waits until the thread stops: 1 with *signal and *event as ptrace tells them; 0: not within limit (CLOCK_MONOTONIC, ns);
 * -1: it is gone.
 */
int thread_await(pid_t tid, uint64_t limit, int *signal, int *event);
uint64_t thread_now_ns(void);

#endif
