/* SPDX-License-Identifier: MIT */
/*
 * port_channel.c: which channels a port reads and writes. A channel is one
 * direction of one kernel object; it has the same key at both of its ends and
 * in every program of the node.
 */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "preload/core/channel.h"
#include "preload/hooks/port_kind.h"
#include "preload/hooks/port_table.h"

enum { CHANNEL_TRIES = 8 };

/* Channels that need nothing but the inode. */
void port_find_plain_channels(struct port *port)
{
	switch (port->driver) {
	case LORG_DRIVER_PIPE:
	case LORG_DRIVER_FIFO:
	case LORG_DRIVER_MQ:
		port->channel_in = port->channel_out =
			channel_find(lorg_channel_key(port->device, port->inode, DIRECTION_THROUGH), port->driver);
		return;
	case LORG_DRIVER_TTY:
		port->channel_in = channel_find(lorg_channel_key(port->device, port->inode, DIRECTION_IN), port->driver);
		port->channel_out = channel_find(lorg_channel_key(port->device, port->inode, DIRECTION_OUT), port->driver);
		return;
	default: port->pending = (uint8_t)driver_is_socket(port->driver);
	}
}

/* One end of an internet address as 64 bits; the same however the program wrote it. */
static uint64_t internet_end(const void *address, uint32_t length, int any_is_loopback)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four;
	if (length >= sizeof four && ((const struct sockaddr *)address)->sa_family == AF_INET) {
		memcpy(&four, address, sizeof four);
	} else if (length >= sizeof six - sizeof six.sin6_scope_id &&
		   ((const struct sockaddr *)address)->sa_family == AF_INET6) {
		memset(&six, 0, sizeof six);
		memcpy(&six, address, length < sizeof six ? length : sizeof six);
		uint64_t high, low;
		memcpy(&high, &six.sin6_addr, 8);
		memcpy(&low, (const char *)&six.sin6_addr + 8, 8);
		int mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
		int local =
			any_is_loopback && (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) || IN6_IS_ADDR_LOOPBACK(&six.sin6_addr));
		if (!mapped && !local)
			return lorg_channel_key(high, low, six.sin6_port);
		four.sin_port = six.sin6_port;
		four.sin_addr.s_addr = mapped ? (uint32_t)(low >> 32) : htonl(INADDR_LOOPBACK);
	} else {
		return 0;
	}
	if (any_is_loopback && four.sin_addr.s_addr == htonl(INADDR_ANY))
		four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return (uint64_t)four.sin_addr.s_addr << 16 | four.sin_port;
}

static uint32_t own_channel(const struct port *port, enum direction direction)
{
	return port->inode ? channel_find(lorg_channel_key(port->device, port->inode, direction), port->driver) : 0;
}

/* At a few more messages: it is not connected yet, or no longer. */
static void try_again(struct port *port)
{
	port->pending = port->pending < CHANNEL_TRIES && system_calls_allowed() ? port->pending + 1 : 0;
}

static void find_tcp_channels(struct port *port, int fd)
{
	uint8_t local[PORT_ADDRESS_MAXIMUM] __attribute__((aligned(8))),
		peer[PORT_ADDRESS_MAXIMUM] __attribute__((aligned(8)));
	uint32_t local_length = port_address(fd, SYS_getsockname, local),
		 peer_length = port_address(fd, SYS_getpeername, peer);
	uint64_t own = internet_end(local, local_length, 0), other = internet_end(peer, peer_length, 0);
	if (!own || !other) {
		try_again(port);
		return;
	}
	port->channel_out = channel_find(lorg_channel_key(own, other, DIRECTION_TCP), port->driver);
	port->channel_in = channel_find(lorg_channel_key(other, own, DIRECTION_TCP), port->driver);
	port->pending = 0;
}

