/* SPDX-License-Identifier: MIT */
/*
 * endings.c: how programs ended that were gone before anybody could look.
 *
 * Their parents were told, by wait; that is an event of theirs, which may come
 * to us before or after. So an end that is not known waits for it, and keeps
 * the moment at which it was noticed.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collector/collect/family.h"
#include "collector/store/packet.h"

enum { UNKNOWN_LIMIT = 4096 };

/* What a parent was told. */
struct reaped {
	pid_t pid;
	int status;
	uint64_t tick;
};

/* A program whose end is not known. */
struct unknown_ending {
	uint8_t id[16];
	uint64_t birth_tick, start_tick, tick;
	pid_t pid;
};

struct endings {
	struct reaped reaped[REAPED_KEPT]; /* a ring */
	uint32_t reaped_next;
	struct unknown_ending *unknown;
	uint32_t count, room;
};

struct endings *endings_create(void)
{
	return calloc(1, sizeof(struct endings));
}

void tell_program_exit(struct family_context *context, const uint8_t id[16], uint64_t birth_tick, pid_t pid, uint64_t tick,
		       struct ending ending)
{
	_Alignas(8) uint8_t buffer[512];
	struct packet_builder packet;
	struct lorg_event_EXIT exit = {.program = 1, .outside = 1, .hook = UINT32_MAX};
	set_exit_reason(&exit, ending);
	packet_begin(&packet, buffer, sizeof buffer, tick);
	packet_event(&packet, LORG_EVENT_EXIT, tick, &exit, NULL, 0);
	memcpy(packet.head->image, id, sizeof packet.head->image);
	packet.head->process_birth = birth_tick;
	packet.head->pid = packet.head->tid = (uint32_t)pid;
	if (stray_put(context, NULL, packet.head, packet.length) == 0)
		context->notes.coverage.events++;
}

void set_exit_reason(struct lorg_event_EXIT *exit, struct ending ending)
{
	exit->reason = LORG_REASON_UNKNOWN;
	if (!ending.known)
		return;
	if (WIFSIGNALED(ending.status)) {
		exit->reason = LORG_REASON_SIGNAL;
		exit->status = WTERMSIG(ending.status);
		return;
	}
	exit->status = WEXITSTATUS(ending.status);
	exit->reason = exit->status ? LORG_REASON_STATUS : LORG_REASON_NORMAL;
}

static void tell(struct family_context *context, uint32_t index, struct ending ending)
{
	struct endings *endings = context->endings;
	const struct unknown_ending unknown = endings->unknown[index];
	endings->unknown[index] = endings->unknown[--endings->count];
	tell_program_exit(context, unknown.id, unknown.birth_tick, unknown.pid, unknown.tick, ending);
}

struct ending endings_find(const struct family_context *context, pid_t pid, uint64_t start_tick)
{
	const struct endings *endings = context->endings;
	for (uint32_t i = 0; pid && i < REAPED_KEPT; i++)
		if (endings->reaped[i].pid == pid && endings->reaped[i].tick >= start_tick)
			return (struct ending){1, endings->reaped[i].status};
	return (struct ending){0, 0};
}

void endings_note_reaped(struct family_context *context, pid_t pid, int status, uint64_t tick)
{
	struct endings *endings = context->endings;
	if (!WIFEXITED(status) && !WIFSIGNALED(status))
		return;
	for (uint32_t i = 0; i < endings->count; i++) {
		if (endings->unknown[i].pid != pid || endings->unknown[i].start_tick > tick)
			continue;
		tell(context, i, (struct ending){1, status});
		return;
	}
	endings->reaped[endings->reaped_next++ % REAPED_KEPT] = (struct reaped){pid, status, tick};
}

void endings_wait_for(struct family_context *context, const struct image *image, uint64_t tick)
{
	struct endings *endings = context->endings;
	const struct unknown_ending unknown = {.birth_tick = image->speaker_birth,
					       .start_tick = image->start_tick,
					       .tick = tick,
					       .pid = image->pid ? image->pid : (pid_t)image->own_pid};
	if (endings->count == endings->room && endings->room < UNKNOWN_LIMIT) {
		uint32_t room = endings->room ? endings->room * 2 : 64;
		struct unknown_ending *grown = realloc(endings->unknown, room * sizeof *grown);
		if (grown) {
			endings->unknown = grown;
			endings->room = room;
		}
	}
	if (endings->count == endings->room) {
		tell_program_exit(context, image->id, unknown.birth_tick, unknown.pid, tick, (struct ending){0, 0});
		return;
	}
	endings->unknown[endings->count] = unknown;
	memcpy(endings->unknown[endings->count++].id, image->id, sizeof unknown.id);
}

void endings_tell_all(struct family_context *context)
{
	while (context->endings->count)
		tell(context, context->endings->count - 1, (struct ending){0, 0});
}

void endings_free(struct endings *endings)
{
	if (endings)
		free(endings->unknown);
	free(endings);
}
