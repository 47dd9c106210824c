/* SPDX-License-Identifier: MIT */
/*
 * match.h: the byte code of match specifications.
 *
 * The contract between the compiler (collector/match, outside) and the evaluator (preload/match, inside the traced
 * program and in `lorg matchspec test`). A program is one block of memory that holds offsets only, so it can stand
 * anywhere:
 *
 *   | head | code: instructions of 8 bytes | constants: words of 8 bytes | ranges: pairs of addresses |
 *
 * Constants are terms as preload/term/term.h describes them, and the words that they refer to.
 *
 * The machine has a stack of terms, variables, and the arguments (or the one object) that it matches. Clauses stand one
 * after another. LORG_MATCH_CLAUSE starts one and tells where the next starts: there evaluation goes on when a head does
 * not match or a guard does not hold; behind the last clause nothing matches. Jumps go forward only, within the clause:
 * so evaluation takes no more steps than there are instructions, besides the work on large terms.
 *
 * A call that fails means in the head and the guards: the clause does not hold. Behind LORG_MATCH_BODY it puts the atom
 * 'EXIT' on the stack in place of its value.
 *
 * Trust. The program stands in memory that the traced program can write to. It is verified once, where sizes are copied
 * out of the head; after that each operand is checked when it is used. An instruction that makes no sense ends the
 * evaluation with no match. All zero is LORG_MATCH_STOP.
 *
 * Little endian, explicitly sized. Majors that differ refuse each other; a higher minor adds operations and functions,
 * which an older evaluator refuses when it verifies.
 */
#ifndef LORG_MATCH_H
#define LORG_MATCH_H

#include <stdint.h>

enum {
	LORG_MATCH_MAGIC = 0x6d67726c, /* "lrgm" */
	LORG_MATCH_MAJOR = 1,
	LORG_MATCH_MINOR = 0,
};

/* What one evaluation inside a traced program may take. */
enum {
	LORG_MATCH_STEPS = 10000,	  /* instructions and words looked at */
	LORG_MATCH_SCRATCH = 64 * 1024,	  /* bytes of scratch memory, stack and variables included */
	LORG_MATCH_SCRATCH_WORDS = LORG_MATCH_SCRATCH / 8,
	LORG_MATCH_INSTRUCTIONS = 10000,  /* a program */
	LORG_MATCH_STACK = 2048,	  /* words of stack and variables */
	LORG_MATCH_ARGUMENTS = 0x7fff,
};

/* What is matched, and which functions are allowed. */
enum lorg_match_dialect {
	LORG_DIALECT_TABLE = 1,	/* one object: match_spec_test(_, _, table) */
	LORG_DIALECT_CALL = 2,	/* the list of a call's arguments */
	LORG_DIALECT_SEND = 3,	/* [Receiver, Msg] */
	LORG_DIALECT_RECEIVE = 4, /* [Node, Sender, Msg] */
};

/* What a program may do, so that hooks can prepare only what is needed (struct lorg_match_head.needs). */
enum {
	LORG_MATCH_NEEDS_ALL_ARGUMENTS = 1 << 0, /* '$_', or more than the first 64 */
	LORG_MATCH_NEEDS_RETURN = 1 << 1,	 /* return_trace or exception_trace */
	LORG_MATCH_NEEDS_CALLER = 1 << 2,	 /* caller, caller_line, or a comparison with it */
	LORG_MATCH_NEEDS_STACK = 1 << 3,	 /* current_stacktrace, process_dump */
	LORG_MATCH_NEEDS_ACTIONS = 1 << 4,	 /* changes something: flags, silent, tcw, token */
	LORG_MATCH_NEEDS_MEMORY = 1 << 5,	 /* loads from addresses (the short form) */
};

struct lorg_match_head {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t size;	       /* bytes of all, this head included; a multiple of 8 */
	uint32_t code_offset;  /* bytes from the start of the head; multiples of 8 */
	uint32_t code_words;   /* instructions */
	uint32_t constant_offset;
	uint32_t constant_words;
	uint32_t range_offset;
	uint32_t ranges;       /* struct lorg_match_range */
	uint16_t variables;
	uint16_t clauses;
	uint32_t stack;	       /* words */
	uint32_t dialect;      /* enum lorg_match_dialect */
	uint32_t needs;
	uint32_t number;       /* 0, or where other programs may stand at this address later: one that none of those has */
	uint64_t arguments;    /* bit i: argument i is looked at */
};

