/* SPDX-License-Identifier: MIT */
/*
 * arena.c: attaching to the collector's memory, and its chunks.
 *
 * Attaching uses openat, mmap and close alone, which the loader has just used
 * itself: a limit or filter that let the program start lets it attach. Where
 * /proc/COLLECTOR/fd is out of reach, the collector's socket is asked.
 */
#include "preload/core/arena.h"

#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/core/thread.h"

struct arena the_arena;

static const uint8_t gates_off[LORG_HOOKS];
const uint8_t *hook_gates; /* NULL at first: its value must not need a relocation */

/* Windows to try where RLIMIT_AS is tight, largest first. */
static const uint64_t first_windows[] = {LORG_SEGMENT_SIZE, LORG_SEGMENT_SIZE / 2, LORG_SEGMENT_SIZE / 4};

static int attach_failed(const char *reason)
{
	the_arena.attach_failure = reason;
	return -1;
}

/* ---- finding the two descriptors ---- */

static int open_descriptor_of(uint32_t pid, int32_t descriptor)
{
	char path[64];
	const char *end = path + sizeof path;
	char *at = text_append(path, end, "/proc/");
	at = text_append_decimal(at, end, pid);
	at = text_append(at, end, "/fd/");
	text_append_decimal(at, end, (uint64_t)descriptor);
	return (int)raw_openat(path, O_RDWR | O_CLOEXEC);
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
	       node->offers.entry_size == sizeof(struct lorg_offer) && node->channels.entry_size == sizeof(struct lorg_channel);
}

/* Takes one ready arena. Waits for the collector to make more, if it can, 2 s at most. */
static int claim_offer(struct lorg_node *node, struct lorg_offer *claimed)
{
	struct lorg_offer *offers = (struct lorg_offer *)((char *)node + node->offers.offset);
	for (int attempt = 0; attempt < 10000; attempt++) {
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
		if (__atomic_load_n(&node->exhausted, __ATOMIC_RELAXED))
			break;
		if (system_calls_allowed())
			raw_sleep_ns(200000);
		else
			for (int i = 0; i < 5000; i++)
				__builtin_ia32_pause();
	}
	/* All that can be said from here: the image has no memory to write to. */
	__atomic_fetch_add(&node->refused, 1, __ATOMIC_RELAXED);
	return -1;
}

enum { RIGHTS = 2 }; /* descriptors that the answer carries: node segment, arena */

static int receive_rights(int connection, struct lorg_offer *offer, int descriptors[RIGHTS])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(RIGHTS * sizeof(int))];
	} control;
	memset(&control, 0, sizeof control);
	struct iovec data = {offer, sizeof *offer};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	long got = raw_syscall3(SYS_recvmsg, connection, (long)&message, MSG_CMSG_CLOEXEC);
	if (raw_failed(got) || message.msg_controllen < CMSG_LEN(sizeof(int)) || control.header.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(descriptors, control.bytes + CMSG_LEN(0), RIGHTS * sizeof(int));
	if (got == (long)sizeof *offer && !(message.msg_flags & MSG_CTRUNC) && control.header.cmsg_len >= CMSG_LEN(RIGHTS * sizeof(int)))
		return 0;
	/* A cut message may still have left one descriptor. */
	raw_close(descriptors[0]);
	return -1;
}

