/* SPDX-License-Identifier: MIT */
/*
 * receive.c: messages of sessions. Packets gather for some milliseconds and are
 * then shown together; the texts wait in one store until they are fetched, and
 * the socket is not read meanwhile: whoever is too slow is told so by lorgd.
 */
#include "collector/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "collector/base/list.h"
#include "collector/client/failure.h"

/* Packets are shown each 20 ms; after a rest at once, but for what comes together. */
static const uint64_t gather_ns = 20000000, together_ns = 1000000, lost_ns = 1000000000;
/* Bytes that are read before they are shown; after a rest fewer: whoever waits for the first message sees it soon. */
enum { GATHERED_MAXIMUM = 1 << 20, GATHERED_FIRST = 1 << 15 };

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- streams ------------------------------------------------------------------ */

struct stream *client_stream(struct lorg_connection *connection, uint64_t number, const char *name)
{
	struct stream *stream = connection->streams;
	while (stream && stream->number != number)
		stream = stream->next;
	if (!stream) {
		stream = calloc(1, sizeof *stream);
		if (!stream)
			return NULL;
		stream->number = number;
		stream->next = connection->streams;
		connection->streams = stream;
	}
	if (name && !stream->name)
		stream->name = strdup(name);
	return stream;
}

void client_streams_free(struct lorg_connection *connection)
{
	while (connection->streams) {
		struct stream *stream = connection->streams;
		connection->streams = stream->next;
		live_free(stream->live);
		free(stream->name);
		free(stream);
	}
}

/* ---- what waits to be fetched ----------------------------------------------------- */

static size_t store(struct lorg_connection *connection, const char *text, size_t length)
{
	size_t at = connection->store.length;
	output_bytes(&connection->store, text, length);
	output_byte(&connection->store, 0);
	return at;
}

static int add_waiting(struct lorg_connection *connection, const struct waiting *waiting)
{
	struct waiting *list = list_with_room(connection->waiting, connection->waiting_count, &connection->waiting_room, sizeof *list, 256);
	if (!list)
		return -1;
	connection->waiting = list;
	connection->waiting[connection->waiting_count++] = *waiting;
	return connection->store.failure ? -1 : 0;
}

static size_t store_line(struct lorg_connection *connection, const char *line)
{
	return line ? store(connection, line, strcspn(line, "\n")) : SIZE_MAX;
}

/* A term is a line; an event that is several messages has several. */
static int take_message(void *context, const struct live_message *message)
{
	struct lorg_connection *connection = context;
	struct waiting waiting = {
		.kind = message->kind == LIVE_LOST ? LORG_MESSAGE_LOST : LORG_MESSAGE_TRACE,
		.stream = connection->shown_stream,
		.text = SIZE_MAX,
		.json = store_line(connection, message->json),
		.people = store_line(connection, message->text),
		.time = message->time,
		.count = message->count,
	};
	if (!message->erlang || !*message->erlang)
		return message->erlang && !message->text ? 0 : add_waiting(connection, &waiting);
	for (const char *line = message->erlang; *line;) {
		size_t length = strcspn(line, "\n");
		waiting.text = store(connection, line, length);
		if (add_waiting(connection, &waiting))
			return -1;
		waiting.people = SIZE_MAX; /* one line an event */
		line += length + (line[length] == '\n');
	}
	return 0;
}

/* One message for all losses since the last. */
static int tell_count(struct lorg_connection *connection, struct stream *stream, enum lorg_message_kind kind, uint64_t count)
{
	char text[64];
	if (!count)
		return 0;
	int length = snprintf(text, sizeof text, "{%s,%llu}", kind == LORG_MESSAGE_LOST ? "lost" : "perhaps_lost", (unsigned long long)count);
	const struct waiting waiting = {.kind = kind,
					.stream = stream,
					.text = store(connection, text, (size_t)length),
					.json = SIZE_MAX,
					.people = SIZE_MAX,
					.time = now_ns(),
					.count = count};
	return add_waiting(connection, &waiting);
}

static int tell_lost(struct lorg_connection *connection, struct stream *stream)
{
	uint64_t count = stream->lost, perhaps = stream->perhaps_lost;
	stream->lost = stream->perhaps_lost = 0;
	return tell_count(connection, stream, LORG_MESSAGE_LOST, count) || tell_count(connection, stream, LORG_MESSAGE_PERHAPS_LOST, perhaps)
		       ? -1
		       : 0;
}

static int tell_all_lost(struct lorg_connection *connection, struct lorg_failure *failure)
{
	connection->lost_due = 0;
	for (struct stream *stream = connection->streams; stream; stream = stream->next)
		if (tell_lost(connection, stream))
			return client_no_memory(failure);
	return 0;
}

