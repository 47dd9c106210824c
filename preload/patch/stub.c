/* SPDX-License-Identifier: MIT */
/* stub.c: checks a plan against the module it is for, and makes its functions' stubs. See patch.h and lorg/plan.h. */
#include <lorg/abi.h>

#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/patch/patch.h"
#include "preload/resolve/code_hook.h"

_Static_assert((int)LORG_THUNK_SIZE == (int)CALL_THUNK_SIZE, "the size of a thunk is known on both sides");

/* ---- checks ---------------------------------------------------------------- */

static int area_fits(uint64_t offset, uint64_t count, uint64_t each, uint64_t size)
{
	return offset <= size && count <= (size - offset) / each;
}

static int function_is_right(const struct lorg_plan *plan, const struct lorg_plan_function *function, uint64_t end)
{
	if (function->offset >= end || end - function->offset < (uint64_t)function->skip + LORG_TAKEN_MAXIMUM)
		return function->offset < end && !(function->flags & LORG_PLAN_CODE);
	if (!(function->flags & LORG_PLAN_CODE))
		return 1;
	if (function->offset < plan->text_start || function->offset >= plan->text_end || function->taken < LORG_JUMP_SIZE ||
	    function->taken > LORG_TAKEN_MAXIMUM)
		return 0;
	if (function->entry_kind == LORG_ENTRY_NOP)
		return 1;
	if (function->entry_kind != LORG_ENTRY_RELOCATE || function->code_length > LORG_ENTRY_MAXIMUM || function->fixup_count > 4 ||
	    !area_fits(function->code, function->code_length, 1, plan->code_size))
		return 0;
	for (unsigned i = 0; i < function->fixup_count; i++)
		if (function->fixup[i].at + 4 > function->code_length || function->fixup[i].from > function->code_length)
			return 0;
	return 1;
}

static int functions_are_right(const struct lorg_plan *plan, uint64_t end)
{
	for (uint32_t i = 0; i < plan->function_count; i++) {
		const struct lorg_plan_function *function = plan_function(plan, i);
		if (!function_is_right(plan, function, end) || (i && function->offset < plan_function(plan, i - 1)->offset))
			return 0;
	}
	return 1;
}

static int slots_are_right(const struct lorg_plan *plan, uint64_t end)
{
	for (uint32_t i = 0; i < plan->slot_count; i++) {
		uint64_t offset = plan_slot(plan, i)->offset;
		if (offset % 8 || offset >= end || end - offset < 8)
			return 0;
	}
	return 1;
}

int plan_is_right(const struct lorg_plan *plan, uint64_t size, uint64_t end)
{
	return size >= sizeof *plan && plan->magic == LORG_PLAN_MAGIC && plan->major == LORG_ABI_MAJOR && plan->plan_size <= size &&
	       plan->function_count <= LORG_PLAN_FUNCTIONS && plan->functions % 8 == 0 && plan->slots % 8 == 0 &&
	       area_fits(plan->functions, plan->function_count, sizeof(struct lorg_plan_function), size) &&
	       area_fits(plan->slots, plan->slot_count, sizeof(struct lorg_plan_slot), size) &&
	       area_fits(plan->code, plan->code_size, 1, size) && area_fits(plan->captures, plan->captures_size, 1, size) &&
	       area_fits(plan->names, plan->names_size, 1, size) &&
	       (!plan->names_size || !((const char *)plan)[plan->names + plan->names_size - 1]) && plan->text_start <= plan->text_end &&
	       plan->text_end <= end && functions_are_right(plan, end) && slots_are_right(plan, end);
}

int control_is_right(const struct lorg_control *control, uint64_t size, const struct lorg_plan *plan)
{
	return size >= sizeof *control && control->magic == LORG_CONTROL_MAGIC && control->function_count >= plan->function_count &&
	       control->functions % 8 == 0 && control->settings % 8 == 0 &&
	       area_fits(control->functions, control->function_count, sizeof(struct lorg_function_control), size) &&
	       area_fits(control->settings, control->setting_count, sizeof(struct lorg_call_setting), size);
}

