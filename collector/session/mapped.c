/* SPDX-License-Identifier: MIT */
/* mapped.c: see mapped.h. */
#include "collector/session/mapped.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "collector/plan/plan.h"
#include "preload/lookahead/elf_file.h"

enum { FILES_KEPT = 4096, PAGE = 4096 };

/* A file that was looked at; is_module 0: it is none. */
struct known_file {
	uint32_t device_major, device_minor;
	ino_t inode;
	int is_module;
	uint64_t lowest; /* address of its first segment, of whole pages */
	uint8_t build_id[20];
	uint32_t build_id_length;
	char soname[128]; /* empty: none */
};

struct mapped_files {
	struct known_file *list;
	size_t count, room;
};

struct mapped_files *mapped_files_create(void)
{
	return calloc(1, sizeof(struct mapped_files));
}

void mapped_files_free(struct mapped_files *files)
{
	if (!files)
		return;
	free(files->list);
	free(files);
}

/* ---- what a file says of itself ------------------------------------------- */

static void read_soname(const struct elf_file *file, char *to, size_t room)
{
	Elf64_Dyn entry;
	uint64_t strings = 0, name = UINT64_MAX, offset;
	for (uint32_t i = 0; i < ELF_FILE_DYNAMIC_ENTRIES && (i + 1) * sizeof entry <= file->dynamic.length; i++) {
		if (elf_file_read(file, &entry, sizeof entry, file->dynamic.offset + i * sizeof entry) != sizeof entry ||
		    entry.d_tag == DT_NULL)
			break;
		if (entry.d_tag == DT_STRTAB)
			strings = entry.d_un.d_ptr;
		if (entry.d_tag == DT_SONAME)
			name = entry.d_un.d_val;
	}
	to[0] = 0;
	if (strings && name != UINT64_MAX && elf_file_offset(file, strings + name, &offset))
		to[elf_file_read(file, to, room - 1, offset)] = 0;
}

static void read_file(struct known_file *known, int descriptor)
{
	struct elf_file file;
	if (!elf_file_begin(&file, descriptor) || elf_file_parse(&file) || !file.load_count)
		return;
	known->is_module = 1;
	known->lowest = file.load[0].address & ~(uint64_t)(PAGE - 1);
	known->build_id_length = elf_file_build_id(&file, known->build_id, sizeof known->build_id);
	if (file.dynamic.length)
		read_soname(&file, known->soname, sizeof known->soname);
}

static int open_as_seen(pid_t pid, const char *path)
{
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	char seen[512];
	snprintf(seen, sizeof seen, "/proc/%d/root%s", (int)pid, path);
	return open(seen, FLAGS);
}

static struct known_file *add_file(struct mapped_files *files)
{
	if (files->count == FILES_KEPT)
		files->count = 0; /* a node with so many has them read anew */
	if (files->count == files->room) {
		size_t room = files->room ? 2 * files->room : 64;
		struct known_file *more = realloc(files->list, room * sizeof *more);
		if (!more)
			return NULL;
		files->list = more;
		files->room = room;
	}
	return &files->list[files->count++];
}

/* A mapping of a file, as a line of the maps has it. */
struct line {
	uint64_t start, end, offset;
	char permissions[8];
	uint32_t device_major, device_minor;
	ino_t inode;
	char path[424];
};

static const struct known_file *file_of(struct mapped_files *files, pid_t pid, const struct line *line)
{
	for (size_t i = 0; i < files->count; i++) {
		const struct known_file *known = &files->list[i];
		if (known->inode == line->inode && known->device_major == line->device_major && known->device_minor == line->device_minor)
			return known;
	}
	int descriptor = open_as_seen(pid, line->path);
	struct stat status;
	struct known_file *known = NULL;
	/* Another file may stand under the name by now; overlay file systems show other devices than the maps. */
	if (descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == line->inode)
		known = add_file(files);
	if (known) {
		*known = (struct known_file){.device_major = line->device_major, .device_minor = line->device_minor, .inode = line->inode};
		read_file(known, descriptor);
	}
	if (descriptor >= 0)
		close(descriptor);
	return known;
}

/* ---- the maps ----------------------------------------------------------------- */

/* 0: it is not of a file. */
static int read_line(const char *text, struct line *line)
{
	int at = 0;
	unsigned long inode;
	memset(line, 0, sizeof *line);
	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %lu %n", &line->start, &line->end,
		   line->permissions, &line->offset, &line->device_major, &line->device_minor, &inode, &at) != 7 ||
	    !inode || text[at] != '/')
		return 0;
	line->inode = inode;
	size_t length = strcspn(text + at, "\n");
	if (length >= sizeof line->path)
		return 0;
	memcpy(line->path, text + at, length);
	return 1;
}

