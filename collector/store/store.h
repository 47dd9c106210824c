/* SPDX-License-Identifier: MIT */
/*
 * store.h: writes a trace directory.
 *
 *     DIR/metadata   CTF 1.8 text, there before the first packet
 *     DIR/stream-N   lanes: packets one after another; times never go back within a lane
 *
 * The store is readable at every moment: a packet is written whole or not at
 * all. When the file system refuses (full, gone, over a limit), the store is
 * failed for good: what is written stays, further packets are refused.
 * Nothing here prints. One thread.
 *
 * A store that is NULL keeps nothing and never fails: a collector of live
 * sessions has none of its own.
 */
#ifndef LORG_STORE_STORE_H
#define LORG_STORE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

struct store;

/* One stream file; lives until the store is closed. */
struct lane;

struct store_settings {
	const char *path; /* of the directory */
	uint8_t trace_uuid[16];
	struct lorg_clock clock;
	char node_name[64];
	unsigned open_files; /* at most so many descriptors at once; at least 2 */
	/* NULL, or called before a lane's file grows from that size. */
	void (*appending)(void *context, uint32_t lane, uint64_t size);
	void *context;
};

/*
 * Makes the directory; an older trace of that name is moved to NAME.1, NAME.2, ..., whatever else has the name is
 * refused. Returns NULL on failure, with *why (constant text) and errno (0: none fits) set.
 */
struct store *store_create(const struct store_settings *settings, const char **why);

/* Rewrites the metadata with the clock as it is known at the end. */
void store_finish(struct store *store, const struct lorg_clock *clock);
void store_free(struct store *store);

/* 0 while all is well, else the errno that ended it; *what: what failed (constant text). */
int store_failure(const struct store *store, const char **what);

/* Looks whether the directory is still there; fails the store when it is not. */
void store_check(struct store *store);

/* The collector's own lane, stream-0. */
struct lane *store_own_lane(struct store *store);

/* A lane in which nothing is later than `begin`, for one writer. NULL: out of memory, or the store has failed. */
struct lane *store_take_lane(struct store *store, uint64_t begin);
/* Gives it back: another writer may follow. lane may be NULL. */
void store_release_lane(struct store *store, struct lane *lane);
/* Tick of the last event in the lane. */
uint64_t store_lane_end(const struct lane *lane);

/*
 * Appends a packet of `length` bytes, head included. Sets in its head: trace uuid, stream id, sequence, the total of
 * discarded events (given: those of this packet), sizes are the caller's. Returns 0, or -1 when the store has failed.
 */
int store_append(struct store *store, struct lane *lane, struct lorg_packet *packet, size_t length);

struct store_totals {
	uint64_t bytes, packets;
	uint32_t lanes, open_files;
};
struct store_totals store_totals(const struct store *store);

#endif
