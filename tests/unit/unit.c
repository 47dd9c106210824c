/* SPDX-License-Identifier: MIT */
/* unit.c: main of every unit test program. */
#include "unit.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the tests of this run put their directories; removed by the parent, whatever became of the tests. */
static char run_directory[256];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status;
	(void)kind;
	(void)where;
	return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

static void remove_run_directory(void)
{
	nftw(run_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_run_directory(void)
{
	const char *base = getenv("TMPDIR");
	snprintf(run_directory, sizeof(run_directory), "%s/lorg-unit.XXXXXX", base && *base ? base : "/tmp");
	if (mkdtemp(run_directory))
		return 0;
	fprintf(stderr, "unit: cannot make %s: %s: set TMPDIR to a directory that can be written\n", run_directory, strerror(errno));
	return -1;
}

const char *unit_directory(void)
{
	/* Each test's own, since each runs in a process of its own. */
	static char path[sizeof(run_directory) + 32];
	static pid_t owner;
	if (owner == getpid())
		return path;
	snprintf(path, sizeof(path), "%s/test.XXXXXX", run_directory);
	ck_assert_msg(mkdtemp(path) != NULL, "cannot make %s: %s", path, strerror(errno));
	owner = getpid();
	return path;
}

Suite *unit_suite_of(const char *name, const TTest *const *tests, unsigned count, double seconds)
{
	Suite *suite = suite_create(name);
	TCase *all = tcase_create(name);
	tcase_set_timeout(all, seconds);
	for (unsigned i = 0; i < count; i++)
		tcase_add_test(all, tests[i]);
	suite_add_tcase(suite, all);
	return suite;
}

int main(void)
{
	if (make_run_directory() != 0)
		return 2;
	SRunner *runner = srunner_create(unit_suite());
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	remove_run_directory();
	return failed ? 1 : 0;
}
