/* SPDX-License-Identifier: MIT */
/*
 * directory.h: the runtime directory of a lorgd, and what stands in it:
 *
 *     lock      held as long as it runs, so that there is one only; its pid
 *     control   the socket for clients (protocol.h)
 *     programs  the value of the variable LORG, for programs that start without it; written whole
 *
 * It is the user's own, mode 0700: nobody else can reach anything in it.
 */
#ifndef LORG_DAEMON_DIRECTORY_H
#define LORG_DAEMON_DIRECTORY_H

#include <limits.h>
#include <stddef.h>

struct directory {
	char path[PATH_MAX];
	int lock;	 /* descriptor; -1: none */
	int listener;	 /* likewise */
	int is_given;	 /* the listener is somebody else's (socket activation) and stays */
	int has_programs;
};

/* What went wrong, in the parts of an error line. */
struct directory_failure {
	char what[PATH_MAX + 64];
	const char *why, *advice;
};

/* Makes it if need be, checks whose it is, and locks it. path: absolute. 0, or -1 with *failure. */
int directory_open(struct directory *directory, const char *path, struct directory_failure *failure);
/* Listens; given: a listening socket that was handed over, -1: none. 0, or -1 with *failure. */
int directory_listen(struct directory *directory, int given, struct directory_failure *failure);
/* The socket for clients has been taken away: another one listens in its place. Its descriptor, or -1: all is as it should be. */
int directory_listen_again(struct directory *directory);
/* A listening socket of that name in it; -1 with errno. */
int directory_socket(const struct directory *directory, const char *name, int type);
/* From now on programs find their way. 0, or -1 with *failure. */
int directory_write_programs(struct directory *directory, const char *value, struct directory_failure *failure);
/* From now on they do not. */
void directory_remove_programs(struct directory *directory);
/* Lets go of the lock and what people talk to; what the next lorgd finds stays. */
void directory_leave(struct directory *directory);
/* Takes away what stands in it, and the lock. */
void directory_close(struct directory *directory);

#endif
