/* SPDX-License-Identifier: MIT */
/*
 * spawn.h: what the wrappers of spawning, executing and ending share.
 *
 * A child may run on its parent's memory and thread-local storage (vfork, the
 * child inside posix_spawn, system and popen, clone with CLONE_VM). While it
 * does, this_thread names an entry of the child's own (thread.h,
 * thread_enter_shared_child). Where the child is first met in our code, at its
 * exec or exit, spawn_settle() finds out who runs.
 */
#ifndef LORG_PRELOAD_SPAWN_H
#define LORG_PRELOAD_SPAWN_H

#include "preload/hook.h"

/* One spawning call, from its entry to its SPAWN event. */
struct spawn_call {
	uint32_t hook;
	uint32_t how;	  /* enum lorg_birth; 0: none is under way */
	uint64_t entry;	  /* tick */
	uintptr_t caller; /* return address of the wrapper */
	uint32_t child_pid; /* learnt from the child itself, 0: not yet */
	uint32_t told;	  /* 1: its SPAWN is written */
	const char *file; /* as the call named it; NULL: as the child executes it */
};

/*
 * The call of this kind that the thread is inside of. A jump out of it leaves it behind: whoever reads it checks
 * that it runs in a child.
 */
extern HIDDEN __thread struct spawn_call spawn_under_way __attribute__((tls_model("initial-exec")));

/* What a child was made to run. Texts may be NULL. */
struct spawn_target {
	const void *image_id; /* 16 bytes, NULL: a thread, or not known */
	uint64_t routine, argument;
	uint32_t pid, tid;
	const char *file;
	char *const *argv;
};

/* Fills *call. Returns the calling thread, or NULL: forward only. */
HIDDEN struct thread *spawn_begin(struct spawn_call *call, uint32_t hook, enum lorg_birth how, uintptr_t caller);

/*
 * The same SPAWN, for the case that the calling thread does not live to write it: to be called before the child is made.
 * child: of lorg_process.spawning. spawning_ends when all is done.
 */
HIDDEN void spawn_prepare(struct thread *self, const struct spawn_call *call, const struct spawn_target *target, uint32_t child);

/* Writes SPAWN where the hook's gate asks for it. Reads the target's texts fault-safely. */
HIDDEN void spawn_write(struct thread *self, const struct spawn_call *call, const struct spawn_target *target);

/*
 * Called where a program is executed or ends: if the caller is a child on its parent's memory, it is given an entry
 * of its own and SPAWN is written in the parent's stream. file, argv: what it executes, or NULL.
 */
HIDDEN void spawn_settle(const char *file, char *const *argv);

/* Copies the strings of argv, each with its zero, until `room` is full. Returns the bytes written. Fault-safe. */
HIDDEN uint32_t spawn_gather(char *to, uint32_t room, char *const *argv);

/* The thread id of a thread made by pthread_create, 0 if not known; *index gets its process index. */
HIDDEN uint32_t thread_of_handle(uint64_t handle, uint32_t *index);

/* Maps what new threads are told through, if it is not there yet: called before system calls become forbidden. */
HIDDEN void thread_tables_prepare(void);

/* Forgets the popen stream with this descriptor and returns the pid of its child, 0 if not known. */
HIDDEN uint32_t popen_forget(int fd);

/* fork, clone or clone3 by syscall(), where the child goes on as a copy of the caller. */
HIDDEN long spawn_by_syscall(long number, const long arguments[6], uintptr_t caller);

/* A raw vfork or its like is about to be made: its child is met at its exec or exit. */
HIDDEN void spawn_expect_child(void);

/* A child is about to be made that shares this thread's thread-local storage while the thread goes on: told as a gap. */
HIDDEN void spawn_lose_storage(void);

/* Assembly. */
HIDDEN void *thread_start(void *start);

#endif
