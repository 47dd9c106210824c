/* SPDX-License-Identifier: MIT */
/*
 * test_match.c: what the corpus of tests/conformance does not show of match specifications: places of errors, limits,
 * the verifier, programs that are changed while they run, the caller, the short form.
 */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "collector/match/compile.h"
#include "collector/match/tester.h"
#include "collector/term/printer.h"
#include "preload/match/evaluate.h"
#include "preload/match/functions.h"

/* ---- names and surroundings ------------------------------------------------------ */

struct point {
	int32_t x;
	uint8_t flag : 1, level : 3;
	int8_t small;
	struct point *next;
	char name[8];
	const char *text;
	double weight;
	float light;
	bool on;
};

enum handle { HANDLE_POINT = 1, HANDLE_CHARACTER, HANDLE_INTEGER };

static const struct member {
	const char *name;
	struct match_type type;
	uint64_t offset;
} members[] = {
	{"x", {.kind = MATCH_TYPE_INTEGER, .size = 4, .is_signed = true}, offsetof(struct point, x)},
	{"level", {.kind = MATCH_TYPE_INTEGER, .size = 1, .bits = 3, .bit_offset = 1}, 4},
	{"signed_level", {.kind = MATCH_TYPE_INTEGER, .size = 1, .is_signed = true, .bits = 3, .bit_offset = 1}, 4},
	{"small", {.kind = MATCH_TYPE_INTEGER, .size = 1, .is_signed = true}, offsetof(struct point, small)},
	{"next", {.kind = MATCH_TYPE_POINTER, .size = 8, .handle = {HANDLE_POINT}}, offsetof(struct point, next)},
	{"name", {.kind = MATCH_TYPE_ARRAY, .size = 8, .is_text = true, .handle = {HANDLE_CHARACTER}}, offsetof(struct point, name)},
	{"text", {.kind = MATCH_TYPE_POINTER, .size = 8, .is_text = true, .handle = {HANDLE_CHARACTER}}, offsetof(struct point, text)},
	{"weight", {.kind = MATCH_TYPE_FLOAT, .size = 8}, offsetof(struct point, weight)},
	{"light", {.kind = MATCH_TYPE_FLOAT, .size = 4}, offsetof(struct point, light)},
	{"on", {.kind = MATCH_TYPE_BOOLEAN, .size = 1}, offsetof(struct point, on)},
	{"whole", {.kind = MATCH_TYPE_STRUCT, .size = sizeof(struct point), .handle = {HANDLE_POINT}}, 0},
};

static bool parameter(void *owner, const char *name, uint32_t *index)
{
	(void)owner;
	*index = strcmp(name, "point") == 0 ? 0 : strcmp(name, "numbers") == 0 ? 1 : strcmp(name, "count") == 0 ? 2 : UINT32_MAX;
	return *index != UINT32_MAX;
}

static bool parameter_type(void *owner, uint32_t index, struct match_type *type)
{
	(void)owner;
	*type = (struct match_type){.kind = MATCH_TYPE_POINTER, .size = 8, .handle = {index == 0 ? HANDLE_POINT : HANDLE_INTEGER}};
	if (index == 2)
		*type = (struct match_type){.kind = MATCH_TYPE_INTEGER, .size = 8};
	return index < 3;
}

static bool member_of(void *owner, const struct match_type *of, const char *name, struct match_type *type, uint64_t *offset)
{
	(void)owner;
	for (size_t i = 0; of->handle[0] == HANDLE_POINT && i < sizeof members / sizeof *members; i++) {
		if (strcmp(name, members[i].name) != 0)
			continue;
		*type = members[i].type;
		*offset = members[i].offset;
		return true;
	}
	return false;
}

static bool element_of(void *owner, const struct match_type *of, struct match_type *type)
{
	(void)owner;
	*type = of->handle[0] == HANDLE_POINT	? (struct match_type){.kind = MATCH_TYPE_STRUCT, .size = sizeof(struct point), .handle = {HANDLE_POINT}}
		: of->handle[0] == HANDLE_INTEGER ? (struct match_type){.kind = MATCH_TYPE_INTEGER, .size = 4, .is_signed = true}
						  : (struct match_type){.kind = MATCH_TYPE_INTEGER, .size = 1, .is_signed = true};
	return true;
}

static int ranges_of(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **ranges)
{
	(void)owner;
	if (strcmp(module, "libc.so.6") != 0)
		return -1;
	if (strcmp(function, "read") != 0 || (arity != 3 && arity != -1))
		return 0;
	*ranges = calloc(2, sizeof **ranges);
	(*ranges)[0] = (struct lorg_match_range){0x1000, 0x10ff};
	(*ranges)[1] = (struct lorg_match_range){0x3000, 0x3000};
	return 2;
}

static const struct match_names names = {NULL, parameter, parameter_type, member_of, element_of, ranges_of, false, NULL};

/* What evaluations see: the address of the caller, and counts of what was asked. */
static struct seen {
	uint64_t caller;
	uint64_t words[4];
	int made, prepared, loads;
	uint32_t on, off;
} seen;

static lorg_term make_argument(struct lorg_match_evaluation *evaluation, uint32_t index)
{
	seen.made++;
	return lorg_integer(evaluation->terms, (int64_t)index * 100);
}

static void prepare(struct lorg_match_evaluation *evaluation)
{
	(void)evaluation;
	seen.prepared++;
}

