/* SPDX-License-Identifier: MIT */
/*
 * remote.c: see remote.h.
 *
 * A call is: registers that stand at the function's entry, on a stack where it finds as its return address the C
 * library's own code that ends a signal handler, and under that a frame (frame.h) with the thread as it was. The tracer
 * watches the thread from system call to system call; when it comes to that end, the tracer either starts the next call,
 * or puts the thread back where it was.
 *
 *   1  mmap      on the thread's own stack, below its red zone
 *   2  the call  on the new memory, which also holds the data
 *   3  munmap    on the thread's own stack again
 *
 * At every moment in between, a tracer that dies leaves a thread that runs to the end of its call and is then back.
 */
#include "collector/patch/hold.h"
#include "collector/remote/remote.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <lorg/abi.h>

#include "collector/remote/program.h"
#include "collector/remote/thread.h"

enum {
	EVENT_STOP = 128, /* PTRACE_EVENT_STOP */
	RED_ZONE = 128,
	REGION = 512 << 10, /* stack of the call, and its data at the lower end */
	SWAB_ROOM = 4096,   /* of stack that swab may use */
	ERRNO_CODE = 20,
	KCMP_MEMORY = 1,      /* KCMP_VM */
	PRIORITY = -20,
	ROUNDS_A_LOOK = 10,
	RESTART_SYSTEM = 512, /* the kernel's own result of a call that goes on after an interruption */
};

static const uint64_t DIRECTION = 1 << 10, SINGLE_STEP = 1 << 8, ALIGNMENT_CHECK = 1 << 18, RESUME = 1 << 16;
static const uint64_t CHOICE_NS = 1000000000, LIMIT_NS = 5000000000, GIVE_UP_NS = 1000000000, SMALL_STEP_NS = 2000000000,
		      TRACER_NS = 1000000000, OTHERS_NS = 1000000,
		      PART_NS = 1000000000, ENDING_NS = 100000;

/* What the called thread needs of the C library. */
struct library {
	uint64_t map, unmap, swab; /* mmap, munmap, swab */
	uint64_t restorer;         /* the end of signal handlers */
	int64_t errno_offset;      /* from the thread pointer */
};

struct remote {
	struct remote_call call;
	pthread_t thread;
	pid_t tracer; /* that thread */
	int over;     /* atomic, release: the results stand */
	struct program program;
	struct library library;
	struct taken taken;
	uint64_t region; /* 0: none */
	/* The thread just now. */
	int at_entry;                     /* 1: stopped before a system call */
	int64_t last_number, last_result; /* of the last system call that it made in this step */
	uint32_t calls;                   /* system calls in this step, begun */
	int is_back;                      /* 1: as it was, and stopped */
	int announces;                    /* 1: the function is liblorg's, and says when it is over (late.h) */
	int by_itself;                    /* 1: it has gone back without us */
	int error_number;                 /* the thread's errno */
};

static int refuse(struct remote *remote, enum remote_outcome outcome, int error, const char *why)
{
	remote->call.outcome = outcome;
	remote->call.error = error;
	remote->call.why = why;
	return -1;
}

/* ---- whether at all --------------------------------------------------------------- */

/* A child of vfork runs on its parent's memory and stack. */
static int shares_memory(pid_t pid)
{
	int64_t parent = status_number(pid, 0, "PPid", 10);
	return parent > 0 && syscall(SYS_kcmp, pid, (pid_t)parent, KCMP_MEMORY, 0, 0) == 0;
}

/* More filters than we are under ourselves. */
static int is_filtered(pid_t pid)
{
	int64_t mode = status_number(pid, 0, "Seccomp", 10), filters = status_number(pid, 0, "Seccomp_filters", 10);
	if (mode <= 0)
		return 0;
	return mode == 1 || filters < 0 || filters > status_number(getpid(), 0, "Seccomp_filters", 10);
}

static int yama_forbids(void)
{
	char text[8] = "0";
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	if (file && !fgets(text, sizeof text, file))
		text[0] = '0';
	if (file)
		fclose(file);
	return text[0] != '0';
}

