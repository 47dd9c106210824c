/* SPDX-License-Identifier: MIT */
/* proc.c: see proc.h. */
#include "collector/collect/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's PIDFD_GET_INFO (6.13; the exit status since 6.15), as its headers of that time have it. */
struct pidfd_information {
	uint64_t mask;
	uint64_t cgroup;
	uint32_t pid, tgid, ppid;
	uint32_t ids[8];
	int32_t exit_code;
};
#define PIDFD_GET_INFORMATION _IOWR(0xFF, 11, struct pidfd_information)
enum { PIDFD_INFORMATION_EXIT = 8 };
_Static_assert(sizeof(struct pidfd_information) == 64, "the first published size");

int proc_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
}

int proc_alive(int pidfd)
{
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	return poll(&ended, 1, 0) == 0;
}

static int open_proc(const char *path)
{
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* ---- maps -------------------------------------------------------------- */

/* Text that is read piece by piece and handed on line by line; long lines are cut. */
struct line_reader {
	int file;
	char buffer[16384];
	size_t start, end;
	int failed;
};

static char *next_line(struct line_reader *reader)
{
	for (;;) {
		char *begin = reader->buffer + reader->start;
		char *newline = memchr(begin, '\n', reader->end - reader->start);
		if (newline) {
			*newline = 0;
			reader->start = (size_t)(newline + 1 - reader->buffer);
			return begin;
		}
		if (reader->start == 0 && reader->end == sizeof reader->buffer)
			reader->end = 0; /* a line of absurd length: dropped */
		memmove(reader->buffer, begin, reader->end - reader->start);
		reader->end -= reader->start;
		reader->start = 0;
		ssize_t n = read(reader->file, reader->buffer + reader->end, sizeof reader->buffer - reader->end);
		if (n <= 0) {
			reader->failed = n < 0;
			return NULL;
		}
		reader->end += (size_t)n;
	}
}

/* "START-END PERM OFFSET DEVICE INODE PATH" */
static int line_names_inode(const char *line, ino_t inode)
{
	for (int column = 0; column < 4; column++) {
		line = strchr(line, ' ');
		if (!line)
			return 0;
		line++;
	}
	char *end;
	return strtoull(line, &end, 10) == inode && strstr(end, "/memfd:lorg") != NULL;
}

/* *empty: there was not one line. */
static enum proc_maps maps_name(const char *path, ino_t inode, int *empty)
{
	struct line_reader reader = {.file = open_proc(path)};
	*empty = 1;
	if (reader.file < 0)
		return errno == ENOENT || errno == ESRCH ? PROC_MAPS_GONE : PROC_MAPS_UNKNOWN;
	int shown = 0;
	for (const char *line; !shown && (line = next_line(&reader)) != NULL; *empty = 0)
		shown = line_names_inode(line, inode);
	int error = errno;
	close(reader.file);
	if (shown)
		return PROC_MAPS_SHOWN;
	if (!reader.failed)
		return PROC_MAPS_NOT;
	return error == ESRCH ? PROC_MAPS_GONE : PROC_MAPS_UNKNOWN;
}

static pid_t for_numbers(const char *path, pid_t (*each)(pid_t number, void *context), void *context);

struct thread_search {
	pid_t pid;
	ino_t inode;
	enum proc_maps maps;
};

static pid_t consider_maps_of_thread(pid_t tid, void *context)
{
	struct thread_search *search = context;
	char path[80];
	int empty;
	snprintf(path, sizeof path, "/proc/%d/task/%d/maps", search->pid, tid);
	enum proc_maps maps = maps_name(path, search->inode, &empty);
	if (empty || maps == PROC_MAPS_GONE)
		return 0;
	search->maps = maps;
	return tid;
}

enum proc_maps proc_has_mapped(pid_t pid, ino_t inode)
{
	struct thread_search search = {pid, inode, PROC_MAPS_GONE};
	char path[64];
	int empty;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	enum proc_maps maps = maps_name(path, inode, &empty);
	if (!empty || maps == PROC_MAPS_UNKNOWN)
		return maps;
	/* The first thread has ended, and its memory is seen through the others only. */
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	return for_numbers(path, consider_maps_of_thread, &search) ? search.maps : maps;
}

/* ---- namespaces -------------------------------------------------------- */

static uint32_t last_number(const char *list, int *nested)
{
	uint32_t value = 0;
	int count = 0;
	for (char *end; *list; list = end) {
		unsigned long number = strtoul(list, &end, 10);
		if (end == list)
			break;
		value = (uint32_t)number;
		count++;
	}
	*nested = count > 1;
	return value;
}

uint32_t proc_inner_id(pid_t pid, pid_t tid, int *nested)
{
	char path[80], text[4096];
	*nested = 0;
	if (tid)
		snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
	else
		snprintf(path, sizeof path, "/proc/%d/status", pid);
	int file = open_proc(path);
	if (file < 0)
		return 0;
	ssize_t n = read(file, text, sizeof text - 1);
	close(file);
	if (n <= 0)
		return 0;
	text[n] = 0;
	const char *list = strstr(text, tid ? "\nNSpid:" : "\nNStgid:");
	return list ? last_number(strchr(list, ':') + 1, nested) : 0;
}

/* Calls `each` for the numeric names of a directory until it returns nonzero, and returns that. */
static pid_t for_numbers(const char *path, pid_t (*each)(pid_t number, void *context), void *context)
{
	DIR *directory = opendir(path);
	if (!directory)
		return 0;
	pid_t found = 0;
	for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;) {
		pid_t number = (pid_t)strtol(entry->d_name, NULL, 10);
		if (number > 0)
			found = each(number, context);
	}
	closedir(directory);
	return found;
}

