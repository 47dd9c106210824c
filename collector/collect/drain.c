/* SPDX-License-Identifier: MIT */
/*
 * drain.c: moves chunks from the arena to the trace, or to the sessions.
 *
 * A process's chunks are written in the order of their sequence. A scan may
 * see a late chunk and miss an early one that became full behind its back;
 * so a chunk that is not the next one waits for the scan after: that one sees
 * all that were full before.
 *
 * For live sessions what is committed of chunks that are still being filled is taken as well, in each pass, a part a
 * time; what is taken of a chunk stands in its process's `taken`, and the rest follows. Only the first of the chunks that a
 * process has not filled is looked at (handlers may have begun another), and only when all that were full before it are
 * taken: these are looked for after it was seen.
 *
 * Chunks of several processes are written in the order of their beginnings: a
 * thread that began when another had ended can have that one's lane.
 */
#include <stdlib.h>
#include <string.h>

#include "collector/collect/chunk.h"
#include "collector/collect/clock.h"
#include "collector/collect/family.h"
#include "collector/collect/journal.h"
#include "collector/session/live.h"

enum { INTRODUCTION_DELAY = 50 }; /* parts of a second */

/* A chunk that may be taken. */
struct full_chunk {
	uint64_t begin, sequence;
	uint32_t process, chunk;
};

static int by_begin_and_sequence(const void *left, const void *right)
{
	const struct full_chunk *a = left, *b = right;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->sequence != b->sequence)
		return a->sequence < b->sequence ? -1 : 1;
	return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static int add_full(struct family_context *context, uint32_t *count, const struct full_chunk *full)
{
	if (*count == context->full_room) {
		uint32_t room = context->full_room ? context->full_room * 2 : 256;
		struct full_chunk *grown = realloc(context->full, room * sizeof *grown);
		if (!grown)
			return -1; /* the rest waits for the next pass */
		context->full = grown;
		context->full_room = room;
	}
	context->full[(*count)++] = *full;
	return 0;
}

static int is_over(const struct family *family, const struct process *process)
{
	return family->final || (process && process->over);
}

