/* SPDX-License-Identifier: MIT */
/*
 * memory.h: makes the shared memory of include/lorg/abi.h: memfds, sized and
 * sealed against changes of size, with their tables laid out.
 *
 * What the tables' places are is kept in the collector's own memory: the
 * copies in shared memory are for the programs and are never read back.
 */
#ifndef LORG_COLLECT_MEMORY_H
#define LORG_COLLECT_MEMORY_H

#include <stdint.h>

#include <lorg/abi.h>
#include <lorg/plan.h>

struct memory {
	int descriptor; /* -1: none */
	uint64_t size;
	uint8_t *at; /* NULL: not mapped */
};

/* A memfd of `size` bytes, mapped. 0, or -1 with errno. */
int memory_create(struct memory *memory, const char *name, uint64_t size);
/* Unmaps and closes; safe to repeat. */
void memory_free(struct memory *memory);

/*
 * True when no process but this one has the memory mapped; then none ever will again. Ours is unmapped for the
 * question, and mapped again (elsewhere, maybe) when the answer is no.
 */
int memory_abandoned(struct memory *memory);

/* Offsets of an arena's parts, in bytes. */
struct arena_layout {
	uint64_t chunk_control, images, sessions, functions, modules, requests, programs, program_flags, chunks;
	uint32_t programs_size; /* bytes */
	uint32_t chunk_count;
	uint64_t size;
};

/* Of an arena of that size, with room for so many bytes of match programs. */
struct arena_layout arena_layout(uint64_t size, uint32_t programs_size);

/* A match program (lorg/match.h); memory NULL: none. */
struct arena_program {
	const uint64_t *memory;
	uint32_t size; /* bytes; a multiple of 8 */
};

struct keeping; /* keeping.h */

/* What all arenas of a collector have in common. */
struct arena_settings {
	uint8_t trace_uuid[16];
	char node_name[64];
	struct lorg_clock clock;
	enum lorg_overflow overflow;
	uint32_t message_length;
	uint64_t block_limit_ns;
	uint32_t gate_mask; /* enum lorg_gate bits */
	char session_name[64];
	const uint8_t *gates; /* LORG_HOOKS bytes */
	int has_requests;     /* functions are to be hooked: programs ask for plans */
	struct arena_program send_program, receive_program; /* the caller's */
	uint32_t flags_new, flags_matter; /* struct lorg_session */
	uint32_t programs_room; /* bytes for match programs that come later */
	/* NULL, or what else is to be written into a new arena, or one that was wiped, at its place in memory. */
	void (*settle)(void *context, uint8_t *at, const struct arena_layout *layout);
	void *settle_context;
	const struct keeping *keeping; /* NULL: none */
};

/* Writes header and session; magic last. id: 16 bytes. */
void arena_prepare(const struct memory *memory, const struct arena_layout *layout, const struct arena_settings *settings,
		   const uint8_t id[16]);

/* How the collector is reached, for programs that began with another one. */
struct arena_reach {
	uint32_t pid;
	int32_t node_descriptor;
	uint64_t node_size;
	uint8_t token[16];
	const char *socket_path;
};
void arena_set_reach(struct lorg_arena *arena, const struct arena_reach *reach);

/* Gate bytes of all hooks where these kinds are asked for: enum lorg_gate bits. */
void gates_set(uint8_t gates[LORG_HOOKS], uint32_t mask);

/* Bytes of a node segment. */
uint64_t node_size(void);
/* What stands in its head and does not change. */
struct lorg_node node_head(const uint8_t id[16], const char *name);
/* Puts that there, where it is not: at first, and where a program has written over it, which all programs map. 1: it has. */
int node_mend(const struct memory *memory, const struct lorg_node *head);

static inline struct lorg_offer *node_offer(const struct memory *memory, uint32_t slot)
{
	return (struct lorg_offer *)(memory->at + sizeof(struct lorg_node)) + slot;
}

/* Random bytes; never fails. */
void random_bytes(void *bytes, unsigned length);

#endif
