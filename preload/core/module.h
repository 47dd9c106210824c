/* SPDX-License-Identifier: MIT */
/*
 * module.h: tells readers which ELF objects are mapped where. New objects are
 * noticed when code of theirs is first named; where functions are hooked, when
 * they are opened.
 */
#ifndef LORG_PRELOAD_MODULE_H
#define LORG_PRELOAD_MODULE_H

#include "preload/core/thread.h"

/* MODULE events for all that is loaded and not yet told. Makes system calls; not for hot paths. */
HIDDEN void modules_tell(struct thread *self);

/* After dlclose: tells which objects have gone, so that what comes in their place is told under its own name. */
HIDDEN void modules_closed(struct thread *self);

/* Makes sure that the object that holds `address` has been told. Cheap when it has. Async-signal-safe. */
HIDDEN void module_note(struct thread *self, uint64_t address);

/* True if the address lies in an object that has been told. */
HIDDEN int module_is_told(uint64_t address);

/* A fork child has its parent's objects and its own copy of the table: tells them again under the new image. */
HIDDEN void modules_forget(void);

/* hooks/function.c: functions that the compiler announces are told again when they are called next. */
HIDDEN void functions_forget(void);

#endif
