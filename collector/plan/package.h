/* SPDX-License-Identifier: MIT */
/* package.h: which package has the debug symbols of a file, where dpkg knows the file. */
#ifndef LORG_PLAN_PACKAGE_H
#define LORG_PLAN_PACKAGE_H

#include <stddef.h>

/* Name of the package into `name`. 0, or -1: not known. Runs dpkg-query. */
int package_of_debug_symbols(const char *path, char *name, size_t size);

#endif
