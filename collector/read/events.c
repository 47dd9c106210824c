/* SPDX-License-Identifier: MIT */
/* events.c: the first pass over the events: keeps what the others are read with. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "collector/read/index.h"
#include "collector/read/part.h"

static uint32_t load32(const uint8_t *at)
{
	uint32_t value;
	memcpy(&value, at, sizeof value);
	return value;
}

static struct trace_text text_field(const struct event_view *view, const char *name)
{
	struct trace_text text;
	text.bytes = event_bytes_named(view, name, &text.length);
	return text;
}

static void take_image(struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, IMAGE, fields);
	image->told = 1;
	image->tick = view->tick;
	image->birth = fields.birth;
	image->own_pid = fields.own_pid;
	image->parent_pid = fields.parent_pid;
	image->uid = fields.uid;
	image->entry_address = fields.entry_address;
	memcpy(image->parent_id, &fields.parent_image_low, 8);
	memcpy(image->parent_id + 8, &fields.parent_image_high, 8);
	image->file = text_field(view, "file");
	image->argv = text_field(view, "argv");
}

static void take_module(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, MODULE, fields);
	struct trace_module *module = malloc(sizeof *module);
	if (!module || !index_grow(index, &index->modules, index->module_count, &index->module_room, sizeof(void *))) {
		index->out_of_memory = 1;
		free(module);
		return;
	}
	*module = (struct trace_module){
		.image = image,
		.tick = view->tick,
		.unload_tick = UINT64_MAX,
		.base = fields.base,
		.start = fields.start,
		.size = fields.size,
		.path = text_field(view, "path"),
		.build_id = text_field(view, "build_id"),
		.number = index->module_count,
	};
	index->modules[index->module_count++] = module;
}

static void take_unload(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, MODULE_UNLOADED, fields);
	if (index_grow(index, &index->unloads, index->unload_count, &index->unload_room, sizeof *index->unloads))
		index->unloads[index->unload_count++] = (struct unload_told){image, view->tick, fields.base};
}

static void take_function(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, FUNCTION, fields);
	if (!index_grow(index, &index->functions, index->function_count, &index->function_room, sizeof *index->functions))
		return;
	index->functions[index->function_count++] = (struct trace_function){
		.image = image,
		.tick = view->tick,
		.address = fields.address,
		.function = fields.function,
		.arity = fields.arity,
		.name = text_field(view, "name"),
		.file = text_field(view, "file"),
	};
}

static void take_hooked(struct trace_index *index, const struct event_view *view)
{
	EVENT_FIELDS(view, HOOKED_FUNCTION, fields);
	if (!index_grow(index, &index->hooked, index->hooked_count, &index->hooked_room, sizeof *index->hooked))
		return;
	index->hooked[index->hooked_count++] = (struct trace_hooked){
		.function = fields.function,
		.arity = fields.arity,
		.tier = fields.tier,
		.flags = fields.flags,
		.offset = fields.offset,
		.size = fields.size,
		.module = text_field(view, "module"),
		.name = text_field(view, "name"),
		.file = text_field(view, "file"),
		.build_id = text_field(view, "build_id"),
	};
}

static void copy_name(char *to, size_t size, struct trace_text text)
{
	size_t length = text.length < size - 1 ? text.length : size - 1;
	memcpy(to, text.bytes, length);
	to[length] = 0;
}

static void take_hook(struct trace_index *index, const struct event_view *view)
{
	EVENT_FIELDS(view, HOOK, fields);
	if (fields.hook >= LORG_HOOKS)
		return;
	struct trace_hook *hook = &index->trace.hooks[fields.hook];
	copy_name(hook->name, sizeof hook->name, text_field(view, "name"));
	copy_name(hook->library, sizeof hook->library, text_field(view, "library"));
	hook->arity = fields.arity;
	hook->family = fields.family;
	hook->flags = fields.flags;
}

static void take_clock(struct trace_index *index, const struct event_view *view)
{
	EVENT_FIELDS(view, CLOCK, fields);
	struct clock_piece piece = {fields.base_tick, fields.base_ns, fields.multiplier, fields.wall_offset_ns};
	/* Told again from the same base: measured over a longer time. */
	if (fields.multiplier && index->clock_count && index->clocks[index->clock_count - 1].base_tick == fields.base_tick) {
		index->clocks[index->clock_count - 1] = piece;
		return;
	}
	if (fields.multiplier == 0 ||
	    !index_grow(index, &index->clocks, index->clock_count, &index->clock_room, sizeof *index->clocks))
		return;
	index->clocks[index->clock_count++] = piece;
}

