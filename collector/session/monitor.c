/* SPDX-License-Identifier: MIT */
/* monitor.c: see monitor.h. */
#include "collector/session/monitor.h"

#include <stdlib.h>
#include <string.h>

enum {
	QUEUES = 1024, /* that are followed; the oldest is taken for short again */
	LOOKS = 4096,  /* that wait for others */
	LOOK_PASSES = 3,
	QUEUE_TICKS = 2, /* of one look: for what it tells of both */
};

/* What sessions were told of one queue. */
struct queue_record {
	uint64_t key;	/* 0: the place is free */
	uint32_t taken; /* number of the look that was taken last */
	uint64_t tick;	/* of that */
	uint64_t is_long[SESSION_SLOTS / 64];
	uint32_t changed[SESSION_SLOTS]; /* number of the look that a session was told of last */
};

struct monitors {
	struct queue_record queue[QUEUES];
	uint32_t next;
	struct queue_look *looks; /* that wait, the oldest first */
	unsigned look_count;
};

struct monitors *monitors_create(void)
{
	return calloc(1, sizeof(struct monitors));
}

void monitors_free(struct monitors *monitors)
{
	if (!monitors)
		return;
	while (monitors->looks) {
		struct queue_look *next = monitors->looks->next;
		free(monitors->looks);
		monitors->looks = next;
	}
	free(monitors);
}

static void set_long(struct queue_record *record, unsigned slot, int on)
{
	uint64_t bit = (uint64_t)1 << slot % 64;
	record->is_long[slot / 64] = on ? record->is_long[slot / 64] | bit : record->is_long[slot / 64] & ~bit;
}

static int is_long(const struct queue_record *record, unsigned slot)
{
	return (int)(record->is_long[slot / 64] >> slot % 64 & 1);
}

void monitors_forget_session(struct monitors *monitors, unsigned slot)
{
	for (uint32_t i = 0; i < QUEUES && monitors->queue[i].key; i++) {
		set_long(&monitors->queue[i], slot, 0);
		monitors->queue[i].changed[slot] = monitors->queue[i].taken;
	}
}

/* ---- looks at queues, in order ------------------------------------------------------------ */

static struct queue_record *record_of(struct monitors *monitors, uint64_t key)
{
	for (uint32_t i = 0; i < QUEUES && monitors->queue[i].key; i++)
		if (monitors->queue[i].key == key)
			return &monitors->queue[i];
	struct queue_record *record = &monitors->queue[monitors->next++ % QUEUES];
	memset(record, 0, sizeof *record);
	record->key = key;
	return record;
}

/* The channel; of a queue that has none its port, as a number that is no channel's. */
static uint64_t key_of(const struct lorg_packet *whose, const struct queue_look *look)
{
	uint64_t half[2], key;
	if (look->about.channel)
		return look->about.channel;
	memcpy(half, whose->image, sizeof half);
	key = (half[0] ^ (look->event.object * 2 + look->about.as_port)) * 0x9e3779b97f4a7c15u;
	return ((key ^ key >> 31) + half[1]) | (uint64_t)1 << 63;
}

/* How much newer a number is; numbers of 31 bits go round. */
static int32_t newer(uint32_t number, uint32_t than)
{
	return (int32_t)((number - than) << 1) >> 1;
}

static void take(struct queue_record *record, struct queue_look *look, queue_tell *tell, void *context)
{
	uint64_t tick = look->tick > record->tick ? look->tick : record->tick;
	record->tick = tick + QUEUE_TICKS;
	if (newer(look->about.number, record->taken) > 0)
		record->taken = look->about.number;
	tell(context, record, look, tick);
	free(look);
}

/* The next of that queue, taken out of those that wait; NULL: it is not there. */
static struct queue_look *next_look(struct monitors *monitors, const struct queue_record *record)
{
	for (struct queue_look **place = &monitors->looks; *place; place = &(*place)->next) {
		struct queue_look *look = *place;
		if (look->key != record->key || newer(look->about.number, record->taken) > 1)
			continue;
		*place = look->next;
		monitors->look_count--;
		return look;
	}
	return NULL;
}