/* Shadow stacks know no frame that the kernel has not made. */
static int has_shadow_stack(pid_t pid)
{
	char path[32], line[256];
	int found = 0;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		found |= strncmp(line, "x86_Thread_features:", 20) == 0 && strstr(line, "shstk");
	if (file)
		fclose(file);
	return found;
}

/* Another lorg holds a program for some milliseconds only. */
static int stays_traced(pid_t pid)
{
	uint64_t limit = thread_now_ns() + TRACER_NS;
	while (status_number(pid, 0, "TracerPid", 10) > 0) {
		if (thread_now_ns() >= limit)
			return 1;
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	}
	return 0;
}

static const char *refusal_by_status(pid_t pid, int *error)
{
	char state = status_state(pid, 0);
	*error = 0;
	if (state == 'X') {
		*error = ESRCH;
		return "there is no such program";
	}
	if (status_number(pid, 0, "Tgid", 10) != pid) {
		*error = EINVAL;
		return "that is a thread, not a program";
	}
	if (state == 'Z' && status_number(pid, 0, "Threads", 10) <= 1) {
		*error = ESRCH;
		return "it has ended";
	}
	if (pid == getpid()) {
		*error = EINVAL;
		return "that is lorg itself";
	}
	if (status_number(pid, 0, "Kthread", 10) == 1) {
		*error = EINVAL;
		return "it is a part of the kernel";
	}
	if (stays_traced(pid)) {
		*error = EPERM;
		return "another tracer holds it (a debugger, strace)";
	}
	if (is_filtered(pid))
		return "it has put itself under a seccomp filter, which may end it for system calls that it does not know";
	if (has_shadow_stack(pid))
		return "it runs with a shadow stack";
	return shares_memory(pid) ? "it is a child of vfork, and runs on the memory of its parent" : NULL;
}

static const char *refusal_by_memory(const struct program *program)
{
	uint8_t head[5] = "";
	const struct mapping *first = &program->mappings[0];
	if (program_libc(program))
		return NULL;
	if (first->readable && program_read(program, first->start, head, sizeof head) == 0 && head[4] == 1)
		return "it is a 32-bit program";
	if (!program->module_count)
		return "it is no program of 64 bits";
	if (program->module_count == 1)
		return "it is statically linked: it has no loader";
	return "its C library is not the GNU one";
}

static const char *refusal_of_tracing(int error)
{
	if (error == EPERM && yama_forbids())
		return "it may not be traced (yama: kernel.yama.ptrace_scope; become root, or set it to 0)";
	return error == EPERM || error == EACCES ? "it may not be traced: it is another user's, or more than you may be"
						 : NULL;
}

const char *remote_refusal(pid_t pid, int *error)
{
	struct program program;
	const char *why = refusal_by_status(pid, error);
	if (why)
		return why;
	if (program_open(&program, pid, error, &why) == 0)
		why = refusal_by_memory(&program);
	else if (refusal_of_tracing(*error))
		why = refusal_of_tracing(*error);
	if (!why)
		*error = 0;
	program_close(&program);
	return why;
}

/* ---- the C library ------------------------------------------------------------------ */

