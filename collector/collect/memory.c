/* SPDX-License-Identifier: MIT */
/* memory.c: see memory.h. */
#include "collector/collect/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/random.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "hook_names.h"

/* Not known to older headers: the memory is data, not a program. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static int memory_map(struct memory *memory)
{
	void *at = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor, 0);
	memory->at = at == MAP_FAILED ? NULL : at;
	return memory->at ? 0 : -1;
}

int memory_create(struct memory *memory, const char *name, uint64_t size)
{
	memory->size = size;
	memory->at = NULL;
	memory->descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (memory->descriptor < 0 && errno == EINVAL)
		memory->descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory->descriptor < 0)
		return -1;
	/* Not F_SEAL_SEAL: memory_abandoned adds one at the end. */
	if (ftruncate(memory->descriptor, (off_t)size) == 0 &&
	    fcntl(memory->descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 && memory_map(memory) == 0)
		return 0;
	int error = errno;
	memory_free(memory);
	errno = error;
	return -1;
}

void memory_free(struct memory *memory)
{
	if (memory->at)
		munmap(memory->at, memory->size);
	if (memory->descriptor >= 0)
		close(memory->descriptor);
	memory->at = NULL;
	memory->descriptor = -1;
}

int memory_abandoned(struct memory *memory)
{
	if (memory->at)
		munmap(memory->at, memory->size);
	memory->at = NULL;
	/* The kernel refuses this seal while the memory is mapped anywhere so that it can be written. */
	if (fcntl(memory->descriptor, F_ADD_SEALS, F_SEAL_WRITE) == 0)
		return 1;
	/* A mapping that cannot be had back is as good as gone: nothing can be taken from it. */
	return memory_map(memory) != 0;
}

static uint64_t align(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

struct arena_layout arena_layout(uint64_t size, uint32_t programs_size)
{
	struct arena_layout layout = {.size = size, .programs_size = programs_size};
	uint32_t most = (uint32_t)(size / LORG_CHUNK_SIZE);
	uint64_t at = align(sizeof(struct lorg_arena), 4096);
	/* What every image uses comes first, so that few pages are touched. */
	layout.sessions = at;
	at = align(at + (uint64_t)LORG_SESSIONS * LORG_SESSION_STRIDE, 4096);
	layout.chunk_control = at;
	at = align(at + (uint64_t)most * sizeof(uint64_t), 4096);
	layout.images = at;
	at = align(at + (uint64_t)LORG_IMAGES * LORG_IMAGE_STRIDE, 4096);
	layout.functions = at;
	at = align(at + (uint64_t)LORG_FUNCTIONS * sizeof(struct lorg_function), 4096);
	layout.modules = at;
	at = align(at + (uint64_t)LORG_MODULES * LORG_MODULE_STRIDE, 4096);
	layout.requests = at;
	at = align(at + (uint64_t)LORG_REQUESTS * sizeof(struct lorg_request), 4096);
	layout.programs = at;
	at = align(at + programs_size, 4096);
	layout.program_flags = at;
	at = align(at + (uint64_t)LORG_PROGRAM_FLAGS * sizeof(struct lorg_program_flags), 4096);
	layout.chunks = align(at, LORG_CHUNK_SIZE);
	layout.chunk_count = (uint32_t)((size - layout.chunks) / LORG_CHUNK_SIZE);
	return layout;
}

static void prepare_session(struct lorg_session *session, const struct arena_settings *settings)
{
	session->id = 1;
	session->generation = 1;
	memcpy(session->name, settings->session_name, sizeof session->name);
	session->overflow = settings->overflow;
	session->message_length = settings->message_length;
	session->block_limit_ns = settings->block_limit_ns;
	session->gate_mask = settings->gate_mask;
	session->flags_new_processes = settings->flags_new;
	session->flags_matter = settings->flags_matter;
	session->state = 1;
}

static uint32_t put_program(const struct memory *memory, const struct arena_layout *layout, const struct arena_program *program, uint32_t at)
{
	if (!program->memory)
		return 0;
	memcpy(memory->at + layout->programs + at, program->memory, program->size);
	return at + 8;
}

static void put_programs(const struct memory *memory, const struct arena_layout *layout, const struct arena_settings *settings)
{
	struct lorg_session *session = (struct lorg_session *)(memory->at + layout->sessions);
	session->send_program = put_program(memory, layout, &settings->send_program, 0);
	session->receive_program = put_program(memory, layout, &settings->receive_program, settings->send_program.size);
}

static uint64_t proc_device(void)
{
	struct stat status;
	return stat("/proc/self", &status) == 0 ? status.st_dev : 0;
}

/* How many filters this process is under: a container sets one for all that runs in it. 0 where the kernel does not say. */
static uint32_t own_seccomp_filters(void)
{
	unsigned count = 0;
	char line[256];
	FILE *status = fopen("/proc/self/status", "re");
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "Seccomp_filters: %u", &count) == 1)
			break;
	if (status)
		fclose(status);
	return count;
}

