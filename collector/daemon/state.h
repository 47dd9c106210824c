/* SPDX-License-Identifier: MIT */
/*
 * state.h: what a lorgd that was killed is to go on with: its clock, and the sessions that persist, in memory that a
 * keeper holds. What the sessions ask of each process stands in the programs' arenas.
 */
#ifndef LORG_DAEMON_STATE_H
#define LORG_DAEMON_STATE_H

#include "collector/collect/keeping.h"

struct service;
struct collector;
struct state;

/* NULL: no memory. epoch: 1, and one more for each restart. */
struct state *state_create(const struct collector *collector, uint64_t epoch);
/* From now on it is what the next lorgd goes on with. */
void state_keep(struct state *state, const struct keeping *keeping);
void state_free(struct state *state);
/* Whenever sessions may have changed; does nothing where they have not. */
void state_save(struct state *state, const struct service *service);

/* What an older one says. 0, or -1: it is none, or of another version. */
int state_read(const struct memory *memory, struct lorg_clock *clock, uint8_t trace_uuid[16], uint64_t *epoch);
/* Makes its sessions anew, with what they ask of functions. */
void state_restore(const struct memory *memory, struct service *service);

#endif
