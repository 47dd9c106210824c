/* SPDX-License-Identifier: MIT */
/*
 * late.h: what outside and liblorg.so say to each other when the library is brought into a program that runs already, or
 * is to do something there and then.
 *
 * An ELF note of liblorg.so (type LORG_LATE_NOTE_TYPE, beside that of abi.h) holds the distance from the note's value to
 * struct lorg_late: eight bytes, signed. Its `entry` is a function
 *
 *     long remote_entry(uint32_t what, uint64_t words)          words: address of struct lorg_late_words, or 0
 *
 * that is called in one thread of the program, which was stopped at a place where it is inside of neither the loader nor an
 * allocator, and on a stack of its own; the other threads run. It never waits for a lock that another thread may hold
 * for long. All that it changes it can take back.
 */
#ifndef LORG_LATE_H
#define LORG_LATE_H

#include <stdint.h>

enum {
	LORG_LATE_NOTE_TYPE = 2,
	LORG_LATE_MAGIC = 0x6d67726c /* "lrgm" */,
	LORG_LATE_PATCHES = 64,
	LORG_LATE_PATCH_MAXIMUM = 32
};

enum lorg_late_what {
	LORG_LATE_PLACE = 1, /* look for modules whose functions are to be hooked, and place their stubs */
	LORG_LATE_ATTACH =
		2,          /* attach to the collector that `settings` names; prepare the changes in the C library's code */
	LORG_LATE_HOOK = 3, /* those are made, or not: use them; put the hooks into the slots of all modules */
	LORG_LATE_DETACH = 4, /* forward only; slots and signal handlers as they were */
};

enum lorg_late_answer {
	LORG_LATE_SILENT = 0, /* it has not come so far */
	LORG_LATE_DONE = 1,
	LORG_LATE_AGAIN = 2,   /* something is held just now: nothing has been done */
	LORG_LATE_REFUSED = 3, /* why says why */
};

struct lorg_late_words {
	uint32_t answer; /* enum lorg_late_answer */
	uint32_t count;  /* of slots that were changed */
	char why[128];
	char settings[512]; /* as the variable LORG has them */
	char library[512];  /* path of liblorg.so, for programs that this one starts */
	/*
	 * So that the thread need not be stopped at each of its system calls: 1 in `watched` says that a tracer waits for
	 * `ending`, atomic, which the function sets when all is done; then it waits until `watched` is 0, or the tracer is
	 * gone, and returns.
	 */
	uint32_t watched, ending;
};

enum lorg_late_state {
	LORG_LATE_IDLE = 0, /* loaded while the program ran, and nothing else yet */
	LORG_LATE_ATTACHED = 1,
	LORG_LATE_DETACHED = 2,
};

/* A change of the C library's code, made by the collector while all threads are held. */
struct lorg_late_patch {
	uint64_t at;
	uint64_t relocated; /* where the bytes that stand there have been copied to, each at its place; 0: there is nothing
			       here */
	uint32_t taken;     /* bytes that change */
	uint32_t placed;    /* 1: it is made; the collector's */
	uint8_t original[LORG_LATE_PATCH_MAXIMUM], patched[LORG_LATE_PATCH_MAXIMUM];
};

struct lorg_late {
	uint32_t magic;       /* LORG_LATE_MAGIC */
	uint32_t size;        /* of this structure */
	uint64_t entry;       /* address of remote_entry() */
	uint32_t from_start;  /* atomic; 1: the program was started with it: names are interposed */
	uint32_t state;       /* atomic; enum lorg_late_state */
	uint32_t patch_count; /* atomic, release */
	uint32_t reserved;
	struct lorg_late_patch patch[LORG_LATE_PATCHES];
};

#endif
