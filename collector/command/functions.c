/* SPDX-License-Identifier: MIT */
/* functions.c: lorg functions: what of a program can be traced, how, and what not, and why. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/command/calls.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/launch.h"
#include "collector/format/json.h"
#include "collector/format/output.h"
#include "collector/format/pager.h"
#include "collector/plan/analysis.h"
#include "collector/plan/build.h"
#include "collector/plan/needed.h"
#include "collector/plan/package.h"
#include "collector/plan/pattern.h"
#include "collector/plan/plan.h"
#include "collector/symbol/symbol.h"
#include "collector/value/value.h"

enum { PATTERNS_MAXIMUM = 64, PROTOTYPES_MAXIMUM = 64, ARITY_UNKNOWN = 255 };

struct options {
	int json, libraries, refused_only, summary_only, no_pager;
	const char *program;
	const char *pattern_texts[PATTERNS_MAXIMUM];
	struct pattern patterns[PATTERNS_MAXIMUM];
	unsigned pattern_count;
	const char *prototype_files[PROTOTYPES_MAXIMUM + 1];
	unsigned prototype_count;
};

enum option_key { KEY_LIBRARIES = 256, KEY_REFUSED, KEY_SUMMARY, KEY_NO_PAGER, KEY_FILE };

static const struct argp_option functions_options[] = {
	{"format", 'f', "FORMAT", 0, "text (the default) or json (one object a line)", 1},
	{"libraries", KEY_LIBRARIES, NULL, 0, "Also of the libraries that PROGRAM is linked against", 2},
	{"refused", KEY_REFUSED, NULL, 0, "Only those whose code cannot be hooked", 2},
	{"summary", KEY_SUMMARY, NULL, 0, "Only the shares", 2},
	{"prototypes", KEY_FILE, "FILE", 0, "Prototypes in C syntax, for numbers of arguments; may be repeated", 2},
	{"no-pager", KEY_NO_PAGER, NULL, 0, "Write to the terminal directly", 3},
	{0},
};

static const char functions_arguments[] = "PROGRAM|LIBRARY [PATTERN...]";
static const char functions_text[] =
	"Lists which functions of a program or library can be traced: `code`: at their own entry, every call; `slots`: calls from other "
	"modules by name; `none`: not at all, and why."
	"\vPATTERN is MODULE:FUNCTION/ARITY as lorg run --call takes it, or FUNCTION alone, of PROGRAM. A pattern that names a library of "
	"PROGRAM lists that.\n\n"
	"  lorg functions git 'cmd_*'\n"
	"  lorg functions git 'libz.so.1:_'\n"
	"  lorg functions --refused /usr/sbin/nginx\n";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'f':
		options->json = strcmp(argument, "json") == 0;
		if (options->json || strcmp(argument, "text") == 0)
			return 0;
		lorg_error(argument, "no such format", "use text or json");
		exit(EXIT_STATUS_USAGE);
	case KEY_LIBRARIES:
		options->libraries = 1;
		return 0;
	case KEY_REFUSED:
		options->refused_only = 1;
		return 0;
	case KEY_SUMMARY:
		options->summary_only = 1;
		return 0;
	case KEY_NO_PAGER:
		options->no_pager = 1;
		return 0;
	case KEY_FILE:
		if (options->prototype_count == PROTOTYPES_MAXIMUM) {
			lorg_error(argument, "too many files of prototypes", "give at most 64");
			exit(EXIT_STATUS_USAGE);
		}
		options->prototype_files[options->prototype_count++] = argument;
		return 0;
	case ARGP_KEY_ARG:
		if (!options->program) {
			options->program = argument;
			return 0;
		}
		if (options->pattern_count == PATTERNS_MAXIMUM) {
			lorg_error(argument, "too many patterns", "give at most 64");
			exit(EXIT_STATUS_USAGE);
		}
		options->pattern_texts[options->pattern_count++] = argument;
		return 0;
	case ARGP_KEY_NO_ARGS:
		lorg_error("functions", "no program given", "lorg functions PROGRAM [PATTERN]; more with lorg functions --help");
		exit(EXIT_STATUS_USAGE);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp functions_argp = {functions_options, parse_option, functions_arguments, functions_text, NULL, NULL, NULL};

/* FUNCTION alone is one of the program; a colon that stands alone means that a module is named. */
static int names_no_module(const char *text)
{
	for (const char *colon = strchr(text, ':'); colon; colon = strchr(colon + 2, ':'))
		if (colon[1] != ':')
			return 0;
	return 1;
}

