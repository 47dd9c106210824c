/* SPDX-License-Identifier: MIT */
/* sched [cond|mutex] [n]
 * cond: two threads hand a turn back and forth n times (mutex and condition
 * variable). mutex: n lock/unlock pairs of an uncontended mutex.
 */
#include <pthread.h>

#include "bench.h"

struct table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int turn;
	uint64_t n;
};

struct player {
	struct table *table;
	int side;
};

static void *play(void *arg)
{
	struct player *p = arg;
	struct table *t = p->table;

	for (uint64_t i = 0; i < t->n; i++) {
		pthread_mutex_lock(&t->lock);
		while (t->turn != p->side)
			pthread_cond_wait(&t->changed, &t->lock);
		t->turn = !p->side;
		pthread_cond_signal(&t->changed);
		pthread_mutex_unlock(&t->lock);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct table table = { .lock = PTHREAD_MUTEX_INITIALIZER,
			       .changed = PTHREAD_COND_INITIALIZER };
	const char *kind = arg_word(argc, argv, 1, "cond");
	uint64_t n = arg_number(argc, argv, 2, 100000);
	uint64_t start;

	table.n = n;
	start = now_ns();
	if (strcmp(kind, "cond") == 0) {
		struct player side[2] = { { &table, 0 }, { &table, 1 } };
		pthread_t other;

		pthread_create(&other, NULL, play, &side[1]);
		play(&side[0]);
		pthread_join(other, NULL);
	} else {
		for (uint64_t i = 0; i < n; i++) {
			pthread_mutex_lock(&table.lock);
			pthread_mutex_unlock(&table.lock);
		}
	}
	print_result("sched", n, now_ns() - start);
	return 0;
}
