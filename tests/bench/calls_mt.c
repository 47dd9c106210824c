/* SPDX-License-Identifier: MIT */
/* calls_mt [threads] [leaf|fib|deep] [n] [depth]
 * As calls, with every thread doing n calls of its own.
 */
#include <pthread.h>

#include "work.h"

struct job {
	const char *shape;
	uint64_t n;
	unsigned depth;
	uint64_t ops;
	pthread_barrier_t *go;
};

static void *run_job(void *arg)
{
	struct job *job = arg;

	pthread_barrier_wait(job->go);
	job->ops = do_calls(job->shape, job->n, job->depth);
	return NULL;
}

int main(int argc, char **argv)
{
	enum { MAX_THREADS = 256 };
	static struct job jobs[MAX_THREADS];
	static pthread_t threads[MAX_THREADS];
	unsigned count = (unsigned)arg_number(argc, argv, 1, 2);
	pthread_barrier_t go;
	uint64_t start, ops = 0;

	if (count < 1 || count > MAX_THREADS)
		return 2;
	pthread_barrier_init(&go, NULL, count + 1);
	for (unsigned i = 0; i < count; i++) {
		jobs[i].shape = arg_word(argc, argv, 2, "leaf");
		jobs[i].n = arg_number(argc, argv, 3, 1000000);
		jobs[i].depth = (unsigned)arg_number(argc, argv, 4, 100);
		jobs[i].go = &go;
		pthread_create(&threads[i], NULL, run_job, &jobs[i]);
	}
	start = now_ns();
	pthread_barrier_wait(&go);
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		ops += jobs[i].ops;
	}
	print_result("calls_mt", ops, now_ns() - start);
	return 0;
}
