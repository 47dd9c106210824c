/* SPDX-License-Identifier: MIT */
/*
 * tracer_process.c: tracers that are a process of their own: what is written as text into a file or a socket, and plug-ins.
 * What could go wrong with symbols, files that block and other people's code goes wrong there.
 *
 * Packets wait here, bounded, until it takes them: nothing in lorgd waits for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/collect/family.h"
#include "collector/event/event.h"
#include "collector/session/helper.h"
#include "collector/session/router.h"
#include "collector/session/tracer.h"

enum { TERM_SIZE = 4700, DEFAULT_MEMORY = 64 << 20, READ_SIZE = 65536, BLOCK_SIZE = (256 << 10) - 64, REST_SECONDS = 60 };

/* Bytes on their way to it: what waits is never moved, however much it is. */
struct block {
	struct block *next;
	size_t begin, end;
	uint8_t bytes[BLOCK_SIZE];
};

struct outgoing {
	struct block *first, *last; /* all but the last are full; NULL: none */
	size_t waiting;
};

struct helper {
	struct tracer tracer;
	struct family_context *context;
	int socket;
	pid_t pid;
	struct outgoing outgoing;
	uint8_t *incoming; /* a frame that has not come whole; HELPER_FRAME_MAXIMUM at most */
	size_t incoming_length, incoming_room;
	uint64_t lost, perhaps_lost; /* not told yet */
	int gone, watches_output;
	char term[TERM_SIZE];
	char why[256];
};

/* ---- processes that have been left to themselves -------------------------------------- */

/* Owner: this file. Helpers whose session is over and that have not been seen to end. */
static struct {
	pid_t *pid;
	unsigned count, room;
} left;

void tracer_reap(void)
{
	for (unsigned i = 0; i < left.count;)
		if (waitpid(left.pid[i], NULL, WNOHANG) != 0)
			left.pid[i] = left.pid[--left.count];
		else
			i++;
}

static void leave(pid_t pid)
{
	tracer_reap();
	if (waitpid(pid, NULL, WNOHANG) != 0)
		return;
	if (left.count == left.room) {
		unsigned room = left.room ? left.room * 2 : 16;
		pid_t *grown = realloc(left.pid, room * sizeof *grown);
		if (!grown)
			return;
		left.pid = grown;
		left.room = room;
	}
	left.pid[left.count++] = pid;
}

/* ---- to it --------------------------------------------------------------------------------- */

static size_t waits(const struct outgoing *outgoing)
{
	return outgoing->waiting;
}

static int add_block(struct outgoing *outgoing)
{
	struct block *block = malloc(sizeof *block);
	if (!block)
		return -1;
	block->next = NULL;
	block->begin = block->end = 0;
	if (outgoing->last)
		outgoing->last->next = block;
	else
		outgoing->first = block;
	outgoing->last = block;
	return 0;
}

static void append(struct outgoing *outgoing, struct block *block, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	outgoing->waiting += length;
	while (length) {
		size_t room = BLOCK_SIZE - block->end, part = length < room ? length : room;
		memcpy(block->bytes + block->end, at, part);
		block->end += part;
		at += part;
		length -= part;
		if (block->end == BLOCK_SIZE && block->next)
			block = block->next;
	}
}

/* Room for all of a frame, so that none is begun that cannot be ended. Where it begins; NULL: no memory. */
static struct block *reserve(struct outgoing *outgoing, size_t length)
{
	if (!outgoing->last && add_block(outgoing))
		return NULL;
	struct block *begin = outgoing->last;
	size_t room = BLOCK_SIZE - begin->end;
	for (; room < length; room += BLOCK_SIZE)
		if (add_block(outgoing))
			break;
	return room >= length ? begin : NULL;
}

static void drop_blocks(struct outgoing *outgoing)
{
	while (outgoing->first) {
		struct block *block = outgoing->first;
		outgoing->first = block->next;
		free(block);
	}
	outgoing->last = NULL;
	outgoing->waiting = 0;
}

