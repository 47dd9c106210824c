/* SPDX-License-Identifier: MIT */
/*
 * prototype.h: prototypes of functions, written in C.
 *
 * The language is that of C11 declarations: prototypes, typedefs, enums,
 * structs and unions, comments. What goes beyond types:
 *
 *   #pragma module libc.so.6      what follows is for modules of that name; without it, for any
 *   typedef int descriptor __attribute__((descriptor));
 *   typedef int status __attribute__((errno_result));
 *   enum open_flag { ... } __attribute__((flag_enum));
 *   const char data[length]       a parameter that points to as many bytes as the parameter `length` says;
 *   char data[result]             as the result says
 *   char *not_text __attribute__((not_text))
 */
#ifndef LORG_VALUE_PROTOTYPE_H
#define LORG_VALUE_PROTOTYPE_H

#include "collector/value/type.h"
#include "collector/value/value.h"

/* The last one given for this name and module. NULL: none. */
const struct value_prototype *prototype_find(const struct prototypes *prototypes, const char *module, const char *name);

/* Reads more; for tests and for prototypes_read. source: named in errors. -1: *error says where and why (to be freed). */
int prototypes_parse(struct prototypes *prototypes, const char *source, const char *text, size_t length, char **error);
struct prototypes *prototypes_new(void);

#endif
