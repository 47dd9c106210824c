/* SPDX-License-Identifier: MIT */
/*
 * event.c: what event.h leaves out of the hot path: extended events, the next
 * chunk, and what happens when there is none.
 *
 * A signal handler may trace between any two instructions here. What it and
 * the code it interrupted both change is changed by single instructions
 * (without lock: they share a thread), and re-read afterwards.
 */
#include "preload/call/call.h"
#include "preload/core/cpu_time.h"
#include "preload/core/definitions.h"
#include "preload/core/event.h"
#include "preload/core/lost.h"

#include <sys/uio.h>
#include <time.h>

#include "preload/core/raw.h"

/* ---- clock ---- */

/* Where no clock may be read, time is a count of events: it goes on from the newest stamp of the thread. */
static uint64_t clock_counted(const struct thread *self)
{
	if (self->packet)
		return self->packet->last + 1;
	if (self->last_tick)
		return self->last_tick + 1;
	return (self->process ? self->process->birth_tick : the_arena.clock.base_tick) + 1;
}

uint64_t clock_slow(void)
{
	struct thread *self = &this_thread;
	if (self->no_clock || (the_arena.clock.source != LORG_CLOCK_TSC && !system_calls_allowed()))
		return clock_counted(self);
	if (the_arena.clock.source == LORG_CLOCK_TSC)
		return __builtin_ia32_rdtsc();
	struct timespec now;
	raw_syscall3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t ticks_of_ns(uint64_t ns)
{
	uint64_t frequency = the_arena.clock.frequency ? the_arena.clock.frequency : 1000000000u;
	return (uint64_t)((unsigned __int128)ns * frequency / 1000000000u);
}

/* ---- chunks ---- */

/* An EXIT is tried again behind whatever comes after it: it is one event all the same. */
static void count_lost(struct thread *self, uint16_t id, const void *fields)
{
	if (id == LORG_EVENT_EXIT) {
		self->process->exit_lost = 1;
		return;
	}
	/* One instruction: a handler's own losses are not overwritten. */
	__asm__ volatile("incq %0" : "+m"(self->process->lost) : : "cc");
	if (the_arena.live)
		lost_event(self, id, fields);
}

/* What has been lost and no chunk tells yet. It is the caller's chunk that tells it: a handler's does not, too. */
static uint64_t take_untold(struct lorg_process *process)
{
	uint64_t told = process->lost_told, seen, lost;
	for (;;) {
		lost = process->lost;
		seen = told;
		__asm__ volatile("cmpxchgq %2, %1" : "+a"(seen), "+m"(process->lost_told) : "r"(lost) : "memory", "cc");
		if (seen == told)
			return lost - told;
		told = seen;
	}
}

static void give_back_untold(struct lorg_process *process, uint64_t lost)
{
	__asm__ volatile("subq %1, %0" : "+m"(process->lost_told) : "r"(lost) : "cc");
}

static uint32_t next_sequence(struct thread *self)
{
	uint32_t one = 1;
	__asm__ volatile("xaddl %0, %1" : "+r"(one), "+m"(self->sequence) : : "cc");
	return one + 1;
}

/* Bytes of a compact event by its id; 0: there is none. Ids above share the last place. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const uint8_t compact_length[LORG_EVENT_COMPACT_LAST + 2] = {
#define COMPACT_LENGTH(id, NAME, name)                                                     \
	[id <= LORG_EVENT_COMPACT_LAST ? id : LORG_EVENT_COMPACT_LAST + 1] =               \
		id <= LORG_EVENT_COMPACT_LAST ? (4 + sizeof(struct lorg_event_##NAME) + 7) & ~7u : 0,
	LORG_EVENTS(COMPACT_LENGTH)
#undef COMPACT_LENGTH
};
#pragma GCC diagnostic pop

uint32_t event_written_length(const uint64_t *word)
{
	uint64_t first = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint32_t id = first & 31;
	if (id == LORG_EVENT_EXTENDED) {
		uint32_t length = (uint32_t)(first >> 48) & ~7u;
		return (uint16_t)(first >> 32) == LORG_EVENT_FILLER ? 0 : length;
	}
	return compact_length[id];
}

void event_finish_packet(struct lorg_packet *packet, uint32_t process)
{
	uint32_t position = __atomic_load_n(&packet->position, __ATOMIC_RELAXED);
	if (packet->committed + LORG_PACKET_HEAD == position)
		arena_chunk_full(packet->chunk_index, process);
}

/* Leaves the current chunk. */
static void close_packet(struct thread *self)
{
	struct lorg_packet *packet = self->packet;
	struct lorg_packet *seen = packet;
	if (!packet)
		return;
	self->last_tick = packet->last;
	/* Whoever of us and a handler takes the pointer away hands the chunk over. */
	__asm__ volatile("cmpxchgq %2, %1" : "+a"(seen), "+m"(self->packet) : "r"((struct lorg_packet *)0) : "memory", "cc");
	if (seen == packet)
		event_finish_packet(packet, self->process_index);
}

/* A chunk that lost the race against a handler's goes back as it came: zero. One that has kept something is a full one. */
static void give_back(struct thread *self, uint32_t index, struct lorg_packet *packet)
{
	if (packet->committed) {
		arena_chunk_full(index, self->process_index);
		return;
	}
	memset(packet, 0, sizeof *packet);
	__atomic_store_n(arena_chunk_control(index), 0, __ATOMIC_RELEASE);
}

/* What of its old contents a chunk has kept ends there; in the head's place for its size, which the collector fills. */
static uint32_t take_kept(struct lorg_packet *packet)
{
	uint64_t end = packet->packet_bits;
	packet->packet_bits = 0;
	return end > LORG_PACKET_HEAD && end <= LORG_CHUNK_SIZE ? (uint32_t)end : LORG_PACKET_HEAD;
}

static void begin_packet(struct thread *self, struct lorg_packet *packet, uint32_t index, uint64_t lost)
{
	struct lorg_process *process = self->process;
	const struct lorg_image *image = arena_image(process->image);
	uint32_t end = take_kept(packet);
	packet->magic = LORG_PACKET_MAGIC;
	memcpy(packet->trace_uuid, the_arena.trace_uuid, sizeof packet->trace_uuid);
	packet->sequence = next_sequence(self);
	packet->events_discarded = lost;
	packet->session = 0;
	packet->process_index = self->process_index;
	packet->chunk_index = index;
	packet->process_birth = process->birth_tick;
	packet->runtime_process = process->runtime_process;
	memcpy(packet->image, image ? image->id : the_program.image_id, sizeof packet->image);
	packet->begin = clock_now();
	packet->last = packet->begin;
	packet->committed = end - LORG_PACKET_HEAD;
	if (end > LORG_PACKET_HEAD)
		definitions_restamp(packet, end, packet->begin);
	/* Last, release: from here on the collector reads. */
	__atomic_store_n(&packet->position, end, __ATOMIC_RELEASE);
}

/* Makes chunk `index` the thread's current one, unless a handler has taken one meanwhile. */
static void open_packet(struct thread *self, uint32_t index)
{
	struct lorg_packet *packet = arena_chunk(index);
	struct lorg_process *process = self->process;
	uint64_t lost = take_untold(process);
	struct lorg_packet *seen = 0;
	begin_packet(self, packet, index, lost);
	__asm__ volatile("cmpxchgq %2, %1" : "+a"(seen), "+m"(self->packet) : "r"(packet) : "memory", "cc");
	if (!seen) {
		process->session[0].chunk = index + 1;
		return;
	}
	if (!packet->committed)
		give_back_untold(process, lost);
	give_back(self, index, packet);
}

/* ---- no room ---- */

/* In the head of a full chunk that is not to be used again. */
enum { DEFINITIONS_ALONE = 1 };

/* This thread's oldest full chunk that is not given to definitions; UINT32_MAX: none. */
static uint32_t find_oldest_own(const struct thread *self)
{
	uint32_t mapped = __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE);
	uint64_t mine = lorg_chunk_word(LORG_CHUNK_FULL, 0, self->process_index);
	uint32_t oldest = UINT32_MAX;
	for (uint32_t i = 0; i < mapped; i++) {
		if (__atomic_load_n(arena_chunk_control(i), __ATOMIC_RELAXED) != mine)
			continue;
		const struct lorg_packet *packet = arena_chunk(i);
		if (packet->packet_bits == DEFINITIONS_ALONE)
			continue;
		if (oldest == UINT32_MAX || packet->sequence < ((struct lorg_packet *)arena_chunk(oldest))->sequence)
			oldest = i;
	}
	return oldest;
}

