/* SPDX-License-Identifier: MIT */
/*
 * module.h: tells readers which ELF objects are mapped where. dlopen itself is
 * not wrapped (it looks at its caller), so new objects are noticed when code of
 * theirs is first named.
 */
#ifndef LORG_PRELOAD_MODULE_H
#define LORG_PRELOAD_MODULE_H

#include "preload/core/thread.h"

/* MODULE events for all that is loaded and not yet told. Makes system calls; not for hot paths. */
HIDDEN void modules_tell(struct thread *self);

/* Makes sure that the object that holds `address` has been told. Cheap when it has. Async-signal-safe. */
HIDDEN void module_note(struct thread *self, uint64_t address);

/* A fork child has its parent's objects and its own copy of the table: tells them again under the new image. */
HIDDEN void modules_forget(void);

#endif
