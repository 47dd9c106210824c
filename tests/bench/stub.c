/* SPDX-License-Identifier: MIT */
/* stub [rounds]
 * One call through the stub of hooked functions (preload/call) against the bare call, for each kind of gate. Runs
 * alternate, the least time of all rounds counts, and all stays in one chunk: what the collector costs is not in it.
 * Built by meson (bench_stub), with an arena of its own.
 */
#include "bench.h"
#include <lorg/match.h>

#include "collector/match/compile.h"
#include "tests/unit/call/support.h"

enum { CALLS = 3500, KINDS = 22, OF_SESSIONS = 16 /* from here on */, FILTERED = LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_FILTER };

static const struct kind {
	const char *name;
	uint32_t gate;
	struct lorg_call_setting setting;
	const char *match;
} kinds[KINDS] = {
	{"bare", 0, {0}, NULL},
	{"gate 0", 0, {0}, NULL},
	{"count", LORG_CALL_COUNT, {0}, NULL},
	{"entry", LORG_CALL_ENTRY, {0}, NULL},
	{"entry and return", LORG_CALL_ENTRY | LORG_CALL_RETURN, {0}, NULL},
	{"entry, return, count", LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_COUNT, {0}, NULL},
	{"another caller wanted", FILTERED, {.caller_low = 1, .caller_high = 2}, NULL},
	{"another caller, count", FILTERED | LORG_CALL_COUNT, {.caller_low = 1, .caller_high = 2}, NULL},
	{"this caller wanted", FILTERED, {.caller_low = 1, .caller_high = 1ull << 47}, NULL},
	{"too deep", FILTERED, {.maximum_depth = 1}, NULL},
	{"match holds not", FILTERED, {0}, "[{['$1'],[{'<','$1',-1}],[]}]"},
	{"match holds", FILTERED, {0}, "[{['$1'],[{'>','$1',-1}],[]}]"},
	{"limit", FILTERED, {.limit_events = UINT64_MAX / 2}, NULL},
	{"time", LORG_CALL_TIME, {0}, NULL},
	{"memory", LORG_CALL_MEMORY, {0}, NULL},
	{"values", LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_VALUES, {0}, NULL},
	/* Of sessions: 1 has the flag call, 2 has not. */
	{"session: not this process", LORG_CALL_ENTRY | LORG_CALL_FILTER | LORG_CALL_VALUES, {.session = 2}, NULL},
	{"session: lean", LORG_CALL_ENTRY | LORG_CALL_FILTER, {.session = 1}, NULL},
	{"session: arguments", LORG_CALL_ENTRY | LORG_CALL_FILTER | LORG_CALL_VALUES, {.session = 1}, NULL},
	{"session: match holds not", LORG_CALL_ENTRY | LORG_CALL_FILTER | LORG_CALL_VALUES, {.session = 1}, "[{['$1'],[{'<','$1',-1}],[]}]"},
	{"session: match holds", LORG_CALL_ENTRY | LORG_CALL_FILTER | LORG_CALL_VALUES, {.session = 1}, "[{['$1'],[{'>','$1',-1}],[]}]"},
	{"session: return_trace", FILTERED | LORG_CALL_VALUES, {.session = 1}, "[{'_',[],[{return_trace}]}]"},
};

static const struct {
	struct lorg_plan plan;
	struct lorg_capture argument;
} plan = {
	.plan = {.captures = sizeof plan.plan, .captures_size = sizeof plan.argument},
	.argument = {.form = LORG_FORM_SIGNED, .place = LORG_PLACE_INTEGER, .size = 4},
};
static const struct lorg_plan_function entry = {.argument_count = 1, .arguments = 1};

REAL_CALL static int callee(int x)
{
	__asm__ volatile("");
	return x + 1;
}

static void set_filter(unsigned number, const struct kind *kind)
{
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true};
	struct lorg_call_setting setting = kind->setting;
	struct match_errors errors = {0};
	struct match_code code;
	setting.kind = LORG_KIND_LOCAL;
	setting.gate = kind->gate;
	if (kind->match && match_compile(kind->match, strlen(kind->match), &options, &code, &errors)) {
		setting.program = support_program(code.memory, (uint32_t)code.size);
		match_code_close(&code);
	}
	if (kind->gate & LORG_CALL_FILTER)
		support_setting(number, &setting);
}

static int many(int (*function)(int))
{
	int (*volatile called)(int) = function;
	uint64_t start = now_ns();
	for (int i = 0; i < CALLS; i++)
		called(i);
	return (int)(now_ns() - start);
}

/* Depth is that of told calls: the loop runs inside of one. */
static int (*wrapped)(int (*)(int));
static double one_round(int (*function)(int), int inside)
{
	return (double)(inside ? wrapped(function) : many(function)) / CALLS;
}

static double read_clock(void)
{
	uint64_t sum = 0, start = now_ns();
	for (int i = 0; i < CALLS; i++)
		sum += __builtin_ia32_rdtsc();
	__asm__ volatile("" : : "r"(sum));
	return (double)(now_ns() - start) / CALLS;
}

/* Kinds from first to end, and the clock, in alternation; the least of all rounds. */
static void measure(int (**function)(int), unsigned first, unsigned end, uint64_t rounds, double *best, double *clock)
{
	for (uint64_t round = 0; round < rounds; round++) {
		for (unsigned i = first; i < end; i++) {
			double time = one_round(function[i], kinds[i].setting.maximum_depth != 0);
			best[i] = time < best[i] ? time : best[i];
			support_forget_events();
		}
		double time = read_clock();
		*clock = time < *clock ? time : *clock;
	}
}

int main(int argc, char **argv)
{
	uint64_t rounds = arg_number(argc, argv, 1, 2000);
	int (*function[KINDS])(int) = {callee};
	double best[KINDS], clock = 1e9;

	support_attach(64);
	wrapped = support_hook(KINDS, many, FILTERED, 0, NULL, NULL);
	for (unsigned i = 0; i < KINDS; i++) {
		best[i] = 1e9;
		if (i)
			function[i] = support_hook(i, callee, kinds[i].gate, 0, &plan.plan, &entry), set_filter(i, &kinds[i]);
	}
	measure(function, 0, OF_SESSIONS, rounds, best, &clock);
	support_flags(1, LORG_TRACE_CALL);
	measure(function, OF_SESSIONS, KINDS, rounds, best, &clock);
	printf("%-26s %7.1f ns\n%-26s %7.1f ns\n", "bare call", best[0], "one clock reading (C)", clock);
	for (unsigned i = 1; i < KINDS; i++)
		printf("%-26s %+7.1f ns  %5.1f bare calls, %4.1f C\n", kinds[i].name, best[i] - best[0], best[i] / best[0],
		       (best[i] - best[0]) / clock);
	return 0;
}
