/* SPDX-License-Identifier: MIT */
/*
 * schedules.c: see schedules.h.
 *
 * When a thread began to run stands in its entry, written at the return from each call that may wait. That it has run ever
 * since is believed when the kernel says so as well: it is runnable, and has not given its CPU away (voluntary context
 * switches) since it was looked at first. So what waits where no hook sees it, and a wait that a handler has interrupted,
 * is not taken for running. A thread of which no such call has been seen yet is looked at for that alone; the longer it is
 * found asleep, the more rarely.
 */
#include "collector/session/schedules.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/collect/clock.h"

enum { TOLD = 1024, BUCKETS = 1024 };
static const uint64_t LONGEST_NS = 1000000000; /* between two looks at a thread that sleeps */
static const uint64_t MS_NS = 1000000;

/* What a session was told. */
struct told {
	unsigned slot; /* 0: free */
	uint8_t image[16];
	uint64_t birth, since;
};

/* A thread, and how it was found. */
struct watch {
	struct watch *next;
	uint8_t image[16];
	uint64_t birth;
	uint64_t pass;	    /* of the last time that it was there */
	uint64_t runs_since; /* as its entry said; 0: nothing */
	uint64_t tick;	    /* of the first look at what may be a long stretch; 0: not looked at */
	uint64_t switches, cpu_ns; /* then */
	uint64_t look_ns, pause_ns; /* not before */
	int first;	    /* that look was the first that could be: it stands for the whole stretch */
};

struct schedules {
	struct told told[TOLD]; /* a ring */
	uint32_t next;
	struct watch *watches[BUCKETS];
	uint64_t passes, look_ns;
};

struct schedules *schedules_create(void)
{
	return calloc(1, sizeof(struct schedules));
}

static void free_watches(struct schedules *schedules, int all)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct watch **place = &schedules->watches[i]; *place;) {
			struct watch *watch = *place;
			if (!all && watch->pass == schedules->passes) {
				place = &watch->next;
				continue;
			}
			*place = watch->next;
			free(watch);
		}
	}
}

void schedules_free(struct schedules *schedules)
{
	if (schedules)
		free_watches(schedules, 1);
	free(schedules);
}

void schedules_forget_session(struct schedules *schedules, unsigned slot)
{
	for (unsigned i = 0; i < TOLD; i++)
		if (schedules->told[i].slot == slot)
			schedules->told[i].slot = 0;
}

int schedules_tell_once(struct schedules *schedules, unsigned slot, const uint8_t image[16], uint64_t birth, uint64_t since)
{
	for (unsigned i = 0; i < TOLD; i++) {
		const struct told *told = &schedules->told[i];
		if (told->slot == slot && told->birth == birth && told->since == since && memcmp(told->image, image, 16) == 0)
			return 0;
	}
	struct told *told = &schedules->told[schedules->next++ % TOLD];
	*told = (struct told){.slot = slot, .birth = birth, .since = since};
	memcpy(told->image, image, sizeof told->image);
	return 1;
}

/* ---- what the kernel says ---------------------------------------------------------- */

/* A file of the thread in /proc, as text. 0, or -1. */
static int read_of_thread(pid_t pid, uint32_t tid, const char *name, char *text, size_t room)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%u/%s", (int)pid, tid, name);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	ssize_t length = read(file, text, room - 1);
	close(file);
	if (length <= 0)
		return -1;
	text[length] = 0;
	return 0;
}

/* ns that it has had a CPU for; 0: not known. */
static uint64_t time_on_cpu(const struct process *process)
{
	char text[128];
	return read_of_thread(process->image->pid, process->tid, "schedstat", text, sizeof text) ? 0 : strtoull(text, NULL, 10);
}

/* 1: it is runnable, and *switches are its voluntary context switches so far; 0: it is not; -1: not known. */
static int is_running(const struct process *process, uint64_t *switches)
{
	char text[4096];
	if (read_of_thread(process->image->pid, process->tid, "status", text, sizeof text))
		return -1;
	const char *state = strstr(text, "\nState:\t"), *count = strstr(text, "\nvoluntary_ctxt_switches:\t");
	if (!state || !count)
		return -1;
	*switches = strtoull(count + strlen("\nvoluntary_ctxt_switches:\t"), NULL, 10);
	return state[strlen("\nState:\t")] == 'R';
}

/* ---- threads ------------------------------------------------------------------------ */

static struct watch *watch_of(struct schedules *schedules, const struct process *process)
{
	const uint8_t *image = process->image->id;
	struct watch **bucket = &schedules->watches[(process->birth_tick * 0x9e3779b97f4a7c15u) >> 54];
	struct watch *watch = *bucket;
	while (watch && (watch->birth != process->birth_tick || memcmp(watch->image, image, sizeof watch->image) != 0))
		watch = watch->next;
	if (!watch) {
		watch = calloc(1, sizeof *watch);
		if (!watch)
			return NULL;
		watch->birth = process->birth_tick;
		memcpy(watch->image, image, sizeof watch->image);
		watch->next = *bucket;
		*bucket = watch;
	}
	watch->pass = schedules->passes;
	return watch;
}

static uint64_t ms_between(const struct lorg_clock *clock, uint64_t begin, uint64_t end)
{
	return end > begin && clock->frequency ? (uint64_t)((unsigned __int128)(end - begin) * 1000 / clock->frequency) : 0;
}

struct looking {
	struct sessions *sessions;
	struct schedules *schedules;
	tell_schedule *tell;
	uint64_t now_ns, tick, least_ms;
};

