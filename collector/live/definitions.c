/* SPDX-License-Identifier: MIT */
/* definitions.c: see definitions.h. */
#include "collector/live/definitions.h"

#include <stdlib.h>
#include <string.h>

#include <lorg/match.h>

#include "collector/event/event.h"

enum {
	GROWN_AT = 1 << 20,	/* bytes more than twice what was needed */
};

static const uint64_t ended_for_ns = 5000000000; /* what belongs to programs that have ended is kept for so long */

/* A packet, of definitions alone. */
struct definition_block {
	uint32_t length;
	_Alignas(8) uint8_t packet[];
};

/* ---- one event ------------------------------------------------------------- */

/* What an event is the newest word on, within its image; an event with no such place stays, or is not needed for long. */
struct place {
	enum { PLACE_OF_ITS_OWN, PLACE_NAMED, PLACE_NONE } kind;
	uint64_t high, low;
};

static struct place named(uint64_t high, uint64_t low)
{
	return (struct place){PLACE_NAMED, high, low};
}

static struct place place_of(const struct event_view *view)
{
	static const struct place own = {PLACE_OF_ITS_OWN, 0, 0}, none = {PLACE_NONE, 0, 0};
	uint64_t id = (uint64_t)view->id << 48;
	switch (view->id) {
	case LORG_EVENT_IMAGE:
	case LORG_EVENT_CLOCK: return named(id, 0);
	case LORG_EVENT_SESSION: return named(id, event_number_named(view, "slot", 0));
	case LORG_EVENT_HOOK: return named(id, event_number_named(view, "hook", 0));
	case LORG_EVENT_HOOKED_FUNCTION: return named(id, event_number_named(view, "function", 0));
	case LORG_EVENT_MODULE:
	case LORG_EVENT_MODULE_UNLOADED: return named(id, event_number_named(view, "base", 0));
	case LORG_EVENT_OPEN:
	case LORG_EVENT_CONNECTED: return named(id, event_number_named(view, "fd", 0));
	case LORG_EVENT_REGISTER:
		return named(id | event_number_named(view, "kind", 0), event_number_named(view, "tid", 0) << 32 |
									       (uint32_t)event_number_named(view, "fd", 0));
	case LORG_EVENT_FUNCTION: return own;
	case LORG_EVENT_EXIT: return event_number_named(view, "program", 0) ? own : none;
	default: return none;
	}
}

/* Definitions that the reader looks at. */
static int is_wanted(uint32_t id)
{
	switch (id) {
	case LORG_EVENT_STRING:
	case LORG_EVENT_CHANNEL:
	case LORG_EVENT_MARK:
	case LORG_EVENT_CPU_TIME: /* kept in cpu_times */
	case LORG_EVENT_LOST:
	case LORG_EVENT_GAP: return 0;
	default: return event_is_definition(id);
	}
}

/* ---- packets of definitions ------------------------------------------------- */

static int add_block(struct definition_block ***blocks, size_t *count, size_t *room, struct definition_block *block)
{
	if (*count == *room) {
		size_t more = *room ? *room * 2 : 64;
		struct definition_block **grown = reallocarray(*blocks, more, sizeof(struct definition_block *));
		if (!grown)
			return -1;
		*blocks = grown;
		*room = more;
	}
	(*blocks)[(*count)++] = block;
	return 0;
}

static struct definition_block *block_begin(const struct lorg_packet *head, uint32_t room)
{
	struct definition_block *block = malloc(sizeof *block + room);
	if (!block)
		return NULL;
	memcpy(block->packet, head, sizeof *head);
	block->length = sizeof *head;
	return block;
}

static void block_add(struct definition_block *block, const uint8_t *event, uint32_t length)
{
	memcpy(block->packet + block->length, event, length);
	block->length += length;
}

static void block_end(struct definition_block *block)
{
	struct lorg_packet *head = (struct lorg_packet *)(void *)block->packet;
	head->content_bits = head->packet_bits = (uint64_t)block->length * 8;
	head->last = 0; /* no checksum */
	head->events_discarded = 0;
}

/* Calls `each` for the events of a packet, with the flags of `context`'s own making. */
typedef void each_event(void *context, const uint8_t *event, const struct event_view *view);

