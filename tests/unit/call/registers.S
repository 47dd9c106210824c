/* SPDX-License-Identifier: MIT */
/*
 * registers.S: a call with every register set, and a function that looks at
 * every register and sets it anew. The four states are struct registers_state
 * of test_call.c; registers_level: 0 xmm, 1 ymm, 2 zmm and masks.
 */
#define GENERAL 0
#define FLAGS 120
#define VECTORS 128
#define MASKS (VECTORS + 32 * 64)
#define MXCSR (MASKS + 64)
#define CONTROL (MXCSR + 4)
#define X87 (MXCSR + 16)

	.macro EACH_GENERAL operation, state
	.set at, 0
	.irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
	\operation \register, \state, at
	.set at, at + 8
	.endr
	.endm
	.macro LOAD_ONE register, state, at
	movq	\state+GENERAL+\at(%rip), %\register
	.endm
	.macro STORE_ONE register, state, at
	movq	%\register, \state+GENERAL+\at(%rip)
	.endm

	.macro VECTORS_OF state, load
	cmpl	$1, registers_level(%rip)
	jb	3f
	je	2f
	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
	.if \load
	vmovdqu64 \state+VECTORS+64*\n(%rip), %zmm\n
	.else
	vmovdqu64 %zmm\n, \state+VECTORS+64*\n(%rip)
	.endif
	.endr
	.irp n, 0,1,2,3,4,5,6,7
	.if \load
	kmovq	\state+MASKS+8*\n(%rip), %k\n
	.else
	kmovq	%k\n, \state+MASKS+8*\n(%rip)
	.endif
	.endr
	jmp	4f
2:	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	.if \load
	vmovdqu	\state+VECTORS+64*\n(%rip), %ymm\n
	.else
	vmovdqu	%ymm\n, \state+VECTORS+64*\n(%rip)
	.endif
	.endr
	jmp	4f
3:	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
	.if \load
	movups	\state+VECTORS+64*\n(%rip), %xmm\n
	.else
	movups	%xmm\n, \state+VECTORS+64*\n(%rip)
	.endif
	.endr
4:
	.endm

	.macro LOAD state
	VECTORS_OF \state, 1
	ldmxcsr	\state+MXCSR(%rip)
	fldcw	\state+CONTROL(%rip)
	pushq	\state+FLAGS(%rip)
	popfq
	EACH_GENERAL LOAD_ONE, \state
	.endm
	.macro STORE state
	EACH_GENERAL STORE_ONE, \state
	pushfq
	popq	\state+FLAGS(%rip)
	VECTORS_OF \state, 0
	stmxcsr	\state+MXCSR(%rip)
	fnstcw	\state+CONTROL(%rip)
	.endm

	.text
	/* registers_call(): calls registers_target with `registers_before`, and leaves what it gives in `registers_after`. */
	.globl	registers_call
	.type	registers_call, @function
registers_call:
	.irp register, rbx, rbp, r12, r13, r14, r15
	pushq	%\register
	.endr
	pushfq
	pushq	registers_before+X87(%rip)	/* a stack argument, and the alignment */
	pushq	%rax
	fldt	registers_before+X87(%rip)
	LOAD registers_before
	call	*registers_target(%rip)
	STORE registers_after
	fstpt	registers_after+X87(%rip)
	cld
	addq	$16, %rsp
	popfq
	.irp register, r15, r14, r13, r12, rbp, rbx
	popq	%\register
	.endr
	fninit
	ret
	.size	registers_call, . - registers_call

	.globl	registers_body
	.type	registers_body, @function
registers_body:
	STORE registers_seen
	fstpt	registers_seen+X87(%rip)
	movq	%rsp, registers_stack(%rip)
	movq	16(%rsp), %rax
	movq	%rax, registers_argument(%rip)
	fldt	registers_given+X87(%rip)
	LOAD registers_given
	ret
	.size	registers_body, . - registers_body

	/* A chain of tail calls: long tails(long n), through tails_target while n > 0. */
	.globl	tails_body
	.type	tails_body, @function
tails_body:
	testq	%rdi, %rdi
	movq	%rdi, %rax
	jz	1f
	decq	%rdi
	jmp	*tails_target(%rip)
1:	movl	$42, %eax
	ret
	.size	tails_body, . - tails_body

	.section .note.GNU-stack, "", @progbits
