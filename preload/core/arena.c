/* SPDX-License-Identifier: MIT */
/*
 * arena.c: attaching to the collector's memory, and its chunks.
 *
 * Attaching uses openat, mmap and close alone, which the loader has just used
 * itself: a limit or filter that let the program start lets it attach. Where
 * /proc/COLLECTOR/fd is out of reach, or has come to be (setuid), the
 * collector's socket is asked.
 */
#include "preload/core/arena.h"

#include <fcntl.h>
#include <linux/mman.h>
#include <lorg/plan.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/core/thread.h"

struct arena the_arena;

/* attach_late.c: called from outside, in a thread that was stopped. */
extern HIDDEN long remote_entry(uint32_t what, uint64_t argument) __attribute__((weak));

static const uint8_t gates_off[LORG_HOOKS];
const uint8_t *hook_gates; /* NULL at first: its value must not need a relocation */

/* Windows to try where RLIMIT_AS is tight, largest first. */
static const uint64_t first_windows[] = {LORG_SEGMENT_SIZE, LORG_SEGMENT_SIZE / 2, LORG_SEGMENT_SIZE / 4};

/* All that can be said without memory to write to. Where not even the node segment is there, the collector notices. */
static int attach_failed(enum lorg_attach_failure reason)
{
	if (the_arena.node)
		__atomic_fetch_add(&the_arena.node->failures[reason], 1, __ATOMIC_RELAXED);
	return -1;
}

/* ---- finding the two descriptors ---- */

static int open_descriptor_for(uint32_t pid, int32_t descriptor, int flags)
{
	char path[64];
	const char *end = path + sizeof path;
	char *at = text_append(path, end, "/proc/");
	at = text_append_decimal(at, end, pid);
	at = text_append(at, end, "/fd/");
	text_append_decimal(at, end, (uint64_t)descriptor);
	return (int)raw_openat(path, flags | O_CLOEXEC);
}

static int open_descriptor_of(uint32_t pid, int32_t descriptor)
{
	return open_descriptor_for(pid, descriptor, O_RDWR);
}

static void *map_shared(int fd, uint64_t size)
{
	long address = raw_mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return raw_failed(address) ? 0 : (void *)address;
}

static int node_is_right(const struct lorg_node *node, uint64_t size)
{
	return node->magic == LORG_NODE_MAGIC && node->major == LORG_ABI_MAJOR &&
	       node->offers.offset + (uint64_t)node->offers.count * sizeof(struct lorg_offer) <= size &&
	       node->channels.count == LORG_CHANNELS &&
	       node->channels.offset + (uint64_t)LORG_CHANNELS * sizeof(struct lorg_channel) <= size &&
	       node->connects.count == LORG_CONNECTS &&
	       node->connects.offset + (uint64_t)LORG_CONNECTS * sizeof(struct lorg_connect) <= size &&
	       node->offers.entry_size == sizeof(struct lorg_offer) && node->channels.entry_size == sizeof(struct lorg_channel) &&
	       node->connects.entry_size == sizeof(struct lorg_connect);
}

enum { WAIT_STEP_NS = 200000, WAIT_STEPS = 10000, WAIT_STEPS_LORGD = 500, WAIT_STEPS_BLIND = 50 };
static const uint64_t HEARTBEAT_LIMIT_NS = 500000000;

/* How long ago a lorgd has made its last pass. 0: it has just now, or is a private collector, or that cannot be told. */
static uint64_t silence_ns(const struct lorg_node *node)
{
	struct timespec now;
	uint64_t seen = __atomic_load_n(&node->heartbeat_ns, __ATOMIC_RELAXED);
	if (!seen || raw_syscall3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0))
		return 0;
	uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return now_ns > seen ? now_ns - seen : 0;
}

/*
 * How often to look anew for an arena: 2 s in a recording, whose program is there for it; of a lorgd, which production programs
 * are not to wait for, a tenth of a second, and not at all where it stands still.
 */
static int steps_worth_waiting(const struct lorg_node *node)
{
	if (!__atomic_load_n(&node->heartbeat_ns, __ATOMIC_RELAXED))
		return WAIT_STEPS;
	if (!system_calls_allowed())
		return WAIT_STEPS_BLIND;
	return silence_ns(node) > HEARTBEAT_LIMIT_NS ? 0 : WAIT_STEPS_LORGD;
}

