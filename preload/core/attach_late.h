/* SPDX-License-Identifier: MIT */
/*
 * attach_late.h: liblorg.so in a program that was started without it, and what is done from outside in one that runs
 * (include/lorg/late.h).
 */
#ifndef LORG_PRELOAD_ATTACH_LATE_H
#define LORG_PRELOAD_ATTACH_LATE_H

#include "preload/core/arena.h"

/*
 * For the constructor. True where liblorg.so comes to a program that runs: then it does nothing but note the arguments, and
 * waits to be called.
 */
HIDDEN int late_loaded(int argc, char **argv);
/* It was there from the start; it has found a collector. */
HIDDEN void late_from_start(int argc, char **argv);
HIDDEN void late_attached(void);

/* ---- start.c ---- */

/* What the constructor does at the start but for the code hooks: 0, or -1: the program is not traced. */
HIDDEN int start_late(int argc, char **argv, char **envp, const struct lorg_settings *settings);

/* ---- hooks/handler.c ---- */

/* Signal handlers that were set before: their receipts are seen from now on. Then, as they were. System calls. */
HIDDEN void handlers_cover(void);
HIDDEN void handlers_uncover(void);

/* ---- called from outside ---- */
HIDDEN long remote_entry(uint32_t what, uint64_t words);

#endif
