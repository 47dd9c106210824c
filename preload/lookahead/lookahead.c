/* SPDX-License-Identifier: MIT */
/*
 * lookahead.c: decides by a program's file whether liblorg.so would load in
 * it. Follows what the kernel does with #! lines and mode bits.
 */
#include "preload/lookahead/lookahead.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "preload/core/raw.h"
#include "preload/lookahead/elf_file.h"
#include "preload/lookahead/library_search.h"

enum {
	SCRIPT_LINE = 256, /* bytes of a script that the kernel looks at */
	NEEDED_LIBRARIES = 256,
	MOUNTED_NOSUID = 2, /* ST_NOSUID of statfs's f_flags */
};

void lookahead_caller_now(struct lookahead_caller *caller)
{
	caller->uid = (uint32_t)raw_syscall3(SYS_getuid, 0, 0, 0);
	caller->euid = (uint32_t)raw_syscall3(SYS_geteuid, 0, 0, 0);
	caller->gid = (uint32_t)raw_syscall3(SYS_getgid, 0, 0, 0);
	caller->egid = (uint32_t)raw_syscall3(SYS_getegid, 0, 0, 0);
	caller->no_new_privileges = raw_prctl(PR_GET_NO_NEW_PRIVS, 0) == 1;
	caller->loader_calls_only = 0;
}

static int text_same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static int text_starts(const char *text, const char *prefix)
{
	for (; *prefix; prefix++)
		if (*text++ != *prefix)
			return 0;
	return 1;
}

/* Appends to a text of `room` bytes; 0 when it does not fit. */
static int text_add(char *to, size_t room, const char *text)
{
	size_t length = 0, more = 0;
	while (to[length])
		length++;
	while (text[more])
		more++;
	if (length + more + 1 > room)
		return 0;
	for (size_t i = 0; i <= more; i++)
		to[length + i] = text[i];
	return 1;
}

/* ---- opening ---- */

static int file_state(int fd, struct stat *state)
{
	return raw_failed(raw_syscall6(SYS_newfstatat, fd, (long)"", (long)state, AT_EMPTY_PATH, 0, 0)) ? -1 : 0;
}

static char *decimal(char *end, unsigned value)
{
	*--end = 0;
	do {
		*--end = (char)('0' + value % 10);
	} while (value /= 10);
	return end;
}

