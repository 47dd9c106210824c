/* SPDX-License-Identifier: MIT */
/*
 * test_router.c: which session gets which event: made-up packets and histories of flags, compared with a plain model;
 * definitions, limits, losses; what sessions get are whole packets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/event/checksum.h"
#include "collector/event/event.h"
#include "collector/read/part.h"
#include "collector/session/definitions.h"
#include <lorg/kinds.h>
#include "collector/session/monitor.h"
#include "collector/session/router.h"
#include "collector/store/packet.h"
#include "tests/unit/unit.h"

/* ---- what the other files of sessions would do ------------------------------------ */

int session_traces_function(const struct session *session, uint32_t function, uint64_t tick)
{
	(void)tick;
	return function % 3 == session->slot % 3;
}

void session_functions_flag(struct sessions *sessions, struct session *session, struct family *family, uint32_t process, int on)
{
	(void)sessions, (void)session, (void)family, (void)process, (void)on;
}

struct session *session_numbered(struct sessions *sessions, uint64_t number)
{
	(void)sessions, (void)number;
	return NULL;
}

/* ---- a tracer that remembers --------------------------------------------------------- */

struct shown {
	uint32_t id, side; /* enum lorg_packet_holds */
	uint64_t effective, tick, birth;
};

enum { SHOWN_MAXIMUM = 400000 };

struct memory_tracer {
	struct tracer tracer;
	struct shown *shown;
	uint32_t count, aside; /* events that are shown, and those that are not */
	uint32_t of[LORG_EVENT_LAST], aside_of[LORG_EVENT_LAST];
	uint64_t lost, perhaps_lost, packets;
	uint64_t last_flags;
	int aside_after; /* something that is not shown came after something that is */
};

static void check_packet(const struct lorg_packet *packet, size_t length)
{
	ck_assert_uint_eq(packet->magic, LORG_PACKET_MAGIC);
	ck_assert_uint_eq(packet->packet_bits, length * 8);
	ck_assert_uint_le(packet->content_bits, packet->packet_bits);
	ck_assert_uint_lt(packet->packet_bits - packet->content_bits, 64);
	ck_assert_uint_eq(packet->last, packet_checksum(packet, length));
	ck_assert_uint_le(packet->begin, packet->end);
	ck_assert_uint_le(packet->earliest, packet->begin);
	ck_assert_uint_eq(packet->events_discarded, 0);
	ck_assert(packet->holds & LORG_HOLDS_KNOWN);
}

static void note_shown(struct memory_tracer *memory, const struct lorg_packet *packet, const struct event_view *view)
{
	for (unsigned i = 0; i < part_count(view); i++) {
		ck_assert_uint_lt(memory->count, SHOWN_MAXIMUM);
		memory->of[part_id(view, i)]++;
		memory->shown[memory->count++] = (struct shown){
			.id = part_id(view, i),
			.side = packet->holds & (LORG_HOLDS_PROCESS_FLAGS | LORG_HOLDS_PORT_FLAGS),
			.effective = part_effective(view, i),
			.tick = view->tick,
			.birth = packet->process_birth,
		};
	}
}

static uint64_t take_packet(struct tracer *tracer, struct lorg_packet *packet, size_t length)
{
	struct memory_tracer *memory = (struct memory_tracer *)tracer;
	uint64_t previous = packet->begin, earliest = packet->begin;
	struct event_view view;
	check_packet(packet, length);
	ck_assert_uint_eq(packet->sequence, memory->packets++);
	for (size_t at = LORG_PACKET_HEAD; at < length; at += view.length) {
		ck_assert_int_eq(event_decode((const uint8_t *)packet + at, length - at, previous, &view), EVENT_OK);
		ck_assert_uint_lt(view.padding, 8);
		ck_assert_uint_ge(view.tick, previous);
		previous = view.tick;
		if (view.effective < earliest)
			earliest = view.effective;
		if (event_is_definition(view.id))
			ck_assert(packet->holds & LORG_HOLDS_DEFINITIONS);
		if (packet->holds & LORG_HOLDS_UNSHOWN) {
			memory->aside++;
			memory->aside_of[view.id]++;
			memory->aside_after |= memory->count != 0;
			if (view.id == LORG_EVENT_FLAGS) {
				EVENT_FIELDS(&view, FLAGS, flags);
				memory->last_flags = flags.on;
			}
		} else {
			note_shown(memory, packet, &view);
		}
	}
	ck_assert_uint_eq(packet->end, previous);
	ck_assert_uint_eq(packet->earliest, earliest);
	return 0;
}

static void take_lost(struct tracer *tracer, uint64_t count, uint64_t perhaps)
{
	((struct memory_tracer *)tracer)->lost += count;
	((struct memory_tracer *)tracer)->perhaps_lost += perhaps;
}

static enum tracer_state is_fine(const struct tracer *tracer, const char **why)
{
	(void)tracer, (void)why;
	return TRACER_FINE;
}

static const struct tracer_operations remembers = {.packet = take_packet, .lost = take_lost, .state = is_fine};

/* ---- a node ------------------------------------------------------------------------------ */

enum { SESSIONS = 3, IMAGE_BYTE = 7 };

static struct family_context context;
static struct arena_settings settings;
static struct sessions *sessions;
static struct memory_tracer tracers[SESSION_SLOTS];

static void add_session(unsigned slot, uint64_t since)
{
	struct session *session = &sessions->slot[slot];
	struct memory_tracer *memory = &tracers[slot];
	free(memory->shown);
	*memory = (struct memory_tracer){.tracer.operations = &remembers};
	memory->shown = calloc(SHOWN_MAXIMUM, sizeof *memory->shown);
	ck_assert_ptr_nonnull(memory->shown);
	*session = (struct session){.slot = slot, .number = slot + 100u, .used = 1, .since = since, .tracer = &memory->tracer};
	for (int i = 0; i < 8; i++)
		session->system_limits[i] = UINT64_MAX;
	snprintf(session->name, sizeof session->name, "session %u", slot);
	sessions->count++;
	router_session_begins(sessions, session);
	memory->aside_after = 0;
}

