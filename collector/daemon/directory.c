/* SPDX-License-Identifier: MIT */
/* directory.c: see directory.h. */
#include "collector/daemon/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static int fail(struct directory_failure *failure, const char *what, const char *why, const char *advice)
{
	snprintf(failure->what, sizeof failure->what, "%s", what);
	failure->why = why;
	failure->advice = advice;
	return -1;
}

static void path_of(const struct directory *directory, const char *name, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s/%s", directory->path, name);
}

static int check_owner(const struct directory *directory, struct directory_failure *failure)
{
	struct stat status;
	const char *path = directory->path;
	if (lstat(path, &status))
		return fail(failure, path, strerror(errno), "give another --directory");
	if (!S_ISDIR(status.st_mode))
		return fail(failure, path, "is no directory", "give another --directory");
	if (status.st_uid != geteuid())
		return fail(failure, path, "belongs to another user", "give a --directory of your own");
	if (status.st_mode & 077)
		return fail(failure, path, "others may reach what is in it", "chmod 0700 it, or give another --directory");
	return 0;
}

static int take_lock(struct directory *directory, struct directory_failure *failure)
{
	char path[PATH_MAX], text[32];
	path_of(directory, "lock", path);
	directory->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (directory->lock < 0)
		return fail(failure, path, strerror(errno), "give another --directory");
	if (flock(directory->lock, LOCK_EX | LOCK_NB)) {
		int other = errno == EWOULDBLOCK;
		close(directory->lock);
		directory->lock = -1;
		return fail(failure, directory->path, other ? "another lorgd serves it" : strerror(errno),
			    "stop that one first, or give another --directory");
	}
	int length = snprintf(text, sizeof text, "%d\n", getpid());
	if (ftruncate(directory->lock, 0) || write(directory->lock, text, (size_t)length) != length)
		return fail(failure, path, strerror(errno), "make room on its file system");
	return 0;
}

int directory_open(struct directory *directory, const char *path, struct directory_failure *failure)
{
	*directory = (struct directory){.lock = -1, .listener = -1};
	snprintf(directory->path, sizeof directory->path, "%s", path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return fail(failure, path, strerror(errno), "make the folder it is to stand in, or give another --directory");
	if (check_owner(directory, failure) || take_lock(directory, failure))
		return -1;
	/* Of one that was killed. */
	directory->has_programs = 1;
	directory_remove_programs(directory);
	return 0;
}

/* ---- the socket ------------------------------------------------------------------ */

/* A path that is too long for a socket's address is reached through its directory. Returns that one's descriptor, or -1. */
static int address_of(const struct directory *directory, const char *name, const char *path, struct sockaddr_un *address)
{
	if (strlen(path) < sizeof address->sun_path) {
		memcpy(address->sun_path, path, strlen(path) + 1);
		return -1;
	}
	int held = open(directory->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%.20s", held, name);
	return held;
}

int directory_socket(const struct directory *directory, const char *name, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PATH_MAX];
	path_of(directory, name, path);
	/* We hold the lock: nobody listens there. */
	unlink(path);
	int held = address_of(directory, name, path, &address);
	int listener = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	mode_t mask = umask(077);
	int bound = listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, BACKLOG) == 0;
	int error = errno;
	umask(mask);
	if (held >= 0)
		close(held);
	if (!bound && listener >= 0)
		close(listener);
	errno = error;
	return bound ? listener : -1;
}

int directory_listen(struct directory *directory, int given, struct directory_failure *failure)
{
	char path[PATH_MAX];
	if (given >= 0) {
		directory->listener = given;
		directory->is_given = 1;
		return 0;
	}
	directory->listener = directory_socket(directory, "control", SOCK_STREAM | SOCK_NONBLOCK);
	path_of(directory, "control", path);
	return directory->listener >= 0 ? 0 : fail(failure, path, strerror(errno), "give another --directory");
}

/* The directory may have been taken away, and another lorgd have made it anew: what stands there is that one's then. */
static int is_own(const struct directory *directory)
{
	struct stat own, there;
	char path[PATH_MAX];
	path_of(directory, "lock", path);
	return directory->lock >= 0 && fstat(directory->lock, &own) == 0 && lstat(path, &there) == 0 && own.st_dev == there.st_dev &&
	       own.st_ino == there.st_ino;
}

int directory_listen_again(struct directory *directory)
{
	char path[PATH_MAX];
	struct stat there;
	path_of(directory, "control", path);
	if (directory->is_given || !is_own(directory) || lstat(path, &there) == 0)
		return -1;
	int listener = directory_socket(directory, "control", SOCK_STREAM | SOCK_NONBLOCK);
	if (listener >= 0)
		directory->listener = listener;
	return listener;
}

/* ---- the way for programs ---------------------------------------------------------- */

int directory_write_programs(struct directory *directory, const char *value, struct directory_failure *failure)
{
	char path[PATH_MAX], fresh[PATH_MAX];
	path_of(directory, "programs", path);
	path_of(directory, "programs.new", fresh);
	unlink(fresh);
	int descriptor = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	size_t length = strlen(value);
	int written = descriptor >= 0 && write(descriptor, value, length) == (ssize_t)length;
	int error = errno;
	if (descriptor >= 0)
		close(descriptor);
	if (!written || rename(fresh, path)) {
		error = written ? errno : error;
		unlink(fresh);
		return fail(failure, path, strerror(error), "make room on its file system");
	}
	directory->has_programs = 1;
	return 0;
}

void directory_remove_programs(struct directory *directory)
{
	char path[PATH_MAX];
	if (!directory->has_programs || !is_own(directory))
		return;
	path_of(directory, "programs", path);
	unlink(path);
	directory->has_programs = 0;
}

void directory_leave(struct directory *directory)
{
	char path[PATH_MAX];
	if (directory->listener >= 0)
		close(directory->listener);
	if (directory->listener >= 0 && !directory->is_given && is_own(directory)) {
		path_of(directory, "control", path);
		unlink(path);
	}
	/* The file stays: who waits to lock it must not lock one that has no name any more. */
	if (directory->lock >= 0)
		close(directory->lock);
	directory->lock = directory->listener = -1;
}

void directory_close(struct directory *directory)
{
	char path[PATH_MAX];
	directory_remove_programs(directory);
	path_of(directory, "keeper", path);
	if (is_own(directory))
		unlink(path);
	directory_leave(directory);
}
