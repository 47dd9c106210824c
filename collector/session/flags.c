/* SPDX-License-Identifier: MIT */
/*
 * flags.c: which trace flags each process and port had in which session, when.
 *
 * Those of processes stand in the arenas, where programs look at them and change them too; what is kept here is their
 * history, by which events are given to sessions that asked for them at their effective ticks. Those of ports are nowhere
 * but here.
 *
 * A history is a list of changes in the order of their ticks. Changes older than FLAGS_HISTORY_NS are joined: memory is
 * bounded by the processes and ports that are traced.
 */
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/collect/keeping.h"
#include "collector/session/router.h"

enum { CHANGES_KEPT = 64, FIRST_ROOM = 256 };
static const uint64_t FLAGS_HISTORY_NS = 10000000000; /* effective ticks do not go back further */
static const uint64_t LOOK_NS = 1000000000;	      /* between two looks for what is old */

struct change {
	uint64_t tick;
	uint32_t on, off;
};

/* One key's flags in one session. */
struct history {
	struct history *next;
	unsigned slot;
	uint32_t base; /* before the first change that is kept */
	uint64_t base_tick; /* since when, 0: ever */
	uint64_t told; /* the router's: see router.h */
	uint32_t kept; /* a port's: place in the table that outlives us + 1; 0: none */
	uint32_t count, room;
	struct change *change;
};

struct flags_record {
	struct flags_record *next; /* of its bucket */
	struct flags_key key;
	struct history *histories;
	uint64_t over_ns; /* since when it is over; 0: it is not */
};

/* A port's flags in a session that persists, in memory that outlives us (keeping.h). */
enum { PORTS_MAGIC = 0x7067726d /* "mrgp" */, PORTS_VERSION = 1, PORTS_KEPT = 1 << 16 };

struct kept_port {
	uint32_t state; /* atomic, release: 1: the rest is valid */
	uint32_t flags; /* atomic */
	uint64_t session; /* number */
	uint64_t since;
	struct flags_key key;
};

/* Sparse. */
struct kept_ports {
	uint32_t magic, version;
	uint32_t used; /* places from there on were never used */
	uint32_t reserved;
	struct kept_port port[PORTS_KEPT];
};

struct flags {
	struct memory memory;
	uint8_t id[16];
	struct kept_ports *kept; /* in it */
	uint32_t *free_places, free_count, free_room;
	struct flags_record **buckets; /* by hash of the key; a power of two */
	uint32_t room, count;
	uint32_t port_histories[SESSION_SLOTS]; /* of ports, also of those to come */
	uint64_t look_ns;
};

/* What ports get that are opened from now on: as if it were one more port. */
static const struct flags_key NEW_PORTS = {.fd = INT32_MIN, .generation = UINT32_MAX};

/* ---- records ------------------------------------------------------------------ */

static uint64_t hash_of(const struct flags_key *key)
{
	uint64_t low, high;
	memcpy(&low, key->image, 8);
	memcpy(&high, key->image + 8, 8);
	uint64_t hash = (low ^ high * 0x9e3779b97f4a7c15u ^ key->birth) * 0xd6e8feb86659fd93u;
	hash ^= ((uint64_t)(uint32_t)key->fd << 32 | key->generation) * 0xbf58476d1ce4e5b9u;
	return hash ^ hash >> 31;
}

static int same_key(const struct flags_key *a, const struct flags_key *b)
{
	return a->birth == b->birth && a->fd == b->fd && a->generation == b->generation &&
	       memcmp(a->image, b->image, sizeof a->image) == 0;
}

static int is_port(const struct flags_key *key)
{
	return key->birth == 0;
}

struct flags_record *flags_find(const struct flags *flags, const struct flags_key *key)
{
	struct flags_record *record = flags->buckets[hash_of(key) & (flags->room - 1)];
	while (record && !same_key(&record->key, key))
		record = record->next;
	return record;
}

static void grow(struct flags *flags)
{
	uint32_t room = flags->room * 2;
	struct flags_record **buckets = room > flags->room ? calloc(room, sizeof *buckets) : NULL;
	if (!buckets)
		return; /* longer chains will do */
	for (uint32_t i = 0; i < flags->room; i++) {
		for (struct flags_record *record = flags->buckets[i], *next; record; record = next) {
			struct flags_record **bucket = &buckets[hash_of(&record->key) & (room - 1)];
			next = record->next;
			record->next = *bucket;
			*bucket = record;
		}
	}
	free(flags->buckets);
	flags->buckets = buckets;
	flags->room = room;
}

