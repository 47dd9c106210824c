/* SPDX-License-Identifier: MIT */
/*
 * spawn.c: fork, vfork, clone, posix_spawn, system, popen and their like.
 *
 * fork passes two of our wrappers: that of the name the program calls, and by
 * a code hook that of libc's inner _Fork, which daemon and forkpty reach, too.
 * The inner one adopts the child before its atfork handlers run; whichever
 * comes first reserves the child's image.
 *
 * posix_spawn, system and popen make their child inside libc. It is met when
 * it comes to the inner execve, still on this thread's memory: there SPAWN is
 * written (spawn_settle). Only where no child was met does the wrapper write it.
 */
#include "preload/hooks/spawn.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>

#include "preload/core/flags.h"
#include "preload/core/module.h"
#include "preload/core/raw.h"
#include "preload/hooks/exec.h"
#include "preload/hooks/exit.h"
#include "preload/hooks/reap.h"

__thread struct spawn_call spawn_under_way __attribute__((tls_model("initial-exec")));

enum { ARGV_BYTES = 1024 /* kept of the arguments in SPAWN: spawn children stand on small stacks */ };

/* ---- the event ---- */

uint32_t spawn_gather(char *to, uint32_t room, char *const *argv)
{
	uint32_t used = 0;
	for (uint32_t i = 0; argv && used < room; i++) {
		const char *text;
		if (memory_peek(&text, argv + i, sizeof text) != sizeof text || !text)
			break;
		uint32_t length = memory_peek_text(text);
		if (length > room - used - 1)
			length = room - used - 1;
		memcpy(to + used, text, length);
		to[used + length] = 0;
		used += length + 1;
	}
	return used;
}

struct thread *spawn_begin(struct spawn_call *call, uint32_t hook, enum lorg_birth how, uintptr_t caller)
{
	if (!hook_lives(hook))
		return 0;
	struct thread *self = thread_self();
	if (!self || self->busy)
		return 0;
	*call = (struct spawn_call){.hook = hook, .how = how, .entry = clock_now(), .caller = caller};
	return self;
}

/* Who makes it, and what it begins with, may have been opened since. */
static void note_modules(struct thread *self, const struct spawn_call *call, const struct spawn_target *target)
{
	if (call->caller)
		module_note(self, call->caller);
	if (target->routine)
		module_note(self, target->routine);
}

void spawn_write(struct thread *self, const struct spawn_call *call, const struct spawn_target *target)
{
	char arguments[ARGV_BYTES];
	flags_spawned(self);
	if (!(hook_gate_of(self, call->hook) & LORG_GATE_PROCESS))
		return;
	note_modules(self, call, target);
	struct lorg_event_SPAWN event = {.entry = call->entry,
					 .routine = target->routine,
					 .argument = target->argument,
					 .caller = call->caller,
					 .how = call->how,
					 .hook = hook_table[call->hook].shown_as,
					 .child_pid = target->pid,
					 .child_tid = target->tid};
	if (target->image_id) {
		memcpy(&event.child_image_low, target->image_id, 8);
		memcpy(&event.child_image_high, (const char *)target->image_id + 8, 8);
	}
	struct event_bytes bytes[] = {{target->file, memory_peek_text(target->file)},
				      {arguments, spawn_gather(arguments, sizeof arguments, target->argv)}};
	event.file_length = bytes[0].length;
	event.argv_length = bytes[1].length;
	event_write(self, LORG_EVENT_SPAWN, &event, sizeof event, bytes, 2, 0);
}

