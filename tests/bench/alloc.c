/* SPDX-License-Identifier: MIT */
/* alloc [n]: n malloc/free pairs of mixed sizes, 64 blocks alive at a time. */
#include "bench.h"

int main(int argc, char **argv)
{
	enum { ALIVE = 64 };
	static void *block[ALIVE];
	uint64_t n = arg_number(argc, argv, 1, 1000000);
	uint64_t random = 88172645463325252u, start = now_ns();

	for (uint64_t i = 0; i < n; i++) {
		size_t slot = i % ALIVE;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		free(block[slot]);
		block[slot] = malloc(16 + random % 500);
		if (!block[slot])
			return 1;
		*(volatile char *)block[slot] = 1;
	}
	for (size_t slot = 0; slot < ALIVE; slot++)
		free(block[slot]);
	print_result("alloc", n, now_ns() - start);
	return 0;
}
