/* SPDX-License-Identifier: MIT */
/*
 * kept.h: plans that outlive their planner: of a lorgd that is started again beside programs which have their stubs.
 *
 * A plan is sealed memory by itself. What the collector knows of its module's functions beside it (index.h), and the file
 * that it was made of, stands in memory of its own: the file may be another one, or gone, by the time of the restart.
 */
#ifndef LORG_PLAN_KEPT_H
#define LORG_PLAN_KEPT_H

#include "collector/collect/memory.h"
#include "collector/plan/index.h"
#include "collector/plan/plan.h"

/* Copies the index of a plan, as planner and sessions have it, into memory of its own. 0, or -1 (errno). */
int kept_index_write(const struct plan_index *index, const struct plan_request *of, uint64_t plan_id, struct memory *memory);

/*
 * The plan of a planner that was before is this one's, under the ids that it had; later ones get others. plan: mapped, taken
 * over where this succeeds; index: what kept_index_write made, only read. Before the first plan_for. 0, or -1: they do not belong
 * together, or there is no memory. *plan_id, and what it is known by: path is index's, as long as that is mapped.
 */
int planner_adopt(struct planner *planner, struct memory *plan, const struct memory *index, struct plan_request *of, uint64_t *plan_id);

#endif
