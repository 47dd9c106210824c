/* SPDX-License-Identifier: MIT */
/*
 * trace.h: a recorded trace, opened for reading.
 *
 * trace_open() maps the stream files of a trace directory, lists their packets
 * by their heads, and goes through all events once for what the others are
 * read with: images, modules, functions, hooks, the clock, how processes
 * ended. Nothing in a file is believed: a packet that is not whole is skipped
 * and becomes a struct trace_gap.
 *
 * Ownership: everything here belongs to the trace and is valid until
 * trace_close(). Texts are not zero-terminated (struct trace_text) where they
 * lie in the files. One thread at a time may use a trace.
 *
 * Units: ticks are the trace's clock; trace_time() turns them into ns of
 * CLOCK_MONOTONIC.
 */
#ifndef LORG_READ_TRACE_H
#define LORG_READ_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

#include "collector/event/event.h"

struct trace_text {
	const uint8_t *bytes; /* any bytes may occur */
	uint32_t length;
};

struct trace_image;

/* A loaded object of an image, by MODULE and MODULE_UNLOADED events. */
struct trace_module {
	const struct trace_image *image; /* who told */
	uint64_t tick, unload_tick;      /* mapped from .. to; unload_tick UINT64_MAX while mapped */
	uint64_t base;                   /* load bias: address - base is the address in the file's symbols */
	uint64_t start, size;            /* mapped bytes */
	struct trace_text path, build_id;
	unsigned number; /* within the trace, for caches */
};

/* How a process or program ended. */
struct trace_exit {
	int known;
	uint64_t tick;
	uint32_t reason; /* enum lorg_reason */
	int32_t status;
	uint32_t outside; /* told by the collector */
	/*
	 * When it counts as of: tick, but for an exit that was seen from outside and late, which was before whoever
	 * waited for it returned. Its reason is then what the wait told, where the collector could not.
	 */
	uint64_t effective;
};

/* One program between exec and exec or exit. */
struct trace_image {
	uint8_t id[16];
	unsigned number;
	uint32_t pid, own_pid, parent_pid, uid;
	uint32_t pid_namespace; /* number within the trace; 0: the recording's, whose numbers the pids and tids here are */
	uint32_t birth; /* enum lorg_birth */
	int told;       /* its IMAGE event was seen */
	uint64_t tick;  /* of the IMAGE event, or its first packet's begin */
	uint8_t parent_id[16];
	const struct trace_image *parent; /* NULL: none, or not in this trace */
	const struct trace_image *family; /* the first image of its arena: function slots are numbered in it */
	uint64_t entry_address;
	struct trace_text file, argv; /* argv: zero-separated */
	struct trace_exit exit;
	const struct trace_module **modules; /* sorted by tick */
	unsigned module_count;
};

/* A thread or a runtime's own process: Erlang's process. */
struct trace_process {
	const struct trace_image *image;
	uint32_t pid, tid, runtime_process;
	uint32_t own_tid; /* as its program sees it */
	uint64_t birth; /* tick; tells recycled ids apart */
	unsigned number;
	uint64_t first_tick, last_tick;
	uint64_t event_count;
	uint64_t lost;          /* events */
	int untouched;	        /* 1: it has packets of which only the heads were looked at */
	struct trace_exit exit; /* the last one it wrote */
	struct trace_text name; /* the last it was registered by; length 0: none */
};

/* A function named by instrumentation: slot `function` of a family. */
struct trace_function {
	const struct trace_image *image; /* who told */
	uint64_t tick;
	uint64_t address;
	uint32_t function, arity;
	struct trace_text name, file; /* length 0: to be found by its address */
	unsigned number;              /* within the trace, for caches */
};

/* A function of a plan (HOOKED_FUNCTION), the same one in all programs. */
struct trace_hooked {
	uint32_t function; /* id, from LORG_FIRST_HOOKED_FUNCTION on */
	uint32_t arity;    /* UINT32_MAX: unknown */
	uint32_t tier, flags;
	uint64_t offset, size; /* in its module */
	struct trace_text module, name, file, build_id; /* name length 0: it has none */
	unsigned number; /* within the trace, for caches */
};

