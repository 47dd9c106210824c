/* SPDX-License-Identifier: MIT */
/* cause.c: see cause.h. */
#include "collector/read/cause.h"

#include <stdlib.h>
#include <string.h>

struct sent {
	uint64_t begin, end; /* bytes in the channel */
	uint64_t hlc;
};

/* Sends of one channel, oldest first; a ring that grows up to CAUSE_SENDS. */
struct channel {
	uint64_t number;
	struct sent *ring;
	uint32_t room, first, count; /* room: a power of two */
	struct channel *next;
};

enum {
	BUCKETS = 4096,
	CAUSE_DISORDER = 256, /* senders at once whose sends may stand out of the order of their bytes */
};

struct causes {
	struct channel *buckets[BUCKETS];
};

struct causes *causes_new(void)
{
	return calloc(1, sizeof(struct causes));
}

void causes_free(struct causes *causes)
{
	for (unsigned i = 0; causes && i < BUCKETS; i++)
		while (causes->buckets[i]) {
			struct channel *channel = causes->buckets[i];
			causes->buckets[i] = channel->next;
			free(channel->ring);
			free(channel);
		}
	free(causes);
}

/*
 * One entry for each place of the node's table, whatever a damaged file names. A place that was given to another object
 * starts anew.
 */
static struct channel *find(struct causes *causes, uint64_t number, int make)
{
	uint32_t place = number % LORG_CHANNELS;
	struct channel **bucket = &causes->buckets[place % BUCKETS];
	if (number == 0)
		return NULL;
	for (struct channel *channel = *bucket; channel; channel = channel->next) {
		if (channel->number % LORG_CHANNELS != place)
			continue;
		if (channel->number != number) {
			if (!make)
				return NULL;
			channel->number = number;
			channel->count = 0;
		}
		return channel;
	}
	struct channel *channel = make ? calloc(1, sizeof *channel) : NULL;
	if (!channel)
		return NULL;
	channel->number = number;
	channel->next = *bucket;
	return *bucket = channel;
}

static struct sent *at(const struct channel *channel, uint32_t position)
{
	return &channel->ring[(channel->first + position) & (channel->room - 1)];
}

static int make_room(struct channel *channel)
{
	if (channel->count < channel->room)
		return 1;
	if (channel->room == CAUSE_SENDS) { /* the oldest is given up */
		channel->first = (channel->first + 1) & (channel->room - 1);
		channel->count--;
		return 1;
	}
	uint32_t room = channel->room ? channel->room * 2 : 8;
	struct sent *ring = calloc(room, sizeof *ring);
	if (!ring)
		return 0;
	for (uint32_t i = 0; i < channel->count; i++)
		ring[i] = *at(channel, i);
	free(channel->ring);
	channel->ring = ring;
	channel->room = room;
	channel->first = 0;
	return 1;
}

void causes_send(struct causes *causes, const struct lorg_event_SEND *send, uint64_t hlc)
{
	if (send->bytes == 0 || send->offset + send->bytes < send->offset)
		return;
	struct channel *channel = find(causes, send->channel, 1);
	if (!channel || !make_room(channel))
		return;
	*at(channel, channel->count++) = (struct sent){send->offset, send->offset + send->bytes, hlc};
}

unsigned causes_receive(struct causes *causes, const struct lorg_event_RECEIVE *receive, uint64_t hlc[CAUSE_LISTED])
{
	uint64_t begin = receive->offset, end = begin + receive->bytes;
	unsigned found = 0;
	struct channel *channel = find(causes, receive->channel, 0);
	if (!channel || receive->bytes == 0 || end < begin)
		return 0;
	uint32_t beyond = 0;
	for (uint32_t i = 0; i < channel->count && found < CAUSE_LISTED && beyond < CAUSE_DISORDER; i++) {
		const struct sent *sent = at(channel, i);
		if (sent->begin < end && begin < sent->end)
			hlc[found++] = sent->hlc;
		beyond += sent->begin >= end;
	}
	/* What lies wholly before has been read; several readers may be a little apart, so one send is kept. */
	while (channel->count > 1 && !(receive->flags & LORG_MESSAGE_PEEK) && at(channel, 0)->end <= begin) {
		channel->first = (channel->first + 1) & (channel->room - 1);
		channel->count--;
	}
	return found;
}
