/* SPDX-License-Identifier: MIT */
/*
 * request.c: asks the collector (struct lorg_request) and waits for its
 * answers: with short sleeps, bounded, and not for a collector that is gone.
 */
#include <sys/mman.h>
#include <sys/stat.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"
#include "preload/patch/patch.h"

static const long SHORTEST_SLEEP_NS = 20000, LONGEST_SLEEP_NS = 500000;
/* A recording waits for its plans; a program of a lorgd is held so long at most: what it lacks then, lorgd places from outside. */
static const uint64_t LIMIT_NS = 10000000000, LIVE_LIMIT_NS = 2000000000, LOOK_NS = 50000000;

static const char gone[] = "the collector is gone", no_more[] = "they are asked for no more",
		  late[] = "the collector did not answer in time",
		  no_room[] = "too many requests at once", unreachable[] = "the plan cannot be opened",
		  no_space[] = "there is no address space for the plan", wrong[] = "the plan does not fit the module";

static struct lorg_request *request_at(uint32_t slot)
{
	return (struct lorg_request *)arena_at(the_arena.requests_offset + (uint64_t)slot * sizeof(struct lorg_request));
}

/* A slot that is ours to fill, or UINT32_MAX. */
static uint32_t take_slot(void)
{
	for (uint32_t i = 0; i < the_arena.request_count; i++) {
		struct lorg_request *request = request_at(i);
		uint32_t expected = LORG_REQUEST_FREE;
		/* Acquire: pairs with the release of whoever had it before. */
		if (request && __atomic_load_n(&request->state, __ATOMIC_RELAXED) == LORG_REQUEST_FREE &&
		    __atomic_compare_exchange_n(&request->state, &expected, LORG_REQUEST_FILLING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return i;
	}
	return UINT32_MAX;
}

static void give_back(struct lorg_request *request)
{
	__atomic_store_n(&request->state, LORG_REQUEST_FREE, __ATOMIC_RELEASE);
}

static void post(struct lorg_request *request, enum lorg_request_kind kind, const struct patch_module *module, const char *path)
{
	request->kind = kind;
	request->image = the_program.image_index;
	request->build_id_length = module->build_id_length;
	memcpy(request->build_id, module->build_id, sizeof request->build_id);
	request->base = module->base;
	request->posted_tick = clock_now();
	request->error = 0;
	request->plan_descriptor = request->control_descriptor = -1;
	request->plan_size = request->control_size = 0;
	request->plan_id = module->plan ? module->plan->plan_id : 0;
	text_append(request->path, request->path + sizeof request->path, path);
	/* Release: the collector that sees POSTED sees the rest. */
	__atomic_store_n(&request->state, LORG_REQUEST_POSTED, __ATOMIC_RELEASE);
}

static uint64_t ticks_of(uint64_t ns)
{
	uint64_t frequency = the_arena.clock.frequency;
	return frequency ? ns / 1000 * (frequency / 1000) / 1000 : ns;
}

struct wait {
	uint64_t limit, look; /* ticks */
	long sleep_ns;
	const char *failed;
};

/* Its arenas lose and count; those of recordings block. */
static int is_of_lorgd(void)
{
	return the_arena.overflow == LORG_OVERFLOW_DISCARD;
}

static struct wait wait_begin(void)
{
	uint64_t now = clock_now();
	return (struct wait){now + ticks_of(is_of_lorgd() ? LIVE_LIMIT_NS : LIMIT_NS), now + ticks_of(LOOK_NS), SHORTEST_SLEEP_NS, 0};
}

/* 1: go on waiting; 0: failed says why not. */
static int wait_on(struct wait *wait)
{
	uint64_t now = clock_now();
	if (now >= wait->limit) {
		wait->failed = late;
		return 0;
	}
	/* Of whom nothing is asked any more, as when the keeper of a lorgd that was killed has the arena. */
	if (!__atomic_load_n(&the_arena.shared->functions_asked, __ATOMIC_RELAXED)) {
		wait->failed = no_more;
		return 0;
	}
	if (now >= wait->look) {
		wait->look = now + ticks_of(LOOK_NS);
		if (__atomic_load_n(&the_arena.shared->detached, __ATOMIC_RELAXED) || !arena_collector_lives()) {
			wait->failed = gone;
			return 0;
		}
	}
	raw_sleep_ns(wait->sleep_ns);
	if (wait->sleep_ns < LONGEST_SLEEP_NS)
		wait->sleep_ns += wait->sleep_ns / 2;
	return 1;
}

static int is_answered(const struct lorg_request *request)
{
	/* Acquire: pairs with the collector's release: the answer is there. */
	return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == LORG_REQUEST_ANSWERED;
}

/* 1: it was not answered, nor will it be: its slot is the collector's. 0: the answer has come after all. */
static int abandon(struct lorg_request *request)
{
	uint32_t posted = LORG_REQUEST_POSTED;
	/* Acquire: as is_answered. */
	return __atomic_compare_exchange_n(&request->state, &posted, LORG_REQUEST_ABANDONED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
	       posted != LORG_REQUEST_ANSWERED;
}

/* ---- mapping --------------------------------------------------------------- */

/* The file may not be as long as the request says: that is memory which a program can scribble on. */
static int file_holds(int fd, uint64_t size)
{
	struct stat status;
	return !raw_failed(raw_syscall3(SYS_fstat, fd, (long)&status, 0)) && (uint64_t)status.st_size >= size;
}

static void *map_file(int fd, uint64_t size, int protection)
{
	long at = raw_mmap(0, size, protection, MAP_SHARED, fd, 0);
	return raw_failed(at) ? 0 : (void *)at;
}

/* Maps both; NULL: done. */
static const char *map_both(struct patch_module *module, const int descriptors[2], uint64_t plan_size, uint64_t control_size)
{
	if (!file_holds(descriptors[0], plan_size) || !file_holds(descriptors[1], control_size))
		return wrong;
	struct lorg_plan *plan = map_file(descriptors[0], plan_size, PROT_READ);
	struct lorg_control *control = map_file(descriptors[1], control_size, PROT_READ | PROT_WRITE);
	const char *failed = !plan || !control ? no_space : 0;
	if (!failed && (!plan_is_right(plan, plan_size, module->end - module->base) || !control_is_right(control, control_size, plan)))
		failed = wrong;
	if (!failed && (arena_window_add(plan, plan_size) || arena_window_add(control, control_size)))
		failed = no_space;
	if (!failed) {
		module->plan = plan;
		module->control = control;
		return 0;
	}
	if (plan)
		raw_munmap(plan, plan_size);
	if (control)
		raw_munmap(control, control_size);
	return failed;
}

static const char *take_answer(struct patch_module *module, uint32_t slot, const struct lorg_request *answer)
{
	int descriptors[2];
	if (!answer->plan_size)
		return 0;
	if (answer->plan_size < sizeof(struct lorg_plan) || answer->control_size < sizeof(struct lorg_control))
		return wrong;
	if (arena_open_answer(slot, answer->plan_descriptor, answer->control_descriptor, descriptors))
		return unreachable;
	const char *failed = map_both(module, descriptors, answer->plan_size, answer->control_size);
	raw_close(descriptors[0]);
	raw_close(descriptors[1]);
	return failed;
}

/* ---- asking ---------------------------------------------------------------- */

static int all_answered(const struct patch_question *questions, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (questions[i].slot != UINT32_MAX && !is_answered(request_at(questions[i].slot)))
			return 0;
	return 1;
}

static void finish(struct patch_question *question, const char *failed)
{
	struct lorg_request *request = request_at(question->slot);
	if (!is_answered(request) && abandon(request)) {
		question->failed = failed;
		return;
	}
	struct lorg_request answer = *request;
	question->failed = take_answer(question->module, question->slot, &answer);
	give_back(request);
}

void plans_ask(struct patch_question *questions, uint32_t count, const char (*paths)[424])
{
	struct wait wait = wait_begin();
	for (uint32_t i = 0; i < count; i++) {
		questions[i].slot = take_slot();
		questions[i].failed = questions[i].slot == UINT32_MAX ? no_room : 0;
		if (questions[i].slot != UINT32_MAX)
			post(request_at(questions[i].slot), LORG_REQUEST_PLAN, questions[i].module, paths[i]);
	}
	while (!all_answered(questions, count) && wait_on(&wait))
		;
	for (uint32_t i = 0; i < count; i++)
		if (questions[i].slot != UINT32_MAX)
			finish(&questions[i], wait.failed);
}

const char *patches_ask(const struct patch_module *module)
{
	struct wait wait = wait_begin();
	uint32_t slot = take_slot();
	if (slot == UINT32_MAX)
		return no_room;
	struct lorg_request *request = request_at(slot);
	post(request, LORG_REQUEST_APPLY, module, "");
	while (!is_answered(request) && wait_on(&wait))
		;
	if (!is_answered(request) && abandon(request))
		return wait.failed;
	int error = request->error;
	give_back(request);
	return error ? "the threads could not be held" : 0;
}
