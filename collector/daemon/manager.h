/* SPDX-License-Identifier: MIT */
/* manager.h: what a service manager (systemd) is told, and hands over: sd_notify and socket activation, without libsystemd. */
#ifndef LORG_DAEMON_MANAGER_H
#define LORG_DAEMON_MANAGER_H

#include <stdint.h>

/*
 * The listening Unix socket that this process was started with (LISTEN_FDS); -1: none. Further ones are closed; the
 * variables are taken out of the environment.
 */
int manager_listener(void);

/* One or more lines VARIABLE=VALUE to NOTIFY_SOCKET; nothing happens where there is none. */
void manager_notify(const char *state);
/* The same at the beginning of a reload, which has to say the time. */
void manager_notify_reloading(void);

/* How often it wants to hear WATCHDOG=1, twice what it asks for; 0: it does not. */
uint64_t manager_watch_ns(void);

#endif
