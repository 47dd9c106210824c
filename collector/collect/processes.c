/* SPDX-License-Identifier: MIT */
/* processes.c: the entries of threads, and what the collector says for those that could not say it themselves. */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collector/collect/clock.h"
#include "collector/collect/family.h"
#include "collector/collect/journal.h"
#include "collector/collect/proc.h"
#include "collector/session/live.h"
#include "collector/store/packet.h"

enum {
	LOOK_STEP_NS = 50000,	    /* between two looks at the entries, a slab */
	LOOK_LIMIT_NS = 20000000,
	THREADS_STEP_NS = 1000000000, /* between two looks whether silent threads still exist */
};

static struct lorg_process *entry_of(const struct family *family, uint32_t index)
{
	uint8_t *slab = family_chunk(family, index / SLAB_ENTRIES);
	return (struct lorg_process *)(slab + (size_t)(index % SLAB_ENTRIES) * LORG_PROCESS_SIZE);
}

static struct slab *slab_of(struct family *family, uint32_t chunk)
{
	if (chunk >= family->slab_room) {
		uint32_t room = family->slab_room ? family->slab_room : 64;
		while (room <= chunk)
			room *= 2;
		struct slab **slabs = realloc(family->slabs, room * sizeof *slabs);
		if (!slabs)
			return NULL;
		memset(slabs + family->slab_room, 0, (room - family->slab_room) * sizeof *slabs);
		family->slabs = slabs;
		family->slab_room = room;
	}
	if (!family->slabs[chunk])
		family->slabs[chunk] = calloc(1, sizeof **family->slabs);
	return family->slabs[chunk];
}

static int is_slab(const struct family *family, uint32_t chunk)
{
	return chunk < family_chunks_used(family) &&
	       lorg_chunk_word_state(__atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE)) == LORG_CHUNK_SLAB;
}

struct lorg_process *process_entry(const struct family *family, uint32_t index)
{
	return is_slab(family, index / SLAB_ENTRIES) ? entry_of(family, index) : NULL;
}

/* The thread's number as we see it, once its program is known. */
static void learn_tid(struct process *process, const struct lorg_process *entry)
{
	const struct image *image = process->image;
	uint32_t own = entry->own_tid, told = entry->proc_tid;
	if (!process->own_tid)
		process->own_tid = own;
	if (process->tid || !image || !image->pid)
		return;
	if (!own || own == image->own_pid)
		process->tid = own || process == image->speaker ? (uint32_t)image->pid : 0;
	else if (!image->nested)
		process->tid = own;
	else if (told && told <= INT_MAX)
		process->tid = told; /* it may be gone */
	else
		process->tid = (uint32_t)proc_find_thread(image->pid, own);
}

/* What was read of its events, for the next collector. */
enum { READ_EXIT = 1, READ_PROGRAM_EXIT = 2, READ_EXEC_LAST = 4 };

void process_note(struct family *family, const struct process *process)
{
	struct lorg_process *entry = entry_of(family, process->index);
	uint32_t read = (process->has_exit ? READ_EXIT : 0) | (process->in_exec ? READ_EXEC_LAST : 0) |
			(process->image && process->image->has_program_exit ? READ_PROGRAM_EXIT : 0);
	if (entry->collector_read != read)
		__atomic_store_n(&entry->collector_read, read, __ATOMIC_RELAXED);
}

static void take_notes(struct process *process, const struct lorg_process *entry)
{
	uint32_t read = __atomic_load_n(&entry->collector_read, __ATOMIC_RELAXED);
	process->has_exit = (read & READ_EXIT) != 0;
	process->in_exec = (read & READ_EXEC_LAST) != 0;
	if (process->image && (read & READ_PROGRAM_EXIT))
		process->image->has_program_exit = 1;
}

static void begin_process(struct family *family, struct process *process, uint32_t index, const struct lorg_process *entry)
{
	memset(process, 0, sizeof *process);
	process->used = 1;
	process->index = index;
	process->birth_tick = entry->birth_tick;
	process->image = image_at(family, entry->image);
	process->next_sequence = 1;
	if (process->image)
		process->image->process_count++;
	if (process->image && !process->image->has_speaker) {
		process->image->has_speaker = 1;
		process->image->speaker = process;
		process->image->speaker_birth = process->birth_tick;
	}
	learn_tid(process, entry);
	if (family->adopted)
		take_notes(process, entry);
	family->context->notes.coverage.processes++;
	family->context->changes++;
}

