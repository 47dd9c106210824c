/* SPDX-License-Identifier: MIT */
/* assemble.c: puts head, code, constants and ranges of a program together, and the functions of compile.h. */
#include "collector/match/compilation.h"

#include <stdlib.h>
#include <string.h>

const struct lorg_match_limits match_limits_outside = {1u << 26, 1u << 26};

/* ---- constants ------------------------------------------------------------------ */

/* The constant space of a program as it grows: first the constants, then what they refer to. */
struct pool {
	struct lorg_terms *terms;
	uint64_t *words;
	uint32_t count, room;
	uint32_t *open; /* words that still hold terms of the compiler's scratch space */
	uint32_t open_count, open_room;
	bool full;
};

static bool grow(void **memory, uint32_t *room, uint32_t needed, size_t size)
{
	if (needed <= *room)
		return true;
	uint32_t larger = *room * 2 > needed ? *room * 2 : needed + 64;
	void *moved = realloc(*memory, larger * size);
	if (!moved)
		return false;
	*memory = moved;
	*room = larger;
	return true;
}

static bool note_open(struct pool *pool, uint32_t from, uint32_t count)
{
	if (!grow((void **)&pool->open, &pool->open_room, pool->open_count + count, sizeof *pool->open))
		return false;
	for (uint32_t i = 0; i < count; i++)
		pool->open[pool->open_count++] = from + i;
	return true;
}

/* Where the terms among the words of an object are, head word included, and how many words it has. */
static uint32_t object_words(lorg_term term, const uint64_t *words, uint32_t *terms_from, uint32_t *terms)
{
	uint64_t head = words[0];
	uint32_t size = (uint32_t)(head >> 32);
	*terms_from = 1;
	*terms = 0;
	if (lorg_is_cons(term)) {
		*terms_from = 0;
		*terms = 2;
		return 2;
	}
	switch ((enum lorg_kind)(head & 0xff)) {
	case LORG_KIND_ATOM:
	case LORG_KIND_FUN: return 1 + (size + 7) / 8;
	case LORG_KIND_BITSTRING: return 1 + size / 64 + (size % 64 != 0);
	case LORG_KIND_MAP: *terms = 2 * size; return 1 + 2 * size;
	case LORG_KIND_TUPLE: *terms = size; return 1 + size;
	case LORG_KIND_FUN_EXTERNAL: *terms = size; return 1 + size;
	case LORG_KIND_PID:
	case LORG_KIND_PORT:
		*terms_from = 4;
		*terms = 1;
		return 1 + size;
	default: return 1 + size;
	}
}

/* Copies what the term in word `at` refers to behind the pool's end. */
static bool move_in(struct pool *pool, uint32_t at)
{
	lorg_term term = pool->words[at];
	uint32_t from, terms, count;
	enum lorg_tag tag = lorg_tag(term);
	if (tag != LORG_TAG_ATOM && tag != LORG_TAG_CONS && tag != LORG_TAG_BOXED)
		return true;
	const uint64_t *words = lorg_term_words(pool->terms, term, lorg_is_cons(term) ? 2 : 1);
	if (!words)
		return false;
	count = object_words(term, words, &from, &terms);
	words = lorg_term_words(pool->terms, term, count);
	if (!words || !grow((void **)&pool->words, &pool->room, pool->count + count, sizeof *pool->words))
		return false;
	memcpy(pool->words + pool->count, words, count * sizeof *words);
	pool->words[at] = (lorg_term)pool->count << 32 | tag;
	pool->count += count;
	return note_open(pool, pool->count - count + from, terms);
}

static bool fill_pool(struct pool *pool, const struct compilation *compilation)
{
	uint32_t count = compilation->constant_count;
	if (!grow((void **)&pool->words, &pool->room, count, sizeof *pool->words))
		return false;
	if (count)
		memcpy(pool->words, compilation->constants, count * sizeof *pool->words);
	pool->count = count;
	if (!note_open(pool, 0, count))
		return false;
	while (pool->open_count)
		if (!move_in(pool, pool->open[--pool->open_count]))
			return false;
	return true;
}

/* ---- the program ------------------------------------------------------------------ */

static void put(char *memory, uint64_t offset, const void *from, size_t size)
{
	if (size)
		memcpy(memory + offset, from, size);
}

static bool lay_out(struct compilation *compilation, const struct pool *pool, struct match_code *code)
{
	uint64_t code_offset = sizeof(struct lorg_match_head);
	uint64_t constant_offset = code_offset + (uint64_t)compilation->code_count * 8;
	uint64_t range_offset = constant_offset + (uint64_t)pool->count * 8;
	uint64_t size = range_offset + (uint64_t)compilation->range_count * sizeof(struct lorg_match_range);
	if (size > UINT32_MAX)
		return false;
	uint64_t *memory = calloc(1, size);
	if (!memory)
		return false;
	struct lorg_match_head head = {
		.magic = LORG_MATCH_MAGIC,
		.major = LORG_MATCH_MAJOR,
		.minor = LORG_MATCH_MINOR,
		.size = (uint32_t)size,
		.code_offset = (uint32_t)code_offset,
		.code_words = compilation->code_count,
		.constant_offset = (uint32_t)constant_offset,
		.constant_words = pool->count,
		.range_offset = (uint32_t)range_offset,
		.ranges = compilation->range_count,
		.variables = (uint16_t)compilation->variables,
		.clauses = (uint16_t)compilation->clauses,
		.stack = compilation->stack,
		.dialect = compilation->options->dialect,
		.needs = compilation->needs,
		.arguments = compilation->arguments,
	};
	put((char *)memory, 0, &head, sizeof head);
	put((char *)memory, code_offset, compilation->code, (size_t)compilation->code_count * 8);
	put((char *)memory, constant_offset, pool->words, (size_t)pool->count * 8);
	put((char *)memory, range_offset, compilation->ranges, compilation->range_count * sizeof *compilation->ranges);
	*code = (struct match_code){memory, size};
	return true;
}

