/* SPDX-License-Identifier: MIT */
/* recording.h: a trace directory that is being written, followed. One thread. */
#ifndef LORG_LIVE_RECORDING_H
#define LORG_LIVE_RECORDING_H

#include <stddef.h>

#include "collector/live/live.h"

struct recording;

/* NULL: why, one sentence without a newline, "why: what to do", in error. */
struct recording *recording_open(const char *directory, char *error, size_t size);
void recording_close(struct recording *recording);

/*
 * Gives all packets that have been written since to `live`; shown 0: for what they define alone. 1; 0: the recording has
 * ended, and that was all; -1 out of memory, or a file cannot be read (errno).
 */
int recording_read(struct recording *recording, struct live *live, int shown);

/* What was said of its session's end; "": nothing. */
const char *recording_why(const struct recording *recording);

/* 1: another trace directory stands where it was opened: its writer was started again. */
int recording_goes_on_elsewhere(const struct recording *recording, const char *directory);

#endif
