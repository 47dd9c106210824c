/* SPDX-License-Identifier: MIT */
/*
 * sessions.h: the table of sessions, as the files of this folder see it. Each
 * of them keeps what is its own behind a pointer here.
 *
 * One thread.
 */
#ifndef LORG_SESSION_SESSIONS_H
#define LORG_SESSION_SESSIONS_H

#include "collector/collect/family.h"
#include "collector/session/session.h"

struct flags;	  /* flags.c's own */
struct router;	  /* router.c's own */
struct function_traces; /* functions.c's own */

/* A piece of the arenas' tables of match programs: the same place in each of them. */
struct program_place {
	uint32_t at, size; /* bytes */
	int used;
	uint64_t free_ns; /* where it is not used: it is not taken again before */
};

enum { PROGRAM_PLACES = 4 * SESSION_SLOTS };

/* What a session asks of the threads of one program that are to come. */
struct program_rule {
	struct lorg_program_flags said; /* as it stands in the arena of its family */
	struct family *family;
	unsigned place; /* there */
};

struct sessions {
	struct family_context *context;
	struct session slot[SESSION_SLOTS]; /* 0 is not used */
	unsigned count;			    /* in use */
	uint64_t next_number;
	struct flags *flags;
	struct router *router;
	struct function_traces *functions;
	uint32_t functions_asked; /* 1: some session asks for functions, and programs that start ask for their plans */
	/* What all arenas have in their slots, for those to come. Slot 0: the union. */
	struct lorg_session published[SESSION_SLOTS];
	uint8_t gates[LORG_HOOKS];
	uint32_t slots_used, port_epoch; /* struct lorg_arena */
	struct program_place place[PROGRAM_PLACES];
	struct program_place *program[SESSION_SLOTS][2]; /* of sends, of receives; NULL: none */
	uint32_t program_number; /* given last */
	struct program_rule *rules; /* of all families; session.c's */
	unsigned rule_count, rule_room;
	int restoring; /* not all are what they were: arenas that were taken over stay as they are meanwhile */
	uint64_t look_ns; /* when to look next which flags are still set anywhere */
};

/* ---- each file's own: made and freed with the table; NULL: no memory ---- */

struct flags *flags_create(struct sessions *sessions);
void flags_free(struct flags *flags);
struct router *router_create(struct sessions *sessions);
void router_free(struct router *router);
struct function_traces *function_traces_create(struct sessions *sessions);
void function_traces_free(struct function_traces *functions);
/* 1: sessions ask something of functions, so programs are to ask for plans. */
int function_traces_asked(const struct function_traces *functions);

#endif