/* So much of the first block has gone. */
static void sent(struct outgoing *outgoing, size_t length)
{
	struct block *block = outgoing->first;
	block->begin += length;
	outgoing->waiting -= length;
	if (block->begin < block->end)
		return;
	block->begin = block->end = 0;
	if (!block->next)
		return;
	outgoing->first = block->next;
	free(block);
}

static void watch(struct helper *helper, int output)
{
	/* No image: it only wakes us. */
	struct epoll_event event = {.events = EPOLLIN | (output ? EPOLLOUT : 0), .data = {.ptr = NULL}};
	if (helper->watches_output == output)
		return;
	helper->watches_output = output;
	epoll_ctl(helper->context->epoll, EPOLL_CTL_MOD, helper->socket, &event);
}

static void fail(struct helper *helper, const char *why)
{
	if (!helper->gone)
		snprintf(helper->why, sizeof helper->why, "%s", why);
	helper->gone = 1;
}

static void write_on(struct helper *helper)
{
	struct outgoing *outgoing = &helper->outgoing;
	while (!helper->gone && waits(outgoing)) {
		const struct block *block = outgoing->first;
		ssize_t n = send(helper->socket, block->bytes + block->begin, block->end - block->begin, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n <= 0) {
			fail(helper, "its tracer's process has ended");
			break;
		}
		sent(outgoing, (size_t)n);
	}
	if (!helper->gone)
		watch(helper, waits(outgoing) != 0);
}

static int put(struct helper *helper, enum frame_kind kind, const void *bytes, size_t length)
{
	const struct frame_head head = {.length = (uint32_t)length, .kind = (uint16_t)kind, .number = helper->tracer.number};
	struct block *block = reserve(&helper->outgoing, sizeof head + length);
	if (!block)
		return -1;
	append(&helper->outgoing, block, &head, sizeof head);
	append(&helper->outgoing, block->end < BLOCK_SIZE ? block : block->next, bytes, length);
	return 0;
}

static size_t limit_of(const struct helper *helper)
{
	return helper->tracer.memory_limit ? helper->tracer.memory_limit : DEFAULT_MEMORY;
}

static void tell_lost(struct helper *helper)
{
	const struct frame_lost lost = {helper->lost, helper->perhaps_lost};
	if ((lost.count | lost.perhaps) && put(helper, FRAME_LOST, &lost, sizeof lost) == 0)
		helper->lost = helper->perhaps_lost = 0;
}

/* Events in a packet, as they stand there. */
static uint64_t events_in(const struct lorg_packet *packet, size_t length)
{
	struct event_view view;
	uint64_t count = 0, previous = packet->begin;
	for (size_t at = LORG_PACKET_HEAD; at + 8 <= length; at += view.length) {
		if (event_decode((const uint8_t *)packet + at, length - at, previous, &view) != EVENT_OK)
			break;
		previous = view.tick;
		count++;
	}
	return count;
}

static uint64_t helper_packet(struct tracer *tracer, struct lorg_packet *packet, size_t length)
{
	struct helper *helper = (struct helper *)tracer;
	/* What others are read with has twice the room. */
	size_t limit = packet->holds & LORG_HOLDS_UNSHOWN ? limit_of(helper) * 2 : limit_of(helper);
	int full = waits(&helper->outgoing) + length > limit;
	if (!full)
		tell_lost(helper);
	if (!full && !helper->gone && put(helper, FRAME_PACKET, packet, length) == 0) {
		write_on(helper);
		return 0;
	}
	uint64_t lost = packet->holds & LORG_HOLDS_UNSHOWN ? 0 : events_in(packet, length);
	helper->lost += lost;
	return lost;
}

static void helper_lost(struct tracer *tracer, uint64_t count, uint64_t perhaps)
{
	struct helper *helper = (struct helper *)tracer;
	helper->lost += count;
	helper->perhaps_lost += perhaps;
}

static void helper_delivered(struct tracer *tracer, const char *term)
{
	struct helper *helper = (struct helper *)tracer;
	tell_lost(helper);
	if (put(helper, FRAME_DELIVERED, term, strlen(term)) == 0)
		write_on(helper);
}

