/* SPDX-License-Identifier: MIT */
/*
 * library_search.h: whether the loader would find a library that a program
 * needs, in the places where it looks: LD_LIBRARY_PATH, the program's own
 * DT_RPATH or DT_RUNPATH, /etc/ld.so.cache, the system's directories.
 *
 * As lookahead.h: raw system calls of a loader's kind, bounded, no allocation.
 */
#ifndef LORG_LOOKAHEAD_LIBRARY_SEARCH_H
#define LORG_LOOKAHEAD_LIBRARY_SEARCH_H

#include "preload/lookahead/elf_file.h"

/* file: parsed (elf_file_parse_dynamic). library_path: the value of LD_LIBRARY_PATH, NULL: not set. */
int library_is_found(const struct elf_file *file, const char *name, const char *library_path);

#endif
