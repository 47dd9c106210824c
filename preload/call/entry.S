/* SPDX-License-Identifier: MIT */
/*
 * entry.S: the one stub for all hooked functions.
 *
 * Every register and the flags are kept both ways: gcc -O2 (-fipa-ra) keeps
 * values in r10, r11 and other scratch registers across calls to local
 * functions, and assembly code returns flags. Vector registers, x87 and MXCSR
 * are not touched, here or in what is called (-mgeneral-regs-only); who needs
 * them (value.c) reads them in place.
 *
 * Registers are saved below the stack pointer: signal handlers keep 128 bytes
 * off it. Flags go through lahf and seto, which cost a tenth of popfq.
 *
 * Unwinding. The stack at call_entry: the target, then the return address
 * ("slot"). From the moment the shadow holds the return address, one rule
 * serves: it is at slot ^ 2^44. Unwinders tell frames apart by their CFA, and
 * one that stops at the caller must not take this frame for it (libgcc aborts
 * then); nor may an outer frame's lie below an inner one's (gdb stops there). The
 * called function's CFA is the word above the slot, so this one's is the next
 * word above: 16 above the slot, 8 above the caller's stack pointer. Expressions
 * begin with the CFA on the DWARF machine's stack.
 */
#include "preload/call/entry_offsets.h"

	.macro RETURN_ADDRESS_IN_SHADOW
	.cfi_adjust_cfa_offset 8
	.cfi_escape 0x10, 16, 12, 0x40, 0x1c, 0x0e, 0,0,0,0,0,0x10,0,0, 0x27	/* DW_CFA_expression rip: lit16, minus, const8u 2^44, xor */
	.cfi_escape 0x16, 7, 2, 0x38, 0x1c	/* DW_CFA_val_expression rsp: lit8, minus */
	.endm

	/* Registers of the hot path, to and from the words below `base`(%rsp). Flags: in rax, after SAVE_FLAGS. */
	.macro SAVE base
	movq	%rax, \base-8(%rsp)
	movq	%rcx, \base-16(%rsp)
	movq	%rdx, \base-24(%rsp)
	movq	%rsi, \base-32(%rsp)
	movq	%rdi, \base-40(%rsp)
	movq	%r8, \base-48(%rsp)
	lahf
	seto	%al
	movq	%rax, \base-56(%rsp)
	.endm
	.macro RESTORE base
	movq	\base-56(%rsp), %rax
	movq	\base-48(%rsp), %r8
	movq	\base-40(%rsp), %rdi
	movq	\base-32(%rsp), %rsi
	movq	\base-24(%rsp), %rdx
	addb	$0x7f, %al		/* the overflow flag again */
	sahf
	movq	\base-16(%rsp), %rcx
	movq	\base-8(%rsp), %rax
	.endm

	/*
	 * event_try_word() of core/event.h. fs:rcx: the thread, rdi: the target. Goes to `long` with nothing done where
	 * anything is not as usual, to `handed` when written but a handler has left the chunk (r8) to us. Changes rax,
	 * rdx, rsi, r8 and the flags. guard: cmpq where the process's flags have not been looked at, else cmpl.
	 */
	.macro RECORD id, long, handed, guard=cmpq
	movq	%fs:THREAD_PACKET(%rcx), %r8
	testq	%r8, %r8
	jz	\long
	cmpl	$0, fork_guard(%rip)
	je	\long
	cmpq	$0, %fs:THREAD_NOT_PLAIN(%rcx)
	jne	\long
	\guard	$0, %fs:THREAD_GUARDED(%rcx) /* lorg's own calls, above all */
	jne	\long
	movl	PACKET_POSITION(%r8), %esi
	leal	-PACKET_HEAD(%rsi), %eax
	cmpl	$CHUNK_SIZE - PACKET_HEAD - 8, %eax
	ja	\long
	rdtsc
	shlq	$32, %rdx
	orq	%rax, %rdx		/* now */
	movq	%rdx, %rax
	subq	PACKET_LAST(%r8), %rax
	cmpq	$TICK_MASK, %rax	/* a long pause, or backwards */
	ja	\long
	movl	%esi, %eax
	addl	$8, %esi
	cmpxchgl %esi, PACKET_POSITION(%r8)
	jne	\long
	movq	%rdx, PACKET_LAST(%r8)
	shll	$5, %edx
	movl	TARGET_FUNCTION(%rdi), %eax
	addl	$\id, %edx
	shlq	$32, %rax
	orq	%rdx, %rax
	movq	%rax, -8(%r8,%rsi)	/* commits. One store: a handler may leave by a jump, and half a word is no hole */
	addl	$8, PACKET_COMMITTED(%r8) /* event_written() */
	cmpq	%r8, %fs:THREAD_PACKET(%rcx)
	jne	\handed
	.endm

	/* What both entries begin with: where nothing is asked, flags are not touched. rdi: target, fs:rcx: thread, esi: gate. */
	.macro BEGIN go_on
	endbr64
	movq	%rax, -8(%rsp)
	movq	%rcx, -16(%rsp)
	movq	(%rsp), %rax
	movq	TARGET_CONTROL(%rax), %rcx
	movl	(%rcx), %ecx
	jrcxz	\go_on
	movq	%rdx, -24(%rsp)
	movq	%rsi, -32(%rsp)
	movq	%rdi, -40(%rsp)
	movq	%r8, -48(%rsp)
	movq	%rax, %rdi
	lahf
	seto	%al
	movq	%rax, -56(%rsp)
	movl	%ecx, %esi
	movq	this_thread@gottpoff(%rip), %rcx
	.endm

	/* Nothing is asked of the target (rax): on to it. Stands near its entry, which jumps with a short jump. */
	.macro GO_ON
	movq	TARGET_BODY(%rax), %rcx
	movq	%rcx, (%rsp)
	movq	-16(%rsp), %rcx
	movq	-8(%rsp), %rax
	.cfi_remember_state
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	jmp	*-8(%rsp)
	.cfi_restore_state
	.endm

	.macro PUSH_ALL			/* struct call_registers, from its end */
	pushfq
	.cfi_adjust_cfa_offset 8
	.irp register, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx
	pushq	%\register
	.cfi_adjust_cfa_offset 8
	.endr
	.cfi_rel_offset rbx, 0
	.endm
	.macro POP_ALL
	.irp register, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
	popq	%\register
	.cfi_adjust_cfa_offset -8
	.endr
	.cfi_restore rbx
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	.endm

	/*
	 * The flags that PUSH_ALL has put above ten words, as they were, without popfq, which takes longer than all the rest.
	 * From here to the end of POP_ALL nothing changes flags. Changes rax.
	 */
	.macro RESTORE_FLAGS
	movq	80(%rsp), %rax
	testl	$0x400, %eax		/* direction */
	jz	78f
	std
