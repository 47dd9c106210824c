/* SPDX-License-Identifier: MIT */
/*
 * signal.c: signals that are sent, and signals that are taken by waiting for
 * them. Handlers are in handler.c, reads of a signalfd in message.c.
 *
 * A signal that may hit the sender itself is told before the call, since that
 * may not return; the record is put right in its place when the call fails.
 */
#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "preload/core/raw.h"
#include "preload/hooks/message_match.h"
#include "preload/hooks/port_table.h"
#include "preload/hooks/timeout.h"

enum signal_scratch {
	SCRATCH_PACKET, /* where the record of a signal to ourselves stands; 0: none */
	SCRATCH_POSITION,
	SCRATCH_THREAD, /* tid of a pthread_t, read before the call: it may be gone after */
	SCRATCH_LIMIT,  /* ns */
	SCRATCH_SENT,   /* 1: the call has returned */
	SCRATCH_LEFT_OUT, /* 1: a match specification did not let it pass */
};

enum {
	CANCEL_SIGNAL = 32, /* libc's own, by which it cancels */
	PIDFD_INFO_PID = 1,
};

/* As the kernel has it since 6.13; it fills what it knows. */
struct pidfd_info {
	uint64_t mask, control_group;
	uint32_t pid, thread_group, parent, ids[8], exit_code;
};
#define PIDFD_GET_INFO _IOWR(0xFF, 11, struct pidfd_info)

enum target {
	TARGET_PROCESS,
	TARGET_GROUP,
	TARGET_ALL,
};

static uintptr_t argument(const struct hook_call *call, int8_t index)
{
	return index >= 0 ? call->argument[index] : 0;
}

/* ---- sent ----------------------------------------------------------------------- */

static uint32_t thread_id_of(uintptr_t thread)
{
	uint32_t tid = 0;
	if (the_program.tid_offset && thread)
		memcpy(&tid, (const char *)thread + the_program.tid_offset, sizeof tid);
	return tid;
}

static int own_group(void)
{
	long group = system_calls_allowed() ? raw_syscall3(SYS_getpgid, 0, 0, 0) : 0;
	return raw_failed(group) ? 0 : (int)group;
}

/* kill(pid, signal): what pid means. */
static void address_kill(struct lorg_event_SIGNAL_SENT *event, int pid)
{
	event->to_pid = pid;
	if (pid > 0)
		return;
	event->target = pid == -1 ? TARGET_ALL : TARGET_GROUP;
	event->to_pid = pid == -1 ? 0 : pid == 0 ? own_group() : -pid;
}

static void address_thread(struct lorg_event_SIGNAL_SENT *event, uint32_t tid)
{
	event->to_pid = (int)program_own_pid();
	event->to_tid = tid;
}

/* The number of the signal that a call sends; 0: it only asks whether it could. */
static uint32_t signal_of(const struct hook_call *call)
{
	return call->hook->shown_as == HOOK_pthread_cancel ? CANCEL_SIGNAL : (uint32_t)argument(call, call->hook->argument.signal);
}

/*
 * Who a pidfd stands for: as its opening told. Where that was not seen (inherited over exec, passed, made by clone) a
 * kernel of these days is asked once the signal is sent, and it is sure to be one. Else 0: not known.
 */
static int pid_of_descriptor(const struct hook_call *call, int fd)
{
	struct pidfd_info info = {.mask = PIDFD_INFO_PID};
	const struct port *port = port_peek(fd);
	if (port && port->kind == PORT_KIND_PIDFD)
		return (int)port->inode;
	int was_sent = call->scratch[SCRATCH_SENT] && (!call->error || call->error == ESRCH);
	if (!was_sent || !system_calls_allowed() || raw_failed(raw_syscall3(SYS_ioctl, fd, PIDFD_GET_INFO, (long)&info)))
		return 0;
	return (int)info.thread_group;
}

