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

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/hooks/exit.h"
#include "preload/patch/patch.h"
#include "preload/resolve/code_hook.h"

static const char preload_variable[] = "LD_PRELOAD=";
static const char lorg_variable[] = LORG_ENVIRONMENT "=";

/* Numbers and hex words stand apart by colons. True if the next one is there; *text moves behind it. */
static int skip_colon(const char **text)
{
	return *(*text)++ == ':';
}

/* LORG=MAJOR:PID:FD:SIZE:TOKEN:IMAGE:SOCKET. True if it is meant for this library and whole. */
static int settings_parse(const char *text, struct lorg_settings *settings)
{
	if (text_read_decimal(&text) != LORG_ABI_MAJOR || !skip_colon(&text))
		return 0;
	settings->collector_pid = (uint32_t)text_read_decimal(&text);
	if (!skip_colon(&text))
		return 0;
	settings->node_descriptor = (int32_t)text_read_decimal(&text);
	if (!skip_colon(&text))
		return 0;
	settings->node_size = text_read_decimal(&text);
	if (!skip_colon(&text) || text_read_hex(&text, settings->token, sizeof settings->token))
		return 0;
	if (!skip_colon(&text) || text_read_hex(&text, settings->previous_image, sizeof settings->previous_image))
		return 0;
	if (!skip_colon(&text) || text_length(text, sizeof settings->socket_path) == sizeof settings->socket_path)
		return 0;
	text_append(settings->socket_path, settings->socket_path + sizeof settings->socket_path, text);
	return settings->node_size != 0;
}

static int is_named_liblorg(const char *path, size_t length)
{
	static const char name[] = "liblorg.so";
	size_t own = sizeof name - 1;
	return length >= own && !memcmp(path + length - own, name, own) && (length == own || path[length - own - 1] == '/');
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
		    settings_parse(lorg + sizeof lorg_variable - 1, settings);
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
	code_hooks_place();
	if (!code_hook_placed(HOOK__exit))
		exit_watch_without_inner_hook();
	tell_refused_code_hooks();
	patch_modules();
}

static __attribute__((constructor)) void start(int argc, char **argv, char **envp)
{
	static struct lorg_settings settings;
	int traced = envp && settings_take(envp, &settings);
	if (traced)
		the_program.seccomp = seccomp_state();
	hooks_resolve();
	if (traced)
		begin(argc, argv, envp, &settings);
}
