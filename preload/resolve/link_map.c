/* SPDX-License-Identifier: MIT */
/* link_map.c: where the dynamic loader keeps its list of loaded objects. */
#include <elf.h>
#include <link.h>
#include <stdint.h>

#include "preload/resolve/resolve.h"

/* The loader's face for debuggers; weak, since only the GNU C library's loader has it. */
extern struct r_debug loader_debug __asm__("_r_debug") __attribute__((weak));

/* Holds its own address once liblorg.so has been relocated; the linker's idea of it before. */
static const volatile void *const volatile own_address = &own_address;

/* How far above the current frame the auxiliary vector may lie: the arguments and environment are between. */
enum { STACK_WORDS = 16 << 20 >> 3 };

/* The auxiliary vector's description of the program header, found on the stack that the kernel made. */
static const uintptr_t *header_entry_on_stack(void)
{
	const uintptr_t *word = (const uintptr_t *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)7);
	for (long i = 0; i < STACK_WORDS; i++, word++)
		if (word[0] == AT_PHDR && word[2] == AT_PHENT && word[3] == sizeof(ElfW(Phdr)) && word[4] == AT_PHNUM)
			return word;
	return 0;
}

static const ElfW(Dyn) *program_dynamic(const ElfW(Phdr) *header, uintptr_t count)
{
	uintptr_t bias = 0;
	const ElfW(Phdr) *dynamic = 0;
	for (uintptr_t i = 0; i < count; i++) {
		if (header[i].p_type == PT_PHDR)
			bias = (uintptr_t)header - header[i].p_vaddr;
		if (header[i].p_type == PT_DYNAMIC)
			dynamic = &header[i];
	}
	return dynamic ? (const ElfW(Dyn) *)(bias + dynamic->p_vaddr) : 0;
}

/*
 * Before we are relocated no symbol of the loader can be reached, but then we are on the first thread's stack, and
 * above it stands the auxiliary vector; it leads to the program's dynamic section, whose DT_DEBUG the loader fills
 * before it relocates anything.
 */
static const struct r_debug *debug_from_stack(void)
{
	const uintptr_t *entry = header_entry_on_stack();
	const ElfW(Dyn) *dynamic = entry ? program_dynamic((const ElfW(Phdr) *)entry[1], entry[5]) : 0;
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
		if (dynamic->d_tag == DT_DEBUG)
			return (const struct r_debug *)dynamic->d_un.d_ptr;
	return 0;
}

const struct link_map *link_map_first(void)
{
	const struct r_debug *debug = own_address == &own_address ? &loader_debug : debug_from_stack();
	return debug ? debug->r_map : 0;
}

/* Our own dynamic section; hidden, so that its address needs no relocation. */
extern const ElfW(Dyn) own_dynamic[] __asm__("_DYNAMIC") HIDDEN;

const struct link_map *link_map_own(void)
{
	const struct link_map *object = link_map_first();
	while (object && object->l_ld != own_dynamic)
		object = object->l_next;
	return object;
}

const struct link_map *object_find(const char *name)
{
	const struct link_map *object = link_map_first();
	while (object && !(object->l_name && text_equal(text_base_name(object->l_name), name)))
		object = object->l_next;
	return object;
}
