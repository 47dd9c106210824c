/* SPDX-License-Identifier: MIT */
/*
 * message.c: bytes that move through ports. One event a message: a send is
 * told with the tick of its call's entry, a receive when the call returns.
 *
 * What was sent or received is copied after the call, from memory that the
 * call itself has just used with success. Memory of a call that failed is read
 * by a copy that cannot fault.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/msg.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "preload/core/channel.h"
#include "preload/core/raw.h"
#include "preload/hooks/port_table.h"
#include "preload/hooks/timeout.h"

enum {
	MESSAGE_PIECES = 64,        /* pieces of memory that one event is gathered from; more are cut */
	FAILED_MESSAGE_BYTES = 256, /* kept of a message that could not be sent */
	VECTORS_PEEKED = 16,
};

/* One end of the call, packed into two words of call->scratch, so that a close in between changes nothing. */
struct __attribute__((may_alias)) end {
	uint32_t channel_in, channel_out;
	uint32_t generation;
	uint8_t driver; /* 0: no port, nothing to tell */
	uint8_t kind;
	uint8_t stream;
	uint8_t nonblocking;
};
_Static_assert(sizeof(struct end) == 16, "two words of scratch");
_Static_assert(offsetof(struct port, nonblocking) == offsetof(struct end, nonblocking) &&
		       offsetof(struct port, generation) == offsetof(struct end, generation),
	       "a port begins with it");

enum message_scratch {
	SCRATCH_END,        /* two words */
	SCRATCH_SECOND = 2, /* two words: the port that a transfer sends to */
	SCRATCH_LIMIT = 4,  /* SO_RCVTIMEO, ms */
	SCRATCH_STATE = 5,  /* enum state bits */
};

enum state {
	STATE_ACTIVE = 1,
	STATE_RUNNING = 2,  /* out was written */
	STATE_BLOCKING = 4, /* the call may wait */
	STATE_PLAIN = 8,    /* one buffer on a port that was known */
};

static struct end *end_of(struct hook_call *call, enum message_scratch which)
{
	return (struct end *)&call->scratch[which];
}

static uintptr_t argument(const struct hook_call *call, int8_t index)
{
	return index >= 0 ? call->argument[index] : 0;
}

static uint32_t flags_of(const struct hook_call *call)
{
	return (uint32_t)argument(call, call->hook->argument.flags);
}

static int is_queue_call(const struct hook_call *call)
{
	return call->hook->argument.object >= 0;
}

static int is_posix_queue_call(const struct hook_call *call)
{
	switch (call->hook->shown_as) {
	case HOOK_mq_send:
	case HOOK_mq_timedsend:
	case HOOK_mq_receive:
	case HOOK_mq_timedreceive: return 1;
	default: return 0;
	}
}

/* ---- entry ------------------------------------------------------------------ */

static struct port *find_port(struct hook_call *call, int fd)
{
	struct port *port = is_posix_queue_call(call) ? port_of_queue(call->self, fd) : port_find(call->self, fd);
	if (!port || port->kind == PORT_KIND_NONE)
		return 0;
	if (__builtin_expect(port->pending, 0))
		port_find_channels(port, fd);
	if (__builtin_expect(port->connecting, 0))
		port_connected_later(call->self, call->gate, port, fd);
	return port;
}

static inline void take_end(struct end *end, const struct port *port)
{
	__builtin_memcpy(end, port, sizeof *end);
}

/* True if this call, on such a descriptor, waits until it can do something. */
static int may_wait(const struct hook_call *call, int nonblocking)
{
	const struct hook *hook = call->hook;
	uint32_t flags = flags_of(call);
	if (hook->blocking == BLOCKING_never)
		return 0;
	if (hook->blocking == BLOCKING_always)
		return 1;
	if (is_queue_call(call))
		return !(flags & IPC_NOWAIT);
	if (nonblocking)
		return 0;
	switch (hook->shown_as) {
	case HOOK_recv:
	case HOOK_recvfrom:
	case HOOK_recvmsg:
	case HOOK_recvmmsg:
	case HOOK_send:
	case HOOK_sendto:
	case HOOK_sendmsg:
	case HOOK_sendmmsg: return !(flags & MSG_DONTWAIT);
	case HOOK_preadv2:
	case HOOK_pwritev2: return !(flags & RWF_NOWAIT);
	case HOOK_splice:
	case HOOK_tee:
	case HOOK_vmsplice: return !(flags & SPLICE_F_NONBLOCK);
	default: return 1;
	}
}

