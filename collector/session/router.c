/* SPDX-License-Identifier: MIT */
/*
 * router.c: packets of programs in, packets of each session out.
 *
 * A packet is gone through once for what it tells of flags and definitions, and then once for each session that may want
 * any of it. What a session gets of it are at most three packets: what its events are read with (definitions, flags), its
 * events as the process's messages, and those that are a port's messages.
 *
 * An event that is shown as several (a call that was a send, an out and an in) is passed on as it is where all of it is
 * asked for, else as the events of its parts.
 */
#include <stdlib.h>
#include <string.h>

#include <lorg/kinds.h>

#include "collector/collect/clock.h"
#include "collector/collect/notes.h"
#include "collector/read/part.h"
#include "collector/session/definitions.h"
#include "collector/session/filter.h"
#include "collector/session/live.h"
#include "collector/session/monitor.h"
#include "collector/session/schedules.h"

/* A chunk may wait for a pass, and the first one may be under way. */
enum { DELIVERY_PASSES = 3 };
static const uint64_t SECOND_NS = 1000000000;

/* Who waits for all that is committed. */
struct delivery {
	struct delivery *next;
	struct session *session;
	uint64_t pass;
	delivered_done *done;
	void *context;
};

/* What a session was not given because there was too much of it. */
struct rate {
	uint64_t since_ns, count;
	uint64_t lost; /* not told yet */
};

/* A link between two processes, until one of them ends: then the other has a message of that. */
struct link_end {
	struct lorg_packet whose; /* what heads of its packets say of it */
	uint32_t own_pid, own_tid;
};

struct link {
	struct link *next;
	struct link_end end[2];
};

enum { LINKS_KEPT = 4096 };

struct router {
	struct link *links;
	unsigned link_count;
	struct definitions *definitions;
	struct monitors *monitors;
	struct schedules *schedules;
	struct delivery *deliveries;
	uint64_t passes, now_ns, losses_ns;
	struct rate rate[SESSION_SLOTS];
	int has_hooks;
	struct filter aside, of_processes, of_ports; /* what is not shown, and the two sides */
	struct filter of_others; /* what is told in one process's stream and is another's message */
	struct part_room room;
};

/* One packet on its way to one session. */
struct route {
	struct sessions *sessions;
	struct router *router;
	struct session *session;
	struct family *family;	 /* NULL: not known */
	struct process *process; /* likewise */
	const struct lorg_packet *head;
	struct definition_image *image;
	struct flags_record *record; /* of the process; NULL: it never had flags */
	struct flags_span span;	     /* looked up last */
	int has_ports, given;
	struct event_view stamp; /* CPU_TIME of the event at hand; length 0: none, or passed on already */
};

enum side { SIDE_OF_PROCESS = 1, SIDE_OF_PORT = 2 };

static const uint8_t COLLECTOR[16];

/* ---- what events are read with -------------------------------------------------------- */

static int is_same_process(const struct lorg_packet *a, const struct lorg_packet *b)
{
	return a->process_birth == b->process_birth && a->tid == b->tid && a->runtime_process == b->runtime_process &&
	       memcmp(a->image, b->image, sizeof a->image) == 0;
}

static void open_aside(struct router *router, struct session *session, const struct lorg_packet *whose, uint64_t tick, uint32_t holds)
{
	struct filter *aside = &router->aside;
	const struct lorg_packet *open = (const struct lorg_packet *)aside->packet;
	if (aside->length && is_same_process(open, whose) && tick >= aside->tick &&
	    aside->holds == (holds | LORG_HOLDS_UNSHOWN | LORG_HOLDS_KNOWN | (aside->holds & LORG_HOLDS_DEFINITIONS)))
		return;
	filter_end(aside);
	filter_begin(aside, session, whose, tick, holds | LORG_HOLDS_UNSHOWN);
}

struct giving {
	struct router *router;
	struct session *session;
};

static void give(void *context, const struct lorg_packet *whose, uint64_t tick, const void *event, uint32_t length)
{
	struct giving *giving = context;
	open_aside(giving->router, giving->session, whose, tick, 0);
	filter_put_extended(&giving->router->aside, tick, event, length);
}

static void give_image(struct router *router, struct session *session, struct definition_image *image)
{
	struct giving giving = {router, session};
	definitions_give_image(router->definitions, image, session->slot, give, &giving);
	filter_end(&router->aside);
}

static void give_function(struct route *route, uint32_t function)
{
	struct giving giving = {route->router, route->session};
	if (function < LORG_FIRST_HOOKED_FUNCTION)
		return;
	definitions_give_function(route->router->definitions, function, route->session->slot, give, &giving);
	filter_end(&route->router->aside);
}

/* All flags that are set from a tick on. */
static void give_flags(struct route *route, const struct lorg_packet *whose, const struct flags_span *span,
		       const struct flags_key *key)
{
	struct session *session = route->session;
	uint64_t tick = span->since ? span->since : session->since;
	struct lorg_event_FLAGS event = {
		.entry = tick,
		.on = span->flags,
		.off = LORG_TRACE_ALL & ~span->flags,
		.session = session->slot,
	};
	if (key) { /* of a port */
		event.tid = (uint32_t)key->fd;
		event.on |= (uint64_t)key->generation << 32;
	}
	open_aside(route->router, session, whose, tick, key ? LORG_HOLDS_PORT_FLAGS : 0);
	filter_put_fields(&route->router->aside, LORG_EVENT_FLAGS, tick, tick, &event, sizeof event);
	filter_end(&route->router->aside);
}

/* What the process is called now: it may have been so before anybody asked. */
static void give_name(struct route *route)
{
	const struct lorg_process *entry =
		route->family && route->process ? process_entry(route->family, route->process->index) : NULL;
	char name[sizeof entry->name];
	if (!entry || !entry->name[0])
		return;
	memcpy(name, entry->name, sizeof name); /* copied, then looked at */
	const struct lorg_event_REGISTER event = {.fd = -1, .name_length = (uint32_t)strnlen(name, sizeof name)};
	uint8_t fields[sizeof event + sizeof name];
	memcpy(fields, &event, sizeof event);
	memcpy(fields + sizeof event, name, event.name_length);
	open_aside(route->router, route->session, route->head, route->head->begin, 0);
	filter_put_fields(&route->router->aside, LORG_EVENT_REGISTER, route->head->begin, route->head->begin, fields,
			  (uint32_t)sizeof event + event.name_length);
}

static void tell_flags(struct route *route, const struct lorg_packet *whose, const struct flags_record *record,
		       const struct flags_span *span, const struct flags_key *port)
{
	uint64_t *told = flags_told(record, route->session->slot);
	if (!told || *told == span->since)
		return;
	if (*told == UINT64_MAX && whose == route->head && !port)
		give_name(route);
	*told = span->since;
	give_flags(route, whose, span, port);
}

static void tell_session(struct router *router, struct session *session)
{
	const struct lorg_packet nobody = {0};
	const struct lorg_event_SESSION event = {
		.id = session->number,
		.slot = session->slot,
		.state = 1,
		.overflow = LORG_OVERFLOW_DISCARD,
		.message_length = session->message_length,
		.name_length = (uint32_t)strlen(session->name),
	};
	uint8_t fields[sizeof event + sizeof session->name];
	memcpy(fields, &event, sizeof event);
	memcpy(fields + sizeof event, session->name, event.name_length);
	open_aside(router, session, &nobody, session->since, 0);
	filter_put_fields(&router->aside, LORG_EVENT_SESSION, session->since, session->since, fields,
			  (uint32_t)sizeof event + event.name_length);
	filter_end(&router->aside);
}

/* ---- flags of an event ------------------------------------------------------------------ */

