/* SPDX-License-Identifier: MIT */
/*
 * protocol.h: what goes over the control socket of lorgd, DIRECTORY/control.
 *
 * A stream of frames in both directions: struct frame_head, then `length`
 * bytes. Numbers are little endian. Requests and answers are terms as text in
 * Erlang's syntax, UTF-8, so that what is said can be read on the wire.
 *
 * The peer is known by SO_PEERCRED before its first byte is looked at: the
 * daemon serves its own user, and root; others are told so and closed. The
 * first request has to be {hello, Major, Minor}; another major is refused.
 *
 * Requests, and what they answer ({ok, Value}, or {error, Kind, "Sentence"} with
 * Kind badarg, system_limit, not_allowed, internal):
 *
 *   {hello, Major, Minor}                      {ok, {lorgd, Pid, NodeName, Epoch}}
 *   {session_create, Name, Tracer, Options}    {ok, {Name, Number}}
 *   {session_destroy, Session}                 true, false
 *   {session_info, Of}                         [{Name, Number} ..] or undefined
 *   {session_limit, Session, [{events, N}, {rate, N}, {memory, N}]}   true. rate: a second, {N, Ns}: in so many ns
 *   {process, Session, Procs, How, FlagList}   number
 *   {port, Session, Ports, How, FlagList}      number
 *   {function, Session, Pattern, Match, Options}   {Number, [{{M,F,A}, "why"} ..]}: functions, and those that were refused
 *   {send, Session, Match, Options}            1
 *   {recv, Session, Match, Options}            1
 *   {system, Session, Event, Value}            ok
 *   {info, Session, Of, Item}                  as trace(3)
 *   {delivered, Session, Tracee}               reference
 *   {programs}                                 [{Pid, "File", [Session ..]} ..]
 *   {tracer, Session}                          what takes its events: {directory, "PATH"}, ...; a client: its pid, or []
 *   {adopt, Session}                           true: the asking connection becomes the tracer of a persistent session whose
 *                                              client has gone
 *
 * Procs, Of, Tracee: a pid <PROGRAM.THREAD.N>, an integer (all threads of that program), or an atom of trace(3).
 * Pattern: {M,F,A} of exact names and '_', on_load, or a string "MODULE:FUNCTION/ARITY" with globs (collector/plan/pattern.h).
 * Match: as in trace(3), or {'if', "CONDITION"} in the short form.
 * Session: {Name, Number}, a Number, or a Name that is unique. Tracer: as in include/lorg/trace.h.
 * Requests of one connection are answered in their order.
 */
#ifndef LORG_DAEMON_PROTOCOL_H
#define LORG_DAEMON_PROTOCOL_H

#include <stdint.h>

enum { PROTOCOL_MAJOR = 1, PROTOCOL_MINOR = 0 };

enum frame_kind {
	FRAME_REQUEST = 1, /* number, term */
	FRAME_ANSWER = 2,  /* number of the request, term */
	/* To a client tracer. number: of the session. */
	FRAME_PACKET = 3,    /* one CTF packet, as in a stream file: struct lorg_packet and events */
	FRAME_DELIVERED = 4, /* the term {trace_delivered, Tracee, Ref}; after all packets that it speaks of */
	FRAME_LOST = 5,	     /* struct frame_lost */
	FRAME_ENDED = 6,     /* text: why the session is no more */
	FRAME_TEXT = 7,	     /* a message that the session's tracer module lets through, to its creator: a term */
};

/* Events that were dropped since the last frame; and those of which it is not known whether the session would have had them. */
struct frame_lost {
	uint64_t count, perhaps;
};

/* What FRAME_ENDED says where lorgd goes on at once as a new one: what was asked may be asked again. */
#define ENDED_BY_RESTART "lorgd is started again"

enum {
	FRAME_REQUEST_MAXIMUM = 1 << 20, /* bytes; a longer one closes the connection */
	FRAME_PACKET_MAXIMUM = 1 << 17,
};

struct frame_head {
	uint32_t length; /* of what follows */
	uint16_t kind;	 /* enum frame_kind */
	uint16_t reserved;
	uint64_t number;
};

_Static_assert(sizeof(struct frame_head) == 16, "frame_head");

#endif
