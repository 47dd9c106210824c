/* SPDX-License-Identifier: MIT */
/* profile.c: see profile.h. The loop over enter and exit events is walk_packet(). */
#include "collector/read/profile.h"

#include <stdlib.h>
#include <string.h>

#include <lorg/plan.h>

#include "collector/read/index.h"
#include "collector/read/part.h"

struct frame {
	uint32_t function; /* index in the profile */
	uint64_t entry, children;
};

/* From function slots to indices + 1 in the profile; one a family. */
struct slot_map {
	uint32_t *index;
	uint32_t room;
};

/* A call that was told at its end. */
struct done_call {
	uint64_t entry, took;
};

enum { DONE_CALLS_KEPT = 1 << 16 };

struct walker {
	const struct trace *trace;
	struct profile *profile;
	struct slot_map *maps; /* by number of the family's first image */
	struct slot_map *map;  /* of the thread in hand */
	const struct trace_process *process;
	struct profile_thread *thread;
	struct frame *frames;
	size_t depth, frame_room;
	struct done_call *done; /* of the thread in hand; those that may be inside of others, by entry */
	unsigned done_count, done_room;
	struct number_table address_table, port_table;
	unsigned function_room, port_room, count_room;
	uint64_t tick; /* of the event in hand, then of the last one */
	int out_of_memory;
	struct part_room room; /* of the event in hand */
};

uint64_t trace_ticks_ns(const struct trace *trace, uint64_t ticks)
{
	const struct trace_index *index = trace->index;
	if (index->clock_count == 0)
		return ticks;
	return (uint64_t)((unsigned __int128)ticks * index->clocks[index->clock_count - 1].multiplier >> 32);
}

/* ---- tables ------------------------------------------------------------ */

