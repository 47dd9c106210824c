/* SPDX-License-Identifier: MIT */
/* Types of values and the memory that they live in. */
#include "collector/value/type.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 64 * 1024 };

struct value_block {
	struct value_block *next;
	size_t used, room;
	_Alignas(16) char bytes[];
};

static struct value_block *block_new(struct value_pool *pool, size_t size)
{
	size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
	struct value_block *block = calloc(1, sizeof *block + room);
	if (!block)
		return NULL;
	block->room = room;
	block->next = pool->blocks;
	pool->blocks = block;
	return block;
}

void *value_pool_get(struct value_pool *pool, size_t size)
{
	size = (size + 15) & ~(size_t)15;
	struct value_block *block = pool->blocks;
	if (!block || block->room - block->used < size)
		block = block_new(pool, size);
	if (!block)
		return NULL;
	void *at = block->bytes + block->used;
	block->used += size;
	return at;
}

char *value_pool_text(struct value_pool *pool, const char *text, size_t length)
{
	char *copy = value_pool_get(pool, length + 1);
	return copy ? memcpy(copy, text, length) : NULL;
}

void value_pool_free(struct value_pool *pool)
{
	while (pool->blocks) {
		struct value_block *next = pool->blocks->next;
		free(pool->blocks);
		pool->blocks = next;
	}
}

static int by_value(const void *left, const void *right)
{
	int64_t a = ((const struct value_enumerator *)left)->value, b = ((const struct value_enumerator *)right)->value;
	return (a > b) - (a < b);
}

void value_enumerators_sort(struct value_type *type)
{
	qsort(type->enumerators, type->count, sizeof *type->enumerators, by_value);
}
