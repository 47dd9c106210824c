/* SPDX-License-Identifier: MIT */
/*
 * module.c: MODULE events. The link map may change under us (another thread in
 * dlclose), so it is read through memory_peek, which cannot fault.
 */
#include "preload/core/module.h"

#include <elf.h>
#include <link.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/resolve/resolve.h"

extern struct r_debug _r_debug;

/* What has been told, by base. Process-private; `count` is published with release. */
static struct {
	uint64_t base, start, end;
} told[LORG_MODULES];
static uint32_t told_count;
/* 1 while a thread is telling. Never waited for. */
static uint32_t telling;

struct module {
	uint64_t base, start, end;
	uint8_t build_id[20];
	uint32_t build_id_length;
};

static void find_build_id(struct module *module, uint64_t note, uint64_t size)
{
	uint8_t bytes[512];
	uint32_t length = size < sizeof bytes ? (uint32_t)size : sizeof bytes;
	if (memory_peek(bytes, (void *)note, length) != length)
		return;
	for (uint32_t at = 0; at + 12 <= length;) {
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
		at += 12 + (uint32_t)name + (uint32_t)data;
	}
}

static int read_program_headers(struct module *module, uint64_t address, uint32_t count)
{
	module->start = UINT64_MAX;
	for (uint32_t i = 0; i < count && i < 64; i++) {
		ElfW(Phdr) header;
		if (memory_peek(&header, (void *)(address + i * sizeof header), sizeof header) != sizeof header)
			return -1;
		uint64_t start = module->base + header.p_vaddr;
		if (header.p_type == PT_NOTE)
			find_build_id(module, start, header.p_memsz);
		if (header.p_type != PT_LOAD)
			continue;
		if (start < module->start)
			module->start = start;
		if (start + header.p_memsz > module->end)
			module->end = start + header.p_memsz;
	}
	return module->end > module->start ? 0 : -1;
}

/* The ELF header is mapped at the lowest page of an object; the main program's headers the kernel names. */
static int read_module(struct module *module, uint64_t base, int main_program)
{
	memset(module, 0, sizeof *module);
	module->base = base;
	if (main_program)
		return read_program_headers(module, auxiliary_value(AT_PHDR), (uint32_t)auxiliary_value(AT_PHNUM));
	ElfW(Ehdr) header;
	if (memory_peek(&header, (void *)base, sizeof header) != sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_phentsize != sizeof(ElfW(Phdr)))
		return -1;
	return read_program_headers(module, base + header.e_phoff, header.e_phnum);
}

static int already_told(uint64_t base)
{
	uint32_t count = __atomic_load_n(&told_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (told[i].base == base && told[i].end)
			return 1;
	return 0;
}

static void tell(struct thread *self, uint64_t base, const char *path, int main_program)
{
	struct module module;
	char text[LORG_MODULES > 512 ? 512 : LORG_MODULES];
	if (already_told(base) || told_count >= LORG_MODULES || read_module(&module, base, main_program))
		return;
	uint32_t length = 0;
	if (main_program) {
		long got = raw_syscall3(SYS_readlink, (long)"/proc/self/exe", (long)text, sizeof text);
		length = raw_failed(got) ? 0 : (uint32_t)got;
	}
	if (!length) {
		length = memory_peek_text(path);
		length = memory_peek(text, path, length < sizeof text ? length : sizeof text);
	}
	if (!length && !main_program)
		length = (uint32_t)(text_append(text, text + sizeof text, "[vdso]") - text);
	struct event_bytes bytes[] = {{module.build_id, module.build_id_length}, {text, length}};
	struct lorg_event_MODULE event = {.base = base,
					  .start = module.start,
					  .size = module.end - module.start,
					  .build_id_length = module.build_id_length,
					  .path_length = length};
	event_write(self, LORG_EVENT_MODULE, &event, sizeof event, bytes, 2, 0);
	told[told_count].base = base;
	told[told_count].start = module.start;
	told[told_count].end = module.end;
	__atomic_store_n(&told_count, told_count + 1, __ATOMIC_RELEASE);
}

void modules_tell(struct thread *self)
{
	uint32_t expected = 0;
	if (!system_calls_allowed() ||
	    !__atomic_compare_exchange_n(&telling, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	const struct link_map *first = link_map_first(), *at = first;
	for (int i = 0; at && i < LORG_MODULES; i++) {
		struct link_map entry;
		if (memory_peek(&entry, at, offsetof(struct link_map, l_prev)) != offsetof(struct link_map, l_prev))
			break;
		tell(self, entry.l_addr, entry.l_name, at == first);
		at = entry.l_next;
	}
	__atomic_store_n(&telling, 0, __ATOMIC_RELEASE);
}

void module_note(struct thread *self, uint64_t address)
{
	uint32_t count = __atomic_load_n(&told_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (address >= told[i].start && address < told[i].end)
			return;
	/* Objects that dlclose has taken away may have made room for this one: tell again what is at their place. */
	modules_tell(self);
}

void modules_forget(void)
{
	__atomic_store_n(&told_count, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&telling, 0, __ATOMIC_RELAXED);
}
