/* SPDX-License-Identifier: MIT */
/* matchspec.c: lorg matchspec test. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/match/tester.h"

struct options {
	const char *batch, *term, *specification, *condition;
	int table;
};

enum option_key { KEY_TABLE = 256, KEY_BATCH, KEY_IF };

static const struct argp_option test_options[] = {
	{"table", KEY_TABLE, NULL, 0, "TERM is any term, and the result is the body's last value", 1},
	{"if", KEY_IF, "CONDITION", 0, "Instead of SPEC, a condition in the short form", 1},
	{"batch", KEY_BATCH, "FILE", 0, "Test every line of FILE: id, kind (trace or table), TERM, SPEC, separated by tabs", 2},
	{0},
};

static const char test_arguments[] = "TERM SPEC\nTERM --if CONDITION\n--batch FILE";
static const char test_help[] =
	"Evaluates a match specification on a term, as erlang:match_spec_test/3 does, and prints the result: {ok,Result,Flags,[]}. "
	"Nothing is traced or changed."
	"\vTERM is the list of a call's arguments. With --batch each line gives one line: id, ok or badarg, result, flags.\n\n"
	"  lorg matchspec test '[1,2]' \"[{['\\$1','\\$2'],[{'>','\\$2','\\$1'}],[{message,'\\$_'}]}]\"\n"
	"  lorg matchspec test '[\"/etc/passwd\",0]' --if 'arg0 =:= \"/etc/passwd\" andalso arg1 band 3 == 0'\n";

static const char matchspec_arguments[] = "test [OPTION...] ...";
static const char matchspec_help[] =
	"Tries match specifications: what decides, inside a traced program, which calls and messages are recorded."
	"\vlorg matchspec test --help tells how. A specification is [{Head,Guards,Body},...]:\n\n"
	"Head      a list with a pattern for each argument: '_', variables '$1', '$2', ..., terms; or '_' or a variable for all\n"
	"Guards    [] or expressions that have to be true\n"
	"Body      [] or actions\n"
	"Values    '$1', '$_' (all arguments), '$$' (all variables), {const,T}, {{E,...}} (a tuple), lists, maps, calls {Function,E,...}\n\n"
	"Functions   + - * / div rem band bor bxor bnot bsl bsr, == /= =:= =/= < =< > >=, and or xor not andalso orelse, "
	"is_atom is_binary is_bitstring is_boolean is_float is_function is_integer is_list is_map is_number is_pid is_port "
	"is_record/3 is_reference is_tuple, abs binary_part bit_size byte_size ceil element float floor hd is_map_key length map_get "
	"map_size max min node round self size tl trunc tuple_size; get_tcw is_seq_trace\n\n"
	"Actions   message return_trace exception_trace silent trace enable_trace disable_trace set_tcw process_dump display "
	"caller caller_line current_stacktrace set_seq_token get_seq_token\n\n"
	"doc/MATCH.md describes them, and the short form for --if.\n";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case KEY_TABLE: options->table = 1; return 0;
	case KEY_BATCH: options->batch = argument; return 0;
	case KEY_IF: options->condition = argument; return 0;
	case ARGP_KEY_ARG:
		if (options->specification) {
			lorg_error(argument, "one term and one specification are enough", "see lorg matchspec test --help");
			exit(EXIT_STATUS_USAGE);
		}
		if (options->term)
			options->specification = argument;
		else
			options->term = argument;
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_nothing(int key, char *argument, struct argp_state *state)
{
	(void)key, (void)argument, (void)state;
	return ARGP_ERR_UNKNOWN;
}

static const struct argp test_argp = {test_options, parse_option, test_arguments, test_help, NULL, NULL, NULL};
static const struct argp matchspec_argp = {NULL, parse_nothing, matchspec_arguments, matchspec_help, NULL, NULL, NULL};

/* ---- errors ------------------------------------------------------------------- */

static void say_errors(const char *what, const struct match_errors *errors)
{
	char text[400];
	for (uint32_t i = 0; i < errors->count; i++) {
		match_error_text(&errors->list[i], text, sizeof text);
		lorg_error(what, text, errors->list[i].advice);
	}
	if (errors->left_out) {
		snprintf(text, sizeof text, "%u more errors", errors->left_out);
		lorg_error(what, text, "mend those above first");
	}
}

static int no_memory(const char *what)
{
	lorg_error(what, "there is no memory for it", "use smaller terms");
	return EXIT_STATUS_FAILURE;
}

/* ---- one test -------------------------------------------------------------------- */

static void say_displayed(const char *text)
{
	lorg_error("display", text, NULL);
}

