/* SPDX-License-Identifier: MIT */
/*
 * unwind.c: see unwind.h. libdw walks the table; pointers in it are decoded
 * here (Linux Standard Base, "DWARF Extensions"; the tables of landing pads are
 * those of the Itanium C++ ABI as GCC and LLVM write them).
 */
#include "collector/plan/unwind.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

/* ---- encoded values ---------------------------------------------------- */

struct cursor {
	const uint8_t *at, *end;
	uint64_t address; /* of `at`; 0: not known */
	int bad;
};

static uint64_t take(struct cursor *cursor, unsigned size)
{
	uint64_t value = 0;
	if ((size_t)(cursor->end - cursor->at) < size) {
		cursor->bad = 1;
		return 0;
	}
	memcpy(&value, cursor->at, size);
	cursor->at += size;
	cursor->address += size;
	return value;
}

static uint64_t take_leb(struct cursor *cursor, int is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	for (;;) {
		uint8_t byte = (uint8_t)take(cursor, 1);
		if (cursor->bad)
			return 0;
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (byte & 0x80)
			continue;
		if (is_signed && shift < 64 && (byte & 0x40))
			value |= ~0ull << shift;
		return value;
	}
}

/* A value without its base. */
static uint64_t take_plain(struct cursor *cursor, unsigned encoding)
{
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
		return take(cursor, 8);
	case DW_EH_PE_uleb128:
		return take_leb(cursor, 0);
	case DW_EH_PE_sleb128:
		return take_leb(cursor, 1);
	case DW_EH_PE_udata2:
		return take(cursor, 2);
	case DW_EH_PE_sdata2:
		return (uint64_t)(int64_t)(int16_t)take(cursor, 2);
	case DW_EH_PE_udata4:
		return take(cursor, 4);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int64_t)(int32_t)take(cursor, 4);
	default:
		cursor->bad = 1;
		return 0;
	}
}

static uint64_t take_pointer(struct cursor *cursor, unsigned encoding)
{
	uint64_t here = cursor->address, value = take_plain(cursor, encoding);
	if (value == 0)
		return 0;
	switch (encoding & 0x70) {
	case 0:
		return value;
	case DW_EH_PE_pcrel:
		return here + value;
	default: /* relative to text, data or function: no compiler for this machine writes them here */
		cursor->bad = 1;
		return 0;
	}
}

/* ---- .eh_frame --------------------------------------------------------- */

struct encodings {
	unsigned pointer, handlers;
	int has_data;
};

/* The augmentation string says what its data are, in order. */
static int read_encodings(const Dwarf_CIE *cie, struct encodings *encodings)
{
	struct cursor cursor = {cie->augmentation_data, cie->augmentation_data + cie->augmentation_data_size, 0, 0};
	*encodings = (struct encodings){.pointer = DW_EH_PE_absptr, .handlers = DW_EH_PE_omit};
	if (cie->augmentation[0] != 'z')
		return cie->augmentation[0] ? -1 : 0;
	encodings->has_data = 1;
	for (const char *letter = cie->augmentation + 1; *letter; letter++) {
		switch (*letter) {
		case 'R':
			encodings->pointer = (unsigned)take(&cursor, 1);
			break;
		case 'L':
			encodings->handlers = (unsigned)take(&cursor, 1);
			break;
		case 'P':
			take_plain(&cursor, (unsigned)take(&cursor, 1));
			break;
		case 'S':
		case 'B':
			break;
		default:
			return -1;
		}
	}
	return cursor.bad ? -1 : 0;
}

static int read_range(const Dwarf_FDE *fde, const struct encodings *encodings, uint64_t address, struct code_range *range)
{
	struct cursor cursor = {fde->start, fde->end, address, 0};
	range->start = take_pointer(&cursor, encodings->pointer);
	range->end = range->start + take_plain(&cursor, encodings->pointer & 0x0f);
	range->handlers = 0;
	if (cursor.bad)
		return -1;
	if (!encodings->has_data)
		return 0;
	uint64_t length = take_leb(&cursor, 0);
	if (cursor.bad || length > (uint64_t)(cursor.end - cursor.at))
		return -1;
	if (length && encodings->handlers != DW_EH_PE_omit)
		range->handlers = take_pointer(&cursor, encodings->handlers & ~(unsigned)DW_EH_PE_indirect);
	return cursor.bad ? -1 : 0;
}

