/* SPDX-License-Identifier: MIT */
/* demangle.c: C++ names by the demangler of libstdc++, which Debian installs with every g++. */
#include <stdlib.h>
#include <string.h>

#include "collector/symbol/symbol.h"

enum { MANGLED_MAXIMUM = 8192 };

/* Itanium C++ ABI, 3.4; from libstdc++, whose header is for C++ alone. */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

char *symbol_demangle(const char *name)
{
	if (name[0] == '_' && name[1] == 'Z' && strnlen(name, MANGLED_MAXIMUM) < MANGLED_MAXIMUM) {
		int status;
		char *demangled = __cxa_demangle(name, NULL, NULL, &status);
		if (demangled)
			return demangled;
	}
	return strdup(name);
}
