/* SPDX-License-Identifier: MIT */
/*
 * test_call_sessions.c: one function that several sessions trace, each by its own settings, flags and specification; and
 * calls that a specification decides about, by the stub's quick way and the long one, against a plain model of both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/match.h>

#include "collector/event/event.h"
#include "collector/match/compile.h"
#include "tests/unit/call/support.h"
#include "unit.h"

enum {
	ENDS = LORG_CALL_RETURN | LORG_CALL_RETURN_TO,
	ALL = LORG_CALL_ENTRY | LORG_CALL_VALUES | ENDS | LORG_CALL_FILTER,
	LEAN = LORG_CALL_ENTRY | LORG_CALL_FILTER,
	ASKS = LORG_CALL_ENTRY | LORG_CALL_VALUES | LORG_CALL_RETURN_TO,
	LOCAL = LORG_KIND_LOCAL,
	META = LORG_KIND_LOCAL | LORG_KIND_META,
	CALL = LORG_TRACE_CALL,
};

/* ---- the traced function ----------------------------------------------------- */

static jmp_buf back;
static int is_left; /* the call of pair() under way goes on at `back` */

__attribute__((noinline)) static int pair(int a, int b)
{
	if (is_left)
		longjmp(back, 1);
	return a + b;
}

static int (*hooked)(int, int);

static struct {
	struct lorg_plan plan;
	struct lorg_capture argument[2];
} plan = {
	.plan = {.captures = sizeof plan.plan, .captures_size = sizeof plan.argument},
	.argument = {{.form = LORG_FORM_SIGNED, .place = LORG_PLACE_INTEGER, .index = 0, .size = 4},
		     {.form = LORG_FORM_SIGNED, .place = LORG_PLACE_INTEGER, .index = 1, .size = 4}},
};
static const struct lorg_plan_function entry = {.argument_count = 2, .arguments = 1};

static void begin(uint32_t gate)
{
	support_attach(64);
	hooked = support_hook(1, pair, gate, 0, &plan.plan, &entry);
	hooked(0, 0); /* stacks and frames are made */
	support_forget_events();
}

static void call(int a, int b, int left)
{
	is_left = left;
	if (!left)
		ck_assert_int_eq(hooked(a, b), a + b);
	else if (!setjmp(back))
		hooked(a, b);
}

/* ---- what was told --------------------------------------------------------------- */

struct text {
	char bytes[1 << 16];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	text->used += (size_t)vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used, format, arguments);
	va_end(arguments);
	ck_assert_uint_lt(text->used, sizeof text->bytes);
}

static int message_of(const struct event_view *view)
{
	uint32_t length;
	const uint8_t *terms = event_bytes_named(view, "terms", &length);
	ck_assert_uint_ge(length, 2);
	if (length >= 5 && terms[length - 5] == 98)
		return (int)((uint32_t)terms[length - 4] << 24 | (uint32_t)terms[length - 3] << 16 | (uint32_t)terms[length - 2] << 8 |
			     terms[length - 1]);
	return terms[length - 1];
}

static void put_whose(struct text *text, const char *what, uint64_t session_kind)
{
	put(text, " %s%u%s", what, (unsigned)(session_kind & 0xffff), session_kind >> 16 & LORG_KIND_META ? "m" : "");
}

static void put_event(struct text *text, const struct event_view *view)
{
	uint64_t whose = event_number_named(view, "session_kind", 0);
	switch (view->id) {
	case LORG_EVENT_CALL_ENTRY: put(text, " lean"); break;
	case LORG_EVENT_RETURN: put(text, " return"); break;
	case LORG_EVENT_CALL:
		put_whose(text, "c", whose);
		if (whose & LORG_CALL_NO_ARGUMENTS)
			put(text, "/");
		if (whose & LORG_CALL_HAS_MESSAGE)
			put(text, "=%d", message_of(view));
		break;
	case LORG_EVENT_RETURN_FROM: put_whose(text, "r", whose); break;
	case LORG_EVENT_EXCEPTION_FROM: put_whose(text, "x", whose); break;
	case LORG_EVENT_RETURN_TO: put_whose(text, "t", whose); break;
	case LORG_EVENT_DISPLAY: put_whose(text, "d", event_number_named(view, "session", 99)); break;
	case LORG_EVENT_LIMIT: put_whose(text, "l", event_number_named(view, "session", 99)); break;
	default: break;
	}
}

