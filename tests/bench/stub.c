/* SPDX-License-Identifier: MIT */
/* stub [rounds]
 * One call through the stub of hooked functions (preload/call) against the bare call, for each kind of gate. Runs
 * alternate, the least time of all rounds counts, and all stays in one chunk: what the collector costs is not in it.
 * Built by meson (bench_stub), with an arena of its own.
 */
#include "bench.h"
#include "tests/unit/call/support.h"

enum { CALLS = 3500, KINDS = 10 };

static const struct kind {
	const char *name;
	uint32_t gate;
} kinds[KINDS] = {
	{"bare", 0},
	{"gate 0", 0},
	{"count", LORG_CALL_COUNT},
	{"entry", LORG_CALL_ENTRY},
	{"entry and return", LORG_CALL_ENTRY | LORG_CALL_RETURN},
	{"entry, return, count", LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_COUNT},
	{"entry, return, filter", LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_FILTER},
	{"time", LORG_CALL_TIME},
	{"memory", LORG_CALL_MEMORY},
	{"values", LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_VALUES},
};

REAL_CALL static int callee(int x)
{
	__asm__ volatile("");
	return x + 1;
}

static double one_round(int (*function)(int))
{
	int (*volatile called)(int) = function;
	uint64_t start = now_ns();
	for (int i = 0; i < CALLS; i++)
		called(i);
	return (double)(now_ns() - start) / CALLS;
}

static double read_clock(void)
{
	uint64_t sum = 0, start = now_ns();
	for (int i = 0; i < CALLS; i++)
		sum += __builtin_ia32_rdtsc();
	__asm__ volatile("" : : "r"(sum));
	return (double)(now_ns() - start) / CALLS;
}

int main(int argc, char **argv)
{
	uint64_t rounds = arg_number(argc, argv, 1, 2000);
	int (*function[KINDS])(int) = {callee};
	double best[KINDS], clock = 1e9;

	support_attach(64);
	for (unsigned i = 0; i < KINDS; i++) {
		best[i] = 1e9;
		if (i)
			function[i] = support_hook(i, callee, kinds[i].gate, 0, NULL, NULL);
	}
	for (uint64_t round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < KINDS; i++) {
			double time = one_round(function[i]);
			best[i] = time < best[i] ? time : best[i];
			support_forget_events();
		}
		double time = read_clock();
		clock = time < clock ? time : clock;
	}
	printf("%-24s %7.1f ns\n%-24s %7.1f ns\n", "bare call", best[0], "one clock reading (C)", clock);
	for (unsigned i = 1; i < KINDS; i++)
		printf("%-24s %+7.1f ns  %5.1f bare calls, %4.1f C\n", kinds[i].name, best[i] - best[0], best[i] / best[0],
		       (best[i] - best[0]) / clock);
	return 0;
}
