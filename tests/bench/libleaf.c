/* SPDX-License-Identifier: MIT */
/* The library side of libcalls: one tiny exported function. */
#include "libleaf.h"

uint64_t lib_leaf(uint64_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}
