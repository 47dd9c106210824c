/* SPDX-License-Identifier: MIT */
/* report.h: a profile, with names, for people and as one JSON object. */
#ifndef LORG_FORMAT_REPORT_H
#define LORG_FORMAT_REPORT_H

#include "collector/format/names.h"
#include "collector/format/output.h"
#include "collector/read/profile.h"

/* A function by its name, summed over all programs that call it; times in ns. */
struct report_function {
	char *module, *function, *symbol; /* symbol: as in the file, NULL if the same */
	uint64_t entries, total, self;
	uint64_t words; /* that it asked the allocator for, where that was counted */
};

struct report {
	const struct trace *trace;
	const struct profile *profile;
	struct report_function *functions; /* most self time first */
	unsigned function_count;
};

/* NULL: out of memory. */
struct report *report_make(const struct trace *trace, const struct profile *profile, struct names *names);
void report_free(struct report *report);

void report_text(struct output *output, const struct report *report, struct names *names, int colour);
/* Returns 0, or -1 when out of memory. */
int report_json(struct output *output, const struct report *report, struct names *names);

#endif
