/* SPDX-License-Identifier: MIT */
/* counting.c: see counting.h. */
#include "collector/session/counting.h"

#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"

enum {
	COUNTS_MAGIC = 0x6e67726c /* "lrgn" */,
	COUNTS_VERSION = 2,
};

/*
 * Of sums: functions, by their ids from LORG_FIRST_HOOKED_FUNCTION on; of entries of ended processes: then those of the oldest are
 * kept as a sum alone. Sparse; smaller where limits are tight.
 */
static const struct {
	uint32_t sums, ended;
} rooms[] = {{1 << 23, 1 << 18}, {1 << 20, 1 << 15}, {1 << 17, 1 << 12}};

/*
 * What is written when one counter is added: whole values, so that to do it again changes nothing. Its number is stored last, and 0
 * when the program's counter is zero.
 */
struct step {
	uint32_t is_begun;
	uint32_t process, chunk, place;
	uint8_t arena[16];
	uint32_t sum_function; /* 0: no sum */
	uint32_t ended_place;  /* + 1; 0: no entry */
	uint64_t sum;
	struct counted ended;
	uint64_t ended_begin, ended_end;
};

/* Behind it: the sums of ended processes that are not among the entries, and those. */
struct counts {
	uint32_t magic, version;
	uint32_t sums, ended_room;
	struct step step;
	/* A ring, in the order in which they ended: numbers of the first and behind the last. Function 0: it has gone. */
	uint64_t ended_begin, ended_end;
};

struct counting {
	struct memory memory;
	uint8_t id[16];
	struct counts *counts;
};

/* ---- the memory ---------------------------------------------------------------- */

static uint64_t size_with(uint32_t sums, uint32_t ended)
{
	return sizeof(struct counts) + sums * sizeof(uint64_t) + ended * sizeof(struct counted);
}

static uint64_t *sum_of(const struct counts *counts, uint32_t function)
{
	return (uint64_t *)(uintptr_t)(counts + 1) + (function - LORG_FIRST_HOOKED_FUNCTION);
}

static struct counted *ended_at(const struct counts *counts, uint64_t place)
{
	return (struct counted *)(void *)((uint64_t *)(uintptr_t)(counts + 1) + counts->sums) + place;
}

/* By its number in the ring. */
static struct counted *ended_of(const struct counts *counts, uint64_t number)
{
	return ended_at(counts, number % counts->ended_room);
}

static int make_memory(struct counting *counting)
{
	for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
		if (memory_create(&counting->memory, "lorgd-counts", size_with(rooms[i].sums, rooms[i].ended)))
			continue;
		counting->counts = (struct counts *)counting->memory.at;
		counting->counts->sums = rooms[i].sums;
		counting->counts->ended_room = rooms[i].ended;
		return 0;
	}
	return -1;
}

struct counting *counting_create(void)
{
	struct counting *counting = calloc(1, sizeof *counting);
	if (!counting || make_memory(counting)) {
		free(counting);
		return NULL;
	}
	random_bytes(counting->id, sizeof counting->id);
	counting->counts->magic = COUNTS_MAGIC;
	counting->counts->version = COUNTS_VERSION;
	return counting;
}

void counting_free(struct counting *counting)
{
	if (!counting)
		return;
	memory_free(&counting->memory);
	free(counting);
}

int counting_adopt(struct counting *counting, struct kept *kept)
{
	const struct counts *counts = (const struct counts *)kept->memory.at;
	if (kept->memory.size < sizeof *counts || counts->magic != COUNTS_MAGIC || counts->version != COUNTS_VERSION ||
	    !counts->ended_room || kept->memory.size != size_with(counts->sums, counts->ended_room))
		return -1;
	memory_free(&counting->memory);
	counting->memory = kept_take(kept);
	memcpy(counting->id, kept->name.id, sizeof counting->id);
	counting->counts = (struct counts *)counting->memory.at;
	return 0;
}

void counting_keep(struct counting *counting, const struct keeping *keeping)
{
	keep_memory(keeping, KEPT_COUNTS, counting->id, &counting->memory);
}

/* ---- steps ---------------------------------------------------------------------- */

static void do_step(struct counts *counts)
{
	const struct step *step = &counts->step;
	if (step->sum_function)
		*sum_of(counts, step->sum_function) = step->sum;
	if (step->ended_place)
		*ended_at(counts, step->ended_place - 1) = step->ended;
	counts->ended_begin = step->ended_begin;
	counts->ended_end = step->ended_end;
}

/* Release: what is to be written stands before it counts. A compiler may not move them, and a kill comes between two stores. */
static void begin_step(struct counts *counts, const struct step *step)
{
	counts->step = *step;
	__atomic_store_n(&counts->step.is_begun, 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	do_step(counts);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void counting_is_taken(struct counting *counting)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&counting->counts->step.is_begun, 0, __ATOMIC_RELEASE);
}

static const struct lorg_process *entry_of(struct family *family, uint32_t index)
{
	return (const struct lorg_process *)(family_chunk(family, index / LORG_SLAB_ENTRIES) + index % LORG_SLAB_ENTRIES * LORG_PROCESS_SIZE);
}

