/* SPDX-License-Identifier: MIT */
/*
 * exception.c: C++ throw, rethrow and catch, by the entry points of the
 * Itanium C++ ABI. The types that are told are mangled names.
 *
 * The frames here stand between the thrower and the unwinder: this file needs
 * unwind tables, and no cleanup of its own ever has to run.
 *
 * The real function is the next one in search order; one that was loaded later,
 * by dlopen, is found when it is first needed. Where plug-ins have brought more
 * than one C++ runtime, each throws and catches by its own.
 */
#include <stdlib.h>

#include "preload/call/call.h"
#include "preload/hook.h"
#include "preload/hooks/exception.h"
#include "preload/hooks/scope.h"
#include "preload/resolve/resolve.h"

/* The head of every std::type_info. */
struct type_information {
	const void *methods;
	const char *name; /* mangled; a '*' before it says that it is unique by address */
};

/* What precedes _Unwind_Exception in the exceptions of both runtimes (their layouts agree from the end backwards). */
struct exception_header {
	const struct type_information *type; /* libstdc++, of a dependent one: the primary exception's object */
	void *destructor, *unexpected, *terminate, *next;
	int handler_count, switch_value;
	const void *action, *data;
	void *catch_temporary, *adjusted;
};

struct unwind_header {
	uint64_t class; /* vendor and language, as text from the high byte down; low byte 1: a dependent exception */
	void *cleanup;
	uintptr_t private_1, private_2;
};

_Static_assert(sizeof(struct exception_header) == 80 && sizeof(struct unwind_header) == 32, "the ABI's layout");

#define CLASS_GNU   0x474e5543432b2bull /* "GNUCC++" */
#define CLASS_CLANG 0x434c4e47432b2bull /* "CLNGC++" */

static const struct exception_header *header_of(const struct unwind_header *exception)
{
	return (const void *)((const char *)exception - sizeof(struct exception_header));
}

/* The exception whose object is at this address. */
static const struct unwind_header *unwind_of(const void *object)
{
	return (const void *)((const char *)object - sizeof(struct unwind_header));
}

static int is_gnu(const struct unwind_header *exception)
{
	return exception->class >> 8 == CLASS_GNU;
}

static int is_native(const struct unwind_header *exception)
{
	return is_gnu(exception) || exception->class >> 8 == CLASS_CLANG;
}

/* ---- types ---- */

/* Types whose names have been read without a fault: read again they need no system call. Relaxed: each entry is a whole. */
static const struct type_information *readable[64];

static const struct type_information **readable_entry(const struct type_information *type)
{
	return &readable[(uintptr_t)type * 0x9e3779b97f4a7c15u >> 58];
}

static int is_known(const struct type_information *type)
{
	return __atomic_load_n(readable_entry(type), __ATOMIC_RELAXED) == type;
}

static int is_readable(const struct type_information *type)
{
	struct type_information copy;
	if (!type || is_known(type))
		return type != 0;
	if (memory_peek(&copy, type, sizeof copy) != sizeof copy || !memory_peek_text(copy.name))
		return 0;
	__atomic_store_n(readable_entry(type), type, __ATOMIC_RELAXED);
	return 1;
}

/* The mangled name, without bytes where it cannot be read. */
static struct event_bytes type_name(const struct type_information *type)
{
	struct event_bytes bytes = {0, 0};
	if (!is_readable(type))
		return bytes;
	bytes.data = type->name + (type->name[0] == '*');
	bytes.length = (uint32_t)text_length(bytes.data, LORG_TEXT_MAXIMUM);
	return bytes;
}

struct event_bytes exception_type_name(const void *type)
{
	return type_name(type);
}

/* What follows the head in the type_info of a class with one base, at the same address, or with several (the ABI). */
struct one_base {
	struct type_information head;
	const struct type_information *base;
};
struct several_bases {
	struct type_information head;
	uint32_t flags, count;
};
struct base {
	const struct type_information *type;
	int64_t offset_and_flags; /* offset << 8; flag 1: virtual */
};
enum { BASES = 8, BASE_DEPTH = 8, SLOT_WHAT = 2 };

/* The name of a type's own class: what stands before the table of its functions is that class's type_info. */
static int is_of_class(const struct type_information *type, const char *name)
{
	const struct type_information *class = 0;
	return memory_peek(&class, (const struct type_information *const *)type->methods - 1, sizeof class) == sizeof class &&
	       is_readable(class) && text_equal(class->name + (class->name[0] == '*'), name);
}

static int64_t exception_offset(const struct type_information *type, int depth);

