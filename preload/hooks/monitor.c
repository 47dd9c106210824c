/* SPDX-License-Identifier: MIT */
/* monitor.c: see monitor.h. */
#include "preload/hooks/monitor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/socket.h>

#include "preload/core/channel.h"
#include "preload/core/raw.h"
#include "preload/hooks/port_table.h"

static uint64_t ms_since(uint64_t begin, uint64_t now)
{
	uint64_t frequency = the_arena.clock.frequency ? the_arena.clock.frequency : 1000000000u;
	return now > begin ? (uint64_t)((unsigned __int128)(now - begin) * 1000 / frequency) : 0;
}

static void tell(struct thread *self, uint16_t id, uint64_t value, uint64_t object, const void *terms, uint32_t length)
{
	struct event_bytes bytes = {terms, length};
	struct lorg_event_LONG_GC event = {.value = value, .object = object, .terms_length = length};
	event_write(self, id, &event, sizeof event, &bytes, length ? 1 : 0, 0);
}

/* ---- ports ----------------------------------------------------------------------------- */

static int descriptor_of(const struct hook_call *call)
{
	return call->hook->family == FAMILY_message && call->hook->argument.fd >= 0 ? (int)call->argument[call->hook->argument.fd] : -1;
}

/* A port, and no file; NULL: it is none, or nothing may be asked. */
static const struct port *port_of_call(const struct hook_call *call)
{
	int fd = descriptor_of(call);
	const struct port *port = fd >= 0 && system_calls_allowed() ? port_of(call->self, fd) : 0;
	return port && port->kind == PORT_KIND_PORT ? port : 0;
}

static uint64_t object_of(const struct hook_call *call, const struct port *port)
{
	return (uint32_t)descriptor_of(call) | (uint64_t)port->generation << 32;
}

static int takes_no_more(int fd)
{
	struct pollfd wanted = {.fd = fd, .events = POLLOUT};
	const struct timespec none = {0, 0};
	return raw_syscall6(SYS_ppoll, (long)&wanted, 1, (long)&none, 0, 0, 0) == 0;
}

/* Its other end is on another host: by the two addresses. */
static int is_remote(int fd)
{
	struct sockaddr_storage own, peer;
	uint32_t own_length = port_address(fd, SYS_getsockname, &own), length = port_address(fd, SYS_getpeername, &peer);
	if (!own_length || !length || own.ss_family != peer.ss_family)
		return 0;
	if (peer.ss_family == AF_INET) {
		const struct sockaddr_in *one = (const void *)&own, *other = (const void *)&peer;
		return (ntohl(other->sin_addr.s_addr) >> 24) != 127 && one->sin_addr.s_addr != other->sin_addr.s_addr;
	}
	if (peer.ss_family == AF_INET6) {
		const struct sockaddr_in6 *one = (const void *)&own, *other = (const void *)&peer;
		return !IN6_IS_ADDR_LOOPBACK(&other->sin6_addr) && memcmp(&one->sin6_addr, &other->sin6_addr, sizeof one->sin6_addr) != 0;
	}
	return 0;
}

static void look_at_room(struct hook_call *call)
{
	const struct port *port = port_of_call(call);
	int fd = descriptor_of(call);
	if (!port || !takes_no_more(fd))
		return;
	if (monitor_asks(MONITOR_BUSY_PORT))
		tell(call->self, LORG_EVENT_BUSY_PORT, 1, object_of(call, port), 0, 0);
	if (monitor_asks(MONITOR_BUSY_DIST_PORT) && is_remote(fd))
		tell(call->self, LORG_EVENT_BUSY_DIST_PORT, 1, object_of(call, port), 0, 0);
}

/* ---- queues ------------------------------------------------------------------------------ */

