/* SPDX-License-Identifier: MIT */
/* jump_context.S: makecontext, whose number of arguments is known to itself alone: they go on as they came. */
	.text
	.p2align 4
	.globl	makecontext
	.type	makecontext, @function
makecontext:
	.cfi_startproc
	endbr64
	.irp register, rax, rdi, rsi, rdx, rcx, r8, r9
	pushq	%\register
	.cfi_adjust_cfa_offset 8
	.endr
	call	context_noted		/* gives the real function */
	movq	%rax, %r11
	.irp register, r9, r8, rcx, rdx, rsi, rdi, rax
	popq	%\register
	.cfi_adjust_cfa_offset -8
	.endr
	jmp	*%r11
	.cfi_endproc
	.size	makecontext, . - makecontext

	.section .note.GNU-stack, "", @progbits