static void take_exit(struct trace_index *index, unsigned process, const struct event_view *view)
{
	EVENT_FIELDS(view, EXIT, fields);
	struct trace_exit exit = {1, view->tick, fields.reason, fields.status, fields.outside, view->tick};
	if (fields.outside && index_grow(index, &index->outside_exits, index->outside_count, &index->outside_room,
					 sizeof *index->outside_exits))
		index->outside_exits[index->outside_count++] =
			(struct outside_exit){index->trace.packet_count, process, view->tick};
	struct trace_process *of = &index->trace.processes[process];
	if (!of->exit.known || view->tick >= of->exit.tick)
		of->exit = exit;
	struct trace_image *image = index->trace.images[of->image->number];
	if (fields.program && (!image->exit.known || view->tick >= image->exit.tick))
		image->exit = exit;
}

static void take_reaped(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, REAPED, fields);
	if (fields.tid) /* a thread that was joined: its own EXIT says how it ended */
		return;
	if ((WIFEXITED(fields.status) || WIFSIGNALED(fields.status)) &&
	    index_grow(index, &index->reaped, index->reaped_count, &index->reaped_room, sizeof *index->reaped))
		index->reaped[index->reaped_count++] = (struct reaped_told){image, fields.pid, fields.status, view->tick};
}

static void take_spawn(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, SPAWN, fields);
	if ((fields.child_image_low || fields.child_image_high) &&
	    index_grow(index, &index->spawns, index->spawn_count, &index->spawn_room, sizeof *index->spawns))
		index->spawns[index->spawn_count++] = (struct spawn_told){image, fields.child_image_low, fields.child_image_high,
									  view->tick, fields.child_pid};
}

static void take_name(struct trace_index *index, unsigned process, const struct event_view *view)
{
	EVENT_FIELDS(view, REGISTER, fields);
	if (fields.kind != 0 ||
	    !index_grow(index, &index->names, index->name_count, &index->name_room, sizeof *index->names))
		return;
	const struct trace_process *by = &index->trace.processes[process];
	index->names[index->name_count++] = (struct name_told){by->image, fields.tid ? fields.tid : by->tid, process,
							       view->tick, text_field(view, "name")};
}

static void take_open(struct trace_index *index, unsigned process, const struct trace_image *image,
		      const struct event_view *view)
{
	EVENT_FIELDS(view, OPEN, fields);
	if (index_grow(index, &index->ports, index->port_count, &index->port_room, sizeof *index->ports))
		index->ports[index->port_count++] = (struct trace_port){
			.image = image,
			.fd = fields.fd,
			.generation = fields.generation,
			.driver = fields.driver,
			.name = text_field(view, "name"),
			.local = text_field(view, "local"),
			.peer = text_field(view, "peer"),
			.opener = process,
			.inherited = fields.hook == UINT32_MAX,
		};
}

static void take_connected(struct trace_index *index, const struct trace_image *image, const struct event_view *view)
{
	EVENT_FIELDS(view, CONNECTED, fields);
	if (fields.error == 0 && index_grow(index, &index->connections, index->connection_count, &index->connection_room,
					    sizeof *index->connections))
		index->connections[index->connection_count++] = (struct trace_port){
			.image = image, .fd = fields.fd, .generation = fields.generation, .peer = text_field(view, "peer")};
}