static void port_in(struct hook_call *call, int fd, const struct end *end)
{
	if ((call->gate & LORG_GATE_ALL) && end->driver)
		EVENT_WRITE(call->self, PORT_IN, .fd = fd, .generation = end->generation,
			    .command = call->hook->port_command, .hook = call->hook->shown_as);
}

static void port_out(struct hook_call *call, int fd, const struct end *end)
{
	if ((call->gate & LORG_GATE_ALL) && end->driver)
		EVENT_WRITE(call->self, PORT_OUT, .fd = fd, .generation = end->generation,
			    .command = call->hook->port_command, .hook = call->hook->shown_as);
}

static int64_t limit_ns(const struct hook_call *call)
{
	int64_t given = call_timeout(call);
	if (given >= 0)
		return given;
	return call->scratch[SCRATCH_LIMIT] ? (int64_t)call->scratch[SCRATCH_LIMIT] * 1000000 : -1;
}

static void begin(struct hook_call *call, uint64_t object, int waits)
{
	call->scratch[SCRATCH_STATE] = STATE_ACTIVE | (waits ? STATE_BLOCKING : 0);
	call->entry = clock_now();
	if (waits && (call->gate & LORG_GATE_RUNNING)) {
		call->scratch[SCRATCH_STATE] |= STATE_RUNNING;
		running_out(call, object, limit_ns(call));
	} else {
		wait_set(call->self, call->hook->shown_as, object, call->entry);
	}
}

static void queue_enter(struct hook_call *call)
{
	int msqid = (int)argument(call, call->hook->argument.object);
	uint32_t channel = queue_channel(msqid);
	*end_of(call, SCRATCH_END) = (struct end){.channel_in = channel, .channel_out = channel, .driver = LORG_DRIVER_SYSV};
	call->scratch[SCRATCH_LIMIT] = 0;
	begin(call, queue_object(msqid), may_wait(call, 0));
}

/* fd is read from, fd2 written to. */
static void transfer_enter(struct hook_call *call)
{
	int from = (int)argument(call, call->hook->argument.fd), to = (int)argument(call, call->hook->argument.fd2);
	struct port *source = find_port(call, from);
	struct port *target = find_port(call, to);
	if (source && source->kind == PORT_KIND_PORT)
		take_end(end_of(call, SCRATCH_END), source);
	if (target && target->kind == PORT_KIND_PORT)
		take_end(end_of(call, SCRATCH_SECOND), target);
	const struct end *first = end_of(call, SCRATCH_END), *second = end_of(call, SCRATCH_SECOND);
	if (!first->driver && !second->driver)
		return;
	port_in(call, from, first);
	port_in(call, to, second);
	int waits = may_wait(call, (!first->driver || first->nonblocking) && (!second->driver || second->nonblocking));
	begin(call, (uint64_t)(uint32_t)(first->driver ? from : to), waits);
}

/* fd, buffer and length stand first, and nothing else names a port. */
static inline int is_plain(const struct hook *hook)
{
	const struct hook_arguments *at = &hook->argument;
	return at->fd == 0 && at->buffer == 1 && at->length == 2 && at->address < 0;
}

static void enter(struct hook_call *call)
{
	__builtin_memset(call->scratch, 0, sizeof call->scratch);
	if (is_queue_call(call)) {
		queue_enter(call);
		return;
	}
	if (call->hook->role == ROLE_transfer) {
		transfer_enter(call);
		return;
	}
	int fd = (int)argument(call, call->hook->argument.fd);
	struct port *port = find_port(call, fd);
	if (!port)
		return;
	struct end *end = end_of(call, SCRATCH_END);
	take_end(end, port);
	call->scratch[SCRATCH_LIMIT] = port->receive_limit_ms;
	port_in(call, fd, end);
	begin(call, (uint64_t)(uint32_t)fd, may_wait(call, port->nonblocking));
}

void message_enter(struct hook_call *call)
{
	int fd = (int)call->argument[0];
	struct port *port = is_plain(call->hook) ? port_find_quick(call->self, fd) : 0;
	if (!port) {
		enter(call);
		return;
	}
	take_end(end_of(call, SCRATCH_END), port);
	call->scratch[SCRATCH_LIMIT] = port->receive_limit_ms;
	port_in(call, fd, end_of(call, SCRATCH_END));
	begin(call, (uint64_t)(uint32_t)fd, may_wait(call, port->nonblocking));
	call->scratch[SCRATCH_STATE] |= STATE_PLAIN;
}

