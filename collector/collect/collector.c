/* SPDX-License-Identifier: MIT */
/* collector.c: see collector.h. */
#include "collector/collect/collector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/collect/door.h"
#include "collector/collect/family.h"
#include "collector/collect/journal.h"
#include "collector/collect/offers.h"
#include "collector/session/live.h"

/* The pace: how long to wait between passes. It follows what the last pass found. */
enum {
	PACE_FASTEST_NS = 200000,
	PACE_FIRST_NS = 1000000,
	PACE_REQUESTS_NS = 500000,
	PACE_BUSY_CHUNKS = 32,	/* this many in one pass: no waiting at all */
	PACE_SOME_CHUNKS = 2,
};
static const uint64_t PACE_ACTIVE_LIMIT_NS = 10000000; /* in the second after anything happened */
static const uint64_t PACE_IDLE_LIMIT_NS = 50000000;
static const uint64_t ACTIVE_NS = 1000000000;

/* For match specifications of messages, in each arena of a lorgd; sparse. */
enum { LIVE_PROGRAMS_ROOM = 1 << 20 };
static const uint64_t CHECK_STEP_NS = 1000000000;
static const uint64_t CLOCK_STEP_NS = 10000000000;

/* From the end of the program on, one that has claimed an arena gets so long to show up. */
static const uint64_t ARRIVAL_LIMIT_NS = 1000000000;

struct collector {
	struct family_context context;
	struct arena_settings arena_settings;
	struct offers offers;
	struct door *door;
	uint8_t gates[LORG_HOOKS];
	uint8_t token[16];
	char environment[512];
	int detached;
	uint64_t pace_ns, active_ns, check_ns, clock_ns;
};

/* ---- set-up ------------------------------------------------------------ */

static void set_node_name(struct arena_settings *arena, int live)
{
	char host[sizeof arena->node_name] = "";
	gethostname(host, sizeof host - 1);
	snprintf(arena->node_name, sizeof arena->node_name, live ? "lorg@%.58s" : "%s", host);
}

static void settle(void *context, uint8_t *at, const struct arena_layout *layout)
{
	const struct family_context *common = context;
	common->live->settle(common->sessions, at, layout);
}

static void set_arena_settings(struct collector *collector, const struct collector_settings *settings)
{
	struct arena_settings *arena = &collector->arena_settings;
	random_bytes(arena->trace_uuid, sizeof arena->trace_uuid);
	if (settings->adopted)
		memcpy(arena->trace_uuid, settings->adopted->trace_uuid, sizeof arena->trace_uuid);
	arena->keeping = settings->keeping;
	set_node_name(arena, settings->live != NULL);
	arena->overflow = settings->overflow;
	arena->message_length = settings->message_length;
	arena->block_limit_ns = settings->block_limit_ns;
	arena->gate_mask = settings->gate_mask;
	snprintf(arena->session_name, sizeof arena->session_name, "%s", settings->session);
	arena->has_requests = settings->planning && settings->planning->planner;
	arena->send_program = settings->send_program;
	arena->receive_program = settings->receive_program;
	arena->flags_new = settings->flags_new;
	arena->flags_matter = settings->flags_matter;
	gates_set(collector->gates, settings->gate_mask | (settings->live ? LORG_MASK_LIFE : 0));
	arena->gates = collector->gates;
}

static int claim(void *context, struct lorg_offer *offer)
{
	struct collector *collector = context;
	return offers_claim(&collector->offers, offer);
}

/* Of the family whose arena it is. */
static int find_answer(void *context, const uint8_t arena_id[16], uint32_t request, int descriptors[2])
{
	const struct collector *collector = context;
	for (uint32_t i = 0; i < collector->context.family_count; i++)
		if (!memcmp(collector->context.families[i]->id, arena_id, sizeof collector->context.families[i]->id))
			return requests_descriptors(collector->context.families[i]->requests, request, descriptors);
	return -1;
}

