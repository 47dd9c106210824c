/* SPDX-License-Identifier: MIT */
/*
 * function_state.h: what sessions that persist ask of functions, as bytes that outlive a lorgd (daemon/state.h): exactly, with
 * zero points of counters, compiled specifications and the ticks from which on calls are whose. What stands in programs, plans and
 * counts outlives it by itself.
 */
#ifndef LORG_SESSION_FUNCTION_STATE_H
#define LORG_SESSION_FUNCTION_STATE_H

#include <stddef.h>
#include <stdint.h>

struct sessions;
struct adopted; /* collector/collect/keeping.h */

/* It is another number whenever what function_state_write would say is something else. */
uint64_t function_state_changes(const struct sessions *sessions);
/* malloc'ed; NULL: no memory. */
void *function_state_write(const struct sessions *sessions, size_t *size);

/*
 * After a restart, one after another; the first also where there is nothing to go on with (adopted NULL).
 *   take_over  plans, with the ids that they had, and counts: before sessions are restored
 *   read       what was written, for sessions that are there again; nothing changes in any program
 *   resume     programs that run are looked at, and their controls become what is asked: before anything is read of their events
 */
void function_state_take_over(struct sessions *sessions, struct adopted *adopted);
void function_state_read(struct sessions *sessions, const void *bytes, size_t size);
void function_state_resume(struct sessions *sessions, struct adopted *adopted);

#endif
