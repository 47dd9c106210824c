/* SPDX-License-Identifier: MIT */
/* hold.c: see hold.h. */
#include "collector/patch/hold.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_STOP = 128 /* PTRACE_EVENT_STOP */, SYSCALL_LENGTH = 2, JOIN_STEP_NS = 5000000, LATE_NS = 1000000000, PRIORITY = -20 };
static const uint64_t UNINTERRUPTIBLE_NS = 10000000; /* so long for a thread that sleeps in the kernel and cannot be woken */

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void moment(long ns)
{
	nanosleep(&(struct timespec){0, ns}, NULL);
}

/* ---- what /proc says of a thread -------------------------------------------- */

struct thread_status {
	char state;
	pid_t tracer;
	uint64_t pending, blocked;
	uint64_t ignored; /* what nobody learns of: nothing is done about it */
};

/* Where no handler is set, these do nothing. */
static const uint64_t IGNORED_BY_DEFAULT =
	1ull << (SIGCHLD - 1) | 1ull << (SIGURG - 1) | 1ull << (SIGWINCH - 1) | 1ull << (SIGCONT - 1);

/* 0; or -1: it is not known, or (state 'X') there is no such thread. */
static int read_status(pid_t pid, pid_t tid, struct thread_status *status)
{
	char path[64], line[256];
	uint64_t pending = 0, shared = 0, ignored = 0, caught = 0;
	memset(status, 0, sizeof *status);
	snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
	FILE *file = fopen(path, "re");
	if (!file) {
		status->state = errno == ENOENT || errno == ESRCH ? 'X' : 0;
		return -1;
	}
	while (fgets(line, sizeof line, file)) {
		sscanf(line, "State: %c", &status->state);
		sscanf(line, "TracerPid: %d", &status->tracer);
		sscanf(line, "SigPnd: %" SCNx64, &pending);
		sscanf(line, "ShdPnd: %" SCNx64, &shared);
		sscanf(line, "SigBlk: %" SCNx64, &status->blocked);
		sscanf(line, "SigIgn: %" SCNx64, &ignored);
		sscanf(line, "SigCgt: %" SCNx64, &caught);
	}
	fclose(file);
	status->pending = pending | shared;
	status->ignored = ignored | (IGNORED_BY_DEFAULT & ~caught);
	return 0;
}

/* ---- seizing ----------------------------------------------------------------- */

static int fail(struct hold *hold, int error, const char *why)
{
	hold->error = error;
	hold->why = why;
	return -1;
}

static struct held *held_of(struct hold *hold, pid_t tid)
{
	for (uint32_t i = 0; i < hold->count; i++)
		if (hold->threads[i].tid == tid)
			return &hold->threads[i];
	return NULL;
}

/* Only what is certain: a thread that is taken for ended is written around. */
static int has_ended(pid_t pid, pid_t tid, struct thread_status *status)
{
	read_status(pid, tid, status);
	return status->state == 'Z' || status->state == 'X';
}

static int refused(struct hold *hold, pid_t tid, int error)
{
	struct thread_status status;
	if (has_ended(hold->pid, tid, &status))
		return 0;
	if (status.tracer)
		return fail(hold, error, "another tracer holds the program (a debugger, strace)");
	return fail(hold, error, "the program may not be traced from outside (ptrace)");
}

static int seize(struct hold *hold, pid_t tid)
{
	if (hold->count == hold->room) {
		uint32_t room = hold->room ? hold->room * 2 : 16;
		struct held *threads = realloc(hold->threads, room * sizeof *threads);
		if (!threads)
			return fail(hold, ENOMEM, "no memory");
		hold->threads = threads;
		hold->room = room;
	}
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
		return errno == ESRCH ? 0 : refused(hold, tid, errno);
	hold->threads[hold->count++] = (struct held){.tid = tid};
	ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	return 0;
}

/* Seizes what is not seized yet. Returns how many those were, or -1. */
static int seize_new(struct hold *hold)
{
	char path[32];
	int count = 0;
	snprintf(path, sizeof path, "/proc/%d/task", hold->pid);
	DIR *directory = opendir(path);
	if (!directory)
		return fail(hold, errno, "the program has ended");
	for (const struct dirent *entry; count >= 0 && (entry = readdir(directory)) != NULL;) {
		pid_t tid = atoi(entry->d_name);
		uint32_t before = hold->count;
		if (tid <= 0 || held_of(hold, tid))
			continue;
		if (seize(hold, tid))
			count = -1;
		else
			count += (int)(hold->count - before);
	}
	closedir(directory);
	return count;
}

