/* SPDX-License-Identifier: MIT */
/* library.c: see library.h. */
#include "collector/command/library.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lorg/abi.h>

/* The major and minor in one section of notes; 0 when found. */
static int version_in(Elf_Data *notes, uint32_t version[2])
{
	GElf_Nhdr note;
	size_t name, value, at = 0, next;
	while ((next = gelf_getnote(notes, at, &note, &name, &value)) > 0) {
		const char *bytes = notes->d_buf;
		if (note.n_type == LORG_ABI_NOTE_TYPE && note.n_namesz == sizeof LORG_ABI_NOTE_NAME && note.n_descsz >= 8 &&
		    memcmp(bytes + name, LORG_ABI_NOTE_NAME, sizeof LORG_ABI_NOTE_NAME) == 0) {
			memcpy(version, bytes + value, 8);
			return 0;
		}
		at = next;
	}
	return -1;
}

static int version_of(Elf *elf, uint32_t version[2])
{
	size_t count = 0;
	if (!elf || elf_getphdrnum(elf, &count))
		return -1;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;
		if (!gelf_getphdr(elf, (int)i, &segment) || segment.p_type != PT_NOTE)
			continue;
		Elf_Data *notes = elf_getdata_rawchunk(elf, (int64_t)segment.p_offset, segment.p_filesz,
						       segment.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		if (notes && version_in(notes, version) == 0)
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
	elf_version(EV_CURRENT);
	Elf *elf = file < 0 ? NULL : elf_begin(file, ELF_C_READ, NULL);
	int found = version_of(elf, version) == 0;
	elf_end(elf);
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