/* What was sent on a channel and not received yet, where the receiving end is traced too; UINT64_MAX: not known. */
static uint64_t waiting_in_channel(uint32_t channel, uint64_t distance)
{
	struct lorg_channel *entry = channel && the_arena.node ? channel_entry_of(channel) : 0;
	if (!entry || !__atomic_load_n(&entry->received.last_use, __ATOMIC_RELAXED))
		return UINT64_MAX;
	uint64_t received = __atomic_load_n(&entry->received.offset, __ATOMIC_RELAXED);
	uint64_t sent = __atomic_load_n(&entry->sent.offset, __ATOMIC_RELAXED);
	return sent > received ? (sent - received) / distance : 0;
}

static uint64_t ask(int fd, unsigned long request)
{
	int waiting = 0;
	return raw_syscall3(SYS_ioctl, fd, (long)request, (long)&waiting) == 0 && waiting >= 0 ? (uint64_t)waiting : UINT64_MAX;
}

static uint64_t queue_length(int fd, const struct port *port, int sends)
{
	struct mq_attr attributes;
	switch (port->driver) {
	case LORG_DRIVER_MQ:
		return raw_syscall3(SYS_mq_getsetattr, fd, 0, (long)&attributes) == 0 ? (uint64_t)attributes.mq_curmsgs : UINT64_MAX;
	case LORG_DRIVER_PIPE:
	case LORG_DRIVER_FIFO: return ask(fd, FIONREAD);
	case LORG_DRIVER_UDP:
	case LORG_DRIVER_UNIX_DGRAM:
	case LORG_DRIVER_UNIX_SEQPACKET:
		return waiting_in_channel(sends ? port->channel_out : port->channel_in, LORG_MESSAGE_DISTANCE);
	case LORG_DRIVER_UNIX:
		if (sends)
			return waiting_in_channel(port->channel_out, 1);
		return ask(fd, FIONREAD);
	case LORG_DRIVER_TCP: return ask(fd, sends ? SIOCOUTQ : FIONREAD);
	case LORG_DRIVER_TTY: return ask(fd, FIONREAD);
	default: return UINT64_MAX;
	}
}

/* The queues that some session takes for long: a bit for each descriptor number and direction. Atomics: threads share it. */
enum { LONG_QUEUES = 4096 };
static uint64_t long_queues[2 * LONG_QUEUES / 64];

static int is_long(unsigned place)
{
	return (int)(__atomic_load_n(&long_queues[place / 64], __ATOMIC_RELAXED) >> place % 64 & 1);
}

/* Returns how it was before. */
static int set_long(unsigned place, int now)
{
	uint64_t bit = 1ull << place % 64;
	uint64_t *word = &long_queues[place / 64];
	/* Relaxed: the word alone matters. */
	uint64_t before = now ? __atomic_fetch_or(word, bit, __ATOMIC_RELAXED) : __atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED);
	return (before & bit) != 0;
}

/* Told at each change while it is long for anybody: which session takes it for long, and since when, the collector knows. */
static void look_at_queue(const struct hook_call *call)
{
	const struct port *port = port_of_call(call);
	int fd = descriptor_of(call), sends = call->hook->role == ROLE_send;
	if (!port || fd >= LONG_QUEUES || (!sends && call->hook->role != ROLE_receive))
		return;
	uint64_t length = queue_length(fd, port, sends);
	if (length == UINT64_MAX)
		return;
	unsigned place = (unsigned)fd * 2 + (unsigned)sends;
	int reaches = length >= the_arena.system_limits[MONITOR_LONG_QUEUE_ON], was_long;
	if (reaches)
		was_long = set_long(place, 1);
	else if (length <= the_arena.system_limits[MONITOR_LONG_QUEUE_OFF])
		was_long = set_long(place, 0);
	else
		was_long = is_long(place);
	if (!reaches && !was_long)
		return;
	const struct lorg_monitor_schedule about = {.in_hook = UINT32_MAX, .out_hook = UINT32_MAX, .as_port = (uint32_t)sends};
	/* The two ends of one descriptor are two queues. */
	uint64_t object = object_of(call, port) | (uint64_t)sends << 63;
	tell(call->self, LORG_EVENT_LONG_MESSAGE_QUEUE, length, object, &about, sizeof about);
}

