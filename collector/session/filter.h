/* SPDX-License-Identifier: MIT */
/*
 * filter.h: makes packets for one session: the events of a program's packet
 * that it asked for, and what they are read with. Packets go to the session's
 * tracer whole: sizes and checksum set, numbered within the session.
 */
#ifndef LORG_SESSION_FILTER_H
#define LORG_SESSION_FILTER_H

#include "collector/event/event.h"
#include "collector/session/router.h"

enum { FILTER_SIZE = 96 * 1024, FILTER_FULL = LORG_CHUNK_SIZE };

/* A packet that is being made. One at a time for each kind; memory of its own. */
struct filter {
	struct session *session;
	uint32_t length; /* 0: no packet is begun */
	uint32_t padding; /* bytes at the end of its last event that are none of its fields */
	uint32_t holds;	  /* enum lorg_packet_holds */
	uint64_t tick;	  /* of the last event */
	uint64_t events;
	_Alignas(8) uint8_t packet[FILTER_SIZE];
};

/* The next packet is for that session, of the process that `whose` names, and nothing in it is before `begin`. */
void filter_begin(struct filter *filter, struct session *session, const struct lorg_packet *whose, uint64_t begin, uint32_t holds);
/* An event as it stands in a packet. */
void filter_put(struct filter *filter, const struct event_view *view);
/* An event in the extended form: fixed fields and bytes, `size` in all. */
void filter_put_fields(struct filter *filter, uint16_t id, uint64_t tick, uint64_t effective, const void *fields, uint32_t size);
/* An event in the extended form, of `length` bytes. */
void filter_put_extended(struct filter *filter, uint64_t tick, const void *event, uint32_t length);
/* Passes on what there is; nothing is begun any more. */
void filter_end(struct filter *filter);

#endif
