/* SPDX-License-Identifier: MIT */
/*
 * lock.c: mutexes, rwlocks, conditions, semaphores, barriers, spin locks and
 * once controls.
 *
 * A lock that is free costs a look at its word and the jump to the real
 * function. One that is not is a wait: out, in. What did not wait (acquired,
 * released, woke) is told, and the locks that a thread holds are listed in its
 * process entry, under LORG_GATE_ALL alone.
 *
 * What hands something over (unlock, signal, post) is told before the real
 * call, so that it precedes what it causes.
 */
#include <errno.h>

#include "preload/hook.h"
#include "preload/hooks/lock_state.h"
#include "preload/hooks/timeout.h"

/* What the family keeps in call->scratch. */
enum lock_scratch { LOCK_WAITS /* 1: an out was written */ };

enum { THREADS_TIMED_OUT = thrd_timedout };

/* ---- the locks a thread holds; written by the thread alone ---- */

static __attribute__((noinline, cold)) void forget_oldest(uint64_t *held)
{
	memmove(held, held + 1, (LORG_HELD_OBJECTS - 1) * sizeof *held);
}

static inline void hold(struct thread *self, uint64_t object)
{
	uint64_t *held = self->process->held;
	unsigned count = 0;
	while (count < LORG_HELD_OBJECTS && held[count])
		count++;
	if (__builtin_expect(count == LORG_HELD_OBJECTS, 0)) {
		forget_oldest(held);
		count--;
	}
	held[count] = object;
}

/* The newest hold of an object that is not the newest of all. */
static __attribute__((noinline)) void let_go_below(uint64_t *held, unsigned count, uint64_t object)
{
	for (unsigned i = count; i-- > 0;) {
		if (held[i] != object)
			continue;
		memmove(held + i, held + i + 1, (count - 1 - i) * sizeof *held);
		held[count - 1] = 0;
		return;
	}
}

/* Forgets the newest hold of the object. */
static inline void let_go(struct thread *self, uint64_t object)
{
	uint64_t *held = self->process->held;
	unsigned count = 0;
	while (count < LORG_HELD_OBJECTS && held[count])
		count++;
	if (__builtin_expect(count && held[count - 1] == object, 1))
		held[count - 1] = 0;
	else
		let_go_below(held, count, object);
}

/* Barriers and once controls are waited for, nothing is taken. */
static int is_taken(const struct hook_call *call)
{
	uint32_t id = call->hook->shown_as;
	return id != HOOK_pthread_barrier_wait && id != HOOK_pthread_once && id != HOOK_call_once;
}

/* A semaphore is given back by whoever will: no thread holds it. */
static int is_held(uint32_t shown_as)
{
	switch (shown_as) {
	case HOOK_sem_wait:
	case HOOK_sem_trywait:
	case HOOK_sem_timedwait:
	case HOOK_sem_clockwait: return 0;
	default: return 1;
	}
}

static void tell_acquired(struct hook_call *call, uint64_t object)
{
	if (is_held(call->hook->shown_as))
		hold(call->self, object);
	EVENT_WRITE_COMPACT(call->self, LOCK_TAKEN, .object = object, .hook = call->hook->shown_as);
}

static void tell_released(struct hook_call *call, uint64_t object)
{
	let_go(call->self, object);
	EVENT_WRITE_COMPACT(call->self, LOCK_GIVEN_BACK, .object = object, .hook = call->hook->shown_as);
}

/* ---- would it wait? ---- */

