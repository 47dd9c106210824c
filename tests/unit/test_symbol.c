/* SPDX-License-Identifier: MIT */
/* Finding functions without dlsym gives what dlsym and dlvsym give. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "preload/resolve/resolve.h"
#include "tests/unit/unit.h"

START_TEST(own_object_is_found)
{
	const struct link_map *own = link_map_own();
	ck_assert_ptr_nonnull(own);
	ck_assert_ptr_eq(own, link_map_first()); /* this is the program itself */
	ck_assert_ptr_nonnull(object_find("libc.so.6"));
	ck_assert_ptr_null(object_find("libnone.so.1"));
}
END_TEST

START_TEST(default_versions_as_dlsym)
{
	static const char *const names[] = {"read",	"__read_chk", "malloc",	       "pthread_create", "pthread_cond_wait",
					    "posix_spawn", "execve",	"__errno_location", "pthread_kill",	 "quick_exit"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		ck_assert_ptr_eq(symbol_find(link_map_own(), names[i], ""), dlsym(RTLD_NEXT, names[i]));
}
END_TEST

START_TEST(old_versions_as_dlvsym)
{
	static const struct {
		const char *name, *version;
	} both[] = {{"pthread_cond_wait", "GLIBC_2.2.5"}, {"pthread_cond_wait", "GLIBC_2.3.2"}, {"posix_spawn", "GLIBC_2.2.5"},
		    {"posix_spawn", "GLIBC_2.15"}, {"quick_exit", "GLIBC_2.10"}, {"memcpy", "GLIBC_2.2.5"}};
	/* In libc itself: a sanitizer's library stands before it and has names without versions, which serve any. */
	void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const struct link_map *libc = object_find("libc.so.6");
	for (unsigned i = 0; i < sizeof both / sizeof *both; i++)
		ck_assert_ptr_eq(symbol_find_in(libc, both[i].name, both[i].version, 0),
				 dlvsym(handle, both[i].name, both[i].version));
	ck_assert_ptr_ne(symbol_find_in(libc, "pthread_cond_wait", "GLIBC_2.2.5", 0),
			 symbol_find_in(libc, "pthread_cond_wait", "GLIBC_2.3.2", 0));
}
END_TEST

START_TEST(hidden_versions_only_on_request)
{
	/* Of a name that new programs cannot be linked against there is no default version. */
	ck_assert_ptr_null(symbol_find(link_map_own(), "sigvec", ""));
	ck_assert_ptr_nonnull(symbol_find(link_map_own(), "sigvec", "*"));
}
END_TEST

START_TEST(chosen_at_load_time)
{
	/* memchr and strchr are IFUNCs in glibc: the address must be that of the chosen code. */
	void *found = symbol_find(link_map_own(), "strchr", "");
	ck_assert_ptr_eq(found, dlsym(RTLD_NEXT, "strchr"));
	const char *text = "abc";
	ck_assert_ptr_eq(((char *(*)(const char *, int))found)(text, 'b'), text + 1);
}
END_TEST

START_TEST(absent_names)
{
	ck_assert_ptr_null(symbol_find(link_map_own(), "no_such_function_here", ""));
	ck_assert_ptr_null(symbol_find_in(object_find("libc.so.6"), "read", "GLIBC_0.0", 0));
	ck_assert_ptr_null(symbol_find(link_map_own(), "", ""));
}
END_TEST

START_TEST(only_between)
{
	const struct link_map *own = link_map_own(), *libc = object_find("libc.so.6");
	uint32_t hash = symbol_hash("read");
	ck_assert_ptr_eq(symbol_find_between(own, libc, "read", hash, ""), dlsym(RTLD_NEXT, "read"));
	ck_assert_ptr_null(symbol_find_between(own, own, "read", hash, ""));
	ck_assert_ptr_null(symbol_find_between(libc, 0, "read", hash, ""));
}
END_TEST

START_TEST(sizes)
{
	uint64_t size = 0;
	ck_assert_ptr_nonnull(symbol_find_in(object_find("libc.so.6"), "execve", "", &size));
	ck_assert_uint_gt(size, 5);
}
END_TEST

Suite *unit_suite(void)
{
	static const TTest *tests[8];
	unsigned count = 0;
	tests[count++] = own_object_is_found;
	tests[count++] = default_versions_as_dlsym;
	tests[count++] = old_versions_as_dlvsym;
	tests[count++] = hidden_versions_only_on_request;
	tests[count++] = chosen_at_load_time;
	tests[count++] = absent_names;
	tests[count++] = only_between;
	tests[count++] = sizes;
	return unit_suite_of("symbol", tests, count, 10);
}
