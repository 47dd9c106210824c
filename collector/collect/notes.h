/* SPDX-License-Identifier: MIT */
/*
 * notes.h: what the collector itself has to say, in stream-0: clock, hooks,
 * session, gaps, losses, marks; and the sums of the coverage line.
 */
#ifndef LORG_COLLECT_NOTES_H
#define LORG_COLLECT_NOTES_H

#include <stdint.h>

#include <lorg/abi.h>

#include "collector/collect/memory.h"
#include "collector/store/store.h"

struct live;
struct sessions;

/* What a recording covered. Counted as it goes. */
struct coverage {
	uint64_t programs;  /* images that were traced */
	uint64_t processes; /* threads and runtime processes */
	uint64_t events, lost;
	uint64_t gaps;	    /* told by programs and by the collector */
	uint64_t not_traced; /* of those: programs that were not traced */
	uint64_t damaged;   /* chunks with contents that cannot be */
};

struct notes {
	struct store *store;	   /* NULL: none */
	struct sessions *sessions; /* these are told instead; NULL: none */
	const struct live *live;   /* how; NULL likewise */
	const struct lorg_clock *clock;
	struct coverage coverage;
};

/* A tick for an event in `lane`: now, and never before what the lane holds. */
uint64_t notes_tick(const struct notes *notes, const struct lane *lane);

void notes_clock(struct notes *notes);
void notes_hooks(struct notes *notes);
void notes_session(struct notes *notes, const struct arena_settings *settings, const char *options);
/* pid: 0 if of none in particular. */
void notes_gap(struct notes *notes, uint64_t count, uint32_t pid, const char *what, const char *why);
void notes_lost(struct notes *notes, uint64_t count, const char *why);
struct plan_function_news;
struct note;
/* Functions that are about to be hooked: many in a packet. begin NULL: no memory; then the others do nothing. end frees it. */
struct note *notes_functions_begin(const struct notes *notes);
void notes_hooked_function(struct notes *notes, struct note *note, const struct plan_function_news *news);
void notes_functions_end(struct notes *notes, struct note *note);
void notes_mark(struct notes *notes, const char *text);

/* The last word: how many packets the directory has, this one included. Readers tell by it whether any are missing. */
void notes_end(struct notes *notes);

/* The line that every recording ends with, without newline. */
void notes_coverage_line(const struct notes *notes, char *line, unsigned size);

#endif
