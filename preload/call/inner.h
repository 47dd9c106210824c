/* SPDX-License-Identifier: MIT */
/* inner.h: what the files of preload/call share among themselves. */
#ifndef LORG_PRELOAD_CALL_INNER_H
#define LORG_PRELOAD_CALL_INNER_H

#include "preload/call/call.h"
#include "preload/core/event.h"
#include "preload/core/flags.h"
#include "preload/term/external.h"

/* The program's registers, as entry.S pushes them on the long way. */
struct call_registers {
	uint64_t rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, flags;
	/*
	 * At the entry: the target, its lowest bit set where the entry is recorded already; replaced by where to go on.
	 * At the return: the slot: 0, or the chunk that is to be handed over because the return is recorded already;
	 * replaced by the return address.
	 */
	uint64_t word;
	uint64_t slot[]; /* at the entry: the return address, then stack arguments; at the return: what the caller has there */
};

enum call_frame_state { CALL_FRAME_FREE = 0, CALL_FRAME_OPEN = 1, CALL_FRAME_LEFT = 2 };

/* Which sessions are told of an open call's end, by their slots. */
enum call_asked_set { ASKED_RETURN, ASKED_EXCEPTION, ASKED_RETURN_TO, ASKED_META_RETURN, ASKED_META_EXCEPTION, ASKED_SETS };
struct call_asked {
	uint64_t set[ASKED_SETS][LORG_SESSIONS / 64];
};

/* What an open call keeps beside its target. Owner: the thread that entered; the one that returns frees it. */
struct call_frame {
	struct call_target *target;
	uint64_t below;	 /* of a tail call: the owner word before it; 0: none */
	uintptr_t slot;	 /* whose it is: a frame that was given to another slot says so */
	uint64_t entered; /* tick */
	uint32_t outer_timed, outer_memory; /* of the thread: whose time and allocations were counted; put back at the return */
	struct call_asked *asked; /* by sessions of a lorgd; NULL: by none */
	uint8_t gate;	 /* enum lorg_call_gate bits at its entry */
	uint8_t state;	 /* atomic; enum call_frame_state; taken with a CAS from FREE or LEFT */
	uint8_t delayed : 1; /* told at the return, when it has lasted long enough */
	uint8_t no_exception : 1; /* exceptions are not told */
	uint8_t has_message : 1; /* the last of `arguments` is what {message, V} has added */
	uint8_t limited : 1; /* events of its return are spent from the function's budget */
	uint8_t outer_waits : 1; /* the thread was in a wait, and its handler made the call */
	uint8_t arguments; /* place + 1 of its arguments, as terms (value.c); 0: none */
	uint32_t depth;	 /* of the thread, put back at the return */
	uint64_t least_ticks; /* of `delayed` */
};
_Static_assert(sizeof(struct call_frame) == 64, "call_frame");
_Static_assert(LORG_CALL_RETURN_TO == 128, "gate");

enum {
	CALL_FRAME_BLOCKS = 14,	     /* each twice as large as the one before */
	CALL_FRAMES_FIRST = 512,     /* in the first block */
	CALL_THROWN = 4,	     /* exceptions on their way at once, one inside the cleanup of another */
	CALL_COUNTER_CHUNKS = 64,
	CALL_VALUE_BYTES = 4096,	     /* of the terms of one call */
	CALL_ARGUMENTS = 32, CALL_ARGUMENT_BYTES = 512, /* kept of delayed calls */
};

/* An exception that is on its way. */
struct call_thrown {
	uintptr_t stack; /* open calls above it are not looked at yet */
	const void *object;
	const void *type; /* struct type_information of hooks/exception.c */
};

