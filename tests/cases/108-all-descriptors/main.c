/* SPDX-License-Identifier: MIT */
/* Uses every number up to 1,023: a pipe over each, close-on-exec by range, a table of its own for a thread, and fcntl games. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *own_table(void *argument)
{
	int *result = argument;

	if (close_range(3, ~0U, CLOSE_RANGE_UNSHARE) != 0)
		return NULL;
	*result = open("/dev/null", O_RDONLY);
	return NULL;
}

int main(void)
{
	int ends[2], sent = 0, taken = 0, flagged = 0, fresh = -1;
	pthread_t thread;
	char byte;

	close_range(3, ~0U, 0);
	if (pipe(ends) || ends[0] != 3 || ends[1] != 4)
		return 1;
	for (int fd = 5; fd < 1024; fd++)
		if (dup2(ends[1], fd) != fd)
			return 2;
	for (int fd = 4; fd < 1024; fd++)
		sent += write(fd, "x", 1) == 1;
	for (int i = 0; i < sent; i++)
		taken += read(ends[0], &byte, 1) == 1;
	if (close_range(500, 1023, CLOSE_RANGE_CLOEXEC))
		return 3;
	for (int fd = 4; fd < 1024; fd++)
		flagged += fcntl(fd, F_GETFD) == FD_CLOEXEC;
	pthread_create(&thread, NULL, own_table, &fresh);
	pthread_join(thread, NULL);
	sent = write(700, "y", 1) == 1 && read(3, &byte, 1) == 1 && byte == 'y';
	closefrom(4);
	int lowest = fcntl(3, F_DUPFD, 900), then = fcntl(3, F_DUPFD_CLOEXEC, 0);
	printf("taken %d, flagged %d, fresh %d, still %d, dup %d %d, end %zd\n", taken, flagged, fresh, sent, lowest, then,
	       read(3, &byte, 1));
	return 0;
}
