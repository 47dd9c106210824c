/* SPDX-License-Identifier: MIT */
/* library.h: what liblorg.so says of itself, read from its file. */
#ifndef LORG_COMMAND_LIBRARY_H
#define LORG_COMMAND_LIBRARY_H

#include <stddef.h>

/*
 * Whether a program with the liblorg.so at `path` preloaded and this lorg understand each other. NULL: they do; else
 * why not, in `text` (`size` bytes). The version stands in an ELF note (LORG_ABI_NOTE_*, include/lorg/abi.h).
 */
const char *library_refused(const char *path, char *text, size_t size);

#endif
