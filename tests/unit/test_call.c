/* SPDX-License-Identifier: MIT */
/* test_call.c: the stub of hooked functions, the return frame, what is left without a return, counters, filters, values. */
#include <execinfo.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "collector/event/event.h"
#include "tests/unit/call/support.h"
#include <lorg/match.h>
#include "unit.h"

enum { PLAIN = LORG_CALL_ENTRY | LORG_CALL_RETURN, LONG = PLAIN | LORG_CALL_FILTER };

/* ---- events ------------------------------------------------------------ */

struct seen {
	uint32_t id, function;
	uint64_t tick, since, address, kind;
};
static struct seen seen[4096];
static unsigned seen_count;
static struct event_view views[4096];

static void add_event(const struct event_view *view)
{
	if (seen_count == 4096)
		return;
	views[seen_count] = *view;
	seen[seen_count++] = (struct seen){.id = view->id,
					   .function = (uint32_t)event_number_named(view, "function", 0) - LORG_FIRST_HOOKED_FUNCTION,
					   .tick = view->tick,
					   .since = event_number_named(view, "since", 0),
					   .address = event_number_named(view, "address", 0),
					   .kind = event_number_named(view, "kind", 0)};
}

/* What all chunks hold of calls. Returns how many events of an id there are. */
static unsigned look(void)
{
	const uint8_t *packets[512];
	size_t sizes[512], count = support_packets(packets, sizes, 512);
	seen_count = 0;
	for (size_t i = 0; i < count; i++) {
		uint64_t tick = ((const struct lorg_packet *)packets[i])->begin;
		for (size_t at = LORG_PACKET_HEAD; at < sizes[i];) {
			struct event_view view;
			enum event_status status = event_decode(packets[i] + at, sizes[i] - at, tick, &view);
			ck_assert_int_ne(status, EVENT_BAD);
			at += view.length;
			if (status != EVENT_OK)
				continue;
			ck_assert_uint_ge(view.tick, tick);
			tick = view.tick;
			if ((view.id >= LORG_EVENT_CALL_ENTRY && view.id <= LORG_EVENT_RETURN) ||
			    (view.id >= LORG_EVENT_CALL && view.id <= LORG_EVENT_EXCEPTION_FROM) || view.id == LORG_EVENT_CALL_DONE ||
			    view.id == LORG_EVENT_LIMIT || view.id == LORG_EVENT_GAP)
				add_event(&view);
		}
	}
	return seen_count;
}

static unsigned count_of(uint32_t id)
{
	unsigned count = 0;
	for (unsigned i = 0; i < seen_count; i++)
		count += seen[i].id == id;
	return count;
}

static void expect(const char *what)
{
	/* "c1 r1 x2": call, return, left of functions 1 and 2, in order. */
	look();
	char text[4096] = "";
	for (unsigned i = 0; i < seen_count; i++) {
		char piece[32];
		char letter = seen[i].id == LORG_EVENT_CALL_ENTRY || seen[i].id == LORG_EVENT_CALL ? 'c'
			      : seen[i].id == LORG_EVENT_RETURN || seen[i].id == LORG_EVENT_RETURN_FROM ? 'r'
			      : seen[i].id == LORG_EVENT_EXCEPTION_FROM ? 'x'
			      : seen[i].id == LORG_EVENT_RETURN_TO ? 't'
			      : seen[i].id == LORG_EVENT_CALL_DONE ? 'd'
			      : seen[i].id == LORG_EVENT_LIMIT ? 'l' : 'g';
		snprintf(piece, sizeof piece, letter == 't' || letter == 'g' ? "%s%c" : "%s%c%u", i ? " " : "", letter, seen[i].function);
		if (strlen(text) + strlen(piece) < sizeof text)
			strcat(text, piece);
	}
	ck_assert_str_eq(text, what);
}

/* ---- registers --------------------------------------------------------- */

struct registers_state {
	uint64_t general[15], flags;
	uint8_t vectors[32][64];
	uint64_t masks[8];
	uint32_t mxcsr;
	uint16_t control;
	uint8_t padding[10];
	uint8_t x87[16];
};
struct registers_state registers_before, registers_seen, registers_given, registers_after;
uint32_t registers_level;
void *registers_target;
uint64_t registers_stack, registers_argument;
void registers_call(void);
void registers_body(void);

static void fill(struct registers_state *state, unsigned seed, unsigned flags)
{
	uint8_t *bytes = (uint8_t *)state;
	srandom(seed);
	for (size_t i = 0; i < sizeof *state; i++)
		bytes[i] = (uint8_t)random();
	/* Carry, parity, adjust, zero, sign, direction, overflow; interrupts and the bit that is always one. */
	state->flags = (flags & 0xcd5) | 0x202;
	state->mxcsr = 0x1f80 | (seed % 4) << 13 | (seed & 1) << 15;
	state->control = (uint16_t)(0x037f ^ (seed % 4) << 10);
	double number = seed * 3.25 + 1;
	long double extended = number;
	memset(state->x87, 0, sizeof state->x87);
	memcpy(state->x87, &extended, 10);
}