/* mov $15,%rax; syscall: what returns from a signal handler. */
static uint64_t find_restorer(const struct program *program, const struct remote_module *libc)
{
	static const uint8_t wanted[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	for (uint32_t i = 0; i < program->mapping_count; i++) {
		const struct mapping *mapping = &program->mappings[i];
		uint64_t found = 0;
		if (!mapping->executable || mapping->start < libc->start || mapping->start >= libc->end)
			continue;
		size_t size = mapping->end - mapping->start;
		uint8_t *code = malloc(size);
		if (code && program_read(program, mapping->start, code, size) == 0) {
			const uint8_t *at = memmem(code, size, wanted, sizeof wanted);
			found = at ? mapping->start + (uint64_t)(at - code) : 0;
		}
		free(code);
		if (found)
			return found;
	}
	return 0;
}

/* __errno_location: [endbr64] mov OFFSET(%rip),%rax; add %fs:0,%rax; ret. */
static int find_errno(const struct program *program, const struct remote_module *libc, int64_t *offset)
{
	static const uint8_t mark[] = {0xf3, 0x0f, 0x1e, 0xfa}, load[] = {0x48, 0x8b, 0x05},
			     add[] = {0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0};
	uint8_t code[ERRNO_CODE];
	int32_t distance;
	int type;
	uint64_t at = module_symbol(program, libc, "__errno_location", &type);
	if (!at || program_read(program, at, code, sizeof code))
		return -1;
	if (memcmp(code, mark, sizeof mark) == 0) {
		at += sizeof mark;
		if (program_read(program, at, code, sizeof code))
			return -1;
	}
	if (memcmp(code, load, sizeof load) != 0 || memcmp(code + 7, add, sizeof add) != 0)
		return -1;
	memcpy(&distance, code + sizeof load, sizeof distance);
	return program_read(program, at + 7 + (uint64_t)(int64_t)distance, offset, sizeof *offset);
}

static int find_library(struct remote *remote)
{
	const struct program *program = &remote->program;
	const struct remote_module *libc = program_libc(program);
	struct library *library = &remote->library;
	int type;
	library->map = module_symbol(program, libc, "mmap", &type);
	library->unmap = module_symbol(program, libc, "munmap", &type);
	library->swab = module_symbol(program, libc, "swab", &type);
	library->restorer = find_restorer(program, libc);
	if (library->map && library->unmap && library->swab && library->restorer &&
	    find_errno(program, libc, &library->errno_offset) == 0)
		return 0;
	if (strchr("XZ", status_state(program->pid, 0)))
		return refuse(remote, REMOTE_REFUSED, ESRCH, "it has ended");
	return refuse(remote, REMOTE_REFUSED, 0, "its C library is of a kind that is not known");
}

/* ---- the function ------------------------------------------------------------------- */

int remote_find_late(const struct program *program, uint64_t *late, struct lorg_late *there)
{
	uint32_t size = 0;
	int64_t distance = 0;
	const struct remote_module *module = program_module_named(program, "liblorg.so");
	uint64_t note = module ? module_note(program, module, LORG_ABI_NOTE_NAME, LORG_LATE_NOTE_TYPE, &size) : 0;
	*late = 0;
	if (!module)
		return 0;
	if (!note || size != sizeof distance || program_read(program, note, &distance, sizeof distance) ||
	    program_read(program, note + (uint64_t)distance, there, sizeof *there) || there->magic != LORG_LATE_MAGIC ||
	    there->size != sizeof *there)
		return -1;
	*late = note + (uint64_t)distance;
	return 0;
}

static uint64_t find_symbol(const struct program *program, const char *symbol)
{
	const struct remote_module *places[] = {program_libc(program), program_module_named(program, "libdl.so.2")};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int type;
		uint64_t found = places[i] ? module_symbol(program, places[i], symbol, &type) : 0;
		if (found)
			return found;
	}
	return 0;
}

static int find_function(struct remote *remote)
{
	static const char other[] = "it is not the program any more that it was";
	struct remote_call *call = &remote->call;
	const struct program *program = &remote->program;
	struct lorg_late there;
	uint64_t late;
	if (call->symbol && !(call->function = find_symbol(program, call->symbol)))
		return refuse(remote, REMOTE_REFUSED, ENOSYS, "its C library has no such function");
	const struct remote_module *module = program_module_at(program, call->function);
	const struct mapping *mapping = program_mapping(program, call->function);
	if (!module || !mapping || !mapping->executable)
		return refuse(remote, REMOTE_REFUSED, ESRCH, other);
	if (strncmp(module->name, "liblorg.so", 10) != 0)
		return 0;
	if (remote_find_late(program, &late, &there) || !late || there.entry != call->function)
		return refuse(remote, REMOTE_REFUSED, ESRCH, other);
	remote->announces = call->data && call->data_size == sizeof(struct lorg_late_words);
	return 0;
}

/* ---- one step ------------------------------------------------------------------------- */

static uint64_t errno_address(const struct remote *remote)
{
	return remote->taken.context.registers.fs_base + (uint64_t)remote->library.errno_offset;
}

