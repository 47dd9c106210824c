/* SPDX-License-Identifier: MIT */
/*
 * running.c: out and in, the two ends of every wait; see running.h.
 *
 * What the thread waits on is kept in its process entry whether or not the
 * events are asked for, so that a post-mortem can tell where it stood. A wait
 * that is left by a jump, an exception or the thread's end has no in; the next
 * wait overwrites its trace in the entry.
 */
#include "preload/hooks/running.h"

void running_tell_pending(struct thread *self)
{
	struct lorg_process *process = self->process;
	uint64_t word = __atomic_load_n(running_word(self), __ATOMIC_RELAXED), seen;
	/* Copied before the word is taken away: a handler may then use the entry. */
	const struct lorg_event_WAIT_OPEN open = {.entry = process->waits_on.tick,
						  .object = process->waits_on.object,
						  .timeout_ns = process->wait_timeout_ns,
						  .caller = process->wait_caller,
						  .hook = (uint32_t)word - 1,
						  .ending = process->wait_ending};
	/* As in running_ended. */
	__asm__ volatile("cmpxchgq %3, %1"
			 : "=a"(seen), "+m"(*running_word(self))
			 : "0"(word), "r"((uint64_t)0)
			 : "memory", "cc");
	if (seen == word && (uint32_t)word && word >> 32)
		event_write(self, LORG_EVENT_WAIT_OPEN, &open, sizeof open, 0, 0, 0);
}

static void write_in(struct hook_call *call, uint64_t object, intptr_t result)
{
	EVENT_WRITE_HOT(call->self, IN, .since = call->out, .object = object, .result = result, .hook = call->hook->shown_as,
			.ending = running_ending(call->self) | (call->out_ending & RUNNING_NOT_WAITED), .error = call->error);
}

int running_ended_otherwise(struct hook_call *call, uint64_t object, intptr_t result)
{
	wait_end(call->self);
	write_in(call, object, result);
	return 0;
}

void running_tell(struct hook_call *call, uint64_t object, intptr_t result)
{
	uint32_t ending = call->out_ending | running_ending(call->self) << 1;
	EVENT_WRITE_HOT(call->self, WAITED, .entry = call->out, .object = object, .timeout_ns = call->timeout_ns, .result = result,
			.caller = call->caller, .hook = call->hook->shown_as, .ending = ending, .error = call->error);
}

void running_out(struct hook_call *call, uint64_t object, int64_t timeout_ns)
{
	if (call->gate & LORG_GATE_RUNNING) {
		running_begin(call, object, timeout_ns);
		return;
	}
	if (!call->entry)
		call->entry = clock_now();
	call->out = call->entry;
	waiting_begins(call);
	wait_begin(call->self, call->hook->shown_as, object, call->entry);
}

void running_in(struct hook_call *call, uint64_t object, intptr_t result)
{
	if (!(call->gate & LORG_GATE_RUNNING)) {
		waiting_ends(call);
		wait_end(call->self);
	} else if (running_ended(call, object, result)) {
		running_tell(call, object, result);
	}
}