static void compare(const struct registers_state *is, const struct registers_state *should, const char *where)
{
	static const unsigned bytes[] = {16, 32, 64};
	for (int i = 0; i < 15; i++)
		ck_assert_msg(is->general[i] == should->general[i], "%s: register %d", where, i);
	ck_assert_msg(!((is->flags ^ should->flags) & 0xcd5), "%s: flags %lx, not %lx", where, is->flags, should->flags);
	for (int i = 0; i < (registers_level == 2 ? 32 : 16); i++)
		ck_assert_msg(!memcmp(is->vectors[i], should->vectors[i], bytes[registers_level]), "%s: vector %d", where, i);
	for (int i = 0; registers_level == 2 && i < 8; i++)
		ck_assert_msg(is->masks[i] == should->masks[i], "%s: mask %d", where, i);
	ck_assert_msg(is->mxcsr == should->mxcsr && is->control == should->control, "%s: control words", where);
	ck_assert_msg(!memcmp(is->x87, should->x87, 10), "%s: x87", where);
}

static void check_registers(uint32_t gate, uint32_t flags, const struct lorg_call_setting *setting)
{
	registers_target = support_hook(1, (void *)registers_body, gate, flags, NULL, NULL);
	if (setting)
		support_setting(1, setting);
	for (unsigned i = 0; i < 200; i++) {
		fill(&registers_before, i * 2 + 1, (unsigned)random());
		fill(&registers_given, i * 2 + 2, (unsigned)random());
		registers_call();
		compare(&registers_seen, &registers_before, "in");
		compare(&registers_after, &registers_given, "out");
		uint64_t argument;
		memcpy(&argument, registers_before.x87, 8);
		ck_assert_uint_eq(registers_argument, argument);
		ck_assert_uint_eq(registers_stack % 16, 8);
		if (i % 7 == 0) /* the chunk is full soon, or the region is not the last one */
			support_forget_events();
	}
}

static const uint32_t all_gates[] = {
	0,
	LORG_CALL_ENTRY,
	PLAIN,
	LORG_CALL_COUNT,
	PLAIN | LORG_CALL_COUNT,
	LONG,
	PLAIN | LORG_CALL_VALUES,
	LORG_CALL_TIME,
	PLAIN | LORG_CALL_TIME | LORG_CALL_MEMORY | LORG_CALL_RETURN_TO,
};

/* Those that refuse, and those that let a call through, by the stub alone and by what it asks. */
static const struct lorg_call_setting filters[] = {
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .caller_low = 1, .caller_high = 2},
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .caller_low = UINT64_MAX, .caller_high = LORG_CALLER_FREE},
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .caller_low = 1, .caller_high = 1ull << 47},
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .maximum_depth = 3},
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .program = 8},
	{.kind = LORG_KIND_LOCAL, .gate = PLAIN, .limit_events = 1ull << 40},
	{.kind = LORG_KIND_GLOBAL, .gate = PLAIN},
	{.kind = LORG_KIND_LOCAL, .gate = LORG_CALL_ENTRY, .session = 3},
	{.kind = LORG_KIND_LOCAL | LORG_KIND_META, .gate = LORG_CALL_ENTRY | LORG_CALL_RETURN, .session = 3},
};
enum { FILTERS = sizeof filters / sizeof *filters };

/* Tests that loop over the gates loop over these filters, too. */
static const unsigned looped_filters[] = {2, 3, 8};
enum { GATES = sizeof all_gates / sizeof *all_gates, WAYS = GATES + sizeof looped_filters / sizeof *looped_filters };

static uint32_t gate_of(int way)
{
	return way < GATES ? all_gates[way] : LONG | (way == WAYS - 1 ? (uint32_t)LORG_CALL_VALUES : 0);
}

static void *hook(unsigned number, void *function, int way)
{
	void *hooked = support_hook(number, function, gate_of(way), 0, NULL, NULL);
	if (way >= GATES)
		support_setting(number, &filters[looped_filters[way - GATES]]);
	return hooked;
}

START_TEST(every_register_survives)
{
	support_attach(64);
	__builtin_cpu_init();
	registers_level = __builtin_cpu_supports("avx512bw") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
	check_registers(all_gates[_i], 0, NULL);
	check_registers(all_gates[_i], LORG_PLAN_ENTRY_ONLY, NULL);
}
END_TEST

START_TEST(every_register_survives_filters)
{
	support_attach(64);
	__builtin_cpu_init();
	registers_level = __builtin_cpu_supports("avx512bw") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
	check_registers(LONG, 0, &filters[_i]);
	check_registers(LONG, LORG_PLAN_ENTRY_ONLY, &filters[_i]);
	support_flags(3, LORG_TRACE_CALL);
	check_registers(LONG, 0, &filters[_i]);
	check_registers(LONG | LORG_CALL_VALUES, 0, &filters[_i]);
}
END_TEST

/* ---- plain calls ------------------------------------------------------- */

