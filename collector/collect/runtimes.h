/* SPDX-License-Identifier: MIT */
/*
 * runtimes.h: finds C++ runtimes that are linked into a module of their own
 * (-static-libstdc++): throw and catch there pass no symbol that could be
 * interposed, and that has to be said.
 *
 * Each file is looked at once a recording, outside of the program; nothing in
 * it is trusted.
 */
#ifndef LORG_COLLECT_RUNTIMES_H
#define LORG_COLLECT_RUNTIMES_H

#include <stdint.h>

#include "collector/collect/notes.h"

/* Files that were looked at; all zero at first. */
struct runtimes {
	uint64_t *seen; /* hashes of their paths; a table of `room` places, 0 free */
	uint32_t count, room;
};

/* Looks at the MODULE events of a packet (`length` bytes from its head); writes a gap for each runtime that is found. */
void runtimes_look(struct runtimes *runtimes, const uint8_t *packet, uint32_t length, uint32_t pid, struct notes *notes);
void runtimes_free(struct runtimes *runtimes);

/* 1: the file has a C++ runtime of its own that no hook on a symbol sees. */
int runtime_is_hidden(const char *path);

#endif
