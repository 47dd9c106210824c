/* SPDX-License-Identifier: MIT */
/*
 * hook.h: the one table of hooks and the one frame that all wrappers share.
 *
 * The table is preload/hooks/hooks.table; scripts/hooks.py makes from it the
 * ids (hook_ids.h), the rows (struct hook), the wrappers of rows that need no
 * code of their own, the version script, and the names the collector knows.
 *
 * A generated wrapper of family F reads
 *
 *     TYPE hook_name(parameters)                      exported as name
 *     {
 *             if (!hook_gate(HOOK_name))              two loads, three branches
 *                     return REAL(name)(arguments);
 *             return traced_name(arguments);          a tail call
 *     }
 *
 *     static TYPE traced_name(parameters)
 *     {
 *             struct hook_call call;
 *             if (!hook_begin(&call, HOOK_name))
 *                     return REAL(name)(arguments);
 *             call.argument[0] = (uintptr_t)first; ...
 *             F_enter(&call);
 *             TYPE result = REAL(name)(arguments);
 *             F_leave(&call, (intptr_t)result);
 *             return result;
 *     }
 *
 * errno: the wrapper saves it (hook_errno()); F_enter runs, then errno is put
 * back before the real call; call.error is errno after the real call when the
 * row's error form says that it failed, and errno is put back after F_leave. Families therefore
 * never touch it themselves.
 */
#ifndef LORG_PRELOAD_HOOK_H
#define LORG_PRELOAD_HOOK_H

#include <stdint.h>

#include <lorg/match.h>

#include "hook_ids.h" /* generated: enum hook_id { HOOK_read, ..., HOOK_COUNT } */
#include "preload/core/event.h"

enum hook_family {
	FAMILY_message,	  /* moves bytes on a port */
	FAMILY_port,	  /* makes, closes, names, connects descriptors */
	FAMILY_wait,	  /* waits for time, descriptors, children, threads */
	FAMILY_lock,	  /* mutexes and their like: waits when contended */
	FAMILY_spawn,	  /* makes processes and programs */
	FAMILY_exec,
	FAMILY_exit,
	FAMILY_signal,
	FAMILY_allocator,
	FAMILY_function,  /* instrumentation, exceptions */
	FAMILY_settings,  /* prctl, mlockall, madvise, ...: looked at for our own safety */
};

/* What a call does; decides how its family reads it. */
enum hook_role {
	ROLE_none,
	ROLE_send,
	ROLE_receive,
	ROLE_transfer, /* splice, sendfile, tee, copy_file_range: receives on one, sends on another */
	ROLE_open,
	ROLE_open_path, /* open: what it makes is a port only where the path is a FIFO or a terminal */
	ROLE_open_pair, /* pipe, socketpair: an int[2] */
	ROLE_accept,
	ROLE_connect,
	ROLE_bind,
	ROLE_listen,
	ROLE_shutdown,
	ROLE_close,
	ROLE_close_range,
	ROLE_duplicate,
	ROLE_control, /* fcntl, ioctl, setsockopt */
	ROLE_info,
	ROLE_watch,   /* epoll_ctl */
	ROLE_poll,    /* waits for descriptors; 0 is a time-out */
	ROLE_sleep,
	ROLE_reap,    /* wait family */
	ROLE_join,
	ROLE_yield,
	ROLE_acquire,
	ROLE_release,
	ROLE_condition,
	ROLE_wake,
	ROLE_spawn,
	ROLE_thread,
	ROLE_exec,
	ROLE_exit,
	ROLE_thread_exit,
	ROLE_name,
	ROLE_kill,	  /* sends a signal */
	ROLE_handler,	  /* sets a handler */
	ROLE_take_signal, /* sigwait family, signalfd */
	ROLE_descriptor,  /* makes a descriptor to send signals by */
	ROLE_allocate,
	ROLE_free,
	ROLE_collect, /* gives memory back to the system */
	ROLE_enter,
	ROLE_leave,
	ROLE_throw,
	ROLE_catch,
	ROLE_jump,
};

