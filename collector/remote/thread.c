/* SPDX-License-Identifier: MIT */
/*
 * thread.c: see thread.h.
 *
 * Who may be taken? The called code goes through the loader and the allocator, so the thread must hold none of their
 * locks. In a system call that can wait it is inside of neither: they make none of those. In code of other modules it is
 * inside of neither either: they do not call out. What is left is a thread that a signal handler has interrupted there,
 * which the frames on its stack tell.
 */
#include "collector/remote/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/patch/frames.h"
#include "collector/patch/hold.h"

enum {
	EVENT_STOP = 128, /* PTRACE_EVENT_STOP */
	SYSCALL_LENGTH = 2,
	/* The kernel's own results of system calls that go on after an interruption. */
	RESTART_SYSTEM = 512,
	RESTART_ALWAYS = 513,
	RESTART_NO_HANDLER = 514,
	RESTART_BLOCK = 516,
	CODE_64 = 0x33,
	ROOM = 16 << 10, /* of stack below what a thread uses */
	RED_ZONE = 128,
	MOMENTS = 50, /* at which threads are looked at once they are traced */
	CROWD = 256,  /* threads that are looked at together */
	NEXT_CALL_NS = 5000000,
	SHORT_NS = 50000,
	PAUSE_NS = 1000000,
	LET_GO_NS = 20000000,
	LATE_NS = 1000000000, /* who is let go without having stopped, finds its call ended */
	HELD_NS = 15000000, /* all threads stand for so long at most */
	HOLDS = 8,	      /* and so many times more, as long after each */
	STOP_NS = 200000000,
	RSEQ_OFFSET = 8, /* of the address of a critical section in struct rseq */
};

/* ---- waiting ----------------------------------------------------------------------- */

uint64_t thread_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int thread_has_stopped(pid_t tid, int *signal, int *event)
{
	siginfo_t info = {0};
	if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | WNOHANG | __WALL))
		return errno == ECHILD ? -1 : 0;
	if (info.si_pid != tid)
		return 0;
	*signal = info.si_status & 0xff;
	*event = info.si_status >> 8;
	return 1;
}

int thread_await(pid_t tid, uint64_t limit, int *signal, int *event)
{
	for (int round = 0;; round++) {
		int stopped = thread_has_stopped(tid, signal, event);
		if (stopped)
			return stopped;
		if (round < 10) /* most stops come at once */
			continue;
		if (thread_now_ns() >= limit)
			return 0;
		char path[32];
		snprintf(path, sizeof path, "/proc/%d", tid);
		if (round % 64 == 0 && access(path, F_OK))
			return -1;
		/* Who sleeps comes before who computes, and who only yields does not. */
		nanosleep(&(struct timespec){0, round > 200 ? 200000 : round > 50 ? 50000 : 10000}, NULL);
	}
}

/* ---- where it goes on ----------------------------------------------------------------- */

static int is_restarted(int64_t result)
{
	return result == -RESTART_SYSTEM || result == -RESTART_ALWAYS || result == -RESTART_NO_HANDLER ||
	       result == -RESTART_BLOCK;
}

/* The number of the system call that is to be made anew; -1: none. */
static int64_t call_again(const struct taken *taken, int keeps_block)
{
	const struct user_regs_struct *registers = &taken->context.registers;
	int64_t number = (int64_t)registers->orig_rax, result = (int64_t)registers->rax;
	if (number < 0)
		return -1;
	if (taken->at_entry)
		return number;
	if (result == -RESTART_BLOCK && keeps_block)
		return SYS_restart_syscall; /* it knows how long is left to wait */
	return is_restarted(result) || (result == -EINTR && hold_ends_call((uint64_t)number)) ? number : -1;
}

void thread_resumed(const struct taken *taken, int at_entry, struct user_regs_struct *registers)
{
	*registers = taken->context.registers;
	int64_t again = call_again(taken, 1);
	registers->orig_rax = (uint64_t)-1;
	if (again < 0)
		return;
	if (at_entry) {
		registers->orig_rax = (uint64_t)again;
		registers->rax = (uint64_t)-ENOSYS;
		return;
	}
	registers->rip -= SYSCALL_LENGTH;
	registers->rax = (uint64_t)again;
}

/* ---- what may be interrupted ------------------------------------------------------------ */

/* A descriptor that is waited on: a file is not, and those the loader and allocators read. */
static int can_wait(const struct program *program, uint64_t descriptor)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", program->pid, (int)descriptor);
	return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISBLK(status.st_mode);
}

