/* SPDX-License-Identifier: MIT */
/* The least that a tracer of -finstrument-functions can do, to LD_PRELOAD
 * under the programs: FLOOR=0 returns at once, 1 finds tracing off, 2 writes
 * 16 B with a time stamp to the thread's own wrapping ring, 3 writes 32 B,
 * 4 writes 8 B, in order but with a time stamp only every 64th record.
 * Nothing drains the rings: this is a bound, not a tracer.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <x86intrin.h>

#ifndef FLOOR
#error "build with -DFLOOR=0..4"
#endif

enum { RING_BYTES = 256 << 10 };

struct ring {
	_Atomic uint64_t head; /* in words */
	uint64_t *words;
};

static _Thread_local struct ring ring __attribute__((tls_model("initial-exec")));
static atomic_int enabled = FLOOR >= 2;

static __attribute__((noinline, cold)) void ring_open(void)
{
	void *p = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	ring.words = p;
}

static inline void store(uint64_t at, uint64_t word)
{
	ring.words[at % (RING_BYTES / sizeof(uint64_t))] = word;
}

static inline void put(void *fn, void *site, uint64_t kind)
{
	uint64_t word = (uint64_t)fn << 2 | kind, head;

	if (FLOOR == 0)
		return;
	if (!__builtin_expect(atomic_load_explicit(&enabled, memory_order_relaxed), 1))
		return;
	if (__builtin_expect(!ring.words, 0))
		ring_open();
	head = atomic_load_explicit(&ring.head, memory_order_relaxed);
	if (FLOOR != 4 || head % 64 == 0)
		store(head++, __rdtsc());
	store(head++, word);
	if (FLOOR == 3) {
		store(head++, (uint64_t)site);
		store(head++, kind);
	}
	atomic_store_explicit(&ring.head, head, memory_order_release);
}

void __cyg_profile_func_enter(void *fn, void *site)
{
	put(fn, site, 0);
}

void __cyg_profile_func_exit(void *fn, void *site)
{
	put(fn, site, 1);
}
