/* SPDX-License-Identifier: MIT */
/* list.h: lists that grow, and lists in order. For all folders of the collector; includes none of them. */
#ifndef LORG_BASE_LIST_H
#define LORG_BASE_LIST_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * A list of malloc'ed memory with room for one more than `count` elements of `size` bytes: where it is now, which the caller
 * notes. NULL: out of memory, and the list is as it was. first: how many the first room is for.
 */
static inline void *list_with_room(void *list, size_t count, size_t *room, size_t size, size_t first)
{
	if (count < *room)
		return list;
	size_t larger = *room ? *room * 2 : first;
	void *grown = reallocarray(list, larger, size);
	if (grown)
		*room = larger;
	return grown;
}

/*
 * Of a list in the order of an unsigned 64-bit number at `at` in each element: how many have one that is no more than `key`;
 * so the last of those stands before that place, and the first that is more at it.
 */
static inline size_t list_up_to(const void *list, size_t count, size_t size, size_t at, uint64_t key)
{
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t number;
		memcpy(&number, (const char *)list + middle * size + at, sizeof number);
		if (number <= key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

#endif