/* ---- writing --------------------------------------------------------------- */

static int store_distance(uint8_t *at, uint64_t to, uint64_t from)
{
	int64_t distance = (int64_t)(to - from);
	int32_t word = (int32_t)distance;
	memcpy(at, &word, sizeof word);
	return distance == word;
}

uint32_t relocated_write(uint8_t *to, const struct lorg_plan *plan, const struct lorg_plan_function *function, uint64_t entry)
{
	uint64_t at = (uint64_t)to, back = entry + function->skip + function->taken;
	uint32_t length = function->code_length;
	memcpy(to, (const char *)plan + plan->code + function->code, length);
	for (unsigned i = 0; i < function->fixup_count; i++) {
		uint64_t target = entry + (uint64_t)(int64_t)function->fixup[i].target;
		if (!store_distance(to + function->fixup[i].at, target, at + function->fixup[i].from))
			return 0;
	}
	to[length] = 0xe9;
	if (!store_distance(to + length + 1, back, at + length + LORG_JUMP_SIZE))
		return 0;
	return length + LORG_JUMP_SIZE;
}

/* Nobody has been at the entry: another tool's hook or breakpoint is not moved about. */
static int entry_is_original(const struct lorg_plan_function *function, const uint8_t *entry)
{
	for (uint32_t i = 0; i < function->taken; i++)
		if (entry[function->skip + i] != lorg_original_byte(function, i))
			return 0;
	return 1;
}

/* Where a call goes on that comes from a patched entry; 0: the entry is not patched. */
static uint64_t body_behind_patch(uint8_t *stub, const struct patch_module *module, const struct lorg_plan_function *function, int near,
				  struct patch_refusals *refusals)
{
	uint64_t entry = module->base + function->offset, body;
	if (!(function->flags & LORG_PLAN_CODE) || !near) /* !near has been counted */
		return 0;
	if (!entry_is_original(function, (const uint8_t *)entry)) {
		refusals->occupied++;
		return 0;
	}
	if (function->entry_kind == LORG_ENTRY_NOP)
		return entry + function->skip + function->taken;
	body = relocated_write(stub + LORG_THUNK_SIZE, module->plan, function, entry) ? (uint64_t)(stub + LORG_THUNK_SIZE) : 0;
	refusals->out_of_reach += !body;
	return body;
}

/* Stands before the marks of its functions. */
static struct call_settings *settings_of(const struct patch_module *module)
{
	return (struct call_settings *)module->placement->marks - 1;
}

/* NULL: there is no memory. */
static uint8_t *make_marks(struct patch_module *module)
{
	struct call_settings *settings = patch_memory(sizeof *settings + module->plan->function_count);
	if (!settings)
		return 0;
	*settings = (struct call_settings){.shared = module->control,
					   .size = module->control->control_size,
					   .setting = (struct lorg_call_setting *)((char *)module->control + module->control->settings),
					   .setting_count = module->control->setting_count};
	module->placement->marks = (uint64_t)(settings + 1);
	return (uint8_t *)(settings + 1);
}

static int add_target(const struct patch_module *module, uint32_t index, uint64_t body, uint32_t kind)
{
	const struct lorg_plan_function *function = plan_function(module->plan, index);
	const struct call_target target = {
		.body = body,
		.control = control_function(module->control, index),
		.function = module->plan->first_function + index,
		.flags = function->flags,
		.plan = module->plan,
		.plan_function = function,
		.settings = settings_of(module),
		.base = module->base,
		.kind = kind,
	};
	return call_target_add(&target);
}

/*
 * An entry that liblorg.so has hooked for itself: its wrapper goes on at the stub, so that each call from inside and
 * outside of libc comes by once. 0: it has not.
 */
static uint64_t body_behind_wrapper(const struct patch_module *module, const struct lorg_plan_function *function)
{
	return function->flags & LORG_PLAN_CODE ? (uint64_t)code_hook_trampoline((const void *)(module->base + function->offset)) : 0;
}

