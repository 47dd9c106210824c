/* SPDX-License-Identifier: MIT */
/* symbol.c: see symbol.h. One Dwfl a file; its function symbols in one sorted table. */
#include "collector/symbol/symbol.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/base/list.h"

enum { BUILD_ID_MAXIMUM = 64 };

struct function_symbol {
	uint64_t start, size;
	const char *raw_name; /* the Dwfl's */
	char *name;           /* demangled when first asked; ours */
	char *function_name;  /* raw_name of the function that this is a part of; ours, NULL: it is one itself */
};

struct symbol_file {
	char *path;
	const char *module; /* within path */
	uint8_t build_id[BUILD_ID_MAXIMUM];
	size_t build_id_length;
	int opened;
	Dwfl *dwfl;
	Dwfl_Module *dwfl_module;
	uint64_t bias; /* address in dwfl less address in the file */
	struct function_symbol *table;
	size_t count;
	char trouble[160];
	struct symbol_file *next;
};

struct symbols {
	uint64_t recorded_ns;
	struct symbol_file *files;
};

static char *debuginfo_path;

static int no_elf(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, char **file_name, Elf **elf)
{
	(void)module, (void)data, (void)name, (void)base, (void)file_name, (void)elf;
	return -1;
}

/* The standard search looks into .gnu_debuglink, build-id folders and, where DEBUGINFOD_URLS is set, debuginfod. */
static const Dwfl_Callbacks callbacks = {
	.find_elf = no_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debuginfo_path,
};

struct symbols *symbols_new(uint64_t recorded_ns)
{
	struct symbols *symbols = calloc(1, sizeof *symbols);
	if (symbols)
		symbols->recorded_ns = recorded_ns;
	return symbols;
}

static void file_free(struct symbol_file *file)
{
	for (size_t i = 0; i < file->count; i++) {
		free(file->table[i].name);
		free(file->table[i].function_name);
	}
	free(file->table);
	if (file->dwfl)
		dwfl_end(file->dwfl);
	free(file->path);
	free(file);
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	while (symbols->files) {
		struct symbol_file *file = symbols->files;
		symbols->files = file->next;
		file_free(file);
	}
	free(symbols);
}

struct symbol_file *symbols_file(struct symbols *symbols, const void *path, size_t path_length, const void *build_id,
				 size_t build_id_length)
{
	static const char deleted[] = " (deleted)";
	size_t deleted_length = sizeof deleted - 1;
	if (path_length > deleted_length &&
	    memcmp((const char *)path + path_length - deleted_length, deleted, deleted_length) == 0)
		path_length -= deleted_length;
	if (build_id_length > BUILD_ID_MAXIMUM)
		build_id_length = 0;
	for (struct symbol_file *file = symbols->files; file; file = file->next)
		if (strlen(file->path) == path_length && memcmp(file->path, path, path_length) == 0 &&
		    file->build_id_length == build_id_length && memcmp(file->build_id, build_id, build_id_length) == 0)
			return file;

	struct symbol_file *file = calloc(1, sizeof *file);
	if (!file || !(file->path = strndup(path, path_length))) {
		free(file);
		return NULL;
	}
	const char *slash = strrchr(file->path, '/');
	file->module = slash ? slash + 1 : file->path;
	if (build_id_length)
		memcpy(file->build_id, build_id, build_id_length);
	file->build_id_length = build_id_length;
	file->next = symbols->files;
	symbols->files = file;
	return file;
}

const char *symbol_file_module(const struct symbol_file *file)
{
	return file->module;
}

const char *symbol_file_path(const struct symbol_file *file)
{
	return file->path;
}

const char *symbol_file_trouble(const struct symbol_file *file)
{
	return file->opened && file->trouble[0] ? file->trouble : NULL;
}

void symbols_troubles(struct symbols *symbols, void (*tell)(const char *path, const char *why, void *context), void *context)
{
	for (const struct symbol_file *file = symbols->files; file; file = file->next)
		if (symbol_file_trouble(file))
			tell(file->path, file->trouble, context);
}

/* ---- the file that was recorded ----------------------------------------- */

static void close_dwfl(struct symbol_file *file)
{
	if (file->dwfl)
		dwfl_end(file->dwfl);
	file->dwfl = NULL;
	file->dwfl_module = NULL;
}

/* Gives the descriptor to a new Dwfl; it is closed in any case. */
static int open_dwfl(struct symbol_file *file, const char *path, int fd)
{
	GElf_Addr bias;
	file->dwfl = dwfl_begin(&callbacks);
	if (!file->dwfl) {
		close(fd);
		return 0;
	}
	dwfl_report_begin(file->dwfl);
	file->dwfl_module = dwfl_report_elf(file->dwfl, file->module, path, fd, 0, true);
	if (!file->dwfl_module)
		close(fd);
	dwfl_report_end(file->dwfl, NULL, NULL);
	if (!file->dwfl_module || !dwfl_module_getelf(file->dwfl_module, &bias)) {
		close_dwfl(file);
		return 0;
	}
	file->bias = bias;
	return 1;
}