/* O_PATH descriptors cannot be read: the file is opened again by its name in /proc. */
static long open_descriptor(int fd)
{
	char path[32] = "/proc/self/fd/", digits[12];
	text_add(path, sizeof path, decimal(digits + sizeof digits, (unsigned)fd));
	return raw_openat(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static long open_file(int directory, const char *path, int flags)
{
	/* O_NONBLOCK: a FIFO of this name must not hold us up. */
	int how = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0);
	if (!path[0] && (flags & AT_EMPTY_PATH))
		return open_descriptor(directory);
	return raw_syscall6(SYS_openat, directory, (long)path, how, 0, 0, 0);
}

/* ---- secure mode ---- */

static int mounted_without_setid(int fd, const struct lookahead_caller *caller)
{
	struct statfs mount;
	if (caller->loader_calls_only || raw_failed(raw_syscall3(SYS_fstatfs, fd, (long)&mount, 0)))
		return 0;
	return (mount.f_flags & MOUNTED_NOSUID) != 0;
}

static int has_capabilities(int fd, const struct lookahead_caller *caller)
{
	if (caller->loader_calls_only)
		return 0;
	return raw_syscall6(SYS_fgetxattr, fd, (long)"security.capability", 0, 0, 0, 0) > 0;
}

/* What the kernel calls secureexec: the loader then ignores LD_PRELOAD, and nobody may look. */
static int runs_secure(int fd, const struct stat *state, const struct lookahead_caller *caller)
{
	uint32_t euid = caller->euid, egid = caller->egid;
	int may_gain = !caller->no_new_privileges;
	int sets_user = (state->st_mode & S_ISUID) != 0;
	int sets_group = (state->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
	if (may_gain && (sets_user || sets_group))
		may_gain = !mounted_without_setid(fd, caller);
	if (may_gain && sets_user)
		euid = state->st_uid;
	if (may_gain && sets_group)
		egid = state->st_gid;
	if (euid != caller->uid || egid != caller->gid)
		return 1;
	return caller->uid != 0 && may_gain && has_capabilities(fd, caller) && !mounted_without_setid(fd, caller);
}

/* ---- scripts ---- */

static int is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The interpreter's path of a "#!" line, copied to `to`. 0 when the kernel would refuse the line. */
static int script_interpreter(const struct elf_file *file, char to[LOOKAHEAD_PATH])
{
	uint32_t end = file->head_length < SCRIPT_LINE ? file->head_length : SCRIPT_LINE;
	const char *line = (const char *)file->head;
	uint32_t at = 2, length = 0;
	while (at < end && is_blank(line[at]))
		at++;
	while (at < end && line[at] && line[at] != '\n' && !is_blank(line[at]))
		to[length++] = line[at++];
	to[length] = 0;
	/* A name that fills the line may be cut: the kernel takes it only from a file that ends there. */
	return length > 0 && (at < end || file->head_length < SCRIPT_LINE);
}

/* ---- the ELF file ---- */

static int same_file(const char *a, const char *b)
{
	struct stat one, other;
	if (raw_failed(raw_syscall6(SYS_newfstatat, AT_FDCWD, (long)a, (long)&one, 0, 0, 0)) ||
	    raw_failed(raw_syscall6(SYS_newfstatat, AT_FDCWD, (long)b, (long)&other, 0, 0, 0)))
		return 0;
	return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static int is_our_loader(const char *path)
{
	return text_same(path, LOOKAHEAD_INTERPRETER) || same_file(path, LOOKAHEAD_INTERPRETER);
}

static int is_our_loader_itself(const struct stat *state)
{
	struct stat loader;
	if (raw_failed(raw_syscall6(SYS_newfstatat, AT_FDCWD, (long)LOOKAHEAD_INTERPRETER, (long)&loader, 0, 0, 0)))
		return 0;
	return state->st_dev == loader.st_dev && state->st_ino == loader.st_ino;
}

/* Runtimes that insist on being the first library of a program. */
static int is_sanitizer(const char *name)
{
	static const char *const prefixes[] = {
		"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so", "libubsan.so", "libclang_rt.asan", "libclang_rt.tsan",
		"libclang_rt.hwasan", "libclang_rt.ubsan", "libclang_rt.lsan"};
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (text_starts(name, prefixes[i]))
			return 1;
	return 0;
}

static const char *look_for_sanitizers(struct lookahead *result, const struct elf_file *file)
{
	static const char *const starts[] = {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init", "__lsan_init"};
	char name[128];
	for (uint32_t i = 0; i < NEEDED_LIBRARIES && elf_file_needed(file, i, name, sizeof name); i++) {
		if (!is_sanitizer(name))
			continue;
		if ((result->sanitizers[0] && !text_add(result->sanitizers, sizeof result->sanitizers, ":")) ||
		    !text_add(result->sanitizers, sizeof result->sanitizers, name))
			return "it needs more sanitizer libraries than can be named";
	}
	for (size_t i = 0; !result->sanitizers[0] && i < sizeof starts / sizeof *starts; i++)
		if (elf_file_defines(file, starts[i]))
			return "a sanitizer's runtime is linked into it";
	return 0;
}

static const char *look_at_elf(struct lookahead *result, struct elf_file *file, const struct stat *state)
{
	const char *reason = elf_file_parse(file);
	if (reason)
		return reason;
	result->build_id_length = elf_file_build_id(file, result->build_id, sizeof result->build_id);
	if (!file->interpreter.length) {
		result->is_loader = (uint32_t)is_our_loader_itself(state);
		return result->is_loader ? 0 : "statically linked";
	}
	if (file->interpreter.length > sizeof result->interpreter)
		return "a damaged ELF file";
	size_t got = elf_file_read(file, result->interpreter, file->interpreter.length, file->interpreter.offset);
	if (!got || got != file->interpreter.length || result->interpreter[got - 1])
		return "a damaged ELF file";
	if (!is_our_loader(result->interpreter))
		return "its loader belongs to another C library";
	if (elf_file_parse_dynamic(file))
		return "statically linked";
	return look_for_sanitizers(result, file);
}

/* ---- one file after another ---- */

/* Looks at an open file. 1: it is a script, and result->executed says whose. */
static int look_at(struct lookahead *result, int fd, const struct lookahead_caller *caller)
{
	struct elf_file file;
	struct stat state;
	if (file_state(fd, &state) || !S_ISREG(state.st_mode)) {
		result->reason = "not a regular file";
		return 0;
	}
	uint32_t length = elf_file_begin(&file, fd);
	if (length >= 2 && file.head[0] == '#' && file.head[1] == '!') {
		if (script_interpreter(&file, result->executed))
			return 1;
		result->reason = "a script whose first line names no interpreter";
		return 0;
	}
	if (length < 4 || file.head[0] != 0x7f || file.head[1] != 'E' || file.head[2] != 'L' || file.head[3] != 'F') {
		result->reason = "of a format that is not known";
		return 0;
	}
	result->reason = look_at_elf(result, &file, &state);
	result->secure = (uint32_t)runs_secure(fd, &state, caller);
	if (result->secure && !result->reason)
		result->reason = "it runs in secure mode (set-user-ID, set-group-ID or file capabilities)";
	result->loadable = !result->reason;
	return 0;
}

static void begin(struct lookahead *result)
{
	result->loadable = result->scripts = result->is_loader = result->secure = result->build_id_length = 0;
	result->error = 0;
	result->reason = 0;
	result->executed[0] = result->interpreter[0] = result->sanitizers[0] = 0;
}

void lookahead(struct lookahead *result, int directory, const char *path, int flags, const struct lookahead_caller *caller)
{
	begin(result);
	for (;;) {
		long fd = open_file(directory, path, flags);
		if (raw_failed(fd)) {
			result->error = (int32_t)-fd;
			result->reason = "it cannot be read";
			return;
		}
		int script = look_at(result, (int)fd, caller);
		raw_close((int)fd);
		if (!script)
			return;
		if (++result->scripts > LOOKAHEAD_SCRIPT_DEPTH) {
			result->reason = "a script of a script of a script too many";
			return;
		}
		directory = AT_FDCWD;
		path = result->executed;
		flags = 0;
	}
}

/* ---- libraries to come first ---- */

/* The next name of a list between colons, to `name`; 0: there is none. */
static int next_name(const char **list, char *name, size_t room)
{
	size_t length = 0;
	while (**list && **list != ':') {
		if (length + 1 < room)
			name[length++] = **list;
		(*list)++;
	}
	name[length] = 0;
	*list += **list == ':';
	return length > 0;
}

const char *lookahead_missing(const struct lookahead *seen, int directory, const char *path, int flags, const char *library_path)
{
	struct elf_file file;
	char name[128];
	const char *list = seen->sanitizers, *missing = 0;
	if (!list[0])
		return 0;
	long fd = seen->scripts ? open_file(AT_FDCWD, seen->executed, 0) : open_file(directory, path, flags);
	if (raw_failed(fd))
		return 0;
	if (elf_file_begin(&file, (int)fd) && !elf_file_parse(&file) && !elf_file_parse_dynamic(&file))
		while (!missing && next_name(&list, name, sizeof name))
			if (!library_is_found(&file, name, library_path))
				missing = "a sanitizer library that it needs is not found: it does not start";
	raw_close((int)fd);
	return missing;
}