enum hook_error {
	ERROR_none,
	ERROR_minus_one, /* -1 and errno */
	ERROR_null,	 /* NULL and errno */
	ERROR_returned,	 /* returns the errno, 0 is success */
	ERROR_sigwait,	 /* as ERROR_returned; kept apart for documentation */
};

enum hook_blocking {
	BLOCKING_never,
	BLOCKING_always,
	BLOCKING_descriptor, /* unless the descriptor is O_NONBLOCK or MSG_DONTWAIT is given */
	BLOCKING_contended,
};

/* Index of an argument with a role, or -1. */
struct hook_arguments {
	int8_t fd, fd2, buffer, length, iovec, iovec_count, msghdr, mmsghdr, count, flags, timeout_ms, timeout_timespec,
		timeout_timeval, address, address_length, pid, object, routine, path, argv, size, signal, offset, pair;
};

enum hook_flag {
	HOOK_CANCELLATION_POINT = 1,
	HOOK_RETURNS_TWICE = 2,
	HOOK_NO_RETURN = 4,
	HOOK_SIGNAL_SAFE = 8,
	HOOK_FORTIFIED = 16,   /* a __*_chk form */
	HOOK_OWN_CODE = 32,    /* the wrapper is written by hand */
	HOOK_PEEKS = 64,
	HOOK_TIMEOUT_ABSOLUTE = 128,
	HOOK_INNER = 256,      /* libc's inner entry point is patched to come here */
	HOOK_CLOCK_GIVEN = 512, /* a clockid stands before the time-out */
};

struct hook {
	const char *name;	/* as the program calls it */
	const char *version;	/* symbol version to forward to; NULL: the default one */
	const char *library;	/* soname prefix to look in first: "libc.so.6", "libstdc++.so.6"; NULL: any */
	uint16_t id;
	uint16_t shown_as;	/* id of the plain name: __read_chk is shown as read */
	uint8_t family, role, error, blocking;
	uint8_t port_command;	/* trace(3) port command; enum hook_port_command */
	uint8_t charge;		/* profile: 0 work, 1 wait */
	uint8_t arity;
	uint32_t gate_mask;	/* enum lorg_gate bits that make it worth entering */
	uint32_t flags;		/* enum hook_flag */
	struct hook_arguments argument;
};

enum hook_port_command {
	COMMAND_none,
	COMMAND_command,
	COMMAND_call,
	COMMAND_connect,
	COMMAND_control,
	COMMAND_info,
	COMMAND_flush,
	COMMAND_close,
	COMMAND_open,
	COMMAND_link,
	COMMAND_unlink,
};

extern HIDDEN const struct hook hook_table[HOOK_COUNT];

/*
 * The real functions, by id; filled by hook_resolve() at first use, which may be before any constructor (an IFUNC
 * resolver, an early malloc). Written with relaxed atomics: every writer stores the same value.
 */
extern HIDDEN void *hook_real_functions[HOOK_COUNT];
HIDDEN void *hook_resolve(uint32_t id);
/* Constructor only: notes which objects are there for good, and where errno is. */
HIDDEN void hooks_resolve(void);
/*
 * The same where liblorg.so has been loaded while the program ran, and stands behind the objects whose functions it takes the
 * place of. 0, or -1: this is no program of the GNU C library's loader.
 */
HIDDEN int hooks_resolve_late(void);
/* 1: that has been done. */
HIDDEN int hooks_are_late(void);
/* Before and after dlclose: forgets the functions that were not there at the start, since their object may go. */
HIDDEN void hooks_forget_late(void);

/*
 * 1: the real function goes through an inner entry point of libc that a code hook sends to a wrapper of its own, which
 * records the call. Written by the constructor, read-only afterwards.
 */
extern HIDDEN uint8_t hook_deferred[HOOK_COUNT];

/*
 * Where a code hook is placed and another library defines the name before libc (a user's preload, jemalloc's
 * pthread_create): that definition. The exported name calls it untraced; what of it reaches libc is traced there.
 * Written once, by the constructor.
 */
