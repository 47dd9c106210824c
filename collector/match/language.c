/* SPDX-License-Identifier: MIT */
/* language.c: the language of match specifications: clauses, guards and bodies. */
#include "collector/match/compilation.h"

#include <string.h>

uint32_t place_of_word(const struct compilation *compilation, uint64_t word)
{
	if (!compilation->positions || word > UINT32_MAX)
		return LORG_NO_POSITION;
	return lorg_positions_at(compilation->positions, (uint32_t)word);
}

/* Where an expression stands. */
struct where {
	bool body;
	uint32_t depth; /* levels that may still follow */
};

static struct expression *expression_of(struct compilation *compilation, lorg_term term, uint32_t place, struct where where);

static struct where inner(struct where where)
{
	return (struct where){where.body, where.depth - 1};
}

static const char *where_said(struct where where)
{
	return where.body ? "body" : "guard";
}

/* ---- variables ----------------------------------------------------------------- */

static struct expression *bound(struct compilation *compilation, uint32_t place, const struct binding *binding)
{
	struct expression *expression =
		expression_new(compilation, binding->kind == BINDING_OBJECT ? EXPRESSION_OBJECT : EXPRESSION_SLOT, place, 0);
	if (expression->kind != EXPRESSION_BAD)
		expression->slot = binding->slot;
	return expression;
}

/* '$$' */
static struct expression *all_bound(struct compilation *compilation, uint32_t place)
{
	uint32_t count = compilation->binding_count;
	struct expression *list = expression_new(compilation, EXPRESSION_LIST, place, count + 1);
	if (list->kind == EXPRESSION_BAD)
		return list;
	for (uint32_t i = 0; i < count; i++)
		list->parts[i] = bound(compilation, place, compilation->bindings[i]);
	list->parts[count] = expression_literal(compilation, place, lorg_nil());
	return expression_construct(compilation, list);
}

static struct expression *atom(struct compilation *compilation, lorg_term term, uint32_t place, struct where where)
{
	char digits[LORG_ATOM_BYTES_MAX];
	if (lorg_atom_is(compilation->terms, term, "$_"))
		return expression_new(compilation, EXPRESSION_OBJECT, place, 0);
	if (lorg_atom_is(compilation->terms, term, "$$"))
		return all_bound(compilation, place);
	if (!variable_digits(compilation->terms, term, digits))
		return expression_literal(compilation, place, term);
	const struct binding *binding = binding_find(compilation, digits);
	if (binding)
		return bound(compilation, place, binding);
	defect(compilation, place, "use it in the head of the same clause as well", "unbound variable '$%.40s' in %s", digits, where_said(where));
	return expression_bad();
}

/* ---- lists, maps, tuples --------------------------------------------------------- */

static uint32_t cells(const struct compilation *compilation, lorg_term list)
{
	lorg_term head, tail;
	uint32_t count = 0;
	for (; lorg_get_cons(compilation->terms, list, &head, &tail); list = tail)
		count++;
	return count;
}

static struct expression *list(struct compilation *compilation, lorg_term term, uint32_t place, struct where where)
{
	uint32_t count = cells(compilation, term);
	struct expression *expression = expression_new(compilation, EXPRESSION_LIST, place, count + 1);
	uint32_t part = place;
	lorg_term head, tail;
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	for (uint32_t i = 0; lorg_get_cons(compilation->terms, term, &head, &tail); i++) {
		uint32_t offset = lorg_term_offset(term);
		expression->parts[i] = expression_of(compilation, head, place_of_word(compilation, offset), inner(where));
		part = place_of_word(compilation, (uint64_t)offset + 1);
		term = tail;
	}
	expression->parts[count] = expression_of(compilation, term, part, inner(where));
	return expression_construct(compilation, expression);
}

