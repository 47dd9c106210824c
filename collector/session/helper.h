/* SPDX-License-Identifier: MIT */
/*
 * helper.h: between lorgd and a process that is a session's tracer: `lorg-commands tracer-text` and `tracer-module`. It
 * reads frames as a client of the session does (collector/daemon/protocol.h: FRAME_PACKET, FRAME_LOST, FRAME_ENDED) from its
 * standard input, a socket, and says on the same what follows.
 */
#ifndef LORG_SESSION_HELPER_H
#define LORG_SESSION_HELPER_H

#include "collector/daemon/protocol.h"

enum helper_frame {
	HELPER_TEXT = 64,   /* a message for the session's creator: a term */
	HELPER_REMOVE = 65, /* struct helper_tracee: its flags in the session go */
	HELPER_FAILED = 66, /* text: why it cannot be; the last one */
};

enum { HELPER_FRAME_MAXIMUM = 1 << 20 };

/* A process, or a port of a program. */
struct helper_tracee {
	uint32_t pid, tid, runtime_process;
	int32_t fd; /* -1: a process */
	uint32_t generation, reserved;
};

#endif
