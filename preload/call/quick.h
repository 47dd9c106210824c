/* SPDX-License-Identifier: MIT */
/*
 * quick.h: what the stub asks first where a filter decides (entry.S): most calls that a filter does not want are known as
 * such without a clock, a frame, scratch memory, or the saving of all registers.
 */
#ifndef LORG_PRELOAD_CALL_QUICK_H
#define LORG_PRELOAD_CALL_QUICK_H

#include "preload/call/inner.h"
#include "preload/match/program.h"
#include "preload/term/term.h"

/* What the stub has saved, from the lowest address on. */
struct quick_registers {
	uint64_t r11, r10, r9, flags, r8, rdi, rsi, rdx, rcx, rax;
	uint64_t target;
	uint64_t slot; /* holds the return address */
};

enum { QUICK_LONG = LORG_CALL_FILTER };

/*
 * What is left of the gate: 0: nothing is told of the call; LORG_CALL_ENTRY, with or without LORG_CALL_RETURN: it is told
 * by the common records, and nothing more has to be kept; LORG_CALL_COUNT: it is counted, no more; QUICK_LONG: the long way
 * has to decide. Changes nothing.
 * first: the first of the target's settings that may want the call; NULL: not looked for. Called by the stub, with a stack
 * that is not aligned and a direction flag that may be set.
 */
HIDDEN uint32_t call_quick(struct call_target *target, const struct quick_registers *saved, uint32_t gate,
			   const struct lorg_call_setting *first);

/* A program's specification of a call has been opened: what call_quick() may know of the pair. From the long way. */
HIDDEN void call_quick_learn(const struct call_target *target, uint32_t declared, const void *memory,
			     const struct lorg_match_program *program);

static inline int64_t sign_extend(uint64_t value, uint32_t size)
{
	unsigned unused = size && size < 8 ? 64 - 8 * size : 0;
	return (int64_t)(value << unused) >> unused;
}

static inline uint64_t zero_extend(uint64_t value, uint32_t size)
{
	unsigned unused = size && size < 8 ? 64 - 8 * size : 0;
	return value << unused >> unused;
}

/* The term of what stands in a register, where that needs no memory and no vector register; LORG_NONE for all else. */
static inline lorg_term value_simple_term(const struct lorg_capture *capture, uint64_t word)
{
	int64_t value;
	if (capture->size > 8)
		return LORG_NONE;
	switch (capture->form) {
	case LORG_FORM_SIGNED:
	case LORG_FORM_DESCRIPTOR: value = sign_extend(word, capture->size); break;
	case LORG_FORM_UNSIGNED:
	case LORG_FORM_CHAR:
	case LORG_FORM_CODE:
	case LORG_FORM_POINTER: value = (int64_t)zero_extend(word, capture->size); break;
	case LORG_FORM_BOOL: return lorg_boolean((word & 0xff) != 0);
	default: return LORG_NONE;
	}
	if (value < 0 && capture->form != LORG_FORM_SIGNED && capture->form != LORG_FORM_DESCRIPTOR)
		return LORG_NONE;
	return lorg_fits_small(value) ? lorg_small(value) : LORG_NONE;
}

/* How many arguments a function of a plan has; declared: of a setting. */
static inline uint32_t value_count(const struct lorg_plan_function *function, uint32_t declared)
{
	uint32_t count = function->arity == LORG_ARITY_UNKNOWN && declared ? declared - 1 : function->argument_count;
	return count < LORG_CAPTURES ? count : LORG_CAPTURES;
}

/* The arguments of a function of a plan; *count 0: nothing is known of them. */
static inline const struct lorg_capture *value_captures(const struct call_target *target, uint32_t declared, uint32_t *count)
{
	const struct lorg_plan *plan = target->plan;
	const struct lorg_plan_function *function = target->plan_function;
	*count = !plan || !function ? 0 : value_count(function, declared);
	uint64_t at = *count ? (uint64_t)function->arguments - 1 : 0;
	if (!*count || !function->arguments || at > plan->captures_size ||
	    plan->captures_size - at < *count * sizeof(struct lorg_capture))
		*count = 0;
	return *count ? (const struct lorg_capture *)((const char *)plan + plan->captures + at) : 0;
}

#endif
