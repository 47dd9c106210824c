/* SPDX-License-Identifier: MIT */
/*
 * Placing hooks and switching them in a running program: synthetic functions whose entries are known byte by byte, a plan
 * made by hand, thunks that count. A child process runs them while this one switches.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <lorg/abi.h>

#include "collector/patch/hold.h"
#include "collector/patch/patch.h"
#include "preload/call/call.h"
#include "preload/patch/patch.h"
#include "tests/unit/unit.h"

/* ---- the functions: long f(long x) gives 3x + NUMBER -------------------------------- */

#define BODY(number) "	lea (%rdi,%rdi,2), %rax\n	add $" #number ", %rax\n"

__asm__(".pushsection .text\n"
	".balign 4096\n"
	"code_start:\n"
	".balign 16\n" /* three instructions move */
	"frame: push %rbp\n	mov %rsp, %rbp\n	sub $16, %rsp\n" BODY(1) "	leave\n	ret\n"
	".balign 16\n" /* one NOP of five bytes in one word */
	"nop5: .byte 0x0f, 0x1f, 0x44, 0, 0\n" BODY(2) "	ret\n"
	".balign 16\n" /* endbr64 stays; a displacement is to be mended; the patch crosses a word */
	"relative: endbr64\n	mov value(%rip), %eax\n	push %rbx\n	mov %eax, %ebx\n" BODY(0) "	add %rbx, %rax\n	pop %rbx\n	ret\n"
	".balign 16\n" /* a short jump that becomes a long one: what has moved is longer */
	"branch: test %rdi, %rdi\n	js 1f\n	mov $4, %eax\n	lea (%rdi,%rdi,2), %rdi\n	add %rdi, %rax\n	ret\n"
	"1:	lea 4(%rdi,%rdi,2), %rax\n	ret\n"
	".balign 16\n	nop\n	nop\n	nop\n	nop\n	nop\n	nop\n" /* eight single bytes, across a word */
	"bytes: push %rbx\n	push %rcx\n	push %rdx\n	pop %rdx\n	pop %rcx\n	pop %rbx\n" BODY(5) "	ret\n"
	".balign 4096\n"
	"code_end:\n"
	".popsection\n");
extern char code_start[], code_end[], frame[], nop5[], relative[], branch[], bytes[];
uint32_t value __attribute__((used, visibility("hidden"))) = 3;

enum { FUNCTIONS = 5, PATIENCE = 100 };
static long (*const function[FUNCTIONS])(long) = {(void *)frame, (void *)nop5, (void *)relative, (void *)branch, (void *)bytes};

static long right_value(unsigned index, long x)
{
	return 3 * x + (long)index + 1;
}

/* ---- the plan ------------------------------------------------------------------------ */

struct whole_plan {
	struct lorg_plan head;
	struct lorg_plan_function function[FUNCTIONS];
	uint8_t code[256];
};
struct whole_control {
	struct lorg_control head;
	struct lorg_function_control function[FUNCTIONS];
};

/* What the child has, and the parent sees. */
struct shared {
	struct whole_plan plan;
	struct whole_control control;
	uint64_t counted[FUNCTIONS]; /* by thunks */
	uint64_t called, wrong, stop, ready, signals, interrupted;
};
static struct shared *shared;
static struct lorg_placements placements = {.magic = LORG_PLACEMENTS_MAGIC, .size = sizeof(struct lorg_placement)};

static uint32_t code_used;

static void plan_function_of(unsigned index, uint8_t skip, uint8_t taken, uint32_t flags, enum lorg_entry_kind kind)
{
	struct lorg_plan_function *planned = &shared->plan.function[index];
	const uint8_t *entry = (const uint8_t *)function[index];
	*planned = (struct lorg_plan_function){.offset = (uint64_t)((char *)entry - code_start), .size = 64,
		.flags = flags | LORG_PLAN_CODE, .entry_kind = (uint8_t)kind, .skip = skip, .taken = taken};
	memcpy(&planned->original, entry + skip, 4);
	memcpy(planned->original_rest, entry + skip + 4, taken - 4u);
	if (kind != LORG_ENTRY_RELOCATE)
		return;
	planned->code = code_used;
	planned->code_length = taken;
	memcpy(shared->plan.code + code_used, entry + skip, taken);
	code_used += taken;
}

