/* SPDX-License-Identifier: MIT */
/*
 * server.h: the loop of lorgd: clients, programs and signals, in one thread.
 *
 * Clients take turns: each is read from once and served a few requests, so
 * that none has to wait for what another one does. What nobody may do to the
 * others: fill the memory (connection.h has the limits), or take all places
 * for connections: who has not said hello, then who has been idle for longest
 * and has no session, makes room for a new one.
 */
#ifndef LORG_DAEMON_SERVER_H
#define LORG_DAEMON_SERVER_H

#include <stdint.h>

struct collector;
struct server;

struct server_settings {
	struct collector *collector; /* a lorgd's */
	int listener;		     /* listening, non-blocking */
	int signals;		     /* signalfd: SIGTERM and SIGINT end it, SIGHUP calls reload, SIGUSR1 restart */
	uint64_t epoch;
	uint64_t idle_exit_ns; /* ends when nobody has wanted anything for so long; 0: never */
	unsigned connections;  /* at most */
	void (*reload)(void *context);
	void (*restart)(void *context); /* behind this process, another one goes on: does not return, where all is well */
	void (*changed)(void *context); /* sessions may be others than before */
	uint64_t alive_ns; /* how often `alive` is called while all is well; 0: never */
	void (*alive)(void *context);
	void *context;
};

/* NULL with errno. */
struct server *server_create(const struct server_settings *settings);
/* What requests are served by; the server's. */
struct service;
struct service *server_service(struct server *server);

/* Clients come by this listener from now on; the one before is closed. */
void server_listen(struct server *server, int listener);
/* Until it is told to end. 0, or -1 with errno. */
int server_run(struct server *server);
/* It was told to end (SIGTERM), and another one may come: what is there is to be left to that. */
int server_is_relieved(const struct server *server);
/* Before a restart: sessions that do not persist end. */
void server_let_go(struct server *server);
/* Clients get what they take at once. */
void server_say_goodbye(struct server *server);
/* Ends the sessions and the collector, tells clients, and frees all. */
void server_end(struct server *server);

#endif
