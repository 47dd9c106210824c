/* SPDX-License-Identifier: MIT */
/* shipped.h: the prototypes that come with lorg, from scripts/prototypes. */
#ifndef LORG_VALUE_SHIPPED_H
#define LORG_VALUE_SHIPPED_H

#include <stddef.h>

struct shipped_prototypes {
	const char *file; /* base name; NULL: last */
	const char *text;
	size_t length;
};
extern const struct shipped_prototypes shipped_prototypes[];

#endif