static uint64_t caller(struct lorg_match_evaluation *evaluation)
{
	(void)evaluation;
	return seen.caller;
}

static bool word(struct lorg_match_evaluation *evaluation, uint32_t index, uint64_t *value)
{
	(void)evaluation;
	*value = index < 4 ? seen.words[index] : 0;
	return index < 4;
}

/* The first page faults. */
static bool load(struct lorg_match_evaluation *evaluation, uint64_t address, void *to, uint32_t size)
{
	(void)evaluation;
	seen.loads++;
	if (address < 4096)
		return false;
	memcpy(to, (const void *)(uintptr_t)address, size);
	return true;
}

static lorg_term load_string(struct lorg_match_evaluation *evaluation, uint64_t address, uint32_t limit)
{
	if (address < 4096)
		return lorg_term_failed(evaluation->terms, LORG_TERM_BAD_ARGUMENT);
	const char *text = (const void *)(uintptr_t)address;
	return lorg_string(evaluation->terms, text, strnlen(text, limit));
}

static bool trace(struct lorg_match_evaluation *evaluation, lorg_term process, uint32_t off, uint32_t on, lorg_term tracer, bool *changed)
{
	(void)evaluation;
	(void)process;
	(void)tracer;
	seen.off = off;
	seen.on = on;
	*changed = true;
	return true;
}

static const struct lorg_match_context context = {
	.prepare = prepare,
	.argument = make_argument,
	.caller = caller,
	.word = word,
	.load = load,
	.load_string = load_string,
	.trace = trace,
};

/* ---- compiling and evaluating -------------------------------------------------------- */

struct run {
	struct match_code code;
	struct lorg_match_program program;
	struct match_errors errors;
	uint64_t scratch[LORG_MATCH_SCRATCH_WORDS];
	struct lorg_terms terms;
	struct lorg_match_evaluation evaluation;
	char *value;
};

static const struct match_options inside = {.dialect = LORG_DIALECT_CALL, .inside = true, .names = &names};

static bool compile(struct run *run, const char *text, bool condition, const struct match_options *options)
{
	bool good = condition ? match_compile_condition(text, strlen(text), options, &run->code, &run->errors)
			      : match_compile(text, strlen(text), options, &run->code, &run->errors);
	ck_assert(good == (run->errors.count == 0));
	return good && match_code_open(&run->code, options, &run->program);
}

static bool evaluate(struct run *run, lorg_term *arguments, uint32_t count)
{
	run->terms = (struct lorg_terms){
		.scratch = run->scratch,
		.scratch_words = LORG_MATCH_SCRATCH_WORDS,
		.used = run->terms.used,
		.steps = LORG_MATCH_STEPS,
	};
	run->evaluation = (struct lorg_match_evaluation){
		.program = &run->program,
		.context = &context,
		.terms = &run->terms,
		.arguments = arguments,
		.argument_count = count,
	};
	bool matched = lorg_match_evaluate(&run->evaluation);
	free(run->value);
	run->terms.steps = LORG_STEPS_ENDLESS;
	run->value = lorg_term_text(&run->terms, run->evaluation.value, LORG_TEXT_ERLANG, NULL, NULL);
	return matched;
}

static struct run *new_run(void)
{
	return calloc(1, sizeof(struct run));
}

static void end_run(struct run *run)
{
	match_code_close(&run->code);
	match_errors_close(&run->errors);
	free(run->value);
	free(run);
}

/* The condition or specification on no arguments but lazily made ones: 0, 100, 200, 300. */
static void holds(const char *text, bool condition, bool wanted)
{
	struct run *run = new_run();
	lorg_term arguments[4] = {LORG_NONE, LORG_NONE, LORG_NONE, LORG_NONE};
	ck_assert_msg(compile(run, text, condition, &inside), "%s: %s", text, run->errors.count ? run->errors.list[0].why : "?");
	ck_assert_msg(evaluate(run, arguments, 4) == wanted, "%s", text);
	end_run(run);
}

static void gives(const char *text, const char *wanted)
{
	struct run *run = new_run();
	lorg_term arguments[4] = {LORG_NONE, LORG_NONE, LORG_NONE, LORG_NONE};
	ck_assert_msg(compile(run, text, false, &inside), "%s: %s", text, run->errors.count ? run->errors.list[0].why : "?");
	ck_assert(evaluate(run, arguments, 4));
	ck_assert_str_eq(run->value, wanted);
	end_run(run);
}

static void refused(const char *text, bool condition, const struct match_options *options, const char *place, const char *part)
{
	struct run *run = new_run();
	char said[400];
	ck_assert_msg(!compile(run, text, condition, options), "%s", text);
	match_error_text(&run->errors.list[0], said, sizeof said);
	ck_assert_msg(strncmp(said, place, strlen(place)) == 0 && strstr(said, part), "%s: %s", text, said);
	ck_assert(run->errors.list[0].advice[0]);
	ck_assert_ptr_null(run->code.memory);
	end_run(run);
}

/* ---- errors ------------------------------------------------------------------------------ */