/* ---- the bytes of a message --------------------------------------------------- */

/* Where a message lies. bytes: moved, requested: asked for. */
struct message {
	uint64_t bytes, requested;
	const void *buffer; /* NULL: iovec or nothing */
	uint64_t room;      /* of buffer */
	const struct iovec *iovec;
	uint64_t iovec_count;
	const void *address;
	uint32_t address_length;
	uint32_t flags; /* enum lorg_message_flag */
};

/* The pieces of an event: [0] the address, the others the message. */
struct pieces {
	struct event_bytes at[1 + MESSAGE_PIECES];
	unsigned count;
	uint32_t kept;
	uint8_t flattened; /* 1: they lie in the thread's scratch memory */
};

static void add_piece(struct pieces *pieces, const void *data, uint64_t length, uint64_t limit)
{
	uint64_t room = limit - pieces->kept;
	if (length > room)
		length = room;
	if (!length || pieces->count == 1 + MESSAGE_PIECES)
		return;
	pieces->at[pieces->count++] = (struct event_bytes){data, (uint32_t)length};
	pieces->kept += (uint32_t)length;
}

static void add_vectors(struct pieces *pieces, const struct message *message, uint64_t limit)
{
	for (uint64_t i = 0; i < message->iovec_count && pieces->kept < limit && pieces->count <= MESSAGE_PIECES; i++)
		add_piece(pieces, message->iovec[i].iov_base, message->iovec[i].iov_len, limit);
}

/* Too many small pieces: put together first. Returns 0 when there is no memory for it. */
static int flatten(struct pieces *pieces, const struct message *message, uint64_t limit)
{
	char *memory = thread_scratch();
	uint64_t kept = 0;
	if (!memory)
		return 0;
	for (uint64_t i = 0; i < message->iovec_count && kept < limit; i++) {
		uint64_t length = message->iovec[i].iov_len < limit - kept ? message->iovec[i].iov_len : limit - kept;
		memcpy(memory + kept, message->iovec[i].iov_base, length);
		kept += length;
	}
	pieces->at[1] = (struct event_bytes){memory, (uint32_t)kept};
	pieces->count = 2;
	pieces->kept = (uint32_t)kept;
	return 1;
}

/* write_pieces has to follow. */
static void gather(struct pieces *pieces, struct thread *self, const struct message *message)
{
	pieces->at[0] = (struct event_bytes){message->address, message->address_length};
	pieces->count = 1;
	pieces->kept = 0;
	pieces->flattened = 0;
	if (message->flags & LORG_MESSAGE_NOT_COPIED)
		return;
	uint64_t limit = the_arena.message_length < message->bytes ? the_arena.message_length : message->bytes;
	if (message->buffer)
		add_piece(pieces, message->buffer, message->room, limit);
	add_vectors(pieces, message, limit);
	if (pieces->kept == limit || pieces->count <= MESSAGE_PIECES)
		return;
	thread_busy(self); /* a handler must not use the scratch memory meanwhile */
	pieces->flattened = (uint8_t)flatten(pieces, message, limit);
	if (!pieces->flattened)
		thread_idle(self);
}

static void write_pieces(struct thread *self, uint16_t id, const void *event, uint32_t size, const struct pieces *pieces)
{
	event_write(self, id, event, size, pieces->at, pieces->count, 0);
	if (pieces->flattened)
		thread_idle(self);
}

static uint64_t total_length(const struct iovec *iovec, uint64_t count)
{
	uint64_t total = 0;
	for (uint64_t i = 0; i < count; i++)
		total += iovec[i].iov_len;
	return total;
}

static uint32_t address_room(const void *address)
{
	switch (((const struct sockaddr *)address)->sa_family) {
	case AF_INET: return sizeof(struct sockaddr_in);
	case AF_INET6: return sizeof(struct sockaddr_in6);
	case AF_UNIX: return sizeof(struct sockaddr_un);
	default: return sizeof(struct sockaddr);
	}
}

/* length as the kernel gave it, which is the true one even where the program's room was smaller. */
static void take_address(struct message *message, const void *address, uint64_t length)
{
	if (!address || length < sizeof(sa_family_t))
		return;
	uint32_t room = address_room(address);
	message->address = address;
	message->address_length = length < room ? (uint32_t)length : room;
}

static void take_vectors(struct message *message, const struct iovec *iovec, uint64_t count)
{
	message->iovec = iovec;
	message->iovec_count = count;
	message->requested = total_length(iovec, count);
}