/* Takes one ready arena. Waits for the collector to make more, if it can, and not for long. */
static int claim_offer(struct lorg_node *node, struct lorg_offer *claimed)
{
	struct lorg_offer *offers = (struct lorg_offer *)((char *)node + node->offers.offset);
	for (int attempt = 0;; attempt++) {
		for (uint32_t i = 0; i < node->offers.count; i++) {
			/* Acquire: pairs with the collector's release store of READY: the other fields are valid. */
			uint32_t seen = __atomic_load_n(&offers[i].state, __ATOMIC_ACQUIRE);
			if ((seen & LORG_OFFER_STATE) != LORG_OFFER_READY)
				continue;
			*claimed = offers[i];
			/* Fails where the collector has filled the slot anew since: its count differs. */
			if (!__atomic_compare_exchange_n(&offers[i].state, &seen, (seen & ~(uint32_t)LORG_OFFER_STATE) | LORG_OFFER_CLAIMED,
							 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
				continue;
			return 0;
		}
		if (__atomic_load_n(&node->exhausted, __ATOMIC_RELAXED) || attempt >= steps_worth_waiting(node))
			break;
		if (system_calls_allowed())
			raw_sleep_ns(WAIT_STEP_NS);
		else
			for (int i = 0; i < 5000; i++)
				__builtin_ia32_pause();
	}
	/* All that can be said from here: the image has no memory to write to. */
	__atomic_fetch_add(&node->refused, 1, __ATOMIC_RELAXED);
	return -1;
}

enum { RIGHTS = 2 }; /* descriptors that the answer carries: node segment, arena */

/* An answer of `length` bytes and two descriptors. */
static int receive_rights(int connection, void *answer, long length, int descriptors[RIGHTS])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(RIGHTS * sizeof(int))];
	} control;
	memset(&control, 0, sizeof control);
	struct iovec data = {answer, (size_t)length};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	long got = raw_syscall3(SYS_recvmsg, connection, (long)&message, MSG_CMSG_CLOEXEC);
	if (raw_failed(got) || message.msg_controllen < CMSG_LEN(sizeof(int)) || control.header.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(descriptors, control.bytes + CMSG_LEN(0), RIGHTS * sizeof(int));
	if (got == length && !(message.msg_flags & MSG_CTRUNC) && control.header.cmsg_len >= CMSG_LEN(RIGHTS * sizeof(int)))
		return 0;
	/* A cut message may still have left one descriptor. */
	raw_close(descriptors[0]);
	return -1;
}

enum { SOCKET_LIMIT_MS = 400 };

/* A connection to the collector's socket, or negative. */
static long connect_to_collector(const struct lorg_settings *settings)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!settings->socket_path[0] || !system_calls_allowed())
		return -1;
	text_append(address.sun_path, address.sun_path + sizeof address.sun_path, settings->socket_path);
	long connection = raw_syscall3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (raw_failed(connection))
		return -1;
	/* A collector that stands still does not keep the program: neither with its queue full (connect) nor when it does not answer. */
	const struct timeval limit = {SOCKET_LIMIT_MS / 1000, SOCKET_LIMIT_MS % 1000 * 1000};
	raw_syscall6(SYS_setsockopt, connection, SOL_SOCKET, SO_SNDTIMEO, (long)&limit, sizeof limit, 0);
	raw_syscall6(SYS_setsockopt, connection, SOL_SOCKET, SO_RCVTIMEO, (long)&limit, sizeof limit, 0);
	if (!raw_failed(raw_syscall3(SYS_connect, connection, (long)&address, sizeof address)))
		return connection;
	raw_close((int)connection);
	return -1;
}

/* The way for other users and other namespaces: says `words`, whose token is the permission. */
static int ask_with(const struct lorg_settings *settings, const void *words, long length, void *answer, long answer_length,
		    int descriptors[RIGHTS])
{
	int result = -1;
	long connection = connect_to_collector(settings);
	if (connection < 0)
		return -1;
	if (raw_syscall6(SYS_sendto, connection, (long)words, length, MSG_NOSIGNAL, 0, 0) == length)
		result = receive_rights((int)connection, answer, answer_length, descriptors);
	raw_close((int)connection);
	return result;
}