static void fill_target(struct lorg_event_SIGNAL_SENT *event, const struct hook_call *call)
{
	const struct hook_arguments *at = &call->hook->argument;
	switch (call->hook->shown_as) {
	case HOOK_kill: address_kill(event, (int)argument(call, at->pid)); return;
	case HOOK_killpg:
		event->target = TARGET_GROUP;
		event->to_pid = (int)argument(call, at->pid) ? (int)argument(call, at->pid) : own_group();
		return;
	case HOOK_tgkill:
		event->to_pid = (int)argument(call, at->pid);
		event->to_tid = (uint32_t)call->argument[1];
		return;
	case HOOK_raise: address_thread(event, thread_own_tid()); return;
	case HOOK_pthread_sigqueue:
		event->value = call->argument[2];
		address_thread(event, (uint32_t)call->scratch[SCRATCH_THREAD]);
		return;
	case HOOK_sigqueue:
		event->value = call->argument[2];
		event->to_pid = (int)argument(call, at->pid);
		return;
	case HOOK_pidfd_send_signal: event->to_pid = pid_of_descriptor(call, (int)argument(call, at->fd)); return;
	default:
		if (at->object >= 0)
			address_thread(event, (uint32_t)call->scratch[SCRATCH_THREAD]);
	}
}

static struct lorg_event_SIGNAL_SENT sent_event(const struct hook_call *call)
{
	struct lorg_event_SIGNAL_SENT event = {.entry = call->entry,
					       .signal = signal_of(call),
					       .hook = call->hook->shown_as,
					       .error = call->error};
	fill_target(&event, call);
	return event;
}

static int may_hit_sender(const struct lorg_event_SIGNAL_SENT *event)
{
	return event->target != TARGET_PROCESS || event->to_pid == (int)program_own_pid();
}

struct sending {
	struct hook_call *call;
	struct lorg_event_SIGNAL_SENT event;
	uint32_t position; /* of the first that was written; 0: none */
};

static void write_one(void *context, const struct matched_event *matched)
{
	struct sending *sending = context;
	uint32_t position;
	sending->event.session = matched->session;
	sending->event.message_value_length = matched->value.length;
	event_write(sending->call->self, LORG_EVENT_SIGNAL_SENT, &sending->event, sizeof sending->event, &matched->value, 1, &position);
	/* Those before stand in another chunk, which is out of our hands. */
	if (!sending->position || position < sending->position)
		sending->position = position;
}

/* Returns where the first stands, 0: nowhere. */
static uint32_t write_sent(struct hook_call *call, const struct lorg_event_SIGNAL_SENT *event)
{
	struct sending sending = {.call = call, .event = *event};
	if (the_arena.message_programs & LORG_MASK_SEND)
		signal_sent_tell(call->self, event, write_one, &sending);
	else
		write_one(&sending, &(struct matched_event){.session = 0});
	call->scratch[SCRATCH_LEFT_OUT] = !sending.position;
	return sending.position;
}

static void kill_enter(struct hook_call *call)
{
	call->entry = clock_now();
	if (!signal_of(call) || !(call->gate & LORG_GATE_MESSAGE) || !session_wants(LORG_MASK_SEND))
		return;
	if (call->hook->argument.object >= 0)
		call->scratch[SCRATCH_THREAD] = thread_id_of(argument(call, call->hook->argument.object));
	struct lorg_event_SIGNAL_SENT event = sent_event(call);
	if (!may_hit_sender(&event))
		return;
	uint32_t position = write_sent(call, &event);
	call->scratch[SCRATCH_PACKET] = position ? (uintptr_t)call->self->packet : 0;
	call->scratch[SCRATCH_POSITION] = position;
}

/* ESRCH is told; a signal that was refused for another reason is none. */
static void correct_record(const struct hook_call *call, struct lorg_extended *record)
{
	uint64_t entry;
	memcpy(&entry, record + 1, sizeof entry);
	if (record->id != LORG_EVENT_SIGNAL_SENT || entry != call->entry)
		return;
	if (call->error == ESRCH)
		((struct lorg_event_SIGNAL_SENT *)(record + 1))->error = ESRCH;
	else
		record->id = LORG_EVENT_WITHDRAWN;
}

/* Those written before the call, where they are still in our hands. */
static void correct_records(const struct hook_call *call)
{
	char *packet = (char *)call->scratch[SCRATCH_PACKET];
	if (!packet || packet != (char *)call->self->packet)
		return;
	uint32_t end = call->self->packet->position < LORG_CHUNK_SIZE ? call->self->packet->position : LORG_CHUNK_SIZE, length;
	for (uint32_t at = (uint32_t)call->scratch[SCRATCH_POSITION]; at < end; at += length) {
		struct lorg_extended *record = (struct lorg_extended *)(packet + at);
		length = event_written_length((const uint64_t *)(void *)record);
		if (!length)
			return;
		if (record->word == LORG_EVENT_EXTENDED)
			correct_record(call, record);
	}
}

