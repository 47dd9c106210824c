/* SPDX-License-Identifier: MIT */
/*
 * opened.c: objects that come later. Where functions are hooked, what dlopen
 * has brought is looked at before the program gets the handle.
 *
 * The loader looks at its caller's search path and namespace. Where those may
 * matter, dlopen goes its way as if we were not there, and whoever passes one of
 * our hooks next looks what has come.
 */
#include <dlfcn.h>
#include <link.h>

#include "preload/hook.h"
#include "preload/hooks/opened.h"
#include "preload/patch/patch.h"
#include "preload/resolve/resolve.h"

static void *open_and_look(const char *path, int flags)
{
	void *handle = REAL(dlopen)(path, flags);
	patch_opened(handle);
	return handle;
}

static void *open_in_and_look(long space, const char *path, int flags)
{
	void *handle = REAL(dlmopen)(space, path, flags);
	patch_opened(handle);
	return handle;
}

static int has_entry(const struct link_map *object, ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag)
			return 1;
	return 0;
}

/* The object that holds an address: the caller's, which will not go. Others may, in another thread: nothing is read that could fault. */
static const struct link_map *object_around(uintptr_t address)
{
	const struct link_map *first = link_map_first(), *object = first;
	for (int i = 0; object && i < LORG_MODULES; i++) {
		struct patch_module module;
		struct link_map entry;
		if (memory_peek(&entry, object, offsetof(struct link_map, l_prev)) != offsetof(struct link_map, l_prev))
			return 0;
		if (module_read(&module, entry.l_addr, (uint64_t)entry.l_ld, object == first) == 0 && address >= module.start &&
		    address < module.end)
			return object;
		object = entry.l_next;
	}
	return 0;
}

/* A search path that the loader would not take from liblorg.so, which has none. The program's own it takes for all. */
static int has_search_path(const struct link_map *object)
{
	if (has_entry(object, DT_RUNPATH))
		return 1;
	return object != link_map_first() && has_entry(object, DT_RPATH);
}

/* True where the loader would do the same for any caller in the program's own namespace. */
static int caller_matters_not(const char *path, uintptr_t caller)
{
	int slash = 0;
	if (!path)
		return 0; /* opens nothing: goes its way */
	for (const char *at = path; *at; at++) {
		slash |= *at == '/';
		if (*at == '$')
			return 0;
	}
	const struct link_map *object = object_around(caller);
	return object && (slash || !has_search_path(object));
}

static int hooks_are_wanted(void)
{
	return the_arena.shared && (the_arena.request_count || hooks_are_late()) && !this_thread.busy && system_calls_allowed();
}

void *dlopen_leads_to(const char *path, int flags, long unused, uintptr_t caller)
{
	if (!hooks_are_wanted())
		return (void *)REAL(dlopen);
	patch_look();
	if (caller_matters_not(path, caller))
		return (void *)open_and_look;
	__atomic_store_n(&patch_pending, path != 0, __ATOMIC_RELAXED);
	return (void *)REAL(dlopen);
}

/* A namespace that is named is the same whoever asks, as long as no search path is needed. */
void *dlmopen_leads_to(long space, const char *path, int flags, uintptr_t caller)
{
	if (!hooks_are_wanted())
		return (void *)REAL(dlmopen);
	patch_look();
	if (caller_matters_not(path, caller))
		return (void *)open_in_and_look;
	__atomic_store_n(&patch_pending, path != 0, __ATOMIC_RELAXED);
	return (void *)REAL(dlmopen);
}
