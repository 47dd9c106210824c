/* SPDX-License-Identifier: MIT */
/* nearest.h: of the names that there are, the one that was meant by one that there is not. */
#ifndef LORG_COMMAND_NEAREST_H
#define LORG_COMMAND_NEAREST_H

struct nearest {
	const char *text;  /* what was given */
	const char *name;  /* the nearest so far; NULL: none is near */
	unsigned distance; /* of that */
};

/* Looks at one name that there is. Longer ones than 63 bytes are not near to anything. */
void nearest_try(struct nearest *nearest, const char *name);

#endif
