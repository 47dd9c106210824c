/* SPDX-License-Identifier: MIT */
/*
 * thread.h: who writes. Each thread owns one entry of the process table and
 * the chunk it fills; ownership is checked at every event, never assumed.
 *
 * thread_self() is what every hook begins with: it notices a fork that no hook
 * saw (a page that is wiped on fork), gives new threads their entry, and
 * returns NULL where nothing may be recorded. It makes system calls only in a
 * fork child or thread that no hook announced, and never under seccomp.
 */
#ifndef LORG_PRELOAD_THREAD_H
#define LORG_PRELOAD_THREAD_H

#include <lorg/abi.h>
#include <lorg/events.h>
#include <signal.h>

#include "preload/core/arena.h"

/* Why thread_self() must look twice. */
enum thread_off {
	THREAD_OFF_FOREVER = 1, /* forward only in this thread */
	THREAD_OFF_CHECK = 2,	/* others run on this thread-local storage, too: asked of the kernel who this is */
};

struct call_thread;

/* CPU time of the program when a hook was entered; core/cpu_time.c. */
enum { CPU_TIME_ENTRIES = 3 };
struct cpu_time_entry {
	uint64_t tick, ns;
};

/* Thread-local, initial-exec, all zero at first. Small: it stands in the static TLS block of every thread. */
struct thread {
	struct lorg_packet *packet;   /* chunk being filled, NULL: none */
	struct lorg_process *process; /* entry in the arena, NULL: not yet claimed */
	/* Whatever keeps an event from being written the short way, to be looked at in one word. */
	union {
		struct {
			uint16_t off;	      /* enum thread_off; nonzero: thread_claim decides at every event */
			uint16_t no_clock;    /* 1: reading the TSC would fault (strict seccomp) */
			union {
				struct {
					uint8_t ending;	   /* 1: its exit is written; see thread_exit() */
					uint8_t cpu_times; /* 1: each event is told with the program's CPU time */
				};
				uint16_t long_way; /* not 0: events are written by event_write(), and by nothing else */
			};
			uint16_t other_clock; /* 1: the trace's clock is not the TSC */
		};
		uint64_t not_plain;
	};
	uint32_t call_region;	      /* whose shadow was last found to be there; 0: look (preload/call/shadow.c) */
	uint32_t process_index;
	void *call_counters;	      /* directory of the thread's counters of functions, NULL: none yet (call/count.c) */
	struct call_thread *call;     /* what else preload/call keeps of a thread, NULL: nothing yet */
	uint32_t exit_position;	      /* of the exit event in the current chunk, 0 none */
	uint32_t vfork_child;	      /* 1: this is a vfork child on its parent's TLS */
	uint32_t claiming;	      /* guards thread_claim against itself in signal handlers */
	uint8_t match_depth;	      /* evaluations of match specifications under way, handlers' included; call/surroundings.c */
	uint64_t last_tick;	      /* of the chunk it has left; time goes on from there where no clock may be read */
	uint32_t sequence;	      /* of the newest chunk taken */
	uint32_t waited_in_vain;      /* 1: the last wait for a chunk ran out; no more waiting until one is had */
	/* What keeps a hook from going its usual way, to be looked at in one word. */
	union {
		struct {
			uint32_t busy;	       /* > 0: inside lorg's own slow path; hooks forward */
			uint32_t flags_matter; /* 1: the process's own flags say what is recorded (abi.h) */
		};
		uint64_t guarded;
	};
	uintptr_t match_frames[2];    /* where their frames are on the stack */
	uint32_t allocating;	      /* hook + 1 of the operator new whose malloc has not come yet; allocator.c */
	uint32_t freeing;	      /* 1: inside operator delete, whose free is not told again */
	uint32_t heap_looked_at;      /* 64 KiB steps of allocated words at which the heap's growth was last looked at */
	uint32_t start_hook;	      /* hook that made this thread; spawn */
	uintptr_t allocation_caller;  /* of the operator new in `allocating` */
	const void *rethrown;	      /* C++ exception that its handler has thrown again and none has caught; exception.c */
	uint32_t moves;		      /* of the arena that it has followed; make_way.h */
	uint32_t fork_image;	      /* index + 1 of the image reserved for the child of a fork under way; 0: none */
	uint32_t fork_how;	      /* enum lorg_birth of that child */
	uintptr_t fork_caller, fork_routine, fork_argument; /* who calls for it; where the child begins (clone), 0: there */
	struct cpu_time_entry cpu_entries[CPU_TIME_ENTRIES];
	uint32_t cpu_entry_next;
	uint32_t begun;		      /* 1: nobody announces it any more: it has taken its entry, or is a program's first */
	struct {
		struct lorg_packet *packet;
		struct lorg_process *process;
		uint32_t process_index, sequence;
	} parent;		      /* saved while vfork_child */
};

