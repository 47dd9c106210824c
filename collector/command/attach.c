/* SPDX-License-Identifier: MIT */
/* attach.c: lorg attach PID.. and lorg detach PID..: see collector/remote/attach.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "collector/client/place.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/launch.h"
#include "collector/command/library.h"
#include "collector/remote/attach.h"

static const char attach_text[] =
	"Brings lorg into programs that were started without it: from then on sessions of lorgd see them as if they had been "
	"started with it.\v"
	"One thread of the program is stopped for some milliseconds, where it waits or does what can be interrupted, and made to "
	"load liblorg.so; then all are held for less than one while the C library's code is changed. What they wait for "
	"goes on: also time-outs, and signals come when they would have. It may end one epoll_wait, sigtimedwait or semop with EINTR "
	"(signal(7): the kernel ends those at every stop), where a signal comes at that moment, or begin its time-out anew; "
	"and a write or send of more than fits may come back with a part, as after SIGSTOP and SIGCONT.\n\n"
	"Calls through the slots of all modules are seen, also of those that are opened later, and what the C library itself reads, "
	"writes, and starts. Calls through pointers that the program has taken before are not.\n\n"
	"Refused, with the reason: what another tracer holds, what may not be traced (ptrace, yama), programs under a seccomp filter of "
	"their own, 32-bit and static ones, other C libraries than the GNU one, children of vfork.";

static const char detach_text[] =
	"Takes lorg's hooks out of programs again: slots, signal handlers and code are as they were. liblorg.so stays mapped, and "
	"nothing of it is called any more. A program that was started with lorg goes on calling through it, and nothing is recorded.\v"
	"lorg attach brings them back. What it may interrupt: see lorg attach --help.";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	int *first = state->input;
	(void)argument;
	if (key == ARGP_KEY_ARGS)
		*first = state->next;
	return key == ARGP_KEY_ARGS || key == ARGP_KEY_NO_ARGS ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp attach_argp = {NULL, parse_option, "PID...", attach_text, NULL, NULL, NULL};
static const struct argp detach_argp = {NULL, parse_option, "PID...", detach_text, NULL, NULL, NULL};

/* The index of the first program in argv; all are numbers. Else ends with status 2. */
static int programs_given(const struct argp *argp, int argc, char **argv)
{
	int first = 0;
	command_parse(argp, argc, argv, &first);
	if (!first || first >= argc) {
		lorg_error(argv[0], "no program given", "give its pid: see ps(1)");
		exit(EXIT_STATUS_USAGE);
	}
	for (int i = first; i < argc; i++) {
		char *end;
		long pid = strtol(argv[i], &end, 10);
		if (*end || end == argv[i] || pid <= 0 || pid > INT_MAX) {
			lorg_error(argv[i], "is no pid", "give its number: see ps(1)");
			exit(EXIT_STATUS_USAGE);
		}
	}
	return first;
}

static void tell_failure(const char *name, const struct attach_result *result)
{
	char why[512];
	/* The texts say it all, but where it is the system that has said no. */
	int system_said =
		result->error == EPERM || result->error == EACCES || result->error == ENOMEM || result->error == EIO;
	snprintf(why, sizeof why, "%s%s%s", result->why, system_said ? ": " : "",
		 system_said ? strerror(result->error) : "");
	lorg_error(name, why, result->advice);
}

static void tell_entries(const char *name, const struct attach_result *result)
{
	char text[128];
	if (!result->entries_left)
		return;
	snprintf(text, sizeof text,
		 "%s: what its C library itself reads, writes and starts is not seen: its threads could not be held", name);
	lorg_say(text);
}

/* Threads of programs wait for this one, now and then. Nothing where it may not. */
static void hurry(void)
{
	setpriority(PRIO_PROCESS, 0, -20);
}

static int attach_all(int count, char **names, const char *library, const char *settings)
{
	int status = 0;
	for (int i = 0; i < count; i++) {
		struct attach_result result;
		if (attach_program((pid_t)strtol(names[i], NULL, 10), library, settings, &result)) {
			tell_failure(names[i], &result);
			status = EXIT_STATUS_FAILURE;
		} else {
			tell_entries(names[i], &result);
		}
	}
	return status;
}

int command_attach(int argc, char **argv)
{
	char library[PATH_MAX], directory[PATH_MAX], settings[512], text[PATH_MAX + 128];
	int first = programs_given(&attach_argp, argc, argv);
	hurry();
	if (library_find(library)) {
		lorg_error("liblorg.so", "is not where lorg is", "install lorg anew, or set LORG_LIBRARY");
		return EXIT_STATUS_FAILURE;
	}
	const char *refused = library_refused(library, text, sizeof text);
	if (refused) {
		lorg_error("liblorg.so", refused, "install lorg anew, or set LORG_LIBRARY");
		return EXIT_STATUS_FAILURE;
	}
	if (place_directory(directory, sizeof directory) || attach_settings(directory, settings, sizeof settings)) {
		lorg_error("lorgd", "is not running for this user", "start it: lorgd &");
		return EXIT_STATUS_FAILURE;
	}
	return attach_all(argc - first, argv + first, library, settings);
}

int command_detach(int argc, char **argv)
{
	int first = programs_given(&detach_argp, argc, argv), status = 0;
	hurry();
	for (int i = first; i < argc; i++) {
		struct attach_result result;
		if (detach_program((pid_t)strtol(argv[i], NULL, 10), &result) == 0)
			continue;
		tell_failure(argv[i], &result);
		status = EXIT_STATUS_FAILURE;
	}
	return status;
}
