/* SPDX-License-Identifier: MIT */
/* lookup.c: what was the clock, the function, the module, at a tick. */
#include <string.h>

#include "collector/base/list.h"
#include "collector/read/index.h"

static const struct clock_piece *clock_at(const struct trace_index *index, uint64_t tick)
{
	size_t low = list_up_to(index->clocks, index->clock_count, sizeof *index->clocks, offsetof(struct clock_piece, base_tick), tick);
	if (index->clock_count == 0)
		return NULL;
	return &index->clocks[low ? low - 1 : 0];
}

uint64_t trace_time(const struct trace *trace, uint64_t tick)
{
	const struct clock_piece *clock = clock_at(trace->index, tick);
	if (!clock)
		return tick;
	if (tick >= clock->base_tick)
		return clock->base_ns + (uint64_t)((unsigned __int128)(tick - clock->base_tick) * clock->multiplier >> 32);
	uint64_t before = (uint64_t)((unsigned __int128)(clock->base_tick - tick) * clock->multiplier >> 32);
	return before < clock->base_ns ? clock->base_ns - before : 0;
}

uint64_t trace_duration(const struct trace *trace, uint64_t from, uint64_t to)
{
	uint64_t start = trace_time(trace, from), end = trace_time(trace, to);
	return end > start ? end - start : 0;
}

const struct trace_hook *trace_hook(const struct trace *trace, uint32_t hook)
{
	return hook < LORG_HOOKS && trace->hooks[hook].name[0] ? &trace->hooks[hook] : NULL;
}

const struct trace_image *trace_image_by_id(const struct trace *trace, uint64_t low, uint64_t high)
{
	uint8_t id[16];
	memcpy(id, &low, 8);
	memcpy(id + 8, &high, 8);
	return index_find_image(trace->index, id);
}

const struct trace_port *trace_port(const struct trace *trace, const struct trace_image *image, int32_t fd,
				    uint32_t generation)
{
	const struct trace_index *index = trace->index;
	unsigned low = 0, high = index->port_count;
	while (low < high) { /* the first that is not before */
		unsigned middle = low + (high - low) / 2;
		const struct trace_port *port = &index->ports[middle];
		int is_before = port->image != image ? port->image->number < image->number
				: port->fd != fd     ? port->fd < fd
						     : port->generation < generation;
		if (is_before)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == index->port_count)
		return NULL;
	const struct trace_port *port = &index->ports[low];
	return port->image == image && port->fd == fd && port->generation == generation ? port : NULL;
}

/* Whether `function` stands before (family, slot, tick) in the order of the table, or at it. */
static int function_not_after(const struct trace_function *function, const struct trace_image *family, uint32_t slot,
			      uint64_t tick)
{
	if (function->image->family != family)
		return function->image->family->number < family->number;
	if (function->function != slot)
		return function->function < slot;
	return function->tick <= tick;
}

const struct trace_function *trace_function(const struct trace *trace, const struct trace_image *image, uint32_t function,
					    uint64_t tick)
{
	const struct trace_index *index = trace->index;
	unsigned low = 0, high = index->function_count;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		if (function_not_after(&index->functions[middle], image->family, function, tick))
			low = middle + 1;
		else
			high = middle;
	}
	for (unsigned i = 0; i < 2; i++) { /* the one before, else the one after */
		unsigned at = i == 0 ? low - 1 : low;
		if (at >= index->function_count)
			continue;
		const struct trace_function *found = &index->functions[at];
		if (found->image->family == image->family && found->function == function)
			return found;
	}
	return NULL;
}

const struct trace_hooked *trace_hooked(const struct trace *trace, uint32_t function)
{
	const struct trace_index *index = trace->index;
	unsigned low = 0, high = index->hooked_count;
	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		if (index->hooked[middle].function < function)
			low = middle + 1;
		else
			high = middle;
	}
	return low < index->hooked_count && index->hooked[low].function == function ? &index->hooked[low] : NULL;
}

unsigned trace_hooked_count(const struct trace *trace)
{
	return trace->index->hooked_count;
}

static int holds(const struct trace_module *module, uint64_t address)
{
	return address >= module->start && address - module->start < module->size;
}

/* The latest module of this image alone; any_time: whenever it was mapped. */
static const struct trace_module *own_module(const struct trace_image *image, uint64_t address, uint64_t tick, int any_time)
{
	for (unsigned i = image->module_count; i-- > 0;) {
		const struct trace_module *module = image->modules[i];
		if (holds(module, address) && (any_time || (module->tick <= tick && tick <= module->unload_tick)))
			return module;
	}
	return NULL;
}

const struct trace_module *trace_module(const struct trace *trace, const struct trace_image *image, uint64_t address,
					uint64_t tick)
{
	(void)trace;
	uint64_t at = tick;
	for (const struct trace_image *each = image; each; each = each->parent) {
		const struct trace_module *module = own_module(each, address, at, 0);
		if (module)
			return module;
		if (each == image->family)
			break;
		if (each->tick < at) /* what it inherited is what its parent had then */
			at = each->tick;
	}
	/* Told late: a module may be used before its event is written. */
	for (const struct trace_image *each = image; each; each = each->parent) {
		const struct trace_module *module = own_module(each, address, tick, 1);
		if (module || each == image->family)
			return module;
	}
	return NULL;
}
