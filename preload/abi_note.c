/* SPDX-License-Identifier: MIT */
/*
 * abi_note.c: ELF notes: one tells which version of include/lorg/abi.h this liblorg.so speaks, without loading it; the other
 * where its struct lorg_late stands, for who looks at a program from outside.
 */
#include <lorg/abi.h>
#include <lorg/late.h>

struct abi_note {
	uint32_t name_size, value_size, type;
	char name[8];
	uint32_t major, minor;
};

__attribute__((used, section(LORG_ABI_NOTE_SECTION), aligned(4))) static const struct abi_note abi_note = {
	sizeof LORG_ABI_NOTE_NAME, 2 * sizeof(uint32_t), LORG_ABI_NOTE_TYPE, LORG_ABI_NOTE_NAME, LORG_ABI_MAJOR, LORG_ABI_MINOR};

/* A distance, since the note is not relocated; known when the library is linked, which C has no words for. */
__asm__(".pushsection " LORG_ABI_NOTE_SECTION ", \"a\", @note\n"
	"\t.balign 4\n"
	"\t.long 5, 8, 2\n" /* LORG_LATE_NOTE_TYPE */
	"\t.asciz \"" LORG_ABI_NOTE_NAME "\"\n"
	"\t.balign 4\n"
	"1:\t.quad lorg_late - 1b\n"
	"\t.popsection\n");
_Static_assert((int)LORG_LATE_NOTE_TYPE == 2 && sizeof LORG_ABI_NOTE_NAME == 5, "as the note has them");
