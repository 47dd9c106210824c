/* SPDX-License-Identifier: MIT */
/* The three call shapes that calls.c and calls_mt.c trace. */
#ifndef WORK_H
#define WORK_H

#include "bench.h"

/* Depth 1: one tiny function, called in a loop. */
REAL_CALL static uint64_t leaf(uint64_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

/* Recursion, two calls a level. */
REAL_CALL static uint64_t fib(unsigned n)
{
	uint64_t a, b;

	if (n < 2)
		return n;
	/* The barriers keep the compiler from turning a call into a loop. */
	a = fib(n - 1);
	__asm__ volatile("" : "+r"(a));
	b = fib(n - 2);
	__asm__ volatile("" : "+r"(b));
	return a + b;
}

/* A chain `depth` calls deep, no tail call. */
REAL_CALL static uint64_t down(unsigned depth)
{
	uint64_t below = depth > 1 ? down(depth - 1) : 0;

	__asm__ volatile("" : "+r"(below));
	return below + 1;
}

UNTRACED uint64_t fib_calls(unsigned n)
{
	uint64_t a = 1, b = 1;

	for (unsigned i = 2; i <= n; i++) {
		uint64_t c = a + b + 1;

		a = b;
		b = c;
	}
	return b;
}

/* Does the work of `shape`; returns how many calls that were. */
UNTRACED uint64_t do_calls(const char *shape, uint64_t n, unsigned depth)
{
	volatile uint64_t sink = 0;
	uint64_t sum = 0;

	if (strcmp(shape, "leaf") == 0) {
		for (uint64_t i = 0; i < n; i++)
			sum = leaf(sum);
		sink = sum;
		return n;
	}
	if (strcmp(shape, "fib") == 0) {
		sink = fib((unsigned)n);
		return fib_calls((unsigned)n);
	}
	if (strcmp(shape, "deep") == 0) {
		for (uint64_t i = 0; i < n / depth; i++)
			sum += down(depth);
		sink = sum;
		return n / depth * depth;
	}
	(void)sink;
	fprintf(stderr, "no such shape: %s\n", shape);
	exit(2);
}

#endif
