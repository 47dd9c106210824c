/* SPDX-License-Identifier: MIT */
/* attach.c: see attach.h. */
#include "collector/remote/attach.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <lorg/abi.h>
#include <lorg/late.h>

#include "collector/remote/entries.h"
#include "collector/remote/program.h"
#include "collector/remote/remote.h"

static const uint64_t CHOICE_NS = 5000000000, OPEN_NS = 10000000000, STEP_NS = 10000000000;
enum { TRIES = 100, PAUSE_NS = 10000000, SETTLE = 50 };

static int fail(struct attach_result *result, int error, const char *why, const char *advice)
{
	result->error = error;
	result->advice = advice;
	snprintf(result->why, sizeof result->why, "%s", why);
	return -1;
}

static void pause_a_moment(void)
{
	nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
}

/* ---- liblorg.so in the program ------------------------------------------------------- */

struct library {
	uint64_t late; /* address of its struct lorg_late; 0: it is not there */
	struct lorg_late there;
};

/* 0: *library says whether it is there; -1: *result. */
static int look_for_library(pid_t pid, struct library *library, struct attach_result *result)
{
	struct program program;
	const char *why;
	int error;
	memset(library, 0, sizeof *library);
	int failed = program_open(&program, pid, &error, &why);
	if (!failed && remote_find_late(&program, &library->late, &library->there)) {
		error = EINVAL;
		why = "it has a liblorg.so of another version";
		failed = 1;
	}
	program_close(&program);
	return failed ? fail(result, error, why, NULL) : 0;
}

/* ---- calls ------------------------------------------------------------------------------ */

static int outcome(const struct remote_call *call, struct attach_result *result)
{
	if (call->outcome == REMOTE_DONE)
		return 0;
	return fail(result, call->error, call->why ? call->why : "", call->outcome == REMOTE_AGAIN ? "try again" : NULL);
}

static int call_library(pid_t pid, const struct library *library, enum lorg_late_what what, struct lorg_late_words *words,
			struct attach_result *result)
{
	for (int try = 0;; try++) {
		struct remote_call call = {.pid = pid,
					   .function = library->there.entry,
					   .arguments = {what},
					   .data = words,
					   .data_size = sizeof *words,
					   .data_argument = 1,
					   .choice_ns = CHOICE_NS,
					   .limit_ns = STEP_NS};
		words->answer = LORG_LATE_SILENT;
		remote_carry_out(&call);
		if (outcome(&call, result))
			return -1;
		words->why[sizeof words->why - 1] = 0;
		if (words->answer == LORG_LATE_DONE)
			return 0;
		if (words->answer != LORG_LATE_AGAIN)
			return fail(result, 0, words->why, NULL);
		if (try == TRIES)
			return fail(result, EAGAIN, "it is busy with what it has been asked before", "try again");
		pause_a_moment();
	}
}

/* ---- loading ------------------------------------------------------------------------------- */

/* The same file there: a container may have another at that path, or none. */
static int is_visible(pid_t pid, const char *path)
{
	char there[4096 + 64];
	struct stat own, its;
	snprintf(there, sizeof there, "/proc/%d/root%s", pid, path);
	return stat(path, &own) == 0 && stat(there, &its) == 0 && own.st_dev == its.st_dev && own.st_ino == its.st_ino;
}

/* The loader needs one for a moment. */
static int has_no_descriptor(pid_t pid)
{
	char path[64];
	struct rlimit limit;
	uint64_t count = 0;
	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	DIR *directory = opendir(path);
	for (const struct dirent *entry; directory && (entry = readdir(directory)) != NULL;)
		count += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return prlimit(pid, RLIMIT_NOFILE, NULL, &limit) == 0 && count >= limit.rlim_cur;
}

