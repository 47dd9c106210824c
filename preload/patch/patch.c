/* SPDX-License-Identifier: MIT */
/* patch.c: the whole way from a loaded module to its hooks. See patch.h. */
#include "preload/patch/patch.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "preload/core/event.h"
#include "preload/core/module.h"
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/patch/late_slots.h"
#include "preload/resolve/resolve.h"

enum { AT_ONCE = 64 }; /* modules that are asked for together */

uint32_t patch_pending;

/* What has been asked for. Owner: whoever holds `lock`. `base` 0 and `dynamic` 0: a place that is free again. */
static struct patch_module modules[LORG_MODULES];
static uint32_t module_count;

/* What the collector reads of us. Entries are never used for another module, except for the same plan at the same base. */
static struct lorg_placements placements = {.magic = LORG_PLACEMENTS_MAGIC, .size = sizeof(struct lorg_placement)};

/* ---- one at a time --------------------------------------------------------- */

/*
 * Who places: the thread, by the address of its thread-local state, and in the high 16 bits its image + 1, since a fork
 * child finds there what its parent was at. 0: nobody. Atomic.
 */
static uint64_t placer;

static uint64_t placer_self(void)
{
	return (uint64_t)(uintptr_t)&this_thread | (uint64_t)(the_program.image_index + 1) << 48;
}

