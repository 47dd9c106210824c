/* SPDX-License-Identifier: MIT */
/* late_slots.c: see late_slots.h. */
#include "preload/patch/late_slots.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/core/thread.h"
#include "preload/hook.h"
#include "preload/patch/patch.h"
#include "preload/resolve/resolve.h"

enum {
	PAGE = 4096,
	MODULES = LORG_MODULES,
	NOTES = 16384,    /* slots that are changed, in all */
	CANDIDATES = 512, /* of one module that may be read otherwise than by calls */
	SEGMENTS = 64,
	VERSION_INDEX = 0x7fff,
	SETTLE_NS = 2000000, /* the loader binds a slot in less */
};

/* A slot that has been changed. */
struct note {
	uint64_t address, original, wrapper;
	uint32_t module;  /* its place in modules[] */
	uint32_t unbound; /* 1: the loader may bind it and so undo the change */
};

struct module {
	uint64_t base, dynamic; /* dynamic 0: a place that is free */
	uint8_t stays;
};

/* Owner: whoever holds `lock`. */
static struct module modules[MODULES];
static uint32_t module_count;
static struct note *notes;
static uint32_t note_count;

/* 1 while slots are to be changed; atomic. */
static uint32_t wanted;

/* Who is at it: as in patch.c, by thread and image, since a fork child finds there what its parent was at. Atomic. */
static uint64_t lock;