static int parse_patterns(struct options *options, const char *path)
{
	const char *slash = strrchr(path, '/');
	for (unsigned i = 0; i < options->pattern_count; i++) {
		struct pattern_error error;
		const char *text = options->pattern_texts[i];
		char *whole = NULL;
		int own = names_no_module(text);
		if (own && asprintf(&whole, "%s:%s", slash ? slash + 1 : path, text) < 0)
			return -1;
		if (pattern_parse(own ? whole : text, &options->patterns[i], &error)) {
			pattern_complain("functions", own ? whole : text, &error);
			free(whole);
			return -1;
		}
		free(whole);
	}
	return 0;
}

/* ---- one module -------------------------------------------------------- */

struct listing {
	const struct options *options;
	struct output *output;
	struct json *json;
	struct prototypes *prototypes;
	unsigned modules; /* that were looked at */
	unsigned shown;	  /* functions, of all modules */
	char *without_symbols; /* path of the last that has none of its own functions; NULL: none */
};

struct counts {
	size_t all, code, slots, none, entry_only, chosen;
};

static const struct function_name *exported_name(const struct analysis *analysis, const struct function *function)
{
	for (uint32_t i = 0; i < function->name_count; i++)
		if (analysis->functions.names[function->first_name + i].dynamic)
			return &analysis->functions.names[function->first_name + i];
	return NULL;
}

enum tier { TIER_NONE, TIER_SLOTS, TIER_CODE, TIER_CHOSEN };

struct row {
	enum tier tier;
	int arity; /* -1: unknown */
	const char *why, *entry_only;
};

static const char *const tier_names[] = {"none", "slots", "code", "chosen"};

static int arity_of(const struct analysis *analysis, struct value_source *source, uint64_t bias, const struct function *function)
{
	struct value_area captures = {0}, names_area = {0};
	struct value_function values = {.arity = ARITY_UNKNOWN};
	const char *names[33];
	uint32_t count = 0;
	for (; count < function->name_count && count < 32; count++)
		names[count] = analysis->functions.names[function->first_name + count].text;
	names[count] = NULL;
	if (source)
		value_for_function(source, function->address + bias, names, &captures, &names_area, &values);
	value_area_free(&captures);
	value_area_free(&names_area);
	return values.arity == ARITY_UNKNOWN ? -1 : values.arity;
}

static void look_at(struct analysis *analysis, size_t index, struct row *row)
{
	const struct entry *entry = analysis_entry(analysis, index);
	row->why = entry->refusal ? refusal_text(entry->refusal) : NULL;
	row->entry_only = analysis_entry_only(analysis, index);
	row->tier = !entry->refusal ? TIER_CODE
		    : entry->refusal == REFUSED_CHOSEN ? TIER_CHOSEN
		    : analysis_is_exported(analysis, index) ? TIER_SLOTS
							    : TIER_NONE;
}

static void count_row(struct counts *counts, const struct row *row)
{
	if (row->tier == TIER_CHOSEN) {
		counts->chosen++;
		return;
	}
	counts->all++;
	counts->code += row->tier == TIER_CODE;
	counts->slots += row->tier == TIER_SLOTS;
	counts->none += row->tier == TIER_NONE;
	counts->entry_only += row->entry_only != NULL && row->tier != TIER_NONE;
}

static int is_wanted(const struct options *options, const struct analysis *analysis, size_t index, int arity)
{
	const struct object *object = analysis->object;
	for (unsigned i = 0; i < options->pattern_count; i++)
		if (pattern_matches_module(&options->patterns[i], object->file_name, object->soname, object->path) &&
		    pattern_names_function(&options->patterns[i], analysis, index, arity))
			return 1;
	return options->pattern_count == 0;
}

static void key_text(struct json *json, const char *key, const char *text)
{
	json_key(json, key);
	json_text(json, text);
}

static void row_json(struct listing *listing, const struct analysis *analysis, const struct function *function, const struct row *row,
		     const char *name)
{
	struct json *json = listing->json;
	const struct function_name *best = function_name(&analysis->functions, function), *exported = exported_name(analysis, function);
	json_begin(json);
	key_text(json, "module", analysis->object->module);
	key_text(json, "function", name);
	if (best && strcmp(best->text, name) != 0)
		key_text(json, "symbol", best->text);
	json_key(json, "arity");
	if (row->arity < 0)
		json_null(json);
	else
		json_number(json, (uint64_t)row->arity);
	json_key(json, "offset");
	json_number(json, function->address);
	json_key(json, "size");
	json_number(json, function->size);
	key_text(json, "tier", tier_names[row->tier]);
	json_key(json, "exported");
	json_boolean(json, exported != NULL);
	if (row->why)
		key_text(json, "why", row->why);
	if (row->entry_only)
		key_text(json, "entry_only", row->entry_only);
	if (function->name_count > 1) {
		json_key(json, "names");
		json_begin_list(json);
		for (uint32_t i = 0; i < function->name_count; i++)
			json_text(json, analysis->functions.names[function->first_name + i].text);
		json_end_list(json);
	}
	json_end(json);
	json_end_line(json);
}

