/* SPDX-License-Identifier: MIT */
/*
 * port_kind.c: asks the kernel what a descriptor is.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "preload/core/raw.h"
#include "preload/hooks/port_kind.h"
#include "preload/hooks/port_table.h"

static int socket_option(int fd, int option)
{
	int value = -1;
	unsigned size = sizeof value;
	long result = raw_syscall6(SYS_getsockopt, fd, SOL_SOCKET, option, (long)&value, (long)&size, 0);
	return raw_failed(result) ? -1 : value;
}

static enum lorg_driver internet_driver(int type, int protocol)
{
	if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP))
		return LORG_DRIVER_TCP;
	if (type == SOCK_DGRAM)
		return LORG_DRIVER_UDP;
	return type == SOCK_RAW ? LORG_DRIVER_RAW : LORG_DRIVER_UNKNOWN;
}

static enum lorg_driver unix_driver(int type)
{
	switch (type) {
	case SOCK_STREAM: return LORG_DRIVER_UNIX;
	case SOCK_SEQPACKET: return LORG_DRIVER_UNIX_SEQPACKET;
	default: return LORG_DRIVER_UNIX_DGRAM;
	}
}

static enum lorg_driver socket_driver(int domain, int type, int protocol)
{
	switch (domain) {
	case AF_INET:
	case AF_INET6: return internet_driver(type, protocol);
	case AF_UNIX: return unix_driver(type);
	case AF_NETLINK: return LORG_DRIVER_NETLINK;
	case AF_VSOCK: return LORG_DRIVER_VSOCK;
	case AF_PACKET: return LORG_DRIVER_RAW;
	default: return LORG_DRIVER_UNKNOWN;
	}
}

enum lorg_driver port_socket_driver(int domain, int type, int protocol)
{
	return socket_driver(domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol);
}

int driver_is_stream(enum lorg_driver driver)
{
	return driver == LORG_DRIVER_TCP || driver == LORG_DRIVER_UNIX || driver == LORG_DRIVER_PIPE ||
	       driver == LORG_DRIVER_FIFO || driver == LORG_DRIVER_TTY || driver == LORG_DRIVER_UNIX_SEQPACKET ||
	       driver == LORG_DRIVER_VSOCK;
}

int driver_is_socket(enum lorg_driver driver)
{
	return (driver >= LORG_DRIVER_TCP && driver <= LORG_DRIVER_UNIX_SEQPACKET) || driver == LORG_DRIVER_NETLINK ||
	       driver == LORG_DRIVER_VSOCK;
}

static enum lorg_driver fifo_driver(int fd)
{
	struct statfs system;
	if (raw_failed(raw_syscall3(SYS_fstatfs, fd, (long)&system, 0)))
		return LORG_DRIVER_FIFO;
	return system.f_type == PIPEFS_MAGIC ? LORG_DRIVER_PIPE : LORG_DRIVER_FIFO;
}

/* What /proc/self/fd says; no descriptor is needed for it. Returns its length, 0: not told. */
uint32_t descriptor_name(int fd, char *to, uint32_t room)
{
	char path[32];
	char *end = text_append(path, path + sizeof path, "/proc/self/fd/");
	text_append_decimal(end, path + sizeof path, (uint64_t)fd);
	long length = raw_syscall3(SYS_readlink, (long)path, (long)to, room - 1);
	if (length <= 0)
		return 0;
	to[length] = 0;
	return (uint32_t)length;
}

/* Objects without an inode of their own: eventfd, epoll, ... */
static void classify_anonymous(struct port *port, int fd)
{
	char name[64];
	port->driver = LORG_DRIVER_NONE;
	port->kind = PORT_KIND_NONE;
	if (!descriptor_name(fd, name, sizeof name))
		return;
	if (text_equal(name, "anon_inode:[eventfd]")) {
		port->driver = LORG_DRIVER_EVENTFD;
		port->kind = PORT_KIND_PORT;
	} else if (text_equal(name, "anon_inode:[signalfd]")) {
		port->kind = PORT_KIND_SIGNALFD;
	}
}

static void classify_device(struct port *port, int fd, const struct stat *status)
{
	char settings[64]; /* the kernel's struct termios, 36 bytes */
	if (raw_failed(raw_syscall3(SYS_ioctl, fd, TCGETS, (long)settings))) {
		port->kind = PORT_KIND_NONE;
		return;
	}
	port->driver = LORG_DRIVER_TTY;
	port->device = status->st_rdev;
	port->inode = 0;
}

static void classify_type(struct port *port, int fd, const struct stat *status)
{
	switch (status->st_mode & S_IFMT) {
	case S_IFIFO: port->driver = fifo_driver(fd); return;
	case S_IFSOCK:
		port->driver = socket_driver(socket_option(fd, SO_DOMAIN), socket_option(fd, SO_TYPE),
					     socket_option(fd, SO_PROTOCOL));
		return;
	case S_IFCHR: classify_device(port, fd, status); return;
	case 0: classify_anonymous(port, fd); return;
	default: port->kind = PORT_KIND_NONE;
	}
}

static void take_status_flags(struct port *port, uint32_t flags)
{
	port->nonblocking = (flags & O_NONBLOCK) != 0;
	port->access = flags & O_ACCMODE;
	if (flags & O_PATH)
		port->kind = PORT_KIND_NONE;
}

/* Looks at fd. Returns its O_ flags, or -1: it is not open. */
int port_classify(struct port *port, int fd)
{
	struct stat status;
	memset(port, 0, sizeof *port);
	port->known = 1;
	if (!system_calls_allowed()) {
		port->driver = LORG_DRIVER_UNKNOWN;
		return 0;
	}
	if (raw_failed(raw_syscall3(SYS_fstat, fd, (long)&status, 0)))
		return -1;
	port->inode = status.st_ino;
	port->device = status.st_dev;
	classify_type(port, fd, &status);
	if (port->kind == PORT_KIND_NONE)
		return 0;
	long flags = raw_syscall3(SYS_fcntl, fd, F_GETFL, 0);
	if (raw_failed(flags))
		return -1;
	take_status_flags(port, (uint32_t)flags);
	port->stream = (uint8_t)driver_is_stream(port->driver);
	if (port->kind == PORT_KIND_PORT)
		port_find_plain_channels(port);
	return (int)flags;
}

uint32_t port_address(int fd, long which, void *to)
{
	unsigned size = PORT_ADDRESS_MAXIMUM;
	if (!system_calls_allowed() || raw_failed(raw_syscall3(which, fd, (long)to, (long)&size)))
		return 0;
	return size < PORT_ADDRESS_MAXIMUM ? size : PORT_ADDRESS_MAXIMUM;
}

void port_classify_queue(struct port *fresh, int fd)
{
	if (port_classify(fresh, fd) < 0)
		return;
	fresh->driver = LORG_DRIVER_MQ;
	fresh->kind = PORT_KIND_PORT;
	fresh->stream = 0;
	long flags = system_calls_allowed() ? raw_syscall3(SYS_fcntl, fd, F_GETFL, 0) : -1;
	if (!raw_failed(flags))
		take_status_flags(fresh, (uint32_t)flags);
	if (fresh->inode)
		port_find_plain_channels(fresh);
}

void port_take_inode(struct port *port, int fd)
{
	struct stat status;
	if (!system_calls_allowed() || raw_failed(raw_syscall3(SYS_fstat, fd, (long)&status, 0)))
		return;
	port->inode = status.st_ino;
	port->device = status.st_dev;
}