static int grow(struct walker *walker, void *array, unsigned count, unsigned *room, size_t element)
{
	struct trace_index unused = {.out_of_memory = 0};
	if (index_grow(&unused, array, count, room, element))
		return 1;
	walker->out_of_memory = 1;
	return 0;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static uint64_t address_hash(const struct trace_image *family, uint64_t address)
{
	return mix(mix(1, family->number), address);
}

static uint64_t port_hash(const struct trace_image *image, uint64_t object, uint32_t generation)
{
	return mix(mix(mix(2, image->number), object), generation);
}

static void place(struct number_table *table, uint64_t hash, uint32_t number)
{
	uint32_t at = (uint32_t)hash & (table->room - 1);
	while (table->slots[at])
		at = (at + 1) & (table->room - 1);
	table->slots[at] = number + 1;
}

/* Doubles a table that is half full; the caller places its numbers again. 1: done, 0: not needed, -1: no memory. */
static int table_doubled(struct walker *walker, struct number_table *table)
{
	if (table->count * 2 < table->room)
		return 0;
	uint32_t room = table->room ? table->room * 2 : 64;
	uint32_t *slots = room > table->room ? calloc(room, sizeof *slots) : NULL;
	if (!slots) {
		walker->out_of_memory = 1;
		return -1;
	}
	free(table->slots);
	table->slots = slots;
	table->room = room;
	return 1;
}

static uint32_t new_function(struct walker *walker, uint32_t slot, int by_address, uint64_t address)
{
	struct profile *profile = walker->profile;
	if (!grow(walker, &profile->functions, profile->function_count, &walker->function_room, sizeof *profile->functions))
		return UINT32_MAX;
	profile->functions[profile->function_count] = (struct profile_function){
		.image = walker->process->image,
		.tick = walker->tick,
		.slot = slot,
		.by_address = by_address,
		.address = address,
	};
	return profile->function_count++;
}

/* Functions by address, and by slots that no table can have. */
static uint32_t function_by_address(struct walker *walker, uint64_t address, int by_address, uint32_t slot)
{
	struct number_table *table = &walker->address_table;
	struct profile *profile = walker->profile;
	const struct trace_image *family = walker->process->image->family;
	uint64_t key = by_address ? address : ~(uint64_t)slot;
	int doubled = table_doubled(walker, table);
	if (doubled < 0)
		return UINT32_MAX;
	for (uint32_t i = 0; doubled && i < profile->function_count; i++) {
		const struct profile_function *function = &profile->functions[i];
		if (function->by_address || function->slot >= LORG_FUNCTIONS)
			place(table,
			      address_hash(function->image->family,
					   function->by_address ? function->address : ~(uint64_t)function->slot),
			      i);
	}
	uint64_t hash = address_hash(family, key);
	for (uint32_t at = (uint32_t)hash & (table->room - 1); table->slots[at]; at = (at + 1) & (table->room - 1)) {
		const struct profile_function *function = &profile->functions[table->slots[at] - 1];
		if (function->image->family == family && function->by_address == by_address &&
		    (by_address ? function->address == address : function->slot == slot))
			return table->slots[at] - 1;
	}
	uint32_t number = new_function(walker, slot, by_address, address);
	if (number == UINT32_MAX)
		return number;
	place(table, hash, number);
	table->count++;
	return number;
}

static __attribute__((noinline)) uint32_t function_by_slot_slow(struct walker *walker, uint32_t slot)
{
	struct slot_map *map = walker->map;
	if (slot >= LORG_FUNCTIONS)
		return function_by_address(walker, 0, 0, slot);
	if (slot >= map->room) {
		uint32_t room = map->room ? map->room : 256;
		while (room <= slot)
			room *= 2;
		uint32_t *grown = reallocarray(map->index, room, sizeof *grown);
		if (!grown) {
			walker->out_of_memory = 1;
			return UINT32_MAX;
		}
		memset(grown + map->room, 0, (room - map->room) * sizeof *grown);
		map->index = grown;
		map->room = room;
	}
	if (!map->index[slot]) {
		uint32_t number = new_function(walker, slot, 0, 0);
		if (number == UINT32_MAX)
			return number;
		map->index[slot] = number + 1;
	}
	return map->index[slot] - 1;
}

static inline uint32_t function_by_slot(struct walker *walker, uint32_t slot)
{
	const struct slot_map *map = walker->map;
	if (__builtin_expect(slot < map->room && map->index[slot], 1))
		return map->index[slot] - 1;
	return function_by_slot_slow(walker, slot);
}

/* ---- frames ------------------------------------------------------------ */

static __attribute__((noinline)) int more_frames(struct walker *walker)
{
	size_t room = walker->frame_room ? walker->frame_room * 2 : 256;
	struct frame *grown = reallocarray(walker->frames, room, sizeof *grown);
	if (!grown) {
		walker->out_of_memory = 1;
		return 0;
	}
	walker->frames = grown;
	walker->frame_room = room;
	return 1;
}

static inline void enter(struct walker *walker, uint32_t number)
{
	if (__builtin_expect(number == UINT32_MAX, 0))
		return;
	if (__builtin_expect(walker->depth == walker->frame_room, 0) && !more_frames(walker))
		return;
	struct profile_function *function = &walker->profile->functions[number];
	function->entries++;
	function->active++;
	walker->frames[walker->depth++] = (struct frame){number, walker->tick, 0};
}

/* A call of which no return will be told: it is counted, and is no caller of what comes next. */
static int returns_are_told(const struct walker *walker, uint32_t function)
{
	const struct trace *trace = walker->trace;
	const struct trace_hooked *hooked = trace_hooked(trace, function);
	return trace->event_counts[LORG_EVENT_RETURN] + trace->event_counts[LORG_EVENT_RETURN_FROM] != 0 &&
	       !(hooked && (hooked->flags & LORG_PLAN_ENTRY_ONLY));
}

static void enter_hooked(struct walker *walker, uint32_t function)
{
	uint32_t number = function_by_slot(walker, function);
	walker->thread->calls++;
	if (number == UINT32_MAX)
		return;
	if (returns_are_told(walker, function))
		enter(walker, number);
	else
		walker->profile->functions[number].entries++;
}

static inline void pop(struct walker *walker)
{
	struct frame *frame = &walker->frames[--walker->depth];
	struct profile_function *function = &walker->profile->functions[frame->function];
	uint64_t total = walker->tick - frame->entry;
	function->self += total - (frame->children < total ? frame->children : total);
	if (--function->active == 0)
		function->total += total;
	if (walker->depth > 0)
		walker->frames[walker->depth - 1].children += total;
}

/* Ends all frames above the innermost one of that function; 0 when it has none. */
static inline int unwind_to(struct walker *walker, uint32_t number)
{
	if (number == UINT32_MAX || walker->profile->functions[number].active == 0)
		return 0;
	while (walker->frames[walker->depth - 1].function != number)
		pop(walker);
	return 1;
}

static inline void leave(struct walker *walker, uint32_t number)
{
	if (unwind_to(walker, number))
		pop(walker);
	else
		walker->thread->exits_unmatched++;
}

static void close_frames(struct walker *walker)
{
	if (!walker->thread)
		return;
	walker->thread->frames_open += walker->depth;
	walker->done_count = 0;
	while (walker->depth > 0)
		pop(walker);
}

/* ---- other events ------------------------------------------------------ */

static struct profile_port *port_of(struct walker *walker, uint64_t object, uint32_t generation)
{
	struct number_table *table = &walker->port_table;
	struct profile *profile = walker->profile;
	const struct trace_image *image = walker->process->image;
	int doubled = table_doubled(walker, table);
	if (doubled < 0)
		return NULL;
	for (uint32_t i = 0; doubled && i < profile->port_count; i++)
		place(table, port_hash(profile->ports[i].image, profile->ports[i].object, profile->ports[i].generation), i);
	uint64_t hash = port_hash(image, object, generation);
	for (uint32_t at = (uint32_t)hash & (table->room - 1); table->slots[at]; at = (at + 1) & (table->room - 1)) {
		struct profile_port *port = &profile->ports[table->slots[at] - 1];
		if (port->image == image && port->object == object && port->generation == generation)
			return port;
	}
	if (!grow(walker, &profile->ports, profile->port_count, &walker->port_room, sizeof *profile->ports))
		return NULL;
	place(table, hash, profile->port_count);
	profile->ports[profile->port_count] =
		(struct profile_port){.image = image, .object = object, .generation = generation};
	table->count++;
	return &profile->ports[profile->port_count++];
}

static struct trace_text text_field(const struct event_view *view, const char *name)
{
	struct trace_text text;
	text.bytes = event_bytes_named(view, name, &text.length);
	return text;
}

static void count_open(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, OPEN, fields);
	struct profile_port *port = port_of(walker, (uint32_t)fields.fd, fields.generation);
	if (!port)
		return;
	port->driver = fields.driver;
	port->name = text_field(view, "name");
	port->local = text_field(view, "local");
	port->peer = text_field(view, "peer");
}

