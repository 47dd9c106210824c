/* SPDX-License-Identifier: MIT */
/* frame.c: see frame.h. The layouts are those of the kernel's asm/sigcontext.h and asm/ucontext.h. */
#include "collector/remote/frame.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum {
	LEGACY_SIZE = 512, /* of the state without extensions */
	SOFTWARE_AT = 464, /* the kernel's own words in it */
	XSTATE_HEADER_SIZE = 64,
	STATE_ALIGNMENT = 64,
	INFORMATION_SIZE = 128, /* siginfo_t */
	MAGIC_FIRST = 0x46505853,
	MAGIC_LAST = 0x46505845,
	FLAG_XSTATE = 1,
	FLAG_STACK_SEGMENT = 2,
	FLAG_STRICT = 4,
	NO_SUCH_MODE = 0x7fff, /* of an alternate stack: the kernel leaves the thread's as it is */
	TILE_DATA = 18,        /* the state that a program has to ask for */
	FEATURES = 63,
};

struct kernel_context {
	uint64_t flags, link;
	uint64_t stack_address;
	uint32_t stack_mode, reserved;
	uint64_t stack_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t error, trap, old_mask, fault_address;
	uint64_t state; /* address */
	uint64_t reserved_words[8];
	uint64_t mask;
};

struct frame {
	uint64_t return_address;
	struct kernel_context context;
	uint8_t information[INFORMATION_SIZE];
};

struct software_words {
	uint32_t magic, extended_size;
	uint64_t features;
	uint32_t state_size, reserved[7];
};

_Static_assert(sizeof(struct kernel_context) == 40 + 256 + 8 && sizeof(struct software_words) == 48,
	       "as the kernel has them");

/* ---- saving and restoring ------------------------------------------------------ */

static int get_state(pid_t tid, struct thread_context *context, uint32_t note)
{
	struct iovec area = {context->state, sizeof context->state};
	if (ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)note, &area))
		return -1;
	context->note = note;
	context->state_size = area.iov_len;
	return 0;
}

int context_save(pid_t tid, struct thread_context *context)
{
	if (ptrace(PTRACE_GETREGS, tid, NULL, &context->registers) ||
	    ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof context->mask, &context->mask))
		return -1;
	return get_state(tid, context, NT_X86_XSTATE) ? get_state(tid, context, NT_PRFPREG) : 0;
}

int context_restore_rest(pid_t tid, const struct thread_context *context)
{
	struct iovec area = {(void *)context->state, context->state_size};
	int failed = ptrace(PTRACE_SETSIGMASK, tid, (void *)sizeof context->mask, &context->mask) != 0;
	failed |= ptrace(PTRACE_SETREGSET, tid, (void *)(uintptr_t)context->note, &area) != 0;
	return failed ? -1 : 0;
}

/* ---- the state in a frame -------------------------------------------------------- */

static int has_extensions(const struct thread_context *context)
{
	return context->note == NT_X86_XSTATE && context->state_size >= LEGACY_SIZE + XSTATE_HEADER_SIZE;
}

/* What the kernel lets the thread have: all but what it has not asked for. */
static uint64_t features_of(const struct thread_context *context)
{
	uint64_t features, used;
	memcpy(&features, context->state + SOFTWARE_AT, sizeof features);
	memcpy(&used, context->state + LEGACY_SIZE, sizeof used);
	return used >> TILE_DATA & 1 ? features : features & ~(1ull << TILE_DATA);
}

static uint32_t extended_size(uint64_t features)
{
	uint32_t size = LEGACY_SIZE + XSTATE_HEADER_SIZE;
	for (uint32_t i = 2; i < FEATURES; i++) {
		uint32_t length, offset, c, d;
		if (!(features >> i & 1))
			continue;
		__cpuid_count(0xd, i, length, offset, c, d);
		if (length && offset + length > size)
			size = offset + length;
	}
	return size;
}

static uint32_t state_room(const struct thread_context *context)
{
	return has_extensions(context) ? extended_size(features_of(context)) + (uint32_t)sizeof(uint32_t)
				       : (uint32_t)LEGACY_SIZE;
}

static void make_state(uint8_t *to, const struct thread_context *context)
{
	memcpy(to, context->state, LEGACY_SIZE);
	memset(to + SOFTWARE_AT, 0, LEGACY_SIZE - SOFTWARE_AT);
	if (!has_extensions(context))
		return;
	uint64_t features = features_of(context), used;
	uint32_t size = extended_size(features), last = MAGIC_LAST;
	struct software_words words = {MAGIC_FIRST, size + (uint32_t)sizeof last, features, size, {0}};
	memcpy(to + SOFTWARE_AT, &words, sizeof words);
	memcpy(to + LEGACY_SIZE, context->state + LEGACY_SIZE, size - LEGACY_SIZE);
	memcpy(&used, to + LEGACY_SIZE, sizeof used);
	used &= features;
	memcpy(to + LEGACY_SIZE, &used, sizeof used);
	memcpy(to + size, &last, sizeof last);
}

/* ---- the frame --------------------------------------------------------------------- */

size_t frame_size(const struct thread_context *context)
{
	return sizeof(struct frame) + state_room(context) + 2 * STATE_ALIGNMENT;
}

static uint64_t state_place(const struct thread_context *context, uint64_t top)
{
	return (top - state_room(context)) & ~(uint64_t)(STATE_ALIGNMENT - 1);
}

uint64_t frame_place(const struct thread_context *context, uint64_t top)
{
	/* As behind a call: 8 more than a multiple of 16. */
	return ((state_place(context, top) - sizeof(struct frame)) & ~15ull) - 8;
}

int frame_write(const struct program *program, uint64_t at, const struct thread_context *context,
		const struct user_regs_struct *r, uint64_t restorer)
{
	uint64_t state = (at + sizeof(struct frame) + STATE_ALIGNMENT - 1) & ~(uint64_t)(STATE_ALIGNMENT - 1);
	struct frame frame = {
		.return_address = restorer,
		.context = {.flags = FLAG_STACK_SEGMENT | FLAG_STRICT | (has_extensions(context) ? FLAG_XSTATE : 0),
			    .stack_mode = NO_SUCH_MODE,
			    .r8 = r->r8,
			    .r9 = r->r9,
			    .r10 = r->r10,
			    .r11 = r->r11,
			    .r12 = r->r12,
			    .r13 = r->r13,
			    .r14 = r->r14,
			    .r15 = r->r15,
			    .rdi = r->rdi,
			    .rsi = r->rsi,
			    .rbp = r->rbp,
			    .rbx = r->rbx,
			    .rdx = r->rdx,
			    .rax = r->rax,
			    .rcx = r->rcx,
			    .rsp = r->rsp,
			    .rip = r->rip,
			    .eflags = r->eflags,
			    .cs = (uint16_t)r->cs,
			    .ss = (uint16_t)r->ss,
			    .state = state,
			    .mask = context->mask},
	};
	uint8_t bytes[STATE_MAXIMUM + sizeof(uint32_t)];
	make_state(bytes, context);
	return program_write(program, state, bytes, state_room(context)) || program_write(program, at, &frame, sizeof frame)
		       ? -1
		       : 0;
}
