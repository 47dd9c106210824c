/* SPDX-License-Identifier: MIT */
/*
 * mapped.h: which modules programs have mapped, by /proc/PID/maps and the files
 * themselves: for programs that have told nothing of it.
 *
 * What a file says of itself is kept by device and inode, so that it is read
 * once. One thread.
 */
#ifndef LORG_SESSION_MAPPED_H
#define LORG_SESSION_MAPPED_H

#include <stdint.h>
#include <sys/types.h>

struct mapped_files; /* what is known of files */

struct mapped_module {
	char path[424]; /* as /proc/PID/maps names it */
	char name[128]; /* what people call it: its soname where the file is one version of that, else its file name */
	char file_name[128];
	char alias[128]; /* of a program: the link that it was started by; empty: none */
	uint8_t build_id[20];
	uint32_t build_id_length; /* 0: none */
	uint64_t base; /* load bias */
};

struct mapped_files *mapped_files_create(void);
void mapped_files_free(struct mapped_files *files);

/*
 * Calls `found` for each module that the process has mapped with code in it; the loader, lorg's own library and files that
 * are gone are none. 0, or -1: its maps cannot be read.
 */
int mapped_modules(struct mapped_files *files, pid_t pid, void (*found)(void *context, const struct mapped_module *module),
		   void *context);

/* Whether the file's dynamic string table holds any of the names, whatever for; 1 also where that cannot be known. */
int mapped_file_names(pid_t pid, const char *path, const char *const *names, uint32_t count);

#endif
