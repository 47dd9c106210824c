/* SPDX-License-Identifier: MIT */
/* controls.c: see controls.h. */
#include "collector/session/controls.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lorg/match.h>

/* A setting as it was written. next: index + 1. */
struct setting {
	uint32_t users; /* functions and settings that lead to it; 0: free, or at rest */
	uint32_t session, kind, gate, program, declared, next;
	uint32_t bucket_next; /* index + 1 in the same bucket */
	uint64_t free_ns; /* when it was given back; 0: never used */
};

struct program {
	uint32_t users;	     /* settings; 0: at rest */
	uint32_t at, size;   /* in the room for programs; bytes */
	uint64_t free_ns;
	struct specification *specification; /* taken */
};

/* What stands at a function. */
struct head {
	uint32_t gate, setting;
};

struct control_state {
	struct head *heads;
	struct setting *settings;
	uint32_t setting_count, settings_used; /* those from settings_used on were never used */
	uint32_t *buckets; /* index + 1; settings in use, by what they say */
	uint32_t bucket_count; /* power of two */
	uint32_t hand; /* where the search for one that has rested begins */
	struct program *programs; /* by `at` */
	uint32_t program_count, program_room;
	uint32_t in_use;
};

static struct control_state *state_of(const struct live_control *control)
{
	return control->state;
}

static struct lorg_function_control *shared_function(const struct live_control *control, uint32_t place)
{
	return (struct lorg_function_control *)((char *)control->control + sizeof(struct lorg_control)) + place;
}

static struct lorg_call_setting *shared_setting(const struct live_control *control, uint32_t index)
{
	return (struct lorg_call_setting *)((char *)control->control + control->plan->function_count * sizeof(struct lorg_function_control) +
					    sizeof(struct lorg_control)) + index;
}

/* ---- controls of a lorgd before this one ---------------------------------------- */

/* Behind the last page from `from` to `to` that was ever written: looking at others would make memory of them. */
static uint64_t written_end(const struct live_control *control, uint64_t from, uint64_t to)
{
	uint64_t end = from;
	for (off_t at = (off_t)from; at >= 0 && (uint64_t)at < to;) {
		off_t data = lseek(control->descriptor, at, SEEK_DATA);
		if (data < 0 || (uint64_t)data >= to)
			break;
		at = lseek(control->descriptor, data, SEEK_HOLE);
		end = at < 0 || (uint64_t)at > to ? to : (uint64_t)at;
	}
	return end;
}

static uint64_t offset_in(const struct live_control *control, const void *at)
{
	return (uint64_t)((const char *)at - (const char *)control->control);
}

/* What was written there may be walked at this moment: it is at rest, whatever it says. What was never written is zero. */
static void rest_settings(const struct live_control *control, struct control_state *state, uint64_t now_ns)
{
	uint64_t first = offset_in(control, shared_setting(control, 0)), last = offset_in(control, shared_setting(control, state->setting_count));
	uint64_t end = written_end(control, first, last);
	for (uint32_t i = 0; i < state->setting_count && offset_in(control, shared_setting(control, i)) < end; i++)
		if (shared_setting(control, i)->kind)
			state->settings_used = i + 1;
	for (uint32_t i = 0; i < state->settings_used; i++)
		state->settings[i].free_ns = now_ns;
}

static uint32_t programs_end(const struct live_control *control)
{
	const uint64_t *words = (const uint64_t *)(const void *)control->programs;
	uint64_t first = control->programs_at, written = written_end(control, first, first + control->programs_size);
	uint32_t end = (uint32_t)((written - first) / 8);
	while (end && !words[end - 1])
		end--;
	return end * 8;
}

static int rest_programs(const struct live_control *control, struct control_state *state, uint64_t now_ns)
{
	uint32_t end = programs_end(control);
	if (!end)
		return 0;
	state->programs = calloc(16, sizeof *state->programs);
	if (!state->programs)
		return -1;
	state->program_room = 16;
	state->programs[state->program_count++] = (struct program){.size = end, .free_ns = now_ns};
	return 0;
}

