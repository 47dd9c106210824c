/* SPDX-License-Identifier: MIT */
/*
 * fuzz_match_compile.c: the compiler of match specifications, on any text. The first byte chooses dialect, place and form.
 *
 * Either there is a program, which the verifier takes, or at least one error with its reason, and none is left half done.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collector/match/compile.h"
#include "preload/match/evaluate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
	if (!holds)
		abort();
}

static bool parameter(void *owner, const char *name, uint32_t *index)
{
	(void)owner;
	*index = 0;
	return name[0] == 'p';
}

static bool parameter_type(void *owner, uint32_t index, struct match_type *type)
{
	(void)owner;
	*type = (struct match_type){.kind = MATCH_TYPE_POINTER, .size = 8, .is_text = index == 2};
	return index < 3;
}

/* A type for every letter a member's name may begin with. */
static bool member(void *owner, const struct match_type *of, const char *name, struct match_type *type, uint64_t *offset)
{
	(void)owner;
	(void)of;
	*type = (struct match_type){
		.kind = (enum match_type_kind)((unsigned char)name[0] % 7),
		.size = (unsigned char)name[0] % 9,
		.is_signed = name[0] & 1,
		.bits = name[0] == 'b' ? (unsigned char)name[1] % 64 + 1 : 0,
	};
	*offset = (unsigned char)name[0] * UINT64_C(0x1000001);
	return true;
}

static bool element(void *owner, const struct match_type *of, struct match_type *type)
{
	(void)owner;
	*type = (struct match_type){.kind = of->is_text ? MATCH_TYPE_INTEGER : MATCH_TYPE_STRUCT, .size = 8};
	return true;
}

static int ranges(void *owner, const char *module, const char *function, int64_t arity, struct lorg_match_range **found)
{
	(void)owner;
	(void)module;
	(void)arity;
	*found = calloc(2, sizeof **found);
	return *found ? (int)(strlen(function) % 3) : -1;
}

static const struct match_names names = {
	.parameter = parameter,
	.parameter_type = parameter_type,
	.member = member,
	.element = element,
	.ranges = ranges,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	const struct match_options options = {
		.dialect = (enum lorg_match_dialect)(LORG_DIALECT_TABLE + (data[0] & 3)),
		.inside = data[0] & 4,
		.names = data[0] & 8 ? &names : NULL,
	};
	struct match_errors errors = {0};
	struct match_code code;
	struct lorg_match_program program;
	char *text = malloc(size); /* not terminated: its end is watched */
	require(text != NULL);
	memcpy(text, data + 1, size - 1);
	bool good = data[0] & 16 ? match_compile_condition(text, size - 1, &options, &code, &errors)
				 : match_compile(text, size - 1, &options, &code, &errors);
	require(good == (code.memory != NULL) && good == (errors.count == 0));
	for (uint32_t i = 0; i < errors.count; i++)
		require(errors.list[i].why[0] && errors.list[i].advice[0]);
	if (good)
		require(match_code_open(&code, &options, &program));
	match_code_close(&code);
	match_errors_close(&errors);
	free(text);
	return 0;
}