void spawn_prepare(struct thread *self, const struct spawn_call *call, const struct spawn_target *target, uint32_t child)
{
	struct lorg_process *process = self->process;
	if (!(hook_gate_of(self, call->hook) & LORG_GATE_PROCESS))
		return;
	note_modules(self, call, target); /* the child may tell before we do */
	process->spawning.entry = call->entry;
	process->spawning.routine = target->routine;
	process->spawning.argument = target->argument;
	process->spawning.caller = call->caller;
	process->spawning.image_low = process->spawning.image_high = 0;
	if (target->image_id) {
		memcpy(&process->spawning.image_low, target->image_id, 8);
		memcpy(&process->spawning.image_high, (const char *)target->image_id + 8, 8);
	}
	process->spawning.how = call->how;
	process->spawning.hook = hook_table[call->hook].shown_as;
	spawning_begins(self, child);
}

static void prepare_program(struct thread *self, const struct spawn_call *call, uint32_t image_index)
{
	if (image_index == UINT32_MAX)
		return;
	const struct spawn_target target = {.image_id = arena_image(image_index)->id};
	spawn_prepare(self, call, &target, LORG_SPAWNING_IMAGE | (image_index + 1));
}

/* SPAWN of a child that is a program; image_index: what program_fork_before gave. */
static void write_program(struct thread *self, const struct spawn_call *call, uint32_t image_index, int pid)
{
	uint8_t id[16];
	struct spawn_target target = {
		.routine = self->fork_routine, .argument = self->fork_argument, .pid = (uint32_t)pid, .tid = (uint32_t)pid};
	if (image_index != UINT32_MAX) {
		memcpy(id, arena_image(image_index)->id, sizeof id);
		target.image_id = id;
	}
	spawn_write(self, call, &target);
}

/* ---- fork ---- */

/* The fork that the thread is inside of, by the name the program called. */
static __thread struct spawn_call fork_outer __attribute__((tls_model("initial-exec")));

/* In the child, as early as may be: whoever comes first makes the image the child's. */
static void fork_adopt(void)
{
	struct thread *self = &this_thread;
	if (!self->fork_image)
		return;
	uint32_t index = self->fork_image - 1, how = self->fork_how;
	self->fork_image = 0;
	program_fork_child(index, (enum lorg_birth)how);
}

/* Around a call that forks as fork does. `self` is not NULL. */
static int fork_around(struct thread *self, const struct spawn_call *call, int (*real)(const struct spawn_call *call))
{
	int saved_errno = *hook_errno();
	uint32_t index = program_fork_before((enum lorg_birth)call->how);
	self->fork_how = call->how;
	self->fork_caller = call->caller;
	self->fork_routine = self->fork_argument = 0;
	self->fork_image = index + 1;
	prepare_program(self, call, index);
	*hook_errno() = saved_errno;
	int pid = real(call);
	saved_errno = *hook_errno();
	if (pid == 0) {
		fork_adopt();
		*hook_errno() = saved_errno;
		return 0;
	}
	self->fork_image = 0;
	program_fork_parent(index, pid);
	if (pid > 0)
		write_program(self, call, index, pid);
	spawning_ends(self);
	*hook_errno() = saved_errno;
	return pid;
}

static int real_inner_fork(const struct spawn_call *call)
{
	(void)call;
	return REAL(_Fork)();
}

pid_t hook__Fork(void)
{
	struct spawn_call call;
	struct thread *self = spawn_begin(&call, HOOK__Fork, LORG_BIRTH_FORK, (uintptr_t)__builtin_return_address(0));
	if (!self)
		return REAL(_Fork)();
	if (self->fork_image) { /* fork's own wrapper has reserved the image and tells */
		int pid = REAL(_Fork)();
		int saved_errno = *hook_errno();
		if (pid == 0)
			fork_adopt();
		*hook_errno() = saved_errno;
		return pid;
	}
	if (fork_outer.how) { /* daemon, forkpty */
		call.hook = fork_outer.hook;
		call.caller = fork_outer.caller;
		fork_outer.told = 1;
	}
	return fork_around(self, &call, real_inner_fork);
}

static int real_fork(const struct spawn_call *call)
{
	return call->hook == HOOK___fork ? REAL(__fork)() : REAL(fork)();
}