static struct expression *map(struct compilation *compilation, lorg_term term, uint32_t place, struct where where)
{
	uint32_t count, ignored;
	lorg_get_map(compilation->terms, term, &count, NULL);
	struct expression *expression = expression_new(compilation, EXPRESSION_MAP, place, 2 * count);
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	for (uint32_t i = 0; i < 2 * count; i++) {
		const lorg_term *values, *keys = lorg_get_map(compilation->terms, term, &ignored, &values);
		uint32_t word_place = place_of_word(compilation, (uint64_t)lorg_term_offset(term) + 1 + i);
		lorg_term part = i < count ? keys[i] : values[i - count];
		expression->parts[i] = expression_of(compilation, part, word_place, inner(where));
	}
	return expression_construct(compilation, expression);
}

/* The elements of a tuple from `from` on. */
static void parts_of_tuple(struct compilation *compilation, lorg_term tuple, uint32_t from, uint32_t arity, struct where where,
			   struct expression **parts)
{
	uint32_t ignored;
	for (uint32_t i = from; i < arity; i++) {
		lorg_term element = lorg_get_tuple(compilation->terms, tuple, &ignored)[i];
		uint32_t place = place_of_word(compilation, (uint64_t)lorg_term_offset(tuple) + 1 + i);
		parts[i - from] = expression_of(compilation, element, place, inner(where));
	}
}

static struct expression *construct_tuple(struct compilation *compilation, lorg_term inside, uint32_t place, struct where where)
{
	uint32_t arity;
	lorg_get_tuple(compilation->terms, inside, &arity);
	struct expression *expression = expression_new(compilation, EXPRESSION_TUPLE, place, arity);
	if (expression->kind == EXPRESSION_BAD)
		return expression;
	parts_of_tuple(compilation, inside, 0, arity, inner(where), expression->parts);
	return expression_construct(compilation, expression);
}

static struct expression *call(struct compilation *compilation, lorg_term term, uint32_t arity, uint32_t place, struct where where)
{
	char name[LORG_ATOM_BYTES_MAX + 1], short_text[8];
	uint32_t ignored;
	size_t length;
	const lorg_term *elements = lorg_get_tuple(compilation->terms, term, &ignored);
	lorg_term first = elements[0], second = arity > 1 ? elements[1] : LORG_NONE;
	if (arity == 2 && lorg_atom_is(compilation->terms, first, "const"))
		return expression_literal(compilation, place, second);
	const char *text = lorg_get_atom(compilation->terms, first, short_text, &length);
	memcpy(name, text, length);
	name[length] = '\0';
	struct expression **arguments = compilation_room(compilation, arity * sizeof *arguments);
	if (!arguments)
		return expression_bad();
	parts_of_tuple(compilation, term, 1, arity, where, arguments);
	return expression_call(compilation, place, name, arguments, arity - 1, where.body);
}

static struct expression *tuple(struct compilation *compilation, lorg_term term, uint32_t place, struct where where)
{
	uint32_t arity, ignored;
	const lorg_term *elements = lorg_get_tuple(compilation->terms, term, &arity);
	lorg_term first = arity ? elements[0] : LORG_NONE;
	if (arity == 1 && lorg_get_tuple(compilation->terms, first, &ignored))
		return construct_tuple(compilation, first, place, where);
	if (arity > 0 && lorg_is_atom(first))
		return call(compilation, term, arity, place, where);
	defect(compilation, place, "write a tuple as {{...}} or {const,{...}}", "%s in %s is neither a call nor a tuple",
	       term_said(compilation, term), where_said(where));
	return expression_bad();
}

static struct expression *expression_of(struct compilation *compilation, lorg_term term, uint32_t place, struct where where)
{
	if (where.depth == 0 || where.depth > LORG_NESTING_MAX) {
		defect_limit(compilation, place, "nest less", "the %s is nested deeper than %d levels", where_said(where), LORG_NESTING_MAX);
		return expression_bad();
	}
	switch (lorg_term_kind(compilation->terms, term)) {
	case LORG_KIND_ATOM: return atom(compilation, term, place, where);
	case LORG_KIND_LIST: return list(compilation, term, place, where);
	case LORG_KIND_MAP: return map(compilation, term, place, where);
	case LORG_KIND_TUPLE: return tuple(compilation, term, place, where);
	default: return expression_literal(compilation, place, term);
	}
}

