/* SPDX-License-Identifier: MIT */
/*
 * planner.c: see plan.h. One queue, one helper thread; for whole modules two,
 * of which one takes small files only, so that they do not wait for a
 * compiler. The lock protects the list, the state of what stands in it, the
 * ids, and what was told; all that a planned module holds is written by its
 * helper before its state says so, and never changed after.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collector/plan/build.h"
#include "collector/plan/index.h"
#include "collector/plan/plan.h"
#include "collector/plan/planned.h"
#include "collector/plan/rule.h"

enum { CALLERS_MAXIMUM = 256, REFUSED_NAMED = 8, HELPERS = 2, SMALL_FILE = 4 << 20 /* bytes */ };

struct planned {
	struct planned *next; /* in order of arrival */
	/* What it is known by. */
	char *path;
	pid_t pid;
	uint8_t build_id[20];
	uint32_t build_id_length;
	int is_small, is_taken; /* its file; a helper is at it */
	/* The helper's until `state` is no more PLAN_PENDING. */
	enum plan_state state;
	int has_callers; /* its ranges for --called-from were looked for */
	struct plan_caller identity;
	struct caller_range *ranges;
	uint32_t range_count;
	char *module;
	char why[OBJECT_WHY];
	int descriptor; /* -1: none */
	const struct lorg_plan *plan;
	struct built built;
	struct plan_index *index; /* of whole modules */
	/* The collector's. */
	int told;
};

/* The code of functions that match specifications compare callers with. The helper's. */
struct code_place {
	struct code_place *next;
	char *module, *function;
	struct caller_range *ranges; /* modules: of struct planned, which lives as long */
	int count;
};

struct planner {
	struct code_place *code_places;
	unsigned waited_ms; /* the helper, for modules that specifications name */
	struct planner_settings settings;
	struct rule *rules;
	uint32_t rule_count;
	pthread_mutex_t lock;
	pthread_cond_t work; /* something was queued, or it is to stop */
	struct planned *list, **end;
	struct helper {
		struct planner *planner;
		pthread_t thread;
		int is_quick; /* it takes small files only */
	} helpers[HELPERS];
	unsigned helper_count;
	int stop;
	int descriptor;		/* eventfd */
	uint64_t next_plan;
	uint32_t next_function;
};

/* ---- what stands ------------------------------------------------------- */

struct planner *planner_create(const struct planner_settings *settings)
{
	struct planner *planner = calloc(1, sizeof *planner);
	if (!planner)
		return NULL;
	planner->settings = *settings;
	planner->end = &planner->list;
	planner->next_plan = 1;
	planner->next_function = LORG_FIRST_HOOKED_FUNCTION;
	planner->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (planner->descriptor < 0) {
		free(planner);
		return NULL;
	}
	pthread_mutex_init(&planner->lock, NULL);
	pthread_cond_init(&planner->work, NULL);
	return planner;
}

static void planned_free(struct planned *planned)
{
	if (planned->plan)
		munmap((void *)(uintptr_t)planned->plan, planned->built.size);
	if (planned->descriptor >= 0)
		close(planned->descriptor);
	built_free(&planned->built);
	index_free(planned->index);
	free(planned->ranges);
	free(planned->module);
	free(planned->path);
	free(planned);
}

void planner_free(struct planner *planner)
{
	if (!planner)
		return;
	pthread_mutex_lock(&planner->lock);
	planner->stop = 1;
	pthread_cond_broadcast(&planner->work);
	pthread_mutex_unlock(&planner->lock);
	for (unsigned i = 0; i < planner->helper_count; i++)
		pthread_join(planner->helpers[i].thread, NULL);
	while (planner->list) {
		struct planned *planned = planner->list;
		planner->list = planned->next;
		planned_free(planned);
	}
	while (planner->code_places) {
		struct code_place *place = planner->code_places;
		planner->code_places = place->next;
		free(place->module);
		free(place->function);
		free(place->ranges);
		free(place);
	}
	for (uint32_t i = 0; i < planner->rule_count; i++)
		pattern_free(&planner->rules[i].pattern);
	free(planner->rules);
	close(planner->descriptor);
	pthread_cond_destroy(&planner->work);
	pthread_mutex_destroy(&planner->lock);
	free(planner);
}

