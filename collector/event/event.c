/* SPDX-License-Identifier: MIT */
/* event.c: the table of all events, and their decoder. Never reads beyond the room it is given. */
#include "collector/event/event.h"

#include <string.h>

#define FIELD(name, kind)   {#name, kind, (uint16_t) __builtin_offsetof(this_event, name)},
#define FIELD_OF_U64(name)  FIELD(name, FIELD_U64)
#define FIELD_OF_U32(name)  FIELD(name, FIELD_U32)
#define FIELD_OF_I64(name)  FIELD(name, FIELD_I64)
#define FIELD_OF_I32(name)  FIELD(name, FIELD_I32)
#define FIELD_OF_TEXT(name) {#name, FIELD_TEXT, (uint16_t) __builtin_offsetof(this_event, name##_length)},
#define FIELD_OF_BLOB(name) {#name, FIELD_BLOB, (uint16_t) __builtin_offsetof(this_event, name##_length)},

#define COUNT_ONE(name)    +1
#define IS_ENTRY(name)     +(__builtin_strcmp(#name, "entry") == 0)
#define IS_BEFORE(name)    +2 * (__builtin_strcmp(#name, "before") == 0)
#define IS_NOT_ENTRY(name) +0

#define NO_BYTES(name)
#define LENGTH_OF_BYTES(name) (uint16_t) __builtin_offsetof(this_event, name##_length),

/* One function an event: its description, where the table's field macros can name the event's structure. */
#define DESCRIBE(number, NAME, shown)                                                                                       \
	static inline const struct event_description *describe_##NAME(void)                                                 \
	{                                                                                                                   \
		typedef struct lorg_event_##NAME this_event;                                                                \
		static const struct event_description description = {                                                       \
			.id = number,                                                                                       \
			.size = sizeof(this_event),                                                                         \
			.name = shown,                                                                                      \
			.tells_entry = 0 LORG_FIELDS_##NAME(IS_ENTRY, IS_BEFORE, IS_NOT_ENTRY, IS_NOT_ENTRY,                \
							    IS_NOT_ENTRY, IS_NOT_ENTRY),                                    \
			.field_count =                                                                                      \
				0 LORG_FIELDS_##NAME(COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE),     \
			.bytes_count = 0 LORG_FIELDS_##NAME(IS_NOT_ENTRY, IS_NOT_ENTRY, IS_NOT_ENTRY, IS_NOT_ENTRY,         \
							    COUNT_ONE, COUNT_ONE),                                          \
			.bytes_length = {LORG_FIELDS_##NAME(NO_BYTES, NO_BYTES, NO_BYTES, NO_BYTES, LENGTH_OF_BYTES,        \
							    LENGTH_OF_BYTES)},                                              \
			.field = {LORG_FIELDS_##NAME(FIELD_OF_U64, FIELD_OF_U32, FIELD_OF_I64, FIELD_OF_I32, FIELD_OF_TEXT, \
						     FIELD_OF_BLOB)},                                                       \
		};                                                                                                          \
		_Static_assert((0 LORG_FIELDS_##NAME(COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE, COUNT_ONE)) <=  \
				       EVENT_FIELDS_MAXIMUM,                                                                \
			       "too many fields: " shown);                                                                  \
		return &description;                                                                                        \
	}
LORG_EVENTS(DESCRIBE)

/* By id. Written once, before anything of this program runs. */
static const struct event_description *descriptions[LORG_EVENT_LAST];

__attribute__((constructor(101))) static void fill_descriptions(void)
{
#define DESCRIBE_ONE(number, NAME, shown) descriptions[number] = describe_##NAME();
	LORG_EVENTS(DESCRIBE_ONE)
}

const struct event_description *event_description(uint32_t id)
{
	return id < LORG_EVENT_LAST ? descriptions[id] : NULL;
}

/* Bytes of the fixed fields of the compact ids; 0 where there is no such event. Ids above share the last place. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const uint16_t compact_size[LORG_EVENT_COMPACT_LAST + 2] = {
#define COMPACT_SIZE(number, NAME, shown)                                                                                   \
	[number <= LORG_EVENT_COMPACT_LAST ? number : LORG_EVENT_COMPACT_LAST + 1] = sizeof(struct lorg_event_##NAME),
	LORG_EVENTS(COMPACT_SIZE)};
#pragma GCC diagnostic pop

static inline uint32_t load32(const uint8_t *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static inline uint64_t load64(const uint8_t *at)
{
	uint64_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

/* The low 27 bits of a stamp, continued from the stamp before. */
static inline uint64_t continue_tick(uint64_t previous, uint32_t word)
{
	uint64_t tick = (previous & ~(uint64_t)LORG_TICK_MASK) | word >> 5;
	return tick < previous ? tick + LORG_TICK_MASK + 1 : tick;
}

