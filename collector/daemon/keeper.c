/* SPDX-License-Identifier: MIT */
/* keeper.c: see keeper.h. */
#include "collector/daemon/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lorg/plan.h>

#include "collector/collect/clock.h"
#include "collector/command/error.h"

enum { KEEPER_VERSION = 3 /* of these messages */, SEND_LIMIT_MS = 1000, ANSWER_LIMIT_S = 5 };

enum message_kind {
	MESSAGE_KEEP = 1, /* with a descriptor */
	MESSAGE_FORGET = 2,
	MESSAGE_END = 3,      /* from the lorgd: it ends; from the keeper: that was all */
	MESSAGE_TAKE = 4,     /* from the next lorgd; size: KEEPER_VERSION */
	MESSAGE_PATIENCE = 5, /* size: seconds */
	MESSAGE_WAY = 6,      /* with the descriptor of the directory */
};

enum { WAY_ROOM = 512 };

struct message {
	uint32_t kind, reserved;
	uint64_t size;
	union {
		struct kept_name name;
		char way[WAY_ROOM]; /* zero-terminated */
	};
};

/* ---- messages ---------------------------------------------------------------- */

static int send_message(int connection, const struct message *message, int descriptor)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.space = {0}};
	struct iovec data = {(void *)(uintptr_t)message, sizeof *message};
	struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};
	if (descriptor >= 0) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof control.space;
		struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	}
	ssize_t n;
	do
		n = sendmsg(connection, &packet, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == sizeof *message ? 0 : -1;
}

/* 1; 0: the other side has gone; -1. *descriptor -1: none came. */
static int receive_message(int connection, struct message *message, int *descriptor)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = {message, sizeof *message};
	struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
	ssize_t n;
	do
		n = recvmsg(connection, &packet, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	*descriptor = -1;
	if (n <= 0)
		return n == 0 || errno == ECONNRESET ? 0 : -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&packet); header; header = CMSG_NXTHDR(&packet, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(descriptor, CMSG_DATA(header), sizeof(int));
	return n == sizeof *message ? 1 : -1;
}

/* ---- the process ----------------------------------------------------------------- */

struct item {
	struct message message;
	int descriptor;
};

struct holder {
	int lorgd, listener; /* lorgd -1: it was killed */
	struct item *items;
	unsigned count, room;
	uint64_t patience_s, gone_ns;
	int directory; /* -1: not known */
	char way[WAY_ROOM];
};

static void let_go(struct holder *holder, const uint8_t id[16])
{
	for (unsigned i = 0; i < holder->count; i++) {
		if (memcmp(holder->items[i].message.name.id, id, 16) != 0)
			continue;
		close(holder->items[i].descriptor);
		holder->items[i] = holder->items[--holder->count];
		return;
	}
}

static void hold(struct holder *holder, const struct message *message, int descriptor)
{
	let_go(holder, message->name.id);
	if (holder->count == holder->room) {
		unsigned room = holder->room ? 2 * holder->room : 64;
		struct item *grown = realloc(holder->items, room * sizeof *grown);
		if (!grown) {
			close(descriptor);
			return;
		}
		holder->items = grown;
		holder->room = room;
	}
	holder->items[holder->count++] = (struct item){*message, descriptor};
}

static void *map_head(const struct item *item, size_t size)
{
	void *at = item->message.size < size ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, item->descriptor, 0);
	return at == MAP_FAILED ? NULL : at;
}

/* ---- while there is no lorgd ------------------------------------------------------- */

/* ABI:PID:NODE:SIZE:TOKEN:IMAGE:SOCKET, of the lorgd that has gone. */
struct way {
	unsigned major;
	unsigned long long size;
	char token[33], rest[WAY_ROOM];
};

static int read_way(const char *text, struct way *way)
{
	int at = 0;
	if (sscanf(text, "%u:%*d:%*d:%llu:%32[0-9a-f]:%n", &way->major, &way->size, way->token, &at) != 3 || !at)
		return -1;
	snprintf(way->rest, sizeof way->rest, "%s", text + at);
	return 0;
}