int planner_add_rule(struct planner *planner, struct rule *rule)
{
	struct rule *more = realloc(planner->rules, (planner->rule_count + 1) * sizeof *more);
	if (!more)
		return -1;
	planner->rules = more;
	more[planner->rule_count++] = *rule;
	rule->pattern = (struct pattern){.arity = PATTERN_ANY_ARITY};
	return 0;
}

int planner_descriptor(const struct planner *planner)
{
	return planner->descriptor;
}

/* ---- the helper -------------------------------------------------------- */

static struct analysis *fail(struct planned *planned, const char *why)
{
	snprintf(planned->why, sizeof planned->why, "%s", why);
	return NULL;
}

/* As the program sees it, where that is another file system than ours. */
static int open_as_seen(const struct planned *planned)
{
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	char *path;
	int descriptor = -1;
	if (planned->pid && asprintf(&path, "/proc/%d/root%s", (int)planned->pid, planned->path) >= 0) {
		descriptor = open(path, FLAGS);
		free(path);
	}
	return descriptor >= 0 ? descriptor : open(planned->path, FLAGS);
}

static int is_same_file(const struct planned *planned, const struct object *object)
{
	return !planned->build_id_length || (planned->build_id_length == object->build_id_length &&
					     memcmp(planned->build_id, object->build_id, object->build_id_length) == 0);
}

static void identify(struct planned *planned, const struct object *object)
{
	planned->identity.build_id_length = object->build_id_length;
	memcpy(planned->identity.build_id, object->build_id, sizeof planned->identity.build_id);
	snprintf(planned->identity.path, sizeof planned->identity.path, "%s", planned->path);
}

static const char *alias_of(const struct planner *planner, const char *path)
{
	const struct planner_settings *settings = &planner->settings;
	return settings->program_path && strcmp(settings->program_path, path) == 0 ? settings->program_name : NULL;
}

struct wish {
	const struct planner *planner;
	const struct planned *planned;
};

/* Sets the alias on the way: patterns may name the module by it. */
static int wants_functions(void *context, struct object *object)
{
	const struct wish *wish = context;
	const struct planner *planner = wish->planner;
	object->alias = alias_of(planner, wish->planned->path);
	if (planner->settings.whole_modules)
		return 1;
	for (uint32_t i = 0; i < planner->rule_count; i++)
		if (planner->rules[i].kind != RULE_NOTRACE && pattern_names_object(&planner->rules[i].pattern, object))
			return 1;
	return 0;
}

static struct analysis *analyse(const struct planner *planner, struct planned *planned)
{
	struct wish wish = {planner, planned};
	int descriptor = open_as_seen(planned);
	if (descriptor < 0)
		return fail(planned, strerror(errno));
	struct analysis *analysis = analysis_open(planned->path, descriptor, wants_functions, &wish, planned->why);
	if (!analysis || is_same_file(planned, analysis->object))
		return analysis;
	analysis_close(analysis);
	return fail(planned, "the file is not the one that is mapped: it has changed");
}

/* ---- callers ----------------------------------------------------------- */

/* joins: nothing but padding lies between it and the range before. */
static int add_range(struct planned *planned, uint64_t low, uint64_t high, int joins)
{
	struct caller_range *last = planned->range_count ? &planned->ranges[planned->range_count - 1] : NULL;
	if (last && joins) {
		if (high > last->high)
			last->high = high;
		return 0;
	}
	struct caller_range *more = realloc(planned->ranges, (planned->range_count + 1) * sizeof *more);
	if (!more)
		return -1;
	planned->ranges = more;
	more[planned->range_count++] = (struct caller_range){low, high, NULL};
	return 0;
}