static void begin(void)
{
	clock_begin(&context.clock);
	clock_refine(&context.clock);
	context.arena_settings = &settings;
	sessions = calloc(1, sizeof *sessions);
	ck_assert_ptr_nonnull(sessions);
	sessions->context = &context;
	context.sessions = sessions;
	sessions->flags = flags_create(sessions);
	sessions->router = router_create(sessions);
	ck_assert(sessions->flags && sessions->router);
}

static void finish(void)
{
	for (unsigned slot = 0; slot < SESSION_SLOTS; slot++)
		free(tracers[slot].shown);
	router_free(sessions->router);
	flags_free(sessions->flags);
	free(sessions);
}

static struct flags_key process_key(uint64_t birth)
{
	struct flags_key key = {.birth = birth, .fd = -1};
	memset(key.image, IMAGE_BYTE, sizeof key.image);
	return key;
}

static struct flags_key port_key(int32_t fd, uint32_t generation)
{
	struct flags_key key = {.fd = fd, .generation = generation};
	memset(key.image, IMAGE_BYTE, sizeof key.image);
	return key;
}

/* Sets flags from a tick on. */
static void set(unsigned slot, uint64_t birth, uint64_t tick, uint32_t on, uint32_t off)
{
	const struct flags_key key = process_key(birth);
	session_flags_told(sessions, &key, slot, tick, on, off);
}

static void set_port(unsigned slot, int32_t fd, uint64_t tick, uint32_t on, uint32_t off)
{
	const struct flags_key key = port_key(fd, 0);
	session_flags_told(sessions, &key, slot, tick, on, off);
}

/* ---- packets -------------------------------------------------------------------------------- */

static _Alignas(8) uint8_t buffer[LORG_CHUNK_SIZE];
static struct packet_builder packet;

static void begin_packet(uint64_t birth, uint64_t tick)
{
	packet_begin(&packet, buffer, sizeof buffer, tick);
	memset(packet.head->image, IMAGE_BYTE, sizeof packet.head->image);
	packet.head->process_birth = birth;
	packet.head->pid = 500;
	packet.head->tid = (uint32_t)(500 + birth);
}

static void add_word(uint32_t id, uint64_t tick, uint32_t value)
{
	uint64_t word = id | (tick & LORG_TICK_MASK) << 5 | (uint64_t)value << 32;
	memcpy(buffer + packet.length, &word, sizeof word);
	packet.length += 8;
	packet.event_count++;
	packet.head->end = tick;
}

static void route(void)
{
	packet.head->packet_bits = packet.length * 8u;
	ck_assert_int_eq(router_packet(sessions, NULL, NULL, packet.head, packet.length), 0);
}

#define ADD(NAME, tick, ...) ck_assert_int_eq(PACKET_EVENT(&packet, NAME, tick, __VA_ARGS__), 0)

/* ---- tests ------------------------------------------------------------------------------------- */

START_TEST(every_event_has_a_row)
{
#define HAS_ROW(number, NAME, name) ck_assert_msg(kind_of_event(number).who != KIND_NONE, "no row for " name);
	LORG_EVENTS(HAS_ROW)
	ck_assert_int_eq(kind_of_event(LORG_EVENT_LAST).who, KIND_NONE);
	ck_assert_int_eq(kind_of_event(UINT32_MAX).who, KIND_NONE);
}
END_TEST

static uint64_t seed = 88172645463325252u;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 11) % below);
}

/* Plain: all changes in the order of their ticks, from the beginning. */
struct model_change {
	uint64_t tick;
	uint32_t on, off;
};

static uint32_t model_at(const struct model_change *changes, unsigned count, uint64_t tick)
{
	uint32_t flags = 0;
	for (unsigned i = 0; i < count; i++)
		if (changes[i].tick <= tick)
			flags = (flags | changes[i].on) & ~changes[i].off;
	return flags;
}

static unsigned insert(struct model_change *changes, unsigned count, struct model_change change)
{
	unsigned at = count;
	for (; at > 0 && changes[at - 1].tick > change.tick; at--)
		changes[at] = changes[at - 1];
	changes[at] = change;
	return count + 1;
}

START_TEST(flags_are_those_of_the_tick)
{
	begin();
	add_session(1, 0);
	for (int round = 0; round < 300; round++) {
		struct model_change changes[40];
		unsigned count = 0, steps = 1 + any(40);
		uint64_t birth = 1000 + (unsigned)round;
		const struct flags_key key = process_key(birth);
		for (unsigned i = 0; i < steps; i++) {
			const struct model_change change = {1 + any(1000), any(1 << 20), any(4) ? 0 : any(1 << 20)};
			if (!(change.on | change.off))
				continue;
			count = insert(changes, count, change);
			set(1, birth, change.tick, change.on, change.off);
		}
		for (unsigned i = 0; i < 100; i++) {
			uint64_t tick = any(1100);
			ck_assert_uint_eq(session_flags_at(sessions, &key, 1, tick), model_at(changes, count, tick));
			struct flags_span span = flags_span_at(flags_find(sessions->flags, &key), 1, tick);
			if (span.until != UINT64_MAX)
				ck_assert_uint_gt(span.until, tick);
			ck_assert_uint_le(span.since, tick);
		}
		ck_assert_uint_eq(session_flags_at(sessions, &key, 2, 500), 0);
	}
	flags_session_ends(sessions, &sessions->slot[1]);
	const struct flags_key key = process_key(1000);
	ck_assert_uint_eq(session_flags_at(sessions, &key, 1, 2000), 0);
	finish();
}
END_TEST

