/* SPDX-License-Identifier: MIT */
/* Text to terms and back: all that Erlang printed reads and prints as it was; what is wrong is told by its place. */
#include <math.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/term/printer.h"
#include "collector/term/reader.h"
#include "tests/unit/unit.h"

/* Text of what `text` reads as, or the error as LINE:COLUMN: REASON. To be freed. */
static char *again(const char *text, enum lorg_text_form form)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char *result = NULL;
	lorg_terms_open(&terms);
	lorg_term term = lorg_read_term(&terms, text, strlen(text), NULL, &error);
	if (term != LORG_NONE)
		result = lorg_term_text(&terms, term, form, NULL, NULL);
	else
		ck_assert(asprintf(&result, "%u:%u: %s", error.line, error.column, error.reason) > 0);
	lorg_terms_close(&terms);
	return result;
}

static void check_text(const char *text, enum lorg_text_form form, const char *wanted)
{
	char *result = again(text, form);
	ck_assert_msg(result && strcmp(result, wanted) == 0, "%s: got %s, wanted %s", text, result ? result : "nothing", wanted);
	free(result);
}

/* The only terms of the files that are not printed as they are read: too large maps are in an order of Erlang's own. */
static bool in_other_order(const char *text)
{
	return strstr(text, "#{16 => 256,18 => 324") != NULL;
}

static int check_line(char *line)
{
	int checked = 0;
	for (char *rest = line, *column; (column = strsep(&rest, "\t\n"));) {
		bool is_term = strchr("[{#<'-0123456789", *column) || strcmp(column, "true") == 0 || strcmp(column, "badarg") == 0;
		if (!*column || strcmp(column, "-") == 0 || !is_term || strstr(column, "<SELF>") || strstr(column, "?BINARY") ||
		    in_other_order(column))
			continue;
		if (strstr(column, "...") || *column == '"' || (column[0] == '[' && column[1] == '"'))
			continue;
		check_text(column, LORG_TEXT_ERLANG, column);
		checked++;
	}
	return checked;
}

START_TEST(what_erlang_printed)
{
	char path[512], *line = NULL;
	size_t room = 0;
	int checked = 0;
	const char *source = getenv("TEST_SOURCE");
	ck_assert_msg(source != NULL, "TEST_SOURCE is not set: run it by meson test");
	snprintf(path, sizeof path, "%s/tests/conformance/matchspec", source);
	DIR *directory = opendir(path);
	ck_assert_msg(directory != NULL, "%s", path);
	for (struct dirent *entry; (entry = readdir(directory));) {
		if (!strstr(entry->d_name, ".tsv"))
			continue;
		snprintf(path, sizeof path, "%s/tests/conformance/matchspec/%s", source, entry->d_name);
		FILE *file = fopen(path, "r");
		ck_assert(file != NULL);
		while (getline(&line, &room, file) > 0)
			if (line[0] != '#')
				checked += check_line(line);
		fclose(file);
	}
	closedir(directory);
	free(line);
	ck_assert_int_gt(checked, 20000);
}
END_TEST

