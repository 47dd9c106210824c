/* SPDX-License-Identifier: MIT */
/* support.c: see support.h. Part of a library that is liblorg.so but for this. */
#include "tests/unit/call/support.h"

#include <sys/mman.h>

#include "preload/call/inner.h"
#include "preload/core/raw.h"

#define EXPORTED __attribute__((visibility("default")))

enum { FUNCTIONS = 8192, MORE_SETTINGS = 8192, PROGRAM_BYTES = 4 << 20, CHUNKS_OFFSET = 4 << 20 };

/* One control for all functions. */
static struct {
	struct lorg_control head;
	struct lorg_function_control function[FUNCTIONS];
	struct lorg_call_setting setting[FUNCTIONS + MORE_SETTINGS];
	uint8_t programs[PROGRAM_BYTES];
} control;
static uint32_t settings_used = FUNCTIONS, program_bytes_used;

static struct call_settings settings;

static int indices[FUNCTIONS];
static uint8_t *thunks;

static struct lorg_table table(uint64_t *at, uint32_t entry_size, uint32_t count)
{
	struct lorg_table made = {*at, entry_size, count};
	*at += ((uint64_t)entry_size * count + 63) & ~63ul;
	return made;
}

static void *memory(size_t size, int protection)
{
	return (void *)raw_mmap(0, size, protection, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

EXPORTED void support_attach(unsigned chunks)
{
	struct lorg_arena *shared = memory(CHUNKS_OFFSET + (size_t)chunks * LORG_CHUNK_SIZE, PROT_READ | PROT_WRITE);
	uint64_t at = 4096;
	shared->chunk_control = table(&at, 8, chunks);
	shared->images = table(&at, LORG_IMAGE_STRIDE, LORG_IMAGES);
	shared->sessions = table(&at, LORG_SESSION_STRIDE, LORG_SESSIONS);
	shared->functions = table(&at, sizeof(struct lorg_function), LORG_FUNCTIONS);
	shared->modules = table(&at, LORG_MODULE_STRIDE, LORG_MODULES);
	shared->chunk_count = chunks;
	shared->clock = (struct lorg_clock){.multiplier = 1ull << 32, .frequency = 1000000000, .source = LORG_CLOCK_TSC};
	the_arena.clock = shared->clock;
	the_arena.size = CHUNKS_OFFSET + (uint64_t)chunks * LORG_CHUNK_SIZE;
	the_arena.chunks_offset = CHUNKS_OFFSET;
	the_arena.chunk_count = the_arena.mapped_chunks = chunks;
	the_arena.control_offset = shared->chunk_control.offset;
	the_arena.images_offset = shared->images.offset;
	the_arena.sessions_offset = shared->sessions.offset;
	the_arena.functions_offset = shared->functions.offset;
	the_arena.functions = (struct lorg_function *)((char *)shared + shared->functions.offset);
	for (unsigned i = 0; i < 64; i++) /* one piece, though it is larger than a segment */
		the_arena.segments[i] = (char *)shared + (size_t)i * LORG_SEGMENT_SIZE;
	the_arena.overflow = LORG_OVERFLOW_DISCARD;
	the_arena.message_length = LORG_MESSAGE_LENGTH;
	the_arena.shared = shared;
	memset(shared->gate, LORG_GATE_PROCESS | LORG_GATE_CALL, sizeof shared->gate);
	hook_gates = shared->gate;
	extern char **environ;
	static char name[] = "test", *arguments[] = {name, 0};
	program_begin(1, arguments, environ);
	control.head = (struct lorg_control){.magic = LORG_CONTROL_MAGIC,
					     .size = sizeof control.head,
					     .function_count = FUNCTIONS,
					     .setting_count = FUNCTIONS + MORE_SETTINGS,
					     .control_size = sizeof control,
					     .settings = (uint64_t)((char *)control.setting - (char *)&control)};
	settings = (struct call_settings){&control.head, sizeof control, control.setting, FUNCTIONS + MORE_SETTINGS};
	thunks = memory(FUNCTIONS * CALL_THUNK_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
}

EXPORTED void *support_hook(unsigned number, void *function, uint32_t gate, uint32_t flags, const struct lorg_plan *plan,
			    const struct lorg_plan_function *entry)
{
	struct call_target target = {.body = (uintptr_t)function,
				     .control = &control.function[number],
				     .function = LORG_FIRST_HOOKED_FUNCTION + number,
				     .flags = flags,
				     .plan = plan,
				     .plan_function = entry,
				     .settings = &settings,
				     .kind = LORG_KIND_LOCAL};
	control.function[number].gate = gate;
	indices[number] = call_target_add(&target);
	if (indices[number] < 0)
		return 0;
	call_thunk_write(thunks + (size_t)number * CALL_THUNK_SIZE, (uint32_t)indices[number]);
	return thunks + (size_t)number * CALL_THUNK_SIZE;
}

EXPORTED int support_is_thunk(const void *address)
{
	return (const uint8_t *)address >= thunks && (const uint8_t *)address < thunks + FUNCTIONS * CALL_THUNK_SIZE;
}

EXPORTED void support_gate(unsigned number, uint32_t gate)
{
	__atomic_store_n(&control.function[number].gate, gate, __ATOMIC_RELAXED);
}

EXPORTED uint32_t support_gate_now(unsigned number)
{
	return control.function[number].gate;
}

EXPORTED void support_setting(unsigned number, const struct lorg_call_setting *setting)
{
	control.setting[number] = *setting;
	control.function[number].setting = number + 1;
}

EXPORTED void support_settings(unsigned number, const struct lorg_call_setting *given, unsigned count)
{
	uint32_t next = 0;
	if (count > MORE_SETTINGS - (settings_used - FUNCTIONS))
		settings_used = FUNCTIONS; /* those of functions that are tested no more */
	for (unsigned i = count; i-- > 0;) {
		control.setting[settings_used] = given[i];
		control.setting[settings_used].next = next;
		next = ++settings_used;
	}
	control.function[number].setting = next;
}

EXPORTED uint32_t support_program(const void *program, uint32_t size)
{
	if (size > PROGRAM_BYTES - program_bytes_used)
		return 0;
	uint8_t *at = control.programs + program_bytes_used;
	memcpy(at, program, size);
	program_bytes_used += (size + 7) & ~7u;
	return (uint32_t)(at - (uint8_t *)&control);
}

EXPORTED void support_flags(unsigned slot, uint32_t flags)
{
	struct thread *self = thread_self();
	the_arena.shared->sessions_used = LORG_SESSIONS;
	self->flags_matter = 1;
	self->process->session[slot].flags = flags;
}

EXPORTED uint32_t support_flags_now(unsigned slot)
{
	return thread_self()->process->session[slot].flags;
}

EXPORTED uint32_t support_control_word(unsigned slot, int set, uint32_t word)
{
	uint32_t *there = &session_at(slot)->control_word;
	if (set)
		*there = word;
	return *there;
}

EXPORTED size_t support_packets(const uint8_t **packets, size_t *sizes, size_t room)
{
	size_t count = 0;
	for (uint32_t i = 0; i < the_arena.chunk_count && count < room; i++) {
		enum lorg_chunk_state state = lorg_chunk_word_state(*arena_chunk_control(i));
		const struct lorg_packet *packet = arena_chunk(i);
		if (state != LORG_CHUNK_FILLING && state != LORG_CHUNK_FULL)
			continue;
		packets[count] = (const uint8_t *)packet;
		sizes[count++] = packet->position < LORG_CHUNK_SIZE ? packet->position : LORG_CHUNK_SIZE;
	}
	return count;
}

EXPORTED void support_forget_events(void)
{
	struct thread *self = thread_self();
	for (uint32_t i = 0; i < the_arena.chunk_count; i++) {
		struct lorg_packet *packet = arena_chunk(i);
		enum lorg_chunk_state state = lorg_chunk_word_state(*arena_chunk_control(i));
		if (packet == self->packet) {
			memset((char *)packet + LORG_PACKET_HEAD, 0, LORG_CHUNK_SIZE - LORG_PACKET_HEAD);
			packet->begin = packet->last;
			packet->position = LORG_PACKET_HEAD;
		} else if (state == LORG_CHUNK_FILLING || state == LORG_CHUNK_FULL) {
			memset(packet, 0, LORG_CHUNK_SIZE);
			*arena_chunk_control(i) = 0;
		}
	}
}

EXPORTED void support_counters(unsigned number, uint64_t *count, uint64_t *ticks, uint64_t *words)
{
	*count = *ticks = *words = 0;
	for (uint32_t i = 0; i < the_arena.chunk_count; i++) {
		const struct lorg_function_counter *counter = arena_chunk(i);
		if (lorg_chunk_word_state(*arena_chunk_control(i)) != LORG_CHUNK_COUNTERS)
			continue;
		for (unsigned place = 0; place < LORG_COUNTERS; place++) {
			if (counter[place].function != LORG_FIRST_HOOKED_FUNCTION + number)
				continue;
			*count += counter[place].count;
			*ticks += counter[place].time_ticks;
			*words += counter[place].words;
		}
	}
}

EXPORTED void support_allocate_words(uint64_t words)
{
	thread_self()->process->words_allocated += words;
}

EXPORTED void support_lose_entry(void)
{
	memset(this_thread.process, 0, sizeof *this_thread.process);
}

EXPORTED void support_forbid_system_calls(int forbid)
{
	the_program.seccomp = (uint32_t)forbid;
}
