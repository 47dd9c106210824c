/* SPDX-License-Identifier: MIT */
/* session.c: the table of sessions, and what of it stands in the arenas. See session.h and sessions.h. */
#include "collector/session/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/collect/memory.h"
#include "collector/collect/offers.h"
#include "collector/session/live.h"
#include "collector/session/tracer.h"

static const uint64_t LOOK_STEP_NS = 500000000;
/* A match program may still be under evaluation in some program when it is taken out: its place stays as it is so long. */
static const uint64_t PLACE_REST_NS = 10000000000;
enum { PROGRAM_ALIGNMENT = 64 };

/* ---- arenas -------------------------------------------------------------- */

/* Each arena that a program has, or may take at this moment. */
static void each_arena(struct sessions *sessions, void (*visit)(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout))
{
	struct family_context *context = sessions->context;
	for (uint32_t slot = 0; context->offers && slot < LORG_ARENA_OFFERS; slot++)
		if (context->offers->slot[slot].memory.at)
			visit(sessions, context->offers->slot[slot].memory.at, &context->offers->layout);
	for (uint32_t i = 0; i < context->family_count; i++)
		if (context->families[i]->memory.at && !(sessions->restoring && context->families[i]->adopted))
			visit(sessions, context->families[i]->memory.at, &context->families[i]->layout);
}

static struct lorg_session *slot_in(uint8_t *at, const struct arena_layout *layout, unsigned slot)
{
	return (struct lorg_session *)(at + layout->sessions + (size_t)slot * LORG_SESSION_STRIDE);
}

/* Relaxed stores: each is a setting by itself, and who needs them together waits for the generation. */
#define PUT(to, from, field) __atomic_store_n(&(to)->field, (from)->field, __ATOMIC_RELAXED)

static void put_slot(struct lorg_session *to, const struct lorg_session *from)
{
	if (!from->state)
		__atomic_store_n(&to->state, 0, __ATOMIC_RELEASE);
	if (from->state && __atomic_load_n(&to->id, __ATOMIC_RELAXED) != from->id)
		__atomic_store_n(&to->control_word, 0, __ATOMIC_RELAXED); /* another session: what stood there was not its own */
	PUT(to, from, id);
	memcpy(to->name, from->name, sizeof to->name);
	PUT(to, from, overflow);
	PUT(to, from, message_length);
	PUT(to, from, block_limit_ns);
	/* Sequentially: it stands before the flags of those that are there are looked at; see sessions_publish. */
	__atomic_store_n(&to->flags_new_processes, from->flags_new_processes, __ATOMIC_SEQ_CST);
	PUT(to, from, flags_new_ports);
	PUT(to, from, gate_mask);
	PUT(to, from, send_program);
	PUT(to, from, receive_program);
	PUT(to, from, limit_events);
	PUT(to, from, limit_rate);
	PUT(to, from, limit_memory);
	for (int i = 0; i < 8; i++)
		PUT(to, from, system_limits[i]);
	PUT(to, from, flags_matter);
	PUT(to, from, flags_ports);
	PUT(to, from, generation);
	/* Release: who sees the slot in use sees what is asked in it. */
	__atomic_store_n(&to->state, from->state, __ATOMIC_RELEASE);
}

static void put_rule(struct lorg_program_flags *to, const struct lorg_program_flags *from)
{
	if (to->image != from->image)
		__atomic_store_n(&to->image, 0, __ATOMIC_RELAXED);
	PUT(to, from, session);
	PUT(to, from, image_id);
	PUT(to, from, flags);
	/* Release: who sees the image sees the rest. */
	__atomic_store_n(&to->image, from->image, __ATOMIC_RELEASE);
}

static void put_gates(struct lorg_arena *arena, const uint8_t gates[LORG_HOOKS])
{
	for (uint32_t i = 0; i < LORG_HOOKS; i++)
		if (arena->gate[i] != gates[i])
			__atomic_store_n(&arena->gate[i], gates[i], __ATOMIC_RELAXED);
}

static void put_all(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout)
{
	struct lorg_arena *arena = (struct lorg_arena *)at;
	if (__atomic_load_n(&arena->detached, __ATOMIC_RELAXED))
		return;
	for (unsigned slot = 0; slot < SESSION_SLOTS; slot++)
		put_slot(slot_in(at, layout, slot), &sessions->published[slot]);
	__atomic_store_n(&arena->sessions_used, sessions->slots_used, __ATOMIC_RELEASE);
	/* Before the gates: who is let in finds that its descriptors may have changed unseen. */
	__atomic_store_n(&arena->port_epoch, sessions->port_epoch, __ATOMIC_RELEASE);
	put_gates(arena, sessions->gates);
	/* Release: who sees the new number finds what it stands for. */
	__atomic_add_fetch(&arena->settings_generation, 1, __ATOMIC_RELEASE);
}

