/* SPDX-License-Identifier: MIT */
/*
 * hold.h: all threads of a program held by ptrace for a moment.
 *
 * Seized, not attached: no signal is sent, a stopped program stays stopped, a
 * signal on its way is delivered afterwards as it was. The tracer is a thread
 * of its own that lives as long as the hold: when it ends, or the collector
 * dies, the kernel lets everything go.
 *
 * No thread is ever made to execute single instructions: should the collector die in the middle, the kernel would not
 * take that back, and the program die of it.
 *
 * To hold a thread ends the system call that it waits in. The kernel takes up
 * again all but a few; those are taken up here.
 */
#ifndef LORG_PATCH_HOLD_H
#define LORG_PATCH_HOLD_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct held {
	pid_t tid;
	int stopped;
	int gone;
	int signal;    /* to be delivered when let go; 0: none */
	int group_stop; /* it is stopped by a signal anyway */
	struct user_regs_struct registers;
};

struct hold {
	pid_t pid;
	struct held *threads;
	uint32_t count, room;
	uint64_t limit_ns; /* CLOCK_MONOTONIC; nothing waits beyond it */
	int error;
	const char *why;
};

/*
 * Calls work(context, hold) with all threads held, in another thread. 0, or -1 with *error (errno) and *why (constant
 * text): then work was not called.
 */
int hold_threads(pid_t pid, uint64_t limit_ns, void (*work)(void *context, struct hold *hold), void *context, int *error,
		 const char **why);

/* System calls that give EINTR where others go on by themselves once a thread that was stopped goes on (signal(7)). */
int hold_ends_call(uint64_t number);

/* In work: the thread goes on at `address`. */
int hold_move(struct held *thread, uint64_t address);

#endif