START_TEST(syntax)
{
	static const char *const pairs[][2] = {
		{"16#FF", "255"}, {"-16#ff", "-255"}, {"2#1010", "10"}, {"36#Zz", "1295"}, {"1_000", "1000"}, {"16#F_F", "255"}, {"+7", "7"},
		{"- 5", "-5"}, {"123456789012345678901234567890", "123456789012345678901234567890"}, {"1.5E+3", "1.5e3"}, {"1_0.2_5", "10.25"},
		{"-0.0", "-0.0"}, {"$a", "97"}, {"$\\n", "10"}, {"$\\x{1F600}", "128512"}, {"$\\x41", "65"}, {"$\\101", "65"}, {"$\\^a", "1"},
		{"$ ", "32"}, {"$\\s", "32"}, {"$é", "233"}, {"-$a", "-97"}, {"\"ab\" \"cd\"", "[97,98,99,100]"}, {"\"\"", "[]"},
		{"\"a\" % c\n \"b\"", "[97,98]"}, {"'a b'", "'a b'"}, {"'abc'", "abc"}, {"'\\x{400}'", "'\\x{400}'"}, {"é", "é"},
		{"'if'", "'if'"}, {"maybe", "maybe"}, {"'\\t\\e\\001'", "'\\t\\e\\001'"}, {"'it\\'s'", "'it\\'s'"}, {"a@B_9", "a@B_9"},
		{"[1,2|[3|[4]]]", "[1,2,3,4]"}, {"[[a]|b]", "[[a]|b]"}, {"[a|b]", "[a|b]"}, {"{ }", "{}"}, {"#{ }", "#{}"}, {"# {a=>1}", "#{a => 1}"},
		{"#{1.0=>x,1=>y,a=>1,a=>2}", "#{1 => y,1.0 => x,a => 2}"}, {"<<>>", "<<>>"}, {"<<1,2,\"abc\",5:3>>", "<<1,2,97,98,99,5:3>>"},
		{"<<-1>>", "<<255>>"}, {"<<300>>", "<<44>>"}, {"<<258:16/little>>", "<<2,1>>"}, {"<<\"é\">>", "<<233>>"},
		{"<<\"é\"/utf8>>", "<<195,169>>"}, {"<<1.5/float>>", "<<63,248,0,0,0,0,0,0>>"}, {"<<1:4,<<3:2>>/bitstring>>", "<<7:6>>"},
		{"<<$€/utf16>>", "<<32,172>>"}, {"<<3:2/unit:5>>", "<<0,3:2>>"}, {"<1.2>", "<1.2.0>"}, {"<1.2.3>", "<1.2.3>"},
		{"#Port<1.2>", "#Port<1.2>"}, {"#Port<1.2.3>", "#Port<1.2.3>"}, {"#Ref<0.1.2.3>", "#Ref<0.1.2.3>"},
		{"fun lists:map/2", "fun lists:map/2"}, {"fun erlang:'+'/2", "fun erlang:'+'/2"}, {"#Fun<m.0.<1>>", "#Fun<m.0.<1>>"},
		{" a . % end", "a"}, {"(1)", "1"}, {"016#ff", "255"}, {"-(5)", "-5"}, {"- ((1.5) )", "-1.5"}, {"$\\^1", "17"}, {"\"\\^?\"", "[31]"},
		{"<<1:(4)>>", "<<1:4>>"}, {"<<1:16#10>>", "<<0,1>>"}, {"<<-(1)>>", "<<255>>"}, {"<<1.5:16/float>>", "<<62,0>>"},
		{"<<65504.0:16/float,65536.0:16/float>>", "<<123,255,124,0>>"}, {"<<6.0e-8:16/float,2.0e-8:16/float>>", "<<0,1,0,0>>"},
		{"<<-1.0e300:32/float>>", "<<255,128,0,0>>"}, {"<<18446744073709551616/float>>", "<<67,240,0,0,0,0,0,0>>"}, {NULL, NULL},
	};
	for (size_t i = 0; pairs[i][0]; i++)
		check_text(pairs[i][0], LORG_TEXT_ERLANG, pairs[i][1]);
}
END_TEST

