/* SPDX-License-Identifier: MIT */
/*
 * arena.h: this program's view of the shared memory (include/lorg/abi.h).
 *
 * The state here is process-private. All zero means "not attached": every hook
 * forwards. Functions are async-signal-safe unless said otherwise.
 */
#ifndef LORG_PRELOAD_ARENA_H
#define LORG_PRELOAD_ARENA_H

#include <lorg/abi.h>

#include "preload/core/memory.h"

/* What the variable LORG says; filled by start.c before attach. */
struct lorg_settings {
	uint32_t collector_pid;
	int32_t node_descriptor;
	uint64_t node_size;
	uint8_t token[16];
	uint8_t previous_image[16];
	char socket_path[108]; /* empty: none */
	char preload_path[512]; /* of liblorg.so, as LD_PRELOAD named it */
};

struct arena {
	struct lorg_node *node;	  /* NULL: none */
	struct lorg_arena *shared; /* NULL: not attached; set last */
	/* copies: what bounds our own accesses is not read from shared memory */
	uint64_t size;
	uint64_t chunks_offset;
	uint32_t chunk_count;
	uint32_t mapped_chunks;	      /* chunks below this lie in mapped segments; atomic, grows */
	struct lorg_clock clock;
	uint8_t trace_uuid[16];
	uint64_t images_offset, functions_offset, sessions_offset, control_offset;
	struct lorg_function *functions; /* the table at functions_offset */
	uint64_t channels_offset;      /* in the node segment */
	uint64_t connects_offset;      /* there, too */
	uint64_t requests_offset;      /* of struct lorg_request */
	uint32_t request_count;	       /* 0: nothing is asked of functions in this recording */
	uint32_t by_path;	       /* 1: the collector's descriptors can be opened in /proc; else its socket is asked */
	char *segments[64];	      /* where each 16 MiB of the arena is mapped; atomic */
	struct lorg_settings settings;
	uint32_t seen_generation;
	uint32_t message_length;      /* bytes kept of a message */
	uint32_t overflow;	      /* enum lorg_overflow */
	uint64_t block_limit_ns;
	uint32_t gate_mask;	      /* enum lorg_gate bits of the session in slot 0 */
	uint32_t flags_matter, flags_new; /* of that session: see struct lorg_session */
	uint32_t message_programs;    /* LORG_MASK_SEND, LORG_MASK_RECEIVE: that half goes through a match specification */
	uint64_t programs_offset;     /* of the match programs for messages, and how many bytes of them there are */
	uint32_t programs_size;
	uint32_t send_program, receive_program; /* as in struct lorg_session */
	uint32_t same_proc;	      /* 1: /proc is mounted here as it is for the collector */
	uint32_t live;		      /* 1: a lorgd's: sessions come and go, and settings change while the program runs */
	uint64_t system_limits[8];    /* of slot 0, 0: nobody asks; index as in collector/session: enum monitor of hooks/monitor.h */
	uint32_t monitors;	      /* bits of those that are not 0 */
	uint32_t collector_epoch;     /* as in the arena: another one has taken over since it changed */
	uint32_t told_epoch;	      /* atomic; to which this image has told what it is: program_tell_again() */
	uint32_t port_epoch;	      /* as in the arena; before it, nobody may have followed the program's descriptors */
};

/* The one arena of this program. Owner: start.c until attached, then read-only but for the atomics. */
extern HIDDEN struct arena the_arena;

/*
 * The gate bytes, indexed by hook id. NULL until attached, then the arena's,
 * and zeros once detached. A relaxed load of one of them is all that a hook costs
 * that is off.
 */
extern HIDDEN const uint8_t *hook_gates;

/*
 * Maps the node segment, claims an arena, maps it. Called once by start.c from
 * the initfirst constructor, before other code of the program runs.
 * Returns 0, or -1: the image is not traced; where there is a node segment, it says so there.
 */
HIDDEN int arena_attach(const struct lorg_settings *settings);

/* Forward only from now on; safe at any time. */
HIDDEN void arena_detach(void);
/* After that: records again, into the same arena. 0, or -1: the collector that `settings` names is not that which has it. */
HIDDEN int arena_attach_again(const struct lorg_settings *settings);
/* The same for an image that cannot be traced: the recording will say so. */
HIDDEN void arena_give_up(enum lorg_attach_failure reason);

