/* SPDX-License-Identifier: MIT */
/* flags.h: which trace flags each process and port had when; of FLAGS events, for the time stamps of messages. One thread. */
#ifndef LORG_LIVE_FLAGS_H
#define LORG_LIVE_FLAGS_H

#include <stdint.h>

struct live_flags;

/* Whose: a process by its birth, or a port by descriptor and generation (birth 0). */
struct live_flags_key {
	uint8_t image[16];
	uint64_t birth;
	int32_t fd;
	uint32_t generation;
};

/* NULL: out of memory. */
struct live_flags *live_flags_new(void);
void live_flags_free(struct live_flags *flags);

/* From that tick on. Returns 0, or -1 when out of memory. */
int live_flags_set(struct live_flags *flags, const struct live_flags_key *key, uint64_t tick, uint32_t on);
/* As of a tick: LORG_TRACE_* bits; 0: never told. */
uint32_t live_flags_at(const struct live_flags *flags, const struct live_flags_key *key, uint64_t tick);

/* Keeps what `keeps` says, forgets the rest. */
void live_flags_prune(struct live_flags *flags, int (*keeps)(void *context, const struct live_flags_key *key), void *context);

#endif
