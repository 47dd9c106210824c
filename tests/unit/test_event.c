/* SPDX-License-Identifier: MIT */
/* test_event.c: the decoder of events, on good memory and on bad; checksums. */
#include <stdlib.h>
#include <string.h>

#include "collector/event/checksum.h"
#include "collector/event/event.h"
#include "unit.h"

static uint64_t compact(uint32_t id, uint64_t tick, uint32_t value)
{
	return id | (tick & LORG_TICK_MASK) << 5 | (uint64_t)value << 32;
}

START_TEST(a_compact_event_has_its_stamp_and_field)
{
	uint64_t word = compact(LORG_EVENT_ENTER, 0x1234567, 99);
	struct event_view view;
	ck_assert_int_eq(event_decode((uint8_t *)&word, 8, 0x1234000, &view), EVENT_OK);
	ck_assert_uint_eq(view.id, LORG_EVENT_ENTER);
	ck_assert_uint_eq(view.length, 8);
	ck_assert_uint_eq(view.tick, 0x1234567);
	ck_assert_uint_eq(view.effective, view.tick);
	ck_assert_uint_eq(event_number_named(&view, "function", 0), 99);
	ck_assert_uint_eq(event_number_named(&view, "no such field", 7), 7);
}
END_TEST

START_TEST(the_short_stamp_continues_the_one_before)
{
	const uint64_t step = LORG_TICK_MASK, base = (uint64_t)5 << 40 | (step - 10);
	struct event_view view;
	for (uint64_t pause = 0; pause <= step; pause += step / 7) {
		uint64_t word = compact(LORG_EVENT_ENTER, base + pause, 1);
		ck_assert_int_eq(event_decode((uint8_t *)&word, 8, base, &view), EVENT_OK);
		ck_assert_uint_eq(view.tick, base + pause);
	}
}
END_TEST

START_TEST(a_compact_event_of_two_fields_takes_sixteen_bytes)
{
	uint32_t words[4] = {(uint32_t)compact(LORG_EVENT_ENTER_LINE, 5, 0), 7, 42, 0};
	struct event_view view;
	ck_assert_int_eq(event_decode((uint8_t *)words, 16, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.length, 16);
	ck_assert_uint_eq(event_number(&view, 1), 42);
	ck_assert_int_eq(event_decode((uint8_t *)words, 8, 0, &view), EVENT_BAD);
}
END_TEST

/* Headers of five bits and fields that fill whole words: what makes them cheap to write. */
START_TEST(short_forms_of_locks_and_blocks_have_no_padding)
{
	static const struct {
		uint32_t id, length;
		const char *field;
	} forms[] = {{LORG_EVENT_LOCK_TAKEN, 16, "object"},
		     {LORG_EVENT_LOCK_GIVEN_BACK, 16, "object"},
		     {LORG_EVENT_BLOCK_TAKEN, 24, "result"},
		     {LORG_EVENT_BLOCK_GIVEN_BACK, 16, "pointer"}};
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		uint32_t words[6] = {(uint32_t)compact(forms[i].id, 5, 0), 7, 0x89abcdef, 0x7fff};
		struct event_view view;
		ck_assert_int_eq(event_decode((uint8_t *)words, sizeof words, 0, &view), EVENT_OK);
		ck_assert_uint_eq(view.length, forms[i].length);
		ck_assert_uint_eq(4 + view.description->size, forms[i].length);
		ck_assert_uint_eq(event_number_named(&view, forms[i].field, 0), 0x7fff89abcdef);
		ck_assert_int_eq(event_decode((uint8_t *)words, 8, 0, &view), EVENT_BAD);
	}
}
END_TEST

struct big {
	struct lorg_extended head;
	struct lorg_event_EXEC fields;
	char bytes[16];
} __attribute__((packed));

static struct big exec_event(void)
{
	struct big event = {
		.head = {LORG_EVENT_EXTENDED, LORG_EVENT_EXEC, sizeof(struct big), 1000},
		.fields = {.hook = 3, .error = -2, .file_length = 7, .argv_length = 5},
		.bytes = "/bin/lsls\0-l",
	};
	return event;
}

