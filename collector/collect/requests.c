/* SPDX-License-Identifier: MIT */
/* requests.c: see requests.h. */
#include "collector/collect/requests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/collect/clock.h"
#include "collector/collect/family.h"
#include "collector/collect/keeping.h"
#include "collector/patch/patch.h"
#include "collector/plan/plan.h"

#include <lorg/match.h>

enum { MODULES_KNOWN = LORG_MODULES, LATER_TRIES = 50 };
static const uint64_t SLOW_STEP_NS = 1000000000;
static const uint64_t STARTS_NS = 300000000;	 /* a program that has just begun is about to ask */
static const uint64_t EXPIRES_NS = 30000000000;	 /* an answer that nobody has come for, a request that was never posted */
static const uint64_t PID_LIMIT_NS = 1000000000; /* so long the pid of who asks may be unknown */
/* Threads that do not stop in time hold up everybody: not again at once. */
static const uint64_t SLOW_HOLD_NS = 50000000, HOLDS_REST_NS = 200000000, HOLD_STEP_NS = 2000000000, HOLD_STEP_LIMIT_NS = 16000000000;

/* A plan as this family's images have it. */
struct family_plan {
	uint64_t plan_id;
	int plan_descriptor;
	uint64_t plan_size;
	struct patch_plan patch;
	struct memory control;
	uint8_t control_id[16]; /* by which it is kept (keeping.h) */
	uint8_t *on; /* functions whose gate was not 0 when it was looked at last */
	uint32_t generation, idle; /* of the control, likewise */
	uint32_t *changed;	   /* work space: function_count places */
	uint32_t switches;	   /* times any gate was switched: images that come later are looked at whole */
	struct plan_initial initial;
	uint64_t base; /* of the module, for callers without build-id of their own */
	int callers_known;
	struct live_control live; /* of sessions; plan NULL: what is asked stands from the start */
};

/* A module that has been asked about: where a caller's addresses are counted from. */
struct known_module {
	uint64_t base;
	uint32_t build_id_length;
	uint8_t build_id[20];
	char path[424];
	const struct caller_range *callers; /* the planner's */
	uint32_t caller_count;
};

struct slot {
	uint32_t state;
	uint64_t since_ns;
	int registered; /* its module is known */
	struct family_plan *plan; /* that it was answered with */
};

struct requests {
	struct family *family;
	struct slot slot[LORG_REQUESTS];
	struct family_plan **plans;
	uint32_t plan_count;
	struct known_module *modules;
	uint32_t module_count;
	uint64_t begin_ns;
	int told_foreign, told_refused, detached;
	/* Images that could not be brought up to date yet. */
	uint64_t again_ns;
	uint32_t tries;
};

struct requests *requests_create(struct family *family)
{
	if (!family->context->arena_settings->has_requests)
		return NULL;
	struct requests *requests = calloc(1, sizeof *requests);
	if (!requests)
		return NULL; /* its images get no answer, and go on without */
	requests->family = family;
	requests->begin_ns = clock_monotonic_ns();
	return requests;
}

static const struct live_planning *live_planning(const struct requests *requests)
{
	const struct planning *planning = requests->family->context->planning;
	return planning ? planning->live : NULL;
}

static void plan_free(const struct requests *requests, struct family_plan *plan)
{
	if (plan->live.plan && live_planning(requests))
		live_planning(requests)->gone(live_planning(requests)->owner, &plan->live);
	if (plan->control.at)
		forget_memory(requests->family->context->arena_settings->keeping, plan->control_id);
	memory_free(&plan->control);
	free((void *)plan->patch.stub_at);
	free(plan->on);
	free(plan->changed);
	free(plan);
}

void requests_free(struct requests *requests)
{
	if (!requests)
		return;
	for (uint32_t i = 0; i < requests->plan_count; i++)
		plan_free(requests, requests->plans[i]);
	free(requests->plans);
	free(requests->modules);
	free(requests);
}

static struct lorg_request *request_at(const struct requests *requests, uint32_t index)
{
	const struct family *family = requests->family;
	return (struct lorg_request *)(family->memory.at + family->layout.requests) + index;
}

/* ---- controls ----------------------------------------------------------------- */

static struct lorg_function_control *gates_of(const struct family_plan *plan)
{
	return (struct lorg_function_control *)(plan->control.at + sizeof(struct lorg_control));
}

static struct lorg_call_setting *settings_of(const struct family_plan *plan)
{
	return (struct lorg_call_setting *)(plan->control.at + sizeof(struct lorg_control) +
					    plan->initial.function_count * sizeof(struct lorg_function_control));
}

static int is_that_module(const struct known_module *module, const struct plan_caller *caller)
{
	if (caller->build_id_length)
		return module->build_id_length == caller->build_id_length && !memcmp(module->build_id, caller->build_id, caller->build_id_length);
	return !strcmp(module->path, caller->path);
}

static const struct known_module *module_of(const struct requests *requests, const struct plan_caller *caller)
{
	for (uint32_t i = 0; i < requests->module_count; i++) {
		if (is_that_module(&requests->modules[i], caller))
			return &requests->modules[i];
	}
	return NULL;
}