/* The program's own counter, as counters.c leaves it. */
static void zero_source(struct family *family, const struct step *step, uint32_t function)
{
	uint64_t word = step->chunk < family->layout.chunk_count ? *family_control(family, step->chunk) : 0;
	if (step->place && step->place < LORG_COUNTERS && lorg_chunk_word_state(word) == LORG_CHUNK_COUNTERS &&
	    lorg_chunk_word_process(word) == step->process) {
		struct lorg_function_counter *counter = (struct lorg_function_counter *)family_chunk(family, step->chunk) + step->place;
		if (counter->function == function)
			counter->count = counter->time_ticks = counter->words = 0;
	}
	if (step->process / LORG_SLAB_ENTRIES >= family->layout.chunk_count)
		return;
	struct lorg_process *entry = (struct lorg_process *)(uintptr_t)entry_of(family, step->process);
	if (entry->birth_tick != step->ended.birth)
		return;
	entry->timed_function = entry->timed_function == function ? 0 : entry->timed_function;
	entry->memory_function = entry->memory_function == function ? 0 : entry->memory_function;
}

void counting_end_step(struct counting *counting, const struct family_context *context)
{
	struct counts *counts = counting->counts;
	if (!counts->step.is_begun)
		return;
	do_step(counts);
	for (uint32_t i = 0; i < context->family_count; i++)
		if (memcmp(context->families[i]->id, counts->step.arena, sizeof counts->step.arena) == 0)
			zero_source(context->families[i], &counts->step, counts->step.ended.function);
	counting_is_taken(counting);
}

/* ---- the ended --------------------------------------------------------------- */

static int has_sum(const struct counts *counts, uint32_t function)
{
	return function >= LORG_FIRST_HOOKED_FUNCTION && function - LORG_FIRST_HOOKED_FUNCTION < counts->sums;
}

static void add_to_sum(const struct counts *counts, struct step *step, uint32_t function, uint64_t count)
{
	if (!has_sum(counts, function) || !count)
		return;
	step->sum_function = function;
	step->sum = *sum_of(counts, function) + count;
}

static struct step new_step(const struct counts *counts)
{
	return (struct step){.ended_begin = counts->ended_begin, .ended_end = counts->ended_end};
}

/* An entry becomes part of the sum. number: of the ring; it is the first, or leaves a gap. */
static void drop_ended(struct counting *counting, uint64_t number)
{
	struct counts *counts = counting->counts;
	const struct counted *ended = ended_of(counts, number);
	struct step step = new_step(counts);
	add_to_sum(counts, &step, ended->function, ended->count);
	step.ended = *ended;
	step.ended.function = 0;
	step.ended_place = (uint32_t)(number % counts->ended_room) + 1;
	step.ended_begin += number == counts->ended_begin;
	begin_step(counts, &step);
	counting_is_taken(counting);
}

static int is_same_process(const struct counted *one, const struct counted *other)
{
	return one->birth == other->birth && memcmp(one->image, other->image, sizeof one->image) == 0;
}

/* The same function of the same process may come several times, one right after another. UINT64_MAX: it has not. */
static uint64_t recently_ended(const struct counts *counts, const struct counted *counted)
{
	enum { LOOKED_AT = 256 };
	for (uint64_t number = counts->ended_end; number > counts->ended_begin && counts->ended_end - number < LOOKED_AT; number--) {
		const struct counted *ended = ended_of(counts, number - 1);
		if (!is_same_process(ended, counted))
			return UINT64_MAX;
		if (ended->function == counted->function)
			return number - 1;
	}
	return UINT64_MAX;
}

static void add_to_process(struct counting *counting, struct step *step, const struct counted *counted)
{
	struct counts *counts = counting->counts;
	uint64_t before = recently_ended(counts, counted);
	if (before == UINT64_MAX) {
		if (counts->ended_end - counts->ended_begin == counts->ended_room) {
			drop_ended(counting, counts->ended_begin);
			step->ended_begin = counts->ended_begin;
		}
		step->ended_place = (uint32_t)(counts->ended_end % counts->ended_room) + 1;
		step->ended_end++;
		return;
	}
	const struct counted *ended = ended_of(counts, before);
	step->ended_place = (uint32_t)(before % counts->ended_room) + 1;
	step->ended.count += ended->count;
	step->ended.ticks += ended->ticks;
	step->ended.words += ended->words;
}

void counting_ended(struct counting *counting, const struct counted *counted, int per_process, const struct counter_source *source)
{
	struct counts *counts = counting->counts;
	struct step step = new_step(counts);
	step.ended = *counted;
	step.ended.family = NULL;
	if (per_process)
		add_to_process(counting, &step, &step.ended);
	else
		add_to_sum(counts, &step, counted->function, counted->count);
	memcpy(step.arena, source->arena, sizeof step.arena);
	step.process = source->process;
	step.chunk = source->chunk;
	step.place = source->place;
	begin_step(counts, &step);
}

void counting_forget(struct counting *counting, uint32_t function)
{
	const struct counts *counts = counting->counts;
	for (uint64_t number = counts->ended_begin; number < counts->ended_end; number++)
		if (ended_of(counts, number)->function == function)
			drop_ended(counting, number);
	/* Gaps at the beginning. */
	while (counts->ended_begin < counts->ended_end && !ended_of(counts, counts->ended_begin)->function)
		drop_ended(counting, counts->ended_begin);
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
		if (!lorg_chunk_word_is_slab_in_use(word))
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
	const struct counts *counts = counting->counts;
	for (uint64_t number = counts->ended_begin; number < counts->ended_end; number++) {
		const struct counted *ended = ended_of(counts, number);
		if (ended->function >= first && ended->function <= last && ended->function)
			add(list, ended);
	}
	for (uint32_t function = first; function <= last && has_sum(counts, function); function++) {
		const struct counted sum = {.function = function, .count = *sum_of(counts, function)};
		if (sum.count)
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
