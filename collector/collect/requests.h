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

#include "collector/plan/plan.h"

/* The planner, by its functions: what records without hooks need not have it (elfutils, Capstone). */
struct planning {
	struct planner *planner;
	enum plan_state (*plan_for)(struct planner *planner, const struct plan_request *request, struct plan_answer *answer);
	void (*tell)(struct planner *planner, const struct planner_listener *listener);
	int (*descriptor)(const struct planner *planner);
};

struct family;
struct requests;

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

#endif
