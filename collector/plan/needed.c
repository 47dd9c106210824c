/* SPDX-License-Identifier: MIT */
/* needed.c: see needed.h. */
#include "collector/plan/needed.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIBRARIES_MAXIMUM = 512 };

static const char *const usual_places[] = {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", NULL};

/* ---- the loader's cache (glibc, format 1.1) ---------------------------- */

struct cache_head {
	char magic[20]; /* "glibc-ld.so.cache1.1" */
	uint32_t count, text_length;
	uint32_t unused[5];
};
struct cache_entry {
	int32_t flags;
	uint32_t name, path; /* offsets in the file */
	uint32_t unused;
	uint64_t capabilities;
};
_Static_assert(sizeof(struct cache_head) == 48 && sizeof(struct cache_entry) == 24, "the loader's cache");

static const char *text_at(const char *bytes, size_t size, uint32_t at)
{
	return at < size && memchr(bytes + at, 0, size - at) ? bytes + at : NULL;
}

static char *look_up(const char *bytes, size_t size, const char *name)
{
	enum { X86_64_LIBRARY = 0x0303 };
	struct cache_head head;
	if (size < sizeof head)
		return NULL;
	memcpy(&head, bytes, sizeof head);
	if (memcmp(head.magic, "glibc-ld.so.cache1.1", sizeof head.magic) != 0 || head.count > (size - sizeof head) / sizeof(struct cache_entry))
		return NULL;
	for (uint32_t i = 0; i < head.count; i++) {
		struct cache_entry entry;
		memcpy(&entry, bytes + sizeof head + i * sizeof entry, sizeof entry);
		const char *found = text_at(bytes, size, entry.name), *path = text_at(bytes, size, entry.path);
		if (found && path && entry.flags == X86_64_LIBRARY && entry.capabilities == 0 && strcmp(found, name) == 0)
			return strdup(path);
	}
	return NULL;
}

static char *find_in_cache(const char *name)
{
	struct stat status;
	char *path = NULL;
	int descriptor = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		return NULL;
	if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
		char *bytes = malloc((size_t)status.st_size);
		ssize_t got = bytes ? pread(descriptor, bytes, (size_t)status.st_size, 0) : -1;
		path = got > 0 ? look_up(bytes, (size_t)got, name) : NULL;
		free(bytes);
	}
	close(descriptor);
	return path;
}

/* ---- folders ----------------------------------------------------------- */

static char *find_in_folder(const char *folder, size_t length, const char *name)
{
	char *path;
	if (asprintf(&path, "%.*s/%s", (int)length, folder, name) < 0)
		return NULL;
	if (access(path, R_OK) == 0)
		return path;
	free(path);
	return NULL;
}

/* A list with colons, with $ORIGIN for the folder of `origin`. */
static char *find_in_list(const char *list, const char *origin, const char *name)
{
	char *found = NULL;
	const char *slash = strrchr(origin, '/');
	size_t own = slash ? (size_t)(slash - origin) : 0;
	while (list && *list && !found) {
		size_t length = strcspn(list, ":");
		size_t variable = strncmp(list, "$ORIGIN", 7) == 0 ? 7 : strncmp(list, "${ORIGIN}", 9) == 0 ? 9 : 0;
		char *folder;
		if (variable && variable <= length) {
			if (asprintf(&folder, "%.*s%.*s", (int)own, origin, (int)(length - variable), list + variable) < 0)
				return NULL;
			found = find_in_folder(folder, strlen(folder), name);
			free(folder);
		} else if (length) {
			found = find_in_folder(list, length, name);
		}
		list += length + (list[length] == ':');
	}
	return found;
}

char *needed_find(const char *name)
{
	char *found = find_in_cache(name);
	for (unsigned i = 0; !found && usual_places[i]; i++)
		found = find_in_folder(usual_places[i], strlen(usual_places[i]), name);
	return found;
}

/* ---- one file's list --------------------------------------------------- */

struct dynamic {
	Elf *elf;
	Elf_Data *data;
	size_t count, names;
	const char *rpath, *runpath;
};

static int open_dynamic(Elf *elf, struct dynamic *dynamic)
{
	*dynamic = (struct dynamic){.elf = elf};
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
		GElf_Shdr header;
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_DYNAMIC && header.sh_entsize) {
			dynamic->data = elf_getdata(section, NULL);
			dynamic->count = header.sh_size / header.sh_entsize;
			dynamic->names = header.sh_link;
		}
	}
	for (size_t i = 0; dynamic->data && i < dynamic->count; i++) {
		GElf_Dyn entry;
		if (!gelf_getdyn(dynamic->data, (int)i, &entry))
			break;
		if (entry.d_tag == DT_RPATH)
			dynamic->rpath = elf_strptr(elf, dynamic->names, entry.d_un.d_val);
		if (entry.d_tag == DT_RUNPATH)
			dynamic->runpath = elf_strptr(elf, dynamic->names, entry.d_un.d_val);
	}
	return dynamic->data ? 0 : -1;
}

static char *find_library(const struct dynamic *dynamic, const char *origin, const char *name)
{
	if (strchr(name, '/'))
		return access(name, R_OK) == 0 ? strdup(name) : NULL;
	char *found = dynamic->runpath ? NULL : find_in_list(dynamic->rpath, origin, name);
	if (!found)
		found = find_in_list(getenv("LD_LIBRARY_PATH"), origin, name);
	if (!found)
		found = find_in_list(dynamic->runpath, origin, name);
	return found ? found : needed_find(name);
}

/* Takes the path over. */
static int add_path(struct needed *needed, char *path)
{
	for (unsigned i = 0; i < needed->count; i++)
		if (strcmp(needed->paths[i], path) == 0) {
			free(path);
			return 0;
		}
	char **more = needed->count < LIBRARIES_MAXIMUM ? realloc(needed->paths, (needed->count + 1) * sizeof *more) : NULL;
	if (!more) {
		free(path);
		return -1;
	}
	needed->paths = more;
	more[needed->count++] = path;
	return 0;
}

static int add_libraries(struct needed *needed, const char *path)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC), failed = 0;
	Elf *elf = descriptor >= 0 ? elf_begin(descriptor, ELF_C_READ, NULL) : NULL;
	struct dynamic dynamic;
	int is_elf = elf && elf_kind(elf) == ELF_K_ELF;
	for (size_t i = 0; is_elf && open_dynamic(elf, &dynamic) == 0 && i < dynamic.count && !failed; i++) {
		GElf_Dyn entry;
		if (!gelf_getdyn(dynamic.data, (int)i, &entry) || entry.d_tag == DT_NULL)
			break;
		const char *name = entry.d_tag == DT_NEEDED ? elf_strptr(elf, dynamic.names, entry.d_un.d_val) : NULL;
		char *found = name ? find_library(&dynamic, path, name) : NULL;
		failed = found && add_path(needed, found);
	}
	elf_end(elf);
	if (descriptor >= 0)
		close(descriptor);
	return is_elf && !failed ? 0 : -1;
}

int needed_list(const char *path, struct needed *needed)
{
	*needed = (struct needed){0};
	elf_version(EV_CURRENT);
	char *own = strdup(path);
	if (!own || add_path(needed, own) || add_libraries(needed, path)) {
		needed_free(needed);
		return -1;
	}
	for (unsigned i = 1; i < needed->count; i++)
		add_libraries(needed, needed->paths[i]);
	return 0;
}

void needed_free(struct needed *needed)
{
	for (unsigned i = 0; i < needed->count; i++)
		free(needed->paths[i]);
	free(needed->paths);
	*needed = (struct needed){0};
}