/* At the end of its step: about to return from what looks like a signal handler. */
static int is_at_end(const struct remote *remote, const struct user_regs_struct *registers, uint64_t frame)
{
	return remote->at_entry && registers->orig_rax == SYS_rt_sigreturn && registers->rsp == frame + 8;
}

/* Registers at the entry of a function. */
static struct user_regs_struct entry_registers(const struct remote *remote, uint64_t function,
					       const uint64_t arguments[REMOTE_ARGUMENTS], uint64_t frame)
{
	struct user_regs_struct registers = remote->taken.context.registers;
	registers.rip = function;
	registers.rsp = frame;
	registers.rbp = 0;
	registers.rax = 0;
	registers.orig_rax = (uint64_t)-1; /* no system call is under way any more */
	registers.rdi = arguments[0];
	registers.rsi = arguments[1];
	registers.rdx = arguments[2];
	registers.rcx = arguments[3];
	registers.r8 = arguments[4];
	registers.r9 = arguments[5];
	registers.eflags &= ~(DIRECTION | SINGLE_STEP | ALIGNMENT_CHECK | RESUME);
	return registers;
}

/* How the thread gets back by itself from a step whose frame is at `frame`. */
static int write_way_back(const struct remote *remote, uint64_t frame)
{
	struct user_regs_struct back;
	thread_resumed(&remote->taken, 0, &back);
	return frame_write(&remote->program, frame, &remote->taken.context, &back, remote->library.restorer);
}

/*
 * The same, by way of one more call that gives the thread its errno back: of the C library's functions that write four bytes
 * somewhere, swab is one that is the same everywhere. `below` is free to be written to.
 */
static int write_way_back_by_errno(const struct remote *remote, uint64_t *frame, uint64_t below)
{
	const uint8_t *bytes = (const uint8_t *)&remote->error_number;
	const uint8_t swapped[sizeof remote->error_number] = {bytes[1], bytes[0], bytes[3], bytes[2]};
	const uint64_t arguments[REMOTE_ARGUMENTS] = {below, errno_address(remote), sizeof swapped};
	uint64_t last = *frame;
	struct user_regs_struct put = entry_registers(remote, remote->library.swab, arguments, last);
	struct thread_context *context = malloc(sizeof *context);
	int failed =
		!context || program_write(&remote->program, below, swapped, sizeof swapped) || write_way_back(remote, last);
	if (!failed) {
		*context = remote->taken.context;
		context->mask = ~0ull;
		*frame = frame_place(context, last - SWAB_ROOM);
		failed = frame_write(&remote->program, *frame, context, &put, remote->library.restorer) != 0;
	}
	free(context);
	return failed ? -1 : 0;
}

/* The frame is written; the registers next: from then on the thread gets back by itself. The mask last. */
static int start_step(struct remote *remote, uint64_t function, const uint64_t arguments[REMOTE_ARGUMENTS], uint64_t frame)
{
	static const uint64_t all = ~0ull;
	struct user_regs_struct registers = entry_registers(remote, function, arguments, frame);
	pid_t tid = remote->taken.tid;
	if (ptrace(PTRACE_SETREGS, tid, NULL, &registers))
		return -1;
	ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof all, &all);
	remote->calls = 0;
	remote->last_result = 0;
	return 0;
}

static int is_fault(int signal)
{
	return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGTRAP ||
	       signal == SIGSYS;
}

/* It is about to wait: for a lock, maybe, or for time in which others go on. */
static int is_wait(int64_t number)
{
	switch (number) {
	case SYS_futex:
	case SYS_sched_yield:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_pselect6:
	case SYS_select:
	case SYS_poll:
	case SYS_ppoll:
	case SYS_epoll_wait: return 1;
	default: return 0;
	}
}

/* A stop of the thread before or after a system call. 1: its step is over. */
static int note_call(struct remote *remote, uint64_t frame)
{
	struct user_regs_struct registers;
	remote->at_entry = !remote->at_entry;
	if (ptrace(PTRACE_GETREGS, remote->taken.tid, NULL, &registers))
		return 0;
	if (remote->at_entry) {
		remote->calls++;
		remote->last_number = (int64_t)registers.orig_rax;
		thread_others(&remote->program, &remote->taken, is_wait(remote->last_number));
	} else {
		remote->last_result = (int64_t)registers.rax;
		if (is_wait(remote->last_number))
			thread_hold_others(&remote->program, &remote->taken);
	}
	return is_at_end(remote, &registers, frame);
}

