/* SPDX-License-Identifier: MIT */
/* kept.c: see kept.h. */
#include "collector/plan/kept.h"

#include <stdlib.h>
#include <string.h>

#include "collector/plan/planned.h"

enum { INDEX_MAGIC = 0x6967726c /* "lrgi" */, INDEX_VERSION = 1 };

/* Behind it: functions, names, texts; then the file's and the module's names, zero-terminated, an empty soname being none. */
struct kept_index {
	uint32_t magic, version;
	uint64_t plan_id, size;
	uint32_t function_count, name_count;
	uint64_t texts_size, strings_size;
	uint32_t build_id_length;
	uint8_t build_id[20];
};

/* ---- writing ----------------------------------------------------------------- */

/* Texts lie one behind another: the last one ends them. */
static uint64_t texts_size(const struct plan_index *index)
{
	uint64_t size = 0;
	for (uint32_t i = 0; i < index->name_count; i++) {
		const uint32_t texts[] = {index->names[i].text, index->names[i].version, index->names[i].file};
		for (int k = 0; k < 3; k++) {
			const char *text = index_text(index, texts[k]);
			uint64_t end = text ? texts[k] + strlen(text) : 0;
			size = end > size ? end : size;
		}
	}
	return size;
}

static uint8_t *put(uint8_t *at, const void *bytes, uint64_t size)
{
	if (size)
		memcpy(at, bytes, size);
	return at + size;
}

int kept_index_write(const struct plan_index *index, const struct plan_request *of, uint64_t plan_id, struct memory *memory)
{
	const char *soname = index->soname ? index->soname : "";
	struct kept_index head = {
		.magic = INDEX_MAGIC,
		.version = INDEX_VERSION,
		.plan_id = plan_id,
		.function_count = index->count,
		.name_count = index->name_count,
		.texts_size = texts_size(index),
		.strings_size = strlen(of->path) + strlen(index->module) + strlen(index->file_name) + strlen(soname) + 4,
		.build_id_length = of->build_id_length < sizeof head.build_id ? of->build_id_length : sizeof head.build_id,
	};
	if (head.build_id_length)
		memcpy(head.build_id, of->build_id, head.build_id_length);
	head.size = sizeof head + (uint64_t)head.function_count * sizeof *index->functions + (uint64_t)head.name_count * sizeof *index->names +
		    head.texts_size + head.strings_size;
	if (memory_create(memory, "lorg-index", head.size))
		return -1;
	uint8_t *at = put(memory->at, &head, sizeof head);
	at = put(at, index->functions, (uint64_t)head.function_count * sizeof *index->functions);
	at = put(at, index->names, (uint64_t)head.name_count * sizeof *index->names);
	at = put(at, index->texts, head.texts_size);
	at = put(at, of->path, strlen(of->path) + 1);
	at = put(at, index->module, strlen(index->module) + 1);
	at = put(at, index->file_name, strlen(index->file_name) + 1);
	put(at, soname, strlen(soname) + 1);
	return 0;
}

/* ---- reading ------------------------------------------------------------------ */

static const struct kept_index *checked_head(const struct memory *memory)
{
	const struct kept_index *head = (const struct kept_index *)memory->at;
	if (memory->size < sizeof *head || head->magic != INDEX_MAGIC || head->version != INDEX_VERSION || head->size != memory->size ||
	    head->build_id_length > sizeof head->build_id || head->texts_size > head->size || head->strings_size > head->size ||
	    head->size != sizeof *head + (uint64_t)head->function_count * sizeof(struct index_function) +
				  (uint64_t)head->name_count * sizeof(struct index_name) + head->texts_size + head->strings_size)
		return NULL;
	return head;
}

static void *copy_of(const void *bytes, uint64_t size)
{
	void *copy = malloc(size + 1);
	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

/* Four strings in a row; 0: they are there. */
static int find_strings(const char *at, uint64_t size, const char *strings[4])
{
	for (int i = 0; i < 4; i++) {
		const char *end = size ? memchr(at, 0, size) : NULL;
		if (!end)
			return -1;
		strings[i] = at;
		size -= (uint64_t)(end + 1 - at);
		at = end + 1;
	}
	return 0;
}

static struct plan_index *read_index(const struct kept_index *head, const char **path)
{
	const uint8_t *functions = (const uint8_t *)(head + 1);
	const uint8_t *names = functions + (uint64_t)head->function_count * sizeof(struct index_function);
	const uint8_t *texts = names + (uint64_t)head->name_count * sizeof(struct index_name);
	const char *strings[4];
	struct plan_index *index = calloc(1, sizeof *index);
	if (!index || find_strings((const char *)texts + head->texts_size, head->strings_size, strings)) {
		free(index);
		return NULL;
	}
	*path = strings[0];
	*index = (struct plan_index){
		.module = strdup(strings[1]),
		.file_name = strdup(strings[2]),
		.soname = strings[3][0] ? strdup(strings[3]) : NULL,
		.functions = copy_of(functions, (uint64_t)head->function_count * sizeof *index->functions),
		.count = head->function_count,
		.names = copy_of(names, (uint64_t)head->name_count * sizeof *index->names),
		.name_count = head->name_count,
		.texts = copy_of(texts, head->texts_size),
	};
	if (index->module && index->file_name && index->functions && index->names && index->texts)
		return index;
	index_free(index);
	return NULL;
}

int planner_adopt(struct planner *planner, struct memory *plan, const struct memory *index, struct plan_request *of, uint64_t *plan_id)
{
	const struct kept_index *head = checked_head(index);
	const struct lorg_plan *made = (const struct lorg_plan *)plan->at;
	const char *path;
	if (!head || plan->size < sizeof *made || made->magic != LORG_PLAN_MAGIC || made->size != sizeof *made ||
	    made->plan_size != plan->size || made->plan_id != head->plan_id)
		return -1;
	struct plan_index *known = read_index(head, &path);
	if (!known)
		return -1;
	*of = (struct plan_request){.path = path, .build_id = head->build_id, .build_id_length = head->build_id_length};
	*plan_id = head->plan_id;
	if (planned_adopt(planner, of, plan, known)) {
		index_free(known);
		return -1;
	}
	*plan = (struct memory){.descriptor = -1};
	return 0;
}
