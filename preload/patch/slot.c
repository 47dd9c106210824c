/* SPDX-License-Identifier: MIT */
/*
 * slot.c: pointers of a module that its calls to other modules go through.
 *
 * A slot leads to a function when its value is the function's address. One that
 * the loader has not bound yet leads into the module's own jump table: then the
 * symbol is looked up as the loader would, and what is not certain is left
 * alone (a name that several later objects define).
 */
#include <sys/mman.h>

#include "preload/core/raw.h"
#include "preload/patch/patch.h"
#include "preload/resolve/resolve.h"

enum { PAGE = 4096 };

/* A function that is hooked by slots, as a place in the table of modules. */
struct hooked {
	const struct patch_module *module;
	uint32_t index;
	int by_code;	 /* 1: at its entry too, where the calls through this slot never come */
	uint32_t also;	 /* its other place in the plan + 1, by code, where both are to be come by; 0: none */
	uint64_t wrapper; /* of liblorg.so, that the slot leads to; 0: to the function itself */
};

static uint8_t mark_of(const struct patch_module *module, uint32_t index)
{
	const uint8_t *marks = (const uint8_t *)module->placement->marks;
	return marks ? marks[index] : 0;
}

static int is_hooked_by_slots(const struct patch_module *module, uint32_t index)
{
	return (plan_function(module->plan, index)->flags & LORG_PLAN_SLOTS) && mark_of(module, index) == LORG_STUB_STANDS;
}

/* The place in the plan of the function at `offset`, or UINT32_MAX. */
static uint32_t function_at(const struct lorg_plan *plan, uint64_t offset)
{
	uint32_t low = 0, high = plan->function_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (plan_function(plan, middle)->offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < plan->function_count && plan_function(plan, low)->offset == offset ? low : UINT32_MAX;
}

/* A function may have two places in a plan, one after the other: at its entry, and through slots. */
static int find_places(const struct patch_module *module, uint64_t offset, int also_by_code, struct hooked *found)
{
	uint32_t index = function_at(module->plan, offset), by_code = UINT32_MAX, by_slots = UINT32_MAX;
	for (; index < module->plan->function_count && plan_function(module->plan, index)->offset == offset; index++) {
		if (also_by_code && (mark_of(module, index) & LORG_STUB_CODE))
			by_code = index;
		else if (is_hooked_by_slots(module, index))
			by_slots = index;
	}
	if (by_code == UINT32_MAX && by_slots == UINT32_MAX)
		return 0;
	*found = (struct hooked){.module = module, .index = by_slots, .by_code = by_slots == UINT32_MAX};
	if (by_slots == UINT32_MAX)
		found->index = by_code;
	else if (by_code != UINT32_MAX)
		found->also = by_code + 1;
	return 1;
}

/* also_by_code: calls do not come to its entry; those that are hooked there count too. */
static int find_hooked(const struct patch_module *table, uint32_t count, uint64_t address, int also_by_code, struct hooked *found)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct patch_module *module = &table[i];
		if (!module->plan || !module->placement || address < module->start || address >= module->end)
			continue;
		if (find_places(module, address - module->base, also_by_code, found))
			return 1;
	}
	return 0;
}

static int any_hooked(const struct patch_module *table, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; table[i].plan && table[i].placement && k < table[i].plan->function_count; k++)
			if (is_hooked_by_slots(&table[i], k))
				return 1;
	return 0;
}

/* ---- what is not bound yet ------------------------------------------------- */

/* endbr64 or not, push imm32, and a jump: what a slot leads to before its first call. */
static int is_unbound(const struct patch_module *module, uint64_t value)
{
	static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	const uint8_t *code = (const uint8_t *)value;
	if (value < module->start || value + 16 > module->end)
		return 0;
	if (!memcmp(code, endbr64, sizeof endbr64))
		code += sizeof endbr64;
	return code[0] == 0x68 && (code[5] == 0xe9 || (code[5] == 0xf2 && code[6] == 0xe9));
}

static int has_flag(const struct link_map *object, ElfW(Sxword) tag, ElfW(Xword) bit)
{
	for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag && (entry->d_un.d_val & bit))
			return 1;
	return 0;
}

static int is_symbolic(const struct link_map *object)
{
	return has_flag(object, DT_FLAGS, DF_SYMBOLIC) || has_flag(object, DT_SYMBOLIC, ~(ElfW(Xword))0);
}

static const struct link_map *object_of(const struct link_map *first, const struct patch_module *module)
{
	while (first && !(first->l_addr == module->base && (uint64_t)first->l_ld == module->dynamic))
		first = first->l_next;
	return first;
}

/* The address that an object gives the name; 0: none, or an IFUNC, which is left alone (*found tells). */
static uint64_t address_in(const struct link_map *object, const char *name, const char *version, int *found)
{
	const ElfW(Sym) *symbol = symbol_entry_in(object, name, version);
	if (!symbol)
		return 0;
	*found = 1;
	return ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC ? 0 : object->l_addr + symbol->st_value;
}