static int is_caller(const struct planner *planner, const struct analysis *analysis, size_t function)
{
	for (uint32_t i = 0; i < planner->rule_count; i++) {
		const struct rule *rule = &planner->rules[i];
		const struct object *object = analysis->object;
		if (rule->kind == RULE_CALLED_FROM &&
		    pattern_names_object(&rule->pattern, object) &&
		    pattern_names_function(&rule->pattern, analysis, function, -1))
			return 1;
	}
	return 0;
}

/* A return address lies behind the call: also behind the last byte of the function. */
static void find_callers(struct planner *planner, struct planned *planned, const struct analysis *analysis)
{
	int before = 0;
	planned->has_callers = 1;
	identify(planned, analysis->object);
	for (size_t i = 0; i < analysis->functions.count; i++) {
		const struct function *function = &analysis->functions.list[i];
		int now = is_caller(planner, analysis, i);
		if (now)
			add_range(planned, function->address + 1, function->end + 1, before);
		before = now;
	}
}

static int looks_at_callers(const struct planner *planner)
{
	for (uint32_t i = 0; i < planner->rule_count; i++)
		if (planner->rules[i].kind == RULE_CALLED_FROM)
			return 1;
	return 0;
}

/* Of all modules known so far, those that are still to be planned too. */
static struct caller_range *all_callers(struct planner *planner, const struct planned *own, uint32_t *count)
{
	struct caller_range *all = calloc(CALLERS_MAXIMUM, sizeof *all);
	*count = 0;
	pthread_mutex_lock(&planner->lock);
	struct planned *planned = planner->list;
	pthread_mutex_unlock(&planner->lock);
	while (all && planned) {
		if (!planned->has_callers) {
			struct analysis *analysis = analyse(planner, planned);
			if (analysis)
				find_callers(planner, planned, analysis);
			planned->has_callers = 1;
			analysis_close(analysis);
		}
		for (uint32_t i = 0; i < planned->range_count && *count < CALLERS_MAXIMUM; i++) {
			all[*count] = planned->ranges[i];
			all[(*count)++].module = planned == own ? NULL : &planned->identity;
		}
		pthread_mutex_lock(&planner->lock);
		planned = planned->next;
		pthread_mutex_unlock(&planner->lock);
	}
	/* None is there yet: no call comes from it. */
	if (all && *count == 0)
		all[(*count)++] = (struct caller_range){1, 1, NULL};
	return all;
}

/* ---- code of functions by name ------------------------------------------ */

static const struct planned *module_called(struct planner *planner, const char *name)
{
	const struct planned *found = NULL;
	pthread_mutex_lock(&planner->lock);
	for (const struct planned *planned = planner->list; planned && !found; planned = planned->next) {
		const char *slash = strrchr(planned->path, '/'), *alias = alias_of(planner, planned->path);
		if (strcmp(slash ? slash + 1 : planned->path, name) == 0 || (alias && strcmp(alias, name) == 0))
			found = planned;
	}
	pthread_mutex_unlock(&planner->lock);
	return found;
}

/* The modules of a program that has just begun are asked for one after another. */
static const struct planned *await_module(struct planner *planner, const char *name)
{
	enum { STEP_MS = 10, LONGEST_MS = 500 };
	const struct planned *found = module_called(planner, name);
	for (; !found && planner->waited_ms < LONGEST_MS; planner->waited_ms += STEP_MS) {
		const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
		nanosleep(&step, NULL);
		found = module_called(planner, name);
	}
	return found;
}

static int wants_all(void *context, struct object *object)
{
	(void)context;
	(void)object;
	return 1;
}

static int find_code(struct planner *planner, struct code_place *place)
{
	struct planned *planned = (struct planned *)(uintptr_t)module_called(planner, place->module);
	int descriptor = planned ? open_as_seen(planned) : -1;
	char why[OBJECT_WHY];
	if (descriptor < 0)
		return -1;
	struct analysis *analysis = analysis_open(planned->path, descriptor, wants_all, NULL, why);
	if (!analysis)
		return -1;
	identify(planned, analysis->object);
	for (size_t i = 0; i < analysis->functions.count; i++) {
		const struct function *function = &analysis->functions.list[i];
		if (!function_is_called(&analysis->functions, function, place->function))
			continue;
		struct caller_range *more = realloc(place->ranges, ((size_t)place->count + 1) * sizeof *more);
		if (!more)
			break;
		place->ranges = more;
		more[place->count++] = (struct caller_range){function->address, function->end, &planned->identity};
	}
	analysis_close(analysis);
	return 0;
}

