/* SPDX-License-Identifier: MIT */
/*
 * port.c: calls that make, name, connect, duplicate and close descriptors.
 *
 * A number is taken out of the table before the call that closes it: as soon as
 * the kernel has closed it, another thread may be given the same number.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "preload/hooks/port_meeting.h"
#include "preload/hooks/port_table.h"
#include "preload/hooks/running.h"
#include "preload/hooks/timeout.h"

enum port_scratch {
	SCRATCH_WAITS,      /* 1: out was written */
	SCRATCH_GENERATION, /* of the descriptor that PORT_IN was written for, + 1; 0: none */
	SCRATCH_DRIVER,     /* of the descriptor that listens */
	SCRATCH_WAIT_SET,   /* 1: it is told that the thread is in this call */
	SCRATCH_MEETING,    /* two words: struct meeting */
};

static struct meeting *meeting_of(struct hook_call *call)
{
	return (struct meeting *)&call->scratch[SCRATCH_MEETING];
}

static uintptr_t argument(const struct hook_call *call, int8_t index)
{
	return index >= 0 ? call->argument[index] : 0;
}

static int descriptor_of(const struct hook_call *call)
{
	int8_t index = call->hook->argument.fd;
	if (call->hook->role == ROLE_watch)
		index = call->hook->argument.fd2;
	return index >= 0 ? (int)call->argument[index] : -1;
}

/* ---- around a call -------------------------------------------------------------- */

static uint32_t command_of(const struct hook_call *call)
{
	if (call->hook->role == ROLE_watch && call->argument[1] == EPOLL_CTL_DEL)
		return COMMAND_unlink;
	return call->hook->port_command;
}

static void port_in(struct hook_call *call, const struct port *port, int fd)
{
	if (!port || !(call->gate & LORG_GATE_ALL))
		return;
	call->scratch[SCRATCH_GENERATION] = (uint64_t)port->generation + 1;
	EVENT_WRITE(call->self, PORT_IN, .fd = fd, .generation = port->generation, .command = command_of(call),
		    .hook = call->hook->shown_as);
}

/* There is no out after a close. */
static void port_out(struct hook_call *call, int fd)
{
	if (!call->scratch[SCRATCH_GENERATION] || call->hook->role == ROLE_close)
		return;
	EVENT_WRITE(call->self, PORT_OUT, .fd = fd, .generation = (uint32_t)(call->scratch[SCRATCH_GENERATION] - 1),
		    .command = command_of(call), .hook = call->hook->shown_as);
}

static void begin_wait(struct hook_call *call, int fd)
{
	call->entry = clock_now();
	if (call->gate & LORG_GATE_RUNNING) {
		call->scratch[SCRATCH_WAITS] = 1;
		running_out(call, (uint64_t)(uint32_t)fd, -1);
	} else {
		call->scratch[SCRATCH_WAIT_SET] = 1;
		waiting_begins(call);
		wait_begin(call->self, call->hook->shown_as, (uint64_t)(uint32_t)fd, call->entry);
	}
}

/* One that does not wait. */
static void begin_call(struct hook_call *call, int fd)
{
	call->entry = clock_now();
	if (!running_tells_all(call))
		return;
	call->scratch[SCRATCH_WAITS] = 1;
	running_out(call, (uint64_t)(uint32_t)fd, -1);
	running_did_not_wait(call);
}

static void end_wait(struct hook_call *call, int fd, intptr_t result)
{
	if (call->scratch[SCRATCH_WAITS]) {
		running_in(call, (uint64_t)(uint32_t)fd, result);
	} else if (call->scratch[SCRATCH_WAIT_SET]) {
		waiting_ends(call);
		wait_end(call->self);
	}
}

static int may_wait(const struct hook_call *call, const struct port *port)
{
	if (call->hook->blocking == BLOCKING_always)
		return 1;
	return call->hook->blocking == BLOCKING_descriptor && port && !port->nonblocking;
}

/* ---- entry ------------------------------------------------------------------------ */