START_TEST(errors_have_places)
{
	refused("[{['$1'],['$2'],[]}]", false, &inside, "1:11: ", "unbound variable '$2' in guard");
	refused("[{['$1'],[],[{message,'$2'}]}]", false, &inside, "1:23: ", "unbound variable '$2' in body");
	refused("[{['$1'],\n  [{is_atom,\n\t'$3'}],[]}]", false, &inside, "3:2: ", "unbound variable '$3'");
	refused("[{'_',[],[{foo,1}]}]", false, &inside, "1:11: ", "no function 'foo' with 1 argument");
	refused("[{'_',[{message,1}],[]}]", false, &inside, "1:8: ", "action");
	refused("[{'_',[],[{{1}},{1,2}]}]", false, &inside, "1:17: ", "{1,2}");
	refused("[{'_',[],[]},{'_',[]}]", false, &inside, "1:14: ", "three elements");
	refused("[{[a|b],[],[]}]", false, &inside, "1:3: ", "proper list");
	refused("[{[#{'_' => 1}],[],[]}]", false, &inside, "1:6: ", "key");
	refused("[{'_',[],[{is_atom,a,b}]}]", false, &inside, "1:11: ", "does not take 2 arguments");
	refused("[{'_',[],[", false, &inside, "1:", "");
	refused("", false, &inside, "1:1: ", "");
	refused("[]", false, &inside, "1:1: ", "no clause");
	refused("arg0 == 1 andalso foo(2)", true, &inside, "1:19: ", "no function 'foo'");
	refused("arg0 == \"abc", true, &inside, "1:9: ", "does not end");
	refused("arg0 ==\n== 1", true, &inside, "2:1: ", "a value is missing");
	refused("arg0 && arg1", true, &inside, "1:6: ", "'&&'");
	refused("andalso", true, &inside, "1:1: ", "a value is missing");
	refused("arg0 == fun", true, &inside, "1:9: ", "'fun' is a reserved word");
	refused("arg0 == arg32768", true, &inside, "1:9: ", "no call has so many arguments");
	refused("arg99999999999999999999 == 1", true, &inside, "1:1: ", "no call has so many arguments");
	refused("arg0 == \"\xe2\x82\"", true, &inside, "1:10: ", "byte 226 is not UTF-8");
}
END_TEST

START_TEST(all_errors_are_reported)
{
	struct run *run = new_run();
	ck_assert(!compile(run, "[{['$1'],[{foo},{bar}],[{baz},'$8']},{a,[],[]}]", false, &inside));
	ck_assert_uint_eq(run->errors.count, 5);
	end_run(run);
}
END_TEST

/* Deeper than may be: system_limit and no crash, however it is nested. */
static void too_deep(const char *before, const char *opens, const char *inner, const char *closes, const char *behind, bool condition)
{
	enum { LEVELS = 60000 };
	size_t open = strlen(opens), close = strlen(closes);
	struct run *run = new_run();
	char *text = malloc(LEVELS * (open + close) + strlen(before) + strlen(inner) + strlen(behind) + 1), *end = stpcpy(text, before);
	for (int i = 0; i < LEVELS; i++)
		end = stpcpy(end, opens);
	end = stpcpy(end, inner);
	for (int i = 0; i < LEVELS; i++)
		end = stpcpy(end, closes);
	strcpy(end, behind);
	ck_assert(!compile(run, text, condition, &inside));
	ck_assert(run->errors.list[0].system_limit);
	free(text);
	end_run(run);
}

START_TEST(nesting_is_limited)
{
	too_deep("[{'_',[", "{'not',", "true", "}", "],[]}]", false);
	too_deep("[{[", "{", "'$1'", "}", "],[],[]}]", false);
	too_deep("[{[", "[", "'$1'", "]", "],[],[]}]", false);
	too_deep("[{'_',[],[{message,", "#{a => ", "1", "}", "}]}]", false);
	too_deep("", "(", "1", ")", "", true);
	too_deep("", "not ", "true", "", "", true);
	too_deep("arg0", "+arg0", "", "", "", true);
	too_deep("arg0", "[arg0", "", "]", "", true);
}
END_TEST

START_TEST(dialects_exclude)
{
	const struct match_options send = {.dialect = LORG_DIALECT_SEND, .inside = true};
	const struct match_options receive = {.dialect = LORG_DIALECT_RECEIVE, .inside = true};
	static const char *const not_receive[] = {"is_seq_trace", "get_seq_token", "set_seq_token,label,1", "enable_trace,call",
						  "disable_trace,call", "trace,[],[call]", "silent,true", "process_dump", "caller", "caller_line",
						  "current_stacktrace"};
	static const char *const everywhere[] = {"return_trace", "exception_trace", "message,x", "get_tcw", "set_tcw,0", "display,x"};
	char text[128];
	for (size_t i = 0; i < sizeof not_receive / sizeof *not_receive; i++) {
		struct run *run = new_run();
		snprintf(text, sizeof text, "[{'_',[],[{%s}]}]", not_receive[i]);
		refused(text, false, &receive, "1:11: ", "cannot be used");
		bool in_send = strncmp(not_receive[i], "c", 1) != 0;
		ck_assert_msg(compile(run, text, false, &send) == in_send, "%s", text);
		end_run(run);
	}
	for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++) {
		struct run *run = new_run();
		snprintf(text, sizeof text, "[{'_',[],[{%s}]}]", everywhere[i]);
		ck_assert_msg(compile(run, text, false, &receive), "%s", text);
		end_run(run);
	}
}
END_TEST

/* ---- the caller ------------------------------------------------------------------------- */

