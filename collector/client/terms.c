/* SPDX-License-Identifier: MIT */
/* terms.c: see terms.h. */
#include "collector/client/terms.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/client/failure.h"
#include "collector/term/character.h"
#include "collector/term/printer.h"
#include "collector/term/reader.h"

static char *copy_of(const char *text, size_t length)
{
	while (length > 0 && isspace((unsigned char)*text)) {
		text++;
		length--;
	}
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	return strndup(text, length);
}

int term_check(const char *what, const char *text, struct lorg_failure *failure)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	int good = text && lorg_read_term(&terms, text, strlen(text), NULL, &error) != LORG_NONE;
	lorg_terms_close(&terms);
	if (good)
		return 0;
	if (!text)
		return client_fail(failure, LORG_FAILURE_BADARG, EINVAL, "%s: none given: give a term", what);
	return client_fail(failure, error.system_limit ? LORG_FAILURE_SYSTEM_LIMIT : LORG_FAILURE_BADARG, EINVAL,
			   "%s: %u:%u: %s: write it as Erlang does", what, error.line, error.column, error.reason);
}

/* ---- looking into terms ------------------------------------------------------ */

/* An atom's or string's text; 0, or -1 where it is neither. */
static int text_of(struct lorg_terms *terms, lorg_term term, char *text, size_t size)
{
	char short_text[8];
	size_t length = 0;
	const char *atom = lorg_get_atom(terms, term, short_text, &length);
	if (atom) {
		snprintf(text, size, "%.*s", (int)length, atom);
		return 0;
	}
	lorg_term head, tail = term;
	size_t at = 0;
	int64_t code;
	while (lorg_get_cons(terms, tail, &head, &tail)) {
		if (!lorg_get_integer(terms, head, &code) || code < 0 || code > CHARACTER_MAX)
			return -1;
		if (at + 5 < size)
			at += (size_t)character_write((uint32_t)code, text + at);
	}
	text[at] = 0;
	return lorg_is_nil(tail) ? 0 : -1;
}

int term_atom(const char *text, char *name, size_t size)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char short_text[8];
	size_t length = 0;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, text, strlen(text), NULL, &error);
	const char *atom = term != LORG_NONE ? lorg_get_atom(&terms, term, short_text, &length) : NULL;
	int fits = atom && length < size;
	if (fits) {
		memcpy(name, atom, length);
		name[length] = 0;
	}
	lorg_terms_close(&terms);
	return fits ? 0 : -1;
}

static int session_of(struct lorg_terms *terms, lorg_term term, struct term_session *session)
{
	uint32_t arity, inner;
	int64_t number;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	/* {traced_by, Handle} */
	if (elements && arity == 2 && lorg_is_atom(elements[0]) && lorg_get_tuple(terms, elements[1], &inner))
		return session_of(terms, elements[1], session);
	if (!elements || arity != 2 || !lorg_get_integer(terms, elements[1], &number))
		return -1;
	session->number = (uint64_t)number;
	return text_of(terms, elements[0], session->name, sizeof session->name);
}

/* How many, or -1. */
static int64_t sessions_of(struct lorg_terms *terms, lorg_term list, struct term_session **sessions)
{
	int64_t length = lorg_list_length(terms, list), count = 0;
	lorg_term head, tail = list;
	*sessions = length >= 0 ? calloc((size_t)length + 1, sizeof **sessions) : NULL;
	while (*sessions && lorg_get_cons(terms, tail, &head, &tail)) {
		if (session_of(terms, head, &(*sessions)[count])) {
			free(*sessions);
			*sessions = NULL;
			return -1;
		}
		count++;
	}
	return *sessions ? count : -1;
}

int64_t term_sessions(const char *text, struct term_session **sessions)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	lorg_term list = lorg_read_term(&terms, text, strlen(text), NULL, &error);
	int64_t count = list != LORG_NONE ? sessions_of(&terms, list, sessions) : -1;
	lorg_terms_close(&terms);
	return count;
}