static pid_t fork_by(uint32_t hook, uintptr_t caller)
{
	struct spawn_call call = {.hook = hook};
	struct thread *self = spawn_begin(&call, hook, LORG_BIRTH_FORK, caller);
	return self ? fork_around(self, &call, real_fork) : real_fork(&call);
}

pid_t hook_fork(void)
{
	return fork_by(HOOK_fork, (uintptr_t)__builtin_return_address(0));
}

pid_t hook___fork(void)
{
	return fork_by(HOOK___fork, (uintptr_t)__builtin_return_address(0));
}

struct raw_fork {
	struct spawn_call call;
	long number;
	const long *arguments;
};

static int real_raw_fork(const struct spawn_call *call)
{
	const struct raw_fork *fork = (const struct raw_fork *)call; /* its first member */
	const long *a = fork->arguments;
	return (int)REAL(syscall)(fork->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long spawn_by_syscall(long number, const long arguments[6], uintptr_t caller)
{
	struct raw_fork fork = {.number = number, .arguments = arguments};
	struct thread *self = spawn_begin(&fork.call, HOOK_syscall, number == SYS_fork ? LORG_BIRTH_FORK : LORG_BIRTH_CLONE, caller);
	return self ? fork_around(self, &fork.call, real_raw_fork) : real_raw_fork(&fork.call);
}

/* daemon and forkpty fork inside; the parent of daemon never comes back. */
pid_t hook_forkpty(int *terminal, char *name, const struct termios *settings, const struct winsize *size)
{
	struct spawn_call call;
	struct thread *self = spawn_begin(&call, HOOK_forkpty, LORG_BIRTH_FORK, (uintptr_t)__builtin_return_address(0));
	if (!self)
		return REAL(forkpty)(terminal, name, settings, size);
	fork_outer = call;
	pid_t pid = REAL(forkpty)(terminal, name, settings, size);
	int saved_errno = *hook_errno();
	if (pid > 0 && !fork_outer.told)
		write_program(self, &call, UINT32_MAX, pid);
	fork_outer.how = 0;
	*hook_errno() = saved_errno;
	return pid;
}

int hook_daemon(int stay, int keep)
{
	struct spawn_call call;
	if (!spawn_begin(&call, HOOK_daemon, LORG_BIRTH_FORK, (uintptr_t)__builtin_return_address(0)))
		return REAL(daemon)(stay, keep);
	fork_outer = call;
	int result = REAL(daemon)(stay, keep);
	fork_outer.how = 0;
	return result;
}

/* ---- children on our memory ---- */

void spawn_settle(const char *file, char *const *argv)
{
	struct thread *self = &this_thread;
	struct spawn_call *call = &spawn_under_way;
	if (!self->process || self->vfork_child || !*fork_guard || self->off)
		return;
	uint32_t pid = 0;
	if (system_calls_allowed()) {
		pid = (uint32_t)raw_getpid();
		if (pid == program_own_pid() || !program_own_pid()) {
			call->how = call->told ? call->how : 0;
			return;
		}
	} else if (!call->how) {
		return;
	}
	/* A child that passed no hook of ours: a raw vfork. */
	struct spawn_call unseen = {.hook = HOOK_syscall, .how = LORG_BIRTH_VFORK, .entry = clock_now()};
	const struct spawn_call *seen = call->how ? call : &unseen;
	struct spawn_target target = {.pid = pid, .tid = pid, .file = seen->file ? seen->file : file, .argv = argv};
	uint32_t index = program_fork_before((enum lorg_birth)seen->how);
	uint8_t id[16];
	if (index != UINT32_MAX) {
		memcpy(id, arena_image(index)->id, sizeof id);
		target.image_id = id;
	}
	spawn_write(self, seen, &target);
	call->told = 1;
	call->child_pid = pid;
	char arguments[ARGV_BYTES];
	const struct thread_birth birth = {.caller = seen->caller,
					   .file = target.file,
					   .argv = arguments,
					   .file_length = memory_peek_text(target.file),
					   .argv_length = spawn_gather(arguments, sizeof arguments, argv)};
	thread_enter_shared_child(index, (enum lorg_birth)seen->how, pid, &birth);
}

void spawn_expect_child(void)
{
	struct spawn_call call;
	if (spawn_begin(&call, HOOK_syscall, LORG_BIRTH_VFORK, 0) && !this_thread.vfork_child)
		spawn_under_way = call;
}

void spawn_lose_storage(void)
{
	struct thread *self = thread_self();
	if (!self)
		return;
	event_gap(self, "clone", "the child runs on this thread's thread-local storage: it is not traced");
	thread_share_storage();
}

/* Around a call that makes its child inside libc. */
static struct thread *inside_begin(struct spawn_call *call, struct spawn_call *outer, uint32_t hook, enum lorg_birth how, uintptr_t caller,
				   const char *file)
{
	struct thread *self = spawn_begin(call, hook, how, caller);
	if (!self)
		return 0;
	call->file = file;
	*outer = spawn_under_way;
	spawn_under_way = *call;
	return self;
}

/* pid: as the call told, or 0. Returns the child's pid, 0 if there was none. */
static uint32_t inside_end(struct thread *self, const struct spawn_call *call, const struct spawn_call *outer, uint32_t pid,
			   const char *file, char *const *argv)
{
	struct spawn_call inside = spawn_under_way;
	spawn_under_way = *outer;
	thread_leave_shared_child();
	exec_release();
	if (inside.told)
		return pid ? pid : inside.child_pid;
	if (pid)
		spawn_write(self, call, &(struct spawn_target){.pid = pid, .tid = pid, .file = file, .argv = argv});
	return pid;
}

typedef hook_type_posix_spawn spawn_function;

static int posix_spawn_by(uint32_t hook, uintptr_t caller, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attributes, char *const *argv, char *const *environment)
{
	spawn_function real = (spawn_function)hook_real(hook);
	struct spawn_call call, outer;
	struct thread *self = inside_begin(&call, &outer, hook, LORG_BIRTH_POSIX_SPAWN, caller, path);
	if (!self)
		return real(pid, path, actions, attributes, argv, environment);
	pid_t child = 0;
	int in_path = hook == HOOK_posix_spawnp || hook == HOOK_posix_spawnp_2_2_5;
	int result = real(&child, path, actions, attributes, argv, exec_environment(self, path, in_path, argv, environment));
	int saved_errno = *hook_errno();
	if (result == 0 && pid)
		*pid = child;
	inside_end(self, &call, &outer, result == 0 ? (uint32_t)child : 0, path, argv);
	*hook_errno() = saved_errno;
	return result;
}

int hook_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		     char *const *argv, char *const *environment)
{
	return posix_spawn_by(HOOK_posix_spawn, (uintptr_t)__builtin_return_address(0), pid, path, actions, attributes, argv, environment);
}

int hook_posix_spawn_2_2_5(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			   const posix_spawnattr_t *attributes, char *const *argv, char *const *environment)
{
	return posix_spawn_by(HOOK_posix_spawn_2_2_5, (uintptr_t)__builtin_return_address(0), pid, path, actions, attributes, argv,
			      environment);
}

int hook_posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		      char *const *argv, char *const *environment)
{
	return posix_spawn_by(HOOK_posix_spawnp, (uintptr_t)__builtin_return_address(0), pid, path, actions, attributes, argv, environment);
}

