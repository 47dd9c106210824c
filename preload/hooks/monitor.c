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
#include <sys/uio.h>

#include "preload/core/channel.h"
#include "preload/core/raw.h"
#include "preload/core/readable.h"
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

/*
 * The queue between the two ends of a channel, which may be in two programs. Its length is looked at after each call that
 * puts something there or takes it. Looks are put in an order: between the loading of `looks` and its exchange nobody else
 * has looked, so that the last one saw what the queue is now. Those that matter to some session are numbered in that order.
 */
enum { LOOK_IS_LONG = 1, LOOK_TOLD_SHIFT = 1, LOOK_COUNT_SHIFT = 32, LOOK_TRIES = 64 };

struct queue {
	struct lorg_channel *entry; /* NULL: it has no channel, and `looks` is this program's own */
	uint64_t *looks;
	uint64_t object;
	int fd;
	uint32_t channel;
	uint8_t driver, sends;
};

/* Of descriptors without a channel. Atomics: threads share them. */
enum { OWN_QUEUES = 1024 };
static uint64_t own_looks[OWN_QUEUES][2];

static uint32_t told_of(uint64_t looks)
{
	return (uint32_t)looks >> LOOK_TOLD_SHIFT;
}

static uint64_t ask(int fd, unsigned long request)
{
	int waiting = 0;
	return raw_syscall3(SYS_ioctl, fd, (long)request, (long)&waiting) == 0 && waiting >= 0 ? (uint64_t)waiting : UINT64_MAX;
}

static int is_queue_call(const struct hook_call *call)
{
	return call->hook->family == FAMILY_message && call->hook->argument.object >= 0;
}

static int counts_messages(uint8_t driver)
{
	return driver == LORG_DRIVER_UDP || driver == LORG_DRIVER_UNIX_DGRAM || driver == LORG_DRIVER_UNIX_SEQPACKET ||
	       driver == LORG_DRIVER_MQ || driver == LORG_DRIVER_SYSV;
}

/* What no system call tells of both ends is counted: drivers for which that is so. */
static int is_counted(const struct queue *queue)
{
	const uint32_t counted = 1u << LORG_DRIVER_UDP | 1u << LORG_DRIVER_UNIX_DGRAM | 1u << LORG_DRIVER_UNIX_SEQPACKET |
				 1u << LORG_DRIVER_UNIX | 1u << LORG_DRIVER_TCP;
	return queue->entry && (counted >> queue->driver & 1);
}

