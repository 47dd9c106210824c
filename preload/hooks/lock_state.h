/* SPDX-License-Identifier: MIT */
/*
 * lock_state.h: would taking this lock wait? Told by looking, never by trying:
 * a lock that is tried has other semantics (robust, priority, fairness, errno,
 * cancellation). The answer is of one moment; a lock taken by another thread
 * right after it is a wait that is not seen.
 *
 * Layouts are glibc's: those of mutex and rwlock stand in its public headers,
 * those of semaphore, barrier and spin lock have been the same on x86-64 since
 * glibc 2.21 and are part of its ABI (they lie in the programs' memory).
 */
#ifndef LORG_PRELOAD_LOCK_STATE_H
#define LORG_PRELOAD_LOCK_STATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <threads.h>

/* All loads are relaxed: a hint, nothing is ordered by it. */
static inline uint32_t lock_word(const void *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_RELAXED);
}

/* True when the mutex is not free, whoever has it. */
static inline int mutex_is_taken(const pthread_mutex_t *mutex)
{
	return lock_word(&mutex->__data.__lock) != 0;
}

/* As the above, without what does not wait: one's own, a dead owner's, a mere priority ceiling. */
static inline int mutex_would_wait(const pthread_mutex_t *mutex, uint32_t own_tid)
{
	enum { KIND_TYPE = 3, KIND_ROBUST = 16, KIND_INHERIT = 32, KIND_PROTECT = 64, TID = 0x3fffffff, CEILING_SHIFT = 19 };
	uint32_t word = lock_word(&mutex->__data.__lock);
	uint32_t kind = lock_word(&mutex->__data.__kind);
	uint32_t type = kind & KIND_TYPE;
	if ((type == PTHREAD_MUTEX_RECURSIVE_NP || type == PTHREAD_MUTEX_ERRORCHECK_NP) && own_tid &&
	    lock_word(&mutex->__data.__owner) == own_tid)
		return 0;
	if (kind & KIND_PROTECT)
		return (word & ((1u << CEILING_SHIFT) - 1)) != 0;
	if (kind & (KIND_ROBUST | KIND_INHERIT))
		return (word & TID) != 0;
	return word != 0;
}

/* Bits of the first word of a rwlock; the readers are counted above them. */
enum { RWLOCK_WRITE_PHASE = 1, RWLOCK_WRITE_LOCKED = 2, RWLOCK_READER_SHIFT = 3 };

static inline int rwlock_read_would_wait(const pthread_rwlock_t *lock)
{
	uint32_t word = lock_word(&lock->__data.__readers);
	if (!(word & RWLOCK_WRITE_LOCKED))
		return 0;
	if (word & RWLOCK_WRITE_PHASE)
		return 1;
	return lock->__data.__flags == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP && word >> RWLOCK_READER_SHIFT;
}

static inline int rwlock_write_would_wait(const pthread_rwlock_t *lock)
{
	uint32_t word = lock_word(&lock->__data.__readers);
	if (word & RWLOCK_WRITE_LOCKED)
		return 1;
	return !(word & RWLOCK_WRITE_PHASE) && word >> RWLOCK_READER_SHIFT;
}

/* The value is the low half of the first eight bytes. */
static inline int semaphore_would_wait(const sem_t *semaphore)
{
	return lock_word(semaphore) == 0;
}

/* 1 is free; less is taken. */
static inline int spin_would_wait(const volatile int *lock)
{
	return (int)lock_word((const void *)lock) <= 0;
}

/* All but the thread that completes the round wait. */
static inline int barrier_would_wait(const pthread_barrier_t *barrier)
{
	struct {
		uint32_t entered, round, count;
	} const *state = (const void *)barrier;
	return lock_word(&state->entered) + 1 - lock_word(&state->round) < lock_word(&state->count);
}

/* Bit 0: a thread is at it; bit 1: done. */
static inline int once_would_wait(const void *control)
{
	return (lock_word(control) & 3) == 1;
}

#endif
