/* SPDX-License-Identifier: MIT */
/*
 * start.c: the first code of liblorg.so that runs, before any other
 * constructor of the program and before libc has set `environ`.
 *
 * It takes LD_PRELOAD and LORG out of the environment so that nothing shows
 * they were there, finds the real functions, attaches to the arena and places
 * the code hooks. Whatever fails leaves a library that only forwards.
 *
 * Rules: no call that can be hooked, errno stays 0, nothing is left open.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>

#include "preload/core/attach_late.h"
#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/core/reach.h"
#include "preload/hook.h"
#include "preload/hooks/exit.h"
#include "preload/patch/patch.h"
#include "preload/resolve/code_hook.h"
#include "preload/resolve/resolve.h"

static const char preload_variable[] = "LD_PRELOAD=";
static const char lorg_variable[] = LORG_ENVIRONMENT "=";

/* True of a path, of `length` bytes, whose last part is `name`. */
static int ends_in_name(const char *path, size_t length, const char *name)
{
	size_t own = strlen(name);
	return length >= own && !memcmp(path + length - own, name, own) && (length == own || path[length - own - 1] == '/');
}

static int is_named(const char *path, const char *name)
{
	return path && ends_in_name(path, strlen(path), name);
}

static int is_named_liblorg(const char *path, size_t length)
{
	return ends_in_name(path, length, "liblorg.so");
}

/* Our entry of LD_PRELOAD. Sanitizers stand before it, what the user asked for behind it. */
static int preload_path_parse(const char *list, struct lorg_settings *settings)
{
	while (*list) {
		size_t length = 0;
		while (list[length] && list[length] != ':' && list[length] != ' ')
			length++;
		if (is_named_liblorg(list, length) && length < sizeof settings->preload_path) {
			memcpy(settings->preload_path, list, length);
			return 1;
		}
		list += length + (list[length] != 0);
	}
	return 0;
}

/*
 * Ends envp before its last two words. They become one entry that the auxiliary vector's readers skip, so that who
 * walks from the end of envp to that vector still finds it. The strings become zeros: /proc/PID/environ shows them.
 */
static void environment_cut(char **envp, int count)
{
	char *preload = envp[count - 2], *lorg = envp[count - 1];
	memset(preload, 0, strlen(preload));
	memset(lorg, 0, strlen(lorg));
	uintptr_t *words = (uintptr_t *)(void *)envp;
	words[count - 2] = 0;
	words[count - 1] = AT_IGNORE;
	words[count] = 0;
}

/*
 * The two variables stand last, LD_PRELOAD before LORG, where the launcher and the hook on exec put them. Anything
 * else was not made for us and stays. True if there are settings.
 */
static int settings_take(char **envp, struct lorg_settings *settings)
{
	int count = 0;
	while (envp[count])
		count++;
	if (count < 2)
		return 0;
	const char *preload = envp[count - 2], *lorg = envp[count - 1];
	if (!text_begins(preload, preload_variable) || !text_begins(lorg, lorg_variable))
		return 0;
	int right = preload_path_parse(preload + sizeof preload_variable - 1, settings) &&
		    reach_parse(lorg + sizeof lorg_variable - 1, settings);
	environment_cut(envp, count);
	return right;
}

/* Before any other system call of ours: a filter that was there at the start may kill for one it does not know. */
static uint32_t seccomp_state(void)
{
	long mode = raw_prctl(PR_GET_SECCOMP, 0);
	return mode > 0 || (mode < 0 && mode != -EINVAL /* a kernel without it */);
}

/* The number in a line "Seccomp_filters:\tN" of this process's status; 0 when it cannot be read. */
static uint32_t own_seccomp_filters(void)
{
	static const char wanted[] = "Seccomp_filters:\t";
	char status[4096];
	long fd = raw_openat("/proc/self/status", O_RDONLY | O_CLOEXEC);
	if (raw_failed(fd))
		return 0;
	long length = raw_syscall3(SYS_read, fd, (long)status, sizeof status - 1);
	raw_close((int)fd);
	status[raw_failed(length) ? 0 : length] = 0;
	for (const char *at = status; *at; at++) {
		if (!text_begins(at, wanted))
			continue;
		at += sizeof wanted - 1;
		return (uint32_t)text_read_decimal(&at);
	}
	return 0;
}