/* All since the last time. */
static void look(struct text *text)
{
	const uint8_t *packets[64];
	size_t sizes[64], count = support_packets(packets, sizes, 64);
	text->used = 0;
	text->bytes[0] = 0;
	for (size_t i = 0; i < count; i++) {
		uint64_t tick = ((const struct lorg_packet *)packets[i])->begin;
		for (size_t at = LORG_PACKET_HEAD; at < sizes[i];) {
			struct event_view view;
			enum event_status status = event_decode(packets[i] + at, sizes[i] - at, tick, &view);
			ck_assert_int_ne(status, EVENT_BAD);
			at += view.length;
			if (status != EVENT_OK)
				continue;
			tick = view.tick;
			put_event(text, &view);
		}
	}
	support_forget_events();
}

static void expect(const char *what)
{
	static struct text text;
	look(&text);
	ck_assert_str_eq(text.used ? text.bytes + 1 : "", what);
}

/* ---- settings ------------------------------------------------------------------------ */

/* NULL: none. */
static uint32_t program_of(const char *specification)
{
	const struct match_options options = {.dialect = LORG_DIALECT_CALL, .inside = true, .flags = LORG_TRACE_ALL};
	struct match_errors errors = {0};
	struct match_code code;
	if (!specification)
		return 0;
	ck_assert_msg(match_compile(specification, strlen(specification), &options, &code, &errors), "%s", specification);
	uint32_t place = support_program(code.memory, (uint32_t)code.size);
	match_code_close(&code);
	ck_assert_uint_ne(place, 0);
	return place;
}

static struct lorg_call_setting setting_of(uint32_t session, uint32_t kind, const char *specification)
{
	return (struct lorg_call_setting){.session = session, .kind = kind, .gate = ASKS, .program = program_of(specification)};
}

/* ---- tests by hand -------------------------------------------------------------------- */

START_TEST(each_session_is_told_by_its_own_flags)
{
	begin(ALL);
	const struct lorg_call_setting settings[] = {setting_of(1, LOCAL, NULL), setting_of(2, LOCAL, NULL), setting_of(5, META, NULL),
						     setting_of(127, LOCAL, NULL)};
	support_settings(1, settings, 4);
	call(1, 2, 0);
	expect("c5m");
	support_flags(1, CALL);
	support_flags(127, CALL | LORG_TRACE_ARITY | LORG_TRACE_RETURN_TO);
	call(1, 2, 0);
	expect("c1 c5m c127/ t127");
	support_flags(2, CALL | LORG_TRACE_SILENT);
	support_flags(1, 0);
	call(1, 2, 0);
	expect("c5m c127/ t127");
	call(1, 2, 1);
	expect("c5m c127/ t127");
}
END_TEST

START_TEST(lean_calls_are_told_once_for_all)
{
	struct lorg_call_setting settings[] = {setting_of(1, LOCAL, NULL), setting_of(2, LOCAL, NULL), setting_of(3, LOCAL, NULL)};
	begin(LEAN | (_i ? (uint32_t)LORG_CALL_COUNT : 0));
	for (int i = 0; i < 3; i++)
		settings[i].gate = LORG_CALL_ENTRY;
	support_settings(1, settings, 3);
	call(1, 2, 0);
	expect("");
	support_flags(2, CALL);
	support_flags(3, CALL);
	call(1, 2, 0);
	expect("lean");
	support_flags(2, CALL | LORG_TRACE_SILENT);
	support_flags(3, LORG_TRACE_SILENT);
	call(1, 2, 0);
	expect("");
	support_flags(1, CALL);
	call(1, 2, 0);
	expect("lean");
}
END_TEST

