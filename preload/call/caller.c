/* SPDX-License-Identifier: MIT */
/*
 * caller.c: whose call it is. Functions of libc that have wrappers in liblorg.so are called by those; people want to
 * see who has called the wrapper.
 *
 * All of liblorg.so keeps frame pointers, and calls nothing but from a frame that is complete. So its frames are
 * followed until a return address lies outside.
 */
#include "preload/call/inner.h"

enum {
	FRAMES = 32,	   /* of liblorg.so, one above the other */
	REACH = 64 * 1024, /* bytes of stack that they take together at most */
};

extern HIDDEN const char __ehdr_start[], _end[];

int address_is_own(uint64_t address)
{
	return address >= (uint64_t)__ehdr_start && address < (uint64_t)_end;
}

uint64_t caller_outside(uint64_t address, uintptr_t slot, uintptr_t frame)
{
	const uintptr_t end = slot + REACH;
	uintptr_t below = slot;
	for (int i = 0; address_is_own(address); i++) {
		if (i == FRAMES || frame % 8 || frame <= below || frame >= end)
			return 0;
		const uint64_t *words = (const uint64_t *)frame;
		uintptr_t above = (uintptr_t)&words[1];
		address = words[1];
		if (address == (uint64_t)call_return)
			address = shadow_known(above) ? *return_word(above) : 0;
		below = frame;
		frame = words[0];
	}
	return address;
}
