/* SPDX-License-Identifier: MIT */
/*
 * abi.h: the memory that a traced program shares with the collector.
 *
 * This header is the whole contract between preload/ (inside the traced
 * program) and collector/ (outside). Neither side includes anything else of
 * the other's.
 *
 * Purpose. A thread writes events at the cost of reading the clock: no lock,
 * no system call, no shared cache line. The collector takes them away in
 * pieces that are CTF 1.8 packets already. What a program wrote outlives it.
 *
 * There are two kinds of shared memory, both memfds of the collector, sized
 * and sealed (SHRINK, GROW) by it:
 *
 *   node segment   one a collector; read to find an arena, and to number the
 *                  bytes of channels that several programs share.
 *   arena          one a family of images made by fork; exec leaves it.
 *
 *   arena:  | header | chunk control | images | sessions | functions | modules | ... | chunk 0 | chunk 1 | ...
 *           0        table offsets stand in the header                 chunks_offset
 *
 * A chunk is LORG_CHUNK_SIZE bytes and one of
 *
 *   packet   a CTF packet: events of one thread for one session
 *   slab     entries of struct lorg_process
 *   scratch  memory of one thread for what must not live on its stack
 *   counters counts of hooked functions of one thread
 *
 * State of a chunk, in its word of the chunk control table (owner: who may
 * change it):
 *
 *      FREE ---- any thread, one CAS that also names it ----> FILLING
 *      FILLING - the owning thread, when it needs another --> FULL
 *      FILLING - the collector, when the owner is dead -----> FULL
 *      FULL ---- the collector, copied and zeroed ----------> FREE
 *
 * A free chunk is zero. All zero is a valid, empty state of everything here: a
 * program may punch holes into the memory (MADV_REMOVE).
 *
 * Commit. An event is reserved by moving `position` (cmpxchg without lock: the
 * chunk has one writer, and its signal handlers), and committed by the store
 * of its first word, last. A reserved event of more than eight bytes first
 * gets a LORG_EVENT_FILLER header of its length. So the memory below
 * `position` reads as a sequence of: whole events, fillers, and zero words
 * (reserved and nothing written yet). Readers drop the latter two.
 *
 * Order. A thread marks a chunk FULL before it takes the next, so whoever sees
 * chunk k+1 of a process FULL and then looks again finds chunk k FULL. Within
 * (process, session) `sequence` increases; numbers may be missing (a signal
 * handler won the race for the next chunk).
 *
 * Trust. The collector believes nothing here: it copies, then checks. The
 * preload keeps copies of what it needs to stay within bounds.
 *
 * Types are explicitly sized and little endian. Every structure carries its
 * size or stands in a table that does; a reader steps by that size. Majors
 * that differ refuse each other; a higher minor only adds.
 */
#ifndef LORG_ABI_H
#define LORG_ABI_H

#include <stdint.h>

enum {
	LORG_ABI_MAJOR = 3,
	LORG_ABI_MINOR = 1,
	LORG_NODE_MAGIC = 0x6e67726c,	/* "lrgn" */
	LORG_ARENA_MAGIC = 0x6167726c,	/* "lrga" */
	LORG_PACKET_MAGIC = 0xc1fc1fc1, /* CTF 1.8, section 5.1 */
};

#define LORG_CHUNK_SHIFT 16
#define LORG_CHUNK_SIZE (1u << LORG_CHUNK_SHIFT)
#define LORG_SEGMENT_SHIFT 24 /* the arena is mapped in windows of 16 MiB */
#define LORG_SEGMENT_SIZE (1u << LORG_SEGMENT_SHIFT)

enum {
	LORG_ARENA_OFFERS = 128,    /* arenas ready for new families */
	LORG_CHANNEL_SHIFT = 14,    /* a channel in events: place | generation << LORG_CHANNEL_SHIFT */
	LORG_CHANNELS = 1 << LORG_CHANNEL_SHIFT,
	LORG_CONNECTS = 4096,	    /* AF_UNIX connections of a node that wait to be accepted */
	LORG_IMAGES = 4096,	    /* images alive at once in one arena */
	LORG_SESSIONS = 128,	    /* slots; a table, not bits of a word */
	LORG_FUNCTIONS = 65536,	    /* power of two; instrumented functions by address */
	LORG_MODULES = 1024,	    /* loaded objects of one family */
	LORG_HOOKS = 1024,	    /* gate bytes */
	LORG_MESSAGE_LENGTH = 64,   /* bytes kept of a message unless set */
	LORG_MESSAGE_MAXIMUM = 32768,
	LORG_MESSAGE_DISTANCE = 1 << 24, /* of messages with borders: a channel's offsets are those of bytes elsewhere */
	LORG_TEXT_MAXIMUM = 4096, /* bytes kept of a path, an argv, a name */
};

/* ---- clock ------------------------------------------------------------- */

