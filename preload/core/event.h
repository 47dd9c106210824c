/* SPDX-License-Identifier: MIT */
/*
 * event.h: the hot path. What an event costs can be read on this one page.
 *
 * Rules of this file: no malloc, no lock, no system call, no call through the
 * PLT, no shared cache line written, errno untouched, async-signal-safe and
 * reentrant (a handler may trace in the middle of any of it).
 */
#ifndef LORG_PRELOAD_EVENT_H
#define LORG_PRELOAD_EVENT_H

#include <lorg/abi.h>
#include <lorg/events.h>

#include "preload/core/thread.h"

/* A tick of the trace's clock (struct lorg_clock). */
HIDDEN uint64_t clock_slow(void);

static inline uint64_t clock_now(void)
{
	if (__builtin_expect(the_arena.clock.source != LORG_CLOCK_TSC || this_thread.no_clock, 0))
		return clock_slow();
	return __builtin_ia32_rdtsc();
}

/* Bytes of the event that begins with this word; 0 for a reserved one that is not yet written. */
HIDDEN uint32_t event_written_length(const uint64_t *word);

/*
 * A chunk that its thread has left is handed to the collector, but not while an event in it is reserved and not yet
 * written (by code that a signal handler has interrupted): then that code hands it over. `process` is its owner.
 */
HIDDEN void event_finish_packet(struct lorg_packet *packet, uint32_t process);

/*
 * To be called behind the commit of each event: `size` of its bytes are written. One instruction, so that a handler's
 * own are not forgotten.
 */
static inline __attribute__((always_inline)) void event_written(struct thread *self, struct lorg_packet *packet, uint32_t size)
{
	__asm__ volatile("addl %1, %0" : "+m"(packet->committed) : "ri"(size) : "memory", "cc");
	if (__builtin_expect(self->packet != packet, 0)) /* a handler has left the chunk to us */
		event_finish_packet(packet, self->process_index);
}

/* Slow path of compact events: no chunk, chunk full, a long pause. payload: `size` bytes (4 or 8), little endian. */
HIDDEN void event_write_compact_slow(struct thread *self, uint32_t id, uint64_t payload, uint32_t size);
/* The same for more of them. */
HIDDEN void event_write_fields_slow(struct thread *self, uint32_t id, const void *fields, uint32_t size);

enum { EVENT_LONGEST = LORG_CHUNK_SIZE - LORG_PACKET_HEAD /* an empty chunk */ };
_Static_assert(EVENT_LONGEST <= UINT16_MAX, "an event's length is told in 16 bits");

/*
 * Moves the position by `size`, at most EVENT_LONGEST, and stamps, in one step. Returns the offset, or 0 when the chunk has no room (or was
 * wiped), or when more than `pause` ticks have passed since the event before. *tick gets the stamp.
 */
static inline uint32_t event_reserve_in(struct lorg_packet *packet, uint32_t size, uint64_t pause, uint64_t *tick)
{
	uint32_t position = __atomic_load_n(&packet->position, __ATOMIC_RELAXED);
	for (;;) {
		if (__builtin_expect(position - LORG_PACKET_HEAD > LORG_CHUNK_SIZE - LORG_PACKET_HEAD - size, 0))
			return 0;
		uint64_t last = packet->last;
		uint64_t now = clock_now();
		if (__builtin_expect((int64_t)(now - last) < 0, 0)) /* never backwards in a chunk */
			now = last;
		if (__builtin_expect(now - last > pause, 0))
			return 0;
		uint32_t seen;
		/* cmpxchg without lock: one thread and its handlers are the only writers. Pairs with itself. */
		__asm__ volatile("cmpxchgl %3, %1"
				 : "=a"(seen), "+m"(packet->position)
				 : "0"(position), "r"(position + size)
				 : "memory", "cc");
		if (__builtin_expect(seen == position, 1)) {
			packet->last = now;
			*tick = now;
			return position;
		}
		position = seen;
	}
}

/*
 * The common case of a compact event that fits one word (id and 32 bits): no call, no loop, one reading of the clock.
 * Returns 0, with nothing done, in every other case. An event that a handler has interrupted between its reserve and
 * its commit is whole again when the handler returns.
 *
 * A thread that has a chunk has an entry; whether both are still its own (fork_guard) the caller has looked at.
 */