void release_chunk(struct family *family, uint32_t chunk, uint32_t used)
{
	struct lorg_arena *arena = family_arena(family);
	/* First: one that is half wiped, by who was killed in it, is seen to be empty. */
	__atomic_store_n(&((struct lorg_packet *)family_chunk(family, chunk))->position, 0, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memset(family_chunk(family, chunk), 0, used);
	family->waiting[chunk] = 0;
	family->use[chunk] = CHUNK_USED;
	/* Release: pairs with the acquiring CAS of the next owner, who finds the chunk all zero. */
	__atomic_store_n(family_control(family, chunk), 0, __ATOMIC_RELEASE);
	/* Lowest first: what is warm is used again. */
	if (chunk < __atomic_load_n(&arena->chunk_hint, __ATOMIC_RELAXED))
		__atomic_store_n(&arena->chunk_hint, chunk, __ATOMIC_RELAXED);
}

/* What may be taken now, sorted. */
static uint32_t find_full(struct family *family)
{
	struct family_context *context = family->context;
	uint32_t used = family_chunks_used(family), count = 0;
	int keep = context->overflow == LORG_OVERFLOW_OVERWRITE;
	for (uint32_t chunk = 0; chunk < used; chunk++) {
		/* Acquire: pairs with the owner's release store of FULL. */
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		enum lorg_chunk_state state = lorg_chunk_word_state(word);
		if (state != LORG_CHUNK_FULL && state != LORG_CHUNK_FILLING && state != LORG_CHUNK_SCRATCH)
			continue;
		struct process *process = process_of(family, lorg_chunk_word_process(word));
		switch (state) {
		case LORG_CHUNK_FULL:
			if (keep && !is_over(family, process))
				continue;
			break;
		case LORG_CHUNK_FILLING:
			if (!is_over(family, process)) {
				family->to_introduce += process && !process->introduced;
				continue;
			}
			break;
		case LORG_CHUNK_SCRATCH:
			if (!family->final && is_over(family, process))
				release_chunk(family, chunk, LORG_CHUNK_SIZE);
			continue;
		default:
			continue;
		}
		const struct lorg_packet *head = (const struct lorg_packet *)family_chunk(family, chunk);
		const struct full_chunk full = {
			.begin = __atomic_load_n(&head->begin, __ATOMIC_RELAXED),
			.sequence = __atomic_load_n(&head->sequence, __ATOMIC_RELAXED),
			.process = lorg_chunk_word_process(word),
			.chunk = chunk,
		};
		if (add_full(context, &count, &full))
			break;
		if (process)
			process->pending++;
	}
	if (count > 1)
		qsort(context->full, count, sizeof *context->full, by_begin_and_sequence);
	return count;
}

static void note_summary(struct family *family, struct process *process, const struct chunk_summary *summary)
{
	struct coverage *coverage = &family->context->notes.coverage;
	coverage->events += summary->events;
	coverage->lost += summary->discarded;
	coverage->gaps += summary->gaps;
	if (summary->cut || summary->corrected) {
		coverage->damaged++;
		family->damaged++;
	}
	if (summary->unknown)
		notes_gap(&family->context->notes, summary->unknown, process && process->image ? (uint32_t)process->image->pid : 0,
			  "events", "of a kind that this version does not know");
	for (uint32_t i = 0; process && process->image && !process->image->nested && i < summary->reaped_count; i++)
		endings_note_reaped(family->context, (pid_t)summary->reaped[i].pid, summary->reaped[i].status, summary->reaped[i].tick);
	if (!process)
		return;
	process->in_exec = summary->ends_in_exec || (process->in_exec && summary->is_behind_exec);
	if (summary->spawn_entry)
		process->spawn_entry = summary->spawn_entry;
	process->has_exit |= summary->has_exit;
	if (summary->has_program_exit && process->image)
		process->image->has_program_exit = 1;
	if (family->context->sessions)
		process_note(family, process);
	if (process->image && summary->exec != CHUNK_EXEC_NONE)
		memcpy(process->image->executes, summary->exec_file, sizeof process->image->executes);
	if (process->image && summary->exec == CHUNK_EXEC_EXPLAINED)
		process->image->executes[0] = 0;
}

/* A chunk whose owner is not to be found: the program has overwritten its entry. The head says who it was. */
static int put_stray(struct family *family, struct lorg_packet *head, size_t length)
{
	const struct image *image = image_with_id(family, head->image);
	family->damaged++;
	head->pid = image ? (uint32_t)image->pid : 0;
	head->tid = 0;
	return stray_put(family->context, family, head, length);
}

static void write_packet(struct family *family, struct process *process, struct lorg_packet *head,
			 const struct chunk_summary *summary)
{
	struct family_context *context = family->context;
	int result;
	if (!summary->events && !summary->discarded)
		return;
	if (process) {
		process_head(process, head);
		result = process_put(family, process, head, summary->length);
	} else {
		result = put_stray(family, head, summary->length);
	}
	/* A failure is the store's to tell. */
	if (result == 0)
		note_summary(family, process, summary);
	if (summary->modules && (context->arena_settings->gate_mask & LORG_GATE_CALL))
		runtimes_look(&context->runtimes, (const uint8_t *)head, summary->length, head->pid, &context->notes);
}

static struct chunk_bounds bounds_now(const struct family_context *context)
{
	/* A second ahead: counters of CPUs may differ. */
	return (struct chunk_bounds){context->clock.base_tick, clock_tick(&context->clock) + context->clock.frequency};
}

/* What a collector before us has taken of a chunk stands in the fields of its head that a file would have there. */
static void continue_from_head(struct chunk_part *part, const struct lorg_packet *head)
{
	uint64_t from = __atomic_load_n(&head->content_bits, __ATOMIC_RELAXED), tick = __atomic_load_n(&head->end, __ATOMIC_RELAXED);
	if (from <= LORG_PACKET_HEAD || from > LORG_CHUNK_SIZE || from % 8 || !tick)
		return;
	part->from = (uint32_t)from;
	part->begin = tick;
}

/* What of a chunk is still to be put out. */
static struct chunk_part rest_of(const struct family *family, const struct process *process, uint32_t chunk,
				 const struct lorg_packet *head)
{
	struct chunk_part part = {LORG_PACKET_HEAD, LORG_CHUNK_SIZE, 0};
	if (process && process->taken.chunk == chunk + 1 &&
	    process->taken.sequence == __atomic_load_n(&head->sequence, __ATOMIC_RELAXED)) {
		part.from = process->taken.end;
		part.begin = process->taken.tick;
	} else if (family->context->sessions) {
		continue_from_head(&part, head);
	}
	return part;
}

static void begin_step(struct family *family, uint32_t chunk, const struct lorg_packet *head, uint32_t to)
{
	struct journal_step step = {.kind = JOURNAL_CHUNK, .place = chunk, .to = to, .begin = head->begin, .sequence = head->sequence};
	memcpy(step.arena, family->id, sizeof step.arena);
	journal_begin(family->context->journal, &step);
}

/* For the next collector, should we be killed: see continue_from_head. The tick first: the offset is what counts. */
static void mark_taken(struct family *family, uint32_t chunk, uint64_t tick, uint32_t to)
{
	struct lorg_packet *told = (struct lorg_packet *)family_chunk(family, chunk);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&told->end, tick, __ATOMIC_RELEASE);
	__atomic_store_n(&told->content_bits, to, __ATOMIC_RELEASE);
	journal_end(family->context->journal);
}

