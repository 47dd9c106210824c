/* SPDX-License-Identifier: MIT */
/*
 * pager.h: output for a person at a terminal goes through a pager: $LORG_PAGER,
 * else $PAGER, else less -FRX; none where standard output is no terminal or
 * the variable is empty or "cat".
 */
#ifndef LORG_FORMAT_PAGER_H
#define LORG_FORMAT_PAGER_H

struct pager {
	int fd;       /* to write to */
	int child;    /* pid; 0: none, fd is standard output */
	int terminal; /* 1: a person reads: colours may be used */
};

/* What $TERM and $NO_COLOR say of a terminal: 1: colours may be used. */
int pager_wants_colour(void);

void pager_begin(struct pager *pager);
/* Waits until the person has read. Everything must have been written. */
void pager_end(struct pager *pager);

#endif