static int64_t offset_in_several(const struct type_information *type, int depth)
{
	struct several_bases head;
	struct base bases[BASES];
	if (memory_peek(&head, type, sizeof head) != sizeof head || head.count > BASES ||
	    memory_peek(bases, (const struct several_bases *)type + 1, head.count * (uint32_t)sizeof *bases) != head.count * sizeof *bases)
		return -1;
	for (uint32_t i = 0; i < head.count; i++) {
		int64_t inner = bases[i].offset_and_flags & 1 ? -1 : exception_offset(bases[i].type, depth + 1);
		if (inner >= 0)
			return (bases[i].offset_and_flags >> 8) + inner;
	}
	return -1;
}

/* Where in an object of this type its std::exception stands; -1: nowhere, or in a virtual base. */
static int64_t exception_offset(const struct type_information *type, int depth)
{
	struct one_base one;
	if (depth > BASE_DEPTH || !is_readable(type))
		return -1;
	if (text_equal(type->name + (type->name[0] == '*'), "St9exception"))
		return 0;
	if (is_of_class(type, "N10__cxxabiv121__vmi_class_type_infoE"))
		return offset_in_several(type, depth);
	if (!is_of_class(type, "N10__cxxabiv120__si_class_type_infoE") || memory_peek(&one, type, sizeof one) != sizeof one)
		return -1;
	return exception_offset(one.base, depth + 1);
}

/* The loaded object with the highest base not above the address. */
static const struct link_map *object_around(const void *address)
{
	const struct link_map *best = 0;
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		if (object->l_addr <= (uintptr_t)address && (!best || object->l_addr > best->l_addr))
			best = object;
	return best;
}

static int is_of_runtime(const void *code)
{
	const struct link_map *object = object_around(code);
	return object && object != link_map_own() && symbol_find_in(object, "__cxa_begin_catch", "", 0);
}

struct event_bytes exception_what(const void *object, const void *type)
{
	struct event_bytes what = {0, 0};
	int64_t offset = object ? exception_offset(type, 0) : -1;
	const void *part = (const char *)object + offset;
	const void *const *methods;
	const void *code;
	if (offset < 0 || memory_peek(&methods, part, sizeof methods) != sizeof methods ||
	    memory_peek(&code, methods + SLOT_WHAT, sizeof code) != sizeof code || !is_of_runtime(code))
		return what;
	what.data = ((const char *(*)(const void *))(uintptr_t)code)(part);
	what.length = memory_peek_text(what.data);
	return what;
}

/* The thread, when the call is to be told. */
static struct thread *teller(uint32_t hook)
{
	struct thread *self = hook_gate(hook) & LORG_GATE_CALL ? thread_self() : 0;
	return self && !self->busy && (hook_gate_of(self, hook) & LORG_GATE_CALL) ? self : 0;
}

/* ---- runtimes ---- */

/* 1: more than one is loaded. Relaxed: set by the first throw of a type that only the second one's users have. */
static uint32_t several_runtimes;

/* The real function for a caller. */
static void *real_for(uint32_t hook, const void *caller)
{
	void *found = 0;
	if (__builtin_expect(__atomic_load_n(&several_runtimes, __ATOMIC_RELAXED), 0))
		found = scope_find(hook_table[hook].name, (uintptr_t)caller);
	return found ? found : hook_real(hook);
}

/* A type that was not thrown before may have come with a runtime that was not there before. */
static void note_type(const struct type_information *type)
{
	if (__builtin_expect(!is_known(type), 0))
		__atomic_store_n(&several_runtimes, scope_count("__cxa_throw") > 1, __ATOMIC_RELAXED);
}

/* ---- throw ---- */

static void tell_throw(struct thread *self, uint32_t hook, const void *object, const struct type_information *type,
		       const void *caller)
{
	struct event_bytes name = type_name(type);
	struct lorg_event_THROW event = {
		.object = (uintptr_t)object, .caller = (uintptr_t)caller, .hook = hook, .type_length = name.length};
	event_write(self, LORG_EVENT_THROW, &event, sizeof event, &name, 1, 0);
}

void hook___cxa_throw(void *object, void *type, void (*destructor)(void *))
{
	struct thread *self = teller(HOOK___cxa_throw);
	const void *caller = __builtin_return_address(0);
	note_type(type);
	if (self) {
		if (self->rethrown == unwind_of(object)) /* the same memory, a new exception */
			self->rethrown = 0;
		tell_throw(self, HOOK___cxa_throw, object, type, caller);
	}
	if (call_targets_exist() && thread_self())
		call_raised(thread_self(), (uintptr_t)__builtin_frame_address(0), object, type);
	((hook_type___cxa_throw)real_for(HOOK___cxa_throw, caller))(object, type, destructor);
	__builtin_unreachable();
}

