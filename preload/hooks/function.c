/* SPDX-License-Identifier: MIT */
/*
 * function.c: calls that the compiler announces: -finstrument-functions
 * (__cyg_profile_*) and -qfunctrace (__func_trace_*).
 *
 * The common path is inline and calls nothing: the gate, the thread, the slot
 * of the function at its home in the arena's table, one event of eight bytes
 * with one reading of the clock.
 *
 * A function gets its slot, and its FUNCTION event, when it is first met; the
 * slots belong to all images of the family, which have the same addresses.
 * Two threads that meet it at once may both tell it: what must not happen is
 * that none has when one of them dies.
 *
 * The program's own __cyg_profile_* and __func_trace_* are called afterwards,
 * where they stand behind ours in search order. user_data is never touched.
 */
#include <link.h>

#include "preload/core/flags.h"
#include "preload/core/module.h"
#include "preload/hook.h"
#include "preload/patch/patch.h"
#include "preload/hooks/exception.h"
#include "preload/resolve/resolve.h"

enum { PROBES = 64, NO_SLOT = -1 };

/* ---- the table of functions ---- */

static inline uint32_t home_slot(uint64_t key)
{
	/* Multiplicative hash; the table has 2^16 slots. */
	_Static_assert(LORG_FUNCTIONS == 1 << 16, "the shift below");
	return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 48);
}

static inline struct lorg_function *function_at(uint32_t slot)
{
	return the_arena.functions + slot;
}

/* True when the slot is this function's and has been told: nothing is to be done but the event. */
static inline int is_known(const struct lorg_function *function, uint64_t key)
{
	/* Acquire on the key: pairs with the CAS of whoever took the slot. */
	return __atomic_load_n(&function->key, __ATOMIC_ACQUIRE) == key &&
	       __atomic_load_n(&function->told, __ATOMIC_RELAXED);
}

/*
 * Functions known by address that this image has met: address << 16 | slot in one word, so that a reader never has one
 * function's address and another's slot. A cache of the table, nearer and shorter to look at. Relaxed atomics.
 */
enum { MET = 4096 };
static uint64_t met[MET];

static inline uint64_t *met_at(uint64_t address)
{
	return &met[address / 16 % MET]; /* functions begin at multiples of 16 */
}

/* The slot of a function that has been met and told; else LORG_FUNCTIONS or more. */
static inline uint64_t met_slot(uint64_t address)
{
	_Static_assert(LORG_FUNCTIONS == 1 << 16, "a slot takes sixteen bits");
	return __atomic_load_n(met_at(address), __ATOMIC_RELAXED) ^ address << 16;
}

static void note_met(uint64_t address, uint32_t slot)
{
	if (address >> 48 == 0 && !the_arena.live) /* else it is none, or each call is looked at twice */
		__atomic_store_n(met_at(address), address << 16 | slot, __ATOMIC_RELAXED);
}