static int would_wait(const struct hook_call *call)
{
	const void *object = (const void *)call->argument[0];
	switch (call->hook->shown_as) {
	case HOOK_pthread_mutex_lock:
	case HOOK_pthread_mutex_timedlock:
	case HOOK_pthread_mutex_clocklock:
	case HOOK_mtx_lock:
	case HOOK_mtx_timedlock: return mutex_would_wait(object, call->self->process->own_tid);
	case HOOK_pthread_rwlock_rdlock:
	case HOOK_pthread_rwlock_timedrdlock:
	case HOOK_pthread_rwlock_clockrdlock: return rwlock_read_would_wait(object);
	case HOOK_pthread_rwlock_wrlock:
	case HOOK_pthread_rwlock_timedwrlock:
	case HOOK_pthread_rwlock_clockwrlock: return rwlock_write_would_wait(object);
	case HOOK_sem_wait:
	case HOOK_sem_timedwait:
	case HOOK_sem_clockwait: return semaphore_would_wait(object);
	case HOOK_pthread_spin_lock: return spin_would_wait(object);
	case HOOK_pthread_barrier_wait: return barrier_would_wait(object);
	case HOOK_pthread_once:
	case HOOK_call_once: return once_would_wait(object);
	default: return 1;
	}
}

static int acquire_waits(const struct hook_call *call)
{
	return call->hook->blocking != BLOCKING_never && would_wait(call);
}

/* ---- enter and leave ---- */

static int has_acquired(intptr_t result)
{
	return result == 0 || result == EOWNERDEAD;
}

/* The mutex of a condition is back in the thread's hands, but where the call refused its arguments. */
static int has_mutex_again(intptr_t result)
{
	return has_acquired(result) || result == ETIMEDOUT || result == THREADS_TIMED_OUT;
}

/* How many may go on; 0: all. */
static uint64_t woken_count(const struct hook_call *call)
{
	uint32_t id = call->hook->shown_as;
	return id != HOOK_pthread_cond_broadcast && id != HOOK_cnd_broadcast;
}

/* What did not wait is for recordings: in sessions that gate stands for ports. */
static int tells_free(const struct hook_call *call)
{
	return (call->gate & LORG_GATE_ALL) && !the_arena.live;
}

static void enter_condition(struct hook_call *call)
{
	if (tells_free(call))
		tell_released(call, call->argument[1]);
	running_out(call, call->argument[0], call_timeout(call));
}

static void enter_acquire(struct hook_call *call)
{
	call->scratch[LOCK_WAITS] = (uint64_t)acquire_waits(call);
	if (call->scratch[LOCK_WAITS])
		running_out(call, call->argument[0], call_timeout(call));
}

void lock_enter(struct hook_call *call)
{
	switch (call->hook->role) {
	case ROLE_condition: enter_condition(call); return;
	case ROLE_acquire: enter_acquire(call); return;
	case ROLE_release:
		if (tells_free(call))
			tell_released(call, call->argument[0]);
		return;
	case ROLE_wake:
		if (tells_free(call))
			EVENT_WRITE_HOT(call->self, WOKE, .object = call->argument[0], .count = woken_count(call),
					.hook = call->hook->shown_as);
		return;
	default: return;
	}
}

void lock_leave(struct hook_call *call, intptr_t result)
{
	if (!hook_returned(call))
		return;
	switch (call->hook->role) {
	case ROLE_condition:
		running_in(call, call->argument[0], result);
		if (tells_free(call) && has_mutex_again(result))
			tell_acquired(call, call->argument[1]);
		return;
	case ROLE_acquire:
		if (call->scratch[LOCK_WAITS])
			running_in(call, call->argument[0], result);
		if (tells_free(call) && has_acquired(result) && is_taken(call))
			tell_acquired(call, call->argument[0]);
		return;
	default: return;
	}
}

/* ---- the wrappers that are hot ---- */

typedef int lock_function(void *);

/* The whole frame, for a lock that is not free. Nothing in it touches errno. */
static __attribute__((noinline)) int lock_in_frame(uint32_t id, void *object, const void *caller)
{
	struct hook_call call;
	lock_function *real = (lock_function *)hook_real(id);
	if (!hook_begin(&call, id))
		return real(object);
	call.argument[0] = (uintptr_t)object;
	call.caller = (uintptr_t)caller;
	lock_enter(&call);
	int result = real(object);
	if (result != 0 && call.hook->error != ERROR_none)
		call.error = call.hook->error == ERROR_minus_one ? *hook_errno() : result;
	lock_leave(&call, result);
	return result;
}