static enum lorg_match_defect check(const struct match_code *code, const struct match_options *options, struct lorg_match_program *program)
{
	const struct lorg_match_limits *limits = options->inside ? &lorg_match_limits_inside : &match_limits_outside;
	uint32_t room = (uint32_t)(code->size / 8) + 1;
	uint32_t *depths = malloc(room * sizeof *depths);
	if (!depths)
		return LORG_MATCH_TOO_LARGE;
	enum lorg_match_defect defect = lorg_match_open(program, code->memory, code->size, limits, depths, room, NULL);
	free(depths);
	return defect;
}

bool match_code_open(const struct match_code *code, const struct match_options *options, struct lorg_match_program *program)
{
	return check(code, options, program) == LORG_MATCH_GOOD;
}

bool assemble(struct compilation *compilation, struct match_code *code)
{
	struct pool pool = {.terms = compilation->terms};
	struct lorg_match_program program;
	bool made = fill_pool(&pool, compilation) && lay_out(compilation, &pool, code);
	free(pool.words);
	free(pool.open);
	if (!made) {
		defect_memory(compilation);
		return false;
	}
	enum lorg_match_defect fault = compilation->clauses > UINT16_MAX ? LORG_MATCH_TOO_LARGE
									  : check(code, compilation->options, &program);
	if (fault == LORG_MATCH_GOOD)
		return true;
	match_code_close(code);
	if (fault == LORG_MATCH_TOO_LARGE)
		defect_limit(compilation, LORG_NO_POSITION, "split it, or write less",
			     "the specification is too large: %u instructions (of %u) and %u words of stack (of %u)", compilation->code_count,
			     LORG_MATCH_INSTRUCTIONS, compilation->stack + compilation->variables, LORG_MATCH_STACK);
	else
		defect(compilation, LORG_NO_POSITION, "please report it", "the compiler made a program that is no good (%d)", (int)fault);
	return false;
}

void match_code_close(struct match_code *code)
{
	free(code->memory);
	*code = (struct match_code){0};
}

/* ---- the face -------------------------------------------------------------------------- */

static bool finish(struct compilation *compilation, bool good, struct match_code *code)
{
	good = good && !compilation->failed && assemble(compilation, code);
	compilation_close(compilation);
	return good;
}

bool match_compile_term(struct lorg_terms *terms, lorg_term specification, const struct lorg_positions *positions, const char *text,
			size_t length, const struct match_options *options, struct match_code *code, struct match_errors *errors)
{
	struct compilation compilation = {
		.options = options,
		.errors = errors,
		.terms = terms,
		.positions = positions,
		.text = text,
		.length = length,
	};
	*code = (struct match_code){0};
	return finish(&compilation, compile_specification(&compilation, specification), code);
}

static void report_unreadable(const struct lorg_read_error *error, struct match_errors *errors)
{
	struct compilation compilation = {.errors = errors};
	uint32_t before = errors->count;
	if (error->system_limit)
		defect_limit(&compilation, LORG_NO_POSITION, "nest less, or write less", "%s", error->reason);
	else
		defect(&compilation, LORG_NO_POSITION, "write one Erlang term", "%s", error->reason);
	if (errors->count > before) {
		errors->list[before].line = error->line;
		errors->list[before].column = error->column;
	}
}

bool match_compile(const char *text, size_t length, const struct match_options *options, struct match_code *code,
		   struct match_errors *errors)
{
	struct lorg_terms terms;
	struct lorg_positions positions = {0};
	struct lorg_read_error error;
	*code = (struct match_code){0};
	lorg_terms_open(&terms);
	lorg_term specification = lorg_read_term(&terms, text, length, &positions, &error);
	bool good = false;
	if (specification == LORG_NONE)
		report_unreadable(&error, errors);
	else
		good = match_compile_term(&terms, specification, &positions, text, length, options, code, errors);
	lorg_positions_close(&positions);
	lorg_terms_close(&terms);
	return good;
}

bool match_compile_condition(const char *text, size_t length, const struct match_options *options, struct match_code *code,
			     struct match_errors *errors)
{
	struct lorg_terms terms;
	struct compilation compilation = {
		.options = options,
		.errors = errors,
		.terms = &terms,
		.text = text,
		.length = length,
		.short_form = true,
	};
	*code = (struct match_code){0};
	lorg_terms_open(&terms);
	bool good = finish(&compilation, compile_condition(&compilation), code);
	lorg_terms_close(&terms);
	return good;
}