static void take_header(struct message *message, const struct msghdr *header)
{
	take_vectors(message, header->msg_iov, header->msg_iovlen);
	take_address(message, header->msg_name, header->msg_namelen);
}

static void take_plain(struct message *message, const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	message->buffer = (const void *)argument(call, at->buffer);
	message->requested = message->room = argument(call, at->length);
}

/* The address arguments of sendto and recvfrom. */
static void take_named_address(struct message *message, const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	const void *address = (const void *)argument(call, at->address);
	uintptr_t length = argument(call, at->address_length);
	if (!address || !length)
		return;
	if (call->hook->role == ROLE_receive)
		length = *(const socklen_t *)length;
	take_address(message, address, length);
}

/* The value of eventfd_write, which is no memory of the program. */
static void take_counter(struct message *message, struct hook_call *call)
{
	message->buffer = call->hook->shown_as == HOOK_eventfd_write ? (const void *)&call->argument[1]
								     : (const void *)call->argument[1];
	message->bytes = message->requested = message->room = sizeof(uint64_t);
}

/* After success: everything the arguments name may be read. */
static struct message message_of(struct hook_call *call, uint64_t bytes)
{
	const struct hook_arguments *at = &call->hook->argument;
	struct message message = {.bytes = bytes};
	if (call->hook->shown_as == HOOK_eventfd_write || call->hook->shown_as == HOOK_eventfd_read)
		take_counter(&message, call);
	else if (at->msghdr >= 0)
		take_header(&message, (const struct msghdr *)argument(call, at->msghdr));
	else if (at->iovec >= 0)
		take_vectors(&message, (const struct iovec *)argument(call, at->iovec), argument(call, at->iovec_count));
	else
		take_plain(&message, call);
	if (at->address >= 0)
		take_named_address(&message, call);
	return message;
}

/* ---- places in a channel ----------------------------------------------------------- */

/* Where a message lies, as events tell it. */
struct place {
	uint64_t channel, offset;
};

/* Where messages keep their borders, each takes LORG_MESSAGE_DISTANCE of its channel, whatever is cut off it. */
static uint64_t distance(const struct end *end, uint64_t bytes)
{
	switch (end->driver) {
	case LORG_DRIVER_UDP:
	case LORG_DRIVER_RAW:
	case LORG_DRIVER_UNIX_DGRAM:
	case LORG_DRIVER_UNIX_SEQPACKET:
	case LORG_DRIVER_MQ:
	case LORG_DRIVER_SYSV:
	case LORG_DRIVER_NETLINK: return LORG_MESSAGE_DISTANCE;
	default: return bytes;
	}
}

/* A channel's place may have gone to another object: then this message is not numbered, the next one is. */
static struct place known_place(const struct hook_call *call, uint32_t channel, uint64_t offset)
{
	if (__builtin_expect(offset != CHANNEL_STALE, 1))
		return (struct place){channel, offset};
	struct port *port = call->hook->argument.fd >= 0 ? port_peek((int)call->argument[call->hook->argument.fd]) : 0;
	if (port && !call->self->vfork_child)
		port->pending = 1;
	return (struct place){0, 0};
}

static struct place sent_place(const struct hook_call *call, const struct end *end, uint32_t channel, uint64_t bytes)
{
	return known_place(call, channel, channel_advance(channel, distance(end, bytes), call->entry));
}

static struct place received_place(const struct hook_call *call, const struct end *end, uint32_t channel, uint64_t bytes)
{
	if (end->driver == LORG_DRIVER_EVENTFD) /* takes whatever was added so far: the newest is its cause */
		return known_place(call, channel, channel_newest(channel, bytes));
	return known_place(call, channel, channel_advance_received(channel, distance(end, bytes), call->entry));
}

/* A queue is first in, first out within each of its priorities or types only. */
static uint32_t sent_channel(const struct hook_call *call, const struct end *end, const struct message *message)
{
	struct port port = {.driver = end->driver};
	switch (end->driver) {
	case LORG_DRIVER_MQ: return queue_lane(end->channel_out, end->driver, (uint32_t)call->argument[3]);
	case LORG_DRIVER_SYSV: return queue_lane(end->channel_out, end->driver, *(const uint64_t *)call->argument[1]);
	case LORG_DRIVER_UDP:
	case LORG_DRIVER_UNIX_DGRAM:
		if (message->address_length)
			return port_channel_to(&port, message->address, message->address_length);
		return end->channel_out;
	default: return end->channel_out;
	}
}