static void write_hex(char *to, const uint8_t *bytes, unsigned length)
{
	for (unsigned i = 0; i < length; i++)
		snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

static void set_environment(struct collector *collector)
{
	char token[33];
	write_hex(token, collector->token, sizeof collector->token);
	snprintf(collector->environment, sizeof collector->environment, "%s=%d:%d:%d:%llu:%s:%032d:%s", LORG_ENVIRONMENT,
		 LORG_ABI_MAJOR, getpid(), collector->offers.node.descriptor, (unsigned long long)collector->offers.node.size, token, 0,
		 collector->door ? door_path(collector->door) : "");
}

static void add_to_epoll(const struct family_context *context, int descriptor)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = NULL}};
	epoll_ctl(context->epoll, EPOLL_CTL_ADD, descriptor, &event);
}

/* Arenas show from the start what the sessions ask for: nothing yet. */
static int open_sessions(struct collector *collector)
{
	struct family_context *context = &collector->context;
	struct arena_settings *arena = &collector->arena_settings;
	context->offers = &collector->offers;
	context->journal = journal_create();
	context->sessions = context->journal ? context->live->create(context) : NULL;
	if (!context->sessions)
		return -1;
	context->notes.sessions = context->sessions;
	context->notes.live = context->live;
	arena->settle = settle;
	arena->settle_context = context;
	arena->programs_room = LIVE_PROGRAMS_ROOM;
	arena->has_requests = 1;
	return 0;
}

static int open_store(struct collector *collector, const struct collector_settings *settings, const char **why)
{
	struct family_context *context = &collector->context;
	struct store_settings store = {.path = settings->output, .clock = context->clock, .open_files = settings->open_files};
	memcpy(store.trace_uuid, collector->arena_settings.trace_uuid, sizeof store.trace_uuid);
	memcpy(store.node_name, collector->arena_settings.node_name, sizeof store.node_name);
	context->store = store_create(&store, why);
	context->notes.store = context->store;
	context->notes.clock = &context->clock;
	return context->store ? 0 : -1;
}

static int open_memory(struct collector *collector, const struct collector_settings *settings)
{
	struct family_context *context = &collector->context;
	context->overflow = collector->arena_settings.overflow;
	context->arena_settings = &collector->arena_settings;
	context->copy = aligned_alloc(4096, LORG_CHUNK_SIZE);
	context->epoll = epoll_create1(EPOLL_CLOEXEC);
	context->endings = endings_create();
	if (!context->copy || !context->endings || context->epoll < 0)
		return -1;
	if (context->live && open_sessions(collector))
		return -1;
	if (offers_open(&collector->offers, &collector->arena_settings, settings->open_files / 2, settings->adopted))
		return -1;
	random_bytes(collector->token, sizeof collector->token);
	collector->door = door_open(collector->token, collector->offers.node.descriptor, claim, find_answer, collector);
	if (collector->door)
		add_to_epoll(context, door_descriptor(collector->door));
	if (context->planning)
		add_to_epoll(context, context->planning->descriptor(context->planning->planner));
	set_environment(collector);
	return 0;
}

static void free_collector(struct collector *collector)
{
	struct family_context *context = &collector->context;
	int error = errno;
	for (uint32_t i = 0; i < collector->context.family_count; i++)
		family_free(collector->context.families[i]);
	free(collector->context.families);
	collector->context.family_count = 0;
	successors_free(context);
	runtimes_free(&context->runtimes);
	if (context->sessions)
		context->live->free(context->sessions);
	context->sessions = NULL;
	door_close(collector->door);
	offers_close(&collector->offers);
	store_free(context->store);
	if (context->epoll >= 0)
		close(context->epoll);
	endings_free(context->endings);
	journal_free(context->journal);
	free(context->copy);
	free(context->full);
	free(context->filling);
	free(collector);
	errno = error;
}

/* ---- families ---------------------------------------------------------- */

static void add_family(struct collector *collector, const struct offered *claimed)
{
	if (collector->context.family_count == collector->context.family_room) {
		uint32_t room = collector->context.family_room ? collector->context.family_room * 2 : 16;
		struct family **families = realloc(collector->context.families, room * sizeof(struct family *));
		if (!families) {
			struct memory memory = claimed->memory;
			memory_free(&memory); /* its program records for itself */
			return;
		}
		collector->context.families = families;
		collector->context.family_room = room;
	}
	struct family *family = family_create(&collector->context, claimed->memory, &collector->offers.layout, claimed->id);
	if (!family)
		return;
	collector->context.families[collector->context.family_count++] = family;
	if (collector->detached)
		family_detach(family);
}