static void look_up(struct route *route, uint64_t tick)
{
	if (tick < route->span.since || tick >= route->span.until)
		route->span = flags_span_at(route->record, route->session->slot, tick);
}

static uint32_t flags_of_process(struct route *route, uint64_t tick)
{
	look_up(route, tick);
	return route->span.flags;
}

static struct flags_key port_key(const struct route *route, int32_t fd, uint32_t generation)
{
	struct flags_key key = {.fd = fd, .generation = generation};
	memcpy(key.image, route->head->image, sizeof key.image);
	return key;
}

/* The port that an event names. Returns 0 when there is none. */
static int port_of(const struct route *route, const struct event_view *view, struct flags_key *key)
{
	switch (view->id) {
	case LORG_EVENT_SENT:
	case LORG_EVENT_RECEIVED: {
		EVENT_FIELDS(view, SENT, sent);
		*key = port_key(route, (int32_t)(sent.port & 0xffff), sent.port >> 16);
		return 1;
	}
	case LORG_EVENT_SEND:
	case LORG_EVENT_SEND_TO_NON_EXISTING:
	case LORG_EVENT_RECEIVE: {
		EVENT_FIELDS(view, SEND, send);
		*key = port_key(route, (int32_t)(uint32_t)send.object, send.generation);
		return send.object <= UINT32_MAX;
	}
	default: break;
	}
	uint64_t fd = event_number_named(view, "fd", UINT64_MAX);
	*key = port_key(route, (int32_t)fd, (uint32_t)event_number_named(view, "generation", 0));
	return (int32_t)fd != -1;
}

static int port_has(struct route *route, const struct event_view *view, uint64_t tick, uint32_t flags)
{
	struct flags_key key;
	if (!route->has_ports || !flags || !port_of(route, view, &key))
		return 0;
	const struct flags_record *record = flags_find(route->sessions->flags, &key);
	const struct flags_span span = flags_span_at(record, route->session->slot, tick);
	if (!(span.flags & flags))
		return 0;
	tell_flags(route, route->head, record, &span, &key);
	return 1;
}

/* Another process of the image. */
static uint32_t flags_of_other(struct route *route, uint64_t birth, uint64_t tick)
{
	struct flags_key key = {.birth = birth, .fd = -1};
	memcpy(key.image, route->head->image, sizeof key.image);
	const struct flags_record *record = flags_find(route->sessions->flags, &key);
	return flags_span_at(record, route->session->slot, tick).flags;
}

/* Birth of the thread with that number, as its program knows it; 0: not found. */
static uint64_t thread_of(const struct route *route, uint32_t own_tid)
{
	const struct family *family = route->family;
	for (uint32_t chunk = 0; family && chunk < family->slab_room; chunk++) {
		const struct slab *slab = family->slabs[chunk];
		for (uint32_t i = 0; slab && i < SLAB_ENTRIES; i++) {
			const struct process *process = &slab->entry[i];
			if (process->used && process->own_tid == own_tid && process->image &&
			    memcmp(process->image->id, route->head->image, sizeof process->image->id) == 0)
				return process->birth_tick;
		}
	}
	return 0;
}

/*
 * The process of those numbers, as this program knows them, in any program: its family first. NULL: not found. `whose` gets
 * what heads of its packets say.
 */
static struct process *process_numbered(const struct family *family, uint32_t own_pid, uint32_t own_tid)
{
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t i = 0; slab && i < SLAB_ENTRIES; i++) {
			struct process *process = &slab->entry[i];
			if (process->used && process->image && process->own_tid == own_tid && process->image->own_pid == own_pid)
				return process;
		}
	}
	return NULL;
}

static int find_other(const struct route *route, uint32_t own_pid, uint32_t own_tid, struct lorg_packet *whose)
{
	const struct family_context *context = route->sessions->context;
	struct process *process = route->family ? process_numbered(route->family, own_pid, own_tid ? own_tid : own_pid) : NULL;
	for (uint32_t i = 0; !process && i < context->family_count; i++)
		process = process_numbered(context->families[i], own_pid, own_tid ? own_tid : own_pid);
	if (!process)
		return 0;
	memset(whose, 0, sizeof *whose);
	process_head(process, whose);
	return 1;
}

static struct flags_key key_of(const struct lorg_packet *whose)
{
	struct flags_key key = {.birth = whose->process_birth, .fd = -1};
	memcpy(key.image, whose->image, sizeof key.image);
	return key;
}

/* ---- who wants what ------------------------------------------------------------------------ */

static int has_specification(const struct session_messages *messages)
{
	return messages->given && (messages->off || messages->program);
}

static int is_sent(uint32_t id)
{
	return id == LORG_EVENT_SEND || id == LORG_EVENT_SENT || id == LORG_EVENT_SEND_TO_NON_EXISTING || id == LORG_EVENT_SIGNAL_SENT;
}

/* By the program's word, where the session has a specification of its own; else by its flags. */
static unsigned wants_message(struct route *route, const struct event_view *view, uint32_t id, uint64_t tick, struct event_kind kind)
{
	const struct session *session = route->session;
	int is_short = view->id == LORG_EVENT_SENT || view->id == LORG_EVENT_RECEIVED;
	uint64_t for_session = is_short ? 0 : event_number_named(view, "session", 0);
	uint64_t as_port = is_short ? 0 : event_number_named(view, "as_port", 0);
	if (for_session ? for_session != session->slot : has_specification(is_sent(id) ? &session->send : &session->receive))
		return 0;
	unsigned sides = 0;
	if (!(for_session && as_port) && (flags_of_process(route, tick) & kind.process))
		sides |= SIDE_OF_PROCESS;
	if (!(for_session && !as_port) && port_has(route, view, tick, kind.port))
		sides |= SIDE_OF_PORT;
	return sides;
}

/* `ending` of an out or in: 1: the thread was ending; 4: it did not wait. */
static unsigned wants_wait(struct route *route, const struct event_view *view, uint32_t id, uint64_t tick)
{
	uint32_t flags = flags_of_process(route, tick), ending, not_waited;
	if (view->id == LORG_EVENT_SENT || view->id == LORG_EVENT_RECEIVED) {
		EVENT_FIELDS(view, SENT, sent);
		uint32_t of_call = sent.hook_flags >> 16;
		ending = of_call & (id == LORG_EVENT_OUT ? LORG_MESSAGE_OUT_ENDING : LORG_MESSAGE_IN_ENDING);
		not_waited = of_call & LORG_MESSAGE_NOT_WAITED;
	} else {
		uint32_t told = (uint32_t)event_number_named(view, "ending", 0);
		ending = view->id == LORG_EVENT_WAITED && id == LORG_EVENT_IN ? told & 2 : told & 1;
		not_waited = told & 4;
	}
	if (ending)
		return flags & LORG_TRACE_EXITING ? SIDE_OF_PROCESS : 0;
	if (not_waited)
		return flags & LORG_TRACE_RUNNING_PROCS ? SIDE_OF_PROCESS : 0;
	return flags & (LORG_TRACE_RUNNING | LORG_TRACE_RUNNING_PROCS) ? SIDE_OF_PROCESS : 0;
}

static unsigned by_flags(struct route *route, const struct event_view *view, uint64_t tick, struct event_kind kind)
{
	unsigned sides = flags_of_process(route, tick) & kind.process ? SIDE_OF_PROCESS : 0;
	return sides | (port_has(route, view, tick, kind.port) ? SIDE_OF_PORT : 0);
}

static unsigned wants_name(struct route *route, const struct event_view *view, uint64_t tick, struct event_kind kind)
{
	EVENT_FIELDS(view, REGISTER, name); /* UNREGISTER is of the same shape */
	if (name.kind == 1)
		return port_has(route, view, tick, kind.port) ? SIDE_OF_PORT : 0;
	uint64_t other = name.tid && name.tid != route->head->tid ? thread_of(route, name.tid) : 0;
	uint32_t flags = other ? flags_of_other(route, other, tick) : flags_of_process(route, tick);
	return flags & kind.process ? SIDE_OF_PROCESS : 0;
}

