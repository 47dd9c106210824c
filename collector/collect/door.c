/* SPDX-License-Identifier: MIT */
/* door.c: see door.h. */
#include "collector/collect/door.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <lorg/plan.h>

#include "collector/collect/clock.h"

enum {
	GUESTS = 64,
	TOKEN_SIZE = 16,
	SETTLED_S = 10, /* a door that is younger may be about to listen */
};
/* A guest that says nothing for so long is sent away. */
static const uint64_t PATIENCE_NS = 5000000000;

struct guest {
	int connection; /* -1: free */
	uint64_t since_ns;
	union {
		uint8_t token[TOKEN_SIZE];
		struct lorg_door_request request;
		uint8_t bytes[sizeof(struct lorg_door_request)];
	} said;
	unsigned length;
};

struct door {
	int epoll, listener;
	int node_descriptor;
	uint8_t token[TOKEN_SIZE];
	door_claim *claim;
	door_answer *answer;
	void *context;
	char directory[80];
	struct sockaddr_un address;
	struct guest guests[GUESTS];
};

static void add_to_epoll(const struct door *door, int descriptor)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.fd = descriptor}};
	epoll_ctl(door->epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static int make_directory(struct door *door, const char *base)
{
	if (!base || base[0] != '/' || strlen(base) > sizeof door->directory - sizeof "/lorg-XXXXXX")
		return -1;
	snprintf(door->directory, sizeof door->directory, "%s/lorg-XXXXXX", base);
	if (!mkdtemp(door->directory))
		return -1;
	/* Others may reach the socket, if they know where it is; they need not list it. */
	if (chmod(door->directory, 0711) == 0)
		return 0;
	rmdir(door->directory);
	return -1;
}

static int listen_in_directory(struct door *door)
{
	door->address.sun_family = AF_UNIX;
	snprintf(door->address.sun_path, sizeof door->address.sun_path, "%s/door", door->directory);
	door->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (door->listener < 0)
		return -1;
	if (bind(door->listener, (struct sockaddr *)&door->address, sizeof door->address) == 0 &&
	    chmod(door->address.sun_path, 0666) == 0 && listen(door->listener, GUESTS) == 0)
		return 0;
	unlink(door->address.sun_path);
	close(door->listener);
	door->listener = -1;
	return -1;
}

/* ---- what killed ones have left ---- */

/* True if nobody listens any more at a door of ours; a live lorg's answers. */
static int is_abandoned(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connection < 0)
		return 0;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int refused = connect(connection, (struct sockaddr *)&address, sizeof address) && errno == ECONNREFUSED;
	close(connection);
	return refused;
}

/* A lorg that was killed could not take its folder away: the next one of the same user does. */
static void clear_abandoned(const char *base)
{
	char folder[80], path[100];
	DIR *directory = opendir(base);
	if (!directory)
		return;
	for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		struct stat status;
		if (strncmp(entry->d_name, "lorg-", 5) != 0 || strlen(entry->d_name) != sizeof "lorg-XXXXXX" - 1)
			continue;
		snprintf(folder, sizeof folder, "%s/%.11s", base, entry->d_name);
		snprintf(path, sizeof path, "%s/door", folder);
		if (lstat(folder, &status) || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() || lstat(path, &status) ||
		    !S_ISSOCK(status.st_mode) || time(NULL) - status.st_ctime < SETTLED_S || !is_abandoned(path))
			continue;
		unlink(path);
		rmdir(folder);
	}
	closedir(directory);
}

static int open_somewhere(struct door *door)
{
	/* Where other users can get: /run, if we may make one there, for services have a /tmp of their own (PrivateTmp=). */
	const char *bases[] = {"/run", "/tmp", getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/dev/shm"};
	for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
		if (make_directory(door, bases[i]))
			continue;
		if (listen_in_directory(door) == 0)
			return 0;
		rmdir(door->directory);
	}
	return -1;
}

