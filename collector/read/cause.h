/* SPDX-License-Identifier: MIT */
/*
 * cause.h: which sends a receive took its bytes from, by their offsets in the
 * channel. Fed with every message event in merged order. Memory is bounded: a
 * channel keeps its newest sends, at most CAUSE_SENDS.
 */
#ifndef LORG_READ_CAUSE_H
#define LORG_READ_CAUSE_H

#include "collector/read/trace.h"

enum { CAUSE_SENDS = 4096, CAUSE_LISTED = 64 };

struct causes;
struct causes *causes_new(void);
void causes_free(struct causes *causes);

/* A SEND: remembers where its bytes lie. Nothing happens where the channel is not known. */
void causes_send(struct causes *causes, const struct lorg_event_SEND *send, uint64_t hlc);

/* A RECEIVE: the hlc of each send it took bytes from, in the order of the bytes; at most CAUSE_LISTED. Returns how many. */
unsigned causes_receive(struct causes *causes, const struct lorg_event_RECEIVE *receive, uint64_t hlc[CAUSE_LISTED]);

#endif