enum lorg_clock_source {
	LORG_CLOCK_NONE = 0,
	LORG_CLOCK_TSC = 1,	  /* rdtsc; the kernel's clocksource is tsc */
	LORG_CLOCK_MONOTONIC = 2, /* CLOCK_MONOTONIC; a tick is a nanosecond */
};

/* CLOCK_MONOTONIC ns = base_ns + (tick - base_tick) * multiplier / 2^32. */
struct lorg_clock {
	uint64_t base_tick;
	uint64_t base_ns;	/* CLOCK_MONOTONIC, ns */
	uint64_t multiplier;	/* ns a tick, 32.32 fixed point */
	int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC, ns */
	uint64_t frequency;	/* ticks a second */
	uint32_t source;	/* enum lorg_clock_source */
	uint32_t size;		/* of this structure */
};

/* ---- node segment ------------------------------------------------------ */

/* Where a table lies; offset in bytes from the start of its memory. */
struct lorg_table {
	uint64_t offset;
	uint32_t entry_size; /* bytes */
	uint32_t count;	     /* entries there is room for */
};

struct lorg_node {
	uint32_t magic; /* LORG_NODE_MAGIC */
	uint16_t major, minor;
	uint32_t size; /* of this structure */
	uint32_t collector_pid;
	uint64_t segment_size; /* bytes of the memfd */
	uint8_t id[16];
	char name[64];		   /* node(), zero-terminated */
	struct lorg_table offers;  /* struct lorg_offer */
	struct lorg_table channels; /* struct lorg_channel */
	uint32_t exhausted; /* atomic, the collector's; 1: it has no means for more arenas just now, waiting for one is vain */
	uint32_t refused;   /* atomic, the images'; how many found no arena and run untraced */
	uint32_t failures[4]; /* atomic, the images'; by enum lorg_attach_failure: how many run untraced for that */
	struct lorg_table connects; /* struct lorg_connect */
	struct lorg_table carried;  /* struct lorg_carried_token */
	uint64_t carried_next;	    /* atomic; messages that ever had a token: 0, and nobody need look; the next place by its remainder */
	uint64_t heartbeat_ns; /* atomic; CLOCK_MONOTONIC of a lorgd's last pass, 0: a private collector's. Long ago: no use to wait */
};

/* Why an image that has found the node segment is not traced. */
enum lorg_attach_failure {
	LORG_ATTACH_NOT_OPENED = 0, /* its arena cannot be opened */
	LORG_ATTACH_NOT_MAPPED = 1, /* no address space for its arena */
	LORG_ATTACH_OTHER_VERSION = 2,
	LORG_ATTACH_NO_IMAGE = 3, /* no room for another image in the arena */
	LORG_ATTACH_FAILURES = 4,
};

/*
 * One arena, ready. The collector fills every field and then sets READY; an
 * image reads them, takes it with one CAS to CLAIMED and opens
 * /proc/COLLECTOR/fd/DESCRIPTOR. The count in `state` makes the CAS fail where
 * the slot was filled anew in between.
 */
enum { LORG_OFFER_EMPTY = 0, LORG_OFFER_READY = 1, LORG_OFFER_CLAIMED = 2, LORG_OFFER_STATE = 0xff };
struct lorg_offer {
	uint32_t state;	    /* atomic; low 8 bits as above, the rest counts how often the slot was filled */
	int32_t descriptor; /* in the collector */
	uint64_t size;	    /* bytes of the arena */
	uint8_t arena_id[16];
};

/*
 * One direction of one kernel object that carries messages. key is taken with
 * a CAS from 0. Where the table is full, the place of an object that has not
 * been used for some seconds goes to the new one, with the next generation;
 * if there is none, the channel is 0, which numbers nothing.
 */
struct lorg_channel {
	uint64_t key;	     /* atomic; lorg_channel_key() */
	uint32_t driver;     /* enum lorg_driver */
	int32_t queued;	     /* messages or bytes waiting, where known */
	uint32_t readers;    /* descriptors open for reading, where known */
	uint32_t alias;	     /* atomic; the channel that this key really means (socketpair), 0: itself */
	uint32_t generation; /* atomic; times the place was given to another object */
	uint32_t listens;    /* atomic; enum lorg_listens: the object is an AF_UNIX socket with a name */
	uint32_t accepting;  /* atomic; calls of accept on it that are under way */
	uint32_t reserved[7];
	/* Each end has a cache line of its own, and what both read is in none that is written. */
	struct __attribute__((aligned(64))) lorg_channel_end {
		uint64_t offset;   /* atomic; bytes moved so far by traced programs, or LORG_MESSAGE_DISTANCE a message */
		uint32_t last_use; /* atomic; tick / 2^30 */
		/* The queue between the ends, while some session asks for its length (system/3): of the sending end, but for looks. */
		uint32_t under_way; /* atomic; sends that have begun and not returned */
		uint64_t looks;	    /* atomic; preload/hooks/monitor.c. Of the receiving end: not 0 when somebody receives there */
		uint64_t waiting;   /* atomic; bytes or messages, those that are under way included, as far as they were seen */
		uint64_t since;	    /* atomic; system_limits[7] that these two are of */
		uint32_t reserved[6];
	} sent, received;
};

