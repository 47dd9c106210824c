/* SPDX-License-Identifier: MIT */
/* program.c: see program.h. */
#include "collector/remote/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/base/list.h"

enum {
	MAPPINGS_MAXIMUM = 1 << 18,
	HEADERS_MAXIMUM = 64,
	DYNAMIC_MAXIMUM = 256,
	CHAIN_MAXIMUM = 1 << 16,
	NOTES_MAXIMUM = 4096
};

int program_read(const struct program *program, uint64_t address, void *to, size_t length)
{
	return pread(program->memory, to, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

int program_write(const struct program *program, uint64_t address, const void *from, size_t length)
{
	return pwrite(program->memory, from, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

/* ---- what is mapped ----------------------------------------------------------- */

static void forget_mappings(struct program *program)
{
	for (uint32_t i = 0; i < program->mapping_count; i++)
		free(program->mappings[i].path);
	free(program->mappings);
	program->mappings = NULL;
	program->mapping_count = 0;
}

static int take_mapping(struct program *program, char *line, uint32_t *room)
{
	struct mapping mapping = {0};
	char rights[5];
	int path = 0;
	line[strcspn(line, "\n")] = 0;
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*x:%*x %*u %n", &mapping.start, &mapping.end, rights, &path) < 3)
		return 0;
	if (program->mapping_count == *room) {
		uint32_t grown = *room ? *room * 2 : 256;
		struct mapping *mappings =
			grown <= MAPPINGS_MAXIMUM ? realloc(program->mappings, grown * sizeof *mappings) : NULL;
		if (!mappings)
			return -1;
		program->mappings = mappings;
		*room = grown;
	}
	mapping.readable = rights[0] == 'r';
	mapping.writable = rights[1] == 'w';
	mapping.executable = rights[2] == 'x';
	mapping.is_stack = path && strcmp(line + path, "[stack]") == 0;
	mapping.path = strdup(path ? line + path : "");
	if (!mapping.path)
		return -1;
	program->mappings[program->mapping_count++] = mapping;
	return 0;
}

static int read_mappings(struct program *program)
{
	char path[32], *line = NULL;
	size_t size = 0;
	uint32_t room = 0;
	int result = 0;
	forget_mappings(program);
	snprintf(path, sizeof path, "/proc/%d/maps", program->pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return -1;
	while (result == 0 && getline(&line, &size, file) > 0)
		result = take_mapping(program, line, &room);
	free(line);
	fclose(file);
	return result || !program->mapping_count ? -1 : 0;
}

const struct mapping *program_mapping(const struct program *program, uint64_t address)
{
	size_t low = list_up_to(program->mappings, program->mapping_count, sizeof *program->mappings, offsetof(struct mapping, end), address);
	return low < program->mapping_count && program->mappings[low].start <= address ? &program->mappings[low] : NULL;
}

/* ---- modules ------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* The loader has made the addresses there absolute, but in objects whose dynamic section is read-only. */
static uint64_t absolute(const struct remote_module *module, uint64_t value)
{
	return value < module->bias ? value + module->bias : value;
}

static void read_dynamic(const struct program *program, struct remote_module *module, uint64_t address)
{
	Elf64_Dyn entry;
	for (int i = 0; i < DYNAMIC_MAXIMUM; i++) {
		if (program_read(program, address + (uint64_t)i * sizeof entry, &entry, sizeof entry) ||
		    entry.d_tag == DT_NULL)
			return;
		if (entry.d_tag == DT_SYMTAB)
			module->symbols = absolute(module, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_STRTAB)
			module->strings = absolute(module, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_GNU_HASH)
			module->gnu_hash = absolute(module, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_VERSYM)
			module->versions = absolute(module, entry.d_un.d_ptr);
	}
}

static int read_header(const struct program *program, const struct remote_module *module, uint32_t index, Elf64_Phdr *header)
{
	return program_read(program, module->headers + index * sizeof *header, header, sizeof *header);
}

/* An ELF object whose first mapping this is. 0, or -1: it is none. */
static int read_module(const struct program *program, const struct mapping *mapping, struct remote_module *module)
{
	Elf64_Ehdr head;
	Elf64_Phdr header;
	uint64_t dynamic = 0;
	int based = 0;
	memset(module, 0, sizeof *module);
	if (!mapping->readable || program_read(program, mapping->start, &head, sizeof head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof header || head.e_phnum > HEADERS_MAXIMUM ||
	    (head.e_type != ET_DYN && head.e_type != ET_EXEC))
		return -1;
	module->path = mapping->path;
	module->name = last_part(mapping->path);
	module->headers = mapping->start + head.e_phoff;
	module->header_count = head.e_phnum;
	module->start = mapping->start;
	for (uint32_t i = 0; i < head.e_phnum; i++) {
		if (read_header(program, module, i, &header))
			return -1;
		if (header.p_type == PT_LOAD && !based) {
			module->bias = mapping->start - (header.p_vaddr - header.p_offset);
			based = 1;
		}
		if (header.p_type == PT_LOAD && module->bias + header.p_vaddr + header.p_memsz > module->end)
			module->end = module->bias + header.p_vaddr + header.p_memsz;
		if (header.p_type == PT_DYNAMIC)
			dynamic = header.p_vaddr;
	}
	if (!based)
		return -1;
	if (dynamic)
		read_dynamic(program, module, module->bias + dynamic);
	return 0;
}

/* Of one that is named so and exports that. */
static const struct remote_module *find_module(const struct program *program, const char *name, const char *symbol)
{
	for (uint32_t i = 0; i < program->module_count; i++) {
		int type;
		if (strncmp(program->modules[i].name, name, strlen(name)) == 0 &&
		    module_symbol(program, &program->modules[i], symbol, &type))
			return &program->modules[i];
	}
	return NULL;
}

static void find_modules(struct program *program)
{
	free(program->modules);
	program->module_count = 0;
	program->modules = calloc(program->mapping_count, sizeof *program->modules);
	for (uint32_t i = 0; program->modules && i < program->mapping_count; i++) {
		const struct mapping *mapping = &program->mappings[i];
		struct remote_module module;
		int type;
		/* A later mapping of an object that stands there already begins with other bytes, or lies within it. */
		if (!mapping->path[0] || mapping->path[0] == '[' || program_module_at(program, mapping->start) ||
		    read_module(program, mapping, &module))
			continue;
		module.allocates = module_symbol(program, &module, "malloc", &type) != 0;
		program->modules[program->module_count++] = module;
	}
	program->libc = find_module(program, "libc", "gnu_get_libc_version");
	program->loader = find_module(program, "ld", "_r_debug");
}

int program_look(struct program *program)
{
	if (read_mappings(program))
		return -1;
	find_modules(program);
	return program->modules ? 0 : -1;
}

int program_open(struct program *program, pid_t pid, int *error, const char **why)
{
	char path[32];
	memset(program, 0, sizeof *program);
	program->pid = pid;
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	program->memory = open(path, O_RDWR | O_CLOEXEC);
	*error = errno;
	*why = *error == ENOENT || *error == ESRCH
		       ? "there is no such program"
		       : "its memory may not be looked at (another user's, or the system forbids it)";
	if (program->memory < 0)
		return -1;
	if (program_look(program) == 0)
		return 0;
	*error = errno;
	*why = "what it has mapped cannot be read";
	return -1;
}

void program_close(struct program *program)
{
	forget_mappings(program);
	free(program->modules);
	if (program->memory >= 0)
		close(program->memory);
	program->memory = -1;
	program->modules = NULL;
}

const struct remote_module *program_module_at(const struct program *program, uint64_t address)
{
	for (uint32_t i = 0; i < program->module_count; i++)
		if (address >= program->modules[i].start && address < program->modules[i].end)
			return &program->modules[i];
	return NULL;
}

static int is_named(const char *name, const char *wanted)
{
	size_t length = strlen(wanted);
	return strncmp(name, wanted, length) == 0 && (!name[length] || strcmp(name + length, " (deleted)") == 0);
}

const struct remote_module *program_module_named(const struct program *program, const char *name)
{
	for (uint32_t i = 0; i < program->module_count; i++)
		if (is_named(program->modules[i].name, name))
			return &program->modules[i];
	return NULL;
}

/* ---- symbols -------------------------------------------------------------------- */

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

/* A symbol that serves those who ask for no version. */
static int is_it(const struct program *program, const struct remote_module *module, uint32_t index, const char *name,
		 Elf64_Sym *symbol)
{
	char text[64] = "";
	uint16_t version = 0;
	size_t length = strlen(name) + 1;
	if (length > sizeof text ||
	    program_read(program, module->symbols + index * sizeof *symbol, symbol, sizeof *symbol) ||
	    symbol->st_shndx == SHN_UNDEF || program_read(program, module->strings + symbol->st_name, text, length) ||
	    memcmp(text, name, length) != 0)
		return 0;
	if (module->versions && program_read(program, module->versions + index * sizeof version, &version, sizeof version))
		return 0;
	return !(version & 0x8000);
}

uint64_t module_symbol(const struct program *program, const struct remote_module *module, const char *name, int *type)
{
	uint32_t head[4], index = 0, hash = hash_of(name);
	if (!module->gnu_hash || !module->symbols || !module->strings ||
	    program_read(program, module->gnu_hash, head, sizeof head) || !head[0])
		return 0;
	uint64_t buckets = module->gnu_hash + sizeof head + (uint64_t)head[2] * 8, chain = buckets + (uint64_t)head[0] * 4;
	if (program_read(program, buckets + hash % head[0] * 4ull, &index, sizeof index) || index < head[1])
		return 0;
	for (int i = 0; i < CHAIN_MAXIMUM; i++, index++) {
		uint32_t link;
		Elf64_Sym symbol;
		if (program_read(program, chain + (index - head[1]) * 4ull, &link, sizeof link))
			return 0;
		if ((link | 1) == (hash | 1) && is_it(program, module, index, name, &symbol)) {
			*type = ELF64_ST_TYPE(symbol.st_info);
			return module->bias + symbol.st_value;
		}
		if (link & 1)
			return 0;
	}
	return 0;
}

/* ---- notes ---------------------------------------------------------------------- */

static uint64_t note_in(const struct program *program, uint64_t address, uint64_t size, const char *name, uint32_t type,
			uint32_t *value_size)
{
	uint8_t bytes[NOTES_MAXIMUM];
	size_t name_size = strlen(name) + 1;
	if (size > sizeof bytes || program_read(program, address, bytes, size))
		return 0;
	for (uint64_t at = 0; at + 12 <= size;) {
		uint32_t head[3];
		memcpy(head, bytes + at, sizeof head);
		uint64_t value = at + 12 + ((head[0] + 3ull) & ~3ull), next = value + ((head[1] + 3ull) & ~3ull);
		if (next > size)
			return 0;
		if (head[2] == type && head[0] == name_size && memcmp(bytes + at + 12, name, name_size) == 0) {
			*value_size = head[1];
			return address + value;
		}
		at = next;
	}
	return 0;
}

uint64_t module_note(const struct program *program, const struct remote_module *module, const char *name, uint32_t type,
		     uint32_t *size)
{
	for (uint32_t i = 0; i < module->header_count; i++) {
		Elf64_Phdr header;
		if (read_header(program, module, i, &header))
			return 0;
		uint64_t found = header.p_type == PT_NOTE
					 ? note_in(program, module->bias + header.p_vaddr, header.p_memsz, name, type, size)
					 : 0;
		if (found)
			return found;
	}
	return 0;
}

/* ---- /proc/PID/status ------------------------------------------------------------- */

static FILE *open_status(pid_t pid, pid_t tid)
{
	char path[64];
	if (tid)
		snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
	else
		snprintf(path, sizeof path, "/proc/%d/status", pid);
	return fopen(path, "re");
}

int64_t status_number(pid_t pid, pid_t tid, const char *key, int base)
{
	char line[512];
	size_t length = strlen(key);
	int64_t value = -1;
	FILE *file = open_status(pid, tid);
	while (file && value < 0 && fgets(line, sizeof line, file))
		if (strncmp(line, key, length) == 0 && line[length] == ':')
			value = (int64_t)strtoull(line + length + 1, NULL, base);
	if (file)
		fclose(file);
	return value;
}

char status_state(pid_t pid, pid_t tid)
{
	char line[512], state = 'X';
	FILE *file = open_status(pid, tid);
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "State: %c", &state) == 1)
			break;
	if (file)
		fclose(file);
	return state;
}