static int ask_by_socket(const struct lorg_settings *settings, struct lorg_offer *offer, int descriptors[RIGHTS])
{
	return ask_with(settings, settings->token, sizeof settings->token, offer, sizeof *offer, descriptors);
}

/* The token's complement, the arena and the request's number: the descriptors of its answer are wanted. */
static int ask_for_answer(const struct lorg_settings *settings, uint32_t index, int descriptors[RIGHTS])
{
	struct lorg_door_request words = {.request = index};
	uint8_t answer;
	for (unsigned i = 0; i < sizeof words.token_complement; i++)
		words.token_complement[i] = (uint8_t)~settings->token[i];
	memcpy(words.arena_id, the_arena.shared->id, sizeof words.arena_id);
	return ask_with(settings, &words, sizeof words, &answer, sizeof answer, descriptors);
}

static int open_answer_by_path(const struct lorg_settings *settings, int32_t plan, int32_t control, int descriptors[2])
{
	descriptors[0] = open_descriptor_for(settings->collector_pid, plan, O_RDONLY);
	if (descriptors[0] < 0)
		return -1;
	descriptors[1] = open_descriptor_of(settings->collector_pid, control);
	if (descriptors[1] >= 0)
		return 0;
	raw_close(descriptors[0]);
	return -1;
}

/* Who has given up root since it attached reaches the collector by its socket alone. */
int arena_open_answer(uint32_t index, int32_t plan, int32_t control, int descriptors[2])
{
	struct lorg_settings settings;
	arena_reach(&settings);
	if (the_arena.by_path && open_answer_by_path(&settings, plan, control, descriptors) == 0)
		return 0;
	return ask_for_answer(&settings, index, descriptors);
}

int arena_collector_is_away(void)
{
	const uint64_t long_ns = 10000000000u;
	const struct lorg_clock *clock = &the_arena.clock;
	unsigned __int128 passed = (unsigned __int128)(clock_now() - clock->base_tick) * clock->multiplier;
	uint64_t now = clock->base_ns + (uint64_t)(passed >> 32);
	uint64_t seen = __atomic_load_n(&the_arena.shared->heartbeat_ns, __ATOMIC_RELAXED);
	return __atomic_load_n(&the_arena.shared->detached, __ATOMIC_RELAXED) || (now > seen && now - seen > long_ns);
}

/*
 * A lorgd stands still, or its keeper stands in for it, which has a process and descriptors, too. Not as soon as a program is
 * to be told that there are no more arenas: on a busy machine a pass may take longer than that.
 */
static int nobody_answers(void)
{
	const uint64_t keeper_ns = 100000000, long_ns = 1000000000;
	const struct lorg_node *node = the_arena.node;
	return node && silence_ns(node) > (__atomic_load_n(&node->exhausted, __ATOMIC_RELAXED) ? keeper_ns : long_ns);
}

int arena_collector_lives(void)
{
	struct lorg_settings settings;
	if (nobody_answers())
		return 0;
	arena_reach(&settings);
	long descriptor = the_arena.by_path ? open_descriptor_for(settings.collector_pid, settings.node_descriptor, O_RDONLY) : -1;
	if (descriptor < 0)
		descriptor = connect_to_collector(&settings);
	if (descriptor < 0)
		return 0;
	raw_close((int)descriptor);
	return 1;
}

/* ---- mapping ---- */

static int table_fits(const struct lorg_table *table, uint32_t entry_size, uint64_t room)
{
	return table->entry_size == entry_size && table->count && table->offset < room &&
	       (uint64_t)table->count * entry_size <= room - table->offset;
}

