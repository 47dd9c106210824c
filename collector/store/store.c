/* SPDX-License-Identifier: MIT */
/* store.c: see store.h. */
#include "collector/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/event/checksum.h"
#include "collector/store/directory.h"
#include "collector/store/metadata.h"

struct lane {
	uint32_t number;
	int descriptor; /* -1: closed for now */
	uint64_t size;	/* bytes written whole */
	uint64_t end;	/* tick of the last event */
	uint64_t discarded, sequence;
	struct lane *newer, *older; /* among the open ones, by last use */
};

struct store {
	struct store_settings settings;
	int directory;
	int failure; /* errno; 0: none */
	const char *failed_what;
	struct lane *own;
	struct lane **lanes; /* all, by number; for freeing */
	uint32_t lane_count, lane_room;
	struct lane **free_lanes; /* a heap, least end first; room for all lanes */
	uint32_t free_count;
	struct lane *newest, *oldest; /* open lanes */
	uint32_t open_count;
	uint64_t bytes, packets;
};

static void fail(struct store *store, const char *what, int error)
{
	if (store->failure)
		return;
	store->failure = error ? error : EIO;
	store->failed_what = what;
}

/* ---- open files, least recently used closed first ---------------------- */

static void open_list_remove(struct store *store, struct lane *lane)
{
	*(lane->newer ? &lane->newer->older : &store->newest) = lane->older;
	*(lane->older ? &lane->older->newer : &store->oldest) = lane->newer;
	lane->newer = lane->older = NULL;
	store->open_count--;
}

static void open_list_add(struct store *store, struct lane *lane)
{
	lane->newer = NULL;
	lane->older = store->newest;
	*(store->newest ? &store->newest->newer : &store->oldest) = lane;
	store->newest = lane;
	store->open_count++;
}

static void lane_close(struct store *store, struct lane *lane)
{
	open_list_remove(store, lane);
	close(lane->descriptor);
	lane->descriptor = -1;
}

static int open_file(struct store *store, const char *name, int flags)
{
	for (;;) {
		int descriptor = openat(store->directory, name, flags | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (descriptor >= 0 || errno == ENOENT)
			return descriptor;
		if (errno == EINTR)
			continue;
		/* Others may use descriptors too: fewer will do. */
		if (errno != EMFILE || !store->oldest)
			return -1;
		lane_close(store, store->oldest);
	}
}

static int lane_open(struct store *store, struct lane *lane)
{
	if (lane->descriptor >= 0) {
		if (store->newest != lane) {
			open_list_remove(store, lane);
			open_list_add(store, lane);
		}
		return 0;
	}
	if (store->open_count >= store->settings.open_files)
		lane_close(store, store->oldest);
	char name[32];
	snprintf(name, sizeof name, "stream-%u", lane->number);
	lane->descriptor = open_file(store, name, lane->size ? 0 : O_CREAT);
	if (lane->descriptor < 0) {
		fail(store, "cannot open a file of the trace", errno);
		return -1;
	}
	open_list_add(store, lane);
	return 0;
}

/* ---- lanes ------------------------------------------------------------- */

static int grow_lanes(struct store *store)
{
	if (store->lane_count < store->lane_room)
		return 0;
	uint32_t room = store->lane_room ? store->lane_room * 2 : 64;
	struct lane **lanes = realloc(store->lanes, room * sizeof *lanes);
	if (!lanes)
		return -1;
	store->lanes = lanes;
	struct lane **free_lanes = realloc(store->free_lanes, room * sizeof *free_lanes);
	if (!free_lanes)
		return -1;
	store->free_lanes = free_lanes;
	store->lane_room = room;
	return 0;
}

static struct lane *lane_create(struct store *store)
{
	struct lane *lane = grow_lanes(store) ? NULL : calloc(1, sizeof *lane);
	if (!lane) {
		fail(store, "no memory for a stream", ENOMEM);
		return NULL;
	}
	lane->number = store->lane_count;
	lane->descriptor = -1;
	store->lanes[store->lane_count++] = lane;
	return lane;
}

static void heap_push(struct store *store, struct lane *lane)
{
	uint32_t at = store->free_count++;
	while (at > 0) {
		uint32_t parent = (at - 1) / 2;
		if (store->free_lanes[parent]->end <= lane->end)
			break;
		store->free_lanes[at] = store->free_lanes[parent];
		at = parent;
	}
	store->free_lanes[at] = lane;
}

static struct lane *heap_pop(struct store *store)
{
	struct lane *least = store->free_lanes[0];
	struct lane *last = store->free_lanes[--store->free_count];
	uint32_t at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= store->free_count)
			break;
		if (child + 1 < store->free_count && store->free_lanes[child + 1]->end < store->free_lanes[child]->end)
			child++;
		if (store->free_lanes[child]->end >= last->end)
			break;
		store->free_lanes[at] = store->free_lanes[child];
		at = child;
	}
	if (store->free_count)
		store->free_lanes[at] = last;
	return least;
}

