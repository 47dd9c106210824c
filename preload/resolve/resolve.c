/* SPDX-License-Identifier: MIT */
/*
 * resolve.c: the real function behind each hook, found at its first call.
 *
 * The objects that the program started with never go, and stand first in the
 * loader's list in an order that does not change: walking them needs no lock,
 * in any thread, at any time. What is not in them (a C++ library that comes
 * with a plug-in) is looked for behind them, and forgotten before any dlclose,
 * since the object may be the one that goes.
 */
#include <errno.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/resolve/code_hook.h"
#include "preload/resolve/resolve.h"

void *hook_real_functions[HOOK_COUNT];
uint8_t hook_deferred[HOOK_COUNT];
void *hook_passed_on[HOOK_COUNT];
intptr_t hook_errno_offset;
int hook_errno_unknown;

/* 1: not found in the objects of the start. Relaxed: set before the address is, and read only around dlclose. */
static uint8_t found_late[HOOK_COUNT];

/* ---- what stands in for a function that is nowhere ---------------------- */

static long absent_minus_one(void)
{
	*hook_errno() = ENOSYS;
	return -1;
}

static void *absent_null(void)
{
	*hook_errno() = ENOSYS;
	return 0;
}

static long absent_errno(void)
{
	return ENOSYS;
}

static long absent_nothing(void)
{
	return 0;
}

static void absent_exit(void)
{
	for (;;)
		raw_syscall3(SYS_exit_group, 127, 0, 0);
}

/* Read from generated words, not from hook_table: that has pointers, which may not be there yet. */
static void *absent(uint32_t id)
{
	if (hook_absent[id] == HOOK_ABSENT_MINUS_ONE)
		return (void *)absent_minus_one;
	if (hook_absent[id] == HOOK_ABSENT_NULL)
		return (void *)absent_null;
	if (hook_absent[id] == HOOK_ABSENT_ERRNO)
		return (void *)absent_errno;
	if (hook_absent[id] == HOOK_ABSENT_EXIT)
		return (void *)absent_exit;
	return (void *)absent_nothing;
}

/* ---- finding ------------------------------------------------------------ */

/* The last object that the program started with; NULL until the constructor has run. */
static const struct link_map *last_of_start;

const struct link_map *link_map_last_of_start(void)
{
	return last_of_start;
}

/* In the objects behind `after`, `last` the last of them (NULL: all), as the loader would bind it; else any old version. */
static void *find_between(const struct link_map *after, const struct link_map *last, uint32_t id)
{
	const char *name = hook_symbol_text + hook_symbols[id].name, *version = hook_symbol_text + hook_symbols[id].version;
	uint32_t hash = hook_symbols[id].hash;
	void *function = symbol_find_between(after, last, name, hash, version);
	if (!function && version[0])
		function = symbol_find_between(after, last, name, hash, "");
	return function ? function : symbol_find_between(after, last, name, hash, "*");
}

/* Where liblorg.so was loaded while the program ran: a place before the first object, where the search begins. */
static struct link_map before_first;
static int is_late;

/* In what came after the start; liblorg.so itself may stand among that, and is no definition of another. */
static void *find_behind_start(const struct link_map *own, uint32_t id)
{
	void *function;
	if (!is_late)
		return find_between(last_of_start, 0, id);
	function = find_between(last_of_start, own->l_prev, id);
	return function ? function : find_between(own, 0, id);
}

static void *find_real(uint32_t id)
{
	const struct link_map *own = link_map_own();
	if (!own)
		return 0;
	void *function = find_between(is_late ? &before_first : own, last_of_start, id);
	if (function || !last_of_start)
		return function;
	__atomic_store_n(&found_late[id], 1, __ATOMIC_RELAXED);
	return find_behind_start(own, id);
}

void *hook_next_definition(uint32_t id)
{
	return find_real(id);
}

void *hook_resolve(uint32_t id)
{
	void *function = find_real(id);
	function = function ? code_hook_original(function) : absent(id);
	__atomic_store_n(&hook_real_functions[id], function, __ATOMIC_RELAXED);
	return function;
}

static void find_errno(void)
{
	const struct link_map *after = is_late ? &before_first : link_map_own();
	int *(*location)(void) = (int *(*)(void))symbol_find(after, "__errno_location", "");
	uintptr_t thread_pointer;
	if (!location)
		return;
	__asm__("mov %%fs:0, %0" : "=r"(thread_pointer));
	hook_errno_offset = (intptr_t)((uintptr_t)location() - thread_pointer);
}

void hooks_resolve(void)
{
	const struct link_map *object = link_map_own();
	if (!object)
		return;
	while (object->l_next)
		object = object->l_next;
	last_of_start = object;
	find_errno();
}

/* ---- loaded while the program runs ------------------------------------------ */

/* An object of the start is needed by the program, or by one that is; the loader lists them before all that came later. */
static int is_needed_by(const struct link_map *object, const char *wanted)
{
	const char *strings = 0;
	for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_STRTAB)
			strings = (const char *)(entry->d_un.d_ptr < object->l_addr ? entry->d_un.d_ptr + object->l_addr : entry->d_un.d_ptr);
	for (const ElfW(Dyn) *entry = object->l_ld; strings && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED && text_equal(text_base_name(strings + entry->d_un.d_val), wanted))
			return 1;
	return 0;
}

enum { OBJECTS_LOOKED_AT = 1024 };

/* The last object that the program started with. All up to it are there for good, so that they can be read. */
static const struct link_map *last_needed(const struct link_map *first)
{
	const struct link_map *last = first;
	for (const struct link_map *user = first; user; user = user == last ? 0 : user->l_next) {
		const struct link_map *object = last->l_next;
		for (int i = 0; object && i < OBJECTS_LOOKED_AT; i++) {
			struct link_map entry;
			char name[256];
			/* Behind the last, another thread may be in dlclose. */
			if (memory_peek(&entry, object, offsetof(struct link_map, l_prev)) != offsetof(struct link_map, l_prev) || !entry.l_name)
				break;
			name[memory_peek_start_of_text(name, entry.l_name, sizeof name - 1)] = 0;
			if (is_needed_by(user, text_base_name(name)))
				last = object;
			object = entry.l_next;
		}
	}
	return last;
}

int hooks_resolve_late(void)
{
	const struct link_map *first = link_map_first();
	if (!first || !link_map_own())
		return -1;
	before_first.l_next = (struct link_map *)first;
	is_late = 1;
	last_of_start = last_needed(first);
	find_errno();
	return hook_errno_offset ? 0 : -1;
}

int hooks_are_late(void)
{
	return is_late;
}

/* ---- objects that go ----------------------------------------------------- */

void hooks_forget_late(void)
{
	for (uint32_t id = 0; id < HOOK_COUNT; id++) {
		if (!__atomic_load_n(&found_late[id], __ATOMIC_RELAXED) || id == HOOK_dlclose)
			continue;
		__atomic_store_n(&hook_real_functions[id], (void *)0, __ATOMIC_RELAXED);
		__atomic_store_n(&found_late[id], 0, __ATOMIC_RELAXED);
	}
}