enum lorg_listens {
	LORG_LISTENS = 1, /* a traced program has given it its name; sent.offset numbers beginnings and ends of connects */
	LORG_LISTENS_IN_DOUBT = 2, /* its connections could not all be followed: none of them is told any more */
};

/*
 * One AF_UNIX connection between its connect and its accept. Who accepts a connection learns its peer's pid from the
 * kernel, and here which socket that is. Written by the connecting program before it connects; the accepting one takes
 * it away, or, if it was faster than the connect's return, leaves that to the connecting one.
 */
struct lorg_connect {
	uint32_t state;	       /* atomic; bits of enum lorg_connect_state, times it was used << LORG_CONNECT_SHIFT; 0: never */
	uint32_t listener;     /* channel */
	uint32_t pid;	       /* of the connecting program, as its own pid namespace numbers it */
	uint32_t reserved;
	uint64_t pid_namespace; /* its inode */
	uint64_t device, inode; /* of the connecting socket */
	uint64_t begin;	       /* before connect; in the order of the listener's numbers */
	uint64_t end;	       /* after it; right when MADE is set */
	uint64_t reserved_more;
};

#define LORG_CONNECT_SHIFT 8
enum lorg_connect_state {
	LORG_CONNECT_HELD = 1,	/* being filled */
	LORG_CONNECT_WAITS = 2, /* filled */
	LORG_CONNECT_MADE = 4,	/* connect has returned, with success */
	LORG_CONNECT_DOUBTFUL = 8, /* its place in the listener's queue is not known: it is told no more */
	LORG_CONNECT_TAKEN = 16,   /* accepted, while its connect has not returned */
	LORG_CONNECT_TAKEN_BLINDLY = 32, /* this, or another one */
};

/*
 * Key of a channel: a mix of what names the kernel object (device and inode, or
 * two halves of an address) and the direction. The same in every program of a
 * node; never 0 or 1.
 */
static inline uint64_t lorg_channel_key(uint64_t high, uint64_t low, uint32_t direction)
{
	uint64_t key = (high + 0x632be59bd9b4e019u) * 0x9e3779b97f4a7c15u;
	key = (key ^ key >> 32 ^ low) * 0xd6e8feb86659fd93u;
	key = (key ^ key >> 29 ^ direction) * 0xbf58476d1ce4e5b9u;
	key ^= key >> 32;
	return key > 1 ? key : 2;
}

/* ---- arena ------------------------------------------------------------- */

enum lorg_overflow {
	LORG_OVERFLOW_BLOCK = 0,   /* wait, at most block_limit_ns, then lose */
	LORG_OVERFLOW_DISCARD = 1, /* lose and count */
	LORG_OVERFLOW_OVERWRITE = 2, /* the thread's oldest chunk goes */
};

/* What a hook is asked for: the bits of its gate byte; 0 is off. */
enum lorg_gate {
	LORG_GATE_MESSAGE = 1,	/* send, receive */
	LORG_GATE_PORT = 2,	/* open, closed, ... */
	LORG_GATE_PROCESS = 4,	/* spawn, exit, exec, names, links */
	LORG_GATE_RUNNING = 8,	/* in, out where it waits */
	LORG_GATE_CALL = 16,	/* instrumented calls, throw, catch */
	LORG_GATE_ALLOCATION = 32, /* an event for each allocation */
	LORG_GATE_COUNT = 64,	/* allocator word counts, calls a hook */
	LORG_GATE_ALL = 128,	/* also what did not wait: uncontended locks, running_ports */
	/* In a session's gate_mask, beside LORG_GATE_MESSAGE: which halves of it. */
	LORG_MASK_SEND = 256,
	LORG_MASK_RECEIVE = 512,
	/* The same of hooks that look at their gate byte for nothing else: any bit of it. */
	LORG_MASK_COLLECTION = 1024, /* garbage collection */
	/*
	 * In a hook's mask: it keeps what sessions that come later have to know (threads, programs, names). In a lorgd's arena
	 * its gate is never 0: LORG_GATE_COUNT stands there, which asks these hooks for nothing else.
	 */
	LORG_MASK_LIFE = 2048,
};

struct lorg_arena {
	uint32_t magic; /* LORG_ARENA_MAGIC, written last by the collector */
	uint16_t major, minor;
	uint32_t size;	      /* of this structure */
	uint32_t chunk_size;  /* LORG_CHUNK_SIZE */
	uint64_t arena_size;  /* bytes of the memfd */
	uint64_t chunks_offset;
	uint32_t chunk_count;
	uint32_t collector_pid;
	uint8_t id[16];
	char node_name[64];
	uint8_t trace_uuid[16]; /* of the CTF trace */
	struct lorg_clock clock;