static uint8_t *programs_of(const struct family_plan *plan)
{
	return (uint8_t *)(settings_of(plan) + plan->initial.setting_count);
}

/* The same for the ranges that match programs compare callers with. */
static int place_programs(const struct requests *requests, struct family_plan *plan)
{
	int known = 1;
	for (uint32_t i = 0; i < plan->initial.program_range_count; i++) {
		const struct plan_program_range *wanted = &plan->initial.program_ranges[i];
		const struct known_module *module = module_of(requests, &wanted->module);
		struct lorg_match_range *range = (struct lorg_match_range *)(programs_of(plan) + wanted->at);
		known &= module != NULL;
		range->first = module ? module->base + wanted->first : UINT64_MAX;
		range->last = module ? module->base + wanted->last : 0;
	}
	return known;
}

/* True if the plan was made in knowledge of the module. */
static int plan_knows(const struct family_plan *plan, const struct known_module *module)
{
	const struct plan_initial *initial = &plan->initial;
	for (uint32_t i = 0; i < initial->setting_count; i++)
		if (!initial->callers[i].later && is_that_module(module, &initial->callers[i]))
			return 1;
	return module->base == plan->base;
}

static void place_later_caller(struct family_plan *plan, uint32_t place, uint64_t low, uint64_t high)
{
	for (uint32_t i = 0; i < plan->initial.setting_count; i++) {
		struct lorg_call_setting *setting = &settings_of(plan)[i];
		if (plan->initial.callers[i].later != place)
			continue;
		/* The lower end is above all addresses until the upper one stands. */
		__atomic_store_n(&setting->caller_high, high, __ATOMIC_RELAXED);
		__atomic_store_n(&setting->caller_low, low, __ATOMIC_RELEASE);
	}
}

/* Callers in modules that were loaded when the plan had been made. The same ranges get the same places each time. */
static void place_later_callers(const struct requests *requests, struct family_plan *plan)
{
	uint32_t place = 0;
	for (uint32_t i = 0; plan->initial.callers && i < requests->module_count; i++) {
		const struct known_module *module = &requests->modules[i];
		if (!module->caller_count || plan_knows(plan, module))
			continue;
		for (uint32_t k = 0; k < module->caller_count; k++)
			place_later_caller(plan, ++place, module->base + module->callers[k].low, module->base + module->callers[k].high);
	}
}

/* Addresses of this family's programs, for what the planner gave as offsets. A caller that is not loaded calls nothing. */
static void place_callers(const struct requests *requests, struct family_plan *plan)
{
	const struct plan_initial *initial = &plan->initial;
	int known = 1;
	for (uint32_t i = 0; initial->callers && i < initial->setting_count; i++) {
		const struct lorg_call_setting *wanted = &initial->settings[i];
		const struct plan_caller *caller = &initial->callers[i];
		struct lorg_call_setting *setting = &settings_of(plan)[i];
		if (caller->later || (!wanted->caller_low && !wanted->caller_high))
			continue;
		int own = !caller->build_id_length && !caller->path[0];
		const struct known_module *module = own ? NULL : module_of(requests, caller);
		known &= own || module;
		uint64_t base = own ? plan->base : module ? module->base : UINT64_MAX;
		setting->caller_low = base == UINT64_MAX ? UINT64_MAX : base + wanted->caller_low;
		setting->caller_high = base == UINT64_MAX ? UINT64_MAX : base + wanted->caller_high;
	}
	known &= place_programs(requests, plan);
	place_later_callers(requests, plan);
	plan->callers_known = known;
}

static int fill_control(const struct requests *requests, struct family_plan *plan)
{
	const struct plan_initial *initial = &plan->initial;
	uint64_t functions = initial->function_count * sizeof(struct lorg_function_control);
	uint64_t settings = initial->setting_count * sizeof(struct lorg_call_setting);
	uint64_t programs_at = sizeof(struct lorg_control) + functions + settings;
	uint64_t size = programs_at + initial->programs_size;
	if (size > UINT32_MAX)
		return -1;
	if (memory_create(&plan->control, "lorg-control", size))
		return -1;
	struct lorg_control *control = (struct lorg_control *)plan->control.at;
	*control = (struct lorg_control){
		.size = sizeof *control,
		.function_count = initial->function_count,
		.setting_count = initial->setting_count,
		.control_size = size,
		.functions = sizeof *control,
		.settings = sizeof *control + functions,
	};
	if (initial->function_count)
		memcpy(gates_of(plan), initial->functions, functions);
	if (initial->setting_count)
		memcpy(settings_of(plan), initial->settings, settings);
	if (initial->programs_size)
		memcpy(programs_of(plan), initial->programs, initial->programs_size);
	for (uint32_t i = 0; i < initial->setting_count; i++)
		if (settings_of(plan)[i].program)
			settings_of(plan)[i].program += (uint32_t)programs_at - 1;
	place_callers(requests, plan);
	for (uint32_t i = 0; i < initial->function_count; i++)
		plan->on[i] = initial->functions[i].gate != 0;
	control->magic = LORG_CONTROL_MAGIC;
	return 0;
}

