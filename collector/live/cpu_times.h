/* SPDX-License-Identifier: MIT */
/* cpu_times.h: what CPU time a program had used when, as its threads have told with their events (CPU_TIME). One thread. */
#ifndef LORG_LIVE_CPU_TIMES_H
#define LORG_LIVE_CPU_TIMES_H

#include <stdint.h>

struct cpu_times;

/* NULL: out of memory. */
struct cpu_times *cpu_times_new(void);
void cpu_times_free(struct cpu_times *times);

/* `ns` at `tick`, as a thread (by its birth) of an image tells. Returns 0, or -1 when out of memory. */
int cpu_times_add(struct cpu_times *times, const uint8_t image[16], uint64_t birth, uint64_t tick, uint64_t ns);
/*
 * The thread's own newest that is not after the tick; else what another of the image has told. 0, or -1: neither.
 */
int cpu_times_at(const struct cpu_times *times, const uint8_t image[16], uint64_t birth, uint64_t tick, uint64_t *ns);
/* All that has come so far is shown: of each thread the few newest are kept. */
void cpu_times_shown(struct cpu_times *times);

#endif