static unsigned wants_closed(struct route *route, const struct event_view *view, uint64_t tick, struct event_kind kind)
{
	EVENT_FIELDS(view, CLOSED, closed);
	uint64_t opener = definitions_opener(route->router->definitions, route->image, closed.fd, closed.generation);
	int is_other = opener && opener != route->head->process_birth;
	uint32_t flags = is_other ? flags_of_other(route, opener, tick) : flags_of_process(route, tick);
	unsigned sides = flags & kind.process ? SIDE_OF_PROCESS : 0;
	return sides | (port_has(route, view, tick, kind.port) ? SIDE_OF_PORT : 0);
}

/* A port that gets linked is told as the port's; the process's side of that is a LINK. */
static unsigned wants_link(struct route *route, const struct event_view *view, uint64_t tick, struct event_kind kind)
{
	EVENT_FIELDS(view, GETTING_LINKED, link);
	if (link.fd >= 0 && view->id == LORG_EVENT_GETTING_LINKED)
		return port_has(route, view, tick, kind.port) ? SIDE_OF_PORT : 0;
	return flags_of_process(route, tick) & kind.process ? SIDE_OF_PROCESS : 0;
}

static unsigned wants_function(struct route *route, const struct event_view *view, uint64_t tick)
{
	uint32_t flags = flags_of_process(route, tick), function;
	if (!(flags & LORG_TRACE_CALL) || (flags & LORG_TRACE_SILENT))
		return 0;
	memcpy(&function, view->fields, sizeof function);
	return session_traces_function(route->session, function, tick) ? SIDE_OF_PROCESS : 0;
}

/* The program has decided. */
static unsigned wants_own(const struct route *route, const struct event_view *view)
{
	uint64_t slot = event_number_named(view, "session_kind", UINT64_MAX);
	slot = slot == UINT64_MAX ? event_number_named(view, "session", 0) : slot & 0xffff;
	return slot == route->session->slot ? SIDE_OF_PROCESS : 0;
}

/* Part of an event, shown as `id`, that counts as of `tick`. */
static unsigned wants_part(struct route *route, const struct event_view *view, uint32_t id, uint64_t tick)
{
	const struct event_kind kind = kind_of_event(id);
	if (tick < route->session->since)
		return 0;
	switch (kind.who) {
	case KIND_FLAGS: return by_flags(route, view, tick, kind);
	case KIND_MESSAGE: return wants_message(route, view, id, tick, kind);
	case KIND_WAIT: return wants_wait(route, view, id, tick);
	case KIND_NAME: return wants_name(route, view, tick, kind);
	case KIND_OWNER: return wants_closed(route, view, tick, kind);
	case KIND_LINK: return wants_link(route, view, tick, kind);
	case KIND_FUNCTION: return wants_function(route, view, tick);
	case KIND_SESSION: return wants_own(route, view);
	case KIND_MONITOR: return SIDE_OF_PROCESS; /* see put_monitor */
	case KIND_TRACED: return flags_of_process(route, tick) & LORG_TRACE_ALL ? SIDE_OF_PROCESS : 0;
	case KIND_NONE:
	case KIND_NOBODY:
	case KIND_HISTORY:
	case KIND_STAMP:
	case KIND_DEFINITION: break;
	}
	return 0;
}

/* Of an opening that was seen only later nobody is told: the port was there before. */
static int is_seen_late(const struct event_view *view)
{
	if (view->id != LORG_EVENT_OPEN)
		return 0;
	EVENT_FIELDS(view, OPEN, open);
	return open.hook == UINT32_MAX;
}

/* ---- passing on --------------------------------------------------------------------------- */

/* Within the session's limits? */
static int admit(struct router *router, struct session *session)
{
	struct rate *rate = &router->rate[session->slot];
	uint64_t now_ns = router->now_ns;
	if (session->limits.events && session->events >= session->limits.events)
		return 0; /* it ends in this pass */
	if (session->limits.rate) {
		if (now_ns - rate->since_ns >= (session->limits.rate_ns ? session->limits.rate_ns : SECOND_NS)) {
			rate->since_ns = now_ns;
			rate->count = 0;
		}
		if (rate->count >= session->limits.rate) {
			rate->lost++;
			return 0;
		}
		rate->count++;
	}
	session->events++;
	return 1;
}

static uint32_t function_of(const struct event_view *view)
{
	switch (kind_of_event(view->id).who) {
	case KIND_FUNCTION:
	case KIND_SESSION: return (uint32_t)event_number_named(view, "function", 0);
	default: return 0;
	}
}

/* Everything that the event is read with has gone before. */
static void prepare(struct route *route, const struct event_view *view, uint64_t tick)
{
	if (!route->given) {
		route->given = 1;
		give_image(route->router, route->session, route->image);
	}
	give_function(route, function_of(view));
	if (route->record) {
		look_up(route, tick);
		tell_flags(route, route->head, route->record, &route->span, NULL);
	}
}

static struct filter *side_filter(struct route *route, unsigned side)
{
	struct filter *filter = side == SIDE_OF_PORT ? &route->router->of_ports : &route->router->of_processes;
	if (!filter->length)
		filter_begin(filter, route->session, route->head, route->head->begin,
			     side == SIDE_OF_PORT ? LORG_HOLDS_PORT_FLAGS : LORG_HOLDS_PROCESS_FLAGS);
	if (route->stamp.length)
		filter_put(filter, &route->stamp);
	route->stamp.length = 0;
	return filter;
}

static uint32_t size_of(const struct event_view *view)
{
	uint32_t size = view->description->size;
	for (unsigned i = 0; i < view->description->bytes_count; i++) {
		uint32_t length;
		memcpy(&length, view->fields + view->description->bytes_length[i], sizeof length);
		size += length;
	}
	return size;
}

/* SENT or RECEIVED, without the out and in. */
static void put_message_alone(struct route *route, struct filter *filter, const struct event_view *view)
{
	const uint32_t running = (uint32_t)(LORG_MESSAGE_RUNNING | LORG_MESSAGE_OUT_ENDING | LORG_MESSAGE_IN_ENDING | LORG_MESSAGE_NOT_WAITED |
					    LORG_MESSAGE_NO_COUNT) << 16;
	uint8_t *fields = route->router->room.bytes;
	uint32_t size = size_of(view);
	struct lorg_event_SENT sent;
	memcpy(fields, view->fields, size);
	memcpy(&sent, fields, sizeof sent);
	sent.hook_flags &= ~running;
	memcpy(fields, &sent, sizeof sent);
	filter_put_fields(filter, (uint16_t)view->id, view->tick, view->effective, fields, size);
}

static void put_out_and_in(struct route *route, struct filter *filter, const struct event_view *view, unsigned out, unsigned in)
{
	struct event_view part;
	part_view(view, out, &route->router->room, &part);
	EVENT_FIELDS(&part, OUT, begun);
	part_view(view, in, &route->router->room, &part);
	EVENT_FIELDS(&part, IN, ended);
	const struct lorg_event_WAITED waited = {
		.entry = view->effective,
		.object = begun.object,
		.timeout_ns = begun.timeout_ns,
		.result = ended.result,
		.caller = begun.caller,
		.hook = begun.hook,
		.ending = (begun.ending & 1) | (ended.ending & 1) << 1,
		.error = ended.error,
	};
	filter_put_fields(filter, LORG_EVENT_WAITED, view->tick, view->effective, &waited, sizeof waited);
}

