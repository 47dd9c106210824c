/* SPDX-License-Identifier: MIT */
/*
 * module.c: MODULE events. The link map may change under us (another thread in
 * dlclose), so it is read through memory_peek, which cannot fault.
 */
#include "preload/core/module.h"

#include <elf.h>
#include <link.h>

#include "preload/core/build_id.h"
#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/resolve/resolve.h"

extern struct r_debug _r_debug;

/* What has been told, by base. Process-private; `count` is published with release. */
static struct {
	uint64_t base, start, end;
} told[LORG_MODULES];
static uint32_t told_count FORK_STATE;
/* 1 while a thread is telling. Never waited for. */
static uint32_t telling FORK_STATE;

struct module {
	uint64_t base, start, end;
	uint8_t build_id[20];
	uint32_t build_id_length;
};

static void take_program_header(struct module *module, const ElfW(Phdr) *header)
{
	uint64_t start = module->base + header->p_vaddr;
	if (header->p_type == PT_NOTE && !module->build_id_length)
		module->build_id_length = build_id_in(start, header->p_memsz, module->build_id, sizeof module->build_id);
	if (header->p_type != PT_LOAD)
		return;
	if (start < module->start)
		module->start = start;
	if (start + header->p_memsz > module->end)
		module->end = start + header->p_memsz;
}

static int read_program_headers(struct module *module, uint64_t address, uint32_t count)
{
	enum { AT_ONCE = 16, MOST = 64 };
	ElfW(Phdr) headers[AT_ONCE];
	module->start = UINT64_MAX;
	if (count > MOST)
		count = MOST;
	for (uint32_t first = 0; first < count; first += AT_ONCE) {
		uint32_t part = count - first < AT_ONCE ? count - first : AT_ONCE;
		uint32_t length = part * (uint32_t)sizeof *headers;
		if (memory_peek(headers, (void *)(address + first * sizeof *headers), length) != length)
			return -1;
		for (uint32_t i = 0; i < part; i++)
			take_program_header(module, &headers[i]);
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

/* That of an object that has gone, or a new one. */
static uint32_t free_place(void)
{
	uint32_t place = 0;
	while (place < told_count && told[place].end)
		place++;
	return place;
}

/* A relative path is what dlopen was given: readers stand elsewhere, so it is told from the root. */
static uint32_t whole_path(char *text, const char *path, uint32_t room)
{
	uint32_t length = memory_peek_start_of_text(text, path, room), slash = 0, from;
	while (slash < length && text[slash] != '/')
		slash++;
	if (slash == 0 || slash == length || !system_calls_allowed())
		return length;
	long got = raw_syscall3(SYS_getcwd, (long)text, room, 0);
	from = raw_failed(got) || got < 2 || text[0] != '/' || got >= (long)room ? 0 : (uint32_t)got - 1;
	if (from > 1)
		text[from++] = '/';
	return from + memory_peek_start_of_text(text + from, path, room - from);
}

static void tell(struct thread *self, uint64_t base, const char *path, int main_program)
{
	struct module module;
	char text[LORG_MODULES > 512 ? 512 : LORG_MODULES];
	uint32_t place = free_place();
	if (already_told(base) || place >= LORG_MODULES || read_module(&module, base, main_program))
		return;
	uint32_t length = 0;
	if (main_program) {
		long got = raw_syscall3(SYS_readlink, (long)"/proc/self/exe", (long)text, sizeof text);
		length = raw_failed(got) ? 0 : (uint32_t)got;
	}
	if (!length)
		length = whole_path(text, path, sizeof text);
	if (!length && !main_program)
		length = (uint32_t)(text_append(text, text + sizeof text, "[vdso]") - text);
	struct event_bytes bytes[] = {{module.build_id, module.build_id_length}, {text, length}};
	struct lorg_event_MODULE event = {.base = base,
					  .start = module.start,
					  .size = module.end - module.start,
					  .build_id_length = module.build_id_length,
					  .path_length = length};
	event_write(self, LORG_EVENT_MODULE, &event, sizeof event, bytes, 2, 0);
	told[place].base = base;
	told[place].start = module.start;
	/* Release: who sees the end sees the rest. */
	__atomic_store_n(&told[place].end, module.end, __ATOMIC_RELEASE);
	if (place == told_count)
		__atomic_store_n(&told_count, told_count + 1, __ATOMIC_RELEASE);
}

/* Bits of those told that the loader's list has. 0: not to be known just now. */
static int find_mapped(uint64_t mapped[LORG_MODULES / 64])
{
	const struct link_map *at = link_map_first();
	for (int i = 0; at && i < LORG_MODULES; i++) {
		struct link_map entry;
		if (memory_peek(&entry, at, offsetof(struct link_map, l_prev)) != offsetof(struct link_map, l_prev))
			return 0;
		for (uint32_t k = 0; k < told_count; k++)
			if (told[k].end && told[k].base == entry.l_addr)
				mapped[k / 64] |= 1ull << k % 64;
		at = entry.l_next;
	}
	return !at;
}

void modules_closed(struct thread *self)
{
	uint32_t expected = 0;
	if (!system_calls_allowed() ||
	    !__atomic_compare_exchange_n(&telling, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	uint64_t mapped[LORG_MODULES / 64] = {0};
	int known = find_mapped(mapped);
	for (uint32_t i = 0; known && i < told_count; i++) {
		if (!told[i].end || (mapped[i / 64] >> i % 64 & 1))
			continue;
		EVENT_WRITE(self, MODULE_UNLOADED, .base = told[i].base, .start = told[i].start);
		__atomic_store_n(&told[i].end, 0, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&telling, 0, __ATOMIC_RELEASE);
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

int module_is_told(uint64_t address)
{
	uint32_t count = __atomic_load_n(&told_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (address >= told[i].start && address < told[i].end)
			return 1;
	return 0;
}

void module_note(struct thread *self, uint64_t address)
{
	if (module_is_told(address))
		return;
	/* Objects that dlclose has taken away may have made room for this one: tell again what is at their place. */
	modules_tell(self);
}

void modules_forget(void)
{
	__atomic_store_n(&told_count, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&telling, 0, __ATOMIC_RELAXED);
}