/* A lock that is free, where everything is told. */
static __attribute__((noinline)) int lock_told(uint32_t id, void *object)
{
	lock_function *real = (lock_function *)hook_real(id);
	struct thread *self = thread_self();
	int result = real(object);
	if (!self || self->busy || !has_acquired(result) || the_arena.live)
		return result;
	if (is_held(hook_table[id].shown_as))
		hold(self, (uintptr_t)object);
	EVENT_WRITE_COMPACT(self, LOCK_TAKEN, .object = (uintptr_t)object, .hook = hook_table[id].shown_as);
	return result;
}

/* All that is not a jump to the real function. */
static inline int lock_traced(uint32_t id, void *object, int waits, const void *caller)
{
	return waits || !(hook_gate(id) & LORG_GATE_ALL) ? lock_in_frame(id, object, caller) : lock_told(id, object);
}

/* Nothing asked of this lock, or it is free and only waits are asked for: the real function may be jumped to. */
static inline int may_pass(uint8_t gate, int waits)
{
	return __builtin_expect(gate == 0 || (!waits && !(gate & LORG_GATE_ALL)), 1);
}

int hook_pthread_mutex_lock(pthread_mutex_t *object)
{
	hook_type_pthread_mutex_lock real = HOOK_READY(pthread_mutex_lock);
	int waits = mutex_is_taken(object);
	if (real && may_pass(hook_gate(HOOK_pthread_mutex_lock), waits))
		return real(object);
	return lock_traced(HOOK_pthread_mutex_lock, object, waits, __builtin_return_address(0));
}

int hook___pthread_mutex_lock(pthread_mutex_t *object)
{
	hook_type___pthread_mutex_lock real = HOOK_READY(__pthread_mutex_lock);
	int waits = mutex_is_taken(object);
	if (real && may_pass(hook_gate(HOOK___pthread_mutex_lock), waits))
		return real(object);
	return lock_traced(HOOK___pthread_mutex_lock, object, waits, __builtin_return_address(0));
}

int hook_mtx_lock(mtx_t *object)
{
	hook_type_mtx_lock real = HOOK_READY(mtx_lock);
	int waits = mutex_is_taken((pthread_mutex_t *)object);
	if (real && may_pass(hook_gate(HOOK_mtx_lock), waits))
		return real(object);
	return lock_traced(HOOK_mtx_lock, object, waits, __builtin_return_address(0));
}

int hook_pthread_rwlock_rdlock(pthread_rwlock_t *object)
{
	hook_type_pthread_rwlock_rdlock real = HOOK_READY(pthread_rwlock_rdlock);
	int waits = rwlock_read_would_wait(object);
	if (real && may_pass(hook_gate(HOOK_pthread_rwlock_rdlock), waits))
		return real(object);
	return lock_traced(HOOK_pthread_rwlock_rdlock, object, waits, __builtin_return_address(0));
}

int hook___pthread_rwlock_rdlock(pthread_rwlock_t *object)
{
	hook_type___pthread_rwlock_rdlock real = HOOK_READY(__pthread_rwlock_rdlock);
	int waits = rwlock_read_would_wait(object);
	if (real && may_pass(hook_gate(HOOK___pthread_rwlock_rdlock), waits))
		return real(object);
	return lock_traced(HOOK___pthread_rwlock_rdlock, object, waits, __builtin_return_address(0));
}

int hook_pthread_rwlock_wrlock(pthread_rwlock_t *object)
{
	hook_type_pthread_rwlock_wrlock real = HOOK_READY(pthread_rwlock_wrlock);
	int waits = rwlock_write_would_wait(object);
	if (real && may_pass(hook_gate(HOOK_pthread_rwlock_wrlock), waits))
		return real(object);
	return lock_traced(HOOK_pthread_rwlock_wrlock, object, waits, __builtin_return_address(0));
}

