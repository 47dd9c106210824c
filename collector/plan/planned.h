/* SPDX-License-Identifier: MIT */
/* planned.h: between planner.c and kept.c. */
#ifndef LORG_PLAN_PLANNED_H
#define LORG_PLAN_PLANNED_H

#include "collector/collect/memory.h"
#include "collector/plan/plan.h"

/* A plan that is there already, with its index: both are the planner's if this returns 0. -1: no memory. */
int planned_adopt(struct planner *planner, const struct plan_request *of, const struct memory *plan, struct plan_index *index);

#endif