static void adopt_families(struct collector *collector, struct adopted *adopted)
{
	struct family_context *context = &collector->context;
	uint32_t at = 0;
	for (struct kept *kept; (kept = kept_next(adopted, KEPT_ARENA, &at));) {
		uint32_t count = context->family_count;
		if (kept->memory.size != collector->offers.layout.size)
			continue;
		struct offered claimed = {.memory = kept_take(kept)};
		memcpy(claimed.id, kept->name.id, sizeof claimed.id);
		add_family(collector, &claimed);
		if (context->family_count > count)
			context->families[count]->adopted = 1;
	}
}

void collector_take_over(struct collector *collector, struct adopted *adopted)
{
	journal_take_over(collector->context.journal, adopted, collector->arena_settings.keeping, &collector->context);
}

void collector_lead_adopted(struct collector *collector)
{
	struct family_context *context = &collector->context;
	struct arena_reach reach = {
		.pid = (uint32_t)getpid(),
		.node_descriptor = collector->offers.node.descriptor,
		.node_size = collector->offers.node.size,
		.socket_path = collector->door ? door_path(collector->door) : "",
	};
	memcpy(reach.token, collector->token, sizeof reach.token);
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct family *family = context->families[i];
		struct lorg_arena *arena = family_arena(family);
		if (!family->adopted)
			continue;
		arena_set_reach(arena, &reach);
		__atomic_add_fetch(&arena->collector_epoch, 1, __ATOMIC_RELEASE);
		context->live->settle(context->sessions, family->memory.at, &family->layout);
	}
}

void collector_identity(const struct collector *collector, struct lorg_clock *clock, uint8_t trace_uuid[16])
{
	*clock = collector->context.clock;
	memcpy(trace_uuid, collector->arena_settings.trace_uuid, sizeof collector->arena_settings.trace_uuid);
}

struct collector *collector_open(const struct collector_settings *settings, const char **what, const char **why)
{
	struct collector *collector = calloc(1, sizeof *collector);
	*what = settings->output;
	*why = NULL;
	if (!collector)
		return NULL;
	struct family_context *context = &collector->context;
	context->epoll = collector->offers.node.descriptor = -1;
	context->live = settings->live;
	context->planning = settings->planning && settings->planning->planner ? settings->planning : NULL;
	clock_begin(&context->clock);
	if (settings->adopted && settings->adopted->clock.source == context->clock.source)
		context->clock = settings->adopted->clock;
	set_arena_settings(collector, settings);
	clock_refine(&context->clock);
	collector->arena_settings.clock = context->clock;
	collector->context.notes.clock = &context->clock;
	if (open_memory(collector, settings)) {
		*what = "no shared memory for the programs";
		free_collector(collector);
		return NULL;
	}
	if (!context->live && open_store(collector, settings, why)) {
		free_collector(collector);
		return NULL;
	}
	if (!context->live) {
		notes_clock(&context->notes);
		notes_session(&context->notes, &collector->arena_settings, settings->options);
		notes_hooks(&context->notes);
	}
	if (settings->adopted)
		adopt_families(collector, settings->adopted);
	uint64_t now_ns = clock_monotonic_ns();
	collector->pace_ns = PACE_FIRST_NS;
	collector->active_ns = collector->check_ns = collector->clock_ns = now_ns;
	return collector;
}

struct sessions *collector_sessions(const struct collector *collector)
{
	return collector->context.sessions;
}

struct family_context *collector_context(struct collector *collector)
{
	return &collector->context;
}

const char *collector_node_name(const struct collector *collector)
{
	return collector->arena_settings.node_name;
}

void collector_hurry(struct collector *collector)
{
	collector->active_ns = clock_monotonic_ns();
	collector->pace_ns = PACE_FASTEST_NS;
}

const char *collector_environment(const struct collector *collector)
{
	return collector->environment;
}

void collector_not_traced(struct collector *collector, uint32_t pid, const char *what, const char *why)
{
	collector->context.notes.coverage.not_traced++;
	notes_gap(&collector->context.notes, 1, pid, what, why);
}

void collector_child_started(struct collector *collector, pid_t pid)
{
	collector->context.child = pid;
}

void collector_child_ended(struct collector *collector, int status)
{
	collector->context.child_ending = (struct ending){1, status};
}

