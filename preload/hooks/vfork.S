/* SPDX-License-Identifier: MIT */
/*
 * vfork.S: vfork returns twice on one stack: first in the child, whose calls
 * then overwrite what lies below, the return address included. So whatever the
 * parent still needs stays in registers that the kernel keeps for it; the
 * system call is made here, as libc's own vfork makes it.
 */
	.text
	.p2align 4
	.globl vfork
	.type vfork, @function
	.globl __vfork
	.type __vfork, @function
vfork:
__vfork:
	.cfi_startproc
	endbr64
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	vfork_before		/* rax: tick of the entry, rdx: image reserved for the child */
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	movq	%rax, %rsi
	movq	%rdx, %rdi
	popq	%rdx			/* the return address */
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %rdx
	movl	$58, %eax		/* vfork; keeps all registers but rax, rcx, r11 */
	syscall
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rip, 0
	testq	%rax, %rax
	jnz	1f

	/* The child: vfork_child(image, entry, caller). */
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	vfork_child
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	xorl	%eax, %eax
	ret

1:	/* The parent, after the child's exec or exit: vfork_parent(image, entry, caller, result). */
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	movq	%rax, %rcx
	call	vfork_parent
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size vfork, .-vfork
	.size __vfork, .-__vfork

	.section .note.GNU-stack, "", @progbits