static const struct object_section *find_table(const struct object *object)
{
	for (size_t i = 0; i < object->section_count; i++)
		if (strcmp(object->sections[i].name, ".eh_frame") == 0)
			return &object->sections[i];
	return NULL;
}

static int add_range(struct code_range **ranges, size_t *count, size_t *room, const struct code_range *range)
{
	if (*count == *room) {
		size_t more_room = *room ? 2 * *room : 1024;
		struct code_range *more = realloc(*ranges, more_room * sizeof *more);
		if (!more)
			return -1;
		*ranges = more;
		*room = more_room;
	}
	(*ranges)[(*count)++] = *range;
	return 0;
}

int unwind_read(const struct object *object, struct code_range **ranges, size_t *count)
{
	const struct object_section *table = find_table(object);
	GElf_Ehdr header;
	size_t room = 0;
	*ranges = NULL;
	*count = 0;
	if (!table || !gelf_getehdr(object->elf, &header))
		return 0;
	Elf_Data data = {.d_buf = (void *)(uintptr_t)table->bytes, .d_size = table->end - table->start, .d_type = ELF_T_BYTE, .d_version = EV_CURRENT};
	Dwarf_Off cie_at = (Dwarf_Off)-1, next;
	struct encodings encodings = {0};
	int usable = 0;
	for (Dwarf_Off at = 0;; at = next) {
		Dwarf_CFI_Entry entry;
		int result = dwarf_next_cfi(header.e_ident, &data, true, at, &next, &entry);
		if (result != 0)
			return 0;
		if (dwarf_cfi_cie_p(&entry)) {
			usable = read_encodings(&entry.cie, &encodings) == 0;
			cie_at = at;
			continue;
		}
		if (entry.fde.CIE_pointer != cie_at) {
			Dwarf_CFI_Entry cie;
			Dwarf_Off behind;
			cie_at = entry.fde.CIE_pointer;
			usable = dwarf_next_cfi(header.e_ident, &data, true, cie_at, &behind, &cie) == 0 && dwarf_cfi_cie_p(&cie) &&
				 read_encodings(&cie.cie, &encodings) == 0;
		}
		struct code_range range;
		if (usable && read_range(&entry.fde, &encodings, table->start + (uint64_t)(entry.fde.start - table->bytes), &range) == 0 &&
		    add_range(ranges, count, &room, &range))
			return -1;
	}
}

/* ---- landing pads ------------------------------------------------------ */

int unwind_landing_pads(const struct object *object, const struct code_range *range,
			void (*tell)(void *context, uint64_t address), void *context)
{
	size_t count;
	const uint8_t *bytes = object_bytes(object, range->handlers, &count);
	if (!bytes)
		return -1;
	struct cursor cursor = {bytes, bytes + count, range->handlers, 0};
	uint64_t pads = range->start;
	unsigned encoding = (unsigned)take(&cursor, 1);
	if (encoding != DW_EH_PE_omit)
		pads = take_pointer(&cursor, encoding);
	if (take(&cursor, 1) != DW_EH_PE_omit)
		take_leb(&cursor, 0); /* where the types end */
	encoding = (unsigned)take(&cursor, 1);
	uint64_t length = take_leb(&cursor, 0);
	if (cursor.bad || length > (uint64_t)(cursor.end - cursor.at))
		return -1;
	cursor.end = cursor.at + length;
	while (cursor.at < cursor.end) {
		take_plain(&cursor, encoding);
		take_plain(&cursor, encoding);
		uint64_t pad = take_plain(&cursor, encoding);
		take_leb(&cursor, 0);
		if (cursor.bad)
			return -1;
		if (pad)
			tell(context, pads + pad);
	}
	return 0;
}
