/* SPDX-License-Identifier: MIT */
/* place.h: where the lorgd of this user is. libc alone; nothing is kept. */
#ifndef LORG_CLIENT_PLACE_H
#define LORG_CLIENT_PLACE_H

#include <stddef.h>

/* Its runtime directory. 0, or -1 when its name does not fit. */
int place_directory(char *directory, size_t size);
/* Connects to the socket `control` there. A descriptor, or -1 with errno. */
int place_connect(const char *directory);

#endif
