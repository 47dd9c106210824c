/* SPDX-License-Identifier: MIT */
/*
 * unit.h: what every unit test program has.
 *
 * A file tests/unit/test_NAME.c defines unit_suite() and nothing called main; unit.c runs the suite, each test in a
 * process of its own. A test that needs files makes them below unit_directory().
 */
#ifndef LORG_TESTS_UNIT_H
#define LORG_TESTS_UNIT_H

#include <check.h>

/* The tests of one file. */
Suite *unit_suite(void);

/*
 * A directory for one test, made at the first call in its process and removed with all that is in it when the test
 * ends (also when it fails). The string stays valid until then.
 */
const char *unit_directory(void);

/* A suite with one test case that holds `count` tests, each limited to `seconds`. */
Suite *unit_suite_of(const char *name, const TTest *const *tests, unsigned count, double seconds);

#endif
