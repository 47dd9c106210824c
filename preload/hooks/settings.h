/* SPDX-License-Identifier: MIT */
/*
 * settings.h: what the wrapper of syscall() shares with those of prctl and its
 * like.
 */
#ifndef LORG_PRELOAD_SETTINGS_H
#define LORG_PRELOAD_SETTINGS_H

#include "preload/hook.h"

/* What lorg may do, before a call that may take it away. */
struct settings_rights {
	uint32_t seccomp, filtered, no_clock;
	uint32_t changed; /* 1: the call may set a filter or forbid the clock */
};

/*
 * Around prctl and seccomp, by whatever way they are called: before, so that not one instruction of ours runs under
 * rights that are gone; after, to take it back when the call failed. The kernel's numbers and arguments.
 */
HIDDEN struct settings_rights settings_before_prctl(long option, unsigned long first);
HIDDEN struct settings_rights settings_before_seccomp(long operation);
HIDDEN void settings_after(const struct settings_rights *rights, long result);

/* Events of a prctl that has succeeded: names, links, the clock given back. */
HIDDEN void settings_prctl_done(uint32_t hook, long option, unsigned long first);

#endif
