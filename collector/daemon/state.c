/* SPDX-License-Identifier: MIT */
/* state.c: see state.h. */
#include "collector/daemon/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/collector.h"
#include "collector/collect/journal.h"
#include "collector/command/error.h"
#include "collector/daemon/asking.h"
#include "collector/daemon/client.h"
#include "collector/session/function_state.h"
#include "collector/session/sessions.h"
#include "collector/session/tracer.h"
#include "collector/term/reader.h"

enum { STATE_MAGIC = 0x7367726c /* "lrgs" */, STATE_VERSION = 5, STATE_PARTS = 13 };

/* Sparse; smaller where limits are tight. */
static const uint64_t rooms[] = {64 << 20, 8 << 20, 1 << 20};

/*
 * Two copies in turn: whoever is killed while it writes leaves the other. Each: lines, a term each, of the sessions, and behind them
 * what they ask of functions (session/function_state.h).
 */
struct copy {
	uint64_t lines_length, functions_length;
};

struct shape {
	uint32_t magic, version, abi_major, abi_minor;
	struct lorg_clock clock;
	uint8_t trace_uuid[16];
	uint64_t epoch;
	uint64_t room; /* bytes of a copy; they stand behind this, one after the other */
	uint32_t which; /* atomic; the copy that counts */
	struct copy copy[2];
};

struct state {
	struct memory memory;
	uint8_t id[16];
	const struct keeping *keeping;
	/* What is asked of functions, as of that number of changes. */
	void *functions;
	size_t functions_length;
	uint64_t changes;
	int told_too_long;
};

static struct shape *shape_of(const struct state *state)
{
	return (struct shape *)state->memory.at;
}

static char *bytes_of(const struct shape *shape, uint32_t which)
{
	return (char *)(uintptr_t)(shape + 1) + which * shape->room;
}

static int make_memory(struct state *state)
{
	for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
		if (memory_create(&state->memory, "lorgd-state", sizeof(struct shape) + 2 * rooms[i]))
			continue;
		shape_of(state)->room = rooms[i];
		return 0;
	}
	return -1;
}

struct state *state_create(const struct collector *collector, uint64_t epoch)
{
	struct state *state = calloc(1, sizeof *state);
	if (!state || make_memory(state)) {
		free(state);
		return NULL;
	}
	random_bytes(state->id, sizeof state->id);
	struct shape *shape = shape_of(state);
	collector_identity(collector, &shape->clock, shape->trace_uuid);
	shape->version = STATE_VERSION;
	shape->abi_major = LORG_ABI_MAJOR;
	shape->abi_minor = LORG_ABI_MINOR;
	shape->epoch = epoch;
	shape->magic = STATE_MAGIC;
	return state;
}

void state_keep(struct state *state, const struct keeping *keeping)
{
	if (!state)
		return;
	state->keeping = keeping;
	keep_memory(keeping, KEPT_STATE, state->id, &state->memory);
}

void state_free(struct state *state)
{
	if (!state)
		return;
	forget_memory(state->keeping, state->id);
	memory_free(&state->memory);
	free(state->functions);
	free(state);
}

/* ---- saving ---------------------------------------------------------------------- */

static void put_messages(FILE *out, const struct session_messages *messages)
{
	fprintf(out, ",%s", messages->text ? messages->text : messages->off ? "false" : "true");
}

static void put_session(FILE *out, const struct session *session)
{
	const char *tracer = client_is(session->tracer) ? "client" : session->tracer->operations->term(session->tracer);
	fprintf(out, "{session,%u,%" PRIu64 ",", session->slot, session->number);
	answer_atom(out, session->name);
	fprintf(out, ",%s,{%u,%u},%u,%u,{%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "},[", tracer, session->defaults.new_processes,
		session->defaults.new_ports, session->timestamps, session->message_length, session->limits.events, session->limits.rate,
		session->limits.memory, session->limits.rate_ns);
	for (int i = 0; i < 8; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", session->system_limits[i]);
	putc(']', out);
	put_messages(out, &session->send);
	put_messages(out, &session->receive);
	fprintf(out, ",%" PRIu64 "}\n", session->since);
}

static char *lines_of(const struct service *service, size_t *length)
{
	char *lines = NULL;
	FILE *out = open_memstream(&lines, length);
	if (!out)
		return NULL;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = session_at(service->sessions, slot);
		if (session && session->persist)
			put_session(out, session);
	}
	if (fclose(out) == 0)
		return lines;
	free(lines);
	return NULL;
}

