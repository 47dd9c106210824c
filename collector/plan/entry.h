/* SPDX-License-Identifier: MIT */
/*
 * entry.h: whether the first instructions of a function can be replaced by a
 * jump, and what they are elsewhere. Looks at bytes alone: what leads into them
 * from elsewhere is scan.h's to say.
 */
#ifndef LORG_PLAN_ENTRY_H
#define LORG_PLAN_ENTRY_H

#include <capstone/capstone.h>
#include <stddef.h>
#include <stdint.h>

#include <lorg/plan.h>

/* Why a function's entry is left alone. */
enum refusal {
	REFUSED_NOT = 0,
	REFUSED_TOO_SHORT,	 /* fewer than five bytes, and no padding behind */
	REFUSED_UNKNOWN_CODE,	 /* the disassembler does not know an instruction */
	REFUSED_CALL,		 /* a call among them that is not the last */
	REFUSED_CANNOT_MOVE,	 /* loop, jrcxz, xbegin, an operand relative to eip */
	REFUSED_TOO_LONG,	 /* what must move does not fit */
	REFUSED_JUMP_INTO,	 /* code jumps into the bytes that the patch replaces */
	REFUSED_LOOP,		 /* its own code jumps back to its start: each round would look like a call */
	REFUSED_JUMP_TABLE,	 /* a table leads into them */
	REFUSED_LANDING_PAD,
	REFUSED_FRAME_SET_UP,	 /* a symbol in the middle of other code */
	REFUSED_CHOSEN,		 /* IFUNC */
	REFUSED_SIGNAL_RETURN,	 /* debuggers know it by its bytes */
	REFUSED_UNPROVABLE,	 /* code that could not be read clearly jumps there, or seems to */
	REFUSED_GO,		 /* small stacks that move */
	REFUSED_COUNT,
};

/* A sentence for people, without the function's name. */
const char *refusal_text(enum refusal refusal);
/* A word for programs. */
const char *refusal_word(enum refusal refusal);

struct entry_fixup {
	uint8_t at, from; /* as in struct lorg_plan_function */
	int32_t target;	  /* less the function's address */
};

struct entry {
	enum refusal refusal;
	enum lorg_entry_kind kind;
	uint8_t skip, taken;
	uint8_t code_length, fixup_count, moved_count;
	struct {
		uint8_t code, original;
	} moved[LORG_MOVED_MAXIMUM]; /* as in struct lorg_plan_function */
	uint8_t original_length;
	uint8_t original[16];
	uint8_t code[LORG_ENTRY_MAXIMUM];
	struct entry_fixup fixups[4];
};

/* What may be asked about a call that the compiler has put at the entry. */
struct entry_context {
	csh capstone;
	cs_insn *instruction; /* of cs_malloc() */
	/* True if a call that leads to `target` (address of code, or of a slot where indirect) is one of a profiler's hook. */
	int (*is_profiler)(void *context, uint64_t target, int indirect);
	void *context;
};

/* 0, or -1: no memory. */
int entry_context_open(struct entry_context *context);
void entry_context_close(struct entry_context *context);

/*
 * bytes: of the function at `address`; size: how many are its own; room: how many there are until the next function or
 * the end of the section, padding included.
 */
void entry_analyse(struct entry_context *context, const uint8_t *bytes, uint64_t address, size_t size, size_t room, struct entry *entry);

#endif
