/* SPDX-License-Identifier: MIT */
/*
 * lookahead.h: reads the file of a program before it is executed, and says
 * whether liblorg.so would load there.
 *
 * Used by the preload (on any stack, in any child) and by the collector. Makes
 * raw system calls only, those that a dynamic loader makes itself: openat,
 * pread64, newfstatat, close; in full mode also fstatfs and fgetxattr. No
 * allocation, no errno, no libc state; about 3 KiB of stack.
 *
 * Nothing in the file is trusted: every offset and length is checked, every
 * loop is bounded.
 */
#ifndef LORG_LOOKAHEAD_H
#define LORG_LOOKAHEAD_H

#include <stdint.h>

/* The loader that liblorg.so is linked for. Another C library's would refuse it, or end the program. */
#define LOOKAHEAD_INTERPRETER "/lib64/ld-linux-x86-64.so.2"

enum {
	LOOKAHEAD_PATH = 256,	    /* bytes kept of an interpreter's path, the terminator included */
	LOOKAHEAD_SANITIZERS = 256, /* bytes of the list of sanitizer libraries */
	LOOKAHEAD_BUILD_ID = 20,
	LOOKAHEAD_SCRIPT_DEPTH = 5, /* as the kernel follows */
};

/* Who executes. Decides whether set-user-ID and the like make a difference. */
struct lookahead_caller {
	uint32_t uid, euid, gid, egid;
	uint32_t no_new_privileges; /* PR_GET_NO_NEW_PRIVS */
	uint32_t loader_calls_only; /* 1: a system call filter may be on; file capabilities are not looked for */
};

struct lookahead {
	uint32_t loadable; /* 1: liblorg.so may be named in LD_PRELOAD */
	int32_t error;	   /* errno: the file, or its script's interpreter, cannot be opened; execution will tell */
	const char *reason; /* constant text; why it is not loadable, NULL if it is */
	uint32_t scripts;  /* times a #! line was followed */
	uint32_t is_loader; /* 1: the file is the loader itself; what it runs stands in its arguments */
	uint32_t secure;   /* 1: it will run in secure mode */
	char executed[LOOKAHEAD_PATH];	  /* the last interpreter of a script; empty: the file itself */
	char interpreter[LOOKAHEAD_PATH]; /* PT_INTERP, empty if none */
	char sanitizers[LOOKAHEAD_SANITIZERS]; /* libraries that must come first, separated by colons */
	uint8_t build_id[LOOKAHEAD_BUILD_ID];
	uint32_t build_id_length;
};

/* Fills in the ids of the calling process, by system calls. */
void lookahead_caller_now(struct lookahead_caller *caller);

/*
 * A program whose sanitizer libraries are not to be found will not start, and is not preloaded: the loader would tell
 * of them once more. Asked with what lookahead() was asked and what it found. library_path: the value of the program's
 * LD_LIBRARY_PATH, NULL: not set. Returns the reason, constant text, or NULL: they are there, as far as can be seen.
 */
const char *lookahead_missing(const struct lookahead *seen, int directory, const char *path, int flags, const char *library_path);

/*
 * Looks at `path`, relative to `directory` (AT_FDCWD or a descriptor). flags: AT_EMPTY_PATH (directory is the file)
 * and AT_SYMLINK_NOFOLLOW as execveat has them. Always fills *result.
 */
void lookahead(struct lookahead *result, int directory, const char *path, int flags, const struct lookahead_caller *caller);

#endif
