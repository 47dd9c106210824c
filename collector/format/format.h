/* SPDX-License-Identifier: MIT */
/*
 * format.h: prints events as text for people, as JSON, as terms of trace(3).
 * What each looks like is in doc/FORMATS.md. One thread.
 */
#ifndef LORG_FORMAT_FORMAT_H
#define LORG_FORMAT_FORMAT_H

#include "collector/format/json.h"
#include "collector/format/names.h"
#include "collector/format/output.h"
#include "collector/read/cause.h"
#include "collector/read/trace.h"

/* How trace(3)'s messages are stamped: by the flags strict_monotonic_timestamp, timestamp, monotonic_timestamp. */
enum format_timestamps {
	TIMESTAMPS_NONE = 0,
	TIMESTAMPS_STRICT = 1,	  /* {Ns, Int} */
	TIMESTAMPS_WALL = 2,	  /* {MegaSecs, Secs, MicroSecs} */
	TIMESTAMPS_MONOTONIC = 3, /* Ns */
	TIMESTAMPS_CPU = 4,	  /* as TIMESTAMPS_WALL, of the program's CPU time; undefined where that is not known */
};

struct formatter {
	const struct trace *trace;
	struct names *names;
	struct output *output;
	struct json *json;     /* for format_json */
	struct causes *causes; /* JSON: NULL leaves "cause" out */
	uint64_t start_ns;     /* text: times are shown since then */
	int colour;            /* text */
	int timestamps;        /* enum format_timestamps; erlang's, and others show TIMESTAMPS_CPU too */
	uint64_t cpu_ns;       /* with TIMESTAMPS_CPU; UINT64_MAX: not known */
	const unsigned char *shown; /* erlang: which messages, by event id, of events that are several; NULL: all */
	unsigned messages;     /* erlang: written of the event at hand; its own */
	int bookkeeping;       /* also events about the recording itself */
};

typedef void format_function(struct formatter *formatter, const struct trace_event *event);

format_function format_text, format_json, format_erlang;

/* Events lost, of `process` (NULL: of nobody in particular) at that time. */
typedef void format_lost_function(struct formatter *formatter, const struct trace_process *process, uint64_t time,
				  uint64_t hlc, uint64_t count, const char *why);
format_lost_function format_text_lost, format_json_lost, format_erlang_lost;

/* Something that the trace does not have; at its end. */
typedef void format_gap_function(struct formatter *formatter, const struct trace_gap *gap, uint64_t time, uint64_t hlc);
format_gap_function format_text_gap, format_json_gap, format_erlang_gap;

/* Keeps the causes going over events that are not printed. */
void format_skip(struct formatter *formatter, const struct trace_event *event);

/* "coverage: traced ...; not traced: ...; lost ..." with a newline; the last line of what people read. */
void format_coverage(struct output *output, const struct trace *trace);

/* Names of kinds of events that the recording asked for and none came of; at most `size`. Returns how many. */
unsigned never_seen(const struct trace *trace, const char **names, unsigned size);

/* Name of a session slot, or its number; buffer of 16 bytes. */
struct trace_text session_name(const struct trace *trace, uint32_t slot, char buffer[16]);

#endif
