/* SPDX-License-Identifier: MIT */
/*
 * term.h: how terms are encoded in events (the fields called `terms` of events.h).
 *
 * A blob is a sequence of terms, one after another, to its end. Each is in Erlang's External Term Format, without the
 * leading 131: a tag byte, then what belongs to it, all numbers big-endian. Used of it are the tags below up to 120, in
 * the meaning that the Erlang documentation gives them, with these conventions:
 *
 *   NEW_PID    node (an atom, '' for the own node), thread, number of the process in it, program
 *   NEW_PORT   node, descriptor, program: a port that was written with two parts
 *   V4_PORT    node, generation << 32 | descriptor, program
 *   NEWER_REFERENCE  count, node (''), first number as printed, then the other numbers, the last one first
 *
 * Tags from 200 are lorg's own. Readers that want an Erlang term take them as said in brackets.
 *
 *   CODE_ADDRESS        u64: an address in the program's code [{M,F,A} by symbol; an integer without]
 *   POINTER             u64; people see hexadecimal [integer]
 *   POINTER_TO          u64, then the term it points to; terms inside hold no POINTER_TO [integer]
 *   POINTER_UNREADABLE  u64: should have been followed and could not be [integer]
 *   TEXT                u16 length, so many bytes: a string of the program; people see "..." [list of bytes]
 *   CUT_STRING          u64 true length in bytes, u32 length, so many bytes: the beginning of a string
 *                       [{cut, String, TrueLength}]
 *   CUT_BINARY          the same of a binary [{cut, Binary, TrueLength}]
 *   NAMED_TUPLE         u32 count, tag atom ('' if the struct has none), then count times: member name (atom, '' if it
 *                       has none), value [{Tag, Value...}]
 *   CHARACTER           u32 code; people see 'c' [integer]
 *   CODE_LINE           u64: the same, with the line that stands there [{M,F,A,{File,Line}}, undefined for what is not known]
 *   FUN_TEXT            u16 length, so many bytes: an opaque fun, as text between #Fun< and >
 *   FLAGS               u64: bits, then u16 length, so many bytes: their names, as people see them: O_WRONLY|O_CREAT [integer]
 *
 * A reader that meets a tag it does not know stops there: what follows has no known length.
 */
#ifndef LORG_TERM_H
#define LORG_TERM_H

enum lorg_external_tag {
	LORG_EXTERNAL_FLOAT = 70,
	LORG_EXTERNAL_BIT_BINARY = 77,
	LORG_EXTERNAL_PID = 88,
	LORG_EXTERNAL_PORT = 89,
	LORG_EXTERNAL_REFERENCE = 90,
	LORG_EXTERNAL_SMALL_INTEGER = 97,
	LORG_EXTERNAL_INTEGER = 98,
	LORG_EXTERNAL_SMALL_TUPLE = 104,
	LORG_EXTERNAL_LARGE_TUPLE = 105,
	LORG_EXTERNAL_NIL = 106,
	LORG_EXTERNAL_STRING = 107,
	LORG_EXTERNAL_LIST = 108,
	LORG_EXTERNAL_BINARY = 109,
	LORG_EXTERNAL_SMALL_BIG = 110,
	LORG_EXTERNAL_LARGE_BIG = 111,
	LORG_EXTERNAL_EXPORT = 113,
	LORG_EXTERNAL_MAP = 116,
	LORG_EXTERNAL_ATOM = 118,
	LORG_EXTERNAL_SMALL_ATOM = 119,
	LORG_EXTERNAL_V4_PORT = 120,

	LORG_EXTERNAL_CODE_ADDRESS = 200,
	LORG_EXTERNAL_POINTER = 201,
	LORG_EXTERNAL_POINTER_TO = 202,
	LORG_EXTERNAL_POINTER_UNREADABLE = 203,
	LORG_EXTERNAL_CUT_STRING = 204,
	LORG_EXTERNAL_CUT_BINARY = 205,
	LORG_EXTERNAL_NAMED_TUPLE = 206,
	LORG_EXTERNAL_CHARACTER = 207,
	LORG_EXTERNAL_FUN_TEXT = 208,
	LORG_EXTERNAL_TEXT = 209,
	LORG_EXTERNAL_CODE_LINE = 210,
	LORG_EXTERNAL_FLAGS = 211,
};

#endif
