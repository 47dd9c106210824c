/* SPDX-License-Identifier: MIT */
/*
 * pattern.h: which functions somebody means: MODULE:FUNCTION/ARITY.
 *
 *     git:cmd_main/3     that function; with its own number of arguments, or with as many as are named here
 *     git:cmd_main       the same, any number of arguments; so is git:cmd_main/_
 *     git:_/_  _:_/_     Erlang's wildcards: all functions of a module, all functions
 *     nginx:ngx_http_*   globs: * any bytes, ? one, backslash takes what follows for itself
 *     libfoo.so.1:ns::Class::method   C++ names as people write them, or mangled
 *     prog:helper@util.c  a static function by its source file; also a symbol version: libc.so.6:memcpy@GLIBC_2.14
 *     git:+0x1a2b        a function without a name, by its place in the file
 *
 * Either part may stand in single quotes, as Erlang's atoms do. {M,'_',A} is refused, as trace(3) refuses it.
 */
#ifndef LORG_PLAN_PATTERN_H
#define LORG_PLAN_PATTERN_H

#include <stddef.h>

enum { PATTERN_ANY_ARITY = -1, PATTERN_ARITY_MAXIMUM = 255 - 1 };

struct pattern {
	char *text;	/* as given */
	char *module;	/* glob */
	char *function; /* glob, without @ and what follows */
	char *where;	/* glob behind @: file or symbol version; NULL: none */
	int arity;	/* PATTERN_ANY_ARITY: any */
};

struct pattern_error {
	size_t position; /* in bytes from the start of the text */
	const char *why, *what_to_do; /* constant text */
};

/* 0, or -1 with *error filled. What it holds goes with pattern_free. */
int pattern_parse(const char *text, struct pattern *pattern, struct pattern_error *error);
void pattern_free(struct pattern *pattern);

/* True if no wildcard stands in it: it names one thing. */
int glob_is_literal(const char *glob);
int glob_matches(const char *glob, const char *text);

/* name: of the file; soname: as it calls itself, or NULL; path: NULL unknown. */
int pattern_matches_module(const struct pattern *pattern, const char *name, const char *soname, const char *path);

/*
 * One name of a function, as in the symbol table, and its symbol version (NULL: none) and source file (NULL: unknown).
 * Clones of the compiler (.isra.0 and the like) answer to the plain name.
 */
int pattern_matches_name(const struct pattern *pattern, const char *name, const char *version, const char *file);

/* A name cut before what the compiler has added to it (.isra.0, .constprop.1, .part.0); `length` of it. */
size_t plain_name_length(const char *name);

#endif
