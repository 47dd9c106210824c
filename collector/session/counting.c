/* SPDX-License-Identifier: MIT */
/* counting.c: see counting.h. */
#include "collector/session/counting.h"

#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"

enum { ENDED_KEPT = 1 << 18 /* entries of ended processes; then those of the oldest are kept as a sum alone */ };

struct sum {
	uint32_t function; /* 0: free */
	uint64_t count;
};

struct counting {
	struct counted *ended; /* in the order in which they ended */
	uint32_t ended_count, ended_room;
	struct sum *sums; /* of ended processes that are not in `ended`; by hash */
	uint32_t sum_count, sum_room; /* room: power of two */
};

struct counting *counting_create(void)
{
	return calloc(1, sizeof(struct counting));
}

void counting_free(struct counting *counting)
{
	if (!counting)
		return;
	free(counting->ended);
	free(counting->sums);
	free(counting);
}

/* ---- sums -------------------------------------------------------------------- */

static struct sum *find_sum(struct sum *sums, uint32_t room, uint32_t function)
{
	uint32_t at = function * 0x9e3779b1u & (room - 1);
	while (sums[at].function && sums[at].function != function)
		at = (at + 1) & (room - 1);
	return &sums[at];
}

static int grow_sums(struct counting *counting)
{
	uint32_t room = counting->sum_room ? 2 * counting->sum_room : 256;
	struct sum *more = calloc(room, sizeof *more);
	if (!more)
		return -1;
	for (uint32_t i = 0; i < counting->sum_room; i++)
		if (counting->sums[i].function)
			*find_sum(more, room, counting->sums[i].function) = counting->sums[i];
	free(counting->sums);
	counting->sums = more;
	counting->sum_room = room;
	return 0;
}

static void add_sum(struct counting *counting, uint32_t function, uint64_t count)
{
	if (!count || (2 * (counting->sum_count + 1) > counting->sum_room && grow_sums(counting)))
		return;
	struct sum *sum = find_sum(counting->sums, counting->sum_room, function);
	counting->sum_count += !sum->function;
	sum->function = function;
	sum->count += count;
}

/* ---- the ended --------------------------------------------------------------- */

static void drop_oldest(struct counting *counting)
{
	uint32_t half = counting->ended_count / 2;
	for (uint32_t i = 0; i < half; i++)
		add_sum(counting, counting->ended[i].function, counting->ended[i].count);
	memmove(counting->ended, counting->ended + half, (counting->ended_count - half) * sizeof *counting->ended);
	counting->ended_count -= half;
}

static int is_same_process(const struct counted *one, const struct counted *other)
{
	return one->birth == other->birth && memcmp(one->image, other->image, sizeof one->image) == 0;
}

/* The same function of the same process may come several times, one right after another. */
static struct counted *recently_ended(struct counting *counting, const struct counted *counted)
{
	enum { LOOKED_AT = 256 };
	for (uint32_t i = 0; i < LOOKED_AT && i < counting->ended_count; i++) {
		struct counted *ended = &counting->ended[counting->ended_count - 1 - i];
		if (!is_same_process(ended, counted))
			return NULL;
		if (ended->function == counted->function)
			return ended;
	}
	return NULL;
}

void counting_ended(struct counting *counting, const struct counted *counted, int per_process)
{
	struct counted *before = per_process ? recently_ended(counting, counted) : NULL;
	if (before) {
		before->count += counted->count;
		before->ticks += counted->ticks;
		before->words += counted->words;
		return;
	}
	if (per_process && counting->ended_count == ENDED_KEPT)
		drop_oldest(counting);
	if (per_process && counting->ended_count == counting->ended_room) {
		uint32_t room = counting->ended_room ? 2 * counting->ended_room : 64;
		struct counted *more = realloc(counting->ended, room * sizeof *more);
		if (more) {
			counting->ended = more;
			counting->ended_room = room;
		} else {
			per_process = 0;
		}
	}
	if (!per_process) {
		add_sum(counting, counted->function, counted->count);
		return;
	}
	struct counted *ended = &counting->ended[counting->ended_count++];
	*ended = *counted;
	ended->family = NULL;
}

void counting_forget(struct counting *counting, uint32_t function)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < counting->ended_count; i++) {
		if (counting->ended[i].function == function)
			add_sum(counting, function, counting->ended[i].count);
		else
			counting->ended[kept++] = counting->ended[i];
	}
	counting->ended_count = kept;
}

/* ---- reading ----------------------------------------------------------------- */

static void add(struct counted_list *list, const struct counted *counted)
{
	if (list->count == list->room) {
		uint32_t room = list->room ? 2 * list->room : 64;
		struct counted *more = realloc(list->list, room * sizeof *more);
		if (!more) {
			list->failed = 1;
			return;
		}
		list->list = more;
		list->room = room;
	}
	list->list[list->count++] = *counted;
}

struct reading {
	struct counted_list *list;
	uint32_t first, last;
	uint64_t tick;
};

static void take(struct reading *reading, struct family *family, const struct process *process, const struct counted *values)
{
	struct counted counted = *values;
	if (counted.function < reading->first || counted.function > reading->last || !(counted.count | counted.ticks | counted.words))
		return;
	struct lorg_packet head = {0};
	process_head((struct process *)(uintptr_t)process, &head);
	counted.pid = head.pid;
	counted.tid = head.tid;
	counted.runtime_process = head.runtime_process;
	memcpy(counted.image, head.image, sizeof counted.image);
	counted.birth = process->birth_tick;
	counted.family = family;
	counted.process = process->index;
	add(reading->list, &counted);
}

