/* SPDX-License-Identifier: MIT */
/* The encoding of terms in events: Erlang's own bytes, everything comes back, nothing half is left, nothing malformed harms. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collector/term/printer.h"
#include "collector/term/reader.h"
#include "preload/term/external.h"
#include "tests/unit/unit.h"

static lorg_term read_text(struct lorg_terms *terms, const char *text)
{
	struct lorg_read_error error;
	lorg_term term = lorg_read_term(terms, text, strlen(text), NULL, &error);
	ck_assert_msg(term != LORG_NONE, "%s: %s", text, error.reason);
	return term;
}

/* What term_to_binary/1 gives, without the 131. */
START_TEST(as_erlang_encodes)
{
	static const struct {
		const char *text;
		uint8_t bytes[40];
		uint32_t length;
	} cases[] = {
		{"0", {97, 0}, 2}, {"255", {97, 255}, 2}, {"256", {98, 0, 0, 1, 0}, 5}, {"-1", {98, 255, 255, 255, 255}, 5},
		{"-2147483648", {98, 128, 0, 0, 0}, 5}, {"2147483648", {110, 4, 0, 0, 0, 0, 128}, 7},
		{"-2147483649", {110, 4, 1, 1, 0, 0, 128}, 7}, {"18446744073709551616", {110, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 12},
		{"1.5", {70, 63, 248, 0, 0, 0, 0, 0, 0}, 9}, {"abc", {119, 3, 97, 98, 99}, 5}, {"[]", {106}, 1}, {"\"ab\"", {107, 0, 2, 97, 98}, 5},
		{"[a]", {108, 0, 0, 0, 1, 119, 1, 97, 106}, 9}, {"[1|2]", {108, 0, 0, 0, 1, 97, 1, 97, 2}, 9}, {"{}", {104, 0}, 2},
		{"{1,[]}", {104, 2, 97, 1, 106}, 5}, {"#{a => 1}", {116, 0, 0, 0, 1, 119, 1, 97, 97, 1}, 10}, {"<<1>>", {109, 0, 0, 0, 1, 1}, 6},
		{"<<5:3>>", {77, 0, 0, 0, 1, 3, 160}, 7}, {"fun a:b/1", {113, 119, 1, 97, 119, 1, 98, 97, 1}, 9},
		{"<1.2.3>", {88, 119, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1}, 15},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint8_t bytes[64];
		struct lorg_terms terms;
		lorg_terms_open(&terms);
		struct lorg_external out = {.bytes = bytes, .size = sizeof bytes};
		ck_assert(lorg_put_term(&out, &terms, read_text(&terms, cases[i].text)));
		ck_assert_msg(out.used == cases[i].length && memcmp(bytes, cases[i].bytes, out.used) == 0, "%s", cases[i].text);
		lorg_terms_close(&terms);
	}
}
END_TEST

static const char *const round_trip[] = {"0", "-1", "123456789012345678901234567890", "-18446744073709551616", "1.5", "abc", "''",
	"'a longer atom than seven'", "[]", "\"string\"", "[1,2|3]", "[300,400]", "{}", "{{{}},[[[]]]}", "#{}", "#{a => #{b => [c]},1 => 1.0,1.0 => 1}",
	"<<1,2,3>>", "<<5:3>>", "<<>>", "<1.2.3>", "#Port<1.2>", "#Port<1.2.3>", "#Ref<1.2.3.4>", "#Ref<7>", "fun a:'B'/3", "#Fun<m.1.2>",
	"[{a,1},{b,[{c,<<\"d\">>}]},#{k => {v,[1|2]}}]"};

START_TEST(comes_back)
{
	for (size_t i = 0; i < sizeof round_trip / sizeof round_trip[0]; i++) {
		uint8_t bytes[512];
		struct lorg_terms terms;
		lorg_terms_open(&terms);
		lorg_term term = read_text(&terms, round_trip[i]);
		struct lorg_external out = {.bytes = bytes, .size = sizeof bytes};
		ck_assert(lorg_put_term(&out, &terms, term) && lorg_put_term(&out, &terms, lorg_small(7)));
		const uint8_t *at = bytes, *end = bytes + out.used;
		lorg_term back = lorg_get_term(&terms, &at, end);
		ck_assert_msg(lorg_term_same(&terms, term, back) == 1, "%s", round_trip[i]);
		char *text = lorg_term_text(&terms, back, LORG_TEXT_ERLANG, NULL, NULL), *first = lorg_term_text(&terms, term, LORG_TEXT_ERLANG, NULL, NULL);
		ck_assert_str_eq(text, first);
		ck_assert(lorg_get_term(&terms, &at, end) == lorg_small(7) && at == end);
		free(text);
		free(first);
		/* Cut anywhere it is malformed, and never read behind the end. */
		for (uint32_t length = 0; length + 2 < out.used; length++) {
			uint8_t *copy = malloc(length ? length : 1);
			memcpy(copy, bytes, length);
			at = copy;
			uint32_t used = terms.used;
			ck_assert(lorg_get_term(&terms, &at, copy + length) == LORG_NONE && terms.failure == LORG_TERM_BROKEN);
			ck_assert_uint_eq(terms.used, used);
			at = copy;
			ck_assert_ptr_null(lorg_external_text(&at, copy + length, LORG_TEXT_PEOPLE, NULL, NULL));
			free(copy);
		}
		lorg_terms_close(&terms);
	}
}
END_TEST

/* Whatever the size of the buffer, there are only whole terms in it. */
START_TEST(truncated_between_terms)
{
	struct lorg_terms terms;
	lorg_terms_open(&terms);
	lorg_term term = read_text(&terms, "{one,[2,{three,\"four\"}],#{5 => <<6>>},<1.2.3>,fun a:b/3,12345678901234567890}");
	uint32_t whole = 0; /* all that there is to put, known from the largest buffer on */
	for (uint32_t size = 300; size-- > 0;) {
		uint8_t *bytes = malloc(size ? size : 1);
		struct lorg_external out = {.bytes = bytes, .size = size};
		lorg_put_pid(&out, 1, 2, 0);
		lorg_put_integer(&out, -70000);
		lorg_put_term(&out, &terms, term);
		lorg_put_string(&out, "abc", 3, 123);
		lorg_put_named_tuple_head(&out, "stat", 4, 0);
		lorg_put_float(&out, 1.0);
		if (!whole)
			whole = out.used;
		ck_assert_int_eq(out.truncated, size < whole);
		ck_assert_int_eq(out.used == whole, size >= whole);
		uint32_t count = 0;
		for (const uint8_t *at = bytes; at < bytes + out.used; count++)
			ck_assert(lorg_get_term(&terms, &at, bytes + out.used) != LORG_NONE);
		ck_assert_uint_le(count, 6);
		free(bytes);
	}
	lorg_terms_close(&terms);
}
END_TEST

static const char *name_of_code(void *context, uint64_t address)
{
	return address == *(uint64_t *)context ? "{git,main,2}" : NULL;
}

/* lorg's own tags, for people and in Erlang's forms. */
START_TEST(own_tags)
{
	static const char *const people[] = {"0x7f00", "0x10(unreadable)", "\"abc\"...+117", "<<1,2>>...+8", "{a=1,b=\"x\\n\"}", "'c'", "'\\n'",
		"{git,main,2}", "O_WRONLY|O_CREAT", "{code,16#5}", "\"\"", "0x20->{a=1,{2}}", "inf", "<1.2>", "#Port<1.2.3>"};
	static const char *const erlang[] = {"32512", "16", "{cut,[97,98,99],120}", "{cut,<<1,2>>,10}", "{stat,1,[120,10]}", "99", "10",
		"{git,main,2}", "65", "{code,16#5}", "[]", "32", "inf", "<1.2.0>", "#Port<1.2.3>"};
	uint8_t bytes[512];
	uint64_t code = 0x1234;
	struct lorg_code_names names = {name_of_code, &code, NULL};
	struct lorg_external out = {.bytes = bytes, .size = sizeof bytes};
	struct lorg_terms terms;
	lorg_terms_open(&terms);
	lorg_put_pointer(&out, 0x7f00);
	lorg_put_pointer_unreadable(&out, 16);
	lorg_put_string(&out, "abc", 3, 120);
	lorg_put_binary(&out, "\1\2", 2, 10);
	lorg_put_named_tuple_head(&out, "stat", 4, 2);
	lorg_put_atom_text(&out, "a");
	lorg_put_unsigned(&out, 1);
	lorg_put_atom_text(&out, "b");
	lorg_put_string(&out, "x\n", 2, 2);
	lorg_put_character(&out, 'c');
	lorg_put_character(&out, '\n');
	lorg_put_code_address(&out, code);
	lorg_put_flags(&out, 65, "O_WRONLY|O_CREAT", 16);
	lorg_put_code_address(&out, 5);
	lorg_put_string(&out, "", 0, 0);
	lorg_put_pointer_to(&out, 32);
	lorg_put_named_tuple_head(&out, "", 0, 2);
	lorg_put_atom_text(&out, "a");
	lorg_put_unsigned(&out, 1);
	lorg_put_atom_text(&out, "");
	lorg_put_tuple_head(&out, 1);
	lorg_put_unsigned(&out, 2);
	lorg_put_float(&out, __builtin_inf());
	lorg_put_pid(&out, 1, 2, 0);
	lorg_put_port(&out, 1, 2, 3);
	ck_assert(!out.truncated);
	const uint8_t *at[3] = {bytes, bytes, bytes};
	for (size_t i = 0; i < sizeof people / sizeof people[0]; i++) {
		char *for_people = lorg_external_text(&at[0], bytes + out.used, LORG_TEXT_PEOPLE, &names, NULL);
		char *for_erlang = lorg_external_text(&at[1], bytes + out.used, LORG_TEXT_ERLANG, &names, NULL);
		lorg_term term = lorg_get_term(&terms, &at[2], bytes + out.used);
		char *decoded = lorg_term_text(&terms, term, LORG_TEXT_ERLANG, &names, NULL);
		ck_assert_str_eq(for_people, people[i]);
		ck_assert_str_eq(for_erlang, erlang[i]);
		ck_assert_str_eq(decoded, erlang[i]);
		ck_assert(at[0] == at[1] && at[1] == at[2]);
		free(for_people);
		free(for_erlang);
		free(decoded);
	}
	ck_assert(at[0] == bytes + out.used);
	lorg_terms_close(&terms);
}
END_TEST

/* No depth is too deep for any of it: a list in a list in a list, 100,000 levels. */
START_TEST(depth)
{
	enum { DEPTH = 100000 };
	struct lorg_terms terms;
	struct lorg_external out = {.size = 7 * DEPTH};
	lorg_terms_open(&terms);
	out.bytes = malloc(out.size);
	lorg_term term = lorg_nil(), other = lorg_nil();
	for (int i = 0; i < DEPTH; i++) {
		term = lorg_cons(&terms, term, lorg_nil());
		other = lorg_cons(&terms, other, lorg_nil());
	}
	ck_assert(lorg_put_term(&out, &terms, term));
	const uint8_t *at = out.bytes;
	lorg_term back = lorg_get_term(&terms, &at, out.bytes + out.used);
	ck_assert_int_eq(lorg_term_same(&terms, term, back), 1);
	size_t length;
	char *text = lorg_term_text(&terms, back, LORG_TEXT_ERLANG, NULL, &length);
	ck_assert(text && length == 2 * DEPTH + 2);
	free(text);
	free(out.bytes);
	lorg_terms_close(&terms);
}
END_TEST

/* A few bytes that announce much take no room. */
START_TEST(announced_and_not_there)
{
	static const uint8_t tags[] = {LORG_EXTERNAL_LIST, LORG_EXTERNAL_LARGE_TUPLE, LORG_EXTERNAL_MAP, LORG_EXTERNAL_NAMED_TUPLE,
		LORG_EXTERNAL_LARGE_BIG, LORG_EXTERNAL_BINARY};
	struct lorg_terms terms;
	for (size_t i = 0; i < sizeof tags; i++) {
		uint8_t bytes[8000];
		memset(bytes, 0, sizeof bytes);
		for (size_t j = 0; j + 5 <= sizeof bytes; j += 5) {
			bytes[j] = tags[i];
			bytes[j + 3] = 6;
		}
		lorg_terms_open(&terms);
		const uint8_t *at = bytes;
		lorg_get_term(&terms, &at, bytes + sizeof bytes);
		ck_assert_uint_lt(terms.scratch_words, 100000);
		lorg_terms_close(&terms);
	}
}
END_TEST

enum { OVERWRITTEN_WORDS = 4096 };
static uint64_t *overwritten;
static volatile int enough;

static void *overwrite(void *unused)
{
	uint64_t state = 0x9e3779b97f4a7c15u;
	while (!enough) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		/* What is read first lies first. */
		uint64_t at = state % (state >> 60 ? 64 : OVERWRITTEN_WORDS), kind = state >> 56 & 3;
		((volatile uint64_t *)overwritten)[at] = kind ? state >> (kind * 8) << (kind * 8) : 0;
	}
	return unused;
}

