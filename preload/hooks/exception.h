/* SPDX-License-Identifier: MIT */
/* exception.h: what dlclose tells the part that names exceptions. */
#ifndef LORG_PRELOAD_EXCEPTION_H
#define LORG_PRELOAD_EXCEPTION_H

#include "preload/core/memory.h"

/* An object is about to go, or has gone: types that were readable may be so no longer. Async-signal-safe. */
HIDDEN void exceptions_unloaded(void);

#endif