static void tell_all(const struct looking *looking, const struct long_schedule *found)
{
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		struct session *session = &looking->sessions->slot[slot];
		if (!session->used || session->ending || !session->tracer || found->ms < session->system_limits[SESSION_LONG_SCHEDULE])
			continue;
		if (schedules_tell_once(looking->schedules, slot, found->process->image->id, found->process->birth_tick, found->since))
			looking->tell(looking->sessions, session, found);
	}
}

static void begin_look(struct watch *watch, const struct looking *looking, const struct process *process, uint64_t switches)
{
	watch->tick = looking->tick;
	watch->switches = switches;
	watch->cpu_ns = time_on_cpu(process);
}

/*
 * One that sleeps and is woken on a machine that has no CPU for it is runnable, too: it does not get anywhere. (Who is known to
 * have come back from a wait runs from then on, by the clock.)
 */
static int has_got_somewhere(const struct watch *watch, const struct long_schedule *found)
{
	enum { LEAST_SHARE = 64 };
	uint64_t cpu_ns = time_on_cpu(found->process);
	return found->since || !cpu_ns || cpu_ns - watch->cpu_ns >= found->ms * MS_NS / LEAST_SHARE;
}

static void look_more_rarely(struct watch *watch, const struct looking *looking)
{
	uint64_t least_ns = looking->least_ms * MS_NS / 2;
	watch->pause_ns = watch->pause_ns ? watch->pause_ns * 2 : least_ns;
	if (watch->pause_ns > LONGEST_NS && watch->pause_ns > least_ns)
		watch->pause_ns = LONGEST_NS > least_ns ? LONGEST_NS : least_ns;
	watch->look_ns = looking->now_ns + watch->pause_ns;
	watch->tick = 0;
}

/* since 0: no call that may wait has been seen. */
static void look_at_thread(const struct looking *looking, struct watch *watch, struct long_schedule *found)
{
	uint64_t switches;
	int running = is_running(found->process, &switches);
	if (running != 1) {
		look_more_rarely(watch, looking);
		watch->first = 0;
		return;
	}
	watch->pause_ns = 0;
	if (!watch->tick || switches != watch->switches) {
		watch->first = found->since && !watch->tick && watch->first;
		begin_look(watch, looking, found->process, switches);
		return;
	}
	/* What was before the first look counts where that was the first that could be, and for as long as is known. */
	uint64_t certain = found->since && watch->first ? found->since : watch->tick;
	found->ms = ms_between(&looking->sessions->context->clock, certain, looking->tick);
	if (found->ms < looking->least_ms || !has_got_somewhere(watch, found))
		return;
	if (!found->since)
		found->since = watch->tick;
	tell_all(looking, found);
}

static void look_at(const struct looking *looking, struct family *family, struct process *process)
{
	const struct lorg_process *entry = process_entry(family, process->index);
	if (!entry || !process->image || !process->image->pid || !process->tid || process->over ||
	    __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) != LORG_PROCESS_ALIVE)
		return;
	struct long_schedule found = {.family = family, .process = process, .in_hook = UINT32_MAX};
	/* Acquire: pairs with the release of the tick. */
	found.since = __atomic_load_n(&entry->runs_since, __ATOMIC_ACQUIRE);
	uint32_t after = __atomic_load_n(&entry->runs_after, __ATOMIC_RELAXED);
	struct watch *watch = watch_of(looking->schedules, process);
	if (!watch)
		return;
	if (found.since != watch->runs_since) { /* another stretch, or none */
		watch->runs_since = found.since;
		watch->tick = watch->look_ns = watch->pause_ns = 0;
		watch->first = found.since != 0;
	}
	if (!found.since && __atomic_load_n(&entry->waits_on.hook, __ATOMIC_RELAXED))
		return;
	if (found.since && ms_between(&looking->sessions->context->clock, found.since, looking->tick) < looking->least_ms / 2)
		return;
	found.in_hook = found.since ? after : UINT32_MAX;
	/* One that began to wait while we looked is none. */
	if (looking->now_ns < watch->look_ns || __atomic_load_n(&entry->runs_since, __ATOMIC_ACQUIRE) != found.since)
		return;
	look_at_thread(looking, watch, &found);
}

static uint64_t least_limit(const struct sessions *sessions)
{
	uint64_t least = UINT64_MAX;
	for (unsigned slot = SESSION_FIRST_SLOT; slot < SESSION_SLOTS; slot++) {
		const struct session *session = &sessions->slot[slot];
		if (session->used && !session->ending && session->system_limits[SESSION_LONG_SCHEDULE] < least)
			least = session->system_limits[SESSION_LONG_SCHEDULE];
	}
	return least;
}

static void look_at_family(const struct looking *looking, struct family *family)
{
	for (uint32_t chunk = 0; chunk < family->slab_room; chunk++) {
		struct slab *slab = family->slabs[chunk];
		for (uint32_t i = 0; slab && i < SLAB_ENTRIES; i++)
			if (slab->entry[i].used)
				look_at(looking, family, &slab->entry[i]);
	}
}

void schedules_pass(struct sessions *sessions, struct schedules *schedules, uint64_t now_ns, tell_schedule *tell)
{
	const struct family_context *context = sessions->context;
	struct looking looking = {sessions, schedules, tell, now_ns, clock_tick(&context->clock), least_limit(sessions)};
	if (looking.least_ms == UINT64_MAX) {
		if (schedules->passes)
			free_watches(schedules, 1);
		schedules->passes = 0;
		return;
	}
	/* Often enough to be in time, and no more often than that. */
	if (now_ns < schedules->look_ns)
		return;
	schedules->look_ns = now_ns + (looking.least_ms < 40 ? looking.least_ms * MS_NS / 4 : 10 * MS_NS);
	schedules->passes++;
	for (uint32_t i = 0; i < context->family_count; i++)
		look_at_family(&looking, context->families[i]);
	free_watches(schedules, 0);
}
