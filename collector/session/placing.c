/* SPDX-License-Identifier: MIT */
/*
 * placing.c: stubs into programs that run already: one thread of the program is
 * made to call liblorg.so's remote_entry(), which asks for the plans of what it
 * has mapped and places them; then all threads are held for a moment, and
 * entries and slots become as their gates say. See functions.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lorg/late.h>

#include "collector/collect/clock.h"
#include "collector/patch/patch.h"
#include "collector/remote/remote.h"
#include "collector/session/functions.h"
#include "collector/term/printer.h"

enum { AT_ONCE = 16 /* programs that are called at once */, TRIES = 200 };
static const uint64_t FIRST_STEP_NS = 2000000, LONGEST_STEP_NS = 200000000, SLOW_STEP_NS = 1000000000;
static const uint64_t STARTS_SHARE = 3; /* of a second: so long a program that starts has to ask by itself */

/* One image that has not got all that is asked for. */
struct placing {
	struct placing *next;
	uint8_t image[16];
	pid_t pid;
	uint64_t epoch; /* what it will have when this is done */
	struct remote *remote; /* NULL: no call is under way */
	struct lorg_late_words words;
	uint64_t again_ns;
	uint32_t tries;
	int given_up;
	char why[160]; /* why it was given up */
};

/* ---- what is missing ---------------------------------------------------------- */

struct missing {
	struct function_traces *functions;
	const struct image *image;
	int found;
};

static int is_asked_of(const struct module *module)
{
	return (module->askers || module->has_slots) && module->state == PLAN_READY;
}

static void look_at(void *context, const struct mapped_module *file)
{
	struct missing *missing = context;
	struct module *module = functions_module_of(missing->functions, file);
	const struct image *image = missing->image;
	if (missing->found || !module || !is_asked_of(module))
		return;
	int placed = patch_is_placed(image->pid, family_arena(image->family)->placements, module->answer.plan_id, file->base);
	module->was_placed |= placed == 1;
	missing->found = placed == 0;
}

/* 1: stubs are missing in it. 0: none are. -1: it is not to be known. */
static int is_behind(struct function_traces *functions, const struct image *image)
{
	struct missing missing = {.functions = functions, .image = image};
	if (mapped_modules(functions->files, image->pid, look_at, &missing))
		return -1;
	return missing.found;
}

/* ---- one image ------------------------------------------------------------------ */

static struct placing *placing_of(struct function_traces *functions, const struct image *image)
{
	for (struct placing *placing = functions->placing; placing; placing = placing->next)
		if (memcmp(placing->image, image->id, sizeof placing->image) == 0)
			return placing;
	return NULL;
}

static struct placing *placing_begin(struct function_traces *functions, const struct image *image)
{
	struct placing *placing = placing_of(functions, image);
	if (placing)
		return placing;
	placing = calloc(1, sizeof *placing);
	if (!placing)
		return NULL;
	memcpy(placing->image, image->id, sizeof placing->image);
	placing->pid = image->pid;
	placing->next = functions->placing;
	functions->placing = placing;
	return placing;
}

static void wait_for_next(struct placing *placing, uint64_t now_ns)
{
	uint64_t step = FIRST_STEP_NS * (1 + placing->tries / 2);
	placing->tries++;
	placing->again_ns = now_ns + (placing->tries > TRIES ? SLOW_STEP_NS : step < LONGEST_STEP_NS ? step : LONGEST_STEP_NS);
}

static void give_up(struct function_traces *functions, struct placing *placing, struct image *image, const char *why)
{
	image->functions_epoch = placing->epoch;
	snprintf(placing->why, sizeof placing->why, "%s", why);
	placing->given_up = 1;
	notes_gap(&functions->context->notes, 1, (uint32_t)image->pid, "functions of a running program are not hooked", why);
}

static void call_it(struct placing *placing, const struct image *image, uint64_t now_ns)
{
	uint64_t entry = __atomic_load_n(&family_arena(image->family)->remote_entry, __ATOMIC_ACQUIRE);
	struct remote_call call = {
		.pid = image->pid,
		.function = entry,
		.arguments = {LORG_LATE_PLACE},
		.data = &placing->words,
		.data_size = sizeof placing->words,
		.data_argument = 1,
	};
	placing->words = (struct lorg_late_words){0};
	placing->remote = entry ? remote_start(&call) : NULL; /* without entry it is just starting, and asks by itself */
	if (!placing->remote)
		wait_for_next(placing, now_ns);
}

/* All that could be placed is: its bytes follow. */
static void is_placed(struct function_traces *functions, struct placing *placing, struct image *image)
{
	struct missing missing = {.functions = functions, .image = image};
	mapped_modules(functions->files, image->pid, look_at, &missing); /* which of them were */
	image->functions_epoch = placing->epoch;
	requests_switch_image(image->family->requests, image);
}

/* Of what it has not got, some modules' plans may have been out of its reach. */
static void is_done(struct function_traces *functions, struct placing *placing, struct image *image)
{
	is_placed(functions, placing, image);
	if (placing->words.why[0])
		give_up(functions, placing, image, placing->words.why);
}