static int (*hooked_one)(int), (*hooked_two)(int);
__attribute__((noinline)) static int one(int x)
{
	__asm__ volatile("");
	return x + 1;
}
__attribute__((noinline)) static int two(int x)
{
	int result = hooked_one(x) * 2;
	__asm__ volatile("");
	return result;
}

START_TEST(a_call_is_an_entry_and_a_return)
{
	support_attach(16);
	hooked_one = support_hook(1, one, PLAIN, 0, NULL, NULL);
	hooked_two = support_hook(2, two, PLAIN, 0, NULL, NULL);
	support_forget_events();
	ck_assert_int_eq(hooked_two(3), 8);
	ck_assert_int_eq(hooked_one(3), 4);
	expect("c2 c1 r1 r2 c1 r1");
	support_gate(1, 0);
	ck_assert_int_eq(hooked_two(3), 8);
	expect("c2 c1 r1 r2 c1 r1 c2 r2");
	support_gate(2, LORG_CALL_ENTRY);
	ck_assert_int_eq(hooked_two(3), 8);
	expect("c2 c1 r1 r2 c1 r1 c2 r2 c2");
}
END_TEST

START_TEST(an_entry_only_function_has_no_return)
{
	support_attach(16);
	hooked_one = support_hook(1, one, all_gates[_i], LORG_PLAN_ENTRY_ONLY, NULL, NULL);
	support_forget_events();
	ck_assert_int_eq(hooked_one(3), 4);
	look();
	ck_assert_uint_eq(count_of(LORG_EVENT_RETURN) + count_of(LORG_EVENT_RETURN_FROM), 0);
	ck_assert_uint_eq(count_of(LORG_EVENT_CALL_ENTRY) + count_of(LORG_EVENT_CALL), all_gates[_i] & LORG_CALL_ENTRY);
}
END_TEST

struct big {
	uint64_t words[40];
};
__attribute__((noinline)) static struct big make_big(int a, int b, int c, int d, int e, int f, long g, double h, struct big i)
{
	struct big result = i;
	result.words[0] = (uint64_t)(a + b + c + d + e + f) + (uint64_t)g + (uint64_t)h;
	return result;
}
__attribute__((noinline)) static double sum(int count, ...)
{
	va_list list;
	double total = 0;
	va_start(list, count);
	for (int i = 0; i < count; i++)
		total += va_arg(list, double);
	va_end(list);
	return total;
}

START_TEST(arguments_on_the_stack_and_results_in_memory_stay)
{
	support_attach(16);
	struct big (*make)(int, int, int, int, int, int, long, double, struct big) = support_hook(1, make_big, all_gates[_i], 0, NULL, NULL);
	double (*hooked_sum)(int, ...) = support_hook(2, sum, all_gates[_i], 0, NULL, NULL);
	struct big given;
	for (int i = 0; i < 40; i++)
		given.words[i] = (uint64_t)i * 1000003;
	struct big got = make(1, 2, 3, 4, 5, 6, 700, 8000.5, given);
	ck_assert_uint_eq(got.words[0], 8721);
	ck_assert(!memcmp(&got.words[1], &given.words[1], sizeof got - 8));
	ck_assert(hooked_sum(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.5) == 55.5);
}
END_TEST

/* ---- recursion, tail calls --------------------------------------------- */

static long (*hooked_recurse)(long);
__attribute__((noinline)) static long recurse(long n)
{
	long result = n ? hooked_recurse(n - 1) + 1 : 0;
	__asm__ volatile("");
	return result;
}
enum { DEEP = 1000000 };
static void *recurse_deep(void *result)
{
	*(long *)result = hooked_recurse(DEEP);
	return NULL;
}

START_TEST(a_million_calls_deep)
{
	long result = 0;
	pthread_t thread;
	pthread_attr_t attributes;
	support_attach(600);
	hooked_recurse = hook(1, recurse, _i);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 20);
	ck_assert_int_eq(pthread_create(&thread, &attributes, recurse_deep, &result), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, DEEP);
	if (gate_of(_i) != PLAIN)
		return;
	const uint8_t *packets[600];
	size_t sizes[600], bytes = 0, count = support_packets(packets, sizes, 600);
	for (size_t i = 0; i < count; i++)
		bytes += sizes[i] - LORG_PACKET_HEAD;
	ck_assert_uint_ge(bytes, 2 * DEEP * 8);
}
END_TEST

void *tails_target;
long tails_body(long n);

START_TEST(tail_calls_join_the_chain_of_their_slot)
{
	support_attach(64);
	tails_target = hook(1, (void *)tails_body, _i);
	hooked_one = hook(2, one, _i);
	long (*tails)(long) = tails_target;
	support_forget_events();
	ck_assert_int_eq(tails(3), 42);
	if (_i < GATES && (gate_of(_i) & PLAIN) == PLAIN) {
		const char *with = gate_of(_i) & LORG_CALL_RETURN_TO ? "c1 c1 c1 c1 r1 r1 r1 r1 t" : "c1 c1 c1 c1 r1 r1 r1 r1";
		expect(with);
	}
	ck_assert_int_eq(tails(5000), 42);
	ck_assert_int_eq(hooked_one(1), 2);
	for (int i = 0; i < 2000; i++)
		ck_assert_int_eq(tails(i % 50), 42);
}
END_TEST

