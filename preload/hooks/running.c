/* SPDX-License-Identifier: MIT */
/*
 * running.c: out and in, the two ends of every wait.
 *
 * What the thread waits on is kept in its process entry whether or not the
 * events are asked for, so that a post-mortem can tell where it stood. A wait
 * that is left by a jump, an exception or the thread's end has no in; the next
 * wait overwrites its trace in the entry.
 */
#include "preload/hook.h"

static uint32_t is_ending(const struct thread *self)
{
	/* Relaxed: a flag that only ever rises. */
	return self->ending || __atomic_load_n(&the_program.ending, __ATOMIC_RELAXED);
}

void running_out(struct hook_call *call, uint64_t object, int64_t timeout_ns)
{
	struct thread *self = call->self;
	uint64_t tick = 0;
	if (call->gate & LORG_GATE_RUNNING)
		tick = EVENT_WRITE_HOT(self, OUT, .object = object, .timeout_ns = timeout_ns, .caller = call->caller,
				       .hook = call->hook->shown_as, .ending = is_ending(self));
	if (!tick)
		tick = clock_now();
	if (!call->entry)
		call->entry = tick;
	call->out = tick;
	wait_set(self, call->hook->shown_as, object, tick);
}

void running_in(struct hook_call *call, uint64_t object, intptr_t result)
{
	struct thread *self = call->self;
	wait_clear(self);
	if (!(call->gate & LORG_GATE_RUNNING))
		return;
	EVENT_WRITE_HOT(self, IN, .since = call->out, .object = object, .result = result, .hook = call->hook->shown_as,
			.ending = is_ending(self), .error = call->error);
}