	struct lorg_table chunk_control; /* uint64_t, see lorg_chunk_word() */
	struct lorg_table images;	 /* struct lorg_image */
	struct lorg_table sessions;	 /* struct lorg_session */
	struct lorg_table functions;	 /* struct lorg_function */
	struct lorg_table modules;	 /* struct lorg_module */
	struct lorg_table requests;	 /* struct lorg_request (plan.h); none where nothing is asked of functions */
	struct lorg_table programs;	 /* bytes: match programs (match.h) for messages; none where there are none */

	/* Written by the collector, read by every hook. */
	uint32_t settings_generation; /* atomic; changes when any setting does */
	uint32_t detached;	      /* atomic; 1: forward only from now on */
	uint32_t collector_epoch;     /* atomic; a restarted collector adds one */
	uint32_t seccomp_filters;     /* that the collector is under, and whoever it starts inherits; 0: none or not known */
	uint64_t heartbeat_ns;	      /* atomic; CLOCK_MONOTONIC of the last poll */
	uint64_t proc_device;	      /* st_dev of the collector's /proc, another for each pid namespace; 0: none */

	/* Written by the programs. */
	uint32_t chunk_high_water;    /* atomic; chunks below this were ever taken */
	uint32_t chunk_hint;	      /* atomic; where a search may begin */
	uint32_t image_high_water;    /* atomic */
	uint32_t damage_count;	      /* atomic; times the preload found its state wrong */
	uint64_t uncounted_lost;      /* atomic; events lost without a process to count them at */
	uint64_t match_exceeded;      /* atomic; calls in match specifications that failed because of a limit */
	uint64_t match_left_out;      /* atomic; evaluations for which there was no memory, or that a handler came into twice */
	uint64_t match_broken;	      /* atomic; evaluations of programs that make no sense */
	struct lorg_table program_flags; /* struct lorg_program_flags; the collector's */
	uint32_t functions_asked; /* atomic; the collector's: 0: nothing is asked of functions just now, no plan need be asked for */
	uint32_t reserved_more;
	uint64_t remote_entry;	      /* atomic; address in these programs of liblorg.so's remote_entry(); 0: they are too young */

	/*
	 * Sessions that come and go. 0: a private collector's arena, slot 0 is its one session. Else a lorgd's: slots from 1 up
	 * to below this may be in use, and slot 0 is the union of them. Atomic; written by the collector.
	 */
	uint32_t sessions_used;
	/* Atomic; the collector raises it before it opens the gates of hooks that follow descriptors and were shut. */
	uint32_t port_epoch;
	/*
	 * How the collector is reached now, where that is not as when the program began: a restarted one says it here. Written
	 * under `reach_generation`, which is odd meanwhile; 0: as at the beginning. collector_pid above belongs to it.
	 */
	uint32_t reach_generation;
	int32_t node_descriptor;
	uint64_t node_size;
	uint8_t token[16];
	char socket_path[108];

	uint64_t placements;	      /* atomic; address in these programs of their struct lorg_placements (plan.h); 0: none */

	uint8_t gate[LORG_HOOKS];     /* enum lorg_gate bits by hook id; written by the collector */
};

/*
 * Chunk control word: state (8 bits), session slot (8), sequence low bits (16),
 * process index (32). One CAS from 0 takes a chunk and names its owner.
 */
enum lorg_chunk_state {
	LORG_CHUNK_FREE = 0,
	LORG_CHUNK_FILLING = 1,
	LORG_CHUNK_FULL = 2,
	LORG_CHUNK_SLAB = 3,
	LORG_CHUNK_SCRATCH = 4,
	LORG_CHUNK_COUNTERS = 5, /* struct lorg_function_counter of one thread */
	LORG_CHUNK_CLEARING = 6, /* the collector's, for the moment in which it gives a free chunk's pages back */
};

static inline uint64_t lorg_chunk_word(enum lorg_chunk_state state, unsigned session, uint32_t process)
{
	return (uint64_t)state << 56 | (uint64_t)(session & 0xff) << 48 | process;
}

static inline enum lorg_chunk_state lorg_chunk_word_state(uint64_t word)
{
	return (enum lorg_chunk_state)(word >> 56);
}

static inline uint32_t lorg_chunk_word_process(uint64_t word)
{
	return (uint32_t)word;
}

/*
 * In place of the process index, in a slab's word: entries of it may be in use. Set by who takes an entry where it is not, and
 * taken away by the collector while it holds all entries of a slab that is empty: when it has let them go (0), that slab is
 * anybody's who wants a new one.
 */
enum { LORG_SLAB_IN_USE = 1, LORG_SLAB_CLEARING = 2 };

static inline int lorg_chunk_word_is_slab_in_use(uint64_t word)
{
	return lorg_chunk_word_state(word) == LORG_CHUNK_SLAB && lorg_chunk_word_process(word) == LORG_SLAB_IN_USE;
}

static inline unsigned lorg_chunk_word_session(uint64_t word)
{
	return (unsigned)(word >> 48) & 0xff;
}

/*
 * A packet's head: CTF packet header and packet context (both generated into
 * the metadata from LORG_PACKET_FIELDS in events.h: keep the order), then the
 * words that the writer uses while the chunk is in its hands (zero in files).
 */
