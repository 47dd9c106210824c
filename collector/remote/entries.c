/* SPDX-License-Identifier: MIT */
/* entries.c: see entries.h. */
#include "collector/remote/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <lorg/late.h>

#include "collector/patch/frames.h"
#include "collector/patch/hold.h"
#include "collector/remote/thread.h"

enum { PAUSE_NS = 20000000, HOLD_NS = 300000000 };

static const uint64_t LIMIT_NS = 3000000000;

struct switching {
	pid_t pid;
	int memory, on;
	uint64_t late;
	struct lorg_late there; /* a copy */
	uint32_t changed, left;
	uint8_t busy[LORG_LATE_PATCHES]; /* 1: a thread is in the middle of it */
};

static int peek(int memory, uint64_t address, void *to, size_t length)
{
	return pread(memory, to, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

static int poke(int memory, uint64_t address, const void *from, size_t length)
{
	return pwrite(memory, from, length, (off_t)address) == (ssize_t)length ? 0 : -1;
}

static int open_memory(pid_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int is_there(const struct lorg_late_patch *patch)
{
	return patch->relocated && patch->taken >= 5 && patch->taken <= LORG_LATE_PATCH_MAXIMUM;
}

/* The patch in whose bytes, but the first, an address lies; -1: none. */
static int patch_around(const struct switching *switching, uint64_t address)
{
	for (uint32_t i = 0; i < switching->there.patch_count; i++) {
		const struct lorg_late_patch *patch = &switching->there.patch[i];
		if (is_there(patch) && address > patch->at && address < patch->at + patch->taken)
			return (int)i;
	}
	return -1;
}

static void frame_found(void *context, uint64_t address)
{
	struct switching *switching = context;
	int patch = patch_around(switching, address);
	if (patch >= 0)
		switching->busy[patch] = 1;
}

/* What stands in an entry that changes goes on in the copy of it. */
static void free_entries(struct switching *switching, struct hold *hold)
{
	memset(switching->busy, 0, sizeof switching->busy);
	for (uint32_t i = 0; i < hold->count; i++)
		if (!hold->threads[i].gone)
			frames_of_handlers(switching->memory, hold->threads[i].registers.rsp, frame_found, switching);
	for (uint32_t i = 0; i < hold->count; i++) {
		struct held *thread = &hold->threads[i];
		int patch = thread->gone ? -1 : patch_around(switching, thread->registers.rip);
		if (patch < 0 || switching->busy[patch])
			continue;
		const struct lorg_late_patch *at = &switching->there.patch[patch];
		if (!switching->on || hold_move(thread, at->relocated + (thread->registers.rip - at->at)))
			switching->busy[patch] = 1;
	}
}

/* 1: it is as it should be. */
static int switch_one(struct switching *switching, uint32_t index)
{
	struct lorg_late_patch *patch = &switching->there.patch[index];
	const uint8_t *from = switching->on ? patch->original : patch->patched,
		      *to = switching->on ? patch->patched : patch->original;
	uint8_t now[LORG_LATE_PATCH_MAXIMUM];
	if (peek(switching->memory, patch->at, now, patch->taken))
		return 0;
	if (memcmp(now, to, patch->taken) == 0)
		return 1;
	/* Other bytes are another tool's. */
	if (switching->busy[index] || memcmp(now, from, patch->taken) != 0 ||
	    poke(switching->memory, patch->at, to, patch->taken))
		return 0;
	switching->changed++;
	return 1;
}

static void tell_placed(struct switching *switching, uint32_t index, uint32_t placed)
{
	uint64_t at = switching->late + offsetof(struct lorg_late, patch) + index * sizeof(struct lorg_late_patch) +
		      offsetof(struct lorg_late_patch, placed);
	if (switching->there.patch[index].placed != placed)
		poke(switching->memory, at, &placed, sizeof placed);
	switching->there.patch[index].placed = placed;
}

static void switch_held(void *context, struct hold *hold)
{
	struct switching *switching = context;
	/* The memory of what is held: the program may have become another since. */
	int memory = open_memory(switching->pid);
	if (memory < 0)
		return;
	close(switching->memory);
	switching->memory = memory;
	free_entries(switching, hold);
	switching->left = 0;
	for (uint32_t i = 0; i < switching->there.patch_count; i++) {
		if (!is_there(&switching->there.patch[i]))
			continue;
		int done = switch_one(switching, i);
		switching->left += !done;
		tell_placed(switching, i, (uint32_t)(done == switching->on));
	}
}

static int read_late(struct switching *switching)
{
	struct lorg_late *late = &switching->there;
	return peek(switching->memory, switching->late, late, sizeof *late) || late->magic != LORG_LATE_MAGIC ||
			       late->size != sizeof *late || late->patch_count > LORG_LATE_PATCHES
		       ? -1
		       : 0;
}

int entries_switch(pid_t pid, uint64_t late, int on, uint32_t *changed, int *error, const char **why)
{
	struct switching switching = {.pid = pid, .late = late, .on = on, .left = UINT32_MAX};
	int held = -1;
	*changed = 0;
	switching.memory = open_memory(pid);
	*error = errno;
	*why = "its memory cannot be opened";
	if (switching.memory < 0)
		return -1;
	if (read_late(&switching)) {
		*error = EINVAL;
		*why = "its liblorg.so is of another version";
	} else {
		const uint64_t limit = thread_now_ns() + LIMIT_NS;
		do {
			if (hold_threads(pid, HOLD_NS, switch_held, &switching, error, why) == 0)
				held = 0;
			else if (*error == ESRCH || *error == ENOENT) /* another tracer, which may be another lorg, goes */
				break;
			if (switching.left)
				nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
		} while (switching.left && thread_now_ns() < limit);
	}
	close(switching.memory);
	*changed = switching.changed;
	return held || switching.left == UINT32_MAX ? -1 : (int)switching.left;
}
