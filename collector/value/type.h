/* SPDX-License-Identifier: MIT */
/*
 * type.h: types of values, whichever source told of them.
 *
 * A type lives as long as the pool that it was made in. Sizes and offsets are
 * in bytes. A type that is not known in full has kind VALUE_OTHER and is
 * captured as absent.
 */
#ifndef LORG_VALUE_TYPE_H
#define LORG_VALUE_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* Memory that is given back at once. */
struct value_pool {
	struct value_block *blocks;
};

/* Zeroed, aligned to 16; NULL when there is none. */
void *value_pool_get(struct value_pool *pool, size_t size);
char *value_pool_text(struct value_pool *pool, const char *text, size_t length);
void value_pool_free(struct value_pool *pool);

enum value_kind {
	VALUE_OTHER = 0,
	VALUE_VOID,
	VALUE_SIGNED,
	VALUE_UNSIGNED,
	VALUE_BOOL,
	VALUE_CHAR,
	VALUE_ENUM,
	VALUE_FLOAT,
	VALUE_POINTER,
	VALUE_FUNCTION,
	VALUE_STRUCT,
	VALUE_UNION,
	VALUE_ARRAY,
	VALUE_STD_STRING,
	VALUE_STRING_VIEW,
	VALUE_DESCRIPTOR,
	VALUE_VECTOR, /* in a vector register, without a term of its own */
};

enum value_type_flag {
	VALUE_TYPE_REFERENCE = 1,    /* a C++ reference */
	VALUE_TYPE_BY_ADDRESS = 2,   /* a class that is not trivial to copy: passed and returned by its address */
	VALUE_TYPE_FLAGS = 4,	     /* an enum whose enumerators are or'ed */
	VALUE_TYPE_UNALIGNED = 8,    /* packed: in memory when passed */
	VALUE_TYPE_ERRNO = 16,	     /* a result whose failure sets errno */
	VALUE_TYPE_NOT_TEXT = 32,    /* pointer to char that is no string */
};

struct value_member {
	const char *name; /* NULL: none */
	const struct value_type *type;
	uint32_t offset;
	uint32_t bit, width; /* of a bit field: its first bit from `offset` on; width 0: none */
};

struct value_enumerator {
	const char *name;
	int64_t value;
};

struct value_type {
	enum value_kind kind;
	uint32_t flags; /* enum value_type_flag */
	uint32_t size, align;
	const char *name; /* tag, or NULL */
	const struct value_type *target; /* of a pointer, an array, an enum (what it is stored in) */
	uint32_t count; /* members, enumerators, elements (0: not known) */
	uint64_t distant; /* of a pointer whose target was not read: where that is in `distant_file`, + 1; 0: it was */
	void *distant_file; /* Dwarf */
	union {
		struct value_member *members;
		struct value_enumerator *enumerators; /* by value, ascending */
	};
};

struct value_parameter {
	const char *name;
	const struct value_type *type;
	uint32_t buffer; /* 1 + index of the parameter that says how many bytes it points to; VALUE_BUFFER_RESULT; 0: no buffer */
	uint32_t known_register; /* DWARF number + 1 of the register it is in at the entry, where told; VALUE_ABSENT: nowhere */
};

enum { VALUE_BUFFER_RESULT = UINT32_MAX, VALUE_ABSENT = UINT32_MAX };

struct value_prototype {
	const char *name;
	const struct value_type *result;
	uint32_t parameter_count;
	uint32_t no_return, any_places; /* any_places: only known_register can be believed */
	struct value_parameter *parameters;
};

/* Sorts by value. */
void value_enumerators_sort(struct value_type *type);

#endif