START_TEST(history_is_bounded)
{
	const struct flags_key key = process_key(5);
	begin();
	add_session(1, 0);
	for (uint64_t tick = 1; tick <= 100000; tick++)
		set(1, 5, tick * 10, tick % 2 ? LORG_TRACE_SEND : 0, tick % 2 ? 0 : LORG_TRACE_SEND);
	ck_assert_uint_eq(session_flags_at(sessions, &key, 1, 999990), LORG_TRACE_SEND);
	ck_assert_uint_eq(session_flags_at(sessions, &key, 1, 1000005), 0);
	ck_assert_uint_eq(session_flags_at(sessions, &key, 1, 999989), 0);
	finish();
}
END_TEST

/* What the model says that a session is shown. */
struct expected {
	struct shown *shown;
	uint32_t count;
};

static struct model_change process_changes[SESSIONS + 1][16], port_changes[SESSIONS + 1][16];
static unsigned process_change_count[SESSIONS + 1], port_change_count[SESSIONS + 1];
static struct expected expected[SESSIONS + 1];

static void expect(unsigned slot, uint32_t side, uint32_t id, uint64_t effective)
{
	struct expected *of = &expected[slot];
	of->shown[of->count++] = (struct shown){.id = id, .side = side, .effective = effective};
}

static void expect_if(uint32_t process_flags, uint32_t port_flags, uint32_t id, uint64_t effective)
{
	for (unsigned slot = 1; slot <= SESSIONS; slot++) {
		if (effective < sessions->slot[slot].since)
			continue;
		if (model_at(process_changes[slot], process_change_count[slot], effective) & process_flags)
			expect(slot, LORG_HOLDS_PROCESS_FLAGS, id, effective);
		if (model_at(port_changes[slot], port_change_count[slot], effective) & port_flags)
			expect(slot, LORG_HOLDS_PORT_FLAGS, id, effective);
	}
}

static uint32_t waits_for(int ending, int not_waited)
{
	return ending ? LORG_TRACE_EXITING : not_waited ? LORG_TRACE_RUNNING_PROCS : LORG_TRACE_RUNNING | LORG_TRACE_RUNNING_PROCS;
}

static void add_short_message(uint64_t tick, uint64_t entry, int sent)
{
	uint32_t flags = (any(2) ? LORG_MESSAGE_RUNNING : 0) | (any(4) ? 0 : LORG_MESSAGE_NOT_WAITED) | (any(5) ? 0 : LORG_MESSAGE_OUT_ENDING) |
			 (any(5) ? 0 : LORG_MESSAGE_IN_ENDING);
	uint32_t length = any(40);
	const uint8_t bytes[40] = "0123456789abcdefghijklmnopqrstuvwxyz";
	const struct packet_bytes message[] = {{bytes, length}};
	const struct lorg_event_SENT event = {.before = (uint32_t)(tick - entry), .port = 4, .bytes = length, .hook_flags = 9 | flags << 16};
	ck_assert_int_eq(packet_event(&packet, sent ? LORG_EVENT_SENT : LORG_EVENT_RECEIVED, tick, &event, message, 1), 0);
	if (sent)
		expect_if(LORG_TRACE_SEND, LORG_TRACE_RECEIVE, LORG_EVENT_SEND, entry);
	if (flags & LORG_MESSAGE_RUNNING) {
		expect_if(waits_for(flags & LORG_MESSAGE_OUT_ENDING, flags & LORG_MESSAGE_NOT_WAITED), 0, LORG_EVENT_OUT, entry);
		expect_if(waits_for(flags & LORG_MESSAGE_IN_ENDING, flags & LORG_MESSAGE_NOT_WAITED), 0, LORG_EVENT_IN, tick);
	}
	if (!sent)
		expect_if(LORG_TRACE_RECEIVE, LORG_TRACE_SEND, LORG_EVENT_RECEIVE, tick);
}

static void add_wait(uint64_t tick, uint64_t entry)
{
	uint32_t ending = any(3) ? 0 : any(8);
	ADD(WAITED, tick, .entry = entry, .object = 4, .hook = 3, .ending = ending);
	expect_if(waits_for(ending & 1, ending & 4), 0, LORG_EVENT_OUT, entry);
	expect_if(waits_for(ending & 2, ending & 4), 0, LORG_EVENT_IN, tick);
}

static void add_call(uint64_t tick)
{
	uint32_t function = any(30);
	add_word(LORG_EVENT_CALL_ENTRY, tick, function);
	for (unsigned slot = 1; slot <= SESSIONS; slot++) {
		uint32_t flags = model_at(process_changes[slot], process_change_count[slot], tick);
		if (tick >= sessions->slot[slot].since && (flags & LORG_TRACE_CALL) && !(flags & LORG_TRACE_SILENT) &&
		    function % 3 == slot % 3)
			expect(slot, LORG_HOLDS_PROCESS_FLAGS, LORG_EVENT_CALL_ENTRY, tick);
	}
}

static void add_own(uint64_t tick)
{
	unsigned slot = 1 + any(SESSIONS);
	ADD(RETURN_TO, tick, .address = 0x1000, .session_kind = slot);
	if (tick >= sessions->slot[slot].since)
		expect(slot, LORG_HOLDS_PROCESS_FLAGS, LORG_EVENT_RETURN_TO, tick);
}

