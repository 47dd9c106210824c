/* SPDX-License-Identifier: MIT */
/* functions.c: the table of functions and actions. Names stand in it whole: a table without pointers needs no relocation. */
#include "preload/match/functions.h"

#include <stddef.h>

enum {
	ANY = FUNCTION_EVERYWHERE,
	TRACE_BODY = FUNCTION_IN_CALL | FUNCTION_IN_SEND | FUNCTION_IN_RECEIVE,
	TRACE_GUARD = FUNCTION_IN_GUARD | TRACE_BODY,
	NOT_RECEIVE = FUNCTION_IN_CALL | FUNCTION_IN_SEND,
	NOT_RECEIVE_GUARD = FUNCTION_IN_GUARD | NOT_RECEIVE,
	ONLY_CALL = FUNCTION_IN_CALL,
	ENDLESS = FUNCTION_ARGUMENTS_ENDLESS,
	RETURN = LORG_MATCH_NEEDS_RETURN,
	CALLER = LORG_MATCH_NEEDS_CALLER,
	STACK = LORG_MATCH_NEEDS_STACK,
	ACTIONS = LORG_MATCH_NEEDS_ACTIONS,
};

static const struct lorg_match_function_info functions[LORG_MATCH_FUNCTIONS] = {
	[LORG_MATCH_IS_ATOM] = {"is_atom", 1, 1, ANY, 0},
	[LORG_MATCH_IS_BINARY] = {"is_binary", 1, 1, ANY, 0},
	[LORG_MATCH_IS_BITSTRING] = {"is_bitstring", 1, 1, ANY, 0},
	[LORG_MATCH_IS_BOOLEAN] = {"is_boolean", 1, 1, ANY, 0},
	[LORG_MATCH_IS_FLOAT] = {"is_float", 1, 1, ANY, 0},
	[LORG_MATCH_IS_FUNCTION] = {"is_function", 1, 1, ANY, 0},
	[LORG_MATCH_IS_INTEGER] = {"is_integer", 1, 1, ANY, 0},
	[LORG_MATCH_IS_LIST] = {"is_list", 1, 1, ANY, 0},
	[LORG_MATCH_IS_MAP] = {"is_map", 1, 1, ANY, 0},
	[LORG_MATCH_IS_NUMBER] = {"is_number", 1, 1, ANY, 0},
	[LORG_MATCH_IS_PID] = {"is_pid", 1, 1, ANY, 0},
	[LORG_MATCH_IS_PORT] = {"is_port", 1, 1, ANY, 0},
	[LORG_MATCH_IS_REFERENCE] = {"is_reference", 1, 1, ANY, 0},
	[LORG_MATCH_IS_TUPLE] = {"is_tuple", 1, 1, ANY, 0},
	[LORG_MATCH_IS_RECORD] = {"is_record", 3, 3, ANY, 0},
	[LORG_MATCH_IS_MAP_KEY] = {"is_map_key", 2, 2, ANY, 0},
	[LORG_MATCH_MAP_GET] = {"map_get", 2, 2, ANY, 0},
	[LORG_MATCH_MAP_SIZE] = {"map_size", 1, 1, ANY, 0},
	[LORG_MATCH_ELEMENT] = {"element", 2, 2, ANY, 0},
	[LORG_MATCH_TUPLE_SIZE] = {"tuple_size", 1, 1, ANY, 0},
	[LORG_MATCH_HD] = {"hd", 1, 1, ANY, 0},
	[LORG_MATCH_TL] = {"tl", 1, 1, ANY, 0},
	[LORG_MATCH_LENGTH] = {"length", 1, 1, ANY, 0},
	[LORG_MATCH_SIZE] = {"size", 1, 1, ANY, 0},
	[LORG_MATCH_BIT_SIZE] = {"bit_size", 1, 1, ANY, 0},
	[LORG_MATCH_BYTE_SIZE] = {"byte_size", 1, 1, ANY, 0},
	[LORG_MATCH_BINARY_PART] = {"binary_part", 2, 3, ANY, 0},
	[LORG_MATCH_NODE] = {"node", 0, 1, ANY, 0},
	[LORG_MATCH_SELF] = {"self", 0, 0, ANY, 0},
	[LORG_MATCH_AND] = {"and", 1, ENDLESS, ANY, 0},
	[LORG_MATCH_OR] = {"or", 1, ENDLESS, ANY, 0},
	[LORG_MATCH_XOR] = {"xor", 2, 2, ANY, 0},
	[LORG_MATCH_NOT] = {"not", 1, 1, ANY, 0},
	[LORG_MATCH_ADD] = {"+", 1, 2, ANY, 0},
	[LORG_MATCH_SUBTRACT] = {"-", 1, 2, ANY, 0},
	[LORG_MATCH_MULTIPLY] = {"*", 2, 2, ANY, 0},
	[LORG_MATCH_DIVIDE] = {"/", 2, 2, ANY, 0},
	[LORG_MATCH_DIV] = {"div", 2, 2, ANY, 0},
	[LORG_MATCH_REM] = {"rem", 2, 2, ANY, 0},
	[LORG_MATCH_BAND] = {"band", 2, 2, ANY, 0},
	[LORG_MATCH_BOR] = {"bor", 2, 2, ANY, 0},
	[LORG_MATCH_BXOR] = {"bxor", 2, 2, ANY, 0},
	[LORG_MATCH_BNOT] = {"bnot", 1, 1, ANY, 0},
	[LORG_MATCH_BSL] = {"bsl", 2, 2, ANY, 0},
	[LORG_MATCH_BSR] = {"bsr", 2, 2, ANY, 0},
	[LORG_MATCH_ABS] = {"abs", 1, 1, ANY, 0},
	[LORG_MATCH_FLOAT] = {"float", 1, 1, ANY, 0},
	[LORG_MATCH_ROUND] = {"round", 1, 1, ANY, 0},
	[LORG_MATCH_TRUNC] = {"trunc", 1, 1, ANY, 0},
	[LORG_MATCH_FLOOR] = {"floor", 1, 1, ANY, 0},
	[LORG_MATCH_CEIL] = {"ceil", 1, 1, ANY, 0},
	[LORG_MATCH_MAX] = {"max", 2, 2, ANY, 0},
	[LORG_MATCH_MIN] = {"min", 2, 2, ANY, 0},
	[LORG_MATCH_GET_TCW] = {"get_tcw", 0, 0, TRACE_GUARD, 0},
	[LORG_MATCH_IS_SEQ_TRACE] = {"is_seq_trace", 0, 0, NOT_RECEIVE_GUARD, 0},
	[LORG_MATCH_MESSAGE] = {"message", 1, 1, TRACE_BODY, 0},
	[LORG_MATCH_RETURN_TRACE] = {"return_trace", 0, 0, TRACE_BODY, RETURN},
	[LORG_MATCH_EXCEPTION_TRACE] = {"exception_trace", 0, 0, TRACE_BODY, RETURN},
	[LORG_MATCH_SILENT] = {"silent", 1, 1, NOT_RECEIVE, ACTIONS},
	[LORG_MATCH_TRACE] = {"trace", 2, 3, NOT_RECEIVE, ACTIONS},
	[LORG_MATCH_ENABLE_TRACE] = {"enable_trace", 1, 2, NOT_RECEIVE, ACTIONS},
	[LORG_MATCH_DISABLE_TRACE] = {"disable_trace", 1, 2, NOT_RECEIVE, ACTIONS},
	[LORG_MATCH_SET_TCW] = {"set_tcw", 1, 1, TRACE_BODY, ACTIONS},
	[LORG_MATCH_PROCESS_DUMP] = {"process_dump", 0, 0, NOT_RECEIVE, STACK},
	[LORG_MATCH_DISPLAY] = {"display", 1, 1, TRACE_BODY, 0},
	[LORG_MATCH_CALLER] = {"caller", 0, 0, ONLY_CALL, CALLER},
	[LORG_MATCH_CALLER_LINE] = {"caller_line", 0, 0, ONLY_CALL, CALLER},
	[LORG_MATCH_CURRENT_STACKTRACE] = {"current_stacktrace", 0, 1, ONLY_CALL, STACK},
	[LORG_MATCH_SET_SEQ_TOKEN] = {"set_seq_token", 2, 2, NOT_RECEIVE, ACTIONS},
	[LORG_MATCH_GET_SEQ_TOKEN] = {"get_seq_token", 0, 0, NOT_RECEIVE, 0},
};

static const char comparisons[LORG_MATCH_COMPARISONS][4] = {"<", "=<", ">", ">=", "==", "/=", "=:=", "=/="};

const struct lorg_match_function_info *lorg_match_function_info(uint32_t function)
{
	if (function >= LORG_MATCH_FUNCTIONS || functions[function].name[0] == '\0')
		return NULL;
	return &functions[function];
}

bool lorg_match_function_allowed(uint32_t function, uint32_t dialect, uint32_t arguments, bool body)
{
	const struct lorg_match_function_info *info = lorg_match_function_info(function);
	if (!info || dialect < LORG_DIALECT_TABLE || dialect > LORG_DIALECT_RECEIVE)
		return false;
	if (arguments < info->least || (arguments > info->greatest && info->greatest != FUNCTION_ARGUMENTS_ENDLESS))
		return false;
	return (info->where & FUNCTION_IN_TABLE << (dialect - LORG_DIALECT_TABLE)) && (body || info->where & FUNCTION_IN_GUARD);
}

const char *lorg_match_compare_name(uint32_t compare)
{
	return compare < LORG_MATCH_COMPARISONS ? comparisons[compare] : NULL;
}