START_TEST(caller_is_compared_as_ranges)
{
	const char *const equal = "[{'_',[],[{message,{'==',{caller},{const,{'libc.so.6',read,3}}}}]}]";
	const char *const not_equal = "[{'_',[],[{message,{'=/=',{{'libc.so.6',read,'_'}},{caller}}}]}]";
	seen.caller = 0x1080;
	gives(equal, "true");
	gives(not_equal, "false");
	seen.caller = 0x3000;
	gives(equal, "true");
	seen.caller = 0x3001;
	gives(equal, "false");
	gives(not_equal, "true");
	gives("[{'_',[],[{message,{'==',{caller},{const,{'libc.so.6',read,2}}}}]}]", "false");
	gives("[{'_',[],[{message,{'==',{caller},undefined}}]}]", "false");
	gives("[{'_',[],[{message,{'==',{caller},foo}}]}]", "false");
	gives("[{'_',[],[{message,{{at,{caller}}}}]}]", "{at,{code,16#3001}}");
	seen.caller = 0;
	gives("[{'_',[],[{message,{'/=',undefined,{caller}}}]}]", "false");
	gives("[{'_',[],[{message,{caller}}]}]", "undefined");
	gives(equal, "false");
	seen.caller = 0x1000;
	holds("caller() == {'libc.so.6',read,3}", true, true);
	holds("caller() =/= {'libc.so.6',read,3} orelse arg0 == 1", true, false);
}
END_TEST

START_TEST(caller_is_not_taken_apart)
{
	refused("[{'_',[],[{message,{element,1,{caller}}}]}]", false, &inside, "1:31: ", "taken apart");
	refused("[{'_',[],[{'==',{caller},'$_'}]}]", false, &inside, "1:17: ", "taken apart");
	refused("[{'_',[],[{'<',{caller},{{a,b,1}}}]}]", false, &inside, "1:16: ", "taken apart");
	refused("[{'_',[],[{hd,[{caller}]}]}]", false, &inside, "1:15: ", "taken apart");
	refused("[{'_',[],[{'==',{caller_line},{{a,b,1}}}]}]", false, &inside, "1:17: ", "taken apart");
	refused("[{'_',[],[{'==',{caller},{{other,b,1}}}]}]", false, &inside, "1:11: ", "not known");
	refused("[{'_',[],[{message,#{{caller} => 1}}]}]", false, &inside, "1:22: ", "key");
}
END_TEST

/* ---- limits -------------------------------------------------------------------------------- */

START_TEST(what_takes_too_much_fails)
{
	struct run *run = new_run();
	lorg_term arguments[2];
	/* More scratch memory than there is; the rest goes on. */
	ck_assert(compile(run, "[{'_',[],[{message,{{a,{'bsl',1,10000000}}}}]}]", false, &inside));
	ck_assert(evaluate(run, NULL, 0));
	ck_assert_str_eq(run->value, "{a,'EXIT'}");
	ck_assert_uint_eq(run->evaluation.exceeded, 1);
	match_code_close(&run->code);
	/* More steps: a long list compared, in a guard. */
	ck_assert(compile(run, "[{['$1','$2'],[{'=:=','$1','$2'}],[]},{['$1','$2'],[],[{message,second}]}]", false, &inside));
	run->terms = (struct lorg_terms){.scratch = run->scratch, .scratch_words = LORG_MATCH_SCRATCH_WORDS, .steps = LORG_STEPS_ENDLESS};
	for (int i = 0; i < 2; i++) {
		arguments[i] = lorg_nil();
		for (int j = 0; j < 1500; j++)
			arguments[i] = lorg_cons(&run->terms, lorg_small(j), arguments[i]);
	}
	ck_assert(evaluate(run, arguments, 2));
	ck_assert_str_eq(run->value, "true");
	run->terms.used = 6000;
	run->terms.steps = 100;
	ck_assert(lorg_match_evaluate(&run->evaluation));
	ck_assert_uint_eq(run->evaluation.exceeded, 1);
	ck_assert(run->evaluation.value != LORG_TRUE);
	end_run(run);
}
END_TEST

START_TEST(no_room_for_the_stack_is_no_match)
{
	struct run *run = new_run();
	ck_assert(compile(run, "[{'$1',[],[{message,{{1,2,'$1'}}}]}]", false, &inside));
	run->terms.used = LORG_MATCH_SCRATCH_WORDS - 2;
	ck_assert(!evaluate(run, NULL, 0));
	ck_assert_uint_eq(run->evaluation.exceeded, 1);
	end_run(run);
}
END_TEST

START_TEST(large_programs_are_refused_inside)
{
	struct run *run = new_run();
	const struct match_options outside = {.dialect = LORG_DIALECT_CALL};
	enum { EXPRESSIONS = 6000 };
	char *text = malloc(EXPRESSIONS * 16 + 64), *end = stpcpy(text, "[{'_',[],[{node}");
	for (int i = 0; i < EXPRESSIONS; i++)
		end = stpcpy(end, ",{node}");
	strcpy(end, "]}]");
	ck_assert(!compile(run, text, false, &inside));
	ck_assert(run->errors.list[0].system_limit);
	match_errors_close(&run->errors);
	ck_assert(compile(run, text, false, &outside));
	free(text);
	end_run(run);
}
END_TEST

