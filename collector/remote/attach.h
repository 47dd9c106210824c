/* SPDX-License-Identifier: MIT */
/*
 * attach.h: brings liblorg.so into a program that was started without it, and takes its hooks out of one again.
 *
 * The program's own loader loads it (dlopen in one of its threads, remote.h); then it attaches to the collector, the C
 * library's inner entries are changed while all threads are held, and the slots of all modules are led to its wrappers.
 * Whatever fails on the way leaves the program as it was, but for the library that stays mapped.
 */
#ifndef LORG_REMOTE_ATTACH_H
#define LORG_REMOTE_ATTACH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct attach_result {
	int error;                      /* errno, or 0 */
	char why[256];                  /* what went wrong: "" nothing */
	const char *advice;             /* what to do; NULL: nothing is known */
	uint32_t slots;                 /* that were changed */
	uint32_t entries, entries_left; /* of the C library: changed, and left as they were */
};

/*
 * library: path of liblorg.so, as this process sees it; settings: the text of a daemon's file `programs` (the variable
 * LORG). 0, or -1. Takes up to some seconds.
 */
int attach_program(pid_t pid, const char *library, const char *settings, struct attach_result *result);

/* 0, or -1. A program that was started with lorg goes on forwarding. */
int detach_program(pid_t pid, struct attach_result *result);

/* The text of the file `programs` in the daemon's runtime directory. 0, or -1: there is none (errno). */
int attach_settings(const char *directory, char *text, size_t size);

#endif