struct lorg_packet {
	uint32_t magic; /* LORG_PACKET_MAGIC */
	uint8_t trace_uuid[16];
	uint32_t stream_id; /* 0 */
	/* context */
	uint64_t begin;		   /* tick of taking the chunk */
	uint64_t end;		   /* tick of its last event; the collector sets it */
	uint64_t content_bits;	   /* set by the collector */
	uint64_t packet_bits;	   /* set by the collector */
	uint64_t events_discarded; /* in the chunk: lost since the chunk before; in files: total of the stream */
	uint64_t sequence;	   /* in the chunk: number within (process, session); in files: within the stream */
	uint64_t earliest;	   /* least effective tick of its events (an event may tell of an earlier entry) */
	uint8_t image[16];	   /* id of the image */
	uint64_t process_birth;	   /* tick; tells recycled thread ids apart */
	uint32_t pid, tid;	   /* as the collector sees them; 0 until known */
	uint32_t runtime_process;  /* N of <PID.TID.N> */
	uint32_t session;	   /* slot */
	/* writer's words */
	uint64_t last;	     /* tick of the newest event; the owner's. In files: packet_checksum() or 0 */
	uint32_t position;   /* commit offset: bytes from the chunk's start; the owner's, readable at any time */
	union {
		uint32_t process_index;
		uint32_t holds; /* in files: enum lorg_packet_holds bits, 0: not known */
	};
	uint32_t chunk_index; /* its own number */
	union {
		uint32_t committed; /* in the chunk: bytes of events that are written whole; the owner's */
		uint32_t own_tid;   /* in files: the thread's number in its own pid namespace, where that is another than tid */
	};
};

#define LORG_PACKET_HEAD ((uint32_t)sizeof(struct lorg_packet))

/* What a packet in a file holds, so that readers can pass over most of them at first. */
enum lorg_packet_holds {
	LORG_HOLDS_KNOWN = 1,	    /* the other bits are valid */
	LORG_HOLDS_DEFINITIONS = 2, /* events that others are read with: event_is_definition() */
	/* To a session's tracer: */
	LORG_HOLDS_UNSHOWN = 4,	    /* for reading others with, none of them was asked for */
	LORG_HOLDS_PORT_FLAGS = 8,  /* a port's own flags ask for these: SEND is what it receives, RECEIVE what it sends, ... */
	LORG_HOLDS_PROCESS_FLAGS = 16, /* the process's flags do: OPEN is its link, CLOSED the owner's getting_unlinked */
};

enum lorg_image_state {
	LORG_IMAGE_FREE = 0,
	LORG_IMAGE_STARTING = 1, /* taken, fields not yet valid */
	LORG_IMAGE_ALIVE = 2,
	LORG_IMAGE_ENDING = 3, /* about to exit or exec; may still write */
	LORG_IMAGE_EXECED = 4, /* execve was called; ends when it succeeds */
};

enum lorg_birth {
	LORG_BIRTH_UNKNOWN = 0,
	LORG_BIRTH_FORK = 1,
	LORG_BIRTH_VFORK = 2,
	LORG_BIRTH_CLONE = 3,
	LORG_BIRTH_THREAD = 4,
	LORG_BIRTH_POSIX_SPAWN = 5,
	LORG_BIRTH_SYSTEM = 6,
	LORG_BIRTH_POPEN = 7,
	LORG_BIRTH_EXEC = 8,
	LORG_BIRTH_COMMAND = 9, /* lorg run */
	LORG_BIRTH_RUNTIME = 10,
	LORG_BIRTH_UNSEEN = 11, /* a fork that no hook saw */
};

struct lorg_image {
	uint32_t state; /* atomic; enum lorg_image_state; taken with a CAS from 0 */
	uint32_t birth; /* enum lorg_birth */
	uint8_t id[16];
	uint8_t parent_id[16]; /* the image that forked or exec'ed it; zero if none */
	uint32_t pid;	       /* as the collector sees it; the collector's, 0 until known */
	uint32_t own_pid;      /* as it sees itself; 0 until known */
	uint32_t parent_pid;   /* own_pid of the parent image */
	uint32_t vfork_child;  /* 1: shares its parent's memory until exec or exit */
	uint64_t start_tick, end_tick;
	int32_t exit_status; /* as given to _exit; valid with has_exit_status */
	uint32_t has_exit_status;
	uint32_t not_traced; /* 1: reason says why */
	char reason[64];
	uint8_t build_id[20];
	uint32_t seccomp; /* 1: a filter may be on: no system calls for our sake */
	uint32_t proc_pid; /* as /proc numbers it: the collector's number where it has the same /proc; 0 not known */
	uint32_t first_process; /* index + 1 of the entry that its maker has reserved for its first thread; 0: none */
	uint32_t detached; /* atomic; 1: it only forwards (lorg detach), and no function of it is to be hooked */
	uint32_t reserved[5];
};

