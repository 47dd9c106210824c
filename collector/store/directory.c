/* SPDX-License-Identifier: MIT */
/* directory.c: see directory.h. */
#include "collector/store/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASIDE_LIMIT = 1000000 };

enum found { FOUND_NOTHING, FOUND_EMPTY, FOUND_TRACE, FOUND_OTHER };

static int is_empty(int directory)
{
	int copy = dup(directory);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	if (!list) {
		if (copy >= 0)
			close(copy);
		return 0;
	}
	int empty = 1;
	for (struct dirent *entry; empty && (entry = readdir(list)) != NULL;)
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	closedir(list);
	return empty;
}

static int has_trace_metadata(int directory)
{
	static const char begin[] = "/* CTF ";
	char text[sizeof begin] = "";
	int file = openat(directory, "metadata", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (file < 0)
		return 0;
	ssize_t n = read(file, text, sizeof begin - 1);
	close(file);
	return n == (ssize_t)(sizeof begin - 1) && memcmp(text, begin, sizeof begin - 1) == 0;
}

static enum found look(const char *path)
{
	struct stat status;
	if (lstat(path, &status))
		return FOUND_NOTHING;
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return FOUND_OTHER;
	enum found found = is_empty(directory) ? FOUND_EMPTY : has_trace_metadata(directory) ? FOUND_TRACE : FOUND_OTHER;
	close(directory);
	return found;
}

static int move_aside(const char *path, const char **why)
{
	char aside[PATH_MAX];
	for (int i = 1; i < ASIDE_LIMIT; i++) {
		if (snprintf(aside, sizeof aside, "%s.%d", path, i) >= (int)sizeof aside) {
			errno = ENAMETOOLONG;
			break;
		}
		if (renameat2(AT_FDCWD, path, AT_FDCWD, aside, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno == EINVAL || errno == ENOSYS) { /* a file system without the flag */
			struct stat status;
			if (lstat(aside, &status) && errno == ENOENT && rename(path, aside) == 0)
				return 0;
			continue;
		}
		if (errno != EEXIST && errno != ENOTEMPTY)
			break;
	}
	*why = "an older trace is there and cannot be moved aside";
	return -1;
}

static int open_made(const char *path, const char **why)
{
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		*why = "cannot be opened";
	return directory;
}

int directory_create(const char *path, const char **why)
{
	char name[PATH_MAX];
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length == 0 || length >= sizeof name - 16) {
		*why = "cannot be the name of a directory";
		errno = length ? ENAMETOOLONG : ENOENT;
		return -1;
	}
	memcpy(name, path, length);
	name[length] = 0;

	/* Others may make or move it at the same time: a few attempts. */
	for (int attempt = 0; attempt < 100; attempt++) {
		if (mkdir(name, 0700) == 0)
			return open_made(name, why);
		if (errno != EEXIST) {
			*why = "cannot be made";
			return -1;
		}
		switch (look(name)) {
		case FOUND_NOTHING:
			break;
		case FOUND_EMPTY:
			return open_made(name, why);
		case FOUND_TRACE:
			if (move_aside(name, why))
				return -1;
			break;
		case FOUND_OTHER:
			*why = "is there and is not a trace of lorg's";
			errno = 0;
			return -1;
		}
	}
	*why = "cannot be made";
	errno = EEXIST;
	return -1;
}