static uint32_t received_channel(const struct hook_call *call, const struct end *end)
{
	switch (end->driver) {
	case LORG_DRIVER_MQ:
		return queue_lane(end->channel_in, end->driver,
				  call->argument[3] ? *(const uint32_t *)call->argument[3] : 0);
	case LORG_DRIVER_SYSV: return queue_lane(end->channel_in, end->driver, *(const uint64_t *)call->argument[1]);
	default: return end->channel_in;
	}
}

/* ---- events --------------------------------------------------------------------- */

static void write_send(struct hook_call *call, uint64_t object, const struct end *end, const struct message *message)
{
	if (!session_wants(LORG_MASK_SEND))
		return;
	struct pieces pieces;
	gather(&pieces, call->self, message);
	struct place place = sent_place(call, end, sent_channel(call, end, message), message->bytes);
	struct lorg_event_SEND event = {
		.entry = call->entry,
		.object = object,
		.channel = place.channel,
		.offset = place.offset,
		.bytes = message->bytes,
		.requested = message->requested,
		.hook = call->hook->shown_as,
		.generation = end->generation,
		.flags = message->flags | (pieces.kept < message->bytes ? LORG_MESSAGE_CUT : 0),
		.address_length = message->address_length,
		.message_length = pieces.kept,
	};
	write_pieces(call->self, LORG_EVENT_SEND, &event, sizeof event, &pieces);
}

static void write_receive(struct hook_call *call, uint64_t object, const struct end *end, const struct message *message)
{
	if (!session_wants(LORG_MASK_RECEIVE))
		return;
	struct pieces pieces;
	gather(&pieces, call->self, message);
	struct place place = received_place(call, end, received_channel(call, end), message->bytes);
	struct lorg_event_RECEIVE event = {
		.since = call->entry,
		.object = object,
		.channel = place.channel,
		.offset = place.offset,
		.bytes = message->bytes,
		.requested = message->requested,
		.hook = call->hook->shown_as,
		.generation = end->generation,
		.flags = message->flags | (pieces.kept < message->bytes ? LORG_MESSAGE_CUT : 0),
		.address_length = message->address_length,
		.message_length = pieces.kept,
	};
	write_pieces(call->self, LORG_EVENT_RECEIVE, &event, sizeof event, &pieces);
}

/* Descriptors that travel with a message. */
static void tell_passed(struct hook_call *call, int over, int fd, int received)
{
	if (received)
		port_opened(call, fd, -1);
	const struct port *port = port_peek(fd);
	if (call->gate & LORG_GATE_PORT)
		EVENT_WRITE(call->self, PASSED, .fd = fd, .generation = port ? port->generation : 0, .over = over,
			    .direction = (uint32_t)received);
}

static void tell_rights(struct hook_call *call, int over, const struct msghdr *header, int received)
{
	uint64_t length = header->msg_controllen;
	const char *control = header->msg_control;
	if (!control)
		return;
	for (uint64_t at = 0; at + sizeof(struct cmsghdr) <= length;) {
		struct cmsghdr item;
		memcpy(&item, control + at, sizeof item);
		if (item.cmsg_len < sizeof item || item.cmsg_len > length - at)
			return;
		if (item.cmsg_level == SOL_SOCKET && item.cmsg_type == SCM_RIGHTS)
			for (uint64_t i = CMSG_LEN(0); i + sizeof(int) <= item.cmsg_len; i += sizeof(int)) {
				int fd;
				memcpy(&fd, control + at + i, sizeof fd);
				tell_passed(call, over, fd, received);
			}
		at += CMSG_ALIGN(item.cmsg_len);
	}
}

/* ---- sends ---------------------------------------------------------------------- */

static void sent_many(struct hook_call *call, int fd, const struct end *end, intptr_t count)
{
	const struct mmsghdr *headers = (const struct mmsghdr *)argument(call, call->hook->argument.mmsghdr);
	for (intptr_t i = 0; i < count; i++) {
		struct message message = {.bytes = headers[i].msg_len};
		take_header(&message, &headers[i].msg_hdr);
		write_send(call, (uint64_t)(uint32_t)fd, end, &message);
		tell_rights(call, fd, &headers[i].msg_hdr, 0);
	}
}

