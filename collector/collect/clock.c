/* SPDX-License-Identifier: MIT */
/* clock.c: see clock.h. */
#include "collector/collect/clock.h"

#include <cpuid.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { SAMPLES = 8, LEAST_BASELINE_NS = 200000 };

struct sample {
	uint64_t tick, ns;
};

static uint64_t read_clock(clockid_t id)
{
	struct timespec time;
	clock_gettime(id, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_tick(const struct lorg_clock *clock)
{
	return clock->source == LORG_CLOCK_TSC ? __rdtsc() : clock_monotonic_ns();
}

/* Both clocks at one moment: the tightest of a few readings. */
static struct sample take_sample(enum lorg_clock_source source)
{
	struct sample best = {0, clock_monotonic_ns()};
	uint64_t best_width = UINT64_MAX;
	if (source != LORG_CLOCK_TSC)
		return (struct sample){best.ns, best.ns};
	for (int i = 0; i < SAMPLES; i++) {
		uint64_t before = __rdtsc();
		uint64_t ns = clock_monotonic_ns();
		uint64_t width = __rdtsc() - before;
		if (width >= best_width)
			continue;
		best_width = width;
		best = (struct sample){before + width / 2, ns};
	}
	return best;
}

/* When this process began: by the time that the clock is to be told, enough has passed to measure it by. */
static struct sample first;

__attribute__((constructor)) static void take_first_sample(void)
{
	first = take_sample(LORG_CLOCK_TSC);
}

/* The kernel has compared the counters of all CPUs: where it uses the TSC itself, it is one clock. */
static int kernel_uses_tsc(void)
{
	char text[16] = "";
	unsigned a, b, c, d;
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8)) /* invariant TSC */
		return 0;
	int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	ssize_t n = read(file, text, sizeof text - 1);
	close(file);
	return n >= 4 && memcmp(text, "tsc\n", 4) == 0;
}

void clock_begin(struct lorg_clock *clock)
{
	memset(clock, 0, sizeof *clock);
	clock->size = sizeof *clock;
	clock->source = kernel_uses_tsc() ? LORG_CLOCK_TSC : LORG_CLOCK_MONOTONIC;
	struct sample base = clock->source == LORG_CLOCK_TSC ? first : take_sample(clock->source);
	clock->base_tick = base.tick;
	clock->base_ns = base.ns;
	clock->wall_offset_ns = (int64_t)(read_clock(CLOCK_REALTIME) - clock_monotonic_ns());
	clock->multiplier = (uint64_t)1 << 32;
	clock->frequency = 1000000000;
}

void clock_refine(struct lorg_clock *clock)
{
	clock->wall_offset_ns = (int64_t)(read_clock(CLOCK_REALTIME) - clock_monotonic_ns());
	if (clock->source != LORG_CLOCK_TSC)
		return;
	while (clock_monotonic_ns() - clock->base_ns < LEAST_BASELINE_NS)
		_mm_pause();
	struct sample now = take_sample(clock->source);
	uint64_t ticks = now.tick - clock->base_tick;
	uint64_t ns = now.ns - clock->base_ns;
	if (!ticks || !ns)
		return;
	clock->multiplier = (uint64_t)(((unsigned __int128)ns << 32) / ticks);
	clock->frequency = (uint64_t)((unsigned __int128)ticks * 1000000000u / ns);
}
