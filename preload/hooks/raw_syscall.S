/* SPDX-License-Identifier: MIT */
/*
 * raw_syscall.S: syscall(number, ...). Whatever is called may return twice, or
 * on another stack: so nothing of ours stands on it then. The C code only says
 * where to go (the real function, or the traced one), and this goes there with
 * all arguments as they came, the seventh on the stack included.
 */
	.text
	.p2align 4
	.globl syscall
	.type syscall, @function
syscall:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	pushq	%rcx
	.cfi_adjust_cfa_offset 8
	pushq	%r8
	.cfi_adjust_cfa_offset 8
	pushq	%r9
	.cfi_adjust_cfa_offset 8
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	syscall_leads_to	/* (number, four arguments): an address */
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r9
	.cfi_adjust_cfa_offset -8
	popq	%r8
	.cfi_adjust_cfa_offset -8
	popq	%rcx
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	jmpq	*%rax
	.cfi_endproc
	.size syscall, .-syscall

	.section .note.GNU-stack, "", @progbits