static int begin_placing(void)
{
	uint64_t self = placer_self();
	for (int i = 0; i < 20000; i++) { /* 2 s */
		uint64_t seen = __atomic_load_n(&placer, __ATOMIC_RELAXED);
		if (seen == self) /* a signal handler in the middle of it */
			return 0;
		if (seen >> 48 == self >> 48) {
			raw_sleep_ns(100000);
			continue;
		}
		/* Acquire: pairs with the release of the placer before: its tables are whole. */
		if (__atomic_compare_exchange_n(&placer, &seen, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
	}
	return 0;
}

static void end_placing(void)
{
	__atomic_store_n(&placer, 0, __ATOMIC_RELEASE);
}

/* Who does not wait: another thread may be stopped, or wait for this one. */
static int try_placing(void)
{
	uint64_t seen = __atomic_load_n(&placer, __ATOMIC_RELAXED), self = placer_self();
	if (seen >> 48 == self >> 48)
		return 0;
	/* Acquire: pairs with the release of the placer before: its tables are whole. */
	return __atomic_compare_exchange_n(&placer, &seen, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Relaxed: where a program reads it a moment too early, it is looked after from outside. */
static int is_asked_for(void)
{
	return __atomic_load_n(&the_arena.shared->functions_asked, __ATOMIC_RELAXED) != 0;
}

static int is_possible(void)
{
	return the_arena.shared && the_arena.request_count && system_calls_allowed() && !this_thread.vfork_child &&
	       hook_gates == the_arena.shared->gate;
}

static int is_wanted(void)
{
	return is_possible() && is_asked_for();
}

/* By the links of /proc/self/task: two, and one for each thread. */
static int is_alone(void)
{
	struct stat status;
	return !raw_failed(raw_syscall3(SYS_stat, (long)"/proc/self/task", (long)&status, 0)) && status.st_nlink == 3;
}

/* ---- the loader's list ------------------------------------------------------ */

/* From r_version 2 on there is one for each namespace. */
struct namespaces {
	struct r_debug base;
	struct namespaces *next;
};
extern struct namespaces loader_namespaces __asm__("_r_debug") __attribute__((weak));

static const struct namespaces *next_namespace(const struct namespaces *space)
{
	return loader_namespaces.base.r_version >= 2 ? space->next : 0;
}

struct found {
	struct link_map entry; /* a copy */
	const struct link_map *object;
	int is_main, in_base;
};

/* 0 at the end of the list. Another thread may be in dlclose: nothing is read that could fault. */
static int copy_entry(struct found *found, const struct link_map *object)
{
	found->object = object;
	return object &&
	       memory_peek(&found->entry, object, offsetof(struct link_map, l_prev)) == offsetof(struct link_map, l_prev);
}

/* All entries as they were at one moment: to read one takes a system call, and to watch it two stops, where lorgd looks on. */
struct found_list {
	uint32_t count;
	struct found found[LORG_MODULES];
};

/* NULL: there is no memory. To be given back by found_list_free(). */
static struct found_list *found_list_take(void)
{
	struct found_list *list = any_memory(sizeof *list);
	const struct namespaces *space = &loader_namespaces;
	if (!list || !space) { /* another loader than glibc's */
		return list;
	}
	const struct link_map *first = space->base.r_map;
	for (int in_base = 1; space; in_base = 0, space = next_namespace(space)) {
		const struct link_map *object = space->base.r_map;
		while (list->count < LORG_MODULES && copy_entry(&list->found[list->count], object)) {
			struct found *found = &list->found[list->count++];
			found->is_main = object == first;
			found->in_base = in_base;
			object = found->entry.l_next;
		}
	}
	return list;
}

static void found_list_free(struct found_list *list)
{
	if (list)
		raw_munmap(list, sizeof *list);
}

static int is_ours_or_loaders(const struct found *found)
{
	uint64_t base = found->entry.l_addr;
	return found->object == link_map_own() || base == auxiliary_value(AT_SYSINFO_EHDR) || base == auxiliary_value(AT_BASE);
}

static struct patch_module *module_known(const struct found *found)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (modules[i].base == found->entry.l_addr && modules[i].dynamic == (uint64_t)found->entry.l_ld)
			return &modules[i];
	return 0;
}

static struct patch_module *new_place(void)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (!modules[i].dynamic)
			return &modules[i];
	return module_count < LORG_MODULES ? &modules[module_count] : 0;
}

/* ---- paths ------------------------------------------------------------------ */

typedef char path[424]; /* as in struct lorg_request */

static void read_path(const struct found *found, char *to)
{
	uint32_t room = sizeof(path) - 1;
	to[0] = 0;
	if (found->is_main) {
		long got = raw_syscall3(SYS_readlink, (long)"/proc/self/exe", (long)to, room);
		to[raw_failed(got) ? 0 : got] = 0;
		return;
	}
	char name[sizeof(path)];
	uint32_t length = memory_peek_text(found->entry.l_name);
	length = memory_peek(name, found->entry.l_name, length < room ? length : room);
	name[length] = 0;
	if (name[0] && name[0] != '/') {
		long got = raw_syscall3(SYS_getcwd, (long)to, room, 0);
		to[raw_failed(got) || got < 1 ? 0 : got - 1] = 0;
		text_append(to + strlen(to), to + sizeof(path), "/");
	}
	text_append(to + strlen(to), to + sizeof(path), name);
}

/* ---- holding on to what came later ------------------------------------------ */

/* What the program started with never goes; what came by a handle of another thread's might, under our hands. */
static void *hold(const struct found *found, const char *name)
{
	void *handle = found->in_base ? REAL(dlopen)(name, RTLD_LAZY | RTLD_NOLOAD) : 0;
	if (handle && handle != (const void *)found->object) {
		REAL(dlclose)(handle);
		handle = 0;
	}
	return handle;
}

/* ---- telling ---------------------------------------------------------------- */

static void tell_count(uint32_t count, const char *what, const char *name, const char *why)
{
	char text[128];
	const char *end = text + sizeof text;
	struct thread *self = thread_self();
	if (!count || !self)
		return;
	char *at = text_append_decimal(text, end, count);
	at = text_append(at, end, what);
	text_append(at, end, name);
	event_gap(self, text, why);
}

static void tell_refusals(const struct patch_refusals *refusals, const char *name)
{
	static const char functions[] = " functions are not hooked in ", slots[] = " slots are left alone in ";
	tell_count(refusals->occupied, functions, name, "another tool's hook or breakpoint stands at their entries");
	tell_count(refusals->out_of_reach, functions, name, "there is no room for stubs within reach of their code");
	tell_count(refusals->no_memory, functions, name, "there is no memory for stubs, or none may be executable");
	tell_count(refusals->unwritable, functions, name, "the code or its slots cannot be changed");
	tell_count(refusals->several_threads, functions, name, "other threads run, and lorg may not hold them");
	tell_count(refusals->ambiguous, slots, name, "several objects define the name, and which one is meant is not known");
}

static void tell_failed(const char *name, const char *why)
{
	char text[128];
	struct thread *self = thread_self();
	if (!self)
		return;
	char *at = text_append(text, text + sizeof text, "functions are not hooked in ");
	text_append(at, text + sizeof text, name);
	event_gap(self, text, why);
}

/* ---- placing ---------------------------------------------------------------- */

/* Why the last module has no plan that has none; NULL: all have. Owner: whoever holds `placer`. */
static const char *without_plan;

/* The same module at the same place as before: its stubs are still there, and right. */
static struct lorg_placement *placement_again(const struct patch_module *module)
{
	for (uint32_t i = 0; i < placements.count; i++) {
		struct lorg_placement *placement = &placements.entry[i];
		if (placement->state == LORG_PLACEMENT_UNLOADED && placement->plan_id == module->plan->plan_id &&
		    placement->base == module->base)
			return placement;
	}
	return 0;
}

static struct lorg_placement *placement_new(const struct patch_module *module)
{
	if (placements.count >= LORG_PLACEMENTS)
		return 0;
	struct lorg_placement *placement = &placements.entry[placements.count];
	placement->plan_id = module->plan->plan_id;
	placement->base = module->base;
	placement->function_count = module->plan->function_count;
	__atomic_store_n(&placements.count, placements.count + 1, __ATOMIC_RELEASE);
	return placement;
}

static void placement_begin(struct patch_module *module, struct patch_refusals *refusals)
{
	module->placement = placement_again(module);
	if (module->placement) {
		module->placement->slot_count = 0;
		return;
	}
	module->placement = placement_new(module);
	if (module->placement)
		stubs_place(module, refusals);
	else
		refusals->no_memory += module->plan->function_count;
}

static void place_entries(struct patch_module *module, int alone, int is_stopped, struct patch_refusals *refusals)
{
	uint32_t left = is_stopped ? 0 : entries_place(module, alone, refusals);
	/* Release: who sees the state sees the rest. */
	__atomic_store_n(&module->placement->state, LORG_PLACEMENT_PLACED, __ATOMIC_RELEASE);
	if (left && patches_ask(module))
		refusals->several_threads += left;
}

/* When and where modules are placed. */
enum moment {
	AT_START, /* the constructor: there is one thread, and nothing has begun */
	AT_WORK,  /* a hook */
	STOPPED,  /* patch_modules_try() */
};

/* A batch of new modules. */
struct batch {
	uint32_t count;
	enum moment moment;
	int alone;
	struct patch_question question[AT_ONCE];
	void *handle[AT_ONCE];
	path path[AT_ONCE];
	struct patch_refusals refusals[AT_ONCE];
};

static void batch_place(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		struct patch_module *module = batch->question[i].module;
		if (batch->question[i].failed) {
			without_plan = batch->question[i].failed;
			tell_failed(text_base_name(batch->path[i]), without_plan);
		}
		if (!module->plan)
			continue;
		placement_begin(module, &batch->refusals[i]);
		if (module->placement)
			place_entries(module, batch->alone, batch->moment == STOPPED, &batch->refusals[i]);
	}
}

/* The program's threads run meanwhile, and may close what they like. */
static int is_beside_threads(const struct batch *batch)
{
	return batch->moment == AT_WORK && !batch->alone;
}

/*
 * An older module that came by a handle of its own, and that another thread might close just now: its own name is what
 * the loader knows it by, also where its file has gone. 0: it goes, or has gone. *handle: to be closed, or NULL.
 */
static int hold_older(const struct patch_module *module, void **handle)
{
	const struct namespaces *space = &loader_namespaces;
	struct found found = {.in_base = 1};
	*handle = 0;
	for (const struct link_map *object = space->base.r_map; copy_entry(&found, object); object = found.entry.l_next) {
		char name[sizeof(path)];
		if (found.entry.l_addr != module->base || (uint64_t)found.entry.l_ld != module->dynamic)
			continue;
		uint32_t length = memory_peek_text(found.entry.l_name);
		if (length >= sizeof name)
			return 0;
		length = memory_peek(name, found.entry.l_name, length);
		name[length] = 0;
		*handle = length ? hold(&found, name) : 0;
		return *handle != 0;
	}
	return 0; /* gone, or in a namespace of its own, where it cannot be held */
}

static void place_older_slots(struct patch_module *module, const struct batch *batch)
{
	struct patch_refusals refusals = {0};
	void *handle = 0;
	if (module->is_new || !module->dynamic || (is_beside_threads(batch) && !module->from_start && !hold_older(module, &handle)))
		return;
	slots_place(module, modules, module_count, &refusals);
	if (handle)
		REAL(dlclose)(handle);
}

/* Slots of the new modules; those of the older ones too, which may lead to functions of the new. */
static void batch_place_slots(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		slots_place(batch->question[i].module, modules, module_count, &batch->refusals[i]);
	for (uint32_t i = 0; i < module_count; i++)
		place_older_slots(&modules[i], batch);
}

/* What was there at the start never goes. */
static int stays(const struct found *found)
{
	const struct link_map *last = link_map_last_of_start();
	for (const struct link_map *object = link_map_first(); object; object = object->l_next) {
		if (object == found->object)
			return 1;
		if (object == last)
			return 0;
	}
	return 0;
}

static void batch_take(struct batch *batch, const struct found *found)
{
	struct patch_module *module = new_place();
	char *name = batch->path[batch->count];
	if (!module || module_read(module, found->entry.l_addr, (uint64_t)found->entry.l_ld, found->is_main))
		return;
	read_path(found, name);
	if (batch->moment == AT_WORK && !(batch->handle[batch->count] = hold(found, name)) && found->in_base) {
		memset(module, 0, sizeof *module); /* it has gone meanwhile */
		return;
	}
	module->is_new = 1;
	module->from_start = batch->moment == AT_START || (batch->moment == STOPPED && stays(found));
	module_count += module == &modules[module_count];
	batch->question[batch->count++].module = module;
}

static void batch_find(struct batch *batch, const struct found_list *list)
{
	for (uint32_t i = 0; i < list->count && batch->count < AT_ONCE; i++)
		if (!is_ours_or_loaders(&list->found[i]) && !module_known(&list->found[i]))
			batch_take(batch, &list->found[i]);
}

static void batch_end(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		tell_refusals(&batch->refusals[i], text_base_name(batch->path[i]));
		batch->question[i].module->is_new = 0;
		if (batch->handle[i])
			REAL(dlclose)(batch->handle[i]);
	}
}

