/* SPDX-License-Identifier: MIT */
/* Patterns of functions: what each form names, and what is refused, and where. */
#include <string.h>

#include "collector/plan/pattern.h"
#include "tests/unit/unit.h"

static struct pattern parsed(const char *text)
{
	struct pattern pattern;
	struct pattern_error error;
	ck_assert_msg(pattern_parse(text, &pattern, &error) == 0, "%s: refused: %s", text, error.why);
	return pattern;
}

START_TEST(parts_are_told_apart)
{
	static const struct {
		const char *text, *module, *function, *where;
		int arity;
	} cases[] = {
		{"git:main/3", "git", "main", NULL, 3},
		{"git:main", "git", "main", NULL, PATTERN_ANY_ARITY},
		{"git:main/_", "git", "main", NULL, PATTERN_ANY_ARITY},
		{"git:_/_", "git", "*", NULL, PATTERN_ANY_ARITY},
		{"_:_/_", "*", "*", NULL, PATTERN_ANY_ARITY},
		{"git:*", "git", "*", NULL, PATTERN_ANY_ARITY},
		{"'libz.so.1':deflate/2", "libz.so.1", "deflate", NULL, 2},
		{"libz.so.1:'deflate'/2", "libz.so.1", "deflate", NULL, 2},
		{"app:ns::Class::method/2", "app", "ns::Class::method", NULL, 2},
		{"app:::free", "app", "::free", NULL, PATTERN_ANY_ARITY},
		{"app:A::operator//2", "app", "A::operator/", NULL, 2},
		{"app:A::operator/", "app", "A::operator/", NULL, PATTERN_ANY_ARITY},
		{"app:A::operator/=", "app", "A::operator/=", NULL, PATTERN_ANY_ARITY},
		{"app:help@util.c", "app", "help", "util.c", PATTERN_ANY_ARITY},
		{"app:help@src/util.c/1", "app", "help", "src/util.c", 1},
		{"app:help@src/util.c", "app", "help", "src/util.c", PATTERN_ANY_ARITY},
		{"libc.so.6:memcpy@@GLIBC_2.14", "libc.so.6", "memcpy", "GLIBC_2.14", PATTERN_ANY_ARITY},
		{"git:+0x1a2b", "git", "+0x1a2b", NULL, PATTERN_ANY_ARITY},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pattern pattern = parsed(cases[i].text);
		ck_assert_str_eq(pattern.module, cases[i].module);
		ck_assert_str_eq(pattern.function, cases[i].function);
		ck_assert_int_eq(pattern.arity, cases[i].arity);
		if (cases[i].where)
			ck_assert_str_eq(pattern.where, cases[i].where);
		else
			ck_assert_ptr_null(pattern.where);
		pattern_free(&pattern);
	}
}
END_TEST

START_TEST(refused_with_a_place)
{
	static const struct {
		const char *text;
		size_t position;
	} cases[] = {
		{"", 0},	   {"git", 3},	      {":main", 0},    {"git:", 4},  {"git:main/x", 9}, {"git:main/", 9},
		{"git:main/300", 9}, {"git:_/3", 5}, {"_:main/_", 0}, {"git:/2", 4}, {"git:main/2x", 9},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pattern pattern;
		struct pattern_error error;
		ck_assert_msg(pattern_parse(cases[i].text, &pattern, &error) == -1, "%s: taken", cases[i].text);
		ck_assert_msg(error.position == cases[i].position, "%s: at %zu", cases[i].text, error.position);
		ck_assert(error.why[0] && error.what_to_do[0]);
		pattern_free(&pattern);
	}
}
END_TEST

