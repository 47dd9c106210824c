/* SPDX-License-Identifier: MIT */
/* libcalls [n]: n calls to a function of a shared library, through the PLT. */
#include "bench.h"
#include "libleaf.h"

int main(int argc, char **argv)
{
	uint64_t n = arg_number(argc, argv, 1, 1000000);
	volatile uint64_t sink;
	uint64_t sum = 0, start = now_ns();

	for (uint64_t i = 0; i < n; i++)
		sum = lib_leaf(sum);
	sink = sum;
	(void)sink;
	print_result("libcalls", n, now_ns() - start);
	return 0;
}