static struct code_place *look_up_code(struct planner *planner, const char *module, const char *function)
{
	for (struct code_place *place = planner->code_places; place; place = place->next)
		if (strcmp(place->module, module) == 0 && strcmp(place->function, function) == 0)
			return place;
	struct code_place *place = calloc(1, sizeof *place);
	if (!place)
		return NULL;
	place->next = planner->code_places;
	place->module = strdup(module);
	place->function = strdup(function);
	planner->code_places = place;
	if (!place->module || !place->function || !await_module(planner, module) || find_code(planner, place))
		place->count = -1;
	return place;
}

static int code_ranges(void *owner, const char *module, const char *function, struct caller_range **ranges)
{
	const struct code_place *place = look_up_code(owner, module, function);
	*ranges = place && place->count >= 0 ? calloc((size_t)place->count + 1, sizeof **ranges) : NULL;
	if (!*ranges)
		return -1;
	if (place->count)
		memcpy(*ranges, place->ranges, (size_t)place->count * sizeof **ranges);
	return place->count;
}

/* ---- making a plan ----------------------------------------------------- */

static int write_all(int descriptor, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t written = write(descriptor, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return -1;
		bytes += written;
		size -= (size_t)written;
	}
	return 0;
}

static int publish(struct planned *planned)
{
	enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
	planned->descriptor = memfd_create("lorg-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (planned->descriptor < 0 || write_all(planned->descriptor, planned->built.bytes, planned->built.size) ||
	    fcntl(planned->descriptor, F_ADD_SEALS, SEALS))
		return -1;
	void *at = mmap(NULL, planned->built.size, PROT_READ, MAP_PRIVATE, planned->descriptor, 0);
	if (at == MAP_FAILED)
		return -1;
	planned->plan = at;
	free(planned->built.bytes);
	planned->built.bytes = NULL;
	return 0;
}

/* Ids of a plan and of as many functions as it can have. */
static void take_ids(struct planner *planner, const struct analysis *analysis, struct build_request *request)
{
	const uint32_t places = planner->settings.whole_modules ? 2 : 1; /* of one function */
	pthread_mutex_lock(&planner->lock);
	request->plan_id = planner->next_plan++;
	request->first_function = planner->next_function;
	planner->next_function += places * (uint32_t)analysis->functions.count;
	pthread_mutex_unlock(&planner->lock);
}

static enum plan_state make(struct planner *planner, struct planned *planned)
{
	uint32_t caller_count = 0;
	struct analysis *analysis = analyse(planner, planned);
	if (!analysis)
		return PLAN_NONE;
	planned->module = strdup(analysis->object->module);
	if (planner->settings.whole_modules && !(planned->index = index_create(analysis))) {
		analysis_close(analysis);
		fail(planned, strerror(ENOMEM));
		return PLAN_NONE;
	}
	struct caller_range *callers = NULL;
	if (looks_at_callers(planner)) {
		if (!planned->has_callers)
			find_callers(planner, planned, analysis);
		callers = all_callers(planner, planned, &caller_count);
	}
	struct build_request request = {
		.analysis = analysis,
		.rules = planner->rules,
		.rule_count = planner->rule_count,
		.prototypes = planner->settings.prototypes,
		.tick_frequency = planner->settings.tick_frequency,
		.callers = callers,
		.caller_count = caller_count,
		.flags_matter = planner->settings.flags_matter,
		.code_owner = planner,
		.code_ranges = code_ranges,
		.index = planned->index,
	};
	take_ids(planner, analysis, &request);
	int failed = build_plan(&request, &planned->built);
	free(callers);
	analysis_close(analysis);
	if (failed) {
		fail(planned, strerror(ENOMEM));
		return PLAN_NONE;
	}
	if (!planned->built.bytes)
		return PLAN_NONE;
	if (publish(planned)) {
		fail(planned, strerror(errno));
		return PLAN_NONE;
	}
	return PLAN_READY;
}