static int take_lock(void)
{
	uint64_t self = (uint64_t)(uintptr_t)&this_thread | (uint64_t)(the_program.image_index + 1) << 48;
	uint64_t seen = __atomic_load_n(&lock, __ATOMIC_RELAXED);
	/* Acquire: pairs with the release of who had it before. */
	return seen >> 48 != self >> 48 &&
	       __atomic_compare_exchange_n(&lock, &seen, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void give_lock(void)
{
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

/* ---- what a row stands for --------------------------------------------------------- */

/* The functions behind the rows, as found so far; 0: not looked for yet, 1: there is none. */
static uint64_t functions[HOOK_COUNT];

static uint64_t function_of(uint32_t id)
{
	if (!functions[id]) {
		uint64_t found = (uint64_t)hook_next_definition(id);
		functions[id] = found ? found : 1;
	}
	return functions[id];
}

/* What was found behind the objects of the start may have gone. */
static void forget_functions(void)
{
	memset(functions, 0, sizeof functions);
}

/* The row whose wrapper is exported under that name and version; HOOK_COUNT: none. */
static uint32_t row_of(const char *name, const char *version)
{
	for (uint32_t id = 0; id < HOOK_COUNT; id++)
		if (text_equal(hook_table[id].name, name) &&
		    (!hook_table[id].version || !version[0] || text_equal(hook_table[id].version, version)))
			return id;
	return HOOK_COUNT;
}

/* ---- a module's relocations ---------------------------------------------------------- */

struct object {
	const struct link_map *map;
	struct patch_module module;
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint16_t *versions;
	const ElfW(Verneed) * needed;
	uint32_t needed_count;
	const ElfW(Rela) * jumps, *others;
	uint64_t jump_count, other_count;
	int open; /* 1: the read-only part of its data is writable just now */
};

static const void *address_in(const struct link_map *map, uint64_t value)
{
	return (const void *)(value < map->l_addr ? value + map->l_addr : value);
}

static void read_dynamic(struct object *object)
{
	const struct link_map *map = object->map;
	int has_addends = 0;
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		const void *address = address_in(map, entry->d_un.d_ptr);
		switch (entry->d_tag) {
		case DT_SYMTAB: object->symbols = address; break;
		case DT_STRTAB: object->strings = address; break;
		case DT_VERSYM: object->versions = address; break;
		case DT_VERNEED: object->needed = address; break;
		case DT_VERNEEDNUM: object->needed_count = (uint32_t)entry->d_un.d_val; break;
		case DT_JMPREL: object->jumps = address; break;
		case DT_PLTRELSZ: object->jump_count = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
		case DT_RELA: object->others = address; break;
		case DT_RELASZ: object->other_count = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
		case DT_PLTREL: has_addends = entry->d_un.d_val == DT_RELA; break;
		default: break;
		}
	}
	if (!has_addends)
		object->jump_count = 0;
}

static const char *version_of(const struct object *object, uint32_t symbol)
{
	const ElfW(Verneed) *needed = object->needed;
	uint32_t index = object->versions ? object->versions[symbol] & VERSION_INDEX : 0;
	for (uint32_t i = 0; index > VER_NDX_GLOBAL && needed && i < object->needed_count; i++) {
		const ElfW(Vernaux) *one = (const void *)((const char *)needed + needed->vn_aux);
		for (uint32_t k = 0; k < needed->vn_cnt; k++) {
			if ((one->vna_other & VERSION_INDEX) == index)
				return object->strings + one->vna_name;
			one = (const void *)((const char *)one + one->vna_next);
		}
		needed = (const void *)((const char *)needed + needed->vn_next);
	}
	return "";
}

/* ---- slots that are read otherwise ----------------------------------------------------- */

/* A slot that is to be changed. */
struct candidate {
	uint64_t address, value, wrapper;
	uint32_t unbound;
	uint32_t is_data; /* not a slot of the jump table: only where all uses are calls */
};

struct candidates {
	struct candidate at[CANDIDATES];
	uint32_t count;
	uint64_t low, high; /* addresses of the data slots */
};

static void drop_data_slot(struct candidates *candidates, uint64_t address)
{
	for (uint32_t i = 0; i < candidates->count; i++)
		if (candidates->at[i].is_data && candidates->at[i].address == address)
			candidates->at[i].value = 0;
}

struct __attribute__((packed)) displacement {
	int32_t value;
};

/* code[at] is taken for the displacement of an operand that is counted from the instruction's end. */
static void look_at_displacement(struct candidates *candidates, const uint8_t *code, uint64_t at)
{
	static const uint8_t behind[] = {0, 1, 2, 4};
	int64_t displacement = ((const struct displacement *)(code + at))->value;
	uint64_t target = (uint64_t)code + at + 4 + (uint64_t)displacement;
	if (__builtin_expect(target + 4 < candidates->low || target > candidates->high, 1))
		return;
	int is_call = code[at - 2] == 0xff && (code[at - 1] == 0x15 || code[at - 1] == 0x25);
	for (unsigned i = is_call; i < sizeof behind; i++)
		drop_data_slot(candidates, target + behind[i]);
}

struct __attribute__((packed)) eight_bytes {
	uint64_t value;
};

/* The highest bits of those of eight bytes that could stand before such a displacement: mod 0, r/m 5. */
static uint64_t modes_in(const uint8_t *code)
{
	static const uint64_t each = 0x0101010101010101;
	uint64_t bytes = (((const struct eight_bytes *)code)->value & each * 0xc7) ^ each * 0x05;
	return ~(((bytes & each * 0x7f) + each * 0x7f) | bytes | each * 0x7f);
}

/*
 * Every byte is taken for the displacement of an operand that is counted from the instruction's end, with no, a short or a
 * long immediate behind it: a use that is not `call *slot` or `jmp *slot` is found, whatever else is. The thread waits for
 * this, and the code may be of many MiB.
 */
static void look_for_uses(struct candidates *candidates, const uint8_t *code, uint64_t size)
{
	uint64_t at = 2;
	for (; at + 12 <= size; at += 8)
		for (uint64_t modes = modes_in(code + at - 1); modes; modes &= modes - 1)
			look_at_displacement(candidates, code, at + (unsigned)__builtin_ctzll(modes) / 8);
	for (; at + 4 <= size; at++)
		if ((code[at - 1] & 0xc7) == 0x05)
			look_at_displacement(candidates, code, at);
}

static void look_at_code(const struct object *object, struct candidates *candidates)
{
	uint64_t address = auxiliary_value(AT_PHDR), count = auxiliary_value(AT_PHNUM);
	const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)object->module.base;
	if (!object->module.is_main) {
		address = object->module.base + head->e_phoff;
		count = head->e_phnum;
	}
	for (uint64_t i = 0; i < count && i < SEGMENTS; i++) {
		const ElfW(Phdr) *header = (const ElfW(Phdr) *)address + i;
		if (header->p_type == PT_LOAD && (header->p_flags & PF_X) && (header->p_flags & PF_R))
			look_for_uses(candidates, (const uint8_t *)object->module.base + header->p_vaddr, header->p_filesz);
		else if (header->p_type == PT_LOAD && (header->p_flags & PF_X)) /* code that cannot be read */
			for (uint32_t k = 0; k < candidates->count; k++)
				if (candidates->at[k].is_data)
					candidates->at[k].value = 0;
	}
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* endbr64 or not, push imm32, and a jump: what a slot leads to before its first call. */
static int is_unbound(const struct object *object, uint64_t value)
{
	static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
	const uint8_t *code = (const uint8_t *)value;
	if (value < object->module.start || value + 16 > object->module.end)
		return 0;
	if (!memcmp(code, endbr64, sizeof endbr64))
		code += sizeof endbr64;
	return code[0] == 0x68 && (code[5] == 0xe9 || (code[5] == 0xf2 && code[6] == 0xe9));
}

static int is_symbolic(const struct object *object)
{
	for (const ElfW(Dyn) *entry = object->map->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_SYMBOLIC || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_SYMBOLIC)))
			return 1;
	return 0;
}

