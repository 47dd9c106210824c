/* SPDX-License-Identifier: MIT */
/*
 * plan.h: which functions of a module are hooked, and how: what the collector
 * has found out about an ELF file, for the programs that map it.
 *
 * Purpose. Everything that needs a disassembler, symbol tables or debug
 * information is done outside the traced program, once a module and node. What
 * runs inside only copies prepared bytes. So Capstone and elfutils are never
 * mapped into a stranger's process, and a plan serves programs that start with
 * lorg, libraries that are opened later, and programs that are attached to.
 *
 * Way of a plan. An image that has mapped modules posts a request each
 * (struct lorg_request, in its arena) and waits, bounded. The collector makes
 * the plan from the file (build-id, path) and its standing rules, or finds it
 * made, and answers with two memfds of its own that the image opens through
 * /proc/COLLECTOR/fd/N, maps and closes:
 *
 *   plan      sealed against writing; mapped read-only; the same for all images of a node
 *   control   one an arena and plan; written by both sides: what is asked of each function just now, and its counts
 *
 * A module that no rule names is answered with plan_size 0. Offsets named
 * "in the plan" are in bytes from its start. Both sides check each length and
 * offset when they map (the control is memory that a program may scribble on;
 * the plan is not).
 *
 * Function ids are node-wide: first_function + place in the table. The
 * collector tells each id in a HOOKED_FUNCTION event before any image gets the
 * plan. Ids below LORG_FIRST_HOOKED_FUNCTION are slots of an arena's table of
 * instrumented functions (abi.h).
 */
#ifndef LORG_PLAN_H
#define LORG_PLAN_H

#include <stdint.h>

enum {
	LORG_PLAN_MAGIC = 0x7067726c,	 /* "lrgp" */
	LORG_CONTROL_MAGIC = 0x6367726c, /* "lrgc" */
	LORG_FIRST_HOOKED_FUNCTION = 1 << 20,
	LORG_PLAN_FUNCTIONS = 1 << 20, /* of one module at most */
	LORG_REQUESTS = 256,	       /* slots of an arena */
	LORG_MOVED_MAXIMUM = 5,	       /* instructions that a patch of five bytes can replace */
	LORG_ENTRY_MAXIMUM = 40,       /* bytes of relocated entry code, the jump back not counted */
	LORG_CAPTURES = 16,	       /* arguments told of one call at most */
	LORG_ARITY_UNKNOWN = 255,      /* of a function whose signature nobody knows */
};

/* ---- requests ---------------------------------------------------------- */

enum lorg_request_state {
	LORG_REQUEST_FREE = 0,
	LORG_REQUEST_FILLING = 1, /* the image's, taken with a CAS from FREE */
	LORG_REQUEST_POSTED = 2,  /* the collector's */
	LORG_REQUEST_ANSWERED = 3, /* the image's again; it sets FREE */
	LORG_REQUEST_ABANDONED = 4, /* by the image, out of POSTED: it waits no longer; the collector sets FREE */
};

enum lorg_request_kind {
	LORG_REQUEST_PLAN = 1,	/* of the module at `base` */
	LORG_REQUEST_APPLY = 2, /* put the patches of plan `plan_id` into this image from outside, threads held: it has several */
};

struct lorg_request {
	uint32_t state; /* atomic; enum lorg_request_state; release when handed over, acquire when taken */
	uint32_t kind;
	uint32_t image; /* index of the image that asks */
	uint32_t build_id_length;
	uint8_t build_id[20];
	int32_t error; /* answer; errno, 0 done */
	uint64_t base; /* load bias of the module */
	uint64_t posted_tick;
	/* answer */
	int32_t plan_descriptor, control_descriptor; /* in the collector */
	uint64_t plan_size, control_size;	     /* bytes; 0: nothing to hook here */
	uint64_t plan_id;
	char path[424]; /* as /proc/PID/maps would name it */
};

/*
 * Where /proc/COLLECTOR/fd is out of reach, the collector's socket is told this, and answers with one byte and the two
 * descriptors. (Without a request, the socket is told the token itself: see the collector's door.)
 */
struct lorg_door_request {
	uint8_t token_complement[16];
	uint8_t arena_id[16];
	uint32_t request; /* its number */
};

/* ---- the plan ---------------------------------------------------------- */