struct process *process_of(struct family *family, uint32_t index)
{
	uint32_t chunk = index / SLAB_ENTRIES;
	if (!is_slab(family, chunk))
		return NULL;
	struct slab *slab = slab_of(family, chunk);
	if (!slab)
		return NULL;
	struct process *process = &slab->entry[index % SLAB_ENTRIES];
	if (process->used)
		return process;
	const struct lorg_process *entry = entry_of(family, index);
	/* Acquire: pairs with the release store of ALIVE; the fields are valid. */
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	if (state < LORG_PROCESS_ALIVE || state > LORG_PROCESS_ENDED)
		return NULL;
	begin_process(family, process, index, entry);
	return process;
}

/* A lane of the process's in which nothing is later than `begin`; NULL: the store has failed. */
static struct lane *process_lane(struct family *family, struct process *process, uint64_t begin)
{
	struct store *store = family->context->store;
	if (process->lane && store_lane_end(process->lane) <= begin)
		return process->lane;
	/* Times may not go back in a lane. */
	store_release_lane(store, process->lane);
	process->lane = store_take_lane(store, begin);
	return process->lane;
}

int process_put(struct family *family, struct process *process, struct lorg_packet *head, size_t length)
{
	struct family_context *context = family->context;
	uint64_t end = head->end;
	int result;
	if (context->sessions) {
		result = context->live->packet(context->sessions, family, process, head, length);
	} else {
		struct lane *lane = process_lane(family, process, head->begin);
		result = lane ? store_append(context->store, lane, head, length) : -1;
	}
	if (result == 0 && end > process->last_tick)
		process->last_tick = end;
	return result;
}

int stray_put(struct family_context *context, struct family *family, struct lorg_packet *head, size_t length)
{
	if (context->sessions)
		return context->live->packet(context->sessions, family, NULL, head, length);
	struct lane *lane = store_take_lane(context->store, head->begin);
	int result = lane ? store_append(context->store, lane, head, length) : -1;
	store_release_lane(context->store, lane);
	return result;
}

void process_head(struct process *process, struct lorg_packet *head)
{
	const struct image *image = process->image;
	/* A thread of another namespace that had gone before anybody looked: by its own number it is still told from others. */
	if (!process->tid && image && image->pid && process->own_tid != image->own_pid)
		process->tid = process->own_tid;
	if (image) {
		memcpy(head->image, image->id, sizeof head->image);
		head->pid = image->pid ? (uint32_t)image->pid : image->own_pid;
	}
	head->tid = process->tid ? process->tid : head->pid;
	head->own_tid = image && image->nested && process->own_tid != head->tid ? process->own_tid : 0;
	head->process_birth = process->birth_tick;
	head->session %= LORG_SESSIONS;
}

/* ---- who has ended ----------------------------------------------------- */

static int thread_is_gone(const struct process *process)
{
	const struct image *image = process->image;
	/* The first thread's number lasts as long as the program does. */
	return image && image->pid && process->tid && process->tid != (uint32_t)image->pid &&
	       !proc_thread_exists(image->pid, (pid_t)process->tid);
}

static void look_at_entry(struct family *family, uint32_t index, int look_at_threads)
{
	const struct lorg_process *entry = entry_of(family, index);
	struct process *process = process_of(family, index);
	if (!process)
		return;
	/* After process_of: what was STARTING before may have become ALIVE in it, and is not wiped for that. */
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	learn_tid(process, entry);
	if (family->final || (process->image && process->image->over)) {
		process->over = 1;
		return;
	}
	switch (state) {
	case LORG_PROCESS_ENDED:
		process->over = 1;
		/* A child on its parent's memory has one process. The parent goes on: the child has become another, or is dead. */
		if (process->image && process->image->shared)
			process->image->over = 1;
		return;
	case LORG_PROCESS_ENDING:
		process->over = thread_is_gone(process);
		return;
	case LORG_PROCESS_ALIVE:
		process->over = look_at_threads && thread_is_gone(process);
		return;
	default: /* the program has wiped it */
		process->over = 1;
		family->damaged++;
	}
}

void processes_pass(struct family *family, uint64_t now_ns)
{
	uint32_t used = family_chunks_used(family);
	uint32_t slabs = 0;
	int look_at_threads = now_ns - family->threads_ns >= THREADS_STEP_NS;
	if (!family->final && !family->image_over && now_ns < family->processes_ns)
		return;
	for (uint32_t chunk = 0; chunk < used; chunk++) {
		if (!lorg_chunk_word_is_slab_in_use(__atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE)))
			continue;
		slabs++;
		for (uint32_t slot = 0; slot < SLAB_ENTRIES; slot++)
			look_at_entry(family, chunk * SLAB_ENTRIES + slot, look_at_threads);
	}
	uint64_t step = (uint64_t)slabs * LOOK_STEP_NS;
	family->processes_ns = now_ns + (step < LOOK_LIMIT_NS ? step : LOOK_LIMIT_NS);
	if (look_at_threads)
		family->threads_ns = now_ns;
}

/* ---- last words -------------------------------------------------------- */

