/* SPDX-License-Identifier: MIT */
/* place.c: see place.h. */
#include "collector/client/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

int place_directory(char *directory, size_t size)
{
	const char *given = getenv("LORG_RUNTIME_DIRECTORY"), *runtime = getenv("XDG_RUNTIME_DIR");
	int length;
	if (given && *given)
		length = snprintf(directory, size, "%s", given);
	else if (geteuid() == 0)
		length = snprintf(directory, size, "/run/lorg");
	else if (runtime && *runtime)
		length = snprintf(directory, size, "%s/lorg", runtime);
	else
		length = snprintf(directory, size, "/run/user/%u/lorg", (unsigned)geteuid());
	return length >= 0 && (size_t)length < size ? 0 : -1;
}

/* A path that is too long for a socket's address is reached through its directory. Returns that one's descriptor, or -1. */
static int address_of(const char *directory, struct sockaddr_un *address)
{
	int length = snprintf(address->sun_path, sizeof address->sun_path, "%s/control", directory);
	if (length >= 0 && (size_t)length < sizeof address->sun_path)
		return -1;
	int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/control", fd);
	return fd;
}

int place_connect(const char *directory)
{
	/* For a place in its queue a connection waits, though not for ever. */
	const struct timeval patience = {.tv_sec = 5};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), result, error;
	if (fd < 0)
		return -1;
	int held = address_of(directory, &address);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	do {
		result = connect(fd, (const struct sockaddr *)&address, sizeof address);
		error = errno;
	} while (result && error == EINTR);
	if (held >= 0)
		close(held);
	if (!result)
		return fd;
	close(fd);
	errno = error;
	return -1;
}
