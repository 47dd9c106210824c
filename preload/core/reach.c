/* SPDX-License-Identifier: MIT */
/* reach.c: see reach.h. */
#include "preload/core/reach.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "preload/core/flags.h"
#include "preload/core/raw.h"

/* ---- the variable ------------------------------------------------------------ */

/* Numbers and hex words stand apart by colons. True if the next one is there; *text moves behind it. */
static int skip_colon(const char **text)
{
	return *(*text)++ == ':';
}

static int take_socket(const char *text, struct lorg_settings *settings)
{
	size_t length = 0;
	while (text[length] && text[length] != '\n')
		length++;
	if (length >= sizeof settings->socket_path)
		return -1;
	memcpy(settings->socket_path, text, length);
	settings->socket_path[length] = 0;
	return 0;
}

int reach_parse(const char *text, struct lorg_settings *settings)
{
	if (text_read_decimal(&text) != LORG_ABI_MAJOR || !skip_colon(&text))
		return 0;
	settings->collector_pid = (uint32_t)text_read_decimal(&text);
	if (!skip_colon(&text))
		return 0;
	settings->node_descriptor = (int32_t)text_read_decimal(&text);
	if (!skip_colon(&text))
		return 0;
	settings->node_size = text_read_decimal(&text);
	if (!skip_colon(&text) || text_read_hex(&text, settings->token, sizeof settings->token))
		return 0;
	if (!skip_colon(&text) || text_read_hex(&text, settings->previous_image, sizeof settings->previous_image))
		return 0;
	if (flags_from_text(&text) || !skip_colon(&text) || take_socket(text, settings))
		return 0;
	return settings->node_size != 0;
}

/* ---- the runtime directory ------------------------------------------------------ */

enum { PATH_ROOM = 512, FILE_ROOM = 512 };

/* The value of a variable; NULL: it is not there. */
static const char *value_of(char *const *envp, const char *name)
{
	for (; *envp; envp++)
		if (text_begins(*envp, name))
			return *envp + text_length(name, PATH_ROOM);
	return 0;
}

/* As the loader looks at a file that it has opened. */
static int may_be_believed(long fd, uint32_t uid)
{
	struct stat status;
	if (raw_failed(raw_syscall6(SYS_newfstatat, fd, (long)"", (long)&status, 0x1000 /* AT_EMPTY_PATH */, 0, 0)))
		return 0;
	return S_ISREG(status.st_mode) && (status.st_uid == 0 || status.st_uid == uid) && !(status.st_mode & (S_IWGRP | S_IWOTH));
}

static int read_file(long fd, struct lorg_settings *settings)
{
	char text[FILE_ROOM];
	long length = raw_syscall3(SYS_read, fd, (long)text, sizeof text - 1);
	if (raw_failed(length))
		return 0;
	text[length] = 0;
	return reach_parse(text, settings);
}

/* directory and name; 1: there are settings, 0: no such file, -1: one that is not to be used. */
static int look_in(const char *directory, const char *rest, uint32_t uid, struct lorg_settings *settings)
{
	char path[PATH_ROOM];
	const char *end = path + sizeof path;
	char *at = text_append(path, end, directory);
	at = text_append(at, end, rest);
	if (path[0] != '/' || at + 1 >= end)
		return 0;
	/* Neither a link nor a device, and never waited for. */
	long fd = raw_openat(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (raw_failed(fd))
		return 0;
	int found = may_be_believed(fd, uid) && read_file(fd, settings) ? 1 : -1;
	raw_close((int)fd);
	return found;
}

int reach_discover(char *const *envp, uint32_t uid, struct lorg_settings *settings)
{
	char own[64];
	const char *given = value_of(envp, "LORG_RUNTIME_DIRECTORY=");
	if (given)
		return look_in(given, "/programs", uid, settings) == 1;
	int found = look_in("/run/lorg", "/programs", uid, settings);
	if (found || uid == 0)
		return found == 1;
	given = value_of(envp, "XDG_RUNTIME_DIR=");
	if (given)
		return look_in(given, "/lorg/programs", uid, settings) == 1;
	char *at = text_append(own, own + sizeof own, "/run/user/");
	text_append_decimal(at, own + sizeof own, uid);
	return look_in(own, "/lorg/programs", uid, settings) == 1;
}
