/* SPDX-License-Identifier: MIT */
/* What is seen in a program's file before it is executed: real programs, scripts, and files that lie. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/lookahead/lookahead.h"
#include "tests/unit/unit.h"

/* Dynamically linked everywhere where this runs. */
static const char *const program = "/bin/true";

static const struct lookahead_caller nobody_special = {.uid = 1000, .euid = 1000, .gid = 1000, .egid = 1000};

static char place[512];

static const char *path_of(const char *name)
{
	snprintf(place, sizeof place, "%s/%s", unit_directory(), name);
	return place;
}

static void write_file(const char *path, const void *bytes, size_t length, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static size_t read_program(uint8_t **bytes)
{
	struct stat status;
	int fd = open(program, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &status), 0);
	*bytes = malloc((size_t)status.st_size);
	ck_assert_int_eq(read(fd, *bytes, (size_t)status.st_size), status.st_size);
	close(fd);
	return (size_t)status.st_size;
}

static struct lookahead look(const char *path)
{
	struct lookahead seen;
	lookahead(&seen, AT_FDCWD, path, 0, &nobody_special);
	ck_assert_int_eq(!!seen.reason, !seen.loadable);
	return seen;
}

/* The program with one byte changed. */
static struct lookahead look_at_changed(size_t at, uint8_t byte)
{
	uint8_t *bytes;
	size_t length = read_program(&bytes);
	const char *path = path_of("changed");
	bytes[at] = byte;
	write_file(path, bytes, length, 0755);
	free(bytes);
	return look(path);
}

START_TEST(dynamic_program)
{
	struct lookahead seen = look(program);
	ck_assert_msg(seen.loadable, "%s", seen.reason ? seen.reason : "");
	ck_assert_str_eq(seen.interpreter, LOOKAHEAD_INTERPRETER);
	ck_assert_str_eq(seen.sanitizers, "");
	ck_assert_uint_eq(seen.build_id_length, 20);
	ck_assert_uint_eq(seen.scripts, 0);
}
END_TEST

START_TEST(missing_file)
{
	ck_assert_int_eq(look("/nowhere/at/all").error, ENOENT);
	ck_assert_int_eq(look("/etc/passwd/below").error, ENOTDIR);
	ck_assert_int_eq(look("").error, ENOENT);
}
END_TEST

START_TEST(not_a_file)
{
	ck_assert_str_eq(look("/").reason, "not a regular file");
}
END_TEST

START_TEST(other_formats)
{
	ck_assert_str_eq(look_at_changed(4, 1).reason, "of another ELF class (32 bits)");
	ck_assert_str_eq(look_at_changed(5, 2).reason, "of another ELF class");
	ck_assert_str_eq(look_at_changed(18, 0xb7).reason, "made for another machine");
	ck_assert_str_eq(look_at_changed(16, 1).reason, "not an executable ELF file");
	ck_assert_str_eq(look_at_changed(0, 0).reason, "of a format that is not known");
	write_file(path_of("empty"), "", 0, 0755);
	ck_assert_str_eq(look(path_of("empty")).reason, "of a format that is not known");
}
END_TEST

START_TEST(loader_itself)
{
	struct lookahead seen = look(LOOKAHEAD_INTERPRETER);
	ck_assert_uint_eq(seen.is_loader, 1);
}
END_TEST

START_TEST(another_c_library)
{
	uint8_t *bytes;
	size_t length = read_program(&bytes), at = 0;
	while (at + sizeof LOOKAHEAD_INTERPRETER < length && memcmp(bytes + at, LOOKAHEAD_INTERPRETER, sizeof LOOKAHEAD_INTERPRETER))
		at++;
	free(bytes);
	struct lookahead seen = look_at_changed(at + 1, 'L');
	ck_assert_str_eq(seen.reason, "its loader belongs to another C library");
	ck_assert_str_eq(seen.interpreter, "/Lib64/ld-linux-x86-64.so.2");
}
END_TEST

START_TEST(by_descriptor)
{
	struct lookahead seen;
	int fd = open(program, O_PATH);
	lookahead(&seen, fd, "", AT_EMPTY_PATH, &nobody_special);
	ck_assert_uint_eq(seen.loadable, 1);
	close(fd);
	fd = open("/bin", O_PATH | O_DIRECTORY);
	lookahead(&seen, fd, "true", 0, &nobody_special);
	ck_assert_uint_eq(seen.loadable, 1);
	close(fd);
}
END_TEST

