/* SPDX-License-Identifier: MIT */
/*
 * scope.h: which definition of a name a piece of code would have been bound to
 * without us, where the order of all loaded objects does not tell: libraries
 * that dlopen has brought see the program's own first and then those that they
 * need themselves, not each other's.
 */
#ifndef LORG_PRELOAD_SCOPE_H
#define LORG_PRELOAD_SCOPE_H

#include <stdint.h>

#include "preload/core/memory.h"

/* How many loaded objects, ours apart, define the function. */
HIDDEN unsigned scope_count(const char *name);

/* The definition for the code at `caller`, or NULL. Async-signal-safe; takes a microsecond or more. */
HIDDEN void *scope_find(const char *name, uintptr_t caller);

#endif