/* Where things stand in a live control. */
struct live_layout {
	uint32_t setting_count, programs_size;
	uint64_t settings, programs_at, size;
};

/* Room for what may be asked: it is memory only where it is written. */
static struct live_layout live_layout_of(uint32_t function_count)
{
	/* The lists of a function are made anew when a session joins or leaves at their end: n sessions that come one by one take n * n / 2. */
	enum { SETTINGS_LEAST = 16384, SETTINGS_MOST = 32768, LARGE = 1024 /* functions */, PROGRAMS_LEAST = 1 << 18, PROGRAMS_MOST = 1 << 20 };
	struct live_layout layout = {
		.setting_count = function_count > SETTINGS_MOST / 4    ? SETTINGS_MOST
				 : function_count < SETTINGS_LEAST / 4 ? SETTINGS_LEAST
								       : 4 * function_count,
		.programs_size = function_count > LARGE ? PROGRAMS_MOST : PROGRAMS_LEAST,
		.settings = sizeof(struct lorg_control) + (uint64_t)function_count * sizeof(struct lorg_function_control),
	};
	layout.programs_at = layout.settings + layout.setting_count * sizeof(struct lorg_call_setting);
	layout.size = layout.programs_at + layout.programs_size;
	return layout;
}

static void set_live(struct family_plan *plan, const struct live_layout *layout)
{
	plan->live = (struct live_control){
		.plan = plan->patch.plan,
		.control = (struct lorg_control *)plan->control.at,
		.base = plan->base,
		.descriptor = plan->control.descriptor,
		.programs = plan->control.at + layout->programs_at,
		.programs_at = (uint32_t)layout->programs_at,
		.programs_size = layout->programs_size,
		.setting_count = layout->setting_count,
	};
}

static int make_live_control(struct family_plan *plan)
{
	const struct live_layout layout = live_layout_of(plan->initial.function_count);
	if (layout.size > UINT32_MAX || memory_create(&plan->control, "lorg-control", layout.size))
		return -1;
	*(struct lorg_control *)plan->control.at = (struct lorg_control){
		.size = sizeof(struct lorg_control),
		.function_count = plan->initial.function_count,
		.setting_count = layout.setting_count,
		.control_size = layout.size,
		.functions = sizeof(struct lorg_control),
		.settings = layout.settings,
		.live = 1,
		.magic = LORG_CONTROL_MAGIC,
	};
	set_live(plan, &layout);
	return 0;
}

static void keep_control(const struct requests *requests, struct family_plan *plan)
{
	struct kept_name name = {.role = KEPT_CONTROL, .number = plan->plan_id, .base = plan->base};
	random_bytes(plan->control_id, sizeof plan->control_id);
	memcpy(name.id, plan->control_id, sizeof name.id);
	memcpy(name.owner, requests->family->id, sizeof name.owner);
	keep_named(requests->family->context->arena_settings->keeping, &name, &plan->control);
}

static int make_control(const struct requests *requests, struct family_plan *plan)
{
	int result = live_planning(requests) ? make_live_control(plan) : fill_control(requests, plan);
	if (result == 0)
		keep_control(requests, plan);
	return result;
}

/* Without a control yet. */
static struct family_plan *plan_begin(const struct requests *requests, const struct plan_answer *answer, uint64_t base)
{
	struct family_plan *plan = calloc(1, sizeof *plan);
	if (!plan)
		return NULL;
	*plan = (struct family_plan){.plan_id = answer->plan_id, .plan_descriptor = answer->descriptor, .plan_size = answer->size,
		.initial = answer->initial, .base = base, .control = {.descriptor = -1}};
	plan->patch.plan = answer->plan;
	plan->patch.stub_at = patch_stub_offsets(answer->plan);
	plan->on = calloc(answer->plan->function_count + 1ul, 1);
	plan->changed = calloc(answer->plan->function_count + 1ul, sizeof *plan->changed);
	if (plan->patch.stub_at && plan->on && plan->changed && answer->initial.function_count == answer->plan->function_count)
		return plan;
	plan_free(requests, plan);
	return NULL;
}

static struct family_plan *plan_create(const struct requests *requests, const struct plan_answer *answer, uint64_t base)
{
	struct family_plan *plan = plan_begin(requests, answer, base);
	if (plan && make_control(requests, plan)) {
		plan_free(requests, plan);
		return NULL;
	}
	if (plan)
		plan->patch.control = (struct lorg_control *)plan->control.at;
	return plan;
}

static uint32_t find_changed(struct family_plan *plan);
static void know_module(struct requests *requests, const struct lorg_request *request);

static struct family_plan *plan_with_id(const struct requests *requests, uint64_t plan_id)
{
	for (uint32_t i = 0; i < requests->plan_count; i++)
		if (requests->plans[i]->plan_id == plan_id)
			return requests->plans[i];
	return NULL;
}