static int show_gathered(struct lorg_connection *connection, struct lorg_failure *failure)
{
	connection->due = 0;
	connection->shown_ns = now_ns();
	for (struct stream *stream = connection->streams; stream; stream = stream->next) {
		if (!stream->live || !live_waits(stream->live))
			continue;
		if (tell_lost(connection, stream))
			return client_no_memory(failure);
		connection->shown_stream = stream;
		if (live_show(stream->live, take_message, connection))
			return client_no_memory(failure);
	}
	return 0;
}

/* A message that is no event; text may be NULL. */
static int take_plain(struct lorg_connection *connection, const struct waiting *waiting, const char *text, size_t length,
		      struct lorg_failure *failure)
{
	struct waiting plain = *waiting;
	if (show_gathered(connection, failure) || tell_all_lost(connection, failure))
		return -1;
	plain.text = text ? store(connection, text, length) : SIZE_MAX;
	plain.json = plain.people = SIZE_MAX;
	if (!plain.time)
		plain.time = now_ns();
	return add_waiting(connection, &plain) ? client_no_memory(failure) : 0;
}

/* ---- frames ------------------------------------------------------------------------- */

static int take_packet(struct lorg_connection *connection, struct stream *stream, const struct wire_frame *frame,
		       struct lorg_failure *failure)
{
	if (!stream->live)
		stream->live = live_new(connection->forms);
	if (!stream->live || live_packet(stream->live, frame->bytes, frame->head.length))
		return client_no_memory(failure);
	if (connection->due || !live_waits(stream->live))
		return 0;
	uint64_t now = now_ns(), next = connection->shown_ns + gather_ns;
	connection->due = next > now + together_ns ? next : now + together_ns;
	return 0;
}

static int take_lost(struct lorg_connection *connection, struct stream *stream, const struct wire_frame *frame)
{
	struct frame_lost lost = {0, 0};
	memcpy(&lost, frame->bytes, frame->head.length < sizeof lost ? frame->head.length : sizeof lost);
	stream->lost += lost.count;
	stream->perhaps_lost += lost.perhaps;
	if (!connection->lost_due && (lost.count | lost.perhaps))
		connection->lost_due = now_ns() + lost_ns;
	return 0;
}

static int take_ended(struct lorg_connection *connection, struct stream *stream, const struct wire_frame *frame,
		      struct lorg_failure *failure)
{
	const struct waiting waiting = {.kind = LORG_MESSAGE_ENDED, .stream = stream};
	int result = take_plain(connection, &waiting, (const char *)frame->bytes, frame->head.length, failure);
	live_free(stream->live);
	stream->live = NULL;
	return result;
}

int client_take_frame(struct lorg_connection *connection, const struct wire_frame *frame, struct lorg_failure *failure)
{
	if (frame->head.kind != FRAME_PACKET && frame->head.kind != FRAME_DELIVERED && frame->head.kind != FRAME_LOST &&
	    frame->head.kind != FRAME_ENDED && frame->head.kind != FRAME_TEXT)
		return 0; /* an answer that nobody waits for, or of a later version */
	struct stream *stream = client_stream(connection, frame->head.number, NULL);
	if (!stream)
		return client_no_memory(failure);
	const struct waiting delivered = {.kind = LORG_MESSAGE_DELIVERED, .stream = stream};
	const struct waiting let_through = {.kind = LORG_MESSAGE_TRACE, .stream = stream};
	switch (frame->head.kind) {
	case FRAME_PACKET: return take_packet(connection, stream, frame, failure);
	case FRAME_LOST: return take_lost(connection, stream, frame);
	case FRAME_ENDED: return take_ended(connection, stream, frame, failure);
	case FRAME_TEXT: return take_plain(connection, &let_through, (const char *)frame->bytes, frame->head.length, failure);
	default: return take_plain(connection, &delivered, (const char *)frame->bytes, frame->head.length, failure);
	}
}

/* All whole frames that have come. 1 there were some, 0, -1. */
static int take_frames(struct lorg_connection *connection, struct lorg_failure *failure)
{
	struct wire_frame frame;
	int some = 0, more;
	size_t bytes = 0, most = now_ns() - connection->shown_ns > 2 * gather_ns ? GATHERED_FIRST : GATHERED_MAXIMUM;
	while (bytes < most && (more = wire_take(&connection->wire, &frame, failure)) != 0) {
		if (more < 0 || client_take_frame(connection, &frame, failure))
			return -1;
		bytes += sizeof frame.head + frame.head.length;
		some = 1;
	}
	if (bytes >= most)
		connection->due = 1;
	return some;
}

