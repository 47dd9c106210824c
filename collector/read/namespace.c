/* SPDX-License-Identifier: MIT */
/*
 * namespace.c: pid namespaces.
 *
 * The heads of packets have the recording's numbers, events those of the
 * program that wrote them. A program in a namespace below tells its own number,
 * which then differs from that in the heads. Which programs are in one such
 * namespace follows from who made whom: a child is where its parent is, but for
 * the first one in a new namespace, which is 1 there; its parent's later
 * children are with it.
 */
#include <stdlib.h>
#include <string.h>

#include "collector/read/index.h"

static int by_tick(const void *left, const void *right)
{
	const struct trace_image *a = *(const struct trace_image *const *)left,
				 *b = *(const struct trace_image *const *)right;
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int images_in_order(const void *left, const void *right)
{
	const struct trace_image *a = *(const struct trace_image *const *)left,
				 *b = *(const struct trace_image *const *)right;
	if (a->pid_namespace != b->pid_namespace)
		return a->pid_namespace < b->pid_namespace ? -1 : 1;
	if (a->own_pid != b->own_pid)
		return a->own_pid < b->own_pid ? -1 : 1;
	return by_tick(left, right);
}

static int processes_in_order(const void *left, const void *right)
{
	const struct trace_process *a = *(const struct trace_process *const *)left,
				   *b = *(const struct trace_process *const *)right;
	if (a->image->pid_namespace != b->image->pid_namespace)
		return a->image->pid_namespace < b->image->pid_namespace ? -1 : 1;
	if (a->own_tid != b->own_tid)
		return a->own_tid < b->own_tid ? -1 : 1;
	if (a->birth != b->birth)
		return a->birth < b->birth ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int is_nested(const struct trace_image *image)
{
	return image->own_pid && image->pid && image->own_pid != image->pid;
}

/* `made`: by the number of an image, the namespace of the children that it has put into one below its own; 0: none. */
static uint32_t namespace_of(const struct trace_image *image, uint32_t *made, uint32_t *count)
{
	const struct trace_image *parent = image->parent;
	int same_process = parent && image->birth == LORG_BIRTH_EXEC;
	if (same_process)
		made[image->number] = made[parent->number];
	if (!is_nested(image))
		return 0;
	if (same_process && parent->pid_namespace)
		return parent->pid_namespace;
	if (image->own_pid == 1 || !parent) {
		uint32_t new = ++*count;
		if (parent)
			made[parent->number] = new;
		return new;
	}
	if (made[parent->number])
		return made[parent->number];
	return parent->pid_namespace ? parent->pid_namespace : (made[parent->number] = ++*count);
}

/* A child in a namespace below that of a nested parent has one number more: the one that the parent sees. */
static void keep_spawns_across(struct trace_index *index)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < index->spawn_count; i++) {
		const struct spawn_told *spawn = &index->spawns[i];
		const struct trace_image *child = trace_image_by_id(&index->trace, spawn->child_low, spawn->child_high);
		if (spawn->by->pid_namespace && child && child->pid_namespace != spawn->by->pid_namespace)
			index->spawns[kept++] = *spawn;
	}
	index->spawn_count = kept;
}

void index_namespaces(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	uint32_t count = 0;
	unsigned nested = 0;
	for (unsigned i = 0; i < trace->image_count; i++)
		nested += is_nested(trace->images[i]);
	if (!nested || index->out_of_memory)
		return;
	struct trace_image **images = calloc(trace->image_count, sizeof *images);
	struct trace_process **processes = calloc(trace->process_count, sizeof *processes);
	uint32_t *made = calloc(trace->image_count, sizeof *made);
	index->nested_images = images;
	index->nested_processes = processes;
	if (!images || !processes || !made) {
		index->out_of_memory = 1;
		free(made);
		return;
	}
	memcpy(images, trace->images, trace->image_count * sizeof *images);
	qsort(images, trace->image_count, sizeof *images, by_tick); /* parents come before their children */
	for (unsigned i = 0; i < trace->image_count; i++)
		images[i]->pid_namespace = namespace_of(images[i], made, &count);
	free(made);
	keep_spawns_across(index);
	for (unsigned i = 0; i < trace->image_count; i++)
		if (trace->images[i]->pid_namespace)
			images[index->nested_image_count++] = trace->images[i];
	for (unsigned i = 0; i < trace->process_count; i++)
		if (trace->processes[i].image->pid_namespace)
			processes[index->nested_process_count++] = &trace->processes[i];
	qsort(images, index->nested_image_count, sizeof *images, images_in_order);
	qsort(processes, index->nested_process_count, sizeof *processes, processes_in_order);
}

/* The last image of that namespace and number that began before the tick. */
static const struct trace_image *image_of(const struct trace_index *index, uint32_t namespace, uint32_t pid, uint64_t tick)
{
	unsigned low = 0, high = index->nested_image_count;
	while (low < high) { /* the first that is beyond */
		unsigned middle = low + (high - low) / 2;
		const struct trace_image *image = index->nested_images[middle];
		int beyond = image->pid_namespace != namespace ? image->pid_namespace > namespace
			     : image->own_pid != pid           ? image->own_pid > pid
							       : image->tick > tick;
		if (beyond)
			high = middle;
		else
			low = middle + 1;
	}
	const struct trace_image *found = low ? index->nested_images[low - 1] : NULL;
	return found && found->pid_namespace == namespace && found->own_pid == pid ? found : NULL;
}

static const struct trace_process *process_of(const struct trace_index *index, uint32_t namespace, uint32_t tid, uint64_t tick)
{
	unsigned low = 0, high = index->nested_process_count;
	while (low < high) { /* the first that is beyond */
		unsigned middle = low + (high - low) / 2;
		const struct trace_process *process = index->nested_processes[middle];
		uint32_t of = process->image->pid_namespace;
		int beyond = of != namespace            ? of > namespace
			     : process->own_tid != tid ? process->own_tid > tid
						       : process->birth > tick;
		if (beyond)
			high = middle;
		else
			low = middle + 1;
	}
	const struct trace_process *found = low ? index->nested_processes[low - 1] : NULL;
	return found && found->image->pid_namespace == namespace && found->own_tid == tid ? found : NULL;
}

/* The last child of that number in another namespace, as programs of this one see it. */
static const struct trace_image *child_across(const struct trace *trace, uint32_t namespace, uint32_t pid, uint64_t tick)
{
	const struct trace_index *index = trace->index;
	const struct spawn_told *last = NULL;
	for (unsigned i = 0; i < index->spawn_count; i++) {
		const struct spawn_told *spawn = &index->spawns[i];
		if (spawn->by->pid_namespace == namespace && spawn->pid == pid && spawn->tick <= tick &&
		    (!last || spawn->tick >= last->tick))
			last = spawn;
	}
	return last ? trace_image_by_id(trace, last->child_low, last->child_high) : NULL;
}

uint32_t trace_pid(const struct trace *trace, const struct trace_image *image, uint32_t pid, uint64_t tick)
{
	if (!pid || !image || !image->pid_namespace)
		return pid;
	const struct trace_image *found = image_of(trace->index, image->pid_namespace, pid, tick);
	if (!found)
		found = child_across(trace, image->pid_namespace, pid, tick);
	return found && found->pid ? found->pid : pid;
}

uint32_t trace_tid(const struct trace *trace, const struct trace_image *image, uint32_t tid, uint64_t tick)
{
	if (!tid || !image || !image->pid_namespace)
		return tid;
	const struct trace_process *found = process_of(trace->index, image->pid_namespace, tid, tick);
	return found ? found->tid : trace_pid(trace, image, tid, tick);
}
