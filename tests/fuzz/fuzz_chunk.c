/* SPDX-License-Identifier: MIT */
/*
 * fuzz_chunk.c: the one place where the memory of a traced program is parsed, on whatever a program may have put there.
 *
 * The input is the beginning of a chunk; its first byte decides whether the head is made good, so that the events behind
 * it are reached. What comes out has to be a packet, whatever went in.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/abi.h>
#include <lorg/events.h>

#include "collector/collect/chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(8) uint8_t chunk[LORG_CHUNK_SIZE], copy[LORG_CHUNK_SIZE], again[LORG_CHUNK_SIZE];
static const struct chunk_bounds bounds = {1000, 1u << 30};

static void make_head_good(size_t used)
{
	struct lorg_packet *head = (struct lorg_packet *)chunk;
	head->magic = LORG_PACKET_MAGIC;
	head->stream_id = 0;
	if (head->begin < bounds.oldest || head->begin > bounds.latest)
		head->begin = bounds.oldest + (head->begin & 0xffff);
	head->position = (uint32_t)used;
}

static void require(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct chunk_summary summary, second;
	if (size < 1 || size - 1 > LORG_CHUNK_SIZE)
		return 0;
	memset(chunk, 0, sizeof chunk);
	memcpy(chunk, data + 1, size - 1);
	if (data[0] & 1)
		make_head_good(data[0] & 2 ? (size - 1) & ~(size_t)7 : LORG_CHUNK_SIZE);
	collect_chunk_copy(chunk, bounds, copy, &summary);
	if (summary.state != CHUNK_PACKET)
		return 0;
	const struct lorg_packet *head = (const struct lorg_packet *)copy;
	require(summary.length >= LORG_PACKET_HEAD && summary.length <= LORG_CHUNK_SIZE && summary.length % 8 == 0);
	require(head->packet_bits == (uint64_t)summary.length * 8 && head->content_bits <= head->packet_bits);
	require(head->begin <= head->end && head->end <= bounds.latest);
	/* A packet that is good comes out as it went in: nothing is dropped twice. */
	memcpy(chunk, copy, summary.length);
	memset(chunk + summary.length, 0, sizeof chunk - summary.length);
	((struct lorg_packet *)chunk)->position = summary.length;
	collect_chunk_copy(chunk, bounds, again, &second);
	require(second.state == CHUNK_PACKET && second.events == summary.events && second.length == summary.length);
	require(memcmp(copy + LORG_PACKET_HEAD, again + LORG_PACKET_HEAD, summary.length - LORG_PACKET_HEAD) == 0);
	return 0;
}
