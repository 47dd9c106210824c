/* SPDX-License-Identifier: MIT */
/*
 * wrapped.c: slots that lead to a wrapper of liblorg.so instead of the function
 * that is to be hooked. Such a slot gets a thunk of its own, from which the
 * call goes on to the wrapper.
 */
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/patch/patch.h"
#include "preload/resolve/resolve.h"

extern HIDDEN const char __ehdr_start[], _end[];

/*
 * Wrappers that do the function's work themselves or by another one: calls never come to its entry. lorgd has to know them, too
 * (is_done_by_wrapper in collector/session/functions.c).
 */
static const uint16_t never_go_on[] = {HOOK_execv, HOOK_execvp, HOOK_execl, HOOK_execle, HOOK_execlp, HOOK_vfork, HOOK___vfork};

int wrapper_is_at(uint64_t address)
{
	return address >= (uint64_t)__ehdr_start && address < (uint64_t)_end;
}

static int wrapper_goes_on(uint32_t id)
{
	for (unsigned i = 0; i < sizeof never_go_on / sizeof *never_go_on; i++)
		if (never_go_on[i] == id)
			return 0;
	return 1;
}

static int is_same(const char *one, const char *other)
{
	return text_begins(one, other) && strlen(one) == strlen(other);
}

static int has_version(const struct hook *hook, const char *version)
{
	return !hook->version || !version[0] || is_same(hook->version, version);
}

uint64_t wrapped_function(const char *name, const char *version, int *goes_on)
{
	for (uint32_t id = 0; id < HOOK_COUNT; id++) {
		if (!is_same(hook_table[id].name, name) || !has_version(&hook_table[id], version))
			continue;
		*goes_on = wrapper_goes_on(id);
		return (uint64_t)hook_next_definition(id);
	}
	return 0;
}

int wrapped_any(const struct patch_module *table, uint32_t count)
{
	for (unsigned i = 0; i < sizeof never_go_on / sizeof *never_go_on; i++) {
		uint64_t address = (uint64_t)hook_next_definition(never_go_on[i]);
		for (uint32_t k = 0; address && k < count; k++)
			if (table[k].plan && address >= table[k].start && address < table[k].end)
				return 1;
	}
	return 0;
}