int term_session(const char *text, struct term_session *session)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, text, strlen(text), NULL, &error);
	int result = term != LORG_NONE ? session_of(&terms, term, session) : -1;
	lorg_terms_close(&terms);
	return result;
}

/* 1: it is one, and filled. */
static int refusal_of(struct lorg_terms *terms, lorg_term term, struct term_refusal *refusal)
{
	uint32_t arity, parts;
	int64_t number;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	if (!elements || arity != 2)
		return 0;
	lorg_term function = elements[0], why = elements[1];
	const lorg_term *mfa = lorg_get_tuple(terms, function, &parts);
	if (!mfa || parts != 3 || text_of(terms, why, refusal->why, sizeof refusal->why))
		return 0;
	refusal->is_one = lorg_get_integer(terms, mfa[2], &number);
	refusal->function = lorg_term_text(terms, function, LORG_TEXT_ERLANG, NULL, NULL);
	return refusal->function != NULL;
}

int64_t term_refusals(const char *text, struct term_refusal **refusals)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	lorg_term list = lorg_read_term(&terms, text, strlen(text), NULL, &error), head, tail = list;
	int64_t length = list != LORG_NONE ? lorg_list_length(&terms, list) : -1, count = 0;
	*refusals = length >= 0 ? calloc((size_t)length + 1, sizeof **refusals) : NULL;
	while (*refusals && lorg_get_cons(&terms, tail, &head, &tail))
		count += refusal_of(&terms, head, &(*refusals)[count]);
	lorg_terms_close(&terms);
	return *refusals ? count : -1;
}

void term_refusals_free(struct term_refusal *refusals, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		free(refusals[i].function);
	free(refusals);
}

char *term_directory(const char *text)
{
	enum { PATH_ROOM = 4096 };
	struct lorg_terms terms;
	struct lorg_read_error error;
	uint32_t arity = 0;
	char *path = malloc(PATH_ROOM);
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, text, strlen(text), NULL, &error);
	const lorg_term *elements = term != LORG_NONE ? lorg_get_tuple(&terms, term, &arity) : NULL;
	int good = path && elements && arity == 2 && lorg_is_atom(elements[0]) && lorg_atom_is(&terms, elements[0], "directory") &&
		   text_of(&terms, elements[1], path, PATH_ROOM) == 0;
	lorg_terms_close(&terms);
	if (good)
		return path;
	free(path);
	return NULL;
}

static int program_of(struct lorg_terms *terms, lorg_term term, struct term_program *program)
{
	enum { FILE_MAXIMUM = 4 * 4096 };
	uint32_t arity;
	lorg_term file, list;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	if (!elements || arity != 3 || !lorg_get_integer(terms, elements[0], &program->pid))
		return -1;
	file = elements[1];
	list = elements[2];
	program->file = malloc(FILE_MAXIMUM);
	if (!program->file || text_of(terms, file, program->file, FILE_MAXIMUM))
		return -1;
	program->session_count = sessions_of(terms, list, &program->sessions);
	return program->session_count < 0 ? -1 : 0;
}

void term_programs_free(struct term_program *programs, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		free(programs[i].file);
		free(programs[i].sessions);
	}
	free(programs);
}

int64_t term_programs(const char *text, struct term_program **programs)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	lorg_terms_open(&terms);
	lorg_term list = lorg_read_term(&terms, text, strlen(text), NULL, &error), head, tail = list;
	int64_t length = list != LORG_NONE ? lorg_list_length(&terms, list) : -1, count = 0;
	*programs = length >= 0 ? calloc((size_t)length + 1, sizeof **programs) : NULL;
	while (*programs && lorg_get_cons(&terms, tail, &head, &tail)) {
		if (program_of(&terms, head, &(*programs)[count++]) == 0)
			continue;
		term_programs_free(*programs, count);
		*programs = NULL;
	}
	lorg_terms_close(&terms);
	return *programs ? count : -1;
}

