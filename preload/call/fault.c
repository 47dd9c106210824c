/* SPDX-License-Identifier: MIT */
/*
 * fault.c: what a handler is shown of a fault that was met in a hooked function's entry: in an instruction that was moved,
 * in its thunk, or where the stub first touches the stack below. Without us it would have been in the function itself, and
 * handlers (of OCaml, GNAT, the unwinder) go by that. What C code of ours meets on the long way is shown as it is: the
 * registers that calls preserve are not the program's there.
 */
#include "preload/call/inner.h"

extern HIDDEN char call_stub_begin[], call_stub_end[], call_stub_long[];

/* Thunks stand between these. Atomic; only ever widened. 0: there is none. */
static uintptr_t lowest, highest;

static void widen(uintptr_t *bound, uintptr_t address, int up)
{
	uintptr_t seen = __atomic_load_n(bound, __ATOMIC_RELAXED);
	while (!seen || (up ? address > seen : address < seen))
		if (__atomic_compare_exchange_n(bound, &seen, address, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
}

void call_fault_note(uintptr_t thunk)
{
	widen(&lowest, thunk, 0);
	widen(&highest, thunk + CALL_THUNK_SIZE + LORG_ENTRY_MAXIMUM + LORG_JUMP_SIZE, 1);
}

static const struct call_target *target_at_address(uint64_t address)
{
	const struct call_target *target;
	for (uint32_t i = 0; (target = call_target_at(i)) != 0; i++)
		if ((uint64_t)target == address)
			return target;
	return 0;
}

static uintptr_t entry_of(const struct call_target *target)
{
	const struct lorg_plan_function *function = target->plan_function;
	return function ? target->base + function->offset + function->skip : 0;
}

/* ---- moved instructions and thunks ------------------------------------- */

/* Behind the thunk of this target stands what was moved, not a trampoline of liblorg.so's own hooks. */
static int follows_thunk(const struct call_target *target, uint64_t body)
{
	uint64_t named;
	return memory_peek(&named, (const void *)(body - CALL_THUNK_SIZE + 16), sizeof named) == sizeof named && named == (uint64_t)target;
}

/* Where the instruction at `offset` of the moved code stood. */
static uintptr_t original_of(const struct call_target *target, uint32_t offset)
{
	const struct lorg_plan_function *function = target->plan_function;
	uint32_t original = function->taken; /* the jump back */
	for (uint32_t i = 0; offset < function->code_length && i < function->moved_count && i < LORG_MOVED_MAXIMUM; i++)
		if (function->moved[i].code <= offset)
			original = function->moved[i].original;
	return entry_of(target) + original;
}

/* A moved call makes room for its return address before it touches it. */
static uintptr_t stack_at(const uint8_t *code, uint32_t offset, uintptr_t stack)
{
	static const uint8_t makes_room[] = {0x48, 0x8d, 0x64, 0x24, 0xf8}; /* lea -8(%rsp), %rsp */
	int has_made = offset >= sizeof makes_room && memcmp(code + offset - sizeof makes_room, makes_room, sizeof makes_room) == 0;
	return has_made && code[offset] == 0x50 ? stack + 8 : stack;
}

static int shown_of_stub(uintptr_t pc, uintptr_t stack, struct call_fault *shown)
{
	const struct call_target *target;
	for (uint32_t i = 0; (target = call_target_at(i)) != 0; i++) {
		uint64_t body = __atomic_load_n(&target->body, __ATOMIC_ACQUIRE);
		const struct lorg_plan_function *function = target->plan_function;
		if (!function || pc - (body - CALL_THUNK_SIZE) >= (uintptr_t)CALL_THUNK_SIZE + function->code_length + LORG_JUMP_SIZE ||
		    !lorg_function_is_relocated(function) || !follows_thunk(target, body))
			continue;
		*shown = (struct call_fault){entry_of(target), stack};
		if (pc >= body) {
			uint32_t offset = (uint32_t)(pc - body);
			*shown = (struct call_fault){original_of(target, offset), stack_at((const uint8_t *)body, offset, stack)};
		}
		return 1;
	}
	return 0;
}

/* ---- the stub ---------------------------------------------------------- */

/* It has saved registers, and found no room for more: the target stands above those, and the return address above it. */
static int shown_of_entry(uintptr_t stack, struct call_fault *shown)
{
	enum { SAVED = 11 };
	const uint64_t *words = (const uint64_t *)stack;
	for (uint32_t i = 0; i < SAVED && stack % 8 == 0; i++) {
		const struct call_target *target = target_at_address(words[i]);
		if (!target || !entry_of(target))
			continue;
		*shown = (struct call_fault){entry_of(target), (uintptr_t)&words[i + 1]};
		return 1;
	}
	return 0;
}

int call_fault_shown(uintptr_t pc, uintptr_t stack, struct call_fault *shown)
{
	uintptr_t low = __atomic_load_n(&lowest, __ATOMIC_RELAXED);
	if (!low)
		return 0;
	if (pc - (uintptr_t)call_stub_begin < (uintptr_t)call_return - (uintptr_t)call_stub_begin ||
	    pc - (uintptr_t)call_stub_long < (uintptr_t)call_stub_end - (uintptr_t)call_stub_long)
		return shown_of_entry(stack, shown);
	return pc >= low && pc < __atomic_load_n(&highest, __ATOMIC_RELAXED) && shown_of_stub(pc, stack, shown);
}