/*
 * What an unbound slot will lead to is known where the objects of the start define the name: they are searched first, but
 * for an object that searches itself first.
 */
static int will_lead_to(const struct object *object, const char *name, const char *version, uint64_t function)
{
	const struct link_map *last = link_map_last_of_start();
	if (is_symbolic(object) && symbol_entry_in(object->map, name, version))
		return 0;
	for (const struct link_map *map = link_map_first(); map; map = map->l_next) {
		if (symbol_entry_in(map, name, version))
			return (uint64_t)symbol_find_in(map, name, version, 0) == function;
		if (map == last)
			return 0;
	}
	return 0;
}

static void consider(struct object *object, const ElfW(Rela) * relocation, struct candidates *candidates)
{
	uint32_t type = (uint32_t)ELF64_R_TYPE(relocation->r_info), symbol = (uint32_t)ELF64_R_SYM(relocation->r_info);
	uint64_t address = object->module.base + relocation->r_offset;
	if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) || !symbol || candidates->count == CANDIDATES ||
	    address % 8 || address < object->module.start || address + 8 > object->module.end)
		return;
	const char *name = object->strings + object->symbols[symbol].st_name, *version = version_of(object, symbol);
	const ElfW(Sym) *own = symbol_entry_in(link_map_own(), name, version);
	uint32_t id = own ? row_of(name, version) : HOOK_COUNT;
	uint64_t function = id == HOOK_COUNT ? 1 : function_of(id);
	uint64_t value = __atomic_load_n((const uint64_t *)address, __ATOMIC_RELAXED);
	int unbound = function > 1 && value != function && type == R_X86_64_JUMP_SLOT && is_unbound(object, value);
	if (function <= 1 || (value != function && !(unbound && will_lead_to(object, name, version, function))))
		return;
	candidates->at[candidates->count++] = (struct candidate){.address = address,
								 .value = value,
								 .unbound = (uint32_t)unbound,
								 .wrapper = link_map_own()->l_addr + own->st_value,
								 .is_data = type == R_X86_64_GLOB_DAT};
}

static void choose(struct object *object, struct candidates *candidates)
{
	candidates->count = 0;
	candidates->low = UINT64_MAX;
	candidates->high = 0;
	for (uint64_t i = 0; object->jumps && i < object->jump_count; i++)
		consider(object, &object->jumps[i], candidates);
	for (uint64_t i = 0; object->others && i < object->other_count; i++)
		consider(object, &object->others[i], candidates);
	for (uint32_t i = 0; i < candidates->count; i++) {
		if (!candidates->at[i].is_data)
			continue;
		if (candidates->at[i].address < candidates->low)
			candidates->low = candidates->at[i].address;
		if (candidates->at[i].address > candidates->high)
			candidates->high = candidates->at[i].address;
	}
	if (candidates->high)
		look_at_code(object, candidates);
}

/* ---- changing -------------------------------------------------------------------------------- */

static uint64_t page_of(uint64_t address)
{
	return address & ~(uint64_t)(PAGE - 1);
}

static int is_read_only(const struct patch_module *module, uint64_t address)
{
	return address >= page_of(module->relro_start) && address < page_of(module->relro_end);
}

static int protect(const struct patch_module *module, int protection)
{
	uint64_t start = page_of(module->relro_start), end = page_of(module->relro_end);
	return end > start && !raw_failed(raw_mprotect((void *)start, end - start, protection));
}

