/* SPDX-License-Identifier: MIT */
/* module.c: what the hooks' placing has to know of a loaded module. See patch.h. */
#include "preload/core/event.h"
#include "preload/patch/patch.h"

static void take_build_id(struct patch_module *module, uint64_t note, uint64_t size)
{
	uint8_t bytes[1024];
	uint32_t length = size < sizeof bytes ? (uint32_t)size : sizeof bytes;
	if (module->build_id_length || memory_peek(bytes, (void *)note, length) != length)
		return;
	for (uint64_t at = 0; at + 12 <= length;) {
		uint32_t head[3];
		memcpy(head, bytes + at, sizeof head);
		uint64_t name = (head[0] + 3ull) & ~3ull, data = (head[1] + 3ull) & ~3ull;
		if (at + 12 + name + data > length)
			return;
		if (head[2] == NT_GNU_BUILD_ID && head[0] == 4 && !memcmp(bytes + at + 12, "GNU", 4)) {
			module->build_id_length = head[1] < sizeof module->build_id ? head[1] : sizeof module->build_id;
			memcpy(module->build_id, bytes + at + 12 + name, module->build_id_length);
			return;
		}
		at += 12 + name + data;
	}
}

static void take_header(struct patch_module *module, const ElfW(Phdr) *header)
{
	uint64_t start = module->base + header->p_vaddr;
	switch (header->p_type) {
	case PT_NOTE:
		take_build_id(module, start, header->p_memsz);
		break;
	case PT_GNU_RELRO:
		module->relro_start = start;
		module->relro_end = start + header->p_memsz;
		break;
	case PT_LOAD:
		if (start < module->start)
			module->start = start;
		if (start + header->p_memsz > module->end)
			module->end = start + header->p_memsz;
		break;
	default:
		break;
	}
}

int module_read(struct patch_module *module, uint64_t base, uint64_t dynamic, int main_program)
{
	uint64_t address = auxiliary_value(AT_PHDR), count = auxiliary_value(AT_PHNUM);
	memset(module, 0, sizeof *module);
	module->base = base;
	module->dynamic = dynamic;
	module->is_main = (uint8_t)main_program;
	module->start = UINT64_MAX;
	if (!main_program) {
		ElfW(Ehdr) header;
		if (memory_peek(&header, (void *)base, sizeof header) != sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
		    header.e_phentsize != sizeof(ElfW(Phdr)))
			return -1;
		address = base + header.e_phoff;
		count = header.e_phnum;
	}
	for (uint64_t i = 0; i < count && i < 64; i++) {
		ElfW(Phdr) header;
		if (memory_peek(&header, (void *)(address + i * sizeof header), sizeof header) != sizeof header)
			return -1;
		take_header(module, &header);
	}
	return module->end > module->start && module->start < UINT64_MAX ? 0 : -1;
}
