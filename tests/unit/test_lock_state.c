/* SPDX-License-Identifier: MIT */
/* What a lock's memory tells agrees with what trying it gives: the layouts of this C library are those expected. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "preload/hooks/lock_state.h"
#include "tests/unit/unit.h"

static void *lock_and_leave(void *mutex)
{
	pthread_mutex_lock(mutex);
	return NULL;
}

static void in_thread(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, body, argument), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void mutex_make(pthread_mutex_t *mutex, int type, int robust, int protocol)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, type);
	if (robust)
		pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setprotocol(&attributes, protocol);
	ck_assert_int_eq(pthread_mutex_init(mutex, &attributes), 0);
	pthread_mutexattr_destroy(&attributes);
}

START_TEST(mutexes)
{
	static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
				    PTHREAD_MUTEX_ADAPTIVE_NP};
	static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
	uint32_t self = (uint32_t)gettid();
	for (unsigned i = 0; i < 16; i++) {
		pthread_mutex_t mutex;
		int type = types[i % 4], robust = i / 4 % 2, protocol = protocols[i / 8];
		mutex_make(&mutex, type, robust, protocol);
		ck_assert(!mutex_is_taken(&mutex));
		ck_assert(!mutex_would_wait(&mutex, self));
		ck_assert_int_eq(pthread_mutex_lock(&mutex), 0);
		ck_assert(mutex_is_taken(&mutex));
		/* For another thread it would, for us only where it is neither recursive nor checked. */
		ck_assert(mutex_would_wait(&mutex, self + 1));
		int own = type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK;
		ck_assert_int_eq(mutex_would_wait(&mutex, self), !own);
		ck_assert_int_eq(pthread_mutex_unlock(&mutex), 0);
		ck_assert(!mutex_would_wait(&mutex, self));
	}
}
END_TEST

START_TEST(a_dead_owner_is_none)
{
	pthread_mutex_t mutex;
	mutex_make(&mutex, PTHREAD_MUTEX_NORMAL, 1, PTHREAD_PRIO_NONE);
	in_thread(lock_and_leave, &mutex);
	ck_assert(mutex_is_taken(&mutex)); /* the word is not zero */
	ck_assert(!mutex_would_wait(&mutex, (uint32_t)gettid()));
	ck_assert_int_eq(pthread_mutex_lock(&mutex), EOWNERDEAD);
}
END_TEST

START_TEST(rwlocks)
{
	pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
	ck_assert(!rwlock_read_would_wait(&lock) && !rwlock_write_would_wait(&lock));
	ck_assert_int_eq(pthread_rwlock_rdlock(&lock), 0);
	ck_assert(!rwlock_read_would_wait(&lock) && rwlock_write_would_wait(&lock));
	ck_assert_int_eq(pthread_rwlock_trywrlock(&lock), EBUSY);
	pthread_rwlock_unlock(&lock);
	ck_assert(!rwlock_read_would_wait(&lock) && !rwlock_write_would_wait(&lock));
	ck_assert_int_eq(pthread_rwlock_wrlock(&lock), 0);
	ck_assert(rwlock_read_would_wait(&lock) && rwlock_write_would_wait(&lock));
	ck_assert_int_eq(pthread_rwlock_tryrdlock(&lock), EBUSY);
	pthread_rwlock_unlock(&lock);
	ck_assert(!rwlock_read_would_wait(&lock) && !rwlock_write_would_wait(&lock));
	ck_assert_int_eq(pthread_rwlock_trywrlock(&lock), 0);
}
END_TEST

START_TEST(semaphores)
{
	sem_t semaphore;
	ck_assert_int_eq(sem_init(&semaphore, 0, 2), 0);
	for (int left = 2; left > 0; left--) {
		ck_assert(!semaphore_would_wait(&semaphore));
		ck_assert_int_eq(sem_wait(&semaphore), 0);
	}
	ck_assert(semaphore_would_wait(&semaphore));
	sem_post(&semaphore);
	ck_assert(!semaphore_would_wait(&semaphore));
}
END_TEST

START_TEST(spin_locks)
{
	pthread_spinlock_t lock;
	pthread_spin_init(&lock, 0);
	ck_assert(!spin_would_wait(&lock));
	pthread_spin_lock(&lock);
	ck_assert(spin_would_wait(&lock));
	ck_assert_int_eq(pthread_spin_trylock(&lock), EBUSY);
	ck_assert(spin_would_wait(&lock));
	pthread_spin_unlock(&lock);
	ck_assert(!spin_would_wait(&lock));
}
END_TEST

static void *join_barrier(void *barrier)
{
	pthread_barrier_wait(barrier);
	return NULL;
}

START_TEST(barriers)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
	for (int round = 0; round < 100; round++) {
		ck_assert(barrier_would_wait(&barrier));
		ck_assert_int_eq(pthread_create(&thread, NULL, join_barrier, &barrier), 0);
		while (barrier_would_wait(&barrier))
			; /* until it is in: then we would complete the round */
		pthread_barrier_wait(&barrier);
		pthread_join(thread, NULL);
	}
}
END_TEST

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int would_wait_inside;

static void routine(void)
{
	would_wait_inside = once_would_wait(&once);
}

START_TEST(once_controls)
{
	ck_assert(!once_would_wait(&once));
	pthread_once(&once, routine);
	ck_assert(would_wait_inside);
	ck_assert(!once_would_wait(&once));
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {mutexes,  a_dead_owner_is_none, rwlocks, semaphores, spin_locks,
				      barriers, once_controls};
	return unit_suite_of("lock_state", tests, sizeof tests / sizeof *tests, 10);
}
