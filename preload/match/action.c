/* SPDX-License-Identifier: MIT */
/* action.c: what bodies do, and the functions that look at the surroundings. */
#include "preload/match/call.h"

#include "preload/match/functions.h"

/* In the order of the bits LORG_TRACE_*. */
static const char flag_names[][28] = {
	"send", "receive", "procs", "ports", "call", "silent", "return_to", "arity", "running", "running_procs", "running_ports",
	"exiting", "garbage_collection", "timestamp", "monotonic_timestamp", "strict_monotonic_timestamp", "set_on_spawn",
	"set_on_first_spawn", "set_on_link", "set_on_first_link",
};
enum { FLAGS = sizeof flag_names / sizeof *flag_names };

/* In the order of enum lorg_token_item. */
static const char token_items[LORG_TOKEN_ITEMS][28] = {
	"label", "serial", "send", "receive", "print", "timestamp", "monotonic_timestamp", "strict_monotonic_timestamp",
};

uint32_t lorg_match_flag_of(const struct lorg_terms *terms, lorg_term atom)
{
	if (!lorg_is_atom(atom))
		return 0;
	for (uint32_t i = 0; i < FLAGS; i++)
		if (lorg_atom_is(terms, atom, flag_names[i]))
			return UINT32_C(1) << i;
	return lorg_atom_is(terms, atom, "all") ? LORG_TRACE_ALL : 0;
}

/* {tracer, T} */
static bool tracer_of(const struct lorg_terms *terms, lorg_term term, lorg_term *tracer)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	if (!elements || arity != 2)
		return false;
	lorg_term tag = elements[0], value = elements[1];
	enum lorg_kind kind = lorg_term_kind(terms, value);
	if (!lorg_atom_is(terms, tag, "tracer") || (kind != LORG_KIND_PID && kind != LORG_KIND_PORT))
		return false;
	*tracer = value;
	return true;
}

static bool flags_of(struct lorg_terms *terms, lorg_term list, uint32_t *flags, lorg_term *tracer)
{
	lorg_term head, tail;
	*flags = 0;
	*tracer = LORG_NONE;
	while (lorg_get_cons(terms, list, &head, &tail)) {
		uint32_t flag = lorg_match_flag_of(terms, head);
		if (!lorg_terms_spend(terms, 1) || (!flag && !tracer_of(terms, head, tracer)))
			return false;
		*flags |= flag;
		list = tail;
	}
	return lorg_is_nil(list);
}

static bool may_be_process(const struct lorg_terms *terms, lorg_term term)
{
	enum lorg_kind kind = lorg_term_kind(terms, term);
	return kind == LORG_KIND_PID || kind == LORG_KIND_ATOM;
}

static bool change_flags(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer,
			 bool *changed)
{
	*changed = false;
	if (process != LORG_NONE && !may_be_process(evaluation->terms, process))
		return false;
	if (!evaluation->context->trace)
		return process == LORG_NONE;
	return evaluation->context->trace(evaluation, process, off, on, tracer, changed);
}

static lorg_term trace(struct lorg_match_evaluation *evaluation, const lorg_term *arguments, uint32_t count)
{
	struct lorg_terms *terms = evaluation->terms;
	lorg_term process = count == 3 ? arguments[0] : LORG_NONE, ignored, tracer;
	uint32_t off, on;
	bool changed;
	if (!flags_of(terms, arguments[count - 2], &off, &ignored) || !flags_of(terms, arguments[count - 1], &on, &tracer) ||
	    !change_flags(evaluation, process, off, on, tracer, &changed))
		return match_bad_argument(terms);
	return lorg_boolean(changed);
}

static lorg_term switch_flag(struct lorg_match_evaluation *evaluation, const lorg_term *arguments, uint32_t count, bool on)
{
	uint32_t flag = lorg_match_flag_of(evaluation->terms, arguments[count - 1]);
	bool changed;
	if (!flag || !change_flags(evaluation, count == 2 ? arguments[0] : LORG_NONE, on ? 0 : flag, on ? flag : 0, LORG_NONE, &changed))
		return match_bad_argument(evaluation->terms);
	return LORG_TRUE;
}

static lorg_term silent(struct lorg_match_evaluation *evaluation, lorg_term on)
{
	if (lorg_is_boolean(on) && evaluation->context->silent)
		evaluation->context->silent(evaluation, on == LORG_TRUE);
	return LORG_TRUE;
}