extern HIDDEN void *hook_passed_on[HOOK_COUNT];

static inline __attribute__((always_inline)) void *hook_real(uint32_t id)
{
	void *function = __atomic_load_n(&hook_real_functions[id], __ATOMIC_RELAXED);
	return __builtin_expect(function != 0, 1) ? function : hook_resolve(id);
}

/*
 * REAL(read)(fd, buffer, length): the function that the program would have reached without us. The argument is the
 * row's id: that of an older symbol version is REAL(posix_spawn_2_2_5).
 */
#define REAL(id) ((hook_type_##id)hook_real(HOOK_##id))
/* The same where it has been found already, else NULL: for entries that should not spill a register. */
#define HOOK_READY(id) ((hook_type_##id)__atomic_load_n(&hook_real_functions[HOOK_##id], __ATOMIC_RELAXED))

/*
 * Wrappers written by hand define hook_NAME(), declared in hook_ids.h: the assembler name there is the exported one
 * (a row with symbol versions is exported through a generated stub instead). So a file may include the system's
 * headers, and its wrappers meet neither their macros nor the compiler's builtins.
 */

/* Exported, interposing. */
#define EXPORT __attribute__((visibility("default")))

struct hook_call {
	const struct hook *hook;
	struct thread *self;
	uintptr_t argument[8];
	uint64_t entry;	  /* tick; 0 until a family asks */
	uint64_t out;	  /* tick of running_out; set there, as are timeout_ns and out_ending */
	int64_t timeout_ns;
	uint64_t scratch[6]; /* the family's own */
	uintptr_t caller; /* return address of the wrapper */
	intptr_t result;  /* in leave, where the family keeps it */
	int error;	  /* in leave: errno of a failed call, else 0 */
	int saved_errno;
	uint8_t gate;	  /* enum lorg_gate bits in force at the entry */
	uint8_t out_ending; /* of running_out: the thread or program was ending */
	uint8_t monitored;   /* 1: monitor_begin and monitor_end are to be called */
	uint64_t monitor_tick; /* of its entry, where that is asked for */
	/* monitor.c, where the lengths of queues are asked for: of the queue that the call sends to, and that it receives from. */
	struct hook_queue {
		uint64_t added; /* what was counted before the call, */
		uint64_t since; /* as part of that count */
		uint32_t channel, began;
		uint8_t known;	/* 1: it was looked up */
		uint8_t counts; /* 1: the count has to be put right */
	} queue[2];
	uint8_t stops_count; /* 1: some call's time does not go on while it waits */
	/* hooks/token.h */
	union {
		struct {
			uint8_t tokens; /* 1: sequence tokens are to be looked at */
			uint8_t token_told;
			uint16_t token_place;
			uint32_t token_channel;
		};
		uint64_t token_word;
	};
	/* message.c: the first bytes of what is sent, taken before the call: afterwards they may be anybody's. */
	uint32_t taken_length;
	uint64_t taken_requested;
	char taken[LORG_MESSAGE_LENGTH];
};

/*
 * The gate byte of a hook: 0 is off. hook_gates is NULL until the constructor has attached. It must be right even
 * before liblorg.so has been relocated: a library that is relocated first may call us from an IFUNC resolver.
 */
static inline uint8_t hook_gate(uint32_t id)
{
	const uint8_t *gates = __atomic_load_n(&hook_gates, __ATOMIC_RELAXED);
	if (__builtin_expect(gates == 0, 0))
		return 0;
	return __atomic_load_n(&gates[id], __ATOMIC_RELAXED);
}

/* The trace(3) flags (LORG_TRACE_* of match.h) of the calling thread's process. Relaxed: who changes them is told at once. */
static inline uint32_t process_flags(const struct thread *self)
{
	return __atomic_load_n(&self->process->session[0].flags, __ATOMIC_RELAXED);
}

/* What a gate leaves where the process's flags say what is recorded. */
HIDDEN uint8_t gate_by_flags(const struct thread *self, uint8_t gate);
/* The same of the halves of the messages. */
HIDDEN int flags_want(uint32_t mask);