extern HIDDEN __thread struct thread this_thread __attribute__((tls_model("initial-exec")));

/* State of the program that is this image. Process-private. */
struct program {
	struct lorg_image *image; /* entry in the arena */
	uint32_t image_index;
	uint8_t image_id[16];
	uint32_t own_pid;	  /* 0: not known yet */
	uint32_t nested;	  /* 1: /proc numbers it otherwise: it is in a pid namespace below that of /proc */
	uint32_t seccomp;	  /* atomic; 1: a filter may be on */
	uint32_t filtered;	  /* atomic; 1: by the program's own doing, so that even a loader's calls may be forbidden */
	uint32_t tid_offset;	  /* of the tid in glibc's thread control block; 0 unknown */
	uint32_t locked_memory;	  /* atomic; 1: mlockall(MCL_FUTURE) is on */
	uint32_t ending;	  /* atomic; 1: exit has begun */
};
extern HIDDEN struct program the_program FORK_STATE;

/*
 * The page that the kernel wipes in a fork child: its first word is 1 while this image owns its state. What else stands
 * in it is forgotten by a fork, so that who looks at that need not look at the first word, too.
 */
enum fork_guard_word {
	FORK_GUARD_OWNED,
	FORK_GUARD_ANNOUNCED,
	FORK_GUARD_MOVED, /* 1: this image owns its state, and the arena is elsewhere: each thread has to follow (make_way.h) */
	FORK_GUARD_WORDS = 1024
};
extern HIDDEN volatile uint32_t fork_guard[FORK_GUARD_WORDS];

/*
 * What a call that the compiler announces (-finstrument-functions) is to do, in the one word that it looks at first.
 * Unknown at the start, in a fork child, and whenever it may have changed; function.c finds out.
 */
enum announced {
	ANNOUNCED_UNKNOWN,
	ANNOUNCED_DORMANT,   /* nobody records and there is no next definition: nothing */
	ANNOUNCED_RECORDED,  /* this image has an arena, whose gates say more, and no next definition */
	ANNOUNCED_FORWARDED, /* there is a next definition */
};

static inline enum announced announced_calls(void)
{
	return (enum announced)fork_guard[FORK_GUARD_ANNOUNCED];
}

/* Relaxed: who finds out stores the same; a state that has just become wrong is harmless for one more call. */
static inline void announced_calls_set(enum announced state)
{
	fork_guard[FORK_GUARD_ANNOUNCED] = state;
}

/* True while system calls for our own sake are harmless. */
static inline int system_calls_allowed(void)
{
	return !__atomic_load_n(&the_program.seccomp, __ATOMIC_RELAXED);
}

/* Slow path of thread_self. */
HIDDEN struct thread *thread_claim(void);

/*
 * The thread has lost its entry and got no other: forward only from now on. The hook under way may still look at
 * and write to its entry: it is given one that is nobody's.
 */
HIDDEN void thread_give_up(struct thread *self);

/* True from then on: for a shared child until its parent goes on. */
static inline int thread_has_given_up(const struct thread *self)
{
	return self->process && self->process_index == UINT32_MAX;
}

/* True when the calling thread may write at once: it has an entry, of this image. */
static inline int thread_is_ready(const struct thread *self)
{
	return __builtin_expect(self->process && *fork_guard && !self->off, 1);
}

/* The calling thread, ready to write; or NULL: forward only. Async-signal-safe. */
static inline struct thread *thread_self(void)
{
	struct thread *self = &this_thread;
	return thread_is_ready(self) ? self : thread_claim();
}

/*
 * Called by start.c after arena_attach: claims the image's entry and the main
 * thread's, writes IMAGE, MODULE and OPEN of what is there.
 */
HIDDEN void program_begin(int argc, char **argv, char **envp);

/* A collector that has taken over is told what this image is: IMAGE and MODULE again. Once; by whoever notices first. */
HIDDEN void program_tell_again(void);

/* A value of the kernel's auxiliary vector (AT_*), 0 if absent. */
HIDDEN uint64_t auxiliary_value(uint64_t type);

/* The tid of the calling thread without a system call where glibc's block tells; else gettid, else 0. */
HIDDEN uint32_t thread_own_tid(void);
HIDDEN uint32_t program_own_pid(void);

