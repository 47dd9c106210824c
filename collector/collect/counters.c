/* SPDX-License-Identifier: MIT */
/*
 * counters.c: what threads have counted of hooked functions (struct
 * lorg_function_counter of abi.h) becomes FUNCTION_COUNTERS events at their end.
 * A function may be told several times of one thread: the sum counts.
 */
#include <string.h>

#include <lorg/plan.h>

#include "collector/collect/family.h"
#include "collector/collect/requests.h"
#include "collector/store/packet.h"

/* Of the thread alone: the collector copies each word once and believes none. */
struct counter {
	uint32_t function, chunk, place; /* place 0: it stands in the entry */
	uint64_t count, time_ticks, words;
};

/* What is being said of one thread. */
struct saying {
	struct family *family;
	struct process *process;
	struct lorg_process *entry;
	uint64_t tick;
	struct packet_builder packet;
	/* Of the innermost calls that are still open: what has come since they were counted last. function 0: none, or said. */
	struct counter timed, memory;
};

static struct counter read_counter(const struct lorg_function_counter *shared)
{
	return (struct counter){
		.function = __atomic_load_n(&shared->function, __ATOMIC_RELAXED),
		.count = __atomic_load_n(&shared->count, __ATOMIC_RELAXED),
		.time_ticks = __atomic_load_n(&shared->time_ticks, __ATOMIC_RELAXED),
		.words = __atomic_load_n(&shared->words, __ATOMIC_RELAXED),
	};
}

static void read_open_calls(struct saying *saying, const struct lorg_process *entry)
{
	uint64_t since = entry->timed_since, seen = entry->memory_words, words = entry->words_allocated;
	if (since && since < saying->tick)
		saying->timed = (struct counter){.function = entry->timed_function, .time_ticks = saying->tick - since};
	if (seen < words)
		saying->memory = (struct counter){.function = entry->memory_function, .words = words - seen};
}

static void write_packet(struct saying *saying)
{
	struct family_context *context = saying->family->context;
	struct packet_builder *packet = &saying->packet;
	if (!packet->event_count)
		return;
	packet->head->earliest = saying->tick;
	process_head(saying->process, packet->head);
	if (process_put(saying->family, saying->process, packet->head, packet->length) == 0)
		context->notes.coverage.events += packet->event_count;
}

static void begin_packet(struct saying *saying)
{
	packet_begin(&saying->packet, saying->family->context->copy, LORG_CHUNK_SIZE, saying->tick);
}

/* What was counted of it: what it was asked for, and what there is all the same. */
static uint32_t kind_of(const struct saying *saying, const struct counter *counter)
{
	uint32_t gate = requests_gate(saying->family->requests, counter->function), kind = 0;
	if (gate & LORG_CALL_COUNT || counter->count)
		kind |= LORG_KIND_COUNT;
	if (gate & LORG_CALL_TIME || counter->time_ticks)
		kind |= LORG_KIND_TIME;
	if (gate & LORG_CALL_MEMORY || counter->words)
		kind |= LORG_KIND_MEMORY;
	return kind;
}

/* So that a lorgd which is killed here, and started again, does not find it once more. */
static void take_out(const struct saying *saying, const struct counter *counter)
{
	struct lorg_function_counter *shared = (struct lorg_function_counter *)family_chunk(saying->family, counter->chunk) + counter->place;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (counter->place)
		shared->count = shared->time_ticks = shared->words = 0;
	if (saying->entry->timed_function == counter->function)
		saying->entry->timed_function = 0;
	if (saying->entry->memory_function == counter->function)
		saying->entry->memory_function = 0;
}

static void say(struct saying *saying, const struct counter *counter)
{
	const struct lorg_event_FUNCTION_COUNTERS event = {
		.count = counter->count,
		.time_ticks = counter->time_ticks,
		.words = counter->words,
		.function = counter->function,
		.kind = kind_of(saying, counter),
	};
	const struct live_planning *live = saying->family->context->planning->live;
	if (counter->function < LORG_FIRST_HOOKED_FUNCTION || !(counter->count | counter->time_ticks | counter->words))
		return;
	if (live) { /* sessions ask for it */
		const struct ended_counter ended = {counter->function, counter->chunk, counter->place, counter->count, counter->time_ticks,
						    counter->words};
		live->counted(live->owner, saying->family, saying->process, saying->entry, &ended);
		take_out(saying, counter);
		live->taken(live->owner);
		return;
	}
	if (packet_event(&saying->packet, LORG_EVENT_FUNCTION_COUNTERS, saying->tick, &event, NULL, 0) == 0)
		return;
	write_packet(saying);
	begin_packet(saying);
	packet_event(&saying->packet, LORG_EVENT_FUNCTION_COUNTERS, saying->tick, &event, NULL, 0);
}

static void join(struct counter *counter, struct counter *open)
{
	if (!open->function || open->function != counter->function)
		return;
	counter->time_ticks += open->time_ticks;
	counter->words += open->words;
	open->function = 0;
}

static void say_chunk(struct saying *saying, uint32_t chunk)
{
	const struct lorg_function_counter *counters = (const struct lorg_function_counter *)family_chunk(saying->family, chunk);
	for (uint32_t i = 2; i < LORG_COUNTERS; i++) { /* the first two places are left empty */
		struct counter counter = read_counter(&counters[i]);
		counter.chunk = chunk;
		counter.place = i;
		join(&counter, &saying->timed);
		join(&counter, &saying->memory);
		say(saying, &counter);
	}
}

/* A fork child may be inside of calls that it has never entered itself. */
static void say_rest(struct saying *saying)
{
	join(&saying->timed, &saying->memory);
	say(saying, &saying->timed);
	say(saying, &saying->memory);
}

void counters_say(struct family *family, struct process *process, const struct lorg_process *entry, uint64_t tick)
{
	struct saying saying = {.family = family, .process = process, .entry = (struct lorg_process *)(uintptr_t)entry, .tick = tick};
	if (!family->context->planning)
		return;
	read_open_calls(&saying, entry);
	begin_packet(&saying);
	for (uint32_t chunk = 0; chunk < family_chunks_used(family); chunk++) {
		/* Acquire: pairs with the owner's CAS that took the chunk. */
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		if (lorg_chunk_word_state(word) != LORG_CHUNK_COUNTERS || lorg_chunk_word_process(word) != process->index)
			continue;
		say_chunk(&saying, chunk);
		if (!family->final)
			release_chunk(family, chunk, LORG_CHUNK_SIZE);
	}
	say_rest(&saying);
	write_packet(&saying);
}