static uint8_t *programs_at(uint8_t *at, const struct arena_layout *layout, const struct program_place *place)
{
	return place->at + place->size <= layout->programs_size ? at + layout->programs + place->at : NULL;
}

/* The place is larger than the program, by what aligns it. */
static void put_program(uint8_t *at, const struct arena_layout *layout, const struct program_place *place,
			const struct session_messages *messages)
{
	uint8_t *to = programs_at(at, layout, place);
	if (to)
		memcpy(to, messages->program, messages->program_size);
}

static void put_programs_of(const struct sessions *sessions, unsigned slot, uint8_t *at, const struct arena_layout *layout)
{
	const struct session *session = &sessions->slot[slot];
	for (int receiving = 0; receiving < 2; receiving++)
		if (sessions->program[slot][receiving])
			put_program(at, layout, sessions->program[slot][receiving], receiving ? &session->receive : &session->send);
}

/* All of them: it is seldom, and what is there already is written over by the same. */
static void put_programs(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			put_programs_of(sessions, slot, at, layout);
}

void sessions_settle(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout)
{
	/* Who starts with it asks for its plans at once. */
	__atomic_store_n(&((struct lorg_arena *)at)->functions_asked, sessions->functions_asked, __ATOMIC_RELAXED);
	put_programs(sessions, at, layout);
	put_all(sessions, at, layout);
}

/* ---- the union ----------------------------------------------------------- */

/* Which hooks have something to say for a process that has these flags. */
static uint32_t gates_of_flags(uint32_t flags)
{
	static const struct {
		uint32_t flags, gates;
	} kinds[] = {
		{LORG_TRACE_SEND, LORG_GATE_MESSAGE | LORG_MASK_SEND},
		{LORG_TRACE_RECEIVE, LORG_GATE_MESSAGE | LORG_MASK_RECEIVE},
		/* A port that is opened or closed is a link of its owner's. */
		{LORG_TRACE_PROCS, LORG_GATE_PROCESS | LORG_GATE_PORT},
		{LORG_TRACE_PORTS, LORG_GATE_PORT},
		{LORG_TRACE_CALL | LORG_TRACE_RETURN_TO, LORG_GATE_CALL},
		{LORG_TRACE_RUNNING | LORG_TRACE_EXITING, LORG_GATE_RUNNING},
		{LORG_TRACE_RUNNING_PROCS, LORG_GATE_RUNNING | LORG_GATE_ALL},
		{LORG_TRACE_RUNNING_PORTS, LORG_GATE_PORT | LORG_GATE_ALL},
		{LORG_TRACE_GARBAGE_COLLECTION, LORG_MASK_COLLECTION | LORG_GATE_COUNT},
		/* Who inherits is known where processes are made and linked. */
		{LORG_TRACE_SET_ON_SPAWN | LORG_TRACE_SET_ON_FIRST_SPAWN | LORG_TRACE_SET_ON_LINK | LORG_TRACE_SET_ON_FIRST_LINK,
		 LORG_GATE_PROCESS},
	};
	uint32_t gates = 0;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		gates |= flags & kinds[i].flags ? kinds[i].gates : 0;
	return gates;
}

static const uint32_t gates_of_system[8] = {
	[SESSION_LONG_GC] = LORG_MASK_COLLECTION,
	[SESSION_LONG_QUEUE_ON] = LORG_GATE_MESSAGE | LORG_MASK_SEND | LORG_MASK_RECEIVE,
	[SESSION_LONG_SCHEDULE] = LORG_GATE_RUNNING | LORG_GATE_MESSAGE | LORG_MASK_SEND | LORG_MASK_RECEIVE,
	[SESSION_LARGE_HEAP] = LORG_GATE_COUNT | LORG_MASK_COLLECTION,
	[SESSION_BUSY_PORT] = LORG_GATE_MESSAGE | LORG_MASK_SEND,
	[SESSION_BUSY_DIST_PORT] = LORG_GATE_MESSAGE | LORG_MASK_SEND,
};