/* close_range(first, last, flags), closefrom(first): a range that the kernel would refuse closes nothing. */
static void close_range_enter(struct hook_call *call)
{
	if (call->hook->shown_as == HOOK_closefrom) {
		int first = (int)call->argument[0];
		port_closed_range(call->self, first < 0 ? 0 : (unsigned)first, UINT32_MAX, call->hook->shown_as);
		return;
	}
	unsigned first = (unsigned)call->argument[0], last = (unsigned)call->argument[1],
		 flags = (unsigned)call->argument[2];
	if (first > last || flags & ~(unsigned)CLOSE_RANGE_UNSHARE)
		return;
	if (flags && ports_shared()) /* the other threads keep theirs */
		port_own_descriptors = 1;
	port_closed_range(call->self, first, last, call->hook->shown_as);
}

static void close_enter(struct hook_call *call)
{
	int fd = descriptor_of(call);
	if (fd < 0)
		return;
	/* Nobody may have looked before the program let it go; its end is told all the same. */
	if (the_arena.live && (call->gate & LORG_GATE_PORT))
		port_find(call->self, fd);
	port_in(call, port_peek(fd), fd);
	port_closed(call->self, fd, LORG_REASON_NORMAL, 0, call->hook->shown_as);
}

static void accept_enter(struct hook_call *call)
{
	int fd = descriptor_of(call);
	struct port *port = port_of(call->self, fd);
	if (!port)
		return;
	call->scratch[SCRATCH_DRIVER] = port->driver;
	port_in(call, port, fd);
	if (port_meets(port))
		meeting_accepts(meeting_of(call), port);
	if (may_wait(call, port))
		begin_wait(call, fd);
	else
		begin_call(call, fd);
}

/* What may be asked of a descriptor at any time does not make it known; a name or a peer does, and who wants to be told of each call. */
static struct port *used_port(struct hook_call *call, int fd)
{
	if (call->hook->role == ROLE_connect || call->hook->role == ROLE_bind || (call->gate & LORG_GATE_ALL))
		return port_of(call->self, fd);
	struct port *port = port_peek(fd);
	return port && port->kind == PORT_KIND_PORT ? port : 0;
}

/* Calls on a descriptor that stays as it is. */
static void use_enter(struct hook_call *call)
{
	int fd = descriptor_of(call);
	struct port *port = used_port(call, fd);
	port_in(call, port, fd);
	if (port && call->hook->role == ROLE_connect && port_meets(port))
		meeting_connects(meeting_of(call), port, fd, (const void *)argument(call, call->hook->argument.address),
				 (uint32_t)argument(call, call->hook->argument.address_length));
	if (may_wait(call, port))
		begin_wait(call, fd);
	else
		begin_call(call, fd);
}

void port_enter(struct hook_call *call)
{
	__builtin_memset(call->scratch, 0, sizeof call->scratch);
	switch (call->hook->role) {
	case ROLE_close: close_enter(call); return;
	case ROLE_close_range: close_range_enter(call); return;
	case ROLE_accept: accept_enter(call); return;
	case ROLE_connect:
	case ROLE_bind:
	case ROLE_listen:
	case ROLE_shutdown:
	case ROLE_control:
	case ROLE_info:
	case ROLE_watch: use_enter(call); return;
	default: /* what makes descriptors has none before */ return;
	}
}

/* ---- return: what was made ------------------------------------------------------------ */

static uint32_t status_flags(int socket_flags)
{
	_Static_assert(SOCK_NONBLOCK == O_NONBLOCK && SOCK_CLOEXEC == O_CLOEXEC, "the same bits");
	return (uint32_t)socket_flags & (O_NONBLOCK | O_CLOEXEC);
}

static void take_flags(struct port_origin *origin, uint32_t flags)
{
	origin->nonblocking = (flags & O_NONBLOCK) != 0;
	origin->flags = flags;
}

static void socket_made(struct hook_call *call, int fd)
{
	int type = (int)call->argument[1];
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .access = O_RDWR};
	origin.driver = (uint8_t)port_socket_driver((int)call->argument[0], type, (int)call->argument[2]);
	take_flags(&origin, status_flags(type) | O_RDWR);
	port_made(call->self, call->gate, fd, &origin);
}

static void eventfd_made(struct hook_call *call, int fd)
{
	struct port_origin origin = {
		.hook = call->hook->shown_as, .from = -1, .driver = LORG_DRIVER_EVENTFD, .access = O_RDWR};
	take_flags(&origin, status_flags((int)call->argument[1]) | O_RDWR);
	port_made(call->self, call->gate, fd, &origin);
}