struct lorg_plan {
	uint32_t magic; /* LORG_PLAN_MAGIC */
	uint16_t major, minor; /* as in abi.h */
	uint32_t size; /* of this structure */
	uint32_t function_count;
	uint64_t plan_size; /* bytes in all */
	uint64_t plan_id;   /* node-wide */
	uint32_t first_function; /* id of functions[0] */
	uint32_t slot_count;
	uint32_t build_id_length;
	uint8_t build_id[20];
	uint64_t text_start, text_end; /* least and greatest address of the module's code, without the load bias */
	uint64_t functions; /* in the plan; struct lorg_plan_function[function_count], by offset, ascending */
	uint64_t slots;	    /* in the plan; struct lorg_plan_slot[slot_count] */
	uint64_t code, code_size; /* in the plan; relocated entry code */
	uint64_t captures, captures_size; /* in the plan; struct lorg_capture and what they point to */
	uint64_t names, names_size; /* in the plan; zero-terminated symbol names, as the dynamic symbol table has them */
	char module[64];	    /* base name, zero-terminated */
};

/* How a function's entry can be hooked. */
enum lorg_entry_kind {
	LORG_ENTRY_NONE = 0,	 /* not by code: by slots alone */
	LORG_ENTRY_NOP = 1,	 /* one instruction of five bytes or more that does nothing, or a call to __fentry__: jumps over it */
	LORG_ENTRY_RELOCATE = 2, /* the instructions in `code` move */
};

enum lorg_plan_flag {
	LORG_PLAN_CODE = 1,	    /* hook the entry (local) */
	LORG_PLAN_SLOTS = 2,	    /* hook slots that lead to it (global) */
	LORG_PLAN_ENTRY_ONLY = 4,   /* no return stub: returns twice, looks at its return address, or others jump into it */
	LORG_PLAN_NO_RETURN = 16,   /* never returns */
	LORG_PLAN_NO_CALLER = 64,   /* where a return address would stand there is something else: the start of a program, ... */
	LORG_PLAN_STRUCT_RESULT = 32, /* first integer register is the address of the result */
};

struct lorg_plan_function {
	uint64_t offset; /* address of the entry without the load bias */
	uint32_t size;	 /* bytes of the function */
	uint32_t flags;	 /* enum lorg_plan_flag */
	uint8_t entry_kind; /* enum lorg_entry_kind */
	uint8_t skip;	 /* bytes at the entry that stay (endbr64) */
	uint8_t taken;	 /* bytes of whole instructions behind them that the patch replaces, at least 5 */
	uint8_t code_length; /* bytes of `code` */
	uint8_t fixup_count; /* places in `code` that depend on where it stands */
	uint8_t arity;	 /* LORG_ARITY_UNKNOWN: `arguments` leads to as many words as anybody may say that it has */
	uint8_t argument_count; /* of struct lorg_capture at `arguments` */
	uint8_t reserved;
	uint32_t code;	 /* in the code area */
	struct {
		uint8_t at;   /* of a 32-bit displacement in `code` */
		uint8_t from; /* the displacement counts from this byte of `code` (end of the instruction) */
		uint16_t reserved;
		int32_t target; /* what it leads to, less the function's `offset` */
	} fixup[4];
	uint32_t arguments, result; /* in the captures area + 1; 0: none */
	uint32_t name;	 /* in the names area; of the first dynamic symbol; UINT32_MAX: none */
	uint32_t original; /* the first 4 bytes at offset + skip, as the file has them */
	uint8_t original_rest[12]; /* and those behind them, `taken` in all (at most 16) */
	/* Where each instruction begins in `code`, and how far behind `skip` it stood: ascending. What does nothing has not moved. */
	struct {
		uint8_t code, original;
	} moved[LORG_MOVED_MAXIMUM];
	uint8_t moved_count;
};

/* A pointer of this module to a function of any module, that calls go through and nothing else reads. */
enum lorg_slot_kind { LORG_SLOT_JUMP = 1, LORG_SLOT_DATA = 2 /* GLOB_DAT whose every use is a call or jump */ };
struct lorg_plan_slot {
	uint64_t offset; /* of the slot, without the load bias */
	uint32_t name;	 /* in the names area: the symbol it is bound to */
	uint32_t version; /* in the names area; UINT32_MAX: none */
	uint32_t kind;	 /* enum lorg_slot_kind */
	uint32_t relocation; /* its place in the relocation table */
};

/* ---- values ------------------------------------------------------------ */