/*
 * A container puts a filter on all that runs in it. Where there are no more filters than the collector itself is
 * under, from which ours descend, they allow what it does. Asks with the calls that the loader has just made.
 */
static void forgive_inherited_filters(void)
{
	uint32_t inherited = the_arena.shared->seccomp_filters;
	if (the_program.seccomp && inherited && own_seccomp_filters() == inherited)
		the_program.seccomp = 0;
}

/* What is not patched is seen by symbols alone: said in the recording. */
static void tell_refused_code_hooks(void)
{
	struct thread *self = thread_self();
	char what[64];
	for (unsigned i = 0; self && i < HOOK_INNER_COUNT; i++) {
		if (!code_hooks[i].refused)
			continue;
		char *end = text_append(what, what + sizeof what, "calls inside libc to ");
		text_append(end, what + sizeof what, hook_table[code_hooks[i].id].name);
		event_gap(self, what, code_hooks[i].refused);
	}
}

static void begin(int argc, char **argv, char **envp, const struct lorg_settings *settings)
{
	if (arena_attach(settings))
		return;
	forgive_inherited_filters();
	program_begin(argc, argv, envp);
	late_attached();
	code_hooks_place();
	if (!code_hook_placed(HOOK__exit))
		exit_watch_without_inner_hook();
	tell_refused_code_hooks();
	patch_modules();
}

/* ---- without the variable ---- */

/* Objects that the program starts with stand in the order of a search; one that dlopen brings comes behind the C library. */
static int is_part_of_start(void)
{
	const struct link_map *object = link_map_own();
	while (object && !is_named(object->l_name, "libc.so.6"))
		object = object->l_next;
	return object != 0;
}

static uint64_t auxiliary_of(char **envp, uint64_t type)
{
	while (*envp)
		envp++;
	for (const uint64_t *entry = (const uint64_t *)(void *)(envp + 1); entry[0]; entry += 2)
		if (entry[0] == type)
			return entry[1];
	return 0;
}

/* By which path the loader was told of us: the user's LD_PRELOAD stays in the environment as it is. */
static void take_own_path(char **envp, struct lorg_settings *settings)
{
	for (; *envp; envp++)
		if (text_begins(*envp, preload_variable) && preload_path_parse(*envp + sizeof preload_variable - 1, settings))
			return;
	const char *name = link_map_own()->l_name;
	if (text_length(name, sizeof settings->preload_path) < sizeof settings->preload_path)
		text_append(settings->preload_path, settings->preload_path + sizeof settings->preload_path, name);
}

/*
 * Asks with the calls that the loader has just made: a filter that is on already lets them pass. A program with more rights
 * than its user's trusts nothing that its user could have made.
 */
static int settings_discover(char **envp, struct lorg_settings *settings)
{
	if (!is_part_of_start() || auxiliary_of(envp, AT_SECURE))
		return 0;
	if (!reach_discover(envp, (uint32_t)auxiliary_of(envp, AT_EUID), settings))
		return 0;
	memset(settings->previous_image, 0, sizeof settings->previous_image);
	take_own_path(envp, settings);
	return 1;
}

int start_late(int argc, char **argv, char **envp, const struct lorg_settings *settings)
{
	the_program.seccomp = seccomp_state();
	if (arena_attach(settings))
		return -1;
	forgive_inherited_filters();
	program_begin(argc, argv, envp);
	return the_program.image ? 0 : -1;
}

static __attribute__((constructor)) void start(int argc, char **argv, char **envp)
{
	static struct lorg_settings settings;
	if (late_loaded(argc, argv))
		return;
	late_from_start(argc, argv);
	int traced = envp && settings_take(envp, &settings);
	if (traced)
		the_program.seccomp = seccomp_state();
	hooks_resolve();
	if (!traced && envp && settings_discover(envp, &settings)) {
		the_program.seccomp = seccomp_state();
		traced = 1;
	}
	if (traced)
		begin(argc, argv, envp, &settings);
}
