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

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct held {
	pid_t tid;
	int stopped;
	int gone;
	int signal;    /* to be delivered when let go; 0: none */
	int group_stop; /* it is stopped by a signal anyway */
	int taken_up;	/* it makes the call anew that the hold has ended; `registers` say so */
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

/* 1: a signal that does nothing to the program: only what traces it gets to see it. */
int hold_ignores(pid_t pid, pid_t tid, int signal);

/* In work: the thread goes on at `address`. */
int hold_move(struct held *thread, uint64_t address);

/*
 * A thread that ends while another thread of ours traces it stays a zombie until we have waited for it; and an execve in the
 * program waits for that, with a lock held which PTRACE_SEIZE of the next thread waits for, without an end. So while a tracer
 * is at work somebody else has to wait for those: any thread of ours may. Only threads of `pid`, never its first one.
 */
void hold_reap(pid_t pid);

/* Waits for a thread of ours that traces `pid` to end, and does that meanwhile. */
void hold_join(pthread_t tracer, pid_t pid);

#endif