static int begin_adopted(const struct live_control *control, struct control_state *state)
{
	const uint64_t now_ns = control->adopted_ns;
	for (uint32_t i = 0; i < control->plan->function_count; i++)
		state->heads[i].gate = __atomic_load_n(&shared_function(control, i)->gate, __ATOMIC_RELAXED);
	rest_settings(control, state, now_ns);
	return rest_programs(control, state, now_ns);
}

/* ---- the beginning and the end ---------------------------------------------------- */

int control_begin(struct live_control *control)
{
	struct control_state *state = calloc(1, sizeof *state);
	control->state = state;
	if (!state)
		return -1;
	state->setting_count = control->setting_count;
	for (state->bucket_count = 64; state->bucket_count < state->setting_count;)
		state->bucket_count *= 2;
	state->heads = calloc(control->plan->function_count + 1ul, sizeof *state->heads);
	state->settings = calloc(state->setting_count + 1ul, sizeof *state->settings);
	state->buckets = calloc(state->bucket_count, sizeof *state->buckets);
	if (state->heads && state->settings && state->buckets && !(control->adopted_ns && begin_adopted(control, state)))
		return 0;
	control_end(control);
	return -1;
}

void control_end(struct live_control *control)
{
	struct control_state *state = state_of(control);
	control->state = NULL;
	if (!state)
		return;
	for (uint32_t i = 0; i < state->program_count; i++)
		specification_release(state->programs[i].specification);
	free(state->programs);
	free(state->heads);
	free(state->settings);
	free(state->buckets);
	free(state);
}

/* ---- programs ------------------------------------------------------------------ */

/* Callers that are mapped nowhere here call nothing. */
static void write_ranges(struct live_control *control, const struct program *program, const struct control_bases *bases)
{
	const struct specification *specification = program->specification;
	const struct lorg_match_head *head = (const void *)specification->program;
	struct lorg_match_range *ranges = (struct lorg_match_range *)(void *)(control->programs + program->at + head->range_offset);
	for (uint32_t i = 0; i < specification->range_count && i < head->ranges; i++) {
		const struct specification_range *wanted = &specification->ranges[i];
		uint64_t base;
		int known = wanted->module && bases->base(bases->context, wanted->module, &base) == 0;
		/* Nothing lies between them until both stand. */
		__atomic_store_n(&ranges[i].last, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&ranges[i].first, known ? base + wanted->first : UINT64_MAX, __ATOMIC_RELEASE);
		__atomic_store_n(&ranges[i].last, known ? base + wanted->last : 0, __ATOMIC_RELEASE);
	}
}

static void remove_program(struct control_state *state, uint32_t index)
{
	specification_release(state->programs[index].specification);
	memmove(&state->programs[index], &state->programs[index + 1], (state->program_count - index - 1) * sizeof *state->programs);
	state->program_count--;
}

/* Those that have rested are gone: their room is free. */
static void sweep_programs(struct control_state *state, uint64_t now_ns)
{
	for (uint32_t i = state->program_count; i-- > 0;)
		if (!state->programs[i].users && now_ns - state->programs[i].free_ns >= CONTROL_REST_NS)
			remove_program(state, i);
}

/* Where `size` bytes fit: before the program of that index. -1: nowhere. */
static int64_t find_room(const struct live_control *control, uint32_t size, uint32_t *before)
{
	const struct control_state *state = state_of(control);
	uint32_t at = 0;
	for (*before = 0; *before < state->program_count; (*before)++) {
		const struct program *program = &state->programs[*before];
		if (program->at - at >= size)
			return at;
		at = program->at + program->size;
	}
	return control->programs_size - at >= size ? (int64_t)at : -1;
}

static struct program *insert_program(struct control_state *state, uint32_t before, uint32_t at, uint32_t size)
{
	if (state->program_count == state->program_room) {
		uint32_t room = state->program_room ? 2 * state->program_room : 16;
		struct program *more = realloc(state->programs, room * sizeof *more);
		if (!more)
			return NULL;
		state->programs = more;
		state->program_room = room;
	}
	struct program *program = &state->programs[before];
	memmove(program + 1, program, (state->program_count - before) * sizeof *program);
	state->program_count++;
	*program = (struct program){.at = at, .size = size};
	return program;
}