static uint32_t gates_of_session(const struct session *session)
{
	uint32_t flags = session->asked | session->defaults.new_processes;
	/* Where all messages are left out, nobody need look at them for its sake. */
	flags &= ~(uint32_t)((session->send.off ? LORG_TRACE_SEND : 0) | (session->receive.off ? LORG_TRACE_RECEIVE : 0));
	uint32_t gates = gates_of_flags(flags) | session->function_gates;
	for (int i = 0; i < 8; i++)
		gates |= session->system_limits[i] != UINT64_MAX ? gates_of_system[i] : 0;
	return gates;
}

static uint32_t program_number(const struct sessions *sessions, unsigned slot, int receiving)
{
	const struct program_place *place = sessions->program[slot][receiving ? 1 : 0];
	return place ? place->at + 8 : 0;
}

static struct lorg_session wanted_slot(const struct sessions *sessions, unsigned slot)
{
	const struct session *session = &sessions->slot[slot];
	struct lorg_session wanted = {
		.state = 1,
		.id = session->number,
		.overflow = LORG_OVERFLOW_DISCARD,
		.message_length = session->message_length,
		.flags_new_processes = session->defaults.new_processes,
		.flags_new_ports = session->defaults.new_ports,
		.gate_mask = gates_of_session(session),
		.send_program = session->send.off ? LORG_PROGRAM_OFF : program_number(sessions, slot, 0),
		.receive_program = session->receive.off ? LORG_PROGRAM_OFF : program_number(sessions, slot, 1),
		.limit_events = session->limits.events,
		.limit_rate = session->limits.rate,
		.limit_memory = session->limits.memory,
		.flags_matter = 1,
		.flags_ports = session->defaults.new_ports | flags_of_ports_of(sessions, session),
	};
	/* Which ports are new has to be told, whatever else they are asked for. */
	wanted.flags_ports |= session->defaults.new_ports ? (uint32_t)LORG_TRACE_PORTS : 0;
	snprintf(wanted.name, sizeof wanted.name, "%.*s", (int)sizeof wanted.name - 1, session->name);
	for (int i = 0; i < 8; i++)
		wanted.system_limits[i] = session->system_limits[i] == UINT64_MAX ? 0 : session->system_limits[i];
	return wanted;
}

/* The least that anybody asked for; 0 is not asked. */
static void merge_system(struct lorg_session *all, const struct session *session)
{
	for (int i = 0; i < 8; i++) {
		/* Disable may be 0: it counts where Enable is asked for. */
		int of = i == SESSION_LONG_QUEUE_OFF ? SESSION_LONG_QUEUE_ON : i;
		if (session->system_limits[of] == UINT64_MAX)
			continue;
		int first = i == SESSION_LONG_QUEUE_OFF ? all->system_limits[SESSION_LONG_QUEUE_ON] == 0 : all->system_limits[i] == 0;
		if (first || session->system_limits[i] < all->system_limits[i])
			all->system_limits[i] = session->system_limits[i];
	}
}

static struct lorg_session wanted_union(struct sessions *sessions)
{
	struct lorg_session all = {
		.state = 1,
		.id = 1,
		.overflow = LORG_OVERFLOW_DISCARD,
		.flags_matter = 1,
	};
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = &sessions->slot[slot];
		if (!session->used)
			continue;
		all.flags_new_processes |= session->defaults.new_processes;
		all.flags_new_ports |= session->defaults.new_ports;
		all.gate_mask |= gates_of_session(session);
		if (session->message_length > all.message_length)
			all.message_length = session->message_length;
		merge_system(&all, session);
		all.flags_ports |= sessions->published[slot].flags_ports;
		all.send_program |= sessions->published[slot].send_program != 0;
		all.receive_program |= sessions->published[slot].receive_program != 0;
	}
	if (all.system_limits[SESSION_LONG_QUEUE_ON]) {
		uint64_t since = sessions->published[0].system_limits[SESSION_QUEUES_SINCE];
		all.system_limits[SESSION_QUEUES_SINCE] = since ? since : clock_tick(&sessions->context->clock);
	}
	/* What ports are asked about, the processes that use them tell. */
	all.gate_mask |= gates_of_flags(lorg_flags_by_ports(all.flags_ports));
	if (!(all.gate_mask & (LORG_MASK_SEND | LORG_MASK_RECEIVE)))
		all.gate_mask &= ~(uint32_t)LORG_GATE_MESSAGE;
	return all;
}

