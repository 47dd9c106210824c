/* SPDX-License-Identifier: MIT */
/* wire.c: see wire.h. */
#include "collector/client/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collector/client/failure.h"
#include "collector/client/place.h"

enum {
	READ_AT_ONCE = 1 << 17,
	FRAME_MAXIMUM = 256 << 20, /* bytes of any frame; answers may be long */
};

static const char start_it[] = "start it with `lorgd &` or `systemctl --user start lorgd`";

int wire_directory(char *directory, size_t size, struct lorg_failure *failure)
{
	if (place_directory(directory, size) == 0)
		return 0;
	return client_fail(failure, LORG_FAILURE_IO, ENAMETOOLONG, "the name of lorgd's directory is too long: set LORG_RUNTIME_DIRECTORY");
}

/* ---- connecting ----------------------------------------------------------- */

static int cannot_connect(const char *path, int error, struct lorg_failure *failure)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
	case ECONNREFUSED:
		return client_fail(failure, LORG_FAILURE_NO_DAEMON, error, "no lorgd answers at %s: %s", path, start_it);
	case EACCES:
	case EPERM:
		return client_fail(failure, LORG_FAILURE_REFUSED, error,
				   "%s belongs to another user: start a lorgd of your own with `lorgd &`, or set LORG_RUNTIME_DIRECTORY", path);
	case EAGAIN:
		return client_fail(failure, LORG_FAILURE_NO_DAEMON, error, "lorgd at %s has no time for more connections: try again", path);
	default:
		return client_fail(failure, LORG_FAILURE_IO, error, "%s: %s: set LORG_RUNTIME_DIRECTORY to where lorgd's socket stands", path,
				   strerror(error));
	}
}

int wire_connect(struct wire *wire, const char *directory, struct lorg_failure *failure)
{
	char path[4200];
	snprintf(path, sizeof path, "%.4000s/control", directory);
	*wire = (struct wire){.fd = place_connect(directory)};
	return wire->fd >= 0 ? 0 : cannot_connect(path, errno, failure);
}

void wire_close(struct wire *wire)
{
	if (wire->fd >= 0)
		close(wire->fd);
	free(wire->bytes);
	*wire = (struct wire){.fd = -1};
}

/* ---- reading ---------------------------------------------------------------- */

static int make_room(struct wire *wire)
{
	if (wire->at > 0 && (wire->at == wire->length || wire->at >= wire->room / 2)) {
		memmove(wire->bytes, wire->bytes + wire->at, wire->length - wire->at);
		wire->length -= wire->at;
		wire->at = 0;
	}
	if (wire->room - wire->length >= READ_AT_ONCE)
		return 0;
	size_t room = wire->room ? wire->room * 2 : 2 * READ_AT_ONCE;
	uint8_t *grown = realloc(wire->bytes, room);
	if (!grown)
		return -1;
	wire->bytes = grown;
	wire->room = room;
	return 0;
}

int wire_read(struct wire *wire, struct lorg_failure *failure)
{
	if (wire->ended)
		return 0;
	if (make_room(wire))
		return client_no_memory(failure);
	ssize_t got;
	do
		got = recv(wire->fd, wire->bytes + wire->length, wire->room - wire->length, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got > 0) {
		wire->length += (size_t)got;
		return 1;
	}
	if (got == 0 || errno == ECONNRESET || errno == EPIPE)
		wire->ended = 1;
	else if (errno != EAGAIN && errno != EWOULDBLOCK)
		return client_fail(failure, LORG_FAILURE_IO, errno, "reading from lorgd: %s: connect again", strerror(errno));
	return 0;
}

int wire_take(struct wire *wire, struct wire_frame *frame, struct lorg_failure *failure)
{
	size_t have = wire->length - wire->at;
	if (have < sizeof frame->head)
		return 0;
	memcpy(&frame->head, wire->bytes + wire->at, sizeof frame->head);
	if (frame->head.length > FRAME_MAXIMUM)
		return client_fail(failure, LORG_FAILURE_IO, EPROTO, "what answers is no lorgd of this version: install lorg anew");
	if (have - sizeof frame->head < frame->head.length)
		return 0;
	frame->bytes = wire->bytes + wire->at + sizeof frame->head;
	wire->at += sizeof frame->head + frame->head.length;
	return 1;
}

int wire_has_frame(const struct wire *wire)
{
	struct frame_head head;
	size_t have = wire->length - wire->at;
	if (have < sizeof head)
		return 0;
	memcpy(&head, wire->bytes + wire->at, sizeof head);
	return have - sizeof head >= head.length;
}

static int wait_for(struct wire *wire, short events, int64_t timeout_ns, struct lorg_failure *failure)
{
	struct pollfd ready = {.fd = wire->fd, .events = events};
	struct timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
	if (ppoll(&ready, 1, timeout_ns < 0 ? NULL : &limit, NULL) >= 0 || errno == EINTR)
		return 0;
	return client_fail(failure, LORG_FAILURE_IO, errno, "waiting for lorgd: %s: connect again", strerror(errno));
}

int wire_wait(struct wire *wire, int64_t timeout_ns, struct lorg_failure *failure)
{
	return wait_for(wire, POLLIN, timeout_ns, failure);
}

/* ---- sending ---------------------------------------------------------------- */

static int gone(struct lorg_failure *failure)
{
	return client_fail(failure, LORG_FAILURE_NO_DAEMON, EPIPE, "lorgd has gone: %s", start_it);
}

static int send_bytes(struct wire *wire, const uint8_t *bytes, size_t length, struct lorg_failure *failure)
{
	while (length > 0) {
		ssize_t sent = send(wire->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0) {
			bytes += sent;
			length -= (size_t)sent;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EPIPE || errno == ECONNRESET) {
			wire_read(wire, NULL); /* why, it may have said */
			return gone(failure);
		}
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return client_fail(failure, LORG_FAILURE_IO, errno, "writing to lorgd: %s: connect again", strerror(errno));
		/* It may wait for us to read. */
		if (wait_for(wire, POLLIN | POLLOUT, -1, failure) || wire_read(wire, failure) < 0)
			return -1;
		if (wire->ended)
			return gone(failure);
	}
	return 0;
}

int wire_send(struct wire *wire, enum frame_kind kind, uint64_t number, const void *bytes, size_t length, struct lorg_failure *failure)
{
	const struct frame_head head = {.length = (uint32_t)length, .kind = (uint16_t)kind, .number = number};
	uint8_t *frame = malloc(sizeof head + length);
	if (!frame)
		return client_no_memory(failure);
	memcpy(frame, &head, sizeof head);
	memcpy(frame + sizeof head, bytes, length);
	int result = send_bytes(wire, frame, sizeof head + length, failure);
	free(frame);
	return result;
}
