/* SPDX-License-Identifier: MIT */
/*
 * elf_file.c: bounded reading of an ELF file. See elf_file.h.
 */
#include "preload/lookahead/elf_file.h"

#include "preload/core/raw.h"

enum {
	DYNAMIC_BLOCK = 32, /* entries read at a time */
	HASH_CHAIN = 4096,  /* links followed in one hash chain */
	NOTES_BYTES = 4096,
};

/* Not memcpy: this file is linked where there may be none, and pieces are small. */
static void copy(void *to, const void *from, size_t length)
{
	uint8_t *t = to;
	const uint8_t *f = from;
	for (size_t i = 0; i < length; i++)
		t[i] = f[i];
}

static size_t read_descriptor(int fd, void *to, size_t length, uint64_t offset)
{
	size_t done = 0;
	while (done < length) {
		long got = raw_pread(fd, (char *)to + done, length - done, offset + done);
		if (got == -4) /* EINTR */
			continue;
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	return done;
}

uint32_t elf_file_begin(struct elf_file *file, int fd)
{
	file->fd = fd;
	file->load_count = 0;
	file->interpreter.length = file->dynamic.length = file->notes.length = 0;
	file->strings = file->strings_size = file->symbols = file->gnu_hash = 0;
	file->head_length = (uint32_t)read_descriptor(fd, file->head, sizeof file->head, 0);
	return file->head_length;
}

size_t elf_file_read(const struct elf_file *file, void *to, size_t length, uint64_t offset)
{
	if (offset > INT64_MAX - length)
		return 0;
	if (offset + length <= file->head_length) {
		copy(to, file->head + offset, length);
		return length;
	}
	return read_descriptor(file->fd, to, length, offset);
}

int elf_file_offset(const struct elf_file *file, uint64_t address, uint64_t *offset)
{
	for (uint32_t i = 0; i < file->load_count; i++) {
		const struct elf_segment *segment = &file->load[i];
		if (address < segment->address || address - segment->address >= segment->length)
			continue;
		*offset = segment->offset + (address - segment->address);
		return 1;
	}
	return 0;
}

static int read_address(const struct elf_file *file, void *to, size_t length, uint64_t address)
{
	uint64_t offset;
	return elf_file_offset(file, address, &offset) && elf_file_read(file, to, length, offset) == length;
}

static const char *check_header(const Elf64_Ehdr *header)
{
	if (header->e_ident[EI_CLASS] == ELFCLASS32)
		return "of another ELF class (32 bits)";
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
		return "of another ELF class";
	if (header->e_machine != EM_X86_64)
		return "made for another machine";
	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return "not an executable ELF file";
	if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 || header->e_phnum > ELF_FILE_PROGRAM_HEADERS)
		return "a damaged ELF file";
	return 0;
}

static void keep(struct elf_file *file, const Elf64_Phdr *entry)
{
	struct elf_segment segment = {entry->p_vaddr, entry->p_offset, entry->p_filesz};
	switch (entry->p_type) {
	case PT_LOAD:
		if (file->load_count < ELF_FILE_SEGMENTS)
			file->load[file->load_count++] = segment;
		break;
	case PT_INTERP:
		file->interpreter = segment;
		break;
	case PT_DYNAMIC:
		file->dynamic = segment;
		break;
	case PT_NOTE: /* The build-id's note is the aligned-by-4 one. */
		if (entry->p_align == 4 && !file->notes.length)
			file->notes = segment;
		break;
	default:
		break;
	}
}

const char *elf_file_parse(struct elf_file *file)
{
	if (file->head_length < EI_NIDENT)
		return "a damaged ELF file";
	/* A 32-bit header is shorter, and all that is asked of it is its class. */
	copy(&file->header, file->head, file->head_length < sizeof file->header ? EI_NIDENT : sizeof file->header);
	if (file->header.e_ident[EI_CLASS] == ELFCLASS64 && file->head_length < sizeof file->header)
		return "a damaged ELF file";
	const char *reason = check_header(&file->header);
	for (uint32_t i = 0; !reason && i < file->header.e_phnum; i++) {
		Elf64_Phdr entry;
		if (file->header.e_phoff > INT64_MAX / 2 ||
		    elf_file_read(file, &entry, sizeof entry, file->header.e_phoff + i * sizeof entry) != sizeof entry)
			reason = "a damaged ELF file";
		else
			keep(file, &entry);
	}
	return reason;
}

/* Calls `each` for every entry of the dynamic section until it returns 1. */
static int each_dynamic(const struct elf_file *file, int (*each)(void *context, const Elf64_Dyn *entry), void *context)
{
	Elf64_Dyn block[DYNAMIC_BLOCK];
	uint64_t count = file->dynamic.length / sizeof(Elf64_Dyn);
	if (count > ELF_FILE_DYNAMIC_ENTRIES)
		count = ELF_FILE_DYNAMIC_ENTRIES;
	for (uint64_t i = 0; i < count; i += DYNAMIC_BLOCK) {
		uint64_t wanted = count - i < DYNAMIC_BLOCK ? count - i : DYNAMIC_BLOCK;
		size_t got = elf_file_read(file, block, wanted * sizeof *block, file->dynamic.offset + i * sizeof *block) / sizeof *block;
		for (size_t k = 0; k < got; k++) {
			if (block[k].d_tag == DT_NULL)
				return 0;
			if (each(context, &block[k]))
				return 1;
		}
		if (got < wanted)
			return 0;
	}
	return 0;
}

