/* SPDX-License-Identifier: MIT */
/*
 * function/4 without programs: which kinds of trace replace and end which, against a model written from trace(3); what
 * stands in a control, and what is given back of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lorg/match.h>

#include "collector/session/controls.h"
#include "collector/session/rules.h"
#include "tests/unit/unit.h"

static uint32_t specifications; /* alive */

void specification_release(struct specification *specification)
{
	if (!specification || --specification->users)
		return;
	specifications--;
	free(specification->program);
	free(specification->ranges);
	free(specification);
}

/* A program of `words` words behind its head, with one range where module is not NULL. One user. */
static struct specification *make_specification(uint32_t words, const void *module)
{
	static uint64_t number;
	struct specification *specification = calloc(1, sizeof *specification);
	const uint32_t ranges = (sizeof(struct lorg_match_head) + 7) & ~7u;
	const uint32_t size = ranges + (uint32_t)sizeof(struct lorg_match_range) + words * 8;
	struct lorg_match_head *head = calloc(1, size);
	*head = (struct lorg_match_head){.size = size, .range_offset = ranges, .ranges = module != NULL};
	*specification = (struct specification){.users = 1, .number = ++number, .size = size, .program = (uint64_t *)(void *)head};
	if (module) {
		specification->ranges = calloc(1, sizeof *specification->ranges);
		specification->ranges[0] = (struct specification_range){module, 0x10, 0x1f};
		specification->range_count = 1;
	}
	specifications++;
	return specification;
}

/* ---- rules ------------------------------------------------------------------------------ */

/* What trace(3) says of one function in one session, item by item. */
struct model {
	char traced; /* 'g', 'l', 'f' */
	int meta;
	int match, meta_match; /* number of the specification; 0: [] */
	int count[3];	       /* of each counter: 0 not counted, 1 running, 2 paused */
};

enum { COUNT, TIME, MEMORY };
static const uint32_t counter_kinds[3] = {LORG_KIND_COUNT, LORG_KIND_TIME, LORG_KIND_MEMORY};

static void model_set(struct model *model, uint32_t kinds, int match)
{
	if (kinds & LORG_KIND_GLOBAL) { /* "setting global also ends meta, call_count and call_time" */
		*model = (struct model){.traced = 'g', .match = match};
		return;
	}
	if (model->traced == 'g') { /* "global and local replace each other"; "setting call_count or meta ends the global tracing" */
		model->traced = 'f';
		model->match = 0;
	}
	if (kinds & LORG_KIND_LOCAL) {
		model->traced = 'l';
		model->match = match;
	}
	if (kinds & LORG_KIND_META) {
		model->meta = 1;
		model->meta_match = match;
	}
	for (int i = 0; i < 3; i++)
		if (kinds & counter_kinds[i])
			model->count[i] = 1;
}

/* "false acts on the kind named only; the wrong kind does nothing" */
static void model_clear(struct model *model, uint32_t kinds)
{
	if ((kinds & LORG_KIND_GLOBAL && model->traced == 'g') || (kinds & LORG_KIND_LOCAL && model->traced == 'l')) {
		model->traced = 'f';
		model->match = 0;
	}
	if (kinds & LORG_KIND_META) {
		model->meta = 0;
		model->meta_match = 0;
	}
	for (int i = 0; i < 3; i++)
		if (kinds & counter_kinds[i])
			model->count[i] = 0;
}

static void model_count(struct model *model, uint32_t kinds, int to)
{
	for (int i = 0; i < 3; i++)
		if (kinds & counter_kinds[i] && model->count[i])
			model->count[i] = to;
}

static void model_apply(struct model *model, uint32_t kinds, enum function_how how, int match)
{
	switch (how) {
	case FUNCTION_SET: model_set(model, kinds, match); break;
	case FUNCTION_CLEAR: model_clear(model, kinds); break;
	case FUNCTION_RESTART: model_count(model, kinds, 1); break;
	case FUNCTION_PAUSE: model_count(model, kinds, 2); break;
	}
}

static int is_as(const struct asked *asked, const struct model *model, struct specification *const *all)
{
	char traced = asked->kinds & LORG_KIND_GLOBAL ? 'g' : asked->kinds & LORG_KIND_LOCAL ? 'l' : 'f';
	int same = traced == model->traced && !(asked->kinds & LORG_KIND_GLOBAL && asked->kinds & LORG_KIND_LOCAL);
	same &= ((asked->kinds & LORG_KIND_META) != 0) == model->meta;
	same &= asked->match == all[model->match] && asked->meta_match == all[model->meta_match];
	for (int i = 0; i < 3; i++) {
		int state = !(asked->kinds & counter_kinds[i]) ? 0 : asked->paused & counter_kinds[i] ? 2 : 1;
		same &= state == model->count[i];
	}
	return same;
}