/* What was counted when somebody asked before is of no use: meanwhile nobody has counted. Returns of what it is now. */
static uint64_t count_anew(const struct queue *queue)
{
	struct lorg_channel_end *sent = &queue->entry->sent;
	uint64_t seen = __atomic_load_n(&sent->since, __ATOMIC_ACQUIRE), now = the_arena.system_limits[MONITOR_QUEUES_SINCE];
	if ((int64_t)(now - seen) <= 0) /* another program was told sooner */
		return seen;
	/* The winner begins; a send that is counted in between is put right at its end, and by the reader. */
	if (!__atomic_compare_exchange_n(&sent->since, &seen, now, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return seen;
	__atomic_store_n(&sent->under_way, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sent->waiting, 0, __ATOMIC_RELEASE);
	return now;
}

static void count_more(const struct queue *queue, uint64_t more)
{
	/* Relaxed, as all of these: the number alone matters. */
	__atomic_fetch_add(&queue->entry->sent.waiting, more, __ATOMIC_RELAXED);
}

/* Never below 0: what was there before anybody counted is received, too. */
static void count_less(const struct queue *queue, uint64_t less)
{
	uint64_t *waiting = &queue->entry->sent.waiting, seen = __atomic_load_n(waiting, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(waiting, &seen, seen > less ? seen - less : 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/*
 * Bytes at the reading end of a stream: the kernel knows. The count is put right: sends are counted before they are made
 * and receives afterwards, so it is never too low but for what was there before; too high only while a send is under way.
 */
static uint64_t waiting_at_reader(const struct queue *queue)
{
	if (!is_counted(queue))
		return ask(queue->fd, FIONREAD);
	struct lorg_channel_end *sent = &queue->entry->sent;
	uint32_t under_way = __atomic_load_n(&sent->under_way, __ATOMIC_ACQUIRE);
	uint64_t before = __atomic_load_n(&sent->waiting, __ATOMIC_ACQUIRE), length = ask(queue->fd, FIONREAD);
	if (length == UINT64_MAX || length == before)
		return length;
	under_way |= __atomic_load_n(&sent->under_way, __ATOMIC_ACQUIRE);
	if (before < length || (!under_way && queue->driver != LORG_DRIVER_TCP)) /* TCP has some on the way */
		__atomic_compare_exchange_n(&sent->waiting, &before, length, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return length;
}

static int has_reader(const struct queue *queue)
{
	return queue->entry && __atomic_load_n(&queue->entry->received.looks, __ATOMIC_RELAXED);
}

static uint64_t counted(const struct queue *queue)
{
	return __atomic_load_n(&queue->entry->sent.waiting, __ATOMIC_RELAXED);
}

/* A socket's memory for what it has sent is no less than that. */
static uint64_t waiting_at_writer(const struct queue *queue)
{
	uint64_t most = has_reader(queue) ? ask(queue->fd, SIOCOUTQ) : UINT64_MAX;
	return most == UINT64_MAX || counted(queue) > most ? most : counted(queue);
}

/* UINT64_MAX: not known. */
static uint64_t queue_length(const struct queue *queue)
{
	struct mq_attr attributes;
	struct msqid_ds status;
	switch (queue->driver) {
	case LORG_DRIVER_MQ:
		return raw_syscall3(SYS_mq_getsetattr, queue->fd, 0, (long)&attributes) == 0 ? (uint64_t)attributes.mq_curmsgs : UINT64_MAX;
	case LORG_DRIVER_SYSV:
		return raw_syscall3(SYS_msgctl, queue->fd, IPC_STAT, (long)&status) == 0 ? (uint64_t)status.msg_qnum : UINT64_MAX;
	case LORG_DRIVER_PIPE:
	case LORG_DRIVER_FIFO: return ask(queue->fd, FIONREAD);
	case LORG_DRIVER_TTY: return ask(queue->fd, queue->sends ? SIOCOUTQ : FIONREAD);
	case LORG_DRIVER_UDP:
	case LORG_DRIVER_UNIX_DGRAM:
	case LORG_DRIVER_UNIX_SEQPACKET: return has_reader(queue) ? counted(queue) : UINT64_MAX;
	case LORG_DRIVER_UNIX: return queue->sends ? waiting_at_writer(queue) : waiting_at_reader(queue);
	case LORG_DRIVER_TCP:
		if (!queue->sends)
			return waiting_at_reader(queue);
		return has_reader(queue) ? counted(queue) : ask(queue->fd, SIOCOUTQ);
	default: return UINT64_MAX;
	}
}

/* Where a datagram with an address goes. */
static uint32_t channel_to(const struct hook_call *call, const struct port *port)
{
	const struct hook_arguments *at = &call->hook->argument;
	struct sockaddr_storage address;
	struct msghdr header = {.msg_name = 0};
	if (port->driver != LORG_DRIVER_UDP && port->driver != LORG_DRIVER_UNIX_DGRAM)
		return port->channel_out;
	if (at->msghdr >= 0 && memory_take(&header, (const void *)call->argument[at->msghdr], sizeof header) != sizeof header)
		return 0;
	uint64_t length = at->address >= 0 && at->address_length >= 0 ? call->argument[at->address_length] : header.msg_namelen;
	const void *given = at->address >= 0 ? (const void *)call->argument[at->address] : header.msg_name;
	if (!given || !length || length > sizeof address)
		return port->channel_out;
	return memory_take(&address, given, (uint32_t)length) == length ? port_channel_to(port, &address, (uint32_t)length) : 0;
}

/* Places where looks at it are counted. Returns 0: there are none. */
static int find_looks(struct queue *queue)
{
	queue->entry = queue->channel && the_arena.node ? channel_entry_of(queue->channel) : 0;
	if (!queue->entry)
		queue->channel = 0;
	if (queue->entry)
		queue->looks = &queue->entry->sent.looks;
	else if ((unsigned)queue->fd < OWN_QUEUES && queue->driver != LORG_DRIVER_SYSV)
		queue->looks = &own_looks[queue->fd][queue->sends];
	return queue->looks != 0;
}

static int find_sysv(const struct hook_call *call, struct queue *queue)
{
	int msqid = (int)call->argument[call->hook->argument.object];
	*queue = (struct queue){.fd = msqid, .object = queue_object(msqid), .driver = LORG_DRIVER_SYSV};
	queue->sends = call->hook->role == ROLE_send;
	queue->channel = queue_channel(msqid);
	return find_looks(queue);
}

/* The queue that the call sends to, or receives from. Returns 0: none, or nothing may be asked. */
static int find_queue(const struct hook_call *call, int sends, struct queue *queue)
{
	const struct hook *hook = call->hook;
	if (hook->family != FAMILY_message || !system_calls_allowed())
		return 0;
	if (is_queue_call(call))
		return sends == (hook->role == ROLE_send) && find_sysv(call, queue);
	int8_t at = hook->role == ROLE_transfer && sends ? hook->argument.fd2 : hook->argument.fd;
	int fd = at >= 0 ? (int)call->argument[at] : -1;
	struct port *port = fd >= 0 ? port_of(call->self, fd) : 0;
	if (!port || port->kind != PORT_KIND_PORT)
		return 0;
	/* vmsplice takes out of a pipe at its reading end. */
	int is_send = hook->role == ROLE_send && !(port->access == O_RDONLY && port->driver == LORG_DRIVER_PIPE);
	if (hook->role != ROLE_transfer && is_send != sends)
		return 0;
	if (port->pending && !call->self->vfork_child)
		port_find_channels(port, fd);
	*queue = (struct queue){.fd = fd, .driver = port->driver, .sends = (uint8_t)sends};
	queue->object = (uint32_t)fd | (uint64_t)port->generation << 32;
	queue->channel = sends ? channel_to(call, port) : port->channel_in;
	return find_looks(queue);
}

/* What the call wants to send: bytes, or messages. */
static uint64_t amount_wanted(const struct hook_call *call, const struct queue *queue)
{
	const struct hook_arguments *at = &call->hook->argument;
	struct iovec pieces[16];
	struct msghdr header = {.msg_iov = 0};
	if (counts_messages(queue->driver))
		return 1;
	if (at->length >= 0)
		return call->argument[at->length];
	if (at->iovec >= 0) {
		header.msg_iov = (struct iovec *)call->argument[at->iovec];
		header.msg_iovlen = call->argument[at->iovec_count];
	} else if (at->msghdr < 0 ||
		   memory_take(&header, (const void *)call->argument[at->msghdr], sizeof header) != sizeof header) {
		return 0;
	}
	uint64_t count = header.msg_iovlen < 16 ? header.msg_iovlen : 16, bytes = 0;
	if (!count || memory_take(pieces, header.msg_iov, (uint32_t)(count * sizeof *pieces)) != count * sizeof *pieces)
		return 0;
	for (uint64_t i = 0; i < count; i++)
		bytes += pieces[i].iov_len;
	return bytes;
}

static int is_looking_only(const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	if (call->hook->shown_as == HOOK_tee)
		return 1;
	uint64_t flags = (call->hook->flags & HOOK_PEEKS) && at->flags >= 0 ? call->argument[at->flags] : 0;
	if (is_queue_call(call))
		return call->hook->role == ROLE_receive && at->flags >= 0 && (call->argument[at->flags] & MSG_COPY);
	return (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0;
}

/* What it has put there, or taken. */
static uint64_t amount_moved(const struct hook_call *call, const struct queue *queue)
{
	const struct hook_arguments *at = &call->hook->argument;
	uint64_t bytes = 0;
	if (call->result < 0 || (!queue->sends && is_looking_only(call)))
		return 0;
	if (counts_messages(queue->driver))
		return at->mmsghdr >= 0 ? (uint64_t)call->result : 1;
	if (at->mmsghdr < 0)
		return (uint64_t)call->result;
	const struct mmsghdr *headers = (const struct mmsghdr *)call->argument[at->mmsghdr];
	for (intptr_t i = 0; i < call->result; i++)
		bytes += headers[i].msg_len;
	return bytes;
}

static void queue_begins(struct hook_call *call, int sends)
{
	struct hook_queue *known = &call->queue[sends];
	struct queue queue;
	if (!find_queue(call, sends, &queue))
		return;
	*known = (struct hook_queue){.channel = queue.channel, .known = 1};
	known->began = told_of(__atomic_load_n(queue.looks, __ATOMIC_RELAXED));
	if (!is_counted(&queue))
		return;
	known->counts = 1;
	known->since = count_anew(&queue);
	if (!sends) {
		__atomic_store_n(&queue.entry->received.looks, 1, __ATOMIC_RELAXED);
		return;
	}
	known->added = amount_wanted(call, &queue);
	/* Before it is made: the reader, who may be faster than our return, finds it counted. */
	__atomic_fetch_add(&queue.entry->sent.under_way, 1, __ATOMIC_ACQ_REL);
	count_more(&queue, known->added);
}

/* What was counted before the call becomes what it has done. */
static void settle_count(const struct queue *queue, const struct hook_queue *known, uint64_t moved)
{
	if (__atomic_load_n(&queue->entry->sent.since, __ATOMIC_ACQUIRE) != known->since)
		return;
	if (!queue->sends) {
		count_less(queue, moved);
		return;
	}
	if (moved > known->added)
		count_more(queue, moved - known->added);
	else if (moved < known->added)
		count_less(queue, known->added - moved);
	/* Release: pairs with waiting_at_reader. 0: the count has just been begun anew. */
	if (__atomic_load_n(&queue->entry->sent.under_way, __ATOMIC_RELAXED))
		__atomic_fetch_sub(&queue->entry->sent.under_way, 1, __ATOMIC_ACQ_REL);
}

static void forget_count(const struct hook_queue *known, int sends)
{
	const struct queue queue = {.sends = 1, .entry = known->counts ? channel_entry_of(known->channel) : 0};
	if (sends && queue.entry)
		settle_count(&queue, known, 0);
}

/* Told while it is long for anybody: for which session it is, the collector knows. */
static void look_at_queue(struct thread *self, const struct queue *queue, uint64_t taken, uint32_t began)
{
	uint64_t on = the_arena.system_limits[MONITOR_LONG_QUEUE_ON], off = the_arena.system_limits[MONITOR_LONG_QUEUE_OFF];
	uint64_t seen = __atomic_load_n(queue->looks, __ATOMIC_ACQUIRE), length = queue_length(queue), next;
	if (length == UINT64_MAX)
		return;
	uint64_t most = length + taken;
	int tells;
	for (unsigned tries = 0;; tries++) {
		int reached = most >= on || length >= on;
		tells = reached || (seen & LOOK_IS_LONG);
		uint64_t told = (told_of(seen) + (uint32_t)tells) & LORG_MONITOR_NUMBERS;
		next = ((seen >> LOOK_COUNT_SHIFT) + 1) << LOOK_COUNT_SHIFT | told << LOOK_TOLD_SHIFT |
		       (tells && length > off ? LOOK_IS_LONG : 0);
		/* Acquire and release: the look before is over before ours begins. */
		if (__atomic_compare_exchange_n(queue->looks, &seen, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			break;
		uint64_t now = tries < LOOK_TRIES ? queue_length(queue) : UINT64_MAX;
		length = now != UINT64_MAX ? now : length;
	}
	if (!tells)
		return;
	const struct lorg_monitor_queue about = {
		.most = most > length ? most : length,
		.channel = queue->channel,
		.number = told_of(next),
		.began = began,
		.as_port = queue->sends,
	};
	tell(self, LORG_EVENT_LONG_MESSAGE_QUEUE, length, queue->object, &about, sizeof about);
}

/* A call that was made when the channel was not known yet. */
static struct hook_queue count_late(const struct queue *queue, uint64_t moved)
{
	const struct hook_queue late = {.channel = queue->channel, .began = told_of(__atomic_load_n(queue->looks, __ATOMIC_RELAXED))};
	if (!is_counted(queue))
		return late;
	count_anew(queue);
	if (queue->sends)
		count_more(queue, moved);
	else
		count_less(queue, moved);
	return late;
}

static void queue_ends(const struct hook_call *call, int sends)
{
	struct hook_queue known = call->queue[sends];
	struct queue queue;
	if (!known.known)
		return;
	if (!find_queue(call, sends, &queue) || (known.channel && queue.channel != known.channel)) {
		forget_count(&known, sends); /* the number is another's by now */
		return;
	}
	uint64_t moved = amount_moved(call, &queue);
	if (queue.channel != known.channel)
		known = count_late(&queue, moved);
	else if (known.counts)
		settle_count(&queue, &known, moved);
	if (monitor_asks(MONITOR_LONG_QUEUE_ON))
		look_at_queue(call->self, &queue, sends ? 0 : moved, known.began);
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
	struct lorg_process *process = self->process;
	call->monitor_tick = clock_now();
	if (!may_wait(call))
		return;
	uint64_t since = __atomic_load_n(&process->runs_since, __ATOMIC_RELAXED);
	uint32_t after = process->runs_after;
	/* From here on nobody takes it for running: neither the collector nor a handler's calls while it waits. */
	__atomic_store_n(&process->runs_since, 0, __ATOMIC_RELAXED);
	uint64_t ran = since ? ms_since(since, call->monitor_tick) : 0;
	if (!since || ran < the_arena.system_limits[MONITOR_LONG_SCHEDULE])
		return;
	const struct lorg_monitor_schedule about = {.in_hook = after, .out_hook = call->hook->shown_as, .since = since};
	tell(self, LORG_EVENT_LONG_SCHEDULE, ran, LORG_MONITOR_NO_PORT, &about, sizeof about);
}

static void schedule_ends(const struct hook_call *call)
{
	struct thread *self = call->self;
	uint64_t now = clock_now();
	if (may_wait(call)) {
		__atomic_store_n(&self->process->runs_after, call->hook->shown_as, __ATOMIC_RELAXED);
		/* Release: who sees the tick sees after what. */
		__atomic_store_n(&self->process->runs_since, now, __ATOMIC_RELEASE);
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
	call->result = -1;
	call->queue[0].known = call->queue[1].known = 0;
	if (monitor_asks(MONITOR_LONG_QUEUE_ON)) {
		queue_begins(call, 0);
		queue_begins(call, 1);
	}
	if ((monitor_asks(MONITOR_BUSY_PORT) || monitor_asks(MONITOR_BUSY_DIST_PORT)) && call->hook->role == ROLE_send)
		look_at_room(call);
	if (monitor_asks(MONITOR_LONG_SCHEDULE))
		schedule_begins(call);
	else
		__atomic_store_n(&call->self->process->runs_since, 0, __ATOMIC_RELAXED);
}

void monitor_end(const struct hook_call *call)
{
	if (!*fork_guard || call->self->off || !call->self->process)
		return;
	queue_ends(call, 0);
	queue_ends(call, 1);
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
