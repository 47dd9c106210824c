/* SPDX-License-Identifier: MIT */
/*
 * generate.c: expressions to code.
 *
 * Parts are evaluated in Erlang's order: those of tuples, maps and calls from right to left, those of lists from left to
 * right. What has neither an effect nor a use is left out.
 */
#include "collector/match/compilation.h"

#include <stdlib.h>
#include <string.h>

#include "preload/match/functions.h"

/* ---- code and constants ------------------------------------------------------- */

void emit(struct compilation *compilation, uint8_t operation, uint8_t a, uint16_t b, uint32_t c)
{
	if (compilation->code_count == compilation->code_room) {
		uint32_t room = compilation->code_room * 2 + 64;
		lorg_match_instruction *larger = realloc(compilation->code, room * sizeof *larger);
		if (!larger) {
			defect_memory(compilation);
			return;
		}
		compilation->code = larger;
		compilation->code_room = room;
	}
	compilation->code[compilation->code_count++] = lorg_match_instruction_of(operation, a, b, c);
}

void stack_moves(struct compilation *compilation, uint32_t takes, uint32_t leaves)
{
	compilation->depth = compilation->depth - takes + leaves;
	if (compilation->depth > compilation->stack)
		compilation->stack = compilation->depth;
}

static uint32_t hash_place(const struct compilation *compilation, lorg_term term)
{
	uint32_t mask = compilation->constant_slots - 1;
	uint32_t place = (uint32_t)((term * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
	while (compilation->constant_places[place] && compilation->constants[compilation->constant_places[place] - 1] != term)
		place = (place + 1) & mask;
	return place;
}

static bool room_for_constant(struct compilation *compilation)
{
	if (compilation->constant_count < compilation->constant_room)
		return true;
	uint32_t room = compilation->constant_room ? compilation->constant_room * 2 : 64;
	lorg_term *larger = realloc(compilation->constants, room * sizeof *larger);
	if (larger)
		compilation->constants = larger;
	uint32_t *places = calloc(room, 2 * sizeof *places);
	if (!larger || !places) {
		free(places);
		defect_memory(compilation);
		return false;
	}
	free(compilation->constant_places);
	compilation->constant_places = places;
	compilation->constant_room = room;
	compilation->constant_slots = 2 * room;
	for (uint32_t i = 0; i < compilation->constant_count; i++)
		places[hash_place(compilation, compilation->constants[i])] = i + 1;
	return true;
}

/* Equal words are one constant. */
uint32_t constant_index(struct compilation *compilation, lorg_term term)
{
	if (!room_for_constant(compilation))
		return 0;
	uint32_t place = hash_place(compilation, term);
	if (compilation->constant_places[place])
		return compilation->constant_places[place] - 1;
	compilation->constants[compilation->constant_count++] = term;
	compilation->constant_places[place] = compilation->constant_count;
	return compilation->constant_count - 1;
}

void emit_slot(struct compilation *compilation, uint8_t operation, uint8_t a, uint16_t slot, uint32_t c)
{
	uint32_t argument = slot & ~LORG_MATCH_SLOT_ARGUMENT;
	emit(compilation, operation, a, slot, c);
	if (!(slot & LORG_MATCH_SLOT_ARGUMENT))
		return;
	if (argument < 64)
		compilation->arguments |= UINT64_C(1) << argument;
	else
		compilation->needs |= LORG_MATCH_NEEDS_ALL_ARGUMENTS;
}

/* ---- expressions ------------------------------------------------------------------ */

static void generate(struct compilation *compilation, const struct expression *expression);

static void right_to_left(struct compilation *compilation, const struct expression *expression, uint32_t from, uint32_t to)
{
	for (uint32_t i = to; i-- > from;)
		generate(compilation, expression->parts[i]);
}

static void generate_list(struct compilation *compilation, const struct expression *expression)
{
	for (uint32_t i = 0; i < expression->count; i++)
		generate(compilation, expression->parts[i]);
	emit(compilation, LORG_MATCH_LIST, 0, 0, expression->count - 1);
	stack_moves(compilation, expression->count, 1);
}

static void generate_map(struct compilation *compilation, const struct expression *expression)
{
	uint32_t count = expression->count / 2;
	right_to_left(compilation, expression, count, 2 * count);
	right_to_left(compilation, expression, 0, count);
	emit(compilation, LORG_MATCH_MAP, 0, 0, count);
	stack_moves(compilation, expression->count, 1);
}

static void generate_short_circuit(struct compilation *compilation, const struct expression *expression)
{
	uint8_t operation = expression->kind == EXPRESSION_AND_ALSO ? LORG_MATCH_AND_ALSO : LORG_MATCH_OR_ELSE;
	uint32_t *jumps = compilation_room(compilation, expression->count * sizeof *jumps);
	if (!jumps)
		return;
	for (uint32_t i = 0; i < expression->count; i++) {
		generate(compilation, expression->parts[i]);
		if (i + 1 == expression->count)
			break;
		jumps[i] = compilation->code_count;
		emit(compilation, operation, 0, 0, 0);
		stack_moves(compilation, 1, 0);
	}
	for (uint32_t i = 0; i + 1 < expression->count && !compilation->failed; i++)
		compilation->code[jumps[i]] = lorg_match_instruction_of(operation, 0, 0, compilation->code_count);
}

static void generate_call(struct compilation *compilation, const struct expression *expression)
{
	right_to_left(compilation, expression, 0, expression->count);
	emit(compilation, LORG_MATCH_CALL, expression->what, (uint16_t)expression->count, 0);
	stack_moves(compilation, expression->count, 1);
	compilation->needs |= lorg_match_function_info(expression->what)->needs;
}

static void push(struct compilation *compilation, uint8_t operation, uint8_t a, uint16_t b, uint32_t c)
{
	emit(compilation, operation, a, b, c);
	stack_moves(compilation, 0, 1);
}

static void generate(struct compilation *compilation, const struct expression *expression)
{
	switch (expression->kind) {
	case EXPRESSION_BAD: return;
	case EXPRESSION_LITERAL: push(compilation, LORG_MATCH_CONSTANT, 0, 0, constant_index(compilation, expression->literal)); return;
	case EXPRESSION_SLOT:
		emit_slot(compilation, LORG_MATCH_PUSH, 0, expression->slot, 0);
		stack_moves(compilation, 0, 1);
		return;
	case EXPRESSION_WORD: push(compilation, LORG_MATCH_WORD, 0, expression->slot, 0); return;
	case EXPRESSION_OBJECT:
		push(compilation, LORG_MATCH_OBJECT, 0, 0, 0);
		compilation->needs |= LORG_MATCH_NEEDS_ALL_ARGUMENTS;
		return;
	case EXPRESSION_TUPLE:
		right_to_left(compilation, expression, 0, expression->count);
		emit(compilation, LORG_MATCH_TUPLE, 0, 0, expression->count);
		stack_moves(compilation, expression->count, 1);
		return;
	case EXPRESSION_LIST: generate_list(compilation, expression); return;
	case EXPRESSION_MAP: generate_map(compilation, expression); return;
	case EXPRESSION_COMPARE:
		right_to_left(compilation, expression, 0, 2);
		emit(compilation, LORG_MATCH_COMPARE, expression->what, 0, 0);
		stack_moves(compilation, 2, 1);
		return;
	case EXPRESSION_CALL: generate_call(compilation, expression); return;
	case EXPRESSION_AND_ALSO:
	case EXPRESSION_OR_ELSE: generate_short_circuit(compilation, expression); return;
	case EXPRESSION_CALLER_IN:
		push(compilation, LORG_MATCH_CALLER_IN, expression->what, (uint16_t)expression->ranges, expression->start);
		return;
	case EXPRESSION_LOAD:
		generate(compilation, expression->parts[0]);
		emit(compilation, LORG_MATCH_LOAD, expression->what, expression->length, (uint32_t)expression->offset);
		compilation->needs |= LORG_MATCH_NEEDS_MEMORY;
		return;
	}
}

/* ---- clauses -------------------------------------------------------------------------- */

uint32_t generate_clause_begin(struct compilation *compilation)
{
	uint32_t begun = compilation->code_count;
	compilation->depth = 0;
	compilation->clauses++;
	emit(compilation, LORG_MATCH_CLAUSE, 0, 0, 0);
	return begun;
}

void generate_clause_end(struct compilation *compilation, uint32_t begun)
{
	if (!compilation->failed)
		compilation->code[begun] = lorg_match_instruction_of(LORG_MATCH_CLAUSE, 0, 0, compilation->code_count);
}

static uint8_t turned_round(uint8_t compare)
{
	switch (compare) {
	case LORG_MATCH_LESS: return LORG_MATCH_GREATER;
	case LORG_MATCH_LESS_OR_EQUAL: return LORG_MATCH_GREATER_OR_EQUAL;
	case LORG_MATCH_GREATER: return LORG_MATCH_LESS;
	case LORG_MATCH_GREATER_OR_EQUAL: return LORG_MATCH_LESS_OR_EQUAL;
	default: return compare;
	}
}

/* A value compared with a constant is one instruction. */
static bool guard_of_comparison(struct compilation *compilation, const struct expression *guard)
{
	const struct expression *a = guard->parts[0], *b = guard->parts[1];
	uint8_t compare = guard->what;
	if (a->kind == EXPRESSION_LITERAL && b->kind == EXPRESSION_SLOT) {
		const struct expression *swap = a;
		a = b;
		b = swap;
		compare = turned_round(compare);
	}
	if (a->kind != EXPRESSION_SLOT || b->kind != EXPRESSION_LITERAL)
		return false;
	emit_slot(compilation, LORG_MATCH_GUARD_COMPARE, compare, a->slot, constant_index(compilation, b->literal));
	return true;
}

static bool guard_of_test(struct compilation *compilation, const struct expression *guard)
{
	if (guard->what >= LORG_MATCH_TYPE_TESTS || guard->parts[0]->kind != EXPRESSION_SLOT)
		return false;
	emit_slot(compilation, LORG_MATCH_GUARD_TEST, guard->what, guard->parts[0]->slot, 0);
	return true;
}

/* All of the parts have to hold, and what fails does not hold either: so each is a guard of its own. */
static bool is_conjunction(const struct expression *guard)
{
	return guard->kind == EXPRESSION_AND_ALSO || (guard->kind == EXPRESSION_CALL && guard->what == LORG_MATCH_AND);
}

void generate_guard(struct compilation *compilation, const struct expression *guard)
{
	if (guard->kind == EXPRESSION_BAD || (guard->kind == EXPRESSION_LITERAL && guard->literal == LORG_TRUE))
		return;
	if (is_conjunction(guard)) {
		for (uint32_t i = 0; i < guard->count; i++)
			generate_guard(compilation, guard->parts[i]);
		return;
	}
	if (guard->kind == EXPRESSION_COMPARE && guard_of_comparison(compilation, guard))
		return;
	if (guard->kind == EXPRESSION_CALL && guard_of_test(compilation, guard))
		return;
	generate(compilation, guard);
	emit(compilation, LORG_MATCH_GUARD, 0, 0, 0);
	stack_moves(compilation, 1, 0);
}

static bool has_effect(const struct expression *expression)
{
	return expression->kind != EXPRESSION_LITERAL && expression->kind != EXPRESSION_SLOT && expression->kind != EXPRESSION_OBJECT &&
	       expression->kind != EXPRESSION_BAD;
}

void generate_body(struct compilation *compilation, struct expression *const *body, uint32_t count)
{
	bool table = compilation->options->dialect == LORG_DIALECT_TABLE;
	emit(compilation, LORG_MATCH_BODY, 0, 0, 0);
	for (uint32_t i = 0; i < count; i++) {
		bool result = table && i + 1 == count;
		if (!result && !has_effect(body[i]))
			continue;
		generate(compilation, body[i]);
		if (result)
			break;
		emit(compilation, LORG_MATCH_POP, 0, 0, 0);
		stack_moves(compilation, 1, 0);
	}
	emit(compilation, table ? LORG_MATCH_RETURN : LORG_MATCH_ACCEPT, 0, 0, 0);
}
