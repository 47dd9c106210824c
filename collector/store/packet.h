/* SPDX-License-Identifier: MIT */
/*
 * packet.h: builds a CTF packet of events that the collector itself writes.
 * No function allocates or fails otherwise than by having no room.
 */
#ifndef LORG_STORE_PACKET_H
#define LORG_STORE_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>
#include <lorg/events.h>

struct packet_builder {
	struct lorg_packet *head; /* at the start of the caller's buffer, which is aligned to 8 bytes */
	uint32_t capacity;	  /* bytes of the buffer */
	uint32_t length;	  /* bytes used so far, head included; a multiple of 8 */
	uint32_t event_count;
};

/* Bytes of a TEXT or BLOB field. */
struct packet_bytes {
	const void *data;
	size_t length; /* cut to LORG_TEXT_MAXIMUM, and to what fits into an event */
};

static inline struct packet_bytes packet_text(const char *text)
{
	return (struct packet_bytes){text, text ? __builtin_strlen(text) : 0};
}

/* An empty packet that begins at `tick`. capacity: more than LORG_PACKET_HEAD. */
void packet_begin(struct packet_builder *packet, void *buffer, uint32_t capacity, uint64_t tick);

/*
 * Appends one event in extended form. `fields` are its fixed fields; the x_length fields among them are set here,
 * in order, from `bytes`. tick: not less than that of the event before. Returns 0, or -1 when there is no room.
 */
int packet_event(struct packet_builder *packet, uint16_t id, uint64_t tick, const void *fields, const struct packet_bytes *bytes,
		 unsigned count);

/* For events without TEXT and BLOB fields. */
#define PACKET_EVENT(packet, NAME, tick, ...) \
	packet_event(packet, LORG_EVENT_##NAME, tick, &(struct lorg_event_##NAME){__VA_ARGS__}, NULL, 0)

#endif