static void count_connected(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, CONNECTED, fields);
	struct profile_port *port = port_of(walker, (uint32_t)fields.fd, fields.generation);
	if (port && fields.error == 0)
		port->peer = text_field(view, "peer");
}

static void count_send(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, SEND, fields);
	struct profile_port *port = port_of(walker, fields.object, fields.generation);
	if (!port)
		return;
	if (view->id == LORG_EVENT_SEND_TO_NON_EXISTING) {
		port->refused++;
		return;
	}
	port->sent++;
	port->sent_bytes += fields.bytes;
	walker->thread->sent++;
	walker->thread->sent_bytes += fields.bytes;
}

static void count_receive(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, RECEIVE, fields);
	if (fields.flags & LORG_MESSAGE_PEEK)
		return;
	struct profile_port *port = port_of(walker, fields.object, fields.generation);
	if (!port)
		return;
	if (fields.flags & LORG_MESSAGE_EOF) {
		port->ends++;
		return;
	}
	port->received++;
	port->received_bytes += fields.bytes;
	walker->thread->received++;
	walker->thread->received_bytes += fields.bytes;
}

static void count_wait(struct walker *walker, uint32_t hook, uint64_t since, int open)
{
	uint64_t ticks = since && since < walker->tick ? walker->tick - since : 0;
	walker->thread->waits++;
	walker->thread->waited += ticks;
	if (hook >= LORG_HOOKS)
		return;
	struct profile_wait *wait = &walker->profile->waits[hook];
	wait->count++;
	wait->open += (uint64_t)open;
	wait->ticks += ticks;
	if (ticks > wait->longest)
		wait->longest = ticks;
}

