/* SPDX-License-Identifier: MIT */
/* client.h: a tracer that is a client of lorgd: packets become frames of its connection. */
#ifndef LORG_DAEMON_CLIENT_H
#define LORG_DAEMON_CLIENT_H

#include "collector/session/tracer.h"

struct connection;

/*
 * NULL: no memory. persist: when the connection goes, the session stays, and loses (and counts) its events until another
 * client takes it up.
 */
struct tracer *client_tracer(struct connection *connection, int persist);
/* True for a tracer that was made here. */
int client_is(const struct tracer *tracer);
/* Its connection; NULL: that has gone. */
struct connection *client_connection(const struct tracer *tracer);
/* The connection goes, or (not NULL) another one takes its place. */
void client_connect(struct tracer *tracer, struct connection *connection);

#endif
