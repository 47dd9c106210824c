/* SPDX-License-Identifier: MIT */
/*
 * exec.h: executing another program. Every way comes together in exec_through.
 */
#ifndef LORG_PRELOAD_EXEC_H
#define LORG_PRELOAD_EXEC_H

#include "preload/hook.h"

/* One execution, as the program asked for it. */
struct exec_request {
	uint32_t hook;	  /* as the program called it */
	int directory;	  /* AT_FDCWD, or as execveat and fexecve have it */
	int flags;	  /* AT_* of execveat */
	const char *path; /* "" with AT_EMPTY_PATH: the file is `directory` */
	const char *name; /* as it was given, where that was looked for in PATH; for `real` */
	char *const *argv;
	char *const *environment;
	int searching; /* 1: one of several places a name is looked for in; a file that is not there is no event */
	/* The real call. Returns -1 and sets errno, if at all. */
	int (*real)(const struct exec_request *request, char *const *environment);
};

/*
 * Executes: looks ahead at the file, passes LD_PRELOAD and LORG on if liblorg.so will load there, writes EXEC (which
 * becomes EXEC_FAILED if the call comes back) and GAP where the image will not be traced. Never fails because of
 * that. Works on small stacks, in any child. Async-signal-safe.
 */
HIDDEN int exec_through(const struct exec_request *request);

/*
 * For posix_spawn where libc's inner execve could not be hooked: the environment to hand it, so that liblorg.so gets
 * into the child all the same. in_path: the name is looked for in PATH. Otherwise, and when the child is not to be
 * traced (told as a gap), `environment` itself. exec_release() gives the memory back.
 */
HIDDEN char *const *exec_environment(struct thread *self, const char *name, int in_path, char *const *argv, char *const *environment);

/* Gives back what an exec in a child on this memory has left. Called by the parent when it goes on. */
HIDDEN void exec_release(void);

#endif