static void kill_leave(struct hook_call *call)
{
	call->scratch[SCRATCH_SENT] = 1;
	if (!signal_of(call) || !(call->gate & LORG_GATE_MESSAGE) || !session_wants(LORG_MASK_SEND))
		return;
	if (call->scratch[SCRATCH_LEFT_OUT])
		return;
	if (call->scratch[SCRATCH_POSITION]) {
		if (call->error)
			correct_records(call);
		return;
	}
	if (call->error && call->error != ESRCH)
		return;
	struct lorg_event_SIGNAL_SENT event = sent_event(call);
	write_sent(call, &event);
}

/* ---- taken ------------------------------------------------------------------------ */

static void take_enter(struct hook_call *call)
{
	if (call->hook->blocking == BLOCKING_never) /* signalfd */
		return;
	int64_t limit = call_timeout(call);
	call->scratch[SCRATCH_LIMIT] = (uint64_t)limit;
	call->entry = clock_now();
	running_out(call, 0, limit);
}

static void write_received(struct hook_call *call, int number, const siginfo_t *information)
{
	struct lorg_event_SIGNAL_RECEIVED event = {.signal = (uint32_t)number, .hook = call->hook->shown_as, .how = 1};
	if (information) {
		event.value = (uintptr_t)information->si_value.sival_ptr;
		event.code = information->si_code;
		event.from_pid = (uint32_t)information->si_pid;
		event.from_uid = information->si_uid;
	}
	write_signal_received(call->self, &event);
}

static void signalfd_made(struct hook_call *call, int fd)
{
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .kind = PORT_KIND_SIGNALFD};
	if ((int)call->argument[0] != -1) /* another mask for one that there was */
		return;
	origin.nonblocking = ((uint32_t)argument(call, call->hook->argument.flags) & SOCK_NONBLOCK) != 0;
	port_made(call->self, call->gate, fd, &origin);
}

static void wait_ended(struct hook_call *call, intptr_t result)
{
	if (call->hook->shown_as == HOOK_sigwait) {
		if (!result)
			write_received(call, *(const int *)call->argument[1], 0);
	} else if (result > 0) {
		write_received(call, (int)result, (const siginfo_t *)call->argument[1]);
	} else if (call->error == EAGAIN) {
		write_timeout(call->self, &(struct lorg_event_TIMEOUT){.since = call->entry,
								       .limit_ns = (int64_t)call->scratch[SCRATCH_LIMIT],
								       .hook = call->hook->shown_as,
								       .error = call->error});
	}
}

static void take_leave(struct hook_call *call, intptr_t result)
{
	if (call->hook->blocking == BLOCKING_never) {
		if (result >= 0)
			signalfd_made(call, (int)result);
		return;
	}
	running_in(call, 0, result);
	if ((call->gate & LORG_GATE_MESSAGE) && session_wants(LORG_MASK_RECEIVE))
		wait_ended(call, result);
}

/* ---- descriptors to send by -------------------------------------------------------- */

static void pidfd_made(struct hook_call *call, int fd)
{
	struct port_origin origin = {.hook = call->hook->shown_as, .from = -1, .kind = PORT_KIND_PIDFD};
	port_made(call->self, call->gate, fd, &origin);
	struct port *port = call->self->vfork_child ? 0 : port_peek(fd);
	if (port && port->kind == PORT_KIND_PIDFD)
		port->inode = (uint32_t)argument(call, call->hook->argument.pid);
}

/* ---- the family --------------------------------------------------------------------- */

void signal_enter(struct hook_call *call)
{
	__builtin_memset(call->scratch, 0, sizeof call->scratch);
	if (call->hook->role == ROLE_kill)
		kill_enter(call);
	else if (call->hook->role == ROLE_take_signal)
		take_enter(call);
}

void signal_leave(struct hook_call *call, intptr_t result)
{
	if (!hook_returned(call))
		return;
	if (call->hook->role == ROLE_kill)
		kill_leave(call);
	else if (call->hook->role == ROLE_take_signal)
		take_leave(call, result);
	else if (call->hook->role == ROLE_descriptor && result >= 0)
		pidfd_made(call, (int)result);
}
