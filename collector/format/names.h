/* SPDX-License-Identifier: MIT */
/*
 * names.h: names for what events hold as numbers: functions, addresses, hooks,
 * signals, errors, drivers, socket addresses. Texts live as long as the struct
 * names, those of struct place with `buffer` as long as the place.
 */
#ifndef LORG_FORMAT_NAMES_H
#define LORG_FORMAT_NAMES_H

#include "collector/format/output.h"
#include "collector/read/trace.h"
#include "collector/symbol/symbol.h"

#include <lorg/plan.h>

struct names;

struct names *names_new(const struct trace *trace);
void names_free(struct names *names);
/*
 * Names of another trace from now on, or of the same with other numbers; symbols that were read stay. What was returned
 * before is no longer valid.
 */
void names_bind(struct names *names, const struct trace *trace);
struct symbols *names_symbols(struct names *names);

/* Where an address is. */
struct place {
	const char *module;   /* base name; "?" unknown */
	const char *function; /* "+0x1a2b" (offset in the module) where there is no name */
	const char *raw_name; /* as in the file; "" when there is none */
	const char *source;   /* NULL unknown */
	int line;             /* 0 unknown */
	uint64_t offset;      /* from the function's start */
	int named;            /* 1: function is a name */
	int arity;            /* -1 unknown, or (of an address) not asked for */
};

/* The number of arguments that a CALL's session has said, where nobody else knows it. -1: unknown. */
static inline int names_call_arity(int known, uint32_t session_kind)
{
	uint32_t declared = (session_kind & LORG_CALL_DECLARED_MASK) >> LORG_CALL_DECLARED_SHIFT;
	return known < 0 && declared ? (int)declared - 1 : known;
}

/* What else is asked of an address. */
enum { PLACE_LINE = 1 /* source and line */, PLACE_ARITY = 2 /* of its function: shipped prototypes, else debug information */ };

/* An address in an image at a tick. want: PLACE_* bits. Valid until the next call. */
const struct place *names_address(struct names *names, const struct trace_image *image, uint64_t address, uint64_t tick, int want);

/* A return address: the place of the call before it. A call may be the last instruction of its function. */
const struct place *names_caller(struct names *names, const struct trace_image *image, uint64_t address, uint64_t tick, int want);

/* The function in a slot; never NULL: an untold slot is named by its number. Valid until the next call. */
const struct place *names_function(struct names *names, const struct trace_image *image, uint32_t slot, uint64_t tick);

/* Hook: {library, name, arity}; name "hook-N" where it was never told. */
struct hook_name {
	const char *library, *name;
	uint32_t arity;
	char buffer[16];
};
void names_hook(struct names *names, uint32_t hook, struct hook_name *name);

/* Whether what a hook waits on is an address (a lock); else it is a descriptor or a pid. */
int names_waits_on_address(struct names *names, uint32_t hook, uint64_t object);

const char *names_driver(uint32_t driver);
const char *names_birth(uint32_t birth);
/* "SIGTERM", "SIGRTMIN+2", "signal 99"; buffer of 24 bytes. */
const char *names_signal(uint32_t signal, char buffer[24]);
/* "ENOENT", "error 999"; buffer of 24 bytes. */
const char *names_error(uint32_t error, char buffer[24]);

/* A struct sockaddr as people write it: 10.0.0.7:80, [::1]:80, /run/x.sock, @abstract. Plain bytes, not escaped. */
size_t names_socket_address(const void *address, size_t length, char *to, size_t size);

/* trace(3)'s name of a port command: "command", "call", ...; "0" for none. */
const char *names_port_command(uint32_t command);

/* What people call a program: base name of its argv[0], else of its file. */
struct trace_text program_name(const struct trace_image *image);
struct trace_text base_name(struct trace_text path);

/*
 * A type as exceptions name it (the name of its type_info), for people. The caller's to free; NULL: there is none, or no
 * memory.
 */
char *names_type(struct trace_text mangled);

/* How calls are left: EXCEPTION_FROM's kind, 0 throw, 1 pthread_exit, 2 longjmp, 3 cancelled. */
const char *names_left(uint32_t kind);

/* First item of zero-separated texts; advances *rest. 0: none left. */
int next_argument(struct trace_text *rest, struct trace_text *argument);

/* Whether an event is about the recording itself (images, modules, hooks, ...), not about what the program did. */
int event_is_about_recording(uint32_t id);

/* An exit that the collector saw without its reason: the reason, where somebody waited for it. */
void event_exit(const struct trace_event *event, struct lorg_event_EXIT *gone);

/* The name in a REGISTER or UNREGISTER: of a queue that loses it, the one it was opened by. Empty: it is an address. */
struct trace_text event_registered(const struct trace *trace, const struct trace_event *event);

/* The tag under which an event is printed. */
const char *event_tag(const struct event_view *view);
/* The same as the side has it that it is told of: what a process sends, its port receives. */
const char *event_side_tag(const struct trace_event *event);

#endif