static struct program *find_program(struct control_state *state, const struct specification *specification)
{
	for (uint32_t i = 0; i < state->program_count; i++)
		if (state->programs[i].specification == specification)
			return &state->programs[i];
	return NULL;
}

/* NULL: there is no room. Its users are as they were. */
static struct program *place_program(struct live_control *control, const struct specification *specification,
				     const struct control_bases *bases, uint64_t now_ns)
{
	struct control_state *state = state_of(control);
	struct program *program = find_program(state, specification);
	uint32_t before, size = (specification->size + 7) & ~7u;
	if (program)
		return program;
	sweep_programs(state, now_ns);
	int64_t at = find_room(control, size, &before);
	program = at < 0 ? NULL : insert_program(state, before, (uint32_t)at, size);
	if (!program)
		return NULL;
	program->specification = specification_take((struct specification *)(uintptr_t)specification);
	program->free_ns = now_ns;
	memcpy(control->programs + program->at, specification->program, specification->size);
	write_ranges(control, program, bases);
	return program;
}

void control_place_callers(struct live_control *control, const struct control_bases *bases)
{
	struct control_state *state = state_of(control);
	/* What a lorgd before this one has written is at rest, and nobody's. */
	for (uint32_t i = 0; i < state->program_count; i++)
		if (state->programs[i].specification)
			write_ranges(control, &state->programs[i], bases);
}

static void leave_program(struct live_control *control, uint32_t offset, uint64_t now_ns)
{
	struct control_state *state = state_of(control);
	for (uint32_t i = 0; offset && i < state->program_count; i++) {
		struct program *program = &state->programs[i];
		if (control->programs_at + program->at != offset)
			continue;
		program->users--;
		program->free_ns = now_ns;
	}
}

/* ---- settings ---------------------------------------------------------------------- */

static uint32_t *bucket_of(struct control_state *state, const struct setting *setting)
{
	uint32_t hash = setting->session * 0x9e3779b1u ^ setting->kind * 0x85ebca6bu ^ setting->gate * 0xc2b2ae35u ^
			setting->program * 0x27d4eb2fu ^ setting->next * 0x165667b1u ^ setting->declared * 0x9e3779b9u;
	return &state->buckets[(hash ^ hash >> 15) & (state->bucket_count - 1)];
}

static int says_the_same(const struct setting *one, const struct setting *other)
{
	return one->session == other->session && one->kind == other->kind && one->gate == other->gate && one->program == other->program &&
	       one->declared == other->declared && one->next == other->next;
}

/* Index + 1; 0: there is none. */
static uint32_t find_setting(struct control_state *state, const struct setting *wanted)
{
	uint32_t number = *bucket_of(state, wanted);
	while (number && !says_the_same(&state->settings[number - 1], wanted))
		number = state->settings[number - 1].bucket_next;
	return number;
}

/* One that was never used, or has rested; UINT32_MAX: there is none. */
static uint32_t free_setting(struct control_state *state, uint64_t now_ns)
{
	if (state->settings_used < state->setting_count)
		return state->settings_used++;
	for (uint32_t i = 0; i < state->setting_count; i++) {
		uint32_t index = (state->hand + i) % state->setting_count;
		const struct setting *setting = &state->settings[index];
		if (setting->users || now_ns - setting->free_ns < CONTROL_REST_NS)
			continue;
		state->hand = index + 1;
		return index;
	}
	return UINT32_MAX;
}

static void take_setting(struct control_state *state, uint32_t number)
{
	if (number)
		state->settings[number - 1].users++;
}

static void unlink_setting(struct control_state *state, uint32_t index)
{
	uint32_t *link = bucket_of(state, &state->settings[index]);
	while (*link != index + 1)
		link = &state->settings[*link - 1].bucket_next;
	*link = state->settings[index].bucket_next;
}

