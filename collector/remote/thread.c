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
	MOMENTS = 50, /* at which a thread is looked at once it is traced */
	NEXT_CALL_NS = 5000000,
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

static int has_stopped(pid_t tid, int *signal, int *event)
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
		int stopped = has_stopped(tid, signal, event);
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
		nanosleep(&(struct timespec){0, round > 500 ? 200000 : 10000}, NULL);
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
	case SYS_io_uring_enter:
	case SYS_flock:
	case SYS_restart_syscall: return 1;
	case SYS_read:
	case SYS_readv:
	case SYS_write:
	case SYS_writev: return can_wait(program, r->rdi);
	case SYS_futex: return futex_can_wait(r->rsi);
	default: return 0;
	}
}

static const char in_handler[] = "its threads are inside signal handlers that have interrupted the C library",
		  on_other_stack[] = "its threads are on stacks of their own making (coroutines, alternate signal stacks)",
		  in_library[] = "its threads are in the middle of the C library, an allocator or the loader",
		  is_stopped[] = "it is stopped (by a signal; SIGCONT lets it go on)",
		  no_threads[] = "its threads cannot be stopped", busy[] = "signals are on their way to its threads",
		  other_tracer[] = "another tracer holds it (a debugger, strace)";

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

static int signal_is_due(const struct program *program, pid_t tid)
{
	int64_t pending = status_number(program->pid, tid, "SigPnd", 16),
		shared = status_number(program->pid, tid, "ShdPnd", 16),
		blocked = status_number(program->pid, tid, "SigBlk", 16);
	return pending == -1 || shared == -1 || blocked == -1 || ((pending | shared) & ~blocked);
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

/* It is stopped just now. NULL: it stays so, for it may be taken. */
static const char *look_at(const struct program *program, struct taken *taken)
{
	if (context_save(taken->tid, &taken->context))
		return no_threads;
	return unusable(program, taken);
}

/* Stopped for us, and not by a signal. -1: it is let go, or gone; *why. */
static int await_our_stop(struct taken *taken, uint64_t limit, const char **why)
{
	int signal, event;
	int stopped = thread_await(taken->tid, limit, &signal, &event);
	*why = no_threads;
	if (stopped <= 0)
		return -1;
	taken->at_entry = signal == (SIGTRAP | 0x80);
	if (taken->at_entry || (event == EVENT_STOP && signal == SIGTRAP))
		return 0;
	*why = event == EVENT_STOP ? is_stopped : busy;
	ptrace(PTRACE_DETACH, taken->tid, NULL, (void *)(intptr_t)(event ? 0 : signal));
	return -1;
}

/* It runs on; stops before its next system call, or, interrupted, anywhere. -1: it is let go, or gone. */
static int run_on(struct taken *taken, uint64_t for_ns)
{
	const char *why;
	if (ptrace(PTRACE_SYSCALL, taken->tid, NULL, NULL))
		return -1;
	/* Is it in the middle of one already, the end of that comes first. */
	if (!for_ns || await_our_stop(taken, thread_now_ns() + for_ns, &why)) {
		if (for_ns && why != no_threads)
			return -1;
		ptrace(PTRACE_INTERRUPT, taken->tid, NULL, NULL);
		return await_our_stop(taken, thread_now_ns() + STOP_NS, &why);
	}
	return 0;
}

/* Where it stands it may not be taken: before its next system call it may, or at another moment. */
static const char *take_later(const struct program *program, struct taken *taken, const char *why)
{
	for (int moment = 0; moment < MOMENTS; moment++) {
		if (run_on(taken, moment == 0 ? NEXT_CALL_NS : 0))
			return why;
		why = look_at(program, taken);
		if (!why)
			return NULL;
	}
	let_go(program, taken);
	return why;
}

/* Seized before, and did not stop in time then: on a busy machine it may be long until it runs. */
static int is_ours(const struct program *program, pid_t tid)
{
	return status_number(program->pid, tid, "TracerPid", 10) == gettid();
}

static const char *take(const struct program *program, pid_t tid, struct taken *taken)
{
	const char *why;
	taken->tid = tid;
	taken->at_entry = 0;
	if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) && !is_ours(program, tid))
		return status_number(program->pid, tid, "TracerPid", 10) > 0 ? other_tracer
									     : "it may not be traced (ptrace)";
	ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	if (await_our_stop(taken, thread_now_ns() + STOP_NS, &why))
		return why;
	why = look_at(program, taken);
	if (!why)
		return NULL;
	if (why != in_library && why != in_handler) {
		let_go(program, taken);
		return why;
	}
	return take_later(program, taken, why);
}

/* ---- which --------------------------------------------------------------------------------------- */

/* The number of the system call that it waits in; -1: it runs, or that is not told. */
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

/* waiting 1: only those that wait where they may be taken; 0: the others. */
static int take_any(const struct program *program, const pid_t *tids, uint32_t count, int waiting, uint64_t limit,
		    struct taken *taken, const char **why)
{
	for (uint32_t i = 0; i < count; i++) {
		char state = status_state(program->pid, tids[i]);
		int ours = is_ours(program, tids[i]);
		if (!ours && (state == 'T' || state == 't')) {
			*why = state == 'T' ? is_stopped : other_tracer;
			continue;
		}
		if (!ours && ((state != 'S' && state != 'R') || waits_in_call(program, tids[i]) != waiting))
			continue;
		const char *refused = take(program, tids[i], taken);
		if (!refused)
			return 0;
		*why = refused;
		if (!waiting && thread_now_ns() >= limit)
			return -1;
	}
	return -1;
}

int thread_take(const struct program *program, uint64_t limit_ns, struct taken *taken, const char **why)
{
	enum { THREADS = 4096 };
	uint64_t limit = thread_now_ns() + limit_ns;
	pid_t *tids = calloc(THREADS, sizeof *tids);
	int result = -1;
	*why = no_threads;
	while (tids && result) {
		uint32_t count = list_threads(program, tids, THREADS);
		result = take_any(program, tids, count, 1, limit, taken, why);
		if (result)
			result = take_any(program, tids, count, 0, limit, taken, why);
		if (!count || thread_now_ns() >= limit)
			break;
		if (result)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	free(tids);
	return result;
}