static int publish_slot(struct sessions *sessions, unsigned slot, struct lorg_session wanted)
{
	struct lorg_session *published = &sessions->published[slot];
	wanted.generation = published->generation;
	if (!memcmp(&wanted, published, sizeof wanted))
		return 0;
	wanted.generation++;
	*published = wanted;
	return 1;
}

static int follows_descriptors(uint32_t gate_mask)
{
	return (gate_mask & (LORG_GATE_PORT | LORG_GATE_MESSAGE)) != 0;
}

static unsigned highest_slot(const struct sessions *sessions)
{
	unsigned slot = SESSION_SLOTS - 1;
	while (slot >= SESSION_FIRST_SLOT && !sessions->slot[slot].used)
		slot--;
	return slot;
}

typedef void visit_process(struct sessions *sessions, struct family *family, uint32_t index, void *context);
static void each_process(struct sessions *sessions, visit_process *visit, void *context);

static void sum_flags(struct sessions *sessions, struct family *family, uint32_t index, void *context)
{
	struct lorg_process *entry = process_entry(family, index);
	if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) != LORG_PROCESS_FREE)
		process_flags_sum(family, entry);
}

void sessions_publish(struct sessions *sessions)
{
	int changed = 0;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct lorg_session wanted = {0};
		if (sessions->slot[slot].used)
			wanted = wanted_slot(sessions, slot);
		if (!wanted.system_limits[SESSION_LONG_QUEUE_ON] && sessions->published[slot].system_limits[SESSION_LONG_QUEUE_ON])
			router_forget_queues(sessions, slot);
		changed |= publish_slot(sessions, slot, wanted);
	}
	uint32_t before = sessions->published[0].gate_mask, of_ports = sessions->published[0].flags_ports;
	changed |= publish_slot(sessions, 0, wanted_union(sessions));
	if (!changed)
		return;
	if (follows_descriptors(sessions->published[0].gate_mask) && !follows_descriptors(before))
		sessions->port_epoch++;
	sessions->slots_used = highest_slot(sessions) + 1;
	/* Hooks that keep what sessions to come have to know are never shut. */
	gates_set(sessions->gates, sessions->published[0].gate_mask | LORG_MASK_LIFE);
	each_arena(sessions, put_all);
	/* What is asked of ports is asked of all processes. */
	if (of_ports != sessions->published[0].flags_ports)
		each_process(sessions, sum_flags, NULL);
}

/* ---- processes ------------------------------------------------------------- */

static void each_process(struct sessions *sessions, visit_process *visit, void *context)
{
	for (uint32_t i = 0; i < sessions->context->family_count; i++) {
		struct family *family = sessions->context->families[i];
		uint32_t used = family->memory.at ? family_chunks_used(family) : 0;
		for (uint32_t chunk = 0; chunk < used; chunk++) {
			uint64_t word = __atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE);
			if (!lorg_chunk_word_is_slab_in_use(word))
				continue;
			for (uint32_t entry = 0; entry < SLAB_ENTRIES; entry++)
				visit(sessions, family, chunk * SLAB_ENTRIES + entry, context);
		}
	}
}

static void note_flags(struct sessions *sessions, struct family *family, uint32_t index, void *context)
{
	uint32_t *asked = context;
	const struct lorg_process *entry = process_entry(family, index);
	if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == LORG_PROCESS_FREE)
		return;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			asked[slot] |= __atomic_load_n(&entry->session[slot].flags, __ATOMIC_RELAXED) & LORG_TRACE_ALL;
}

void sessions_look(struct sessions *sessions)
{
	uint32_t asked[SESSION_SLOTS] = {0};
	each_process(sessions, note_flags, asked);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (!session->used)
			continue;
		session->asked = asked[slot] | session->defaults.new_processes;
		for (unsigned i = 0; i < sessions->rule_count; i++)
			if (sessions->rules[i].said.session == slot)
				session->asked |= sessions->rules[i].said.flags;
	}
}

/* What a thread that was being born inherited in the meantime goes with the next look. */
static void clear_flags(struct sessions *sessions, struct family *family, uint32_t index, void *context)
{
	struct session *session = context;
	struct lorg_process *entry = process_entry(family, index);
	if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == LORG_PROCESS_FREE ||
	    !__atomic_load_n(&entry->session[session->slot].flags, __ATOMIC_RELAXED))
		return;
	if (process_of(family, index))
		session_process_flags(sessions, session, family, index, 0, UINT32_MAX);
	else
		__atomic_store_n(&entry->session[session->slot].flags, 0, __ATOMIC_RELAXED);
}