START_TEST(errors_have_places)
{
	static const char *const pairs[][2] = {
		{"", "1:1: a term expected, found the end of the text"}, {"[1,\n 2,]", "2:4: a term expected, found ']'"},
		{"{a,é b}", "1:6: ',' or '}' expected, found 'b'"}, {"Foo", "1:1: 'Foo' would be a variable of Erlang: atoms begin with a small "
									    "letter or stand in quotes"},
		{"{if}", "1:2: 'if' is a reserved word: as an atom it is written in quotes"}, {"[a", "1:3: ',', '|' or ']' expected, found the end of the text"},
		{"'abc", "1:1: unterminated atom"}, {"[\"abc]", "1:2: unterminated string"}, {"1e5", "1:2: 'e' right behind a number"},
		{"37#1", "1:1: illegal base '37': 2 to 36"}, {"2#", "1:3: a digit of base 2 expected, found the end of the text"},
		{"1.0e400", "1:1: the float is too large: at most 1.7976931348623157e308"}, {"#{a}", "1:4: '=>' expected, found '}'"},
		{"#rec{}", "1:1: #{KEY => VALUE}, #Port<...>, #Ref<...> or #Fun<...> expected: records are no terms"},
		{"<1>", "1:1: illegal pid: <PROGRAM.THREAD> or <PROGRAM.THREAD.NUMBER> expected"}, {"a b", "1:3: 'b' behind the end of the term"},
		{"<<1.5>>", "1:3: an integer expected in this part of a binary (floats need /float, binaries /binary)"},
		{"<<a>>", "1:3: an integer expected in this part of a binary (floats need /float, binaries /binary)"},
		{"fun(X) -> X end", "1:1: of funs only fun MODULE:FUNCTION/ARITY is a term"}, {"\"\\x{110000}\"", "1:2: illegal character code in an escape"},
		{"<<1/unit:8>>", "1:4: a unit without a size in a binary"}, {"<<1:8/utf8>>", "1:4: a character in a binary has neither size nor unit"},
		{"[<<0:8388609>>]", "1:4: the term is too large (system_limit)"}, {"<<1:(-1)>>", "1:5: a size below 2^32 expected"},
		{"\"\\^", "1:4: a character behind \\^ expected, found the end of the text"}, {"-(5", "1:4: ')' expected, found the end of the text"},
		{"#Fun<a\177>", "1:1: unterminated #Fun<...>"}, {"a\xff", "1:2: byte 255 is not UTF-8"}, {"[\177]", "1:2: a term expected, found character 127"}, {NULL, NULL},
	};
	for (size_t i = 0; pairs[i][0]; i++)
		check_text(pairs[i][0], LORG_TEXT_ERLANG, pairs[i][1]);
}
END_TEST

START_TEST(limits)
{
	struct lorg_terms terms;
	struct lorg_read_error error;
	char text[2 * LORG_NESTING_MAX + 16];
	lorg_terms_open(&terms);
	for (int depth = LORG_NESTING_MAX; depth <= LORG_NESTING_MAX + 1; depth++) {
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		bool good = lorg_read_term(&terms, text, 2 * (size_t)depth, NULL, &error) != LORG_NONE;
		ck_assert_int_eq(good, depth == LORG_NESTING_MAX);
		ck_assert_int_eq(error.system_limit, !good);
	}
	memset(text, 'a', 256);
	ck_assert(lorg_read_term(&terms, text, 255, NULL, &error) != LORG_NONE);
	ck_assert(lorg_read_term(&terms, text, 256, NULL, &error) == LORG_NONE && error.system_limit);
	lorg_terms_close(&terms);
}
END_TEST