static int note_table(void *context, const Elf64_Dyn *entry)
{
	struct elf_file *file = context;
	if (entry->d_tag == DT_STRTAB)
		file->strings = entry->d_un.d_ptr;
	else if (entry->d_tag == DT_STRSZ)
		file->strings_size = entry->d_un.d_val;
	else if (entry->d_tag == DT_SYMTAB)
		file->symbols = entry->d_un.d_ptr;
	else if (entry->d_tag == DT_GNU_HASH)
		file->gnu_hash = entry->d_un.d_ptr;
	return 0;
}

int elf_file_parse_dynamic(struct elf_file *file)
{
	if (!file->dynamic.length)
		return -1;
	each_dynamic(file, note_table, file);
	return file->strings ? 0 : -1;
}

/* A string of the dynamic string table, cut to `room`; always terminated. Returns its length. */
static size_t read_string(const struct elf_file *file, uint64_t at, char *to, size_t room)
{
	uint64_t offset;
	to[0] = 0;
	if (at >= file->strings_size || !elf_file_offset(file, file->strings + at, &offset))
		return 0;
	size_t got = elf_file_read(file, to, room - 1, offset);
	to[got] = 0;
	size_t length = 0;
	while (to[length])
		length++;
	return length;
}

struct needed_search {
	uint32_t wanted, seen;
	uint64_t name; /* offset in the string table */
};

static int count_needed(void *context, const Elf64_Dyn *entry)
{
	struct needed_search *search = context;
	if (entry->d_tag != DT_NEEDED)
		return 0;
	search->name = entry->d_un.d_val;
	return search->seen++ == search->wanted;
}

int elf_file_needed(const struct elf_file *file, uint32_t number, char *name, size_t room)
{
	struct needed_search search = {.wanted = number};
	if (!each_dynamic(file, count_needed, &search))
		return 0;
	read_string(file, search.name, name, room);
	return 1;
}

struct path_search {
	uint64_t run_path, path; /* offsets in the string table + 1 */
};

static int note_path(void *context, const Elf64_Dyn *entry)
{
	struct path_search *search = context;
	if (entry->d_tag == DT_RUNPATH)
		search->run_path = entry->d_un.d_val + 1;
	else if (entry->d_tag == DT_RPATH)
		search->path = entry->d_un.d_val + 1;
	return 0;
}

size_t elf_file_run_path(const struct elf_file *file, char *to, size_t room)
{
	struct path_search search = {0, 0};
	each_dynamic(file, note_path, &search);
	uint64_t found = search.run_path ? search.run_path : search.path;
	to[0] = 0;
	return found ? read_string(file, found - 1, to, room) : 0;
}

static uint32_t gnu_hash_of(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

static int symbol_is(const struct elf_file *file, uint32_t index, const char *name)
{
	Elf64_Sym symbol;
	char text[64];
	if (!read_address(file, &symbol, sizeof symbol, file->symbols + (uint64_t)index * sizeof symbol))
		return 0;
	read_string(file, symbol.st_name, text, sizeof text);
	const char *a = text;
	for (; *a && *a == *name; a++)
		name++;
	return *a == *name && symbol.st_shndx != SHN_UNDEF;
}

int elf_file_defines(const struct elf_file *file, const char *name)
{
	struct {
		uint32_t buckets, first, bloom_words, bloom_shift;
	} table;
	uint32_t hash = gnu_hash_of(name), index, link;
	uint64_t bloom, at = file->gnu_hash + sizeof table;
	if (!file->gnu_hash || !file->symbols || !read_address(file, &table, sizeof table, file->gnu_hash) || !table.buckets ||
	    !table.bloom_words)
		return 0;
	if (!read_address(file, &bloom, sizeof bloom, at + (uint64_t)(hash / 64 % table.bloom_words) * sizeof bloom))
		return 0;
	uint64_t mask = 1ull << hash % 64 | 1ull << (hash >> (table.bloom_shift & 31)) % 64;
	if ((bloom & mask) != mask)
		return 0;
	at += (uint64_t)table.bloom_words * sizeof bloom;
	if (!read_address(file, &index, sizeof index, at + (uint64_t)(hash % table.buckets) * sizeof index) || index < table.first)
		return 0;
	at += (uint64_t)table.buckets * sizeof index;
	for (uint32_t i = 0; i < HASH_CHAIN; i++, index++) {
		if (!read_address(file, &link, sizeof link, at + (uint64_t)(index - table.first) * sizeof link))
			return 0;
		if ((link | 1) == (hash | 1) && symbol_is(file, index, name))
			return 1;
		if (link & 1)
			return 0;
	}
	return 0;
}

uint32_t elf_file_build_id(const struct elf_file *file, uint8_t *to, size_t room)
{
	uint64_t size = file->notes.length < NOTES_BYTES ? file->notes.length : NOTES_BYTES;
	for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
		Elf64_Nhdr note;
		char name[4];
		uint64_t from = file->notes.offset + at;
		if (elf_file_read(file, &note, sizeof note, from) != sizeof note || note.n_namesz > NOTES_BYTES ||
		    note.n_descsz > NOTES_BYTES)
			return 0;
		uint64_t description = from + sizeof note + ((note.n_namesz + 3u) & ~3u);
		at += sizeof note + ((note.n_namesz + 3u) & ~3u) + ((note.n_descsz + 3u) & ~3u);
		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof name || at > size ||
		    elf_file_read(file, name, sizeof name, from + sizeof note) != sizeof name || name[0] != 'G' || name[1] != 'N' ||
		    name[2] != 'U')
			continue;
		return (uint32_t)elf_file_read(file, to, note.n_descsz < room ? note.n_descsz : room, description);
	}
	return 0;
}
