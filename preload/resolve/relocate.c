/* SPDX-License-Identifier: MIT */
/* relocate.c: a narrow decoder of x86-64 instructions and the mover built on it. */
#include <stdint.h>

#include "preload/resolve/relocate.h"

enum {
	OPCODE_NO = 0,
	OPCODE_PLAIN,	 /* no operand bytes */
	OPCODE_BYTE,	 /* one byte of immediate */
	OPCODE_WORD,	 /* four bytes of immediate; eight for mov with REX.W */
	OPCODE_MODRM,
	OPCODE_MODRM_BYTE,
	OPCODE_MODRM_WORD,
	OPCODE_TEST,	 /* group 3: test has an immediate, the others are refused but for not and neg */
};

/* Only what neither branches nor looks at the instruction pointer other than by a displacement. */
static unsigned opcode_kind(uint8_t opcode)
{
	if (opcode < 0x40) { /* add or adc sbb and sub xor cmp */
		unsigned low = opcode & 7;
		if (low < 4)
			return OPCODE_MODRM;
		return low == 4 ? OPCODE_BYTE : low == 5 ? OPCODE_WORD : OPCODE_NO;
	}
	if (opcode >= 0x50 && opcode <= 0x5f) /* push, pop */
		return OPCODE_PLAIN;
	if (opcode >= 0xb8 && opcode <= 0xbf) /* mov immediate to a register */
		return OPCODE_WORD;
	switch (opcode) {
	case 0x63: /* movslq */
	case 0x84: /* test */
	case 0x85:
	case 0x88: /* mov */
	case 0x89:
	case 0x8a:
	case 0x8b:
	case 0x8d: /* lea */
		return OPCODE_MODRM;
	case 0x80: /* group 1 */
	case 0x83:
	case 0xc0: /* shifts */
	case 0xc1:
	case 0xc6: /* mov immediate to memory */
		return OPCODE_MODRM_BYTE;
	case 0x81:
	case 0xc7:
		return OPCODE_MODRM_WORD;
	case 0xf6:
	case 0xf7:
		return OPCODE_TEST;
	case 0xa8: /* test al */
		return OPCODE_BYTE;
	case 0xa9:
		return OPCODE_WORD;
	case 0x90: /* nop */
		return OPCODE_PLAIN;
	default:
		return OPCODE_NO;
	}
}

static unsigned opcode_kind_0f(uint8_t opcode)
{
	switch (opcode) {
	case 0x05: /* syscall */
		return OPCODE_PLAIN;
	case 0x1f: /* nop */
	case 0xb6: /* movzx, movsx */
	case 0xb7:
	case 0xbe:
	case 0xbf:
		return OPCODE_MODRM;
	default:
		/* cmov */
		return opcode >= 0x40 && opcode <= 0x4f ? OPCODE_MODRM : OPCODE_NO;
	}
}

/* Bytes of ModRM, SIB and displacement; *displacement gets the offset of a RIP-relative one within them, 0 none. */
static uint32_t modrm_length(const uint8_t *code, uint32_t *displacement)
{
	unsigned mode = code[0] >> 6, memory = code[0] & 7;
	uint32_t length = 1;
	*displacement = 0;
	if (mode == 3)
		return length;
	if (memory == 4) {
		length++;
		if (mode == 0 && (code[1] & 7) == 5)
			return length + 4;
	} else if (memory == 5 && mode == 0) {
		*displacement = length;
		return length + 4;
	}
	return length + (mode == 1 ? 1 : mode == 2 ? 4 : 0);
}

static uint32_t immediate_length(unsigned kind, uint8_t modrm, uint8_t opcode, int wide, int half)
{
	uint32_t word = half ? 2 : 4;
	switch (kind) {
	case OPCODE_BYTE:
	case OPCODE_MODRM_BYTE:
		return 1;
	case OPCODE_WORD:
		return wide && opcode >= 0xb8 && opcode <= 0xbf ? 8 : word;
	case OPCODE_MODRM_WORD:
		return word;
	case OPCODE_TEST:
		if ((modrm >> 3 & 7) > 1)
			return 0;
		return opcode == 0xf6 ? 1 : word;
	default:
		return 0;
	}
}

/* Groups with members that are no plain arithmetic: refused. */
static int group_refused(unsigned kind, uint8_t opcode, uint8_t modrm)
{
	unsigned member = modrm >> 3 & 7;
	if (opcode == 0xc6 || opcode == 0xc7)
		return member != 0;
	return kind == OPCODE_TEST && member > 3;
}

