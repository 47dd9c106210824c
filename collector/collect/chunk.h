/* SPDX-License-Identifier: MIT */
/*
 * chunk.h: makes a CTF packet of a chunk that a program filled, or may be
 * scribbling on. Pure functions: they allocate nothing, know no arena, and
 * give the same result for the same bytes. The one place where memory of a
 * program is parsed.
 */
#ifndef LORG_COLLECT_CHUNK_H
#define LORG_COLLECT_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

/* Stamps that can be true. */
struct chunk_bounds {
	uint64_t oldest; /* tick; the trace's base */
	uint64_t latest; /* tick; a moment after the copy was made */
};

enum chunk_state {
	CHUNK_PACKET,  /* a packet, maybe without events */
	CHUNK_EMPTY,   /* taken, its head not yet written */
	CHUNK_DAMAGED, /* not even a head that can be true */
};

enum { CHUNK_REAPED = 32, CHUNK_FILE = 128 };

/* What a chunk says of a program to come. */
enum chunk_exec {
	CHUNK_EXEC_NONE,    /* nothing */
	CHUNK_EXEC_TRACED,  /* its last EXEC is to lead to a traced image */
	CHUNK_EXEC_EXPLAINED, /* a gap after that, or without one, says why it will not */
};

struct chunk_summary {
	enum chunk_state state;
	uint32_t copied;   /* bytes that the program used of the chunk, as far as its head says */
	uint32_t length;   /* bytes of the packet, head included; a multiple of 8 */
	uint64_t events;   /* kept */
	uint32_t dropped;  /* reserved and never committed: holes and fillers; expected after a sudden death */
	uint32_t unknown;  /* ids that this version does not know, dropped */
	uint32_t cut;	   /* bytes behind an event that cannot be: dropped */
	uint32_t corrected; /* stamps that could not be true */
	uint64_t discarded; /* lost before it, as its head says */
	uint64_t read_tick; /* of the last thing read, kept or not: what follows in the chunk continues it */
	uint32_t gaps;	    /* GAP events */
	uint32_t modules;   /* MODULE events */
	uint8_t has_exit;	  /* an EXIT of the process itself */
	uint8_t has_program_exit; /* an EXIT of the whole program */
	uint8_t ends_in_exec;	  /* its last event is EXEC, or what goes with that behind it */
	uint8_t is_behind_exec;	  /* it holds nothing but what may stand behind an EXEC */
	uint64_t spawn_entry;	  /* tick; when the newest child that it tells of was begun to be made; 0: it tells of none */
	uint8_t exec;		  /* enum chunk_exec */
	char exec_file[CHUNK_FILE]; /* with CHUNK_EXEC_TRACED: what is executed, zero-terminated, maybe cut */
	uint32_t reaped_count;	  /* children whose end it was told; the first ones are kept */
	struct {
		uint64_t tick;
		uint32_t pid; /* as the program sees it */
		int32_t status;
	} reaped[CHUNK_REAPED];
};

/*
 * Copies the used part of a chunk to `out` (LORG_CHUNK_SIZE bytes, aligned to 8) and makes a packet of it: holes,
 * fillers and what cannot be are dropped, the head's end, content, packet size and earliest are set, its
 * discarded count is left as the program gave it and repeated in the summary. Identity (image, pid, tid, birth,
 * stream) is the caller's to check.
 */
void collect_chunk_copy(const uint8_t *chunk, struct chunk_bounds bounds, uint8_t *out, struct chunk_summary *summary);

/* A stretch of a chunk that is a packet of its own. */
struct chunk_part {
	uint32_t from, to; /* offsets of the first event and behind the last one */
	uint64_t begin;	   /* tick that the first one continues; 0: the chunk's own begin, with what was lost before it */
};

/* The same for a part of a chunk. */
void collect_chunk_part(const uint8_t *chunk, const struct chunk_part *part, struct chunk_bounds bounds, uint8_t *out,
			struct chunk_summary *summary);

/*
 * How far from `from` on (an offset that this returned, or LORG_PACKET_HEAD) a chunk that is still being filled holds what
 * will not change any more: up to the first event that is not committed, or that the program may yet take back: an exec
 * that may fail, the ports closed for it, a gap that may belong to an exec. (An exit is not taken back in a live arena.)
 */
uint32_t collect_chunk_committed(const uint8_t *chunk, uint32_t from);

/*
 * How far a chunk begins with events that say what an image is (IMAGE, MODULE, SPAWNED): these may be taken while the
 * program goes on filling it, since they never change. Returns the offset behind them, LORG_PACKET_HEAD if there are
 * none; *tick gets the stamp of the last one.
 */
uint32_t collect_chunk_introduction(const uint8_t *chunk, uint64_t *tick);

#endif