static enum event_status decode_compact(const uint8_t *at, size_t room, uint64_t previous, uint32_t word,
					struct event_view *view)
{
	uint32_t id = word & 31;
	uint32_t size = compact_size[id];
	if (size == 0) {
		view->length = 8;
		return load64(at) == 0 ? EVENT_HOLE : EVENT_BAD;
	}
	uint32_t length = (4 + size + 7) & ~7u;
	if (length > room)
		return EVENT_BAD;
	view->id = id;
	view->length = length;
	view->padding = length - 4 - size;
	view->tick = view->effective = continue_tick(previous, word);
	view->fields = at + 4;
	view->description = event_description(id);
	return EVENT_OK;
}

/* Bytes of head and fields, as the TEXT and BLOB fields announce them. */
static inline uint64_t exact_length(const struct event_view *view)
{
	const struct event_description *description = view->description;
	uint64_t length = sizeof(struct lorg_extended) + description->size;
	for (unsigned i = 0; i < description->bytes_count; i++)
		length += load32(view->fields + description->bytes_length[i]);
	return length;
}

static enum event_status decode_extended(const uint8_t *at, size_t room, uint32_t word, struct event_view *view)
{
	struct lorg_extended head = {0};
	if (word != LORG_EVENT_EXTENDED)
		return EVENT_BAD;
	/* A filler may be of eight bytes, without a stamp. */
	memcpy(&head, at, room < sizeof head ? 8 : sizeof head);
	view->id = head.id;
	view->length = head.length;
	if (head.length < 8 || head.length % 8 != 0 || head.length > room)
		return EVENT_BAD;
	if (head.id == LORG_EVENT_FILLER || head.id == LORG_EVENT_WITHDRAWN)
		return EVENT_FILLER;
	if (head.length < sizeof head)
		return EVENT_BAD;
	view->tick = view->effective = head.tick;
	view->fields = at + sizeof head;
	view->description = event_description(head.id);
	if (!view->description)
		return EVENT_UNKNOWN;
	if (sizeof head + view->description->size > view->length)
		return EVENT_BAD;
	uint64_t exact = exact_length(view);
	if (exact > view->length)
		return EVENT_BAD;
	view->padding = view->length - (uint32_t)exact;
	if (view->description->tells_entry) {
		uint64_t entry = view->description->tells_entry == ENTRY_TICK ? load64(view->fields)
									      : head.tick - load32(view->fields);
		/* 0: the entry was not stamped; one after the event itself cannot be. */
		if (entry != 0 && entry < head.tick)
			view->effective = entry;
	}
	return EVENT_OK;
}

enum event_status event_decode(const uint8_t *at, size_t room, uint64_t previous, struct event_view *view)
{
	if (room < 8)
		return EVENT_BAD;
	uint32_t word = load32(at);
	if ((word & 31) != LORG_EVENT_EXTENDED)
		return decode_compact(at, room, previous, word, view);
	return decode_extended(at, room, word, view);
}

uint64_t event_number(const struct event_view *view, unsigned field)
{
	if (field >= view->description->field_count)
		return 0;
	const struct event_field *description = &view->description->field[field];
	const uint8_t *at = view->fields + description->offset;
	switch (description->kind) {
	case FIELD_U64:
	case FIELD_I64: return load64(at);
	case FIELD_I32: return (uint64_t)(int64_t)(int32_t)load32(at);
	case FIELD_U32:
	case FIELD_TEXT: /* their length */
	case FIELD_BLOB: break;
	}
	return load32(at);
}

static int field_by_name(const struct event_view *view, const char *name)
{
	for (unsigned i = 0; i < view->description->field_count; i++)
		if (strcmp(view->description->field[i].name, name) == 0)
			return (int)i;
	return -1;
}

uint64_t event_number_named(const struct event_view *view, const char *name, uint64_t otherwise)
{
	int field = field_by_name(view, name);
	return field < 0 ? otherwise : event_number(view, (unsigned)field);
}

const uint8_t *event_bytes(const struct event_view *view, unsigned field, uint32_t *length)
{
	const struct event_description *description = view->description;
	const uint8_t *at = view->fields + description->size;
	*length = 0;
	if (field >= description->field_count || description->field[field].kind < FIELD_TEXT)
		return at;
	for (unsigned i = 0; i < field; i++)
		if (description->field[i].kind >= FIELD_TEXT)
			at += load32(view->fields + description->field[i].offset);
	*length = load32(view->fields + description->field[field].offset);
	return at;
}

const uint8_t *event_bytes_named(const struct event_view *view, const char *name, uint32_t *length)
{
	int field = field_by_name(view, name);
	*length = 0;
	return field < 0 ? view->fields + view->description->size : event_bytes(view, (unsigned)field, length);
}