/* What a value is; how it becomes a term. */
enum lorg_form {
	LORG_FORM_NONE = 0,
	LORG_FORM_SIGNED = 1,
	LORG_FORM_UNSIGNED = 2,
	LORG_FORM_BOOL = 3,
	LORG_FORM_CHAR = 4,
	LORG_FORM_ENUM = 5,	 /* detail: struct lorg_enumerators */
	LORG_FORM_FLOAT = 6,	 /* size 4, 8, 16 (x87) */
	LORG_FORM_POINTER = 7,	 /* detail: struct lorg_members of what it points to, or 0 */
	LORG_FORM_CODE = 8,	 /* pointer to a function */
	LORG_FORM_STRING = 9,	 /* char * */
	LORG_FORM_STD_STRING = 10, /* std::string object at the address: pointer, length (libstdc++'s new layout) */
	LORG_FORM_STRING_VIEW = 11, /* length, pointer (libstdc++) */
	LORG_FORM_STRUCT = 12,	 /* detail: struct lorg_members */
	LORG_FORM_UNION = 13,	 /* bytes */
	LORG_FORM_ARRAY = 14,	 /* detail: one struct lorg_capture of the element, place MEMORY; count elements */
	LORG_FORM_VOID = 15,
	LORG_FORM_BUFFER = 16,	 /* pointer to bytes; their number is argument `count` - 1 (0-based), or the result where count is 0 */
	LORG_FORM_DESCRIPTOR = 17, /* int; people see the port */
	LORG_FORM_ERRNO_RESULT = 18, /* signed result; negative or -1 means errno is told too */
	LORG_FORM_FLAGS = 19,	 /* detail: struct lorg_enumerators, or'ed */
};

/* Where it stands when the call (or the return) is seen. */
enum lorg_place {
	LORG_PLACE_INTEGER = 1, /* index 0..5: rdi rsi rdx rcx r8 r9; as a result 0: rax, 1: rdx */
	LORG_PLACE_VECTOR = 2,	/* index 0..7: xmm0..7 */
	LORG_PLACE_STACK = 3,	/* offset from the first stack argument (8 above the return address) */
	LORG_PLACE_X87 = 4,	/* st0 (results) */
	LORG_PLACE_MEMORY = 5,	/* offset in the object that this is a member or element of */
	LORG_PLACE_PAIR = 6,	/* a struct in two registers: index low 4 bits and high 4 bits, 0..5 integer, 8..15 vector; results likewise */
	/* Integer register `index` holds the address of the object (passed by reference, or a result in memory); index 255: that address stands on the stack at `offset`. */
	LORG_PLACE_ADDRESS = 7,
	LORG_PLACE_ABSENT = 8,	/* optimised away or not known: told as such, never as a wrong value */
};

/*
 * STD_STRING: INTEGER and STACK hold the address of the object, in MEMORY it stands itself. STRING in MEMORY with a
 * count: a char array stands there. Integers in MEMORY with a count: a bit field, low 16 bits its first bit from
 * `offset` on, high 16 bits its width. Integers of 16 bytes: PAIR, MEMORY or STACK.
 */
struct lorg_capture {
	uint8_t form;	/* enum lorg_form */
	uint8_t place;	/* enum lorg_place */
	uint8_t index;
	uint8_t reserved;
	uint32_t size;	/* bytes of the value */
	int32_t offset;
	uint32_t count;
	uint32_t detail; /* in the captures area + 1; 0: none */
	uint32_t name;	 /* of the parameter or member, in the names area + 1; 0: none */
};

struct lorg_members {
	uint32_t name;	/* of the type (its tag), in the names area + 1; 0: none */
	uint32_t count;
	uint32_t size;	/* bytes of the object */
	uint32_t reserved;
	struct lorg_capture member[]; /* place MEMORY */
};

struct lorg_enumerators {
	uint32_t count;
	uint32_t reserved;
	struct {
		int64_t value;
		uint32_t name; /* in the names area + 1 */
		uint32_t reserved;
	} enumerator[]; /* by value, ascending */
};

/* ---- control ----------------------------------------------------------- */

/* What is asked of a function just now: bits of its gate, the union over sessions. 0: its patch may be taken out. */
enum lorg_call_gate {
	LORG_CALL_ENTRY = 1,	 /* the common record at the entry: CALL_ENTRY */
	LORG_CALL_RETURN = 2,	 /* the common record at the return: RETURN */
	LORG_CALL_VALUES = 4,	 /* CALL and RETURN_FROM with values: the long way */
	LORG_CALL_COUNT = 8,	 /* call_count */
	LORG_CALL_TIME = 16,	 /* call_time: needs the return */
	LORG_CALL_MEMORY = 32,	 /* call_memory: needs the return */
	LORG_CALL_FILTER = 64,	 /* depth, time, caller, limit, match specification or process flags: the long way decides */
	LORG_CALL_RETURN_TO = 128,
};

enum lorg_call_kind {
	LORG_KIND_GLOBAL = 1,
	LORG_KIND_LOCAL = 2,
	LORG_KIND_META = 4,
	LORG_KIND_COUNT = 8,
	LORG_KIND_TIME = 16,
	LORG_KIND_MEMORY = 32,
};