/* It waits for a lock, and has done nothing before. */
static int waits_for_first_lock(const struct remote *remote)
{
	return remote->call.gives_up && remote->calls == 1 && remote->last_number == SYS_futex;
}

enum stop { STOP_GO_ON, STOP_OVER, STOP_FAILED };

/* The thread has stopped. *request, *deliver: how it goes on. */
static enum stop note_stop(struct remote *remote, uint64_t frame, int signal, int event, int *request, int *deliver)
{
	*request = PTRACE_SYSCALL;
	*deliver = 0;
	if (signal == (SIGTRAP | 0x80)) {
		if (note_call(remote, frame))
			return STOP_OVER;
		if (!remote->at_entry && waits_for_first_lock(remote) && remote->last_result == -RESTART_SYSTEM) {
			refuse(remote, REMOTE_AGAIN, EAGAIN, "its loader is busy: another thread holds it for long");
			return STOP_FAILED;
		}
	} else if (event == EVENT_STOP && signal != SIGTRAP) {
		*request = PTRACE_LISTEN; /* it is stopped by a signal, with all its threads */
	} else if (!event && is_fault(signal)) {
		remote->at_entry = 0;
		refuse(remote, REMOTE_FAILED, EFAULT, "the called code has crashed; the program goes on without it");
		return STOP_FAILED;
	} else if (!event) {
		*deliver = signal;
	}
	return STOP_GO_ON;
}

/* As thread_await; sees to the other threads meanwhile. */
static int await_step(struct remote *remote, uint64_t limit, int *signal, int *event)
{
	while ((remote->taken.other_count || remote->taken.holds) && thread_now_ns() < limit) {
		uint64_t soon = thread_now_ns() + OTHERS_NS;
		int stopped = thread_await(remote->taken.tid, soon < limit ? soon : limit, signal, event);
		if (stopped)
			return stopped;
		thread_others(&remote->program, &remote->taken, 0);
	}
	return thread_await(remote->taken.tid, limit, signal, event);
}

/*
 * Lets the thread run until its step is over: 0. Else -1 with the outcome; the thread is then stopped (REMOTE_FAILED,
 * REMOTE_AGAIN), or gone (ESRCH), or left alone (REMOTE_LEFT).
 */
static int run_step(struct remote *remote, uint64_t frame, uint64_t limit)
{
	pid_t tid = remote->taken.tid;
	int request = PTRACE_SYSCALL, signal = 0, event = 0, deliver = 0, interrupted = 0;
	uint64_t look = thread_now_ns() + GIVE_UP_NS;
	for (;;) {
		if (request >= 0 && ptrace(request, tid, NULL, (void *)(intptr_t)deliver))
			return refuse(remote, REMOTE_FAILED, errno, "the program has ended meanwhile");
		int stopped = await_step(remote, !interrupted && look < limit ? look : limit, &signal, &event);
		if (stopped < 0)
			return refuse(remote, REMOTE_FAILED, ESRCH, "the program has ended meanwhile");
		if (stopped) {
			enum stop stop = note_stop(remote, frame, signal, event, &request, &deliver);
			if (stop != STOP_GO_ON)
				return stop == STOP_OVER ? 0 : -1;
			continue;
		}
		if (interrupted || thread_now_ns() >= limit)
			return refuse(remote, REMOTE_LEFT, ETIMEDOUT,
				      "the call takes too long: the thread goes on by itself when it is done");
		request = -1; /* it runs */
		interrupted = 1;
		if (remote->at_entry && waits_for_first_lock(remote))
			ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	}
}

/* ---- a step that announces its end ---------------------------------------------------------- */

static uint64_t words_address(const struct remote *remote, size_t offset)
{
	return remote->region + offset;
}

