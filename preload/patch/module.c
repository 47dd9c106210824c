/* SPDX-License-Identifier: MIT */
/* module.c: what the hooks' placing has to know of a loaded module. See patch.h. */
#include "preload/core/build_id.h"
#include "preload/core/event.h"
#include "preload/patch/patch.h"

enum { HEADERS_MAXIMUM = 64, HEADERS_AT_ONCE = 16 /* each reading takes a system call */ };

static void take_header(struct patch_module *module, const ElfW(Phdr) *header)
{
	uint64_t start = module->base + header->p_vaddr;
	switch (header->p_type) {
	case PT_NOTE:
		if (!module->build_id_length)
			module->build_id_length = build_id_in(start, header->p_memsz, module->build_id, sizeof module->build_id);
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
	for (uint64_t first = 0; first < count && first < HEADERS_MAXIMUM; first += HEADERS_AT_ONCE) {
		ElfW(Phdr) headers[HEADERS_AT_ONCE];
		uint32_t part = count - first < HEADERS_AT_ONCE ? (uint32_t)(count - first) : HEADERS_AT_ONCE;
		uint32_t length = part * (uint32_t)sizeof *headers;
		if (memory_peek(headers, (const void *)(address + first * sizeof *headers), length) != length)
			return -1;
		for (uint32_t i = 0; i < part; i++)
			take_header(module, &headers[i]);
	}
	return module->end > module->start && module->start < UINT64_MAX ? 0 : -1;
}