static int add_plan(struct requests *requests, struct family_plan *plan)
{
	struct family_plan **plans = realloc(requests->plans, (requests->plan_count + 1ul) * sizeof(struct family_plan *));
	if (!plans)
		return -1;
	requests->plans = plans;
	plans[requests->plan_count++] = plan;
	if (plan->live.plan) {
		live_planning(requests)->made(live_planning(requests)->owner, requests->family, &plan->live);
		find_changed(plan); /* images that place it find its gates as they are */
	}
	return 0;
}

static struct family_plan *plan_of_answer(struct requests *requests, const struct plan_answer *answer, uint64_t base)
{
	struct family_plan *plan = plan_with_id(requests, answer->plan_id);
	if (plan)
		return plan;
	plan = plan_create(requests, answer, base);
	if (plan && add_plan(requests, plan)) {
		plan_free(requests, plan);
		return NULL;
	}
	return plan;
}

/* ---- after a restart --------------------------------------------------------------- */

/* Programs can write in it: nothing that is used later is read from it. */
static int is_control_of(const struct memory *memory, const struct plan_answer *answer, const struct live_layout *layout)
{
	const struct lorg_control head = *(const struct lorg_control *)memory->at;
	return memory->size == layout->size && head.magic == LORG_CONTROL_MAGIC && head.function_count == answer->plan->function_count;
}

int requests_adopt(struct requests *requests, const struct plan_answer *answer, const struct kept_name *name, struct memory *control)
{
	const struct live_layout layout = live_layout_of(answer->plan->function_count);
	if (!requests || !live_planning(requests) || plan_with_id(requests, answer->plan_id) || !is_control_of(control, answer, &layout))
		return -1;
	struct family_plan *plan = plan_begin(requests, answer, name->base);
	if (!plan)
		return -1;
	plan->control = *control;
	memcpy(plan->control_id, name->id, sizeof plan->control_id);
	plan->patch.control = (struct lorg_control *)plan->control.at;
	set_live(plan, &layout);
	plan->live.adopted_ns = clock_monotonic_ns();
	plan->switches = 1; /* each image is looked at whole */
	if (add_plan(requests, plan)) {
		plan->live.plan = NULL; /* `made` was not called */
		plan->control = (struct memory){.descriptor = -1};
		plan_free(requests, plan);
		return -1;
	}
	*control = (struct memory){.descriptor = -1};
	requests->tries = LATER_TRIES;
	return 0;
}

void requests_learn_module(struct requests *requests, const struct plan_caller *module, uint64_t base)
{
	struct lorg_request told = {.base = base, .build_id_length = module->build_id_length};
	memcpy(told.build_id, module->build_id, sizeof told.build_id);
	memcpy(told.path, module->path, sizeof told.path);
	if (requests)
		know_module(requests, &told);
}

/* ---- what stands in a request ---------------------------------------------------- */

static void copy_request(const struct requests *requests, uint32_t index, struct lorg_request *copy)
{
	*copy = *request_at(requests, index);
	copy->path[sizeof copy->path - 1] = 0;
	if (copy->build_id_length > sizeof copy->build_id)
		copy->build_id_length = 0;
}

static struct image *image_of(const struct requests *requests, const struct lorg_request *request)
{
	const struct family *family = requests->family;
	return request->image < family->image_room ? family->images[request->image] : NULL;
}

