/* SPDX-License-Identifier: MIT */
/* spawn [threads|fork|exec] [n] [program]
 * n short lives, one after another: a thread created and joined, a fork that
 * exits at once, or a fork that execs `program`.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static void *short_life(void *arg)
{
	return arg;
}

static void one_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, short_life, NULL) != 0)
		exit(1);
	pthread_join(t, NULL);
}

static void one_child(const char *program)
{
	pid_t child = fork();

	if (child == 0) {
		if (program)
			execl(program, program, (char *)NULL);
		_exit(program ? 127 : 0);
	}
	if (child < 0 || waitpid(child, NULL, 0) != child)
		exit(1);
}

int main(int argc, char **argv)
{
	const char *kind = arg_word(argc, argv, 1, "threads");
	uint64_t n = arg_number(argc, argv, 2, 2000);
	const char *program = arg_word(argc, argv, 3, "/bin/true");
	uint64_t start = now_ns();

	for (uint64_t i = 0; i < n; i++) {
		if (strcmp(kind, "threads") == 0)
			one_thread();
		else
			one_child(strcmp(kind, "exec") == 0 ? program : NULL);
	}
	print_result("spawn", n, now_ns() - start);
	return 0;
}
