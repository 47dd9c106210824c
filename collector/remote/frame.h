/* SPDX-License-Identifier: MIT */
/*
 * frame.h: all that a stopped thread is, and a signal frame that makes it so again.
 *
 * The frame has the form in which the kernel itself leaves a thread's state on its stack when it delivers a signal:
 * a function that is made to run above such a frame, with rt_sigreturn as where it returns to, gives the thread back its
 * registers, vector registers and signal mask by itself: nobody outside has to be alive for that.
 */
#ifndef LORG_REMOTE_FRAME_H
#define LORG_REMOTE_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "collector/remote/program.h"

enum { STATE_MAXIMUM = 1 << 14 };

struct thread_context {
	struct user_regs_struct registers;
	uint64_t mask; /* of signals */
	uint32_t note; /* NT_X86_XSTATE or NT_PRFPREG: what `state` is */
	size_t state_size;
	uint8_t state[STATE_MAXIMUM];
};

/* Of a thread that is stopped. 0, or -1: errno. */
int context_save(pid_t tid, struct thread_context *context);
/* Mask and vector registers; the registers are set by the caller, last. 0, or -1. */
int context_restore_rest(pid_t tid, const struct thread_context *context);

/* Bytes that a frame takes, with all alignment. */
size_t frame_size(const struct thread_context *context);
/*
 * Where the frame begins that ends below `top`: there the return address stands, as the stack pointer of a function that
 * has just been called expects it.
 */
uint64_t frame_place(const struct thread_context *context, uint64_t top);
/* Writes the frame to `at` (of frame_place): what returns there becomes `context` with `registers`. 0, or -1. */
int frame_write(const struct program *program, uint64_t at, const struct thread_context *context,
		const struct user_regs_struct *registers, uint64_t restorer);

#endif
