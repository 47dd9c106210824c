/* SPDX-License-Identifier: MIT */
/*
 * make_way.h: the program maps memory of its own where the arena or the node
 * segment is mapped. It may: the kernel gave it that place as free before we
 * came. So ours goes elsewhere first.
 *
 * Every pointer into the old place is followed: those of this file's caller at
 * once, those of other threads at their next hook or when the call that they
 * are inside of returns (hook_returned). A thread that is in the middle of
 * writing an event gets a moment to end it.
 */
#ifndef LORG_PRELOAD_MAKE_WAY_H
#define LORG_PRELOAD_MAKE_WAY_H

#include "preload/core/thread.h"

/*
 * To be called before the program's own call that maps [address, address + length). Where nothing of ours is there, a
 * few loads. Where it is and cannot go elsewhere, the image forwards only from now on, and the recording says so. Makes
 * system calls; leaves errno alone.
 */
HIDDEN void arena_make_way(const void *address, size_t length);

/*
 * Forward only from now on, and the arena's address space is the program's again, if it has one thread. why: constant
 * text, for the recording.
 */
HIDDEN void arena_leave(const char *why);

/* How often the arena has moved. */
HIDDEN uint32_t arena_moves(void);

/* Makes a thread's pointers those of today. Reentrant; for thread_claim. */
HIDDEN void arena_follow(struct thread *self);

#endif
