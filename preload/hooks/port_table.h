/* SPDX-License-Identifier: MIT */
/*
 * port_table.h: what the hooks of ports and messages need of the table of
 * descriptors beyond hook.h.
 *
 * The table is private to the program and has no locks: an entry is written by
 * the thread that binds or closes its number, and by whoever uses a number
 * first. Two threads that bind and close the same number at once are a race of
 * the program's own; the entry may then be odd, never dangerous. A wrong entry
 * is put right when a hook sees the number bound again.
 *
 * In a child that shares its parent's memory (vfork, posix_spawn) the table is
 * the parent's: it is read there, never written.
 *
 * All functions are async-signal-safe. System calls are made once a binding
 * and only while system_calls_allowed().
 */
#ifndef LORG_PRELOAD_PORT_TABLE_H
#define LORG_PRELOAD_PORT_TABLE_H

#include "preload/hook.h"
#include "preload/hooks/spawn.h"

enum { PORT_ADDRESS_MAXIMUM = 128 };

/* hook field of an OPEN whose binding no hook saw. */
#define PORT_INHERITED UINT32_MAX

/* What a hook knows about a descriptor it has just seen bound; all zero: nothing. */
struct port_origin {
	uint32_t hook;
	int from;            /* descriptor that it duplicates, -1 none */
	uint8_t driver;      /* enum lorg_driver; NONE: find out */
	uint8_t kind;        /* enum port_kind, where driver is not NONE or kind is not PORT */
	uint8_t access;      /* as in struct port, with `driver` */
	uint8_t nonblocking; /* with `driver` */
	uint32_t flags;      /* O_ flags to be told */
	const char *name;    /* of a FIFO, a tty, a queue; NULL: none */
	uint32_t name_length;
	const void *peer; /* sockaddr, NULL: none */
	uint32_t peer_length;
	uint8_t connected; /* 1: ask for the local address */
	uint64_t met_device, met_inode; /* the connecting socket of an accepted one; inode 0: not known */
};

/* The first numbers, which most programs do not go beyond; static. Owner: port_table.c. */
enum { PORT_BLOCK = 1024 };
extern HIDDEN struct port port_first_block[PORT_BLOCK];

/* 1: this thread has a table of descriptors of its own, which is not the one kept here. */
extern HIDDEN __thread uint32_t port_own_descriptors __attribute__((tls_model("initial-exec")));

/* The calling thread is about to leave, or has left, the table that it shares with others. Returns 0: there are none. */
HIDDEN int ports_shared(void);

/* Tells images apart. */
static inline uint32_t port_image_stamp(void)
{
	uint32_t stamp;
	__builtin_memcpy(&stamp, the_program.image_id, sizeof stamp);
	return stamp | 1;
}

/* The entry of a port of which everything is known and told; NULL: port_find has to look. */
static inline struct port *port_find_quick(const struct thread *self, int fd)
{
	struct port *port = &port_first_block[(unsigned)fd % PORT_BLOCK];
	if ((unsigned)fd >= PORT_BLOCK || (self->vfork_child | spawn_under_way.how | port_own_descriptors))
		return 0;
	/* Acquire: pairs with the release store in publish. */
	if (!__atomic_load_n(&port->known, __ATOMIC_ACQUIRE) || port->pending || port->kind != PORT_KIND_PORT)
		return 0;
	return __atomic_load_n(&port->told_image, __ATOMIC_RELAXED) == port_image_stamp() ? port : 0;
}

/* As port_of, but gives entries of kind SIGNALFD too. */
HIDDEN struct port *port_find(struct thread *self, int fd);

/* Driver of a socket made by socket(domain, type, protocol). */
HIDDEN enum lorg_driver port_socket_driver(int domain, int type, int protocol);

/* The port of a message queue descriptor, which looks like a regular file otherwise. */
HIDDEN struct port *port_of_queue(struct thread *self, int fd);

/* What is known of a number without looking; NULL: nothing. */
HIDDEN struct port *port_peek(int fd);

/* fd has been bound. gate: enum lorg_gate bits in force. */
HIDDEN void port_made(struct thread *self, uint8_t gate, int fd, const struct port_origin *origin);

/* Both ends of a pipe or socketpair. flags: of the creating call. */
HIDDEN void port_pair_made(struct thread *self, uint8_t gate, const int pair[2], const struct port_origin *origin);

/* All numbers from first to last are about to be closed. */
HIDDEN void port_closed_range(struct thread *self, unsigned first, unsigned last, uint32_t hook);

HIDDEN void port_set_nonblocking(struct thread *self, int fd, int on);

/* Sockets whose channels are named by their addresses: connect and bind change them. */
static inline int port_channels_follow_address(const struct port *port)
{
	return system_calls_allowed() && (port->driver == LORG_DRIVER_TCP || port->driver == LORG_DRIVER_UDP ||
					  port->driver == LORG_DRIVER_UNIX_DGRAM);
}

/* A connection that was begun without waiting has been made: writes CONNECTED, if its channels are found. */
HIDDEN void port_connected_later(struct thread *self, uint8_t gate, struct port *port, int fd);

/* Fills channel_in and channel_out of a port that has them pending. */
HIDDEN void port_find_channels(struct port *port, int fd);

/* A channel for a datagram to `address`, 0 when it cannot be told. */
HIDDEN uint32_t port_channel_to(const struct port *port, const void *address, uint32_t length);

/* SysV queues: told once an image; object as in events. */
HIDDEN void queue_told(struct thread *self, int msqid, uint32_t hook, int always);
HIDDEN uint32_t queue_channel(int msqid);

/* The channel of one priority or type of a queue whose channel is `queue`. */
HIDDEN uint32_t queue_lane(uint32_t queue, enum lorg_driver driver, uint64_t type);

/* Copies the local (which = SYS_getsockname) or peer address of a socket. Returns its length, 0: none. */
HIDDEN uint32_t port_address(int fd, long which, void *to);

static inline uint64_t queue_object(int msqid)
{
	return 0x80000000u + (uint64_t)(uint32_t)msqid;
}

#endif