/* ---- clauses -------------------------------------------------------------------------- */

/* The proper list of guards or of a body. NULL, with the error reported, if it is none. */
static bool is_list_of_expressions(struct compilation *compilation, lorg_term term, uint32_t place, const char *what)
{
	enum lorg_kind kind = lorg_term_kind(compilation->terms, term);
	const char *defective = kind != LORG_KIND_NIL && kind != LORG_KIND_LIST ? "a list"
				: lorg_list_length(compilation->terms, term) < 0 ? "a proper list"
										  : NULL;
	if (!defective)
		return true;
	defect(compilation, place, "write [Expression,...]", "the %s %s is not %s", what, term_said(compilation, term), defective);
	return false;
}

static void compile_guards(struct compilation *compilation, lorg_term guards, uint32_t place)
{
	struct where where = {false, LORG_NESTING_MAX};
	lorg_term head, tail;
	if (!is_list_of_expressions(compilation, guards, place, "guard list"))
		return;
	for (; lorg_get_cons(compilation->terms, guards, &head, &tail); guards = tail)
		generate_guard(compilation, expression_of(compilation, head, place_of_word(compilation, lorg_term_offset(guards)), where));
}

static void compile_body(struct compilation *compilation, lorg_term body, uint32_t place)
{
	struct where where = {true, LORG_NESTING_MAX};
	lorg_term head, tail;
	if (!is_list_of_expressions(compilation, body, place, "body"))
		return;
	uint32_t count = cells(compilation, body), i = 0;
	if (count == 0 && compilation->options->dialect == LORG_DIALECT_TABLE)
		defect(compilation, place, "write what it shall return, for instance ['$_']", "the body returns nothing");
	struct expression **expressions = compilation_room(compilation, count * sizeof *expressions);
	for (; expressions && lorg_get_cons(compilation->terms, body, &head, &tail); body = tail)
		expressions[i++] = expression_of(compilation, head, place_of_word(compilation, lorg_term_offset(body)), where);
	if (expressions)
		generate_body(compilation, expressions, count);
}

static void compile_clause(struct compilation *compilation, lorg_term clause, uint32_t place)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(compilation->terms, clause, &arity);
	if (!elements || arity != 3) {
		defect(compilation, place, "write {Head,Guards,Body}", "the clause %s is not a tuple of three elements", term_said(compilation, clause));
		return;
	}
	lorg_term head = elements[0], guards = elements[1], body = elements[2];
	uint64_t words = lorg_term_offset(clause);
	uint32_t begun = generate_clause_begin(compilation);
	generate_head(compilation, head, place_of_word(compilation, words + 1));
	compile_guards(compilation, guards, place_of_word(compilation, words + 2));
	compile_body(compilation, body, place_of_word(compilation, words + 3));
	generate_clause_end(compilation, begun);
}

bool compile_specification(struct compilation *compilation, lorg_term specification)
{
	uint32_t place = compilation->positions ? compilation->positions->root : LORG_NO_POSITION;
	lorg_term head, tail;
	const char *advice = "write [{Head,Guards,Body},...]";
	if (!lorg_is_cons(specification)) {
		if (lorg_is_nil(specification))
			defect(compilation, place, advice, "the specification has no clause");
		else
			defect(compilation, place, advice, "the specification %s is not a list of clauses", term_said(compilation, specification));
		return false;
	}
	if (lorg_list_length(compilation->terms, specification) < 0) {
		defect(compilation, place, "end the list without |", "the list of clauses is not a proper list");
		return false;
	}
	for (; lorg_get_cons(compilation->terms, specification, &head, &tail); specification = tail)
		compile_clause(compilation, head, place_of_word(compilation, lorg_term_offset(specification)));
	return !compilation->failed;
}
