/* SPDX-License-Identifier: MIT */
/* open.c: opens a trace directory: metadata, stream files, everything mapped read-only. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/read/index.h"

enum { METADATA_MAXIMUM = 16 << 20 };

static int __attribute__((format(printf, 3, 4))) refuse(char *error, size_t size, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error, size, format, arguments);
	va_end(arguments);
	return 0;
}

int index_grow(struct trace_index *index, void *array, unsigned count, unsigned *room, size_t element)
{
	if (count < *room)
		return 1;
	unsigned larger = *room ? *room * 2 : 16;
	void *old, *grown;
	memcpy(&old, array, sizeof old);
	grown = larger > *room ? reallocarray(old, larger, element) : NULL;
	if (!grown) {
		index->out_of_memory = 1;
		return 0;
	}
	memcpy(array, &grown, sizeof grown);
	*room = larger;
	return 1;
}

/* ---- metadata ---------------------------------------------------------- */

/* The text after `key =` in the metadata; NULL when there is none. */
static const char *metadata_value(const char *metadata, size_t length, const char *key)
{
	size_t key_length = strlen(key);
	const char *at = metadata, *end = metadata + length;
	while ((at = memmem(at, (size_t)(end - at), key, key_length))) {
		int begins = at == metadata || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
		at += key_length;
		while (at < end && isspace((unsigned char)*at))
			at++;
		if (!begins || at >= end || *at != '=')
			continue;
		at++;
		while (at < end && isspace((unsigned char)*at))
			at++;
		return at < end ? at : NULL;
	}
	return NULL;
}

static int metadata_number(const char *metadata, size_t length, const char *key, uint64_t *number)
{
	const char *at = metadata_value(metadata, length, key), *end = metadata + length;
	if (!at || !isdigit((unsigned char)*at))
		return 0;
	uint64_t value = 0;
	for (; at < end && isdigit((unsigned char)*at) && value < UINT64_MAX / 10 - 1; at++)
		value = value * 10 + (uint64_t)(*at - '0');
	*number = value;
	return 1;
}

static int metadata_uuid(const char *metadata, size_t length, uint8_t uuid[16])
{
	const char *at = metadata_value(metadata, length, "uuid"), *end = metadata + length;
	if (!at || *at++ != '"')
		return 0;
	for (unsigned digits = 0; digits < 32; at++) {
		if (at >= end)
			return 0;
		if (*at == '-')
			continue;
		if (!isxdigit((unsigned char)*at))
			return 0;
		unsigned digit = isdigit((unsigned char)*at) ? (unsigned)(*at - '0')
							     : (unsigned)(tolower((unsigned char)*at) - 'a' + 10);
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
		digits++;
	}
	return 1;
}

static int read_metadata(struct trace_index *index, const char *metadata, size_t length, char *error, size_t size)
{
	struct trace *trace = &index->trace;
	uint64_t major, minor = 0;
	if (!metadata_number(metadata, length, "lorg_abi_major", &major))
		return refuse(error, size, "its metadata is not of lorg: name the directory of a recording by lorg run");
	metadata_number(metadata, length, "lorg_abi_minor", &minor);
	if (major != LORG_ABI_MAJOR)
		return refuse(
			error, size,
			"it was recorded with version %llu of the format, this lorg reads version %d: use the lorg that recorded it",
			(unsigned long long)major, LORG_ABI_MAJOR);
	trace->abi_major = (uint32_t)major;
	trace->abi_minor = (uint32_t)minor;
	metadata_number(metadata, length, "freq", &index->frequency);
	index->has_uuid = metadata_uuid(metadata, length, index->uuid);
	if (!index->has_uuid)
		return refuse(error, size, "its metadata is damaged (no uuid): restore the file metadata from a copy");
	return 1;
}

/* ---- files ------------------------------------------------------------- */

static int map_file(int directory, const char *name, const uint8_t **bytes, size_t *length, char *error, size_t size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	*bytes = NULL;
	*length = 0;
	if (fd < 0 || fstat(fd, &status) != 0) {
		int reason = errno;
		if (fd >= 0)
			close(fd);
		return refuse(error, size, "%s: %s: check the file and its permissions", name, strerror(reason));
	}
	if (!S_ISREG(status.st_mode)) {
		close(fd);
		return refuse(error, size, "%s is not a regular file: name the directory of a recording", name);
	}
	if (status.st_size > 0) {
		void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (mapped == MAP_FAILED) {
			int reason = errno;
			close(fd);
			return refuse(error, size, "%s cannot be mapped: %s: free some memory", name, strerror(reason));
		}
		madvise(mapped, (size_t)status.st_size, MADV_SEQUENTIAL);
		*bytes = mapped;
		*length = (size_t)status.st_size;
	}
	close(fd);
	return 1;
}

/* N of stream-N; 0: another name. */
static int stream_number(const char *name, uint32_t *number)
{
	static const char prefix[] = "stream-";
	if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !isdigit((unsigned char)name[sizeof prefix - 1]))
		return 0;
	char *end;
	errno = 0;
	unsigned long value = strtoul(name + sizeof prefix - 1, &end, 10);
	if (errno || *end || value > UINT32_MAX)
		return 0;
	*number = (uint32_t)value;
	return 1;
}

struct stream *index_add_stream(struct trace_index *index)
{
	if (!index_grow(index, &index->streams, index->stream_count, &index->stream_room, sizeof *index->streams))
		return NULL;
	struct stream *stream = &index->streams[index->stream_count++];
	memset(stream, 0, sizeof *stream);
	return stream;
}