/* An out whose in is not told; stamped later than it was. */
static void put_out(struct route *route, struct filter *filter, const struct event_view *view, unsigned number)
{
	struct event_view part;
	part_view(view, number, &route->router->room, &part);
	EVENT_FIELDS(&part, OUT, begun);
	const struct lorg_event_WAIT_OPEN open = {
		.entry = view->effective,
		.object = begun.object,
		.timeout_ns = begun.timeout_ns,
		.caller = begun.caller,
		.hook = begun.hook,
		.ending = begun.ending & 1,
	};
	filter_put_fields(filter, LORG_EVENT_WAIT_OPEN, view->tick, view->effective, &open, sizeof open);
}

static void put_part(struct route *route, struct filter *filter, const struct event_view *view, unsigned number)
{
	struct event_view part;
	if (part_id(view, number) == LORG_EVENT_OUT) {
		put_out(route, filter, view, number);
		return;
	}
	if (view->id == LORG_EVENT_SENT || view->id == LORG_EVENT_RECEIVED) {
		if (part_id(view, number) != LORG_EVENT_IN) {
			put_message_alone(route, filter, view);
			return;
		}
	}
	part_view(view, number, &route->router->room, &part);
	filter_put_fields(filter, (uint16_t)part.id, view->tick, part.effective, part.fields, size_of(&part));
}

/* Numbers of the parts that are an out and an in; PARTS_MAXIMUM: there is none. */
static unsigned part_numbered(const struct event_view *view, unsigned count, uint32_t id)
{
	for (unsigned i = 0; i < count; i++)
		if (part_id(view, i) == id)
			return i;
	return PARTS_MAXIMUM;
}

/* The parts in `which`, a bit each, that are not all. */
static void put_parts(struct route *route, struct filter *filter, const struct event_view *view, unsigned count, unsigned which)
{
	unsigned out = part_numbered(view, count, LORG_EVENT_OUT), in = part_numbered(view, count, LORG_EVENT_IN);
	if (out < count && in < count && (which >> out & 1) && (which >> in & 1)) {
		put_out_and_in(route, filter, view, out, in);
		which &= ~(1u << out | 1u << in);
	}
	for (unsigned i = 0; i < count; i++)
		if (which >> i & 1)
			put_part(route, filter, view, i);
}

/* An OUT or IN says by `ending` that it did not wait: that is between the program and us. */
static void put_wait_itself(struct filter *filter, const struct event_view *view)
{
	if (view->id == LORG_EVENT_OUT) {
		EVENT_FIELDS(view, OUT, out);
		out.ending &= 1;
		filter_put_fields(filter, LORG_EVENT_OUT, view->tick, view->effective, &out, sizeof out);
		return;
	}
	EVENT_FIELDS(view, IN, in);
	in.ending &= 1;
	filter_put_fields(filter, LORG_EVENT_IN, view->tick, view->effective, &in, sizeof in);
}

/* A stretch that the session was told of while it lasted is not told again at its end. */
static int is_told_already(const struct route *route, const struct event_view *view)
{
	struct lorg_monitor_schedule about = {0};
	uint32_t length;
	const uint8_t *terms = event_bytes_named(view, "terms", &length);
	if (view->id != LORG_EVENT_LONG_SCHEDULE || length < sizeof about)
		return 0;
	memcpy(&about, terms, sizeof about);
	return about.since && !about.as_port &&
	       !schedules_tell_once(route->router->schedules, route->session->slot, route->head->image, route->head->process_birth, about.since);
}

static void put_monitor(struct route *route, const struct event_view *view)
{
	struct lorg_event_LONG_GC event;
	memcpy(&event, view->fields, sizeof event);
	if (!monitor_wants(route->session, view->id, &event) || is_told_already(route, view) || !admit(route->router, route->session))
		return;
	prepare(route, view, view->effective);
	filter_put(side_filter(route, SIDE_OF_PROCESS), view);
}

/* That a queue has become long for a session, or short again. */
static void put_queue(struct router *router, struct session *session, const struct queue_look *look, int is_long, uint64_t tick)
{
	struct filter *filter = &router->of_others;
	struct definition_image *image = definitions_image(router->definitions, look->whose.image);
	const struct lorg_monitor_schedule about = {.in_hook = UINT32_MAX, .out_hook = UINT32_MAX, .as_port = look->about.as_port};
	const struct lorg_event_LONG_MESSAGE_QUEUE event = {
		.value = (uint64_t)is_long, .object = look->event.object, .terms_length = sizeof about};
	uint8_t fields[sizeof event + sizeof about];
	if (!image || !admit(router, session))
		return;
	memcpy(fields, &event, sizeof event);
	memcpy(fields + sizeof event, &about, sizeof about);
	give_image(router, session, image);
	filter_begin(filter, session, &look->whose, tick, LORG_HOLDS_PROCESS_FLAGS);
	filter_put_fields(filter, LORG_EVENT_LONG_MESSAGE_QUEUE, tick, tick, fields, sizeof fields);
	filter_end(filter);
}

/* A look at a queue, in its turn. */
static void tell_queue(void *context, struct queue_record *record, const struct queue_look *look, uint64_t tick)
{
	struct sessions *sessions = context;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (!session->used || session->ending || !session->tracer || tick < session->since)
			continue;
		unsigned change = monitor_queue_change(record, session, look);
		if (change & QUEUE_BECAME_LONG)
			put_queue(sessions->router, session, look, 1, tick);
		if (change & QUEUE_BECAME_SHORT)
			put_queue(sessions->router, session, look, 0, tick + 1);
	}
}

/* A message of another process than the one in whose stream it was told: of its link with that one. */
static void tell_other(struct route *route, const struct link_end *other, uint16_t id, uint64_t tick, const struct link_end *about)
{
	const struct lorg_packet *whose = &other->whose;
	const struct flags_key key = key_of(whose);
	const struct flags_record *record = flags_find(route->sessions->flags, &key);
	const struct flags_span span = flags_span_at(record, route->session->slot, tick);
	struct definition_image *image = definitions_image(route->router->definitions, whose->image);
	if (tick < route->session->since || !(span.flags & LORG_TRACE_PROCS) || !image || !admit(route->router, route->session))
		return;
	const struct lorg_event_LINK event = {.pid = about->own_pid, .tid = about->own_tid, .fd = -1};
	struct filter *filter = &route->router->of_others;
	give_image(route->router, route->session, image);
	tell_flags(route, whose, record, &span, NULL);
	filter_begin(filter, route->session, whose, tick, LORG_HOLDS_PROCESS_FLAGS);
	filter_put_fields(filter, id, tick, tick, &event, sizeof event);
	filter_end(filter);
}

static struct link_end own_end(const struct route *route)
{
	const struct process *self = route->process;
	struct link_end end = {.whose = *route->head, .own_pid = route->head->pid, .own_tid = route->head->tid};
	if (self && self->image) {
		end.own_pid = self->image->own_pid;
		end.own_tid = self->own_tid;
	}
	return end;
}

static int find_link_end(const struct route *route, const struct event_view *view, struct link_end *other)
{
	EVENT_FIELDS(view, LINK, link);
	*other = (struct link_end){.own_pid = link.pid, .own_tid = link.tid ? link.tid : link.pid};
	return link.fd < 0 && find_other(route, link.pid, link.tid, &other->whose);
}

/* The other end of a link between processes does not tell of it: it runs elsewhere. */
static void put_other_end(struct route *route, const struct event_view *view)
{
	struct link_end other;
	const struct link_end own = own_end(route);
	if (find_link_end(route, view, &other))
		tell_other(route, &other, view->id == LORG_EVENT_LINK ? LORG_EVENT_GETTING_LINKED : LORG_EVENT_GETTING_UNLINKED,
			   view->effective, &own);
}

static int is_end(uint32_t id)
{
	return id == LORG_EVENT_EXIT || id == LORG_EVENT_OUT_EXITED;
}

