/* SPDX-License-Identifier: MIT */
/* proc.h: what /proc and pidfds tell of other processes. Nothing here changes them. */
#ifndef LORG_COLLECT_PROC_H
#define LORG_COLLECT_PROC_H

#include <stdint.h>
#include <sys/types.h>

/* A descriptor that becomes readable when the process has ended; close-on-exec; -1 with errno (ESRCH: no such process). */
int proc_open(pid_t pid);

/* True when the process of this pidfd still runs. */
int proc_alive(int pidfd);

enum proc_maps {
	PROC_MAPS_SHOWN,   /* the file is mapped */
	PROC_MAPS_NOT,	   /* it is not */
	PROC_MAPS_UNKNOWN, /* the maps may not be read */
	PROC_MAPS_GONE,	   /* there is no such process */
};

/* Whether the process has the file of this inode mapped (a memfd's device is the kernel's internal one). */
enum proc_maps proc_has_mapped(pid_t pid, ino_t inode);

/* The pid, or with tid its thread, as the innermost namespace numbers it; 0 unknown. *nested: it is in a namespace below ours. */
uint32_t proc_inner_id(pid_t pid, pid_t tid, int *nested);

/*
 * A process that has `inode` mapped and that its own namespace numbers `inner` (0: any); where maps may not be read, one
 * of that number in a namespace below ours. `skip` says which not to look at. 0: none.
 */
pid_t proc_find(ino_t inode, uint32_t inner, int (*skip)(pid_t pid, void *context), void *context);

/* The thread of `pid` that its own namespace numbers `inner`; 0: none. */
pid_t proc_find_thread(pid_t pid, uint32_t inner);

/* True while the thread exists. */
int proc_thread_exists(pid_t pid, pid_t tid);

/*
 * How a process that has ended did so, as wait(2) has it: from the kernel's record at the pidfd, or from the zombie.
 * 0 and *status, or -1: not (yet) known.
 */
int proc_exit_status(int pidfd, pid_t pid, int *status);

#endif
