/* SPDX-License-Identifier: MIT */
/*
 * message.c: bytes that move through ports. One event a message: a send is
 * told with the tick of its call's entry, a receive when the call returns. The
 * first message of a call tells the call's out and in along with itself.
 *
 * What is sent is copied before the call: who receives it may be given the
 * memory along with it. What does not fit there (more than the usual length) is
 * copied after the call, like what was received, by a copy that cannot fault
 * (readable.h), as is memory of a call that failed.
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
#include "preload/core/readable.h"
#include "preload/hooks/message_match.h"
#include "preload/hooks/port_table.h"
#include "preload/hooks/running.h"
#include "preload/hooks/timeout.h"
#include "preload/hooks/token.h"

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
	STATE_RUNNING = 2,  /* out and in are asked for; after the call: and not yet told */
	STATE_BLOCKING = 4, /* the call may wait */
	STATE_PLAIN = 8,    /* one buffer on a port that was known */
	STATE_COMMON = 16,  /* and a message like most, if it moves some bytes */
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

/* ---- before a send ------------------------------------------------------------- */

/* The bytes of most messages are few: no call for those. */
static inline void copy_bytes(char *to, const char *from, uint32_t length)
{
	struct two_words {
		uint64_t low, high;
	} words;
	if (length > 64) {
		memcpy(to, from, length);
		return;
	}
	for (; length >= sizeof words; length -= (uint32_t)sizeof words, to += sizeof words, from += sizeof words) {
		__builtin_memcpy(&words, from, sizeof words);
		__builtin_memcpy(to, &words, sizeof words);
	}
	for (; length; length--)
		*to++ = *from++;
}

static inline uint32_t taken_limit(uint64_t length)
{
	uint64_t limit = the_arena.message_length < LORG_MESSAGE_LENGTH ? the_arena.message_length : LORG_MESSAGE_LENGTH;
	return (uint32_t)(length < limit ? length : limit);
}

static inline void take_buffer(struct hook_call *call, const void *buffer, uint64_t length)
{
	uint32_t limit = taken_limit(length);
	call->taken_requested = length;
	if (__builtin_expect(limit && memory_is_known(buffer, limit), 1)) {
		copy_bytes(call->taken, buffer, limit);
		call->taken_length = limit;
	} else {
		call->taken_length = limit ? memory_take_unknown(call->taken, buffer, limit) : 0;
	}
}

/* Of more vectors than that nothing is taken. */
static void take_pieces(struct hook_call *call, const struct iovec *iovec, uint64_t count)
{
	struct iovec copy[VECTORS_PEEKED];
	uint64_t requested = 0;
	uint32_t size = (uint32_t)(count * sizeof *copy), kept = 0;
	if (!count || count > VECTORS_PEEKED || memory_take(copy, iovec, size) != size)
		return;
	for (uint64_t i = 0; i < count; i++)
		requested += copy[i].iov_len;
	uint32_t limit = taken_limit(requested);
	for (uint64_t i = 0; i < count && kept < limit; i++) {
		uint32_t length = copy[i].iov_len < limit - kept ? (uint32_t)copy[i].iov_len : limit - kept;
		uint32_t got = length ? memory_take(call->taken + kept, copy[i].iov_base, length) : 0;
		kept += got;
		if (got < length)
			break;
	}
	call->taken_requested = requested;
	call->taken_length = kept;
}

