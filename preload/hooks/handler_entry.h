/* SPDX-License-Identifier: MIT */
/*
 * handler_entry.h: the entries that stand for the program's signal handlers;
 * shared by handler.c and handler_entry.S.
 *
 * An entry, once given to a handler, is that handler's for ever. So the kernel
 * alone decides, in one step, which handler a signal goes to, as it does
 * without us: there is no table to fall behind the system call.
 */
#ifndef LORG_PRELOAD_HANDLER_ENTRY_H
#define LORG_PRELOAD_HANDLER_ENTRY_H

#define HANDLER_ENTRY_SIZE 16 /* bytes of code */
/* By kind: one-argument handlers, SA_SIGINFO handlers, handlers set where the kernel gives no siginfo. */
#define HANDLER_PLAIN_FIRST 0
#define HANDLER_INFORMED_FIRST 512
#define HANDLER_UNINFORMED_FIRST 1024
#define HANDLER_ENTRY_COUNT 1088

#endif