struct search {
	ino_t inode;
	pid_t pid;
	uint32_t inner;
	pid_t unsure; /* one of the right number whose maps may not be read */
	int (*skip)(pid_t pid, void *context);
	void *context;
};

static pid_t consider_process(pid_t pid, void *context)
{
	struct search *search = context;
	int nested = 0;
	if (search->skip(pid, search->context))
		return 0;
	if (search->inner && proc_inner_id(pid, 0, &nested) != search->inner)
		return 0;
	enum proc_maps maps = proc_has_mapped(pid, search->inode);
	if (maps == PROC_MAPS_UNKNOWN && nested)
		search->unsure = pid;
	return maps == PROC_MAPS_SHOWN ? pid : 0;
}

pid_t proc_find(ino_t inode, uint32_t inner, int (*skip)(pid_t pid, void *context), void *context)
{
	struct search search = {.inode = inode, .inner = inner, .skip = skip, .context = context};
	pid_t found = for_numbers("/proc", consider_process, &search);
	return found ? found : search.unsure;
}

static pid_t consider_thread(pid_t tid, void *context)
{
	const struct search *search = context;
	int nested;
	return proc_inner_id(search->pid, tid, &nested) == search->inner ? tid : 0;
}

pid_t proc_find_thread(pid_t pid, uint32_t inner)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	struct search search = {.pid = pid, .inner = inner};
	return for_numbers(path, consider_thread, &search);
}

int proc_thread_exists(pid_t pid, pid_t tid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d", pid, tid);
	return access(path, F_OK) == 0;
}

/* ---- the end ----------------------------------------------------------- */

static int status_from_pidfd(int pidfd, int *status)
{
	struct pidfd_information information = {.mask = PIDFD_INFORMATION_EXIT};
	if (pidfd < 0 || ioctl(pidfd, PIDFD_GET_INFORMATION, &information) || !(information.mask & PIDFD_INFORMATION_EXIT))
		return -1;
	*status = information.exit_code;
	return 0;
}

/* The last number of /proc/PID/stat, while its parent has not yet waited for it. */
static int status_from_zombie(pid_t pid, int *status)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int file = open_proc(path);
	if (file < 0)
		return -1;
	ssize_t n = read(file, text, sizeof text - 1);
	close(file);
	if (n <= 0)
		return -1;
	text[n] = 0;
	const char *name_end = strrchr(text, ')'), *last = strrchr(text, ' ');
	if (!name_end || !last || name_end[1] != ' ' || name_end[2] != 'Z')
		return -1;
	*status = (int)strtol(last, NULL, 10);
	return 0;
}

int proc_exit_status(int pidfd, pid_t pid, int *status)
{
	if (status_from_pidfd(pidfd, status) == 0)
		return 0;
	return pid ? status_from_zombie(pid, status) : -1;
}