static void add_any(uint64_t tick, uint64_t entry)
{
	switch (any(12)) {
	case 0: add_short_message(tick, entry, 1); break;
	case 1: add_short_message(tick, entry, 0); break;
	case 2: add_wait(tick, entry); break;
	case 3: add_call(tick); break;
	case 4: add_own(tick); break;
	case 5:
		ADD(SEND, tick, .entry = entry, .object = 4, .bytes = 3);
		expect_if(LORG_TRACE_SEND, LORG_TRACE_RECEIVE, LORG_EVENT_SEND, entry);
		break;
	case 6:
		ADD(LINK, tick, .pid = 1, .tid = 1, .fd = -1);
		expect_if(LORG_TRACE_PROCS, 0, LORG_EVENT_LINK, tick);
		break;
	case 7:
		ADD(PORT_IN, tick, .fd = 4, .command = 1);
		expect_if(0, LORG_TRACE_RUNNING_PORTS, LORG_EVENT_PORT_IN, tick);
		break;
	case 8: ADD(ACQUIRED, tick, .object = 1); break; /* nobody's */
	case 9: add_word(LORG_EVENT_RETURN, tick, any(30)); break;
	case 10:
		ADD(CLOSED, tick, .fd = 4, .generation = 0, .reason = LORG_REASON_NORMAL);
		expect_if(LORG_TRACE_PROCS, LORG_TRACE_PORTS, LORG_EVENT_CLOSED, tick);
		break;
	default:
		ADD(SIGNAL_RECEIVED, tick, .signal = 10);
		expect_if(LORG_TRACE_RECEIVE, 0, LORG_EVENT_SIGNAL_RECEIVED, tick);
	}
}

static int in_order(const void *left, const void *right)
{
	const struct shown *a = left, *b = right;
	if (a->effective != b->effective)
		return a->effective < b->effective ? -1 : 1;
	if (a->side != b->side)
		return a->side < b->side ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static void compare(unsigned slot)
{
	struct memory_tracer *memory = &tracers[slot];
	struct expected *of = &expected[slot];
	qsort(memory->shown, memory->count, sizeof *memory->shown, in_order);
	qsort(of->shown, of->count, sizeof *of->shown, in_order);
	for (uint32_t i = 0; i < of->count && i < memory->count; i++) {
		ck_assert_uint_eq(memory->shown[i].effective, of->shown[i].effective);
		ck_assert_uint_eq(memory->shown[i].id, of->shown[i].id);
		ck_assert_uint_eq(memory->shown[i].side, of->shown[i].side);
	}
	ck_assert_uint_eq(memory->count, of->count);
}

static void any_history(unsigned slot, uint64_t begins, uint64_t length)
{
	unsigned changes = any(8);
	process_change_count[slot] = port_change_count[slot] = 0;
	for (unsigned i = 0; i < changes; i++) {
		const struct model_change change = {begins + any((uint32_t)length), any(1 << 20) & any(1 << 20), any(1 << 20) & any(1 << 20)};
		if (!(change.on | change.off))
			continue;
		if (any(2)) {
			process_change_count[slot] = insert(process_changes[slot], process_change_count[slot], change);
			set(slot, 1, change.tick, change.on, change.off);
		} else {
			port_change_count[slot] = insert(port_changes[slot], port_change_count[slot], change);
			set_port(slot, 4, change.tick, change.on, change.off);
		}
	}
}

START_TEST(each_session_gets_what_it_asked_for)
{
	enum { LENGTH = 100000 };
	for (unsigned slot = 1; slot <= SESSIONS; slot++) {
		expected[slot].shown = calloc(SHOWN_MAXIMUM, sizeof(struct shown));
		ck_assert_ptr_nonnull(expected[slot].shown);
	}
	for (int round = 0; round < 100; round++) {
		uint64_t tick = 1000000 + any(1000);
		begin();
		for (unsigned slot = 1; slot <= SESSIONS; slot++) {
			add_session(slot, any(3) ? 0 : tick + any(LENGTH / 2));
			any_history(slot, tick, LENGTH);
			expected[slot].count = 0;
		}
		for (int packets = 0; packets < 4; packets++) {
			begin_packet(1, tick);
			for (int i = 0; i < 200; i++) {
				tick += 1 + any(250);
				add_any(tick, tick - any(500));
			}
			route();
		}
		for (unsigned slot = 1; slot <= SESSIONS; slot++)
			compare(slot);
		finish();
		memset(tracers, 0, sizeof tracers);
	}
	for (unsigned slot = 1; slot <= SESSIONS; slot++)
		free(expected[slot].shown);
}
END_TEST

START_TEST(stamps_hold_over_what_is_left_out)
{
	begin();
	add_session(1, 0);
	set(1, 1, 1, LORG_TRACE_CALL, 0);
	begin_packet(1, 1000);
	uint64_t tick = 1000;
	unsigned wanted = 0;
	/* Function 1 is session 1's, 2 is not: between two that are wanted, stamps may wrap more than once. */
	for (unsigned i = 0; i < 600; i++) {
		tick += any(LORG_TICK_MASK);
		add_word(LORG_EVENT_CALL_ENTRY, tick, i % 5 == 0 ? 1 : 2);
		wanted += i % 5 == 0;
	}
	uint64_t last = tick - 0;
	route();
	ck_assert_uint_eq(tracers[1].count, wanted);
	ck_assert_uint_le(tracers[1].shown[wanted - 1].tick, last);
	for (unsigned i = 1; i < wanted; i++)
		ck_assert_uint_ge(tracers[1].shown[i].tick, tracers[1].shown[i - 1].tick);
	finish();
}
END_TEST

static void add_image(uint64_t tick)
{
	const struct lorg_event_IMAGE event = {.birth = LORG_BIRTH_COMMAND, .own_pid = 500};
	const struct packet_bytes bytes[] = {packet_text("/bin/program"), {NULL, 0}};
	ck_assert_int_eq(packet_event(&packet, LORG_EVENT_IMAGE, tick, &event, bytes, 2), 0);
}

static void add_module(uint64_t tick, uint64_t at)
{
	const struct lorg_event_MODULE event = {.base = at, .start = at, .size = 4096};
	const struct packet_bytes bytes[] = {{NULL, 0}, packet_text("/lib/library.so")};
	ck_assert_int_eq(packet_event(&packet, LORG_EVENT_MODULE, tick, &event, bytes, 2), 0);
	packet.head->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS;
}

static void add_open(uint64_t tick, int32_t fd, uint32_t generation, uint32_t hook)
{
	ADD(OPEN, tick, .fd = fd, .generation = generation, .driver = LORG_DRIVER_PIPE, .hook = hook);
	packet.head->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS;
}

START_TEST(definitions_come_first_and_once)
{
	begin();
	begin_packet(1, 1000);
	add_image(1000);
	add_module(1001, 0x1000);
	add_module(1002, 0x2000);
	route(); /* no session yet */
	add_session(1, 0);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_SESSION], 1);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_CLOCK], 1);
	ck_assert_uint_gt(tracers[1].aside_of[LORG_EVENT_HOOK], 100);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_IMAGE], 0);
	set(1, 1, 1500, LORG_TRACE_PROCS, 0);
	for (int i = 0; i < 3; i++) {
		begin_packet(1, 2000 + (uint64_t)i);
		ADD(LINK, 2000 + (uint64_t)i, .fd = -1);
		route();
	}
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_LINK], 3);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_IMAGE], 1);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_MODULE], 2);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_FLAGS], 1);
	ck_assert_uint_eq(tracers[1].last_flags, LORG_TRACE_PROCS);
	ck_assert(!tracers[1].aside_after);
	/* A module more, without any event: told with the next. */
	begin_packet(1, 3000);
	add_module(3000, 0x3000);
	route();
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_MODULE], 2);
	begin_packet(1, 3001);
	ADD(LINK, 3001, .fd = -1);
	route();
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_MODULE], 3);
	/* Another session later gets all of them; none of them is shown. */
	add_session(2, 0);
	set(2, 1, 3500, LORG_TRACE_PROCS, 0);
	begin_packet(1, 4000);
	ADD(LINK, 4000, .fd = -1);
	route();
	ck_assert_uint_eq(tracers[2].aside_of[LORG_EVENT_MODULE], 3);
	ck_assert_uint_eq(tracers[2].count, 1);
	finish();
}
END_TEST

