/* SPDX-License-Identifier: MIT */
/*
 * client.h: what the files of this folder share, and what lorg's own commands
 * may ask beyond include/lorg/trace.h. Do not include abi.h beside it: it has a
 * struct lorg_session of its own.
 */
#ifndef LORG_CLIENT_CLIENT_H
#define LORG_CLIENT_CLIENT_H

#include <lorg/trace.h>

#include "collector/client/wire.h"
#include "collector/format/output.h"
#include "collector/live/live.h"

/* ---- for commands ------------------------------------------------------------- */

/* enum live_form bits that messages are made in; before the first session. LIVE_ERLANG | LIVE_JSON unless said. */
void client_forms(struct lorg_connection *connection, unsigned forms);

/* As lorg_receive(); people: the event as a line for people, without newline, where that was asked for, else NULL. */
int client_receive(struct lorg_connection *connection, int64_t timeout_ns, struct lorg_message *message, const char **people,
		   struct lorg_failure *failure);

/* What has come is told by the next call of client_receive(), without waiting for what may come together with it. */
void client_hurry(struct lorg_connection *connection);

/* {lorgd, Pid, NodeName, Epoch} */
const char *client_daemon(const struct lorg_connection *connection);

/* The number of a session; 0: its handle is a name that was not looked up. */
uint64_t client_session_number(const struct lorg_session *session);

/* ---- inside --------------------------------------------------------------------- */

/* A session whose messages come to this connection. */
struct stream {
	uint64_t number;
	char *name;
	struct live *live; /* NULL: nothing has come yet, or it has ended */
	uint64_t lost, perhaps_lost; /* events, not told yet: with what is shown next, or after a second */
	struct stream *next;
};

/* A message that waits to be fetched; texts are places in the connection's store. */
struct waiting {
	enum lorg_message_kind kind;
	const struct stream *stream;
	size_t text, json, people; /* SIZE_MAX: none */
	uint64_t time, count;
};

struct lorg_connection {
	struct wire wire;
	int poll;	 /* epoll of the socket and the timer: readable when there is something to do */
	int timer;	 /* timerfd */
	uint64_t armed;	 /* when the timer rings, ns CLOCK_MONOTONIC; 0: never, 1: at once */
	uint64_t request; /* number of the last one */
	unsigned forms;
	char *daemon;
	char *refused;
	struct stream *streams;
	uint64_t due;	   /* when gathered packets are shown, ns CLOCK_MONOTONIC; 0: none are */
	uint64_t shown_ns; /* when that was last done */
	uint64_t lost_due; /* when losses are told; 0: there are none */
	struct waiting *waiting;
	size_t waiting_first, waiting_count, waiting_room;
	struct output store; /* texts of what waits */
	const struct stream *shown_stream; /* whose packets are being shown */
};

struct lorg_session {
	struct lorg_connection *connection;
	char *handle; /* the term that requests name it by */
	uint64_t number;
};

/* receive.c. One frame that is no answer to be waited for. 0, or -1. */
int client_take_frame(struct lorg_connection *connection, const struct wire_frame *frame, struct lorg_failure *failure);
/* The stream of a session, made where it is new. NULL: out of memory. name may be NULL: not known. */
struct stream *client_stream(struct lorg_connection *connection, uint64_t number, const char *name);
void client_streams_free(struct lorg_connection *connection);
/* Sets the timer to what there is to do. */
void client_arm(struct lorg_connection *connection);

/* client.c: the answer's value, the caller's (free); NULL: *failure says why. */
char *client_request(struct lorg_connection *connection, const char *request, struct lorg_failure *failure);

#endif