static void walk(const uint8_t *packet, uint32_t length, uint64_t begin, each_event *each, void *context)
{
	uint32_t at = LORG_PACKET_HEAD;
	uint64_t previous = begin;
	struct event_view view;
	while (at < length) {
		enum event_status status = event_decode(packet + at, length - at, previous, &view);
		if (status == EVENT_BAD)
			return;
		if (status == EVENT_OK) {
			previous = view.tick;
			each(context, packet + at, &view);
		}
		at += view.length;
	}
}

/* ---- taking ------------------------------------------------------------------ */

struct taking {
	struct definitions *definitions;
	const struct lorg_packet *head;
	struct definition_block *block; /* NULL: nothing yet */
	uint32_t room;
	int failed;
};

/* The flags from that tick on; of a port where the packet is about ports. */
static void take_flags(struct taking *taking, const struct event_view *view)
{
	EVENT_FIELDS(view, FLAGS, told);
	struct live_flags_key key = {.birth = taking->head->process_birth, .fd = -1};
	memcpy(key.image, taking->head->image, sizeof key.image);
	if (told.session != taking->head->session)
		return;
	if (taking->head->holds & LORG_HOLDS_PORT_FLAGS) {
		key.birth = 0;
		key.fd = (int32_t)told.tid;
		key.generation = (uint32_t)(told.on >> 32);
	}
	if (live_flags_set(taking->definitions->flags, &key, view->effective, (uint32_t)told.on))
		taking->failed = 1;
}

static void take_cpu_time(struct taking *taking, const struct event_view *view)
{
	EVENT_FIELDS(view, CPU_TIME, time);
	struct cpu_times *times = taking->definitions->cpu_times;
	const struct lorg_packet *head = taking->head;
	if (cpu_times_add(times, head->image, head->process_birth, time.entry, time.at_entry) ||
	    cpu_times_add(times, head->image, head->process_birth, view->tick, time.ns))
		taking->failed = 1;
}

static void take_event(void *context, const uint8_t *event, const struct event_view *view)
{
	struct taking *taking = context;
	if (view->id == LORG_EVENT_CPU_TIME) {
		take_cpu_time(taking, view);
		return;
	}
	if (view->id == LORG_EVENT_FLAGS && (taking->head->holds & LORG_HOLDS_UNSHOWN)) {
		take_flags(taking, view);
		return;
	}
	if (!is_wanted(view->id) || taking->failed)
		return;
	if (!taking->block)
		taking->block = block_begin(taking->head, taking->room);
	if (!taking->block)
		taking->failed = 1;
	else
		block_add(taking->block, event, view->length);
}

int definitions_begin(struct definitions *definitions)
{
	*definitions = (struct definitions){.trace = trace_begin(), .flags = live_flags_new(), .cpu_times = cpu_times_new()};
	if (definitions->trace && definitions->flags && definitions->cpu_times)
		return 0;
	definitions_end(definitions);
	return -1;
}

static void free_blocks(struct definition_block **blocks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(blocks[i]);
	free(blocks);
}

void definitions_end(struct definitions *definitions)
{
	trace_close(definitions->trace);
	live_flags_free(definitions->flags);
	cpu_times_free(definitions->cpu_times);
	free_blocks(definitions->blocks, definitions->count);
}

int definitions_take(struct definitions *definitions, const struct lorg_packet *head, const uint8_t *packet, uint32_t length)
{
	struct taking taking = {.definitions = definitions, .head = head, .room = length};
	if ((head->holds & LORG_HOLDS_KNOWN) && !(head->holds & (LORG_HOLDS_DEFINITIONS | LORG_HOLDS_UNSHOWN)))
		return 0;
	walk(packet, length, head->begin, take_event, &taking);
	struct definition_block *block = taking.block;
	if (!block)
		return taking.failed ? -1 : 0;
	struct definition_block *cut = realloc(block, sizeof *block + block->length);
	if (cut)
		block = cut;
	block_end(block);
	if (add_block(&definitions->blocks, &definitions->count, &definitions->room, block)) {
		free(block);
		return -1;
	}
	definitions->bytes += block->length;
	return trace_define(definitions->trace, block->packet, block->length) || taking.failed ? -1 : 0;
}

