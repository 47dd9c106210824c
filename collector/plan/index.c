/* SPDX-License-Identifier: MIT */
/* index.c: see index.h. */
#include "collector/plan/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts, each once as far as they come one after another. */
struct texts {
	char *bytes;
	size_t used, room;
	int failed;
};

static uint32_t add_text(struct texts *texts, const char *text)
{
	if (!text)
		return 0;
	size_t length = strlen(text) + 1;
	if (texts->used + length > texts->room) {
		size_t room = 2 * (texts->used + length);
		char *more = room < UINT32_MAX ? realloc(texts->bytes, room) : NULL;
		if (!more) {
			texts->failed = 1;
			return 0;
		}
		texts->bytes = more;
		texts->room = room;
	}
	memcpy(texts->bytes + texts->used, text, length);
	texts->used += length;
	return (uint32_t)(texts->used - length) + 1;
}

/* Source files and versions repeat from one name to the next. */
static uint32_t add_same_text(struct texts *texts, const char *text, uint32_t before)
{
	if (text && before && strcmp(texts->bytes + before - 1, text) == 0)
		return before;
	return add_text(texts, text);
}

static void add_names(struct plan_index *index, struct texts *texts, const struct functions *functions)
{
	const struct index_name *before = NULL;
	for (size_t i = 0; i < functions->name_count && !texts->failed; i++) {
		const struct function_name *source = &functions->names[i];
		struct index_name *name = &index->names[i];
		name->text = add_text(texts, source->text);
		name->version = add_same_text(texts, source->version, before ? before->version : 0);
		name->file = add_same_text(texts, source->file, before ? before->file : 0);
		before = name;
	}
	index->name_count = (uint32_t)functions->name_count;
}

struct plan_index *index_create(struct analysis *analysis)
{
	const struct functions *functions = &analysis->functions;
	struct plan_index *index = calloc(1, sizeof *index);
	struct texts texts = {0};
	if (!index)
		return NULL;
	index->module = strdup(analysis->object->module);
	index->file_name = strdup(analysis->object->file_name);
	index->soname = analysis->object->soname ? strdup(analysis->object->soname) : NULL;
	index->functions = calloc(functions->count + 1, sizeof *index->functions);
	index->names = calloc(functions->name_count + 1, sizeof *index->names);
	if (index->names)
		add_names(index, &texts, functions);
	index->texts = texts.bytes;
	if (!index->module || !index->file_name || !index->functions || !index->names || texts.failed) {
		index_free(index);
		return NULL;
	}
	index->count = (uint32_t)functions->count;
	for (size_t i = 0; i < functions->count; i++) {
		const struct function *function = &functions->list[i];
		index->functions[i] = (struct index_function){
			.offset = function->address,
			.size = function->size > UINT32_MAX ? UINT32_MAX : (uint32_t)function->size,
			.code = INDEX_NONE,
			.slots = INDEX_NONE,
			.first_name = function->first_name,
			.name_count = function->name_count,
			.arity = INDEX_ARITY_UNKNOWN,
		};
	}
	return index;
}

void index_free(struct plan_index *index)
{
	if (!index)
		return;
	free(index->module);
	free(index->file_name);
	free(index->soname);
	free(index->functions);
	free(index->names);
	free(index->texts);
	free(index);
}

static const char *write_place(const struct index_function *function, char place[32])
{
	snprintf(place, 32, "+0x%" PRIx64, function->offset);
	return place;
}

const char *index_function_name(const struct plan_index *index, uint32_t function, char place[32])
{
	const struct index_function *found = &index->functions[function];
	return found->name_count ? index_text(index, index->names[found->first_name].text) : write_place(found, place);
}

const char *index_function_place(const struct plan_index *index, uint32_t function, char place[32])
{
	return write_place(&index->functions[function], place);
}

int index_is_called(const struct plan_index *index, uint32_t function, const char *name)
{
	const struct index_function *found = &index->functions[function];
	char place[32];
	for (uint32_t i = 0; i < found->name_count; i++) {
		const char *text = index_text(index, index->names[found->first_name + i].text);
		size_t plain = plain_name_length(text);
		if (strcmp(text, name) == 0 || (text[plain] && strlen(name) == plain && strncmp(text, name, plain) == 0))
			return 1;
	}
	return name[0] == '+' && strcmp(write_place(found, place), name) == 0;
}

int index_matches(const struct plan_index *index, uint32_t function, const struct pattern *pattern)
{
	const struct index_function *found = &index->functions[function];
	char place[32];
	for (uint32_t i = 0; i < found->name_count; i++) {
		const struct index_name *name = &index->names[found->first_name + i];
		if (pattern_matches_name(pattern, index_text(index, name->text), index_text(index, name->version),
					 index_text(index, name->file)))
			return 1;
	}
	return !pattern->where && !found->name_count && glob_matches(pattern->function, write_place(found, place));
}