/* caller_high of a place that is kept for a caller in a module that may be loaded later; those behind it are free, too. */
#define LORG_CALLER_FREE (UINT64_MAX - 1)

/*
 * What one session asks of one function. Messages of its calls are asked for by LORG_CALL_ENTRY in `gate` (with VALUES: and
 * arguments), and by a kind that has the bit by which calls come to this entry of the plan: LORG_KIND_LOCAL or
 * LORG_KIND_GLOBAL; beside it LORG_KIND_META. A function's settings are all of session 0 (a private collector's: one
 * for each range of callers) or all of live sessions, at most two of each, whose functions have LORG_CALL_FILTER in their
 * own gate. Returns are told where `gate` has LORG_CALL_RETURN, or where the program says
 * return_trace or exception_trace (for which the function's own gate has it).
 */
struct lorg_call_setting {
	uint32_t session; /* slot; 0: a private collector's only one */
	uint32_t kind;	  /* enum lorg_call_kind bits; 0: unused */
	uint32_t gate;	  /* enum lorg_call_gate bits */
	/*
	 * Offset in the control of its match program (match.h; a multiple of 8); 0: none. It lives there, and not in the plan,
	 * since its ranges are addresses of this family's programs. Each image verifies it before its first use.
	 */
	uint32_t program;
	uint32_t next;	  /* index + 1 in settings[]; 0: last */
	uint32_t maximum_depth; /* of traced calls in each other; 0: any */
	uint64_t least_ticks;	/* only calls that took as long; 0: all */
	uint64_t limit_events;	/* then the function is switched off; 0: none */
	uint64_t limit_rate;	/* events a second; 0: none */
	uint64_t events;	/* atomic; so far */
	uint64_t window, window_events; /* of limit_rate: the image's; tick of the second under way, events in it */
	uint64_t caller_low, caller_high; /* return address must lie between (addresses of this image's module); 0: any */
	uint32_t declared; /* of a function of unknown arity: as many arguments as the session says, + 1; 0: it says nothing */
	uint32_t reserved;
};

struct lorg_function_control {
	uint32_t gate;	  /* atomic; enum lorg_call_gate bits; written by the collector, and by a limit that runs out (to 0) */
	uint32_t setting; /* index + 1 of the first in settings[]; 0: none */
};

/* In session_kind of CALL and CALL_DONE events: the last of their terms is what {message, V} has added. */
#define LORG_CALL_HAS_MESSAGE (1u << 31)
/* And: the process has the flag arity, so arguments are not told. */
#define LORG_CALL_NO_ARGUMENTS (1u << 30)
/* And, in these bits: `declared` of the setting that the event is told for. */
#define LORG_CALL_DECLARED_SHIFT 24
#define LORG_CALL_DECLARED_MASK (31u << LORG_CALL_DECLARED_SHIFT)

struct lorg_control {
	uint32_t magic; /* LORG_CONTROL_MAGIC */
	uint32_t size;	/* of this structure */
	uint32_t function_count;
	uint32_t setting_count;
	uint64_t control_size; /* bytes in all */
	uint64_t functions;    /* offset of struct lorg_function_control[function_count] */
	uint64_t settings;     /* offset of struct lorg_call_setting[setting_count] */
	uint32_t generation;   /* atomic; the collector adds one when settings changed */
	uint32_t idle;	       /* atomic; an image adds one when a limit has switched a function off: its bytes are to be put back */
	uint32_t live;	       /* 1: sessions of a lorgd switch gates at any time; bytes follow a moment later */
	uint32_t reserved;
};

/* ---- stubs -------------------------------------------------------------- */

/*
 * What an image places for a plan: memory within reach of the module's text that holds one stub a function, in the
 * order of the plan, without gaps:
 *
 *   thunk            LORG_THUNK_SIZE bytes; the patched entry, or a slot, leads here
 *   relocated entry  code_length bytes of `code` with its fixups, and a jump to offset + skip + taken   (LORG_ENTRY_RELOCATE)
 *
 * So both sides know where each stub stands. The patch itself is a jump of LORG_JUMP_SIZE bytes at offset + skip that
 * leads to the thunk, and 0xcc in what is left of `taken`.
 */
enum { LORG_THUNK_SIZE = 32, LORG_JUMP_SIZE = 5, LORG_STUB_ALIGNMENT = 16, LORG_TAKEN_MAXIMUM = 16, LORG_PATCH_FILL = 0xcc };