/* vmsplice moves into the pipe from its write end and out of it at the other. */
static void vmspliced(struct hook_call *call, int fd, const struct end *end, intptr_t bytes)
{
	const struct port *port = port_peek(fd);
	struct message message = message_of(call, (uint64_t)bytes);
	if (port && port->access == O_RDONLY)
		write_receive(call, (uint64_t)(uint32_t)fd, end, &message);
	else
		write_send(call, (uint64_t)(uint32_t)fd, end, &message);
}

static void sent(struct hook_call *call, int fd, const struct end *end, intptr_t result)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (at->mmsghdr >= 0) {
		sent_many(call, fd, end, result);
		return;
	}
	if (call->hook->shown_as == HOOK_vmsplice) {
		vmspliced(call, fd, end, result);
		return;
	}
	/* mq_send and its like say 0 for all. */
	uint64_t bytes = is_posix_queue_call(call) ? argument(call, at->length) : (uint64_t)result;
	struct message message = message_of(call, bytes);
	if (end->stream && !message.bytes) /* an empty write to a stream moves nothing */
		return;
	write_send(call, (uint64_t)(uint32_t)fd, end, &message);
	if (at->msghdr >= 0)
		tell_rights(call, fd, (const struct msghdr *)argument(call, at->msghdr), 0);
}

static int is_gone(int error)
{
	return error == EPIPE || error == ECONNRESET || error == ECONNREFUSED || error == ENOTCONN;
}

/* A plain buffer's first bytes, by a copy that cannot fault; other forms of call keep nothing. */
static void send_failed(struct hook_call *call, uint64_t object, const struct end *end)
{
	uint8_t bytes[FAILED_MESSAGE_BYTES];
	struct message message = {0};
	uint64_t limit = the_arena.message_length < sizeof bytes ? the_arena.message_length : sizeof bytes;
	if (call->hook->argument.buffer >= 0 && call->hook->shown_as != HOOK_eventfd_write) {
		take_plain(&message, call);
		if (limit > message.requested)
			limit = message.requested;
		message.room = message.bytes = limit ? memory_peek(bytes, message.buffer, (uint32_t)limit) : 0;
		message.buffer = bytes;
	}
	struct pieces pieces;
	gather(&pieces, call->self, &message);
	struct lorg_event_SEND event = {
		.entry = call->entry,
		.object = object,
		.channel = end->channel_out,
		.requested = message.requested,
		.hook = call->hook->shown_as,
		.generation = end->generation,
		.flags = pieces.kept < message.requested ? LORG_MESSAGE_CUT : 0,
		.error = call->error,
		.message_length = pieces.kept,
	};
	write_pieces(call->self, LORG_EVENT_SEND_TO_NON_EXISTING, &event, sizeof event, &pieces);
}

static void send_leave(struct hook_call *call, int fd, intptr_t result)
{
	const struct end *end = end_of(call, SCRATCH_END);
	if (end->kind != PORT_KIND_PORT)
		return;
	if (result >= 0)
		sent(call, fd, end, result);
	else if (is_gone(call->error) && session_wants(LORG_MASK_SEND))
		send_failed(call, (uint64_t)(uint32_t)fd, end);
}

/* ---- receives ------------------------------------------------------------------- */

static int is_looking_only(const struct hook_call *call)
{
	return (call->hook->flags & HOOK_PEEKS) && (flags_of(call) & (MSG_PEEK | MSG_ERRQUEUE));
}

static void received_signals(struct hook_call *call, intptr_t bytes)
{
	if (call->hook->argument.buffer < 0 || !session_wants(LORG_MASK_RECEIVE))
		return;
	const struct signalfd_siginfo *taken = (const struct signalfd_siginfo *)argument(call, call->hook->argument.buffer);
	for (uint64_t i = 0; i < (uint64_t)bytes / sizeof *taken; i++)
		EVENT_WRITE(call->self, SIGNAL_RECEIVED, .value = taken[i].ssi_ptr, .signal = taken[i].ssi_signo,
			    .hook = call->hook->shown_as, .how = 2, .code = taken[i].ssi_code, .from_pid = taken[i].ssi_pid,
			    .from_uid = taken[i].ssi_uid);
}

static void received_many(struct hook_call *call, int fd, const struct end *end, intptr_t count)
{
	const struct mmsghdr *headers = (const struct mmsghdr *)argument(call, call->hook->argument.mmsghdr);
	for (intptr_t i = 0; i < count; i++) {
		struct message message = {.bytes = headers[i].msg_len};
		take_header(&message, &headers[i].msg_hdr);
		if (end->stream && !message.bytes)
			message.flags = LORG_MESSAGE_EOF;
		write_receive(call, (uint64_t)(uint32_t)fd, end, &message);
		tell_rights(call, fd, &headers[i].msg_hdr, 1);
	}
}