/* ---- jumps ------------------------------------------------------------- */

static jmp_buf jump_back;
static int (*hooked_jumper)(int), (*hooked_middle)(int);
__attribute__((noinline)) static int jumper(int x)
{
	if (x)
		longjmp(jump_back, x);
	return 0;
}
__attribute__((noinline)) static int middle(int x)
{
	int result = hooked_jumper(x) + 1;
	__asm__ volatile("");
	return result;
}
__attribute__((noinline)) static int jump_once(int x)
{
	int value = setjmp(jump_back);
	if (!value)
		hooked_middle(x);
	return value;
}

START_TEST(calls_left_by_longjmp_are_told_the_innermost_first)
{
	support_attach(16);
	hooked_jumper = support_hook(1, jumper, PLAIN, 0, NULL, NULL);
	hooked_middle = support_hook(2, middle, PLAIN | (uint32_t)(_i ? LORG_CALL_VALUES | LORG_CALL_RETURN_TO : 0), 0, NULL, NULL);
	hooked_one = support_hook(3, one, PLAIN, 0, NULL, NULL);
	support_forget_events();
	ck_assert_int_eq(jump_once(7), 7);
	hooked_one(1);
	expect(_i ? "c2 c1 x1 x2 t c3 r3" : "c2 c1 x1 x2 c3 r3");
	for (unsigned i = 0; i < seen_count; i++)
		if (seen[i].id == LORG_EVENT_EXCEPTION_FROM)
			ck_assert_uint_eq(seen[i].kind, 2);
	for (int i = 1; i < 1000; i++) {
		ck_assert_int_eq(jump_once(i), i);
		ck_assert_int_eq(hooked_middle(0), 1);
	}
}
END_TEST

static sigjmp_buf random_back;
static volatile long jumps;
static void jump_from_handler(int signal)
{
	(void)signal;
	jumps++;
	siglongjmp(random_back, 1);
}
static void every(long microseconds, void (*handler)(int))
{
	struct itimerval time = {{0, microseconds}, {0, microseconds}};
	signal(SIGALRM, handler);
	setitimer(ITIMER_REAL, &time, NULL);
}

START_TEST(a_handler_may_jump_out_of_any_point)
{
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_two = hook(2, two, _i);
	time_t end = time(NULL) + 1;
	/* In this order: on a busy machine the first signal comes before the next line. */
	if (!sigsetjmp(random_back, 1))
		every(200, jump_from_handler);
	while (time(NULL) <= end)
		for (int i = 0; i < 1000; i++)
			if (hooked_two(i) != 2 * (i + 1))
				abort();
	every(0, SIG_IGN);
	ck_assert_int_ge(jumps, 10);
}
END_TEST

/* ---- unwinding --------------------------------------------------------- */

static volatile long samples, whole;
static void *volatile unwind_end; /* NULL outside busy(), which samples do not belong to */
static void sample(int signal, siginfo_t *information, void *context)
{
	void *addresses[64];
	(void)information;
	/* No unwinder knows of thunks: they belong to no file. */
	if (!unwind_end || support_is_thunk((void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]))
		return;
	int count = backtrace(addresses, 64), found = 0;
	(void)signal;
	for (int i = 0; i < count; i++)
		found |= addresses[i] == unwind_end;
	samples++;
	whole += found;
}
__attribute__((noinline)) static void busy(time_t end)
{
	unwind_end = __builtin_return_address(0);
	while (time(NULL) <= end)
		for (int i = 0; i < 1000; i++)
			hooked_two(i);
	unwind_end = NULL;
}

START_TEST(a_backtrace_is_whole_at_any_point)
{
	void *first[4];
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_two = hook(2, two, _i);
	backtrace(first, 4); /* loads the unwinder */
	every(200, SIG_IGN);
	struct sigaction action = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	busy(time(NULL) + 1);
	every(0, SIG_IGN);
	ck_assert_int_ge(samples, 10);
	ck_assert_int_eq(samples, whole);
}
END_TEST

static int (*hooked_tracer)(int);
static void *bare_addresses[64], *hooked_addresses[64];
static int address_count;
__attribute__((noinline)) static int tracer(int hooked)
{
	address_count = backtrace(hooked ? hooked_addresses : bare_addresses, 64);
	return address_count;
}

START_TEST(backtrace_does_not_show_the_stub)
{
	int (*volatile callee)(int) = tracer;
	int counts[2];
	support_attach(16);
	hooked_tracer = support_hook(1, tracer, PLAIN, 0, NULL, NULL);
	for (int i = 0; i < 2; i++, callee = hooked_tracer)
		counts[i] = callee(i);
	ck_assert_int_eq(counts[0], counts[1]);
	for (int i = 2; i < counts[0]; i++)
		ck_assert_ptr_eq(bare_addresses[i], hooked_addresses[i]);
}
END_TEST