/* Each kinds that function/4 may be given. */
static const uint32_t kinds_given[] = {
	LORG_KIND_GLOBAL, LORG_KIND_LOCAL, LORG_KIND_META, LORG_KIND_COUNT, LORG_KIND_TIME, LORG_KIND_MEMORY,
	LORG_KIND_LOCAL | LORG_KIND_COUNT, LORG_KIND_LOCAL | LORG_KIND_META, LORG_KIND_COUNT | LORG_KIND_TIME | LORG_KIND_MEMORY,
	LORG_KIND_META | LORG_KIND_TIME,
};
enum { KINDS_GIVEN = sizeof kinds_given / sizeof *kinds_given, SPECIFICATIONS = 3 };

START_TEST(rules_follow_the_model)
{
	struct specification *all[SPECIFICATIONS] = {NULL, make_specification(1, NULL), make_specification(2, NULL)};
	struct asked asked = {0};
	struct model model = {.traced = 'f'};
	uint64_t random = 12345;
	for (int i = 0; i < 200000; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint32_t kinds = kinds_given[(random >> 33) % KINDS_GIVEN];
		enum function_how how = (enum function_how)((random >> 41) % 4);
		int match = how == FUNCTION_SET && kinds & RULES_TRACES ? (int)((random >> 49) % SPECIFICATIONS) : 0;
		uint32_t running = asked.kinds & ~asked.paused & RULES_COUNTERS, counted = asked.kinds & RULES_COUNTERS;
		struct rules_effect effect = rules_apply(&asked, kinds, how, all[match]);
		model_apply(&model, kinds, how, match);
		ck_assert_msg(is_as(&asked, &model, all), "step %d: kinds %#x, how %d", i, kinds, how);
		/* true and restart count from zero, pause keeps what runs, and what is no more has ended. */
		uint32_t zeroed = how == FUNCTION_SET ? kinds & RULES_COUNTERS : how == FUNCTION_RESTART ? kinds & counted : 0;
		ck_assert_uint_eq(effect.zeroed, zeroed);
		ck_assert_uint_eq(effect.stopped, how == FUNCTION_PAUSE ? kinds & running : 0);
		ck_assert_uint_eq(effect.ended, counted & ~asked.kinds);
	}
	rules_end(&asked);
	ck_assert_uint_eq(asked.kinds, 0);
	specification_release(all[1]);
	specification_release(all[2]);
	ck_assert_uint_eq(specifications, 0);
}
END_TEST

static int is_badarg(struct function_request request)
{
	return rules_check(&request) != NULL;
}

START_TEST(what_is_a_badarg)
{
	const struct function_request plain = {.module = "m", .function = "f", .arity = 1, .kinds = LORG_KIND_GLOBAL};
	struct function_request request = plain;
	ck_assert(!is_badarg(request));
	request.kinds = LORG_KIND_GLOBAL | LORG_KIND_COUNT;
	ck_assert(is_badarg(request));
	/* Wildcards. */
	request = plain;
	request.arity = -1;
	ck_assert(!is_badarg(request));
	request.function = NULL;
	ck_assert(!is_badarg(request));
	request.arity = 2;
	ck_assert(is_badarg(request));
	request = (struct function_request){.arity = -1, .kinds = LORG_KIND_LOCAL};
	ck_assert(!is_badarg(request));
	request.function = "f";
	ck_assert(is_badarg(request));
	/* A specification with counters alone, and not alone. */
	request = plain;
	request.match = "[{'_',[],[]}]";
	ck_assert(!is_badarg(request));
	request.kinds = LORG_KIND_COUNT | LORG_KIND_TIME;
	ck_assert(is_badarg(request));
	request.kinds |= LORG_KIND_LOCAL;
	ck_assert(!is_badarg(request));
	request.kinds = LORG_KIND_COUNT;
	request.how = FUNCTION_CLEAR;
	ck_assert(!is_badarg(request));
}
END_TEST

/* ---- controls -------------------------------------------------------------------------------- */

enum { FUNCTIONS = 50, SETTINGS = 256, PROGRAMS = 16384 };

struct shared {
	struct lorg_control control;
	struct lorg_function_control functions[FUNCTIONS];
	struct lorg_call_setting settings[SETTINGS];
	uint8_t programs[PROGRAMS];
};
_Static_assert(__builtin_offsetof(struct shared, settings) == sizeof(struct lorg_control) + FUNCTIONS * sizeof(struct lorg_function_control),
	       "as in a control");

