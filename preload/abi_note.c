/* SPDX-License-Identifier: MIT */
/* abi_note.c: an ELF note that tells which version of include/lorg/abi.h this liblorg.so speaks, without loading it. */
#include <lorg/abi.h>

struct abi_note {
	uint32_t name_size, value_size, type;
	char name[8];
	uint32_t major, minor;
};

__attribute__((used, section(LORG_ABI_NOTE_SECTION), aligned(4))) static const struct abi_note abi_note = {
	sizeof LORG_ABI_NOTE_NAME, 2 * sizeof(uint32_t), LORG_ABI_NOTE_TYPE, LORG_ABI_NOTE_NAME, LORG_ABI_MAJOR, LORG_ABI_MINOR};
