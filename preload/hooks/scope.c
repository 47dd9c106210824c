/* SPDX-License-Identifier: MIT */
/* scope.c: see scope.h. The lists of objects are rebuilt from what each says that it needs. */
#include "preload/hooks/scope.h"

#include <elf.h>

#include "preload/resolve/resolve.h"

enum { SCOPE_OBJECTS = 64 };

/* Objects in the order of a search: breadth first, each once. */
struct scope {
	const struct link_map *objects[SCOPE_OBJECTS];
	unsigned count;
};

static const char *strings_of(const struct link_map *object)
{
	for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_STRTAB)
			return (const char *)(entry->d_un.d_ptr < object->l_addr ? entry->d_un.d_ptr + object->l_addr
										 : entry->d_un.d_ptr);
	return 0;
}

static void scope_add(struct scope *scope, const struct link_map *object)
{
	for (unsigned i = 0; i < scope->count; i++)
		if (scope->objects[i] == object)
			return;
	if (object && scope->count < SCOPE_OBJECTS)
		scope->objects[scope->count++] = object;
}

static void scope_add_needed(struct scope *scope, const struct link_map *object)
{
	const char *strings = strings_of(object);
	for (const ElfW(Dyn) *entry = object->l_ld; strings && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED)
			scope_add(scope, object_find(strings + entry->d_un.d_val));
}

/* True of objects that stand before ours: what they define (a sanitizer's interceptor) has been called already. */
static int is_before_us(const struct link_map *object)
{
	const struct link_map *own = link_map_own();
	while (object && object != own)
		object = object->l_next;
	return object != 0;
}

static void *find_in_scope_of(const struct link_map *object, const char *name)
{
	struct scope scope = {.count = 0};
	scope_add(&scope, object);
	for (unsigned i = 0; i < scope.count; i++) {
		void *found = is_before_us(scope.objects[i]) ? 0 : symbol_find_in(scope.objects[i], name, "", 0);
		if (found)
			return found;
		scope_add_needed(&scope, scope.objects[i]);
	}
	return 0;
}

/* The object with the highest base not above the address. */
static const struct link_map *object_with(uintptr_t address)
{
	const struct link_map *best = 0;
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		if (object->l_addr <= address && (!best || object->l_addr > best->l_addr))
			best = object;
	return best;
}

unsigned scope_count(const char *name)
{
	unsigned count = 0;
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		count += !is_before_us(object) && symbol_find_in(object, name, "", 0) != 0;
	return count;
}

void *scope_find(const char *name, uintptr_t caller)
{
	const struct link_map *object = object_with(caller);
	void *found = find_in_scope_of(link_map_first(), name);
	return found || !object ? found : find_in_scope_of(object, name);
}