static void tell_watched(struct remote *remote, uint32_t watched)
{
	static const uint32_t no;
	if (watched) /* what stands there may be of another call */
		program_write(&remote->program, words_address(remote, offsetof(struct lorg_late_words, ending)), &no, sizeof no);
	program_write(&remote->program, words_address(remote, offsetof(struct lorg_late_words, watched)), &watched,
		      sizeof watched);
}

static int is_ending(const struct remote *remote)
{
	uint32_t ending = 0;
	return program_read(&remote->program, words_address(remote, offsetof(struct lorg_late_words, ending)), &ending,
			    sizeof ending) == 0 &&
	       ending;
}

/* It has stopped because we wanted it to. 0: it is still in its step. */
static int is_back_by_itself(struct remote *remote)
{
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, remote->taken.tid, NULL, &registers))
		return refuse(remote, REMOTE_FAILED, ESRCH, "the program has ended meanwhile");
	remote->by_itself = registers.rsp < remote->region || registers.rsp >= remote->region + REGION;
	return remote->by_itself;
}

/* Now and then: the other threads, the time, and whether there is anything left to wait for. */
static int look_around(struct remote *remote, uint64_t limit)
{
	char state = status_state(remote->call.pid, remote->taken.tid);
	thread_others(&remote->program, &remote->taken, state == 'S');
	if (state == 'X' || state == 'Z')
		return refuse(remote, REMOTE_FAILED, ESRCH, "the program has ended meanwhile");
	if (thread_now_ns() >= limit)
		return refuse(remote, REMOTE_LEFT, ETIMEDOUT,
			      "the call takes too long: the thread goes on by itself when it is done");
	return 0;
}

/*
 * Lets the thread run, without a stop at each system call, until it says that it is at the end of its step, and stops it there:
 * 0. Else as run_step; or 1: it was not stopped in time, and has gone back as it does without a tracer.
 */
static int run_to_ending(struct remote *remote, uint64_t limit)
{
	pid_t tid = remote->taken.tid;
	int request = PTRACE_CONT, deliver = 0, interrupted = 0;
	for (uint32_t round = 0;; round++) {
		int signal = 0, event = 0;
		if (request >= 0 && ptrace(request, tid, NULL, (void *)(intptr_t)deliver))
			return refuse(remote, REMOTE_FAILED, errno, "the program has ended meanwhile");
		request = -1;
		int stopped = thread_has_stopped(tid, &signal, &event);
		if (stopped < 0)
			return refuse(remote, REMOTE_FAILED, ESRCH, "the program has ended meanwhile");
		if (stopped && interrupted && event == EVENT_STOP && signal == SIGTRAP)
			return is_back_by_itself(remote);
		if (stopped) {
			if (note_stop(remote, 0, signal, event, &request, &deliver) != STOP_GO_ON)
				return -1;
			request = request == PTRACE_LISTEN ? PTRACE_LISTEN : PTRACE_CONT;
			continue;
		}
		if (!interrupted && is_ending(remote)) {
			interrupted = 1;
			ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
		}
		if (round % ROUNDS_A_LOOK == 0 && look_around(remote, limit))
			return -1;
		/* Not more often: we may be on the thread's own processor, and come before it. */
		nanosleep(&(struct timespec){0, ENDING_NS}, NULL);
	}
}

/* ---- the whole -------------------------------------------------------------------------- */

/*
 * The thread, which is stopped, as it was; it goes on by go_on().
 *
 * To be let go wakes a thread as a signal does, and some calls end with that. So one that is before a call goes on into it
 * from where it stands, and the kernel lets it go when this thread ends, at once: a signal that has come meanwhile ends the call
 * as it would have. Signals that are ignored would end it too, since the mask has kept them: they go away on the way back to the
 * program, which then makes the call by itself.
 */
static void put_back(struct remote *remote)
{
	pid_t tid = remote->taken.tid;
	program_write(&remote->program, errno_address(remote), &remote->error_number, sizeof remote->error_number);
	context_restore_rest(tid, &remote->taken.context);
	if (thread_signals(remote->call.pid, tid) == SIGNALS_IGNORED)
		remote->at_entry = 0;
	remote->is_back = 1;
}

