/* SPDX-License-Identifier: MIT */
/*
 * connection.h: one client of lorgd: frames in, frames out (protocol.h), never
 * waiting. What the peer sends may be anything: memory grows with what has
 * arrived, never with what is announced.
 *
 * One thread.
 */
#ifndef LORG_DAEMON_CONNECTION_H
#define LORG_DAEMON_CONNECTION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	CONNECTION_READ = 1 << 16,	     /* bytes taken at once */
	CONNECTION_OUTPUT_PAUSE = 4 << 20,   /* more answers than that wait to be read: no more requests are served */
	CONNECTION_TEXT_PAUSE = 64 << 20,    /* more than that waits: no text of tracer modules is added */
	CONNECTION_FIRST_REQUEST = 256,	     /* bytes of a request before the first one is answered */
};

/* Bytes of half-received requests of all connections together; whoever goes beyond is closed. */
enum { CONNECTION_INPUT_ALL = 64 << 20 };

/* Whose bytes a frame is made of, so that it knows how many still wait. */
struct connection_account {
	uint64_t waiting;
};

struct output; /* a frame on its way out */

struct connection {
	int descriptor;
	pid_t pid; /* of the peer, when it connected */
	int greeted;	/* hello was said */
	int failed;	/* to be closed */
	int ended;	/* its peer says no more: to be closed once all it said is answered */
	int closing;	/* to be closed once all is sent */
	void *waits_for; /* the answer to its request comes later; NULL: none */
	int again;	 /* its next frame was looked at, and is served at the next pass */
	uint64_t since_ns, active_ns;
	uint8_t *input;
	size_t input_length, input_room, input_taken;
	uint64_t *input_of_all; /* sum of input_room */
	struct output *first, *last;
	struct output *last_answer; /* of those that wait; NULL: none */
	size_t output_length; /* bytes that wait, all frames */
	size_t answers_length; /* of those, answers */
	uint32_t watched, ready; /* events: what epoll watches for, and what it told */
};

struct frame {
	uint16_t kind;
	uint64_t number;
	const char *data; /* the connection's; not terminated; valid until the next call */
	uint32_t length;
};

/* Takes the descriptor over, which is non-blocking. NULL: no memory. */
struct connection *connection_create(int descriptor, uint64_t *input_of_all);
void connection_free(struct connection *connection);

/* Takes what has arrived, at most CONNECTION_READ bytes. Sets ended, or failed at an error and where limits are passed. */
void connection_receive(struct connection *connection);
/* The next whole frame: 1; 0: there is none. Sets failed where what has arrived is none. */
int connection_next(struct connection *connection, struct frame *frame);
/* True where connection_next would find one, or fail. */
int connection_has_frame(const struct connection *connection);

/* The frame that connection_next gave last is the next one again. */
void connection_unread(struct connection *connection, const struct frame *frame);

/*
 * Puts a frame behind those that wait; an answer before all that are none: who asks in the middle of a flood of packets is
 * not to take them all first. account may be NULL. 0, or -1: no memory. */
int connection_put(struct connection *connection, uint16_t kind, uint64_t number, const void *data, size_t length,
		   struct connection_account *account);
/* The account is no more: its frames go on without it. */
void connection_settle(struct connection *connection, const struct connection_account *account);
/* Sends what can be sent. Sets failed. */
void connection_send(struct connection *connection);

#endif