struct lane *store_take_lane(struct store *store, uint64_t begin)
{
	if (!store || store->failure)
		return NULL;
	/* Equal is not enough: readers may order packets by their begin alone. */
	if (store->free_count && store->free_lanes[0]->end < begin)
		return heap_pop(store);
	return lane_create(store);
}

void store_release_lane(struct store *store, struct lane *lane)
{
	if (!store || !lane)
		return;
	/* Its next user may come late or never: descriptors are for those who write now. */
	if (lane->descriptor >= 0)
		lane_close(store, lane);
	heap_push(store, lane);
}

uint64_t store_lane_end(const struct lane *lane)
{
	return lane->end;
}

struct lane *store_own_lane(struct store *store)
{
	return store ? store->own : NULL;
}

/* ---- packets ----------------------------------------------------------- */

static int write_whole(int descriptor, const void *bytes, size_t length, uint64_t offset)
{
	const char *at = bytes;
	while (length) {
		ssize_t n = pwrite(descriptor, at, length, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0)
				errno = EIO;
			return -1;
		}
		at += n;
		length -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int store_append(struct store *store, struct lane *lane, struct lorg_packet *packet, size_t length)
{
	if (!store || store->failure || lane_open(store, lane))
		return -1;
	lane->discarded += packet->events_discarded;
	packet->magic = LORG_PACKET_MAGIC;
	memcpy(packet->trace_uuid, store->settings.trace_uuid, sizeof packet->trace_uuid);
	packet->stream_id = 0;
	packet->events_discarded = lane->discarded;
	packet->sequence = lane->sequence;
	packet->last = packet_checksum(packet, length);
	if (store->settings.appending)
		store->settings.appending(store->settings.context, lane->number, lane->size);
	if (write_whole(lane->descriptor, packet, length, lane->size)) {
		int error = errno;
		/* A packet is there whole or not at all. */
		if (ftruncate(lane->descriptor, (off_t)lane->size))
			error = error ? error : errno;
		fail(store, "cannot write the trace", error);
		return -1;
	}
	lane->sequence++;
	lane->size += length;
	lane->end = packet->end;
	store->bytes += length;
	store->packets++;
	return 0;
}

/* ---- the directory ----------------------------------------------------- */

static int write_metadata(struct store *store, const struct lorg_clock *clock)
{
	const struct metadata metadata = {store->settings.trace_uuid, clock, store->settings.node_name};
	int descriptor = open_file(store, "metadata.new", O_CREAT | O_TRUNC);
	if (descriptor < 0)
		return -1;
	static char buffer[32768]; /* the whole text, as a rule: one write */
	FILE *out = fdopen(descriptor, "w");
	if (!out) {
		close(descriptor);
		return -1;
	}
	setvbuf(out, buffer, _IOFBF, sizeof buffer);
	metadata_write(out, &metadata);
	int failed = fflush(out) || ferror(out);
	int error = errno;
	if (fclose(out) && !failed) {
		failed = 1;
		error = errno;
	}
	/* Readers see the old text or the new one, never a part. */
	if (!failed && renameat(store->directory, "metadata.new", store->directory, "metadata")) {
		failed = 1;
		error = errno;
	}
	if (!failed)
		return 0;
	unlinkat(store->directory, "metadata.new", 0);
	errno = error;
	return -1;
}

struct store *store_create(const struct store_settings *settings, const char **why)
{
	struct store *store = calloc(1, sizeof *store);
	if (!store) {
		*why = "no memory";
		errno = ENOMEM;
		return NULL;
	}
	store->settings = *settings;
	store->directory = directory_create(settings->path, why);
	if (store->directory < 0) {
		free(store);
		return NULL;
	}
	if (write_metadata(store, &settings->clock)) {
		int error = errno;
		*why = "cannot write into it";
		store_free(store);
		errno = error;
		return NULL;
	}
	store->own = lane_create(store);
	if (!store->own) {
		*why = "no memory";
		store_free(store);
		errno = ENOMEM;
		return NULL;
	}
	return store;
}

void store_finish(struct store *store, const struct lorg_clock *clock)
{
	if (!store || store->failure)
		return;
	if (write_metadata(store, clock))
		fail(store, "cannot write the trace", errno);
}

void store_free(struct store *store)
{
	if (!store)
		return;
	for (uint32_t i = 0; i < store->lane_count; i++) {
		if (store->lanes[i]->descriptor >= 0)
			close(store->lanes[i]->descriptor);
		free(store->lanes[i]);
	}
	free(store->lanes);
	free(store->free_lanes);
	close(store->directory);
	free(store);
}

int store_failure(const struct store *store, const char **what)
{
	if (what)
		*what = store ? store->failed_what : NULL;
	return store ? store->failure : 0;
}

void store_check(struct store *store)
{
	struct stat status;
	if (!store)
		return;
	if (fstat(store->directory, &status))
		fail(store, "cannot look at the trace directory", errno);
	else if (status.st_nlink == 0)
		fail(store, "the trace directory is gone", ENOENT);
}

struct store_totals store_totals(const struct store *store)
{
	if (!store)
		return (struct store_totals){0};
	return (struct store_totals){store->bytes, store->packets, store->lane_count, store->open_count};
}