struct door *door_open(const uint8_t token[16], int node_descriptor, door_claim *claim, door_answer *answer, void *context)
{
	struct door *door = calloc(1, sizeof *door);
	if (!door)
		return NULL;
	door->node_descriptor = node_descriptor;
	door->claim = claim;
	door->answer = answer;
	door->context = context;
	memcpy(door->token, token, TOKEN_SIZE);
	for (int i = 0; i < GUESTS; i++)
		door->guests[i].connection = -1;
	door->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (door->epoll < 0 || open_somewhere(door)) {
		if (door->epoll >= 0)
			close(door->epoll);
		free(door);
		return NULL;
	}
	add_to_epoll(door, door->listener);
	return door;
}

const char *door_path(const struct door *door)
{
	return door->address.sun_path;
}

int door_descriptor(const struct door *door)
{
	return door->epoll;
}

static void send_away(struct guest *guest)
{
	close(guest->connection);
	guest->connection = -1;
}

static void accept_guests(struct door *door)
{
	for (int i = 0; i < GUESTS; i++) {
		struct guest *guest = &door->guests[i];
		if (guest->connection >= 0)
			continue;
		guest->connection = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (guest->connection < 0)
			return;
		guest->since_ns = clock_monotonic_ns();
		guest->length = 0;
		add_to_epoll(door, guest->connection);
	}
}

/* mask 0: the token itself; 0xff: its complement. */
static int token_is_right(const struct door *door, const struct guest *guest, uint8_t mask)
{
	uint8_t difference = 0;
	for (unsigned i = 0; i < TOKEN_SIZE; i++) /* takes the same time whatever was said */
		difference |= door->token[i] ^ guest->said.token[i] ^ mask;
	return difference == 0;
}

static void send_descriptors(const struct guest *guest, void *words, size_t length, const int descriptors[2])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control = {.space = {0}};
	struct iovec data = {words, length};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(header), descriptors, 2 * sizeof(int));
	/* An answer that cannot be sent leaves an arena that nobody attaches to: it is freed in time. */
	sendmsg(guest->connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* 0: there is none just now; more are made at the next pass. */
static int hand_out_arena(const struct door *door, const struct guest *guest)
{
	struct lorg_offer offer;
	if (door->claim(door->context, &offer))
		return 0;
	const int descriptors[2] = {door->node_descriptor, offer.descriptor};
	send_descriptors(guest, &offer, sizeof offer, descriptors);
	return 1;
}

static void hand_out_answer(const struct door *door, const struct guest *guest)
{
	const struct lorg_door_request *request = &guest->said.request;
	int descriptors[2];
	uint8_t word = 0;
	if (door->answer(door->context, request->arena_id, request->request, descriptors) == 0)
		send_descriptors(guest, &word, sizeof word, descriptors);
}

/* 1: all is said that there is to say. */
static int serve(const struct door *door, const struct guest *guest)
{
	if (guest->length < TOKEN_SIZE)
		return 0;
	if (token_is_right(door, guest, 0))
		return hand_out_arena(door, guest);
	if (!token_is_right(door, guest, 0xff))
		return 1;
	if (guest->length < sizeof guest->said)
		return 0;
	hand_out_answer(door, guest);
	return 1;
}

static void listen_to(struct door *door, struct guest *guest, uint64_t now_ns)
{
	ssize_t n = recv(guest->connection, guest->said.bytes + guest->length, sizeof guest->said - guest->length, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (now_ns > guest->since_ns + PATIENCE_NS || (guest->length && serve(door, guest)))
			send_away(guest);
		return;
	}
	if (n <= 0) {
		send_away(guest);
		return;
	}
	guest->length += (unsigned)n;
	if (serve(door, guest))
		send_away(guest);
}

void door_pass(struct door *door)
{
	uint64_t now_ns = clock_monotonic_ns();
	accept_guests(door);
	for (int i = 0; i < GUESTS; i++)
		if (door->guests[i].connection >= 0)
			listen_to(door, &door->guests[i], now_ns);
}

void door_close(struct door *door)
{
	if (!door)
		return;
	for (int i = 0; i < GUESTS; i++)
		if (door->guests[i].connection >= 0)
			send_away(&door->guests[i]);
	close(door->listener);
	close(door->epoll);
	unlink(door->address.sun_path);
	rmdir(door->directory);
	*strrchr(door->directory, '/') = 0;
	clear_abandoned(door->directory);
	free(door);
}