/* What has not changed is not made anew: it may be long. */
static int look_at_functions(struct state *state, const struct service *service)
{
	uint64_t changes = function_state_changes(service->sessions);
	if (state->functions && changes == state->changes)
		return 0;
	size_t length = 0;
	void *functions = function_state_write(service->sessions, &length);
	if (!functions)
		return -1;
	free(state->functions);
	state->functions = functions;
	state->functions_length = length;
	state->changes = changes;
	return 0;
}

static void put_copy(struct state *state, const char *lines, size_t length)
{
	struct shape *shape = shape_of(state);
	const uint32_t now = shape->which & 1, next = !now;
	const struct copy *before = &shape->copy[now];
	struct copy *copy = &shape->copy[next];
	const char *old = bytes_of(shape, now);
	char *bytes = bytes_of(shape, next);
	if (before->lines_length == length && before->functions_length == state->functions_length && memcmp(old, lines, length) == 0 &&
	    memcmp(old + length, state->functions, state->functions_length) == 0)
		return;
	if (length + state->functions_length > shape->room) {
		if (!state->told_too_long)
			lorg_error("lorgd", "what sessions ask is too long to be kept over a restart", "destroy some that persist");
		state->told_too_long = 1;
		return;
	}
	memcpy(bytes, lines, length);
	memcpy(bytes + length, state->functions, state->functions_length);
	copy->lines_length = length;
	copy->functions_length = state->functions_length;
	/* Release: the copy stands before it counts. */
	__atomic_store_n(&shape->which, next, __ATOMIC_RELEASE);
}

void state_save(struct state *state, const struct service *service)
{
	size_t length = 0;
	char *lines = state && look_at_functions(state, service) == 0 ? lines_of(service, &length) : NULL;
	if (lines)
		put_copy(state, lines, length);
	free(lines);
}

/* ---- restoring ----------------------------------------------------------------------- */

static const struct shape *known_shape(const struct memory *memory)
{
	const struct shape *shape = (const struct shape *)memory->at;
	if (memory->size < sizeof *shape || memory->size != sizeof *shape + 2 * shape->room || shape->magic != STATE_MAGIC || shape->version != STATE_VERSION ||
	    shape->abi_major != LORG_ABI_MAJOR || shape->abi_minor != LORG_ABI_MINOR)
		return NULL;
	const struct copy *copy = &shape->copy[shape->which & 1];
	return copy->lines_length <= shape->room && copy->functions_length <= shape->room - copy->lines_length ? shape : NULL;
}

int state_read(const struct memory *memory, struct lorg_clock *clock, uint8_t trace_uuid[16], uint64_t *epoch)
{
	const struct shape *shape = known_shape(memory);
	if (!shape)
		return -1;
	*clock = shape->clock;
	memcpy(trace_uuid, shape->trace_uuid, sizeof shape->trace_uuid);
	*epoch = shape->epoch;
	return 0;
}

static int numbers_of(struct asking *asking, lorg_term tuple, uint64_t *numbers, uint32_t count)
{
	uint32_t arity = 0;
	const lorg_term *parts = lorg_get_tuple(asking->terms, tuple, &arity);
	for (uint32_t i = 0; parts && arity == count && i < count; i++)
		if (!lorg_get_unsigned(asking->terms, parts[i], &numbers[i]))
			return -1;
	return parts && arity == count ? 0 : -1;
}

static int limits_of(struct asking *asking, lorg_term list, uint64_t limits[8])
{
	lorg_term head, tail = list;
	for (int i = 0; i < 8; i++)
		if (!lorg_is_cons(tail) || !lorg_get_cons(asking->terms, tail, &head, &tail) ||
		    !lorg_get_unsigned(asking->terms, head, &limits[i]))
			return -1;
	return 0;
}

