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

#include "collector/collect/clock.h"

enum { PATIENCE_S = 300 /* for the next lorgd */, SEND_LIMIT_MS = 200, ANSWER_LIMIT_S = 5 };

enum message_kind {
	MESSAGE_KEEP = 1, /* with a descriptor */
	MESSAGE_FORGET = 2,
	MESSAGE_END = 3,  /* from the lorgd: it ends; from the keeper: that was all */
	MESSAGE_TAKE = 4, /* from the next lorgd */
};

struct message {
	uint32_t kind, role;
	uint8_t id[16];
	uint64_t size;
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
	uint64_t killed_ns;
};

static void hold(struct holder *holder, const struct message *message, int descriptor)
{
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

static void let_go(struct holder *holder, const uint8_t id[16])
{
	for (unsigned i = 0; i < holder->count; i++) {
		if (memcmp(holder->items[i].message.id, id, 16) != 0)
			continue;
		close(holder->items[i].descriptor);
		holder->items[i] = holder->items[--holder->count];
		return;
	}
}

static void hear_lorgd(struct holder *holder)
{
	struct message message;
	int descriptor, result = receive_message(holder->lorgd, &message, &descriptor);
	if (result == 0) {
		close(holder->lorgd);
		holder->lorgd = -1;
		holder->killed_ns = clock_monotonic_ns();
		return;
	}
	if (result > 0 && message.kind == MESSAGE_END)
		_exit(0);
	if (result > 0 && message.kind == MESSAGE_KEEP && descriptor >= 0)
		hold(holder, &message, descriptor);
	else if (descriptor >= 0)
		close(descriptor);
	if (result > 0 && message.kind == MESSAGE_FORGET)
		let_go(holder, message.id);
}

static int is_own_user(int connection)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static void set_limits(int connection, time_t seconds, long milliseconds)
{
	const struct timeval limit = {.tv_sec = seconds, .tv_usec = milliseconds * 1000};
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

/* The next lorgd. It has all in other hands when it says so. */
static void hand_over(struct holder *holder)
{
	hear_all(holder);
	struct message message;
	const struct message end = {.kind = MESSAGE_END};
	int descriptor, connection = accept4(holder->listener, NULL, NULL, SOCK_CLOEXEC);
	if (connection < 0)
		return;
	set_limits(connection, ANSWER_LIMIT_S, 0);
	int right = holder->lorgd < 0 && is_own_user(connection) && receive_message(connection, &message, &descriptor) > 0 &&
		    message.kind == MESSAGE_TAKE;
	for (unsigned i = 0; right && i < holder->count; i++)
		right = send_message(connection, &holder->items[i].message, holder->items[i].descriptor) == 0;
	right = right && send_message(connection, &end, -1) == 0;
	if (right) {
		const struct timeval none = {0};
		setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
		/* Killed in the middle, it says nothing: what is held is held for the one after it. */
		if (receive_message(connection, &message, &descriptor) > 0 && message.kind == MESSAGE_END)
			_exit(0);
	}
	close(connection);
}

/* Nobody came: programs go on as if nobody had ever looked. */
static void close_gates(const struct holder *holder)
{
	for (unsigned i = 0; i < holder->count; i++) {
		const struct message *message = &holder->items[i].message;
		if (message->role != KEPT_ARENA)
			continue;
		struct lorg_arena *arena =
			mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED, holder->items[i].descriptor, 0);
		if (arena == MAP_FAILED)
			continue;
		for (uint32_t hook = 0; hook < LORG_HOOKS; hook++)
			__atomic_store_n(&arena->gate[hook], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&arena->detached, 1, __ATOMIC_RELEASE);
		__atomic_add_fetch(&arena->settings_generation, 1, __ATOMIC_RELEASE);
		munmap(arena, sizeof *arena);
	}
}

static void __attribute__((noreturn)) run(struct holder *holder)
{
	for (;;) {
		struct pollfd descriptors[2] = {{.fd = holder->listener, .events = POLLIN}, {.fd = holder->lorgd, .events = POLLIN}};
		int ready = poll(descriptors, 2, holder->lorgd < 0 ? 1000 : -1);
		if (holder->lorgd < 0 && clock_monotonic_ns() - holder->killed_ns > PATIENCE_S * (uint64_t)1000000000) {
			close_gates(holder);
			_exit(0);
		}
		if (ready <= 0)
			continue;
		if (holder->lorgd >= 0 && descriptors[1].revents)
			hear_lorgd(holder);
		if (descriptors[0].revents & POLLIN)
			hand_over(holder);
	}
}

/* Only what it needs stays open, and no signal that is meant for a terminal's programs reaches it. */
static void __attribute__((noreturn)) become_keeper(int lorgd, int listener)
{
	struct holder holder = {.lorgd = lorgd, .listener = listener};
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
};

static void keep(void *context, enum kept_role role, const uint8_t id[16], const struct memory *memory)
{
	const struct keeper *keeper = context;
	struct message message = {.kind = MESSAGE_KEEP, .role = role, .size = memory->size};
	memcpy(message.id, id, sizeof message.id);
	/* A keeper that is gone keeps nothing: then a restart finds nothing. */
	send_message(keeper->connection, &message, memory->descriptor);
}

static void forget(void *context, const uint8_t id[16])
{
	const struct keeper *keeper = context;
	struct message message = {.kind = MESSAGE_FORGET};
	memcpy(message.id, id, sizeof message.id);
	send_message(keeper->connection, &message, -1);
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
	*keeper = (struct keeper){{keep, forget, keeper}, pair[0]};
	return keeper;
}

const struct keeping *keeper_keeping(struct keeper *keeper)
{
	return keeper ? &keeper->keeping : NULL;
}

void keeper_end(struct keeper *keeper)
{
	const struct message end = {.kind = MESSAGE_END};
	if (!keeper)
		return;
	send_message(keeper->connection, &end, -1);
	close(keeper->connection);
	free(keeper);
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path)
		return -1;
	memcpy(address.sun_path, path, strlen(path) + 1);
	int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection < 0)
		return -1;
	set_limits(connection, ANSWER_LIMIT_S, 0);
	if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && is_own_user(connection))
		return connection;
	close(connection);
	return -1;
}

