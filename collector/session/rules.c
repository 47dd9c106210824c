/* SPDX-License-Identifier: MIT */
/* rules.c: see rules.h. */
#include "collector/session/rules.h"

#include <stddef.h>

const char *rules_check(const struct function_request *request)
{
	const uint32_t kinds = request->kinds & (RULES_TRACES | RULES_COUNTERS);
	if ((kinds & LORG_KIND_GLOBAL) && kinds != LORG_KIND_GLOBAL)
		return "the option global goes with no other";
	if (request->pattern || request->on_load)
		;
	else if (!request->module && (request->function || request->arity >= 0))
		return "a wildcard for the module goes with wildcards for function and arity: {'_','_','_'}";
	else if (!request->function && request->arity >= 0)
		return "a wildcard for the function goes with one for its arity: {M,'_','_'}";
	if (request->arity > 255 - 1)
		return "no function has so many arguments";
	if (request->how == FUNCTION_SET && request->match && !(kinds & RULES_TRACES) && kinds)
		return "a counter takes no match specification: give true, false, restart or pause, or add the option local or meta";
	return NULL;
}

static void replace(struct specification **place, struct specification *by)
{
	struct specification *before = *place;
	*place = specification_take(by);
	specification_release(before);
}

/* Returns the counters that go with what has gone. */
static uint32_t take_away(struct asked *asked, uint32_t kinds)
{
	uint32_t gone = asked->kinds & kinds;
	asked->kinds &= ~gone;
	asked->paused &= ~gone;
	if (gone & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL))
		replace(&asked->match, NULL);
	if (gone & LORG_KIND_META)
		replace(&asked->meta_match, NULL);
	return gone & RULES_COUNTERS;
}

static struct rules_effect set(struct asked *asked, uint32_t kinds, struct specification *match)
{
	struct rules_effect effect = {0};
	/* Global is through slots alone; all others are at the entry. */
	effect.ended = take_away(asked, kinds & LORG_KIND_GLOBAL ? ~(uint32_t)LORG_KIND_GLOBAL : LORG_KIND_GLOBAL);
	asked->kinds |= kinds;
	asked->paused &= ~kinds;
	if (kinds & (LORG_KIND_GLOBAL | LORG_KIND_LOCAL))
		replace(&asked->match, match);
	if (kinds & LORG_KIND_META)
		replace(&asked->meta_match, match);
	effect.zeroed = kinds & RULES_COUNTERS;
	return effect;
}

struct rules_effect rules_apply(struct asked *asked, uint32_t kinds, enum function_how how, struct specification *match)
{
	struct rules_effect effect = {0};
	kinds &= RULES_TRACES | RULES_COUNTERS;
	switch (how) {
	case FUNCTION_SET: return set(asked, kinds, match);
	case FUNCTION_CLEAR: effect.ended = take_away(asked, kinds); break;
	case FUNCTION_RESTART:
		effect.zeroed = asked->kinds & kinds & RULES_COUNTERS;
		asked->paused &= ~effect.zeroed;
		break;
	case FUNCTION_PAUSE:
		effect.stopped = asked->kinds & kinds & RULES_COUNTERS & ~asked->paused;
		asked->paused |= effect.stopped;
		break;
	}
	return effect;
}

void rules_end(struct asked *asked)
{
	take_away(asked, UINT32_MAX);
}