START_TEST(a_call_that_came_another_way_is_not_told)
{
	begin(ALL);
	const struct lorg_call_setting settings[] = {setting_of(1, LORG_KIND_GLOBAL, NULL), setting_of(2, LOCAL, NULL),
						     setting_of(3, LORG_KIND_COUNT, NULL)};
	support_settings(1, settings, 3);
	for (unsigned slot = 1; slot <= 3; slot++)
		support_flags(slot, CALL);
	call(1, 2, 0);
	expect("c2");
}
END_TEST

START_TEST(actions_change_their_own_session)
{
	begin(ALL);
	const struct lorg_call_setting settings[] = {
		setting_of(1, LOCAL, "[{['$1','_'],[],[{message,{get_tcw}},{set_tcw,'$1'},{silent,true}]}]"),
		setting_of(2, LOCAL, "[{['$1','_'],[],[{set_tcw,{'+','$1',100}},{message,{get_tcw}},{enable_trace,arity}]}]"),
		setting_of(3, LOCAL, "[{'_',[],[{disable_trace,call},{display,x}]}]")};
	support_settings(1, settings, 3);
	for (unsigned slot = 1; slot <= 3; slot++)
		support_flags(slot, CALL);
	support_control_word(1, 1, 7);
	call(9, 2, 0);
	expect("c2/=109 d3 c3");
	ck_assert_uint_eq(support_control_word(1, 0, 0), 9);
	ck_assert_uint_eq(support_control_word(2, 0, 0), 109);
	ck_assert_uint_eq(support_control_word(3, 0, 0), 0);
	ck_assert_uint_eq(support_flags_now(1), CALL | LORG_TRACE_SILENT);
	ck_assert_uint_eq(support_flags_now(2), CALL | LORG_TRACE_ARITY);
	ck_assert_uint_eq(support_flags_now(3), 0);
	/* The union, which all hooks look at. */
	ck_assert_uint_eq(support_flags_now(0), CALL | LORG_TRACE_SILENT | LORG_TRACE_ARITY);
	call(9, 2, 0);
	expect("c2/=109");
}
END_TEST

START_TEST(ends_are_told_to_those_who_asked)
{
	begin(ALL);
	const struct lorg_call_setting settings[] = {
		setting_of(1, LOCAL, "[{'_',[],[{return_trace}]}]"),	setting_of(1, META, "[{'_',[],[{exception_trace}]}]"),
		setting_of(2, LOCAL, "[{'_',[],[{exception_trace}]}]"), setting_of(3, LOCAL, "[{'_',[],[]}]"),
		setting_of(4, LOCAL, "[{'_',[],[{message,false},{return_trace}]}]")};
	support_settings(1, settings, 5);
	for (unsigned slot = 1; slot <= 4; slot++)
		support_flags(slot, CALL | LORG_TRACE_RETURN_TO);
	call(1, 2, 0);
	expect("c1 c1m c2 c3 r1 r2 r4 r1m t1 t2 t3");
	call(1, 2, 1);
	expect("c1 c1m c2 c3 x2 x1m t1 t2 t3");
}
END_TEST

static int (*hooked_outer)(int, int);
__attribute__((noinline)) static int outer(int a, int b)
{
	support_flags(1, CALL | LORG_TRACE_SILENT);
	support_flags(2, 0);
	int result = hooked(a, b);
	support_flags(3, CALL);
	return result;
}

START_TEST(silence_is_that_of_the_call_and_other_flags_those_of_the_event)
{
	begin(ALL);
	hooked_outer = support_hook(2, outer, ALL, 0, &plan.plan, &entry);
	const char *specification = "[{'_',[],[{return_trace}]}]";
	const struct lorg_call_setting settings[] = {setting_of(1, LOCAL, specification), setting_of(2, LOCAL, specification),
						     setting_of(3, LOCAL, specification)};
	support_settings(1, settings, 3);
	support_settings(2, settings, 3);
	support_flags(1, CALL);
	support_flags(2, CALL);
	support_flags(3, CALL | LORG_TRACE_SILENT);
	is_left = 0;
	ck_assert_int_eq(hooked_outer(1, 2), 3);
	/* 1: its return was asked for before the silence; 2: no flag call at the return; 3: called in silence. */
	expect("c1 c2 r1");
}
END_TEST

