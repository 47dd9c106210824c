/* SPDX-License-Identifier: MIT */
/* runtimes.c: see runtimes.h. */
#include "collector/collect/runtimes.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/event/event.h"

enum {
	SECTIONS_MAXIMUM = 4096,
	SECTION_BYTES = 256 << 20, /* of what is read of one section */
	RUNTIMES_SEEN = 65536,
};

static const char throw_name[] = "__cxa_throw";
/* The name of a type that every C++ runtime defines for itself. */
static const char type_name[] = "N10__cxxabiv117__class_type_infoE";

/* ---- one file ---------------------------------------------------------- */

struct file {
	int fd;
	Elf64_Ehdr header;
	Elf64_Shdr *sections;
	char *names; /* of the sections, zero-terminated at its end */
	uint64_t names_size;
};

static void *read_part(int fd, uint64_t offset, uint64_t size)
{
	char *bytes = size && size <= SECTION_BYTES && offset < INT64_MAX - size ? malloc(size + 1) : NULL;
	for (uint64_t done = 0; bytes && done < size;) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)(offset + done));
		if (got <= 0) {
			free(bytes);
			return NULL;
		}
		done += (uint64_t)got;
	}
	if (bytes)
		bytes[size] = 0;
	return bytes;
}

static int read_sections(struct file *file)
{
	Elf64_Ehdr *header = &file->header;
	if (pread(file->fd, header, sizeof *header, 0) != (ssize_t)sizeof *header ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 || header->e_shnum > SECTIONS_MAXIMUM ||
	    header->e_shstrndx >= header->e_shnum)
		return -1;
	file->sections = read_part(file->fd, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
	if (!file->sections)
		return -1;
	const Elf64_Shdr *names = &file->sections[header->e_shstrndx];
	file->names = read_part(file->fd, names->sh_offset, names->sh_size);
	file->names_size = names->sh_size;
	return file->names ? 0 : -1;
}

static const Elf64_Shdr *section_named(const struct file *file, const char *name)
{
	for (unsigned i = 1; i < file->header.e_shnum; i++)
		if (file->sections[i].sh_name < file->names_size && file->sections[i].sh_type != SHT_NOBITS &&
		    strcmp(file->names + file->sections[i].sh_name, name) == 0)
			return &file->sections[i];
	return NULL;
}

enum definition { NOT_NAMED, IMPORTED, DEFINED };

/* What a symbol table says of __cxa_throw. */
static enum definition look_in_table(const struct file *file, const Elf64_Shdr *table)
{
	enum definition found = NOT_NAMED;
	if (!table || table->sh_link >= file->header.e_shnum)
		return found;
	const Elf64_Shdr *texts = &file->sections[table->sh_link];
	uint64_t texts_size = texts->sh_size, count = table->sh_size / sizeof(Elf64_Sym);
	char *text = read_part(file->fd, texts->sh_offset, texts_size);
	Elf64_Sym *symbols = text ? read_part(file->fd, table->sh_offset, count * sizeof(Elf64_Sym)) : NULL;
	for (uint64_t i = 0; symbols && i < count && found != DEFINED; i++)
		if (symbols[i].st_name + sizeof throw_name <= texts_size &&
		    memcmp(text + symbols[i].st_name, throw_name, sizeof throw_name) == 0)
			found = symbols[i].st_shndx == SHN_UNDEF ? IMPORTED : DEFINED;
	free(symbols);
	free(text);
	return found;
}

static int has_type_name(const struct file *file)
{
	const Elf64_Shdr *constants = section_named(file, ".rodata");
	char *bytes = constants ? read_part(file->fd, constants->sh_offset, constants->sh_size) : NULL;
	int found = bytes && memmem(bytes, constants->sh_size, type_name, sizeof type_name);
	free(bytes);
	return found;
}

static int is_hidden(const struct file *file)
{
	/* Without tables of handlers nothing is caught; C++ runtimes have some. */
	if (!section_named(file, ".gcc_except_table"))
		return 0;
	enum definition dynamic = look_in_table(file, section_named(file, ".dynsym"));
	if (dynamic == IMPORTED)
		return 0;
	/* A library's own is called through its symbol, a program's is not. */
	if (dynamic == DEFINED)
		return section_named(file, ".interp") != NULL;
	const Elf64_Shdr *symbols = section_named(file, ".symtab");
	return symbols ? look_in_table(file, symbols) == DEFINED : has_type_name(file);
}

int runtime_is_hidden(const char *path)
{
	struct file file = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
	struct stat status;
	int hidden = file.fd >= 0 && fstat(file.fd, &status) == 0 && S_ISREG(status.st_mode) && read_sections(&file) == 0 &&
		     is_hidden(&file);
	free(file.names);
	free(file.sections);
	if (file.fd >= 0)
		close(file.fd);
	return hidden;
}

/* ---- all of them ------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *bytes, uint32_t length)
{
	uint64_t hash = 0xcbf29ce484222325u;
	for (uint32_t i = 0; i < length; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash ? hash : 1;
}

static void put(uint64_t *table, uint32_t room, uint64_t hash)
{
	uint32_t at = (uint32_t)hash & (room - 1);
	while (table[at])
		at = (at + 1) & (room - 1);
	table[at] = hash;
}

static int make_room(struct runtimes *runtimes)
{
	if (runtimes->count * 2 < runtimes->room)
		return 1;
	uint32_t room = runtimes->room ? runtimes->room * 2 : 64;
	uint64_t *seen = runtimes->count < RUNTIMES_SEEN ? calloc(room, sizeof *seen) : NULL;
	if (!seen)
		return 0;
	for (uint32_t i = 0; i < runtimes->room; i++)
		if (runtimes->seen[i])
			put(seen, room, runtimes->seen[i]);
	free(runtimes->seen);
	runtimes->seen = seen;
	runtimes->room = room;
	return 1;
}

/* 1: for the first time. */
static int is_new(struct runtimes *runtimes, uint64_t hash)
{
	if (!make_room(runtimes))
		return 0;
	for (uint32_t at = (uint32_t)hash & (runtimes->room - 1); runtimes->seen[at]; at = (at + 1) & (runtimes->room - 1))
		if (runtimes->seen[at] == hash)
			return 0;
	put(runtimes->seen, runtimes->room, hash);
	runtimes->count++;
	return 1;
}

static void look_at_module(struct runtimes *runtimes, const struct event_view *view, uint32_t pid, struct notes *notes)
{
	char path[4096], what[4200];
	uint32_t length;
	const uint8_t *bytes = event_bytes_named(view, "path", &length);
	if (!length || length >= sizeof path || bytes[0] != '/' || memchr(bytes, 0, length) || !is_new(runtimes, hash_of(bytes, length)))
		return;
	memcpy(path, bytes, length);
	path[length] = 0;
	if (!runtime_is_hidden(path))
		return;
	snprintf(what, sizeof what, "exceptions in %s", path);
	notes_gap(notes, 1, pid, what, "its C++ runtime is linked into it: what it throws and catches is not seen");
}

void runtimes_look(struct runtimes *runtimes, const uint8_t *packet, uint32_t length, uint32_t pid, struct notes *notes)
{
	struct event_view view;
	for (uint32_t at = LORG_PACKET_HEAD; at < length; at += view.length) {
		enum event_status status = event_decode(packet + at, length - at, 0, &view);
		if (status == EVENT_BAD || !view.length)
			return;
		if (status == EVENT_OK && view.id == LORG_EVENT_MODULE)
			look_at_module(runtimes, &view, pid, notes);
	}
}

void runtimes_free(struct runtimes *runtimes)
{
	free(runtimes->seen);
	*runtimes = (struct runtimes){0};
}
