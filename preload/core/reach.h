/* SPDX-License-Identifier: MIT */
/*
 * reach.h: how a program finds its collector: by the variable LORG, or by what a lorgd has left in its runtime directory.
 */
#ifndef LORG_PRELOAD_REACH_H
#define LORG_PRELOAD_REACH_H

#include "preload/core/arena.h"

/*
 * MAJOR:PID:FD:SIZE:TOKEN:IMAGE[,SLOT.ID.FLAGS ..]:SOCKET, the value of the variable LORG; up to the text's end or a newline.
 * True if it is meant for this library and whole.
 */
HIDDEN int reach_parse(const char *text, struct lorg_settings *settings);

/*
 * For a program without that variable: the file `programs` of $LORG_RUNTIME_DIRECTORY, or else of /run/lorg,
 * $XDG_RUNTIME_DIR/lorg or /run/user/UID/lorg, whichever has one; it has to belong to root or to the program's own user,
 * and nobody else may be able to write it. uid: of the program. Makes the system calls that the loader makes itself, and
 * where there is no such file nothing but open. True if there are settings.
 */
HIDDEN int reach_discover(char *const *envp, uint32_t uid, struct lorg_settings *settings);

#endif