/* The stub of one function. Returns its mark. */
static uint8_t write_stub(uint8_t *stub, const struct patch_module *module, uint32_t index, int near, struct patch_refusals *refusals)
{
	const struct lorg_plan_function *function = plan_function(module->plan, index);
	memset(stub, LORG_PATCH_FILL, lorg_stub_size(function));
	uint64_t body = body_behind_wrapper(module, function);
	uint8_t mark = LORG_STUB_STANDS;
	if (body)
		mark |= LORG_STUB_INNER;
	else if ((body = body_behind_patch(stub, module, function, near, refusals)) != 0)
		mark |= LORG_STUB_CODE;
	if (!body && !(function->flags & LORG_PLAN_SLOTS))
		return 0;
	int target = add_target(module, index, body ? body : module->base + function->offset, body ? LORG_KIND_LOCAL : LORG_KIND_GLOBAL);
	if (target < 0) {
		refusals->no_memory++;
		return 0;
	}
	call_thunk_write(stub, (uint32_t)target);
	return mark;
}

int extra_thunk(void *thunk, const struct patch_module *module, uint32_t index, uint64_t body, uint32_t kind)
{
	int target = add_target(module, index, body, kind);
	if (target < 0)
		return -1;
	call_thunk_write(thunk, (uint32_t)target);
	return 0;
}

static uint64_t stubs_size(const struct lorg_plan *plan, int *code)
{
	uint64_t size = 0;
	for (uint32_t i = 0; i < plan->function_count; i++) {
		size += lorg_stub_size(plan_function(plan, i));
		*code |= (plan_function(plan, i)->flags & LORG_PLAN_CODE) != 0;
	}
	return size;
}

/* Functions that were to be hooked by their code and cannot be. */
static uint32_t code_functions(const struct lorg_plan *plan)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < plan->function_count; i++)
		count += (plan_function(plan, i)->flags & LORG_PLAN_CODE) != 0;
	return count;
}

/* Once the stubs may be executed. */
static void lead_wrappers(const struct patch_module *module)
{
	const uint8_t *marks = (const uint8_t *)module->placement->marks;
	uint64_t stub = module->placement->stubs;
	for (uint32_t i = 0; i < module->plan->function_count; i++) {
		const struct lorg_plan_function *function = plan_function(module->plan, i);
		if (marks[i] & LORG_STUB_INNER)
			code_hook_go_on_by(code_hook_trampoline((const void *)(module->base + function->offset)), (void *)stub);
		stub += lorg_stub_size(function);
	}
}

int stubs_place(struct patch_module *module, struct patch_refusals *refusals)
{
	const struct lorg_plan *plan = module->plan;
	int code = 0;
	uint64_t size = stubs_size(plan, &code);
	if (!size)
		return 0;
	uint8_t *stubs = code ? near_memory(size, module->start, module->end) : any_memory(size);
	int near = stubs && code;
	if (!stubs && code) { /* slots lead anywhere */
		refusals->out_of_reach += code_functions(plan);
		stubs = any_memory(size);
	}
	if (!stubs) {
		refusals->no_memory += plan->function_count;
		return -1;
	}
	uint8_t *marks = make_marks(module);
	if (!marks) {
		raw_munmap(stubs, size);
		refusals->no_memory += plan->function_count;
		return -1;
	}
	uint64_t at = 0;
	for (uint32_t i = 0; i < plan->function_count; i++) {
		marks[i] = write_stub(stubs + at, module, i, near, refusals);
		at += lorg_stub_size(plan_function(plan, i));
	}
	if (near_seal(stubs, size)) {
		module->placement->marks = 0;
		refusals->no_memory += plan->function_count;
		return -1;
	}
	module->placement->stubs = (uint64_t)stubs;
	module->placement->stubs_size = size;
	lead_wrappers(module);
	return 0;
}

uint64_t stub_of(const struct lorg_placement *placement, const struct lorg_plan *plan, uint32_t index)
{
	uint64_t at = placement->stubs;
	for (uint32_t i = 0; at && i < index; i++)
		at += lorg_stub_size(plan_function(plan, i));
	return at;
}