enum { LAST_WORDS_SIZE = 4096 };

/* How a thread ended that did not say so itself. */
static struct lorg_event_EXIT exit_of(struct family *family, struct process *process)
{
	struct image *image = process->image;
	struct lorg_event_EXIT exit = {.outside = 1, .hook = UINT32_MAX, .reason = LORG_REASON_UNKNOWN};
	if (!image || !image->over)
		return exit;
	if (image->execed) {
		exit.reason = LORG_REASON_EXEC;
		return exit;
	}
	const struct lorg_image *entry = family_image_entry(family, image->index);
	if (image->has_program_exit && entry->has_exit_status)
		set_exit_reason(&exit, (struct ending){1, (entry->exit_status & 0xff) << 8});
	else
		set_exit_reason(&exit, image_ending(image));
	if (process == image->speaker && !image->has_program_exit) {
		exit.program = 1;
		image->has_program_exit = 1;
	}
	return exit;
}

static void say_open_call(struct packet_builder *packet, uint64_t tick, const struct process *process,
			  const struct lorg_process *entry)
{
	const struct lorg_wait wait = entry->waits_on; /* copied, then checked */
	uint64_t begun = wait.tick && wait.tick < tick ? wait.tick : tick;
	if (!wait.hook || wait.hook > LORG_HOOKS)
		return;
	/* Also where an exit or exec came in the middle, from a handler or by a jump: its out is written nowhere else. */
	if (wait.out_pending)
		PACKET_EVENT(packet, WAIT_OPEN, tick, .entry = begun, .object = wait.object, .timeout_ns = entry->wait_timeout_ns,
			     .caller = entry->wait_caller, .hook = wait.hook - 1, .ending = entry->wait_ending != 0);
	if (process->has_exit || process->in_exec)
		return;
	PACKET_EVENT(packet, OPEN_CALL, tick, .entry = begun, .object = wait.object, .hook = wait.hook - 1);
}

/* The child that it was making, and has not come to tell of: it is there, for it has run. */
static void say_spawn(struct packet_builder *packet, uint64_t tick, const struct process *process, const struct lorg_process *entry)
{
	uint64_t child = __atomic_load_n(&entry->spawning.child, __ATOMIC_ACQUIRE), begun = entry->spawning.entry;
	uint32_t number = (uint32_t)(child >> 32), hook = entry->spawning.hook, own_pid = process->image ? process->image->own_pid : 0;
	if (!number || !begun || begun > tick || begun == process->spawn_entry || hook >= LORG_HOOKS)
		return;
	PACKET_EVENT(packet, SPAWN, tick, .entry = begun, .routine = entry->spawning.routine, .argument = entry->spawning.argument,
		     .caller = entry->spawning.caller, .how = entry->spawning.how, .hook = hook,
		     .child_pid = child & LORG_SPAWNING_IMAGE ? number : own_pid, .child_tid = number,
		     .child_image_low = entry->spawning.image_low, .child_image_high = entry->spawning.image_high);
}

static void say_counters(struct packet_builder *packet, uint64_t tick, const struct lorg_process *entry)
{
	const struct lorg_event_COUNTERS counters = {
		.words_allocated = entry->words_allocated,
		.allocations = entry->allocations,
		.frees = entry->frees,
		.allocation_failures = entry->allocation_failures,
	};
	if (counters.words_allocated || counters.allocations || counters.frees || counters.allocation_failures)
		packet_event(packet, LORG_EVENT_COUNTERS, tick, &counters, NULL, 0);
}

/* What was lost after the last chunk was begun: no head tells it. */
static void say_lost(struct family *family, struct packet_builder *packet, uint64_t tick, const struct lorg_process *entry)
{
	uint64_t lost = entry->lost + (entry->exit_lost == 1), told = entry->lost_told;
	if (lost <= told)
		return;
	if (lost - told > tick - family->context->clock.base_tick) { /* more than one a tick: overwritten */
		family->damaged++;
		return;
	}
	const struct lorg_event_LOST event = {.count = lost - told};
	const struct packet_bytes why[] = {packet_text("no room in the arena")};
	if (packet_event(packet, LORG_EVENT_LOST, tick, &event, why, 1) == 0)
		family->context->notes.coverage.lost += event.count;
}

static void say_exit(struct family *family, struct packet_builder *packet, uint64_t tick, struct process *process)
{
	struct image *image = process->image;
	int became_another = image && process->in_exec;
	int still_alive = family->final && !family->sealed;
	if (still_alive || became_another)
		return;
	/* The first thread may have said its own end, and not the program's. */
	int says_program = image && image->over && !image->execed && process == image->speaker && !image->has_program_exit;
	if (process->has_exit && !says_program)
		return;
	/* How it ended may be heard of yet: images.c tells it with the program's end. */
	if (says_program && !image_ending(image).known)
		return;
	const struct lorg_event_EXIT exit = exit_of(family, process);
	packet_event(packet, LORG_EVENT_EXIT, tick, &exit, NULL, 0);
}