/* The place of this end in a link; -1: it is none of its ends. */
static int end_of(const struct link *link, const struct lorg_packet *whose)
{
	return is_same_process(&link->end[0].whose, whose) ? 0 : is_same_process(&link->end[1].whose, whose) ? 1 : -1;
}

/* It ends: those that are linked with it are told. */
static void put_ends_of_links(struct route *route, uint64_t tick)
{
	for (const struct link *link = route->router->links; link; link = link->next) {
		int own = end_of(link, route->head);
		if (own >= 0)
			tell_other(route, &link->end[!own], LORG_EVENT_GETTING_UNLINKED, tick, &link->end[own]);
	}
}

static void drop_link(struct router *router, struct link **place)
{
	struct link *link = *place;
	*place = link->next;
	router->link_count--;
	free(link);
}

/* other NULL: all of its links. */
static void drop_links(struct router *router, const struct lorg_packet *whose, const struct lorg_packet *other)
{
	for (struct link **place = &router->links; *place;) {
		int own = end_of(*place, whose);
		if (own >= 0 && (!other || end_of(*place, other) == !own))
			drop_link(router, place);
		else
			place = &(*place)->next;
	}
}

static void keep_link(struct router *router, const struct link_end *own, const struct link_end *other)
{
	struct link *link = malloc(sizeof *link), **last = &router->links;
	if (!link)
		return;
	drop_links(router, &own->whose, &other->whose);
	if (router->link_count >= LINKS_KEPT) {
		while ((*last)->next)
			last = &(*last)->next;
		drop_link(router, last); /* the oldest */
	}
	*link = (struct link){router->links, {*own, *other}};
	router->links = link;
	router->link_count++;
}

static void note_end(struct route *route, const struct event_view *view)
{
	EVENT_FIELDS(view, EXIT, gone);
	if (gone.program)
		definitions_ended(route->image, route->session->slot);
}

static void route_event(struct route *route, const struct event_view *view)
{
	unsigned count = part_count(view), of_process = 0, of_port = 0;
	uint64_t tick = view->effective;
	if (is_seen_late(view))
		return;
	if (view->id == LORG_EVENT_LINK || view->id == LORG_EVENT_UNLINK)
		put_other_end(route, view);
	if (is_end(view->id))
		put_ends_of_links(route, view->effective);
	for (unsigned i = 0; i < count; i++) {
		uint64_t effective = part_effective(view, i);
		unsigned sides = wants_part(route, view, part_id(view, i), effective);
		of_process |= (sides & SIDE_OF_PROCESS ? 1u : 0) << i;
		of_port |= (sides & SIDE_OF_PORT ? 1u : 0) << i;
		if ((sides & SIDE_OF_PROCESS) && of_process == 1u << i)
			tick = effective; /* of the first part that is wanted */
	}
	if (!of_process && !of_port)
		return;
	if (kind_of_event(view->id).who == KIND_MONITOR) {
		put_monitor(route, view);
		return;
	}
	if (!admit(route->router, route->session))
		return;
	prepare(route, view, tick);
	unsigned all = (1u << count) - 1;
	if (of_process == all && (view->id == LORG_EVENT_OUT || view->id == LORG_EVENT_IN))
		put_wait_itself(side_filter(route, SIDE_OF_PROCESS), view);
	else if (of_process == all)
		filter_put(side_filter(route, SIDE_OF_PROCESS), view);
	else if (of_process)
		put_parts(route, side_filter(route, SIDE_OF_PROCESS), view, count, of_process);
	if (of_port == all)
		filter_put(side_filter(route, SIDE_OF_PORT), view);
	else if (of_port)
		put_parts(route, side_filter(route, SIDE_OF_PORT), view, count, of_port);
	if (view->id == LORG_EVENT_EXIT && of_process)
		note_end(route, view);
}

/* A thread that has not come to wait yet. */
static void tell_running(struct sessions *sessions, struct session *session, const struct long_schedule *found)
{
	struct router *router = sessions->router;
	struct filter *filter = &router->of_others;
	struct lorg_packet whose = {0};
	process_head(found->process, &whose);
	struct definition_image *image = definitions_image(router->definitions, whose.image);
	if (!image || !admit(router, session))
		return;
	const struct lorg_monitor_schedule about = {.in_hook = found->in_hook, .out_hook = UINT32_MAX, .since = found->since};
	const struct lorg_event_LONG_SCHEDULE event = {
		.value = found->ms, .object = LORG_MONITOR_NO_PORT, .terms_length = sizeof about};
	uint8_t fields[sizeof event + sizeof about];
	uint64_t tick = clock_tick(&sessions->context->clock);
	memcpy(fields, &event, sizeof event);
	memcpy(fields + sizeof event, &about, sizeof about);
	give_image(router, session, image);
	filter_begin(filter, session, &whose, tick, LORG_HOLDS_PROCESS_FLAGS);
	filter_put_fields(filter, LORG_EVENT_LONG_SCHEDULE, tick, tick, fields, sizeof fields);
	filter_end(filter);
}

/* ---- one packet ------------------------------------------------------------------------------ */

/* What the packet says of others, before any of it is passed on. */
struct news {
	/* Bits of sessions that events of it may be for, whatever they ask of its process: by name, or by another process. */
	uint64_t named[SESSION_SLOTS / 64];
	uint64_t lost;			    /* LOST events */
	int has_monitor, has_exit;
};

static void take_flags(struct route *route, const struct event_view *view)
{
	EVENT_FIELDS(view, FLAGS, flags);
	struct flags_key key = {.birth = route->head->process_birth, .fd = -1};
	memcpy(key.image, route->head->image, sizeof key.image);
	if (flags.birth) {
		key.birth = flags.birth;
		if (flags.image_low | flags.image_high) {
			memcpy(key.image, &flags.image_low, 8);
			memcpy(key.image + 8, &flags.image_high, 8);
		}
	}
	session_flags_told(route->sessions, &key, flags.session, view->effective, (uint32_t)flags.on, (uint32_t)flags.off);
}

static void take_open(struct route *route, const struct event_view *view)
{
	EVENT_FIELDS(view, OPEN, open);
	const struct flags_key key = port_key(route, open.fd, open.generation);
	if (open.hook == UINT32_MAX)
		flags_port_told(route->sessions, &key, route->process && route->process->image ? route->process->image->start_tick : 0);
	else
		flags_port_opened(route->sessions, &key, view->effective);
}

/* An event in this process's stream is a message of another one's. */
static void take_other(struct route *route, struct news *news, uint64_t birth)
{
	struct flags_key key = {.birth = birth, .fd = -1};
	memcpy(key.image, route->head->image, sizeof key.image);
	if (birth && birth != route->head->process_birth)
		flags_sessions(flags_find(route->sessions->flags, &key), news->named);
}

static void take_closed(struct route *route, struct news *news, const struct event_view *view)
{
	EVENT_FIELDS(view, CLOSED, closed);
	const struct flags_key key = port_key(route, closed.fd, closed.generation);
	take_other(route, news, definitions_opener(route->router->definitions, route->image, closed.fd, closed.generation));
	session_flags_forget(route->sessions, &key);
	definitions_port_closed(route->router->definitions, route->image, closed.fd, closed.generation);
}

static void name_sessions_of(struct route *route, struct news *news, const struct lorg_packet *whose)
{
	const struct flags_key key = key_of(whose);
	flags_sessions(flags_find(route->sessions->flags, &key), news->named);
}

static void take_link(struct route *route, struct news *news, const struct event_view *view)
{
	const struct link_end own = own_end(route);
	struct link_end other;
	if (!find_link_end(route, view, &other))
		return;
	name_sessions_of(route, news, &other.whose);
	if (view->id == LORG_EVENT_LINK)
		keep_link(route->router, &own, &other);
	else
		drop_links(route->router, &own.whose, &other.whose);
}