static void plan_make(void)
{
	struct lorg_plan *head = &shared->plan.head;
	code_used = 0;
	*head = (struct lorg_plan){.magic = LORG_PLAN_MAGIC, .major = LORG_ABI_MAJOR, .size = sizeof *head, .function_count = FUNCTIONS,
		.plan_size = sizeof shared->plan, .plan_id = 7, .first_function = LORG_FIRST_HOOKED_FUNCTION,
		.text_end = (uint64_t)(code_end - code_start), .functions = offsetof(struct whole_plan, function),
		.slots = sizeof(struct whole_plan), .code = offsetof(struct whole_plan, code), .code_size = sizeof shared->plan.code};
	plan_function_of(0, 0, 8, 0, LORG_ENTRY_RELOCATE);
	plan_function_of(1, 0, 5, 0, LORG_ENTRY_NOP);
	plan_function_of(2, 4, 6, 0, LORG_ENTRY_RELOCATE);
	plan_function_of(3, 0, 10, 0, LORG_ENTRY_RELOCATE);
	plan_function_of(4, 0, 6, 0, LORG_ENTRY_RELOCATE);
	struct lorg_plan_function *moved = &shared->plan.function[2];
	moved->fixup_count = 1;
	moved->fixup[0].at = 2;
	moved->fixup[0].from = 6;
	moved->fixup[0].target = (int32_t)((char *)&value - relative);
	/* test %rdi, %rdi; js long; mov $4, %eax */
	static const uint8_t longer[] = {0x48, 0x85, 0xff, 0x0f, 0x88, 0, 0, 0, 0, 0xb8, 4, 0, 0, 0};
	moved = &shared->plan.function[3];
	memcpy(shared->plan.code + 200, longer, sizeof longer);
	moved->code = 200;
	moved->code_length = sizeof longer;
	moved->fixup_count = 1;
	moved->fixup[0].at = 5;
	moved->fixup[0].from = 9;
	moved->fixup[0].target = 5 + branch[4];
	shared->control.head = (struct lorg_control){.magic = LORG_CONTROL_MAGIC, .size = sizeof(struct lorg_control),
		.function_count = FUNCTIONS, .control_size = sizeof shared->control,
		.functions = offsetof(struct whole_control, function), .settings = sizeof shared->control};
}

/* ---- thunks of the test's own: they count, and go on ----------------------------------- */

static struct call_target targets[FUNCTIONS];
static uint32_t target_count;

int call_target_add(const struct call_target *target)
{
	ck_assert_uint_lt(target_count, FUNCTIONS);
	targets[target_count] = *target;
	return (int)target_count++;
}

void call_thunk_write(void *at, uint32_t index)
{
	/* push %rax; movabs $counter, %rax; lock incq (%rax); pop %rax; jmp *0(%rip); the body */
	static const uint8_t form[] = {0x50, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x48, 0xff, 0x00, 0x58, 0xff, 0x25, 0, 0, 0, 0};
	uint8_t thunk[CALL_THUNK_SIZE];
	uint64_t counter = (uint64_t)&shared->counted[index];
	memset(thunk, 0xcc, sizeof thunk);
	memcpy(thunk, form, sizeof form);
	memcpy(thunk + 3, &counter, sizeof counter);
	memcpy(thunk + sizeof form, &targets[index].body, sizeof targets[index].body);
	memcpy(at, thunk, sizeof thunk);
}

/* ---- a hook of liblorg.so's own at an entry ---------------------------------------------- */

static const void *own_entry, *own_trampoline;
static void *own_goes_on;

/* As in preload/resolve/code_hook.h, which needs the generated table. */
void *code_hook_trampoline(const void *entry);
void code_hook_go_on_by(const void *trampoline, void *thunk);

void *code_hook_trampoline(const void *entry)
{
	return own_entry && entry == own_entry ? (void *)(uintptr_t)own_trampoline : NULL;
}

void code_hook_go_on_by(const void *trampoline, void *thunk)
{
	ck_assert_ptr_eq(trampoline, own_trampoline);
	own_goes_on = thunk;
}

/* ---- set-up ------------------------------------------------------------------------------- */

static struct patch_plan the_plan;
static struct patch_module module;

static void set_gates(uint32_t gate)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		__atomic_store_n(&shared->control.function[i].gate, gate, __ATOMIC_RELAXED);
}

