/* SPDX-License-Identifier: MIT */
/*
 * jump.c: what moves between stacks and frames, and looks at them: longjmp,
 * signal stacks, contexts, backtrace. Nothing of it is an event: it tells
 * preload/call which open calls were left and where calls will stand, and
 * keeps what we put on the stack out of the program's sight.
 */
#include <signal.h>
#include <ucontext.h>

#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/hook.h"
#include "preload/hooks/scope.h"
#include "preload/resolve/resolve.h"

/* ---- longjmp ----------------------------------------------------------- */

/* glibc's jmp_buf: rbx, rbp, r12 to r15, rsp, rip; the pointers rotated and mixed with a word of the thread's block. */
enum { SAVED_STACK = 6, SAVED_ADDRESS = 7, ROTATION = 17 };

static uintptr_t unmangle(uint64_t word)
{
	uint64_t guard;
	__asm__("movq %%fs:0x30, %0" : "=r"(guard));
	return (word >> ROTATION | word << (64 - ROTATION)) ^ guard;
}

static void note_jump(const void *buffer, uintptr_t stack)
{
	struct thread *self = call_targets_exist() || this_thread.match_depth ? thread_self() : 0;
	const uint64_t *saved = buffer;
	if (!self || self->busy)
		return;
	int saved_errno = *hook_errno();
	call_jumped(self, stack, unmangle(saved[SAVED_STACK]), unmangle(saved[SAVED_ADDRESS]));
	*hook_errno() = saved_errno;
}

#define JUMP(name) \
	void hook_##name(void *buffer, int value) \
	{ \
		note_jump(buffer, (uintptr_t)__builtin_frame_address(0)); \
		REAL(name)(buffer, value); \
		__builtin_unreachable(); \
	}
JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

/* ---- stacks ------------------------------------------------------------ */

int hook_sigaltstack(const stack_t *wanted, stack_t *old)
{
	int result = REAL(sigaltstack)(wanted, old);
	struct thread *self = result == 0 && wanted && call_targets_exist() ? thread_self() : 0;
	/* The kernel has read it without a fault. */
	if (self && !(wanted->ss_flags & SS_DISABLE))
		call_signal_stack(self, (uintptr_t)wanted->ss_sp, (uintptr_t)wanted->ss_sp + wanted->ss_size);
	return result;
}

/* For jump_context.S, which passes makecontext's own arguments on as they came. */
HIDDEN void *context_noted(const ucontext_t *context);

void *context_noted(const ucontext_t *context)
{
	if (call_targets_exist())
		call_stack_prepare((uintptr_t)context->uc_stack.ss_sp, (uintptr_t)context->uc_stack.ss_sp + context->uc_stack.ss_size);
	return hook_real(HOOK_makecontext);
}

/* ---- backtrace --------------------------------------------------------- */

/*
 * The real one sees this wrapper, too, and the return points of open calls. More addresses than were asked for are taken
 * so that what remains fills the program's array if it can.
 */
int hook_backtrace(void **addresses, int size)
{
	enum { ROOM = 512 };
	void *all[ROOM];
	if (size <= 0)
		return REAL(backtrace)(addresses, size);
	int wanted = 2 * size + 8 > ROOM ? ROOM : 2 * size + 8;
	if (size >= ROOM) {
		int count = call_backtrace_filter(addresses, REAL(backtrace)(addresses, size));
		return count;
	}
	int count = call_backtrace_filter(all, REAL(backtrace)(all, wanted));
	if (count > size)
		count = size;
	memcpy(addresses, all, (size_t)count * sizeof *all);
	return count;
}

/* ---- the unwinder's own backtrace -------------------------------------- */

typedef int frame_callback(void *context, void *argument);
typedef uintptr_t frame_address(void *context);

struct shown_frames {
	frame_callback *callback; /* the program's */
	void *argument;
	frame_address *address; /* of the unwinder whose contexts they are */
};

static int show_frame(void *context, void *argument)
{
	const struct shown_frames *shown = argument;
	return call_address_is_own(shown->address(context)) ? 0 : shown->callback(context, shown->argument);
}

/* _Unwind_GetIP of the object that the function is in: contexts of one unwinder are not another's. */
static frame_address *address_function_beside(void *backtrace)
{
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		if (object != link_map_own() && symbol_find_in(object, "_Unwind_Backtrace", "*", 0) == backtrace)
			return (frame_address *)symbol_find_in(object, "_Unwind_GetIP", "*", 0);
	return 0;
}

/* The frames of this wrapper and of the stub are left out; all others are shown as the real one shows them. */
int hook__Unwind_Backtrace(void *callback, void *argument)
{
	enum { END_OF_STACK = 5 };
	void *real = scope_find("_Unwind_Backtrace", (uintptr_t)__builtin_return_address(0));
	if (!real)
		real = hook_next_definition(HOOK__Unwind_Backtrace);
	if (!real)
		return END_OF_STACK; /* whoever has it has not been loaded */
	struct shown_frames shown = {(frame_callback *)callback, argument, address_function_beside(real)};
	int (*backtrace)(frame_callback *, void *) = (int (*)(frame_callback *, void *))real;
	return shown.address ? backtrace(show_frame, &shown) : backtrace(shown.callback, argument);
}
