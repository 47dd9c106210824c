/* SPDX-License-Identifier: MIT */
/*
 * session.h: the trace sessions of a lorgd: what each asks of whom, and to whom
 * its events go.
 *
 * A program writes each event once, if any session may want it (the union of
 * all, in slot 0 of its arena's sessions and of its process entries). The
 * collector decides for each event which sessions get it (router.h), by what
 * each asked at the event's effective tick. So a session costs a program no
 * chunks of its own, and a slow tracer takes nothing from it.
 *
 *   daemon/   requests of trace(3) become calls of the functions here
 *   session.c the table of sessions; their tracers; their end
 *   flags.c   flags of processes and ports: in the arenas, and their history for the router
 *   router.c  packets of a family in, packets of each session out
 *   tracer.c  where those go: directory, client, file, socket, module
 *   functions.c  function/4: plans, controls, counters
 *
 * One thread. Ticks are those of the node's clock (collector/collect/clock.h).
 */
#ifndef LORG_SESSION_SESSION_H
#define LORG_SESSION_SESSION_H

#include <stdint.h>
#include <sys/types.h>

#include <lorg/abi.h>
#include <lorg/match.h>

struct family;	       /* collector/collect/family.h */
struct family_context;
struct process;
struct image;
struct arena_layout; /* collector/collect/memory.h */
struct tracer;	       /* tracer.h */
struct session_functions; /* functions.c's own */
struct sessions;

enum {
	SESSION_SLOTS = LORG_SESSIONS,
	SESSION_FIRST_SLOT = 1,	  /* 0 is the union of all */
	SESSION_NAME_ROOM = 1021, /* the longest atom, and its end */
};

/* What is asked of all processes, or ports, that have none of their own setting. */
struct session_defaults {
	uint32_t new_processes, new_ports; /* LORG_TRACE_* */
};

struct session_limits {
	uint64_t events, rate, memory, rate_ns; /* as struct lorg_limits of trace.h */
};

/* One match specification of send/3 or recv/3. */
struct session_messages {
	int given;	   /* 0: true, the default; 1: `off` or a program */
	int off;	   /* false: none */
	uint8_t *program;  /* compiled (match.h); NULL: none */
	uint32_t program_size;
	char *text;	   /* as it was given, for info/3 */
};

struct session {
	unsigned slot;	 /* 1 .. SESSION_SLOTS - 1 */
	uint64_t number; /* of the weak handle; never used twice */
	char name[SESSION_NAME_ROOM]; /* an atom; programs see its beginning */
	int used;
	int persist;
	const void *owner; /* the connection that it dies with; NULL: none, or gone */
	uint64_t since;	   /* tick; events that began before are not its own */
	struct tracer *tracer;
	struct session_defaults defaults;
	struct session_limits limits;
	uint64_t events, dropped; /* so far */
	uint64_t packets; /* that went to its tracer; the router's */
	struct session_messages send, receive;
	uint32_t message_length; /* bytes kept of a message */
	uint32_t control_word;	 /* set_tcw, as last seen */
	uint64_t system_limits[8]; /* index: enum session_system; UINT64_MAX: off */
	uint32_t timestamps;	 /* cpu_timestamp; the others are flags */
	struct session_functions *functions; /* NULL: none */
	uint32_t function_gates; /* enum lorg_gate bits that what it asks of functions needs (an action may set flags: theirs
				    too); functions.c's, which calls sessions_publish when it changes them */
	uint32_t asked;	 /* LORG_TRACE_* that some process or port may have; session.c's */
	int ending;		 /* its tracer has gone: destroyed at the next pass */
	char why[128];
};

enum session_system {
	SESSION_LONG_GC = 0,	     /* ms */
	SESSION_LONG_QUEUE_OFF = 1,  /* long_message_queue {Disable, Enable} */
	SESSION_LONG_QUEUE_ON = 2,
	SESSION_LONG_SCHEDULE = 3,   /* ms */
	SESSION_LARGE_HEAP = 4,	     /* words */
	SESSION_BUSY_PORT = 5,	     /* 1 */
	SESSION_BUSY_DIST_PORT = 6,  /* 1 */
	SESSION_QUEUES_SINCE = 7,    /* of the union of all: tick at which the first asked for long_message_queue; no session's */
};

