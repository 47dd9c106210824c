/* SPDX-License-Identifier: MIT */
/*
 * relocate.h: moves the first instructions of a function elsewhere.
 *
 * A pure function of its arguments, so that tests can feed it bytes. The
 * decoder knows the few instructions that system call stubs begin with (moves,
 * compares, register arithmetic, pushes, syscall, NOPs) and refuses all others.
 */
#ifndef LORG_PRELOAD_RELOCATE_H
#define LORG_PRELOAD_RELOCATE_H

#include <stdint.h>

#include "preload/core/memory.h"

enum {
	RELOCATE_WINDOW = 32,	/* bytes of the function that are looked at; must be readable */
	RELOCATE_MAXIMUM = 40,	/* bytes that the trampoline takes at most */
	RELOCATE_JUMP = 5,	/* bytes that the jump to the wrapper takes */
};

struct relocation {
	uint32_t skipped;  /* bytes of an endbr64 that stay where they are */
	uint32_t taken;	   /* bytes of whole instructions behind it, at least RELOCATE_JUMP */
	uint32_t length;   /* bytes written to the trampoline, the jump back included */
	const char *refused; /* NULL: done; else the reason */
};

/*
 * code: the `size` bytes of a function (at least RELOCATE_WINDOW must be readable) as they stand at address `from`.
 * Writes to `to` the instructions as they have to read at address `at`, then a jump to the instruction behind them.
 * Refuses what it does not know, what would be out of reach, and a function that may jump back into what has moved.
 */
HIDDEN struct relocation relocate(const uint8_t *code, uint32_t size, uint64_t from, uint8_t *to, uint64_t at);

/* One instruction, for relocate() and its tests. length 0: not one that may be moved. */
struct instruction {
	uint8_t length;
	uint8_t displacement; /* offset of a RIP-relative displacement of four bytes; 0: none */
};
HIDDEN struct instruction instruction_decode(const uint8_t *code, uint32_t available);

#endif