/* ---- system calls that an interruption ends ----------------------------------- */

/*
 * They give EINTR where others go on by themselves (signal(7)): some always, those of sockets where a time-out has been set for
 * the socket. Then they have done nothing yet.
 */
int hold_ends_call(uint64_t number)
{
	switch (number) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_rt_sigtimedwait:
	case SYS_io_getevents:
	case SYS_io_uring_enter:
	case SYS_accept:
	case SYS_accept4:
	case SYS_connect:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_read:
	case SYS_readv:
	case SYS_write:
	case SYS_writev:
	case SYS_fallocate:
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
#endif
#ifdef SYS_io_pgetevents
	case SYS_io_pgetevents:
#endif
		return 1;
	default:
		return 0;
	}
}

int hold_ignores(pid_t pid, pid_t tid, int signal)
{
	struct thread_status status;
	return signal > 0 && signal <= 64 && read_status(pid, tid, &status) == 0 && (status.ignored >> (signal - 1) & 1);
}

/*
 * A signal that is about to be delivered has ended the call, too: then it has ended. One that is ignored comes to a thread
 * only because it is traced.
 */
static int signal_is_due(pid_t pid, const struct held *thread)
{
	struct thread_status status;
	return thread->signal || thread->group_stop || read_status(pid, thread->tid, &status) ||
	       (status.pending & ~status.blocked & ~status.ignored);
}

/*
 * Takes up a call that nothing but the hold has ended. At once, since we may be killed: what is let go so goes on as if nothing
 * had been.
 */
static void take_up_call(const struct hold *hold, struct held *thread)
{
	struct user_regs_struct *registers = &thread->registers;
	if (thread->signal && hold_ignores(hold->pid, thread->tid, thread->signal))
		thread->signal = 0;
	if ((int64_t)registers->orig_rax < 0 || (int64_t)registers->rax != -EINTR || !hold_ends_call(registers->orig_rax) ||
	    signal_is_due(hold->pid, thread))
		return;
	struct user_regs_struct again = *registers;
	again.rip -= SYSCALL_LENGTH;
	again.rax = registers->orig_rax;
	again.orig_rax = (uint64_t)-1;
	if (ptrace(PTRACE_SETREGS, thread->tid, NULL, &again) == 0) {
		*registers = again;
		thread->taken_up = 1;
	}
}

/* A signal that has come since ends the call: before it is made again, its handler would not. */
static void give_up_call(const struct hold *hold, struct held *thread)
{
	struct user_regs_struct ended = thread->registers;
	if (!thread->taken_up || !signal_is_due(hold->pid, thread))
		return;
	ended.rip += SYSCALL_LENGTH;
	ended.rax = (uint64_t)-EINTR;
	ptrace(PTRACE_SETREGS, thread->tid, NULL, &ended);
}

/* ---- stops ------------------------------------------------------------------- */

/* 1: it has stopped; 0: not yet, or it is gone. Ends are left to whom they belong: only stops are waited for. */
static int take_stop(const struct hold *hold, struct held *thread)
{
	siginfo_t info = {0};
	if (waitid(P_PID, (id_t)thread->tid, &info, WSTOPPED | WNOHANG | __WALL)) {
		thread->gone = errno == ECHILD;
		return 0;
	}
	if (info.si_pid != thread->tid)
		return 0;
	thread->stopped = 1;
	thread->signal = info.si_status >> 8 == 0 ? info.si_status & 0x7f : 0;
	thread->group_stop = info.si_status >> 8 == EVENT_STOP && (info.si_status & 0x7f) != SIGTRAP;
	if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &thread->registers))
		thread->gone = 1;
	else
		take_up_call(hold, thread);
	return 1;
}

static const char not_in_time[] = "a thread did not stop in time (it is inside vfork, or waits in the kernel)";

static int await_stop(struct hold *hold, struct held *thread)
{
	uint64_t waits_ns = 0;
	long pause_ns = 5000;
	while (!take_stop(hold, thread) && !thread->gone) {
		struct thread_status status;
		if (now_ns() >= hold->limit_ns)
			return fail(hold, EAGAIN, not_in_time);
		if (has_ended(hold->pid, thread->tid, &status)) {
			thread->gone = 1;
			break;
		}
		/* The maker of a vfork child stops when that has gone on: who waits for it here holds up all others. */
		if (status.state != 'D')
			waits_ns = 0;
		else if (!waits_ns)
			waits_ns = now_ns();
		else if (now_ns() - waits_ns >= UNINTERRUPTIBLE_NS)
			return fail(hold, EAGAIN, not_in_time);
		moment(pause_ns);
		if (pause_ns < 500000)
			pause_ns *= 2;
	}
	return 0;
}

