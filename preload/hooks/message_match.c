/* SPDX-License-Identifier: MIT */
/* message_match.c: see message_match.h. Terms are made when the specification looks at them. */
#include "preload/hooks/message_match.h"

#include "preload/core/event.h"
#include "preload/core/flags.h"
#include "preload/hook.h"

/* What the message is; the run's arguments are made of it. */
struct matched {
	struct match_run *run;
	const struct matched_bytes *bytes; /* NULL: a signal or a time-out */
	const struct lorg_event_SIGNAL_SENT *sent;
	const struct lorg_event_SIGNAL_RECEIVED *received;
	uint8_t sends;
	uint8_t as_port; /* 1: as the port's own message, which receives what is sent to it, and sends what is received from it */
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
	return lorg_port_term(&run->terms, program, (uint32_t)of->object, of->generation, LORG_NONE);
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

static lorg_term receiver_of(struct lorg_match_evaluation *evaluation, const struct matched *matched)
{
	if (matched->as_port)
		return match_self(evaluation);
	return matched->bytes ? port_term(matched->run, matched->bytes) : receiver_of_signal(evaluation->terms, matched->sent);
}

static lorg_term sender_of(struct lorg_match_evaluation *evaluation, const struct matched *matched)
{
	struct lorg_terms *terms = evaluation->terms;
	if (matched->as_port)
		return match_self(evaluation);
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

/* As whom it is matched: by its sender, or by its receiver. */
static int is_of_sender(const struct matched *matched)
{
	return matched->sends != matched->as_port;
}

static lorg_term argument(struct lorg_match_evaluation *evaluation, uint32_t index)
{
	const struct matched *matched = match_run_of(evaluation)->matched;
	if (is_of_sender(matched))
		return index == SEND_MESSAGE ? message_term(matched) : receiver_of(evaluation, matched);
	return index == RECEIVE_NODE	 ? match_node(evaluation, LORG_NONE)
	       : index == RECEIVE_SENDER ? sender_of(evaluation, matched)
					 : message_term(matched);
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

/* ---- programs ------------------------------------------------------------------------ */

/*
 * Those of live sessions that this image has verified; the collector may put another one in the same place at any time.
 * `version` is odd while it is written, by whoever has made it so with a CAS; readers copy, and look at it again.
 */
static struct {
	uint32_t version; /* atomic */
	uint32_t generation, place;
	uint64_t id;
	struct lorg_match_program program;
} known[LORG_SESSIONS][2];

static int find_known(const struct lorg_session *session, uint32_t slot, int sends, uint32_t place, struct lorg_match_program *program)
{
	/* Acquire, and the fence: what lies between is of one version. */
	uint32_t version = __atomic_load_n(&known[slot][sends].version, __ATOMIC_ACQUIRE);
	int found = version && !(version & 1) && known[slot][sends].generation == session->generation &&
		    known[slot][sends].place == place && known[slot][sends].id == session->id;
	if (!found)
		return 0;
	*program = known[slot][sends].program;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&known[slot][sends].version, __ATOMIC_RELAXED) == version;
}

static void remember(uint64_t id, uint32_t generation, uint32_t slot, int sends, uint32_t place, const struct lorg_match_program *program)
{
	uint32_t version = __atomic_load_n(&known[slot][sends].version, __ATOMIC_RELAXED);
	if ((version & 1) || !__atomic_compare_exchange_n(&known[slot][sends].version, &version, version + 1, 0, __ATOMIC_ACQUIRE,
							  __ATOMIC_RELAXED))
		return;
	known[slot][sends].id = id;
	known[slot][sends].generation = generation;
	known[slot][sends].place = place;
	known[slot][sends].program = *program;
	__atomic_store_n(&known[slot][sends].version, version + 2, __ATOMIC_RELEASE);
}

/* The verifier's work space is the scratch memory, in which there is nothing yet that counts. */
static const struct lorg_match_program *program_of_session(struct match_run *run, uint32_t slot, int sends, uint32_t place,
							   struct lorg_match_program *room)
{
	const struct lorg_session *session = session_at(slot);
	const void *memory = arena_at(the_arena.programs_offset + place - 8);
	uint32_t used = run->terms.used, free = run->terms.scratch_words - used;
	if (!slot)
		return match_program(run, memory, the_arena.programs_size - (place - 8), room);
	if (find_known(session, slot, sends, place, room))
		return room;
	uint64_t id = session->id;
	uint32_t generation = session->generation;
	if (lorg_match_open(room, memory, the_arena.programs_size - (place - 8), &lorg_match_limits_inside, (uint32_t *)(run->memory + used),
			    free * 2, 0)) {
		__atomic_fetch_add(&the_arena.shared->match_broken, 1, __ATOMIC_RELAXED);
		return 0;
	}
	remember(id, generation, slot, sends, place, room);
	return room;
}

/* True if the specification at `place` lets the message through; match_end has to follow. */
static int passes(struct match_run *run, struct thread *self, struct matched *matched, uint32_t slot, uint32_t place)
{
	struct lorg_match_program room;
	int sends = is_of_sender(matched);
	run->begun = 0;
	if (place < 8 || place - 8 >= the_arena.programs_size || !match_begin(run, self))
		return 0;
	run->session = slot;
	run->registers = 0;
	run->caller = 0;
	run->matched = matched;
	matched->run = run;
	const struct lorg_match_program *program = program_of_session(run, slot, sends, place, &room);
	uint32_t dialect = sends ? LORG_DIALECT_SEND : LORG_DIALECT_RECEIVE;
	for (uint32_t i = 0; i < RECEIVES; i++)
		run->arguments[i] = LORG_NONE;
	if (program && program->dialect == dialect && match_evaluate(run, program, &message_context, sends ? SENDS : RECEIVES) && run->told)
		return 1;
	match_end(run);
	return 0;
}

/* ---- sessions ------------------------------------------------------------------------- */

/* As whom a session asks for the message: 0: not at all. */
enum asks { AS_PROCESS = 1, AS_PORT = 2 };

static uint32_t asks(const struct lorg_process *process, const struct matched *matched, uint32_t slot)
{
	const struct lorg_session *session = session_at(slot);
	uint32_t of_process = matched->sends ? LORG_TRACE_SEND : LORG_TRACE_RECEIVE;
	uint32_t of_port = matched->sends ? LORG_TRACE_RECEIVE : LORG_TRACE_SEND;
	/* Acquire: who sees the slot in use sees what is asked in it. */
	if (!__atomic_load_n(&session->state, __ATOMIC_ACQUIRE))
		return 0;
	int by_port = matched->bytes && (__atomic_load_n(&session->flags_ports, __ATOMIC_RELAXED) & of_port);
	return (session_flags(process, slot) & of_process ? AS_PROCESS : 0) | (by_port ? AS_PORT : 0);
}

/* 0: none; LORG_PROGRAM_OFF. */
static uint32_t place_in(uint32_t slot, int sends)
{
	const struct lorg_session *session = session_at(slot);
	return __atomic_load_n(sends ? &session->send_program : &session->receive_program, __ATOMIC_RELAXED);
}

/* True if a session without a specification may want it. */
static int some_take_all(const struct lorg_process *process, const struct matched *matched, uint32_t used)
{
	for (uint32_t slot = 1; slot < used; slot++) {
		uint32_t as = asks(process, matched, slot);
		if (((as & AS_PROCESS) && !place_in(slot, matched->sends)) || ((as & AS_PORT) && !place_in(slot, !matched->sends)))
			return 1;
	}
	return 0;
}

static void tell_slot(struct thread *self, struct matched *matched, uint32_t slot, uint8_t as_port, matched_write *write, void *context)
{
	struct match_run run;
	matched->as_port = as_port;
	uint32_t place = place_in(slot, is_of_sender(matched));
	if (!place || place == LORG_PROGRAM_OFF || !passes(&run, self, matched, slot, place))
		return;
	write(context, &(struct matched_event){.session = slot, .as_port = as_port, .value = run.message});
	match_end(&run);
}

static void tell_each(struct thread *self, struct matched *matched, matched_write *write, void *context)
{
	uint32_t used = sessions_used();
	struct match_run run;
	if (!used) {
		uint32_t place = matched->sends ? the_arena.send_program : the_arena.receive_program;
		if (!passes(&run, self, matched, 0, place))
			return;
		write(context, &(struct matched_event){.value = run.message});
		match_end(&run);
		return;
	}
	if (some_take_all(self->process, matched, used))
		write(context, &(struct matched_event){.session = 0});
	for (uint32_t slot = 1; slot < used; slot++) {
		uint32_t as = asks(self->process, matched, slot);
		if (as & AS_PROCESS)
			tell_slot(self, matched, slot, 0, write, context);
		if (as & AS_PORT)
			tell_slot(self, matched, slot, 1, write, context);
	}
}

void message_tell(struct thread *self, const struct matched_bytes *bytes, matched_write *write, void *context)
{
	tell_each(self, &(struct matched){.bytes = bytes, .sends = bytes->sends}, write, context);
}

void signal_sent_tell(struct thread *self, const struct lorg_event_SIGNAL_SENT *event, matched_write *write, void *context)
{
	tell_each(self, &(struct matched){.sent = event, .sends = 1}, write, context);
}

/* ---- writing ------------------------------------------------------------------------- */

struct writing {
	struct thread *self;
	const void *event;
};

static void write_one_signal(void *context, const struct matched_event *matched)
{
	const struct writing *writing = context;
	struct lorg_event_SIGNAL_RECEIVED event = *(const struct lorg_event_SIGNAL_RECEIVED *)writing->event;
	event.session = matched->session;
	event.message_value_length = matched->value.length;
	event_write(writing->self, LORG_EVENT_SIGNAL_RECEIVED, &event, sizeof event, &matched->value, 1, 0);
}

static void write_one_timeout(void *context, const struct matched_event *matched)
{
	const struct writing *writing = context;
	struct lorg_event_TIMEOUT event = *(const struct lorg_event_TIMEOUT *)writing->event;
	event.session = matched->session;
	event_write(writing->self, LORG_EVENT_TIMEOUT, &event, sizeof event, 0, 0, 0);
}

static __attribute__((noinline)) void write_matched_signal(struct thread *self, const struct lorg_event_SIGNAL_RECEIVED *event)
{
	struct writing writing = {self, event};
	tell_each(self, &(struct matched){.received = event}, write_one_signal, &writing);
}

static __attribute__((noinline)) void write_matched_timeout(struct thread *self, const struct lorg_event_TIMEOUT *event)
{
	struct writing writing = {self, event};
	tell_each(self, &(struct matched){.bytes = 0}, write_one_timeout, &writing);
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
	if (the_arena.message_programs & LORG_MASK_RECEIVE)
		write_matched_timeout(self, event);
	else
		event_write(self, LORG_EVENT_TIMEOUT, event, sizeof *event, 0, 0, 0);
}