static void row_text(struct listing *listing, const struct analysis *analysis, const struct row *row, const char *name)
{
	struct output *output = listing->output;
	size_t from = output->length;
	output_text(output, tier_names[row->tier]);
	output_pad(output, from, 7);
	output_text(output, analysis->object->module);
	output_byte(output, ':');
	output_safe(output, name, strlen(name), 0);
	if (row->arity >= 0)
		output_printf(output, "/%d", row->arity);
	else
		output_text(output, "/_");
	if (row->entry_only && row->tier != TIER_NONE)
		output_printf(output, "  [entries only: %s]", row->entry_only);
	if (row->why)
		output_printf(output, "  [%s%s]", row->tier == TIER_SLOTS ? "not by code: " : "", row->why);
	output_byte(output, '\n');
}

static void show_row(struct listing *listing, struct analysis *analysis, size_t index, const struct row *row)
{
	const struct options *options = listing->options;
	listing->shown++;
	if (options->summary_only || (options->refused_only && row->tier == TIER_CODE))
		return;
	char *name = analysis_display_name(analysis, index);
	if (name && listing->json)
		row_json(listing, analysis, &analysis->functions.list[index], row, name);
	else if (name)
		row_text(listing, analysis, row, name);
	free(name);
	output_may_flush(listing->output);
}

static double share(size_t part, size_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void summary_json(struct listing *listing, const struct analysis *analysis, const struct counts *counts)
{
	struct json *json = listing->json;
	json_begin(json);
	key_text(json, "summary", analysis->object->module);
	key_text(json, "path", analysis->object->path);
	const struct {
		const char *key;
		size_t value;
	} numbers[] = {{"functions", counts->all}, {"code", counts->code}, {"slots", counts->slots}, {"none", counts->none},
		       {"entry_only_functions", counts->entry_only}, {"chosen", counts->chosen}};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		json_key(json, numbers[i].key);
		json_number(json, numbers[i].value);
	}
	json_key(json, "symbols");
	json_boolean(json, analysis->functions.has_symbols);
	json_end(json);
	json_end_line(json);
}

static void summary_text(struct listing *listing, const struct analysis *analysis, const struct counts *counts)
{
	struct output *output = listing->output;
	char package[256];
	output_printf(output, "%s: %zu functions: %zu by code (%.2f %%), %zu by slots alone, %zu not at all", analysis->object->module,
		      counts->all, counts->code, share(counts->code, counts->all), counts->slots, counts->none);
	if (counts->entry_only)
		output_printf(output, "; of %zu only the entries", counts->entry_only);
	if (counts->chosen)
		output_printf(output, "; %zu names are chosen when it is loaded (IFUNC)", counts->chosen);
	output_byte(output, '\n');
	if (analysis->functions.has_symbols)
		return;
	output_printf(output, "%s: it has no symbols of its own functions: they are named by their place", analysis->object->module);
	if (package_of_debug_symbols(analysis->object->path, package, sizeof package) == 0)
		output_printf(output, "; the package %s has them", package);
	output_byte(output, '\n');
}

static void show_module(struct listing *listing, struct analysis *analysis)
{
	const struct object *object = analysis->object;
	struct counts counts = {0};
	Dwarf_Addr bias = 0;
	Dwarf *dwarf = dwfl_module_getdwarf(object->dwfl_module, &bias);
	struct value_source *source = value_source_open(listing->prototypes, dwarf, object->module);
	uint64_t dwarf_bias = dwarf ? object->bias - bias : 0;
	for (size_t i = 0; i < analysis->functions.count; i++) {
		struct row row = {.arity = arity_of(analysis, source, dwarf_bias, &analysis->functions.list[i])};
		if (!is_wanted(listing->options, analysis, i, row.arity))
			continue;
		look_at(analysis, i, &row);
		count_row(&counts, &row);
		show_row(listing, analysis, i, &row);
	}
	value_source_close(source);
	if (listing->options->pattern_count && !counts.all && !counts.chosen)
		return;
	if (listing->json)
		summary_json(listing, analysis, &counts);
	else
		summary_text(listing, analysis, &counts);
}

/* ---- all --------------------------------------------------------------- */

/* Whether a pattern may mean the module, before it is read. */
static int is_asked_for(const struct options *options, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	if (options->pattern_count == 0)
		return 1;
	for (unsigned i = 0; i < options->pattern_count; i++)
		if (pattern_matches_module(&options->patterns[i], name, NULL, path))
			return 1;
	return 0;
}

