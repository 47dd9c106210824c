/* SPDX-License-Identifier: MIT */
/* definitions.c: see definitions.h. */
#include "collector/session/definitions.h"

#include <stdlib.h>
#include <string.h>

enum {
	FIRST_ROOM = 256,
	CHAIN_LIMIT = 64,	    /* forks back */
	IMAGE_BYTES = 32 << 20,	    /* of definitions; beyond, the oldest go */
	UNLOADED_KEPT = 256,	    /* modules of an image that are mapped no more */
	GRANTED_WORDS_STEP = 64,
};
static const uint64_t KEPT_NS = 10000000000; /* an image whose end may still be told */
static const uint64_t LOOK_NS = 500000000;

/* What tells definitions of one image apart: an id and what its fields name. */
struct definition {
	struct definition *next_in_bucket;
	struct definition *next, *previous; /* of its image, oldest first */
	struct definition_image *image;
	uint64_t number; /* in the image, ascending */
	uint64_t key;
	uint64_t tick;
	uint64_t birth; /* of who told it */
	uint32_t tid, own_tid, runtime_process;
	uint16_t id;
	uint16_t is_over; /* a port that is closed */
	uint32_t length;
	_Alignas(8) uint8_t event[]; /* in the extended form */
};

struct definition_image {
	struct definition_image *next_in_bucket;
	uint8_t id[16];
	uint32_t pid;
	struct definition_image *parent; /* that it was forked from; NULL: none */
	uint32_t children;
	struct definition *first, *last;
	uint64_t next_number;
	size_t bytes;
	uint32_t unloaded;
	int seen;	  /* a packet of it has come */
	int has_exit, end_taken;
	struct lorg_event_EXIT gone; /* with has_exit */
	uint64_t over_ns; /* 0: it is alive */
	uint64_t given[SESSION_SLOTS]; /* number of the last definition that the session has, 0: none */
	uint64_t ended[SESSION_SLOTS / 64]; /* bit: it has seen the end */
	uint64_t knows[SESSION_SLOTS / 64]; /* bit: it was given anything, or nothing was to be given */
};

/* Functions of plans that a session has been given, a bit each. */
struct granted {
	uint64_t *words;
	uint32_t count;
};

struct definitions {
	struct definition **buckets;
	uint32_t room, count;
	struct definition_image **images;
	uint32_t image_room, image_count;
	struct granted granted[SESSION_SLOTS];
	uint64_t look_ns;
};

static const uint8_t COLLECTOR[16];

/* ---- images ---------------------------------------------------------------------- */