/*
 * Flight recorder: this thread's oldest full chunk is used again; what it held is counted as lost, but for definitions.
 * A chunk that is half full of those is left to them for good.
 */
static uint32_t take_oldest_own(struct thread *self)
{
	for (;;) {
		uint32_t oldest = find_oldest_own(self), dropped;
		uint64_t mine = lorg_chunk_word(LORG_CHUNK_FULL, 0, self->process_index);
		uint64_t filling = lorg_chunk_word(LORG_CHUNK_FILLING, 0, self->process_index);
		/* Acquire: the collector may be about to take it, too. */
		if (oldest == UINT32_MAX || !__atomic_compare_exchange_n(arena_chunk_control(oldest), &mine, filling, 0, __ATOMIC_ACQUIRE,
									 __ATOMIC_RELAXED))
			return UINT32_MAX;
		struct lorg_packet *packet = arena_chunk(oldest);
		uint32_t end = definitions_keep(packet, &dropped);
		uint64_t lost = dropped + packet->events_discarded;
		__asm__ volatile("addq %1, %0" : "+m"(self->process->lost) : "r"(lost) : "cc");
		if (end <= LORG_CHUNK_SIZE / 2) {
			memset(packet, 0, LORG_PACKET_HEAD);
			packet->packet_bits = end;
			return oldest;
		}
		packet->events_discarded = 0;
		packet->packet_bits = DEFINITIONS_ALONE;
		packet->committed = end - LORG_PACKET_HEAD;
		__atomic_store_n(&packet->position, end, __ATOMIC_RELAXED);
		arena_chunk_full(oldest, self->process_index);
	}
}

