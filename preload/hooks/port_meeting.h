/* SPDX-License-Identifier: MIT */
/*
 * port_meeting.h: which connect an accepted AF_UNIX connection comes from.
 *
 * The accepting end is not told its peer's inode, by which the connection's
 * channels are known. So a connecting program writes what it is about to do
 * into the node's table of connects, under the listening socket and its own
 * pid; who accepts asks the kernel for the peer's pid (SO_PEERCRED) and takes
 * the connect that was first in the queue. Where it cannot be told which one
 * that was (connects of one program that overlap, several accepts at once),
 * the connection is counted, but not told: no edge rather than a wrong one.
 * A listener whose connects could not all be followed has none any more.
 *
 * Only listeners that were given their name by a traced program are known.
 * All functions are async-signal-safe and make system calls only while they are
 * allowed. No lock is held: who is killed in the middle leaves at most doubt.
 */
#ifndef LORG_PRELOAD_PORT_MEETING_H
#define LORG_PRELOAD_PORT_MEETING_H

#include "preload/hook.h"

/* What a call of connect or accept takes with it, in two words of its scratch. All zero: nothing to follow. */
struct __attribute__((may_alias)) meeting {
	uint32_t listener; /* channel */
	uint32_t entry;	   /* in the table of connects, + 1; 0: none */
	uint32_t count;	   /* times that the entry was used */
	uint32_t reserved;
};
_Static_assert(sizeof(struct meeting) == 16, "two words of scratch");

/* The socket that an accepted connection was made by. inode 0: not known. */
struct meeting_peer {
	uint64_t device, inode;
};

/* Stream and seqpacket sockets of AF_UNIX. */
static inline int port_meets(const struct port *port)
{
	return port->driver == LORG_DRIVER_UNIX || port->driver == LORG_DRIVER_UNIX_SEQPACKET;
}

/* bind has succeeded. address: what the kernel says that the name is. */
HIDDEN void meeting_named(const struct port *port, int fd, const void *address, uint32_t length);

/* Around connect. address: the program's, read without faults. */
HIDDEN void meeting_connects(struct meeting *meeting, const struct port *port, int fd, const void *address, uint64_t length);
HIDDEN void meeting_connected(const struct meeting *meeting, int fd, const void *address, uint64_t length, int success);

/* Around accept. fd: the new one, or -1 with `error`. */
HIDDEN void meeting_accepts(struct meeting *meeting, const struct port *port);
HIDDEN struct meeting_peer meeting_accepted(const struct meeting *meeting, int fd, int error);

#endif