/* For live sessions: the program cannot know which event is its last. */
static void say_out_exited(const struct family *family, struct packet_builder *packet, uint64_t tick, const struct process *process)
{
	int still_alive = family->final && !family->sealed;
	if (family->context->sessions && !still_alive && !process->in_exec)
		PACKET_EVENT(packet, OUT_EXITED, tick, .hook = 0);
}

/* The earliest effective tick of what was said: an open call, and a child's making, tell of their entry. */
static uint64_t earliest_of(const struct lorg_process *entry, uint64_t tick)
{
	uint64_t since = entry->waits_on.hook ? entry->waits_on.tick : 0;
	uint64_t spawning = entry->spawning.child ? entry->spawning.entry : 0;
	if (!since || since > tick)
		since = tick;
	return spawning && spawning < since ? spawning : since;
}

/* Its last words, until its entry is free. */
static void begin_step(struct family *family, const struct process *process)
{
	struct journal_step step = {.kind = JOURNAL_ENTRY, .place = process->index, .begin = process->birth_tick};
	memcpy(step.arena, family->id, sizeof step.arena);
	journal_begin(family->context->journal, &step);
}

static void last_words(struct family *family, struct process *process)
{
	_Alignas(8) uint8_t buffer[LAST_WORDS_SIZE];
	struct family_context *context = family->context;
	const struct lorg_process *entry = entry_of(family, process->index);
	struct packet_builder packet;
	/* Who has said its own end is not heard of later than that. */
	uint64_t tick = process->has_exit && process->last_tick ? process->last_tick : clock_tick(&context->clock);
	if (process->last_tick > tick)
		tick = process->last_tick;
	learn_tid(process, entry);
	counters_say(family, process, entry, tick);
	begin_step(family, process);
	packet_begin(&packet, buffer, sizeof buffer, tick);
	say_spawn(&packet, tick, process, entry);
	say_open_call(&packet, tick, process, entry);
	say_counters(&packet, tick, entry);
	say_lost(family, &packet, tick, entry);
	say_exit(family, &packet, tick, process);
	say_out_exited(family, &packet, tick, process);
	if (!packet.event_count)
		return;
	packet.head->earliest = earliest_of(entry, tick);
	packet.head->runtime_process = entry->runtime_process;
	process_head(process, packet.head);
	if (process_put(family, process, packet.head, packet.length) == 0)
		context->notes.coverage.events += packet.event_count;
}

static void free_entry(struct family *family, const struct process *process)
{
	struct lorg_process *entry = entry_of(family, process->index);
	if (family->final)
		return;
	__atomic_store_n(&entry->state, LORG_PROCESS_ENDED, __ATOMIC_RELAXED); /* by whatever end: see journal.c */
	journal_mark(family->context->journal);
	memset((uint8_t *)entry + sizeof entry->state, 0, LORG_PROCESS_SIZE - sizeof entry->state);
	/* Release: pairs with the acquiring CAS of the next owner, who finds the entry all zero. */
	__atomic_store_n(&entry->state, LORG_PROCESS_FREE, __ATOMIC_RELEASE);
}

void process_finish(struct family *family, struct process *process)
{
	struct image *image = process->image;
	last_words(family, process);
	if (family->context->sessions && image)
		family->context->live->process_over(family->context->sessions, image->id, process->birth_tick);
	free_entry(family, process);
	journal_end(family->context->journal);
	store_release_lane(family->context->store, process->lane);
	if (image) {
		image->process_count--;
		if (image->speaker == process)
			image->speaker = NULL;
	}
	memset(process, 0, sizeof *process);
	family->context->changes++;
}

/* Whose last event is its exec has become another program, unless it was killed in that very moment. */
static void note_execs(struct family *family)
{
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t slot = 0; slab && slot < SLAB_ENTRIES; slot++) {
			struct process *process = &slab->entry[slot];
			if (process->used && process->over && process->in_exec && process->image && process->image->over)
				process->image->execed = 1;
		}
	}
}

void processes_finish(struct family *family)
{
	note_execs(family);
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t slot = 0; slab && slot < SLAB_ENTRIES; slot++) {
			struct process *process = &slab->entry[slot];
			if (!process->used || !process->over)
				continue;
			process_finish(family, process);
		}
	}
}

void processes_free(struct family *family)
{
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t slot = 0; slab && slot < SLAB_ENTRIES; slot++)
			if (slab->entry[slot].used)
				store_release_lane(family->context->store, slab->entry[slot].lane);
		free(slab);
	}
	free(family->slabs);
	family->slabs = NULL;
	family->slab_room = 0;
}