/* Locks are waited for with FUTEX_WAIT; conditions, semaphores and ends of threads with FUTEX_WAIT_BITSET. */
static int futex_can_wait(uint64_t operation)
{
	return (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

/* Calls that may wait for something outside, which no loader and no allocator makes. */
static int may_be_left(const struct program *program, const struct user_regs_struct *r)
{
	switch (r->orig_rax) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_poll:
	case SYS_ppoll:
	case SYS_select:
	case SYS_pselect6:
	case SYS_accept:
	case SYS_accept4:
	case SYS_connect:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_wait4:
	case SYS_waitid:
	case SYS_pause:
	case SYS_rt_sigsuspend:
	case SYS_rt_sigtimedwait:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_msgrcv:
	case SYS_msgsnd:
	case SYS_mq_timedreceive:
	case SYS_mq_timedsend:
	case SYS_io_getevents:
	case SYS_io_pgetevents:
	case SYS_io_uring_enter:
	case SYS_flock:
	case SYS_restart_syscall: return 1;
	case SYS_read:
	case SYS_readv:
	case SYS_write:
	case SYS_writev: return can_wait(program, r->rdi);
	case SYS_futex: return futex_can_wait(r->rsi);
	case SYS_fcntl: return r->rsi == F_SETLKW || r->rsi == F_OFD_SETLKW;
	default: return 0;
	}
}

static const char in_handler[] = "its threads are inside signal handlers that have interrupted the C library",
		  on_other_stack[] = "its threads are on stacks of their own making (coroutines, alternate signal stacks)",
		  in_library[] = "its threads are in the middle of the C library, an allocator or the loader",
		  is_stopped[] = "it is stopped (by a signal; SIGCONT lets it go on)",
		  no_threads[] = "its threads cannot be stopped", busy[] = "signals are on their way to its threads",
		  other_tracer[] = "another tracer holds it (a debugger, strace)",
		  in_kernel[] = "it waits in the kernel for what cannot be interrupted (a disk, a network file system, vfork)";

static int is_lorg(const struct remote_module *module)
{
	return strncmp(module->name, "liblorg.so", 10) == 0;
}

/* 1: code that may call or be the allocator's, the loader's, or lorg's own. */
static int is_delicate(const struct program *program, uint64_t address)
{
	const struct remote_module *module = program_module_at(program, address), *loader = program_loader(program);
	const struct mapping *mapping = program_mapping(program, address);
	if (!module)
		return !mapping || mapping->path[0] == '[';
	return module == loader || module == program_libc(program) || module->allocates || is_lorg(module);
}

/* mov $number,%eax; syscall: before the address stands the call that has been interrupted, by its number. -1: none. */
static int64_t call_before(const struct program *program, uint64_t address)
{
	uint8_t code[7];
	uint32_t number;
	if (program_read(program, address - sizeof code, code, sizeof code) || code[0] != 0xb8 || code[5] != 0x0f ||
	    code[6] != 0x05)
		return -1;
	memcpy(&number, code + 1, sizeof number);
	return number;
}

struct search {
	const struct program *program;
	int bad;
};

static void handler_found(void *context, uint64_t address)
{
	struct search *search = context;
	const struct remote_module *module = program_module_at(search->program, address);
	if (!is_delicate(search->program, address))
		return;
	/* Of a call that waits the frame has no arguments: a futex may be anything. */
	struct user_regs_struct call = {.orig_rax = (uint64_t)call_before(search->program, address)};
	int waits = call.orig_rax != SYS_read && call.orig_rax != SYS_readv && call.orig_rax != SYS_write &&
		    call.orig_rax != SYS_writev && call.orig_rax != SYS_futex && may_be_left(search->program, &call);
	search->bad |= !waits || !module || module == program_loader(search->program);
}

static int is_in_handler(const struct program *program, uint64_t stack)
{
	struct search search = {program, 0};
	frames_of_handlers(program->memory, stack, handler_found, &search);
	return search.bad;
}

/* On the stack that the kernel or the C library made for it, with room below. */
static int has_room(const struct program *program, pid_t tid, const struct user_regs_struct *registers)
{
	const struct mapping *mapping = program_mapping(program, registers->rsp);
	if (!mapping || !mapping->writable || registers->rsp - mapping->start < RED_ZONE + ROOM + STATE_MAXIMUM)
		return 0;
	if (tid == program->pid && mapping->is_stack)
		return 1;
	return registers->fs_base > registers->rsp && registers->fs_base < mapping->end;
}

struct rseq_place {
	uint64_t address;
	uint32_t size, signature, flags, reserved;
};
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif

/* In the middle of a sequence that has to be begun anew when it is interrupted. */
static int is_in_sequence(const struct program *program, pid_t tid)
{
	struct rseq_place place = {0};
	uint64_t section = 0;
	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, (void *)sizeof place, &place) <= 0 || !place.address)
		return 0;
	return program_read(program, place.address + RSEQ_OFFSET, &section, sizeof section) || section;
}