/* ---- leaving out --------------------------------------------------------------- */

int definitions_grown(const struct definitions *definitions)
{
	return definitions->bytes > 2 * definitions->compact_bytes + GROWN_AT;
}

/* The newest event of each place. */
struct newest {
	struct slot {
		uint64_t image, high, low;
		const uint8_t *event; /* NULL: free */
	} *slots;
	size_t room, count; /* room: a power of two */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static struct slot *slot_of(struct newest *newest, uint64_t image, struct place place)
{
	size_t at = mix(mix(mix(0, image), place.high), place.low) & (newest->room - 1);
	for (; newest->slots[at].event; at = (at + 1) & (newest->room - 1)) {
		const struct slot *slot = &newest->slots[at];
		if (slot->image == image && slot->high == place.high && slot->low == place.low)
			break;
	}
	return &newest->slots[at];
}

static int make_room(struct newest *newest)
{
	if (newest->count * 2 < newest->room)
		return 0;
	struct newest next = {.room = newest->room ? newest->room * 2 : 1024, .count = newest->count};
	next.slots = calloc(next.room, sizeof *next.slots);
	if (!next.slots)
		return -1;
	for (size_t i = 0; i < newest->room; i++) {
		const struct slot *slot = &newest->slots[i];
		if (slot->event)
			*slot_of(&next, slot->image, (struct place){PLACE_NAMED, slot->high, slot->low}) = *slot;
	}
	free(newest->slots);
	*newest = next;
	return 0;
}

struct compacting {
	const struct trace *trace;
	const unsigned char *needed; /* by number of the image */
	struct newest newest;
	uint64_t image; /* number of the block's; hooked functions are all programs' */
	struct definition_block *block;
	int failed;
};

static uint64_t owner_of(const struct compacting *compacting, const struct event_view *view)
{
	return view->id == LORG_EVENT_HOOKED_FUNCTION ? UINT64_MAX : compacting->image;
}

static void note_newest(void *context, const uint8_t *event, const struct event_view *view)
{
	struct compacting *compacting = context;
	struct place place = place_of(view);
	if (place.kind != PLACE_NAMED || compacting->failed)
		return;
	if (make_room(&compacting->newest)) {
		compacting->failed = 1;
		return;
	}
	struct slot *slot = slot_of(&compacting->newest, owner_of(compacting, view), place);
	compacting->newest.count += !slot->event;
	*slot = (struct slot){owner_of(compacting, view), place.high, place.low, event};
}

static void keep_newest(void *context, const uint8_t *event, const struct event_view *view)
{
	struct compacting *compacting = context;
	struct place place = place_of(view);
	if (place.kind == PLACE_NONE)
		return;
	if (place.kind == PLACE_NAMED && slot_of(&compacting->newest, owner_of(compacting, view), place)->event != event)
		return;
	block_add(compacting->block, event, view->length);
}

static const struct trace_image *image_of(const struct trace *trace, const uint8_t id[16])
{
	uint64_t low, high;
	memcpy(&low, id, 8);
	memcpy(&high, id + 8, 8);
	return trace_image_by_id(trace, low, high);
}

static const struct lorg_packet *head_of(const struct definition_block *block)
{
	return (const struct lorg_packet *)(const void *)block->packet;
}

/* Programs that live, have lately, or have given their modules to some that do. */
static unsigned char *needed_images(const struct trace *trace, uint64_t now_ns)
{
	unsigned char *needed = calloc(trace->image_count + 1, 1);
	for (unsigned i = 0; needed && i < trace->image_count; i++) {
		const struct trace_image *image = trace->images[i];
		if (image->exit.known && trace_time(trace, image->exit.tick) + ended_for_ns < now_ns)
			continue;
		for (unsigned steps = 0; image && !needed[image->number] && steps <= trace->image_count; steps++) {
			needed[image->number] = 1;
			image = image->parent;
		}
	}
	return needed;
}

struct pruning {
	const struct trace *trace, *next;
	const unsigned char *needed;
	uint64_t *ended; /* births of processes that have ended, sorted */
	size_t ended_count;
};

static int numbers_in_order(const void *left, const void *right)
{
	uint64_t a, b;
	memcpy(&a, left, sizeof a);
	memcpy(&b, right, sizeof b);
	return a < b ? -1 : a > b;
}

static void list_ended(struct pruning *pruning, uint64_t now_ns)
{
	const struct trace *trace = pruning->trace;
	pruning->ended = calloc(trace->process_count + 1, sizeof *pruning->ended);
	for (unsigned i = 0; pruning->ended && i < trace->process_count; i++)
		if (trace->processes[i].exit.known && trace_time(trace, trace->processes[i].exit.tick) + ended_for_ns < now_ns)
			pruning->ended[pruning->ended_count++] = trace->processes[i].birth;
	if (pruning->ended_count)
		qsort(pruning->ended, pruning->ended_count, sizeof *pruning->ended, numbers_in_order);
}

static int flags_needed(void *context, const struct live_flags_key *key)
{
	const struct pruning *pruning = context;
	const struct trace_image *image = image_of(pruning->trace, key->image);
	if (!image || !pruning->needed[image->number])
		return 0;
	if (!key->birth)
		return trace_port(pruning->next, image_of(pruning->next, key->image), key->fd, key->generation) != NULL;
	return !pruning->ended_count ||
	       !bsearch(&key->birth, pruning->ended, pruning->ended_count, sizeof key->birth, numbers_in_order);
}

static int for_needed(struct compacting *compacting, const struct definition_block *block, each_event *each)
{
	const struct trace_image *image = image_of(compacting->trace, head_of(block)->image);
	if (image && !compacting->needed[image->number])
		return 0;
	compacting->image = image ? image->number : UINT64_MAX - 1;
	walk(block->packet, block->length, head_of(block)->begin, each, compacting);
	return 1;
}

/* The packets that are left. 0, or -1 when out of memory. */
static int keep_needed(struct compacting *compacting, const struct definitions *from, struct definitions *to)
{
	for (size_t i = 0; i < from->count && !compacting->failed; i++)
		for_needed(compacting, from->blocks[i], note_newest);
	if (!compacting->newest.room && make_room(&compacting->newest))
		return -1;
	for (size_t i = 0; i < from->count && !compacting->failed; i++) {
		const struct definition_block *block = from->blocks[i];
		compacting->block = block_begin(head_of(block), block->length);
		if (!compacting->block)
			return -1;
		if (!for_needed(compacting, block, keep_newest) || compacting->block->length == LORG_PACKET_HEAD) {
			free(compacting->block);
			continue;
		}
		block_end(compacting->block);
		if (add_block(&to->blocks, &to->count, &to->room, compacting->block)) {
			free(compacting->block);
			return -1;
		}
		to->bytes += compacting->block->length;
		if (trace_define(to->trace, compacting->block->packet, compacting->block->length))
			return -1;
	}
	return compacting->failed ? -1 : 0;
}

void definitions_compact(struct definitions *definitions, uint64_t now_ns, struct definitions_old *old)
{
	struct definitions next = {.trace = trace_begin()};
	struct compacting compacting = {.trace = definitions->trace};
	unsigned char *needed = needed_images(definitions->trace, now_ns);
	compacting.needed = needed;
	*old = (struct definitions_old){.trace = NULL};
	int good = next.trace && needed && keep_needed(&compacting, definitions, &next) == 0 &&
		   trace_show(next.trace, NULL, 0) == 0;
	free(compacting.newest.slots);
	if (good) {
		struct pruning pruning = {.trace = definitions->trace, .next = next.trace, .needed = needed};
		list_ended(&pruning, now_ns);
		live_flags_prune(definitions->flags, flags_needed, &pruning);
		free(pruning.ended);
		*old = (struct definitions_old){definitions->trace, definitions->blocks, definitions->count};
		next.flags = definitions->flags;
		next.cpu_times = definitions->cpu_times;
		next.compact_bytes = next.bytes;
		*definitions = next;
	} else {
		trace_close(next.trace);
		free_blocks(next.blocks, next.count);
		definitions->compact_bytes = definitions->bytes; /* tried again when there is twice as much */
	}
	free(needed);
}

void definitions_old_done(struct definitions_old *old)
{
	trace_close(old->trace);
	free_blocks(old->blocks, old->count);
	*old = (struct definitions_old){.trace = NULL};
}