/* One user less; the last one gives it back, and what it leads to. It stays as it is: somebody may be at it. */
static void leave_setting(struct live_control *control, uint32_t number, uint64_t now_ns)
{
	struct control_state *state = state_of(control);
	while (number) {
		struct setting *setting = &state->settings[number - 1];
		if (--setting->users)
			return;
		unlink_setting(state, number - 1);
		setting->free_ns = now_ns;
		state->in_use--;
		leave_program(control, setting->program, now_ns);
		number = setting->next;
	}
}

/* The setting before `next`. Index + 1, with no user of its own yet; 0: no room. */
static uint32_t make_setting(struct live_control *control, const struct control_wish *wish, uint32_t next,
			     const struct control_bases *bases, uint64_t now_ns)
{
	struct control_state *state = state_of(control);
	struct program *program = wish->match ? place_program(control, wish->match, bases, now_ns) : NULL;
	if (wish->match && !program)
		return 0;
	const struct setting wanted = {.session = wish->session,
				       .kind = wish->kind,
				       .gate = wish->gate,
				       .program = program ? control->programs_at + program->at : 0,
				       .declared = wish->declared,
				       .next = next};
	uint32_t number = find_setting(state, &wanted);
	if (number)
		return number;
	uint32_t index = free_setting(state, now_ns);
	if (index == UINT32_MAX)
		return 0;
	struct setting *setting = &state->settings[index];
	uint32_t *bucket = bucket_of(state, &wanted);
	*setting = wanted;
	setting->bucket_next = *bucket;
	*bucket = index + 1;
	state->in_use++;
	take_setting(state, next);
	if (program)
		program->users++;
	*shared_setting(control, index) = (struct lorg_call_setting){
		.session = wanted.session, .kind = wanted.kind, .gate = wanted.gate, .program = wanted.program, .next = wanted.next,
		.declared = wanted.declared};
	return index + 1;
}

/* Begins at the last. *failed: there is no room. The list has one user more. */
static uint32_t make_list(struct live_control *control, const struct control_wish *wishes, unsigned count,
			  const struct control_bases *bases, uint64_t now_ns, int *failed)
{
	struct control_state *state = state_of(control);
	uint32_t list = 0;
	for (unsigned i = count; i-- > 0;) {
		uint32_t number = make_setting(control, &wishes[i], list, bases, now_ns);
		take_setting(state, number);
		leave_setting(control, list, now_ns); /* the new one leads to it, if it was made */
		list = number;
		if (!number) {
			*failed = 1;
			return 0;
		}
	}
	return list;
}

/* ---- functions ------------------------------------------------------------------------ */

/* Nobody finds the gate open and no list, where there is to be one. */
static void publish(struct live_control *control, uint32_t place, const struct head *head)
{
	struct lorg_function_control *function = shared_function(control, place);
	/* Release: who sees the list, or the gate, finds what it stands for. */
	if (!head->setting)
		__atomic_store_n(&function->gate, head->gate, __ATOMIC_RELEASE);
	__atomic_store_n(&function->setting, head->setting, __ATOMIC_RELEASE);
	if (head->setting)
		__atomic_store_n(&function->gate, head->gate, __ATOMIC_RELEASE);
}

int control_set(struct live_control *control, uint32_t place, const struct control_wish *wishes, unsigned count, uint32_t gate,
		const struct control_bases *bases, uint64_t now_ns)
{
	struct control_state *state = state_of(control);
	struct head *head = &state->heads[place];
	int failed = 0;
	uint32_t before = head->setting, list = make_list(control, wishes, count, bases, now_ns, &failed);
	if (failed)
		return -1;
	*head = (struct head){gate, list};
	publish(control, place, head);
	leave_setting(control, before, now_ns);
	return 0;
}

uint32_t control_gate(const struct live_control *control, uint32_t place)
{
	return state_of(control)->heads[place].gate;
}

struct control_holdings control_holdings(const struct live_control *control)
{
	const struct control_state *state = state_of(control);
	struct control_holdings holdings = {.settings = state->in_use};
	for (uint32_t i = 0; i < state->program_count; i++)
		holdings.programs += state->programs[i].users != 0;
	return holdings;
}
