/* SPDX-License-Identifier: MIT */
/* no_symbols.h: symbols that are made up, for the one file of a target. */
#ifndef LORG_FUZZ_NO_SYMBOLS_H
#define LORG_FUZZ_NO_SYMBOLS_H

#include "collector/symbol/symbol.h"

/* Symbols come from files outside of the input: here there are none. Linked instead of collector/symbol. */
struct symbols {
	char unused;
};

struct symbol_file {
	char unused;
};

static struct symbols the_symbols;
static struct symbol_file the_file;

struct symbols *symbols_new(uint64_t recorded_ns)
{
	(void)recorded_ns;
	return &the_symbols;
}

void symbols_free(struct symbols *symbols)
{
	(void)symbols;
}

struct symbol_file *symbols_file(struct symbols *symbols, const void *path, size_t path_length, const void *build_id,
				 size_t build_id_length)
{
	(void)symbols, (void)path, (void)path_length, (void)build_id, (void)build_id_length;
	return &the_file;
}

const char *symbol_file_module(const struct symbol_file *file)
{
	(void)file;
	return "module";
}

int symbols_find(struct symbols *symbols, struct symbol_file *file, uint64_t address, struct symbol *symbol)
{
	(void)symbols, (void)file;
	*symbol = (struct symbol){.name = "name", .raw_name = "raw_name", .offset = address & 15};
	return address & 1;
}

int symbols_line(struct symbols *symbols, struct symbol_file *file, uint64_t address, const char **source, int *line)
{
	(void)symbols, (void)file;
	*source = "source.c";
	*line = (int)(address & 255);
	return address & 2 && *line;
}

int symbols_arity(struct symbols *symbols, struct symbol_file *file, uint64_t address)
{
	(void)symbols, (void)file;
	return (int)(address & 3) - 1;
}

void symbols_troubles(struct symbols *symbols, void (*tell)(const char *path, const char *why, void *context), void *context)
{
	(void)symbols;
	tell("/path", "reason", context);
}

#endif
