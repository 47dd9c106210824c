/* SPDX-License-Identifier: MIT */
/* tester.h: what erlang:match_spec_test/3 does: evaluates a specification on a term, and changes nothing. */
#ifndef LORG_COLLECTOR_MATCH_TESTER_H
#define LORG_COLLECTOR_MATCH_TESTER_H

#include "collector/match/compile.h"

struct match_tester {
	/* For the corpus of tests: own pid and process dump as <SELF> and ?BINARY. */
	bool corpus_form;
	/* What {display, _} says; NULL: nothing. */
	void (*display)(const char *text);
};

enum match_tested {
	MATCH_TESTED,
	MATCH_TEST_BAD_TERM,	      /* errors say why */
	MATCH_TEST_BAD_SPECIFICATION, /* likewise */
	MATCH_TEST_NO_MEMORY,
};

struct match_test_result {
	char *value; /* to be freed by the caller */
	bool return_trace, exception_trace;
};

/* condition: specification is one in the short form. errors: those of the term or of the specification. */
enum match_tested match_test(const struct match_tester *tester, const char *term, const char *specification, bool condition, bool table,
			     struct match_test_result *result, struct match_errors *errors);

/* "[]", "[return_trace]", ... */
const char *match_test_flags(const struct match_test_result *result);

#endif