/* It is no module any more; its stubs stay. */
static void forget(struct patch_module *module)
{
	if (module->placement)
		__atomic_store_n(&module->placement->state, LORG_PLACEMENT_UNLOADED, __ATOMIC_RELEASE);
	memset(module, 0, sizeof *module);
}

static int is_listed(const struct found_list *list, const struct patch_module *module)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->found[i].entry.l_addr == module->base && (uint64_t)list->found[i].entry.l_ld == module->dynamic)
			return 1;
	return 0;
}

static void forget_gone(const struct found_list *list)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (modules[i].dynamic && !is_listed(list, &modules[i]))
			forget(&modules[i]);
}

/* Another object stands where it stood. */
static int is_another(const struct patch_module *module)
{
	struct patch_module now;
	return module_read(&now, module->base, module->dynamic, module->is_main) || now.end != module->end ||
	       now.build_id_length != module->build_id_length ||
	       memcmp(now.build_id, module->build_id, module->build_id_length) != 0;
}

/* Its own slots are as the loader makes them: neither what they led to nor where they were led. */
static int slots_are_new(const struct patch_module *module)
{
	const struct lorg_placement *placement = module->placement;
	const struct lorg_slot_change *change = (const struct lorg_slot_change *)placement->slots;
	uint64_t value;
	return placement->slot_count && memory_peek(&value, (const void *)change->address, sizeof value) == sizeof value &&
	       value != change->thunk && value != change->original;
}