static uint32_t image_hash(const uint8_t id[16])
{
	uint64_t low, high;
	memcpy(&low, id, 8);
	memcpy(&high, id + 8, 8);
	uint64_t hash = (low ^ high * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
	return (uint32_t)(hash >> 32);
}

struct definition_image *definitions_find(const struct definitions *definitions, const uint8_t id[16])
{
	struct definition_image *image = definitions->images[image_hash(id) & (definitions->image_room - 1)];
	while (image && memcmp(image->id, id, sizeof image->id) != 0)
		image = image->next_in_bucket;
	return image;
}

static void grow_images(struct definitions *definitions)
{
	uint32_t room = definitions->image_room * 2;
	struct definition_image **images = room > definitions->image_room ? calloc(room, sizeof *images) : NULL;
	if (!images)
		return;
	for (uint32_t i = 0; i < definitions->image_room; i++) {
		for (struct definition_image *image = definitions->images[i], *next; image; image = next) {
			struct definition_image **bucket = &images[image_hash(image->id) & (room - 1)];
			next = image->next_in_bucket;
			image->next_in_bucket = *bucket;
			*bucket = image;
		}
	}
	free(definitions->images);
	definitions->images = images;
	definitions->image_room = room;
}

struct definition_image *definitions_image(struct definitions *definitions, const uint8_t id[16])
{
	struct definition_image *image = definitions_find(definitions, id);
	if (image)
		return image;
	if (definitions->image_count >= definitions->image_room)
		grow_images(definitions);
	image = calloc(1, sizeof *image);
	if (!image)
		return NULL;
	struct definition_image **bucket = &definitions->images[image_hash(id) & (definitions->image_room - 1)];
	memcpy(image->id, id, sizeof image->id);
	image->next_number = 1;
	image->next_in_bucket = *bucket;
	*bucket = image;
	definitions->image_count++;
	return image;
}

uint32_t definition_image_pid(const struct definition_image *image)
{
	return image->pid;
}

void definition_image_set_pid(struct definition_image *image, uint32_t pid)
{
	image->seen = 1;
	if (pid)
		image->pid = pid;
}

/* ---- definitions ------------------------------------------------------------------- */

static uint32_t definition_hash(const struct definition_image *image, uint16_t id, uint64_t key)
{
	uint64_t hash = ((uint64_t)(uintptr_t)image >> 4 ^ key * 0x9e3779b97f4a7c15u ^ (uint64_t)id << 48) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(hash >> 32);
}

static struct definition **place_of(const struct definitions *definitions, const struct definition_image *image, uint16_t id,
				    uint64_t key)
{
	struct definition **place = &definitions->buckets[definition_hash(image, id, key) & (definitions->room - 1)];
	while (*place && ((*place)->image != image || (*place)->id != id || (*place)->key != key))
		place = &(*place)->next_in_bucket;
	return place;
}

static void grow(struct definitions *definitions)
{
	uint32_t room = definitions->room * 2;
	struct definition **buckets = room > definitions->room ? calloc(room, sizeof *buckets) : NULL;
	if (!buckets)
		return;
	for (uint32_t i = 0; i < definitions->room; i++) {
		for (struct definition *one = definitions->buckets[i], *next; one; one = next) {
			struct definition **bucket = &buckets[definition_hash(one->image, one->id, one->key) & (room - 1)];
			next = one->next_in_bucket;
			one->next_in_bucket = *bucket;
			*bucket = one;
		}
	}
	free(definitions->buckets);
	definitions->buckets = buckets;
	definitions->room = room;
}

static void drop(struct definitions *definitions, struct definition **place)
{
	struct definition *one = *place;
	struct definition_image *image = one->image;
	*place = one->next_in_bucket;
	*(one->previous ? &one->previous->next : &image->first) = one->next;
	*(one->next ? &one->next->previous : &image->last) = one->previous;
	image->bytes -= sizeof *one + one->length;
	image->unloaded -= one->id == LORG_EVENT_MODULE_UNLOADED;
	definitions->count--;
	free(one);
}

static void drop_named(struct definitions *definitions, struct definition_image *image, uint16_t id, uint64_t key)
{
	struct definition **place = place_of(definitions, image, id, key);
	if (*place)
		drop(definitions, place);
}

/* The oldest that names are not found without. */
static void drop_oldest(struct definitions *definitions, struct definition_image *image)
{
	struct definition *one = image->first;
	while (one && (one->id == LORG_EVENT_IMAGE || one->id == LORG_EVENT_MODULE))
		one = one->next;
	if (!one)
		one = image->first;
	drop_named(definitions, image, one->id, one->key);
}

static struct definition *put(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
			      const struct event_view *view, uint64_t key)
{
	uint32_t fields = view->length - view->padding - (uint32_t)sizeof(struct lorg_extended); /* none has a short form */
	uint32_t length = (uint32_t)(sizeof(struct lorg_extended) + fields + 7) & ~7u;
	struct definition *one = length <= UINT16_MAX - 7 ? calloc(1, sizeof *one + length) : NULL;
	if (!one)
		return NULL;
	drop_named(definitions, image, (uint16_t)view->id, key);
	if (definitions->count >= definitions->room)
		grow(definitions);
	const struct lorg_extended extended = {LORG_EVENT_EXTENDED, (uint16_t)view->id, (uint16_t)length, view->tick};
	memcpy(one->event, &extended, sizeof extended);
	memcpy(one->event + sizeof extended, view->fields, fields);
	one->length = length;
	one->image = image;
	one->id = (uint16_t)view->id;
	one->key = key;
	one->number = image->next_number++;
	one->tick = view->tick;
	one->birth = head->process_birth;
	one->tid = head->tid;
	one->own_tid = head->own_tid;
	one->runtime_process = head->runtime_process;
	struct definition **bucket = &definitions->buckets[definition_hash(image, one->id, key) & (definitions->room - 1)];
	one->next_in_bucket = *bucket;
	*bucket = one;
	one->previous = image->last;
	*(image->last ? &image->last->next : &image->first) = one;
	image->last = one;
	image->bytes += sizeof *one + length;
	definitions->count++;
	while (image->bytes > IMAGE_BYTES && image->first != one)
		drop_oldest(definitions, image);
	return one;
}

static uint64_t port_key(int32_t fd, uint32_t generation)
{
	return (uint64_t)(uint32_t)fd << 32 | generation;
}

/* Of a descriptor the newest binding is kept, and the one before: of that, events may still come. */
static void keep_port(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		      const struct event_view *view, int32_t fd, uint32_t generation)
{
	if (generation >= 2)
		drop_named(definitions, image, (uint16_t)view->id, port_key(fd, generation - 2));
	put(definitions, image, head, view, port_key(fd, generation));
}

/* One that nobody was seen to open is the first thread's, whoever tells of it. */
static void keep_open(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		      const struct event_view *view)
{
	EVENT_FIELDS(view, OPEN, port);
	const struct definition *first = *place_of(definitions, image, LORG_EVENT_IMAGE, 0);
	struct lorg_packet whose = *head;
	if (port.hook == UINT32_MAX && first) {
		whose.process_birth = first->birth;
		whose.tid = first->tid;
		whose.own_tid = first->own_tid;
		whose.runtime_process = first->runtime_process;
	}
	keep_port(definitions, image, &whose, view, port.fd, port.generation);
}

static void keep_image(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		       const struct event_view *view)
{
	EVENT_FIELDS(view, IMAGE, told);
	uint8_t id[16];
	memcpy(id, &told.parent_image_low, 8);
	memcpy(id + 8, &told.parent_image_high, 8);
	if (!image->parent && told.birth != LORG_BIRTH_EXEC && memcmp(id, COLLECTOR, sizeof id) != 0 &&
	    memcmp(id, image->id, sizeof id) != 0) {
		image->parent = definitions_image(definitions, id);
		if (image->parent)
			image->parent->children++;
	}
	put(definitions, image, head, view, 0);
}

static void keep_unloaded(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
			  const struct event_view *view)
{
	EVENT_FIELDS(view, MODULE_UNLOADED, module);
	struct definition *oldest = image->first;
	if (put(definitions, image, head, view, module.start))
		image->unloaded++;
	if (image->unloaded <= UNLOADED_KEPT)
		return;
	while (oldest && oldest->id != LORG_EVENT_MODULE_UNLOADED)
		oldest = oldest->next;
	if (!oldest)
		return;
	drop_named(definitions, image, LORG_EVENT_MODULE, oldest->key);
	drop_named(definitions, image, LORG_EVENT_MODULE_UNLOADED, oldest->key);
}

static void keep_spawn(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		       const struct event_view *view)
{
	EVENT_FIELDS(view, SPAWN, spawn);
	if (spawn.child_image_low | spawn.child_image_high)
		put(definitions, image, head, view, spawn.child_image_low);
}

static void keep_register(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
			  const struct event_view *view)
{
	EVENT_FIELDS(view, REGISTER, name);
	if (name.kind == 1)
		keep_port(definitions, image, head, view, name.fd, name.generation);
	else
		put(definitions, image, head, view, (uint64_t)1 << 63 | (name.tid ? name.tid : head->process_birth >> 1));
}

void definitions_keep(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		      const struct event_view *view)
{
	switch (view->id) {
	case LORG_EVENT_IMAGE: keep_image(definitions, image, head, view); break;
	case LORG_EVENT_MODULE: {
		EVENT_FIELDS(view, MODULE, module);
		drop_named(definitions, image, LORG_EVENT_MODULE_UNLOADED, module.start);
		put(definitions, image, head, view, module.start);
		break;
	}
	case LORG_EVENT_MODULE_UNLOADED: keep_unloaded(definitions, image, head, view); break;
	case LORG_EVENT_FUNCTION: {
		EVENT_FIELDS(view, FUNCTION, function);
		put(definitions, image, head, view, function.function);
		break;
	}
	case LORG_EVENT_HOOKED_FUNCTION: {
		EVENT_FIELDS(view, HOOKED_FUNCTION, function);
		put(definitions, image, head, view, function.function);
		break;
	}
	case LORG_EVENT_HOOK: {
		EVENT_FIELDS(view, HOOK, hook);
		put(definitions, image, head, view, hook.hook);
		break;
	}
	case LORG_EVENT_STRING: {
		EVENT_FIELDS(view, STRING, string);
		put(definitions, image, head, view, string.id);
		break;
	}
	case LORG_EVENT_CHANNEL: {
		EVENT_FIELDS(view, CHANNEL, channel);
		put(definitions, image, head, view, channel.channel);
		break;
	}
	case LORG_EVENT_CLOCK: put(definitions, image, head, view, 0); break;
	case LORG_EVENT_OPEN: keep_open(definitions, image, head, view); break;
	case LORG_EVENT_CONNECTED: {
		EVENT_FIELDS(view, CONNECTED, port);
		keep_port(definitions, image, head, view, port.fd, port.generation);
		break;
	}
	case LORG_EVENT_REGISTER: keep_register(definitions, image, head, view); break;
	case LORG_EVENT_SPAWN: keep_spawn(definitions, image, head, view); break;
	default: break;
	}
}

void definitions_port_closed(struct definitions *definitions, struct definition_image *image, int32_t fd, uint32_t generation)
{
	struct definition *one = *place_of(definitions, image, LORG_EVENT_OPEN, port_key(fd, generation));
	if (one)
		one->is_over = 1;
}

uint64_t definitions_opener(const struct definitions *definitions, const struct definition_image *image, int32_t fd,
			    uint32_t generation)
{
	const struct definition *one = *place_of(definitions, image, LORG_EVENT_OPEN, port_key(fd, generation));
	return one ? one->birth : 0;
}

static uint32_t ports_of(const struct definition_image *image, void (*each)(void *context, const struct router_port *port),
			 void *context)
{
	uint32_t count = 0;
	for (const struct definition *one = image->first; one; one = one->next) {
		struct lorg_event_OPEN open;
		if (one->id != LORG_EVENT_OPEN || one->is_over)
			continue;
		memcpy(&open, one->event + sizeof(struct lorg_extended), sizeof open);
		const struct router_port port = {image->id, image->pid, open.fd, open.generation, open.driver, one->birth, one->tid};
		if (each)
			each(context, &port);
		count++;
	}
	return count;
}

uint32_t definitions_ports(const struct definitions *definitions, const struct definition_image *image,
			   void (*each)(void *context, const struct router_port *port), void *context)
{
	uint32_t count = 0;
	if (image)
		return ports_of(image, each, context);
	for (uint32_t i = 0; i < definitions->image_room; i++)
		for (image = definitions->images[i]; image; image = image->next_in_bucket)
			if (!image->over_ns)
				count += ports_of(image, each, context);
	return count;
}

/* ---- giving ------------------------------------------------------------------------- */

static struct lorg_packet whose(const struct definition *one)
{
	struct lorg_packet head = {
		.process_birth = one->birth,
		.pid = one->image->pid,
		.tid = one->tid,
		.runtime_process = one->runtime_process,
	};
	head.own_tid = one->own_tid;
	memcpy(head.image, one->image->id, sizeof head.image);
	return head;
}

static void give_one(const struct definition *one, definitions_give *give, void *context)
{
	const struct lorg_packet head = whose(one);
	give(context, &head, one->tick, one->event, one->length);
}

static void give_new(struct definition_image *image, unsigned slot, definitions_give *give, void *context)
{
	uint64_t has = image->given[slot];
	image->knows[slot / 64] |= (uint64_t)1 << slot % 64;
	if (!image->last || image->last->number <= has)
		return;
	const struct definition *one = image->last;
	while (one->previous && one->previous->number > has)
		one = one->previous;
	image->given[slot] = image->last->number;
	for (; one; one = one->next)
		if (one->id != LORG_EVENT_HOOKED_FUNCTION) /* there may be very many: one by one */
			give_one(one, give, context);
}

void definitions_give_image(struct definitions *definitions, struct definition_image *image, unsigned slot, definitions_give *give,
			    void *context)
{
	struct definition_image *chain[CHAIN_LIMIT];
	unsigned count = 0;
	(void)definitions;
	for (; image && count < CHAIN_LIMIT; image = image->parent)
		chain[count++] = image;
	while (count)
		give_new(chain[--count], slot, give, context);
}

/* 1: it was not set before, and is now. */
static int grant(struct granted *granted, uint32_t number)
{
	uint32_t word = number / 64;
	uint64_t bit = (uint64_t)1 << number % 64;
	if (word >= granted->count) {
		uint32_t count = (word / GRANTED_WORDS_STEP + 1) * GRANTED_WORDS_STEP;
		uint64_t *words = realloc(granted->words, count * sizeof *words);
		if (!words)
			return 1; /* it is told again */
		memset(words + granted->count, 0, (count - granted->count) * sizeof *words);
		granted->words = words;
		granted->count = count;
	}
	if (granted->words[word] & bit)
		return 0;
	granted->words[word] |= bit;
	return 1;
}

void definitions_give_function(struct definitions *definitions, uint32_t function, unsigned slot, definitions_give *give,
			       void *context)
{
	struct definition_image *collector = definitions_find(definitions, COLLECTOR);
	const struct definition *one =
		collector ? *place_of(definitions, collector, LORG_EVENT_HOOKED_FUNCTION, function) : NULL;
	if (one && grant(&definitions->granted[slot], function - LORG_FIRST_HOOKED_FUNCTION))
		give_one(one, give, context);
}

void definitions_forget_session(struct definitions *definitions, unsigned slot)
{
	uint64_t others = ~((uint64_t)1 << slot % 64);
	free(definitions->granted[slot].words);
	definitions->granted[slot] = (struct granted){NULL, 0};
	for (uint32_t i = 0; i < definitions->image_room; i++) {
		for (struct definition_image *image = definitions->images[i]; image; image = image->next_in_bucket) {
			image->given[slot] = 0;
			image->knows[slot / 64] &= others;
			image->ended[slot / 64] &= others;
		}
	}
}

int definitions_were_given(const struct definition_image *image, unsigned slot)
{
	return image->knows[slot / 64] >> slot % 64 & 1;
}

int definitions_knows_pid(const struct definitions *definitions, uint32_t pid, unsigned slot)
{
	for (uint32_t i = 0; i < definitions->image_room; i++)
		for (const struct definition_image *image = definitions->images[i]; image; image = image->next_in_bucket)
			if (image->pid == pid && definitions_were_given(image, slot))
				return 1;
	return 0;
}

void definitions_ended(struct definition_image *image, unsigned slot)
{
	image->ended[slot / 64] |= (uint64_t)1 << slot % 64;
}

/* ---- coming and going ------------------------------------------------------------------ */

struct definitions *definitions_create(void)
{
	struct definitions *definitions = calloc(1, sizeof *definitions);
	if (!definitions)
		return NULL;
	definitions->room = definitions->image_room = FIRST_ROOM;
	definitions->buckets = calloc(definitions->room, sizeof(struct definition *));
	definitions->images = calloc(definitions->image_room, sizeof(struct definition_image *));
	if (definitions->buckets && definitions->images)
		return definitions;
	definitions_free(definitions);
	return NULL;
}

static void forget_image(struct definitions *definitions, struct definition_image **place)
{
	struct definition_image *image = *place;
	*place = image->next_in_bucket;
	while (image->first)
		drop_named(definitions, image, image->first->id, image->first->key);
	if (image->parent)
		image->parent->children--;
	definitions->image_count--;
	free(image);
}

void definitions_free(struct definitions *definitions)
{
	if (!definitions)
		return;
	for (uint32_t i = 0; definitions->images && definitions->buckets && i < definitions->image_room; i++) {
		/* Parents may be in any order. */
		for (struct definition_image *image = definitions->images[i]; image; image = image->next_in_bucket)
			image->parent = NULL;
	}
	for (uint32_t i = 0; definitions->images && definitions->buckets && i < definitions->image_room; i++)
		while (definitions->images[i])
			forget_image(definitions, &definitions->images[i]);
	for (unsigned slot = 0; slot < SESSION_SLOTS; slot++)
		free(definitions->granted[slot].words);
	free(definitions->images);
	free(definitions->buckets);
	free(definitions);
}

void definitions_exit(struct definition_image *image, const struct lorg_event_EXIT *gone)
{
	image->has_exit = 1;
	image->gone = *gone;
}

int definitions_take_end(struct definition_image *image, struct lorg_event_EXIT *gone)
{
	if (!image->has_exit || !image->over_ns || image->end_taken)
		return 0;
	image->end_taken = 1;
	*gone = image->gone;
	return 1;
}

void definitions_image_over(struct definitions *definitions, const uint8_t id[16], uint64_t now_ns)
{
	struct definition_image *image = definitions_find(definitions, id);
	if (!image)
		return;
	if (!image->over_ns)
		image->over_ns = now_ns;
	if (image->parent) {
		uint64_t low;
		memcpy(&low, id, sizeof low);
		drop_named(definitions, image->parent, LORG_EVENT_SPAWN, low);
	}
}

static void tell_gone(const struct definition_image *image, struct sessions *sessions, definitions_gone *gone, void *context)
{
	struct lorg_packet head = {.pid = image->pid, .tid = image->pid};
	memcpy(head.image, image->id, sizeof head.image);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		if (!sessions->slot[slot].used || !definitions_were_given(image, slot) || image->ended[slot / 64] >> slot % 64 & 1)
			continue;
		if (image->first) {
			head.process_birth = image->first->birth;
			head.tid = image->first->tid;
		}
		gone(context, &head, slot);
	}
}

void definitions_pass(struct definitions *definitions, struct sessions *sessions, uint64_t now_ns, definitions_gone *gone,
		      void *context)
{
	if (now_ns - definitions->look_ns < LOOK_NS)
		return;
	definitions->look_ns = now_ns;
	for (uint32_t i = 0; i < definitions->image_room; i++) {
		for (struct definition_image **place = &definitions->images[i]; *place;) {
			struct definition_image *image = *place;
			/* One that was only ever named as somebody's parent goes with its last child. */
			int over = image->over_ns ? now_ns - image->over_ns > KEPT_NS : !image->seen;
			if (!over || image->children || memcmp(image->id, COLLECTOR, sizeof image->id) == 0) {
				place = &image->next_in_bucket;
				continue;
			}
			tell_gone(image, sessions, gone, context);
			forget_image(definitions, place);
		}
	}
}
