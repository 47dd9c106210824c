/* SPDX-License-Identifier: MIT */
/* What is known of a function's values: the user's word first, then what is shipped, then DWARF. */
#include "collector/value/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/value/capture.h"
#include "collector/value/debug_info.h"
#include "collector/value/prototype.h"
#include "collector/value/shipped.h"

enum { FILE_MAXIMUM = 16 << 20 };

struct value_source {
	const struct prototypes *prototypes;
	Dwarf *dwarf;
	struct dwarf_functions *functions; /* NULL: not looked at yet, or no DWARF */
	int looked;
	char *module;
};

/* ---- prototypes -------------------------------------------------------- */

/* The whole file, to be freed; NULL: *error says why. */
static char *file_read(const char *path, size_t *length, char **error)
{
	FILE *file = fopen(path, "re");
	char *text = file ? malloc(FILE_MAXIMUM) : NULL;
	if (text)
		*length = fread(text, 1, FILE_MAXIMUM, file);
	int failed = !text || ferror(file) || *length == FILE_MAXIMUM;
	const char *why = !file || (text && ferror(file)) ? strerror(errno) : text ? "larger than 16 MiB" : "no memory";
	if (failed && asprintf(error, "%s: %s", path, why) < 0)
		*error = NULL;
	if (file)
		fclose(file);
	if (failed) {
		free(text);
		return NULL;
	}
	return text;
}

static int read_shipped(struct prototypes *prototypes, char **error)
{
	for (const struct shipped_prototypes *file = shipped_prototypes; file->file; file++)
		if (prototypes_parse(prototypes, file->file, file->text, file->length, error))
			return -1;
	return 0;
}

static int read_file(struct prototypes *prototypes, const char *path, char **error)
{
	size_t length = 0;
	char *text = file_read(path, &length, error);
	if (!text)
		return -1;
	int failed = prototypes_parse(prototypes, path, text, length, error);
	free(text);
	return failed;
}

struct prototypes *prototypes_read(const char *const *files, char **error)
{
	struct prototypes *prototypes = prototypes_new();
	*error = NULL;
	int failed = !prototypes || read_shipped(prototypes, error);
	for (size_t i = 0; !failed && files && files[i]; i++)
		failed = read_file(prototypes, files[i], error);
	if (!failed)
		return prototypes;
	if (!*error)
		*error = strdup("prototypes: no memory");
	prototypes_free(prototypes);
	return NULL;
}

/* ---- functions of a module --------------------------------------------- */

struct value_source *value_source_open(const struct prototypes *prototypes, Dwarf *dwarf, const char *module)
{
	struct value_source *source = calloc(1, sizeof *source);
	if (!source)
		return NULL;
	*source = (struct value_source){.prototypes = prototypes, .dwarf = dwarf, .module = strdup(module)};
	if (source->module)
		return source;
	free(source);
	return NULL;
}

void value_source_close(struct value_source *source)
{
	if (!source)
		return;
	dwarf_functions_close(source->functions);
	free(source->module);
	free(source);
}

/* The compiler has made this one out of a function of the source: its parameters may be others. */
static int is_clone(const char *name)
{
	static const char *const marks[] = {".isra.", ".constprop.", ".part."};
	for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
		if (strstr(name, marks[i]))
			return 1;
	return 0;
}

static const struct value_prototype *find(struct value_source *source, uint64_t offset, const char *const *names)
{
	int changed = 0;
	for (size_t i = 0; names[i]; i++) {
		const struct value_prototype *prototype =
			source->prototypes ? prototype_find(source->prototypes, source->module, names[i]) : NULL;
		if (prototype)
			return prototype;
		changed |= is_clone(names[i]);
	}
	if (!source->looked && source->dwarf) {
		source->functions = dwarf_functions_open(source->dwarf);
		source->looked = 1;
	}
	return source->functions ? dwarf_function(source->functions, offset, changed) : NULL;
}

int value_for_function(struct value_source *source, uint64_t offset, const char *const *names, struct value_area *captures,
		       struct value_area *names_area, struct value_function *function)
{
	const struct value_prototype *prototype = find(source, offset, names);
	*function = (struct value_function){.arity = 255};
	if (!prototype)
		return 0;
	value_capture_prototype(prototype, captures, names_area, function);
	return 1;
}

const char *value_argument_name(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument)
{
	const struct value_prototype *prototype = find(source, offset, names);
	return prototype && argument < prototype->parameter_count ? prototype->parameters[argument].name : NULL;
}

const struct value_type *value_argument_type(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument)
{
	const struct value_prototype *prototype = find(source, offset, names);
	return prototype && argument < prototype->parameter_count ? prototype->parameters[argument].type : NULL;
}

const struct value_type *value_pointee(struct value_source *source, const struct value_type *pointer)
{
	return source->functions ? dwarf_pointee(source->functions, pointer) : pointer->target;
}

static const struct value_member *member_named(const struct value_type *type, const char *name, size_t length)
{
	for (uint32_t i = 0; (type->kind == VALUE_STRUCT || type->kind == VALUE_UNION) && i < type->count; i++) {
		const char *own = type->members[i].name;
		if (own && strlen(own) == length && !memcmp(own, name, length))
			return &type->members[i];
	}
	return NULL;
}

int value_member(struct value_source *source, uint64_t offset, const char *const *names, unsigned argument, const char *path,
		 struct lorg_capture *member)
{
	const struct value_prototype *prototype = find(source, offset, names);
	if (!prototype || argument >= prototype->parameter_count || prototype->parameters[argument].type->kind != VALUE_POINTER)
		return -1;
	const struct value_type *type = prototype->parameters[argument].type->target;
	uint32_t start = 0;
	for (;;) {
		size_t length = strcspn(path, ".");
		const struct value_member *found = member_named(type, path, length);
		if (!found)
			return -1;
		*member = value_capture_member(found);
		member->offset += (int32_t)start;
		start += found->offset;
		type = found->type;
		if (!path[length])
			return 0;
		path += length + 1;
	}
}
