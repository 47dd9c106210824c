/* SPDX-License-Identifier: MIT */
/*
 * fuzz_live.c: what turns the packets of a session into messages, on hostile packets.
 *
 * The input is a row of packets: two bytes of length in words, one that says what is done with it, one that goes into its
 * head's `holds`; the rest of the head is the input's but for what would stop it at the door.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/abi.h>

#include "collector/live/live.h"
#include "no_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int tell(void *context, const struct live_message *message)
{
	size_t *bytes = context;
	*bytes += strlen(message->text) + strlen(message->erlang) + strlen(message->json);
	return *bytes > 1 << 20;
}

static void give(struct live *live, const uint8_t *bytes, size_t length, uint8_t how, uint8_t holds)
{
	struct lorg_packet head = {.magic = 0};
	uint8_t *packet = malloc(length);
	if (!packet)
		abort();
	memcpy(packet, bytes, length);
	if (length >= sizeof head) {
		memcpy(&head, packet, sizeof head);
		head.magic = LORG_PACKET_MAGIC;
		head.packet_bits = head.content_bits = length * 8;
		head.last = 0;
		head.holds = holds;
		memcpy(packet, &head, sizeof head);
	}
	if (how & 1 ? live_define(live, packet, length) : live_packet(live, packet, length))
		abort();
	free(packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct live *live = live_new(LIVE_TEXT | LIVE_ERLANG | LIVE_JSON);
	size_t bytes = 0;
	while (live && size > 4) {
		size_t length = ((size_t)data[0] | (size_t)data[1] << 8) * 8;
		uint8_t how = data[2], holds = data[3];
		data += 4;
		size -= 4;
		length = length < size ? length : size;
		give(live, data, length, how, holds);
		if (how & 2)
			live_show(live, tell, &bytes);
		data += length;
		size -= length;
	}
	if (live)
		live_show(live, tell, &bytes);
	live_free(live);
	return 0;
}
