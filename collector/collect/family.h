/* SPDX-License-Identifier: MIT */
/*
 * family.h: one arena, and the images and processes that write to it: those of
 * one program between exec and exec, and its fork children.
 *
 * The collector's own view. Shared memory is read through here only, and
 * nothing that is read from it is believed: indices are checked against the
 * collector's own layout, contents are copied and then parsed (chunk.h).
 *
 *     family.c    the family as a whole; its end
 *     images.c    who is alive: pidfds, maps, namespaces
 *     processes.c entries of threads: who has ended, and what is still to be said
 *     drain.c     chunks: copied out, in order, to the process's lane
 */
#ifndef LORG_COLLECT_FAMILY_H
#define LORG_COLLECT_FAMILY_H

#include <stdint.h>
#include <sys/types.h>

#include <lorg/abi.h>
#include <lorg/events.h>

#include "collector/collect/chunk.h"
#include "collector/collect/memory.h"
#include "collector/collect/notes.h"
#include "collector/collect/requests.h"
#include "collector/collect/runtimes.h"

struct family;
struct live;	 /* collector/session/live.h */
struct sessions; /* collector/session/session.h */

/* How a program ended, as wait(2) has it. */
struct ending {
	int known;
	int status;
};

/* One image entry that is in use. */
struct image {
	struct family *family;
	struct image *next, *previous; /* in the context's list of all */
	uint32_t index;
	uint8_t id[16], parent_id[16];
	uint32_t own_pid; /* as it sees itself; 0 unknown */
	pid_t proc_pid;	  /* as it was told by /proc, where that is not own_pid: its number here; 0: not told */
	pid_t pid;	  /* as we see it; 0 unknown */
	int pidfd;	  /* -1: none */
	int nested;	  /* in a pid namespace below ours */
	int looked_for;	  /* we know what can be known of its pid */
	int shared;	  /* a vfork child: on its parent's memory */
	int dead;	  /* its process has ended (set when its pidfd becomes readable) */
	int execed;	  /* another program has taken its place */
	uint32_t searches; /* that did not find its process */
	int left;	  /* the process had ended or become another before it was found */
	int over;	  /* will write no more */
	int replaced;	  /* its entry is another's now */
	int counted;	  /* in the coverage */
	int arrived;	  /* the program that it became by exec has shown up */
	uint64_t look_ns, look_step_ns; /* when to look again, where nothing wakes us */
	int has_program_exit; /* it said how it ended */
	uint64_t functions_epoch; /* it has what sessions had asked of functions by then: session/placing.c */
	int patches_seen; /* its code is as the gates of hooked functions say, or was when it was looked at: see requests.c */
	uint64_t hold_ns, hold_step_ns; /* its threads could not be held: when to try again; how long it waits for that, 0: they could */
	char executes[CHUNK_FILE]; /* what it said it would become, and be traced as; empty: nothing */
	uint32_t process_count; /* that are in use */
	int has_speaker;
	struct process *speaker; /* what its last words go with: its first thread, while that is there */
	uint64_t start_tick, speaker_birth;
};

/* One process entry that is in use. */
struct process {
	uint32_t index;
	struct image *image; /* NULL: not known */
	uint64_t birth_tick;
	uint32_t tid, own_tid; /* as we see it, and as it does; 0 unknown */
	struct lane *lane;
	uint64_t last_tick; /* of what was put out of it; times do not go back */
	uint64_t next_sequence; /* of the chunk to write next */
	uint32_t pending;	/* chunks of it that this pass has found */
	struct {
		uint32_t chunk; /* index + 1 of the chunk whose beginning is put out; 0: none */
		uint64_t sequence;
		uint32_t end; /* offset behind what is put out */
		uint64_t tick;
	} taken; /* see drain.c */
	uint64_t spawn_entry; /* tick; when the newest child that it has told of was begun to be made */
	int introduced; /* looked at once */
	int held; /* one of its chunks waits for the next pass */
	int used, over, has_exit, in_exec;
};

enum { SLAB_ENTRIES = LORG_SLAB_ENTRIES };

struct slab {
	struct process entry[SLAB_ENTRIES];
};

enum { EARLY_ARRIVALS = 1024 };

