/* SPDX-License-Identifier: MIT */
/* report.c: gives the functions of a profile their names and adds up those of one name. */
#include "collector/format/report.h"

#include <stdlib.h>
#include <string.h>

static char *copy_or_null(const char *text)
{
	return text && *text ? strdup(text) : NULL;
}

static const struct place *place_of(const struct profile_function *function, struct names *names)
{
	if (function->by_address)
		return names_address(names, function->image, function->address, function->tick, 0);
	return names_function(names, function->image, function->slot, function->tick);
}

static int name_one(struct report *report, const struct profile_function *function, struct names *names)
{
	const struct place *place = place_of(function, names);
	struct report_function *named = &report->functions[report->function_count];
	named->module = strdup(place->module);
	named->function = strdup(place->function);
	named->symbol = strcmp(place->raw_name, place->function) != 0 ? copy_or_null(place->raw_name) : NULL;
	/* A function may have been counted and told of one by one. */
	uint64_t self = function->self > function->counted_time ? function->self : function->counted_time;
	named->entries = function->entries > function->counted ? function->entries : function->counted;
	named->total = trace_ticks_ns(report->trace, function->total > self ? function->total : self);
	named->self = trace_ticks_ns(report->trace, self);
	named->words = function->words;
	report->function_count++;
	return named->module && named->function;
}

static const char *symbol_of(const struct report_function *function)
{
	return function->symbol ? function->symbol : function->function;
}

static int by_name(const void *left, const void *right)
{
	const struct report_function *a = left, *b = right;
	int order = strcmp(a->module, b->module);
	return order ? order : strcmp(symbol_of(a), symbol_of(b));
}

static int by_time(const void *left, const void *right)
{
	const struct report_function *a = left, *b = right;
	if (a->self != b->self)
		return a->self > b->self ? -1 : 1;
	if (a->entries != b->entries)
		return a->entries > b->entries ? -1 : 1;
	return by_name(left, right);
}

static void function_free(struct report_function *function)
{
	free(function->module);
	free(function->function);
	free(function->symbol);
}

static void add_up(struct report *report)
{
	unsigned kept = 0;
	if (report->function_count > 1)
		qsort(report->functions, report->function_count, sizeof *report->functions, by_name);
	for (unsigned i = 0; i < report->function_count; i++) {
		struct report_function *function = &report->functions[i], *last = kept ? &report->functions[kept - 1] : NULL;
		if (last && by_name(last, function) == 0) {
			last->entries += function->entries;
			last->total += function->total;
			last->self += function->self;
			last->words += function->words;
			function_free(function);
			continue;
		}
		report->functions[kept++] = *function;
	}
	report->function_count = kept;
	if (kept > 1)
		qsort(report->functions, kept, sizeof *report->functions, by_time);
}

struct report *report_make(const struct trace *trace, const struct profile *profile, struct names *names)
{
	struct report *report = calloc(1, sizeof *report);
	if (!report)
		return NULL;
	report->trace = trace;
	report->profile = profile;
	report->functions = calloc(profile->function_count + 1, sizeof *report->functions);
	int good = report->functions != NULL;
	for (unsigned i = 0; good && i < profile->function_count; i++)
		if (profile->functions[i].entries || profile->functions[i].counted) /* a function may be known by its exits alone */
			good = name_one(report, &profile->functions[i], names);
	if (!good) {
		report_free(report);
		return NULL;
	}
	add_up(report);
	return report;
}

void report_free(struct report *report)
{
	if (!report)
		return;
	for (unsigned i = 0; report->functions && i < report->function_count; i++)
		function_free(&report->functions[i]);
	free(report->functions);
	free(report);
}