/* ---- other stacks ------------------------------------------------------ */

static ucontext_t main_context, other_context;
static void coroutine(void)
{
	for (;;) {
		hooked_two(1);
		swapcontext(&other_context, &main_context);
	}
}
static int (*hooked_switch)(int);
__attribute__((noinline)) static int switcher(int x)
{
	swapcontext(&main_context, &other_context);
	return x;
}

START_TEST(coroutines_return_where_they_were_called)
{
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_two = hook(2, two, _i);
	hooked_switch = hook(3, switcher, _i);
	getcontext(&other_context);
	other_context.uc_stack.ss_size = 65536;
	other_context.uc_stack.ss_sp = malloc(65536);
	makecontext(&other_context, coroutine, 0);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(hooked_switch(i), i);
}
END_TEST

static void *alternate_low;
static void on_other_stack(int signal)
{
	int here = signal;
	hooked_two(here);
	ck_assert((char *)&here > (char *)alternate_low && (char *)&here < (char *)alternate_low + 65536);
}

START_TEST(a_signal_stack_has_its_own_calls)
{
	support_attach(16);
	hooked_one = support_hook(1, one, PLAIN, 0, NULL, NULL);
	hooked_two = support_hook(2, two, PLAIN, 0, NULL, NULL);
	alternate_low = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t stack = {.ss_sp = alternate_low, .ss_size = 65536};
	sigaltstack(&stack, NULL);
	struct sigaction action = {.sa_handler = on_other_stack, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR1, &action, NULL);
	support_forbid_system_calls(1); /* the shadow is there already */
	support_forget_events();
	raise(SIGUSR1);
	expect("c2 c1 r1 r2");
}
END_TEST

static void *stack_elsewhere(void *argument)
{
	(void)argument;
	hooked_two(1);
	return NULL;
}

