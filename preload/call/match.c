/* SPDX-License-Identifier: MIT */
/*
 * match.c: match specifications of calls: arguments become terms when a
 * specification looks at them.
 *
 * Integers, pointers and booleans in registers are terms at once. All other
 * values are encoded as for an event (value.c) and read back into the scratch
 * memory; strings are read from the program directly, since matching sees more
 * of them than an event tells.
 */
#include "preload/call/match.h"

#include "preload/call/quick.h"

static lorg_term failed(struct match_run *run, enum lorg_term_failure failure)
{
	return lorg_term_failed(&run->terms, failure);
}

/* ---- strings ------------------------------------------------------------ */

/* Bytes up to a terminator, at most `limit` (of the desk) of them, to the desk; *ended: one was found. */
static uint32_t read_text(const struct match_run *run, uint64_t address, uint32_t limit, int *ended)
{
	enum { PIECE = 256 };
	char *to = (char *)match_desk(run);
	uint32_t length = 0;
	*ended = 0;
	while (length < limit) {
		uint32_t wanted = limit - length < PIECE ? limit - length : PIECE;
		uint32_t got = value_read(&run->look, to + length, address + length, wanted);
		uint32_t part = (uint32_t)text_length(to + length, got);
		length += part;
		*ended = part < got;
		if (*ended || got < wanted)
			break;
	}
	return length;
}

/* A char *: that may be nowhere, and has an end. */
static lorg_term string_at(struct match_run *run, uint64_t address)
{
	int ended;
	uint32_t length = address ? read_text(run, address, LORG_MATCH_STRING_LIMIT, &ended) : 0;
	if (!address || (!length && !ended))
		return lorg_unsigned(&run->terms, address);
	if (!ended)
		return failed(run, length == LORG_MATCH_STRING_LIMIT ? LORG_TERM_NO_SPACE : LORG_TERM_BAD_ARGUMENT);
	return lorg_string(&run->terms, match_desk(run), length);
}

/* A std::string or std::string_view. */
static lorg_term counted_at(struct match_run *run, uint64_t address, uint64_t length)
{
	if (length > LORG_MATCH_STRING_LIMIT)
		return failed(run, LORG_TERM_NO_SPACE);
	if (value_read(&run->look, match_desk(run), address, (uint32_t)length) != length)
		return lorg_unsigned(&run->terms, address);
	return lorg_string(&run->terms, match_desk(run), length);
}

static lorg_term load_string(struct lorg_match_evaluation *evaluation, uint64_t address, uint32_t limit)
{
	struct match_run *run = match_run_of(evaluation);
	int ended = 0;
	uint32_t length = address ? read_text(run, address, limit < MATCH_DESK_BYTES ? limit : MATCH_DESK_BYTES, &ended) : 0;
	if (!ended && length < limit)
		return failed(run, LORG_TERM_BAD_ARGUMENT);
	if (!ended && limit >= LORG_MATCH_STRING_LIMIT)
		return failed(run, LORG_TERM_NO_SPACE);
	return lorg_string(&run->terms, match_desk(run), length);
}

/* ---- arguments ------------------------------------------------------------ */

static lorg_term encoded_argument(struct match_run *run, uint32_t index)
{
	struct lorg_external out = {.bytes = match_desk(run), .size = MATCH_DESK_BYTES};
	if (!value_put_argument(&run->look, index, &out))
		return failed(run, out.truncated ? LORG_TERM_NO_SPACE : LORG_TERM_BAD_ARGUMENT);
	const uint8_t *at = out.bytes;
	return lorg_get_term(&run->terms, &at, out.bytes + out.used);
}

static lorg_term argument(struct lorg_match_evaluation *evaluation, uint32_t index)
{
	struct match_run *run = match_run_of(evaluation);
	uint64_t word, length;
	if (value_counted_argument(&run->look, index, &word, &length))
		return counted_at(run, word, length);
	if (value_string_argument(&run->look, index, &word))
		return string_at(run, word);
	if (value_pointer_argument(&run->look, index, &word))
		return lorg_unsigned(&run->terms, word);
	return encoded_argument(run, index);
}

static bool word(struct lorg_match_evaluation *evaluation, uint32_t index, uint64_t *value)
{
	return value_argument_word(&match_run_of(evaluation)->look, index, value);
}

static bool load(struct lorg_match_evaluation *evaluation, uint64_t address, void *to, uint32_t size)
{
	return value_read(&match_run_of(evaluation)->look, to, address, size) == size;
}

/* ---- who calls -------------------------------------------------------------- */

/* In the call instruction: the one behind it may be another function's. */
static uint64_t caller(struct lorg_match_evaluation *evaluation)
{
	uint64_t address = match_run_of(evaluation)->caller;
	return address ? address - 1 : 0;
}

static lorg_term caller_line(struct lorg_match_evaluation *evaluation)
{
	return lorg_code_line(evaluation->terms, caller(evaluation));
}

static lorg_term current_stacktrace(struct lorg_match_evaluation *evaluation, uint32_t depth)
{
	struct match_run *run = match_run_of(evaluation);
	uint64_t addresses[MATCH_STACK];
	lorg_term list = lorg_nil();
	uint32_t count = match_stack(run, run->look.stack - 8, run->program_frame, addresses);
	for (uint32_t i = count < depth ? count : depth; i-- > 0 && list != LORG_NONE;) {
		lorg_term line = lorg_code_line(&run->terms, addresses[i]);
		list = line != LORG_NONE ? lorg_cons(&run->terms, line, list) : LORG_NONE;
	}
	return list;
}

/* ---- the evaluation ----------------------------------------------------------- */

static const struct lorg_match_context call_context = {
	.prepare = match_prepare,
	.argument = argument,
	.self = match_self,
	.node = match_node,
	.get_tcw = match_get_tcw,
	.set_tcw = match_set_tcw,
	.silent = match_silent,
	.trace = match_trace,
	.set_seq_token = match_set_seq_token,
	.get_seq_token = match_get_seq_token,
	.is_seq_trace = match_is_seq_trace,
	.process_dump = match_process_dump,
	.display = match_display,
	.caller = caller,
	.caller_line = caller_line,
	.current_stacktrace = current_stacktrace,
	.word = word,
	.load = load,
	.load_string = load_string,
};

int match_call(struct match_run *run, struct thread *self, const struct call_target *target, uint32_t program, uint64_t caller_address,
	       uint32_t session, uint32_t declared)
{
	const struct call_settings *settings = target->settings;
	struct lorg_match_program room;
	if (!run->begun && !match_begin(run, self))
		return 0;
	/* What the specification before this one has made was told already. */
	run->terms.used = 0;
	const struct lorg_match_program *opened =
		program < settings->size ? match_program(run, (const char *)settings->shared + program, settings->size - program, &room) : 0;
	if (!opened || opened->dialect != LORG_DIALECT_CALL)
		return 0;
	call_quick_learn(target, declared, (const char *)settings->shared + program, opened);
	run->caller = caller_address;
	run->session = session;
	value_look(&run->look, self, target, run->registers);
	run->look.declared = declared;
	uint32_t count = value_simple_arguments(&run->look, opened->arguments, run->arguments);
	return match_evaluate(run, opened, &call_context, count);
}
