/* SPDX-License-Identifier: MIT */
/* debug_info.h: prototypes of a module's functions from its debug information. */
#ifndef LORG_VALUE_DEBUG_INFO_H
#define LORG_VALUE_DEBUG_INFO_H

#include <elfutils/libdw.h>
#include <stdint.h>

#include "collector/value/type.h"

struct dwarf_functions;

/* dwarf stays open as long as this lives. NULL: no memory. */
struct dwarf_functions *dwarf_functions_open(Dwarf *dwarf);
void dwarf_functions_close(struct dwarf_functions *functions);

/* The function that begins at `offset`. changed: the compiler has cloned it, its parameters are not those of the source. NULL: none. */
const struct value_prototype *dwarf_function(struct dwarf_functions *functions, uint64_t offset, int changed);

/* What a pointer leads to, read now if it was not before. NULL: there is nothing that could be read. */
const struct value_type *dwarf_pointee(struct dwarf_functions *functions, const struct value_type *pointer);

#endif
