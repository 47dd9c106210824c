/* SPDX-License-Identifier: MIT */
/*
 * raw_syscall.c: system calls that a program makes by syscall(). They become
 * the same events as those made through libc's functions.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <time.h>

#include "preload/core/raw.h"
#include "preload/hooks/exec.h"
#include "preload/hooks/exit.h"
#include "preload/hooks/settings.h"
#include "preload/hooks/spawn.h"

/* liblorg.so names no library: this is found in the C library (2.32 and later), or not at all. */
#pragma weak __libc_single_threaded

typedef long syscall_function(long number, long a, long b, long c, long d, long e, long f);

HIDDEN void *syscall_leads_to(long number, long a, long b, long c, long d);

/* Calls whose arguments are those of a function of libc's: that function's family reads them. */
static const struct {
	uint16_t number, hook;
} same_as[] = {
	{SYS_read, HOOK_read},		   {SYS_write, HOOK_write},	    {SYS_readv, HOOK_readv},
	{SYS_writev, HOOK_writev},	   {SYS_recvfrom, HOOK_recvfrom},   {SYS_sendto, HOOK_sendto},
	{SYS_recvmsg, HOOK_recvmsg},	   {SYS_sendmsg, HOOK_sendmsg},	    {SYS_recvmmsg, HOOK_recvmmsg},
	{SYS_sendmmsg, HOOK_sendmmsg},	   {SYS_sendfile, HOOK_sendfile},   {SYS_splice, HOOK_splice},
	{SYS_tee, HOOK_tee},		   {SYS_vmsplice, HOOK_vmsplice},   {SYS_copy_file_range, HOOK_copy_file_range},
	{SYS_msgrcv, HOOK_msgrcv},	   {SYS_msgsnd, HOOK_msgsnd},	    {SYS_mq_timedsend, HOOK_mq_timedsend},
	{SYS_mq_timedreceive, HOOK_mq_timedreceive},
	{SYS_socket, HOOK_socket},	   {SYS_socketpair, HOOK_socketpair}, {SYS_pipe, HOOK_pipe},
	{SYS_pipe2, HOOK_pipe2},	   {SYS_accept, HOOK_accept},	    {SYS_accept4, HOOK_accept4},
	{SYS_connect, HOOK_connect},	   {SYS_bind, HOOK_bind},	    {SYS_listen, HOOK_listen},
	{SYS_shutdown, HOOK_shutdown},	   {SYS_close, HOOK_close},	    {SYS_close_range, HOOK_close_range},
	{SYS_dup, HOOK_dup},		   {SYS_dup2, HOOK_dup2},	    {SYS_dup3, HOOK_dup3},
	{SYS_eventfd2, HOOK_eventfd},	   {SYS_poll, HOOK_poll},	    {SYS_ppoll, HOOK_ppoll},
	{SYS_select, HOOK_select},	   {SYS_epoll_wait, HOOK_epoll_wait}, {SYS_epoll_pwait, HOOK_epoll_pwait},
	{SYS_nanosleep, HOOK_nanosleep},   {SYS_clock_nanosleep, HOOK_clock_nanosleep}, {SYS_pause, HOOK_pause},
	{SYS_sched_yield, HOOK_sched_yield}, {SYS_wait4, HOOK_wait4},	    {SYS_waitid, HOOK_waitid},
	{SYS_kill, HOOK_kill},		   {SYS_tgkill, HOOK_tgkill},
	{SYS_pidfd_open, HOOK_pidfd_open}, {SYS_pidfd_send_signal, HOOK_pidfd_send_signal},
};

enum { NO_HOOK = HOOK_COUNT };

static uint32_t hook_same_as(long number)
{
	for (size_t i = 0; i < sizeof same_as / sizeof *same_as; i++)
		if (same_as[i].number == number)
			return same_as[i].hook;
	return NO_HOOK;
}

static syscall_function *real_syscall(void)
{
	return (syscall_function *)hook_real(HOOK_syscall);
}

/* ---- families ---- */

static void family_enter(struct hook_call *call)
{
	switch (call->hook->family) {
	case FAMILY_message:
		message_enter(call);
		break;
	case FAMILY_port:
		port_enter(call);
		break;
	case FAMILY_wait:
		wait_enter(call);
		break;
	case FAMILY_signal:
		signal_enter(call);
		break;
	default:
		break;
	}
}