/* Another thread may be in dlclose: nothing is read that could fault. */
static int patch_is_there(const struct patch_module *module, uint32_t index)
{
	uint64_t address = entry_patch_address(module, index);
	uint8_t first;
	return address && memory_peek(&first, (const void *)address, sizeof first) == sizeof first && first == 0xe9;
}

/* An object that has gone and come again unseen stands there without its patches. */
static int is_replaced(const struct patch_module *module)
{
	const struct lorg_placement *placement = module->placement;
	if (is_another(module))
		return 1;
	/* Where gates change at any time, their bytes follow a moment later. */
	if (module->control && module->control->live)
		return 0;
	for (uint32_t i = 0; placement && placement->marks && i < module->plan->function_count; i++)
		if ((((const uint8_t *)placement->marks)[i] & LORG_STUB_CODE) && control_function(module->control, i)->gate)
			return !patch_is_there(module, i);
	return placement && slots_are_new(module);
}

static void forget_replaced(void)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (modules[i].dynamic && !modules[i].from_start && is_replaced(&modules[i]))
			forget(&modules[i]);
}

static int place_batch(enum moment moment, const struct found_list *list)
{
	struct batch *batch = any_memory(sizeof *batch);
	if (!batch)
		return 0;
	batch->moment = moment;
	batch->alone = moment == AT_START || (moment == AT_WORK && is_alone());
	batch_find(batch, list);
	uint32_t count = batch->count;
	if (count) {
		plans_ask(batch->question, count, (const path *)batch->path);
		batch_place(batch);
		batch_place_slots(batch);
	}
	batch_end(batch);
	raw_munmap(batch, sizeof *batch);
	return count == AT_ONCE;
}

/* Calls name their callers by address: what those lie in is told first. */
static void tell_modules(void)
{
	struct thread *self = thread_self();
	if (self)
		modules_tell(self);
}

/* What was asked for when nothing was asked of it. */
static void forget_unplanned(void)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (modules[i].dynamic && !modules[i].plan)
			memset(&modules[i], 0, sizeof modules[i]);
}