/*
 * The last that this thread does: who still has a tracer gets to see signals that it would not have. Registers last: until then
 * the thread would do all this by itself.
 */
static void go_on(const struct remote *remote)
{
	struct user_regs_struct registers;
	if (!remote->is_back)
		return;
	thread_resumed(&remote->taken, remote->at_entry, &registers);
	ptrace(PTRACE_SETREGS, remote->taken.tid, NULL, &registers);
	ptrace(remote->at_entry ? PTRACE_CONT : PTRACE_DETACH, remote->taken.tid, NULL, NULL);
}

/* below: 0, or where errno can be kept for the way back. */
static int step(struct remote *remote, uint64_t function, const uint64_t arguments[REMOTE_ARGUMENTS], uint64_t top,
		uint64_t below, uint64_t limit_ns)
{
	uint64_t frame = frame_place(&remote->taken.context, top);
	if ((below ? write_way_back_by_errno(remote, &frame, below) : write_way_back(remote, frame)) ||
	    start_step(remote, function, arguments, frame))
		return refuse(remote, REMOTE_FAILED, errno, "its stack cannot be written to");
	uint64_t limit = thread_now_ns() + limit_ns;
	if (remote->announces && function == remote->call.function) {
		int over = run_to_ending(remote, limit);
		if (over)
			return over;
		tell_watched(remote, 0);
		remote->at_entry = 0;
	}
	return run_step(remote, frame, limit);
}

static uint64_t own_stack(const struct remote *remote)
{
	return remote->taken.context.registers.rsp - RED_ZONE;
}

static int map_region(struct remote *remote)
{
	const uint64_t arguments[REMOTE_ARGUMENTS] = {
		0, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0};
	if (step(remote, remote->library.map, arguments, own_stack(remote), 0, SMALL_STEP_NS))
		return -1;
	if (remote->last_result < 0 && remote->last_result > -4096)
		return refuse(remote, REMOTE_REFUSED, (int)-remote->last_result,
			      "there is no memory in the program for the call");
	remote->region = (uint64_t)remote->last_result;
	return 0;
}

static int call_function(struct remote *remote)
{
	const struct remote_call *call = &remote->call;
	uint64_t arguments[REMOTE_ARGUMENTS];
	memcpy(arguments, call->arguments, sizeof arguments);
	if (call->data) {
		arguments[call->data_argument] = remote->region;
		if (program_write(&remote->program, remote->region, call->data, call->data_size))
			return refuse(remote, REMOTE_REFUSED, errno, "its memory cannot be written to");
	}
	if (remote->announces)
		tell_watched(remote, 1);
	if (step(remote, call->function, arguments, remote->region + REGION, remote->region + REMOTE_DATA_MAXIMUM,
		 call->limit_ns) < 0)
		return -1;
	if (call->data && program_read(&remote->program, remote->region, call->data, call->data_size))
		return refuse(remote, REMOTE_FAILED, errno, "its memory cannot be read");
	return 0;
}

/* The result of the call stays what it is. */
static int unmap_region(struct remote *remote)
{
	const uint64_t arguments[REMOTE_ARGUMENTS] = {remote->region, REGION};
	struct remote_call call = remote->call;
	int failed = step(remote, remote->library.unmap, arguments, own_stack(remote), 0, SMALL_STEP_NS);
	if (failed && remote->call.outcome == REMOTE_LEFT)
		return -1;
	remote->call = call;
	return 0;
}

static int is_stopped(const struct remote *remote)
{
	return remote->call.outcome != REMOTE_LEFT && remote->call.error != ESRCH;
}

static void call_in_thread(struct remote *remote)
{
	int failed = map_region(remote) || call_function(remote);
	if (remote->by_itself) { /* and the region stays */
		thread_part(&remote->program, &remote->taken, PART_NS);
		thread_let_go(&remote->program, remote->taken.tid);
		return;
	}
	/* One that has crashed or was given up may leave the memory in use. */
	if (remote->region && is_stopped(remote) && (!failed || remote->call.outcome == REMOTE_REFUSED))
		failed |= unmap_region(remote);
	thread_part(&remote->program, &remote->taken, PART_NS);
	if (is_stopped(remote))
		put_back(remote);
}