static void family_leave(struct hook_call *call, long result)
{
	switch (call->hook->family) {
	case FAMILY_message:
		message_leave(call, result);
		break;
	case FAMILY_port:
		port_leave(call, result);
		break;
	case FAMILY_wait:
		wait_leave(call, result);
		break;
	case FAMILY_signal:
		signal_leave(call, result);
		break;
	default:
		break;
	}
}

static long call_as(uint32_t hook, uintptr_t caller, long number, const long a[6])
{
	struct hook_call call;
	if (!hook_begin(&call, hook))
		return real_syscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	call.caller = caller;
	for (int i = 0; i < 6; i++)
		call.argument[i] = (uintptr_t)a[i];
	int saved_errno = *hook_errno();
	family_enter(&call);
	*hook_errno() = saved_errno;
	long result = real_syscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	saved_errno = *hook_errno();
	call.error = result == -1 ? saved_errno : 0;
	family_leave(&call, result);
	*hook_errno() = saved_errno;
	return result;
}

/* ---- futex ---- */

static int futex_waits(long operation)
{
	switch (operation & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_LOCK_PI:
	case FUTEX_WAIT_REQUEUE_PI:
		return 1;
	default:
		return 0;
	}
}

/* Only FUTEX_WAIT's time-out is relative; of the others it is enough to know that there is one. */
static int64_t futex_timeout(long operation, long time)
{
	struct timespec given;
	if (!time || (operation & FUTEX_CMD_MASK) != FUTEX_WAIT || memory_peek(&given, (const void *)time, sizeof given) != sizeof given)
		return -1;
	return given.tv_sec * 1000000000ll + given.tv_nsec;
}

static long futex(uintptr_t caller, const long a[6])
{
	struct hook_call call;
	if (!futex_waits(a[1]) || !hook_begin(&call, HOOK_syscall))
		return real_syscall()(SYS_futex, a[0], a[1], a[2], a[3], a[4], a[5]);
	int saved_errno = *hook_errno();
	call.caller = caller;
	running_out(&call, (uint64_t)a[0], futex_timeout(a[1], a[3]));
	*hook_errno() = saved_errno;
	long result = real_syscall()(SYS_futex, a[0], a[1], a[2], a[3], a[4], a[5]);
	saved_errno = *hook_errno();
	call.error = result == -1 ? saved_errno : 0;
	if (hook_returned(&call))
		running_in(&call, (uint64_t)a[0], result);
	*hook_errno() = saved_errno;
	return result;
}

/* ---- programs ---- */

static int real_execve(const struct exec_request *request, char *const *environment)
{
	return (int)real_syscall()(SYS_execve, (long)request->path, (long)request->argv, (long)environment, 0, 0, 0);
}

static int real_execveat(const struct exec_request *request, char *const *environment)
{
	return (int)real_syscall()(SYS_execveat, request->directory, (long)request->path, (long)request->argv, (long)environment,
				   request->flags, 0);
}

static long execve_by(const long a[6])
{
	struct exec_request request = {.hook = HOOK_syscall,
				       .directory = AT_FDCWD,
				       .path = (const char *)a[0],
				       .argv = (char *const *)a[1],
				       .environment = (char *const *)a[2],
				       .real = real_execve};
	return exec_through(&request);
}

static long execveat_by(const long a[6])
{
	struct exec_request request = {.hook = HOOK_syscall,
				       .directory = (int)a[0],
				       .flags = (int)a[4],
				       .path = (const char *)a[1],
				       .argv = (char *const *)a[2],
				       .environment = (char *const *)a[3],
				       .real = real_execveat};
	return exec_through(&request);
}

static void thread_leaves(int status)
{
	/* The last thread's end is the program's. */
	if ((&__libc_single_threaded && __libc_single_threaded) || this_thread.vfork_child)
		program_ends(HOOK_syscall, status);
	else
		thread_ends(HOOK_syscall, 0);
}

static long settings_by(long number, const long a[6])
{
	struct settings_rights rights =
		number == SYS_prctl ? settings_before_prctl((int)a[0], (unsigned long)a[1]) : settings_before_seccomp(a[0]);
	long result = real_syscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	int saved_errno = *hook_errno();
	settings_after(&rights, result);
	if (number == SYS_prctl && result >= 0)
		settings_prctl_done(HOOK_syscall, (int)a[0], (unsigned long)a[1]);
	*hook_errno() = saved_errno;
	return result;
}