/* In the objects behind the start's, where scopes differ: right only where there is one definition. */
static uint64_t only_address(const struct link_map *first, const char *name, const char *version, int *ambiguous)
{
	uint64_t only = 0;
	int definitions = 0;
	for (; first; first = first->l_next) {
		int found = 0;
		uint64_t address = address_in(first, name, version, &found);
		definitions += found;
		only = found ? address : only;
	}
	*ambiguous |= definitions > 1;
	return definitions == 1 ? only : 0;
}

static uint64_t resolve(const struct patch_module *module, const char *name, const char *version, int *ambiguous)
{
	const struct link_map *first = link_map_first(), *last = link_map_last_of_start();
	const struct link_map *own = object_of(first, module);
	int found = 0;
	if (!own) /* in a namespace of its own */
		return 0;
	if (is_symbolic(own)) {
		uint64_t address = address_in(own, name, version, &found);
		if (found)
			return address;
	}
	for (const struct link_map *object = first; object; object = object->l_next) {
		uint64_t address = address_in(object, name, version, &found);
		if (found)
			return address;
		if (object == last)
			return only_address(object->l_next, name, version, ambiguous);
	}
	return 0;
}

/* ---- changing -------------------------------------------------------------- */

struct change {
	struct patch_module *module;
	int open; /* 1: the read-only part of its data is writable just now */
	int failed;
};

static int change_protection(const struct patch_module *module, int protection)
{
	uint64_t start = module->relro_start & ~(uint64_t)(PAGE - 1), end = module->relro_end & ~(uint64_t)(PAGE - 1);
	return end > start && !raw_failed(raw_mprotect((void *)start, end - start, protection));
}

static int is_read_only(const struct patch_module *module, uint64_t address)
{
	return address >= (module->relro_start & ~(uint64_t)(PAGE - 1)) && address < (module->relro_end & ~(uint64_t)(PAGE - 1));
}

