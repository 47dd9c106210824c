/* SPDX-License-Identifier: MIT */
/*
 * Calls into running programs: a child is in one state or another, this process has it call a function, and the child
 * tells whether it has noticed anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/remote/remote.h"
#include "tests/unit/unit.h"

enum { CALLS = 10, FINE = 42 };

/* What child and parent share. */
struct shared {
	int ready;       /* atomic; the child is about to be in its state */
	int stop;        /* atomic; it may end */
	int calls;       /* atomic; made so far */
	int handled;     /* atomic; signals */
	long rounds;     /* atomic */
	char wrong[128]; /* what it has noticed; "": nothing */
};
static struct shared *shared;
static int ends[2];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void nap(double seconds)
{
	struct timeval time = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
	select(0, NULL, NULL, NULL, &time);
}

static void child_sees(int right, const char *what)
{
	if (!right && !shared->wrong[0])
		snprintf(shared->wrong, sizeof shared->wrong, "%s (errno %d)", what, errno);
}

/* ---- what is called ------------------------------------------------------------------ */

struct words {
	int nap_ms, crash;
	uint64_t sum, answer;
};

/* Leaves nothing as it was that a function may change, and allocates. */
static __attribute__((noinline)) void called(uint64_t a, struct words *words, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	char *memory = malloc(1000 + (size_t)words->nap_ms);
	errno = 77;
	if (memory)
		memset(memory, 1, 1000);
	free(memory);
	if (words->nap_ms)
		nap(words->nap_ms / 1e3);
	if (words->crash)
		__builtin_trap();
	words->sum = a + c + d + e + f;
	words->answer = (uint64_t)getpid();
	__asm__ volatile(
		"pcmpeqd %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n movdqa %%xmm0, %%xmm7\n movdqa %%xmm0, %%xmm15\n fninit" ::
			: "xmm0", "xmm1", "xmm7", "xmm15");
	__atomic_fetch_add(&shared->calls, 1, __ATOMIC_RELAXED);
	errno = 78;
}

static struct remote_call call_of(pid_t child, struct words *words)
{
	return (struct remote_call){.pid = child,
				    .function = (uint64_t)(uintptr_t)called,
				    .arguments = {1, 0, 2, 3, 4, 5},
				    .data = words,
				    .data_size = sizeof *words,
				    .data_argument = 1,
				    .choice_ns = 20000000000};
}

static void call_once(pid_t child)
{
	struct words words = {0};
	struct remote_call call = call_of(child, &words);
	int failed = remote_carry_out(&call);
	ck_assert_msg(!failed, "%d: %s", call.outcome, call.why ? call.why : "");
	ck_assert_int_eq((int)words.answer, child);
	ck_assert_uint_eq(words.sum, 15);
}

/* ---- children -------------------------------------------------------------------------- */

static pid_t begin(void (*work)(void))
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		alarm(60);
		work();
		_exit(FINE);
	}
	while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE))
		nap(0.001);
	nap(0.01);
	return child;
}

static void end(pid_t child)
{
	int status;
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_str_eq(shared->wrong, "");
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == FINE, "status %x", status);
	close(ends[0]);
	close(ends[1]);
	munmap(shared, sizeof *shared);
}

static void is_ready(void)
{
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
}

static void sleeps(void)
{
	struct timespec time = {1, 0};
	double began = now();
	errno = 5;
	is_ready();
	child_sees(nanosleep(&time, NULL) == 0, "nanosleep");
	child_sees(errno == 5, "errno after nanosleep");
	child_sees(now() - began > 0.99 && now() - began < 1.8, "the time of nanosleep");
}

static void polls(void)
{
	struct pollfd descriptor = {ends[0], POLLIN, 0};
	double began = now();
	is_ready();
	child_sees(poll(&descriptor, 1, 1000) == 0, "poll");
	child_sees(now() - began > 0.99 && now() - began < 1.8, "the time of poll");
}

static void reads(void)
{
	char byte = 0;
	sigset_t mask, blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	errno = 5;
	is_ready();
	child_sees(read(ends[0], &byte, 1) == 1 && byte == 'x', "read");
	child_sees(errno == 5, "errno after read");
	sigprocmask(SIG_SETMASK, NULL, &mask);
	child_sees(sigismember(&mask, SIGUSR2) == 1 && sigismember(&mask, SIGUSR1) == 0 && sigismember(&mask, SIGTERM) == 0,
		   "the mask");
}

static void waits_for_event(void)
{
	int set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN}, got;
	epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
	is_ready();
	child_sees(epoll_wait(set, &got, 1, -1) == 1, "epoll_wait");
}