static struct flags_record *record_of(struct flags *flags, const struct flags_key *key)
{
	struct flags_record *record = flags_find(flags, key);
	if (record)
		return record;
	if (flags->count >= flags->room)
		grow(flags);
	record = calloc(1, sizeof *record);
	if (!record)
		return NULL;
	struct flags_record **bucket = &flags->buckets[hash_of(key) & (flags->room - 1)];
	record->key = *key;
	record->next = *bucket;
	*bucket = record;
	flags->count++;
	return record;
}

/* ---- ports that are kept ------------------------------------------------------- */

static struct kept_port *kept_place(struct flags *flags, uint32_t *number)
{
	*number = 0;
	if (flags->free_count)
		*number = flags->free_places[--flags->free_count] + 1;
	else if (flags->kept->used < PORTS_KEPT)
		*number = ++flags->kept->used;
	return *number ? &flags->kept->port[*number - 1] : NULL;
}

static void drop_kept(struct flags *flags, uint32_t place)
{
	__atomic_store_n(&flags->kept->port[place].state, 0, __ATOMIC_RELEASE);
	if (flags->free_count == flags->free_room) {
		uint32_t room = flags->free_room ? 2 * flags->free_room : 64;
		uint32_t *grown = realloc(flags->free_places, room * sizeof *grown);
		if (!grown)
			return; /* the place stays empty */
		flags->free_places = grown;
		flags->free_room = room;
	}
	flags->free_places[flags->free_count++] = place;
}

static void forget_kept(struct flags *flags, struct history *history)
{
	if (history->kept)
		drop_kept(flags, history->kept - 1);
	history->kept = 0;
}

/* It has other flags than before. Where the table is full, they do not outlive us. */
static void keep_port(struct sessions *sessions, const struct flags_record *record, struct history *history)
{
	struct flags *flags = sessions->flags;
	const struct flags_span now = flags_span_at(record, history->slot, UINT64_MAX - 1);
	if (!now.flags || !sessions->slot[history->slot].persist) {
		forget_kept(flags, history);
		return;
	}
	if (history->kept) {
		__atomic_store_n(&flags->kept->port[history->kept - 1].flags, now.flags, __ATOMIC_RELAXED);
		return;
	}
	struct kept_port *port = kept_place(flags, &history->kept);
	if (!port)
		return;
	port->flags = now.flags;
	port->session = sessions->slot[history->slot].number;
	port->since = now.since;
	port->key = record->key;
	__atomic_store_n(&port->state, 1, __ATOMIC_RELEASE);
}

static void free_history(struct flags *flags, const struct flags_record *record, struct history *history)
{
	forget_kept(flags, history);
	if (is_port(&record->key))
		flags->port_histories[history->slot]--;
	free(history->change);
	free(history);
}

static void free_record(struct flags *flags, struct flags_record **place)
{
	struct flags_record *record = *place;
	*place = record->next;
	for (struct history *history = record->histories, *next; history; history = next) {
		next = history->next;
		free_history(flags, record, history);
	}
	free(record);
	flags->count--;
}

static struct history *history_in(const struct flags_record *record, unsigned slot)
{
	struct history *history = record ? record->histories : NULL;
	while (history && history->slot != slot)
		history = history->next;
	return history;
}

static struct history *history_of(struct flags *flags, struct flags_record *record, unsigned slot)
{
	struct history *history = history_in(record, slot);
	if (history)
		return history;
	history = calloc(1, sizeof *history);
	if (!history)
		return NULL;
	history->slot = slot;
	history->told = UINT64_MAX;
	history->next = record->histories;
	record->histories = history;
	if (is_port(&record->key))
		flags->port_histories[slot]++;
	return history;
}

/* ---- changes ------------------------------------------------------------------- */

static uint32_t after(uint32_t flags, const struct change *change)
{
	return (flags | change->on) & ~change->off;
}

/* The first changes become what there was before. */
static void join(struct history *history, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		history->base = after(history->base, &history->change[i]);
	if (!count)
		return;
	history->base_tick = history->change[count - 1].tick;
	history->count -= count;
	memmove(history->change, history->change + count, history->count * sizeof *history->change);
}