START_TEST(without_a_shadow_the_entry_alone_is_told)
{
	support_attach(16);
	hooked_one = support_hook(1, one, PLAIN, 0, NULL, NULL);
	hooked_two = support_hook(2, two, PLAIN | (uint32_t)(_i ? LORG_CALL_VALUES : 0), 0, NULL, NULL);
	pthread_t thread;
	pthread_attr_t attributes;
	/* Some of others' memory where the shadow would be. */
	size_t size = 4 << 20;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t at = 0; at < size; at += 4096)
		mmap((void *)(((uintptr_t)stack + at) ^ 1ul << 44), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack + (2 << 20), 2 << 20);
	support_forget_events();
	ck_assert_int_eq(pthread_create(&thread, &attributes, stack_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	look();
	ck_assert_uint_eq(count_of(LORG_EVENT_CALL_ENTRY) + count_of(LORG_EVENT_CALL), 2);
	ck_assert_uint_eq(count_of(LORG_EVENT_RETURN) + count_of(LORG_EVENT_RETURN_FROM), 0);
	ck_assert_uint_eq(count_of(LORG_EVENT_GAP), 1);
}
END_TEST

/* ---- threads and processes --------------------------------------------- */

static int (*hooked_waiter)(int);
static volatile int cleaned;
static void clean(void *unused)
{
	(void)unused;
	hooked_one(1);
	cleaned = 1;
}
__attribute__((noinline)) static int waiter(int how)
{
	pthread_cleanup_push(clean, NULL);
	if (how)
		pthread_exit(NULL);
	pause();
	pthread_cleanup_pop(0);
	return 0;
}
static void *wait_in_thread(void *how)
{
	hooked_waiter(how != NULL);
	return NULL;
}

START_TEST(a_thread_may_end_inside_a_call)
{
	pthread_t thread;
	support_attach(64);
	hooked_one = support_hook(1, one, PLAIN, 0, NULL, NULL);
	hooked_waiter = support_hook(2, waiter, PLAIN, 0, NULL, NULL);
	support_forget_events();
	pthread_create(&thread, NULL, wait_in_thread, _i ? (void *)&main_context : NULL);
	usleep(100000);
	if (!_i)
		pthread_cancel(thread);
	pthread_join(thread, NULL);
	ck_assert_int_eq(cleaned, 1);
	look();
	ck_assert_uint_eq(count_of(LORG_EVENT_CALL_ENTRY), 2);
	ck_assert_uint_eq(count_of(LORG_EVENT_RETURN), 1);
	ck_assert_uint_eq(count_of(LORG_EVENT_EXCEPTION_FROM), 1);
}
END_TEST

static int (*hooked_forker)(int);
__attribute__((noinline)) static int forker(int x)
{
	pid_t child = x ? vfork() : fork();
	if (child == 0)
		_exit(hooked_one(4));
	int status = 0;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

START_TEST(children_go_on_inside_their_parents_calls)
{
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_forker = hook(2, forker, _i);
	ck_assert_int_eq(hooked_forker(0), 5);
	ck_assert_int_eq(hooked_forker(1), 5);
}
END_TEST

static void *call_often(void *unused)
{
	for (long i = 0; i < 200000; i++)
		if (hooked_two((int)i) != 2 * ((int)i + 1))
			abort();
	return unused;
}
static void trace_in_handler(int signal)
{
	hooked_two(signal);
}

START_TEST(threads_and_handlers_disturb_nothing)
{
	pthread_t threads[4];
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_two = hook(2, two, _i);
	every(100, trace_in_handler);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, call_often, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	every(0, SIG_IGN);
	uint64_t count, ticks, words;
	support_counters(1, &count, &ticks, &words);
	if (gate_of(_i) & (LORG_CALL_COUNT | LORG_CALL_TIME))
		ck_assert_uint_ge(count, 800000);
	else
		ck_assert_uint_eq(count, 0);
}
END_TEST

static pthread_barrier_t lost, begun;
static void *call_with_another(void *loses)
{
	if (loses) {
		hooked_two(1);
		support_lose_entry();
		pthread_barrier_wait(&lost);
		pthread_barrier_wait(&begun);
		hooked_two(1);
	} else {
		pthread_barrier_wait(&begun);
	}
	pthread_barrier_wait(&begun);
	for (int i = 0; i < 100000; i++)
		if (hooked_two(i) != 2 * (i + 1))
			abort();
	return NULL;
}

START_TEST(a_thread_that_has_lost_its_entry_shares_nothing)
{
	pthread_t threads[2];
	support_attach(64);
	hooked_one = hook(1, one, _i);
	hooked_two = hook(2, two, _i);
	pthread_barrier_init(&lost, NULL, 2);
	pthread_barrier_init(&begun, NULL, 2);
	pthread_create(&threads[0], NULL, call_with_another, &lost);
	/* The other begins when all that is written of the first says that it is gone. */
	pthread_barrier_wait(&lost);
	pthread_create(&threads[1], NULL, call_with_another, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

/* ---- counters ---------------------------------------------------------- */

START_TEST(every_call_is_counted_once)
{
	enum { MANY = 6000 };
	static int (*many[MANY])(int);
	support_attach(300);
	for (unsigned i = 0; i < MANY; i++)
		many[i] = support_hook(i, one, LORG_CALL_COUNT, 0, NULL, NULL);
	for (unsigned round = 0; round < 5; round++)
		for (unsigned i = 0; i < MANY; i++)
			for (unsigned n = 0; n <= i % 3; n++)
				many[i](1);
	for (unsigned i = 0; i < MANY; i++) {
		uint64_t count, ticks, words;
		support_counters(i, &count, &ticks, &words);
		ck_assert_msg(count == 5 * (i % 3 + 1), "function %u: %lu", i, count);
	}
}
END_TEST

START_TEST(calls_that_a_filter_refuses_are_counted)
{
	enum { CALLS = 100 };
	const uint32_t more = _i >= FILTERS ? LORG_CALL_TIME : 0;
	uint64_t count, ticks, words;
	support_attach(16);
	hooked_one = support_hook(1, one, LONG | LORG_CALL_COUNT | more, 0, NULL, NULL);
	support_setting(1, &filters[_i % FILTERS]);
	for (int i = 0; i < CALLS; i++)
		ck_assert_int_eq(hooked_one(i), i + 1);
	support_counters(1, &count, &ticks, &words);
	ck_assert_uint_eq(count, CALLS);
	ck_assert(!more == !ticks);
}
END_TEST

static void spin(uint64_t ticks)
{
	uint64_t start = __builtin_ia32_rdtsc();
	while (__builtin_ia32_rdtsc() - start < ticks)
		;
}
__attribute__((noinline)) static int slow(int x)
{
	spin(10000000);
	support_allocate_words(3);
	return x;
}
static int (*hooked_slow)(int), (*hooked_outer)(int);
__attribute__((noinline)) static int outer(int x)
{
	spin(4000000);
	support_allocate_words(10);
	int result = hooked_slow(x);
	support_allocate_words(100);
	return result;
}

START_TEST(time_and_memory_are_the_functions_own)
{
	uint64_t count, ticks, words;
	support_attach(16);
	hooked_slow = support_hook(1, slow, LORG_CALL_TIME | LORG_CALL_MEMORY, 0, NULL, NULL);
	hooked_outer = support_hook(2, outer, LORG_CALL_TIME | LORG_CALL_MEMORY, 0, NULL, NULL);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(hooked_outer(i), i);
	support_allocate_words(1000);
	support_counters(1, &count, &ticks, &words);
	ck_assert_uint_eq(count, 5);
	ck_assert_uint_eq(words, 15);
	ck_assert_uint_ge(ticks, 50000000);
	support_counters(2, &count, &ticks, &words);
	ck_assert_uint_eq(count, 5);
	ck_assert_uint_eq(words, 550);
	ck_assert_uint_ge(ticks, 20000000);
	ck_assert_uint_le(ticks, 45000000);
}
END_TEST

/* ---- filters ----------------------------------------------------------- */

START_TEST(a_limit_switches_the_function_off)
{
	support_attach(16);
	hooked_one = support_hook(1, one, LONG, 0, NULL, NULL);
	support_setting(1, &(struct lorg_call_setting){.kind = LORG_KIND_LOCAL, .gate = PLAIN, .limit_events = 6});
	support_forget_events();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(hooked_one(i), i + 1);
	expect("c1 r1 c1 r1 c1 l1 r1");
	ck_assert_uint_eq(support_gate_now(1), 0);
}
END_TEST

START_TEST(depth_caller_and_time_choose_calls)
{
	support_attach(16);
	hooked_one = support_hook(1, one, LONG, 0, NULL, NULL);
	hooked_two = support_hook(2, two, LONG, 0, NULL, NULL);
	hooked_slow = support_hook(3, slow, LONG, 0, NULL, NULL);
	struct lorg_call_setting setting = {.kind = LORG_KIND_LOCAL, .gate = PLAIN, .maximum_depth = 1};
	support_setting(1, &setting);
	support_forget_events();
	hooked_two(1);
	hooked_one(1);
	expect("c2 r2 c1 r1");
	setting = (struct lorg_call_setting){.kind = LORG_KIND_LOCAL, .gate = PLAIN, .caller_low = (uintptr_t)two, .caller_high = (uintptr_t)two + 100};
	support_setting(1, &setting);
	support_forget_events();
	hooked_two(1);
	hooked_one(1);
	expect("c2 c1 r1 r2");
	setting = (struct lorg_call_setting){.kind = LORG_KIND_LOCAL, .gate = PLAIN, .least_ticks = 1000000};
	support_setting(1, &setting);
	support_setting(3, &setting);
	support_forget_events();
	hooked_two(1);
	hooked_slow(1);
	expect("c2 r2 d3");
}
END_TEST

START_TEST(a_ring_of_settings_ends)
{
	support_attach(16);
	hooked_one = support_hook(1, one, LONG, 0, NULL, NULL);
	struct lorg_call_setting setting = filters[_i];
	setting.next = 2; /* itself */
	support_setting(1, &setting);
	ck_assert_int_eq(hooked_one(3), 4);
	support_flags(3, LORG_TRACE_CALL);
	ck_assert_int_eq(hooked_one(3), 4);
}
END_TEST

/* ---- values ------------------------------------------------------------ */

/* A plan with one function of many arguments, and its captures and names. */
struct test_plan {
	struct lorg_plan plan;
	struct lorg_capture argument[8];
	struct lorg_capture result;
	char names[64];
};
#define CAPTURES(member) ((uint32_t)(offsetof(struct test_plan, member) - offsetof(struct test_plan, argument)) + 1)
static struct test_plan value_plan = {
	.plan = {.captures = offsetof(struct test_plan, argument),
		 .captures_size = sizeof(struct lorg_capture) * 9,
		 .names = offsetof(struct test_plan, names),
		 .names_size = 64},
	.argument = {{LORG_FORM_SIGNED, LORG_PLACE_INTEGER, 0, 0, 4, 0, 0, 0, 0},
		     {LORG_FORM_STRING, LORG_PLACE_INTEGER, 1, 0, 8, 0, 0, 0, 0},
		     {LORG_FORM_FLOAT, LORG_PLACE_VECTOR, 0, 0, 8, 0, 0, 0, 0},
		     {LORG_FORM_FLOAT, LORG_PLACE_VECTOR, 1, 0, 4, 0, 0, 0, 0},
		     {LORG_FORM_BUFFER, LORG_PLACE_INTEGER, 2, 0, 8, 0, 6, 0, 0},
		     {LORG_FORM_UNSIGNED, LORG_PLACE_INTEGER, 3, 0, 8, 0, 0, 0, 0},
		     {LORG_FORM_FLOAT, LORG_PLACE_STACK, 0, 0, 16, 0, 0, 0, 0},
		     {LORG_FORM_CHAR, LORG_PLACE_INTEGER, 4, 0, 1, 0, 0, 0, 0}},
	.result = {LORG_FORM_FLOAT, LORG_PLACE_X87, 0, 0, 16, 0, 0, 0, 0},
};
static const struct lorg_plan_function value_function = {
	.argument_count = 8, .arguments = CAPTURES(argument), .result = CAPTURES(result)};

__attribute__((noinline)) static long double values(int a, const char *text, double b, float c, const void *buffer, size_t length,
						    long double d, char letter)
{
	__asm__ volatile("");
	return a + b + c + d + (long double)length + letter + (text != NULL) + (buffer != NULL);
}

static const uint8_t *terms_of(uint32_t id, uint32_t *length)
{
	look();
	for (unsigned i = 0; i < seen_count; i++)
		if (seen[i].id == id)
			return event_bytes_named(&views[i], "terms", length);
	return NULL;
}

START_TEST(arguments_and_results_are_told)
{
	static const uint8_t expected[] = {
		98, 0xff, 0xff, 0xff, 0xfb,			      /* -5 */
		209, 0, 5, 'h', 'e', 'l', 'l', 'o',		      /* "hello" */
		70, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0,		      /* 1.5 */
		70, 0xbf, 0xd0, 0, 0, 0, 0, 0, 0,		      /* -0.25 */
		109, 0, 0, 0, 3, 1, 2, 3,			      /* <<1,2,3>> */
		97, 3,						      /* 3 */
		70, 0x40, 0x24, 0, 0, 0, 0, 0, 0,		      /* 10.0 */
		207, 0, 0, 0, 'x',				      /* 'x' */
	};
	static const uint8_t bytes[] = {1, 2, 3, 4};
	support_attach(16);
	long double (*hooked)(int, const char *, double, float, const void *, size_t, long double, char) =
		support_hook(1, values, PLAIN | LORG_CALL_VALUES, 0, &value_plan.plan, &value_function);
	support_forget_events();
	long double got = hooked(-5, "hello", 1.5, -0.25f, bytes, 3, 10.0L, 'x');
	ck_assert(got == values(-5, "hello", 1.5, -0.25f, bytes, 3, 10.0L, 'x'));
	uint32_t length = 0;
	const uint8_t *terms = terms_of(LORG_EVENT_CALL, &length);
	ck_assert_uint_eq(length, sizeof expected);
	for (uint32_t i = 0; i < length; i++)
		ck_assert_msg(terms[i] == expected[i], "byte %u: %02x, not %02x", i, terms[i], expected[i]);
	terms = terms_of(LORG_EVENT_RETURN_FROM, &length);
	double result = (double)got;
	uint64_t bits;
	memcpy(&bits, &result, 8);
	ck_assert_uint_eq(length, 9);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(terms[1 + i], (uint8_t)(bits >> (56 - 8 * i)));
}
END_TEST

START_TEST(a_bad_pointer_is_told_as_such)
{
	support_attach(16);
	long double (*hooked)(int, const char *, double, float, const void *, size_t, long double, char) =
		support_hook(1, values, PLAIN | LORG_CALL_VALUES, 0, &value_plan.plan, &value_function);
	support_forbid_system_calls(_i);
	support_forget_events();
	hooked(1, (const char *)0x1000, NAN, INFINITY, (void *)0xfff0000000000000, 30, 1e4900L, 0);
	uint32_t length = 0;
	const uint8_t *terms = terms_of(LORG_EVENT_CALL, &length);
	ck_assert_uint_ge(length, 20);
	ck_assert_uint_eq(terms[2], 203);
	support_forbid_system_calls(0);
}
END_TEST

Suite *unit_suite(void)
{
	Suite *suite = suite_create("call");
	TCase *test = tcase_create("call");
	tcase_set_timeout(test, 60);
	tcase_add_loop_test(test, every_register_survives, 0, GATES);
	tcase_add_loop_test(test, every_register_survives_filters, 0, FILTERS);
	tcase_add_test(test, a_call_is_an_entry_and_a_return);
	tcase_add_loop_test(test, an_entry_only_function_has_no_return, 0, GATES);
	tcase_add_loop_test(test, arguments_on_the_stack_and_results_in_memory_stay, 0, GATES);
	tcase_add_loop_test(test, a_million_calls_deep, 0, WAYS);
	tcase_add_loop_test(test, tail_calls_join_the_chain_of_their_slot, 0, WAYS);
	tcase_add_loop_test(test, calls_left_by_longjmp_are_told_the_innermost_first, 0, 2);
	tcase_add_loop_test(test, a_handler_may_jump_out_of_any_point, 0, WAYS);
	tcase_add_loop_test(test, a_backtrace_is_whole_at_any_point, 0, WAYS);
	tcase_add_test(test, backtrace_does_not_show_the_stub);
	tcase_add_loop_test(test, coroutines_return_where_they_were_called, 0, WAYS);
	tcase_add_test(test, a_signal_stack_has_its_own_calls);
	tcase_add_loop_test(test, without_a_shadow_the_entry_alone_is_told, 0, 2);
	tcase_add_loop_test(test, a_thread_may_end_inside_a_call, 0, 2);
	tcase_add_loop_test(test, children_go_on_inside_their_parents_calls, 0, WAYS);
	tcase_add_loop_test(test, threads_and_handlers_disturb_nothing, 0, WAYS);
	tcase_add_loop_test(test, a_thread_that_has_lost_its_entry_shares_nothing, 0, WAYS);
	tcase_add_test(test, every_call_is_counted_once);
	tcase_add_loop_test(test, calls_that_a_filter_refuses_are_counted, 0, 2 * FILTERS);
	tcase_add_test(test, time_and_memory_are_the_functions_own);
	tcase_add_test(test, a_limit_switches_the_function_off);
	tcase_add_test(test, depth_caller_and_time_choose_calls);
	tcase_add_loop_test(test, a_ring_of_settings_ends, 0, FILTERS);
	tcase_add_test(test, arguments_and_results_are_told);
	tcase_add_loop_test(test, a_bad_pointer_is_told_as_such, 0, 2);
	suite_add_tcase(suite, test);
	return suite;
}