static void received(struct hook_call *call, int fd, const struct end *end, intptr_t result)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (at->mmsghdr >= 0) {
		received_many(call, fd, end, result);
		return;
	}
	struct message message = message_of(call, (uint64_t)result);
	if (end->stream && !message.bytes) {
		if (!message.requested)
			return;
		message.flags = LORG_MESSAGE_EOF;
	}
	/* MSG_TRUNC throws the bytes of a stream away. */
	if ((call->hook->flags & HOOK_PEEKS) && (flags_of(call) & MSG_TRUNC) && end->stream)
		message.flags |= LORG_MESSAGE_NOT_COPIED;
	write_receive(call, (uint64_t)(uint32_t)fd, end, &message);
	if (at->msghdr >= 0)
		tell_rights(call, fd, (const struct msghdr *)argument(call, at->msghdr), 1);
}

/* EAGAIN of a descriptor that we took for a blocking one: a time-out ran out, or someone else set O_NONBLOCK. */
static int ran_out(struct hook_call *call, int fd)
{
	if (call->error == ETIMEDOUT)
		return 1;
	if (call->error != EAGAIN || !(call->scratch[SCRATCH_STATE] & STATE_BLOCKING) || is_queue_call(call))
		return 0;
	if (call->scratch[SCRATCH_LIMIT] || call->hook->argument.timeout_timespec >= 0)
		return 1;
	long flags = system_calls_allowed() ? raw_syscall3(SYS_fcntl, fd, F_GETFL, 0) : O_NONBLOCK;
	if (raw_failed(flags) || !(flags & O_NONBLOCK))
		return !raw_failed(flags);
	port_set_nonblocking(call->self, fd, 1);
	return 0;
}

static void receive_leave(struct hook_call *call, int fd, intptr_t result)
{
	const struct end *end = end_of(call, SCRATCH_END);
	if (result < 0) {
		if (session_wants(LORG_MASK_RECEIVE) && ran_out(call, fd))
			EVENT_WRITE(call->self, TIMEOUT, .since = call->entry, .object = (uint64_t)(uint32_t)fd,
				    .limit_ns = limit_ns(call), .hook = call->hook->shown_as, .error = call->error);
		return;
	}
	if (is_looking_only(call))
		return;
	if (end->kind == PORT_KIND_SIGNALFD)
		received_signals(call, result);
	else
		received(call, fd, end, result);
}

/* ---- transfers and SysV queues ----------------------------------------------------- */

/* tee takes nothing out of the pipe that it reads. */
static void transfer_leave(struct hook_call *call, intptr_t result)
{
	int from = (int)argument(call, call->hook->argument.fd), to = (int)argument(call, call->hook->argument.fd2);
	const struct end *source = end_of(call, SCRATCH_END), *target = end_of(call, SCRATCH_SECOND);
	struct message message = {.requested = argument(call, call->hook->argument.length),
				  .flags = LORG_MESSAGE_NOT_COPIED};
	if (result < 0) {
		if (target->driver && is_gone(call->error) && session_wants(LORG_MASK_SEND))
			send_failed(call, (uint64_t)(uint32_t)to, target);
		return;
	}
	message.bytes = (uint64_t)result;
	if (source->driver && call->hook->shown_as != HOOK_tee && (message.bytes || source->stream)) {
		struct message taken = message;
		taken.flags |= message.bytes || !message.requested ? 0 : LORG_MESSAGE_EOF;
		write_receive(call, (uint64_t)(uint32_t)from, source, &taken);
	}
	if (target->driver && message.bytes)
		write_send(call, (uint64_t)(uint32_t)to, target, &message);
}

/* The bytes of a SysV message stand behind its type. */
static void queue_leave(struct hook_call *call, int msqid, intptr_t result)
{
	const struct end *end = end_of(call, SCRATCH_END);
	const struct hook_arguments *at = &call->hook->argument;
	if (result < 0)
		return;
	int sends = call->hook->role == ROLE_send;
	if (!sends && (flags_of(call) & MSG_COPY))
		return;
	queue_told(call->self, msqid, PORT_INHERITED, 0);
	struct message message = {.requested = argument(call, at->length)};
	message.bytes = sends ? message.requested : (uint64_t)result;
	message.buffer = (const char *)argument(call, at->buffer) + sizeof(long);
	message.room = message.bytes;
	if (sends)
		write_send(call, queue_object(msqid), end, &message);
	else
		write_receive(call, queue_object(msqid), end, &message);
}