static uint32_t union_of(const struct sessions *sessions, const struct lorg_process *entry)
{
	uint32_t all = lorg_flags_by_ports(sessions->published[0].flags_ports);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		all |= __atomic_load_n(&entry->session[slot].flags, __ATOMIC_SEQ_CST);
	return all;
}

/* Flags in slots that are nobody's: of threads that were being born when their session ended. */
static void clear_stray(struct sessions *sessions, struct family *family, uint32_t index, void *context)
{
	struct lorg_process *entry = process_entry(family, index);
	int found = 0;
	if (__atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) == LORG_PROCESS_FREE)
		return;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		if (sessions->slot[slot].used || !__atomic_load_n(&entry->session[slot].flags, __ATOMIC_RELAXED))
			continue;
		__atomic_store_n(&entry->session[slot].flags, 0, __ATOMIC_SEQ_CST);
		found = 1;
	}
	if (!found)
		return;
	/* Until nobody has changed one of them in between; pairs with the program's own way of doing the same. */
	for (uint32_t all = union_of(sessions, entry), seen = ~all; all != seen;) {
		__atomic_exchange_n(&entry->session[0].flags, all, __ATOMIC_SEQ_CST);
		seen = all;
		all = union_of(sessions, entry);
	}
}

/* ---- programs that have flags of their own ------------------------------------ */

/* NULL: nothing stands there from now on. */
static void put_rule_at(const struct family *family, unsigned place, const struct lorg_program_flags *said)
{
	const struct lorg_program_flags none = {0};
	put_rule((struct lorg_program_flags *)(family->memory.at + family->layout.program_flags) + place, said ? said : &none);
	/* Release: who sees the new number finds what it stands for. */
	__atomic_add_fetch(&((struct lorg_arena *)family->memory.at)->settings_generation, 1, __ATOMIC_RELEASE);
}

static uint64_t first_half(const uint8_t id[16])
{
	uint64_t half;
	memcpy(&half, id, sizeof half);
	return half;
}

static struct program_rule *find_rule(const struct sessions *sessions, unsigned slot, const struct family *family, const struct image *image)
{
	for (unsigned i = 0; i < sessions->rule_count; i++) {
		struct program_rule *rule = &sessions->rules[i];
		if (rule->family == family && rule->said.image == image->index + 1 && rule->said.session == slot &&
		    rule->said.image_id == first_half(image->id))
			return rule;
	}
	return NULL;
}

/* In the arena of a family; LORG_PROGRAM_FLAGS: there is none. */
static unsigned free_rule_place(const struct sessions *sessions, const struct family *family)
{
	uint8_t taken[LORG_PROGRAM_FLAGS] = {0};
	unsigned place = 0;
	for (unsigned i = 0; i < sessions->rule_count; i++)
		if (sessions->rules[i].family == family)
			taken[sessions->rules[i].place] = 1;
	while (place < LORG_PROGRAM_FLAGS && taken[place])
		place++;
	return place;
}

/* It stands nowhere yet. NULL: there is no room. */
static struct program_rule *add_rule(struct sessions *sessions, struct family *family, unsigned place)
{
	if (place >= LORG_PROGRAM_FLAGS)
		return NULL;
	if (sessions->rule_count == sessions->rule_room) {
		unsigned room = sessions->rule_room ? 2 * sessions->rule_room : 16;
		struct program_rule *more = realloc(sessions->rules, room * sizeof *more);
		if (!more)
			return NULL;
		sessions->rules = more;
		sessions->rule_room = room;
	}
	struct program_rule *rule = &sessions->rules[sessions->rule_count++];
	*rule = (struct program_rule){.family = family, .place = place};
	return rule;
}

static void forget_rule(struct sessions *sessions, struct program_rule *rule)
{
	*rule = sessions->rules[--sessions->rule_count];
}

static void drop_rule(struct sessions *sessions, struct program_rule *rule)
{
	put_rule_at(rule->family, rule->place, NULL);
	forget_rule(sessions, rule);
}

int session_program_flags(struct sessions *sessions, struct session *session, struct family *family, const struct image *image,
			  int how, uint32_t flags)
{
	struct program_rule *rule = find_rule(sessions, session->slot, family, image);
	if (!rule && (!how || !flags))
		return 0;
	if (!rule) {
		rule = add_rule(sessions, family, free_rule_place(sessions, family));
		if (!rule)
			return -1;
		rule->said = (struct lorg_program_flags){image->index + 1, session->slot, first_half(image->id), 0, 0};
	}
	rule->said.flags = how ? rule->said.flags | flags : rule->said.flags & ~flags;
	if (rule->said.flags)
		put_rule_at(family, rule->place, &rule->said);
	else
		drop_rule(sessions, rule);
	return 0;
}

