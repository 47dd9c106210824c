/* SPDX-License-Identifier: MIT */
/* The program's own preloaded library: replaces getpid. */
#include <unistd.h>

int only_in_own_library(void)
{
	return 1;
}

pid_t getpid(void)
{
	return 4711;
}
