/* SPDX-License-Identifier: MIT */
/* nearest.c: see nearest.h. */
#include "collector/command/nearest.h"

#include <string.h>

enum { NAME_MAXIMUM = 63 };

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Letters to be added, left out, changed, or swapped with their neighbours. */
static unsigned distance_of(const char *a, size_t a_length, const char *b, size_t b_length)
{
	unsigned rows[3][NAME_MAXIMUM + 1], *before = rows[0], *last = rows[1], *now = rows[2];
	for (unsigned k = 0; k <= b_length; k++)
		last[k] = k;
	for (size_t i = 1; i <= a_length; i++) {
		now[0] = (unsigned)i;
		for (size_t k = 1; k <= b_length; k++) {
			unsigned change = last[k - 1] + (a[i - 1] != b[k - 1]);
			now[k] = least(change, least(last[k], now[k - 1]) + 1);
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				now[k] = least(now[k], before[k - 2] + 1);
		}
		unsigned *free_row = before;
		before = last;
		last = now;
		now = free_row;
	}
	return last[b_length];
}

void nearest_try(struct nearest *nearest, const char *name)
{
	size_t given = strlen(nearest->text), length = strlen(name);
	if (given == 0 || length == 0 || given > NAME_MAXIMUM || length > NAME_MAXIMUM)
		return;
	/* A beginning is near; else one letter of three may be wrong. */
	int begins = given >= 2 && given < length && strncmp(nearest->text, name, given) == 0;
	unsigned distance = begins ? 1 : distance_of(nearest->text, given, name, length);
	unsigned most = (unsigned)(given < length ? length : given) / 3;
	if (distance > (most ? most : 1) || (nearest->name && distance >= nearest->distance))
		return;
	nearest->name = name;
	nearest->distance = distance;
}
