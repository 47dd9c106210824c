/* SPDX-License-Identifier: MIT */
/*
 * tracer.c: a session's trace directory: a store of its own, which is read as any recording is.
 *
 * A lane is a thread's while it writes; of those that have not written for longest the lanes are given to others.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "collector/collect/family.h"
#include "collector/collect/journal.h"
#include "collector/collect/notes.h"
#include "collector/session/router.h"
#include "collector/session/tracer.h"
#include "collector/store/store.h"

enum { LANES = 64, OPEN_FILES = 32, TERM_SIZE = 4200 };

/* A lane that is in the hands of one process, and side of it. */
struct held_lane {
	struct lane *lane; /* NULL: none */
	uint8_t image[16];
	uint64_t birth, used;
	uint32_t tid, runtime_process, holds;
};

struct directory {
	struct tracer tracer;
	struct store *store;
	struct notes notes;
	struct journal *journal;
	uint64_t inode;
	struct held_lane held[LANES];
	uint64_t uses;
	char term[TERM_SIZE];
	char why[256];
};

static const uint32_t SIDES = LORG_HOLDS_UNSHOWN | LORG_HOLDS_PORT_FLAGS;

static int is_of(const struct held_lane *held, const struct lorg_packet *packet)
{
	return held->lane && held->birth == packet->process_birth && held->tid == packet->tid &&
	       held->runtime_process == packet->runtime_process && held->holds == (packet->holds & SIDES) &&
	       memcmp(held->image, packet->image, sizeof held->image) == 0;
}

/* The place of the packet's process, or the one that was used least lately. */
static struct held_lane *place_for(struct directory *directory, const struct lorg_packet *packet)
{
	struct held_lane *oldest = &directory->held[0];
	for (int i = 0; i < LANES; i++) {
		struct held_lane *held = &directory->held[i];
		if (is_of(held, packet))
			return held;
		if (held->used < oldest->used)
			oldest = held;
	}
	return oldest;
}

static struct lane *lane_for(struct directory *directory, const struct lorg_packet *packet)
{
	struct held_lane *held = place_for(directory, packet);
	held->used = ++directory->uses;
	if (is_of(held, packet) && store_lane_end(held->lane) <= packet->begin)
		return held->lane;
	/* Times may not go back in a lane. */
	store_release_lane(directory->store, held->lane);
	held->lane = store_take_lane(directory->store, packet->begin);
	held->birth = packet->process_birth;
	held->tid = packet->tid;
	held->runtime_process = packet->runtime_process;
	held->holds = packet->holds & SIDES;
	memcpy(held->image, packet->image, sizeof held->image);
	return held->lane;
}

static uint64_t directory_packet(struct tracer *tracer, struct lorg_packet *packet, size_t length)
{
	struct directory *directory = (struct directory *)tracer;
	struct lane *lane = lane_for(directory, packet);
	/* A failure ends the session: see directory_state. */
	if (lane)
		store_append(directory->store, lane, packet, length);
	return 0;
}

static void directory_delivered(struct tracer *tracer, const char *term)
{
	struct directory *directory = (struct directory *)tracer;
	notes_mark(&directory->notes, term);
}

static void directory_lost(struct tracer *tracer, uint64_t count, uint64_t perhaps)
{
	struct directory *directory = (struct directory *)tracer;
	if (count)
		notes_lost(&directory->notes, count, "a program had no room, or it was more than the session's limits allow");
	if (perhaps)
		notes_lost(&directory->notes, perhaps, "a program had no room; it is not known whether the session would have had them");
}

static void directory_end(struct tracer *tracer, const char *why)
{
	struct directory *directory = (struct directory *)tracer;
	char text[320];
	snprintf(text, sizeof text, "session ended: %s", why ? why : "destroyed");
	notes_mark(&directory->notes, text);
	notes_clock(&directory->notes);
	notes_end(&directory->notes);
	store_finish(directory->store, directory->notes.clock);
	store_free(directory->store);
	free(directory);
}

static enum tracer_state directory_state(const struct tracer *tracer, const char **why)
{
	/* The sentence is made here; it is nobody else's. */
	struct directory *directory = (struct directory *)(uintptr_t)tracer;
	const char *what = NULL;
	int error = store_failure(directory->store, &what);
	if (!error)
		return TRACER_FINE;
	snprintf(directory->why, sizeof directory->why, "its trace directory: %s: %s", what ? what : "cannot be written", strerror(error));
	*why = directory->why;
	return TRACER_GONE;
}

static uint64_t directory_waiting(const struct tracer *tracer)
{
	(void)tracer;
	return 0;
}

static const char *directory_term(const struct tracer *tracer)
{
	return ((const struct directory *)tracer)->term;
}

static const struct tracer_operations directory_operations = {
	.packet = directory_packet,
	.delivered = directory_delivered,
	.lost = directory_lost,
	.end = directory_end,
	.state = directory_state,
	.waiting = directory_waiting,
	.term = directory_term,
	.is_process = 1,
};

void tracer_put_term(char *to, size_t size, const char *tag, const char *path, const char *state)
{
	size_t at = (size_t)snprintf(to, size, "{%s,\"", tag);
	for (; *path && at + 8 < size; path++) {
		if (*path == '"' || *path == '\\')
			to[at++] = '\\';
		to[at++] = *path;
	}
	snprintf(to + at, size - at, state ? "\",%s}" : "\"}", state);
}

static void appending(void *context, uint32_t lane, uint64_t size)
{
	const struct directory *directory = context;
	journal_note(directory->journal, directory->tracer.number, directory->inode, lane, size);
}

struct tracer *tracer_directory(struct family_context *context, const char *path, const char *session, const char **why)
{
	struct store_settings settings = {.path = path, .clock = context->clock, .open_files = OPEN_FILES};
	struct directory *directory = calloc(1, sizeof *directory);
	struct stat status;
	(void)session; /* it is told with the first packets */
	*why = "no memory";
	if (!directory)
		return NULL;
	random_bytes(settings.trace_uuid, sizeof settings.trace_uuid);
	memcpy(settings.node_name, context->arena_settings->node_name, sizeof settings.node_name);
	settings.appending = appending;
	settings.context = directory;
	directory->store = store_create(&settings, why);
	if (!directory->store) {
		int error = errno;
		free(directory);
		errno = error;
		return NULL;
	}
	directory->journal = context->journal;
	directory->inode = stat(path, &status) == 0 ? status.st_ino : 0;
	directory->tracer.operations = &directory_operations;
	directory->notes.store = directory->store;
	directory->notes.clock = &context->clock; /* as it is known best, also at the end */
	notes_clock(&directory->notes);
	tracer_put_term(directory->term, sizeof directory->term, "directory", path, NULL);
	return &directory->tracer;
}