/* The way for other users and other namespaces: the token is the permission. */
static int ask_by_socket(const struct lorg_settings *settings, struct lorg_offer *offer, int descriptors[2])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!settings->socket_path[0] || !system_calls_allowed())
		return -1;
	text_append(address.sun_path, address.sun_path + sizeof address.sun_path, settings->socket_path);
	long connection = raw_syscall3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (raw_failed(connection))
		return -1;
	int result = -1;
	long done = raw_syscall3(SYS_connect, connection, (long)&address, sizeof address);
	if (!raw_failed(done))
		done = raw_syscall6(SYS_sendto, connection, (long)settings->token, sizeof settings->token, MSG_NOSIGNAL, 0, 0);
	if (done == (long)sizeof settings->token)
		result = receive_rights((int)connection, offer, descriptors);
	raw_close((int)connection);
	return result;
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
	       shared->arena_size == size && room < LORG_SEGMENT_SIZE / 4 && room % LORG_CHUNK_SIZE == 0 &&
	       shared->chunk_count <= (size - room) / LORG_CHUNK_SIZE && size / LORG_SEGMENT_SIZE <= 64 &&
	       table_fits(&shared->chunk_control, 8, room) && shared->chunk_control.count >= shared->chunk_count &&
	       table_fits(&shared->images, LORG_IMAGE_STRIDE, room) && table_fits(&shared->sessions, LORG_SESSION_STRIDE, room) &&
	       shared->functions.count == LORG_FUNCTIONS && table_fits(&shared->functions, sizeof(struct lorg_function), room) &&
	       table_fits(&shared->modules, LORG_MODULE_STRIDE, room);
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
		return attach_failed("no address space for the arena");
	if (!arena_is_right(shared, size)) {
		raw_munmap(shared, window);
		return attach_failed("the arena is not of this version");
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

int arena_attach(const struct lorg_settings *settings)
{
	struct lorg_offer offer;
	int descriptors[2] = {-1, -1};
	the_arena.settings = *settings;
	descriptors[0] = open_descriptor_of(settings->collector_pid, settings->node_descriptor);
	int by_path = descriptors[0] >= 0;
	if (!by_path && ask_by_socket(settings, &offer, descriptors))
		return attach_failed("the collector cannot be reached");
	the_arena.node = map_shared(descriptors[0], settings->node_size);
	raw_close(descriptors[0]);
	if (!the_arena.node || !node_is_right(the_arena.node, settings->node_size)) {
		if (!by_path)
			raw_close(descriptors[1]);
		if (the_arena.node)
			raw_munmap(the_arena.node, settings->node_size);
		the_arena.node = 0;
		return attach_failed("the node segment is not of this version");
	}
	the_arena.channels_offset = the_arena.node->channels.offset;
	if (by_path) {
		if (claim_offer(the_arena.node, &offer))
			return attach_failed("the collector offers no arena");
		descriptors[1] = open_descriptor_of(settings->collector_pid, offer.descriptor);
		if (descriptors[1] < 0)
			return attach_failed("the arena cannot be opened");
	}
	int result = map_arena(descriptors[1], offer.size);
	raw_close(descriptors[1]);
	if (result)
		return result;
	the_arena.same_proc = has_same_proc(by_path);
	arena_refresh();
	__atomic_store_n(&hook_gates, the_arena.shared->gate, __ATOMIC_RELEASE);
	return 0;
}

void arena_detach(const char *reason)
{
	the_arena.attach_failure = reason;
	__atomic_store_n(&hook_gates, gates_off, __ATOMIC_RELEASE);
}

void arena_refresh(void)
{
	struct lorg_arena *shared = the_arena.shared;
	the_arena.seen_generation = __atomic_load_n(&shared->settings_generation, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&shared->detached, __ATOMIC_RELAXED)) {
		arena_detach("the recording has ended");
		return;
	}
	const struct lorg_session *session = (void *)((char *)shared + the_arena.sessions_offset);
	uint32_t length = session->message_length;
	the_arena.message_length = length <= LORG_MESSAGE_MAXIMUM ? length : LORG_MESSAGE_MAXIMUM;
	the_arena.overflow = session->overflow;
	the_arena.block_limit_ns = session->block_limit_ns;
	the_arena.gate_mask = session->gate_mask;
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

int arena_overlaps(const void *address, size_t length)
{
	const char *start = address, *end = start + length;
	for (unsigned i = 0; i < sizeof the_arena.segments / sizeof *the_arena.segments; i++) {
		const char *segment = __atomic_load_n(&the_arena.segments[i], __ATOMIC_RELAXED);
		if (segment && start < segment + LORG_SEGMENT_SIZE && segment < end)
			return 1;
	}
	const char *node = (const char *)the_arena.node;
	return node && start < node + the_arena.settings.node_size && node < end;
}

/* ---- chunks ---- */

/* Guards map_next_segment: 1 while a thread is at it. Taken by a CAS that never waits. */
static uint32_t growing;

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

void arena_fork_child(void)
{
	__atomic_store_n(&growing, 0, __ATOMIC_RELAXED);
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