/* ---- session.c ----------------------------------------------------------- */

struct sessions *sessions_create(struct family_context *context);
void sessions_free(struct sessions *sessions);
/* NULL: no slot is free. The tracer is taken over. */
struct session *session_add(struct sessions *sessions, const char *name, struct tracer *tracer, const void *owner, int persist);
/* After a restart, before all else: what programs keep by its number is not taken for what comes. epoch: of the restart. */
void sessions_take_over(struct sessions *sessions, uint64_t epoch);
/*
 * After a restart, before the first pass: a session as it was, in the slot that it had; then sessions_adopt, for what
 * programs say of their flags in it. NULL: the slot is taken.
 */
struct session *session_restore(struct sessions *sessions, unsigned slot, uint64_t number, const char *name, struct tracer *tracer);
void sessions_adopt(struct sessions *sessions);
/* Clears all that it asks of all programs, tells its tracer, frees it. Returns when no program has anything of it. */
void session_remove(struct sessions *sessions, struct session *session, const char *why);
/*
 * Before another lorgd goes on: tracers that are processes of their own take what there is for them, and end. Their sessions have
 * none from then on: to be followed by this process's end.
 */
void sessions_rest(struct sessions *sessions, const char *why);
struct session *session_at(struct sessions *sessions, unsigned slot);
struct session *session_numbered(struct sessions *sessions, uint64_t number);
/* NULL and *several set: more than one has that name. */
struct session *session_named(struct sessions *sessions, const char *name, int *several);
/* send/3 (receiving 0) and recv/3: takes program and text over. 0, or -1: there is no room for the program. */
int session_set_messages(struct sessions *sessions, struct session *session, int receiving, const struct session_messages *messages);
/* Flags that its processes may have from now on; to be followed by sessions_publish. */
static inline void session_asks(struct session *session, uint32_t flags)
{
	session->asked |= flags;
}
/* Which flags are still set anywhere is looked up; to be followed by sessions_publish. */
void sessions_look(struct sessions *sessions);
/* After any change of what a session asks: settings of all arenas, the union, gates. */
void sessions_publish(struct sessions *sessions);
/* A new arena, before any image sees it; at: where its memory is mapped. */
void sessions_settle(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout);
/* The threads of one program begin with these flags, from now on. 0, or -1: there is no place for more such programs. */
int session_program_flags(struct sessions *sessions, struct session *session, struct family *family, const struct image *image,
			  int how, uint32_t flags);
/* Each pass: sessions whose tracer has gone, limits. */
void sessions_pass(struct sessions *sessions, uint64_t now_ns);

/* ---- flags.c ------------------------------------------------------------- */

/* Flags set on (how 1) or cleared from one process of a family, from now on. */
void session_process_flags(struct sessions *sessions, struct session *session, struct family *family, uint32_t process, int how,
			   uint32_t flags);
/* By descriptor and generation in one image; PORT_GENERATION_NOW: the binding that the program tells of next. */
#define PORT_GENERATION_NOW UINT32_MAX
void session_port_flags(struct sessions *sessions, struct session *session, const uint8_t image[16], int32_t fd,
			uint32_t generation, int how, uint32_t flags);
/* As info/3 answers it: of now. */
uint32_t session_flags_of_process(struct session *session, struct family *family, uint32_t process);
uint32_t session_flags_of_port(struct sessions *sessions, struct session *session, const uint8_t image[16], int32_t fd,
			       uint32_t generation);
/* A change that the program made itself (a FLAGS event), for the history; tells the daemon's copy. */
struct flags_key {
	uint8_t image[16];
	uint64_t birth; /* of the process; 0 for a port */
	int32_t fd;	/* -1 for a process */
	uint32_t generation;
};
void session_flags_told(struct sessions *sessions, const struct flags_key *key, unsigned slot, uint64_t tick, uint32_t on,
			uint32_t off);
/* The flags as of a tick; ticks of one key must not go back by more than history is kept (FLAGS_HISTORY_NS). */
uint32_t session_flags_at(struct sessions *sessions, const struct flags_key *key, unsigned slot, uint64_t tick);
void session_flags_forget(struct sessions *sessions, const struct flags_key *key);