static const struct lorg_plan plan = {.function_count = FUNCTIONS};

static void begin(struct shared *shared, struct live_control *control)
{
	memset(shared, 0, sizeof *shared);
	shared->control = (struct lorg_control){.function_count = FUNCTIONS, .setting_count = SETTINGS, .live = 1};
	*control = (struct live_control){.plan = &plan, .control = &shared->control, .setting_count = SETTINGS, .programs = shared->programs,
		.programs_at = (uint32_t)__builtin_offsetof(struct shared, programs), .programs_size = PROGRAMS};
	ck_assert_int_eq(control_begin(control), 0);
}

static int mapped_at; /* the one module that there is: 0: not mapped */

static int base_of(void *context, const void *module, uint64_t *base)
{
	ck_assert_ptr_eq(module, &mapped_at);
	*base = (uint64_t)mapped_at;
	(void)context;
	return mapped_at ? 0 : -1;
}
static const struct control_bases bases = {base_of, NULL};

/* The list of a function as a program's thread walks it, in the order of the sessions. */
static void check_list(const struct shared *shared, uint32_t place, const struct control_wish *wishes, unsigned count, uint32_t gate)
{
	uint32_t number = shared->functions[place].setting;
	ck_assert_uint_eq(shared->functions[place].gate, gate);
	for (unsigned i = 0; i < count; i++) {
		ck_assert_uint_ne(number, 0);
		const struct lorg_call_setting *setting = &shared->settings[number - 1];
		ck_assert_uint_eq(setting->session, wishes[i].session);
		ck_assert_uint_eq(setting->kind, wishes[i].kind);
		ck_assert_uint_eq(setting->gate, wishes[i].gate);
		ck_assert_uint_eq(setting->program != 0, wishes[i].match != NULL);
		if (wishes[i].match) {
			const uint8_t *program = (const uint8_t *)shared + setting->program;
			ck_assert_mem_eq(program, wishes[i].match->program, sizeof(struct lorg_match_head));
		}
		number = setting->next;
	}
	ck_assert_uint_eq(number, 0);
}

START_TEST(lists_that_are_alike_are_one)
{
	struct shared *shared = malloc(sizeof *shared);
	struct live_control control;
	struct specification *match = make_specification(1, NULL);
	const struct control_wish wishes[2] = {{3, LORG_KIND_LOCAL, LORG_CALL_ENTRY, NULL, 0},
						{7, LORG_KIND_LOCAL, LORG_CALL_ENTRY, match, 0}};
	begin(shared, &control);
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		ck_assert_int_eq(control_set(&control, i, wishes, 2, 5, &bases, 1), 0);
	ck_assert_uint_eq(control_holdings(&control).settings, 2);
	ck_assert_uint_eq(control_holdings(&control).programs, 1);
	/* One of the two leaves half of them. */
	for (uint32_t i = 0; i < FUNCTIONS; i += 2)
		ck_assert_int_eq(control_set(&control, i, wishes + 1, 1, 4, &bases, 2), 0);
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		check_list(shared, i, wishes + (i % 2 == 0), i % 2 == 0 ? 1 : 2, i % 2 == 0 ? 4 : 5);
	ck_assert_uint_eq(control_holdings(&control).settings, 2);
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		ck_assert_int_eq(control_set(&control, i, NULL, 0, 0, &bases, 3), 0);
	ck_assert_uint_eq(control_holdings(&control).settings, 0);
	ck_assert_uint_eq(control_holdings(&control).programs, 0);
	check_list(shared, 1, NULL, 0, 0);
	control_end(&control);
	specification_release(match);
	ck_assert_uint_eq(specifications, 0);
	free(shared);
}
END_TEST

/* Sessions come and go for ever; what one has given back rests before it is used again. */
START_TEST(settings_and_programs_are_given_back)
{
	struct shared *shared = malloc(sizeof *shared);
	struct live_control control;
	uint64_t now = CONTROL_REST_NS;
	begin(shared, &control);
	for (uint32_t i = 0; i < 20000; i++, now += CONTROL_REST_NS / 50) {
		struct specification *match = make_specification(i % 8, NULL);
		struct control_wish wishes[3];
		for (uint32_t k = 0; k < 3; k++)
			wishes[k] = (struct control_wish){1 + (i + k) % 127, LORG_KIND_LOCAL, LORG_CALL_ENTRY | (k ? 0 : LORG_CALL_VALUES), k == 1 ? match : NULL, 0};
		const uint32_t place = i % 7;
		const struct lorg_call_setting *old = shared->functions[place].setting ? &shared->settings[shared->functions[place].setting - 1] : NULL;
		struct lorg_call_setting before = old ? *old : (struct lorg_call_setting){0};
		ck_assert_int_eq(control_set(&control, place, wishes, 3, 1, &bases, now), 0);
		check_list(shared, place, wishes, 3, 1);
		/* Whoever is in the middle of the list before finds it whole. */
		if (old)
			ck_assert_mem_eq(old, &before, sizeof before);
		specification_release(match);
		ck_assert_uint_le(control_holdings(&control).settings, 21);
	}
	for (uint32_t place = 0; place < 7; place++)
		ck_assert_int_eq(control_set(&control, place, NULL, 0, 0, &bases, now), 0);
	ck_assert_uint_eq(control_holdings(&control).settings, 0);
	control_end(&control);
	ck_assert_uint_eq(specifications, 0);
	free(shared);
}
END_TEST