/* One store: other threads call through the slot. False: it has another value by now. */
static int exchange(uint64_t address, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n((uint64_t *)address, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static long change(struct object *object, const struct candidates *candidates, uint32_t place)
{
	long count = 0;
	for (uint32_t i = 0; i < candidates->count && note_count < NOTES; i++) {
		const struct candidate *one = &candidates->at[i];
		if (!one->value)
			continue;
		if (is_read_only(&object->module, one->address) && !object->open &&
		    !(object->open = protect(&object->module, PROT_READ | PROT_WRITE)))
			continue;
		/* Noted first: a fork child of another thread may have the one without the other, and must know the slot. */
		notes[note_count] = (struct note){one->address, one->value, one->wrapper, place, one->unbound};
		note_count++;
		if (exchange(one->address, one->value, one->wrapper))
			count++;
		else if (!one->unbound)
			note_count--;
	}
	if (object->open)
		protect(&object->module, PROT_READ);
	object->open = 0;
	return count;
}

/* ---- modules ----------------------------------------------------------------------------------- */

struct entry {
	struct link_map map; /* a copy */
	const struct link_map *place;
};

/* 0 at the end of the list. Another thread may be in dlclose: nothing is read that could fault. */
static int copy_entry(struct entry *entry, const struct link_map *place)
{
	entry->place = place;
	return place &&
	       memory_peek(&entry->map, place, offsetof(struct link_map, l_prev)) == offsetof(struct link_map, l_prev);
}

static int is_ours_or_loaders(const struct entry *entry)
{
	return entry->place == link_map_own() || entry->map.l_addr == auxiliary_value(AT_SYSINFO_EHDR) ||
	       entry->map.l_addr == auxiliary_value(AT_BASE);
}

static int is_known(const struct entry *entry)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (modules[i].dynamic == (uint64_t)entry->map.l_ld && modules[i].base == entry->map.l_addr)
			return 1;
	return 0;
}

static uint32_t new_place(void)
{
	for (uint32_t i = 0; i < module_count; i++)
		if (!modules[i].dynamic)
			return i;
	return module_count < MODULES ? module_count++ : MODULES;
}

/* What came by a handle of another thread's might go under our hands. NULL: it has gone. */
static void *hold(const struct entry *entry)
{
	char name[512];
	name[memory_peek_start_of_text(name, entry->map.l_name, sizeof name - 1)] = 0;
	void *handle = REAL(dlopen)(name, RTLD_LAZY | RTLD_NOLOAD);
	if (handle && handle != (const void *)entry->place) {
		REAL(dlclose)(handle);
		handle = 0;
	}
	return handle;
}

static long place_in(const struct entry *entry, int stays, int is_main, struct candidates *candidates)
{
	struct object object = {.map = entry->place};
	long count = 0;
	void *handle = stays ? 0 : hold(entry);
	uint32_t place;
	if ((!stays && !handle) || module_read(&object.module, entry->map.l_addr, (uint64_t)entry->map.l_ld, is_main) ||
	    (place = new_place()) == MODULES) {
		if (handle)
			REAL(dlclose)(handle);
		return 0;
	}
	modules[place] = (struct module){entry->map.l_addr, (uint64_t)entry->map.l_ld, (uint8_t)stays};
	read_dynamic(&object);
	if (object.symbols && object.strings) {
		choose(&object, candidates);
		count = change(&object, candidates, place);
	}
	if (handle)
		REAL(dlclose)(handle);
	return count;
}

static long place_in_new(struct candidates *candidates)
{
	const struct link_map *last = link_map_last_of_start(), *first = link_map_first(), *next = first;
	int stays = 1;
	long count = 0;
	struct entry entry;
	for (int i = 0; i < MODULES && copy_entry(&entry, next); i++) {
		next = entry.map.l_next;
		if (!is_ours_or_loaders(&entry) && !is_known(&entry))
			count += place_in(&entry, stays, entry.place == first, candidates);
		stays = stays && entry.place != last;
	}
	return count;
}

static int is_loaded(const struct module *module)
{
	struct entry entry;
	const struct link_map *next = link_map_first();
	for (int i = 0; i < MODULES && copy_entry(&entry, next); i++) {
		next = entry.map.l_next;
		if (entry.map.l_addr == module->base && (uint64_t)entry.map.l_ld == module->dynamic)
			return 1;
	}
	return 0;
}

static void forget_notes_of(uint32_t place)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < note_count; i++)
		if (notes[i].module != place)
			notes[kept++] = notes[i];
	note_count = kept;
}

static void forget_gone(void)
{
	for (uint32_t i = 0; i < module_count; i++) {
		if (!modules[i].dynamic || modules[i].stays || is_loaded(&modules[i]))
			continue;
		forget_notes_of(i);
		modules[i].dynamic = 0;
	}
}

/* False: its module has gone. */
static int read_slot(const struct note *note, uint64_t *value)
{
	if (!modules[note->module].stays)
		return memory_peek(value, (void *)note->address, sizeof *value) == sizeof *value;
	*value = __atomic_load_n((const uint64_t *)note->address, __ATOMIC_RELAXED);
	return 1;
}