/* ---- router.c -------------------------------------------------------------- */

/*
 * Takes one packet of a process (whole, checked: as the store would get it) and passes its events on to the sessions that
 * asked for them at each one's effective tick. Definitions (event_is_definition) are kept, and given to each session
 * before its first event that needs them, also to sessions that come later.
 */
int router_packet(struct sessions *sessions, struct family *family, struct process *process, const struct lorg_packet *head,
		  size_t length);
/* Each pass, after the families' own: sends on what is ready, and answers of router_delivered. */
void router_pass(struct sessions *sessions, uint64_t now_ns);
/* The session has another tracer, which has seen no definitions. */
void router_introduce_again(struct sessions *sessions, struct session *session);
/* The process is over: its definitions may go once no session needs them. */
void router_process_over(struct sessions *sessions, const uint8_t image[16], uint64_t birth);
/*
 * delivered/2: calls done (from here, or a later pass) once all that was committed before this call, half-filled chunks
 * included, has gone to the session's tracer; or when the session ends.
 */
typedef void delivered_done(void *context);
void router_delivered(struct sessions *sessions, struct session *session, delivered_done *done, void *context);
/* Who waits with that context has gone. */
void router_delivered_abandon(struct sessions *sessions, void *context);

/* ---- functions.c ------------------------------------------------------------ */

enum function_how { FUNCTION_SET, FUNCTION_CLEAR, FUNCTION_RESTART, FUNCTION_PAUSE };
enum { FUNCTION_ON_LOAD = 1 << 16 }; /* beside enum lorg_call_kind bits */

struct function_request {
	const char *module, *function; /* exact names; NULL: any ('_') */
	const char *pattern; /* MODULE:FUNCTION/ARITY with globs (collector/plan/pattern.h) instead of the two; NULL: none */
	int64_t arity;		       /* -1: any */
	int on_load;
	uint32_t kinds; /* enum lorg_call_kind bits: LOCAL or GLOBAL or META, COUNT, TIME, MEMORY */
	enum function_how how;
	const char *match; /* the specification's text; NULL: [] */
	int is_condition;  /* 1: match is a condition in the short form */
	int standing;	   /* 1: it is asked of modules that come later, too, until false is asked of the same functions */
};

/*
 * Begins function/4; done is called (from here, or from a later pass) with the number of functions, those refused as the
 * text of a list, or a badarg. Plans of modules not seen before take their time.
 */
typedef void function_done(void *context, int64_t number, const char *refused, const char *badarg);
void session_function(struct sessions *sessions, struct session *session, const struct function_request *request,
		      function_done *done, void *context);
/* The connection that waits for `context` has gone. */
void session_function_abandon(struct sessions *sessions, void *context);
/*
 * info/3 of a function: the term as text, malloc'ed; NULL: no memory. module NULL: of on_load. session NULL: of none, with
 * item all: {all,false}, or {all,undefined} where there is no such function.
 */
char *session_function_info(struct sessions *sessions, struct session *session, const char *module, const char *function,
			    int64_t arity, const char *item);
/* 0 while what is in the module is being found out (which this begins): to be asked again at the next pass. */
int session_function_known(struct sessions *sessions, const char *module);
/* Whether the session traces calls of that function (LOCAL or GLOBAL, without a specification) at a tick, for the router. */
int session_traces_function(const struct session *session, uint32_t function, uint64_t tick);
/* The flag call of a process of a family is about to be cleared (on 0), or was set: call_time and call_memory go by it. */
void session_functions_flag(struct sessions *sessions, struct session *session, struct family *family, uint32_t process, int on);
/*
 * Before that end: nothing is asked any more, and programs' code goes back. 1: not all of it is back yet: ask again at the next pass,
 * or leave it to later ones. 0: it is, or has had its time.
 */
int session_functions_leave(struct sessions *sessions, struct session *session);
/* All that the session asks of functions goes; what code programs cannot give back just now follows at later passes. */
void session_functions_end(struct sessions *sessions, struct session *session);
/* A module is mapped or unmapped by an image; each pass. */
void session_functions_pass(struct sessions *sessions, uint64_t now_ns);

#endif