static inline int lorg_function_is_relocated(const struct lorg_plan_function *function)
{
	return (function->flags & LORG_PLAN_CODE) && function->entry_kind == LORG_ENTRY_RELOCATE;
}

/* Bytes that the stub of a function takes. */
static inline uint32_t lorg_stub_size(const struct lorg_plan_function *function)
{
	uint32_t size = LORG_THUNK_SIZE;
	if (lorg_function_is_relocated(function))
		size += function->code_length + (uint32_t)LORG_JUMP_SIZE;
	return (size + LORG_STUB_ALIGNMENT - 1) & ~(uint32_t)(LORG_STUB_ALIGNMENT - 1);
}

/*
 * The patch of an entry at address `at` (offset + skip + base), `taken` bytes (5 to LORG_TAKEN_MAXIMUM), that leads to
 * `thunk`. `bytes` has room for LORG_TAKEN_MAXIMUM. False where the thunk is out of reach.
 */
static inline int lorg_patch_bytes(uint8_t *bytes, uint64_t at, uint32_t taken, uint64_t thunk)
{
	int64_t distance = (int64_t)(thunk - (at + LORG_JUMP_SIZE));
	if (distance != (int32_t)distance || taken < LORG_JUMP_SIZE || taken > LORG_TAKEN_MAXIMUM)
		return 0;
	bytes[0] = 0xe9;
	for (int i = 0; i < 4; i++)
		bytes[1 + i] = (uint8_t)((uint64_t)distance >> 8 * i);
	for (uint32_t i = LORG_JUMP_SIZE; i < taken; i++)
		bytes[i] = LORG_PATCH_FILL;
	return 1;
}

/* The byte at offset + skip + index, as the file has it; index < taken. */
static inline uint8_t lorg_original_byte(const struct lorg_plan_function *function, uint32_t index)
{
	return index < 4 ? (uint8_t)(function->original >> 8 * index) : function->original_rest[index - 4];
}

/* ---- placements --------------------------------------------------------- */

/*
 * What has been placed where, in the memory of the program itself: a fork child has it as its parent had, another
 * program after exec has it not. The arena's header has its address (one for all images of a family). The collector
 * reads it through /proc/PID/mem when it switches patches from outside, and believes nothing of it.
 */
enum { LORG_PLACEMENTS_MAGIC = 0x7067726d, /* "mrgp" */ LORG_PLACEMENTS = 1024 };

enum lorg_placement_state {
	LORG_PLACEMENT_FREE = 0,
	LORG_PLACEMENT_PLACED = 1,   /* stubs and slots stand, entries as their gates were */
	LORG_PLACEMENT_UNLOADED = 2, /* the module is gone; its stubs stay for who may be inside */
};

struct lorg_placement {
	uint32_t state; /* atomic; enum lorg_placement_state; stored last (release) */
	uint32_t function_count;
	uint64_t plan_id;
	uint64_t base;	  /* load bias */
	uint64_t stubs;	  /* address of the first stub; 0: there are none */
	uint64_t stubs_size; /* bytes */
	uint64_t marks;	  /* address of one byte a function: enum lorg_stub_mark */
	uint64_t slots;	  /* address of struct lorg_slot_change[slot_count]; of this module's slots */
	uint32_t slot_count; /* atomic, release */
	uint32_t reserved;
};

enum lorg_stub_mark {
	LORG_STUB_STANDS = 1, /* its thunk may be led to */
	LORG_STUB_CODE = 2,   /* from the entry too: the call goes on behind the patch */
	LORG_STUB_INNER = 4,  /* liblorg.so stands at the entry itself, and leads all calls here once it has seen them */
};

/* A slot that has been changed. */
struct lorg_slot_change {
	uint64_t address;
	uint64_t original; /* what it led to, or leads to once it is bound */
	uint64_t unbound;  /* what it led to when it was not bound yet; 0: it was */
	uint64_t thunk;
	uint64_t plan_id;  /* of the function, which may be another module's */
	uint32_t function; /* its place in that plan */
	uint32_t also;	   /* another of that plan that calls through it come to, too: its place + 1; 0: none */
};

struct lorg_placements {
	uint32_t magic; /* LORG_PLACEMENTS_MAGIC */
	uint32_t size;	/* of one entry */
	uint32_t count; /* atomic; entries in use, release */
	uint32_t reserved;
	struct lorg_placement entry[LORG_PLACEMENTS];
};

_Static_assert(sizeof(struct lorg_request) == 512, "lorg_request");
_Static_assert(sizeof(struct lorg_capture) == 24, "lorg_capture");
_Static_assert(sizeof(struct lorg_function_control) == 8, "lorg_function_control");

#endif