START_TEST(a_fork_child_is_given_its_parents_modules)
{
	uint8_t child[16];
	memset(child, 9, sizeof child);
	begin();
	add_session(1, 0);
	begin_packet(1, 1000);
	add_image(1000);
	add_module(1001, 0x1000);
	route();
	begin_packet(50, 1100);
	memcpy(packet.head->image, child, sizeof child);
	uint64_t low = 0x0707070707070707u;
	const struct lorg_event_IMAGE event = {.parent_image_low = low, .parent_image_high = low, .birth = LORG_BIRTH_FORK};
	const struct packet_bytes bytes[] = {packet_text("/bin/program"), {NULL, 0}};
	packet_event(&packet, LORG_EVENT_IMAGE, 1100, &event, bytes, 2);
	packet.head->holds = LORG_HOLDS_KNOWN | LORG_HOLDS_DEFINITIONS;
	ADD(FLAGS, 1100, .entry = 1100, .on = LORG_TRACE_PROCS, .session = 1);
	ADD(SPAWNED, 1101, .how = LORG_BIRTH_FORK);
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_SPAWNED], 1);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_IMAGE], 2);
	ck_assert_uint_eq(tracers[1].aside_of[LORG_EVENT_MODULE], 1);
	finish();
}
END_TEST

START_TEST(ports_have_sides)
{
	begin();
	add_session(1, 0);
	add_session(2, 0);
	set(1, 1, 500, LORG_TRACE_PROCS, 0);
	session_new_ports(sessions, &sessions->slot[2], 1, LORG_TRACE_PORTS);
	ck_assert_uint_eq(sessions->slot[2].defaults.new_ports, LORG_TRACE_PORTS);
	uint64_t tick = clock_tick(&context.clock);
	begin_packet(1, tick);
	add_open(tick, 4, 0, 17);
	add_open(tick + 1, 5, 0, UINT32_MAX); /* seen late: was there before */
	ADD(CLOSED, tick + 2, .fd = 4);
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_OPEN], 1);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_CLOSED], 1);
	ck_assert_uint_eq(tracers[1].shown[0].side, LORG_HOLDS_PROCESS_FLAGS);
	ck_assert_uint_eq(tracers[2].of[LORG_EVENT_OPEN], 1);
	ck_assert_uint_eq(tracers[2].of[LORG_EVENT_CLOSED], 1);
	ck_assert_uint_eq(tracers[2].shown[0].side, LORG_HOLDS_PORT_FLAGS);
	ck_assert_uint_eq(router_ports(sessions, NULL, NULL, NULL), 1);
	ck_assert_uint_eq(flags_of_ports(sessions), LORG_TRACE_PORTS);
	finish();
}
END_TEST

/* Whoever closes it: the link was its opener's. */
START_TEST(a_closed_port_is_its_openers)
{
	begin();
	add_session(1, 0);
	set(1, 1, 500, LORG_TRACE_PROCS, 0);
	begin_packet(1, 1000);
	add_open(1000, 4, 0, 17);
	route();
	begin_packet(2, 1001);
	ADD(CLOSED, 1001, .fd = 4);
	ADD(LINK, 1002, .fd = -1);
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_OPEN], 1);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_CLOSED], 1);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_LINK], 0);
	finish();
}
END_TEST

START_TEST(flags_of_a_binding_that_was_not_told_yet)
{
	begin();
	add_session(1, 0);
	uint8_t image[16];
	memset(image, IMAGE_BYTE, sizeof image);
	session_port_flags(sessions, &sessions->slot[1], image, 6, PORT_GENERATION_NOW, 1, LORG_TRACE_SEND | LORG_TRACE_RECEIVE);
	uint64_t tick = clock_tick(&context.clock);
	begin_packet(1, tick);
	add_open(tick, 6, 0, UINT32_MAX);
	ADD(SEND, tick + 1, .entry = tick + 1, .object = 6, .bytes = 1);
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_SEND], 1);
	ck_assert_uint_eq(tracers[1].shown[0].side, LORG_HOLDS_PORT_FLAGS);
	/* A new binding of the number is another port. */
	begin_packet(1, tick + 2);
	add_open(tick + 2, 6, 1, 17);
	ADD(SEND, tick + 3, .entry = tick + 3, .object = 6, .generation = 1, .bytes = 1);
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_SEND], 1);
	finish();
}
END_TEST

