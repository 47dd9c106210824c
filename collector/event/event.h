/* SPDX-License-Identifier: MIT */
/*
 * event.h: decodes events (include/lorg/events.h). Used on memory that may be
 * hostile: nothing is read beyond the room given, every length is checked.
 * No function allocates or prints.
 */
#ifndef LORG_EVENT_EVENT_H
#define LORG_EVENT_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>
#include <lorg/events.h>

enum event_field_kind { FIELD_U64, FIELD_U32, FIELD_I64, FIELD_I32, FIELD_TEXT, FIELD_BLOB };

struct event_field {
	const char *name;
	enum event_field_kind kind;
	uint16_t offset; /* in the fixed fields; of x_length for TEXT and BLOB */
};

enum { EVENT_FIELDS_MAXIMUM = 16, EVENT_BYTES_MAXIMUM = 4 };

/* How an event tells its effective tick. */
enum event_entry {
	ENTRY_NONE,   /* not: it is the stamp */
	ENTRY_TICK,   /* its first field is `entry` */
	ENTRY_BEFORE, /* its first field is `before`: ticks from there to the stamp */
};

struct event_description {
	uint16_t id;
	uint16_t size;	 /* bytes of the fixed fields */
	const char *name; /* as in the metadata */
	enum event_entry tells_entry;
	uint16_t bytes_count; /* TEXT and BLOB fields among them */
	uint16_t bytes_length[EVENT_BYTES_MAXIMUM]; /* offset of each one's x_length */
	unsigned field_count;
	struct event_field field[EVENT_FIELDS_MAXIMUM];
};

/* NULL for an id that this version does not know. */
const struct event_description *event_description(uint32_t id);

enum event_status {
	EVENT_OK,
	EVENT_UNKNOWN, /* well-formed, id not known: view->length says how to skip it */
	EVENT_FILLER,  /* reserved, not committed, or withdrawn */
	EVENT_HOLE,    /* a zero word: reserved and nothing written; length 8 */
	EVENT_BAD,     /* a length that cannot be: the rest of the packet is lost */
};

struct event_view {
	uint32_t id;
	uint32_t length; /* of the whole event, a multiple of 8 */
	uint32_t padding; /* bytes at its end that are none of its fields: fewer than 8 where the lengths are right */
	uint64_t tick;
	uint64_t effective; /* tick, or the entry it tells of */
	const uint8_t *fields; /* fixed fields; not aligned */
	const struct event_description *description;
};

/* True for events that others are read with, so that readers look for them first. Part of the file format. */
static inline int event_is_definition(uint32_t id)
{
	switch (id) {
	case LORG_EVENT_SPAWN:
	case LORG_EVENT_EXIT:
	case LORG_EVENT_REAPED:
	case LORG_EVENT_REGISTER:
	case LORG_EVENT_OPEN:
	case LORG_EVENT_CONNECTED:
	case LORG_EVENT_SESSION:
	case LORG_EVENT_IMAGE:
	case LORG_EVENT_MODULE:
	case LORG_EVENT_MODULE_UNLOADED:
	case LORG_EVENT_FUNCTION:
	case LORG_EVENT_HOOKED_FUNCTION:
	case LORG_EVENT_STRING:
	case LORG_EVENT_CHANNEL:
	case LORG_EVENT_CLOCK:
	case LORG_EVENT_HOOK:
	case LORG_EVENT_MARK:
	case LORG_EVENT_LOST:
	case LORG_EVENT_CPU_TIME:
	case LORG_EVENT_GAP: return 1;
	default: return 0;
	}
}

/*
 * Decodes the event at `at`, of which `room` bytes may be read; `previous` is
 * the tick of the event before in the packet (or its begin).
 */
enum event_status event_decode(const uint8_t *at, size_t room, uint64_t previous, struct event_view *view);

/* Value of a numeric field by its number; signed ones sign-extended. */
uint64_t event_number(const struct event_view *view, unsigned field);
/* By name; `otherwise` when there is no such field. */
uint64_t event_number_named(const struct event_view *view, const char *name, uint64_t otherwise);
/* Bytes of a TEXT or BLOB field; *length 0 when there are none. The memory is the packet's. */
const uint8_t *event_bytes(const struct event_view *view, unsigned field, uint32_t *length);
const uint8_t *event_bytes_named(const struct event_view *view, const char *name, uint32_t *length);

/* The fixed fields, copied out: EVENT_FIELDS(&view, SEND, send) declares and fills struct lorg_event_SEND send. */
#define EVENT_FIELDS(view, NAME, variable)          \
	struct lorg_event_##NAME variable;          \
	__builtin_memcpy(&variable, (view)->fields, sizeof variable)

#endif
