/* SPDX-License-Identifier: MIT */
/*
 * port_meeting.c: see port_meeting.h.
 *
 * Why what is told is right. The kernel keeps the connections of a listener in
 * one queue, first in, first out. A connect is in the table before the kernel
 * sees it; so when accept returns with a connection of program P, the table has
 * its connect, and every connect of P that stood before it in the queue, unless
 * that has been taken away by who accepted it. The first in the queue is known
 * if one connect of P ended before all others began, and if nobody else has an
 * accept under way, which may have taken an earlier one and not said so yet.
 * Each accept takes one entry away, told or not, so that the number of entries
 * of P is that of its connections in the queue and under way.
 */
#include "preload/hooks/port_meeting.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "preload/core/channel.h"
#include "preload/core/raw.h"
#include "preload/hooks/port_kind.h"
#include "preload/hooks/port_table.h"

enum {
	PROBES = 256, /* connects of one program that may wait at one listener, at most */
	TRIES = 32,   /* of the same decision, where others change the table meanwhile */
	PHASE = (1 << LORG_CONNECT_SHIFT) - 1,
	NETWORK_COOKIE = 71, /* SO_NETNS_COOKIE, Linux 5.14 */
};

static struct lorg_connect *connect_entry(uint32_t index)
{
	return (struct lorg_connect *)((char *)the_arena.node + the_arena.connects_offset) + index;
}

static uint32_t count_of(uint32_t state)
{
	return state >> LORG_CONNECT_SHIFT;
}

/* As it is when nobody uses it; never 0 again. */
static uint32_t free_state(uint32_t count)
{
	uint32_t state = count << LORG_CONNECT_SHIFT;
	return state ? state : 1 << LORG_CONNECT_SHIFT;
}

/* ---- listeners ------------------------------------------------------------------ */

static uint32_t listens(uint32_t listener)
{
	struct lorg_channel *entry = listener ? channel_entry_of(listener) : 0;
	return entry ? __atomic_load_n(&entry->listens, __ATOMIC_ACQUIRE) : 0;
}

/* Its connections are told no more. */
static void doubt(uint32_t listener)
{
	struct lorg_channel *entry = listener ? channel_entry_of(listener) : 0;
	if (entry)
		__atomic_fetch_or(&entry->listens, LORG_LISTENS_IN_DOUBT, __ATOMIC_RELEASE);
}

static uint32_t followed(uint32_t listener)
{
	return listens(listener) == LORG_LISTENS ? listener : 0;
}

/* An address with a zero behind it, which a path that fills it does not have. */
struct name {
	struct sockaddr_un address;
	char zero;
};