enum thread_signals thread_signals(pid_t pid, pid_t tid)
{
	int64_t pending = status_number(pid, tid, "SigPnd", 16), shared = status_number(pid, tid, "ShdPnd", 16),
		blocked = status_number(pid, tid, "SigBlk", 16);
	if (pending == -1 || shared == -1 || blocked == -1)
		return SIGNALS_DUE;
	uint64_t due = (uint64_t)((pending | shared) & ~blocked);
	enum thread_signals found = due ? SIGNALS_IGNORED : SIGNALS_NONE;
	for (int signal = 1; due; signal++, due >>= 1)
		if ((due & 1) && !hold_ignores(pid, tid, signal))
			return SIGNALS_DUE;
	return found;
}

static int signal_is_due(const struct program *program, pid_t tid)
{
	return thread_signals(program->pid, tid) == SIGNALS_DUE;
}

/* NULL: the thread, which is stopped, may be taken. */
static const char *unusable(const struct program *program, const struct taken *taken)
{
	const struct user_regs_struct *registers = &taken->context.registers;
	const struct remote_module *module = program_module_at(program, registers->rip);
	if (registers->cs != CODE_64)
		return "it is a 32-bit program";
	if (!has_room(program, taken->tid, registers))
		return on_other_stack;
	if ((int64_t)registers->orig_rax >= 0) {
		if (!module || module == program_loader(program) || is_lorg(module) || !may_be_left(program, registers))
			return in_library;
	} else if (is_delicate(program, registers->rip) || is_in_sequence(program, taken->tid)) {
		return in_library;
	}
	if (is_in_handler(program, registers->rsp))
		return in_handler;
	return signal_is_due(program, taken->tid) ? busy : NULL;
}

/* ---- taking --------------------------------------------------------------------------------- */

/* It goes on as if it had not been stopped. */
static void let_go(const struct program *program, const struct taken *taken)
{
	struct user_regs_struct registers;
	/*
	 * The kernel takes up by itself what it can; the rest is taken up where nothing else has ended it. To be let go
	 * wakes a thread as a signal does: before a system call it is put to the call's instruction, not into the call.
	 */
	if (taken->at_entry || ((int64_t)taken->context.registers.rax == -EINTR && call_again(taken, 0) >= 0 &&
				!signal_is_due(program, taken->tid))) {
		thread_resumed(taken, 0, &registers);
		ptrace(PTRACE_SETREGS, taken->tid, NULL, &registers);
	}
	ptrace(PTRACE_DETACH, taken->tid, NULL, NULL);
}

/* At a stop for a system call: 1 before it, 0 behind it. */
static int is_before_call(pid_t tid)
{
	struct __ptrace_syscall_info info = {.op = PTRACE_SYSCALL_INFO_ENTRY};
	ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info);
	return info.op == PTRACE_SYSCALL_INFO_ENTRY;
}

/* Whether a stop is for us, and not by a signal: then *at_entry. Else the thread is let go with it, and NULL is not given. */
static const char *note_stop(const struct program *program, pid_t tid, int signal, int event, int *at_entry)
{
	*at_entry = signal == (SIGTRAP | 0x80) && is_before_call(tid);
	if (signal == (SIGTRAP | 0x80) || (event == EVENT_STOP && signal == SIGTRAP) ||
	    (!event && hold_ignores(program->pid, tid, signal)))
		return NULL;
	ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)(event ? 0 : signal));
	return event == EVENT_STOP ? is_stopped : busy;
}

/*
 * Threads that are looked at together. Of many that are inside of the C library most of the time there is mostly one that
 * is not; of one alone it takes many moments.
 */
struct member {
	pid_t tid;
	enum { MEMBER_RUNS, MEMBER_STOPPED, MEMBER_GONE } state;
	int at_entry;
};

struct crowd {
	const struct program *program;
	struct member *members;
	uint32_t count, running;
	struct taken *taken;
	const char *why; /* of the last that could not be taken */
};