int hook_posix_spawnp_2_2_5(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
			    const posix_spawnattr_t *attributes, char *const *argv, char *const *environment)
{
	return posix_spawn_by(HOOK_posix_spawnp_2_2_5, (uintptr_t)__builtin_return_address(0), pid, path, actions, attributes, argv,
			      environment);
}

/* The same, but that the caller gets a descriptor of the child; its pid is known from the child alone. */
static int pidfd_spawn_by(uint32_t hook, uintptr_t caller, int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
			  const posix_spawnattr_t *attributes, char *const *argv, char *const *environment)
{
	hook_type_pidfd_spawn real = (hook_type_pidfd_spawn)hook_real(hook);
	struct spawn_call call, outer;
	struct thread *self = inside_begin(&call, &outer, hook, LORG_BIRTH_POSIX_SPAWN, caller, path);
	int result = real(pidfd, path, actions, attributes, argv, environment);
	int saved_errno = *hook_errno();
	if (self)
		inside_end(self, &call, &outer, 0, path, argv);
	*hook_errno() = saved_errno;
	return result;
}

int hook_pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		     char *const *argv, char *const *environment)
{
	return pidfd_spawn_by(HOOK_pidfd_spawn, (uintptr_t)__builtin_return_address(0), pidfd, path, actions, attributes, argv,
			      environment);
}

