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
	/* Others that were looked at, and stand or have not stopped yet. */
	struct member *others;
	uint32_t other_count;
	uint32_t holds;	     /* so many times more they may be held; 0: they need not */
	uint64_t held_until; /* CLOCK_MONOTONIC; 0: they are let go as soon as they stop */
	uint64_t hold_again; /* the same */
};

/*
 * Takes one, looking for at most limit_ns. 0; or -1 with *why (constant text) why none could be had, the last reason met.
 * Where several have to be looked at, that is done with all at once, and where they are more than there are processors the
 * others stand for some milliseconds more, lest the one get no time for its call.
 *
 * thread_others, again and again while the thread is had: lets the others go when that time is over, or at once where
 * the thread waits (1): they may hold what it waits for. The kernel lets go what is left when the calling thread ends.
 * thread_hold_others: that is over, and they may stand again; nothing where they need not. thread_forget in any case.
 */
int thread_take(const struct program *program, uint64_t limit_ns, struct taken *taken, const char **why);
void thread_others(const struct program *program, struct taken *taken, int waits);
void thread_hold_others(const struct program *program, struct taken *taken);
/* For good, waiting for those that have not stopped yet: a call that is interrupted and not taken up gives EINTR. */
void thread_part(const struct program *program, struct taken *taken, uint64_t for_ns);
void thread_forget(struct taken *taken);

/* What waits for a thread and is not blocked: nothing, only signals that do nothing, or others, too. */
enum thread_signals { SIGNALS_NONE, SIGNALS_IGNORED, SIGNALS_DUE };
enum thread_signals thread_signals(pid_t pid, pid_t tid);

/* A thread that is stopped, wherever it is: it goes on as if it had not been. */
void thread_let_go(const struct program *program, pid_t tid);

/* How a thread goes on that was taken: registers for a thread that is before a system call (1) or elsewhere (0). */
void thread_resumed(const struct taken *taken, int at_entry, struct user_regs_struct *registers);

/*
 * Waits until the thread stops: 1 with *signal and *event as ptrace tells them; 0: not within limit (CLOCK_MONOTONIC, ns);
 * -1: it is gone.
 */
int thread_has_stopped(pid_t tid, int *signal, int *event); /* the same, now */
int thread_await(pid_t tid, uint64_t limit, int *signal, int *event);
uint64_t thread_now_ns(void);

#endif