static int has_build_id(const struct symbol_file *file)
{
	const unsigned char *bits;
	GElf_Addr address;
	int length = dwfl_module_build_id(file->dwfl_module, &bits, &address);
	return length > 0 && (size_t)length == file->build_id_length &&
	       memcmp(bits, file->build_id, file->build_id_length) == 0;
}

/* Opens a regular file; a path from a trace may name anything, and opening a device may do something. */
static int open_regular(const char *path, struct stat *status)
{
	if (path[0] != '/' || stat(path, status) != 0 || !S_ISREG(status->st_mode))
		return -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -1;
	if (fstat(fd, status) == 0 && S_ISREG(status->st_mode))
		return fd;
	close(fd);
	return -1;
}

static int changed_since(const struct symbols *symbols, const struct stat *status)
{
	uint64_t changed = (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
	return symbols->recorded_ns != 0 && changed > symbols->recorded_ns;
}

/* The recorded path, if it still is the same file. */
static int open_recorded(struct symbols *symbols, struct symbol_file *file)
{
	struct stat status;
	int fd = open_regular(file->path, &status);
	if (fd < 0) {
		snprintf(file->trouble, sizeof file->trouble, "the file is gone: addresses are shown without names");
		return 0;
	}
	if (!open_dwfl(file, file->path, fd)) {
		snprintf(file->trouble, sizeof file->trouble,
			 "it is not an ELF file any more: addresses are shown without names");
		return 0;
	}
	int same = file->build_id_length ? has_build_id(file) : !changed_since(symbols, &status);
	if (same)
		return 1;
	close_dwfl(file);
	snprintf(file->trouble, sizeof file->trouble,
		 "the file has changed since the recording: addresses are shown without names");
	return 0;
}

static void hexadecimal(const uint8_t *bytes, size_t length, char *to)
{
	for (size_t i = 0; i < length; i++)
		sprintf(to + 2 * i, "%02x", bytes[i]);
}

static int open_debug_file(struct symbol_file *file)
{
	char name[2 * BUILD_ID_MAXIMUM + 1], path[2 * BUILD_ID_MAXIMUM + 64];
	struct stat status;
	hexadecimal(file->build_id, file->build_id_length, name);
	snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", name, name + 2);
	int fd = open_regular(path, &status);
	return fd >= 0 && open_dwfl(file, path, fd) && has_build_id(file);
}

/* debuginfod's C interface, loaded only where the user has asked for it by setting DEBUGINFOD_URLS. */
static int open_debuginfod(struct symbol_file *file)
{
	const char *urls = getenv("DEBUGINFOD_URLS");
	if (!urls || !*urls)
		return 0;
	void *library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return 0;
	void *(*begin)(void) = (void *(*)(void))dlsym(library, "debuginfod_begin");
	void (*end)(void *) = (void (*)(void *))dlsym(library, "debuginfod_end");
	int (*find)(void *, const unsigned char *, int, char **) =
		(int (*)(void *, const unsigned char *, int, char **))dlsym(library, "debuginfod_find_debuginfo");
	void *client = begin && end && find ? begin() : NULL;
	if (!client)
		return 0;
	char *path = NULL;
	int fd = find(client, file->build_id, (int)file->build_id_length, &path);
	int good = fd >= 0 && open_dwfl(file, path ? path : file->path, fd) && has_build_id(file);
	free(path);
	end(client);
	return good;
}

/* ---- its symbols ------------------------------------------------------- */

static int in_code(Elf *elf, GElf_Word section)
{
	GElf_Shdr header;
	Elf_Scn *found = elf ? elf_getscn(elf, section) : NULL;
	return found && gelf_getshdr(found, &header) && (header.sh_flags & SHF_EXECINSTR);
}

static int is_function(const GElf_Sym *symbol, const char *name, GElf_Word section, Elf *elf)
{
	if (!name || !*name || section == SHN_UNDEF)
		return 0;
	int type = GELF_ST_TYPE(symbol->st_info);
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return 1;
	return type == STT_NOTYPE && symbol->st_size > 0 && in_code(elf, section);
}

/* Of the names of one address the plainest comes first: fewest leading underscores, then the shortest. */
static int plainer(const char *a, const char *b)
{
	size_t under_a = strspn(a, "_"), under_b = strspn(b, "_");
	if (under_a != under_b)
		return under_a < under_b ? -1 : 1;
	size_t length_a = strlen(a), length_b = strlen(b);
	if (length_a != length_b)
		return length_a < length_b ? -1 : 1;
	return strcmp(a, b);
}

static int symbols_in_order(const void *left, const void *right)
{
	const struct function_symbol *a = left, *b = right;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if ((a->size == 0) != (b->size == 0))
		return a->size ? -1 : 1;
	return plainer(a->raw_name, b->raw_name);
}

static void read_table(struct symbol_file *file)
{
	int total = dwfl_module_getsymtab(file->dwfl_module);
	if (total <= 0)
		return;
	file->table = calloc((size_t)total, sizeof *file->table);
	if (!file->table)
		return;
	size_t count = 0;
	for (int i = 0; i < total; i++) {
		GElf_Sym symbol;
		GElf_Addr address;
		GElf_Word section;
		Elf *elf;
		Dwarf_Addr bias;
		const char *name = dwfl_module_getsym_info(file->dwfl_module, i, &symbol, &address, &section, &elf, &bias);
		if (is_function(&symbol, name, section, elf))
			file->table[count++] = (struct function_symbol){address - file->bias, symbol.st_size, name, NULL, NULL};
	}
	if (count > 1)
		qsort(file->table, count, sizeof *file->table, symbols_in_order);
	for (size_t i = 0; i < count; i++)
		if (file->count == 0 || file->table[file->count - 1].start != file->table[i].start)
			file->table[file->count++] = file->table[i];
}

static void open_file(struct symbols *symbols, struct symbol_file *file)
{
	if (file->opened)
		return;
	file->opened = 1;
	if (open_recorded(symbols, file)) {
		read_table(file);
		return;
	}
	if (file->build_id_length == 0)
		return;
	if (!open_debug_file(file)) {
		close_dwfl(file);
		if (!open_debuginfod(file)) {
			close_dwfl(file);
			return;
		}
	}
	file->trouble[0] = 0;
	read_table(file);
}

/* The last symbol that begins at or before the address. */
static struct function_symbol *symbol_at(const struct symbol_file *file, uint64_t address)
{
	size_t low = list_up_to(file->table, file->count, sizeof *file->table, offsetof(struct function_symbol, start), address);
	return low ? &file->table[low - 1] : NULL;
}

/* What a compiler has moved out of a function's way (main.cold, main.cold.1) is that function's. */
static void name_symbol(struct function_symbol *found)
{
	const char *cold = strstr(found->raw_name, ".cold");
	if (cold && (cold[5] == 0 || cold[5] == '.'))
		found->function_name = strndup(found->raw_name, (size_t)(cold - found->raw_name));
	if (found->function_name)
		found->raw_name = found->function_name;
	found->name = symbol_demangle(found->raw_name);
}

int symbols_find(struct symbols *symbols, struct symbol_file *file, uint64_t address, struct symbol *symbol)
{
	open_file(symbols, file);
	struct function_symbol *found = symbol_at(file, address);
	if (!found || (found->size && address - found->start >= found->size))
		return 0;
	if (!found->name)
		name_symbol(found);
	symbol->name = found->name ? found->name : found->raw_name;
	symbol->raw_name = found->raw_name;
	symbol->start = found->start;
	symbol->offset = address - found->start;
	return 1;
}

int symbols_line(struct symbols *symbols, struct symbol_file *file, uint64_t address, const char **source, int *line)
{
	open_file(symbols, file);
	if (!file->dwfl_module)
		return 0;
	Dwfl_Line *found = dwfl_module_getsrc(file->dwfl_module, address + file->bias);
	if (!found)
		return 0;
	*source = dwfl_lineinfo(found, NULL, line, NULL, NULL, NULL);
	return *source != NULL && *line > 0;
}

static int parameters_of(Dwarf_Die *function)
{
	Dwarf_Die child;
	int count = 0;
	if (dwarf_child(function, &child) != 0)
		return 0;
	do
		count += dwarf_tag(&child) == DW_TAG_formal_parameter;
	while (dwarf_siblingof(&child, &child) == 0);
	return count;
}

int symbols_arity(struct symbols *symbols, struct symbol_file *file, uint64_t address)
{
	Dwarf_Addr bias;
	open_file(symbols, file);
	Dwarf_Die *unit = file->dwfl_module ? dwfl_module_addrdie(file->dwfl_module, address + file->bias, &bias) : NULL;
	Dwarf_Die *scopes = NULL;
	int count = unit ? dwarf_getscopes(unit, address + file->bias - bias, &scopes) : 0, arity = -1;
	for (int i = 0; i < count && arity < 0; i++) /* innermost first: inlined calls come before the function itself */
		if (dwarf_tag(&scopes[i]) == DW_TAG_subprogram)
			arity = parameters_of(&scopes[i]);
	free(scopes);
	return arity;
}