/* What all families have in common; owner: collector.c. */
struct family_context {
	struct store *store; /* NULL: there are sessions */
	struct sessions *sessions; /* NULL: a recording of its own, in the store */
	const struct live *live; /* how they are called (session/live.h); NULL likewise */
	struct offers *offers; /* arenas that wait for their program */
	struct journal *journal; /* journal.h; NULL: none */
	struct family **families; /* all; the order changes */
	uint32_t family_count, family_room;
	struct notes notes;
	struct lorg_clock clock;
	int epoll; /* pidfds; data.ptr is the image */
	pid_t child; /* of ours; 0 none */
	struct ending child_ending;
	enum lorg_overflow overflow;
	const struct arena_settings *arena_settings;
	const struct planning *planning; /* NULL: nothing is asked of functions */
	int requests_wait; /* in this pass: somebody waits for an answer, or is about to */
	uint64_t chunks_moved; /* since the last time it was set to 0: what the pace depends on */
	uint64_t changes;      /* images and processes that came or went, likewise */
	struct image *images; /* all in use, of all families */
	struct endings *endings;
	struct runtimes runtimes;
	uint32_t told_numbers; /* programs that are named by their own namespace's numbers */
	uint64_t search_ns; /* before that, all processes are not looked through again */
	uint64_t hold_ns;   /* before that, nobody's threads are held: some could not be, and that took its time */
	struct successor *successors;
	uint32_t successor_count, successor_room;
	/* Images before those that showed up by exec and whose own entries had not been looked at; a ring. */
	uint8_t early[EARLY_ARRIVALS][16];
	uint32_t early_next;
	/* Work space of the drain; LORG_CHUNK_SIZE bytes. */
	uint8_t *copy;
	struct full_chunk *full;
	uint32_t full_room;
	struct filling_chunk *filling;
	uint32_t filling_count, filling_room;
};

/* A chunk that its process is filling. */
struct filling_chunk {
	uint64_t sequence;
	uint32_t process, chunk;
};

/*
 * A program that has become another by exec, and that one has not shown up: it
 * is just starting, or it is not traced. Then its end is told in its place.
 */
struct successor {
	uint8_t id[16];	  /* of the image before */
	uint64_t birth_tick; /* of its first thread */
	pid_t pid;
	int pidfd; /* -1: none */
	int nested;
	char file[CHUNK_FILE]; /* what was executed and was to be traced; empty: it was said that it would not be */
	uint64_t since_ns, dead_ns; /* dead_ns 0: not dead, as far as known */
};

/* Whether a chunk holds memory of the system's. */
enum chunk_use { CHUNK_CLEAN = 0, CHUNK_USED, CHUNK_IDLE };

struct family {
	struct family_context *context;
	struct memory memory;
	struct arena_layout layout;
	uint8_t id[16];
	ino_t inode;
	int sealed;   /* no one but us can see the memory any more; ours is a private copy */
	int final;    /* this pass is the last: everybody is taken to be over */
	int attached; /* an image has shown up */
	int adopted;  /* taken over from a lorgd that was killed */
	int has_lost_controls; /* functions of its images were hooked for that one, and cannot be switched any more */
	uint64_t claimed_ns;
	uint64_t look_ns, look_step_ns; /* when to ask again whether the memory is abandoned */
	struct image **images;
	uint32_t image_room;
	uint32_t image_count; /* in use */
	uint32_t images_alive; /* of those: whose process is known */
	int image_over;	      /* one was found to be over in this pass */
	struct slab **slabs;  /* by chunk index */
	uint32_t slab_room;
	uint8_t *waiting;     /* one byte a chunk: seen FULL before, waits for an earlier one */
	uint8_t *use;	      /* enum chunk_use, likewise, in the same memory: see trim.c */
	uint64_t trim_ns;     /* when that is looked at next */
	uint32_t to_introduce; /* chunks being filled whose process is not introduced, in this pass: see drain.c */
	uint32_t damaged;     /* chunks and entries that cannot be */
	uint64_t processes_ns, threads_ns; /* when they were looked at last */
	struct requests *requests; /* NULL: none */
};

/* ---- family.c ---- */

/* Takes over the arena's memory, also on failure (NULL). */
struct family *family_create(struct family_context *context, struct memory memory, const struct arena_layout *layout,
			     const uint8_t id[16]);

/* One round: who has ended, what is full. Returns 0 when the family is no more and may be freed. */
int family_pass(struct family *family, uint64_t now_ns);

/* The recording ends: programs forward only from now on; what is there is taken. */
void family_detach(struct family *family);
/* Takes what there is, from the living too. After family_detach. */
void family_take_rest(struct family *family);
void family_free(struct family *family);

static inline struct lorg_arena *family_arena(const struct family *family)
{
	return (struct lorg_arena *)family->memory.at;
}