/* What a thread keeps for its calls. Process-private memory, never unmapped: frames of coroutines may outlive the thread. */
struct call_thread {
	struct call_thread *next;	/* in the list of all */
	uint64_t owner;			/* atomic; birth of the thread's entry, or OWNER_SETTLING; frame.c */
	uint64_t owner_image;		/* of the image whose thread it is */
	uint32_t owner_index;
	uint32_t owner_tid;		/* 0: not known */
	uint32_t timed, memory;		/* functions whose time and allocations are counted just now, as in the process entry; 0: none */
	uintptr_t wait_stack;		/* where the wait stands that time is not counted for */
	uint32_t depth;			/* traced calls open in each other */
	uint32_t thrown_count;
	struct {
		uint32_t timed, memory, depth, thrown_count;
		uintptr_t wait_stack;
	} parent;			/* while a vfork child is on this storage */
	struct call_thrown thrown[CALL_THROWN];
	uintptr_t stack_high;		/* end of the thread's own stack; 0: not known */
	uintptr_t alternate_low, alternate_high; /* of its signal stack; 0: none seen */
	uint32_t frames_fresh, frames_hint;
	struct call_frame *blocks[CALL_FRAME_BLOCKS];
	struct call_asked *asked[CALL_FRAME_BLOCKS]; /* one a frame of the block; NULL: no session has asked yet */
	struct lorg_function_counter *counters[2][CALL_COUNTER_CHUNKS]; /* directories, the vfork child's last; all set, or none */
	uint8_t value_buffer[CALL_VALUE_BYTES];
	uint8_t value_busy;		/* 1: a value is being written, and a handler must not use `value_buffer` */
	uint8_t arguments_used[CALL_ARGUMENTS];
	uint8_t arguments[CALL_ARGUMENTS][CALL_ARGUMENT_BYTES];
	uint16_t arguments_length[CALL_ARGUMENTS];
	struct call_frame first[CALL_FRAMES_FIRST];
};

/* ---- words of a slot --------------------------------------------------- */

enum { OWNER_FRAME = 1, OWNER_LEFT = 2, OWNER_BITS = 7 };

static inline uint64_t *return_word(uintptr_t slot)
{
	return (uint64_t *)(slot ^ CALL_SHADOW_RETURN);
}

static inline uint64_t *owner_word(uintptr_t slot)
{
	return (uint64_t *)(slot ^ CALL_SHADOW_OWNER);
}

static inline struct call_frame *owner_frame(uint64_t owner)
{
	return owner & OWNER_FRAME ? (struct call_frame *)(owner & ~(uint64_t)OWNER_BITS) : 0;
}

static inline struct call_target *owner_target(uint64_t owner)
{
	return (struct call_target *)(owner & ~(uint64_t)OWNER_BITS);
}

/* ---- shadow.c ---------------------------------------------------------- */

/* True if the slot has a shadow; makes one where it may. */
HIDDEN int shadow_of(struct thread *self, uintptr_t slot);
/* True if it has one already. */
HIDDEN int shadow_known(uintptr_t slot);

/* ---- frame.c ----------------------------------------------------------- */

/* The calling thread's, made at first use; NULL where there is no memory and none may be asked for. */
HIDDEN struct call_thread *call_thread_make(struct thread *self);
static inline struct call_thread *call_thread(struct thread *self)
{
	return __builtin_expect(self->call != 0, 1) ? self->call : call_thread_make(self);
}
HIDDEN struct call_frame *frame_take(struct call_thread *call, uintptr_t slot);
HIDDEN void frame_free(struct call_thread *call, struct call_frame *frame);
/* Room for what is asked of one of the thread's frames; NULL: no memory. */
HIDDEN struct call_asked *frame_asked(struct call_thread *call, const struct call_frame *frame);
/* True if the frame is (still) that slot's. */
static inline int frame_is_of(const struct call_frame *frame, uintptr_t slot)
{
	return frame->slot == slot && __atomic_load_n(&frame->state, __ATOMIC_RELAXED) != CALL_FRAME_FREE;
}

/* ---- count.c ----------------------------------------------------------- */

/* The thread's counter of a function, NULL: no room. */
HIDDEN struct lorg_function_counter *counter_of(struct thread *self, uint32_t function);
HIDDEN void count_call(struct thread *self, const struct call_target *target);
HIDDEN void count_enter(struct thread *self, struct call_thread *call, struct call_frame *frame);
HIDDEN void count_leave(struct thread *self, struct call_thread *call, struct call_frame *frame, uint64_t now);
/* All that lies below `to` has been left by a jump: a wait, too. */
HIDDEN void count_jumped(struct thread *self, struct call_thread *call, uintptr_t to);
/* What is counted goes on in the entry that the thread has got, from now on and from no words. */
HIDDEN void count_go_on(struct thread *self, struct call_thread *call);