/* Waits for a chunk. Bounded; once in vain, it is not tried again until a chunk has been had. */
static uint32_t wait_for_chunk(struct thread *self)
{
	uint64_t limit = ticks_of_ns(the_arena.block_limit_ns);
	uint64_t start = clock_now();
	if (self->waited_in_vain || self->no_clock)
		return UINT32_MAX;
	for (uint32_t round = 0;; round++) {
		uint32_t index = arena_take_chunk(LORG_CHUNK_FILLING, 0, self->process_index);
		if (index != UINT32_MAX)
			return index;
		if (clock_now() - start > limit || __atomic_load_n(&the_arena.shared->detached, __ATOMIC_RELAXED))
			break;
		if (round > 16 && system_calls_allowed())
			raw_sleep_ns(50000);
		else
			for (int i = 0; i < 100; i++)
				__builtin_ia32_pause();
	}
	self->waited_in_vain = 1;
	return UINT32_MAX;
}

/*
 * Faster than the collector: it is given time, the more the further it is behind, so that memory does not grow by what
 * waits for it. Not for long: it may be asleep, and there is room.
 */
static void let_collector_catch_up(const struct thread *self)
{
	enum { CHUNKS_A_ROUND = 2, MOST_ROUNDS = 40, ROUND_NS = 50000 };
	if (the_arena.overflow != LORG_OVERFLOW_BLOCK || self->waited_in_vain || !system_calls_allowed())
		return;
	for (uint32_t round = 0; round < MOST_ROUNDS; round++) {
		uint32_t backlog = arena_backlog();
		if (backlog <= round * CHUNKS_A_ROUND)
			return;
		raw_sleep_ns(ROUND_NS);
	}
}

/* A new current chunk. 0 on success, -1: there is none, the event is lost. */
static int next_packet(struct thread *self)
{
	close_packet(self);
	if (__atomic_load_n(&the_arena.shared->settings_generation, __ATOMIC_RELAXED) != the_arena.seen_generation)
		arena_refresh();
	let_collector_catch_up(self);
	uint32_t index = arena_take_chunk(LORG_CHUNK_FILLING, 0, self->process_index);
	if (index == UINT32_MAX && the_arena.overflow == LORG_OVERFLOW_OVERWRITE)
		index = take_oldest_own(self);
	if (index == UINT32_MAX && the_arena.overflow == LORG_OVERFLOW_BLOCK)
		index = wait_for_chunk(self);
	if (index == UINT32_MAX)
		return -1;
	self->waited_in_vain = 0;
	open_packet(self, index);
	return 0;
}

/*
 * A program that overwrites the arena or punches holes into it takes our entry away; then another is claimed. Where
 * there is none, the thread forwards from now on.
 */