static void take(struct family *family, struct process *process, uint32_t chunk)
{
	struct family_context *context = family->context;
	struct chunk_summary summary;
	struct lorg_packet *head = (struct lorg_packet *)context->copy;
	const uint8_t *shared = family_chunk(family, chunk);
	const struct chunk_part part = rest_of(family, process, chunk, (const struct lorg_packet *)shared);
	collect_chunk_part(shared, &part, bounds_now(context), context->copy, &summary);
	if (process && process->taken.chunk == chunk + 1)
		process->taken.chunk = 0;
	if (summary.state == CHUNK_PACKET) {
		if (process)
			process->next_sequence = head->sequence + 1; /* before it becomes the lane's */
		if (context->sessions)
			begin_step(family, chunk, (const struct lorg_packet *)shared, summary.copied);
		write_packet(family, process, head, &summary);
		if (context->sessions)
			mark_taken(family, chunk, summary.read_tick, summary.copied);
	} else if (summary.state == CHUNK_DAMAGED) {
		family->damaged++;
	}
	context->chunks_moved++;
	/* At the end nobody is left to use it again, or somebody may still be in the middle of it. */
	if (!family->final)
		release_chunk(family, chunk, summary.state == CHUNK_PACKET ? summary.copied : LORG_CHUNK_SIZE);
}

/* Whose pid is still looked for: its packets are to name it. */
static int is_looked_for(const struct process *process)
{
	return process->image && !process->image->looked_for && process->image->own_pid;
}

/* A chunk that is not the next one of its process waits for one pass; the process's later ones with it. */
static int has_to_wait(struct family *family, struct process *process, const struct full_chunk *full)
{
	if (!process || process->over || family->final)
		return 0;
	if (is_looked_for(process)) {
		process->held = 1;
		return 1;
	}
	if (!process->held && (full->sequence == process->next_sequence || family->waiting[full->chunk]))
		return 0;
	family->waiting[full->chunk] = 1;
	process->held = 1;
	return 1;
}

static void note_taken(struct process *process, uint32_t chunk, uint64_t sequence, uint32_t end, uint64_t tick)
{
	process->taken.chunk = chunk + 1;
	process->taken.sequence = sequence;
	process->taken.end = end;
	process->taken.tick = tick;
}

/*
 * What an image is and what is mapped where stands at the beginning of its first chunk. That is written early: a disk
 * that fills up, or the end of the collector, leaves a recording with names.
 */
static void introduce(struct family *family, struct process *process, uint32_t chunk)
{
	struct family_context *context = family->context;
	const uint8_t *shared = family_chunk(family, chunk);
	const struct lorg_packet *shared_head = (const struct lorg_packet *)shared;
	struct lorg_packet *head = (struct lorg_packet *)context->copy;
	struct chunk_summary summary;
	uint64_t tick = 0;
	uint64_t sequence = __atomic_load_n(&shared_head->sequence, __ATOMIC_RELAXED);
	const struct chunk_part part = {LORG_PACKET_HEAD, collect_chunk_introduction(shared, &tick), 0};
	if (sequence != process->next_sequence || part.to == LORG_PACKET_HEAD || process->taken.chunk)
		return;
	collect_chunk_part(shared, &part, bounds_now(context), context->copy, &summary);
	if (summary.state != CHUNK_PACKET || summary.cut || !summary.events)
		return;
	note_taken(process, chunk, sequence, part.to, head->end);
	write_packet(family, process, head, &summary);
}

static int wants_introduction(const struct family_context *context, const struct process *process, int at_once)
{
	if (!process->image || process->introduced || process->over || context->overflow == LORG_OVERFLOW_OVERWRITE)
		return 0;
	if (is_looked_for(process))
		return 0;
	/* Short-lived programs say it with the rest. */
	return at_once || clock_tick(&context->clock) - process->birth_tick > context->clock.frequency / INTRODUCTION_DELAY;
}

/* at_once: chunks of the family are about to be written, and nothing of it is to be written before this. */
static void introduce_images(struct family *family, int at_once)
{
	uint32_t used = family_chunks_used(family);
	for (uint32_t chunk = 0; chunk < used && !store_failure(family->context->store, NULL); chunk++) {
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		if (lorg_chunk_word_state(word) != LORG_CHUNK_FILLING)
			continue;
		struct process *process = process_of(family, lorg_chunk_word_process(word));
		if (!process || !wants_introduction(family->context, process, at_once))
			continue;
		process->introduced = 1;
		introduce(family, process, chunk);
	}
}