static void carry_out(struct remote *remote)
{
	struct remote_call *call = &remote->call;
	const char *why = refusal_by_status(call->pid, &call->error);
	if (why) {
		refuse(remote, REMOTE_REFUSED, call->error, why);
		return;
	}
	if (program_open(&remote->program, call->pid, &call->error, &why)) {
		refuse(remote, REMOTE_REFUSED, call->error,
		       refusal_of_tracing(call->error) ? refusal_of_tracing(call->error) : why);
		return;
	}
	if ((why = refusal_by_memory(&remote->program)) != NULL) {
		refuse(remote, REMOTE_REFUSED, 0, why);
		return;
	}
	if (find_library(remote) || find_function(remote))
		return;
	if (thread_take(&remote->program, call->choice_ns, &remote->taken, &why)) {
		if (strchr("XZ", status_state(call->pid, 0)) && status_number(call->pid, 0, "Threads", 10) <= 1)
			refuse(remote, REMOTE_REFUSED, ESRCH, "it has ended");
		else
			refuse(remote, REMOTE_AGAIN, EAGAIN, why);
		return;
	}
	call->tid = remote->taken.tid;
	remote->at_entry = remote->taken.at_entry;
	if (program_read(&remote->program, errno_address(remote), &remote->error_number, sizeof remote->error_number)) {
		refuse(remote, REMOTE_REFUSED, EFAULT, "its C library is of a kind that is not known");
		thread_part(&remote->program, &remote->taken, PART_NS);
		put_back(remote);
		return;
	}
	call_in_thread(remote);
}

/* Whatever is still seized when this thread ends, the kernel lets go. */
static void *tracer(void *argument)
{
	struct remote *remote = argument;
	remote->tracer = gettid();
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* of this thread: it waits in short sleeps */
	setpriority(PRIO_PROCESS, 0, PRIORITY);	  /* the same, where it may: threads of the program wait for it */
	carry_out(remote);
	thread_forget(&remote->taken);
	program_close(&remote->program);
	go_on(remote);
	/* Release: who sees it sees the results. */
	__atomic_store_n(&remote->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

struct remote *remote_start(const struct remote_call *call)
{
	struct remote *remote = calloc(1, sizeof *remote);
	sigset_t all, mask;
	if (!remote)
		return NULL;
	remote->call = *call;
	remote->call.outcome = REMOTE_DONE;
	remote->call.error = 0;
	remote->call.why = NULL;
	remote->program.memory = -1;
	if (!remote->call.choice_ns)
		remote->call.choice_ns = CHOICE_NS;
	if (!remote->call.limit_ns)
		remote->call.limit_ns = LIMIT_NS;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask); /* signals are for the caller's own thread */
	int failed = call->data && (call->data_size > REMOTE_DATA_MAXIMUM || call->data_argument >= REMOTE_ARGUMENTS);
	failed = failed || pthread_create(&remote->thread, NULL, tracer, remote);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (!failed)
		return remote;
	free(remote);
	return NULL;
}

int remote_over(const struct remote *remote)
{
	if (__atomic_load_n(&remote->over, __ATOMIC_ACQUIRE))
		return 1;
	hold_reap(remote->call.pid);
	return 0;
}

void remote_end(struct remote *remote, struct remote_call *call)
{
	hold_join(remote->thread, remote->call.pid);
	/* The tracer is gone for us a moment before it is for the kernel. */
	for (int i = 0; i < 1000 && remote->call.tid &&
			status_number(remote->call.pid, remote->call.tid, "TracerPid", 10) == remote->tracer;
	     i++)
		nanosleep(&(struct timespec){0, 100000}, NULL);
	*call = remote->call;
	free(remote);
}

int remote_carry_out(struct remote_call *call)
{
	struct remote *remote = remote_start(call);
	if (!remote) {
		call->outcome = REMOTE_AGAIN;
		call->error = EAGAIN;
		call->why = "no thread could be made to trace it";
		return -1;
	}
	remote_end(remote, call);
	return call->outcome == REMOTE_DONE ? 0 : -1;
}