static int still_owner(struct thread *self)
{
	struct lorg_process *process = self->process;
	if (process->index == self->process_index && process->state >= LORG_PROCESS_ALIVE)
		return 1;
	if (thread_has_given_up(self))
		return 0;
	__atomic_fetch_add(&the_arena.shared->damage_count, 1, __ATOMIC_RELAXED);
	call_counters_forget(self);
	self->packet = 0;
	if (!self->vfork_child && self->off != THREAD_OFF_FOREVER) {
		self->process = 0;
		if (thread_claim())
			return 1;
	}
	thread_give_up(self);
	return 0;
}

/* ---- extended events ---- */

/* The offset of `size` bytes for an event in *packet; 0: none, and it is counted. */
static uint32_t reserve(struct thread *self, uint16_t id, const void *fields, uint32_t size, uint64_t *tick,
			struct lorg_packet **packet)
{
	for (int attempt = 0; attempt < 3 && size <= EVENT_LONGEST; attempt++) {
		*packet = self->packet;
		uint32_t at = *packet ? event_reserve_in(*packet, size, UINT64_MAX, tick) : 0;
		if (at)
			return at;
		if (!still_owner(self)) {
			__atomic_fetch_add(&the_arena.shared->uncounted_lost, 1, __ATOMIC_RELAXED);
			return 0;
		}
		if (next_packet(self))
			break;
	}
	count_lost(self, id, fields);
	return 0;
}

static uint64_t first_word(uint16_t id, uint32_t length)
{
	return LORG_EVENT_EXTENDED | (uint64_t)id << 32 | (uint64_t)length << 48;
}

/*
 * The CPU time in front of an event. Until it is committed, which is after the event, nothing behind it is read: so whoever
 * takes the one takes the other.
 */
enum { CPU_TIME_LENGTH = sizeof(struct lorg_extended) + sizeof(struct lorg_event_CPU_TIME) };