static void add(struct history *history, struct change change)
{
	if (history->count == CHANGES_KEPT)
		join(history, CHANGES_KEPT / 2);
	if (history->count == history->room) {
		uint32_t room = history->room ? history->room * 2 : 4;
		struct change *grown = realloc(history->change, room * sizeof *grown);
		if (!grown && history->count == 0) {
			history->base = after(history->base, &change);
			return;
		}
		if (grown) {
			history->change = grown;
			history->room = room;
		} else {
			join(history, 1);
		}
	}
	if (change.tick < history->base_tick)
		change.tick = history->base_tick;
	uint32_t at = history->count++;
	for (; at > 0 && history->change[at - 1].tick > change.tick; at--)
		history->change[at] = history->change[at - 1];
	history->change[at] = change;
}

static void note(struct sessions *sessions, const struct flags_key *key, unsigned slot, uint64_t tick, uint32_t on, uint32_t off)
{
	struct flags_record *record = record_of(sessions->flags, key);
	struct history *history = record ? history_of(sessions->flags, record, slot) : NULL;
	if (!history)
		return;
	add(history, (struct change){tick, on, off});
	if (is_port(key) && key->fd != NEW_PORTS.fd)
		keep_port(sessions, record, history);
}

struct flags_span flags_span_at(const struct flags_record *record, unsigned slot, uint64_t tick)
{
	const struct history *history = history_in(record, slot);
	struct flags_span span = {0, 0, UINT64_MAX};
	if (!history)
		return span;
	span.flags = history->base;
	span.since = history->base_tick;
	for (uint32_t i = 0; i < history->count; i++) {
		const struct change *change = &history->change[i];
		if (change->tick > tick) {
			span.until = change->tick;
			break;
		}
		span.flags = after(span.flags, change);
		span.since = change->tick;
	}
	return span;
}

uint64_t *flags_told(const struct flags_record *record, unsigned slot)
{
	struct history *history = history_in(record, slot);
	return history ? &history->told : NULL;
}

void flags_untold(struct flags *flags, unsigned slot)
{
	for (uint32_t i = 0; i < flags->room; i++)
		for (const struct flags_record *record = flags->buckets[i]; record; record = record->next)
			if (history_in(record, slot))
				history_in(record, slot)->told = UINT64_MAX;
}

void flags_sessions(const struct flags_record *record, uint64_t slots[SESSION_SLOTS / 64])
{
	for (const struct history *history = record ? record->histories : NULL; history; history = history->next)
		slots[history->slot / 64] |= (uint64_t)1 << history->slot % 64;
}

int flags_has_ports(const struct flags *flags, unsigned slot)
{
	return flags->port_histories[slot] != 0;
}

uint32_t session_flags_at(struct sessions *sessions, const struct flags_key *key, unsigned slot, uint64_t tick)
{
	return flags_span_at(flags_find(sessions->flags, key), slot, tick).flags;
}

void session_flags_told(struct sessions *sessions, const struct flags_key *key, unsigned slot, uint64_t tick, uint32_t on,
			uint32_t off)
{
	/* What was said of the session that had the slot before is nobody's. */
	if (slot < SESSION_FIRST_SLOT || slot >= SESSION_SLOTS || !sessions->slot[slot].used)
		return;
	if (on | off)
		note(sessions, key, slot, tick, on, off);
}

void session_flags_forget(struct sessions *sessions, const struct flags_key *key)
{
	struct flags_record *record = flags_find(sessions->flags, key);
	for (struct history *history = record ? record->histories : NULL; history; history = history->next)
		forget_kept(sessions->flags, history);
	/* What it wrote may still be on its way. */
	if (record && !record->over_ns)
		record->over_ns = clock_monotonic_ns();
}

/* ---- processes ------------------------------------------------------------------ */

static struct lorg_session *union_of(const struct family *family)
{
	return (struct lorg_session *)(family->memory.at + family->layout.sessions);
}

static uint32_t sum_of(const struct family *family, struct lorg_process *entry)
{
	uint32_t sum = lorg_flags_by_ports(__atomic_load_n(&union_of(family)->flags_ports, __ATOMIC_SEQ_CST));
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		sum |= __atomic_load_n(&entry->session[slot].flags, __ATOMIC_SEQ_CST);
	return sum;
}

