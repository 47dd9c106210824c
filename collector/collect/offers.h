/* SPDX-License-Identifier: MIT */
/* offers.h: arenas that are ready for programs to come, and the node segment that shows them. */
#ifndef LORG_COLLECT_OFFERS_H
#define LORG_COLLECT_OFFERS_H

#include <stdint.h>

#include <lorg/abi.h>

#include "collector/collect/keeping.h"
#include "collector/collect/memory.h"

/* One arena on offer; memory.at NULL: none in this slot. */
struct offered {
	struct memory memory;
	uint8_t id[16];
	uint32_t fill; /* how often the slot was filled */
};

struct offers {
	struct memory node;
	struct lorg_node head; /* of that, as it has to be */
	struct arena_layout layout;
	const struct arena_settings *settings;
	struct offered slot[LORG_ARENA_OFFERS];
	uint32_t ready;	  /* as far as known: programs take them at any time */
	uint32_t wanted;  /* how many to keep ready */
	uint64_t claimed; /* ever: each by a program that liblorg.so was loaded into */
	uint32_t least, most; /* bounds of that */
	int descriptors; /* none has a higher one: what is above is for others */
	uint64_t calm_ns; /* since when few were taken */
};

/*
 * Makes the node segment and the first arenas; at most `most` are kept ready. 0, or -1 with errno. adopted: NULL, or what is
 * taken over: the node segment, and of the arenas those that nobody has claimed are freed.
 */
int offers_open(struct offers *offers, const struct arena_settings *settings, uint32_t most, struct adopted *adopted);

/*
 * Takes one that a program has claimed: returns 1 and moves it to *claimed; 0: no more. Call until 0, then
 * offers_refill.
 */
int offers_next_claimed(struct offers *offers, struct offered *claimed);
/* Makes new ones, more the faster they go; a few at a time. */
void offers_refill(struct offers *offers, uint32_t claimed, uint64_t now_ns);

/* Claims one on behalf of a program. 0, or -1: there is none. */
int offers_claim(struct offers *offers, struct lorg_offer *offer);

/* How many images found none and run untraced. */
uint32_t offers_refused(const struct offers *offers);
/* How many could not use theirs, for that reason. */
uint32_t offers_failures(const struct offers *offers, enum lorg_attach_failure reason);

/* Withdraws what is on offer: from now on nobody can claim one. Those already claimed stay to be taken. */
void offers_withdraw(struct offers *offers);
void offers_close(struct offers *offers);

#endif
