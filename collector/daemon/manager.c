/* SPDX-License-Identifier: MIT */
/* manager.c: see manager.h. */
#include "collector/daemon/manager.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_DESCRIPTOR = 3, MOST_DESCRIPTORS = 1024 };

static int is_listener(int descriptor)
{
	int value = 0;
	socklen_t size = sizeof value;
	struct sockaddr_un address;
	socklen_t address_size = sizeof address;
	if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) || !value)
		return 0;
	if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &value, &size) || value != SOCK_STREAM)
		return 0;
	return getsockname(descriptor, (struct sockaddr *)&address, &address_size) == 0 && address.sun_family == AF_UNIX;
}

static void make_own(int descriptor)
{
	fcntl(descriptor, F_SETFD, FD_CLOEXEC);
	fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

int manager_listener(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	long descriptors = pid && count && strtol(pid, NULL, 10) == getpid() ? strtol(count, NULL, 10) : 0;
	int listener = -1;
	for (int i = 0; i < descriptors && i < MOST_DESCRIPTORS; i++) {
		int descriptor = FIRST_DESCRIPTOR + i;
		if (listener >= 0 || !is_listener(descriptor)) {
			close(descriptor);
			continue;
		}
		make_own(descriptor);
		listener = descriptor;
	}
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return listener;
}

void manager_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = path ? strlen(path) : 0;
	if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = 0; /* abstract */
	int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (descriptor < 0)
		return;
	sendto(descriptor, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	close(descriptor);
}

uint64_t manager_watch_ns(void)
{
	const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us = period && (!pid || strtol(pid, NULL, 10) == getpid()) ? strtoull(period, NULL, 10) : 0;
	return us * 1000 / 2;
}

void manager_notify_reloading(void)
{
	char state[80];
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
	manager_notify(state);
}