/* mask: LORG_MASK_SEND or LORG_MASK_RECEIVE: whether that half of the messages is asked for. */
static inline int session_wants(uint32_t mask)
{
	return (the_arena.gate_mask & mask) && (__builtin_expect(!this_thread.flags_matter, 1) || flags_want(mask));
}

/* Families that follow the program's descriptors, and those that follow its threads, are entered whoever calls. */
static inline int keeps_what_it_knows(const struct hook *hook)
{
	return hook->family == FAMILY_port || (hook->gate_mask & LORG_MASK_LIFE);
}

/* True where a hook that keeps what later sessions need has something to do. */
static inline int hook_lives(uint32_t id)
{
	return hook_gate(id) || arena_is_live();
}

/* The gate of a hook for the calling thread: what its process's flags leave of it. For hooks with code of their own. */
static inline uint8_t hook_gate_of(const struct thread *self, uint32_t id)
{
	uint8_t gate = hook_gate(id);
	return __builtin_expect(!self->flags_matter, 1) ? gate : gate_by_flags(self, gate);
}

/* Around each call while system events are asked for (the_arena.monitors); preload/hooks/monitor.c. */
HIDDEN void monitor_begin(struct hook_call *call);
HIDDEN void monitor_end(const struct hook_call *call);
static inline void monitored_begin(struct hook_call *call)
{
	if (__builtin_expect(call->monitored, 0))
		monitor_begin(call);
}
static inline void monitored_end(const struct hook_call *call)
{
	if (__builtin_expect(call->monitored, 0))
		monitor_end(call);
}

/* 1: the process has a sequence token, or messages of this node may bring one. */
static inline uint8_t tokens_matter(const struct thread *self)
{
	if (!the_arena.live || !the_arena.node)
		return 0;
	return (self->process->token.flags & LORG_TOKEN_PRESENT) || __atomic_load_n(&the_arena.node->carried_next, __ATOMIC_RELAXED);
}

/* What a family needs before the real call. Returns 0: forward only. */
static inline int hook_begin(struct hook_call *call, uint32_t id)
{
	uint8_t gate = hook_gate(id);
	if (__builtin_expect(gate == 0, 1))
		return 0;
	struct thread *self = thread_self();
	uint8_t tokens = 0;
	if (!self || hook_deferred[id])
		return 0;
	if (__builtin_expect(self->guarded != 0, 0)) {
		if (self->busy)
			return 0;
		/* A gate that is shut so is entered all the same: what the family knows of descriptors must stay true. */
		gate = gate_by_flags(self, gate);
		if (!gate && the_arena.live && !the_arena.monitors && !keeps_what_it_knows(&hook_table[id]))
			return 0;
		tokens = tokens_matter(self);
	}
	call->hook = &hook_table[id];
	call->self = self;
	call->gate = gate;
	call->entry = 0;
	call->error = 0;
	call->monitored = __builtin_expect(the_arena.monitors != 0, 0);
	call->token_word = tokens;
	return 1;
}

/*
 * After the real call, which may have taken long: true if the thread still has its place in the arena, which may be
 * elsewhere by now (make_way.h). Every F_leave begins with it.
 */
static inline int hook_returned(const struct hook_call *call)
{
	(void)call;
	return __builtin_expect(*fork_guard != 0, 1) || thread_claim() != 0;
}

/*
 * The calling thread's errno, without a call. Before hooks_resolve() it is a word that no one reads: hooks are off
 * until then. hook_errno_offset: from the thread pointer to errno, the same in all threads (libc's TLS is static).
 */
extern HIDDEN intptr_t hook_errno_offset;
extern HIDDEN int hook_errno_unknown;

static inline int *hook_errno(void)
{
	intptr_t offset = hook_errno_offset;
	uintptr_t thread_pointer;
	if (__builtin_expect(offset == 0, 0))
		return &hook_errno_unknown;
	__asm__("mov %%fs:0, %0" : "=r"(thread_pointer));
	return (int *)(thread_pointer + (uintptr_t)offset);
}