static void count_signal(int number)
{
	(void)number;
	__atomic_fetch_add(&shared->handled, 1, __ATOMIC_RELAXED);
}

static void suspends(void)
{
	sigset_t blocked, old;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	signal(SIGUSR1, count_signal);
	sigprocmask(SIG_BLOCK, &blocked, &old);
	is_ready();
	child_sees(sigsuspend(&old) == -1 && errno == EINTR, "sigsuspend");
	child_sees(shared->handled == 1, "the signal");
	sigprocmask(SIG_SETMASK, NULL, &old);
	child_sees(sigismember(&old, SIGUSR1) == 1, "the mask after sigsuspend");
}

static void pauses(void)
{
	struct sigaction action = {.sa_handler = count_signal};
	sigaction(SIGUSR1, &action, NULL);
	is_ready();
	child_sees(pause() == -1 && errno == EINTR, "pause");
}

static void reads_until_signal(void)
{
	char byte;
	struct sigaction action = {.sa_handler = count_signal};
	sigaction(SIGUSR1, &action, NULL);
	is_ready();
	child_sees(read(ends[0], &byte, 1) == -1 && errno == EINTR, "read that a signal ends");
}

/* Vector registers, the x87 stack, flags and the red zone, again and again. */
static void computes(void)
{
	uint64_t seed[4] = {0x1111, 0x2222, 0x3333, 0x4444}, back[4];
	is_ready();
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		uint64_t bad = 0;
		__asm__ volatile(
			"vmovdqu (%[seed]), %%ymm0\n vmovdqu (%[seed]), %%ymm7\n vmovdqu (%[seed]), %%ymm15\n"
			"fninit\n fldpi\n"
			"movq $0x5a5a5a5a, -120(%%rsp)\n"
			"mov $200000, %%ecx\n"
			"1:	cmpq $0x5a5a5a5a, -120(%%rsp)\n	jne 2f\n"
			"vpcmpeqd %%ymm0, %%ymm7, %%ymm1\n vpmovmskb %%ymm1, %%eax\n cmp $-1, %%eax\n jne 2f\n"
			"vpcmpeqd %%ymm0, %%ymm15, %%ymm1\n vpmovmskb %%ymm1, %%eax\n cmp $-1, %%eax\n jne 2f\n"
			"dec %%ecx\n	jnz 1b\n	jmp 3f\n"
			"2:	movq $1, %[bad]\n"
			"3:	fldpi\n	fcompp\n	fnstsw %%ax\n	and $0x4500, %%eax\n	cmp $0x4000, %%eax\n	je 4f\n	movq $2, %[bad]\n"
			"4:	vmovdqu %%ymm7, (%[back])\n vzeroupper\n"
			: [bad] "+r"(bad)
			: [seed] "r"(seed), [back] "r"(back)
			: "rax", "rcx", "cc", "memory", "xmm0", "xmm1", "xmm7", "xmm15", "st");
		child_sees(!bad && memcmp(seed, back, sizeof seed) == 0, bad == 2 ? "the x87 stack" : "vector registers");
		__atomic_fetch_add(&shared->rounds, 1, __ATOMIC_RELAXED);
	}
}

static void *allocates(void *nothing)
{
	unsigned seed = (unsigned)(uintptr_t)&seed;
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		void *memory[16];
		for (int i = 0; i < 16; i++)
			memory[i] = malloc((seed = seed * 1103515245 + 12345) % 40000);
		for (int i = 0; i < 16; i++)
			free(memory[i]);
	}
	return nothing;
}

static void threads_allocate(void)
{
	pthread_t threads[8];
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, allocates, NULL);
	is_ready();
	for (int i = 0; i < 8; i++)
		child_sees(pthread_join(threads[i], NULL) == 0, "pthread_join");
}