/* The slot of a key, taken if it is new; NO_SLOT when the table is full around its home. */
static int32_t find_slot(uint64_t key)
{
	for (uint32_t probe = 0; probe < PROBES; probe++) {
		uint32_t slot = (home_slot(key) + probe) % LORG_FUNCTIONS;
		struct lorg_function *function = function_at(slot);
		uint64_t seen = __atomic_load_n(&function->key, __ATOMIC_ACQUIRE);
		if (!seen && __atomic_compare_exchange_n(&function->key, &seen, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return (int32_t)slot;
		if (seen == key)
			return (int32_t)slot;
	}
	return NO_SLOT;
}

/* ---- the next definition ---- */

enum next_index { NEXT_CYG_ENTER, NEXT_CYG_EXIT, NEXT_TRACE_ENTER, NEXT_TRACE_EXIT, NEXT_TRACE_CATCH, NEXT_COUNT };

static const char *const next_names[NEXT_COUNT] = {"__cyg_profile_func_enter", "__cyg_profile_func_exit",
						   "__func_trace_enter", "__func_trace_exit", "__func_trace_catch"};

/* What stands behind us: NULL not looked for, &nothing nothing. Relaxed: all who look store the same. */
static void *next_functions[NEXT_COUNT];
static const char nothing;

/* libc's own __cyg_profile_* do nothing. */
static int is_of_libc(const char *name, void *function)
{
	const struct link_map *libc = object_find("libc.so.6");
	return libc && symbol_find_in(libc, name, "", 0) == function;
}

static __attribute__((noinline, cold)) void *find_next(enum next_index index)
{
	const char *name = next_names[index];
	const struct link_map *own = link_map_own();
	void *found = own ? symbol_find(own, name, "") : 0;
	if (!found || is_of_libc(name, found))
		found = (void *)&nothing;
	__atomic_store_n(&next_functions[index], found, __ATOMIC_RELAXED);
	return found;
}

/* The next definition, or NULL. */
static inline void *next_function(enum next_index index)
{
	void *next = __atomic_load_n(&next_functions[index], __ATOMIC_RELAXED);
	if (!next)
		next = find_next(index);
	return next == (const void *)&nothing ? 0 : next;
}

/*
 * An object that defines them may have been loaded since, by dlopen; its first announced call is one of a function
 * not met before. libc always has the __cyg_profile_*, before anything that is loaded later.
 */
static void look_for_next_again(void)
{
	for (int i = NEXT_TRACE_ENTER; i < NEXT_COUNT; i++)
		if (__atomic_load_n(&next_functions[i], __ATOMIC_RELAXED) == (const void *)&nothing)
			__atomic_store_n(&next_functions[i], (void *)0, __ATOMIC_RELAXED);
}

/* What was found in an object that came by dlopen may have gone with it. */
static void functions_unloaded(void)
{
	for (int i = 0; i < NEXT_COUNT; i++)
		__atomic_store_n(&next_functions[i], (void *)0, __ATOMIC_RELAXED);
	announced_calls_set(ANNOUNCED_UNKNOWN);
}

/* ---- -finstrument-functions ---- */

/* 1: this image has told some function. Relaxed: it only ever rises. */
static uint32_t some_told;

static void tell_function(struct thread *self, uint32_t slot, uint64_t address)
{
	struct lorg_event_FUNCTION event = {.address = address, .function = slot};
	if (__atomic_load_n(&function_at(slot)->told, __ATOMIC_ACQUIRE))
		return;
	module_note(self, address);
	if (event_write(self, LORG_EVENT_FUNCTION, &event, sizeof event, 0, 0, 0))
		__atomic_store_n(&function_at(slot)->told, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&some_told, 1, __ATOMIC_RELAXED);
}

/* The table is large, and empty in most programs. */
void functions_forget(void)
{
	for (uint32_t slot = 0; __atomic_load_n(&some_told, __ATOMIC_RELAXED) && slot < LORG_FUNCTIONS; slot++)
		if (__atomic_load_n(&function_at(slot)->told, __ATOMIC_RELAXED))
			__atomic_store_n(&function_at(slot)->told, 0, __ATOMIC_RELAXED);
}

/* By the flags of the process, where sessions have their say; of those that come and go alone is it looked at here. */
static int is_asked_for(const struct thread *self)
{
	return !the_arena.live || (process_flags(self) & LORG_TRACE_CALL);
}

/* Everything that is not the common case. */
static __attribute__((noinline, cold)) void tell_call_slow(uint32_t id, uint64_t address)
{
	struct thread *self = thread_self();
	if (!self || !is_asked_for(self))
		return;
	int32_t slot = find_slot(address);
	if (slot != NO_SLOT) {
		tell_function(self, (uint32_t)slot, address);
		event_write_word(self, id, (uint32_t)slot);
		if (is_known(function_at((uint32_t)slot), address))
			note_met(address, (uint32_t)slot);
		return;
	}
	module_note(self, address);
	if (id == LORG_EVENT_ENTER)
		EVENT_WRITE(self, ENTER_ADDRESS, .address = address);
	else
		EVENT_WRITE(self, EXIT_ADDRESS, .address = address);
}

/*
 * The common case, in the wrapper itself: a jump to the rest is the only call, so no register is saved. That this
 * thread has its place in the arena shows in its having a chunk.
 */
static inline __attribute__((always_inline)) void tell_call(uint32_t hook, uint32_t id, uint64_t address)
{
	if (!(__atomic_load_n(&hook_gates[hook], __ATOMIC_RELAXED) & LORG_GATE_CALL))
		return;
	uint64_t slot = met_slot(address);
	if (__builtin_expect(slot >= LORG_FUNCTIONS || !event_try_word(&this_thread, id, (uint32_t)slot), 0))
		tell_call_slow(id, address);
}

/* Finds out what announced calls are to do. Two threads that look at once find the same. */
static enum announced announced_look(void)
{
	enum announced found = ANNOUNCED_FORWARDED;
	if (!next_function(NEXT_CYG_ENTER) && !next_function(NEXT_CYG_EXIT))
		found = __atomic_load_n(&hook_gates, __ATOMIC_ACQUIRE) ? ANNOUNCED_RECORDED : ANNOUNCED_DORMANT;
	/* A fork child may not be known as one yet: it looks again. */
	if (found != ANNOUNCED_RECORDED || *fork_guard)
		announced_calls_set(found);
	return found;
}

/* Not known yet, or the program has a definition of its own. */
static __attribute__((noinline, cold)) void enter_unusual(void *function, void *site)
{
	enum announced state = announced_look();
	if (hook_gate(HOOK___cyg_profile_func_enter) & LORG_GATE_CALL)
		tell_call_slow(LORG_EVENT_ENTER, (uintptr_t)function);
	hook_type___cyg_profile_func_enter next = (hook_type___cyg_profile_func_enter)next_function(NEXT_CYG_ENTER);
	if (state == ANNOUNCED_FORWARDED && next)
		next(function, site);
}

static __attribute__((noinline, cold)) void exit_unusual(void *function, void *site)
{
	enum announced state = announced_look();
	if (hook_gate(HOOK___cyg_profile_func_exit) & LORG_GATE_CALL)
		tell_call_slow(LORG_EVENT_EXIT_FUNCTION, (uintptr_t)function);
	hook_type___cyg_profile_func_exit next = (hook_type___cyg_profile_func_exit)next_function(NEXT_CYG_EXIT);
	if (state == ANNOUNCED_FORWARDED && next)
		next(function, site);
}

void hook___cyg_profile_func_enter(void *function, void *site)
{
	enum announced state = announced_calls();
	if (__builtin_expect(state == ANNOUNCED_DORMANT, 1)) /* as short as an empty hook; the other way has time */
		return;
	if (__builtin_expect(state == ANNOUNCED_RECORDED, 1))
		tell_call(HOOK___cyg_profile_func_enter, LORG_EVENT_ENTER, (uintptr_t)function);
	else
		enter_unusual(function, site);
}

void hook___cyg_profile_func_exit(void *function, void *site)
{
	enum announced state = announced_calls();
	if (__builtin_expect(state == ANNOUNCED_DORMANT, 1)) /* as short as an empty hook; the other way has time */
		return;
	if (__builtin_expect(state == ANNOUNCED_RECORDED, 1))
		tell_call(HOOK___cyg_profile_func_exit, LORG_EVENT_EXIT_FUNCTION, (uintptr_t)function);
	else
		exit_unusual(function, site);
}

/* ---- -qfunctrace ---- */

/* What the compiler passes: constants of the module that contains the function. */
struct named_call {
	const char *function, *file;
	uint32_t id, line;
	uintptr_t caller;
};

/* Of the two strings' addresses; the top bit, which no address has, keeps them apart from functions known by address. */
static inline uint64_t name_key(const struct named_call *call)
{
	return ((uintptr_t)call->function ^ (uintptr_t)call->file * 0x9e3779b97f4a7c15u) | 1ull << 63;
}

static void tell_named_function(struct thread *self, uint32_t slot, const struct named_call *call)
{
	struct event_bytes bytes[] = {{call->function, memory_peek_text(call->function)},
				      {call->file, memory_peek_text(call->file)}};
	struct lorg_event_FUNCTION event = {
		.address = call->caller, .function = slot, .name_length = bytes[0].length, .file_length = bytes[1].length};
	look_for_next_again();
	module_note(self, call->caller);
	if (event_write(self, LORG_EVENT_FUNCTION, &event, sizeof event, bytes, 2, 0))
		__atomic_store_n(&function_at(slot)->told, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&some_told, 1, __ATOMIC_RELAXED);
}

/* A compact event of two 32-bit fields takes sixteen bytes. */
static inline void write_line(struct thread *self, uint32_t id, uint32_t slot, uint32_t line)
{
	enum { SIZE = 16 };
	struct lorg_packet *packet = self->packet;
	uint64_t tick;
	uint32_t at = packet && !self->long_way ? event_reserve_in(packet, SIZE, LORG_TICK_MASK, &tick) : 0;
	if (__builtin_expect(at == 0, 0)) {
		event_write_compact_slow(self, id, slot | (uint64_t)line << 32, 8);
		return;
	}
	uint64_t *words = (uint64_t *)((char *)packet + at);
	__atomic_store_n(words, LORG_EVENT_EXTENDED | (uint64_t)LORG_EVENT_FILLER << 32 | (uint64_t)SIZE << 48,
			 __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	words[1] = line;
	/* Commit. Release: the collector that sees the id sees the line. */
	__atomic_store_n(words, id | (tick & LORG_TICK_MASK) << 5 | (uint64_t)slot << 32, __ATOMIC_RELEASE);
	event_written(self, packet, SIZE);
}

static __attribute__((noinline)) void tell_named_slow(struct thread *self, const struct named_call *call)
{
	int32_t slot = find_slot(name_key(call));
	if (slot == NO_SLOT) {
		/* The caller's return address lies in the function: readers find its name. */
		module_note(self, call->caller);
		if (call->id == LORG_EVENT_ENTER_LINE)
			EVENT_WRITE(self, ENTER_ADDRESS, .address = call->caller);
		else
			EVENT_WRITE(self, EXIT_ADDRESS, .address = call->caller);
		return;
	}
	if (!__atomic_load_n(&function_at((uint32_t)slot)->told, __ATOMIC_ACQUIRE))
		tell_named_function(self, (uint32_t)slot, call);
	write_line(self, call->id, (uint32_t)slot, call->line);
}

static inline void tell_named_call(const struct named_call *call)
{
	struct thread *self = thread_self();
	if (__builtin_expect(!self || !is_asked_for(self), 0))
		return;
	uint64_t key = name_key(call);
	uint32_t slot = home_slot(key);
	if (__builtin_expect(is_known(function_at(slot), key), 1))
		write_line(self, call->id, slot, call->line);
	else
		tell_named_slow(self, call);
}

typedef void func_trace_function(const char *const, const char *const, int, void **const);

void hook___func_trace_enter(const char *const procedure, const char *const file, int line, void **const id)
{
	if (hook_gate(HOOK___func_trace_enter) & LORG_GATE_CALL)
		tell_named_call(&(struct named_call){procedure, file, LORG_EVENT_ENTER_LINE, (uint32_t)line,
						     (uintptr_t)__builtin_return_address(0)});
	func_trace_function *next = (func_trace_function *)next_function(NEXT_TRACE_ENTER);
	if (next)
		next(procedure, file, line, id);
}

void hook___func_trace_exit(const char *const procedure, const char *const file, int line, void **const id)
{
	if (hook_gate(HOOK___func_trace_exit) & LORG_GATE_CALL)
		tell_named_call(&(struct named_call){procedure, file, LORG_EVENT_EXIT_LINE, (uint32_t)line,
						     (uintptr_t)__builtin_return_address(0)});
	func_trace_function *next = (func_trace_function *)next_function(NEXT_TRACE_EXIT);
	if (next)
		next(procedure, file, line, id);
}

void hook___func_trace_catch(const char *const procedure, const char *const file, int line, void **const id)
{
	if (hook_gate(HOOK___func_trace_catch) & LORG_GATE_CALL)
		tell_named_call(&(struct named_call){procedure, file, LORG_EVENT_CATCH_LINE, (uint32_t)line,
						     (uintptr_t)__builtin_return_address(0)});
	func_trace_function *next = (func_trace_function *)next_function(NEXT_TRACE_CATCH);
	if (next)
		next(procedure, file, line, id);
}

/* ---- dlclose: what was found in an object may go with it ---- */

static void tell_unloaded(void)
{
	int saved_errno = *hook_errno();
	struct thread *self = hook_gates ? thread_self() : 0;
	if (self && !self->busy)
		modules_closed(self);
	*hook_errno() = saved_errno;
}

int hook_dlclose(void *object)
{
	hook_type_dlclose real = REAL(dlclose);
	hooks_forget_late();
	exceptions_unloaded();
	patch_closing();
	int result = real(object);
	/* Destructors that ran in between may have found them again. */
	hooks_forget_late();
	exceptions_unloaded();
	functions_unloaded();
	patch_closed();
	tell_unloaded();
	return result;
}