/* What is named alike by who listens and who connects: the socket's file, or the bytes in a network namespace. 0: no name. */
static uint64_t name_key(int fd, const struct name *name, uint32_t length)
{
	const struct sockaddr_un *address = &name->address;
	struct stat status;
	uint64_t hash = 0xcbf29ce484222325u, network = 0;
	unsigned size = sizeof network;
	uint32_t start = offsetof(struct sockaddr_un, sun_path);
	const uint8_t *bytes = (const uint8_t *)address;
	if (length <= start || address->sun_family != AF_UNIX)
		return 0;
	if (address->sun_path[0]) {
		if (raw_failed(raw_syscall3(SYS_stat, (long)address->sun_path, (long)&status, 0)))
			return 0;
		return lorg_channel_key(status.st_dev, status.st_ino, DIRECTION_NAME_FILE);
	}
	for (uint32_t i = start; i < length; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	raw_syscall6(SYS_getsockopt, fd, SOL_SOCKET, NETWORK_COOKIE, (long)&network, (long)&size, 0);
	return lorg_channel_key(hash, network, DIRECTION_NAME_ABSTRACT);
}

static uint64_t listener_key(const struct port *port)
{
	return lorg_channel_key(port->device, port->inode, DIRECTION_LISTENER);
}

/* Returns the length; 0: none that the kernel would take. */
static uint32_t copy_name(struct name *to, const void *address, uint64_t length)
{
	memset(to, 0, sizeof *to);
	if (length <= sizeof(sa_family_t) || length > sizeof to->address)
		return 0;
	return memory_peek(&to->address, address, (uint32_t)length) == length ? (uint32_t)length : 0;
}

void meeting_named(const struct port *port, int fd, const void *address, uint32_t length)
{
	struct name name = {0};
	if (!the_arena.node || !port->inode || !system_calls_allowed() || length > sizeof name.address)
		return;
	memcpy(&name.address, address, length);
	uint64_t key = name_key(fd, &name, length);
	uint32_t listener = key ? channel_find(listener_key(port), port->driver) : 0;
	struct lorg_channel *entry = listener ? channel_entry_of(listener) : 0;
	if (!entry)
		return;
	/* Nobody can connect before the call of listen, which is yet to come. */
	if (__atomic_fetch_or(&entry->listens, LORG_LISTENS, __ATOMIC_RELEASE))
		doubt(listener);
	channel_alias(key, listener, port->driver);
}

/* ---- who connects ------------------------------------------------------------------ */

static uint64_t ask_pid_namespace(void)
{
	struct stat status;
	if (!system_calls_allowed() || raw_failed(raw_syscall3(SYS_stat, (long)"/proc/self/ns/pid", (long)&status, 0)))
		return 0;
	return status.st_ino;
}

/* Asked once an image, so that a later chroot changes nothing. Atomic: all threads of an image find the same. */
static uint64_t pid_namespace(void)
{
	static uint64_t known_namespace;
	static uint32_t known_image;
	if (this_thread.vfork_child)
		return ask_pid_namespace();
	if (__atomic_load_n(&known_image, __ATOMIC_ACQUIRE) != port_image_stamp()) {
		__atomic_store_n(&known_namespace, ask_pid_namespace(), __ATOMIC_RELAXED);
		__atomic_store_n(&known_image, port_image_stamp(), __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&known_namespace, __ATOMIC_RELAXED);
}

static uint32_t first_place(uint32_t listener, uint32_t pid)
{
	return (uint32_t)(lorg_channel_key(listener, pid, DIRECTION_LISTENER) % LORG_CONNECTS);
}

/* True where an entry can be used: nobody does, or its listener is of no interest any more. */
static int is_free(const struct lorg_connect *entry, uint32_t state)
{
	if (!(state & PHASE))
		return 1;
	return (state & LORG_CONNECT_WAITS) && !followed(__atomic_load_n(&entry->listener, __ATOMIC_RELAXED));
}

/* Makes an entry HELD. Returns its index + 1; 0: there is no room. */
static uint32_t hold_entry(uint32_t listener, uint32_t pid, uint32_t *count)
{
	uint32_t start = first_place(listener, pid);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint32_t index = (start + probe) % LORG_CONNECTS;
		struct lorg_connect *entry = connect_entry(index);
		uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
		if (!is_free(entry, state))
			continue;
		*count = count_of(free_state(count_of(state) + 1));
		/* Acquire: what follows is not seen before; pairs with whoever gave it free. */
		if (__atomic_compare_exchange_n(&entry->state, &state, free_state(*count) | LORG_CONNECT_HELD, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return index + 1;
	}
	return 0;
}

/* Also where an entry cannot be had: then none of the listener's is of use. */
static void publish(struct meeting *meeting, const struct port *port)
{
	uint32_t pid = (uint32_t)raw_getpid(), count = 0;
	uint64_t namespace = pid_namespace();
	uint32_t index = namespace && port->inode ? hold_entry(meeting->listener, pid, &count) : 0;
	uint64_t ticket = index ? channel_advance(meeting->listener, 1, clock_now()) : 0;
	if (!index) {
		doubt(meeting->listener);
		return;
	}
	struct lorg_connect *entry = connect_entry(index - 1);
	if (ticket == CHANNEL_STALE) { /* the listener's place has been given away: all its entries are of no use */
		__atomic_store_n(&entry->state, free_state(count), __ATOMIC_RELEASE);
		return;
	}
	__atomic_store_n(&entry->listener, meeting->listener, __ATOMIC_RELAXED);
	entry->pid = pid;
	entry->pid_namespace = namespace;
	entry->device = port->device;
	entry->inode = port->inode;
	entry->begin = ticket;
	entry->end = 0;
	/* Release: who sees that it WAITS sees the rest. */
	__atomic_store_n(&entry->state, free_state(count) | LORG_CONNECT_WAITS, __ATOMIC_RELEASE);
	meeting->entry = index;
	meeting->count = count;
}

void meeting_connects(struct meeting *meeting, const struct port *port, int fd, const void *address, uint64_t length)
{
	struct name name;
	if (!the_arena.node || !system_calls_allowed())
		return;
	uint32_t copied = copy_name(&name, address, length);
	uint64_t key = copied ? name_key(fd, &name, copied) : 0;
	meeting->listener = key ? followed(channel_known(key)) : 0;
	if (meeting->listener)
		publish(meeting, port);
}

/* The connect has failed, or gone elsewhere. */
static void withdraw(const struct meeting *meeting)
{
	if (!meeting->entry)
		return;
	struct lorg_connect *entry = connect_entry(meeting->entry - 1);
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
	do {
		if (count_of(state) != meeting->count)
			return;
		if (state & LORG_CONNECT_TAKEN) /* for one that came some other way */
			doubt(meeting->listener);
	} while (!__atomic_compare_exchange_n(&entry->state, &state, free_state(meeting->count), 0, __ATOMIC_RELEASE,
					      __ATOMIC_RELAXED));
}

/* It is in the queue, or already taken out of it: then it is given free here. */
static void settle(const struct meeting *meeting)
{
	if (!meeting->entry)
		return;
	struct lorg_connect *entry = connect_entry(meeting->entry - 1);
	uint64_t ticket = channel_advance(meeting->listener, 1, clock_now());
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_RELAXED), next;
	if (count_of(state) != meeting->count || ticket == CHANNEL_STALE)
		return;
	__atomic_store_n(&entry->end, ticket, __ATOMIC_RELAXED);
	do {
		if (count_of(state) != meeting->count)
			return;
		next = state & LORG_CONNECT_TAKEN ? free_state(meeting->count) : state | LORG_CONNECT_MADE;
		/* Release: who sees that it is MADE sees `end`. */
	} while (!__atomic_compare_exchange_n(&entry->state, &state, next, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

void meeting_connected(const struct meeting *meeting, int fd, const void *address, uint64_t length, int success)
{
	struct name name;
	if (!the_arena.node || (!success && !meeting->entry))
		return;
	if (!success) {
		withdraw(meeting);
		return;
	}
	/* Between the look at the name and the call it may have been given to another socket. */
	uint32_t copied = system_calls_allowed() ? copy_name(&name, address, length) : 0;
	uint64_t key = copied ? name_key(fd, &name, copied) : 0;
	uint32_t listener = key ? followed(channel_known(key)) : 0;
	if (listener == meeting->listener) {
		settle(meeting);
		return;
	}
	withdraw(meeting);
	doubt(meeting->listener);
	doubt(listener);
}

/* ---- who accepts ------------------------------------------------------------------- */

/* A connect that may be the one that was accepted. */
struct candidate {
	uint32_t index, state;
	uint64_t begin, end;
};

/* The connects of one program at one listener, as they stand. */
struct queue {
	struct candidate first, second; /* by `begin`, of those not taken */
	struct candidate made;		/* the first of those whose connect has returned */
	uint32_t waiting;		/* not taken */
	uint32_t blind;			/* taken for one that may be another */
};

struct asked {
	uint32_t listener, pid;
	uint64_t pid_namespace;
};

/* A copy of an entry as it was at one moment; 0: it is none of those asked for. */
static int read_entry(const struct lorg_connect *entry, const struct asked *asked, struct candidate *found)
{
	/* Acquire: pairs with publish and settle. */
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	if (!(state & LORG_CONNECT_WAITS) || entry->listener != asked->listener || entry->pid != asked->pid ||
	    entry->pid_namespace != asked->pid_namespace)
		return 0;
	found->begin = entry->begin;
	found->end = state & LORG_CONNECT_MADE ? __atomic_load_n(&entry->end, __ATOMIC_RELAXED) : 0;
	found->state = state;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	uint32_t again = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
	return count_of(again) == count_of(state) && (again & LORG_CONNECT_WAITS);
}

static void add_candidate(struct queue *queue, const struct candidate *candidate)
{
	if (!queue->waiting || candidate->begin < queue->first.begin) {
		queue->second = queue->first;
		queue->first = *candidate;
	} else if (queue->waiting == 1 || candidate->begin < queue->second.begin) {
		queue->second = *candidate;
	}
	if ((candidate->state & LORG_CONNECT_MADE) &&
	    (!(queue->made.state & LORG_CONNECT_MADE) || candidate->begin < queue->made.begin))
		queue->made = *candidate;
	queue->waiting++;
}

static void look(struct queue *queue, const struct asked *asked)
{
	uint32_t start = first_place(asked->listener, asked->pid);
	memset(queue, 0, sizeof *queue);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		struct candidate candidate = {.index = (start + probe) % LORG_CONNECTS};
		const struct lorg_connect *entry = connect_entry(candidate.index);
		if (!__atomic_load_n(&entry->state, __ATOMIC_RELAXED)) /* never used: nor any behind it, from this start */
			return;
		if (!read_entry(entry, asked, &candidate))
			continue;
		if (candidate.state & LORG_CONNECT_TAKEN)
			queue->blind += (candidate.state & LORG_CONNECT_TAKEN_BLINDLY) != 0;
		else
			add_candidate(queue, &candidate);
	}
}

/* The connects that wait are told no more. */
static void doubt_waiting(const struct asked *asked)
{
	uint32_t start = first_place(asked->listener, asked->pid);
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		struct candidate candidate;
		struct lorg_connect *entry = connect_entry((start + probe) % LORG_CONNECTS);
		uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_RELAXED);
		if (!state)
			return;
		if (!read_entry(entry, asked, &candidate))
			continue;
		for (state = candidate.state; count_of(state) == count_of(candidate.state) && (state & LORG_CONNECT_WAITS);)
			if (__atomic_compare_exchange_n(&entry->state, &state, state | LORG_CONNECT_DOUBTFUL, 0, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED))
				break;
	}
}

/* Takes it out of the table, or leaves that to its connect, which has not returned. 0: it is not as it was any more. */
static int take(const struct candidate *candidate, uint32_t how)
{
	uint32_t state = candidate->state;
	uint32_t next = state & LORG_CONNECT_MADE ? free_state(count_of(state)) : state | how;
	return __atomic_compare_exchange_n(&connect_entry(candidate->index)->state, &state, next, 0, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

/* True if the first is the one that was accepted. */
static int is_certain(const struct queue *queue, int alone)
{
	if (queue->blind)
		return 0;
	if (queue->waiting == 1)
		return 1;
	/* `second` began first of all others: who ended before it ended before all. */
	return alone && (queue->first.state & LORG_CONNECT_MADE) && queue->first.end < queue->second.begin;
}

/* One of them was accepted. Those whose connect has returned are sure to be in the queue. */
static int take_any(const struct queue *queue, const struct asked *asked)
{
	doubt_waiting(asked);
	struct candidate any = queue->made.state & LORG_CONNECT_MADE ? queue->made : queue->first;
	any.state |= LORG_CONNECT_DOUBTFUL;
	return take(&any, LORG_CONNECT_TAKEN | LORG_CONNECT_TAKEN_BLINDLY);
}

static struct meeting_peer take_accepted(const struct asked *asked, int alone)
{
	struct queue queue;
	struct meeting_peer peer = {0, 0};
	for (int attempt = 0; attempt < TRIES; attempt++) {
		look(&queue, asked);
		if (!queue.waiting)
			return (struct meeting_peer){0, 0};
		if (!is_certain(&queue, alone)) {
			if (take_any(&queue, asked))
				return (struct meeting_peer){0, 0};
			continue;
		}
		const struct lorg_connect *entry = connect_entry(queue.first.index);
		peer = (struct meeting_peer){entry->device, entry->inode};
		if (!take(&queue.first, LORG_CONNECT_TAKEN))
			continue;
		return queue.first.state & LORG_CONNECT_DOUBTFUL ? (struct meeting_peer){0, 0} : peer;
	}
	doubt(asked->listener);
	return (struct meeting_peer){0, 0};
}

void meeting_accepts(struct meeting *meeting, const struct port *port)
{
	if (!the_arena.node || !port->inode)
		return;
	meeting->listener = followed(channel_known(listener_key(port)));
	struct lorg_channel *entry = meeting->listener ? channel_entry_of(meeting->listener) : 0;
	/* A full barrier: who takes a connection after us sees that we are here. */
	if (entry)
		__atomic_fetch_add(&entry->accepting, 1, __ATOMIC_SEQ_CST);
	else
		meeting->listener = 0;
}

/* Failures of accept before it has taken a connection out of the queue. */
static int took_none(int error)
{
	switch (error) {
	case EAGAIN:
	case EINTR:
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case EBADF:
	case EINVAL: return 1;
	default: return 0;
	}
}

static struct meeting_peer find_peer(uint32_t listener, int fd, int alone)
{
	struct ucred who = {0};
	unsigned size = sizeof who;
	struct asked asked = {.listener = listener, .pid_namespace = pid_namespace()};
	if (!asked.pid_namespace || !system_calls_allowed() ||
	    raw_failed(raw_syscall6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&who, (long)&size, 0))) {
		doubt(listener);
		return (struct meeting_peer){0, 0};
	}
	asked.pid = (uint32_t)who.pid;
	return asked.pid ? take_accepted(&asked, alone) : (struct meeting_peer){0, 0};
}

struct meeting_peer meeting_accepted(const struct meeting *meeting, int fd, int error)
{
	struct meeting_peer peer = {0, 0};
	struct lorg_channel *entry = the_arena.node && meeting->listener ? channel_entry_of(meeting->listener) : 0;
	if (!entry)
		return peer;
	if (fd >= 0 && followed(meeting->listener))
		peer = find_peer(meeting->listener, fd, __atomic_load_n(&entry->accepting, __ATOMIC_SEQ_CST) <= 1);
	else if (fd < 0 && !took_none(error))
		doubt(meeting->listener);
	/* Release: who counts us no more finds that our connect is taken. */
	__atomic_fetch_sub(&entry->accepting, 1, __ATOMIC_RELEASE);
	return followed(meeting->listener) ? peer : (struct meeting_peer){0, 0};
}