/* ---- from it ---------------------------------------------------------------------------------- */

static struct process *process_numbered(struct family *family, uint32_t pid, uint32_t tid, uint32_t runtime_process)
{
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t i = 0; slab && i < SLAB_ENTRIES; i++) {
			struct process *process = &slab->entry[i];
			const struct lorg_process *entry = process->used ? process_entry(family, process->index) : NULL;
			if (entry && process->tid == tid && process->image && process->image->pid == (pid_t)pid &&
			    entry->runtime_process == runtime_process)
				return process;
		}
	}
	return NULL;
}

static void remove_tracee(struct helper *helper, const struct helper_tracee *tracee)
{
	struct sessions *sessions = helper->context->sessions;
	struct session *session = session_numbered(sessions, helper->tracer.number);
	for (uint32_t i = 0; session && i < helper->context->family_count; i++) {
		struct family *family = helper->context->families[i];
		struct process *process =
			tracee->fd < 0 ? process_numbered(family, tracee->pid, tracee->tid, tracee->runtime_process) : NULL;
		if (process)
			session_process_flags(sessions, session, family, process->index, 0, LORG_TRACE_ALL);
		for (uint32_t k = 0; tracee->fd >= 0 && k < family->image_room; k++) {
			const struct image *image = family->images[k];
			if (image && image->pid == (pid_t)tracee->pid && !image->over)
				session_port_flags(sessions, session, image->id, tracee->fd, tracee->generation, 0, LORG_TRACE_ALL);
		}
	}
}

static void take_frame(struct helper *helper, const struct frame_head *head, const uint8_t *bytes)
{
	struct helper_tracee tracee;
	switch (head->kind) {
	case HELPER_TEXT:
		if (helper->tracer.forward)
			helper->tracer.forward(&helper->tracer, (const char *)bytes, head->length);
		break;
	case HELPER_REMOVE:
		if (head->length != sizeof tracee)
			break;
		memcpy(&tracee, bytes, sizeof tracee);
		remove_tracee(helper, &tracee);
		break;
	case HELPER_FAILED:
		snprintf(helper->why, sizeof helper->why, "%.*s", (int)(head->length < 200 ? head->length : 200), (const char *)bytes);
		helper->gone = 1;
		break;
	default: break;
	}
}

/* Whole frames that have come. */
static void take_frames(struct helper *helper)
{
	size_t at = 0;
	while (helper->incoming_length - at >= sizeof(struct frame_head)) {
		struct frame_head head;
		memcpy(&head, helper->incoming + at, sizeof head);
		if (head.length > HELPER_FRAME_MAXIMUM) {
			fail(helper, "its tracer's process said what makes no sense");
			return;
		}
		if (helper->incoming_length - at - sizeof head < head.length)
			break;
		take_frame(helper, &head, helper->incoming + at + sizeof head);
		at += sizeof head + head.length;
	}
	if (at)
		memmove(helper->incoming, helper->incoming + at, helper->incoming_length - at);
	helper->incoming_length -= at;
}

static void read_on(struct helper *helper)
{
	for (int round = 0; round < 16 && !helper->gone; round++) {
		if (helper->incoming_room - helper->incoming_length < READ_SIZE) {
			size_t room = helper->incoming_length + READ_SIZE;
			uint8_t *grown = realloc(helper->incoming, room);
			if (!grown)
				return;
			helper->incoming = grown;
			helper->incoming_room = room;
		}
		ssize_t n = recv(helper->socket, helper->incoming + helper->incoming_length, READ_SIZE, MSG_DONTWAIT);
		if (n < 0)
			return;
		if (n == 0) {
			fail(helper, "its tracer's process has ended");
			return;
		}
		helper->incoming_length += (size_t)n;
		take_frames(helper);
	}
}

static void helper_pass(struct tracer *tracer)
{
	struct helper *helper = (struct helper *)tracer;
	if (helper->gone)
		return;
	read_on(helper);
	if (waits(&helper->outgoing) < limit_of(helper))
		tell_lost(helper);
	write_on(helper);
}

