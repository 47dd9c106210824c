/* SPDX-License-Identifier: MIT */
/*
 * remote.h: has ONE thread of a running program call a function of the program's own address space.
 *
 * The thread is taken where a call can do no harm: out of a system call that it waits in, or in code that is neither
 * the C library's nor an allocator's nor the loader's. It is seized, not attached; all others run on. What it was doing
 * stands in a signal frame under the call (frame.h), so that the thread gets back there by itself should this process die
 * in the middle. As long as this process lives it does it better: registers, vector registers, errno and signal mask as
 * they were, and the system call taken up as if nothing had been (also one with a time-out, and one that a signal is to
 * end). Signals wait meanwhile. The call has a stack of its own, which is unmapped afterwards.
 *
 * The tracer is a thread of its own: the caller goes on, and may have to, since the called code may ask it for something.
 */
#ifndef LORG_REMOTE_REMOTE_H
#define LORG_REMOTE_REMOTE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <lorg/late.h>

enum remote_outcome {
	REMOTE_DONE = 0,
	REMOTE_REFUSED = 1, /* nothing has happened, nor will it */
	REMOTE_AGAIN = 2,   /* nothing has happened: no thread was where a call can be made, or the loader was busy */
	REMOTE_LEFT = 3,    /* the call took too long: the thread was left alone with it, and goes on when it is done */
	REMOTE_FAILED = 4,  /* the call has crashed; the thread has been put back */
};

enum { REMOTE_ARGUMENTS = 6, REMOTE_DATA_MAXIMUM = 1 << 14 };

struct remote_call {
	pid_t pid;
	/*
	 * Its address there; in liblorg.so it has to be the entry that the library itself names (late.h), since the program
	 * may have become another meanwhile. Or 0, and `symbol`: a function of the C library.
	 */
	uint64_t function;
	const char *symbol;
	uint64_t arguments[REMOTE_ARGUMENTS];
	/* Copied there, its address is argument `data_argument`; copied back afterwards. NULL: none. */
	void *data;
	size_t data_size;
	unsigned data_argument;
	/* 1: the first that it does is to take a lock; where another thread has that for a second, it is given up. */
	int gives_up;
	uint64_t choice_ns; /* at most this long a thread is looked for; 0: 1 s */
	uint64_t limit_ns;  /* at most this long the call is waited for; 0: 5 s */

	enum remote_outcome outcome;
	int error;       /* errno, or 0 */
	const char *why; /* constant text; NULL: done */
	pid_t tid;       /* who it was */
};

/* Starts one; the call is copied, `data` has to stay until it is over. NULL: no thread can be had. */
struct remote *remote_start(const struct remote_call *call);
/* 1: it is over. */
int remote_over(const struct remote *remote);
/* Waits for its end and frees it; the results stand in *call. */
void remote_end(struct remote *remote, struct remote_call *call);
/* All three. 0, or -1. */
int remote_carry_out(struct remote_call *call);

/*
 * Where liblorg.so says of itself what late.h describes: *late 0: it is not there. 0, or -1: it is of another version.
 */
struct program;
int remote_find_late(const struct program *program, uint64_t *late, struct lorg_late *there);

/* Why nothing may be called in this program at all; NULL: it may. Constant text. *error: errno or 0. */
const char *remote_refusal(pid_t pid, int *error);

#endif
