/* SPDX-License-Identifier: MIT */
/*
 * controls.h: what stands in a control of live sessions (struct live_control
 * of requests.h): gates, settings, match programs.
 *
 * A program's threads walk the settings at any time. So nothing that they may
 * be at is ever changed: a list of settings is written whole before it is led
 * to, lists that are alike are one, and what is no longer led to is used again
 * only after CONTROL_REST_NS. The control is memory that programs can scribble
 * on: what it holds is kept here, and never read back.
 */
#ifndef LORG_SESSION_CONTROLS_H
#define LORG_SESSION_CONTROLS_H

#include <stdint.h>

#include "collector/collect/requests.h"
#include "collector/session/rules.h"

enum { CONTROL_WISHES = 256 /* settings of one function: two of each session */ };
#define CONTROL_REST_NS 2000000000ull

struct control_state;

/* What one session asks of a function. */
struct control_wish {
	uint32_t session; /* slot */
	uint32_t kind;	  /* enum lorg_call_kind */
	uint32_t gate;	  /* enum lorg_call_gate */
	const struct specification *match; /* NULL: none */
	uint32_t declared; /* as in struct lorg_call_setting */
};

/*
 * 0, or -1: no memory. What `control` holds is empty; or it is adopted, then its gates are what they were, and nothing that stands
 * in it is used again before it has rested. bases of modules: see control_bases.
 */
int control_begin(struct live_control *control);
void control_end(struct live_control *control);

/* Where modules lie in the programs that have this control. 0: it is mapped there. */
struct control_bases {
	int (*base)(void *context, const void *module, uint64_t *base);
	void *context;
};

/*
 * The function at that place gets these settings, in their order, and this gate. 0; or -1 where there is no room for them: then
 * it is as before. Settings are to be heeded from now on; whoever switches patches comes later (requests_switch).
 */
int control_set(struct live_control *control, uint32_t place, const struct control_wish *wishes, unsigned count, uint32_t gate,
		const struct control_bases *bases, uint64_t now_ns);
uint32_t control_gate(const struct live_control *control, uint32_t place);
/* Modules have come since programs were placed: their callers' addresses are written. */
void control_place_callers(struct live_control *control, const struct control_bases *bases);

/* For tests of what is given back. */
struct control_holdings {
	uint32_t settings, programs; /* in use */
};
struct control_holdings control_holdings(const struct live_control *control);

#endif