static struct planned *next_pending(const struct helper *helper)
{
	for (struct planned *planned = helper->planner->list; planned; planned = planned->next)
		if (planned->state == PLAN_PENDING && !planned->is_taken && (planned->is_small || !helper->is_quick))
			return planned;
	return NULL;
}

static void *help(void *argument)
{
	const struct helper *helper = argument;
	struct planner *planner = helper->planner;
	const uint64_t one = 1;
	pthread_mutex_lock(&planner->lock);
	while (!planner->stop) {
		struct planned *planned = next_pending(helper);
		if (!planned) {
			pthread_cond_wait(&planner->work, &planner->lock);
			continue;
		}
		planned->is_taken = 1;
		pthread_mutex_unlock(&planner->lock);
		enum plan_state state = make(planner, planned);
		pthread_mutex_lock(&planner->lock);
		planned->state = state;
		if (write(planner->descriptor, &one, sizeof one) < 0)
			continue; /* it is readable already */
	}
	pthread_mutex_unlock(&planner->lock);
	return NULL;
}

static int start_helper(struct planner *planner)
{
	struct helper *helper = &planner->helpers[planner->helper_count];
	*helper = (struct helper){.planner = planner, .is_quick = planner->helper_count > 0};
	int error = pthread_create(&helper->thread, NULL, help, helper);
	planner->helper_count += !error;
	return error;
}

/* One at least. Signals are the collector's. */
static int start_helpers(struct planner *planner)
{
	sigset_t all, before;
	int error = 0;
	if (planner->helper_count)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = start_helper(planner);
	if (!error && planner->settings.whole_modules)
		start_helper(planner);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* ---- asking ------------------------------------------------------------ */

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

int planner_leaves_alone(const char *path)
{
	static const char *const names[] = {"ld-linux", "ld-2.", "liblorg.so", "linux-vdso", "linux-gate", "[vdso]"};
	const char *base = base_of(path);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strncmp(base, names[i], strlen(names[i])) == 0)
			return 1;
	return 0;
}

/* The same code under the same name, wherever it lies; without a build-id, the same path of the same program. */
static int is_that(const struct planned *planned, const struct plan_request *request)
{
	if (planned->build_id_length != request->build_id_length ||
	    (request->build_id_length && memcmp(planned->build_id, request->build_id, request->build_id_length) != 0))
		return 0;
	return request->build_id_length ? strcmp(base_of(planned->path), base_of(request->path)) == 0
					: strcmp(planned->path, request->path) == 0;
}

static int is_small_file(const struct planned *planned)
{
	char *path;
	struct stat status;
	int found = 0;
	if (planned->pid && asprintf(&path, "/proc/%d/root%s", (int)planned->pid, planned->path) >= 0) {
		found = stat(path, &status) == 0;
		free(path);
	}
	return (found || stat(planned->path, &status) == 0) && status.st_size < SMALL_FILE;
}

static struct planned *add(struct planner *planner, const struct plan_request *request)
{
	struct planned *planned = calloc(1, sizeof *planned);
	if (!planned || !(planned->path = strdup(request->path))) {
		free(planned);
		return NULL;
	}
	planned->pid = request->pid;
	planned->descriptor = -1;
	planned->state = planner_leaves_alone(request->path) ? PLAN_NONE : PLAN_PENDING;
	planned->has_callers = planned->state == PLAN_NONE;
	planned->build_id_length = request->build_id_length < sizeof planned->build_id ? request->build_id_length : sizeof planned->build_id;
	memcpy(planned->build_id, request->build_id, planned->build_id_length);
	planned->is_small = is_small_file(planned);
	if (planned->state == PLAN_PENDING && start_helpers(planner)) {
		planned->state = PLAN_NONE;
		fail(planned, "no thread could be made to plan it");
	}
	*planner->end = planned;
	planner->end = &planned->next;
	pthread_cond_broadcast(&planner->work);
	return planned;
}