START_TEST(without_room_nothing_changes)
{
	struct shared *shared = malloc(sizeof *shared);
	struct live_control control;
	const struct control_wish first = {1, LORG_KIND_LOCAL, LORG_CALL_ENTRY, NULL, 0};
	struct specification *large = make_specification(PROGRAMS, NULL);
	const struct control_wish too_large = {2, LORG_KIND_LOCAL, LORG_CALL_ENTRY, large, 0};
	begin(shared, &control);
	ck_assert_int_eq(control_set(&control, 0, &first, 1, 9, &bases, 1), 0);
	ck_assert_int_eq(control_set(&control, 0, &too_large, 1, 1, &bases, 2), -1);
	check_list(shared, 0, &first, 1, 9);
	/* All settings, each of another gate; then none is free until they have rested. */
	uint32_t used = 1;
	for (uint32_t i = 1; i < FUNCTIONS; i++) {
		struct control_wish wishes[8];
		for (uint32_t k = 0; k < 8; k++)
			wishes[k] = (struct control_wish){k + 1, LORG_KIND_LOCAL, 1000 + i * 8 + k, NULL, 0};
		int result = control_set(&control, i, wishes, 8, 1, &bases, 3);
		ck_assert_int_eq(result, used + 8 <= SETTINGS ? 0 : -1);
		used += result ? 0 : 8;
	}
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		ck_assert_int_eq(control_set(&control, i, NULL, 0, 0, &bases, 4), 0);
	ck_assert_uint_eq(control_holdings(&control).settings, 0);
	ck_assert_int_eq(control_set(&control, 0, &first, 1, 1, &bases, 4 + CONTROL_REST_NS), 0);
	check_list(shared, 0, &first, 1, 1);
	control_end(&control);
	specification_release(large);
	ck_assert_uint_eq(specifications, 0);
	free(shared);
}
END_TEST

START_TEST(callers_are_addresses_of_the_programs)
{
	struct shared *shared = malloc(sizeof *shared);
	struct live_control control;
	struct specification *match = make_specification(0, &mapped_at);
	const struct control_wish wish = {1, LORG_KIND_LOCAL, LORG_CALL_ENTRY, match, 0};
	const struct lorg_match_head *head = (const struct lorg_match_head *)(const void *)match->program;
	begin(shared, &control);
	mapped_at = 0;
	ck_assert_int_eq(control_set(&control, 0, &wish, 1, 1, &bases, 1), 0);
	const uint8_t *program = (const uint8_t *)shared + shared->settings[shared->functions[0].setting - 1].program;
	const struct lorg_match_range *range = (const struct lorg_match_range *)(const void *)(program + head->range_offset);
	ck_assert(range->first > range->last); /* nobody */
	mapped_at = 0x40000;
	control_place_callers(&control, &bases);
	ck_assert_uint_eq(range->first, 0x40010);
	ck_assert_uint_eq(range->last, 0x4001f);
	control_end(&control);
	/* Those of a lorgd before this one, whose ranges nobody knows, are at rest. */
	control.adopted_ns = 1;
	control.descriptor = memfd_create("control", MFD_CLOEXEC);
	ck_assert_int_eq(write(control.descriptor, shared, sizeof *shared), sizeof *shared);
	ck_assert_int_eq(control_begin(&control), 0);
	mapped_at = 0x50000;
	control_place_callers(&control, &bases);
	ck_assert_uint_eq(range->first, 0x40010);
	control_end(&control);
	close(control.descriptor);
	specification_release(match);
	free(shared);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {rules_follow_the_model,	 what_is_a_badarg,	     lists_that_are_alike_are_one,
				      settings_and_programs_are_given_back, without_room_nothing_changes,
				      callers_are_addresses_of_the_programs};
	return unit_suite_of("functions", tests, sizeof tests / sizeof *tests, 60);
}