/* The evaluation alone, on a stack whose use is seen. */
enum { PAINTED = 64 * 1024 };
static unsigned char painted[PAINTED] __attribute__((aligned(16)));
static ucontext_t here, there;
static struct run *painted_run;

static void evaluate_painted(void)
{
	lorg_match_evaluate(&painted_run->evaluation);
}

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
static const bool optimised = true;
#else
static const bool optimised = false;
#endif

static size_t stack_used(void)
{
	memset(painted, 0xa5, sizeof painted);
	getcontext(&there);
	there.uc_stack.ss_sp = painted;
	there.uc_stack.ss_size = sizeof painted;
	there.uc_link = &here;
	makecontext(&there, evaluate_painted, 0);
	swapcontext(&here, &there);
	size_t untouched = 0;
	while (untouched < sizeof painted && painted[untouched] == 0xa5)
		untouched++;
	return sizeof painted - untouched;
}

START_TEST(little_stack_is_used)
{
	static const char *const texts[] = {
		"[{'$1',[],[]}]",
		("[{['_','_'],[{'>',{'+',{'*',18446744073709551616,18446744073709551617},1.0},{size,{{1,2}}}}],[{message,"
		 "#{a => [1,2|'$_'],{{b}} => {'div',1000000000000000000000000000000,{'bsl',1,70}}}},{trace,[all],[call]}]}]"),
		"[{[{a,[b|'$1']},#{k => '$2'}],[{'=:=',{{'$1',{{'$2'}}}},{{'$2',{{'$1'}}}}}],[]}]",
		("[{['$1','_'],[],[{message,[{round,1.0e300},{float,{'bsl',1,900}},{'<',{'bsl',3,900},1.0e270},{'==',1.0e270,{'bsl',3,900}},"
		 "{'bsr',{'-',{'bsl',1,900}},3},{'bxor',{'bsl',5,200},{'-',{'bsl',1,90}}},{'rem',{'bsl',7,900},{'+',{'bsl',1,300},1}},"
		 "{'*',{'bsl',7,900},{'bsl',7,900}},{ceil,-1.5e100},{abs,{'-',{'bsl',1,90}}}]}]}]"),
		("[{['$1','_'],[],[{message,[#{{{3,'$1'}} => 1,{{2.0,'$1'}} => 2,{{2,'$1'}} => 3,{{1,'$1'}} => 4,{{1.5,'$1'}} => 5},"
		 "{map_get,{{1,'$1'}},#{{{1,'$1'}} => a,{{1.0,'$1'}} => b}},{is_map_key,{{#{}}},{const,#{{#{}} => 1}}},"
		 "{'<',{const,#{a => #{b => [1,2.0]}}},{const,#{a => #{b => [1,2]}}}},{binary_part,<<1,2,3,4>>,1,2},{is_record,{{a,b}},a,2},"
		 "{'==',<<1:9>>,<<1:10>>},{'<',<0.1.0>,<0.2.0>},{'=<',fun a:b/1,fun a:c/1},{'>',#Ref<1.2.3>,#Ref<1.2.4>}]},"
		 "{trace,{const,[all,call]},{const,[{tracer,<0.0.0>},send]}},{enable_trace,{self},set_on_first_spawn},"
		 "{set_seq_token,strict_monotonic_timestamp,true},{silent,true},{set_tcw,5},{message,{caller}},{message,{current_stacktrace}}]}]"),
	};
	struct run *run = painted_run = new_run();
	lorg_term arguments[2] = {lorg_small(1), lorg_small(2)};
	size_t bare, most = 0;
	/* What getting there takes, and what the simplest evaluation takes. */
	ck_assert(compile(run, "[{[a,b,c],[],[]}]", false, &inside));
	evaluate(run, arguments, 2);
	bare = stack_used();
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		match_code_close(&run->code);
		ck_assert_msg(compile(run, texts[i], false, &inside), "%s", run->errors.count ? run->errors.list[0].why : "");
		evaluate(run, arguments, 2);
		run->terms.used = 0;
		run->terms.steps = LORG_MATCH_STEPS;
		size_t used = stack_used();
		most = used > most ? used : most;
	}
	/* Sanitizers and unoptimised code take what they like. */
	if (optimised)
		ck_assert_msg(most < 1024, "%zu bytes of stack, the least takes %zu", most, bare);
	end_run(run);
}
END_TEST

/* ---- what is asked of the surroundings ------------------------------------------------------- */

START_TEST(a_plain_filter_asks_for_little)
{
	struct run *run = new_run();
	lorg_term arguments[2] = {lorg_small(11), LORG_NONE};
	seen = (struct seen){0};
	ck_assert(compile(run, "[{['$1','$2'],[{'>','$1',10},{is_integer,'$1'}],[]}]", false, &inside));
	ck_assert_uint_eq(run->program.arguments, 1);
	ck_assert_uint_eq(run->program.needs, 0);
	ck_assert(evaluate(run, arguments, 2));
	ck_assert_int_eq(seen.made, 0);
	ck_assert_int_eq(seen.prepared, 0);
	arguments[0] = lorg_small(10);
	ck_assert(!evaluate(run, arguments, 2));
	match_code_close(&run->code);
	ck_assert(compile(run, "[{['$1','$2'],[{'<','$2',10}],[]},{['$1','$2'],[{'==','$2',100}],[{return_trace},{message,'$_'}]}]", false, &inside));
	ck_assert_uint_eq(run->program.needs, LORG_MATCH_NEEDS_RETURN | LORG_MATCH_NEEDS_ALL_ARGUMENTS);
	ck_assert(evaluate(run, arguments, 2));
	ck_assert(run->evaluation.return_trace);
	ck_assert_str_eq(run->value, "[10,100]");
	ck_assert_int_eq(seen.made, 1);
	ck_assert_int_eq(seen.prepared, 1);
	end_run(run);
}
END_TEST

