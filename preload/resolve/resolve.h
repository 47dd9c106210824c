/* SPDX-License-Identifier: MIT */
/*
 * resolve.h: finds functions in the loaded objects without dlsym: no
 * allocation, no lock, no system call, no call into libc.
 *
 * Everything here also works before liblorg.so itself has been relocated: an
 * IFUNC resolver of a library that is relocated first may call malloc, and
 * reaches our wrapper. So nothing on these paths reads a pointer that the
 * dynamic loader has yet to write.
 */
#ifndef LORG_PRELOAD_RESOLVE_H
#define LORG_PRELOAD_RESOLVE_H

#include <link.h>
#include <stdint.h>

#include "preload/core/memory.h"

/* A function to look for. Offsets in a text of zero-terminated words: no pointers, hence no relocations. */
struct symbol_wanted {
	uint16_t name, version; /* version "": the default one; "*": any */
	uint32_t hash;		/* symbol_hash(name) */
};

/* Of each hook's real function; generated. */
extern HIDDEN const struct symbol_wanted hook_symbols[];
extern HIDDEN const char hook_symbol_text[];

/* What a call does whose real function is nowhere; generated from the error form. */
enum hook_absent { HOOK_ABSENT_NOTHING, HOOK_ABSENT_MINUS_ONE, HOOK_ABSENT_NULL, HOOK_ABSENT_ERRNO, HOOK_ABSENT_EXIT };
extern HIDDEN const uint8_t hook_absent[];

/* The row whose inner entry point a row's real function goes through, plus 1; 0: none. Generated. */
extern HIDDEN const uint16_t hook_reaches[];

/* The definition behind ours in search order, as it is before any code hook; NULL: none. */
HIDDEN void *hook_next_definition(uint32_t id);

/* The loaded objects in the order in which names are searched; NULL when they cannot be found. */
HIDDEN const struct link_map *link_map_first(void);
/* The entry of liblorg.so itself, or NULL. */
HIDDEN const struct link_map *link_map_own(void);

/*
 * The function `name` in the objects after `after` (NULL: in all of them), as the loader would bind it: of `version`,
 * or the default one when version is empty. An object without symbol versions matches any. IFUNCs are resolved.
 * Returns NULL when no object defines it.
 */
HIDDEN void *symbol_find(const struct link_map *after, const char *name, const char *version);

/* The same in one object. *size, if not NULL, gets the bytes of the function. */
HIDDEN void *symbol_find_in(const struct link_map *object, const char *name, const char *version, uint64_t *size);

/* The symbol itself, IFUNCs too; NULL: the object does not define it. Its address is l_addr + st_value. */
HIDDEN const ElfW(Sym) *symbol_entry_in(const struct link_map *object, const char *name, const char *version);

/* The last of the objects that the program started with; they are what names are searched in first. NULL: not known. */
HIDDEN const struct link_map *link_map_last_of_start(void);

/* The hash of DT_GNU_HASH. */
HIDDEN uint32_t symbol_hash(const char *name);

/* As symbol_find, in the objects behind `after` up to `last` (NULL: to the end); hash: symbol_hash(name). */
HIDDEN void *symbol_find_between(const struct link_map *after, const struct link_map *last, const char *name, uint32_t hash,
				 const char *version);

/* The loaded object whose base name is `name` ("libc.so.6"), or NULL. */
HIDDEN const struct link_map *object_find(const char *name);

#endif
