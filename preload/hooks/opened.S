/* SPDX-License-Identifier: MIT */
/*
 * opened.S: dlopen and dlmopen. The loader looks at its caller: whose search path a name without a slash is looked up in,
 * and which namespace. The C code only says where to go (the real function, or one that calls it and then looks what has
 * come), and this goes there, the caller's return address still on the stack.
 */
	.macro LEADS name, way
	.p2align 4
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	movq	24(%rsp), %rcx
	call	\way	/* (its arguments, the return address): an address */
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	jmpq	*%rax
	.cfi_endproc
	.size \name, .-\name
	.endm

	.text
	LEADS dlopen, dlopen_leads_to
	LEADS dlmopen, dlmopen_leads_to

	.section .note.GNU-stack, "", @progbits