START_TEST(a_limit_is_one_sessions)
{
	begin(ALL);
	struct lorg_call_setting settings[] = {setting_of(1, LOCAL, NULL), setting_of(2, LOCAL, NULL)};
	settings[0].limit_events = 2;
	support_settings(1, settings, 2);
	support_flags(1, CALL);
	support_flags(2, CALL);
	for (int i = 0; i < 4; i++)
		call(1, 2, 0);
	expect("c1 c2 l1 c1 c2 c2 c2");
	ck_assert_uint_eq(support_gate_now(1), ALL);
}
END_TEST

START_TEST(every_slot_can_trace_one_function)
{
	struct lorg_call_setting settings[2 * (LORG_SESSIONS - 1)];
	static struct text text;
	unsigned count = 0;
	begin(ALL);
	for (unsigned slot = 1; slot < LORG_SESSIONS; slot++) {
		settings[count++] = setting_of(slot, LOCAL, "[{'_',[],[{return_trace}]}]");
		settings[count++] = setting_of(slot, META, NULL);
		support_flags(slot, CALL);
	}
	support_settings(1, settings, count);
	call(1, 2, 0);
	for (unsigned slot = 1; slot < LORG_SESSIONS; slot++)
		put(&text, " c%u c%um", slot, slot);
	for (unsigned slot = 1; slot < LORG_SESSIONS; slot++)
		put(&text, " r%u", slot);
	expect(text.bytes + 1);
}
END_TEST

START_TEST(each_specification_has_all_of_the_scratch_memory)
{
	enum { SLOTS = 20 };
	struct lorg_call_setting settings[SLOTS];
	static struct text text;
	begin(ALL);
	for (unsigned slot = 1; slot <= SLOTS; slot++) {
		settings[slot - 1] = setting_of(slot, LOCAL, "[{'_',[{'>',{'bsl',1,100000},0}],[]}]");
		support_flags(slot, CALL);
		put(&text, " c%u", slot);
	}
	support_settings(1, settings, SLOTS);
	call(1, 2, 0);
	expect(text.bytes + 1);
}
END_TEST

static int (*hooked_deep)(int, int);
__attribute__((noinline)) static int deep(int n, int unused)
{
	int result = n ? hooked_deep(n - 1, unused) + 1 : 0;
	__asm__ volatile("");
	return result;
}

START_TEST(each_of_many_open_calls_has_its_own_ends)
{
	enum { DEPTH = 3000 };
	static struct text text;
	begin(ALL);
	hooked_deep = support_hook(2, deep, ALL, 0, &plan.plan, &entry);
	const struct lorg_call_setting settings[] = {setting_of(1, LOCAL, "[{['$1','_'],[{'=:=',{'rem','$1',2},0}],[{return_trace}]}]"),
						     setting_of(2, LOCAL, "[{['$1','_'],[{'=:=',{'rem','$1',3},0}],[{return_trace}]}]")};
	support_settings(2, settings, 2);
	support_flags(1, CALL);
	support_flags(2, CALL);
	for (int n = DEPTH; n >= 0; n--)
		put(&text, "%s%s", n % 2 ? "" : " c1", n % 3 ? "" : " c2");
	for (int n = 0; n <= DEPTH; n++)
		put(&text, "%s%s", n % 2 ? "" : " r1", n % 3 ? "" : " r2");
	ck_assert_int_eq(hooked_deep(DEPTH, 0), DEPTH);
	expect(text.bytes + 1);
}
END_TEST

/* ---- random specifications against a model ------------------------------------------------ */

enum { CLAUSES = 3, ACTIONS = 3, GUARDS = 2, SESSIONS = 6, WORD_SLOTS = 16 };

struct guard {
	enum { TEST, AND_ALSO, OR_ELSE, AND, OR, NOT } what;
	struct {
		int which, compare, constant;
	} test[2];
};

