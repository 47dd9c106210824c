/* SPDX-License-Identifier: MIT */
/* symbol.c: looks a function up in the hash tables and version tables of loaded objects, as the dynamic loader does. */
#include <elf.h>
#include <link.h>
#include <stdint.h>

#include "preload/resolve/resolve.h"

/* What a lookup needs of an object's dynamic section. */
struct tables {
	uintptr_t base;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const uint32_t *hash;
	const uint16_t *versions;  /* of each symbol; NULL: the object has none */
	const ElfW(Verdef) *definitions;
	unsigned definition_count;
};

enum { VERSION_INDEX = 0x7fff, VERSION_HIDDEN = 0x8000 };

/* The loader has made these absolute, except in objects whose dynamic section is read-only. */
static const void *table_address(const struct link_map *object, uintptr_t value)
{
	return (const void *)(value < object->l_addr ? value + object->l_addr : value);
}

static int tables_read(const struct link_map *object, struct tables *tables)
{
	memset(tables, 0, sizeof *tables);
	tables->base = object->l_addr;
	for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
		const void *address = table_address(object, entry->d_un.d_ptr);
		if (entry->d_tag == DT_SYMTAB)
			tables->symbols = address;
		else if (entry->d_tag == DT_STRTAB)
			tables->strings = address;
		else if (entry->d_tag == DT_GNU_HASH)
			tables->gnu_hash = address;
		else if (entry->d_tag == DT_HASH)
			tables->hash = address;
		else if (entry->d_tag == DT_VERSYM)
			tables->versions = address;
		else if (entry->d_tag == DT_VERDEF)
			tables->definitions = address;
		else if (entry->d_tag == DT_VERDEFNUM)
			tables->definition_count = (unsigned)entry->d_un.d_val;
	}
	return tables->symbols && tables->strings && (tables->gnu_hash || tables->hash);
}

uint32_t symbol_hash(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

static uint32_t symbol_hash_old(const char *name)
{
	uint32_t hash = 0;
	for (; *name; name++) {
		hash = (hash << 4) + (uint8_t)*name;
		hash ^= hash >> 24 & 0xf0;
	}
	return hash & 0xfffffff;
}

static int is_function(const ElfW(Sym) *symbol)
{
	unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
	return symbol->st_shndx != SHN_UNDEF && symbol->st_value && bind != STB_LOCAL &&
	       (type == STT_FUNC || type == STT_NOTYPE || type == STT_GNU_IFUNC);
}

static int version_named(const struct tables *tables, unsigned index, const char *version)
{
	const ElfW(Verdef) *definition = tables->definitions;
	for (unsigned i = 0; definition && i < tables->definition_count; i++) {
		if (definition->vd_ndx == index) {
			const ElfW(Verdaux) *name = (const void *)((const char *)definition + definition->vd_aux);
			return text_equal(tables->strings + name->vda_name, version);
		}
		if (!definition->vd_next)
			break;
		definition = (const void *)((const char *)definition + definition->vd_next);
	}
	return 0;
}

/*
 * The loader's rule: a symbol without a version serves any request; a versioned one serves its version, or, when none
 * is asked for, only where it is the default. SYMBOL_ANY_VERSION takes old versions too.
 */
static int version_serves(const struct tables *tables, uint32_t index, const char *version)
{
	unsigned word = tables->versions ? tables->versions[index] : VER_NDX_GLOBAL;
	if ((word & VERSION_INDEX) <= VER_NDX_GLOBAL)
		return 1;
	if (version[0] == '*')
		return 1;
	if (!version[0])
		return !(word & VERSION_HIDDEN);
	return version_named(tables, word & VERSION_INDEX, version);
}

static const ElfW(Sym) *matching(const struct tables *tables, uint32_t index, const char *name, const char *version)
{
	const ElfW(Sym) *symbol = &tables->symbols[index];
	if (is_function(symbol) && text_equal(tables->strings + symbol->st_name, name) && version_serves(tables, index, version))
		return symbol;
	return 0;
}

static const ElfW(Sym) *find_gnu(const struct tables *tables, const char *name, uint32_t hash, const char *version)
{
	uint32_t bucket_count = tables->gnu_hash[0], first = tables->gnu_hash[1], bloom_count = tables->gnu_hash[2],
		 shift = tables->gnu_hash[3];
	const ElfW(Addr) *bloom = (const ElfW(Addr) *)&tables->gnu_hash[4];
	const uint32_t *buckets = (const uint32_t *)(bloom + bloom_count), *chain = buckets + bucket_count;
	ElfW(Addr) filter = bloom[hash / 64 & (bloom_count - 1)];
	if (!(filter >> hash % 64 & filter >> (hash >> shift) % 64 & 1) || !bucket_count)
		return 0;
	uint32_t index = buckets[hash % bucket_count];
	if (index < first)
		return 0;
	for (;; index++) {
		uint32_t link = chain[index - first];
		if ((link | 1) == (hash | 1)) {
			const ElfW(Sym) *symbol = matching(tables, index, name, version);
			if (symbol)
				return symbol;
		}
		if (link & 1)
			return 0;
	}
}

static const ElfW(Sym) *find_old(const struct tables *tables, const char *name, const char *version)
{
	uint32_t bucket_count = tables->hash[0];
	const uint32_t *buckets = &tables->hash[2], *chain = buckets + bucket_count;
	if (!bucket_count)
		return 0;
	for (uint32_t index = buckets[symbol_hash_old(name) % bucket_count]; index != STN_UNDEF; index = chain[index]) {
		const ElfW(Sym) *symbol = matching(tables, index, name, version);
		if (symbol)
			return symbol;
	}
	return 0;
}

static void *symbol_address(const struct tables *tables, const ElfW(Sym) *symbol)
{
	void *address = (void *)(tables->base + symbol->st_value);
	if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC)
		return ((void *(*)(void))address)();
	return address;
}

static void *find_in(const struct link_map *object, const char *name, uint32_t hash, const char *version, uint64_t *size)
{
	struct tables tables;
	if (!tables_read(object, &tables))
		return 0;
	const ElfW(Sym) *symbol = tables.gnu_hash ? find_gnu(&tables, name, hash, version) : find_old(&tables, name, version);
	if (!symbol)
		return 0;
	if (size)
		*size = symbol->st_size;
	return symbol_address(&tables, symbol);
}

const ElfW(Sym) *symbol_entry_in(const struct link_map *object, const char *name, const char *version)
{
	struct tables tables;
	if (!tables_read(object, &tables))
		return 0;
	return tables.gnu_hash ? find_gnu(&tables, name, symbol_hash(name), version) : find_old(&tables, name, version);
}

void *symbol_find_in(const struct link_map *object, const char *name, const char *version, uint64_t *size)
{
	return find_in(object, name, symbol_hash(name), version, size);
}

void *symbol_find_between(const struct link_map *after, const struct link_map *last, const char *name, uint32_t hash,
			  const char *version)
{
	const struct link_map *object = after;
	while (object != last && (object = object->l_next)) {
		void *address = find_in(object, name, hash, version, 0);
		if (address)
			return address;
	}
	return 0;
}

void *symbol_find(const struct link_map *after, const char *name, const char *version)
{
	uint32_t hash = symbol_hash(name);
	if (after)
		return symbol_find_between(after, 0, name, hash, version);
	const struct link_map *first = link_map_first();
	void *address = first ? find_in(first, name, hash, version, 0) : 0;
	return address || !first ? address : symbol_find_between(first, 0, name, hash, version);
}
