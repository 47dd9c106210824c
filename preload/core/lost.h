/* SPDX-License-Identifier: MIT */
/*
 * lost.h: for whom an event was lost. A session is told of what it would have had, and of nothing else: of each event that
 * finds no room the program counts, in the process's entry, which sessions had asked for it by its flags at that moment.
 * What it cannot know (flags of single ports stand in the collector alone) is counted as doubtful.
 *
 * Async-signal-safe; on the way of lost events only.
 */
#ifndef LORG_PRELOAD_LOST_H
#define LORG_PRELOAD_LOST_H

#include "preload/core/thread.h"

/* An event with these fixed fields was lost. */
HIDDEN void lost_event(const struct thread *self, uint16_t id, const void *fields);

/* One that session `slot` would have had; where the caller alone knows that. */
static inline void lost_for_session(const struct thread *self, uint32_t slot)
{
	/* The collector takes the count away meanwhile: pairs with its exchange. */
	__atomic_fetch_add(&self->process->session[slot].lost, 1, __ATOMIC_RELAXED);
}

#endif
