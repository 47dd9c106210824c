/* SPDX-License-Identifier: MIT */
/* special.h: functions that are known by name to need another treatment than most. */
#ifndef LORG_PLAN_SPECIAL_H
#define LORG_PLAN_SPECIAL_H

/*
 * What a module is that defines a function of that name or has that soname (NULL: none): why all of its functions get
 * entry events only; NULL: nothing special.
 */
const char *special_machine(const char *name, const char *soname);
/* Why a function of that name gets entry events only; NULL: it does not. */
const char *special_entry_only(const char *name);
/* True if a function of that name never returns to its caller. */
int special_no_return(const char *name);
/* True if it is what -pg and -mfentry call. */
int special_profiler(const char *name);

#endif
