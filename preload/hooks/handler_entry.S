/* SPDX-License-Identifier: MIT */
/*
 * handler_entry.S: what the kernel calls in the place of a handler. Each entry
 * puts its number into the fourth argument register, which no handler has, and
 * jumps on; the stack is as the kernel left it, so the frame is that of a
 * function just entered, for unwinders too.
 */
#include "preload/hooks/handler_entry.h"

	.text
	.balign	HANDLER_ENTRY_SIZE
	.globl	handler_entries
	.hidden	handler_entries
	.type	handler_entries, @function
handler_entries:
	.cfi_startproc
	.set	entry, 0
	.rept	HANDLER_ENTRY_COUNT
	.balign	HANDLER_ENTRY_SIZE
	endbr64
	movl	$entry, %ecx
	jmp	handler_run
	.set	entry, entry + 1
	.endr
	.balign	HANDLER_ENTRY_SIZE
	.cfi_endproc
	.size	handler_entries, . - handler_entries

	.section .note.GNU-stack, "", @progbits