int collector_descriptor(const struct collector *collector)
{
	return collector->context.epoll;
}

/* ---- the pass ---------------------------------------------------------- */

static void take_claimed(struct collector *collector, uint64_t now_ns)
{
	struct offered claimed;
	uint32_t count = 0;
	while (offers_next_claimed(&collector->offers, &claimed)) {
		add_family(collector, &claimed);
		count++;
	}
	collector->context.changes += count;
	if (!collector->detached)
		offers_refill(&collector->offers, count, now_ns);
}

/* Marks the images whose pidfd is readable. None is freed while there are events left. */
static void take_events(struct collector *collector)
{
	struct epoll_event events[64];
	int count;
	do {
		count = epoll_wait(collector->context.epoll, events, sizeof events / sizeof *events, 0);
		for (int i = 0; i < count; i++) {
			struct image *image = events[i].data.ptr;
			if (!image)
				continue;
			image->dead = 1;
			/* It stays readable: once is enough. */
			epoll_ctl(collector->context.epoll, EPOLL_CTL_DEL, image->pidfd, NULL);
		}
	} while (count == (int)(sizeof events / sizeof *events));
}

static void pass_families(struct collector *collector, uint64_t now_ns)
{
	for (uint32_t i = 0; i < collector->context.family_count;) {
		struct family *family = collector->context.families[i];
		if (family_pass(family, now_ns)) {
			i++;
			continue;
		}
		collector->context.families[i] = collector->context.families[--collector->context.family_count];
		family_free(family);
		collector->context.changes++;
	}
}

static uint64_t next_pace(struct collector *collector, uint64_t now_ns)
{
	const struct family_context *context = &collector->context;
	uint64_t pace = collector->pace_ns;
	if (context->chunks_moved || context->changes)
		collector->active_ns = now_ns;
	uint64_t limit = now_ns - collector->active_ns < ACTIVE_NS ? PACE_ACTIVE_LIMIT_NS : PACE_IDLE_LIMIT_NS;
	if (context->chunks_moved >= PACE_BUSY_CHUNKS) {
		collector->pace_ns = PACE_FASTEST_NS;
		return 0;
	}
	if (context->chunks_moved >= PACE_SOME_CHUNKS || context->changes)
		pace /= 2;
	else if (!context->chunks_moved)
		pace += pace / 2;
	/* An image waits for its plan, or has yet to ask for it. */
	if (context->requests_wait && limit > PACE_REQUESTS_NS)
		limit = PACE_REQUESTS_NS;
	/* Somebody looks on while it happens. */
	if (context->sessions && limit > PACE_ACTIVE_LIMIT_NS && context->live->is_live(context->sessions))
		limit = PACE_ACTIVE_LIMIT_NS;
	collector->pace_ns = pace < PACE_FASTEST_NS ? PACE_FASTEST_NS : pace > limit ? limit : pace;
	return collector->pace_ns;
}

static void now_and_then(struct collector *collector, uint64_t now_ns)
{
	if (now_ns - collector->check_ns >= CHECK_STEP_NS) {
		collector->check_ns = now_ns;
		if (collector->context.store)
			store_check(collector->context.store);
	}
	if (now_ns - collector->clock_ns >= CLOCK_STEP_NS) {
		/* Readers use the last one; the programs keep the first: they only compare ticks. */
		collector->clock_ns = now_ns;
		clock_refine(&collector->context.clock);
		notes_clock(&collector->context.notes);
	}
}

uint64_t collector_pass(struct collector *collector)
{
	struct family_context *context = &collector->context;
	uint64_t now_ns = clock_monotonic_ns();
	context->chunks_moved = context->changes = 0;
	context->requests_wait = 0;
	take_events(collector);
	if (collector->door)
		door_pass(collector->door);
	take_claimed(collector, now_ns);
	pass_families(collector, now_ns);
	successors_pass(context, now_ns, 0);
	now_and_then(collector, now_ns);
	if (context->sessions)
		context->live->pass(context->sessions, now_ns);
	else if (store_failure(context->store, NULL))
		collector_detach(collector);
	return next_pace(collector, now_ns);
}

uint32_t collector_programs(const struct collector *collector)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < collector->context.family_count; i++)
		count += collector->context.families[i]->image_count;
	return count;
}

