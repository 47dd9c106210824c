/* SPDX-License-Identifier: MIT */
/*
 * definitions.h: what a flight recorder must not forget. Events that say what
 * others mean (images, modules, functions, texts, names) are told once; when
 * the chunk that holds them is used again they are carried over into its new
 * contents, so that what can still be read is always named.
 */
#ifndef LORG_PRELOAD_DEFINITIONS_H
#define LORG_PRELOAD_DEFINITIONS_H

#include "preload/core/event.h"

/*
 * Moves the definitions of a chunk that is in the caller's hands to its beginning and wipes the rest. Returns where they
 * end (LORG_PACKET_HEAD: there are none); *dropped gets how many other events there were.
 */
HIDDEN uint32_t definitions_keep(struct lorg_packet *packet, uint32_t *dropped);

/* Gives those up to `end` the stamp `tick`. */
HIDDEN void definitions_restamp(struct lorg_packet *packet, uint32_t end, uint64_t tick);

#endif