struct action {
	enum { RETURN_TRACE, EXCEPTION_TRACE, MESSAGE_FALSE, MESSAGE_TRUE, MESSAGE_FIRST, MESSAGE_WORD, SILENT, NOT_SILENT, ARITY, NO_ARITY,
	       NO_CALL, NO_RETURN_TO, SET_WORD, ACTION_KINDS } what;
};

struct clause {
	enum { HEAD_ANY, HEAD_TWO, HEAD_SAME, HEAD_THREE, HEAD_LITERAL, HEADS } head;
	unsigned guards, actions;
	struct guard guard[GUARDS];
	struct action action[ACTIONS];
};

struct specification {
	unsigned clauses;
	struct clause clause[CLAUSES];
};

static const char *const heads[HEADS] = {"'_'", "['$1','$2']", "['$1','$1']", "['$1','$2','$3']", "['$1',3]"};
static const char *const compares[] = {"<", "=<", ">", ">=", "==", "/=", "=:=", "=/="};
static const char *const actions[ACTION_KINDS] = {
	"{return_trace}", "{exception_trace}", "{message,false}", "{message,true}", "{message,'$1'}", "{message,{get_tcw}}", "{silent,true}",
	"{silent,false}", "{enable_trace,arity}", "{disable_trace,arity}", "{disable_trace,call}", "{disable_trace,return_to}",
	"{set_tcw,77}"};

static int below(int limit)
{
	return (int)(random() % limit);
}

static int variables_of(const struct clause *clause)
{
	return clause->head == HEAD_ANY ? 0 : clause->head == HEAD_TWO ? 2 : 1;
}

static void make_guard(struct guard *guard, int variables)
{
	guard->what = (unsigned)below(NOT + 1);
	for (int i = 0; i < 2; i++) {
		guard->test[i].which = 1 + below(variables);
		guard->test[i].compare = below(8);
		guard->test[i].constant = below(8) - 2;
	}
}

static void make(struct specification *specification, int acts)
{
	specification->clauses = (unsigned)below(CLAUSES) + 1;
	for (unsigned i = 0; i < specification->clauses; i++) {
		struct clause *clause = &specification->clause[i];
		clause->head = (unsigned)below(HEADS);
		clause->guards = variables_of(clause) && clause->head != HEAD_THREE ? (unsigned)below(GUARDS + 1) : 0;
		for (unsigned k = 0; k < clause->guards; k++)
			make_guard(&clause->guard[k], variables_of(clause));
		clause->actions = acts ? (unsigned)below(ACTIONS + 1) : 0;
		for (unsigned k = 0; k < clause->actions; k++) {
			clause->action[k].what = (unsigned)below(ACTION_KINDS);
			if (clause->action[k].what == MESSAGE_FIRST && !variables_of(clause))
				clause->action[k].what = MESSAGE_TRUE;
		}
	}
}

static void put_test(struct text *text, const struct guard *guard, int i)
{
	put(text, "{'%s','$%d',%d}", compares[guard->test[i].compare], guard->test[i].which, guard->test[i].constant);
}

static void put_guard(struct text *text, const struct guard *guard)
{
	static const char *const names[] = {"", "andalso", "orelse", "and", "or", "not"};
	if (guard->what != TEST)
		put(text, "{'%s',", names[guard->what]);
	put_test(text, guard, 0);
	if (guard->what != TEST && guard->what != NOT) {
		put(text, ",");
		put_test(text, guard, 1);
	}
	if (guard->what != TEST)
		put(text, "}");
}

static const char *text_of(const struct specification *specification)
{
	static struct text text;
	text.used = 0;
	for (unsigned i = 0; i < specification->clauses; i++) {
		const struct clause *clause = &specification->clause[i];
		put(&text, "%s{%s,[", i ? "," : "[", heads[clause->head]);
		for (unsigned k = 0; k < clause->guards; k++) {
			put(&text, "%s", k ? "," : "");
			put_guard(&text, &clause->guard[k]);
		}
		put(&text, "],[");
		for (unsigned k = 0; k < clause->actions; k++)
			put(&text, "%s%s", k ? "," : "", actions[clause->action[k].what]);
		put(&text, "]}");
	}
	put(&text, "]");
	return text.bytes;
}

