/* SPDX-License-Identifier: MIT */
/*
 * index.h: all functions of a module by all their names, for whoever asks of
 * them after the module's plan was made (sessions of a lorgd).
 *
 * One entry address is one function. Made by the planner's helper, and never
 * changed after that.
 */
#ifndef LORG_PLAN_INDEX_H
#define LORG_PLAN_INDEX_H

#include <stdint.h>

#include <lorg/plan.h>

#include "collector/plan/analysis.h"
#include "collector/plan/pattern.h"

enum { INDEX_NONE = UINT32_MAX, INDEX_ARITY_UNKNOWN = LORG_ARITY_UNKNOWN };

/* Texts are offsets + 1 in `texts`; 0: none. */
struct index_name {
	uint32_t text, version, file;
};

struct index_function {
	uint64_t offset; /* without the load bias */
	uint32_t size;	 /* bytes */
	uint32_t code, slots; /* its places in the plan: hooked at its entry, through slots; INDEX_NONE: it cannot be so */
	uint32_t flags;	      /* enum lorg_plan_flag */
	uint32_t first_name, name_count; /* in `names`; the first says most */
	uint8_t arity;	      /* INDEX_ARITY_UNKNOWN */
	uint8_t refusal;      /* enum refusal: why not at its entry */
};

struct plan_index {
	char *module; /* what people call it */
	char *file_name, *soname; /* soname NULL: none */
	struct index_function *functions; /* by offset */
	uint32_t count;
	struct index_name *names;
	uint32_t name_count;
	char *texts;
};

/* Of all functions of the analysis, hooked nowhere yet. NULL: no memory. */
struct plan_index *index_create(struct analysis *analysis);
void index_free(struct plan_index *index);

static inline const char *index_text(const struct plan_index *index, uint32_t text)
{
	return text ? index->texts + text - 1 : NULL;
}

/* Its best name, or "+0x1a2b" into `place` (of 32 bytes) where it has none. */
const char *index_function_name(const struct plan_index *index, uint32_t function, char place[32]);
/* That place, also where it has a name. */
const char *index_function_place(const struct plan_index *index, uint32_t function, char place[32]);
/* True if `name` is one of its names as they stand, or of a clone the plain one, or its place. */
int index_is_called(const struct plan_index *index, uint32_t function, const char *name);
/* True if the pattern names it; its module is not looked at. */
int index_matches(const struct plan_index *index, uint32_t function, const struct pattern *pattern);

#endif