static void count_in(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, IN, fields);
	count_wait(walker, fields.hook, fields.since, 0);
}

static void count_open_call(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, OPEN_CALL, fields);
	count_wait(walker, fields.hook, fields.entry, 1);
}

static void count_timeout(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, TIMEOUT, fields);
	if (fields.hook < LORG_HOOKS)
		walker->profile->waits[fields.hook].timeouts++;
}

static void count_allocations(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, COUNTERS, fields);
	walker->thread->words_allocated = fields.words_allocated;
	walker->thread->allocations = fields.allocations;
	walker->thread->frees = fields.frees;
	walker->thread->allocation_failures = fields.allocation_failures;
}

/* The row of a function in the thread in hand. NULL: out of memory. */
static struct profile_count *count_of(struct walker *walker, uint32_t number)
{
	struct profile *profile = walker->profile;
	struct profile_function *function = &profile->functions[number];
	unsigned thread = (unsigned)(walker->thread - profile->threads);
	if (function->row < profile->count_count && profile->counts[function->row].function == number &&
	    profile->counts[function->row].thread == thread)
		return &profile->counts[function->row];
	if (!grow(walker, &profile->counts, profile->count_count, &walker->count_room, sizeof *profile->counts))
		return NULL;
	function->row = profile->count_count;
	profile->counts[profile->count_count] = (struct profile_count){.thread = thread, .function = number};
	return &profile->counts[profile->count_count++];
}

static void count_counters(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, FUNCTION_COUNTERS, counters);
	uint32_t number = function_by_slot(walker, counters.function);
	if (number == UINT32_MAX)
		return;
	struct profile_function *function = &walker->profile->functions[number];
	function->counted += counters.count;
	function->counted_time += counters.time_ticks;
	function->words += counters.words;
	struct profile_count *count = count_of(walker, number);
	if (!count)
		return;
	count->kind |= counters.kind;
	count->count += counters.count;
	count->time += counters.time_ticks;
	count->words += counters.words;
}

/* Of a thread that has ended many calls outside of all others, the first ones are forgotten: they hardly were inside. */
static void forget_half(struct walker *walker)
{
	unsigned kept = walker->done_count / 2;
	memmove(walker->done, walker->done + walker->done_count - kept, kept * sizeof *walker->done);
	walker->done_count = kept;
}

/* What the calls took that were made inside of one that has ended just now; takes them away. */
static uint64_t time_inside(struct walker *walker, uint64_t entry)
{
	uint64_t ticks = 0;
	while (walker->done_count && walker->done[walker->done_count - 1].entry >= entry)
		ticks += walker->done[--walker->done_count].took;
	return ticks;
}

static void keep_done(struct walker *walker, uint64_t entry, uint64_t took)
{
	if (walker->done_count == DONE_CALLS_KEPT)
		forget_half(walker);
	if (grow(walker, &walker->done, walker->done_count, &walker->done_room, sizeof *walker->done))
		walker->done[walker->done_count++] = (struct done_call){entry, took};
}

