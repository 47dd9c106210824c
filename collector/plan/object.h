/* SPDX-License-Identifier: MIT */
/*
 * object.h: an ELF file as its loader would map it: sections by address, its
 * dynamic symbols, what relocations say. For x86-64 files with section headers;
 * all others are refused with a reason.
 *
 * Addresses are those of the file, without a load bias. Everything belongs to
 * the object. One thread at a time.
 */
#ifndef LORG_PLAN_OBJECT_H
#define LORG_PLAN_OBJECT_H

#include <elfutils/libdwfl.h>
#include <gelf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct object_section {
	uint64_t start, end; /* addresses */
	const uint8_t *bytes;
	const char *name;
	int executable, writable;
	int stubs; /* a procedure linkage table */
};

/* What a relocation puts where, as far as functions are concerned. */
struct object_slot {
	uint64_t address;
	const char *name, *version; /* of the symbol; version NULL: none */
	uint32_t relocation;	    /* place in its table */
	int lazy;		    /* JUMP_SLOT; else GLOB_DAT */
	int is_data;		    /* the symbol is an object, or thread-local */
};

struct object {
	char *path;
	const char *file_name; /* base name of path */
	char *module;	       /* what people call it: its soname where the file is one version of that, else its file name */
	const char *soname;    /* NULL: none */
	const char *alias;     /* another name that people may know it by; not the object's; NULL: none */
	uint8_t build_id[20];
	uint32_t build_id_length;
	int at_fixed_address; /* ET_EXEC */
	uint64_t entry;	      /* e_entry */
	uint64_t text_start, text_end;
	struct object_section *sections; /* that are mapped and have bytes, by address */
	size_t section_count;
	struct object_slot *slots;
	size_t slot_count;
	uint64_t *pointers; /* addresses that relocations put into data (RELATIVE, 64), ascending */
	size_t pointer_count;

	int descriptor;
	Dwfl *dwfl;
	Dwfl_Module *dwfl_module;
	GElf_Addr bias; /* address in dwfl less address in the file */
	Elf *elf;
	size_t symbol_names; /* section of the dynamic symbols' names */
	Elf_Data *dynamic_symbols, *versions, *needed_versions, *defined_versions;
	size_t dynamic_symbol_count;
	uint32_t defined_count, needed_count;
};

enum { OBJECT_WHY = 160 };

/*
 * descriptor: of the file, or -1: it is opened by path; the object's from now on, also on failure (NULL; why: at least
 * OBJECT_WHY bytes). with_debug_files: look for separate debug files too, by debuginfod where DEBUGINFOD_URLS is set.
 */
struct object *object_open(const char *path, int descriptor, int with_debug_files, char *why);
void object_close(struct object *object);

/* The section that holds `address`; NULL: none. */
const struct object_section *object_section_at(const struct object *object, uint64_t address);
/* Bytes at `address`, *count of them in that section; NULL: none. */
const uint8_t *object_bytes(const struct object *object, uint64_t address, size_t *count);

/* Dynamic symbol `index`; 0 when there is none. version NULL: none. */
int object_dynamic_symbol(const struct object *object, size_t index, GElf_Sym *symbol, const char **name, const char **version);

/* The slot at an address; NULL: none. */
const struct object_slot *object_slot_at(const struct object *object, uint64_t address);

#endif