static int arena_is_right(const struct lorg_arena *shared, uint64_t size)
{
	uint64_t room = shared->chunks_offset;
	return shared->magic == LORG_ARENA_MAGIC && shared->major == LORG_ABI_MAJOR && shared->chunk_size == LORG_CHUNK_SIZE &&
	       shared->arena_size == size && room < LORG_SEGMENT_SIZE / 2 && room % LORG_CHUNK_SIZE == 0 &&
	       shared->chunk_count <= (size - room) / LORG_CHUNK_SIZE && size / LORG_SEGMENT_SIZE <= 64 &&
	       table_fits(&shared->chunk_control, 8, room) && shared->chunk_control.count >= shared->chunk_count &&
	       table_fits(&shared->images, LORG_IMAGE_STRIDE, room) && table_fits(&shared->sessions, LORG_SESSION_STRIDE, room) &&
	       shared->functions.count == LORG_FUNCTIONS && table_fits(&shared->functions, sizeof(struct lorg_function), room) &&
	       table_fits(&shared->modules, LORG_MODULE_STRIDE, room) &&
	       (!shared->requests.count || table_fits(&shared->requests, sizeof(struct lorg_request), room)) &&
	       (!shared->programs.count || table_fits(&shared->programs, 1, room));
}

static int map_arena(int fd, uint64_t size)
{
	struct lorg_arena *shared = 0;
	uint64_t window = 0;
	for (unsigned i = 0; i < sizeof first_windows / sizeof *first_windows && !shared; i++) {
		window = first_windows[i] < size ? first_windows[i] : size;
		shared = map_shared(fd, window);
	}
	if (!shared)
		return attach_failed(LORG_ATTACH_NOT_MAPPED);
	if (!arena_is_right(shared, size)) {
		raw_munmap(shared, window);
		return attach_failed(LORG_ATTACH_OTHER_VERSION);
	}
	if (shared->chunks_offset >= window) {
		raw_munmap(shared, window);
		return attach_failed(LORG_ATTACH_NOT_MAPPED);
	}
	the_arena.size = size;
	the_arena.chunks_offset = shared->chunks_offset;
	the_arena.chunk_count = shared->chunk_count;
	the_arena.mapped_chunks = (uint32_t)((window - shared->chunks_offset) / LORG_CHUNK_SIZE);
	the_arena.clock = shared->clock;
	memcpy(the_arena.trace_uuid, shared->trace_uuid, sizeof the_arena.trace_uuid);
	the_arena.control_offset = shared->chunk_control.offset;
	the_arena.images_offset = shared->images.offset;
	the_arena.sessions_offset = shared->sessions.offset;
	the_arena.functions_offset = shared->functions.offset;
	the_arena.requests_offset = shared->requests.offset;
	the_arena.request_count = shared->requests.count;
	the_arena.programs_offset = shared->programs.offset;
	the_arena.programs_size = shared->programs.count;
	the_arena.functions = (struct lorg_function *)((char *)shared + the_arena.functions_offset);
	the_arena.segments[0] = (char *)shared;
	the_arena.shared = shared;
	return 0;
}

/* Reached by its number in /proc, the collector has the same; else the file systems are compared. */
static uint32_t has_same_proc(int by_path)
{
	struct stat status;
	if (by_path)
		return 1;
	/* Reached by its socket: system calls are allowed. */
	long result = raw_syscall3(SYS_stat, (long)"/proc", (long)&status, 0);
	return !raw_failed(result) && status.st_dev == the_arena.shared->proc_device;
}

/* What a program that is not traced has no use for may be what it lacks. */
static void unmap_node(void)
{
	struct lorg_node *node = the_arena.node;
	the_arena.node = 0;
	if (node)
		raw_munmap(node, the_arena.settings.node_size);
}