/* What a thread waits on, or is inside of; cleared (hook 0) on return. */
struct lorg_wait {
	uint64_t tick;	 /* of the entry */
	uint64_t object; /* descriptor, lock address, pid */
	uint32_t hook;	 /* hook id + 1; 0: nothing */
	/*
	 * Low word of the entry's tick, with its lowest bit set: an `out` is asked for and not yet written, which is done at
	 * the return; 0: written or not asked for. Changed together with `hook`, as one word of eight bytes.
	 */
	uint32_t out_pending;
};

/* flags: as seq_trace(3) adds them up, and LORG_TOKEN_PRESENT where there is a token. serial and previous: {previous, current}. */
#define LORG_TOKEN_PRESENT (1u << 31)
struct lorg_seq_token {
	uint32_t flags, label, serial, previous;
	uint32_t from_pid, from_tid;
};

/*
 * A message on its way that has a sequence token: who receives bytes of it gets that. Written before the message is sent,
 * when it is not yet known which bytes of the channel it will be; the oldest places are used again.
 */
enum { LORG_CARRIED_TOKENS = 1024 };
struct lorg_carried_token {
	uint64_t version; /* atomic; odd while it is written */
	uint64_t begin, end; /* offsets in the channel; end UINT64_MAX: not known yet; 0: it was not sent after all */
	uint32_t channel, sender_pid; /* sender's numbers as its program has them */
	uint32_t sender_tid, reserved;
	struct lorg_seq_token token;
};

enum { LORG_CAUSAL_RING = 16, LORG_HELD_OBJECTS = 8 };

enum lorg_process_state {
	LORG_PROCESS_FREE = 0,
	LORG_PROCESS_STARTING = 1,
	LORG_PROCESS_ALIVE = 2,
	LORG_PROCESS_ENDING = 3, /* its exit is written; destructors may still run */
	LORG_PROCESS_ENDED = 4,	 /* will write no more: the collector may take all */
	LORG_PROCESS_CLEARING = 5, /* free; the collector's, for the moment in which it gives the slab's pages back */
};

/* A thread, or a runtime's own process. In slabs; index = chunk * LORG_SLAB_ENTRIES + slot. */
struct lorg_process {
	uint32_t state; /* atomic; enum lorg_process_state; taken with a CAS from 0 */
	uint32_t index;
	uint32_t image; /* index in the image table */
	uint32_t own_tid; /* as the program sees it */
	uint32_t runtime_process; /* N; 0 for the thread itself */
	uint32_t parent;   /* index of the process that spawned it */
	uint64_t runtime_id; /* the runtime's own number */
	uint64_t birth_tick;
	uint64_t exit_tick;
	char name[32];
	/* In one cache line: written at the entry of each call that may wait. */
	struct lorg_wait waits_on;
	uint64_t wait_caller;	 /* of waits_on, for its `out`: return address of the call */
	int64_t wait_timeout_ns; /* -1 none */
	uint32_t wait_ending;	 /* 1: the thread or program was ending */
	uint32_t collector_read; /* the collector's: what it has read of this process's events, for the next one (processes.c) */
	uint64_t held[LORG_HELD_OBJECTS]; /* addresses of locks held, newest last */
	struct {
		uint32_t kind, reserved;
		uint64_t site;
	} causal[LORG_CAUSAL_RING];
	struct lorg_seq_token token;
	uint64_t stack_low, stack_high;
	uint64_t words_allocated; /* 8-byte words asked of the allocator */
	uint64_t allocations, frees, allocation_failures;
	uint32_t causal_next;
	uint32_t scratch_chunk; /* index + 1 of its scratch chunk */
	struct {
		uint32_t flags; /* trace(3) flags of this process in this session */
		union {
			uint32_t chunk; /* slot 0: index + 1 of the chunk it fills */
			uint32_t lost;	/* others: atomic; events that this session would have had and that were lost. The
					   collector takes them away when it tells of them. */
		};
	} session[LORG_SESSIONS];
	struct {
		uint32_t program, reason, hook; /* as in the EXIT event */
		int32_t status;
	} exit;		      /* what its EXIT says, once state is ENDING */
	uint64_t lost;	      /* events lost in slot 0, ever */
	uint64_t lost_told;   /* of those, told in a chunk's head */
	uint32_t proc_tid;    /* as /proc numbers it, where that differs from own_tid; 0 not known */
	uint32_t match_scratch[2]; /* index + 1 of its scratch chunks for match specifications: its own, and its handlers' */
	/*
	 * The innermost open calls whose time and memory are counted, by their functions' ids; 0: none. What has come since is
	 * in no counter yet. timed_since: tick; 0: the thread waits, and that is nobody's time. memory_words: words_allocated.
	 */
	uint32_t timed_function;
	uint64_t timed_since, memory_words;
	uint32_t memory_function;
	uint32_t exit_lost; /* 1: there was no room for its EXIT; one more event that is lost, unless it is written yet */
	/*
	 * The thread or program that it is making, until its SPAWN is written. Its maker may be ended before that, by an exec of
	 * another thread or a signal: then the collector writes it, of a child that has run.
	 */
	struct {
		uint64_t child; /* atomic; low half: its process index + 1, or its image's with LORG_SPAWNING_IMAGE; 0: none.
				   High half: its number, once it runs and has told */
		uint64_t entry, routine, argument, caller;
		uint64_t image_low, image_high;
		uint32_t how, hook;
	} spawning;
	uint32_t linked_pid, linked_tid; /* the thread that PR_SET_PDEATHSIG ties it to, as it numbers that; 0: none */
	/*
	 * While long_schedule is asked for: tick of the return from the last call that may wait, and that call's hook (shown_as);
	 * 0: it is inside of such a call, or none has been seen. The thread's; the collector looks at it from outside.
	 */
	uint64_t runs_since; /* atomic */
	uint32_t runs_after;
	/* Lost events of which the program cannot know whether these sessions (a bit a slot) would have had them. As `lost`. */
	uint32_t doubtful_lost; /* atomic */
	uint64_t doubtful_sessions[LORG_SESSIONS / 64]; /* atomic */
};