START_TEST(specifications_are_the_programs_word)
{
	begin();
	add_session(1, 0);
	add_session(2, 0);
	set(1, 1, 500, LORG_TRACE_SEND, 0);
	set(2, 1, 500, LORG_TRACE_SEND, 0);
	sessions->slot[2].send = (struct session_messages){.given = 1, .program = (uint8_t *)1};
	begin_packet(1, 1000);
	ADD(SEND, 1000, .entry = 1000, .object = 4);		     /* for those without one */
	ADD(SEND, 1001, .entry = 1001, .object = 4, .session = 2); /* its own held */
	ADD(SEND, 1002, .entry = 1002, .object = 4, .session = 2, .as_port = 1);
	route();
	ck_assert_uint_eq(tracers[1].count, 1);
	ck_assert_uint_eq(tracers[1].shown[0].tick, 1000);
	ck_assert_uint_eq(tracers[2].count, 1);
	ck_assert_uint_eq(tracers[2].shown[0].tick, 1001);
	sessions->slot[2].send = (struct session_messages){.given = 1, .off = 1};
	begin_packet(1, 2000);
	ADD(SEND, 2000, .entry = 2000, .object = 4);
	route();
	ck_assert_uint_eq(tracers[2].count, 1);
	finish();
}
END_TEST

START_TEST(losses_are_told_to_whom_they_may_concern)
{
	begin();
	add_session(1, 0);
	add_session(2, 0);
	set(1, 1, 500, LORG_TRACE_SEND, 0);
	begin_packet(1, 1000);
	packet.head->events_discarded = 7;
	route();
	begin_packet(1, 1100);
	const struct lorg_event_LOST lost = {.count = 5};
	const struct packet_bytes why[] = {packet_text("no room")};
	packet_event(&packet, LORG_EVENT_LOST, 1100, &lost, why, 1);
	route();
	/* The program's entry is not there: nobody can say which events those were. */
	ck_assert_uint_eq(tracers[1].lost, 0);
	ck_assert_uint_eq(tracers[1].perhaps_lost, 12);
	ck_assert_uint_eq(tracers[2].lost + tracers[2].perhaps_lost, 0);
	finish();
}
END_TEST

START_TEST(limits_hold)
{
	begin();
	add_session(1, 0);
	add_session(2, 0);
	set(1, 1, 500, LORG_TRACE_PROCS, 0);
	set(2, 1, 500, LORG_TRACE_PROCS, 0);
	sessions->slot[1].limits.events = 10;
	sessions->slot[2].limits.rate = 20;
	begin_packet(1, 1000);
	for (unsigned i = 0; i < 100; i++)
		ADD(LINK, 1000 + i, .fd = -1);
	route();
	router_pass(sessions, clock_monotonic_ns());
	ck_assert_uint_eq(tracers[1].count, 10);
	ck_assert_uint_eq(sessions->slot[1].events, 10);
	ck_assert_uint_eq(tracers[2].count, 20);
	ck_assert_uint_eq(tracers[2].lost, 80);
	ck_assert_uint_eq(sessions->slot[2].dropped, 80);
	finish();
}
END_TEST

START_TEST(much_is_cut_into_packets)
{
	begin();
	add_session(1, 0);
	set(1, 1, 1, LORG_TRACE_RUNNING | LORG_TRACE_SEND, 0);
	unsigned added = 0;
	uint64_t tick = 1000;
	const struct packet_bytes message[] = {{buffer, 30}};
	begin_packet(1, tick);
	/* Short messages of which only some is wanted become longer. */
	for (;; added++) {
		const struct lorg_event_SENT event = {.before = 5, .port = 4, .bytes = 30,
						      .hook_flags = (uint32_t)(LORG_MESSAGE_RUNNING | LORG_MESSAGE_OUT_ENDING) << 16};
		if (packet_event(&packet, LORG_EVENT_SENT, tick += 10, &event, message, 1))
			break;
	}
	route();
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_SEND], added);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_IN], added);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_OUT], 0);
	finish();
}
END_TEST

static void note_done(void *done)
{
	++*(int *)done;
}

START_TEST(deliveries_wait_for_passes)
{
	int done = 0, abandoned = 0, ended = 0;
	begin();
	add_session(1, 0);
	add_session(2, 0);
	router_delivered(sessions, &sessions->slot[1], note_done, &done);
	router_delivered(sessions, &sessions->slot[1], note_done, &abandoned);
	router_delivered(sessions, &sessions->slot[2], note_done, &ended);
	router_delivered_abandon(sessions, &abandoned);
	router_session_ends(sessions, &sessions->slot[2]);
	ck_assert_int_eq(ended, 1);
	ck_assert_int_eq(done, 0);
	for (int i = 0; i < 5; i++)
		router_pass(sessions, clock_monotonic_ns());
	ck_assert_int_eq(done, 1);
	ck_assert_int_eq(abandoned, 0);
	finish();
}
END_TEST