static int make_writable(struct change *change, uint64_t address)
{
	if (!is_read_only(change->module, address)) {
		/* It is; but a program may have thought otherwise. */
		return !raw_failed(raw_mprotect((void *)(address & ~(uint64_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE));
	}
	if (!change->open && !change->failed) {
		change->open = change_protection(change->module, PROT_READ | PROT_WRITE);
		change->failed = !change->open;
	}
	return change->open;
}

static void change_end(struct change *change)
{
	if (change->open)
		change_protection(change->module, PROT_READ);
}

static struct lorg_slot_change *next_record(struct lorg_placement *placement, const struct lorg_plan *plan)
{
	if (!placement->slots)
		placement->slots = (uint64_t)patch_memory((uint64_t)plan->slot_count * sizeof(struct lorg_slot_change));
	if (!placement->slots || placement->slot_count >= plan->slot_count)
		return 0;
	return (struct lorg_slot_change *)placement->slots + placement->slot_count;
}

static int is_on(const struct hooked *hooked, uint32_t index)
{
	return __atomic_load_n(&control_function(hooked->module->control, index)->gate, __ATOMIC_RELAXED) != 0;
}

/* What is known of the slot already; NULL: nothing. Modules that come later are looked at anew with all slots. */
static struct lorg_slot_change *known_record(const struct lorg_placement *placement, uint64_t address)
{
	struct lorg_slot_change *records = (struct lorg_slot_change *)placement->slots;
	for (uint32_t i = 0; i < placement->slot_count; i++)
		if (records[i].address == address)
			return &records[i];
	return 0;
}

/* One that nothing is asked of is left as it is, and known. */
static int change_slot(struct change *change, uint64_t address, uint64_t original, const struct hooked *hooked, uint64_t thunk)
{
	struct lorg_placement *placement = change->module->placement;
	struct lorg_slot_change *known = known_record(placement, address);
	struct lorg_slot_change *record = known ? known : next_record(placement, change->module->plan);
	uint64_t now = __atomic_load_n((const uint64_t *)address, __ATOMIC_RELAXED);
	int wanted = is_on(hooked, hooked->index) || (hooked->also && is_on(hooked, hooked->also - 1));
	if (!record || !thunk || (wanted && !make_writable(change, address)))
		return 0;
	*record = (struct lorg_slot_change){.address = address, .original = original, .unbound = now == original ? 0 : now,
		.thunk = thunk, .plan_id = hooked->module->plan->plan_id, .function = hooked->index, .also = hooked->also};
	/* Release: the collector that sees the count sees the record. */
	if (!known)
		__atomic_store_n(&placement->slot_count, placement->slot_count + 1, __ATOMIC_RELEASE);
	if (wanted) /* one store: other threads call through the slot */
		__atomic_store_n((uint64_t *)address, thunk, __ATOMIC_RELEASE);
	return 1;
}

/* What the slot leads to, or would at its first call. 0: not known. */
static uint64_t leads_to(const struct patch_module *module, const struct lorg_plan_slot *slot, int *ambiguous)
{
	uint64_t value = __atomic_load_n((const uint64_t *)(module->base + slot->offset), __ATOMIC_RELAXED);
	if (slot->kind != LORG_SLOT_JUMP || !is_unbound(module, value))
		return value;
	const char *version = slot->version == UINT32_MAX ? "" : plan_name(module->plan, slot->version);
	return resolve(module, plan_name(module->plan, slot->name), version, ambiguous);
}

static int slot_lies_in_data(const struct patch_module *module, uint64_t address)
{
	return address >= module->start && address + 8 <= module->end;
}

/* What is known of a slot of the plan. */
struct slot_lead {
	uint64_t value; /* what it leads to; 0: nothing that is hooked */
	struct hooked hooked;
	uint64_t thunk; /* where it is to lead; 0: there is no room */
};

static int find_lead(const struct patch_module *module, const struct lorg_plan_slot *slot, const struct patch_module *table,
		     uint32_t count, struct slot_lead *lead, struct patch_refusals *refusals)
{
	int ambiguous = 0, goes_on = 1;
	if (!slot_lies_in_data(module, module->base + slot->offset))
		return 0;
	uint64_t value = leads_to(module, slot, &ambiguous), function = value;
	refusals->ambiguous += (uint32_t)ambiguous;
	if (value && wrapper_is_at(value))
		function = wrapped_function(plan_name(module->plan, slot->name),
					    slot->version == UINT32_MAX ? "" : plan_name(module->plan, slot->version), &goes_on);
	if (!function || !find_hooked(table, count, function, !goes_on, &lead->hooked))
		return 0;
	lead->hooked.wrapper = wrapper_is_at(value) ? value : 0;
	lead->value = value;
	return 1;
}

/* To the function's own thunk at its entry, from which it goes on at the wrapper; and before that by slots, where both count. */
static uint64_t write_thunks(uint8_t **at, const struct hooked *hooked)
{
	uint64_t body = hooked->wrapper;
	if (hooked->also) {
		if (extra_thunk(*at, hooked->module, hooked->also - 1, body, LORG_KIND_LOCAL))
			return 0;
		body = (uint64_t)*at;
		*at += LORG_THUNK_SIZE;
	}
	if (extra_thunk(*at, hooked->module, hooked->index, body, hooked->by_code ? LORG_KIND_LOCAL : LORG_KIND_GLOBAL))
		return 0;
	*at += LORG_THUNK_SIZE;
	return (uint64_t)(*at - LORG_THUNK_SIZE);
}

/* Slots that lead to wrappers get thunks of their own. */
static void make_thunks(const struct patch_module *module, struct slot_lead *leads, uint32_t wrapped)
{
	uint64_t size = (uint64_t)wrapped * LORG_THUNK_SIZE;
	uint8_t *thunks = wrapped ? any_memory(size) : 0, *at = thunks;
	for (uint32_t i = 0; i < module->plan->slot_count; i++) {
		const struct hooked *hooked = &leads[i].hooked;
		if (!leads[i].value)
			continue;
		if (!hooked->wrapper) {
			leads[i].thunk = stub_of(hooked->module->placement, hooked->module->plan, hooked->index);
		} else if (thunks) {
			leads[i].thunk = write_thunks(&at, hooked);
		}
	}
	if (!thunks || !near_seal(thunks, size))
		return;
	for (uint32_t i = 0; i < module->plan->slot_count; i++)
		if (leads[i].hooked.wrapper)
			leads[i].thunk = 0;
}

static void change_slots(struct patch_module *module, struct slot_lead *leads, const struct patch_module *table, uint32_t count,
			 struct patch_refusals *refusals)
{
	struct change change = {.module = module};
	uint32_t wrapped = 0;
	for (uint32_t i = 0; i < module->plan->slot_count; i++)
		if (find_lead(module, plan_slot(module->plan, i), table, count, &leads[i], refusals))
			wrapped += (leads[i].hooked.wrapper != 0) + (leads[i].hooked.also != 0);
	make_thunks(module, leads, wrapped);
	for (uint32_t i = 0; i < module->plan->slot_count; i++) {
		uint64_t address = module->base + plan_slot(module->plan, i)->offset;
		if (leads[i].value && !change_slot(&change, address, leads[i].value, &leads[i].hooked, leads[i].thunk))
			refusals->unwritable++;
	}
	change_end(&change);
}

void slots_place(struct patch_module *module, const struct patch_module *table, uint32_t count, struct patch_refusals *refusals)
{
	if (!module->plan || !module->plan->slot_count || !module->placement || !(any_hooked(table, count) || wrapped_any(table, count)))
		return;
	uint64_t size = (uint64_t)module->plan->slot_count * sizeof(struct slot_lead);
	struct slot_lead *leads = any_memory(size);
	if (!leads) {
		refusals->unwritable += module->plan->slot_count;
		return;
	}
	change_slots(module, leads, table, count, refusals);
	raw_munmap(leads, (size + PAGE - 1) & ~(uint64_t)(PAGE - 1));
}
