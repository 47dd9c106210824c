/* SPDX-License-Identifier: MIT */
/* definitions.c: see definitions.h. */
#include "preload/core/definitions.h"

static int is_definition(uint16_t id)
{
	switch (id) {
	case LORG_EVENT_SPAWNED:
	case LORG_EVENT_REGISTER:
	case LORG_EVENT_IMAGE:
	case LORG_EVENT_MODULE:
	case LORG_EVENT_MODULE_UNLOADED:
	case LORG_EVENT_FUNCTION:
	case LORG_EVENT_HOOKED_FUNCTION:
	case LORG_EVENT_STRING:
	case LORG_EVENT_GAP: return 1;
	default: return 0;
	}
}

uint32_t definitions_keep(struct lorg_packet *packet, uint32_t *dropped)
{
	uint32_t end = packet->position < LORG_CHUNK_SIZE ? packet->position : LORG_CHUNK_SIZE, to = LORG_PACKET_HEAD;
	*dropped = 0;
	for (uint32_t at = LORG_PACKET_HEAD, length; at + 8 <= end; at += length) {
		uint64_t *word = (uint64_t *)((char *)packet + at);
		uint16_t id = (uint32_t)*word == LORG_EVENT_EXTENDED ? (uint16_t)(*word >> 32) : 0;
		length = event_written_length(word);
		if (!length || length > end - at) {
			length = 8; /* what was begun and never written */
		} else if (is_definition(id)) {
			memmove((char *)packet + to, word, length);
			to += length;
		} else {
			*dropped += id != LORG_EVENT_WITHDRAWN;
		}
	}
	memset((char *)packet + to, 0, LORG_CHUNK_SIZE - to);
	return to;
}

void definitions_restamp(struct lorg_packet *packet, uint32_t end, uint64_t tick)
{
	for (uint32_t at = LORG_PACKET_HEAD, length; at < end; at += length) {
		char *event = (char *)packet + at;
		length = event_written_length((uint64_t *)event);
		if (!length)
			return;
		memcpy(event + __builtin_offsetof(struct lorg_extended, tick), &tick, sizeof tick);
	}
}