static lorg_term set_tcw(struct lorg_match_evaluation *evaluation, lorg_term word)
{
	uint64_t value;
	if (!lorg_get_unsigned(evaluation->terms, word, &value) || value > UINT32_MAX)
		return match_bad_argument(evaluation->terms);
	return lorg_small(evaluation->context->set_tcw ? evaluation->context->set_tcw(evaluation, (uint32_t)value) : 0);
}

static lorg_term set_seq_token(struct lorg_match_evaluation *evaluation, lorg_term item, lorg_term value)
{
	for (uint32_t i = 0; i < LORG_TOKEN_ITEMS; i++) {
		if (!lorg_is_atom(item) || !lorg_atom_is(evaluation->terms, item, token_items[i]))
			continue;
		if (evaluation->context->set_seq_token)
			return evaluation->context->set_seq_token(evaluation, (enum lorg_token_item)i, value);
		return LORG_TRUE;
	}
	return match_bad_argument(evaluation->terms);
}

static lorg_term display(struct lorg_match_evaluation *evaluation, lorg_term term)
{
	if (evaluation->context->display)
		evaluation->context->display(evaluation, term);
	return LORG_TRUE;
}

static lorg_term caller(struct lorg_match_evaluation *evaluation)
{
	uint64_t address = evaluation->context->caller ? evaluation->context->caller(evaluation) : 0;
	return address ? lorg_code_address(evaluation->terms, address) : match_undefined(evaluation->terms);
}

static lorg_term current_stacktrace(struct lorg_match_evaluation *evaluation, const lorg_term *arguments, uint32_t count)
{
	uint32_t depth = LORG_MATCH_STACKTRACE_DEPTH;
	if (count == 1) {
		if (!lorg_is_small(arguments[0]) || lorg_small_value(arguments[0]) < 0)
			return match_bad_argument(evaluation->terms);
		if (lorg_small_value(arguments[0]) < LORG_MATCH_STACKTRACE_DEPTH)
			depth = (uint32_t)lorg_small_value(arguments[0]);
	}
	return evaluation->context->current_stacktrace ? evaluation->context->current_stacktrace(evaluation, depth) : lorg_nil();
}

lorg_term match_call_action(struct lorg_match_evaluation *evaluation, uint32_t function, const lorg_term *arguments, uint32_t count)
{
	const struct lorg_match_context *context = evaluation->context;
	struct lorg_terms *terms = evaluation->terms;
	switch (function) {
	case LORG_MATCH_GET_TCW: return lorg_small(context->get_tcw ? context->get_tcw(evaluation) : 0);
	case LORG_MATCH_IS_SEQ_TRACE: return lorg_boolean(context->is_seq_trace && context->is_seq_trace(evaluation));
	case LORG_MATCH_MESSAGE: evaluation->value = arguments[0]; return LORG_TRUE;
	case LORG_MATCH_RETURN_TRACE: evaluation->return_trace = true; return LORG_TRUE;
	case LORG_MATCH_EXCEPTION_TRACE: evaluation->exception_trace = true; return LORG_TRUE;
	case LORG_MATCH_SILENT: return silent(evaluation, arguments[0]);
	case LORG_MATCH_TRACE: return trace(evaluation, arguments, count);
	case LORG_MATCH_ENABLE_TRACE: return switch_flag(evaluation, arguments, count, true);
	case LORG_MATCH_DISABLE_TRACE: return switch_flag(evaluation, arguments, count, false);
	case LORG_MATCH_SET_TCW: return set_tcw(evaluation, arguments[0]);
	case LORG_MATCH_PROCESS_DUMP: return context->process_dump ? context->process_dump(evaluation) : lorg_binary(terms, "", 0);
	case LORG_MATCH_DISPLAY: return display(evaluation, arguments[0]);
	case LORG_MATCH_CALLER: return caller(evaluation);
	case LORG_MATCH_CALLER_LINE: return context->caller_line ? context->caller_line(evaluation) : match_undefined(terms);
	case LORG_MATCH_CURRENT_STACKTRACE: return current_stacktrace(evaluation, arguments, count);
	case LORG_MATCH_SET_SEQ_TOKEN: return set_seq_token(evaluation, arguments[0], arguments[1]);
	case LORG_MATCH_GET_SEQ_TOKEN: return context->get_seq_token ? context->get_seq_token(evaluation) : lorg_nil();
	default: return match_bad_argument(terms);
	}
}