static void open_cpu_time(char *event, uint32_t both)
{
	__atomic_store_n((uint64_t *)event, first_word(LORG_EVENT_FILLER, both), __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void commit_cpu_time(char *event, const struct lorg_event_CPU_TIME *time, uint64_t tick)
{
	memcpy(event + 8, &tick, 8);
	memcpy(event + sizeof(struct lorg_extended), time, sizeof *time);
	__atomic_store_n((uint64_t *)event, first_word(LORG_EVENT_CPU_TIME, CPU_TIME_LENGTH), __ATOMIC_RELEASE);
}

uint64_t event_write(struct thread *self, uint16_t id, const void *fields, uint32_t size, const struct event_bytes *bytes,
		     unsigned count, uint32_t *position)
{
	uint32_t length = sizeof(struct lorg_extended) + size;
	uint64_t tick;
	struct lorg_packet *packet;
	if (position)
		*position = 0;
	/* A call may have taken long; the arena may be elsewhere by now. */
	if (!*fork_guard && !self->claiming && !thread_claim())
		return 0;
	/* In sessions an exit is told at once, and what its destructors do behind it. */
	int again = self->ending && id != LORG_EVENT_EXIT && !the_arena.live;
	for (unsigned i = 0; i < count; i++)
		length += bytes[i].length;
	length = (length + 7) & ~7u;
	if (again)
		event_withdraw_exit(self);
	struct lorg_event_CPU_TIME time;
	uint32_t before = __builtin_expect(self->cpu_times, 0) && cpu_time_is_for(id) && cpu_time_now(&time) ? CPU_TIME_LENGTH : 0;
	uint32_t at = reserve(self, id, fields, before + length, &tick, &packet);
	if (!at) {
		if (again)
			event_write_exit(self);
		return 0;
	}
	if (before)
		open_cpu_time((char *)packet + at, before + length);
	at += before;
	char *event = (char *)packet + at;
	uint64_t *word = (uint64_t *)event;
	__atomic_store_n(word, first_word(LORG_EVENT_FILLER, length), __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(event + 8, &tick, 8);
	char *to = event + sizeof(struct lorg_extended);
	memcpy(to, fields, size);
	to += size;
	for (unsigned i = 0; i < count; i++) {
		memcpy(to, bytes[i].data, bytes[i].length);
		to += bytes[i].length;
	}
	/* Commit. Release: the collector that sees the id sees the rest. */
	__atomic_store_n(word, first_word(id, length), __ATOMIC_RELEASE);
	if (position)
		*position = self->packet == packet ? at : 0;
	if (before) {
		cpu_time_of_entry(&time, id, fields, tick);
		commit_cpu_time(event - before, &time, tick);
	}
	event_written(self, packet, before + length);
	if (again)
		event_write_exit(self);
	return tick;
}

void event_write_compact_slow(struct thread *self, uint32_t id, uint64_t payload, uint32_t size)
{
	event_write(self, (uint16_t)id, &payload, size, 0, 0, 0);
}

void event_write_fields_slow(struct thread *self, uint32_t id, const void *fields, uint32_t size)
{
	event_write(self, (uint16_t)id, fields, size, 0, 0, 0);
}

/* ---- the exit that stays last ---- */

void event_withdraw_exit(struct thread *self)
{
	uint32_t at = self->exit_position;
	if (!at || !self->packet)
		return;
	self->exit_position = 0;
	uint64_t *word = (uint64_t *)((char *)self->packet + at);
	uint64_t expected = first_word(LORG_EVENT_EXIT, sizeof(struct lorg_extended) + sizeof(struct lorg_event_EXIT));
	if (*word == expected)
		__atomic_store_n(word, first_word(LORG_EVENT_WITHDRAWN, (uint32_t)(expected >> 48)), __ATOMIC_RELAXED);
}

void event_write_exit(struct thread *self)
{
	const struct lorg_process *process = self->process;
	if (!process)
		return;
	self->process->exit_lost = 0;
	struct lorg_event_EXIT event = {.program = process->exit.program,
					.reason = process->exit.reason,
					.status = process->exit.status,
					.hook = process->exit.hook};
	event_write(self, LORG_EVENT_EXIT, &event, sizeof event, 0, 0, &self->exit_position);
}

/* ---- the program's memory ---- */

uint32_t memory_peek(void *to, const void *from, uint32_t length)
{
	if (!from || !length)
		return 0;
	if (!system_calls_allowed()) {
		memcpy(to, from, length);
		return length;
	}
	struct iovec local = {to, length}, remote = {(void *)from, length};
	long got = raw_syscall6(SYS_process_vm_readv, raw_getpid(), (long)&local, 1, (long)&remote, 1, 0);
	if (got == (long)length)
		return length;
	/* Up to the end of the page that is there. */
	uint32_t in_page = 4096 - ((uint32_t)(uintptr_t)from & 4095);
	if (raw_failed(got) && got != -14 && got != -1 && got != -38)
		return 0;
	if (got == -1 || got == -38) { /* forbidden: trust the address, as the program is about to */
		memcpy(to, from, length);
		return length;
	}
	if (!raw_failed(got))
		return (uint32_t)got;
	if (in_page >= length)
		return 0;
	remote.iov_len = local.iov_len = in_page;
	got = raw_syscall6(SYS_process_vm_readv, raw_getpid(), (long)&local, 1, (long)&remote, 1, 0);
	return raw_failed(got) ? 0 : (uint32_t)got;
}

uint32_t memory_peek_text(const char *text)
{
	char piece[256];
	uint32_t length = 0;
	while (text && length < LORG_TEXT_MAXIMUM) {
		uint32_t room = 256 - ((uint32_t)(uintptr_t)(text + length) & 255);
		uint32_t got = memory_peek(piece, text + length, room);
		uint32_t part = (uint32_t)text_length(piece, got);
		length += part;
		if (part < room)
			break;
	}
	return length < LORG_TEXT_MAXIMUM ? length : LORG_TEXT_MAXIMUM;
}

uint32_t memory_peek_start_of_text(char *to, const char *text, uint32_t room)
{
	uint32_t length = 0;
	while (text && length < room) {
		/* Up to a border that no page lies across. */
		uint32_t part = 256 - ((uint32_t)(uintptr_t)(text + length) & 255);
		if (part > room - length)
			part = room - length;
		uint32_t got = memory_peek(to + length, text + length, part);
		uint32_t told = (uint32_t)text_length(to + length, got);
		length += told;
		if (told < part)
			break;
	}
	return length;
}

void event_gap(struct thread *self, const char *what, const char *why)
{
	struct event_bytes bytes[] = {{what, (uint32_t)text_length(what, LORG_TEXT_MAXIMUM)},
				      {why, (uint32_t)text_length(why, LORG_TEXT_MAXIMUM)}};
	struct lorg_event_GAP event = {
		.count = 1, .pid = the_program.own_pid, .what_length = bytes[0].length, .why_length = bytes[1].length};
	event_write(self, LORG_EVENT_GAP, &event, sizeof event, bytes, 2, 0);
}
