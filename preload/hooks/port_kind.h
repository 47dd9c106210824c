/* SPDX-License-Identifier: MIT */
/*
 * port_kind.h: what a descriptor is, and by which channels it moves bytes. For
 * port_table.c; no function here touches the table.
 */
#ifndef LORG_PRELOAD_PORT_KIND_H
#define LORG_PRELOAD_PORT_KIND_H

#include "preload/hook.h"

/* Third part of a channel's key. */
enum direction {
	DIRECTION_OUT,     /* what the object's holder writes */
	DIRECTION_IN,      /* what it reads */
	DIRECTION_THROUGH, /* pipes, queues: one for both ends */
	DIRECTION_TCP,
	DIRECTION_UDP,
	DIRECTION_NAME, /* a name of an AF_UNIX datagram socket */
	DIRECTION_SYSV,
	DIRECTION_COUNTER, /* eventfd */
	DIRECTION_LANE,    /* one priority or type of a queue */
	DIRECTION_LISTENER,	 /* an AF_UNIX socket that connections are made to: no bytes, see port_meeting.h */
	DIRECTION_NAME_FILE,	 /* its name, which is an alias of it */
	DIRECTION_NAME_ABSTRACT,
};

/*
 * Looks at fd by system calls and fills *port, but for its history; without
 * them (seccomp) its driver is unknown. Returns its O_ flags, or -1: it is not open.
 */
HIDDEN int port_classify(struct port *port, int fd);

/* The same for a descriptor that is known to be a message queue. */
HIDDEN void port_classify_queue(struct port *port, int fd);

/* Fills inode and device. */
HIDDEN void port_take_inode(struct port *port, int fd);

/* What /proc/self/fd says; no descriptor is needed for it. Returns its length, 0: not told. */
HIDDEN uint32_t descriptor_name(int fd, char *to, uint32_t room);

/* True where bytes have no borders, or where 0 bytes mean the end as they do there. */
HIDDEN int driver_is_stream(enum lorg_driver driver);
HIDDEN int driver_is_socket(enum lorg_driver driver);

/* Channels that need nothing but the inode; those of sockets are left pending. */
HIDDEN void port_find_plain_channels(struct port *port);

/* A channel that only this family of images can know. */
HIDDEN uint32_t port_private_channel(const struct port *port, int fd);

/* The channels of an accepted socket whose peer is known. */
HIDDEN void port_meet_channels(struct port *port, uint64_t peer_device, uint64_t peer_inode);

/* What one end of a socketpair or pipe writes, the other reads. */
HIDDEN void port_pair_channels(struct port ports[2], const int pair[2]);

#endif
