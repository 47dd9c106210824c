/* SPDX-License-Identifier: MIT */
/*
 * thread_start.S: what runs first in every thread that a hook saw made.
 *
 * It calls the program's routine and tells of its return. Where the thread is
 * cancelled, the unwinder passes this frame and calls its personality routine,
 * thread_unwound: so no cleanup handler has to be registered, and liblorg.so
 * needs no unwinder of its own.
 */
	.text
	.p2align 4
	.globl thread_start
	.hidden thread_start
	.type thread_start, @function
thread_start:
	.cfi_startproc
	.cfi_personality 0x1b, thread_unwound
	endbr64
	pushq	%rbp			/* a frame as the C code of liblorg.so has it: call/caller.c */
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	movq	%rsp, %rbp
	subq	$16, %rsp
	.cfi_adjust_cfa_offset 16
	movq	%rsp, %rsi		/* two words: routine, argument */
	call	thread_begin
	movq	8(%rsp), %rdi
	call	*(%rsp)
	movq	%rax, %rdi
	call	thread_end		/* gives back its argument */
	addq	$16, %rsp
	.cfi_adjust_cfa_offset -16
	popq	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
	ret
	.cfi_endproc
	.size thread_start, .-thread_start

	.section .note.GNU-stack, "", @progbits