/* In programs the scratch memory is shared memory, in which a program may write by mistake at any moment. */
START_TEST(overwritten_while_it_is_read)
{
	struct lorg_terms terms;
	uint8_t bytes[4096];
	struct lorg_external out = {.bytes = bytes, .size = sizeof bytes};
	pthread_t thread;
	lorg_terms_open(&terms);
	ck_assert(lorg_put_term(&out, &terms, read_text(&terms, "{one,[2,{three,\"four\"},[[#{a => b,{c} => [d,{e,f}]}],{{{g}}}]],#{5 => <<6>>,7 => {8}}}")));
	lorg_terms_close(&terms);
	overwritten = calloc(OVERWRITTEN_WORDS, sizeof *overwritten);
	pthread_create(&thread, NULL, overwrite, NULL);
	for (time_t end = time(NULL) + 2; time(NULL) < end;) {
		for (int i = 0; i < 1000; i++) {
			const uint8_t *at = bytes;
			terms = (struct lorg_terms){.scratch = overwritten, .scratch_words = OVERWRITTEN_WORDS, .steps = 100000};
			lorg_get_term(&terms, &at, bytes + out.used);
			ck_assert_uint_le(terms.used, OVERWRITTEN_WORDS);
		}
	}
	enough = 1;
	pthread_join(thread, NULL);
	free(overwritten);
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {as_erlang_encodes, comes_back, truncated_between_terms, own_tags, depth, announced_and_not_there,
					 overwritten_while_it_is_read};
	return unit_suite_of("term_external", tests, sizeof tests / sizeof tests[0], 60);
}
