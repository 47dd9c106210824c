/* SPDX-License-Identifier: MIT */
/*
 * flags.h: the trace(3) flags of processes. Each process entry has a set for each session, and the union of all in its
 * slot 0, which is what hooks look at. A private collector has one session, in slot 0 (abi.h, sessions_used).
 *
 * Both sides change them at any time: the collector for process/4, a program by inheritance and by the actions of match
 * specifications. A set is changed by an atomic `or` or `and`; whoever has changed one makes the union anew and looks
 * again until it is right (flags_unite).
 *
 * All functions are async-signal-safe and make no system call.
 */
#ifndef LORG_PRELOAD_FLAGS_H
#define LORG_PRELOAD_FLAGS_H

#include <lorg/match.h>

#include "preload/core/thread.h"

/* Slots that may be in use, 1 .. this - 1; 0: slot 0 is the one session. */
static inline uint32_t sessions_used(void)
{
	/* Acquire: whoever sees a slot in use sees what stands in it. */
	uint32_t used = __atomic_load_n(&the_arena.shared->sessions_used, __ATOMIC_ACQUIRE);
	return used < LORG_SESSIONS ? used : LORG_SESSIONS;
}

static inline struct lorg_session *session_at(uint32_t slot)
{
	return (struct lorg_session *)((char *)the_arena.shared + the_arena.sessions_offset + (uint64_t)slot * LORG_SESSION_STRIDE);
}

static inline uint32_t session_flags(const struct lorg_process *process, uint32_t slot)
{
	return __atomic_load_n(&process->session[slot].flags, __ATOMIC_RELAXED);
}

/* Makes the union right after a change of any of the process's sets. */
HIDDEN void flags_unite(struct lorg_process *process);

/* Takes `off` away from one set and adds `on`. True if that changed anything, which is told by a FLAGS event. */
HIDDEN int flags_change(struct thread *self, struct lorg_process *process, uint32_t slot, uint32_t off, uint32_t on);

/* An entry that has just been taken: what new processes begin with. Its image is set. */
HIDDEN void flags_begin(struct lorg_process *process);
/* And what it has from the process that makes it. */
HIDDEN void flags_inherit(struct lorg_process *child, const struct lorg_process *maker);
/* It has been made: what the first child alone inherits is gone. */
HIDDEN void flags_spawned(struct thread *self);
/* The calling process has linked itself to another. */
HIDDEN void flags_linked(struct thread *self, struct lorg_process *other);
/* The first events of a process: the flags that it was born with. */
HIDDEN void flags_tell(struct thread *self);

/*
 * Over exec: the flags of the process that executes, as text behind the image's id in the variable LORG: ",SLOT.ID.FLAGS"
 * for each session in which it has any. Returns the end.
 */
HIDDEN char *flags_to_text(char *to, const char *end, const struct lorg_process *process);
/* Reads it, and moves *text behind it. 0, or -1: it makes no sense. */
HIDDEN int flags_from_text(const char **text);
/* The first process of this program gets them. */
HIDDEN void flags_kept(struct lorg_process *process);

#endif