START_TEST(flags_are_handed_on)
{
	gives("[{'_',[],[{message,{trace,[call,silent],[send,'receive']}}]}]", "true");
	ck_assert_uint_eq(seen.off, LORG_TRACE_CALL | LORG_TRACE_SILENT);
	ck_assert_uint_eq(seen.on, LORG_TRACE_SEND | LORG_TRACE_RECEIVE);
	gives("[{'_',[],[{message,{enable_trace,strict_monotonic_timestamp}}]}]", "true");
	ck_assert_uint_eq(seen.on, LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP);
	gives("[{'_',[],[{message,{disable_trace,all}}]}]", "true");
	ck_assert_uint_eq(seen.off, LORG_TRACE_ALL);
	gives("[{'_',[],[{message,{trace,[call|x],[]}}]}]", "'EXIT'");
}
END_TEST

/* ---- the short form ----------------------------------------------------------------------------- */

START_TEST(operators_bind_as_in_erlang)
{
	holds("1 + 2 * 3 == 7", true, true);
	holds("(1 + 2) * 3 == 9", true, true);
	holds("10 - 2 - 3 == 5", true, true);
	holds("not false andalso true", true, true);
	holds("true orelse true andalso false", true, true);
	holds("1 bsl 2 + 1 == 5", true, true);
	holds("7 band 3 * 2 == 6", true, true);
	holds("- 3 + 5 == 2 andalso -3 < 0", true, true);
	holds("arg1 == 100 andalso arg2 - arg1 =:= 100 andalso arg0 =< 0", true, true);
	holds("true or false and false", true, true);
	holds("bnot 0 == -1", true, true);
	holds("{arg0, [arg1 | tl([1, 2])], #{k => arg2}} =:= {0, [100, 2], #{k => 200}}", true, true);
	holds("count == 200 andalso 'count' == count", true, false);
	holds("arg9 == 1 orelse true", true, false);
	holds("\"ab\" == [$a, $b] andalso <<1,2>> > abc andalso <0.1.0> < {}", true, true);
	holds("length([1, 2]) + arg0 == 2", true, true);
}
END_TEST

START_TEST(members_are_loaded)
{
	static struct point second = {.x = -7, .small = -1, .name = "second", .text = NULL, .weight = 2.5, .light = 0.5f, .on = true};
	static struct point first = {.x = 5, .flag = 1, .level = 6, .next = &second, .name = "eight888", .text = "hello"};
	static int numbers[] = {10, -20, 30};
	seen.words[0] = (uintptr_t)&first;
	seen.words[1] = (uintptr_t)numbers;
	seen.words[2] = 1;
	holds("arg0->x == 5 andalso point->next->x == -7", true, true);
	holds("point->level == 6 andalso point->signed_level == -2", true, true);
	holds("point->next->small == -1 andalso point->next->weight == 2.5 andalso point->next->light == 0.5", true, true);
	holds("point->name == \"eight888\" andalso point->next->name == \"second\"", true, true);
	holds("point->text == \"hello\" andalso point->text[1] == $e andalso point->name[0] == $e", true, true);
	holds("arg1[0] + numbers[1] == -10 andalso numbers[1 + 1] == 30", true, true);
	holds("numbers[arg0] == 10 andalso numbers[arg1 div 100] == -20", true, true);
	holds("point->next->on andalso not point->on", true, true);
	holds("point->whole.next->whole.x == -7 andalso point[0].x == 5", true, true);
	holds("point->next->next == 0", true, true);
	/* What faults does not hold, also under not and orelse before it. */
	holds("point->next->next->x == 0", true, false);
	holds("not (point->next->next->x == 0)", true, false);
	holds("point->next->text == \"\" orelse true", true, false);
	holds("true orelse point->next->next->x == 0", true, true);
	refused("point->none == 1", true, &inside, "1:8: ", "no member 'none'");
	refused("point.x == 1", true, &inside, "1:1: ", "no struct");
	refused("count->x == 1", true, &inside, "1:1: ", "no pointer");
	refused("arg3->x == 1", true, &inside, "1:1: ", "not known");
	refused("point->whole == 1", true, &inside, "1:1: ", "whole struct");
	refused("count[1] == 1", true, &inside, "1:1: ", "no elements");
}
END_TEST

/* ---- the verifier, and code that changes ---------------------------------------------------------- */

static enum lorg_match_defect verify(struct run *run, uint32_t *where)
{
	static uint32_t depths[20000];
	return lorg_match_open(&run->program, run->code.memory, run->code.size, &lorg_match_limits_inside, depths, 20000, where);
}

static struct lorg_match_head *head_of(struct run *run)
{
	return (struct lorg_match_head *)run->code.memory;
}

static lorg_match_instruction *code_of(struct run *run)
{
	return (lorg_match_instruction *)((char *)run->code.memory + head_of(run)->code_offset);
}

