/* SPDX-License-Identifier: MIT */
/* Works at load and unload time: memory, a pipe, thread-local storage. */
#include <stdlib.h>
#include <unistd.h>

int plug_loads;
static __thread int calls;
static void *block;

__attribute__((constructor)) static void load(void)
{
	int ends[2];
	char byte = 'x';

	block = malloc(100);
	if (pipe(ends) == 0 && write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1)
		plug_loads++;
	close(ends[0]);
	close(ends[1]);
}

__attribute__((destructor)) static void unload(void)
{
	free(block);
}

int plug_call(int x)
{
	calls++;
	return x + 1;
}
