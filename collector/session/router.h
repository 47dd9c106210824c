/* SPDX-License-Identifier: MIT */
/*
 * router.h: what the files of this folder share, beyond session.h.
 *
 * A session's packets come out of the packets of programs (filter), and say for themselves how they are to be read:
 * LORG_HOLDS_UNSHOWN, LORG_HOLDS_PROCESS_FLAGS, LORG_HOLDS_PORT_FLAGS (abi.h).
 */
#ifndef LORG_SESSION_ROUTER_H
#define LORG_SESSION_ROUTER_H

#include "collector/session/sessions.h"
#include "collector/session/tracer.h"

/* ---- router.c ------------------------------------------------------------------- */

/* A slot has a new session: nothing of the one before is believed of it. Its tracer is told clock, hooks and itself. */
void router_session_begins(struct sessions *sessions, struct session *session);
/* Before its tracer goes. */
/* The session in that slot asks for the lengths of queues no more: if it does again, none is long for it. */
void router_forget_queues(struct sessions *sessions, unsigned slot);
void router_session_ends(struct sessions *sessions, struct session *session);
/* True while what is committed in half-filled chunks is to be taken in each pass. */
int router_is_live(const struct sessions *sessions);
/* A note of the collector's own (notes.h): clock, hooks, functions of plans, gaps, losses. */
void router_note(struct sessions *sessions, const struct lorg_packet *packet, size_t length);
/* All of the image has been routed. */
void router_image_over(struct sessions *sessions, const uint8_t image[16]);

/* An open port of an image, as its OPEN event told. */
struct router_port {
	const uint8_t *image;
	uint32_t pid;
	int32_t fd;
	uint32_t generation;
	uint32_t driver;	/* enum lorg_driver */
	uint64_t opener_birth;	/* of the thread that opened it */
	uint32_t opener_tid;
};
/* Calls each for the open ports of an image (NULL: of all) that were told; returns how many. each may be NULL. */
uint32_t router_ports(struct sessions *sessions, const uint8_t *image, void (*each)(void *context, const struct router_port *port),
		      void *context);

/* ---- flags.c --------------------------------------------------------------------- */

/*
 * After a restart: the flags of single ports are those of the lorgd before (adopted NULL, or without: from now on they are kept);
 * then, when sessions and families are there again, theirs are set.
 */
struct adopted; /* collector/collect/keeping.h */
void flags_take_over(struct sessions *sessions, struct adopted *adopted);
void flags_restore(struct sessions *sessions);
/* All of the session's flags are forgotten (those in arenas are cleared by session.c). */
void flags_session_ends(struct sessions *sessions, struct session *session);
/* Of all sessions, and any port: what programs are asked for because of ports. */
uint32_t flags_of_ports(const struct sessions *sessions);
/* One session's: whether any process or port has any. Ports alone. */
uint32_t flags_of_ports_of(const struct sessions *sessions, const struct session *session);
/* Ports opened from now on. Sets session->defaults.new_ports. */
void session_new_ports(struct sessions *sessions, struct session *session, int how, uint32_t flags);
/* At an OPEN: the port gets what new ones get as of then. */
void flags_port_opened(struct sessions *sessions, const struct flags_key *key, uint64_t tick);
/*
 * At an OPEN of a binding that was there before: flags that were set on PORT_GENERATION_NOW are its own; and those of new
 * ports, where its program began (at `start`) when these were asked for already.
 */
void flags_port_told(struct sessions *sessions, const struct flags_key *key, uint64_t start);
/* Recomputes slot 0 of a process entry after any other has changed. */
void process_flags_sum(const struct family *family, struct lorg_process *entry);

/* One key's histories: looked up once for many events. */
struct flags_record;
struct flags_record *flags_find(const struct flags *flags, const struct flags_key *key); /* NULL: it never had any */

/* For how long flags are what they are. */
struct flags_span {
	uint32_t flags;
	uint64_t since, until; /* ticks; of the changes that begin and end it; 0 and UINT64_MAX: none that is kept */
};
/* Around a tick. record may be NULL: none, for ever. */
struct flags_span flags_span_at(const struct flags_record *record, unsigned slot, uint64_t tick);
/* Sessions that the record has a history of: bit `slot`. */
void flags_sessions(const struct flags_record *record, uint64_t slots[SESSION_SLOTS / 64]);
/* The `since` of the span that the session's readers were told of last; *told is the caller's to change. NULL: no history. */
uint64_t *flags_told(const struct flags_record *record, unsigned slot);

/* What the session's readers were told counts no more. */
void flags_untold(struct flags *flags, unsigned slot);

/* True while any port, also one to come, has flags in the session. */
int flags_has_ports(const struct flags *flags, unsigned slot);

/* Old history goes; each pass. */
void flags_pass(struct sessions *sessions, uint64_t now_ns);

#endif