78:	movb	%al, %ah
	btl	$11, 80(%rsp)		/* overflow */
	setc	%al
	addb	$0x7f, %al
	sahf
	.endm

	.text
	.p2align 6
	.globl	call_entry, call_entry_only, call_return, call_stub_begin, call_stub_end
	.hidden	__ehdr_start, _end, call_quick
	.hidden	call_entry, call_entry_only, call_return, call_stub_begin, call_stub_end
	.globl	call_stub_long
	.hidden	call_stub_long
	.type	call_entry, @function
	.type	call_entry_only, @function
call_stub_begin:
	.cfi_startproc
	.cfi_def_cfa_offset 16

	/* Functions whose return must not be seen. */
.Lgo_on_only:
	GO_ON
	.p2align 4
call_entry_only:
	BEGIN	.Lgo_on_only
	testl	$~GATE_ENTRY_AND_RETURN, %esi
	jnz	.Lnot_plain
	testl	$GATE_ENTRY, %esi
	jz	.Lentered
.Lrecord_entry:
	RECORD EVENT_CALL_ENTRY, .Lentry_long, .Lentry_handed
.Lentered:				/* rdi: target */
	movq	TARGET_BODY(%rdi), %rdx
	movq	%rdx, (%rsp)
	RESTORE 0
	.cfi_remember_state
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	jmp	*-8(%rsp)
	.cfi_restore_state