static void take_session(struct trace_index *index, const struct event_view *view)
{
	EVENT_FIELDS(view, SESSION, fields);
	index->trace.asked |= fields.gate_mask;
	if (fields.slot < LORG_SESSIONS)
		index->trace.sessions[fields.slot] = text_field(view, "name");
}

static void take_lost(struct trace_index *index, unsigned process, const struct event_view *view)
{
	EVENT_FIELDS(view, LOST, fields);
	index->trace.lost += fields.count;
	index->trace.processes[process].lost += fields.count;
}

static void take_gap(struct trace_index *index, const struct event_view *view)
{
	EVENT_FIELDS(view, GAP, fields);
	index_gap(index, text_field(view, "what"), text_field(view, "why"), fields.count, fields.pid, view->tick);
}

/* "recording ended packets=N": the last word of the collector. */
static void take_mark(struct trace_index *index, const struct event_view *view)
{
	static const char ended[] = "recording ended";
	struct trace_text text = text_field(view, "text");
	char copy[80];
	unsigned long long packets;
	if (text.length < sizeof ended - 1 || memcmp(text.bytes, ended, sizeof ended - 1) != 0)
		return;
	index->trace.ended = 1;
	copy_name(copy, sizeof copy, text);
	if (sscanf(copy, "recording ended packets=%llu", &packets) == 1)
		index->packets_promised = packets;
}

static void take_event(struct trace_index *index, unsigned process, const struct event_view *view)
{
	struct trace_image *image = index->trace.images[index->trace.processes[process].image->number];
	switch (view->id) {
	case LORG_EVENT_IMAGE: take_image(image, view); break;
	case LORG_EVENT_MODULE: take_module(index, image, view); break;
	case LORG_EVENT_MODULE_UNLOADED: take_unload(index, image, view); break;
	case LORG_EVENT_FUNCTION: take_function(index, image, view); break;
	case LORG_EVENT_HOOKED_FUNCTION: take_hooked(index, view); break;
	case LORG_EVENT_HOOK: take_hook(index, view); break;
	case LORG_EVENT_CLOCK: take_clock(index, view); break;
	case LORG_EVENT_EXIT: take_exit(index, process, view); break;
	case LORG_EVENT_SPAWN: take_spawn(index, image, view); break;
	case LORG_EVENT_REAPED: take_reaped(index, image, view); break;
	case LORG_EVENT_OPEN: take_open(index, process, image, view); break;
	case LORG_EVENT_CONNECTED: take_connected(index, image, view); break;
	case LORG_EVENT_SESSION: take_session(index, view); break;
	case LORG_EVENT_REGISTER: take_name(index, process, view); break;
	case LORG_EVENT_LOST: take_lost(index, process, view); break;
	case LORG_EVENT_GAP: take_gap(index, view); break;
	case LORG_EVENT_MARK: take_mark(index, view); break;
	default: break;
	}
}

/* Counts what an event is shown as. Returns how many that is. */
static unsigned take_parts(struct trace *trace, struct trace_packet *packet, const struct event_view *view)
{
	unsigned count = part_count(view);
	for (unsigned i = 0; i < count; i++) {
		uint64_t effective = part_effective(view, i);
		trace->event_counts[part_id(view, i)]++;
		if (effective < packet->earliest)
			packet->earliest = effective;
		packet->early_count += effective < view->tick;
	}
	return count;
}