/* Addresses from first to last, both included. */
struct lorg_match_range {
	uint64_t first, last;
};

/* An instruction: operation in bits 0 to 7, a in 8 to 15, b in 16 to 31, c in 32 to 63. */
typedef uint64_t lorg_match_instruction;

static inline lorg_match_instruction lorg_match_instruction_of(uint8_t operation, uint8_t a, uint16_t b, uint32_t c)
{
	return (uint64_t)c << 32 | (uint64_t)b << 16 | (uint64_t)a << 8 | operation;
}

static inline uint8_t lorg_match_operation_of(lorg_match_instruction instruction)
{
	return (uint8_t)instruction;
}

static inline uint8_t lorg_match_a(lorg_match_instruction instruction)
{
	return (uint8_t)(instruction >> 8);
}

static inline uint16_t lorg_match_b(lorg_match_instruction instruction)
{
	return (uint16_t)(instruction >> 16);
}

static inline uint32_t lorg_match_c(lorg_match_instruction instruction)
{
	return (uint32_t)(instruction >> 32);
}

/* Operand b where it names a value: a variable, or with this bit an argument. */
#define LORG_MATCH_SLOT_ARGUMENT 0x8000u

/* "pop x, y": x was on top. */
enum lorg_match_operation {
	LORG_MATCH_STOP = 0,
	LORG_MATCH_CLAUSE,	  /* c: index of the instruction that starts the next clause, or of the end */
	/* head: what does not match ends the clause */
	LORG_MATCH_HEAD_COUNT,	  /* c: the number of arguments */
	LORG_MATCH_BIND,	  /* pop, into variable b */
	LORG_MATCH_SAME,	  /* pop; =:= value b */
	LORG_MATCH_LITERAL,	  /* pop; =:= constant c; with a == 1 a float that has its sign as well */
	LORG_MATCH_TAKE_TUPLE,	  /* pop a tuple of c elements, push them, the first on top */
	LORG_MATCH_TAKE_CONS,	  /* pop a cell, push its tail, push its head */
	LORG_MATCH_TAKE_MAP,	  /* on top is a map; stays */
	LORG_MATCH_TAKE_KEY,	  /* on top is a map; push what its key, constant c, has */
	LORG_MATCH_POP,
	/* guards */
	LORG_MATCH_GUARD,	  /* pop; is true */
	LORG_MATCH_GUARD_COMPARE, /* a: enum lorg_match_compare; value b with constant c */
	LORG_MATCH_GUARD_TEST,	  /* a: enum lorg_match_function, a type test; of value b */
	LORG_MATCH_BODY,	  /* from here calls that fail are 'EXIT' */
	/* expressions */
	LORG_MATCH_PUSH,	  /* value b */
	LORG_MATCH_CONSTANT,	  /* push constant c */
	LORG_MATCH_OBJECT,	  /* push '$_' */
	LORG_MATCH_TUPLE,	  /* pop c elements, the first on top; push the tuple */
	LORG_MATCH_LIST,	  /* pop c elements and a tail, which is on top; push the list */
	LORG_MATCH_MAP,		  /* pop c values, the first on top, under c keys, likewise; push the map; the last of equal keys counts */
	LORG_MATCH_COMPARE,	  /* a: enum lorg_match_compare; pop x, y; push whether x compares so to y */
	LORG_MATCH_CALL,	  /* a: enum lorg_match_function; b: how many arguments, the first on top; push the value */
	LORG_MATCH_AND_ALSO,	  /* true: pop. false: jump to c. Anything else fails, behind which the value is at c */
	LORG_MATCH_OR_ELSE,	  /* the other way round */
	LORG_MATCH_CALLER_IN,	  /* push whether the caller is in one of b ranges from c on; a: enum below */
	LORG_MATCH_WORD,	  /* push argument b as it stands in its register or stack slot: an unsigned integer */
	LORG_MATCH_LOAD,	  /* a: enum lorg_match_load; pop an address, add c (signed), push what stands there; b: length */
	/* ends of a clause */
	LORG_MATCH_ACCEPT,	  /* trace: matched */
	LORG_MATCH_RETURN,	  /* table: pop the result */
	LORG_MATCH_OPERATIONS
};