START_TEST(texts_follow_the_fields)
{
	_Static_assert(sizeof(struct big) % 8 == 0, "a multiple of eight");
	struct big event = exec_event();
	struct event_view view;
	uint32_t length;
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.tick, 1000);
	ck_assert_int_eq((int64_t)event_number_named(&view, "error", 0), -2);
	const uint8_t *file = event_bytes_named(&view, "file", &length);
	ck_assert_uint_eq(length, 7);
	ck_assert_int_eq(memcmp(file, "/bin/ls", 7), 0);
	const uint8_t *argv = event_bytes_named(&view, "argv", &length);
	ck_assert_uint_eq(length, 5);
	ck_assert_int_eq(memcmp(argv, "ls\0-l", 5), 0);
	EVENT_FIELDS(&view, EXEC, fields);
	ck_assert_uint_eq(fields.hook, 3);
}
END_TEST

START_TEST(lengths_that_cannot_be_are_refused)
{
	struct event_view view;
	struct big event = exec_event();
	event.fields.file_length = 12; /* with argv more than there is */
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_BAD);
	event.fields.file_length = UINT32_MAX;
	event.fields.argv_length = 10; /* the sum wraps in 32 bits */
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_BAD);
	event = exec_event();
	event.head.length = 12;
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_BAD);
	event.head.length = 0;
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_BAD);
	event.head.length = sizeof event + 8;
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_BAD);
	event = exec_event();
	for (size_t room = 0; room < sizeof event; room++)
		ck_assert_int_eq(event_decode((uint8_t *)&event, room, 0, &view), EVENT_BAD);
}
END_TEST

START_TEST(unknown_events_are_skipped_by_length)
{
	struct lorg_extended event[2] = {{LORG_EVENT_EXTENDED, 5000, 32, 77}};
	struct event_view view;
	ck_assert_int_eq(event_decode((uint8_t *)event, sizeof event, 0, &view), EVENT_UNKNOWN);
	ck_assert_uint_eq(view.length, 32);
	ck_assert_uint_eq(view.tick, 77);
	ck_assert_ptr_null(view.description);
}
END_TEST

START_TEST(fillers_and_holes)
{
	struct event_view view;
	uint64_t hole = 0;
	struct {
		uint32_t word;
		uint16_t id, length;
	} filler = {LORG_EVENT_EXTENDED, LORG_EVENT_FILLER, 8};
	ck_assert_int_eq(event_decode((uint8_t *)&hole, 8, 0, &view), EVENT_HOLE);
	ck_assert_uint_eq(view.length, 8);
	ck_assert_int_eq(event_decode((uint8_t *)&filler, 8, 0, &view), EVENT_FILLER);
	ck_assert_uint_eq(view.length, 8);
	filler.length = 16; /* more than there is */
	ck_assert_int_eq(event_decode((uint8_t *)&filler, 8, 0, &view), EVENT_BAD);
}
END_TEST

START_TEST(an_event_that_tells_of_its_entry_counts_as_of_then)
{
	struct {
		struct lorg_extended head;
		struct lorg_event_SIGNAL_SENT fields;
	} __attribute__((packed)) event = {{LORG_EVENT_EXTENDED, LORG_EVENT_SIGNAL_SENT, sizeof event, 900}, {.entry = 500}};
	struct event_view view;
	_Static_assert(sizeof event % 8 == 0, "a multiple of eight");
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.tick, 900);
	ck_assert_uint_eq(view.effective, 500);
	event.fields.entry = 901; /* after the event itself: not believed */
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.effective, 900);
}
END_TEST

START_TEST(the_entry_may_be_told_by_its_distance)
{
	struct {
		struct lorg_extended head;
		struct lorg_event_SENT fields;
		char message[4];
	} __attribute__((packed)) event = {{LORG_EVENT_EXTENDED, LORG_EVENT_SENT, sizeof event, 900},
					   {.before = 400, .message_length = 3},
					   "hi"};
	struct event_view view;
	_Static_assert(sizeof event % 8 == 0, "a multiple of eight");
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.tick, 900);
	ck_assert_uint_eq(view.effective, 500);
	ck_assert_uint_eq(view.padding, 1);
	event.fields.before = 901; /* before all time: not believed */
	ck_assert_int_eq(event_decode((uint8_t *)&event, sizeof event, 0, &view), EVENT_OK);
	ck_assert_uint_eq(view.effective, 900);
}
END_TEST