int planned_adopt(struct planner *planner, const struct plan_request *of, const struct memory *plan, struct plan_index *index)
{
	const struct lorg_plan *made = (const struct lorg_plan *)plan->at;
	struct planned *planned = calloc(1, sizeof *planned);
	struct lorg_function_control *shut = calloc(made->function_count + 1ul, sizeof *shut);
	if (planned)
		*planned = (struct planned){.path = strdup(of->path), .module = strdup(index->module), .descriptor = -1};
	if (!planned || !shut || !planned->path || !planned->module) {
		free(shut);
		if (planned)
			planned_free(planned);
		return -1;
	}
	planned->build_id_length = of->build_id_length < sizeof planned->build_id ? of->build_id_length : sizeof planned->build_id;
	memcpy(planned->build_id, of->build_id, planned->build_id_length);
	planned->state = PLAN_READY;
	planned->has_callers = planned->told = 1;
	planned->descriptor = plan->descriptor;
	planned->plan = made;
	planned->index = index;
	planned->built.size = plan->size;
	planned->built.functions = shut;
	planned->built.function_count = made->function_count;
	/* Ids are never used twice. The helper, whose these are, has not begun. */
	if (made->plan_id >= planner->next_plan)
		planner->next_plan = made->plan_id + 1;
	if (made->first_function + made->function_count > planner->next_function)
		planner->next_function = made->first_function + made->function_count;
	*planner->end = planned;
	planner->end = &planned->next;
	return 0;
}

static void fill_answer(const struct planned *planned, struct plan_answer *answer)
{
	*answer = (struct plan_answer){.descriptor = -1,
				       .callers = planned->ranges,
				       .caller_count = planned->range_count,
				       .index = planned->index,
				       .why = planned->why[0] ? planned->why : NULL};
	if (planned->state != PLAN_READY)
		return;
	answer->descriptor = planned->descriptor;
	answer->size = planned->built.size;
	answer->plan_id = planned->plan->plan_id;
	answer->plan = planned->plan;
	answer->initial = (struct plan_initial){
		.functions = planned->built.functions,
		.function_count = planned->built.function_count,
		.settings = planned->built.settings,
		.setting_count = planned->built.setting_count,
		.callers = planned->built.callers,
		.programs = planned->built.programs,
		.programs_size = planned->built.programs_size,
		.program_ranges = planned->built.program_ranges,
		.program_range_count = planned->built.program_range_count,
	};
}

enum plan_state plan_for(struct planner *planner, const struct plan_request *request, struct plan_answer *answer)
{
	uint64_t count;
	enum plan_state state = PLAN_NONE;
	*answer = (struct plan_answer){.descriptor = -1};
	if (read(planner->descriptor, &count, sizeof count) < 0)
		count = 0; /* nothing new */
	pthread_mutex_lock(&planner->lock);
	struct planned *planned = planner->list;
	while (planned && !is_that(planned, request))
		planned = planned->next;
	if (!planned)
		planned = add(planner, request);
	if (planned) {
		state = planned->state;
		if (state != PLAN_PENDING)
			fill_answer(planned, answer);
	} else {
		answer->why = "out of memory";
	}
	pthread_mutex_unlock(&planner->lock);
	return state;
}

/* ---- telling ----------------------------------------------------------- */

static void tell_functions(const struct planned *planned, const struct planner_listener *listener)
{
	for (uint32_t i = 0; planned->plan && i < planned->built.told_count; i++) {
		const struct told_function *told = &planned->built.told[i];
		const struct plan_function_news news = {
			.function = planned->plan->first_function + i,
			.arity = told->arity,
			.tier = told->tier,
			.flags = told->flags,
			.offset = told->offset,
			.size = told->size,
			.module = planned->module ? planned->module : "",
			.name = told->name ? told->name : "",
			.file = told->file ? told->file : "",
			.build_id = planned->plan->build_id,
			.build_id_length = planned->plan->build_id_length,
		};
		listener->function(listener->context, &news);
	}
}

