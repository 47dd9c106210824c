/* SPDX-License-Identifier: MIT */
/* state.c: see state.h. */
#include "collector/daemon/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/collector.h"
#include "collector/daemon/asking.h"
#include "collector/daemon/client.h"
#include "collector/session/sessions.h"
#include "collector/session/tracer.h"
#include "collector/term/reader.h"

enum { STATE_MAGIC = 0x7367726c /* "lrgs" */, STATE_VERSION = 2, STATE_TEXT = 1 << 20, STATE_PARTS = 13 };

/* Two texts in turn: whoever is killed while it writes leaves the other. Lines, a term each. */
struct shape {
	uint32_t magic, version;
	struct lorg_clock clock;
	uint8_t trace_uuid[16];
	uint64_t epoch;
	uint32_t which; /* atomic; the text that counts */
	uint32_t length[2];
	char text[2][STATE_TEXT];
};

struct state {
	struct memory memory;
	uint8_t id[16];
	const struct keeping *keeping;
};

static struct shape *shape_of(const struct state *state)
{
	return (struct shape *)state->memory.at;
}

struct state *state_create(const struct collector *collector, uint64_t epoch, const struct keeping *keeping)
{
	struct state *state = calloc(1, sizeof *state);
	if (!state || memory_create(&state->memory, "lorgd-state", sizeof(struct shape))) {
		free(state);
		return NULL;
	}
	random_bytes(state->id, sizeof state->id);
	state->keeping = keeping;
	struct shape *shape = shape_of(state);
	collector_identity(collector, &shape->clock, shape->trace_uuid);
	shape->version = STATE_VERSION;
	shape->epoch = epoch;
	shape->magic = STATE_MAGIC;
	keep_memory(keeping, KEPT_STATE, state->id, &state->memory);
	return state;
}

void state_free(struct state *state)
{
	if (!state)
		return;
	forget_memory(state->keeping, state->id);
	memory_free(&state->memory);
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
	fprintf(out, ",%s,{%u,%u},%u,%u,{%" PRIu64 ",%" PRIu64 ",%" PRIu64 "},[", tracer, session->defaults.new_processes,
		session->defaults.new_ports, session->timestamps, session->message_length, session->limits.events, session->limits.rate,
		session->limits.memory);
	for (int i = 0; i < 8; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", session->system_limits[i]);
	putc(']', out);
	put_messages(out, &session->send);
	put_messages(out, &session->receive);
	fprintf(out, ",%" PRIu64 "}\n", session->since);
}

void state_save(struct state *state, const struct service *service)
{
	struct shape *shape = state ? shape_of(state) : NULL;
	char *text = NULL;
	size_t length = 0;
	FILE *out = state ? open_memstream(&text, &length) : NULL;
	if (!out)
		return;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = session_at(service->sessions, slot);
		if (session && session->persist)
			put_session(out, session);
	}
	for (const struct kept_request *asked = service->functions; asked; asked = asked->next)
		fprintf(out, "%s\n", asked->text);
	uint32_t now = shape->which & 1, next = !now;
	if (fclose(out) == 0 && length <= STATE_TEXT && (length != shape->length[now] || memcmp(text, shape->text[now], length) != 0)) {
		memcpy(shape->text[next], text, length);
		shape->length[next] = (uint32_t)length;
		/* Release: the text stands before it counts. */
		__atomic_store_n(&shape->which, next, __ATOMIC_RELEASE);
	}
	free(text);
}

/* ---- restoring ----------------------------------------------------------------------- */

static const struct shape *known_shape(const struct memory *memory)
{
	const struct shape *shape = (const struct shape *)memory->at;
	if (memory->size != sizeof *shape || shape->magic != STATE_MAGIC || shape->version != STATE_VERSION)
		return NULL;
	return shape->length[shape->which & 1] <= STATE_TEXT ? shape : NULL;
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

static void restore_session(struct asking *asking, lorg_term term)
{
	uint32_t arity = 0;
	uint64_t slot, number, news[2], timestamps, message_length, limits[3], system[8], since;
	char name[ATOM_ROOM];
	lorg_term part[STATE_PARTS];
	const lorg_term *parts = lorg_get_tuple(asking->terms, term, &arity);
	if (!parts || arity != STATE_PARTS)
		return;
	memcpy(part, parts, sizeof part);
	if (!lorg_get_unsigned(asking->terms, part[1], &slot) || !lorg_get_unsigned(asking->terms, part[2], &number) ||
	    atom_text(asking, part[3], name) || numbers_of(asking, part[5], news, 2) ||
	    !lorg_get_unsigned(asking->terms, part[6], &timestamps) || !lorg_get_unsigned(asking->terms, part[7], &message_length) ||
	    numbers_of(asking, part[8], limits, 3) || limits_of(asking, part[9], system) ||
	    !lorg_get_unsigned(asking->terms, part[12], &since))
		return;
	struct tracer *tracer = make_tracer(asking, part[4], name, 1);
	struct session *session = tracer ? session_restore(asking->sessions, (unsigned)slot, number, name, tracer) : NULL;
	if (!session)
		return;
	session->defaults = (struct session_defaults){(uint32_t)news[0], (uint32_t)news[1]};
	/* What it was to get and has not got is still to come. */
	session->since = since;
	session->timestamps = (uint32_t)timestamps;
	session->message_length = (uint32_t)message_length;
	session->limits = (struct session_limits){limits[0], limits[1], limits[2]};
	tracer->memory_limit = limits[2];
	memcpy(session->system_limits, system, sizeof session->system_limits);
	if (news[1])
		session_new_ports(asking->sessions, session, 1, (uint32_t)news[1]);
	restore_messages(asking, session, 0, part[10]);
	restore_messages(asking, session, 1, part[11]);
}

static void restore_line(struct service *service, const char *kind, const char *line, size_t length)
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
	int wanted = parts && arity && is_atom(&asking, parts[0], kind);
	if (wanted && strcmp(kind, "session") == 0)
		restore_session(&asking, term);
	else if (wanted)
		restore_function(&asking, term);
	lorg_terms_close(&terms);
	fclose(asking.out);
	free(said);
}

static void restore_lines(const struct memory *memory, struct service *service, const char *kind)
{
	const struct shape *shape = known_shape(memory);
	if (!shape)
		return;
	uint32_t which = __atomic_load_n(&shape->which, __ATOMIC_ACQUIRE) & 1;
	const char *at = shape->text[which], *end = at + shape->length[which];
	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));
		size_t length = line_end ? (size_t)(line_end - at) : (size_t)(end - at);
		restore_line(service, kind, at, length);
		at += length + 1;
	}
}

void state_restore(const struct memory *memory, struct service *service)
{
	restore_lines(memory, service, "session");
}

void state_restore_functions(const struct memory *memory, struct service *service)
{
	restore_lines(memory, service, "function");
}