START_TEST(every_description_fits_its_structure)
{
	unsigned known = 0;
	for (uint32_t id = 0; id < 70000; id++) {
		const struct event_description *description = event_description(id);
		if (!description)
			continue;
		uint32_t size = 0;
		known++;
		ck_assert_uint_eq(description->id, id);
		for (unsigned i = 0; i < description->field_count; i++) {
			const struct event_field *field = &description->field[i];
			ck_assert_uint_eq(field->offset, size);
			size += field->kind == FIELD_U64 || field->kind == FIELD_I64 ? 8 : 4;
		}
		ck_assert_uint_eq(size, description->size);
		const char *first = description->field[0].name;
		ck_assert_int_eq(description->tells_entry, strcmp(first, "entry") == 0    ? ENTRY_TICK
							   : strcmp(first, "before") == 0 ? ENTRY_BEFORE
											  : ENTRY_NONE);
	}
	ck_assert_uint_gt(known, 80);
}
END_TEST

START_TEST(random_memory_is_decoded_within_its_bounds)
{
	srand(20);
	for (int round = 0; round < 200000; round++) {
		size_t room = (size_t)rand() % 128;
		uint8_t *memory = malloc(room ? room : 1); /* the sanitizer watches its end */
		for (size_t i = 0; i < room; i++)
			memory[i] = rand() % 3 ? (uint8_t)rand() : 0;
		if (room >= 8 && rand() % 2) {
			struct lorg_extended head = {LORG_EVENT_EXTENDED, (uint16_t)(rand() % 160),
						     (uint16_t)(rand() % 16 * 8), 5};
			memcpy(memory, &head, room < sizeof head ? 8 : sizeof head);
		}
		struct event_view view;
		enum event_status status = event_decode(memory, room, (uint64_t)rand(), &view);
		if (status != EVENT_BAD)
			ck_assert(view.length >= 8 && view.length % 8 == 0 && view.length <= room);
		for (unsigned i = 0; status == EVENT_OK && i < view.description->field_count; i++) {
			uint32_t length;
			const uint8_t *bytes = event_bytes(&view, i, &length);
			event_number(&view, i);
			ck_assert(length == 0 || (bytes >= memory && bytes + length <= memory + view.length));
		}
		free(memory);
	}
}
END_TEST

START_TEST(checksums_are_crc32c)
{
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
	ck_assert_uint_eq(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}
END_TEST

/* Long runs are taken by parts side by side, short ones are not. */
START_TEST(a_checksum_is_that_of_its_pieces)
{
	static uint8_t bytes[20000];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	for (size_t length = 0; length < sizeof bytes; length += length < 100 ? 1 : 997) {
		uint32_t whole = crc32c(7, bytes, length), pieces = 7;
		for (size_t at = 0, piece; at < length; at += piece) {
			piece = length - at < 100 ? length - at : 100;
			pieces = crc32c(pieces, bytes + at, piece);
		}
		ck_assert_uint_eq(whole, pieces);
	}
}
END_TEST

START_TEST(any_flipped_bit_changes_the_checksum)
{
	_Alignas(8) uint8_t packet[LORG_PACKET_HEAD + 64] = {1, 2, 3};
	uint64_t sum = packet_checksum(packet, sizeof packet);
	memcpy(packet + offsetof(struct lorg_packet, last), &sum, sizeof sum); /* its own place does not count */
	ck_assert_uint_eq(packet_checksum(packet, sizeof packet), sum);
	for (size_t bit = 0; bit < sizeof packet * 8; bit++) {
		if (bit / 64 == offsetof(struct lorg_packet, last) / 8)
			continue;
		packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_uint_ne(packet_checksum(packet, sizeof packet), sum);
		packet[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *tests[] = {
		a_compact_event_has_its_stamp_and_field,
		the_short_stamp_continues_the_one_before,
		a_compact_event_of_two_fields_takes_sixteen_bytes,
		short_forms_of_locks_and_blocks_have_no_padding,
		texts_follow_the_fields,
		lengths_that_cannot_be_are_refused,
		unknown_events_are_skipped_by_length,
		fillers_and_holes,
		an_event_that_tells_of_its_entry_counts_as_of_then,
		the_entry_may_be_told_by_its_distance,
		every_description_fits_its_structure,
		random_memory_is_decoded_within_its_bounds,
		checksums_are_crc32c,
		a_checksum_is_that_of_its_pieces,
		any_flipped_bit_changes_the_checksum,
	};
	return unit_suite_of("event", tests, sizeof tests / sizeof *tests, 60);
}
