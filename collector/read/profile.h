/* SPDX-License-Identifier: MIT */
/*
 * profile.h: where the time went, from all events of a trace: functions,
 * threads, programs, ports, waits.
 *
 * Each thread is gone through by itself, in the order of its own packets. A
 * function's total time counts a recursion once; its self time is the total
 * less that of the functions it called. Frames that were left by longjmp or an
 * exception end when their caller's next event shows it; frames still open at
 * the end of a thread end at its last event.
 *
 * Times are in ticks here; trace_ticks_ns() turns a duration into ns. Where
 * trace->lost is not 0 or packets were damaged, all figures are lower bounds.
 */
#ifndef LORG_READ_PROFILE_H
#define LORG_READ_PROFILE_H

#include "collector/read/trace.h"

struct profile_function {
	const struct trace_image *image; /* one that called it */
	uint64_t tick;                   /* when it was first called: to resolve it by */
	uint32_t slot;                   /* in the function table of the family */
	int by_address;                  /* 1: address counts, not slot */
	uint64_t address;
	uint64_t entries, total, self;
	uint64_t counted, counted_time, words; /* of FUNCTION_COUNTERS: calls, their own time, 8-byte words asked for */
	uint64_t active; /* frames open while counting */
	unsigned row;    /* of the thread in hand in `counts`, where it is its */
};

/* What one thread has counted of one function. */
struct profile_count {
	unsigned thread;   /* number of the process */
	unsigned function; /* index */
	uint32_t kind;	   /* enum lorg_call_kind bits: COUNT, TIME, MEMORY */
	uint64_t count, time, words;
};

struct profile_port {
	const struct trace_image *image;
	uint64_t object; /* descriptor, or 2^31 + msqid */
	uint32_t generation, driver;
	struct trace_text name, local, peer;                       /* local, peer: sockaddr */
	uint64_t sent, sent_bytes, received, received_bytes, ends; /* ends: receives that found the end of the stream */
	uint64_t refused;                                          /* sends to what no longer exists */
};

struct profile_wait {
	uint64_t count, ticks, longest, timeouts;
	uint64_t open; /* of count: never returned */
};

struct profile_thread {
	uint64_t calls, waits, waited;
	uint64_t sent, sent_bytes, received, received_bytes;
	uint64_t words_allocated, allocations, frees, allocation_failures; /* by its last COUNTERS event */
	uint64_t frames_open;                                              /* at its end */
	uint64_t exits_unmatched; /* exits of functions that were not seen entered */
};

struct profile {
	struct profile_function *functions;
	unsigned function_count;
	struct profile_count *counts; /* a thread's after those of the one before it */
	unsigned count_count;
	struct profile_port *ports;
	unsigned port_count;
	struct profile_wait waits[LORG_HOOKS]; /* by hook */
	struct profile_thread *threads;        /* by number of the process */
	int lower_bounds;
};

/* NULL: out of memory. Valid as long as the trace is. */
struct profile *profile_make(const struct trace *trace);
void profile_free(struct profile *profile);

/* A duration in ticks as ns. */
uint64_t trace_ticks_ns(const struct trace *trace, uint64_t ticks);

#endif