/* A thread's exceptions, newest first; the same beginning in both runtimes. */
struct exception_globals {
	const void *caught;
};

typedef struct exception_globals *globals_function(void);

/* __cxa_get_globals of the only runtime. Relaxed: all who look for it store the same. */
static globals_function *cached_globals;

/* That of the runtime of this __cxa_rethrow. */
static globals_function *find_globals(const void *rethrow)
{
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		if (symbol_find_in(object, "__cxa_rethrow", "", 0) == rethrow)
			return (globals_function *)symbol_find_in(object, "__cxa_get_globals", "", 0);
	return 0;
}

static struct exception_globals *exception_globals(const void *rethrow)
{
	int several = (int)__atomic_load_n(&several_runtimes, __ATOMIC_RELAXED);
	globals_function *function = several ? 0 : __atomic_load_n(&cached_globals, __ATOMIC_RELAXED);
	if (!function)
		function = find_globals(rethrow);
	if (!several)
		__atomic_store_n(&cached_globals, function, __ATOMIC_RELAXED);
	return function ? function() : 0;
}

void exceptions_unloaded(void)
{
	__atomic_store_n(&cached_globals, (globals_function *)0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < sizeof readable / sizeof *readable; i++)
		__atomic_store_n(&readable[i], (const struct type_information *)0, __ATOMIC_RELAXED);
}

/*
 * What a rethrow throws again: the newest exception caught. libc++abi's list points sixteen bytes further down than
 * libstdc++'s, to fields of its own. NULL: none, or a foreign one.
 */
static const struct unwind_header *caught_exception(const void *rethrow)
{
	const struct exception_globals *globals = exception_globals(rethrow);
	const char *caught = globals ? (const char *)globals->caught : 0;
	if (!caught)
		return 0;
	for (int i = 0; i < 2; i++) {
		const struct unwind_header *exception = (const void *)(caught + sizeof(struct exception_header) + i * 16);
		if (is_native(exception))
			return exception;
	}
	return 0;
}

/* The object and type of an exception, through a dependent one (std::exception_ptr) to the primary. */
static const void *object_of(const struct unwind_header *exception, const struct type_information **type)
{
	const void *object = exception + 1;
	const struct exception_header *header = header_of(exception);
	*type = header->type;
	if (is_gnu(exception) && (exception->class & 0xff) == 1) {
		object = header->type;
		*type = header_of(unwind_of(object))->type;
	}
	return object;
}

void hook___cxa_rethrow(void)
{
	struct thread *self = teller(HOOK___cxa_rethrow);
	const void *caller = __builtin_return_address(0);
	void *real = real_for(HOOK___cxa_rethrow, caller);
	if (self) {
		const struct unwind_header *exception = caught_exception(real);
		const struct type_information *type = 0;
		const void *object = exception ? object_of(exception, &type) : 0;
		self->rethrown = exception;
		tell_throw(self, HOOK___cxa_rethrow, object, type, caller);
	}
	if (call_targets_exist() && thread_self()) {
		const struct unwind_header *exception = caught_exception(real);
		const struct type_information *type = 0;
		const void *object = exception ? object_of(exception, &type) : 0;
		call_raised(thread_self(), (uintptr_t)__builtin_frame_address(0), object, type);
	}
	((hook_type___cxa_rethrow)real)();
	__builtin_unreachable();
}

/* ---- catch ---- */

static void tell_catch(struct thread *self, const struct unwind_header *exception, const void *caller)
{
	const struct type_information *type = 0;
	const void *object = exception;
	if (is_native(exception))
		object = object_of(exception, &type);
	struct event_bytes name = type_name(type);
	uint16_t id = LORG_EVENT_CATCH;
	if (self->rethrown == exception) {
		id = LORG_EVENT_CATCH_AGAIN;
		self->rethrown = 0;
	}
	struct lorg_event_CATCH event = {.object = (uintptr_t)object,
					 .caller = (uintptr_t)caller,
					 .hook = HOOK___cxa_begin_catch,
					 .type_length = name.length};
	event_write(self, id, &event, sizeof event, &name, 1, 0);
}

void *hook___cxa_begin_catch(void *object)
{
	struct thread *self = teller(HOOK___cxa_begin_catch);
	const void *caller = __builtin_return_address(0);
	if (call_targets_exist() && thread_self())
		call_caught(thread_self(), (uintptr_t)__builtin_frame_address(0) + 16, (uintptr_t)caller);
	if (self)
		tell_catch(self, object, caller);
	return ((hook_type___cxa_begin_catch)real_for(HOOK___cxa_begin_catch, caller))(object);
}
