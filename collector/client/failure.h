/* SPDX-License-Identifier: MIT */
/* failure.h: fills what a function of trace.h says about its failure. */
#ifndef LORG_CLIENT_FAILURE_H
#define LORG_CLIENT_FAILURE_H

#include <lorg/trace.h>

/* One sentence, cut where it is too long. failure may be NULL. Returns -1. */
int client_fail(struct lorg_failure *failure, enum lorg_failure_kind kind, int error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
int client_no_memory(struct lorg_failure *failure);
void client_no_failure(struct lorg_failure *failure);

#endif
