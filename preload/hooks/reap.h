/* SPDX-License-Identifier: MIT */
/*
 * reap.h: the end of a wait for a child or a thread, told as a REAPED event.
 */
#ifndef LORG_PRELOAD_REAP_H
#define LORG_PRELOAD_REAP_H

#include "preload/hook.h"

/*
 * Called by the wait family after the real call, for ROLE_reap and ROLE_join, with its result. Writes REAPED when a
 * child or thread was taken; nothing on failure, time-out, WNOWAIT, or a stop. Async-signal-safe.
 */
HIDDEN void reap_leave(struct hook_call *call, intptr_t result);

#endif