/* ---- schedules ----------------------------------------------------------------------------- */

static int may_wait(const struct hook_call *call)
{
	if (call->hook->blocking == BLOCKING_always)
		return 1;
	if (call->hook->blocking != BLOCKING_descriptor)
		return 0;
	int fd = call->hook->argument.fd >= 0 ? (int)call->argument[call->hook->argument.fd] : -1;
	const struct port *port = fd >= 0 ? port_peek(fd) : 0;
	return !port || !port->nonblocking;
}

static void schedule_begins(struct hook_call *call)
{
	struct thread *self = call->self;
	call->monitor_tick = clock_now();
	if (!self->runs_since || !may_wait(call))
		return;
	uint64_t ran = ms_since(self->runs_since, call->monitor_tick);
	if (ran < the_arena.system_limits[MONITOR_LONG_SCHEDULE])
		return;
	const struct lorg_monitor_schedule about = {.in_hook = self->runs_after, .out_hook = call->hook->shown_as};
	tell(self, LORG_EVENT_LONG_SCHEDULE, ran, LORG_MONITOR_NO_PORT, &about, sizeof about);
}

static void schedule_ends(const struct hook_call *call)
{
	struct thread *self = call->self;
	uint64_t now = clock_now();
	if (may_wait(call)) {
		self->runs_since = now;
		self->runs_after = call->hook->shown_as;
		return;
	}
	uint64_t took = call->monitor_tick ? ms_since(call->monitor_tick, now) : 0;
	const struct port *port = took >= the_arena.system_limits[MONITOR_LONG_SCHEDULE] ? port_of_call(call) : 0;
	if (!port)
		return;
	const struct lorg_monitor_schedule about = {.in_hook = UINT32_MAX, .out_hook = call->hook->shown_as, .as_port = 1};
	tell(self, LORG_EVENT_LONG_SCHEDULE, took, object_of(call, port), &about, sizeof about);
}

/* ---- calls ------------------------------------------------------------------------------------ */

void monitor_begin(struct hook_call *call)
{
	if ((monitor_asks(MONITOR_BUSY_PORT) || monitor_asks(MONITOR_BUSY_DIST_PORT)) && call->hook->role == ROLE_send)
		look_at_room(call);
	if (monitor_asks(MONITOR_LONG_SCHEDULE))
		schedule_begins(call);
	else
		call->self->runs_since = 0;
}

void monitor_end(const struct hook_call *call)
{
	if (!*fork_guard || call->self->off || !call->self->process)
		return;
	if (monitor_asks(MONITOR_LONG_QUEUE_ON))
		look_at_queue(call);
	if (monitor_asks(MONITOR_LONG_SCHEDULE))
		schedule_ends(call);
}

/* ---- heaps ------------------------------------------------------------------------------------- */

void monitor_collected(struct thread *self, uint64_t begin, const struct lorg_monitor_heap *heap)
{
	uint64_t took = ms_since(begin, clock_now());
	if (monitor_asks(MONITOR_LONG_GC) && took >= the_arena.system_limits[MONITOR_LONG_GC])
		tell(self, LORG_EVENT_LONG_GC, took, LORG_MONITOR_NO_PORT, heap, sizeof *heap);
	monitor_heap(self, heap);
}

void monitor_heap(struct thread *self, const struct lorg_monitor_heap *heap)
{
	if (monitor_asks(MONITOR_LARGE_HEAP) && heap->heap_block_size >= the_arena.system_limits[MONITOR_LARGE_HEAP])
		tell(self, LORG_EVENT_LARGE_HEAP, heap->heap_block_size, LORG_MONITOR_NO_PORT, heap, sizeof *heap);
}
