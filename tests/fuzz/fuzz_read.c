/* SPDX-License-Identifier: MIT */
/*
 * fuzz_read.c: the reader of trace directories on hostile stream files.
 *
 * The input is one stream, or two: the first byte says where it is cut. All
 * that lorg log and lorg report do with a trace is done with it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/format/format.h"
#include "collector/format/report.h"
#include "no_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A checksum would stop the fuzzer at the door: 0 means that a packet has none. */
static void without_checksums(uint8_t *bytes, size_t length)
{
	static const uint32_t magic = LORG_PACKET_MAGIC;
	for (size_t at = 0; at + LORG_PACKET_HEAD <= length; at += 8)
		if (memcmp(bytes + at, &magic, sizeof magic) == 0)
			memset(bytes + at + offsetof(struct lorg_packet, last), 0, sizeof(uint64_t));
}

static void print_all(const struct trace *trace, struct names *names)
{
	static format_function *const functions[] = {format_text, format_json, format_erlang};
	struct output output;
	output_begin(&output, -1);
	struct formatter formatter = {.trace = trace,
				      .names = names,
				      .output = &output,
				      .json = json_new(&output),
				      .causes = causes_new(),
				      .timestamps = 1};
	struct merge *merge = merge_start(trace);
	struct trace_event event;
	uint64_t hlc = 0, count = 0;
	while (formatter.json && formatter.causes && merge && merge_next(merge, &event) == 1) {
		if (event.hlc <= hlc)
			abort();
		hlc = event.hlc;
		count++;
		output.length = 0;
		for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
			functions[i](&formatter, &event);
	}
	if (count != trace->shown_count)
		abort();
	format_coverage(&output, trace);
	merge_end(merge);
	json_free(formatter.json);
	causes_free(formatter.causes);
	output_end(&output);
}

static void report_all(const struct trace *trace, struct names *names)
{
	struct profile *profile = profile_make(trace);
	struct report *report = profile ? report_make(trace, profile, names) : NULL;
	struct output output;
	output_begin(&output, -1);
	if (report) {
		report_json(&output, report, names);
		report_text(&output, report, names, 0);
	}
	output_end(&output);
	report_free(report);
	profile_free(profile);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[256];
	if (size < 1)
		return 0;
	size_t length = size - 1, cut = data[0] < 128 ? 0 : length * (data[0] - 128u) / 128 & ~(size_t)7;
	uint8_t *copy = malloc(length ? length : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 1, length);
	without_checksums(copy, cut);
	without_checksums(copy + cut, length - cut);
	const struct trace_memory streams[] = {{copy, cut}, {copy + cut, length - cut}};
	struct trace *trace = trace_open_memory(NULL, 0, streams, 2, why, sizeof why);
	struct names *names = trace ? names_new(trace) : NULL;
	if (names) {
		print_all(trace, names);
		report_all(trace, names);
	}
	names_free(names);
	trace_close(trace);
	free(copy);
	return 0;
}
