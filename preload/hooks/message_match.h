/* SPDX-License-Identifier: MIT */
/*
 * message_match.h: match specifications of messages (trace:send/3, trace:recv/3): [Receiver, Msg] and
 * [Node, Sender, Msg]. To be asked before an event is written, where the_arena.message_programs says that there are any.
 *
 * Each session has its own. So one message may be several events: one for all sessions that have no specification and
 * ask for it by the flags of the process or of ports, and one for each whose specification lets it through.
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

/* What of a message is to be written: fields of its events. */
struct matched_event {
	uint32_t session, as_port;
	struct event_bytes value; /* of {message, V}; valid during the call */
};
typedef void matched_write(void *context, const struct matched_event *event);

/* Calls `write` for each event that is to be written of the message. */
HIDDEN void message_tell(struct thread *self, const struct matched_bytes *bytes, matched_write *write, void *context);
/* The same of {signal, sigterm}. target, to_pid, to_tid: as in SIGNAL_SENT events. */
HIDDEN void signal_sent_tell(struct thread *self, const struct lorg_event_SIGNAL_SENT *event, matched_write *write, void *context);

/* Write such events, where they pass; those of the atom timeout have no sender. */
HIDDEN void write_signal_received(struct thread *self, struct lorg_event_SIGNAL_RECEIVED *event);
HIDDEN void write_timeout(struct thread *self, const struct lorg_event_TIMEOUT *event);

#endif
