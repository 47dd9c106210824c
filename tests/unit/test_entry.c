/* SPDX-License-Identifier: MIT */
/*
 * Entries of functions: what is moved, what is refused; and moved code does what it did: functions of all shapes are
 * called through their moved entries.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/plan/entry.h"
#include "tests/unit/unit.h"

static int none_is(void *context, uint64_t target, int indirect)
{
	(void)context, (void)target, (void)indirect;
	return 0;
}

/* Calls to this address are a profiler's. */
enum { PROFILER = 0x9000 };

static int profiler_is(void *context, uint64_t target, int indirect)
{
	(void)context;
	return !indirect && target == PROFILER;
}

static struct entry analysed(const uint8_t *bytes, uint64_t address, size_t size, size_t room,
			     int (*is_profiler)(void *context, uint64_t target, int indirect))
{
	struct entry_context context = {.is_profiler = is_profiler};
	struct entry entry;
	ck_assert_int_eq(entry_context_open(&context), 0);
	entry_analyse(&context, bytes, address, size, room, &entry);
	entry_context_close(&context);
	return entry;
}

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}

START_TEST(shapes)
{
	static const uint64_t at = 0x1000;
	static const struct {
		const char *what;
		uint8_t bytes[32];
		uint8_t size, room;
		enum refusal refusal;
		uint8_t kind, skip, taken, code_length, fixups;
	} cases[] = {
		{"push, mov, push, push", {0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0xc3}, 8, 8, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 6, 6, 0},
		{"endbr64, push, mov, push", {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3}, 10, 10, REFUSED_NOT, LORG_ENTRY_RELOCATE, 4, 5, 5, 0},
		{"one mov of five bytes", {0xb8, 1, 0, 0, 0, 0xc3}, 6, 6, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 5, 0},
		{"sub rsp, 32 bit, in one word", {0x48, 0x81, 0xec, 0, 1, 0, 0, 0xc3}, 8, 8, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 7, 7, 0},
		{"endbr64 and that: over two words", {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0xc3}, 12, 12, REFUSED_NOT, LORG_ENTRY_RELOCATE, 4, 7, 7, 0},
		{"nop of five bytes", {0x0f, 0x1f, 0x44, 0, 0, 0x55, 0xc3}, 7, 7, REFUSED_NOT, LORG_ENTRY_NOP, 0, 5, 0, 0},
		{"five nops", {0x90, 0x90, 0x90, 0x90, 0x90, 0x55, 0xc3}, 7, 7, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 0, 0},
		{"two nops and more", {0x90, 0x90, 0x55, 0x48, 0x89, 0xe5, 0xc3}, 7, 7, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 6, 4, 0},
		{"lea from the instruction pointer", {0x48, 0x8d, 0x05, 1, 2, 3, 4, 0xc3}, 8, 8, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 7, 7, 1},
		{"cmp with immediate behind the displacement", {0x80, 0x3d, 1, 2, 3, 4, 0, 0x75, 0x40}, 9, 9, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 7, 7, 1},
		{"movdqa from the instruction pointer", {0x66, 0x0f, 0x6f, 0x05, 1, 2, 3, 4, 0xc3}, 9, 9, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 8, 8, 1},
		{"test and short jump ahead", {0x48, 0x85, 0xff, 0x74, 0x20, 0x55, 0xc3}, 7, 7, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 9, 1},
		{"near jump", {0xe9, 0, 1, 0, 0}, 5, 16, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 5, 1},
		{"jump through memory", {0xff, 0x25, 0, 1, 0, 0}, 6, 16, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 6, 6, 1},
		{"short, with padding", {0x31, 0xc0, 0xc3, 0x66, 0x0f, 0x1f, 0x44, 0, 0}, 3, 9, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 3, 0},
		{"ret alone, with int3 behind", {0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc}, 1, 6, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 1, 0},
		{"call as the last", {0x48, 0x83, 0xec, 8, 0xe8, 0, 1, 0, 0, 0xc3}, 10, 10, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 9, 28, 2},
		{"call of a register as the last", {0x48, 0x83, 0xec, 8, 0xff, 0xd0, 0xc3}, 7, 7, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 6, 25, 1},
		{"short, and another behind", {0x31, 0xc0, 0xc3, 0x55, 0x53}, 3, 5, REFUSED_TOO_SHORT, 0, 0, 0, 0, 0},
		{"short, and the end", {0x31, 0xc0, 0xc3}, 3, 3, REFUSED_TOO_SHORT, 0, 0, 0, 0, 0},
		{"runs on beyond its end", {0x31, 0xc0, 0x90}, 3, 16, REFUSED_TOO_SHORT, 0, 0, 0, 0, 0},
		{"call before the fifth byte", {0xff, 0xd0, 0x48, 0x89, 0xc3, 0xc3}, 6, 6, REFUSED_CALL, 0, 0, 0, 0, 0},
		{"call to learn where it stands", {0xe8, 0, 0, 0, 0, 0x58, 0xc3}, 7, 7, REFUSED_CALL, 0, 0, 0, 0, 0},
		{"call by a word of the stack", {0x48, 0x83, 0xec, 8, 0xff, 0x14, 0x24, 0xc3}, 8, 8, REFUSED_CALL, 0, 0, 0, 0, 0},
		{"loop to the start", {0xff, 0xcf, 0x48, 0x85, 0xff, 0x75, 0xf9, 0xc3}, 8, 8, REFUSED_NOT, LORG_ENTRY_RELOCATE, 0, 5, 5, 0},
		{"loop within", {0xff, 0xcf, 0x75, 0xfc, 0xc3}, 5, 5, REFUSED_LOOP, 0, 0, 0, 0, 0},
		{"jump into", {0x74, 0x01, 0x90, 0x48, 0x89, 0xe5, 0xc3}, 7, 7, REFUSED_JUMP_INTO, 0, 0, 0, 0, 0},
		{"loop instruction", {0x31, 0xc9, 0xe2, 0x10, 0x55, 0xc3}, 6, 6, REFUSED_CANNOT_MOVE, 0, 0, 0, 0, 0},
		{"jrcxz", {0x48, 0x89, 0xf1, 0xe3, 0x10, 0x55, 0xc3}, 7, 7, REFUSED_CANNOT_MOVE, 0, 0, 0, 0, 0},
		{"relative to eip", {0x67, 0x48, 0x8d, 0x05, 1, 0, 0, 0, 0xc3}, 9, 9, REFUSED_CANNOT_MOVE, 0, 0, 0, 0, 0},
		{"data", {0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e}, 6, 6, REFUSED_UNKNOWN_CODE, 0, 0, 0, 0, 0},
		{"return from a signal", {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, 9, 9, REFUSED_SIGNAL_RETURN, 0, 0, 0, 0, 0},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct entry entry = analysed(cases[i].bytes, at, cases[i].size, cases[i].room, none_is);
		ck_assert_msg(entry.refusal == cases[i].refusal, "%s: %s", cases[i].what, refusal_word(entry.refusal));
		if (entry.refusal)
			continue;
		ck_assert_msg(entry.kind == cases[i].kind && entry.skip == cases[i].skip && entry.taken == cases[i].taken &&
				      entry.code_length == cases[i].code_length && entry.fixup_count == cases[i].fixups,
			      "%s: kind %d skip %d taken %d code %d fixups %d", cases[i].what, entry.kind, entry.skip, entry.taken,
			      entry.code_length, entry.fixup_count);
		ck_assert(memcmp(entry.original, cases[i].bytes + entry.skip, entry.taken) == 0);
	}
}
END_TEST

/* A profiler's hook is called as ever, and the patch goes behind it. */
/* Handlers of faults are shown where a moved instruction stood. */
START_TEST(moved_instructions_have_their_places)
{
	static const struct {
		uint8_t bytes[16];
		uint8_t count, code[3], original[3];
	} cases[] = {
		{{0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0xc3}, 3, {0, 1, 4}, {0, 1, 4}},
		{{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3}, 3, {0, 1, 4}, {0, 1, 4}}, /* behind endbr64 */
		{{0x90, 0x90, 0x55, 0x48, 0x89, 0xe5, 0xc3}, 2, {0, 1}, {2, 3}},		  /* nops do not move */
		{{0x48, 0x85, 0xff, 0x74, 0x20, 0x55, 0xc3}, 2, {0, 3}, {0, 3}},
		{{0x85, 0xff, 0x74, 0x20, 0x8b, 0x07, 0xc3}, 3, {0, 2, 8}, {0, 2, 4}}, /* a short jump becomes six bytes */
		{{0x90, 0x90, 0x90, 0x90, 0x90, 0x55, 0xc3}, 0, {0}, {0}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct entry entry = analysed(cases[i].bytes, 0x1000, sizeof cases[i].bytes, sizeof cases[i].bytes, none_is);
		ck_assert_uint_eq(entry.refusal, REFUSED_NOT);
		ck_assert_msg(entry.moved_count == cases[i].count, "case %zu: %u", i, entry.moved_count);
		for (unsigned j = 0; j < entry.moved_count; j++) {
			ck_assert_uint_eq(entry.moved[j].code, cases[i].code[j]);
			ck_assert_uint_eq(entry.moved[j].original, cases[i].original[j]);
		}
	}
}
END_TEST

START_TEST(profilers_call_stays)
{
	const uint8_t *bytes = BYTES(0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0xf7, 0x7f, 0, 0, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3);
	struct entry entry = analysed(bytes, 0x1000, 15, 15, profiler_is);
	ck_assert_int_eq(entry.refusal, REFUSED_NOT);
	ck_assert_int_eq(entry.skip, 9);
	ck_assert_int_eq(entry.taken, 5);
}
END_TEST

/* ---- moved code at work ------------------------------------------------- */

/* Functions whose entries are of the kinds that compilers write; each takes a number and returns one. */
#define FUNCTION(name, code)                                                                                                       \
	extern const uint8_t name##_start[], name##_end[];                                                                         \
	__asm__(".pushsection .text\n.balign 16\n" #name "_start:\n" code "\n" #name "_end:\n.balign 16\n.popsection\n")

FUNCTION(frame, "push %rbp\n mov %rsp, %rbp\n push %rbx\n mov %edi, %ebx\n lea 5(%rbx), %eax\n pop %rbx\n pop %rbp\n ret");
FUNCTION(from_memory, "mov .Lnumber(%rip), %eax\n add %edi, %eax\n ret\n .balign 8\n.Lnumber: .long 1000");
FUNCTION(compare_memory, "cmpl $7, .Lseven(%rip)\n jne 1f\n lea 70(%rdi), %eax\n ret\n1: xor %eax, %eax\n ret\n.Lseven: .long 7");
FUNCTION(short_jump, "test %edi, %edi\n je 1f\n lea 1(%rdi), %eax\n ret\n1: mov $-1, %eax\n ret");
FUNCTION(near_jump, "test %edi, %edi\n jg 1f\n .skip 200, 0x90\n1: lea 2(%rdi), %eax\n ret");
FUNCTION(only_jump, "jmp frame_start");
FUNCTION(calls, "sub $8, %rsp\n call .Lpart\n add $8, %rsp\n add %edi, %eax\n ret\n.Lpart: mov (%rsp), %rax\n"
		" lea .Lback(%rip), %rcx\n cmp %rax, %rcx\n sete %al\n movzbl %al, %eax\n ret\n.set .Lback, calls_start + 9");
FUNCTION(calls_register, "lea .Ldouble(%rip), %rax\n push %rbx\n call *%rax\n pop %rbx\n ret\n.Ldouble: lea (%rdi,%rdi), %eax\n ret");
FUNCTION(calls_table, "push %rbx\n lea .Ltable(%rip), %rbx\n mov %edi, %edi\n call *(%rbx)\n pop %rbx\n ret\n.Lthree: lea 3(%rdi), %eax\n ret\n"
		      ".pushsection .data\n.balign 8\n.Ltable: .quad .Lthree\n.popsection");
FUNCTION(early_call, "push %rbx\n mov %rdi, %rbx\n call .Ldouble\n pop %rbx\n ret");
FUNCTION(tiny, "mov %edi, %eax\n ret");
FUNCTION(branch_target, "endbr64\n lea 9(%rdi), %rax\n nop\n ret");

static uint8_t *near(const uint8_t *code)
{
	for (uintptr_t at = ((uintptr_t)code & ~0xfffful) - 0x10000000; at < (uintptr_t)code + 0x10000000; at += 0x10000) {
		void *got = mmap((void *)at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (got != MAP_FAILED)
			return got;
	}
	ck_abort_msg("no memory near the code");
	return NULL;
}

static void put_displacement(uint8_t *place, const uint8_t *from, const uint8_t *target)
{
	int32_t distance = (int32_t)(target - from);
	memcpy(place, &distance, sizeof distance);
}

typedef int function_of_number(int);

/* The entry moved, then a jump to what is behind it. */
static function_of_number *moved(const uint8_t *start, const struct entry *entry)
{
	uint8_t *at = near(start);
	memcpy(at, entry->code, entry->code_length);
	for (unsigned i = 0; i < entry->fixup_count; i++)
		put_displacement(at + entry->fixups[i].at, at + entry->fixups[i].from, start + entry->fixups[i].target);
	at[entry->code_length] = 0xe9;
	put_displacement(at + entry->code_length + 1, at + entry->code_length + 5, start + entry->skip + entry->taken);
	return (function_of_number *)(void *)at;
}

START_TEST(moved_code_does_the_same)
{
	static const struct {
		const char *name;
		const uint8_t *start, *end;
	} all[] = {
#define ONE(name) {#name, name##_start, name##_end}
		ONE(frame), ONE(from_memory), ONE(compare_memory), ONE(short_jump), ONE(near_jump), ONE(only_jump), ONE(calls),
		ONE(calls_register), ONE(calls_table), ONE(early_call), ONE(tiny), ONE(branch_target),
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		size_t size = (size_t)(all[i].end - all[i].start);
		struct entry entry = analysed(all[i].start, (uintptr_t)all[i].start, size, (size + 15) & ~(size_t)15, none_is);
		ck_assert_msg(!entry.refusal, "%s: %s", all[i].name, refusal_word(entry.refusal));
		function_of_number *was = (function_of_number *)(uintptr_t)all[i].start, *is = moved(all[i].start, &entry);
		for (int number = -3; number <= 3; number++)
			ck_assert_msg(was(number) == is(number), "%s(%d): %d, was %d", all[i].name, number, is(number), was(number));
	}
}
END_TEST

/* Whatever the bytes: no crash, and never more than there is room for. */
START_TEST(any_bytes)
{
	uint8_t bytes[48];
	srandom(1);
	struct entry_context context = {.is_profiler = none_is};
	ck_assert_int_eq(entry_context_open(&context), 0);
	for (int i = 0; i < 200000; i++) {
		struct entry entry;
		size_t size = 1 + (size_t)random() % 40, room = size + (size_t)random() % 8;
		for (size_t j = 0; j < sizeof bytes; j++)
			bytes[j] = (uint8_t)random();
		entry_analyse(&context, bytes, 0x401000, size, room, &entry);
		if (entry.refusal)
			continue;
		ck_assert_uint_le(entry.skip + entry.taken, room);
		ck_assert_uint_ge(entry.taken, 5);
		ck_assert_uint_le(entry.taken, 16);
		ck_assert_uint_le(entry.code_length, LORG_ENTRY_MAXIMUM);
	}
	entry_context_close(&context);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {shapes, moved_instructions_have_their_places, profilers_call_stays, moved_code_does_the_same, any_bytes};
	return unit_suite_of("entry", tests, sizeof tests / sizeof *tests, 60);
}
