/* SPDX-License-Identifier: MIT */
/* connection.c: see connection.h. */
#include "collector/daemon/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "collector/daemon/protocol.h"

enum { SENT_AT_ONCE = 64 /* frames */, TURN_BYTES = 1 << 20 };

struct output {
	struct output *next;
	struct connection_account *account; /* NULL: nobody counts it */
	int is_answer;
	size_t length, sent;
	uint8_t bytes[];
};

struct connection *connection_create(int descriptor, uint64_t *input_of_all)
{
	struct connection *connection = calloc(1, sizeof *connection);
	if (!connection)
		return NULL;
	connection->descriptor = descriptor;
	connection->input_of_all = input_of_all;
	return connection;
}

static void give_back_input(struct connection *connection)
{
	*connection->input_of_all -= connection->input_room;
	free(connection->input);
	connection->input = NULL;
	connection->input_room = connection->input_length = connection->input_taken = 0;
}

static void drop_first(struct connection *connection)
{
	struct output *output = connection->first;
	if (connection->last_answer == output)
		connection->last_answer = NULL;
	connection->first = output->next;
	if (!connection->first)
		connection->last = NULL;
	connection->output_length -= output->length;
	if (output->is_answer)
		connection->answers_length -= output->length;
	if (output->account)
		output->account->waiting -= output->length;
	free(output);
}

void connection_free(struct connection *connection)
{
	while (connection->first)
		drop_first(connection);
	give_back_input(connection);
	close(connection->descriptor);
	free(connection);
}

/* ---- in ------------------------------------------------------------------ */

/* Forgets the frames that were looked at. */
static void compact(struct connection *connection)
{
	if (!connection->input_taken)
		return;
	connection->input_length -= connection->input_taken;
	memmove(connection->input, connection->input + connection->input_taken, connection->input_length);
	connection->input_taken = 0;
	if (!connection->input_length)
		give_back_input(connection);
}

static int has_head(const struct connection *connection, struct frame_head *head)
{
	if (connection->input_length - connection->input_taken < sizeof *head)
		return 0;
	memcpy(head, connection->input + connection->input_taken, sizeof *head);
	return 1;
}

static int is_allowed(const struct connection *connection, const struct frame_head *head)
{
	uint32_t most = connection->greeted ? FRAME_REQUEST_MAXIMUM : CONNECTION_FIRST_REQUEST;
	return head->kind == FRAME_REQUEST && head->reserved == 0 && head->length <= most;
}

/* Room for what may arrive next: of a large frame, twice what has come of it. */
static int make_room(struct connection *connection)
{
	size_t room = connection->input_room ? connection->input_room : 512;
	while (room - connection->input_length < room / 2)
		room *= 2;
	size_t most = 2 * (FRAME_REQUEST_MAXIMUM + sizeof(struct frame_head));
	if (room > most)
		room = most;
	if (room == connection->input_room)
		return 0;
	if (*connection->input_of_all + room - connection->input_room > CONNECTION_INPUT_ALL)
		return -1;
	uint8_t *grown = realloc(connection->input, room);
	if (!grown)
		return -1;
	*connection->input_of_all += room - connection->input_room;
	connection->input = grown;
	connection->input_room = room;
	return 0;
}

void connection_receive(struct connection *connection)
{
	struct frame_head head;
	compact(connection);
	/* What is no frame is not read on. */
	if ((has_head(connection, &head) && !is_allowed(connection, &head)) || make_room(connection)) {
		connection->failed = 1;
		return;
	}
	size_t room = connection->input_room - connection->input_length;
	if (!room)
		return; /* whole frames wait to be served */
	ssize_t n = recv(connection->descriptor, connection->input + connection->input_length,
			 room < CONNECTION_READ ? room : CONNECTION_READ, MSG_DONTWAIT);
	if (n > 0)
		connection->input_length += (size_t)n;
	else if (n == 0)
		connection->ended = 1;
	else if (errno != EAGAIN && errno != EINTR)
		connection->failed = 1;
	if (!connection->input_length)
		give_back_input(connection);
}

int connection_has_frame(const struct connection *connection)
{
	struct frame_head head;
	if (!has_head(connection, &head))
		return 0;
	return !is_allowed(connection, &head) || connection->input_length - connection->input_taken - sizeof head >= head.length;
}

int connection_next(struct connection *connection, struct frame *frame)
{
	struct frame_head head;
	if (!connection_has_frame(connection))
		return 0;
	has_head(connection, &head);
	if (!is_allowed(connection, &head)) {
		connection->failed = 1;
		return 0;
	}
	*frame = (struct frame){head.kind, head.number, (const char *)connection->input + connection->input_taken + sizeof head,
				head.length};
	connection->input_taken += sizeof head + head.length;
	return 1;
}

void connection_unread(struct connection *connection, const struct frame *frame)
{
	connection->input_taken -= sizeof(struct frame_head) + frame->length;
}

/* ---- out ----------------------------------------------------------------- */

/* Behind which frame an answer goes: the answer before it, or one that has been sent in part; NULL: it is the first. */
static struct output *before_answer(const struct connection *connection)
{
	if (connection->last_answer)
		return connection->last_answer;
	return connection->first && connection->first->sent ? connection->first : NULL;
}

static void insert(struct connection *connection, struct output *output, struct output *before)
{
	struct output **place = before ? &before->next : &connection->first;
	output->next = *place;
	*place = output;
	if (!output->next)
		connection->last = output;
}

int connection_put(struct connection *connection, uint16_t kind, uint64_t number, const void *data, size_t length,
		   struct connection_account *account)
{
	const struct frame_head head = {.length = (uint32_t)length, .kind = kind, .number = number};
	struct output *output = malloc(sizeof *output + sizeof head + length);
	if (!output)
		return -1;
	*output = (struct output){.account = account, .is_answer = kind == FRAME_ANSWER, .length = sizeof head + length};
	memcpy(output->bytes, &head, sizeof head);
	if (length)
		memcpy(output->bytes + sizeof head, data, length);
	insert(connection, output, output->is_answer ? before_answer(connection) : connection->last);
	connection->output_length += output->length;
	if (output->is_answer) {
		connection->answers_length += output->length;
		connection->last_answer = output;
	}
	if (account)
		account->waiting += output->length;
	return 0;
}

void connection_settle(struct connection *connection, const struct connection_account *account)
{
	for (struct output *output = connection->first; output; output = output->next)
		if (output->account == account)
			output->account = NULL;
}

static size_t send_some(struct connection *connection)
{
	struct iovec part[SENT_AT_ONCE];
	struct msghdr message = {.msg_iov = part};
	for (struct output *output = connection->first; output && message.msg_iovlen < SENT_AT_ONCE; output = output->next)
		part[message.msg_iovlen++] = (struct iovec){output->bytes + output->sent, output->length - output->sent};
	ssize_t n = sendmsg(connection->descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
		connection->failed = 1;
	return n > 0 ? (size_t)n : 0;
}

static void note_sent(struct connection *connection, size_t sent)
{
	while (sent) {
		struct output *output = connection->first;
		size_t rest = output->length - output->sent;
		if (sent < rest) {
			output->sent += sent;
			return;
		}
		sent -= rest;
		drop_first(connection);
	}
}

void connection_send(struct connection *connection)
{
	/* Others have their turn, too. */
	for (size_t all = 0; connection->first && all < TURN_BYTES;) {
		size_t sent = send_some(connection);
		if (!sent)
			return;
		note_sent(connection, sent);
		all += sent;
	}
}