enum lorg_match_compare {
	LORG_MATCH_LESS = 0,
	LORG_MATCH_LESS_OR_EQUAL,
	LORG_MATCH_GREATER,
	LORG_MATCH_GREATER_OR_EQUAL,
	LORG_MATCH_EQUAL,
	LORG_MATCH_NOT_EQUAL,
	LORG_MATCH_EXACTLY,
	LORG_MATCH_NOT_EXACTLY,
	LORG_MATCH_COMPARISONS
};

/* Bits of operand a of LORG_MATCH_CALLER_IN. */
enum {
	LORG_MATCH_CALLER_NOT = 1,	 /* push the opposite */
	LORG_MATCH_CALLER_UNDEFINED = 2, /* it is also in when there is none */
};

enum lorg_match_load {
	LORG_MATCH_LOAD_UNSIGNED_8 = 0,
	LORG_MATCH_LOAD_UNSIGNED_16,
	LORG_MATCH_LOAD_UNSIGNED_32,
	LORG_MATCH_LOAD_UNSIGNED_64,
	LORG_MATCH_LOAD_SIGNED_8,
	LORG_MATCH_LOAD_SIGNED_16,
	LORG_MATCH_LOAD_SIGNED_32,
	LORG_MATCH_LOAD_SIGNED_64,
	LORG_MATCH_LOAD_BOOLEAN, /* one byte */
	LORG_MATCH_LOAD_FLOAT_32,
	LORG_MATCH_LOAD_FLOAT_64,
	LORG_MATCH_LOAD_STRING, /* a char * that stands there: the string it points to; b is not used */
	LORG_MATCH_LOAD_TEXT,	/* a string in an array of b bytes (65535: or more) that begins there */
	LORG_MATCH_LOAD_ADDRESS, /* nothing is loaded: the sum itself */
	LORG_MATCH_LOADS
};

/*
 * Functions and actions. The numbers are part of the contract. Their names, arities and where they are allowed stand in
 * preload/match/functions.c.
 */
enum lorg_match_function {
	LORG_MATCH_FUNCTION_NONE = 0,
	/* type tests of one argument, which never fail: in this order up to LORG_MATCH_TYPE_TESTS */
	LORG_MATCH_IS_ATOM,
	LORG_MATCH_IS_BINARY,
	LORG_MATCH_IS_BITSTRING,
	LORG_MATCH_IS_BOOLEAN,
	LORG_MATCH_IS_FLOAT,
	LORG_MATCH_IS_FUNCTION,
	LORG_MATCH_IS_INTEGER,
	LORG_MATCH_IS_LIST,
	LORG_MATCH_IS_MAP,
	LORG_MATCH_IS_NUMBER,
	LORG_MATCH_IS_PID,
	LORG_MATCH_IS_PORT,
	LORG_MATCH_IS_REFERENCE,
	LORG_MATCH_IS_TUPLE,
	LORG_MATCH_TYPE_TESTS,
	/* other functions of guards */
	LORG_MATCH_IS_RECORD,
	LORG_MATCH_IS_MAP_KEY,
	LORG_MATCH_MAP_GET,
	LORG_MATCH_MAP_SIZE,
	LORG_MATCH_ELEMENT,
	LORG_MATCH_TUPLE_SIZE,
	LORG_MATCH_HD,
	LORG_MATCH_TL,
	LORG_MATCH_LENGTH,
	LORG_MATCH_SIZE,
	LORG_MATCH_BIT_SIZE,
	LORG_MATCH_BYTE_SIZE,
	LORG_MATCH_BINARY_PART,
	LORG_MATCH_NODE,
	LORG_MATCH_SELF,
	LORG_MATCH_AND,
	LORG_MATCH_OR,
	LORG_MATCH_XOR,
	LORG_MATCH_NOT,
	LORG_MATCH_ADD,
	LORG_MATCH_SUBTRACT,
	LORG_MATCH_MULTIPLY,
	LORG_MATCH_DIVIDE,
	LORG_MATCH_DIV,
	LORG_MATCH_REM,
	LORG_MATCH_BAND,
	LORG_MATCH_BOR,
	LORG_MATCH_BXOR,
	LORG_MATCH_BNOT,
	LORG_MATCH_BSL,
	LORG_MATCH_BSR,
	LORG_MATCH_ABS,
	LORG_MATCH_FLOAT,
	LORG_MATCH_ROUND,
	LORG_MATCH_TRUNC,
	LORG_MATCH_FLOOR,
	LORG_MATCH_CEIL,
	LORG_MATCH_MAX,
	LORG_MATCH_MIN,
	LORG_MATCH_GET_TCW,
	LORG_MATCH_IS_SEQ_TRACE,
	/* actions */
	LORG_MATCH_MESSAGE,
	LORG_MATCH_RETURN_TRACE,
	LORG_MATCH_EXCEPTION_TRACE,
	LORG_MATCH_SILENT,
	LORG_MATCH_TRACE,
	LORG_MATCH_ENABLE_TRACE,
	LORG_MATCH_DISABLE_TRACE,
	LORG_MATCH_SET_TCW,
	LORG_MATCH_PROCESS_DUMP,
	LORG_MATCH_DISPLAY,
	LORG_MATCH_CALLER,
	LORG_MATCH_CALLER_LINE,
	LORG_MATCH_CURRENT_STACKTRACE,
	LORG_MATCH_SET_SEQ_TOKEN,
	LORG_MATCH_GET_SEQ_TOKEN,
	LORG_MATCH_FUNCTIONS
};