static int attach(const struct lorg_settings *settings)
{
	struct lorg_offer offer;
	int descriptors[2] = {-1, -1};
	the_arena.settings = *settings;
	descriptors[0] = open_descriptor_of(settings->collector_pid, settings->node_descriptor);
	int by_path = descriptors[0] >= 0;
	if (!by_path && ask_by_socket(settings, &offer, descriptors))
		return -1;
	the_arena.node = map_shared(descriptors[0], settings->node_size);
	raw_close(descriptors[0]);
	if (!the_arena.node || !node_is_right(the_arena.node, settings->node_size)) {
		if (!by_path)
			raw_close(descriptors[1]);
		return -1;
	}
	the_arena.channels_offset = the_arena.node->channels.offset;
	the_arena.connects_offset = the_arena.node->connects.offset;
	if (by_path) {
		if (claim_offer(the_arena.node, &offer)) /* which has counted it */
			return -1;
		descriptors[1] = open_descriptor_of(settings->collector_pid, offer.descriptor);
		if (descriptors[1] < 0)
			return attach_failed(LORG_ATTACH_NOT_OPENED);
	}
	int result = map_arena(descriptors[1], offer.size);
	raw_close(descriptors[1]);
	if (result)
		return result;
	the_arena.by_path = (uint32_t)by_path;
	the_arena.same_proc = has_same_proc(by_path);
	the_arena.live = __atomic_load_n(&the_arena.shared->sessions_used, __ATOMIC_RELAXED) != 0;
	the_arena.port_epoch = __atomic_load_n(&the_arena.shared->port_epoch, __ATOMIC_RELAXED);
	the_arena.seen_generation = ~the_arena.shared->settings_generation;
	arena_refresh();
	/* Release: the address is this library's. */
	__atomic_store_n(&the_arena.shared->remote_entry, (uint64_t)(uintptr_t)remote_entry, __ATOMIC_RELEASE);
	__atomic_store_n(&hook_gates, the_arena.shared->gate, __ATOMIC_RELEASE);
	announced_calls_set(ANNOUNCED_UNKNOWN);
	return 0;
}

int arena_attach(const struct lorg_settings *settings)
{
	int result = attach(settings);
	if (result)
		unmap_node();
	return result;
}

void arena_detach(void)
{
	__atomic_store_n(&hook_gates, gates_off, __ATOMIC_RELEASE);
	announced_calls_set(ANNOUNCED_UNKNOWN);
}

int arena_attach_again(const struct lorg_settings *settings)
{
	struct lorg_settings now;
	if (!the_arena.shared || __atomic_load_n(&the_arena.shared->detached, __ATOMIC_RELAXED) || !the_program.image)
		return -1;
	arena_reach(&now);
	if (now.collector_pid != settings->collector_pid || !arena_collector_lives())
		return -1;
	arena_refresh();
	/* Release: as when it was attached first. */
	__atomic_store_n(&hook_gates, the_arena.shared->gate, __ATOMIC_RELEASE);
	announced_calls_set(ANNOUNCED_UNKNOWN);
	return 0;
}

void arena_give_up(enum lorg_attach_failure reason)
{
	attach_failed(reason);
	arena_detach();
}

/* 1 while a thread reads settings. Taken by a CAS; waited for a moment, as it may be the one that this handler interrupted. */
static uint32_t refreshing FORK_STATE;