static const struct item *node_of(const struct holder *holder)
{
	for (unsigned i = 0; i < holder->count; i++)
		if (holder->items[i].message.name.role == KEPT_NODE)
			return &holder->items[i];
	return NULL;
}

static int arena_with_id(const struct holder *holder, const uint8_t id[16])
{
	for (unsigned i = 0; i < holder->count; i++)
		if (holder->items[i].message.name.role == KEPT_ARENA && memcmp(holder->items[i].message.name.id, id, 16) == 0)
			return holder->items[i].descriptor;
	return -1;
}

/* Programs claim what was made ahead; there will be no more, and nobody is to wait for one. */
static void offer_arenas(const struct holder *holder, struct lorg_node *node)
{
	struct lorg_offer *offers = (struct lorg_offer *)((uint8_t *)node + sizeof *node);
	for (uint32_t i = 0; i < LORG_ARENA_OFFERS; i++) {
		int descriptor = arena_with_id(holder, offers[i].arena_id);
		if (descriptor >= 0)
			__atomic_store_n(&offers[i].descriptor, descriptor, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&node->collector_pid, (uint32_t)getpid(), __ATOMIC_RELAXED);
	__atomic_store_n(&node->exhausted, 1, __ATOMIC_RELEASE);
}

/* What a program becomes by exec looks for its lorgd where the arena says. Plans come from the next lorgd. */
static void lead_arena(const struct item *item, const struct arena_reach *reach)
{
	struct lorg_arena *arena = map_head(item, sizeof *arena);
	if (!arena)
		return;
	__atomic_store_n(&arena->functions_asked, 0, __ATOMIC_RELAXED);
	arena_set_reach(arena, reach);
	munmap(arena, sizeof *arena);
}

static void lead_programs(const struct holder *holder, const struct way *way, int node)
{
	/* The socket has gone with the lorgd. */
	struct arena_reach reach = {.pid = (uint32_t)getpid(), .node_descriptor = node, .node_size = way->size, .socket_path = ""};
	for (unsigned i = 0; i < sizeof reach.token; i++) {
		unsigned byte = 0;
		sscanf(way->token + 2 * i, "%2x", &byte);
		reach.token[i] = (uint8_t)byte;
	}
	for (unsigned i = 0; i < holder->count; i++)
		if (holder->items[i].message.name.role == KEPT_ARENA)
			lead_arena(&holder->items[i], &reach);
}

static void write_way(const struct holder *holder, const struct way *way, int node)
{
	char text[2 * WAY_ROOM];
	const char *socket = strchr(way->rest, ':'); /* behind the image's id, which is zero */
	int length = snprintf(text, sizeof text, "%u:%d:%d:%llu:%s:%.*s:", way->major, getpid(), node, way->size, way->token,
			      socket ? (int)(socket - way->rest) : 0, way->rest);
	unlinkat(holder->directory, "programs.new", 0);
	int file = openat(holder->directory, "programs.new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int is_written = file >= 0 && write(file, text, (size_t)length) == length;
	if (file >= 0)
		close(file);
	if (!is_written || renameat(holder->directory, "programs.new", holder->directory, "programs"))
		unlinkat(holder->directory, "programs.new", 0);
}

static void stand_in(const struct holder *holder)
{
	const struct item *item = node_of(holder);
	struct way way;
	struct lorg_node *node = item && item->message.size >= node_size() ? map_head(item, node_size()) : NULL;
	if (node && holder->directory >= 0 && read_way(holder->way, &way) == 0) {
		offer_arenas(holder, node);
		lead_programs(holder, &way, item->descriptor);
		write_way(holder, &way, item->descriptor);
	}
	if (node)
		munmap(node, node_size());
}

static void lorgd_has_gone(struct holder *holder)
{
	close(holder->lorgd);
	holder->lorgd = -1;
	holder->gone_ns = clock_monotonic_ns();
	stand_in(holder);
}

static void set_way(struct holder *holder, const struct message *message, int directory)
{
	if (holder->directory >= 0)
		close(holder->directory);
	holder->directory = directory;
	snprintf(holder->way, sizeof holder->way, "%.*s", WAY_ROOM - 1, message->way);
}

static void hear_lorgd(struct holder *holder)
{
	struct message message = {0};
	int descriptor, result = receive_message(holder->lorgd, &message, &descriptor);
	if (result == 0) {
		lorgd_has_gone(holder);
		return;
	}
	if (result > 0 && message.kind == MESSAGE_END)
		_exit(0);
	if (result > 0 && message.kind == MESSAGE_KEEP && descriptor >= 0)
		hold(holder, &message, descriptor);
	else if (result > 0 && message.kind == MESSAGE_WAY && descriptor >= 0)
		set_way(holder, &message, descriptor);
	else if (descriptor >= 0)
		close(descriptor);
	if (result > 0 && message.kind == MESSAGE_FORGET)
		let_go(holder, message.name.id);
	if (result > 0 && message.kind == MESSAGE_PATIENCE)
		holder->patience_s = message.size;
}

static int is_own_user(int connection)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void set_limits(int connection, time_t seconds, long milliseconds)
{
	const struct timeval limit = {.tv_sec = seconds + milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
	setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* What a lorgd said before it was killed comes before what the next one wants. */
static void hear_all(struct holder *holder)
{
	for (;;) {
		struct pollfd lorgd = {.fd = holder->lorgd, .events = POLLIN};
		if (holder->lorgd < 0 || poll(&lorgd, 1, 0) <= 0)
			return;
		hear_lorgd(holder);
	}
}

static int asks_for_all(int connection)
{
	struct message message;
	int descriptor;
	int asks = receive_message(connection, &message, &descriptor) > 0 && message.kind == MESSAGE_TAKE && message.size == KEEPER_VERSION;
	if (descriptor >= 0)
		close(descriptor);
	return asks;
}

/* The next lorgd. All stays here, too: should it be killed, the one after it finds as much. */
static void join_lorgd(struct holder *holder)
{
	hear_all(holder);
	const struct message end = {.kind = MESSAGE_END};
	int connection = accept4(holder->listener, NULL, NULL, SOCK_CLOEXEC);
	if (connection < 0)
		return;
	set_limits(connection, ANSWER_LIMIT_S, 0);
	int right = holder->lorgd < 0 && is_own_user(connection) && asks_for_all(connection);
	for (unsigned i = 0; right && i < holder->count; i++)
		right = send_message(connection, &holder->items[i].message, holder->items[i].descriptor) == 0;
	if (!right || send_message(connection, &end, -1)) {
		close(connection);
		return;
	}
	set_limits(connection, 0, 0);
	holder->lorgd = connection;
}

static void close_arena(const struct item *item)
{
	struct lorg_arena *arena = map_head(item, sizeof *arena);
	if (!arena)
		return;
	for (uint32_t hook = 0; hook < LORG_HOOKS; hook++)
		__atomic_store_n(&arena->gate[hook], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&arena->detached, 1, __ATOMIC_RELEASE);
	__atomic_add_fetch(&arena->settings_generation, 1, __ATOMIC_RELEASE);
	munmap(arena, sizeof *arena);
}

/* The hooks of functions stay where they are, and do nothing. */
static void close_control(const struct item *item)
{
	struct lorg_control *control = map_head(item, item->message.size);
	if (!control)
		return;
	const struct lorg_control head = *control; /* copied, then checked */
	uint64_t size = (uint64_t)head.function_count * sizeof(struct lorg_function_control);
	struct lorg_function_control *functions = (struct lorg_function_control *)((uint8_t *)control + head.functions);
	int is_right = head.magic == LORG_CONTROL_MAGIC && head.functions % 8 == 0 && head.functions <= item->message.size &&
		       item->message.size - head.functions >= size;
	for (uint32_t i = 0; is_right && i < head.function_count; i++)
		__atomic_store_n(&functions[i].gate, 0, __ATOMIC_RELAXED);
	if (is_right)
		__atomic_add_fetch(&control->generation, 1, __ATOMIC_RELEASE);
	munmap(control, item->message.size);
}

/* The directory in which the next lorgd would find us is gone. */
static int nobody_can_come(const struct holder *holder)
{
	struct stat status;
	return holder->directory >= 0 && fstat(holder->directory, &status) == 0 && status.st_nlink == 0;
}

/* Nobody came: programs go on as if nobody had ever looked. */
static void close_gates(const struct holder *holder)
{
	for (unsigned i = 0; i < holder->count; i++) {
		const struct item *item = &holder->items[i];
		if (item->message.name.role == KEPT_ARENA)
			close_arena(item);
		if (item->message.name.role == KEPT_CONTROL && item->message.size >= sizeof(struct lorg_control))
			close_control(item);
	}
}

static void __attribute__((noreturn)) run(struct holder *holder)
{
	for (;;) {
		struct pollfd descriptors[2] = {{.fd = holder->listener, .events = POLLIN}, {.fd = holder->lorgd, .events = POLLIN}};
		int ready = poll(descriptors, 2, holder->lorgd < 0 ? 200 : -1);
		if (holder->lorgd < 0 && (clock_monotonic_ns() - holder->gone_ns >= holder->patience_s * 1000000000 || nobody_can_come(holder))) {
			close_gates(holder);
			if (holder->directory >= 0)
				unlinkat(holder->directory, "programs", 0);
			_exit(0);
		}
		if (ready <= 0)
			continue;
		if (holder->lorgd >= 0 && descriptors[1].revents)
			hear_lorgd(holder);
		if (descriptors[0].revents & POLLIN)
			join_lorgd(holder);
	}
}

/* Only what it needs stays open, and no signal that is meant for a terminal's programs reaches it. */
static void __attribute__((noreturn)) become_keeper(int lorgd, int listener)
{
	struct holder holder = {.lorgd = lorgd, .listener = listener, .patience_s = KEEPER_PATIENCE_S, .directory = -1};
	sigset_t none;
	setsid();
	prctl(PR_SET_NAME, "lorgd-keeper");
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int standard = 0; nothing >= 0 && standard < 3; standard++)
		dup2(nothing, standard);
	for (int descriptor = 3; descriptor < 1024; descriptor++)
		if (descriptor != lorgd && descriptor != listener)
			close(descriptor);
	if (chdir("/")) {
		/* It holds the folder that lorgd was started in: no more. */
	}
	run(&holder);
}

/* ---- lorgd's side ------------------------------------------------------------------- */

struct keeper {
	struct keeping keeping;
	int connection;
	int is_silent; /* it took nothing in time, or has gone: it is told nothing more, so that nobody waits for it again */
};

static void tell(struct keeper *keeper, const struct message *message, int descriptor)
{
	if (keeper->is_silent || send_message(keeper->connection, message, descriptor) == 0)
		return;
	/* The connection stays: to close it would say that we have gone. */
	keeper->is_silent = 1;
	lorg_error("lorgd", "its keeper does not take what it is given: after a restart programs that come from now on are not found",
		   "start lorgd anew");
}

static void keep(void *context, const struct kept_name *name, const struct memory *memory)
{
	const struct message message = {.kind = MESSAGE_KEEP, .size = memory->size, .name = *name};
	tell(context, &message, memory->descriptor);
}

static void forget(void *context, const uint8_t id[16])
{
	struct message message = {.kind = MESSAGE_FORGET};
	memcpy(message.name.id, id, sizeof message.name.id);
	tell(context, &message, -1);
}

struct keeper *keeper_start(int listener)
{
	int pair[2];
	struct keeper *keeper = calloc(1, sizeof *keeper);
	if (!keeper || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		free(keeper);
		return NULL;
	}
	pid_t pid = fork();
	if (pid == 0) {
		/* Twice: it is nobody's child whose end would have to be waited for. */
		if (fork() != 0)
			_exit(0);
		become_keeper(pair[1], listener);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		free(keeper);
		return NULL;
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	set_limits(pair[0], 0, SEND_LIMIT_MS);
	*keeper = (struct keeper){{keep, forget, keeper}, pair[0], 0};
	return keeper;
}

const struct keeping *keeper_keeping(struct keeper *keeper)
{
	return keeper ? &keeper->keeping : NULL;
}

void keeper_set_patience(struct keeper *keeper, unsigned seconds)
{
	const struct message message = {.kind = MESSAGE_PATIENCE, .size = seconds};
	if (keeper)
		tell(keeper, &message, -1);
}

void keeper_set_way(struct keeper *keeper, const char *directory, const char *way)
{
	struct message message = {.kind = MESSAGE_WAY};
	int held = keeper && strlen(way) < WAY_ROOM ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (held < 0)
		return;
	snprintf(message.way, sizeof message.way, "%s", way);
	tell(keeper, &message, held);
	close(held);
}

void keeper_leave(struct keeper *keeper)
{
	if (!keeper)
		return;
	close(keeper->connection);
	free(keeper);
}

void keeper_end(struct keeper *keeper)
{
	const struct message end = {.kind = MESSAGE_END};
	if (!keeper)
		return;
	send_message(keeper->connection, &end, -1);
	keeper_leave(keeper);
}

/* By way of the directory: its path may be too long for a socket's address. */
static int connect_to(const char *directory)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int held = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (held < 0)
		return -1;
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/keeper", held);
	int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int is_there = connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && is_own_user(connection);
	close(held);
	if (is_there)
		return connection;
	if (connection >= 0)
		close(connection);
	return -1;
}

/* Maps it, where it is as large as was said. */
static int take_memory(struct kept *kept, const struct message *message, int descriptor)
{
	const int protection = message->name.role == KEPT_PLAN ? PROT_READ : PROT_READ | PROT_WRITE; /* plans are sealed */
	struct stat status;
	*kept = (struct kept){.name = message->name, .memory = {.descriptor = descriptor, .size = message->size}};
	if (fstat(descriptor, &status) || (uint64_t)status.st_size != message->size)
		return -1;
	void *at = mmap(NULL, message->size, protection, MAP_SHARED, descriptor, 0);
	kept->memory.at = at == MAP_FAILED ? NULL : at;
	return kept->memory.at ? 0 : -1;
}

/* 1: more may come. 0: that was all. -1: it has gone, or is none of ours. */
static int take_one(int connection, struct kept **list, unsigned *count, unsigned *room)
{
	struct message message;
	int descriptor;
	if (receive_message(connection, &message, &descriptor) <= 0)
		return -1;
	if (message.kind == MESSAGE_END)
		return 0;
	if (message.kind != MESSAGE_KEEP || descriptor < 0)
		return -1;
	if (*count == *room) {
		*room = *room ? 2 * *room : 64;
		struct kept *grown = realloc(*list, *room * sizeof *grown);
		if (!grown) {
			close(descriptor);
			return -1;
		}
		*list = grown;
	}
	if (take_memory(&(*list)[*count], &message, descriptor))
		close(descriptor);
	else
		(*count)++;
	return 1;
}

static void drop_list(struct kept **list, unsigned *count)
{
	for (unsigned i = 0; i < *count; i++)
		memory_free(&(*list)[i].memory);
	free(*list);
	*list = NULL;
	*count = 0;
}

struct keeper *keeper_join(const char *directory, struct kept **list, unsigned *count)
{
	const struct message take = {.kind = MESSAGE_TAKE, .size = KEEPER_VERSION};
	unsigned room = 0;
	int more = 1;
	*list = NULL;
	*count = 0;
	struct keeper *keeper = calloc(1, sizeof *keeper);
	int connection = keeper ? connect_to(directory) : -1;
	if (connection < 0) {
		free(keeper);
		return NULL;
	}
	set_limits(connection, ANSWER_LIMIT_S, 0);
	if (send_message(connection, &take, -1))
		more = -1;
	while (more > 0)
		more = take_one(connection, list, count, &room);
	if (more < 0) {
		drop_list(list, count);
		close(connection);
		free(keeper);
		return NULL;
	}
	set_limits(connection, 0, SEND_LIMIT_MS);
	*keeper = (struct keeper){{keep, forget, keeper}, connection, 0};
	return keeper;
}