static int is_alive(const struct sessions *sessions, const struct family *family)
{
	for (uint32_t i = 0; i < sessions->context->family_count; i++)
		if (sessions->context->families[i] == family)
			return 1;
	return 0;
}

/* Of programs that have ended, and of the slot (0: none). */
static void drop_rules(struct sessions *sessions, unsigned slot)
{
	for (unsigned i = sessions->rule_count; i-- > 0;) {
		struct program_rule *rule = &sessions->rules[i];
		const struct family *family = rule->family;
		if (!is_alive(sessions, family)) {
			forget_rule(sessions, rule);
			continue;
		}
		uint32_t index = rule->said.image - 1;
		const struct image *image = index < family->image_room ? family->images[index] : NULL;
		if (rule->said.session == slot || !image || image->over || first_half(image->id) != rule->said.image_id)
			drop_rule(sessions, rule);
	}
}

/* ---- match programs of messages ------------------------------------------------ */

static int is_taken(const struct program_place *place, uint64_t now_ns)
{
	return place->size && (place->used || now_ns < place->free_ns);
}

/* Places never move: each stands where it is while it is taken. */
static struct program_place *free_place(struct sessions *sessions, uint64_t now_ns)
{
	for (unsigned i = 0; i < PROGRAM_PLACES; i++)
		if (!is_taken(&sessions->place[i], now_ns))
			return &sessions->place[i];
	return NULL;
}

/* The lowest beginning from which on there is room; the first guess is 0, others are the ends of places. */
static int find_room(const struct sessions *sessions, uint32_t size, uint64_t now_ns, uint32_t *at)
{
	uint32_t room = sessions->context->offers ? sessions->context->offers->layout.programs_size : 0;
	*at = 0;
	for (unsigned i = 0; i < PROGRAM_PLACES; i++) {
		const struct program_place *place = &sessions->place[i];
		if (!is_taken(place, now_ns) || place->at >= *at + size || *at >= place->at + place->size)
			continue;
		*at = place->at + place->size;
		i = UINT32_MAX; /* from the beginning */
	}
	return *at <= room && room - *at >= size ? 0 : -1;
}

static struct program_place *take_place(struct sessions *sessions, uint32_t size, uint64_t now_ns)
{
	uint32_t at;
	struct program_place *place = free_place(sessions, now_ns);
	size = (size + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT * PROGRAM_ALIGNMENT;
	if (!place || find_room(sessions, size, now_ns, &at))
		return NULL;
	*place = (struct program_place){.at = at, .size = size, .used = 1};
	return place;
}

static void leave_place(struct sessions *sessions, unsigned slot, int receiving)
{
	struct program_place *place = sessions->program[slot][receiving];
	sessions->program[slot][receiving] = NULL;
	if (!place)
		return;
	place->used = 0;
	place->free_ns = clock_monotonic_ns() + PLACE_REST_NS;
}

static void free_messages(struct session_messages *messages)
{
	free(messages->program);
	free(messages->text);
	*messages = (struct session_messages){0};
}

int session_set_messages(struct sessions *sessions, struct session *session, int receiving, const struct session_messages *messages)
{
	struct session_messages *own = receiving ? &session->receive : &session->send;
	struct program_place *place = NULL;
	receiving = receiving != 0;
	if (messages->program) {
		place = take_place(sessions, messages->program_size, clock_monotonic_ns());
		if (!place)
			return -1;
		/* Programs keep what they have verified by place and number. */
		((struct lorg_match_head *)messages->program)->number = ++sessions->program_number ? sessions->program_number : 1;
	}
	leave_place(sessions, session->slot, receiving);
	free_messages(own);
	*own = *messages;
	sessions->program[session->slot][receiving] = place;
	/* The program before its number. */
	each_arena(sessions, put_programs);
	sessions_publish(sessions);
	return 0;
}

/* ---- the table -------------------------------------------------------------------- */

struct sessions *sessions_create(struct family_context *context)
{
	struct sessions *sessions = calloc(1, sizeof *sessions);
	if (!sessions)
		return NULL;
	sessions->context = context;
	context->sessions = sessions;
	sessions->flags = flags_create(sessions);
	sessions->router = router_create(sessions);
	sessions->functions = function_traces_create(sessions);
	if (!sessions->flags || !sessions->router || !sessions->functions) {
		sessions_free(sessions);
		context->sessions = NULL;
		return NULL;
	}
	sessions_publish(sessions);
	return sessions;
}

void sessions_free(struct sessions *sessions)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			session_remove(sessions, &sessions->slot[slot], "lorgd ends");
	if (sessions->functions)
		function_traces_free(sessions->functions);
	if (sessions->router)
		router_free(sessions->router);
	if (sessions->flags)
		flags_free(sessions->flags);
	free(sessions->rules);
	free(sessions);
}