/* A link is told in one stream, and is a message of both ends; the end of one is a message of the other. */
START_TEST(links_have_two_ends)
{
	static struct family family;
	static struct slab slab;
	static struct slab *slabs[] = {&slab};
	static struct image image = {.pid = 500, .own_pid = 500};
	begin();
	add_session(1, 0); /* asks of the other */
	add_session(2, 0); /* asks of both */
	add_session(3, 0); /* asks of the one that links */
	memset(image.id, IMAGE_BYTE, sizeof image.id);
	family.slabs = slabs;
	family.slab_room = 1;
	slab.entry[0] = (struct process){.used = 1, .image = &image, .birth_tick = 1, .tid = 501, .own_tid = 501};
	slab.entry[1] = (struct process){.used = 1, .image = &image, .birth_tick = 2, .tid = 502, .own_tid = 502};
	set(1, 2, 10, LORG_TRACE_PROCS, 0);
	set(2, 1, 10, LORG_TRACE_PROCS, 0);
	set(2, 2, 10, LORG_TRACE_PROCS, 0);
	set(3, 1, 10, LORG_TRACE_PROCS, 0);
	begin_packet(1, 1000);
	ADD(LINK, 1000, .pid = 500, .tid = 502, .fd = -1);
	packet.head->packet_bits = packet.length * 8u;
	router_packet(sessions, &family, NULL, packet.head, packet.length);
	for (unsigned slot = 1; slot <= 3; slot++) {
		ck_assert_uint_eq(tracers[slot].of[LORG_EVENT_LINK], slot != 1);
		ck_assert_uint_eq(tracers[slot].of[LORG_EVENT_GETTING_LINKED], slot != 3);
	}
	ck_assert_uint_eq(tracers[1].shown[0].birth, 2);
	begin_packet(1, 2000);
	ADD(EXIT, 2000, .reason = LORG_REASON_NORMAL);
	route();
	for (unsigned slot = 1; slot <= 3; slot++) {
		ck_assert_uint_eq(tracers[slot].of[LORG_EVENT_EXIT], slot != 1);
		ck_assert_uint_eq(tracers[slot].of[LORG_EVENT_GETTING_UNLINKED], slot != 3);
	}
	/* Once. */
	uint8_t id[16];
	memset(id, IMAGE_BYTE, sizeof id);
	router_process_over(sessions, id, 1);
	router_process_over(sessions, id, 2);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_GETTING_UNLINKED], 1);
	/* One that does not tell its exit. */
	set(1, 2, 3000, LORG_TRACE_PROCS, 0);
	begin_packet(1, 3000);
	ADD(LINK, 3001, .pid = 500, .tid = 502, .fd = -1);
	router_packet(sessions, &family, NULL, packet.head, packet.length);
	router_process_over(sessions, id, 1);
	ck_assert_uint_eq(tracers[1].of[LORG_EVENT_GETTING_UNLINKED], 2);
	finish();
}
END_TEST

START_TEST(ports_close_with_their_program)
{
	uint8_t id[16];
	memset(id, IMAGE_BYTE, sizeof id);
	for (int exit_is_late = 0; exit_is_late < 2; exit_is_late++) {
		begin();
		add_session(1, 0);
		session_new_ports(sessions, &sessions->slot[1], 1, LORG_TRACE_PORTS);
		uint64_t tick = clock_tick(&context.clock);
		begin_packet(1, tick);
		add_image(tick);
		add_open(tick, 4, 0, 17);
		add_open(tick + 1, 5, 0, 17);
		ADD(CLOSED, tick + 2, .fd = 4);
		route();
		if (exit_is_late)
			router_image_over(sessions, id);
		ck_assert_uint_eq(tracers[1].of[LORG_EVENT_CLOSED], 1);
		begin_packet(1, tick + 3);
		ADD(EXIT, tick + 3, .program = 1, .reason = LORG_REASON_STATUS, .status = 3);
		route();
		if (!exit_is_late)
			router_image_over(sessions, id);
		ck_assert_uint_eq(tracers[1].of[LORG_EVENT_CLOSED], 2);
		ck_assert_uint_eq(router_ports(sessions, NULL, NULL, NULL), 0);
		finish();
		memset(tracers, 0, sizeof tracers);
	}
}
END_TEST

/* What a session was told of queues: T: long, F: short again. */
struct queue_tale {
	struct session session;
	char text[64];
	uint64_t tick;
};

static void note_queue(void *told_to, struct queue_record *record, const struct queue_look *look, uint64_t tick)
{
	struct queue_tale *tale = told_to;
	unsigned change = monitor_queue_change(record, &tale->session, look);
	ck_assert_uint_gt(tick, tale->tick);
	tale->tick = tick + 1;
	if (change & QUEUE_BECAME_LONG)
		strcat(tale->text, "T");
	if (change & QUEUE_BECAME_SHORT)
		strcat(tale->text, "F");
}

struct queue_step {
	uint32_t number;
	uint64_t length, taken;
	uint32_t began;
};

/* A look at channel 77, as programs tell it. */
static void add_queue_look(struct monitors *monitors, const struct queue_step *step, uint64_t tick, uint64_t pass, struct queue_tale *tale)
{
	const struct lorg_monitor_queue about = {
		.most = step->length + step->taken, .channel = 77, .number = step->number, .began = step->began};
	const struct lorg_event_LONG_MESSAGE_QUEUE event = {.value = step->length, .object = 4, .terms_length = sizeof about};
	uint8_t fields[sizeof event + sizeof about];
	memcpy(fields, &event, sizeof event);
	memcpy(fields + sizeof event, &about, sizeof about);
	const struct event_view view = {
		.id = LORG_EVENT_LONG_MESSAGE_QUEUE,
		.length = 16 + sizeof fields,
		.tick = tick,
		.effective = tick,
		.fields = fields,
		.description = event_description(LORG_EVENT_LONG_MESSAGE_QUEUE),
	};
	const struct lorg_packet head = {.pid = 1};
	monitors_queue(monitors, &head, &view, pass, note_queue, tale);
}

static struct queue_tale queue_tale(void)
{
	struct queue_tale tale = {.session = {.slot = 1}};
	for (int i = 0; i < 8; i++)
		tale.session.system_limits[i] = UINT64_MAX;
	tale.session.system_limits[SESSION_LONG_QUEUE_OFF] = 3;
	tale.session.system_limits[SESSION_LONG_QUEUE_ON] = 10;
	return tale;
}