/* Maps it, where it is as large as was said. */
static int take_memory(struct kept *kept, const struct message *message, int descriptor)
{
	struct stat status;
	*kept = (struct kept){.role = message->role, .memory = {.descriptor = descriptor, .size = message->size}};
	memcpy(kept->id, message->id, sizeof kept->id);
	if (fstat(descriptor, &status) || (uint64_t)status.st_size != message->size)
		return -1;
	void *at = mmap(NULL, message->size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	kept->memory.at = at == MAP_FAILED ? NULL : at;
	return kept->memory.at ? 0 : -1;
}

unsigned keeper_take_over(const char *path, struct kept **list, int *connection)
{
	const struct message take = {.kind = MESSAGE_TAKE};
	unsigned count = 0, room = 0;
	*list = NULL;
	*connection = connect_to(path);
	if (*connection < 0 || send_message(*connection, &take, -1))
		return 0;
	for (;;) {
		struct message message;
		int descriptor;
		if (receive_message(*connection, &message, &descriptor) <= 0 || message.kind != MESSAGE_KEEP || descriptor < 0)
			break;
		if (count == room) {
			room = room ? 2 * room : 64;
			struct kept *grown = realloc(*list, room * sizeof *grown);
			if (!grown) {
				close(descriptor);
				break;
			}
			*list = grown;
		}
		if (take_memory(&(*list)[count], &message, descriptor))
			close(descriptor);
		else
			count++;
	}
	return count;
}

void keeper_taken_over(int connection)
{
	const struct message end = {.kind = MESSAGE_END};
	if (connection < 0)
		return;
	send_message(connection, &end, -1);
	close(connection);
}