/* A successful call has read the path. */
static void path_made(struct hook_call *call, int fd)
{
	struct port_origin origin = {
		.hook = call->hook->shown_as, .from = -1, .flags = (uint32_t)argument(call, call->hook->argument.flags)};
	origin.name = (const char *)argument(call, call->hook->argument.path);
	if (origin.name)
		origin.name_length = (uint32_t)text_length(origin.name, LORG_TEXT_MAXIMUM);
	if (!system_calls_allowed()) /* most files that are opened are regular ones */
		origin.kind = PORT_KIND_NONE;
	port_made(call->self, call->gate, fd, &origin);
}

static void open_leave(struct hook_call *call, int fd)
{
	switch (call->hook->shown_as) {
	case HOOK_socket: socket_made(call, fd); return;
	case HOOK_eventfd: eventfd_made(call, fd); return;
	default: port_opened(call, fd, -1);
	}
}

/* pipe(pair), pipe2(pair, flags), socketpair(domain, type, protocol, pair). */
static void open_pair_leave(struct hook_call *call)
{
	const int *pair = (const int *)argument(call, call->hook->argument.pair);
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .driver = LORG_DRIVER_PIPE};
	if (call->hook->shown_as == HOOK_socketpair) {
		origin.driver =
			(uint8_t)port_socket_driver((int)call->argument[0], (int)call->argument[1], (int)call->argument[2]);
		take_flags(&origin, status_flags((int)call->argument[1]));
	} else if (call->hook->argument.flags >= 0) {
		take_flags(&origin, (uint32_t)argument(call, call->hook->argument.flags));
	}
	port_pair_made(call->self, call->gate, pair, &origin);
}

static uint32_t address_room(uint16_t family)
{
	switch (family) {
	case AF_INET: return sizeof(struct sockaddr_in);
	case AF_INET6: return sizeof(struct sockaddr_in6);
	default: return 0;
	}
}

/* The peer as the call itself gave it, where that is whole; else asked for. Returns its length. */
static uint32_t accepted_peer(const struct hook_call *call, int fd, void *to)
{
	const struct sockaddr *address = (const struct sockaddr *)argument(call, call->hook->argument.address);
	const socklen_t *length = (const socklen_t *)argument(call, call->hook->argument.address_length);
	if (address && length && *length >= sizeof(struct sockaddr_in) && address_room(address->sa_family) == *length) {
		memcpy(to, address, *length);
		return *length;
	}
	return port_address(fd, SYS_getpeername, to);
}

static void accept_leave(struct hook_call *call, int fd, struct meeting_peer met)
{
	uint8_t peer[PORT_ADDRESS_MAXIMUM];
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .access = O_RDWR, .connected = 1,
				     .met_device = met.device, .met_inode = met.inode};
	origin.driver = (uint8_t)call->scratch[SCRATCH_DRIVER];
	uint32_t flags = call->hook->argument.flags >= 0 ? status_flags((int)argument(call, call->hook->argument.flags)) : 0;
	take_flags(&origin, flags | O_RDWR);
	if (call->gate & LORG_GATE_PORT) {
		origin.peer = peer;
		origin.peer_length = accepted_peer(call, fd, peer);
	}
	port_made(call->self, call->gate, fd, &origin);
}

static void accept_done(struct hook_call *call, intptr_t result)
{
	struct meeting_peer met = meeting_accepted(meeting_of(call), (int)result, call->error);
	if (result >= 0)
		accept_leave(call, (int)result, met);
}

/* ---- return: what was done to one ---------------------------------------------------------- */

static void write_connected(struct thread *self, const struct port *port, const struct lorg_event_CONNECTED *about,
			    const void *peer, uint32_t length)
{
	struct lorg_event_CONNECTED event = *about;
	event.generation = port->generation;
	event.peer_length = length;
	event_write(self, LORG_EVENT_CONNECTED, &event, sizeof event, &(struct event_bytes){peer, length}, 1, 0);
}