static int refresh_begins(void)
{
	for (int i = 0; i < 1000; i++) {
		uint32_t expected = 0;
		if (__atomic_compare_exchange_n(&refreshing, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		if (i > 100 && system_calls_allowed())
			raw_sleep_ns(20000);
		else
			__builtin_ia32_pause();
		if (__atomic_load_n(&the_arena.shared->settings_generation, __ATOMIC_RELAXED) == the_arena.seen_generation)
			return 0;
	}
	return 0;
}

static void read_settings(const struct lorg_arena *shared)
{
	const struct lorg_session *session = (void *)((char *)shared + the_arena.sessions_offset);
	uint32_t length = session->message_length;
	the_arena.message_length = length <= LORG_MESSAGE_MAXIMUM ? length : LORG_MESSAGE_MAXIMUM;
	the_arena.overflow = session->overflow;
	the_arena.block_limit_ns = session->block_limit_ns;
	the_arena.gate_mask = session->gate_mask;
	the_arena.flags_matter = session->flags_matter != 0;
	the_arena.flags_new = (uint32_t)session->flags_new_processes;
	the_arena.send_program = session->send_program;
	the_arena.receive_program = session->receive_program;
	the_arena.message_programs = (session->send_program ? LORG_MASK_SEND : 0) | (session->receive_program ? LORG_MASK_RECEIVE : 0);
	uint32_t monitors = 0;
	for (unsigned i = 0; the_arena.live && i < sizeof the_arena.system_limits / sizeof *the_arena.system_limits; i++) {
		the_arena.system_limits[i] = session->system_limits[i];
		monitors |= (session->system_limits[i] != 0) << i;
	}
	the_arena.monitors = monitors;
	the_arena.collector_epoch = __atomic_load_n(&shared->collector_epoch, __ATOMIC_RELAXED);
	uint32_t epoch = __atomic_load_n(&shared->port_epoch, __ATOMIC_RELAXED);
	if (epoch != the_arena.port_epoch) {
		the_arena.port_epoch = epoch;
		ports_doubt();
	}
}

void arena_refresh(void)
{
	struct lorg_arena *shared = the_arena.shared;
	if (!refresh_begins())
		return;
	/* Acquire: pairs with the collector's release; the settings are those of this number, or newer. */
	uint32_t generation = __atomic_load_n(&shared->settings_generation, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&shared->detached, __ATOMIC_RELAXED))
		arena_detach();
	else
		read_settings(shared);
	/* Release: who sees the number finds what was read. */
	__atomic_store_n(&the_arena.seen_generation, generation, __ATOMIC_RELEASE);
	__atomic_store_n(&refreshing, 0, __ATOMIC_RELEASE);
}

void arena_reach(struct lorg_settings *settings)
{
	const struct lorg_arena *shared = the_arena.shared;
	*settings = the_arena.settings;
	for (int i = 0; i < 100; i++) {
		/* Acquire, and the fence: what lies between is of one number, which is even. */
		uint32_t generation = __atomic_load_n(&shared->reach_generation, __ATOMIC_ACQUIRE);
		if (!generation)
			return;
		settings->collector_pid = shared->collector_pid;
		settings->node_descriptor = shared->node_descriptor;
		settings->node_size = shared->node_size;
		memcpy(settings->token, shared->token, sizeof settings->token);
		memcpy(settings->socket_path, shared->socket_path, sizeof settings->socket_path);
		settings->socket_path[sizeof settings->socket_path - 1] = 0;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(generation & 1) && __atomic_load_n(&shared->reach_generation, __ATOMIC_RELAXED) == generation)
			return;
		__builtin_ia32_pause();
	}
	*settings = the_arena.settings;
}

/* ---- addresses ---- */

void *arena_at(uint64_t offset)
{
	if (offset >= the_arena.size)
		return 0;
	char *segment = __atomic_load_n(&the_arena.segments[offset >> LORG_SEGMENT_SHIFT], __ATOMIC_ACQUIRE);
	return segment ? segment + (offset & (LORG_SEGMENT_SIZE - 1)) : 0;
}

void *arena_chunk(uint32_t index)
{
	if (index >= __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE))
		return 0;
	return arena_at(the_arena.chunks_offset + (uint64_t)index * LORG_CHUNK_SIZE);
}

struct lorg_image *arena_image(uint32_t index)
{
	if (index >= LORG_IMAGES)
		return 0;
	return (void *)((char *)the_arena.shared + the_arena.images_offset + (uint64_t)index * LORG_IMAGE_STRIDE);
}

struct lorg_process *arena_process(uint32_t index)
{
	char *slab = arena_chunk(index / LORG_SLAB_ENTRIES);
	return slab ? (void *)(slab + (index % LORG_SLAB_ENTRIES) * LORG_PROCESS_SIZE) : 0;
}

struct lorg_function *arena_function(uint32_t slot)
{
	char *table = (char *)the_arena.shared + the_arena.functions_offset;
	return (void *)(table + (uint64_t)(slot % LORG_FUNCTIONS) * sizeof(struct lorg_function));
}

uint64_t *arena_chunk_control(uint32_t index)
{
	return (uint64_t *)((char *)the_arena.shared + the_arena.control_offset) + index;
}

size_t arena_segment_length(unsigned index)
{
	uint64_t first = the_arena.chunks_offset + (uint64_t)__atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_RELAXED) * LORG_CHUNK_SIZE;
	return index || first > LORG_SEGMENT_SIZE ? LORG_SEGMENT_SIZE : first;
}

/* ---- other windows ---- */

enum { OTHER_WINDOWS = 4096 };

/* Written before the count is raised; later only `at` changes. */
static struct arena_window other_windows[OTHER_WINDOWS];
/* Atomic, release. */
static uint32_t other_window_count;

