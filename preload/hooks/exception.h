/* SPDX-License-Identifier: MIT */
/* exception.h: what dlclose tells the part that names exceptions. */
#ifndef LORG_PRELOAD_EXCEPTION_H
#define LORG_PRELOAD_EXCEPTION_H

#include "preload/core/event.h"

/* An object is about to go, or has gone: types that were readable may be so no longer. Async-signal-safe. */
HIDDEN void exceptions_unloaded(void);

/* The mangled name of a C++ type (struct type_information), without bytes where it cannot be read. */
HIDDEN struct event_bytes exception_type_name(const void *type);
/*
 * what() of an exception's object, where it is a std::exception whose what() is the runtime's own code: that of others
 * might do anything. Without bytes else. The text lasts as long as the object.
 */
HIDDEN struct event_bytes exception_what(const void *object, const void *type);

#endif