void port_connected_later(struct thread *self, uint8_t gate, struct port *port, int fd)
{
	uint8_t peer[PORT_ADDRESS_MAXIMUM];
	if (port->pending)
		return;
	port->connecting = 0;
	if (!(gate & LORG_GATE_PORT))
		return;
	struct lorg_event_CONNECTED event = {.entry = clock_now(), .fd = fd, .hook = HOOK_connect};
	write_connected(self, port, &event, peer, port_address(fd, SYS_getpeername, peer));
}

/* The address is read without faults: a call that failed may have been given anything. */
static void connect_leave(struct hook_call *call, int fd, intptr_t result)
{
	uint8_t peer[PORT_ADDRESS_MAXIMUM];
	struct port *port = port_of(call->self, fd);
	if (meeting_of(call)->entry || (port && port_meets(port)))
		meeting_connected(meeting_of(call), fd, (const void *)argument(call, call->hook->argument.address),
				  (uint32_t)argument(call, call->hook->argument.address_length), !result);
	if (!port)
		return;
	if (!result && port_channels_follow_address(port))
		port->pending = 1; /* may be connected again */
	port->connecting = call->error == EINPROGRESS;
	if (!(call->gate & LORG_GATE_PORT))
		return;
	uint32_t length = (uint32_t)argument(call, call->hook->argument.address_length);
	if (length > sizeof peer)
		length = sizeof peer;
	length = memory_peek(peer, (const void *)argument(call, call->hook->argument.address), length);
	struct lorg_event_CONNECTED event = {
		.entry = call->entry, .fd = fd, .hook = call->hook->shown_as, .error = call->error};
	write_connected(call->self, port, &event, peer, length);
}

static void write_register(struct hook_call *call, const struct port *port, int fd, struct event_bytes name,
			   struct event_bytes address)
{
	struct lorg_event_REGISTER event = {.kind = 1,
					    .fd = fd,
					    .generation = port->generation,
					    .name_length = name.length,
					    .address_length = address.length};
	struct event_bytes bytes[2] = {name, address};
	event_write(call->self, LORG_EVENT_REGISTER, &event, sizeof event, bytes, 2, 0);
}

/* The kernel's word for the name, since a port of 0 asks it to choose. */
static void bind_leave(struct hook_call *call, int fd)
{
	struct port *port = port_of(call->self, fd);
	if (!port)
		return;
	uint8_t address[PORT_ADDRESS_MAXIMUM];
	uint32_t length = port_address(fd, SYS_getsockname, address);
	if (!length) {
		length = (uint32_t)argument(call, call->hook->argument.address_length);
		length = length < sizeof address ? length : sizeof address;
		memcpy(address, (const void *)argument(call, call->hook->argument.address), length);
	}
	if (port_channels_follow_address(port))
		port->pending = 1;
	if (port_meets(port))
		meeting_named(port, fd, address, length);
	if (!(call->gate & LORG_GATE_PORT))
		return;
	port->registered = port_image_stamp();
	write_register(call, port, fd, (struct event_bytes){0, 0}, (struct event_bytes){address, length});
}

static void duplicate_leave(struct hook_call *call, int made)
{
	int from = descriptor_of(call);
	if (made == from) /* dup2 of a number to itself */
		return;
	if (call->hook->argument.fd2 >= 0)
		port_closed(call->self, made, LORG_REASON_NORMAL, 0, call->hook->shown_as);
	port_opened(call, made, from);
}

static void receive_limit(struct hook_call *call, int fd)
{
	struct timeval limit;
	struct port *port = port_of(call->self, fd); /* asked of the kernel never again, so it has to be known */
	if (!port || call->argument[1] != SOL_SOCKET || call->argument[2] != SO_RCVTIMEO || call->argument[4] < sizeof limit)
		return;
	memcpy(&limit, (const void *)call->argument[3], sizeof limit);
	uint64_t ms = (uint64_t)limit.tv_sec * 1000 + ((uint64_t)limit.tv_usec + 999) / 1000;
	port->receive_limit_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static void fcntl_leave(struct hook_call *call, int fd, intptr_t result)
{
	switch ((int)call->argument[1]) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC: port_opened(call, (int)result, fd); return;
	case F_SETFL: port_set_nonblocking(call->self, fd, ((int)call->argument[2] & O_NONBLOCK) != 0); return;
	}
}

