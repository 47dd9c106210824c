/* SPDX-License-Identifier: MIT */
/*
 * match.h: match specifications in hooks: where they are evaluated, what they
 * see of the thread they run in, and what their actions do to it.
 *
 * A run is one hook's evaluations, on its own stack and in one of the thread's
 * two pieces of scratch memory (chunks of the arena, taken at first use, kept
 * until the thread ends): the second is for a signal handler that comes into
 * the middle of an evaluation. A third in each other is left out and counted.
 *
 * All functions are async-signal-safe. Vector registers and MXCSR are the
 * program's: they are put aside before the first function of terms that may
 * change them, and are as they were when an evaluation has ended.
 */
#ifndef LORG_PRELOAD_CALL_MATCH_H
#define LORG_PRELOAD_CALL_MATCH_H

#include "preload/call/inner.h"
#include "preload/match/evaluate.h"

enum {
	MATCH_DESK_BYTES = 4096, /* of the scratch memory: where strings are read to, and texts put together */
	MATCH_STACK = LORG_MATCH_STACKTRACE_DEPTH,
};

struct matched;

struct match_run {
	uint8_t begun;	  /* 1: match_end has to follow */
	uint8_t saved;	  /* 1: vector registers are in `look` */
	uint8_t level;	  /* which of the two scratch chunks */
	uint8_t told;	  /* of the last evaluation: the event is to be written */
	uint32_t control_word; /* MXCSR, while saved */
	uint32_t process_index; /* whose scratch memory it is */
	uint32_t session; /* slot whose specification it is: its actions change what this one asks for. match_begin sets 0 */
	struct thread *self;
	uint64_t *memory;
	struct event_bytes message; /* of the last evaluation: what {message, V} adds, encoded as in events */
	struct lorg_terms terms;
	struct lorg_match_evaluation evaluation; /* owner: the run */
	lorg_term arguments[LORG_CAPTURES];
	/* Of messages. */
	const struct matched *matched; /* hooks/message_match.c */
	/* Of calls. */
	const struct call_registers *registers;
	uintptr_t program_frame; /* the caller's frame pointer, if it has any */
	uint64_t caller;
	struct value_look look;
};

/* Before the first match_call. */
static inline void match_run_registers(struct match_run *run, const struct call_registers *registers, uintptr_t program_frame)
{
	run->registers = registers;
	run->program_frame = program_frame;
}

/*
 * Evaluates the program of a session (slot) at that offset of the target's control; declared: as in the setting. 1: a clause matched; run->told, run->message and
 * run->evaluation say the rest. 0: none did, or it could not be evaluated.
 */
HIDDEN int match_call(struct match_run *run, struct thread *self, const struct call_target *target, uint32_t program, uint64_t caller,
		       uint32_t session, uint32_t declared);

/* ---- for runs of other hooks -------------------------------------------- */

/* 0: there is no scratch memory to be had, which is counted. */
HIDDEN int match_begin(struct match_run *run, struct thread *self);
HIDDEN void match_end(struct match_run *run);
/* The program at `memory`, of at most `size` bytes, verified. NULL: it makes no sense. Between match_begin and match_end. */
HIDDEN const struct lorg_match_program *match_program(struct match_run *run, const void *memory, uint64_t size,
						       struct lorg_match_program *room);
/* Arguments are those of the run; may be evaluated several times. Returns as match_call. */
HIDDEN int match_evaluate(struct match_run *run, const struct lorg_match_program *program, const struct lorg_match_context *context,
			  uint32_t argument_count);
/* What all contexts have: of struct lorg_match_context. */
HIDDEN void match_prepare(struct lorg_match_evaluation *evaluation);
HIDDEN lorg_term match_self(struct lorg_match_evaluation *evaluation);
HIDDEN lorg_term match_node(struct lorg_match_evaluation *evaluation, lorg_term of);
HIDDEN uint32_t match_get_tcw(struct lorg_match_evaluation *evaluation);
HIDDEN uint32_t match_set_tcw(struct lorg_match_evaluation *evaluation, uint32_t value);
HIDDEN void match_silent(struct lorg_match_evaluation *evaluation, bool on);
HIDDEN bool match_trace(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer,
			bool *changed);
HIDDEN lorg_term match_set_seq_token(struct lorg_match_evaluation *evaluation, enum lorg_token_item item, lorg_term value);
HIDDEN lorg_term match_get_seq_token(struct lorg_match_evaluation *evaluation);
HIDDEN bool match_is_seq_trace(struct lorg_match_evaluation *evaluation);
HIDDEN lorg_term match_process_dump(struct lorg_match_evaluation *evaluation);
HIDDEN void match_display(struct lorg_match_evaluation *evaluation, lorg_term term);

/*
 * Programs that this image has verified. Key: where it lies, and its number. Taken with a CAS of `memory`; `ready` is stored
 * last (release), and all stays as it is then. A fork child has its parent's, which lie where they were.
 */
struct match_known {
	const void *memory;
	uint32_t ready;
	uint32_t number;
	struct lorg_match_program program;
};
enum { MATCH_KNOWN_BITS = 10, MATCH_KNOWN = 1 << MATCH_KNOWN_BITS, MATCH_PROBES = 16 };
extern HIDDEN struct match_known match_known[MATCH_KNOWN];

/* The number of the program that stands there just now. */
static inline uint32_t match_number(const void *memory)
{
	return __atomic_load_n(&((const struct lorg_match_head *)memory)->number, __ATOMIC_RELAXED);
}

static inline struct match_known *match_known_place(const void *memory, uint32_t number, uint32_t probe)
{
	uint32_t hash = ((uint32_t)((uintptr_t)memory >> 3) + number * 0x85ebca6bu) * 0x9e3779b1u;
	return &match_known[((hash >> (32 - MATCH_KNOWN_BITS)) + probe) % MATCH_KNOWN];
}

/* NULL: not verified yet. */
static inline const struct lorg_match_program *match_known_program(const void *memory)
{
	const uint32_t number = match_number(memory);
	for (uint32_t i = 0; i < MATCH_PROBES; i++) {
		const struct match_known *place = match_known_place(memory, number, i);
		const void *seen = __atomic_load_n(&place->memory, __ATOMIC_RELAXED);
		/* Acquire: pairs with the release when it was made ready. */
		if (!seen)
			break;
		if (seen == memory && __atomic_load_n(&place->ready, __ATOMIC_ACQUIRE) && place->number == number)
			return &place->program;
	}
	return 0;
}

static inline struct match_run *match_run_of(const struct lorg_match_evaluation *evaluation)
{
	return evaluation->owner;
}

static inline uint8_t *match_desk(const struct match_run *run)
{
	return (uint8_t *)(run->memory + LORG_MATCH_SCRATCH_WORDS) - MATCH_DESK_BYTES;
}

/*
 * Addresses of the calls that are open, the innermost first, at most MATCH_STACK; each is in the call instruction.
 * stack: from where on. Returns how many.
 */
HIDDEN uint32_t match_stack(const struct match_run *run, uintptr_t stack, uintptr_t frame, uint64_t addresses[MATCH_STACK]);

/* A jump, or an exception, goes to where the stack pointer is `to`: evaluations whose frames lie below are over. */
HIDDEN void match_left(struct thread *self, uintptr_t to);

#endif