START_TEST(positions_of_parts)
{
	static const char text[] = "[{b, #{z => 1,\n a => \"x\"}}\n |tail]";
	struct lorg_terms terms;
	struct lorg_positions positions = {0};
	struct lorg_read_error error;
	lorg_term head, tail;
	uint32_t arity, line, column;
	lorg_terms_open(&terms);
	lorg_term list = lorg_read_term(&terms, text, strlen(text), &positions, &error);
	ck_assert(list != LORG_NONE && positions.root == 0);
	ck_assert(lorg_get_cons(&terms, list, &head, &tail));
	ck_assert_uint_eq(lorg_positions_at(&positions, lorg_term_offset(list)), 1);
	ck_assert_str_eq(text + lorg_positions_at(&positions, lorg_term_offset(list) + 1), "tail]");
	lorg_term map = lorg_get_tuple(&terms, head, &arity)[1];
	uint32_t word = lorg_term_offset(map) + 1;
	ck_assert_int_eq(text[lorg_positions_at(&positions, lorg_term_offset(head) + 2)], '#');
	ck_assert_int_eq(text[lorg_positions_at(&positions, word)], 'a');
	ck_assert_int_eq(text[lorg_positions_at(&positions, word + 1)], 'z');
	ck_assert_int_eq(text[lorg_positions_at(&positions, word + 2)], '"');
	ck_assert_int_eq(text[lorg_positions_at(&positions, word + 3)], '1');
	lorg_text_position(text, strlen(text), lorg_positions_at(&positions, word + 2), &line, &column);
	ck_assert_uint_eq(line, 2);
	ck_assert_uint_eq(column, 7);
	lorg_positions_close(&positions);
	lorg_terms_close(&terms);
}
END_TEST

START_TEST(for_people)
{
	static const char *const pairs[][2] = {
		{"\"abc\"", "\"abc\""}, {"[104,195,169]", "\"hé\""}, {"[1,2]", "[1,2]"}, {"[]", "[]"}, {"<<\"abc\">>", "<<\"abc\">>"},
		{"<<233>>", "<<233>>"}, {"<<\"é\"/utf8>>", "<<\"é\"/utf8>>"}, {"<1.2.0>", "<1.2>"}, {"<1.2.3>", "<1.2.3>"},
		{"[97,960]", "\"aπ\""}, {"\"a\\nb\\\"\\e\"", "\"a\\nb\\\"\\e\""}, {"'π'", "'π'"}, {"{a,\"x\",<<97,1:2>>}", "{a,\"x\",<<97,1:2>>}"},
		{"#{a=>\"b\"}", "#{a => \"b\"}"}, {"[97|b]", "[97|b]"}, {"<<27,0>>", "<<27,0>>"}, {NULL, NULL},
	};
	for (size_t i = 0; pairs[i][0]; i++)
		check_text(pairs[i][0], LORG_TEXT_PEOPLE, pairs[i][1]);
}
END_TEST

START_TEST(floats_are_shortest)
{
	static const char *const texts[] = {"1.0e10", "9007199254740991.0", "9.007199254740992e15", "0.1", "0.001", "0.0001", "1.0e-5",
		"100.0", "1.0e3", "1.2e6", "123456.0", "0.0012345678", "5.0e-324", "1.7976931348623157e308", "2.2250738585072014e-308",
		"5.684341886080802e-14", "1.0e22", "1.0e23", "-0.0", "0.0", "9.5367431640625e-7", "4.35e300", "3.0e-3", NULL};
	char text[LORG_FLOAT_TEXT];
	for (size_t i = 0; texts[i]; i++) {
		lorg_float_text(strtod(texts[i], NULL), text);
		ck_assert_str_eq(text, strcmp(texts[i], "3.0e-3") == 0 ? "0.003" : texts[i]);
	}
	srand(7);
	for (int i = 0; i < 100000; i++) {
		uint64_t bits = (uint64_t)rand() << 62 ^ (uint64_t)rand() << 31 ^ (uint64_t)rand();
		/* Powers of two have an uneven surrounding. */
		if (i % 4 == 0)
			bits &= UINT64_C(0xfff) << 52;
		double value;
		memcpy(&value, &bits, sizeof value);
		if (value - value != 0)
			continue;
		lorg_float_text(value, text);
		ck_assert(strlen(text) < LORG_FLOAT_TEXT && strtod(text, NULL) == value && signbit(strtod(text, NULL)) == signbit(value));
	}
}
END_TEST

Suite *unit_suite(void)
{
	const TTest *const tests[] = {what_erlang_printed, syntax, errors_have_places, limits, positions_of_parts, for_people,
		floats_are_shortest};
	return unit_suite_of("term_text", tests, sizeof tests / sizeof tests[0], 60);
}