START_TEST(bad_heads_are_refused)
{
	struct run *run = new_run();
	ck_assert(compile(run, "[{['$1',{'$2'}],[{'==',{hd,'$1'},[a,b]}],[{message,{caller}}]}]", false, &inside));
	struct lorg_match_head good = *head_of(run);
	static const size_t fields[] = {
		offsetof(struct lorg_match_head, magic), offsetof(struct lorg_match_head, size), offsetof(struct lorg_match_head, code_offset),
		offsetof(struct lorg_match_head, code_words), offsetof(struct lorg_match_head, constant_offset),
		offsetof(struct lorg_match_head, constant_words), offsetof(struct lorg_match_head, range_offset),
		offsetof(struct lorg_match_head, ranges), offsetof(struct lorg_match_head, stack), offsetof(struct lorg_match_head, dialect),
	};
	ck_assert_int_eq(verify(run, NULL), LORG_MATCH_GOOD);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		uint32_t huge = 0xfffffff1;
		memcpy((char *)head_of(run) + fields[i], &huge, sizeof huge);
		ck_assert_msg(verify(run, NULL) != LORG_MATCH_GOOD, "field %zu", i);
		*head_of(run) = good;
	}
	head_of(run)->major++;
	ck_assert_int_eq(verify(run, NULL), LORG_MATCH_BAD_VERSION);
	*head_of(run) = good;
	for (size_t size = 0; size < run->code.size; size += 8) {
		uint32_t depths[64];
		ck_assert_int_eq(lorg_match_open(&run->program, run->code.memory, size, &lorg_match_limits_inside, depths, 64, NULL),
				 LORG_MATCH_BAD_HEAD);
	}
	end_run(run);
}
END_TEST

START_TEST(bad_code_is_refused)
{
	static const lorg_match_instruction bad[] = {
		LORG_MATCH_STOP,
		LORG_MATCH_OPERATIONS,
		LORG_MATCH_CLAUSE | (uint64_t)1 << 32,
		LORG_MATCH_BIND | (uint64_t)100 << 16,
		LORG_MATCH_PUSH | (uint64_t)100 << 16,
		LORG_MATCH_CONSTANT | (uint64_t)1000 << 32,
		LORG_MATCH_TUPLE | (uint64_t)9 << 32,
		LORG_MATCH_LIST | (uint64_t)UINT32_MAX << 32,
		LORG_MATCH_MAP | (uint64_t)UINT32_MAX << 32,
		LORG_MATCH_TAKE_TUPLE | (uint64_t)UINT32_MAX << 32,
		LORG_MATCH_CALL | 250 << 8,
		LORG_MATCH_CALL | LORG_MATCH_MESSAGE << 8 | 1 << 16,
		LORG_MATCH_COMPARE | 99 << 8,
		LORG_MATCH_AND_ALSO | (uint64_t)1 << 32,
		LORG_MATCH_CALLER_IN | 1 << 16,
		LORG_MATCH_LOAD | 99 << 8,
		LORG_MATCH_RETURN,
		LORG_MATCH_ACCEPT,
	};
	struct run *run = new_run();
	uint32_t where;
	ck_assert(compile(run, "[{['$1',{'$2'}],[{'==',{hd,'$1'},'$2'}],[]}]", false, &inside));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		lorg_match_instruction kept = code_of(run)[2];
		code_of(run)[2] = bad[i];
		ck_assert_msg(verify(run, &where) != LORG_MATCH_GOOD, "instruction %zu", i);
		code_of(run)[2] = kept;
		ck_assert_int_eq(verify(run, &where), LORG_MATCH_GOOD);
	}
	end_run(run);
}
END_TEST

/* In heads, unlike anywhere else, also in an argument that nothing was bound in, and where the code was changed to. */
START_TEST(floats_of_heads_have_their_sign)
{
	struct run *run = new_run();
	ck_assert(compile(run, "[{[-0.0,{a,[0.0]}],[],[]}]", false, &inside));
	for (int i = 0; i < 4; i++) {
		lorg_term arguments[2] = {LORG_NONE, LORG_NONE};
		run->terms = (struct lorg_terms){.scratch = run->scratch, .scratch_words = LORG_MATCH_SCRATCH_WORDS, .steps = LORG_MATCH_STEPS};
		lorg_term list = lorg_cons(&run->terms, lorg_float(&run->terms, i & 1 ? -0.0 : 0.0), lorg_nil());
		arguments[0] = lorg_float(&run->terms, i & 2 ? -0.0 : 0.0);
		arguments[1] = lorg_tuple(&run->terms, (const lorg_term[2]){lorg_atom_short("a", 1), list}, 2);
		ck_assert_int_eq(evaluate(run, arguments, 2), i == 2);
	}
	end_run(run);
}
END_TEST