static uint64_t name_key(const void *address, uint32_t length)
{
	const uint8_t *bytes = address;
	uint32_t start = offsetof(struct sockaddr_un, sun_path);
	uint64_t hash = 0xcbf29ce484222325u;
	if (length <= start || ((const struct sockaddr *)address)->sa_family != AF_UNIX)
		return 0;
	/* A path ends at its zero; an abstract name begins with one. */
	for (uint32_t i = start; i < length && (i == start || bytes[i] || !bytes[start]); i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return lorg_channel_key(hash, 0, DIRECTION_NAME);
}

uint32_t port_channel_to(const struct port *port, const void *address, uint32_t length)
{
	if (length < sizeof(sa_family_t))
		return 0;
	uint64_t key = 0;
	if (port->driver == LORG_DRIVER_UDP) {
		uint64_t end = internet_end(address, length, 1);
		key = end ? lorg_channel_key(end, 0, DIRECTION_UDP) : 0;
	} else if (port->driver == LORG_DRIVER_UNIX_DGRAM) {
		key = name_key(address, length);
	}
	return key ? channel_find(key, port->driver) : 0;
}

/* An internet socket that has no port number yet. */
static int is_unbound(const void *address, uint32_t length)
{
	const struct sockaddr_in *internet = address; /* the port stands at the same place in both families */
	return length >= sizeof *internet && internet->sin_port == 0;
}

/* What is sent to a datagram socket's name arrives there: the name is the channel. */
static void find_datagram_channels(struct port *port, int fd)
{
	uint8_t address[PORT_ADDRESS_MAXIMUM] __attribute__((aligned(8)));
	uint32_t length = port_address(fd, SYS_getpeername, address);
	port->channel_out = port_channel_to(port, address, length);
	length = port_address(fd, SYS_getsockname, address);
	if (port->driver == LORG_DRIVER_UDP && is_unbound(address, length)) {
		try_again(port); /* its first send gives it a name */
		return;
	}
	port->channel_in = port_channel_to(port, address, length);
	if (port->driver == LORG_DRIVER_UNIX_DGRAM) {
		if (!port->channel_out)
			port->channel_out = own_channel(port, DIRECTION_OUT);
		if (!port->channel_in)
			port->channel_in = own_channel(port, DIRECTION_IN);
	}
	port->pending = 0;
}

void port_find_channels(struct port *port, int fd)
{
	switch (port->driver) {
	case LORG_DRIVER_TCP: find_tcp_channels(port, fd); return;
	case LORG_DRIVER_UDP:
	case LORG_DRIVER_UNIX_DGRAM: find_datagram_channels(port, fd); return;
	case LORG_DRIVER_PIPE:
	case LORG_DRIVER_FIFO:
	case LORG_DRIVER_TTY:
	case LORG_DRIVER_MQ: /* their place was given away */
		port->pending = 0;
		port_find_plain_channels(port);
		return;
	default:
		port->channel_out = own_channel(port, DIRECTION_OUT);
		port->channel_in = own_channel(port, DIRECTION_IN);
		port->pending = 0;
	}
}

/* A channel that only this family of images can know. */
uint32_t port_private_channel(const struct port *port, int fd)
{
	uint64_t image;
	memcpy(&image, the_program.image_id, sizeof image);
	return channel_find(
		lorg_channel_key(image ^ clock_now(), (uint64_t)(uint32_t)fd << 32 | port->generation, DIRECTION_COUNTER),
		port->driver);
}

/* Who receives there is traced: what is sent and not received can be counted (monitor.c). */
static void note_reader(uint32_t channel)
{
	struct lorg_channel *entry = channel && the_arena.node ? channel_entry_of(channel) : 0;
	if (entry)
		__atomic_store_n(&entry->received.looks, 1, __ATOMIC_RELAXED);
}

static void pair_socket_channels(struct port ports[2])
{
	for (int i = 0; i < 2; i++) {
		ports[i].channel_out = own_channel(&ports[i], DIRECTION_OUT);
		ports[i].pending = 0;
	}
	for (int i = 0; i < 2; i++) {
		ports[i].channel_in = ports[!i].channel_out;
		note_reader(ports[i].channel_in);
		/* For images that inherit this end over exec. */
		if (ports[i].inode)
			channel_alias(lorg_channel_key(ports[i].device, ports[i].inode, DIRECTION_IN), ports[i].channel_in,
				      ports[i].driver);
	}
}

/*
 * Both channels have the names that the connecting end gives them: it need not know anything. The aliases are for images
 * that come by this end over exec or a message.
 */
void port_meet_channels(struct port *port, uint64_t peer_device, uint64_t peer_inode)
{
	struct port peer = {.driver = port->driver, .device = peer_device, .inode = peer_inode};
	port->channel_in = own_channel(&peer, DIRECTION_OUT);
	port->channel_out = own_channel(&peer, DIRECTION_IN);
	note_reader(port->channel_in);
	note_reader(port->channel_out);
	port->pending = 0;
	if (!port->inode)
		return;
	channel_alias(lorg_channel_key(port->device, port->inode, DIRECTION_IN), port->channel_in, port->driver);
	channel_alias(lorg_channel_key(port->device, port->inode, DIRECTION_OUT), port->channel_out, port->driver);
}

void port_pair_channels(struct port ports[2], const int pair[2])
{
	int socket = driver_is_socket(ports[0].driver);
	if (socket && ports[0].inode && ports[1].inode) {
		pair_socket_channels(ports);
	} else if (!ports[0].inode) {
		ports[0].channel_in = ports[1].channel_out = port_private_channel(&ports[0], pair[0]);
		ports[0].channel_out = ports[1].channel_in =
			socket ? port_private_channel(&ports[1], pair[1]) : ports[0].channel_in;
	}
}

uint32_t queue_channel(int msqid)
{
	return channel_find(lorg_channel_key(0, (uint32_t)msqid, DIRECTION_SYSV), LORG_DRIVER_SYSV);
}

uint32_t queue_lane(uint32_t queue, enum lorg_driver driver, uint64_t type)
{
	return queue && type ? channel_find(lorg_channel_key(queue, type, DIRECTION_LANE), driver) : queue;
}