static void refused_name(const struct planned *planned, const struct told_function *told, char *name, size_t size)
{
	if (told->name)
		snprintf(name, size, "%s:%s", planned->module, told->name);
	else
		snprintf(name, size, "%s:+0x%" PRIx64, planned->module, told->offset);
}

/* A few by name; many of one reason by their number. */
static void tell_refused(const struct planned *planned, const struct planner_listener *listener)
{
	char what[512];
	const struct told_function *refused = planned->built.refused;
	uint32_t count = planned->built.refused_count;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t same = 0, first = i;
		for (uint32_t j = 0; j < count; j++) {
			if (refused[j].why != refused[i].why)
				continue;
			first = same++ ? first : j;
		}
		if (same <= REFUSED_NAMED) {
			refused_name(planned, &refused[i], what, sizeof what);
			listener->gap(listener->context, 1, what, refused[i].why);
		} else if (first == i) {
			snprintf(what, sizeof what, "%u functions of %s", same, planned->module);
			listener->gap(listener->context, same, what, refused[i].why);
		}
	}
}

void planner_tell(struct planner *planner, const struct planner_listener *listener)
{
	pthread_mutex_lock(&planner->lock);
	struct planned *planned = planner->list;
	pthread_mutex_unlock(&planner->lock);
	while (planned) {
		pthread_mutex_lock(&planner->lock);
		int is_new = planned->state != PLAN_PENDING && !planned->told;
		pthread_mutex_unlock(&planner->lock);
		if (is_new) {
			planned->told = 1;
			tell_functions(planned, listener);
			tell_refused(planned, listener);
			if (planned->why[0])
				listener->gap(listener->context, 1, base_of(planned->path), planned->why);
		}
		pthread_mutex_lock(&planner->lock);
		planned = planned->next;
		pthread_mutex_unlock(&planner->lock);
	}
}

int planner_module_at(struct planner *planner, uint32_t index, struct planner_module *module)
{
	int found = 0;
	pthread_mutex_lock(&planner->lock);
	for (struct planned *planned = planner->list; planned && !found; planned = planned->next) {
		if (planned->state == PLAN_PENDING || index-- != 0)
			continue;
		*module = (struct planner_module){
			.module = planned->module ? planned->module : base_of(planned->path),
			.path = planned->path,
			.by_code = planned->built.by_code,
			.by_slots = planned->built.by_slots,
			.entry_only = planned->built.entry_only,
			.refused = planned->built.refused_count,
			.why = planned->why[0] ? planned->why : NULL,
		};
		found = 1;
	}
	pthread_mutex_unlock(&planner->lock);
	return found;
}

/* A module that was planned holds how many of its functions each rule named. */
int planner_rule_at(struct planner *planner, uint32_t index, struct planner_rule *result)
{
	if (index >= planner->rule_count)
		return 0;
	const struct rule *rule = &planner->rules[index];
	*result = (struct planner_rule){
		.option = rule->option,
		.text = rule->pattern.text,
		.literal_module = glob_is_literal(rule->pattern.module),
	};
	pthread_mutex_lock(&planner->lock);
	for (const struct planned *planned = planner->list; planned; planned = planned->next) {
		const char *name = base_of(planned->path), *alias = alias_of(planner, planned->path);
		if (planned->state == PLAN_PENDING || (!pattern_matches_module(&rule->pattern, name, planned->module, planned->path) &&
						       !(alias && pattern_matches_module(&rule->pattern, alias, NULL, NULL))))
			continue;
		result->modules++;
		result->first_module = result->first_module ? result->first_module : planned->path;
		result->functions += planned->built.named ? planned->built.named[index] : 0;
		result->functions += rule->kind == RULE_CALLED_FROM ? planned->range_count : 0;
		result->refused += planned->built.refused_of ? planned->built.refused_of[index] : 0;
	}
	pthread_mutex_unlock(&planner->lock);
	return 1;
}
