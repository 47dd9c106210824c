/* SPDX-License-Identifier: MIT */
/* clock.h: the trace's clock: which counter ticks, and how its ticks become nanoseconds. */
#ifndef LORG_COLLECT_CLOCK_H
#define LORG_COLLECT_CLOCK_H

#include <stdint.h>

#include <lorg/abi.h>

/* Chooses the source (the TSC where the kernel itself trusts it) and reads the base. clock_refine must follow. */
void clock_begin(struct lorg_clock *clock);

/*
 * Measures multiplier and frequency from the base to now. The longer after
 * clock_begin, the better; waits until 200 us have passed.
 */
void clock_refine(struct lorg_clock *clock);

/* A tick of this clock. */
uint64_t clock_tick(const struct lorg_clock *clock);

/* CLOCK_MONOTONIC, ns. */
uint64_t clock_monotonic_ns(void);

#endif
