/* SPDX-License-Identifier: MIT */
/*
 * door.h: the socket at which programs ask for an arena that cannot open
 * /proc/COLLECTOR/fd: those of other users after a set-user-ID, those in user
 * or pid namespaces.
 *
 *     program    16 bytes: the token that LORG names
 *     collector  struct lorg_offer, and with it two descriptors: node segment, arena
 *
 *     program    struct lorg_door_request (lorg/plan.h): the complement of the token, an arena, a request
 *     collector  one byte, and with it two descriptors: plan, control
 *
 * Who does not know the token is sent away. The socket lies in a directory of
 * its own, 0711, that is removed at the end.
 */
#ifndef LORG_COLLECT_DOOR_H
#define LORG_COLLECT_DOOR_H

#include <stdint.h>

#include <lorg/abi.h>

struct door;

/* Hands out an arena: fills *offer, whose descriptor is this process's; -1: there is none. */
typedef int door_claim(void *context, struct lorg_offer *offer);

/* The two descriptors (plan, control) that a request of an arena was answered with; -1: there are none. */
typedef int door_answer(void *context, const uint8_t arena_id[16], uint32_t request, int descriptors[2]);

/* NULL when no socket can be made anywhere: programs do without. */
struct door *door_open(const uint8_t token[16], int node_descriptor, door_claim *claim, door_answer *answer, void *context);

/* Path of the socket; fits into sun_path. */
const char *door_path(const struct door *door);

/* Becomes readable when somebody wants something. */
int door_descriptor(const struct door *door);

/* Answers who has asked; never waits. */
void door_pass(struct door *door);

/* Removes the socket and its directory. door may be NULL. */
void door_close(struct door *door);

#endif