static void ioctl_leave(struct hook_call *call, int fd, intptr_t result)
{
	switch ((unsigned)call->argument[1]) {
	case FIONBIO: port_set_nonblocking(call->self, fd, *(const int *)call->argument[2]); return;
	case TIOCGPTPEER: port_opened(call, (int)result, -1); return;
	}
}

static void control_leave(struct hook_call *call, int fd, intptr_t result)
{
	switch (call->hook->shown_as) {
	case HOOK_fcntl: fcntl_leave(call, fd, result); return;
	case HOOK_ioctl: ioctl_leave(call, fd, result); return;
	case HOOK_setsockopt: receive_limit(call, fd); return;
	}
}

/* SysV queues have no descriptor to close: their end is that of the queue. */
static void queue_leave(struct hook_call *call, intptr_t result)
{
	if (!(call->gate & LORG_GATE_PORT))
		return;
	if (call->hook->shown_as == HOOK_msgget)
		queue_told(call->self, (int)result, call->hook->shown_as, 1);
	else if (call->hook->shown_as == HOOK_msgctl && (int)call->argument[1] == IPC_RMID)
		EVENT_WRITE(call->self, CLOSED, .fd = (int)queue_object((int)call->argument[0]),
			    .reason = LORG_REASON_NORMAL, .hook = call->hook->shown_as, .driver = LORG_DRIVER_SYSV);
}

static void unshare_leave(int flags)
{
	if (flags & CLONE_FILES && ports_shared())
		port_own_descriptors = 1;
}

static void succeeded(struct hook_call *call, int fd, intptr_t result)
{
	switch (call->hook->role) {
	case ROLE_open: open_leave(call, (int)result); return;
	case ROLE_open_path: path_made(call, (int)result); return;
	case ROLE_open_pair: open_pair_leave(call); return;
	case ROLE_bind: bind_leave(call, fd); return;
	case ROLE_duplicate: duplicate_leave(call, (int)result); return;
	case ROLE_control: control_leave(call, fd, result); return;
	case ROLE_none:
		if (call->hook->shown_as == HOOK_unshare)
			unshare_leave((int)call->argument[0]);
		else
			queue_leave(call, result);
		return;
	default: return;
	}
}

void port_leave(struct hook_call *call, intptr_t result)
{
	int fd = descriptor_of(call);
	if (!hook_returned(call))
		return;
	end_wait(call, fd, result);
	if (call->hook->role == ROLE_connect)
		connect_leave(call, fd, result);
	else if (call->hook->role == ROLE_accept)
		accept_done(call, result);
	else if (call->hook->error == ERROR_minus_one && result >= 0)
		succeeded(call, fd, result);
	port_out(call, fd);
}

/* ---- wrappers of functions with "..." --------------------------------------------------------- */

/* True where the third argument is one that the kernel uses; the others are not there to be read. */
static int takes_argument(int control)
{
	switch (control) {
	case F_GETFD:
	case F_GETFL:
	case F_GETOWN:
	case F_GETSIG:
	case F_GETLEASE:
	case F_GETPIPE_SZ:
	case F_GET_SEALS: return 0;
	default: return 1;
	}
}

/* Waits for someone else's lock. */
static int waits_for_lock(int control)
{
	return control == F_SETLKW || control == F_OFD_SETLKW;
}

static int traced_fcntl(uint32_t id, int fd, int control, uintptr_t value, uintptr_t caller)
{
	struct hook_call call;
	hook_type_fcntl real = (hook_type_fcntl)hook_real(id);
	if (!hook_begin(&call, id))
		return real(fd, control, value);
	call.caller = caller;
	call.argument[0] = (uintptr_t)fd;
	call.argument[1] = (uintptr_t)control;
	call.argument[2] = value;
	call.saved_errno = *hook_errno();
	port_enter(&call);
	if (waits_for_lock(control))
		begin_wait(&call, fd);
	*hook_errno() = call.saved_errno;
	int result = real(fd, control, value);
	call.saved_errno = *hook_errno();
	if (result == -1)
		call.error = call.saved_errno;
	port_leave(&call, result);
	*hook_errno() = call.saved_errno;
	return result;
}

static uintptr_t fcntl_argument(int control, va_list arguments)
{
	return takes_argument(control) ? va_arg(arguments, uintptr_t) : 0;
}