static void answer(struct requests *requests, uint32_t index, const struct family_plan *plan, int error)
{
	struct lorg_request *request = request_at(requests, index);
	request->error = error;
	request->plan_descriptor = plan ? plan->plan_descriptor : -1;
	request->control_descriptor = plan ? plan->control.descriptor : -1;
	request->plan_size = plan ? plan->plan_size : 0;
	request->control_size = plan ? plan->control.size : 0;
	request->plan_id = plan ? plan->plan_id : 0;
	requests->slot[index].plan = (struct family_plan *)plan;
	/* Release: pairs with the image's acquire; the answer is there. It may have abandoned the request meanwhile. */
	uint32_t posted = LORG_REQUEST_POSTED;
	__atomic_compare_exchange_n(&request->state, &posted, LORG_REQUEST_ANSWERED, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void know_module(struct requests *requests, const struct lorg_request *request)
{
	for (uint32_t i = 0; i < requests->module_count; i++)
		if (requests->modules[i].base == request->base && !strcmp(requests->modules[i].path, request->path))
			return;
	if (requests->module_count == MODULES_KNOWN)
		return;
	struct known_module *modules = realloc(requests->modules, (requests->module_count + 1ul) * sizeof *modules);
	if (!modules)
		return;
	requests->modules = modules;
	struct known_module *module = &modules[requests->module_count++];
	*module = (struct known_module){.base = request->base, .build_id_length = request->build_id_length};
	memcpy(module->build_id, request->build_id, sizeof module->build_id);
	memcpy(module->path, request->path, sizeof module->path);
	const struct live_planning *live = live_planning(requests);
	for (uint32_t i = 0; i < requests->plan_count; i++) {
		struct family_plan *plan = requests->plans[i];
		if (live)
			live->known(live->owner, requests->family, &plan->live);
		else if (!plan->callers_known)
			place_callers(requests, plan);
	}
}

static void know_callers(struct requests *requests, const struct lorg_request *request, const struct plan_answer *given)
{
	int is_new = 0;
	for (uint32_t i = 0; i < requests->module_count; i++) {
		struct known_module *module = &requests->modules[i];
		if (module->base != request->base || strcmp(module->path, request->path) != 0 || module->callers == given->callers)
			continue;
		module->callers = given->callers;
		module->caller_count = given->caller_count;
		is_new = 1;
	}
	for (uint32_t i = 0; is_new && i < requests->plan_count; i++)
		place_later_callers(requests, requests->plans[i]);
}

/* ---- telling --------------------------------------------------------------------- */

/* What the planner tells goes into the trace: functions many at a time, gaps when those are written. */
struct telling {
	struct notes *notes;
	struct note *functions; /* NULL: none yet */
};

static void tell_function(void *context, const struct plan_function_news *news)
{
	struct telling *telling = context;
	if (!telling->functions)
		telling->functions = notes_functions_begin(telling->notes);
	notes_hooked_function(telling->notes, telling->functions, news);
}

static void end_functions(struct telling *telling)
{
	notes_functions_end(telling->notes, telling->functions);
	telling->functions = NULL;
}

static void tell_gap(void *context, uint64_t count, const char *what, const char *why)
{
	struct telling *telling = context;
	end_functions(telling);
	notes_gap(telling->notes, count, 0, what, why);
}

static void tell_news(const struct requests *requests)
{
	struct telling telling = {&requests->family->context->notes, NULL};
	const struct planner_listener listener = {tell_function, tell_gap, &telling};
	const struct planning *planning = requests->family->context->planning;
	planning->tell(planning->planner, &listener);
	end_functions(&telling);
}

static void tell_outcome(struct requests *requests, pid_t pid, const struct patch_outcome *outcome)
{
	struct notes *notes = &requests->family->context->notes;
	char what[96];
	if (outcome->foreign && !requests->told_foreign) {
		requests->told_foreign = 1;
		snprintf(what, sizeof what, "%u functions of process %d are not switched", outcome->foreign, (int)pid);
		notes_gap(notes, 1, (uint32_t)pid, what, "another tool's bytes stand at their entries");
	}
	if (outcome->refused && !requests->told_refused) {
		requests->told_refused = 1;
		snprintf(what, sizeof what, "%u functions of process %d are not switched", outcome->refused, (int)pid);
		notes_gap(notes, 1, (uint32_t)pid, what, outcome->why ? outcome->why : "");
	}
}

/* ---- answering -------------------------------------------------------------------- */

static void answer_plan(struct requests *requests, uint32_t index, const struct lorg_request *request, uint64_t now_ns)
{
	struct family_context *context = requests->family->context;
	const struct image *image = image_of(requests, request);
	struct plan_answer given;
	const struct plan_request wanted = {
		.pid = image ? image->pid : 0,
		.path = request->path,
		.build_id = request->build_id,
		.build_id_length = request->build_id_length,
	};
	/* In a mount namespace of its own a program's paths mean something only with its pid. */
	if (!wanted.pid && now_ns - requests->slot[index].since_ns < PID_LIMIT_NS && !requests->detached)
		return;
	const struct live_planning *live = live_planning(requests);
	enum plan_state state = PLAN_NONE;
	if (live && !requests->detached)
		state = live->plan_for(live->owner, requests->family, image_of(requests, request), &wanted, request->base, &given);
	else if (!requests->detached)
		state = context->planning->plan_for(context->planning->planner, &wanted, &given);
	if (state == PLAN_PENDING)
		return;
	if (!live)
		tell_news(requests);
	if (!live && !requests->detached)
		know_callers(requests, request, &given);
	struct family_plan *plan = state == PLAN_READY ? plan_of_answer(requests, &given, request->base) : NULL;
	answer(requests, index, plan, state == PLAN_READY && !plan ? ENOMEM : 0);
}

/* What is hooked in an image: as the gates say, or nothing any more. */
static int is_detached(const struct requests *requests, const struct image *image)
{
	return __atomic_load_n(&family_image_entry(requests->family, image->index)->detached, __ATOMIC_ACQUIRE) != 0;
}

static struct patch_plan patch_of(const struct requests *requests, const struct image *image, const struct family_plan *plan)
{
	struct patch_plan patch = plan->patch;
	patch.none = is_detached(requests, image);
	return patch;
}

static void try_again(struct requests *requests, uint32_t again, uint64_t now_ns)
{
	if (!again)
		return;
	requests->tries = LATER_TRIES;
	requests->again_ns = now_ns + 2000000;
}

static void answer_apply(struct requests *requests, uint32_t index, const struct lorg_request *request, uint64_t now_ns)
{
	struct family_plan *plan = plan_with_id(requests, request->plan_id);
	const struct image *image = image_of(requests, request);
	struct patch_outcome outcome = {0};
	if (!plan || !image || requests->detached) {
		answer(requests, index, NULL, EINVAL);
		return;
	}
	if (!image->pid && now_ns - requests->slot[index].since_ns < PID_LIMIT_NS)
		return;
	const struct patch_plan patch = patch_of(requests, image, plan);
	patch_image(image->pid, family_arena(requests->family)->placements, &patch, NULL, 0, &outcome);
	/* A thread that is just inside of an entry, or of vfork, is elsewhere presently. */
	if ((outcome.later || (outcome.refused && live_planning(requests))) && now_ns - requests->slot[index].since_ns < PID_LIMIT_NS)
		return;
	tell_outcome(requests, image->pid, &outcome);
	if (live_planning(requests))
		try_again(requests, outcome.later + outcome.refused, now_ns);
	answer(requests, index, NULL, outcome.refused || outcome.later ? (outcome.error ? outcome.error : EAGAIN) : 0);
}

static void expire(struct requests *requests, uint32_t index, uint32_t state, uint64_t now_ns)
{
	struct slot *slot = &requests->slot[index];
	if (state == LORG_REQUEST_FREE || state == LORG_REQUEST_POSTED || now_ns - slot->since_ns < EXPIRES_NS)
		return;
	/* Whoever it was has gone, or has long given up: no image waits so long. */
	__atomic_store_n(&request_at(requests, index)->state, LORG_REQUEST_FREE, __ATOMIC_RELEASE);
}

static uint32_t look_at_slot(struct requests *requests, uint32_t index, uint64_t now_ns)
{
	struct slot *slot = &requests->slot[index];
	/* Acquire: pairs with the image's release when it posts. */
	uint32_t state = __atomic_load_n(&request_at(requests, index)->state, __ATOMIC_ACQUIRE);
	if (state == LORG_REQUEST_ABANDONED) {
		state = LORG_REQUEST_FREE;
		__atomic_store_n(&request_at(requests, index)->state, state, __ATOMIC_RELEASE);
	}
	if (state != slot->state) {
		*slot = (struct slot){.state = state, .since_ns = now_ns, .plan = state == LORG_REQUEST_ANSWERED ? slot->plan : NULL};
	}
	expire(requests, index, state, now_ns);
	return state;
}

static int answer_all(struct requests *requests, uint64_t now_ns)
{
	struct lorg_request request;
	uint32_t posted[LORG_REQUESTS], count = 0;
	int filling = 0;
	for (uint32_t i = 0; i < LORG_REQUESTS; i++) {
		uint32_t state = look_at_slot(requests, i, now_ns);
		filling |= state == LORG_REQUEST_FILLING;
		if (state == LORG_REQUEST_POSTED)
			posted[count++] = i;
	}
	/* Modules first: a plan may name another as the caller. */
	for (uint32_t i = 0; i < count; i++) {
		if (requests->slot[posted[i]].registered)
			continue;
		requests->slot[posted[i]].registered = 1;
		copy_request(requests, posted[i], &request);
		if (request.kind == LORG_REQUEST_PLAN)
			know_module(requests, &request);
	}
	for (uint32_t i = 0; i < count; i++) {
		copy_request(requests, posted[i], &request);
		if (request.kind == LORG_REQUEST_PLAN)
			answer_plan(requests, posted[i], &request, now_ns);
		else
			answer_apply(requests, posted[i], &request, now_ns);
	}
	return count || filling;
}

/* ---- switching -------------------------------------------------------------------- */

/* Functions whose gate was opened or closed since it was looked at last. */
static uint32_t find_changed(struct family_plan *plan)
{
	const struct lorg_function_control *gates = gates_of(plan);
	uint32_t count = 0;
	for (uint32_t i = 0; i < plan->initial.function_count; i++) {
		uint8_t on = __atomic_load_n(&gates[i].gate, __ATOMIC_RELAXED) != 0;
		if (on == plan->on[i])
			continue;
		plan->on[i] = on;
		plan->changed[count++] = i;
	}
	return count;
}

int requests_may_switch(const struct image *image)
{
	return image && image->pid && !image->dead && !image->over && !image->shared && !image->left;
}

/* 1: trying it now would hold up all others, and hardly come to anything. A recording tries a few times, and at once. */
static int has_to_rest(const struct requests *requests, const struct image *image)
{
	const uint64_t now_ns = clock_monotonic_ns();
	return live_planning(requests) && (now_ns < image->hold_ns || now_ns < requests->family->context->hold_ns);
}

static void note_hold(struct requests *requests, struct image *image, uint64_t began_ns, const struct patch_outcome *outcome)
{
	const uint64_t now_ns = clock_monotonic_ns();
	uint64_t step_ns = image->hold_step_ns ? image->hold_step_ns * 2 : HOLD_STEP_NS;
	if (outcome->on || outcome->off)
		image->hold_step_ns = 0;
	if (outcome->on || outcome->off || !outcome->later || now_ns - began_ns < SLOW_HOLD_NS)
		return;
	image->hold_step_ns = step_ns < HOLD_STEP_LIMIT_NS ? step_ns : HOLD_STEP_LIMIT_NS;
	image->hold_ns = now_ns + image->hold_step_ns;
	requests->family->context->hold_ns = now_ns + HOLDS_REST_NS;
}

void requests_hold_at_once(struct family_context *context)
{
	context->hold_ns = 0;
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct family *family = context->families[i];
		for (uint32_t k = 0; k < family->image_room; k++)
			if (family->images[k])
				family->images[k]->hold_ns = 0;
	}
}

/* functions: count places in the plan; NULL: all. Returns 1 where it is not even tried. */
static int patch_now(struct requests *requests, struct image *image, const struct family_plan *plan, const uint32_t *functions,
		     uint32_t count, struct patch_outcome *outcome)
{
	const struct patch_plan patch = patch_of(requests, image, plan);
	const uint64_t began_ns = clock_monotonic_ns();
	if (has_to_rest(requests, image))
		return 1;
	patch_image(image->pid, family_arena(requests->family)->placements, &patch, functions, count, outcome);
	note_hold(requests, image, began_ns, outcome);
	return 0;
}

/* Returns 1 if something has to be tried again. */
static uint32_t switch_image(struct requests *requests, struct image *image, const struct family_plan *plan, uint32_t count)
{
	struct patch_outcome outcome;
	if (patch_now(requests, image, plan, count ? plan->changed : NULL, count, &outcome))
		return 1;
	tell_outcome(requests, image->pid, &outcome);
	/* What another tracer holds it lets go again: until then it is asked for again. */
	return outcome.later + (live_planning(requests) ? outcome.refused : 0);
}

static uint32_t switch_images(struct requests *requests, struct family_plan *plan, uint32_t count)
{
	struct family *family = requests->family;
	uint32_t again = 0;
	for (uint32_t i = 0; i < family->image_room; i++)
		if (requests_may_switch(family->images[i]))
			again += switch_image(requests, family->images[i], plan, count);
	return again;
}

/* True where that has to be tried again. */
static int switch_attached(struct requests *requests, struct image *image)
{
	int again = 0;
	for (uint32_t i = 0; i < requests->plan_count; i++) {
		struct patch_outcome outcome;
		again |= patch_now(requests, image, requests->plans[i], NULL, 0, &outcome) || outcome.later || outcome.refused;
	}
	return again;
}

enum { IMAGE_ATTACHED = 1, IMAGE_DETACHED = 2 }; /* patches_seen */

/*
 * Images that have come since gates were switched have the bytes of that moment, but may have been at work meanwhile; others have been
 * detached, or attached again, meanwhile.
 */
static uint32_t switch_new_images(struct requests *requests)
{
	struct family *family = requests->family;
	uint32_t again = 0;
	for (uint32_t i = 0; i < family->image_room; i++) {
		struct image *image = family->images[i];
		if (!requests_may_switch(image))
			continue;
		int was = image->patches_seen, now = is_detached(requests, image) ? IMAGE_DETACHED : IMAGE_ATTACHED;
		if (was == now)
			continue;
		image->patches_seen = now;
		if (was && switch_attached(requests, image)) {
			image->patches_seen = was; /* lorg attach, or detach, still holds it */
			again++;
		}
		for (uint32_t k = 0; !was && k < requests->plan_count; k++)
			if (requests->plans[k]->switches)
				again += switch_image(requests, image, requests->plans[k], 0);
	}
	return again;
}

static int control_has_changed(struct family_plan *plan)
{
	/* Acquire: pairs with the release of who has changed gates. */
	uint32_t generation = __atomic_load_n(&plan->patch.control->generation, __ATOMIC_ACQUIRE);
	uint32_t idle = __atomic_load_n(&plan->patch.control->idle, __ATOMIC_ACQUIRE);
	int changed = generation != plan->generation || idle != plan->idle;
	plan->generation = generation;
	plan->idle = idle;
	return changed;
}

static void switch_again(struct requests *requests, uint64_t now_ns)
{
	uint32_t again = 0;
	if (!requests->tries || now_ns < requests->again_ns)
		return;
	for (uint32_t i = 0; i < requests->plan_count; i++)
		if (requests->plans[i]->switches)
			again += switch_images(requests, requests->plans[i], 0);
	/* In the end now and then: bytes of sessions that are gone do not stay for ever. */
	requests->tries = again ? requests->tries > 1 || !live_planning(requests) ? requests->tries - 1 : 1 : 0;
	now_ns = clock_monotonic_ns(); /* what could not be held has taken its time */
	requests->again_ns = now_ns + 2000000ull * (LATER_TRIES + 1 - requests->tries);
	if (requests->tries == 1)
		requests->again_ns = now_ns + SLOW_STEP_NS;
}

static void switch_changed(struct requests *requests, uint64_t now_ns)
{
	uint32_t again = switch_new_images(requests);
	for (uint32_t i = 0; i < requests->plan_count; i++) {
		struct family_plan *plan = requests->plans[i];
		uint32_t count = control_has_changed(plan) ? find_changed(plan) : 0;
		if (!count)
			continue;
		plan->switches++;
		again += switch_images(requests, plan, count);
	}
	if (again)
		try_again(requests, again, now_ns);
	else
		switch_again(requests, now_ns);
}

uint32_t requests_gate(const struct requests *requests, uint32_t function)
{
	for (uint32_t i = 0; requests && i < requests->plan_count; i++) {
		const struct family_plan *plan = requests->plans[i];
		uint32_t index = function - plan->patch.plan->first_function; /* of a lower id: greater than all */
		if (index < plan->initial.function_count)
			return plan->initial.functions[index].gate;
	}
	return 0;
}

/* ---- live sessions ------------------------------------------------------------------- */

struct live_control *requests_live_control(struct requests *requests, uint64_t plan_id)
{
	struct family_plan *plan = requests ? plan_with_id(requests, plan_id) : NULL;
	return plan && plan->live.plan ? &plan->live : NULL;
}

uint32_t requests_switch(struct requests *requests, struct live_control *control)
{
	struct family_plan *plan = plan_with_id(requests, control->plan->plan_id);
	/* Release: who sees the generation sees gates and settings. */
	plan->generation = __atomic_add_fetch(&control->control->generation, 1, __ATOMIC_RELEASE);
	uint32_t count = find_changed(plan), again = 0;
	if (count) {
		plan->switches++;
		again = switch_images(requests, plan, count);
	}
	try_again(requests, again, clock_monotonic_ns());
	return again;
}

uint32_t requests_switch_again(struct requests *requests, struct live_control *control)
{
	return switch_images(requests, plan_with_id(requests, control->plan->plan_id), 0);
}

/* To plan->changed. */
static uint32_t list_on(struct family_plan *plan)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < plan->initial.function_count; i++)
		if (plan->on[i])
			plan->changed[count++] = i;
	return count;
}