/* Seized before, and did not stop in time then: on a busy machine it may be long until it runs. */
static int is_ours(const struct program *program, pid_t tid)
{
	return status_number(program->pid, tid, "TracerPid", 10) == gettid();
}

static void seize_member(struct crowd *crowd, pid_t tid)
{
	if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) && !is_ours(crowd->program, tid)) {
		crowd->why = status_number(crowd->program->pid, tid, "TracerPid", 10) > 0 ? other_tracer
											  : "it may not be traced (ptrace)";
		return;
	}
	ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	crowd->members[crowd->count++] = (struct member){.tid = tid};
	crowd->running++;
}

static void has_left(struct crowd *crowd, struct member *member)
{
	crowd->running -= member->state == MEMBER_RUNS;
	member->state = MEMBER_GONE;
}

/* It has stopped. 1: it is taken. */
static int look_at(struct crowd *crowd, struct member *member, int signal, int event)
{
	struct taken *taken = crowd->taken;
	const char *why = note_stop(crowd->program, member->tid, signal, event, &member->at_entry);
	if (why) {
		crowd->why = why;
		has_left(crowd, member);
		return 0;
	}
	crowd->running -= member->state == MEMBER_RUNS;
	member->state = MEMBER_STOPPED;
	taken->tid = member->tid;
	taken->at_entry = member->at_entry;
	why = context_save(member->tid, &taken->context) ? no_threads : unusable(crowd->program, taken);
	if (!why) {
		/* Were we killed now, it would go on as if nothing had been. */
		struct user_regs_struct again;
		thread_resumed(taken, 0, &again);
		ptrace(PTRACE_SETREGS, taken->tid, NULL, &again);
		return 1;
	}
	crowd->why = why;
	/* What will not change in some moments. */
	if (why != in_library && why != in_handler && why != no_threads) {
		let_go(crowd->program, taken);
		has_left(crowd, member);
	}
	return 0;
}

static void forget_ended(struct crowd *crowd)
{
	for (uint32_t i = 0; i < crowd->count; i++)
		if (crowd->members[i].state == MEMBER_RUNS && strchr("XZ", status_state(crowd->program->pid, crowd->members[i].tid)))
			has_left(crowd, &crowd->members[i]);
}

/* Looks at what stops until all have, or the time is over. 1: one is taken. */
static int await_crowd(struct crowd *crowd, uint64_t limit)
{
	for (int round = 0; crowd->running; round++) {
		int found = 0;
		for (uint32_t i = 0; i < crowd->count; i++) {
			struct member *member = &crowd->members[i];
			int signal, event, stopped;
			if (member->state != MEMBER_RUNS || !(stopped = thread_has_stopped(member->tid, &signal, &event)))
				continue;
			found = 1;
			if (stopped < 0)
				has_left(crowd, member);
			else if (look_at(crowd, member, signal, event))
				return 1;
		}
		if (found || round < 3)
			continue;
		if (thread_now_ns() >= limit)
			return 0;
		if (round % 64 == 0)
			forget_ended(crowd);
		nanosleep(&(struct timespec){0, round > 100 ? 200000 : 20000}, NULL);
	}
	return 0;
}

/* All run on for a moment, and stop again: before their next system call, or wherever they are. 1: one is taken. */
static int let_run(struct crowd *crowd, uint64_t for_ns)
{
	for (uint32_t i = 0; i < crowd->count; i++) {
		struct member *member = &crowd->members[i];
		if (member->state != MEMBER_STOPPED)
			continue;
		member->state = MEMBER_RUNS;
		crowd->running++;
		if (ptrace(PTRACE_SYSCALL, member->tid, NULL, NULL))
			has_left(crowd, member);
	}
	if (await_crowd(crowd, thread_now_ns() + for_ns))
		return 1;
	for (uint32_t i = 0; i < crowd->count; i++)
		if (crowd->members[i].state == MEMBER_RUNS)
			ptrace(PTRACE_INTERRUPT, crowd->members[i].tid, NULL, NULL);
	return await_crowd(crowd, thread_now_ns() + STOP_NS);
}

static void let_member_go(const struct program *program, struct member *member)
{
	struct taken one = {.tid = member->tid, .at_entry = member->at_entry};
	if (ptrace(PTRACE_GETREGS, one.tid, NULL, &one.context.registers) == 0)
		let_go(program, &one);
	else
		ptrace(PTRACE_DETACH, member->tid, NULL, NULL);
	member->state = MEMBER_GONE;
}