static void read_chunk(struct reading *reading, struct family *family, uint32_t chunk, const struct process *process)
{
	const struct lorg_function_counter *counters = (const struct lorg_function_counter *)family_chunk(family, chunk);
	for (uint32_t i = 2; i < LORG_COUNTERS; i++) { /* the first two places are left empty */
		const struct counted counted = {
			.function = __atomic_load_n(&counters[i].function, __ATOMIC_RELAXED),
			.count = __atomic_load_n(&counters[i].count, __ATOMIC_RELAXED),
			.ticks = __atomic_load_n(&counters[i].time_ticks, __ATOMIC_RELAXED),
			.words = __atomic_load_n(&counters[i].words, __ATOMIC_RELAXED),
		};
		if (counted.function)
			take(reading, family, process, &counted);
	}
}

static const struct lorg_process *entry_of(struct family *family, uint32_t index)
{
	return (const struct lorg_process *)(family_chunk(family, index / LORG_SLAB_ENTRIES) + index % LORG_SLAB_ENTRIES * LORG_PROCESS_SIZE);
}

/* What has come since the innermost open calls were counted last. */
static void read_open_calls(struct reading *reading, struct family *family, const struct process *process)
{
	const struct lorg_process *entry = entry_of(family, process->index);
	uint64_t since = __atomic_load_n(&entry->timed_since, __ATOMIC_RELAXED);
	uint64_t seen = __atomic_load_n(&entry->memory_words, __ATOMIC_RELAXED);
	uint64_t words = __atomic_load_n(&entry->words_allocated, __ATOMIC_RELAXED);
	struct counted timed = {.function = __atomic_load_n(&entry->timed_function, __ATOMIC_RELAXED)};
	struct counted memory = {.function = __atomic_load_n(&entry->memory_function, __ATOMIC_RELAXED)};
	timed.ticks = since && since < reading->tick ? reading->tick - since : 0;
	memory.words = words > seen ? words - seen : 0;
	if (timed.function)
		take(reading, family, process, &timed);
	if (memory.function)
		take(reading, family, process, &memory);
}

static void read_family(struct reading *reading, struct family *family)
{
	for (uint32_t chunk = 0; chunk < family_chunks_used(family); chunk++) {
		/* Acquire: pairs with the owner's CAS that took the chunk. */
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		const struct process *process = NULL;
		if (lorg_chunk_word_state(word) == LORG_CHUNK_COUNTERS)
			process = process_of(family, lorg_chunk_word_process(word));
		if (process)
			read_chunk(reading, family, chunk, process);
		/* A fork child may be inside of calls that it has never entered itself: all processes are looked at. */
		if (lorg_chunk_word_state(word) != LORG_CHUNK_SLAB)
			continue;
		for (uint32_t i = 0; i < LORG_SLAB_ENTRIES; i++) {
			process = process_of(family, chunk * LORG_SLAB_ENTRIES + i);
			if (process && process->used && !process->over)
				read_open_calls(reading, family, process);
		}
	}
}

static int by_function_and_process(const void *a, const void *b)
{
	const struct counted *one = a, *other = b;
	if (one->function != other->function)
		return one->function < other->function ? -1 : 1;
	if (one->birth != other->birth)
		return one->birth < other->birth ? -1 : 1;
	return memcmp(one->image, other->image, sizeof one->image);
}

/* A function stands at several places of one process. */
static void join(struct counted_list *list)
{
	uint32_t kept = 0;
	if (!list->count)
		return;
	qsort(list->list, list->count, sizeof *list->list, by_function_and_process);
	for (uint32_t i = 1; i < list->count; i++) {
		struct counted *before = &list->list[kept];
		const struct counted *next = &list->list[i];
		if (by_function_and_process(before, next) != 0) {
			list->list[++kept] = *next;
			continue;
		}
		before->count += next->count;
		before->ticks += next->ticks;
		before->words += next->words;
		if (!before->family) {
			before->family = next->family;
			before->process = next->process;
		}
	}
	list->count = kept + 1;
}

void counting_read(const struct counting *counting, const struct family_context *context, uint32_t first, uint32_t last,
		   struct counted_list *list)
{
	struct reading reading = {.list = list, .first = first, .last = last, .tick = clock_tick(&context->clock)};
	*list = (struct counted_list){0};
	for (uint32_t i = 0; i < context->family_count; i++)
		read_family(&reading, context->families[i]);
	for (uint32_t i = 0; i < counting->ended_count; i++)
		if (counting->ended[i].function >= first && counting->ended[i].function <= last)
			add(list, &counting->ended[i]);
	for (uint32_t i = 0; i < counting->sum_room; i++) {
		const struct counted sum = {.function = counting->sums[i].function, .count = counting->sums[i].count};
		if (sum.function && sum.function >= first && sum.function <= last)
			add(list, &sum);
	}
	join(list);
}

void counted_list_free(struct counted_list *list)
{
	free(list->list);
	*list = (struct counted_list){0};
}

const struct counted *counted_of(const struct counted_list *list, uint32_t function, uint32_t *count)
{
	uint32_t low = 0, high = list->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (list->list[middle].function < function)
			low = middle + 1;
		else
			high = middle;
	}
	uint32_t end = low;
	while (end < list->count && list->list[end].function == function)
		end++;
	*count = end - low;
	return list->list ? list->list + low : NULL;
}

uint64_t counted_sum(const struct counted_list *list, uint32_t function)
{
	uint32_t count;
	uint64_t sum = 0;
	const struct counted *entry = counted_of(list, function, &count);
	for (uint32_t i = 0; i < count; i++)
		sum += entry[i].count;
	return sum;
}