static int test_holds(const struct guard *guard, int i, const int values[3])
{
	int a = values[guard->test[i].which - 1], b = guard->test[i].constant;
	switch (guard->test[i].compare) {
	case 0: return a < b;
	case 1: return a <= b;
	case 2: return a > b;
	case 3: return a >= b;
	case 4:
	case 6: return a == b;
	default: return a != b;
	}
}

static int guard_holds(const struct guard *guard, const int values[3])
{
	int first = test_holds(guard, 0, values), second = test_holds(guard, 1, values);
	switch (guard->what) {
	case TEST: return first;
	case NOT: return !first;
	case AND_ALSO:
	case AND: return first && second;
	default: return first || second;
	}
}

static int clause_matches(const struct clause *clause, const int values[3])
{
	if (clause->head == HEAD_THREE || (clause->head == HEAD_SAME && values[0] != values[1]) ||
	    (clause->head == HEAD_LITERAL && values[1] != 3))
		return 0;
	for (unsigned i = 0; i < clause->guards; i++)
		if (!guard_holds(&clause->guard[i], values))
			return 0;
	return 1;
}

/* NULL: none. */
static const struct clause *matching(const struct specification *specification, const int values[3])
{
	for (unsigned i = 0; i < specification->clauses; i++)
		if (clause_matches(&specification->clause[i], values))
			return &specification->clause[i];
	return NULL;
}

struct model_session {
	uint32_t flags, word;
	struct specification local, meta;
	int has_local, local_all, has_meta, meta_all; /* _all: without a specification */
	/* of the call under way */
	int asks[2][2]; /* [local, meta][return, exception] */
	int return_to;
};

struct model_said {
	int told, has_message, message, returns, exceptions;
};

static void act(struct model_session *session, const struct clause *clause, const int values[3], struct model_said *said)
{
	*said = (struct model_said){.told = 1};
	for (unsigned i = 0; i < clause->actions; i++) {
		switch (clause->action[i].what) {
		case RETURN_TRACE: said->returns = 1; break;
		case EXCEPTION_TRACE: said->returns = said->exceptions = 1; break;
		case MESSAGE_FALSE: said->told = said->has_message = 0; break;
		case MESSAGE_TRUE: said->told = 1, said->has_message = 0; break;
		case MESSAGE_FIRST: said->told = said->has_message = 1, said->message = values[0]; break;
		case MESSAGE_WORD: said->told = said->has_message = 1, said->message = (int)session->word; break;
		case SILENT: session->flags |= LORG_TRACE_SILENT; break;
		case NOT_SILENT: session->flags &= ~(uint32_t)LORG_TRACE_SILENT; break;
		case ARITY: session->flags |= LORG_TRACE_ARITY; break;
		case NO_ARITY: session->flags &= ~(uint32_t)LORG_TRACE_ARITY; break;
		case NO_CALL: session->flags &= ~(uint32_t)CALL; break;
		case NO_RETURN_TO: session->flags &= ~(uint32_t)LORG_TRACE_RETURN_TO; break;
		case SET_WORD: session->word = 77; break;
		default: break;
		}
	}
}

static void model_call(struct text *text, struct model_session *session, unsigned slot, int meta, const int values[3])
{
	struct model_said said = {.told = 1};
	if (meta ? !session->has_meta : !session->has_local)
		return;
	if (!meta && !(session->flags & CALL))
		return;
	if (meta ? !session->meta_all : !session->local_all) {
		const struct clause *clause = matching(meta ? &session->meta : &session->local, values);
		if (!clause)
			return;
		act(session, clause, values, &said);
	}
	if (!meta && (session->flags & LORG_TRACE_SILENT))
		return;
	if (said.told) {
		put(text, " c%u%s", slot, meta ? "m" : "");
		if (!meta && (session->flags & LORG_TRACE_ARITY))
			put(text, "/");
		if (said.has_message)
			put(text, "=%d", said.message);
		session->return_to |= !meta;
	}
	session->asks[meta][0] = said.returns;
	session->asks[meta][1] = said.exceptions;
}

