/* SPDX-License-Identifier: MIT */
/*
 * program.h: a running program looked at from outside: what is mapped where, what its modules export.
 *
 * Everything is read from its memory, not from files: those may have been replaced or deleted since. Nothing of it is
 * believed further than bounds go: a wrong program makes a lookup fail, no more.
 */
#ifndef LORG_REMOTE_PROGRAM_H
#define LORG_REMOTE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mapping {
	uint64_t start, end;
	uint8_t readable, writable, executable, is_stack;
	char *path; /* "": anonymous */
};

/* A loaded ELF object. */
struct remote_module {
	const char *path; /* of its first mapping */
	const char *name; /* the last part of it */
	uint64_t bias;
	uint64_t start, end;                           /* addresses, of its segments */
	uint64_t symbols, strings, gnu_hash, versions; /* addresses; 0: none */
	uint64_t headers;                              /* address of its program headers */
	uint32_t header_count;
	uint8_t allocates; /* 1: it defines malloc */
};

struct program {
	pid_t pid;
	int memory; /* /proc/PID/mem */
	struct mapping *mappings;
	uint32_t mapping_count;
	struct remote_module *modules;
	uint32_t module_count;
	const struct remote_module *libc, *loader; /* NULL: none */
};

/* 0, or -1 with *error and *why (constant text). program_close in any case. */
int program_open(struct program *program, pid_t pid, int *error, const char **why);
void program_close(struct program *program);
/* Reads anew what is mapped. 0, or -1. */
int program_look(struct program *program);

int program_read(const struct program *program, uint64_t address, void *to, size_t length);
int program_write(const struct program *program, uint64_t address, const void *from, size_t length);

/* NULL: none is there. */
const struct mapping *program_mapping(const struct program *program, uint64_t address);
const struct remote_module *program_module_at(const struct program *program, uint64_t address);
/* By the last part of its path; a file that has been deleted counts. */
const struct remote_module *program_module_named(const struct program *program, const char *name);
/* The C library: NULL: there is none, or it is not the GNU one. */
static inline const struct remote_module *program_libc(const struct program *program)
{
	return program->libc;
}
/* The dynamic loader; NULL: none. */
static inline const struct remote_module *program_loader(const struct program *program)
{
	return program->loader;
}

/* The address of a function or object in its default version; 0: the module does not define it. *type: STT_*. */
uint64_t module_symbol(const struct program *program, const struct remote_module *module, const char *name, int *type);
/* The address of the value of an ELF note; 0: it has none. */
uint64_t module_note(const struct program *program, const struct remote_module *module, const char *name, uint32_t type,
		     uint32_t *size);

/* A line of /proc/PID/status (or of a thread, tid not 0) as a number; -1: there is none. base: 10 or 16. */
int64_t status_number(pid_t pid, pid_t tid, const char *key, int base);
/* The state letter; 'X': it is not there. */
char status_state(pid_t pid, pid_t tid);

#endif