static int map_streams(struct trace_index *index, DIR *directory, char *error, size_t size)
{
	struct dirent *entry;
	uint32_t number;
	while ((entry = readdir(directory))) {
		if (!stream_number(entry->d_name, &number))
			continue;
		struct stream *stream = index_add_stream(index);
		if (!stream)
			return refuse(error, size, "out of memory: free some");
		stream->number = number;
		if (!map_file(dirfd(directory), entry->d_name, &stream->bytes, &stream->length, error, size)) {
			index->stream_count--;
			return 0;
		}
		stream->mapped = stream->bytes != NULL;
	}
	if (index->stream_count == 0)
		return refuse(error, size, "it has no stream files: nothing was recorded, or they were removed");
	return 1;
}

static int by_number(const void *left, const void *right)
{
	const struct stream *a = left, *b = right;
	return a->number < b->number ? -1 : a->number > b->number;
}

struct trace_index *index_new(void)
{
	struct trace_index *index = calloc(1, sizeof *index);
	if (!index)
		return NULL;
	index->trace.index = index;
	index->last_process = UINT_MAX;
	index->trace.hooks = calloc(LORG_HOOKS, sizeof *index->trace.hooks);
	if (!index->trace.hooks) {
		free(index);
		return NULL;
	}
	return index;
}

static struct trace *index_all(struct trace_index *index, char *error, size_t size)
{
	if (index->stream_count > 1)
		qsort(index->streams, index->stream_count, sizeof *index->streams, by_number);
	index_streams(index);
	index_finish(index);
	if (index->out_of_memory) {
		refuse(error, size, "out of memory: free some, or read it on a larger machine");
		trace_close(&index->trace);
		return NULL;
	}
	if (index->trace.packet_count == 0 && index->damage_count > 0) {
		refuse(error, size, "no packet of it is whole (%s: %s): restore it from a copy", index->trace.gaps[0].what,
		       index->trace.gaps[0].why);
		trace_close(&index->trace);
		return NULL;
	}
	return &index->trace;
}

static int open_files(struct trace_index *index, const char *name, char *error, size_t size)
{
	DIR *directory = opendir(name);
	const uint8_t *metadata = NULL;
	size_t length = 0;
	if (!directory)
		return refuse(error, size, "%s: %s", strerror(errno),
			      errno == ENOENT ? "record a program with lorg run first, or name the directory"
					      : "name the directory of a recording by lorg run");
	int good = 0;
	if (faccessat(dirfd(directory), "metadata", F_OK, 0) != 0)
		refuse(error, size,
		       "it is not a trace directory, the file metadata is missing: name the directory of a recording by lorg run");
	else if (map_file(dirfd(directory), "metadata", &metadata, &length, error, size))
		good = read_metadata(index, metadata ? (const char *)metadata : "",
				     length < METADATA_MAXIMUM ? length : METADATA_MAXIMUM, error, size) &&
		       map_streams(index, directory, error, size);
	if (metadata)
		munmap((void *)metadata, length);
	closedir(directory);
	return good;
}

static struct trace *open_directory(const char *directory, int lazily, char *error, size_t size)
{
	struct trace_index *index = index_new();
	if (!index || !(index->trace.directory = strdup(directory))) {
		refuse(error, size, "out of memory: free some");
		if (index)
			trace_close(&index->trace);
		return NULL;
	}
	index->lazily = lazily;
	if (!open_files(index, directory, error, size)) {
		trace_close(&index->trace);
		return NULL;
	}
	return index_all(index, error, size);
}

struct trace *trace_open(const char *directory, char *error, size_t size)
{
	return open_directory(directory, 0, error, size);
}

struct trace *trace_open_lazily(const char *directory, char *error, size_t size)
{
	return open_directory(directory, 1, error, size);
}

struct trace *trace_open_memory(const char *metadata, size_t metadata_length, const struct trace_memory *streams,
				unsigned count, char *error, size_t size)
{
	struct trace_index *index = index_new();
	if (!index) {
		refuse(error, size, "out of memory: free some");
		return NULL;
	}
	if (metadata && !read_metadata(index, metadata, metadata_length, error, size)) {
		trace_close(&index->trace);
		return NULL;
	}
	for (unsigned i = 0; i < count; i++) {
		struct stream *stream = index_add_stream(index);
		if (!stream)
			break;
		stream->number = i;
		stream->bytes = streams[i].bytes;
		stream->length = streams[i].length;
	}
	return index_all(index, error, size);
}

void trace_close(struct trace *trace)
{
	if (!trace)
		return;
	struct trace_index *index = trace->index;
	for (size_t i = 0; i < index->stream_count; i++)
		if (index->streams[i].mapped)
			munmap((void *)index->streams[i].bytes, index->streams[i].length);
	for (unsigned i = 0; i < trace->image_count; i++) {
		free((void *)trace->images[i]->modules);
		free(trace->images[i]);
	}
	for (unsigned i = 0; i < index->module_count; i++)
		free(index->modules[i]);
	free(index->modules);
	free(index->functions);
	free(index->hooked);
	free(index->streams);
	free(index->clocks);
	free(index->names);
	free(index->ports);
	free(index->reaped);
	free(index->nested_images);
	free(index->nested_processes);
	free(index->spawns);
	free(index->outside_exits);
	free(index->connections);
	free(index->unloads);
	free(index->process_table.slots);
	free(index->image_table.slots);
	free(index->gap_table.slots);
	free(trace->directory);
	free(trace->packets);
	free(trace->processes);
	free(trace->images);
	free(trace->hooks);
	free(trace->gaps);
	free(index);
}
