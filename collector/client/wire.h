/* SPDX-License-Identifier: MIT */
/*
 * wire.h: frames (collector/daemon/protocol.h) on a socket. Nothing raises
 * SIGPIPE. One thread.
 */
#ifndef LORG_CLIENT_WIRE_H
#define LORG_CLIENT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/trace.h>

#include "collector/daemon/protocol.h"

struct wire {
	int fd;		 /* -1: closed */
	int ended;	 /* the other side has closed; what has come is still there */
	uint8_t *bytes;	 /* that have come and were not taken */
	size_t at, length, room;
};

/* The directory of the socket; `size` bytes. 0, or -1 when the name is too long or cannot be known. */
int wire_directory(char *directory, size_t size, struct lorg_failure *failure);
/* 0, or -1. */
int wire_connect(struct wire *wire, const char *directory, struct lorg_failure *failure);
void wire_close(struct wire *wire);

/* Sends one frame, waiting for room. What comes meanwhile is kept. 0, or -1. */
int wire_send(struct wire *wire, enum frame_kind kind, uint64_t number, const void *bytes, size_t length, struct lorg_failure *failure);

struct wire_frame {
	struct frame_head head;
	const uint8_t *bytes; /* head.length of them; valid until the next call */
};

/* Takes the next frame of what has come: 1; 0: none is whole; -1: it cannot be one. */
int wire_take(struct wire *wire, struct wire_frame *frame, struct lorg_failure *failure);
int wire_has_frame(const struct wire *wire);
/* Reads what has come: 1 something; 0 nothing, or the other side has closed (wire->ended); -1. */
int wire_read(struct wire *wire, struct lorg_failure *failure);
/* Waits until there is something to read; timeout_ns -1: for ever. 0, or -1. */
int wire_wait(struct wire *wire, int64_t timeout_ns, struct lorg_failure *failure);

#endif
