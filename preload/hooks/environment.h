/* SPDX-License-Identifier: MIT */
/*
 * environment.h: the environment of a program about to be executed, with the
 * two variables that bring liblorg.so into it.
 */
#ifndef LORG_PRELOAD_ENVIRONMENT_H
#define LORG_PRELOAD_ENVIRONMENT_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

#include "preload/core/memory.h"

struct environment_request {
	char *const *given; /* as the program passes it; may be NULL */
	uint32_t count;	    /* its entries: environment_count(given) */
	char *text;	    /* where the two variables are built */
	size_t text_room;   /* bytes */
	char **pointers;    /* room for count + 3; the result */
	const char *sanitizers;	 /* libraries that come before liblorg.so; "" if none */
	const uint8_t *image_id; /* 16 bytes: the image that executes */
	const struct lorg_process *process; /* that executes: keeps its flags; NULL: not known */
};

/* No count: the array ends in memory that cannot be read, and the kernel will refuse it. */
#define ENVIRONMENT_UNREADABLE UINT32_MAX

/* Entries before the NULL, or ENVIRONMENT_UNREADABLE. */
HIDDEN uint32_t environment_count(char *const *given);

/* The value of LD_LIBRARY_PATH, copied to `to` and cut to `room`; NULL: not set. */
HIDDEN const char *environment_library_path(char *const *given, char *to, uint32_t room);

/*
 * Copies the pointers, but for what an earlier image of this recording has left of ours, and appends LD_PRELOAD and
 * LORG, in this order, last. A LD_PRELOAD of the program's own stays where it is: the loader takes the last, which
 * names the program's libraries, too. Returns NULL, or why this program is not to be traced.
 */
HIDDEN const char *environment_extend(struct environment_request *request);

#endif
