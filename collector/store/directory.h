/* SPDX-License-Identifier: MIT */
/* directory.h: makes room for a trace: an older one is moved aside, never deleted; what is no trace is never touched. */
#ifndef LORG_STORE_DIRECTORY_H
#define LORG_STORE_DIRECTORY_H

/*
 * Makes the directory `path` (the last part of it) and opens it. Returns a
 * descriptor, close-on-exec; -1 on failure, with *why and errno set.
 */
int directory_create(const char *path, const char **why);

#endif
