/* SPDX-License-Identifier: MIT */
/*
 * keeping.h: memory that is to outlive this process, so that a lorgd that was killed can be started again beside programs
 * that go on: somebody else (daemon/keeper.h) holds a descriptor of each.
 */
#ifndef LORG_COLLECT_KEEPING_H
#define LORG_COLLECT_KEEPING_H

#include <stddef.h>
#include <stdint.h>

#include "collector/collect/memory.h"

enum kept_role {
	KEPT_NODE = 1,
	KEPT_ARENA = 2,
	KEPT_CONTROL = 3, /* of hooked functions; owner: its arena, number: its plan, base: of the module in that arena's programs */
	KEPT_STATE = 4,	  /* daemon/state.c's */
	KEPT_PLAN = 5,	  /* sealed; number: its own */
	KEPT_INDEX = 6,	  /* of all functions of that plan's module: plan/kept.h */
	KEPT_COUNTS = 7,  /* what the ended have counted: session/counting.c's */
	KEPT_JOURNAL = 8, /* journal.h */
	KEPT_PORTS = 9,	  /* flags of single ports: session/flags.c's */
};

/* What is kept, beside the memory itself. The same id again: it takes the place of what was kept by it before. */
struct kept_name {
	enum kept_role role;
	uint8_t id[16];
	uint8_t owner[16];
	uint64_t number, base;
};

struct keeping {
	void (*keep)(void *context, const struct kept_name *name, const struct memory *memory);
	void (*forget)(void *context, const uint8_t id[16]);
	void *context;
};

static inline void keep_named(const struct keeping *keeping, const struct kept_name *name, const struct memory *memory)
{
	if (keeping)
		keeping->keep(keeping->context, name, memory);
}

static inline void keep_memory(const struct keeping *keeping, enum kept_role role, const uint8_t id[16], const struct memory *memory)
{
	struct kept_name name = {.role = role};
	for (int i = 0; i < 16; i++)
		name.id[i] = id[i];
	keep_named(keeping, &name, memory);
}

static inline void forget_memory(const struct keeping *keeping, const uint8_t id[16])
{
	if (keeping)
		keeping->forget(keeping->context, id);
}

/* What a lorgd that was killed has left; at NULL: it was taken. */
struct kept {
	struct kept_name name;
	struct memory memory; /* mapped */
};

struct adopted {
	struct lorg_clock clock;
	uint8_t trace_uuid[16];
	struct kept *list; /* in the order in which it was kept */
	uint32_t count;
};

/* The next one of that role behind *at (0: from the first), that nobody has taken yet; NULL: there is none. */
static inline struct kept *kept_next(struct adopted *adopted, enum kept_role role, uint32_t *at)
{
	while (adopted && *at < adopted->count) {
		struct kept *kept = &adopted->list[(*at)++];
		if (kept->memory.at && kept->name.role == role)
			return kept;
	}
	return NULL;
}

/* It is the caller's from now on. */
static inline struct memory kept_take(struct kept *kept)
{
	struct memory memory = kept->memory;
	kept->memory = (struct memory){.descriptor = -1};
	return memory;
}

#endif