/* ---- its life -------------------------------------------------------------------------------------- */

static enum tracer_state helper_state(const struct tracer *tracer, const char **why)
{
	const struct helper *helper = (const struct helper *)tracer;
	if (!helper->gone)
		return TRACER_FINE;
	*why = helper->why;
	return TRACER_GONE;
}

static uint64_t helper_waiting(const struct tracer *tracer)
{
	return waits(&((const struct helper *)tracer)->outgoing);
}

static const char *helper_term(const struct tracer *tracer)
{
	return ((const struct helper *)tracer)->term;
}

/* lorgd's lock, its listener and its clients: who keeps them lets nobody know that it has ended. */
static void close_others(int kept)
{
	if ((kept == 0 || close_range(0, (unsigned)kept - 1, 0) == 0) && close_range((unsigned)kept + 1, UINT_MAX, 0) == 0)
		return;
	struct rlimit files = {.rlim_cur = 1024}; /* a kernel without close_range */
	getrlimit(RLIMIT_NOFILE, &files);
	for (int file = 0; (rlim_t)file < files.rlim_cur && file < INT_MAX; file++)
		if (file != kept)
			close(file);
}

/*
 * What waits is its own to take: the rest goes to a process that does nothing else, where the socket has no room for it.
 */
static void hand_over_rest(struct helper *helper)
{
	struct outgoing *outgoing = &helper->outgoing;
	if (helper->gone || !waits(outgoing))
		return;
	pid_t pid = fork();
	if (pid != 0) {
		if (pid > 0)
			leave(pid);
		return;
	}
	close_others(helper->socket);
	alarm(REST_SECONDS);
	while (waits(outgoing)) {
		const struct block *block = outgoing->first;
		ssize_t n = send(helper->socket, block->bytes + block->begin, block->end - block->begin, MSG_NOSIGNAL);
		if (n <= 0 && errno != EINTR)
			break;
		if (n > 0)
			sent(outgoing, (size_t)n);
	}
	_exit(0);
}

static void helper_end(struct tracer *tracer, const char *why)
{
	struct helper *helper = (struct helper *)tracer;
	tell_lost(helper);
	put(helper, FRAME_ENDED, why ? why : "destroyed", strlen(why ? why : "destroyed"));
	write_on(helper);
	hand_over_rest(helper);
	close(helper->socket); /* and with it, its place in the epoll set */
	leave(helper->pid);
	drop_blocks(&helper->outgoing);
	free(helper->incoming);
	free(helper);
}

static const struct tracer_operations port_operations = {
	.packet = helper_packet,
	.delivered = helper_delivered,
	.lost = helper_lost,
	.end = helper_end,
	.state = helper_state,
	.waiting = helper_waiting,
	.pass = helper_pass,
	.term = helper_term,
};

/* ---- starting it --------------------------------------------------------------------------------------- */