/* Told at its end, and so are the calls that it made, before it. */
static void count_call_done(struct walker *walker, const struct event_view *view)
{
	EVENT_FIELDS(view, CALL_DONE, done);
	uint32_t number = function_by_slot(walker, done.function);
	walker->thread->calls++;
	if (number == UINT32_MAX)
		return;
	struct profile_function *function = &walker->profile->functions[number];
	uint64_t took = done.entry < view->tick ? view->tick - done.entry : 0;
	uint64_t inside = time_inside(walker, done.entry);
	function->entries++;
	function->total += took;
	function->self += took > inside ? took - inside : 0;
	if (walker->depth > 0 && walker->frames[walker->depth - 1].entry <= done.entry)
		walker->frames[walker->depth - 1].children += took > inside ? took - inside : 0;
	keep_done(walker, done.entry, took);
}

static void count_parts(struct walker *walker, const struct event_view *view);

static void count_other(struct walker *walker, const struct event_view *view)
{
	switch (view->id) {
	case LORG_EVENT_CALL_ENTRY: enter_hooked(walker, (uint32_t)event_number(view, 0)); break;
	case LORG_EVENT_CALL: enter_hooked(walker, (uint32_t)event_number_named(view, "function", 0)); break;
	case LORG_EVENT_RETURN_FROM:
	case LORG_EVENT_EXCEPTION_FROM:
		leave(walker, function_by_slot(walker, (uint32_t)event_number_named(view, "function", 0)));
		break;
	case LORG_EVENT_FUNCTION_COUNTERS: count_counters(walker, view); break;
	case LORG_EVENT_CALL_DONE: count_call_done(walker, view); break;
	case LORG_EVENT_ENTER:
	case LORG_EVENT_ENTER_LINE:
		enter(walker, function_by_slot(walker, (uint32_t)event_number(view, 0)));
		walker->thread->calls++;
		break;
	case LORG_EVENT_EXIT_FUNCTION:
	case LORG_EVENT_EXIT_LINE:
	case LORG_EVENT_RETURN: leave(walker, function_by_slot(walker, (uint32_t)event_number(view, 0))); break;
	case LORG_EVENT_CATCH_LINE: /* it goes on in that function: all it called has been left */
		unwind_to(walker, function_by_slot(walker, (uint32_t)event_number(view, 0)));
		break;
	case LORG_EVENT_ENTER_ADDRESS:
		enter(walker, function_by_address(walker, event_number(view, 0), 1, 0));
		walker->thread->calls++;
		break;
	case LORG_EVENT_EXIT_ADDRESS: leave(walker, function_by_address(walker, event_number(view, 0), 1, 0)); break;
	case LORG_EVENT_OPEN: count_open(walker, view); break;
	case LORG_EVENT_CONNECTED: count_connected(walker, view); break;
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING: count_send(walker, view); break;
	case LORG_EVENT_RECEIVE: count_receive(walker, view); break;
	case LORG_EVENT_IN: count_in(walker, view); break;
	case LORG_EVENT_OPEN_CALL: count_open_call(walker, view); break;
	case LORG_EVENT_TIMEOUT: count_timeout(walker, view); break;
	case LORG_EVENT_COUNTERS: count_allocations(walker, view); break;
	case LORG_EVENT_SENT:
	case LORG_EVENT_RECEIVED:
	case LORG_EVENT_WAITED: count_parts(walker, view); break;
	default: break;
	}
}

/* What the event is shown as, one after the other. */
static void count_parts(struct walker *walker, const struct event_view *view)
{
	struct event_view part;
	unsigned count = part_count(view);
	for (unsigned i = 0; i < count; i++) {
		part_view(view, i, &walker->room, &part);
		count_other(walker, &part);
	}
}

/* ---- all --------------------------------------------------------------- */

