/* SPDX-License-Identifier: MIT */
/*
 * elf_file.h: bounded reading of an ELF file by its descriptor.
 */
#ifndef LORG_LOOKAHEAD_ELF_FILE_H
#define LORG_LOOKAHEAD_ELF_FILE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

enum {
	ELF_FILE_HEAD = 1024,	/* bytes of the file's beginning that are kept */
	ELF_FILE_SEGMENTS = 16, /* PT_LOAD entries that are kept */
	ELF_FILE_PROGRAM_HEADERS = 128,
	ELF_FILE_DYNAMIC_ENTRIES = 1024,
};

struct elf_segment {
	uint64_t address, offset, length;
};

struct elf_file {
	int fd;
	uint32_t head_length;
	_Alignas(8) uint8_t head[ELF_FILE_HEAD];
	Elf64_Ehdr header;
	struct elf_segment load[ELF_FILE_SEGMENTS];
	uint32_t load_count;
	struct elf_segment interpreter, dynamic, notes; /* length 0: none */
	/* from the dynamic section: addresses, 0 none */
	uint64_t strings, strings_size, symbols, gnu_hash;
};

/* Reads the file's beginning. Returns its length, 0 when nothing can be read. */
uint32_t elf_file_begin(struct elf_file *file, int fd);

/* Copies `length` bytes at `offset`. Returns how many there were. */
size_t elf_file_read(const struct elf_file *file, void *to, size_t length, uint64_t offset);

/* Offset in the file of an address in the image. 1; 0: no segment holds it. After elf_file_parse(). */
int elf_file_offset(const struct elf_file *file, uint64_t address, uint64_t *offset);

/* Reads header and program headers of a 64-bit file of this machine. NULL on success, else the reason. */
const char *elf_file_parse(struct elf_file *file);

/* Reads the dynamic section's table addresses. 0 on success. */
int elf_file_parse_dynamic(struct elf_file *file);

/* The n-th DT_NEEDED name, at most `room` bytes with the terminator. 1: there is one, 0: no more. */
int elf_file_needed(const struct elf_file *file, uint32_t number, char *name, size_t room);

/* DT_RUNPATH, else DT_RPATH, cut to `room`; always terminated. Returns its length, 0: none. */
size_t elf_file_run_path(const struct elf_file *file, char *to, size_t room);

/* True if the file defines the dynamic symbol `name`. */
int elf_file_defines(const struct elf_file *file, const char *name);

/* Its build-id, at most `room` bytes. Returns the length, 0 if none. */
uint32_t elf_file_build_id(const struct elf_file *file, uint8_t *to, size_t room);

#endif
