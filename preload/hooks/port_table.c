/* SPDX-License-Identifier: MIT */
/*
 * port_table.c: what this program's descriptors are, by number.
 *
 * An entry is looked at by system calls once a binding and only read
 * afterwards. All zero is a valid entry: nothing is known of the number yet.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "preload/core/channel.h"
#include "preload/core/flags.h"
#include "preload/core/raw.h"
#include "preload/hooks/port_kind.h"
#include "preload/hooks/port_table.h"

_Static_assert(PORT_BLOCK == 1 << 10, "BLOCK_SHIFT");
enum {
	BLOCK_SHIFT = 10,
	BLOCK_PORTS = PORT_BLOCK,
	BLOCK_COUNT = 1024, /* numbers from 2^20 on are looked at anew at each use */
	COPIES = 4,         /* ports that one call can have in its hands, and a handler in its middle */
	TOLD_QUEUES = 256,
};

/* The first block is static, so that most programs need no more memory. Owner: this file. */
struct port port_first_block[PORT_BLOCK] __attribute__((aligned(64)));
/* Further blocks, made on demand. Atomic: a block is published once, with a CAS. */
static struct port *blocks[BLOCK_COUNT];
/* Last number given to a set of duplicates. Atomic. */
static uint32_t last_description;

__thread uint32_t port_own_descriptors __attribute__((tls_model("initial-exec")));

/* Copies for children that share memory and for numbers without an entry. */
static __thread struct port copies[COPIES] __attribute__((tls_model("initial-exec")));
static __thread uint32_t next_copy __attribute__((tls_model("initial-exec")));

/* Which ports a thread whose table is not kept here has told; belongs to the one born at `birth`. Above: told at each use.
 */
static __thread struct {
	uint64_t birth;
	uint64_t told[BLOCK_PORTS / 64];
} foreign __attribute__((tls_model("initial-exec")));

/* Queues that an image has told; direct-mapped. A lost race tells a queue twice. */
static struct {
	uint32_t queue; /* msqid + 1 */
	uint32_t image; /* stamp */
} told_queues[TOLD_QUEUES];

/* ---- entries ------------------------------------------------------------ */

/* A child inside posix_spawn, system or popen that has not yet been met by spawn_settle. */
static int is_unsettled_child(void)
{
	return !system_calls_allowed() || (uint32_t)raw_getpid() != program_own_pid();
}

/* True where the table here is not that of the calling thread: its parent's, or that of the other threads. */
static int is_foreign(const struct thread *self)
{
	return self->vfork_child || port_own_descriptors ||
	       (__builtin_expect(spawn_under_way.how != 0, 0) && is_unsettled_child());
}

/* By the number of links of /proc/self/task: two, and one for each thread. */
int ports_shared(void)
{
	struct stat status;
	if (!system_calls_allowed() || raw_failed(raw_syscall3(SYS_stat, (long)"/proc/self/task", (long)&status, 0)))
		return 1;
	return status.st_nlink > 3;
}

