/* SPDX-License-Identifier: MIT */
/*
 * evaluate.h: evaluates verified programs of match specifications.
 *
 * Async-signal-safe, and reentrant with another struct lorg_match_evaluation and other scratch memory: no allocation, no
 * lock, no system call of its own, no recursion. Its own state takes less than 1 KiB of stack, the terms' functions
 * included; stack, variables and the terms that it makes stand in the scratch memory of struct lorg_terms.
 *
 * How much it may take is in struct lorg_terms: scratch_words, and steps (set to LORG_MATCH_STEPS before each evaluation
 * inside a traced program). A call that needs more fails as on a bad argument, and is counted in `exceeded`. Both may be
 * used up afterwards: whoever writes the value down sees to steps of its own.
 */
#ifndef LORG_PRELOAD_MATCH_EVALUATE_H
#define LORG_PRELOAD_MATCH_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include <lorg/match.h>

#include "preload/match/program.h"
#include "preload/term/term.h"

struct lorg_match_evaluation;

/*
 * What an evaluation asks of its surroundings, and does to them. Any may be NULL: what is said behind it holds then. Each
 * is called with the evaluation, whose `owner` is the caller's. Terms that they make belong into evaluation->terms; they
 * return LORG_NONE where the call is to fail, and then set terms->failure.
 */
struct lorg_match_context {
	/*
	 * Called once before the first use of a function that may change vector registers; `prepared` tells afterwards that it
	 * was. The evaluator itself uses general registers alone: a plain filter on integers and short atoms needs no more.
	 */
	void (*prepare)(struct lorg_match_evaluation *evaluation);
	/* The term of an argument that was LORG_NONE in `arguments`; asked once. NULL: such an argument is broken. */
	lorg_term (*argument)(struct lorg_match_evaluation *evaluation, uint32_t index);
	lorg_term (*self)(struct lorg_match_evaluation *evaluation); /* fails */
	/* The node of a pid, port or reference, or with LORG_NONE the own one. NULL: nonode@nohost. */
	lorg_term (*node)(struct lorg_match_evaluation *evaluation, lorg_term of);
	uint32_t (*get_tcw)(struct lorg_match_evaluation *evaluation);			/* 0 */
	uint32_t (*set_tcw)(struct lorg_match_evaluation *evaluation, uint32_t value); /* returns the one before; 0 */
	void (*silent)(struct lorg_match_evaluation *evaluation, bool on);
	/*
	 * Takes away and then sets flags (LORG_TRACE_*) of a process, as one change: a pid or a registered name, LORG_NONE for
	 * the current one. tracer: that of {tracer, T} among the flags to be set, else LORG_NONE. False: there is no such
	 * process, or no such tracer is allowed. NULL: the current process is known, no other.
	 */
	bool (*trace)(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer,
		      bool *changed);
	/* The value of the call. NULL: true. */
	lorg_term (*set_seq_token)(struct lorg_match_evaluation *evaluation, enum lorg_token_item item, lorg_term value);
	lorg_term (*get_seq_token)(struct lorg_match_evaluation *evaluation); /* [] */
	bool (*is_seq_trace)(struct lorg_match_evaluation *evaluation);	      /* false */
	lorg_term (*process_dump)(struct lorg_match_evaluation *evaluation);  /* <<>> */
	void (*display)(struct lorg_match_evaluation *evaluation, lorg_term term);
	/* The address that the call returns to; 0 where there is none, which is the atom undefined. NULL: 0. */
	uint64_t (*caller)(struct lorg_match_evaluation *evaluation);
	lorg_term (*caller_line)(struct lorg_match_evaluation *evaluation); /* undefined */
	/* At most depth entries. NULL: []. */
	lorg_term (*current_stacktrace)(struct lorg_match_evaluation *evaluation, uint32_t depth);
	/* The register or stack word of an argument; false if there is none. NULL: always. */
	bool (*word)(struct lorg_match_evaluation *evaluation, uint32_t index, uint64_t *value);
	/* Copies size bytes from an address of the program; false where that faults. NULL: always. */
	bool (*load)(struct lorg_match_evaluation *evaluation, uint64_t address, void *to, uint32_t size);
	/* The string that starts at an address, of at most `limit` bytes. NULL: fails. */
	lorg_term (*load_string)(struct lorg_match_evaluation *evaluation, uint64_t address, uint32_t limit);
};

enum {
	LORG_MATCH_STACKTRACE_DEPTH = 64, /* of current_stacktrace/0, and at most */
	LORG_MATCH_STRING_LIMIT = 4096,	  /* bytes that matching sees of a string in the program */
};

struct lorg_match_evaluation {
	/* to be set by the caller */
	const struct lorg_match_program *program;
	const struct lorg_match_context *context;
	void *owner;
	struct lorg_terms *terms; /* constant space: that of the program (lorg_match_evaluate sets it) */
	lorg_term *arguments;	  /* or for a table the one object. May be LORG_NONE and are then asked for */
	uint32_t argument_count;  /* 1 for a table */
	/* results */
	lorg_term value;	  /* table: what the body returns. trace: true, or what {message, _} said last */
	bool return_trace, exception_trace;
	bool prepared;
	bool broken;		  /* the program makes no sense: somebody wrote to it */
	uint32_t failed;	  /* calls that failed */
	uint32_t exceeded;	  /* those that did because of a limit */
	/* the evaluator's own */
	lorg_term object;	  /* '$_', once it was made */
};

/* Whether a clause matched. The results are set in any case; value is `false` where none did. */
bool lorg_match_evaluate(struct lorg_match_evaluation *evaluation);

#endif
