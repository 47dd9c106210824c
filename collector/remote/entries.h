/* SPDX-License-Identifier: MIT */
/* entries.h: the changes of the C library's code that liblorg.so has prepared (struct lorg_late), made from outside. */
#ifndef LORG_REMOTE_ENTRIES_H
#define LORG_REMOTE_ENTRIES_H

#include <stdint.h>
#include <sys/types.h>

/*
 * on 1: entries lead to liblorg.so; 0: they are as the file has them. late: the address of its struct lorg_late there, whose
 * `placed` says then which do. Holds all threads for a moment, and does so again for what a thread was in the middle
 * of. Returns how many are not as they should be, *changed those that are now and were not; -1: none was looked at, *error
 * and *why.
 */
int entries_switch(pid_t pid, uint64_t late, int on, uint32_t *changed, int *error, const char **why);

#endif