uint32_t requests_switch_image(struct requests *requests, struct image *image)
{
	uint32_t again = 0;
	for (uint32_t i = 0; requests_may_switch(image) && i < requests->plan_count; i++) {
		uint32_t count = list_on(requests->plans[i]);
		if (count)
			again += switch_image(requests, image, requests->plans[i], count);
	}
	try_again(requests, again, clock_monotonic_ns());
	return again;
}

int requests_are_switching(const struct requests *requests)
{
	return requests && requests->tries > 1;
}

int requests_is_asking(const struct requests *requests, const struct image *image)
{
	for (uint32_t i = 0; requests && i < LORG_REQUESTS; i++) {
		const struct lorg_request *request = request_at(requests, i);
		uint32_t state = __atomic_load_n(&request->state, __ATOMIC_ACQUIRE);
		if (state != LORG_REQUEST_FREE && state != LORG_REQUEST_ABANDONED &&
		    __atomic_load_n(&request->image, __ATOMIC_RELAXED) == image->index)
			return 1;
	}
	return 0;
}

int requests_module_base(const struct requests *requests, const struct plan_caller *module, uint64_t *base)
{
	const struct known_module *known = requests ? module_of(requests, module) : NULL;
	*base = known ? known->base : 0;
	return known != NULL;
}