int term_number(const char *text, int64_t *number)
{
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	while (isspace((unsigned char)*end))
		end++;
	if (end == text || *end || errno)
		return -1;
	*number = value;
	return 0;
}

/* ---- cutting texts ------------------------------------------------------------ */

int term_pair(const char *text, char **first, char **second)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	struct lorg_positions positions = {0};
	uint32_t arity, at = LORG_NO_POSITION;
	size_t length = strlen(text);
	*first = *second = NULL;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, text, length, &positions, &error);
	const lorg_term *elements = term != LORG_NONE ? lorg_get_tuple(&terms, term, &arity) : NULL;
	if (elements && arity == 2)
		at = lorg_positions_at(&positions, lorg_term_offset(term) + 2);
	const char *open = strchr(text, '{'), *close = strrchr(text, '}');
	const char *comma = at != LORG_NO_POSITION ? text + at : NULL;
	while (comma && comma > text && *comma != ',')
		comma--;
	if (comma && open && close && open < comma && comma < close) {
		*first = copy_of(open + 1, (size_t)(comma - open - 1));
		*second = copy_of(comma + 1, (size_t)(close - comma - 1));
	}
	lorg_positions_close(&positions);
	lorg_terms_close(&terms);
	if (*first && *second)
		return 0;
	free(*first);
	free(*second);
	*first = *second = NULL;
	return -1;
}

static enum lorg_failure_kind kind_of(const char *name)
{
	if (strcmp(name, "badarg") == 0)
		return LORG_FAILURE_BADARG;
	if (strcmp(name, "system_limit") == 0)
		return LORG_FAILURE_SYSTEM_LIMIT;
	return strcmp(name, "not_allowed") == 0 ? LORG_FAILURE_REFUSED : LORG_FAILURE_IO;
}

/* 1: it is {error, Kind, "Sentence"}, and *failure is filled. */
static int is_error(struct lorg_terms *terms, lorg_term term, struct lorg_failure *failure)
{
	char tag[16], kind[32], sentence[sizeof failure->text];
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	if (!elements || arity != 3 || !lorg_is_atom(elements[0]) || !lorg_is_atom(elements[1]))
		return 0;
	lorg_term sentence_term = elements[2];
	if (text_of(terms, elements[0], tag, sizeof tag) || strcmp(tag, "error") != 0 ||
	    text_of(terms, elements[1], kind, sizeof kind) || text_of(terms, sentence_term, sentence, sizeof sentence))
		return 0;
	enum lorg_failure_kind which = kind_of(kind);
	client_fail(failure, which,
		    which == LORG_FAILURE_REFUSED ? EPERM : which == LORG_FAILURE_SYSTEM_LIMIT ? EAGAIN : which == LORG_FAILURE_BADARG ? EINVAL : EIO,
		    "%s", sentence);
	return 1;
}

static int is_ok(struct lorg_terms *terms, lorg_term term)
{
	uint32_t arity;
	const lorg_term *elements = lorg_get_tuple(terms, term, &arity);
	return elements && arity == 2 && lorg_atom_is(terms, elements[0], "ok");
}

char *answer_value(const char *text, size_t length, struct lorg_failure *failure)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char *whole = copy_of(text, length), *first = NULL, *value = NULL;
	if (!whole) {
		client_no_memory(failure);
		return NULL;
	}
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, whole, strlen(whole), NULL, &error);
	if (term == LORG_NONE) {
		client_fail(failure, LORG_FAILURE_IO, EPROTO, "lorgd answered what is no term (%s): is it of this version?", error.reason);
	} else if (!is_error(&terms, term, failure)) {
		if (!is_ok(&terms, term) || term_pair(whole, &first, &value)) {
			value = whole;
			whole = NULL;
		}
	}
	lorg_terms_close(&terms);
	free(first);
	free(whole);
	return value;
}