int arena_window_add(void *at, size_t length)
{
	uint32_t count = other_window_count;
	if (count == OTHER_WINDOWS)
		return -1;
	other_windows[count] = (struct arena_window){at, (length + 4095) & ~(size_t)4095};
	__atomic_store_n(&other_window_count, count + 1, __ATOMIC_RELEASE);
	return 0;
}

struct arena_window *arena_window(uint32_t number)
{
	return number < __atomic_load_n(&other_window_count, __ATOMIC_ACQUIRE) ? &other_windows[number] : 0;
}

static void take_lower(const char *at, size_t size, const char *start, const char *end, const char **from, const char **to)
{
	if (!at || start >= at + size || at >= end || (*from && *from < at))
		return;
	*from = at;
	*to = at + size;
}

int arena_first_window(const void *address, size_t length, const char **from, const char **to)
{
	const char *start = address, *end = start + length;
	*from = *to = 0;
	for (unsigned i = 0; i < sizeof the_arena.segments / sizeof *the_arena.segments; i++) {
		const char *segment = __atomic_load_n(&the_arena.segments[i], __ATOMIC_RELAXED);
		if (segment)
			take_lower(segment, arena_segment_length(i), start, end, from, to);
	}
	take_lower((const char *)the_arena.node, the_arena.settings.node_size, start, end, from, to);
	const struct arena_window *window;
	for (uint32_t i = 0; (window = arena_window(i)) != 0; i++)
		take_lower(__atomic_load_n(&window->at, __ATOMIC_RELAXED), window->length, start, end, from, to);
	return *from != 0;
}

int arena_overlaps(const void *address, size_t length)
{
	const char *from, *to;
	return arena_first_window(address, length, &from, &to);
}

/* ---- chunks ---- */

/* Guards map_next_segment: 1 while a thread is at it. Taken by a CAS that never waits. */
static uint32_t growing FORK_STATE;

/*
 * Maps the next 16 MiB. The descriptor is long closed: mremap with an old size
 * of 0 makes a second mapping of shared memory, here from the last page that
 * is mapped onwards; that page's second copy is unmapped again.
 */
static int map_next_segment(void)
{
	uint32_t mapped = __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE);
	uint64_t end = the_arena.chunks_offset + (uint64_t)mapped * LORG_CHUNK_SIZE;
	uint64_t next = end >> LORG_SEGMENT_SHIFT;
	if (end % LORG_SEGMENT_SIZE || end + LORG_SEGMENT_SIZE > the_arena.size || !system_calls_allowed() ||
	    __atomic_load_n(&the_program.locked_memory, __ATOMIC_RELAXED))
		return -1;
	char *last_page = the_arena.segments[next - 1] + LORG_SEGMENT_SIZE - 4096;
	long address = raw_mremap(last_page, 0, LORG_SEGMENT_SIZE + 4096, MREMAP_MAYMOVE);
	if (raw_failed(address))
		return -1;
	raw_munmap((void *)address, 4096);
	char *segment = (char *)address + 4096;
	raw_madvise(segment, LORG_SEGMENT_SIZE, MADV_DONTDUMP);
	__atomic_store_n(&the_arena.segments[next], segment, __ATOMIC_RELEASE);
	uint32_t count = mapped + LORG_SEGMENT_SIZE / LORG_CHUNK_SIZE;
	/* Release: whoever sees the count sees the segment. */
	__atomic_store_n(&the_arena.mapped_chunks, count < the_arena.chunk_count ? count : the_arena.chunk_count, __ATOMIC_RELEASE);
	return 0;
}