static struct port *make_block(uint32_t index)
{
	if (!system_calls_allowed())
		return 0;
	unsigned long size = BLOCK_PORTS * sizeof(struct port);
	long address = raw_mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_failed(address))
		return 0;
	struct port *block = (struct port *)address, *seen = 0;
	/* Release: pairs with the acquire load in slot_of; the loser's block goes. */
	if (__atomic_compare_exchange_n(&blocks[index], &seen, block, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return block;
	raw_munmap(block, size);
	return seen;
}

static struct port *slot_of(int fd, int make)
{
	if ((unsigned)fd < BLOCK_PORTS)
		return &port_first_block[fd];
	uint32_t index = (uint32_t)fd >> BLOCK_SHIFT;
	if (fd < 0 || index >= BLOCK_COUNT)
		return 0;
	struct port *block = __atomic_load_n(&blocks[index], __ATOMIC_ACQUIRE);
	if (!block && make)
		block = make_block(index);
	return block ? block + (fd & (BLOCK_PORTS - 1)) : 0;
}

static int is_known(const struct port *port)
{
	/* Acquire: pairs with the release store in publish. */
	return port && __atomic_load_n(&port->known, __ATOMIC_ACQUIRE);
}

/* Everything but the number's history comes from `fresh`. */
static void publish(struct port *slot, const struct port *fresh)
{
	__atomic_store_n(&slot->known, 0, __ATOMIC_RELAXED);
	uint32_t generation = slot->generation;
	struct port next = *fresh;
	next.known = 0;
	next.generation = generation;
	*slot = next;
	__atomic_store_n(&slot->known, 1, __ATOMIC_RELEASE);
}

static struct port *copy_of(const struct port *port)
{
	struct port *copy = &copies[next_copy++ % COPIES];
	*copy = *port;
	return copy;
}

struct port *port_peek(int fd)
{
	struct port *slot = slot_of(fd, 0);
	return is_known(slot) ? slot : 0;
}

/* ---- telling -------------------------------------------------------------- */

/* The birth of a child that shares memory names it. */
static int foreign_told(const struct thread *self, int fd)
{
	return self->process && foreign.birth == self->process->birth_tick && (unsigned)fd < BLOCK_PORTS &&
	       foreign.told[fd / 64] >> fd % 64 & 1;
}

static void foreign_tells(const struct thread *self, int fd, int told)
{
	if (!self->process || (unsigned)fd >= BLOCK_PORTS)
		return;
	if (foreign.birth != self->process->birth_tick) {
		foreign.birth = self->process->birth_tick;
		__builtin_memset(foreign.told, 0, sizeof foreign.told);
	}
	uint64_t bit = 1ull << fd % 64;
	foreign.told[fd / 64] = told ? foreign.told[fd / 64] | bit : foreign.told[fd / 64] & ~bit;
}

/* True for the one who is to write the OPEN of this port. */
static int claim_telling(struct thread *self, struct port *port, int fd)
{
	if (is_foreign(self)) {
		int told = foreign_told(self, fd);
		foreign_tells(self, fd, 1);
		return !told;
	}
	uint32_t stamp = port_image_stamp();
	/* Relaxed: decides only between threads that tell the same thing. */
	return __atomic_exchange_n(&port->told_image, stamp, __ATOMIC_RELAXED) != stamp;
}

static void write_open(struct thread *self, const struct port *port, int fd, const struct port_origin *origin,
		       const struct event_bytes local)
{
	struct event_bytes bytes[3] = {{origin->name, origin->name_length}, local, {origin->peer, origin->peer_length}};
	struct lorg_event_OPEN event = {
		.channel_in = port->channel_in,
		.channel_out = port->channel_out,
		.inode = port->inode,
		.fd = fd,
		.generation = port->generation,
		.driver = port->driver,
		.hook = origin->hook,
		.from = origin->from,
		.flags = origin->flags,
		.name_length = bytes[0].length,
		.local_length = local.length,
		.peer_length = bytes[2].length,
	};
	event_write(self, LORG_EVENT_OPEN, &event, sizeof event, bytes, 3, 0);
}

static void tell(struct thread *self, struct port *port, int fd, const struct port_origin *origin)
{
	uint8_t local[PORT_ADDRESS_MAXIMUM];
	if (port->kind != PORT_KIND_PORT || !claim_telling(self, port, fd))
		return;
	uint32_t length = origin->connected ? port_address(fd, SYS_getsockname, local) : 0;
	write_open(self, port, fd, origin, (struct event_bytes){local, length});
}

/* A port whose binding no hook of this image saw: everything is asked for. */
static void tell_inherited(struct thread *self, struct port *port, int fd)
{
	uint8_t peer[PORT_ADDRESS_MAXIMUM];
	char name[256];
	struct port_origin origin = {.hook = PORT_INHERITED, .from = -1, .flags = port->access};
	if (port->nonblocking)
		origin.flags |= O_NONBLOCK;
	if (driver_is_socket(port->driver)) {
		origin.connected = 1;
		origin.peer = peer;
		origin.peer_length = port_address(fd, SYS_getpeername, peer);
	} else if ((port->driver == LORG_DRIVER_TTY || port->driver == LORG_DRIVER_FIFO) && system_calls_allowed()) {
		origin.name = name;
		origin.name_length = descriptor_name(fd, name, sizeof name);
	}
	tell(self, port, fd, &origin);
}

static int is_told(const struct thread *self, const struct port *port, int fd)
{
	if (is_foreign(self))
		return foreign_told(self, fd);
	return __atomic_load_n(&port->told_image, __ATOMIC_RELAXED) == port_image_stamp();
}

static int wants_inherited(const struct thread *self)
{
	const uint32_t of_ports = LORG_TRACE_SEND | LORG_TRACE_RECEIVE | LORG_TRACE_PORTS | LORG_TRACE_PROCS | LORG_TRACE_RUNNING_PORTS;
	return (the_arena.gate_mask & (LORG_GATE_PORT | LORG_GATE_MESSAGE)) != 0 &&
	       (!self->flags_matter || (process_flags(self) & of_ports));
}

/* ---- looking up ----------------------------------------------------------- */

/* In a child that shares memory the parent's entry tells the history of the number, and the kernel what it is now. */
static struct port *look_foreign(struct thread *self, int fd)
{
	struct port fresh;
	struct port *slot = slot_of(fd, 0);
	if (port_classify(&fresh, fd) < 0)
		return 0;
	if (slot)
		fresh.generation = slot->generation;
	struct port *port = copy_of(&fresh);
	if (port->kind == PORT_KIND_PORT && !is_told(self, port, fd) && wants_inherited(self))
		tell_inherited(self, port, fd);
	return port;
}

/* What the program may have set before anybody asked. */
static void take_receive_limit(struct port *port, int fd)
{
	struct timeval limit = {0, 0};
	uint32_t length = sizeof limit;
	if (!the_arena.live || !driver_is_socket(port->driver) || !system_calls_allowed() ||
	    raw_failed(raw_syscall6(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&limit, (long)&length, 0)))
		return;
	uint64_t ms = (uint64_t)limit.tv_sec * 1000 + ((uint64_t)limit.tv_usec + 999) / 1000;
	port->receive_limit_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static struct port *look(int fd)
{
	struct port fresh;
	struct port *slot = slot_of(fd, 1);
	if (fd < 0 || port_classify(&fresh, fd) < 0)
		return 0;
	take_receive_limit(&fresh, fd);
	if (!slot)
		return copy_of(&fresh);
	if (slot->doubted && (slot->inode != fresh.inode || slot->device != fresh.device))
		slot->generation++;
	publish(slot, &fresh);
	return slot;
}

struct port *port_find(struct thread *self, int fd)
{
	struct port *port = slot_of(fd, 0);
	if (__builtin_expect(is_foreign(self), 0))
		return look_foreign(self, fd);
	if (__builtin_expect(!is_known(port), 0))
		port = look(fd);
	if (!port)
		return 0;
	if (__builtin_expect(port->kind == PORT_KIND_PORT && !is_told(self, port, fd), 0) && wants_inherited(self))
		tell_inherited(self, port, fd);
	return port;
}

struct port *port_of(struct thread *self, int fd)
{
	struct port *port = port_find(self, fd);
	return port && port->kind == PORT_KIND_PORT ? port : 0;
}

struct port *port_of_queue(struct thread *self, int fd)
{
	struct port fresh;
	struct port *slot = slot_of(fd, 0);
	if (is_known(slot) && slot->driver == LORG_DRIVER_MQ && !is_foreign(self))
		return port_of(self, fd);
	memset(&fresh, 0, sizeof fresh);
	port_classify_queue(&fresh, fd);
	if (!fresh.known || fresh.driver != LORG_DRIVER_MQ)
		return 0;
	if (!slot || is_foreign(self))
		return copy_of(&fresh);
	publish(slot, &fresh);
	return port_of(self, fd);
}

/* ---- binding ---------------------------------------------------------------- */

static void make_from_origin(struct port *port, int fd, const struct port_origin *origin)
{
	memset(port, 0, sizeof *port);
	port->known = 1;
	port->driver = origin->driver;
	port->kind = origin->kind;
	port->access = origin->access;
	port->nonblocking = origin->nonblocking;
	port->stream = (uint8_t)driver_is_stream(origin->driver);
	if (port->kind != PORT_KIND_PORT)
		return;
	if (port->driver != LORG_DRIVER_EVENTFD)
		port_take_inode(port, fd);
	if (port->inode)
		port_find_plain_channels(port);
	if (origin->met_inode)
		port_meet_channels(port, origin->met_device, origin->met_inode);
	else if (!port->inode && port->driver == LORG_DRIVER_EVENTFD)
		port->channel_in = port->channel_out = port_private_channel(port, fd);
}

static void make_duplicate(struct thread *self, struct port *port, int from)
{
	struct port *original = port_find(self, from);
	if (!original) {
		memset(port, 0, sizeof *port);
		return;
	}
	if (!original->description && !is_foreign(self))
		original->description = __atomic_add_fetch(&last_description, 1, __ATOMIC_RELAXED);
	*port = *original;
	port->told_image = 0;
	port->registered = 0;
}

static void make_fresh(struct thread *self, struct port *port, int fd, const struct port_origin *origin)
{
	memset(port, 0, sizeof *port);
	if (origin->from >= 0)
		make_duplicate(self, port, origin->from);
	if (port->known)
		return;
	if (origin->driver != LORG_DRIVER_NONE || origin->kind != PORT_KIND_PORT)
		make_from_origin(port, fd, origin);
	else if (port_classify(port, fd) < 0)
		port->known = 0;
}

/* Binds fd to `fresh` in the table. Returns the entry, or a copy where there is none of our own. */
static struct port *bind_slot(struct thread *self, int fd, const struct port *fresh)
{
	struct port *slot = slot_of(fd, !is_foreign(self));
	if (is_foreign(self) || !slot) {
		struct port *copy = copy_of(fresh);
		copy->generation = slot ? slot->generation + is_known(slot) : 0;
		return copy;
	}
	if (is_known(slot)) /* closed by a way that no hook saw */
		port_closed(self, fd, LORG_REASON_UNKNOWN, 0, PORT_INHERITED);
	slot->generation += slot->doubted;
	publish(slot, fresh);
	return slot;
}

void port_made(struct thread *self, uint8_t gate, int fd, const struct port_origin *origin)
{
	struct port fresh;
	if (fd < 0)
		return;
	make_fresh(self, &fresh, fd, origin);
	if (!fresh.known)
		return;
	if (is_foreign(self))
		foreign_tells(self, fd, 0);
	struct port *port = bind_slot(self, fd, &fresh);
	if (gate & LORG_GATE_PORT)
		tell(self, port, fd, origin);
}

void port_pair_made(struct thread *self, uint8_t gate, const int pair[2], const struct port_origin *origin)
{
	struct port ports[2];
	int is_pipe = origin->driver == LORG_DRIVER_PIPE;
	for (int i = 0; i < 2; i++)
		make_from_origin(&ports[i], pair[i], origin);
	if (is_pipe && ports[0].inode) /* one inode, one channel: nothing to pair */
		ports[1].channel_in = ports[1].channel_out = ports[0].channel_in;
	else
		port_pair_channels(ports, pair);
	for (int i = 0; i < 2; i++) {
		struct port_origin end = *origin;
		ports[i].access = is_pipe ? (i ? O_WRONLY : O_RDONLY) : O_RDWR;
		end.flags |= ports[i].access;
		if (is_foreign(self))
			foreign_tells(self, pair[i], 0);
		struct port *port = bind_slot(self, pair[i], &ports[i]);
		if (gate & LORG_GATE_PORT)
			tell(self, port, pair[i], &end);
	}
}

void port_opened(struct hook_call *call, int fd, int from)
{
	struct port_origin origin = {.hook = call->hook->shown_as, .from = from};
	port_made(call->self, call->gate, fd, &origin);
}

/* ---- closing ----------------------------------------------------------------- */

/* It is still open. The name of a queue is that of its OPEN. */
static void write_unregistered(struct thread *self, const struct port *port, int fd)
{
	uint8_t address[PORT_ADDRESS_MAXIMUM];
	uint32_t length = port->driver == LORG_DRIVER_MQ || !system_calls_allowed() ? 0 : port_address(fd, SYS_getsockname, address);
	struct lorg_event_UNREGISTER event = {.kind = 1, .fd = fd, .generation = port->generation, .address_length = length};
	event_write(self, LORG_EVENT_UNREGISTER, &event, sizeof event, (const struct event_bytes[]){{0, 0}, {address, length}}, 2, 0);
}

static void write_closed(struct thread *self, const struct port *port, int fd, enum lorg_reason reason, int status,
			 uint32_t hook)
{
	if (!(the_arena.gate_mask & LORG_GATE_PORT))
		return;
	if (port->registered == port_image_stamp())
		write_unregistered(self, port, fd);
	EVENT_WRITE(self, CLOSED, .fd = fd, .generation = port->generation, .reason = reason, .status = status, .hook = hook,
		    .driver = port->driver);
}

static void closed_foreign(struct thread *self, int fd, enum lorg_reason reason, int status, uint32_t hook)
{
	struct port fresh;
	const struct port *slot = slot_of(fd, 0);
	if (!(self->vfork_child || port_own_descriptors) || !foreign_told(self, fd) || port_classify(&fresh, fd) < 0)
		return;
	if (slot)
		fresh.generation = slot->generation;
	foreign_tells(self, fd, 0);
	write_closed(self, &fresh, fd, reason, status, hook);
}

void port_closed(struct thread *self, int fd, enum lorg_reason reason, int status, uint32_t hook)
{
	if (is_foreign(self)) {
		closed_foreign(self, fd, reason, status, hook);
		return;
	}
	struct port *slot = slot_of(fd, 0);
	if (!is_known(slot)) {
		if (slot && slot->doubted) {
			slot->generation++;
			slot->doubted = 0;
		}
		return;
	}
	struct port was = *slot;
	int told = was.kind == PORT_KIND_PORT && is_told(self, &was, fd);
	__atomic_store_n(&slot->known, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->told_image, 0, __ATOMIC_RELAXED);
	slot->generation = was.generation + 1;
	channel_closed(was.channel_in);
	if (was.channel_out != was.channel_in)
		channel_closed(was.channel_out);
	if (told)
		write_closed(self, &was, fd, reason, status, hook);
}

/* Calls visit for each known number from first to last. */
static void for_each_known(struct thread *self, unsigned first, unsigned last, uint32_t argument,
			   void (*visit)(struct thread *self, struct port *port, int fd, uint32_t argument))
{
	for (unsigned index = first >> BLOCK_SHIFT; index <= last >> BLOCK_SHIFT && index < BLOCK_COUNT; index++) {
		struct port *block = slot_of((int)(index << BLOCK_SHIFT), 0);
		for (unsigned i = 0; block && i < BLOCK_PORTS; i++) {
			unsigned fd = index << BLOCK_SHIFT | i;
			if (fd >= first && fd <= last && is_known(&block[i]))
				visit(self, &block[i], (int)fd, argument);
		}
	}
}

static void doubt_one(struct thread *self, struct port *port, int fd, uint32_t unused)
{
	(void)self, (void)fd, (void)unused;
	__atomic_store_n(&port->known, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&port->told_image, 0, __ATOMIC_RELAXED);
	port->doubted = 1;
}

void ports_doubt(void)
{
	for_each_known(0, 0, UINT32_MAX, 0, doubt_one);
}

static void close_one(struct thread *self, struct port *port, int fd, uint32_t hook)
{
	(void)port;
	port_closed(self, fd, LORG_REASON_NORMAL, 0, hook);
}

void port_closed_range(struct thread *self, unsigned first, unsigned last, uint32_t hook)
{
	for_each_known(self, first, last, hook, close_one);
}

/* The entry stays as it is: the exec may fail, and its caller then takes these events back. */
static void close_on_exec(struct thread *self, struct port *port, int fd, uint32_t unused)
{
	(void)unused;
	if (port->kind != PORT_KIND_PORT || !is_told(self, port, fd))
		return;
	long flags = raw_syscall3(SYS_fcntl, fd, F_GETFD, 0);
	if (raw_failed(flags) || !(flags & FD_CLOEXEC))
		return;
	write_closed(self, port, fd, LORG_REASON_EXEC, 0, PORT_INHERITED);
}

void ports_exec(struct thread *self)
{
	if (!system_calls_allowed() || is_foreign(self) || !(the_arena.gate_mask & LORG_GATE_PORT))
		return;
	for_each_known(self, 0, UINT32_MAX, 0, close_on_exec);
}

/* ---- settings of a descriptor ------------------------------------------------ */

/* argument: number of the set of duplicates, times 2, and the flag. */
static void set_nonblocking_one(struct thread *self, struct port *port, int fd, uint32_t argument)
{
	(void)self;
	(void)fd;
	if (port->description == argument >> 1)
		port->nonblocking = argument & 1;
}

void port_set_nonblocking(struct thread *self, int fd, int on)
{
	struct port *port = is_foreign(self) ? 0 : port_peek(fd);
	if (!port)
		return;
	port->nonblocking = (uint8_t)(on != 0);
	if (port->description)
		for_each_known(self, 0, UINT32_MAX, port->description << 1 | (on != 0), set_nonblocking_one);
}

/* ---- SysV queues --------------------------------------------------------------- */

void queue_told(struct thread *self, int msqid, uint32_t hook, int always)
{
	uint32_t stamp = port_image_stamp(), slot = (uint32_t)msqid % TOLD_QUEUES;
	if (!always && told_queues[slot].queue == (uint32_t)msqid + 1 && told_queues[slot].image == stamp)
		return;
	if (!is_foreign(self)) {
		told_queues[slot].queue = (uint32_t)msqid + 1;
		told_queues[slot].image = stamp;
	}
	uint32_t channel = queue_channel(msqid);
	struct port port = {
		.driver = LORG_DRIVER_SYSV, .channel_in = channel, .channel_out = channel, .inode = (uint32_t)msqid};
	struct port_origin origin = {.hook = hook, .from = -1};
	write_open(self, &port, (int)queue_object(msqid), &origin, (struct event_bytes){0, 0});
}