void index_events(struct trace_index *index, struct trace_packet *packet)
{
	struct trace *trace = &index->trace;
	const uint8_t *start = packet->start;
	uint64_t counts[LORG_EVENT_COMPACT_LAST + 1] = {0};
	uint64_t seen = 0, shown = 0; /* shown: more than there are in the file */
	uint32_t at = LORG_PACKET_HEAD, length = packet->length;
	int is_shown = !(packet->holds & LORG_HOLDS_UNSHOWN);
	struct event_view view;
	while (at < length) {
		uint32_t id = load32(start + at) & 31;
		/* Most events of most traces: no state, no stamp needed. */
		if (length - at >= 8 && (id == LORG_EVENT_ENTER || id == LORG_EVENT_EXIT_FUNCTION)) {
			counts[id]++;
			at += 8;
			continue;
		}
		enum event_status status = event_decode(start + at, length - at, packet->begin, &view);
		if (status == EVENT_BAD)
			break;
		at += view.length;
		if (status == EVENT_HOLE || status == EVENT_FILLER)
			continue;
		seen++;
		if (status == EVENT_UNKNOWN)
			continue;
		if (is_shown)
			shown += take_parts(trace, packet, &view) - 1;
		if (view.id > LORG_EVENT_COMPACT_LAST && !index->finished)
			take_event(index, packet->process, &view);
	}
	for (unsigned id = 0; id <= LORG_EVENT_COMPACT_LAST; id++) {
		trace->event_counts[id] += counts[id];
		seen += counts[id];
	}
	trace->processes[packet->process].event_count += seen;
	trace->event_count += seen;
	trace->shown_count += is_shown ? seen + shown : 0;
	packet->length = at;
}

/* ---- when all has been seen --------------------------------------------- */