/*
 * Fork in three steps, around the real call. before: reserves the child's
 * image entry (returns its index, UINT32_MAX if none). child: called first
 * thing in the child; makes this image the child's. parent: pid of the child,
 * or -1 when fork failed (the entry is given back).
 */
HIDDEN uint32_t program_fork_before(enum lorg_birth how);
HIDDEN void program_fork_child(uint32_t image_index, enum lorg_birth how);
HIDDEN void program_fork_parent(uint32_t image_index, int child_pid);

/* What SPAWNED tells of a child beside, as its maker's SPAWN does. */
struct thread_birth {
	uint64_t caller, routine, argument;
	const void *file, *argv; /* readable; the strings of argv stand one after the other */
	uint32_t file_length, argv_length;
};

/*
 * A child that shares our memory and TLS (vfork, posix_spawn's): enter switches this_thread to an entry of the
 * child's own, under the image that program_fork_before reserved (or a fresh one: UINT32_MAX); leave, called in the
 * parent when it goes on, switches back and closes the child's chunk. `pid` 0: not known. birth: NULL: nothing more is known.
 */
HIDDEN void thread_enter_shared_child(uint32_t image_index, enum lorg_birth how, uint32_t pid, const struct thread_birth *birth);
HIDDEN void thread_leave_shared_child(void);

/*
 * A task is about to be made that runs on this thread's thread-local storage while the thread goes on: from now on
 * each event asks the kernel for the thread id, and only the thread's own are recorded.
 */
HIDDEN void thread_share_storage(void);

/*
 * A new thread: the creator calls announce (NULL when not tracing) and hands the entry to the new thread's
 * trampoline, which calls adopt first thing. An entry whose thread was never made is given back by abandon.
 */
HIDDEN struct lorg_process *thread_announce(void);
HIDDEN void thread_adopt(struct lorg_process *entry);
HIDDEN void thread_abandon(struct lorg_process *entry);

/*
 * The thread's end: writes EXIT. Events that come later (destructors) are still recorded; each moves the EXIT behind
 * itself, so that it stays the thread's last event. program 1: the whole program ends.
 */
HIDDEN void thread_exit(int program, enum lorg_reason reason, int status, uint32_t hook);

/*
 * hooks/thread_create.c: the entry that the calling thread's creator has announced, when it has not come to take it; else
 * NULL. libc's block names the slot for ever, also in a fork child that has a copy of it: self->begun is looked at first.
 */
HIDDEN struct lorg_process *thread_announced(struct thread *self);

/* 64 KiB of memory of this thread that no one else uses, or NULL. Kept until the thread ends. */
HIDDEN void *thread_scratch(void);

/* Enter and leave lorg's own slow paths: hooks met inside forward. */
static inline void thread_busy(struct thread *self)
{
	self->busy++;
}
static inline void thread_idle(struct thread *self)
{
	self->busy--;
}

/* The calling thread is about to make `child` (lorg_process.spawning); the other fields are set. */
static inline void spawning_begins(struct thread *self, uint32_t child)
{
	/* Release: whoever sees the child sees of what kind it is. */
	__atomic_store_n(&self->process->spawning.child, child, __ATOMIC_RELEASE);
}
/* By its index: the call was long, and the arena may be elsewhere by now. */
static inline void spawning_ends(const struct thread *self)
{
	struct lorg_process *process = arena_process(self->process_index);
	if (process)
		__atomic_store_n(&process->spawning.child, 0, __ATOMIC_RELAXED);
}
/* In the child. Its maker may be elsewhere by now, and making another. */
static inline void spawning_child_runs(struct lorg_process *maker, uint32_t child, uint32_t number)
{
	uint64_t seen = child;
	__atomic_compare_exchange_n(&maker->spawning.child, &seen, child | (uint64_t)number << 32, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* What the calling thread is inside of, for post-mortems. wait_clear when the call returns. */
static inline void wait_set(struct thread *self, uint32_t hook, uint64_t object, uint64_t tick)
{
	struct lorg_wait *wait = &self->process->waits_on;
	wait->object = object;
	wait->tick = tick;
	__atomic_store_n(&wait->hook, hook + 1, __ATOMIC_RELEASE);
}
static inline void wait_clear_entry(struct lorg_process *process)
{
	__atomic_store_n(&process->waits_on.hook, 0, __ATOMIC_RELEASE);
}
static inline void wait_clear(struct thread *self)
{
	wait_clear_entry(self->process);
}

#endif