static void one_allocates(void)
{
	is_ready();
	allocates(NULL);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void calls_during(void (*work)(void), int calls)
{
	pid_t child = begin(work);
	double began = now();
	int made = 0;
	for (; made < calls && (made == 0 || now() - began < 0.4); made++)
		call_once(child);
	ck_assert_int_eq(shared->calls, made);
	ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
	end(child);
}

START_TEST(calls_beside_what_waits)
{
	calls_during(reads, CALLS);
	calls_during(waits_for_event, CALLS);
}
END_TEST

START_TEST(time_outs_go_on)
{
	calls_during(sleeps, CALLS);
	pid_t child = begin(polls);
	call_once(child);
	call_once(child);
	end(child);
}
END_TEST

START_TEST(calls_beside_what_runs)
{
	calls_during(computes, CALLS);
	calls_during(one_allocates, CALLS / 3);
	calls_during(threads_allocate, CALLS);
}
END_TEST

/* A signal that comes during the call ends what it would have ended. */
static void signal_during(void (*work)(void))
{
	pid_t child = begin(work);
	struct words words = {.nap_ms = 100};
	struct remote_call call = call_of(child, &words);
	struct remote *remote = remote_start(&call);
	ck_assert_ptr_nonnull(remote);
	nap(0.05);
	ck_assert_int_eq(shared->handled, 0);
	kill(child, SIGUSR1);
	nap(0.01);
	ck_assert_int_eq(shared->handled, 0);
	ck_assert(!remote_over(remote));
	remote_end(remote, &call);
	ck_assert_msg(call.outcome == REMOTE_DONE, "%s", call.why ? call.why : "");
	end(child);
}

START_TEST(signals_come_afterwards)
{
	signal_during(suspends);
	signal_during(pauses);
	signal_during(reads_until_signal);
}
END_TEST

/* Whoever traces dies: the thread ends its call, and is back. */
static void tracer_dies(void (*work)(void), long death_us)
{
	pid_t child = begin(work);
	int status;
	pid_t other = fork();
	if (other == 0) {
		struct words words = {.nap_ms = 60};
		struct remote_call call = call_of(child, &words);
		remote_carry_out(&call);
		_exit(0);
	}
	usleep((useconds_t)death_us);
	kill(other, SIGKILL);
	waitpid(other, &status, 0);
	nap(0.15);
	ck_assert_int_le(shared->calls, 1);
	call_once(child);
	ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
	end(child);
}

START_TEST(tracer_may_die)
{
	for (long death = 100; death < 8000; death += death / 3)
		tracer_dies(reads, death);
	for (long death = 200; death < 20000; death *= 2)
		tracer_dies(computes, death);
	tracer_dies(reads, 40000);
	tracer_dies(computes, 40000);
}
END_TEST

START_TEST(crash_of_called_code)
{
	pid_t child = begin(reads);
	struct words words = {.crash = 1};
	struct remote_call call = call_of(child, &words);
	ck_assert_int_eq(remote_carry_out(&call), -1);
	ck_assert_int_eq(call.outcome, REMOTE_FAILED);
	call_once(child);
	ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
	end(child);
}
END_TEST

START_TEST(limit_of_time)
{
	pid_t child = begin(reads);
	struct words words = {.nap_ms = 300};
	struct remote_call call = call_of(child, &words);
	call.limit_ns = 50000000;
	ck_assert_int_eq(remote_carry_out(&call), -1);
	ck_assert_int_eq(call.outcome, REMOTE_LEFT);
	ck_assert_int_eq(shared->calls, 0);
	nap(0.4);
	ck_assert_int_eq(shared->calls, 1);
	ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
	end(child);
}
END_TEST

static void waits_stopped(void)
{
	is_ready();
	raise(SIGSTOP);
}

static void forks_on_its_memory(void)
{
	pid_t child = vfork();
	if (child == 0) {
		__atomic_store_n(&shared->rounds, getpid(), __ATOMIC_RELAXED);
		is_ready();
		while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
			nap(0.01);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void refused(pid_t child, enum remote_outcome outcome)
{
	struct words words = {0};
	struct remote_call call = call_of(child, &words);
	call.choice_ns = 50000000;
	ck_assert_int_eq(remote_carry_out(&call), -1);
	ck_assert_int_eq(call.outcome, outcome);
	ck_assert_ptr_nonnull(call.why);
}

START_TEST(refusals)
{
	int status;
	pid_t child = begin(waits_stopped);
	refused(child, REMOTE_AGAIN);
	kill(child, SIGCONT);
	end(child);
	refused(child, REMOTE_REFUSED); /* it has ended */
	refused(1 << 30, REMOTE_REFUSED);
	refused(getpid(), REMOTE_REFUSED);
	child = begin(forks_on_its_memory);
	refused(child, REMOTE_AGAIN); /* it waits for its child */
	refused((pid_t)shared->rounds, REMOTE_REFUSED);
	end(child);
	child = begin(reads);
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, child, NULL, NULL), 0);
	refused(child, REMOTE_REFUSED); /* another tracer */
	ptrace(PTRACE_INTERRUPT, child, NULL, NULL);
	waitpid(child, &status, __WALL);
	ptrace(PTRACE_DETACH, child, NULL, NULL);
	call_once(child);
	ck_assert_int_eq((int)write(ends[1], "x", 1), 1);
	end(child);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		calls_beside_what_waits, time_outs_go_on,      calls_beside_what_runs, signals_come_afterwards,
		tracer_may_die,          crash_of_called_code, limit_of_time,          refusals,
	};
	return unit_suite_of("remote", tests, sizeof tests / sizeof *tests, 60);
}