static int stop_all(struct hold *hold)
{
	int fresh;
	while ((fresh = seize_new(hold)) > 0) {
		for (uint32_t i = 0; i < hold->count; i++)
			if (!hold->threads[i].stopped && !hold->threads[i].gone && await_stop(hold, &hold->threads[i]))
				return -1;
		if (now_ns() >= hold->limit_ns)
			return fail(hold, EAGAIN, "it makes threads faster than they can be held");
	}
	return fresh;
}

/* ---- in the hold --------------------------------------------------------------- */

int hold_move(struct held *thread, uint64_t address)
{
	struct user_regs_struct moved = thread->registers;
	moved.rip = address;
	if (ptrace(PTRACE_SETREGS, thread->tid, NULL, &moved))
		return -1;
	thread->registers = moved;
	return 0;
}

static void let_one_go(const struct hold *hold, struct held *thread)
{
	give_up_call(hold, thread);
	ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal);
	thread->gone = 1;
}

/*
 * What has been interrupted and has not stopped in time: were it let go so, its call would end with EINTR. It stops as soon as it
 * gets to run, but where it waits in the kernel for what nothing interrupts.
 */
static void let_late_ones_go(struct hold *hold)
{
	uint64_t limit = now_ns() + LATE_NS;
	for (uint32_t i = 0; i < hold->count; i++) {
		struct held *thread = &hold->threads[i];
		struct thread_status status;
		while (!thread->gone && !take_stop(hold, thread) && !thread->gone && now_ns() < limit &&
		       !has_ended(hold->pid, thread->tid, &status) && status.state != 'D')
			moment(100000);
		if (thread->stopped && !thread->gone)
			let_one_go(hold, thread);
	}
}

static void let_go(struct hold *hold)
{
	for (uint32_t i = 0; i < hold->count; i++)
		if (hold->threads[i].stopped && !hold->threads[i].gone)
			let_one_go(hold, &hold->threads[i]);
	let_late_ones_go(hold);
	free(hold->threads);
	hold->threads = NULL;
}

struct job {
	struct hold hold;
	void (*work)(void *context, struct hold *hold);
	void *context;
	int result;
};

/* Whatever is still seized when this thread ends, the kernel lets go. */
static void *tracer(void *argument)
{
	struct job *job = argument;
	struct hold *hold = &job->hold;
	setpriority(PRIO_PROCESS, 0, PRIORITY); /* of this thread, where it may: a whole program waits for it */
	job->result = stop_all(hold);
	if (job->result == 0) {
		job->work(job->context, hold);
	}
	let_go(hold);
	return NULL;
}

/* ---- threads that end while they are traced --------------------------------------- */

/* Only looks: the kernel gives a tracer's other threads its stops too, asked for or not, and then the tracer misses them. */
static int has_exited(pid_t tid)
{
	siginfo_t info = {0};
	return waitid(P_PID, (id_t)tid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && info.si_pid == tid &&
	       (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
}

void hold_reap(pid_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *directory = opendir(path);
	if (!directory)
		return;
	for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		siginfo_t info;
		pid_t tid = atoi(entry->d_name);
		/* The first thread's end is its parent's to learn. Who is not ours, or lives, is not touched. */
		if (tid > 0 && tid != pid && has_exited(tid))
			waitid(P_PID, (id_t)tid, &info, WEXITED | WNOHANG | __WALL);
	}
	closedir(directory);
}

void hold_join(pthread_t tracer, pid_t pid)
{
	for (;;) {
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += JOIN_STEP_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (pthread_clockjoin_np(tracer, NULL, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
			return;
		hold_reap(pid);
	}
}

int hold_threads(pid_t pid, uint64_t limit_ns, void (*work)(void *context, struct hold *hold), void *context, int *error,
		 const char **why)
{
	struct job job = {.hold = {.pid = pid, .limit_ns = now_ns() + limit_ns}, .work = work, .context = context};
	sigset_t all, mask;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask); /* signals are for the collector's own thread */
	int failed = pthread_create(&thread, NULL, tracer, &job);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (failed) {
		*error = failed;
		*why = "no thread could be made to hold it";
		return -1;
	}
	hold_join(thread, pid);
	*error = job.hold.error;
	*why = job.hold.why;
	return job.result;
}
