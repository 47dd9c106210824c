/* SPDX-License-Identifier: MIT */
/*
 * symbol.h: names and source lines for addresses in recorded modules.
 *
 * A module is known by its path and build-id. Names are taken from a file only
 * if it is the one that was recorded: the build-id must be equal, or, where
 * there was none, the file must not have changed since. Otherwise separate
 * debug files of that build-id are tried (/usr/lib/debug/.build-id; debuginfod
 * only if the user has set DEBUGINFOD_URLS), else there are no names, and
 * symbols_trouble() says why.
 *
 * Texts belong to the struct symbols and live as long as it does. One thread.
 */
#ifndef LORG_SYMBOL_SYMBOL_H
#define LORG_SYMBOL_SYMBOL_H

#include <stddef.h>
#include <stdint.h>

struct symbols;
struct symbol_file;

/* recorded_ns: CLOCK_REALTIME when the recording began, 0 unknown. NULL: out of memory. */
struct symbols *symbols_new(uint64_t recorded_ns);
void symbols_free(struct symbols *symbols);

/* The file of a module; the same one for the same path and build-id. Reads nothing yet. NULL: out of memory. */
struct symbol_file *symbols_file(struct symbols *symbols, const void *path, size_t path_length, const void *build_id,
				 size_t build_id_length);

/* Base name of its path. */
const char *symbol_file_module(const struct symbol_file *file);

struct symbol {
	const char *name;     /* demangled where it is mangled */
	const char *raw_name; /* as in the file */
	uint64_t offset;      /* of the address from the symbol's start */
	uint64_t start;       /* address in the file's terms */
};

/* address: in the file's terms, that is less the load bias. Returns 0 when no name is known. */
int symbols_find(struct symbols *symbols, struct symbol_file *file, uint64_t address, struct symbol *symbol);

/* Source file and line of an address; 0 when there is no line data. */
int symbols_line(struct symbols *symbols, struct symbol_file *file, uint64_t address, const char **source, int *line);

/* Parameters of the function at an address by debug information: `this` counts, `...` does not. -1: not known. */
int symbols_arity(struct symbols *symbols, struct symbol_file *file, uint64_t address);

/* Why a file that was asked for gave no names; NULL when it did, or was never asked. Path and reason are for people. */
const char *symbol_file_trouble(const struct symbol_file *file);
const char *symbol_file_path(const struct symbol_file *file);

/* Calls `tell` for each file in trouble, once a file. */
void symbols_troubles(struct symbols *symbols, void (*tell)(const char *path, const char *why, void *context),
		      void *context);

/* A C++ name for people; the name itself where it is none. Belongs to the caller (free); NULL: out of memory. */
char *symbol_demangle(const char *name);

#endif
