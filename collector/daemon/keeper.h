/* SPDX-License-Identifier: MIT */
/*
 * keeper.h: a small process beside a lorgd that holds a descriptor of each of its memories, so that a lorgd which is
 * killed, or restarted, finds them again beside programs that go on. The next one joins it at DIRECTORY/keeper: one keeper
 * serves all of them, so that there is no moment at which nobody holds what is there.
 *
 * It reads nothing in them, and ends when the lorgd says so, or some time after a lorgd has gone and none came: then it
 * closes the gates, so that the programs go on as if nobody had ever looked.
 */
#ifndef LORG_DAEMON_KEEPER_H
#define LORG_DAEMON_KEEPER_H

#include "collector/collect/keeping.h"

struct keeper;

enum { KEEPER_PATIENCE_S = 300 /* for the next lorgd */ };

/*
 * Starts one. listener: bound and listening at DIRECTORY/keeper (SOCK_SEQPACKET); the keeper's from then on. NULL with errno.
 * Called before anything else is open that the keeper should not have.
 */
struct keeper *keeper_start(int listener);
/*
 * Joins that of a lorgd that has gone, at DIRECTORY/keeper. What it holds: a list that is malloc'ed; it goes on holding it until it
 * is told to forget. NULL: there is none.
 */
struct keeper *keeper_join(const char *directory, struct kept **list, unsigned *count);
/* Memory is given to it, and taken back, by these. */
const struct keeping *keeper_keeping(struct keeper *keeper);
/*
 * What programs find their way by (the text of DIRECTORY/programs). While there is no lorgd the keeper stands in: it gives
 * programs that start, or become others by exec, the arenas that were made ahead, for the next lorgd to read. Whoever finds none
 * runs untraced; nobody waits, and nobody asks for plans.
 */
void keeper_set_way(struct keeper *keeper, const char *directory, const char *way);
/* So long it waits for the next lorgd once this one has gone; seconds. */
void keeper_set_patience(struct keeper *keeper, unsigned seconds);
/* Nothing is to be kept, and it ends. Frees it. */
void keeper_end(struct keeper *keeper);
/* The lorgd ends, and another one is to come. Frees it. */
void keeper_leave(struct keeper *keeper);

#endif