/* ---- the common case ------------------------------------------------------------- */

_Static_assert(sizeof(struct lorg_event_SEND) == sizeof(struct lorg_event_RECEIVE) &&
		       offsetof(struct lorg_event_SEND, message_length) ==
			       offsetof(struct lorg_event_RECEIVE, message_length),
	       "written by the same code");

/* True where a transfer of some bytes is a message like any other: no peek, no place of its own in the channel. */
static inline int is_common(const struct hook_call *call, const struct end *end)
{
	if (end->driver == LORG_DRIVER_MQ || end->driver == LORG_DRIVER_EVENTFD)
		return 0;
	return !(call->hook->flags & HOOK_PEEKS) || !flags_of(call);
}

/* One buffer, some bytes of which have been moved. Returns 0: nothing was done. */
static int write_common(struct hook_call *call, intptr_t result)
{
	const struct end *end = end_of(call, SCRATCH_END);
	uint64_t bytes = (uint64_t)result, kept = call->argument[2] < bytes ? call->argument[2] : bytes;
	int sends = call->hook->role == ROLE_send;
	if (!session_wants(sends ? LORG_MASK_SEND : LORG_MASK_RECEIVE))
		return 1;
	struct event_place place;
	if (kept > the_arena.message_length)
		kept = the_arena.message_length;
	if (!is_common(call, end) || !event_open(call->self, &place, sizeof(struct lorg_event_SEND) + (uint32_t)kept))
		return 0;
	struct place where =
		sends ? sent_place(call, end, end->channel_out, bytes) : received_place(call, end, end->channel_in, bytes);
	struct lorg_event_SEND *event = (void *)place.fields;
	event->entry = call->entry;
	event->object = (uint32_t)call->argument[0];
	event->channel = where.channel;
	event->offset = where.offset;
	event->bytes = bytes;
	event->requested = call->argument[2];
	event->hook = call->hook->shown_as;
	event->generation = end->generation;
	event->flags = kept < bytes ? LORG_MESSAGE_CUT : 0;
	event->error = 0;
	event->address_length = 0;
	event->message_length = (uint32_t)kept;
	memcpy(event + 1, (const void *)call->argument[1], kept);
	event_commit(call->self, &place, sends ? LORG_EVENT_SEND : LORG_EVENT_RECEIVE);
	return 1;
}

/* ---- return ---------------------------------------------------------------------- */

static void end_wait(struct hook_call *call, uint64_t object, intptr_t result)
{
	if (call->scratch[SCRATCH_STATE] & STATE_RUNNING)
		running_in(call, object, result);
	else
		wait_clear(call->self);
}

static uint64_t object_of(struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (is_queue_call(call))
		return queue_object((int)argument(call, at->object));
	int8_t index = call->hook->role == ROLE_transfer && !end_of(call, SCRATCH_END)->driver ? at->fd2 : at->fd;
	return (uint64_t)(uint32_t)argument(call, index);
}

static void write_events(struct hook_call *call, intptr_t result)
{
	int fd = (int)object_of(call);
	if (is_queue_call(call))
		queue_leave(call, (int)argument(call, call->hook->argument.object), result);
	else if (call->hook->role == ROLE_transfer)
		transfer_leave(call, result);
	else if (call->hook->role == ROLE_send)
		send_leave(call, fd, result);
	else
		receive_leave(call, fd, result);
}

void message_leave(struct hook_call *call, intptr_t result)
{
	if (!(call->scratch[SCRATCH_STATE] & STATE_ACTIVE))
		return;
	int plain = (call->scratch[SCRATCH_STATE] & STATE_PLAIN) != 0;
	end_wait(call, plain ? (uint32_t)call->argument[0] : object_of(call), result);
	if (call->gate & LORG_GATE_MESSAGE && !(plain && result > 0 && write_common(call, result)))
		write_events(call, result);
	if (!(call->gate & LORG_GATE_ALL))
		return;
	if (call->hook->role == ROLE_transfer)
		port_out(call, (int)argument(call, call->hook->argument.fd2), end_of(call, SCRATCH_SECOND));
	port_out(call, (int)argument(call, call->hook->argument.fd), end_of(call, SCRATCH_END));
}
