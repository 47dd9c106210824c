/* SPDX-License-Identifier: MIT */
/* What every program shares: a clock and one result line.
 *
 * A program does a known number of operations and prints one line
 *     RESULT prog=NAME ops=N ns=T rss_kb=M
 * where ops is how many operations of the kind it is named for were done,
 * ns the time they took (start-up excluded) and rss_kb its own peak RSS.
 */
#ifndef BENCH_H
#define BENCH_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Helpers that must not show up as traced functions. */
#define UNTRACED static inline __attribute__((always_inline, no_instrument_function))
/* Functions whose every call must happen as written. */
#define REAL_CALL __attribute__((noinline, noclone))

UNTRACED uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The peak of this program's own memory: getrusage() also counts what its launcher had before the exec. */
UNTRACED long peak_kb(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[128];
	long peak = 0;

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "VmHWM: %ld", &peak) == 1)
			break;
	if (status)
		fclose(status);
	return peak;
}

UNTRACED void print_result(const char *prog, uint64_t ops, uint64_t ns)
{
	printf("RESULT prog=%s ops=%" PRIu64 " ns=%" PRIu64 " rss_kb=%ld\n",
	       prog, ops, ns, peak_kb());
	fflush(stdout);
}

UNTRACED uint64_t arg_number(int argc, char **argv, int i, uint64_t otherwise)
{
	return i < argc ? strtoull(argv[i], NULL, 0) : otherwise;
}

UNTRACED const char *arg_word(int argc, char **argv, int i, const char *otherwise)
{
	return i < argc ? argv[i] : otherwise;
}

#endif