/* In a fork child: another thread of the parent may have been growing the mapping; here it is not. */
HIDDEN void arena_fork_child(void);

/* Re-reads settings that the collector changed. Called when settings_generation differs from seen_generation. */
HIDDEN void arena_refresh(void);

/* The collector's settings are those that were last read, from here on. */
static inline void arena_look(void)
{
	if (__builtin_expect(__atomic_load_n(&the_arena.shared->settings_generation, __ATOMIC_ACQUIRE) != the_arena.seen_generation, 0))
		arena_refresh();
}

/*
 * hooks/port_table.c: nobody has followed the program's descriptors for a while: what was known of them is looked at anew at
 * the next use.
 */
HIDDEN void ports_doubt(void);

/* True where sessions may come at any time: what they have to know of threads and programs is kept, asked for or not. */
static inline int arena_is_live(void)
{
	return the_arena.live && __atomic_load_n(&hook_gates, __ATOMIC_RELAXED) == the_arena.shared->gate;
}

/*
 * How the collector is reached now: as the variable LORG said, or as a restarted one has said since. Filled but for
 * previous_image and preload_path.
 */
HIDDEN void arena_reach(struct lorg_settings *settings);

/*
 * The descriptors that the collector has answered request `index` with, opened here: plan (for reading), control.
 * 0, or -1: it cannot be reached any more. Makes system calls; the caller closes both.
 */
HIDDEN int arena_open_answer(uint32_t index, int32_t plan, int32_t control, int descriptors[2]);

/* True where nobody has looked into the arena for some seconds: a lorgd that has died may be started again. No system call. */
HIDDEN int arena_collector_is_away(void);

/* True if the collector's process is still there and answers. Makes system calls. */
HIDDEN int arena_collector_lives(void);

/* Address of a byte of the arena, or NULL where it is not mapped. */
HIDDEN void *arena_at(uint64_t offset);

/* Address of chunk `index`, or NULL when not mapped. */
HIDDEN void *arena_chunk(uint32_t index);

HIDDEN struct lorg_image *arena_image(uint32_t index);
HIDDEN struct lorg_process *arena_process(uint32_t index);
HIDDEN struct lorg_function *arena_function(uint32_t slot);

/*
 * Takes a free chunk, lowest first, in state `state` for process `process`
 * (an index); the chunk is all zero. Grows the mapping when needed and allowed.
 * Returns its index, or UINT32_MAX when there is none (does not wait).
 */
HIDDEN uint32_t arena_take_chunk(enum lorg_chunk_state state, unsigned session, uint32_t process);

/*
 * By how many chunks what waits for the collector is more than it should be: than BACKLOG_A_WRITER full ones for each that
 * is being filled, and the first few. Looks at all chunks in use.
 */
HIDDEN uint32_t arena_backlog(void);

/* Gives a FILLING chunk of process `process` to the collector; nothing if it is not (any more). */
HIDDEN void arena_chunk_full(uint32_t index, uint32_t process);

/* The control word of a chunk; atomic. */
HIDDEN uint64_t *arena_chunk_control(uint32_t index);

/* Bytes that are mapped of segment `index`: the first window may be smaller than the others. */
HIDDEN size_t arena_segment_length(unsigned index);

/* Keeps others from mapping more of the arena meanwhile. Returns 0: somebody is at it, and it may not be waited for. */
HIDDEN int arena_hold(void);
HIDDEN void arena_let_go(void);

/* The lowest stretch of ours that overlaps [address, address + length); 0: none does. */
HIDDEN int arena_first_window(const void *address, size_t length, const char **from, const char **to);

/*
 * Another shared mapping of ours (a plan or its control), which the program may not lock, advise or unmap either, and
 * which goes elsewhere where the program takes its place (call_mapping_moved). 0, or -1: too many. One at a time.
 */
HIDDEN int arena_window_add(void *at, size_t length);
struct arena_window {
	char *at; /* atomic; NULL: it is gone */
	size_t length;
};
/* Window `number` of those, NULL: there are no more. */
HIDDEN struct arena_window *arena_window(uint32_t number);

/* True if [address, address + length) overlaps memory of ours that the program must not lock, advise or unmap. */
HIDDEN int arena_overlaps(const void *address, size_t length);

#endif