static int load(pid_t pid, const char *path, struct library *library, struct attach_result *result)
{
	char name[4096];
	snprintf(name, sizeof name, "%s", path);
	struct remote_call call = {.pid = pid,
				   .symbol = "dlopen",
				   .arguments = {0, RTLD_NOW},
				   .data = name,
				   .data_size = strlen(name) + 1,
				   .data_argument = 0,
				   .gives_up = 1,
				   .choice_ns = CHOICE_NS,
				   .limit_ns = OPEN_NS};
	for (int try = 0; try < 5; try++) {
		remote_carry_out(&call);
		if (call.outcome == REMOTE_REFUSED && call.error == ENOSYS) { /* before 2.34, where libdl is not loaded */
			call.function = 0;
			call.symbol = "__libc_dlopen_mode";
		} else if (call.outcome != REMOTE_AGAIN || !call.tid) { /* no thread could be had for so long */
			break;
		}
	}
	if (outcome(&call, result) || look_for_library(pid, library, result))
		return -1;
	if (library->late)
		return 0;
	/* What went wrong is no affair of the program's. */
	struct remote_call forget = {.pid = pid, .symbol = "dlerror"};
	remote_carry_out(&forget);
	if (has_no_descriptor(pid))
		return fail(result, EMFILE, "it has as many descriptors as it may (RLIMIT_NOFILE)", "prlimit(1) gives it more");
	return fail(result, 0,
		    "its loader did not take liblorg.so (no room for thread-local storage, no memory, or another policy)",
		    "start it with lorg run, or with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=2048");
}

/* ---- the whole -------------------------------------------------------------------------------- */

static int make_ready(pid_t pid, const char *path, struct library *library, struct attach_result *result)
{
	int error;
	const char *why = remote_refusal(pid, &error);
	if (why)
		return fail(result, error, why, NULL);
	if (look_for_library(pid, library, result))
		return -1;
	if (library->late && library->there.state == LORG_LATE_ATTACHED)
		return fail(result, 0, library->there.from_start ? "it was started with lorg" : "it is attached",
			    "lorg ps shows it");
	if (library->late)
		return 0;
	if (!is_visible(pid, path))
		return fail(result, 0, "liblorg.so is not in its file system (a container)", "install lorg there too");
	return load(pid, path, library, result);
}

static void change_entries(pid_t pid, const struct library *library, int on, struct attach_result *result)
{
	int error;
	const char *why;
	int left = entries_switch(pid, library->late, on, &result->entries, &error, &why);
	result->entries_left = left < 0 ? UINT32_MAX : (uint32_t)left;
}

int attach_program(pid_t pid, const char *path, const char *settings, struct attach_result *result)
{
	struct library library;
	struct lorg_late_words words = {0};
	memset(result, 0, sizeof *result);
	if (strlen(settings) >= sizeof words.settings || strlen(path) >= sizeof words.library)
		return fail(result, ENAMETOOLONG, "the path of liblorg.so, or of the daemon's directory, is too long", NULL);
	if (make_ready(pid, path, &library, result))
		return -1;
	snprintf(words.settings, sizeof words.settings, "%s", settings);
	snprintf(words.library, sizeof words.library, "%s", path);
	if (call_library(pid, &library, LORG_LATE_ATTACH, &words, result))
		return -1;
	change_entries(pid, &library, 1, result);
	if (call_library(pid, &library, LORG_LATE_HOOK, &words, result)) {
		struct attach_result undone;
		detach_program(pid, &undone);
		return -1;
	}
	result->slots = words.count;
	return 0;
}

/* Left by a detach that could not hold all threads. */
static int has_entries(const struct library *library)
{
	for (uint32_t i = 0; library->late && i < library->there.patch_count && i < LORG_LATE_PATCHES; i++)
		if (library->there.patch[i].placed)
			return 1;
	return 0;
}

int detach_program(pid_t pid, struct attach_result *result)
{
	struct library library;
	struct lorg_late_words words = {0};
	int error;
	memset(result, 0, sizeof *result);
	const char *why = remote_refusal(pid, &error);
	if (why)
		return fail(result, error, why, NULL);
	if (look_for_library(pid, &library, result))
		return -1;
	int attached = library.late && library.there.state == LORG_LATE_ATTACHED;
	if (!attached && !has_entries(&library))
		return fail(result, 0, "it is not attached", NULL);
	if (attached && call_library(pid, &library, LORG_LATE_DETACH, &words, result))
		return -1;
	result->slots = words.count;
	if (library.there.patch_count)
		change_entries(pid, &library, 0, result);
	if (result->entries_left)
		return fail(
			result, EAGAIN,
			"it only forwards now, but its C library's code could not be put back: its threads cannot be held",
			"lorg detach again");
	return 0;
}

/* ---- the daemon ----------------------------------------------------------------------------------- */

int attach_settings(const char *directory, char *text, size_t size)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/programs", directory);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	ssize_t length = read(file, text, size - 1);
	close(file);
	if (length <= 0)
		return -1;
	text[length] = 0;
	text[strcspn(text, "\n")] = 0;
	return text[0] ? 0 : -1;
}
