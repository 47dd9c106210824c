/* SPDX-License-Identifier: MIT */
/*
 * late_slots.h: where liblorg.so has been loaded while the program ran, its names stand in for nobody's. So the slots
 * through which the modules' calls go are changed: those that lead to the function behind a hook lead to its wrapper.
 *
 * A slot is changed where it leads to that very function, or, unbound as yet, certainly would; a slot that may be read
 * otherwise than by calls (a function's address that the program compares) is left alone. What is changed is noted, and
 * put back by late_slots_take_back().
 *
 * One at a time; nobody waits for another. No malloc; not from signal handlers.
 */
#ifndef LORG_PRELOAD_LATE_SLOTS_H
#define LORG_PRELOAD_LATE_SLOTS_H

#include <stdint.h>

#include "preload/core/memory.h"

/* Changes the slots of all modules not yet seen, from now on also of those that are opened. Number of slots, or -1: another
 * is at it. */
HIDDEN long late_slots_place(void);
/* Then, some milliseconds later: changes anew what threads have undone that were in the middle of binding a slot. */
HIDDEN void late_slots_settle(void);
/* Puts all back, and no more are changed. Number of slots, or -1: another is at it. */
HIDDEN long late_slots_take_back(void);

/* Something may have been opened, something has been closed. Nothing where no slots have been changed. */
HIDDEN void late_slots_look(void);
HIDDEN void late_slots_forget_gone(void);

#endif