/* A thread that was in the middle of binding a slot has undone its change. It will not again: the slot is bound. */
static void settle(void)
{
	for (uint32_t i = 0; i < note_count; i++) {
		uint64_t value;
		if (!notes[i].unbound || !read_slot(&notes[i], &value) || value == notes[i].wrapper ||
		    value == notes[i].original || wrapper_is_at(value))
			continue;
		if (exchange(notes[i].address, value, notes[i].wrapper)) {
			notes[i].original = value;
			notes[i].unbound = 0;
		}
	}
}

static int memory_is_had(void)
{
	if (!notes)
		notes = any_memory(NOTES * sizeof *notes);
	return notes != 0;
}

static long place_all(void)
{
	struct candidates *candidates = memory_is_had() ? any_memory(sizeof *candidates) : 0;
	if (!candidates)
		return 0;
	int saved_errno = *hook_errno();
	this_thread.busy++;
	forget_functions();
	forget_gone();
	long count = place_in_new(candidates);
	raw_munmap(candidates, (sizeof *candidates + PAGE - 1) & ~(size_t)(PAGE - 1));
	settle();
	this_thread.busy--;
	*hook_errno() = saved_errno;
	return count;
}

long late_slots_place(void)
{
	if (!take_lock())
		return -1;
	__atomic_store_n(&wanted, 1, __ATOMIC_RELAXED);
	long count = place_all();
	give_lock();
	return count;
}

void late_slots_settle(void)
{
	int saved_errno = *hook_errno();
	raw_sleep_ns(SETTLE_NS);
	if (take_lock()) { /* else another is at it, and settles them */
		this_thread.busy++;
		settle();
		this_thread.busy--;
		give_lock();
	}
	*hook_errno() = saved_errno;
}

void late_slots_look(void)
{
	if (__builtin_expect(!__atomic_load_n(&wanted, __ATOMIC_RELAXED), 1) || !system_calls_allowed() ||
	    this_thread.vfork_child)
		return;
	__atomic_store_n(&patch_pending, 0, __ATOMIC_RELAXED);
	if (!take_lock()) { /* whoever comes by next looks */
		__atomic_store_n(&patch_pending, 1, __ATOMIC_RELAXED);
		return;
	}
	place_all();
	give_lock();
}

void late_slots_forget_gone(void)
{
	if (__builtin_expect(!__atomic_load_n(&wanted, __ATOMIC_RELAXED), 1) || !system_calls_allowed() || !take_lock())
		return;
	forget_gone();
	give_lock();
}

/* ---- taking back ---------------------------------------------------------------------------------- */

/* The slot leads to a thunk of a hooked function now, whose record knows the wrapper as what was there. */
static void take_from_thunk(const struct note *note, uint64_t value)
{
	struct lorg_slot_change *record = patch_slot_record(note->address);
	if (record && record->original == note->wrapper && value == record->thunk) {
		record->original = note->original;
		exchange(note->address, value, note->original);
	}
}

/* The module whose slots are put back just now: notes of a module stand together. */
struct putting_back {
	struct patch_module module;
	uint64_t base;
	int open; /* 1: the read-only part of its data is writable just now */
};

static void close_module(struct putting_back *putting)
{
	if (putting->open)
		protect(&putting->module, PROT_READ);
	putting->open = 0;
}

static void enter_module(struct putting_back *putting, const struct module *of)
{
	if (putting->base == of->base)
		return;
	close_module(putting);
	putting->base = of->base;
	if (module_read(&putting->module, of->base, of->dynamic, of->stays && of->base == link_map_first()->l_addr))
		memset(&putting->module, 0, sizeof putting->module);
}

static void take_back(const struct note *note, struct putting_back *putting)
{
	uint64_t value;
	enter_module(putting, &modules[note->module]);
	if (!read_slot(note, &value))
		return;
	if (is_read_only(&putting->module, note->address) && !putting->open &&
	    !(putting->open = protect(&putting->module, PROT_READ | PROT_WRITE)))
		return;
	if (!exchange(note->address, note->wrapper, note->original) && value != note->wrapper)
		take_from_thunk(note, value);
}

long late_slots_take_back(void)
{
	struct putting_back putting = {.base = UINT64_MAX};
	if (!take_lock())
		return -1;
	__atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
	this_thread.busy++;
	forget_gone();
	long count = note_count;
	for (uint32_t i = 0; i < note_count; i++)
		take_back(&notes[i], &putting);
	close_module(&putting);
	note_count = 0;
	memset(modules, 0, sizeof modules);
	module_count = 0;
	this_thread.busy--;
	give_lock();
	return count;
}