struct instruction instruction_decode(const uint8_t *code, uint32_t available)
{
	static const struct instruction unknown;
	/* Longest: prefixes, REX, two opcode bytes, ModRM, SIB, displacement, immediate; the caller's window is longer. */
	if (available < 15)
		return unknown;
	uint32_t at = 0;
	int half = 0, wide = 0;
	for (; at < 3 && (code[at] == 0x66 || code[at] == 0x64 || code[at] == 0x65); at++)
		half |= code[at] == 0x66;
	if ((code[at] & 0xf0) == 0x40)
		wide = code[at++] & 8;
	int two_bytes = code[at] == 0x0f;
	at += (uint32_t)two_bytes;
	uint8_t opcode = code[at++];
	unsigned kind = two_bytes ? opcode_kind_0f(opcode) : opcode_kind(opcode);
	if (kind == OPCODE_NO)
		return unknown;
	uint8_t modrm = code[at];
	uint32_t displacement = 0;
	if (kind >= OPCODE_MODRM) {
		if (!two_bytes && group_refused(kind, opcode, modrm))
			return unknown;
		uint32_t start = at;
		at += modrm_length(code + at, &displacement);
		displacement = displacement ? start + displacement : 0;
	}
	at += two_bytes ? 0 : immediate_length(kind, modrm, opcode, wide, half && !wide);
	return (struct instruction){(uint8_t)at, (uint8_t)displacement};
}

static int32_t read_word(const uint8_t *at)
{
	int32_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

/* Moves one RIP-relative displacement by the distance between the two places. False: out of reach. */
static int displacement_move(uint8_t *at, int64_t distance)
{
	int64_t moved = read_word(at) - distance;
	int32_t value = (int32_t)moved;
	if (value != moved)
		return 0;
	memcpy(at, &value, sizeof value);
	return 1;
}

/* jmp *0(%rip), and the address behind it: reaches everywhere and changes no register. */
static uint32_t write_jump(uint8_t *to, uint64_t target)
{
	static const uint8_t jump[6] = {0xff, 0x25};
	memcpy(to, jump, sizeof jump);
	memcpy(to + sizeof jump, &target, sizeof target);
	return sizeof jump + sizeof target;
}

static struct relocation refuse(const char *reason)
{
	return (struct relocation){.refused = reason};
}

/*
 * True if some branch within the function may lead behind the start of what is moved. Every byte is taken for the
 * start of a branch, so this errs on the side of refusing.
 */
static int jumps_into(const uint8_t *code, uint32_t size, uint32_t taken)
{
	for (uint32_t at = 0; at + 5 <= size; at++) {
		int64_t target = 0;
		if ((code[at] & 0xf0) == 0x70 || code[at] == 0xeb || (code[at] & 0xfc) == 0xe0)
			target = (int64_t)at + 2 + (int8_t)code[at + 1];
		else if (code[at] == 0xe8 || code[at] == 0xe9 || (at && code[at - 1] == 0x0f && (code[at] & 0xf0) == 0x80))
			target = (int64_t)at + 5 + read_word(code + at + 1);
		if (target > 0 && target < taken)
			return 1;
	}
	return 0;
}

struct relocation relocate(const uint8_t *code, uint32_t size, uint64_t from, uint8_t *to, uint64_t at)
{
	static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	struct relocation done = {0};
	if (!memcmp(code, endbr64, sizeof endbr64))
		done.skipped = sizeof endbr64;
	code += done.skipped;
	from += done.skipped;
	while (done.taken < RELOCATE_JUMP) {
		struct instruction one = instruction_decode(code + done.taken, RELOCATE_WINDOW - done.skipped - done.taken);
		if (!one.length)
			return refuse("its first instructions are not of a kind that can be moved");
		memcpy(to + done.taken, code + done.taken, one.length);
		if (one.displacement && !displacement_move(to + done.taken + one.displacement, (int64_t)(at - from)))
			return refuse("what its first instructions point to is out of reach");
		done.taken += one.length;
	}
	if (size < done.skipped + done.taken)
		return refuse("it is too short");
	if (jumps_into(code, size - done.skipped, done.taken))
		return refuse("it may jump back to its first instructions");
	done.length = done.taken + write_jump(to + done.taken, from + done.taken);
	return done;
}
