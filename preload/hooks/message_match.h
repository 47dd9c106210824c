/* SPDX-License-Identifier: MIT */
/*
 * message_match.h: match specifications of messages (trace:send/3, trace:recv/3): [Receiver, Msg] and
 * [Node, Sender, Msg]. To be asked before an event is written, where the_arena.message_programs says that there are any.
 *
 * Each returns 1: write it, with run->message added, and call match_end behind it; 0: do not, and nothing is to be ended.
 */
#ifndef LORG_PRELOAD_MESSAGE_MATCH_H
#define LORG_PRELOAD_MESSAGE_MATCH_H

#include <sys/uio.h>

#include "preload/call/match.h"

/* Bytes that were moved, and where they lie. */
struct matched_bytes {
	uint64_t bytes;	    /* moved; matching sees the first LORG_MESSAGE_MAXIMUM */
	const void *buffer; /* NULL: iovec, or nothing */
	uint64_t room;	    /* of buffer */
	const struct iovec *iovec;
	uint64_t iovec_count;
	uint64_t object; /* as in SEND events */
	uint32_t generation;
	uint8_t sends;
	uint8_t eof;	    /* 1: end of stream: Msg is the atom eof */
	uint8_t not_copied; /* 1: the bytes were never here: Msg is the atom undefined */
	uint8_t may_fault;  /* 1: of a call that failed */
};
HIDDEN int message_passes(struct match_run *run, struct thread *self, const struct matched_bytes *bytes);

/* {signal, sigterm}. target, to_pid, to_tid: as in SIGNAL_SENT events. */
HIDDEN int signal_sent_passes(struct match_run *run, struct thread *self, const struct lorg_event_SIGNAL_SENT *event);
HIDDEN int signal_received_passes(struct match_run *run, struct thread *self, const struct lorg_event_SIGNAL_RECEIVED *event);
/* The atom timeout, from nobody. */
HIDDEN int timeout_passes(struct match_run *run, struct thread *self);

/* Write such an event, if it passes. */
HIDDEN void write_signal_received(struct thread *self, struct lorg_event_SIGNAL_RECEIVED *event);
HIDDEN void write_timeout(struct thread *self, const struct lorg_event_TIMEOUT *event);

#endif