static void take_before(struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	struct msghdr header;
	if (call->hook->role != ROLE_send || !(call->gate & LORG_GATE_MESSAGE) || call->hook->shown_as == HOOK_eventfd_write)
		return;
	if (is_queue_call(call)) {
		take_buffer(call, (const char *)argument(call, at->buffer) + sizeof(long), argument(call, at->length));
	} else if (at->msghdr >= 0) {
		if (memory_take(&header, (const void *)argument(call, at->msghdr), sizeof header) == sizeof header)
			take_pieces(call, header.msg_iov, header.msg_iovlen);
	} else if (at->iovec >= 0) {
		take_pieces(call, (const struct iovec *)argument(call, at->iovec), argument(call, at->iovec_count));
	} else if (at->buffer >= 0) {
		take_buffer(call, (const void *)argument(call, at->buffer), argument(call, at->length));
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

static void write_port_in(struct hook_call *call, int fd, const struct end *end)
{
	EVENT_WRITE(call->self, PORT_IN, .fd = fd, .generation = end->generation, .command = call->hook->port_command,
		    .hook = call->hook->shown_as);
}

static inline void port_in(struct hook_call *call, int fd, const struct end *end)
{
	if (__builtin_expect((call->gate & LORG_GATE_ALL) && end->driver, 0))
		write_port_in(call, fd, end);
}

static void port_out(struct hook_call *call, int fd, const struct end *end)
{
	if ((call->gate & LORG_GATE_ALL) && end->driver)
		EVENT_WRITE(call->self, PORT_OUT, .fd = fd, .generation = end->generation,
			    .command = call->hook->port_command, .hook = call->hook->shown_as);
}

static inline int has_timeout(const struct hook *hook)
{
	const struct hook_arguments *at = &hook->argument;
	return (at->timeout_ms & at->timeout_timespec & at->timeout_timeval) >= 0; /* not all of them -1 */
}

static int64_t limit_ns(const struct hook_call *call)
{
	int64_t given = has_timeout(call->hook) ? call_timeout(call) : -1;
	if (given >= 0)
		return given;
	return call->scratch[SCRATCH_LIMIT] ? (int64_t)call->scratch[SCRATCH_LIMIT] * 1000000 : -1;
}

static inline __attribute__((always_inline)) void begin(struct hook_call *call, uint64_t object, int waits)
{
	call->entry = clock_now();
	if (waits && (call->gate & LORG_GATE_RUNNING)) {
		call->scratch[SCRATCH_STATE] = STATE_ACTIVE | STATE_BLOCKING | STATE_RUNNING;
		running_begin(call, object, limit_ns(call));
	} else if (running_tells_all(call)) {
		call->scratch[SCRATCH_STATE] = STATE_ACTIVE | STATE_RUNNING;
		running_begin(call, object, -1);
		running_did_not_wait(call);
	} else {
		call->scratch[SCRATCH_STATE] = STATE_ACTIVE | (waits ? STATE_BLOCKING : 0);
		call->stops_count = 0;
		if (waits)
			waiting_begins(call);
		wait_begin(call->self, call->hook->shown_as, object, call->entry);
	}
}

static void queue_enter(struct hook_call *call)
{
	int msqid = (int)argument(call, call->hook->argument.object);
	uint32_t channel = queue_channel(msqid);
	*end_of(call, SCRATCH_END) = (struct end){.channel_in = channel, .channel_out = channel, .driver = LORG_DRIVER_SYSV};
	call->scratch[SCRATCH_LIMIT] = 0;
	take_before(call);
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

/* fd, buffer and length stand first, nothing else names a port, and there is no time-out. */
static inline int is_plain(const struct hook *hook)
{
	const struct hook_arguments *at = &hook->argument;
	return at->fd == 0 && at->buffer == 1 && at->length == 2 && at->address < 0 && !has_timeout(hook);
}

/* may_wait of a plain call: its flags, which few have, are looked at there. */
static inline int plain_may_wait(const struct hook_call *call, int nonblocking)
{
	if (__builtin_expect(call->hook->blocking == BLOCKING_descriptor && !flags_of(call), 1))
		return !nonblocking;
	return may_wait(call, nonblocking);
}

/* Where a message is going, as far as it is known before it is sent. */
static void tokens_begin(struct hook_call *call, const struct end *end)
{
	if (call->hook->role == ROLE_send && (call->gate & LORG_GATE_MESSAGE) && end->kind == PORT_KIND_PORT)
		token_departs(call, call->hook->argument.address < 0 && !is_posix_queue_call(call) ? end->channel_out : 0);
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
	take_before(call);
	if (__builtin_expect(call->tokens, 0))
		tokens_begin(call, end);
	begin(call, (uint64_t)(uint32_t)fd, may_wait(call, port->nonblocking));
}

enum { SHORT_BITS = 16 /* of a descriptor, a generation, a hook in a short event */ };

/*
 * True where some bytes moved by a plain call are a message like any other: asked for and no more than that, no peek,
 * no place of its own in the channel, no time-out, small numbers.
 */
static inline int is_common(const struct hook_call *call, const struct end *end)
{
	const uint32_t others = 1u << LORG_DRIVER_MQ | 1u << LORG_DRIVER_EVENTFD;
	uint32_t wanted = call->hook->role == ROLE_send ? LORG_MASK_SEND : LORG_MASK_RECEIVE;
	if ((call->gate & (LORG_GATE_MESSAGE | LORG_GATE_ALL)) != LORG_GATE_MESSAGE || !session_wants(wanted))
		return 0;
	if (__builtin_expect(the_arena.message_programs & wanted, 0))
		return 0;
	if (others >> end->driver & 1 || end->generation >> SHORT_BITS || call->scratch[SCRATCH_LIMIT])
		return 0;
	return !(call->hook->flags & HOOK_PEEKS) || !flags_of(call);
}

void message_enter(struct hook_call *call)
{
	int fd = (int)call->argument[0];
	struct port *port = is_plain(call->hook) ? port_find_quick(call->self, fd) : 0;
	call->taken_length = 0;
	if (__builtin_expect(!port, 0)) {
		enter(call);
		return;
	}
	struct end *end = end_of(call, SCRATCH_END);
	take_end(end, port);
	call->scratch[SCRATCH_LIMIT] = port->receive_limit_ms;
	port_in(call, fd, end);
	if (call->hook->role == ROLE_send && (call->gate & LORG_GATE_MESSAGE))
		take_buffer(call, (const void *)call->argument[1], call->argument[2]);
	if (__builtin_expect(call->tokens, 0))
		tokens_begin(call, end);
	begin(call, (uint64_t)(uint32_t)fd, plain_may_wait(call, port->nonblocking));
	call->scratch[SCRATCH_STATE] |= is_common(call, end) ? STATE_PLAIN | STATE_COMMON : STATE_PLAIN;
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
	const char *taken; /* its first bytes, from before the call */
	uint32_t taken_length;
	uint8_t gone; /* 1: what it lies in may be somebody else's by now */
};

/* The pieces of an event: [0] the address, the others the message. */
struct pieces {
	struct event_bytes at[2 + MESSAGE_PIECES]; /* the last: what a match specification has added */
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

/* At most `length` bytes of one piece. */
static uint32_t copy_piece(char *to, const struct message *message, const void *from, uint64_t length)
{
	return message->gone ? memory_peek(to, from, (uint32_t)length) : memory_take(to, from, (uint32_t)length);
}

/* Too many small pieces, or some that may not be there: put together first. Returns 0 when there is no memory for it. */
static int flatten(struct pieces *pieces, const struct message *message, uint64_t limit)
{
	char *memory = thread_scratch();
	uint64_t kept = 0;
	if (!memory)
		return 0;
	if (message->buffer)
		kept = copy_piece(memory, message, message->buffer, message->room < limit ? message->room : limit);
	for (uint64_t i = 0; i < message->iovec_count && kept < limit; i++) {
		uint64_t length = message->iovec[i].iov_len < limit - kept ? message->iovec[i].iov_len : limit - kept;
		uint32_t got = length ? copy_piece(memory + kept, message, message->iovec[i].iov_base, length) : 0;
		kept += got;
		if (got < length)
			break;
	}
	pieces->at[1] = (struct event_bytes){memory, (uint32_t)kept};
	pieces->count = 2;
	pieces->kept = (uint32_t)kept;
	return 1;
}

/* True where the pieces can be copied by the event's writer as they are. */
static int are_readable(const struct pieces *pieces, const struct message *message)
{
	for (unsigned i = 1; i < pieces->count; i++)
		if (!memory_is_readable(pieces->at[i].data, pieces->at[i].length))
			return 0;
	return !message->gone || !system_calls_allowed();
}

/* write_pieces or release_pieces has to follow. */
static void gather(struct pieces *pieces, struct thread *self, const struct message *message)
{
	pieces->at[0] = (struct event_bytes){message->address, message->address_length};
	pieces->count = 1;
	pieces->kept = 0;
	pieces->flattened = 0;
	if (message->flags & LORG_MESSAGE_NOT_COPIED)
		return;
	uint64_t limit = the_arena.message_length < message->bytes ? the_arena.message_length : message->bytes;
	if (message->taken_length >= limit) {
		add_piece(pieces, message->taken, limit, limit);
		return;
	}
	if (message->buffer)
		add_piece(pieces, message->buffer, message->room, limit);
	add_vectors(pieces, message, limit);
	if ((pieces->kept == limit || pieces->count <= MESSAGE_PIECES) && are_readable(pieces, message))
		return;
	thread_busy(self); /* a handler must not use the scratch memory meanwhile */
	pieces->flattened = (uint8_t)flatten(pieces, message, limit);
	if (pieces->flattened)
		return;
	thread_idle(self);
	pieces->count = 1;
	pieces->kept = 0;
}

static void release_pieces(struct thread *self, const struct pieces *pieces)
{
	if (pieces->flattened)
		thread_idle(self);
}

static void write_pieces(struct thread *self, uint16_t id, const void *event, uint32_t size, const struct pieces *pieces)
{
	event_write(self, id, event, size, pieces->at, pieces->count, 0);
	release_pieces(self, pieces);
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
	if (!address || length < sizeof(sa_family_t) || !memory_is_readable(address, length))
		return;
	uint32_t room = address_room(address);
	message->address = address;
	message->address_length = length < room ? (uint32_t)length : room;
}

static void take_vectors(struct message *message, const struct iovec *iovec, uint64_t count)
{
	if (!memory_is_readable(iovec, count * sizeof *iovec))
		return;
	message->iovec = iovec;
	message->iovec_count = count;
	message->requested = total_length(iovec, count);
}

static void take_header(struct message *message, const struct msghdr *header)
{
	if (!memory_is_readable(header, sizeof *header))
		return;
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

/* What was taken before the call goes before what is there now. */
static void take_taken(struct message *message, const struct hook_call *call)
{
	if (call->hook->role != ROLE_send || call->hook->shown_as == HOOK_eventfd_write)
		return;
	message->gone = 1;
	if (!call->taken_length)
		return;
	message->taken = call->taken;
	message->taken_length = call->taken_length;
	message->requested = call->taken_requested;
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
	take_taken(&message, call);
	return message;
}

/* ---- places in a channel ----------------------------------------------------------- */

/* Where a message lies, as events tell it. */
struct place {
	uint64_t channel, offset;
};

/* Where messages keep their borders, each takes LORG_MESSAGE_DISTANCE of its channel, whatever is cut off it. */
static inline uint64_t distance(const struct end *end, uint64_t bytes)
{
	const uint32_t with_borders = 1u << LORG_DRIVER_UDP | 1u << LORG_DRIVER_RAW | 1u << LORG_DRIVER_UNIX_DGRAM |
				      1u << LORG_DRIVER_UNIX_SEQPACKET | 1u << LORG_DRIVER_MQ | 1u << LORG_DRIVER_SYSV |
				      1u << LORG_DRIVER_NETLINK;
	return with_borders >> end->driver & 1 ? LORG_MESSAGE_DISTANCE : bytes;
}

/* A channel's place may have gone to another object: then this message is not numbered, the next one is. */
static __attribute__((noinline)) struct place stale_place(const struct hook_call *call)
{
	struct port *port = call->hook->argument.fd >= 0 ? port_peek((int)call->argument[call->hook->argument.fd]) : 0;
	if (port && !call->self->vfork_child)
		port->pending = 1;
	return (struct place){0, 0};
}

static inline struct place known_place(const struct hook_call *call, uint32_t channel, uint64_t offset)
{
	if (__builtin_expect(offset != CHANNEL_STALE, 1))
		return (struct place){channel, offset};
	return stale_place(call);
}

static inline struct place sent_place(struct hook_call *call, const struct end *end, uint32_t channel, uint64_t bytes)
{
	struct place where = known_place(call, channel, channel_advance(channel, distance(end, bytes), call->entry));
	if (__builtin_expect(call->tokens, 0))
		token_sent(call, (uint32_t)where.channel, where.offset, distance(end, bytes));
	return where;
}

static inline struct place received_place(struct hook_call *call, const struct end *end, uint32_t channel, uint64_t bytes)
{
	struct place where;
	if (end->driver == LORG_DRIVER_EVENTFD) /* takes whatever was added so far: the newest is its cause */
		where = known_place(call, channel, channel_newest(channel, bytes));
	else
		where = known_place(call, channel, channel_advance_received(channel, distance(end, bytes), call->entry));
	if (__builtin_expect(call->tokens, 0))
		token_arrived(call, (uint32_t)where.channel, where.offset, distance(end, bytes));
	return where;
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

/* ---- out and in ------------------------------------------------------------------ */

static uint64_t object_of(struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (is_queue_call(call))
		return queue_object((int)argument(call, at->object));
	int8_t index = call->hook->role == ROLE_transfer && !end_of(call, SCRATCH_END)->driver ? at->fd2 : at->fd;
	return (uint64_t)(uint32_t)argument(call, index);
}

/* The call is over: its wait in the process entry too, its out and in are told with its first message. */
static inline __attribute__((always_inline)) void end_wait(struct hook_call *call, uint64_t object, intptr_t result)
{
	call->result = result;
	if (!(call->scratch[SCRATCH_STATE] & STATE_RUNNING)) {
		waiting_ends(call);
		wait_end(call->self);
	} else if (!running_ended(call, object, result)) {
		call->scratch[SCRATCH_STATE] &= ~(uint64_t)STATE_RUNNING;
	}
}

/* Before any event of the call that is no short message: its out and in, unless they have been told. */
static void tell_wait(struct hook_call *call)
{
	if (!(call->scratch[SCRATCH_STATE] & STATE_RUNNING))
		return;
	call->scratch[SCRATCH_STATE] &= ~(uint64_t)STATE_RUNNING;
	running_tell(call, object_of(call), call->result);
}

/* ---- short events ---------------------------------------------------------------- */

_Static_assert(HOOK_COUNT <= 1 << SHORT_BITS, "hook_flags");
_Static_assert(sizeof(struct lorg_event_SEND) == sizeof(struct lorg_event_RECEIVE) &&
		       offsetof(struct lorg_event_SEND, message_length) == offsetof(struct lorg_event_RECEIVE, message_length),
	       "written by the same code");
_Static_assert(sizeof(struct lorg_event_SENT) == sizeof(struct lorg_event_RECEIVED) &&
		       offsetof(struct lorg_event_SENT, message_length) == offsetof(struct lorg_event_RECEIVED, message_length),
	       "written by the same code");

/* What stands in a short event besides what the call has. */
struct short_message {
	uint32_t fd, generation, bytes, requested, kept, flags;
};

static __attribute__((noinline)) uint32_t unusual_running_flags(const struct hook_call *call)
{
	return (call->out_ending & 1 ? LORG_MESSAGE_OUT_ENDING : 0) |
	       (call->out_ending & RUNNING_NOT_WAITED ? LORG_MESSAGE_NOT_WAITED : 0);
}

/* LORG_MESSAGE_RUNNING and what belongs to it, where the message tells the call's out and in. */
static inline uint32_t running_flags(struct hook_call *call, uint64_t bytes)
{
	if (!(call->scratch[SCRATCH_STATE] & STATE_RUNNING))
		return 0;
	return LORG_MESSAGE_RUNNING | (__builtin_expect(call->out_ending, 0) ? unusual_running_flags(call) : 0) |
	       (running_ending(call->self) ? LORG_MESSAGE_IN_ENDING : 0) |
	       ((uint64_t)call->result != bytes ? LORG_MESSAGE_NO_COUNT : 0);
}

/* True where the message can tell of the call's wait: no time-out, and the result is the bytes or 0. */
static inline int tells_wait(const struct hook_call *call, uint64_t bytes)
{
	return !(call->scratch[SCRATCH_STATE] & STATE_RUNNING) ||
	       (call->timeout_ns < 0 && ((uint64_t)call->result == bytes || call->result == 0));
}

/*
 * Room for a short event with `kept` bytes of the message. NULL, with nothing done: there is none, or the call took
 * longer than a short event can tell.
 */
static inline __attribute__((always_inline)) struct lorg_event_SENT *open_short(struct hook_call *call,
									       struct event_place *place, uint32_t kept)
{
	uint64_t tick;
	if (__builtin_expect(!event_open(call->self, place, (uint32_t)sizeof(struct lorg_event_SENT) + kept), 0))
		return 0;
	__builtin_memcpy(&tick, place->fields - sizeof tick, sizeof tick);
	uint64_t before = tick - call->entry;
	if (__builtin_expect(before > UINT32_MAX, 0)) {
		event_commit(call->self, place, LORG_EVENT_WITHDRAWN);
		return 0;
	}
	struct lorg_event_SENT *event = (void *)place->fields;
	event->before = (uint32_t)before;
	return event;
}

static inline __attribute__((always_inline)) void fill_short(struct hook_call *call, struct lorg_event_SENT *event,
							    const struct short_message *message, struct place where)
{
	event->port = message->fd | message->generation << SHORT_BITS;
	event->caller = call->caller;
	event->offset = where.offset;
	event->channel = (uint32_t)where.channel;
	event->bytes = message->bytes;
	event->requested = message->requested;
	event->hook_flags = call->hook->shown_as | (message->flags | running_flags(call, message->bytes)) << SHORT_BITS;
	event->message_length = message->kept;
	call->scratch[SCRATCH_STATE] &= ~(uint64_t)STATE_RUNNING;
}

/* ---- events --------------------------------------------------------------------- */

/* Any message that has no address and small numbers. Returns 0, with nothing done, where the long form has to do it. */
static int write_short(struct hook_call *call, int sends, uint64_t object, const struct end *end, const struct message *message,
		       const struct pieces *pieces, struct place where)
{
	struct event_place place;
	if (!tells_wait(call, message->bytes) || object != object_of(call))
		tell_wait(call);
	if ((object | end->generation) >> SHORT_BITS || (message->bytes | message->requested) >> 32 || message->address_length)
		return 0;
	struct lorg_event_SENT *event = open_short(call, &place, pieces->kept);
	if (!event)
		return 0;
	const struct short_message about = {
		.fd = (uint32_t)object,
		.generation = end->generation,
		.bytes = (uint32_t)message->bytes,
		.requested = (uint32_t)message->requested,
		.kept = pieces->kept,
		.flags = message->flags | (pieces->kept < message->bytes ? LORG_MESSAGE_CUT : 0),
	};
	fill_short(call, event, &about, where);
	char *to = (char *)(event + 1);
	for (unsigned i = 1; i < pieces->count; i++) {
		memcpy(to, pieces->at[i].data, pieces->at[i].length);
		to += pieces->at[i].length;
	}
	event_commit(call->self, &place, sends ? LORG_EVENT_SENT : LORG_EVENT_RECEIVED);
	return 1;
}

/* What seq_trace(3) tells of a message that has a token: of the same bytes as the message itself, before that. */
static void write_sequence(struct hook_call *call, const struct lorg_event_SEND *message, const struct pieces *pieces)
{
	struct lorg_event_SEQ_TRACE event;
	if (!token_tells(call, &event))
		return;
	event.object = message->object;
	event.generation = message->generation;
	event.bytes = message->bytes;
	event.address_length = message->address_length;
	event.message_length = message->message_length;
	event_write(call->self, LORG_EVENT_SEQ_TRACE, &event, sizeof event, pieces->at, pieces->count, 0);
}

/* `where` comes first: to number the bytes is a locked operation, which would wait for what has been written before it. */
static void write_message(struct hook_call *call, int sends, uint64_t object, const struct end *end, const struct message *message,
			  struct place where, const struct matched_event *matched)
{
	struct pieces pieces;
	struct event_bytes value = matched->value;
	gather(&pieces, call->self, message);
	if (!value.length && !matched->session && !call->token_told && write_short(call, sends, object, end, message, &pieces, where)) {
		release_pieces(call->self, &pieces);
		return;
	}
	tell_wait(call);
	/* A receive has `since` where a send has `entry`. */
	struct lorg_event_SEND event = {
		.entry = call->entry,
		.object = object,
		.channel = where.channel,
		.offset = where.offset,
		.bytes = message->bytes,
		.requested = message->requested,
		.hook = call->hook->shown_as,
		.generation = end->generation,
		.flags = message->flags | (pieces.kept < message->bytes ? LORG_MESSAGE_CUT : 0),
		.session = matched->session,
		.as_port = matched->as_port,
		.address_length = message->address_length,
		.message_length = pieces.kept,
		.value_length = value.length,
	};
	if (__builtin_expect(call->token_told, 0))
		write_sequence(call, &event, &pieces);
	if (value.length)
		pieces.at[pieces.count++] = value;
	write_pieces(call->self, sends ? LORG_EVENT_SEND : LORG_EVENT_RECEIVE, &event, sizeof event, &pieces);
}

/* All sessions take it. */
static const struct matched_event for_all;

static struct matched_bytes matched_bytes_of(int sends, uint64_t object, const struct end *end, const struct message *message)
{
	int taken = message->taken_length && message->taken_length >= message->bytes;
	return (struct matched_bytes){
		.bytes = message->bytes,
		.buffer = taken ? message->taken : message->buffer,
		.room = taken ? message->taken_length : message->room,
		.iovec = taken ? 0 : message->iovec,
		.iovec_count = taken ? 0 : message->iovec_count,
		.may_fault = message->gone && !taken && message->buffer,
		.object = object,
		.generation = end->generation,
		.sends = (uint8_t)sends,
		.eof = (message->flags & LORG_MESSAGE_EOF) != 0,
		.not_copied = (message->flags & LORG_MESSAGE_NOT_COPIED) != 0,
	};
}

struct written {
	struct hook_call *call;
	int sends;
	uint64_t object;
	const struct end *end;
	const struct message *message;
	struct place where;
};

static void write_one(void *context, const struct matched_event *matched)
{
	const struct written *written = context;
	write_message(written->call, written->sends, written->object, written->end, written->message, written->where, matched);
}

/* Where match specifications let it pass. Its bytes count in the channel all the same. */
static __attribute__((noinline)) void write_matched(struct hook_call *call, int sends, uint64_t object, const struct end *end,
						    const struct message *message, struct place where)
{
	const struct matched_bytes bytes = matched_bytes_of(sends, object, end, message);
	struct written written = {call, sends, object, end, message, where};
	message_tell(call->self, &bytes, write_one, &written);
}

static void write_either(struct hook_call *call, uint32_t half, uint64_t object, const struct end *end, const struct message *message,
			 struct place where)
{
	int sends = half == LORG_MASK_SEND;
	if (the_arena.message_programs & half)
		write_matched(call, sends, object, end, message, where);
	else
		write_message(call, sends, object, end, message, where, &for_all);
}

static void write_send(struct hook_call *call, uint64_t object, const struct end *end, const struct message *message)
{
	if (session_wants(LORG_MASK_SEND))
		write_either(call, LORG_MASK_SEND, object, end, message,
			     sent_place(call, end, sent_channel(call, end, message), message->bytes));
}

static void write_receive(struct hook_call *call, uint64_t object, const struct end *end, const struct message *message)
{
	if (session_wants(LORG_MASK_RECEIVE))
		write_either(call, LORG_MASK_RECEIVE, object, end, message,
			     received_place(call, end, received_channel(call, end), message->bytes));
}

/* Descriptors that travel with a message. */
static void tell_passed(struct hook_call *call, int over, int fd, int received)
{
	tell_wait(call);
	if (received)
		port_opened(call, fd, -1);
	const struct port *port = port_peek(fd);
	if (call->gate & LORG_GATE_PORT)
		EVENT_WRITE(call->self, PASSED, .fd = fd, .generation = port ? port->generation : 0, .over = over,
			    .direction = (uint32_t)received);
}

static void tell_rights(struct hook_call *call, int over, const struct msghdr *header, int received)
{
	if (!memory_is_readable(header, sizeof *header))
		return;
	uint64_t length = header->msg_controllen;
	const char *control = header->msg_control;
	if (!control || !memory_is_readable(control, length))
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
		struct message message = {.bytes = headers[i].msg_len, .gone = 1};
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
static void write_failed(struct hook_call *call, uint64_t object, const struct end *end, const struct matched_event *matched)
{
	struct event_bytes value = matched->value;
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
	tell_wait(call);
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
		.session = matched->session,
		.as_port = matched->as_port,
		.message_length = pieces.kept,
		.value_length = value.length,
	};
	if (value.length)
		pieces.at[pieces.count++] = value;
	write_pieces(call->self, LORG_EVENT_SEND_TO_NON_EXISTING, &event, sizeof event, &pieces);
}

static void write_one_failed(void *context, const struct matched_event *matched)
{
	const struct written *written = context;
	write_failed(written->call, written->object, written->end, matched);
}

/* Of a plain buffer matching sees what was to be sent; of other forms of call nothing. */
static __attribute__((noinline)) void write_failed_matched(struct hook_call *call, uint64_t object, const struct end *end)
{
	int plain = call->hook->argument.buffer >= 0 && call->hook->shown_as != HOOK_eventfd_write;
	struct message message = {.flags = plain ? 0 : LORG_MESSAGE_NOT_COPIED};
	struct written written = {.call = call, .object = object, .end = end};
	if (plain)
		take_plain(&message, call);
	message.bytes = message.requested;
	struct matched_bytes bytes = matched_bytes_of(1, object, end, &message);
	bytes.may_fault = 1;
	message_tell(call->self, &bytes, write_one_failed, &written);
}

static void send_failed(struct hook_call *call, uint64_t object, const struct end *end)
{
	if (the_arena.message_programs & LORG_MASK_SEND)
		write_failed_matched(call, object, end);
	else
		write_failed(call, object, end, &for_all);
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
	tell_wait(call);
	const struct signalfd_siginfo *taken = (const struct signalfd_siginfo *)argument(call, call->hook->argument.buffer);
	for (uint64_t i = 0; i < (uint64_t)bytes / sizeof *taken; i++)
		write_signal_received(call->self, &(struct lorg_event_SIGNAL_RECEIVED){.value = taken[i].ssi_ptr,
										       .signal = taken[i].ssi_signo,
										       .hook = call->hook->shown_as,
										       .how = 2,
										       .code = taken[i].ssi_code,
										       .from_pid = taken[i].ssi_pid,
										       .from_uid = taken[i].ssi_uid});
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
		tell_wait(call);
		if (session_wants(LORG_MASK_RECEIVE) && ran_out(call, fd))
			write_timeout(call->self, &(struct lorg_event_TIMEOUT){.since = call->entry,
									       .object = (uint64_t)(uint32_t)fd,
									       .limit_ns = limit_ns(call),
									       .hook = call->hook->shown_as,
									       .error = call->error});
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
	tell_wait(call);
	queue_told(call->self, msqid, PORT_INHERITED, 0);
	struct message message = {.requested = argument(call, at->length)};
	message.bytes = sends ? message.requested : (uint64_t)result;
	message.buffer = (const char *)argument(call, at->buffer) + sizeof(long);
	message.room = message.bytes;
	take_taken(&message, call);
	if (sends)
		write_send(call, queue_object(msqid), end, &message);
	else
		write_receive(call, queue_object(msqid), end, &message);
}

/* ---- the common case ------------------------------------------------------------- */

/* Where no short event could be had. */
static __attribute__((noinline)) void write_common_long(struct hook_call *call, uint64_t bytes, struct place where)
{
	struct message message = {.bytes = bytes};
	take_plain(&message, call);
	take_taken(&message, call);
	write_message(call, call->hook->role == ROLE_send, (uint32_t)call->argument[0], end_of(call, SCRATCH_END), &message, where, &for_all);
}

/* Memory that may not be there (any more): what of it is, makes the message. */
static __attribute__((noinline)) void copy_carefully(struct lorg_event_SENT *event, const char *from, uint32_t kept, int sends)
{
	uint32_t got = sends ? 0 : memory_take((char *)(event + 1), from, kept);
	if (got < kept) /* also where no system calls may be made */
		got = memory_peek(event + 1, from, kept);
	if (got == kept)
		return;
	event->message_length = got;
	event->hook_flags |= (uint32_t)LORG_MESSAGE_CUT << SHORT_BITS;
}

/* STATE_COMMON, and some bytes have been moved. */
static inline __attribute__((always_inline)) void write_common(struct hook_call *call, uint64_t bytes)
{
	const struct end *end = end_of(call, SCRATCH_END);
	uint64_t requested = call->argument[2], kept = requested < bytes ? requested : bytes;
	int sends = call->hook->role == ROLE_send;
	struct event_place place;
	struct lorg_event_SENT *event = 0;
	struct place where =
		sends ? sent_place(call, end, end->channel_out, bytes) : received_place(call, end, end->channel_in, bytes);
	if (kept > the_arena.message_length)
		kept = the_arena.message_length;
	if (__builtin_expect((bytes | requested) >> 32 == 0 && !call->token_told, 1))
		event = open_short(call, &place, (uint32_t)kept);
	if (__builtin_expect(!event, 0)) {
		write_common_long(call, bytes, where);
		return;
	}
	const struct short_message about = {
		.fd = (uint32_t)call->argument[0],
		.generation = end->generation,
		.bytes = (uint32_t)bytes,
		.requested = (uint32_t)requested,
		.kept = (uint32_t)kept,
		.flags = kept < bytes ? LORG_MESSAGE_CUT : 0,
	};
	fill_short(call, event, &about, where);
	const char *from = sends && kept <= call->taken_length ? call->taken : (const char *)call->argument[1];
	if (__builtin_expect(from == call->taken || (!sends && memory_is_known(from, kept)), 1))
		copy_bytes((char *)(event + 1), from, (uint32_t)kept);
	else
		copy_carefully(event, from, (uint32_t)kept, sends);
	event_commit(call->self, &place, sends ? LORG_EVENT_SENT : LORG_EVENT_RECEIVED);
}

/* ---- return ---------------------------------------------------------------------- */

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

/* The wait is over; all else that a call may have to tell. */
static __attribute__((noinline)) void leave(struct hook_call *call, intptr_t result)
{
	if (call->gate & LORG_GATE_MESSAGE)
		write_events(call, result);
	tell_wait(call); /* that no message has told */
	if (!(call->gate & LORG_GATE_ALL))
		return;
	if (call->hook->role == ROLE_transfer)
		port_out(call, (int)argument(call, call->hook->argument.fd2), end_of(call, SCRATCH_SECOND));
	port_out(call, (int)argument(call, call->hook->argument.fd), end_of(call, SCRATCH_END));
}

void message_leave(struct hook_call *call, intptr_t result)
{
	uint64_t state = call->scratch[SCRATCH_STATE];
	if (!(state & STATE_ACTIVE) || !hook_returned(call))
		return;
	end_wait(call, state & STATE_PLAIN ? (uint32_t)call->argument[0] : object_of(call), result);
	if (__builtin_expect((state & STATE_COMMON) && result > 0, 1))
		write_common(call, (uint64_t)result);
	else
		leave(call, result);
	if (__builtin_expect(call->tokens, 0))
		token_settle(call);
}