static struct patch_refusals place(uint32_t gate)
{
	struct patch_refusals refusals = {0};
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	plan_make();
	set_gates(gate);
	ck_assert(plan_is_right(&shared->plan.head, sizeof shared->plan, (uint64_t)(code_end - code_start)));
	ck_assert(control_is_right(&shared->control.head, sizeof shared->control, &shared->plan.head));
	module = (struct patch_module){.base = (uint64_t)code_start, .start = (uint64_t)code_start, .end = (uint64_t)&value + 8,
		.plan = &shared->plan.head, .control = &shared->control.head, .placement = &placements.entry[0]};
	if (module.end < (uint64_t)code_end)
		module.end = (uint64_t)code_end;
	placements.entry[0] = (struct lorg_placement){.plan_id = 7, .base = module.base, .function_count = FUNCTIONS};
	placements.count = 1;
	ck_assert_int_eq(stubs_place(&module, &refusals), 0);
	entries_place(&module, 1, &refusals);
	placements.entry[0].state = LORG_PLACEMENT_PLACED;
	the_plan = (struct patch_plan){.plan = &shared->plan.head, .stub_at = patch_stub_offsets(&shared->plan.head), .control = &shared->control.head};
	return refusals;
}

static void check_values(void)
{
	for (long x = -3; x < 100; x++)
		for (unsigned i = 0; i < FUNCTIONS; i++)
			ck_assert_int_eq(function[i](x), right_value(i, x));
}

static struct patch_outcome switch_in(pid_t pid, uint32_t gate)
{
	struct patch_outcome outcome;
	set_gates(gate);
	for (int tries = 0; tries < PATIENCE; tries++) {
		patch_image(pid, (uint64_t)&placements, &the_plan, NULL, 0, &outcome);
		if (!outcome.later)
			break;
		usleep(500);
	}
	return outcome;
}

/* ---- the child ------------------------------------------------------------------------------ */

static void *caller(void *argument)
{
	uint64_t called = 0, wrong = 0;
	for (long x = (long)(intptr_t)argument; !__atomic_load_n(&shared->stop, __ATOMIC_RELAXED); x++)
		for (unsigned i = 0; i < FUNCTIONS; i++, called++)
			wrong += function[i](x) != right_value(i, x);
	__atomic_add_fetch(&shared->called, called, __ATOMIC_RELAXED);
	__atomic_add_fetch(&shared->wrong, wrong, __ATOMIC_RELAXED);
	return NULL;
}

static void on_alarm(int signal)
{
	(void)signal;
	__atomic_add_fetch(&shared->signals, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (function[i](77) != right_value(i, 77))
			__atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED);
}

static void run_threads(int threads)
{
	pthread_t thread[8];
	for (int i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, caller, (void *)(intptr_t)i);
	shared->ready = 1;
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
}

/* Where it went wrong, for whoever reads the test's output. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;
	char text[160];
	int length = snprintf(text, sizeof text, "child: signal %d, instruction %#llx (code from %p, stubs from %#llx), address %p\n", signal,
			      (unsigned long long)at->uc_mcontext.gregs[REG_RIP], (void *)code_start,
			      (unsigned long long)placements.entry[0].stubs, info->si_addr);
	if (write(2, text, (size_t)length) > 0)
		_exit(3);
	_exit(2);
}

static void watch_faults(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		sigaction(signals[i], &action, NULL);
}

static pid_t start_child(int threads, int with_signals)
{
	pid_t pid = fork();
	if (pid == 0) {
		watch_faults();
		if (with_signals) {
			struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
			struct itimerval timer = {{0, 700}, {0, 700}};
			sigaction(SIGALRM, &action, NULL);
			setitimer(ITIMER_REAL, &timer, NULL);
		}
		run_threads(threads);
		_exit(0);
	}
	while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
		usleep(100);
	return pid;
}

static void end_child(pid_t pid)
{
	int status;
	shared->stop = 1;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %x", status);
	ck_assert_uint_eq(shared->wrong, 0);
}

/* ---- tests -------------------------------------------------------------------------------------- */

START_TEST(placed_at_the_start)
{
	struct patch_refusals refusals = place(LORG_CALL_ENTRY);
	ck_assert_uint_eq(refusals.occupied + refusals.out_of_reach + refusals.no_memory + refusals.unwritable, 0);
	check_values();
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		ck_assert_uint_eq(shared->counted[i], 103);
		ck_assert(entry_is_placed(&module, i));
	}
}
END_TEST

START_TEST(closed_gates_leave_the_bytes)
{
	uint8_t before[4096];
	memcpy(before, code_start, sizeof before);
	place(0);
	ck_assert_mem_eq(before, code_start, sizeof before);
	check_values();
}
END_TEST

