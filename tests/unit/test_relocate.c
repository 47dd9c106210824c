/* SPDX-License-Identifier: MIT */
/* Moving a function's first instructions: which are taken, how they read at their new place, and what is refused. */
#include <stdint.h>
#include <string.h>

#include "preload/resolve/relocate.h"
#include "tests/unit/unit.h"

static const uint64_t from = 0x7f0000100000, at = 0x7f0000000000;

/* A function that starts with `bytes`, as long as the window, filled up with NOPs. */
static struct relocation move_of(const char *bytes, uint32_t count, uint8_t *to)
{
	uint8_t code[RELOCATE_WINDOW];
	memset(code, 0x90, sizeof code);
	memcpy(code, bytes, count);
	return relocate(code, sizeof code, from, to, at);
}

#define MOVE(to, bytes) move_of(bytes, sizeof bytes - 1, to)

/* `jmp *0(%rip)` and the address that follows `taken` bytes at the old place. */
static void check_jump_back(const uint8_t *to, struct relocation moved)
{
	static const uint8_t jump[6] = {0xff, 0x25};
	uint64_t target;
	ck_assert_mem_eq(to + moved.taken, jump, sizeof jump);
	memcpy(&target, to + moved.taken + sizeof jump, sizeof target);
	ck_assert_uint_eq(target, from + moved.skipped + moved.taken);
	ck_assert_uint_eq(moved.length, moved.taken + 14);
	ck_assert_uint_le(moved.length, RELOCATE_MAXIMUM);
}

static void check_moved(struct relocation moved, uint32_t taken)
{
	ck_assert_msg(!moved.refused, "refused: %s", moved.refused ? moved.refused : "");
	ck_assert_uint_eq(moved.taken, taken);
}

START_TEST(known_starts)
{
	uint8_t to[RELOCATE_MAXIMUM];
	struct relocation moved = MOVE(to, "\xb8\x3b\x00\x00\x00\x0f\x05"); /* mov $59,%eax */
	check_moved(moved, 5);
	check_jump_back(to, moved);
	check_moved(MOVE(to, "\x31\xc0\x0f\x05\x48\x3d\x00\xf0\xff\xff"), 10);	   /* xor; syscall; cmp $-4096,%rax */
	check_moved(MOVE(to, "\x64\x8b\x04\x25\x18\x00\x00\x00\x85\xc0"), 8);	   /* mov %fs:0x18,%eax */
	check_moved(MOVE(to, "\x41\x56\x41\x55\x41\x54\x55\x53"), 6);		   /* push, push, push */
	check_moved(MOVE(to, "\x48\xc7\xc0\x01\x00\x00\x00"), 7);		   /* mov $1,%rax */
	check_moved(MOVE(to, "\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08"), 10);	   /* movabs */
	check_moved(MOVE(to, "\x48\x83\xec\x78\x48\x89\x4c\x24\x58"), 9);	   /* sub; mov to the stack */
	check_moved(MOVE(to, "\x66\x81\xc1\x00\x01\x90"), 5);			   /* add $0x100,%cx */
	check_moved(MOVE(to, "\xf7\xc7\x01\x00\x00\x00"), 6);			   /* test $1,%edi */
}
END_TEST

START_TEST(displacements_follow)
{
	uint8_t to[RELOCATE_MAXIMUM];
	int32_t moved_displacement, displacement;
	struct relocation moved = MOVE(to, "\x80\x3d\x31\x33\x0e\x00\x00"); /* cmpb $0,0xe3331(%rip) */
	check_moved(moved, 7);
	check_jump_back(to, moved);
	memcpy(&moved_displacement, to + 2, sizeof moved_displacement);
	ck_assert_int_eq(moved_displacement, 0xe3331 + (int32_t)(from - at));
	check_moved(MOVE(to, "\x4c\x8b\x05\xf9\xe9\x0f\x00"), 7); /* mov 0xfe9f9(%rip),%r8 */
	memcpy(&displacement, to + 3, sizeof displacement);
	ck_assert_int_eq(displacement, 0xfe9f9 + (int32_t)(from - at));
}
END_TEST