/* The one that has been free for longest: what is late of the session before is not taken for the new one's. */
static struct session *free_slot(struct sessions *sessions)
{
	struct session *best = NULL;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (!session->used && (!best || session->number < best->number))
			best = session;
	}
	return best;
}

static struct session *begin(struct sessions *sessions, struct session *session, uint64_t number, const char *name, struct tracer *tracer)
{
	*session = (struct session){
		.slot = (unsigned)(session - sessions->slot),
		.number = number,
		.used = 1,
		.tracer = tracer,
		.message_length = LORG_MESSAGE_LENGTH,
	};
	snprintf(session->name, sizeof session->name, "%s", name);
	for (int i = 0; i < 8; i++)
		session->system_limits[i] = UINT64_MAX;
	sessions->count++;
	tracer->number = number;
	session->since = clock_tick(&sessions->context->clock);
	return session;
}

struct session *session_add(struct sessions *sessions, const char *name, struct tracer *tracer, const void *owner, int persist)
{
	struct session *session = free_slot(sessions);
	if (!session)
		return NULL;
	each_process(sessions, clear_stray, NULL);
	begin(sessions, session, ++sessions->next_number, name, tracer);
	session->owner = owner;
	session->persist = persist;
	sessions_publish(sessions);
	router_session_begins(sessions, session);
	return session;
}

/* ---- sessions of a lorgd that was killed --------------------------------------- */

void sessions_take_over(struct sessions *sessions, uint64_t epoch)
{
	enum { NUMBERS_A_LIFE = 20 /* bits */ };
	sessions->program_number = (uint32_t)(epoch << NUMBERS_A_LIFE);
	for (unsigned slot = 0; slot < SESSION_SLOTS; slot++)
		sessions->published[slot].generation = (uint32_t)(epoch << NUMBERS_A_LIFE);
	sessions->restoring = 1;
	for (uint32_t i = 0; i < sessions->context->family_count; i++)
		images_pass(sessions->context->families[i], clock_monotonic_ns());
}

struct session *session_restore(struct sessions *sessions, unsigned slot, uint64_t number, const char *name, struct tracer *tracer)
{
	if (slot < SESSION_FIRST_SLOT || slot >= SESSION_SLOTS || sessions->slot[slot].used)
		return NULL;
	struct session *session = begin(sessions, &sessions->slot[slot], number, name, tracer);
	sessions->restoring = 1;
	session->persist = 1;
	if (number > sessions->next_number)
		sessions->next_number = number;
	router_session_begins(sessions, session);
	return session;
}

/* The flags that a process has are those that it had all the time. */
static void adopt_flags(struct sessions *sessions, struct family *family, uint32_t index, void *context)
{
	const struct lorg_process *entry = process_entry(family, index);
	struct flags_key key = {.birth = entry->birth_tick, .fd = -1};
	uint32_t image = entry->image;
	(void)context;
	if (!family->adopted || __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) < LORG_PROCESS_ALIVE || image >= LORG_IMAGES)
		return;
	memcpy(key.image, family_image_entry(family, image)->id, sizeof key.image);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		uint32_t flags = __atomic_load_n(&entry->session[slot].flags, __ATOMIC_RELAXED);
		flags &= (uint32_t)LORG_TRACE_ALL | LORG_TRACE_CPU_TIMESTAMP;
		if (flags && sessions->slot[slot].used)
			session_flags_told(sessions, &key, slot, sessions->slot[slot].since, flags, 0);
	}
}

/* Nothing stands in its place where it is nobody's. */
static void adopt_rule(struct sessions *sessions, struct family *family, unsigned place)
{
	const struct lorg_program_flags *told = (const struct lorg_program_flags *)(family->memory.at + family->layout.program_flags) + place;
	const struct lorg_program_flags said = *told; /* copied, then checked */
	struct program_rule *rule = NULL;
	if (said.image && said.image <= LORG_IMAGES && session_at(sessions, said.session) && (said.flags & LORG_TRACE_ALL))
		rule = add_rule(sessions, family, place);
	if (rule) {
		rule->said = said;
		rule->said.flags &= LORG_TRACE_ALL;
	}
	put_rule_at(family, place, rule ? &rule->said : NULL);
}