int hook_pidfd_spawnp(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		      char *const *argv, char *const *environment)
{
	return pidfd_spawn_by(HOOK_pidfd_spawnp, (uintptr_t)__builtin_return_address(0), pidfd, path, actions, attributes, argv,
			      environment);
}

/* ---- system, popen ---- */

static void fill_call(struct hook_call *call, struct thread *self, const struct spawn_call *spawn)
{
	*call = (struct hook_call){.hook = &hook_table[spawn->hook], .self = self, .gate = hook_gate_of(self, spawn->hook), .caller = spawn->caller};
	call->entry = spawn->entry;
}

int hook_system(const char *path)
{
	struct spawn_call call, outer;
	struct hook_call wait;
	int saved_errno = *hook_errno();
	struct thread *self = inside_begin(&call, &outer, HOOK_system, LORG_BIRTH_SYSTEM, (uintptr_t)__builtin_return_address(0), 0);
	if (!self)
		return REAL(system)(path);
	char *const argv[] = {"sh", "-c", (char *)(uintptr_t)path, 0};
	fill_call(&wait, self, &call);
	running_out(&wait, UINT64_MAX, -1);
	*hook_errno() = saved_errno;
	int status = REAL(system)(path);
	saved_errno = *hook_errno();
	uint32_t pid = inside_end(self, &call, &outer, 0, "/bin/sh", argv);
	running_in(&wait, UINT64_MAX, status);
	if (pid && status != -1 && (wait.gate & LORG_GATE_PROCESS))
		EVENT_WRITE(self, REAPED, .since = call.entry, .hook = HOOK_system, .pid = pid, .status = status);
	*hook_errno() = saved_errno;
	return status;
}

/* Descriptors of popen streams and their children, until pclose. */
enum { POPEN_STREAMS = 64 };
static uint64_t popen_streams[POPEN_STREAMS]; /* atomic; descriptor + 1, pid << 32; 0: free */