static int grow(void)
{
	uint32_t expected = 0;
	if (!__atomic_compare_exchange_n(&growing, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		/* Another thread is at it: its segment is ours, too. Bounded, as it may be the one that this handler interrupted. */
		for (int i = 0; i < 1000 && __atomic_load_n(&growing, __ATOMIC_ACQUIRE); i++) {
			if (i > 100 && system_calls_allowed())
				raw_sleep_ns(20000);
			else
				for (int k = 0; k < 20; k++)
					__builtin_ia32_pause();
		}
		return __atomic_load_n(&growing, __ATOMIC_ACQUIRE) ? -1 : 0;
	}
	int result = map_next_segment();
	__atomic_store_n(&growing, 0, __ATOMIC_RELEASE);
	return result;
}

int arena_hold(void)
{
	for (int i = 0; i < 1000; i++) {
		uint32_t expected = 0;
		if (__atomic_compare_exchange_n(&growing, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		if (system_calls_allowed())
			raw_sleep_ns(20000);
		else
			__builtin_ia32_pause();
	}
	return 0;
}

void arena_let_go(void)
{
	__atomic_store_n(&growing, 0, __ATOMIC_RELEASE);
}

void arena_fork_child(void)
{
	__atomic_store_n(&growing, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&refreshing, 0, __ATOMIC_RELAXED);
}

static void raise_to(uint32_t *word, uint32_t value)
{
	uint32_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
	while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static uint32_t take_between(uint32_t first, uint32_t end, uint64_t word)
{
	for (uint32_t i = first; i < end; i++) {
		uint64_t *control = arena_chunk_control(i);
		uint64_t expected = 0;
		if (__atomic_load_n(control, __ATOMIC_RELAXED))
			continue;
		/* Acquire: pairs with the collector's release store of FREE after it has zeroed the chunk. */
		if (__atomic_compare_exchange_n(control, &expected, word, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return i;
	}
	return UINT32_MAX;
}

/* True when threads' own chunks, not a backlog, have used up what is mapped. */
static int mostly_owned(uint32_t mapped)
{
	uint32_t owned = 0;
	for (uint32_t i = 0; i < mapped; i++)
		owned += lorg_chunk_word_state(__atomic_load_n(arena_chunk_control(i), __ATOMIC_RELAXED)) != LORG_CHUNK_FULL;
	return owned > mapped / 2;
}

enum {
	BACKLOG_A_WRITER = 12, /* with the chunk it fills, and those that are being taken, 1 MiB */
	BACKLOG_FREE = 12,
	BACKLOG_LOOKED_AT = 1024, /* with more chunks in use than this, threads are what takes the memory */
};

uint32_t arena_backlog(void)
{
	uint32_t used = __atomic_load_n(&the_arena.shared->chunk_high_water, __ATOMIC_RELAXED);
	uint32_t mapped = __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_RELAXED);
	uint32_t full = 0, filling = 0;
	if (used > mapped)
		used = mapped;
	if (used <= BACKLOG_FREE || used > BACKLOG_LOOKED_AT)
		return 0;
	for (uint32_t i = 0; i < used; i++) {
		enum lorg_chunk_state state = lorg_chunk_word_state(__atomic_load_n(arena_chunk_control(i), __ATOMIC_RELAXED));
		full += state == LORG_CHUNK_FULL;
		filling += state == LORG_CHUNK_FILLING;
	}
	uint32_t may_wait = BACKLOG_FREE + filling * BACKLOG_A_WRITER;
	return full > may_wait ? full - may_wait : 0;
}

uint32_t arena_take_chunk(enum lorg_chunk_state state, unsigned session, uint32_t process)
{
	struct lorg_arena *shared = the_arena.shared;
	uint64_t word = lorg_chunk_word(state, session, process);
	for (;;) {
		uint32_t mapped = __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE);
		uint32_t hint = __atomic_load_n(&shared->chunk_hint, __ATOMIC_RELAXED);
		if (hint > mapped)
			hint = 0;
		uint32_t index = take_between(hint, mapped, word);
		if (index == UINT32_MAX)
			index = take_between(0, hint, word);
		if (index != UINT32_MAX) {
			__atomic_store_n(&shared->chunk_hint, index + 1, __ATOMIC_RELAXED);
			raise_to(&shared->chunk_high_water, index + 1);
			return index;
		}
		if (mapped >= the_arena.chunk_count || (state == LORG_CHUNK_FILLING && !mostly_owned(mapped)) || grow())
			return UINT32_MAX;
	}
}

void arena_chunk_full(uint32_t index, uint32_t process)
{
	uint64_t filling = lorg_chunk_word(LORG_CHUNK_FILLING, 0, process);
	uint64_t full = lorg_chunk_word(LORG_CHUNK_FULL, 0, process);
	if (index >= __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE))
		return;
	/* Release: pairs with the collector's acquire load; all events are in memory before. Fails if wiped or salvaged. */
	__atomic_compare_exchange_n(arena_chunk_control(index), &filling, full, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