static void restore_messages(struct asking *asking, struct session *session, int receiving, lorg_term match)
{
	struct session_messages messages;
	asking->argument[1] = match;
	asking->argument[2] = lorg_nil();
	if (parse_messages(asking, receiving, &messages) == 0)
		session_set_messages(asking->sessions, session, receiving, &messages);
}

/* The directory that it had is moved away presently. */
static void roll_back(struct asking *asking, uint64_t number, lorg_term tracer)
{
	char path[PATH_ROOM];
	uint32_t arity = 0;
	const lorg_term *parts = lorg_get_tuple(asking->terms, tracer, &arity);
	if (parts && arity == 2 && is_atom(asking, parts[0], "directory") && string_text(asking, parts[1], path, sizeof path) == 0)
		journal_roll_back(asking->sessions->context->journal, number, path);
}

static void restore_session(struct asking *asking, lorg_term term)
{
	uint32_t arity = 0;
	uint64_t slot, number, news[2], timestamps, message_length, limits[4], system[8], since;
	char name[ATOM_ROOM];
	lorg_term part[STATE_PARTS];
	const lorg_term *parts = lorg_get_tuple(asking->terms, term, &arity);
	if (!parts || arity != STATE_PARTS)
		return;
	memcpy(part, parts, sizeof part);
	if (!lorg_get_unsigned(asking->terms, part[1], &slot) || !lorg_get_unsigned(asking->terms, part[2], &number) ||
	    atom_text(asking, part[3], name) || numbers_of(asking, part[5], news, 2) ||
	    !lorg_get_unsigned(asking->terms, part[6], &timestamps) || !lorg_get_unsigned(asking->terms, part[7], &message_length) ||
	    numbers_of(asking, part[8], limits, 4) || limits_of(asking, part[9], system) ||
	    !lorg_get_unsigned(asking->terms, part[12], &since))
		return;
	roll_back(asking, number, part[4]);
	struct tracer *tracer = make_tracer(asking, part[4], name, 1);
	struct session *session = tracer ? session_restore(asking->sessions, (unsigned)slot, number, name, tracer) : NULL;
	if (!session)
		return;
	session->defaults = (struct session_defaults){(uint32_t)news[0], (uint32_t)news[1]};
	/* What it was to get and has not got is still to come. */
	session->since = since;
	session->timestamps = (uint32_t)timestamps;
	session->message_length = (uint32_t)message_length;
	session->limits = (struct session_limits){limits[0], limits[1], limits[2], limits[3]};
	tracer->memory_limit = limits[2];
	memcpy(session->system_limits, system, sizeof session->system_limits);
	if (news[1])
		session_new_ports(asking->sessions, session, 1, (uint32_t)news[1]);
	restore_messages(asking, session, 0, part[10]);
	restore_messages(asking, session, 1, part[11]);
}

static void restore_line(struct service *service, const char *line, size_t length)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char *said = NULL;
	size_t said_length = 0;
	/* What it would be refused with goes nowhere: there is nobody to tell. */
	struct asking asking = {
		.service = service, .sessions = service->sessions, .terms = &terms, .out = open_memstream(&said, &said_length)};
	if (!asking.out)
		return;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, line, length, NULL, &error);
	uint32_t arity = 0;
	const lorg_term *parts = term != LORG_NONE ? lorg_get_tuple(&terms, term, &arity) : NULL;
	if (parts && arity && is_atom(&asking, parts[0], "session"))
		restore_session(&asking, term);
	lorg_terms_close(&terms);
	fclose(asking.out);
	free(said);
}

void state_restore(const struct memory *memory, struct service *service)
{
	const struct shape *shape = known_shape(memory);
	if (!shape)
		return;
	uint32_t which = __atomic_load_n(&shape->which, __ATOMIC_ACQUIRE) & 1;
	const struct copy *copy = &shape->copy[which];
	const char *at = bytes_of(shape, which), *end = at + copy->lines_length;
	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		size_t length = line_end ? (size_t)(line_end - at) : (size_t)(end - at);
		restore_line(service, at, length);
		at += length + 1;
	}
	journal_rolled_back(service->sessions->context->journal);
	function_state_read(service->sessions, end, copy->functions_length);
}
