/* SPDX-License-Identifier: MIT */
/*
 * definitions.h: what sessions' readers read events with: images, modules,
 * functions, ports, names; by image, in bounded memory.
 *
 * A definition that replaces another (a descriptor bound anew, a module at the same place) takes its place. Each session
 * is given an image's definitions once, before the first event that needs them; with them those of the image that it was
 * forked from, whose modules and functions are its own too.
 */
#ifndef LORG_SESSION_DEFINITIONS_H
#define LORG_SESSION_DEFINITIONS_H

#include "collector/event/event.h"
#include "collector/session/router.h"

struct definitions;
struct definition_image;

struct definitions *definitions_create(void); /* NULL: no memory */
void definitions_free(struct definitions *definitions);

/* The image that a packet is of, found or made; NULL: no memory. All zero: the collector itself. */
struct definition_image *definitions_image(struct definitions *definitions, const uint8_t id[16]);
struct definition_image *definitions_find(const struct definitions *definitions, const uint8_t id[16]);
uint32_t definition_image_pid(const struct definition_image *image);
void definition_image_set_pid(struct definition_image *image, uint32_t pid);

/* Keeps an event that defines something; others are passed over. `head`: of its packet. */
void definitions_keep(struct definitions *definitions, struct definition_image *image, const struct lorg_packet *head,
		      const struct event_view *view);
/* CLOSED. */
void definitions_port_closed(struct definitions *definitions, struct definition_image *image, int32_t fd, uint32_t generation);

/* How definitions reach a session: a packet whose head says whose they are, events in it, all UNSHOWN. */
typedef void definitions_give(void *context, const struct lorg_packet *whose, uint64_t tick, const void *event, uint32_t length);

/* Gives what the session in `slot` has not been given of the image, and of those before it. */
void definitions_give_image(struct definitions *definitions, struct definition_image *image, unsigned slot, definitions_give *give,
			    void *context);
/* HOOKED_FUNCTION of that id, if it is known and not given yet. */
void definitions_give_function(struct definitions *definitions, uint32_t function, unsigned slot, definitions_give *give,
			       void *context);
/* Nothing is taken to be given to the session. */
void definitions_forget_session(struct definitions *definitions, unsigned slot);
int definitions_were_given(const struct definition_image *image, unsigned slot);
/* Whether it was given any of a living program of that number. */
int definitions_knows_pid(const struct definitions *definitions, uint32_t pid, unsigned slot);
/* The session has seen the end of the program: it is not told once more. */
void definitions_ended(struct definition_image *image, unsigned slot);

/* The thread that opened a port, by its birth (struct lorg_packet.process_birth); 0: not known. */
uint64_t definitions_opener(const struct definitions *definitions, const struct definition_image *image, int32_t fd,
			    uint32_t generation);

/* Each open port of an image (NULL: of all). */
uint32_t definitions_ports(const struct definitions *definitions, const struct definition_image *image,
			   void (*each)(void *context, const struct router_port *port), void *context);

/* How the program ended; and whether that is known, and it is over: then its ports are closed with it, once. */
void definitions_exit(struct definition_image *image, const struct lorg_event_EXIT *gone);
int definitions_take_end(struct definition_image *image, struct lorg_event_EXIT *gone);

/* The image writes no more; it is forgotten some seconds later, once no image that was forked from it is left. */
void definitions_image_over(struct definitions *definitions, const uint8_t id[16], uint64_t now_ns);
/*
 * Forgets images. Before that, `gone` is called for each session that was given definitions of it and has not seen its
 * end.
 */
typedef void definitions_gone(void *context, const struct lorg_packet *whose, unsigned slot);
void definitions_pass(struct definitions *definitions, struct sessions *sessions, uint64_t now_ns, definitions_gone *gone,
		      void *context);

#endif
