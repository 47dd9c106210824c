/* SPDX-License-Identifier: MIT */
/*
 * tracer.c: lorg-commands tracer-text and tracer-module: a session's tracer in a process of its own, started by lorgd
 * (collector/session/tracer_process.c). Frames come by standard input, a socket; text goes to standard output, and what a
 * plug-in decides back on the socket. Nobody types these.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <lorg/tracer.h>

#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/live/live.h"
#include "collector/session/helper.h"

enum {
	LAST_SECONDS = 20, /* for what is left when lorgd has let go of it */
	GATHER_MS = 20, /* packets of several threads, to be shown in their order */
	READ_ROOM = 1 << 18,
	NAME_ROOM = 128,
	REMOVED_KEPT = 64,
};
static const uint64_t MS_NS = 1000000;

/* A tracee that is traced no more, as the plug-in said; what was on its way then is dropped. */
struct removed {
	char tracee[NAME_ROOM];
	uint64_t time; /* ns, CLOCK_MONOTONIC */
};

struct helper {
	struct live *live;
	uint8_t *bytes; /* frames that have come */
	size_t length, room;
	uint64_t session, due_ns; /* due 0: nothing waits */
	int ended;
	/* Of tracer-module. */
	const struct lorg_tracer *plugin;
	void *context;
	struct removed removed[REMOVED_KEPT];
	unsigned removed_next;
};

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int write_whole(int file, const void *bytes, size_t length)
{
	const char *at = bytes;
	while (length) {
		ssize_t n = write(file, at, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		at += n;
		length -= (size_t)n;
	}
	return 0;
}

/* To lorgd. */
static int say(const struct helper *helper, uint16_t kind, const void *bytes, size_t length)
{
	const struct frame_head head = {.length = (uint32_t)length, .kind = kind, .number = helper->session};
	if (length > HELPER_FRAME_MAXIMUM || write_whole(STDIN_FILENO, &head, sizeof head))
		return -1;
	return length ? write_whole(STDIN_FILENO, bytes, length) : 0;
}

/* ---- as text ---------------------------------------------------------------------------- */

static int text_error; /* errno of the write that failed; this process has one reader of frames, and it owns it */

static int write_text(const void *text, size_t length)
{
	if (write_whole(STDOUT_FILENO, text, length) == 0)
		return 0;
	text_error = errno ? errno : EIO;
	return -1;
}

static int print_event(void *context, const struct live_message *message)
{
	char line[64];
	(void)context;
	if (message->kind == LIVE_LOST && !message->erlang) {
		int length = snprintf(line, sizeof line, "{drop,%llu}\n", (unsigned long long)message->count);
		return write_text(line, (size_t)length);
	}
	return message->erlang ? write_text(message->erlang, strlen(message->erlang)) : 0;
}

/* ---- through a plug-in --------------------------------------------------------------------- */

/* The next element of a tuple, from `at` on: pids, ports and atoms have no comma outside of quotes. NULL: there is none. */
static const char *element(const char *at, const char *end, char *to)
{
	size_t length = 0;
	int quoted = 0;
	for (; at < end && (quoted || (*at != ',' && *at != '}')); at++) {
		if (*at == '\\' && quoted && at + 1 < end && length < NAME_ROOM - 2)
			to[length++] = *at++;
		else if (*at == '\'')
			quoted = !quoted;
		if (length < NAME_ROOM - 1)
			to[length++] = *at;
	}
	to[length] = 0;
	return at < end && *at == ',' ? at + 1 : NULL;
}

static int was_removed(const struct helper *helper, const char *tracee, uint64_t time)
{
	for (unsigned i = 0; i < REMOVED_KEPT; i++)
		if (helper->removed[i].time >= time && strcmp(helper->removed[i].tracee, tracee) == 0)
			return 1;
	return 0;
}

static int remove_tracee(struct helper *helper, const char *tracee)
{
	struct helper_tracee told = {.fd = -1};
	struct removed *removed = &helper->removed[helper->removed_next++ % REMOVED_KEPT];
	snprintf(removed->tracee, sizeof removed->tracee, "%s", tracee);
	removed->time = now_ns();
	if (sscanf(tracee, "#Port<%u.%d.%u>", &told.pid, &told.fd, &told.generation) < 2 &&
	    sscanf(tracee, "<%u.%u.%u>", &told.pid, &told.tid, &told.runtime_process) < 2)
		return 0;
	return say(helper, HELPER_REMOVE, &told, sizeof told);
}

static int ask(struct helper *helper, const struct lorg_tracer_message *message)
{
	const struct lorg_tracer *plugin = helper->plugin;
	const char *changed = NULL;
	enum lorg_tracer_answer answer = LORG_TRACER_TRACE;
	if (was_removed(helper, message->tracee, message->time))
		return 0;
	if (plugin->enabled)
		answer = plugin->enabled(helper->context, message->tag, message->tracee);
	if (answer == LORG_TRACER_TRACE)
		answer = plugin->trace(helper->context, message, &changed);
	switch (answer) {
	case LORG_TRACER_TRACE: return say(helper, HELPER_TEXT, message->term, strlen(message->term));
	case LORG_TRACER_CHANGED: return changed ? say(helper, HELPER_TEXT, changed, strlen(changed)) : 0;
	case LORG_TRACER_REMOVE: return remove_tracee(helper, message->tracee);
	case LORG_TRACER_DISCARD: break;
	}
	return 0;
}

/* One line, without its newline. */
static int ask_about(struct helper *helper, const char *line, size_t length, uint64_t time)
{
	char kind[NAME_ROOM], tracee[NAME_ROOM], tag[NAME_ROOM];
	char *term = strndup(line, length);
	if (!term)
		return 0;
	const char *end = term + length, *at = length && term[0] == '{' ? element(term + 1, end, kind) : NULL;
	at = at ? element(at, end, tracee) : NULL;
	int result = 0;
	if (at) {
		element(at, end, tag);
		const struct lorg_tracer_message message = {tag, tracee, term, time};
		result = ask(helper, &message);
	}
	free(term);
	return result;
}

static int ask_event(void *context, const struct live_message *message)
{
	struct helper *helper = context;
	if (message->kind == LIVE_LOST && message->count && helper->plugin->lost)
		helper->plugin->lost(helper->context, message->count);
	const char *at = message->kind == LIVE_EVENT && message->erlang ? message->erlang : "";
	while (*at) {
		size_t length = strcspn(at, "\n");
		if (length && ask_about(helper, at, length, message->time))
			return -1;
		at += length + (at[length] == '\n');
	}
	return 0;
}

/* ---- frames ------------------------------------------------------------------------------------ */

static int show(struct helper *helper)
{
	helper->due_ns = 0;
	return live_show(helper->live, helper->plugin ? ask_event : print_event, helper);
}

static int print_perhaps(uint64_t count)
{
	char line[64];
	int length = snprintf(line, sizeof line, "{perhaps_drop,%llu}\n", (unsigned long long)count);
	return write_text(line, (size_t)length);
}

static int tell_lost(struct helper *helper, const uint8_t *bytes, size_t length)
{
	struct frame_lost lost;
	if (length != sizeof lost || show(helper))
		return -1;
	memcpy(&lost, bytes, sizeof lost);
	const struct live_message message = {.kind = LIVE_LOST, .count = lost.count};
	if (lost.count && (helper->plugin ? ask_event(helper, &message) : print_event(helper, &message)))
		return -1;
	return lost.perhaps && !helper->plugin ? print_perhaps(lost.perhaps) : 0;
}

static int tell_delivered(struct helper *helper, const uint8_t *bytes, size_t length)
{
	if (show(helper) || helper->plugin)
		return 0;
	return write_text(bytes, length) || write_text("\n", 1) ? -1 : 0;
}

static int take_frame(struct helper *helper, const struct frame_head *head, const uint8_t *bytes)
{
	helper->session = head->number;
	switch (head->kind) {
	case FRAME_PACKET:
		if (!helper->due_ns)
			helper->due_ns = now_ns() + GATHER_MS * MS_NS;
		return live_packet(helper->live, bytes, head->length);
	case FRAME_LOST: return tell_lost(helper, bytes, head->length);
	case FRAME_DELIVERED: return tell_delivered(helper, bytes, head->length);
	case FRAME_ENDED: helper->ended = 1; return 0;
	default: return 0;
	}
}

static int take_frames(struct helper *helper)
{
	size_t at = 0;
	int result = 0;
	while (!result && helper->length - at >= sizeof(struct frame_head)) {
		struct frame_head head;
		memcpy(&head, helper->bytes + at, sizeof head);
		if (head.length > HELPER_FRAME_MAXIMUM)
			return -1;
		if (helper->length - at - sizeof head < head.length)
			break;
		result = take_frame(helper, &head, helper->bytes + at + sizeof head);
		at += sizeof head + head.length;
	}
	memmove(helper->bytes, helper->bytes + at, helper->length - at);
	helper->length -= at;
	return result;
}

/* 1: more may come; 0: that was all; -1. */
static int read_frames(struct helper *helper)
{
	if (helper->room - helper->length < READ_ROOM) {
		uint8_t *grown = realloc(helper->bytes, helper->length + READ_ROOM);
		if (!grown)
			return -1;
		helper->bytes = grown;
		helper->room = helper->length + READ_ROOM;
	}
	ssize_t n = recv(STDIN_FILENO, helper->bytes + helper->length, helper->room - helper->length, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -1;
	if (n == 0)
		return 0;
	helper->length += (size_t)n;
	return take_frames(helper) ? -1 : !helper->ended;
}

static int time_to_wait(const struct helper *helper)
{
	if (!helper->due_ns)
		return -1;
	uint64_t now = now_ns();
	return now >= helper->due_ns ? 0 : (int)((helper->due_ns - now) / MS_NS) + 1;
}

static int work(struct helper *helper)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	int more = 1;
	while (more > 0) {
		if (poll(&input, 1, time_to_wait(helper)) > 0)
			more = read_frames(helper);
		if (helper->due_ns && now_ns() >= helper->due_ns && show(helper))
			more = -1;
	}
	return more < 0 || show(helper) ? EXIT_STATUS_FAILURE : 0;
}

/* A plug-in that does not return, or a reader that does not read, would keep us for ever. */
static void *watch(void *nothing)
{
	struct pollfd input = {.fd = STDIN_FILENO}; /* that the other end is closed is told without being asked for */
	(void)nothing;
	while (poll(&input, 1, -1) <= 0)
		;
	sleep(LAST_SECONDS);
	_exit(EXIT_STATUS_FAILURE);
}

/* Signals are the others': the plug-in may have handlers. */
static void begin_watch(void)
{
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int begin(struct helper *helper)
{
	struct sigaction ignored = {.sa_handler = SIG_IGN};
	sigaction(SIGPIPE, &ignored, NULL);
	begin_watch();
	helper->live = live_new(LIVE_ERLANG);
	return helper->live ? 0 : -1;
}

static int refuse(const struct helper *helper, const char *why)
{
	say(helper, HELPER_FAILED, why, strlen(why));
	return -1;
}

static void refuse_text(const struct helper *helper)
{
	char why[128];
	snprintf(why, sizeof why, "its tracer cannot be written to: %s", strerror(text_error));
	refuse(helper, why);
}

int command_tracer_text(int argc, char **argv)
{
	struct helper helper = {.live = NULL};
	(void)argc;
	(void)argv;
	int status = begin(&helper) ? EXIT_STATUS_FAILURE : work(&helper);
	if (text_error)
		refuse_text(&helper);
	live_free(helper.live);
	free(helper.bytes);
	return status;
}

static int load(struct helper *helper, const char *path, const char *state)
{
	char why[256];
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, sizeof why, "the plug-in cannot be loaded: %s", dlerror());
		return refuse(helper, why);
	}
	const struct lorg_tracer *(*get)(void) = NULL;
	*(void **)&get = dlsym(library, "lorg_tracer");
	helper->plugin = get ? get() : NULL;
	if (!helper->plugin || !helper->plugin->trace)
		return refuse(helper, "the plug-in has no lorg_tracer(): see lorg/tracer.h");
	if (helper->plugin->abi != LORG_TRACER_ABI)
		return refuse(helper, "the plug-in is for another version of lorg: build it anew");
	if (helper->plugin->begin && helper->plugin->begin(state, &helper->context))
		return refuse(helper, "the plug-in does not want this state");
	return 0;
}

int command_tracer_module(int argc, char **argv)
{
	struct helper helper = {.live = NULL};
	if (argc != 3 || begin(&helper) || load(&helper, argv[1], argv[2]))
		return EXIT_STATUS_FAILURE;
	int status = work(&helper);
	if (helper.plugin->end)
		helper.plugin->end(helper.context);
	live_free(helper.live);
	free(helper.bytes);
	return status;
}
