/* SPDX-License-Identifier: MIT */
/*
 * value.h: what a function's arguments and result are and where they stand,
 * as the captures of a plan (include/lorg/plan.h).
 *
 * Two sources say it: prototypes in C syntax (the user's own, then the shipped
 * ones, by soname) and DWARF. Both become the same types (type.h); places come
 * from the System V ABI for AMD64, section 3.2.3 (place.h). Where a parameter
 * was optimised away or its place cannot be known it is told as absent, never
 * as a wrong value.
 *
 * Nothing here is safe to be used by two threads at once on one source.
 */
#ifndef LORG_VALUE_H
#define LORG_VALUE_H

#include <elfutils/libdw.h>
#include <lorg/plan.h>
#include <stddef.h>
#include <stdint.h>

struct prototypes;

/*
 * The shipped prototypes and those of `files` (zero-ended list, may be NULL; later files win). A file that cannot be
 * read or parsed: NULL, and *error (to be freed) says "FILE:LINE:COLUMN: why".
 */
struct prototypes *prototypes_read(const char *const *files, char **error);
void prototypes_free(struct prototypes *prototypes);

/* Bytes that grow; offsets in them are what the plan holds. Owner: whoever makes the plan. */
struct value_area {
	uint8_t *bytes;
	size_t used, room;
	int failed; /* 1: no memory; what was added since is not there */
};
void value_area_free(struct value_area *area);

/* `size` bytes at the end, aligned to 8. Returns their offset; UINT32_MAX when there is no memory. */
uint32_t value_area_add(struct value_area *area, const void *bytes, size_t size);

/* A zero-terminated text, without alignment. Returns its offset + 1; 0 when there is none (NULL, or no memory). */
uint32_t value_area_text(struct value_area *area, const char *text);

struct value_function {
	uint8_t arity;		/* 255: unknown */
	uint8_t argument_count; /* of struct lorg_capture at arguments; at most LORG_CAPTURES */
	uint32_t flags;		/* LORG_PLAN_STRUCT_RESULT, LORG_PLAN_NO_RETURN */
	uint32_t arguments, result; /* in the captures area + 1; 0: none */
};

/* The functions of one module. dwarf: may be NULL, kept open by the caller; module: its base name or soname. */
struct value_source;
struct value_source *value_source_open(const struct prototypes *prototypes, Dwarf *dwarf, const char *module);
void value_source_close(struct value_source *source);

/*
 * offset: the entry as the DWARF file has it (without load bias). names: the function's symbols, zero-ended list, the
 * one that says most about it (a clone's suffix) first. Unknown functions: 0, *function says arity 255. 1: filled in.
 */
int value_for_function(struct value_source *source, uint64_t offset, const char *const *names, struct value_area *captures,
		       struct value_area *names_area, struct value_function *function);

/* Names by which a match specification's short form may call the arguments; NULL where one has none. Valid until the source is closed. */
const char *value_argument_name(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument);

/* Its type (type.h), valid likewise; NULL where it is not known. */
struct value_type;
const struct value_type *value_argument_type(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument);

/* What a pointer leads to, however far from the argument it is; NULL where that is not known. */
const struct value_type *value_pointee(struct value_source *source, const struct value_type *pointer);

/* Offset, size and form of a member of what argument `argument` points to; path as in "member" or "member.inner". -1: none. */
int value_member(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument, const char *path,
		 struct lorg_capture *member);

#endif