START_TEST(queues_have_hysteresis)
{
	static const struct {
		uint64_t length, taken;
		const char *told;
	} steps[] = {{5, 0, ""}, {10, 0, "T"}, {12, 0, "T"}, {4, 8, "T"}, {10, 0, "T"}, {3, 7, "TF"}, {2, 1, "TF"},
		     {11, 0, "TFT"}, {1, 10, "TFTF"}, {0, 10, "TFTFTF"}, {9, 1, "TFTFTFT"}};
	struct monitors *monitors = monitors_create();
	struct queue_tale tale = queue_tale();
	for (uint32_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		const struct queue_step step = {i + 1, steps[i].length, steps[i].taken, i};
		add_queue_look(monitors, &step, 1000, 0, &tale);
		ck_assert_str_eq(tale.text, steps[i].told);
	}
	monitors_forget_session(monitors, 1);
	const struct queue_step again = {12, 9, 0, 11}, long_already = {13, 8, 2, 12};
	add_queue_look(monitors, &again, 1000, 0, &tale);
	ck_assert_str_eq(tale.text, "TFTFTFT");
	add_queue_look(monitors, &long_already, 1000, 0, &tale);
	ck_assert_str_eq(tale.text, "TFTFTFTT");
	tale.session.system_limits[SESSION_LARGE_HEAP] = 100;
	struct lorg_event_LONG_GC heap = {.value = 99};
	ck_assert(!monitor_wants(&tale.session, LORG_EVENT_LARGE_HEAP, &heap));
	heap.value = 100;
	ck_assert(monitor_wants(&tale.session, LORG_EVENT_LARGE_HEAP, &heap));
	ck_assert(!monitor_wants(&tale.session, LORG_EVENT_BUSY_PORT, &heap));
	ck_assert(!monitor_wants(&tale.session, LORG_EVENT_LONG_MESSAGE_QUEUE, &heap));
	monitors_free(monitors);
}
END_TEST

/* The packets of a queue's threads come in any order; two readers saw the same length before they took of it. */
START_TEST(queues_are_looked_at_in_order)
{
	static const struct queue_step steps[] = {{1, 12, 0, 0}, {2, 3, 9, 0}, {3, 3, 9, 0}, {4, 10, 0, 3}, {5, 4, 6, 4}, {6, 2, 2, 5}};
	static const uint8_t orders[][6] = {
		{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {1, 0, 3, 2, 5, 4}, {3, 4, 5, 0, 1, 2}, {2, 5, 0, 4, 1, 3}};
	for (size_t order = 0; order < sizeof orders / sizeof *orders; order++) {
		struct monitors *monitors = monitors_create();
		struct queue_tale tale = queue_tale();
		for (int i = 0; i < 6; i++)
			add_queue_look(monitors, &steps[orders[order][i]], 1000u + orders[order][i] % 3u, 0, &tale);
		ck_assert_str_eq(tale.text, "TFTF");
		ck_assert_uint_eq(monitors_waiting(monitors), 0);
		monitors_free(monitors);
	}
}
END_TEST

/* One that was lost is waited for, for some passes and no longer; it may still come then. */
START_TEST(queues_go_on_after_a_loss)
{
	static const struct queue_step steps[] = {{1, 12, 0, 0}, {2, 3, 9, 1}, {3, 10, 0, 2}, {4, 2, 8, 3}};
	struct monitors *monitors = monitors_create();
	struct queue_tale tale = queue_tale();
	add_queue_look(monitors, &steps[0], 1000, 1, &tale);
	add_queue_look(monitors, &steps[3], 1001, 1, &tale);
	add_queue_look(monitors, &steps[2], 1002, 2, &tale);
	ck_assert_str_eq(tale.text, "T");
	ck_assert_uint_gt(monitors_waiting(monitors), 0);
	monitors_pass(monitors, 2, note_queue, &tale);
	ck_assert_str_eq(tale.text, "T");
	monitors_pass(monitors, 4, note_queue, &tale);
	ck_assert_str_eq(tale.text, "TF");
	ck_assert_uint_eq(monitors_waiting(monitors), 0);
	add_queue_look(monitors, &steps[1], 1003, 5, &tale);
	ck_assert_str_eq(tale.text, "TF");
	monitors_free(monitors);
}
END_TEST

/* Descriptors and modules that come and go for ever do not fill the memory. */
START_TEST(definitions_are_bounded)
{
	begin();
	for (uint32_t round = 0; round < 20000; round++) {
		uint64_t tick = 1000 + round * 10u;
		begin_packet(1, tick);
		add_open(tick, 4, round, 17);
		ADD(CLOSED, tick + 1, .fd = 4, .generation = round);
		add_module(tick + 2, 0x10000 + (uint64_t)round * 0x1000);
		ADD(MODULE_UNLOADED, tick + 3, .base = 0x10000 + (uint64_t)round * 0x1000, .start = 0x10000 + (uint64_t)round * 0x1000);
		route();
	}
	add_session(1, 0);
	set(1, 1, 1, LORG_TRACE_PROCS, 0);
	begin_packet(1, 10000000);
	ADD(LINK, 10000000, .fd = -1);
	route();
	ck_assert_uint_le(tracers[1].aside_of[LORG_EVENT_OPEN], 2);
	ck_assert_uint_le(tracers[1].aside_of[LORG_EVENT_MODULE], 300);
	finish();
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		every_event_has_a_row,
		flags_are_those_of_the_tick,
		history_is_bounded,
		each_session_gets_what_it_asked_for,
		stamps_hold_over_what_is_left_out,
		definitions_come_first_and_once,
		a_fork_child_is_given_its_parents_modules,
		ports_have_sides,
		a_closed_port_is_its_openers,
		flags_of_a_binding_that_was_not_told_yet,
		specifications_are_the_programs_word,
		losses_are_told_to_whom_they_may_concern,
		limits_hold,
		much_is_cut_into_packets,
		deliveries_wait_for_passes,
		links_have_two_ends,
		ports_close_with_their_program,
		queues_have_hysteresis,
		queues_are_looked_at_in_order,
		queues_go_on_after_a_loss,
		definitions_are_bounded,
	};
	return unit_suite_of("router", tests, sizeof tests / sizeof *tests, 60);
}
