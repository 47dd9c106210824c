/* SPDX-License-Identifier: MIT */
/* library.c: see library.h. */
#include "collector/command/library.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lorg/abi.h>

enum { MOST_SEGMENTS = 64, NOTES_ROOM = 4096 };

static uint64_t align(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* The major and minor in one segment of notes; 0 when found. */
static int version_in(const uint8_t *notes, size_t length, uint64_t alignment, uint32_t version[2])
{
	for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= length;) {
		Elf64_Nhdr note;
		memcpy(&note, notes + at, sizeof note);
		uint64_t name = at + sizeof note;
		uint64_t value = align(name + note.n_namesz, alignment);
		uint64_t end = value + note.n_descsz;
		if (end > length)
			return -1;
		if (note.n_type == LORG_ABI_NOTE_TYPE && note.n_namesz == sizeof LORG_ABI_NOTE_NAME && note.n_descsz >= 8 &&
		    memcmp(notes + name, LORG_ABI_NOTE_NAME, sizeof LORG_ABI_NOTE_NAME) == 0) {
			memcpy(version, notes + value, 8);
			return 0;
		}
		at = align(end, alignment);
	}
	return -1;
}

static int is_elf64(const Elf64_Ehdr *header)
{
	return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
	       header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_phentsize == sizeof(Elf64_Phdr);
}

static int version_of(int file, uint32_t version[2])
{
	Elf64_Ehdr header;
	if (pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header || !is_elf64(&header))
		return -1;
	for (unsigned i = 0; i < header.e_phnum && i < MOST_SEGMENTS; i++) {
		Elf64_Phdr segment;
		uint8_t notes[NOTES_ROOM];
		if (pread(file, &segment, sizeof segment, (off_t)(header.e_phoff + i * sizeof segment)) != (ssize_t)sizeof segment)
			return -1;
		if (segment.p_type != PT_NOTE)
			continue;
		size_t size = segment.p_filesz < sizeof notes ? segment.p_filesz : sizeof notes;
		ssize_t length = pread(file, notes, size, (off_t)segment.p_offset);
		if (length > 0 && version_in(notes, (size_t)length, segment.p_align == 8 ? 8 : 4, version) == 0)
			return 0;
	}
	return -1;
}

const char *library_refused(const char *path, char *text, size_t size)
{
	uint32_t version[2] = {0, 0};
	const char *base = strrchr(path, '/');
	if (strcmp(base ? base + 1 : path, "liblorg.so") != 0) { /* the preload finds itself in LD_PRELOAD by that name */
		snprintf(text, size, "%s is not named liblorg.so", path);
		return text;
	}
	int file = open(path, O_RDONLY | O_CLOEXEC);
	int found = file >= 0 && version_of(file, version) == 0;
	if (file >= 0)
		close(file);
	if (found && version[0] == LORG_ABI_MAJOR)
		return NULL;
	if (found)
		snprintf(text, size, "%s is of version %u.%u, which this lorg (%d.%d) does not understand", path, version[0], version[1],
			 LORG_ABI_MAJOR, LORG_ABI_MINOR);
	else
		snprintf(text, size, "%s is no liblorg.so", path);
	return text;
}