/* A link that was made before anybody asked for it stands in the process's entry. */
static void take_old_link(struct route *route)
{
	struct lorg_process *entry = route->family && route->process ? process_entry(route->family, route->process->index) : NULL;
	const struct link_end own = own_end(route);
	uint32_t pid = entry ? __atomic_exchange_n(&entry->linked_pid, 0, __ATOMIC_RELAXED) : 0; /* once */
	if (!pid)
		return;
	struct link_end other = {.own_pid = pid, .own_tid = entry->linked_tid ? entry->linked_tid : pid};
	if (find_other(route, other.own_pid, other.own_tid, &other.whose))
		keep_link(route->router, &own, &other);
}

/* EXIT, or the last word of a process that was not asked for that. */
static void take_end(struct route *route, struct news *news, const struct event_view *view)
{
	if (view->id == LORG_EVENT_EXIT) {
		EVENT_FIELDS(view, EXIT, gone);
		if (gone.program)
			definitions_exit(route->image, &gone);
	}
	take_old_link(route);
	for (const struct link *link = route->router->links; link; link = link->next) {
		int own = end_of(link, route->head);
		if (own >= 0)
			name_sessions_of(route, news, &link->end[!own].whose);
	}
	news->has_exit = 1;
}

static void take_registered(struct route *route, struct news *news, const struct event_view *view)
{
	EVENT_FIELDS(view, REGISTER, name);
	if (name.kind == 0 && name.tid && name.tid != route->head->tid)
		take_other(route, news, thread_of(route, name.tid));
}

static void take_name(struct news *news, const struct event_view *view)
{
	uint64_t slot = event_number_named(view, "session_kind", UINT64_MAX);
	slot = slot == UINT64_MAX ? event_number_named(view, "session", 0) : slot & 0xffff;
	if (slot < SESSION_SLOTS)
		news->named[slot / 64] |= (uint64_t)1 << slot % 64;
}

static void take_news(struct route *route, const struct event_view *view, struct news *news)
{
	switch (kind_of_event(view->id).who) {
	case KIND_HISTORY: take_flags(route, view); return;
	case KIND_SESSION: take_name(news, view); return;
	case KIND_MONITOR:
		if (view->id == LORG_EVENT_LONG_MESSAGE_QUEUE)
			monitors_queue(route->router->monitors, route->head, view, route->router->passes, tell_queue, route->sessions);
		else
			news->has_monitor = 1;
		return;
	case KIND_OWNER: take_closed(route, news, view); return;
	case KIND_NAME: take_registered(route, news, view); break;
	default: break;
	}
	if (view->id == LORG_EVENT_OPEN)
		take_open(route, view);
	if (view->id == LORG_EVENT_LINK || view->id == LORG_EVENT_UNLINK)
		take_link(route, news, view);
	if (is_end(view->id))
		take_end(route, news, view);
	if (view->id == LORG_EVENT_LOST) {
		EVENT_FIELDS(view, LOST, lost);
		news->lost += lost.count;
	}
	if (event_is_definition(view->id))
		definitions_keep(route->router->definitions, route->image, route->head, view);
}

/* Calls visit for each whole event. */
static void each_event(const struct lorg_packet *head, size_t length, void (*visit)(void *context, const struct event_view *view),
		       void *context)
{
	const uint8_t *packet = (const uint8_t *)head;
	uint64_t previous = head->begin;
	struct event_view view;
	for (size_t at = LORG_PACKET_HEAD; at + 8 <= length; at += view.length) {
		enum event_status status = event_decode(packet + at, length - at, previous, &view);
		if (status == EVENT_BAD || !view.length)
			return;
		if (status != EVENT_OK)
			continue;
		previous = view.tick;
		visit(context, &view);
	}
}

struct looking {
	struct route *route;
	struct news *news;
};

static void look_at(void *context, const struct event_view *view)
{
	struct looking *looking = context;
	take_news(looking->route, view, looking->news);
}

static void pass_event(void *context, const struct event_view *view)
{
	struct route *route = context;
	if (view->id == LORG_EVENT_CPU_TIME) {
		if (flags_of_process(route, view->tick) & LORG_TRACE_CPU_TIMESTAMP)
			route->stamp = *view;
		return;
	}
	route_event(route, view);
	route->stamp.length = 0;
}

static int watches_system(const struct session *session)
{
	for (int i = 0; i < 8; i++)
		if (session->system_limits[i] != UINT64_MAX)
			return 1;
	return 0;
}

static void route_packet(struct route *route, size_t length)
{
	struct session *session = route->session;
	route->span = (struct flags_span){0, 1, 0}; /* none yet */
	route->given = 0;
	route->stamp.length = 0;
	route->has_ports = flags_has_ports(route->sessions->flags, session->slot);
	each_event(route->head, length, pass_event, route);
	filter_end(&route->router->of_processes);
	filter_end(&route->router->of_ports);
}

/* ---- ports that a program leaves open at its end ------------------------------------------------ */

struct closing {
	struct sessions *sessions;
	struct lorg_event_EXIT gone;
	uint64_t tick;
};

static void close_for(struct route *route, const struct router_port *port, const struct closing *closing)
{
	const struct flags_key key = port_key(route, port->fd, port->generation);
	const struct flags_record *record = flags_find(route->sessions->flags, &key);
	const struct flags_span span = flags_span_at(record, route->session->slot, closing->tick);
	if (!(span.flags & LORG_TRACE_PORTS) || !admit(route->router, route->session))
		return;
	const struct lorg_event_CLOSED event = {
		.fd = port->fd,
		.generation = port->generation,
		.reason = closing->gone.reason,
		.status = closing->gone.status,
		.hook = UINT32_MAX,
		.driver = port->driver,
	};
	struct filter *filter = &route->router->of_others;
	give_image(route->router, route->session, route->image);
	tell_flags(route, route->head, record, &span, &key);
	filter_begin(filter, route->session, route->head, closing->tick, LORG_HOLDS_PORT_FLAGS);
	filter_put_fields(filter, LORG_EVENT_CLOSED, closing->tick, closing->tick, &event, sizeof event);
	filter_end(filter);
}

static void close_port(void *context, const struct router_port *port)
{
	struct closing *closing = context;
	struct sessions *sessions = closing->sessions;
	struct lorg_packet whose = {.process_birth = port->opener_birth, .pid = port->pid, .tid = port->opener_tid};
	struct route route = {.sessions = sessions, .router = sessions->router, .head = &whose};
	memcpy(whose.image, port->image, sizeof whose.image);
	route.image = definitions_find(sessions->router->definitions, whose.image);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		route.session = &sessions->slot[slot];
		if (route.session->used && route.session->tracer && flags_has_ports(sessions->flags, slot))
			close_for(&route, port, closing);
	}
}

static void close_ports(struct sessions *sessions, struct definition_image *image)
{
	struct closing closing = {.sessions = sessions, .tick = clock_tick(&sessions->context->clock)};
	if (definitions_take_end(image, &closing.gone))
		definitions_ports(sessions->router->definitions, image, close_port, &closing);
}

/* ---- losses -------------------------------------------------------------------------------------- */

static void tell_lost(struct session *session, uint64_t count, uint64_t perhaps)
{
	if (session->used && session->tracer && !session->ending && (count | perhaps))
		session->tracer->operations->lost(session->tracer, count, perhaps);
}

/* One session's, of what an entry has counted: taken away, so that the next to look, also after a restart, finds what is new. */
static uint64_t take_lost(struct lorg_process *entry, unsigned slot)
{
	return __atomic_load_n(&entry->session[slot].lost, __ATOMIC_RELAXED) ? __atomic_exchange_n(&entry->session[slot].lost, 0, __ATOMIC_RELAXED)
									     : 0;
}