START_TEST(branch_target_marks_stay)
{
	uint8_t to[RELOCATE_MAXIMUM];
	struct relocation moved = MOVE(to, "\xf3\x0f\x1e\xfa\x80\x3d\x10\x00\x00\x00\x00"); /* endbr64; cmpb */
	check_moved(moved, 7);
	ck_assert_uint_eq(moved.skipped, 4);
	check_jump_back(to, moved);
}
END_TEST

START_TEST(refuses_what_it_does_not_know)
{
	uint8_t to[RELOCATE_MAXIMUM];
	ck_assert_ptr_nonnull(MOVE(to, "\xe8\x00\x00\x00\x00").refused);	 /* call */
	ck_assert_ptr_nonnull(MOVE(to, "\xe9\x00\x00\x00\x00").refused);	 /* jmp */
	ck_assert_ptr_nonnull(MOVE(to, "\x85\xc0\x74\x10\x90").refused);	 /* test; je */
	ck_assert_ptr_nonnull(MOVE(to, "\xff\x25\x00\x00\x00\x00").refused);	 /* jmp *(%rip) */
	ck_assert_ptr_nonnull(MOVE(to, "\xc3\x90\x90\x90\x90").refused);	 /* ret */
	ck_assert_ptr_nonnull(MOVE(to, "\xcc\x90\x90\x90\x90").refused);	 /* a debugger's breakpoint */
	ck_assert_ptr_nonnull(MOVE(to, "\xc5\xf8\x77\x90\x90").refused);	 /* vzeroupper */
	ck_assert_ptr_nonnull(MOVE(to, "\xf7\xf9\x90\x90\x90").refused);	 /* idiv */
	ck_assert_ptr_nonnull(MOVE(to, "\xc7\xf8\x00\x00\x00\x00").refused);	 /* xbegin */
}
END_TEST

START_TEST(refuses_jumps_to_what_has_moved)
{
	uint8_t to[RELOCATE_MAXIMUM];
	/* xor; syscall; cmp; then `je` back to the syscall */
	struct relocation moved = MOVE(to, "\x31\xc0\x0f\x05\x48\x3d\x00\xf0\xff\xff\x74\xf6");
	ck_assert_ptr_nonnull(moved.refused);
	/* and to the very start: that leads to the wrapper, which is harmless */
	moved = MOVE(to, "\x31\xc0\x0f\x05\x48\x3d\x00\xf0\xff\xff\x74\xf4");
	check_moved(moved, 10);
}
END_TEST

START_TEST(refuses_what_is_out_of_reach)
{
	uint8_t code[RELOCATE_WINDOW], to[RELOCATE_MAXIMUM];
	memset(code, 0x90, sizeof code);
	memcpy(code, "\x80\x3d\x31\x33\x0e\x00\x00", 7);
	ck_assert_ptr_nonnull(relocate(code, sizeof code, from, to, from - 0x90000000).refused);
	ck_assert_ptr_nonnull(relocate(code, 4, from, to, at).refused);
}
END_TEST

/* Whatever the bytes, the decoder stays within its window and never gives a length it was not given room for. */
START_TEST(any_bytes)
{
	uint8_t code[RELOCATE_WINDOW], to[RELOCATE_MAXIMUM];
	uint64_t seed = 88172645463325252u;
	for (int round = 0; round < 20000; round++) {
		for (unsigned i = 0; i < sizeof code; i++) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			code[i] = (uint8_t)seed;
		}
		struct instruction one = instruction_decode(code, sizeof code);
		ck_assert_uint_le(one.length, 15);
		ck_assert(!one.displacement || one.displacement + 4u <= one.length);
		struct relocation moved = relocate(code, sizeof code, from, to, at);
		if (!moved.refused)
			ck_assert_uint_le(moved.length, RELOCATE_MAXIMUM);
	}
}
END_TEST

Suite *unit_suite(void)
{
	static const TTest *tests[8];
	unsigned count = 0;
	tests[count++] = known_starts;
	tests[count++] = displacements_follow;
	tests[count++] = branch_target_marks_stay;
	tests[count++] = refuses_what_it_does_not_know;
	tests[count++] = refuses_jumps_to_what_has_moved;
	tests[count++] = refuses_what_is_out_of_reach;
	tests[count++] = any_bytes;
	return unit_suite_of("relocate", tests, count, 30);
}