static int test_one(const struct options *options)
{
	const struct match_tester tester = {.display = say_displayed};
	struct match_errors errors = {0};
	struct match_test_result result;
	const char *specification = options->condition ? options->condition : options->specification;
	enum match_tested tested = match_test(&tester, options->term, specification, options->condition != NULL, options->table, &result, &errors);
	if (tested == MATCH_TESTED)
		printf("{ok,%s,%s,[]}\n", result.value, match_test_flags(&result));
	else if (tested == MATCH_TEST_NO_MEMORY)
		no_memory("match specification");
	else
		say_errors(tested == MATCH_TEST_BAD_TERM ? "term" : options->condition ? "condition" : "match specification", &errors);
	free(result.value);
	match_errors_close(&errors);
	int status = lorg_flush_output();
	return tested != MATCH_TESTED ? EXIT_STATUS_FAILURE : status;
}

/* ---- many tests -------------------------------------------------------------------- */

/* Lines that are no tests: so many are named, and the others tested all the same. More: this is no file of tests. */
enum { BROKEN_LINES_MAX = 20 };

enum column { COLUMN_ID, COLUMN_KIND, COLUMN_TERM, COLUMN_SPECIFICATION, COLUMNS };

/* Cuts the line at its tabs. */
static bool split(char *line, char *columns[COLUMNS])
{
	char *rest = line;
	for (int i = 0; i < COLUMNS; i++)
		if (!(columns[i] = strsep(&rest, "\t")))
			return false;
	return strcmp(columns[COLUMN_KIND], "trace") == 0 || strcmp(columns[COLUMN_KIND], "table") == 0;
}

static enum match_tested test_line(char *columns[COLUMNS])
{
	const struct match_tester tester = {.corpus_form = true};
	struct match_errors errors = {0};
	struct match_test_result result;
	enum match_tested tested = match_test(&tester, columns[COLUMN_TERM], columns[COLUMN_SPECIFICATION], false,
					      strcmp(columns[COLUMN_KIND], "table") == 0, &result, &errors);
	if (tested == MATCH_TESTED)
		printf("%s\tok\t%s\t%s\n", columns[COLUMN_ID], result.value, match_test_flags(&result));
	else if (tested != MATCH_TEST_NO_MEMORY)
		printf("%s\tbadarg\t-\t-\n", columns[COLUMN_ID]);
	free(result.value);
	match_errors_close(&errors);
	return tested;
}

static int bad_line(const char *file, unsigned number)
{
	char why[64];
	snprintf(why, sizeof why, "line %u is no test", number);
	lorg_error(file, why, "write id, trace or table, a term, a specification, separated by tabs");
	return EXIT_STATUS_FAILURE;
}

static int test_lines(const char *file, FILE *in)
{
	char *line = NULL, *columns[COLUMNS];
	size_t room = 0;
	ssize_t length;
	int status = 0;
	unsigned broken = 0;
	for (unsigned number = 1; broken < BROKEN_LINES_MAX && (length = getline(&line, &room, in)) >= 0; number++) {
		if (length > 0 && line[length - 1] == '\n')
			line[--length] = '\0';
		if (length == 0 || line[0] == '#')
			continue;
		if (strlen(line) != (size_t)length || !split(line, columns)) {
			status = bad_line(file, number);
			broken++;
		} else if (test_line(columns) == MATCH_TEST_NO_MEMORY) {
			status = no_memory(columns[COLUMN_ID]);
		}
	}
	free(line);
	if (ferror(in)) {
		lorg_error(file, strerror(errno), "name a file of tests");
		return EXIT_STATUS_FAILURE;
	}
	int flushed = lorg_flush_output();
	return status ? status : flushed;
}

static int test_batch(const char *file)
{
	FILE *in = strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
	if (!in) {
		lorg_error(file, strerror(errno), "name a file of tests");
		return EXIT_STATUS_FAILURE;
	}
	int status = test_lines(file, in);
	if (in != stdin)
		fclose(in);
	return status;
}

/* ---- the command ----------------------------------------------------------------------- */

static int command_test(int argc, char **argv)
{
	struct options options = {0};
	command_parse(&test_argp, argc, argv, &options);
	if (options.batch && !options.term && !options.condition && !options.table)
		return test_batch(options.batch);
	if (options.batch || !options.term || !options.specification == !options.condition) {
		lorg_error("lorg matchspec test", options.batch ? "--batch goes alone" : "a term and one specification are needed",
			   "see lorg matchspec test --help");
		return EXIT_STATUS_USAGE;
	}
	if (options.condition && options.table) {
		lorg_error("--if", "a condition is about a call's arguments", "leave --table out");
		return EXIT_STATUS_USAGE;
	}
	return test_one(&options);
}

int command_matchspec(int argc, char **argv)
{
	static char name[] = "lorg matchspec test";
	if (argc > 1 && strcmp(argv[1], "test") == 0) {
		argv[1] = name;
		return command_test(argc - 1, argv + 1);
	}
	if (argc > 1 && argv[1][0] == '-')
		command_parse(&matchspec_argp, argc, argv, NULL);
	lorg_error(argc > 1 ? argv[1] : "lorg matchspec", argc > 1 ? "no such command" : "no command given",
		   "lorg matchspec test TERM SPEC; see lorg matchspec --help");
	return EXIT_STATUS_USAGE;
}