.Lother_gate:
	cmpl	$GATE_ENTRY, %esi
	je	.Lrecord_entry
	cmpl	$GATE_COUNT, %esi
	jne	.Lnot_plain
.Lcount:				/* call_count alone: the function's place among the thread's counters */
	movq	%fs:THREAD_CALL_COUNTERS(%rcx), %r8
	testq	%r8, %r8
	jz	.Lentry_long
	cmpl	$0, fork_guard(%rip)
	je	.Lentry_long
	cmpq	$0, %fs:THREAD_NOT_PLAIN(%rcx)
	jne	.Lentry_long
	cmpq	$0, %fs:THREAD_GUARDED(%rcx)
	jne	.Lentry_long
	movl	TARGET_FUNCTION(%rdi), %edx
	imull	$COUNTER_HASH, %edx, %eax
	movl	%eax, %esi
	shrl	$32 - COUNTER_DIRECTORY_BITS, %esi
	movq	(%r8,%rsi,8), %r8
	testq	%r8, %r8		/* a handler has just forgotten them */
	jz	.Lentry_long
	shrl	$COUNTER_BUCKET_SHIFT, %eax
	andl	$COUNTER_BUCKETS - 1, %eax
	shll	$COUNTER_SIZE_SHIFT + 1, %eax
	addq	%r8, %rax
	cmpl	%edx, COUNTER_FUNCTION(%rax)
	jne	1f
	incq	COUNTER_COUNT(%rax)	/* one instruction: a handler's own count is not lost */
	jmp	.Lentered
1:	cmpl	%edx, COUNTER_SIZE + COUNTER_FUNCTION(%rax)
	jne	.Lentry_long
	incq	COUNTER_SIZE + COUNTER_COUNT(%rax)
	jmp	.Lentered

	/*
	 * A filter. Most calls are refused because of who calls or how deep they are: that is seen here, as call_quick() would
	 * see it, which has all other cases.
	 */
.Lnot_plain:
	testl	$GATE_FILTER, %esi
	jz	.Lentry_long
	movq	TARGET_SETTINGS(%rdi), %r8
	testq	%r8, %r8
	jz	.Lentry_long
	testl	$GATE_COUNTS, %esi
	jnz	.Lquick_any
	testl	$PLAN_NO_CALLER, TARGET_FLAGS(%rdi)
	jnz	.Lquick_any
	cmpq	$0, %fs:THREAD_GUARDED(%rcx) /* process flags matter */
	jne	.Lquick_any
	movq	TARGET_CONTROL(%rdi), %rax
	movl	CONTROL_SETTING(%rax), %eax
	testl	%eax, %eax
	jz	.Lentry_long
	movq	%fs:THREAD_CALL(%rcx), %rdx
	testq	%rdx, %rdx
	jz	.Lentry_long
	cmpl	$0, CALL_THROWN_COUNT(%rdx)
	jne	.Lentry_long
	movl	CALL_DEPTH(%rdx), %esi
	movq	8(%rsp), %rdx
	leaq	__ehdr_start(%rip), %rcx
	cmpq	%rcx, %rdx
	jb	1f
	leaq	_end(%rip), %rcx
	cmpq	%rcx, %rdx
	jb	.Lquick_any		/* a wrapper's call, or a tail call */
1:	movl	$LOOKED_AT, %ecx	/* the program may have made a ring of them */
.Lsetting:				/* esi: depth, rdx: caller, eax: number of the setting, ecx: how many more */
	cmpl	%eax, SETTINGS_COUNT(%r8)
	jb	.Lquick_any
	imulq	$SETTING_SIZE, %rax, %rax
	addq	SETTINGS_SETTING(%r8), %rax
	subq	$SETTING_SIZE, %rax
	cmpq	$CALLER_FREE, SETTING_CALLER_HIGH(%rax)
	je	.Lentered
	cmpq	$0, SETTING_CALLER_HIGH(%rax)
	je	.Lany_caller
	cmpq	%rdx, SETTING_CALLER_LOW(%rax)
	ja	.Lnext_setting
	cmpq	%rdx, SETTING_CALLER_HIGH(%rax)
	ja	.Lany_caller
