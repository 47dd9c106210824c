/* SPDX-License-Identifier: MIT */
/*
 * counting.h: call_count, call_time and call_memory of sessions.
 *
 * Programs count each function once, from their start to their end (struct
 * lorg_function_counter). What a session has counted is the difference to what
 * stood there when it began: each session has zero points of its own. What
 * ended threads have counted is kept here.
 */
#ifndef LORG_SESSION_COUNTING_H
#define LORG_SESSION_COUNTING_H

#include <stdint.h>

#include "collector/collect/family.h"
#include "collector/collect/keeping.h"

/* What one process has counted of one function. */
struct counted {
	uint32_t function; /* its id */
	uint32_t pid, tid, runtime_process; /* as people see it */
	uint8_t image[16];
	uint64_t birth;	   /* with `image` its identity */
	uint64_t count, ticks, words;
	/* Where it lives; NULL: it is over. */
	struct family *family;
	uint32_t process;
	uint64_t call_flags[2]; /* of one that is over: bit N: it had the flag call in the session of slot N */
};

/* A list of them, by function and then by process. */
struct counted_list {
	struct counted *list;
	uint32_t count, room;
	int failed; /* no memory: it is not whole */
};

/*
 * What the ended have counted. It stands in memory that outlives a lorgd (keeping.h), and no number is lost or doubled by a kill:
 * each counter of a program is added by one step, that the next lorgd ends where it was begun.
 */
struct counting;

/* NULL: no memory. */
struct counting *counting_create(void);
/* That of a lorgd before goes on: taken over where this succeeds. Before anything is counted. 0, or -1: it is none. */
int counting_adopt(struct counting *counting, struct kept *kept);
/* After that, or where there was none: from now on it is kept. */
void counting_keep(struct counting *counting, const struct keeping *keeping);
/* Ends a step that was begun by a lorgd which was killed in it. families: those that were taken over. */
void counting_end_step(struct counting *counting, const struct family_context *context);
void counting_free(struct counting *counting);

/* Where a program's counter stands that is being added: it is to be zero behind that. */
struct counter_source {
	const uint8_t *arena; /* id, 16 bytes */
	uint32_t process; /* its index */
	uint32_t chunk, place; /* place 0: what an open call has come to, which stands in the process's entry */
};

/* What a process that is over has counted of a function. per_process: it is kept by process, too. */
void counting_ended(struct counting *counting, const struct counted *counted, int per_process, const struct counter_source *source);
/* The program's counter is zero. */
void counting_is_taken(struct counting *counting);
/* Nobody counts the function by process any more: what is kept of ended processes goes. */
void counting_forget(struct counting *counting, uint32_t function);

/*
 * All that has been counted of functions first to last (ids), by the living and the ended: of each process one entry. What
 * ended processes have counted that are not kept one by one has image zero and birth 0.
 */
void counting_read(const struct counting *counting, const struct family_context *context, uint32_t first, uint32_t last,
		   struct counted_list *list);
void counted_list_free(struct counted_list *list);
/* Entries of one function in a list: *count of them. */
const struct counted *counted_of(const struct counted_list *list, uint32_t function, uint32_t *count);
/* Those of its processes together. */
uint64_t counted_sum(const struct counted_list *list, uint32_t function);

#endif
