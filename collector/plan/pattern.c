/* SPDX-License-Identifier: MIT */
/* pattern.c: see pattern.h. */
#include "collector/plan/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "collector/symbol/symbol.h"

/* ---- globs ------------------------------------------------------------- */

int glob_is_literal(const char *glob)
{
	for (; *glob; glob++) {
		if (*glob == '*' || *glob == '?')
			return 0;
		if (*glob == '\\' && glob[1])
			glob++;
	}
	return 1;
}

/* Length of the text that one element of the glob stands for: 1, or 0 where it does not fit. */
static int element_fits(const char *glob, char byte)
{
	if (*glob == '?')
		return byte != 0;
	if (*glob == '\\' && glob[1])
		glob++;
	return *glob == byte && byte != 0;
}

static const char *next_element(const char *glob)
{
	return glob + (glob[0] == '\\' && glob[1] ? 2 : 1);
}

static int glob_matches_bytes(const char *glob, const char *text, const char *end)
{
	const char *star = NULL, *back = NULL; /* the last star, and where what it stands for ends so far */
	while (text < end) {
		if (*glob == '*') {
			star = ++glob;
			back = text;
		} else if (*glob && element_fits(glob, *text)) {
			glob = next_element(glob);
			text++;
		} else if (star) {
			glob = star;
			text = ++back;
		} else {
			return 0;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

int glob_matches(const char *glob, const char *text)
{
	return glob_matches_bytes(glob, text, text + strlen(text));
}

/* ---- parsing ----------------------------------------------------------- */

static int refuse(struct pattern_error *error, size_t position, const char *why, const char *what_to_do)
{
	*error = (struct pattern_error){position, why, what_to_do};
	return -1;
}

/* The colon between module and function: the first that is no part of "::", and stands in no quotes. */
static const char *find_colon(const char *text)
{
	int quoted = 0;
	for (const char *at = text; *at; at++) {
		if (*at == '\\' && at[1])
			at++;
		else if (*at == '\'')
			quoted = !quoted;
		else if (*at == ':' && !quoted)
			return at;
	}
	return NULL;
}

/*
 * "/2" or "/_" at the end; NULL: there is none, and any number will do. operator/ ends in a slash that is its name,
 * and a path behind @ has slashes too.
 */
static const char *find_arity(const char *function)
{
	const char *slash = strrchr(function, '/');
	if (!slash)
		return NULL;
	if (strchr(slash, '\''))
		return NULL;
	if (!slash[1])
		return strncmp(slash - 8 < function ? function : slash - 8, "operator", 8) == 0 ? NULL : slash;
	const char *where = strchr(function, '@');
	int number = slash[1] >= '0' && slash[1] <= '9';
	return where && where < slash && !number && strcmp(slash, "/_") != 0 ? NULL
	       : slash[1] == '=' && slash - function >= 8 && strncmp(slash - 8, "operator", 8) == 0 ? NULL
												    : slash;
}

static int parse_arity(const char *text, const char *slash, struct pattern *pattern, struct pattern_error *error)
{
	pattern->arity = PATTERN_ANY_ARITY;
	if (!slash || strcmp(slash, "/_") == 0)
		return 0;
	char *end;
	unsigned long number = strtoul(slash + 1, &end, 10);
	if (slash[1] < '0' || slash[1] > '9' || *end)
		return refuse(error, (size_t)(slash + 1 - text), "not a number of arguments", "write /2 for two, /_ or nothing for any");
	if (number > PATTERN_ARITY_MAXIMUM)
		return refuse(error, (size_t)(slash + 1 - text), "too many arguments", "write /_ for any number");
	pattern->arity = (int)number;
	return 0;
}

/* The part [from, end) without quotes; `_` as a whole means any. NULL: out of memory. */
static char *part(const char *from, const char *end)
{
	int quoted = end - from >= 2 && *from == '\'' && end[-1] == '\'';
	if (!quoted && end - from == 1 && *from == '_')
		return strdup("*");
	return strndup(from + quoted, (size_t)(end - from - 2 * quoted));
}

static int is_wildcard(const char *from, const char *end)
{
	return end - from == 1 && *from == '_';
}

/* Erlang allows {M,F,A}, {M,F,'_'}, {M,'_','_'}, {'_','_','_'}. */
static int check_wildcards(const char *text, const char *colon, const char *end, int arity, struct pattern_error *error)
{
	int any_module = is_wildcard(text, colon), any_function = is_wildcard(colon + 1, end);
	if (any_function && arity != PATTERN_ANY_ARITY)
		return refuse(error, (size_t)(end - text), "a number of arguments goes with a name only",
			      "write MODULE:_/_ for all functions, or MODULE:NAME/2");
	if (any_module && !any_function)
		return refuse(error, 0, "_ for the module goes with _ for the function only", "write *:NAME for that function in any module");
	return 0;
}

/* The first @ that is not the first byte: what follows names a file or a symbol version; @@ is the default version. */
static int split_where(struct pattern *pattern)
{
	char *at = pattern->function[0] ? strchr(pattern->function + 1, '@') : NULL;
	if (!at)
		return 0;
	pattern->where = strdup(at + (at[1] == '@' ? 2 : 1));
	*at = 0;
	return pattern->where ? 0 : -1;
}

int pattern_parse(const char *text, struct pattern *pattern, struct pattern_error *error)
{
	*pattern = (struct pattern){.arity = PATTERN_ANY_ARITY};
	const char *colon = find_colon(text);
	if (!*text)
		return refuse(error, 0, "an empty pattern", "write MODULE:FUNCTION/ARITY, as in git:cmd_main/_ or git:*");
	if (!colon)
		return refuse(error, strlen(text), "no function is named", "write MODULE:FUNCTION, as in git:cmd_main, or git:* for all");
	if (colon == text)
		return refuse(error, 0, "no module is named", "write MODULE:FUNCTION; * or _ stands for any");
	const char *slash = find_arity(colon + 1), *end = slash ? slash : text + strlen(text);
	if (end == colon + 1)
		return refuse(error, (size_t)(end - text), "no function is named", "write MODULE:FUNCTION; * or _ stands for any");
	if (end[-1] == ':' && end - colon < 4)
		return refuse(error, (size_t)(end - text), "no function is named", "write MODULE:NAMESPACE::FUNCTION");
	if (parse_arity(text, slash, pattern, error) || check_wildcards(text, colon, end, pattern->arity, error))
		return -1;
	pattern->text = strdup(text);
	pattern->module = part(text, colon);
	pattern->function = part(colon + 1, end);
	if (pattern->text && pattern->module && pattern->function && split_where(pattern) == 0)
		return 0;
	pattern_free(pattern);
	return refuse(error, 0, "out of memory", NULL);
}

void pattern_free(struct pattern *pattern)
{
	free(pattern->text);
	free(pattern->module);
	free(pattern->function);
	free(pattern->where);
	*pattern = (struct pattern){.arity = PATTERN_ANY_ARITY};
}

/* ---- matching ---------------------------------------------------------- */

int pattern_matches_module(const struct pattern *pattern, const char *name, const char *soname, const char *path)
{
	return glob_matches(pattern->module, name) || (soname && glob_matches(pattern->module, soname)) ||
	       (path && strchr(pattern->module, '/') && glob_matches(pattern->module, path));
}

size_t plain_name_length(const char *name)
{
	/* C and mangled C++ names have no dot; what the compiler adds begins with one. */
	const char *dot = name[0] ? strchr(name + 1, '.') : NULL;
	return dot ? (size_t)(dot - name) : strlen(name);
}

static int matches_where(const struct pattern *pattern, const char *version, const char *file)
{
	if (!pattern->where)
		return 1;
	if (version && glob_matches(pattern->where, version))
		return 1;
	if (!file)
		return 0;
	const char *slash = strrchr(file, '/');
	if (glob_matches(pattern->where, slash ? slash + 1 : file))
		return 1;
	/* The last parts of the path: src/util.c. */
	size_t length = strlen(pattern->where), whole = strlen(file);
	return strchr(pattern->where, '/') && (glob_matches(pattern->where, file) ||
					      (whole > length && file[whole - length - 1] == '/' &&
					       glob_matches(pattern->where, file + whole - length)));
}

/* Where the parameters begin: the first parenthesis outside of template arguments that opens no "(anonymous namespace)". */
static const char *parameters_of(const char *demangled)
{
	int depth = 0;
	for (const char *at = demangled; *at; at++) {
		if (strncmp(at, "operator", 8) == 0) {
			size_t sign = strspn(at + 8, "<>=!+-*/%^&|~[],");
			at += 8 + sign;
			if (!sign && at[0] == '(' && at[1] == ')')
				at += 2;
			at--;
			continue;
		}
		if (*at == '<')
			depth++;
		else if (*at == '>' && at > demangled && at[-1] != '-')
			depth--;
		else if (*at == '(' && depth == 0 && strncmp(at, "(anonymous", 10) != 0)
			return at;
		else if (*at == '(' && depth == 0)
			at = strchr(at, ')');
		if (!at)
			break;
	}
	return demangled + strlen(demangled);
}

/* Behind the result type, which a demangled template function begins with. */
static const char *behind_result(const char *demangled, const char *end)
{
	const char *from = demangled;
	int depth = 0;
	for (const char *at = demangled; at < end; at++) {
		if (strncmp(at, "operator", 8) == 0 && depth == 0)
			break;
		if (*at == '<' || *at == '(')
			depth++;
		else if (*at == '>' || *at == ')')
			depth--;
		else if (*at == ' ' && depth == 0)
			from = at + 1;
	}
	return from;
}

/* The same without template arguments, in place. */
static void drop_template_arguments(char *name)
{
	char *to = name;
	int depth = 0;
	for (const char *at = name; *at; at++) {
		if (strncmp(at, "operator", 8) == 0 && depth == 0) {
			size_t length = 8 + strspn(at + 8, "<>=-");
			memmove(to, at, length);
			to += length;
			at += length - 1;
			continue;
		}
		depth += *at == '<';
		if (depth == 0)
			*to++ = *at;
		depth -= *at == '>' && depth > 0;
	}
	*to = 0;
}

static int matches_demangled(const char *glob, const char *demangled)
{
	const char *end = parameters_of(demangled), *from = behind_result(demangled, end);
	if (glob_matches(glob, demangled) || glob_matches_bytes(glob, demangled, end) || glob_matches(glob, from) ||
	    glob_matches_bytes(glob, from, end))
		return 1;
	char *plain = strndup(from, (size_t)(end - from));
	if (!plain)
		return 0;
	drop_template_arguments(plain);
	int matches = glob_matches(glob, plain);
	free(plain);
	return matches;
}

int pattern_matches_name(const struct pattern *pattern, const char *name, const char *version, const char *file)
{
	const char *glob = pattern->function;
	if (!matches_where(pattern, version, file))
		return 0;
	if (glob[0] == '*' && !glob[1])
		return 1;
	if (glob_matches(glob, name))
		return 1;
	size_t plain = plain_name_length(name);
	if (name[plain] && glob_matches_bytes(glob, name, name + plain))
		return 1;
	if (name[0] != '_' || name[1] != 'Z')
		return 0;
	char *mangled = strndup(name, plain), *demangled = mangled ? symbol_demangle(mangled) : NULL;
	int matches = demangled && matches_demangled(glob, demangled);
	free(demangled);
	free(mangled);
	return matches;
}
