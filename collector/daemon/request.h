/* SPDX-License-Identifier: MIT */
/*
 * request.h: what is asked over a connection (protocol.h), checked as trace(3)
 * says, done, and answered.
 *
 * Nothing of a request is believed before it is checked, and one that is
 * refused has changed nothing.
 */
#ifndef LORG_DAEMON_REQUEST_H
#define LORG_DAEMON_REQUEST_H

#include <stdint.h>

#include "collector/daemon/connection.h"

struct sessions;
struct pending; /* a request whose answer comes later */

struct service {
	struct sessions *sessions;
	const char *node_name;
	uint64_t epoch; /* 1, and one more for each restart */
	/* Programs that have come, and what has ended: noticed before a request that asks for them. NULL: nothing to do. */
	void (*refresh)(void *context);
	void *context;
	uint64_t references; /* given so far */
	struct pending *pending;
};

/* Serves one frame (connection->again: not yet); the answer is put into the connection, here or (connection->waits_for) later. */
void service_request(struct service *service, struct connection *connection, const struct frame *frame);
/* The connection is about to be freed: sessions that are its own go, and answers that it waits for. */
void service_forget(struct service *service, struct connection *connection);

#endif
