/* SPDX-License-Identifier: MIT */
/*
 * schedules.h: threads that run on and on (system/3, long_schedule). A program tells when such a thread comes to wait; that
 * it has not come to that is seen from here, as soon as the limit is passed.
 *
 * A stretch is known by the tick of its beginning, and each session is told of it once, by whichever of the two.
 */
#ifndef LORG_SESSION_SCHEDULES_H
#define LORG_SESSION_SCHEDULES_H

#include "collector/session/router.h"

struct schedules;
struct schedules *schedules_create(void); /* NULL: no memory */
void schedules_free(struct schedules *schedules);
void schedules_forget_session(struct schedules *schedules, unsigned slot);

/* 1 the first time that a session asks about a stretch: it is to be told. */
int schedules_tell_once(struct schedules *schedules, unsigned slot, const uint8_t image[16], uint64_t birth, uint64_t since);

/* A thread that still runs. */
struct long_schedule {
	struct family *family;
	struct process *process;
	uint64_t ms, since; /* tick */
	uint32_t in_hook; /* after which it began; UINT32_MAX: not known */
};
typedef void tell_schedule(struct sessions *sessions, struct session *session, const struct long_schedule *told);

/* Each pass. */
void schedules_pass(struct sessions *sessions, struct schedules *schedules, uint64_t now_ns, tell_schedule *tell);

#endif
