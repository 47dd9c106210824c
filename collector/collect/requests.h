/* SPDX-License-Identifier: MIT */
/*
 * requests.h: what the images of one arena ask about hooked functions
 * (lorg/plan.h), and the controls that they are switched by.
 *
 * Nothing that stands in a request is believed: it is copied, then checked.
 * Plans are the planner's, controls this family's: one for each plan, shared
 * by all its images.
 */
#ifndef LORG_COLLECT_REQUESTS_H
#define LORG_COLLECT_REQUESTS_H

#include <stdint.h>

#include "collector/collect/keeping.h"
#include "collector/plan/plan.h"

/* The planner, by its functions: what records without hooks need not have it (elfutils, Capstone). */
struct planning {
	struct planner *planner;
	enum plan_state (*plan_for)(struct planner *planner, const struct plan_request *request, struct plan_answer *answer);
	void (*tell)(struct planner *planner, const struct planner_listener *listener);
	int (*descriptor)(const struct planner *planner);
	const struct live_planning *live; /* NULL: what is asked stands from the start */
};

struct family;
struct family_context;
struct image;
struct process;
struct lorg_process;
struct requests;

/* A control whose gates and settings change all the time, by sessions. The requests', but for `state`. */
struct live_control {
	const struct lorg_plan *plan;
	struct lorg_control *control; /* mapped */
	uint64_t base;	/* of the module, in this family's programs */
	uint8_t *programs; /* room for match programs: from an offset in the control on, in bytes */
	uint32_t programs_at, programs_size, setting_count;
	uint32_t crowded; /* not 0: it has no room for all that is asked, which has been told */
	int descriptor; /* of the control's memory */
	uint64_t adopted_ns; /* what stands in it was written by a lorgd before this one, which it was taken over from then; 0: it was not */
	void *state; /* whoever fills it */
};

/* What a thread that is over has counted of one function. */
struct ended_counter {
	uint32_t function, chunk, place;
	uint64_t count, ticks, words;
};

/* Who says what is asked of functions, in a lorgd: sessions. */
struct live_planning {
	void *owner;
	/* As plan_for; NONE where nothing is asked of the module just now. base: where it lies in the image. */
	enum plan_state (*plan_for)(void *owner, struct family *family, struct image *image, const struct plan_request *request,
				    uint64_t base, struct plan_answer *answer);
	/* A control was made: all gates are 0, there are no settings; or it was adopted, and they are what they were. */
	void (*made)(void *owner, struct family *family, struct live_control *control);
	void (*gone)(void *owner, struct live_control *control);
	/* It is known where one more module lies in the family's programs. */
	void (*known)(void *owner, struct family *family, struct live_control *control);
	/*
	 * What a process that is over has counted of a function; it may be told in several pieces. Each is taken out of the program's
	 * memory behind that (chunk, place: where it stands; place 0: in the entry), and then `taken` is called.
	 */
	void (*counted)(void *owner, struct family *family, struct process *process, const struct lorg_process *entry,
			const struct ended_counter *counter);
	void (*taken)(void *owner);
};

/* NULL where nothing is asked of functions in this recording, or there is no memory. */
struct requests *requests_create(struct family *family);
void requests_free(struct requests *requests);

/*
 * Answers what can be answered, and puts into the programs what has changed in the controls. Returns 1 while somebody
 * waits for an answer, or is about to ask: then it wants to be called every millisecond.
 */
int requests_pass(struct requests *requests, uint64_t now_ns);

/* enum lorg_call_gate bits that were asked of a hooked function, by its id; 0: none is known. */
uint32_t requests_gate(const struct requests *requests, uint32_t function);

/* The recording ends: all gates are closed, and the programs' bytes are put back as far as can be. */
void requests_detach(struct requests *requests);

/* Descriptors of request `index` that has been answered, for who cannot open them: plan, control. 0, or -1: it has none. */
int requests_descriptors(const struct requests *requests, uint32_t index, int descriptors[2]);

/* ---- after a restart ------------------------------------------------------------ */

/*
 * The control that images of an adopted family have for that plan already, taken over where this succeeds: its gates and settings
 * are what they were, and `made` is called to make them what they should be. 0, or -1: it is none for that plan.
 */
int requests_adopt(struct requests *requests, const struct plan_answer *answer, const struct kept_name *name, struct memory *control);
/* An image of an adopted family has that module at `base`: it asked about it before. */
void requests_learn_module(struct requests *requests, const struct plan_caller *module, uint64_t base);

/* ---- live sessions -------------------------------------------------------------- */

/* NULL: no image of the family has asked for that plan yet. */
struct live_control *requests_live_control(struct requests *requests, uint64_t plan_id);
/*
 * The gates or settings of a control have changed: adds to its generation, and switches all images now. Returns how many
 * places could not be switched yet; those are tried again in later passes.
 */
uint32_t requests_switch(struct requests *requests, struct live_control *control);
/* Tries at once what could not be switched. Returns what is left. */
uint32_t requests_switch_again(struct requests *requests, struct live_control *control);
/* Those that could not be held in time, and rest, are tried again by the next switch: the last one that there is. */
void requests_hold_at_once(struct family_context *context);
/* Stubs have been placed in this image while it ran: what is asked for of its functions is switched on. Returns as above. */
uint32_t requests_switch_image(struct requests *requests, struct image *image);
/* True while bytes are to be switched that could not be just now: threads that could not be held, or stood in them. */
int requests_are_switching(const struct requests *requests);
/* True while the image is in the middle of asking, or of placing what it has asked for. */
int requests_is_asking(const struct requests *requests, const struct image *image);
/* True where an image's code may be changed by us. */
int requests_may_switch(const struct image *image);
/* The load bias of a module that an image of the family has asked about; 0: none is known. */
int requests_module_base(const struct requests *requests, const struct plan_caller *module, uint64_t *base);

#endif