static inline __attribute__((always_inline)) int event_try_word(struct thread *self, uint32_t id, uint32_t value)
{
	struct lorg_packet *packet = self->packet;
	if (__builtin_expect(!packet || self->not_plain, 0))
		return 0;
	uint32_t position = __atomic_load_n(&packet->position, __ATOMIC_RELAXED);
	if (__builtin_expect(position - LORG_PACKET_HEAD > LORG_CHUNK_SIZE - LORG_PACKET_HEAD - 8, 0))
		return 0;
	uint64_t last = packet->last;
	uint64_t now = __builtin_ia32_rdtsc();
	if (__builtin_expect(now - last > LORG_TICK_MASK, 0)) /* a long pause, or backwards */
		return 0;
	uint32_t seen = position;
	int moved;
	/* As in event_reserve_in. */
	__asm__ volatile("cmpxchgl %3, %2"
			 : "+a"(seen), "=@ccz"(moved), "+m"(packet->position)
			 : "r"(position + 8)
			 : "memory");
	if (__builtin_expect(!moved, 0))
		return 0;
	packet->last = now;
	uint64_t word = (uint32_t)now << 5 | id | (uint64_t)value << 32;
	__atomic_store_n((uint64_t *)((char *)packet + position), word, __ATOMIC_RELEASE);
	event_written(self, packet, 8);
	return 1;
}

/* One of the compact events that fit one word: id and 32 bits. */
static inline void event_write_word(struct thread *self, uint32_t id, uint32_t value)
{
	if (__builtin_expect(!event_try_word(self, id, value), 0))
		event_write_compact_slow(self, id, value, 4);
}

/*
 * A compact event of more than one word, without a call: its `size` bytes of fields are four and a multiple of eight. What
 * does not go this way is written in the extended form.
 */