static int packets_in_order(const void *left, const void *right)
{
	const struct trace_packet *a = left, *b = right;
	if (a->earliest != b->earliest)
		return a->earliest < b->earliest ? -1 : 1;
	if (a->stream != b->stream)
		return a->stream < b->stream ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int hooked_in_order(const void *left, const void *right)
{
	const struct trace_hooked *a = left, *b = right;
	return a->function < b->function ? -1 : a->function > b->function;
}

static int functions_in_order(const void *left, const void *right)
{
	const struct trace_function *a = left, *b = right;
	if (a->image->family != b->image->family)
		return a->image->family->number < b->image->family->number ? -1 : 1;
	if (a->function != b->function)
		return a->function < b->function ? -1 : 1;
	return a->tick < b->tick ? -1 : a->tick > b->tick;
}

static int modules_in_order(const void *left, const void *right)
{
	const struct trace_module *a = *(const struct trace_module *const *)left,
				  *b = *(const struct trace_module *const *)right;
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return a->number < b->number ? -1 : 1;
}

static int clocks_in_order(const void *left, const void *right)
{
	const struct clock_piece *a = left, *b = right;
	return a->base_tick < b->base_tick ? -1 : a->base_tick > b->base_tick;
}

static int names_in_order(const void *left, const void *right)
{
	const struct name_told *a = left, *b = right;
	return a->tick < b->tick ? -1 : a->tick > b->tick;
}

static void sort(void *array, size_t count, size_t size, int (*compare)(const void *, const void *))
{
	if (count > 1)
		qsort(array, count, size, compare);
}

/* Whether an image writes into the arena of its parent. */
static int inherits_arena(const struct trace_image *image)
{
	switch (image->birth) {
	case LORG_BIRTH_UNKNOWN:
	case LORG_BIRTH_EXEC:
	case LORG_BIRTH_COMMAND: return 0;
	default: return 1;
	}
}

/* Follows parents to the first image of the arena; a ring of parents, which only a damaged file has, is cut. */
static void find_family(struct trace *trace, struct trace_image *image)
{
	struct trace_image *root = image;
	unsigned steps = 0;
	while (!root->family && root->parent && inherits_arena(root)) {
		root = trace->images[root->parent->number];
		if (++steps > trace->image_count) {
			image->parent = NULL;
			root = image;
			break;
		}
	}
	const struct trace_image *family = root->family ? root->family : root;
	for (struct trace_image *each = image; !each->family;) {
		each->family = family;
		if (each == family)
			break;
		each = trace->images[each->parent->number];
	}
}

static void link_images(struct trace_index *index)
{
	static const uint8_t none[16];
	struct trace *trace = &index->trace;
	unsigned count = trace->image_count;
	for (unsigned i = 0; i < count; i++) {
		struct trace_image *image = trace->images[i];
		if (memcmp(image->parent_id, none, 16) == 0 || memcmp(image->parent_id, image->id, 16) == 0)
			continue;
		uint64_t low, high;
		memcpy(&low, image->parent_id, 8);
		memcpy(&high, image->parent_id + 8, 8);
		image->parent = trace_image_by_id(trace, low, high);
	}
	for (unsigned i = 0; i < count; i++)
		find_family(trace, trace->images[i]);
}

static void link_modules(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	sort(index->modules, index->module_count, sizeof *index->modules, modules_in_order);
	for (unsigned i = 0; i < index->module_count; i++)
		trace->images[index->modules[i]->image->number]->module_count++;
	for (unsigned i = 0; i < trace->image_count; i++) {
		struct trace_image *image = trace->images[i];
		image->modules = image->module_count ? calloc(image->module_count, sizeof(void *)) : NULL;
		if (image->module_count && !image->modules)
			index->out_of_memory = 1;
		image->module_count = 0;
	}
	for (unsigned i = 0; i < index->module_count && !index->out_of_memory; i++) {
		struct trace_image *image = trace->images[index->modules[i]->image->number];
		index->modules[i]->number = i;
		image->modules[image->module_count++] = index->modules[i];
	}
}

static void link_unloads(struct trace_index *index)
{
	for (unsigned i = 0; i < index->unload_count; i++) {
		const struct unload_told *unload = &index->unloads[i];
		for (unsigned m = unload->image->module_count; m-- > 0;) {
			struct trace_module *module = index->modules[unload->image->modules[m]->number];
			if (module->base != unload->base || module->tick > unload->tick ||
			    module->unload_tick < unload->tick)
				continue;
			module->unload_tick = unload->tick;
			break;
		}
	}
}

static int processes_by_thread(const void *left, const void *right)
{
	const struct trace_process *a = *(const struct trace_process *const *)left,
				   *b = *(const struct trace_process *const *)right;
	if (a->image->number != b->image->number)
		return a->image->number < b->image->number ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->birth < b->birth ? -1 : a->birth > b->birth;
}

/* The process of that thread id which lived at that tick; `sorted` by image, tid, birth. */
static struct trace_process *thread_at(const struct trace *trace, struct trace_process **sorted, unsigned count,
				       const struct name_told *name)
{
	uint32_t tid = trace_tid(trace, name->image, name->tid, name->tick);
	unsigned low = 0, high = count;
	while (low < high) { /* the first that is beyond */
		unsigned middle = low + (high - low) / 2;
		const struct trace_process *process = sorted[middle];
		int beyond = process->image->number != name->image->number ? process->image->number > name->image->number
			     : process->tid != tid                         ? process->tid > tid
									   : process->birth > name->tick;
		if (beyond)
			high = middle;
		else
			low = middle + 1;
	}
	if (low == 0 || sorted[low - 1]->image != name->image || sorted[low - 1]->tid != tid)
		return NULL;
	return sorted[low - 1];
}

static void link_names(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	if (index->name_count == 0)
		return;
	struct trace_process **sorted = calloc(trace->process_count, sizeof *sorted);
	if (!sorted) {
		index->out_of_memory = 1;
		return;
	}
	for (unsigned i = 0; i < trace->process_count; i++)
		sorted[i] = &trace->processes[i];
	sort(sorted, trace->process_count, sizeof *sorted, processes_by_thread);
	sort(index->names, index->name_count, sizeof *index->names, names_in_order);
	for (unsigned i = 0; i < index->name_count; i++) {
		const struct name_told *name = &index->names[i];
		struct trace_process *process = &trace->processes[name->process];
		if (name->tid != process->own_tid && name->tid != process->tid)
			process = thread_at(trace, sorted, trace->process_count, name);
		if (process)
			process->name = name->name;
	}
	free(sorted);
}

static int ports_in_order(const void *left, const void *right)
{
	const struct trace_port *a = left, *b = right;
	if (a->image->number != b->image->number)
		return a->image->number < b->image->number ? -1 : 1;
	if (a->fd != b->fd)
		return a->fd < b->fd ? -1 : 1;
	return a->generation < b->generation ? -1 : a->generation > b->generation;
}

static void link_ports(struct trace_index *index)
{
	sort(index->ports, index->port_count, sizeof *index->ports, ports_in_order);
	for (unsigned i = 0; i < index->connection_count; i++) {
		const struct trace_port *connection = &index->connections[i];
		const struct trace_port *port =
			trace_port(&index->trace, connection->image, connection->fd, connection->generation);
		if (port)
			index->ports[port - index->ports].peer = connection->peer;
	}
}

static int images_by_pid(const void *left, const void *right)
{
	const struct trace_image *a = *(const struct trace_image *const *)left,
				 *b = *(const struct trace_image *const *)right;
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* The last image of that pid that began before the tick. */
static struct trace_image *image_at(struct trace_image **sorted, unsigned count, uint32_t pid, uint64_t tick)
{
	unsigned low = 0, high = count;
	while (low < high) { /* the first that is beyond */
		unsigned middle = low + (high - low) / 2;
		const struct trace_image *image = sorted[middle];
		if (image->pid > pid || (image->pid == pid && image->tick > tick))
			high = middle;
		else
			low = middle + 1;
	}
	return low && sorted[low - 1]->pid == pid ? sorted[low - 1] : NULL;
}

/* What a wait told about an end of which the collector came to know late, or not how. */
static void learn_from_wait(struct trace_exit *gone, const struct reaped_told *reaped)
{
	if (gone->known && !gone->outside)
		return;
	if (!gone->known || gone->reason == LORG_REASON_UNKNOWN) {
		int status = WEXITSTATUS(reaped->status);
		gone->reason = WIFSIGNALED(reaped->status) ? LORG_REASON_SIGNAL
			       : status                    ? LORG_REASON_STATUS
							   : LORG_REASON_NORMAL;
		gone->status = WIFSIGNALED(reaped->status) ? WTERMSIG(reaped->status) : status;
	}
	if (!gone->known)
		gone->tick = reaped->tick;
	if (!gone->known || gone->effective >= reaped->tick)
		gone->effective = reaped->tick - 1;
	gone->known = 1;
}

/* An exit that counts as of an earlier time has to be looked for when its packet begins. */
static void move_exits(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	for (unsigned i = 0; i < index->outside_count; i++) {
		const struct outside_exit *outside = &index->outside_exits[i];
		const struct trace_exit *gone = &trace->processes[outside->process].exit;
		if (outside->packet >= trace->packet_count || gone->tick != outside->tick || gone->effective >= gone->tick)
			continue;
		struct trace_packet *packet = &trace->packets[outside->packet];
		packet->early_count++;
		if (gone->effective < packet->earliest)
			packet->earliest = gone->effective;
	}
}

static void link_reaped(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	if (index->reaped_count == 0)
		return;
	struct trace_image **sorted = calloc(trace->image_count, sizeof *sorted);
	const struct reaped_told **of_image = calloc(trace->image_count, sizeof *of_image);
	if (sorted && of_image) {
		memcpy(sorted, trace->images, trace->image_count * sizeof *sorted);
		sort(sorted, trace->image_count, sizeof *sorted, images_by_pid);
		for (unsigned i = 0; i < index->reaped_count; i++) {
			const struct reaped_told *reaped = &index->reaped[i];
			uint32_t pid = trace_pid(trace, reaped->by, reaped->pid, reaped->tick);
			struct trace_image *image = image_at(sorted, trace->image_count, pid, reaped->tick);
			if (!image)
				continue;
			of_image[image->number] = reaped;
			learn_from_wait(&image->exit, reaped);
		}
		for (unsigned i = 0; i < trace->process_count; i++) {
			const struct reaped_told *reaped = of_image[trace->processes[i].image->number];
			if (reaped)
				learn_from_wait(&trace->processes[i].exit, reaped);
		}
		move_exits(index);
	} else {
		index->out_of_memory = 1;
	}
	free(sorted);
	free(of_image);
}

/* An end that was only told so that readers may forget it: nobody knows when it was, or how. */
static int is_unknown(const struct trace_exit *gone)
{
	return !gone->known || (gone->outside && gone->reason == LORG_REASON_UNKNOWN);
}

/* An image that another one follows by exec ended with that, and so did its threads. */
static void end_by_exec(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	for (unsigned i = 0; i < trace->image_count; i++) {
		const struct trace_image *image = trace->images[i];
		struct trace_image *before =
			image->birth == LORG_BIRTH_EXEC && image->parent ? trace->images[image->parent->number] : NULL;
		if (before && before->pid == image->pid && is_unknown(&before->exit))
			before->exit = (struct trace_exit){
				.known = 1, .tick = image->tick, .reason = LORG_REASON_EXEC, .effective = image->tick};
	}
	for (unsigned i = 0; i < trace->process_count; i++) {
		struct trace_process *process = &trace->processes[i];
		if (!is_unknown(&process->exit) || !process->image->exit.known || process->image->exit.reason != LORG_REASON_EXEC)
			continue;
		process->exit = process->image->exit;
		if (process->last_tick > process->exit.tick && process->first_tick <= process->exit.tick)
			process->last_tick = process->exit.tick;
	}
}

static void find_extent(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	for (unsigned i = 0; i < trace->process_count; i++) {
		struct trace_process *process = &trace->processes[i];
		struct trace_image *image = trace->images[process->image->number];
		if (process->first_tick > process->last_tick)
			process->first_tick = process->last_tick = process->birth;
		if (!image->told && process->first_tick < image->tick)
			image->tick = process->first_tick;
		if (process->pid == 0 || (process->event_count == 0 && !process->untouched))
			continue;
		if (trace->last_tick == 0 || process->first_tick < trace->first_tick)
			trace->first_tick = process->first_tick;
		if (process->last_tick > trace->last_tick)
			trace->last_tick = process->last_tick;
	}
}

static void tell_what_is_missing(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	char why[120];
	if (index->damage_untold > 0) {
		snprintf(why, sizeof why, "%llu more places are damaged", (unsigned long long)index->damage_untold);
		index_missing(index, "stream files", why);
	}
	if (index->packets_promised > trace->packet_count) {
		snprintf(why, sizeof why, "%llu of %llu are missing from the files",
			 (unsigned long long)(index->packets_promised - trace->packet_count),
			 (unsigned long long)index->packets_promised);
		index_missing(index, "packets of the recording", why);
	}
}

/* A directory without its CLOCK event: the metadata knows how fast the counter runs, not when it began. */
static void borrow_clock(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	if (index->clock_count > 0 || trace->packet_count == 0 || !index->has_uuid)
		return;
	index_missing(index, "the clock",
		      index->frequency ? "its event is missing: times are those of the counter"
				       : "it is missing: times are in ticks");
	if (index->frequency == 0 ||
	    !index_grow(index, &index->clocks, index->clock_count, &index->clock_room, sizeof *index->clocks))
		return;
	uint64_t multiplier = (uint64_t)(((unsigned __int128)1000000000 << 32) / index->frequency);
	index->clocks[index->clock_count++] = (struct clock_piece){.multiplier = multiplier ? multiplier : 1};
}

void index_finish(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	index->finished = 1;
	if (index->out_of_memory)
		return;
	find_extent(index);
	link_images(index);
	index_namespaces(index);
	link_reaped(index);
	sort(trace->packets, trace->packet_count, sizeof *trace->packets, packets_in_order);
	sort(index->clocks, index->clock_count, sizeof *index->clocks, clocks_in_order);
	trace->has_clock = index->clock_count > 0;
	borrow_clock(index);
	if (trace->has_clock)
		trace->wall_offset_ns = index->clocks[index->clock_count - 1].wall_offset_ns;
	sort(index->hooked, index->hooked_count, sizeof *index->hooked, hooked_in_order);
	for (unsigned i = 0; i < index->hooked_count; i++)
		index->hooked[i].number = i;
	sort(index->functions, index->function_count, sizeof *index->functions, functions_in_order);
	for (unsigned i = 0; i < index->function_count; i++)
		index->functions[i].number = i;
	link_modules(index);
	if (index->out_of_memory)
		return;
	link_unloads(index);
	link_names(index);
	link_ports(index);
	end_by_exec(index);
	tell_what_is_missing(index);
}

/* ---- once more, where the trace grows -------------------------------------- */

static void unlink_images(struct trace *trace)
{
	for (unsigned i = 0; i < trace->image_count; i++) {
		trace->images[i]->parent = trace->images[i]->family = NULL;
		trace->images[i]->pid_namespace = 0;
	}
}

static void unlink_namespaces(struct trace_index *index)
{
	free(index->nested_images);
	free(index->nested_processes);
	index->nested_images = NULL;
	index->nested_processes = NULL;
	index->nested_image_count = index->nested_process_count = 0;
}

static void renumber_modules(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	if (index->settled_modules == index->module_count && index->settled_unloads == index->unload_count)
		return;
	for (unsigned i = 0; i < trace->image_count; i++) {
		free((void *)trace->images[i]->modules);
		trace->images[i]->modules = NULL;
		trace->images[i]->module_count = 0;
	}
	link_modules(index);
	if (index->out_of_memory)
		return;
	link_unloads(index);
	index->settled_modules = index->module_count;
	index->settled_unloads = index->unload_count;
	index->numbering++;
}

/* Functions are in the order of their families, which a parent that came late has changed. */
static void renumber_functions(struct trace_index *index)
{
	if (index->settled_functions != index->function_count || index->function_count) {
		sort(index->functions, index->function_count, sizeof *index->functions, functions_in_order);
		for (unsigned i = 0; i < index->function_count; i++) {
			index->numbering += index->functions[i].number != i;
			index->functions[i].number = i;
		}
		index->settled_functions = index->function_count;
	}
	if (index->settled_hooked == index->hooked_count)
		return;
	sort(index->hooked, index->hooked_count, sizeof *index->hooked, hooked_in_order);
	for (unsigned i = 0; i < index->hooked_count; i++)
		index->hooked[i].number = i;
	index->settled_hooked = index->hooked_count;
	index->numbering++;
}

/* What has been shown cannot be put earlier. */
static void keep_exits_in_place(struct trace *trace)
{
	for (unsigned i = 0; i < trace->process_count; i++)
		trace->processes[i].exit.effective = trace->processes[i].exit.tick;
}

void index_finish_again(struct trace_index *index)
{
	struct trace *trace = &index->trace;
	index->finished = 1;
	index->outside_count = 0;
	find_extent(index);
	unlink_images(trace);
	link_images(index);
	unlink_namespaces(index);
	index_namespaces(index);
	link_reaped(index);
	index->reaped_count = 0;
	sort(index->clocks, index->clock_count, sizeof *index->clocks, clocks_in_order);
	trace->has_clock = index->clock_count > 0;
	if (trace->has_clock)
		trace->wall_offset_ns = index->clocks[index->clock_count - 1].wall_offset_ns;
	renumber_functions(index);
	renumber_modules(index);
	if (index->out_of_memory)
		return;
	link_names(index);
	index->name_count = 0;
	link_ports(index);
	end_by_exec(index);
	keep_exits_in_place(trace);
}