static int show_path(struct listing *listing, const char *path, int is_library)
{
	char why[OBJECT_WHY];
	char *real = realpath(path, NULL);
	int by_name = is_asked_for(listing->options, path) || (real && is_asked_for(listing->options, real));
	if (is_library && (!by_name || planner_leaves_alone(real ? real : path))) {
		free(real);
		return 0;
	}
	struct analysis *analysis = analysis_open(real ? real : path, -1, NULL, NULL, why);
	free(real);
	if (!analysis) {
		lorg_error(path, why, is_library ? NULL : "give a program or a shared library for x86-64");
		return is_library ? 0 : -1;
	}
	listing->modules++;
	if (!analysis->functions.has_symbols) {
		free(listing->without_symbols);
		listing->without_symbols = strdup(analysis->object->path);
	}
	/* A library may be called by its soname, which only the file tells. */
	if (by_name || !is_library)
		show_module(listing, analysis);
	analysis_close(analysis);
	return 0;
}

static int wants_libraries(const struct options *options, const char *path)
{
	for (unsigned i = 0; i < options->pattern_count; i++) {
		const char *slash = strrchr(path, '/');
		if (!pattern_matches_module(&options->patterns[i], slash ? slash + 1 : path, NULL, path))
			return 1;
	}
	return options->libraries;
}

static int show_all(struct listing *listing, const char *path)
{
	struct needed needed = {0};
	const struct options *options = listing->options;
	int libraries = wants_libraries(options, path);
	if (is_asked_for(options, path) && show_path(listing, path, 0))
		return -1;
	if (libraries && needed_list(path, &needed)) {
		lorg_error(path, "its libraries cannot be listed", "give a program or a shared library for x86-64");
		return -1;
	}
	for (unsigned i = 1; i < needed.count; i++)
		show_path(listing, needed.paths[i], 1);
	needed_free(&needed);
	return 0;
}

/* A path, a program as the shell finds it, or a library as the loader does. */
static char *find_file(const char *name)
{
	char path[PATH_MAX], *found;
	if (strchr(name, '/'))
		return strdup(name);
	if (program_find(name, path) == 0)
		return strdup(path);
	found = needed_find(name);
	return found ? found : access(name, R_OK) == 0 ? strdup(name) : NULL;
}

static int begin(struct listing *listing, struct pager *pager, struct output *output)
{
	char *error = NULL;
	const struct options *options = listing->options;
	listing->prototypes = prototypes_read(options->prototype_files, &error);
	if (!listing->prototypes) {
		lorg_error("--prototypes", error ? error : strerror(ENOMEM), "mend the file, or leave it out");
		free(error);
		return -1;
	}
	*pager = (struct pager){.fd = STDOUT_FILENO};
	if (!options->json && !options->no_pager)
		pager_begin(pager);
	output_begin(output, pager->fd);
	listing->output = output;
	if (options->json && !(listing->json = json_new(output))) {
		lorg_error("functions", strerror(ENOMEM), NULL);
		return -1;
	}
	return 0;
}

static int nothing_found(const struct options *options, const struct listing *listing, const char *path)
{
	char what[512], package[128], advice[PATH_MAX + 256];
	if (listing->shown || options->pattern_count == 0)
		return 0;
	snprintf(what, sizeof what, "%s", options->patterns[0].text);
	int known = listing->without_symbols && package_of_debug_symbols(listing->without_symbols, package, sizeof package) == 0;
	snprintf(advice, sizeof advice, known ? "its own functions have no names here: install %s" : "see what there is: lorg functions %s",
		 known ? package : path);
	if (listing->modules)
		lorg_error(what, "no function of that name and number of arguments", advice);
	else
		lorg_error(what, "neither the program nor a library that it is linked against is called so",
			   "name the file of the library itself: lorg functions LIBRARY");
	return 1;
}

int command_functions(int argc, char **argv)
{
	struct options options = {0};
	struct listing listing = {.options = &options};
	struct pager pager;
	struct output output;
	command_parse(&functions_argp, argc, argv, &options);
	char *path = find_file(options.program);
	if (!path) {
		lorg_error(options.program, "no such program or library", "give its path");
		return EXIT_STATUS_NOT_FOUND;
	}
	if (parse_patterns(&options, path))
		return EXIT_STATUS_USAGE;
	if (begin(&listing, &pager, &output))
		return EXIT_STATUS_FAILURE;
	int failed = show_all(&listing, path);
	json_free(listing.json);
	int error = output_end(&output);
	pager_end(&pager);
	prototypes_free(listing.prototypes);
	if (!failed && error != EPIPE)
		failed = nothing_found(&options, &listing, path);
	for (unsigned i = 0; i < options.pattern_count; i++)
		pattern_free(&options.patterns[i]);
	free(path);
	free(listing.without_symbols);
	if (error && error != EPIPE) {
		lorg_error("standard output", strerror(error), "see whether there is room");
		return EXIT_STATUS_FAILURE;
	}
	return failed ? EXIT_STATUS_FAILURE : 0;
}
