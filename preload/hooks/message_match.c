/* SPDX-License-Identifier: MIT */
/* message_match.c: see message_match.h. Terms are made when the specification looks at them. */
#include "preload/hooks/message_match.h"

#include "preload/core/event.h"
#include "preload/hook.h"

/* What the message is; the run's arguments are made of it. */
struct matched {
	struct match_run *run;
	const struct matched_bytes *bytes; /* NULL: a signal or a time-out */
	const struct lorg_event_SIGNAL_SENT *sent;
	const struct lorg_event_SIGNAL_RECEIVED *received;
	uint8_t sends;
};

enum { RECEIVE_NODE, RECEIVE_SENDER, RECEIVE_MESSAGE, SEND_RECEIVER = 0, SEND_MESSAGE = 1, SENDS = 2, RECEIVES = 3 };

/* As the C library abbreviates them. */
static const char signal_names[][8] = {
	"",	"hup",	"int",	"quit", "ill",	"trap",	 "abrt", "bus",	 "fpe",	 "kill", "usr1", "segv",   "usr2", "pipe",  "alrm", "term",
	"stkflt", "chld", "cont", "stop", "tstp", "ttin", "ttou", "urg", "xcpu", "xfsz", "vtalrm", "prof", "winch", "poll", "pwr",  "sys",
};

/* sigterm; sigrtmin+2; signal_32 for what has no name. */
static lorg_term signal_name(struct lorg_terms *terms, uint32_t signal)
{
	char text[32];
	const char *end = text + sizeof text;
	char *at = text_append(text, end, "sig");
	if (signal && signal < sizeof signal_names / sizeof *signal_names) {
		at = text_append(at, end, signal_names[signal]);
	} else if (signal >= 34 && signal <= 64) { /* as glibc numbers them */
		at = text_append(at, end, "rtmin");
		at = text_append(at, end, signal > 34 ? "+" : "");
		at = signal > 34 ? text_append_decimal(at, end, signal - 34) : at;
	} else {
		at = text_append(at, end, "nal_");
		at = text_append_decimal(at, end, signal);
	}
	return lorg_atom(terms, text, (size_t)(at - text));
}

static lorg_term pair(struct lorg_terms *terms, lorg_term a, lorg_term b)
{
	const lorg_term elements[] = {a, b};
	return a == LORG_NONE || b == LORG_NONE ? LORG_NONE : lorg_tuple(terms, elements, 2);
}

static lorg_term signal_term(struct lorg_terms *terms, uint32_t signal)
{
	return pair(terms, lorg_atom_text(terms, "signal"), signal_name(terms, signal));
}

/* ---- bytes --------------------------------------------------------------------- */

static void copy_pieces(const struct matched_bytes *from, uint8_t *to, uint64_t length)
{
	uint64_t done = 0;
	if (from->buffer)
		memcpy(to, from->buffer, length < from->room ? length : from->room);
	for (uint64_t i = 0; !from->buffer && i < from->iovec_count && done < length; i++) {
		uint64_t part = from->iovec[i].iov_len < length - done ? from->iovec[i].iov_len : length - done;
		memcpy(to + done, from->iovec[i].iov_base, part);
		done += part;
	}
}

static lorg_term bytes_term(struct lorg_terms *terms, const struct matched_bytes *from)
{
	uint64_t length = from->bytes < LORG_MESSAGE_MAXIMUM ? from->bytes : LORG_MESSAGE_MAXIMUM;
	uint8_t *to;
	if (from->eof)
		return lorg_atom_text(terms, "eof");
	if (from->not_copied)
		return lorg_atom_text(terms, "undefined");
	lorg_term binary = lorg_bitstring_new(terms, length * 8, &to);
	if (binary == LORG_NONE)
		return binary;
	if (!from->may_fault)
		copy_pieces(from, to, length);
	else if (!from->buffer || memory_peek(to, from->buffer, (uint32_t)length) != length)
		return lorg_term_failed(terms, LORG_TERM_BAD_ARGUMENT);
	return binary;
}

static lorg_term port_term(struct match_run *run, const struct matched_bytes *of)
{
	const struct lorg_image *image = arena_image(run->self->process->image);
	uint32_t program = !image ? 0 : image->pid ? image->pid : image->own_pid;
	return lorg_port(&run->terms, program, (uint32_t)of->object, of->generation, LORG_NONE);
}

/* ---- who -------------------------------------------------------------------------- */

static lorg_term receiver_of_signal(struct lorg_terms *terms, const struct lorg_event_SIGNAL_SENT *event)
{
	if (event->target == 1)
		return pair(terms, lorg_atom_text(terms, "group"), lorg_integer(terms, event->to_pid));
	if (event->target)
		return lorg_atom_text(terms, "all");
	return lorg_pid(terms, (uint32_t)event->to_pid, event->to_tid ? event->to_tid : (uint32_t)event->to_pid, 0, LORG_NONE);
}

