/* SPDX-License-Identifier: MIT */
/*
 * definitions.h: what the packets seen so far define, in compact form: packets
 * with the events alone that others are read with, in a trace that grows
 * (collector/read/trace.h). Now and then what is no longer needed is left out:
 * programs that have ended, descriptors that are others now. One thread.
 */
#ifndef LORG_LIVE_DEFINITIONS_H
#define LORG_LIVE_DEFINITIONS_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

#include "collector/live/cpu_times.h"
#include "collector/live/flags.h"
#include "collector/read/trace.h"

struct definitions {
	struct trace *trace; /* knows all of it; another one after definitions_compact() */
	struct live_flags *flags;
	struct cpu_times *cpu_times;
	struct definition_block **blocks; /* oldest first */
	size_t count, room;
	size_t bytes, compact_bytes; /* of all; as they were when last made compact */
};

/* Returns 0, or -1 when out of memory. */
int definitions_begin(struct definitions *definitions);
void definitions_end(struct definitions *definitions);

/* Keeps what a packet defines: `head` is its own, `length` bytes of it are content. Returns 0, or -1 when out of memory. */
int definitions_take(struct definitions *definitions, const struct lorg_packet *head, const uint8_t *packet, uint32_t length);

/* Whether much may have become superfluous. */
int definitions_grown(const struct definitions *definitions);

/*
 * Leaves out what is superfluous at that time (ns, CLOCK_MONOTONIC). *old: the trace before, which the caller closes with
 * definitions_old_done() when nothing of it is used any more; NULL where there was no memory, and nothing has changed.
 */
struct definitions_old {
	struct trace *trace;
	struct definition_block **blocks;
	size_t count;
};
void definitions_compact(struct definitions *definitions, uint64_t now_ns, struct definitions_old *old);
void definitions_old_done(struct definitions_old *old);

#endif
