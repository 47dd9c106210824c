/* SPDX-License-Identifier: MIT */
/* calls [leaf|fib|deep] [n] [depth]
 * leaf: n calls at depth 1; fib: fib(n); deep: n calls in chains of `depth`.
 */
#include "work.h"

int main(int argc, char **argv)
{
	const char *shape = arg_word(argc, argv, 1, "leaf");
	uint64_t n = arg_number(argc, argv, 2, 1000000);
	unsigned depth = (unsigned)arg_number(argc, argv, 3, 100);
	uint64_t start = now_ns();
	uint64_t ops = do_calls(shape, n, depth);

	print_result("calls", ops, now_ns() - start);
	return 0;
}
