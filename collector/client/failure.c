/* SPDX-License-Identifier: MIT */
/* failure.c: see failure.h. */
#include "collector/client/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int client_fail(struct lorg_failure *failure, enum lorg_failure_kind kind, int error, const char *format, ...)
{
	va_list arguments;
	if (!failure)
		return -1;
	failure->kind = kind;
	failure->error = error;
	va_start(arguments, format);
	vsnprintf(failure->text, sizeof failure->text, format, arguments);
	va_end(arguments);
	return -1;
}

int client_no_memory(struct lorg_failure *failure)
{
	return client_fail(failure, LORG_FAILURE_MEMORY, ENOMEM, "out of memory: free some");
}

void client_no_failure(struct lorg_failure *failure)
{
	if (!failure)
		return;
	failure->kind = LORG_FAILURE_NONE;
	failure->error = 0;
	failure->text[0] = 0;
}