static int is_doubtful(const struct lorg_process *entry, unsigned slot)
{
	return (int)(__atomic_load_n(&entry->doubtful_sessions[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1);
}

/* The program has counted for whom it lost them. */
static void tell_losses(struct sessions *sessions, struct lorg_process *entry)
{
	/* Acquire: pairs with the release of the program, which says first whom it concerns. */
	uint64_t perhaps = __atomic_exchange_n(&entry->doubtful_lost, 0, __ATOMIC_ACQUIRE);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			tell_lost(&sessions->slot[slot], take_lost(entry, slot), is_doubtful(entry, slot) ? perhaps : 0);
}

/* Where its entry is gone, nobody knows which they were; who had asked nothing of it had none of them. */
static void tell_unknown_losses(struct route *route, uint64_t lost)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (flags_span_at(route->record, slot, route->head->begin).flags & LORG_TRACE_ALL)
			tell_lost(&route->sessions->slot[slot], 0, lost);
}

typedef void visit_entry(void *context, struct lorg_process *entry);

static void each_entry(const struct sessions *sessions, visit_entry *visit, void *visit_context)
{
	struct family_context *context = sessions->context;
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct family *family = context->families[i];
		for (uint32_t chunk = 0; family->memory.at && chunk < family->slab_room; chunk++) {
			const struct slab *slab = family->slabs[chunk];
			for (uint32_t at = 0; slab && at < SLAB_ENTRIES; at++) {
				struct lorg_process *entry = slab->entry[at].used ? process_entry(family, slab->entry[at].index) : NULL;
				if (entry)
					visit(visit_context, entry);
			}
		}
	}
}

/* What no packet has told yet. */
static void tell_last_losses(void *sessions, struct lorg_process *entry)
{
	tell_losses(sessions, entry);
}

/* A slot has a new session: what was counted for the one before is nobody's. */
static void forget_losses(void *context, struct lorg_process *entry)
{
	const struct session *session = context;
	take_lost(entry, session->slot);
	__atomic_fetch_and(&entry->doubtful_sessions[session->slot / 64], ~((uint64_t)1 << session->slot % 64), __ATOMIC_RELAXED);
}

/* ---- the packet -------------------------------------------------------------------------------- */

int router_packet(struct sessions *sessions, struct family *family, struct process *process, const struct lorg_packet *head,
		  size_t length)
{
	struct router *router = sessions->router;
	struct route route = {.sessions = sessions, .router = router, .family = family, .process = process, .head = head};
	struct news news = {.lost = 0};
	struct looking looking = {&route, &news};
	uint64_t asking[SESSION_SLOTS / 64] = {0};
	route.image = definitions_image(router->definitions, head->image);
	if (!route.image)
		return 0; /* nobody can be told what it is */
	definition_image_set_pid(route.image, head->pid);
	each_event(head, length, look_at, &looking);
	if (!sessions->count)
		return 0;
	router->now_ns = clock_monotonic_ns();
	const struct flags_key key = key_of(head);
	route.record = flags_find(sessions->flags, &key);
	flags_sessions(route.record, asking);
	struct lorg_process *entry = family && process ? process_entry(family, process->index) : NULL;
	if (entry && head->events_discarded + news.lost)
		tell_losses(sessions, entry);
	else if (head->events_discarded + news.lost)
		tell_unknown_losses(&route, head->events_discarded + news.lost);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		uint64_t bit = (uint64_t)1 << slot % 64;
		if (!session->used || session->ending || !session->tracer)
			continue;
		if (!((asking[slot / 64] | news.named[slot / 64]) & bit) && !flags_has_ports(sessions->flags, slot) &&
		    !(news.has_monitor && watches_system(session)))
			continue;
		route.session = session;
		route_packet(&route, length);
	}
	if (news.has_exit) {
		drop_links(router, head, NULL);
		close_ports(sessions, route.image); /* where the image was over before it was known how */
	}
	return 0;
}

/* ---- notes of the collector -------------------------------------------------------------------- */

static int is_concerned(const struct router *router, const struct session *session, uint32_t pid)
{
	return pid == 0 || (session->defaults.new_processes & LORG_TRACE_ALL) || definitions_knows_pid(router->definitions, pid, session->slot);
}

static void note_gap(struct sessions *sessions, const struct lorg_packet *head, const struct event_view *view)
{
	struct router *router = sessions->router;
	EVENT_FIELDS(view, GAP, gap);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (!session->used || !session->tracer || !is_concerned(router, session, gap.pid))
			continue;
		filter_begin(&router->of_processes, session, head, view->tick, LORG_HOLDS_PROCESS_FLAGS);
		filter_put(&router->of_processes, view);
		filter_end(&router->of_processes);
	}
}

static void note_lost(struct sessions *sessions, const struct event_view *view)
{
	EVENT_FIELDS(view, LOST, lost);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (session->used && session->tracer)
			session->tracer->operations->lost(session->tracer, 0, lost.count); /* whose they were is not known */
	}
}

static void give_news(struct sessions *sessions, struct definition_image *image)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &sessions->slot[slot];
		if (session->used && session->tracer && definitions_were_given(image, slot))
			give_image(sessions->router, session, image);
	}
}

struct noting {
	struct sessions *sessions;
	const struct lorg_packet *head;
	struct definition_image *image;
	int has_clock;
};

static void take_note(void *context, const struct event_view *view)
{
	struct noting *noting = context;
	switch (view->id) {
	case LORG_EVENT_GAP: note_gap(noting->sessions, noting->head, view); return;
	case LORG_EVENT_LOST: note_lost(noting->sessions, view); return;
	case LORG_EVENT_CLOCK: noting->has_clock = 1; break;
	default: break;
	}
	definitions_keep(noting->sessions->router->definitions, noting->image, noting->head, view);
}

void router_note(struct sessions *sessions, const struct lorg_packet *packet, size_t length)
{
	struct noting noting = {sessions, packet, definitions_image(sessions->router->definitions, COLLECTOR), 0};
	if (!noting.image)
		return;
	each_event(packet, length, take_note, &noting);
	if (noting.has_clock)
		give_news(sessions, noting.image);
}

/* ---- sessions that come and go ------------------------------------------------------------------- */

static void introduce(struct sessions *sessions, struct session *session)
{
	static const struct live notes_live = {.note = router_note};
	struct router *router = sessions->router;
	const struct notes own = {.sessions = sessions, .live = &notes_live, .clock = &sessions->context->clock};
	struct notes notes = own;
	notes_clock(&notes);
	if (!router->has_hooks) {
		router->has_hooks = 1;
		notes_hooks(&notes);
	}
	struct definition_image *collector = definitions_image(router->definitions, COLLECTOR);
	if (collector)
		give_image(router, session, collector);
	tell_session(router, session);
}

void router_session_begins(struct sessions *sessions, struct session *session)
{
	struct router *router = sessions->router;
	router->rate[session->slot] = (struct rate){0, 0, 0};
	session->packets = 0;
	if (!sessions->restoring) /* else they are its own */
		each_entry(sessions, forget_losses, session);
	definitions_forget_session(router->definitions, session->slot);
	monitors_forget_session(router->monitors, session->slot);
	schedules_forget_session(router->schedules, session->slot);
	introduce(sessions, session);
}

void router_introduce_again(struct sessions *sessions, struct session *session)
{
	definitions_forget_session(sessions->router->definitions, session->slot);
	flags_untold(sessions->flags, session->slot);
	introduce(sessions, session);
}

static void tell_rate(struct router *router, struct session *session)
{
	uint64_t lost = router->rate[session->slot].lost;
	if (!lost)
		return;
	router->rate[session->slot].lost = 0;
	session->dropped += lost;
	session->tracer->operations->lost(session->tracer, lost, 0);
}