/* Process flags, as the actions trace, enable_trace and disable_trace hand them on. */
enum {
	LORG_TRACE_SEND = 1 << 0,
	LORG_TRACE_RECEIVE = 1 << 1,
	LORG_TRACE_PROCS = 1 << 2,
	LORG_TRACE_PORTS = 1 << 3,
	LORG_TRACE_CALL = 1 << 4,
	LORG_TRACE_SILENT = 1 << 5,
	LORG_TRACE_RETURN_TO = 1 << 6,
	LORG_TRACE_ARITY = 1 << 7,
	LORG_TRACE_RUNNING = 1 << 8,
	LORG_TRACE_RUNNING_PROCS = 1 << 9,
	LORG_TRACE_RUNNING_PORTS = 1 << 10,
	LORG_TRACE_EXITING = 1 << 11,
	LORG_TRACE_GARBAGE_COLLECTION = 1 << 12,
	LORG_TRACE_TIMESTAMP = 1 << 13,
	LORG_TRACE_MONOTONIC_TIMESTAMP = 1 << 14,
	LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP = 1 << 15,
	LORG_TRACE_SET_ON_SPAWN = 1 << 16,
	LORG_TRACE_SET_ON_FIRST_SPAWN = 1 << 17,
	LORG_TRACE_SET_ON_LINK = 1 << 18,
	LORG_TRACE_SET_ON_FIRST_LINK = 1 << 19,
	LORG_TRACE_ALL = (1 << 20) - 1, /* what the flag all stands for */
	LORG_TRACE_CPU_TIMESTAMP = 1 << 20, /* of a session as a whole: all of its processes have it */
	/* Those that actions can set. Any may be taken away: which is nothing for a flag that is not set. */
	LORG_TRACE_SUPPORTED = LORG_TRACE_ALL,
};

/* The flags that processes have to have so that ports can be told as `of_ports` asks: what a port sends, somebody receives. */
static inline uint32_t lorg_flags_by_ports(uint32_t of_ports)
{
	uint32_t flags = of_ports & (LORG_TRACE_PORTS | LORG_TRACE_RUNNING_PORTS);
	flags |= of_ports & LORG_TRACE_SEND ? (uint32_t)LORG_TRACE_RECEIVE : 0;
	return flags | (of_ports & LORG_TRACE_RECEIVE ? (uint32_t)LORG_TRACE_SEND : 0);
}

/* Parts of a token, the items of set_seq_token. */
enum lorg_token_item {
	LORG_TOKEN_LABEL = 0,
	LORG_TOKEN_SERIAL,
	LORG_TOKEN_SEND,
	LORG_TOKEN_RECEIVE,
	LORG_TOKEN_PRINT,
	LORG_TOKEN_TIMESTAMP,
	LORG_TOKEN_MONOTONIC_TIMESTAMP,
	LORG_TOKEN_STRICT_MONOTONIC_TIMESTAMP,
	LORG_TOKEN_ITEMS
};

#endif