static void place_all(enum moment moment)
{
	int saved_errno = *hook_errno();
	this_thread.busy++;
	__atomic_store_n(&patch_pending, 0, __ATOMIC_RELAXED);
	/* Release: its head is right from the start; the collector may be asked to apply what is placed first. */
	__atomic_store_n(&the_arena.shared->placements, (uint64_t)&placements, __ATOMIC_RELEASE);
	struct found_list *list = found_list_take();
	if (list && moment != AT_START) {
		forget_gone(list);
		forget_replaced();
		tell_modules();
	}
	if (moment == STOPPED)
		forget_unplanned();
	while (list && place_batch(moment, list))
		;
	found_list_free(list);
	this_thread.busy--;
	*hook_errno() = saved_errno;
}

void patch_modules(void)
{
	static int begun; /* the constructor's call is the first, on the only thread */
	int at_start = !begun && !hooks_are_late();
	begun = 1;
	late_slots_look();
	if (!is_wanted() || !begin_placing())
		return;
	place_all(at_start ? AT_START : AT_WORK);
	end_placing();
}

/*
 * Calls of dlclose under way, in the low half (the high half: image + 1, as a fork child finds its parent's), and whether
 * modules are looked at without handles. Either sets its own and then looks at the other's, sequentially consistent: one of
 * them sees the other.
 */
static uint64_t closing;
static uint32_t without_handles;

static void add_closing(int by)
{
	uint64_t seen = __atomic_load_n(&closing, __ATOMIC_RELAXED), next, self = (uint64_t)(the_program.image_index + 1) << 32;
	do {
		uint32_t count = seen >> 32 == self >> 32 ? (uint32_t)seen : 0;
		next = self | (by > 0 ? count + 1 : count ? count - 1 : 0);
	} while (!__atomic_compare_exchange_n(&closing, &seen, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

static int is_closing(void)
{
	uint64_t seen = __atomic_load_n(&closing, __ATOMIC_SEQ_CST);
	return seen >> 32 == the_program.image_index + 1ul && (uint32_t)seen;
}

enum patch_tried patch_modules_try(const char **why)
{
	enum patch_tried tried = PATCH_AGAIN;
	if (!is_wanted())
		return PATCH_NOT_HERE;
	if (!try_placing())
		return PATCH_AGAIN;
	__atomic_store_n(&without_handles, 1, __ATOMIC_SEQ_CST);
	if (!is_closing()) {
		without_plan = 0;
		place_all(STOPPED);
		*why = without_plan;
		tried = PATCH_PLACED;
	}
	__atomic_store_n(&without_handles, 0, __ATOMIC_RELEASE);
	end_placing();
	return tried;
}

void patch_closing(void)
{
	add_closing(1);
	for (int i = 0; __atomic_load_n(&without_handles, __ATOMIC_SEQ_CST) && system_calls_allowed() && i < 20000; i++) /* 2 s */
		raw_sleep_ns(100000);
}

void patch_mapping_moved(uintptr_t from, uintptr_t length, uintptr_t to)
{
	for (uint32_t i = 0; i < module_count; i++) {
		struct patch_module *module = &modules[i];
		uintptr_t plan = (uintptr_t)module->plan - from, control = (uintptr_t)module->control - from;
		if (plan >= length && control >= length)
			continue;
		if (!to) { /* known, and not hooked */
			module->plan = 0;
			module->placement = 0;
			continue;
		}
		if (plan < length)
			module->plan = (const struct lorg_plan *)(to + plan);
		if (control < length)
			module->control = (struct lorg_control *)(to + control);
	}
}

void patch_opened(void *handle)
{
	if (handle)
		patch_modules();
}

/* The slot's record among those that have been placed. */
struct lorg_slot_change *patch_slot_record(uint64_t address)
{
	for (uint32_t i = 0; i < placements.count; i++) {
		const struct lorg_placement *placement = &placements.entry[i];
		struct lorg_slot_change *changes = (struct lorg_slot_change *)placement->slots;
		for (uint32_t k = 0; changes && placement->state == LORG_PLACEMENT_PLACED && k < placement->slot_count; k++)
			if (changes[k].address == address)
				return &changes[k];
	}
	return 0;
}

void patch_closed(void)
{
	late_slots_forget_gone();
	add_closing(-1);
	/* Also while nothing is asked: what comes to the same place later is another. */
	if (!module_count || !is_possible() || !begin_placing())
		return;
	int saved_errno = *hook_errno();
	struct found_list *list = found_list_take();
	if (list) {
		forget_gone(list);
		forget_replaced();
	}
	found_list_free(list);
	end_placing();
	*hook_errno() = saved_errno;
}
