/* SPDX-License-Identifier: MIT */
/* packet.c: see packet.h. */
#include "collector/store/packet.h"

#include <string.h>

#include "collector/event/event.h"

void packet_begin(struct packet_builder *packet, void *buffer, uint32_t capacity, uint64_t tick)
{
	packet->head = buffer;
	packet->capacity = capacity;
	packet->length = LORG_PACKET_HEAD;
	packet->event_count = 0;
	memset(buffer, 0, LORG_PACKET_HEAD);
	packet->head->magic = LORG_PACKET_MAGIC;
	packet->head->begin = tick;
	packet->head->end = tick;
	packet->head->earliest = tick;
	packet->head->content_bits = (uint64_t)LORG_PACKET_HEAD * 8;
	packet->head->packet_bits = (uint64_t)LORG_PACKET_HEAD * 8;
}

static size_t bytes_kept(size_t length)
{
	return length < LORG_TEXT_MAXIMUM ? length : LORG_TEXT_MAXIMUM;
}

/* Writes the lengths of `bytes` into the x_length fields, in order. */
static void set_lengths(uint8_t *fields, const struct event_description *description, const struct packet_bytes *bytes,
			unsigned count)
{
	unsigned next = 0;
	for (unsigned i = 0; i < description->field_count; i++) {
		const struct event_field *field = &description->field[i];
		if (field->kind != FIELD_TEXT && field->kind != FIELD_BLOB)
			continue;
		uint32_t length = next < count ? (uint32_t)bytes_kept(bytes[next].length) : 0;
		memcpy(fields + field->offset, &length, sizeof length);
		next++;
	}
}

int packet_event(struct packet_builder *packet, uint16_t id, uint64_t tick, const void *fields, const struct packet_bytes *bytes,
		 unsigned count)
{
	const struct event_description *description = event_description(id);
	if (!description)
		return -1;
	size_t content = sizeof(struct lorg_extended) + description->size;
	for (unsigned i = 0; i < count; i++)
		content += bytes_kept(bytes[i].length);
	size_t length = (content + 7) & ~(size_t)7;
	if (length > UINT16_MAX || length > packet->capacity - packet->length)
		return -1;

	uint8_t *at = (uint8_t *)packet->head + packet->length;
	struct lorg_extended extended = {LORG_EVENT_EXTENDED, id, (uint16_t)length, tick};
	memcpy(at, &extended, sizeof extended);
	memcpy(at + sizeof extended, fields, description->size);
	set_lengths(at + sizeof extended, description, bytes, count);
	uint8_t *end = at + sizeof extended + description->size;
	for (unsigned i = 0; i < count; i++) {
		size_t kept = bytes_kept(bytes[i].length);
		if (kept)
			memcpy(end, bytes[i].data, kept);
		end += kept;
	}
	memset(end, 0, (size_t)(at + length - end));

	packet->length += (uint32_t)length;
	packet->event_count++;
	packet->head->end = tick;
	/* Readers of CTF take what is within the content for one more event: it ends before the last one's padding. */
	packet->head->content_bits = (uint64_t)(packet->length - length + content) * 8;
	packet->head->packet_bits = (uint64_t)packet->length * 8;
	return 0;
}
