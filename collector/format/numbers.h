/* SPDX-License-Identifier: MIT */
/*
 * numbers.h: pids and tids in events, which are those of the pid namespace of the program that wrote them, become those of
 * the recording. What is not known there stays as it is.
 */
#ifndef LORG_FORMAT_NUMBERS_H
#define LORG_FORMAT_NUMBERS_H

#include <lorg/events.h>

#include "collector/read/trace.h"

void numbers_spawn(const struct trace *trace, const struct trace_event *event, struct lorg_event_SPAWN *spawn);
void numbers_spawned(const struct trace *trace, const struct trace_event *event, struct lorg_event_SPAWNED *spawned);
void numbers_reaped(const struct trace *trace, const struct trace_event *event, struct lorg_event_REAPED *reaped);
void numbers_register(const struct trace *trace, const struct trace_event *event, struct lorg_event_REGISTER *named);
void numbers_link(const struct trace *trace, const struct trace_event *event, struct lorg_event_LINK *link);
void numbers_signal_sent(const struct trace *trace, const struct trace_event *event, struct lorg_event_SIGNAL_SENT *sent);
void numbers_signal_received(const struct trace *trace, const struct trace_event *event,
			     struct lorg_event_SIGNAL_RECEIVED *received);
void numbers_gap(const struct trace *trace, const struct trace_event *event, struct lorg_event_GAP *gap);

#endif