enum { LORG_SPAWNING_IMAGE = 1 << 30 };

#define LORG_PROCESS_SIZE 2048u
#define LORG_SLAB_ENTRIES (LORG_CHUNK_SIZE / LORG_PROCESS_SIZE)

/* One session's settings; the collector's. */
struct lorg_session {
	uint32_t state;	     /* atomic; 0 free, 1 on */
	uint32_t generation; /* of these settings */
	uint64_t id;
	char name[64];
	uint32_t overflow;	     /* enum lorg_overflow */
	uint32_t message_length;     /* bytes kept */
	uint64_t block_limit_ns;     /* LORG_OVERFLOW_BLOCK: longest wait */
	uint64_t flags_new_processes; /* trace(3) flags that new processes get */
	uint64_t flags_new_ports;
	uint32_t control_word; /* atomic; set_tcw */
	uint32_t gate_mask;    /* enum lorg_gate bits that this session asks for */
	uint32_t send_program, receive_program; /* of the match program: its place in the table `programs` + 8; 0: none */
	uint64_t limit_events, limit_rate, limit_memory; /* 0: none */
	uint64_t count_events, count_bytes; /* atomic */
	uint64_t system_limits[8]; /* long_gc, long_message_queue x2, long_schedule, large_heap, ...; [7]: of slot 0: tick from which on somebody asks for queues */
	uint32_t backtrace_depth;
	uint32_t flags_matter; /* 1: processes may have other flags than new ones get: every hook looks at those of its own */
	/*
	 * A lorgd's: trace(3) flags that any port, or new ones, have in this session; slot 0: in any. What happens on ports may
	 * then be asked for of every process: lorg_flags_by_ports().
	 */
	uint32_t flags_ports;
	uint32_t reserved[29];
};

/* In send_program and receive_program: the specification is `false`, nothing is let through. */
#define LORG_PROGRAM_OFF UINT32_MAX

/* Flags that the threads of one image begin with in a session, beside those of all new processes. */
enum { LORG_PROGRAM_FLAGS = 256 };
struct lorg_program_flags {
	uint32_t image;	  /* atomic, written last; index in the image table + 1, 0: free */
	uint32_t session; /* slot */
	uint64_t image_id; /* first half of its id: the entry may be another's by now */
	uint32_t flags;	   /* atomic; LORG_TRACE_* */
	uint32_t reserved;
};

/* An instrumented or hooked function; slot = its id. Slots are taken by a CAS of `key`. */
struct lorg_function {
	uint64_t key; /* atomic; code address, or address of the name that the compiler passed */
	uint32_t kind_tier; /* low 16 bits: tier 1..3; high: refusal reason */
	uint32_t told;	    /* atomic; 1: its FUNCTION event is written */
};

/*
 * What one thread counts of one hooked function, without events. A chunk of counters is LORG_COUNTERS of them; the first
 * two places are left empty. A function may stand at several places and in several chunks of a thread: the sum counts.
 * Written by the thread alone, read at any time.
 */
enum { LORG_COUNTERS = 2048 };
struct lorg_function_counter {
	uint32_t function; /* its id, 0: free; atomic, taken once */
	uint32_t lost;	   /* calls whose return could not be seen */
	uint64_t count, time_ticks, words;
};

/* Per-session and per-process data of a function, for counting; see doc/DESIGN.md, section 5. */
struct lorg_function_session {
	uint32_t function, session;
	uint32_t kind; /* global, local, meta, call_count, call_time, call_memory */
	uint32_t program; /* chunk of the match program + 1 */
	uint64_t count, time_ticks, words; /* atomic */
};

struct lorg_module {
	uint32_t state; /* atomic; 0 free, 1 loading, 2 mapped, 3 unmapped */
	uint32_t build_id_length;
	uint8_t build_id[20];
	uint32_t reserved;
	uint64_t base;	/* load bias */
	uint64_t start; /* lowest mapped address */
	uint64_t length; /* bytes */
	uint64_t load_tick, unload_tick;
	char path[256];
};