/* The program does the same at the same time: whoever changes a slot sums up behind it, until nothing has come between. */
void process_flags_sum(const struct family *family, struct lorg_process *entry)
{
	uint32_t sum = sum_of(family, entry);
	for (int round = 0; round < 1000; round++) { /* a program that scribbles on it does not hold us up */
		__atomic_exchange_n(&entry->session[0].flags, sum, __ATOMIC_SEQ_CST);
		uint32_t again = sum_of(family, entry);
		if (again == sum)
			return;
		sum = again;
	}
}

static struct flags_key key_of_process(const struct process *process)
{
	struct flags_key key = {.birth = process->birth_tick, .fd = -1};
	if (process->image)
		memcpy(key.image, process->image->id, sizeof key.image);
	return key;
}

/*
 * A thread that is being born tells what it has by then as its first event, so that it needs no history. False where it is
 * no such thread, or has gone on meanwhile and may not have seen it.
 */
static int change_newborn(struct family *family, struct lorg_process *entry, unsigned slot, int how, uint32_t flags)
{
	if (__atomic_load_n(&entry->state, __ATOMIC_SEQ_CST) != LORG_PROCESS_STARTING)
		return 0;
	if (how)
		__atomic_fetch_or(&entry->session[slot].flags, flags, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(&entry->session[slot].flags, ~flags, __ATOMIC_SEQ_CST);
	process_flags_sum(family, entry);
	return __atomic_load_n(&entry->state, __ATOMIC_SEQ_CST) == LORG_PROCESS_STARTING;
}

void session_process_flags(struct sessions *sessions, struct session *session, struct family *family, uint32_t index, int how,
			   uint32_t flags)
{
	struct process *process = process_of(family, index);
	struct lorg_process *entry = process_entry(family, index);
	if (!entry || (!process && change_newborn(family, entry, session->slot, how, flags)))
		return;
	if (!process)
		process = process_of(family, index);
	if (!process || !process->image)
		return;
	const struct lorg_clock *clock = &sessions->context->clock;
	const struct flags_key key = key_of_process(process);
	/* What is cleared counts no more from before on, what is set only from after: nothing is half asked for. */
	uint64_t tick = clock_tick(clock);
	if (!how && (flags & LORG_TRACE_CALL))
		session_functions_flag(sessions, session, family, index, 0);
	if (how)
		__atomic_fetch_or(&entry->session[session->slot].flags, flags, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(&entry->session[session->slot].flags, ~flags, __ATOMIC_SEQ_CST);
	process_flags_sum(family, entry);
	if (how)
		tick = clock_tick(clock);
	if (how && (flags & LORG_TRACE_CALL))
		session_functions_flag(sessions, session, family, index, 1);
	note(sessions, &key, session->slot, tick, how ? flags : 0, how ? 0 : flags);
}

uint32_t session_flags_of_process(struct session *session, struct family *family, uint32_t process)
{
	const struct lorg_process *entry = process_entry(family, process);
	return entry ? __atomic_load_n(&entry->session[session->slot].flags, __ATOMIC_SEQ_CST) & LORG_TRACE_ALL : 0;
}

/* ---- ports ---------------------------------------------------------------------- */

static struct flags_key key_of_port(const uint8_t image[16], int32_t fd, uint32_t generation)
{
	struct flags_key key = {.fd = fd, .generation = generation};
	memcpy(key.image, image, sizeof key.image);
	return key;
}

/* A binding that is not told yet may be one that was told to a lorgd before this one: what is known of that is its own. */
static struct flags_key known_port(const struct flags *flags, struct flags_key key)
{
	if (key.generation != PORT_GENERATION_NOW || flags_find(flags, &key))
		return key;
	for (uint32_t i = 0; i < flags->room; i++)
		for (const struct flags_record *record = flags->buckets[i]; record; record = record->next)
			if (is_port(&record->key) && !record->over_ns && record->key.fd == key.fd &&
			    memcmp(record->key.image, key.image, sizeof key.image) == 0)
				return record->key;
	return key;
}

void session_port_flags(struct sessions *sessions, struct session *session, const uint8_t image[16], int32_t fd,
			uint32_t generation, int how, uint32_t flags)
{
	const struct flags_key key = known_port(sessions->flags, key_of_port(image, fd, generation));
	/* Programs may not be asked for its events yet: that is so when sessions_publish, which follows, returns. */
	note(sessions, &key, session->slot, clock_tick(&sessions->context->clock), how ? flags : 0, how ? 0 : flags);
}

static uint32_t flags_now(const struct flags *flags, const struct flags_key *key, unsigned slot)
{
	return flags_span_at(flags_find(flags, key), slot, UINT64_MAX - 1).flags;
}

uint32_t session_flags_of_port(struct sessions *sessions, struct session *session, const uint8_t image[16], int32_t fd,
			       uint32_t generation)
{
	const struct flags_key key = known_port(sessions->flags, key_of_port(image, fd, generation));
	const struct flags_record *record = flags_find(sessions->flags, &key);
	return record && !record->over_ns ? flags_span_at(record, session->slot, UINT64_MAX - 1).flags : 0;
}

void session_new_ports(struct sessions *sessions, struct session *session, int how, uint32_t flags)
{
	note(sessions, &NEW_PORTS, session->slot, clock_tick(&sessions->context->clock), how ? flags : 0, how ? 0 : flags);
	session->defaults.new_ports = flags_now(sessions->flags, &NEW_PORTS, session->slot);
}

/* Flags that were set on a binding before the program had told of it. */
static void hand_over(struct sessions *sessions, const struct flags_key *key)
{
	const struct flags_key from = key_of_port(key->image, key->fd, PORT_GENERATION_NOW);
	struct flags_record *record = flags_find(sessions->flags, &from);
	if (!record || record->over_ns)
		return;
	for (const struct history *history = record->histories; history; history = history->next) {
		if (history->base)
			note(sessions, key, history->slot, history->base_tick, history->base, 0);
		for (uint32_t i = 0; i < history->count; i++)
			note(sessions, key, history->slot, history->change[i].tick, history->change[i].on, history->change[i].off);
	}
	session_flags_forget(sessions, &from);
}

/* A program that came after new ports were asked for has new ones from the start: those that it inherits. */
static void begin_with_new(struct sessions *sessions, const struct flags_key *key, uint64_t start)
{
	const struct flags_record *new_ports = flags_find(sessions->flags, &NEW_PORTS), *own = flags_find(sessions->flags, key);
	for (const struct history *history = new_ports ? new_ports->histories : NULL; history; history = history->next) {
		uint32_t flags = flags_span_at(new_ports, history->slot, start).flags;
		if (flags && !history_in(own, history->slot))
			note(sessions, key, history->slot, start, flags, 0);
	}
}

void flags_port_told(struct sessions *sessions, const struct flags_key *key, uint64_t start)
{
	hand_over(sessions, key);
	begin_with_new(sessions, key, start);
}

void flags_port_opened(struct sessions *sessions, const struct flags_key *key, uint64_t tick)
{
	const struct flags_key before = key_of_port(key->image, key->fd, PORT_GENERATION_NOW);
	const struct flags_record *new_ports = flags_find(sessions->flags, &NEW_PORTS);
	session_flags_forget(sessions, &before); /* the binding that was meant has gone */
	for (const struct history *history = new_ports ? new_ports->histories : NULL; history; history = history->next) {
		uint32_t flags = flags_span_at(new_ports, history->slot, tick).flags;
		if (flags)
			note(sessions, key, history->slot, tick, flags, 0);
	}
}

static uint32_t of_ports(const struct flags *flags, unsigned slot)
{
	uint32_t sum = 0;
	if (!flags->port_histories[slot])
		return 0;
	for (uint32_t i = 0; i < flags->room; i++)
		for (const struct flags_record *record = flags->buckets[i]; record; record = record->next)
			if (is_port(&record->key) && !record->over_ns)
				sum |= flags_span_at(record, slot, UINT64_MAX - 1).flags;
	return sum;
}

uint32_t flags_of_ports_of(const struct sessions *sessions, const struct session *session)
{
	return of_ports(sessions->flags, session->slot);
}

uint32_t flags_of_ports(const struct sessions *sessions)
{
	uint32_t sum = 0;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			sum |= of_ports(sessions->flags, slot);
	return sum;
}

/* ---- coming and going ------------------------------------------------------------- */

struct flags *flags_create(struct sessions *sessions)
{
	struct flags *flags = calloc(1, sizeof *flags);
	(void)sessions;
	if (!flags)
		return NULL;
	flags->room = FIRST_ROOM;
	flags->buckets = calloc(flags->room, sizeof(struct flags_record *));
	if (!flags->buckets || memory_create(&flags->memory, "lorgd-ports", sizeof(struct kept_ports))) {
		free(flags->buckets);
		free(flags);
		return NULL;
	}
	random_bytes(flags->id, sizeof flags->id);
	flags->kept = (struct kept_ports *)flags->memory.at;
	flags->kept->magic = PORTS_MAGIC;
	flags->kept->version = PORTS_VERSION;
	return flags;
}

void flags_take_over(struct sessions *sessions, struct adopted *adopted)
{
	struct flags *flags = sessions->flags;
	uint32_t at = 0;
	struct kept *kept = kept_next(adopted, KEPT_PORTS, &at);
	const struct kept_ports *ports = kept ? (const struct kept_ports *)kept->memory.at : NULL;
	if (!ports || kept->memory.size != sizeof *ports || ports->magic != PORTS_MAGIC || ports->version != PORTS_VERSION) {
		keep_memory(sessions->context->arena_settings->keeping, KEPT_PORTS, flags->id, &flags->memory);
		return;
	}
	memory_free(&flags->memory);
	flags->memory = kept_take(kept);
	memcpy(flags->id, kept->name.id, sizeof flags->id);
	flags->kept = (struct kept_ports *)flags->memory.at;
}

static int is_alive(const struct sessions *sessions, const uint8_t image[16])
{
	for (uint32_t i = 0; i < sessions->context->family_count; i++)
		if (image_with_id(sessions->context->families[i], image))
			return 1;
	return 0;
}

void flags_restore(struct sessions *sessions)
{
	struct flags *flags = sessions->flags;
	for (uint32_t i = 0; i < flags->kept->used && i < PORTS_KEPT; i++) {
		const struct kept_port port = flags->kept->port[i];
		const struct session *session = port.state ? session_numbered(sessions, port.session) : NULL;
		struct flags_record *record = session && is_alive(sessions, port.key.image) ? record_of(flags, &port.key) : NULL;
		struct history *history = record ? history_of(flags, record, session->slot) : NULL;
		if (!history || history->kept) {
			drop_kept(flags, i);
			continue;
		}
		history->kept = i + 1;
		add(history, (struct change){port.since, port.flags, 0});
	}
}

void flags_free(struct flags *flags)
{
	if (!flags)
		return;
	for (uint32_t i = 0; i < flags->room; i++)
		while (flags->buckets[i])
			free_record(flags, &flags->buckets[i]);
	memory_free(&flags->memory);
	free(flags->free_places);
	free(flags->buckets);
	free(flags);
}

static void drop_session(struct flags *flags, struct flags_record *record, unsigned slot)
{
	struct history **place = &record->histories;
	while (*place && (*place)->slot != slot)
		place = &(*place)->next;
	struct history *history = *place;
	if (!history)
		return;
	*place = history->next;
	free_history(flags, record, history);
}

void flags_session_ends(struct sessions *sessions, struct session *session)
{
	struct flags *flags = sessions->flags;
	for (uint32_t i = 0; i < flags->room; i++) {
		for (struct flags_record **place = &flags->buckets[i]; *place;) {
			drop_session(flags, *place, session->slot);
			if ((*place)->histories)
				place = &(*place)->next;
			else
				free_record(flags, place);
		}
	}
}

static void join_old(struct flags_record *record, uint64_t before)
{
	for (struct history *history = record->histories; history; history = history->next) {
		uint32_t old = 0;
		while (old < history->count && history->change[old].tick < before)
			old++;
		join(history, old);
	}
}

void flags_pass(struct sessions *sessions, uint64_t now_ns)
{
	struct flags *flags = sessions->flags;
	if (now_ns - flags->look_ns < LOOK_NS)
		return;
	flags->look_ns = now_ns;
	uint64_t kept = FLAGS_HISTORY_NS / 1000000000 * sessions->context->clock.frequency, now = clock_tick(&sessions->context->clock);
	for (uint32_t i = 0; i < flags->room; i++) {
		for (struct flags_record **place = &flags->buckets[i]; *place;) {
			struct flags_record *record = *place;
			join_old(record, now > kept ? now - kept : 0);
			if (record->over_ns && now_ns - record->over_ns > FLAGS_HISTORY_NS)
				free_record(flags, place);
			else
				place = &record->next;
		}
	}
}