static void take_outcome(struct function_traces *functions, struct placing *placing, struct image *image, uint64_t now_ns)
{
	struct remote_call call;
	remote_end(placing->remote, &call);
	placing->remote = NULL;
	if (!image)
		return;
	if (call.outcome == REMOTE_REFUSED)
		give_up(functions, placing, image, call.why ? call.why : "it may not be traced from outside (ptrace)");
	else if (call.outcome == REMOTE_FAILED)
		give_up(functions, placing, image, "a call into it has failed");
	else if (call.outcome == REMOTE_DONE && placing->words.answer == LORG_LATE_REFUSED)
		give_up(functions, placing, image, placing->words.why[0] ? placing->words.why : "its system calls may be filtered (seccomp)");
	else if (call.outcome == REMOTE_DONE && placing->words.answer == LORG_LATE_DONE)
		is_done(functions, placing, image);
	else
		wait_for_next(placing, now_ns);
}

/* ---- all ------------------------------------------------------------------------------ */

static struct image *image_of(struct function_traces *functions, const struct placing *placing)
{
	const struct family_context *context = functions->context;
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct image *image = image_with_id(context->families[i], placing->image);
		if (image)
			return requests_may_switch(image) ? image : NULL;
	}
	return NULL;
}

static uint32_t under_way(const struct function_traces *functions)
{
	uint32_t count = 0;
	for (const struct placing *placing = functions->placing; placing; placing = placing->next)
		count += placing->remote != NULL;
	return count;
}

static void remove_placing(struct placing **link)
{
	struct placing *placing = *link;
	*link = placing->next;
	free(placing);
}

/* Calls that are over; images that are no more. */
static void take_outcomes(struct function_traces *functions, uint64_t now_ns)
{
	for (struct placing **link = &functions->placing; *link;) {
		struct placing *placing = *link;
		struct image *image = image_of(functions, placing);
		if (placing->remote && remote_over(placing->remote))
			take_outcome(functions, placing, image, now_ns);
		if (!placing->remote && (!image || (!placing->given_up && image->functions_epoch >= placing->epoch)))
			remove_placing(link);
		else
			link = &placing->next;
	}
}

/*
 * A program that has started since sessions asked for anything new finds that at its start, and asks for all of it before
 * its own code runs: it need not be stopped for that. Children of fork have what their parent had.
 */
int placing_asks_by_itself(const struct function_traces *functions, const struct image *image)
{
	const struct lorg_clock *clock = &functions->context->clock;
	const uint32_t birth = __atomic_load_n(&family_image_entry(image->family, image->index)->birth, __ATOMIC_RELAXED);
	int is_forked = birth >= LORG_BIRTH_FORK && birth <= LORG_BIRTH_THREAD;
	return !is_forked && functions->epoch == functions->epoch_seen && image->start_tick > functions->epoch_tick &&
	       clock_tick(clock) - image->start_tick < clock->frequency / STARTS_SHARE;
}

static void see_epoch(struct function_traces *functions)
{
	if (functions->epoch == functions->epoch_seen)
		return;
	functions->epoch_seen = functions->epoch;
	functions->epoch_tick = clock_tick(&functions->context->clock);
}

/* Returns 1 if it is to be looked at again. */
static int bring_up(struct function_traces *functions, struct image *image, uint64_t now_ns)
{
	struct placing *placing = placing_of(functions, image);
	if (placing && (placing->remote || now_ns < placing->again_ns))
		return 1;
	if (functions_of_another(image->family)) {
		placing = placing_begin(functions, image);
		if (placing) {
			placing->epoch = functions->epoch;
			give_up(functions, placing, image,
				"lorgd was started again since its functions were hooked: start the program again");
		}
		image->functions_epoch = functions->epoch;
		return 0;
	}
	if (requests_is_asking(image->family->requests, image))
		return 1;
	int young = !placing && placing_asks_by_itself(functions, image);
	int behind = is_behind(functions, image);
	if (behind <= 0 && !(placing && behind < 0)) {
		/* What it placed by itself may have been placed before gates were opened. */
		image->functions_epoch = functions->epoch;
		if (behind == 0)
			requests_switch_image(image->family->requests, image);
		return 0;
	}
	if (young || under_way(functions) >= AT_ONCE || !(placing = placing_begin(functions, image)))
		return 1;
	if (placing->given_up)
		placing->tries = placing->given_up = 0;
	placing->epoch = functions->epoch;
	call_it(placing, image, now_ns);
	return 1;
}

int placing_pass(struct function_traces *functions, uint64_t now_ns)
{
	const struct family_context *context = functions->context;
	int again = 0;
	see_epoch(functions);
	take_outcomes(functions, now_ns);
	for (uint32_t i = 0; i < context->family_count; i++) {
		const struct family *family = context->families[i];
		for (uint32_t k = 0; k < family->image_room; k++) {
			struct image *image = family->images[k];
			if (requests_may_switch(image) && image->functions_epoch < functions->epoch)
				again |= bring_up(functions, image, now_ns);
		}
	}
	return again;
}

void placing_free(struct function_traces *functions)
{
	struct remote_call call;
	while (functions->placing) {
		if (functions->placing->remote)
			remote_end(functions->placing->remote, &call);
		remove_placing(&functions->placing);
	}
}

void placing_refusals(struct function_traces *functions, FILE *to)
{
	for (const struct placing *placing = functions->placing; placing; placing = placing->next)
		if (placing->given_up)
			fprintf(to, ",{{'_','_','_'},\"program %d: %s\"}", (int)placing->pid, placing->why);
}
