/* SPDX-License-Identifier: MIT */
/*
 * synthetic.h: stream files made up in memory, for tests of what reads them.
 * A stream is a row of packets; events go into the packet begun last.
 */
#ifndef LORG_TESTS_SYNTHETIC_H
#define LORG_TESTS_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>
#include <lorg/events.h>

#include "collector/read/trace.h"
#include "collector/store/packet.h"

struct synthetic {
	_Alignas(8) uint8_t packet[1 << 16];
	struct packet_builder builder;
	int open;
	uint64_t last; /* tick of the event before */
	uint64_t sequence;
	uint8_t *bytes;
	size_t length;
};

struct synthetic_process {
	uint8_t image; /* every byte of its id */
	uint32_t pid, tid;
	uint64_t birth;
};

/* Begins a packet of that process; one that is open is ended first. */
void synthetic_packet(struct synthetic *stream, struct synthetic_process process, uint64_t begin);
/* The head of the packet in hand, to change it. */
struct lorg_packet *synthetic_head(struct synthetic *stream);
/* An event in extended form, as packet_event(). */
void synthetic_event(struct synthetic *stream, uint16_t id, uint64_t tick, const void *fields,
		     const struct packet_bytes *bytes, unsigned count);
/* A compact event of one or two 32-bit fields. */
void synthetic_compact(struct synthetic *stream, uint32_t id, uint64_t tick, uint32_t first, uint32_t second);
/* Any words. */
void synthetic_raw(struct synthetic *stream, const void *bytes, size_t length);
/* Ends the packet in hand; checksum 1: puts a checksum into its head. */
void synthetic_end(struct synthetic *stream, int checksum);
void synthetic_free(struct synthetic *stream);

/* A clock of one tick a nanosecond from 0, in stream-0. */
void synthetic_clock(struct synthetic *stream);

/* The trace of `count` streams, all ended; a test fails when it cannot be opened. */
struct trace *synthetic_open(struct synthetic *streams, unsigned count);

#define SYNTHETIC_EVENT(stream, NAME, tick, ...)                                                                            \
	synthetic_event(stream, LORG_EVENT_##NAME, tick, &(struct lorg_event_##NAME){__VA_ARGS__}, NULL, 0)

#endif