/* What arenas say of this process. It does not change, and is looked at once. */
static const struct own_process {
	uint32_t seccomp_filters;
	uint64_t proc_device;
} *own_process(void)
{
	static struct own_process own;
	static int known;
	if (!known)
		own = (struct own_process){own_seccomp_filters(), proc_device()};
	known = 1;
	return &own;
}

void arena_prepare(const struct memory *memory, const struct arena_layout *layout, const struct arena_settings *settings,
		   const uint8_t id[16])
{
	struct lorg_arena *arena = (struct lorg_arena *)memory->at;
	arena->major = LORG_ABI_MAJOR;
	arena->minor = LORG_ABI_MINOR;
	arena->size = sizeof *arena;
	arena->chunk_size = LORG_CHUNK_SIZE;
	arena->arena_size = layout->size;
	arena->chunks_offset = layout->chunks;
	arena->chunk_count = layout->chunk_count;
	arena->collector_pid = (uint32_t)getpid();
	memcpy(arena->id, id, sizeof arena->id);
	memcpy(arena->node_name, settings->node_name, sizeof arena->node_name);
	memcpy(arena->trace_uuid, settings->trace_uuid, sizeof arena->trace_uuid);
	arena->clock = settings->clock;
	arena->chunk_control = (struct lorg_table){layout->chunk_control, sizeof(uint64_t), layout->chunk_count};
	arena->images = (struct lorg_table){layout->images, LORG_IMAGE_STRIDE, LORG_IMAGES};
	arena->sessions = (struct lorg_table){layout->sessions, LORG_SESSION_STRIDE, LORG_SESSIONS};
	arena->functions = (struct lorg_table){layout->functions, sizeof(struct lorg_function), LORG_FUNCTIONS};
	arena->modules = (struct lorg_table){layout->modules, LORG_MODULE_STRIDE, LORG_MODULES};
	if (settings->has_requests)
		arena->requests = (struct lorg_table){layout->requests, sizeof(struct lorg_request), LORG_REQUESTS};
	arena->functions_asked = settings->has_requests && !settings->settle; /* sessions ask later */
	if (layout->programs_size)
		arena->programs = (struct lorg_table){layout->programs, 1, layout->programs_size};
	arena->program_flags = (struct lorg_table){layout->program_flags, sizeof(struct lorg_program_flags), LORG_PROGRAM_FLAGS};
	arena->settings_generation = 1;
	arena->collector_epoch = 1;
	arena->seccomp_filters = own_process()->seccomp_filters;
	arena->proc_device = own_process()->proc_device;
	arena->heartbeat_ns = clock_monotonic_ns();
	memcpy(arena->gate, settings->gates, sizeof arena->gate);
	prepare_session((struct lorg_session *)(memory->at + layout->sessions), settings);
	put_programs(memory, layout, settings);
	if (settings->settle)
		settings->settle(settings->settle_context, memory->at, layout);
	/* Release: who sees the magic sees the rest. */
	__atomic_store_n(&arena->magic, LORG_ARENA_MAGIC, __ATOMIC_RELEASE);
}