START_TEST(scripts)
{
	char line[1024];
	struct lookahead seen;
	snprintf(line, sizeof line, "#! \t%s -a b\n", program);
	write_file(path_of("script"), line, strlen(line), 0755);
	seen = look(path_of("script"));
	ck_assert_uint_eq(seen.loadable, 1);
	ck_assert_uint_eq(seen.scripts, 1);
	ck_assert_str_eq(seen.executed, program);
	/* One that interprets another, without a newline at the end of the file. */
	snprintf(line, sizeof line, "#!%s", path_of("script"));
	write_file(path_of("script2"), line, strlen(line), 0755);
	ck_assert_uint_eq(look(path_of("script2")).scripts, 2);
	/* One that interprets itself. */
	snprintf(line, sizeof line, "#!%s\n", path_of("circle"));
	write_file(path_of("circle"), line, strlen(line), 0755);
	ck_assert_uint_eq(look(path_of("circle")).loadable, 0);
	write_file(path_of("nothing"), "#!\n", 3, 0755);
	ck_assert_str_eq(look(path_of("nothing")).reason, "a script whose first line names no interpreter");
	write_file(path_of("missing"), "#!/nowhere/sh\n", 14, 0755);
	ck_assert_int_eq(look(path_of("missing")).error, ENOENT);
	/* A name that the kernel would cut. */
	memset(line, 'x', sizeof line);
	memcpy(line, "#!/", 3);
	write_file(path_of("long"), line, sizeof line, 0755);
	ck_assert_str_eq(look(path_of("long")).reason, "a script whose first line names no interpreter");
}
END_TEST

START_TEST(secure_mode)
{
	static const char secure[] = "it runs in secure mode (set-user-ID, set-group-ID or file capabilities)";
	struct lookahead seen;
	struct lookahead_caller caller = nobody_special;
	uint8_t *bytes;
	size_t length = read_program(&bytes);
	write_file(path_of("setid"), bytes, length, 0755 | S_ISUID);
	free(bytes);
	/* The file's owner runs it: nothing changes hands. */
	caller.uid = caller.euid = getuid();
	caller.gid = caller.egid = getgid();
	lookahead(&seen, AT_FDCWD, path_of("setid"), 0, &caller);
	ck_assert_uint_eq(seen.loadable, 1);
	/* Another user does. */
	caller.uid = caller.euid = getuid() + 1;
	lookahead(&seen, AT_FDCWD, path_of("setid"), 0, &caller);
	if (!seen.secure) /* the directory is mounted nosuid */
		ck_assert_uint_eq(seen.loadable, 1);
	else
		ck_assert_str_eq(seen.reason, secure);
	caller.no_new_privileges = 1;
	lookahead(&seen, AT_FDCWD, path_of("setid"), 0, &caller);
	ck_assert_uint_eq(seen.loadable, 1);
	/* Whoever has two identities already. */
	caller.euid = caller.uid + 1;
	lookahead(&seen, AT_FDCWD, program, 0, &caller);
	ck_assert_str_eq(seen.reason, secure);
}
END_TEST

/* A file cut anywhere is looked at without harm, and never takes long. */
START_TEST(cut_files)
{
	uint8_t *bytes;
	size_t length = read_program(&bytes);
	const char *path = path_of("cut");
	for (size_t cut = 0; cut < length; cut += cut < 1024 ? 7 : 997) {
		write_file(path, bytes, cut, 0755);
		look(path);
	}
	free(bytes);
}
END_TEST

/* So is one whose headers and dynamic section say anything. */
START_TEST(lying_files)
{
	uint8_t *bytes;
	size_t length = read_program(&bytes);
	const char *path = path_of("lying");
	srandom(4711);
	for (int round = 0; round < 3000; round++) {
		uint8_t *copy = malloc(length);
		memcpy(copy, bytes, length);
		for (int i = 0; i < 8; i++) {
			size_t room = i & 1 ? length : 4096;
			copy[8 + (size_t)random() % (room - 8)] = (uint8_t)(random() & 1 ? 0xff : random());
		}
		write_file(path, copy, length, 0755);
		look(path);
		free(copy);
	}
	free(bytes);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {dynamic_program, missing_file, not_a_file,  other_formats, loader_itself, another_c_library,
				      by_descriptor,   scripts,	     secure_mode, cut_files,	 lying_files};
	return unit_suite_of("lookahead", tests, sizeof tests / sizeof *tests, 60);
}