static inline __attribute__((always_inline)) void event_write_compact(struct thread *self, uint32_t id, const void *fields,
								       uint32_t size)
{
	struct lorg_packet *packet = self->packet;
	const uint32_t length = 4 + size;
	uint64_t tick;
	uint32_t at = packet && !self->long_way ? event_reserve_in(packet, length, LORG_TICK_MASK, &tick) : 0;
	if (__builtin_expect(at == 0, 0)) {
		event_write_fields_slow(self, id, fields, size);
		return;
	}
	char *event = (char *)packet + at;
	uint32_t first;
	__builtin_memcpy(&first, fields, sizeof first);
	__atomic_store_n((uint64_t *)event, LORG_EVENT_EXTENDED | (uint64_t)LORG_EVENT_FILLER << 32 | (uint64_t)length << 48,
			 __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__builtin_memcpy(event + 8, (const char *)fields + 4, size - 4);
	/* Commit. Release: the collector that sees the id sees the rest. */
	__atomic_store_n((uint64_t *)event, (uint32_t)tick << 5 | id | (uint64_t)first << 32, __ATOMIC_RELEASE);
	event_written(self, packet, length);
}

#define EVENT_WRITE_COMPACT(self, NAME, ...)                                                                               \
	event_write_compact(self, LORG_EVENT_##NAME, &(struct lorg_event_##NAME){__VA_ARGS__}, sizeof(struct lorg_event_##NAME))

/* An extended event whose fields are written where they stay: for the hottest of them. */
struct event_place {
	struct lorg_packet *packet;
	char *fields;
	uint32_t length; /* of the whole event */
};

/* The event's first word: its head but for the tick. */
static inline uint64_t event_first_word(uint16_t id, uint32_t length)
{
	return LORG_EVENT_EXTENDED | (uint64_t)id << 32 | (uint64_t)length << 48;
}

/* Room for `size` bytes of fields and what follows them. Returns 0, with nothing done: event_write has to do it. */
static inline int event_open(struct thread *self, struct event_place *place, uint32_t size)
{
	uint64_t tick;
	uint32_t length = (uint32_t)(sizeof(struct lorg_extended) + size + 7) & ~7u;
	struct lorg_packet *packet = self->packet;
	if (__builtin_expect(!packet || self->long_way || length > EVENT_LONGEST, 0))
		return 0;
	uint32_t at = event_reserve_in(packet, length, UINT64_MAX, &tick);
	if (__builtin_expect(!at, 0))
		return 0;
	uint64_t *words = (uint64_t *)((char *)packet + at);
	__atomic_store_n(words, event_first_word(LORG_EVENT_FILLER, length), __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	words[1] = tick;
	*place = (struct event_place){packet, (char *)(words + 2), length};
	return 1;
}

/* Release: the collector that sees the id sees the rest. */
static inline void event_commit(struct thread *self, const struct event_place *place, uint16_t id)
{
	uint64_t *word = (uint64_t *)(place->fields - sizeof(struct lorg_extended));
	__atomic_store_n(word, event_first_word(id, place->length), __ATOMIC_RELEASE);
	event_written(self, place->packet, place->length);
}

/* Bytes of a TEXT or BLOB field. */
struct event_bytes {
	const void *data;
	uint32_t length;
};

/*
 * Writes an extended event: its fixed fields (struct lorg_event_NAME, `size` bytes, with the x_length fields equal
 * to the lengths of `bytes`), then the bytes in order. The memory that bytes point to must be readable. Returns the
 * tick of the event, 0 if it was lost. *position, if not NULL, gets its offset in self->packet (0: lost).
 */
HIDDEN uint64_t event_write(struct thread *self, uint16_t id, const void *fields, uint32_t size, const struct event_bytes *bytes,
			    unsigned count, uint32_t *position);

/*
 * The EXIT of a thread that is ending (thread.h, thread_exit) stays its last event: it is withdrawn (made a filler)
 * before a later event and written again behind it. event_write does both by itself.
 */
HIDDEN void event_withdraw_exit(struct thread *self);
HIDDEN void event_write_exit(struct thread *self);

/* For events without TEXT and BLOB fields. */
#define EVENT_WRITE(self, NAME, ...) \
	event_write(self, LORG_EVENT_##NAME, &(struct lorg_event_##NAME){__VA_ARGS__}, sizeof(struct lorg_event_##NAME), 0, 0, 0)

/* event_write in line, for hot events of fixed size: `size` is a constant, so the fields go straight to their place. */
static inline __attribute__((always_inline)) uint64_t event_write_fixed(struct thread *self, uint16_t id, const void *fields,
									 uint32_t size)
{
	uint32_t length = ((uint32_t)sizeof(struct lorg_extended) + size + 7) & ~7u;
	struct lorg_packet *packet = self->packet;
	uint64_t tick;
	uint32_t at = packet && !self->long_way ? event_reserve_in(packet, length, UINT64_MAX, &tick) : 0;
	if (__builtin_expect(at == 0, 0))
		return event_write(self, id, fields, size, 0, 0, 0);
	char *event = (char *)packet + at;
	uint64_t *word = (uint64_t *)event;
	__atomic_store_n(word, LORG_EVENT_EXTENDED | (uint64_t)LORG_EVENT_FILLER << 32 | (uint64_t)length << 48, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__builtin_memcpy(event + 8, &tick, sizeof tick);
	__builtin_memcpy(event + sizeof(struct lorg_extended), fields, size);
	/* Commit. Release: the collector that sees the id sees the rest. */
	__atomic_store_n(word, LORG_EVENT_EXTENDED | (uint64_t)id << 32 | (uint64_t)length << 48, __ATOMIC_RELEASE);
	event_written(self, packet, length);
	return tick;
}

/* As EVENT_WRITE, in line. */
#define EVENT_WRITE_HOT(self, NAME, ...) \
	event_write_fixed(self, LORG_EVENT_##NAME, &(struct lorg_event_##NAME){__VA_ARGS__}, sizeof(struct lorg_event_##NAME))

/*
 * Fault-safe copy from memory that the program named and that may not be there: at most `length` bytes, returns how
 * many were copied. Uses process_vm_readv on itself where allowed, else (seccomp) trusts the address.
 */
HIDDEN uint32_t memory_peek(void *to, const void *from, uint32_t length);

/* Length of a program's string, at most LORG_TEXT_MAXIMUM; 0 when it cannot be read or is NULL. */
HIDDEN uint32_t memory_peek_text(const char *text);

/* Copies the first `room` bytes of a program's string, without its end; returns how many there are. */
HIDDEN uint32_t memory_peek_start_of_text(char *to, const char *text, uint32_t room);

/* GAP with a count of 1. Texts are constant strings or short copies. */
HIDDEN void event_gap(struct thread *self, const char *what, const char *why);

#endif