int hook___pthread_rwlock_wrlock(pthread_rwlock_t *object)
{
	hook_type___pthread_rwlock_wrlock real = HOOK_READY(__pthread_rwlock_wrlock);
	int waits = rwlock_write_would_wait(object);
	if (real && may_pass(hook_gate(HOOK___pthread_rwlock_wrlock), waits))
		return real(object);
	return lock_traced(HOOK___pthread_rwlock_wrlock, object, waits, __builtin_return_address(0));
}

int hook_sem_wait(sem_t *object)
{
	hook_type_sem_wait real = HOOK_READY(sem_wait);
	int waits = semaphore_would_wait(object);
	if (real && may_pass(hook_gate(HOOK_sem_wait), waits))
		return real(object);
	return lock_traced(HOOK_sem_wait, object, waits, __builtin_return_address(0));
}

int hook_pthread_spin_lock(pthread_spinlock_t *object)
{
	hook_type_pthread_spin_lock real = HOOK_READY(pthread_spin_lock);
	int waits = spin_would_wait(object);
	if (real && may_pass(hook_gate(HOOK_pthread_spin_lock), waits))
		return real(object);
	return lock_traced(HOOK_pthread_spin_lock, (void *)object, waits, __builtin_return_address(0));
}

/* ---- unlock: hot where everything is told ---- */

static __attribute__((noinline)) int unlock_told(uint32_t id, void *object)
{
	lock_function *real = (lock_function *)hook_real(id);
	struct thread *self = hook_gate(id) & LORG_GATE_ALL ? thread_self() : 0;
	if (self && !self->busy && !the_arena.live) {
		let_go(self, (uintptr_t)object);
		EVENT_WRITE_COMPACT(self, LOCK_GIVEN_BACK, .object = (uintptr_t)object, .hook = hook_table[id].shown_as);
	}
	return real(object);
}

int hook_pthread_mutex_unlock(pthread_mutex_t *object)
{
	hook_type_pthread_mutex_unlock real = HOOK_READY(pthread_mutex_unlock);
	if (__builtin_expect(real && hook_gate(HOOK_pthread_mutex_unlock) == 0, 1))
		return real(object);
	return unlock_told(HOOK_pthread_mutex_unlock, object);
}

int hook___pthread_mutex_unlock(pthread_mutex_t *object)
{
	hook_type___pthread_mutex_unlock real = HOOK_READY(__pthread_mutex_unlock);
	if (__builtin_expect(real && hook_gate(HOOK___pthread_mutex_unlock) == 0, 1))
		return real(object);
	return unlock_told(HOOK___pthread_mutex_unlock, object);
}

/* ---- once: the thread that runs the routine does not wait, so nothing of ours is around it ---- */

static int begin_once(struct hook_call *call, uint32_t id, void *control, const void *caller)
{
	if (!hook_begin(call, id))
		return 0;
	call->argument[0] = (uintptr_t)control;
	call->caller = (uintptr_t)caller;
	lock_enter(call);
	return 1;
}

static __attribute__((noinline)) int once_in_frame(pthread_once_t *control, void (*routine)(void), const void *caller)
{
	struct hook_call call;
	int begun = begin_once(&call, HOOK_pthread_once, control, caller);
	int result = REAL(pthread_once)(control, routine);
	if (begun)
		lock_leave(&call, result);
	return result;
}

int hook_pthread_once(pthread_once_t *object, void (*routine)(void))
{
	if (__builtin_expect(!once_would_wait(object), 1))
		return REAL(pthread_once)(object, routine);
	return once_in_frame(object, routine, __builtin_return_address(0));
}

static __attribute__((noinline)) void call_once_in_frame(once_flag *control, void (*routine)(void), const void *caller)
{
	struct hook_call call;
	int begun = begin_once(&call, HOOK_call_once, control, caller);
	REAL(call_once)(control, routine);
	if (begun)
		lock_leave(&call, 0);
}

void hook_call_once(once_flag *object, void (*routine)(void))
{
	if (__builtin_expect(!once_would_wait(object), 1)) {
		REAL(call_once)(object, routine);
		return;
	}
	call_once_in_frame(object, routine, __builtin_return_address(0));
}