/* What a program does to memory of which ours may be part goes the way of libc's functions. */
static long memory_by(long number, const long a[6])
{
	switch (number) {
	case SYS_mmap:
		return (long)hook_mmap((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3], (int)a[4], a[5]);
	case SYS_munmap:
		return hook_munmap((void *)a[0], (size_t)a[1]);
	case SYS_mprotect:
		return hook_mprotect((void *)a[0], (size_t)a[1], (int)a[2]);
	default:
		return (long)hook_mremap((void *)a[0], (size_t)a[1], (size_t)a[2], (int)a[3], (void *)a[4]);
	}
}

/* Only where it may concern us. */
static int concerns_arena(long number, long a, long b, long d)
{
	switch (number) {
	case SYS_mmap:
		return (d & MAP_FIXED) && the_arena.shared;
	case SYS_munmap:
	case SYS_mprotect:
		return the_arena.shared && arena_overlaps((const void *)a, (size_t)b);
	case SYS_mremap:
		return the_arena.shared != 0;
	default:
		return 0;
	}
}

static void tell_io_uring(void)
{
	static uint32_t told; /* atomic; once a program */
	struct thread *self = hook_gate(HOOK_syscall) ? thread_self() : 0;
	if (self && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		event_gap(self, "io_uring", "I/O through it is not seen");
}

/* In place of the real function, with its arguments. */
static long syscall_traced(long number, long a, long b, long c, long d, long e, long f)
{
	const long arguments[6] = {a, b, c, d, e, f};
	uintptr_t caller = (uintptr_t)__builtin_return_address(0);
	switch (number) {
	case SYS_fork:
	case SYS_clone:
	case SYS_clone3:
		return spawn_by_syscall(number, arguments, caller);
	case SYS_execve:
		return execve_by(arguments);
	case SYS_execveat:
		return execveat_by(arguments);
	case SYS_exit:
		thread_leaves((int)a);
		break;
	case SYS_exit_group:
		program_ends(HOOK_syscall, (int)a);
		break;
	case SYS_prctl:
	case SYS_seccomp:
		return settings_by(number, arguments);
	case SYS_futex:
		return futex(caller, arguments);
	case SYS_io_uring_setup:
		tell_io_uring();
		break;
	case SYS_mmap:
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_mremap:
		return memory_by(number, arguments);
	default:
		return call_as(hook_same_as(number), caller, number, arguments);
	}
	return real_syscall()(number, a, b, c, d, e, f);
}

/* ---- where a call goes ---- */

/* A child on a stack of its own returns there, through no frame of ours; on our memory, it must be expected. */
static int is_fork_like(uint64_t flags, uint64_t stack)
{
	if (!(flags & CLONE_VM))
		return !stack; /* else it is noticed at its first event */
	if (flags & CLONE_VFORK)
		spawn_expect_child();
	else if (!(flags & CLONE_SETTLS))
		spawn_lose_storage();
	return 0;
}

static int clone3_is_fork_like(long address, long size)
{
	struct clone_args given = {0};
	uint32_t wanted = (size_t)size < sizeof given ? (uint32_t)size : (uint32_t)sizeof given;
	if (wanted < offsetof(struct clone_args, tls) || memory_peek(&given, (const void *)address, wanted) != wanted)
		return 0;
	return is_fork_like(given.flags, given.stack);
}

static int is_traced(long number, long a, long b)
{
	switch (number) {
	case SYS_clone:
		return is_fork_like((uint64_t)a, (uint64_t)b);
	case SYS_clone3:
		return clone3_is_fork_like(a, b);
	case SYS_vfork:
		spawn_expect_child();
		return 0;
	case SYS_fork:
	case SYS_execve:
	case SYS_execveat:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_prctl:
	case SYS_seccomp:
	case SYS_futex:
	case SYS_io_uring_setup:
		return 1;
	default:
		return hook_same_as(number) != NO_HOOK;
	}
}

/* What makes and ends threads and programs. */
static int is_of_life(long number)
{
	return number == SYS_fork || number == SYS_clone || number == SYS_clone3 || number == SYS_exit || number == SYS_exit_group ||
	       number == SYS_execveat;
}

void *syscall_leads_to(long number, long a, long b, long c, long d)
{
	(void)c;
	int saved_errno = *hook_errno();
	int matters = hook_gate(HOOK_syscall) || number == SYS_prctl || number == SYS_seccomp || number == SYS_execve ||
		      (is_of_life(number) && arena_is_live());
	void *target = (matters && is_traced(number, a, b)) || concerns_arena(number, a, b, d) ? (void *)(uintptr_t)syscall_traced : hook_real(HOOK_syscall);
	*hook_errno() = saved_errno;
	return target;
}
