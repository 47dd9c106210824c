/* SPDX-License-Identifier: MIT */
/*
 * program.h: a verified program of a match specification.
 *
 * The program's memory may be changed by others at any time. What lorg_match_open has checked is copied into struct
 * lorg_match_program, which the caller keeps where nobody else writes; the evaluator takes all bounds from there.
 * Nothing here allocates, locks or makes system calls; all is async-signal-safe.
 */
#ifndef LORG_PRELOAD_MATCH_PROGRAM_H
#define LORG_PRELOAD_MATCH_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/match.h>

struct lorg_match_program {
	const lorg_match_instruction *code;
	const uint64_t *constants;
	const struct lorg_match_range *ranges;
	uint32_t code_words, constant_words, range_count;
	uint32_t stack, variables; /* words */
	uint32_t dialect;	   /* enum lorg_match_dialect */
	uint32_t needs;
	uint64_t arguments;
};

/* What is wrong with a program, and at which instruction. */
enum lorg_match_defect {
	LORG_MATCH_GOOD = 0,
	LORG_MATCH_BAD_HEAD,
	LORG_MATCH_BAD_VERSION,
	LORG_MATCH_TOO_LARGE,
	LORG_MATCH_BAD_OPERATION,
	LORG_MATCH_BAD_OPERAND,
	LORG_MATCH_BAD_FUNCTION,
	LORG_MATCH_BAD_JUMP,
	LORG_MATCH_BAD_STACK,
	LORG_MATCH_BAD_CLAUSE, /* a clause that does not begin or end as one */
};

/* How large a program may be. The limits of a traced program stand in match.h; outside it they may be higher. */
struct lorg_match_limits {
	uint32_t instructions;
	uint32_t stack; /* words of stack and variables together */
};

extern const struct lorg_match_limits lorg_match_limits_inside;

/*
 * Verifies the program at memory (aligned to 8 bytes), which has `size` bytes, and fills in *program, which refers to
 * memory. `depths` is room for `room` numbers, at least as many as there are instructions, and one. *where: the
 * instruction that is wrong; may be NULL.
 */
enum lorg_match_defect lorg_match_open(struct lorg_match_program *program, const void *memory, size_t size,
				       const struct lorg_match_limits *limits, uint32_t *depths, uint32_t room, uint32_t *where);

#endif