/* Everything ends and stays in its memory, whatever is written to a program after it was verified. */
START_TEST(code_may_change)
{
	static const char *const texts[] = {
		"[{['$1',{a,['$2'|'_']},#{k => '$3'}],[{'orelse',{is_atom,'$1'},{'>','$2',3}}],[{message,[{hd,'$_'},{caller}|'$$']}]},"
		"{['$1','_','$2'],[{'and',{'==','$1',1},{is_list,'$2'}}],[{message,{'+',{const,100000000000000000000},'$1'}},{trace,[call],[]}]},"
		"{'_',[],[{message,#{a => {{'$_',{size,'$$'}}}}}]}]",
	};
	struct run *run = new_run();
	unsigned state = 12345, broken = 0;
	for (int round = 0; round < 20000; round++) {
		ck_assert(compile(run, texts[0], false, &inside));
		size_t words = run->code.size / 8;
		for (int i = 0; i < 3; i++) {
			state = state * 1103515245 + 12345;
			size_t place = state / 65536 % words;
			state = state * 1103515245 + 12345;
			uint64_t word = (uint64_t)state << (state / 65536 % 48) ^ state;
			run->code.memory[place] = state & 1 ? word : run->code.memory[place] ^ (UINT64_C(1) << (state / 65536 % 64));
		}
		lorg_term arguments[3] = {lorg_small(1), LORG_NONE, lorg_nil()};
		run->terms.used = 0;
		evaluate(run, arguments, 3);
		broken += run->evaluation.broken;
		match_code_close(&run->code);
	}
	ck_assert_uint_gt(broken, 0);
	end_run(run);
}
END_TEST

struct flipping {
	const struct match_code *code;
	bool stop;
};

/* Changes bits behind the head, of which a program that was opened has its own copy, and changes them back. */
static void *flip(void *argument)
{
	struct flipping *flipping = argument;
	uint64_t *memory = flipping->code->memory;
	size_t from = sizeof(struct lorg_match_head) / 8, words = flipping->code->size / 8 - from;
	for (uint32_t state = 1; !__atomic_load_n(&flipping->stop, __ATOMIC_RELAXED); state = state * 1664525 + 1013904223) {
		uint64_t *word = memory + from + state / 65536 % words, bit = UINT64_C(1) << (state / 1024 % 64);
		__atomic_fetch_xor(word, bit, __ATOMIC_RELAXED);
		for (volatile int i = 0; i < (int)(state / 256 % 64); i++)
			;
		__atomic_fetch_xor(word, bit, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The same while somebody else writes to it: every look at the code or a constant may see something else. */
START_TEST(code_may_change_meanwhile)
{
	static const char text[] =
		"[{['$1',{a,['$2'|'_']},#{k => '$3'}],[],[{message,'$$'}]},"
		"{['$1','$2','_'],[{'==',{const,{[1,2,3,\"abc\",#{k => {x,y}}],1.5,123456789012345678901}},{{'$2','$1','$_'}}}],[]},"
		"{['$1','_','$2'],[{'and',{'==','$1',1},{is_list,'$2'}}],[{message,{'+',{const,100000000000000000000},'$1'}},"
		"{message,{{{'*',{const,100000000000000000000},{const,300000000000000000000000000000}},{map_get,{const,{b}},"
		"{const,#{{a} => 1,{b} => 2,c => 3}}},{hd,{const,[\"abc\"]}},{binary_part,{const,<<1,2,3>>},1,1},{'<',{const,<<1,2>>},{const,<<1,3>>}}}}}]}]";
	struct run *run = new_run();
	pthread_t thread;
	unsigned as_written = 0;
	ck_assert(compile(run, text, false, &inside));
	struct flipping flipping = {&run->code, false};
	ck_assert_int_eq(pthread_create(&thread, NULL, flip, &flipping), 0);
	for (int round = 0; round < 30000; round++) {
		lorg_term arguments[3] = {lorg_small(1), LORG_NONE, lorg_nil()};
		run->terms.used = 0;
		as_written += evaluate(run, arguments, 3);
		ck_assert_uint_le(run->terms.used, run->terms.scratch_words);
	}
	__atomic_store_n(&flipping.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(as_written, 0);
	end_run(run);
}
END_TEST

/* ---- functions -------------------------------------------------------------------------------------- */

START_TEST(every_function_has_a_row)
{
	for (uint32_t i = 1; i < LORG_MATCH_FUNCTIONS; i++)
		ck_assert_msg(i == LORG_MATCH_TYPE_TESTS || lorg_match_function_info(i), "function %u", i);
	ck_assert_ptr_null(lorg_match_function_info(LORG_MATCH_FUNCTIONS));
}
END_TEST

START_TEST(later_functions_have_values)
{
	gives("[{'_',[],[{message,[{max,1,1.0},{min,1.0,1},{floor,-1.5},{ceil,-1.5},{tuple_size,{{1,2}}},{is_boolean,false},"
	      "{is_bitstring,<<1:1>>},{current_stacktrace,3},{max,a,9}]}]}]",
	      "[1,1.0,-2,-1,2,true,true,[],a]");
	refused("[{'_',[],[{current_stacktrace,a}]}]", false, &inside, "1:31: ", "constant");
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {
		errors_have_places,
		all_errors_are_reported,
		nesting_is_limited,
		dialects_exclude,
		caller_is_compared_as_ranges,
		caller_is_not_taken_apart,
		what_takes_too_much_fails,
		no_room_for_the_stack_is_no_match,
		large_programs_are_refused_inside,
		little_stack_is_used,
		a_plain_filter_asks_for_little,
		flags_are_handed_on,
		operators_bind_as_in_erlang,
		members_are_loaded,
		bad_heads_are_refused,
		bad_code_is_refused,
		code_may_change,
		code_may_change_meanwhile,
		floats_of_heads_have_their_sign,
		every_function_has_a_row,
		later_functions_have_values,
	};
	return unit_suite_of("match", tests, sizeof tests / sizeof *tests, 60);
}
