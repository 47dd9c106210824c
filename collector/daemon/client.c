/* SPDX-License-Identifier: MIT */
/* client.c: see client.h. */
#include "collector/daemon/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/daemon/connection.h"
#include "collector/daemon/protocol.h"
#include "collector/event/event.h"

static const uint64_t DEFAULT_LIMIT = 64 << 20;

struct client {
	struct tracer tracer;
	struct connection *connection; /* NULL: gone */
	struct connection_account account;
	int persist;
	uint64_t lost, perhaps_lost; /* to be told */
	char term[48];
};

static struct client *client_of(const struct tracer *tracer)
{
	return (struct client *)(uintptr_t)tracer;
}

static uint64_t limit_of(const struct client *client)
{
	return client->tracer.memory_limit ? client->tracer.memory_limit : DEFAULT_LIMIT;
}

/* Those that are shown: what is only for reading others with is no loss to tell of. */
static uint64_t events_in(const struct lorg_packet *packet, size_t length)
{
	const uint8_t *bytes = (const uint8_t *)packet;
	uint64_t count = 0, previous = packet->begin;
	if (packet->holds & LORG_HOLDS_UNSHOWN)
		return 0;
	for (size_t at = LORG_PACKET_HEAD; at + 8 <= length;) {
		struct event_view view;
		enum event_status status = event_decode(bytes + at, length - at, previous, &view);
		if (status == EVENT_BAD || !view.length)
			break;
		count += status == EVENT_OK;
		previous = status == EVENT_OK ? view.tick : previous;
		at += view.length;
	}
	return count;
}

static int tell_lost(struct client *client)
{
	const struct frame_lost lost = {client->lost, client->perhaps_lost};
	if (!(lost.count | lost.perhaps))
		return 0;
	if (connection_put(client->connection, FRAME_LOST, client->tracer.number, &lost, sizeof lost, &client->account))
		return -1;
	client->lost = client->perhaps_lost = 0;
	return 0;
}

static int has_room(const struct client *client, const struct lorg_packet *packet, size_t length)
{
	/* Without what others are read with, what comes later would have no names. */
	uint64_t limit = packet->holds & LORG_HOLDS_DEFINITIONS ? 2 * limit_of(client) : limit_of(client);
	return client->account.waiting + length <= limit;
}

static uint64_t client_packet(struct tracer *tracer, struct lorg_packet *packet, size_t length)
{
	struct client *client = client_of(tracer);
	if (client->connection && has_room(client, packet, length) && tell_lost(client) == 0 &&
	    connection_put(client->connection, FRAME_PACKET, tracer->number, packet, length, &client->account) == 0)
		return 0;
	uint64_t lost = events_in(packet, length);
	client->lost += lost;
	return lost;
}

static void client_delivered(struct tracer *tracer, const char *term)
{
	struct client *client = client_of(tracer);
	/* What was lost before it, too; a tracer that is far behind is told later. */
	if (client->connection && client->account.waiting <= limit_of(client) / 2)
		tell_lost(client);
	if (client->connection)
		connection_put(client->connection, FRAME_DELIVERED, tracer->number, term, strlen(term), NULL);
}

static void client_lost(struct tracer *tracer, uint64_t count, uint64_t perhaps)
{
	client_of(tracer)->lost += count;
	client_of(tracer)->perhaps_lost += perhaps;
}

static void client_end(struct tracer *tracer, const char *why)
{
	struct client *client = client_of(tracer);
	if (client->connection) {
		tell_lost(client);
		connection_put(client->connection, FRAME_ENDED, tracer->number, why, strlen(why), NULL);
		connection_settle(client->connection, &client->account);
	}
	free(client);
}

static enum tracer_state client_state(const struct tracer *tracer, const char **why)
{
	const struct client *client = client_of(tracer);
	if (client->connection || client->persist)
		return TRACER_FINE;
	*why = "its client has gone";
	return TRACER_GONE;
}

static uint64_t client_waiting(const struct tracer *tracer)
{
	return client_of(tracer)->account.waiting;
}

static const char *client_term(const struct tracer *tracer)
{
	return client_of(tracer)->term;
}

/* Where nothing else comes, what was lost is told all the same. */
static void client_pass(struct tracer *tracer)
{
	struct client *client = client_of(tracer);
	if (client->connection && (client->lost | client->perhaps_lost) && client->account.waiting <= limit_of(client) / 2)
		tell_lost(client);
}

static const struct tracer_operations operations = {
	.packet = client_packet,
	.delivered = client_delivered,
	.lost = client_lost,
	.end = client_end,
	.state = client_state,
	.waiting = client_waiting,
	.pass = client_pass,
	.term = client_term,
	.is_process = 1,
};

int client_is(const struct tracer *tracer)
{
	return tracer->operations == &operations;
}

struct connection *client_connection(const struct tracer *tracer)
{
	return client_of(tracer)->connection;
}

void client_connect(struct tracer *tracer, struct connection *connection)
{
	struct client *client = client_of(tracer);
	if (client->connection)
		connection_settle(client->connection, &client->account);
	client->account.waiting = 0;
	client->connection = connection;
	if (connection)
		snprintf(client->term, sizeof client->term, "<%d.%d.0>", connection->pid, connection->pid);
	else
		snprintf(client->term, sizeof client->term, "[]");
}

struct tracer *client_tracer(struct connection *connection, int persist)
{
	struct client *client = calloc(1, sizeof *client);
	if (!client)
		return NULL;
	client->tracer.operations = &operations;
	client->persist = persist;
	client_connect(&client->tracer, connection);
	return &client->tracer;
}