/* ---- identities used in events ----------------------------------------- */

enum lorg_driver {
	LORG_DRIVER_NONE = 0, /* not a port: regular file, directory, epoll, ... */
	LORG_DRIVER_UNKNOWN = 1,
	LORG_DRIVER_TCP = 2,
	LORG_DRIVER_UDP = 3,
	LORG_DRIVER_RAW = 4,
	LORG_DRIVER_UNIX = 5,
	LORG_DRIVER_UNIX_DGRAM = 6,
	LORG_DRIVER_UNIX_SEQPACKET = 7,
	LORG_DRIVER_PIPE = 8,
	LORG_DRIVER_FIFO = 9,
	LORG_DRIVER_TTY = 10,
	LORG_DRIVER_EVENTFD = 11,
	LORG_DRIVER_MQ = 12,
	LORG_DRIVER_SYSV = 13,
	LORG_DRIVER_NETLINK = 14,
	LORG_DRIVER_VSOCK = 15,
	LORG_DRIVER_COUNT = 16,
};

enum lorg_reason {
	LORG_REASON_NORMAL = 0,
	LORG_REASON_STATUS = 1,	   /* status holds 1..255 */
	LORG_REASON_SIGNAL = 2,	   /* status holds the signal */
	LORG_REASON_KILLED = 3,	   /* cancelled */
	LORG_REASON_EXEC = 4,
	LORG_REASON_UNKNOWN = 5,
};

/* Bits of `flags` of message events. */
enum lorg_message_flag {
	LORG_MESSAGE_EOF = 1,	  /* end of stream */
	LORG_MESSAGE_CUT = 2,	  /* fewer bytes kept than moved */
	LORG_MESSAGE_PEEK = 4,
	LORG_MESSAGE_NOT_COPIED = 8, /* splice, sendfile, tee */
	LORG_MESSAGE_INNER = 16,  /* libc's own call, seen by the code hook */
	/* Of SENT and RECEIVED only; not shown. */
	LORG_MESSAGE_RUNNING = 32,    /* the call was an out at its entry and an in at its return, too */
	LORG_MESSAGE_OUT_ENDING = 64, /* `ending` of that out */
	LORG_MESSAGE_IN_ENDING = 128, /* and of that in */
	LORG_MESSAGE_NO_COUNT = 256,  /* the call returned 0, not the number of bytes */
	LORG_MESSAGE_NOT_WAITED = 512, /* with RUNNING: it did not wait; for running_procs alone */
};

/* The ELF note of liblorg.so that holds major and minor (two uint32_t): the two sides are compared before a program starts. */
#define LORG_ABI_NOTE_SECTION ".note.lorg"
#define LORG_ABI_NOTE_NAME "lorg"
#define LORG_ABI_NOTE_TYPE 1

/* The variable that leads an image to its collector, LORG=MAJOR:PID:FD:SIZE:TOKEN:IMAGE[,SLOT.ID.FLAGS ..]:SOCKET. */
#define LORG_ENVIRONMENT "LORG"

_Static_assert(sizeof(struct lorg_clock) == 48, "lorg_clock");
_Static_assert(sizeof(struct lorg_table) == 16, "lorg_table");
_Static_assert(sizeof(struct lorg_offer) == 32, "lorg_offer");
_Static_assert(sizeof(struct lorg_channel) == 3 * 64, "lorg_channel");
_Static_assert(sizeof(struct lorg_connect) == 64, "lorg_connect");
_Static_assert(sizeof(struct lorg_carried_token) == 64, "lorg_carried_token");
_Static_assert(sizeof(struct lorg_packet) == 24 + 7 * 8 + 16 + 8 + 16 + 24, "lorg_packet");
_Static_assert(sizeof(struct lorg_packet) % 8 == 0, "events are aligned to 8");
_Static_assert(sizeof(struct lorg_image) <= 256, "lorg_image");
_Static_assert(sizeof(struct lorg_process) <= LORG_PROCESS_SIZE, "lorg_process");
_Static_assert(__builtin_offsetof(struct lorg_process, waits_on.hook) % 8 == 0, "hook and out_pending are one word");
_Static_assert(__builtin_offsetof(struct lorg_process, waits_on) / 64 == __builtin_offsetof(struct lorg_process, wait_ending) / 64,
	       "one cache line");
_Static_assert(sizeof(struct lorg_session) <= 512, "lorg_session");
_Static_assert(sizeof(struct lorg_function) == 16, "lorg_function");
_Static_assert(sizeof(struct lorg_function_counter) * LORG_COUNTERS == LORG_CHUNK_SIZE, "lorg_function_counter");
_Static_assert(sizeof(struct lorg_module) <= 384, "lorg_module");

/* Strides of the tables, so that a structure may grow within a major. */
enum {
	LORG_IMAGE_STRIDE = 256,
	LORG_SESSION_STRIDE = 512,
	LORG_MODULE_STRIDE = 384,
};

#endif
