/* SPDX-License-Identifier: MIT */
/* opened.h: where dlopen and dlmopen go on; called by opened.S alone. */
#ifndef LORG_PRELOAD_OPENED_H
#define LORG_PRELOAD_OPENED_H

#include <stdint.h>

#include "preload/core/memory.h"

HIDDEN void *dlopen_leads_to(const char *path, int flags, long unused, uintptr_t caller);
HIDDEN void *dlmopen_leads_to(long space, const char *path, int flags, uintptr_t caller);

#endif
