/* SPDX-License-Identifier: MIT */
/*
 * launch.h: finds a program as a shell does, and starts it as it would have
 * been started without lorg: same group, signals, limits and descriptors, and
 * an environment in which at most LD_PRELOAD and LORG come last.
 */
#ifndef LORG_COMMAND_LAUNCH_H
#define LORG_COMMAND_LAUNCH_H

#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/* What lorg changes for itself and a program must not inherit. */
struct inherited {
	sigset_t mask;
	sigset_t awaited; /* what lorg waits for: the end of its child, and what is passed on to it */
	struct sigaction actions[NSIG];
	struct rlimit files, file_size, address_space;
};

/* Notes what was inherited, then raises the soft limits that a collector needs and blocks the signals it waits for. */
void inherited_save(struct inherited *inherited);

/* In a child: everything as it was. */
void inherited_restore(const struct inherited *inherited);

/*
 * The file that the shell would execute for `name`, in `path` (PATH_MAX bytes). 0; or ENOENT, EACCES and the like,
 * as the shell would report it.
 */
int program_find(const char *name, char *path);

/* Path of liblorg.so for LD_PRELOAD: LORG_LIBRARY, or beside this executable. 0, or -1 when it is not there. */
int library_find(char *path);

struct launch {
	const char *path;
	char *const *argv;
	const char *library;	/* NULL: without */
	const char *sanitizers; /* libraries that come before it; may be empty */
	const char *variable;	/* LORG=...; NULL: none */
	const struct inherited *inherited; /* NULL: for launch_in_place() */
};

/* Starts it. Returns its pid, or -1 with errno: of the fork, or of the exec (the child is gone then). */
pid_t launch(const struct launch *launch);
/* This process becomes it. Returns with errno where it cannot. */
void launch_in_place(const struct launch *launch);

#endif
