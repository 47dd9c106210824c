/* SPDX-License-Identifier: MIT */
/* library_search.c: see library_search.h. */
#include "preload/lookahead/library_search.h"

#include <fcntl.h>

#include "preload/core/raw.h"

enum {
	PATH_ROOM = 512,
	LIST_ROOM = 1024,
	CACHE_BLOCK = 1024,
	CACHE_MAXIMUM = 16 << 20,
	NAME_MAXIMUM = 128,
};

static const char system_directories[] = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/lib:/usr/lib";

/* A path as it is put together. */
struct path {
	char text[PATH_ROOM];
	size_t length;
	int too_long;
};

static void add(struct path *path, const char *text, size_t length)
{
	if (path->length + length + 1 > sizeof path->text) {
		path->too_long = 1;
		return;
	}
	for (size_t i = 0; i < length; i++)
		path->text[path->length++] = text[i];
	path->text[path->length] = 0;
}

static size_t length_of(const char *text)
{
	size_t length = 0;
	while (text[length])
		length++;
	return length;
}

static int starts(const char *text, size_t length, const char *prefix)
{
	size_t wanted = length_of(prefix);
	for (size_t i = 0; i < wanted; i++)
		if (i >= length || text[i] != prefix[i])
			return 0;
	return 1;
}

/* The directory of the program's file: what $ORIGIN stands for. */
static void add_origin(struct path *path, int fd)
{
	char link[32] = "/proc/self/fd/", target[PATH_ROOM], digits[12];
	char *at = digits + sizeof digits;
	size_t used = length_of(link);
	*--at = 0;
	for (unsigned value = (unsigned)fd; at == digits + sizeof digits - 1 || value; value /= 10)
		*--at = (char)('0' + value % 10);
	for (; *at; at++)
		link[used++] = *at;
	link[used] = 0;
	long got = raw_syscall3(SYS_readlink, (long)link, (long)target, sizeof target);
	while (got > 0 && target[got - 1] != '/')
		got--;
	if (got > 1)
		add(path, target, (size_t)got - 1);
	else
		path->too_long = 1;
}

/* One directory of a list, with the loader's tokens replaced. */
static void add_directory(struct path *path, const char *directory, size_t length, int fd)
{
	static const struct {
		const char *token, *value; /* NULL: the origin */
	} tokens[] = {{"$ORIGIN", 0}, {"${ORIGIN}", 0}, {"$LIB", "lib/x86_64-linux-gnu"}, {"${LIB}", "lib/x86_64-linux-gnu"},
		      {"$PLATFORM", "x86_64"}, {"${PLATFORM}", "x86_64"}};
	for (size_t i = 0; i < length;) {
		size_t k = 0, count = sizeof tokens / sizeof *tokens;
		while (k < count && !starts(directory + i, length - i, tokens[k].token))
			k++;
		if (k == count) {
			add(path, directory + i++, 1);
			continue;
		}
		if (tokens[k].value)
			add(path, tokens[k].value, length_of(tokens[k].value));
		else
			add_origin(path, fd);
		i += length_of(tokens[k].token);
	}
}

static int is_there(const char *path)
{
	long fd = raw_openat(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (raw_failed(fd))
		return 0;
	raw_close((int)fd);
	return 1;
}

/* Directories between colons (in a variable, semicolons too); an empty one is the working directory. */
static int found_in_list(const char *list, const char *name, int fd)
{
	while (list) {
		struct path path = {.length = 0};
		size_t length = 0;
		while (list[length] && list[length] != ':' && list[length] != ';')
			length++;
		add_directory(&path, list, length, fd);
		add(&path, "/", length ? 1 : 0);
		add(&path, name, length_of(name));
		if (!path.too_long && is_there(path.text))
			return 1;
		list = list[length] ? list + length + 1 : 0;
	}
	return 0;
}

/* The cache holds the names as zero-terminated texts: that is all that is asked of it. */
static int found_in_cache(const char *name)
{
	size_t wanted = length_of(name) + 1; /* with the terminator */
	char block[CACHE_BLOCK + NAME_MAXIMUM];
	long fd = raw_openat("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
	int found = 0;
	if (raw_failed(fd))
		return 0;
	for (uint64_t offset = 0; !found && offset < CACHE_MAXIMUM; offset += CACHE_BLOCK) {
		long got = raw_pread((int)fd, block, sizeof block, offset);
		for (long i = 0; !found && i < CACHE_BLOCK && i + (long)wanted <= got; i++) {
			size_t k = 0;
			while (k < wanted && block[i + (long)k] == name[k])
				k++;
			found = k == wanted && (i ? block[i - 1] == 0 || block[i - 1] == '/' : 1);
		}
		if (got < (long)sizeof block)
			break;
	}
	raw_close((int)fd);
	return found;
}

int library_is_found(const struct elf_file *file, const char *name, const char *library_path)
{
	char list[LIST_ROOM];
	/* Longer ones cannot be looked for as they should be: the loader may find them. */
	if (length_of(name) >= NAME_MAXIMUM)
		return 1;
	if (library_path && library_path[0] && found_in_list(library_path, name, file->fd))
		return 1;
	size_t length = elf_file_run_path(file, list, sizeof list);
	if (length + 1 >= sizeof list || (length && found_in_list(list, name, file->fd)))
		return 1;
	return found_in_cache(name) || found_in_list(system_directories, name, file->fd);
}