static lorg_term sender_of(const struct matched *matched)
{
	struct lorg_terms *terms = &matched->run->terms;
	if (matched->bytes)
		return port_term(matched->run, matched->bytes);
	if (matched->received && matched->received->from_pid)
		return lorg_pid(terms, matched->received->from_pid, matched->received->from_pid, 0, LORG_NONE);
	return lorg_atom_text(terms, "undefined"); /* the kernel */
}

static lorg_term message_term(const struct matched *matched)
{
	struct lorg_terms *terms = &matched->run->terms;
	if (matched->bytes)
		return bytes_term(terms, matched->bytes);
	if (matched->sent)
		return signal_term(terms, matched->sent->signal);
	return matched->received ? signal_term(terms, matched->received->signal) : lorg_atom_text(terms, "timeout");
}

static lorg_term argument(struct lorg_match_evaluation *evaluation, uint32_t index)
{
	const struct matched *matched = match_run_of(evaluation)->matched;
	if (!matched->sends)
		return index == RECEIVE_NODE	 ? match_node(evaluation, LORG_NONE)
		       : index == RECEIVE_SENDER ? sender_of(matched)
						 : message_term(matched);
	if (index == SEND_MESSAGE)
		return message_term(matched);
	return matched->bytes ? port_term(matched->run, matched->bytes) : receiver_of_signal(evaluation->terms, matched->sent);
}

static const struct lorg_match_context message_context = {
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
};

static int passes(struct match_run *run, struct thread *self, struct matched *matched)
{
	uint32_t at = (matched->sends ? the_arena.send_program : the_arena.receive_program) - 8;
	struct lorg_match_program room;
	run->begun = 0;
	if (at >= the_arena.programs_size || !match_begin(run, self))
		return 0;
	run->registers = 0;
	run->caller = 0;
	run->matched = matched;
	const struct lorg_match_program *program =
		match_program(run, arena_at(the_arena.programs_offset + at), the_arena.programs_size - at, &room);
	uint32_t dialect = matched->sends ? LORG_DIALECT_SEND : LORG_DIALECT_RECEIVE;
	for (uint32_t i = 0; i < RECEIVES; i++)
		run->arguments[i] = LORG_NONE;
	if (program && program->dialect == dialect &&
	    match_evaluate(run, program, &message_context, matched->sends ? SENDS : RECEIVES) && run->told)
		return 1;
	match_end(run);
	return 0;
}

int message_passes(struct match_run *run, struct thread *self, const struct matched_bytes *bytes)
{
	struct matched matched = {.run = run, .bytes = bytes, .sends = bytes->sends};
	return passes(run, self, &matched);
}

int signal_sent_passes(struct match_run *run, struct thread *self, const struct lorg_event_SIGNAL_SENT *event)
{
	struct matched matched = {.run = run, .sent = event, .sends = 1};
	return passes(run, self, &matched);
}

int signal_received_passes(struct match_run *run, struct thread *self, const struct lorg_event_SIGNAL_RECEIVED *event)
{
	struct matched matched = {.run = run, .received = event};
	return passes(run, self, &matched);
}

int timeout_passes(struct match_run *run, struct thread *self)
{
	struct matched matched = {.run = run};
	return passes(run, self, &matched);
}

/* ---- writing ------------------------------------------------------------------------- */

static __attribute__((noinline)) void write_matched_signal(struct thread *self, struct lorg_event_SIGNAL_RECEIVED *event)
{
	struct match_run run;
	if (!signal_received_passes(&run, self, event))
		return;
	event->message_value_length = run.message.length;
	event_write(self, LORG_EVENT_SIGNAL_RECEIVED, event, sizeof *event, &run.message, 1, 0);
	match_end(&run);
}

void write_signal_received(struct thread *self, struct lorg_event_SIGNAL_RECEIVED *event)
{
	if (the_arena.message_programs & LORG_MASK_RECEIVE)
		write_matched_signal(self, event);
	else
		event_write(self, LORG_EVENT_SIGNAL_RECEIVED, event, sizeof *event, 0, 0, 0);
}

void write_timeout(struct thread *self, const struct lorg_event_TIMEOUT *event)
{
	if (the_arena.message_programs & LORG_MASK_RECEIVE) {
		struct match_run run;
		if (!timeout_passes(&run, self))
			return;
		match_end(&run);
	}
	event_write(self, LORG_EVENT_TIMEOUT, event, sizeof *event, 0, 0, 0);
}
