/* SPDX-License-Identifier: MIT */
/*
 * live.h: the packets of a session, as they come, as text.
 *
 * Packets gather and are shown together, some tens of milliseconds' worth at a
 * time, merged by effective tick. What they define (programs, modules,
 * functions, ports, the clock) is kept in memory for those that come later, as
 * long as the programs that it is about live. Symbols that were read stay.
 *
 * One thread. Nothing is written anywhere.
 */
#ifndef LORG_LIVE_LIVE_H
#define LORG_LIVE_LIVE_H

#include <stddef.h>
#include <stdint.h>

struct live;

/* What each event is turned into; any of them. */
enum live_form { LIVE_TEXT = 1, LIVE_COLOURED_TEXT = 2, LIVE_ERLANG = 4, LIVE_JSON = 8 };

/* NULL: out of memory. forms: enum live_form bits. */
struct live *live_new(unsigned forms);
void live_free(struct live *live);

/*
 * Takes a copy of one packet (struct lorg_packet and events). Returns 0, or -1 when out of memory. What is no whole packet
 * is passed over and counted.
 */
int live_packet(struct live *live, const void *packet, size_t length);

/* The same for what it defines alone: none of its events is shown. */
int live_define(struct live *live, const void *packet, size_t length);

/* Packets wait to be shown. */
int live_waits(const struct live *live);

/* Packets that were not whole, so far. */
uint64_t live_damaged(const struct live *live);

enum live_kind {
	LIVE_EVENT = 0,
	LIVE_LOST = 1, /* count events were lost; 0: something could not be traced at all, the texts say what */
};

struct live_message {
	enum live_kind kind;
	/* Zero-terminated, each line ends with a newline; NULL: not asked for. erlang: one or more terms, a line each; may be empty. */
	const char *text, *erlang, *json;
	uint64_t time;	/* ns, CLOCK_MONOTONIC */
	uint64_t count; /* LIVE_LOST */
};

/* Valid during the call. Other than 0 ends showing: the rest of what waits is dropped. */
typedef int live_tell(void *context, const struct live_message *message);

/* Shows all that waits. Returns 0, -1 when out of memory, or what tell returned. */
int live_show(struct live *live, live_tell *tell, void *context);

/* Bytes of memory that definitions take; for tests. */
size_t live_definitions(const struct live *live);

#endif