static void popen_note(int fd, uint32_t pid)
{
	for (unsigned i = 0; i < POPEN_STREAMS && fd >= 0 && pid; i++) {
		uint64_t seen = 0;
		if (__atomic_compare_exchange_n(&popen_streams[i], &seen, (uint64_t)pid << 32 | ((uint32_t)fd + 1), 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return;
	}
}

uint32_t popen_forget(int fd)
{
	for (unsigned i = 0; i < POPEN_STREAMS; i++) {
		uint64_t seen = __atomic_load_n(&popen_streams[i], __ATOMIC_RELAXED);
		if ((uint32_t)seen == (uint32_t)fd + 1 && seen &&
		    __atomic_compare_exchange_n(&popen_streams[i], &seen, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return (uint32_t)(seen >> 32);
	}
	return 0;
}

static FILE *popen_by(uint32_t hook, uintptr_t caller, const char *path, const char *mode)
{
	hook_type_popen real = (hook_type_popen)hook_real(hook);
	struct spawn_call call, outer;
	struct thread *self = inside_begin(&call, &outer, hook, LORG_BIRTH_POPEN, caller, 0);
	if (!self)
		return real(path, mode);
	char *const argv[] = {"sh", "-c", (char *)(uintptr_t)path, 0};
	FILE *stream = real(path, mode);
	int saved_errno = *hook_errno();
	uint32_t pid = inside_end(self, &call, &outer, 0, "/bin/sh", argv);
	if (stream) {
		struct hook_call opened;
		fill_call(&opened, self, &call);
		popen_note((int)stream_descriptor(stream), pid);
		port_opened(&opened, (int)stream_descriptor(stream), -1);
	}
	*hook_errno() = saved_errno;
	return stream;
}

FILE *hook_popen(const char *path, const char *mode)
{
	return popen_by(HOOK_popen, (uintptr_t)__builtin_return_address(0), path, mode);
}

FILE *hook__IO_popen(const char *path, const char *mode)
{
	return popen_by(HOOK__IO_popen, (uintptr_t)__builtin_return_address(0), path, mode);
}

/* ---- clone ---- */

/* What the child of clone is given: on the caller's frame, which the child has a copy of, or which waits for it. */
struct clone_start {
	int (*routine)(void *);
	void *argument;
	uint32_t image_index;
	uint32_t shares_memory;
	uint32_t how;
};

static int clone_child(void *given)
{
	struct clone_start start = *(struct clone_start *)given;
	const struct thread_birth birth = {
		.caller = this_thread.fork_caller, .routine = (uintptr_t)start.routine, .argument = (uintptr_t)start.argument};
	if (start.shares_memory)
		thread_enter_shared_child(start.image_index, (enum lorg_birth)start.how, 0, &birth);
	else
		fork_adopt();
	int status = start.routine(start.argument);
	program_ends(HOOK_clone, status);
	return status;
}

/* The rest of clone's arguments; those that were not given are never looked at. */
struct clone_rest {
	pid_t *parent_tid;
	void *tls;
	pid_t *child_tid;
};

static int clone_as_program(struct thread *self, struct spawn_call *call, hook_type_clone real, struct clone_start *start,
			    void *stack, int flags, const struct clone_rest *rest)
{
	uint32_t index = program_fork_before(LORG_BIRTH_CLONE);
	start->image_index = index;
	start->how = call->how;
	self->fork_how = call->how;
	self->fork_caller = call->caller;
	self->fork_routine = (uintptr_t)start->routine;
	self->fork_argument = (uintptr_t)start->argument;
	self->fork_image = start->shares_memory ? 0 : index + 1;
	int pid = real(clone_child, stack, flags, start, rest->parent_tid, rest->tls, rest->child_tid);
	int saved_errno = *hook_errno();
	self->fork_image = 0;
	thread_leave_shared_child();
	exec_release();
	program_fork_parent(index, pid);
	if (pid > 0)
		write_program(self, call, index, pid);
	*hook_errno() = saved_errno;
	return pid;
}

/* The child is not followed: it has thread-local storage of its own making, or shares ours while we go on. */
static int clone_apart(struct thread *self, struct spawn_call *call, hook_type_clone real, struct clone_start *start, void *stack,
		       int flags, const struct clone_rest *rest)
{
	if (!(flags & CLONE_SETTLS))
		spawn_lose_storage();
	int tid = real(start->routine, stack, flags, start->argument, rest->parent_tid, rest->tls, rest->child_tid);
	int saved_errno = *hook_errno();
	struct spawn_target target = {.routine = (uintptr_t)start->routine,
				      .argument = (uintptr_t)start->argument,
				      .pid = flags & CLONE_THREAD ? program_own_pid() : (uint32_t)tid,
				      .tid = (uint32_t)tid};
	if (tid > 0 && thread_self())
		spawn_write(self, call, &target);
	*hook_errno() = saved_errno;
	return tid;
}

static int clone_by(uint32_t hook, uintptr_t caller, int (*routine)(void *), void *stack, int flags, void *argument,
		    const struct clone_rest *rest)
{
	hook_type_clone real = (hook_type_clone)hook_real(hook);
	struct clone_start start = {.routine = routine, .argument = argument};
	struct spawn_call call;
	struct thread *self = routine ? spawn_begin(&call, hook, LORG_BIRTH_CLONE, caller) : 0;
	if (!self)
		return real(routine, stack, flags, argument, rest->parent_tid, rest->tls, rest->child_tid);
	int suspends = (flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK);
	if ((flags & CLONE_SETTLS) || ((flags & CLONE_VM) && !suspends))
		return clone_apart(self, &call, real, &start, stack, flags, rest);
	start.shares_memory = (uint32_t)suspends;
	return clone_as_program(self, &call, real, &start, stack, flags, rest);
}

int hook_clone(int (*routine)(void *), void *stack, int flags, void *argument, ...)
{
	va_list list;
	va_start(list, argument);
	struct clone_rest rest = {.parent_tid = va_arg(list, pid_t *)};
	rest.tls = va_arg(list, void *);
	rest.child_tid = va_arg(list, pid_t *);
	va_end(list);
	return clone_by(HOOK_clone, (uintptr_t)__builtin_return_address(0), routine, stack, flags, argument, &rest);
}

int hook___clone(int (*routine)(void *), void *stack, int flags, void *argument, ...)
{
	va_list list;
	va_start(list, argument);
	struct clone_rest rest = {.parent_tid = va_arg(list, pid_t *)};
	rest.tls = va_arg(list, void *);
	rest.child_tid = va_arg(list, pid_t *);
	va_end(list);
	return clone_by(HOOK___clone, (uintptr_t)__builtin_return_address(0), routine, stack, flags, argument, &rest);
}

/* ---- vfork: the parts that vfork.S calls ---- */

/* Travels in two registers across the system call. */
struct vfork_ticket {
	uint64_t entry;	      /* tick; 0: not traced */
	uint64_t image_index; /* of the child */
};

HIDDEN struct vfork_ticket vfork_before(void);
HIDDEN void vfork_child(uint64_t image_index, uint64_t entry, uintptr_t caller);
HIDDEN int vfork_parent(uint64_t image_index, uint64_t entry, uintptr_t caller, long result);

struct vfork_ticket vfork_before(void)
{
	struct spawn_call call;
	struct vfork_ticket ticket = {0, UINT32_MAX};
	int saved_errno = *hook_errno();
	if (spawn_begin(&call, HOOK_vfork, LORG_BIRTH_VFORK, 0) && !this_thread.vfork_child) {
		ticket.entry = call.entry;
		ticket.image_index = program_fork_before(LORG_BIRTH_VFORK);
	}
	*hook_errno() = saved_errno;
	return ticket;
}

void vfork_child(uint64_t image_index, uint64_t entry, uintptr_t caller)
{
	const struct thread_birth birth = {.caller = caller};
	int saved_errno = *hook_errno();
	if (entry)
		thread_enter_shared_child((uint32_t)image_index, LORG_BIRTH_VFORK, 0, &birth);
	*hook_errno() = saved_errno;
}

int vfork_parent(uint64_t image_index, uint64_t entry, uintptr_t caller, long result)
{
	struct spawn_call call = {.hook = HOOK_vfork, .how = LORG_BIRTH_VFORK, .entry = entry, .caller = caller};
	this_thread.fork_routine = this_thread.fork_argument = 0;
	int saved_errno = result < 0 ? (int)-result : *hook_errno();
	if (entry) {
		thread_leave_shared_child();
		exec_release();
		program_fork_parent((uint32_t)image_index, (int)result);
		if (result > 0)
			write_program(&this_thread, &call, (uint32_t)image_index, (int)result);
	}
	*hook_errno() = saved_errno;
	return result < 0 ? -1 : (int)result;
}

/* The rows that the family's generated code would use; all of them have code of their own. */
void spawn_enter(struct hook_call *call)
{
	call->entry = clock_now();
}

void spawn_leave(struct hook_call *call, intptr_t result)
{
	(void)call;
	(void)result;
}
