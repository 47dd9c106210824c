/* SPDX-License-Identifier: MIT */
/*
 * exit.h: how threads and programs end.
 */
#ifndef LORG_PRELOAD_EXIT_H
#define LORG_PRELOAD_EXIT_H

#include <stdint.h>

#include "preload/core/memory.h"

/* The program is about to end with `status`, told by `hook`; the caller then makes the real call. */
HIDDEN void program_ends(uint32_t hook, int status);

/* The calling thread is about to end. killed: it was cancelled. */
HIDDEN void thread_ends(uint32_t hook, int killed);

/*
 * For start.c: called once from the constructor when libc's inner _exit could not be hooked. Then the last exit
 * handler of all tells of the end: exit() and a return from main are seen all the same.
 */
HIDDEN void exit_watch_without_inner_hook(void);

#endif