static int is_same_file(const struct line *one, const struct line *other)
{
	return one->inode == other->inode && one->device_major == other->device_major && one->device_minor == other->device_minor;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* As the planner has it: libz.so.1.2.13 is known as libz.so.1. */
static const char *name_of(const struct known_file *file, const char *file_name)
{
	size_t length = strlen(file->soname);
	int is_version = length && strncmp(file_name, file->soname, length) == 0 && (file_name[length] == 0 || file_name[length] == '.');
	return is_version ? file->soname : file_name;
}

/* redis-server is a link to redis-check-rdb: what people have called counts, where it stands beside the file and leads to it. */
static void find_alias(struct mapped_module *module, pid_t pid, const char *file_name, ino_t inode)
{
	char path[512], title[256] = "";
	struct stat status;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	if (stat(path, &status) || status.st_ino != inode)
		return;
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = descriptor >= 0 ? read(descriptor, title, sizeof title - 1) : 0;
	if (descriptor >= 0)
		close(descriptor);
	title[length > 0 ? length : 0] = 0;
	title[strcspn(title, " ")] = 0; /* programs that write there what they do */
	const char *name = base_of(title);
	if (!*name || strcmp(name, file_name) == 0)
		return;
	snprintf(path, sizeof path, "/proc/%d/root%.*s%.127s", (int)pid, (int)(base_of(module->path) - module->path), module->path, name);
	if (stat(path, &status) == 0 && status.st_ino == inode)
		snprintf(module->alias, sizeof module->alias, "%.127s", name);
}

static void tell(const struct known_file *file, const struct line *first, pid_t pid,
		 void (*found)(void *context, const struct mapped_module *module), void *context)
{
	struct mapped_module module = {.build_id_length = file->build_id_length, .base = first->start - file->lowest};
	const char *file_name = base_of(first->path);
	snprintf(module.path, sizeof module.path, "%s", first->path);
	snprintf(module.file_name, sizeof module.file_name, "%.127s", file_name);
	snprintf(module.name, sizeof module.name, "%.127s", name_of(file, file_name));
	memcpy(module.build_id, file->build_id, sizeof module.build_id);
	find_alias(&module, pid, file_name, file->inode);
	found(context, &module);
}

int mapped_modules(struct mapped_files *files, pid_t pid, void (*found)(void *context, const struct mapped_module *module),
		   void *context)
{
	char path[32], *text = NULL;
	size_t room = 0;
	struct line first = {0}, line;
	int has_code = 0;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "re");
	if (!maps)
		return -1;
	for (;;) {
		ssize_t got = getline(&text, &room, maps);
		int is_file = got > 0 && read_line(text, &line);
		if (got > 0 && is_file && first.inode && is_same_file(&first, &line) && line.offset) {
			has_code |= line.permissions[2] == 'x';
			continue;
		}
		if (got > 0 && !is_file && first.inode)
			continue; /* zeroed data behind a module, or a guard between its parts */
		const struct known_file *file = has_code && !planner_leaves_alone(first.path) ? file_of(files, pid, &first) : NULL;
		if (file && file->is_module)
			tell(file, &first, pid, found, context);
		if (got <= 0)
			break;
		first = is_file ? line : (struct line){0};
		has_code = is_file && line.permissions[2] == 'x';
	}
	free(text);
	fclose(maps);
	return 0;
}

/* ---- names ---------------------------------------------------------------------- */

/* The table as it is in the file, with a zero before it; NULL: it cannot be read. */
static char *read_strings(const struct elf_file *file, size_t *size)
{
	enum { STRINGS_MAXIMUM = 64 << 20 };
	uint64_t offset;
	*size = file->strings_size;
	if (!*size || *size > STRINGS_MAXIMUM || !elf_file_offset(file, file->strings, &offset))
		return NULL;
	char *strings = malloc(*size + 2);
	if (strings && elf_file_read(file, strings + 1, *size, offset) != *size) {
		free(strings);
		return NULL;
	}
	if (strings)
		strings[0] = strings[*size + 1] = 0;
	return strings;
}

/* A name may be the end of another in the table. */
static int holds(const char *strings, size_t size, const char *name)
{
	return memmem(strings + 1, size + 1, name, strlen(name) + 1) != NULL;
}

int mapped_file_names(pid_t pid, const char *path, const char *const *names, uint32_t count)
{
	struct elf_file file;
	size_t size = 0;
	int descriptor = open_as_seen(pid, path), found = 1;
	if (descriptor < 0)
		return 1;
	char *strings = elf_file_begin(&file, descriptor) && !elf_file_parse(&file) && !elf_file_parse_dynamic(&file)
				? read_strings(&file, &size)
				: NULL;
	if (strings)
		found = 0;
	for (uint32_t i = 0; strings && !found && i < count; i++)
		found = holds(strings, size, names[i]);
	free(strings);
	close(descriptor);
	return found;
}
