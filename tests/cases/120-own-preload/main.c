/* SPDX-License-Identifier: MIT */
/* Sets LD_PRELOAD to a library of its own and executes itself: that library must be there, and the variable be its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *child[] = {"prog", argc > 1 ? argv[1] : "", "child", NULL};
	int status;

	if (argc == 3) {
		int (*there)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "only_in_own_library");
		const char *value = getenv("LD_PRELOAD");
		printf("preloaded %s, getpid %d, variable %s\n", there ? "yes" : "no", (int)getpid() == 4711,
		       value ? "set" : "not set");
		if (value && value[0])
			puts(value[0] == '/' ? "as given" : "changed");
		return 0;
	}
	for (int way = 0; way < 2; way++) {
		fflush(stdout);
		if (fork() == 0) {
			if (way == 0)
				setenv("LD_PRELOAD", argv[1], 1);
			else
				unsetenv("LD_PRELOAD");
			execv("/proc/self/exe", child);
			_exit(127);
		}
		wait(&status);
	}
	return 0;
}