/* ---- filter.c ---------------------------------------------------------- */

struct match_run;

/* Of a function: two a session. */
enum { SETTINGS_LOOKED_AT = 256 };

static inline struct lorg_call_setting *call_setting_at(const struct call_settings *settings, uint32_t number)
{
	return number && number <= settings->setting_count ? settings->setting + (number - 1) : 0;
}

/* A place for a caller to come: those behind it are free, too. */
static inline int setting_is_free(const struct lorg_call_setting *setting)
{
	return setting->caller_high == LORG_CALLER_FREE;
}

/* Whether it asks for messages of calls that come this way; other settings are those of counters. */
static inline int setting_may_tell(const struct lorg_call_setting *setting, const struct call_target *target)
{
	return (setting->kind & target->kind) && (setting->gate & LORG_CALL_ENTRY);
}

/* True where its calls are told to sessions of a lorgd, each by itself; else there is one, in slot 0. */
static inline int call_has_sessions(const struct call_target *target)
{
	const struct call_settings *settings = target->settings;
	const struct lorg_call_setting *first = settings ? call_setting_at(settings, target->control->setting) : 0;
	return first && first->session;
}

/* The calling thread's flags in a session; slot: of a setting, which others may have written. */
static inline uint32_t call_session_flags(const struct thread *self, uint32_t slot)
{
	return slot < LORG_SESSIONS ? session_flags(self->process, slot) : 0;
}

/* What is told of a call: it is the bits of its gate that are left. */
struct call_verdict {
	uint32_t gate;	 /* of ENTRY, RETURN, RETURN_TO; all others stay as they are */
	uint8_t delayed; /* 1: only when it has lasted long enough */
	uint8_t no_exception; /* 1: with RETURN: but no exceptions */
	uint8_t no_arguments; /* 1: flag arity */
	uint8_t limited; /* 1: what is told at the return is spent from the function's budget: filter_spend() */
	uint8_t counts_depth; /* 1: a setting looks at the depth: its return has to be seen */
	uint64_t least_ticks;
	struct event_bytes message; /* what {message, V} adds: a term, in the run's memory */
};
/* run: begun by the first program that is evaluated; match_end has to follow, after the call was told. */
HIDDEN struct call_verdict filter_call(struct thread *self, const struct call_thread *call, const struct call_target *target,
				       uint32_t gate, uint64_t caller, struct match_run *run);

/* Takes `count` events of what one session may still be told of the function; 0: there are none left. */
HIDDEN int filter_spend_one(struct thread *self, const struct call_target *target, struct lorg_call_setting *setting, uint32_t count);
/* Takes `count` events of what the function may still tell; 0: there are none left. */
HIDDEN int filter_spend(struct thread *self, const struct call_target *target, uint32_t count);

/* ---- sessions.c -------------------------------------------------------- */

/* A call that sessions may ask for: what telling it comes to. */
struct call_told {
	uint32_t gate;	  /* LORG_CALL_ENTRY: somebody was told; LORG_CALL_RETURN, LORG_CALL_RETURN_TO: somebody will be */
	uint64_t tick;	  /* of the first event; 0: none */
	uint8_t counts_depth; /* as in struct call_verdict */
	struct call_asked asked;
};
/* run: begun by the first program that is evaluated; match_end has to follow. recorded 1: the lean entry is written already. */
HIDDEN void sessions_tell_entry(struct thread *self, const struct call_thread *call, const struct call_target *target,
				const struct call_registers *registers, uint64_t caller, int recorded, struct match_run *run,
				struct call_told *told);
HIDDEN void sessions_tell_return(struct thread *self, const struct call_frame *frame, const struct call_registers *registers);
/* type, what: of the exception. */
HIDDEN void sessions_tell_left(struct thread *self, const struct call_frame *frame, uint32_t kind, struct event_bytes type,
			       struct event_bytes what);
/* Those that want to know where a call returns to are added to `sessions`, or (any 0) are all that is in it. Returns 1. */
static inline int sessions_add_return_to(uint64_t sessions[LORG_SESSIONS / 64], const struct call_frame *frame, int any)
{
	for (int i = 0; i < LORG_SESSIONS / 64; i++)
		sessions[i] = (any ? sessions[i] : 0) | frame->asked->set[ASKED_RETURN_TO][i];
	return 1;
}
HIDDEN void sessions_tell_return_to(struct thread *self, const uint64_t sessions[LORG_SESSIONS / 64], uint64_t address);