static void deliver(struct sessions *sessions, struct delivery **place)
{
	struct delivery *delivery = *place;
	struct tracer *tracer = delivery->session->tracer;
	each_entry(sessions, tell_last_losses, sessions);
	if (tracer && tracer->operations->pass)
		tracer->operations->pass(tracer); /* what was lost is told before it */
	*place = delivery->next;
	delivery->done(delivery->context);
	free(delivery);
}

/* What was committed before still arrives: a chunk may wait for the second look. */
static void take_rest(struct sessions *sessions)
{
	struct family_context *context = sessions->context;
	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < context->family_count; i++)
			drain_pass(context->families[i]);
}

void router_forget_queues(struct sessions *sessions, unsigned slot)
{
	monitors_forget_session(sessions->router->monitors, slot);
}

void router_session_ends(struct sessions *sessions, struct session *session)
{
	struct router *router = sessions->router;
	take_rest(sessions);
	monitors_pass(router->monitors, UINT64_MAX, tell_queue, sessions);
	each_entry(sessions, tell_last_losses, sessions);
	if (session->tracer)
		tell_rate(router, session);
	for (struct delivery **place = &router->deliveries; *place;) {
		if ((*place)->session == session)
			deliver(sessions, place);
		else
			place = &(*place)->next;
	}
	definitions_forget_session(router->definitions, session->slot);
	monitors_forget_session(router->monitors, session->slot);
	schedules_forget_session(router->schedules, session->slot);
}

int router_is_live(const struct sessions *sessions)
{
	return sessions->count != 0;
}

/* ---- programs that go ------------------------------------------------------------------------------ */

/* Of a process that was not asked to tell its exit. */
static void end_links(struct sessions *sessions, const struct lorg_packet *whose)
{
	struct router *router = sessions->router;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct route route = {.sessions = sessions, .router = router, .session = &sessions->slot[slot], .head = whose};
		if (sessions->slot[slot].used && sessions->slot[slot].tracer)
			put_ends_of_links(&route, clock_tick(&sessions->context->clock));
	}
	drop_links(router, whose, NULL);
}

void router_process_over(struct sessions *sessions, const uint8_t image[16], uint64_t birth)
{
	struct flags_key key = {.birth = birth, .fd = -1};
	memcpy(key.image, image, sizeof key.image);
	for (const struct link *link = sessions->router->links; link; link = link->next) {
		const struct lorg_packet *ends[] = {&link->end[0].whose, &link->end[1].whose};
		int own = ends[0]->process_birth == birth && memcmp(ends[0]->image, image, 16) == 0 ? 0 : 1;
		if (ends[own]->process_birth != birth || memcmp(ends[own]->image, image, 16) != 0)
			continue;
		const struct lorg_packet whose = *ends[own];
		end_links(sessions, &whose);
		break;
	}
	session_flags_forget(sessions, &key);
}

static void forget_port(void *context, const struct router_port *port)
{
	struct flags_key key = {.fd = port->fd, .generation = port->generation};
	memcpy(key.image, port->image, sizeof key.image);
	session_flags_forget(context, &key);
}

void router_image_over(struct sessions *sessions, const uint8_t id[16])
{
	struct router *router = sessions->router;
	struct definition_image *image = definitions_find(router->definitions, id);
	definitions_image_over(router->definitions, id, clock_monotonic_ns());
	if (!image)
		return;
	close_ports(sessions, image);
	definitions_ports(router->definitions, image, forget_port, sessions);
}

/* Readers may forget it, too. */
static void tell_gone(void *context, const struct lorg_packet *whose, unsigned slot)
{
	struct sessions *sessions = context;
	struct router *router = sessions->router;
	struct session *session = &sessions->slot[slot];
	uint64_t tick = clock_tick(&sessions->context->clock);
	const struct lorg_event_EXIT event = {.program = 1, .outside = 1, .hook = UINT32_MAX, .reason = LORG_REASON_UNKNOWN};
	if (!session->tracer)
		return;
	open_aside(router, session, whose, tick, 0);
	filter_put_fields(&router->aside, LORG_EVENT_EXIT, tick, tick, &event, sizeof event);
	filter_end(&router->aside);
}

uint32_t router_ports(struct sessions *sessions, const uint8_t *id, void (*each)(void *context, const struct router_port *port),
		      void *context)
{
	const struct definitions *definitions = sessions->router->definitions;
	const struct definition_image *image = id ? definitions_find(definitions, id) : NULL;
	if (id && !image)
		return 0;
	return definitions_ports(definitions, image, each, context);
}

/* ---- delivered/2 -------------------------------------------------------------------------------------- */

void router_delivered(struct sessions *sessions, struct session *session, delivered_done *done, void *context)
{
	struct router *router = sessions->router;
	struct delivery *delivery = calloc(1, sizeof *delivery), **last = &router->deliveries;
	if (!delivery) {
		take_rest(sessions);
		monitors_pass(router->monitors, UINT64_MAX, tell_queue, sessions);
		done(context);
		return;
	}
	*delivery = (struct delivery){.session = session, .pass = router->passes, .done = done, .context = context};
	while (*last)
		last = &(*last)->next;
	*last = delivery;
}

void router_delivered_abandon(struct sessions *sessions, void *context)
{
	for (struct delivery **place = &sessions->router->deliveries; *place;) {
		struct delivery *delivery = *place;
		if (delivery->context != context) {
			place = &delivery->next;
			continue;
		}
		*place = delivery->next;
		free(delivery);
	}
}

/* ---- the pass -------------------------------------------------------------------------------------------- */

static void look_at_session(struct router *router, struct session *session)
{
	struct tracer *tracer = session->tracer;
	if (!tracer)
		return;
	if (tracer->operations->pass)
		tracer->operations->pass(tracer);
	tell_rate(router, session);
	tracer->memory_limit = session->limits.memory;
}

void router_pass(struct sessions *sessions, uint64_t now_ns)
{
	struct router *router = sessions->router;
	router->passes++;
	router->now_ns = now_ns;
	monitors_pass(router->monitors, router->passes, tell_queue, sessions);
	uint64_t enough = DELIVERY_PASSES + monitors_waiting(router->monitors);
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++)
		if (sessions->slot[slot].used)
			look_at_session(router, &sessions->slot[slot]);
	for (struct delivery **place = &router->deliveries; *place;) {
		if (router->passes - (*place)->pass >= enough)
			deliver(sessions, place);
		else
			place = &(*place)->next;
	}
	/* Of threads that have said nothing since. */
	if (sessions->count && now_ns - router->losses_ns >= SECOND_NS) {
		router->losses_ns = now_ns;
		each_entry(sessions, tell_last_losses, sessions);
	}
	tracer_reap();
	schedules_pass(sessions, router->schedules, now_ns, tell_running);
	flags_pass(sessions, now_ns);
	definitions_pass(router->definitions, sessions, now_ns, tell_gone, sessions);
}

struct router *router_create(struct sessions *sessions)
{
	struct router *router = calloc(1, sizeof *router);
	(void)sessions;
	if (!router)
		return NULL;
	router->definitions = definitions_create();
	router->monitors = monitors_create();
	router->schedules = schedules_create();
	if (router->definitions && router->monitors && router->schedules)
		return router;
	router_free(router);
	return NULL;
}

void router_free(struct router *router)
{
	if (!router)
		return;
	while (router->deliveries) {
		struct delivery *next = router->deliveries->next;
		free(router->deliveries);
		router->deliveries = next;
	}
	while (router->links)
		drop_link(router, &router->links);
	definitions_free(router->definitions);
	monitors_free(router->monitors);
	schedules_free(router->schedules);
	free(router);
}
