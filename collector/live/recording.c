/* SPDX-License-Identifier: MIT */
/* recording.c: see recording.h. */
#include "collector/live/recording.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lorg/abi.h>

#include "collector/base/list.h"
#include "collector/event/event.h"
#include "collector/read/trace.h"

enum { METADATA_MAXIMUM = 1 << 20, PACKET_MAXIMUM = 16 << 20, READ_AT_ONCE = 1 << 20 };

struct file {
	char name[32];
	int fd;
	off_t at; /* of the next packet */
};

struct recording {
	DIR *directory;
	struct file *files;
	size_t count, room;
	uint8_t *bytes;
	size_t bytes_room;
	int ended; /* its last word was read */
	char why[64]; /* what was said of the session's end; empty: nothing */
};

static int read_metadata(int directory, char *error, size_t size)
{
	char *text = malloc(METADATA_MAXIMUM);
	int fd = openat(directory, "metadata", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t length = fd >= 0 && text ? read(fd, text, METADATA_MAXIMUM) : -1;
	struct trace *trace = NULL;
	if (length < 0)
		snprintf(error, size, "it is no trace directory (metadata: %s): name a session, or the directory of one", strerror(errno));
	else
		trace = trace_open_memory(text, (size_t)length, NULL, 0, error, size);
	if (fd >= 0)
		close(fd);
	free(text);
	if (!trace)
		return -1;
	trace_close(trace);
	return 0;
}

struct recording *recording_open(const char *directory, char *error, size_t size)
{
	struct recording *recording = calloc(1, sizeof *recording);
	if (!recording || !(recording->directory = opendir(directory))) {
		snprintf(error, size, "%s: name a session, see lorg session list, or a trace directory", strerror(errno));
		free(recording);
		return NULL;
	}
	if (read_metadata(dirfd(recording->directory), error, size) == 0)
		return recording;
	recording_close(recording);
	return NULL;
}

void recording_close(struct recording *recording)
{
	if (!recording)
		return;
	for (size_t i = 0; i < recording->count; i++)
		close(recording->files[i].fd);
	closedir(recording->directory);
	free(recording->files);
	free(recording->bytes);
	free(recording);
}

/* ---- files ------------------------------------------------------------------- */

static int is_stream(const char *name)
{
	return strncmp(name, "stream-", 7) == 0 && isdigit((unsigned char)name[7]) && strlen(name) < sizeof((struct file *)0)->name;
}

static int is_known(const struct recording *recording, const char *name)
{
	for (size_t i = 0; i < recording->count; i++)
		if (strcmp(recording->files[i].name, name) == 0)
			return 1;
	return 0;
}

static int add_file(struct recording *recording, const char *name)
{
	struct file *list = list_with_room(recording->files, recording->count, &recording->room, sizeof *list, 16);
	if (!list)
		return -1;
	recording->files = list;
	struct file *file = &recording->files[recording->count];
	*file = (struct file){.fd = openat(dirfd(recording->directory), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	if (file->fd < 0)
		return errno == ENOENT ? 0 : -1;
	snprintf(file->name, sizeof file->name, "%s", name);
	recording->count++;
	return 0;
}

static int find_files(struct recording *recording)
{
	struct dirent *entry;
	rewinddir(recording->directory);
	while ((entry = readdir(recording->directory)))
		if (is_stream(entry->d_name) && !is_known(recording, entry->d_name) && add_file(recording, entry->d_name))
			return -1;
	return 0;
}

/* ---- packets ------------------------------------------------------------------- */

static int begins_with(const uint8_t *text, uint32_t length, const char *beginning)
{
	size_t least = strlen(beginning);
	return text && length >= least && memcmp(text, beginning, least) == 0;
}

/* What the collector says of the end. */
static void take_mark(struct recording *recording, const uint8_t *text, uint32_t length)
{
	static const char session_ended[] = "session ended: ";
	if (begins_with(text, length, "recording ended"))
		recording->ended = 1;
	else if (begins_with(text, length, session_ended))
		snprintf(recording->why, sizeof recording->why, "%.*s", (int)(length - (sizeof session_ended - 1)),
			 (const char *)text + sizeof session_ended - 1);
}

static void look_for_end(struct recording *recording, const uint8_t *packet, size_t length, const struct lorg_packet *head)
{
	uint64_t previous = head->begin;
	struct event_view view;
	if (head->pid)
		return;
	for (size_t at = LORG_PACKET_HEAD; at < length; at += view.length) {
		enum event_status status = event_decode(packet + at, length - at, previous, &view);
		if (status == EVENT_BAD)
			break;
		if (status != EVENT_OK)
			continue;
		previous = view.tick;
		uint32_t text_length = 0;
		const uint8_t *text = view.id == LORG_EVENT_MARK ? event_bytes_named(&view, "text", &text_length) : NULL;
		take_mark(recording, text, text_length);
	}
}

static int give(struct recording *recording, struct live *live, uint8_t *packet, size_t length, int shown)
{
	struct lorg_packet head;
	memcpy(&head, packet, sizeof head);
	size_t content = (head.content_bits / 8 + 7) & ~(size_t)7; /* it ends before the padding of the last event */
	if (content <= length)
		look_for_end(recording, packet, content, &head);
	return shown ? live_packet(live, packet, length) : live_define(live, packet, length);
}

static int make_room(struct recording *recording, size_t room)
{
	if (recording->bytes_room >= room)
		return 0;
	uint8_t *grown = realloc(recording->bytes, room);
	if (!grown)
		return -1;
	recording->bytes = grown;
	recording->bytes_room = room;
	return 0;
}

/* Whole packets of what was read; *needed: bytes of one that is longer than that. What is none ends the file. */
static int give_packets(struct recording *recording, struct file *file, struct live *live, size_t length, int shown, size_t *needed)
{
	size_t at = 0;
	struct lorg_packet head;
	*needed = 0;
	while (length - at >= sizeof head) {
		memcpy(&head, recording->bytes + at, sizeof head);
		size_t bytes = head.packet_bits / 8;
		if (head.magic != LORG_PACKET_MAGIC || head.packet_bits % 64 || bytes < sizeof head || bytes > PACKET_MAXIMUM)
			break; /* not written yet, or damaged: lorg log tells */
		if (bytes > length - at) {
			*needed = at == 0 ? bytes : 0;
			break;
		}
		if (give(recording, live, recording->bytes + at, bytes, shown))
			return -1;
		at += bytes;
	}
	file->at += (off_t)at;
	return at > 0;
}

static int read_file(struct recording *recording, struct file *file, struct live *live, int shown)
{
	size_t needed = READ_AT_ONCE;
	for (;;) {
		size_t room = needed > READ_AT_ONCE ? needed : READ_AT_ONCE;
		if (make_room(recording, room))
			return -1;
		ssize_t got = pread(file->fd, recording->bytes, room, file->at);
		if (got < 0)
			return errno == EINTR ? 0 : -1;
		int some = give_packets(recording, file, live, (size_t)got, shown, &needed);
		if (some < 0)
			return -1;
		if (!some && (!needed || (size_t)got < needed))
			return 0;
	}
}

int recording_read(struct recording *recording, struct live *live, int shown)
{
	if (find_files(recording))
		return -1;
	for (size_t i = 0; i < recording->count; i++)
		if (read_file(recording, &recording->files[i], live, shown))
			return -1;
	return !recording->ended;
}

const char *recording_why(const struct recording *recording)
{
	return recording->why;
}

int recording_goes_on_elsewhere(const struct recording *recording, const char *directory)
{
	char metadata[PATH_MAX];
	struct stat own, there;
	if (fstat(dirfd(recording->directory), &own) || stat(directory, &there))
		return 0;
	if (own.st_ino == there.st_ino && own.st_dev == there.st_dev)
		return 0;
	return snprintf(metadata, sizeof metadata, "%s/metadata", directory) < (int)sizeof metadata && access(metadata, R_OK) == 0;
}