/* ---- value.c ----------------------------------------------------------- */

/*
 * CALL with its arguments, or without, since no values are asked for or the process has the flag arity; and what a match
 * specification has added. session_kind: whose it is, as in the event. Returns its tick, 0: lost.
 */
HIDDEN uint64_t value_write_call(struct thread *self, const struct call_target *target, const struct call_registers *registers,
				 uint64_t caller, uint32_t session_kind, int with_arguments, int arity, struct event_bytes message);
/* Keeps the arguments, if values are asked for, and the message until the return. */
HIDDEN void value_keep_arguments(struct call_thread *call, struct call_frame *frame, const struct call_registers *registers,
				 struct event_bytes message);
HIDDEN void value_drop_arguments(struct call_thread *call, struct call_frame *frame);
/* One event for each of session_kinds. */
HIDDEN void value_write_return(struct thread *self, const struct call_frame *frame, const struct call_registers *registers,
			       const uint32_t *session_kinds, uint32_t count);
/* registers NULL: it was left without a return. */
HIDDEN void value_write_done(struct thread *self, struct call_thread *call, const struct call_frame *frame,
			     const struct call_registers *registers, uint64_t caller);

/* A call as a match specification sees it. vectors: to be filled before anything but the simple arguments is asked for. */
struct value_look {
	struct thread *self;
	const struct call_target *target;
	uint32_t declared; /* of the setting */
	uintptr_t stack; /* first stack argument */
	uint64_t integers[6];
	uint8_t vectors[256];
};
HIDDEN void value_look(struct value_look *look, struct thread *self, const struct call_target *target,
		       const struct call_registers *registers);
/* How many arguments there are; those of `wanted` (bits) that need neither memory nor vector registers, the others LORG_NONE. */
HIDDEN uint32_t value_simple_arguments(const struct value_look *look, uint64_t wanted, lorg_term *arguments);
/* All of these: 0 where there is no such argument. */
HIDDEN int value_argument_word(const struct value_look *look, uint32_t index, uint64_t *word);
HIDDEN int value_string_argument(const struct value_look *look, uint32_t index, uint64_t *address);
HIDDEN int value_counted_argument(const struct value_look *look, uint32_t index, uint64_t *address, uint64_t *length);
HIDDEN int value_pointer_argument(const struct value_look *look, uint32_t index, uint64_t *address);
HIDDEN int value_put_argument(const struct value_look *look, uint32_t index, struct lorg_external *out);
/* As many bytes as can be read from there, without faulting. */
HIDDEN uint32_t value_read(const struct value_look *look, void *to, uint64_t from, uint32_t length);

/* ---- caller.c ---------------------------------------------------------- */

/*
 * Whose call it is that returns to `address`, which stands in `slot`: where that lies in liblorg.so, the code that has
 * called the wrapper. frame: the frame pointer there. 0: not found.
 */
HIDDEN uint64_t caller_outside(uint64_t address, uintptr_t slot, uintptr_t frame);
HIDDEN int address_is_own(uint64_t address);

/* ---- return.c ---------------------------------------------------------- */

/* An entry at `slot` while exceptions are on their way: those calls that were left are told first. */
HIDDEN void left_before(struct thread *self, struct call_thread *call, uintptr_t slot);
/* A call at `slot` has returned: exceptions thrown below it have been caught. */
HIDDEN void left_settled(struct call_thread *call, uintptr_t slot);

/* Accounts of a frame that is left or returns: time, memory, depth. */
HIDDEN void frame_close(struct thread *self, struct call_thread *call, struct call_frame *frame, uint64_t now);

/* ---- entry.S ----------------------------------------------------------- */

HIDDEN void call_vectors_save(uint8_t to[256]);
HIDDEN void call_vectors_restore(const uint8_t from[256]);
HIDDEN void call_x87_read(uint8_t to[16]);
extern HIDDEN char call_entry_only[], call_stub_begin[], call_stub_end[];

#endif