static void model_end(struct text *text, const struct model_session *sessions, int left)
{
	for (int meta = 0; meta < 2; meta++)
		for (unsigned slot = 1; slot <= SESSIONS; slot++)
			if (sessions[slot].asks[meta][left] && (meta || (sessions[slot].flags & CALL)))
				put(text, " %s%u%s", left ? "x" : "r", slot, meta ? "m" : "");
	for (unsigned slot = 1; slot <= SESSIONS; slot++)
		if (sessions[slot].return_to && (~sessions[slot].flags & (CALL | LORG_TRACE_RETURN_TO)) == 0)
			put(text, " t%u", slot);
}

static void random_session(struct model_session *session, unsigned slot, struct lorg_call_setting *settings, unsigned *count)
{
	session->has_local = below(4) != 0;
	session->has_meta = below(4) == 0;
	session->local_all = below(4) == 0;
	session->meta_all = below(2) == 0;
	make(&session->local, 1);
	make(&session->meta, 1);
	if (session->has_local)
		settings[(*count)++] = setting_of(slot, LOCAL, session->local_all ? NULL : text_of(&session->local));
	if (session->has_meta)
		settings[(*count)++] = setting_of(slot, META, session->meta_all ? NULL : text_of(&session->meta));
}

static void one_random_call(struct model_session *sessions)
{
	static struct text expected, got;
	int values[3] = {below(8) - 2, below(8) - 2, 0}, left = below(4) == 0;
	expected.used = 0;
	expected.bytes[0] = 0;
	for (unsigned slot = 1; slot <= SESSIONS; slot++) {
		struct model_session *session = &sessions[slot];
		if (below(3) == 0)
			session->flags = (uint32_t)(below(4) ? CALL : 0) | (uint32_t)(below(3) ? 0 : LORG_TRACE_SILENT) |
					 (uint32_t)(below(3) ? 0 : LORG_TRACE_ARITY) | (uint32_t)(below(2) ? 0 : LORG_TRACE_RETURN_TO);
		support_flags(slot, session->flags);
		memset(session->asks, 0, sizeof session->asks);
		session->return_to = 0;
		model_call(&expected, session, slot, 0, values);
		model_call(&expected, session, slot, 1, values);
	}
	model_end(&expected, sessions, left);
	call(values[0], values[1], left);
	look(&got);
	ck_assert_str_eq(got.bytes, expected.bytes);
	for (unsigned slot = 1; slot <= SESSIONS; slot++) {
		ck_assert_uint_eq(support_flags_now(slot), sessions[slot].flags);
		ck_assert_uint_eq(support_control_word(slot, 0, 0), sessions[slot].word);
	}
}

START_TEST(random_specifications_of_several_sessions)
{
	srandom((unsigned)_i);
	begin(ALL);
	static struct model_session sessions[SESSIONS + 1];
	for (int round = 0; round < 60; round++) {
		struct lorg_call_setting settings[2 * SESSIONS];
		unsigned count = 0;
		for (unsigned slot = 1; slot <= SESSIONS; slot++)
			random_session(&sessions[slot], slot, settings, &count);
		support_settings(1, settings, count);
		for (int i = 0; count && i < 30; i++)
			one_random_call(sessions);
	}
}
END_TEST

/* What the stub decides by itself, of one session's lean calls: the long way has decided the same. */
START_TEST(random_specifications_decided_by_the_stub)
{
	srandom((unsigned)_i);
	begin(LORG_CALL_ENTRY | LORG_CALL_RETURN | LORG_CALL_FILTER);
	for (int round = 0; round < 300; round++) {
		struct specification specification;
		make(&specification, 0);
		struct lorg_call_setting setting = setting_of(0, LOCAL, text_of(&specification));
		setting.gate = LORG_CALL_ENTRY | (round & 1 ? LORG_CALL_RETURN : 0);
		support_setting(1, &setting);
		for (int i = 0; i < 30; i++) {
			int values[3] = {below(8) - 2, below(8) - 2, 0};
			call(values[0], values[1], 0);
			expect(!matching(&specification, values) ? "" : round & 1 ? "lean return" : "lean");
		}
	}
}
END_TEST