/* Another tool's breakpoint: that function is left alone, the others are hooked. */
START_TEST(occupied_entry)
{
	int memory = open("/proc/self/mem", O_RDWR);
	const uint8_t breakpoint = 0xcc, *entry = (const uint8_t *)frame;
	uint8_t before[8];
	memcpy(before, entry, sizeof before);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(pwrite(memory, &breakpoint, 1, (off_t)(uintptr_t)(frame + 1)), 1);
	uint8_t set[8];
	memcpy(set, entry, sizeof set);
	/* The plan is made from the file: from the bytes as they were. */
	ck_assert_int_eq(pwrite(memory, before, 8, (off_t)(uintptr_t)frame), 8);
	plan_make();
	set_gates(1);
	ck_assert_int_eq(pwrite(memory, set, 8, (off_t)(uintptr_t)frame), 8);
	struct patch_refusals refusals = {0};
	module = (struct patch_module){.base = (uint64_t)code_start, .start = (uint64_t)code_start, .end = (uint64_t)code_end,
		.plan = &shared->plan.head, .control = &shared->control.head, .placement = &placements.entry[0]};
	ck_assert_int_eq(stubs_place(&module, &refusals), 0);
	entries_place(&module, 1, &refusals);
	ck_assert_uint_eq(refusals.occupied, 1);
	ck_assert_mem_eq(set, entry, sizeof set);
	ck_assert(entry_is_placed(&module, 4));
	close(memory);
}
END_TEST

/* liblorg.so's own hook at an entry: it stays, and its wrapper goes on at the stub, which leads to its trampoline. */
START_TEST(own_hook_at_entry)
{
	uint8_t before[8];
	const uint8_t *entry = (const uint8_t *)function[0];
	memcpy(before, entry, sizeof before);
	own_entry = entry;
	own_trampoline = before; /* not executed here */
	struct patch_refusals refusals = place(1);
	ck_assert_uint_eq(refusals.occupied + refusals.unwritable, 0);
	ck_assert_mem_eq(before, entry, sizeof before);
	ck_assert(!entry_is_placed(&module, 0));
	ck_assert(entry_is_placed(&module, 1));
	ck_assert_ptr_eq(own_goes_on, (void *)placements.entry[0].stubs);
	ck_assert_uint_eq(targets[0].body, (uint64_t)before);
	ck_assert_uint_eq(targets[0].kind, LORG_KIND_LOCAL);
	own_entry = NULL;
}
END_TEST

START_TEST(wrong_plans)
{
	place(0);
	const uint64_t size = sizeof shared->plan, end = (uint64_t)(code_end - code_start);
	struct whole_plan good = shared->plan;
	struct lorg_plan *head = &shared->plan.head;
	head->function_count = 1000000;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	head->functions = size - 8;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	shared->plan.function[0].code = 250;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	shared->plan.function[0].taken = 17;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	shared->plan.function[4].offset = end - 3;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	shared->plan.function[2].fixup[0].at = 5;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	head->text_end = end + 1;
	ck_assert(!plan_is_right(head, size, end));
	shared->plan = good;
	ck_assert(plan_is_right(head, size, end));
}
END_TEST

static void switch_often(int threads, int with_signals, int times)
{
	uint8_t before[4096];
	memcpy(before, code_start, sizeof before);
	place(0);
	pid_t pid = start_child(threads, with_signals);
	uint32_t switched = 0, failed = 0;
	const char *seconds = getenv("LORG_TEST_SWITCH_SECONDS");
	time_t limit = time(NULL) + (seconds ? atoi(seconds) : 40); /* on a busy machine, as often as there is time for */
	for (int i = 0; i < times && (i < 50 || time(NULL) < limit); i++) {
		struct patch_outcome on = switch_in(pid, 1), off = switch_in(pid, 0);
		ck_assert_msg(!on.why && !off.why, "%s", on.why ? on.why : off.why);
		ck_assert_uint_eq(on.foreign + off.foreign, 0);
		switched += on.on;
		failed += on.later + off.later;
	}
	uint8_t after[4096];
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	int memory = open(path, O_RDONLY);
	ck_assert_int_eq(pread(memory, after, sizeof after, (off_t)(uintptr_t)code_start), sizeof after);
	close(memory);
	end_child(pid);
	ck_assert_uint_eq(failed, 0);
	ck_assert_mem_eq(before, after, sizeof before);
	ck_assert_uint_gt(switched, 0);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		ck_assert_uint_gt(shared->counted[i], 0);
}

