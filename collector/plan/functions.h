/* SPDX-License-Identifier: MIT */
/*
 * functions.h: which functions a module has: their entries, sizes and names.
 *
 * Sources: .symtab, .dynsym, separate debug files and MiniDebugInfo (all by
 * libdwfl), and the unwind tables, which stripped files have too: each entry of
 * them begins a function, unless its frame is already set up there (a cold
 * fragment) or its name says that it is a piece of one.
 *
 * One entry address is one function, whatever number of names it has.
 */
#ifndef LORG_PLAN_FUNCTIONS_H
#define LORG_PLAN_FUNCTIONS_H

#include <stdint.h>

#include "collector/plan/object.h"

struct function_name {
	uint64_t address;
	uint64_t size;
	const char *text;    /* as in the symbol table, without a version */
	const char *version; /* NULL: none */
	const char *file;    /* of a local symbol, where known; else NULL */
	uint8_t dynamic, local, type; /* type: STT_* */
};

enum function_flag {
	FUNCTION_UNWIND = 1,	    /* the unwind tables have an entry for it */
	FUNCTION_NO_CALLER = 2,	    /* the unwind tables say: nothing stands below it (start of a thread or program) */
	FUNCTION_CHOSEN = 4,	    /* an IFUNC: its code chooses another at load time */
	FUNCTION_INSIDE = 8,	    /* a symbol in the middle of an entry of the unwind tables */
	FUNCTION_FRAME_SET_UP = 16, /* at its start the return address is not on top of the stack */
	FUNCTION_CALLED = 32,	    /* something calls it directly, or its address is taken */
	FUNCTION_JUMPED_TO = 64,    /* other code jumps to its start */
	FUNCTION_THREAD_START = 128, /* pthread_create takes its address: threads begin in it */
};

struct function {
	uint64_t address, size, end; /* end: of what is its own, padding behind it included (the start of what comes next) */
	uint64_t handlers; /* address of its table of landing pads (LSDA), 0: none */
	uint32_t first_name, name_count; /* in names, best first */
	uint32_t flags;	   /* enum function_flag */
};

/* A piece of code that the unwind tables or symbols tell of, functions and fragments alike. */
struct code_range {
	uint64_t start, end;
	uint64_t handlers;
};

struct functions {
	const struct object *object;
	struct function *list; /* by address */
	size_t count;
	struct function_name *names; /* by address */
	size_t name_count;
	struct code_range *ranges; /* by start */
	size_t range_count;
	size_t fragments; /* cold ones, no functions */
	int has_symbols;  /* there is more than the dynamic symbol table */
};

/* 0, or -1: out of memory. */
int functions_read(struct object *object, struct functions *functions);
void functions_free(struct functions *functions);

/* The function that begins at `address`, or the last that begins before it; NULL: none. */
struct function *function_at(const struct functions *functions, uint64_t address);
struct function *function_before(const struct functions *functions, uint64_t address);
/* The piece of code that holds `address`; NULL: not known. */
const struct code_range *range_at(const struct functions *functions, uint64_t address);

/* Its best name; NULL: none. */
static inline const struct function_name *function_name(const struct functions *functions, const struct function *function)
{
	return function->name_count ? &functions->names[function->first_name] : NULL;
}

/* True if one of its names is `name` (of clones: the plain name). */
int function_is_called(const struct functions *functions, const struct function *function, const char *name);

#endif