/* When there is something to do without anything more to come; 0: nothing. */
static uint64_t due_of(const struct lorg_connection *connection)
{
	uint64_t due = connection->due, lost = connection->lost_due;
	return !due || (lost && lost < due) ? lost : due;
}

/* ---- the timer ------------------------------------------------------------------------- */

void client_arm(struct lorg_connection *connection)
{
	int at_once = connection->waiting_first < connection->waiting_count || wire_has_frame(&connection->wire) || connection->wire.ended;
	uint64_t when = at_once ? 1 : due_of(connection);
	if (when == connection->armed)
		return;
	struct itimerspec setting = {.it_value = {(time_t)(when / 1000000000), (long)(when % 1000000000)}};
	timerfd_settime(connection->timer, TFD_TIMER_ABSTIME, &setting, NULL);
	connection->armed = when;
}

/* ---- fetching ---------------------------------------------------------------------------- */

static const char *stored(const struct lorg_connection *connection, size_t at)
{
	return at == SIZE_MAX ? NULL : connection->store.text + at;
}

static void fetch(struct lorg_connection *connection, struct lorg_message *message, const char **people)
{
	const struct waiting *waiting = &connection->waiting[connection->waiting_first++];
	*message = (struct lorg_message){
		.kind = waiting->kind,
		.session = waiting->stream->name ? waiting->stream->name : "",
		.text = stored(connection, waiting->text),
		.json = stored(connection, waiting->json),
		.time = waiting->time,
		.count = waiting->count,
	};
	if (!message->text)
		message->text = "";
	if (people)
		*people = stored(connection, waiting->people);
}

/* What was fetched before is no longer valid. */
static void forget_fetched(struct lorg_connection *connection)
{
	if (connection->waiting_first < connection->waiting_count)
		return;
	connection->waiting_first = connection->waiting_count = 0;
	connection->store.length = 0;
}

/* How long to wait: until what gathers is due, or the caller's time is over. */
static int64_t wait_ns(const struct lorg_connection *connection, uint64_t now, uint64_t until)
{
	uint64_t due = due_of(connection), end = due && due < until ? due : until;
	if (end == UINT64_MAX)
		return -1;
	return end > now ? (int64_t)(end - now) : 0;
}

static int no_more(struct lorg_failure *failure)
{
	return client_fail(failure, LORG_FAILURE_NO_DAEMON, ECONNRESET,
			   "lorgd has gone: start it again with `lorgd &` or `systemctl --user restart lorgd`");
}

void client_hurry(struct lorg_connection *connection)
{
	connection->due = connection->due ? 1 : 0;
	connection->lost_due = connection->lost_due ? 1 : 0;
}

int client_receive(struct lorg_connection *connection, int64_t timeout_ns, struct lorg_message *message, const char **people,
		   struct lorg_failure *failure)
{
	uint64_t now = now_ns(), until = timeout_ns < 0 ? UINT64_MAX : now + (uint64_t)timeout_ns;
	int result = 0, waited = 0;
	client_no_failure(failure);
	if (!connection || !message)
		return client_fail(failure, LORG_FAILURE_BADARG, EINVAL, "no connection, or no place for the message, was given (NULL)");
	forget_fetched(connection);
	for (;; now = now_ns()) {
		if (connection->waiting_first < connection->waiting_count) {
			fetch(connection, message, people);
			result = 1;
			break;
		}
		if (connection->due && now >= connection->due) {
			if ((result = show_gathered(connection, failure)))
				break;
			continue;
		}
		if (connection->lost_due && now >= connection->lost_due) {
			if ((result = tell_all_lost(connection, failure)))
				break;
			continue;
		}
		if ((result = take_frames(connection, failure)) > 0)
			continue;
		if (result < 0 || (result = wire_read(&connection->wire, failure)) < 0)
			break;
		if (result > 0)
			continue;
		if (connection->wire.ended) {
			if (connection->due || connection->lost_due) {
				client_hurry(connection);
				continue;
			}
			result = no_more(failure);
			break;
		}
		if (now >= until || (waited && timeout_ns == 0))
			break;
		waited = 1;
		if ((result = wire_wait(&connection->wire, wait_ns(connection, now, until), failure)))
			break;
	}
	client_arm(connection);
	return result;
}

int lorg_receive(struct lorg_connection *connection, int64_t timeout_ns, struct lorg_message *message, struct lorg_failure *failure)
{
	return client_receive(connection, timeout_ns, message, NULL, failure);
}