void thread_let_go(const struct program *program, pid_t tid)
{
	struct member member = {.tid = tid};
	let_member_go(program, &member);
}

/* Who runs, and will be stopped, is let go then. False: some have not stopped yet. */
static int let_stopped_go(const struct program *program, struct member *members, uint32_t count)
{
	uint32_t left = 0;
	for (uint32_t i = 0; i < count; i++) {
		int signal, event, stopped = 0;
		if (members[i].state == MEMBER_RUNS && (stopped = thread_has_stopped(members[i].tid, &signal, &event)) > 0 &&
		    note_stop(program, members[i].tid, signal, event, &members[i].at_entry))
			members[i].state = MEMBER_GONE;
		else if (members[i].state == MEMBER_STOPPED || stopped > 0)
			let_member_go(program, &members[i]);
		else if (stopped < 0)
			members[i].state = MEMBER_GONE;
		left += members[i].state == MEMBER_RUNS;
	}
	return !left;
}

static void let_others_go(const struct program *program, struct taken *taken)
{
	if (taken->other_count && let_stopped_go(program, taken->others, taken->other_count))
		taken->other_count = 0;
}

void thread_forget(struct taken *taken)
{
	free(taken->others);
	taken->others = NULL;
	taken->other_count = taken->holds = 0;
	taken->held_until = 0;
}

/* All that still run wait in the kernel for what nothing interrupts. */
static int all_are_stuck(const struct program *program, const struct taken *taken)
{
	for (uint32_t i = 0; i < taken->other_count; i++)
		if (taken->others[i].state == MEMBER_RUNS && !strchr("DXZ", status_state(program->pid, taken->others[i].tid)))
			return 0;
	return 1;
}

void thread_part(const struct program *program, struct taken *taken, uint64_t for_ns)
{
	uint64_t limit = thread_now_ns() + for_ns;
	taken->holds = 0;
	taken->held_until = 0;
	for (;;) {
		let_others_go(program, taken);
		if (!taken->other_count || thread_now_ns() >= limit || all_are_stuck(program, taken))
			return;
		nanosleep(&(struct timespec){0, 20000}, NULL);
	}
}

/* What is left of a crowd of which one is taken (1), or none (0). */
static void leave_crowd(struct crowd *crowd, int taken)
{
	for (uint32_t i = 0; i < crowd->count; i++) {
		struct member *member = &crowd->members[i];
		if (taken && member->tid == crowd->taken->tid)
			member->state = MEMBER_GONE;
		else if (member->state == MEMBER_RUNS)
			ptrace(PTRACE_INTERRUPT, member->tid, NULL, NULL);
	}
	thread_forget(crowd->taken);
	crowd->taken->others = crowd->members;
	crowd->taken->other_count = crowd->count;
	/* Many that compute leave the one no time for its call: they stand for the moment that it takes. */
	if (taken && crowd->count > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) + 1) {
		crowd->taken->holds = HOLDS;
		crowd->taken->held_until = thread_now_ns() + HELD_NS;
		return;
	}
	thread_part(crowd->program, crowd->taken, taken ? LET_GO_NS : LATE_NS);
}

/* Those of them that are not somebody else's. 1: one is taken. */
static int take_of(const struct program *program, const pid_t *tids, uint32_t count, uint64_t limit, struct taken *taken,
		   const char **why)
{
	struct crowd crowd = {.program = program, .members = calloc(count + 1, sizeof *crowd.members), .taken = taken, .why = *why};
	uint64_t moment_ns = NEXT_CALL_NS;
	int is_taken = 0;
	if (!crowd.members)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		seize_member(&crowd, tids[i]);
	is_taken = await_crowd(&crowd, thread_now_ns() + STOP_NS);
	for (int moment = 0; !is_taken && moment < MOMENTS; moment++) {
		uint32_t stopped = 0;
		for (uint32_t i = 0; i < crowd.count; i++)
			stopped += crowd.members[i].state == MEMBER_STOPPED;
		if (!stopped || (moment && thread_now_ns() >= limit))
			break;
		is_taken = let_run(&crowd, moment_ns);
		/* Of different lengths, and longer where others take the processors. */
		moment_ns = moment ? moment_ns * 5 / 4 : SHORT_NS;
	}
	leave_crowd(&crowd, is_taken);
	*why = crowd.why;
	return is_taken;
}

/* ---- which --------------------------------------------------------------------------------------- */

