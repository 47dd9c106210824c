/* SPDX-License-Identifier: MIT */
/*
 * needed.h: the libraries that a program is linked against, found as the loader
 * finds them: DT_RPATH and DT_RUNPATH, LD_LIBRARY_PATH, the loader's cache, the
 * usual places. Nothing is executed.
 */
#ifndef LORG_PLAN_NEEDED_H
#define LORG_PLAN_NEEDED_H

struct needed {
	char **paths; /* the file itself first */
	unsigned count;
};

/* 0, or -1: out of memory, or no ELF file. Libraries that are not found are left out. */
int needed_list(const char *path, struct needed *needed);
void needed_free(struct needed *needed);

/* A library by its name alone (libz.so.1): the caller's to free; NULL: not found. */
char *needed_find(const char *name);

#endif