int hook_fcntl(int fd, int control, ...)
{
	va_list arguments;
	va_start(arguments, control);
	uintptr_t value = fcntl_argument(control, arguments);
	va_end(arguments);
	return traced_fcntl(HOOK_fcntl, fd, control, value, (uintptr_t)__builtin_return_address(0));
}

int hook___fcntl(int fd, int control, ...)
{
	va_list arguments;
	va_start(arguments, control);
	uintptr_t value = fcntl_argument(control, arguments);
	va_end(arguments);
	return traced_fcntl(HOOK___fcntl, fd, control, value, (uintptr_t)__builtin_return_address(0));
}

int hook_fcntl64(int fd, int control, ...)
{
	va_list arguments;
	va_start(arguments, control);
	uintptr_t value = fcntl_argument(control, arguments);
	va_end(arguments);
	return traced_fcntl(HOOK_fcntl64, fd, control, value, (uintptr_t)__builtin_return_address(0));
}

/* The third argument is in a register whether or not the program gave one. */
int hook_ioctl(int fd, unsigned long control, ...)
{
	struct hook_call call;
	va_list arguments;
	va_start(arguments, control);
	uintptr_t value = va_arg(arguments, uintptr_t);
	va_end(arguments);
	if (!hook_begin(&call, HOOK_ioctl))
		return REAL(ioctl)(fd, control, value);
	call.caller = (uintptr_t)__builtin_return_address(0);
	call.argument[0] = (uintptr_t)fd;
	call.argument[1] = control;
	call.argument[2] = value;
	call.saved_errno = *hook_errno();
	port_enter(&call);
	*hook_errno() = call.saved_errno;
	int result = REAL(ioctl)(fd, control, value);
	call.saved_errno = *hook_errno();
	if (result == -1)
		call.error = call.saved_errno;
	port_leave(&call, result);
	*hook_errno() = call.saved_errno;
	return result;
}

/* ---- mq_open ------------------------------------------------------------------------------------ */

static void queue_opened(struct hook_call *call, int fd)
{
	const char *path = (const char *)call->argument[0];
	uint32_t flags = (uint32_t)call->argument[1];
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .driver = LORG_DRIVER_MQ, .name = path};
	origin.name_length = (uint32_t)text_length(path, LORG_TEXT_MAXIMUM);
	origin.access = flags & O_ACCMODE;
	take_flags(&origin, flags);
	port_made(call->self, call->gate, fd, &origin);
	struct port *port = port_of(call->self, fd);
	if (!port || !(call->gate & LORG_GATE_PORT))
		return;
	port->registered = port_image_stamp();
	write_register(call, port, fd, (struct event_bytes){path, origin.name_length}, (struct event_bytes){0, 0});
}

static int begin_queue_open(struct hook_call *call, uint32_t id, const char *path, int flags, uintptr_t caller)
{
	if (!hook_begin(call, id))
		return 0;
	call->caller = caller;
	call->argument[0] = (uintptr_t)path;
	call->argument[1] = (uintptr_t)flags;
	return 1;
}

static mqd_t end_queue_open(struct hook_call *call, mqd_t result)
{
	call->saved_errno = *hook_errno();
	if (result >= 0)
		queue_opened(call, result);
	*hook_errno() = call->saved_errno;
	return result;
}

/* mode and attributes are in registers whether or not the program gave them. */
int hook_mq_open(const char *path, int flags, ...)
{
	struct hook_call call;
	va_list arguments;
	va_start(arguments, flags);
	mode_t mode = va_arg(arguments, mode_t);
	struct mq_attr *attributes = va_arg(arguments, struct mq_attr *);
	va_end(arguments);
	if (!begin_queue_open(&call, HOOK_mq_open, path, flags, (uintptr_t)__builtin_return_address(0)))
		return REAL(mq_open)(path, flags, mode, attributes);
	return end_queue_open(&call, REAL(mq_open)(path, flags, mode, attributes));
}

int hook___mq_open_2(const char *path, int flags)
{
	struct hook_call call;
	if (!begin_queue_open(&call, HOOK___mq_open_2, path, flags, (uintptr_t)__builtin_return_address(0)))
		return REAL(__mq_open_2)(path, flags);
	return end_queue_open(&call, REAL(__mq_open_2)(path, flags));
}