struct trace_hook {
	char name[64]; /* zero-terminated; "" when never named */
	char library[48];
	uint32_t arity, family, flags;
};

/* A descriptor number bound in one program: OPEN and CONNECTED events. */
struct trace_port {
	const struct trace_image *image;
	int32_t fd;
	uint32_t generation, driver;
	struct trace_text name, local, peer; /* local, peer: a struct sockaddr */
	unsigned opener;		     /* number of the struct trace_process that told its opening */
	int inherited;			     /* 1: nobody was seen to open it */
};

struct trace_packet {
	const uint8_t *start;    /* of its head */
	uint32_t length;         /* bytes of content, head included */
	uint32_t stream, number; /* file, and place in it */
	uint32_t session;
	uint32_t holds; /* enum lorg_packet_holds; LORG_HOLDS_UNSHOWN: merge_start() passes it over */
	uint64_t begin, end;
	uint64_t earliest;    /* least effective tick of its events, as found, or begin */
	uint32_t early_count; /* events that count as of an earlier time than their stamp */
	uint64_t lost;        /* events lost between this packet and the one before it in its stream */
	unsigned process;     /* number of its struct trace_process */
	int untouched;	      /* 1: only its head has been looked at; merge_next() does the rest */
};

/* What the trace does not have. Texts are zero-terminated. */
struct trace_gap {
	uint64_t count;
	uint64_t tick; /* 0: not known */
	uint32_t pid;
	char what[160];
	char why[160];
	int damage; /* 1: found by this reader, 0: told by the recording */
};

struct trace {
	char *directory;
	struct trace_packet *packets; /* sorted by earliest, then stream, then place */
	size_t packet_count;
	struct trace_process *processes;
	unsigned process_count;
	struct trace_image **images;
	unsigned image_count;
	struct trace_hook *hooks;                  /* LORG_HOOKS of them */
	struct trace_text sessions[LORG_SESSIONS]; /* names by slot; length 0: not told */
	uint32_t asked;                            /* enum lorg_gate bits that any session asked for */
	struct trace_gap *gaps;
	unsigned gap_count;
	uint64_t event_count;                   /* in the files, as every reader of CTF counts them */
	uint64_t shown_count;                   /* that merge_next gives: some are shown as two or three (part.h) */
	uint64_t event_counts[LORG_EVENT_LAST]; /* by id, of those that are shown */
	uint64_t lost;                          /* events, told by packet heads and LOST events */
	uint64_t first_tick, last_tick;         /* of events of programs; 0, 0 when there are none */
	uint32_t abi_major, abi_minor;
	int has_clock;
	int ended; /* the recording was brought to its end */
	int64_t wall_offset_ns;
	struct trace_index *index; /* the reader's own */
};

/*
 * Opens a trace directory. Returns NULL and one sentence without a newline,
 * "why: what to do", in error (at most size bytes).
 */
struct trace *trace_open(const char *directory, char *error, size_t size);

/*
 * The same, at once: of packets whose heads say that they hold nothing that others are read with, only the heads are
 * looked at. Until merge_next() has come to its end, the trace's counts of events are too low, and damage within such
 * packets is not in its gaps.
 */
struct trace *trace_open_lazily(const char *directory, char *error, size_t size);

/* One stream in memory; the memory must outlive the trace. */
struct trace_memory {
	const void *bytes;
	size_t length;
};

/* As trace_open(), from memory. metadata may be NULL: nothing to compare with. Aligned to 8 bytes or not. */
struct trace *trace_open_memory(const char *metadata, size_t metadata_length, const struct trace_memory *streams,
				unsigned count, char *error, size_t size);

void trace_close(struct trace *trace);