/* The descriptor of a stdio stream, -1 if it has none. */
static inline intptr_t stream_descriptor(FILE *stream)
{
	return stream ? stream->_fileno : -1;
}

/* Each family's two halves; each in preload/hooks/FAMILY.c. */
HIDDEN void message_enter(struct hook_call *call);
HIDDEN void message_leave(struct hook_call *call, intptr_t result);
HIDDEN void port_enter(struct hook_call *call);
HIDDEN void port_leave(struct hook_call *call, intptr_t result);
HIDDEN void wait_enter(struct hook_call *call);
HIDDEN void wait_leave(struct hook_call *call, intptr_t result);
HIDDEN void lock_enter(struct hook_call *call);
HIDDEN void lock_leave(struct hook_call *call, intptr_t result);
HIDDEN void spawn_enter(struct hook_call *call);
HIDDEN void spawn_leave(struct hook_call *call, intptr_t result);
HIDDEN void signal_enter(struct hook_call *call);
HIDDEN void signal_leave(struct hook_call *call, intptr_t result);
HIDDEN void allocator_enter(struct hook_call *call);
HIDDEN void allocator_leave(struct hook_call *call, intptr_t result);
HIDDEN void settings_enter(struct hook_call *call);
HIDDEN void settings_leave(struct hook_call *call, intptr_t result);

/* out and in around a wait: used by every family that blocks. object as in the event. */
HIDDEN void running_out(struct hook_call *call, uint64_t object, int64_t timeout_ns);
HIDDEN void running_in(struct hook_call *call, uint64_t object, intptr_t result);

/* ---- ports: the table of this program's descriptors; preload/hooks/port_table.c ---- */

/* One descriptor. Owner: port_table.c; others read it. Never written in a vfork child, which gets copies. */
struct port {
	/* What a call on it takes with it; in this order (message.c). */
	uint32_t channel_in, channel_out;
	uint32_t generation; /* times the number was bound before */
	uint8_t driver;	     /* enum lorg_driver */
	uint8_t kind;	     /* enum port_kind */
	uint8_t stream;	     /* 1: bytes without borders; a receive of 0 bytes is its end */
	uint8_t nonblocking; /* 1: O_NONBLOCK, as far as seen */

	uint32_t told_image; /* stamp of the image that has written its OPEN event, 0: none */
	uint8_t known;	     /* 1: looked at since it was bound; stored last (release) */
	uint8_t pending;     /* not 0: the channels are found at the first message */
	uint8_t access;	     /* O_RDONLY, O_WRONLY, O_RDWR */
	uint64_t inode;
	uint64_t device;	   /* st_dev; of a tty st_rdev */
	uint32_t description;	   /* number shared by duplicates made here, 0: none seen */
	uint32_t receive_limit_ms; /* SO_RCVTIMEO, 0: none */
	uint8_t connecting;	   /* 1: connect has begun and not waited for its end */
	uint8_t doubted;	   /* 1: not known any more; the number may have been bound to something else meanwhile */
	uint8_t reserved[2];
	uint32_t registered; /* stamp of the image that has bound it to a name, 0: none */
};

enum port_kind {
	PORT_KIND_PORT,
	PORT_KIND_NONE, /* regular file, directory, epoll, timerfd, ... */
	PORT_KIND_SIGNALFD,
	PORT_KIND_PIDFD, /* `inode` is the pid that it stands for */
};

/* The port of a descriptor, looked at (fstat) at first use and told with an inherited OPEN. NULL: no port (regular file, closed, too large). */
HIDDEN struct port *port_of(struct thread *self, int fd);
/* fd has just been made by `hook`; from: the descriptor it duplicates or -1. Writes OPEN when gated. */
HIDDEN void port_opened(struct hook_call *call, int fd, int from);
HIDDEN void port_closed(struct thread *self, int fd, enum lorg_reason reason, int status, uint32_t hook);
/* exec: close-on-exec ports are closed. */
HIDDEN void ports_exec(struct thread *self);

#endif