.Lnext_setting:
	movl	SETTING_NEXT(%rax), %eax
	testl	%eax, %eax
	jz	.Lentered
	decl	%ecx
	jnz	.Lsetting
	jmp	.Lentered
.Lany_caller:
	cmpl	$0, SETTING_DEPTH(%rax)
	je	.Lany_depth
	cmpl	%esi, SETTING_DEPTH(%rax)
	jbe	.Lnext_setting
.Lany_depth:				/* it wants the call, unless its specification does not */
	cmpl	$0, SETTING_PROGRAM(%rax)
	jne	.Lquick
	movl	SETTING_DEPTH(%rax), %edx
	orq	SETTING_LEAST_TICKS(%rax), %rdx
	orq	SETTING_LIMIT_EVENTS(%rax), %rdx
	orq	SETTING_LIMIT_RATE(%rax), %rdx
	jnz	.Lentry_long
	movq	TARGET_CONTROL(%rdi), %rdx
	testl	$GATE_VALUES_OR_RETURN_TO, (%rdx)
	jnz	.Lentry_long
	jmp	.Lquick
.Lquick_any:
	xorl	%eax, %eax
.Lquick:				/* rax: the first setting that may want it; 0: not looked for */
	movq	%r9, -64(%rsp)
	movq	%r10, -72(%rsp)
	movq	%r11, -80(%rsp)
	leaq	-80(%rsp), %rsp		/* struct quick_registers */
	.cfi_adjust_cfa_offset 80
	movq	%rax, %rcx
	movq	TARGET_CONTROL(%rdi), %rax
	movl	(%rax), %edx		/* its gate */
	movq	%rsp, %rsi
	call	call_quick
	leaq	80(%rsp), %rsp
	.cfi_adjust_cfa_offset -80
	movq	-80(%rsp), %r11
	movq	-72(%rsp), %r10
	movq	-64(%rsp), %r9
	movq	(%rsp), %rdi
	movq	this_thread@gottpoff(%rip), %rcx
	movl	%eax, %esi
	testl	%esi, %esi
	jz	.Lentered
	cmpl	$GATE_ENTRY_AND_RETURN, %esi
	je	.Lrecord_both
	cmpl	$GATE_COUNT, %esi
	je	.Lcount
	cmpl	$GATE_ENTRY, %esi
	jne	.Lentry_long
	RECORD EVENT_CALL_ENTRY, .Lentry_long, .Lentry_handed, cmpl
	jmp	.Lentered

.Lgo_on:
	GO_ON
	.p2align 5
call_entry:				/* (%rsp) target, 8(%rsp) slot */
	BEGIN	.Lgo_on
	cmpl	$GATE_ENTRY_AND_RETURN, %esi
	jne	.Lother_gate
.Lrecord_both:
	leaq	8(%rsp), %r8
	leaq	call_return(%rip), %rdx
	cmpq	%rdx, (%r8)		/* a tail call */
	je	.Lentry_long
	shrq	$REGION_SHIFT, %r8
	cmpl	%r8d, %fs:THREAD_CALL_REGION(%rcx)
	jne	.Lentry_long
	RECORD EVENT_CALL_ENTRY, .Lentry_long, .Lentry_handed
	leaq	8(%rsp), %rsi
	movq	(%rsi), %rdx
	btcq	$RETURN_BIT, %rsi
	movq	%rdx, (%rsi)
	btcq	$RETURN_BIT, %rsi
	btcq	$OWNER_BIT, %rsi
	movq	%rdi, (%rsi)
	movq	TARGET_BODY(%rdi), %rdx
	movq	%rdx, (%rsp)
	RESTORE 0
	.cfi_remember_state
	RETURN_ADDRESS_IN_SHADOW	/* until the call, slot and shadow both hold it */
	leaq	16(%rsp), %rsp
	.cfi_adjust_cfa_offset -16