/* Packets hold whole events only: trace_open() has cut them to that. */
static void walk_packet(struct walker *walker, const struct trace_packet *packet)
{
	const uint8_t *at = packet->start + LORG_PACKET_HEAD, *end = packet->start + packet->length;
	uint64_t tick = packet->begin > walker->tick ? packet->begin : walker->tick, calls = 0;
	struct event_view view;
	while (at < end && !walker->out_of_memory) {
		uint64_t word;
		memcpy(&word, at, sizeof word);
		uint32_t id = word & 31;
		if (__builtin_expect(id == LORG_EVENT_ENTER || id == LORG_EVENT_EXIT_FUNCTION, 1)) {
			uint64_t next = (tick & ~(uint64_t)LORG_TICK_MASK) | (uint32_t)word >> 5;
			tick = next < tick ? next + LORG_TICK_MASK + 1 : next;
			walker->tick = tick;
			uint32_t number = function_by_slot(walker, (uint32_t)(word >> 32));
			if (id == LORG_EVENT_ENTER) {
				enter(walker, number);
				calls++;
			} else {
				leave(walker, number);
			}
			at += 8;
			continue;
		}
		enum event_status status = event_decode(at, (size_t)(end - at), tick, &view);
		if (status == EVENT_BAD)
			break;
		at += view.length;
		if (status != EVENT_OK)
			continue;
		if (view.tick > tick)
			tick = view.tick;
		walker->tick = tick;
		count_other(walker, &view);
	}
	walker->thread->calls += calls;
}

static int packets_by_process(const void *left, const void *right)
{
	const struct trace_packet *a = *(const struct trace_packet *const *)left,
				  *b = *(const struct trace_packet *const *)right;
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->session != b->session)
		return a->session < b->session ? -1 : 1;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	if (a->stream != b->stream)
		return a->stream < b->stream ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static void begin_thread(struct walker *walker, const struct trace_process *process)
{
	close_frames(walker);
	walker->process = process;
	walker->thread = &walker->profile->threads[process->number];
	walker->map = &walker->maps[process->image->family->number];
	walker->tick = 0;
}

static void walk_all(struct walker *walker, const struct trace_packet **packets)
{
	const struct trace *trace = walker->trace;
	for (size_t i = 0; i < trace->packet_count && !walker->out_of_memory; i++) {
		if (i == 0 || packets[i]->process != packets[i - 1]->process ||
		    packets[i]->session != packets[i - 1]->session)
			begin_thread(walker, &trace->processes[packets[i]->process]);
		walk_packet(walker, packets[i]);
	}
	close_frames(walker);
}

static int any_damage(const struct trace *trace)
{
	for (unsigned i = 0; i < trace->gap_count; i++)
		if (trace->gaps[i].damage)
			return 1;
	return 0;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	free(profile->functions);
	free(profile->counts);
	free(profile->ports);
	free(profile->threads);
	free(profile);
}

struct profile *profile_make(const struct trace *trace)
{
	struct walker walker = {.trace = trace, .out_of_memory = 1};
	const struct trace_packet **packets = calloc(trace->packet_count + 1, sizeof(void *));
	struct profile *profile = calloc(1, sizeof *profile);
	walker.profile = profile;
	walker.maps = calloc(trace->image_count + 1, sizeof *walker.maps);
	if (profile)
		profile->threads = calloc(trace->process_count + 1, sizeof *profile->threads);
	if (packets && profile && walker.maps && profile->threads) {
		walker.out_of_memory = 0;
		for (size_t i = 0; i < trace->packet_count; i++)
			packets[i] = &trace->packets[i];
		if (trace->packet_count > 1)
			qsort(packets, trace->packet_count, sizeof(void *), packets_by_process);
		profile->lower_bounds = trace->lost > 0 || any_damage(trace);
		walk_all(&walker, packets);
	}
	for (unsigned i = 0; walker.maps && i < trace->image_count; i++)
		free(walker.maps[i].index);
	free(walker.maps);
	free(walker.frames);
	free(walker.done);
	free(walker.address_table.slots);
	free(walker.port_table.slots);
	free(packets);
	if (!walker.out_of_memory)
		return profile;
	profile_free(profile);
	return NULL;
}