static int find_commands(char *path, size_t size)
{
	static const char *const places[] = {"lorg-commands", "../lorg-commands", "../libexec/lorg/lorg-commands", "../lib/lorg/lorg-commands"};
	char own[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
	if (length <= 0)
		return -1;
	own[length] = 0;
	char *base = strrchr(own, '/');
	if (!base)
		return -1;
	base[1] = 0;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (snprintf(path, size, "%s%s", own, places[i]) < (int)size && access(path, X_OK) == 0)
			return 0;
	return -1;
}

static int has_name(const char *variable, const char *name)
{
	size_t length = strlen(name);
	return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* Our own environment, without what would have the helper traced. The list is the caller's, its texts are not. */
static char **plain_environment(void)
{
	size_t count = 0, kept = 0;
	while (environ[count])
		count++;
	char **plain = calloc(count + 1, sizeof *plain);
	for (size_t i = 0; plain && i < count; i++)
		if (!has_name(environ[i], LORG_ENVIRONMENT) && !has_name(environ[i], "LD_PRELOAD"))
			plain[kept++] = environ[i];
	return plain;
}

static int spawn(const char *command, char *const argv[], int input, int output, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, standard;
	char **environment = plain_environment();
	if (!environment)
		return ENOMEM;
	sigemptyset(&none);
	sigemptyset(&standard);
	sigaddset(&standard, SIGPIPE);
	sigaddset(&standard, SIGINT);
	sigaddset(&standard, SIGTERM);
	sigaddset(&standard, SIGHUP);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	/* Of its own group: what is typed to lorgd is not meant for it. */
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &standard);
	/* Duplicates are not closed at exec; where the number is the same already, nothing else would clear the mark. */
	posix_spawn_file_actions_adddup2(&actions, input, 0);
	posix_spawn_file_actions_adddup2(&actions, output, 1);
	int error = posix_spawn(pid, command, &actions, &attributes, argv, environment);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	free(environment);
	return error;
}

/* Takes over `output`, also on failure. */
static struct helper *start(struct family_context *context, char *const arguments[], int output, const char **why)
{
	char command[PATH_MAX + 64];
	int pair[2] = {-1, -1};
	struct helper *helper = calloc(1, sizeof *helper);
	*why = "no memory";
	if (helper && find_commands(command, sizeof command)) {
		*why = "lorg-commands is not where lorgd is: install lorg anew";
	} else if (helper && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
		int error = spawn(command, arguments, pair[1], output, &helper->pid);
		close(pair[1]);
		close(output);
		if (!error) {
			struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = NULL}};
			helper->tracer.operations = &port_operations;
			helper->context = context;
			helper->socket = pair[0];
			epoll_ctl(context->epoll, EPOLL_CTL_ADD, pair[0], &event);
			return helper;
		}
		close(pair[0]);
		free(helper);
		*why = "its process cannot be started";
		errno = error;
		return NULL;
	}
	int error = errno;
	close(output);
	free(helper);
	errno = error;
	return NULL;
}

struct tracer *tracer_file(struct family_context *context, const char *path, const char **why)
{
	static char name[] = "lorg-commands", how[] = "tracer-text";
	char *const arguments[] = {name, how, NULL};
	*why = "the file cannot be opened";
	/* Not to wait for the reader of a FIFO. */
	int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
	if (file < 0)
		return NULL;
	fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
	struct helper *helper = start(context, arguments, file, why);
	if (!helper)
		return NULL;
	tracer_put_term(helper->term, sizeof helper->term, "file", path, NULL);
	return &helper->tracer;
}

struct tracer *tracer_socket(struct family_context *context, const char *path, const char **why)
{
	static char name[] = "lorg-commands", how[] = "tracer-text";
	char *const arguments[] = {name, how, NULL};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	*why = "the socket's name is too long";
	errno = 0;
	if (strlen(path) >= sizeof address.sun_path)
		return NULL;
	memcpy(address.sun_path, path, strlen(path));
	int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	*why = "nobody listens on the socket";
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address)) {
		int error = errno;
		if (connection >= 0)
			close(connection);
		errno = error;
		return NULL;
	}
	fcntl(connection, F_SETFL, fcntl(connection, F_GETFL) & ~O_NONBLOCK);
	struct helper *helper = start(context, arguments, connection, why);
	if (!helper)
		return NULL;
	tracer_put_term(helper->term, sizeof helper->term, "socket", path, NULL);
	return &helper->tracer;
}

struct tracer *tracer_module(struct family_context *context, const char *path, const char *state, const char **why)
{
	static char name[] = "lorg-commands", how[] = "tracer-module";
	char *plugin = strdup(path), *given = strdup(state);
	char *const arguments[] = {name, how, plugin, given, NULL};
	struct helper *helper = NULL;
	*why = "no memory";
	/* What it prints is its own affair, and goes nowhere. */
	int output = plugin && given ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
	if (output >= 0 && access(path, R_OK) == 0) {
		helper = start(context, arguments, output, why);
	} else if (output >= 0) {
		*why = "the plug-in cannot be read";
		close(output);
	}
	free(plugin);
	free(given);
	if (!helper)
		return NULL;
	tracer_put_term(helper->term, sizeof helper->term, "module", path, state);
	return &helper->tracer;
}