int collector_ever_attached(const struct collector *collector)
{
	/* Not its images: what they say of themselves may have been overwritten before anybody looked. */
	return collector->offers.claimed > 0;
}

int collector_attached(const struct collector *collector)
{
	uint64_t now_ns = clock_monotonic_ns();
	for (uint32_t i = 0; i < collector->context.family_count; i++) {
		const struct family *family = collector->context.families[i];
		if (family->attached || now_ns - family->claimed_ns < ARRIVAL_LIMIT_NS)
			return 1;
	}
	return successors_expected(&collector->context, now_ns) != 0;
}

/* ---- the end ----------------------------------------------------------- */

void collector_detach(struct collector *collector)
{
	if (collector->detached)
		return;
	collector->detached = 1;
	offers_withdraw(&collector->offers);
	for (uint32_t i = 0; i < collector->context.family_count; i++)
		family_detach(collector->context.families[i]);
}

int collector_failure(const struct collector *collector, const char **what)
{
	return collector->context.store ? store_failure(collector->context.store, what) : 0;
}

static void take_rest(struct collector *collector)
{
	/* Events that were begun before the gates were closed are ready by now. */
	const struct timespec moment = {0, 2000000};
	struct offered claimed;
	while (offers_next_claimed(&collector->offers, &claimed))
		add_family(collector, &claimed);
	if (!collector->context.family_count)
		return;
	nanosleep(&moment, NULL);
	for (uint32_t i = 0; i < collector->context.family_count; i++)
		family_take_rest(collector->context.families[i]);
}

/* Programs that came as far as the node segment and no further. */
static void tell_refused(struct collector *collector)
{
	static const char *const reasons[LORG_ATTACH_FAILURES] = {
		[LORG_ATTACH_NOT_OPENED] = "their shared memory could not be opened",
		[LORG_ATTACH_NOT_MAPPED] = "there was no address space in them for shared memory: raise their limit on it (ulimit -v)",
		[LORG_ATTACH_OTHER_VERSION] = "the liblorg.so that they were given is not of this version",
		[LORG_ATTACH_NO_IMAGE] = "more programs of one family were alive at once than it has room for",
	};
	struct notes *notes = &collector->context.notes;
	uint32_t refused = offers_refused(&collector->offers);
	if (refused)
		notes_gap(notes, refused, 0, "programs",
			  "there were no means for their shared memory: raise lorg's limits on memory and open files");
	for (int reason = 0; reason < LORG_ATTACH_FAILURES; reason++) {
		uint32_t failures = offers_failures(&collector->offers, (enum lorg_attach_failure)reason);
		/* Others came by exec, where they are missed one by one. */
		notes->coverage.not_traced += reason == LORG_ATTACH_NO_IMAGE ? failures : 0;
		if (failures)
			notes_gap(notes, failures, 0, "programs", reasons[reason]);
	}
}

/* A lorgd's: each session takes what there is for it and leaves the programs as they were. */
static void close_live(struct collector *collector)
{
	struct family_context *context = &collector->context;
	context->live->free(context->sessions);
	context->sessions = context->notes.sessions = NULL;
	collector_detach(collector);
	free_collector(collector);
}

void collector_close(struct collector *collector, char *line, unsigned size)
{
	struct family_context *context = &collector->context;
	char coverage[512];
	if (context->live) {
		close_live(collector);
		return;
	}
	collector_detach(collector);
	take_rest(collector);
	successors_pass(context, clock_monotonic_ns(), 1);
	endings_tell_all(context);
	clock_refine(&context->clock);
	tell_refused(collector);
	notes_coverage_line(&context->notes, coverage, sizeof coverage);
	notes_mark(&context->notes, coverage);
	notes_clock(&context->notes);
	notes_end(&context->notes);
	store_finish(context->store, &context->clock);
	if (line)
		snprintf(line, size, "%s", coverage);
	free_collector(collector);
}

struct collector_holdings collector_holdings(const struct collector *collector)
{
	struct store_totals totals = {0};
	if (collector->context.store)
		totals = store_totals(collector->context.store);
	return (struct collector_holdings){collector->context.family_count, collector_programs(collector), collector->offers.ready,
					   totals.lanes, totals.open_files};
}
