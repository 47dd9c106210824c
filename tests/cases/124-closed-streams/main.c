/* SPDX-License-Identifier: MIT */
/* Started with its standard streams closed: what it opens first gets their numbers, and must keep them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int in = open("/dev/null", O_RDONLY), out = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
	int status = 0;

	if (argc == 2 && fork() == 0) {
		close(in);
		close(out);
		execl("/proc/self/exe", "prog", argv[1], "child", (char *)NULL);
		_exit(127);
	}
	wait(&status);
	dprintf(out, "%s: %d %d\n", argc > 2 ? "child" : "first", in, out);
	if (argc == 2)
		dprintf(out, "error %d\n", open("/dev/null", O_WRONLY));
	return status ? 1 : out;
}
