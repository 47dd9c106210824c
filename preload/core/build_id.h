/* SPDX-License-Identifier: MIT */
/* build_id.h: the GNU build id in the notes of a module that is mapped. */
#ifndef LORG_PRELOAD_BUILD_ID_H
#define LORG_PRELOAD_BUILD_ID_H

#include <elf.h>

#include "preload/core/event.h"
#include "preload/core/memory.h"

/* Of `size` bytes of notes at `notes`, which may be gone: its length, at most `room`; 0: there is none. */
static inline uint32_t build_id_in(uint64_t notes, uint64_t size, uint8_t *to, uint32_t room)
{
	uint8_t bytes[1024];
	uint32_t length = size < sizeof bytes ? (uint32_t)size : sizeof bytes;
	if (memory_peek(bytes, (void *)notes, length) != length)
		return 0;
	for (uint64_t at = 0; at + 12 <= length;) {
		uint32_t head[3];
		memcpy(head, bytes + at, sizeof head);
		uint64_t name = (head[0] + 3ull) & ~3ull, data = (head[1] + 3ull) & ~3ull;
		if (at + 12 + name + data > length)
			return 0;
		if (head[2] == NT_GNU_BUILD_ID && head[0] == 4 && !memcmp(bytes + at + 12, "GNU", 4)) {
			uint32_t taken = head[1] < room ? head[1] : room;
			memcpy(to, bytes + at + 12 + name, taken);
			return taken;
		}
		at += 12 + name + data;
	}
	return 0;
}

#endif