.Lcall:	call	*-16(%rsp)		/* through memory below the stack pointer: no register is needed for it */
call_return:				/* rsp = slot + 8 */
	SAVE -8
	leaq	-8(%rsp), %rsi
	btcq	$OWNER_BIT, %rsi
	movq	(%rsi), %rdi
	testb	$7, %dil		/* more than a target */
	jnz	.Lreturn_long
	movq	this_thread@gottpoff(%rip), %rcx
	RECORD EVENT_RETURN, .Lreturn_long, .Lreturn_handed
	leaq	-8(%rsp), %rsi
	btcq	$RETURN_BIT, %rsi
	movq	(%rsi), %rdx
	movq	%rdx, -8(%rsp)
	.cfi_remember_state
	.cfi_offset rip, -16
	movq	$0, (%rsi)
	RESTORE -8
	leaq	-8(%rsp), %rsp
	.cfi_adjust_cfa_offset 8
	ret
	.cfi_restore_state

	/* The long way back: all is as it was at call_return again, and the slot says whether the return is recorded. */
.Lreturn_long:
	movq	$0, -8(%rsp)
	jmp	1f
.Lreturn_handed:
	movq	%r8, -8(%rsp)
1:	RESTORE -8
	leaq	-8(%rsp), %rsp
	.cfi_adjust_cfa_offset 8
	PUSH_ALL
	cld
	movq	%rsp, %rdi
	movq	%rsp, %rbx
	.cfi_def_cfa rbx, 104
	andq	$-16, %rsp
	call	call_returned		/* puts the return address into the slot */
	.cfi_offset rip, -16
	leaq	88(%rbx), %rcx
	btcq	$RETURN_BIT, %rcx
	movq	$0, (%rcx)
	movq	%rbx, %rsp
	.cfi_def_cfa rsp, 104
	RESTORE_FLAGS
	POP_ALL
	ret
	.cfi_endproc

	.cfi_startproc
	.cfi_def_cfa_offset 16
	/* The long way in. A target with bit 0 set: its entry is recorded, and the chunk is in -120(%rsp). */
call_stub_long:
.Lentry_handed:
	movq	%r8, -120(%rsp)
	incq	(%rsp)
.Lentry_long:
	RESTORE 0
	PUSH_ALL
	cld
	movq	-32(%rsp), %rsi
	movq	%rsp, %rdi
	movq	%rsp, %rbx
	.cfi_def_cfa rbx, 104
	andq	$-16, %rsp
	call	call_entered		/* puts the body's address where the target was */
	movq	%rbx, %rsp
	.cfi_def_cfa rsp, 104
	testl	%eax, %eax
	.cfi_remember_state
	jz	2f
	RETURN_ADDRESS_IN_SHADOW
	.cfi_rel_offset rbx, 0
	RESTORE_FLAGS
	POP_ALL
	leaq	16(%rsp), %rsp
	.cfi_adjust_cfa_offset -16
	jmp	.Lcall
	.cfi_restore_state
2:	RESTORE_FLAGS
	POP_ALL
	leaq	8(%rsp), %rsp
	.cfi_adjust_cfa_offset -8
	jmp	*-8(%rsp)
	.cfi_endproc
	.size	call_entry, . - call_entry
call_stub_end:

	/* call_vectors_save(to), call_vectors_restore(from): the 16 registers that C compiled for vectors may use. */
	.globl	call_vectors_save, call_vectors_restore, call_x87_read
	.hidden	call_vectors_save, call_vectors_restore, call_x87_read
	.type	call_vectors_save, @function
	.p2align 4
call_vectors_save:
	.cfi_startproc
	endbr64
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	%xmm\number, 16*\number(%rdi)
	.endr
	ret
	.cfi_endproc
	.size	call_vectors_save, . - call_vectors_save

	.type	call_vectors_restore, @function
	.p2align 4
call_vectors_restore:
	.cfi_startproc
	endbr64
	.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movups	16*\number(%rdi), %xmm\number
	.endr
	ret
	.cfi_endproc
	.size	call_vectors_restore, . - call_vectors_restore

	/* call_x87_read(to): st0, which stays. An 80-bit load and store change no bit of it and raise nothing. */
	.type	call_x87_read, @function
	.p2align 4
call_x87_read:
	.cfi_startproc
	endbr64
	fstpt	(%rdi)
	fldt	(%rdi)
	ret
	.cfi_endproc
	.size	call_x87_read, . - call_x87_read

	.section .note.GNU-stack, "", @progbits