static inline struct lorg_image *family_image_entry(const struct family *family, uint32_t index)
{
	return (struct lorg_image *)(family->memory.at + family->layout.images + (uint64_t)index * LORG_IMAGE_STRIDE);
}

static inline uint64_t *family_control(const struct family *family, uint32_t chunk)
{
	return (uint64_t *)(family->memory.at + family->layout.chunk_control) + chunk;
}

static inline uint8_t *family_chunk(const struct family *family, uint32_t chunk)
{
	return family->memory.at + family->layout.chunks + (uint64_t)chunk * LORG_CHUNK_SIZE;
}

/* Chunks below this were ever taken. */
static inline uint32_t family_chunks_used(const struct family *family)
{
	uint32_t high = __atomic_load_n(&family_arena(family)->chunk_high_water, __ATOMIC_ACQUIRE);
	return high < family->layout.chunk_count ? high : family->layout.chunk_count;
}

/* ---- images.c ---- */

void images_pass(struct family *family, uint64_t now_ns);
/* Writes the last words of images that are over, and frees their entries. */
void images_finish(struct family *family, uint64_t now_ns);
struct image *image_at(struct family *family, uint32_t index);
struct image *image_with_id(struct family *family, const uint8_t id[16]);
/* How the image ended; known only when it is over. */
struct ending image_ending(const struct image *image);
void images_free(struct family *family);
/* Tells the end of those that were never seen again; drops them. at_end: of all that have ended. */
void successors_pass(struct family_context *context, uint64_t now_ns, int at_end);
/* How many may still be starting. */
uint32_t successors_expected(const struct family_context *context, uint64_t now_ns);
void successors_free(struct family_context *context);

/* ---- endings.c ---- */

struct endings;
enum { REAPED_KEPT = 256 };

struct endings *endings_create(void);
void endings_free(struct endings *endings);
/* What a parent was told of the end of a child. */
void endings_note_reaped(struct family_context *context, pid_t pid, int status, uint64_t tick);
/* What was told of a process that began at `start_tick`. */
struct ending endings_find(const struct family_context *context, pid_t pid, uint64_t start_tick);
/* The program's end, noticed at `tick`, is written when it is known how; or by endings_tell_all. */
void endings_wait_for(struct family_context *context, const struct image *image, uint64_t tick);
void endings_tell_all(struct family_context *context);
/* Writes EXIT of a whole program whose threads have nothing more to say. */
void tell_program_exit(struct family_context *context, const uint8_t id[16], uint64_t birth_tick, pid_t pid, uint64_t tick,
		       struct ending ending);
void set_exit_reason(struct lorg_event_EXIT *exit, struct ending ending);

/* ---- processes.c ---- */

/* The process of an index as a chunk names it; NULL: there is none. */
struct process *process_of(struct family *family, uint32_t index);
/* Its entry in the arena, whether it is in use or not; NULL: there is no place of that index. */
struct lorg_process *process_entry(const struct family *family, uint32_t index);
void processes_pass(struct family *family, uint64_t now_ns);
/* Writes the last words of processes that are over, and frees their entries. */
void processes_finish(struct family *family);
/* The same for one thread that has ended by itself, as soon as its last chunk is written: its lane is the next one's. */
void process_finish(struct family *family, struct process *process);
void processes_free(struct family *family);
/*
 * Puts out a packet of a process, its head filled by process_head(): to the store, or to the sessions. 0, or -1 when the
 * store has failed.
 */
int process_put(struct family *family, struct process *process, struct lorg_packet *head, size_t length);
/* The same of one that is not known (any more): whose it is stands in the head alone. family may be NULL. */
int stray_put(struct family_context *context, struct family *family, struct lorg_packet *head, size_t length);
/* What has been read of its events, into its entry. */
void process_note(struct family *family, const struct process *process);
/* Identity of the process into a packet's head. */
void process_head(struct process *process, struct lorg_packet *head);

/* ---- drain.c ---- */

void drain_pass(struct family *family);
/* Gives a chunk back, of which at most `used` bytes are not zero. */
void release_chunk(struct family *family, uint32_t chunk, uint32_t used);

/* ---- trim.c ---- */

/* Gives the memory of chunks that nobody has used for a while back to the system; looks now and then. */
void trim_pass(struct family *family, uint64_t now_ns);

/* ---- counters.c ---- */

/* Writes what the process has counted of hooked functions, and gives the memory back. After all of its events. */
void counters_say(struct family *family, struct process *process, const struct lorg_process *entry, uint64_t tick);

#endif