START_TEST(globs)
{
	static const struct {
		const char *glob, *text;
		int matches;
	} cases[] = {
		{"", "", 1},	       {"*", "", 1},	    {"?", "", 0},	   {"abc", "abc", 1},	{"abc", "abcd", 0}, {"a*c", "abbc", 1},
		{"a*c", "abb", 0},     {"*b*", "abc", 1},   {"a?c", "abc", 1},	   {"a\\*c", "abc", 0}, {"a\\*c", "a*c", 1}, {"**", "x", 1},
		{"*aab", "aaaaab", 1}, {"ngx_*_h", "ngx_x_h_h", 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ck_assert_msg(glob_matches(cases[i].glob, cases[i].text) == cases[i].matches, "%s %s", cases[i].glob, cases[i].text);
	ck_assert(glob_is_literal("a\\*c") && !glob_is_literal("a*c"));
}
END_TEST

START_TEST(names_of_all_kinds)
{
	static const struct {
		const char *pattern, *name, *version, *file;
		int matches;
	} cases[] = {
		{"m:f", "f", NULL, NULL, 1},
		{"m:f", "f.isra.0", NULL, NULL, 1},
		{"m:f", "f.constprop.0.isra.1", NULL, NULL, 1},
		{"m:f.isra.0", "f.isra.0", NULL, NULL, 1},
		{"m:f.isra.0", "f.isra.1", NULL, NULL, 0},
		{"m:f@a.c", "f", NULL, "a.c", 1},
		{"m:f@a.c", "f", NULL, "b.c", 0},
		{"m:f@a.c", "f", NULL, "/src/x/a.c", 1},
		{"m:f@x/a.c", "f", NULL, "/src/x/a.c", 1},
		{"m:f@y/a.c", "f", NULL, "/src/x/a.c", 0},
		{"m:f@a.c", "f", NULL, NULL, 0},
		{"m:f@V_1", "f", "V_1", NULL, 1},
		{"m:f@V_1", "f", "V_2", NULL, 0},
		/* ns::Class::method(int) const */
		{"m:ns::Class::method", "_ZNK2ns5Class6methodEi", NULL, NULL, 1},
		{"m:ns::*", "_ZNK2ns5Class6methodEi", NULL, NULL, 1},
		{"m:ns::Class::method(int) const", "_ZNK2ns5Class6methodEi", NULL, NULL, 1},
		{"m:ns::Class::method(long)", "_ZNK2ns5Class6methodEi", NULL, NULL, 0},
		{"m:_ZNK2ns5Class6methodEi", "_ZNK2ns5Class6methodEi", NULL, NULL, 1},
		{"m:method", "_ZNK2ns5Class6methodEi", NULL, NULL, 0},
		/* int twice<int>(int) */
		{"m:twice", "_Z5twiceIiET_S0_", NULL, NULL, 1},
		{"m:twice<int>", "_Z5twiceIiET_S0_", NULL, NULL, 1},
		{"m:twice<long>", "_Z5twiceIiET_S0_", NULL, NULL, 0},
		/* A::operator<(A const&), A::operator()(int), A::operator->() */
		{"m:A::operator<", "_ZN1AltERKS_", NULL, NULL, 1},
		{"m:A::operator()", "_ZN1AclEi", NULL, NULL, 1},
		{"m:A::operator->", "_ZN1AptEv", NULL, NULL, 1},
		/* (anonymous namespace)::f(int) */
		{"m:(anonymous namespace)::f", "_ZN12_GLOBAL__N_11fEi", NULL, NULL, 1},
		{"m:*::f", "_ZN12_GLOBAL__N_11fEi", NULL, NULL, 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pattern pattern = parsed(cases[i].pattern);
		int matches = pattern_matches_name(&pattern, cases[i].name, cases[i].version, cases[i].file);
		ck_assert_msg(matches == cases[i].matches, "%s %s", cases[i].pattern, cases[i].name);
		pattern_free(&pattern);
	}
}
END_TEST

START_TEST(modules_by_file_and_soname)
{
	struct pattern pattern = parsed("libz.so.1:_");
	ck_assert(pattern_matches_module(&pattern, "libz.so.1.2.13", "libz.so.1", "/usr/lib/libz.so.1.2.13"));
	ck_assert(!pattern_matches_module(&pattern, "libz.so.1.2.13", NULL, NULL));
	pattern_free(&pattern);
	pattern = parsed("/opt/*:_");
	ck_assert(pattern_matches_module(&pattern, "x", NULL, "/opt/x"));
	ck_assert(!pattern_matches_module(&pattern, "x", NULL, "/usr/x"));
	pattern_free(&pattern);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {parts_are_told_apart, refused_with_a_place, globs, names_of_all_kinds, modules_by_file_and_soname};
	return unit_suite_of("pattern", tests, sizeof tests / sizeof *tests, 20);
}