/* Numbers of any width, at the ends of what a term's word holds. */
START_TEST(wide_numbers_are_decided_as_the_long_way_does)
{
	static const struct {
		uint32_t form, size;
	} forms[] = {{LORG_FORM_SIGNED, 8}, {LORG_FORM_UNSIGNED, 8}, {LORG_FORM_SIGNED, 2}, {LORG_FORM_UNSIGNED, 1}, {LORG_FORM_POINTER, 8},
		     {LORG_FORM_UNSIGNED, 4}, {LORG_FORM_DESCRIPTOR, 4}, {LORG_FORM_BOOL, 1}, {LORG_FORM_CHAR, 1}};
	static const uint64_t words[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffffffff, 0x7fffffff, 0x80000000, (1ull << 59) - 1, 1ull << 59,
					 (1ull << 63) - 1, 1ull << 63, UINT64_MAX, UINT64_MAX << 59, UINT64_MAX << 60};
	static const char *const constants[] = {"0", "1", "-1", "127", "-128", "255", "4294967295", "576460752303423487", "576460752303423488",
						"-576460752303423488", "18446744073709551615", "true"};
	begin(LORG_CALL_ENTRY | LORG_CALL_FILTER);
	plan.argument[0].form = (uint8_t)forms[_i].form;
	plan.argument[0].size = forms[_i].size;
	int (*wide)(uint64_t, int) = (int (*)(uint64_t, int))(void *)hooked;
	is_left = 0;
	for (size_t k = 0; k < sizeof constants / sizeof *constants; k++) {
		for (unsigned compare = 0; compare < 8; compare++) {
			/* The same in a form that the stub knows nothing of, which takes the long way. */
			char plain[128], hidden[128];
			snprintf(plain, sizeof plain, "[{['$1','_'],[{'%s','$1',%s}],[]}]", compares[compare], constants[k]);
			snprintf(hidden, sizeof hidden, "[{['$1','_'],[{'=:=',{hd,[{'%s','$1',%s}]},true}],[]}]", compares[compare], constants[k]);
			static struct text by_stub, by_long_way;
			struct lorg_call_setting settings[2] = {setting_of(0, LOCAL, plain), setting_of(0, LOCAL, hidden)};
			for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
				for (int twice = 0; twice < 2; twice++) {
					support_setting(1, &settings[0]);
					wide(words[w], 0);
					look(&by_stub);
					support_setting(1, &settings[1]);
					wide(words[w], 0);
					look(&by_long_way);
					ck_assert_msg(!strcmp(by_stub.bytes, by_long_way.bytes), "%s of %lx: %s", plain, words[w], by_stub.bytes);
				}
			}
		}
	}
}
END_TEST

Suite *unit_suite(void)
{
	Suite *suite = suite_create("call_sessions");
	TCase *test = tcase_create("call_sessions");
	tcase_set_timeout(test, 60);
	tcase_add_test(test, each_session_is_told_by_its_own_flags);
	tcase_add_loop_test(test, lean_calls_are_told_once_for_all, 0, 2);
	tcase_add_test(test, a_call_that_came_another_way_is_not_told);
	tcase_add_test(test, actions_change_their_own_session);
	tcase_add_test(test, ends_are_told_to_those_who_asked);
	tcase_add_test(test, silence_is_that_of_the_call_and_other_flags_those_of_the_event);
	tcase_add_test(test, a_limit_is_one_sessions);
	tcase_add_test(test, every_slot_can_trace_one_function);
	tcase_add_test(test, each_specification_has_all_of_the_scratch_memory);
	tcase_add_test(test, each_of_many_open_calls_has_its_own_ends);
	tcase_add_loop_test(test, random_specifications_of_several_sessions, 1, 6);
	tcase_add_loop_test(test, random_specifications_decided_by_the_stub, 1, 4);
	tcase_add_loop_test(test, wide_numbers_are_decided_as_the_long_way_does, 0, 9);
	suite_add_tcase(suite, test);
	return suite;
}
