/* SPDX-License-Identifier: MIT */
/*
 * keeper.h: a small process beside a lorgd that holds a descriptor of each of its memories, so that a lorgd which is
 * killed can be started again beside programs that go on: DIRECTORY/keeper is where the next one gets them.
 *
 * It reads nothing in them, and ends with the lorgd, or when the next one has taken over, or some minutes after a lorgd
 * was killed and none came: then it closes the gates, so that the programs go on as if nobody had ever looked.
 */
#ifndef LORG_DAEMON_KEEPER_H
#define LORG_DAEMON_KEEPER_H

#include "collector/collect/keeping.h"

struct keeper;

/*
 * Starts one. listener: bound and listening at DIRECTORY/keeper (SOCK_SEQPACKET); the keeper's from then on. NULL with errno.
 * Called before anything else is open that the keeper should not have.
 */
struct keeper *keeper_start(int listener);
/* Memory is given to it, and taken back, by these. */
const struct keeping *keeper_keeping(struct keeper *keeper);
/* The lorgd ends by itself: nothing is to be kept. Frees it. */
void keeper_end(struct keeper *keeper);

/* What it held. */
struct kept {
	enum kept_role role;
	uint8_t id[16];
	struct memory memory; /* mapped */
};

/*
 * Takes over from the keeper of a lorgd that was killed: its socket at `path`. The list is malloc'ed; 0 where there is
 * none. When all is in the hands of another keeper, keeper_taken_over(*connection) ends the old one; -1: there was none.
 */
unsigned keeper_take_over(const char *path, struct kept **list, int *connection);
void keeper_taken_over(int connection);

#endif