void sessions_adopt(struct sessions *sessions)
{
	for (uint32_t i = 0; i < sessions->context->family_count; i++) {
		struct family *family = sessions->context->families[i];
		for (unsigned place = 0; family->adopted && place < LORG_PROGRAM_FLAGS; place++)
			adopt_rule(sessions, family, place);
	}
	each_process(sessions, adopt_flags, NULL);
	each_process(sessions, clear_stray, NULL);
	flags_restore(sessions);
	sessions_look(sessions);
	sessions_publish(sessions);
	sessions->restoring = 0; /* and now they are settled: collector_lead_adopted */
}

void session_remove(struct sessions *sessions, struct session *session, const char *why)
{
	struct tracer *tracer = session->tracer;
	session->defaults = (struct session_defaults){0};
	for (int i = 0; i < 8; i++)
		session->system_limits[i] = UINT64_MAX;
	session_functions_end(sessions, session);
	session->function_gates = 0;
	/* First for those to come, then for those that are there. */
	sessions_publish(sessions);
	drop_rules(sessions, session->slot);
	each_process(sessions, clear_flags, session);
	/* What was recorded still arrives. */
	router_session_ends(sessions, session);
	flags_session_ends(sessions, session);
	leave_place(sessions, session->slot, 0);
	leave_place(sessions, session->slot, 1);
	session->used = 0;
	sessions->count--;
	sessions_look(sessions);
	sessions_publish(sessions);
	each_process(sessions, clear_stray, NULL);
	session->tracer = NULL;
	session->owner = NULL;
	free_messages(&session->send);
	free_messages(&session->receive);
	if (tracer && tracer->ended)
		tracer->ended(tracer, why);
	if (tracer)
		tracer->operations->end(tracer, why);
}

void sessions_rest(struct sessions *sessions, const char *why)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		/* Directories have all that there is, and clients come back by themselves. */
		if (!session->used || !session->tracer || session->tracer->operations->is_process)
			continue;
		session->tracer->operations->end(session->tracer, why);
		session->tracer = NULL;
	}
}

struct session *session_at(struct sessions *sessions, unsigned slot)
{
	if (slot < SESSION_FIRST_SLOT || slot >= SESSION_SLOTS || !sessions->slot[slot].used)
		return NULL;
	return &sessions->slot[slot];
}

struct session *session_numbered(struct sessions *sessions, uint64_t number)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used && sessions->slot[slot].number == number)
			return &sessions->slot[slot];
	return NULL;
}

struct session *session_named(struct sessions *sessions, const char *name, int *several)
{
	struct session *found = NULL;
	*several = 0;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (!session->used || strcmp(session->name, name) != 0)
			continue;
		*several = found != NULL;
		found = session;
		if (*several)
			return NULL;
	}
	return found;
}

/* ---- the pass ------------------------------------------------------------------------ */

/* Why the session is to end now; NULL: it is not. */
static const char *end_of(struct session *session)
{
	const char *why = NULL;
	if (session->ending)
		return session->why[0] ? session->why : "it was ended";
	if (session->tracer->operations->state(session->tracer, &why) == TRACER_GONE)
		return why ? why : "its tracer has gone";
	if (session->limits.events && session->events >= session->limits.events)
		return "its limit on events was reached";
	return NULL;
}

void sessions_pass(struct sessions *sessions, uint64_t now_ns)
{
	session_functions_pass(sessions, now_ns);
	router_pass(sessions, now_ns);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		const char *why = session->used ? end_of(session) : NULL;
		if (why)
			session_remove(sessions, session, why);
	}
	drop_rules(sessions, 0);
	if (now_ns < sessions->look_ns)
		return;
	sessions->look_ns = now_ns + LOOK_STEP_NS;
	each_process(sessions, clear_stray, NULL);
	if (!sessions->count)
		return;
	sessions_look(sessions);
	sessions_publish(sessions);
}

const struct live session_live = {
	.create = sessions_create,
	.free = sessions_free,
	.settle = sessions_settle,
	.pass = sessions_pass,
	.packet = router_packet,
	.process_over = router_process_over,
	.image_over = router_image_over,
	.note = router_note,
	.is_live = router_is_live,
};