void arena_set_reach(struct lorg_arena *arena, const struct arena_reach *reach)
{
	/* Odd while it is written; a writer that was killed in the middle left it odd. */
	uint32_t generation = __atomic_load_n(&arena->reach_generation, __ATOMIC_RELAXED) | 1;
	__atomic_store_n(&arena->reach_generation, generation, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	arena->collector_pid = reach->pid;
	arena->node_descriptor = reach->node_descriptor;
	arena->node_size = reach->node_size;
	memcpy(arena->token, reach->token, sizeof arena->token);
	snprintf(arena->socket_path, sizeof arena->socket_path, "%s", reach->socket_path);
	/* Release: pairs with the acquiring load of whoever looks for the collector. */
	__atomic_store_n(&arena->reach_generation, generation + 1, __ATOMIC_RELEASE);
}

static uint8_t gate_of(uint32_t kinds)
{
	uint32_t life = kinds & LORG_MASK_LIFE ? (uint32_t)LORG_GATE_COUNT : 0;
	kinds &= ~(uint32_t)LORG_MASK_LIFE;
	return (uint8_t)(kinds | life | (kinds > UINT8_MAX ? LORG_GATE_ALL : 0));
}

/* A hook is entered for the kinds that are both asked for and in its row. Kinds beyond the byte are one hook's alone. */
void gates_set(uint8_t gates[LORG_HOOKS], uint32_t mask)
{
	for (uint32_t i = 0; i < hook_name_count; i++)
		if (hook_names[i].id < LORG_HOOKS)
			gates[hook_names[i].id] = gate_of(mask & hook_names[i].gate_mask);
}

uint64_t node_size(void)
{
	return align(sizeof(struct lorg_node) + (uint64_t)LORG_ARENA_OFFERS * sizeof(struct lorg_offer), 4096) +
	       (uint64_t)LORG_CHANNELS * sizeof(struct lorg_channel) + (uint64_t)LORG_CONNECTS * sizeof(struct lorg_connect) +
	       (uint64_t)LORG_CARRIED_TOKENS * sizeof(struct lorg_carried_token);
}

_Static_assert(sizeof(struct lorg_node) % 8 == 0, "the offers follow the node's header");

struct lorg_node node_head(const uint8_t id[16], const char *name)
{
	uint64_t carried = node_size() - (uint64_t)LORG_CARRIED_TOKENS * sizeof(struct lorg_carried_token);
	uint64_t connects = carried - (uint64_t)LORG_CONNECTS * sizeof(struct lorg_connect);
	uint64_t channels = connects - (uint64_t)LORG_CHANNELS * sizeof(struct lorg_channel);
	struct lorg_node head = {
		.magic = LORG_NODE_MAGIC,
		.major = LORG_ABI_MAJOR,
		.minor = LORG_ABI_MINOR,
		.size = sizeof head,
		.collector_pid = (uint32_t)getpid(),
		.segment_size = node_size(),
		.offers = {sizeof head, sizeof(struct lorg_offer), LORG_ARENA_OFFERS},
		.channels = {channels, sizeof(struct lorg_channel), LORG_CHANNELS},
		.connects = {connects, sizeof(struct lorg_connect), LORG_CONNECTS},
		.carried = {carried, sizeof(struct lorg_carried_token), LORG_CARRIED_TOKENS},
	};
	memcpy(head.id, id, sizeof head.id);
	snprintf(head.name, sizeof head.name, "%s", name);
	return head;
}

static int is_as_it_was(const struct lorg_node *node, const struct lorg_node *head)
{
	return memcmp(node, head, offsetof(struct lorg_node, exhausted)) == 0 &&
	       memcmp(&node->connects, &head->connects, sizeof node->connects) == 0 &&
	       memcmp(&node->carried, &head->carried, sizeof node->carried) == 0;
}

_Static_assert(offsetof(struct lorg_node, channels) + sizeof(struct lorg_table) == offsetof(struct lorg_node, exhausted),
	       "what stands before it is the collector's and does not change");

int node_mend(const struct memory *memory, const struct lorg_node *head)
{
	struct lorg_node *node = (struct lorg_node *)memory->at;
	if (is_as_it_was(node, head))
		return 0;
	__atomic_store_n(&node->magic, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy((char *)node + sizeof node->magic, (const char *)head + sizeof head->magic,
	       offsetof(struct lorg_node, exhausted) - sizeof head->magic);
	node->connects = head->connects;
	node->carried = head->carried;
	/* Release: who sees the magic sees the rest. */
	__atomic_store_n(&node->magic, LORG_NODE_MAGIC, __ATOMIC_RELEASE);
	return 1;
}

void random_bytes(void *bytes, unsigned length)
{
	if (getrandom(bytes, length, GRND_NONBLOCK) == (ssize_t)length)
		return;
	/* Early boot or an old kernel: ids need to differ, not to be secret from the user himself. */
	static uint64_t state;
	uint8_t *at = bytes;
	for (unsigned i = 0; i < length; i++) {
		state = (state ^ clock_monotonic_ns() ^ (uint64_t)getpid() << 32) * 0x9e3779b97f4a7c15u + 1;
		at[i] = (uint8_t)(state >> 56);
	}
}