/* 1: it waits in a call that may be left; 0: it runs, or that is not told. */
static int waits_in_call(const struct program *program, pid_t tid)
{
	char path[64], text[256] = "";
	struct user_regs_struct r = {0};
	unsigned long long number, a, b;
	snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", program->pid, tid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	if (!fgets(text, sizeof text, file))
		text[0] = 0;
	fclose(file);
	if (sscanf(text, "%llu %llx %llx", &number, &a, &b) != 3)
		return 0;
	r.orig_rax = number;
	r.rdi = a;
	r.rsi = b;
	return may_be_left(program, &r);
}

static uint32_t list_threads(const struct program *program, pid_t *tids, uint32_t room)
{
	char path[32];
	uint32_t count = 0;
	snprintf(path, sizeof path, "/proc/%d/task", program->pid);
	DIR *directory = opendir(path);
	for (const struct dirent *entry; directory && count < room && (entry = readdir(directory)) != NULL;)
		if (atoi(entry->d_name) > 0)
			tids[count++] = atoi(entry->d_name);
	if (directory)
		closedir(directory);
	return count;
}

/* What is stopped, or waits in the kernel for what nothing can end, is left alone. */
static int is_candidate(const struct program *program, pid_t tid, const char **why)
{
	char state = status_state(program->pid, tid);
	if (is_ours(program, tid))
		return 1;
	if (state == 'T' || state == 't')
		*why = state == 'T' ? is_stopped : other_tracer;
	else if (state == 'D')
		*why = in_kernel;
	return state == 'S' || state == 'R';
}

/* First one of those that wait where they may be taken, each by itself; then of all others together. */
static int take_any(const struct program *program, pid_t *tids, uint32_t count, uint64_t limit, struct taken *taken,
		    const char **why)
{
	uint32_t others = 0;
	for (uint32_t i = 0; i < count; i++) {
		pid_t tid = tids[i];
		if (!is_candidate(program, tid, why))
			continue;
		if (!waits_in_call(program, tid)) {
			tids[others++] = tid;
			continue;
		}
		if (take_of(program, &tid, 1, limit, taken, why))
			return 0;
		thread_forget(taken);
	}
	for (uint32_t i = 0; i < others; i += CROWD) {
		if (take_of(program, tids + i, others - i < CROWD ? others - i : CROWD, limit, taken, why))
			return 0;
		thread_forget(taken);
		if (thread_now_ns() >= limit)
			break;
	}
	return -1;
}

void thread_hold_others(const struct program *program, struct taken *taken)
{
	enum { THREADS = 4096 };
	pid_t *tids = taken->holds && !taken->other_count ? calloc(THREADS, sizeof *tids) : NULL;
	uint32_t count = tids ? list_threads(program, tids, THREADS) : 0;
	struct crowd crowd = {.program = program, .members = calloc(count + 1, sizeof *crowd.members), .taken = taken};
	for (uint32_t i = 0; crowd.members && i < count; i++)
		if (tids[i] != taken->tid && strchr("SR", status_state(program->pid, tids[i])) &&
		    !waits_in_call(program, tids[i]))
			seize_member(&crowd, tids[i]);
	free(tids);
	if (!crowd.count) {
		free(crowd.members);
		return;
	}
	uint32_t holds = taken->holds - 1;
	thread_forget(taken);
	taken->holds = holds;
	taken->others = crowd.members;
	taken->other_count = crowd.count;
	taken->held_until = thread_now_ns() + HELD_NS;
}

int thread_take(const struct program *program, uint64_t limit_ns, struct taken *taken, const char **why)
{
	enum { THREADS = 4096 };
	uint64_t limit = thread_now_ns() + limit_ns;
	pid_t *tids = calloc(THREADS, sizeof *tids);
	int result = -1;
	*why = no_threads;
	taken->others = NULL;
	thread_forget(taken);
	while (tids && result) {
		uint32_t count = list_threads(program, tids, THREADS);
		result = take_any(program, tids, count, limit, taken, why);
		if (!count || thread_now_ns() >= limit)
			break;
		if (result)
			nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
	}
	free(tids);
	return result;
}

void thread_others(const struct program *program, struct taken *taken, int waits)
{
	uint64_t now = thread_now_ns();
	if (taken->held_until && (waits || now >= taken->held_until)) {
		taken->held_until = 0;
		taken->hold_again = now + HELD_NS;
	}
	if (!taken->held_until)
		let_others_go(program, taken);
	if (taken->holds && !taken->other_count && !waits && now >= taken->hold_again)
		thread_hold_others(program, taken);
}