/* ---- chunks that are still being filled ------------------------------------- */

/* Sees them before full ones are looked for. */
static void find_filling(struct family *family)
{
	struct family_context *context = family->context;
	uint32_t used = family_chunks_used(family);
	context->filling_count = 0;
	for (uint32_t chunk = 0; chunk < used; chunk++) {
		/* Acquire: pairs with the owner's CAS that took the chunk. */
		uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
		if (lorg_chunk_word_state(word) != LORG_CHUNK_FILLING)
			continue;
		const struct lorg_packet *head = (const struct lorg_packet *)family_chunk(family, chunk);
		/* Acquire: the position is stored last; the sequence before it is the chunk's. */
		if (!__atomic_load_n(&head->position, __ATOMIC_ACQUIRE))
			continue;
		if (context->filling_count == context->filling_room) {
			uint32_t room = context->filling_room ? context->filling_room * 2 : 64;
			struct filling_chunk *grown = realloc(context->filling, room * sizeof *grown);
			if (!grown)
				return;
			context->filling = grown;
			context->filling_room = room;
		}
		context->filling[context->filling_count++] = (struct filling_chunk){
			.sequence = __atomic_load_n(&head->sequence, __ATOMIC_RELAXED),
			.process = lorg_chunk_word_process(word),
			.chunk = chunk,
		};
	}
}

static int by_process_and_sequence(const void *left, const void *right)
{
	const struct filling_chunk *a = left, *b = right;
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

static int is_still_filling(struct family *family, const struct filling_chunk *filling)
{
	uint64_t word = __atomic_load_n(family_control(family, filling->chunk), __ATOMIC_ACQUIRE);
	return lorg_chunk_word_state(word) == LORG_CHUNK_FILLING && lorg_chunk_word_process(word) == filling->process;
}

static void take_committed(struct family *family, struct process *process, const struct filling_chunk *filling)
{
	struct family_context *context = family->context;
	const uint8_t *shared = family_chunk(family, filling->chunk);
	struct lorg_packet *head = (struct lorg_packet *)context->copy;
	struct chunk_part part = rest_of(family, process, filling->chunk, (const struct lorg_packet *)shared);
	struct chunk_summary summary;
	part.to = collect_chunk_committed(shared, part.from);
	if (part.to == part.from)
		return; /* also where it tells of losses: its owner may yet give it back, and those with it */
	collect_chunk_part(shared, &part, bounds_now(context), context->copy, &summary);
	/* What cannot be is told when the chunk is full. */
	if (summary.state != CHUNK_PACKET || summary.cut)
		return;
	process->next_sequence = filling->sequence;
	process->introduced = 1;
	note_taken(process, filling->chunk, filling->sequence, part.to, summary.read_tick);
	begin_step(family, filling->chunk, (const struct lorg_packet *)shared, part.to);
	write_packet(family, process, head, &summary);
	mark_taken(family, filling->chunk, summary.read_tick, part.to);
}

static void take_filling(struct family *family)
{
	struct family_context *context = family->context;
	uint32_t last = UINT32_MAX;
	if (context->filling_count > 1)
		qsort(context->filling, context->filling_count, sizeof *context->filling, by_process_and_sequence);
	for (uint32_t i = 0; i < context->filling_count; i++) {
		const struct filling_chunk *filling = &context->filling[i];
		struct process *process = process_of(family, filling->process);
		if (filling->process == last)
			continue; /* a later one of the same process */
		last = filling->process;
		if (!process || process->over || process->held || is_looked_for(process) || filling->sequence < process->next_sequence)
			continue;
		if (is_still_filling(family, filling))
			take_committed(family, process, filling);
	}
}

/* ---- the pass ------------------------------------------------------------------ */

void drain_pass(struct family *family)
{
	struct family_context *context = family->context;
	int live = context->sessions && !family->final && context->live->is_live(context->sessions);
	family->to_introduce = 0;
	if (live)
		find_filling(family);
	uint32_t count = find_full(family);
	if (family->to_introduce && !live)
		introduce_images(family, count > 0);
	for (uint32_t i = 0; i < count && !store_failure(context->store, NULL); i++) {
		const struct full_chunk *full = &context->full[i];
		struct process *process = process_of(family, full->process);
		if (has_to_wait(family, process, full)) {
			context->chunks_moved++; /* the next pass is to come soon */
			continue;
		}
		take(family, process, full->chunk);
		if (process && process->pending && --process->pending == 0 && process->over && process->image && !process->image->over)
			process_finish(family, process);
	}
	if (live)
		take_filling(family);
	for (uint32_t i = 0; i < count; i++) {
		struct process *process = process_of(family, context->full[i].process);
		if (process)
			process->pending = process->held = 0;
	}
}
