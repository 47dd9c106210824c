/* SPDX-License-Identifier: MIT */
/* frames.h: what a thread goes back to when its signal handlers return. */
#ifndef LORG_PATCH_FRAMES_H
#define LORG_PATCH_FRAMES_H

#include <stdint.h>

/*
 * Calls `found` with the address at which each signal handler that the thread is inside of has interrupted it, as far as
 * frames are found within 1 MiB of its stack pointers: the kernel's frames are known by the segment registers that
 * it always saves. `memory` is /proc/PID/mem of the program, whose threads are held.
 */
void frames_of_handlers(int memory, uint64_t stack, void (*found)(void *context, uint64_t address), void *context);

#endif