START_TEST(switched_under_four_threads)
{
	switch_often(4, 0, 1000);
}
END_TEST

START_TEST(switched_under_signal_handlers)
{
	switch_often(2, 1, 200);
	ck_assert_uint_gt(shared->signals, 0);
}
END_TEST

/* On all the time but for the moment before: each call is counted once. */
START_TEST(no_call_lost)
{
	place(LORG_CALL_ENTRY);
	pid_t pid = start_child(2, 0);
	usleep(50000);
	end_child(pid);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		ck_assert_uint_eq(shared->counted[i] * FUNCTIONS, shared->called);
}
END_TEST

/* ---- stopped at each byte ---- */

static void wait_stopped(pid_t pid)
{
	int status;
	ck_assert_int_eq(waitpid(pid, &status, __WALL), pid);
	ck_assert_msg(WIFSTOPPED(status), "status %x", status);
}

/* Reached by the return of the function that was called: its result in rax. */
__asm__(".pushsection .text\n"
	"came_back:\n	mov %rax, %rdi\n	call tell_result\n	hlt\n"
	"wait_here:\n	lea came_back(%rip), %r15\n1:	mov $34, %eax\n	syscall\n	jmp 1b\n" /* pause */
	".popsection\n");
extern char came_back[];
extern void wait_here(void);
void tell_result(long result);

/*
 * A child that calls function `index` and is stopped, by a stop signal and without a tracer, `steps` instructions behind its
 * entry. Returns 0 where the function had returned before.
 */
static int stop_inside(pid_t pid, unsigned index, int steps)
{
	struct user_regs_struct registers;
	for (;;) {
		ck_assert_int_eq(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
		ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
		wait_stopped(pid);
		ck_assert_int_eq(ptrace(PTRACE_GETREGS, pid, NULL, &registers), 0);
		if (registers.r15 == (uint64_t)(uintptr_t)came_back && (int64_t)registers.orig_rax == 34)
			break;
		ptrace(PTRACE_DETACH, pid, NULL, NULL);
		usleep(100);
	}
	/* It waits in pause(): as if its caller had called the function. */
	registers.rsp = (registers.rsp - 512) & ~15ull;
	registers.rsp -= 8;
	uint64_t back = (uint64_t)(uintptr_t)registers.r15;
	ptrace(PTRACE_POKEDATA, pid, (void *)registers.rsp, (void *)back);
	registers.rip = (uint64_t)(uintptr_t)function[index];
	registers.rdi = 1000;
	registers.orig_rax = (uint64_t)-1;
	ck_assert_int_eq(ptrace(PTRACE_SETREGS, pid, NULL, &registers), 0);
	for (int i = 0; i < steps; i++) {
		ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		wait_stopped(pid);
	}
	ptrace(PTRACE_GETREGS, pid, NULL, &registers);
	int inside = registers.rip != back;
	kill(pid, SIGSTOP);
	ck_assert_int_eq(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
	siginfo_t info;
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
	return inside;
}

void tell_result(long result)
{
	_exit(result == right_value((unsigned)shared->ready, 1000) ? 0 : 1);
}

/* Returns 0 when the function is over after fewer steps. */
static int stopped_at(unsigned index, int steps, uint32_t before, uint32_t after)
{
	int status;
	set_gates(before);
	shared->ready = index;
	pid_t pid = fork();
	if (pid == 0)
		wait_here();
	struct patch_outcome outcome = switch_in(pid, before);
	ck_assert_ptr_eq(outcome.why, NULL);
	usleep(300);
	int inside = stop_inside(pid, index, steps);
	outcome = switch_in(pid, after);
	ck_assert_msg(!outcome.why, "%s", outcome.why);
	ck_assert_uint_eq(outcome.foreign, 0);
	/* Still stopped: to hold it has not set it going. */
	ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGCONT);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "function %u, %d steps, %u to %u: status %x", index, steps, before, after,
		      status);
	return inside;
}

START_TEST(stopped_at_each_instruction)
{
	place(0);
	for (unsigned index = 0; index < FUNCTIONS; index++)
		for (uint32_t before = 0; before < 2; before++)
			for (int steps = 0; stopped_at(index, steps, before, !before) || steps < 4; steps++)
				ck_assert_int_lt(steps, 60);
}
END_TEST

