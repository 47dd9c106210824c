/* SPDX-License-Identifier: MIT */
/*
 * journal.h: what a lorgd takes from programs is written to trace directories once, whenever it is killed.
 *
 * To take a part of a chunk, or the last words of a thread, is one step: it writes packets into the directories of sessions, and
 * then marks in the program's memory that this was taken. Before a file grows in a step, the journal holds how long it was; it
 * stands in memory that outlives us (keeping.h). The next lorgd looks whether the step that was under way came to its mark:
 * if not, the files are cut to what they were, and the step is done anew, into the directories that then go on.
 *
 * All functions take NULL for a collector that has none.
 */
#ifndef LORG_COLLECT_JOURNAL_H
#define LORG_COLLECT_JOURNAL_H

#include <stdint.h>

#include "collector/collect/keeping.h"

struct journal;
struct family_context;

enum journal_kind {
	JOURNAL_CHUNK = 1, /* its mark: how far it was taken, in the head */
	JOURNAL_ENTRY = 2, /* of a thread that is over; its mark: journal_mark, and the entry is free */
};

/* What is taken. */
struct journal_step {
	enum journal_kind kind;
	uint8_t arena[16];
	uint32_t place; /* of the chunk, or the entry */
	uint32_t to;	/* of a chunk: the offset that the mark will have at least */
	uint64_t begin; /* of the chunk: its tick; of the thread: its birth. Tells others at the same place from it */
	uint64_t sequence; /* of the chunk */
};

struct journal *journal_create(void); /* NULL: no memory */
void journal_free(struct journal *journal);
/* That of a lorgd before goes on, where there is one; from now on it is kept. Families are adopted already. */
void journal_take_over(struct journal *journal, struct adopted *adopted, const struct keeping *keeping,
		       const struct family_context *context);

void journal_begin(struct journal *journal, const struct journal_step *step);
/* A file of a session's directory is about to grow from `size`. inode: the directory's. */
void journal_note(struct journal *journal, uint64_t session, uint64_t inode, uint32_t lane, uint64_t size);
/* JOURNAL_ENTRY: all is written. */
void journal_mark(struct journal *journal);
void journal_end(struct journal *journal);

/* After journal_take_over, before the directory at `path` gives way to another: it is as it was before what is done anew. */
void journal_roll_back(const struct journal *journal, uint64_t session, const char *path);
/* All sessions are there again. */
void journal_rolled_back(struct journal *journal);

#endif
