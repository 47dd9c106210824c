/* SPDX-License-Identifier: MIT */
/* environ set to NULL, to an array of its own and to a broken string; then children in each way. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int child_of(int way)
{
	char *arguments[] = {"prog", "child", NULL};
	int status = -1;
	pid_t pid = 0;

	if (way == 2) {
		if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ))
			return -1;
	} else if ((pid = way == 1 ? vfork() : fork()) == 0) {
		execv("/proc/self/exe", arguments);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static char broken[] = "no equals sign", twice[] = "A=1", again[] = "A=2";
	static char *odd[] = {broken, twice, again, NULL};
	int n = 0;

	(void)argv;
	if (argc > 1) {
		while (environ && environ[n])
			n++;
		return n + (getenv("A") ? 100 : 0) + (getenv("LD_PRELOAD") || getenv("LORG") ? 50 : 0);
	}
	environ = NULL;
	printf("none: %d %d %d", child_of(0), child_of(1), child_of(2));
	setenv("B", "1", 1);
	printf(", one: %d %d %d", child_of(0), child_of(1), child_of(2));
	environ = odd;
	printf(", odd: %d %d %d, system %d\n", child_of(0), child_of(1), child_of(2), system("exit 4") >> 8);
	return 0;
}