/* ---- what holding must not do ---- */

START_TEST(waits_go_on)
{
	place(0);
	pid_t pid = fork();
	if (pid == 0) {
		struct epoll_event event;
		int epoll = epoll_create1(0);
		shared->ready = 1;
		int got = epoll_wait(epoll, &event, 1, 400);
		_exit(got == 0 ? 0 : errno == EINTR ? 4 : 1);
	}
	while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
		usleep(100);
	usleep(20000);
	for (int i = 0; i < 10; i++) {
		ck_assert_ptr_eq(switch_in(pid, 1).why, NULL);
		ck_assert_ptr_eq(switch_in(pid, 0).why, NULL);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "epoll_wait: status %x", status);
}
END_TEST

/* Another tracer is there: all is refused with the reason, and nobody is stopped. */
START_TEST(other_tracer)
{
	place(0);
	pid_t pid = start_child(1, 0);
	int ready[2];
	ck_assert_int_eq(pipe(ready), 0);
	pid_t debugger = fork();
	if (debugger == 0) {
		char word = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 ? 'y' : 'n';
		/* Its threads, too. */
		for (pid_t tid = pid + 1; tid < pid + 8; tid++)
			ptrace(PTRACE_SEIZE, tid, NULL, NULL);
		if (write(ready[1], &word, 1) == 1)
			pause();
		_exit(0);
	}
	char word = 0;
	ck_assert_int_eq(read(ready[0], &word, 1), 1);
	ck_assert_int_eq(word, 'y');
	struct patch_outcome outcome = switch_in(pid, 1);
	ck_assert_ptr_ne(outcome.why, NULL);
	ck_assert_ptr_ne(strstr(outcome.why, "another tracer"), NULL);
	ck_assert_uint_eq(outcome.on, 0);
	kill(debugger, SIGKILL);
	waitpid(debugger, NULL, 0);
	ck_assert_ptr_eq(switch_in(pid, 1).why, NULL);
	usleep(50000);
	end_child(pid);
	ck_assert_uint_gt(shared->counted[0], 0);
}
END_TEST

/* The collector dies while it holds a program: that goes on. */
START_TEST(killed_while_holding)
{
	place(0);
	pid_t pid = start_child(4, 0);
	for (int i = 0; i < 60; i++) {
		pid_t collector = fork();
		if (collector == 0)
			for (;;) {
				switch_in(pid, 1);
				switch_in(pid, 0);
			}
		usleep((useconds_t)(500 + i * 37));
		kill(collector, SIGKILL);
		waitpid(collector, NULL, 0);
	}
	uint64_t calls = __atomic_load_n(&shared->counted[0], __ATOMIC_RELAXED);
	ck_assert_ptr_eq(switch_in(pid, 1).why, NULL);
	usleep(20000);
	ck_assert_uint_gt(__atomic_load_n(&shared->counted[0], __ATOMIC_RELAXED), calls);
	end_child(pid);
}
END_TEST

/* Threads come and go, children are forked, while it is held again and again. */
static void *short_thread(void *argument)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (function[i](5) != right_value(i, 5))
			__atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED);
	return argument;
}

static __attribute__((noinline)) int make_child(void)
{
	pid_t pid = vfork();
	if (pid == 0)
		_exit(7);
	int status = 0;
	return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
}

static void come_and_go(void)
{
	for (int i = 0; !shared->stop; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, short_thread, NULL) == 0)
			pthread_join(thread, NULL);
		if (i % 8 == 0 && !make_child())
			__atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED);
	}
}

START_TEST(threads_that_come_and_go)
{
	place(0);
	pid_t pid = fork();
	if (pid == 0) {
		shared->ready = 1;
		come_and_go();
		_exit(0);
	}
	while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int i = 0; i < 100; i++) {
		ck_assert_ptr_eq(switch_in(pid, 1).why, NULL);
		ck_assert_ptr_eq(switch_in(pid, 0).why, NULL);
	}
	end_child(pid);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		placed_at_the_start, closed_gates_leave_the_bytes, occupied_entry, own_hook_at_entry, wrong_plans, no_call_lost, switched_under_four_threads,
		switched_under_signal_handlers, stopped_at_each_instruction, waits_go_on, other_tracer, killed_while_holding,
		threads_that_come_and_go,
	};
	return unit_suite_of("patch", tests, sizeof tests / sizeof *tests, 100);
}