/* ---- the pass ----------------------------------------------------------------------- */

/* Where it is going to ask. */
static int is_starting(const struct requests *requests, uint64_t now_ns)
{
	return now_ns - requests->begin_ns < STARTS_NS && !requests->plan_count &&
	       __atomic_load_n(&family_arena(requests->family)->functions_asked, __ATOMIC_RELAXED);
}

int requests_pass(struct requests *requests, uint64_t now_ns)
{
	if (!requests || requests->family->final)
		return 0;
	int waiting = answer_all(requests, now_ns);
	switch_changed(requests, now_ns);
	return waiting || requests->tries > 1 || is_starting(requests, now_ns);
}

void requests_detach(struct requests *requests)
{
	if (!requests || requests->detached)
		return;
	requests->detached = 1;
	requests_hold_at_once(requests->family->context);
	for (uint32_t i = 0; i < requests->plan_count; i++) {
		struct family_plan *plan = requests->plans[i];
		for (uint32_t k = 0; k < plan->initial.function_count; k++)
			__atomic_store_n(&gates_of(plan)[k].gate, 0, __ATOMIC_RELAXED);
		/* Release: who sees the generation sees the gates. */
		__atomic_add_fetch(&plan->patch.control->generation, 1, __ATOMIC_RELEASE);
	}
	requests_pass(requests, clock_monotonic_ns());
}

int requests_descriptors(const struct requests *requests, uint32_t index, int descriptors[2])
{
	if (!requests || index >= LORG_REQUESTS || !requests->slot[index].plan)
		return -1;
	descriptors[0] = requests->slot[index].plan->plan_descriptor;
	descriptors[1] = requests->slot[index].plan->control.descriptor;
	return 0;
}