/* ---- a trace that grows ------------------------------------------------- */

/* A trace of nothing yet. NULL: out of memory. */
struct trace *trace_begin(void);

/*
 * Takes what a packet defines; none of its events is shown. The memory must outlive the trace. A packet that is not whole
 * is skipped. Returns 0, or -1 when out of memory.
 */
int trace_define(struct trace *trace, const void *packet, size_t length);

/*
 * The packets that merge_start() goes through from now on, in place of those before; their order counts among events of
 * one tick. What they define is not taken. The memory must stay until the next call or trace_close(). An exit that was
 * seen from outside counts as of its own tick. Returns 0, or -1 when out of memory.
 */
int trace_show(struct trace *trace, const struct trace_memory *packets, size_t count);

/* Another number than before: functions and modules have got other numbers. */
uint64_t trace_numbering(const struct trace *trace);

/* ns of CLOCK_MONOTONIC; the tick itself where the trace has no clock. */
uint64_t trace_time(const struct trace *trace, uint64_t tick);

/* A duration between two ticks in ns. */
uint64_t trace_duration(const struct trace *trace, uint64_t from, uint64_t to);

/* The function of a slot at a tick: told latest at or before it, else earliest after. NULL: never told. */
const struct trace_function *trace_function(const struct trace *trace, const struct trace_image *image, uint32_t function,
					    uint64_t tick);

/* The hooked function of that id; NULL: never told. */
const struct trace_hooked *trace_hooked(const struct trace *trace, uint32_t function);
unsigned trace_hooked_count(const struct trace *trace);

/* The module that holds an address of an image at a tick. NULL: none. */
const struct trace_module *trace_module(const struct trace *trace, const struct trace_image *image, uint64_t address,
					uint64_t tick);

/* NULL: no such id, or never named. */
const struct trace_hook *trace_hook(const struct trace *trace, uint32_t hook);

/* NULL: its opening was not seen. */
const struct trace_port *trace_port(const struct trace *trace, const struct trace_image *image, int32_t fd,
				    uint32_t generation);

/* The image of that id; NULL: not in this trace. */
const struct trace_image *trace_image_by_id(const struct trace *trace, uint64_t low, uint64_t high);

/*
 * Events name processes by the numbers of the pid namespace that their program is in. These turn them into the
 * recording's, as of a tick; what is not known there stays as it is.
 */
uint32_t trace_pid(const struct trace *trace, const struct trace_image *image, uint32_t pid, uint64_t tick);
uint32_t trace_tid(const struct trace *trace, const struct trace_image *image, uint32_t tid, uint64_t tick);

/* ---- all events in order ------------------------------------------------ */

/* As whose messages a session asked for an event: of a live session a port's and its process's are told one by one. */
enum trace_side { SIDE_BOTH = 0, SIDE_PROCESS = 1, SIDE_PORT = 2 };

struct trace_event {
	struct event_view view;
	const struct trace_process *process;
	uint32_t session;
	uint64_t time;   /* ns of CLOCK_MONOTONIC, of its effective tick */
	uint64_t hlc;    /* strictly increasing */
	uint64_t number; /* from 1 */
	uint64_t lost;   /* events of this process lost just before this one */
	enum trace_side side;
	int superseded;  /* 1: an exit that a later one of the same process replaces */
};

/*
 * Merges all packets by effective tick; events of one tick in the order of
 * stream and place. Memory is bounded by the packets that overlap.
 */
struct merge;
struct merge *merge_start(const struct trace *trace);
/*
 * 1: *event is the next one; 0: there are no more; -1: out of memory. event->view points into the packet or is the
 * merge's: valid until the next call.
 */
int merge_next(struct merge *merge, struct trace_event *event);
void merge_end(struct merge *merge);

/* Hybrid logical clock: 48 bits of microseconds, 16 bits of counter; more than `previous`. */
uint64_t hlc_next(uint64_t previous, uint64_t ns);

#endif