static void take_all(struct monitors *monitors, struct queue_record *record, queue_tell *tell, void *context)
{
	for (struct queue_look *look; (look = next_look(monitors, record));)
		take(record, look, tell, context);
}

/* What came before the oldest of a queue that wait never comes. */
static void give_up(struct monitors *monitors, queue_tell *tell, void *context)
{
	struct queue_record *record = record_of(monitors, monitors->looks->key);
	const struct queue_look *first = monitors->looks;
	for (const struct queue_look *look = first->next; look; look = look->next)
		if (look->key == record->key && newer(look->about.number, first->about.number) < 0)
			first = look;
	record->taken = (first->about.number - 1) & LORG_MONITOR_NUMBERS;
	take_all(monitors, record, tell, context);
}

void monitors_queue(struct monitors *monitors, const struct lorg_packet *whose, const struct event_view *view, uint64_t pass,
		    queue_tell *tell, void *context)
{
	struct queue_look *look = calloc(1, sizeof *look), **last = &monitors->looks;
	uint32_t length;
	const uint8_t *terms = event_bytes_named(view, "terms", &length);
	if (!look || length != sizeof look->about) {
		free(look);
		return;
	}
	memcpy(&look->about, terms, sizeof look->about);
	memcpy(&look->event, view->fields, sizeof look->event);
	look->whose = *whose;
	look->tick = view->effective;
	look->key = key_of(whose, look);
	look->pass = pass;
	struct queue_record *record = record_of(monitors, look->key);
	if (newer(look->about.number, record->taken) <= 1) {
		take(record, look, tell, context);
		take_all(monitors, record, tell, context);
		return;
	}
	if (monitors->look_count >= LOOKS)
		give_up(monitors, tell, context);
	while (*last)
		last = &(*last)->next;
	*last = look;
	monitors->look_count++;
}

void monitors_pass(struct monitors *monitors, uint64_t pass, queue_tell *tell, void *context)
{
	while (monitors->looks && (pass == UINT64_MAX || pass - monitors->looks->pass >= LOOK_PASSES))
		give_up(monitors, tell, context);
}

unsigned monitors_waiting(const struct monitors *monitors)
{
	return monitors->looks ? LOOK_PASSES : 0;
}

/* ---- what sessions are told --------------------------------------------------------------- */

/*
 * The length before something was taken counts where nothing was told since that call began: what had been told then may
 * have been the same.
 */
unsigned monitor_queue_change(struct queue_record *record, const struct session *session, const struct queue_look *look)
{
	uint64_t on = session->system_limits[SESSION_LONG_QUEUE_ON], off = session->system_limits[SESSION_LONG_QUEUE_OFF];
	unsigned slot = session->slot, change = 0;
	int is_news = newer(look->about.began, record->changed[slot]) >= 0;
	if (on == UINT64_MAX) {
		set_long(record, slot, 0);
		return 0;
	}
	if (!is_long(record, slot) && (look->event.value >= on || (is_news && look->about.most >= on)))
		change |= QUEUE_BECAME_LONG;
	if ((is_long(record, slot) || change) && look->event.value <= off)
		change |= QUEUE_BECAME_SHORT;
	if (!change)
		return 0;
	set_long(record, slot, !(change & QUEUE_BECAME_SHORT));
	record->changed[slot] = look->about.number;
	return change;
}

static int reaches(const struct session *session, enum session_system which, uint64_t value)
{
	uint64_t limit = session->system_limits[which];
	return limit != UINT64_MAX && value >= limit;
}

int monitor_wants(const struct session *session, uint32_t id, const struct lorg_event_LONG_GC *event)
{
	switch (id) {
	case LORG_EVENT_LONG_GC: return reaches(session, SESSION_LONG_GC, event->value);
	case LORG_EVENT_LONG_SCHEDULE: return reaches(session, SESSION_LONG_SCHEDULE, event->value);
	case LORG_EVENT_LARGE_HEAP: return reaches(session, SESSION_LARGE_HEAP, event->value);
	case LORG_EVENT_BUSY_PORT: return session->system_limits[SESSION_BUSY_PORT] != UINT64_MAX;
	case LORG_EVENT_BUSY_DIST_PORT: return session->system_limits[SESSION_BUSY_DIST_PORT] != UINT64_MAX;
	default: return 0;
	}
}
