/* SPDX-License-Identifier: MIT */
/*
 * keeping.h: memory that is to outlive this process, so that a lorgd that was killed can be started again beside programs
 * that go on: somebody else (daemon/keeper.h) holds a descriptor of each.
 */
#ifndef LORG_COLLECT_KEEPING_H
#define LORG_COLLECT_KEEPING_H

#include <stdint.h>

#include "collector/collect/memory.h"

enum kept_role {
	KEPT_NODE = 1,
	KEPT_ARENA = 2,
	KEPT_CONTROL = 3, /* of hooked functions */
	KEPT_STATE = 4,	  /* daemon/state.c's */
};

struct keeping {
	void (*keep)(void *context, enum kept_role role, const uint8_t id[16], const struct memory *memory);
	void (*forget)(void *context, const uint8_t id[16]);
	void *context;
};

static inline void keep_memory(const struct keeping *keeping, enum kept_role role, const uint8_t id[16], const struct memory *memory)
{
	if (keeping)
		keeping->keep(keeping->context, role, id, memory);
}

static inline void forget_memory(const struct keeping *keeping, const uint8_t id[16])
{
	if (keeping)
		keeping->forget(keeping->context, id);
}

/* What a lorgd that was killed has left. */
struct adopted_memory {
	struct memory memory; /* mapped; at NULL: it was taken */
	uint8_t id[16];
};

struct adopted {
	struct lorg_clock clock;
	uint8_t trace_uuid[16];
	uint8_t node_id[16];
	struct memory node;
	struct adopted_memory *arenas;
	uint32_t count;
};

#endif
